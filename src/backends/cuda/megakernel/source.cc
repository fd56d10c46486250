#include "backends/cuda/megakernel/source_writer.h"

#include "backends/cuda/elementwise_source.h"
#include "backends/cuda/megakernel/prelude.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {
using detail::concat;

namespace {

constexpr int64_t kLeastGathering = 8;       // blocks that fetch rows
constexpr int64_t kStreamBytes = 176 << 10;  // that the warps of a block have under way

}  // namespace

Source Writer::run() {
  const std::string gather = write_gather();
  std::string kernel;
  for (int level = 0; level < schedule_.levels; ++level) kernel += write_level(level);
  source_.threads = schedule_.threads;
  source_.scratch_bytes = scratch_bytes_;
  std::string& text = source_.text;
  text = scalar_prelude();
  text += concat("constexpr int kThreads = ", threads(), ";\n", kPrelude);
  text += concat("struct Arguments { char* external[", std::max<size_t>(1, graph_.externals.size()),
                 "]; DeferredError* error[", std::max<size_t>(1, source_.reporters.size()),
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
  text += "  for (i64 step = 0; step < p.steps; ++step) {\n    const Inputs x = inputs(p, step);\n" + kernel +
          "  }\n  leave_grid(p.arrivals);\n}\n";
  return std::move(source_);
}

std::string Writer::global(int buffer, DType dtype) const {
  const Buffer& b = graph_.buffers[static_cast<size_t>(buffer)];
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

size_t Writer::slot_of(std::vector<std::string>& list, const std::string& what) {
  const auto found = std::find(list.begin(), list.end(), what);
  const auto slot = static_cast<size_t>(found - list.begin());
  if (found == list.end()) list.push_back(what);
  return slot;
}

bool Writer::is_input(int external) const {
  return std::any_of(source_.rows.begin(), source_.rows.end(),
                     [&](const Source::Rows& r) { return r.external == external; });
}

void Writer::find_rows(std::span<const TensorSpec> parameters) {
  for (size_t e = 0; e < graph_.externals.size(); ++e) {
    const int parameter = graph_.externals[e].parameter;
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

std::string Writer::write_gather() {
  const size_t externals = std::max<size_t>(1, graph_.externals.size());
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
                     unit == 16 ? "float4" : "int", ", ", row / unit, ", ", source_.row_count, ", ", at_once,
                     ">(p.array[", j, "], ", place, ", p.order, p.first + step * ", source_.row_count,
                     ", task - ", gathers_, ");\n");
    gathers_ += tasks;
    offset += 2 * aligned(bytes);
  }
  source_.staged_bytes = offset;
  return inputs + "  return x;\n}\n" + gather + "}\n";
}

std::string Writer::place(const Access& access, const std::string& flat) {
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

std::string Writer::load_global(const Access& access, const std::string& flat) const {
  return concat("__ldcg(", global(access.buffer, access.dtype), " + ", place(access, flat),
                plus(access.offset), ")");
}

std::string Writer::write_level(int level) {
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

void Writer::write_group(const Group& group, int number) {
  body_.clear();
  epilogue_.clear();
  globals_.clear();
  group_ = number;
  const bool has_epilogue =
      group.form == Form::tile || group.form == Form::columns || group.form == Form::elements;
  outlined_ = has_epilogue && graph_.examples > 0;
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
  functions_ += concat("__device__ inline void group", number,
                       "(const Arguments& p, const Inputs& x, int task, char* shared, const Wait& wait) {\n",
                       body_, "}\n");
}

std::string Writer::with_epilogue(std::string text, const std::string& name, const std::string& members,
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

void Writer::share_group(int number) {
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

bool Writer::written_here(const Access& access) const {
  const int w = schedule_.writer[static_cast<size_t>(access.buffer)];
  return w >= 0 && schedule_.group_of[static_cast<size_t>(w)] == group_;
}

bool Writer::computed_here(const Access& access, int op) const {
  return written_here(access) && schedule_.writer[static_cast<size_t>(access.buffer)] < op;
}

bool Writer::read_here(int buffer, int op) const {
  const auto& readers = schedule_.readers[static_cast<size_t>(buffer)];
  return std::any_of(readers.begin(), readers.end(),
                     [&](int r) { return schedule_.group_of[static_cast<size_t>(r)] == group_ && r > op; });
}

bool Writer::is_early(const Access& access) const {
  const int w = schedule_.writer[static_cast<size_t>(access.buffer)];
  const auto level = [&](int group) { return schedule_.groups[static_cast<size_t>(group)].level; };
  // Rows that every run takes are written by the last level of the run before.
  if (w < 0)
    return level(group_) > 0 || !is_input(graph_.buffers[static_cast<size_t>(access.buffer)].external);
  return level(schedule_.group_of[static_cast<size_t>(w)]) !=
         (level(group_) + schedule_.levels - 1) % schedule_.levels;
}

void Writer::write_epilogue(const Group& group, const std::string& index, const std::string& flat) {
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
      loads(o.inputs[k]) += concat("    in.i", number, "_", k, " = ", load_global(o.inputs[k], flat), ";\n");
    }
    const std::string name = concat("o", number);
    const ScalarCode code = scalar_code(
        o.program,
        [&](size_t k) {
          return computed_here(o.inputs[k], i) ? held.at(o.inputs[k].buffer) : concat("in.i", number, "_", k);
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

std::string Writer::store(int i, size_t output, const std::string& value, const std::string& flat) const {
  const Access& to = op(i).outputs[output];
  if (!schedule_.leaves_group(graph_, i, output)) return {};
  return concat("    ", global(to.buffer, to.dtype), "[", flat, plus(to.offset), "] = ", value, ";\n");
}

void Writer::write_tile(const Group& group) {
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

void Writer::write_columns(const Group& group) {
  const Op& o = op(group.ops[0]);
  write_epilogue(group, "int n", "n");
  add("  fold_columns<", o.length, ", ", o.inner, ", ", group.unit, ", ", o.rule->fold, ">(",
      global(o.inputs[0].buffer, DType::float32), plus(o.inputs[0].offset),
      ", task, $Epilogue{$pointers}, (float*)shared, wait);");
  needs_shared(4 * threads());
}

void Writer::write_elements(const Group& group) {
  write_epilogue(group, "int n", "n");
  add("  wait();");
  add("  const int end = min(", op(group.ops[0]).outputs[0].shape.size(), ", (task + 1) * ", group.unit,
      ");");
  add("  for (int n = task * ", group.unit, " + threadIdx.x; n < end; n += kThreads) {");
  add("    const $Epilogue e{$pointers};\n    $Epilogue::In in;\n    e.load_early(in, n);\n    "
      "e.load_late(in, n);\n    e.finish(in, n, 0.f);\n  }");
}

Source make_source(const OpGraph& graph, const Schedule& schedule, std::span<const TensorSpec> parameters) {
  return Writer(graph, schedule, parameters).run();
}

}  // namespace lockstep::cuda::megakernel
