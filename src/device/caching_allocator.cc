#include "device/caching_allocator.h"

#include <algorithm>

namespace lockstep {
namespace {

size_t round_up(size_t bytes, size_t grain) { return (bytes + grain - 1) / grain * grain; }

}  // namespace

CachingAllocator::~CachingAllocator() { release_unused(); }

size_t CachingAllocator::rounded(size_t bytes) { return std::max(round_up(bytes, kGrain), kGrain); }

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t size = rounded(bytes);
  Block wanted{nullptr, size};
  const auto found = free_.lower_bound(&wanted);
  Block* block = found != free_.end() ? *found : grow(size);
  if (!block) return nullptr;
  free_.erase(block);
  split(block, size);
  block->used = true;
  used_ += block->size;
  return block->data;
}

void CachingAllocator::deallocate(void* data) noexcept {
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  Block* block = found->second.get();
  block->used = false;
  used_ -= block->size;
  if (block->behind && !block->behind->used) {
    free_.erase(block->behind);
    join_with_next(block);
  }
  if (block->before && !block->before->used) {
    block = block->before;
    free_.erase(block);
    join_with_next(block);
  }
  free_.insert(block);
}

bool CachingAllocator::reserve(size_t bytes) {
  return add_segment(round_up(bytes, kSegmentGrain)) != nullptr;
}

void CachingAllocator::release_unused() noexcept {
  for (auto at = free_.begin(); at != free_.end();) {
    Block* block = *at;
    if (block->before || block->behind) {
      ++at;
      continue;
    }
    at = free_.erase(at);
    source_.give_back(block->data, block->size);
    reserved_ -= block->size;
    --segments_;
    blocks_.erase(block->data);
  }
}

CachingAllocator::Statistics CachingAllocator::statistics() const {
  return {used_, reserved_, free_.empty() ? 0 : (*free_.rbegin())->size, segments_};
}

CachingAllocator::Block* CachingAllocator::grow(size_t size) {
  const size_t least = round_up(size, kSegmentGrain);
  if (Block* block = add_segment(std::max(least, next_segment_))) {
    next_segment_ = std::min(2 * next_segment_, kLargestStep);
    return block;
  }
  if (Block* block = add_segment(least)) return block;
  release_unused();
  return add_segment(least);
}

CachingAllocator::Block* CachingAllocator::add_segment(size_t size) {
  if (limit_ > 0 && reserved_ + size > limit_) return nullptr;
  void* segment = source_.take(size);
  if (!segment) return nullptr;
  auto block = std::make_unique<Block>(Block{static_cast<char*>(segment), size});
  Block* added = block.get();
  blocks_[segment] = std::move(block);
  free_.insert(added);
  reserved_ += size;
  ++segments_;
  return added;
}

void CachingAllocator::split(Block* block, size_t size) {
  if (block->size - size < kGrain) return;
  auto rest = std::make_unique<Block>(Block{block->data + size, block->size - size});
  rest->before = block;
  rest->behind = block->behind;
  if (rest->behind) rest->behind->before = rest.get();
  block->behind = rest.get();
  block->size = size;
  free_.insert(rest.get());
  blocks_[rest->data] = std::move(rest);
}

void CachingAllocator::join_with_next(Block* block) {
  Block* next = block->behind;
  block->size += next->size;
  block->behind = next->behind;
  if (block->behind) block->behind->before = block;
  blocks_.erase(next->data);
}

}  // namespace lockstep
