// A rank of an NCCL communicator.
//
// NCCL neither blocks the caller nor is trusted to end: a thread looks at what is queued, at NCCL's own
// errors and at the group of processes, and aborts the communicator where a rank is lost, an error occurs or
// the time is over. Kernels that wait for others end then.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/nccl/library.h"
#include "comm/communicator.h"

namespace lockstep::nccl {

class NcclCommunicator final : public comm::Communicator {
 public:
  // Begins to connect; connect() waits for it.
  NcclCommunicator(Device& device, const ncclUniqueId& id, int rank, int size,
                   const comm::CommunicatorOptions& options);
  ~NcclCommunicator() override;
  void connect();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                 Stream& stream) override;
  void all_gather(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                  std::span<const int64_t> receive_bytes, Stream& stream) override;
  void begin_batch() override;
  void end_batch() override;
  void barrier(Stream& stream) override;
  void watch(const char* what, Stream& stream) override;
  void wait(Stream& stream) override;
  void check() override;
  void abort(const std::string& reason) noexcept override;

 private:
  using Moment = std::chrono::steady_clock::time_point;

  // What was asked for, in words.
  struct Operation {
    const char* what = "";
    int64_t count = -1;
    DType dtype = DType::float32;
    std::string text() const;
  };
  struct Queued {
    Operation operation;
    int64_t number;
    cudaEvent_t ended;
    Moment until;
  };

  template <class Call>
  void queue(const Operation& operation, Stream& stream, Call call);
  void note(const Operation& operation, Stream& stream);
  void settle(ncclResult_t result, const std::string& what);
  std::string words(ncclResult_t result) const;
  void look();
  void give_up(std::string reason) noexcept;
  void abort_communicator() noexcept;
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  const Library& nccl_;
  Device& device_;
  const int rank_, size_;
  const comm::CommunicatorOptions options_;

  std::mutex comm_mutex_;  // held around calls of NCCL with it
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // of all below
  std::string reason_;
  std::deque<Queued> queued_;
  std::vector<cudaEvent_t> spare_;
  int64_t begun_ = 0, ended_ = 0;
  std::condition_variable wake_;
  bool ending_ = false;

  bool in_batch_ = false;
  Operation batch_;
  Stream* batch_stream_ = nullptr;
  int* meeting_ = nullptr;  // what a barrier sums
  std::thread watcher_;
};

}  // namespace lockstep::nccl
