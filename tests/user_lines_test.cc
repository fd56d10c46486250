// Whatever people call wrongly, the error names a line of their own program: that of the call, or, where the
// work happens later, that which made the layer, the stage or the step. No message shows a line of the
// library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <regex>

#include "base/error_of_test.h"
#include "devices.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

namespace k = keras;
namespace kl = keras::layers;

struct BadCall {
  std::string text;
  uint32_t line;
  std::function<void()> call;
};
std::ostream& operator<<(std::ostream& out, const BadCall& call) { return out << call.text; }

#define BAD(...)                                        \
  {                                                     \
#__VA_ARGS__, __LINE__, [] { (void)(__VA_ARGS__); } \
  }

Tensor rows() { return zeros({2, 3}); }
Tensor whole() { return zeros({2, 3}, int32); }
Tensor none() { return {}; }
data::Dataset numbers() { return data::Dataset::range(4); }
k::Sequential built() { return k::Sequential({kl::Dense(1, {.input_shape = {3}})}); }
k::Model compiled() {
  k::Model model = built();
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return model;
}
distribute::MirroredStrategy two_replicas() {
  first_devices(2);
  return distribute::MirroredStrategy({"/cpu:0", "/cpu:1"}, {.report = false});
}

// clang-format off
const std::vector<BadCall>& bad_calls() {
  static const std::vector<BadCall> calls = {
    // --- tensors and ops
    BAD(none().shape()),
    BAD(none().dtype()),
    BAD(none().rank()),
    BAD(none().size()),
    BAD(none().device()),
    BAD(none().item<float>()),
    BAD(none().to_vector<float>()),
    BAD(none().numpy()),
    BAD(none()[0]),
    BAD(rows()[2]),
    BAD(rows()[-3]),
    BAD(zeros({})[0]),
    BAD(rows().numpy<double>()),
    BAD(rows().shape()[2]),
    BAD(Shape({1, 2, 3, 4, 5, 6, 7, 8, 9})),
    BAD(Shape({1, 2, 3, 4, 5, 6, 7, 8}).push_back(9)),
    BAD(Dims::filled(9, 1)),
    BAD(constant({{1.0, 2.0}, {3.0}})),
    BAD(constant(0.5, int32)),
    BAD(constant(300, uint8)),
    BAD(constant({1, 2, 3}, {}, Shape{2, 2})),
    BAD(constant(none())),
    BAD(convert_to_tensor(rows(), float64)),
    BAD(convert_to_tensor(none())),
    BAD(shape(none())),
    BAD(rows() == zeros({4})),
    BAD(rows() != whole()),
    BAD(stack({rows(), zeros({3})})),
    BAD(stack({rows(), none()})),
    BAD(stack(TensorList{})),
    BAD(concat({rows(), zeros({3, 4})}, 0)),
    BAD(concat({rows(), rows()}, 5)),
    BAD(reduce_mean(rows(), 2)),
    BAD(reduce_sum(rows(), {0, 7})),
    BAD(reduce_sum(none(), 0)),
    BAD(argmax(rows(), 3)),
    BAD(cumsum(rows(), {.axis = 4})),
    BAD(norm(rows(), {.ord = -1})),
    BAD(matmul(rows(), rows())),
    BAD(einsum("ij,jk->ik", {rows(), rows()})),
    BAD(einsum("ij", {rows(), rows()})),
    BAD(tensordot(rows(), rows(), 1)),
    BAD(split(none(), 2, 0)),
    BAD(unstack(none())),
    BAD(tile(rows(), {2})),
    BAD(pad(rows(), {1}, {1})),
    BAD(repeat(rows(), -1, 0)),
    BAD(roll(rows(), {1}, {9})),
    BAD(one_hot(rows(), 3)),
    BAD(gather_nd(rows(), whole())),
    BAD(scatter_nd(whole(), rows(), {2})),
    BAD(take_along_axis(rows(), rows(), 0)),
    BAD(linspace(0, 1, -1)),
    BAD(range(0, 10, 0)),
    BAD(eye(-1)),
    BAD(trace(zeros({3}))),
    BAD(sequence_mask(rows(), 3)),
    BAD(top_k(rows(), 9)),
    BAD(searchsorted(rows(), zeros({3}))),
    BAD(nn::conv2d(rows(), rows(), 1, "SAME")),
    BAD(nn::conv2d(zeros({1, 4, 4, 1}), zeros({3, 3, 1, 1}), {2, 1, 1, 2}, "SAME")),
    BAD(nn::conv2d(zeros({1, 4, 4, 1}), zeros({3, 3, 1, 1}), 1, "SOME")),
    BAD(nn::max_pool2d(rows())),
    BAD(nn::softmax(whole())),
    BAD(nn::sparse_softmax_cross_entropy_with_logits(constant({0, 9}), rows())),
    BAD(nn::softmax_cross_entropy_with_logits(rows(), zeros({2, 4}))),
    BAD(nn::batch_normalization(rows(), zeros({4}), zeros({4}))),
    BAD(nn::dropout(rows(), 1.5)),
    BAD(nn::compute_average_loss(zeros({}))),
    BAD(nn::compute_average_loss(rows(), {.global_batch_size = 0})),
    BAD(nn::moments(whole(), {0})),
    BAD(layer_norm(rows(), zeros({2}), zeros({2}))),
    BAD(scaled_dot_product_attention(rows(), rows(), rows())),
    BAD(random::uniform({2}, {.minval = 2, .maxval = 1})),
    BAD(random::categorical(zeros({3}), 1)),
    BAD(image::resize(rows(), {2, 2})),
    BAD(clip_by_global_norm(TensorList{rows()}, -1)),
    BAD(global_norm(TensorList{whole()})),
    BAD(debugging::check_numerics(rows() / 0.0, "mine")),
    BAD(debugging::assert_true(rows() > 0.0, "mine")),

    // --- variables, tapes, functions
    BAD(Variable().shape()),
    BAD(Variable().name()),
    BAD(Variable().value()),
    BAD(Variable().assign(1.0)),
    BAD(Variable() + 1.0),
    BAD(Variable(none())),
    BAD(Variable({1, 2}).assign({1, 2, 3})),
    BAD(Variable({1, 2}).assign(0.5)),
    BAD(Variable({1, 2}) += 0.5),
    BAD(Variable({1.0, 2.0}) += zeros({3})),
    BAD(Variable({1, 2}).numpy()),
    BAD(GradientTape().watch(whole())),
    BAD(GradientTape().gradient(none(), rows())),
    BAD(GradientTape().gradient(rows(), none())),
    BAD(function([](const Tensor& x) { return x; })(none())),
    BAD(function([](const Tensor& x) { return x; }).statistics(none())),
    BAD(function([] { return Tensor::scalar(rows().item<float>()); })()),
    BAD(cond(rows(), [] { return rows(); }, [] { return rows(); })),
    BAD(while_loop([](std::span<const Tensor> v) { return v[0]; }, [](std::span<const Tensor>) { return TensorList{}; }, {rows()})),

    // --- devices
    BAD(device_by_name("cpu:99")),
    BAD(device("/gpu:9")),
    BAD(config::list_physical_devices("TPU")),
    BAD(config::list_logical_devices("TPU")),
    BAD(config::set_visible_devices(config::PhysicalDevice{"/physical_device:GPU:7", "GPU"}, "GPU")),
    BAD(config::experimental::set_memory_growth(config::list_physical_devices("CPU")[0], true)),
    BAD(config::get_memory_info("/gpu:9")),
    BAD(config::threading::set_intra_op_parallelism_threads(-1)),
    BAD(config::require_gpus(99)),

    // --- layers
    BAD(kl::Dense(0)),
    BAD(kl::Dense(-3, {.activation = "relu"})),
    BAD(kl::Dense(3, {.activation = "rellu"})),
    BAD(kl::Dense(3, {.kernel_initializer = "glorot"})),
    BAD(kl::Dense(3, {.kernel_regularizer = "l3"})),
    BAD(kl::Dense(3, {.kernel_constraint = "maximum"})),
    BAD(kl::Dense(3, {.dtype = "float31"})),
    BAD(kl::Dense(3, {.name = "a/b"})),
    BAD(kl::EinsumDense("ab->ab", {3})),
    BAD(kl::Embedding(0, 3)),
    BAD(kl::ReversibleEmbedding(-1, 3)),
    BAD(kl::Dropout(1.5)),
    BAD(kl::AlphaDropout(-1)),
    BAD(kl::GaussianDropout(2)),
    BAD(kl::GaussianNoise(-1)),
    BAD(kl::SpatialDropout2D(2)),
    BAD(kl::RepeatVector(0)),
    BAD(kl::Permute({1, 1})),
    BAD(kl::Reshape({-1, -1})),
    BAD(kl::Conv2D(0, 3)),
    BAD(kl::Conv2D(4, 0)),
    BAD(kl::Conv2D(4, {3, 3, 3})),
    BAD(kl::Conv2D(4, 3, {.padding = "full"})),
    BAD(kl::Conv2D(4, 3, {.data_format = "first"})),
    BAD(kl::Conv2D(4, 3, {.strides = -1})),
    BAD(kl::Conv2DTranspose(0, 3)),
    BAD(kl::DepthwiseConv2D(0)),
    BAD(kl::SeparableConv2D(0, 3)),
    BAD(kl::MaxPooling2D(0)),
    BAD(kl::MaxPooling2D({1, 2, 3})),
    BAD(kl::MaxPooling2D(2, {.pool_size = 3})),
    BAD(kl::AveragePooling1D(-1)),
    BAD(kl::AdaptiveMaxPooling2D(0)),
    BAD(kl::UpSampling2D(0)),
    BAD(kl::ZeroPadding2D(-1)),
    BAD(kl::Cropping2D(-1)),
    BAD(kl::LSTM(0)),
    BAD(kl::GRU(-2)),
    BAD(kl::SimpleRNN(0)),
    BAD(kl::LSTM(3, {.dropout = 2})),
    BAD(kl::Bidirectional(kl::Dense(3))),
    BAD(kl::Bidirectional(k::Layer())),
    BAD(kl::TimeDistributed(k::Layer())),
    BAD(kl::MultiHeadAttention(0, 4)),
    BAD(kl::GroupQueryAttention(4, 3, 2)),
    BAD(kl::GroupNormalization({.groups = 0})),
    BAD(kl::LeakyReLU({.negative_slope = -1})),
    BAD(kl::ReLU({.max_value = -1})),
    BAD(kl::Resizing(0, 4)),
    BAD(kl::CenterCrop(0, 4)),
    BAD(kl::RandomFlip("sideways")),
    BAD(kl::RandomRotation({0.1, 0.2, 0.3})),
    BAD(kl::RandomContrast(-1)),
    BAD(kl::CategoryEncoding(0)),
    BAD(kl::Discretization({})),
    BAD(kl::PositionEmbedding(0)),
    BAD(kl::SpectralNormalization(k::Layer())),
    BAD(k::Layer().name()),
    BAD(k::Layer().weights()),
    BAD(k::Layer().built()),
    BAD(k::Layer().trainable_variables()),
    BAD(k::Layer().build({1, 2})),
    BAD(k::Layer()(rows())),
    BAD(k::Layer()(k::Input({3}))),
    BAD(k::Layer().serialize()),
    BAD(k::Layer().tracked()),
    BAD(k::Layer().set_trainable(false)),
    BAD(kl::Dense(3)(none())),
    BAD(kl::Dense(3)(zeros({}))),
    BAD(kl::Dense(3)(k::KerasTensor())),
    BAD(kl::Dense(3)(TensorList{rows(), rows()})),
    BAD(kl::Conv2D(4, 3)(rows())),
    BAD(kl::Conv2D(4, 3)(k::Input({3}))),
    BAD(kl::Embedding(4, 3)(constant({5}))),
    BAD(kl::LSTM(4)(rows())),
    BAD(kl::Concatenate()(TensorList{rows(), zeros({3, 3})})),
    BAD(kl::BatchNormalization({.axis = 5})(rows())),
    BAD(kl::Reshape({5})(rows())),
    BAD(kl::Dense(3).count_params()),
    BAD(kl::Dense(3).set_weights({rows()})),
    BAD(built().set_weights({rows()})),
    BAD(k::Layer::deserialize(Json::object({{"class_name", "Dens"}}))),
    BAD(k::Input({-3})),
    BAD(k::KerasTensor().shape()),
    BAD(k::KerasTensor().name()),
    BAD(k::Input({3}) + k::Input({4})),
    BAD(k::KerasTensor() * 2.0),
    BAD(k::Sequential({kl::Dense(3)(k::Input({4}))})),

    // --- models
    BAD(k::Model().fit(rows(), rows())),
    BAD(k::Model().compile({})),
    BAD(k::Model().summary()),
    BAD(k::Model().to_json()),
    BAD(k::Model().optimizer()),
    BAD(k::Model().metrics()),
    BAD(k::Model().stop_training()),
    BAD(k::Model()(rows())),
    BAD(built().fit(rows(), rows())),
    BAD(built().evaluate(rows(), rows())),
    BAD(built().optimizer()),
    BAD(built().last_loss()),
    BAD(compiled().last_loss()),
    BAD(built().compile({.optimizer = "adamm"})),
    BAD(built().compile({.loss = "mze"})),
    BAD(built().compile({.metrics = "acuracy"})),
    BAD(built().compile({.steps_per_execution = 0})),
    BAD(built().compile({.optimizer = k::optimizers::Optimizer()})),
    BAD(compiled().fit(rows(), zeros({3, 1}))),
    BAD(compiled().fit({rows(), zeros({3, 1})})),
    BAD(compiled().fit(k::Data())),
    BAD(compiled().fit(none(), none())),
    BAD(compiled().fit(rows(), zeros({2, 1}), {.batch_size = 0})),
    BAD(compiled().fit(rows(), zeros({2, 1}), {.epochs = -1})),
    BAD(compiled().fit(rows(), zeros({2, 1}), {.validation_split = 2})),
    BAD(compiled().fit(zeros({2, 5}), zeros({2, 1}), {.verbose = 0})),
    BAD(compiled().fit(zeros({2, 3, 3}), zeros({2, 1}), {.verbose = 0})),
    BAD(compiled().fit(data::Dataset::range(4), {.verbose = 0})),
    BAD(compiled().fit(data::Dataset())),
    BAD(compiled().evaluate(zeros({2, 5}), zeros({2, 1}), {.verbose = 0})),
    BAD(compiled().predict(zeros({2, 5}), {.verbose = 0})),
    BAD(compiled().predict(none())),
    BAD(compiled().train_on_batch(zeros({2, 5}), zeros({2, 1}))),
    BAD(compiled().train_on_batch(none(), none())),
    BAD(compiled().test_on_batch(zeros({2, 5}), zeros({2, 1}))),
    BAD(compiled().predict_on_batch({zeros({2, 5})})),
    BAD(built()(zeros({2, 5}))),
    BAD(built().get_layer("dens")),
    BAD(built().get_layer(7)),
    BAD(built().add(k::Layer())),
    BAD(built().add(k::Input({3}))),
    BAD(k::Sequential().pop()),
    BAD(built().summary({.line_length = 5})),
    BAD(built().save_weights("/nowhere/at/all/w.safetensors")),
    BAD(built().load_weights("/nowhere.safetensors")),
    BAD(k::Model::from_json("{")),
    BAD(k::Model::from_json("{\"class_name\": \"Modell\"}")),
    BAD(k::Model(k::KerasTensorList{}, k::KerasTensorList{})),
    BAD(k::Model(k::KerasTensor(), k::KerasTensor())),
    BAD(k::Model(k::Input({3}), kl::Dense(2)(k::Input({4})))),
    BAD(k::History()["loss"]),
    BAD(k::Logs()["loss"]),
    BAD(k::applications::resnet18({.input_shape = {3}})),

    // --- losses, metrics, optimizers and their kin
    BAD(k::Loss("mze")),
    BAD(k::Loss()(rows(), rows())),
    BAD(k::losses::MeanSquaredError()(none(), rows())),
    BAD(k::losses::MeanSquaredError()(zeros({5, 7}), rows())),
    BAD(k::losses::SparseCategoricalCrossentropy()(rows(), rows())),
    BAD(k::losses::SparseCategoricalCrossentropy({.from_logits = true})(constant({0, 9}), rows())),
    BAD(k::losses::CategoricalCrossentropy()(zeros({2, 5}), rows())),
    BAD(k::losses::BinaryCrossentropy()(zeros({3, 9}), rows())),
    BAD(k::Loss::deserialize(Json("mze"))),
    BAD(k::Metric("acuracy")),
    BAD(k::Metric().name()),
    BAD(k::Metric().result()),
    BAD(k::Metric().reset_state()),
    BAD(k::Metric().variables()),
    BAD(k::Metric().update_state(rows(), rows())),
    BAD(k::metrics::MeanSquaredError().update_state(rows())),
    BAD(k::metrics::MeanSquaredError().update_state(none(), rows())),
    BAD(k::metrics::MeanSquaredError().update_state(zeros({5, 7}), rows())),
    BAD(k::metrics::AUC({.curve = "ROCK"})),
    BAD(k::metrics::AUC({.num_thresholds = 1})),
    BAD(k::metrics::Precision({.thresholds = {2}})),
    BAD(k::metrics::F1Score({.average = "mean"})),
    BAD(k::metrics::MeanIoU(0)),
    BAD(k::metrics::IoU(2, {5})),
    BAD(k::metrics::R2Score({.class_aggregation = "sum"})),
    BAD(k::metrics::SensitivityAtSpecificity(2)),
    BAD(k::optimizers::Optimizer("adamm")),
    BAD(k::optimizers::Optimizer().name()),
    BAD(k::optimizers::Optimizer().variables()),
    BAD(k::optimizers::Optimizer().apply_gradients(TensorList{}, {})),
    BAD(k::optimizers::Optimizer().scale_loss(rows())),
    BAD(k::optimizers::Optimizer().learning_rate()),
    BAD(k::optimizers::Optimizer().tracked()),
    BAD(k::optimizers::SGD({.momentum = 2})),
    BAD(k::optimizers::Adam({.clipnorm = 1, .clipvalue = 1})),
    BAD(k::optimizers::Adam({.gradient_accumulation_steps = 0})),
    BAD(k::optimizers::Adam(k::optimizers::schedules::CosineDecay(1, 10)).learning_rate()),
    BAD(k::optimizers::Adam().apply_gradients(TensorList{rows()}, {})),
    BAD(k::optimizers::Adam().apply_gradients(TensorList{rows()}, {Variable(zeros({4}))})),
    BAD(k::optimizers::Adam().apply_gradients(TensorList{none()}, {Variable(zeros({4}))})),
    BAD(k::optimizers::schedules::CosineDecay(0.1, -1)),
    BAD(k::optimizers::schedules::PiecewiseConstantDecay({1, 2}, {0.1})),
    BAD(k::optimizers::Optimizer::deserialize(Json::object({{"class_name", "Adamm"}}))),
    BAD(k::Initializer("zeroes")),
    BAD(k::Initializer()({2})),
    BAD(k::initializers::VarianceScaling({.mode = "fan"})),
    BAD(k::initializers::Orthogonal()({2})),
    BAD(k::Regularizer("l3")),
    BAD(k::Regularizer()(rows())),
    BAD(k::regularizers::L2(-1)),
    BAD(k::regularizers::OrthogonalRegularizer({.mode = "diagonals"})),
    BAD(k::regularizers::OrthogonalRegularizer()(zeros({3}))),
    BAD(k::Constraint("maximum")),
    BAD(k::Constraint()(rows())),
    BAD(k::Activation("rellu")),
    BAD(k::DTypePolicy("float31")),
    BAD(k::mixed_precision::set_global_policy("float31")),
    BAD(k::callbacks::EarlyStopping({.mode = "most"})),
    BAD(k::callbacks::ReduceLROnPlateau({.factor = 2})),
    BAD(k::callbacks::ModelCheckpoint("")),
    BAD(k::callbacks::LearningRateScheduler({})),
    BAD(k::callbacks::BackupAndRestore("")),
    BAD(k::utils::to_categorical(constant({5}), 3)),
    BAD(k::utils::to_categorical(constant({0.5}))),
    BAD(k::utils::normalize(whole())),
    BAD(k::utils::pad_sequences({{1}}, {.padding = "middle"})),
    BAD(k::datasets::digits({.train_size = -1})),
    BAD(k::datasets::mnist::load_data({.folder = "/nowhere", .download = false})),
    BAD(k::datasets::cifar100::load_data("rough")),
    BAD(k::datasets::read_csv("/nowhere.csv")),
    BAD(k::datasets::read_idx("/nowhere.idx")),

    // --- datasets
    BAD(data::Dataset::from_tensor_slices(zeros({}))),
    BAD(data::Dataset::from_tensor_slices({rows(), zeros({3})})),
    BAD(data::Dataset().batch(2)),
    BAD(data::Dataset().map([](const Tensor& x) { return x; })),
    BAD(data::Dataset().cardinality()),
    BAD(data::Dataset().element_spec()),
    BAD(data::Dataset().iterator()),
    BAD(data::Dataset().begin()),
    BAD(numbers().batch(0)),
    BAD(numbers().shuffle(0)),
    BAD(numbers().shard(2, 2)),
    BAD(numbers().prefetch(-5)),
    BAD(numbers().unbatch().iterator().next()),
    BAD(numbers().map([](const Tensor& x, const Tensor&) { return x; }).iterator().next()),
    BAD(numbers().map([](const Tensor&) { return rows() + zeros({4}); }).iterator().next()),
    BAD(numbers().map([](const Tensor&) { return rows() + zeros({4}); }, {.num_parallel_calls = 2}).iterator().next()),
    BAD(numbers().map([](const Tensor&) -> Tensor { throw std::runtime_error("mine"); }).iterator().next()),
    BAD(numbers().filter([](const Tensor& x) { return x + 1.0; }).iterator().next()),
    BAD(data::Dataset::zip({})),
    BAD(data::TFRecordDataset("/nowhere.tfrecord").iterator().next()),
    BAD(data::TFRecordDataset("/nowhere.tfrecord").prefetch(2).iterator().next()),
    BAD(data::TextLineDataset("/nowhere.txt").iterator().next()),
    BAD(data::CsvDataset("/nowhere.csv", {float32}).iterator().next()),
    BAD(data::image_folder_dataset("/nowhere")),
    BAD(data::Element(rows(), rows()).tensor()),
    BAD(data::Element(rows(), rows())[5]),
    BAD(data::Element(rows(), rows())["x"]),
    BAD(data::Element(rows())[0][0]),
    BAD(data::decode_image("no image")),
    BAD(data::parse_example("no example", {{"x", {}}})),
    BAD(io::read_file("/nowhere")),
    BAD(io::write_file("/nowhere/at/all", "text")),
    BAD(io::decode_png("no image")),
    BAD(io::encode_png(rows())),
    BAD(io::TFRecordWriter("/nowhere/at/all")),

    // --- files
    BAD(train::load_safetensors("/nowhere")),
    BAD(train::save_safetensors("/nowhere/at/all", {{"x", rows()}})),
    BAD(train::CheckpointFile("/nowhere")),
    BAD(train::Checkpoint({{"a/b", Variable(1.0)}})),
    BAD(train::Checkpoint({.model = k::Model()})),
    BAD(train::Checkpoint({.optimizer = k::optimizers::Optimizer()})),
    BAD(train::Checkpoint({.step = Variable()})),
    BAD(train::Checkpoint({.step = Variable(1.0)}).restore("/nowhere")),
    BAD(train::Checkpoint({.step = Variable(1.0)}).write("/proc/nowhere/ckpt", {.asynchronous = false})),
    BAD(train::CheckpointManager(train::Checkpoint({.step = Variable(1.0)}), "/proc/nowhere", {.max_to_keep = -1})),
    BAD(train::EventWriter("/proc/nowhere")),
    BAD(summary::create_file_writer("/proc/nowhere")),
    BAD(Json::parse("{")),
    BAD(Json::object().at("x")),
    BAD(Json(1).as_string()),

    // --- strategies
    BAD(distribute::MirroredStrategy({"/gpu:9"})),
    BAD(distribute::MirroredStrategy({"/cpu:0", "/cpu:0"})),
    BAD(distribute::MirroredStrategy({"/cpu:0"}, {.weights = {1, 2}})),
    BAD(distribute::OneDeviceStrategy("/tpu:0")),
    BAD(two_replicas().distribute(zeros({}))),
    BAD(two_replicas().distribute_dataset(data::Dataset())),
    BAD(two_replicas().run([](const Tensor& x) { return x; })),
    BAD(two_replicas().run([](const Tensor& x) { return x; }, none())),
    BAD(two_replicas().run([](const Tensor& x) { return x; }, rows(), rows())),
    BAD(two_replicas().run([](const Tensor& x) { return x; }, data::Element(rows()))),
    BAD(two_replicas().run([](const Tensor& x) { return distribute::global_mean(x); }, rows())),
    BAD(two_replicas().run([](const Tensor& x) { return k::losses::MeanSquaredError()(x, x); }, rows())),
    BAD(two_replicas().run([](const Tensor& x) { return Tensor::scalar(x.item<float>()); }, rows())),
    BAD(two_replicas().run([](const Tensor& x) { return x + zeros({7}); }, two_replicas().distribute(rows()))),
    BAD(two_replicas().reduce(distribute::ReduceOp::SUM, {})),
    BAD(two_replicas().gather({})),
    BAD(two_replicas().distribute(rows()).at(5)),
    BAD(two_replicas().distribute(data::Element(rows(), rows()))[3]),
    BAD(distribute::InputContext{.num_replicas_in_sync = 2}.get_per_replica_batch_size(3)),
  };
  return calls;
}
// clang-format on

