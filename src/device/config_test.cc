#include "lockstep/device/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/error_of_test.h"
#include "device/cpu_device.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

uint32_t line_here(std::source_location where = std::source_location::current()) { return where.line(); }

// Every message while it lives.
class Messages {
 public:
  Messages()
      : previous_(set_log_sink([this](const LogMessage& message) { texts.emplace_back(message.text); })) {}
  ~Messages() { set_log_sink(previous_); }
  std::vector<std::string> texts;

 private:
  LogSink previous_;
};

const config::PhysicalDevice kCpu{"/physical_device:CPU:0", "CPU"};

// --- configuration: each in a process of its own, in which no device was used before -----------------------

// Runs `body` and ends the process: 0, or 1 with the error's message.
[[noreturn]] void run_to_exit(void (*body)()) {
  try {
    body();
    std::exit(0);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    std::exit(1);
  }
}

// A new process of this program, in which nothing has happened yet.
class ConfigDeathTest : public testing::Test {
 protected:
  static void expect_success(void (*body)()) {
    EXPECT_EXIT(run_to_exit(body), testing::ExitedWithCode(0), "");
  }
  static void expect_error(const char* message, void (*body)()) {
    EXPECT_EXIT(run_to_exit(body), testing::ExitedWithCode(1), message);
  }
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ConfigDeathTest, ListingPhysicalDevicesInitialisesNothing) {
  expect_success([] {
    config::list_physical_devices();
    config::get_visible_devices();
    config::get_logical_device_configuration(kCpu);
    config::set_visible_devices({}, "GPU");
    config::set_logical_device_configuration(kCpu, {{.threads = 1}, {.threads = 3}});
    const auto devices = config::list_logical_devices();
    if (devices.size() != 2 || devices[1].name != "/CPU:1" || device_by_name("cpu:1").threads() != 3)
      std::exit(2);
  });
}

TEST_F(ConfigDeathTest, ListingLogicalDevicesInitialisesAndIsNamed) {
  expect_error(
      "cannot be modified after being initialized.*list_logical_devices\\(\\) in .*config_test.cc:[0-9]+",
      [] {
        config::list_logical_devices();
        config::set_logical_device_configuration(kCpu, {{}, {}});
      });
}

TEST_F(ConfigDeathTest, AScopeInitialisesAndIsNamed) {
  expect_error("the number of threads cannot be modified.*tf::device\\(\\) in .*config_test.cc:[0-9]+", [] {
    { const auto scope = device("/CPU:0"); }
    config::threading::set_intra_op_parallelism_threads(7);
  });
}

TEST_F(ConfigDeathTest, ThreadsDecideHowLogicalCpusAreMade) {
  expect_success([] {
    config::threading::set_intra_op_parallelism_threads(3);
    set_logical_cpus({.count = 2});
    set_logical_cpus({.count = 2});
    if (config::get_logical_device_configuration(kCpu).size() != 2) std::exit(2);
    for (const Device* each : logical_devices())
      if (each->threads() != 3) std::exit(3);
    config::threading::set_intra_op_parallelism_threads(3);
    set_logical_cpus({.count = 2});
  });
}

// --- what holds at any time --------------------------------------------------------------------------------

TEST(Config, KnowsTheCpu) {
  EXPECT_THAT(config::list_physical_devices(), ElementsAre(kCpu));
  EXPECT_THAT(config::list_physical_devices("GPU"), IsEmpty());
  EXPECT_THAT(config::get_visible_devices("CPU"), ElementsAre(kCpu));
  EXPECT_THAT(config::list_logical_devices("cpu"), ElementsAre(config::LogicalDevice{"/CPU:0", "CPU"}));
  EXPECT_THAT(config::list_logical_devices("GPU"), IsEmpty());
  EXPECT_EQ(error_of([] { config::list_logical_devices("TPU"); }).code(), ErrorCode::invalid_argument);
}

