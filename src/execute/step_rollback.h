// Undoes what a step of several processes has written where it fails.
#pragma once

#include <vector>

#include "execute/replica_variables.h"
#include "execute/step_plans.h"

namespace lockstep::execute {

// A step can fail in each of its sums, because another process is lost. What comes after the last of them,
// the updates of weights above all, needs no other process: a step that gets there completes. Of variables
// that a step writes before that (a counter that replicas read, accumulated gradients) the old values are
// saved, so that a step that fails changes nothing.
class StepRollback {
 public:
  // For plans whose calls run in the host's memory. Variables of the first: those that are there as a whole,
  // and those of which every replica has a part.
  StepRollback(const StepPlans& plans, const std::vector<size_t>& mirrored,
               const std::vector<size_t>& per_replica);

  // Before the step, when every replica has its parts.
  void save();
  // After a step that failed. Variables hold again what they held; mirrors of them do not.
  void roll_back() const;

 private:
  struct Saved {
    void* data = nullptr;
    std::vector<char> bytes;
  };
  void add(void* data, size_t bytes);

  std::vector<Variable> mirrored_, per_replica_;
  std::vector<Saved> saved_;  // its memory is reused by every step
  size_t used_ = 0;
};

}  // namespace lockstep::execute
