// Sums between a few processes, made of messages that go straight from each to each.
//
// What an engine's own all-reduce passes from neighbour to neighbour around a ring, 2 (n - 1) messages one
// after the other, takes one round here, or two:
//
//   one round    everybody sends all it has to everybody, and each sums: the least latency
//   two rounds   everybody sends each its share, the owner of a share sums and sends the sum back:
//                reduce-scatter and all-gather, as many bytes as a ring sends.
//
// What is large is cut into blocks: while the addends of one are summed, those of the next arrive. All ranks
// get the same bits: each sum is made by one of them, or by all in the order of their ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

// What an engine offers: messages between two ranks, which arrive in the order in which they were sent. A
// slot holds one message that is under way.
class Messages {
 public:
  virtual ~Messages() = default;
  virtual void begin_send(size_t slot, int to, const void* data, size_t bytes) = 0;
  virtual void begin_receive(size_t slot, int from, void* data, size_t bytes) = 0;
  // Throws where it cannot end; the other slots are given up then.
  virtual void finish(size_t slot) = 0;
};

// In bytes; what is best depends on what a message costs beside its bytes.
struct MessageSizes {
  int64_t one_round = 0;  // a rank sends at most so many in one round; more go in two
  int64_t message = 0;    // the largest
};

class DirectAllReduce {
 public:
  DirectAllReduce(Messages& messages, const MessageSizes& sizes, int rank, int size);

  // Beyond this number of processes a ring keeps fewer connections busy at a time.
  static constexpr int kMostRanks = 8;
  static constexpr size_t slots(int size) { return 8 * static_cast<size_t>(size); }

  // In place. Every rank calls it with the same count and dtype.
  void sum(void* data, int64_t count, DType dtype);

 private:
  // Elements [first, last) of the whole.
  struct Block {
    int64_t first = 0, last = 0;
    size_t parity = 0;  // which half of the slots and of the scratch memory it has
  };
  enum class Way : uint8_t { scatter_send, scatter_receive, gather_send, gather_receive };

  size_t slot(const Block& block, Way way, int peer) const;
  Block share(const Block& block, int owner) const;
  char* scratch(const Block& block, int from);
  void begin_scatter(const Block& block);
  void add(const Block& block);
  void begin_gather(const Block& block);
  void finish_gather(const Block& block);

  Messages& messages_;
  const MessageSizes sizes_;
  const int rank_, size_;
  // What the call that is under way works on.
  char* data_ = nullptr;
  DType dtype_ = DType::float32;
  int64_t width_ = 0;
  bool one_round_ = false;
  int64_t most_ = 0;  // elements that a rank sends to another in a round
  std::vector<char> scratch_;
};

}  // namespace lockstep::comm
