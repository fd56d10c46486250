"""tf.nn: what neural networks are made of."""

import collections

import numpy as np

from . import _lockstep, dtypes, errors, random
from .ops import _axes, _sizes, clip_by_norm, divide_no_nan, pad  # noqa: F401
from .ops import (log_sigmoid, relu, relu6, selu, sigmoid, softplus, softsign, tanh)  # noqa: F401
from .ops import space_to_batch  # noqa: F401
from .random import _generator
from .tensor import convert_to_tensor

_ops = _lockstep.ops


def softmax(logits, axis=-1, name=None):
    """exp(x) / sum(exp(x)) along an axis."""
    return _ops.softmax(logits, -1 if axis is None else axis)


def log_softmax(logits, axis=-1, name=None):
    """Its logarithm."""
    return _ops.log_softmax(logits, -1 if axis is None else axis)


def gelu(features, approximate=False, name=None):
    """x times the probability that a normal number is below x."""
    return _ops.gelu(features, approximate)


def leaky_relu(features, alpha=0.2, name=None):
    """x, times alpha below 0."""
    return _ops.leaky_relu(features, float(alpha))


def silu(features, beta=1.0):
    """features * sigmoid(beta * features)."""
    if isinstance(beta, (int, float)) and beta == 1:
        return _ops.silu(features)
    features = convert_to_tensor(features)
    return features * sigmoid(features * beta)


swish = silu


def elu(features, name=None):
    """exp(x) - 1 below 0, x above."""
    return _ops.elu(features, 1.0)


def dropout(x, rate, noise_shape=None, seed=None, name=None):
    """Each element is 0 with this probability, the others grow by 1 / (1 - rate)."""
    return _ops.dropout(x, float(rate), [] if noise_shape is None else _sizes(noise_shape), _generator(seed))


def sparse_softmax_cross_entropy_with_logits(labels, logits, name=None):
    """One loss an example, of class numbers."""
    return _ops.sparse_softmax_cross_entropy_with_logits(labels, logits)


def softmax_cross_entropy_with_logits(labels, logits, axis=-1, name=None):
    """One loss an example, of probabilities; the classes lie along the axis."""
    labels, logits = (_ops.moveaxis(x, [int(axis)], [-1]) for x in (labels, logits))
    return _ops.softmax_cross_entropy_with_logits(labels, logits)


def sigmoid_cross_entropy_with_logits(labels=None, logits=None, name=None):
    """One loss an element."""
    return _ops.sigmoid_cross_entropy_with_logits(labels, logits)


def weighted_cross_entropy_with_logits(labels, logits, pos_weight, name=None):
    """The same, with what is positive weighed."""
    labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
    if labels.shape != logits.shape:
        raise ValueError(f"weighted_cross_entropy_with_logits: a label for each logit, received {labels.shape} and {logits.shape}")
    weight = 1 + (pos_weight - 1) * labels
    return (1 - labels) * logits + weight * (_ops.log1p(_ops.exp(-_ops.abs(logits))) + _ops.relu(-logits))


def compute_average_loss(per_example_loss, sample_weight=None, global_batch_size=None):
    """The sum of the losses of this replica divided by the examples of the whole batch: the sum over replicas is the mean."""
    return _ops.compute_average_loss(per_example_loss, sample_weight, -1 if global_batch_size is None else int(global_batch_size))


def scale_regularization_loss(regularization_loss):
    """A replica's share of a penalty: the sum over the replicas is the penalty."""
    return _ops.scale_regularization_loss(regularization_loss)


def moments(x, axes, shift=None, keepdims=False, name=None):
    """Mean and variance over some axes."""
    return _ops.moments(x, _axes(axes), keepdims)


def batch_normalization(x, mean, variance, offset, scale, variance_epsilon, name=None):
    """(x - mean) / sqrt(variance + epsilon) * scale + offset."""
    factor = _ops.rsqrt(variance + variance_epsilon)
    if scale is not None:
        factor = factor * scale
    shifted = x * factor - mean * factor
    return shifted if offset is None else shifted + offset


