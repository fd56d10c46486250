// Tasks that take an example through all that it needs by itself.
#include "backends/cuda/megakernel/source_writer.h"

#include "backends/cuda/elementwise_source.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {
using detail::concat;

namespace {

constexpr int64_t kExampleBytes = 208 << 10;  // of an example's values in shared memory
constexpr int64_t kMostFetched = 32 << 10;    // of a value of an example that others have made

}  // namespace

int64_t Writer::Places::find(int first, int last, int64_t bytes) {
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

int Writer::last_reader(const Group& group, int buffer) const {
  for (size_t t = group.ops.size(); t-- > 0;)
    for (const Access& input : op(group.ops[t]).inputs)
      if (input.buffer == buffer) return static_cast<int>(t);
  return -1;
}

bool Writer::hold_example(const Group& group, const Access& value, int64_t elements, int first, int last,
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

void Writer::fetch_examples(const Group& group, Places& places) {
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
        add("  fetch_words(", held.name, ", ", global(input.buffer, input.dtype), " + lo * ", elements, ", ",
            elements * width / 4, ");");
      else
        add("  fetch_matrix<", words, ", ", held.pitch, ">(", held.name, ", ",
            global(input.buffer, input.dtype), " + lo * ", elements, ", ", words, ", ", elements / held.line,
            ");");
    }
  }
  add("  end_fetches();\n  await_fetches<0>();\n  __syncthreads();");
}

void Writer::write_examples(const Group& group) {
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

void Writer::write_example_op(int i, int64_t examples, int64_t scratch_at) {
  const Op& o = op(i);
  std::vector<std::string> places;  // in shared memory
  std::map<int, std::string> names;
  std::string operands;
  for (const std::vector<Access>* list : {&o.inputs, &o.outputs})
    for (const Access& access : *list) {
      const auto it = held_.find(access.buffer);
      if (it == held_.end() || names.contains(access.buffer)) continue;
      const std::string name = concat("v", places.size()), type = stored_type(access.dtype);
      operands += concat("  ", type, "* const ", name, " = (", type, "*)(shared + s", places.size(), ");\n");
      places.push_back(concat(it->second.begin));
      names[access.buffer] = std::exchange(it->second.name, name);
    }
  std::string around = std::exchange(body_, {});
  globals_.clear();
  outlined_ = !defers_errors(o);
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

void Writer::fetch_matrix_of(const Group& group, size_t number, int now, Places& places) {
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

void Writer::write_example_product(int i, int64_t examples) {
  const Op& o = op(i);
  op_ = i;
  const Access &a = o.inputs[0], &b = o.inputs[1];
  const Lines lines(b);
  const auto place = [&](int64_t stride) {
    return lines.by_k ? concat("n * ", stride, " + k") : concat("k * ", stride, " + n");
  };
  add("  {  // ", o.call->op->name);
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

}  // namespace lockstep::cuda::megakernel
