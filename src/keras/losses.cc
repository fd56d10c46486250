#include "lockstep/keras/losses.h"

#include <array>
#include <cmath>
#include <numeric>

#include "graph/emit.h"
#include "keras/rule.h"
#include "keras/weighing.h"
#include "lockstep/base/call_site.h"
#include "lockstep/ops/debugging.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/nn.h"
#include "ops/array/lookup.h"

namespace lockstep::keras {

namespace {

constexpr double kEpsilon = 1e-7;

constexpr std::array kReductions{
    std::pair{Reduction::sum_over_batch_size, "sum_over_batch_size"},
    std::pair{Reduction::mean, "mean"},
    std::pair{Reduction::mean_with_sample_weight, "mean_with_sample_weight"},
    std::pair{Reduction::sum, "sum"},
    std::pair{Reduction::none, "none"},
};

}  // namespace

namespace losses {
static void each_number(const ClassWeights& weights, auto&& f) { keras::each_number(weights.values(), f); }
}  // namespace losses

// Found by the field reader and writer through the enum's namespace.
static Json to_json(Reduction reduction) {
  for (const auto& [value, name] : kReductions)
    if (value == reduction) return name;
  return {};
}

static void from_json(const Json& json, Reduction& reduction) {
  const std::string& text = json.is_null() ? "none" : json.as_string();
  for (const auto& [value, name] : kReductions)
    if (name == text) {
      reduction = value;
      return;
    }
  fail(ErrorCode::invalid_argument, std::source_location::current(), "there is no reduction \"", text,
       "\" There are sum_over_batch_size, mean, mean_with_sample_weight, sum, none");
}

namespace {

// --- formulas ----------------------------------------------------------------------------------------------

Tensor mean_of_last(const Tensor& x) { return reduce_mean(x, {.axis = {-1}}); }
Tensor sum_of(const Tensor& x, int axis = -1) { return reduce_sum(x, {.axis = {axis}}); }

Tensor to_last(const Tensor& x, int axis) {
  const int from = normalize_axis(axis, x.rank(), "loss");
  if (from == x.rank() - 1) return x;
  Dims order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != from) order.push_back(i);
  order.push_back(from);
  return transpose(x, order);
}

Tensor clipped(const Tensor& p) { return clip_by_value(p, kEpsilon, 1 - kEpsilon); }

// Labels t and probabilities p.
Tensor binary_crossentropy_of(const Tensor& t, const Tensor& p) {
  const Tensor q = clipped(p);
  return -(t * log(q) + (1.0 - t) * log(1.0 - q));
}

// Whether a reduction along `axis` (empty: all) goes over the examples.
bool spans_batch(const std::vector<int64_t>& axis, const Shape& shape) {
  return axis.empty() || std::any_of(axis.begin(), axis.end(),
                                     [&](int64_t a) { return normalize_axis(a, shape.rank(), "loss") == 0; });
}

std::vector<int64_t> list_of(int axis) { return {axis}; }
std::vector<int64_t> list_of(const std::vector<int64_t>& axes) { return axes; }

// Over the examples of all replicas, where it goes over them.
Tensor sum_over(const Tensor& x, const std::vector<int64_t>& axis, bool keepdims = false) {
  const Tensor sum = reduce_sum(x, {.axis = axis, .keepdims = keepdims});
  return spans_batch(axis, x.shape()) ? all_reduce_sum(sum) : sum;
}

Tensor unit_length(const Tensor& x, int axis) {
  return x * rsqrt(maximum(sum_over(square(x), {axis}, true), kEpsilon * kEpsilon));
}

// -1 for 0 where all labels of the whole batch are 0 and 1.
Tensor hinge_labels(const Tensor& y) {
  const Tensor others = cast(logical_and(not_equal(y, 0.0), not_equal(y, 1.0)), y.dtype());
  return where(equal(all_reduce_sum(reduce_sum(others)), 0.0), y * 2.0 - 1.0, y);
}

Tensor class_numbers(const Tensor& labels) {
  return labels.dtype() == DType::int32 ? labels : whole_numbers(labels);
}

void check_class_shapes(const char* loss, const Tensor& labels, const Tensor& scores) {
  require(scores.rank() > 0 && labels.shape() == scores.shape().drop_last(1), ErrorCode::shape_mismatch,
          std::source_location::current(), loss, ": class numbers of shape ", labels.shape(),
          " do not fit predictions of shape ", scores.shape(),
          labels.shape() == scores.shape() ? "; one-hot labels want CategoricalCrossentropy" : "");
}

// What the predictions (..., classes) say of the labels' classes; a label that is no class is an Error.
Tensor of_class(const Tensor& scores, const Tensor& labels) { return gather_labels(scores, labels); }

void check_shapes(const char* loss, const Tensor& y_true, const Tensor& y_pred) {
  require(y_true.shape() == y_pred.shape(), ErrorCode::shape_mismatch, std::source_location::current(), loss,
          ": labels of shape ", y_true.shape(), " do not fit predictions of shape ", y_pred.shape(),
          y_pred.rank() > 0 && y_pred.shape()[-1] > 1 && y_true.size() * y_pred.shape()[-1] == y_pred.size()
              ? "; class numbers want SparseCategoricalCrossentropy"
              : "");
}

// --- settings ----------------------------------------------------------------------------------------------

struct Plain : losses::LossOptions {
  void visit(auto&) {}
};

struct MeanSquaredErrorSettings : Plain {
  static constexpr const char* kName = "MeanSquaredError";
  Tensor losses(const Tensor& y, const Tensor& p) const { return mean_of_last(square(y - p)); }
};

struct MeanAbsoluteErrorSettings : Plain {
  static constexpr const char* kName = "MeanAbsoluteError";
  Tensor losses(const Tensor& y, const Tensor& p) const { return mean_of_last(abs(y - p)); }
};

struct MeanAbsolutePercentageErrorSettings : Plain {
  static constexpr const char* kName = "MeanAbsolutePercentageError";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return mean_of_last(abs((y - p) / maximum(abs(y), kEpsilon))) * 100.0;
  }
};

