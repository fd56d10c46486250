#include <algorithm>

#include "base/parallel.h"
#include "bench/floors/dense.h"
#include "bench/floors/floor.h"
#include "bench/floors/parameters.h"

namespace lockstep::bench {

namespace {

constexpr int64_t kIn = 784, kHidden = 128, kClasses = 10;
enum : size_t { kKernel1, kBias1, kKernel2, kBias2 };

class MlpFloor final : public TrainingFloor {
 public:
  MlpFloor(int64_t batch, int threads)
      : batch_(batch),
        threads_(threads),
        p_({kIn * kHidden, kHidden, kHidden * kClasses, kClasses}),
        x_(batch * kIn),
        h_(batch * kHidden),
        dh_(batch * kHidden),
        logits_(batch * kClasses),
        dlogits_(batch * kClasses),
        dense1_(batch, kIn, kHidden, true,
                {.x = x_.data(),
                 .w = p_.w(kKernel1),
                 .b = p_.w(kBias1),
                 .y = h_.data(),
                 .dw = p_.g(kKernel1),
                 .dy = dh_.data()}),
        dense2_(batch, kHidden, kClasses, false,
                {.x = h_.data(),
                 .w = p_.w(kKernel2),
                 .b = p_.w(kBias2),
                 .y = logits_.data(),
                 .dw = p_.g(kKernel2),
                 .dy = dlogits_.data(),
                 .dx = dh_.data()}),
        loss_(batch, kClasses, logits_.data(), dlogits_.data(), p_.g(kBias2), threads) {
    p_.set_layout(kKernel1, dense1_.layout());
    p_.set_layout(kKernel2, dense2_.layout());
  }

  void step() override {
    const TeamScope team(threads_);
    dense1_.forward();
    dense2_.forward();
    loss_();
    dense2_.backward_weights();
    dense2_.backward_data();
    relu_gradient(h_.data(), dh_.data(), batch_, kHidden, p_.g(kBias1), threads_);
    dense1_.backward_weights();
    p_.adam(threads_);
  }

  std::string chosen() const override {
    return "dense 1: " + dense1_.chosen() + "; dense 2: " + dense2_.chosen();
  }

  void set_batch(std::span<const float> x, std::span<const int32_t> labels) override {
    std::ranges::copy(x, x_.data());
    loss_.set_labels(labels);
  }
  void set_parameters(std::span<const float> values) override { p_.set_weights(values); }
  std::vector<float> parameters() const override { return p_.weights(); }
  std::vector<float> gradients() const override { return p_.gradients(); }
  double loss() const override { return loss_.value(); }

 private:
  int64_t batch_;
  int threads_;
  Parameters p_;
  Buffer x_, h_, dh_, logits_, dlogits_;
  Dense dense1_, dense2_;
  SoftmaxLoss loss_;
};

}  // namespace

std::unique_ptr<TrainingFloor> mlp_floor(int64_t batch, int threads) {
  const TeamScope team(threads);
  auto floor = std::make_unique<MlpFloor>(batch, threads);
  start_training(*floor, batch, kIn, {{1, kIn, kHidden}, {1, kHidden, kClasses}});
  return floor;
}

}  // namespace lockstep::bench
