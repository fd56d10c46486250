#include "keras/onnx/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "graph/emit.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Operands = std::vector<Operand>;

Dims to_last(int rank) {
  Dims order = {0};
  for (int d = 2; d < rank; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}
Dims to_second(int rank) {
  Dims order = {0, rank - 1};
  for (int d = 1; d < rank - 1; ++d) order.push_back(d);
  return order;
}

Operands plain(const Tensor& tensor) { return {Operand{.stored = tensor}}; }

Dims dims_of(const NodeCall& call, const Ints& values) {
  call.supports(values.size() <= static_cast<size_t>(kMaxRank), "more than ", kMaxRank, " dimensions");
  return Dims(std::span<const int64_t>(values));
}
int axis_of(const NodeCall& call, int64_t axis, int rank) {
  call.supports(axis >= -rank && axis < rank, "there is no axis ", axis, " of ", rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
void check_room(const NodeCall& call, const Shape& shape) {
  call.supports(std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; }),
                "a result of shape ", shape);
  call.supports(shape.size() <= kMostKnown || !call.operand(0).known, "a constant of shape ", shape,
                " is too large");
}

// --- elementwise -------------------------------------------------------------------------------------------

// Elements stay where they are, however they lie.
Operator unary(std::function<Tensor(const NodeCall&, const Tensor&)> compute) {
  return [compute = std::move(compute)](const NodeCall& call) -> Operands {
    const Operand& x = call.operand(0);
    return {Operand{.stored = compute(call, x.stored), .channels_last = x.channels_last}};
  };
}
Operator unary(Tensor (*compute)(const TensorArg&)) {
  return unary([compute](const NodeCall&, const Tensor& x) { return compute(x); });
}

// As an operand of an elementwise op whose others lie with channels last, in `rank` dimensions.
Tensor beside_channels_last(const Operand& operand, int rank) {
  if (operand.channels_last && operand.rank() == rank) return operand.stored;
  const Tensor value = operand.value();
  if (value.rank() == 0 || value.shape().size() == 1) return reshape(value, {});
  Shape shape = Dims::filled(rank - value.rank(), 1);
  for (const int64_t size : value.shape()) shape.push_back(size);
  return transpose(reshape(value, shape), to_last(rank));
}

using Combine = std::function<Tensor(const NodeCall&, const std::vector<Tensor>&)>;
Operator elementwise(Combine compute) {
  return [compute = std::move(compute)](const NodeCall& call) -> Operands {
    call.supports(call.num_inputs() > 0, "it has no inputs");
    int rank = 0;
    bool last = false;
    for (size_t i = 0; i < call.num_inputs(); ++i) rank = std::max(rank, call.operand(i).rank());
    for (size_t i = 0; i < call.num_inputs(); ++i)
      last = last || (call.operand(i).channels_last && call.operand(i).rank() == rank);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < call.num_inputs(); ++i)
      inputs.push_back(last ? beside_channels_last(call.operand(i), rank) : call.x(i));
    return {Operand{.stored = compute(call, inputs), .channels_last = last}};
  };
}
Operator binary(Tensor (*compute)(const OperandArg&, const OperandArg&)) {
  return elementwise([compute](const NodeCall& call, const std::vector<Tensor>& x) {
    call.supports(x.size() == 2, "it takes two inputs");
    return compute(x[0], x[1]);
  });
}
Operator logical(Tensor (*compute)(const TensorArg&, const TensorArg&)) {
  return elementwise([compute](const NodeCall& call, const std::vector<Tensor>& x) {
    call.supports(x.size() == 2, "it takes two inputs");
    return compute(x[0], x[1]);
  });
}
// An operator that folds any number of inputs, from the left.
Operator folded(Tensor (*compute)(const OperandArg&, const OperandArg&), bool mean = false) {
  return elementwise([compute, mean](const NodeCall&, const std::vector<Tensor>& x) {
    Tensor result = x[0];
    for (size_t i = 1; i < x.size(); ++i) result = compute(result, x[i]);
    return mean ? result / static_cast<double>(x.size()) : result;
  });
}

// Sizes are not negative: rounded down is towards zero.
Tensor quotient(const OperandArg& a, const OperandArg& b) {
  return is_floating(a.tensor().dtype()) ? divide(a, b) : floordiv(a, b);
}

Tensor clipped(const NodeCall& call, const Tensor& x) {
  const NodeAttribute *low = call.attribute("min"), *high = call.attribute("max");  // before version 11
  Tensor y = x;
  if (low || call.has(1)) y = maximum(y, low ? low->real : call.known_number(1, 0));
  if (high || call.has(2)) y = minimum(y, high ? high->real : call.known_number(2, 0));
  return y;
}

