#include "backends/cuda/megakernel/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cuda/megakernel/op_rule.h"

namespace lockstep::cuda::megakernel {
namespace {

constexpr int64_t kMostSerial = 4096;         // elements of an op in a serial group
constexpr int64_t kMostSummed = 16384;        // that it adds up
constexpr int64_t kMostMatrix = 72 << 10;     // bytes of a matrix that every block of a row group reads
constexpr int64_t kMostMatrices = 144 << 10;  // of all of them
constexpr int64_t kMostElements = 1 << 28;    // of anything: indices are 32 bits

constexpr int64_t kLeastExampleRows = 4;  // of an example, for it to be worth a task

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr double kLongProduct = 5e7;         // multiplications
constexpr double kBytesPerCycle = 40;        // that a multiprocessor gets from the second-level cache
constexpr double kBytesPerCycleOfMany = 17;  // where all of them fetch

// What a task takes, in cycles: to fetch, to multiply, and to add up.
double tile_cost(int rows, int columns, int depth, int64_t share) {
  const auto chunks = static_cast<double>(ceil_div(share, depth));
  const double outputs = rows * columns;
  const double chunk = std::max((rows + columns) * depth * 4 / kBytesPerCycle, outputs * depth * 0.006) + 200;
  return 1100 + chunks * chunk + outputs * 0.6;
}

double dot_cost(int rows, int columns, int64_t k) {
  const auto turns = static_cast<double>(ceil_div(k, 256));
  const double outputs = rows * columns,
               fetch = static_cast<double>(k) * (rows + columns) * 4 / kBytesPerCycle;
  return 900 + std::max(2.5 * fetch, turns * outputs * 2.5) + outputs * 8;
}

int64_t matrix_bytes(const Op& o) { return o.kind == Kind::product ? 4 * (o.n * o.k + o.n) : 0; }

// Whether each of `rows` rows of the results follows from the same row of inputs that have rows.
bool is_row_op(const Op& o, int64_t rows) {
  switch (o.kind) {
    case Kind::product:
      return o.m == rows && o.parts == 1 && o.inputs[0].strides[1] == 1 && o.inputs[0].strides[0] == o.k &&
             matrix_bytes(o) <= kMostMatrix;
    case Kind::partial_sums: return o.m == rows;
    case Kind::elementwise: return o.outputs[0].shape.rank() > 0 && o.outputs[0].shape[0] == rows;
    default: break;
  }
  const Shape& shape = o.inputs[0].shape;
  if (shape.rank() == 0 || shape[0] != rows) return false;
  if (o.kind == Kind::elements) return o.inputs[0].contiguous();
  return o.inner == 1 && o.outer % rows == 0;
}

// Whether each example of the results follows from the same example of inputs that have examples.
bool is_example_op(const Op& o, int64_t examples) {
  const auto has_examples = [&](const Access& x) { return x.shape.rank() > 0 && x.shape[0] % examples == 0; };
  switch (o.kind) {
    case Kind::example: return o.examples == examples;
    case Kind::product:
      return o.m % examples == 0 && o.parts == 1 && o.inputs[0].strides[1] == 1 &&
             o.inputs[0].strides[0] == o.k && matrix_bytes(o) <= kMostMatrix;
    case Kind::elementwise: return has_examples(o.outputs[0]);
    case Kind::fold: return has_examples(o.inputs[0]) && o.outer % examples == 0;
    case Kind::lines: return has_examples(o.inputs[0]) && o.outer % examples == 0 && o.inner == 1;
    case Kind::elements: return has_examples(o.inputs[0]) && o.inputs[0].contiguous();
    default: return false;
  }
}

struct TileChoice {
  bool dot;
  int rows, columns;
};
constexpr TileChoice kTileChoices[] = {{true, 4, 8},    {true, 8, 4},    {true, 8, 8},   {false, 16, 8},
                                       {false, 16, 16}, {false, 32, 16}, {false, 32, 32}};

// Long products have less than the whole of a chunk in flight anyhow.
int depth_for(int64_t share) { return share <= 32 ? 32 : share <= 64 || share > 256 ? 64 : 128; }

// The best tile without parts, for a share of so many blocks.
std::pair<Tile, double> best_tile(const Op& o, double blocks) {
  std::pair<Tile, double> best{{}, std::numeric_limits<double>::infinity()};
  for (const TileChoice& c : kTileChoices) {
    if (c.dot && o.k < 128) continue;
    const int64_t tasks = ceil_div(o.m, c.rows) * ceil_div(o.n, c.columns);
    const int depth = depth_for(o.k);
    const double cost = c.dot ? dot_cost(c.rows, c.columns, o.k) : tile_cost(c.rows, c.columns, depth, o.k);
    const double all = cost * std::max(1.0, std::ceil(static_cast<double>(tasks) / blocks));
    if (all < best.second) best = {{c.dot, c.rows, c.columns, depth, o.k}, all};
  }
  return best;
}

int64_t share_of(int64_t k, int64_t parts) { return ceil_div(ceil_div(k, 8), parts) * 8; }

// The tile of a product with so many parts.
Tile split_tile(const Op& o, int columns, int64_t parts) {
  const int64_t share = share_of(o.k, parts);
  return {false, o.m > 16 ? 32 : 16, columns, depth_for(share), share};
}

struct Split {
  int columns = 0;
  int64_t parts = 1;
  double cost = std::numeric_limits<double>::infinity();
};
Split best_split(const Op& o, int blocks) {
  constexpr double kCostOfPart = 5;  // of a row, for whoever adds them up
  Split best;
  for (const int columns : {32, 16, 8}) {
    const Tile whole = split_tile(o, columns, 1);
    const int64_t tiles = ceil_div(o.m, whole.rows) * ceil_div(o.n, columns);
    // As many parts as blocks have no tile, less a few for what else there is to do.
    int64_t parts = std::min({(blocks - 3) / tiles, ceil_div(o.k, 32), int64_t{32}});
    if (parts < 2) continue;
    parts = ceil_div(o.k, share_of(o.k, parts));
    const Tile tile = split_tile(o, columns, parts);
    // All blocks fetch at once, and the second-level cache is what they wait for.
    const double cost =
        1100 + static_cast<double>((tile.rows + columns) * tile.share) * 4 / kBytesPerCycleOfMany +
        tile.rows * columns * 0.1 + kCostOfPart * static_cast<double>(parts * ceil_div(o.m, blocks));
    if (cost < best.cost) best = {columns, parts, cost};
  }
  return best;
}

class Grouping {
 public:
  Grouping(const OpGraph& graph, int blocks) : graph_(graph), blocks_(blocks) {
    schedule_.group_of.assign(graph.ops.size(), -1);
    schedule_.writer.assign(graph.buffers.size(), -1);
    schedule_.readers.resize(graph.buffers.size());
    since_.resize(graph.buffers.size());
  }

