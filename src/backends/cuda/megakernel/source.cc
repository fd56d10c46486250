#include "backends/cuda/megakernel/source.h"

#include <algorithm>
#include <map>
#include <utility>

#include "backends/cuda/elementwise_source.h"
#include "backends/cuda/megakernel/op_rule.h"
#include "backends/cuda/megakernel/prelude.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {
namespace {

using detail::concat;

constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastGathering = 8;        // blocks that fetch rows
constexpr int64_t kMostHeld = 4096;           // bytes of a value in shared memory between ops of one block
constexpr int64_t kStreamBytes = 176 << 10;   // that the warps of a block have under way
constexpr int64_t kExampleBytes = 208 << 10;  // of an example's values in shared memory
constexpr int64_t kMostFetched = 32 << 10;    // of a value of an example that others have made

int64_t aligned(int64_t bytes, int64_t to = kAlignment) { return (bytes + to - 1) / to * to; }

bool reports(const Op& op) { return op.rule && op.rule->complaint; }

class Writer {
 public:
  Writer(const Program& program, const Schedule& schedule, std::span<const TensorSpec> parameters)
      : program_(program), schedule_(schedule) {
    find_rows(parameters);
    for (size_t i = 0; i < program.ops.size(); ++i)
      if (reports(program.ops[i])) source_.reporters.push_back(static_cast<int>(i));
    scratch_.assign(program.buffers.size(), -1);
  }

  Source run() {
    const std::string gather = write_gather();
    std::string kernel;
    for (int level = 0; level < schedule_.levels; ++level) kernel += write_level(level);
    source_.threads = schedule_.threads;
    source_.scratch_bytes = scratch_bytes_;
    std::string& text = source_.text;
    text = scalar_prelude();
    text += concat("constexpr int kThreads = ", threads(), ";\n", kPrelude);
    text += concat("struct Arguments { char* external[", std::max<size_t>(1, program_.externals.size()),
                   "]; Finding* finding[", std::max<size_t>(1, source_.reporters.size()),
                   "]; char* scratch; unsigned* arrivals; i64 steps; const i64* order; i64 first; ",
                   "char* staged; char* array[", std::max<size_t>(1, source_.rows.size()), "]; };\n");
    text += gather;
    text += functions_;
    text +=
        concat("extern \"C\" __global__ void __launch_bounds__(kThreads, 1) ", kEntryPoint,
               "(const __grid_constant__ Arguments p) {\n  extern __shared__ __align__(16) char shared[];\n",
               "  begin_launch();\n  unsigned goal = 0;\n");
    if (gathers_ > 0)
      text += concat("  if (p.staged) {\n    for (int task = blockIdx.x; task < ", gathers_,
                     "; task += gridDim.x) gather(p, 0, task);\n",
                     "    arrive(p.arrivals);\n    goal = gridDim.x;\n    Wait{p.arrivals, goal}();\n  }\n");
    text += "  for (i64 step = 0; step < p.steps; ++step) {\n    const Inputs x = inputs(p, step);\n" +
            kernel + "  }\n  leave_grid(p.arrivals);\n}\n";
    return std::move(source_);
  }

 private:
  int64_t threads() const { return schedule_.threads; }
  const Op& op(int i) const { return program_.ops[static_cast<size_t>(i)]; }

  template <class... Parts>
  void add(const Parts&... parts) {
    body_ += concat(parts..., "\n");
  }

  // --- memory ------------------------------------------------------------------------------------------------------

  // The buffer as a pointer to its elements. Memory of the kernel's own is given out to what does not stay in shared memory.
  std::string global(int buffer, DType dtype) const {
    const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
    std::string at;
    if (b.external >= 0) {
      at = concat(is_input(b.external) ? "x.at[" : "p.external[", b.external, "]");
    } else {
      int64_t& place = scratch_[static_cast<size_t>(buffer)];
      if (place < 0) place = std::exchange(scratch_bytes_, scratch_bytes_ + aligned(b.bytes));
      at = concat("(p.scratch + ", place, ")");
    }
    if (outlined_) at = concat("g", slot_of(globals_, at));
    return concat("((", stored_type(dtype), "*)", at, ")");
  }

  // The place of `what` in the list, at the end of which it is put where it is new.
  static size_t slot_of(std::vector<std::string>& list, const std::string& what) {
    const auto found = std::find(list.begin(), list.end(), what);
    const auto slot = static_cast<size_t>(found - list.begin());
    if (found == list.end()) list.push_back(what);
    return slot;
  }

  // --- rows that every run takes from arrays -----------------------------------------------------------------------

  bool is_input(int external) const {
    return std::any_of(source_.rows.begin(), source_.rows.end(),
                       [&](const Source::Rows& r) { return r.external == external; });
  }

  // All parameters that are read have one number of rows, in whole words.
  void find_rows(std::span<const TensorSpec> parameters) {
    for (size_t e = 0; e < program_.externals.size(); ++e) {
      const int parameter = program_.externals[e].parameter;
      if (parameter < 0) continue;
      const TensorSpec& spec = parameters[static_cast<size_t>(parameter)];
      const auto bytes = static_cast<int64_t>(spec.bytes());
      if (spec.shape.rank() == 0 || (source_.row_count > 0 && spec.shape[0] != source_.row_count) ||
          bytes / spec.shape[0] % 4 != 0) {
        source_.rows.clear();
        return;
      }
      source_.row_count = spec.shape[0];
      source_.rows.push_back({static_cast<int>(e), parameter, bytes});
    }
  }

  std::string write_gather() {
    const size_t externals = std::max<size_t>(1, program_.externals.size());
    std::string inputs =
        concat("struct Inputs { char* at[", externals, "]; };\n",
               "__device__ inline Inputs inputs(const Arguments& p, i64 step) {\n  Inputs x;\n");
    // Not inline: it is not to take registers from the rest.
    std::string gather = "__device__ __noinline__ void gather(const Arguments& p, i64 step, int task) {\n";
    int64_t offset = 0;
    for (size_t j = 0; j < source_.rows.size(); ++j) {
      const auto [external, parameter, bytes] = source_.rows[j];
      const int64_t row = bytes / source_.row_count, unit = row % 16 == 0 ? 16 : 4;
      const int64_t units = bytes / unit, at_once = std::clamp<int64_t>(units / (64 * threads()), 1, 8);
      const int64_t tasks = (units + at_once * threads() - 1) / (at_once * threads());
      const std::string place = concat("p.staged + ", offset, " + (step & 1) * ", aligned(bytes));
      inputs += concat("  x.at[", external, "] = p.staged ? ", place, " : p.external[", external, "];\n");
      gather += concat("  if (task >= ", gathers_, " && task < ", gathers_ + tasks, ") gather_rows<",
                       unit == 16 ? "float4" : "int", ", ", row / unit, ", ", source_.row_count, ", ",
                       at_once, ">(p.array[", j, "], ", place, ", p.order, p.first + step * ",
                       source_.row_count, ", task - ", gathers_, ");\n");
      gathers_ += tasks;
      offset += 2 * aligned(bytes);
    }
    source_.staged_bytes = offset;
    return inputs + "  return x;\n}\n" + gather + "}\n";
  }