Tensor casted(const NodeCall& call, const Tensor& x) {
  const std::optional<DType> to = dtype_of(call.integer("to", 0));
  call.supports(to.has_value(), "there is no type ", call.integer("to", 0), " of onnx.proto here");
  return cast(x, *to);
}

// --- products ----------------------------------------------------------------------------------------------

Tensor product(const Tensor& a, const Tensor& b) {
  if (a.rank() > 1 && b.rank() > 1) return matmul(a, b);
  Tensor c = matmul(a.rank() == 1 ? expand_dims(a, 0) : a, b.rank() == 1 ? expand_dims(b, 1) : b);
  if (a.rank() == 1) c = squeeze(c, {b.rank() == 1 ? -2 : c.rank() - 2});
  return b.rank() == 1 ? squeeze(c, {-1}) : c;
}

Operands gemm(const NodeCall& call) {
  call.supports(call.operand(0).rank() == 2 && call.operand(1).rank() == 2, "it takes matrices");
  Tensor y =
      matmul(call.x(0), call.x(1),
             {.transpose_a = call.integer("transA", 0) != 0, .transpose_b = call.integer("transB", 0) != 0});
  if (const double alpha = call.real("alpha", 1); alpha != 1) y = y * alpha;
  if (call.has(2)) {
    const double beta = call.real("beta", 1);
    y = y + (beta == 1 ? call.x(2) : call.x(2) * beta);
  }
  return plain(y);
}

// --- windows -----------------------------------------------------------------------------------------------

// Where the windows of a convolution or a pooling are.
struct Windows {
  Ints size, strides, dilations;
  Ints before, behind;  // elements that are added around the image
  Ints beyond;          // behind those: what the last window reaches over
};

Windows windows_of(const NodeCall& call, const Shape& image, Ints size) {
  const size_t spatial = size.size();
  call.supports(spatial >= 1 && spatial <= 3 && static_cast<size_t>(image.rank()) == spatial + 2,
                "windows of ", spatial, " dimensions for an input of shape ", image);
  Windows w{.size = std::move(size),
            .strides = call.integers("strides", Ints(spatial, 1)),
            .dilations = call.integers("dilations", Ints(spatial, 1)),
            .before = Ints(spatial, 0),
            .behind = Ints(spatial, 0),
            .beyond = Ints(spatial, 0)};
  const Ints pads = call.integers("pads", Ints(2 * spatial, 0));
  call.supports(w.strides.size() == spatial && w.dilations.size() == spatial && pads.size() == 2 * spatial,
                "strides, dilations and pads do not fit windows of ", spatial, " dimensions");
  const std::string automatic = call.text("auto_pad", "NOTSET");
  for (size_t d = 0; d < spatial; ++d) {
    call.supports(w.size[d] >= 1 && w.strides[d] >= 1 && w.dilations[d] >= 1 && w.size[d] < (1 << 20) &&
                      w.strides[d] < (1 << 20) && w.dilations[d] < (1 << 20) && pads[d] >= 0 &&
                      pads[spatial + d] >= 0 && pads[d] < (1 << 20) && pads[spatial + d] < (1 << 20),
                  "windows, strides, dilations and pads of such sizes");
    const int64_t reach = (w.size[d] - 1) * w.dilations[d] + 1, length = image[static_cast<int>(d) + 2];
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t results = (length + w.strides[d] - 1) / w.strides[d];
      const int64_t all = std::max<int64_t>(0, (results - 1) * w.strides[d] + reach - length);
      w.before[d] = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      w.behind[d] = all - w.before[d];
    } else if (automatic == "NOTSET") {
      w.before[d] = pads[d];
      w.behind[d] = pads[spatial + d];
    } else {
      call.supports(automatic == "VALID", "auto_pad ", automatic);
    }
    // One more window where the last one reaches over the edge.
    if (call.integer("ceil_mode", 0) != 0) {
      const int64_t left = length + w.before[d] + w.behind[d] - reach;
      if (left > 0 && left % w.strides[d] != 0) {
        const int64_t more = w.strides[d] - left % w.strides[d];
        // A window that would begin in what is added behind does not count.
        if ((left / w.strides[d] + 1) * w.strides[d] < length + w.before[d]) w.beyond[d] = more;
      }
    }
  }
  return w;
}

// `value` around the image, and `beyond` behind that.
Tensor surrounded(const Tensor& image, const Windows& w, double value, double beyond) {
  const auto added = [](const Tensor& x, const Ints& before, const Ints& behind, double filling) {
    Dims front = {0}, back = {0};
    for (const int64_t count : before) front.push_back(count);
    for (const int64_t count : behind) back.push_back(count);
    front.push_back(0), back.push_back(0);
    const Dims none = Dims::filled(front.rank(), 0);
    return front == none && back == none ? x : pad(x, front, back, {.constant_value = filling});
  };
  return added(added(image, w.before, w.behind, value), Ints(w.size.size(), 0), w.beyond, beyond);
}

