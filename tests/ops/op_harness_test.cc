// The harness of all ops: every check on every case of every family's table.
//
// Tests are named Check.case, for example Gradient.matmul_transposed; a check registers only where it applies.
// A failure names the line of the case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "graph/eager.h"
#include "graph/emit.h"
#include "graph/kernel.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/compile/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/op_case.h"
#include "ops/run_kernel_test.h"

namespace lockstep::testing {
namespace {

constexpr auto here = [](std::source_location where = std::source_location::current()) { return where; };

// --- inputs --------------------------------------------------------------------------------------------------------

// The number as a tensor of this dtype holds it. Integers wrap around.
double held(double x, DType dtype) {
  switch (dtype) {
    case DType::float32: return static_cast<float>(x);
    case DType::float64: return x;
    case DType::bfloat16: return static_cast<float>(bfloat16(static_cast<float>(x)));
    case DType::float16: return static_cast<float>(float16(static_cast<float>(x)));
    case DType::int32: return static_cast<int32_t>(static_cast<int64_t>(x));
    case DType::int64: return static_cast<double>(static_cast<int64_t>(x));
    case DType::uint8: return static_cast<uint8_t>(static_cast<int64_t>(x));
    case DType::boolean: break;
  }
  return x != 0 ? 1 : 0;
}

Tensor tensor_of(const Array& array) { return tensor_of(array.dtype, array.shape, array.values); }

TensorList tensors_of(const Arrays& arrays) {
  TensorList tensors;
  for (const Array& array : arrays) tensors.push_back(tensor_of(array));
  return tensors;
}

// The case's inputs in one dtype, with the numbers that its tensors hold.
Arrays inputs_of(const OpCase& c, DType dtype, std::span<const Shape> shapes = {}) {
  Arrays arrays;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& input = c.inputs[i];
    const DType own = input.dtype(dtype);
    Array array;
    if (input.derive) {
      array = input.derive(arrays);
    } else {
      array.shape = shapes.empty() ? input.shape : shapes[i];
      array.values = input.draw(array.shape, i + 1);
    }
    for (double& x : array.values) {
      if (is_integer(own)) x = std::round(x * input.integers_per_unit);
      if (own == DType::uint8) x = std::abs(x);
      if (own == DType::boolean) x = x > 0;
      x = held(x, own);
    }
    array.dtype = own;
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// Inputs that are computed from others follow them.
void derive_again(const OpCase& c, Arrays& arrays) {
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].derive) {
      const DType dtype = arrays[i].dtype;
      arrays[i] = c.inputs[i].derive(Arrays(arrays.begin(), arrays.begin() + static_cast<ptrdiff_t>(i)));
      arrays[i].dtype = dtype;
    }
}

// --- running -------------------------------------------------------------------------------------------------------

const OpDef& op_of(const OpCase& c) {
  const OpDef* op = find_op(c.op);
  require(op != nullptr, ErrorCode::not_found, c.where, "no op \"", c.op, "\" is registered");
  return *op;
}

bool has_kernel(const OpCase& c) { return !c.op.empty() && !c.by_function; }

TensorList run(const OpCase& c, std::span<const Tensor> inputs) {
  return has_kernel(c) ? emit(op_of(c), inputs, c.attrs, here()) : c.function(inputs);
}

TensorList run_compiled(std::span<const Tensor> inputs, FunctionCore::Body body) {
  FunctionCore core(std::move(body), {}, here());
  return core.call(inputs, here());
}

// --- comparing -----------------------------------------------------------------------------------------------------

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float32: return 0x1p-23;
    case DType::float64: return 0x1p-52;
    case DType::bfloat16: return 0x1p-7;
    case DType::float16: return 0x1p-10;
    default: return 0;
  }
}

double smallest(DType dtype) {
  switch (dtype) {
    case DType::float64: return std::numeric_limits<double>::denorm_min();
    case DType::float16: return 0x1p-24;
    default: return std::numeric_limits<float>::denorm_min();
  }
}

