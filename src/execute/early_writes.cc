#include "execute/early_writes.h"

#include <cstring>

#include "graph/variable_impl.h"

namespace lockstep::execute {

EarlyWrites::EarlyWrites(const StepPlans& plans, const std::vector<size_t>& mirrored,
                         const std::vector<size_t>& parted) {
  const Plan& plan = plans.first();
  std::vector<bool> early(plan.variables.size());
  for (const compile::KernelCall& call : plan.calls)
    for (const compile::Operand& output : call.outputs)
      if (output.space == compile::Space::variable && call.place.phase + 1 < plan.phases)
        early[static_cast<size_t>(output.index)] = true;
  for (const size_t v : mirrored)
    if (early[v]) mirrored_.push_back(plan.variables[v]);
  for (const size_t v : parted)
    if (plan.variable_updated[v]) parted_.push_back(plan.variables[v]);
}

void EarlyWrites::add(void* data, size_t bytes) {
  if (used_ == kept_.size()) kept_.emplace_back();
  Kept& kept = kept_[used_++];
  kept.data = data;
  kept.bytes.resize(bytes);
  std::memcpy(kept.bytes.data(), data, bytes);
}

void EarlyWrites::keep() {
  used_ = 0;
  for (const Variable& variable : mirrored_)
    add(variable.impl()->value.impl()->data(), variable.impl()->spec.bytes());
  for (const Variable& variable : parted_)
    for (const Tensor& part : variable.impl()->parts)
      if (part.defined()) add(part.impl()->data(), variable.impl()->spec.bytes());
}

void EarlyWrites::put_back() const {
  for (size_t i = 0; i < used_; ++i) std::memcpy(kept_[i].data, kept_[i].bytes.data(), kept_[i].bytes.size());
}

}  // namespace lockstep::execute