struct MeanSquaredLogarithmicErrorSettings : Plain {
  static constexpr const char* kName = "MeanSquaredLogarithmicError";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return mean_of_last(square(log(maximum(p, kEpsilon) + 1.0) - log(maximum(y, kEpsilon) + 1.0)));
  }
};

struct LogCoshSettings : Plain {
  static constexpr const char* kName = "LogCosh";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor error = p - y;
    return mean_of_last(error + softplus(error * -2.0) - std::log(2.0));
  }
};

struct KLDivergenceSettings : Plain {
  static constexpr const char* kName = "KLDivergence";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor labels = clip_by_value(y, kEpsilon, 1.0);
    return sum_of(labels * log(labels / clip_by_value(p, kEpsilon, 1.0)));
  }
};

struct PoissonSettings : Plain {
  static constexpr const char* kName = "Poisson";
  Tensor losses(const Tensor& y, const Tensor& p) const { return mean_of_last(p - y * log(p + kEpsilon)); }
};

struct HingeSettings : Plain {
  static constexpr const char* kName = "Hinge";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return mean_of_last(maximum(1.0 - hinge_labels(y) * p, 0.0));
  }
};

struct SquaredHingeSettings : Plain {
  static constexpr const char* kName = "SquaredHinge";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return mean_of_last(square(maximum(1.0 - hinge_labels(y) * p, 0.0)));
  }
};

struct CategoricalHingeSettings : Plain {
  static constexpr const char* kName = "CategoricalHinge";
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return maximum(reduce_max((1.0 - y) * p, {.axis = {-1}}) - sum_of(y * p) + 1.0, 0.0);
  }
};

