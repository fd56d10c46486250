#include "lockstep/keras/metrics.h"

#include "keras/rule_test.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the examples
using ::testing::HasSubstr;

struct Case {
  const char* json;
  Kind kind;
  std::vector<double> plain;
  std::vector<double> weighted;
};

// clang-format off
const Case kCases[] = {
    {R"({"class_name": "Accuracy", "config": {"name": "accuracy"}})", Kind::classes, {0.666666687}, {0.333333343}},
    {R"({"class_name": "BinaryAccuracy", "config": {"name": "binary_accuracy", "threshold": 0.4}})", Kind::binary, {0.5}, {0.666666687}},
    {R"({"class_name": "BinaryAccuracy", "config": {"name": "binary_accuracy", "threshold": 0.5}})", Kind::labels, {0.388888925}, {0.492063463}},
    {R"({"class_name": "CategoricalAccuracy", "config": {"name": "categorical_accuracy"}})", Kind::categorical, {0.5}, {0.857142866}},
    {R"({"class_name": "SparseCategoricalAccuracy", "config": {"name": "sparse_categorical_accuracy"}})", Kind::sparse, {0.5}, {0.857142866}},
    {R"({"class_name": "TopKCategoricalAccuracy", "config": {"name": "top_k_categorical_accuracy", "k": 2}})", Kind::categorical, {0.5}, {0.857142866}},
    {R"({"class_name": "SparseTopKCategoricalAccuracy", "config": {"name": "sparse_top_k_categorical_accuracy", "k": 2}})", Kind::sparse, {0.5}, {0.857142866}},
    {R"({"class_name": "MeanSquaredError", "config": {"name": "mean_squared_error"}})", Kind::regression, {0.58668375}, {0.577582121}},
    {R"({"class_name": "RootMeanSquaredError", "config": {"name": "root_mean_squared_error"}})", Kind::regression, {0.765952826}, {0.759988248}},
    {R"({"class_name": "MeanAbsoluteError", "config": {"name": "mean_absolute_error"}})", Kind::regression, {0.605111122}, {0.601079404}},
    {R"({"class_name": "MeanAbsolutePercentageError", "config": {"name": "mean_absolute_percentage_error"}})", Kind::regression, {98.9369736}, {122.106651}},
    {R"({"class_name": "MeanSquaredLogarithmicError", "config": {"name": "mean_squared_logarithmic_error"}})", Kind::regression, {0.14928928}, {0.157771751}},
    {R"({"class_name": "LogCoshError", "config": {"name": "logcosh"}})", Kind::regression, {0.240991712}, {0.236873537}},
    {R"({"class_name": "CosineSimilarity", "config": {"name": "cosine_similarity"}})", Kind::regression, {0.808305264}, {0.806287944}},
    {R"({"class_name": "KLDivergence", "config": {"name": "kl_divergence"}})", Kind::labels, {1.48872054}, {0.906056464}},
    {R"({"class_name": "Poisson", "config": {"name": "poisson"}})", Kind::regression, {1.20166171}, {1.19340754}},
    {R"({"class_name": "Hinge", "config": {"name": "hinge"}})", Kind::regression, {0.277730733}, {0.42668587}},
    {R"({"class_name": "SquaredHinge", "config": {"name": "squared_hinge"}})", Kind::regression, {0.186953187}, {0.294202924}},
    {R"({"class_name": "CategoricalHinge", "config": {"name": "categorical_hinge"}})", Kind::categorical, {0.951499939}, {0.769809544}},
    {R"({"class_name": "BinaryCrossentropy", "config": {"name": "binary_crossentropy", "from_logits": false, "label_smoothing": 0.1}})", Kind::labels, {1.02848279}, {0.958986938}},
    {R"({"class_name": "CategoricalCrossentropy", "config": {"name": "categorical_crossentropy", "from_logits": true, "label_smoothing": 0.1, "axis": -1}})", Kind::categorical, {1.27256382}, {1.1500479}},
    {R"({"class_name": "SparseCategoricalCrossentropy", "config": {"name": "sparse_categorical_crossentropy", "from_logits": false, "ignore_class": null, "axis": -1}})", Kind::sparse, {1.15167248}, {0.924353838}},
    {R"({"class_name": "TruePositives", "config": {"name": "true_positives", "thresholds": null}})", Kind::labels, {2}, {1.5}},
    {R"({"class_name": "TrueNegatives", "config": {"name": "true_negatives", "thresholds": null}})", Kind::labels, {5}, {6.25}},
    {R"({"class_name": "FalsePositives", "config": {"name": "false_positives", "thresholds": [0.3, 0.7]}})", Kind::labels, {8, 4}, {9, 4.25}},
    {R"({"class_name": "FalseNegatives", "config": {"name": "false_negatives", "thresholds": null}})", Kind::labels, {7}, {3.75}},
    {R"({"class_name": "Precision", "config": {"name": "precision", "thresholds": null, "top_k": null, "class_id": null}})", Kind::labels, {0.333333343}, {0.260869563}},
    {R"({"class_name": "Precision", "config": {"name": "precision", "thresholds": [0.2, 0.6], "top_k": null, "class_id": null}})", Kind::labels, {0.466666669, 0.333333343}, {0.345454544, 0.260869563}},
    {R"({"class_name": "Precision", "config": {"name": "precision", "thresholds": null, "top_k": 2, "class_id": null}})", Kind::categorical, {0.25}, {0.428571433}},
    {R"({"class_name": "Recall", "config": {"name": "recall", "thresholds": null, "top_k": null, "class_id": 1}})", Kind::labels, {0.400000006}, {0.461538464}},
    {R"({"class_name": "Recall", "config": {"name": "recall", "thresholds": null, "top_k": 2, "class_id": 2}})", Kind::categorical, {0.5}, {0.75}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 200, "curve": "ROC", "summation_method": "interpolation", "multi_label": false, "num_labels": null, "label_weights": null, "from_logits": false}})", Kind::labels, {0.345679015}, {0.402494341}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 200, "curve": "PR", "summation_method": "interpolation", "multi_label": false, "num_labels": null, "label_weights": null, "from_logits": false}})", Kind::labels, {0.411261469}, {0.297356576}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 7, "curve": "PR", "summation_method": "majoring", "multi_label": false, "num_labels": null, "label_weights": null, "from_logits": false}})", Kind::labels, {0.421296299}, {0.317392409}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 200, "curve": "PRGAIN", "summation_method": "interpolation", "multi_label": false, "num_labels": null, "label_weights": null, "from_logits": false}})", Kind::labels, {-0.291836739}, {-0.417889178}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 5, "curve": "ROC", "summation_method": "minoring", "multi_label": false, "num_labels": null, "label_weights": null, "from_logits": false, "thresholds": [0.2, 0.35, 0.8]}})", Kind::labels, {0.259259254}, {0.328798175}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 9, "curve": "ROC", "summation_method": "interpolation", "multi_label": true, "num_labels": null, "label_weights": null, "from_logits": false}})", Kind::labels, {0.333333343}, {0.308187127}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 200, "curve": "ROC", "summation_method": "interpolation", "multi_label": true, "num_labels": null, "label_weights": [1.0, 2.0, 0.5], "from_logits": true}})", Kind::labels, {0.371428549}, {0.33992672}},
    {R"({"class_name": "AUC", "config": {"name": "auc", "num_thresholds": 5, "curve": "ROC", "summation_method": "interpolation", "multi_label": false, "num_labels": null, "label_weights": [1.0, 2.0, 0.5], "from_logits": false}})", Kind::labels, {0.462740391}, {0.582491577}},
    {R"({"class_name": "SensitivityAtSpecificity", "config": {"name": "sensitivity_at_specificity", "class_id": null, "num_thresholds": 200, "specificity": 0.4}})", Kind::labels, {0.333333343}, {0.285714298}},
    {R"({"class_name": "SpecificityAtSensitivity", "config": {"name": "specificity_at_sensitivity", "class_id": null, "num_thresholds": 200, "sensitivity": 0.5}})", Kind::labels, {0.222222224}, {0.333333343}},
    {R"({"class_name": "PrecisionAtRecall", "config": {"name": "precision_at_recall", "class_id": null, "num_thresholds": 200, "recall": 0.6}})", Kind::labels, {0.5}, {0.345454544}},
    {R"({"class_name": "RecallAtPrecision", "config": {"name": "recall_at_precision", "class_id": 1, "num_thresholds": 200, "precision": 0.5}})", Kind::labels, {1}, {1}},
    {R"({"class_name": "F1Score", "config": {"name": "f1_score", "average": null, "threshold": null}})", Kind::categorical, {0.49999994, 0.999999821, 0.49999994, 0}, {0.888888717, 1, 0.799999893, 0}},
    {R"({"class_name": "F1Score", "config": {"name": "f1_score", "average": "micro", "threshold": 0.5}})", Kind::labels, {0.266666591}, {0.272727191}},
    {R"({"class_name": "F1Score", "config": {"name": "f1_score", "average": "macro", "threshold": null}})", Kind::categorical, {0.49999994}, {0.672222137}},
    {R"({"class_name": "FBetaScore", "config": {"name": "fbeta_score", "average": "weighted", "beta": 2.0, "threshold": null}})", Kind::categorical, {0.5}, {0.87240535}},
    {R"({"class_name": "IoU", "config": {"name": "io_u", "num_classes": 4, "target_class_ids": [0, 2], "ignore_class": null, "sparse_y_true": true, "sparse_y_pred": true, "axis": -1}})", Kind::classes, {0.75}, {0.62499994}},
    {R"({"class_name": "MeanIoU", "config": {"num_classes": 4, "name": "mean_io_u", "ignore_class": 1, "sparse_y_true": true, "sparse_y_pred": true, "axis": -1}})", Kind::classes, {0.625}, {0.416666627}},
    {R"({"class_name": "MeanIoU", "config": {"num_classes": 4, "name": "mean_io_u", "ignore_class": null, "sparse_y_true": true, "sparse_y_pred": false, "axis": -1}})", Kind::sparse, {0.416666657}, {0.616666675}},
    {R"({"class_name": "BinaryIoU", "config": {"target_class_ids": [0, 1], "threshold": 0.4, "name": "binary_io_u"}})", Kind::binary, {0.324999988}, {0.426900566}},
    {R"({"class_name": "OneHotIoU", "config": {"num_classes": 4, "target_class_ids": [1, 2], "name": "one_hot_io_u", "ignore_class": null, "sparse_y_pred": false, "axis": -1}})", Kind::categorical, {0.666666627}, {0.833333373}},
    {R"({"class_name": "OneHotMeanIoU", "config": {"num_classes": 4, "name": "one_hot_mean_io_u", "ignore_class": null, "sparse_y_pred": false, "axis": -1}})", Kind::categorical, {0.416666657}, {0.616666675}},
    {R"({"class_name": "R2Score", "config": {"name": "r2_score", "class_aggregation": "uniform_average", "num_regressors": 0}})", Kind::regression, {-1.1946696}, {-2.68232608}},
    {R"({"class_name": "R2Score", "config": {"name": "r2_score", "class_aggregation": null, "num_regressors": 0}})", Kind::regression, {-1.99718833, -0.701608062, -0.885212421}, {-3.94007063, -0.748839736, -3.35806704}},
    {R"({"class_name": "R2Score", "config": {"name": "r2_score", "class_aggregation": "variance_weighted_average", "num_regressors": 2}})", Kind::regression, {-1.39134645}, {-2.05660796}},
};
// clang-format on