Operands convolve(const NodeCall& call) {
  const Operand& x = call.operand(0);
  const Tensor filter = call.x(1);
  call.supports(filter.rank() >= 3 && filter.rank() <= 5, "a filter of shape ", filter.shape());
  Ints size;
  for (int d = 2; d < filter.rank(); ++d) size.push_back(filter.shape()[d]);
  const Windows w = windows_of(call, x.shape(), size);
  // (out, in, window...) to (window..., in, out)
  Dims order;
  for (int d = 2; d < filter.rank(); ++d) order.push_back(d);
  order.push_back(1), order.push_back(0);
  const ConvOptions options{.strides = dims_of(call, w.strides),
                            .dilations = dims_of(call, w.dilations),
                            .groups = call.integer("group", 1)};
  call.supports(options.groups >= 1, options.groups, " groups");
  const Tensor image = surrounded(x.with_channels_last(), w, 0, 0), kernel = transpose(filter, order);
  Tensor y = size.size() == 1   ? conv1d(image, kernel, options)
             : size.size() == 2 ? conv2d(image, kernel, options)
                                : conv3d(image, kernel, options);
  if (call.has(2)) y = y + call.x(2);  // channels are last
  return {Operand{.stored = y, .channels_last = true}};
}

Tensor pooled(const Tensor& image, const Windows& w, bool max) {
  const PoolOptions options{.pool_size = Dims(std::span<const int64_t>(w.size)),
                            .strides = Dims(std::span<const int64_t>(w.strides))};
  switch (w.size.size()) {
    case 1: return max ? max_pool1d(image, options) : avg_pool1d(image, options);
    case 2: return max ? max_pool2d(image, options) : avg_pool2d(image, options);
    default: return max ? max_pool3d(image, options) : avg_pool3d(image, options);
  }
}

Operands pool(const NodeCall& call) {
  const bool max = call.node().op == "MaxPool";
  const Operand& x = call.operand(0);
  const Windows w = windows_of(call, x.shape(), call.integers("kernel_shape"));
  call.supports(std::all_of(w.dilations.begin(), w.dilations.end(), [](int64_t d) { return d == 1; }),
                "dilations are not known here");
  call.supports(call.node().outputs.size() < 2 || call.node().outputs[1].empty(),
                "the indices are not known here");
  const Tensor image = x.with_channels_last();
  if (max) {
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    return {Operand{.stored = pooled(surrounded(image, w, kLeast, kLeast), w, true), .channels_last = true}};
  }
  Tensor y = pooled(surrounded(image, w, 0, 0), w, false);
  const auto adds = [](const Ints& counts) {
    return std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n > 0; });
  };
  // What was added around does not count, unless that is asked for; what is beyond never does.
  const bool counts_around = call.integer("count_include_pad", 0) != 0;
  if (adds(w.beyond) || (!counts_around && (adds(w.before) || adds(w.behind)))) {
    Shape one = image.shape();
    one[0] = 1, one[-1] = 1;
    y = y / pooled(surrounded(ones(one, image.dtype()), w, counts_around ? 1 : 0, 0), w, false);
  }
  return {Operand{.stored = y, .channels_last = true}};
}

Operator pooled_over_all(Tensor (*compute)(const TensorArg&, const ReduceOptions&)) {
  return [compute](const NodeCall& call) -> Operands {
    const Operand& x = call.operand(0);
    call.supports(x.rank() >= 3, "an input of shape ", x.shape());
    ReduceOptions options{.keepdims = true};
    const int first = x.channels_last ? 1 : 2;
    for (int d = 0; d < x.rank() - 2; ++d) options.axis.push_back(first + d);
    return {Operand{.stored = compute(x.stored, options), .channels_last = x.channels_last}};
  };
}

// --- normalisations ----------------------------------------------------------------------------------------

Operands batch_normalised(const NodeCall& call) {
  call.supports(call.integer("training_mode", 0) == 0, "statistics of the batch are not known here");
  const Operand& x = call.operand(0);
  const BatchNormOptions options{.gamma = call.x(1),
                                 .beta = call.x(2),
                                 .axis = x.channels_last ? -1 : 1,
                                 .epsilon = call.real("epsilon", 1e-5)};
  return {Operand{.stored = batch_normalization(x.stored, call.x(3), call.x(4), options),
                  .channels_last = x.channels_last}};
}

