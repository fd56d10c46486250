#include "ops/random/random.h"

#include <cmath>
#include <mutex>
#include <random>

#include "graph/emit.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  for (const TensorSpec& spec : c.inputs)
    c.check(spec == TensorSpec{DType::int64, {}}, ErrorCode::internal,
            "state and example are int64 scalars, received ", spec);
  for (const int64_t d : attrs.shape)
    c.check(d >= 0, ErrorCode::invalid_argument, "dimensions are not negative, received shape ", attrs.shape);
  c.check(&c.op == &kRandomThreshold ? attrs.dtype == DType::boolean : is_floating(attrs.dtype),
          ErrorCode::dtype_mismatch, "makes floating-point numbers, received dtype ", attrs.dtype);
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

namespace {
const RegisterOp registered[] = {RegisterOp(kRandomUniform), RegisterOp(kRandomNormal),
                                 RegisterOp(kRandomTruncatedNormal), RegisterOp(kRandomThreshold)};
}

namespace random {

struct Generator::Impl {
  std::mutex mutex;  // a draw reads the state and moves it on
  Variable state;
};

Generator::Generator(uint64_t seed, std::source_location where) : impl_(std::make_shared<Impl>()) {
  impl_->state = Variable(Tensor::scalar(initial_state(seed), where),
                          {.name = "random_state", .trainable = false}, where);
}

void Generator::reset(uint64_t seed) const {
  require(!Trace::current(), ErrorCode::failed_precondition, std::source_location::current(),
          "random: a generator cannot be seeded inside a traced function; do it before the function runs");
  const std::lock_guard lock(impl_->mutex);
  impl_->state.assign(Tensor::scalar(initial_state(seed)));
}

const Variable& Generator::state() const { return impl_->state; }

int64_t Generator::advance() const {
  const std::lock_guard lock(impl_->mutex);
  const auto state = impl_->state.value().item<int64_t>();
  // Unsigned: the state wraps around.
  impl_->state.assign(Tensor::scalar(static_cast<int64_t>(static_cast<uint64_t>(state) + 1)));
  return state;
}

const Generator& default_generator() {
  static const auto* generator = [] {
    std::random_device device;
    const uint64_t high = device();
    return new Generator(high << 32 | device());
  }();
  return *generator;
}

void set_seed(uint64_t seed) { default_generator().reset(seed); }

}  // namespace random

namespace {

// Every random op goes through here: it gives the op its state, its instance and its example.
Tensor draw(const OpDef& op, RandomAttrs attrs, const random::Generator* chosen, bool per_example,
            std::source_location where) {
  const random::Generator& generator = chosen ? *chosen : random::default_generator();
  const int64_t rows = attrs.shape.rank() > 0 ? attrs.shape[0] : 0;
  Trace* trace = Trace::current();
  if (!trace) {
    attrs.rows_per_example = per_example && rows > 0 ? 1 : 0;
    const int64_t state = generator.advance();
    return emit_one(op, {Tensor::scalar(state), Tensor::scalar(int64_t{0})}, attrs, where);
  }
  attrs.instance = trace->next_random();
  trace->count_runs(generator.state());
  const int64_t batch = trace->replica().local_batch;
  Tensor example;
  if (per_example && batch > 0 && rows > 0 && rows % batch == 0) {
    attrs.rows_per_example = rows / batch;
    example = emit_one(kExampleOffset, {}, {}, where);
  } else {
    attrs.rows_per_example = per_example && rows > 0 ? 1 : 0;
    example = fill({DType::int64, {}}, 0, where);
  }
  Tensor state = generator.state().value(where);
  for (const Tensor& iteration : trace->loop_indices())
    state = emit_one(kRandomFoldIn, {state, iteration}, {}, where);
  return emit_one(op, {state, example}, attrs, where);
}

// x * scale + shift, leaving out what does nothing.
Tensor affine(Tensor x, double scale, double shift) {
  if (scale != 1) x = x * scale;
  if (shift != 0) x = x + shift;
  return x;
}

}  // namespace

namespace random {

Tensor uniform(const Shape& shape, const UniformOptions& options, std::source_location where) {
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
