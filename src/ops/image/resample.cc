#include "ops/image/resample.h"

#include <algorithm>
#include <cmath>

#include "graph/emit.h"

namespace lockstep {
namespace {

SpecList resampled(const InferContext& c, int64_t from, int64_t to) {
  const auto& attrs = c.attrs<ResampleAttrs>();
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(attrs.axis < c.shape(0).rank() && c.shape(0)[attrs.axis] == from, ErrorCode::shape_mismatch,
          "takes a tensor of ", from, " elements along axis ", attrs.axis, ", received ", c.shape(0));
  TensorSpec result = c.inputs[0];
  result.shape[attrs.axis] = to;
  return {result};
}

SpecList infer(const InferContext& c) {
  return resampled(c, c.attrs<ResampleAttrs>().input, c.attrs<ResampleAttrs>().output);
}
SpecList infer_grad(const InferContext& c) {
  return resampled(c, c.attrs<ResampleAttrs>().output, c.attrs<ResampleAttrs>().input);
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const int64_t larger = &c.op == &kResample ? outputs[0].shape.size() : c.shape(0).size();
  return {.flops = 4 * larger, .bytes = static_cast<int64_t>(c.inputs[0].bytes() + outputs[0].bytes())};
}

}  // namespace

std::vector<ResampleTap> resample_taps(const ResampleAttrs& attrs) {
  std::vector<ResampleTap> taps;
  const double step = static_cast<double>(attrs.input) / static_cast<double>(attrs.output);
  const int64_t last = attrs.input - 1;
  for (int64_t i = 0; i < attrs.output; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * step;
    if (attrs.nearest) {
      const int64_t nearest = std::min(static_cast<int64_t>(center), last);
      taps.push_back({nearest, nearest, 0});
    } else {
      const double position = std::clamp(center - 0.5, 0.0, static_cast<double>(last));
      const auto low = static_cast<int64_t>(position);
      taps.push_back({low, std::min(low + 1, last), position - static_cast<double>(low)});
    }
  }
  return taps;
}

constinit const OpDef kResample{
    .name = "resample",
    .infer = infer,
    .grad = [](const GradContext& g) -> TensorList {
      return {emit_one(kResampleGrad, {g.dout()}, g.attributes(), std::source_location::current())};
    },
    .cost = cost};
constinit const OpDef kResampleGrad{
    .name = "resample_grad",
    .infer = infer_grad,
    .grad = [](const GradContext& g) -> TensorList {
      return {emit_one(kResample, {g.dout()}, g.attributes(), std::source_location::current())};
    },
    .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kResample), RegisterOp(kResampleGrad)};
}

}  // namespace lockstep
