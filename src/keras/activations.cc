#include "lockstep/keras/activations.h"

#include <cmath>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {

namespace {

using Function = std::function<Tensor(const Tensor&)>;

constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

// exp of the negative part alone, so that no gradient meets an infinity.
Tensor elu(const Tensor& x, double alpha = 1) { return where(x > 0.0, x, expm1(minimum(x, 0.0)) * alpha); }

Tensor hard_sigmoid(const Tensor& x) { return clip_by_value(x / 6.0 + 0.5, 0.0, 1.0); }

Tensor glu(const Tensor& x) {
  const TensorList halves = split(x, 2, -1);
  return halves[0] * sigmoid(halves[1]);
}

// The nearest point of the simplex: what is above the threshold at which the rest sums to one. Every element looks at
// all others, so that nothing need be sorted.
Tensor sparsemax(const Tensor& x) {
  const Tensor others = expand_dims(x, -2);  // [..., 1, j] beside [..., i, 1]
  const Tensor above = cast(others >= expand_dims(x, -1), x.dtype());
  const ReduceOptions last{.axis = {-1}}, last_kept{.axis = {-1}, .keepdims = true};
  const Tensor support =
      cast(x * reduce_sum(above, last) + 1.0 > reduce_sum(above * others, last), x.dtype());
  const Tensor threshold = (reduce_sum(x * support, last_kept) - 1.0) / reduce_sum(support, last_kept);
  return maximum(x - threshold, 0.0);
}

// Keras' defaults of every argument but x.
const std::vector<std::pair<const char*, Tensor (*)(const Tensor&)>> kTable = {
    {"celu", [](const Tensor& x) { return elu(x); }},
    {"elu", [](const Tensor& x) { return elu(x); }},
    {"exponential", [](const Tensor& x) { return exp(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }},
    {"glu", glu},
    {"hard_shrink", [](const Tensor& x) { return where(abs(x) > 0.5, x, 0.0); }},
    {"hard_sigmoid", hard_sigmoid},
    {"hard_silu", [](const Tensor& x) { return x * hard_sigmoid(x); }},
    {"hard_tanh", [](const Tensor& x) { return clip_by_value(x, -1.0, 1.0); }},
    {"leaky_relu", [](const Tensor& x) { return where(x >= 0.0, x, x * 0.2); }},
    {"log_sigmoid", [](const Tensor& x) { return -softplus(-x); }},
    {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
    {"mish", [](const Tensor& x) { return x * tanh(softplus(x)); }},
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"relu6", [](const Tensor& x) { return clip_by_value(x, 0.0, 6.0); }},
    {"selu", [](const Tensor& x) { return elu(x, kSeluAlpha) * kSeluScale; }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    {"silu", [](const Tensor& x) { return x * sigmoid(x); }},
    {"soft_shrink", [](const Tensor& x) { return x - clip_by_value(x, -0.5, 0.5); }},
    {"softmax", [](const Tensor& x) { return softmax(x); }},
    {"softplus", [](const Tensor& x) { return softplus(x); }},
    {"softsign", [](const Tensor& x) { return x / (abs(x) + 1.0); }},
    {"sparse_plus", [](const Tensor& x) { return where(x >= 1.0, x, square(maximum(x + 1.0, 0.0)) * 0.25); }},
    {"sparse_sigmoid", [](const Tensor& x) { return clip_by_value((x + 1.0) * 0.5, 0.0, 1.0); }},
    {"sparsemax", sparsemax},
    {"squareplus", [](const Tensor& x) { return (x + sqrt(square(x) + 4.0)) * 0.5; }},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"tanh_shrink", [](const Tensor& x) { return x - tanh(x); }},
};
const std::map<std::string, std::string> kAliases = {{"swish", "silu"}, {"hard_swish", "hard_silu"}};

struct Known {
  std::mutex mutex;
  std::map<std::string, Function> functions;  // linear: none
};

Known& known() {
  static Known known;
  static const bool filled = [] {
    known.functions["linear"] = nullptr;
    for (const auto& [name, function] : kTable) known.functions[name] = function;
    return true;
  }();
  (void)filled;
  return known;
}

}  // namespace

Activation::Activation(const char* name, std::source_location where) : Activation(std::string(name), where) {}

Activation::Activation(const std::string& name, std::source_location where) {
  const auto alias = kAliases.find(name);
  name_ = alias == kAliases.end() ? name : alias->second;
  Known& all = known();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.functions.find(name_); found != all.functions.end()) {
      function_ = found->second;
      return;
    }
  }
  const std::vector<std::string> names = activations::names();
  const std::string near = nearest_spelling(name, names);
  std::string list;
  for (const std::string& each : names) list += (list.empty() ? "" : ", ") + each;
  fail(ErrorCode::not_found, where, "there is no activation \"", name, "\"",
       near.empty() ? "" : "; did you mean \"" + near + "\"?", " There are ", list,
       "; activations::register_activation() makes one of your own known");
}

Json Activation::serialize(std::source_location where) const {
  require(name_ != "custom", ErrorCode::unsupported, where,
          "an activation that is a function without a name cannot be written to a file; make it known by "
          "activations::register_activation() and use it by that name");
  return name_;
}

Activation Activation::deserialize(const Json& json, std::source_location where) {
  if (json.is_null()) return {};
  if (json.is_string()) return Activation(json.as_string(), where);
  // Keras writes functions of a user's own as {"class_name": "function", "config": "package>name"}.
  const Json* config = json.find("config");
  require(config && config->is_string(), ErrorCode::invalid_argument, where,
          "expected the name of an activation, received ", json);
  return Activation(config->as_string(), where);
}

namespace activations {

std::vector<std::string> names() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, function] : all.functions) names.push_back(name);
  for (const auto& [alias, name] : kAliases) names.push_back(alias);
  return names;
}

void register_activation(const std::string& name, std::function<Tensor(const Tensor&)> function) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  all.functions[name] = std::move(function);
}

}  // namespace activations

}  // namespace lockstep::keras
