#include "compile/device_sum.h"

#include <algorithm>

#include "compile/fusion.h"
#include "ops/elementwise/expander.h"

namespace lockstep::compile {
namespace {

using elementwise::Opcode;
using elementwise::Program;

DType accumulator(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

// The value of the sum below `node`; -1 where no addend lies there.
int16_t sum_below(Program& program, TreeNode node, std::span<const TreeNode> nodes, DType result) {
  const auto held = std::find(nodes.begin(), nodes.end(), node);
  if (held != nodes.end()) {
    const auto index = static_cast<int16_t>(held - nodes.begin());
    const DType stored = program.inputs[static_cast<size_t>(index)];
    const int16_t value = append(program, {.op = Opcode::input, .dtype = stored, .index = index});
    return stored == result ? value
                            : append(program, {.op = Opcode::cast, .dtype = result, .args = {value, -1, -1}});
  }
  if (node.last - node.first <= 1) return -1;
  const int middle = tree_middle(node);
  const int16_t left = sum_below(program, {node.first, middle}, nodes, result);
  const int16_t right = sum_below(program, {middle, node.last}, nodes, result);
  if (left < 0 || right < 0) return std::max(left, right);
  return append(program, {.op = Opcode::add, .dtype = result, .args = {left, right, -1}});
}

}  // namespace

DeviceSum::DeviceSum(Device& device, DType dtype, int64_t count, int leaves, std::span<const TreeNode> nodes,
                     bool partial)
    : device_(device), pointers_(nodes.size() + 1) {
  const auto where = std::source_location::current();
  require(dtype != DType::boolean, ErrorCode::dtype_mismatch, where,
          "all_reduce_sum: booleans have no sum; cast() them first");
  const Shape shape{count};
  FusedAttrs fused;
  std::vector<OperandLayout> inputs;
  for (const TreeNode& node : nodes) {
    const DType stored = node.last - node.first > 1 ? accumulator(dtype) : dtype;
    fused.program.inputs.push_back(stored);
    inputs.push_back({{stored, shape}, contiguous_strides(shape)});
  }
  int16_t sum = sum_below(fused.program, {0, leaves}, nodes, accumulator(dtype));
  const DType target = partial ? accumulator(dtype) : dtype;
  if (target != accumulator(dtype))
    sum = append(fused.program, {.op = Opcode::cast, .dtype = target, .args = {sum, -1, -1}});
  fused.program.outputs = {sum};
  const OperandLayout output{{target, shape}, contiguous_strides(shape)};
  const Attrs attrs(std::move(fused));
  device_.stream();
  kernel_ =
      find_kernel(device.kind(), kFused, where)
          .prepare(
              {.op = kFused, .attributes = attrs, .inputs = inputs, .outputs = {&output, 1}, .where = where});
}

void DeviceSum::launch(std::span<const void* const> addends, void* target) {
  std::transform(addends.begin(), addends.end(), pointers_.begin(),
                 [](const void* p) { return const_cast<void*>(p); });
  pointers_.back() = target;
  kernel_->launch({pointers_.data(), &pointers_.back(), nullptr, device_.stream()});
}

}  // namespace lockstep::compile
