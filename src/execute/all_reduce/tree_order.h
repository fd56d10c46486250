// Sums over replicas in one fixed order, whoever holds which replica.
//
// The replicas are the leaves of a binary tree that depends on their number alone. A device that
// holds all leaves below a node sums them itself; what is left is added by whoever needs it, in
// the tree's order. The bits are therefore the same on any number of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep::execute {

// Leaves [first, last) of the tree.
struct TreeNode {
  int first = 0;
  int last = 0;
  bool operator==(const TreeNode&) const = default;
};

// Where an inner node of the tree is divided.
int tree_middle(TreeNode node);

// The largest nodes of the tree over `leaves` leaves that lie wholly within [first, last).
std::vector<TreeNode> largest_nodes(int leaves, int first, int last);

constexpr int64_t kLine = 64;           // elements: shares are whole cache lines
constexpr int64_t kGrain = kLine * 64;  // elements a thread adds at least

// What a partial sum is made of.
inline DType accumulator(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

// Bytes of one element of a partial sum: the sum below an inner node is kept in float32 where the
// values have 16 bits, so that rounding does not depend on who holds which leaf.
size_t partial_size(DType dtype);

// Where stores go that nobody reads soon: past the caches, which saves reading the memory first.
enum class Stores : uint8_t { cached, streaming };

// Adds elements [begin, end) of the addends in the tree's order. `nodes`: disjoint nodes of the tree in
// ascending order that together cover every leaf in use; `addends[i]`: the value of a leaf, or the partial
// sum below an inner node. Do not allocate.
void sum_partially(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
                   void* target, int64_t begin, int64_t end);  // the target is a partial sum
// The sum goes to every target.
void sum_in_tree_order(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
                       std::span<void* const> targets, int64_t begin, int64_t end,
                       Stores stores = Stores::cached);
// The same of addends that are all partial sums, those of single leaves too: what was sent from one process
// to another.
void sum_of_partials(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
                     std::span<void* const> targets, int64_t begin, int64_t end);

}  // namespace lockstep::execute