struct HuberSettings : losses::HuberOptions {
  static constexpr const char* kName = "Huber";
  static constexpr const char* kOwnName = "huber_loss";
  void visit(auto& v) { v("delta", delta, kPositive); }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor error = abs(p - y);
    return mean_of_last(where(error <= delta, square(error) * 0.5, error * delta - 0.5 * delta * delta));
  }
};

struct CosineSimilaritySettings : losses::CosineSimilarityOptions {
  static constexpr const char* kName = "CosineSimilarity";
  void visit(auto& v) { v("axis", axis, kFinite); }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return -sum_over(unit_length(y, axis) * unit_length(p, axis), {axis});
  }
};

// Labels are moved towards 1 / classes.
Tensor smoothed(const Tensor& y, double label_smoothing, double classes) {
  return label_smoothing == 0 ? y : y * (1 - label_smoothing) + label_smoothing / classes;
}

void visit_crossentropy(auto& v, auto& options) {
  v("from_logits", options.from_logits);
  v("label_smoothing", options.label_smoothing, kShare);
  v("axis", options.axis, kFinite);
}

struct BinaryCrossentropySettings : losses::CrossentropyOptions {
  static constexpr const char* kName = "BinaryCrossentropy";
  void visit(auto& v) { visit_crossentropy(v, *this); }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor labels = smoothed(y, label_smoothing, 2);
    return reduce_mean(
        from_logits ? sigmoid_cross_entropy_with_logits(labels, p) : binary_crossentropy_of(labels, p),
        {.axis = {axis}});
  }
};

struct BinaryFocalCrossentropySettings : losses::BinaryFocalCrossentropyOptions {
  static constexpr const char* kName = "BinaryFocalCrossentropy";
  void visit(auto& v) {
    visit_crossentropy(v, *this);
    v("apply_class_balancing", apply_class_balancing);
    v("alpha", alpha, kShare);
    v("gamma", gamma, kNotNegative);
  }
  Tensor losses(const Tensor& y, const Tensor& x) const {
    const Tensor labels = smoothed(y, label_smoothing, 2);
    const Tensor p = from_logits ? sigmoid(x) : x;
    const Tensor right = labels * p + (1.0 - labels) * (1.0 - p);
    Tensor focal = pow(1.0 - right, gamma) * binary_crossentropy_of(labels, p);
    if (apply_class_balancing) focal = (labels * alpha + (1.0 - labels) * (1 - alpha)) * focal;
    return reduce_mean(focal, {.axis = {axis}});
  }
};

struct CategoricalCrossentropySettings : losses::CrossentropyOptions {
  static constexpr const char* kName = "CategoricalCrossentropy";
  void visit(auto& v) { visit_crossentropy(v, *this); }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor labels = smoothed(y, label_smoothing, static_cast<double>(y.shape()[-1]));
    if (from_logits) return softmax_cross_entropy_with_logits(to_last(labels, axis), to_last(p, axis));
    const Tensor probabilities = p / reduce_sum(p, {.axis = {axis}, .keepdims = true});
    return -sum_of(labels * log(clipped(probabilities)), axis);
  }
};

struct CategoricalFocalCrossentropySettings : losses::CategoricalFocalCrossentropyOptions {
  static constexpr const char* kName = "CategoricalFocalCrossentropy";
  void visit(auto& v) {
    visit_crossentropy(v, *this);
    v("alpha", alpha, kNotNegative);
    v("gamma", gamma, kNotNegative);
  }
  Tensor losses(const Tensor& y, const Tensor& x) const {
    const Tensor labels = smoothed(y, label_smoothing, static_cast<double>(y.shape()[-1]));
    const Tensor p = from_logits ? softmax(x, axis) : x;
    const Tensor q = clipped(p / reduce_sum(p, {.axis = {axis}, .keepdims = true}));
    const Tensor parts = pow(1.0 - q, gamma) * labels * log(q);
    if (alpha.single()) return -sum_of(parts, axis) * alpha.values()[0];
    const auto classes = static_cast<int64_t>(alpha.values().size());
    const int at = normalize_axis(axis, p.rank(), kName);
    require(classes == p.shape()[at], ErrorCode::shape_mismatch, std::source_location::current(), classes,
            " alphas do not fit ", p.shape()[at], " classes");
    Shape shape = Dims::filled(p.rank(), 1);
    shape[at] = classes;
    Tensor weights;
    {
      const TracePause outside;
      weights = reshape(cast(Tensor::from(alpha.values(), {classes}), p.dtype()), shape);
    }
    return -sum_of(parts * weights, axis);
  }
};

