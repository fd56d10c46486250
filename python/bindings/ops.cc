// Ops, as the engine has them; python/lockstep/ops.py gives them TensorFlow's signatures.
#include <iostream>

#include "lockstep/keras/losses.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/debugging.h"
#include "lockstep/ops/image.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"
#include "lockstep/tf/nn.h"
#include "python.h"

namespace lockstep::python {
namespace {

using Unary = Tensor (*)(const TensorArg&);
using Binary = Tensor (*)(const OperandArg&, const OperandArg&);
using Reduction = Tensor (*)(const TensorArg&, const ReduceOptions&);

// Other threads may run Python while a large tensor is computed; for a small one it takes longer to let them.
constexpr int64_t kLarge = 1 << 14;

template <class F>
Tensor computed(const TensorArg& x, F&& f) {
  const bool large = x.tensor().defined() && x.tensor().size() >= kLarge;
  return large ? released(f) : f();
}

void unary(nb::module_& m, const char* name, Unary op) {
  m.def(name, [op](nb::handle x) {
    const TensorArg given = arg(x);
    return computed(given, [&] { return op(given); });
  });
}

void binary(nb::module_& m, const char* name, Binary op) {
  m.def(name, [op](nb::handle a, nb::handle b) {
    const auto [left, right] = operands(a, b);
    return computed(left, [&] { return op(left, right); });
  });
}

void reduction(nb::module_& m, const char* name, Reduction op) {
  m.def(name, [op](nb::handle x, nb::handle axis, bool keepdims) {
    const TensorArg given = arg(x);
    const ReduceOptions options{integers(axis), keepdims};
    return computed(given, [&] { return op(given, options); });
  });
}

nb::tuple pair_of(const Tensor& a, const Tensor& b) { return nb::make_tuple(a, b); }

ConvOptions conv_options(nb::handle strides, const std::string& padding, nb::handle dilations,
                         const std::string& data_format) {
  return {.strides = dims(strides),
          .padding = Padding(padding, when_asked()),
          .dilations = dims(dilations),
          .data_format = DataFormat(data_format, when_asked())};
}

void bind_elementwise(nb::module_& m) {
  const std::pair<const char*, Unary> unaries[] = {
      {"identity", identity},
      {"negative", negative},
      {"abs", abs},
      {"sign", sign},
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"square", square},
      {"sqrt", sqrt},
      {"rsqrt", rsqrt},
      {"reciprocal", reciprocal},
      {"exp", exp},
      {"expm1", expm1},
      {"log", log},
      {"log1p", log1p},
      {"tanh", tanh},
      {"sigmoid", sigmoid},
      {"erf", erf},
      {"sin", sin},
      {"cos", cos},
      {"tan", tan},
      {"asin", asin},
      {"acos", acos},
      {"atan", atan},
      {"sinh", sinh},
      {"cosh", cosh},
      {"asinh", asinh},
      {"acosh", acosh},
      {"atanh", atanh},
      {"erfc", erfc},
      {"log2", log2},
      {"log10", log10},
      {"truncate", truncate},
      {"softplus", softplus},
      {"relu", static_cast<Unary>(relu)},
      {"relu6", relu6},
      {"selu", selu},
      {"silu", silu},
      {"mish", mish},
      {"softsign", softsign},
      {"log_sigmoid", log_sigmoid},
      {"hard_sigmoid", hard_sigmoid},
      {"hard_silu", hard_silu},
      {"hard_tanh", hard_tanh},
      {"tanh_shrink", tanh_shrink},
      {"sparse_plus", sparse_plus},
      {"sparse_sigmoid", sparse_sigmoid},
      {"logical_not", logical_not},
      {"is_nan", is_nan},
      {"is_inf", is_inf},
      {"is_finite", is_finite},
      {"stop_gradient", stop_gradient},
      {"zeros_like", zeros_like},
      {"ones_like", ones_like},
      {"trace", trace},
      {"all_reduce_sum", static_cast<Unary>(all_reduce_sum)},
  };
  for (const auto& [name, op] : unaries) unary(m, name, op);
  const std::pair<const char*, Binary> binaries[] = {
      {"add", add},
      {"subtract", subtract},
      {"multiply", multiply},
      {"divide", true_divide},
      {"maximum", maximum},
      {"minimum", minimum},
      {"pow", pow},
      {"floormod", floormod},
      {"floordiv", floordiv},
      {"atan2", atan2},
      {"squared_difference", squared_difference},
      {"divide_no_nan", divide_no_nan},
      {"less", less},
      {"less_equal", less_equal},
      {"greater", greater},
      {"greater_equal", greater_equal},
      {"equal", equal},
      {"not_equal", not_equal},
  };
  for (const auto& [name, op] : binaries) binary(m, name, op);
  m.def("logical_and", [](nb::handle a, nb::handle b) { return logical_and(arg(a), arg(b)); });
  m.def("logical_or", [](nb::handle a, nb::handle b) { return logical_or(arg(a), arg(b)); });
  m.def("logical_xor", [](nb::handle a, nb::handle b) { return logical_xor(arg(a), arg(b)); });
  m.def("gelu", [](nb::handle x, bool approximate) { return gelu(arg(x), {.approximate = approximate}); });
  m.def("leaky_relu", [](nb::handle x, double slope) { return leaky_relu(arg(x), slope); });
  m.def("relu_with", [](nb::handle x, double negative_slope, double max_value, double threshold) {
    return relu(arg(x), {.negative_slope = negative_slope, .max_value = max_value, .threshold = threshold});
  });
  m.def("elu", [](nb::handle x, double alpha) { return elu(arg(x), alpha); });
  m.def("celu", [](nb::handle x, double alpha) { return celu(arg(x), alpha); });
  m.def("glu", [](nb::handle x, int axis) { return glu(arg(x), axis); });
  m.def("hard_shrink", [](nb::handle x, double threshold) { return hard_shrink(arg(x), threshold); });
  m.def("soft_shrink", [](nb::handle x, double threshold) { return soft_shrink(arg(x), threshold); });
  m.def("threshold",
        [](nb::handle x, double limit, double value) { return threshold(arg(x), limit, value); });
  m.def("squareplus", [](nb::handle x, double b) { return squareplus(arg(x), b); });
  m.def("where", [](nb::handle condition, nb::handle a, nb::handle b) {
    const auto [left, right] = operands(a, b);
    return where(arg(condition), left, right);
  });
  m.def("clip_by_value", [](nb::handle x, nb::handle low, nb::handle high) {
    const TensorArg given = arg(x);
    const DType type = given.tensor().dtype(when_asked());
    return clip_by_value(given, operand(low, type), operand(high, type));
  });
  m.def("cast", [](nb::handle x, nb::handle type) { return cast(arg(x), dtype(type)); });
}

void bind_array(nb::module_& m) {
  m.def("shape", [](nb::handle x, nb::handle type) { return lockstep::shape(arg(x), dtype(type)); });
  m.def("reshape", [](nb::handle x, nb::handle to) { return reshape(arg(x), shape(to)); });
  m.def("transpose",
        [](nb::handle x, nb::handle permutation) { return transpose(arg(x), dims(permutation)); });
  m.def("slice", [](nb::handle x, nb::handle begin, nb::handle size) {
    return slice(arg(x), dims(begin), dims(size));
  });
  m.def("strided_slice", [](nb::handle x, nb::handle begin, nb::handle end, nb::handle strides) {
    return strided_slice(arg(x), dims(begin), dims(end), dims(strides));
  });
  m.def("broadcast_to", [](nb::handle x, nb::handle to) { return broadcast_to(arg(x), shape(to)); });
  m.def("expand_dims", [](nb::handle x, int axis) { return expand_dims(arg(x), axis); });
  m.def("squeeze", [](nb::handle x, nb::handle axes) { return squeeze(arg(x), dims(axes)); });
  m.def("concat", [](nb::handle parts, int axis) { return concat(tensors(parts), axis, when_asked()); });
  m.def("stack", [](nb::handle parts, int axis) { return stack(tensors(parts), axis, when_asked()); });
  m.def("unstack", [](nb::handle x, int axis) { return to_python(unstack(arg(x), axis)); });
  m.def("split", [](nb::handle x, int parts, int axis) { return to_python(split(arg(x), parts, axis)); });
  m.def("split_sizes", [](nb::handle x, nb::handle sizes, int axis) {
    const std::vector<int64_t> all = integers(sizes);
    return to_python(split(arg(x), std::span<const int64_t>(all), axis));
  });
  m.def("tile", [](nb::handle x, nb::handle multiples) { return tile(arg(x), dims(multiples)); });
  m.def("repeat",
        [](nb::handle x, nb::handle repeats, int axis) { return repeat(arg(x), integers(repeats), axis); });
  m.def("reverse", [](nb::handle x, nb::handle axes) { return reverse(arg(x), dims(axes)); });
  m.def("roll", [](nb::handle x, nb::handle shift, nb::handle axes) {
    return roll(arg(x), dims(shift), dims(axes));
  });
  m.def("moveaxis",
        [](nb::handle x, nb::handle from, nb::handle to) { return moveaxis(arg(x), dims(from), dims(to)); });
  m.def("meshgrid", [](nb::handle vectors, bool xy) {
    return to_python(meshgrid(tensors(vectors), xy ? MeshIndexing::xy : MeshIndexing::ij, when_asked()));
  });
  m.def("space_to_depth", [](nb::handle x, int64_t block) { return space_to_depth(arg(x), block); });
  m.def("depth_to_space", [](nb::handle x, int64_t block) { return depth_to_space(arg(x), block); });
  m.def("pad", [](nb::handle x, nb::handle before, nb::handle after, const std::string& mode, double value) {
    const PadMode kind = mode == "CONSTANT"  ? PadMode::constant
                         : mode == "REFLECT" ? PadMode::reflect
                                             : PadMode::symmetric;
    return pad(arg(x), dims(before), dims(after), {.mode = kind, .constant_value = value});
  });
  m.def("gather", [](nb::handle table, nb::handle indices, int axis, int batch_dims) {
    return gather(arg(table), arg(indices), axis, batch_dims);
  });
  m.def("take_along_axis", [](nb::handle x, nb::handle indices, int axis) {
    return take_along_axis(arg(x), arg(indices), axis);
  });
  m.def("gather_nd", [](nb::handle x, nb::handle indices) { return gather_nd(arg(x), arg(indices)); });
  m.def("scatter_nd", [](nb::handle indices, nb::handle updates, nb::handle to) {
    return scatter_nd(arg(indices), arg(updates), shape(to));
  });
  m.def("tensor_scatter_nd_add", [](nb::handle x, nb::handle indices, nb::handle updates) {
    return tensor_scatter_nd_add(arg(x), arg(indices), arg(updates));
  });
  m.def("tensor_scatter_nd_update", [](nb::handle x, nb::handle indices, nb::handle updates) {
    return tensor_scatter_nd_update(arg(x), arg(indices), arg(updates));
  });
  m.def("scatter_add", [](nb::handle values, nb::handle indices, int64_t rows) {
    return scatter_add(arg(values), arg(indices), rows);
  });
  m.def("one_hot", [](nb::handle indices, int64_t depth, nb::handle type) {
    return one_hot(arg(indices), depth, dtype(type));
  });
  m.def("full", [](nb::handle size, double value, nb::handle type) {
    return full(shape(size), value, dtype(type), when_asked());
  });
  m.def("range", [](double start, double limit, double delta, nb::handle type) {
    return range(start, limit, delta, dtype(type), when_asked());
  });
  m.def("linspace", [](double start, double stop, int64_t count, nb::handle type) {
    return linspace(start, stop, count, dtype(type), when_asked());
  });
  m.def("eye", [](int64_t rows, int64_t columns, nb::handle type) {
    return eye(rows, columns, dtype(type), when_asked());
  });
  m.def("diag", [](nb::handle x, int k) { return diag(arg(x), k); });
  m.def("diag_part", [](nb::handle x, int k) { return diag_part(arg(x), k); });
  m.def("band_part",
        [](nb::handle x, int64_t lower, int64_t upper) { return band_part(arg(x), lower, upper); });
  m.def("sequence_mask",
        [](nb::handle lengths, int64_t length) { return sequence_mask(arg(lengths), length); });
  m.def("bincount", [](nb::handle x, int64_t length, Any weights) {
    return weights.is_none() ? bincount(arg(x), length) : bincount(arg(x), length, arg(weights));
  });
}

void bind_reductions(nb::module_& m) {
  const std::pair<const char*, Reduction> reductions[] = {
      {"reduce_sum", reduce_sum},           {"reduce_mean", reduce_mean},
      {"reduce_max", reduce_max},           {"reduce_min", reduce_min},
      {"reduce_prod", reduce_prod},         {"reduce_any", reduce_any},
      {"reduce_all", reduce_all},           {"reduce_logsumexp", reduce_logsumexp},
      {"reduce_variance", reduce_variance}, {"reduce_std", reduce_std},
      {"count_nonzero", count_nonzero},
  };
  for (const auto& [name, op] : reductions) reduction(m, name, op);
  m.def("argmax", [](nb::handle x, int axis) { return argmax(arg(x), axis); });
  m.def("argmin", [](nb::handle x, int axis) { return argmin(arg(x), axis); });
  m.def("norm", [](nb::handle x, double ord, nb::handle axis, bool keepdims) {
    return norm(arg(x), {.ord = ord, .axis = integers(axis), .keepdims = keepdims});
  });
  m.def("cumsum", [](nb::handle x, int axis, bool exclusive, bool reverse) {
    return cumsum(arg(x), {.axis = axis, .exclusive = exclusive, .reverse = reverse});
  });
  m.def("cumprod", [](nb::handle x, int axis, bool exclusive, bool reverse) {
    return cumprod(arg(x), {.axis = axis, .exclusive = exclusive, .reverse = reverse});
  });
  m.def("global_norm", [](nb::handle all) { return global_norm(tensors(all), when_asked()); });
  m.def("clip_by_norm", [](nb::handle x, double norm, nb::handle axis) {
    return clip_by_norm(arg(x), norm, integers(axis));
  });
  m.def("clip_by_global_norm", [](nb::handle all, double norm, Any use_norm) {
    const ClippedByGlobalNorm clipped =
        clip_by_global_norm(tensors(all), norm, tensor(use_norm), when_asked());
    return nb::make_tuple(to_python(clipped.tensors), clipped.norm);
  });
  const auto direction = [](bool descending) {
    return descending ? SortDirection::descending : SortDirection::ascending;
  };
  m.def("sort", [direction](nb::handle x, int axis, bool descending) {
    return sort(arg(x), {axis, direction(descending)});
  });
  m.def("argsort", [direction](nb::handle x, int axis, bool descending) {
    return argsort(arg(x), {axis, direction(descending)});
  });
  m.def("top_k", [](nb::handle x, int64_t k) {
    const TopK top = top_k(arg(x), k);
    return pair_of(top.values, top.indices);
  });
  m.def("in_top_k", [](nb::handle targets, nb::handle predictions, int64_t k) {
    return in_top_k(arg(targets), arg(predictions), k);
  });
  m.def("searchsorted", [](nb::handle sorted, nb::handle values, bool right) {
    return searchsorted(arg(sorted), arg(values), right ? SearchSide::right : SearchSide::left);
  });
  m.def("matmul", [](nb::handle a, nb::handle b, bool transpose_a, bool transpose_b) {
    const TensorArg left = arg(a), right = arg(b);
    return computed(left, [&] { return matmul(left, right, {transpose_a, transpose_b}); });
  });
  m.def("matvec",
        [](nb::handle a, nb::handle x, bool transpose_a) { return matvec(arg(a), arg(x), transpose_a); });
  m.def("einsum", [](const std::string& equation, nb::handle inputs) {
    return einsum(equation, tensors(inputs), when_asked());
  });
  m.def("tensordot", [](nb::handle a, nb::handle b, nb::handle a_axes, nb::handle b_axes) {
    return tensordot(arg(a), arg(b), dims(a_axes), dims(b_axes));
  });
  m.def("tensordot_last",
        [](nb::handle a, nb::handle b, int axes) { return tensordot(arg(a), arg(b), axes); });
}

void bind_nn(nb::module_& m) {
  m.def("softmax", [](nb::handle x, int axis) { return softmax(arg(x), axis); });
  m.def("log_softmax", [](nb::handle x, int axis) { return log_softmax(arg(x), axis); });
  m.def("sparse_softmax_cross_entropy_with_logits", [](nb::handle labels, nb::handle logits) {
    return sparse_softmax_cross_entropy_with_logits(arg(labels), arg(logits));
  });
  m.def("softmax_cross_entropy_with_logits", [](nb::handle labels, nb::handle logits) {
    return softmax_cross_entropy_with_logits(arg(labels), arg(logits));
  });
  m.def("sigmoid_cross_entropy_with_logits", [](nb::handle labels, nb::handle logits) {
    return sigmoid_cross_entropy_with_logits(arg(labels), arg(logits));
  });
  m.def("moments", [](nb::handle x, nb::handle axes, bool keepdims) {
    const Moments both = moments(arg(x), ReduceOptions{integers(axes), keepdims});
    return pair_of(both.mean, both.variance);
  });
  m.def("l2_normalize", [](nb::handle x, nb::handle axis, double epsilon) {
    return l2_normalize(arg(x), dims(axis), epsilon);
  });
  m.def("scale_regularization_loss",
        [](nb::handle penalty) { return nn::scale_regularization_loss(arg(penalty)); });
  m.def("compute_average_loss", [](nb::handle losses, Any weights, int64_t batch) {
    return nn::compute_average_loss(arg(losses),
                                    {.sample_weight = tensor(weights), .global_batch_size = batch});
  });
  m.def(
      "scaled_dot_product_attention",
      [](nb::handle q, nb::handle k, nb::handle v, Any mask, std::optional<double> scale, bool causal,
         Any bias) {
        return scaled_dot_product_attention(
            arg(q), arg(k), arg(v),
            {.mask = tensor(mask), .bias = tensor(bias), .scale = scale, .is_causal = causal});
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg() = nb::none());
  using Conv = Tensor (*)(const TensorArg&, const TensorArg&, const ConvOptions&);
  const std::pair<const char*, Conv> convs[] = {{"conv1d", conv1d}, {"conv2d", conv2d}, {"conv3d", conv3d}};
  for (const auto& [name, op] : convs)
    m.def(
        name,
        [op = op](nb::handle x, nb::handle filter, nb::handle strides, const std::string& padding,
                  nb::handle dilations, const std::string& data_format, int64_t groups) {
          const TensorArg image = arg(x), kernel = arg(filter);
          ConvOptions options = conv_options(strides, padding, dilations, data_format);
          options.groups = groups;
          return computed(image, [&] { return op(image, kernel, options); });
        },
        nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg() = 1);
  using Depthwise = Tensor (*)(const TensorArg&, const TensorArg&, const DepthwiseConvOptions&);
  const std::pair<const char*, Depthwise> depthwise[] = {{"depthwise_conv1d", depthwise_conv1d},
                                                         {"depthwise_conv2d", depthwise_conv2d}};
  for (const auto& [name, op] : depthwise)
    m.def(name, [op = op](nb::handle x, nb::handle filter, nb::handle strides, const std::string& padding,
                          nb::handle dilations, const std::string& data_format) {
      const ConvOptions o = conv_options(strides, padding, dilations, data_format);
      return op(arg(x), arg(filter), {o.strides, o.padding, o.dilations, o.data_format});
    });
  using Separable =
      Tensor (*)(const TensorArg&, const TensorArg&, const TensorArg&, const DepthwiseConvOptions&);
  const std::pair<const char*, Separable> separable[] = {{"separable_conv1d", separable_conv1d},
                                                         {"separable_conv2d", separable_conv2d}};
  for (const auto& [name, op] : separable)
    m.def(name, [op = op](nb::handle x, nb::handle depthwise_filter, nb::handle pointwise_filter,
                          nb::handle strides, const std::string& padding, nb::handle dilations,
                          const std::string& data_format) {
      const ConvOptions o = conv_options(strides, padding, dilations, data_format);
      return op(arg(x), arg(depthwise_filter), arg(pointwise_filter),
                {o.strides, o.padding, o.dilations, o.data_format});
    });
  using Transposed = Tensor (*)(const TensorArg&, const TensorArg&, const ConvTransposeOptions&);
  const std::pair<const char*, Transposed> transposed[] = {{"conv1d_transpose", conv1d_transpose},
                                                           {"conv2d_transpose", conv2d_transpose},
                                                           {"conv3d_transpose", conv3d_transpose}};
  for (const auto& [name, op] : transposed)
    m.def(name, [op = op](nb::handle x, nb::handle filter, nb::handle strides, const std::string& padding,
                          nb::handle output_padding, nb::handle dilations, const std::string& data_format) {
      const ConvOptions o = conv_options(strides, padding, dilations, data_format);
      return op(arg(x), arg(filter),
                {o.strides, o.padding, dims(output_padding), o.dilations, o.data_format});
    });
  using Pool = Tensor (*)(const TensorArg&, const PoolOptions&);
  const std::pair<const char*, Pool> pools[] = {{"max_pool1d", max_pool1d}, {"max_pool2d", max_pool2d},
                                                {"max_pool3d", max_pool3d}, {"avg_pool1d", avg_pool1d},
                                                {"avg_pool2d", avg_pool2d}, {"avg_pool3d", avg_pool3d}};
  for (const auto& [name, op] : pools)
    m.def(name, [op = op](nb::handle x, nb::handle size, nb::handle strides, const std::string& padding,
                          const std::string& data_format) {
      return op(arg(x), {dims(size), dims(strides), Padding(padding, when_asked()),
                         DataFormat(data_format, when_asked())});
    });
  m.def("ctc_loss", [](nb::handle labels, nb::handle logits, nb::handle label_length, nb::handle logit_length,
                       int64_t blank) {
    return keras::losses::ctc(
        arg(labels), arg(logits),
        {.label_length = tensor(label_length), .logit_length = tensor(logit_length), .mask_index = blank});
  });
  m.def(
      "dropout",
      [](nb::handle x, double rate, nb::handle noise_shape, const random::Generator* generator) {
        return dropout(arg(x), rate, {.noise_shape = shape(noise_shape), .generator = generator});
      },
      nb::arg(), nb::arg(), nb::arg() = nb::list(), nb::arg().none() = nb::none());
  m.def("resize", [](nb::handle images, nb::handle size, const std::string& method, bool antialias) {
    return image::resize(arg(images), dims(size),
                         {.interpolation = Interpolation(method, when_asked()), .antialias = antialias});
  });
  m.def("affine_transform", [](nb::handle images, nb::handle transform, const std::string& method,
                               const std::string& fill_mode, double fill_value) {
    return image::affine_transform(arg(images), arg(transform),
                                   {.interpolation = Interpolation(method, when_asked()),
                                    .fill_mode = FillMode(fill_mode, when_asked()),
                                    .fill_value = fill_value});
  });
}

void bind_random(nb::module_& m) {
  using random::Generator;
  nb::class_<Generator>(m, "Generator")
      .def("__init__", [](Generator* self, uint64_t seed) { new (self) Generator(seed, here()); })
      .def("reset", &Generator::reset)
      .def("state", [](const Generator& g) { return g.state(); });
  m.def("set_seed", [](uint64_t seed) { random::set_seed(seed); });
  // The generator is one of these, or none for the default one.
  m.def(
      "uniform",
      [](nb::handle size, double low, double high, nb::handle type, const Generator* generator) {
        return random::uniform(shape(size),
                               {.minval = low, .maxval = high, .dtype = dtype(type), .generator = generator},
                               when_asked());
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "normal",
      [](nb::handle size, double mean, double stddev, nb::handle type, const Generator* generator) {
        return random::normal(shape(size),
                              {.mean = mean, .stddev = stddev, .dtype = dtype(type), .generator = generator},
                              when_asked());
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "truncated_normal",
      [](nb::handle size, double mean, double stddev, nb::handle type, const Generator* generator) {
        return random::truncated_normal(
            shape(size), {.mean = mean, .stddev = stddev, .dtype = dtype(type), .generator = generator},
            when_asked());
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "shuffle",
      [](nb::handle x, const Generator* generator) {
        return random::shuffle(arg(x), {.generator = generator});
      },
      nb::arg(), nb::arg().none());
  m.def(
      "categorical",
      [](nb::handle logits, int64_t samples, const Generator* generator) {
        return random::categorical(arg(logits), samples, {.generator = generator});
      },
      nb::arg(), nb::arg(), nb::arg().none());
}

}  // namespace

void bind_ops(nb::module_& m) {
  nb::module_ ops = m.def_submodule("ops");
  bind_elementwise(ops);
  bind_array(ops);
  bind_reductions(ops);
  bind_nn(ops);
  bind_random(ops);
  ops.def("print", [](nb::handle parts, int64_t summarize, bool to_stdout) {
    std::vector<PrintPart> p;
    for (const nb::handle part : nb::borrow<nb::sequence>(parts))
      p.push_back(nb::isinstance<nb::str>(part) ? PrintPart(nb::cast<std::string>(part))
                                                : PrintPart(tensor(part)));
    const PrintOptions options{.output = to_stdout ? &std::cout : nullptr, .summarize = summarize};
    const std::source_location where = here();
    // The engine takes the parts in braces.
    require(p.size() <= 8, ErrorCode::unsupported, where, "tf.print takes at most 8 values, received ",
            p.size());
    switch (p.size()) {
      case 0: return print({PrintPart("")}, options, where);
      case 1: return print({p[0]}, options, where);
      case 2: return print({p[0], p[1]}, options, where);
      case 3: return print({p[0], p[1], p[2]}, options, where);
      case 4: return print({p[0], p[1], p[2], p[3]}, options, where);
      case 5: return print({p[0], p[1], p[2], p[3], p[4]}, options, where);
      case 6: return print({p[0], p[1], p[2], p[3], p[4], p[5]}, options, where);
      case 7: return print({p[0], p[1], p[2], p[3], p[4], p[5], p[6]}, options, where);
      default: return print({p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}, options, where);
    }
  });
  ops.def("check_numerics", [](nb::handle x, const std::string& message) {
    return debugging::check_numerics(arg(x), message);
  });
  ops.def("assert_true", [](nb::handle condition, const std::string& message) {
    debugging::assert_true(arg(condition), message);
  });
  ops.def("enable_check_numerics", debugging::enable_check_numerics);
  ops.def("disable_check_numerics", debugging::disable_check_numerics);
}

}  // namespace lockstep::python