  std::optional<Schedule> run() {
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      if (!place(static_cast<int>(i))) return std::nullopt;
    for (const Group& group : schedule_.groups)
      schedule_.levels = std::max(schedule_.levels, group.level + 1);
    for (int level = 0; level < schedule_.levels; ++level) cut(level);
    for (const Op& o : graph_.ops)
      if (o.kind == Kind::product && flops(o) >= kLongProduct) schedule_.threads = 256;
    return std::move(schedule_);
  }

 private:
  const Op& op(int i) const { return graph_.ops[static_cast<size_t>(i)]; }
  Group& group(int g) { return schedule_.groups[static_cast<size_t>(g)]; }
  int group_of(int i) const { return schedule_.group_of[static_cast<size_t>(i)]; }

  struct Before {
    int op;
    bool value;  // its result is read
  };

  std::vector<Before> before(const Op& o) const {
    std::vector<Before> all;
    for (const Access& input : o.inputs)
      if (const int w = schedule_.writer[static_cast<size_t>(input.buffer)]; w >= 0) all.push_back({w, true});
    for (const Access& output : o.outputs) {
      if (const int w = schedule_.writer[static_cast<size_t>(output.buffer)]; w >= 0)
        all.push_back({w, false});
      for (const int reader : since_[static_cast<size_t>(output.buffer)]) all.push_back({reader, false});
    }
    return all;
  }

