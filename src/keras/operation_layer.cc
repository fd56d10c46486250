#include "keras/operation_layer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "keras/fields.h"
#include "keras/written_tensors.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/image.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras {
namespace {

// --- what an operation is given --------------------------------------------------------------------------------------

Tensor floating(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, DType::float32); }
Tensor truth(const Tensor& x) { return x.dtype() == DType::boolean ? x : not_equal(x, 0.0); }

// What values of both become when they meet: floats before integers before booleans, then the wider.
DType common_dtype(DType a, DType b) {
  if (a == b) return a;
  const auto kind = [](DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; };
  if (kind(a) != kind(b)) return kind(a) > kind(b) ? a : b;
  if (size_of(a) != size_of(b)) return size_of(a) > size_of(b) ? a : b;
  return is_floating(a) ? DType::float32 : DType::int32;
}

// The tensors of the call, its arguments and its settings.
class Operands {
 public:
  Operands(const TensorList& tensors, const OperationArguments& arguments, const Json& config)
      : tensors_(tensors), arguments_(arguments), config_(config) {}

  // The argument at this place, or of this name; null where there is none.
  const Json& argument(size_t i, const char* name = nullptr) const {
    static const Json none;
    if (i < arguments_.positional().items().size()) return arguments_.positional().at(i);
    const Json* found = name ? arguments_.named().find(name) : nullptr;
    return found ? *found : none;
  }
  size_t arguments() const { return arguments_.positional().items().size(); }
  bool given(size_t i, const char* name) const { return !argument(i, name).is_null(); }

  Tensor tensor(size_t i, const char* name = nullptr) const { return tensor_of(argument(i, name)); }
  // Of a list among the arguments.
  static Tensor element(const Operands& o, const Json& given) { return o.tensor_of(given); }
  // The elements of a list that is the only argument, or all arguments, brought to one dtype.
  TensorList tensors() const {
    const Json& list = argument(0).is_list() ? argument(0) : arguments_.positional();
    TensorList all;
    for (const Json& item : list.items()) all.push_back(tensor_of(item));
    return promoted(std::move(all));
  }

  // A tensor, or a number, which takes the dtype of what it meets.
  OperandArg operand(size_t i, const char* name = nullptr) const {
    const Json& given = argument(i, name);
    if (given.is_bool()) return given.as_bool() ? 1.0 : 0.0;
    if (given.is_number()) return given.as_double();
    return tensor_of(given);
  }
  // Two of them, brought to one dtype.
  std::pair<OperandArg, OperandArg> pair(size_t i, size_t j) const {
    const OperandArg a = operand(i), b = operand(j);
    if (a.is_number() || b.is_number()) return {beside(a, argument(j)), beside(b, argument(i))};
    const DType dtype = common_dtype(a.tensor().dtype(), b.tensor().dtype());
    return {cast(a.tensor(), dtype), cast(b.tensor(), dtype)};
  }

  // A setting; null and none are the default.
  template <class T>
  T setting(const char* name, T value) const {
    if (const Json* found = config_.find(name); found && !found->is_null()) from_json(*found, value);
    return value;
  }
  bool has(const char* name) const {
    const Json* found = config_.find(name);
    return found && !found->is_null();
  }
  ReduceOptions reduction() const {
    return {.axis = setting("axis", std::vector<int64_t>()), .keepdims = setting("keepdims", false)};
  }
  int axis(int64_t otherwise = -1) const { return static_cast<int>(setting("axis", otherwise)); }
  double number(const char* name, double otherwise) const { return setting(name, otherwise); }

  // The argument as its operation takes it where no axis is set: as one vector.
  Tensor along_axis(int& at) const {
    at = axis(0);
    return has("axis") ? tensor(0) : reshape(tensor(0), {-1});
  }

