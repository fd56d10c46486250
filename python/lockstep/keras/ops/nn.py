"""keras.ops.nn: activations, convolutions, normalization, losses."""

import builtins
import inspect
import math as _math
import warnings

import numpy as np

from ... import dtypes, nn
from ..._lockstep import KerasTensor
from .. import activations, losses
from ..backend import epsilon as _epsilon, floatx, standardize_data_format
from ._defining import (_define, _float, _joined_float, _named, _narrowed, _of_floats, _op, _ops, _public, _tensor, _tf, _to_tensor,
                        _wide)
from .core import _numbers
from .linalg import norm

_range = builtins.range


_define(globals(), "sigmoid softplus softsign log_sigmoid selu silu swish=silu mish hard_sigmoid hard_silu hard_swish=hard_silu "
                   "hard_tanh tanh_shrink sparse_plus sparse_sigmoid relu6", _of_floats)


def _activation(name):
    function = getattr(activations, name)

    def computed(x, *args, **kwargs):
        return function(_float(x), *args, **kwargs)
    computed.__signature__ = inspect.signature(function)
    return _named(name, computed, function.__doc__)


# Integers stay integers.
relu = _named("relu", lambda x: _tf.relu(_float(x) if _tensor(x).dtype is dtypes.bool else _tensor(x)), _tf.relu.__doc__)
for _name in "leaky_relu elu celu glu hard_shrink soft_shrink squareplus threshold sparsemax".split():
    globals()[_name] = _activation(_name)


@_op
def gelu(x, approximate=True):
    """x times the normal distribution of x; by tanh, where an approximation will do."""
    return activations.gelu(_float(x), approximate)


def _with_axis(x, axis, what):
    """x, which has such a dimension."""
    if isinstance(axis, int) and not -x.ndim <= axis < x.ndim:
        raise ValueError(f"{what}: axis {axis} is out of bounds of shape {tuple(x.shape)}")
    return x


@_op
def softmax(x, axis=-1):
    """Positive numbers along the axes that sum to 1."""
    x = _with_axis(_float(x), axis, "softmax")
    if isinstance(axis, int) and x.shape[axis] == 1 and not x.symbolic:
        warnings.warn(f"You are using a softmax over axis {axis} of a tensor of shape {tuple(x.shape)}. This axis has size 1. The softmax "
                      "operation will always return the value 1, which is likely not what you intended. Did you mean to use a sigmoid "
                      "instead?", stacklevel=3)
    return activations.softmax(x, axis)


@_op
def log_softmax(x, axis=-1):
    """log(softmax(x))."""
    return activations.log_softmax(_with_axis(_float(x), axis, "log_softmax"), axis)


@_op
def one_hot(x, num_classes, axis=-1, dtype=None, sparse=False):
    """1 at the number and 0 elsewhere, in a new dimension."""
    if sparse:
        raise ValueError("one_hot: there are no sparse tensors")
    x = _tensor(x)
    return _tf.one_hot(x if x.dtype.is_integer else _ops.cast(x, dtypes.int32), num_classes, axis=axis, dtype=dtype or floatx())


@_op
def multi_hot(inputs, num_classes=None, axis=-1, dtype=None, sparse=False, **kwargs):
    """1 at each of several numbers and 0 elsewhere."""
    num_classes = kwargs.pop("num_tokens", num_classes)
    if num_classes is None:
        raise ValueError("multi_hot: takes num_classes")
    if sparse:
        raise ValueError("multi_hot: there are no sparse tensors")
    reduce = 1 if len(_tensor(inputs).shape) > 1 else 0
    made = one_hot(inputs, num_classes, axis, dtype)
    return (_tf.reduce_any if made.dtype is dtypes.bool else _tf.reduce_max)(made, reduce)


@_op
def moments(x, axes, keepdims=False, synchronized=False):
    """Mean and variance, of small floats computed in float32."""
    x = _float(x)
    made = nn.moments(_wide(x), axes if not isinstance(axes, int) else [axes], keepdims=keepdims)
    return tuple(_narrowed(part, x.dtype) for part in made)


