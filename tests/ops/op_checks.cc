#include "ops/op_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/emit.h"

namespace lockstep::testing {
namespace {

// Integers have no infinity, and no number for NaN.
int64_t whole(double x) { return std::abs(x) < 0x1p63 ? static_cast<int64_t>(x) : 0; }

// The number as a tensor of this dtype holds it. Integers wrap around.
double held(double x, DType dtype) {
  switch (dtype) {
    case DType::float32: return static_cast<float>(x);
    case DType::float64: return x;
    case DType::bfloat16: return static_cast<float>(BFloat16(static_cast<float>(x)));
    case DType::float16: return static_cast<float>(Float16(static_cast<float>(x)));
    case DType::int32: return static_cast<int32_t>(whole(x));
    case DType::int64: return static_cast<double>(whole(x));
    case DType::uint8: return static_cast<uint8_t>(whole(x));
    case DType::boolean: break;
  }
  return x != 0 ? 1 : 0;
}

double smallest(DType dtype) {
  switch (dtype) {
    case DType::float64: return std::numeric_limits<double>::denorm_min();
    case DType::float16: return 0x1p-24;
    default: return std::numeric_limits<float>::denorm_min();
  }
}

// Results below it may be zero. float16's are computed in float32.
double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::float64: return std::numeric_limits<double>::min();
    case DType::float16: return 0;
    default: return std::numeric_limits<float>::min();
  }
}

// Units in the last place. 16-bit floats are computed in float32 and rounded once.
double ulps(Tolerance tolerance, DType dtype) {
  if (tolerance == Tolerance::exact) return 0;
  const bool half = dtype == DType::bfloat16 || dtype == DType::float16;
  return half ? 1 : tolerance == Tolerance::rounded ? 4 : 16;
}

}  // namespace

Tensor tensor_of(const Array& array) { return tensor_of(array.dtype, array.shape, array.values); }

TensorList tensors_of(const Arrays& arrays) {
  TensorList tensors;
  for (const Array& array : arrays) tensors.push_back(tensor_of(array));
  return tensors;
}

Arrays inputs_of(const OpCase& c, DType dtype, std::span<const Shape> shapes) {
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

void derive_again(const OpCase& c, Arrays& arrays) {
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].derive) {
      const DType dtype = arrays[i].dtype;
      arrays[i] = c.inputs[i].derive(Arrays(arrays.begin(), arrays.begin() + static_cast<ptrdiff_t>(i)));
      arrays[i].dtype = dtype;
    }
}

Array array_of(const Tensor& tensor) {
  Array array(tensor.shape());
  array.values = values(tensor);
  array.dtype = tensor.dtype();
  return array;
}

const OpDef& op_of(const OpCase& c) {
  const OpDef* op = find_op(c.op);
  require(op != nullptr, ErrorCode::not_found, c.name.where, "no op \"", c.op, "\" is registered");
  return *op;
}

bool in_dtype(const OpCase& c, DType dtype) {
  return std::find(c.dtypes.begin(), c.dtypes.end(), dtype) != c.dtypes.end();
}

bool has_kernel(const OpCase& c) { return !c.op.empty() && !c.by_function; }

TensorList run(const OpCase& c, std::span<const Tensor> inputs, std::source_location where) {
  return has_kernel(c) ? emit(op_of(c), inputs, c.attrs, where) : c.function(inputs);
}

TensorList run_compiled(std::span<const Tensor> inputs, FunctionCore::Body body) {
  FunctionCore core(std::move(body), {}, here());
  return core.call(inputs, here());
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float32: return 0x1p-23;
    case DType::float64: return 0x1p-52;
    case DType::bfloat16: return 0x1p-7;
    case DType::float16: return 0x1p-10;
    default: return 0;
  }
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double x : values)
    if (std::isfinite(x)) result = std::max(result, std::abs(x));
  return result;
}

void expect_close(const Tensor& got, const Array& want, Tolerance tolerance, double slack,
                  std::string_view what) {
  ASSERT_EQ(got.shape(), want.shape) << what;
  const DType dtype = got.dtype();
  const std::vector<double> elements = values(got);
  const double scale = tolerance == Tolerance::summed ? largest(want.values) : 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    const double expected =
        is_floating(dtype) && tolerance != Tolerance::exact ? want.values[i] : held(want.values[i], dtype);
    if (elements[i] == expected || (std::isnan(elements[i]) && std::isnan(expected))) continue;
    if (elements[i] == held(expected, dtype)) continue;  // too large or too small for the dtype
    if (elements[i] == 0 && std::abs(expected) < smallest_normal(dtype)) continue;  // flushed to zero
    const double bound = slack * ulps(tolerance, dtype) *
                         (epsilon(dtype) * std::max(scale, std::abs(expected)) + smallest(dtype));
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
          << what << ", result " << k << ", " << got[k].dtype() << ": element " << i << " of " << a.size()
          << " is " << a[i] << " and should be " << b[i];
  }
}

}  // namespace lockstep::testing
