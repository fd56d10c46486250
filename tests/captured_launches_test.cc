// What captured launches say of their order is enough: any order that keeps it gives the same bits.
#include <gtest/gtest.h>

#include <random>

#include "device/host_memory_device_test.h"
#include "devices.h"
#include "execute/bound_plan.h"
#include "lockstep/execute/function.h"
#include "models/models.h"

namespace lockstep {
namespace {

// Launches in another order every time, as far as they may.
class ShuffledGraph final : public CapturedGraph {
 public:
  ShuffledGraph(std::span<const CapturedLaunch> launches, std::mt19937& random, int& choices, size_t& widest)
      : launches_(launches.begin(), launches.end()), random_(random), choices_(choices), widest_(widest) {}

  void replay(Stream& stream) override {
    std::vector<bool> done(launches_.size(), false);
    for (size_t left = launches_.size(); left > 0; --left) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < launches_.size(); ++i) {
        bool waits = done[i];
        for (const size_t earlier : launches_[i].after) waits = waits || !done[earlier];
        if (!waits) ready.push_back(i);
      }
      choices_ += ready.size() > 1 ? 1 : 0;
      widest_ = std::max(widest_, ready.size());
      const size_t chosen = ready[random_() % ready.size()];
      launches_[chosen].launch(stream);
      done[chosen] = true;
    }
  }

 private:
  std::vector<CapturedLaunch> launches_;
  std::mt19937& random_;
  int& choices_;
  size_t& widest_;
};

// One that could work later, and does at once.
class EagerStream final : public HostStream {
 public:
  explicit EagerStream(DeviceBackend& device) : HostStream(device, true) {}
};

// A CPU that captures graphs, as GPUs do.
class CapturingDevice final : public testing::HostMemoryDevice {
 public:
  CapturingDevice() : HostMemoryDevice(DeviceKind::cpu, 77, 1) {}

  Stream& compute_stream() override { return stream_; }
  bool captures_graphs() const override { return true; }
  std::unique_ptr<CapturedGraph> capture_graph(std::span<const CapturedLaunch> launches) override {
    return std::make_unique<ShuffledGraph>(launches, random, choices, widest);
  }

  std::mt19937 random{5};
  int choices = 0;    // launches of which another could have come first
  size_t widest = 0;  // most that could have run side by side

 private:
  EagerStream stream_{*this};
};

std::vector<std::vector<float>> train(models::Model& model, const Tensor& x, const Tensor& labels,
                                      int steps) {
  auto optimizer = keras::optimizers::Adam();
  auto step = function(
      [&](const Tensor& in, const Tensor& y) { return models::train_step(model, optimizer, in, y); });
  std::vector<std::vector<float>> results;
  for (int i = 0; i < steps; ++i) results.push_back(step(x, labels).to_vector<float>());
  for (const Variable& variable : model.variables()) results.push_back(variable.value().to_vector<float>());
  return results;
}

template <class Make>
void expect_same_bits_in_any_order(Make make, const Shape& input) {
  const auto run = [&](Device& device) {
    const DeviceScope scope(device);
    const auto model = make();
    return train(*model, models::random_inputs(input, 1), models::random_labels(input[0], 10, 2), 12);
  };
  static auto* device =
      new Device(std::make_unique<CapturingDevice>());  // devices live until the process ends
  const auto& capturing = static_cast<const CapturingDevice&>(backend_of(*device));
  const auto expected = run(*first_devices(1)[0]);
  const auto shuffled = run(*device);
  EXPECT_GT(capturing.choices, 0) << "nothing was captured, or nothing in it could run side by side";
  EXPECT_LE(capturing.widest, execute::BoundPlan::kBranches);
  EXPECT_EQ(expected, shuffled);
}

TEST(CapturedLaunches, MlpHasTheSameBitsInAnyOrder) {
  expect_same_bits_in_any_order([] { return std::make_unique<models::Mlp>(7, 0, DType::float32, 30, 16); },
                                {8, 30});
}

TEST(CapturedLaunches, ConvNetHasTheSameBitsInAnyOrder) {
  expect_same_bits_in_any_order(
      [] { return std::make_unique<models::ConvNet>(7, true, DType::float32, 14, 4, 16); }, {4, 14, 14, 1});
}

}  // namespace
}  // namespace lockstep