TEST(Metrics, AreKerasValues) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const auto [y, p] = examples(c.kind);
    for (const bool weighted : {false, true}) {
      const Metric metric = Metric::deserialize(Json::parse(c.json));
      for (const auto& [begin, end] : {std::pair{0, 4}, std::pair{4, 6}})
        metric.update_state(rows(y, begin, end), rows(p, begin, end),
                            weighted ? rows(example_weights(), begin, end) : Tensor());
      EXPECT_TRUE(near(metric.result(), weighted ? c.weighted : c.plain))
          << (weighted ? "weighted" : "plain");
      metric.reset_state();
      for (const Variable& variable : metric.variables())
        EXPECT_THAT(doubles(variable.value()), ::testing::Each(0.0));
    }
  }
}

// They count in float32 whatever the predictions, labels and weights are.
TEST(Metrics, OfFloat64AreTheSame) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const auto [y, p] = examples(c.kind);
    const auto wide = [](const Tensor& x) { return is_floating(x.dtype()) ? cast(x, DType::float64) : x; };
    for (const bool weighted : {false, true}) {
      const Metric metric = Metric::deserialize(Json::parse(c.json));
      metric.update_state(wide(y), wide(p), weighted ? wide(example_weights()) : Tensor());
      EXPECT_TRUE(near(metric.result(), weighted ? c.weighted : c.plain))
          << (weighted ? "weighted" : "plain");
    }
  }
}