// Files and lines that a text names.
std::vector<std::string> places(const std::string& text) {
  static const std::regex place("[A-Za-z0-9_./+-]+\\.(cc|h|cu):[0-9]+");
  return {std::sregex_token_iterator(text.begin(), text.end(), place), std::sregex_token_iterator()};
}

void expect_own_lines(const Error& error) {
  EXPECT_THAT(std::string(error.where().file_name()), EndsWith("user_lines_test.cc")) << error.what();
  for (const std::string& place : places(error.what()))
    EXPECT_THAT(place, HasSubstr("user_lines_test.cc:")) << error.what();
}

class UserLines : public testing::TestWithParam<BadCall> {};

TEST_P(UserLines, OfTheCallAreNamed) {
  first_devices(2);
  const Error error = error_of(GetParam().call);
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), GetParam().line) << error.what();
  EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
}

INSTANTIATE_TEST_SUITE_P(All, UserLines, testing::ValuesIn(bad_calls()),
                         [](const auto& info) { return std::to_string(info.index); });

// --- work that happens later -------------------------------------------------------------------------------

TEST(LinesOfLaterWork, AModelNamesTheLineThatMadeTheLayer) {
  const uint32_t made = __LINE__ + 1;
  const k::Sequential model({kl::Flatten(), kl::Conv2D(4, 3)});
  const uint32_t called = __LINE__ + 1;
  const Error error = error_of([&] { model.predict(rows(), {.verbose = 0}); });
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), made) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("predict() [user_lines_test.cc:" + std::to_string(called) + "]"));
}