TEST(Config, AnswersForMemory) {
  const auto& cpu = device_by_name("/CPU:0");
  const MemoryInfo info = config::get_memory_info("CPU:0");
  EXPECT_EQ(info.current, cpu.memory_info().current);
  config::reset_memory_stats("/device:CPU:0");
  EXPECT_EQ(config::get_memory_info("/CPU:0").peak, config::get_memory_info("/CPU:0").current);
  EXPECT_EQ(error_of([] { config::get_memory_info("GPU:0"); }).code(), ErrorCode::device_mismatch);
}

TEST(Config, RequiredGpusAreMissedWithTheReason) {
  const uint32_t line = line_here() + 1;
  const Error error = error_of([] { config::require_gpus(1); });
  EXPECT_EQ(error.code(), ErrorCode::device_mismatch);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("1 were asked for, 0 can be used"), HasSubstr("/physical_device:CPU:0"),
                    HasSubstr("plugin cuda is "), HasSubstr("liblockstep_cuda.so")));
  EXPECT_EQ(error.where().line(), line);
  EXPECT_EQ(error_of([] { config::require_gpus(0); }).code(), ErrorCode::invalid_argument);
}

// --- scopes by name ----------------------------------------------------------------------------------------

TEST(DeviceByName, ScopesNest) {
  EXPECT_EQ(scoped_device(), nullptr);
  Device* const cpu = logical_devices()[0];
  const auto outer = device("/job:localhost");
  EXPECT_EQ(scoped_device(), nullptr) << "no device was named";
  {
    const auto scope = device("CPU:*");
    EXPECT_EQ(scoped_device(), cpu);
    const auto inner = device("/task:0");
    EXPECT_EQ(scoped_device(), cpu);
  }
  EXPECT_EQ(scoped_device(), nullptr);
}

TEST(DeviceByName, ScopesThatSayNothingNewKeepAnUnlistedDevice) {
  Device elsewhere(std::make_unique<CpuDevice>(50, 1));
  const DeviceScope scope(elsewhere);
  const auto inner = device("");
  EXPECT_EQ(scoped_device(), &elsewhere);
  const auto innermost = device("/CPU");
  EXPECT_EQ(scoped_device(), &elsewhere);
}

TEST(DeviceByName, AMissingDeviceListsWhatThereIs) {
  for (const char* name : {"/GPU:0", "/gpu:0", "/CPU:9", "/job:worker/CPU:0", "/task:1"}) {
    const uint32_t line = line_here() + 1;
    const Error error = error_of([&] { const auto scope = device(name); });
    EXPECT_EQ(error.code(), ErrorCode::device_mismatch);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("there is no device"), HasSubstr("there are: /CPU:0"),
                                       HasSubstr("set_soft_device_placement")));
    EXPECT_EQ(error.where().line(), line);
    EXPECT_EQ(scoped_device(), nullptr) << "a scope that failed leaves nothing behind";
  }
  EXPECT_EQ(error_of([&] { const auto scope = device("/CPU:0/GPU:0"); }).code(), ErrorCode::invalid_argument);
}

TEST(DeviceByName, SoftPlacementFallsBackAndSaysSoOnce) {
  config::set_soft_device_placement(true);
  EXPECT_TRUE(config::get_soft_device_placement());
  Messages messages;
  for (int i = 0; i < 3; ++i) {
    const auto scope = device("/GPU:3");
    EXPECT_EQ(scoped_device(), logical_devices()[0]);
  }
  EXPECT_THAT(messages.texts, ElementsAre(AllOf(HasSubstr("\"/GPU:3\""), HasSubstr("run on /CPU:0"))));
  { const auto other = device("/CPU:17"); }
  EXPECT_EQ(messages.texts.size(), 2u);
  config::set_soft_device_placement(false);
  EXPECT_FALSE(config::get_soft_device_placement());
  EXPECT_EQ(error_of([] { const auto scope = device("/GPU:3"); }).code(), ErrorCode::device_mismatch);
}

}  // namespace
}  // namespace lockstep
