#include "lockstep/ops/image.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/image/interpolation.h"
#include "ops/image/resample.h"
#include "ops/nn/conv_window.h"

namespace lockstep {
namespace {

// In the order of Interpolation::Kind.
constexpr std::string_view kInterpolations[] = {"nearest",  "bilinear", "bicubic",
                                                "lanczos3", "lanczos5", "area"};

}  // namespace

Interpolation::Kind Interpolation::parse(std::string_view text, std::source_location where) {
  const auto* const found = std::find(std::begin(kInterpolations), std::end(kInterpolations), text);
  require(found != std::end(kInterpolations), ErrorCode::invalid_argument, where,
          "interpolation must be \"nearest\", \"bilinear\", \"bicubic\", \"lanczos3\", \"lanczos5\" or "
          "\"area\", received \"",
          text, "\"");
  return static_cast<Kind>(found - std::begin(kInterpolations));
}

std::string_view Interpolation::name() const { return kInterpolations[kind_]; }

FillMode::Kind FillMode::parse(std::string_view text, std::source_location where) {
  if (text == "constant") return constant;
  if (text == "nearest") return nearest;
  if (text == "reflect") return reflect;
  if (text == "wrap") return wrap;
  fail(ErrorCode::invalid_argument, where,
       "fill_mode must be \"constant\", \"nearest\", \"reflect\" or \"wrap\", received \"", text, "\"");
}

namespace image {
namespace {

// f(images as (batch, height, width, channels)), given back like the images.
template <class F>
Tensor on_batches(const char* op, const TensorArg& images, DataFormat format, F f) {
  const Tensor& given = images.tensor(op);
  const std::source_location where = images.where();
  require(given.rank() == 3 || given.rank() == 4, ErrorCode::shape_mismatch, where, op,
          ": takes one image or a batch of images, with 3 or 4 dimensions, received ", given.shape());
  const Tensor batch = given.rank() == 3 ? expand_dims(images, 0) : given;
  const Tensor result = from_channels_last(f(to_channels_last(batch, format, where)), format, where);
  return given.rank() == 3 ? squeeze(result, {0}) : result;
}

Tensor resized(const Tensor& x, const ResampleAttrs& attrs, std::source_location where) {
  if (attrs.input == attrs.output) return x;
  if (is_floating(x.dtype()) || !attrs.nearest) return emit_one(kResample, {x}, attrs, where);
  std::vector<int64_t> rows;
  for (const ResampleTap& tap : resample_taps(attrs)) rows.push_back(tap.low);
  return gather(TensorArg(x, where), Tensor::from(rows, {attrs.output}), attrs.axis);
}

// `axis` (1 or 2) of images (batch, height, width, channels) multiplied by the interpolation's matrix.
Tensor interpolated(const Tensor& x, int axis, int64_t output, const ResizeOptions& options) {
  const Shape& shape = x.shape();
  const int64_t input = shape[axis];
  if (input == output) return x;
  const DType wide = x.dtype() == DType::float64 ? DType::float64 : DType::float32;
  Tensor matrix;
  {
    const TracePause outside;
    matrix = cast(Tensor::from(interpolation_matrix(options.interpolation, options.antialias, input, output),
                               {output, input}),
                  wide);
  }
  // A product for each row of pixels, with a column for each channel, is slow where these are few. Turned so
  // that all rows and channels are one matrix, there is one product.
  constexpr int64_t kFewChannels = 16;
  const int64_t channels = shape[3];
  if (axis == 2 && channels < kFewChannels) {
    const Tensor lines =
        reshape(transpose(cast(x, wide), {0, 1, 3, 2}), {shape[0] * shape[1] * channels, input});
    const Tensor product = matmul(lines, matrix, {.transpose_b = true});
    return cast(transpose(reshape(product, {shape[0], shape[1], channels, output}), {0, 1, 3, 2}), x.dtype());
  }
  const int64_t rows = axis == 1 ? shape[0] : shape[0] * shape[1];
  const int64_t columns = axis == 1 ? shape[2] * shape[3] : shape[3];
  Shape result = shape;
  result[axis] = output;
  return cast(reshape(matmul(matrix, reshape(cast(x, wide), {rows, input, columns})), result), x.dtype());
}

// 0, 1, ..., n - 1
Tensor positions(int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i));
  return cast(Tensor::from(values, {n}), dtype);
}

// A coordinate of an image of n pixels, where it may lie outside of it; constant leaves it there.
Tensor folded(const Tensor& at, int64_t n, FillMode mode) {
  const auto length = static_cast<double>(n);
  const auto inside = [&](const Tensor& x) { return clip_by_value(x, 0.0, length - 1); };
  switch (mode.kind()) {
    case FillMode::constant: return at;
    case FillMode::nearest: return inside(at);
    case FillMode::reflect: {
      const Tensor turn = floormod(at, 2 * length);
      return inside(where(turn < length, turn, (2 * length - 1) - turn));
    }
    case FillMode::wrap: {
      if (n == 1) return zeros_like(at);
      const Tensor rounds = floor(abs(at) / (length - 1));
      return inside(
          where(at < 0.0, at + length * (rounds + 1.0), where(at > length - 1, at - length * rounds, at)));
    }
  }
  return at;
}

}  // namespace