TEST(Metrics, AreWrittenAsKerasWritesThem) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const Json original = Json::parse(c.json);
    const Json written = Metric::deserialize(original).serialize();
    EXPECT_EQ(written.at("module"), Json("keras.metrics"));
    EXPECT_EQ(written.at("config").at("dtype"), Json("float32"));
    expect_written(written, original);
    EXPECT_EQ(Metric::deserialize(written).serialize(), written);
    // The default name is Keras' too.
    Json nameless = original;
    nameless["config"].erase("name");
    EXPECT_EQ(Metric::deserialize(nameless).name(), original.at("config").at("name").as_string());
  }
}

TEST(Metrics, AreCalledByTheNameTheyWereAskedForBy) {
  EXPECT_EQ(Metric("mse").name(), "mse");
  EXPECT_EQ(Metric("auc").name(), "auc");
  EXPECT_EQ(Metric("acc").name(), "acc");
  EXPECT_EQ(metrics::AUC({.name = "area"}).name(), "area");
  EXPECT_EQ(Metric("accuracy").serialize(), Json("accuracy"));
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([] { Metric("acuracy"); });
  EXPECT_EQ(error.where().line(), line);
  EXPECT_THAT(error.message(), HasSubstr("ccuracy\"?"));
}

TEST(Metrics, AccuracyAndCrossentropyGoByShapes) {
  for (const auto& [kind, accuracy, crossentropy] :
       {std::tuple{Kind::binary, metrics::BinaryAccuracy(), metrics::BinaryCrossentropy()},
        {Kind::sparse, metrics::SparseCategoricalAccuracy(), metrics::SparseCategoricalCrossentropy()},
        {Kind::categorical, metrics::CategoricalAccuracy(), metrics::CategoricalCrossentropy()}}) {
    const auto [y, p] = examples(kind);
    for (const auto& [by_name, by_class] :
         {std::pair{Metric("accuracy"), accuracy}, std::pair{Metric("crossentropy"), crossentropy}}) {
      by_name.update_state(y, p, example_weights());
      by_class.update_state(y, p, example_weights());
      EXPECT_TRUE(near(by_name.result(), doubles(by_class.result()))) << by_class.name();
    }
  }
  const Metric metric("accuracy");
  metric.update_state(Tensor::from<int64_t>({1, 0}, {2, 1}), Tensor::from<float>({0, 1, 0, 1}, {2, 2}));
  EXPECT_TRUE(near(metric.result(), {0.5}));
}