def l2_normalize(x, axis=None, epsilon=1e-12, name=None):
    """Divided by Euclid's norm."""
    return _ops.l2_normalize(x, _axes(axis), float(epsilon))


def l2_loss(t, name=None):
    """Half the sum of squares."""
    return _ops.reduce_sum(_ops.square(t), [], False) / 2.0


def embedding_lookup(params, ids, max_norm=None, name=None):
    """Rows by their numbers, none with a larger norm than max_norm."""
    rows = _ops.gather(params, ids, 0, 0)
    if max_norm is None:
        return rows
    return clip_by_norm(rows, max_norm, list(range(convert_to_tensor(ids).ndim, rows.ndim)))


def bias_add(value, bias, data_format=None, name=None):
    """value + bias, one number for each channel."""
    value = convert_to_tensor(value)
    if data_format is not None and data_format.startswith("NC"):
        bias = _ops.reshape(bias, [-1] + [1] * (value.ndim - 2))
    return value + bias


def top_k(input, k=1, sorted=True, index_type=None, name=None):
    """The k largest elements of the last dimension, and their places."""
    values, indices = _ops.top_k(input, int(k))
    return TopKV2(values, indices if index_type is None else _ops.cast(indices, index_type))


TopKV2 = collections.namedtuple("TopKV2", "values indices")


def in_top_k(targets, predictions, k, name=None):
    """Whether the target is among the k largest."""
    return _ops.in_top_k(targets, predictions, int(k))


# --- convolutions --------------------------------------------------------------------------------------------------------

_LAYOUTS = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def _spatial(value, dims, what, data_format):
    sizes = _sizes(value)
    if len(sizes) == dims + 2:
        sizes = sizes[2:] if data_format.startswith("NC") else sizes[1:-1]
    if len(sizes) not in (1, dims):
        raise ValueError(f"{what}: expected 1, {dims} or {dims + 2} numbers, received {value!r}")
    return sizes


def _channels(data_format):
    return "channels_first" if data_format.startswith("NC") else "channels_last"


def _rank(x, what, ranks=(1, 2, 3)):
    """How many spatial dimensions a batch of images, or what is like them, has."""
    dims = x.ndim - 2
    if dims not in ranks:
        raise ValueError(f"{what}: takes batches with {', '.join(map(str, ranks))} spatial dimensions and channels, received shape {x.shape}")
    return dims


def _padded(x, padding, dims, data_format, value=0):
    """(x, "valid") where the padding is a list of pairs for all dimensions, as tf.nn.conv2d takes it, else (x, the name of the padding)."""
    if isinstance(padding, str):
        return x, padding.lower()
    pairs = [_sizes(pair) for pair in padding]
    batch_and_channels = [pairs[0], pairs[1 if data_format.startswith("NC") else -1]] if len(pairs) == dims + 2 else None
    if batch_and_channels != [[0, 0], [0, 0]] or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError(f"padding: is \"VALID\", \"SAME\" or a pair for each of {dims + 2} dimensions, [0, 0] for batch and channels, received "
                         f"{padding!r}")
    return pad(x, pairs, constant_values=value), "valid"


