// A Gloo context whose waits another thread can end.
//
// Closing a connection ends what Gloo waits to receive from it, but not a send of which a part is written:
// that would wait for Gloo's own time limit, although everybody knows that the peer is gone. So the buffers
// that collectives make are kept track of, and abort() ends their waits.
#pragma once

#include <gloo/rendezvous/context.h>

#include <memory>

namespace lockstep::gloo_engine {

class AbortableContext final : public ::gloo::rendezvous::Context {
 public:
  AbortableContext(int rank, int size);
  ~AbortableContext() override;

  // After connectFullMesh(): from then on abort() reaches all buffers.
  void watch();
  // Every wait that is under way or begins later throws. From any thread.
  void abort() noexcept;

 private:
  class Transport;
  class Buffer;
  std::shared_ptr<Transport> watched_;
};

}  // namespace lockstep::gloo_engine
