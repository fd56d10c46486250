// The harness of all layers: every check on every case of the table. Tests are named Check.case, for example
// Gradient.dense; a check is registered only where it applies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "keras/functional_graph.h"
#include "keras/layer_cases.h"
#include "keras/layers/registry.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::testing {
namespace {

// --- inputs and results ------------------------------------------------------------------------------------

class PolicyScope {
 public:
  explicit PolicyScope(const DTypePolicy& policy) : before_(mixed_precision::global_policy()) {
    mixed_precision::set_global_policy(policy);
  }
  ~PolicyScope() { mixed_precision::set_global_policy(before_); }
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  DTypePolicy before_;
};

// splitmix64: the same numbers with every standard library.
double uniform(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

Shape with_batch(const Shape& shape, int64_t batch) {
  Shape whole = shape;
  whole.insert(0, batch);
  return whole;
}

Tensor draw(const Shape& shape, DType dtype, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& value : values) value = 2 * uniform(seed) - 1;
  return cast(Tensor::from(values, shape), dtype);
}

TensorList inputs_of(const LayerCase& c, int64_t batch, DType dtype = DType::float32, uint64_t seed = 1) {
  TensorList inputs;
  for (const LayerInput& input : c.inputs) {
    const Shape shape = with_batch(input.shape, batch);
    if (is_floating(input.dtype)) {
      inputs.push_back(draw(shape, dtype, seed += 17));
      continue;
    }
    const Tensor unit = (draw(shape, DType::float64, seed += 17) + 1.0) * 0.5;
    inputs.push_back(cast(floor(unit * static_cast<double>(input.below)), input.dtype));
  }
  return inputs;
}

// Weights of any initializer are moved off zeros and ones, so that every one of them tells.
void disturb_weights(const Layer& layer) {
  uint64_t seed = 99;
  TensorList values = layer.get_weights();
  for (Tensor& value : values)
    if (is_floating(value.dtype()))
      value = value + cast(draw(value.shape(), DType::float64, seed += 13) * 0.2, value.dtype());
  layer.set_weights(values);
}

CallOptions call_of(const LayerCase& c) {
  CallOptions options = c.call;
  if (c.mask) options.mask = c.mask();
  return options;
}

CallOptions in_training(const LayerCase& c, bool training) {
  CallOptions options = call_of(c);
  options.training = training;
  return options;
}

std::vector<double> values(const Tensor& tensor) { return cast(tensor, DType::float64).to_vector<double>(); }

void expect_close(const TensorList& got, const TensorList& want, double bound, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].spec(), want[k].spec()) << what << ": result " << k;
    const auto a = values(got[k]), b = values(want[k]);
    double scale = 1;
    for (const double x : b) scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], bound * scale) << what << ": element " << i << " of result " << k;
  }
}

void expect_finite(const TensorList& results) {
  for (const Tensor& result : results)
    for (const double x : values(result)) ASSERT_TRUE(std::isfinite(x));
}

