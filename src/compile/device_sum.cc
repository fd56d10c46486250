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

DeviceSum::DeviceSum(Device& device, DType dtype, int64_t count, int leaves, std::span<const TreeNode> used)
    : pointers_(used.size() + 1) {
  const auto where = std::source_location::current();
  require(dtype != DType::boolean, ErrorCode::dtype_mismatch, where,
          "all_reduce_sum: booleans have no sum; cast() them first");
  const Shape shape{count};
  const OperandLayout layout{{dtype, shape}, contiguous_strides(shape)};
  const std::vector<OperandLayout> inputs(used.size(), layout);
  FusedAttrs fused;
  fused.program.inputs.assign(used.size(), dtype);
  int16_t sum = sum_below(fused.program, {0, leaves}, used, dtype);
  if (dtype != accumulator(dtype))
    sum = append(fused.program, {.op = Opcode::cast, .dtype = dtype, .args = {sum, -1, -1}});
  fused.program.outputs = {sum};
  const Attrs attrs(std::move(fused));
  device.stream();  // binds the thread, so that the kernel is prepared for this device
  kernel_ =
      find_kernel(device.kind(), kFused, where)
          .prepare(
              {.op = kFused, .attributes = attrs, .inputs = inputs, .outputs = {&layout, 1}, .where = where});
}

void DeviceSum::launch(std::span<const void* const> addends, void* target, void* stream) {
  std::transform(addends.begin(), addends.end(), pointers_.begin(),
                 [](const void* p) { return const_cast<void*>(p); });
  pointers_.back() = target;
  kernel_->launch({pointers_.data(), &pointers_.back(), nullptr, stream});
}

}  // namespace lockstep::compile
