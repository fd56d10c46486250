#include "execute/all_reduce/tree_kernels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compile/planning/launch_groups.h"
#include "device/device_backend.h"
#include "ops/elementwise/expander.h"

namespace lockstep::execute {

using compile::GroupCalls;
using compile::GroupedCalls;
using compile::KernelCall;

namespace {

using elementwise::Opcode;

// The value of the sum below `node`; -1 where no addend lies there.
int16_t sum_below(elementwise::ScalarProgram& program, TreeNode node, std::span<const TreeNode> used,
                  DType stored) {
  const auto held = std::find(used.begin(), used.end(), node);
  if (held != used.end()) {
    const int16_t value = append(
        program, {.op = Opcode::input, .dtype = stored, .index = static_cast<int16_t>(held - used.begin())});
    if (stored == accumulator(stored)) return value;
    return append(program, {.op = Opcode::cast, .dtype = accumulator(stored), .args = {value, -1, -1}});
  }
  if (node.last - node.first <= 1) return -1;
  const int middle = tree_middle(node);
  const int16_t left = sum_below(program, {node.first, middle}, used, stored);
  const int16_t right = sum_below(program, {middle, node.last}, used, stored);
  if (left < 0 || right < 0) return std::max(left, right);
  return append(program, {.op = Opcode::add, .dtype = accumulator(stored), .args = {left, right, -1}});
}

}  // namespace

TreeKernels::TreeKernels(Device& device, std::span<const TreeSum> sums, int leaves,
                         std::span<const TreeNode> used)
    : operands_(used.size() + 1) {
  std::map<std::pair<DType, DType>, std::vector<const TreeSum*>> by_type;
  for (const TreeSum& sum : sums)
    if (sum.size > 0) by_type[{sum.dtype, sum.target_dtype}].push_back(&sum);
  backend_of(device).bind_thread();
  for (const auto& [types, list] : by_type) prepare(device, list, leaves, used);
}

// Prepares the kernels for sums of one dtype.
void TreeKernels::prepare(Device& device, std::span<const TreeSum* const> sums, int leaves,
                          std::span<const TreeNode> used) {
  const auto where = std::source_location::current();
  const DType dtype = sums[0]->dtype, target = sums[0]->target_dtype;
  require(dtype != DType::boolean, ErrorCode::dtype_mismatch, where,
          "all_reduce_sum: booleans have no sum; cast() them first");
  elementwise::ScalarProgram program;
  program.inputs.assign(used.size(), dtype);
  int16_t root = sum_below(program, {0, leaves}, used, dtype);
  if (target != accumulator(dtype))
    root = append(program, {.op = Opcode::cast, .dtype = target, .args = {root, -1, -1}});
  program.outputs = {root};
  const size_t first = pointers_.size();
  std::vector<KernelCall> calls;
  for (size_t s = 0; s < sums.size(); ++s) {
    const Shape shape{sums[s]->size};
    const Strides strides = contiguous_strides(shape);
    const std::vector<OperandLayout> inputs(used.size(), {{dtype, shape}, strides});
    calls.push_back(compile::fused_call(program, inputs, {{{target, shape}, strides}}, where));
    for (const void* addend : sums[s]->addends) pointers_.push_back(const_cast<void*>(addend));
    pointers_.push_back(sums[s]->target);
  }
  const GroupCalls rule = compile::group_rule(device.kind());
  for (size_t s = 0; s < calls.size();) {
    GroupedCalls grouped;
    if (rule && s + 1 < calls.size()) grouped = rule(std::span(calls).subspan(s));
    if (!grouped.kernel)
      grouped = {find_kernel(device.kind(), *calls[s].op, where).prepare(calls[s].request(&device, 1)), 1};
    launches_.push_back({std::move(grouped.kernel), first + s * operands_});
    s += grouped.count;
  }
}

void TreeKernels::launch(Stream& stream) const {
  stream.device().bind_thread();
  for (const Launch& l : launches_) {
    void* const* const first = pointers_.data() + l.first;
    l.kernel->launch({first, first + operands_ - 1, nullptr, stream});
  }
}

}  // namespace lockstep::execute
