#include "comm/direct_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "comm/addition.h"

namespace lockstep::comm {
DirectAllReduce::DirectAllReduce(Messages& messages, const MessageSizes& sizes, int rank, int size)
    : messages_(messages), sizes_(sizes), rank_(rank), size_(size) {}

void DirectAllReduce::sum(void* data, int64_t count, DType dtype) {
  data_ = static_cast<char*>(data);
  dtype_ = dtype;
  width_ = static_cast<int64_t>(size_of(dtype));
  one_round_ = count * width_ * (size_ - 1) <= sizes_.one_round;
  const int64_t shares = one_round_ ? 1 : size_;
  most_ = std::min((count + shares - 1) / shares, sizes_.message / width_);
  const size_t needed = 2 * static_cast<size_t>(size_ * most_ * width_);
  if (scratch_.size() < needed) scratch_.resize(needed);

  const int64_t step = most_ * shares;
  const auto block = [&](int64_t n) {
    return Block{n * step, std::min(count, (n + 1) * step), static_cast<size_t>(n % 2)};
  };
  const int64_t blocks = (count + step - 1) / step;
  begin_scatter(block(0));
  for (int64_t n = 0; n < blocks; ++n) {
    // Its slots are those of the block before this one.
    if (n > 0 && n + 1 < blocks) finish_gather(block(n - 1));
    if (n + 1 < blocks) begin_scatter(block(n + 1));
    add(block(n));
    begin_gather(block(n));
  }
  for (int64_t n = std::max<int64_t>(0, blocks - 2); n < blocks; ++n) finish_gather(block(n));
}

size_t DirectAllReduce::slot(const Block& block, Way way, int peer) const {
  return (block.parity * 4 + static_cast<size_t>(way)) * static_cast<size_t>(size_) +
         static_cast<size_t>(peer);
}

DirectAllReduce::Block DirectAllReduce::share(const Block& block, int owner) const {
  if (one_round_) return block;
  const int64_t first = std::min(block.last, block.first + owner * most_);
  return {first, std::min(block.last, first + most_), block.parity};
}

char* DirectAllReduce::scratch(const Block& block, int from) {
  return scratch_.data() + (static_cast<int64_t>(block.parity) * size_ + from) * most_ * width_;
}

void DirectAllReduce::begin_scatter(const Block& block) {
  const Block own = share(block, rank_);
  for (int distance = 1; distance < size_; ++distance) {
    // Each begins with the next rank, so that no rank is everybody's first.
    const int to = (rank_ + distance) % size_, from = (rank_ + size_ - distance) % size_;
    const Block theirs = share(block, to);
    if (own.last > own.first)
      messages_.begin_receive(slot(block, Way::scatter_receive, from), from, scratch(block, from),
                              static_cast<size_t>((own.last - own.first) * width_));
    if (theirs.last > theirs.first)
      messages_.begin_send(slot(block, Way::scatter_send, to), to, data_ + theirs.first * width_,
                           static_cast<size_t>((theirs.last - theirs.first) * width_));
  }
}

void DirectAllReduce::add(const Block& block) {
  const Block own = share(block, rank_);
  const int64_t count = own.last - own.first;
  char* const sum = data_ + own.first * width_;
  // In one round the own addend is still being sent to the others.
  for (int peer = 0; peer < size_; ++peer) {
    const Block theirs = share(block, peer);
    if (peer != rank_ && theirs.last > theirs.first) messages_.finish(slot(block, Way::scatter_send, peer));
  }
  if (count == 0) return;
  // All sum in the order of the ranks, or one does; a + b is b + a.
  const bool in_order = one_round_ && size_ > 2;
  if (in_order && rank_ != 0) {
    std::memcpy(scratch(block, rank_), sum, static_cast<size_t>(count * width_));
    messages_.finish(slot(block, Way::scatter_receive, 0));
    std::memcpy(sum, scratch(block, 0), static_cast<size_t>(count * width_));
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == (in_order ? 0 : rank_)) continue;
    if (peer != rank_) messages_.finish(slot(block, Way::scatter_receive, peer));
    comm::add(sum, sum, scratch(block, peer), count, dtype_);
  }
}

void DirectAllReduce::begin_gather(const Block& block) {
  if (one_round_) return;
  const Block own = share(block, rank_);
  for (int distance = 1; distance < size_; ++distance) {
    const int to = (rank_ + distance) % size_, from = (rank_ + size_ - distance) % size_;
    const Block theirs = share(block, from);
    if (theirs.last > theirs.first)
      messages_.begin_receive(slot(block, Way::gather_receive, from), from, data_ + theirs.first * width_,
                              static_cast<size_t>((theirs.last - theirs.first) * width_));
    if (own.last > own.first)
      messages_.begin_send(slot(block, Way::gather_send, to), to, data_ + own.first * width_,
                           static_cast<size_t>((own.last - own.first) * width_));
  }
}

void DirectAllReduce::finish_gather(const Block& block) {
  if (one_round_) return;
  const Block own = share(block, rank_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Block theirs = share(block, peer);
    if (theirs.last > theirs.first) messages_.finish(slot(block, Way::gather_receive, peer));
    if (own.last > own.first) messages_.finish(slot(block, Way::gather_send, peer));
  }
}

}  // namespace lockstep::comm
