#include "lockstep/ops/conv.h"

#include <algorithm>

#include "ops/nn/conv.h"
#include "ops/nn/pool.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// TensorFlow's rule: "same" makes one window a stride, the zeros shared out evenly, the odd one behind.
Window window_of(const Dims& image, const Dims& size, const Dims& strides, const Dims& dilations,
                 bool padded) {
  Window window{.input = image,
                .size = size,
                .strides = strides,
                .dilations = dilations,
                .before = Dims::filled(image.rank(), 0),
                .after = Dims::filled(image.rank(), 0)};
  for (int axis = 0; axis < image.rank() && padded; ++axis) {
    const int64_t windows = (image[axis] + strides[axis] - 1) / strides[axis];
    const int64_t reach = (size[axis] - 1) * dilations[axis] + 1;
    const int64_t zeros = std::max<int64_t>((windows - 1) * strides[axis] + reach - image[axis], 0);
    window.before[axis] = zeros / 2;
    window.after[axis] = zeros - zeros / 2;
  }
  return window;
}

Dims windows(const Window& w) {
  Dims count;
  for (int axis = 0; axis < w.input.rank(); ++axis)
    count.push_back(
        (w.input[axis] + w.before[axis] + w.after[axis] - (w.size[axis] - 1) * w.dilations[axis] - 1) /
            w.strides[axis] +
        1);
  return count;
}

// f(window, tap, element): places of a tap of a window that lies on an element of the image.
template <class F>
void each_tap(const Window& w, F&& f) {
  each_index(windows(w), [&](const Dims& window) {
    each_index(w.size, [&](const Dims& tap) {
      Dims element;
      bool inside = true;
      for (int axis = 0; axis < tap.rank(); ++axis) {
        element.push_back(window[axis] * w.strides[axis] + tap[axis] * w.dilations[axis] - w.before[axis]);
        inside = inside && element[axis] >= 0 && element[axis] < w.input[axis];
      }
      if (inside) f(window, tap, element);
    });
  });
}

Dims joined(Dims first, const Dims& second) {
  for (const int64_t d : second) first.push_back(d);
  return first;
}
// (batch, ..., channels)
Dims place(int64_t n, const Dims& at, int64_t channel) { return joined(joined({n}, at), {channel}); }
Dims inner(const Shape& x) { return Dims(x.span().subspan(1, x.span().size() - 2)); }

// --- convolution -------------------------------------------------------------------------------------------

struct ConvSetup {
  CaseName suffix;
  Shape x, filter;
  Dims strides = {1, 1};
  bool padded = false;
  Dims dilations = {1, 1};
  int64_t groups = 1;

  bool volume() const { return x.rank() == 5; }
  Window window() const { return window_of(inner(x), filter.drop_last(2), strides, dilations, padded); }
  ConvOptions options() const {
    return {.strides = strides,
            .padding = padded ? Padding::same : Padding::valid,
            .dilations = dilations,
            .groups = groups};
  }
  Shape y() const { return place(x[0], windows(window()), filter[-1]); }
};

// f(x, w, y): the three elements of every product that convolution sums, by their places.
template <class F>
void each_product(const Window& window, int64_t in_group, int64_t out, int64_t groups, int64_t batch, F&& f) {
  each_tap(window, [&](const Dims& at, const Dims& tap, const Dims& element) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t o = 0; o < out; ++o)
        for (int64_t c = 0; c < in_group; ++c)
          f(place(n, element, o / (out / groups) * in_group + c), joined(tap, {c, o}), place(n, at, o));
  });
}
template <class F>
void each_product(const ConvSetup& s, int64_t batch, F&& f) {
  each_product(s.window(), s.filter[-2], s.filter[-1], s.groups, batch, f);
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
  const bool volume = s.volume();
  const std::string op = volume ? "conv3d" : "conv2d";
  y.name = op + s.suffix;
  y.op = op;
  y.inputs = {normal(s.x), normal(s.filter)};
  y.reference = forward;
  y.function = [=](auto in) { return (volume ? conv3d : conv2d)(in[0], in[1], s.options()); };
  dx.op = op + "_backprop_input";
  dx.name = dx.op + s.suffix;
  dx.inputs = {normal(s.filter), normal(s.y())};
  dx.reference = to_input;
  dx.function = [=](auto in) {
    return (volume ? conv3d_backprop_input : conv2d_backprop_input)(with_batch(s.x, in[1].shape()[0]), in[0],
                                                                    in[1], s.options());
  };
  dw.op = op + "_backprop_filter";
  dw.name = dw.op + s.suffix;
  dw.inputs = {normal(s.x), normal(s.y())};
  dw.reference = to_filter;
  dw.function = [=](auto in) {
    return (volume ? conv3d_backprop_filter : conv2d_backprop_filter)(in[0], s.filter, in[1], s.options());
  };
  // float32 results of 3x3 filters may come from Winograd's algorithm.
  if (s.filter[0] == 3 && s.filter[1] == 3) y.slack = dx.slack = dw.slack = 10;
  if (s.suffix.empty()) {
    y.edge_shapes = {{with_batch(s.x, 0), s.filter}};
    dx.edge_shapes = {{s.filter, with_batch(s.y(), 0)}};
    dw.edge_shapes = {{with_batch(s.x, 0), with_batch(s.y(), 0)}};
  }
  return {y, dx, dw};
}

