"""tf.nn: what neural networks are made of."""

import collections

from . import _lockstep
from .ops import _axes, _sizes, divide_no_nan  # noqa: F401
from .ops import (log_sigmoid, relu, relu6, selu, sigmoid, silu, softplus, softsign, swish, tanh)  # noqa: F401

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


def elu(features, name=None):
    """exp(x) - 1 below 0, x above."""
    return _ops.elu(features, 1.0)


def dropout(x, rate, noise_shape=None, seed=None, name=None):
    """Each element is 0 with this probability, the others grow by 1 / (1 - rate)."""
    return _ops.dropout(x, float(rate))


def sparse_softmax_cross_entropy_with_logits(labels, logits, name=None):
    """One loss an example, of class numbers."""
    return _ops.sparse_softmax_cross_entropy_with_logits(labels, logits)


def softmax_cross_entropy_with_logits(labels, logits, axis=-1, name=None):
    """One loss an example, of probabilities."""
    return _ops.softmax_cross_entropy_with_logits(labels, logits)


def sigmoid_cross_entropy_with_logits(labels=None, logits=None, name=None):
    """One loss an element."""
    return _ops.sigmoid_cross_entropy_with_logits(labels, logits)


def weighted_cross_entropy_with_logits(labels, logits, pos_weight, name=None):
    """The same, with what is positive weighed."""
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
    """Rows by their numbers."""
    return _ops.gather(params, ids, 0, 0)


def bias_add(value, bias, data_format=None, name=None):
    """value + bias."""
    return value + bias


def top_k(input, k=1, sorted=True, index_type=None, name=None):
    """The k largest elements of the last dimension, and their places."""
    values, indices = _ops.top_k(input, int(k))
    return TopKV2(values, indices if index_type is None else _ops.cast(indices, index_type))


TopKV2 = collections.namedtuple("TopKV2", "values indices")


def in_top_k(targets, predictions, k, name=None):
    """Whether the target is among the k largest."""
    return _ops.in_top_k(targets, predictions, int(k))


def _spatial(value, dims, what, data_format):
    sizes = _sizes(value)
    if len(sizes) == dims + 2:
        sizes = sizes[2:] if data_format.startswith("NC") else sizes[1:-1]
    if len(sizes) not in (1, dims):
        raise ValueError(f"{what}: expected 1, {dims} or {dims + 2} numbers, received {value!r}")
    return sizes


def _channels(data_format):
    return "channels_first" if data_format.startswith("NC") else "channels_last"


def _conv(name, dims, default):
    op = getattr(_ops, name)

    def conv(input, filters, strides, padding, data_format=default, dilations=None, name=None):
        return op(input, filters, _spatial(strides, dims, "strides", data_format), padding.lower(),
                  _spatial(dilations or 1, dims, "dilations", data_format), _channels(data_format))
    conv.__name__, conv.__doc__ = name, "A convolution."
    return conv


conv1d, conv2d, conv3d = _conv("conv1d", 1, "NWC"), _conv("conv2d", 2, "NHWC"), _conv("conv3d", 3, "NDHWC")


def depthwise_conv2d(input, filter, strides, padding, data_format="NHWC", dilations=None, name=None):
    """A convolution in which every channel has filters of its own."""
    return _ops.depthwise_conv2d(input, filter, _spatial(strides, 2, "strides", data_format), padding.lower(),
                                 _spatial(dilations or 1, 2, "dilations", data_format), _channels(data_format))


def _pool(name, dims, default):
    op = getattr(_ops, name)

    def pool(input, ksize, strides, padding, data_format=default, name=None):
        return op(input, _spatial(ksize, dims, "ksize", data_format), _spatial(strides, dims, "strides", data_format),
                  padding.lower(), _channels(data_format))
    pool.__name__, pool.__doc__ = name, "Pooling over windows."
    return pool


max_pool1d, max_pool2d, max_pool3d = _pool("max_pool1d", 1, "NWC"), _pool("max_pool2d", 2, "NHWC"), _pool("max_pool3d", 3, "NDHWC")
avg_pool1d, avg_pool2d, avg_pool3d = _pool("avg_pool1d", 1, "NWC"), _pool("avg_pool2d", 2, "NHWC"), _pool("avg_pool3d", 3, "NDHWC")
max_pool, avg_pool = max_pool2d, avg_pool2d
