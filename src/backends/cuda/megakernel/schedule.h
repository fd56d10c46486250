// Which ops are done together, by how many blocks, and between which of them all blocks wait.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/cuda/megakernel/op_graph.h"

namespace lockstep::cuda::megakernel {

inline constexpr int kMostRows = 8;  // of a task

// How the work of a group is cut into tasks, of which a block does one at a time.
enum class Form : uint8_t {
  tile,      // a tile of a matrix product, then elementwise ops on its elements
  columns,   // sums over the rows of some columns, then elementwise ops on them
  rows,      // whole rows: small products, softmax, losses, elementwise ops, sums over a row
  examples,  // whole examples, one a task: all that can be done with one before others are looked at
  elements,  // elementwise ops on some elements
  serial,    // small things, one after the other, by one block
};

// A tile of a product. Its inner dimension is shared out over the threads (dot), or over the warps of a
// block, each with 8 x 4 threads (else).
struct Tile {
  bool dot = false;
  int rows = 0, columns = 0;
  int depth = 64;     // of the inner dimension in shared memory at once
  int64_t share = 0;  // of the inner dimension in a task
};

struct Group {
  Form form = Form::serial;
  int level = 0;
  std::vector<int> ops;  // in order
  int64_t rows = 0;      // forms rows and examples: of all
  int64_t staged = 0;    // form rows: bytes of matrices that each block keeps
  Tile tile;
  int64_t unit = 1;  // rows, columns or elements of a task
  int64_t tasks = 1;
  double cost = 0;  // of a task; in cycles, roughly
};

struct Schedule {
  std::vector<Group> groups;
  int levels = 0;
  // Of a block: many of them where waiting counts, fewer with more registers where products do.
  int threads = 512;
  std::vector<int> group_of;              // by op
  std::vector<int> writer;                // by buffer: the op that writes it, -1: none
  std::vector<std::vector<int>> readers;  // by buffer, all of them
  // Somebody else reads it, or it belongs to somebody else.
  bool leaves_group(const OpGraph& graph, int op, size_t output) const;
};

// Split-K for products that have too few tiles for so many blocks, where the rows of the result are read
// next: whoever reads them adds up the parts.
void split_products(OpGraph& graph, int blocks);

// Lets every example add up what it gives to a sum over all rows of the batch.
void split_sums(OpGraph& graph);

// Whether an example of what reads this needs the same example of it alone. `elements`: of the buffer.
bool is_own_example(const Access& access, int64_t examples, int64_t elements);

// For so many blocks. Nothing where a part is too large for one kernel.
std::optional<Schedule> make_schedule(const OpGraph& graph, int blocks);

}  // namespace lockstep::cuda::megakernel