@_op
def layer_normalization(x, gamma=None, beta=None, axis=-1, epsilon=None, rms_scaling=False):
    """Zero mean and unit variance along the axes, scaled and moved; with rms_scaling divided by the deviation, and scaled, alone."""
    if rms_scaling:
        warnings.warn("You passed `rms_scaling=True`, which is deprecated: rms_normalization() divides by the root of the mean square",
                      stacklevel=4)
    x, gamma, beta, dtype = _alike(x, gamma, beta)
    axes = sorted(a % x.ndim for a in ([axis] if isinstance(axis, int) else axis))
    if axes != [x.ndim - 1]:
        sizes = [size if a in axes else 1 for a, size in enumerate(x.shape)]
        gamma, beta = (part if part is None or part.ndim == x.ndim else _tf.reshape(part, sizes) for part in (gamma, beta))
    average, variance = nn.moments(x, axes, keepdims=True)
    made = (x if rms_scaling else x - average) * _tf.rsqrt(variance + (_epsilon() if epsilon is None else epsilon))
    made = made if gamma is None else made * gamma
    return _ops.cast(made if beta is None or rms_scaling else made + beta, dtype)


def _alike(x, *others):
    """x and what scales and moves it in one dtype of at least float32; and the dtype of the result, which is that of x."""
    x = _float(x)
    given = [None if other is None else _float(other) for other in others]
    wide = dtypes.float64 if dtypes.float64 in [part.dtype for part in (x, *given) if part is not None] else dtypes.float32
    return (*(None if part is None else _ops.cast(part, wide) for part in (x, *given)), x.dtype)


@_op
def rms_normalization(x, scale=None, axis=-1, epsilon=None):
    """Divided by the root of the mean square along the axes."""
    x, scale, dtype = _alike(x, scale)
    made = x * _tf.rsqrt(_tf.reduce_mean(_tf.square(x), axis, True) + (_epsilon() if epsilon is None else epsilon))
    return _ops.cast(made if scale is None else made * scale, dtype)


@_op
def batch_normalization(x, mean, variance, axis, offset=None, scale=None, epsilon=1e-3):
    """Of given mean and variance."""
    x = _float(x)
    shaped = [x.shape[i] if i == axis % x.ndim else 1 for i in _range(x.ndim)]
    factor = _tf.rsqrt(_tf.reshape(variance, shaped) + epsilon)
    factor = factor if scale is None else factor * _tf.reshape(scale, shaped)
    made = (x - _tf.reshape(mean, shaped)) * factor
    return made if offset is None else made + _tf.reshape(offset, shaped)


def _pooling(kind):
    def op(inputs, pool_size, strides=None, padding="valid", data_format=None):
        x = _float(inputs)
        rank = x.ndim - 2
        sizes, steps = ([given] * rank if isinstance(given, int) else list(given)
                        for given in (pool_size, pool_size if strides is None else strides))
        return getattr(_ops, f"{kind}_pool{rank}d")(x, sizes, steps, padding.upper(), standardize_data_format(data_format))
    return op


max_pool = _named("max_pool", _pooling("max"), "The largest elements of windows.")
average_pool = _named("average_pool", _pooling("avg"), "The means of windows.")


def _several(value, rank):
    return [value] * rank if isinstance(value, int) else list(value)