TEST(LinesOfLaterWork, AStepNamesTheLineOfCompile) {
  const k::Sequential model({kl::Dense(4, {.input_shape = {3}})});
  const uint32_t made = __LINE__ + 1;
  model.compile({.optimizer = "sgd", .loss = "sparse_categorical_crossentropy"});
  const uint32_t called = __LINE__ + 1;
  const Error error = error_of([&] { model.fit(rows(), zeros({2, 4}), {.verbose = 0}); });
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), made) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("fit() [user_lines_test.cc:" + std::to_string(called) + "]"));
}

TEST(LinesOfLaterWork, ACompiledStepNamesItInEveryRun) {
  const k::Sequential model({kl::Dense(4, {.input_shape = {3}})});
  const uint32_t made = __LINE__ + 1;
  model.compile(
      {.optimizer = "sgd", .loss = k::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  model.fit(rows(), constant({0, 1}), {.verbose = 0});
  const Error error = error_of([&] { model.fit(rows(), constant({0, 7}), {.verbose = 0}); });
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), made) << error.what();
}

TEST(LinesOfLaterWork, AStageNamesTheLineThatAddedIt) {
  const uint32_t made = __LINE__ + 1;
  const auto data = numbers().map([](const Tensor& x, const Tensor&) { return x; });
  const Error error = error_of([&] {
    for (const data::Element& element : data.batch(2).prefetch(2)) (void)element;
  });
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), made) << error.what();
}

