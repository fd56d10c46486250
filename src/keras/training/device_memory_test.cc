#include "keras/training/device_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "device/device_backend.h"
#include "device/host_stream.h"

namespace lockstep::keras {
namespace {

class FakeGpu final : public DeviceBackend {
 public:
  FakeGpu(int index, int physical, int64_t limit)
      : DeviceBackend(DeviceKind::gpu, index, 1), physical_(physical), limit_(limit), stream_(*this) {}
  int physical() const override { return physical_; }
  MemoryInfo memory_info() const override { return {.limit = limit_}; }

  void* allocate(size_t, std::source_location) override { return nullptr; }
  void deallocate(void*, size_t) noexcept override {}
  void copy_from_host(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {}
  void copy_from_device(void*, DeviceBackend&, const void*, size_t) override {}
  void reset_peak_memory() override {}
  void set_memory_limit(int64_t) override {}
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<HostStream>(*this); }
  std::unique_ptr<Event> new_event(Event::Timed timed) override { return std::make_unique<HostEvent>(timed); }

 private:
  int physical_;
  int64_t limit_;
  HostStream stream_;
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
