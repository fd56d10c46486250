#include "ops/random/random.h"

#include <atomic>
#include <cmath>
#include <mutex>
#include <random>
#include <utility>

#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  for (const TensorSpec& spec : c.inputs)
    c.check(spec == TensorSpec{DType::int64, {}}, ErrorCode::internal,
            "state and example are int64 scalars, received ", spec);
  for (const int64_t d : attrs.shape)
    c.check(d >= 0, ErrorCode::invalid_argument, "dimensions are not negative, received shape ", attrs.shape);
  if (&c.op == &kRandomThreshold)
    c.check(attrs.dtype == DType::boolean, ErrorCode::dtype_mismatch, "makes booleans, received dtype ",
            attrs.dtype);
  else if (&c.op == &kRandomPermutation)
    c.check(attrs.dtype == DType::int64 && attrs.shape.rank() == 1, ErrorCode::internal,
            "makes int64 numbers in one dimension, received ", attrs.dtype, attrs.shape);
  else if (&c.op == &kRandomInteger)
    c.check(attrs.dtype == DType::int32 || attrs.dtype == DType::int64, ErrorCode::dtype_mismatch,
            "makes int32 or int64 numbers, received dtype ", attrs.dtype);
  else
    c.check(is_floating(attrs.dtype), ErrorCode::dtype_mismatch,
            "makes floating-point numbers, received dtype ", attrs.dtype);
  return {{attrs.dtype, attrs.shape}};
}

// Ten rounds of about ten integer operations make four numbers.
Cost cost(const InferContext&, std::span<const TensorSpec> outputs) {
  return {.flops = 25 * outputs[0].shape.size(), .bytes = static_cast<int64_t>(outputs[0].bytes())};
}

constexpr OpDef random_op(std::string_view name) {
  return {.name = name, .min_inputs = 2, .max_inputs = 2, .infer = infer, .cost = cost};
}

// Seeds that are close together must not give states that are.
int64_t initial_state(uint64_t seed) {
  return static_cast<int64_t>(random_key(static_cast<int64_t>(seed), -1));
}

}  // namespace

constinit const OpDef kRandomUniform = random_op("random_uniform");
constinit const OpDef kRandomNormal = random_op("random_normal");
constinit const OpDef kRandomTruncatedNormal = random_op("random_truncated_normal");
constinit const OpDef kRandomThreshold = random_op("random_threshold");
constinit const OpDef kRandomFoldIn{.name = "random_fold_in",
                                    .min_inputs = 2,
                                    .max_inputs = 2,
                                    .infer = [](const InferContext& c) -> SpecList {
                                      for (const TensorSpec& spec : c.inputs)
                                        c.check(spec == TensorSpec{DType::int64, {}},
                                                ErrorCode::dtype_mismatch, "takes int64 scalars, received ",
                                                spec);
                                      return {{DType::int64, {}}};
                                    }};
constinit const OpDef kRandomInteger = random_op("random_integer");
constinit const OpDef kRandomPermutation = random_op("random_permutation");

namespace {
const RegisterOp registered[] = {RegisterOp(kRandomUniform),         RegisterOp(kRandomNormal),
                                 RegisterOp(kRandomTruncatedNormal), RegisterOp(kRandomThreshold),
                                 RegisterOp(kRandomInteger),         RegisterOp(kRandomPermutation)};
}

namespace random {

struct Generator::Impl {
  std::mutex mutex;  // a draw reads the state and moves it on
  Variable state;
  // What is known of it: its value when it had this version.
  uint64_t version = ~uint64_t{0};
  int64_t value = 0;

  // With the mutex held.
  int64_t read() {
    const uint64_t now = state.impl()->version;
    if (version != now) value = state.value().item<int64_t>(), version = now;
    return value;
  }
  void write(int64_t next) {
    // The state stays on its device, whatever scope is open: another need not have memory.
    const DeviceScope home(state.value().device());
    state.assign(Tensor::scalar(next));
    value = next, version = state.impl()->version;
  }
};

Generator::Generator(uint64_t seed, std::source_location where) : impl_(std::make_shared<Impl>()) {
  // Steps under any strategy draw from it.
  const VariableOwnerScope nobody(nullptr);
  impl_->state = Variable(Tensor::scalar(initial_state(seed), where),
                          {.name = "random_state", .trainable = false}, where);
}

void Generator::reset(uint64_t seed) const {
  require(!Trace::current(), ErrorCode::failed_precondition, std::source_location::current(),
          "random: a generator cannot be seeded inside a traced function; do it before the function runs");
  const std::lock_guard lock(impl_->mutex);
  impl_->write(initial_state(seed));
}

const Variable& Generator::state() const { return impl_->state; }

int64_t Generator::position() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->read();
}

