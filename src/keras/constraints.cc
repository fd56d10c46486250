#include "lockstep/keras/constraints.h"

#include "keras/rule.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {

namespace {

constexpr double kEpsilon = 1e-7;

Tensor norms_of(const Tensor& w, const std::vector<int64_t>& axis) {
  return sqrt(reduce_sum(square(w), {.axis = axis, .keepdims = true}));
}

template <class Settings>
class Projection final : public SettingsRule<Constraint::Rule, Settings> {
 public:
  using SettingsRule<Constraint::Rule, Settings>::SettingsRule;
  Tensor project(const Tensor& weights) const override { return this->settings_.project(weights); }
};

template <class Settings>
Constraint make_rule(Settings settings) {
  return Constraint(std::make_shared<Projection<Settings>>(std::move(settings)));
}

struct MaxNormSettings : constraints::MaxNormOptions {
  static constexpr const char* kName = "MaxNorm";
  void visit(auto& v) {
    v("max_value", max_value, kNotNegative);
    visit_list(v, "axis", axis, kFinite);
  }
  Tensor project(const Tensor& w) const {
    const Tensor norms = norms_of(w, axis);
    return w * (minimum(norms, max_value) / (norms + kEpsilon));
  }
};

struct NonNegSettings {
  static constexpr const char* kName = "NonNeg";
  void visit(auto&) {}
  Tensor project(const Tensor& w) const { return maximum(w, 0.0); }
};

struct UnitNormSettings : constraints::UnitNormOptions {
  static constexpr const char* kName = "UnitNorm";
  void visit(auto& v) { visit_list(v, "axis", axis, kFinite); }
  Tensor project(const Tensor& w) const { return w / (norms_of(w, axis) + kEpsilon); }
};

struct MinMaxNormSettings : constraints::MinMaxNormOptions {
  static constexpr const char* kName = "MinMaxNorm";
  void visit(auto& v) {
    v("min_value", min_value, kNotNegative);
    v("max_value", max_value, kNotNegative);
    v("rate", rate, kShare);
    visit_list(v, "axis", axis, kFinite);
  }
  void check() const {
    require(min_value <= max_value, ErrorCode::invalid_argument, std::source_location::current(),
            "MinMaxNorm: min_value must not be above max_value, received ", min_value, " and ", max_value);
  }
  Tensor project(const Tensor& w) const {
    const Tensor norms = norms_of(w, axis);
    const Tensor wanted = clip_by_value(norms, min_value, max_value) * rate + norms * (1 - rate);
    return w * (wanted / (norms + kEpsilon));
  }
};

Registry<Constraint>& registry() {
  static Registry<Constraint>& all = *[] {
    static Registry<Constraint> made("constraint");
    enter<Projection, MaxNormSettings>(made);
    enter<Projection, NonNegSettings>(made);
    enter<Projection, UnitNormSettings>(made);
    enter<Projection, MinMaxNormSettings>(made);
    return &made;
  }();
  return all;
}

}  // namespace

const Catalogued& known_constraints() { return registry(); }

Constraint::Constraint(const char* name, std::source_location where) : Constraint(std::string(name), where) {}

Constraint::Constraint(const std::string& name, std::source_location where)
    : Constraint(registry().make(name, Json::object(), where)) {}

Tensor Constraint::operator()(const Tensor& weights, std::source_location where) const {
  const CallSite site(where);
  require(defined(), ErrorCode::failed_precondition, where, "a Constraint that is none was called");
  return rule_->project(weights);
}

Json Constraint::serialize() const {
  if (!defined()) return {};
  return serialized("keras.constraints", rule_->class_name(), rule_->config());
}

Constraint Constraint::deserialize(const Json& json, std::source_location where) {
  return json.is_null() ? Constraint() : registry().make(json, where);
}

namespace constraints {

Constraint MaxNorm(const MaxNormOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(MaxNormSettings{options});
}
Constraint NonNeg() { return make_rule(NonNegSettings{}); }
Constraint UnitNorm(const UnitNormOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(UnitNormSettings{options});
}
Constraint MinMaxNorm(const MinMaxNormOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(MinMaxNormSettings{options});
}

void register_constraint(const std::string& class_name, std::function<Constraint(const Json& config)> make) {
  registry().add(class_name, std::move(make));
}

}  // namespace constraints

}  // namespace lockstep::keras
