#include "device/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using config::PhysicalDevice;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::source_location here(std::source_location where = std::source_location::current()) { return where; }

// A machine of eight cores and two GPUs.
class Settings : public testing::Test {
 protected:
  template <class F>
  static void expect_error(ErrorCode code, const testing::Matcher<std::string>& message, F&& f) {
    try {
      f();
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.message(), message);
    }
  }
  void freeze() { settings_.freeze("list_logical_devices()", here()); }

  const PhysicalDevice cpu_{"/physical_device:CPU:0", "CPU"}, gpu_{"/physical_device:GPU:0", "GPU"},
      gpu1_{"/physical_device:GPU:1", "GPU"};
  Configuration settings_{{cpu_, gpu_, gpu1_}, 8, {}};
};

TEST_F(Settings, ListPhysicalDevicesByType) {
  EXPECT_THAT(settings_.physical_devices("", here()), ElementsAre(cpu_, gpu_, gpu1_));
  EXPECT_THAT(settings_.physical_devices("GPU", here()), ElementsAre(gpu_, gpu1_));
  EXPECT_THAT(settings_.physical_devices("cpu", here()), ElementsAre(cpu_));
  expect_error(ErrorCode::invalid_argument, HasSubstr("\"TPU\" is not a type of device"),
               [&] { settings_.physical_devices("TPU", here()); });
}

TEST_F(Settings, VisibleDevicesAreThoseOfTheTypeThatWereChosen) {
  EXPECT_THAT(settings_.visible_devices("", here()), ElementsAre(cpu_, gpu_, gpu1_));
  settings_.set_visible_devices({gpu1_}, "GPU", here());
  EXPECT_THAT(settings_.visible_devices("", here()), ElementsAre(cpu_, gpu1_));
  settings_.set_visible_devices({}, "GPU", here());
  EXPECT_THAT(settings_.visible_devices("GPU", here()), IsEmpty());
  settings_.set_visible_devices({cpu_, gpu_}, "", here());
  EXPECT_THAT(settings_.visible_devices("", here()), ElementsAre(cpu_, gpu_));
}

TEST_F(Settings, VisibleDevicesMustBeThereOnceAndOfTheType) {
  expect_error(ErrorCode::device_mismatch,
               AllOf(HasSubstr("/physical_device:GPU:7"), HasSubstr("/physical_device:GPU:1")), [&] {
                 settings_.set_visible_devices({{"/physical_device:GPU:7", "GPU"}}, "GPU", here());
               });
  expect_error(ErrorCode::invalid_argument, HasSubstr("not of type CPU"),
               [&] { settings_.set_visible_devices({gpu_}, "CPU", here()); });
  expect_error(ErrorCode::invalid_argument, HasSubstr("twice"), [&] {
    settings_.set_visible_devices({gpu_, gpu_}, "GPU", here());
  });
  for (const char* type : {"CPU", ""})
    expect_error(ErrorCode::invalid_argument, HasSubstr("the CPU cannot be hidden"),
                 [&] { settings_.set_visible_devices({}, type, here()); });
  EXPECT_EQ(settings_.visible_devices("", here()).size(), 3u);
}

TEST_F(Settings, CoresThatNobodyTakesAreSharedOut) {
  EXPECT_THAT(settings_.freeze("", here()).cpu_threads, ElementsAre(8));
  const auto threads = [&](std::vector<Configuration::Logical> logical, int intra_op = 0) {
    Configuration settings({cpu_}, 8, {});
    settings.set_logical_devices(cpu_, logical, here());
    settings.set_intra_op_threads(intra_op, here());
    return settings.freeze("", here()).cpu_threads;
  };
  EXPECT_THAT(threads({{}, {}, {}}), ElementsAre(2, 2, 2));
  EXPECT_THAT(threads({{.threads = 4}, {}, {}}), ElementsAre(4, 2, 2));
  EXPECT_THAT(threads({{.threads = 3}, {.threads = 7}}), ElementsAre(3, 7));
  EXPECT_THAT(threads({{.threads = 20}, {}}), ElementsAre(20, 1));
  EXPECT_THAT(threads({{.threads = 1}, {}}, 3), ElementsAre(1, 3));
}

TEST_F(Settings, LogicalDevicesAreCheckedByType) {
  const auto refused = [&](const PhysicalDevice& device, std::vector<Configuration::Logical> logical,
                           const char* reason) {
    expect_error(ErrorCode::invalid_argument,
                 AllOf(HasSubstr(reason), HasSubstr("set_logical_device_configuration")),
                 [&] { settings_.set_logical_devices(device, logical, here()); });
  };
  refused(cpu_, {}, "received 0");
  refused(cpu_, std::vector<Configuration::Logical>(257), "received 257");
  refused(cpu_, {{.threads = -1}}, "threads=-1");
  refused(cpu_, {{.memory_limit_mb = 100}}, "memory_limit_mb=100");
  refused(gpu_, {{.memory_limit_mb = -5}}, "memory_limit_mb=-5");
  refused(gpu_, {{.memory_limit_mb = 100, .threads = 2}}, "threads=2");
  refused(gpu_, {{.memory_limit_mb = 100}, {}}, "needs a memory_limit_mb");
  settings_.set_logical_devices(gpu_, {{.memory_limit_mb = 100}, {.memory_limit_mb = 200}}, here());
  EXPECT_EQ(settings_.logical_devices(gpu_, here()).size(), 2u);
  EXPECT_EQ(settings_.logical_devices(cpu_, here()).size(), 1u);
}

