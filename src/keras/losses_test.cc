#include "lockstep/keras/losses.h"

#include <cmath>

#include "keras/rule_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the examples
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  const char* json;
  Kind kind;
  std::vector<double> plain;
  std::vector<double> weighted;  // empty: weights are refused
};

// clang-format off
const Case kCases[] = {
    {R"({"class_name": "MeanSquaredError", "config": {"name": "mean_squared_error", "reduction": "sum_over_batch_size"}})", Kind::regression, {0.58668375}, {0.505384386}},
    {R"({"class_name": "MeanAbsoluteError", "config": {"name": "mean_absolute_error", "reduction": "sum_over_batch_size"}})", Kind::regression, {0.605111122}, {0.525944471}},
    {R"({"class_name": "MeanAbsolutePercentageError", "config": {"name": "mean_absolute_percentage_error", "reduction": "sum_over_batch_size"}})", Kind::regression, {98.9369736}, {106.843323}},
    {R"({"class_name": "MeanSquaredLogarithmicError", "config": {"name": "mean_squared_logarithmic_error", "reduction": "sum_over_batch_size"}})", Kind::regression, {0.14928928}, {0.138050303}},
    {R"({"class_name": "Huber", "config": {"name": "huber_loss", "reduction": "sum_over_batch_size", "delta": 0.5}})", Kind::regression, {0.200834945}, {0.17233783}},
    {R"({"class_name": "LogCosh", "config": {"name": "log_cosh", "reduction": "sum_over_batch_size"}})", Kind::regression, {0.240991712}, {0.207264349}},
    {R"({"class_name": "CosineSimilarity", "config": {"name": "cosine_similarity", "reduction": "sum_over_batch_size"}})", Kind::regression, {-0.808305264}, {-0.705501974}},
    {R"({"class_name": "Poisson", "config": {"name": "poisson", "reduction": "sum_over_batch_size"}})", Kind::regression, {1.20166171}, {1.04423153}},
    {R"({"class_name": "BinaryCrossentropy", "config": {"name": "binary_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.0, "axis": -1}})", Kind::binary, {0.943610966}, {0.595393777}},
    {R"({"class_name": "BinaryCrossentropy", "config": {"name": "binary_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.0, "axis": -1}})", Kind::labels, {1.04389203}, {0.845786273}},
    {R"({"class_name": "BinaryCrossentropy", "config": {"name": "binary_crossentropy", "reduction": "sum_over_batch_size", "from_logits": true, "label_smoothing": 0.2, "axis": -1}})", Kind::labels, {0.758092105}, {0.711162388}},
    {R"({"class_name": "BinaryFocalCrossentropy", "config": {"name": "binary_focal_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.0, "axis": -1, "apply_class_balancing": false, "alpha": 0.25, "gamma": 2.0}})", Kind::labels, {0.585129738}, {0.460304767}},
    {R"({"class_name": "BinaryFocalCrossentropy", "config": {"name": "binary_focal_crossentropy", "reduction": "sum_over_batch_size", "from_logits": true, "label_smoothing": 0.0, "axis": -1, "apply_class_balancing": true, "alpha": 0.3, "gamma": 1.5}})", Kind::labels, {0.206014559}, {0.219899788}},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"name": "categorical_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.0, "axis": -1}})", Kind::categorical, {1.15167236}, {0.808809578}},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"name": "categorical_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.1, "axis": -1}})", Kind::categorical, {1.18641627}, {0.864761174}},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"name": "categorical_crossentropy", "reduction": "sum_over_batch_size", "from_logits": true, "label_smoothing": 0.0, "axis": -1}})", Kind::categorical, {1.25770962}, {0.980581522}},
    {R"({"class_name": "CategoricalFocalCrossentropy", "config": {"name": "categorical_focal_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "label_smoothing": 0.0, "axis": -1, "alpha": 0.25, "gamma": 2.0}})", Kind::categorical, {0.142453313}, {0.0798730254}},
    {R"({"class_name": "CategoricalFocalCrossentropy", "config": {"name": "categorical_focal_crossentropy", "reduction": "sum_over_batch_size", "from_logits": true, "label_smoothing": 0.1, "axis": -1, "alpha": 0.5, "gamma": 3.0}})", Kind::categorical, {0.244443849}, {0.166954324}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"name": "sparse_categorical_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "ignore_class": null}})", Kind::sparse, {1.15167236}, {0.808809578}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"name": "sparse_categorical_crossentropy", "reduction": "sum_over_batch_size", "from_logits": true, "ignore_class": null}})", Kind::sparse, {1.25770962}, {0.980581522}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"name": "sparse_categorical_crossentropy", "reduction": "sum_over_batch_size", "from_logits": false, "ignore_class": 2}})", Kind::sparse, {1.18005717}, {0.745910645}},
    {R"({"class_name": "CategoricalGeneralizedCrossEntropy", "config": {"name": "categorical_generalized_cross_entropy", "reduction": "sum_over_batch_size", "q": 0.7}})", Kind::sparse, {0.241192818}, {0.152298465}},
    {R"({"class_name": "KLDivergence", "config": {"name": "kl_divergence", "reduction": "sum_over_batch_size"}})", Kind::labels, {1.48872054}, {0.792799413}},
    {R"({"class_name": "Hinge", "config": {"name": "hinge", "reduction": "sum_over_batch_size"}})", Kind::labels, {1.06383336}, {1.04830563}},
    {R"({"class_name": "Hinge", "config": {"name": "hinge", "reduction": "sum_over_batch_size"}})", Kind::regression, {0.277730733}, {0.373350143}},
    {R"({"class_name": "SquaredHinge", "config": {"name": "squared_hinge", "reduction": "sum_over_batch_size"}})", Kind::labels, {1.45046055}, {1.51116669}},
    {R"({"class_name": "CategoricalHinge", "config": {"name": "categorical_hinge", "reduction": "sum_over_batch_size"}})", Kind::categorical, {0.951499939}, {0.673583329}},
    {R"({"class_name": "Dice", "config": {"name": "dice", "reduction": "sum_over_batch_size", "axis": null}})", Kind::labels, {0.560625315}, {}},
    {R"({"class_name": "Dice", "config": {"name": "dice", "reduction": "sum_over_batch_size", "axis": [1]}})", Kind::labels, {0.607361376}, {0.616924047}},
    {R"({"class_name": "Tversky", "config": {"name": "tversky", "reduction": "sum_over_batch_size", "alpha": 0.3, "beta": 0.7, "axis": null}})", Kind::labels, {0.561622977}, {}},
    {R"({"class_name": "Tversky", "config": {"name": "tversky", "reduction": "sum_over_batch_size", "alpha": 0.3, "beta": 0.7, "axis": [-1]}})", Kind::labels, {0.582741618}, {0.605051279}},
    {R"({"class_name": "MeanSquaredError", "config": {"name": "mean_squared_error", "reduction": "sum"}})", Kind::regression, {3.5201025}, {3.03230643}},
    {R"({"class_name": "MeanSquaredError", "config": {"name": "mean_squared_error", "reduction": "mean_with_sample_weight"}})", Kind::regression, {0.58668375}, {0.577582181}},
    {R"({"class_name": "MeanSquaredError", "config": {"name": "mean_squared_error", "reduction": null}})", Kind::regression, {1.59715497, 0.733886957, 0.282778978, 0.211339995, 0.263131618, 0.431810021}, {1.59715497, 0.366943479, 0.565557957, 0, 0.394697428, 0.107952505}},
};
// clang-format on

