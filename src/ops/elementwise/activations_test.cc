#include "lockstep/ops/activations.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/nn.h"

namespace lockstep {
namespace {

struct Kink {
  const char* name;
  std::function<Tensor(const Tensor&)> function;
  float x, value, gradient;
};

// What Keras gives on JAX; 0 at the ends of a clipped range, where that gives half of the gradient inside.
TEST(Activations, GradientsAtKinks) {
  const Kink kinks[] = {
      {"relu", [](const Tensor& x) { return relu(x); }, 0, 0, 0},
      {"relu6", relu6, 0, 0, 0},
      {"relu6", relu6, 6, 6, 0},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }, 0, 0, 1},
      {"elu", [](const Tensor& x) { return elu(x, 2); }, 0, 0, 2},
      {"selu", selu, 0, 0, 1.7580993f},
      {"celu", [](const Tensor& x) { return celu(x, 2); }, 0, 0, 1},
      {"softsign", softsign, 0, 0, 1},
      {"hard_sigmoid", hard_sigmoid, -3, 0, 0},
      {"hard_sigmoid", hard_sigmoid, 3, 1, 0},
      {"hard_silu", hard_silu, -3, 0, 0},
      {"hard_silu", hard_silu, 3, 3, 1},
      {"hard_tanh", hard_tanh, -1, -1, 1},
      {"hard_tanh", hard_tanh, 1, 1, 1},
      {"hard_shrink", [](const Tensor& x) { return hard_shrink(x); }, 0.5f, 0, 0},
      {"hard_shrink", [](const Tensor& x) { return hard_shrink(x); }, -0.5f, 0, 0},
      {"soft_shrink", [](const Tensor& x) { return soft_shrink(x); }, 0.5f, 0, 0},
      {"soft_shrink", [](const Tensor& x) { return soft_shrink(x); }, -0.5f, 0, 0},
      {"threshold", [](const Tensor& x) { return threshold(x, 1, 5); }, 1, 5, 0},
      {"sparse_plus", sparse_plus, -1, 0, 0},
      {"sparse_plus", sparse_plus, 1, 1, 1},
      {"sparse_sigmoid", sparse_sigmoid, -1, 0, 0},
      {"sparse_sigmoid", sparse_sigmoid, 1, 1, 0},
      {"relu at its threshold", [](const Tensor& x) { return relu(x, {.threshold = 1}); }, 1, 0, 0},
      {"relu at its maximum", [](const Tensor& x) { return relu(x, {.max_value = 3}); }, 3, 3, 0},
      {"sigmoid_cross_entropy",
       [](const Tensor& x) { return sigmoid_cross_entropy_with_logits(full({}, 0.25), x); }, 0, 0.6931472f,
       0.25f},
      {"divide_no_nan", [](const Tensor& x) { return divide_no_nan(1, x); }, 0, 0, 0},
  };
  for (const Kink& kink : kinks) {
    SCOPED_TRACE(kink.name + std::string(" at ") + std::to_string(kink.x));
    const Tensor x = Tensor::scalar(kink.x);
    GradientTape tape;
    tape.watch(x);
    const Tensor y = kink.function(x);
    EXPECT_FLOAT_EQ(y.item<float>(), kink.value);
    EXPECT_FLOAT_EQ(tape.gradient(y, x).item<float>(), kink.gradient);
  }
}

// Where one branch overflows, the other's gradient must not become NaN.
TEST(Activations, GradientsFarOut) {
  const std::pair<std::function<Tensor(const Tensor&)>, float> cases[] = {
      {[](const Tensor& x) { return elu(x); }, 1},
      {selu, 1.0507009873554805f},
      {silu, 1},
      {mish, 1},
      {[](const Tensor& x) { return squareplus(x); }, 1}};
  for (const auto& [function, gradient] : cases) {
    const Tensor x = Tensor::scalar(500.0f);
    GradientTape tape;
    tape.watch(x);
    EXPECT_NEAR(tape.gradient(function(x), x).item<float>(), gradient, 1e-4);
  }
}

}  // namespace
}  // namespace lockstep
