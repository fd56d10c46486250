// The communicator of processes of one machine that are joined by an engine: what a training step waits for
// goes through memory that they share, the rest through the engine.
#pragma once

#include <memory>

#include "comm/host_communicator.h"
#include "comm/shared_memory.h"

namespace lockstep::comm {

class MachineCommunicator final : public HostCommunicator {
 public:
  MachineCommunicator(std::unique_ptr<Communicator> engine, std::unique_ptr<SharedMemory> memory);

  bool shares_memory() const override { return true; }
  void all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                 Stream& stream) override;
  void all_gather(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                  std::span<const int64_t> receive_bytes, Stream& stream) override;
  void barrier(Stream& stream) override;

 private:
  void interrupt() noexcept override;

  const std::unique_ptr<Communicator> engine_;
  const std::unique_ptr<SharedMemory> memory_;
};

}  // namespace lockstep::comm