TEST(Losses, AreKerasValues) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const Loss loss = Loss::deserialize(Json::parse(c.json));
    const auto [y, p] = examples(c.kind);
    EXPECT_TRUE(near(loss(y, p), c.plain));
    if (c.weighted.empty())
      EXPECT_THROW(loss(y, p, example_weights()), Error);
    else
      EXPECT_TRUE(near(loss(y, p, example_weights()), c.weighted));
  }
}

TEST(Losses, AreWrittenAsKerasWritesThem) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const Json original = Json::parse(c.json);
    const Json written = Loss::deserialize(original).serialize();
    EXPECT_EQ(written.at("module"), Json("keras.losses"));
    EXPECT_TRUE(written.at("registered_name").is_null());
    expect_written(written, original);
    EXPECT_EQ(Loss::deserialize(written).serialize(), written);
  }
}

TEST(Losses, HaveNames) {
  const auto [y, p] = examples(Kind::regression);
  for (const char* name : {"mse", "MSE", "mean_squared_error", "MeanSquaredError"}) {
    EXPECT_TRUE(near(Loss(name)(y, p), {0.58668375})) << name;
    EXPECT_EQ(Loss(name).name(), "mean_squared_error");
  }
  for (const char* name :
       {"mae", "mape", "msle", "bce", "kld", "logcosh", "kl_divergence", "huber", "poisson",
        "categorical_crossentropy", "sparse_categorical_crossentropy", "cosine_similarity"})
    EXPECT_TRUE(Loss(name).defined()) << name;
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([] { Loss("mean_square_error"); });
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_EQ(error.where().line(), line);
  EXPECT_THAT(error.message(), HasSubstr("did you mean \"mean_squared_error\"?"));
}