 private:
  Tensor tensor_of(const Json& given) const {
    if (const Json* input = given.find("input")) return tensors_[static_cast<size_t>(input->as_int())];
    if (const Tensor constant = read_tensor(given); constant.defined()) return constant;
    if (given.is_bool()) return cast(Tensor::scalar(given.as_bool() ? 1.0F : 0.0F), DType::boolean);
    if (given.is_int()) return Tensor::scalar(static_cast<int32_t>(given.as_int()));
    return Tensor::scalar(static_cast<float>(given.as_double()));
  }
  // A tensor beside a number: integers that meet a fraction become floats.
  static OperandArg beside(const OperandArg& x, const Json& number) {
    if (x.is_number() || is_floating(x.tensor().dtype()) || !number.is_number()) return x;
    if (!number.is_int()) return cast(x.tensor(), DType::float32);
    return x.tensor().dtype() == DType::boolean ? OperandArg(cast(x.tensor(), DType::int32)) : x;
  }
  static TensorList promoted(TensorList tensors) {
    if (tensors.empty()) return tensors;
    DType dtype = tensors[0].dtype();
    for (const Tensor& x : tensors) dtype = common_dtype(dtype, x.dtype());
    for (Tensor& x : tensors)
      if (x.dtype() != dtype) x = cast(x, dtype);
    return tensors;
  }

  const TensorList& tensors_;
  const OperationArguments& arguments_;
  const Json& config_;
};

// --- operations that take more than a line ---------------------------------------------------------------------------

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

Tensor normalized(const Operands& o) {
  const double order = o.number("order", 2), epsilon = o.number("epsilon", 1e-7);
  const Tensor x = floating(o.tensor(0));
  Dims axis = {-1};
  if (o.has("axis")) from_json(o.setting("axis", Json()), axis);
  if (order == 2)
    return x * rsqrt(maximum(reduce_sum(square(x), {.axis = {axis.begin(), axis.end()}, .keepdims = true}),
                             epsilon * epsilon));
  return x / maximum(norm(x, {.ord = order, .axis = {axis.begin(), axis.end()}, .keepdims = true}), epsilon);
}

Tensor norm_of(const Operands& o) {
  const Json order = o.setting("ord", Json(2));
  require(order.is_number() || order == Json("euclidean"), ErrorCode::unsupported,
          std::source_location::current(), "Norm: ord must be a number, received ", order);
  std::vector<int64_t> axis = o.setting("axis", std::vector<int64_t>());
  require(axis.size() < 2 || !order.is_number() || !o.has("ord"), ErrorCode::unsupported,
          std::source_location::current(), "Norm: norms of matrices are not known, received axis ",
          o.setting("axis", Json()), " and ord ", order);
  return norm(floating(o.tensor(0)), {.ord = order.is_number() ? order.as_double() : 2,
                                      .axis = axis,
                                      .keepdims = o.setting("keepdims", false)});
}

Tensor layer_norm_of(const Operands& o) {
  const Tensor x = o.tensor(0);
  Dims axis = {-1};
  from_json(o.setting("axis", Json(-1)), axis);
  Shape sizes;
  for (const int64_t a : axis) sizes.push_back(x.shape()[static_cast<int>(a)]);
  const Tensor gamma = o.given(1, "gamma") ? o.tensor(1, "gamma") : ones(sizes, x.dtype());
  const Tensor beta = o.given(2, "beta") ? o.tensor(2, "beta") : zeros(sizes, x.dtype());
  return layer_norm(x, gamma, beta, {.axis = axis, .epsilon = o.number("epsilon", 1e-7)});
}

Tensor rms_norm_of(const Operands& o) {
  const Tensor x = o.tensor(0);
  Dims axis = {-1};
  from_json(o.setting("axis", Json(-1)), axis);
  Shape sizes;
  for (const int64_t a : axis) sizes.push_back(x.shape()[static_cast<int>(a)]);
  const Tensor scale = o.given(1, "scale") ? o.tensor(1, "scale") : ones(sizes, x.dtype());
  return rms_norm(x, scale, {.axis = axis, .epsilon = o.number("epsilon", 1e-7)});
}

Tensor attention(const Operands& o) {
  require(!o.has("attn_logits_soft_cap"), ErrorCode::unsupported, std::source_location::current(),
          "DotProductAttention: attn_logits_soft_cap is not known");
  AttentionOptions options{.is_causal = o.setting("is_causal", false)};
  if (o.given(3, "bias")) options.bias = o.tensor(3, "bias");
  if (o.given(4, "mask")) options.mask = truth(o.tensor(4, "mask"));
  if (o.given(5, "scale")) options.scale = o.argument(5, "scale").as_double();
  return scaled_dot_product_attention(o.tensor(0, "query"), o.tensor(1, "key"), o.tensor(2, "value"),
                                      options);
}

