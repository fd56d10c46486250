#include "bench/gpu.h"

#include <memory>

#include "lockstep/compile/function.h"
#include "lockstep/device/config.h"
#include "models/models.h"

namespace lockstep::bench {
namespace {

// A GPU works behind the program's back: so many steps are made before it is waited for.
constexpr int64_t kSteps = 500;

struct Mlp {
  models::Mlp model{7};
  keras::optimizers::Optimizer optimizer = keras::optimizers::Adam();
};

}  // namespace

std::vector<Candidate> gpu_mlp_candidates(int64_t batch) {
  if (config::list_logical_devices("GPU").empty()) return {};
  Device& gpu = device_by_name("/GPU:0");
  const auto candidate = [&](const char* name, const Tensor& x, const Tensor& y) {
    const DeviceScope scope(gpu);
    auto mlp = std::make_shared<Mlp>();
    auto step = function([mlp](const Tensor& images, const Tensor& labels) {
      return models::train_step(mlp->model, mlp->optimizer, images, labels);
    });
    const auto run = [=, &gpu]() mutable {
      const DeviceScope here(gpu);
      for (int64_t i = 0; i < kSteps; ++i) step(x, y);
      gpu.synchronize();
    };
    return whole(name, run, kSteps);
  };
  const Tensor x = models::random_inputs({batch, 784}, 1).to(gpu);
  const Tensor y = models::random_labels(batch, 10, 1).to(gpu);
  Device& host = device_by_name("/CPU:0");
  return {candidate("Lockstep, batch on the card", x, y),
          candidate("Lockstep, batch from the host", x.to(host), y.to(host))};
}

}  // namespace lockstep::bench
