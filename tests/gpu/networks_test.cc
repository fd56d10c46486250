// Networks in mixed precision on a GPU against float32 on the CPU.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "gpu/gpu.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/kernel_profile.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "models/models.h"

namespace lockstep::testing {
namespace {

class GpuNetworks : public Gpu {
 protected:
  struct Case {
    keras::Model (*model)();
    keras::optimizers::Optimizer (*optimizer)();
    Tensor x, y;
  };

  // The losses of the first steps, always of the same batch.
  static std::vector<double> losses(const Case& c, Device& device, const std::string& policy, int steps) {
    const DeviceScope scope(device);
    keras::mixed_precision::set_global_policy(policy);
    set_random_seed(5);
    const keras::Model model = c.model();
    keras::mixed_precision::set_global_policy("float32");
    keras::optimizers::Optimizer optimizer = c.optimizer();
    if (policy == "mixed_float16") optimizer = keras::optimizers::LossScaleOptimizer(optimizer);
    const auto loss_of = keras::losses::SparseCategoricalCrossentropy({.from_logits = true});
    auto step = function([&](const Tensor& x, const Tensor& y) {
      GradientTape tape;
      const Tensor loss = loss_of(y, model(x, {.training = true}));
      const std::vector<Variable> weights = model.trainable_weights();
      optimizer.apply_gradients(tape.gradient(optimizer.scale_loss(loss), weights), weights);
      return loss;
    });
    const Tensor x = c.x.to(device), y = c.y.to(device);
    std::vector<double> found;
    for (int i = 0; i < steps; ++i) found.push_back(step(x, y).to_vector<float>()[0]);
    return found;
  }

  static void expect_agreement(const Case& c, int steps, double bound) {
    const std::vector<double> expected = losses(c, cpu(), "float32", steps);
    EXPECT_LT(expected.back(), expected.front());
    for (const char* policy : {"float32", "mixed_bfloat16", "mixed_float16"}) {
      SCOPED_TRACE(policy);
      const std::vector<double> found = losses(c, gpu(), policy, steps);
      const double allowed = std::string_view(policy) == "float32" ? 1e-3 : bound;
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], allowed * expected[i]) << "step " << i;
    }
  }
};

TEST_F(GpuNetworks, ResnetAgreesWithTheCpuLong) {
  const Case c{[] { return keras::applications::resnet18({.width = 16}); },
               [] { return keras::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}); },
               models::random_inputs({16, 32, 32, 3}, 1), models::random_labels(16, 10, 2)};
  expect_agreement(c, 5, 0.04);
}

TEST_F(GpuNetworks, GptAgreesWithTheCpuLong) {
  const Case c{[] { return keras::applications::gpt_tiny(); },
               [] { return keras::optimizers::AdamW({.learning_rate = 1e-3}); },
               models::random_tokens({8, 64}, 256, 1), models::random_tokens({8, 64}, 256, 2)};
  expect_agreement(c, 5, 0.01);
}

TEST_F(GpuNetworks, TiedEmbeddingsAgreeWithTheCpu) {
  const Case c{[] {
                 return keras::applications::gpt2(
                     {.vocabulary = 120, .context = 32, .dim = 64, .depth = 1, .heads = 4});
               },
               [] { return keras::optimizers::AdamW({.learning_rate = 1e-3}); },
               models::random_tokens({4, 32}, 120, 1), models::random_tokens({4, 32}, 120, 2)};
  expect_agreement(c, 4, 0.01);
}

// Units are shared out over the blocks of a cluster, evenly or not, in fours or not, and examples over
// clusters; of 400 units a cluster does not hold the weights.
TEST_F(GpuNetworks, RecurrentLayersOfManyUnitsEqualTheCpus) {
  using keras::layers::GRU, keras::layers::LSTM, keras::layers::SimpleRNN;
  const auto layer = [](std::string_view kind, int64_t units) -> keras::Layer {
    if (kind == "lstm") return LSTM(units, {.return_sequences = true});
    if (kind == "gru") return GRU(units, {.return_sequences = true});
    return SimpleRNN(units, {.return_sequences = true});
  };
  for (const char* kind : {"lstm", "gru", "simple"})
    for (const int64_t units : {20, 73, 128, 320, 400})
      for (const int64_t batch : {3, 37, 150}) {
        SCOPED_TRACE(detail::concat(kind, " of ", units, " units, batch ", batch));
        const auto run = [&](Device& device) {
          const DeviceScope scope(device);
          set_random_seed(5);
          const keras::KerasTensor input = keras::Input({11, 5});
          const keras::Model model(input, layer(kind, units)(input));
          const Tensor x = models::random_inputs({batch, 11, 5}, 1).to(device);
          GradientTape tape;
          tape.watch(x);
          const Tensor y = model(x, {.training = true});
          const std::vector<Variable> weights = model.trainable_weights();
          std::vector<GradientSource> sources(weights.begin(), weights.end());
          sources.emplace_back(x);
          std::vector<std::vector<float>> found{y.to_vector<float>()};
          for (const Tensor& gradient : tape.gradient(reduce_sum(y * y), sources))
            found.push_back(gradient.to_vector<float>());
          return found;
        };
        const auto expected = run(cpu()), found = run(gpu());
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          double error = 0, size = 0;
          for (size_t k = 0; k < found[i].size(); ++k) {
            error += std::pow(found[i][k] - expected[i][k], 2);
            size += std::pow(expected[i][k], 2);
          }
          EXPECT_LE(std::sqrt(error / size), 1e-5) << "result " << i;
        }
      }
}

