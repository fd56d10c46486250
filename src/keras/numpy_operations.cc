#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "keras/fields.h"
#include "keras/operations.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras {
namespace {

// --- operations that take more than a line -----------------------------------------------------------------

// x[1:3, ..., None, 0]: slices, positions, new dimensions and all that are left out, as Python reads them.
Tensor get_item(const Operands& o) {
  const Tensor x = o.tensor(0);
  const Json key = o.argument(1).is_list() ? o.argument(1) : Json(Json::List{o.argument(1)});
  const auto is_ellipsis = [](const Json& part) {
    const Json* name = part.find("class_name");
    return name && name->is_string() && name->as_string() == "__ellipsis__";
  };
  int named = 0;
  for (const Json& part : key.items()) named += !part.is_null() && !is_ellipsis(part);
  require(named <= x.rank(), ErrorCode::invalid_argument, std::source_location::current(), "GetItem: ", key,
          " has more parts than the tensor of shape ", x.shape(), " dimensions");
  Dims begin, end, step, dropped, added;
  int result = 0;  // dimensions of the result so far, those to be dropped among them
  const auto take = [&](int64_t from, int64_t to, int64_t by) {
    begin.push_back(from), end.push_back(to), step.push_back(by), ++result;
  };
  const auto whole = [&] { take(0, x.shape()[begin.rank()], 1); };
  for (const Json& part : key.items()) {
    if (part.is_null()) {
      added.push_back(result++);
      continue;
    }
    if (is_ellipsis(part)) {
      for (int missing = x.rank() - named; missing > 0; --missing) whole();
      continue;
    }
    const int64_t size = x.shape()[begin.rank()];
    if (part.is_int()) {
      const int64_t at = part.as_int() < 0 ? part.as_int() + size : part.as_int();
      dropped.push_back(result);
      take(at, at + 1, 1);
      continue;
    }
    const Json* config = part.find("config");
    require(config != nullptr, ErrorCode::unsupported, std::source_location::current(), "GetItem: ", part,
            " is neither a position, a slice, None nor ...");
    const auto value = [&](const char* name, int64_t otherwise) {
      const Json* found = config->find(name);
      return found && !found->is_null() ? found->as_int() : otherwise;
    };
    require(value("step", 1) > 0, ErrorCode::unsupported, std::source_location::current(), "GetItem: ", part,
            " goes backwards; use Flip");
    take(value("start", 0), value("stop", size), value("step", 1));
  }
  while (begin.rank() < x.rank()) whole();
  Tensor cut = strided_slice(x, begin, end, step);
  for (const int64_t at : added) cut = expand_dims(cut, static_cast<int>(at));
  return dropped.empty() ? cut : squeeze(cut, dropped);
}

// A size of -1 or none follows from the others.
Dims sizes(const Operands& o, const char* name) {
  Dims shape;
  from_json(o.setting(name, Json()), shape);
  return shape;
}

Tensor average(const Operands& o) {
  const Tensor x = floating(o.tensor(0));
  if (!o.given(1, "weights")) return reduce_mean(x, o.reduction());
  Tensor weights = cast(o.tensor(1, "weights"), x.dtype());
  if (o.has("axis") && weights.rank() == 1 && x.rank() > 1) {
    Shape along = Dims::filled(x.rank(), 1);
    along[normalize_axis(o.axis(), x.rank(), "Average")] = weights.size();
    weights = reshape(weights, along);
  }
  const Tensor all = broadcast_to(weights, x.shape());
  return reduce_sum(x * all, o.reduction()) / reduce_sum(all, o.reduction());
}

// Where none is given: of all elements as one vector.
template <Tensor (*F)(const TensorArg&, int)>
Tensor place_of(const Operands& o) {
  int axis = 0;
  const Tensor x = o.along_axis(axis);
  const Tensor found = cast(F(x, axis), DType::int32);
  if (!o.setting("keepdims", false)) return found;
  return o.has("axis") ? expand_dims(found, axis) : reshape(found, Dims::filled(o.tensor(0).rank(), 1));
}

template <Tensor (*F)(const TensorArg&, const CumulativeOptions&)>
Tensor cumulative(const Operands& o) {
  int axis = 0;
  const Tensor x = o.along_axis(axis);
  return F(o.has("dtype") ? cast(x, o.setting("dtype", x.dtype())) : x, {.axis = axis});
}

Tensor padded(const Operands& o) {
  const Tensor x = o.tensor(0);
  std::vector<std::vector<int64_t>> widths;
  const Json given = o.setting("pad_width", Json());
  if (given.is_list() && !given.items().empty() && given.at(size_t{0}).is_list()) {
    from_json(given, widths);
  } else {
    widths.emplace_back();
    from_json(given, widths[0]);
  }
  if (widths.size() == 1) widths.resize(static_cast<size_t>(x.rank()), widths[0]);
  Dims before, after;
  for (const std::vector<int64_t>& width : widths) {
    require(width.size() == 1 || width.size() == 2, ErrorCode::invalid_argument,
            std::source_location::current(), "Pad: pad_width is [before, after] of each dimension, received ",
            given);
    before.push_back(width.front()), after.push_back(width.back());
  }
  const std::string mode = o.setting("mode", std::string("constant"));
  require(mode == "constant" || mode == "reflect" || mode == "symmetric", ErrorCode::unsupported,
          std::source_location::current(), "Pad: mode must be constant, reflect or symmetric, received \"",
          mode, "\"");
  return pad(
      x, before, after,
      {.mode = mode == "constant"  ? PadMode::constant
               : mode == "reflect" ? PadMode::reflect
                                   : PadMode::symmetric,
       .constant_value = o.given(1, "constant_values") ? o.argument(1, "constant_values").as_double() : 0});
}

// Into so many parts, or before these positions.
TensorList split_up(const Operands& o, int axis) {
  const Tensor x = o.tensor(0);
  const int64_t size = x.shape()[normalize_axis(axis, x.rank(), "Split")];
  const Json given = o.setting("indices_or_sections", Json());
  if (given.is_int()) return split(x, static_cast<int>(given.as_int()), axis);
  std::vector<int64_t> ends, lengths;
  from_json(given, ends);
  ends.push_back(size);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t stop = std::clamp(end < 0 ? end + size : end, begin, size);
    lengths.push_back(stop - begin);
    begin = stop;
  }
  return split(x, lengths, axis);
}

