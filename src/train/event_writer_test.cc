#include "lockstep/train/event_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <regex>

#include "base/protobuf.h"
#include "data/tfrecord.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

using protobuf::Reader;
using protobuf::WireType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The last value of a field, down a path of field numbers.
std::string_view find(std::string_view message, std::initializer_list<int> path) {
  for (const int field : path) {
    std::string_view found;
    for (Reader reader(message); reader.next();)
      if (reader.field() == field && reader.type() == WireType::bytes) found = reader.bytes();
    message = found;
  }
  return message;
}

int64_t integer(std::string_view message, int field) {
  int64_t found = -1;
  for (Reader reader(message); reader.next();)
    if (reader.field() == field && reader.type() == WireType::varint)
      found = static_cast<int64_t>(reader.integer());
  return found;
}

template <class T>
std::vector<T> elements(std::string_view bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class Events : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }

  static std::vector<std::string> read(const std::string& path) {
    data::RecordReader reader(path);
    std::vector<std::string> events;
    while (auto event = reader.next()) events.push_back(std::move(*event));
    return events;
  }

  std::vector<double> histogram(const Tensor& values, int buckets) const {
    const EventWriter writer(folder_);
    writer.histogram("h", values, 1, {.buckets = buckets});
    writer.flush();
    return elements<double>(find(read(writer.path()).back(), {5, 1, 8, 4}));
  }

  std::string root_ = testing::TempDir() + "lockstep_events_" + std::to_string(getpid());
  std::string folder_ = root_ + "/logs/train";
};

TEST_F(Events, AFileStartsWithItsVersion) {
  const EventWriter writer(folder_);
  EXPECT_TRUE(std::regex_match(std::filesystem::path(writer.path()).filename().string(),
                               std::regex(R"(events\.out\.tfevents\.\d{10,}\..+\.\d+\.\d+\.v2)")));
  const auto events = read(writer.path());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(find(events[0], {3}), "brain.Event:2");
  EXPECT_NE(EventWriter(folder_).path(), writer.path());
}

TEST_F(Events, ScalarsAreTensorsOfThePluginScalars) {
  const EventWriter writer(folder_);
  writer.scalar("epoch_loss", 0.25, 7);
  writer.flush();
  const std::string event = read(writer.path()).at(1);
  EXPECT_EQ(integer(event, 2), 7);
  EXPECT_EQ(find(event, {5, 1, 1}), "epoch_loss");
  EXPECT_THAT(elements<float>(find(event, {5, 1, 8, 4})), ElementsAre(0.25F));
  EXPECT_EQ(integer(find(event, {5, 1, 8}), 1), 1) << "DT_FLOAT";
  EXPECT_EQ(find(event, {5, 1, 9, 1, 1}), "scalars");
  EXPECT_EQ(integer(find(event, {5, 1, 9}), 4), 1) << "DATA_CLASS_SCALAR";
  Reader reader(event);
  ASSERT_TRUE(reader.next());
  EXPECT_GT(reader.real64(), 1.7e9) << "wall time";
}

// As tensorboard's summary does for [1, 2, 2, 5] in 4 buckets.
TEST_F(Events, HistogramsAreRowsOfLeftRightCount) {
  EXPECT_THAT(histogram(Tensor::from<float>({1, 2, 2, 5}, {2, 2}), 4),
              ElementsAre(1, 2, 1, 2, 3, 2, 3, 4, 0, 4, 5, 1));
  EXPECT_THAT(histogram(Tensor::from<int64_t>({3, 3}, {2}), 2), ElementsAre(3, 3, 0, 3, 3, 2));
  EXPECT_THAT(histogram(Tensor::from<float>({}, {0}), 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(histogram(Tensor::from<BFloat16>({BFloat16(0.5F)}, {1}), 1), ElementsAre(0.5, 0.5, 1));
}

TEST_F(Events, HistogramsLeaveOutWhatIsNotFinite) {
  std::vector<std::string> messages;
  const LogSink before = set_log_sink([&](const LogMessage& m) { messages.emplace_back(m.text); });
  EXPECT_THAT(histogram(Tensor::from<float>({NAN, 1, INFINITY, 3}, {4}), 2), ElementsAre(1, 2, 1, 2, 3, 1));
  set_log_sink(before);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_THAT(messages[0], HasSubstr("\"h\""));
  constexpr double kMax = std::numeric_limits<double>::max();
  EXPECT_THAT(histogram(Tensor::from<double>({-kMax, kMax}, {2}), 2), ElementsAre(-kMax, 0, 1, 0, kMax, 1));
}

TEST_F(Events, TextsHaveAPluginThatShowsThem) {
  const EventWriter writer(folder_);
  const std::string words[] = {"first", "last"};
  for (const std::string plugin : {"text", "images", "audio"}) writer.texts("t", plugin, {2, 1}, words, 7);
  writer.flush();
  const std::vector<std::string> events = read(writer.path());
  ASSERT_EQ(events.size(), 4U);
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(integer(events[i], 2), 7);
    const std::string_view value = find(events[i], {5, 1}), tensor = find(value, {8});
    EXPECT_EQ(integer(tensor, 1), 7) << "DT_STRING";
    EXPECT_EQ(find(tensor, {8}), "last");
    EXPECT_EQ(integer(find(tensor, {2, 2}), 1), 1) << "the last size";
    EXPECT_EQ(find(value, {9, 1, 1}), i == 1 ? "text" : i == 2 ? "images" : "audio");
    EXPECT_EQ(integer(find(value, {9}), 4), i == 1 ? 2 : 3) << "DATA_CLASS_TENSOR and _BLOB_SEQUENCE";
    EXPECT_EQ(integer(find(value, {9, 1, 2}), 2), i == 3 ? 11 : -1) << "WAV";
  }
  EXPECT_THROW(writer.texts("t", "text", {3}, words, 7), Error);
}

TEST_F(Events, GraphsListNodesAndInputs) {
  const EventWriter writer(folder_);
  const GraphNode nodes[] = {{"input", "InputLayer", {}}, {"dense/matmul", "Dense", {"input"}}};
  writer.graph(nodes);
  writer.flush();
  const std::string event = read(writer.path()).at(1);
  EXPECT_EQ(find(event, {4, 1, 1}), "dense/matmul");
  EXPECT_EQ(find(event, {4, 1, 2}), "Dense");
  EXPECT_EQ(find(event, {4, 1, 3}), "input");
}

TEST_F(Events, AreWrittenWhenTheQueueIsFullOnFlushAndAtTheEnd) {
  std::string path;
  {
    const EventWriter writer(folder_, {.max_queue = 2});
    path = writer.path();
    writer.scalar("a", 1, 1);
    EXPECT_EQ(read(path).size(), 1U);
    writer.scalar("a", 1, 2);
    EXPECT_EQ(read(path).size(), 3U);
    writer.scalar("a", 1, 3);
  }
  EXPECT_EQ(read(path).size(), 4U);
  const EventWriter impatient(folder_, {.max_queue = 1000, .flush_seconds = 0});
  impatient.scalar("a", 1, 1);
  EXPECT_EQ(read(impatient.path()).size(), 2U);
}

TEST_F(Events, AFolderThatCannotBeMadeIsAnError) {
  try {
    const EventWriter writer("/proc/no_such_folder");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.message(), HasSubstr("/proc/no_such_folder"));
  }
  EXPECT_THROW(EventWriter(folder_, {.max_queue = 0}), Error);
}

}  // namespace
}  // namespace lockstep::train
