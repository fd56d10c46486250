// Shapes at the edge of what is legal, strided inputs, and threads.
#include <limits>

#include "graph/eager.h"
#include "graph/kernel.h"
#include "lockstep/ops/array.h"
#include "ops/op_checks.h"

namespace lockstep::testing {
namespace {

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
      const auto compare = [&](const TensorList& results, std::string_view what) {
        if (!c.layout_chooses_algorithm) return expect_same_bits(results, expected, what);
        for (size_t k = 0; k < results.size(); ++k)
          expect_close(results[k], array_of(expected[k]), c.tolerance, c.slack, what);
      };
      compare(run(c, views), "eager");
      const auto body = [&](std::span<const Tensor> in) {
        TensorList seen;
        for (size_t i = 0; i < in.size(); ++i) seen.push_back(strided[i].view(in[i]));
        return run(c, seen);
      };
      compare(run_compiled(bases, body), "compiled");
    }
}

void threads(const OpCase& c) {
  const OpDef& op = op_of(c);
  const bool promised =
      c.same_bits_on_threads || find_kernel(current_device().kind(), op, here()).thread_invariant;
  DTypes dtypes = {c.dtypes[0]};
  if (std::find(c.dtypes.begin(), c.dtypes.end(), DType::bfloat16) != c.dtypes.end())
    dtypes.push_back(DType::bfloat16);
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

}  // namespace

const std::vector<Check> kLayoutChecks = {
    {"EdgeShapes", [](const OpCase& c) { return !c.edge_shapes.empty(); }, edge_shapes},
    {"Strided", [](const OpCase&) { return true; }, strided_inputs},
    {"Threads", [](const OpCase& c) { return has_kernel(c) && (c.threads_only || !c.large.empty()); },
     threads},
};

}  // namespace lockstep::testing