int64_t Generator::advance() const {
  const std::lock_guard lock(impl_->mutex);
  const int64_t state = impl_->read();
  // Unsigned: the state wraps around.
  impl_->write(static_cast<int64_t>(static_cast<uint64_t>(state) + 1));
  return state;
}

namespace {
thread_local DefaultGenerator* scoped_default = nullptr;
}
DefaultGenerator::DefaultGenerator() : previous_(std::exchange(scoped_default, this)) {}
DefaultGenerator::~DefaultGenerator() { scoped_default = previous_; }

const Generator& default_generator() {
  if (scoped_default) return scoped_default->generator();
  static const auto* generator = [] {
    std::random_device device;
    const uint64_t high = device();
    return new Generator(high << 32 | device());
  }();
  return *generator;
}

namespace {
std::atomic<bool> seed_was_set = false;
}
void set_seed(uint64_t seed) {
  default_generator().reset(seed);
  seed_was_set = true;
}
void agree_on(int64_t state) {
  default_generator().state().assign(Tensor::scalar(state));
  seed_was_set = true;
}
bool seeded() { return seed_was_set || scoped_default != nullptr; }

}  // namespace random

RandomSource random_source(const random::Generator* chosen, int64_t rows, bool per_example,
                           std::source_location where) {
  const random::Generator& generator = chosen ? *chosen : random::default_generator();
  const int64_t rows_per_example = per_example && rows > 0 ? 1 : 0;
  Trace* trace = Trace::current();
  if (!trace) return {Tensor::scalar(generator.advance()), Tensor::scalar(int64_t{0}), 0, rows_per_example};
  trace->count_runs(generator.state());
  const int64_t instance = trace->next_random();
  Tensor state = generator.state().value(where);
  for (const Tensor& iteration : trace->loop_indices())
    state = emit_one(kRandomFoldIn, {state, iteration}, {}, where);
  const int64_t batch = trace->replica().local_batch;
  if (per_example && batch > 0 && rows > 0 && rows % batch == 0)
    return {state, emit_one(kExampleOffset, {}, {}, where), instance, rows / batch};
  return {state, fill({DType::int64, {}}, 0, where), instance, rows_per_example};
}

namespace {

// Every random op goes through here.
Tensor draw(const OpDef& op, RandomAttrs attrs, const random::Generator* generator, bool per_example,
            std::source_location where) {
  const int64_t rows = attrs.shape.rank() > 0 ? attrs.shape[0] : 0;
  const RandomSource source = random_source(generator, rows, per_example, where);
  attrs.instance = source.instance;
  attrs.rows_per_example = source.rows_per_example;
  return emit_one(op, {source.state, source.example}, attrs, where);
}

// x * scale + shift, leaving out what does nothing.
Tensor affine(Tensor x, double scale, double shift) {
  if (scale != 1) x = x * scale;
  if (shift != 0) x = x + shift;
  return x;
}

}  // namespace

namespace {

Tensor uniform_integers(const Shape& shape, const random::UniformOptions& options,
                        std::source_location where) {
  const auto& [low, high, dtype, per_example, generator] = options;
  require(dtype == DType::int32 || dtype == DType::int64, ErrorCode::dtype_mismatch, where,
          "random_uniform: makes floating-point, int32 or int64 numbers, received dtype ", dtype);
  require(low < high, ErrorCode::invalid_argument, where, "random_uniform: there is no integer from minval ",
          low, " on and below maxval ", high);
  // maxval itself is not reached: it may be one above the largest integer.
  for (const double end : {low, high - 1})
    require(holds_exactly(dtype, end) && std::abs(end) <= 0x1p53, ErrorCode::dtype_mismatch, where,
            "random_uniform: minval ", low, " and maxval ", high, " are no exact ", dtype, " values");
  return draw(kRandomInteger,
              {.shape = shape,
               .dtype = dtype,
               .low = static_cast<int64_t>(low),
               .range = static_cast<uint64_t>(static_cast<int64_t>(high) - static_cast<int64_t>(low))},
              generator, per_example, where);
}

}  // namespace

