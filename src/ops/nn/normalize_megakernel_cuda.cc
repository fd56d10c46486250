// Layer normalisation in a megakernel: some threads per line, all lines of an example.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/nn/normalize.h"

namespace lockstep::cuda::megakernel {
namespace {

constexpr int64_t kLongest = 1024;  // of a line: it is in registers

bool read(Op& op) {
  if (op.call->attrs.as<LayerNormAttrs>().addend || !read_rows(op)) return false;
  for (const Access& input : op.inputs)
    if (!is_float(input)) return false;
  op.examples = op.inputs[0].shape.rank() > 1 ? op.inputs[0].shape[0] : 0;
  return op.examples > 1 && op.inner == 1 && op.length <= kLongest;
}

// Opens the loop over lines: `line`, `lane`, and whether the line is `live`.
void open_lines(OpCode& code) {
  const std::string lines = code.count(code.op().outer);
  code.add("    constexpr int kEach = ", (code.length() + code.lanes() - 1) / code.lanes(), ";");
  code.add("    const int lane = threadIdx.x % ", code.lanes(), ";");
  code.add("    for (int first = 0; first < ", lines, "; first += kThreads / ", code.lanes(), ") {");
  code.add("      const int line = first + threadIdx.x / ", code.lanes(),
           ";\n      const bool live = line < ", lines, ";");
}
// Does something for each element of a lane: `e` is its number there, `c` its place in the line.
std::string each(const OpCode& code, const std::string& what) {
  return detail::concat("#pragma unroll\n      for (int e = 0; e < kEach; ++e) { const int c = lane + e * ",
                        code.lanes(), "; if (live && c < ", code.length(), ") { ", what, " } }");
}
std::string element(const OpCode& code) { return detail::concat("(line * ", code.length(), " + c)"); }
std::string mean_of(const OpCode& code, const char* sum) {
  return detail::concat("fold<", code.lanes(), ">(", sum, ", Sum()) / ", code.length(), ".f");
}

void write_forward(OpCode& code) {
  const double epsilon = code.op().call->attrs.as<LayerNormAttrs>().epsilon;
  open_lines(code);
  code.add("      float v[kEach], gamma[kEach], beta[kEach], mean = 0.f, squares = 0.f;");
  code.add(each(code, detail::concat("gamma[e] = ", code.whole(1, "c"), "; beta[e] = ", code.whole(2, "c"),
                                     "; v[e] = ", code.in(0, element(code)), "; mean += v[e];")));
  code.add("      mean = ", mean_of(code, "mean"), ";");
  code.add(each(code, "const float d = v[e] - mean; squares += d * d;"));
  code.add("      const float rstd = 1.f / sqrtf(", mean_of(code, "squares"), " + ", literal(epsilon), ");");
  code.add("      if (live && lane == 0) { ", code.out(1, "line", "mean"), code.out(2, "line", "rstd"), " }");
  code.add(each(code, detail::concat("const float y = (v[e] - mean) * rstd * gamma[e] + beta[e]; ",
                                     code.out(0, element(code), "y"))),
           "\n    }");
}

// dx = rstd (a - mean(a) - h mean(h a)) with a = dy gamma and h the normalised x; and dy h, of which the sum
// over all lines is that of gamma.
void write_gradient(OpCode& code) {
  open_lines(code);
  code.add("      const float mean = live ? ", code.in(2, "line"), " : 0.f, rstd = live ? ",
           code.in(3, "line"),
           " : 0.f;\n      float h[kEach], d[kEach], a[kEach], sum_a = 0.f, sum_ha = 0.f;");
  code.add(each(code, detail::concat("a[e] = ", code.whole(1, "c"), "; h[e] = (", code.in(0, element(code)),
                                     " - mean) * rstd; d[e] = ", code.in(4, element(code)), ";")));
  code.add(each(code, "a[e] *= d[e]; sum_a += a[e]; sum_ha += a[e] * h[e];"));
  code.add("      const float mean_a = ", mean_of(code, "sum_a"), ", mean_ha = ", mean_of(code, "sum_ha"),
           ";");
  code.add(each(code, detail::concat(
                          "const float dx = rstd * (a[e] - mean_a - h[e] * mean_ha), along = d[e] * h[e]; ",
                          code.out(0, element(code), "dx"), code.out(1, element(code), "along"))),
           "\n    }");
}

void split_gradient(OpGraph& graph) {
  Op& op = graph.ops.back();
  const int64_t lines = op.outer, n = op.length;
  const Access dgamma = op.outputs[1], dbeta = op.outputs[2], dy = op.inputs[4];
  const Access along = give_to_sum(graph, lines / graph.examples * n);
  op.outputs = {op.outputs[0], along};
  add_sum(graph, along, lines, n, dgamma);
  add_sum(graph, dy, lines, n, dbeta);
}

const RegisterOpRule registered[] = {
    {kLayerNorm, {.kind = Kind::example, .read = read, .write = write_forward, .whole = 0b110}},
    {kLayerNormGrad,
     {.kind = Kind::example, .read = read, .write = write_gradient, .whole = 0b10, .split = split_gradient}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
