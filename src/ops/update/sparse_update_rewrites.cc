// Which updates of tables are sparse.
#include "graph/rewrite.h"
#include "ops/array/lookup.h"
#include "ops/elementwise/expander.h"
#include "ops/update/sparse_update.h"

namespace lockstep {
namespace {

// A table that caches hold is updated as fast with a gradient of its own size, and where many of its rows
// have one, there is little to spare.
constexpr size_t kSmallTable = 4 << 20;  // bytes
constexpr int64_t kRowsPerLookup = 8;

// The input of an elementwise node that nothing else reads and that sums values by row; -1: there is none.
int sparse_gradient(const Graph& graph, const Node& node, const std::vector<std::vector<int>>& uses) {
  if (!node.op->expand || node.outputs.empty()) return -1;
  const Shape& table = node.outputs[0].shape;
  int found = -1;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const Value input = node.inputs[k];
    const Node& source = graph.node(input);
    const Shape& shape = graph.spec(input).shape;
    if (found < 0 && source.op == &kScatterAdd && shape == table && source.device == node.device &&
        uses[static_cast<size_t>(input.node)][0] == 1 && graph.spec(input).bytes() >= kSmallTable &&
        graph.spec(source.inputs[1]).shape.size() * kRowsPerLookup <= table[0])
      found = static_cast<int>(k);
    else if (shape != table && shape.rank() == table.rank() && shape[0] != 1)
      return -1;  // rows that are read for several columns
  }
  return found;
}

std::optional<Graph> update_tables_sparsely(const Graph& graph, DeviceKind) {
  const auto uses = count_uses(graph);
  Rewriter rewriter(graph);
  bool changed = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    const int gradient = sparse_gradient(graph, node, uses);
    if (gradient < 0) {
      rewriter.keep(id);
      continue;
    }
    const Node& sums = graph.node(node.inputs[static_cast<size_t>(gradient)]);
    std::vector<DType> dtypes;
    for (const Value v : node.inputs) dtypes.push_back(graph.spec(v).dtype);
    Node update = rewriter.mapped(id);
    update.op = &kSparseUpdate;
    update.where = sums.where;  // where indices come from, which are all that a kernel can refuse
    update.attrs = SparseUpdateAttrs{.program = elementwise::expand(*node.op, node.attrs, dtypes),
                                     .gradient = gradient,
                                     .rows = node.outputs[0].shape[0]};
    update.inputs.erase(update.inputs.begin() + gradient);
    update.inputs.insert(update.inputs.begin(),
                         {rewriter.mapped(sums.inputs[0]), rewriter.mapped(sums.inputs[1])});
    rewriter.replace_with(id, std::move(update));
    changed = true;
  }
  if (!changed) return std::nullopt;
  return rewriter.finish();
}

constexpr Rewrite kSparsely{
    .name = "update_tables_sparsely", .stage = RewriteStage::fused, .apply = update_tables_sparsely};
const RegisterRewrite registered[] = {{DeviceKind::cpu, kSparsely}, {DeviceKind::gpu, kSparsely}};

}  // namespace
}  // namespace lockstep