struct CircleSettings : losses::CircleOptions {
  static constexpr const char* kName = "Circle";
  static constexpr bool kClassNumbers = true;
  void visit(auto& v) {
    v("gamma", gamma, kNotNegative);
    v("margin", margin, kNotNegative);
    v("remove_diagonal", remove_diagonal);
  }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    require(p.rank() == 2 && y.size() == p.shape()[0], ErrorCode::shape_mismatch,
            std::source_location::current(),
            "Circle takes a class number and an embedding for each example, "
            "received labels of shape ",
            y.shape(), " and predictions of shape ", p.shape());
    // Equal numbers are one class, whichever they are; NaN is no number.
    const Tensor labels =
        reshape(is_floating(y.dtype()) ? debugging::check_numerics(y, "Circle: the labels") : y, {-1});
    const Tensor distance = maximum(1.0 - matmul(p, p, {.transpose_b = true}), 0.0);
    const Tensor same = equal(expand_dims(labels, 1), expand_dims(labels, 0));
    const Tensor positive = remove_diagonal ? logical_and(same, logical_not(diagonal(labels.size()))) : same;
    const Tensor pulled = maximum(distance + margin, 0.0) * (distance - margin) * gamma;
    const Tensor pushed = maximum((1 + margin) - distance, 0.0) * ((1 - margin) - distance) * gamma;
    const auto over = [&](const Tensor& pairs, const Tensor& scores) {
      return reduce_logsumexp(where(pairs, scores, kNoPair), {.axis = {1}});
    };
    Tensor losses = softplus(over(positive, pulled) + over(logical_not(same), pushed));
    losses.impl()->mask = (losses > 0.0).impl();
    return losses;
  }

 private:
  static constexpr double kNoPair = -1e30;  // its exponential is 0, and so is its gradient

  static Tensor diagonal(int64_t n) {
    const TracePause outside;
    std::vector<double> numbers(static_cast<size_t>(n));
    std::iota(numbers.begin(), numbers.end(), 0.0);
    const Tensor at = Tensor::from(numbers, {n});
    return equal(expand_dims(at, 1), expand_dims(at, 0));
  }
};

struct CTCSettings : Plain {
  static constexpr const char* kName = "CTC";
  static constexpr const char* kOwnName = "ctc";
  static constexpr bool kClassNumbers = true;
  Tensor losses(const Tensor& y, const Tensor& p) const { return losses::ctc(class_numbers(y), p); }
};

struct SparseCategoricalCrossentropySettings : losses::SparseCategoricalCrossentropyOptions {
  static constexpr const char* kName = "SparseCategoricalCrossentropy";
  static constexpr bool kClassNumbers = true;
  void visit(auto& v) {
    v("from_logits", from_logits);
    v("ignore_class", ignore_class, kFinite);
    if (axis != -1) v("axis", axis, kFinite);
  }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    Tensor labels = class_numbers(without_width(y, p, axis));
    const Tensor scores = to_last(p, axis);
    check_class_shapes(kName, labels, scores);
    Tensor counted;
    if (ignore_class) {
      counted = not_equal(labels, *ignore_class);
      labels = where(counted, labels, 0);
    }
    Tensor losses;
    if (from_logits) {
      losses = sparse_softmax_cross_entropy_with_logits(labels, scores);
    } else {
      // Only the label's own probability is clipped and taken the logarithm of.
      losses = -log(clipped(of_class(scores, labels) / sum_of(scores)));
    }
    if (!ignore_class) return losses;
    losses = where(counted, losses, 0.0);
    losses.impl()->mask = counted.impl();
    return losses;
  }
};

