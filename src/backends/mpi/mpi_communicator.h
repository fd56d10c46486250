// A rank of MPI's world.
//
// A call of MPI that waits for a dead process never returns. Collectives are therefore begun and then tested,
// again and again, so that whoever looks after the run can end the wait; what was begun is abandoned then,
// and MPI with it. MPI's own collectives of that kind take several times as long to begin as the blocking
// ones: the sum, which every step waits for, is made of messages where the ranks are few.
#pragma once

#include <mpi.h>

#include <vector>

#include "comm/direct_all_reduce.h"
#include "comm/host_communicator.h"

namespace lockstep::mpi_engine {

// Initialises MPI at its first call; the process leaves MPI when it ends. Throws Error(unsupported) where
// this process is not one of `size` ranks of a launcher of MPI's.
void enter_world(int rank, int size);

class MpiCommunicator final : public comm::HostCommunicator, private comm::Messages {
 public:
  MpiCommunicator(int rank, int size);
  ~MpiCommunicator() override;

  void all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                 Stream& stream) override;
  void all_gather(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                  std::span<const int64_t> receive_bytes, Stream& stream) override;
  void barrier(Stream& stream) override;

 private:
  // Begins with `begin`, which fills in the request, and waits until it has ended or somebody aborts.
  template <class Begin>
  void complete(const char* what, Begin begin);
  // Returns when the request has ended. Throws where somebody aborts.
  void wait_for(MPI_Request& request, const char* what);

  void begin_send(size_t slot, int to, const void* data, size_t bytes) override;
  void begin_receive(size_t slot, int from, void* data, size_t bytes) override;
  void finish(size_t slot) override;

  MPI_Comm comm_ = MPI_COMM_NULL;
  // By rank, for all_to_all.
  std::vector<int> send_counts_, send_offsets_, receive_counts_, receive_offsets_;
  comm::DirectAllReduce direct_;
  std::vector<MPI_Request> requests_;  // by slot
};

}  // namespace lockstep::mpi_engine
