// Tasks of rows, and what a block does one thing after the other.
#include "backends/cuda/megakernel/source_writer.h"

#include "backends/cuda/elementwise_source.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {
using detail::concat;

namespace {

constexpr int64_t kMostHeld = 4096;  // bytes of a value in shared memory between ops of one block

}  // namespace

std::string Writer::reserve(const std::string& type, const std::string& name, int64_t bytes) {
  const int64_t at = shared_;
  shared_ += aligned(bytes, 16);
  return concat("  ", type, "* const ", name, " = (", type, "*)(shared + ", at, ");\n");
}

void Writer::write_rows(const Group& group) {
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

void Writer::hold_rows(const Access& input, int64_t rows, int64_t unit) {
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

void Writer::hold_matrix(const Access& input) {
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

void Writer::hold_vector(const Access& input) {
  const auto key = std::tuple(input.buffer, input.offset, int64_t{1}, input.shape.size(), int64_t{0});
  if (matrices_.contains(key)) return;
  const Matrix vector{concat("matrix", matrices_.size()), 0};
  body_ += reserve("float", vector.name, 4 * input.shape.size());
  add("  fetch_words(", vector.name, ", ", global(input.buffer, DType::float32), plus(input.offset), ", ",
      input.shape.size(), ");");
  matrices_[key] = vector;
}

void Writer::write_serial(const Group& group) {
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

bool Writer::in_rows(const Access& access, int64_t row) {
  if (access.offset != 0 || access.shape.rank() == 0) return false;
  int64_t reach = 0;
  for (int d = 1; d < access.shape.rank(); ++d) reach += (access.shape[d] - 1) * access.strides[d];
  return (access.shape[0] == 1 || access.strides[0] == row) && reach < row;
}

std::string Writer::element(const Access& access, const std::string& flat, int64_t rows) const {
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

std::string Writer::line(const Access& access, const std::string& first, int64_t rows) const {
  if (const auto it = held_.find(access.buffer); it != held_.end()) return "&" + it->second.at(first);
  return concat("(const ", stored_type(access.dtype), "*)", global(access.buffer, access.dtype), " + (lo * ",
                access.shape.size() / rows, " + ", first, ")");
}

std::string Writer::put(int i, size_t output, const std::string& flat, const std::string& value,
                        int64_t rows) const {
  const Access& to = op(i).outputs[output];
  std::string text;
  const bool held = held_.contains(to.buffer);
  if (held) text = concat(held_.at(to.buffer).at(flat), " = ", value, "; ");
  if (whole_ && (!held || schedule_.leaves_group(graph_, i, output)))
    text += concat(global(to.buffer, to.dtype), "[", flat, plus(to.offset), "] = ", value, ";");
  if (!whole_ && (schedule_.leaves_group(graph_, i, output) || (examples_ && !held)))
    text += concat(global(to.buffer, to.dtype), "[lo * ", row_size(to, rows), " + ", flat, plus(to.offset),
                   "] = ", value, ";");
  return text;
}

void Writer::write_op(int i, int64_t rows, int unit) {
  const Op& o = op(i);
  op_ = i;
  add("  {  // ", o.call->op->name);
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

std::string Writer::count(int64_t all, int64_t rows) const {
  return whole_ ? concat(all) : examples_ ? concat(all / rows) : concat("rows * ", all / rows);
}

void Writer::write_rows_product(int i, int64_t rows, int unit) {
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

void Writer::write_partial_sums(int i, int64_t rows) {
  const Op& o = op(i);
  const Access& parts = o.inputs[0];
  add("    for (int i = threadIdx.x; i < rows * ", o.n, "; i += kThreads) {");
  add("      float part[", o.parts, "];\n#pragma unroll\n      for (int s = 0; s < ", o.parts,
      "; ++s) part[s] = __ldcg(", global(parts.buffer, DType::float32), " + s * ", o.m * o.n, " + lo * ", o.n,
      " + i);");
  add("      float sum = part[0];\n#pragma unroll\n      for (int s = 1; s < ", o.parts,
      "; ++s) sum += part[s];");
  std::string value = "sum";
  if (o.bias) value = concat("sum + ", vector_name(o.inputs[1]), "[i % ", o.n, "]");
  add("      const float result = ", activated(o.epilogue, value), ";");
  add("      ", put(i, 0, "i", "result", rows));
  add("    }");
}

std::string Writer::vector_name(const Access& x) const {
  return matrices_.at(std::tuple(x.buffer, x.offset, int64_t{1}, x.shape.size(), int64_t{0})).name;
}

void Writer::write_rows_elements(int i, int64_t rows) {
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

void Writer::write_own_code(int i, int64_t rows) {
  OwnCode code(*this, i, rows);
  op(i).rule->write(code);
  body_ += code.text();
}

void Writer::open_lines(int i, int64_t rows) {
  const Op& o = op(i);
  const int lanes = OwnCode(*this, i, rows).lanes();
  add("    const int lines = ", count(o.outer, rows), ", lane = threadIdx.x % ", lanes, ";");
  add("    for (int first = 0; first < lines; first += kThreads / ", lanes, ") {");
  add("      const int line = first + threadIdx.x / ", lanes, ";\n      const bool live = line < lines;");
  add("      const auto at = [&](int c) { return live ? ",
      element(o.inputs[0], concat("(line * ", o.length, " + c)"), rows), " : 0.f; };");
}

void Writer::write_fold(int i, int64_t rows) {
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

}  // namespace lockstep::cuda::megakernel