TEST(Metrics, OfNothingAreZero) {
  for (const Case& c : kCases)
    EXPECT_TRUE(near(Metric::deserialize(Json::parse(c.json)).result(), {0})) << c.json;
  const Metric mean = metrics::Mean();
  mean.update_state(ones({3}));
  mean.reset_state();
  EXPECT_TRUE(near(mean.result(), {0}));
}

TEST(Metrics, OfValues) {
  const Metric mean = metrics::Mean(), sum = metrics::Sum();
  for (const Metric& metric : {mean, sum}) {
    metric.update_state(Tensor::from<float>({1, 2, 3}, {3}));
    metric.update_state(Tensor::from<float>({10, 20}, {2}), Tensor::from<float>({0.5, 0.25}, {2}));
    metric.update_state(Tensor::scalar(4.0f));
  }
  EXPECT_TRUE(near(mean.result(), {(6 + 10 + 4) / 4.75}));
  EXPECT_TRUE(near(sum.result(), {20}));
  EXPECT_THROW(mean.update_state(ones({2}), ones({2}), ones({2})), Error);
  EXPECT_THROW(Metric("mse").update_state(ones({2})), Error);
  // Examples weigh the same, however many values they have.
  const Metric positions = metrics::Mean();
  positions.update_state(Tensor::from<float>({1, 3}, {1, 2}));
  positions.update_state(Tensor::from<float>({8}, {1, 1}));
  EXPECT_TRUE(near(positions.result(), {5}));
}

