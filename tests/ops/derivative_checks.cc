// First and second derivatives against finite differences.
#include <algorithm>
#include <cmath>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/op_checks.h"

namespace lockstep::testing {

std::vector<double> weights(int64_t count, uint64_t seed) {
  return normal({count}).draw({count}, 1000 + seed);
}

namespace {

// Compares derivatives: the bound is relative to the largest of them, and to 1.
void expect_derivative(const std::vector<double>& got, const std::vector<double>& want, double bound,
                       std::string_view what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double scale = std::max(1.0, largest(want));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], bound * scale) << what << ": element " << i << " of " << got.size();
}

bool differentiable_result(const OpCase& c, size_t k, DType dtype) {
  return is_floating(dtype) &&
         (c.differentiable_results < 0 || k < static_cast<size_t>(c.differentiable_results));
}

constexpr size_t kEvery = SIZE_MAX;

// A random weighted sum of the results, or of one of them: its gradient holds every element of the Jacobian.
double weighted_sum(const OpCase& c, const Arrays& results, size_t only) {
  double sum = 0;
  for (size_t k = 0; k < results.size(); ++k) {
    if ((only != kEvery && k != only) || !differentiable_result(c, k, c.results[k](DType::float64))) continue;
    const auto w = weights(results[k].shape.size(), k);
    for (size_t i = 0; i < w.size(); ++i) sum += w[i] * results[k].values[i];
  }
  return sum;
}

Tensor weighted_sum(const OpCase& c, const TensorList& results, size_t only) {
  Tensor sum;
  for (size_t k = 0; k < results.size(); ++k) {
    if ((only != kEvery && k != only) || !differentiable_result(c, k, results[k].dtype())) continue;
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

// Central differences of f with respect to the elements of inputs[i].
std::vector<double> differences(const OpCase& c, Arrays inputs, size_t i,
                                const std::function<double(const Arrays&)>& f) {
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

// The gradient of the weighted sum with respect to the inputs that are watched; undefined for the others.
TensorList gradients_of(const OpCase& c, std::span<const Tensor> inputs, size_t only_input,
                        size_t only_result) {
  const auto watched = [&](size_t i) {
    return (only_input == kEvery || i == only_input) && is_floating(inputs[i].dtype());
  };
  GradientTape tape;
  std::vector<GradientSource> sources;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!watched(i)) continue;
    tape.watch(inputs[i]);
    sources.emplace_back(inputs[i]);
  }
  const TensorList found = tape.gradient(weighted_sum(c, run(c, inputs), only_result), sources);
  TensorList all;
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) all.push_back(watched(i) ? found[next++] : Tensor());
  return all;
}

}  // namespace

TensorList gradients(const OpCase& c, std::span<const Tensor> inputs) {
  return gradients_of(c, inputs, kEvery, kEvery);
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
    const auto want =
        differences(c, arrays, i, [&](const Arrays& in) { return weighted_sum(c, c.reference(in), kEvery); });
    expect_derivative(values(found[i]), want, 1e-6, what);
  }
}

namespace {

void gradient_against_differences(const OpCase& c) { check_gradient(c, inputs_of(c, DType::float64)); }

// Rules leave out what nobody asked for: one input's gradient alone, and one result's contribution alone.
void gradient_in_parts(const OpCase& c) {
  const Arrays arrays = inputs_of(c, DType::float64);
  const TensorList inputs = tensors_of(arrays);
  const TensorList whole = gradients(c, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!flows(c, i, inputs[i].dtype())) continue;
    const Tensor alone = gradients_of(c, inputs, i, kEvery)[i];
    ASSERT_TRUE(alone.defined());
    expect_derivative(values(alone), values(whole[i]), 1e-12,
                      "gradient of input " + std::to_string(i) + " alone");
  }
  for (size_t k = 0; k < c.results.size() && c.results.size() > 1; ++k) {
    if (!differentiable_result(c, k, c.results[k](DType::float64))) continue;
    const TensorList found = gradients_of(c, inputs, kEvery, k);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!flows(c, i, inputs[i].dtype())) continue;
      const auto want =
          differences(c, arrays, i, [&](const Arrays& in) { return weighted_sum(c, c.reference(in), k); });
      expect_derivative(values_or_zeros(found[i], want.size()), want, 1e-6,
                        "gradient of result " + std::to_string(k) + " alone, input " + std::to_string(i));
    }
  }
}

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
    const auto want = differences(
        c, arrays, i, [&](const Arrays& in) { return sum_of_gradients(tensors_of(in)).item<double>(); });
    expect_derivative(values_or_zeros(found[i], want.size()), want, 1e-5,
                      "second derivative of input " + std::to_string(i));
  }
}

void no_gradient(const OpCase& c) {
  const DType dtype = in_dtype(c, DType::float64) ? DType::float64 : c.dtypes[0];
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
    if (is_floating(input.dtype())) {
      EXPECT_FALSE(tape.gradient(sum, input).defined());
    }
}

bool differentiates(const OpCase& c) { return c.derivatives > 0 && in_dtype(c, DType::float64); }

}  // namespace

const std::vector<Check> kDerivativeChecks = {
    {"Gradient", differentiates, gradient_against_differences},
    {"GradientParts", differentiates, gradient_in_parts},
    {"GradientDTypes", differentiates, gradient_in_every_dtype},
    {"SecondDerivative", [](const OpCase& c) { return differentiates(c) && c.derivatives > 1; },
     second_derivative_against_differences},
    {"NoGradient", [](const OpCase& c) { return c.derivatives == 0; }, no_gradient},
};

}  // namespace lockstep::testing
