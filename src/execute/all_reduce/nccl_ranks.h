// The ends of an NCCL communicator that this process' devices hold: one rank per device of every worker, made
// anew after an abort.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "execute/all_reduce/all_reduce.h"

namespace lockstep::execute {

class NcclRanks {
 public:
  // Ranks of the whole group: the devices of all its workers.
  static int count(const ReplicaGroup& group);
  static int rank_of(const ReplicaGroup& group, size_t device);

  // Before every step, at all workers; does nothing where they are connected.
  void connect(const ReplicaGroup& group);
  // From any thread.
  void abort();
  comm::Communicator& operator[](size_t device) { return *communicators_[device]; }

 private:
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;  // by device
  std::atomic<bool> broken_{true};                                  // they are to be made anew
};

}  // namespace lockstep::execute
