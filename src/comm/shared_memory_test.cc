#include "comm/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error_of_test.h"
#include "comm/free_address_test.h"

namespace lockstep::comm {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Threads in the place of processes: each maps the memory anew.
void at_all(int size, const std::function<void(SharedMemory& memory, int rank)>& work, bool crowded = true) {
  const int file = SharedMemory::make_file(size, crowded);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      SharedMemory memory(file, r, size, crowded);
      work(memory, r);
    });
  for (std::thread& thread : threads) thread.join();
  close(file);
}

// Whole blocks and parts of one, fewer elements than processes, and one round and two.
constexpr int64_t kCounts[] = {1, 2, 7, 1000, 2048, 2049, 9000, 32768, 65537, 500'003};

TEST(SharedMemory, AddsUpWhatAllGive) {
  for (const int size : {2, 3, 4, 8})
    at_all(size, [&](SharedMemory& memory, int rank) {
      for (const int64_t count : kCounts) {
        std::vector<float> values(static_cast<size_t>(count));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i % 1000) * (rank + 1));
        memory.all_reduce_sum(values.data(), count, DType::float32);
        const auto ranks = 0.5f * static_cast<float>(size * (size + 1));
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(values[i], static_cast<float>(i % 1000) * ranks)
              << "rank " << rank << " of " << size << ", element " << i << " of " << count;
      }
    });
}