// A random weighted sum of the results: its gradient holds every element of the Jacobian.
Tensor weighted_sum(const TensorList& results) {
  Tensor sum;
  uint64_t seed = 5;
  for (const Tensor& result : results) {
    if (!is_floating(result.dtype())) continue;
    const Tensor term = reduce_sum(result * draw(result.shape(), result.dtype(), seed += 3));
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

// --- checks ------------------------------------------------------------------------------------------------

// What the functional API infers, for batches that it does not know, is what comes out.
void check_shapes(const LayerCase& c) {
  const Layer layer = c.make();
  KerasTensorList symbols;
  for (const LayerInput& input : c.inputs) symbols.push_back(Input(input.shape, {.dtype = input.dtype}));
  SymbolicCallOptions options;
  options.use_causal_mask = c.call.use_causal_mask;
  const KerasTensorList inferred = layer.apply(symbols, options);
  for (const int64_t batch : {1, 3})
    for (const bool training : {false, true}) {
      const TensorList results = layer.apply(inputs_of(c, batch), in_training(c, training));
      ASSERT_EQ(results.size(), inferred.size());
      expect_finite(results);
      for (size_t k = 0; k < results.size(); ++k) {
        Shape shape = inferred[k].shape();
        ASSERT_EQ(shape[0], -1) << "the batch is not known beforehand";
        shape[0] = batch;
        EXPECT_EQ(results[k].shape(), shape);
        EXPECT_EQ(results[k].dtype(), inferred[k].dtype());
        EXPECT_EQ(results[k].dtype(), c.result.value_or(DType::float32));
      }
    }
}

void check_config(const LayerCase& c) {
  const Layer layer = c.make();
  const TensorList inputs = inputs_of(c, 3);
  // What two layers draw is not the same; what else they compute is.
  const CallOptions options = c.random ? in_training(c, false) : call_of(c);
  layer.apply(inputs, options);
  const Json json = layer.serialize();
  const Layer again = Layer::deserialize(Json::parse(json.dump()));
  EXPECT_EQ(again.class_name(), layer.class_name());
  again.apply(inputs, options);
  EXPECT_EQ(again.serialize(), json);
  disturb_weights(layer);
  again.set_weights(layer.get_weights());
  expect_close(again.apply(inputs, options), layer.apply(inputs, options), 0, "the layer that was read");
}

void check_weights(const LayerCase& c) {
  const Layer layer = c.make();
  layer.apply(inputs_of(c, 2), call_of(c));
  std::vector<std::string> names;
  for (const Variable& weight : layer.weights()) {
    const std::string lead = layer.path() + "/";
    ASSERT_TRUE(weight.name().starts_with(lead)) << weight.name();
    names.push_back(weight.name().substr(lead.size()));
    // Layers inside have numbers that depend on what was made before.
    for (const Layer& inner : layer.layers())
      if (names.back().starts_with(inner.name() + "/")) {
        std::string name = inner.name();
        if (const size_t digits = name.find_last_not_of("0123456789");
            digits + 1 < name.size() && name[digits] == '_')
          name.resize(digits);
        names.back() = name + names.back().substr(inner.name().size());
      }
  }
  EXPECT_EQ(names, c.weights);
}

// One small step of gradient descent changes every trainable weight that matters and lowers the loss.
void check_training(const LayerCase& c) {
  const Layer layer = c.make();
  const TensorList inputs = inputs_of(c, 4);
  layer.apply(inputs, call_of(c));
  disturb_weights(layer);
  const std::vector<Variable> weights = layer.trainable_weights();
  const auto loss = [&] {
    Tensor sum;
    for (const Tensor& result : layer.apply(inputs, in_training(c, !c.random))) {
      const Tensor mean = reduce_mean(square(result - draw(result.shape(), result.dtype(), 77)));
      sum = sum.defined() ? sum + mean : mean;
    }
    return sum;
  };
  TensorList gradients;
  double before = 0;
  {
    GradientTape tape;
    const Tensor value = loss();
    before = value.item<float>();
    gradients = tape.gradient(value, weights);
  }
  bool any = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_TRUE(gradients[i].defined()) << weights[i].name() << " has no gradient";
    ASSERT_EQ(gradients[i].spec(), weights[i].spec()) << weights[i].name();
    for (const double g : values(gradients[i])) {
      ASSERT_TRUE(std::isfinite(g)) << weights[i].name();
      any = any || g != 0;
    }
    weights[i].assign_sub(gradients[i] * 0.01);
  }
  EXPECT_TRUE(any);
  EXPECT_LT(loss().item<float>(), before);
}

std::vector<double> differences(const std::function<double()>& f, const Tensor at,
                                const std::function<void(const Tensor&)>& set) {
  std::vector<double> found, moved = at.to_vector<double>();
  constexpr double kStep = 1e-5;
  for (double& x : moved) {
    const double here = x;
    const auto value = [&](double to) {
      x = to;
      set(Tensor::from(moved, at.shape()));
      return f();
    };
    found.push_back((value(here + kStep) - value(here - kStep)) / (2 * kStep));
    x = here;
  }
  set(at);
  return found;
}

void expect_derivative(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  const std::vector<double> found = got.defined() ? values(got) : std::vector<double>(want.size(), 0);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(found[i], want[i], 1e-6 * std::max(1.0, std::abs(want[i]))) << what << ", element " << i;
}

// float64: the tape's gradients are those of finite differences, in training and outside.
void check_gradient(const LayerCase& c) {
  const PolicyScope policy("float64");
  const Layer layer = c.make();
  TensorList inputs = inputs_of(c, 3, DType::float64);
  layer.apply(inputs, call_of(c));
  if (!c.differentiable && layer.trainable_weights().empty()) return;
  disturb_weights(layer);
  for (const bool training : {false, true}) {
    if (training && c.random) continue;
    const auto f = [&] { return weighted_sum(layer.apply(inputs, in_training(c, training))); };
    const std::vector<Variable> weights = layer.trainable_weights();
    TensorList of_inputs, of_weights;
    {
      GradientTape tape({.persistent = true});
      for (const Tensor& input : inputs)
        if (is_floating(input.dtype())) tape.watch(input);
      const Tensor sum = f();
      for (const Tensor& input : inputs)
        of_inputs.push_back(is_floating(input.dtype()) ? tape.gradient(sum, input) : Tensor());
      of_weights = tape.gradient(sum, weights);
    }
    const auto number = [&] { return f().item<double>(); };
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto want =
          differences(number, weights[i].value(), [&](const Tensor& v) { weights[i].assign(v); });
      expect_derivative(of_weights[i], want, weights[i].name());
    }
    for (size_t i = 0; i < inputs.size() && c.differentiable; ++i) {
      if (!is_floating(inputs[i].dtype())) continue;
      const auto want = differences(number, inputs[i], [&](const Tensor& v) { inputs[i] = v; });
      expect_derivative(of_inputs[i], want, "input " + std::to_string(i));
    }
  }
}

