// Rewrites of a traced graph. Each returns a new graph that computes the same results.
#pragma once

#include <functional>

#include "graph/graph.h"
#include "graph/kernel.h"

namespace lockstep::compile {

// Drops nodes that no result depends on, and puts sources and conversions of them in front.
Graph remove_dead_nodes(const Graph& graph);

// Computes equal expressions once.
Graph share_common_subexpressions(const Graph& graph);

// Evaluates views and elementwise ops of constants; drops multiplications by 1.
Graph fold_constants(const Graph& graph);

// For a program that runs as one replica: a sum over one replica is its input.
Graph drop_collectives(const Graph& graph);

// Moves a bias and an activation that follow an op which can apply them into that op.
Graph fuse_epilogues(const Graph& graph);

// Computes a cross entropy of integer labels and its gradient in one node, where what arrives at the loss does not depend
// on it: as with every mean or sum of losses. For devices whose kernels can.
Graph join_losses(const Graph& graph);

// Lets convolutions and their gradients pad images themselves that are padded with zeros alike on both sides, and so a max
// pooling behind a ReLU.
Graph fold_padding(const Graph& graph);

// Lets kernels read and write 16-bit floats where they can (KernelDef::narrow_inputs) and the graph converts around them,
// and gives every elementwise op conversions of its own. No bit changes. `kernel_of`: of a node that has one.
Graph absorb_casts(const Graph& graph, const std::function<const KernelDef&(const Node&)>& kernel_of);

// Lets matrix products and gradients of normalisations of 16-bit floats add another tensor to their result: a residual
// connection, or the other gradients of a value. For devices whose kernels can.
Graph fuse_addends(const Graph& graph);

// Lets the sums that the gradient of a batch normalisation begins with undo the ReLU behind it themselves. Where it was above 0
// follows from the normalisation's input, which they read anyhow; where a residual was added in between, they add the two
// gradients that come back and store the sum. For 16-bit floats, and devices whose kernels can.
Graph fuse_relu_masks(const Graph& graph);

// All of the above but join_losses, fold_padding, absorb_casts, fuse_addends and
// fuse_relu_masks, in order. `join`: whether ops may move into others.
Graph simplify(Graph graph, bool replicated, bool join = true);

// How often each value is read; results count as reads.
std::vector<std::vector<int>> count_uses(const Graph& graph);

}  // namespace lockstep::compile
