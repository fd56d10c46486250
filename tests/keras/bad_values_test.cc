// Numbers that can never be right are refused where they are given, by programs and files alike: the error
// names the option, the value, what it may be, and the user's line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "base/error_of_test.h"
#include "keras/layer_cases.h"
#include "lockstep/lockstep.h"

namespace lockstep::keras::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

namespace kl = layers;
namespace ko = optimizers;
namespace ks = optimizers::schedules;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct BadValue {
  std::string text;
  uint32_t line;
  std::function<void()> call;
  std::string rule;  // of the message
};
std::ostream& operator<<(std::ostream& out, const BadValue& value) { return out << value.text; }

#define BAD(rule, ...)                                        \
  {                                                           \
#__VA_ARGS__, __LINE__, [] { (void)(__VA_ARGS__); }, rule \
  }

data::Dataset numbers() { return data::Dataset::range(4); }
Tensor rows() { return Tensor::full(DType::float32, {4, 1}, 1); }
Sequential line_model() {
  Sequential model({layers::Dense(1, {.input_shape = {1}})});
  model.compile({.loss = "mse"});
  return model;
}

// clang-format off
const std::vector<BadValue>& bad_values() {
  static const std::vector<BadValue> values = {
    // --- optimizers
    BAD("Adam: learning_rate must be at least 0, received -1", ko::Adam(-1)),
    BAD("Adam: learning_rate must be at least 0, received nan", ko::Adam(kNaN)),
    BAD("SGD: learning_rate must be at least 0, received inf", ko::SGD(kInfinity)),
    BAD("Adam: beta_1 must be at least 0 and below 1, received 2", ko::Adam({.beta_1 = 2})),
    BAD("Adam: beta_2 must be at least 0 and below 1, received 1", ko::Adam({.beta_2 = 1})),
    BAD("Adam: epsilon must be at least 0, received -1", ko::Adam({.epsilon = -1})),
    BAD("Adam: weight_decay must be at least 0, received -1", ko::Adam({.weight_decay = -1})),
    BAD("Adam: clipnorm must be positive, received 0", ko::Adam({.clipnorm = 0})),
    BAD("Adam: clipvalue must be positive, received -1", ko::Adam({.clipvalue = -1})),
    BAD("Adam: global_clipnorm must be positive, received 0", ko::Adam({.global_clipnorm = 0})),
    BAD("Adam: ema_momentum must be from 0 to 1, received 2", ko::Adam({.use_ema = true, .ema_momentum = 2})),
    BAD("Adam: ema_overwrite_frequency must be positive, received 0", ko::Adam({.ema_overwrite_frequency = 0})),
    BAD("Adam: loss_scale_factor must be positive, received 0", ko::Adam({.loss_scale_factor = 0})),
    BAD("Adam: gradient_accumulation_steps must be at least 2, received 1", ko::Adam({.gradient_accumulation_steps = 1})),
    BAD("AdamW: weight_decay must be at least 0, received -1", ko::AdamW({.weight_decay = -1})),
    BAD("AdamW: beta_1 must be at least 0 and below 1, received -1", ko::AdamW({.beta_1 = -1})),
    BAD("Adamax: beta_1 must be at least 0 and below 1, received 1", ko::Adamax({.beta_1 = 1})),
    BAD("Nadam: beta_2 must be at least 0 and below 1, received 1", ko::Nadam({.beta_2 = 1})),
    BAD("SGD: momentum must be from 0 to 1, received 1.5", ko::SGD({.momentum = 1.5})),
    BAD("RMSprop: rho must be at least 0 and below 1, received 1", ko::RMSprop({.rho = 1})),
    BAD("RMSprop: momentum must be from 0 to 1, received -1", ko::RMSprop({.momentum = -1})),
    BAD("Adagrad: initial_accumulator_value must be at least 0, received -1", ko::Adagrad({.initial_accumulator_value = -1})),
    BAD("Adadelta: rho must be at least 0 and below 1, received 2", ko::Adadelta({.rho = 2})),
    BAD("Lion: beta_1 must be above 0 and at most 1, received 0", ko::Lion({.beta_1 = 0})),
    BAD("Lamb: beta_1 must be at least 0 and below 1, received 1", ko::Lamb({.beta_1 = 1})),
    BAD("Ftrl: learning_rate_power must be at most 0, received 1", ko::Ftrl({.learning_rate_power = 1})),
    BAD("Ftrl: beta must be at least 0, received -1", ko::Ftrl({.beta = -1})),
    BAD("Adafactor: beta_2_decay must be at most 0, received 1", ko::Adafactor({.beta_2_decay = 1})),
    BAD("Adafactor: clip_threshold must be positive, received 0", ko::Adafactor({.clip_threshold = 0})),
    BAD("Muon: momentum must be from 0 to 1, received 2", ko::Muon({.momentum = 2})),
    BAD("Muon: ns_steps must be at least 0, received -1", ko::Muon({.ns_steps = -1})),
    BAD("ScheduleFreeAdamW: beta_1 must be above 0 and below 1, received 1", ko::ScheduleFreeAdamW({.beta_1 = 1})),
    BAD("LossScaleOptimizer: initial_scale must be positive, received 0", ko::LossScaleOptimizer(ko::SGD(), {.initial_scale = 0})),
    BAD("LossScaleOptimizer: dynamic_growth_steps must be positive, received 0", ko::LossScaleOptimizer(ko::SGD(), {.dynamic_growth_steps = 0})),
    BAD("learning_rate must be at least 0, received -1", ko::SGD().set_learning_rate(-1)),

    // --- schedules
    BAD("ExponentialDecay: decay_steps must be positive, received 0", ks::ExponentialDecay(0.1, 0, 0.5)),
    BAD("ExponentialDecay: decay_rate must be at least 0, received -1", ks::ExponentialDecay(0.1, 10, -1)),
    BAD("ExponentialDecay: initial_learning_rate must be at least 0, received -1", ks::ExponentialDecay(-1, 10, 0.5)),
    BAD("InverseTimeDecay: decay_steps must be positive, received -1", ks::InverseTimeDecay(0.1, -1, 0.5)),
    BAD("PolynomialDecay: decay_steps must be positive, received 0", ks::PolynomialDecay(0.1, 0)),
    BAD("PolynomialDecay: power must be at least 0, received -1", ks::PolynomialDecay(0.1, 10, {.power = -1})),
    BAD("PiecewiseConstantDecay: values must be at least 0, received -1", ks::PiecewiseConstantDecay({1}, {0.1, -1})),
    BAD("CosineDecay: decay_steps must be positive, received 0", ks::CosineDecay(0.1, 0)),
    BAD("CosineDecay: alpha must be at least 0, received -1", ks::CosineDecay(0.1, 10, {.alpha = -1})),
    BAD("CosineDecay: warmup_steps must be at least 0, received -1", ks::CosineDecay(0.1, 10, {.warmup_steps = -1})),
    BAD("CosineDecayRestarts: first_decay_steps must be positive, received 0", ks::CosineDecayRestarts(0.1, 0)),
    BAD("CosineDecayRestarts: t_mul must be at least 1, received 0.5", ks::CosineDecayRestarts(0.1, 10, {.t_mul = 0.5})),

    // --- initializers, regularizers, constraints
    BAD("RandomNormal: stddev must be at least 0, received -1", initializers::RandomNormal({.stddev = -1})),
    BAD("RandomNormal: mean must be a finite number, received nan", initializers::RandomNormal({.mean = kNaN})),
    BAD("TruncatedNormal: stddev must be at least 0, received -1", initializers::TruncatedNormal({.stddev = -1})),
    BAD("RandomUniform: minval must not be above maxval, received 2 and 1", initializers::RandomUniform({.minval = 2, .maxval = 1})),
    BAD("VarianceScaling: scale must be positive, received 0", initializers::VarianceScaling({.scale = 0})),
    BAD("Orthogonal: gain must be a finite number, received nan", initializers::Orthogonal({.gain = kNaN})),
    BAD("L1: l1 must be at least 0, received -1", regularizers::L1(-1)),
    BAD("L2: l2 must be at least 0, received nan", regularizers::L2(kNaN)),
    BAD("L1L2: l2 must be at least 0, received -1", regularizers::L1L2({.l2 = -1})),
    BAD("OrthogonalRegularizer: factor must be at least 0, received -1", regularizers::OrthogonalRegularizer({.factor = -1})),
    BAD("MaxNorm: max_value must be at least 0, received -1", constraints::MaxNorm({.max_value = -1})),
    BAD("MinMaxNorm: rate must be from 0 to 1, received 2", constraints::MinMaxNorm({.rate = 2})),
    BAD("MinMaxNorm: min_value must not be above max_value, received 2 and 1", constraints::MinMaxNorm({.min_value = 2, .max_value = 1})),

    // --- losses and metrics
    BAD("Huber: delta must be positive, received 0", losses::Huber({.delta = 0})),
    BAD("Huber: delta must be positive, received -1", losses::huber(zeros({2, 3}), zeros({2, 3}), -1)),
    BAD("BinaryCrossentropy: label_smoothing must be from 0 to 1, received 2", losses::BinaryCrossentropy({.label_smoothing = 2})),
    BAD("BinaryCrossentropy: label_smoothing must be from 0 to 1, received 2", losses::binary_crossentropy(zeros({2, 3}), zeros({2, 3}), {.label_smoothing = 2})),
    BAD("CategoricalCrossentropy: label_smoothing must be from 0 to 1, received -1", losses::CategoricalCrossentropy({.label_smoothing = -1})),
    BAD("BinaryFocalCrossentropy: gamma must be at least 0, received -1", losses::BinaryFocalCrossentropy({.gamma = -1})),
    BAD("BinaryFocalCrossentropy: alpha must be from 0 to 1, received 2", losses::BinaryFocalCrossentropy({.alpha = 2})),
    BAD("CategoricalFocalCrossentropy: alpha must be at least 0, received -1", losses::CategoricalFocalCrossentropy({.alpha = {0.5, -1}})),
    BAD("CategoricalGeneralizedCrossEntropy: q must be above 0 and below 1, received 1", losses::CategoricalGeneralizedCrossEntropy({.q = 1})),
    BAD("Tversky: alpha must be at least 0, received -1", losses::Tversky({.alpha = -1})),
    BAD("Circle: gamma must be at least 0, received -1", losses::Circle({.gamma = -1})),
    BAD("TopKCategoricalAccuracy: k must be positive, received 0", metrics::TopKCategoricalAccuracy({.k = 0})),
    BAD("SparseTopKCategoricalAccuracy: k must be positive, received -1", metrics::SparseTopKCategoricalAccuracy({.k = -1})),
    BAD("BinaryAccuracy: threshold must be a finite number, received nan", metrics::BinaryAccuracy({.threshold = kNaN})),
    BAD("ConfusionMatrix: num_classes must be positive, received 0", metrics::ConfusionMatrix(0)),
    BAD("MeanIoU: num_classes must be positive, received 0", metrics::MeanIoU(0)),
    BAD("Precision: thresholds must be from 0 to 1, received 2", metrics::Precision({.thresholds = {2}})),
    BAD("Precision: top_k must be positive, received 0", metrics::Precision({.top_k = 0})),
    BAD("Recall: class_id must be at least 0, received -1", metrics::Recall({.class_id = -1})),
    BAD("AUC: num_thresholds must be at least 2, received 1", metrics::AUC({.num_thresholds = 1})),
    BAD("FBetaScore: beta must be positive, received 0", metrics::FBetaScore({.beta = 0})),
    BAD("F1Score: threshold must be above 0 and at most 1, received 0", metrics::F1Score({.threshold = 0})),
    BAD("SensitivityAtSpecificity: specificity must be from 0 to 1, received 2", metrics::SensitivityAtSpecificity(2)),
    BAD("R2Score: num_regressors must be at least 0, received -1", metrics::R2Score({.num_regressors = -1})),
    BAD("in_top_k: k must be positive, received 0", in_top_k(zeros({2}, int32), zeros({2, 3}), 0)),

    // --- labels: in the words of who gives them
    BAD("labels: the label at position (1,) is 9, but there are 3 classes: labels run from 0 to 2", losses::SparseCategoricalCrossentropy()(constant({0, 9}), ones({2, 3}))),
    BAD("the label at position (1,) is 9, but there are 3 classes: labels run from 0 to 2", losses::SparseCategoricalCrossentropy({.from_logits = true})(constant({0, 9}), ones({2, 3}))),
    BAD("the label at position (0,) is no whole number, but there are 3 classes", losses::SparseCategoricalCrossentropy()(constant({0.5, 1.0}), ones({2, 3}))),
    BAD("the label at position (1,) is 9, but there are 3 classes", losses::sparse_categorical_crossentropy(constant({0, 9}), ones({2, 3}))),
    BAD("the label at position (1,) is 9, but there are 3 classes", losses::CategoricalGeneralizedCrossEntropy()(constant({0, 9}), ones({2, 3}))),
    BAD("the label at position (1,) is 9, but there are 3 classes", metrics::SparseTopKCategoricalAccuracy().update_state(constant({0, 9}), ones({2, 3}))),
    BAD("CTC takes labels (examples, length)", losses::ctc(zeros({2}, int32), ones({2, 3}))),
    BAD("CTC takes labels (examples, length)", losses::CTC()(zeros({2}, int32), ones({2, 3}))),

    // --- layers
    BAD("Dense: units must be positive, received 0", kl::Dense(0)),
    BAD("Embedding: output_dim must be positive, received -1", kl::Embedding(3, -1)),
    BAD("ReversibleEmbedding: logit_soft_cap must be positive, received 0", kl::ReversibleEmbedding(3, 2, {.logit_soft_cap = 0})),
    BAD("Dropout: rate must be from 0 to 1, received 1.5", kl::Dropout(1.5)),
    BAD("GaussianNoise: stddev must be from 0 to 1, received -1", kl::GaussianNoise(-1)),
    BAD("GaussianDropout: rate must be at least 0 and below 1, received 1", kl::GaussianDropout(1)),
    BAD("Conv2D: filters must be positive, received 0", kl::Conv2D(0, 3)),
    BAD("Conv2D: groups must be positive, received 0", kl::Conv2D(4, 3, {.groups = 0})),
    BAD("Conv2D: strides must be positive, received", kl::Conv2D(4, 3, {.strides = 0})),
    BAD("Conv2D: dilation_rate must be positive, received", kl::Conv2D(4, 3, {.dilation_rate = -1})),
    BAD("Conv2DTranspose: output_padding must be at least 0, received -1", kl::Conv2DTranspose(4, 3, {.output_padding = -1})),
    BAD("DepthwiseConv2D: depth_multiplier must be positive, received 0", kl::DepthwiseConv2D(3, {.depth_multiplier = 0})),
    BAD("ConvLSTM2D: filters must be positive, received 0", kl::ConvLSTM2D(0, 3)),
    BAD("ConvLSTM2D: dropout must be at least 0 and below 1, received 1", kl::ConvLSTM2D(2, 3, {.dropout = 1})),
    BAD("LSTM: units must be positive, received 0", kl::LSTM(0)),
    BAD("GRU: recurrent_dropout must be at least 0 and below 1, received 2", kl::GRU(3, {.recurrent_dropout = 2})),
    BAD("LSTMCell: units must be positive, received -1", kl::LSTMCell(-1)),
    BAD("BatchNormalization: momentum must be from 0 to 1, received 2", kl::BatchNormalization({.momentum = 2})),
    BAD("BatchNormalization: epsilon must be at least 0, received -1", kl::BatchNormalization({.epsilon = -1})),
    BAD("LayerNormalization: epsilon must be at least 0, received nan", kl::LayerNormalization({.epsilon = kNaN})),
    BAD("RMSNormalization: epsilon must be at least 0, received -1", kl::RMSNormalization({.epsilon = -1})),
    BAD("GroupNormalization: groups must be positive, or -1", kl::GroupNormalization({.groups = 0})),
    BAD("SpectralNormalization: power_iterations must be positive, received 0", kl::SpectralNormalization(kl::Dense(2), {.power_iterations = 0})),
    BAD("ReLU: threshold must be at least 0, received -1", kl::ReLU({.threshold = -1})),
    BAD("ELU: alpha must be a finite number, received nan", kl::ELU({.alpha = kNaN})),
    BAD("MultiHeadAttention: num_heads must be positive, received 0", kl::MultiHeadAttention(0, 4)),
    BAD("MultiHeadAttention: dropout must be at least 0 and below 1, received 1", kl::MultiHeadAttention(2, 4, {.dropout = 1})),
    BAD("GroupQueryAttention: num_key_value_heads must be positive, received 0", kl::GroupQueryAttention(4, 2, 0)),
    BAD("Attention: dropout must be at least 0 and below 1, received -1", kl::Attention({.dropout = -1})),
    BAD("l1 must be at least 0, received -1", kl::ActivityRegularization({.l1 = -1})),
    BAD("Rescaling: scale must be a finite number, received nan", kl::Rescaling(kNaN)),
    BAD("Normalization: variance must be at least 0, received -1", kl::Normalization({.mean = 0, .variance = -1})),
    BAD("Discretization: num_bins must be at least 0, received -1", kl::Discretization({.num_bins = -1})),
    BAD("CategoryEncoding: num_tokens must be positive, received 0", kl::CategoryEncoding(0)),
    BAD("Resizing: width must be positive, received 0", kl::Resizing(3, 0)),
    BAD("RandomCrop: height must be positive, received 0", kl::RandomCrop(0, 3)),
    BAD("ConvLSTM2D takes", kl::ConvLSTM2D(2, 3)(zeros({2, 3}))),
    BAD("reset_states: this names no layer", kl::reset_states(Layer())),
    BAD("StringLookup: there is no vocabulary yet", kl::StringLookup()(std::vector<std::string>{"a"})),
    BAD("IntegerLookup: there is no vocabulary yet", kl::IntegerLookup()(zeros({2}, int64))),
    BAD("get_vocabulary: this names no IntegerLookup", kl::get_vocabulary(kl::Dense(2))),
    BAD("StringLookup: sparse must be false", kl::StringLookup::deserialize(Json::parse(R"({"class_name": "StringLookup", "config": {"sparse": true}})"))),
    BAD("TextVectorization: ragged must be false", kl::TextVectorization::deserialize(Json::parse(R"({"class_name": "TextVectorization", "config": {"ragged": true}})"))),
    BAD("Hashing: sparse must be false", kl::Hashing::deserialize(Json::parse(R"({"class_name": "Hashing", "config": {"num_bins": 3, "sparse": true}})"))),
    BAD("IntegerLookup: sparse must be false", Layer::deserialize(Json::parse(R"({"class_name": "IntegerLookup", "config": {"sparse": true}})"))),
    BAD("IntegerLookup: oov_method must be \"floormod\", without a salt", Layer::deserialize(Json::parse(R"({"class_name": "IntegerLookup", "config": {"num_oov_indices": 2, "oov_method": "farmhash", "salt": 7}})"))),
    BAD("salt is a whole number or a list of two", kl::StringLookup::deserialize(Json::parse(R"({"class_name": "StringLookup", "config": {"salt": [1, 2, 3]}})"))),
    BAD("encoding must be \"utf-8\"", kl::TextVectorization::deserialize(Json::parse(R"({"class_name": "TextVectorization", "config": {"encoding": "latin-1"}})"))),
    BAD("RepeatVector: n must be positive, received 0", kl::RepeatVector(0)),
    BAD("PositionEmbedding: sequence_length must be positive, received 0", kl::PositionEmbedding(0)),
    BAD("StringLookup: max_tokens must be at least 2, received 1", kl::StringLookup({.max_tokens = 1})),
    BAD("StringLookup: num_oov_indices must be from 0 to", kl::StringLookup({.num_oov_indices = -1})),
    BAD("IntegerLookup: max_tokens must be at least 2, received 0", kl::IntegerLookup({.max_tokens = 0})),
    BAD("TextVectorization: output_sequence_length must be positive, received 0", kl::TextVectorization({.output_sequence_length = 0})),
    BAD("TextVectorization: ngrams must be positive, received 0", kl::TextVectorization({.ngrams = {1, 0}})),
    BAD("Hashing: num_bins must be positive, received 0", kl::Hashing(0)),
    BAD("HashedCrossing: num_bins must be positive, received -1", kl::HashedCrossing(-1)),
    BAD("FeatureSpace: hashing_dim must be positive, received 0", utils::FeatureSpace({{"a", "float"}}, {.hashing_dim = 0})),
    BAD("float_discretized: num_bins must be positive, received 0", utils::FeatureSpace::float_discretized(0)),
    BAD("Add takes a list of inputs", kl::Add()(zeros({2, 3}))),
    BAD("Multiply takes a list of inputs", kl::Multiply()(Input({3}))),
    BAD("Concatenate takes a list of inputs", kl::Concatenate()(zeros({2, 3}))),
    BAD("Subtract takes 2 inputs, received 1", kl::Subtract()(TensorList{zeros({2, 3})})),
    BAD("Dot takes 2 inputs, received 1", kl::Dot(1)(TensorList{zeros({2, 3})})),

    // --- callbacks
    BAD("EarlyStopping: patience must be at least 0, received -1", callbacks::EarlyStopping({.patience = -1})),
    BAD("EarlyStopping: min_delta must be a finite number, received nan", callbacks::EarlyStopping({.min_delta = kNaN})),
    BAD("EarlyStopping: start_from_epoch must be at least 0, received -1", callbacks::EarlyStopping({.start_from_epoch = -1})),
    BAD("ReduceLROnPlateau: factor must be above 0 and below 1, received 1", callbacks::ReduceLROnPlateau({.factor = 1})),
    BAD("ReduceLROnPlateau: factor must be above 0 and below 1, received -0.5", callbacks::ReduceLROnPlateau({.factor = -0.5})),
    BAD("ReduceLROnPlateau: cooldown must be at least 0, received -1", callbacks::ReduceLROnPlateau({.cooldown = -1})),
    BAD("ReduceLROnPlateau: min_lr must be at least 0, received -1", callbacks::ReduceLROnPlateau({.min_lr = -1})),
    BAD("ModelCheckpoint: save_freq must be at least 0, received -1", callbacks::ModelCheckpoint("x", {.save_freq = -1})),
    BAD("BackupAndRestore: save_freq must be at least 0, received -1", callbacks::BackupAndRestore("x", {.save_freq = -1})),
    BAD("TensorBoard: histogram_freq must be at least 0, received -1", callbacks::TensorBoard("x", {.histogram_freq = -1})),
    BAD("TensorBoard: update_freq must be at least 0, received -1", callbacks::TensorBoard("x", {.update_freq = -1})),

    // --- training
    BAD("fit: batch_size must be positive, received 0", line_model().fit(rows(), rows(), {.batch_size = 0})),
    BAD("fit: epochs and initial_epoch must not be negative, received -1", line_model().fit(rows(), rows(), {.epochs = -1})),
    BAD("fit: validation_split must be in [0, 1), received 1", line_model().fit(rows(), rows(), {.validation_split = 1})),
    BAD("fit: validation_freq must be at least 1, received 0", line_model().fit(rows(), rows(), {.validation_freq = 0})),
    BAD("fit: validation_batch_size must be positive, or -1 for batch_size, received 0", line_model().fit(rows(), rows(), {.validation_batch_size = 0})),
    BAD("fit: steps_per_epoch must be positive, or -1 for all batches, received 0", line_model().fit(rows(), rows(), {.steps_per_epoch = 0})),
    BAD("validation_steps must be positive, or -1 for all batches, received -2", line_model().fit(rows(), rows(), {.validation_data = {rows(), rows()}, .validation_steps = -2})),
    BAD("fit: class_weight has finite numbers by class numbers from 0 on, received nan for class 1", line_model().fit(rows(), rows(), {.class_weight = {{1, kNaN}}})),
    BAD("received 1 for class -1", line_model().fit(rows(), rows(), {.class_weight = {{-1, 1}}})),
    BAD("evaluate: steps must be positive, or -1 for all batches, received 0", line_model().evaluate(rows(), rows(), {.steps = 0})),
    BAD("evaluate: batch_size must be positive, received -1", line_model().evaluate(rows(), rows(), {.batch_size = -1})),
    BAD("predict: steps must be positive, or -1 for all batches, received 0", line_model().predict(rows(), {.steps = 0})),
    BAD("Sequential: Add takes a list of inputs", Sequential({layers::Add()})),
    BAD("Sequential: Concatenate takes a list of inputs", Sequential({layers::Dense(2, {.input_shape = {2}}), layers::Concatenate()})),

    // --- stages of datasets
    BAD("take: count must be at least 0, or -1 for all elements, received -2", numbers().take(-2)),
    BAD("skip: count must be at least 0, or -1 for all elements, received -2", numbers().skip(-2)),
    BAD("repeat: count must be at least 0, or -1 for ever, received -2", numbers().repeat(-2)),
    BAD("received 0", numbers().shuffle(0)),
    BAD("batch_size must be positive, received 0", numbers().batch(0)),
    BAD("batch_size must be positive, received -1", numbers().padded_batch(-1)),
    BAD("batch_size must be positive, received 0", numbers().rebatch(0)),
    BAD("received -5", numbers().prefetch(-5)),
    BAD("num_parallel_calls must be positive or AUTOTUNE, received 0", numbers().map([](const Tensor& x) { return x; }, {.num_parallel_calls = 0})),
    BAD("received 0", numbers().window(0, [](const data::Dataset& w) { return w; })),
    BAD("received count 0", numbers().shard(0, 0)),
    BAD("step must not be 0", data::Dataset::range(0, 4, 0)),
  };
  return values;
}
// clang-format on