// Units in the last place. 16-bit floats are computed in float32 and rounded once.
double ulps(Tolerance tolerance, DType dtype) {
  if (tolerance == Tolerance::exact) return 0;
  const bool half = dtype == DType::bfloat16 || dtype == DType::float16;
  return half ? 1 : tolerance == Tolerance::rounded ? 4 : 16;
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double x : values)
    if (std::isfinite(x)) result = std::max(result, std::abs(x));
  return result;
}

// Compares a tensor with the exact numbers; reports the first element that is off.
void expect_close(const Tensor& got, const Array& want, Tolerance tolerance, double slack, std::string_view what) {
  ASSERT_EQ(got.shape(), want.shape) << what;
  const DType dtype = got.dtype();
  const std::vector<double> elements = values(got);
  const double scale = tolerance == Tolerance::summed ? largest(want.values) : 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    const double expected = is_floating(dtype) && tolerance != Tolerance::exact ? want.values[i] : held(want.values[i], dtype);
    if (elements[i] == expected || (std::isnan(elements[i]) && std::isnan(expected))) continue;
    if (elements[i] == held(expected, dtype)) continue;  // too large or too small for the dtype
    const double bound =
        slack * ulps(tolerance, dtype) * (epsilon(dtype) * std::max(scale, std::abs(expected)) + smallest(dtype));
    ASSERT_LE(std::abs(elements[i] - expected), bound)
        << what << ", " << dtype << ": element " << i << " of " << elements.size() << " is " << elements[i]
        << ", expected " << expected;
  }
}

void expect_same_bits(const TensorList& got, const TensorList& want, std::string_view what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].spec(), want[k].spec()) << what << ", result " << k;
    if (same_bits(got[k], want[k])) continue;
    const auto a = values(got[k]), b = values(want[k]);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]))
          << what << ", result " << k << ", " << got[k].dtype() << ": element " << i << " of " << a.size() << " is "
          << a[i] << " and should be " << b[i];
  }
}

// Compares derivatives: the bound is relative to the largest of them, and to 1.
void expect_derivative(const std::vector<double>& got, const std::vector<double>& want, double bound, std::string_view what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double scale = std::max(1.0, largest(want));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], bound * scale) << what << ": element " << i << " of " << got.size();
}

// --- specs and values ----------------------------------------------------------------------------------------------

void check_results(const OpCase& c, const Arrays& arrays, DType dtype) {
  const TensorList inputs = tensors_of(arrays);
  const TensorList results = run(c, inputs);
  const Arrays expected = c.reference(arrays);
  ASSERT_EQ(results.size(), expected.size());
  ASSERT_EQ(results.size(), c.results.size()) << "the case says how many results there are, and their dtypes";
  for (size_t k = 0; k < results.size(); ++k) {
    EXPECT_EQ(results[k].spec(), (TensorSpec{c.results[k](dtype), expected[k].shape})) << "result " << k;
    expect_close(results[k], expected[k], c.tolerance, c.slack, "result " + std::to_string(k));
  }
  if (!has_kernel(c)) return;
  SpecList specs;
  for (const Tensor& input : inputs) specs.push_back(input.spec());
  const SpecList inferred = op_of(c).infer({op_of(c), specs, c.attrs, here()});
  ASSERT_EQ(inferred.size(), results.size());
  for (size_t k = 0; k < results.size(); ++k) EXPECT_EQ(inferred[k], results[k].spec()) << "inferred, result " << k;
  const Cost cost = op_cost(op_of(c), specs, inferred, c.attrs);
  EXPECT_GE(cost.flops, 0);
  EXPECT_GE(cost.bytes, 0);
}

void values_against_reference(const OpCase& c) {
  for (const DType dtype : c.dtypes) {
    SCOPED_TRACE(name(dtype));
    check_results(c, inputs_of(c, dtype), dtype);
  }
}

void function_gives_the_op(const OpCase& c) {
  for (const DType dtype : c.dtypes) {
    const TensorList inputs = tensors_of(inputs_of(c, dtype));
    expect_same_bits(c.function(inputs), run(c, inputs), "the public function");
  }
}

// --- derivatives ---------------------------------------------------------------------------------------------------

bool differentiable_result(const OpCase& c, size_t k, DType dtype) {
  return is_floating(dtype) && (c.differentiable_results < 0 || k < static_cast<size_t>(c.differentiable_results));
}