Operands layer_normalised(const NodeCall& call) {
  const Tensor x = call.x();
  const int axis = axis_of(call, call.integer("axis", -1), x.rank());
  LayerNormOptions options{.axis = {}, .epsilon = call.real("epsilon", 1e-5)};
  Shape normalised;
  for (int d = axis; d < x.rank(); ++d) options.axis.push_back(d), normalised.push_back(x.shape()[d]);
  const Tensor beta = call.has(2) ? call.x(2) : zeros(normalised, x.dtype());
  return plain(layer_norm(x, broadcast_to(call.x(1), normalised), broadcast_to(beta, normalised), options));
}

// --- reductions --------------------------------------------------------------------------------------------

Operator reduction(Tensor (*compute)(const TensorArg&, const ReduceOptions&)) {
  return [compute](const NodeCall& call) -> Operands {
    const Tensor x = call.x();
    ReduceOptions options{.axis = call.axes(1), .keepdims = call.integer("keepdims", 1) != 0};
    if (options.axis.empty() && call.integer("noop_with_empty_axes", 0) != 0) return plain(x);
    return plain(compute(x, options));
  };
}

Operands index_of(const NodeCall& call, Tensor (*compute)(const TensorArg&, int)) {
  const Tensor x = call.x();
  call.supports(call.integer("select_last_index", 0) == 0, "the last of several is not known here");
  const int axis = axis_of(call, call.integer("axis", 0), x.rank());
  const Tensor y = cast(compute(x, axis), DType::int64);
  return plain(call.integer("keepdims", 1) != 0 ? expand_dims(y, axis) : y);
}

Operator along_axis(Tensor (*compute)(const TensorArg&, int)) {
  return [compute](const NodeCall& call) -> Operands {
    const Tensor x = call.x();
    // Before version 13 all dimensions from the axis on were one.
    const int64_t otherwise = call.opset() >= 13 ? -1 : 1;
    const int axis = axis_of(call, call.integer("axis", otherwise), x.rank());
    if (call.opset() >= 13 || axis == x.rank() - 1) return plain(compute(x, axis));
    Shape rows = x.shape().first(axis);
    int64_t size = 1;
    for (int d = axis; d < x.rank(); ++d) size *= x.shape()[d];
    rows.push_back(size);
    return plain(reshape(compute(reshape(x, rows), -1), x.shape()));
  };
}

// --- shapes ------------------------------------------------------------------------------------------------

Operands shape_of(const NodeCall& call) {
  const Shape shape = call.operand(0).shape();
  const int64_t rank = shape.rank();
  const auto place = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  Ints sizes;
  for (int64_t d = place(call.integer("start", 0)); d < place(call.integer("end", rank)); ++d)
    sizes.push_back(shape[static_cast<int>(d)]);
  return plain(Tensor::from(sizes, {static_cast<int64_t>(sizes.size())}));
}

Operands reshape_to(const NodeCall& call) {
  const Tensor x = call.x();
  Ints sizes = call.known_integers(1);
  for (size_t d = 0; d < sizes.size() && call.integer("allowzero", 0) == 0; ++d)
    if (sizes[d] == 0) {
      call.supports(d < static_cast<size_t>(x.rank()), "size ", d,
                    " is that of a dimension that there is not");
      sizes[d] = x.shape()[static_cast<int>(d)];
    }
  return plain(reshape(x, dims_of(call, sizes)));
}

Operands flattened(const NodeCall& call) {
  const Tensor x = call.x();
  int64_t axis = call.integer("axis", 1);
  call.supports(axis >= -x.rank() && axis <= x.rank(), "there is no axis ", axis, " of ", x.rank());
  if (axis < 0) axis += x.rank();
  int64_t rows = 1, columns = 1;
  for (int d = 0; d < x.rank(); ++d) (d < axis ? rows : columns) *= x.shape()[d];
  return plain(reshape(x, {rows, columns}));
}

Operands transposed(const NodeCall& call) {
  const Operand& x = call.operand(0);
  Ints order = call.integers("perm");
  if (order.empty())
    for (int d = x.rank() - 1; d >= 0; --d) order.push_back(d);
  const Dims axes = dims_of(call, order);
  // There and back around what knows channels first alone: nothing moves.
  if (x.channels_last && axes == to_last(x.rank())) return plain(x.stored);
  if (!x.channels_last && x.rank() >= 3 && axes == to_second(x.rank()))
    return {Operand{.stored = x.stored, .channels_last = true}};
  return plain(transpose(x.value(), axes));
}

