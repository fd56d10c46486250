#include "execute/step_rollback.h"

#include <cstring>

#include "graph/variable_impl.h"

namespace lockstep::execute {

StepRollback::StepRollback(const StepPlans& plans, const std::vector<size_t>& mirrored,
                           const std::vector<size_t>& per_replica) {
  const Plan& plan = plans.first();
  std::vector<bool> early(plan.variables.size());
  for (const compile::KernelCall& call : plan.calls)
    for (const compile::Operand& output : call.outputs)
      if (output.space == compile::Space::variable && call.place.phase + 1 < plan.phases)
        early[static_cast<size_t>(output.index)] = true;
  for (const size_t v : mirrored)
    if (early[v]) mirrored_.push_back(plan.variables[v]);
  for (const size_t v : per_replica)
    if (plan.variable_updated[v]) per_replica_.push_back(plan.variables[v]);
}

void StepRollback::add(void* data, size_t bytes) {
  if (used_ == saved_.size()) saved_.emplace_back();
  Saved& saved = saved_[used_++];
  saved.data = data;
  saved.bytes.resize(bytes);
  std::memcpy(saved.bytes.data(), data, bytes);
}

void StepRollback::save() {
  used_ = 0;
  for (const Variable& variable : mirrored_)
    add(variable.impl()->value.impl()->data(), variable.impl()->spec.bytes());
  for (const Variable& variable : per_replica_)
    for (const Tensor& part : variable.impl()->parts)
      if (part.defined()) add(part.impl()->data(), variable.impl()->spec.bytes());
}

void StepRollback::roll_back() const {
  for (size_t i = 0; i < used_; ++i)
    std::memcpy(saved_[i].data, saved_[i].bytes.data(), saved_[i].bytes.size());
}

}  // namespace lockstep::execute
