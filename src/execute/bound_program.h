// The launches of one plan in one place: kernels prepared, pointers filled in.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "compile/planning/plan.h"
#include "device/device_backend.h"
#include "lockstep/observe/span.h"

namespace lockstep::compile {

// The memory a plan's operands come from. Pointers that change between runs are read at bind().
struct Memory {
  Device* device = nullptr;  // whose it is; null: the CPU's
  char* device_arena = nullptr;
  char* replica_arena = nullptr;
  std::vector<void*> parameters;
  std::vector<void*> variables;
  std::vector<void*> captures;
  std::vector<void*> constants;
  std::vector<void*> outputs;
  int64_t example_offset = 0;
  void* example_offset_at = nullptr;  // where a device that cannot read the above finds it

  void* at(const Operand& operand);
};

struct MemoryRange {
  const char* begin;
  const char* end;
  bool meets(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

// What the launches of a phase have to do with other streams.
struct Crossings {
  // Launches that touch the memory wait for the events.
  struct Wait {
    std::vector<MemoryRange> memory;
    std::vector<const Event*> events;
  };
  // The event happens when the first `launches` of the program have.
  struct Announcement {
    size_t launches = 0;
    Event* event = nullptr;
  };
  std::span<const Wait> waits;
  std::span<const Announcement> announcements;  // in the order of their launches
};

class BoundProgram {
 public:
  // The steps of `plan`, which must outlive this, that run once per replica, or those that run once per
  // device.
  BoundProgram(const Plan& plan, bool per_replica, const PlanOptions& options, Memory& memory, int device,
               int replica)
      : BoundProgram(plan, per_replica, options, only(memory), device, replica) {}
  // `memories`: one; of a program that is split over several devices, one for each of them.
  BoundProgram(const Plan& plan, bool per_replica, const PlanOptions& options,
               std::span<Memory* const> memories, int device, int replica);

  // Fills in the pointers that may have changed since the last run.
  void bind(Memory& memory) { bind(only(memory)); }
  void bind(std::span<Memory* const> memories);
  // Fills in all others: for memory whose arenas have moved.
  void rebase(Memory& memory) { rebase(only(memory)); }
  // Launches the steps of one phase, on the compute stream of the memory's device or on this one.
  void run(int phase, const Crossings& crossings = {}) const;
  void run_on(Stream& stream, int phase) const;
  // Launches [begin, end) of all, which belong to one phase.
  void run(size_t begin, size_t end) const;
  std::pair<size_t, size_t> launches_of(int phase) const;
  // How many launches come from the plan's first `steps` steps.
  size_t launches_until(int steps) const;
  // What bind() filled in: a program whose pointers are the same makes the same launches.
  std::span<void* const> bound_pointers() const { return bound_; }
  // Of all steps in order, of each the inputs and then the outputs.
  std::span<void* const> pointers() const { return pointers_; }
  // Whether the launches of all phases may be captured and replayed (DeviceBackend::capture).
  bool capturable() const { return capturable_; }
  // The launches of one phase, each behind those whose memory it shares, and no more than `lanes` of them side by side: a
  // GPU goes from one queue of work to the next within microseconds, but with hundreds of them, and those of other
  // devices on the card, it takes a hundred. Those of a long phase keep their order. They refer to this, and to the
  // events.
  std::vector<CapturedLaunch> captured(int phase, const Crossings& crossings = {},
                                       size_t lanes = kLanes) const;
  static constexpr size_t kLanes = 8;

  // Consecutive steps of a split program on one device.
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
  };
  // On one device of a split program; on the one there is.
  const Work& work(size_t device = 0) const { return work_[device]; }
  int64_t kernels() const { return work().kernels; }
  int64_t flops() const { return work().flops; }

 private:
  static std::array<Memory*, 1> only(Memory& memory) { return {&memory}; }

  struct Launch {
    std::unique_ptr<Kernel> kernel;  // null: a copy from another device
    size_t inputs;                   // index of the first pointer
    size_t outputs;
    int64_t workspace_offset;  // -1: none
    void* workspace;
    observe::Name name;
    int64_t flops;
    int64_t bytes;
    const Step* step;
    size_t steps = 1;  // of a group: so many from that one on
  };
  struct Patch {
    size_t pointer;
    Operand operand;
  };

  // The kernel of the steps from this one on, as many as `steps` then says.
  std::unique_ptr<Kernel> prepare(const Plan& plan, const Step& step, DeviceKind kind, int threads,
                                  size_t& steps);
  bool is_long(size_t begin, size_t end) const;
  void rebase(std::span<Memory* const> memories);
  void run(size_t begin, size_t end, Stream& stream) const;
  void launch(const Launch& launch, int device, Stream& stream) const;
  DeviceBackend& home() const;
  void copy(const Launch& launch) const;
  const Device& place_of(const Launch& launch) const;

  std::vector<Launch> launches_;
  const Step* first_step_;  // of the plan
  std::vector<void*> pointers_;
  std::vector<void*> bound_;  // by patch
  std::vector<Patch> patches_;
  std::vector<Patch> fixed_;
  std::vector<size_t> phase_begin_;  // launches of phase p: [phase_begin_[p], phase_begin_[p + 1])
  std::vector<Segment> segments_;
  std::vector<Work> work_;
  std::span<Device* const> devices_;  // of a split program
  bool per_replica_;
  bool checked_;  // results are looked at after every launch
  bool capturable_ = true;
  Device* home_;  // of a program in one place; null: the CPU
  int device_;
  int replica_;
};

}  // namespace lockstep::compile
