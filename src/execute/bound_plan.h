// A plan bound to memory: its launches in order, with prepared kernels and operands filled in.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "compile/planning/kernel_pool.h"
#include "compile/planning/plan.h"
#include "device/stream.h"
#include "execute/launch_order.h"
#include "execute/memory.h"
#include "execute/phase_sync.h"
#include "lockstep/observe/span.h"

namespace lockstep::execute {

using compile::KernelSet;

// Which of a plan's calls are bound: those that run once per device, or those of one replica.
enum class Part : bool { per_device, per_replica };

// One run at a time, and one run at a time of all bound plans that share the kernels.
class BoundPlan {
 public:
  // The plan must outlive this. `place` is what launches say of themselves.
  BoundPlan(const Plan& plan, Part part, std::shared_ptr<KernelSet> kernels, const Memory& memory,
            LaunchPlace place)
      : BoundPlan(plan, part, std::move(kernels), only(memory), place) {}
  // `memories`: one; of a plan that is split over several devices, one for each of them.
  BoundPlan(const Plan& plan, Part part, std::shared_ptr<KernelSet> kernels,
            std::span<const Memory* const> memories, LaunchPlace place);

  // Fills in the pointers that may have changed since the last run.
  void bind(const Memory& memory) { bind(only(memory)); }
  void bind(std::span<const Memory* const> memories);
  // Fills in all others: for memory whose arenas have moved.
  void rebase(const Memory& memory) { rebase(only(memory)); }

  // Launches the calls of one phase on a stream of the memory's device.
  void run(int phase, Stream& stream, const PhaseSync& sync = {}) const;
  // The same on any stream, as part of a kernel: the launches belong to the place of that kernel.
  void run_inside(int phase, Stream& stream) const;
  std::pair<size_t, size_t> launches_of(int phase) const;
  // How many launches come from the plan's first `calls` calls.
  size_t launches_until(int calls) const;

  // What bind() filled in: a plan whose pointers are the same makes the same launches.
  std::span<void* const> bound_pointers() const { return bound_; }
  // Pointers of all calls in order, of each the inputs and then the outputs.
  std::span<void* const> pointers() const { return pointers_; }
  // Whether the launches of all phases may be captured and replayed.
  bool capturable() const { return capturable_; }
  // The launches of one phase for a captured graph, each behind those whose memory it shares, and no more
  // than `branches` of them side by side: a GPU goes from one queue of work to the next within microseconds,
  // but with hundreds of them, and those of other devices on the GPU, it takes a hundred. Those of a long
  // phase keep their order. They refer to this, and to the events and marks.
  std::vector<CapturedLaunch> captured_launches(int phase, const PhaseSync& sync = {},
                                                size_t branches = kBranches) const;
  static constexpr size_t kBranches = 8;

  // Consecutive calls of a split plan on one device.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    int device = 0;
    int threads = 1;
    bool copies = false;  // they bring values from other devices
  };
  std::span<const Segment> segments() const { return segments_; }
  void run(const Segment& segment) const;

  struct Work {
    int64_t kernels = 0;
    int64_t flops = 0;
    int64_t half_flops = 0;  // of them, on 16-bit floats
    Work& operator+=(const Work& other) {
      kernels += other.kernels;
      flops += other.flops;
      half_flops += other.half_flops;
      return *this;
    }
  };
  // The work of one run, on one device of a split plan or on the one there is.
  const Work& work(size_t device = 0) const { return work_[device]; }

 private:
  static std::array<const Memory*, 1> only(const Memory& memory) { return {&memory}; }

  struct Launch {
    const Kernel* kernel;  // null: a copy from another device
    size_t inputs;         // index of the first pointer
    size_t outputs;
    int64_t workspace_offset;  // -1: none
    void* workspace;
    observe::Name name;
    int64_t flops;
    int64_t bytes;
    const KernelCall* call;
    size_t calls = 1;  // that it makes, from that one on: more than one for a group
  };
  struct Patch {
    size_t pointer;
    Operand operand;
  };

  void add(std::span<const KernelCall> calls, const Kernel* kernel);
  bool is_long(size_t begin, size_t end) const;
  LaunchOrder::Launch uses_of(const Launch& launch) const;
  void rebase(std::span<const Memory* const> memories);
  void run(size_t begin, size_t end, Stream& stream) const;
  void launch(const Launch& launch, LaunchPlace place, Stream& stream) const;
  void copy(const Launch& launch) const;
  const Device& device_of(const Launch& launch) const;

  std::shared_ptr<KernelSet> kernels_;
  std::vector<Launch> launches_;
  const KernelCall* first_call_;  // of the plan
  std::vector<void*> pointers_;
  std::vector<void*> bound_;  // by patch
  std::vector<Patch> patches_;
  std::vector<Patch> fixed_;
  std::vector<size_t> phase_begin_;  // launches of phase p: [phase_begin_[p], phase_begin_[p + 1])
  std::vector<Segment> segments_;
  std::vector<Work> work_;
  std::span<Device* const> devices_;  // of a split plan
  const Part part_;
  bool checked_;  // results are looked at after every launch
  bool capturable_ = true;
  Device* home_;  // of a plan in one place; null: the CPU
  const LaunchPlace place_;
};

}  // namespace lockstep::execute
