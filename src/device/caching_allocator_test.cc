#include "device/caching_allocator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

namespace lockstep {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class Source final : public SegmentSource {
 public:
  explicit Source(size_t capacity) : left_(capacity) {}
  ~Source() override { EXPECT_TRUE(segments_.empty()) << "a segment was not given back"; }
  void* take(size_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    void* segment = std::aligned_alloc(512, bytes);
    segments_[segment] = bytes;
    return segment;
  }
  void give_back(void* segment, size_t bytes) noexcept override {
    EXPECT_EQ(segments_.at(segment), bytes);
    segments_.erase(segment);
    std::free(segment);
    left_ += bytes;
  }
  size_t taken() const { return segments_.size(); }

 private:
  size_t left_;
  std::map<void*, size_t> segments_;
};

TEST(CachingAllocator, CutsSmallBlocksFromOneSegment) {
  Source source(64 * kMiB);
  CachingAllocator allocator(source);
  void* a = allocator.allocate(100);
  void* b = allocator.allocate(513);
  EXPECT_EQ(source.taken(), 1u);
  EXPECT_EQ(allocator.statistics().used, 512u + 1024u);
  EXPECT_EQ(static_cast<char*>(b) - static_cast<char*>(a), 512);
  allocator.deallocate(a);
  allocator.deallocate(b);
  EXPECT_EQ(allocator.statistics().used, 0u);
  EXPECT_EQ(allocator.statistics().largest_free, allocator.statistics().reserved);
}

TEST(CachingAllocator, TakesTheSmallestBlockThatHoldsARequest) {
  Source source(64 * kMiB);
  CachingAllocator allocator(source);
  void* small = allocator.allocate(1024);
  void* between = allocator.allocate(512);
  void* large = allocator.allocate(8192);
  void* last = allocator.allocate(512);
  allocator.deallocate(large);
  allocator.deallocate(small);
  EXPECT_EQ(allocator.allocate(1000), small);
  EXPECT_EQ(allocator.allocate(8000), large);
  for (void* data : {small, between, large, last}) allocator.deallocate(data);
}

TEST(CachingAllocator, GivesBackWhatNobodyUsesBeforeItRefuses) {
  Source source(8 * kMiB);
  CachingAllocator allocator(source);
  void* a = allocator.allocate(3 * kMiB);
  void* b = allocator.allocate(3 * kMiB);
  allocator.deallocate(a);
  allocator.deallocate(b);
  void* whole = allocator.allocate(8 * kMiB);
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(allocator.allocate(1), nullptr);
  allocator.deallocate(whole);
}

TEST(CachingAllocator, KeepsItsLimit) {
  Source source(64 * kMiB);
  CachingAllocator allocator(source);
  allocator.set_limit(4 * kMiB);
  void* a = allocator.allocate(3 * kMiB);
  EXPECT_NE(a, nullptr);
  EXPECT_EQ(allocator.allocate(2 * kMiB), nullptr);
  EXPECT_LE(allocator.statistics().reserved, 4 * kMiB);
  allocator.deallocate(a);
  EXPECT_EQ(allocator.allocate(SIZE_MAX), nullptr);
}

TEST(CachingAllocator, ReservesAhead) {
  Source source(64 * kMiB);
  CachingAllocator allocator(source);
  EXPECT_TRUE(allocator.reserve(32 * kMiB));
  void* a = allocator.allocate(20 * kMiB);
  EXPECT_EQ(source.taken(), 1u);
  allocator.deallocate(a);
  EXPECT_FALSE(allocator.reserve(64 * kMiB));
}

TEST(CachingAllocator, BlocksNeverOverlapAndAllComesBack) {
  Source source(256 * kMiB);
  CachingAllocator allocator(source);
  std::mt19937 random(7);
  std::map<char*, size_t> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const size_t bytes = random() % (random() % 8 == 0 ? 900000 : 5000);
      auto* data = static_cast<char*>(allocator.allocate(bytes));
      if (!data) continue;
      const auto next = live.lower_bound(data);
      if (next != live.end()) {
        ASSERT_LE(data + bytes, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, data);
      }
      live[data] = bytes;
    } else {
      auto victim = live.begin();
      std::advance(victim, static_cast<long>(random() % live.size()));
      allocator.deallocate(victim->first);
      live.erase(victim);
    }
  }
  for (const auto& [data, bytes] : live) allocator.deallocate(data);
  EXPECT_EQ(allocator.statistics().used, 0u);
  allocator.release_unused();
  EXPECT_EQ(allocator.statistics().reserved, 0u);
  EXPECT_EQ(source.taken(), 0u);
}

}  // namespace
}  // namespace lockstep