  bool place(int i) {
    const Op& o = op(i);
    for (const auto* list : {&o.inputs, &o.outputs})
      for (const Access& access : *list)
        if (access.shape.size() > kMostElements) return false;
    const std::vector<Before> all = before(o);
    std::vector<int> candidates;
    for (const Before& b : all)
      if (b.value) candidates.push_back(group_of(b.op));
    std::sort(candidates.begin(), candidates.end(),
              [&](int a, int b) { return std::pair(group(a).level, a) > std::pair(group(b).level, b); });
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    int chosen = -1;
    for (const int g : candidates)
      if (joins(g, i, all)) {
        chosen = g;
        break;
      }
    if (chosen < 0) {
      Group fresh;
      const std::optional<Form> form = form_of(o);
      if (!form) return false;
      fresh.form = *form;
      if (fresh.form == Form::rows)
        fresh.rows = o.kind == Kind::partial_sums ? o.m : o.inputs[0].shape[0],
        fresh.staged = matrix_bytes(o);
      if (fresh.form == Form::examples) fresh.rows = graph_.examples;
      for (const Before& b : all) fresh.level = std::max(fresh.level, group(group_of(b.op)).level + 1);
      chosen = static_cast<int>(schedule_.groups.size());
      schedule_.groups.push_back(std::move(fresh));
    } else if (group(chosen).form == Form::rows) {
      group(chosen).staged += matrix_bytes(o);
    }
    group(chosen).ops.push_back(i);
    schedule_.group_of[static_cast<size_t>(i)] = chosen;
    for (const Access& input : o.inputs) {
      since_[static_cast<size_t>(input.buffer)].push_back(i);
      schedule_.readers[static_cast<size_t>(input.buffer)].push_back(i);
    }
    for (const Access& output : o.outputs) {
      // A buffer that is written twice is not for us: whoever reads it would have to say which of the two.
      int& writer = schedule_.writer[static_cast<size_t>(output.buffer)];
      if (writer >= 0) return false;
      writer = i;
      auto& since = since_[static_cast<size_t>(output.buffer)];
      // What it reads itself must be the elements that it writes.
      for (const int reader : since)
        if (reader == i && !reads_as_written(o, output)) return false;
      since.clear();
    }
    return true;
  }

  static bool reads_as_written(const Op& o, const Access& output) {
    return o.kind == Kind::elementwise &&
           std::all_of(o.inputs.begin(), o.inputs.end(), [&](const Access& input) {
             return input.buffer != output.buffer ||
                    (input.contiguous() && input.offset == output.offset && input.dtype == output.dtype);
           });
  }

  bool written_in(int g, const Access& access) const {
    const int w = schedule_.writer[static_cast<size_t>(access.buffer)];
    return w >= 0 && group_of(w) == g;
  }

  // --- what an op may be grouped with ----------------------------------------------------------------------

  bool joins(int g, int i, const std::vector<Before>& all) {
    const Op& o = op(i);
    int level = group(g).level;
    for (const Before& b : all)
      if (group_of(b.op) != g) level = std::max(level, group(group_of(b.op)).level + 1);
    if (level > group(g).level && has_followers(g)) return false;
    if (!fits(g, o, all)) return false;
    group(g).level = level;
    return true;
  }

  // Whether another group waits for this one: for a value, or to write what it reads.
  bool has_followers(int g) const {
    for (const int i : schedule_.groups[static_cast<size_t>(g)].ops) {
      for (const Access& output : op(i).outputs)
        for (const int reader : schedule_.readers[static_cast<size_t>(output.buffer)])
          if (group_of(reader) != g) return true;
      for (const Access& input : op(i).inputs) {
        const int w = schedule_.writer[static_cast<size_t>(input.buffer)];
        if (w > i && group_of(w) != g) return true;
      }
    }
    return false;
  }

  bool fits(int g, const Op& o, const std::vector<Before>& all) const {
    const Group& to = schedule_.groups[static_cast<size_t>(g)];
    if (to.form == Form::serial) return is_small(o);
    if (to.form == Form::rows) {
      // Other rows may still be read when these are written.
      for (const Before& b : all)
        if (!b.value && group_of(b.op) == g) return false;
      return is_row_op(o, to.rows) && to.staged + matrix_bytes(o) <= kMostMatrices &&
             std::all_of(o.inputs.begin(), o.inputs.end(), [&](const Access& input) {
               return !written_in(g, input) || in_own_row(o, input, to.rows);
             });
    }
    if (to.form == Form::examples) {
      for (const Before& b : all)
        if (!b.value && group_of(b.op) == g) return false;
      if (!is_example_op(o, to.rows)) return false;
      for (size_t k = 0; k < o.inputs.size(); ++k)
        if (written_in(g, o.inputs[k]) &&
            (reads_whole(o, k) || !is_own_example(o.inputs[k], to.rows, elements_of(o.inputs[k].buffer))))
          return false;
      return true;
    }
    // Element by element, as many as the group's first result has.
    if (o.kind != Kind::elementwise || o.outputs[0].shape.size() != op(to.ops[0]).outputs[0].shape.size())
      return false;
    for (const Access& input : o.inputs)
      if (written_in(g, input) && !(input.contiguous() && input.offset == 0)) return false;
    for (const Before& b : all) {
      if (b.value || group_of(b.op) != g) continue;
      // A member reads what is overwritten here: only as the same elements.
      const Op& reader = op(b.op);
      for (const Access& output : o.outputs)
        if (!reads_as_written(reader, output)) return false;
    }
    return true;
  }

