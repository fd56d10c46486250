// Reductions in a megakernel.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/reduce/reduce.h"

namespace lockstep::cuda::megakernel {
namespace {

bool read_reduction(Op& op) { return read_lines(op, op.call->attrs.as<ReduceAttrs>().axes); }

OpRule folding(const char* fold) { return {.kind = Kind::fold, .read = read_reduction, .fold = fold}; }

void write_argmax(OpCode& code) {
  code.add("      Candidate best = {0.f, -1};\n      ", code.over_line(),
           "{ const Candidate next = {at(c), c}; if (next.beats(best)) best = next; }");
  code.add("      best = best_of<", code.lanes(), ">(best);");
  code.add("      if (live && lane == 0) {", code.out(0, "line", "(i64)best.place"), "}");
}

const RegisterOpRule registered[] = {
    {kReduceSum, folding("Sum")},
    {kReduceMax, folding("Largest")},
    {kReduceMin, folding("Smallest")},
    {kReduceProd, folding("Product")},
    {kArgmax,
     {.kind = Kind::lines,
      .read = [](Op& op) { return read_lines(op, {op.call->attrs.as<ArgmaxAttrs>().axis}); },
      .write = write_argmax}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
