#include "compile/planning/spread.h"

#include "lockstep/base/error.h"

namespace lockstep::compile {

std::vector<Spread> spreads_of_outputs(const Graph& graph, const Placement& placement, int64_t local_batch,
                                       bool allows_blocks) {
  std::vector<Spread> spreads;
  for (const Value v : graph.outputs) {
    Spread& spread = spreads.emplace_back(Spread::same);
    if (!v.valid() || !placement.nodes[static_cast<size_t>(v.node)].per_replica) continue;
    const Shape& shape = graph.spec(v).shape;
    spread = shape.rank() > 0 && shape[0] == local_batch ? Spread::rows : Spread::blocks;
    require(spread == Spread::rows || allows_blocks, ErrorCode::failed_precondition, graph.node(v).where,
            "the function returns a value of shape ", shape,
            " that differs between replicas and is not one row for each of the ", local_batch,
            " examples of a slice; sum it over the replicas first: all_reduce_sum(value)");
  }
  return spreads;
}

void check_updates(const Graph& graph, const Placement& placement, bool replicated) {
  for (const VariableUpdate& update : graph.updates) {
    const bool differs = placement.nodes[static_cast<size_t>(update.value.node)].per_replica;
    const bool may_differ = replicated && update.variable.per_replica();
    require(!differs || may_differ, ErrorCode::failed_precondition, graph.node(update.value).where,
            "variable \"", update.variable.name(),
            "\" was assigned a value that differs between replicas; sum it over them first: "
            "all_reduce_sum(value)");
    require(
        differs || !may_differ, ErrorCode::failed_precondition, graph.node(update.value).where, "variable \"",
        update.variable.name(),
        "\" keeps a part in every replica, but was assigned a value that is the same in all of them, which "
        "would count once for each; compute it from the variable's old value or from the batch, or assign it "
        "outside of the replicas");
  }
}

}  // namespace lockstep::compile