void check_mixed_precision(const LayerCase& c) {
  const PolicyScope policy("mixed_bfloat16");
  const Layer layer = c.make();
  for (const bool training : {false, true}) {
    const TensorList results = layer.apply(inputs_of(c, 3), in_training(c, training));
    for (const Tensor& result : results) EXPECT_EQ(result.dtype(), c.result.value_or(DType::bfloat16));
    expect_finite(results);
  }
  for (const Variable& weight : layer.weights())
    if (is_floating(weight.dtype())) {
      EXPECT_EQ(weight.dtype(), DType::float32) << weight.name();
    }
}

// Results, and what the call does to weights, are the same op by op and compiled.
void check_compiled(const LayerCase& c) {
  for (const bool training : {false, true}) {
    const Layer layer = c.make();
    const TensorList inputs = inputs_of(c, 3);
    layer.apply(inputs, call_of(c));
    disturb_weights(layer);
    const TensorList weights = layer.get_weights();
    FunctionCore compiled(
        [&](std::span<const Tensor> in) {
          return layer.apply(TensorList(in.begin(), in.end()), in_training(c, training));
        },
        {}, std::source_location::current());
    const TensorList got = compiled.call(inputs, std::source_location::current());
    expect_finite(got);
    if (training && c.random) continue;
    const TensorList got_weights = layer.get_weights();
    layer.set_weights(weights);
    expect_close(got, layer.apply(inputs, in_training(c, training)), 2e-6, "compiled");
    expect_close(got_weights, layer.get_weights(), 2e-6, "weights after a compiled call");
  }
}

// --- Keras' configurations ---------------------------------------------------------------------------------

// Members in no order, numbers as numbers; null says nothing, so a member that is null and one that is
// missing are the same.
Json canonical(const Json& json) {
  if (json.is_number()) return json.as_double();
  if (json.is_list()) {
    Json list = Json::list();
    for (const Json& item : json.items()) list.push_back(canonical(item));
    return list;
  }
  if (!json.is_object()) return json;
  std::map<std::string, Json> sorted;
  for (const auto& [name, value] : json.members())
    if (!value.is_null()) sorted[name] = canonical(value);
  Json object = Json::object();
  for (const auto& [name, value] : sorted) object.set(name, value);
  return object;
}

// What Keras writes of a layer, read and written again, is what Keras wrote.
TEST(KerasConfigurations, AreReadAndWrittenUnchanged) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/configurations.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " has not been recorded";
  const Json file = Json::read_file(path);
  const std::vector<std::string> known = layer_registry().class_names();
  int compared = 0;
  for (const auto& [name, json] : file.at("layers").members()) {
    if (std::find(known.begin(), known.end(), name) == known.end() || classes_without_cases().contains(name))
      continue;
    SCOPED_TRACE(name);
    Json again;
    try {
      again = Layer::deserialize(json).serialize();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    EXPECT_EQ(again.at("class_name"), json.at("class_name"));
    EXPECT_EQ(again.at("module"), json.at("module"));
    const Json got = canonical(again.at("config")), want = canonical(json.at("config"));
    for (const auto& [key, value] : want.members()) {
      ASSERT_TRUE(got.contains(key)) << key;
      EXPECT_EQ(got.at(key), value) << key;
    }
    for (const auto& [key, value] : got.members()) EXPECT_TRUE(want.contains(key)) << key;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

// --- registration ------------------------------------------------------------------------------------------

struct Check {
  const char* name;
  bool (*applies)(const LayerCase&);
  void (*run)(const LayerCase&);
};

bool always(const LayerCase&) { return true; }
bool learns(const LayerCase& c) {
  const Layer layer = c.make();
  layer.apply(inputs_of(c, 2), call_of(c));
  return !layer.trainable_weights().empty();
}

constexpr Check kChecks[] = {
    {"Shapes", always, check_shapes},     {"Config", always, check_config},
    {"Weights", always, check_weights},   {"Training", learns, check_training},
    {"Gradient", always, check_gradient}, {"MixedPrecision", always, check_mixed_precision},
    {"Compiled", always, check_compiled},
};

class CheckTest final : public ::testing::Test {
 public:
  explicit CheckTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

const bool registered = [] {
  for (const Check& check : kChecks)
    for (const LayerCase& c : layer_cases())
      ::testing::RegisterTest(check.name, c.name.c_str(), nullptr, nullptr, c.where.file_name(),
                              static_cast<int>(c.where.line()), [&check, &c]() -> ::testing::Test* {
                                return new CheckTest([&] {
                                  if (check.applies(c)) check.run(c);
                                });
                              });
  return true;
}();

TEST(Coverage, EveryRegisteredLayerHasACase) {
  std::set<std::string> covered = classes_without_cases();
  for (const LayerCase& c : layer_cases()) covered.insert(c.make().class_name());
  for (const std::string& name : layer_registry().class_names())
    EXPECT_TRUE(covered.contains(name)) << name << " has no row in tests/keras/layer_cases.cc";
}

TEST(Coverage, NamesAreUnique) {
  std::set<std::string> names;
  for (const LayerCase& c : layer_cases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

}  // namespace
}  // namespace lockstep::keras::testing