std::vector<double> weights(int64_t count, uint64_t seed) { return normal({count}).draw({count}, 1000 + seed); }

// A random weighted sum of the results: its gradient holds every element of the Jacobian.
double weighted_sum(const OpCase& c, const Arrays& results) {
  double sum = 0;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!differentiable_result(c, k, c.results[k](DType::float64))) continue;
    const auto w = weights(results[k].shape.size(), k);
    for (size_t i = 0; i < w.size(); ++i) sum += w[i] * results[k].values[i];
  }
  return sum;
}

Tensor weighted_sum(const OpCase& c, const TensorList& results) {
  Tensor sum;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!differentiable_result(c, k, results[k].dtype())) continue;
    const Tensor w = tensor_of(results[k].dtype(), results[k].shape(), weights(results[k].size(), k));
    const Tensor term = reduce_sum(results[k] * w);
    sum = !sum.defined() ? term : sum.dtype() == term.dtype() ? sum + term : sum + cast(term, sum.dtype());
  }
  return sum;
}

bool flows(const OpCase& c, size_t input, DType dtype) {
  const auto i = static_cast<int>(input);
  return is_floating(dtype) && std::find(c.stops.begin(), c.stops.end(), i) == c.stops.end();
}

// The gradient with respect to every floating-point input; undefined where none flows.
TensorList gradients(const OpCase& c, std::span<const Tensor> inputs) {
  GradientTape tape;
  std::vector<GradientSource> sources;
  for (const Tensor& input : inputs) {
    if (!is_floating(input.dtype())) continue;
    tape.watch(input);
    sources.emplace_back(input);
  }
  const TensorList found = tape.gradient(weighted_sum(c, run(c, inputs)), sources);
  TensorList all;
  size_t next = 0;
  for (const Tensor& input : inputs) all.push_back(is_floating(input.dtype()) ? found[next++] : Tensor());
  return all;
}

// Central differences of f with respect to the elements of inputs[i].
std::vector<double> differences(const OpCase& c, Arrays inputs, size_t i, const std::function<double(const Arrays&)>& f) {
  std::vector<double> result;
  for (size_t e = 0; e < inputs[i].values.size(); ++e) {
    const double x = inputs[i].values[e];
    const double step = 1e-4;
    const auto moved = [&](double by) {
      inputs[i].values[e] = x + by;
      derive_again(c, inputs);
      return f(inputs);
    };
    result.push_back((moved(step) - moved(-step)) / (2 * step));
    inputs[i].values[e] = x;
  }
  return result;
}

std::vector<double> values_or_zeros(const Tensor& tensor, size_t count) {
  return tensor.defined() ? values(tensor) : std::vector<double>(count, 0);
}

void check_gradient(const OpCase& c, const Arrays& arrays) {
  const TensorList inputs = tensors_of(arrays);
  const TensorList found = gradients(c, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = "gradient of input " + std::to_string(i);
    if (!flows(c, i, inputs[i].dtype())) {
      EXPECT_FALSE(found[i].defined()) << what << ": none should flow there";
      continue;
    }
    ASSERT_TRUE(found[i].defined()) << what;
    ASSERT_EQ(found[i].spec(), inputs[i].spec()) << what;
    const auto want = differences(c, arrays, i, [&](const Arrays& in) { return weighted_sum(c, c.reference(in)); });
    expect_derivative(values(found[i]), want, 1e-6, what);
  }
}

void gradient_against_differences(const OpCase& c) { check_gradient(c, inputs_of(c, DType::float64)); }

// In the other dtypes the gradient has the input's dtype and, roughly, the float64 gradient's values there.
void gradient_in_every_dtype(const OpCase& c) {
  for (const DType dtype : c.dtypes) {
    if (!is_floating(dtype) || dtype == DType::float64) continue;
    SCOPED_TRACE(name(dtype));
    Arrays arrays = inputs_of(c, dtype);
    const TensorList inputs = tensors_of(arrays);
    const TensorList found = gradients(c, inputs);
    for (size_t i = 0; i < arrays.size(); ++i) arrays[i].dtype = c.inputs[i].dtype(DType::float64);
    const TensorList exact = gradients(c, tensors_of(arrays));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!flows(c, i, inputs[i].dtype())) continue;
      const std::string what = "gradient of input " + std::to_string(i);
      ASSERT_TRUE(found[i].defined()) << what;
      ASSERT_EQ(found[i].spec(), inputs[i].spec()) << what;
      expect_derivative(values(found[i]), values(exact[i]), 16 * epsilon(dtype), what);
    }
  }
}

