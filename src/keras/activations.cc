#include "lockstep/keras/activations.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "keras/built_in_activations.h"
#include "keras/remat_mode.h"
#include "lockstep/autodiff/recompute_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layer.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras {

namespace {

using Function = std::function<Tensor(const Tensor&)>;

// The nearest point of the simplex: what is above the threshold at which the rest sums to one.
Tensor sparsemax(const Tensor& x) {
  const Tensor sorted = sort(x, {.direction = SortDirection::descending});
  const Tensor count = range(1, static_cast<double>(x.shape()[-1]) + 1, 1, x.dtype());
  const Tensor support = cast(sorted * count + 1.0 > cumsum(sorted, {.axis = -1}), x.dtype());
  const ReduceOptions last{.axis = {-1}, .keepdims = true};
  return maximum(x - (reduce_sum(sorted * support, last) - 1.0) / reduce_sum(support, last), 0.0);
}

// Keras' defaults of every argument but x.
#define LOCKSTEP_NAMED(name)                                 \
  {                                                          \
#name, [](const Tensor& x) { return lockstep::name(x); } \
  }
const std::vector<std::pair<const char*, Tensor (*)(const Tensor&)>> kTable = {
    LOCKSTEP_NAMED(celu),         LOCKSTEP_NAMED(elu),         LOCKSTEP_NAMED(exponential),
    LOCKSTEP_NAMED(gelu),         LOCKSTEP_NAMED(glu),         LOCKSTEP_NAMED(hard_shrink),
    LOCKSTEP_NAMED(hard_sigmoid), LOCKSTEP_NAMED(hard_silu),   LOCKSTEP_NAMED(hard_tanh),
    LOCKSTEP_NAMED(leaky_relu),   LOCKSTEP_NAMED(log_sigmoid), LOCKSTEP_NAMED(log_softmax),
    LOCKSTEP_NAMED(mish),         LOCKSTEP_NAMED(relu),        LOCKSTEP_NAMED(relu6),
    LOCKSTEP_NAMED(selu),         LOCKSTEP_NAMED(sigmoid),     LOCKSTEP_NAMED(silu),
    LOCKSTEP_NAMED(soft_shrink),  LOCKSTEP_NAMED(softmax),     LOCKSTEP_NAMED(softplus),
    LOCKSTEP_NAMED(softsign),     LOCKSTEP_NAMED(sparse_plus), LOCKSTEP_NAMED(sparse_sigmoid),
    LOCKSTEP_NAMED(squareplus),   LOCKSTEP_NAMED(tanh),        LOCKSTEP_NAMED(tanh_shrink),
    {"sparsemax", sparsemax},
};
#undef LOCKSTEP_NAMED
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

bool is_known(const std::string& name) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  return all.functions.contains(name);
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

Tensor Activation::operator()(const Tensor& x) const {
  if (!function_) return x;
  return recomputes_activations() ? recompute_grad(function_)(x) : function_(x);
}

Json Activation::serialize(std::source_location where) const {
  if (name_.starts_with('{')) return Json::parse(name_);  // a layer
  require(name_ != "custom", ErrorCode::unsupported, where,
          "an activation that is a function without a name cannot be written to a file; make it known by "
          "activations::register_activation() and use it by that name");
  if (linear() || is_built_in_activation(name_)) return name_;
  return Json::object({{"module", "builtins"},
                       {"class_name", "function"},
                       {"config", name_.substr(name_.rfind('>') + 1)},
                       {"registered_name", name_}});
}

Activation Activation::deserialize(const Json& json, std::source_location where) {
  if (json.is_null()) return {};
  if (json.is_string()) return Activation(json.as_string(), where);
  // Keras writes functions of a user's own as {"class_name": "function", "config": name, "registered_name":
  // "package>name"}.
  const Json* config = json.find("config");
  if (config && config->is_object()) return of_layer(json, where);
  const Json* registered = json.find("registered_name");
  if (registered && registered->is_string() && is_known(registered->as_string()))
    return Activation(registered->as_string(), where);
  require(config && config->is_string(), ErrorCode::invalid_argument, where,
          "expected the name of an activation, received ", json);
  return Activation(config->as_string(), where);
}

// Keras takes a layer in the place of a function: LeakyReLU(negative_slope=0.3), say. Its configuration is
// the name.
Activation Activation::of_layer(const Json& json, std::source_location where) {
  Activation activation;
  activation.name_ = json.dump();
  activation.function_ = [layer = Layer::deserialize(json, where), where](const Tensor& x) {
    const Tensor y = layer(x);
    require(layer.weights().empty(), ErrorCode::unsupported, where, "layer \"", layer.name(),
            "\" has weights: it stands behind another layer, not inside of one as its activation");
    return y;
  };
  return activation;
}

bool is_built_in_activation(const std::string& name) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const auto found = all.functions.find(name);
  const auto* function =
      found == all.functions.end() ? nullptr : found->second.target<Tensor (*)(const Tensor&)>();
  return function && std::any_of(kTable.begin(), kTable.end(), [&](const auto& row) {
           return row.first == name && row.second == *function;
         });
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
