#include "lockstep/device/null_device.h"

#include <gtest/gtest.h>

#include "devices.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "models/models.h"

namespace lockstep {
namespace {

constexpr int64_t kHuge = int64_t{1} << 20;

TEST(NullDevice, AnswersForTensorsFarLargerThanMemory) {
  const DeviceScope scope(null_device());
  null_device().reset_counters();
  const Tensor a = Tensor::empty(DType::float32, {kHuge, kHuge});  // 4 TiB
  const Tensor product = matmul(a, a);
  EXPECT_EQ(product.shape(), Shape({kHuge, kHuge}));
  EXPECT_EQ(null_device().counters().flops, 2 * kHuge * kHuge * kHuge);
  EXPECT_GE(null_device().memory_info().current, 2 * kHuge * kHuge * 4);
}

TEST(NullDevice, HasNoElementsToRead) {
  const DeviceScope scope(null_device());
  const Tensor x = Tensor::full(DType::float32, {2}, 1.0);
  EXPECT_THROW(x.to_vector<float>(), Error);
  EXPECT_THROW(x.data<float>(), Error);
}

TEST(NullDevice, MemoryComesBack) {
  const int64_t before = null_device().memory_info().current;
  { const Tensor x = Tensor::empty(DType::float32, {kHuge}, null_device()); }
  EXPECT_EQ(null_device().memory_info().current, before);
}

TEST(NullDevice, PlansATrainingStepAsTheCpuDoes) {
  constexpr int64_t kBatch = 48;
  const auto figures_on = [&](Device& device) {
    const DeviceScope scope(device);
    models::Mlp model(1);
    auto optimizer = keras::optimizers::Adam();
    auto step = function(
        [&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); });
    const Tensor x = models::random_inputs({kBatch, 784}, 1);
    const Tensor y = models::random_labels(kBatch, 10, 2);
    step(x, y);
    return step.statistics(x, y);
  };
  null_device().reset_counters();
  const ProgramStatistics planned = figures_on(null_device());
  const ProgramStatistics real = figures_on(*first_devices(1)[0]);
  EXPECT_EQ(planned.flops, real.flops);
  EXPECT_EQ(planned.launches, real.launches);
  EXPECT_EQ(null_device().counters().flops, planned.flops);
  // Kernels' workspaces and in-place chances are the CPU's own; without them memory is close.
  EXPECT_NEAR(static_cast<double>(planned.peak_bytes), static_cast<double>(real.peak_bytes),
              0.1 * static_cast<double>(real.peak_bytes));
}

}  // namespace
}  // namespace lockstep
