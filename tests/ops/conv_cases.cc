#include "lockstep/ops/conv.h"

#include <algorithm>

#include "ops/nn/conv.h"
#include "ops/nn/pool.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// TensorFlow's rule: "same" makes one window a stride, the zeros shared out evenly, the odd one behind.
Window2d window_of(const Dims& image, const Dims& size, const Dims& strides, const Dims& dilations,
                   bool padded) {
  Window2d window{.input = image,
                  .size = size,
                  .strides = strides,
                  .dilations = dilations,
                  .before = {0, 0},
                  .after = {0, 0}};
  for (int axis = 0; axis < 2 && padded; ++axis) {
    const int64_t windows = (image[axis] + strides[axis] - 1) / strides[axis];
    const int64_t reach = (size[axis] - 1) * dilations[axis] + 1;
    const int64_t zeros = std::max<int64_t>((windows - 1) * strides[axis] + reach - image[axis], 0);
    window.before[axis] = zeros / 2;
    window.after[axis] = zeros - zeros / 2;
  }
  return window;
}

Dims windows(const Window2d& w) {
  Dims count;
  for (int axis = 0; axis < 2; ++axis)
    count.push_back(
        (w.input[axis] + w.before[axis] + w.after[axis] - (w.size[axis] - 1) * w.dilations[axis] - 1) /
            w.strides[axis] +
        1);
  return count;
}

// f(i, j, p, q, row, column): tap (p, q) of window (i, j) lies on the image's element (row, column).
template <class F>
void each_tap(const Window2d& w, F&& f) {
  const Dims count = windows(w);
  each_index({count[0], count[1], w.size[0], w.size[1]}, [&](const Dims& t) {
    const int64_t row = t[0] * w.strides[0] + t[2] * w.dilations[0] - w.before[0];
    const int64_t column = t[1] * w.strides[1] + t[3] * w.dilations[1] - w.before[1];
    if (row >= 0 && row < w.input[0] && column >= 0 && column < w.input[1])
      f(t[0], t[1], t[2], t[3], row, column);
  });
}

// --- convolution ---------------------------------------------------------------------------------------------------

struct ConvSetup {
  std::string suffix;
  Shape x, filter;
  Dims strides = {1, 1};
  bool padded = false;
  Dims dilations = {1, 1};
  int64_t groups = 1;

  Window2d window() const {
    return window_of({x[1], x[2]}, {filter[0], filter[1]}, strides, dilations, padded);
  }
  Conv2dOptions options() const {
    return {.strides = strides,
            .padding = padded ? Padding::same : Padding::valid,
            .dilations = dilations,
            .groups = groups};
  }
  Shape y() const {
    const Dims count = windows(window());
    return {x[0], count[0], count[1], filter[3]};
  }
};

// f(x, w, y): the three elements of every product that convolution sums, by their places.
template <class F>
void each_product(const ConvSetup& s, int64_t batch, F&& f) {
  const int64_t in_group = s.filter[2], out_group = s.filter[3] / s.groups;
  each_tap(s.window(), [&](int64_t i, int64_t j, int64_t p, int64_t q, int64_t row, int64_t column) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t o = 0; o < s.filter[3]; ++o)
        for (int64_t c = 0; c < in_group; ++c)
          f(Dims{n, row, column, o / out_group * in_group + c}, Dims{p, q, c, o}, Dims{n, i, j, o});
  });
}

