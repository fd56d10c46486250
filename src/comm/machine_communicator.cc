#include "comm/machine_communicator.h"

#include <cstring>
#include <utility>

namespace lockstep::comm {

MachineCommunicator::MachineCommunicator(std::unique_ptr<Communicator> engine,
                                         std::unique_ptr<SharedMemory> memory)
    : HostCommunicator("shared memory", engine->rank(), engine->size()),
      engine_(std::move(engine)),
      memory_(std::move(memory)) {}

void MachineCommunicator::all_reduce_sum(const void* source, void* target, int64_t count, DType dtype,
                                         Stream&) {
  if (count == 0) return;
  if (source != target) std::memcpy(target, source, static_cast<size_t>(count) * size_of(dtype));
  run("all_reduce_sum", [&] { memory_->all_reduce_sum(target, count, dtype); });
}

void MachineCommunicator::broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                                    Stream& stream) {
  run("broadcast", [&] { engine_->broadcast(source, target, count, dtype, root, stream); });
}

void MachineCommunicator::all_gather(const void* source, void* target, int64_t count, DType dtype, Stream&) {
  run("all_gather",
      [&] { memory_->all_gather(source, target, count * static_cast<int64_t>(size_of(dtype))); });
}

void MachineCommunicator::all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                                     std::span<const int64_t> receive_bytes, Stream&) {
  run("all_to_all", [&] { memory_->all_to_all(source, send_bytes, target, receive_bytes); });
}

void MachineCommunicator::barrier(Stream& stream) {
  run("barrier", [&] { engine_->barrier(stream); });
}

void MachineCommunicator::interrupt() noexcept {
  memory_->interrupt();
  engine_->abort("the wait was ended");
}

}  // namespace lockstep::comm
