#include "ops/nn/conv_window.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Dims height_and_width(std::string_view op, std::string_view what, const Dims& values,
                      std::source_location where) {
  require(values.rank() == 1 || values.rank() == 2, ErrorCode::invalid_argument, where, op, ": ", what,
          " must be {height, width} or one number for both, received ", values);
  for (const int64_t value : values)
    require(value >= 1, ErrorCode::invalid_argument, where, op, ": ", what, " must be 1 or more, received ",
            values);
  return {values[0], values[-1]};
}

}  // namespace

Padding::Kind Padding::parse(std::string_view text, std::source_location where) {
  require(text == "valid" || text == "same", ErrorCode::invalid_argument, where,
          "padding must be \"valid\" or \"same\", received \"", text, "\"");
  return text == "valid" ? valid : same;
}

Window2d slide_window(std::string_view op, const Shape& shape, const Dims& size, const Dims& strides,
                      const Dims& dilations, Padding padding, std::source_location where) {
  require(shape.rank() == 4, ErrorCode::shape_mismatch, where, op,
          ": takes images of shape (batch, height, width, channels), received ", shape);
  Window2d window{.input = {shape[1], shape[2]},
                  .size = height_and_width(op, "the window's size", size, where),
                  .strides = height_and_width(op, "strides", strides, where),
                  .dilations = height_and_width(op, "dilations", dilations, where)};
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t input = window.input[axis];
    const int64_t extent = window.extent(axis);
    require(input >= 1, ErrorCode::shape_mismatch, where, op, ": the images of ", shape, " are empty");
    if (padding.kind() == Padding::same) {
      const int64_t output = (input + window.strides[axis] - 1) / window.strides[axis];
      const int64_t zeros = std::max<int64_t>((output - 1) * window.strides[axis] + extent - input, 0);
      window.before[axis] = zeros / 2;
      window.after[axis] = zeros - zeros / 2;
    }
    require(input + window.before[axis] + window.after[axis] >= extent, ErrorCode::shape_mismatch, where, op,
            ": a window of ", window.size[0], " x ", window.size[1], " with dilations ", window.dilations,
            " does not fit into images of ", window.input[0], " x ", window.input[1],
            "; use padding \"same\" or larger images");
  }
  return window;
}

}  // namespace lockstep