Tensor resize(const TensorArg& images, const Dims& size, const ResizeOptions& options) {
  return on_batches("resize", images, options.data_format, [&](const Tensor& x) {
    require(size.rank() == 2 && size[0] >= 1 && size[1] >= 1, ErrorCode::invalid_argument, images.where(),
            "resize: the size must be {height, width}, 1 or more, received ", size);
    require(x.shape()[1] >= 1 && x.shape()[2] >= 1, ErrorCode::shape_mismatch, images.where(),
            "resize: the images of ", images.tensor().shape(), " are empty");
    const Interpolation::Kind kind = options.interpolation.kind();
    const bool nearest = kind == Interpolation::nearest;
    Tensor result = x;
    // First along the axis that leaves fewer elements; along the columns, whose rows are shorter, where both
    // leave as many.
    const bool rows_first = size[0] * x.shape()[2] < size[1] * x.shape()[1];
    const std::array<int, 2> axes = rows_first ? std::array{1, 2} : std::array{2, 1};
    if (!nearest && (kind != Interpolation::bilinear || options.antialias)) {
      require(is_floating(x.dtype()), ErrorCode::dtype_mismatch, images.where(),
              "resize: ", options.interpolation.name(),
              " interpolation takes floating-point images, received ", x.spec(),
              "; cast() them, or resize to the nearest pixels");
      for (const int axis : axes) result = interpolated(result, axis, size[axis - 1], options);
      return result;
    }
    for (const int axis : axes)
      result = resized(result,
                       {.axis = axis, .input = x.shape()[axis], .output = size[axis - 1], .nearest = nearest},
                       images.where());
    return result;
  });
}

Tensor affine_transform(const TensorArg& images, const TensorArg& transform,
                        const AffineTransformOptions& options) {
  constexpr const char* op = "affine_transform";
  const std::source_location where_called = images.where();
  require(options.interpolation.kind() <= Interpolation::bilinear, ErrorCode::invalid_argument, where_called,
          op, ": interpolation must be \"nearest\" or \"bilinear\", received \"",
          options.interpolation.name(), "\"");
  return on_batches(op, images, options.data_format, [&](const Tensor& x) {
    const Shape shape = x.shape();
    const int64_t batch = shape[0], height = shape[1], width = shape[2], channels = shape[3];
    const Tensor& t = transform.tensor(op);
    require(is_floating(x.dtype()) && t.dtype() == x.dtype(), ErrorCode::dtype_mismatch, where_called, op,
            ": takes floating-point images and a transform of their dtype, received ", x.spec(), " and ",
            t.spec(), "; cast() one of them");
    require(t.shape() == Shape{8} || t.shape() == Shape{batch, 8}, ErrorCode::shape_mismatch, where_called,
            op, ": the transform must be (8,) or one of 8 numbers for each image of ", shape, ", received ",
            t.shape());
    require(x.size() > 0, ErrorCode::shape_mismatch, where_called, op, ": the images of ", shape,
            " are empty");

    // Coordinates need more bits than a 16-bit float has.
    const DType wide = x.dtype() == DType::float64 ? DType::float64 : DType::float32;
    const Tensor numbers = reshape(cast(t, wide), {-1, 8, 1, 1});
    const auto number = [&](int64_t i) { return slice(numbers, {0, i, 0, 0}, {-1, 1, 1, 1}); };
    const Tensor row = reshape(positions(height, wide), {1, 1, height, 1}),
                 column = reshape(positions(width, wide), {1, 1, 1, width});
    const Tensor k = number(6) * column + number(7) * row + 1.0;
    const auto source = [&](int64_t first, int64_t n) {
      const Tensor at = (number(first) * column + number(first + 1) * row + number(first + 2)) / k;
      return folded(reshape(at, {-1, height * width}), n, options.fill_mode);
    };
    const Tensor across = source(0, width), down = source(3, height);

    const Tensor pixels = reshape(x, {batch * height * width, channels});
    const Tensor first = reshape(cast(positions(batch, wide), DType::int64), {batch, 1}) * (height * width);
    const auto read = [&](const Tensor& r, const Tensor& c) {
      const auto last_row = static_cast<double>(height - 1), last_column = static_cast<double>(width - 1);
      const Tensor place = cast(clip_by_value(r, 0.0, last_row), DType::int64) * width +
                           cast(clip_by_value(c, 0.0, last_column), DType::int64);
      Tensor values = gather(pixels, first + place);
      if (options.fill_mode.kind() != FillMode::constant) return values;
      const Tensor inside =
          logical_and(logical_and(r >= 0.0, r <= last_row), logical_and(c >= 0.0, c <= last_column));
      return where(expand_dims(inside, -1), values, options.fill_value);
    };
    // Half a pixel is rounded away from 0.
    const auto rounded = [](const Tensor& at) { return sign(at) * floor(abs(at) + 0.5); };
    if (options.interpolation.kind() == Interpolation::nearest)
      return reshape(read(rounded(down), rounded(across)), shape);
    const Tensor top = floor(down), left = floor(across);
    const auto weight = [&](const Tensor& w) { return expand_dims(cast(w, x.dtype()), -1); };
    const auto on_row = [&](const Tensor& r) {
      return read(r, left) * weight(1.0 - (across - left)) + read(r, left + 1.0) * weight(across - left);
    };
    return reshape(on_row(top) * weight(1.0 - (down - top)) + on_row(top + 1.0) * weight(down - top), shape);
  });
}

}  // namespace image
}  // namespace lockstep