@_op
def conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    """A convolution of one, two or three dimensions; in groups, where the kernel reads fewer channels than there are."""
    x, kernel = _joined_float(inputs, kernel)
    rank = x.ndim - 2
    layout = standardize_data_format(data_format)
    channels = x.shape[-1 if layout == "channels_last" else 1]
    if channels % kernel.shape[-2]:
        raise ValueError(f"conv: the kernel, of shape {kernel.shape}, reads groups of {kernel.shape[-2]} channels, received inputs of shape "
                         f"{x.shape}")
    return getattr(_ops, f"conv{rank}d")(x, kernel, _several(strides, rank), padding.upper(), _several(dilation_rate, rank), layout,
                                         channels // kernel.shape[-2])


@_op
def depthwise_conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    """A convolution in which every channel has filters of its own."""
    x, kernel = _joined_float(inputs, kernel)
    rank = x.ndim - 2
    return getattr(_ops, f"depthwise_conv{rank}d")(x, kernel, _several(strides, rank), padding.upper(), _several(dilation_rate, rank),
                                                   standardize_data_format(data_format))


@_op
def separable_conv(inputs, depthwise_kernel, pointwise_kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    """A convolution of each channel, then one that mixes them."""
    x, depthwise, pointwise = _joined_float(inputs, depthwise_kernel, pointwise_kernel)
    rank = x.ndim - 2
    return getattr(_ops, f"separable_conv{rank}d")(x, depthwise, pointwise, _several(strides, rank), padding.upper(),
                                                   _several(dilation_rate, rank), standardize_data_format(data_format))


@_op
def conv_transpose(inputs, kernel, strides=1, padding="valid", output_padding=None, data_format=None, dilation_rate=1):
    """A convolution backwards: every input adds the kernel to the output."""
    x, kernel = _joined_float(inputs, kernel)
    rank = x.ndim - 2
    return getattr(_ops, f"conv{rank}d_transpose")(
        x, kernel, _several(strides, rank), padding.upper(), [] if output_padding is None else _several(output_padding, rank),
        _several(dilation_rate, rank), standardize_data_format(data_format))


def _adaptive(name, reduce):
    def op(inputs, output_size, data_format=None):
        x = _float(inputs)
        rank = x.ndim - 2
        sizes = _several(output_size, rank)
        first = 1 if standardize_data_format(data_format) == "channels_last" else 2
        for i, count in enumerate(sizes):
            axis, length = first + i, x.shape[first + i]
            count = length if count is None else int(count)
            parts = []
            for number in _range(count):
                begin, end = number * length // count, -(-(number + 1) * length // count)
                part = _tf.slice(x, [begin if a == axis else 0 for a in _range(x.ndim)], [end - begin if a == axis else -1 for a in _range(x.ndim)])
                parts.append(reduce(part, axis, True))
            x = _tf.concat(parts, axis)
        return x
    return _named(name, op, "Windows of such sizes that so many of them cover the inputs.")


adaptive_average_pool = _adaptive("adaptive_average_pool", _tf.reduce_mean)
adaptive_max_pool = _adaptive("adaptive_max_pool", _tf.reduce_max)


@_op
def unfold(x, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of images (batch, channels, height, width) as columns: (batch, channels * window, number of windows)."""
    x = _tensor(x)
    size, dilation, padding, stride = (_several(value, 2) for value in (kernel_size, dilation, padding, stride))
    x = _tf.pad(x, [[0, 0], [0, 0], *([p, p] for p in padding)])
    places = _window_places(x.shape[2:], size, dilation, stride)
    batch, channels = x.shape[:2]
    picked = _ops.gather(_tf.reshape(x, [batch, channels, -1]), _tensor(places.astype(np.int32)), 2, 0)
    return _tf.reshape(picked, [batch, channels * size[0] * size[1], -1])


def _window_places(sizes, window, dilation, stride):
    """The number of each pixel of each window, (pixels of a window, windows)."""
    along = []
    for length, size, spread, step in zip(sizes, window, dilation, stride):
        count = (length - spread * (size - 1) - 1) // step + 1
        along.append(np.arange(size)[:, None] * spread + np.arange(count) * step)
    rows, columns = along
    places = rows[:, None, :, None] * sizes[1] + columns[None, :, None, :]
    return places.reshape(window[0] * window[1], -1)


@_op
def fold(x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """The images of which these are the windows, added where they overlap."""
    x = _tensor(x)
    size, dilation, padding, stride, output = (_several(value, 2) for value in (kernel_size, dilation, padding, stride, output_size))
    padded = [length + 2 * p for length, p in zip(output, padding)]
    places = _window_places(padded, size, dilation, stride)
    batch, channels = x.shape[0], x.shape[1] // (size[0] * size[1])
    flat = _tf.reshape(x, [batch * channels, -1])
    summed = _ops.scatter_add(_tf.transpose(flat), _tensor(places.reshape(-1).astype(np.int32)), padded[0] * padded[1])
    made = _tf.reshape(_tf.transpose(summed), [batch, channels, *padded])
    return _tf.slice(made, [0, 0, *padding], [-1, -1, *output])


@_op
def dot_product_attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None, attn_logits_soft_cap=None):
    """Attention of queries (batch, time, heads, size) to keys and values."""
    for name, given in (("query", query), ("key", key), ("value", value)):
        if _tensor(given).ndim != 4:
            raise ValueError(f"dot_product_attention: {name} is of rank 4, received shape {_tensor(given).shape}")
    q, k, v = _joined_float(query, key, value)
    mask = None if mask is None else _tensor(mask, dtypes.bool)
    if attn_logits_soft_cap is None:
        return _ops.scaled_dot_product_attention(q, k, v, mask, scale, bool(is_causal), None if bias is None else _tensor(bias, q.dtype))
    scores = _tf.einsum("btnh,bsnh->bnts", q, k) * (1.0 / _math.sqrt(k.shape[-1]) if scale is None else scale)
    scores = scores if bias is None else scores + _tensor(bias, q.dtype)
    scores = _tf.tanh(scores / attn_logits_soft_cap) * attn_logits_soft_cap
    if is_causal:
        seen = _tensor(np.tril(np.ones(scores.shape[-2:], np.bool_)))
        mask = seen if mask is None else _tf.logical_and(mask, seen)
    if mask is not None:
        scores = _tf.where(mask, scores, _tensor(-0.7 * float(scores.dtype.max), scores.dtype))
    return _tf.einsum("bnts,bsnh->btnh", nn.softmax(scores), v)


@_op
def categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """One loss an example."""
    return losses.categorical_crossentropy(target, _float(output), from_logits=from_logits, axis=axis)


@_op
def sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """The same, of class numbers."""
    target, output = _tensor(target), _float(output)
    if target.ndim == output.ndim and target.shape[-1] == 1:
        target = _tf.squeeze(target, [-1])
    if axis not in (-1, output.ndim - 1):
        output = _ops.moveaxis(output, [axis], [-1])
    if tuple(target.shape) != tuple(output.shape[:-1]):
        raise ValueError(f"sparse_categorical_crossentropy: target of shape {target.shape} does not fit output of shape {output.shape}")
    return losses.sparse_categorical_crossentropy(target, output, from_logits=from_logits)


@_op
def binary_crossentropy(target, output, from_logits=False):
    """A loss for every element."""
    target, output = _joined_float(target, output)
    if from_logits:
        return nn.sigmoid_cross_entropy_with_logits(labels=target, logits=output)
    output = _tf.clip_by_value(output, _epsilon(), 1.0 - _epsilon())
    return -(target * _tf.log(output) + (1.0 - target) * _tf.log(1.0 - output))


@_op
def psnr(x1, x2, max_val):
    """The peak signal to noise ratio."""
    x1, x2 = _joined_float(x1, x2)
    if tuple(x1.shape) != tuple(x2.shape):
        raise ValueError(f"psnr: both have one shape, received {x1.shape} and {x2.shape}")
    return 20.0 * _tf.log10(_tensor(max_val, x1.dtype)) - 10.0 * _tf.log10(_tf.reduce_mean(_tf.square(x1 - x2)))


def _blocks(name, op):
    def moved(x, block_size, data_format=None):
        x = _tensor(x)
        if standardize_data_format(data_format) == "channels_last":
            return op(x, block_size)
        return _ops.moveaxis(op(_ops.moveaxis(x, [1], [-1]), block_size), [-1], [1])
    return _named(name, moved, "Squares of pixels become channels, or the reverse.")


depth_to_space, space_to_depth = _blocks("depth_to_space", _ops.depth_to_space), _blocks("space_to_depth", _ops.space_to_depth)


# --- sequences without a given alignment ---------------------------------------------------------------------------------

@_op
def ctc_loss(target, output, target_length, output_length, mask_index=0):
    """The negative logarithm of the probability of the target among all ways to align it with the output, one per example."""
    target, output = _numbers(target), _wide(_float(output))
    if target.ndim != 2 or output.ndim != 3:
        raise ValueError(f"ctc_loss: takes a target of rank 2 and an output of rank 3, received shapes {target.shape} and {output.shape}")
    if target.shape[0] != output.shape[0]:
        raise ValueError(f"ctc_loss: target and output have one batch size, received shapes {target.shape} and {output.shape}")
    return _ops.ctc_loss(target, output, _numbers(target_length), _numbers(output_length), int(mask_index))


def ctc_decode(inputs, sequence_lengths, strategy="greedy", beam_width=100, top_paths=1, merge_repeated=True, mask_index=0):
    """The labels that an output means, -1 behind the last one, and how probable they are."""
    if strategy == "beam_search" and isinstance(inputs, KerasTensor):  # which looks at values: no model computes it
        batch, steps, _ = inputs.shape
        floats = inputs.dtype if inputs.dtype.name == "float64" else "float32"
        return KerasTensor((top_paths, batch, steps), "int32"), KerasTensor((batch, top_paths), floats)
    return ctc_decode_op(inputs, sequence_lengths, strategy, beam_width, top_paths, merge_repeated, mask_index)


@_op
def ctc_decode_op(inputs, sequence_lengths, strategy="greedy", beam_width=100, top_paths=1, merge_repeated=True, mask_index=0):
    """What ctc_decode() computes."""
    x, lengths = _wide(_float(inputs)), _numbers(sequence_lengths)
    if strategy not in ("greedy", "beam_search"):
        raise ValueError(f"ctc_decode: strategy is greedy or beam_search, received {strategy!r}")
    if strategy == "beam_search":
        return _beam_search(x, lengths, beam_width, top_paths, mask_index)
    batch, steps, classes = x.shape
    mask_index = classes - 1 if mask_index is None else mask_index
    best = _ops.cast(_ops.argmax(x, 2), dtypes.int32)
    inside = _tf.less(_tensor(np.arange(steps, dtype=np.int32)), _tf.expand_dims(_ops.cast(lengths, dtypes.int32), 1))
    score = -_tf.reduce_sum(_tf.where(inside, _tf.reduce_max(x, 2), _tensor(0.0, x.dtype)), 1, True)
    kept = _tf.logical_and(inside, _tf.not_equal(best, mask_index))
    if merge_repeated:
        again = _tf.concat([_tf.zeros([batch, 1], dtypes.bool), _tf.equal(best[:, 1:], best[:, :-1])], 1)
        kept = _tf.logical_and(kept, _tf.logical_not(again))
    # Those that are kept go to the front, in order.
    order = _ops.argsort(_tf.where(kept, _tensor(np.arange(steps, dtype=np.int32)), _tensor(np.arange(steps, dtype=np.int32) + steps)), 1, False)
    labels = _ops.take_along_axis(_tf.where(kept, best, _tensor(-1)), order, 1)
    return _tf.expand_dims(labels, 0), score


def _beam_search(x, lengths, beam_width, top_paths, mask_index):
    """Prefixes that are most probable, summed over the ways to align them; outside of compiled functions."""
    if x.symbolic:
        raise NotImplementedError("ctc_decode: beam_search looks at values, which a function that is being traced does not know")
    logs, counts = np.asarray(nn.log_softmax(x)).astype(np.float64), np.asarray(lengths)
    batch, steps, classes = logs.shape
    mask_index = classes - 1 if mask_index is None else mask_index
    labels = np.full((top_paths, batch, steps), -1, np.int32)
    scores = np.full((batch, top_paths), -np.inf)
    for b in _range(batch):
        beams = {(): (0.0, -np.inf)}  # prefix -> log probabilities of ending with a blank, and without one
        for t in _range(int(counts[b])):
            found = {}

            def add(prefix, blank, own, found=found):
                old = found.get(prefix, (-np.inf, -np.inf))
                found[prefix] = (np.logaddexp(old[0], blank), np.logaddexp(old[1], own))
            for prefix, (blank, own) in beams.items():
                add(prefix, np.logaddexp(blank, own) + logs[b, t, mask_index], -np.inf)
                for c in _range(classes):
                    if c == mask_index:
                        continue
                    here = logs[b, t, c]
                    if prefix and prefix[-1] == c:
                        add(prefix, -np.inf, own + here)
                        add(prefix + (c,), -np.inf, blank + here)
                    else:
                        add(prefix + (c,), -np.inf, np.logaddexp(blank, own) + here)
            best = sorted(found, key=lambda prefix: -np.logaddexp(*found[prefix]))[:beam_width]
            beams = {prefix: found[prefix] for prefix in best}
        ranked = sorted(beams, key=lambda prefix: -np.logaddexp(*beams[prefix]))[:top_paths]
        for path, prefix in enumerate(ranked):
            labels[path, b, :len(prefix)] = prefix
            scores[b, path] = np.logaddexp(*beams[prefix])
    return _to_tensor(labels), _tensor(scores, x.dtype)


@_op
def normalize(x, axis=-1, order=2, epsilon=None):
    """Divided by the norm along an axis."""
    given = _with_axis(_float(x), axis, "normalize")
    return given / _tf.maximum(norm(given, order, axis, True), _epsilon() if epsilon is None else epsilon)


__all__ = [name for name in _public(globals()) if name != "ctc_decode_op"]
