#include "device/ceilings.h"

#include <gtest/gtest.h>

#include "lockstep/device/null_device.h"

namespace lockstep {
namespace {

// NVIDIA's data sheets, at the clocks that they are for.
TEST(GpuPeaks, AreThoseOfTheDataSheets) {
  const GpuPeaks a100 = gpu_peaks(80, 108, 1410);
  EXPECT_NEAR(a100.float32, 19.5e12, 0.1e12);
  EXPECT_NEAR(a100.half, 312e12, 1e12);
  const GpuPeaks h100 = gpu_peaks(90, 132, 1830);
  EXPECT_NEAR(h100.half, 989e12, 1e12);
  EXPECT_NEAR(gpu_peaks(90, 132, 1980).float32, 67e12, 0.2e12);
  EXPECT_EQ(gpu_peaks(75, 40, 1590).half, 0) << "tensor cores without bfloat16";
  EXPECT_EQ(gpu_peaks(90, 0, 0).float32, 0) << "not told";
}

TEST(PeakFlops, Float32IsComputedByTheFasterUnits) {
  EXPECT_EQ(peak_flops(GpuPeaks{.float32 = 60, .half = 900}).float32, 150)
      << "three products of TF32 for one";
  EXPECT_EQ(peak_flops(GpuPeaks{.float32 = 60, .half = 300}).float32, 60);
  EXPECT_EQ(peak_flops(GpuPeaks{.float32 = 60, .half = 900}).half, 900);
}

TEST(PeakFlops, OfACpuAreMeasuredAndOfAnUnknownDeviceNone) {
  const PeakFlops cpu = peak_flops(device_by_name("/CPU:0"));
  EXPECT_GT(cpu.float32, 1e8);
  EXPECT_EQ(cpu.half, cpu.float32);
  EXPECT_EQ(peak_flops(device_by_name("/CPU:0")).float32, cpu.float32) << "once per process";
  EXPECT_EQ(peak_flops(null_device()).float32, 0);
}

TEST(DevicesOfRun, DescribeWhatARunComputesOn) {
  observe::RunSummary summary;
  DevicesOfRun({&device_by_name("/CPU:0")}).describe(summary);
  EXPECT_GT(summary.setting.cores, 0);
  EXPECT_GT(summary.setting.flops_per_second, 0);
  EXPECT_FALSE(summary.setting.asynchronous);
}

}  // namespace
}  // namespace lockstep
