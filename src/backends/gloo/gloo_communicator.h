// A rank of a Gloo context: collectives over TCP, between all pairs of processes.
#pragma once

#include <memory>
#include <vector>

#include "backends/gloo/abortable_context.h"
#include "comm/direct_all_reduce.h"
#include "comm/host_communicator.h"

namespace lockstep::gloo_engine {

class GlooCommunicator final : public comm::HostCommunicator, private comm::Messages {
 public:
  // Meets the others through the options' group, and listens at the address that the group knows this process
  // by.
  GlooCommunicator(int rank, int size, const comm::CommunicatorOptions& options);
  ~GlooCommunicator() override;

  void all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                 Stream& stream) override;
  void all_gather(const void* source, void* target, int64_t count, DType dtype, Stream& stream) override;
  void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                  std::span<const int64_t> receive_bytes, Stream& stream) override;
  void barrier(Stream& stream) override;

 private:
  void interrupt() noexcept override;
  void begin_send(size_t slot, int to, const void* data, size_t bytes) override;
  void begin_receive(size_t slot, int from, void* data, size_t bytes) override;
  void finish(size_t slot) override;
  // Gloo tells collectives apart that are under way at the same time: here there is one, and the next has
  // another tag.
  uint32_t next_tag() { return tag_++; }

  std::shared_ptr<AbortableContext> context_;
  // The sockets of the pairs, which Gloo keeps to itself: shutting them down tells the other end, and makes
  // a receive that is blocked come back. They are duplicates, so that a number is never another file's.
  std::vector<int> sockets_;
  uint32_t tag_ = 0;

  // A message that is under way.
  struct Message {
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    bool sent = false;  // or received
  };
  comm::DirectAllReduce direct_;
  std::vector<Message> messages_;                  // by slot
  std::vector<uint64_t> sent_to_, received_from_;  // by rank: how many messages
};

}  // namespace lockstep::gloo_engine