Operands unsqueezed(const NodeCall& call) {
  Tensor x = call.x();
  Ints axes = call.axes(1);
  const int rank = x.rank() + static_cast<int>(axes.size());
  call.supports(rank <= kMaxRank, "more than ", kMaxRank, " dimensions");
  for (int64_t& axis : axes) axis = axis_of(call, axis, rank);
  std::sort(axes.begin(), axes.end());
  for (const int64_t axis : axes) x = expand_dims(x, static_cast<int>(axis));
  return plain(x);
}

Operands squeezed(const NodeCall& call) { return plain(squeeze(call.x(), dims_of(call, call.axes(1)))); }

Operands concatenated(const NodeCall& call) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < call.num_inputs(); ++i) parts.push_back(call.x(i));
  call.supports(!parts.empty(), "it has no inputs");
  return plain(concat(parts, axis_of(call, call.integer("axis", 0), parts[0].rank())));
}

Operands divided(const NodeCall& call) {
  const Tensor x = call.x();
  const int axis = axis_of(call, call.integer("axis", 0), x.rank());
  const auto results = static_cast<int64_t>(call.node().outputs.size());
  Ints sizes = call.has(1) ? call.known_integers(1) : call.integers("split");
  if (sizes.empty()) {
    // All alike, the last one smaller where that does not work out.
    const int64_t count = call.integer("num_outputs", results), all = x.shape()[axis];
    call.supports(count >= 1 && count <= std::max<int64_t>(1, all), count, " parts of ", all);
    const int64_t each = (all + count - 1) / count;
    for (int64_t i = 0; i < count; ++i) sizes.push_back(std::min(each, all - i * each));
  }
  call.supports(std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; }),
                "parts of negative sizes");
  Operands parts;
  for (const Tensor& part : split(x, std::span<const int64_t>(sizes), axis))
    parts.push_back({.stored = part});
  return parts;
}

Operands sliced(const NodeCall& call) {
  const Tensor x = call.x();
  const bool attributes = call.opset() < 10;
  const Ints starts = attributes ? call.integers("starts") : call.known_integers(1),
             ends = attributes ? call.integers("ends") : call.known_integers(2);
  Ints axes = attributes ? call.integers("axes") : call.has(3) ? call.known_integers(3) : Ints();
  const Ints steps = !attributes && call.has(4) ? call.known_integers(4) : Ints(starts.size(), 1);
  if (axes.empty()) axes.resize(starts.size()), std::iota(axes.begin(), axes.end(), 0);
  call.supports(starts.size() == ends.size() && starts.size() == axes.size() && starts.size() == steps.size(),
                "starts, ends, axes and steps do not fit");
  Dims begin = Dims::filled(x.rank(), 0), end = x.shape(), strides = Dims::filled(x.rank(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axis_of(call, axes[i], x.rank());
    const int64_t size = x.shape()[axis];
    call.supports(steps[i] != 0 && steps[i] > -(int64_t{1} << 40), "a step of ", steps[i]);
    const auto place = [&](int64_t at, int64_t least, int64_t most) {
      return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, least, most);
    };
    if (size == 0) continue;
    strides[axis] = std::min(steps[i], size);
    if (steps[i] > 0) {
      begin[axis] = place(starts[i], 0, size);
      end[axis] = std::max(begin[axis], place(ends[i], 0, size));
    } else {
      // Backwards: what strided_slice() understands as "before the first".
      begin[axis] = place(starts[i], 0, size - 1);
      const int64_t stop = place(ends[i], -1, size - 1);
      end[axis] = stop < 0 ? -size - 1 : stop;
    }
  }
  return plain(strided_slice(x, begin, end, strides));
}

// Places that count from the end.
Tensor from_the_front(const Tensor& indices, int64_t size) {
  return where(indices < 0, indices + static_cast<double>(size), indices);
}

Operands gathered(const NodeCall& call) {
  const Tensor x = call.x();
  const int axis = axis_of(call, call.integer("axis", 0), x.rank());
  const Operand& indices = call.operand(1);
  Tensor places = indices.value();
  if (indices.known) {
    const Ints values = call.known_integers(1);
    call.supports(std::all_of(values.begin(), values.end(),
                              [&](int64_t at) { return at >= -x.shape()[axis] && at < x.shape()[axis]; }),
                  "an index that there is not along a dimension of ", x.shape()[axis]);
    if (std::any_of(values.begin(), values.end(), [](int64_t at) { return at < 0; }))
      places = from_the_front(places, x.shape()[axis]);
  } else {
    places = from_the_front(places, x.shape()[axis]);
  }
  if (call.node().op == "GatherElements") return plain(take_along_axis(x, places, axis));
  return plain(gather(x, places, axis));
}

