#include "lockstep/observe/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::observe {
namespace {

using nlohmann::json;

Event span(Name name, int64_t start_ns, int64_t end_ns, Track track) {
  Event event{name, "test", start_ns, end_ns};
  event.track = track;
  return event;
}

json events_of_phase(const json& trace, const char* phase) {
  json found = json::array();
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == phase) found.push_back(event);
  return found;
}

TEST(TraceJson, OfAnEmptyTraceIsValid) {
  const json parsed = json::parse(trace_json({}));
  EXPECT_TRUE(parsed.at("traceEvents").empty());
  EXPECT_EQ(parsed.at("otherData").at("dropped_events"), 0);
}

TEST(TraceJson, WritesSpansInMicrosecondsSinceTheFirst) {
  Trace trace;
  trace.tracks = {{5, "GPU:0", "compute"}, {2, "host", "main"}};
  trace.events.push_back(span("step", 9'000'000'000'123'456, 9'000'000'000'223'457, 2));
  trace.events.push_back(span("matmul", 9'000'000'000'124'000, 9'000'000'000'124'007, 5));
  trace.events.back().device = 0;
  trace.events.back().replica = 1;
  trace.events.back().value = 2e12;
  trace.events.back().bytes = 4096;
  trace.dropped = 3;
  const json parsed = json::parse(trace_json(trace));
  EXPECT_EQ(parsed.at("otherData").at("dropped_events"), 3);
  EXPECT_EQ(parsed.at("otherData").at("origin_ns"), 9'000'000'000'123'456);
  const json spans = events_of_phase(parsed, "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].at("ts"), 0.0);
  EXPECT_EQ(spans[0].at("dur"), 100.001);
  EXPECT_FALSE(spans[0].contains("args"));
  EXPECT_EQ(spans[1].at("name"), "matmul");
  EXPECT_EQ(spans[1].at("cat"), "test");
  EXPECT_EQ(spans[1].at("ts"), 0.544);
  EXPECT_EQ(spans[1].at("dur"), 0.007);
  EXPECT_EQ(spans[1].at("args"),
            json({{"device", 0}, {"replica", 1}, {"flops", 2'000'000'000'000}, {"bytes", 4096}}));
}

TEST(TraceJson, NamesGroupsAndRows) {
  Trace trace;
  trace.tracks = {{5, "GPU:0", "compute"}, {6, "GPU:0", "copies"}, {2, "host", "main"}};
  for (const TrackInfo& info : trace.tracks) trace.events.push_back(span("event", 1, 2, info.track));
  const json parsed = json::parse(trace_json(trace));
  std::map<int, std::string> groups, rows;
  for (const json& event : events_of_phase(parsed, "M")) {
    if (event.at("name") == "process_name") groups[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") rows[event.at("tid")] = event.at("args").at("name");
  }
  EXPECT_EQ(groups.size(), 2u);
  std::vector<std::string> places;
  for (const json& event : events_of_phase(parsed, "X"))
    places.push_back(groups.at(event.at("pid")) + "/" + rows.at(event.at("tid")));
  EXPECT_THAT(places, testing::ElementsAre("GPU:0/compute", "GPU:0/copies", "host/main"));
}

TEST(TraceJson, WritesCountersAndNoInvalidNumbers) {
  Trace trace;
  trace.tracks = {{1, "host", "main"}};
  for (const double value : {1.25, 3e9, std::nan(""), static_cast<double>(INFINITY)}) {
    trace.events.push_back({"memory", "counter", 10, 10, EventKind::counter, 0, -1, 1, value});
  }
  const json counters = events_of_phase(json::parse(trace_json(trace)), "C");
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[0].at("args").at("value"), 1.25);
  EXPECT_EQ(counters[0].at("id"), "device 0 replica -1");
  EXPECT_EQ(counters[1].at("args").at("value"), 3e9);
  EXPECT_TRUE(counters[2].at("args").at("value").is_null());
  EXPECT_TRUE(counters[3].at("args").at("value").is_null());
}

TEST(TraceJson, EscapesAnyText) {
  const std::string ugly = "quote \" backslash \\ newline \n tab \t bell \x07 {} %s \xc3\xa9";
  Trace trace;
  trace.tracks = {{1, ugly, "row \"x\""}};
  trace.events.push_back(span(intern(ugly), 0, 1, 1));
  trace.events.push_back(span(intern("broken \xff utf-8"), 0, 1, 1));
  const json parsed = json::parse(trace_json(trace));
  const json spans = events_of_phase(parsed, "X");
  EXPECT_EQ(spans[0].at("name"), ugly);
  EXPECT_EQ(spans[1].at("name"), "broken \xef\xbf\xbd utf-8");
  EXPECT_EQ(events_of_phase(parsed, "M")[0].at("args").at("name"), ugly);
}

TEST(TraceJson, AcceptsATrackThatWasNotDescribed) {
  Trace trace;
  trace.events.push_back(span("event", 0, 1, 77));
  EXPECT_EQ(events_of_phase(json::parse(trace_json(trace)), "X")[0].at("tid"), 77);
}

class TraceFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_trace_" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::string folder_;
};

TEST_F(TraceFile, ReplacesTheOldFileByTheWholeNewOne) {
  const std::string path = folder_ + "/steps.json";
  std::ofstream(path) << "old";
  Trace trace;
  trace.tracks = {{1, "host", "main"}};
  // More than one buffer's worth.
  for (int i = 0; i < 2'000; ++i) trace.events.push_back(span("event", i * 10, i * 10 + 5, 1));
  write_trace(trace, path);
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(read(path), trace_json(trace));
  EXPECT_EQ(events_of_phase(json::parse(read(path)), "X").size(), 2'000u);
}

TEST_F(TraceFile, AFailureNamesThePathAndLeavesTheOldFileAlone) {
  const std::string path = folder_ + "/no_such_folder/steps.json";
  try {
    write_trace({}, path);
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "cannot write \"" + path + "\": No such file or directory");
  }
  const std::string taken = folder_ + "/taken";
  std::filesystem::create_directories(taken + "/inside");
  EXPECT_THROW(write_trace({}, taken), Error);
  EXPECT_TRUE(std::filesystem::is_directory(taken + "/inside"));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace lockstep::observe
