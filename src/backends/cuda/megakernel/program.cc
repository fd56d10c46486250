#include "backends/cuda/megakernel/program.h"

#include <algorithm>
#include <map>

#include "ops/array/lookup.h"
#include "ops/elementwise/expander.h"
#include "ops/matmul/matmul.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/softmax.h"
#include "ops/reduce/reduce.h"

namespace lockstep::cuda::megakernel {
namespace {

using compile::Operand;
using compile::Space;
using compile::Step;

struct Unknown {};  // thrown where a program is not for one kernel

void known(bool condition) {
  if (!condition) throw Unknown();
}

class Reader {
 public:
  explicit Reader(std::span<const Step> steps) : steps_(steps) {}

  Program run() {
    for (const Step& step : steps_) {
      Op op;
      op.step = &step;
      for (size_t i = 0; i < step.inputs.size(); ++i, ++pointer_)
        op.inputs.push_back(read(step.inputs[i], step.input_layouts[i]));
      for (size_t i = 0; i < step.outputs.size(); ++i, ++pointer_)
        op.outputs.push_back(written(step.outputs[i], step.output_layouts[i]));
      for (const Access& output : op.outputs) known(output.shape.size() > 0);
      for (const Access& input : op.inputs) known(input.shape.size() > 0);
      explain(op);
      program_.ops.push_back(std::move(op));
    }
    return std::move(program_);
  }

 private:
  static bool in_arena(const Operand& operand) { return operand.space == Space::device_arena; }

  static Access access(int buffer, int64_t bytes, const OperandLayout& layout) {
    const auto width = static_cast<int64_t>(size_of(layout.spec.dtype));
    known(bytes % width == 0);
    return {buffer, bytes / width, layout.spec.dtype, layout.spec.shape, layout.strides};
  }

  int external(const Operand& operand) {
    known(operand.space != Space::example_offset && operand.space != Space::replica_arena);
    const auto [it, fresh] = externals_.try_emplace({operand.space, operand.index}, 0);
    if (fresh) {
      it->second = static_cast<int>(program_.buffers.size());
      program_.buffers.push_back({static_cast<int>(program_.externals.size()), 0});
      program_.externals.push_back(
          {pointer_, operand.offset, operand.space == Space::parameter ? operand.index : -1});
    }
    return it->second;
  }

  Access read(const Operand& operand, const OperandLayout& layout) {
    if (!in_arena(operand)) return access(external(operand), operand.offset, layout);
    for (const int64_t stride : layout.strides) known(stride >= 0);
    const auto width = static_cast<int64_t>(size_of(layout.spec.dtype));
    int64_t last = 0;
    for (int d = 0; d < layout.spec.shape.rank(); ++d)
      last += std::max<int64_t>(0, layout.spec.shape[d] - 1) * layout.strides[d];
    const int64_t end = operand.offset + (last + 1) * width;
    for (const Placed& p : placed_)
      if (p.begin <= operand.offset && end <= p.end)
        return access(p.buffer, operand.offset - p.begin, layout);
    throw Unknown();
  }

  Access written(const Operand& operand, const OperandLayout& layout) {
    known(layout.contiguous());
    if (!in_arena(operand)) return access(external(operand), operand.offset, layout);
    const auto bytes = static_cast<int64_t>(layout.spec.bytes());
    const int64_t begin = operand.offset, end = begin + bytes;
    std::erase_if(placed_, [&](const Placed& p) { return p.begin < end && begin < p.end; });
    const int buffer = static_cast<int>(program_.buffers.size());
    program_.buffers.push_back({-1, bytes});
    placed_.push_back({begin, end, buffer});
    return access(buffer, 0, layout);
  }

  static bool is_float(const Access& a) { return a.dtype == DType::float32; }