TEST(Losses, CrossentropyGoesByShapes) {
  for (const auto& [kind, loss] : {std::pair{Kind::binary, losses::BinaryCrossentropy()},
                                   {Kind::sparse, losses::SparseCategoricalCrossentropy()},
                                   {Kind::categorical, losses::CategoricalCrossentropy()}}) {
    const auto [y, p] = examples(kind);
    EXPECT_TRUE(near(Loss("crossentropy")(y, p), doubles(loss(y, p))));
  }
}

TEST(Losses, LabelsComeInManyShapes) {
  const auto [y, p] = examples(Kind::binary);
  const double expected = 0.943610966;
  const Loss loss = losses::BinaryCrossentropy();
  EXPECT_TRUE(near(loss(squeeze(y, {-1}), p), {expected}));
  EXPECT_TRUE(near(loss(y, squeeze(p, {-1})), {expected}));
  EXPECT_TRUE(near(loss(cast(y, DType::int64), p), {expected}));
  EXPECT_TRUE(near(loss(cast(y, DType::boolean), p), {expected}));
  const auto [numbers, scores] = examples(Kind::sparse);
  const Loss sparse = losses::SparseCategoricalCrossentropy();
  for (const DType dtype : {DType::int32, DType::int64, DType::uint8, DType::float32})
    EXPECT_TRUE(near(sparse(cast(numbers, dtype), scores), {1.15167236})) << dtype;
  EXPECT_TRUE(near(sparse(expand_dims(numbers, -1), scores), {1.15167236}));
}

TEST(Losses, ThatDoNotFitSaySo) {
  const auto [y, p] = examples(Kind::sparse);
  const Error error = error_of([&, y = y, p = p] { Loss("mse")(y, p); });
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("(6,)"), HasSubstr("(6, 4)"), HasSubstr("SparseCategorical"),
                                  HasSubstr("in loss mean_squared_error")));
  EXPECT_THAT(error_of([&, p = p] { Loss("sparse_categorical_crossentropy")(p, p); }).what(),
              HasSubstr("one-hot labels want CategoricalCrossentropy"));
  EXPECT_THAT(
      error_of([&, y = y, p = p] { Loss("sparse_categorical_crossentropy")(y, p, zeros({5})); }).what(),
      AllOf(HasSubstr("sample weights of shape (5,)"), HasSubstr("(6,)")));
  EXPECT_THROW(losses::BinaryCrossentropy({.label_smoothing = 2}), Error);
}