Dims list_setting(const Operands& o, const char* name, const Dims& otherwise) {
  Dims values = otherwise;
  if (o.has(name)) from_json(o.setting(name, Json()), values);
  return values;
}

template <bool Max>
Tensor pool(const Operands& o) {
  const Tensor x = o.tensor(0, "inputs");
  const PoolOptions options{.pool_size = list_setting(o, "pool_size", {2}),
                            .strides = list_setting(o, "strides", {}),
                            .padding = Padding(o.setting("padding", std::string("valid"))),
                            .data_format = o.setting("data_format", DataFormat(DataFormat::channels_last))};
  constexpr decltype(&max_pool1d) kPools[] = {Max ? max_pool1d : avg_pool1d, Max ? max_pool2d : avg_pool2d,
                                              Max ? max_pool3d : avg_pool3d};
  require(x.rank() >= 3 && x.rank() <= 5, ErrorCode::shape_mismatch, std::source_location::current(),
          "pooling takes inputs of rank 3 to 5, received shape ", x.shape());
  return kPools[x.rank() - 3](x, options);
}

Tensor convolution(const Operands& o) {
  const Tensor x = o.tensor(0, "inputs"), kernel = o.tensor(1, "kernel");
  require(x.rank() >= 3 && x.rank() <= 5 && kernel.rank() == x.rank(), ErrorCode::shape_mismatch,
          std::source_location::current(),
          "Conv takes inputs of rank 3 to 5 and a kernel of that rank, received ", x.shape(), " and ",
          kernel.shape());
  const DataFormat format = o.setting("data_format", DataFormat(DataFormat::channels_last));
  const int64_t channels = x.shape()[format.kind() == DataFormat::channels_first ? 1 : -1];
  const ConvOptions options{.strides = list_setting(o, "strides", {1}),
                            .padding = Padding(o.setting("padding", std::string("valid"))),
                            .dilations = list_setting(o, "dilation_rate", {1}),
                            .groups = kernel.shape()[-2] > 0 ? channels / kernel.shape()[-2] : 1,
                            .data_format = format};
  constexpr decltype(&conv1d) kConvolutions[] = {conv1d, conv2d, conv3d};
  return kConvolutions[x.rank() - 3](x, kernel, options);
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

TensorList moments_of(const Operands& o) {
  std::vector<int64_t> axes;
  from_json(o.setting("axes", Json()), axes);
  const Moments found =
      moments(floating(o.tensor(0)), {.axis = axes, .keepdims = o.setting("keepdims", false)});
  return {found.mean, found.variance};
}

Tensor one_hot_of(const Operands& o) {
  const Tensor x = o.tensor(0);
  require(!o.setting("sparse", false), ErrorCode::unsupported, std::source_location::current(),
          "OneHot: sparse tensors are not known");
  const Tensor last = one_hot(is_floating(x.dtype()) ? cast(x, DType::int32) : x,
                              o.setting("num_classes", int64_t{0}), o.setting("dtype", DType::float32));
  const int axis = normalize_axis(o.axis(), last.rank(), "OneHot");
  return axis == last.rank() - 1 ? last : moveaxis(last, {-1}, {axis});
}

Tensor resized(const Operands& o) {
  require(!o.setting("crop_to_aspect_ratio", false) && !o.setting("pad_to_aspect_ratio", false),
          ErrorCode::unsupported, std::source_location::current(),
          "Resize: crop_to_aspect_ratio and pad_to_aspect_ratio are not known");
  return image::resize(o.tensor(0), list_setting(o, "size", {}),
                       {.interpolation = Interpolation(o.setting("interpolation", std::string("bilinear"))),
                        .antialias = o.setting("antialias", false),
                        .data_format = o.setting("data_format", DataFormat(DataFormat::channels_last))});
}

Tensor flipped(const Operands& o) {
  Dims axes;
  if (o.has("axis"))
    from_json(o.setting("axis", Json()), axes);
  else
    for (int d = 0; d < o.tensor(0).rank(); ++d) axes.push_back(d);
  return reverse(o.tensor(0), axes);
}

// --- the table -------------------------------------------------------------------------------------------------------

struct Operation {
  const char* class_name;
  const char* module;  // behind keras.src.ops.
  Tensor (*run)(const Operands&);
  TensorList (*run_all)(const Operands&) = nullptr;  // in place of run: several results
};

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
template <Tensor (*F)(const TensorArg&)>
Tensor unary(const Operands& o) {
  return F(o.tensor(0));
}
template <Tensor (*F)(const TensorArg&)>
Tensor float_unary(const Operands& o) {
  return F(floating(o.tensor(0)));
}
template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor reduction(const Operands& o) {
  return F(o.tensor(0), o.reduction());
}
template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor float_reduction(const Operands& o) {
  return F(floating(o.tensor(0)), o.reduction());
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

constexpr double kDegree = std::numbers::pi / 180;

constexpr Operation kOperations[] = {
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
     [](const Operands& o) {
       return sqrt(square(floating(o.tensor(0))) + square(floating(o.tensor(1))));
     }},
    {"Logaddexp", "numpy",
     [](const Operands& o) {
       const Tensor a = floating(o.tensor(0)), b = floating(o.tensor(1));
       return maximum(a, b) + softplus(-abs(a - b));
     }},
    {"Heaviside", "numpy",
     [](const Operands& o) {
       const Tensor x = floating(o.tensor(0));
       const OperandArg at_zero = o.operand(1);
       return lockstep::where(equal(x, 0.0), at_zero.is_number() ? full(x.shape(), at_zero.number(), x.dtype()) : broadcast_to(cast(at_zero.tensor(), x.dtype()), x.shape()), cast(x > 0.0, x.dtype()));
     }},
    {"Isclose", "numpy",
     [](const Operands& o) {
       const auto [a, b] = o.pair(0, 1);
       const double relative = o.given(2, "rtol") ? o.argument(2, "rtol").as_double() : 1e-5;
       const double absolute = o.given(3, "atol") ? o.argument(3, "atol").as_double() : 1e-8;
       const Tensor distance = abs(subtract(a, b));
       return less_equal(distance, b.is_number() ? OperandArg(absolute + relative * std::abs(b.number())) : OperandArg(abs(b.tensor()) * relative + absolute));
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
     [](const Operands& o) {
       return logical_and(is_inf(floating(o.tensor(0))), o.tensor(0) > 0.0);
     }},
    {"Isneginf", "numpy",
     [](const Operands& o) {
       return logical_and(is_inf(floating(o.tensor(0))), o.tensor(0) < 0.0);
     }},
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
     [](const Operands& o) {
       return reduce_sum(cast(truth(o.tensor(0)), DType::int32), o.reduction());
     }},
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
    {"Matmul", "numpy", [](const Operands& o) { const auto [a, b] = o.pair(0, 1); return matmul(a, b); }},
    {"Dot", "numpy", [](const Operands& o) { const auto [a, b] = o.pair(0, 1); return dot(a, b); }},
    {"Outer", "numpy",
     [](const Operands& o) {
       return outer(reshape(o.tensor(0), {-1}), reshape(o.tensor(1), {-1}));
     }},
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
       require(x.dtype() == DType::float32 || x.dtype() == DType::float64, ErrorCode::unsupported, std::source_location::current(), "NanToNum takes float32 and float64");
       const double largest = x.dtype() == DType::float64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
       const Tensor numbers = lockstep::where(is_nan(x), o.number("nan", 0), x);
       const Tensor below = lockstep::where(logical_and(is_inf(x), x > 0.0), o.number("posinf", largest), numbers);
       return lockstep::where(logical_and(is_inf(x), x < 0.0), o.number("neginf", -largest), below);
     }},
    {"Relu", "nn", [](const Operands& o) { return relu(o.tensor(0)); }},
    {"Relu6", "nn", unary<relu6>},
    {"Sigmoid", "nn", float_unary<sigmoid>},
    {"SparseSigmoid", "nn", unary<sparse_sigmoid>},
    {"Softplus", "nn", float_unary<softplus>},
    {"Softsign", "nn", unary<softsign>},
    {"SoftShrink", "nn",
     [](const Operands& o) { return soft_shrink(o.tensor(0), o.number("threshold", 0.5)); }},
    {"HardShrink", "nn",
     [](const Operands& o) { return hard_shrink(o.tensor(0), o.number("threshold", 0.5)); }},
    {"SparsePlus", "nn", unary<sparse_plus>},
    {"Silu", "nn", float_unary<silu>},
    {"Squareplus", "nn", [](const Operands& o) { return squareplus(o.tensor(0), o.number("b", 4)); }},
    {"LogSigmoid", "nn", float_unary<log_sigmoid>},
    {"LeakyRelu", "nn",
     [](const Operands& o) { return leaky_relu(o.tensor(0), o.number("negative_slope", 0.2)); }},
    {"HardSigmoid", "nn", unary<hard_sigmoid>},
    {"HardSilu", "nn", unary<hard_silu>},
    {"HardTanh", "nn", unary<hard_tanh>},
    {"TanhShrink", "nn", unary<tanh_shrink>},
    {"Elu", "nn", [](const Operands& o) { return elu(o.tensor(0), o.number("alpha", 1)); }},
    {"Selu", "nn", unary<selu>},
    {"Celu", "nn", [](const Operands& o) { return celu(o.tensor(0), o.number("alpha", 1)); }},
    {"Gelu", "nn",
     [](const Operands& o) { return gelu(o.tensor(0), {.approximate = o.setting("approximate", true)}); }},
    {"Glu", "nn", [](const Operands& o) { return glu(o.tensor(0), o.axis()); }},
    {"Threshold", "nn",
     [](const Operands& o) {
       return threshold(o.tensor(0), o.number("threshold", 0), o.number("default_value", 0));
     }},
    {"Softmax", "nn", [](const Operands& o) { return softmax(o.tensor(0), o.axis()); }},
    {"LogSoftmax", "nn", [](const Operands& o) { return log_softmax(o.tensor(0), o.axis()); }},
    {"OneHot", "nn", one_hot_of},
    {"Moments", "nn", nullptr, moments_of},
    {"Normalize", "nn", normalized},
    {"LayerNorm", "nn", layer_norm_of},
    {"RMSNorm", "nn", rms_norm_of},
    {"DotProductAttention", "nn", attention},
    {"MaxPool", "nn", pool<true>},
    {"AveragePool", "nn", pool<false>},
    {"Conv", "nn", convolution},
    {"DepthToSpace", "nn",
     [](const Operands& o) { return depth_to_space(o.tensor(0), o.setting("block_size", int64_t{1})); }},
    {"SpaceToDepth", "nn",
     [](const Operands& o) { return space_to_depth(o.tensor(0), o.setting("block_size", int64_t{1})); }},
    {"Cast", "core", [](const Operands& o) { return cast(o.tensor(0), o.setting("dtype", DType::float32)); }},
    {"ConvertToTensor", "core",
     [](const Operands& o) { return cast(o.tensor(0), o.setting("dtype", o.tensor(0).dtype())); }},
    {"StopGradient", "core", unary<stop_gradient>},
    {"Unstack", "core", nullptr, [](const Operands& o) { return unstack(o.tensor(0), o.axis(0)); }},
    {"TopK", "math", nullptr,
     [](const Operands& o) {
       const TopK found = top_k(o.tensor(0), o.setting("k", int64_t{1}));
       return TensorList{found.values, found.indices};
     }},
    {"InTopK", "math",
     [](const Operands& o) {
       return in_top_k(o.tensor(0, "targets"), o.tensor(1, "predictions"), o.setting("k", int64_t{1}));
     }},
    {"Logsumexp", "math", float_reduction<reduce_logsumexp>},
    {"Rsqrt", "math", float_unary<rsqrt>},
    {"Erf", "math", float_unary<lockstep::erf>},
    {"Erfc", "math", float_unary<lockstep::erfc>},
    {"Norm", "linalg", norm_of},
    {"Resize", "image", resized},
};

