// How a graph normalises batches on GPUs.
#include <unordered_map>

#include "graph/rewrite.h"
#include "ops/elementwise/ops.h"
#include "ops/nn/batch_norm.h"

namespace lockstep {
namespace {

// The value is `arriving` where relu(behind) was above 0, and 0 elsewhere.
struct ReluMask {
  Value arriving, relu;
};
const Node* made_by(const Graph& graph, Value v, const OpDef& op) {
  while (graph.node(v).op == &kIdentity) v = graph.node(v).inputs[0];
  return graph.node(v).op == &op ? &graph.node(v) : nullptr;
}
std::optional<ReluMask> relu_mask(const Graph& graph, Value v) {
  const auto is_zero = [&](Value value) {
    const Node* constant = made_by(graph, value, kConstant);
    return constant && constant->attrs.as<ConstantAttrs>().value == 0;
  };
  const Node* chosen = made_by(graph, v, kSelect);
  if (!chosen || !is_zero(chosen->inputs[2]) || graph.spec(chosen->inputs[1]) != graph.spec(v)) return {};
  const Node* above = made_by(graph, chosen->inputs[0], kGreater);
  if (!above || !is_zero(above->inputs[1]) || graph.spec(above->inputs[0]) != graph.spec(v) ||
      !made_by(graph, above->inputs[0], kRelu))
    return {};
  return ReluMask{chosen->inputs[1], above->inputs[0]};
}

// Of relu(x factor + shift) with x of 16 bits and a factor and a shift for every column.
struct Scaled {
  Value x, factor, shift;
};
std::optional<Scaled> scaled_behind(const Graph& graph, Value relu) {
  const Node* rounded = made_by(graph, made_by(graph, relu, kRelu)->inputs[0], kCast);
  const Node* sum = rounded ? made_by(graph, rounded->inputs[0], kAdd) : nullptr;
  const Node* product = sum ? made_by(graph, sum->inputs[0], kMul) : nullptr;
  if (!product) return {};
  const Scaled found{converted_from_16_bit(graph, product->inputs[0]), product->inputs[1], sum->inputs[1]};
  const TensorSpec column{DType::float32, {graph.spec(relu).shape[-1]}};
  const bool fits = found.x.valid() && graph.spec(found.x) == graph.spec(relu) &&
                    graph.spec(found.factor) == column && graph.spec(found.shift) == column;
  return fits ? std::optional(found) : std::nullopt;
}

// Lets the sums that the gradient of a batch normalisation begins with undo the ReLU behind it themselves.
// Where it was above 0 follows from the normalisation's input, which they read anyhow; where a residual was
// added in between, they add the two gradients that come back and store the sum. For 16-bit floats, which are
// bound by bytes.
std::optional<Graph> fuse_relu_masks(const Graph& graph, DeviceKind) {
  using Dy = BatchNormSumsAttrs::Dy;
  struct Change {
    int sums;  // the node that changes
    Dy kind;
    ReluMask mask;
    Scaled scaled = {};
  };
  const auto uses = count_uses(graph);
  std::unordered_map<int, Change> changes;  // by the node of the masked gradient
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != &kBatchNormSums || !is_16_bit_float(graph.spec(node.inputs[2]).dtype)) continue;
    const Value dy = node.inputs[2];
    const auto mask = relu_mask(graph, dy);
    if (!mask || graph.node(dy).op != &kSelect || graph.node(dy).device != node.device) continue;
    const int id = static_cast<int>(i);
    if (const auto scaled = scaled_behind(graph, mask->relu)) {
      if (scaled->x == node.inputs[0]) changes.emplace(dy.node, Change{id, Dy::masked, *mask, *scaled});
    } else if (const Node& added = graph.node(mask->arriving);
               added.op == &kAdd && uses[static_cast<size_t>(mask->arriving.node)][0] == 1 &&
               graph.spec(added.inputs[0]) == graph.spec(dy) &&
               graph.spec(added.inputs[1]) == graph.spec(dy) && node.inputs[0].node < dy.node &&
               node.inputs[1].node < dy.node) {
      changes.emplace(dy.node, Change{id, Dy::joined, *mask});
    }
  }
  if (changes.empty()) return std::nullopt;

  Rewriter rewriter(graph);
  std::unordered_map<int, int> made;  // sums that stand in the new graph already, by their old node
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    Node node = rewriter.mapped(id);
    if (const auto found = changes.find(id); found != changes.end()) {
      const auto& [sums, kind, mask, scaled] = found->second;
      if (kind == Dy::joined) {
        // The sums take its place: what they store is read by others.
        const Node& old = graph.nodes[static_cast<size_t>(sums)];
        const Node& added = graph.node(mask.arriving);
        const Value joined =
            rewriter.add({.op = &kBatchNormSums,
                          .attrs = BatchNormSumsAttrs{kind},
                          .inputs = {rewriter.mapped(old.inputs[0]), rewriter.mapped(old.inputs[1]),
                                     rewriter.mapped(added.inputs[0]), rewriter.mapped(added.inputs[1]),
                                     rewriter.mapped(mask.relu)},
                          .outputs = {old.outputs[0], old.outputs[1], node.outputs[0]},
                          .where = old.where,
                          .device = old.device});
        made[sums] = joined.node;
        rewriter.map({id, 0}, {joined.node, 2});
        continue;
      }
      // For its other readers, from the same operands: computed with what they compute.
      const auto add = [&](const OpDef& op, std::vector<Value> inputs, DType dtype, Attrs attrs = {}) {
        return rewriter.add({.op = &op,
                             .attrs = std::move(attrs),
                             .inputs = std::move(inputs),
                             .outputs = {{dtype, node.outputs[0].shape}},
                             .where = node.where,
                             .device = node.device});
      };
      const Value zero = rewriter.add({.op = &kConstant,
                                       .attrs = ConstantAttrs{0},
                                       .inputs = {},
                                       .outputs = {{DType::float32, {}}},
                                       .where = node.where,
                                       .device = node.device});
      const Value wide = add(kCast, {rewriter.mapped(scaled.x)}, DType::float32, CastAttrs{DType::float32});
      const Value product = add(kMul, {wide, rewriter.mapped(scaled.factor)}, DType::float32);
      const Value sum = add(kAdd, {product, rewriter.mapped(scaled.shift)}, DType::float32);
      node.inputs[0] = add(kGreater, {sum, zero}, DType::boolean);
    } else if (const auto stands = made.find(id); stands != made.end()) {
      for (int32_t k = 0; k < 2; ++k) rewriter.map({id, k}, {stands->second, k});
      continue;
    } else if (node.op == &kBatchNormSums) {
      const auto change = changes.find(graph.nodes[i].inputs[2].node);
      if (change != changes.end() && change->second.sums == id) {
        node.attrs = BatchNormSumsAttrs{Dy::masked};
        node.inputs[2] = rewriter.mapped(change->second.mask.arriving);
        node.inputs.push_back(rewriter.mapped(change->second.scaled.factor));
        node.inputs.push_back(rewriter.mapped(change->second.scaled.shift));
      }
    }
    rewriter.replace_with(id, std::move(node));
  }
  return rewriter.finish();
}

const RegisterRewrite registered(DeviceKind::gpu, {.name = "fuse_relu_masks",
                                                   .stage = RewriteStage::prologue,
                                                   .apply = fuse_relu_masks});

}  // namespace
}  // namespace lockstep
