// Reading and adding rows by index, for rules and kernels that name them.
//
// gather and scatter_add refuse an index that does not exist, with Error(invalid_argument) naming its
// position and value; one_hot makes a row of zeros of it, so that -1 can stand for "no class".
#pragma once

#include <cstdint>
#include <limits>
#include <source_location>
#include <string>
#include <string_view>

#include "graph/op.h"
#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

extern const OpDef kGather, kScatterAdd, kOneHot;

// Among indices that were made of floating point numbers: one that was NaN, infinite or a fraction. It is no
// row, and errors say what it is.
inline constexpr int64_t kNoWholeNumber = std::numeric_limits<int64_t>::min();
inline std::string index_text(int64_t index) {
  return index == kNoWholeNumber ? "no whole number" : std::to_string(index);
}
// Where element number i of `shape` stands.
Dims position_in(const Shape& shape, int64_t i);

// What errors call an index: that of an op into rows, or a label among classes.
struct IndexName {
  std::string_view op;
  bool labels = false;
};
// The error of element number `position` of indices of this shape, which is not in [0, limit).
[[noreturn]] void refuse_index(IndexName name, const Shape& shape, int64_t position, int64_t index,
                               int64_t limit, std::source_location where);

// Indices as int64, with that in the place of what is no whole number.
Tensor whole_numbers(const Tensor& x);

struct GatherAttrs {
  int64_t axis = 0;
  int64_t batch_dims = 0;  // leading dimensions that table and indices share, at most `axis`
  bool labels = false;     // the indices are labels, the rows classes: what errors call them
  bool operator==(const GatherAttrs&) const = default;
  void visit(auto&& v) const { v("axis", axis), v("batch_dims", batch_dims), v("labels", labels); }
};

struct ScatterAddAttrs {
  int64_t rows = 0;
  bool operator==(const ScatterAddAttrs&) const = default;
  void visit(auto&& v) const { v("rows", rows); }
};

struct OneHotAttrs {
  int64_t depth = 0;
  DType dtype = DType::float32;
  bool operator==(const OneHotAttrs&) const = default;
  void visit(auto&& v) const { v("depth", depth), v("dtype", dtype); }
};

// What scores [..., classes] say of the classes that labels [...] name. A label that is no class is an Error
// that says so.
Tensor gather_labels(const TensorArg& scores, const TensorArg& labels);
// The labels themselves, or that Error.
Tensor checked_labels(const Tensor& labels, int64_t classes);

// Adds values [batch, count, width] into zeros [batch, rows, width] at the rows that indices [batch, count]
// name: the gradient of a gather with batch dimensions, whose indices were checked.
Tensor scatter_add_rows(const Tensor& values, const Tensor& indices, int64_t rows);

}  // namespace lockstep
