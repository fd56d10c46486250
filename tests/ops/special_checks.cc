// NaN, infinities, zeros with a sign and the largest numbers: through every op against its reference where it
// works element by element, and compiled against eager execution: alone, with every epilogue, among
// neighbours, and its gradient. Whatever the compiler joins, and whichever library computes it, the result is
// that of the op alone.
#include <cmath>
#include <limits>

#include "lockstep/ops/math.h"
#include "ops/op_checks.h"

namespace lockstep::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> kSpecial = {kNaN, kInf, -kInf, -0.0, 0.0};

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::float64: return std::numeric_limits<double>::max();
    case DType::bfloat16: return 0x1.fep127;
    case DType::float16: return 65504;
    default: return std::numeric_limits<float>::max();
  }
}

// Elementwise: an element of the result depends on those of the inputs at its place alone.
bool by_element(const OpCase& c) { return c.elementwise || (has_kernel(c) && op_of(c).expand != nullptr); }

DTypes floats_of(const OpCase& c) {
  DTypes floats;
  for (const DType dtype : c.dtypes)
    if (is_floating(dtype)) floats.push_back(dtype);
  return floats;
}

// Equal: NaN to NaN, infinities by their sign, zeros by theirs where both are zeros, other numbers nearly.
void expect_equal(const TensorList& got, const TensorList& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].spec(), want[k].spec()) << what;
    const std::vector<double> a = values(got[k]), b = values(want[k]);
    const double scale = std::max(largest(b), 1e-30), bound = 64 * epsilon(got[k].dtype()) * scale;
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      const bool zeros = a[i] == 0 && b[i] == 0;
      const bool equal = zeros ? std::signbit(a[i]) == std::signbit(b[i])
                               : a[i] == b[i] || (std::isfinite(b[i]) && std::abs(a[i] - b[i]) <= bound);
      ASSERT_TRUE(equal) << what << ", " << got[k].dtype() << ": element " << i << " of " << a.size()
                         << " of result " << k << " is " << a[i] << ", eagerly " << b[i];
    }
  }
}

// What `body` gives eagerly and compiled; where it refuses the numbers, so it does compiled, unless nothing
// that it gives needs the op that refuses (`all_needed` is false).
void expect_compiled_equal(const TensorList& inputs, const FunctionCore::Body& body, const std::string& what,
                           bool all_needed = true) {
  TensorList eager;
  try {
    eager = body(inputs);
    current_device().synchronize();
  } catch (const Error& error) {
    if (error.message().find("no kernel for") != std::string::npos) throw;
    if (!all_needed) return;
    EXPECT_THROW(
        {
          run_compiled(inputs, body);
          current_device().synchronize();
        },
        Error)
        << what;
    return;
  }
  expect_equal(run_compiled(inputs, body), eager, what);
}

// f(inputs, text) with one element of one input replaced, for every such input and number. Elementwise ops
// take all the numbers at once.
template <class F>
void each_special(const OpCase& c, DType dtype, std::span<const Shape> shapes, F f) {
  const Arrays plain = inputs_of(c, dtype, shapes);
  for (size_t i = 0; i < plain.size(); ++i) {
    const auto count = plain[i].values.size();
    if (!is_floating(plain[i].dtype) || c.inputs[i].derive || count == 0) continue;
    std::vector<double> numbers = kSpecial;
    if (by_element(c)) {
      numbers.insert(numbers.end(), {largest_of(plain[i].dtype), -largest_of(plain[i].dtype)});
      Arrays changed = plain;
      for (size_t k = 0; k < count; ++k) changed[i].values[k] = numbers[k % numbers.size()];
      f(tensors_of(changed), "input " + std::to_string(i) + " of special numbers");
      continue;
    }
    for (const double number : numbers) {
      Arrays changed = plain;
      changed[i].values[count / 2] = number;
      derive_again(c, changed);
      f(tensors_of(changed), "input " + std::to_string(i) + " with " + std::to_string(number));
    }
  }
}

void special_reference(const OpCase& c) {
  for (const DType dtype : floats_of(c)) {
    // Every pair of them.
    const auto n = static_cast<int64_t>(kSpecial.size()) + 1;
    const int64_t size = c.inputs.size() == 1 ? n : n * n;
    std::vector<double> numbers = kSpecial;
    numbers.push_back(1.5);
    Arrays arrays;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      Array array({size});
      array.dtype = dtype;
      for (int64_t k = 0; k < size; ++k)
        array.values[static_cast<size_t>(k)] = numbers[static_cast<size_t>(i == 0 ? k % n : k / n)];
      arrays.push_back(std::move(array));
    }
    const TensorList results = run(c, tensors_of(arrays));
    const Arrays want = c.reference(arrays);
    for (size_t k = 0; k < results.size(); ++k)
      expect_close(results[k], want[k], Tolerance::summed, 4, "special numbers");
  }
}