  static std::string plus(int64_t offset) { return offset == 0 ? std::string() : concat(" + ", offset); }

  // The place of an element whose number in row-major order is `flat`, in elements of the access.
  static std::string place(const Access& access, const std::string& flat) {
    if (access.contiguous()) return concat("(", flat, ")");
    std::string text;
    int64_t inner = 1;
    for (int d = access.shape.rank() - 1; d >= 0; --d) {
      const int64_t size = access.shape[d], stride = access.strides[d];
      if (size > 1 && stride != 0) {
        std::string index = concat("(", flat, ")");
        if (inner > 1) index = concat(index, " / ", inner);
        if (d > 0) index = concat("(", index, ") % ", size);
        if (!text.empty()) text += " + ";
        text += concat("(", index, ")", stride != 1 ? concat(" * ", stride) : "");
      }
      inner *= size;
    }
    return text.empty() ? "0" : concat("(", text, ")");
  }

  std::string load_global(const Access& access, const std::string& flat) const {
    return concat("__ldcg(", global(access.buffer, access.dtype), " + ", place(access, flat),
                  plus(access.offset), ")");
  }

  // --- levels and tasks --------------------------------------------------------------------------------------------

  std::string write_level(int level) {
    std::vector<const Group*> groups;
    for (const Group& group : schedule_.groups)
      if (group.level == level) groups.push_back(&group);
    // The longest first: blocks that have two tasks have short ones.
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group* a, const Group* b) { return a->cost > b->cost; });
    int64_t tasks = 0;
    std::string text;
    for (const Group* group : groups) {
      const auto number = group - schedule_.groups.data();
      write_group(*group, static_cast<int>(number));
      text += concat("        ", tasks == 0 ? "if" : "else if", " (task < ", tasks + group->tasks, ") group",
                     number, "(p, x, task - ", tasks, ", shared, wait);\n");
      tasks += group->tasks;
    }
    source_.most_tasks = std::max(source_.most_tasks, tasks);
    // The rows of the next run are fetched by blocks with little else to do in the last level.
    std::string rows;
    if (level + 1 == schedule_.levels && gathers_ > 0) {
      int64_t busy = 0;
      for (const Group* group : groups)
        if (group->cost > groups[0]->cost / 2) busy += group->tasks;
      rows = concat("      if (p.staged && step + 1 < p.steps) {\n",
                    "        const int first = gridDim.x >= ", busy + kLeastGathering, " ? ", busy, " : 0;\n",
                    // With one level, others may still read what the run before the last has left there.
                    level == 0 ? "        wait();\n        wait.goal = 0;\n" : "",
                    "        if (blockIdx.x >= first)\n          for (int task = blockIdx.x - first; task < ",
                    gathers_, "; task += gridDim.x - first) gather(p, step + 1, task);\n      }\n");
    }
    return concat("    {\n      Wait wait{p.arrivals, goal};\n", rows,
                  "      for (int round = 0, task; (task = task_of(round)) < ", tasks, "; ++round) {\n",
                  "        if (round > 0) __syncthreads();\n", text, "        wait.goal = 0;\n      }\n",
                  "      wait();\n",
                  level + 1 < schedule_.levels ? "" : "      if (step + 1 == p.steps) break;\n",
                  "      arrive(p.arrivals);\n      goal += gridDim.x;\n    }\n");
  }

  void write_group(const Group& group, int number) {
    body_.clear();
    epilogue_.clear();
    globals_.clear();
    group_ = number;
    const bool has_epilogue =
        group.form == Form::tile || group.form == Form::columns || group.form == Form::elements;
    outlined_ = has_epilogue && program_.examples > 0;
    switch (group.form) {
      case Form::tile: write_tile(group); break;
      case Form::columns: write_columns(group); break;
      case Form::elements: write_elements(group); break;
      case Form::rows: write_rows(group); break;
      case Form::examples: write_examples(group); break;
      case Form::serial: write_serial(group); break;
    }
    if (std::exchange(outlined_, false)) {
      share_group(number);
    } else if (has_epilogue) {
      const std::string name = concat("Epilogue", number);
      functions_ += with_epilogue(epilogue_, name, "  const Arguments& p;\n  const Inputs& x;\n", "p, x");
      body_ = with_epilogue(body_, name, "", "p, x");
    }
    functions_ += concat(
        "__device__ inline void group", number,
        "(const Arguments& p, const Inputs& x, int task, char* shared, const Wait& wait) {\n", body_, "}\n");
  }

  // Fills in what an epilogue is called, its members, and what they are made of.
  static std::string with_epilogue(std::string text, const std::string& name, const std::string& members,
                                   const std::string& pointers) {
    const auto replace = [&](std::string_view what, const std::string& by) {
      for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
        text.replace(at, what.size(), by);
    };
    replace("$Epilogue", name);
    replace("$members", members);
    replace("$pointers", pointers);
    return text;
  }

  // Many updates of weights are alike but for where these are: one function serves all, and is compiled once.
  void share_group(int number) {
    std::string parameters = "int task, char* shared, Wait wait", arguments = "task, shared, wait", members,
                pointers;
    for (size_t g = 0; g < globals_.size(); ++g) {
      parameters += concat(", char* g", g), arguments += ", " + globals_[g];
      members += concat("  char* g", g, ";\n"), pointers += concat(g > 0 ? ", g" : "g", g);
    }
    const auto [it, fresh] =
        outlined_by_text_.try_emplace(concat(epilogue_, parameters, body_), concat("shared", number));
    if (fresh) {
      const std::string name = concat("Epilogue", number);
      functions_ += with_epilogue(epilogue_, name, members, pointers);
      functions_ += concat("__device__ __noinline__ void ", it->second, "(", parameters, ") {\n",
                           with_epilogue(body_, name, "", pointers), "}\n");
    }
    body_ = concat("  ", it->second, "(", arguments, ");\n");
  }

  bool written_here(const Access& access) const {
    const int w = schedule_.writer[static_cast<size_t>(access.buffer)];
    return w >= 0 && schedule_.group_of[static_cast<size_t>(w)] == group_;
  }
  // Whether it is written by a member of the group that comes before `op`: a variable's old value is not.
  bool computed_here(const Access& access, int op) const {
    return written_here(access) && schedule_.writer[static_cast<size_t>(access.buffer)] < op;
  }

  // Whether a member of the group that comes after `op` reads it.
  bool read_here(int buffer, int op) const {
    const auto& readers = schedule_.readers[static_cast<size_t>(buffer)];
    return std::any_of(readers.begin(), readers.end(),
                       [&](int r) { return schedule_.group_of[static_cast<size_t>(r)] == group_ && r > op; });
  }

  // Whether what the group reads there was not written by the level before it (of the first: by the last of the step
  // before), for which the group waits.
  bool is_early(const Access& access) const {
    const int w = schedule_.writer[static_cast<size_t>(access.buffer)];
    const auto level = [&](int group) { return schedule_.groups[static_cast<size_t>(group)].level; };
    // Rows that every run takes are written by the last level of the run before.
    if (w < 0)
      return level(group_) > 0 || !is_input(program_.buffers[static_cast<size_t>(access.buffer)].external);
    return level(schedule_.group_of[static_cast<size_t>(w)]) !=
           (level(group_) + schedule_.levels - 1) % schedule_.levels;
  }

  // --- elements: ops that follow one another on the same element -----------------------------------------------------

  // A struct with what these ops read beside `value`, which the group's first op gives (-1: none does), and what they do
  // with it. `index`: the parameters of load() and finish(), `flat`: an element's number.
  void write_epilogue(const Group& group, const std::string& index, const std::string& flat) {
    const Op& first = op(group.ops[0]);
    const bool starts = first.kind != Kind::elementwise;
    std::string members, early, late, finish;
    const auto loads = [&](const Access& access) -> std::string& { return is_early(access) ? early : late; };
    std::map<int, std::string> held;  // by buffer: the element, as it is stored
    if (starts) {
      std::string value = "value";
      if (first.kind == Kind::product) {
        if (first.bias) {
          members += "float bias; ";
          loads(first.inputs[2]) += concat("    in.bias = ", load_global(first.inputs[2], "n"), ";\n");
          value = "value + in.bias";
        }
        value = activated(first.epilogue, value);
      }
      finish += concat("    const float result = ", value, ";\n");
      finish += store(group.ops[0], 0, "result", flat);
      held[first.outputs[0].buffer] = "result";
    }
    for (size_t number = 0; number < group.ops.size(); ++number) {
      const int i = group.ops[number];
      const Op& o = op(i);
      if (o.kind != Kind::elementwise) continue;
      for (size_t k = 0; k < o.inputs.size(); ++k) {
        if (computed_here(o.inputs[k], i)) continue;
        members += concat(stored_type(o.inputs[k].dtype), " i", number, "_", k, "; ");
        loads(o.inputs[k]) +=
            concat("    in.i", number, "_", k, " = ", load_global(o.inputs[k], flat), ";\n");
      }
      const std::string name = concat("o", number);
      const ScalarCode code = scalar_code(
          o.program,
          [&](size_t k) {
            return computed_here(o.inputs[k], i) ? held.at(o.inputs[k].buffer)
                                                 : concat("in.i", number, "_", k);
          },
          name + "_");
      finish += code.statements;
      for (size_t k = 0; k < o.outputs.size(); ++k) {
        const std::string result = concat(name, "s", k);
        finish +=
            concat("    const ", stored_type(o.outputs[k].dtype), " ", result, " = ", code.outputs[k], ";\n");
        finish += store(i, k, result, flat);
        held[o.outputs[k].buffer] = result;
      }
    }
    epilogue_ = concat("struct $Epilogue {\n$members  struct In { ", members, "};\n",
                       "  __device__ void load_early(In& in, ", index, ") const {\n", early, "  }\n",
                       "  __device__ void load_late(In& in, ", index, ") const {\n", late, "  }\n",
                       "  __device__ void finish(const In& in, ", index, ", float value) const {\n", finish,
                       "  }\n};\n");
  }

  std::string store(int i, size_t output, const std::string& value, const std::string& flat) const {
    const Access& to = op(i).outputs[output];
    if (!schedule_.leaves_group(program_, i, output)) return {};
    return concat("    ", global(to.buffer, to.dtype), "[", flat, plus(to.offset), "] = ", value, ";\n");
  }

  void write_tile(const Group& group) {
    const Op& o = op(group.ops[0]);
    write_epilogue(group, "int m, int n", concat("m * ", o.n, " + n"));
    const Tile& t = group.tile;
    const auto matrix = [&](const Access& x, int inner_axis) {
      const bool by_k =
          x.strides[inner_axis] == 1 && !(x.strides[1 - inner_axis] == 1 && x.shape[inner_axis] == 1);
      const int64_t stride = by_k ? x.strides[1 - inner_axis] : x.strides[inner_axis];
      const int64_t dense = by_k ? x.shape[inner_axis] : x.shape[1 - inner_axis];
      const bool vectors = stride % 4 == 0 && x.offset % 4 == 0 && dense % 4 == 0;
      return std::tuple(by_k, vectors, stride);
    };
    const auto [a_by_k, a_vectors, a_stride] = matrix(o.inputs[0], 1);
    const auto [b_by_k, b_vectors, b_stride] = matrix(o.inputs[1], 0);
    const auto yes = [](bool b) { return b ? "true" : "false"; };
    // Elements of shared memory for `depth` of the inner dimension.
    const auto stage = [&](int64_t depth) {
      return (a_by_k ? t.rows * (depth + 4) : depth * (t.rows + 8)) +
             (b_by_k ? t.columns * (depth + 4) : depth * (t.columns + 8));
    };
    // Few threads: the inner dimension is long.
    const bool stream = !t.dot && threads() <= 256;
    const int64_t warps = threads() / 32, warp_rows = stream ? t.rows : 16;
    int64_t depth = t.depth, stages = t.dot ? 0 : depth > 64 ? 3 : 4;
    if (stream) {
      const auto fitting = [&](int64_t d) { return kStreamBytes / (4 * warps * stage(d)); };
      depth = fitting(16) >= 4 ? 16 : 8;
      stages = std::min<int64_t>(fitting(depth), 8);
    }
    std::string shape;
    if (stream)
      shape = concat(", ", depth, ", ", stages, ", ", t.share);
    else if (!t.dot)
      shape = concat(", ", warp_rows, ", ", depth, ", ", t.share);
    add("  ",
        t.dot    ? "dot_product<"
        : stream ? "stream_product<"
                 : "tile_product<",
        yes(a_by_k), ", ", yes(a_vectors), ", ", yes(is_early(o.inputs[0])), ", ", yes(b_by_k), ", ",
        yes(b_vectors), ", ", yes(is_early(o.inputs[1])), ", ", o.m, ", ", o.n, ", ", o.k, ", ", t.rows, ", ",
        t.columns, shape, ">(", global(o.inputs[0].buffer, DType::float32), plus(o.inputs[0].offset), ", ",
        a_stride, ", ", global(o.inputs[1].buffer, DType::float32), plus(o.inputs[1].offset), ", ", b_stride,
        ", task, $Epilogue{$pointers}, (float*)shared, wait);");
    const int64_t results = warps * warp_rows * (t.columns + 8);
    needs_shared(4 * std::max(results, stages * stage(depth) * (stream ? warps : 1)));
  }

  void write_columns(const Group& group) {
    const Op& o = op(group.ops[0]);
    write_epilogue(group, "int n", "n");
    add("  fold_columns<", o.length, ", ", o.inner, ", ", group.unit, ", ", o.rule->fold, ">(",
        global(o.inputs[0].buffer, DType::float32), plus(o.inputs[0].offset),
        ", task, $Epilogue{$pointers}, (float*)shared, wait);");
    needs_shared(4 * threads());
  }

  void write_elements(const Group& group) {
    write_epilogue(group, "int n", "n");
    add("  wait();");
    add("  const int end = min(", op(group.ops[0]).outputs[0].shape.size(), ", (task + 1) * ", group.unit,
        ");");
    add("  for (int n = task * ", group.unit, " + threadIdx.x; n < end; n += kThreads) {");
    add("    const $Epilogue e{$pointers};\n    $Epilogue::In in;\n    e.load_early(in, n);\n    "
        "e.load_late(in, n);\n    e.finish(in, n, 0.f);\n  }");
  }

  void needs_shared(int64_t bytes) { source_.shared_bytes = std::max(source_.shared_bytes, bytes); }

  // --- rows, and small things one after the other --------------------------------------------------------------------

  // Where a value lies in shared memory while a task works on its rows.
  struct Held {
    std::string name;
    int64_t row = 0;              // elements
    int64_t line = 0, pitch = 0;  // of an example: lines of so many elements begin so far apart
    int64_t begin = 0, end = 0;   // of an example: its bytes

    // The place of its element with this number.
    std::string at(const std::string& number) const {
      return line == pitch ? concat(name, "[", number, "]")
                           : concat(name, "[spread<", line, ", ", pitch, ">(", number, ")]");
    }
  };

  // Elements of a row, of a value that has one for each of the group's.
  static int64_t row_size(const Access& access, int64_t rows) { return access.shape.size() / rows; }

  std::string reserve(const std::string& type, const std::string& name, int64_t bytes) {
    const int64_t at = shared_;
    shared_ += aligned(bytes, 16);
    return concat("  ", type, "* const ", name, " = (", type, "*)(shared + ", at, ");\n");
  }

  void write_rows(const Group& group) {
    whole_ = false;
    shared_ = 0;
    held_.clear();
    matrices_.clear();
    const int64_t rows = group.rows;
    add("  const int lo = task * ", group.unit, ", hi = min(", rows, ", lo + ", group.unit,
        "), rows = hi - lo;");
    // Everything that is read comes at once, before the first of it is needed.
    for (const bool early : {true, false}) {
      for (const int i : group.ops) {
        const Op& o = op(i);
        for (size_t k = 0; k < o.inputs.size(); ++k) {
          const Access& input = o.inputs[k];
          if (computed_here(input, i) || is_early(input) != early) continue;
          if (o.kind == Kind::partial_sums) {
            if (k > 0) hold_vector(input);
          } else if (o.kind == Kind::product && k > 0)
            k == 1 ? hold_matrix(input) : hold_vector(input);
          else if (!held_.contains(input.buffer))
            hold_rows(input, rows, group.unit);
        }
      }
      if (early) add("  wait();");
    }
    add("  end_fetches();\n  await_fetches<0>();\n  __syncthreads();");
    for (const int i : group.ops)
      for (const Access& output : op(i).outputs) {
        if (held_.contains(output.buffer)) continue;
        if (!read_here(output.buffer, i)) continue;
        const std::string name = concat("v", output.buffer);
        const int64_t row = row_size(output, rows);
        body_ += reserve(stored_type(output.dtype), name,
                         group.unit * row * static_cast<int64_t>(size_of(output.dtype)));
        held_[output.buffer] = {name, row};
      }
    for (const int i : group.ops) {
      write_op(i, rows, static_cast<int>(group.unit));
      add("  __syncthreads();");
    }
    needs_shared(shared_);
  }

  // --- examples --------------------------------------------------------------------------------------------------------

  // Which bytes of shared memory the values of an example have while they are needed.
  class Places {
   public:
    // From op `first` to op `last` of the group; -1: there is no room.
    int64_t find(int first, int last, int64_t bytes) {
      bytes = aligned(bytes, 16);
      int64_t begin = 0;
      for (const Taken& t : taken_) {  // by place
        if (t.last < first || last < t.first) continue;
        if (begin + bytes <= t.begin) break;
        begin = std::max(begin, t.end);
      }
      if (begin + bytes > kExampleBytes) return -1;
      const Taken taken{begin, begin + bytes, first, last};
      taken_.insert(std::upper_bound(taken_.begin(), taken_.end(), taken,
                                     [](const Taken& a, const Taken& b) { return a.begin < b.begin; }),
                    taken);
      most_ = std::max(most_, taken.end);
      return begin;
    }
    int64_t most() const { return most_; }

   private:
    struct Taken {
      int64_t begin, end;
      int first, last;
    };
    std::vector<Taken> taken_;
    int64_t most_ = 0;
  };

  // Where a buffer that holds examples is read by the group's ops: the last of them, by number in the group; -1: nowhere.
  int last_reader(const Group& group, int buffer) const {
    for (size_t t = group.ops.size(); t-- > 0;)
      for (const Access& input : op(group.ops[t]).inputs)
        if (input.buffer == buffer) return static_cast<int>(t);
    return -1;
  }

  // Gives the value a place in shared memory, if there is room. Lines of whole banks are moved apart, where nobody reads it as
  // other lines.
  bool hold_example(const Group& group, const Access& value, int64_t elements, int first, int last,
                    Places& places) {
    const int64_t line = value.shape.rank() > 1 ? value.shape[-1] : elements;
    const auto reads_lines = [&](int reader) {
      const std::vector<Access>& inputs = op(reader).inputs;
      return std::all_of(inputs.begin(), inputs.end(), [&](const Access& input) {
        return input.buffer != value.buffer || (input.shape.rank() > 0 && line % input.shape[-1] == 0);
      });
    };
    const bool apart = value.dtype == DType::float32 && line % 8 == 0 && line < elements &&
                       std::all_of(group.ops.begin(), group.ops.end(), reads_lines);
    const int64_t pitch = apart ? line + 4 : line;
    const int64_t bytes = elements / line * pitch * static_cast<int64_t>(size_of(value.dtype));
    const int64_t begin = places.find(first, last, bytes);
    if (begin < 0) return false;
    const std::string name = concat("v", value.buffer), type = stored_type(value.dtype);
    add("  ", type, "* const ", name, " = (", type, "*)(shared + ", begin, ");");
    held_[value.buffer] = {name, elements, line, pitch, begin, begin + bytes};
    return true;
  }

  // What others have made of the example and this group reads more than in passing comes to shared memory at once.
  void fetch_examples(const Group& group, Places& places) {
    std::vector<int> seen;
    for (const int i : group.ops) {
      const Op& o = op(i);
      if (o.kind != Kind::example && o.kind != Kind::product) continue;
      for (size_t k = 0; k < o.inputs.size(); ++k) {
        const Access& input = o.inputs[k];
        const bool is_whole = o.kind == Kind::product ? k > 0 : (o.rule->whole >> k & 1) != 0;
        const auto width = static_cast<int64_t>(size_of(input.dtype));
        const int64_t elements = input.shape.size() / group.rows;
        if (is_whole || written_here(input) || held_.contains(input.buffer) || !input.contiguous() ||
            input.offset != 0 || elements * width % 4 != 0 || elements * width > kMostFetched ||
            !is_own_example(input, group.rows, input.shape.size()))
          continue;
        // All who read it must mean the same elements.
        const bool alike = std::all_of(group.ops.begin(), group.ops.end(), [&](int reader) {
          const std::vector<Access>& inputs = op(reader).inputs;
          return std::all_of(inputs.begin(), inputs.end(), [&](const Access& other) {
            return other.buffer != input.buffer || is_own_example(other, group.rows, input.shape.size());
          });
        });
        if (!alike || !hold_example(group, input, elements, -1, last_reader(group, input.buffer), places))
          continue;
        const Held& held = held_.at(input.buffer);
        const int64_t words = held.line * width / 4;
        if (held.line == held.pitch)
          add("  fetch_words(", held.name, ", ", global(input.buffer, input.dtype), " + lo * ", elements,
              ", ", elements * width / 4, ");");
        else
          add("  fetch_matrix<", words, ", ", held.pitch, ">(", held.name, ", ",
              global(input.buffer, input.dtype), " + lo * ", elements, ", ", words, ", ",
              elements / held.line, ");");
      }
    }
    add("  end_fetches();\n  await_fetches<0>();\n  __syncthreads();");
  }

  void write_examples(const Group& group) {
    whole_ = false;
    examples_ = true;
    held_.clear();
    Places places;
    add("  const int lo = task;\n  wait();");
    fetch_examples(group, places);
    fetches_.clear();
    for (size_t t = 0; t < group.ops.size(); ++t)
      if (op(group.ops[t]).kind == Kind::product) fetches_.push_back({.at = static_cast<int>(t)});
    for (size_t number = 0; number < kFetchedAhead; ++number) fetch_matrix_of(group, number, -1, places);
    size_t product = 0;
    // Threads meet where one reads what another has written, or writes where another still reads.
    std::vector<int> written;                          // buffers, since they last met
    std::vector<std::pair<int64_t, int64_t>> touched;  // bytes
    for (size_t t = 0; t < group.ops.size(); ++t) {
      const int i = group.ops[t], now = static_cast<int>(t);
      const Op& o = op(i);
      std::vector<std::pair<int64_t, int64_t>> writes, reads;
      for (const Access& output : o.outputs) {
        const int last = last_reader(group, output.buffer);
        if (last > now && hold_example(group, output, output.shape.size() / group.rows, now, last, places)) {
          const Held& held = held_.at(output.buffer);
          writes.emplace_back(held.begin, held.end);
        }
      }
      int64_t scratch = 4 * (o.kind == Kind::fold && o.inner > 1 ? threads() : 0);
      if (o.kind == Kind::example && o.rule->scratch) scratch = 4 * o.rule->scratch(o);
      const int64_t scratch_at = scratch > 0 ? places.find(now, now, scratch) : 0;
      require(scratch_at >= 0, ErrorCode::internal, std::source_location::current(),
              "an op of an example has no room in shared memory");
      if (scratch > 0) writes.emplace_back(scratch_at, scratch_at + scratch);
      bool meet = false;
      for (const Access& input : o.inputs) {
        meet = meet || std::find(written.begin(), written.end(), input.buffer) != written.end();
        if (const auto it = held_.find(input.buffer); it != held_.end())
          reads.emplace_back(it->second.begin, it->second.end);
      }
      for (const auto& [begin, end] : writes)
        meet = meet || std::any_of(touched.begin(), touched.end(), [&](const auto& other) {
                 return begin < other.second && other.first < end;
               });
      if (o.kind == Kind::product) {
        // All have their part of the matrix, and are done with the product before.
        add("  await_fetches<", kFetchedAhead - 1, ">();\n  __syncthreads();");
        fetch_matrix_of(group, product + kFetchedAhead, now, places);
        const Fetch& fetch = fetches_[product++];
        if (fetch.begin >= 0) reads.emplace_back(fetch.begin, fetch.end);
        fetch_ = &fetch;
        meet = true;
      } else if (meet) {
        add("  __syncthreads();");
      }
      if (meet) written.clear(), touched.clear();
      for (const Access& output : o.outputs) written.push_back(output.buffer);
      touched.insert(touched.end(), writes.begin(), writes.end());
      touched.insert(touched.end(), reads.begin(), reads.end());
      write_example_op(i, group.rows,
                       o.kind == Kind::product ? std::max<int64_t>(0, fetch_->begin) : scratch_at);
    }
    needs_shared(places.most());
    examples_ = false;
  }

  // An op of an example is a function of the places of its operands: ops that are alike share it, and there is far less to
  // compile.
  void write_example_op(int i, int64_t examples, int64_t scratch_at) {
    const Op& o = op(i);
    std::vector<std::string> places;  // in shared memory
    std::map<int, std::string> names;
    std::string operands;
    for (const std::vector<Access>* list : {&o.inputs, &o.outputs})
      for (const Access& access : *list) {
        const auto it = held_.find(access.buffer);
        if (it == held_.end() || names.contains(access.buffer)) continue;
        const std::string name = concat("v", places.size()), type = stored_type(access.dtype);
        operands +=
            concat("  ", type, "* const ", name, " = (", type, "*)(shared + s", places.size(), ");\n");
        places.push_back(concat(it->second.begin));
        names[access.buffer] = std::exchange(it->second.name, name);
      }
    std::string around = std::exchange(body_, {});
    globals_.clear();
    outlined_ = !reports(o);
    if (o.kind == Kind::product)
      write_example_product(i, examples);
    else
      write_op(i, examples, 1);
    const std::string code = std::exchange(body_, std::move(around));
    for (const auto& [buffer, name] : names) held_.at(buffer).name = name;
    std::string parameters = "int lo, int scratch_at", arguments = concat("lo, ", scratch_at);
    for (size_t s = 0; s < places.size(); ++s)
      parameters += concat(", int s", s), arguments += ", " + places[s];
    for (size_t g = 0; g < globals_.size(); ++g)
      parameters += concat(", char* g", g), arguments += ", " + globals_[g];
    const std::string text =
        concat(operands, "  float* const scratch = (float*)(shared + scratch_at);\n", code);
    if (!std::exchange(outlined_, false)) {  // it speaks to the host, by pointers of the kernel's argument
      for (size_t s = 0; s < places.size(); ++s) add("  {\n  const int s", s, " = ", places[s], ";");
      add("  const int scratch_at = ", scratch_at, ";\n", text, std::string(places.size(), '}'));
      return;
    }
    const auto [it, fresh] =
        outlined_by_text_.try_emplace(concat(parameters, text), concat("op", outlined_by_text_.size()));
    if (fresh)
      functions_ += concat("__device__ __noinline__ void ", it->second, "(", parameters,
                           ") {\n  extern __shared__ __align__(16) char shared[];\n", text, "}\n");
    add("  ", it->second, "(", arguments, ");");
  }

  // Where the matrix of a product that works on examples comes from: shared memory, if there is room for it while the products
  // before are made, so that nobody waits for it.
  struct Fetch {
    int at = 0;                    // the op's number in the group
    int64_t begin = -1, end = -1;  // bytes; -1: it stays where it is
    int64_t pitch = 0;
  };
  static constexpr size_t kFetchedAhead = 2;

  // How the lines of a matrix lie: whether they go along the inner dimension, how many there are, how long and how far apart.
  struct Lines {
    bool by_k;
    int64_t count, width, stride;
    explicit Lines(const Access& b)
        : by_k(b.strides[0] == 1 && !(b.strides[1] == 1 && b.shape[0] == 1)),
          count(b.shape[by_k ? 1 : 0]),
          width(b.shape[by_k ? 0 : 1]),
          stride(b.strides[by_k ? 1 : 0]) {}
  };

  // Lets the matrix of a product come while op `now` and those behind it are done.
  void fetch_matrix_of(const Group& group, size_t number, int now, Places& places) {
    if (number < fetches_.size()) {
      Fetch& fetch = fetches_[number];
      const Access& b = op(group.ops[static_cast<size_t>(fetch.at)]).inputs[1];
      const Lines lines(b);
      // The lanes of a warp meet all banks.
      const int64_t pitch = (lines.width + 31) / 32 * 32 + (lines.by_k ? 4 : 8);
      const int64_t bytes = 4 * lines.count * pitch;
      if (const int64_t begin = places.find(now, fetch.at, bytes); begin >= 0) {
        fetch = {fetch.at, begin, begin + bytes, pitch};
        add("  fetch_lines<", lines.count, ", ", lines.width, ", ", lines.stride, ", ", pitch,
            ">((float*)(shared + ", begin, "), ", global(b.buffer, DType::float32), plus(b.offset), ");");
      }
    }
    add("  end_fetches();");
  }

  void write_example_product(int i, int64_t examples) {
    const Op& o = op(i);
    op_ = i;
    const Access &a = o.inputs[0], &b = o.inputs[1];
    const Lines lines(b);
    const auto place = [&](int64_t stride) {
      return lines.by_k ? concat("n * ", stride, " + k") : concat("k * ", stride, " + n");
    };
    add("  {  // ", o.step->op->name);
    // The matrix is where `scratch` points to.
    const std::string element_of_b = fetch_->begin >= 0
                                         ? concat("scratch[", place(fetch_->pitch), "]")
                                         : concat("__ldcg(", global(b.buffer, DType::float32), plus(b.offset),
                                                  " + (", place(lines.stride), "))");
    add("    example_product<", o.m / examples, ", ", o.n, ", ", o.k, ", ", o.bias ? "true" : "false",
        ">([&](int r, int k) { return ", element(a, concat("(r * ", o.k, " + k)"), examples),
        "; }, [&](int k, int n) { return ", element_of_b, "; }, ",
        o.bias ? concat(global(o.inputs[2].buffer, DType::float32), plus(o.inputs[2].offset)) : "nullptr",
        ", [&](int r, int n, float sum) {");
    add("      const float result = ", activated(o.epilogue, "sum"), ";");
    add("      ", put(i, 0, concat("(r * ", o.n, " + n)"), "result", examples));
    add("    });\n  }");
  }

  void hold_rows(const Access& input, int64_t rows, int64_t unit) {
    // Whole rows, one behind the other, in whole words.
    if (input.shape.rank() == 0 || input.shape[0] != rows || !input.contiguous()) return;
    const auto width = static_cast<int64_t>(size_of(input.dtype));
    const int64_t row = row_size(input, rows), bytes = row * width;
    if (bytes % 4 != 0 || input.offset * width % 4 != 0 || unit * bytes > (32 << 10) || input.offset != 0)
      return;
    const std::string name = concat("v", input.buffer);
    body_ += reserve(stored_type(input.dtype), name, unit * bytes);
    add("  fetch_words(", name, ", ", global(input.buffer, input.dtype), " + lo * ", row, ", rows * ",
        bytes / 4, ");");
    held_[input.buffer] = {name, row};
  }

  // A matrix as it lies in memory, with rows of an odd length: any way through it meets all banks.
  struct Matrix {
    std::string name;
    int64_t pitch = 0;
  };

  void hold_matrix(const Access& input) {
    const bool by_rows = input.strides[1] == 1;
    const int64_t lines = input.shape[by_rows ? 0 : 1], width = input.shape[by_rows ? 1 : 0];
    const int64_t stride = input.strides[by_rows ? 0 : 1];
    const auto key = std::tuple(input.buffer, input.offset, lines, width, stride);
    if (matrices_.contains(key)) return;
    const Matrix matrix{concat("matrix", matrices_.size()), width | 1};
    body_ += reserve("float", matrix.name, 4 * lines * matrix.pitch);
    add("  fetch_matrix<", width, ", ", matrix.pitch, ">(", matrix.name, ", ",
        global(input.buffer, DType::float32), plus(input.offset), ", ", stride, ", ", lines, ");");
    matrices_[key] = matrix;
  }

  void hold_vector(const Access& input) {
    const auto key = std::tuple(input.buffer, input.offset, int64_t{1}, input.shape.size(), int64_t{0});
    if (matrices_.contains(key)) return;
    const Matrix vector{concat("matrix", matrices_.size()), 0};
    body_ += reserve("float", vector.name, 4 * input.shape.size());
    add("  fetch_words(", vector.name, ", ", global(input.buffer, DType::float32), plus(input.offset), ", ",
        input.shape.size(), ");");
    matrices_[key] = vector;
  }

  void write_serial(const Group& group) {
    whole_ = true;
    shared_ = 4 * threads();  // behind what sums over the block need
    held_.clear();
    // What the next op reads does not go through global memory.
    for (const int i : group.ops)
      for (const Access& output : op(i).outputs) {
        const auto bytes = output.shape.size() * static_cast<int64_t>(size_of(output.dtype));
        if (bytes > kMostHeld || output.offset != 0 || !read_here(output.buffer, i)) continue;
        const std::string name = concat("v", output.buffer);
        body_ += reserve(stored_type(output.dtype), name, bytes);
        held_[output.buffer] = {name, output.shape.size()};
      }
    add("  wait();");
    for (size_t n = 0; n < group.ops.size(); ++n) {
      if (n > 0) add("  __syncthreads();");
      write_op(group.ops[n], 1, 1);
    }
    needs_shared(shared_);
  }

  // Whether it reads from each row of a value what is in that row.
  static bool in_rows(const Access& access, int64_t row) {
    if (access.offset != 0 || access.shape.rank() == 0) return false;
    int64_t reach = 0;
    for (int d = 1; d < access.shape.rank(); ++d) reach += (access.shape[d] - 1) * access.strides[d];
    return (access.shape[0] == 1 || access.strides[0] == row) && reach < row;
  }

  // An element, given its number among those of the rows at hand (of all, in a serial group).
  std::string element(const Access& access, const std::string& flat, int64_t rows) const {
    const auto it = held_.find(access.buffer);
    if (whole_) {
      if (it == held_.end() || !computed_here(access, op_)) return load_global(access, flat);
      return concat(it->second.name, "[", place(access, flat), plus(access.offset), "]");
    }
    if (examples_ && it != held_.end()) return it->second.at(place(access, flat) + plus(access.offset));
    if (it != held_.end() && in_rows(access, it->second.row))
      return concat(it->second.name, "[", place(access, flat), "]");
    const int64_t size = access.shape.size() / rows;
    return load_global(access, concat("lo * ", size, " + ", flat));
  }

  // A pointer to a line of a dense value: lines in shared memory that were moved apart are several of its own.
  std::string line(const Access& access, const std::string& first, int64_t rows) const {
    if (const auto it = held_.find(access.buffer); it != held_.end()) return "&" + it->second.at(first);
    return concat("(const ", stored_type(access.dtype), "*)", global(access.buffer, access.dtype),
                  " + (lo * ", access.shape.size() / rows, " + ", first, ")");
  }

  std::string put(int i, size_t output, const std::string& flat, const std::string& value,
                  int64_t rows) const {
    const Access& to = op(i).outputs[output];
    std::string text;
    const bool held = held_.contains(to.buffer);
    if (held) text = concat(held_.at(to.buffer).at(flat), " = ", value, "; ");
    if (whole_ && (!held || schedule_.leaves_group(program_, i, output)))
      text += concat(global(to.buffer, to.dtype), "[", flat, plus(to.offset), "] = ", value, ";");
    if (!whole_ && (schedule_.leaves_group(program_, i, output) || (examples_ && !held)))
      text += concat(global(to.buffer, to.dtype), "[lo * ", row_size(to, rows), " + ", flat, plus(to.offset),
                     "] = ", value, ";");
    return text;
  }

  void write_op(int i, int64_t rows, int unit) {
    const Op& o = op(i);
    op_ = i;
    add("  {  // ", o.step->op->name);
    switch (o.kind) {
      case Kind::product: write_rows_product(i, rows, unit); break;
      case Kind::partial_sums: write_partial_sums(i, rows); break;
      case Kind::elementwise: write_rows_elements(i, rows); break;
      case Kind::elements:
      case Kind::example: write_own_code(i, rows); break;
      case Kind::fold: write_fold(i, rows); break;
      case Kind::lines:
        open_lines(i, rows);
        write_own_code(i, rows);
        add("    }");
        break;
    }
    add("  }");
  }

  // How many of something the rows at hand have, of `all` in all rows.
  std::string count(int64_t all, int64_t rows) const {
    return whole_ ? concat(all) : examples_ ? concat(all / rows) : concat("rows * ", all / rows);
  }

  void write_rows_product(int i, int64_t rows, int unit) {
    const Op& o = op(i);
    const Access &a = o.inputs[0], &b = o.inputs[1];
    const bool by_rows = b.strides[1] == 1;
    const int64_t lines = b.shape[by_rows ? 0 : 1], width = b.shape[by_rows ? 1 : 0];
    const Matrix& matrix =
        matrices_.at(std::tuple(b.buffer, b.offset, lines, width, b.strides[by_rows ? 0 : 1]));
    std::string value = "sum";
    if (o.bias) value = concat("sum + ", vector_name(o.inputs[2]), "[n]");
    std::string rows_of_a;
    if (const auto it = held_.find(a.buffer); it != held_.end()) {
      rows_of_a = it->second.name;
    } else {
      body_ += reserve("float", concat("a", i), 4 * unit * o.k);
      rows_of_a = concat("a", i);
      add("    fetch_words(a", i, ", ", global(a.buffer, DType::float32), plus(a.offset), " + lo * ", o.k,
          ", rows * ", o.k, ");\n    end_fetches();\n    await_fetches<0>();\n    __syncthreads();");
    }
    add("    rows_product<", o.n, ", ", o.k, ", ", unit, ", ", by_rows ? matrix.pitch : 1, ", ",
        by_rows ? 1 : matrix.pitch, ">(", rows_of_a, ", ", matrix.name,
        ", rows, [&](int r, int n, float sum) {");
    add("      const float result = ", activated(o.epilogue, value), ";");
    add("      ", put(i, 0, concat("(r * ", o.n, " + n)"), "result", rows));
    add("    });");
  }

  void write_partial_sums(int i, int64_t rows) {
    const Op& o = op(i);
    const Access& parts = o.inputs[0];
    add("    for (int i = threadIdx.x; i < rows * ", o.n, "; i += kThreads) {");
    add("      float part[", o.parts, "];\n#pragma unroll\n      for (int s = 0; s < ", o.parts,
        "; ++s) part[s] = __ldcg(", global(parts.buffer, DType::float32), " + s * ", o.m * o.n, " + lo * ",
        o.n, " + i);");
    add("      float sum = part[0];\n#pragma unroll\n      for (int s = 1; s < ", o.parts,
        "; ++s) sum += part[s];");
    std::string value = "sum";
    if (o.bias) value = concat("sum + ", vector_name(o.inputs[1]), "[i % ", o.n, "]");
    add("      const float result = ", activated(o.epilogue, value), ";");
    add("      ", put(i, 0, "i", "result", rows));
    add("    }");
  }

  std::string vector_name(const Access& x) const {
    return matrices_.at(std::tuple(x.buffer, x.offset, int64_t{1}, x.shape.size(), int64_t{0})).name;
  }

  void write_rows_elements(int i, int64_t rows) {
    const Op& o = op(i);
    add("    for (int i = threadIdx.x; i < ", count(o.outputs[0].shape.size(), rows), "; i += kThreads) {");
    const ScalarCode code = scalar_code(
        o.program, [&](size_t k) { return element(o.inputs[k], "i", rows); }, "s");
    body_ += code.statements;
    for (size_t k = 0; k < o.outputs.size(); ++k) {
      add("      const ", stored_type(o.outputs[k].dtype), " r", k, " = ", code.outputs[k], ";");
      add("      ", put(i, k, "i", concat("r", k), rows));
    }
    add("    }");
  }

  // The code that an op's rule writes.
  class OwnCode final : public OpCode {
   public:
    OwnCode(const Writer& writer, int op, int64_t rows)
        : OpCode(writer.op(op)), writer_(writer), op_(op), rows_(rows) {}
    std::string in(size_t k, const std::string& number) const override {
      return writer_.element(op().inputs[k], number, rows_);
    }
    std::string out(size_t k, const std::string& number, const std::string& value) const override {
      return writer_.put(op_, k, number, value, rows_);
    }
    std::string whole(size_t k, const std::string& number) const override {
      return writer_.load_global(op().inputs[k], number);
    }
    std::string line(size_t k, const std::string& first) const override {
      return writer_.line(op().inputs[k], first, rows_);
    }
    std::string count(int64_t all) const override { return writer_.count(all, rows_); }
    std::string report(const std::string& value) const override {
      const std::vector<int>& all = writer_.source_.reporters;
      const auto reporter = std::find(all.begin(), all.end(), op_) - all.begin();
      return concat("note(p.finding[", reporter, "], ",
                    writer_.whole_ ? std::string("line") : concat("lo * ", op().outer / rows_, " + line"),
                    ", ", value, ");");
    }

   private:
    const Writer& writer_;
    int op_;
    int64_t rows_;
  };

  void write_own_code(int i, int64_t rows) {
    OwnCode code(*this, i, rows);
    op(i).rule->write(code);
    body_ += code.text();
  }

  // A few threads share a line, all lines of the rows at hand.
  void open_lines(int i, int64_t rows) {
    const Op& o = op(i);
    const int lanes = OwnCode(*this, i, rows).lanes();
    add("    const int lines = ", count(o.outer, rows), ", lane = threadIdx.x % ", lanes, ";");
    add("    for (int first = 0; first < lines; first += kThreads / ", lanes, ") {");
    add("      const int line = first + threadIdx.x / ", lanes, ";\n      const bool live = line < lines;");
    add("      const auto at = [&](int c) { return live ? ",
        element(o.inputs[0], concat("(line * ", o.length, " + c)"), rows), " : 0.f; };");
  }

  void write_fold(int i, int64_t rows) {
    const Op& o = op(i);
    const int64_t n = o.length;
    const char* fold = o.rule->fold;
    if (examples_ && o.inner > 1) {
      // Several lines of an example lie one behind the other.
      const int64_t outer = o.outer / rows;
      add("    for (int outer = 0; outer < ", outer, "; ++outer) {");
      if (outer > 1) add("      if (outer > 0) __syncthreads();");
      add("      fold_example<", n, ", ", o.inner, ", ", fold, ">([&](int r, int c) { return ",
          element(o.inputs[0], concat("((outer * ", n, " + r) * ", o.inner, " + c)"), rows),
          "; }, [&](int c, float all) { ", put(i, 0, concat("(outer * ", o.inner, " + c)"), "all", rows),
          " }, scratch);");
      add("    }");
      return;
    }
    if (whole_ && o.outer == 1 && n > 32) {
      add("    const float all = fold_line<", n, ">([&](int c) { return ", element(o.inputs[0], "c", rows),
          "; }, ", fold, "(), (float*)shared);");
      add("    if (threadIdx.x == 0) {", put(i, 0, "0", "all", rows), "}");
      return;
    }
    const OwnCode line(*this, i, rows);
    open_lines(i, rows);
    add("      float all = ", fold, "::neutral();\n      ", line.over_line(), "all = ", fold,
        "()(all, at(c));");
    add("      all = fold<", line.lanes(), ">(all, ", fold, "());");
    add("      if (live && lane == 0) {", put(i, 0, "line", "all", rows), "}");
    add("    }");
  }

  const Program& program_;
  const Schedule& schedule_;
  Source source_;
  std::vector<Fetch> fetches_;  // of the products of a group of examples, in their order
  const Fetch* fetch_ = nullptr;
  mutable std::vector<int64_t> scratch_;  // by buffer; -1: it has no place yet
  mutable int64_t scratch_bytes_ = 0;
  bool outlined_ = false;  // the code at hand is that of a function, with pointers g0, g1, ... to these
  mutable std::vector<std::string> globals_;
  std::map<std::string, std::string> outlined_by_text_;  // functions of examples' ops, by what they are
  int64_t gathers_ = 0;                                  // tasks that fetch the rows of a run
  std::string functions_;
  std::string body_;  // of the group at hand
  std::string epilogue_;
  int group_ = 0, op_ = 0;
  bool whole_ = false, examples_ = false;
  int64_t shared_ = 0;  // bytes given out
  std::map<int, Held> held_;
  std::map<std::tuple<int, int64_t, int64_t, int64_t, int64_t>, Matrix> matrices_;
};

}  // namespace

Source make_source(const Program& program, const Schedule& schedule, std::span<const TensorSpec> parameters) {
  return Writer(program, schedule, parameters).run();
}

}  // namespace lockstep::cuda::megakernel
