#include "lockstep/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>
#include <thread>

#include "base/error_of_test.h"
#include "device/cpu_device.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::source_location here(std::source_location where = std::source_location::current()) { return where; }

// --- names and scopes --------------------------------------------------------------------------------------

TEST(Devices, ThereIsOneOfAllCoresUnlessToldOtherwise) {
  ASSERT_EQ(logical_devices().size(), 1u);
  const Device& cpu = *logical_devices()[0];
  EXPECT_EQ(cpu.name(), "/CPU:0");
  EXPECT_EQ(cpu.kind(), DeviceKind::cpu);
  EXPECT_EQ(cpu.index(), 0);
  EXPECT_EQ(cpu.threads(), available_cores());
  EXPECT_TRUE(backend_of(cpu).has_memory());
  EXPECT_EQ(&current_device(), &cpu);
  std::ostringstream out;
  out << cpu;
  EXPECT_EQ(out.str(), "/CPU:0");
}

TEST(Devices, AreFoundByName) {
  for (const char* name : {"/CPU:0", "CPU:0", "cpu:0", "/cpu:0", "/device:CPU:0", "CPU"})
    EXPECT_EQ(&device_by_name(name), logical_devices()[0]) << name;
}

TEST(Devices, AnUnknownNameListsWhatThereIs) {
  for (const char* name : {"/GPU:0", "cpu:1", "/job:worker/CPU:0", ""}) {
    const uint32_t line = here().line() + 1;
    const Error error = error_of([&] { device_by_name(name); });
    EXPECT_EQ(error.code(), *name ? ErrorCode::device_mismatch : ErrorCode::invalid_argument);
    EXPECT_THAT(error.message(), AllOf(HasSubstr(std::string("\"") + name + "\""), HasSubstr("/CPU:0")));
    EXPECT_EQ(error.where().line(), line);
  }
}

TEST(Devices, KindsHaveNames) {
  EXPECT_EQ(name(DeviceKind::cpu), "CPU");
  EXPECT_EQ(name(DeviceKind::gpu), "GPU");
  EXPECT_EQ(name(DeviceKind::null), "NULL");
}

// What left last.
HostBlock& left_last() {
  static HostBlock block;
  return block;
}

TEST(HostBlocks, AreFoundUntilTheyGoBackToTheSystem) {
  constexpr size_t kBytes = 2 * kLargeHostBlock;
  watch_host_blocks([](const HostBlock& block) { left_last() = block; });
  void *large = nullptr, *small = nullptr;
  {
    CpuDevice device(300, 1);
    large = device.allocate(kBytes, std::source_location::current());
    small = device.allocate(kLargeHostBlock / 2, std::source_location::current());
    const auto* const bytes = static_cast<const char*>(large);
    const HostBlock found = find_host_block(bytes + 100, kBytes - 100);
    EXPECT_EQ(found.data, large);
    EXPECT_GE(found.bytes, kBytes);
    EXPECT_EQ(find_host_block(bytes + 100, found.bytes).data, nullptr) << "it ends before";
    EXPECT_EQ(find_host_block(small, 1).data, nullptr) << "small ones are not known";
    device.deallocate(large, kBytes);
    device.deallocate(small, kLargeHostBlock / 2);
    EXPECT_EQ(find_host_block(large, kBytes).data, large) << "the device keeps it";
    EXPECT_EQ(left_last().data, nullptr);
  }
  watch_host_blocks(nullptr);
  EXPECT_EQ(left_last().data, large);
  EXPECT_EQ(find_host_block(large, kBytes).data, nullptr);
}

TEST(DeviceScopes, NestAndBelongToTheirThread) {
  Device a(std::make_unique<CpuDevice>(10, 1)), b(std::make_unique<CpuDevice>(11, 1));
  Device& outside = current_device();
  {
    const DeviceScope outer(a);
    EXPECT_EQ(&current_device(), &a);
    {
      const DeviceScope inner(b);
      EXPECT_EQ(&current_device(), &b);
      Device* elsewhere = nullptr;
      std::thread([&] { elsewhere = &current_device(); }).join();
      EXPECT_EQ(elsewhere, &outside);
    }
    EXPECT_EQ(&current_device(), &a);
    try {
      const DeviceScope thrown(b);
      throw 1;
    } catch (int) {
    }
    EXPECT_EQ(&current_device(), &a);
  }
  EXPECT_EQ(&current_device(), &outside);
}

TEST(LogicalCpus, CannotChangeOnceADeviceWasUsed) {
  logical_devices();
  set_logical_cpus({});  // as it is
  const uint32_t line = here().line() + 1;
  const Error error = error_of([] { set_logical_cpus({.count = 4}); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("after being initialized"), HasSubstr("before the first tensor")));
  EXPECT_EQ(error.where().line(), line);
  EXPECT_EQ(logical_devices().size(), 1u);
}

TEST(LogicalCpus, RefuseNonsense) {
  const LogicalCpuOptions wrong[] = {{.count = 0},
                                     {.count = -1},
                                     {.count = 257},
                                     {.threads = -1},
                                     {.threads_of = {0}},
                                     {.threads_of = {2, -1}},
                                     {.threads_of = std::vector<int>(257, 1)}};
  for (const LogicalCpuOptions& options : wrong)
    EXPECT_EQ(error_of([&] { set_logical_cpus(options); }).code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error_of([] { set_logical_cpus({.count = -3, .threads = 5}); }).message(),
              AllOf(HasSubstr("count=-3"), HasSubstr("threads=5")));
}

