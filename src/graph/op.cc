#include "graph/op.h"

#include <algorithm>

#include "graph/emit.h"

namespace lockstep {
namespace {

std::vector<const OpDef*>& op_list() {
  static auto* list = new std::vector<const OpDef*>;
  return *list;
}

}  // namespace

RegisterOp::RegisterOp(const OpDef& op) {
  require(find_op(op.name) == nullptr, ErrorCode::internal, std::source_location::current(), "op \"", op.name,
          "\" is registered twice");
  op_list().push_back(&op);
}

std::span<const OpDef* const> registered_ops() { return op_list(); }

const OpDef* find_op(std::string_view name) {
  const auto& list = op_list();
  const auto it = std::find_if(list.begin(), list.end(), [&](const OpDef* op) { return op->name == name; });
  return it == list.end() ? nullptr : *it;
}

Cost op_cost(const OpDef& op, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
             const Attrs& attrs) {
  if (op.cost) return op.cost(InferContext{op, inputs, attrs, std::source_location::current()}, outputs);
  Cost cost;
  for (const TensorSpec& spec : inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

Tensor GradContext::dout(int i) const {
  const Tensor& gradient = douts_[static_cast<size_t>(i)];
  if (gradient.defined()) return gradient;
  return fill_beside(out(i), out(i).spec(), 0.0);
}

}  // namespace lockstep
