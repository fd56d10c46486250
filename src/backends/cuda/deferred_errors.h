// Deferred device errors: bad values (a label out of range) that kernels meet while they run, raised by the
// host later, as CUDA reports asynchronous errors.
//
// A launch does not wait for its kernel, so the kernel writes a bad value to memory that the host sees, and
// the next to synchronize with the stream throws. Of several errors the one at the smallest position is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {
class Stream;
}

namespace lockstep::cuda {

// In host memory that devices write.
struct DeferredError {
  static constexpr int kMost = 8;
  int32_t locked, found;
  int64_t position;
  int64_t values[kMost];  // as many as the kernel has to say

  int64_t value() const { return values[0]; }
};

// One for each kernel that checks its inputs. Thread-safe apart from on().
class DeferredErrors {
 public:
  // `raise` throws the Error for what a kernel has written; it holds copies of all that it needs, and may
  // outlive the DeferredErrors.
  explicit DeferredErrors(std::function<void(const DeferredError&)> raise);
  ~DeferredErrors();
  DeferredErrors(const DeferredErrors&) = delete;
  DeferredErrors& operator=(const DeferredErrors&) = delete;

  // Where a kernel that is launched on this stream writes its error.
  DeferredError* on(const Stream& stream) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// To be called after waiting for a stream: throws the deferred errors of its kernels, and forgets them.
void throw_deferred_errors(const Stream& stream);

}  // namespace lockstep::cuda
