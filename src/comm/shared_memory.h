// Collectives between processes of one machine, through memory that they share.
//
// Each process has room there for what the others shall read:
//
//   all_reduce, small   all write what they have; each reads everybody's, and sums
//   all_reduce, large   block by block: all write; each sums its share of the block and writes the sum; all
//                       read the sums
//   all_gather          block by block: all write, all read
//   all_to_all          block by block: all write for each of the others, all read what is theirs
//
// A process that has written counts up, and who needs it waits for that count. All make the same calls, so
// that every process knows the counts of all. The room is there twice: while one half is read, the other is
// written, and nobody can be further ahead than that. Sums are made in the order of the ranks: all get the
// same bits.
//
// The memory has no name and ends with the last process that uses it, however that ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/group.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

// One thread at a time, but for interrupt().
class SharedMemory {
 public:
  static constexpr int kMostRanks = 64;

  // All processes of the group call it. Null at all of them where they are not on one machine or share no
  // memory, or where LOCKSTEP_SHARED_MEMORY says that they shall not. Throws what the group does.
  static std::unique_ptr<SharedMemory> join(Group& group, double timeout_s);

  // A file that `size` processes map; the caller closes it. Throws Error(io) where the system gives none.
  // `crowded`: the processes have fewer cores than they are, so that who waits gives its own away at once.
  static int make_file(int size, bool crowded);
  SharedMemory(int file, int rank, int size, bool crowded);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Each throws Error(io) where somebody interrupts, here or in another process, and
  // Error(failed_precondition) where another process is at another collective, or at one of another size.
  void all_reduce_sum(void* data, int64_t count, DType dtype);
  void all_gather(const void* source, void* target, int64_t bytes);
  // Each sends as many bytes to another as that one expects of it; this is not checked.
  void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                  std::span<const int64_t> receive_bytes);

  // Ends what waits, now and from now on, in all processes. From any thread.
  void interrupt() noexcept;

 private:
  struct Header;
  // What was counted when something was written.
  using Count = uint32_t;

  Header& header(int rank) const;
  // The half that a block has of a process' room.
  char* written(int rank, uint64_t block) const;
  char* sums(int rank, uint64_t block) const;

  // What this process has written of a block is there to be read; it is part of `call_`.
  Count publish(uint64_t block);
  Count publish();
  // Until all others have counted so far; they are at the same call then, or it throws.
  void wait(Count count, uint64_t block);
  void wait_for(int rank, Count count);
  void check_interrupted() const;
  void sum_in_one_round(char* data, int64_t count, DType dtype);
  void sum_in_two_rounds(char* data, int64_t count, DType dtype);
  // Elements [first, last) of the block that begins at `data`, of all processes.
  void add_up(char* target, const char* data, int64_t first, int64_t last, DType dtype, uint64_t block) const;

  const int rank_, size_;
  const bool crowded_;
  const int64_t block_bytes_;
  char* memory_ = nullptr;
  uint64_t block_ = 0;  // the number of the next block
  uint64_t call_ = 0;   // which collective of which size is under way
  Count count_ = 0;
  std::atomic<bool> interrupted_{false};
};

}  // namespace lockstep::comm