TEST(Losses, OfLabelsThatAreNoClassAreErrors) {
  const Tensor p = Tensor::full(DType::float32, {3, 4}, 0.25);
  for (const Loss& loss :
       {losses::SparseCategoricalCrossentropy(), losses::SparseCategoricalCrossentropy({.from_logits = true}),
        losses::SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = -2}),
        losses::SparseCategoricalCrossentropy({.ignore_class = -1}),
        losses::CategoricalGeneralizedCrossEntropy()})
    for (const float label : {4.0F, -3.0F, 1.5F, NAN, INFINITY}) {
      const Tensor y = Tensor::from<float>({0, label, 1}, {3});
      EXPECT_THROW(loss(y, p), Error) << loss.name() << " of " << label;
      auto compiled =
          function([&](const Tensor& labels, const Tensor& scores) { return loss(labels, scores); });
      EXPECT_THROW(compiled(y, p), Error) << loss.name() << " of " << label;
      if (label != std::floor(label) || std::isinf(label)) {
        EXPECT_THAT(error_of([&] { loss(y, p); }).what(),
                    HasSubstr("the label at position (1,) is no whole number, but there are 4 classes"));
      }
    }
  EXPECT_THAT(error_of([&] {
                losses::Circle()(Tensor::from<float>({0, NAN, 1}, {3}), p);
              }).what(),
              HasSubstr("Circle: the labels"));
  // What is not counted need not be a class.
  EXPECT_TRUE(near(
      losses::SparseCategoricalCrossentropy({.ignore_class = -1})(Tensor::from<int32_t>({0, -1, 1}, {3}), p),
      {std::log(4.0)}));
}

TEST(Losses, OfSixteenBitsAreComputedInFloat32) {
  const auto [y, p] = examples(Kind::categorical);
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const Tensor narrow = cast(p, dtype);
    const Tensor loss = losses::CategoricalCrossentropy()(y, narrow);
    EXPECT_EQ(loss.dtype(), DType::float32);
    EXPECT_EQ(loss.item<float>(),
              losses::CategoricalCrossentropy()(y, cast(narrow, DType::float32)).item<float>());
  }
}

TEST(Losses, OfExtremeProbabilitiesAreFinite) {
  const Tensor y = Tensor::from<float>({1, 0, 0, 1}, {2, 2}), p = Tensor::from<float>({0, 1, 0, 1}, {2, 2});
  EXPECT_TRUE(
      near(losses::CategoricalCrossentropy()(y, p), {-std::log(1e-7) / 2 - std::log1p(-1e-7) / 2}, 1e-5));
  EXPECT_TRUE(near(losses::BinaryCrossentropy()(y, p), {-std::log(1e-7) / 2}, 1e-2));
  const Tensor x = Tensor::from<float>({-200, 200, 0, 0}, {2, 2});
  EXPECT_TRUE(near(losses::BinaryCrossentropy({.from_logits = true})(y, x), {(200 + std::log(2.0)) / 2}));
}

// Zero logits are what zero-initialised layers give first.
TEST(Losses, OfZeroLogitsHaveTheRightGradient) {
  const Tensor y = Tensor::from<float>({1, 0}, {2, 1});
  const Tensor x = zeros({2, 1});
  GradientTape tape;
  tape.watch(x);
  const Tensor loss = losses::BinaryCrossentropy({.from_logits = true})(y, x);
  EXPECT_TRUE(near(tape.gradient(loss, x), {-0.25, 0.25}));
}

TEST(Losses, HaveTheGradientsOfFiniteDifferences) {
  for (const Case& c : kCases) {
    const Loss loss = Loss::deserialize(Json::parse(c.json));
    if (loss.rule().reduction() == Reduction::none) continue;
    SCOPED_TRACE(c.json);
    const auto [y, narrow] = examples(c.kind);
    const Tensor p = cast(narrow, DType::float64);
    const Tensor weights = c.weighted.empty() ? Tensor() : example_weights();
    GradientTape tape;
    tape.watch(p);
    const std::vector<double> gradient = doubles(tape.gradient(loss(y, p, weights), p));
    std::vector<double> values = doubles(p);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = [&](double step) {
        std::vector<double> moved = values;
        moved[i] += step;
        return loss(y, Tensor::from(moved, p.shape()), weights).item<double>();
      };
      EXPECT_NEAR(gradient[i], (at(1e-6) - at(-1e-6)) / 2e-6, 1e-6 * std::max(1.0, std::abs(gradient[i])))
          << i;
    }
  }
}