// Additions whose result depends on their order.
TEST(SharedMemory, AddsUpInTheOrderOfTheRanks) {
  constexpr int kSize = 5;
  const auto value = [](int rank, size_t i) {
    const auto state = static_cast<uint32_t>(i * kSize + static_cast<size_t>(rank)) * 1664525U + 1013904223U;
    return static_cast<float>(state >> 8) * (state % 2 == 0 ? 1e-3f : 1e3f);
  };
  at_all(kSize, [&](SharedMemory& memory, int rank) {
    for (const size_t count : {size_t{5}, size_t{9001}, size_t{200'003}}) {
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = value(rank, i);
      memory.all_reduce_sum(values.data(), static_cast<int64_t>(count), DType::float32);
      for (size_t i = 0; i < count; ++i) {
        float sum = value(0, i);
        for (int r = 1; r < kSize; ++r) sum += value(r, i);
        ASSERT_EQ(values[i], sum) << i << " of " << count;
      }
    }
  });
}

TEST(SharedMemory, AddsUpEveryTypeThatHasASum) {
  at_all(3, [](SharedMemory& memory, int rank) {
    std::vector<int64_t> wide(20'000, (int64_t{1} << 40) + rank);
    memory.all_reduce_sum(wide.data(), 20'000, DType::int64);
    EXPECT_THAT(wide, Each((int64_t{3} << 40) + 3));
    std::vector<uint8_t> bytes(100'000, static_cast<uint8_t>(100 + rank));
    memory.all_reduce_sum(bytes.data(), 100'000, DType::uint8);
    EXPECT_THAT(bytes, Each(47));
    std::vector<BFloat16> halves(7, BFloat16(static_cast<float>(rank) + 0.5f));
    memory.all_reduce_sum(halves.data(), 7, DType::bfloat16);
    for (const BFloat16& half : halves) EXPECT_EQ(static_cast<float>(half), 4.5f);
  });
}

TEST(SharedMemory, GathersAndExchanges) {
  for (const int size : {2, 3, 5})
    at_all(size, [&](SharedMemory& memory, int rank) {
      for (const int64_t bytes : {int64_t{1}, int64_t{1000}, int64_t{300'001}}) {
        const std::string own(static_cast<size_t>(bytes), static_cast<char>('a' + rank));
        std::string all(static_cast<size_t>(bytes * size), ' '), expected;
        memory.all_gather(own.data(), all.data(), bytes);
        for (int r = 0; r < size; ++r)
          expected += std::string(static_cast<size_t>(bytes), static_cast<char>('a' + r));
        ASSERT_EQ(all, expected);

        // Rank r sends to p what is as long as both say: nothing to some, several blocks to others.
        const auto length = [&](int from, int to) { return from == 1 && to == 0 ? 0 : bytes * (from + to); };
        std::vector<int64_t> sent, received;
        std::string source, came;
        int64_t total = 0;
        for (int r = 0; r < size; ++r) {
          sent.push_back(length(rank, r));
          received.push_back(length(r, rank));
          total += received.back();
          source += std::string(static_cast<size_t>(sent.back()), static_cast<char>('a' + rank * size + r));
          came += std::string(static_cast<size_t>(received.back()), static_cast<char>('a' + r * size + rank));
        }
        std::string target(static_cast<size_t>(total), ' ');
        memory.all_to_all(source.data(), sent, target.data(), received);
        ASSERT_EQ(target, came) << rank << " of " << size;
      }
    });
}

// A half of the room is written again while others may be behind: collectives of every kind and size follow
// each other, and who is slow changes.
TEST(SharedMemory, CollectivesFollowEachOtherAtAnySpeed) {
  constexpr int kSize = 3;
  constexpr int64_t kMost = 100'000;
  for (const bool crowded : {false, true})
    at_all(
        kSize,
        [&](SharedMemory& memory, int rank) {
          std::mt19937 calls(1), pauses(static_cast<unsigned>(rank));
          std::vector<int32_t> values(kMost), all(kMost * kSize);
          for (int call = 0; call < 400; ++call) {
            const auto kind = calls() % 3;
            const int64_t count = calls() % 4 == 0 ? calls() % kMost + 1 : calls() % 3000 + 1;
            if (pauses() % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 3000));
            for (int64_t i = 0; i < count; ++i)
              values[static_cast<size_t>(i)] = static_cast<int32_t>(i + call * rank);
            if (kind < 2) {
              memory.all_reduce_sum(values.data(), count, DType::int32);
              for (int64_t i = 0; i < count; ++i)
                ASSERT_EQ(values[static_cast<size_t>(i)], 3 * i + 3 * call) << "call " << call;
            } else {
              memory.all_gather(values.data(), all.data(), count * 4);
              for (int r = 0; r < kSize; ++r)
                for (int64_t i = 0; i < count; ++i)
                  ASSERT_EQ(all[static_cast<size_t>(r * count + i)], i + call * r) << "call " << call;
            }
          }
        },
        crowded);
}

TEST(SharedMemory, AnotherCollectiveIsNoticed) {
  for (const int64_t other : {int64_t{11}, int64_t{50'000}})
    at_all(2, [&](SharedMemory& memory, int rank) {
      std::vector<float> values(50'000);
      const std::string message =
          error_of([&] {
            memory.all_reduce_sum(values.data(), rank == 0 ? 10 : other, DType::float32);
          }).message();
      EXPECT_THAT(message, HasSubstr("at another collective, or at one of another size"));
    });
}

TEST(SharedMemory, WhoWaitsIsInterrupted) {
  // By another process, and by a thread of the own.
  for (const bool own : {false, true})
    at_all(2, [&](SharedMemory& memory, int rank) {
      if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        if (!own) memory.interrupt();
        return;
      }
      std::thread interrupts([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        if (own) memory.interrupt();
      });
      std::vector<float> values(10);
      const std::string message =
          error_of([&] { memory.all_reduce_sum(values.data(), 10, DType::float32); }).message();
      EXPECT_THAT(message, HasSubstr(own ? "the wait was ended" : "rank 1 has given up"));
      interrupts.join();
    });
}

class SharedMemoryOfAGroup : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("LOCKSTEP_SHARED_MEMORY"); }

  // Which ranks have it.
  static std::vector<bool> joined(int size) {
    const std::string address = free_address();
    std::vector<std::thread> threads;
    std::vector<char> shared(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r)
      threads.emplace_back([&, r] {
        Group group({.address = address, .rank = r, .size = size, .timeout_s = 30});
        const auto memory = SharedMemory::join(group, 30);
        shared[static_cast<size_t>(r)] = memory != nullptr;
        if (!memory) return;
        std::vector<int32_t> values(9000, r + 1);
        memory->all_reduce_sum(values.data(), 9000, DType::int32);
        EXPECT_THAT(values, Each(size * (size + 1) / 2));
      });
    for (std::thread& thread : threads) thread.join();
    return {shared.begin(), shared.end()};
  }
};

TEST_F(SharedMemoryOfAGroup, IsThereOnOneMachineUnlessItIsNotWanted) {
  EXPECT_THAT(joined(3), Each(true));
  setenv("LOCKSTEP_SHARED_MEMORY", "0", 1);
  EXPECT_THAT(joined(2), Each(false));
}

}  // namespace
}  // namespace lockstep::comm
