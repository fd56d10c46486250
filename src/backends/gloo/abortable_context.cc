#include "backends/gloo/abortable_context.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::gloo_engine {

// Hands everything on to Gloo's own, and knows the buffers that are there.
class AbortableContext::Transport final : public ::gloo::transport::Context {
 public:
  explicit Transport(std::shared_ptr<::gloo::transport::Context> own)
      : ::gloo::transport::Context(own->rank, own->size), own_(std::move(own)) {
    setTimeout(own_->getTimeout());
  }

  std::unique_ptr<::gloo::transport::Pair>& getPair(int rank) override { return own_->getPair(rank); }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override { return own_->createPair(rank); }
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr, size_t size) override;

  void add(Buffer* buffer) {
    const std::lock_guard lock(mutex_);
    buffers_.push_back(buffer);
  }
  void remove(Buffer* buffer) {
    const std::lock_guard lock(mutex_);
    std::erase(buffers_, buffer);
  }
  void check() const {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw std::runtime_error("the wait was ended");
  }
  void abort() noexcept;

 private:
  const std::shared_ptr<::gloo::transport::Context> own_;
  mutable std::mutex mutex_;
  std::vector<Buffer*> buffers_;
  bool aborted_ = false;
};

class AbortableContext::Buffer final : public ::gloo::transport::UnboundBuffer {
 public:
  Buffer(Transport& transport, std::unique_ptr<::gloo::transport::UnboundBuffer> own)
      : UnboundBuffer(own->ptr, own->size), transport_(transport), own_(std::move(own)) {
    transport_.add(this);
  }
  ~Buffer() override { transport_.remove(this); }

  // An abort before the wait ends it as well: Gloo keeps the mark until somebody waits.
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    transport_.check();
    const bool done = own_->waitRecv(rank, timeout);
    if (!done) transport_.check();
    return done;
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    transport_.check();
    const bool done = own_->waitSend(rank, timeout);
    if (!done) transport_.check();
    return done;
  }
  void abortWaitRecv() override { own_->abortWaitRecv(); }
  void abortWaitSend() override { own_->abortWaitSend(); }
  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    own_->send(rank, slot, offset, bytes);
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    own_->recv(rank, slot, offset, bytes);
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes) override {
    own_->recv(std::move(ranks), slot, offset, bytes);
  }

 private:
  Transport& transport_;
  const std::unique_ptr<::gloo::transport::UnboundBuffer> own_;
};

std::unique_ptr<::gloo::transport::UnboundBuffer> AbortableContext::Transport::createUnboundBuffer(
    void* ptr, size_t size) {
  return std::make_unique<Buffer>(*this, own_->createUnboundBuffer(ptr, size));
}

void AbortableContext::Transport::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (Buffer* buffer : buffers_) {
    buffer->abortWaitSend();
    buffer->abortWaitRecv();
  }
}

AbortableContext::AbortableContext(int rank, int size) : ::gloo::rendezvous::Context(rank, size) {}
AbortableContext::~AbortableContext() = default;

void AbortableContext::watch() {
  watched_ = std::make_shared<Transport>(transportContext_);
  transportContext_ = watched_;
}

void AbortableContext::abort() noexcept {
  if (watched_) watched_->abort();
}

}  // namespace lockstep::gloo_engine