struct CategoricalGeneralizedCrossEntropySettings : losses::CategoricalGeneralizedCrossEntropyOptions {
  static constexpr const char* kName = "CategoricalGeneralizedCrossEntropy";
  static constexpr bool kClassNumbers = true;
  void visit(auto& v) { v("q", q, Range{.low = 0, .high = 1, .above_low = true, .below_high = true}); }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor labels = class_numbers(without_width(y, p, -1));
    check_class_shapes(kName, labels, p);
    return (1.0 - pow(of_class(p, labels), q)) / q;
  }
};

struct DiceSettings : losses::DiceOptions {
  static constexpr const char* kName = "Dice";
  void visit(auto& v) { visit_list(v, "axis", axis, kFinite); }
  Tensor losses(const Tensor& y, const Tensor& p) const {
    return 1.0 - sum_over(y * p, axis) * 2.0 / (sum_over(y + p, axis) + kEpsilon);
  }
};

struct TverskySettings : losses::TverskyOptions {
  static constexpr const char* kName = "Tversky";
  void visit(auto& v) {
    v("alpha", alpha, kNotNegative);
    v("beta", beta, kNotNegative);
    visit_list(v, "axis", axis, kFinite);
  }
  // Keras' alpha weighs what the labels have and the predictions lack.
  Tensor losses(const Tensor& y, const Tensor& p) const {
    const Tensor both = sum_over(y * p, axis);
    const Tensor lacking = sum_over((1.0 - p) * y, axis), surplus = sum_over(p * (1.0 - y), axis);
    return 1.0 - both / (both + lacking * alpha + surplus * beta + kEpsilon);
  }
};

// --- rules -------------------------------------------------------------------------------------------------

template <class Settings>
class SettingsLoss final : public Loss::Rule {
 public:
  explicit SettingsLoss(const Settings& settings)
      : Rule(settings.name.empty() ? own_name() : settings.name, settings.reduction), settings_(settings) {
    check_fields(settings_, Settings::kName);
    if constexpr (requires { settings_.check(); }) settings_.check();
  }

  static Settings read(const Json& config) {
    Settings settings;
    FieldReader reader(config);
    reader("name", settings.name);
    reader("reduction", settings.reduction);
    reader.ignore("dtype");
    settings.visit(reader);
    reader.finish();
    return settings;
  }

  Tensor losses(const Tensor& y_true, const Tensor& y_pred) const override {
    if (!takes_class_numbers()) check_shapes(Settings::kName, y_true, y_pred);
    return settings_.losses(y_true, y_pred);
  }
  bool takes_class_numbers() const override {
    return requires { Settings::kClassNumbers; };
  }
  bool per_example(const Shape& predictions) const override {
    if constexpr (requires { settings_.axis; }) return !spans_batch(list_of(settings_.axis), predictions);
    return true;
  }
  std::string class_name() const override { return Settings::kName; }
  Json config() const override {
    Json config = Rule::config();
    const Json own = write_fields(settings_);
    for (const auto& [name, value] : own.members()) config.set(name, value);
    return config;
  }

 private:
  static std::string own_name() {
    if constexpr (requires { Settings::kOwnName; }) return Settings::kOwnName;
    return to_snake_case(Settings::kName);
  }

  Settings settings_;
};

template <class Settings>
Loss make_rule(const Settings& settings) {
  return Loss(std::make_shared<SettingsLoss<Settings>>(settings));
}

