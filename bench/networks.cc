#include "bench/networks.h"

#include <array>
#include <optional>
#include <utility>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/device/config.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/keras/remat.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "models/models.h"

namespace lockstep::bench {
namespace {

namespace applications = keras::applications;
namespace layers = keras::layers;
using keras::KerasTensor;
using keras::KerasTensorList;
using keras::optimizers::Optimizer;

// The settings that kernels are chosen by are part of a function's signature, so a step is called under those
// that it was made under.
class KernelScope {
 public:
  explicit KernelScope(const Exercise& exercise)
      : tf32_(config::tensor_float_32_execution_enabled()),
        op_determinism_(config::op_determinism_enabled()) {
    set(exercise.policy == "tf32", exercise.op_determinism);
  }
  ~KernelScope() { set(tf32_, op_determinism_); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  static void set(bool tf32, bool op_determinism) {
    config::enable_tensor_float_32_execution(tf32);
    config::enable_op_determinism(op_determinism);
  }
  bool tf32_, op_determinism_;
};

// Layers are made, and kernels prepared, under a policy.
class PolicyScope {
 public:
  explicit PolicyScope(const Exercise& exercise)
      : kernels_(exercise), before_(keras::mixed_precision::global_policy()) {
    keras::mixed_precision::set_global_policy(exercise.policy == "tf32" ? "float32" : exercise.policy);
  }
  ~PolicyScope() { keras::mixed_precision::set_global_policy(before_); }
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  KernelScope kernels_;
  keras::DTypePolicy before_;
};

using MakeModel = std::function<keras::Model()>;
using MakeOptimizer = std::function<Optimizer()>;
using MakeTensor = std::function<Tensor(int64_t batch)>;

Optimizer adam() { return keras::optimizers::Adam(); }
Optimizer adamw() { return keras::optimizers::AdamW({.learning_rate = 3e-4, .weight_decay = 0.1}); }
Optimizer momentum() { return keras::optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}); }

// A model that ends in logits, and the data to train it with.
std::function<NetworkStep(const Exercise&)> classifier(MakeModel make_model, MakeTensor inputs,
                                                       MakeTensor labels,
                                                       const MakeOptimizer& make_optimizer = adam) {
  return [=](const Exercise& exercise) {
    const PolicyScope policy(exercise);
    Device& place = exercise.task == Task::host ? device_by_name("/CPU:0") : current_device();
    const Tensor x = inputs(exercise.batch).to(place);
    std::optional<keras::RematScope> recomputing;
    if (exercise.recomputes) recomputing.emplace();
    const keras::Model model = make_model();
    if (exercise.task == Task::predict)
      return NetworkStep(
          [model](std::span<const Tensor> in) { return TensorList{model(in[0], {.training = false})}; }, {x},
          1, exercise);
    return NetworkStep(
        [model, optimizer = make_optimizer(),
         loss_of = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})](
            std::span<const Tensor> in) {
          GradientTape tape;
          const Tensor loss = loss_of(in[1], model(in[0], {.training = true}));
          const std::vector<Variable> weights = model.trainable_weights();
          optimizer.apply_gradients(tape.gradient(optimizer.scale_loss(loss), weights), weights);
          return TensorList{all_reduce_sum(loss)};
        },
        {x, labels(exercise.batch).to(place)}, 1, exercise);
  };
}

MakeTensor images(const Shape& shape) {
  return [shape](int64_t batch) {
    Dims dims{batch};
    for (const int64_t size : shape) dims.push_back(size);
    return models::random_inputs(Shape(dims), 1);
  };
}
MakeTensor labels(int64_t classes) {
  return [classes](int64_t batch) { return models::random_labels(batch, classes, 2); };
}
MakeTensor tokens(int64_t length, int64_t vocabulary, uint64_t seed) {
  return [=](int64_t batch) { return models::random_tokens({batch, length}, vocabulary, seed); };
}