void second_derivative_against_differences(const OpCase& c) {
  const Arrays arrays = inputs_of(c, DType::float64);
  // A random weighted sum of the gradients, as a function of the inputs.
  const auto sum_of_gradients = [&](std::span<const Tensor> inputs) {
    const TensorList found = gradients(c, inputs);
    Tensor sum;
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].defined()) continue;
      const Tensor w = tensor_of(found[i].dtype(), found[i].shape(), weights(found[i].size(), 100 + i));
      const Tensor term = reduce_sum(found[i] * w);
      sum = sum.defined() ? sum + term : term;
    }
    return sum;
  };
  const TensorList inputs = tensors_of(arrays);
  TensorList found;
  {
    GradientTape tape({.persistent = true});
    for (size_t i = 0; i < inputs.size(); ++i)
      if (flows(c, i, inputs[i].dtype())) tape.watch(inputs[i]);
    const Tensor sum = sum_of_gradients(inputs);
    for (size_t i = 0; i < inputs.size(); ++i)
      found.push_back(flows(c, i, inputs[i].dtype()) ? tape.gradient(sum, inputs[i]) : Tensor());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!flows(c, i, inputs[i].dtype())) continue;
    const auto want = differences(c, arrays, i, [&](const Arrays& in) {
      return sum_of_gradients(tensors_of(in)).item<double>();
    });
    expect_derivative(values_or_zeros(found[i], want.size()), want, 1e-5, "second derivative of input " + std::to_string(i));
  }
}

void no_gradient(const OpCase& c) {
  const DType dtype = std::find(c.dtypes.begin(), c.dtypes.end(), DType::float64) != c.dtypes.end() ? DType::float64 : c.dtypes[0];
  const TensorList inputs = tensors_of(inputs_of(c, dtype));
  GradientTape tape({.persistent = true});
  for (const Tensor& input : inputs)
    if (is_floating(input.dtype())) tape.watch(input);
  Tensor sum;
  for (const Tensor& result : run(c, inputs)) {
    const Tensor term = reduce_sum(cast(result, DType::float64));
    sum = sum.defined() ? sum + term : term;
  }
  for (const Tensor& input : inputs)
    if (is_floating(input.dtype())) EXPECT_FALSE(tape.gradient(sum, input).defined());
}

// --- compiled ------------------------------------------------------------------------------------------------------

void compiled_equals_eager(const OpCase& c, const TensorList& inputs) {
  const TensorList compiled = run_compiled(inputs, [&](std::span<const Tensor> in) { return run(c, in); });
  expect_same_bits(compiled, run(c, inputs), "compiled");
}

void compiled_alone(const OpCase& c) {
  for (const DType dtype : c.dtypes) compiled_equals_eager(c, tensors_of(inputs_of(c, dtype)));
}

// The same numbers, computed: so that the op has neighbours to be fused with and inputs to write over.
Tensor before(const Tensor& x) {
  if (x.dtype() == DType::boolean) return logical_not(logical_not(x));
  return is_floating(x.dtype()) ? (x * 0.5) * 2.0 : (x + 3) - 3;
}

Tensor after(const Tensor& y) {
  if (y.dtype() == DType::boolean) return logical_not(y);
  return is_floating(y.dtype()) ? y * 3.0 - 0.5 : y + y;
}

TensorList in_chain(const OpCase& c, std::span<const Tensor> inputs) {
  TensorList prepared;
  for (const Tensor& input : inputs) prepared.push_back(before(input));
  TensorList results = run(c, prepared);
  const size_t count = results.size();
  for (size_t k = 0; k < count; ++k) results.push_back(after(results[k]));
  return results;
}

Array array_of(const Tensor& tensor) {
  Array array(tensor.shape());
  array.values = values(tensor);
  array.dtype = tensor.dtype();
  return array;
}

