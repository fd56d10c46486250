// What a recording says of the order of its launches is enough: any order that keeps it gives the same bits.
#include <gtest/gtest.h>

#include <random>

#include "device/launch_graph.h"
#include "devices.h"
#include "execute/program.h"
#include "host_memory_device.h"
#include "lockstep/execute/function.h"
#include "models/models.h"

namespace lockstep {
namespace {

// Launches in another order every time, as far as they may.
class ShuffledGraph final : public LaunchGraph {
 public:
  ShuffledGraph(std::span<const RecordedLaunch> launches, std::mt19937& random, int& choices, size_t& widest)
      : launches_(launches.begin(), launches.end()), random_(random), choices_(choices), widest_(widest) {}

  void launch() override { launch_on(nullptr); }
  void launch_on(void*) override {
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
      launches_[chosen].launch(nullptr);
      done[chosen] = true;
    }
  }

 private:
  std::vector<RecordedLaunch> launches_;
  std::mt19937& random_;
  int& choices_;
  size_t& widest_;
};

// A CPU that records, as GPUs do.
class RecordingDevice final : public testing::HostMemoryDevice {
 public:
  RecordingDevice() : HostMemoryDevice(DeviceKind::cpu, 77, 1) {}

  void* stream() const override { return const_cast<RecordingDevice*>(this); }
  std::unique_ptr<LaunchGraph> record(std::span<const RecordedLaunch> launches) override {
    return std::make_unique<ShuffledGraph>(launches, random, choices, widest);
  }

  std::mt19937 random{5};
  int choices = 0;    // launches of which another could have come first
  size_t widest = 0;  // most that could have run side by side
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
  static auto* device = new RecordingDevice;  // devices live until the process ends
  const auto expected = run(*first_devices(1)[0]);
  const auto shuffled = run(*device);
  EXPECT_GT(device->choices, 0) << "nothing was recorded, or nothing in it could run side by side";
  EXPECT_LE(device->widest, execute::Program::kLanes);
  EXPECT_EQ(expected, shuffled);
}

TEST(RecordedLaunches, MlpHasTheSameBitsInAnyOrder) {
  expect_same_bits_in_any_order([] { return std::make_unique<models::Mlp>(7, 0, DType::float32, 30, 16); },
                                {8, 30});
}

TEST(RecordedLaunches, ConvNetHasTheSameBitsInAnyOrder) {
  expect_same_bits_in_any_order(
      [] { return std::make_unique<models::ConvNet>(7, true, DType::float32, 14, 4, 16); }, {4, 14, 14, 1});
}

}  // namespace
}  // namespace lockstep