Tensor differences(const Operands& o) {
  Tensor x = o.tensor(0);
  const int axis = normalize_axis(o.axis(), x.rank(), "Diff");
  for (int64_t n = o.setting("n", int64_t{1}); n > 0; --n) {
    Dims first = Dims::filled(x.rank(), 0), second = first, size = x.shape();
    second[axis] = 1;
    --size[axis];
    x = slice(x, second, size) - slice(x, first, size);
  }
  return x;
}

Tensor tensor_dot(const Operands& o) {
  const Json axes = o.setting("axes", Json(2));
  if (axes.is_int()) return tensordot(o.tensor(0), o.tensor(1), static_cast<int>(axes.as_int()));
  Dims a, b;
  from_json(axes.at(size_t{0}), a);
  from_json(axes.at(size_t{1}), b);
  return tensordot(o.tensor(0), o.tensor(1), a, b);
}

Tensor repeated(const Operands& o) {
  int axis = 0;
  const Tensor x = o.along_axis(axis);
  const Json times = o.setting("repeats", Json(1));
  if (times.is_int()) return repeat(x, times.as_int(), axis);
  std::vector<int64_t> each;
  from_json(times, each);
  return repeat(x, each, axis);
}

Tensor rolled(const Operands& o) {
  const Tensor x = o.tensor(0);
  Dims shift, axes;
  from_json(o.setting("shift", Json(0)), shift);
  if (o.has("axis")) {
    from_json(o.setting("axis", Json()), axes);
    return roll(x, shift, axes);
  }
  return reshape(roll(reshape(x, {-1}), shift, {0}), x.shape());
}