class FunctionRule final : public Loss::Rule {
 public:
  FunctionRule(LossFunction f, const losses::FunctionLossOptions& options)
      : Rule(options.name, options.reduction), f_(std::move(f)) {}
  Tensor losses(const Tensor& y_true, const Tensor& y_pred) const override { return f_(y_true, y_pred); }
  std::string class_name() const override { return "function"; }
  Json config() const override;

 private:
  LossFunction f_;
};

// Binary, sparse or categorical, as the shapes say.
class CrossentropyRule final : public Loss::Rule {
 public:
  CrossentropyRule() : Rule("crossentropy", Reduction::sum_over_batch_size) {}
  Tensor losses(const Tensor& y_true, const Tensor& y_pred) const override {
    Tensor labels = y_true, predictions = y_pred;
    const LabelKind kind = label_kind(y_true.shape(), y_pred.shape());
    if (kind == LabelKind::sparse) return SparseCategoricalCrossentropySettings().losses(labels, predictions);
    match_ranks(labels, predictions);
    labels = cast(labels, predictions.dtype());
    check_shapes("crossentropy", labels, predictions);
    return kind == LabelKind::binary ? BinaryCrossentropySettings().losses(labels, predictions)
                                     : CategoricalCrossentropySettings().losses(labels, predictions);
  }
  bool takes_class_numbers() const override { return true; }
  std::string class_name() const override { return "crossentropy"; }
};

template <class Settings>
void enter_loss(Registry<Loss>& registry, const std::vector<std::string>& aliases = {}) {
  registry.add(
      Settings::kName, [](const Json& config) { return make_rule(SettingsLoss<Settings>::read(config)); },
      aliases,
      [] {
        Json parameters = write_fields(Settings());
        parameters.set("reduction", "sum_over_batch_size");
        parameters.set("name", nullptr);
        parameters.set("dtype", nullptr);
        return parameters;
      });
}

Registry<Loss>& registry() {
  static Registry<Loss>& all = *[] {
    static Registry<Loss> made("loss");
    enter_loss<MeanSquaredErrorSettings>(made, {"mse", "MSE"});
    enter_loss<MeanAbsoluteErrorSettings>(made, {"mae", "MAE"});
    enter_loss<MeanAbsolutePercentageErrorSettings>(made, {"mape", "MAPE"});
    enter_loss<MeanSquaredLogarithmicErrorSettings>(made, {"msle", "MSLE"});
    enter_loss<HuberSettings>(made);
    enter_loss<LogCoshSettings>(made, {"logcosh"});
    enter_loss<BinaryCrossentropySettings>(made, {"bce", "BCE"});
    enter_loss<BinaryFocalCrossentropySettings>(made);
    enter_loss<CategoricalCrossentropySettings>(made);
    enter_loss<CategoricalFocalCrossentropySettings>(made);
    enter_loss<SparseCategoricalCrossentropySettings>(made);
    enter_loss<CategoricalGeneralizedCrossEntropySettings>(made);
    enter_loss<KLDivergenceSettings>(made, {"kld", "KLD", "kullback_leibler_divergence"});
    enter_loss<PoissonSettings>(made);
    enter_loss<HingeSettings>(made);
    enter_loss<SquaredHingeSettings>(made);
    enter_loss<CategoricalHingeSettings>(made);
    enter_loss<CosineSimilaritySettings>(made);
    enter_loss<DiceSettings>(made);
    enter_loss<TverskySettings>(made);
    enter_loss<CircleSettings>(made);
    enter_loss<CTCSettings>(made);
    made.add("crossentropy", [](const Json&) { return Loss(std::make_shared<CrossentropyRule>()); }, {"ce"});
    return &made;
  }();
  return all;
}

}  // namespace

const Catalogued& known_losses() { return registry(); }

// --- Loss --------------------------------------------------------------------------------------------------

Loss::Loss(const char* name, std::source_location where) : Loss(std::string(name), where) {}

Loss::Loss(const std::string& name, std::source_location where)
    : Loss(registry().make(name, Json::object(), where)) {}

