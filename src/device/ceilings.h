// What a device can do at most, measured: the figures to hold its runs against.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep {

// Multiplications and additions of `rounds` rounds of independent fused multiply-adds on float32 vectors that
// stay in registers, of the widest kind that the processor has. Runs on the calling thread.
double multiply_adds(int64_t rounds);

// A reading, below a millisecond long: how many of these so many threads do in a second.
double measure_multiply_adds(int threads);

// What a GPU can do in a second at its highest clock. `capability`: 90 for 9.0.
struct GpuPeaks {
  double float32 = 0;  // by the cores that multiply float32
  double half = 0;     // by tensor cores, bfloat16 with sums in float32, without sparsity; 0: it has none
};
GpuPeaks gpu_peaks(int capability, int multiprocessors, int clock_mhz);

// What a device can do in a second at most; 0 where nothing is known.
struct PeakFlops {
  double float32 = 0;
  double half = 0;  // on 16-bit floats
};
// The highest rates of a device: of a CPU the best of some readings, which are taken once per process and
// number of threads, of a GPU what its data say.
PeakFlops peak_flops(const Device& device);
// Tensor cores count for float32 as well, by three products of TF32 for one, or by one where TF32 is allowed.
PeakFlops peak_flops(const GpuPeaks& peaks);

// Copies past the caches, as a copy of much memory should. `target` is aligned to 16 bytes.
void streaming_copy(float* target, const float* source, int64_t count);

// Seconds that threads of this process were ready to run but had no core; 0 where the system does not count
// them.
double waited_for_cores();

// What a report has to know of the devices that a run uses: their threads, the cores that there are for them,
// how long they had none, the ceiling of one, and what they compute in place of a GPU. Made when the run
// begins.
class DevicesOfRun {
 public:
  explicit DevicesOfRun(std::vector<Device*> devices)
      : devices_(std::move(devices)), waited_before_s_(waited_for_cores()) {}
  const std::vector<Device*>& devices() const { return devices_; }
  void describe(observe::RunSummary& summary) const;

 private:
  std::vector<Device*> devices_;
  double waited_before_s_;
};

}  // namespace lockstep