// --- masks -------------------------------------------------------------------------------------------------

// Two sequences of three steps of two values each.
struct Sequences {
  Tensor y = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2});
  Tensor p = Tensor::from<float>({1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, {2, 3, 2});
  Tensor mask = Tensor::from(std::vector<bool>{true, true, false, true, false, false}, {2, 3});
};

TEST(LossMasks, LeaveTheMeanOfWhatCounts) {
  const Sequences s;
  // Squares of the errors, by position: 0.5, 6.5, 20.5; 30.5, 56.5, 90.5.
  const Tensor p = masked(s.p, s.mask);
  EXPECT_TRUE(near(Loss("mse")(s.y, p), {(0.5 + 6.5 + 30.5) / 3}));
  EXPECT_TRUE(near(losses::MeanSquaredError({.reduction = Reduction::sum})(s.y, p), {37.5}));
  EXPECT_TRUE(near(losses::mean_squared_error(s.y, p), {0.5, 6.5, 0, 30.5, 0, 0}));
  // One weight per example, and one per position.
  EXPECT_TRUE(near(Loss("mse")(s.y, p, Tensor::from<float>({2, 1}, {2})), {(1 + 13 + 30.5) / 3}));
  EXPECT_TRUE(
      near(Loss("mse")(s.y, p, Tensor::from<float>({2, 1, 9, 3, 9, 9}, {2, 3})), {(1 + 6.5 + 91.5) / 3}));
  EXPECT_TRUE(near(losses::MeanSquaredError({.reduction = Reduction::mean_with_sample_weight})(
                       s.y, p, Tensor::from<float>({2, 1}, {2})),
                   {(1 + 13 + 30.5) / 5}));
  // Nothing counts.
  const Tensor nothing = masked(identity(s.p), Tensor::from(std::vector<bool>(6), {2, 3}));
  EXPECT_TRUE(near(Loss("mse")(s.y, nothing), {0}));
}

TEST(LossMasks, OfOneValueAPosition) {
  const Tensor y = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor p = masked(zeros({2, 2, 1}), Tensor::from(std::vector<bool>{true, false, true, true}, {2, 2}));
  EXPECT_TRUE(near(Loss("mse")(y, p), {(1 + 9 + 16) / 3.0}));
}

// --- functions of one's own --------------------------------------------------------------------------------

TEST(FunctionLoss, IsReducedLikeAnyOther) {
  const Loss loss = [](const Tensor& y, const Tensor& p) { return reduce_sum(abs(y - p), {.axis = {-1}}); };
  const auto [y, p] = examples(Kind::regression);
  EXPECT_TRUE(near(loss(y, p), {3 * 0.605111122}));
  EXPECT_TRUE(near(loss(cast(y, DType::float64), p, example_weights()), {3 * 0.525944471}));
  EXPECT_EQ(losses::from_function([](const Tensor&, const Tensor& x) { return x; }, {.name = "mine"}).name(),
            "mine");
  EXPECT_EQ(error_of([&] { loss.serialize(); }).code(), ErrorCode::unsupported);
}

class Weighted final : public Loss::Rule {
 public:
  explicit Weighted(double factor) : Rule("weighted", Reduction::sum), factor_(factor) {}
  Tensor losses(const Tensor& y, const Tensor& p) const override {
    return reduce_sum(y - p, {.axis = {-1}}) * factor_;
  }
  std::string class_name() const override { return "my>Weighted"; }
  Json config() const override {
    Json config = Rule::config();
    config.set("factor", factor_);
    return config;
  }

 private:
  double factor_;
};