OpCases conv_cases(const ConvSetup& s) {
  const auto with_batch = [](Shape shape, int64_t batch) {
    shape[0] = batch;
    return shape;
  };
  const auto forward = [=](const Arrays& in) {
    Array y(with_batch(s.y(), in[0].shape[0]));
    each_product(s, in[0].shape[0], [&](const Dims& x, const Dims& w, const Dims& out) {
      y.at(out) += in[0].at(x) * in[1].at(w);
    });
    return y;
  };
  const auto to_input = [=](const Arrays& in) {
    Array dx(with_batch(s.x, in[1].shape[0]));
    each_product(s, in[1].shape[0], [&](const Dims& x, const Dims& w, const Dims& out) {
      dx.at(x) += in[0].at(w) * in[1].at(out);
    });
    return dx;
  };
  const auto to_filter = [=](const Arrays& in) {
    Array dw(s.filter);
    each_product(s, in[0].shape[0], [&](const Dims& x, const Dims& w, const Dims& out) {
      dw.at(w) += in[0].at(x) * in[1].at(out);
    });
    return dw;
  };
  const OpCase shared{.attrs = ConvAttrs{.window = s.window(), .groups = s.groups},
                      .tolerance = Tolerance::summed};
  OpCase y = shared, dx = shared, dw = shared;
  y.name = "conv2d" + s.suffix;
  y.op = "conv2d";
  y.inputs = {normal(s.x), normal(s.filter)};
  y.reference = forward;
  y.function = [=](auto in) { return conv2d(in[0], in[1], s.options()); };
  dx.name = "conv2d_backprop_input" + s.suffix;
  dx.op = "conv2d_backprop_input";
  dx.inputs = {normal(s.filter), normal(s.y())};
  dx.reference = to_input;
  dx.function = [=](auto in) {
    return conv2d_backprop_input(with_batch(s.x, in[1].shape()[0]), in[0], in[1], s.options());
  };
  dw.name = "conv2d_backprop_filter" + s.suffix;
  dw.op = "conv2d_backprop_filter";
  dw.inputs = {normal(s.x), normal(s.y())};
  dw.reference = to_filter;
  dw.function = [=](auto in) { return conv2d_backprop_filter(in[0], s.filter, in[1], s.options()); };
  // float32 results of 3x3 filters may come from Winograd's algorithm.
  if (s.filter[0] == 3 && s.filter[1] == 3) y.slack = dx.slack = dw.slack = 10;
  if (s.suffix.empty()) {
    y.edge_shapes = {{with_batch(s.x, 0), s.filter}};
    dx.edge_shapes = {{s.filter, with_batch(s.y(), 0)}};
    dw.edge_shapes = {{with_batch(s.x, 0), with_batch(s.y(), 0)}};
  }
  return {y, dx, dw};
}

// --- pooling -------------------------------------------------------------------------------------------------------

struct PoolSetup {
  std::string suffix;
  Shape x;
  Dims size, strides;
  bool padded = false;

  Window2d window() const { return window_of({x[1], x[2]}, size, strides, {1, 1}, padded); }
  Pool2dOptions options() const {
    return {.pool_size = size, .strides = strides, .padding = padded ? Padding::same : Padding::valid};
  }
  Shape y(int64_t batch) const {
    const Dims count = windows(window());
    return {batch, count[0], count[1], x[3]};
  }
};

// The largest element of each window and its tap, the first of equals.
Arrays max_pool_of(const PoolSetup& s, const Array& x) {
  const int64_t batch = x.shape[0];
  Array y(s.y(batch)), taps(s.y(batch), -1);
  each_tap(s.window(), [&](int64_t i, int64_t j, int64_t p, int64_t q, int64_t row, int64_t column) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t c = 0; c < s.x[3]; ++c) {
        const double element = x.at({n, row, column, c});
        const Dims out = {n, i, j, c};
        if (taps.at(out) >= 0 && element <= y.at(out)) continue;
        y.at(out) = element;
        taps.at(out) = static_cast<double>(p * s.size[1] + q);
      }
  });
  return {y, taps};
}

// f(x, y, tap, share): the element of x under a tap of the window of y; share is 1 / the taps on the image.
template <class F>
void each_pooled(const PoolSetup& s, int64_t batch, F&& f) {
  Array inside(s.y(1));
  each_tap(s.window(), [&](int64_t i, int64_t j, auto...) { inside.at({0, i, j, 0}) += 1; });
  each_tap(s.window(), [&](int64_t i, int64_t j, int64_t p, int64_t q, int64_t row, int64_t column) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t c = 0; c < s.x[3]; ++c)
        f(Dims{n, row, column, c}, Dims{n, i, j, c}, static_cast<double>(p * s.size[1] + q),
          1 / inside.at({0, i, j, 0}));
  });
}