class BadValues : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValues, AreRefusedWithOptionValueAndRange) {
  const Error error = error_of(GetParam().call);
  EXPECT_THAT(error.what(), HasSubstr(GetParam().rule));
  EXPECT_THAT(std::string(error.where().file_name()), EndsWith("bad_values_test.cc")) << error.what();
  EXPECT_EQ(error.where().line(), GetParam().line) << error.what();
}

INSTANTIATE_TEST_SUITE_P(All, BadValues, ::testing::ValuesIn(bad_values()),
                         [](const auto& info) { return std::to_string(info.index); });

// --- files -------------------------------------------------------------------------------------------------

// Numbers that may be anything: seeds, and values that are looked for or filled in.
const std::set<std::string>& free_settings() {
  static const std::set<std::string> names = {"seed",        "value",          "mask_value", "oov_token",
                                              "vocabulary",  "bin_boundaries", "mask_token", "batch_shape",
                                              "input_shape", "noise_shape",    "margin",     "cells"};
  return names;
}

bool holds_numbers(const Json& value) {
  return value.is_number() || (value.is_list() && !value.items().empty() && value.at(size_t{0}).is_number());
}

// No number of a configuration may be NaN, and the message says which one was.
void expect_nan_refused(const Json& json, const std::function<void(const Json&)>& make) {
  for (const auto& [key, given] : json.at("config").members()) {
    if (!holds_numbers(given) || free_settings().contains(key)) continue;
    Json changed = json;
    changed["config"].set(key, given.is_list() ? Json(Json::List{Json(kNaN)}) : Json(kNaN));
    SCOPED_TRACE(json.at("class_name").as_string() + ": " + key);
    try {
      make(changed);
      ADD_FAILURE() << "NaN was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(key));
      EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    }
  }
}

