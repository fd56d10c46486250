#include "execute/all_reduce/nccl_ranks.h"

#include "comm/workers.h"

namespace lockstep::execute {

int NcclRanks::count(const ReplicaGroup& group) {
  return static_cast<int>(group.devices.size()) * (group.workers ? group.workers->size() : 1);
}

int NcclRanks::rank_of(const ReplicaGroup& group, size_t device) {
  const int first = group.workers ? group.workers->rank() * static_cast<int>(group.devices.size()) : 0;
  return first + static_cast<int>(device);
}

void NcclRanks::connect(const ReplicaGroup& group) {
  if (!broken_) return;
  communicators_.clear();
  if (group.workers) {
    comm::Workers& workers = *group.workers;
    const comm::CommunicatorBackend& nccl = comm::communicator_backend("nccl");
    const std::string id =
        workers.broadcast("the id of NCCL", workers.chief() ? nccl.make_id() : std::string());
    communicators_ = nccl.join_all(group.devices, {id, rank_of(group, 0), count(group)},
                                   {.timeout_s = workers.timeout_s(), .group = &workers.group()});
  } else {
    communicators_ = comm::join_all(group.devices, "nccl");
  }
  broken_ = false;
}

void NcclRanks::abort() {
  broken_ = true;
  for (const auto& communicator : communicators_) communicator->abort("another device of the program failed");
}

}  // namespace lockstep::execute
