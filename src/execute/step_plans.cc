#include "execute/step_plans.h"

#include <algorithm>

namespace lockstep::execute {

StepPlans::StepPlans(std::vector<Plan> plans, std::vector<int64_t> slice_sizes)
    : plans_(std::move(plans)), slice_sizes_(std::move(slice_sizes)) {
  for (const Plan& plan : plans_) {
    auto& indices = variables_.emplace_back();
    for (const Variable& variable : first().variables) {
      const auto it = std::find_if(plan.variables.begin(), plan.variables.end(),
                                   [&](const Variable& v) { return v.id() == variable.id(); });
      indices.push_back(it == plan.variables.end() ? -1 : static_cast<int>(it - plan.variables.begin()));
    }
  }
}

size_t StepPlans::of(const Slice& slice) const {
  const auto found = std::find(slice_sizes_.begin(), slice_sizes_.end(), slice.size);
  require(found != slice_sizes_.end(), ErrorCode::internal, std::source_location::current(),
          "no plan for a slice of ", slice.size);
  return static_cast<size_t>(found - slice_sizes_.begin());
}

const compile::Collective& StepPlans::twin(size_t p, const compile::Collective& collective) const {
  const auto& all = plans_[p].collectives;
  const auto it = std::find_if(all.begin(), all.end(), [&](const compile::Collective& c) {
    return c.sequence == collective.sequence;
  });
  require(it != all.end() && it->spec == collective.spec && it->phase == collective.phase,
          ErrorCode::failed_precondition, std::source_location::current(),
          "the sums over replicas differ between slices of different sizes: ", collective.spec,
          " is summed in one of them only, or at another point. The shape of what is summed must not "
          "depend on the batch size");
  return *it;
}

}  // namespace lockstep::execute