TEST(FunctionLoss, OfAClassIsReadFromFiles) {
  losses::register_loss("my>Weighted", [](const Json& config) {
    return Loss(std::make_shared<Weighted>(config.at("factor").as_double()));
  });
  const Loss loss(std::make_shared<Weighted>(3));
  const Loss read = Loss::deserialize(loss.serialize());
  EXPECT_TRUE(near(read(ones({2, 2}), zeros({2, 2})), {12}));
}

// --- replicas ----------------------------------------------------------------------------------------------

// The loss and the gradient of a weight, of the whole batch.
struct Outcome {
  float loss = 0;
  std::vector<float> gradient;
};

Outcome outcome(const Loss& loss, const Tensor& y, const Tensor& p, const Tensor& weights, const Tensor& mask,
                int devices) {
  const Variable scale(Tensor::full(DType::float32, {p.shape()[-1]}, 0.9));
  FunctionOptions options;
  if (devices > 0) options.replicas.devices = one_thread_devices(devices);
  auto step = function(
      [&](const Tensor& labels, const Tensor& predictions, const Tensor& w, const Tensor& m) {
        GradientTape tape;
        const Tensor scaled = masked(predictions * scale, m);
        const Tensor share = loss(labels, scaled, w);
        return std::pair{all_reduce_sum(share), all_reduce_sum(tape.gradient(share, scale))};
      },
      options);
  const auto [value, gradient] = step(y, p, weights, mask);
  return {value.item<float>(), gradient.to_vector<float>()};
}

TEST(LossReplicas, ShareTheLossOfTheWholeBatch) {
  for (const Case& c : kCases) {
    const Loss loss = Loss::deserialize(Json::parse(c.json));
    if (loss.rule().reduction() == Reduction::none || c.weighted.empty()) continue;
    SCOPED_TRACE(c.json);
    const auto [y, p] = examples(c.kind);
    const Tensor mask = Tensor::from(std::vector<bool>{true, true, false, true, true, false}, {6});
    const Outcome one = outcome(loss, y, p, example_weights(), mask, 0);
    for (const int devices : {1, 3, 4}) {  // 6 over 4: 2, 2, 2, 0
      const Outcome many = outcome(loss, y, p, example_weights(), mask, devices);
      EXPECT_NEAR(many.loss, one.loss, 2e-6 * std::max(1.0f, std::abs(one.loss))) << devices;
      for (size_t i = 0; i < one.gradient.size(); ++i)
        EXPECT_NEAR(many.gradient[i], one.gradient[i], 3e-6 * std::max(1.0f, std::abs(one.gradient[i])))
            << devices;
    }
  }
}

// Differences of the loss in float64.
void expect_gradient(const std::function<Tensor(const Tensor&)>& loss, const Tensor& at) {
  GradientTape tape;
  tape.watch(at);
  const std::vector<double> gradient = doubles(tape.gradient(reduce_sum(loss(at)), at));
  const std::vector<double> values = doubles(at);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto moved = [&](double by) {
      std::vector<double> others = values;
      others[i] += by;
      return doubles(reduce_sum(loss(Tensor::from(others, at.shape()))))[0];
    };
    EXPECT_NEAR(gradient[i], (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-7) << i;
  }
}

Tensor wavy(const Shape& shape) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.size(); ++i) values.push_back(std::sin(1.7 * static_cast<double>(i)) * 1.3);
  return Tensor::from(values, shape);
}

TEST(CTC, GradientsAreThoseOfDifferences) {
  const Tensor labels = Tensor::from<int32_t>({1, 1, 2, 3, 0, 0, 2, 1, 0}, {3, 3});
  expect_gradient([&](const Tensor& p) { return losses::ctc(labels, p); }, wavy({3, 6, 4}));
  const losses::CTCOptions lengths{.label_length = Tensor::from<int32_t>({2, 1, 2}, {3}),
                                   .logit_length = Tensor::from<int32_t>({6, 3, 4}, {3})};
  expect_gradient([&](const Tensor& p) { return losses::ctc(labels, p, lengths); }, wavy({3, 6, 4}));
}

