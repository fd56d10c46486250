// The elementwise ops, for rules of ops that name them (gradients, rewrites).
#pragma once

#include "graph/graph.h"

namespace lockstep {

extern const OpDef kAdd, kSub, kMul, kDiv, kMaximum, kMinimum, kPow, kMod;
extern const OpDef kNeg, kAbs, kSign, kFloor, kCeil, kRound, kSquare, kSqrt, kRsqrt, kReciprocal;
extern const OpDef kExp, kExpm1, kLog, kLog1p, kTanh, kSigmoid, kErf, kSin, kCos, kSoftplus, kRelu, kGelu;
extern const OpDef kLess, kLessEqual, kGreater, kGreaterEqual, kEqual, kNotEqual;
extern const OpDef kTan, kAsin, kAcos, kAtan, kAtan2, kSinh, kCosh, kAsinh, kAcosh, kAtanh, kErfc, kLog2,
    kLog10;
extern const OpDef kTruncate, kFloordiv, kIsNan, kIsInf, kIsFinite, kLogicalXor;
extern const OpDef kLeakyRelu, kElu, kSilu, kMish, kSoftsign, kHardSigmoid, kHardSilu, kTanhShrink;
extern const OpDef kSquareplus, kSparsePlus;
extern const OpDef kLogicalAnd, kLogicalOr, kLogicalNot, kSelect, kCast, kStopGradient;

struct CastAttrs {
  DType dtype = DType::float32;
  bool operator==(const CastAttrs&) const = default;
  void visit(auto&& v) const { v("dtype", dtype); }
};

struct GeluAttrs {
  bool approximate = false;
  bool operator==(const GeluAttrs&) const = default;
  void visit(auto&& v) const { v("approximate", approximate); }
};

// Shape and dtype rule of arithmetic: equal dtypes, broadcast shapes.
SpecList infer_elementwise(const InferContext& c);
// One instruction per element and op is what the flop count means here.
Cost cost_elementwise(const InferContext& c, std::span<const TensorSpec> outputs);

// Whether a dtype has this value; floats have all, rounded.
bool holds_exactly(DType dtype, double value);

// Sums a gradient over the axes along which an input of `shape` was broadcast.
Tensor sum_to_shape(const Tensor& gradient, const Shape& shape);

}  // namespace lockstep
