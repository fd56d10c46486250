#include "ops/nn/conv_window.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"

namespace lockstep {
namespace {

// "4 x 5"
std::string joined(const Dims& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : " x ") + std::to_string(d);
  return text;
}

}  // namespace

Padding::Kind Padding::parse(std::string_view text, std::source_location where) {
  if (text == "valid" || text == "VALID") return valid;  // capitals: as tf.nn writes it
  if (text == "same" || text == "SAME") return same;
  if (text == "causal") return causal;
  fail(ErrorCode::invalid_argument, where,
       "padding must be \"valid\", \"same\" or, in one dimension, \"causal\", received \"", text, "\"");
}

DataFormat::Kind DataFormat::parse(std::string_view text, std::source_location where) {
  require(text == "channels_last" || text == "channels_first", ErrorCode::invalid_argument, where,
          "data_format must be \"channels_last\" or \"channels_first\", received \"", text, "\"");
  return text == "channels_last" ? channels_last : channels_first;
}

std::string_view image_axes(int rank) {
  constexpr std::string_view names[] = {"(batch, length, channels)", "(batch, height, width, channels)",
                                        "(batch, depth, height, width, channels)"};
  return names[rank - 1];
}

Shape image_shape(int64_t batch, const Dims& size, int64_t channels) {
  Shape shape{batch};
  for (const int64_t d : size) shape.push_back(d);
  shape.push_back(channels);
  return shape;
}

Dims image_size(const Shape& shape) { return Dims(shape.span().subspan(1, shape.span().size() - 2)); }

Dims per_axis(std::string_view op, std::string_view what, int rank, const Dims& values, int64_t least,
              std::source_location where) {
  constexpr std::string_view names[] = {"one number", "{height, width} or one number for both",
                                        "{depth, height, width} or one number for all"};
  require(values.rank() == 1 || values.rank() == rank, ErrorCode::invalid_argument, where, op, ": ", what,
          " must be ", names[rank - 1], ", received ", values);
  // Products of two of them are counted in 64 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (const int64_t value : values)
    require(value >= least && value <= kMost, ErrorCode::invalid_argument, where, op, ": ", what, " must be ",
            least, value > kMost ? " to 2^31 - 1" : " or more", ", received ", values);
  return values.rank() == rank ? values : Dims::filled(rank, values[0]);
}

Dims Window::output() const {
  Dims sizes;
  for (int axis = 0; axis < rank(); ++axis) sizes.push_back(output(axis));
  return sizes;
}

Window slide_window(std::string_view op, int rank, const Shape& shape, const Dims& size, const Dims& strides,
                    const Dims& dilations, Padding padding, std::source_location where) {
  require(shape.rank() == rank + 2, ErrorCode::shape_mismatch, where, op, ": takes images of shape ",
          image_axes(rank), ", received ", shape);
  require(padding.kind() != Padding::causal || rank == 1, ErrorCode::invalid_argument, where, op,
          ": padding \"causal\" is for one dimension, the images have ", rank);
  Window window{.input = image_size(shape),
                .size = per_axis(op, "the window's size", rank, size, 1, where),
                .strides = per_axis(op, "strides", rank, strides, 1, where),
                .dilations = per_axis(op, "dilations", rank, dilations, 1, where),
                .before = Dims::filled(rank, 0),
                .after = Dims::filled(rank, 0)};
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t input = window.input[axis];
    const int64_t extent = window.extent(axis);
    require(input >= 1, ErrorCode::shape_mismatch, where, op, ": the images of ", shape, " are empty");
    if (padding.kind() == Padding::same) {
      const int64_t output = (input + window.strides[axis] - 1) / window.strides[axis];
      const int64_t zeros = std::max<int64_t>((output - 1) * window.strides[axis] + extent - input, 0);
      window.before[axis] = zeros / 2;
      window.after[axis] = zeros - zeros / 2;
    } else if (padding.kind() == Padding::causal) {
      window.before[axis] = extent - 1;
    }
    require(input + window.before[axis] + window.after[axis] >= extent, ErrorCode::shape_mismatch, where, op,
            ": a window of ", joined(window.size), " with dilations ", window.dilations,
            " does not fit into images of ", joined(window.input), "; use padding \"same\" or larger images");
  }
  return window;
}

std::optional<Window> with_padding(Window window, const Shape& shape, const Dims& before, const Dims& after) {
  const int rank = window.rank();
  if (shape.rank() != rank + 2 || before[0] + after[0] + before[rank + 1] + after[rank + 1] != 0)
    return std::nullopt;
  for (int i = 0; i < rank; ++i) {
    window.input[i] = shape[i + 1];
    window.before[i] += before[i + 1];
    window.after[i] += after[i + 1];
  }
  if (!(window.before == window.after)) return std::nullopt;
  return window;
}

Window lift(const Window& window, int rank) {
  Window lifted = window;
  while (lifted.rank() < rank) {
    for (Dims* dims : {&lifted.input, &lifted.size, &lifted.strides, &lifted.dilations}) dims->insert(0, 1);
    lifted.before.insert(0, 0);
    lifted.after.insert(0, 0);
  }
  return lifted;
}

Tensor to_channels_last(const Tensor& x, DataFormat format, std::source_location where) {
  if (format.kind() == DataFormat::channels_last || x.rank() < 3) return x;
  Dims order{0};
  for (int axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  return transpose(TensorArg(x, where), order);
}

Tensor from_channels_last(const Tensor& x, DataFormat format, std::source_location where) {
  if (format.kind() == DataFormat::channels_last) return x;
  Dims order{0, x.rank() - 1};
  for (int axis = 1; axis < x.rank() - 1; ++axis) order.push_back(axis);
  return transpose(TensorArg(x, where), order);
}

}  // namespace lockstep