Operands expanded(const NodeCall& call) {
  const Tensor x = call.x();
  const Shape shape = broadcast(x.shape(), dims_of(call, call.known_integers(1)), "Expand");
  check_room(call, shape);
  return plain(broadcast_to(x, shape));
}

Operands tiled(const NodeCall& call) {
  const Tensor x = call.x();
  const Dims times = dims_of(call, call.known_integers(1));
  call.supports(times.rank() == x.rank(), "it repeats ", times.rank(), " dimensions of ", x.rank());
  Shape shape = x.shape();
  for (int d = 0; d < shape.rank(); ++d) {
    call.supports(times[d] >= 0 && times[d] <= kMostKnown, "a dimension ", times[d], " times");
    call.supports(!__builtin_mul_overflow(shape[d], times[d], &shape[d]), "a result that is too large");
  }
  check_room(call, shape);
  return plain(tile(x, times));
}

Operands with_margins(const NodeCall& call) {
  const Tensor x = call.x();
  const Ints pads = call.opset() < 11 ? call.integers("pads") : call.known_integers(1);
  Ints axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  if (call.has(3)) axes = call.known_integers(3);
  call.supports(pads.size() == 2 * axes.size(), "pads do not fit the dimensions");
  const std::string mode = call.text("mode", "constant");
  call.supports(mode == "constant" || mode == "reflect", "mode ", mode);
  Dims before = Dims::filled(x.rank(), 0), behind = before;
  Shape shape = x.shape();
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axis_of(call, axes[i], x.rank());
    for (const int64_t count : {pads[i], pads[axes.size() + i]})
      call.supports(count >= -kMostKnown && count <= kMostKnown, count, " elements around");
    before[axis] = pads[i], behind[axis] = pads[axes.size() + i];
    shape[axis] += before[axis] + behind[axis];
  }
  check_room(call, shape);
  const double value = call.opset() < 11 ? call.real("value", 0) : call.known_number(2, 0);
  Tensor y = x;
  // Negative ones cut off.
  if (std::any_of(before.begin(), before.end(), [](int64_t n) { return n < 0; }) ||
      std::any_of(behind.begin(), behind.end(), [](int64_t n) { return n < 0; })) {
    Dims begin = before, size = shape;
    for (int d = 0; d < x.rank(); ++d) {
      begin[d] = std::max<int64_t>(0, -before[d]);
      size[d] = x.shape()[d] - begin[d] - std::max<int64_t>(0, -behind[d]);
      before[d] = std::max<int64_t>(0, before[d]), behind[d] = std::max<int64_t>(0, behind[d]);
    }
    y = slice(y, begin, size);
  }
  return plain(
      pad(y, before, behind,
          {.mode = mode == "reflect" ? PadMode::reflect : PadMode::constant, .constant_value = value}));
}

Operands counted(const NodeCall& call) {
  const double start = call.known_number(0, 0), limit = call.known_number(1, 0),
               delta = call.known_number(2, 1);
  call.supports(delta != 0 && std::abs((limit - start) / delta) < static_cast<double>(kMostKnown), "from ",
                start, " to ", limit, " by ", delta);
  return plain(range(start, limit, delta, call.operand(0).dtype()));
}

Operands constant_of_shape(const NodeCall& call) {
  const Shape shape = dims_of(call, call.known_integers(0));
  check_room(call, shape);
  const NodeAttribute* value = call.attribute("value");
  if (!value || !value->tensor.defined()) return plain(zeros(shape, DType::float32));
  call.supports(value->tensor.shape().size() == 1, "a value of shape ", value->tensor.shape());
  return plain(broadcast_to(reshape(value->tensor, {}), shape));
}

Operands constant(const NodeCall& call) {
  if (const NodeAttribute* value = call.attribute("value"); value && value->tensor.defined())
    return plain(value->tensor);
  if (const NodeAttribute* value = call.attribute("value_int")) return plain(Tensor::scalar(value->integer));
  if (const NodeAttribute* value = call.attribute("value_float"))
    return plain(Tensor::scalar(static_cast<float>(value->real)));
  if (const NodeAttribute* value = call.attribute("value_ints"))
    return plain(Tensor::from(value->integers, {static_cast<int64_t>(value->integers.size())}));
  if (const NodeAttribute* value = call.attribute("value_floats")) {
    const std::vector<float> reals(value->reals.begin(), value->reals.end());
    return plain(Tensor::from(reals, {static_cast<int64_t>(reals.size())}));
  }
  call.refuse("a constant of this kind is not known here");
}

Operands triangle(const NodeCall& call) {
  const Tensor x = call.x();
  const auto k = static_cast<int>(std::clamp<double>(call.known_number(1, 0), -1e9, 1e9));
  call.supports(x.rank() >= 2, "an input of shape ", x.shape());
  return plain(call.integer("upper", 1) != 0 ? triu(x, k) : tril(x, k));
}

