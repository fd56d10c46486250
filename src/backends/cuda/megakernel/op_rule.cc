#include "backends/cuda/megakernel/op_rule.h"

#include <algorithm>
#include <map>

namespace lockstep::cuda::megakernel {
namespace {

std::map<const OpDef*, OpRule>& table() {
  static auto* rules = new std::map<const OpDef*, OpRule>;
  return *rules;
}

}  // namespace

RegisterOpRule::RegisterOpRule(const OpDef& op, const OpRule& rule) { table()[&op] = rule; }

const OpRule* find_rule(const OpDef& op) {
  const auto it = table().find(&op);
  return it == table().end() ? nullptr : &it->second;
}

int OpCode::lanes() const {
  int lanes = 1;
  while (lanes < 32 && lanes < length()) lanes *= 2;
  return lanes;
}

std::string OpCode::over_line() const {
  return detail::concat("for (int c = lane; c < ", length(), "; c += ", lanes(), ") ");
}

bool read_lines(Op& op, const Dims& axes) {
  const Access& x = op.inputs[0];
  if (!is_float(x)) return false;
  for (const Access& input : op.inputs)
    if (!input.contiguous()) return false;
  bool inside = false, behind = false;
  for (int d = 0; d < x.shape.rank(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (x.shape[d] == 1) continue;
    if (reduced && behind) return false;  // the reduced dimensions stand side by side
    if (reduced)
      op.length *= x.shape[d], inside = true;
    else if (inside)
      op.inner *= x.shape[d], behind = true;
    else
      op.outer *= x.shape[d];
  }
  return true;
}

bool read_rows(Op& op) {
  for (const Access& input : op.inputs)
    if (!is_float(input) && input.dtype != DType::int32 && input.dtype != DType::int64) return false;
  return read_lines(op, {op.inputs[0].shape.rank() - 1});
}

}  // namespace lockstep::cuda::megakernel
