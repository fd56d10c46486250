// For tests: runs the kernel of one op on the current device with a chosen number of threads, and makes test
// data.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/parallel.h"
#include "graph/eager.h"
#include "graph/kernel.h"
#include "tensor/tensor_impl.h"

namespace lockstep::testing {

inline TensorList run_kernel(const OpDef& op, const TensorList& inputs, const Attrs& attrs, int threads) {
  const auto where = std::source_location::current();
  Device& device = current_device();
  const KernelDef& def = find_kernel(device.kind(), op, where);
  TensorList held;
  std::vector<OperandLayout> in, out;
  SpecList specs;
  std::vector<void*> pointers;
  for (const Tensor& input : inputs) {
    held.push_back(def.strided_inputs ? input : contiguous(input, where));
    in.push_back({held.back().spec(), held.back().impl()->strides});
    specs.push_back(held.back().spec());
    pointers.push_back(held.back().impl()->data());
  }
  TensorList outputs;
  for (const TensorSpec& spec : op.infer(InferContext{op, specs, attrs, where})) {
    outputs.push_back(Tensor::empty(spec.dtype, spec.shape));
    out.push_back({spec, outputs.back().impl()->strides});
    pointers.push_back(outputs.back().impl()->data());
  }
  backend_of(device).bind_thread();
  const TeamScope team(threads);
  const auto kernel = def.prepare(
      {.op = op, .attributes = attrs, .inputs = in, .outputs = out, .threads = threads, .where = where});
  const Storage workspace(device, kernel->workspace_bytes(), where);
  kernel->launch({pointers.data(), pointers.data() + held.size(), workspace.data(),
                  backend_of(device).compute_stream()});
  return outputs;
}

// Elements of any dtype as doubles.
inline std::vector<double> values(const Tensor& tensor) {
  return dispatch(tensor.dtype(), [&]<class T>() {
    std::vector<double> result;
    for (const T x : tensor.to_vector<T>()) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
        result.push_back(static_cast<float>(x));
      else
        result.push_back(static_cast<double>(x));
    }
    return result;
  });
}

// A tensor of these numbers, converted to the dtype.
inline Tensor tensor_of(DType dtype, const Shape& shape, const std::vector<double>& numbers) {
  return dispatch(dtype, [&]<class T>() {
    std::vector<T> elements;
    for (const double x : numbers) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
        elements.push_back(T(static_cast<float>(x)));
      else
        elements.push_back(static_cast<T>(x));
    }
    return Tensor::from(elements, shape);
  });
}

// Normal numbers for floating dtypes, small integers for the others.
inline Tensor random_tensor(DType dtype, const Shape& shape, unsigned seed = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers;
  for (int64_t i = 0; i < shape.size(); ++i) {
    const double x = normal(engine);
    numbers.push_back(is_floating(dtype) ? x : dtype == DType::boolean ? x > 0 : std::abs(std::round(3 * x)));
  }
  return tensor_of(dtype, shape, numbers);
}

// The same bits in every element, NaN included.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!(a.spec() == b.spec())) return false;
  return dispatch(a.dtype(), [&]<class T>() {
    const auto x = a.to_vector<T>();
    const auto y = b.to_vector<T>();
    if constexpr (std::is_same_v<T, bool>)
      return x == y;
    else
      return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
  });
}

}  // namespace lockstep::testing
