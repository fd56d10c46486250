// One use of an op as data: its inputs, its attributes and a plain double-precision reference. The harness
// (op_harness_test.cc) runs every check on every case, so a new op needs a few lines in its family's table:
//
//   {.name = "matmul_transposed", .op = "matmul", .inputs = {normal({4, 3}), normal({4, 5})},
//    .attrs = MatmulAttrs{.transpose_a = true}, .reference = matmul_reference(true, false)},
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "graph/attrs.h"
#include "lockstep/base/error.h"
#include "lockstep/graph/tensor_arg.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::testing {

// --- arrays of doubles, which references work on -----------------------------------------------------------

struct Array {
  Shape shape;
  std::vector<double> values;    // row-major
  DType dtype = DType::float64;  // of the tensor that it stands for

  Array() = default;
  explicit Array(const Shape& s, double value = 0) : shape(s), values(static_cast<size_t>(s.size()), value) {}

  double& at(const Dims& index) { return values[position(index)]; }
  double at(const Dims& index) const { return values[position(index)]; }
  size_t position(const Dims& index) const;
};
using Arrays = std::vector<Array>;

// f(index) for every index of `shape`, in row-major order.
template <class F>
void each_index(const Shape& shape, F&& f) {
  Dims index = Dims::filled(shape.rank(), 0);
  for (int64_t count = shape.size(); count > 0; --count) {
    f(index);
    for (int d = shape.rank() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

// The results of an op for these inputs. A reference that returns one Array stands for a list of one.
class Reference {
 public:
  Reference() = default;
  template <class F>
  requires std::is_invocable_v<F&, const Arrays&> Reference(
      F f)  // NOLINT(google-explicit-constructor): .reference = [](const Arrays& in) { ... }
      : function_([f = std::move(f)](const Arrays& in) -> Arrays {
          if constexpr (std::is_same_v<std::invoke_result_t<const F&, const Arrays&>, Array>)
            return {f(in)};
          else
            return f(in);
        }) {}
  Arrays operator()(const Arrays& in) const { return function_(in); }

 private:
  std::function<Arrays(const Arrays&)> function_;
};

// What elementwise references share: the inputs broadcast, f is called for every element.
Arrays broadcast_each(const Arrays& in, int results,
                      const std::function<void(const double* in, double* out)>& f);

// An elementwise reference: f(double...) or, where integers differ from floats, f(DType, double...), giving
// one number or a std::array of several results.
template <class F, size_t N = 1>
Reference each(F f) {
  return []<size_t... I>(F function, std::index_sequence<I...>)->Reference {
    constexpr bool by_dtype = std::is_invocable_v<F, DType, decltype((void)I, 0.0)...>;
    if constexpr (by_dtype || std::is_invocable_v<F, decltype((void)I, 0.0)...>) {
      return [function](const Arrays& in) {
        const auto call = [&](const double* x) {
          if constexpr (by_dtype)
            return function(in.back().dtype, x[I]...);
          else
            return function(x[I]...);
        };
        using Result = decltype(call(nullptr));
        if constexpr (std::is_arithmetic_v<Result>)
          return broadcast_each(in, 1, [&](const double* x, double* y) { *y = call(x); });
        else
          return broadcast_each(in, std::tuple_size_v<Result>,
                                [&](const double* x, double* y) { std::ranges::copy(call(x), y); });
      };
    } else {
      return each<F, N + 1>(function);
    }
  }
  (std::move(f), std::make_index_sequence<N>{});
}

// --- inputs ------------------------------------------------------------------------------------------------

// An input's or a result's dtype, given the case's.
using DTypeRule = DType (*)(DType);
inline DType same(DType dtype) { return dtype; }
// What 16-bit floats are computed in.
inline DType wide(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }
template <DType fixed>
DType always(DType) {
  return fixed;
}
// always<dtype>, for a dtype that is not known when compiling.
DTypeRule always_dtype(DType dtype);

// How an input's elements come about. Integer dtypes get the numbers times `integers_per_unit`, rounded;
// uint8 their absolute values; booleans whether they are positive.
struct Input {
  Shape shape;
  std::function<std::vector<double>(const Shape&, uint64_t seed)> draw = {};
  std::function<Array(const Arrays& earlier)> derive = {};  // instead of both: made of the inputs before it
  DTypeRule dtype = same;
  double integers_per_unit = 4;

  Input of(DTypeRule rule) const {
    Input changed = *this;
    changed.dtype = rule;
    return changed;
  }
};

Input normal(const Shape& shape);
Input within(const Shape& shape, double low, double high);
Input integers(const Shape& shape, int64_t low, int64_t high);  // both ends are met; the case's dtype
// Finite differences need room around kinks and ties:
Input off_zero(const Shape& shape);      // 0.25 to 2, both signs
Input off_integers(const Shape& shape);  // at least 0.2 from the next integer
Input distinct(const Shape& shape);      // any two differ by 0.25 or more; 1 or more for integers
Input booleans(const Shape& shape);
Input indices(const Shape& shape, int64_t below, DType dtype = DType::int64);
Input given(const Shape& shape, std::vector<double> values);
Input derived(std::function<Array(const Arrays& earlier)> derive, DTypeRule dtype = same);

// --- cases -------------------------------------------------------------------------------------------------

using DTypes = std::vector<DType>;
inline const DTypes kFloats = {DType::float32, DType::float64, DType::bfloat16, DType::float16};
inline const DTypes kNumbers = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                                DType::int32,   DType::int64,   DType::uint8};
inline const DTypes kAll = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                            DType::int32,   DType::int64,   DType::uint8,    DType::boolean};

enum class Tolerance {
  exact,    // the reference rounded to the dtype, bit for bit
  rounded,  // a few units in the last place of each element
  summed,   // a few units in the last place of the largest element: sums, and differences of close numbers
};

// The public function of an op, called with the inputs; one Tensor stands for a list of one.
class PublicFunction {
 public:
  PublicFunction() = default;
  template <class F>
  requires std::is_invocable_v<F&, std::span<const Tensor>> PublicFunction(
      F f)  // NOLINT(google-explicit-constructor): .function = [](std::span<const Tensor> in) { ... }
      : function_([f = std::move(f)](std::span<const Tensor> in) -> TensorList {
          if constexpr (std::is_same_v<std::invoke_result_t<F&, std::span<const Tensor>>, Tensor>)
            return {f(in)};
          else
            return f(in);
        }) {}
  PublicFunction(Tensor (*f)(const TensorArg&))  // NOLINT(google-explicit-constructor): .function = exp
      : function_([f](std::span<const Tensor> in) -> TensorList { return {f(in[0])}; }) {}
  PublicFunction(Tensor (*f)(const TensorArg&, const TensorArg&))  // NOLINT(google-explicit-constructor)
      : function_([f](std::span<const Tensor> in) -> TensorList { return {f(in[0], in[1])}; }) {}
  PublicFunction(Tensor (*f)(const OperandArg&, const OperandArg&))  // NOLINT(google-explicit-constructor)
      : function_([f](std::span<const Tensor> in) -> TensorList { return {f(in[0], in[1])}; }) {}

  explicit operator bool() const { return static_cast<bool>(function_); }
  TensorList operator()(std::span<const Tensor> in) const { return function_(in); }

 private:
  std::function<TensorList(std::span<const Tensor>)> function_;
};

// A case's name, with the line on which it stands: a function that makes cases takes one of these, so that a
// failure names the line of the table and not the function's.
struct CaseName : std::string {
  std::source_location where;

  // NOLINTBEGIN(google-explicit-constructor): .name = "matmul_transposed"
  CaseName(const char* name = "", std::source_location line = std::source_location::current())
      : std::string(name), where(line) {}
  CaseName(std::string name, std::source_location line = std::source_location::current())
      : std::string(std::move(name)), where(line) {}
  // NOLINTEND(google-explicit-constructor)

  friend CaseName operator+(const CaseName& a, const char* b) { return {a.text() + b, a.where}; }
  friend CaseName operator+(const char* a, const CaseName& b) { return {a + b.text(), b.where}; }
  friend CaseName operator+(std::string a, const CaseName& b) { return {std::move(a) + b.text(), b.where}; }

  const std::string& text() const { return *this; }
};

inline constexpr int kUnchecked = -1;

// The case itself, whose inputs are small, is run in every dtype, compiled, strided, and differentiated by
// finite differences of the reference.
struct OpCase {
  CaseName name = {};   // of its tests: letters, digits and underscores
  std::string op = {};  // as registered; empty: a public function made of several ops
  std::vector<Input> inputs = {};
  Attrs attrs = {};
  Reference reference = {};
  DTypes dtypes = kFloats;  // those that no case of the op names are refused with dtype_mismatch
  Tolerance tolerance = Tolerance::rounded;
  double slack = 1;  // factor of the tolerance, where the algorithm explains it

  PublicFunction function = {};  // gives the bits that the op with these attributes gives
  bool by_function = false;      // the op is run by its function alone: it has no kernel
  bool elementwise = false;      // the function is: its reference holds for NaN and infinities in any shape

  std::vector<DTypeRule> results = {same};  // dtype of each result
  int derivatives = 2;                      // that are checked; 0: there is no gradient; kUnchecked
  std::vector<int> stops = {};              // floating-point inputs that no gradient flows to
  int differentiable_results = -1;          // the first ones; -1: every floating-point result

  std::vector<std::vector<Shape>> edge_shapes = {};  // empty, scalar, size 1: the inputs in other shapes
  // Bits may depend on the inputs' memory layout: the kernel chooses its algorithm by it.
  bool layout_chooses_algorithm = false;

  std::vector<Shape> large = {};      // of the inputs, where a kernel uses its threads
  bool threads_only = false;          // the case's own shapes are that large, and it is used for nothing else
  bool same_bits_on_threads = false;  // promised by a header, whatever the kernel's flag says
};
using OpCases = std::vector<OpCase>;

// The case with one thing changed, for tables of cases that functions make.
OpCase named(const CaseName& name, OpCase c);
OpCase with_edges(OpCase c, std::vector<std::vector<Shape>> edge_shapes);
OpCase with_large(OpCase c, std::vector<Shape> large);
OpCase with_derivatives(int derivatives, OpCase c);
OpCase threads_only(OpCase c);

// A call that a public function refuses.
struct BadCall {
  CaseName name = {};
  ErrorCode code = ErrorCode::invalid_argument;
  std::vector<std::string> says = {};  // all of it is in the message
  std::function<void()> call = {};
};
using BadCalls = std::vector<BadCall>;

// A float32 tensor, or one of another dtype, of this shape: for bad calls.
Tensor sample(const Shape& shape, DType dtype = DType::float32);

// --- families ----------------------------------------------------------------------------------------------

struct Family {
  OpCases (*cases)();
  BadCalls (*bad_calls)();
};

extern const Family kArrayFamily, kAttentionFamily, kCollectiveFamily, kConvFamily, kDebuggingFamily,
    kElementwiseFamily, kImageFamily, kMatmulFamily, kNnFamily, kPlacesFamily, kRandomFamily,
    kRearrangeFamily, kRecurrenceFamily, kReduceFamily, kSortFamily, kUpdateFamily;

}  // namespace lockstep::testing
