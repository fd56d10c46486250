// Passes over a traced graph. Each returns a new graph that computes the same results, and goes by what ops
// say of themselves (graph/op.h) and their kernels (graph/kernel.h): what belongs to certain ops is a rewrite
// of theirs (graph/rewrite.h).
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/kernel.h"
#include "graph/rewrite.h"

namespace lockstep::compile {

// Drops nodes that no result depends on, and puts sources and conversions of them in front.
Graph remove_dead_nodes(const Graph& graph);

// Computes equal expressions once.
Graph share_common_subexpressions(const Graph& graph);

// Evaluates views and elementwise ops of constants; drops ops that leave their input as it is.
Graph fold_constants(const Graph& graph);

// For a program that runs as one replica: a sum over one replica is its input.
Graph drop_collectives(const Graph& graph);

// Moves a bias and an activation that follow an op which can apply them into that op.
Graph fuse_epilogues(const Graph& graph);

// Lets kernels read and write 16-bit floats where they can (KernelDef::narrow_inputs) and the graph converts
// around them, and gives every elementwise op conversions of its own. No bit changes. `kernel_of`: of a node;
// null: it has none.
std::optional<Graph> absorb_casts(const Graph& graph,
                                  const std::function<const KernelDef*(const Node&)>& kernel_of);

// Lets ops whose results are 16-bit floats add another tensor to them, where they can (OpDef::with_addend): a
// residual connection, or the other gradients of a value.
std::optional<Graph> fuse_addends(const Graph& graph);

// The passes that every graph goes through first, on all kinds of devices. `join`: whether ops may move into
// others.
Graph simplify(Graph graph, bool replicated, bool join = true);

// All rewrites that are registered for a kind of device and come before the fusion of elementwise ops: those
// of ops, and absorb_casts and fuse_addends on GPUs, where reading and writing is what takes the time.
// `applied`: gets the names of those that found something to change.
Graph apply_rewrites(Graph graph, DeviceKind kind, std::vector<std::string_view>* applied = nullptr);
// Those of RewriteStage::fused.
Graph apply_rewrites_behind_fusion(Graph graph, DeviceKind kind,
                                   std::vector<std::string_view>* applied = nullptr);

}  // namespace lockstep::compile