  // Whether the same of input k is read for every example.
  static bool reads_whole(const Op& o, size_t k) {
    if (o.kind == Kind::product) return k > 0;
    return o.kind == Kind::example && (o.rule->whole >> k & 1) != 0;
  }

  // Of a buffer that an op writes.
  int64_t elements_of(int buffer) const {
    const Op& writer = op(schedule_.writer[static_cast<size_t>(buffer)]);
    for (const Access& output : writer.outputs)
      if (output.buffer == buffer) return output.shape.size();
    return 0;
  }

  static bool is_small(const Op& o) {
    if (o.kind == Kind::product || o.kind == Kind::partial_sums) return false;
    for (const Access& input : o.inputs)
      if (input.shape.size() > (o.kind == Kind::fold ? kMostSummed : kMostSerial)) return false;
    for (const Access& output : o.outputs)
      if (output.shape.size() > kMostSerial) return false;
    return o.kind != Kind::fold || o.inner == 1;
  }

  // Whether a row of the results needs the same row of this input alone.
  static bool in_own_row(const Op& o, const Access& input, int64_t rows) {
    if (o.kind == Kind::product) return &input == &o.inputs[0] && input.offset == 0;
    if (o.kind != Kind::elementwise) return input.contiguous() && input.offset == 0 && input.shape[0] == rows;
    if (input.offset != 0 || input.strides[0] == 0) return false;
    int64_t reach = 0;
    for (int d = 1; d < input.shape.rank(); ++d) reach += (input.shape[d] - 1) * input.strides[d];
    return rows == 1 || reach < input.strides[0];
  }

  std::optional<Form> form_of(const Op& o) const {
    if (const int64_t examples = graph_.examples; examples > 0 && is_example_op(o, examples)) {
      if (o.kind == Kind::example) return Form::examples;
      // Products of one row of each example are those of tiles.
      if (o.kind == Kind::product && o.m >= kLeastExampleRows * examples) return Form::examples;
      if (o.kind == Kind::fold && o.length >= kLeastExampleRows && o.inner > 1) return Form::examples;
    }
    switch (o.kind) {
      case Kind::example: return std::nullopt;
      case Kind::product: return is_row_op(o, o.m) ? Form::rows : Form::tile;
      case Kind::partial_sums: return Form::rows;
      case Kind::elementwise: return o.outputs[0].shape.size() <= 1024 ? Form::serial : Form::elements;
      case Kind::fold:
        if (o.inner > 1) return o.outer == 1 ? std::optional(Form::columns) : std::nullopt;
        if (o.outer == 1) return is_small(o) ? std::optional(Form::serial) : std::nullopt;
        break;
      case Kind::elements:
        if (is_small(o)) return Form::serial;
        break;
      default: break;
    }
    const Shape& shape = o.inputs[0].shape;
    if (shape.rank() > 0 && shape[0] > 1 && is_row_op(o, shape[0])) return Form::rows;
    return is_small(o) ? std::optional(Form::serial) : std::nullopt;
  }

  // --- tasks -----------------------------------------------------------------------------------------------

  static double flops(const Op& o) { return static_cast<double>(o.m * o.n) * static_cast<double>(o.k); }

  void cut(int level) {
    double all = 0;
    int64_t others = 0;
    for (Group& g : schedule_.groups) {
      if (g.level != level) continue;
      const Op& first = op(g.ops[0]);
      switch (g.form) {
        case Form::tile: all += flops(first); continue;
        case Form::rows:
          g.unit = std::clamp<int64_t>(ceil_div(g.rows, blocks_), 1, kMostRows);
          g.tasks = ceil_div(g.rows, g.unit);
          g.cost = 3000;
          break;
        case Form::examples:
          g.unit = 1;
          g.tasks = g.rows;
          g.cost = 3000.0 * static_cast<double>(g.ops.size());
          break;
        case Form::columns:
          g.unit = first.length <= 256 ? 32 : 8;
          g.tasks = ceil_div(first.inner, g.unit);
          g.cost = 1200 + static_cast<double>(first.length) * (g.unit == 32 ? 8 : 2);
          break;
        case Form::elements:
          g.unit = 1024;
          g.tasks = ceil_div(first.outputs[0].shape.size(), g.unit);
          g.cost = 1500;
          break;
        case Form::serial: g.cost = 2000; break;
      }
      others += g.tasks;
    }
    for (Group& g : schedule_.groups)
      if (g.level == level && g.form == Form::tile) {
        const Op& product = op(g.ops[0]);
        // Other tasks are short: at worst blocks have one beside a tile.
        const double left = std::max(blocks_ / 2.0, static_cast<double>(blocks_ - others));
        choose_tile(g, product, std::max(1.0, left * flops(product) / all));
      }
  }