// --- memory ------------------------------------------------------------------------------------------------

class Memory : public testing::Test {
 protected:
  CpuDevice device_{7, 2};
};

TEST_F(Memory, IsAlignedAndWritable) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000},
                             size_t{100'000}, size_t{3} << 20}) {
    void* data = device_.allocate(bytes, here());
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    std::memset(data, 0x5a, bytes);
    device_.deallocate(data, bytes);
  }
  EXPECT_EQ(device_.memory_info().current, 0);
}

TEST_F(Memory, IsCountedWithAtMostAQuarterOfWaste) {
  for (size_t bytes = 1; bytes < 100'000'000; bytes = bytes * 3 / 2 + 1) {
    void* data = device_.allocate(bytes, here());
    const int64_t held = device_.memory_info().current;
    EXPECT_GE(held, static_cast<int64_t>(bytes));
    EXPECT_LE(held, static_cast<int64_t>(bytes + bytes / 4 + 64)) << bytes;
    device_.deallocate(data, bytes);
    EXPECT_EQ(device_.memory_info().current, 0);
  }
}

TEST_F(Memory, FreedBlocksAreUsedAgain) {
  void* first = device_.allocate(1000, here());
  device_.deallocate(first, 1000);
  void* second = device_.allocate(990, here());  // of the same class
  EXPECT_EQ(first, second);
  void* third = device_.allocate(1000, here());
  EXPECT_NE(second, third);
  device_.deallocate(second, 990);
  device_.deallocate(third, 1000);
}

TEST_F(Memory, PeakIsTheHighestSinceItsReset) {
  void* a = device_.allocate(1024, here());
  void* b = device_.allocate(4096, here());
  device_.deallocate(b, 4096);
  EXPECT_EQ(device_.memory_info().peak, 1024 + 4096);
  device_.reset_peak_memory();
  EXPECT_EQ(device_.memory_info().peak, 1024);
  device_.deallocate(a, 1024);
  EXPECT_EQ(device_.memory_info().peak, 1024);
}

TEST_F(Memory, NothingIsFreedForNull) {
  device_.deallocate(nullptr, 100);
  EXPECT_EQ(device_.memory_info().current, 0);
}

TEST_F(Memory, TheLimitHoldsAndSaysWhatWasAskedAndHeld) {
  void* held = device_.allocate(4096, here());
  device_.set_memory_limit(8192);
  EXPECT_EQ(device_.memory_info().limit, 8192);
  const auto where = here();
  const Error error = error_of([&] { device_.allocate(5000, where); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("/CPU:7"), HasSubstr("5000 bytes"), HasSubstr("4096"), HasSubstr("8192")));
  EXPECT_EQ(error.where().line(), where.line());
  EXPECT_EQ(device_.memory_info().current, 4096) << "a refused request holds nothing";
  void* fits = device_.allocate(4096, here());
  device_.deallocate(fits, 4096);
  device_.set_memory_limit(0);
  device_.deallocate(device_.allocate(100'000, here()), 100'000);
  device_.deallocate(held, 4096);
}

TEST_F(Memory, TheLimitIsNotBelowWhatIsHeld) {
  void* held = device_.allocate(4096, here());
  const Error error = error_of([&] { device_.set_memory_limit(1000); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("4096"), HasSubstr("1000")));
  EXPECT_EQ(device_.memory_info().limit, 0);
  device_.deallocate(held, 4096);
}

TEST_F(Memory, WhatTheSystemRefusesIsAnError) {
  for (const size_t bytes : {size_t{1} << 60, ~size_t{0} / 2, ~size_t{0} - 100}) {
    const Error error = error_of([&] { device_.allocate(bytes, here()); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("/CPU:7"), HasSubstr(std::to_string(bytes))));
  }
  EXPECT_EQ(device_.memory_info().current, 0);
}

TEST_F(Memory, ThreadsShareADevice) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 1; i < 500; ++i) {
        const size_t bytes = (i * 37 + static_cast<size_t>(t)) % 5000 + 1;
        auto* data = static_cast<unsigned char*>(device_.allocate(bytes, here()));
        std::memset(data, t, bytes);
        ASSERT_EQ(data[bytes - 1], t);
        device_.deallocate(data, bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device_.memory_info().current, 0);
}

TEST_F(Memory, HostCopiesArriveWhole) {
  const char text[] = "elements";
  char back[sizeof text] = {};
  void* data = device_.allocate(sizeof text, here());
  device_.copy_from_host(data, text, sizeof text);
  device_.copy_to_host(back, data, sizeof text);
  EXPECT_STREQ(back, text);
  device_.copy_from_host(nullptr, nullptr, 0);
  device_.deallocate(data, sizeof text);
}

TEST_F(Memory, CountersAddUpUntilTheyAreReset) {
  device_.count_kernels(3, 100);
  device_.count_kernels(1, 11);
  device_.count_copy(5, 0);
  device_.count_copy(1, 20);
  EXPECT_EQ(device_.counters().kernels, 4);
  EXPECT_EQ(device_.counters().flops, 111);
  EXPECT_EQ(device_.counters().bytes_copied_in, 6);
  EXPECT_EQ(device_.counters().bytes_copied_out, 20);
  device_.reset_counters();
  EXPECT_EQ(device_.counters().kernels + device_.counters().flops + device_.counters().bytes_copied_in +
                device_.counters().bytes_copied_out,
            0);
}

}  // namespace
}  // namespace lockstep