OpCases pool_cases(const PoolSetup& s) {
  const auto like_x = [=](int64_t batch) { return Shape{batch, s.x[1], s.x[2], s.x[3]}; };
  const auto avg = [=](const Arrays& in) {
    Array y(s.y(in[0].shape[0]));
    each_pooled(s, in[0].shape[0], [&](const Dims& x, const Dims& out, double, double share) {
      y.at(out) += share * in[0].at(x);
    });
    return y;
  };
  const auto avg_grad = [=](const Arrays& in) {
    Array dx(like_x(in[0].shape[0]));
    each_pooled(s, in[0].shape[0], [&](const Dims& x, const Dims& out, double, double share) {
      dx.at(x) += share * in[0].at(out);
    });
    return dx;
  };
  const auto max_grad = [=](const Arrays& in) {
    Array dx(like_x(in[0].shape[0]));
    each_pooled(s, in[0].shape[0], [&](const Dims& x, const Dims& out, double tap, double) {
      if (in[1].at(out) == tap) dx.at(x) += in[0].at(out);
    });
    return dx;
  };
  const auto max_gather = [=](const Arrays& in) {
    Array y(s.y(in[0].shape[0]));
    each_pooled(s, in[0].shape[0], [&](const Dims& x, const Dims& out, double tap, double) {
      if (in[1].at(out) == tap) y.at(out) = in[0].at(x);
    });
    return y;
  };
  const DTypeRule positions = s.size[0] * s.size[1] <= 256 ? always<DType::uint8> : always<DType::int32>;
  // The positions of the maxima of some images of the right batch.
  const Input taps = derived(
      [=](const Arrays& in) {
        const Shape shape = like_x(in[0].shape[0]);
        Array images(shape);
        images.values = normal(shape).draw(shape, 99);
        return max_pool_of(s, images)[1];
      },
      positions);
  const OpCase shared{
      .attrs = PoolAttrs{s.window()}, .tolerance = Tolerance::summed, .same_bits_on_threads = true};
  const auto make = [&](const std::string& op, std::vector<Input> inputs, Reference reference) {
    OpCase c = shared;
    c.name = op + s.suffix;
    c.op = op;
    c.inputs = std::move(inputs);
    c.reference = std::move(reference);
    return c;
  };
  OpCase max = make("max_pool2d", {distinct(s.x)}, [=](const Arrays& in) { return max_pool_of(s, in[0]); });
  max.tolerance = Tolerance::exact;
  max.results = {same, positions};
  OpCase max_scatter = make("max_pool2d_grad", {normal(s.y(s.x[0])), taps}, max_grad);
  OpCase max_read = make("max_pool2d_gather", {normal(s.x), taps}, max_gather);
  max_read.tolerance = Tolerance::exact;
  OpCase mean = make("avg_pool2d", {normal(s.x)}, avg);
  mean.function = [=](auto in) { return avg_pool2d(in[0], s.options()); };
  OpCase spread = make("avg_pool2d_grad", {normal(s.y(s.x[0]))}, avg_grad);
  OpCase function{.name = "max_pool2d_function" + s.suffix,
                  .inputs = {distinct(s.x)},
                  .reference = [=](const Arrays& in) { return max_pool_of(s, in[0])[0]; },
                  .tolerance = Tolerance::exact,
                  .function = [=](auto in) { return max_pool2d(in[0], s.options()); }};
  if (s.suffix.empty())
    for (OpCase* c : {&max, &max_scatter, &max_read, &mean, &spread}) {
      std::vector<Shape> empty;
      for (const Input& input : c->inputs) empty.push_back(input.shape);
      empty[0][0] = 0;
      c->edge_shapes = {empty};
    }
  return {max, max_scatter, max_read, mean, spread, function};
}

// --- tables --------------------------------------------------------------------------------------------------------

void add_large(OpCases& all, OpCases more) {
  for (OpCase& c : more)
    if (!c.op.empty()) {
      c.threads_only = true;
      all.push_back(std::move(c));
    }
}

