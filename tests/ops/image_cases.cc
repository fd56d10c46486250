#include "lockstep/ops/image.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/image/resample.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// --- resizing ----------------------------------------------------------------------------------------------

// f(index into x, index into y, weight) for every product along one axis: half-pixel centres.
template <class F>
void each_term(const Shape& y, int axis, int64_t input, bool nearest, F f) {
  each_index(y, [&](const Dims& at) {
    Dims from = at;
    const double center =
        (static_cast<double>(at[axis]) + 0.5) * static_cast<double>(input) / static_cast<double>(y[axis]);
    if (nearest) {
      from[axis] = std::min<int64_t>(static_cast<int64_t>(std::floor(center)), input - 1);
      return f(from, at, 1.0);
    }
    const double low = std::floor(center - 0.5), weight = center - 0.5 - low;
    for (const int64_t side : {0, 1}) {
      from[axis] = std::clamp<int64_t>(static_cast<int64_t>(low) + side, 0, input - 1);
      f(from, at, side ? weight : 1 - weight);
    }
  });
}

Array resampled(const Array& x, int axis, int64_t output, bool nearest) {
  Shape shape = x.shape;
  shape[axis] = output;
  Array y(shape);
  each_term(shape, axis, x.shape[axis], nearest,
            [&](const Dims& from, const Dims& to, double weight) { y.at(to) += weight * x.at(from); });
  return y;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }

// What a pixel at this distance counts.
double weight_of(Interpolation::Kind kind, double x) {
  const double radius = kind == Interpolation::lanczos3 ? 3 : 5;
  if (kind == Interpolation::bilinear) return std::max(0.0, 1 - x);
  if (kind != Interpolation::bicubic) return x < radius ? sinc(x) * sinc(x / radius) : 0;
  if (x < 1) return 1 - 2.5 * x * x + 1.5 * x * x * x;
  return x < 2 ? 2 - 4 * x + 2.5 * x * x - 0.5 * x * x * x : 0;
}

// Along one dimension, pixel by pixel.
Array weighted(const Array& x, int axis, int64_t output, Interpolation::Kind kind, bool antialias) {
  Shape shape = x.shape;
  shape[axis] = output;
  Array y(shape);
  const int64_t input = x.shape[axis];
  const double step = static_cast<double>(input) / static_cast<double>(output);
  each_index(shape, [&](const Dims& at) {
    const double begin = static_cast<double>(at[axis]) * step;
    double sum = 0, value = 0;
    Dims from = at;
    for (int64_t i = 0; i < input; ++i) {
      from[axis] = i;
      const auto pixel = static_cast<double>(i);
      const double weight = kind == Interpolation::area
                                ? std::max(0.0, std::min(begin + step, pixel + 1) - std::max(begin, pixel))
                                : weight_of(kind, std::abs(begin + step / 2 - 0.5 - pixel) /
                                                      (antialias ? std::max(step, 1.0) : 1));
      sum += weight;
      value += weight * x.at(from);
    }
    y.at(at) = value / sum;
  });
  return y;
}

Array spread(const Array& dy, int axis, int64_t input, bool nearest) {
  Shape shape = dy.shape;
  shape[axis] = input;
  Array dx(shape);
  each_term(dy.shape, axis, input, nearest,
            [&](const Dims& from, const Dims& to, double weight) { dx.at(from) += weight * dy.at(to); });
  return dx;
}

// `outer` images of `inner` channels: with fewer than 16 of them, the kernel resamples 16 images at once.
OpCases resample_cases(const CaseName& suffix, const ResampleAttrs& a, int64_t outer = 2, int64_t inner = 3) {
  const Shape x{outer, a.input, inner}, y{outer, a.output, inner};
  const int64_t many = inner < 16 ? 21000 / inner : 30, wide = inner < 16 ? inner : 700;
  OpCase forward{.name = "resample" + suffix,
                 .op = "resample",
                 .inputs = {normal(x)},
                 .attrs = a,
                 .reference = [=](const Arrays& in) { return resampled(in[0], a.axis, a.output, a.nearest); },
                 .tolerance = Tolerance::summed,
                 .edge_shapes = {{{0, a.input, inner}}},
                 .large = {{many, a.input, wide}},
                 .same_bits_on_threads = true};
  OpCase backward = forward;
  backward.name = "resample_grad" + suffix;
  backward.op = "resample_grad";
  backward.inputs = {normal(y)};
  backward.reference = [=](const Arrays& in) { return spread(in[0], a.axis, a.input, a.nearest); };
  backward.edge_shapes = {{{0, a.output, inner}}};
  backward.large = {{many, a.output, wide}};
  return {forward, backward};
}

