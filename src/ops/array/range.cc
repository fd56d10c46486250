#include "ops/array/range.h"

#include <cmath>

#include "graph/emit.h"
#include "lockstep/ops/array.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<RangeAttrs>();
  c.check(attrs.count >= 0, ErrorCode::invalid_argument, "the number of elements is not negative, received ",
          attrs.count);
  c.check(attrs.dtype != DType::boolean, ErrorCode::dtype_mismatch, "makes numbers, received dtype ",
          attrs.dtype);
  return {{attrs.dtype, {attrs.count}}};
}

// Integers are computed as doubles too: up to here that is exact.
constexpr double kLargestInteger = 0x1p53;

void check_exact(const char* name, double value, DType dtype, std::source_location where) {
  require(is_floating(dtype) || (value == std::trunc(value) && std::abs(value) <= kLargestInteger),
          ErrorCode::dtype_mismatch, where, name, ": ", value, " has no exact ", dtype, " value");
}

}  // namespace

constinit const OpDef kRange{.name = "range", .min_inputs = 0, .max_inputs = 0, .infer = infer};

namespace {
const RegisterOp registered(kRange);
}

Tensor range(double start, double limit, double delta, DType dtype, std::source_location where) {
  require(delta != 0 && std::isfinite(delta) && std::isfinite(start) && std::isfinite(limit),
          ErrorCode::invalid_argument, where,
          "range: start, limit and delta are finite and delta is not 0, received ", start, ", ", limit,
          " and ", delta);
  for (const double value : {start, delta}) check_exact("range", value, dtype, where);
  const double steps = std::ceil((limit - start) / delta);
  const auto count = steps > 0 ? static_cast<int64_t>(steps) : 0;
  const double last = start + static_cast<double>(count - 1) * delta;
  if (count > 0) check_exact("range", last, dtype, where);
  return emit_one(kRange, std::span<const Tensor>{}, RangeAttrs{start, delta, last, count, dtype}, where);
}

Tensor range(double limit, DType dtype, std::source_location where) {
  return range(0, limit, 1, dtype, where);
}

Tensor linspace(double start, double stop, int64_t count, DType dtype, std::source_location where) {
  require(count >= 1, ErrorCode::invalid_argument, where, "linspace: makes one or more numbers, received ",
          count);
  require(is_floating(dtype), ErrorCode::dtype_mismatch, where,
          "linspace: makes floating-point numbers, received dtype ", dtype);
  const double delta = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  return emit_one(kRange, std::span<const Tensor>{},
                  RangeAttrs{start, delta, count > 1 ? stop : start, count, dtype}, where);
}

Tensor index_range(const Tensor& beside, int64_t count, int64_t delta, DType dtype) {
  const auto step = static_cast<double>(delta);
  const Tensor range = emit_one(kRange, std::span<const Tensor>{},
                                RangeAttrs{0, step, static_cast<double>(count - 1) * step, count, dtype},
                                std::source_location::current());
  return range.symbolic() ? range : range.to(beside.device());
}

}  // namespace lockstep
