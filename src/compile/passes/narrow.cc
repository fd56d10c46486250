// Passes for 16-bit floats: what is computed is bound by the bytes that are read and written.
#include <optional>

#include "compile/passes/passes.h"
#include "graph/rewrite.h"

namespace lockstep::compile {
namespace {

// The 16-bit type that a node's kernel can read and write in place of float32.
std::optional<DType> narrow_type(const Graph& graph, const Node& node, const KernelDef& kernel,
                                 const std::vector<std::vector<DType>>& read_as) {
  std::optional<DType> type;
  const auto agrees = [&](DType dtype) { return *(type = type.value_or(dtype)) == dtype; };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if ((kernel.narrow_inputs >> i & 1) == 0) continue;
    const Value source = converted_from_16_bit(graph, node.inputs[i]);
    if (!source.valid() || !agrees(graph.spec(source).dtype)) return std::nullopt;
  }
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if ((kernel.narrow_outputs >> k & 1) != 0)
      for (const DType dtype : read_as[k])
        if (!is_16_bit_float(dtype) || !agrees(dtype)) return std::nullopt;
  return type;
}

}  // namespace

std::optional<Graph> absorb_casts(const Graph& graph,
                                  const std::function<const KernelDef*(const Node&)>& kernel_of) {
  // What the readers of each value convert it to; float32: they do not, or it is a result.
  std::vector<std::vector<std::vector<DType>>> read_as;
  for (const Node& node : graph.nodes) read_as.emplace_back(node.outputs.size());
  const auto read = [&](Value v, DType as) {
    read_as[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)].push_back(as);
  };
  for (const Node& node : graph.nodes)
    for (const Value v : node.inputs)
      read(v, node.op->traits.converts && node.device == graph.node(v).device ? node.outputs[0].dtype
                                                                              : DType::float32);
  for (const Value v : graph.results()) read(v, DType::float32);

  bool changed = false;
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& old = graph.nodes[i];
    Node node = rewriter.mapped(id);
    if (is_source(*old.op) || old.op == &kAllReduceSum) {
      rewriter.keep(id);
      continue;
    }
    if (old.op->traits.converts && rewriter.graph().spec(node.inputs[0]) == node.outputs[0]) {
      rewriter.map({id, 0}, node.inputs[0]);  // of a value that is made narrow now
      changed = true;
      continue;
    }
    if (old.op->expand) {
      // A conversion of its own costs an elementwise op nothing; a shared one is a tensor of twice the size.
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (converted_from_16_bit(graph, old.inputs[k]).valid()) {
          node.inputs[k] = rewriter.add(rewriter.mapped(old.inputs[k].node));
          changed = true;
        }
      rewriter.replace_with(id, std::move(node));
      continue;
    }
    if (old.op->view == nullptr) {
      const KernelDef* kernel = kernel_of(old);
      if (const auto type = kernel && kernel->narrow_inputs != 0
                                ? narrow_type(graph, old, *kernel, read_as[i])
                                : std::nullopt) {
        for (size_t k = 0; k < node.inputs.size(); ++k)
          if ((kernel->narrow_inputs >> k & 1) != 0)
            node.inputs[k] = rewriter.mapped(converted_from_16_bit(graph, old.inputs[k]));
        for (size_t k = 0; k < node.outputs.size(); ++k)
          if ((kernel->narrow_outputs >> k & 1) != 0) node.outputs[k].dtype = *type;
        changed = true;
      }
    }
    rewriter.replace_with(id, std::move(node));
  }
  if (!changed) return std::nullopt;
  return rewriter.finish();
}

std::optional<Graph> fuse_addends(const Graph& graph) {
  const auto uses = count_uses(graph);
  bool any = false;
  Rewriter rewriter(graph);
  // The node of the new graph that can add `other` to its result `v`, or -1; its attributes then.
  const auto host = [&](Value v, Value other, const Node& add, Attrs& attrs) {
    if (uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] != 1 || v.output != 0) return -1;
    if (graph.spec(v) != add.outputs[0] || graph.spec(other) != add.outputs[0]) return -1;
    const Value mapped = rewriter.mapped(v);
    const Node& node = rewriter.graph().node(mapped);
    if (node.device != add.device || rewriter.mapped(other).node >= mapped.node) return -1;
    if (!node.op->with_addend) return -1;
    std::optional<Attrs> changed = node.op->with_addend(node.attrs);
    if (!changed) return -1;
    attrs = std::move(*changed);
    return static_cast<int>(mapped.node);
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    bool fused = false;
    if (node.op->traits.adds && is_16_bit_float(node.outputs[0].dtype))
      for (size_t side = 0; side < 2 && !fused; ++side) {
        Attrs attrs;
        const int target = host(node.inputs[side], node.inputs[1 - side], node, attrs);
        if (target < 0) continue;
        Node& changed = rewriter.mutable_node(target);
        changed.attrs = std::move(attrs);
        changed.inputs.push_back(rewriter.mapped(node.inputs[1 - side]));
        rewriter.map({id, 0}, {target, 0});
        fused = any = true;
      }
    if (!fused) rewriter.keep(id);
  }
  if (!any) return std::nullopt;
  return rewriter.finish();
}

namespace {

const RegisterRewrite registered[] = {
    {DeviceKind::gpu,
     {.name = "absorb_casts",
      .stage = RewriteStage::convert,
      .apply =
          [](const Graph& graph, DeviceKind kind) {
            return absorb_casts(graph,
                                [kind](const Node& node) { return registered_kernel(kind, *node.op); });
          }}},
    {DeviceKind::gpu,
     {.name = "fuse_addends", .stage = RewriteStage::epilogue, .apply = [](const Graph& graph, DeviceKind) {
        return fuse_addends(graph);
      }}}};

}  // namespace
}  // namespace lockstep::compile