def _conv(name, dims, default):
    op = getattr(_ops, name)

    def conv(input, filters, strides, padding, data_format=default, dilations=None, name=None):
        data_format = data_format or default
        input, filters = convert_to_tensor(input), convert_to_tensor(filters)
        x, padding = _padded(input, padding, dims, data_format)
        groups = max(x.shape[1 if data_format.startswith("NC") else -1] // max(filters.shape[-2], 1), 1) if filters.ndim == x.ndim == dims + 2 else 1
        return op(x, filters, _spatial(strides, dims, "strides", data_format), padding, _spatial(dilations or 1, dims, "dilations", data_format),
                  _channels(data_format), groups)
    conv.__name__, conv.__doc__ = name, "A convolution; in groups, where the filters read fewer channels than there are."
    return conv


_conv1d, conv2d, conv3d = _conv("conv1d", 1, "NWC"), _conv("conv2d", 2, "NHWC"), _conv("conv3d", 3, "NDHWC")


def conv1d(input, filters, stride, padding, data_format="NWC", dilations=None, name=None):
    """A convolution; in groups, where the filters read fewer channels than there are."""
    return _conv1d(input, filters, stride, padding, data_format, dilations)


def convolution(input, filters, strides=None, padding="VALID", data_format=None, dilations=None, name=None):
    """A convolution of one, two or three dimensions."""
    input = convert_to_tensor(input)
    dims = _rank(input, "convolution")
    return (conv1d, conv2d, conv3d)[dims - 1](input, filters, 1 if strides is None else strides, padding, data_format or _LAYOUTS[dims], dilations)


def atrous_conv2d(value, filters, rate, padding, name=None):
    """A convolution whose filters skip rate - 1 pixels between those that they read."""
    return conv2d(value, filters, 1, padding, dilations=int(rate))


def depthwise_conv2d(input, filter, strides, padding, data_format="NHWC", dilations=None, name=None):
    """A convolution in which every channel has filters of its own."""
    data_format = data_format or "NHWC"
    x, padding = _padded(convert_to_tensor(input), padding, 2, data_format)
    return _ops.depthwise_conv2d(x, filter, _spatial(strides, 2, "strides", data_format), padding,
                                 _spatial(dilations or 1, 2, "dilations", data_format), _channels(data_format))


def separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding, data_format=None, dilations=None, name=None):
    """A convolution of each channel, then one that mixes them."""
    data_format = data_format or "NHWC"
    made = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return conv2d(made, pointwise_filter, 1, "VALID", data_format)


