// Sums of products over named axes, made of transposes, reshapes and batched matrix products.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

// A letter, or a dimension of the ellipsis: '0' is its last one, '1' the one before it, ... .
using Labels = std::string;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool contains(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }

struct Operand {
  Tensor tensor;
  Labels labels;  // one a dimension
};

int axis_of(const Operand& x, char label) { return static_cast<int>(x.labels.find(label)); }

class Einsum {
 public:
  Einsum(std::string_view equation, std::span<const Tensor> tensors, std::source_location where)
      : equation_(equation), where_(where) {
    std::string text(equation);
    std::erase(text, ' ');
    const size_t arrow = text.find("->");
    std::vector<std::string> terms(1);
    for (const char c : text.substr(0, arrow)) {
      if (c == ',')
        terms.emplace_back();
      else
        terms.back() += c;
    }
    check(terms.size() == tensors.size(), ErrorCode::invalid_argument, "names ", terms.size(),
          " operands, received ", tensors.size());
    for (size_t i = 0; i < terms.size(); ++i) {
      check(tensors[i].defined(), ErrorCode::invalid_argument, "operand ", i, " is none");
      check(tensors[i].dtype() == tensors[0].dtype(), ErrorCode::dtype_mismatch,
            "operands must have one dtype, received ", tensors[0].spec(), " and ", tensors[i].spec());
      operands_.push_back(labelled(tensors[i], terms[i], i));
    }
    for (Operand& x : operands_) drop_broadcast(x);
    result_ = arrow == std::string::npos ? implicit_result() : explicit_result(text.substr(arrow + 2));
  }

  Tensor run() {
    for (size_t i = 0; i < operands_.size(); ++i) {
      take_diagonals(operands_[i]);
      sum_out(operands_[i], needed_beside(i, i));
    }
    while (operands_.size() > 1) join_cheapest_pair();
    return in_order(operands_[0]);
  }

 private:
  template <class... Parts>
  void check(bool condition, ErrorCode code, const Parts&... parts) const {
    require(condition, code, where_, "einsum: \"", equation_, "\": ", parts...);
  }

  // --- the equation ----------------------------------------------------------------------------------------