OpCases cases() {
  OpCases all;
  const auto add = [&](const OpCases& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const ConvSetup& s : {
           ConvSetup{.suffix = "", .x = {2, 4, 5, 2}, .filter = {2, 3, 2, 3}},
           ConvSetup{.suffix = "_same", .x = {1, 4, 5, 2}, .filter = {3, 3, 2, 2}, .padded = true},
           ConvSetup{.suffix = "_strided", .x = {1, 5, 6, 2}, .filter = {2, 3, 2, 2}, .strides = {2, 3}},
           ConvSetup{.suffix = "_strided_same",
           .x = {1, 5, 6, 1},
           .filter = {3, 2, 1, 2},
           .strides = {2, 2},
           .padded = true},
           ConvSetup{.suffix = "_dilated", .x = {1, 5, 6, 2}, .filter = {2, 2, 2, 1}, .dilations = {2, 3}},
           ConvSetup{.suffix = "_dilated_same",
           .x = {1, 4, 4, 1},
           .filter = {3, 2, 1, 2},
           .padded = true,
           .dilations = {2, 1}},
           ConvSetup{.suffix = "_groups", .x = {1, 3, 3, 4}, .filter = {2, 2, 2, 6}, .groups = 2},
           ConvSetup{.suffix = "_depthwise",
           .x = {1, 3, 3, 3},
           .filter = {2, 2, 1, 3},
           .padded = true,
           .groups = 3},
           ConvSetup{.suffix = "_1x1", .x = {2, 2, 3, 3}, .filter = {1, 1, 3, 2}},
           ConvSetup{.suffix = "_1x1_strided", .x = {1, 4, 5, 2}, .filter = {1, 1, 2, 2}, .strides = {2, 2}},
           ConvSetup{.suffix = "_whole_image", .x = {2, 3, 2, 2}, .filter = {3, 2, 2, 2}},
           ConvSetup{.suffix = "_one_element", .x = {1, 1, 1, 1}, .filter = {1, 1, 1, 1}},
       })
    add(conv_cases(s));
  add_large(all,
            conv_cases({.suffix = "_large", .x = {3, 12, 12, 8}, .filter = {3, 3, 8, 16}, .padded = true}));
  add_large(
      all,
      conv_cases(
          {.suffix = "_large_strided", .x = {3, 13, 12, 6}, .filter = {3, 2, 6, 20}, .strides = {2, 2}}));
  for (const PoolSetup& s : {
           PoolSetup{.suffix = "", .x = {2, 4, 4, 2}, .size = {2, 2}, .strides = {2, 2}},
           PoolSetup{.suffix = "_overlapping", .x = {1, 4, 5, 2}, .size = {3, 2}, .strides = {1, 2}},
           PoolSetup{.suffix = "_same", .x = {1, 5, 4, 2}, .size = {3, 3}, .strides = {2, 2}, .padded = true},
           PoolSetup{.suffix = "_apart", .x = {1, 5, 7, 1}, .size = {1, 2}, .strides = {2, 3}},
           PoolSetup{
               .suffix = "_apart_same", .x = {1, 5, 6, 1}, .size = {2, 2}, .strides = {3, 4}, .padded = true},
           PoolSetup{.suffix = "_whole_image", .x = {2, 3, 2, 2}, .size = {3, 2}, .strides = {3, 2}},
           PoolSetup{.suffix = "_many_channels", .x = {1, 3, 2, 21}, .size = {2, 2}, .strides = {1, 1}},
           PoolSetup{.suffix = "_one_element", .x = {1, 1, 1, 1}, .size = {1, 1}, .strides = {1, 1}},
       })
    add(pool_cases(s));
  add_large(all, pool_cases({.suffix = "_large", .x = {4, 16, 16, 40}, .size = {2, 2}, .strides = {2, 2}}));
  add_large(all, pool_cases({.suffix = "_large_overlapping",
                             .x = {4, 15, 16, 33},
                             .size = {3, 3},
                             .strides = {2, 2},
                             .padded = true}));
  // More taps than a byte counts.
  OpCases wide =
      pool_cases({.suffix = "_large_window", .x = {1, 18, 17, 1}, .size = {17, 16}, .strides = {1, 1}});
  for (OpCase& c : wide) c.derivatives = std::min(c.derivatives, 1);
  add(wide);
  // The largest of equals is the first.
  OpCases equal = pool_cases({.suffix = "_of_equals", .x = {1, 4, 6, 2}, .size = {2, 3}, .strides = {1, 1}});
  equal[0].inputs = {integers({1, 4, 6, 2}, 0, 1)};
  equal[0].derivatives = kUnchecked;
  all.push_back(equal[0]);
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({1, 4, 5, 2}), filter = sample({2, 3, 2, 3});
  using enum ErrorCode;
  return {
      {"conv2d_rank",
       shape_mismatch,
       {"conv2d: ", "(4, 5, 2)"},
       [=] {
         conv2d(sample({4, 5, 2}), filter);
       }},
      {"conv2d_filter_rank",
       shape_mismatch,
       {"conv2d: ", "(3, 2, 3)"},
       [=] {
         conv2d(x, sample({3, 2, 3}));
       }},
      {"conv2d_channels",
       shape_mismatch,
       {"conv2d: ", "(1, 4, 5, 2)", "(2, 3, 4, 3)"},
       [=] {
         conv2d(x, sample({2, 3, 4, 3}));
       }},
      {"conv2d_groups", shape_mismatch, {"conv2d: ", "groups"}, [=] { conv2d(x, filter, {.groups = 2}); }},
      {"conv2d_groups_0",
       shape_mismatch,
       {"conv2d: ", "groups", "0"},
       [=] { conv2d(x, filter, {.groups = 0}); }},
      {"conv2d_too_large",
       shape_mismatch,
       {"conv2d: ", "5 x 3", "4 x 5", "same"},
       [=] {
         conv2d(x, sample({5, 3, 2, 3}));
       }},
      {"conv2d_strides",
       invalid_argument,
       {"conv2d: ", "strides", "(0, 1)"},
       [=] {
         conv2d(x, filter, {.strides = {0, 1}});
       }},
      {"conv2d_dilations",
       invalid_argument,
       {"conv2d: ", "dilations", "(1, 2, 3)"},
       [=] {
         conv2d(x, filter, {.dilations = {1, 2, 3}});
       }},
      {"conv2d_padding",
       invalid_argument,
       {"padding", "full"},
       [=] { conv2d(x, filter, {.padding = "full"}); }},
      {"conv2d_dtypes",
       dtype_mismatch,
       {"conv2d: ", "float32(1, 4, 5, 2)", "float64(2, 3, 2, 3)"},
       [=] {
         conv2d(x, sample({2, 3, 2, 3}, DType::float64));
       }},
      {"conv2d_of_integers",
       dtype_mismatch,
       {"conv2d: ", "int32(1, 4, 5, 2)"},
       [=] {
         conv2d(sample({1, 4, 5, 2}, DType::int32), sample({2, 3, 2, 3}, DType::int32));
       }},
      {"conv2d_of_none", invalid_argument, {"conv2d: ", "none"}, [=] { conv2d(Tensor(), filter); }},
      {"conv2d_backprop_input_shapes",
       shape_mismatch,
       {"conv2d_backprop_input: ", "(1, 4, 4, 3)"},
       [=] {
         conv2d_backprop_input({1, 4, 5, 2}, filter, sample({1, 4, 4, 3}));
       }},
      {"conv2d_backprop_input_channels",
       shape_mismatch,
       {"conv2d_backprop_input: ", "(1, 4, 5, 7)"},
       [=] {
         conv2d_backprop_input({1, 4, 5, 7}, filter, sample({1, 3, 3, 3}));
       }},
      {"conv2d_backprop_filter_batch",
       shape_mismatch,
       {"conv2d_backprop_filter: ", "(1, 4, 5, 2)", "(2, 3, 3, 3)"},
       [=] {
         conv2d_backprop_filter(x, {2, 3, 2, 3}, sample({2, 3, 3, 3}));
       }},
      {"max_pool2d_rank",
       shape_mismatch,
       {"max_pool2d: ", "(4, 5)"},
       [=] {
         max_pool2d(sample({4, 5}));
       }},
      {"max_pool2d_too_large",
       shape_mismatch,
       {"max_pool2d: ", "5 x 5", "4 x 5"},
       [=] {
         max_pool2d(x, {.pool_size = {5, 5}});
       }},
      {"max_pool2d_size",
       invalid_argument,
       {"max_pool2d: ", "(0, 2)"},
       [=] {
         max_pool2d(x, {.pool_size = {0, 2}});
       }},
      {"max_pool2d_dtype",
       dtype_mismatch,
       {"max_pool2d: ", "int32(1, 4, 5, 2)"},
       [=] {
         max_pool2d(sample({1, 4, 5, 2}, DType::int32));
       }},
      {"max_pool2d_of_none", invalid_argument, {"max_pool2d: ", "none"}, [=] { max_pool2d(Tensor()); }},
      {"avg_pool2d_strides",
       invalid_argument,
       {"avg_pool2d: ", "strides", "(1, -1)"},
       [=] {
         avg_pool2d(x, {.strides = {1, -1}});
       }},
      {"avg_pool2d_dtype",
       dtype_mismatch,
       {"avg_pool2d: ", "bool(1, 4, 5, 2)"},
       [=] {
         avg_pool2d(sample({1, 4, 5, 2}, DType::boolean));
       }},
  };
}

}  // namespace

const Family kConvFamily{cases, bad_calls};

}  // namespace lockstep::testing
