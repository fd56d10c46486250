#include "device/stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "device/cpu_device.h"
#include "lockstep/base/error.h"
#include "lockstep/device/null_device.h"

namespace lockstep {
namespace {

class HostStreams : public testing::Test {
 protected:
  CpuDevice cpu_{3, 1};
  DeviceBackend& device_ = cpu_;
  Stream& stream_ = device_.compute_stream();
};

TEST_F(HostStreams, EveryDeviceHasAComputeStreamAndGivesMore) {
  EXPECT_EQ(&stream_, &device_.compute_stream());
  EXPECT_EQ(&stream_.device(), &device_);
  const auto other = device_.new_stream(), third = device_.new_stream();
  EXPECT_NE(other.get(), &stream_);
  EXPECT_NE(other.get(), third.get());
  EXPECT_EQ(&other->device(), &device_);
  EXPECT_FALSE(stream_.asynchronous());
}

TEST_F(HostStreams, WhatIsQueuedHappensInOrder) {
  std::array<int32_t, 8> source{}, target{};
  stream_.fill(source.data(), 7, sizeof(int32_t), source.size());
  stream_.copy(target.data(), source.data(), sizeof source);
  stream_.fill(source.data(), 0, sizeof(int32_t), source.size());
  stream_.fill(target.data() + 6, 0x0102030405060708, sizeof(int64_t), 1);
  int32_t first = 0;
  stream_.read(&first, target.data(), sizeof first);
  stream_.synchronize();
  EXPECT_EQ(first, 7);
  EXPECT_EQ(target, (std::array<int32_t, 8>{7, 7, 7, 7, 7, 7, 0x05060708, 0x01020304}));
  EXPECT_EQ(source, (std::array<int32_t, 8>{}));
}

TEST_F(HostStreams, FillsWithPatternsOfEveryWidth) {
  for (const size_t width : {size_t{1}, size_t{2}, size_t{4}, size_t{8}}) {
    const uint64_t pattern = 0xa1b2c3d4e5f60718;
    std::vector<unsigned char> bytes(3 * width + 1, 0xff);
    stream_.fill(bytes.data(), pattern, width, 3);
    for (size_t i = 0; i < 3 * width; ++i)
      EXPECT_EQ(bytes[i], (pattern >> (8 * (i % width))) & 0xff) << width << " at " << i;
    EXPECT_EQ(bytes.back(), 0xff) << "written past the end, width " << width;
  }
  stream_.fill(nullptr, 1, 8, 0);
  stream_.copy(nullptr, nullptr, 0);
}

TEST_F(HostStreams, TimeWhatIsLaunched) {
  bool launched = false;
  const int64_t ns = stream_.timed([&] {
    launched = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  EXPECT_TRUE(launched);
  EXPECT_GE(ns, 2'000'000);
}

TEST_F(HostStreams, CaptureNothing) {
  EXPECT_FALSE(device_.captures_graphs());
  const CapturedLaunch launch{.launch = [](Stream&) { FAIL() << "a capture does not launch"; }, .after = {}};
  EXPECT_EQ(device_.capture_graph({&launch, 1}), nullptr);
}

TEST_F(HostStreams, OnesThatWaitForEachOtherGoOn) {
  const auto other = device_.new_stream();
  stream_.wait_for(*other);
  other->wait_for(stream_);
  stream_.wait_for(stream_);
}

TEST_F(HostStreams, NobodyWaitsForAnEventThatWasNeverRecorded) {
  const auto event = device_.new_event();
  EXPECT_EQ(event->recordings(), 0u);
  event->wait(stream_);
  event->synchronize();
  event->wait_recorded(0, Waiting::sleeps);
}

TEST_F(HostStreams, AnEventIsRecordedAgainAndAgain) {
  const auto event = device_.new_event();
  const auto other = device_.new_stream();
  for (uint32_t i = 1; i <= 5; ++i) {
    event->record(i % 2 == 0 ? stream_ : *other);
    EXPECT_EQ(event->recordings(), i);
    event->wait(stream_);
    event->synchronize();
    for (uint32_t earlier = 0; earlier <= i; ++earlier) event->wait_recorded(earlier, Waiting::spins_first);
  }
}

TEST_F(HostStreams, TimedEventsKnowTheTimeBetweenThem) {
  const auto begin = device_.new_event(Event::Timed::yes), end = device_.new_event(Event::Timed::yes);
  EXPECT_EQ(end->ns_since(*begin), 0);
  begin->record(stream_);
  EXPECT_EQ(end->ns_since(*begin), 0) << "it has not happened yet";
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  end->record(stream_);
  const int64_t first = end->ns_since(*begin);
  EXPECT_GE(first, 2'000'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  end->record(stream_);
  EXPECT_GT(end->ns_since(*begin), first) << "what was recorded last counts";
  const auto untimed = device_.new_event();
  untimed->record(stream_);
  EXPECT_EQ(untimed->ns_since(*begin), 0);
}

class EventsAcrossThreads : public testing::TestWithParam<Waiting> {};

// Neither value is atomic: who waited sees what was written before the record(), and writes after it was
// read.
TEST_P(EventsAcrossThreads, HandMemoryToAndFro) {
  constexpr uint32_t kRounds = 2000;
  CpuDevice one(0, 1), two(1, 1);
  const auto asked = one.new_event(Event::Timed::no), answered = two.new_event(Event::Timed::no);
  uint32_t question = 0, answer = 0;
  std::thread other([&] {
    for (uint32_t i = 1; i <= kRounds; ++i) {
      asked->wait_recorded(i, GetParam());
      asked->wait(two.compute_stream());
      answer = question + 1;
      answered->record(two.compute_stream());
    }
  });
  uint32_t wrong = 0;
  for (uint32_t i = 1; i <= kRounds; ++i) {
    question = 10 * i;
    asked->record(one.compute_stream());
    answered->wait_recorded(i, GetParam());
    answered->synchronize();
    wrong += answer == 10 * i + 1 ? 0 : 1;
  }
  other.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(EventsAcrossThreads, AreWaitedForByMany) {
  constexpr int kThreads = 4;
  CpuDevice device(0, 1);
  const auto event = device.new_event(Event::Timed::no);
  std::atomic<bool> recorded{false};
  std::atomic<int> early{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      event->wait_recorded(2, GetParam());
      early += recorded.load() ? 0 : 1;
    });
  event->record(device.compute_stream());
  // Long enough for those who spin first to sleep.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  recorded = true;
  event->record(device.compute_stream());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(early.load(), 0) << "the first recording was taken for the second";
}

INSTANTIATE_TEST_SUITE_P(Ways, EventsAcrossThreads, testing::Values(Waiting::spins_first, Waiting::sleeps),
                         [](const auto& info) {
                           return info.param == Waiting::sleeps ? "Sleeping" : "SpinningFirst";
                         });

// A stream that works later, when it is told to.
class LateStream final : public Stream {
 public:
  explicit LateStream(DeviceBackend& device) : Stream(device, true) {}
  void copy(void*, const void*, size_t) override {}
  void fill(void*, uint64_t, size_t, size_t) override {}
  void read(void*, const void*, size_t) override {}
  void synchronize() override {}
  int64_t timed(const std::function<void()>&) override { return 0; }
};

struct Said {
  std::string what;
  const Stream* stream;
  bool operator==(const Said&) const = default;
};

class LateEvent final : public Event {
 public:
  explicit LateEvent(std::vector<Said>& said) : said_(said) {}
  void wait(Stream& stream) const override { said_.push_back({"wait", &stream}); }
  void synchronize() const override {}
  int64_t ns_since(const Event&) const override { return 0; }

 private:
  void queue_record(Stream& stream) override { said_.push_back({"record", &stream}); }
  std::vector<Said>& said_;
};

TEST(Streams, WaitForAnotherByAnEventOfItsDevice) {
  class LateDevice final : public DeviceBackend {
   public:
    LateDevice() : DeviceBackend(DeviceKind::gpu, 5, 1) {}
    void* allocate(size_t, std::source_location) override { return nullptr; }
    void deallocate(void*, size_t) noexcept override {}
    MemoryInfo memory_info() const override { return {}; }
    void reset_peak_memory() override {}
    void set_memory_limit(int64_t) override {}
    void copy_from_host(void*, const void*, size_t) override {}
    void copy_to_host(void*, const void*, size_t) override {}
    void copy_from_device(void*, DeviceBackend&, const void*, size_t) override {}
    Stream& compute_stream() override { return stream; }
    std::unique_ptr<Stream> new_stream() override { return std::make_unique<LateStream>(*this); }
    std::unique_ptr<Event> new_event(Event::Timed) override {
      ++events;
      return std::make_unique<LateEvent>(said);
    }
    LateStream stream{*this};
    std::vector<Said> said;
    int events = 0;
  };
  LateDevice late;
  CpuDevice host(0, 1);
  Stream& first = late.stream;
  const auto second = late.new_stream();
  second->wait_for(first);
  second->wait_for(first);
  host.compute_stream().wait_for(first);
  EXPECT_EQ(late.said, (std::vector<Said>{{"record", &first},
                                          {"wait", second.get()},
                                          {"record", &first},
                                          {"wait", second.get()},
                                          {"record", &first},
                                          {"wait", &host.compute_stream()}}));
  EXPECT_EQ(late.events, 1) << "one event serves all who wait for a stream";
  // What is done at once is not waited for.
  late.said.clear();
  first.wait_for(host.compute_stream());
  first.wait_for(first);
  EXPECT_TRUE(late.said.empty());
}

TEST(NullStreams, DoNothingAndSayThatThereIsNothingToRead) {
  DeviceBackend& device = backend_of(null_device());
  Stream& stream = device.compute_stream();
  stream.fill(nullptr, 1, 4, 100);
  stream.copy(nullptr, nullptr, 100);
  stream.synchronize();
  const auto event = device.new_event();
  event->record(stream);
  event->synchronize();
  int value = 0;
  EXPECT_THROW(stream.read(&value, nullptr, sizeof value), Error);
}

}  // namespace
}  // namespace lockstep