// Tokens, of which each is followed by one.
std::function<NetworkStep(const Exercise&)> language_model(MakeModel model, int64_t length,
                                                           int64_t vocabulary,
                                                           const MakeOptimizer& optimizer) {
  return classifier(std::move(model), tokens(length, vocabulary, 1), tokens(length, vocabulary, 2),
                    optimizer);
}

constexpr int64_t kWords = 10000, kSentence = 100, kEmbedding = 64, kUnits = 128;

// A classifier of sentences: each word's vector, a recurrent layer, its last state.
std::function<NetworkStep(const Exercise&)> sentences(const std::function<keras::Layer()>& recurrent) {
  return classifier(
      [recurrent]() -> keras::Model {
        const KerasTensor words = keras::Input({kSentence}, {.dtype = DType::int32});
        const KerasTensor state = recurrent()(layers::Embedding(kWords, kEmbedding)(words));
        return {words, layers::Dense(10)(state)};
      },
      tokens(kSentence, kWords, 1), labels(10));
}

// Two convolutions at every resolution, on the way down and on the way up, joined across: a class for each
// pixel.
keras::Model unet(int64_t side, int64_t width, int depth) {
  constexpr int64_t kClasses = 2;
  const auto pair = [](KerasTensor x, int64_t filters) {
    for (int i = 0; i < 2; ++i) x = layers::Conv2D(filters, 3, {.padding = "same", .activation = "relu"})(x);
    return x;
  };
  const KerasTensor input = keras::Input({side, side, 3});
  KerasTensor x = input;
  std::vector<KerasTensor> across;
  for (int i = 0; i <= depth; ++i) {
    x = pair(i == 0 ? x : layers::MaxPooling2D(2)(x), width << i);
    across.push_back(x);
  }
  for (int i = depth - 1; i >= 0; --i) {
    x = layers::Conv2DTranspose(width << i, 2, {.strides = 2})(x);
    x = pair(layers::Concatenate()(KerasTensorList{x, across[static_cast<size_t>(i)]}), width << i);
  }
  return {input, layers::Conv2D(kClasses, 1)(x)};
}
std::function<NetworkStep(const Exercise&)> segmentation(int64_t side, int64_t width, int depth) {
  return classifier([=] { return unet(side, width, depth); }, images({side, side, 3}),
                    [side](int64_t batch) {
                      return models::random_tokens({batch, side, side}, 2, 2);
                    });
}

keras::Model conv3d() {
  const KerasTensor input = keras::Input({16, 32, 32, 3});
  KerasTensor x = input;
  for (const int64_t filters : {32, 64, 128}) {
    if (filters > 32) x = layers::MaxPooling3D(2)(x);
    x = layers::Conv3D(filters, 3, {.padding = "same", .activation = "relu"})(x);
  }
  return {input, layers::Dense(10)(layers::GlobalAveragePooling3D()(x))};
}

constexpr int64_t kTable = 1000000, kBag = 32;

keras::Model embedding_bag() {
  const KerasTensor ids = keras::Input({kBag}, {.dtype = DType::int32});
  const KerasTensor rows = layers::Embedding(kTable, kEmbedding)(ids);
  return {ids, layers::Dense(10)(layers::GlobalAveragePooling1D()(rows))};
}

// Attention alone, causal, with the gradients of queries, keys and values.
std::function<NetworkStep(const Exercise&)> attention(int64_t length) {
  constexpr int64_t kHeads = 12, kSize = 64;
  return [=](const Exercise& exercise) {
    const PolicyScope policy(exercise);
    TensorList arguments;  // and what arrives at the result
    for (uint64_t i = 1; i <= 4; ++i)
      arguments.push_back(cast(models::random_inputs({exercise.batch, length, kHeads, kSize}, i),
                               keras::mixed_precision::global_policy().compute_dtype())
                              .to(current_device()));
    const auto attend = [](std::span<const Tensor> in) {
      return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
    };
    if (exercise.task == Task::predict)
      return NetworkStep([attend](std::span<const Tensor> in) { return TensorList{attend(in)}; }, arguments,
                         1, exercise);
    return NetworkStep(
        [attend](std::span<const Tensor> in) {
          GradientTape tape;
          for (const Tensor& part : in.first(3)) tape.watch(part);
          const Tensor result = attend(in);
          const std::vector<GradientSource> sources(in.begin(), in.begin() + 3);
          return tape.gradient(std::span(&result, 1), sources, in.subspan(3, 1));
        },
        arguments, 3, exercise);
  };
}