void compiled_in_a_chain(const OpCase& c) {
  for (const DType dtype : c.dtypes) {
    const TensorList inputs = tensors_of(inputs_of(c, dtype));
    const TensorList eager = in_chain(c, inputs);
    const TensorList compiled = run_compiled(inputs, [&](std::span<const Tensor> in) { return in_chain(c, in); });
    ASSERT_EQ(compiled.size(), eager.size());
    for (size_t k = 0; k < eager.size(); ++k) {
      ASSERT_EQ(compiled[k].spec(), eager[k].spec());
      // Elementwise programs are never contracted, so that fusion changes bits of 16-bit floats only.
      const bool same = !is_floating(dtype) || (has_kernel(c) && op_of(c).expand && epsilon(dtype) < 0x1p-20);
      expect_close(compiled[k], array_of(eager[k]), same ? Tolerance::exact : Tolerance::summed, 2,
                   "compiled chain, result " + std::to_string(k));
    }
  }
}

// Ops that can add a bias and apply an activation: what the compiler makes of act(op(x) + b).
void compiled_with_epilogues(const OpCase& c) {
  const std::pair<const char*, Tensor (*)(const Tensor&)> activations[] = {
      {"none", [](const Tensor& x) { return x; }},
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu_tanh", [](const Tensor& x) { return gelu(x, {.approximate = true}); }}};
  for (const DType dtype : c.dtypes) {
    TensorList inputs = tensors_of(inputs_of(c, dtype));
    const Tensor plain = run(c, inputs)[0];
    const Shape bias = {plain.shape()[-1]};
    inputs.push_back(tensor_of(dtype, bias, weights(bias[0], 7)));
    for (const auto& [name, activation] : activations) {
      if (!is_floating(dtype) && std::string_view(name) != "none" && std::string_view(name) != "relu") continue;
      for (const bool with_bias : {true, false}) {
        const auto body = [&, activation = activation](std::span<const Tensor> in) -> TensorList {
          const Tensor y = run(c, in.first(in.size() - 1))[0];
          return {activation(with_bias ? y + in.back() : y)};
        };
        // Activations of 16-bit floats see a sum that eager execution would have rounded.
        expect_close(run_compiled(inputs, body)[0], array_of(body(inputs)[0]),
                     is_floating(dtype) ? Tolerance::summed : Tolerance::exact, 4, name);
      }
    }
  }
}

void compiled_gradient(const OpCase& c) {
  const DType dtype = DType::float32;
  const TensorList inputs = tensors_of(inputs_of(c, dtype));
  const auto defined_gradients = [&](std::span<const Tensor> in) {
    TensorList result = gradients(c, in);
    std::erase_if(result, [](const Tensor& t) { return !t.defined(); });
    return result;
  };
  const TensorList eager = defined_gradients(inputs);
  const TensorList compiled = run_compiled(inputs, defined_gradients);
  ASSERT_EQ(compiled.size(), eager.size());
  for (size_t k = 0; k < eager.size(); ++k)
    expect_close(compiled[k], array_of(eager[k]), Tolerance::summed, 1, "compiled gradient " + std::to_string(k));
}

// --- shapes and layouts --------------------------------------------------------------------------------------------

void edge_shapes(const OpCase& c) {
  for (const auto& shapes : c.edge_shapes) {
    std::string text = "shapes";
    for (const Shape& shape : shapes) text += detail::concat(' ', shape);
    SCOPED_TRACE(text);
    for (const DType dtype : c.dtypes) {
      const Arrays arrays = inputs_of(c, dtype, shapes);
      check_results(c, arrays, dtype);
      compiled_equals_eager(c, tensors_of(arrays));
    }
    if (c.derivatives > 0) check_gradient(c, inputs_of(c, DType::float64, shapes));
  }
}

// A tensor that is read through other strides than its own memory's.
struct Strided {
  Tensor base;
  std::function<Tensor(const Tensor& base)> view;
};

// The same elements as x, from memory in another order.
Strided transposed(const Tensor& x) {
  return {contiguous(transpose(x), here()), [](const Tensor& base) { return transpose(base); }};
}

Strided reversed(const Tensor& x) {
  const auto flip = [shape = x.shape()](const Tensor& base) {
    Dims end;
    for (const int64_t d : shape) end.push_back(-d - 1);
    return strided_slice(base, Dims::filled(shape.rank(), -1), end, Dims::filled(shape.rank(), -1));
  };
  return {contiguous(flip(x), here()), flip};
}

// Every second element in every dimension; the others would spoil every result.
Strided stepped(const Tensor& x) {
  Shape larger = x.shape();
  for (int d = 0; d < larger.rank(); ++d) larger[d] = 2 * larger[d] + 1;
  Array base(larger, is_floating(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : 100);
  base.dtype = x.dtype();
  const auto elements = values(x);
  size_t i = 0;
  each_index(x.shape(), [&](Dims index) {
    for (int d = 0; d < index.rank(); ++d) index[d] = 2 * index[d] + 1;
    base.at(index) = elements[i++];
  });
  return {tensor_of(base), [larger](const Tensor& t) {
            return strided_slice(t, Dims::filled(larger.rank(), 1), larger, Dims::filled(larger.rank(), 2));
          }};
}

// The first row again and again: not x's elements, so the op is compared on a copy of them.
Strided repeated(const Tensor& x) {
  Shape row = x.shape();
  row[0] = 1;
  return {contiguous(slice(x, Dims::filled(x.rank(), 0), row), here()),
          [shape = x.shape()](const Tensor& base) { return broadcast_to(base, shape); }};
}

void strided_inputs(const OpCase& c) {
  const std::pair<const char*, Strided (*)(const Tensor&)> layouts[] = {
      {"transposed", transposed}, {"reversed", reversed}, {"stepped", stepped}, {"repeated", repeated}};
  for (const auto& [layout, make] : layouts)
    for (const DType dtype : c.dtypes) {
      SCOPED_TRACE(layout);
      std::vector<Strided> strided;
      TensorList bases, views, copies;
      for (const Tensor& x : tensors_of(inputs_of(c, dtype))) {
        if (x.rank() == 0 || x.size() <= 1)
          strided.push_back({x, [](const Tensor& base) { return base; }});
        else
          strided.push_back(make(x));
        bases.push_back(strided.back().base);
        views.push_back(strided.back().view(bases.back()));
        copies.push_back(tensor_of(array_of(views.back())));
      }
      const TensorList expected = run(c, copies);
      expect_same_bits(run(c, views), expected, "eager");
      const auto body = [&](std::span<const Tensor> in) {
        TensorList seen;
        for (size_t i = 0; i < in.size(); ++i) seen.push_back(strided[i].view(in[i]));
        return run(c, seen);
      };
      expect_same_bits(run_compiled(bases, body), expected, "compiled");
    }
}

// --- threads -------------------------------------------------------------------------------------------------------

void threads(const OpCase& c) {
  const OpDef& op = op_of(c);
  const bool promised = c.same_bits_on_threads || find_kernel(DeviceKind::cpu, op, here()).thread_invariant;
  DTypes dtypes = {c.dtypes[0]};
  if (std::find(c.dtypes.begin(), c.dtypes.end(), DType::bfloat16) != c.dtypes.end()) dtypes.push_back(DType::bfloat16);
  for (const DType dtype : dtypes) {
    const Arrays arrays = inputs_of(c, dtype, c.large);
    const TensorList inputs = tensors_of(arrays);
    const Arrays expected = c.reference(arrays);
    const TensorList alone = run_kernel(op, inputs, c.attrs, 1);
    for (const int count : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(count) + " threads");
      const TensorList results = run_kernel(op, inputs, c.attrs, count);
      if (promised || count == 1) expect_same_bits(results, alone, "against one thread");
      for (size_t k = 0; k < results.size() && count < 3; ++k)
        expect_close(results[k], expected[k], c.tolerance, c.slack, "result " + std::to_string(k));
    }
  }
}

// --- refusals ------------------------------------------------------------------------------------------------------

void expect_error(const std::function<void()>& call, ErrorCode code, const std::vector<std::string>& says,
                  std::source_location where) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(code)) << error.what();
    for (const std::string& part : says)
      EXPECT_NE(error.message().find(part), std::string::npos) << "\"" << part << "\" is missing in: " << error.message();
    EXPECT_STREQ(error.where().file_name(), where.file_name()) << error.what();
    return;
  } catch (const std::exception& other) {
    FAIL() << "threw something else than an Error: " << other.what();
  }
  FAIL() << "was accepted";
}

