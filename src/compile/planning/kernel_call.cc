#include "compile/planning/kernel_call.h"

#include <utility>

#include "compile/passes/fusion.h"

namespace lockstep::compile {

KernelCall fused_call(elementwise::ScalarProgram program, std::vector<OperandLayout> inputs,
                      std::vector<OperandLayout> outputs, std::source_location where) {
  KernelCall call;
  call.op = &kFused;
  call.attrs = Attrs(FusedAttrs{.program = std::move(program), .shape = {}, .ops = {}});
  call.input_layouts = std::move(inputs);
  call.output_layouts = std::move(outputs);
  call.where = where;
  return call;
}

}  // namespace lockstep::compile
