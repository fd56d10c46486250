// The compiled function against eager execution: alone, among neighbours, with epilogues, and its gradient.
#include <algorithm>

#include "lockstep/ops/math.h"
#include "ops/op_checks.h"

namespace lockstep::testing {

void compiled_equals_eager(const OpCase& c, const TensorList& inputs) {
  const TensorList compiled = run_compiled(inputs, [&](std::span<const Tensor> in) { return run(c, in); });
  expect_same_bits(compiled, run(c, inputs), "compiled");
}

namespace {

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
  return is_floating(y.dtype()) ? (y * 3.0) * 0.7 : y + y;
}

// What is read besides the end of the chain. A kernel may write over its input where nobody reads that any
// more.
struct Live {
  bool inputs, results;
};

TensorList in_chain(const OpCase& c, std::span<const Tensor> inputs, Live live) {
  TensorList prepared, seen;
  for (const Tensor& input : inputs) prepared.push_back(before(input));
  const TensorList results = run(c, prepared);
  for (const Tensor& result : results) seen.push_back(after(result));
  if (live.results) seen.insert(seen.end(), results.begin(), results.end());
  if (live.inputs)
    for (const Tensor& input : prepared) seen.push_back(after(input));
  return seen;
}

void compare_chain(const OpCase& c, DType dtype, Live live) {
  const TensorList inputs = tensors_of(inputs_of(c, dtype));
  const auto body = [&](std::span<const Tensor> in) { return in_chain(c, in, live); };
  const TensorList eager = body(inputs);
  const TensorList compiled = run_compiled(inputs, body);
  ASSERT_EQ(compiled.size(), eager.size());
  for (size_t k = 0; k < eager.size(); ++k) {
    ASSERT_EQ(compiled[k].spec(), eager[k].spec());
    // Elementwise programs are never contracted, so that fusion changes bits of 16-bit floats only.
    const double coarsest = std::max(epsilon(dtype), epsilon(eager[k].dtype()));
    const bool same = coarsest == 0 || (coarsest < 0x1p-20 && has_kernel(c) && op_of(c).expand);
    expect_close(compiled[k], array_of(eager[k]), same ? Tolerance::exact : Tolerance::summed, 2,
                 "compiled chain, result " + std::to_string(k));
  }
}

void compiled_in_a_chain(const OpCase& c) {
  for (const DType dtype : c.dtypes)
    for (const Live live : {Live{false, false}, Live{true, false}, Live{true, true}})
      compare_chain(c, dtype, live);
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
      if (!is_floating(dtype) && std::string_view(name) != "none" && std::string_view(name) != "relu")
        continue;
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
    expect_close(compiled[k], array_of(eager[k]), Tolerance::summed, 1,
                 "compiled gradient " + std::to_string(k));
}

}  // namespace

const std::vector<Check> kCompileChecks = {
    {"Compiled", [](const OpCase&) { return true; }, compiled_alone},
    {"CompiledChain", [](const OpCase&) { return true; }, compiled_in_a_chain},
    {"CompiledEpilogue", [](const OpCase& c) { return has_kernel(c) && op_of(c).with_epilogue != nullptr; },
     compiled_with_epilogues},
    {"CompiledGradient", [](const OpCase& c) { return c.derivatives > 0 && in_dtype(c, DType::float32); },
     compiled_gradient},
};

}  // namespace lockstep::testing