  static void explain(Op& op) {
    const OpDef* def = op.step->op;
    static const std::map<const OpDef*, Kind> kinds = {
        {&kMatmul, Kind::matmul},
        {&kReduceSum, Kind::reduce},
        {&kReduceMax, Kind::reduce},
        {&kReduceMin, Kind::reduce},
        {&kReduceProd, Kind::reduce},
        {&kArgmax, Kind::argmax},
        {&kSoftmax, Kind::softmax},
        {&kLogSoftmax, Kind::log_softmax},
        {&kSparseCrossEntropy, Kind::cross_entropy},
        {&kSparseCrossEntropyGrad, Kind::cross_entropy_grad},
        {&kSparseCrossEntropyWithGrad, Kind::cross_entropy_with_grad},
        {&kOneHot, Kind::one_hot},
    };
    if (const auto it = kinds.find(def); it != kinds.end()) {
      op.kind = it->second;
    } else {
      known(def->expand != nullptr && def->pure);
      op.kind = Kind::elementwise;
    }
    switch (op.kind) {
      case Kind::matmul: return explain_matmul(op);
      case Kind::elementwise: return explain_elementwise(op);
      case Kind::reduce: {
        known(is_float(op.inputs[0]));
        return explain_lines(op, op.step->attrs.as<ReduceAttrs>().axes);
      }
      case Kind::argmax:
        known(is_float(op.inputs[0]));
        return explain_lines(op, {op.step->attrs.as<ArgmaxAttrs>().axis});
      case Kind::one_hot: return;
      default:
        for (const Access& input : op.inputs)
          known(is_float(input) || input.dtype == DType::int32 || input.dtype == DType::int64);
        known(is_float(op.inputs[0]));
        return explain_lines(op, {op.inputs[0].shape.rank() - 1});
    }
  }

  static void explain_matmul(Op& op) {
    const auto& attrs = op.step->attrs.as<MatmulAttrs>();
    for (const Access& input : op.inputs) known(is_float(input));
    Access &a = op.inputs[0], &b = op.inputs[1];
    known(a.shape.rank() == 2 && b.shape.rank() == 2);
    const auto transpose = [](Access& x) {
      std::swap(x.shape[0], x.shape[1]);
      std::swap(x.strides[0], x.strides[1]);
    };
    if (attrs.transpose_a) transpose(a);
    if (attrs.transpose_b) transpose(b);
    op.m = a.shape[0], op.k = a.shape[1], op.n = b.shape[1];
    op.bias = attrs.bias, op.epilogue = attrs.epilogue;
    // One dimension of each lies densely; one of size 1 may be said to.
    for (Access* x : {&a, &b}) {
      for (int d = 0; d < 2; ++d) {
        known(x->strides[d] > 0 || x->shape[d] == 1);
        if (x->shape[d] == 1 && x->strides[1 - d] != 1) x->strides[d] = 1;
      }
      known(x->strides[0] == 1 || x->strides[1] == 1);
    }
    if (op.bias) known(op.inputs[2].shape.size() == op.n && op.inputs[2].contiguous());
  }

  static void explain_elementwise(Op& op) {
    std::vector<DType> dtypes;
    for (Access& input : op.inputs) {
      dtypes.push_back(input.dtype);
      input.strides = broadcast_strides(input.shape, input.strides, op.outputs[0].shape);
      input.shape = op.outputs[0].shape;
    }
    op.program = elementwise::expand(*op.step->op, op.step->attrs, dtypes);
    for (const Access& output : op.outputs) known(output.shape == op.outputs[0].shape);
  }

  static void explain_lines(Op& op, const Dims& axes) {
    const Access& x = op.inputs[0];
    for (const Access& input : op.inputs) known(input.contiguous());
    bool inside = false, behind = false;
    for (int d = 0; d < x.shape.rank(); ++d) {
      const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
      if (x.shape[d] == 1) continue;
      known(!(reduced && behind));  // the reduced dimensions stand side by side
      if (reduced)
        op.length *= x.shape[d], inside = true;
      else if (inside)
        op.inner *= x.shape[d], behind = true;
      else
        op.outer *= x.shape[d];
    }
  }

  struct Placed {
    int64_t begin, end;  // in the arena
    int buffer;
  };

  std::span<const Step> steps_;
  Program program_;
  std::map<std::pair<Space, int>, int> externals_;
  std::vector<Placed> placed_;
  size_t pointer_ = 0;
};

}  // namespace

std::optional<Program> read_steps(std::span<const Step> steps) {
  try {
    return Reader(steps).run();
  } catch (const Unknown&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::cuda::megakernel