// --- moving ------------------------------------------------------------------------------------------------

double folded(double at, int64_t n, FillMode::Kind mode) {
  const auto length = static_cast<double>(n);
  if (mode == FillMode::reflect) {
    at = std::fmod(std::fmod(at, 2 * length) + 2 * length, 2 * length);
    if (at >= length) at = 2 * length - 1 - at;
  } else if (mode == FillMode::wrap) {
    if (at < 0)
      at += length * (std::trunc(-at / (length - 1)) + 1);
    else if (at > length - 1)
      at -= length * std::trunc(at / (length - 1));
  }
  return mode == FillMode::constant ? at : std::clamp(at, 0.0, length - 1);
}

Array moved(const Array& x, const std::vector<double>& t, bool nearest, FillMode::Kind mode, double fill) {
  Array y(x.shape);
  each_index(x.shape, [&](const Dims& at) {
    const auto column = static_cast<double>(at[2]), row = static_cast<double>(at[1]);
    const double k = t[6] * column + t[7] * row + 1;
    const double c = folded((t[0] * column + t[1] * row + t[2]) / k, x.shape[2], mode);
    const double r = folded((t[3] * column + t[4] * row + t[5]) / k, x.shape[1], mode);
    const auto read = [&](double i, double j) {
      const bool inside =
          i >= 0 && j >= 0 && i < static_cast<double>(x.shape[1]) && j < static_cast<double>(x.shape[2]);
      return inside ? x.at({at[0], static_cast<int64_t>(i), static_cast<int64_t>(j), at[3]}) : fill;
    };
    if (nearest) {
      y.at(at) = read(std::round(r), std::round(c));
      return;
    }
    const double top = std::floor(r), left = std::floor(c), down = r - top, across = c - left;
    y.at(at) = (1 - down) * ((1 - across) * read(top, left) + across * read(top, left + 1));
    if (down > 0)
      y.at(at) +=
          down * ((1 - across) * read(top + 1, left) + (across > 0 ? across * read(top + 1, left + 1) : 0));
  });
  return y;
}

// Turned, stretched and shifted by half the image, so that every mode shows.
const std::vector<double> kTransform = {0.81, -0.43, 2.27, 0.52, 1.13, -3.73, 0, 0};

OpCase moved_case(const CaseName& name, Interpolation::Kind interpolation, FillMode::Kind mode) {
  return {.name = "affine_transform_" + name,
          .inputs = {normal({2, 4, 5, 2})},
          .reference =
              [=](const Arrays& in) {
                return moved(in[0], kTransform, interpolation == Interpolation::nearest, mode, 0.75);
              },
          .dtypes = {DType::float32, DType::float64},
          .tolerance = Tolerance::summed,
          .slack = 40,  // coordinates are rounded
          .function =
              [=](auto in) {
                const Tensor transform = Tensor::from(kTransform, {8});
                return image::affine_transform(
                    in[0],
                    in[0].dtype() == DType::float64
                        ? transform
                        : Tensor::from(std::vector<float>(kTransform.begin(), kTransform.end()), {8}),
                    {.interpolation = interpolation, .fill_mode = mode, .fill_value = 0.75});
              }};
}

