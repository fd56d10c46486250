#include "execute/all_reduce/tree_kernels.h"

#include <algorithm>

#include "compile/passes/fusion.h"
#include "compile/planning/launch_groups.h"
#include "device/device_backend.h"
#include "ops/elementwise/expander.h"

namespace lockstep::compile {
namespace {

using elementwise::Opcode;
using elementwise::Program;

DType accumulator(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

// The value of the sum below `node`; -1 where no addend lies there.
int16_t sum_below(Program& program, TreeNode node, std::span<const TreeNode> used, DType stored) {
  if (node.last - node.first <= 1) {
    const auto held = std::find(used.begin(), used.end(), node);
    if (held == used.end()) return -1;
    const int16_t value = append(
        program, {.op = Opcode::input, .dtype = stored, .index = static_cast<int16_t>(held - used.begin())});
    if (stored == accumulator(stored)) return value;
    return append(program, {.op = Opcode::cast, .dtype = accumulator(stored), .args = {value, -1, -1}});
  }
  const int middle = tree_middle(node);
  const int16_t left = sum_below(program, {node.first, middle}, used, stored);
  const int16_t right = sum_below(program, {middle, node.last}, used, stored);
  if (left < 0 || right < 0) return std::max(left, right);
  return append(program, {.op = Opcode::add, .dtype = accumulator(stored), .args = {left, right, -1}});
}

}  // namespace

DeviceSums::DeviceSums(Device& device, DType dtype, std::span<const int64_t> counts, int leaves,
                       std::span<const TreeNode> used)
    : operands_(used.size() + 1), pointers_(counts.size() * operands_) {
  const auto where = std::source_location::current();
  require(dtype != DType::boolean, ErrorCode::dtype_mismatch, where,
          "all_reduce_sum: booleans have no sum; cast() them first");
  FusedAttrs fused;
  fused.program.inputs.assign(used.size(), dtype);
  int16_t sum = sum_below(fused.program, {0, leaves}, used, dtype);
  if (dtype != accumulator(dtype))
    sum = append(fused.program, {.op = Opcode::cast, .dtype = dtype, .args = {sum, -1, -1}});
  fused.program.outputs = {sum};
  const Attrs attrs(std::move(fused));
  std::vector<Step> steps(counts.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    const Shape shape{counts[s]};
    const OperandLayout layout{{dtype, shape}, contiguous_strides(shape)};
    steps[s].op = &kFused;
    steps[s].attrs = attrs;
    steps[s].input_layouts.assign(used.size(), layout);
    steps[s].output_layouts = {layout};
    steps[s].where = where;
  }
  backend_of(device).bind_thread();
  const GroupSteps rule = group_rule(device.kind());
  for (size_t s = 0; s < steps.size();) {
    GroupedSteps grouped;
    if (rule && s + 1 < steps.size()) grouped = rule(std::span(steps).subspan(s));
    if (!grouped.kernel)
      grouped = {find_kernel(device.kind(), kFused, where)
                     .prepare({.op = kFused,
                               .attributes = attrs,
                               .inputs = steps[s].input_layouts,
                               .outputs = steps[s].output_layouts,
                               .where = where}),
                 1};
    launches_.push_back({std::move(grouped.kernel), s});
    s += grouped.count;
  }
}

void DeviceSums::launch(Stream& stream) const {
  stream.device().bind_thread();
  for (const Launch& l : launches_) {
    void* const* const first = pointers_.data() + l.first * operands_;
    l.kernel->launch({first, first + operands_ - 1, nullptr, stream});
  }
}

}  // namespace lockstep::compile
