// A program's launches on a device that can record them, repeated as one.
#pragma once

#include <memory>
#include <vector>

#include "device/device_backend.h"
#include "execute/bound_program.h"
#include "execute/whole_step_fusion.h"

namespace lockstep::compile {

// Of one program; pointers that come back are what makes a recording worth its price, so a phase is recorded
// when it is about to run for the second time with the same ones.
class RepeatedLaunches {
 public:
  // The whole program as one launch, from now on.
  void join(std::unique_ptr<JoinedSteps> joined) { joined_ = std::move(joined); }
  // So many launches of a recording run side by side.
  void set_lanes(size_t lanes) { lanes_ = lanes; }
  // The crossings of a phase are the same in every run.
  void run(const BoundProgram& program, int phase, Device& device, const Crossings& crossings = {});
  // Several runs as one launch; false: not with this program.
  bool run(const BoundProgram& program, const RowRuns& runs, Device& device) {
    backend_of(device).bind_thread();
    return joined_ && joined_->launch(program.pointers(), runs, backend_of(device).compute_stream());
  }
  bool joined() const { return joined_ != nullptr; }

 private:
  struct Recording {
    int phase = 0;
    std::vector<void*> pointers;
    bool joined = false;
    std::unique_ptr<CapturedGraph> graph;  // null: seen once
    uint64_t used = 0;
  };
  static constexpr size_t kMost = 8;  // results take turns in a few places

  std::unique_ptr<JoinedSteps> joined_;
  std::vector<Recording> recordings_;
  size_t lanes_ = BoundProgram::kLanes;
  uint64_t runs_ = 0;
};

}  // namespace lockstep::compile
