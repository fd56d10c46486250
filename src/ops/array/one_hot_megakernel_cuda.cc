// one_hot in a megakernel.
#include "backends/cuda/elementwise_source.h"
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/array/lookup.h"

namespace lockstep::cuda::megakernel {
namespace {

void write(OpCode& code) {
  const Op& op = code.op();
  const int64_t size = op.outputs[0].shape.size(), depth = size / op.inputs[0].shape.size();
  const DType dtype = op.outputs[0].dtype;
  const char* one = dtype == DType::bfloat16 ? "0x3f80" : dtype == DType::float16 ? "0x3c00" : "1";
  code.add("    for (int i = threadIdx.x; i < ", code.count(size), "; i += kThreads) {");
  code.add("      const ", stored_type(dtype), " r = ", code.in(0, detail::concat("(i / ", depth, ")")),
           " == i % ", depth, " ? ", one, " : 0;");
  code.add("      ", code.out(0, "i", "r"));
  code.add("    }");
}

const RegisterOpRule registered(kOneHot,
                                {.kind = Kind::elements, .read = [](Op&) { return true; }, .write = write});

}  // namespace
}  // namespace lockstep::cuda::megakernel
