#include "keras/layers/einsum.h"

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

// A tensor with a letter for each dimension.
struct Lettered {
  std::string letters;
  Tensor tensor;

  int64_t size(char letter) const { return tensor.shape()[static_cast<int>(letters.find(letter))]; }
  int64_t size(const std::string& group) const {
    int64_t product = 1;
    for (const char letter : group) product *= size(letter);
    return product;
  }
  Lettered ordered(const std::string& order) const {
    if (order == letters) return *this;
    Dims permutation;
    for (const char letter : order) permutation.push_back(static_cast<int64_t>(letters.find(letter)));
    return {order, transpose(tensor, permutation)};
  }
  // Without the letters that nobody else has.
  Lettered summed(const std::string& kept) const {
    std::vector<int64_t> axes;
    std::string left;
    for (size_t d = 0; d < letters.size(); ++d)
      if (kept.find(letters[d]) == std::string::npos)
        axes.push_back(static_cast<int64_t>(d));
      else
        left += letters[d];
    return axes.empty() ? *this : Lettered{left, reduce_sum(tensor, {.axis = axes})};
  }
};

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

std::string common(const std::string& a, const std::string& b, bool in_b) {
  std::string found;
  for (const char letter : a)
    if (has(b, letter) == in_b) found += letter;
  return found;
}

Tensor as_shape(const Tensor& x, const Shape& shape) { return x.shape() == shape ? x : reshape(x, shape); }

}  // namespace

Tensor einsum(const std::string& equation, const Tensor& x, const Tensor& y) {
  const size_t comma = equation.find(','), arrow = equation.find("->");
  const std::string out = equation.substr(arrow + 2);
  Lettered a{equation.substr(0, comma), x}, b{equation.substr(comma + 1, arrow - comma - 1), y};
  require(static_cast<int>(a.letters.size()) == x.rank() && static_cast<int>(b.letters.size()) == y.rank(),
          ErrorCode::shape_mismatch, std::source_location::current(), "einsum: equation ", equation,
          " does not fit operands of shapes ", x.shape(), " and ", y.shape());
  a = a.summed(b.letters + out);
  b = b.summed(a.letters + out);
  const std::string shared = common(a.letters, b.letters, true);
  const std::string batch = common(shared, out, true), inner = common(shared, out, false);
  const std::string rows = common(a.letters, shared, false), columns = common(b.letters, shared, false);

  // Each operand is laid out as matrices; the right one transposed where its inner letters come last already, so that
  // it need not be moved.
  const bool transposed = !inner.empty() && !columns.empty() && b.letters.back() == inner.back();
  const Lettered left = a.ordered(batch + rows + inner);
  const Lettered right = b.ordered(batch + (transposed ? columns + inner : inner + columns));
  Shape lead;
  for (const char letter : batch) lead.push_back(a.size(letter));
  const auto matrices = [&](const Lettered& operand, int64_t height, int64_t width) {
    Shape shape = lead;
    shape.push_back(height);
    shape.push_back(width);
    return as_shape(operand.tensor, shape);
  };
  const int64_t depth = a.size(inner), height = a.size(rows), width = b.size(columns);
  const Tensor product = matmul(matrices(left, height, depth),
                                transposed ? matrices(right, width, depth) : matrices(right, depth, width),
                                {.transpose_b = transposed});

  Shape shape = lead;
  for (const char letter : rows) shape.push_back(a.size(letter));
  for (const char letter : columns) shape.push_back(b.size(letter));
  return Lettered{batch + rows + columns, as_shape(product, shape)}.ordered(out).tensor;
}

}  // namespace lockstep::keras