// Keras' networks of images as they are.
template <auto application>
Network published(const char* name, int64_t side, int64_t cpu_batch = 0) {
  return {.name = name,
          .make = classifier([] { return application({}, std::source_location::current()); },
                             images({side, side, 3}), labels(1000), momentum),
          .item = "images",
          .gpu_batches = {32, 128},
          .cpu_batch = cpu_batch,
          .deep = true};
}

// Version 1.5, with the stride in the convolution of 3 x 3.
template <auto application>
Network residual(const char* name, int64_t cpu_batch = 0) {
  return {.name = name,
          .make = classifier(
              [] {
                return application(
                    {.input_shape = {224, 224, 3}, .classes = 1000, .stem = "imagenet", .version = "v1.5"},
                    std::source_location::current());
              },
              images({224, 224, 3}), labels(1000), momentum),
          .item = "images",
          .cpu_batch = cpu_batch,
          .deep = true};
}

std::vector<Network> all_networks() {
  constexpr int64_t kContext = 1024, kVocabulary = 50304;  // GPT-2's, padded to a multiple of 64
  constexpr int64_t kLetters = 65, kLine = 256;            // Shakespeare's characters
  const auto resnet18 = [](int64_t width) {
    return classifier(
        [width] {
          return applications::resnet18({.input_shape = {28, 28, 1}, .width = width});
        },
        images({28, 28, 1}), labels(10));
  };
  return {
      {.name = "mlp",
       .make = classifier([] { return applications::mlp(); }, images({784}), labels(10)),
       .item = "images",
       .gpu_batches = {32, 128, 256, 1024},
       .cpu_batch = 32},
      {.name = "lenet",
       .make = classifier([] { return applications::lenet(); }, images({28, 28, 1}), labels(10)),
       .item = "images",
       .gpu_batches = {32, 128, 256},
       .cpu_batch = 32},
      {.name = "resnet18",
       .make = resnet18(64),
       .item = "images",
       .gpu_batches = {32, 128, 256},
       .deep = true},
      {.name = "resnet18_small",
       .make = resnet18(16),
       .item = "images",
       .gpu_batches = {},
       .cpu_batch = 32,
       .deep = true},
      residual<applications::resnet50>("resnet50", 4),
      residual<applications::resnet101>("resnet101"),
      residual<applications::resnet152>("resnet152"),
      published<applications::resnet50_v2>("resnet50_v2", 224),
      published<applications::resnet101_v2>("resnet101_v2", 224),
      published<applications::resnet152_v2>("resnet152_v2", 224),
      published<applications::vgg16>("vgg16", 224, 4),
      published<applications::vgg19>("vgg19", 224),
      published<applications::densenet121>("densenet121", 224, 4),
      published<applications::mobilenet_v2>("mobilenet_v2", 224, 4),
      published<applications::efficientnet_b0>("efficientnet_b0", 224, 4),
      published<applications::inception_v3>("inception_v3", 299, 4),
      published<applications::xception>("xception", 299, 4),
      {.name = "vit_tiny",
       .make = classifier([] { return applications::vit_tiny(); }, images({28, 28, 1}), labels(10)),
       .item = "images",
       .gpu_batches = {32, 128, 256},
       .cpu_batch = 32},
      {.name = "gpt_tiny",
       .make = language_model([] { return applications::gpt_tiny(); }, 64, 256, adam),
       .item = "tokens",
       .items = 64,
       .cpu_batch = 32},
      {.name = "nanogpt",
       .make = language_model(
           [=] {
             return applications::gpt_tiny(
                 {.vocabulary = kLetters, .context = kLine, .dim = 384, .depth = 6, .heads = 6});
           },
           kLine, kLetters, adamw),
       .item = "tokens",
       .items = kLine,
       .gpu_batches = {32, 64, 256},
       .cpu_batch = 4,
       .deep = true,
       .attends = true},
      {.name = "gpt2",
       .make = language_model(
           [=] { return applications::gpt2({.vocabulary = kVocabulary, .context = kContext}); }, kContext,
           kVocabulary, adamw),
       .item = "tokens",
       .items = kContext,
       .gpu_batches = {32},
       .cpu_batch = 1,
       .deep = true,
       .attends = true},
      {.name = "lstm",
       .make = sentences([] { return layers::LSTM(kUnits); }),
       .gpu_batches = {32, 128, 256},
       .cpu_batch = 32},
      {.name = "gru",
       .make = sentences([] { return layers::GRU(kUnits); }),
       .gpu_batches = {32, 128, 256},
       .cpu_batch = 32},
      {.name = "unet", .make = segmentation(128, 32, 3), .item = "images"},
      {.name = "unet_small",
       .make = segmentation(64, 16, 2),
       .item = "images",
       .gpu_batches = {},
       .cpu_batch = 8},
      {.name = "conv3d",
       .make = classifier(conv3d, images({16, 32, 32, 3}), labels(10)),
       .item = "clips",
       .cpu_batch = 4},
      {.name = "embedding_bag",
       .make = classifier(embedding_bag, tokens(kBag, kTable, 1), labels(10)),
       .item = "bags",
       .cpu_batch = 32},
      {.name = "attention_1k",
       .make = attention(1024),
       .item = "tokens",
       .items = 1024,
       .gpu_batches = {16},
       .cpu_batch = 1,
       .attends = true},
      {.name = "attention_4k",
       .make = attention(4096),
       .item = "tokens",
       .items = 4096,
       .gpu_batches = {4},
       .attends = true},
      {.name = "attention_16k",
       .make = attention(16384),
       .item = "tokens",
       .items = 16384,
       .gpu_batches = {1},
       .attends = true},
  };
}

}  // namespace

