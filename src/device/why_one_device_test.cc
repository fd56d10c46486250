#include "device/why_one_device.h"

#include <gtest/gtest.h>

#include "device/configuration.h"

namespace lockstep {
namespace {

TEST(WhyOneDevice, NamesTheDriverThatIsMissingAndHowToSplitTheCpu) {
  EXPECT_EQ(why_one_device({.cores = 4}),
            "no NVIDIA driver (libcuda.so.1); set_logical_cpus({.count = 4}) splits the CPU");
  EXPECT_EQ(why_one_device({.driver = true, .problem = "plugin cuda is not loaded: x", .cores = 1}),
            "plugin cuda is not loaded: x; set_logical_cpus({.count = 2}) splits the CPU");
}

TEST(WhyOneDevice, NamesWhatHidesGpus) {
  EXPECT_EQ(
      why_one_device({.gpus = 1, .visible_gpus = 1, .gpus_of_machine = 4, .driver = true, .shown = "1"}),
      "CUDA_VISIBLE_DEVICES=1 leaves 1 GPU of 4");
  EXPECT_EQ(why_one_device({.gpus = 1, .visible_gpus = 1, .gpus_of_machine = 4, .driver = true}),
            "CUDA shows 1 GPU of 4");
  EXPECT_EQ(why_one_device({.gpus = 4, .visible_gpus = 1, .gpus_of_machine = 4, .driver = true}),
            "set_visible_devices() leaves 1 GPU of 4");
  EXPECT_EQ(why_one_device({.gpus = 4, .gpus_of_machine = 4, .driver = true, .cores = 2}),
            "set_visible_devices() leaves no GPU of 4; set_logical_cpus({.count = 2}) splits the CPU");
  EXPECT_EQ(why_one_device({.gpus_of_machine = 4, .driver = true, .shown = "-1", .cores = 2}),
            "CUDA_VISIBLE_DEVICES=\"-1\" hides all GPUs; set_logical_cpus({.count = 2}) splits the CPU");
}

TEST(WhyOneDevice, IsSilentWhereNoMoreCouldBeExpected) {
  EXPECT_EQ(why_one_device({.gpus = 1, .visible_gpus = 1, .gpus_of_machine = 1, .driver = true}), "");
  EXPECT_EQ(why_one_device({.cpus_chosen = true, .cores = 4}), "");
}

TEST(WhyNoGpu, NamesWhatKeepsItFromBeingUsed) {
  EXPECT_EQ(why_no_gpu({.gpus_of_machine = 1, .driver = true, .problem = "plugin cuda is not loaded: x"}),
            "plugin cuda is not loaded: x");
  EXPECT_EQ(why_no_gpu({.gpus_of_machine = 1}), "no NVIDIA driver (libcuda.so.1)");
}

TEST(WhyNoGpu, IsSilentWhereThereIsNoneOrSomebodyLeavesItOut) {
  EXPECT_EQ(why_no_gpu({.problem = "there is no plugin"}), "");
  EXPECT_EQ(why_no_gpu({.gpus = 1, .visible_gpus = 1, .gpus_of_machine = 1, .driver = true}), "");
  EXPECT_EQ(why_no_gpu({.gpus = 1, .gpus_of_machine = 1, .driver = true}), "");
  for (const char* shown : {"", "-1"})
    EXPECT_EQ(why_no_gpu({.gpus_of_machine = 1, .driver = true, .problem = "x", .shown = shown}), "");
}

TEST(WhyOneDevice, KnowsWhetherTheProgramHasChosenItsCpus) {
  const config::PhysicalDevice cpu{"/physical_device:CPU:0", "CPU"}, gpu{"/physical_device:GPU:0", "GPU"};
  Configuration settings({cpu, gpu}, 8, {});
  settings.set_visible_devices({}, "GPU", std::source_location::current());
  EXPECT_FALSE(device_facts(settings).cpus_chosen);
  EXPECT_EQ(device_facts(settings).gpus, 1);
  EXPECT_EQ(device_facts(settings).visible_gpus, 0);
  // One is a number, too.
  settings.set_logical_devices(cpu, {{}}, std::source_location::current());
  EXPECT_TRUE(device_facts(settings).cpus_chosen);
}

}  // namespace
}  // namespace lockstep