// What cuDNN has compiled is read back by the next who needs it; a file that is cut off is not.
TEST_F(GpuNetworks, AttentionFromCompiledCodeThatWasKeptHasTheSameBitsLong) {
  namespace fs = std::filesystem;
  const char *const cache = std::getenv("XDG_CACHE_HOME"), *const home = std::getenv("HOME");
  if (!cache && !home) GTEST_SKIP() << "there is no home to keep anything in";
  const fs::path folder = (cache ? fs::path(cache) : fs::path(home) / ".cache") / "lockstep" / "kernels";
  const auto kept = [&] {
    std::set<fs::path> found;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
      if (entry.path().extension() == ".cudnn") found.insert(entry.path());
    return found;
  };
  const DeviceScope scope(gpu());
  constexpr int64_t kLength = 344;  // that no other test has
  std::vector<Tensor> parts;
  for (uint64_t i = 1; i <= 3; ++i)
    parts.push_back(cast(models::random_inputs({2, kLength, 3, 32}, i).to(gpu()), DType::bfloat16));
  const auto run = [&] {
    auto step = function([](const Tensor& q, const Tensor& k, const Tensor& v) {
      GradientTape tape;
      tape.watch(q);
      const Tensor y = cast(scaled_dot_product_attention(q, k, v, {.is_causal = true}), DType::float32);
      return tape.gradient(reduce_sum(y * y), q);
    });
    return cast(step(parts[0], parts[1], parts[2]), DType::float32).to_vector<float>();
  };
  const std::set<fs::path> before = kept();
  const std::vector<float> first = run();
  std::set<fs::path> files = kept();
  for (const fs::path& file : before) files.erase(file);
  if (files.empty()) GTEST_SKIP() << "cuDNN compiles nothing for this GPU";
  EXPECT_EQ(run(), first);
  for (const fs::path& file : files) fs::resize_file(file, fs::file_size(file) / 2);
  EXPECT_EQ(run(), first) << "of files that are cut off";
  EXPECT_EQ(run(), first);
  for (const fs::path& file : files) fs::remove(file);
}

// Pictures of three colours are folded for cuDNN; the same numbers must come out, on the edges too.
TEST_F(GpuNetworks, StridedConvolutionsOfFewChannelsEqualTheCpus) {
  struct Setup {
    Shape x, filter;
    const char* padding;
  };
  for (const Setup& setup :
       {Setup{{2, 17, 20, 3}, {7, 7, 3, 8}, "same"}, Setup{{1, 16, 13, 3}, {3, 4, 3, 16}, "valid"},
        Setup{{2, 9, 9, 1}, {2, 5, 1, 8}, "same"}}) {
    const auto run = [&](Device& device) {
      const DeviceScope scope(device);
      const auto made = [&](const Shape& shape, uint64_t seed) {
        return cast(models::random_inputs(shape, seed).to(device), DType::bfloat16);
      };
      const Tensor x = made(setup.x, 1), filter = made(setup.filter, 2);
      GradientTape tape;
      tape.watch(filter);
      const Tensor y = conv2d(x, filter, {.strides = {2}, .padding = setup.padding});
      const Tensor gradient = tape.gradient(reduce_sum(cast(y, DType::float32) * 0.125), filter);
      return std::pair(cast(y, DType::float32).to_vector<float>(),
                       cast(gradient, DType::float32).to_vector<float>());
    };
    const auto expected = run(cpu()), found = run(gpu());
    const auto compare = [](const std::vector<float>& a, const std::vector<float>& b) {
      ASSERT_EQ(a.size(), b.size());
      float most = 0;
      for (const float v : a) most = std::max(most, std::abs(v));
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.02 * most) << "element " << i;
    };
    compare(expected.first, found.first);
    compare(expected.second, found.second);
  }
}