// Dtypes that the case does not name, dtypes that differ between inputs, and the wrong number of inputs.
void refusals(const OpCase& c) {
  const auto refused = [&](const TensorList& inputs, ErrorCode code, const std::vector<std::string>& says) {
    expect_error([&] { run(c, inputs); }, code, says, here());
  };
  std::vector<size_t> free;  // inputs that have the case's dtype
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].dtype == same && !c.inputs[i].derive) free.push_back(i);
  if (!free.empty())
    for (const DType dtype : kAll) {
      if (std::find(c.dtypes.begin(), c.dtypes.end(), dtype) != c.dtypes.end()) continue;
      SCOPED_TRACE(detail::concat("all inputs ", dtype));
      const TensorList inputs = tensors_of(inputs_of(c, dtype));
      refused(inputs, ErrorCode::dtype_mismatch, {c.op + ": ", detail::concat(inputs[free[0]].spec())});
    }
  const TensorList inputs = tensors_of(inputs_of(c, c.dtypes[0]));
  for (size_t k = 1; k < free.size(); ++k) {
    SCOPED_TRACE(detail::concat("input ", free[k], " of another dtype"));
    const DType other = c.dtypes[0] == DType::float64 ? DType::float32 : DType::float64;
    TensorList mixed = inputs;
    mixed[free[k]] = tensor_of(other, inputs[free[k]].shape(), values(inputs[free[k]]));
    refused(mixed, ErrorCode::dtype_mismatch, {c.op + ": ", detail::concat(mixed[free[k]].spec())});
  }
  const OpDef& op = op_of(c);
  SCOPED_TRACE("wrong number of inputs");
  if (static_cast<int>(inputs.size()) == op.min_inputs && !inputs.empty())
    refused({inputs.begin(), inputs.end() - 1}, ErrorCode::invalid_argument, {c.op + ": ", "inputs, received"});
  if (op.max_inputs >= 0) {
    TensorList more = inputs;
    more.resize(static_cast<size_t>(op.max_inputs) + 1, sample({}));
    refused(more, ErrorCode::invalid_argument, {c.op + ": ", "inputs, received"});
  }
  if (!inputs.empty()) {
    TensorList none = inputs;
    none.back() = Tensor();
    refused(none, ErrorCode::invalid_argument, {c.op + ": ", "none"});
  }
}