  // Letters with the ellipsis, if there is one, written out for `dimensions` dimensions.
  Labels expanded(const std::string& term, int dimensions, const std::string& what) const {
    Labels labels;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0) {
        check(term.find("...", i + 3) == std::string::npos, ErrorCode::invalid_argument, what,
              " has two ellipses");
        for (int d = dimensions - 1; d >= 0; --d) labels += static_cast<char>('0' + d);
        i += 2;
        continue;
      }
      check(is_letter(term[i]), ErrorCode::invalid_argument, "'", term[i], "' in ", what,
            " is neither a letter nor part of \"...\"");
      labels += term[i];
    }
    return labels;
  }

  Operand labelled(const Tensor& tensor, const std::string& term, size_t number) {
    const std::string what = detail::concat("operand ", number, " \"", term, "\"");
    const bool ellipsis = term.find("...") != std::string::npos;
    const int letters = static_cast<int>(std::ranges::count_if(term, is_letter));
    check(ellipsis ? letters <= tensor.rank() : letters == tensor.rank(), ErrorCode::shape_mismatch, what,
          " has ", letters, " letters for the ", tensor.rank(), " dimensions of ", tensor.shape());
    if (ellipsis) ellipsis_ = std::max(ellipsis_, tensor.rank() - letters);
    Operand x{tensor, expanded(term, tensor.rank() - letters, what)};
    for (int d = 0; d < tensor.rank(); ++d) {
      const char label = x.labels[static_cast<size_t>(d)];
      const int64_t size = tensor.shape()[d];
      const auto [entry, fresh] = sizes_.try_emplace(label, size);
      if (fresh || entry->second == size || (!is_letter(label) && size == 1)) continue;
      check(!is_letter(label) && entry->second == 1, ErrorCode::shape_mismatch,
            is_letter(label) ? detail::concat("label '", label, "'") : "a dimension of \"...\"", " is ",
            entry->second, " and ", size, " (in ", tensor.shape(), ")");
      entry->second = size;
    }
    return x;
  }

  // A dimension of size 1 of an ellipsis that is larger elsewhere is the same as none.
  void drop_broadcast(Operand& x) const {
    Operand kept{x.tensor, {}};
    Shape shape;
    for (int d = 0; d < x.tensor.rank(); ++d) {
      const char label = x.labels[static_cast<size_t>(d)];
      if (x.tensor.shape()[d] != sizes_.at(label)) continue;
      kept.labels += label;
      shape.push_back(x.tensor.shape()[d]);
    }
    kept.tensor = reshape(x.tensor, shape);
    x = kept;
  }

  Labels implicit_result() const {
    std::map<char, int> count;
    for (const Operand& x : operands_)
      for (const char label : x.labels) ++count[label];
    Labels result = expanded("...", ellipsis_, "the result");
    for (const auto& [label, times] : count)
      if (is_letter(label) && times == 1) result += label;
    return result;
  }

  Labels explicit_result(const std::string& term) const {
    check(ellipsis_ == 0 || term.find("...") != std::string::npos, ErrorCode::invalid_argument,
          "the result \"", term, "\" has no \"...\" for the ", ellipsis_,
          " dimensions that the operands' stand for");
    Labels result = expanded(term, ellipsis_, "the result");
    for (const char label : result) {
      check(std::ranges::count(result, label) == 1, ErrorCode::invalid_argument, "label '", label,
            "' is twice in the result");
      check(sizes_.contains(label), ErrorCode::invalid_argument, "label '", label,
            "' of the result is in no operand");
    }
    return result;
  }

  // --- the products ----------------------------------------------------------------------------------------

  void take_diagonals(Operand& x) const {
    for (size_t second = 1; second < x.labels.size(); ++second) {
      const size_t first = x.labels.find(x.labels[second]);
      if (first == second) continue;
      const char label = x.labels[second];
      const Tensor last =
          moveaxis(x.tensor, {static_cast<int64_t>(first), static_cast<int64_t>(second)}, {-2, -1});
      x.tensor = diag_part(last);
      x.labels.erase(second, 1);
      x.labels.erase(first, 1);
      x.labels += label;
      second = 0;  // positions have moved
    }
  }

  // The labels of the result and of all operands but these two.
  Labels needed_beside(size_t a, size_t b) const {
    Labels needed = result_;
    for (size_t i = 0; i < operands_.size(); ++i)
      if (i != a && i != b) needed += operands_[i].labels;
    return needed;
  }

  void sum_out(Operand& x, const Labels& needed) const {
    std::vector<int64_t> axes;
    Labels kept;
    for (size_t d = 0; d < x.labels.size(); ++d)
      if (contains(needed, x.labels[d]))
        kept += x.labels[d];
      else
        axes.push_back(static_cast<int64_t>(d));
    if (axes.empty()) return;
    x.tensor = reduce_sum({x.tensor, where_}, {.axis = axes});
    x.labels = kept;
  }

  double size_of(const Labels& labels) const {
    double size = 1;
    for (const char label : labels) size *= static_cast<double>(sizes_.at(label));
    return size;
  }

  // What a pair of operands shares and leaves.
  struct Pair {
    Labels batch, sum, only_a, only_b;
  };

  Pair pair(size_t a, size_t b) const {
    const Labels needed = needed_beside(a, b);
    Pair p;
    for (const char label : operands_[a].labels)
      (!contains(operands_[b].labels, label) ? p.only_a : contains(needed, label) ? p.batch : p.sum) += label;
    for (const char label : operands_[b].labels)
      if (!contains(operands_[a].labels, label)) p.only_b += label;
    return p;
  }

  void join_cheapest_pair() {
    size_t best_a = 0, best_b = 1;
    double least = std::numeric_limits<double>::infinity();
    for (size_t a = 0; a < operands_.size(); ++a)
      for (size_t b = a + 1; b < operands_.size(); ++b) {
        const Pair p = pair(a, b);
        const double size = size_of(p.batch + p.only_a + p.only_b);
        if (size < least) least = size, best_a = a, best_b = b;
      }
    operands_[best_a] = product(operands_[best_a], operands_[best_b], pair(best_a, best_b));
    operands_.erase(operands_.begin() + static_cast<ptrdiff_t>(best_b));
    sum_out(operands_[best_a], needed_beside(best_a, best_a));
  }

  // The operand with its dimensions in the order of these three groups, as a batch of matrices.
  Tensor matrices(const Operand& x, const Labels& batch, const Labels& rows, const Labels& columns) const {
    Dims order;
    for (const char label : detail::concat(batch, rows, columns)) order.push_back(axis_of(x, label));
    const auto elements = [&](const Labels& labels) { return static_cast<int64_t>(size_of(labels)); };
    return reshape(order.empty() ? x.tensor : transpose(x.tensor, order),
                   {elements(batch), elements(rows), elements(columns)});
  }

  Operand product(const Operand& a, const Operand& b, const Pair& p) const {
    Operand c{{}, p.batch + p.only_a + p.only_b};
    // Without a sum it is an elementwise product, which also knows every dtype.
    const Tensor left = matrices(a, p.batch, p.only_a, p.sum);
    const Tensor joined = p.sum.empty() ? multiply({left, where_}, matrices(b, p.batch, p.sum, p.only_b))
                                        : matmul({left, where_}, matrices(b, p.batch, p.sum, p.only_b));
    Shape shape;
    for (const char label : c.labels) shape.push_back(sizes_.at(label));
    c.tensor = reshape(joined, shape);
    return c;
  }

  // Ellipsis dimensions that every operand lacks are broadcast from 1.
  Tensor in_order(const Operand& x) const {
    Dims order;
    for (const char label : result_)
      if (contains(x.labels, label)) order.push_back(axis_of(x, label));
    const Tensor sorted = order.empty() ? x.tensor : transpose(x.tensor, order);
    Shape shape;
    for (const char label : result_) shape.push_back(contains(x.labels, label) ? sizes_.at(label) : 1);
    return reshape(sorted, shape);
  }

  std::string equation_;
  std::source_location where_;
  std::map<char, int64_t> sizes_;
  int ellipsis_ = 0;  // dimensions that "..." stands for, the most of any operand
  std::vector<Operand> operands_;
  Labels result_;
};