const Operation* find(const std::string& class_name) {
  const auto* found =
      std::find_if(std::begin(kOperations), std::end(kOperations),
                   [&](const Operation& operation) { return class_name == operation.class_name; });
  return found == std::end(kOperations) ? nullptr : found;
}

Json fill_in(const Json& arguments, const Json::List& inputs) {
  if (const Json* input = arguments.find("input")) return inputs[static_cast<size_t>(input->as_int())];
  if (arguments.is_list()) {
    Json list = Json::list();
    for (const Json& item : arguments.items()) list.push_back(fill_in(item, inputs));
    return list;
  }
  if (!arguments.is_object()) return arguments;
  Json object = Json::object();
  for (const auto& [name, value] : arguments.members()) object.set(name, fill_in(value, inputs));
  return object;
}

std::string name_in(const Json& config) {
  const Json* name = config.find("name");
  return name ? name->as_string() : "";
}

// Set once, by a front; read whenever a model is.
std::function<Layer(const Json& entry)>& maker_of_operations() {
  static std::function<Layer(const Json& entry)> make;
  return make;
}

bool is_module_of_operations(const std::string& module) {
  // Keras', and a front's own.
  return module.starts_with("keras.src.ops.") || module.starts_with("keras.src.activations.") ||
         module.starts_with("lockstep.");
}

}  // namespace

