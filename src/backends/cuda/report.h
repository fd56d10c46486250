// What kernels find wrong while they run, for the host to complain about.
//
// A launch does not wait for its kernel, so the kernel notes a bad value in memory that the host sees, and the next to
// wait for the stream throws. Of several findings the one at the smallest position is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {
class Stream;
}

namespace lockstep::cuda {

// In host memory that devices write.
struct Finding {
  static constexpr int kMost = 8;
  int32_t locked, found;
  int64_t position;
  int64_t values[kMost];  // as many as the kernel has to say

  int64_t value() const { return values[0]; }
};

// One for each kernel that checks its inputs. Thread-safe apart from on().
class Report {
 public:
  // `complain` throws the Error for a finding; it holds copies of all that it needs, and may outlive the Report.
  explicit Report(std::function<void(const Finding&)> complain);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // What a kernel that is launched on this stream notes findings in.
  Finding* on(const Stream& stream) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// To be called after waiting for a stream: throws what its kernels have found, and forgets it.
void throw_findings(const Stream& stream);

}  // namespace lockstep::cuda