// --- registration --------------------------------------------------------------------------------------------------

const OpCases& all_cases();

bool differentiates(const OpCase& c) {
  const bool in_double = std::find(c.dtypes.begin(), c.dtypes.end(), DType::float64) != c.dtypes.end();
  return c.derivatives > 0 && in_double;
}

struct Check {
  const char* name;
  bool (*applies)(const OpCase&);
  void (*run)(const OpCase&);
};

constexpr Check kChecks[] = {
    {"Values", [](const OpCase&) { return true; }, values_against_reference},
    {"Function", [](const OpCase& c) { return has_kernel(c) && c.function; }, function_gives_the_op},
    {"Gradient", differentiates, gradient_against_differences},
    {"GradientDTypes", differentiates, gradient_in_every_dtype},
    {"SecondDerivative", [](const OpCase& c) { return differentiates(c) && c.derivatives > 1; },
     second_derivative_against_differences},
    {"NoGradient", [](const OpCase& c) { return c.derivatives == 0; }, no_gradient},
    {"Compiled", [](const OpCase&) { return true; }, compiled_alone},
    {"CompiledChain", [](const OpCase&) { return true; }, compiled_in_a_chain},
    {"CompiledEpilogue", [](const OpCase& c) { return has_kernel(c) && op_of(c).with_epilogue; }, compiled_with_epilogues},
    {"CompiledGradient", differentiates, compiled_gradient},
    {"EdgeShapes", [](const OpCase& c) { return !c.edge_shapes.empty(); }, edge_shapes},
    {"Strided", [](const OpCase&) { return true; }, strided_inputs},
    {"Threads", [](const OpCase& c) { return has_kernel(c) && !c.large.empty(); }, threads},
    {"Refusals", has_kernel, refusals},
};