Operands einsum_of(const NodeCall& call) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < call.num_inputs(); ++i) inputs.push_back(call.x(i));
  std::string equation = call.text("equation", "");
  std::erase(equation, ' ');
  return plain(einsum(equation, inputs));
}

Operands same(const NodeCall& call) { return {call.operand(0)}; }

}  // namespace

// --- operands and calls ------------------------------------------------------------------------------------

Shape Operand::shape() const {
  if (!channels_last) return stored.shape();
  Shape shape = stored.shape();
  shape.erase(shape.rank() - 1);
  shape.insert(1, stored.shape()[-1]);
  return shape;
}
Tensor Operand::value() const {
  if (channels_last) return transpose(stored, to_second(rank()));
  if (!known || !Trace::current() || stored.shape().size() != 1) return stored;
  const double number = [&] {
    const TracePause now;
    return cast(reshape(stored, {}), DType::float64).item<double>();
  }();
  return fill(stored.spec(), number);
}
Tensor Operand::with_channels_last() const {
  return channels_last ? stored : transpose(stored, to_last(rank()));
}

void NodeCall::refuse(const std::string& why) const {
  fail(ErrorCode::unsupported, std::source_location::current(), node_.op,
       node_.name.empty() ? std::string() : detail::concat(" \"", node_.name, "\""), ": ", why);
}

const Operand& NodeCall::operand(size_t input) const {
  supports(has(input), "input ", input, " is missing");
  return inputs_[input];
}

const NodeAttribute* NodeCall::attribute(const char* name) const {
  const auto found = node_.attributes.find(name);
  return found == node_.attributes.end() ? nullptr : &found->second;
}
int64_t NodeCall::integer(const char* name, int64_t otherwise) const {
  const NodeAttribute* found = attribute(name);
  return found ? found->integer : otherwise;
}
double NodeCall::real(const char* name, double otherwise) const {
  const NodeAttribute* found = attribute(name);
  return found ? found->real : otherwise;
}
std::string NodeCall::text(const char* name, const char* otherwise) const {
  const NodeAttribute* found = attribute(name);
  return found ? found->text : otherwise;
}
Ints NodeCall::integers(const char* name, const Ints& otherwise) const {
  const NodeAttribute* found = attribute(name);
  return found ? found->integers : otherwise;
}

Ints NodeCall::known_integers(size_t input) const {
  const Operand& given = operand(input);
  supports(given.known, "input ", input,
           " depends on the model's inputs or weights, and sizes must be known before it runs");
  const TracePause now;
  return cast(given.value(), DType::int64).to_vector<int64_t>();
}

double NodeCall::known_number(size_t input, double otherwise) const {
  if (!has(input)) return otherwise;
  const Operand& given = operand(input);
  supports(given.known && given.shape().size() == 1, "input ", input,
           " must be one number that is known before the model runs");
  const TracePause now;
  return cast(reshape(given.value(), {}), DType::float64).item<double>();
}

Ints NodeCall::axes(size_t input) const {
  if (const NodeAttribute* found = attribute("axes")) return found->integers;
  return has(input) ? known_integers(input) : Ints();
}

bool takes_weights(const Node& node, size_t input) {
  static const std::set<std::string> settings{
      "Clip",  "ConstantOfShape", "Dropout", "Expand", "Pad",   "Range",     "Reshape",   "Resize",
      "Slice", "Split",           "Squeeze", "Tile",   "Trilu", "Unsqueeze", "ReduceSum", "OneHot"};
  return input == 0 ? node.op != "ConstantOfShape" && node.op != "Range" : !settings.contains(node.op);
}

bool takes_statistics(const Node& node, size_t input) {
  return node.op == "BatchNormalization" && input >= 3;
}

bool reads_shapes(const Node& node) { return node.op == "Shape" || node.op == "Size"; }