NetworkStep::NetworkStep(FunctionCore::Body body, TensorList arguments, size_t results,
                         const Exercise& exercise)
    : core_(std::make_shared<FunctionCore>(std::move(body),
                                           FunctionOptions{.name = "step", .replicas = exercise.replicas},
                                           std::source_location::current())),
      arguments_(std::move(arguments)),
      results_(results),
      exercise_(exercise) {
  (*this)();  // while the policy holds
}

void NetworkStep::operator()() const {
  const KernelScope scope(exercise_);
  std::array<Tensor, 3> results;
  core_->call(arguments_, std::span(results).first(results_), std::source_location::current());
}

bool NetworkStep::run_rows(std::span<const Tensor> arrays, int64_t rows, int64_t runs) const {
  const KernelScope scope(exercise_);
  Tensor loss;
  return core_->call({.arrays = arrays, .order = {}, .first = 0, .rows = rows, .runs = runs},
                     std::span(&loss, 1), std::source_location::current());
}

ProgramStatistics NetworkStep::statistics() const {
  const KernelScope scope(exercise_);
  return core_->statistics(arguments_, std::source_location::current());
}

std::string NetworkStep::explain() const {
  const KernelScope scope(exercise_);
  return core_->explain(arguments_, std::source_location::current());
}

const std::vector<Network>& networks() {
  static const std::vector<Network> all = all_networks();
  return all;
}

const Network& network(std::string_view name, std::source_location where) {
  std::string known;
  for (const Network& candidate : networks()) {
    if (candidate.name == name) return candidate;
    known += (known.empty() ? "" : ", ") + candidate.name;
  }
  fail(ErrorCode::not_found, where, "the benchmark has no network \"", name, "\"; there are ", known);
}

const std::vector<std::string>& policies() {
  static const std::vector<std::string> all{"float32", "tf32", "mixed_bfloat16"};
  return all;
}

}  // namespace lockstep::bench
