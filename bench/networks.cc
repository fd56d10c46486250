#include "bench/networks.h"

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/collective.h"
#include "models/models.h"

namespace lockstep::bench {
namespace {

class PolicyScope {
 public:
  explicit PolicyScope(const std::string& policy) : before_(keras::mixed_precision::global_policy()) {
    keras::mixed_precision::set_global_policy(policy);
  }
  ~PolicyScope() { keras::mixed_precision::set_global_policy(before_); }
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  keras::DTypePolicy before_;
};

Training training(const keras::Model& model, const keras::optimizers::Optimizer& optimizer, Tensor x,
                  Tensor y, const NetworkOptions& options) {
  auto step = function(
      [model, optimizer, loss_of = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})](
          const Tensor& batch, const Tensor& labels) {
        GradientTape tape;
        const Tensor loss = loss_of(labels, model(batch, {.training = true}));
        const std::vector<Variable> weights = model.trainable_weights();
        optimizer.apply_gradients(tape.gradient(optimizer.scale_loss(loss), weights), weights);
        return all_reduce_sum(loss);
      },
      {.replicas = options.replicas});
  return {.step = [step](const Tensor& a, const Tensor& b) mutable { return step(a, b); },
          .explain = [step, x, y]() mutable { return step.explain(x, y); },
          .x = x,
          .y = y};
}

}  // namespace

Training resnet50_training(int64_t batch, const NetworkOptions& options) {
  const PolicyScope policy(options.policy);
  const keras::Model model = keras::applications::resnet50(
      {.input_shape = {224, 224, 3}, .classes = 1000, .stem = "imagenet", .version = "v1.5"});
  Device& device = current_device();
  return training(model, keras::optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                  models::random_inputs({batch, 224, 224, 3}, 1).to(device),
                  models::random_labels(batch, 1000, 2).to(device), options);
}

Training gpt2_training(int64_t batch, const NetworkOptions& options) {
  const PolicyScope policy(options.policy);
  const keras::Model model =
      keras::applications::gpt2({.vocabulary = kGptVocabulary, .context = kGptContext});
  Device& device = current_device();
  const auto tokens = [&](uint64_t seed) {
    return models::random_tokens({batch, kGptContext}, kGptVocabulary, seed).to(device);
  };
  return training(model, keras::optimizers::AdamW({.learning_rate = 3e-4, .weight_decay = 0.1}), tokens(1),
                  tokens(2), options);
}

}  // namespace lockstep::bench
