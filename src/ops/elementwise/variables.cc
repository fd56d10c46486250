// The arithmetic of variables.
#include "graph/eager.h"
#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

void assign_changed(const Variable& variable, const TensorLike& by, const OpDef& op,
                    std::source_location where) {
  const VariableReadScope as_kept;
  const Tensor delta = by.tensor(variable.dtype(where));
  const Tensor value = variable.value(where);
  const BesideScope home(value);
  variable.assign(emit_one(op, {value, delta}, {}, where), where);
}

}  // namespace

void Variable::assign_add(const TensorLike& delta, std::source_location where) const {
  assign_changed(*this, delta, kAdd, where);
}
void Variable::assign_sub(const TensorLike& delta, std::source_location where) const {
  assign_changed(*this, delta, kSub, where);
}

Tensor VariableImpl::sum_of_parts(const Tensor& a, const Tensor& b) const {
  const Tensor pair[] = {a, b};
  return run_eager(kAdd, pair, {}, {&spec, 1}, where).front();
}

}  // namespace lockstep