// --- pooling -----------------------------------------------------------------------------------------------

struct PoolSetup {
  CaseName suffix;
  Shape x;
  Dims size, strides;
  bool padded = false;

  Window window() const { return window_of(inner(x), size, strides, Dims::filled(size.rank(), 1), padded); }
  PoolOptions options() const {
    return {.pool_size = size, .strides = strides, .padding = padded ? Padding::same : Padding::valid};
  }
  Shape y(int64_t batch) const { return place(batch, windows(window()), x[-1]); }
  double tap_number(const Dims& tap) const {
    int64_t number = 0;
    for (int axis = 0; axis < tap.rank(); ++axis) number = number * size[axis] + tap[axis];
    return static_cast<double>(number);
  }
};

// The largest element of each window and its tap, the first of equals.
Arrays max_pool_of(const PoolSetup& s, const Array& x) {
  const int64_t batch = x.shape[0];
  Array y(s.y(batch)), taps(s.y(batch), -1);
  each_tap(s.window(), [&](const Dims& at, const Dims& tap, const Dims& from) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t c = 0; c < s.x[-1]; ++c) {
        const double element = x.at(place(n, from, c));
        const Dims out = place(n, at, c);
        if (taps.at(out) >= 0 && element <= y.at(out)) continue;
        y.at(out) = element;
        taps.at(out) = s.tap_number(tap);
      }
  });
  return {y, taps};
}

// f(x, y, tap, share): the element of x under a tap of the window of y; share is 1 / the taps on the image.
template <class F>
void each_pooled(const PoolSetup& s, int64_t batch, F&& f) {
  Array inside(s.y(1));
  each_tap(s.window(), [&](const Dims& at, auto&&...) { inside.at(place(0, at, 0)) += 1; });
  each_tap(s.window(), [&](const Dims& at, const Dims& tap, const Dims& from) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t c = 0; c < s.x[-1]; ++c)
        f(place(n, from, c), place(n, at, c), s.tap_number(tap), 1 / inside.at(place(0, at, 0)));
  });
}

Array avg_pool_of(const PoolSetup& s, const Array& x) {
  Array y(s.y(x.shape[0]));
  each_pooled(s, x.shape[0], [&](const Dims& from, const Dims& out, double, double share) {
    y.at(out) += share * x.at(from);
  });
  return y;
}