TEST(NaNInFiles, IsRefusedByEveryLayer) {
  std::set<std::string> seen;
  for (const LayerCase& c : layer_cases()) {
    const Json json = c.make().serialize();
    if (!seen.insert(json.at("class_name").as_string()).second) continue;
    expect_nan_refused(json, [](const Json& changed) { Layer::deserialize(changed); });
  }
  EXPECT_GT(seen.size(), 80U);
}

TEST(NaNInFiles, IsRefusedByEverythingElse) {
  const Json all = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/configurations.json");
  const auto read = [&](const char* kind, const std::function<void(const Json&)>& deserialize) {
    for (const auto& [name, json] : all.at(kind).members()) {
      try {
        deserialize(json);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
        continue;  // one that is left out: docs/keras.md
      }
      expect_nan_refused(json, deserialize);
    }
  };
  const auto here = std::source_location::current();
  read("losses", [&](const Json& json) { Loss::deserialize(json, here); });
  read("metrics", [&](const Json& json) { Metric::deserialize(json, here); });
  read("optimizers", [&](const Json& json) { ko::Optimizer::deserialize(json, here); });
  read("schedules", [&](const Json& json) { ko::LearningRateSchedule::deserialize(json, here); });
  read("initializers", [&](const Json& json) { Initializer::deserialize(json, here); });
  read("regularizers", [&](const Json& json) { Regularizer::deserialize(json, here); });
  read("constraints", [&](const Json& json) { Constraint::deserialize(json, here); });
}

TEST(BadValuesInFiles, NameTheSettingAndTheLineOfTheReader) {
  const auto adam = [](double rate) {
    return Json::object({{"class_name", "Adam"}, {"config", Json::object({{"learning_rate", rate}})}});
  };
  const uint32_t line = __LINE__ + 1;
  const Error error = error_of([&] { (void)ko::Optimizer::deserialize(adam(-1)); });
  EXPECT_THAT(error.what(), HasSubstr("Adam: learning_rate must be at least 0, received -1"));
  EXPECT_THAT(error.what(), HasSubstr("in the configuration of optimizer \"Adam\""));
  EXPECT_EQ(error.where().line(), line) << error.what();
}

}  // namespace
}  // namespace lockstep::keras::testing
