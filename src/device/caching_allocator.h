// Blocks of memory cut from large segments and kept for whoever comes next: what GPUs take their memory with.
//
// A request is served from the smallest free block that holds it; the rest of the block stays free, and
// neighbours that are free become one again. New segments double in size up to a bound, so that a program
// needs few of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

namespace lockstep {

// Where segments come from.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual void* take(size_t bytes) = 0;  // null: refused
  virtual void give_back(void* segment, size_t bytes) noexcept = 0;
};

// Not thread-safe. Blocks are 512-byte aligned where segments are.
class CachingAllocator {
 public:
  explicit CachingAllocator(SegmentSource& source) : source_(source) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Null where neither the free blocks nor the source, within the limit, have that much.
  void* allocate(size_t bytes);
  void deallocate(void* data) noexcept;
  // Takes one segment of this size ahead of need; false where it is refused.
  bool reserve(size_t bytes);
  // Gives segments back of which nothing is used.
  void release_unused() noexcept;
  // Segments may hold this much in all; 0: no limit.
  void set_limit(size_t bytes) { limit_ = bytes; }

  struct Statistics {
    size_t used = 0;      // in blocks that are handed out, as they were rounded
    size_t reserved = 0;  // in segments
    size_t largest_free = 0;
    size_t segments = 0;
  };
  Statistics statistics() const;
  // Bytes of the block that holds `bytes`.
  static size_t rounded(size_t bytes);

 private:
  struct Block {
    char* data;
    size_t size;
    bool used = false;
    Block* before = nullptr;  // neighbours in the segment
    Block* behind = nullptr;
  };
  struct Smaller {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->data < b->data;
    }
  };

  Block* grow(size_t size);
  Block* add_segment(size_t size);
  void split(Block* block, size_t size);
  void join_with_next(Block* block);

  SegmentSource& source_;
  size_t limit_ = 0;
  size_t used_ = 0;
  size_t reserved_ = 0;
  size_t segments_ = 0;
  size_t next_segment_ = kFirstSegment;
  std::set<Block*, Smaller> free_;
  std::unordered_map<void*, std::unique_ptr<Block>> blocks_;  // all of them, by where they begin

  static constexpr size_t kGrain = 512;
  static constexpr size_t kSegmentGrain = size_t{2} << 20;
  static constexpr size_t kFirstSegment = size_t{2} << 20;
  static constexpr size_t kLargestStep = size_t{256} << 20;
};

}  // namespace lockstep