def _conv_transpose(name, dims, default):
    op = getattr(_ops, name)

    def conv(input, filters, output_shape, strides, padding="SAME", data_format=default, dilations=None, name=None):
        data_format = data_format or default
        first = data_format.startswith("NC")
        input, filters = convert_to_tensor(input), convert_to_tensor(filters)
        strides, dilations = ((sizes * dims)[:dims] for sizes in (_spatial(strides, dims, "strides", data_format),
                                                                   _spatial(dilations or 1, dims, "dilations", data_format)))
        asked = _sizes(output_shape)
        if len(asked) == dims:  # those of the pixels alone
            asked = [input.shape[0], filters.shape[-2], *asked] if first else [input.shape[0], *asked, filters.shape[-2]]
        sizes = list(input.shape[2:] if first else input.shape[1:-1])
        wanted = asked[2:] if first else asked[1:-1]
        reach = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(filters.shape, dilations)]
        same = isinstance(padding, str) and padding.upper() == "SAME"
        if same:
            cut = [max((size - 1) * stride + far - want, 0) for size, stride, far, want in zip(sizes, strides, reach, wanted)]
            pairs = [(part // 2, part - part // 2) for part in cut]
            fits = [-(-want // stride) for want, stride in zip(wanted, strides)]
        else:
            pairs = [(0, 0)] * dims if isinstance(padding, str) else [tuple(pair) for pair in (padding[2:] if first else padding[1:-1])]
            fits = [(want + sum(pair) - far) // stride + 1 for want, pair, far, stride in zip(wanted, pairs, reach, strides)]
        # The examples are those of the input: a layer is tried with another number of them than a program may have written down.
        if fits != sizes or asked[1 if first else -1] != filters.shape[-2]:
            raise errors.InvalidArgumentError(f"{what}: a convolution of an output of shape {tuple(asked)} with filters of shape {filters.shape}, strides "
                                              f"{strides} and padding {padding!r} does not give an input of shape {input.shape}")
        if same and wanted == [size * stride for size, stride in zip(sizes, strides)]:
            return op(input, filters, strides, "same", [], dilations, _channels(data_format))
        whole = op(input, filters, strides, "valid", [], dilations, _channels(data_format))
        # The margins are cut off; pixels beyond the reach of the input are zeros.
        begin, size, after = [0] * (dims + 2), list(whole.shape), [0] * (dims + 2)
        for place, (want, pair) in enumerate(zip(wanted, pairs), 2 if first else 1):
            begin[place] = pair[0]
            size[place] = min(want, whole.shape[place] - pair[0])
            after[place] = want - size[place]
        return _ops.pad(_ops.slice(whole, begin, size), [0] * (dims + 2), after, "CONSTANT", 0.0)
    what = conv.__name__ = name
    conv.__doc__ = "The gradient of a convolution: every pixel adds the filters to the output, which is of this shape."
    return conv


conv1d_transpose, conv2d_transpose, conv3d_transpose = (_conv_transpose(f"conv{_dims}d_transpose", _dims, _LAYOUTS[_dims]) for _dims in (1, 2, 3))


def conv_transpose(input, filters, output_shape, strides, padding="SAME", data_format=None, dilations=None, name=None):
    """The gradient of a convolution of one, two or three dimensions."""
    input = convert_to_tensor(input)
    dims = _rank(input, "conv_transpose")
    return (conv1d_transpose, conv2d_transpose, conv3d_transpose)[dims - 1](input, filters, output_shape, strides, padding, data_format, dilations)


def atrous_conv2d_transpose(value, filters, output_shape, rate, padding, name=None):
    """The gradient of atrous_conv2d()."""
    return conv2d_transpose(value, filters, output_shape, 1, padding, dilations=int(rate))


# --- windows and blocks --------------------------------------------------------------------------------------------------

def _pool(name, dims, default):
    op = getattr(_ops, name)

    def pool(input, ksize, strides, padding, data_format=default, name=None):
        data_format = data_format or default
        x, padding = _padded(convert_to_tensor(input), padding, dims, data_format, -np.inf)
        return op(x, _spatial(ksize, dims, "ksize", data_format), _spatial(strides, dims, "strides", data_format),
                  padding, _channels(data_format))
    pool.__name__, pool.__doc__ = name, "Pooling over windows."
    return pool


max_pool1d, max_pool2d, max_pool3d = _pool("max_pool1d", 1, "NWC"), _pool("max_pool2d", 2, "NHWC"), _pool("max_pool3d", 3, "NDHWC")
avg_pool1d, avg_pool2d, avg_pool3d = _pool("avg_pool1d", 1, "NWC"), _pool("avg_pool2d", 2, "NHWC"), _pool("avg_pool3d", 3, "NDHWC")


def max_pool(input, ksize, strides, padding, data_format=None, name=None):
    """The largest elements of windows of one, two or three dimensions."""
    input = convert_to_tensor(input)
    return (max_pool1d, max_pool2d, max_pool3d)[_rank(input, "max_pool") - 1](input, ksize, strides, padding, data_format)


def avg_pool(input, ksize, strides, padding, data_format=None, name=None):
    """The means of windows of one, two or three dimensions."""
    input = convert_to_tensor(input)
    return (avg_pool1d, avg_pool2d, avg_pool3d)[_rank(input, "avg_pool") - 1](input, ksize, strides, padding, data_format)


def pool(input, window_shape, pooling_type, strides=None, padding="VALID", data_format=None, dilations=None, name=None):
    """Pooling over windows of one, two or three dimensions: "MAX" or "AVG"."""
    if pooling_type not in ("MAX", "AVG"):
        raise ValueError(f"pool: pooling_type is \"MAX\" or \"AVG\", received {pooling_type!r}")
    if dilations is not None and any(size != 1 for size in _sizes(dilations)):
        raise NotImplementedError("pool: windows without gaps alone, dilations of 1")
    return (max_pool if pooling_type == "MAX" else avg_pool)(input, window_shape, 1 if strides is None else strides, padding, data_format)


def _windows(x, kernel, strides, gaps, padding):
    """What windows of images see: elements of shape (batch, rows, columns, places in a window, channels), -infinity outside of the image, and
    where these are in it, by rows."""
    batch, height, width, channels = x.shape
    rows, columns = (_window_places(*given, padding) for given in zip((height, width), kernel, strides, gaps))
    at = (rows[:, None, :, None] * width + columns[None, :, None, :]).reshape(len(rows), len(columns), -1)
    outside = ((rows < 0)[:, None, :, None] | (columns < 0)[None, :, None, :]).reshape(at.shape)
    at = np.where(outside, 0, at)
    seen = _ops.gather(_ops.reshape(x, [batch, height * width, channels]), convert_to_tensor(at.astype(np.int32)), 1, 0)
    return seen, convert_to_tensor(outside[..., None]), at


def _window_places(size, kernel, stride, gap, padding):
    """The places that windows read along a dimension, (windows, kernel); -1 where they lie outside."""
    reach, same = (kernel - 1) * gap + 1, padding.upper() == "SAME"
    count = -(-size // stride) if same else (size - reach) // stride + 1
    before = max((count - 1) * stride + reach - size, 0) // 2 if same else 0
    at = np.arange(count)[:, None] * stride + np.arange(kernel) * gap - before
    return np.where((at < 0) | (at >= size), -1, at)


def _of_images(x, what, data_format):
    x = convert_to_tensor(x)
    _rank(x, what, (2,))
    if data_format != "NHWC":
        raise ValueError(f"{what}: data_format is NHWC, received {data_format!r}")
    return x


def _pair(value, what):
    return (_spatial(value, 2, what, "NHWC") * 2)[:2]


def max_pool_with_argmax(input, ksize, strides, padding, data_format="NHWC", output_dtype=dtypes.int64, include_batch_in_index=False, name=None):
    """The largest elements of windows, and their places in the flattened image, or in the flattened batch."""
    input = _of_images(input, "max_pool_with_argmax", data_format)
    kernel, strides = _pair(ksize, "ksize"), _pair(strides, "strides")
    batch, height, width, channels = input.shape
    seen, outside, at = _windows(input, kernel, strides, (1, 1), padding)
    best = _ops.argmax(_ops.where(outside, convert_to_tensor(-np.inf, input.dtype), seen), 3)  # (batch, rows, columns, channels)
    places = _ops.broadcast_to(convert_to_tensor(at[None, ..., None]), [batch, *at.shape, channels])
    found = _ops.squeeze(_ops.take_along_axis(places, _ops.expand_dims(best, 3), 3), [3])
    found = found * channels + convert_to_tensor(np.arange(channels))
    if include_batch_in_index:
        found = found + convert_to_tensor((np.arange(batch) * (height * width * channels)).reshape(-1, 1, 1, 1))
    return MaxPoolWithArgmax(max_pool2d(input, kernel, strides, padding), _ops.cast(found, output_dtype))


MaxPoolWithArgmax = collections.namedtuple("MaxPoolWithArgmax", "output argmax")


def dilation2d(input, filters, strides, padding, data_format, dilations, name=None):
    """Grayscale dilation: the maximum of input plus filter over each window."""
    input, filters = _of_images(input, "dilation2d", data_format), convert_to_tensor(filters)
    rows, columns, channels = filters.shape
    seen, outside, _ = _windows(input, (rows, columns), _pair(strides, "strides"), _pair(dilations, "dilations"), padding)
    sums = seen + _ops.reshape(filters, [rows * columns, channels])
    return _ops.reduce_max(_ops.where(outside, convert_to_tensor(-np.inf, input.dtype), sums), [3], False)


def erosion2d(value, filters, strides, padding, data_format, dilations, name=None):
    """Grayscale erosion: the minimum of input minus filter over each window."""
    value = _of_images(value, "erosion2d", data_format)
    return _ops.negative(dilation2d(_ops.negative(value), _ops.reverse(filters, [0, 1]), strides, padding, data_format, dilations))


def _blocks(name, doc):
    op = getattr(_ops, name)

    def moved(input, block_size, data_format="NHWC", name=None):
        if data_format == "NCHW":
            return _ops.moveaxis(op(_ops.moveaxis(input, [1], [-1]), int(block_size)), [-1], [1])
        if data_format != "NHWC":
            raise ValueError(f"{what}: data_format is NHWC or NCHW, received {data_format!r}")
        return op(input, int(block_size))
    what = moved.__name__ = name
    moved.__doc__ = doc
    return moved


space_to_depth = _blocks("space_to_depth", "Blocks of pixels become channels.")
depth_to_space = _blocks("depth_to_space", "Channels become blocks of pixels.")


# --- moments and losses --------------------------------------------------------------------------------------------------

def crelu(features, axis=-1, name=None):
    """max(x, 0) and max(-x, 0), side by side."""
    return _ops.concat([_ops.relu(features), _ops.relu(_ops.negative(features))], axis)


def zero_fraction(value, name=None):
    """The fraction of the elements that are 0."""
    return _ops.reduce_mean(_ops.cast(_ops.equal(value, 0), dtypes.float32), [], False)


def local_response_normalization(input, depth_radius=5, bias=1, alpha=1, beta=0.5, name=None):
    """Divided by (bias + alpha * the sum of the squares of the channels nearby) ** beta."""
    input = convert_to_tensor(input)
    channels = input.shape[-1]
    near = np.abs(np.arange(channels)[:, None] - np.arange(channels)) <= depth_radius
    total = _ops.tensordot(_ops.square(input), _ops.cast(convert_to_tensor(near), input.dtype), [input.ndim - 1], [0])
    return input / _ops.pow(total * float(alpha) + float(bias), float(beta))


lrn = local_response_normalization


def weighted_moments(x, axes, frequency_weights, keepdims=False, name=None):
    """Mean and variance over some axes, of elements weighted by their frequencies."""
    x = convert_to_tensor(x)
    weights = _ops.cast(frequency_weights, x.dtype) + _ops.zeros_like(x)
    axes = _axes(axes)
    total = _ops.reduce_sum(weights, axes, True)
    mean = _ops.reduce_sum(x * weights, axes, True) / total
    variance = _ops.reduce_sum(_ops.squared_difference(x, _ops.stop_gradient(mean)) * weights, axes, True) / total
    return (mean, variance) if keepdims else (_ops.squeeze(mean, axes), _ops.squeeze(variance, axes))


def sufficient_statistics(x, axes, shift=None, keepdims=False, name=None):
    """How many elements there are along some axes, their sum and the sum of their squares, of which the shift was taken away; and the shift."""
    x = convert_to_tensor(x)
    axes = _axes(axes)
    count = convert_to_tensor(float(np.prod([x.shape[axis] for axis in axes], dtype=np.int64)), x.dtype)
    moved = x if shift is None else x - shift
    return count, _ops.reduce_sum(moved, axes, keepdims), _ops.reduce_sum(_ops.square(moved), axes, keepdims), shift


def normalize_moments(counts, mean_ss, variance_ss, shift, name=None):
    """Mean and variance of what sufficient_statistics() gives."""
    moved = mean_ss / counts
    variance = variance_ss / counts - _ops.square(moved)
    return (moved if shift is None else moved + shift), variance


def log_poisson_loss(targets, log_input, compute_full_loss=False, name=None):
    """exp(log_input) - log_input * targets, one loss an element; the full loss adds Stirling's approximation of log(targets!)."""
    targets, log_input = convert_to_tensor(targets), convert_to_tensor(log_input)
    made = _ops.exp(log_input) - log_input * targets
    if not compute_full_loss:
        return made
    few = _ops.logical_and(_ops.greater_equal(targets, 0.0), _ops.less_equal(targets, 1.0))
    safe = _ops.where(few, _ops.ones_like(targets), targets)
    stirling = safe * _ops.log(safe) - safe + _ops.log(safe * (2.0 * np.pi)) * 0.5
    return made + _ops.where(few, _ops.zeros_like(targets), stirling)


def ctc_loss(labels, logits, label_length, logit_length, logits_time_major=True, unique=None, blank_index=None, name=None):
    """The negative logarithm of the probability of the labels among all ways to align them with the logits, one an example."""
    labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
    if label_length is None:
        raise ValueError("ctc_loss: labels are dense rows, padded to one length, so that label_length has to be given; there are no sparse labels")
    if logits.ndim != 3:
        raise ValueError(f"ctc_loss: takes logits of rank 3, received shape {logits.shape}")
    if logits_time_major:
        logits = _ops.transpose(logits, [1, 0, 2])
    blank = 0 if blank_index is None else int(blank_index)
    # The padding may have any value, for example -1: it is never aligned.
    labels = _ops.clip_by_value(labels, 0, logits.shape[-1] - 1)
    return _ops.ctc_loss(labels, logits, convert_to_tensor(label_length), None if logit_length is None else convert_to_tensor(logit_length),
                         blank + logits.shape[-1] if blank < 0 else blank)


def collapse_repeated(labels, seq_length, name=None):
    """Sequences in which a label that follows itself is there once, filled up with zeros, and their lengths. How long the longest one is
    must be known, so not in a function that is being traced."""
    labels, lengths = np.asarray(convert_to_tensor(labels)), np.asarray(convert_to_tensor(seq_length))
    kept = np.concatenate([np.ones((len(labels), 1), bool), labels[:, 1:] != labels[:, :-1]], 1) & (np.arange(labels.shape[1]) < lengths[:, None])
    counts = kept.sum(1)
    made = np.zeros((len(labels), counts.max(initial=0)), labels.dtype)
    for row, places, count in zip(range(len(labels)), kept, counts):
        made[row, :count] = labels[row, places]
    return convert_to_tensor(made), convert_to_tensor(counts.astype(lengths.dtype))


# --- losses of a sample of the classes -----------------------------------------------------------------------------------

def _rows(weights, numbers):
    """Rows of a table by their numbers."""
    if isinstance(weights, (list, tuple)):
        raise NotImplementedError(f"weights are one table, received {len(weights)} parts; tf.concat makes one of them")
    return _ops.gather(weights, numbers, 0, 0)


def _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, subtract_log_q,
                    remove_accidental_hits, seed):
    """Logits of the true classes and of the sampled ones, and what they ought to be."""
    labels, inputs = _ops.cast(labels, dtypes.int64), convert_to_tensor(inputs)
    labels = _ops.reshape(labels, [-1, num_true])
    sampled, true_expected, sampled_expected = sampled_values if sampled_values is not None else \
        random.log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed)
    sampled = _ops.stop_gradient(_ops.cast(sampled, dtypes.int64))
    true_logits = _ops.reduce_sum(_ops.expand_dims(inputs, 1) * _rows(weights, labels), [2], False) + _rows(biases, labels)
    logits = _ops.matmul(inputs, _rows(weights, sampled), False, True) + _rows(biases, sampled)
    if remove_accidental_hits:
        hit = _ops.reduce_any(_ops.equal(_ops.expand_dims(labels, 2), _ops.reshape(sampled, [1, 1, -1])), [1], False)
        logits = _ops.where(hit, logits - float(np.finfo(np.float32).max), logits)
    if subtract_log_q:
        true_logits = true_logits - _ops.stop_gradient(_ops.log(true_expected))
        logits = logits - _ops.stop_gradient(_ops.log(sampled_expected))
    targets = _ops.concat([_ops.ones_like(true_logits) / float(num_true), _ops.zeros_like(logits)], 1)
    return _ops.concat([true_logits, logits], 1), _ops.stop_gradient(targets)


def nce_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None, remove_accidental_hits=False,
             name="nce_loss"):
    """Noise-contrastive estimation: one loss an example, of the true classes and of a sample of the others."""
    logits, targets = _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
                                      remove_accidental_hits, None)
    return _ops.reduce_sum(_ops.sigmoid_cross_entropy_with_logits(targets, logits), [1], False)


def sampled_softmax_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None,
                         remove_accidental_hits=True, seed=None, name="sampled_softmax_loss"):
    """The cross entropy of a softmax over the true classes and a sample of the others, one loss an example."""
    logits, targets = _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
                                      remove_accidental_hits, seed)
    return _ops.softmax_cross_entropy_with_logits(targets, logits)