TEST(Metrics, OfAFunction) {
  const Metric metric = metrics::MeanMetricWrapper(
      [](const Tensor& y, const Tensor& p) { return reduce_max(abs(y - p), {.axis = {-1}}); },
      {.name = "worst"});
  metric.update_state(Tensor::from<int32_t>({1, 2, 3, 4}, {2, 2}), Tensor::from<float>({1, 0, 0, 0}, {2, 2}));
  EXPECT_TRUE(near(metric.result(), {3}));
  EXPECT_EQ(metric.name(), "worst");
}

TEST(Metrics, MasksLeaveOutPositions) {
  const Tensor y = Tensor::from<int32_t>({0, 1, 1, 0}, {2, 2});
  const Tensor p = masked(Tensor::from<float>({1, 0, 1, 0, 0, 1, 0, 1}, {2, 2, 2}),
                          Tensor::from(std::vector<bool>{true, false, true, true}, {2, 2}));
  const Metric accuracy = metrics::SparseCategoricalAccuracy();
  accuracy.update_state(y, p);
  EXPECT_TRUE(near(accuracy.result(), {2 / 3.0}));
  const Metric weighted = metrics::SparseCategoricalAccuracy();
  weighted.update_state(y, p, Tensor::from<float>({2, 1}, {2}));
  EXPECT_TRUE(near(weighted.result(), {3 / 4.0}));
  const Metric hits = metrics::TruePositives();
  hits.update_state(one_hot(y, 2), p);
  EXPECT_TRUE(near(hits.result(), {2}));
}

TEST(Metrics, ConfusionMatrix) {
  const Metric matrix = metrics::ConfusionMatrix(4);
  const auto [y, p] = examples(Kind::classes);
  matrix.update_state(y, p, example_weights());
  EXPECT_TRUE(near(matrix.result(), {1.25, 0, 0, 0, 0, 0, 0, 2, 0, 1.5, 0.5, 0, 0, 0, 0, 0}));
  const auto [labels, scores] = examples(Kind::sparse);
  const Metric of_scores = metrics::ConfusionMatrix(4);
  of_scores.update_state(labels, scores);
  of_scores.update_state(one_hot(labels, 4), scores);
  EXPECT_TRUE(near(of_scores.result(), {2, 0, 2, 0, 0, 2, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0}));
  EXPECT_EQ(matrix.result().shape(), (Shape{4, 4}));
}

