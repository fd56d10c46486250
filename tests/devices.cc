#include "devices.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class LogicalDevices final : public testing::Environment {
  void SetUp() override { set_logical_cpus({.threads_of = {1, 1, 1, 1, 1, 1, 1, 1, 2}}); }
};

const auto* const registered = testing::AddGlobalTestEnvironment(new LogicalDevices);

}  // namespace

std::vector<Device*> first_devices(int count) {
  const auto all = logical_devices();
  return {all.begin(), all.begin() + count};
}

Device& two_thread_device() { return device_by_name("/CPU:8"); }

}  // namespace lockstep