Dims range_of(int first, int last) {
  Dims axes;
  for (int i = first; i < last; ++i) axes.push_back(i);
  return axes;
}

// One letter for every dimension, from `first` on.
std::string letters(int count, char first) {
  std::string result;
  for (int i = 0; i < count; ++i) result += static_cast<char>(first + i);
  return result;
}

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands, std::source_location where) {
  return Einsum(equation, operands, where).run();
}
Tensor einsum(std::string_view equation, std::initializer_list<TensorArg> operands,
              std::source_location where) {
  TensorList tensors;
  for (const TensorArg& operand : operands)
    tensors.push_back(operand.tensor(detail::concat("einsum: operand ", tensors.size()).c_str()));
  return einsum(equation, tensors, where);
}

Tensor tensordot(const TensorArg& a, const TensorArg& b, const Dims& a_axes, const Dims& b_axes) {
  const Shape &sa = a.tensor("tensordot").shape(), &sb = b.tensor("tensordot").shape();
  require(a_axes.rank() == b_axes.rank(), ErrorCode::shape_mismatch, a.where(), "tensordot: axes ", a_axes,
          " and ", b_axes, " go together one by one");
  std::string left = letters(sa.rank(), 'a'), right = letters(sb.rank(), 'A');
  for (int i = 0; i < a_axes.rank(); ++i) {
    const int from = normalize_axis(a_axes[i], sa.rank(), "tensordot", a.where());
    const int to = normalize_axis(b_axes[i], sb.rank(), "tensordot", a.where());
    require(sa[from] == sb[to], ErrorCode::shape_mismatch, a.where(), "tensordot: dimension ", from, " of ",
            sa, " and dimension ", to, " of ", sb, " differ");
    char& label = right[static_cast<size_t>(to)];
    require(label >= 'A' && label <= 'Z' && right.find(left[static_cast<size_t>(from)]) == std::string::npos,
            ErrorCode::invalid_argument, a.where(), "tensordot: an axis was given twice in ", a_axes, " or ",
            b_axes);
    label = left[static_cast<size_t>(from)];
  }
  std::string result;
  for (const char c : left + right)
    if ((left.find(c) == std::string::npos) != (right.find(c) == std::string::npos)) result += c;
  return einsum(left + "," + right + "->" + result, {a.tensor(), b.tensor()}, a.where());
}

