#include "backends/cuda/megakernel/op_graph.h"

#include <algorithm>
#include <map>

#include "backends/cuda/megakernel/op_rule.h"
#include "lockstep/base/log.h"
#include "ops/elementwise/expander.h"

namespace lockstep::cuda::megakernel {
namespace {

using compile::KernelCall;
using compile::Operand;
using compile::Space;

struct Unknown {};  // thrown where a program is not for one kernel

void known(bool condition) {
  if (!condition) throw Unknown();
}

class Reader {
 public:
  explicit Reader(std::span<const KernelCall> calls) : calls_(calls) {}

  OpGraph run() {
    for (const KernelCall& call : calls_) {
      Op op;
      op.call = &call;
      for (size_t i = 0; i < call.inputs.size(); ++i, ++pointer_)
        op.inputs.push_back(read(call.inputs[i], call.input_layouts[i]));
      for (size_t i = 0; i < call.outputs.size(); ++i, ++pointer_)
        op.outputs.push_back(written(call.outputs[i], call.output_layouts[i]));
      for (const Access& output : op.outputs) known(output.shape.size() > 0);
      for (const Access& input : op.inputs) known(input.shape.size() > 0);
      try {
        explain(op);
      } catch (const Unknown&) {
        log(LogLevel::debug, "a program is no megakernel: ", call.op->name, " is not known to these");
        throw;
      }
      if (op.kind == Kind::example) {
        known(graph_.examples == 0 || graph_.examples == op.examples);
        graph_.examples = op.examples;
      }
      const OpRule* const rule = op.rule;
      graph_.ops.push_back(std::move(op));
      if (rule && rule->split) rule->split(graph_);
    }
    return std::move(graph_);
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
      it->second = static_cast<int>(graph_.buffers.size());
      graph_.buffers.push_back({static_cast<int>(graph_.externals.size()), 0});
      graph_.externals.push_back(
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
    const int buffer = static_cast<int>(graph_.buffers.size());
    graph_.buffers.push_back({-1, bytes});
    placed_.push_back({begin, end, buffer});
    return access(buffer, 0, layout);
  }

  static void explain(Op& op) {
    const OpDef& def = *op.call->op;
    op.rule = find_rule(def);
    if (op.rule) {
      op.kind = op.rule->kind;
      known(op.rule->read(op));
    } else {
      known(def.expand != nullptr && def.pure);
      explain_elementwise(op);
    }
  }

  static void explain_elementwise(Op& op) {
    std::vector<DType> dtypes;
    for (Access& input : op.inputs) {
      dtypes.push_back(input.dtype);
      input.strides = broadcast_strides(input.shape, input.strides, op.outputs[0].shape);
      input.shape = op.outputs[0].shape;
    }
    op.program = elementwise::expand(*op.call->op, op.call->attrs, dtypes);
    for (const Access& output : op.outputs) known(output.shape == op.outputs[0].shape);
  }

  struct Placed {
    int64_t begin, end;  // in the arena
    int buffer;
  };

  std::span<const KernelCall> calls_;
  OpGraph graph_;
  std::map<std::pair<Space, int>, int> externals_;
  std::vector<Placed> placed_;
  size_t pointer_ = 0;
};

}  // namespace

std::optional<OpGraph> read_calls(std::span<const KernelCall> calls) {
  try {
    return Reader(calls).run();
  } catch (const Unknown&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::cuda::megakernel
