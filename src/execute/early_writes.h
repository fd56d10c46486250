// What a step of several processes writes before it is sure to end.
#pragma once

#include <vector>

#include "execute/replica_variables.h"
#include "execute/step_plans.h"

namespace lockstep::execute {

// A step can fail in each of its sums, because another process is lost. What comes behind the last of them
// needs nobody else: there are the updates of weights, and a step that gets there has happened. What it
// writes before that (a counter that replicas read, accumulated gradients) is kept, so that a step that
// failed has never been.
class EarlyWrites {
 public:
  // For plans whose calls run in the host's memory; `mirrored` and `parted` are variables of the first.
  EarlyWrites(const StepPlans& plans, const std::vector<size_t>& mirrored, const std::vector<size_t>& parted);

  // Before the step, when every replica has its parts.
  void keep();
  // After a step that failed. Variables hold again what they held; mirrors of them do not.
  void put_back() const;

 private:
  struct Kept {
    void* data = nullptr;
    std::vector<char> bytes;
  };
  void add(void* data, size_t bytes);

  std::vector<Variable> mirrored_, parted_;
  std::vector<Kept> kept_;  // memory is used again
  size_t used_ = 0;
};

}  // namespace lockstep::execute