TEST(LinesOfLaterWork, ASaveInTheBackgroundNamesTheLineOfTheSave) {
  const std::string folder = testing::TempDir() + "lockstep_user_lines_" + std::to_string(getpid());
  std::filesystem::create_directories(folder +
                                      "/ckpt.safetensors");  // a folder stands where the file shall be
  const train::Checkpoint checkpoint({.step = Variable(1.0)});
  const uint32_t saved = __LINE__ + 1;
  const Error error = error_of([&] { checkpoint.write(folder + "/ckpt"), checkpoint.wait(); });
  std::filesystem::remove_all(folder);
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), saved) << error.what();
}

class Twice final : public k::ModelBase {
 public:
  Tensor call(const Tensor& x, const k::CallContext&) override { return dense_(x) + zeros({2, 9}); }
  static constexpr uint32_t kLine = __LINE__ - 1;

 private:
  k::Layer dense_ = kl::Dense(4);
};

TEST(LinesOfLaterWork, AModelOfOnesOwnNamesTheLineInItsCall) {
  const k::Model model = k::make_model<Twice>();
  const Error error = error_of([&] { model.predict(rows(), {.verbose = 0}); });
  expect_own_lines(error);
  EXPECT_EQ(error.where().line(), Twice::kLine) << error.what();
}

TEST(LinesOfLaterWork, AVariableOfALayerNamesTheLayersLine) {
  const uint32_t made = __LINE__ + 1;
  const k::Layer layer = kl::Dense(4);
  const k::Sequential model({k::Input({3}), layer});
  EXPECT_EQ(model.variables()[0].where().line(), made);
  EXPECT_THAT(std::string(model.variables()[0].where().file_name()), EndsWith("user_lines_test.cc"));
}

}  // namespace
}  // namespace lockstep
