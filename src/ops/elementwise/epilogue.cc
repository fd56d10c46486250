#include "ops/elementwise/epilogue.h"

#include "ops/elementwise/ops.h"

namespace lockstep::elementwise {

Scalar activated(Epilogue epilogue, Scalar x) {
  Expander& e = x.expander();
  switch (epilogue) {
    case Epilogue::none: return x;
    case Epilogue::relu: return e.apply(kRelu, {}, x);
    case Epilogue::tanh: return e.apply(kTanh, {}, x);
    case Epilogue::sigmoid: return e.apply(kSigmoid, {}, x);
    case Epilogue::gelu_erf: return e.apply(kGelu, GeluAttrs{.approximate = false}, x);
    case Epilogue::gelu_tanh: return e.apply(kGelu, GeluAttrs{.approximate = true}, x);
  }
  return x;
}

ScalarProgram activation_program(Epilogue epilogue, DType dtype) {
  ScalarProgram program;
  program.inputs.push_back(dtype);
  const int16_t input = append(program, {.op = Opcode::input, .dtype = dtype, .index = 0});
  const Attrs none;
  Expander e(program, none, {&input, 1});
  program.outputs.push_back(activated(epilogue, e.in(0)).value());
  return program;
}

}  // namespace lockstep::elementwise