class CheckTest final : public ::testing::Test {
 public:
  explicit CheckTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

void add_test(const char* suite, const std::string& name, std::source_location where, const std::function<void()>& body) {
  ::testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, where.file_name(), static_cast<int>(where.line()),
                          [=]() -> ::testing::Test* {
                            return new CheckTest([=] {
                              const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), name);
                              body();
                            });
                          });
}

constexpr const Family* kFamilies[] = {&kElementwiseFamily, &kMatmulFamily, &kReduceFamily, &kArrayFamily, &kNnFamily,
                                       &kConvFamily,        &kRandomFamily, &kUpdateFamily, &kCollectiveFamily};

const OpCases& all_cases() {
  static const OpCases cases = [] {
    OpCases all;
    for (const Family* family : kFamilies)
      for (OpCase& c : family->cases()) all.push_back(std::move(c));
    return all;
  }();
  return cases;
}

void register_tests() {
  for (const Check& check : kChecks)
    for (const OpCase& c : all_cases()) {
      // A case whose op does not exist fails in the test of coverage below.
      if (!c.op.empty() && !find_op(c.op)) continue;
      if (check.applies(c)) add_test(check.name, c.name, c.where, [&check, &c] { check.run(c); });
    }
  for (const Family* family : kFamilies)
    for (const BadCall& bad : family->bad_calls())
      add_test("BadCall", bad.name, bad.where, [bad] { expect_error(bad.call, bad.code, bad.says, bad.where); });
}

// --- coverage ------------------------------------------------------------------------------------------------------

std::map<std::string, std::vector<const OpCase*>> cases_by_op() {
  std::map<std::string, std::vector<const OpCase*>> result;
  for (const OpCase& c : all_cases()) result[c.op].push_back(&c);
  return result;
}

TEST(Coverage, EveryRegisteredOpHasCases) {
  const auto cases = cases_by_op();
  for (const OpDef* op : registered_ops())
    EXPECT_TRUE(cases.contains(std::string(op->name))) << "op \"" << op->name << "\" has no case in tests/ops";
}

TEST(Coverage, EveryCaseIsOfARegisteredOp) {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) {
    EXPECT_TRUE(c.op.empty() || find_op(c.op)) << "case \"" << c.name << "\" is of the unknown op \"" << c.op << "\"";
    EXPECT_TRUE(names.insert(c.name).second) << "two cases are called \"" << c.name << "\"";
    EXPECT_FALSE(c.op.empty() && !c.function) << "case \"" << c.name << "\" has neither an op nor a function";
  }
}

TEST(Coverage, CasesKnowWhichOpsHaveNoGradient) {
  for (const auto& [op, cases] : cases_by_op())
    for (const OpCase* c : cases)
      if (const OpDef* def = find_op(op)) EXPECT_EQ(c->derivatives > 0, def->grad != nullptr) << c->name;
}

TEST(Coverage, EveryKernelIsRunWithThreads) {
  for (const auto& [op, cases] : cases_by_op())
    if (std::any_of(cases.begin(), cases.end(), [](const OpCase* c) { return has_kernel(*c); }))
      EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [](const OpCase* c) { return !c->large.empty(); }))
          << "no case of op \"" << op << "\" is large";
}

TEST(Coverage, EveryOpIsRunEmpty) {
  const auto is_empty = [](const Array& a) { return a.shape.size() == 0; };
  for (const auto& [op, cases] : cases_by_op()) {
    bool found = false;
    for (const OpCase* c : cases) {
      found = found || std::any_of(c->edge_shapes.begin(), c->edge_shapes.end(), [](const std::vector<Shape>& shapes) {
        return std::any_of(shapes.begin(), shapes.end(), [](const Shape& s) { return s.size() == 0; });
      });
      const Arrays in = inputs_of(*c, c->dtypes[0]);
      const Arrays out = c->reference(in);
      found = found || std::any_of(in.begin(), in.end(), is_empty) || std::any_of(out.begin(), out.end(), is_empty);
    }
    EXPECT_TRUE(found) << "no case of op \"" << op << "\" has an empty tensor";
  }
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::testing::register_tests();
  return RUN_ALL_TESTS();
}