TEST(Metrics, OfClassesRefuseWhatIsNoClass) {
  const Tensor classes = Tensor::from<int32_t>({0, 2, 1}, {3});
  const Tensor scores = Tensor::full(DType::float32, {3, 4}, 0.25);
  for (const float label : {4.0F, -1.0F, 1.5F, NAN, INFINITY}) {
    SCOPED_TRACE(label);
    const Tensor wrong = Tensor::from<float>({0, label, 1}, {3});
    const auto expect_error = [&](const Metric& metric, const Tensor& y, const Tensor& p) {
      EXPECT_THAT(
          error_of([&] { metric.update_state(y, p); }).what(),
          ::testing::HasSubstr("the label at position (1,) is " +
                               (std::isfinite(label) && label != 1.5F ? std::to_string(std::lround(label))
                                                                      : "no whole number") +
                               ", but there are 4 classes: labels run from 0 to 3"));
    };
    for (const Metric& metric : {metrics::ConfusionMatrix(4), metrics::MeanIoU(4), metrics::IoU(4, {1})}) {
      expect_error(metric, wrong, classes);
      expect_error(metric, classes, wrong);
    }
    expect_error(metrics::SparseTopKCategoricalAccuracy({.k = 2}), wrong, scores);
  }
  // What is ignored need not be a class.
  const Metric mean = metrics::MeanIoU(4, {.ignore_class = 255});
  mean.update_state(Tensor::from<int32_t>({0, 255, 1}, {3}), Tensor::from<int32_t>({0, 2, 1}, {3}));
  EXPECT_TRUE(near(mean.result(), {1}));
}

TEST(Metrics, StatesAreShownAsKerasHasThem) {
  const Metric mean = metrics::Mean();
  EXPECT_TRUE(mean.base()->keras_state().empty());
  mean.update_state(Tensor::from<float>({1, 3, 5}, {3}));
  const auto means = mean.base()->keras_state();
  ASSERT_EQ(means.size(), 2U);
  EXPECT_EQ(means[0].first, "total");
  EXPECT_TRUE(near(means[0].second, {9}));
  EXPECT_TRUE(near(means[1].second, {3}));
  const Metric area = metrics::AUC({.num_thresholds = 2, .thresholds = {0.5}});
  EXPECT_EQ(area.base()->config().at("num_thresholds").as_int(), 3);
  area.update_state(Tensor::from<float>({0, 1, 1}, {3}), Tensor::from<float>({0.2, 0.4, 0.9}, {3}));
  const auto counts = area.base()->keras_state();
  ASSERT_EQ(counts.size(), 4U);
  EXPECT_TRUE(near(counts[0].second, {2, 1, 0})) << counts[0].first;
  EXPECT_TRUE(near(counts[1].second, {0, 1, 1})) << counts[1].first;
  EXPECT_TRUE(near(counts[2].second, {1, 0, 0})) << counts[2].first;
  EXPECT_TRUE(near(counts[3].second, {0, 1, 2})) << counts[3].first;
  const Metric at = metrics::PrecisionAtRecall(0.5);
  at.update_state(ones({2}), ones({2}));
  EXPECT_EQ(at.base()->keras_state()[0].second.shape(), (Shape{200}));
}

TEST(Metrics, PredictionsThatAreSortedClassNumbers) {
  const Metric metric = metrics::SparseTopKCategoricalAccuracy({.k = 2, .from_sorted_ids = true});
  metric.update_state(Tensor::from<int32_t>({2, 1}, {2}), Tensor::from<int32_t>({1, 2, 0, 0, 2, 1}, {2, 3}));
  EXPECT_TRUE(near(metric.result(), {0.5}));
}