TEST_F(Settings, GrowthIsOnUnlessTurnedOffForEachGpuAlone) {
  EXPECT_TRUE(settings_.memory_growth(gpu_, here()));
  settings_.set_memory_growth(gpu_, false, here());
  EXPECT_FALSE(settings_.memory_growth(gpu_, here()));
  EXPECT_TRUE(settings_.memory_growth(gpu1_, here()));
  expect_error(ErrorCode::invalid_argument, HasSubstr("is not a GPU"),
               [&] { settings_.set_memory_growth(cpu_, true, here()); });
  expect_error(ErrorCode::invalid_argument, HasSubstr("is not a GPU"),
               [&] { settings_.memory_growth(cpu_, here()); });
}

TEST_F(Settings, GrowthAndLimitsExcludeEachOther) {
  settings_.set_memory_growth(gpu_, true, here());
  expect_error(ErrorCode::failed_precondition, HasSubstr("memory growth is on"),
               [&] { settings_.set_logical_devices(gpu_, {{.memory_limit_mb = 10}}, here()); });
  settings_.set_logical_devices(gpu1_, {{.memory_limit_mb = 10}}, here());
  EXPECT_FALSE(settings_.memory_growth(gpu1_, here()));
  expect_error(ErrorCode::failed_precondition, HasSubstr("memory limit"),
               [&] { settings_.set_memory_growth(gpu1_, true, here()); });
  settings_.set_memory_growth(gpu1_, false, here());
}

TEST_F(Settings, TheEnvironmentForcesGrowth) {
  Configuration forced({cpu_, gpu_}, 8, false);
  EXPECT_FALSE(forced.memory_growth(gpu_, here()));
  forced.set_memory_growth(gpu_, true, here());
  EXPECT_FALSE(forced.memory_growth(gpu_, here()));
}

TEST_F(Settings, CannotChangeOnceDevicesAreMadeButStayTheSame) {
  settings_.set_visible_devices({gpu_}, "GPU", here());
  settings_.set_logical_devices(cpu_, {{}, {}}, here());
  settings_.set_memory_growth(gpu_, false, here());
  settings_.set_intra_op_threads(3, here());
  const std::string line = std::to_string(here().line() + 1);
  settings_.freeze("list_logical_devices()", here());
  const auto initialised =
      AllOf(HasSubstr("cannot be modified after being initialized"), HasSubstr("list_logical_devices() in "),
            HasSubstr(":" + line), HasSubstr("configuration_test.cc"));
  settings_.freeze("something later", here());

  settings_.set_visible_devices({gpu_}, "GPU", here());
  settings_.set_logical_devices(cpu_, {{}, {}}, here());
  settings_.set_memory_growth(gpu_, false, here());
  settings_.set_memory_growth(gpu1_, true, here());
  settings_.set_intra_op_threads(3, here());
  settings_.set_inter_op_threads(0, here());

  const auto refused = [&](const char* caller, auto&& change) {
    expect_error(ErrorCode::failed_precondition, AllOf(initialised, HasSubstr(caller)), change);
  };
  refused("set_visible_devices", [&] { settings_.set_visible_devices({gpu1_}, "GPU", here()); });
  refused("set_logical_device_configuration", [&] {
    settings_.set_logical_devices(cpu_, {{}, {}, {}}, here());
  });
  refused("set_memory_growth", [&] { settings_.set_memory_growth(gpu_, true, here()); });
  refused("set_intra_op_parallelism_threads", [&] { settings_.set_intra_op_threads(4, here()); });
  refused("set_inter_op_parallelism_threads", [&] { settings_.set_inter_op_threads(4, here()); });
}

TEST_F(Settings, ThreadsAreNotNegative) {
  expect_error(ErrorCode::invalid_argument, HasSubstr("received -1"),
               [&] { settings_.set_intra_op_threads(-1, here()); });
  expect_error(ErrorCode::invalid_argument, HasSubstr("received -2"),
               [&] { settings_.set_inter_op_threads(-2, here()); });
}

TEST_F(Settings, MissingGpusAreExplained) {
  EXPECT_EQ(settings_.missing_gpus(2), "");
  settings_.set_visible_devices({gpu_}, "GPU", here());
  EXPECT_THAT(settings_.missing_gpus(2),
              AllOf(HasSubstr("2 were asked for, 1 can be used"), HasSubstr("/physical_device:GPU:1"),
                    HasSubstr("1 hidden by set_visible_devices"), HasSubstr("plugin cuda")));
}

}  // namespace
}  // namespace lockstep