// Long rows of 16 bits have a kernel of their own for a loss and its gradient.
TEST_F(GpuNetworks, LossesOfManyClassesEqualTheCpus) {
  for (const int64_t classes : {8200, 50304, 100000}) {
    SCOPED_TRACE(classes);
    constexpr int64_t kRows = 300;
    const auto run = [&](Device& device, DType dtype) {
      const DeviceScope scope(device);
      auto step = function([&](const Tensor& logits, const Tensor& labels) {
        GradientTape tape;
        tape.watch(logits);
        const Tensor losses =
            sparse_softmax_cross_entropy_with_logits(labels, cast(cast(logits, dtype), DType::float32));
        const Tensor gradient = tape.gradient(reduce_mean(losses), logits);
        return std::tuple(losses, cast(cast(gradient, dtype), DType::float32));
      });
      Tensor logits = models::random_inputs({kRows, classes}, 1) * 6.0F;
      logits = cast(cast(logits, DType::bfloat16), DType::float32);
      const Tensor labels = models::random_labels(kRows, classes, 2);
      const auto [losses, gradient] = step(logits.to(device), labels.to(device));
      return std::pair(losses.template to_vector<float>(), gradient.template to_vector<float>());
    };
    const auto expected = run(cpu(), DType::float32), found = run(gpu(), DType::bfloat16);
    for (size_t i = 0; i < expected.first.size(); ++i)
      ASSERT_NEAR(expected.first[i], found.first[i], 1e-4 * expected.first[i]) << "row " << i;
    for (size_t i = 0; i < expected.second.size(); ++i)
      ASSERT_NEAR(expected.second[i], found.second[i], 0.005 * std::abs(expected.second[i]) + 1e-12)
          << "element " << i;
  }
}

// 1 + erf(x) is cheaper for results of 16 bits, and none the worse.
TEST_F(GpuNetworks, GeluIsRightToTheLastOfSixteenBits) {
  const auto run = [](Device& device, DType dtype) {
    const DeviceScope scope(device);
    std::vector<float> values;
    for (float x = -9; x <= 9; x += 0.001F) values.push_back(static_cast<float>(BFloat16(x)));
    const auto size = static_cast<int64_t>(values.size());
    const Tensor input = cast(Tensor::from(values, {size}).to(device), dtype);
    auto both = function([](const Tensor& x) {
      GradientTape tape;
      tape.watch(x);
      const Tensor y = gelu(x);
      return std::tuple(cast(y, DType::float64), cast(tape.gradient(reduce_sum(y), x), DType::float64));
    });
    const auto [y, dx] = both(input);
    return std::pair(y.template to_vector<double>(), dx.template to_vector<double>());
  };
  const auto expected = run(cpu(), DType::float64);
  for (const auto& [dtype, last] : {std::pair(DType::bfloat16, 0x1p-8), {DType::float16, 0x1p-11}}) {
    SCOPED_TRACE(dtype);
    const auto found = run(gpu(), dtype);
    for (size_t i = 0; i < expected.first.size(); ++i) {
      // Half of the last place, and a little of what float32 leaves over.
      ASSERT_NEAR(expected.first[i], found.first[i], 1.02 * last * std::abs(expected.first[i]) + 3e-7)
          << "element " << i;
      ASSERT_NEAR(expected.second[i], found.second[i], 1.02 * last * std::abs(expected.second[i]) + 3e-7)
          << "element " << i;
    }
  }
}

// While tracing, every launch is timed on the device.
TEST_F(GpuNetworks, ProfileNamesEveryKernel) {
  const DeviceScope scope(gpu());
  models::Mlp model(7);
  auto optimizer = keras::optimizers::Adam();
  auto step =
      function([&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); });
  const Tensor x = models::random_inputs({256, 784}, 1).to(gpu()),
               y = models::random_labels(256, 10, 1).to(gpu());
  for (int i = 0; i < 3; ++i) step(x, y);
  observe::start_tracing();
  for (int i = 0; i < 2; ++i) step(x, y);
  observe::stop_tracing();
  const auto profile = observe::kernel_profile(observe::take_trace());
  int64_t calls = 0;
  for (const observe::KernelTime& kernel : profile) {
    EXPECT_GT(kernel.total_ns, 0) << kernel.name;
    EXPECT_LT(kernel.total_ns, 100'000'000) << kernel.name;
    calls += kernel.calls;
  }
  EXPECT_EQ(calls, 2 * step.statistics(x, y).launches);
}

}  // namespace
}  // namespace lockstep::testing