Tensor tiled(const Operands& o) {
  Tensor x = o.tensor(0);
  Dims times;
  from_json(o.setting("repeats", Json(1)), times);
  while (times.rank() < x.rank()) times.insert(0, 1);
  while (x.rank() < times.rank()) x = expand_dims(x, 0);
  return tile(x, times);
}

Tensor rounded(const Operands& o) {
  const double scale = std::pow(10.0, static_cast<double>(o.setting("decimals", int64_t{0})));
  const Tensor x = o.tensor(0);
  return scale == 1 ? round(x) : round(x * scale) / scale;
}

// Joined along `axis`; vectors, which have none behind the first, along that one.
Tensor joined(const Operands& o, int axis) {
  TensorList parts = o.tensors();
  if (axis == 0)
    for (Tensor& part : parts)
      if (part.rank() == 1) part = expand_dims(part, 0);
  return concat(parts, !parts.empty() && parts[0].rank() <= axis ? 0 : axis);
}

Tensor chosen(const Operands& o) {
  const Json &conditions = o.argument(0, "condlist"), &choices = o.argument(1, "choicelist");
  const size_t count = conditions.items().size();
  // The tensors stand in the order of the call: conditions, choices, the default.
  require(choices.items().size() == count && count > 0, ErrorCode::invalid_argument,
          std::source_location::current(), "Select takes as many conditions as choices, received ",
          conditions, " and ", choices);
  const auto at = [&](const Json& list, size_t i) { return Operands::element(o, list.at(i)); };
  const Json& otherwise = o.argument(2, "default");
  Tensor result = Operands::element(o, otherwise.is_null() ? Json(0) : otherwise);
  for (size_t i = count; i-- > 0;) {
    const Tensor choice = at(choices, i);
    const DType dtype = common_dtype(choice.dtype(), result.dtype());
    result = lockstep::where(truth(at(conditions, i)), cast(choice, dtype), cast(result, dtype));
  }
  return result;
}

Tensor diagonal(const Operands& o) {
  const Tensor x = o.tensor(0);
  const auto k = static_cast<int>(o.setting("offset", int64_t{0}));
  const int a = normalize_axis(o.setting("axis1", int64_t{0}), x.rank(), "Diagonal");
  const int b = normalize_axis(o.setting("axis2", int64_t{1}), x.rank(), "Diagonal");
  return diag_part(moveaxis(x, {a, b}, {-2, -1}), k);
}

Tensor flipped(const Operands& o) {
  Dims axes;
  if (o.has("axis"))
    from_json(o.setting("axis", Json()), axes);
  else
    for (int d = 0; d < o.tensor(0).rank(); ++d) axes.push_back(d);
  return reverse(o.tensor(0), axes);
}

// --- the table ---------------------------------------------------------------------------------------------

template <Tensor (*F)(const OperandArg&, const OperandArg&)>
Tensor binary(const Operands& o) {
  const auto [a, b] = o.pair(0, 1);
  return F(a, b);
}

// Of floats: integers become such.
template <Tensor (*F)(const OperandArg&, const OperandArg&)>
Tensor float_binary(const Operands& o) {
  const auto [a, b] = o.pair(0, 1);
  const auto real = [](const OperandArg& x) { return x.is_number() ? x : OperandArg(floating(x.tensor())); };
  return F(real(a), real(b));
}

template <Tensor (*F)(const TensorArg&, const TensorArg&)>
Tensor logical(const Operands& o) {
  return F(truth(o.tensor(0)), truth(o.tensor(1)));
}

template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor reduction(const Operands& o) {
  return F(o.tensor(0), o.reduction());
}

template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor truth_reduction(const Operands& o) {
  return F(truth(o.tensor(0)), o.reduction());
}

