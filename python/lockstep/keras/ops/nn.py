"""keras.ops.nn: activations, convolutions, normalization, losses."""

import builtins

from ... import dtypes, nn
from .. import activations, losses
from ..backend import epsilon as _epsilon, floatx, standardize_data_format
from ..layers import symbolic
from ._defining import _define, _float, _joined_float, _named, _of_floats, _op, _ops, _public, _tensor, _tf
from .linalg import norm

_range = builtins.range


_define(globals(), "sigmoid softplus softsign log_sigmoid selu silu swish=silu mish hard_sigmoid hard_silu hard_swish=hard_silu "
                   "hard_tanh tanh_shrink sparse_plus sparse_sigmoid relu6", _of_floats)


def _activation(name):
    function = getattr(activations, name)

    def op(x, *args, **kwargs):
        return function(_float(x), *args, **kwargs)
    return _named(name, op, function.__doc__)


for _name in "relu leaky_relu elu celu gelu glu hard_shrink soft_shrink squareplus threshold sparsemax".split():
    globals()[_name] = _activation(_name)


@_op
def softmax(x, axis=-1):
    """Positive numbers along the axes that sum to 1."""
    return _over_axes(activations.softmax, _float(x), axis)


@_op
def log_softmax(x, axis=-1):
    """log(softmax(x))."""
    return _over_axes(activations.log_softmax, _float(x), axis)


def _over_axes(function, x, axis):
    """A function along one axis, of several that are joined; None: of all."""
    if isinstance(axis, int):
        return function(x, axis)
    axes = [a % x.ndim for a in axis] if axis is not None else list(_range(x.ndim))
    kept = [a for a in _range(x.ndim) if a not in axes]
    order = kept + axes
    moved = _tf.transpose(x, order)
    flat = function(_tf.reshape(moved, list(moved.shape[:len(kept)]) + [-1]), -1)
    return _tf.transpose(_tf.reshape(flat, moved.shape), [order.index(i) for i in _range(x.ndim)])


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
    reduce = 1 if len(_tensor(inputs).shape) > 1 else 0
    return _tf.reduce_max(one_hot(inputs, num_classes, axis, dtype), reduce)


@_op
def moments(x, axes, keepdims=False, synchronized=False):
    """Mean and variance."""
    return nn.moments(_float(x), axes if not isinstance(axes, int) else [axes], keepdims=keepdims)


@_op
def layer_normalization(x, gamma=None, beta=None, axis=-1, epsilon=None, **kwargs):
    """Zero mean and unit variance along the axes, scaled and moved."""
    x = _float(x)
    average, variance = nn.moments(x, [axis] if isinstance(axis, int) else list(axis), keepdims=True)
    made = (x - average) * _tf.rsqrt(variance + (_epsilon() if epsilon is None else epsilon))
    made = made if gamma is None else made * gamma
    return made if beta is None else made + beta


@_op
def rms_normalization(x, scale=None, axis=-1, epsilon=None):
    """Divided by the root of the mean square along the axes."""
    x = _float(x)
    made = x * _tf.rsqrt(_tf.reduce_mean(_tf.square(x), axis, True) + (_epsilon() if epsilon is None else epsilon))
    return made if scale is None else made * scale


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


@_op
def conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    """A convolution of one, two or three dimensions."""
    x, kernel = _joined_float(inputs, kernel)
    rank = x.ndim - 2
    steps, dilations = ([given] * rank if isinstance(given, int) else list(given) for given in (strides, dilation_rate))
    return getattr(_ops, f"conv{rank}d")(x, kernel, steps, padding.upper(), dilations, standardize_data_format(data_format))


@_op
def dot_product_attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None, attn_logits_soft_cap=None):
    """Attention of queries (batch, time, heads, size) to keys and values."""
    if bias is not None or attn_logits_soft_cap is not None:
        raise NotImplementedError("dot_product_attention: takes no bias and no soft cap")
    q, k, v = (_tf.transpose(part, [0, 2, 1, 3]) for part in _joined_float(query, key, value))
    made = _ops.scaled_dot_product_attention(q, k, v, None if mask is None else _tensor(mask, dtypes.bool), scale, bool(is_causal))
    return _tf.transpose(made, [0, 2, 1, 3])


@_op
def categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """One loss an example."""
    return losses.categorical_crossentropy(target, _float(output), from_logits=from_logits, axis=axis)


@_op
def sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """The same, of class numbers."""
    target, output = _tensor(target), _float(output)
    if axis not in (-1, output.ndim - 1):
        raise NotImplementedError("sparse_categorical_crossentropy: classes are the last axis")
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
    return 20.0 * _tf.log10(_float(max_val)) - 10.0 * _tf.log10(_tf.reduce_mean(_tf.square(x1 - x2)))


depth_to_space = _op(lambda x, block_size, data_format=None: _ops.depth_to_space(_tensor(x), block_size))
space_to_depth = _op(lambda x, block_size, data_format=None: _ops.space_to_depth(_tensor(x), block_size))


def normalize(x, axis=-1, order=2, epsilon=None):
    """Divided by the norm along an axis."""
    def made(x):
        given = _float(x)
        return given / _tf.maximum(norm(given, order, axis, True), _epsilon() if epsilon is None else epsilon)
    return symbolic(made, x)


__all__ = _public(globals())