Loss Loss::of_function(LossFunction f) { return losses::from_function(std::move(f)); }

Tensor Loss::operator()(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                        std::source_location where) const {
  require(defined(), ErrorCode::failed_precondition, where, "a Loss that is none was called");
  require(y_true.defined() && y_pred.defined(), ErrorCode::invalid_argument, where, rule_->name(),
          ": takes labels and predictions");
  const CallSite site(where);
  try {
    const auto [labels, predictions] = prepared(y_true, y_pred, sample_weight, rule_->takes_class_numbers());
    Tensor losses = rule_->losses(labels, predictions);
    const Reduction reduction = rule_->reduction();

    if (losses.rank() == 0 || !rule_->per_example(predictions.shape())) {
      require(!sample_weight.defined(), ErrorCode::invalid_argument, where,
              "there is one figure for the whole batch, so that examples cannot be weighed; an axis without "
              "the batch gives every example its own");
      if (reduction == Reduction::none || y_pred.rank() == 0) return losses;
      const double share = static_cast<double>(y_pred.shape()[0]) /
                           std::max<double>(1, static_cast<double>(global_batch_size(y_pred, where)));
      return (reduction == Reduction::sum ? reduce_sum(losses) : reduce_mean(losses)) * share;
    }

    const Shape& shape = losses.shape();
    const Tensor valid = merged_weights({}, y_pred, losses);
    const Tensor weights = sample_weight.defined() ? merged_weights(sample_weight, y_pred, losses) : valid;
    Tensor weighted = product(losses, weights);
    if (reduction == Reduction::none) return weighted;
    Tensor sum = reduce_sum(weighted);
    if (reduction == Reduction::sum) return sum;
    const Tensor& counted = reduction == Reduction::mean_with_sample_weight ? weights : valid;
    if (counted.defined()) return divide_no_nan(sum, all_reduce_sum(local_sum(counted, shape)));
    return sum * (1 / std::max(1.0, static_cast<double>(global_size(losses))));
  } catch (Error& error) {
    error.note("in loss " + rule_->name());
    throw;
  }
}

std::string Loss::name() const { return defined() ? rule_->name() : std::string(); }

Json FunctionRule::config() const {
  require(registry().contains(name()), ErrorCode::unsupported, std::source_location::current(), "the loss \"",
          name(),
          "\" is a function, which files know by its name alone; make that known by losses::register_loss()");
  return name();
}

Json Loss::serialize() const {
  if (!defined()) return {};
  return serialized("keras.losses", rule_->class_name(), rule_->config());
}

Loss Loss::deserialize(const Json& json, std::source_location where) {
  return json.is_null() ? Loss() : registry().make(json, where);
}

bool Loss::Rule::per_example(const Shape&) const { return true; }

Json Loss::Rule::config() const {
  return Json::object({{"name", name_}, {"reduction", to_json(reduction_)}});
}

