// Matrix product, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

extern const OpDef kMatmul;

struct MatmulAttrs {
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;  // the third input: one value per column
  Epilogue epilogue = Epilogue::none;
  bool addend = false;  // the last input: a tensor like the result that is added to it; made by the compiler
  bool operator==(const MatmulAttrs&) const = default;
  void visit(auto&& v) const {
    v("transpose_a", transpose_a), v("transpose_b", transpose_b), v("bias", bias), v("epilogue", epilogue);
    v("addend", addend);
  }
};

}  // namespace lockstep