OpCases cases() {
  OpCases all;
  const auto add = [&](const OpCases& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(resample_cases("_up", {.axis = 1, .input = 3, .output = 7}));
  add(resample_cases("_down", {.axis = 1, .input = 7, .output = 3}));
  add(resample_cases("_nearest_up", {.axis = 1, .input = 3, .output = 6, .nearest = true}));
  add(resample_cases("_nearest_down", {.axis = 1, .input = 7, .output = 3, .nearest = true}));
  add(resample_cases("_one_channel", {.axis = 1, .input = 13, .output = 29}, 19, 1));
  add(resample_cases("_four_channels", {.axis = 1, .input = 9, .output = 18}, 16, 4));
  add(resample_cases("_17_channels", {.axis = 1, .input = 5, .output = 8}, 3, 17));
  add(resample_cases("_67_channels_down", {.axis = 1, .input = 8, .output = 3}, 2, 67));
  add(resample_cases("_nearest_17_channels", {.axis = 1, .input = 5, .output = 8, .nearest = true}, 3, 17));
  add(resample_cases("_nearest_one_channel", {.axis = 1, .input = 40, .output = 17, .nearest = true}, 33, 1));
  const auto resize_case = [&](const CaseName& name, const Shape& shape, const Dims& size, bool nearest) {
    all.push_back(
        {.name = "resize_" + name,
         .inputs = {normal(shape)},
         .reference =
             [=](const Arrays& in) {
               const int rows = shape.rank() - 3;
               return resampled(resampled(in[0], rows, size[0], nearest), rows + 1, size[1], nearest);
             },
         .tolerance = Tolerance::summed,
         .slack = 2,
         .function =
             [=](auto in) {
               return image::resize(in[0], size, {.interpolation = nearest ? "nearest" : "bilinear"});
             }});
  };
  resize_case("bilinear", {2, 3, 4, 2}, {5, 3}, false);
  resize_case("nearest", {1, 4, 3, 2}, {2, 6}, true);
  resize_case("one_image", {3, 4, 1}, {4, 8}, false);
  resize_case("rows_first", {2, 7, 4, 3}, {3, 6}, false);
  const auto weighted_case = [&](const CaseName& name, Interpolation::Kind kind, bool antialias,
                                 const Dims& size, int64_t channels = 2) {
    all.push_back({.name = "resize_" + name,
                   .inputs = {normal({2, 5, 4, channels})},
                   .reference =
                       [=](const Arrays& in) {
                         return weighted(weighted(in[0], 1, size[0], kind, antialias), 2, size[1], kind,
                                         antialias);
                       },
                   .tolerance = Tolerance::summed,
                   .function =
                       [=](auto in) {
                         return image::resize(in[0], size, {.interpolation = kind, .antialias = antialias});
                       },
                   // Products of matrices choose their algorithm by the layout.
                   .layout_chooses_algorithm = true});
  };
  weighted_case("bicubic", Interpolation::bicubic, false, {7, 3});
  weighted_case("bicubic_antialias", Interpolation::bicubic, true, {2, 6});
  weighted_case("lanczos3", Interpolation::lanczos3, false, {3, 9});
  weighted_case("lanczos5", Interpolation::lanczos5, true, {3, 3});
  weighted_case("bilinear_antialias", Interpolation::bilinear, true, {2, 3});
  weighted_case("area", Interpolation::area, false, {3, 6});
  weighted_case("bicubic_one_channel", Interpolation::bicubic, false, {7, 9}, 1);
  weighted_case("bicubic_17_channels", Interpolation::bicubic, false, {3, 9}, 17);
  all.push_back(
      {.name = "resize_nearest_of_integers",
       .inputs = {normal({1, 3, 4, 2})},
       .reference = [](const Arrays& in) { return resampled(resampled(in[0], 1, 5, true), 2, 2, true); },
       .dtypes = {DType::uint8, DType::int32},
       .tolerance = Tolerance::exact,
       .function =
           [](auto in) {
             return image::resize(in[0], {5, 2}, {.interpolation = "nearest"});
           },
       .derivatives = 0});
  using enum Interpolation::Kind;
  add({moved_case("constant", bilinear, FillMode::constant), moved_case("edge", bilinear, FillMode::nearest),
       moved_case("reflect", bilinear, FillMode::reflect), moved_case("wrap", bilinear, FillMode::wrap),
       moved_case("nearest", Interpolation::nearest, FillMode::constant),
       moved_case("nearest_reflect", Interpolation::nearest, FillMode::reflect)});
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({1, 4, 5, 2});
  using enum ErrorCode;
  return {
      {"resize_rank",
       shape_mismatch,
       {"resize: ", "(4, 5)"},
       [=] {
         image::resize(sample({4, 5}), {2, 2});
       }},
      {"resize_size",
       invalid_argument,
       {"resize: ", "(0, 2)"},
       [=] {
         image::resize(x, {0, 2});
       }},
      {"resize_dtype",
       dtype_mismatch,
       {"resample: ", "int32(1, 4, 5, 2)"},
       [=] {
         image::resize(sample({1, 4, 5, 2}, DType::int32), {2, 2});
       }},
      {"resize_interpolation",
       invalid_argument,
       {"interpolation", "cubic"},
       [=] {
         image::resize(x, {2, 2}, {.interpolation = "cubic"});
       }},
      {"affine_transform_shape",
       shape_mismatch,
       {"affine_transform: ", "(2, 8)"},
       [=] {
         image::affine_transform(x, sample({2, 8}));
       }},
      {"affine_transform_dtype",
       dtype_mismatch,
       {"affine_transform: ", "float64(8,)"},
       [=] { image::affine_transform(x, sample({8}, DType::float64)); }},
      {"affine_transform_fill_mode",
       invalid_argument,
       {"fill_mode", "mirror"},
       [=] { image::affine_transform(x, sample({8}), {.fill_mode = "mirror"}); }},
  };
}

}  // namespace

const Family kImageFamily{cases, bad_calls};

}  // namespace lockstep::testing
