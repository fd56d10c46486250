// What engines have in common that move the host's memory and block the calling thread: Gloo and MPI.
//
// A stream of the host does everything at once, so a collective has happened when its call returns. Whoever
// looks after the run (comm/workers.h) ends a call that does not return, from another thread, with abort().
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "comm/communicator.h"

namespace lockstep::comm {

class HostCommunicator : public Communicator {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void begin_batch() final {}
  void end_batch() final {}
  void watch(const char*, Stream&) final {}
  void wait(Stream&) final { check(); }
  void check() final {
    if (aborted()) fail_aborted();
  }
  void abort(const std::string& reason) noexcept final;

 protected:
  HostCommunicator(std::string engine, int rank, int size)
      : engine_(std::move(engine)), rank_(rank), size_(size) {}

  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  // Makes a call that another thread is blocked in come back, where the engine needs help with that.
  virtual void interrupt() noexcept {}
  // Calls the engine. What it throws, and an abort meanwhile, become Error(io).
  template <class Call>
  void run(const char* what, Call call) {
    check();
    try {
      call();
    } catch (const std::exception& error) {
      if (aborted()) fail_aborted();
      fail_of(what, error.what());
    }
    check();
  }

 private:
  [[noreturn]] void fail_aborted() const;
  [[noreturn]] void fail_of(const char* what, const char* why) const;

  const std::string engine_;
  const int rank_, size_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace lockstep::comm
