// How a graph computes losses on GPUs.
#include <functional>
#include <unordered_map>

#include "graph/rewrite.h"
#include "ops/nn/cross_entropy.h"

namespace lockstep {
namespace {

// Computes a cross entropy of integer labels and its gradient in one node, where what arrives at the loss
// does not depend on it: as with every mean or sum of losses.
std::optional<Graph> join_losses(const Graph& graph, DeviceKind) {
  const auto uses = count_uses(graph);
  const auto reads_a_loss = [&](int node) {
    std::vector<bool> reached(static_cast<size_t>(node) + 1);
    reached.back() = true;
    for (int i = node; i >= 0; --i) {
      if (!reached[static_cast<size_t>(i)]) continue;
      const Node& at = graph.nodes[static_cast<size_t>(i)];
      if (at.op == &kSparseCrossEntropy) return true;
      for (const Value v : at.inputs) reached[static_cast<size_t>(v.node)] = true;
    }
    return false;
  };

  std::unordered_map<int, int> gradient_of;  // by the loss' node
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != &kSparseCrossEntropyGrad) continue;
    const Value statistics = node.inputs[2];
    const Node& loss = graph.node(statistics);
    const bool joins = loss.op == &kSparseCrossEntropy && statistics.output == 1 &&
                       loss.inputs[0] == node.inputs[0] && loss.inputs[1] == node.inputs[1] &&
                       loss.device == node.device && uses[static_cast<size_t>(statistics.node)][1] == 1 &&
                       !reads_a_loss(node.inputs[3].node);
    if (joins) gradient_of[statistics.node] = static_cast<int>(i);
  }
  if (gradient_of.empty()) return std::nullopt;

  Rewriter rewriter(graph);
  std::vector<bool> done(graph.nodes.size());
  // A loss comes behind what its gradient reads, which may stand behind it now.
  const std::function<void(int)> add = [&](int id) {
    if (done[static_cast<size_t>(id)]) return;
    done[static_cast<size_t>(id)] = true;
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    for (const Value v : node.inputs) add(v.node);
    const auto found = gradient_of.find(id);
    if (found == gradient_of.end()) {
      rewriter.keep(id);
      return;
    }
    const Node& gradient = graph.nodes[static_cast<size_t>(found->second)];
    done[static_cast<size_t>(found->second)] = true;
    const Value arriving = gradient.inputs[3];
    add(arriving.node);
    Node both = node;
    both.op = &kSparseCrossEntropyWithGrad;
    both.inputs = {rewriter.mapped(node.inputs[0]), rewriter.mapped(node.inputs[1]),
                   rewriter.mapped(arriving)};
    both.outputs = {node.outputs[0], gradient.outputs[0]};
    const Value added = rewriter.add(std::move(both));
    rewriter.map({id, 0}, added);
    rewriter.map({found->second, 0}, {added.node, 1});
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) add(static_cast<int>(i));
  return rewriter.finish();
}

const RegisterRewrite registered(DeviceKind::gpu, {.name = "join_losses",
                                                   .stage = RewriteStage::combine,
                                                   .apply = join_losses});

}  // namespace
}  // namespace lockstep