  static void choose_tile(Group& g, const Op& o, double blocks) {
    if (o.parts > 1) {
      g.tile = split_tile(o, o.part_columns, o.parts);
      g.cost = tile_cost(g.tile.rows, g.tile.columns, g.tile.depth, g.tile.share);
    } else {
      const auto [tile, all] = best_tile(o, blocks);
      g.tile = tile;
      g.cost = tile.dot ? dot_cost(tile.rows, tile.columns, o.k)
                        : tile_cost(tile.rows, tile.columns, tile.depth, o.k);
    }
    g.tasks = ceil_div(o.m, g.tile.rows) * ceil_div(o.n, g.tile.columns) * o.parts;
  }

  const OpGraph& graph_;
  const int blocks_;
  Schedule schedule_;
  std::vector<std::vector<int>> since_;  // by buffer: who has read it since it was written
};

}  // namespace

bool Schedule::leaves_group(const OpGraph& graph, int op, size_t output) const {
  const int buffer = graph.ops[static_cast<size_t>(op)].outputs[output].buffer;
  if (graph.buffers[static_cast<size_t>(buffer)].external >= 0) return true;
  const auto& all = readers[static_cast<size_t>(buffer)];
  return std::any_of(all.begin(), all.end(), [&](int reader) {
    return group_of[static_cast<size_t>(reader)] != group_of[static_cast<size_t>(op)];
  });
}

bool is_own_example(const Access& access, int64_t examples, int64_t elements) {
  if (access.shape.rank() == 0 || access.shape[0] % examples != 0 || elements % examples != 0) return false;
  const int64_t own = elements / examples, first = access.shape[0] / examples;
  if (access.strides[0] * first != own) return false;
  int64_t last = access.offset + (first - 1) * access.strides[0];
  for (int d = 1; d < access.shape.rank(); ++d) last += (access.shape[d] - 1) * access.strides[d];
  return last < own;
}

void split_sums(OpGraph& graph) {
  if (graph.examples == 0) return;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op whole = graph.ops[i];
    if (whole.kind != Kind::fold || whole.outer != 1 || whole.inner == 1 ||
        whole.length % graph.examples != 0 || whole.length / graph.examples < kLeastExampleRows)
      continue;
    Op own = whole;
    own.outer = graph.examples, own.length = whole.length / graph.examples;
    own.outputs = {give_to_sum(graph, whole.inner)};
    Op rest = whole;
    rest.inputs = own.outputs;
    rest.length = graph.examples;
    graph.ops[i] = std::move(own);
    graph.ops.insert(graph.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(rest));
    ++i;
  }
}

void split_products(OpGraph& graph, int blocks) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op product = graph.ops[i];
    if (product.kind != Kind::product || is_row_op(product, product.m)) continue;
    const int buffer = product.outputs[0].buffer;
    const auto reader = std::find_if(
        graph.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, graph.ops.end(), [&](const Op& o) {
          return std::any_of(o.inputs.begin(), o.inputs.end(),
                             [&](const Access& a) { return a.buffer == buffer; });
        });
    if (reader == graph.ops.end() || reader->kind == Kind::elementwise || !is_row_op(*reader, product.m))
      continue;
    if (reader->kind == Kind::product && reader->inputs[0].buffer != buffer) continue;
    const auto [columns, parts, cost] = best_split(product, blocks);
    if (cost >= best_tile(product, blocks).second) continue;
    Op sums;
    sums.kind = Kind::partial_sums;
    sums.call = product.call;
    sums.m = product.m, sums.n = product.n, sums.parts = parts;
    sums.bias = product.bias, sums.epilogue = product.epilogue;
    sums.outputs = product.outputs;
    const Shape shape{parts, product.m, product.n};
    const Access partial{static_cast<int>(graph.buffers.size()), 0, DType::float32, shape,
                         contiguous_strides(shape)};
    graph.buffers.push_back({-1, 4 * shape.size()});
    sums.inputs.push_back(partial);
    if (product.bias) sums.inputs.push_back(product.inputs[2]);
    Op& cut = graph.ops[i];
    cut.parts = parts, cut.part_columns = columns;
    cut.outputs = {partial};
    cut.bias = false, cut.epilogue = Epilogue::none;
    cut.inputs.resize(2);
    graph.ops.insert(graph.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(sums));
  }
}

std::optional<Schedule> make_schedule(const OpGraph& graph, int blocks) {
  return Grouping(graph, blocks).run();
}

}  // namespace lockstep::cuda::megakernel
