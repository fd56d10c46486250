#include "comm/direct_all_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace lockstep::comm {
namespace {

// Messages between threads, copied out of the sender's memory as late as an engine may: when both ends have
// begun.
class Post {
 public:
  struct End {
    char* data = nullptr;
    size_t bytes = 0;
    bool done = false;
  };

  std::shared_ptr<End> begin(int from, int to, bool sends, void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto end = std::make_shared<End>(End{static_cast<char*>(data), bytes});
    auto& others = (sends ? receivers_ : senders_)[{from, to}];
    if (others.empty()) {
      (sends ? senders_ : receivers_)[{from, to}].push_back(end);
      return end;
    }
    const std::shared_ptr<End> other = others.front();
    others.pop_front();
    EXPECT_EQ(other->bytes, bytes) << "from " << from << " to " << to;
    std::memcpy(sends ? other->data : end->data, sends ? end->data : other->data, bytes);
    other->done = end->done = true;
    changed_.notify_all();
    return end;
  }
  void finish(const End& end) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return end.done; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<End>>> senders_, receivers_;
};

class ThreadMessages final : public Messages {
 public:
  ThreadMessages(Post& post, int rank, int size)
      : post_(post), rank_(rank), slots_(DirectAllReduce::slots(size)) {}

  void begin_send(size_t slot, int to, const void* data, size_t bytes) override {
    EXPECT_EQ(slots_.at(slot), nullptr) << "a slot that is in use";
    slots_[slot] = post_.begin(rank_, to, true, const_cast<void*>(data), bytes);
  }
  void begin_receive(size_t slot, int from, void* data, size_t bytes) override {
    EXPECT_EQ(slots_.at(slot), nullptr) << "a slot that is in use";
    slots_[slot] = post_.begin(from, rank_, false, data, bytes);
  }
  void finish(size_t slot) override {
    ASSERT_NE(slots_.at(slot), nullptr) << "nothing was begun";
    post_.finish(*slots_[slot]);
    slots_[slot].reset();
  }
  bool idle() const {
    return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot == nullptr; });
  }

 private:
  Post& post_;
  const int rank_;
  std::vector<std::shared_ptr<Post::End>> slots_;
};

constexpr MessageSizes kSizes{.one_round = 16 << 10, .message = 128 << 10};

// By rank, what each holds after the sum of what it was given.
template <class T>
std::vector<std::vector<T>> summed(std::vector<std::vector<T>> values, DType dtype) {
  const auto size = static_cast<int>(values.size());
  Post post;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      ThreadMessages messages(post, r, size);
      DirectAllReduce all_reduce(messages, kSizes, r, size);
      auto& own = values[static_cast<size_t>(r)];
      all_reduce.sum(own.data(), static_cast<int64_t>(own.size()), dtype);
      EXPECT_TRUE(messages.idle());
    });
  for (std::thread& thread : threads) thread.join();
  return values;
}

// Blocks of one and of several messages, a last one with fewer elements than ranks, and none at all for some
// owners.
constexpr size_t kCounts[] = {1, 2, 3, 7, 1000, 2048, 4096, 4097, 32768, 65537, 3 * 8 * 32768 + 5};

TEST(DirectAllReduce, AddsUpWhatAllRanksGive) {
  for (const int size : {2, 3, 4, 5, 8})
    for (const size_t count : kCounts) {
      std::vector<std::vector<float>> values(static_cast<size_t>(size), std::vector<float>(count));
      for (size_t r = 0; r < values.size(); ++r)
        for (size_t i = 0; i < count; ++i) values[r][i] = static_cast<float>((i % 1000) * (r + 1));
      const float ranks = 0.5f * static_cast<float>(size * (size + 1));
      const auto sums = summed(values, DType::float32);
      for (size_t r = 0; r < sums.size(); ++r)
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(sums[r][i], static_cast<float>(i % 1000) * ranks)
              << "rank " << r << " of " << size << ", element " << i << " of " << count;
    }
}

// Additions whose result depends on their order: all ranks have to come to the same.
TEST(DirectAllReduce, GivesAllRanksTheSameBits) {
  for (const int size : {2, 3, 4, 7})
    for (const size_t count : {size_t{5}, size_t{100}, size_t{9001}, size_t{400003}}) {
      std::vector<std::vector<float>> values(static_cast<size_t>(size), std::vector<float>(count));
      uint32_t state = 7;
      for (auto& own : values)
        for (float& value : own) {
          state = state * 1664525 + 1013904223;
          value = static_cast<float>(state >> 8) * (state % 2 == 0 ? 1e-3f : 1e3f);
        }
      const auto sums = summed(values, DType::float32);
      for (size_t r = 1; r < sums.size(); ++r)
        ASSERT_EQ(std::memcmp(sums[r].data(), sums[0].data(), count * sizeof(float)), 0)
            << "rank " << r << " of " << size << ", " << count << " elements";
    }
}

TEST(DirectAllReduce, AddsUpEveryTypeThatHasASum) {
  std::vector<std::vector<int64_t>> wide{{int64_t{1} << 60, -1}, {5, 1}, {-5, 7}};
  EXPECT_EQ(summed(wide, DType::int64)[1], (std::vector<int64_t>{int64_t{1} << 60, 7}));
  std::vector<std::vector<double>> doubles{{0.5}, {0.25}};
  EXPECT_EQ(summed(doubles, DType::float64)[0], std::vector<double>{0.75});
  std::vector<std::vector<uint8_t>> bytes{{200}, {100}};
  EXPECT_EQ(summed(bytes, DType::uint8)[0], std::vector<uint8_t>{44});
  std::vector<std::vector<BFloat16>> halves{{BFloat16(1.5f)}, {BFloat16(2.0f)}, {BFloat16(-1.0f)}};
  EXPECT_EQ(static_cast<float>(summed(halves, DType::bfloat16)[2][0]), 2.5f);
}

// The scratch memory of a larger sum serves a smaller one, and the other way round.
TEST(DirectAllReduce, SumsOfDifferentSizesFollowEachOther) {
  Post post;
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      ThreadMessages messages(post, r, 3);
      DirectAllReduce all_reduce(messages, kSizes, r, 3);
      for (const size_t count : {size_t{10}, size_t{500000}, size_t{3}, size_t{9000}}) {
        std::vector<int32_t> values(count);
        std::iota(values.begin(), values.end(), r);
        all_reduce.sum(values.data(), static_cast<int64_t>(count), DType::int32);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<int32_t>(3 * i + 3));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::comm
