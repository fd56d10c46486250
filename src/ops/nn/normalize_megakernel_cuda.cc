// Layer normalisation in a megakernel: some threads a line, all lines of an example.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/nn/normalize.h"

namespace lockstep::cuda::megakernel {
namespace {

bool read(Op& op) {
  if (op.step->attrs.as<LayerNormAttrs>().addend || !read_rows(op)) return false;
  for (const Access& input : op.inputs)
    if (!is_float(input)) return false;
  op.examples = op.inputs[0].shape.rank() > 1 ? op.inputs[0].shape[0] : 0;
  return op.examples > 1 && op.inner == 1;
}

// `at`, `live`, `line` and `lane` as for ops of the kind `lines`.
void open_lines(OpCode& code) {
  code.add("    const int lane = threadIdx.x % ", code.lanes(), ";");
  code.add("    for (int first = 0; first < ", code.count(code.op().outer), "; first += kThreads / ",
           code.lanes(), ") {");
  code.add("      const int line = first + threadIdx.x / ", code.lanes(),
           ";\n      const bool live = line < ", code.count(code.op().outer), ";");
}
std::string element(const OpCode& code) { return detail::concat("(line * ", code.length(), " + c)"); }

void write_forward(OpCode& code) {
  const std::string x = code.in(0, element(code)), n = detail::concat(code.length(), ".f");
  const double epsilon = code.op().step->attrs.as<LayerNormAttrs>().epsilon;
  open_lines(code);
  code.add("      float mean = 0.f, squares = 0.f;");
  code.add("      if (live) ", code.over_line(), "mean += ", x, ";");
  code.add("      mean = fold<", code.lanes(), ">(mean, Sum()) / ", n, ";");
  code.add("      if (live) ", code.over_line(), "{ const float d = ", x, " - mean; squares += d * d; }");
  code.add("      const float rstd = 1.f / sqrtf(fold<", code.lanes(), ">(squares, Sum()) / ", n, " + ",
           literal(epsilon), ");");
  code.add("      if (live && lane == 0) { ", code.out(1, "line", "mean"), code.out(2, "line", "rstd"), " }");
  code.add("      if (live) ", code.over_line(), "{ const float y = (", x, " - mean) * rstd * ",
           code.whole(1, "c"), " + ", code.whole(2, "c"), "; ", code.out(0, element(code), "y"), " }\n    }");
}

// dx = rstd (a - mean(a) - h mean(h a)) with a = dy gamma and h the normalised x; and dy h, of which the sum over all lines is
// that of gamma.
void write_gradient(OpCode& code) {
  const std::string x = code.in(0, element(code)), dy = code.in(4, element(code)),
                    n = detail::concat(code.length(), ".f");
  open_lines(code);
  code.add("      const float mean = live ? ", code.in(2, "line"), " : 0.f, rstd = live ? ",
           code.in(3, "line"), " : 0.f;\n      float sum_a = 0.f, sum_ha = 0.f;");
  code.add("      if (live) ", code.over_line(), "{ const float a = ", dy, " * ", code.whole(1, "c"),
           "; sum_a += a; sum_ha += a * ((", x, " - mean) * rstd); }");
  code.add("      const float mean_a = fold<", code.lanes(), ">(sum_a, Sum()) / ", n, ", mean_ha = fold<",
           code.lanes(), ">(sum_ha, Sum()) / ", n, ";");
  code.add("      if (live) ", code.over_line(), "{ const float h = (", x, " - mean) * rstd, d = ", dy,
           ", dx = rstd * (d * ", code.whole(1, "c"), " - mean_a - h * mean_ha), along = d * h; ",
           code.out(0, element(code), "dx"), code.out(1, element(code), "along"), " }\n    }");
}

void split_gradient(Program& program) {
  Op& op = program.ops.back();
  const int64_t lines = op.outer, n = op.length;
  const Access dgamma = op.outputs[1], dbeta = op.outputs[2], dy = op.inputs[4];
  const Access along = give_to_sum(program, lines / program.examples * n);
  op.outputs = {op.outputs[0], along};
  add_sum(program, along, lines, n, dgamma);
  add_sum(program, dy, lines, n, dbeta);
}

const RegisterOpRule registered[] = {
    {kLayerNorm, {.kind = Kind::example, .read = read, .write = write_forward, .whole = 0b110}},
    {kLayerNormGrad,
     {.kind = Kind::example, .read = read, .write = write_gradient, .whole = 0b10, .split = split_gradient}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