// Two steps and one label: a path for each of "a a", "a -", "- a".
TEST(CTC, AddsUpAllPathsThatSpellTheLabel) {
  const Tensor logits = wavy({1, 2, 3});
  const std::vector<double> p = doubles(softmax(logits));
  const double all = p[1] * p[4] + p[1] * p[3] + p[0] * p[4];
  EXPECT_NEAR(doubles(losses::ctc(Tensor::from<int32_t>({1}, {1, 1}), logits))[0], -std::log(all), 1e-12);
  // Uniform logits tie everywhere; the gradient is that of the paths all the same.
  expect_gradient(
      [](const Tensor& q) {
        return losses::ctc(Tensor::from<int32_t>({1, 1}, {1, 2}), q);
      },
      zeros({1, 4, 3}, DType::float64));
  // What lies behind the end of the logits does not matter, whatever it is.
  const Tensor longer = concat(TensorList{logits, wavy({1, 2, 3}) * 50.0}, 1);
  EXPECT_NEAR(doubles(losses::ctc(Tensor::from<int32_t>({1}, {1, 1}), longer,
                                  {.logit_length = Tensor::from<int32_t>({2}, {1})}))[0],
              -std::log(all), 1e-12);
}

TEST(Circle, GradientsAreThoseOfDifferences) {
  const Tensor labels = Tensor::from<int32_t>({0, 1, 0, 2, 1}, {5});
  expect_gradient(
      [&](const Tensor& p) {
        return losses::Circle({.gamma = 3, .reduction = Reduction::none})(labels, l2_normalize(p, {1}));
      },
      wavy({5, 3}));
}

TEST(FocalLosses, HaveAnAlphaForEachClass) {
  const Loss loss = losses::CategoricalFocalCrossentropy({.alpha = {0.1, 0.6, 0.3}});
  EXPECT_EQ(loss.serialize().at("config").at("alpha"), (Json::List{0.1, 0.6, 0.3}));
  EXPECT_EQ(losses::CategoricalFocalCrossentropy().serialize().at("config").at("alpha"), Json(0.25));
  EXPECT_EQ(Loss::deserialize(loss.serialize()).serialize(), loss.serialize());
  EXPECT_THAT(error_of([&] {
                loss(ones({2, 4}), ones({2, 4}));
              }).message(),
              HasSubstr("3 alphas do not fit 4"));
}

TEST(LossReplicas, ShareTheLossOfAWholeBatchToo) {
  const auto [y, p] = examples(Kind::labels);
  // A mean of one's own slice is weighed by the slice.
  const Loss mean_of_slice = [](const Tensor& a, const Tensor& b) { return reduce_mean(square(a - b)); };
  const auto run = [&, y = y, p = p](const Loss& loss, int devices) {
    FunctionOptions options;
    if (devices > 0) options.replicas.devices = one_thread_devices(devices);
    const Variable scale(Tensor::full(DType::float32, {3}, 0.9));
    auto step = function(
        [&](const Tensor& labels, const Tensor& predictions) {
          GradientTape tape;
          const Tensor share = loss(labels, predictions * scale);
          return std::pair{all_reduce_sum(share), all_reduce_sum(tape.gradient(share, scale))};
        },
        options);
    const auto [value, gradient] = step(rows(y, 0, 5), rows(p, 0, 5));
    std::vector<double> all = doubles(gradient);
    all.push_back(value.item<float>());
    return all;
  };
  for (const Loss& loss :
       {losses::Dice(), losses::Tversky({.alpha = 0.2}), losses::Dice({.axis = {0}}), mean_of_slice})
    for (const int devices : {2, 4}) {  // 5 over 4: 2, 2, 1, 0
      const std::vector<double> one = run(loss, 0), many = run(loss, devices);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 2e-6) << devices;
    }
}

}  // namespace
}  // namespace lockstep::keras