void special_compiled(const OpCase& c) {
  for (const DType dtype : floats_of(c))
    each_special(c, dtype, {}, [&](const TensorList& inputs, const std::string& what) {
      expect_compiled_equal(
          inputs, [&](std::span<const Tensor> in) { return run(c, in); }, what);
    });
}

void special_chain(const OpCase& c) {
  const auto body = [&](std::span<const Tensor> in) {
    TensorList prepared;
    for (const Tensor& x : in) prepared.push_back(is_floating(x.dtype()) ? (x * 0.5) * 2.0 : x);
    TensorList results = run(c, prepared);
    for (Tensor& y : results)
      if (is_floating(y.dtype())) y = relu(y * 3.0) - minimum(y, 0.5);
    return results;
  };
  each_special(c, DType::float32, {}, [&](const TensorList& inputs, const std::string& what) {
    expect_compiled_equal(inputs, body, what);
  });
}

void special_epilogues(const OpCase& c) {
  const std::pair<const char*, Tensor (*)(const Tensor&)> activations[] = {
      {"none", [](const Tensor& x) { return x; }},
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu_tanh", [](const Tensor& x) { return gelu(x, {.approximate = true}); }}};
  std::vector<std::vector<Shape>> sizes = {{}};
  if (!c.large.empty()) sizes.push_back(c.large);
  for (const DType dtype : floats_of(c))
    for (const std::vector<Shape>& shapes : sizes)
      for (const auto& [name, activation] : activations) {
        const auto body = [&, activation = activation](std::span<const Tensor> in) -> TensorList {
          return {activation(run(c, in)[0])};
        };
        each_special(c, dtype, shapes, [&, name = name](const TensorList& inputs, const std::string& what) {
          expect_compiled_equal(inputs, body, std::string(name) + ", " + what);
        });
        // The bias brings each of them to every column.
        TensorList inputs = tensors_of(inputs_of(c, dtype, shapes));
        const int64_t columns = run(c, inputs)[0].shape()[-1];
        std::vector<double> numbers = kSpecial;
        // 16-bit floats are rounded once compiled and twice eagerly, which would be infinity at their end.
        const double large = largest_of(dtype) / (epsilon(dtype) > 0x1p-20 ? 2 : 1);
        numbers.insert(numbers.end(), {large, -large});
        for (size_t first = 0; first < numbers.size(); ++first) {
          std::vector<double> bias;
          for (int64_t k = 0; k < columns; ++k)
            bias.push_back(numbers[(first + static_cast<size_t>(k)) % numbers.size()]);
          inputs.push_back(tensor_of(dtype, {columns}, bias));
          const auto with_bias = [&, activation = activation](std::span<const Tensor> in) -> TensorList {
            return {activation(run(c, in.first(in.size() - 1))[0] + in.back())};
          };
          expect_compiled_equal(inputs, with_bias, std::string(name) + " behind a bias");
          inputs.pop_back();
        }
      }
}

void special_gradient(const OpCase& c) {
  each_special(c, DType::float32, {}, [&](const TensorList& inputs, const std::string& what) {
    const auto body = [&](std::span<const Tensor> in) {
      TensorList found = gradients(c, in);
      std::erase_if(found, [](const Tensor& t) { return !t.defined(); });
      return found;
    };
    expect_compiled_equal(inputs, body, what, false);
  });
}

bool has_floats(const OpCase& c) { return !floats_of(c).empty(); }

bool has_float_reference(const OpCase& c) {
  return by_element(c) && has_floats(c) && c.inputs.size() <= 2 &&
         !is_integer(c.results[0](DType::float32)) &&
         std::all_of(c.inputs.begin(), c.inputs.end(),
                     [](const Input& input) { return input.dtype == same && !input.derive; });
}

}  // namespace

const std::vector<Check> kSpecialChecks = {
    {"SpecialReference", has_float_reference, special_reference},
    {"SpecialCompiled", has_floats, special_compiled},
    {"SpecialChain", [](const OpCase& c) { return in_dtype(c, DType::float32); }, special_chain},
    {"SpecialEpilogue",
     [](const OpCase& c) { return has_kernel(c) && op_of(c).with_epilogue && has_floats(c); },
     special_epilogues},
    {"SpecialGradient", [](const OpCase& c) { return c.derivatives != 0 && in_dtype(c, DType::float32); },
     special_gradient},
};

}  // namespace lockstep::testing