Tensor tensordot(const TensorArg& a, const TensorArg& b, int axes) {
  const int ra = a.tensor("tensordot").rank(), rb = b.tensor("tensordot").rank();
  require(axes >= 0 && axes <= ra && axes <= rb, ErrorCode::invalid_argument, a.where(),
          "tensordot: there are no ", axes, " axes in both of ", a.tensor().shape(), " and ",
          b.tensor().shape());
  return tensordot(a, b, range_of(ra - axes, ra), range_of(0, axes));
}

Tensor dot(const TensorArg& a, const TensorArg& b) {
  const int ra = a.tensor("dot").rank(), rb = b.tensor("dot").rank();
  if (ra == 0 || rb == 0) return multiply({a.tensor(), a.where()}, {b.tensor(), a.where()});
  return tensordot(a, b, {-1}, {rb == 1 ? -1 : -2});
}

Tensor batch_dot(const TensorArg& a, const TensorArg& b, int a_axis, int b_axis) {
  const Shape &sa = a.tensor("batch_dot").shape(), &sb = b.tensor("batch_dot").shape();
  const int from = normalize_axis(a_axis, sa.rank(), "batch_dot", a.where());
  const int to = normalize_axis(b_axis, sb.rank(), "batch_dot", a.where());
  require(from > 0 && to > 0, ErrorCode::invalid_argument, a.where(),
          "batch_dot: the first dimension is the batch and is not summed over, received axes ", a_axis,
          " and ", b_axis);
  require(sa[0] == sb[0] && sa[from] == sb[to], ErrorCode::shape_mismatch, a.where(),
          "batch_dot: batch sizes, and dimension ", from, " of ", sa, " and dimension ", to, " of ", sb,
          " must be equal");
  std::string left = letters(sa.rank(), 'a'), right = letters(sb.rank(), 'A');
  right[0] = left[0];
  right[static_cast<size_t>(to)] = left[static_cast<size_t>(from)];
  std::string result = left + right.substr(1);
  std::erase(result, left[static_cast<size_t>(from)]);
  return einsum(left + "," + right + "->" + result, {a.tensor(), b.tensor()}, a.where());
}

Tensor matvec(const TensorArg& a, const TensorArg& x, bool transpose_a) {
  require(x.tensor("matvec").rank() >= 1, ErrorCode::shape_mismatch, a.where(), "matvec: the vector ",
          x.tensor().shape(), " has no dimension");
  const Tensor column = expand_dims({x.tensor(), a.where()}, -1);
  return squeeze(matmul(a, column, {.transpose_a = transpose_a}), {-1});
}

Tensor outer(const TensorArg& a, const TensorArg& b) {
  a.tensor("outer"), b.tensor("outer");
  return multiply({reshape(a, {-1, 1}), a.where()}, reshape({b.tensor(), a.where()}, {-1}));
}

}  // namespace lockstep
