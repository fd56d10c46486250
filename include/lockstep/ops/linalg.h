// Matrix products, and sums of products over named or numbered axes.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// The product of the last two dimensions; the dimensions before them broadcast.
Tensor matmul(const TensorArg& a, const TensorArg& b, MatmulOptions options = {});
// A matrix (its last two dimensions) times a vector (the last one).
Tensor matvec(const TensorArg& a, const TensorArg& x, bool transpose_a = false);
// All products of an element of a with one of b; both are flattened.
Tensor outer(const TensorArg& a, const TensorArg& b);

// Sums of products by Einstein's rule: "ij,jk->ik" is a matrix product. Each operand has one letter a
// dimension; the result has the dimensions behind "->", and what is missing there is summed over. Without
// "->" it has the letters that occur once, in alphabetical order. "..." stands for dimensions without
// letters, which broadcast. A letter twice in one operand is its diagonal.
//
// Products are made of two operands at a time, the pair with the smallest result first, each as one batched
// matrix product.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
              std::source_location where = std::source_location::current());
Tensor einsum(std::string_view equation, std::initializer_list<TensorArg> operands,
              std::source_location where = std::source_location::current());

// Sums over axes a_axes[i] of a together with b_axes[i] of b; the others of a, then of b, remain.
Tensor tensordot(const TensorArg& a, const TensorArg& b, const Dims& a_axes, const Dims& b_axes);
// Over the last `axes` dimensions of a together with the first ones of b. 0: all products.
Tensor tensordot(const TensorArg& a, const TensorArg& b, int axes = 2);
// NumPy's dot: vectors and matrices as usual; in general the last dimension of a with the last but one of b
// (of a vector: the last); with a scalar, the product.
Tensor dot(const TensorArg& a, const TensorArg& b);
// Example by example, sums over axis `a_axis` of a together with `b_axis` of b. The first dimension of both
// is the batch: it is no such axis.
Tensor batch_dot(const TensorArg& a, const TensorArg& b, int a_axis, int b_axis);

}  // namespace lockstep