// Booleans are counted.
template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor count_reduction(const Operands& o) {
  const Tensor x = o.tensor(0);
  return F(x.dtype() == DType::boolean ? cast(x, DType::int32) : x, o.reduction());
}

template <Tensor (*F)(const TensorArg&, int)>
Tensor diagonal_part(const Operands& o) {
  return F(o.tensor(0), static_cast<int>(o.setting("k", int64_t{0})));
}

Tensor like(const Operands& o, double value) {
  const Tensor x = o.tensor(0);
  return full(x.shape(), value, o.setting("dtype", x.dtype()));
}

// By one condition: of equal numbers each is one of the two, for gradients too.
std::pair<Tensor, Tensor> larger_first(const Tensor& a, const Tensor& b) {
  const Tensor swap = a < b;
  return {lockstep::where(swap, b, a), lockstep::where(swap, a, b)};
}

constexpr double kDegree = std::numbers::pi / 180;

constexpr Operation kNumpyOperations[] = {
    {"Add", "numpy", binary<add>},
    {"Subtract", "numpy", binary<subtract>},
    {"Multiply", "numpy", binary<multiply>},
    {"Divide", "numpy", float_binary<divide>},
    {"TrueDivide", "numpy", float_binary<divide>},
    {"DivideNoNan", "numpy", float_binary<divide_no_nan>},
    {"FloorDivide", "numpy", binary<floordiv>},
    {"Power", "numpy", binary<lockstep::pow>},
    {"Mod", "numpy", binary<floormod>},
    {"Maximum", "numpy", binary<maximum>},
    {"Minimum", "numpy", binary<minimum>},
    {"Arctan2", "numpy", float_binary<lockstep::atan2>},
    {"Equal", "numpy", binary<equal>},
    {"NotEqual", "numpy", binary<not_equal>},
    {"Less", "numpy", binary<less>},
    {"LessEqual", "numpy", binary<less_equal>},
    {"Greater", "numpy", binary<greater>},
    {"GreaterEqual", "numpy", binary<greater_equal>},
    {"Hypot", "numpy",
     [](const Operands& o) {  // the squares themselves may leave the dtype's range
       const auto [large, small] = larger_first(abs(floating(o.tensor(0))), abs(floating(o.tensor(1))));
       return lockstep::where(is_inf(large), large, large * sqrt(1.0 + square(divide_no_nan(small, large))));
     }},
    {"Logaddexp", "numpy",
     [](const Operands& o) {
       const auto [large, small] = larger_first(floating(o.tensor(0)), floating(o.tensor(1)));
       return lockstep::where(is_inf(large), large, large + softplus(small - large));
     }},
    {"Heaviside", "numpy",
     [](const Operands& o) {
       const Tensor x = floating(o.tensor(0));
       const OperandArg at_zero = o.operand(1);
       return lockstep::where(equal(x, 0.0),
                              at_zero.is_number()
                                  ? full(x.shape(), at_zero.number(), x.dtype())
                                  : broadcast_to(cast(at_zero.tensor(), x.dtype()), x.shape()),
                              lockstep::where(is_nan(x), x, cast(x > 0.0, x.dtype())));
     }},
    {"Isclose", "numpy",
     [](const Operands& o) {
       const auto [a, b] = o.pair(0, 1);
       const double relative = o.given(2, "rtol") ? o.argument(2, "rtol").as_double() : 1e-5;
       const double absolute = o.given(3, "atol") ? o.argument(3, "atol").as_double() : 1e-8;
       const Tensor distance = abs(subtract(a, b));
       return less_equal(distance, b.is_number() ? OperandArg(absolute + relative * std::abs(b.number()))
                                                 : OperandArg(abs(b.tensor()) * relative + absolute));
     }},
    {"LogicalAnd", "numpy", logical<logical_and>},
    {"LogicalOr", "numpy", logical<logical_or>},
    {"LogicalXor", "numpy", logical<logical_xor>},
    {"LogicalNot", "numpy", [](const Operands& o) { return logical_not(truth(o.tensor(0))); }},
    {"Where", "numpy",
     [](const Operands& o) {
       const auto [a, b] = o.pair(1, 2);
       return lockstep::where(truth(o.tensor(0)), a, b);
     }},
    {"Select", "numpy", chosen},
    {"Clip", "numpy",
     [](const Operands& o) {
       return clip_by_value(o.tensor(0), o.number("x_min", 0), o.number("x_max", 0));
     }},
    {"Negative", "numpy", unary<negative>},
    {"Absolute", "numpy", unary<lockstep::abs>},
    {"Fabs", "numpy", float_unary<lockstep::abs>},
    {"Sign", "numpy", unary<sign>},
    {"Square", "numpy", unary<square>},
    {"Reciprocal", "numpy", float_unary<reciprocal>},
    {"Sqrt", "numpy", float_unary<lockstep::sqrt>},
    {"Exp", "numpy", float_unary<lockstep::exp>},
    {"Exp2", "numpy", [](const Operands& o) { return exp(floating(o.tensor(0)) * std::numbers::ln2); }},
    {"Expm1", "numpy", float_unary<lockstep::expm1>},
    {"Log", "numpy", float_unary<lockstep::log>},
    {"Log10", "numpy", float_unary<lockstep::log10>},
    {"Log1p", "numpy", float_unary<lockstep::log1p>},
    {"Log2", "numpy", float_unary<lockstep::log2>},
    {"Tanh", "numpy", float_unary<lockstep::tanh>},
    {"Sinh", "numpy", float_unary<lockstep::sinh>},
    {"Cosh", "numpy", float_unary<lockstep::cosh>},
    {"Sin", "numpy", float_unary<lockstep::sin>},
    {"Cos", "numpy", float_unary<lockstep::cos>},
    {"Tan", "numpy", float_unary<lockstep::tan>},
    {"Arcsin", "numpy", float_unary<lockstep::asin>},
    {"Arccos", "numpy", float_unary<lockstep::acos>},
    {"Arctan", "numpy", float_unary<lockstep::atan>},
    {"Arcsinh", "numpy", float_unary<lockstep::asinh>},
    {"Arccosh", "numpy", float_unary<lockstep::acosh>},
    {"Arctanh", "numpy", float_unary<lockstep::atanh>},
    {"Deg2rad", "numpy", [](const Operands& o) { return floating(o.tensor(0)) * kDegree; }},
    {"Rad2deg", "numpy", [](const Operands& o) { return floating(o.tensor(0)) / kDegree; }},
    {"Floor", "numpy", float_unary<lockstep::floor>},
    {"Ceil", "numpy", float_unary<lockstep::ceil>},
    {"Trunc", "numpy", float_unary<truncate>},
    {"Round", "numpy", rounded},
    {"Copy", "numpy", unary<identity>},
    {"Isnan", "numpy", float_unary<is_nan>},
    {"Isinf", "numpy", float_unary<is_inf>},
    {"Isfinite", "numpy", float_unary<is_finite>},
    {"Isposinf", "numpy",
     [](const Operands& o) { return logical_and(is_inf(floating(o.tensor(0))), o.tensor(0) > 0.0); }},
    {"Isneginf", "numpy",
     [](const Operands& o) { return logical_and(is_inf(floating(o.tensor(0))), o.tensor(0) < 0.0); }},
    {"Sum", "numpy", count_reduction<reduce_sum>},
    {"Mean", "numpy", float_reduction<reduce_mean>},
    {"Average", "numpy", average},
    {"Max", "numpy", reduction<reduce_max>},
    {"Min", "numpy", reduction<reduce_min>},
    {"Amax", "numpy", reduction<reduce_max>},
    {"Amin", "numpy", reduction<reduce_min>},
    {"Ptp", "numpy",
     [](const Operands& o) {
       return reduce_max(o.tensor(0), o.reduction()) - reduce_min(o.tensor(0), o.reduction());
     }},
    {"Prod", "numpy", count_reduction<reduce_prod>},
    {"Var", "numpy", float_reduction<reduce_variance>},
    {"Std", "numpy", float_reduction<reduce_std>},
    {"Any", "numpy", truth_reduction<reduce_any>},
    {"All", "numpy", truth_reduction<reduce_all>},
    {"CountNonzero", "numpy",
     [](const Operands& o) { return reduce_sum(cast(truth(o.tensor(0)), DType::int32), o.reduction()); }},
    {"Argmax", "numpy", place_of<argmax>},
    {"Argmin", "numpy", place_of<argmin>},
    {"Cumsum", "numpy", cumulative<cumsum>},
    {"Cumprod", "numpy", cumulative<cumprod>},
    {"Diff", "numpy", differences},
    {"Sort", "numpy",
     [](const Operands& o) {
       int axis = 0;
       const Tensor x = o.along_axis(axis);
       return sort(x, {.axis = axis});
     }},
    {"Argsort", "numpy",
     [](const Operands& o) {
       int axis = 0;
       const Tensor x = o.along_axis(axis);
       return cast(argsort(x, {.axis = axis}), DType::int32);
     }},
    {"Matmul", "numpy",
     [](const Operands& o) {
       const auto [a, b] = o.pair(0, 1);
       return matmul(a, b);
     }},
    {"Dot", "numpy",
     [](const Operands& o) {
       const auto [a, b] = o.pair(0, 1);
       return dot(a, b);
     }},
    {"Outer", "numpy",
     [](const Operands& o) { return outer(reshape(o.tensor(0), {-1}), reshape(o.tensor(1), {-1})); }},
    {"Einsum", "numpy",
     [](const Operands& o) { return einsum(o.setting("subscripts", std::string()), o.tensors()); }},
    {"Tensordot", "numpy", tensor_dot},
    {"Transpose", "numpy",
     [](const Operands& o) { return transpose(o.tensor(0), o.setting("axes", Dims())); }},
    {"Swapaxes", "numpy",
     [](const Operands& o) {
       return swapaxes(o.tensor(0), static_cast<int>(o.setting("axis1", int64_t{0})),
                       static_cast<int>(o.setting("axis2", int64_t{0})));
     }},
    {"Moveaxis", "numpy",
     [](const Operands& o) {
       return moveaxis(o.tensor(0), list_setting(o, "source", {}), list_setting(o, "destination", {}));
     }},
    {"Reshape", "numpy", [](const Operands& o) { return reshape(o.tensor(0), sizes(o, "newshape")); }},
    {"Ravel", "numpy", [](const Operands& o) { return reshape(o.tensor(0), {-1}); }},
    {"BroadcastTo", "numpy", [](const Operands& o) { return broadcast_to(o.tensor(0), sizes(o, "shape")); }},
    {"Concatenate", "numpy", [](const Operands& o) { return concat(o.tensors(), o.axis(0)); }},
    {"Append", "numpy",
     [](const Operands& o) {
       TensorList parts = o.tensors();
       if (!o.has("axis"))
         for (Tensor& part : parts) part = reshape(part, {-1});
       return concat(parts, o.axis(0));
     }},
    {"Stack", "numpy", [](const Operands& o) { return stack(o.tensors(), o.axis(0)); }},
    {"Hstack", "numpy", [](const Operands& o) { return joined(o, 1); }},
    {"Vstack", "numpy", [](const Operands& o) { return joined(o, 0); }},
    {"Split", "numpy", nullptr, [](const Operands& o) { return split_up(o, o.axis(0)); }},
    {"Vsplit", "numpy", nullptr, [](const Operands& o) { return split_up(o, 0); }},
    {"Hsplit", "numpy", nullptr,
     [](const Operands& o) { return split_up(o, o.tensor(0).rank() > 1 ? 1 : 0); }},
    {"Meshgrid", "numpy", nullptr,
     [](const Operands& o) {
       return meshgrid(o.tensors(), o.setting("indexing", std::string("xy")) == "ij" ? MeshIndexing::ij
                                                                                     : MeshIndexing::xy);
     }},
    {"ExpandDims", "numpy",
     [](const Operands& o) {
       Tensor x = o.tensor(0);
       for (const int64_t axis : list_setting(o, "axis", {-1})) x = expand_dims(x, static_cast<int>(axis));
       return x;
     }},
    {"Squeeze", "numpy", [](const Operands& o) { return squeeze(o.tensor(0), o.setting("axis", Dims())); }},
    {"GetItem", "numpy", get_item},
    {"Take", "numpy",
     [](const Operands& o) {
       int axis = 0;
       const Tensor x = o.along_axis(axis);
       return gather(x, o.tensor(1, "indices"), axis);
     }},
    {"TakeAlongAxis", "numpy",
     [](const Operands& o) {
       int axis = 0;
       const Tensor x = o.along_axis(axis), indices = o.tensor(1, "indices");
       return take_along_axis(x, o.has("axis") ? indices : reshape(indices, {-1}), axis);
     }},
    {"SearchSorted", "numpy",
     [](const Operands& o) {
       return cast(searchsorted(o.tensor(0, "sorted_sequence"), o.tensor(1, "values"),
                                o.setting("side", std::string("left")) == "right" ? SearchSide::right
                                                                                  : SearchSide::left),
                   DType::int32);
     }},
    {"Pad", "numpy", padded},
    {"Repeat", "numpy", repeated},
    {"Tile", "numpy", tiled},
    {"Roll", "numpy", rolled},
    {"Flip", "numpy", flipped},
    {"Fliplr", "numpy", [](const Operands& o) { return reverse(o.tensor(0), {1}); }},
    {"Flipud", "numpy", [](const Operands& o) { return reverse(o.tensor(0), {0}); }},
    {"Tril", "numpy", diagonal_part<tril>},
    {"Triu", "numpy", diagonal_part<triu>},
    {"Diag", "numpy",
     [](const Operands& o) {
       const auto k = static_cast<int>(o.setting("k", int64_t{0}));
       return o.tensor(0).rank() == 1 ? diag(o.tensor(0), k) : diag_part(o.tensor(0), k);
     }},
    {"Diagonal", "numpy", diagonal},
    {"Trace", "numpy", [](const Operands& o) { return reduce_sum(diagonal(o), {.axis = {-1}}); }},
    {"ZerosLike", "numpy", [](const Operands& o) { return like(o, 0); }},
    {"EmptyLike", "numpy", [](const Operands& o) { return like(o, 0); }},
    {"OnesLike", "numpy", [](const Operands& o) { return like(o, 1); }},
    {"FullLike", "numpy",
     [](const Operands& o) {
       const Tensor x = o.tensor(0);
       const DType dtype = o.setting("dtype", x.dtype());
       return broadcast_to(cast(o.tensor(1, "fill_value"), dtype), x.shape());
     }},
    {"NanToNum", "numpy",
     [](const Operands& o) {
       const Tensor x = floating(o.tensor(0));
       require(x.dtype() == DType::float32 || x.dtype() == DType::float64, ErrorCode::unsupported,
               std::source_location::current(), "NanToNum takes float32 and float64");
       const double largest = x.dtype() == DType::float64 ? std::numeric_limits<double>::max()
                                                          : std::numeric_limits<float>::max();
       const Tensor numbers = lockstep::where(is_nan(x), o.number("nan", 0), x);
       const Tensor below =
           lockstep::where(logical_and(is_inf(x), x > 0.0), o.number("posinf", largest), numbers);
       return lockstep::where(logical_and(is_inf(x), x < 0.0), o.number("neginf", -largest), below);
     }},
};

}  // namespace

std::span<const Operation> numpy_operations() { return kNumpyOperations; }

}  // namespace lockstep::keras
