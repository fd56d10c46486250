// The plans of a step: one for each size of slice that occurs.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/memory.h"
#include "execute/replicas.h"

namespace lockstep::execute {

// The first plan also updates the variables and writes the results that replicas have in common; the others
// only feed their replicas.
class StepPlans {
 public:
  // plans[i] is the program for a slice of slice_sizes[i] examples; every size that occurs must be there, but
  // for empty slices. Not replicated: one plan.
  StepPlans(std::vector<Plan> plans, std::vector<int64_t> slice_sizes);

  size_t size() const { return plans_.size(); }
  const Plan& operator[](size_t p) const { return plans_[p]; }
  const Plan& first() const { return plans_[0]; }
  // The number of the plan for a slice of this size.
  size_t of(const Slice& slice) const;
  // Where the first plan's variable stands in plan p, which may have met variables in another order; -1:
  // nowhere.
  int variable(size_t p, size_t variable) const { return variables_[p][variable]; }
  // The first plan's collective in plan p.
  const compile::Collective& twin(size_t p, const compile::Collective& collective) const;

 private:
  const std::vector<Plan> plans_;
  const std::vector<int64_t> slice_sizes_;
  std::vector<std::vector<int>> variables_;  // by plan
};

}  // namespace lockstep::execute
