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

  // Elements of an example, whose indices are names in the code: query, key, h, d.
  std::string query(const char* d = "d") const {
    return detail::concat("((query * ", heads, " + h) * ", dim, " + ", d, ")");
  }
  std::string key() const {
    return detail::concat("((key * ", key_heads, " + h / ", shared_by(), ") * ", dim, " + d)");
  }
  std::string value() const {
    return detail::concat("((key * ", key_heads, " + h / ", shared_by(), ") * ", value_dim, " + d)");
  }
  std::string result() const { return detail::concat("((query * ", heads, " + h) * ", value_dim, " + d)"); }
};

bool read(Op& op) {
  const auto& attrs = op.step->attrs.as<AttentionAttrs>();
  if (attrs.mask || attrs.bias || attrs.dropout > 0) return false;
  for (const Access& input : op.inputs)
    if (!is_float(input) || !input.contiguous()) return false;
  op.examples = op.inputs[0].shape[0];
  const Sizes s(op);
  return op.examples > 1 && s.scores() <= kMostScores && (!attrs.causal || s.queries <= s.keys);
}

// Opens a loop over numbers of [heads, queries, keys].
void each_score(OpCode& code, const Sizes& s) {
  code.add("    for (int s = threadIdx.x; s < ", s.scores(), "; s += kThreads) {");
  code.add("      const int key = s % ", s.keys, ", query = s / ", s.keys, " % ", s.queries, ", h = s / ",
           s.keys * s.queries, ";");
}
// "sum of a b over d".
std::string dot(int64_t length, const std::string& a, const std::string& b) {
  return detail::concat("      float dot = 0.f;\n#pragma unroll 16\n      for (int d = 0; d < ", length,
                        "; ++d) dot = __fmaf_rn(", a, ", ", b, ", dot);");
}
std::string scale(const OpCode& code) { return literal(code.op().step->attrs.as<AttentionAttrs>().scale); }
bool is_causal(const OpCode& code) { return code.op().step->attrs.as<AttentionAttrs>().causal; }

void write_forward(OpCode& code) {
  const Sizes s(code.op());
  each_score(code, s);
  code.add(dot(s.dim, code.in(0, s.query()), code.in(1, s.key())));
  code.add("      scratch[s] = ", is_causal(code) ? "key > query ? Largest::neutral() : " : "", "dot * ",
           scale(code), ";\n    }\n    __syncthreads();");
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
  code.add("    for (int i = threadIdx.x; i < ", s.lines() * s.value_dim, "; i += kThreads) {");
  code.add("      const int d = i % ", s.value_dim, ", h = i / ", s.value_dim, " % ", s.heads,
           ", query = i / ", s.value_dim * s.heads, ";\n      float sum = 0.f;\n#pragma unroll 16");
  code.add("      for (int key = 0; key < ", s.keys, "; ++key) sum = __fmaf_rn(scratch[(h * ", s.queries,
           " + query) * ", s.keys, " + key], ", code.in(2, s.value()), ", sum);");
  code.add("      ", code.out(0, "i", "sum"), "\n    }");
}

// The shares of the keys are computed again. `scratch`: shares, gradients of scores, and for every line the sum of the result
// times what arrives at it.
void write_gradient(OpCode& code) {
  const Sizes s(code.op());
  code.add("    float* const share = scratch, * const ds = scratch + ", s.scores(),
           ", * const delta = scratch + ", 2 * s.scores(), ";");
  code.add("    for (int line = threadIdx.x; line < ", s.lines(), "; line += kThreads) {");
  code.add("      const int query = line % ", s.queries, ", h = line / ", s.queries, ";");
  code.add(dot(s.value_dim, code.in(3, s.result()), code.in(5, s.result())));
  code.add("      delta[line] = dot;\n    }");
  each_score(code, s);
  code.add("      float score = 0.f, arrived = 0.f;\n#pragma unroll 16\n      for (int d = 0; d < ", s.dim,
           "; ++d) score = __fmaf_rn(", code.in(0, s.query()), ", ", code.in(1, s.key()),
           ", score);\n#pragma unroll 16\n      for (int d = 0; d < ", s.value_dim,
           "; ++d) arrived = __fmaf_rn(", code.in(5, s.result()), ", ", code.in(2, s.value()), ", arrived);");
  code.add("      share[s] = ", is_causal(code) ? "key > query ? 0.f : " : "", "expf(score * ", scale(code),
           " - ", code.in(4, detail::concat("(h * ", s.queries, " + query)")),
           ");\n      ds[s] = arrived;\n    }");
  code.add("    __syncthreads();\n    for (int s = threadIdx.x; s < ", s.scores(),
           "; s += kThreads) ds[s] = share[s] * (ds[s] - delta[s / ", s.keys, "]) * ", scale(code),
           ";\n    __syncthreads();");
  // Of queries: over keys.
  code.add("    for (int i = threadIdx.x; i < ", s.lines() * s.dim, "; i += kThreads) {");
  code.add("      const int d = i % ", s.dim, ", h = i / ", s.dim, " % ", s.heads, ", query = i / ",
           s.dim * s.heads, ";\n      float sum = 0.f;\n#pragma unroll 16");
  code.add("      for (int key = 0; key < ", s.keys, "; ++key) sum = __fmaf_rn(ds[(h * ", s.queries,
           " + query) * ", s.keys, " + key], ", code.in(1, s.key()), ", sum);");
  code.add("      ", code.out(0, "i", "sum"), "\n    }");
  // Of keys and values: over the queries of all heads that read them.
  const auto over_queries = [&](size_t output, int64_t dim, const char* factor, const std::string& other) {
    code.add("    for (int i = threadIdx.x; i < ", s.keys * s.key_heads * dim, "; i += kThreads) {");
    code.add("      const int d = i % ", dim, ", of = i / ", dim, " % ", s.key_heads, ", key = i / ",
             dim * s.key_heads, ";\n      float sum = 0.f;");
    code.add("      for (int h = of * ", s.shared_by(), "; h < (of + 1) * ", s.shared_by(),
             "; ++h)\n#pragma unroll 16\n        for (int query = 0; query < ", s.queries,
             "; ++query) sum = __fmaf_rn(", factor, "[(h * ", s.queries, " + query) * ", s.keys, " + key], ",
             other, ", sum);");
    code.add("      ", code.out(output, "i", "sum"), "\n    }");
  };
  over_queries(1, s.dim, "ds", code.in(0, s.query()));
  over_queries(2, s.value_dim, "share", code.in(5, s.result()));
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
