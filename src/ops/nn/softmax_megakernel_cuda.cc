// Softmax in a megakernel.
#include "ops/nn/softmax_megakernel_cuda.h"

#include "ops/nn/softmax.h"

namespace lockstep::cuda::megakernel {

std::string write_softmax_statistics(OpCode& code) {
  const int64_t n = code.length();
  const int lanes = code.lanes();
  // A line of no more elements than lanes: each lane has one, and its exponential is worked out once.
  const bool single = n <= lanes;
  if (single) {
    code.add("      const float mine = lane < ", n, " ? at(lane) : Largest::neutral();");
    code.add("      float top = mine > Largest::neutral() ? mine : Largest::neutral();");
  } else {
    code.add("      float top = Largest::neutral();\n      ", code.over_line(),
             "top = at(c) > top ? at(c) : top;");
  }
  code.add("      top = fold<", lanes, ">(top, [](float a, float b) { return b > a ? b : a; });");
  if (single)
    code.add("      const float power = lane < ", n, " ? expf(mine - top) : 0.f;\n      float sum = power;");
  else
    code.add("      float sum = 0.f;\n      ", code.over_line(), "sum += expf(at(c) - top);");
  code.add("      sum = fold<", lanes, ">(sum, Sum());");
  return single ? "power" : "expf(at(c) - top)";
}

namespace {

void write(OpCode& code, const char* scale, const std::string& y) {
  code.add("      const float scale = ", scale, ";");
  code.add("      if (live) ", code.over_line(), "{ const float y = ", y, "; ",
           code.out(0, detail::concat("(line * ", code.length(), " + c)"), "y"), " }");
}

const RegisterOpRule registered[] = {
    {kSoftmax,
     {.read = read_rows,
      .write =
          [](OpCode& code) {
            const std::string power = write_softmax_statistics(code);
            write(code, "1.f / sum", power + " * scale");
          }}},
    {kLogSoftmax,
     {.read = read_rows,
      .write =
          [](OpCode& code) {
            write_softmax_statistics(code);
            write(code, "logf(sum)", "(at(c) - top) - scale");
          }}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
