#include "ops/op_case.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace lockstep::testing {
namespace {

// SplitMix64: the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double within(double low, double high) { return low + (high - low) * unit(); }
  double normal() { return std::sqrt(-2 * std::log(1 - unit())) * std::cos(2 * std::numbers::pi * unit()); }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  double sign() { return bits() & 1 ? 1 : -1; }

 private:
  uint64_t state_;
};

template <class F>
Input drawn(const Shape& shape, F f, DTypeRule dtype = same, double integers_per_unit = 4) {
  return {.shape = shape,
          .draw =
              [f](const Shape& actual, uint64_t seed) {
                Random random(seed);
                std::vector<double> values(static_cast<size_t>(actual.size()));
                for (double& value : values) value = f(random);
                return values;
              },
          .dtype = dtype,
          .integers_per_unit = integers_per_unit};
}

}  // namespace

DTypeRule always_dtype(DType dtype) {
  constexpr DTypeRule rules[] = {always<DType::float32>, always<DType::float64>, always<DType::bfloat16>,
                                 always<DType::float16>, always<DType::int32>,   always<DType::int64>,
                                 always<DType::uint8>,   always<DType::boolean>};
  return rules[static_cast<size_t>(dtype)];
}

size_t Array::position(const Dims& index) const {
  int64_t position = 0;
  for (int d = 0; d < shape.rank(); ++d) position = position * shape[d] + index[d];
  return static_cast<size_t>(position);
}

Arrays broadcast_each(const Arrays& in, int results, const std::function<void(const double*, double*)>& f) {
  Shape shape = in[0].shape;
  for (const Array& array : in) shape = broadcast(shape, array.shape, "reference");
  std::vector<Strides> strides;
  for (const Array& array : in)
    strides.push_back(broadcast_strides(array.shape, contiguous_strides(array.shape), shape));
  Arrays out(static_cast<size_t>(results), Array(shape));
  std::vector<double> x(in.size()), y(out.size());
  std::vector<int64_t> position(in.size(), 0);
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()), 0);
  for (size_t element = 0; element < out[0].values.size(); ++element) {
    for (size_t i = 0; i < in.size(); ++i) x[i] = in[i].values[static_cast<size_t>(position[i])];
    f(x.data(), y.data());
    for (size_t k = 0; k < out.size(); ++k) out[k].values[element] = y[k];
    for (int d = shape.rank() - 1; d >= 0; --d) {
      int64_t& at = index[static_cast<size_t>(d)];
      const bool wraps = ++at == shape[d];
      for (size_t i = 0; i < in.size(); ++i) position[i] += strides[i][d] * (wraps ? 1 - at : 1);
      if (!wraps) break;
      at = 0;
    }
  }
  return out;
}

Input normal(const Shape& shape) {
  return drawn(shape, [](Random& random) { return random.normal(); });
}

Input within(const Shape& shape, double low, double high) {
  return drawn(shape, [=](Random& random) { return random.within(low, high); });
}

Input integers(const Shape& shape, int64_t low, int64_t high) {
  return drawn(
      shape, [=](Random& random) { return static_cast<double>(low + random.below(high - low + 1)); }, same,
      1);
}

Input off_zero(const Shape& shape) {
  return drawn(shape, [](Random& random) { return random.sign() * random.within(0.25, 2); });
}

Input off_integers(const Shape& shape) {
  return drawn(shape, [](Random& random) {
    return static_cast<double>(random.below(7)) - 3 + random.within(0.2, 0.8);
  });
}

Input distinct(const Shape& shape) {
  return {.shape = shape, .draw = [](const Shape& actual, uint64_t seed) {
            Random random(seed);
            std::vector<double> values(static_cast<size_t>(actual.size()));
            std::iota(values.begin(), values.end(), -std::floor(static_cast<double>(values.size()) / 2));
            for (size_t i = values.size(); i > 1; --i)
              std::swap(values[i - 1], values[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
            for (double& value : values) value *= 0.25;
            return values;
          }};
}

Input booleans(const Shape& shape) {
  return drawn(
      shape, [](Random& random) { return random.unit() < 0.5 ? 1.0 : 0.0; }, always<DType::boolean>);
}

Input indices(const Shape& shape, int64_t below, DType dtype) {
  return drawn(
      shape, [=](Random& random) { return static_cast<double>(random.below(below)); }, always_dtype(dtype),
      1);
}

Input given(const Shape& shape, std::vector<double> values) {
  return {.shape = shape,
          .draw = [values = std::move(values)](const Shape&, uint64_t) { return values; },
          .integers_per_unit = 1};
}

Input derived(std::function<Array(const Arrays&)> derive, DTypeRule dtype) {
  return {.shape = {}, .derive = std::move(derive), .dtype = dtype, .integers_per_unit = 1};
}

OpCase named(const CaseName& name, OpCase c) {
  c.name = name;
  return c;
}

OpCase with_edges(OpCase c, std::vector<std::vector<Shape>> edge_shapes) {
  c.edge_shapes = std::move(edge_shapes);
  return c;
}

OpCase with_large(OpCase c, std::vector<Shape> large) {
  c.large = std::move(large);
  return c;
}

OpCase with_derivatives(int derivatives, OpCase c) {
  c.derivatives = derivatives;
  return c;
}

OpCase threads_only(OpCase c) {
  c.threads_only = true;
  return c;
}

Tensor sample(const Shape& shape, DType dtype) { return Tensor::full(dtype, shape, 1); }

}  // namespace lockstep::testing