TEST(Metrics, WhatALossIgnoresIsLeftOutOfWeights) {
  const Tensor labels = Tensor::from<int32_t>({0, 1, 2}, {3});
  const Tensor scores = Tensor::from<float>({0.8, 0.1, 0.1, 0.05, 0.95, 0, 0.1, 0.8, 0.1}, {3, 3});
  const Metric metric = metrics::SparseCategoricalCrossentropy({.ignore_class = 0});
  metric.update_state(labels, scores);
  EXPECT_TRUE(near(metric.result(), {(0.0512933 + 2.3025851) / 3}));
  metric.reset_state();
  metric.update_state(labels, scores, Tensor::from<float>({0.5, 1.5, 2}, {3}));
  EXPECT_TRUE(near(metric.result(), {(1.5 * 0.0512933 + 2 * 2.3025851) / 3.5}));
}

TEST(Metrics, PredictionsAtTheEndsOfTheThresholds) {
  const Metric area = metrics::AUC({.num_thresholds = 3});
  area.update_state(Tensor::from<float>({0, 1, 0, 1}, {4}), Tensor::from<float>({0, 1, 0, 1}, {4}));
  EXPECT_TRUE(near(area.result(), {1}));
  EXPECT_THROW(metrics::AUC({.curve = "RC"}), Error);
  EXPECT_THROW(metrics::Precision({.thresholds = {1.5}}), Error);
}

// --- compiled ----------------------------------------------------------------------------------------------

TEST(CompiledMetrics, AreUpdatedByTheStep) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const auto [y, p] = examples(c.kind);
    for (const int devices : {0, 4}) {
      const Metric metric = Metric::deserialize(Json::parse(c.json));
      FunctionOptions options;
      if (devices > 0) options.replicas.devices = one_thread_devices(devices);
      auto step = function(
          [&](const Tensor& labels, const Tensor& predictions, const Tensor& w) {
            metric.update_state(labels, predictions, w);
            return predictions;
          },
          options);
      // Replicas of 5 and of 1 examples are uneven, and some are empty.
      for (const auto& [begin, end] : {std::pair{0, 5}, std::pair{5, 6}})
        step(rows(y, begin, end), rows(p, begin, end), rows(example_weights(), begin, end));
      EXPECT_TRUE(near(metric.result(), c.weighted, 1e-5)) << devices << " devices";
      const int traces = step.traces();
      metric.reset_state();
      step(rows(y, 0, 5), rows(p, 0, 5), rows(example_weights(), 0, 5));
      EXPECT_EQ(step.traces(), traces);
    }
  }
}

TEST(CompiledMetrics, WithoutWeightsCountTheGlobalBatch) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const auto [y, p] = examples(c.kind);
    const Metric metric = Metric::deserialize(Json::parse(c.json));
    auto step = function(
        [&](const Tensor& labels, const Tensor& predictions) {
          metric.update_state(labels, predictions);
          return predictions;
        },
        {.replicas = {.devices = one_thread_devices(4)}});
    step(y, p);
    EXPECT_TRUE(near(metric.result(), c.plain, 1e-5));
  }
}

TEST(CompiledMetrics, TheMeanOfAScalarWeighsReplicasByTheirSlices) {
  const Metric mean = metrics::Mean();
  auto step = function(
      [&](const Tensor& x) {
        mean.update_state(reduce_mean(x));
        return x;
      },
      {.replicas = {.devices = one_thread_devices(2)}});
  step(Tensor::from<float>({1, 2, 6}, {3}));  // 1, 2 and 6
  EXPECT_TRUE(near(mean.result(), {3}));
}

// What a step pays for the most common metric.
TEST(CompiledMetrics, SparseCategoricalAccuracyTakesFewLaunches) {
  const Metric metric("accuracy");
  auto step = function([&](const Tensor& y, const Tensor& p) { metric.update_state(y, p); });
  const Tensor y = zeros({128}, DType::int32), p = zeros({128, 10});
  EXPECT_LE(step.statistics(y, p).launches, 4) << step.explain(y, p);
}

}  // namespace
}  // namespace lockstep::keras