OpCases pool_cases(const PoolSetup& s) {
  const auto like_x = [=](int64_t batch) { return Shape{batch, s.x[1], s.x[2], s.x[3]}; };
  const auto avg = [=](const Arrays& in) { return avg_pool_of(s, in[0]); };
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

// --- functions that are made of the ops --------------------------------------------------------------------

// Sequences and volumes; the gradient of the largest goes to the first of equals there too.
OpCases pool_function_cases(const PoolSetup& s, const std::string& dimensions,
                            Tensor (*max_pool)(const TensorArg&, const PoolOptions&),
                            Tensor (*avg_pool)(const TensorArg&, const PoolOptions&)) {
  return {{.name = "max_pool" + dimensions + s.suffix,
           .inputs = {distinct(s.x)},
           .reference = [=](const Arrays& in) { return max_pool_of(s, in[0])[0]; },
           .tolerance = Tolerance::exact,
           .function = [=](auto in) { return max_pool(in[0], s.options()); }},
          {.name = "avg_pool" + dimensions + s.suffix,
           .inputs = {normal(s.x)},
           .reference = [=](const Arrays& in) { return avg_pool_of(s, in[0]); },
           .tolerance = Tolerance::summed,
           .slack = 2,  // 16-bit means of the planes are rounded
           .function = [=](auto in) { return avg_pool(in[0], s.options()); }}};
}

Array convolve_of(const Window& window, const Array& x, const Array& filter, int64_t groups) {
  Array y(place(x.shape[0], windows(window), filter.shape[-1]));
  each_product(
      window, filter.shape[-2], filter.shape[-1], groups, x.shape[0],
      [&](const Dims& from, const Dims& w, const Dims& out) { y.at(out) += x.at(from) * filter.at(w); });
  return y;
}

Array with_channels_first(const Array& x) {
  Shape shape{x.shape[0], x.shape[-1]};
  for (const int64_t d : inner(x.shape)) shape.push_back(d);
  Array out(shape);
  each_index(x.shape, [&](const Dims& i) { out.at(joined({i[0], i[-1]}, inner(i))) = x.at(i); });
  return out;
}
Array with_channels_last(const Array& x) {
  Shape shape{x.shape[0]};
  for (int axis = 2; axis < x.shape.rank(); ++axis) shape.push_back(x.shape[axis]);
  shape.push_back(x.shape[1]);
  Array out(shape);
  each_index(out.shape, [&](const Dims& i) { out.at(i) = x.at(joined({i[0], i[-1]}, inner(i))); });
  return out;
}

// The filter (window..., channels, multiplier) as one of one group per channel.
Array grouped(const Array& filter) {
  Array out = filter;
  out.shape[-1] *= out.shape[-2];
  out.shape[-2] = 1;
  return out;
}

OpCase function_case(const CaseName& name, std::vector<Input> inputs, Reference reference,
                     PublicFunction function) {
  return {.name = name,
          .inputs = std::move(inputs),
          .reference = std::move(reference),
          .tolerance = Tolerance::summed,
          .slack = 2,
          .function = std::move(function)};
}

// What `window` covers of the result, from the definition of the transposed convolution.
Array transposed_of(const Window& window, const Array& x, const Array& filter) {
  Array y(place(x.shape[0], window.input, filter.shape[-2]));
  each_product(
      window, filter.shape[-2], filter.shape[-1], 1, x.shape[0],
      [&](const Dims& to, const Dims& w, const Dims& from) { y.at(to) += x.at(from) * filter.at(w); });
  return y;
}

OpCases function_cases() {
  OpCases all;
  const auto add = [&](const OpCases& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(pool_function_cases({.suffix = "", .x = {2, 5, 3}, .size = {2}, .strides = {2}}, "1d", max_pool1d,
                          avg_pool1d));
  add(pool_function_cases({.suffix = "_same", .x = {1, 6, 2}, .size = {3}, .strides = {2}, .padded = true},
                          "1d", max_pool1d, avg_pool1d));
  add(pool_function_cases({.suffix = "", .x = {2, 4, 3, 4, 2}, .size = {2, 2, 2}, .strides = {2, 1, 2}}, "3d",
                          max_pool3d, avg_pool3d));
  add(pool_function_cases(
      {.suffix = "_same", .x = {1, 3, 4, 3, 2}, .size = {2, 3, 2}, .strides = {2, 2, 2}, .padded = true},
      "3d", max_pool3d, avg_pool3d));
  OpCases equal = pool_function_cases(
      {.suffix = "_of_equals", .x = {1, 4, 3, 3, 1}, .size = {2, 2, 2}, .strides = {1, 1, 1}}, "3d",
      max_pool3d, avg_pool3d);
  equal[0].inputs = {integers({1, 4, 3, 3, 1}, 0, 1)};
  equal[0].derivatives = kUnchecked;
  all.push_back(equal[0]);

  const auto line = [](int64_t length, int64_t size, int64_t stride, int64_t dilation, int64_t before,
                       int64_t after) {
    return Window{.input = {length},
                  .size = {size},
                  .strides = {stride},
                  .dilations = {dilation},
                  .before = {before},
                  .after = {after}};
  };
  const auto image = [](const Dims& size, const Dims& window, bool padded, const Dims& strides = {1, 1}) {
    return window_of(size, window, strides, {1, 1}, padded);
  };
  add({
      function_case(
          "conv1d", {normal({2, 6, 2}), normal({3, 2, 3})},
          [=](const Arrays& in) { return convolve_of(line(6, 3, 2, 1, 0, 0), in[0], in[1], 1); },
          [](auto in) { return conv1d(in[0], in[1], {.strides = {2}}); }),
      function_case(
          "conv1d_same_groups", {normal({1, 5, 4}), normal({3, 2, 4})},
          [=](const Arrays& in) { return convolve_of(line(5, 3, 1, 1, 1, 1), in[0], in[1], 2); },
          [](auto in) { return conv1d(in[0], in[1], {.padding = "same", .groups = 2}); }),
      function_case(
          "conv1d_causal", {normal({2, 6, 2}), normal({3, 2, 2})},
          [=](const Arrays& in) { return convolve_of(line(6, 3, 1, 2, 4, 0), in[0], in[1], 1); },
          [](auto in) { return conv1d(in[0], in[1], {.padding = "causal", .dilations = {2}}); }),
      function_case(
          "conv2d_channels_first", {normal({2, 3, 4, 5}), normal({2, 2, 3, 2})},
          [=](const Arrays& in) {
            return with_channels_first(
                convolve_of(image({4, 5}, {2, 2}, true), with_channels_last(in[0]), in[1], 1));
          },
          [](auto in) { return conv2d(in[0], in[1], {.padding = "same", .data_format = "channels_first"}); }),
      function_case(
          "max_pool2d_channels_first", {distinct({2, 3, 4, 4})},
          [=](const Arrays& in) {
            const PoolSetup s{.suffix = "", .x = {2, 4, 4, 3}, .size = {2, 2}, .strides = {2, 2}};
            return with_channels_first(max_pool_of(s, with_channels_last(in[0]))[0]);
          },
          [](auto in) { return max_pool2d(in[0], {.data_format = "channels_first"}); }),
      function_case(
          "depthwise_conv1d", {normal({2, 6, 3}), normal({3, 3, 2})},
          [=](const Arrays& in) { return convolve_of(line(6, 3, 2, 1, 0, 1), in[0], grouped(in[1]), 3); },
          [](auto in) { return depthwise_conv1d(in[0], in[1], {.strides = {2}, .padding = "same"}); }),
      function_case(
          "depthwise_conv2d", {normal({2, 4, 5, 3}), normal({3, 2, 3, 2})},
          [=](const Arrays& in) {
            return convolve_of(image({4, 5}, {3, 2}, true, {2, 2}), in[0], grouped(in[1]), 3);
          },
          [](auto in) {
            return depthwise_conv2d(in[0], in[1], {.strides = {2, 2}, .padding = "same"});
          }),
      function_case(
          "separable_conv2d", {normal({1, 4, 4, 2}), normal({3, 3, 2, 2}), normal({1, 1, 4, 3})},
          [=](const Arrays& in) {
            const Array middle = convolve_of(image({4, 4}, {3, 3}, false), in[0], grouped(in[1]), 2);
            return convolve_of(image({2, 2}, {1, 1}, false), middle, in[2], 1);
          },
          [](auto in) { return separable_conv2d(in[0], in[1], in[2]); }),
      function_case(
          "separable_conv1d", {normal({1, 5, 2}), normal({3, 2, 1}), normal({1, 2, 3})},
          [=](const Arrays& in) {
            const Array middle = convolve_of(line(5, 3, 1, 1, 1, 1), in[0], grouped(in[1]), 2);
            return convolve_of(line(5, 1, 1, 1, 0, 0), middle, in[2], 1);
          },
          [](auto in) { return separable_conv1d(in[0], in[1], in[2], {.padding = "same"}); }),
      function_case(
          "conv1d_transpose", {normal({2, 3, 2}), normal({2, 3, 2})},
          [=](const Arrays& in) { return transposed_of(line(9, 2, 3, 1, 0, 0), in[0], in[1]); },
          [](auto in) { return conv1d_transpose(in[0], in[1], {.strides = {3}}); }),
      function_case(
          "conv1d_transpose_same", {normal({2, 3, 2}), normal({4, 3, 2})},
          [=](const Arrays& in) { return transposed_of(line(6, 4, 2, 1, 1, 1), in[0], in[1]); },
          [](auto in) { return conv1d_transpose(in[0], in[1], {.strides = {2}, .padding = "same"}); }),
      function_case(
          "conv1d_transpose_same_output_padding", {normal({1, 3, 2}), normal({3, 2, 2})},
          [=](const Arrays& in) { return transposed_of(line(6, 3, 2, 1, 0, 1), in[0], in[1]); },
          [](auto in) {
            return conv1d_transpose(in[0], in[1], {.strides = {2}, .padding = "same", .output_padding = {1}});
          }),
      function_case(
          "conv2d_transpose", {normal({1, 3, 2, 2}), normal({3, 2, 2, 2})},
          [=](const Arrays& in) {
            const Window window{.input = {8, 5},
                                .size = {3, 2},
                                .strides = {2, 2},
                                .dilations = {1, 1},
                                .before = {0, 0},
                                .after = {0, 0}};
            return transposed_of(window, in[0], in[1]);
          },
          [](auto in) {
            return conv2d_transpose(in[0], in[1], {.strides = {2}, .output_padding = {1, 1}});
          }),
      function_case(
          "conv2d_transpose_dilated", {normal({1, 3, 3, 1}), normal({2, 2, 2, 1})},
          [=](const Arrays& in) {
            const Window window{.input = {5, 5},
                                .size = {2, 2},
                                .strides = {1, 1},
                                .dilations = {2, 2},
                                .before = {0, 0},
                                .after = {0, 0}};
            return transposed_of(window, in[0], in[1]);
          },
          [](auto in) { return conv2d_transpose(in[0], in[1], {.dilations = {2}}); }),
      function_case(
          "conv3d_transpose_same", {normal({1, 2, 2, 2, 1}), normal({3, 2, 3, 2, 1})},
          [=](const Arrays& in) {
            const Window window{.input = {4, 2, 4},
                                .size = {3, 2, 3},
                                .strides = {2, 1, 2},
                                .dilations = {1, 1, 1},
                                .before = {0, 0, 0},
                                .after = {1, 1, 1}};
            return transposed_of(window, in[0], in[1]);
          },
          [](auto in) {
            return conv3d_transpose(in[0], in[1], {.strides = {2, 1, 2}, .padding = "same"});
          }),
  });
  return all;
}

// --- tables ------------------------------------------------------------------------------------------------

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
  for (const ConvSetup& s : {
           ConvSetup{.suffix = "",
          .x = {2, 3, 2, 4, 2},
          .filter = {2, 2, 2, 2, 3},
          .strides = {1, 1, 1},
          .dilations = {1, 1, 1}},
           ConvSetup{.suffix = "_strided_same",
           .x = {1, 3, 4, 3, 2},
           .filter = {3, 2, 1, 2, 2},
           .strides = {2, 1, 2},
           .padded = true,
           .dilations = {1, 1, 1}},
           ConvSetup{.suffix = "_dilated_groups",
           .x = {1, 3, 3, 3, 2},
           .filter = {2, 1, 2, 1, 2},
           .strides = {1, 1, 1},
           .dilations = {2, 1, 2},
           .groups = 2},
       })
    add(conv_cases(s));
  add(function_cases());
  add_large(all, conv_cases({.suffix = "_large",
                             .x = {2, 5, 6, 7, 8},
                             .filter = {3, 3, 3, 8, 16},
                             .strides = {1, 1, 1},
                             .padded = true,
                             .dilations = {1, 1, 1}}));
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
      {"conv1d_rank",
       shape_mismatch,
       {"conv1d: ", "(1, 4, 5, 2)"},
       [=] {
         conv1d(x, sample({2, 2, 3}));
       }},
      {"conv3d_filter_rank",
       shape_mismatch,
       {"conv3d: ", "(2, 3, 2, 3)"},
       [=] {
         conv3d(sample({1, 2, 4, 5, 2}), filter);
       }},
      {"conv2d_causal",
       invalid_argument,
       {"conv2d: ", "causal"},
       [=] { conv2d(x, filter, {.padding = "causal"}); }},
      {"conv2d_data_format",
       invalid_argument,
       {"data_format", "NCHW"},
       [=] { conv2d(x, filter, {.data_format = "NCHW"}); }},
      {"depthwise_conv2d_channels",
       shape_mismatch,
       {"depthwise_conv2d: ", "(2, 3, 3, 1)", "(1, 4, 5, 2)"},
       [=] {
         depthwise_conv2d(x, sample({2, 3, 3, 1}));
       }},
      {"separable_conv2d_pointwise",
       shape_mismatch,
       {"separable_conv2d: ", "(2, 1, 2, 1)"},
       [=] {
         separable_conv2d(x, sample({2, 3, 2, 1}), sample({2, 1, 2, 1}));
       }},
      {"conv2d_transpose_output_padding",
       invalid_argument,
       {"conv2d_transpose: ", "output_padding", "(2, 0)"},
       [=] {
         conv2d_transpose(x, sample({3, 3, 1, 2}), {.strides = {2, 2}, .output_padding = {2, 0}});
       }},
      {"conv1d_transpose_nothing",
       shape_mismatch,
       {"conv1d_transpose: ", "nothing"},
       [=] {
         conv1d_transpose(sample({1, 1, 2}), sample({2, 1, 2}),
                          {.strides = {2}, .padding = "same", .output_padding = {0}});
       }},
      {"max_pool3d_rank", shape_mismatch, {"max_pool3d: ", "(1, 4, 5, 2)"}, [=] { max_pool3d(x); }},
      {"avg_pool1d_causal",
       invalid_argument,
       {"avg_pool1d: ", "causal"},
       [=] {
         avg_pool1d(sample({1, 4, 2}), {.padding = "causal"});
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
