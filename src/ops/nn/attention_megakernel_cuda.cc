// Attention in a megakernel: all scores of an example are in shared memory.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/nn/attention.h"

namespace lockstep::cuda::megakernel {
namespace {

constexpr int64_t kMostScores = 8192;  // of an example

struct Sizes {
  int64_t queries, heads, dim, keys, key_heads, value_dim;

  explicit Sizes(const Op& op)
      : queries(op.inputs[0].shape[1]),
        heads(op.inputs[0].shape[2]),
        dim(op.inputs[0].shape[3]),
        keys(op.inputs[1].shape[1]),
        key_heads(op.inputs[1].shape[2]),
        value_dim(op.inputs[2].shape[3]) {}
  int64_t lines() const { return heads * queries; }
  int64_t scores() const { return lines() * keys; }
  int64_t shared_by() const { return heads / key_heads; }  // query heads of a key head

  // The first elements of lines of an example; query, key and h are names in the code.
  std::string query() const { return detail::concat("((query * ", heads, " + h) * ", dim, ")"); }
  std::string key() const {
    return detail::concat("((key * ", key_heads, " + h / ", shared_by(), ") * ", dim, ")");
  }
  std::string value() const {
    return detail::concat("((key * ", key_heads, " + h / ", shared_by(), ") * ", value_dim, ")");
  }
  std::string result() const { return detail::concat("((query * ", heads, " + h) * ", value_dim, ")"); }
};

bool read(Op& op) {
  const auto& attrs = op.call->attrs.as<AttentionAttrs>();
  if (attrs.mask || attrs.bias || attrs.dropout > 0) return false;
  for (const Access& input : op.inputs)
    if (!is_float(input) || !is_dense(input)) return false;
  op.examples = op.inputs[0].shape[0];
  const Sizes s(op);
  return op.examples > 1 && s.scores() <= kMostScores && (!attrs.causal || s.queries <= s.keys);
}

std::string scale(const OpCode& code) { return literal(code.op().call->attrs.as<AttentionAttrs>().scale); }
// Opens a loop over scores, numbers of [heads, queries, keys].
void each_score(OpCode& code, const Sizes& s) {
  code.add("    for (int s = threadIdx.x; s < ", s.scores(), "; s += kThreads) {");
  code.add("      const int key = s % ", s.keys, ", query = s / ", s.keys, " % ", s.queries, ", h = s / ",
           s.keys * s.queries, ";");
  code.add("      const float score = dot<", s.dim, ">(", code.line(0, s.query()), ", ",
           code.line(1, s.key()), ") * ", scale(code), ";");
}
bool is_causal(const OpCode& code) { return code.op().call->attrs.as<AttentionAttrs>().causal; }

// Neighbours of a line that a thread computes at once.
int64_t unit_of(int64_t dim) { return dim % 4 == 0 ? 4 : 1; }
// Opens a loop over pieces of a result [places, heads, dim]: `place`, `h`, the first element `d` of the piece
// in its line.
void each_piece(OpCode& code, int64_t places, int64_t heads, int64_t dim) {
  const int64_t unit = unit_of(dim), line = dim / unit;
  code.add("    for (int i = threadIdx.x; i < ", places * heads * line, "; i += kThreads) {");
  code.add("      const int d = i % ", line, " * ", unit, ", h = i / ", line, " % ", heads, ", place = i / ",
           line * heads, ";\n      float sums[", unit, "] = {};");
}
void close_piece(OpCode& code, size_t output, int64_t heads, int64_t dim) {
  const int64_t unit = unit_of(dim);
  code.add("#pragma unroll\n      for (int u = 0; u < ", unit, "; ++u) { ",
           code.out(output, detail::concat("((place * ", heads, " + h) * ", dim, " + d + u)"), "sums[u]"),
           " }\n    }");
}

void write_forward(OpCode& code) {
  const Sizes s(code.op());
  each_score(code, s);
  code.add("      scratch[s] = ", is_causal(code) ? "key > query ? Largest::neutral() : " : "",
           "score;\n    }\n    __syncthreads();");
  int lanes = 1;
  while (lanes < 32 && lanes < s.keys) lanes *= 2;
  code.add("    for (int first = 0; first < ", s.lines(), "; first += kThreads / ", lanes, ") {");
  code.add("      const int line = first + threadIdx.x / ", lanes, ", lane = threadIdx.x % ", lanes,
           ";\n      const bool live = line < ", s.lines(), ";\n      float* const row = scratch + line * ",
           s.keys, ";\n      float top = Largest::neutral(), sum = 0.f;");
  const std::string keys = detail::concat("for (int key = lane; key < ", s.keys, "; key += ", lanes, ") ");
  code.add("      if (live) ", keys, "top = row[key] > top ? row[key] : top;");
  code.add("      top = fold<", lanes, ">(top, [](float a, float b) { return b > a ? b : a; });");
  code.add("      if (live) ", keys, "{ row[key] = expf(row[key] - top); sum += row[key]; }");
  code.add("      sum = fold<", lanes, ">(sum, Sum());");
  code.add("      if (live) ", keys, "row[key] = row[key] / sum;");
  code.add("      if (live && lane == 0) { const float both = top + logf(sum); ", code.out(1, "line", "both"),
           " }\n    }\n    __syncthreads();");
  each_piece(code, s.queries, s.heads, s.value_dim);
  code.add("      const float* const row = scratch + (h * ", s.queries, " + place) * ", s.keys,
           ";\n#pragma unroll 8");
  code.add("      for (int key = 0; key < ", s.keys, "; ++key) add_scaled(sums, row[key], ",
           code.line(2, s.value()), " + d);");
  close_piece(code, 0, s.heads, s.value_dim);
}

// The shares of the keys are computed again. `scratch`: shares, gradients of scores, and for every line the
// sum of the result times what arrives at it.
void write_gradient(OpCode& code) {
  const Sizes s(code.op());
  code.add("    float* const share = scratch, * const ds = scratch + ", s.scores(),
           ", * const delta = scratch + ", 2 * s.scores(), ";");
  code.add("    for (int line = threadIdx.x; line < ", s.lines(), "; line += kThreads) {");
  code.add("      const int query = line % ", s.queries, ", h = line / ", s.queries, ";");
  code.add("      delta[line] = dot<", s.value_dim, ">(", code.line(3, s.result()), ", ",
           code.line(5, s.result()), ");\n    }");
  each_score(code, s);
  code.add("      share[s] = ", is_causal(code) ? "key > query ? 0.f : " : "", "expf(score - ",
           code.in(4, detail::concat("(h * ", s.queries, " + query)")), ");\n      ds[s] = dot<", s.value_dim,
           ">(", code.line(5, s.result()), ", ", code.line(2, s.value()), ");\n    }");
  code.add("    __syncthreads();\n    for (int s = threadIdx.x; s < ", s.scores(),
           "; s += kThreads) ds[s] = share[s] * (ds[s] - delta[s / ", s.keys, "]) * ", scale(code),
           ";\n    __syncthreads();");
  // Of queries: over keys.
  each_piece(code, s.queries, s.heads, s.dim);
  code.add("      const float* const row = ds + (h * ", s.queries, " + place) * ", s.keys,
           ";\n#pragma unroll 8");
  code.add("      for (int key = 0; key < ", s.keys, "; ++key) add_scaled(sums, row[key], ",
           code.line(1, s.key()), " + d);");
  close_piece(code, 0, s.heads, s.dim);
  // Of keys and values: over the queries of all heads that read them.
  const auto over_queries = [&](size_t output, int64_t dim, const char* factor, const std::string& other) {
    each_piece(code, s.keys, s.key_heads, dim);
    code.add("      const int of = h;\n      for (int h = of * ", s.shared_by(), "; h < (of + 1) * ",
             s.shared_by(), "; ++h)\n#pragma unroll 8\n        for (int query = 0; query < ", s.queries,
             "; ++query) add_scaled(sums, ", factor, "[(h * ", s.queries, " + query) * ", s.keys,
             " + place], ", other, " + d);");
    close_piece(code, output, s.key_heads, dim);
  };
  over_queries(1, s.dim, "ds", code.line(0, s.query()));
  over_queries(2, s.value_dim, "share", code.line(5, s.result()));
}

const RegisterOpRule registered[] = {
    {kAttention,
     {.kind = Kind::example,
      .read = read,
      .write = write_forward,
      .scratch = [](const Op& op) { return Sizes(op).scores(); }}},
    {kAttentionGrad,
     {.kind = Kind::example,
      .read = read,
      .write = write_gradient,
      .scratch = [](const Op& op) { return 2 * Sizes(op).scores() + Sizes(op).lines(); }}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
