#include "device/device_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DeviceName parse(std::string_view text) { return DeviceName::parse(text, std::source_location::current()); }

TEST(DeviceNames, AreReadInFullAndInShort) {
  const DeviceName full = parse("/job:worker_1/replica:2/task:3/device:GPU:4");
  EXPECT_EQ(full.job, "worker_1");
  EXPECT_EQ(full.replica, 2);
  EXPECT_EQ(full.task, 3);
  EXPECT_EQ(full.kind, DeviceKind::gpu);
  EXPECT_EQ(full.index, 4);
  for (const char* text :
       {"/CPU:1", "CPU:1", "cpu:1", "/cpu:1", "/device:CPU:1", "device:cpu:1", "/Device:Cpu:1"})
    EXPECT_EQ(parse(text), parse("/device:CPU:1")) << text;
  EXPECT_EQ(parse("/job:a/CPU:0"), parse("/job:a/device:CPU:0"));
}

TEST(DeviceNames, MayLeaveAnythingOut) {
  EXPECT_EQ(parse(""), DeviceName());
  EXPECT_EQ(parse("/task:7").task, 7);
  EXPECT_EQ(parse("/GPU").kind, DeviceKind::gpu);
  EXPECT_EQ(parse("/GPU").index, std::nullopt);
  EXPECT_EQ(parse("/device:GPU").index, std::nullopt);
  EXPECT_EQ(parse("/GPU:*").index, DeviceName::kAny);
  EXPECT_EQ(parse("/device:GPU:*").index, DeviceName::kAny);
}

TEST(DeviceNames, PrintAsTheyAreRead) {
  for (const char* text : {"", "/CPU:1", "/GPU", "/GPU:*", "/job:a/replica:0/task:1/device:CPU:2", "/task:3"})
    EXPECT_EQ(parse(text).to_string(), text);
}

TEST(DeviceNames, ThatAreNoneAreRefusedWithTheGrammar) {
  const std::pair<const char*, const char*> wrong[] = {
      {"/TPU:0", "\"TPU\" is not a type"},
      {"/CPU:0/GPU:0", "two types of device"},
      {"/device:CPU:0/cpu:0", "two types of device"},
      {"/job:a/job:b", "two parts"},
      {"/task:1/task:1", "two parts"},
      {"/CPU:x", "\"x\" is not a number"},
      {"/CPU:", "\"\" is not a number"},
      {"/CPU:-1", "not a number"},
      {"/CPU:00", "not a number"},
      {"/CPU:1 ", "not a number"},
      {"/CPU:99999999999", "not a number"},
      {"/CPU:0:1", "not <TYPE>"},
      {"/device", "not device:<TYPE>"},
      {"/device:CPU:0:0", "not device:<TYPE>"},
      {"/job:", "not the name of a job"},
      {"/job:a-b", "not the name of a job"},
      {"/job", "not job:<value>"},
      {"/replica:*", "not a number"},
      {"/", "not a type"},
      {"//CPU:0", "not a type"},
      {"/CPU:0/", "not a type"},
  };
  for (const auto& [text, reason] : wrong) {
    try {
      parse(text);
      ADD_FAILURE() << text << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr(std::string("\"") + text + "\""), HasSubstr(reason),
                        HasSubstr("/job:<name>/replica:<n>/task:<n>/device:<TYPE>:<n or *>")));
    }
  }
}

TEST(DeviceNames, TakeWhatTheyLeaveOutFromAround) {
  const auto inside = [](const char* inner, const char* outer) {
    return parse(inner).inside(parse(outer)).to_string();
  };
  EXPECT_EQ(inside("", "/CPU:1"), "/CPU:1");
  EXPECT_EQ(inside("/CPU:2", "/CPU:1"), "/CPU:2");
  EXPECT_EQ(inside("/CPU", "/CPU:1"), "/CPU:1");
  EXPECT_EQ(inside("/CPU:*", "/CPU:1"), "/CPU:*");
  EXPECT_EQ(inside("/GPU", "/CPU:1"), "/GPU") << "an index belongs to its type";
  EXPECT_EQ(inside("/GPU:0", "/job:a/task:1/device:CPU:1"), "/job:a/task:1/device:GPU:0");
  EXPECT_EQ(inside("/task:2", "/job:a/task:1/device:CPU:1"), "/job:a/task:2/device:CPU:1");
}

TEST(DeviceNames, NameDevicesOfThisProcess) {
  const Device device(std::make_unique<CpuDevice>(1, 1));
  for (const char* text : {"/CPU:1", "/CPU", "/CPU:*", "", "/job:localhost/replica:0/task:0/device:CPU:1"})
    EXPECT_TRUE(parse(text).names(device)) << text;
  for (const char* text : {"/CPU:0", "/GPU:1", "/job:worker/CPU:1", "/task:1/CPU:1", "/replica:1/CPU:1"})
    EXPECT_FALSE(parse(text).names(device)) << text;
  EXPECT_TRUE(DeviceName::of(device).names(device));
}

}  // namespace
}  // namespace lockstep
