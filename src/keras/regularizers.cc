#include "lockstep/keras/regularizers.h"

#include "keras/rule.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {

namespace {

template <class Settings>
class Penalty final : public SettingsRule<Regularizer::Rule, Settings> {
 public:
  using SettingsRule<Regularizer::Rule, Settings>::SettingsRule;
  Tensor penalty(const Tensor& x) const override { return this->settings_.penalty(x); }
};

template <class Settings>
Regularizer make_rule(Settings settings) {
  return Regularizer(std::make_shared<Penalty<Settings>>(std::move(settings)));
}

struct L1Settings {
  static constexpr const char* kName = "L1";
  double l1 = 0.01;
  void visit(auto& v) { v("l1", l1, kNotNegative); }
  Tensor penalty(const Tensor& x) const { return reduce_sum(abs(x)) * l1; }
};

struct L2Settings {
  static constexpr const char* kName = "L2";
  double l2 = 0.01;
  void visit(auto& v) { v("l2", l2, kNotNegative); }
  Tensor penalty(const Tensor& x) const { return reduce_sum(square(x)) * l2; }
};

struct L1L2Settings : regularizers::L1L2Options {
  static constexpr const char* kName = "L1L2";
  void visit(auto& v) {
    v("l1", l1, kNotNegative);
    v("l2", l2, kNotNegative);
  }
  Tensor penalty(const Tensor& x) const {
    if (l1 == 0 && l2 == 0) return zeros({}, x.dtype());
    if (l1 == 0) return L2Settings{l2}.penalty(x);
    if (l2 == 0) return L1Settings{l1}.penalty(x);
    return L1Settings{l1}.penalty(x) + L2Settings{l2}.penalty(x);
  }
};

struct OrthogonalRegularizerSettings : regularizers::OrthogonalRegularizerOptions {
  static constexpr const char* kName = "OrthogonalRegularizer";
  void visit(auto& v) {
    v("factor", factor, kNotNegative);
    v("mode", mode);
  }
  void check() const {
    require(mode == "rows" || mode == "columns", ErrorCode::invalid_argument, std::source_location::current(),
            "mode must be rows or columns, received \"", mode, "\"");
  }
  // The mean of |cos| of the angles between all pairs of vectors.
  Tensor penalty(const Tensor& x) const {
    require(x.rank() == 2, ErrorCode::shape_mismatch, std::source_location::current(),
            "OrthogonalRegularizer takes a matrix, received shape ", x.shape());
    const bool rows = mode == "rows";
    const Tensor squares = reduce_sum(square(x), {.axis = {rows ? 1 : 0}, .keepdims = true});
    const Tensor unit = x * rsqrt(maximum(squares, 1e-14));
    const Tensor products = matmul(unit, unit, {.transpose_a = !rows, .transpose_b = rows});
    const int64_t size = products.shape()[0];
    if (size < 2) return reduce_sum(x) * 0.0;
    return reduce_sum(abs(products) * (1.0 - eye(size, size, x.dtype()))) *
           (factor / static_cast<double>(size * (size - 1)));
  }
};

Registry<Regularizer>& registry() {
  static Registry<Regularizer>& all = *[] {
    static Registry<Regularizer> made("regularizer");
    enter<Penalty, L1Settings>(made);
    enter<Penalty, L2Settings>(made);
    enter<Penalty, L1L2Settings>(made);
    enter<Penalty, OrthogonalRegularizerSettings>(made);
    return &made;
  }();
  return all;
}

}  // namespace

const Catalogued& known_regularizers() { return registry(); }

Regularizer::Regularizer(const char* name, std::source_location where)
    : Regularizer(std::string(name), where) {}

Regularizer::Regularizer(const std::string& name, std::source_location where)
    : Regularizer(registry().make(name, Json::object(), where)) {}

Tensor Regularizer::operator()(const Tensor& x, std::source_location where) const {
  const CallSite site(where);
  require(defined(), ErrorCode::failed_precondition, where, "a Regularizer that is none was called");
  return rule_->penalty(x);
}

Json Regularizer::serialize() const {
  if (!defined()) return {};
  return serialized("keras.regularizers", rule_->class_name(), rule_->config());
}

Regularizer Regularizer::deserialize(const Json& json, std::source_location where) {
  return json.is_null() ? Regularizer() : registry().make(json, where);
}

namespace regularizers {

Regularizer L1(double l1, std::source_location where) {
  const CallSite site(where);
  return make_rule(L1Settings{l1});
}
Regularizer L2(double l2, std::source_location where) {
  const CallSite site(where);
  return make_rule(L2Settings{l2});
}
Regularizer L1L2(const L1L2Options& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(L1L2Settings{options});
}
Regularizer OrthogonalRegularizer(const OrthogonalRegularizerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(OrthogonalRegularizerSettings{options});
}

void register_regularizer(const std::string& class_name,
                          std::function<Regularizer(const Json& config)> make) {
  registry().add(class_name, std::move(make));
}

}  // namespace regularizers

}  // namespace lockstep::keras