const std::map<std::string, Operator>& operators() {
  static const std::map<std::string, Operator> all{
      {"Abs", unary(abs)},
      {"Add", binary(add)},
      {"And", logical(logical_and)},
      {"ArgMax", [](const NodeCall& call) { return index_of(call, argmax); }},
      {"ArgMin", [](const NodeCall& call) { return index_of(call, argmin); }},
      {"AveragePool", pool},
      {"BatchNormalization", batch_normalised},
      {"Cast", unary(casted)},
      {"Ceil", unary(ceil)},
      {"Celu", unary([](const NodeCall& call, const Tensor& x) { return celu(x, call.real("alpha", 1)); })},
      {"Clip", unary(clipped)},
      {"Concat", concatenated},
      {"Constant", constant},
      {"ConstantOfShape", constant_of_shape},
      {"Conv", convolve},
      {"Cos", unary(cos)},
      {"Div", binary(quotient)},
      {"Dropout", same},
      {"Einsum", einsum_of},
      {"Elu", unary([](const NodeCall& call, const Tensor& x) { return elu(x, call.real("alpha", 1)); })},
      {"Equal", binary(equal)},
      {"Erf", unary(erf)},
      {"Exp", unary(exp)},
      {"Expand", expanded},
      {"Flatten", flattened},
      {"Floor", unary(floor)},
      {"Gather", gathered},
      {"GatherElements", gathered},
      {"Gelu", unary([](const NodeCall& call, const Tensor& x) {
         return lockstep::gelu(x, {.approximate = call.text("approximate", "none") == "tanh"});
       })},
      {"Gemm", gemm},
      {"GlobalAveragePool", pooled_over_all(reduce_mean)},
      {"GlobalMaxPool", pooled_over_all(reduce_max)},
      {"Greater", binary(greater)},
      {"GreaterOrEqual", binary(greater_equal)},
      {"HardSigmoid", unary([](const NodeCall& call, const Tensor& x) {
         return clip_by_value(x * call.real("alpha", 0.2) + call.real("beta", 0.5), 0, 1);
       })},
      {"HardSwish", unary(hard_silu)},
      {"Identity", same},
      {"LayerNormalization", layer_normalised},
      {"LeakyRelu",
       unary([](const NodeCall& call, const Tensor& x) { return leaky_relu(x, call.real("alpha", 0.01)); })},
      {"Less", binary(less)},
      {"LessOrEqual", binary(less_equal)},
      {"Log", unary(log)},
      {"LogSoftmax", along_axis(log_softmax)},
      {"MatMul", [](const NodeCall& call) { return plain(product(call.x(0), call.x(1))); }},
      {"Max", folded(maximum)},
      {"MaxPool", pool},
      {"Mean", folded(add, true)},
      {"Min", folded(minimum)},
      {"Mish", unary(mish)},
      {"Mod", elementwise([](const NodeCall& call, const std::vector<Tensor>& x) {
         call.supports(call.integer("fmod", 0) == 0 && x.size() == 2, "fmod is not known here");
         return floormod(x[0], x[1]);
       })},
      {"Mul", binary(multiply)},
      {"Neg", unary(negative)},
      {"Not", unary(logical_not)},
      {"Or", logical(logical_or)},
      {"PRelu", elementwise([](const NodeCall& call, const std::vector<Tensor>& x) {
         call.supports(x.size() == 2, "it takes two inputs");
         return where(x[0] < 0, x[0] * x[1], x[0]);
       })},
      {"Pad", with_margins},
      {"Pow", elementwise([](const NodeCall& call, const std::vector<Tensor>& x) {
         call.supports(x.size() == 2, "it takes two inputs");
         return pow(x[0], cast(x[1], x[0].dtype()));
       })},
      {"Range", counted},
      {"Reciprocal", unary(reciprocal)},
      {"ReduceLogSumExp", reduction(reduce_logsumexp)},
      {"ReduceMax", reduction(reduce_max)},
      {"ReduceMean", reduction(reduce_mean)},
      {"ReduceMin", reduction(reduce_min)},
      {"ReduceProd", reduction(reduce_prod)},
      {"ReduceSum", reduction(reduce_sum)},
      {"Relu", unary(relu)},
      {"Reshape", reshape_to},
      {"Round", unary(round)},
      {"Selu", unary(selu)},
      {"Shape", shape_of},
      {"Sigmoid", unary(sigmoid)},
      {"Sign", unary(sign)},
      {"Sin", unary(sin)},
      {"Size", [](const NodeCall& call) { return plain(Tensor::scalar(call.operand(0).shape().size())); }},
      {"Slice", sliced},
      {"Softmax", along_axis(softmax)},
      {"Softplus", unary(softplus)},
      {"Softsign", unary(softsign)},
      {"Split", divided},
      {"Sqrt", unary(sqrt)},
      {"Squeeze", squeezed},
      {"Sub", binary(subtract)},
      {"Sum", folded(add)},
      {"Tanh", unary(tanh)},
      {"Tile", tiled},
      {"Transpose", transposed},
      {"Trilu", triangle},
      {"Unsqueeze", unsqueezed},
      {"Where", elementwise([](const NodeCall& call, const std::vector<Tensor>& x) {
         call.supports(x.size() == 3, "it takes three inputs");
         return where(x[0], x[1], x[2]);
       })},
      {"Xor", logical(logical_xor)},
  };
  return all;
}

}  // namespace lockstep::keras::onnx
