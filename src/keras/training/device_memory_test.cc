#include "keras/training/device_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "device/host_memory_device_test.h"

namespace lockstep::keras {
namespace {

class FakeGpu final : public testing::HostMemoryDevice {
 public:
  FakeGpu(int index, int physical, int64_t limit)
      : HostMemoryDevice(DeviceKind::gpu, index, 1), physical_(physical), limit_(limit) {}
  int physical() const override { return physical_; }
  MemoryInfo memory_info() const override { return {.limit = limit_}; }

 private:
  int physical_;
  int64_t limit_;
};

int64_t memory_of_gpu(int index, int physical, int64_t limit, std::span<const PhysicalGpu> gpus) {
  return memory_of(Device(std::make_unique<FakeGpu>(index, physical, limit)), gpus);
}

TEST(DeviceMemory, IsThatOfTheGpuThatTheDeviceIsAShareOf) {
  const std::vector<PhysicalGpu> gpus{{.name = "small", .uuid = "", .memory = 8 << 20},
                                      {.name = "large", .uuid = "", .memory = 80 << 20}};
  EXPECT_EQ(memory_of_gpu(0, 0, 0, gpus), 8 << 20);
  EXPECT_EQ(memory_of_gpu(1, 1, 0, gpus), 80 << 20);
  EXPECT_EQ(memory_of_gpu(2, 1, 0, gpus), 80 << 20) << "the second logical device of the second GPU";
  EXPECT_EQ(memory_of_gpu(1, 1, 3 << 20, gpus), 3 << 20) << "a limit goes first";
  EXPECT_EQ(memory_of_gpu(2, 2, 0, gpus), 0) << "nothing is known of this GPU";
}

TEST(DeviceMemory, IsTheHostsForACpu) {
  const int64_t host = memory_of(device_by_name("/CPU:0"));
  EXPECT_GT(host, 64 << 20);
  const std::vector<PhysicalGpu> gpus{{.name = "small", .uuid = "", .memory = 1}};
  EXPECT_EQ(memory_of(device_by_name("/CPU:0"), gpus), host);
}

}  // namespace
}  // namespace lockstep::keras