Json OperationArguments::written(const Json::List& inputs) const {
  Json kwargs = Json::object();  // an argument may be called "input", as the place of one is
  for (const auto& [name, value] : named_.members()) kwargs.set(name, fill_in(value, inputs));
  return Json::object({{"args", fill_in(positional_, inputs)}, {"kwargs", std::move(kwargs)}});
}

OperationLayer::OperationLayer(const std::string& class_name, Json config)
    : LayerBase(class_name, {.name = name_in(config)}), config_(std::move(config)) {
  if (!find(class_name)) {
    std::string known;
    for (const Operation& operation : kOperations)
      known += (known.empty() ? "" : ", ") + std::string(operation.class_name);
    fail(ErrorCode::unsupported, std::source_location::current(), "the operation \"", class_name,
         "\" of keras.ops is not known between layers; there are ", known);
  }
  config_.set("name", name());
}

TensorList OperationLayer::call_all(const TensorList& inputs, const CallContext& context) {
  const auto* arguments = dynamic_cast<const OperationArguments*>(context.form.get());
  require(arguments != nullptr, ErrorCode::invalid_argument, std::source_location::current(), "operation \"",
          name(), "\" was called without the arguments of keras.ops");
  const Operation& operation = *find(class_name());
  const Operands operands(inputs, *arguments, config_);
  if (operation.run_all) return operation.run_all(operands);
  return {operation.run(operands)};
}