namespace losses {

Loss MeanSquaredError(const LossOptions& options) { return make_rule(MeanSquaredErrorSettings{{options}}); }
Loss MeanAbsoluteError(const LossOptions& options) { return make_rule(MeanAbsoluteErrorSettings{{options}}); }
Loss MeanAbsolutePercentageError(const LossOptions& options) {
  return make_rule(MeanAbsolutePercentageErrorSettings{{options}});
}
Loss MeanSquaredLogarithmicError(const LossOptions& options) {
  return make_rule(MeanSquaredLogarithmicErrorSettings{{options}});
}
Loss LogCosh(const LossOptions& options) { return make_rule(LogCoshSettings{{options}}); }
Loss KLDivergence(const LossOptions& options) { return make_rule(KLDivergenceSettings{{options}}); }
Loss Poisson(const LossOptions& options) { return make_rule(PoissonSettings{{options}}); }
Loss Hinge(const LossOptions& options) { return make_rule(HingeSettings{{options}}); }
Loss SquaredHinge(const LossOptions& options) { return make_rule(SquaredHingeSettings{{options}}); }
Loss CategoricalHinge(const LossOptions& options) { return make_rule(CategoricalHingeSettings{{options}}); }
Loss Huber(const HuberOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(HuberSettings{options});
}
Loss CosineSimilarity(const CosineSimilarityOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(CosineSimilaritySettings{options});
}
Loss BinaryCrossentropy(const CrossentropyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(BinaryCrossentropySettings{options});
}
Loss CategoricalCrossentropy(const CrossentropyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(CategoricalCrossentropySettings{options});
}
Loss BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(BinaryFocalCrossentropySettings{options});
}
Loss CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& options,
                                  std::source_location where) {
  const CallSite site(where);
  return make_rule(CategoricalFocalCrossentropySettings{options});
}
Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options,
                                   std::source_location where) {
  const CallSite site(where);
  return make_rule(SparseCategoricalCrossentropySettings{options});
}
Loss CategoricalGeneralizedCrossEntropy(const CategoricalGeneralizedCrossEntropyOptions& options,
                                        std::source_location where) {
  const CallSite site(where);
  return make_rule(CategoricalGeneralizedCrossEntropySettings{options});
}
Loss Dice(const DiceOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(DiceSettings{options});
}
Loss Tversky(const TverskyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(TverskySettings{options});
}
Loss Circle(const CircleOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(CircleSettings{options});
}
Loss CTC(const LossOptions& options) { return make_rule(CTCSettings{{options}}); }

Json ClassWeights::serialize() const { return single_ ? Json(values_[0]) : to_json(values_); }
ClassWeights ClassWeights::deserialize(const Json& json, std::source_location where) {
  if (json.is_number()) return json.as_double(where);
  std::vector<double> values;
  from_json(json, values);
  return values;
}

Loss from_function(LossFunction f, const FunctionLossOptions& options) {
  return Loss(std::make_shared<FunctionRule>(std::move(f), options));
}

// With the line of the call, as ops have it.
static Tensor of_each(const Loss& loss, const TensorArg& y_true, const TensorArg& y_pred) {
  return loss(y_true.tensor(), y_pred.tensor(), {}, y_true.where());
}

Tensor mean_squared_error(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(MeanSquaredError({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor mean_absolute_error(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(MeanAbsoluteError({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor mean_absolute_percentage_error(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(MeanAbsolutePercentageError({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor mean_squared_logarithmic_error(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(MeanSquaredLogarithmicError({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor huber(const TensorArg& y_true, const TensorArg& y_pred, double delta) {
  return of_each(Huber({.delta = delta, .reduction = Reduction::none}, y_true.where()), y_true, y_pred);
}
Tensor log_cosh(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(LogCosh({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor kl_divergence(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(KLDivergence({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor poisson(const TensorArg& y_true, const TensorArg& y_pred) {
  return of_each(Poisson({.reduction = Reduction::none}), y_true, y_pred);
}
Tensor binary_crossentropy(const TensorArg& y_true, const TensorArg& y_pred, CrossentropyOptions options) {
  options.reduction = Reduction::none;
  return of_each(BinaryCrossentropy(options, y_true.where()), y_true, y_pred);
}
Tensor categorical_crossentropy(const TensorArg& y_true, const TensorArg& y_pred,
                                CrossentropyOptions options) {
  options.reduction = Reduction::none;
  return of_each(CategoricalCrossentropy(options, y_true.where()), y_true, y_pred);
}
Tensor sparse_categorical_crossentropy(const TensorArg& y_true, const TensorArg& y_pred,
                                       SparseCategoricalCrossentropyOptions options) {
  options.reduction = Reduction::none;
  return of_each(SparseCategoricalCrossentropy(options, y_true.where()), y_true, y_pred);
}

void register_loss(const std::string& class_name, std::function<Loss(const Json& config)> make) {
  registry().add(class_name, std::move(make));
}

}  // namespace losses

}  // namespace lockstep::keras