namespace random {

Tensor permutation(int64_t n, const PermutationOptions& options, std::source_location where) {
  require(n >= 0, ErrorCode::invalid_argument, where,
          "permutation: the number of elements is not negative, received ", n);
  return draw(kRandomPermutation, {.shape = {n}, .dtype = DType::int64}, options.generator, false, where);
}

Tensor shuffle(const TensorArg& x, const PermutationOptions& options) {
  require(x.tensor("shuffle").rank() > 0, ErrorCode::shape_mismatch, x.where(),
          "shuffle: a scalar has no first dimension");
  Tensor order = permutation(x.tensor().shape()[0], options, x.where());
  if (!order.symbolic()) order = order.to(x.tensor().device());
  return gather(x, order);
}

Tensor categorical(const TensorArg& logits, int64_t samples, const CategoricalOptions& options) {
  const Shape& shape = logits.tensor("categorical").shape();
  require(shape.rank() == 2 && shape[1] > 0, ErrorCode::shape_mismatch, logits.where(),
          "categorical: takes logits [batch, classes] with one or more classes, received ", shape);
  require(is_floating(logits.tensor().dtype()), ErrorCode::dtype_mismatch, logits.where(),
          "categorical: takes floating-point logits, received ", logits.tensor().spec());
  require(samples >= 0, ErrorCode::invalid_argument, logits.where(),
          "categorical: the number of samples is not negative, received ", samples);
  // The class whose share of the cumulative probabilities a uniform number falls into.
  const Tensor wide = cast(logits, DType::float64);
  const Tensor weights = exp(wide - reduce_max(wide, {.axis = {1}, .keepdims = true}));
  const Tensor shares = cumsum(weights, {.axis = 1});
  const Tensor total = slice(shares, {0, shape[1] - 1}, {shape[0], 1});
  Tensor drawn =
      uniform({shape[0], samples},
              {.dtype = DType::float64, .per_example = options.per_example, .generator = options.generator},
              logits.where());
  if (!drawn.symbolic()) drawn = drawn.to(logits.tensor().device());
  const Tensor classes = searchsorted(shares, drawn * total, SearchSide::right);
  // Rounding may lift the product up to the total.
  return cast(minimum(classes, shape[1] - 1), DType::int64);
}

Tensor uniform(const Shape& shape, const UniformOptions& options, std::source_location where) {
  if (is_integer(options.dtype)) return uniform_integers(shape, options, where);
  require(options.minval <= options.maxval, ErrorCode::invalid_argument, where, "random_uniform: minval ",
          options.minval, " is above maxval ", options.maxval);
  const Tensor x = draw(kRandomUniform, {.shape = shape, .dtype = options.dtype}, options.generator,
                        options.per_example, where);
  return affine(x, options.maxval - options.minval, options.minval);
}

Tensor normal(const Shape& shape, const NormalOptions& options, std::source_location where) {
  const Tensor x = draw(kRandomNormal, {.shape = shape, .dtype = options.dtype}, options.generator,
                        options.per_example, where);
  return affine(x, options.stddev, options.mean);
}

Tensor truncated_normal(const Shape& shape, const NormalOptions& options, std::source_location where) {
  const Tensor x = draw(kRandomTruncatedNormal, {.shape = shape, .dtype = options.dtype}, options.generator,
                        options.per_example, where);
  return affine(x, options.stddev, options.mean);
}

Tensor bernoulli(const Shape& shape, double probability, const BernoulliOptions& options,
                 std::source_location where) {
  require(probability >= 0 && probability <= 1, ErrorCode::invalid_argument, where,
          "random_bernoulli: a probability is between 0 and 1, received ", probability);
  return draw(kRandomThreshold, {.shape = shape, .dtype = DType::boolean, .threshold = 1 - probability},
              options.generator, options.per_example, where);
}

}  // namespace random

Tensor dropout(const TensorArg& x, double rate, const DropoutOptions& options) {
  require(rate >= 0 && rate < 1, ErrorCode::invalid_argument, x.where(),
          "dropout: the rate is in [0, 1), received ", rate);
  x.tensor("dropout");
  require(is_floating(x.tensor().dtype()), ErrorCode::dtype_mismatch, x.where(),
          "dropout: takes floating-point tensors, received ", x.tensor().spec());
  if (rate == 0) return x.tensor();
  const Shape& shape = options.noise_shape.empty() ? x.tensor().shape() : options.noise_shape;
  require(shape.rank() == x.tensor().rank() &&
              broadcast(shape, x.tensor().shape(), "dropout", x.where()) == x.tensor().shape(),
          ErrorCode::shape_mismatch, x.where(), "dropout: noise_shape ", shape, " does not broadcast to ",
          x.tensor().shape());
  const Tensor keep = draw(kRandomThreshold, {.shape = shape, .dtype = DType::boolean, .threshold = rate},
                           options.generator, options.per_example, x.where());
  return where(keep, x.tensor() * (1 / (1 - rate)), 0.0);
}

}  // namespace lockstep
