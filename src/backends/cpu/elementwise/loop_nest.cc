#include "backends/cpu/elementwise/loop_nest.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

using elementwise::kMaxOperands;

// Sizes and byte strides while they are being rearranged; strides[dim][operand].
struct Walk {
  int rank = 0;
  size_t operands = 0;
  std::array<int64_t, kMaxRank> sizes;
  std::array<std::array<int64_t, kMaxOperands>, kMaxRank> strides;

  std::span<int64_t> of(int dim) { return {strides[static_cast<size_t>(dim)].data(), operands}; }
  int64_t& size(int dim) { return sizes[static_cast<size_t>(dim)]; }

  void swap(int a, int b) {
    if (a == b) return;
    std::swap(size(a), size(b));
    std::swap_ranges(of(a).begin(), of(a).end(), of(b).begin());
  }
};

void check(const Shape& shape, const OperandLayout& layout, bool is_output, size_t number) {
  const char* kind = is_output ? "output " : "input ";
  require(layout.strides->rank() == shape.rank(), ErrorCode::shape_mismatch, std::source_location::current(),
          "elementwise: ", kind, number, " has strides ", *layout.strides, " for the shape ", shape,
          "; one stride per dimension is needed");
  if (!is_output || shape.size() == 0) return;
  for (int d = 0; d < shape.rank(); ++d)
    require(shape.begin()[d] <= 1 || layout.strides->begin()[d] != 0, ErrorCode::shape_mismatch,
            std::source_location::current(), "elementwise: output ", number, " has stride 0 along dimension ",
            d, " of ", shape, ", so its elements would be written more than once");
}

// Outputs decide the order, since scattered writes cost more than scattered reads.
bool belongs_outside(std::span<const int64_t> a, std::span<const int64_t> b, size_t inputs) {
  const auto decide = [&](size_t operand, bool& result) {
    const int64_t x = std::abs(a[operand]);
    const int64_t y = std::abs(b[operand]);
    if (x == y || x == 0 || y == 0) return false;
    result = x > y;
    return true;
  };
  bool result = true;
  for (size_t i = inputs; i < a.size(); ++i)
    if (decide(i, result)) return result;
  for (size_t i = 0; i < inputs; ++i)
    if (decide(i, result)) return result;
  return true;
}

bool is_one_walk(std::span<const int64_t> outer, std::span<const int64_t> inner, int64_t inner_size) {
  for (size_t i = 0; i < outer.size(); ++i)
    if (outer[i] != inner[i] * inner_size) return false;
  return true;
}

Access access_of(int64_t stride, DType dtype) {
  if (stride == 0) return Access::broadcast;
  return stride == static_cast<int64_t>(size_of(dtype)) ? Access::contiguous : Access::strided;
}

}  // namespace

LoopNest make_loop_nest(const Shape& shape, std::span<const OperandLayout> inputs,
                        std::span<const OperandLayout> outputs) {
  LoopNest nest;
  nest.operands.resize(inputs.size() + outputs.size());
  const auto layout = [&](size_t i) -> const OperandLayout& {
    return i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
  };
  for (size_t i = 0; i < inputs.size(); ++i) check(shape, inputs[i], false, i);
  for (size_t i = 0; i < outputs.size(); ++i) check(shape, outputs[i], true, i);
  if (shape.size() == 0) {
    nest.columns = 0;
    return nest;
  }

  Walk walk;
  walk.operands = nest.operands.size();
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape.begin()[d] == 1) continue;
    walk.size(walk.rank) = shape.begin()[d];
    const std::span<int64_t> strides = walk.of(walk.rank);
    for (size_t i = 0; i < strides.size(); ++i)
      strides[i] = layout(i).strides->begin()[d] * static_cast<int64_t>(size_of(layout(i).dtype));
    ++walk.rank;

    const bool backwards = std::ranges::none_of(strides, [](int64_t s) { return s > 0; }) &&
                           std::ranges::any_of(strides, [](int64_t s) { return s < 0; });
    if (!backwards) continue;
    for (size_t i = 0; i < strides.size(); ++i) {
      nest.operands[i].offset += strides[i] * (walk.size(walk.rank - 1) - 1);
      strides[i] = -strides[i];
    }
  }

  for (int d = 1; d < walk.rank; ++d)
    for (int e = d; e > 0 && !belongs_outside(walk.of(e - 1), walk.of(e), inputs.size()); --e)
      walk.swap(e - 1, e);

  int rank = 0;  // of the merged dimensions, collected innermost first
  for (int d = walk.rank - 1; d >= 0; --d) {
    if (rank > 0 && is_one_walk(walk.of(d), walk.of(walk.rank - rank), walk.size(walk.rank - rank)))
      walk.size(walk.rank - rank) *= walk.size(d);
    else
      walk.swap(walk.rank - ++rank, d);
  }

  if (rank >= 1) nest.columns = walk.size(walk.rank - 1);
  if (rank >= 2) nest.rows = walk.size(walk.rank - 2);
  for (int d = walk.rank - rank; d < walk.rank - 2; ++d) nest.outer.push_back(walk.size(d));
  for (size_t i = 0; i < nest.operands.size(); ++i) {
    LoopNest::Operand& operand = nest.operands[i];
    operand.column_stride =
        rank >= 1 ? walk.of(walk.rank - 1)[i] : static_cast<int64_t>(size_of(layout(i).dtype));
    if (rank >= 2) operand.row_stride = walk.of(walk.rank - 2)[i];
    for (int d = walk.rank - rank; d < walk.rank - 2; ++d) operand.outer_strides.push_back(walk.of(d)[i]);
    operand.access = access_of(operand.column_stride, layout(i).dtype);
  }
  return nest;
}

}  // namespace lockstep::cpu