std::string OperationLayer::module() const {
  return std::string("keras.src.ops.") + find(class_name())->module;
}
Json OperationLayer::get_config() const { return config_; }

std::shared_ptr<const CallForm> OperationLayer::read_call(const Json& args, const Json& kwargs) const {
  return std::make_shared<OperationArguments>(args, kwargs);
}

std::vector<std::string> OperationLayer::known() {
  std::vector<std::string> names;
  for (const Operation& operation : kOperations) names.emplace_back(operation.class_name);
  return names;
}

KerasTensor call_operation(const std::string& class_name, const Json& config, const Json& arguments,
                           const KerasTensorList& values, std::source_location where) {
  return make_layer<OperationLayer>(class_name, config)(
      values, {.form = std::make_shared<OperationArguments>(arguments)}, where);
}

bool is_operation(const Json& json) {
  const Json* module = json.find("module");
  return module && module->is_string() && is_module_of_operations(module->as_string());
}

Layer read_operation(const Json& json) {
  if (const auto& make = maker_of_operations()) return make(json);
  return make_layer<OperationLayer>(json.at("class_name").as_string(), json.at("config"));
}

bool is_operation(const LayerBase& layer) { return is_module_of_operations(layer.module()); }

void register_operations(std::function<Layer(const Json& entry)> make) {
  maker_of_operations() = std::move(make);
}

}  // namespace lockstep::keras
