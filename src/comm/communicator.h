// Collectives between devices that share no memory: of one process or of several.
//
// A communicator is one rank's end. All ranks make the same calls in the same order. What goes wrong, here or
// at another rank, ends every wait: the communicator is aborted, and from then on each call throws Error(io)
// with the rank, the operation and, where a Group knows, who is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"
#include "device/device_backend.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

struct CommunicatorOptions {
  double timeout_s = 300;  // for every collective, from when it is queued; and for all ranks to come
  Group* group = nullptr;  // of the processes; outlives the communicator. Null: all ranks are in this process
};

// One thread at a time, but for abort().
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether the ranks are of one machine, and sum in memory that they share.
  virtual bool shares_memory() const { return false; }

  // Each queues its work on `stream` (a stream of the rank's device) and returns; the very first waits until
  // all ranks are connected. They may be captured (DeviceBackend::capture_graph) once one of them has run.
  // Sums of bfloat16 and float16 are rounded after every addition, in an order of the library's.
  virtual void all_reduce_sum(const void* source, void* target, int64_t count, DType dtype,
                              Stream& stream) = 0;
  virtual void broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                         Stream& stream) = 0;
  // `target` has size() * count elements, by rank.
  virtual void all_gather(const void* source, void* target, int64_t count, DType dtype, Stream& stream) = 0;
  // Bytes: send_bytes[r] of them go to rank r, receive_bytes[r] come from it; both lie one rank after the
  // other.
  virtual void all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                          std::span<const int64_t> receive_bytes, Stream& stream) = 0;
  // What is called between these becomes one launch.
  virtual void begin_batch() = 0;
  virtual void end_batch() = 0;

  // Waits until all ranks are here, and all that is queued on the stream has happened.
  virtual void barrier(Stream& stream) = 0;
  // All that is queued on the stream now is to happen within the time limit: for captured collectives, after
  // each launch. `what` is what errors call it, and lives as long as the communicator.
  virtual void watch(const char* what, Stream& stream) = 0;
  // Waits for the stream.
  virtual void wait(Stream& stream) = 0;
  // Throws what went wrong so far.
  virtual void check() = 0;
  // Ends all that waits, here and at the other ranks.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// Plugin::interface of PluginKind::communicator. Thread-safe.
class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;
  // "NCCL 2.28.9 of /usr/lib/libnccl.so.2". Throws Error(unsupported) that says what is missing and where it
  // was looked for; so do the others.
  virtual std::string description() const = 0;
  // What the ranks of one communicator have in common; made by one of them.
  virtual std::string make_id() const = 0;
  virtual std::unique_ptr<Communicator> join(Device& device, const std::string& id, int rank, int size,
                                             const CommunicatorOptions& options) const = 0;
  // Several ranks of one communicator that are devices of this process: ranks first, first + 1, ... of
  // `size`.
  struct Place {
    std::string id;
    int first = 0;
    int size = 1;
  };
  virtual std::vector<std::unique_ptr<Communicator>> join_all(std::span<Device* const> devices,
                                                              const Place& place,
                                                              const CommunicatorOptions& options) const;
  // What rank 0 of a launcher that the engine belongs to gives, at all its ranks: how processes find each
  // other that know their ranks but no address. Throws Error(unsupported) where the engine has no launcher of
  // its own.
  virtual std::string share_at_launch(const std::string& bytes, int rank, int size) const;
};

// The backend of the plugin of this name ("nccl"); throws Error(unsupported) with the reason why there is
// none.
const CommunicatorBackend& communicator_backend(std::string_view name,
                                                std::source_location where = std::source_location::current());
// Why communicator_backend() would throw, or its description() would; empty: it is there.
std::string missing_backend(std::string_view name);

// A communicator over all devices of this process and no others.
std::vector<std::unique_ptr<Communicator>> join_all(std::span<Device* const> devices,
                                                    std::string_view backend,
                                                    const CommunicatorOptions& options = {});
// A communicator over the processes of a group, on this process' device.
std::unique_ptr<Communicator> join(Group& group, Device& device, CommunicatorOptions options = {},
                                   std::string_view backend = "nccl",
                                   std::source_location where = std::source_location::current());

}  // namespace lockstep::comm
