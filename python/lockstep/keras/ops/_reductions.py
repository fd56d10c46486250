"""keras.ops: sums, means, extremes and running ones, with and without NaN."""

import builtins
import math as _math

from ... import dtypes
from ._defining import _countable, _float, _joined_float, _named, _narrowed, _number, _op, _public, _tensor, _tf, _wide
from ._elementwise import nan_to_num

_range = builtins.range


def _reduction(name, inner, prepare):
    function = getattr(_tf, inner)

    def reduce(x, axis=None, keepdims=False):
        return function(prepare(x), axis, keepdims)
    return _named(name, reduce, function.__doc__)


def _bools(x):
    return _tensor(x, dtypes.bool)


sum, prod = _reduction("sum", "reduce_sum", _countable), _reduction("prod", "reduce_prod", _countable)  # noqa: A001


def _statistic(name, inner):
    """Of small floats it is computed in float32."""
    function = getattr(_tf, inner)

    def reduce(x, axis=None, keepdims=False):
        x = _float(x)
        return _narrowed(function(_wide(x), axis, keepdims), x.dtype)
    return _named(name, reduce, function.__doc__)


mean, var, std = _statistic("mean", "reduce_mean"), _statistic("var", "reduce_variance"), _statistic("std", "reduce_std")
any, all = _reduction("any", "reduce_any", _bools), _reduction("all", "reduce_all", _bools)  # noqa: A001


def _extreme(name, inner):
    function, of_bools = getattr(_tf, inner), _tf.reduce_any if name == "max" else _tf.reduce_all

    def reduce(x, axis=None, keepdims=False, initial=None):
        x = _tensor(x)
        if x.dtype is dtypes.bool:
            made = of_bools(x, axis, keepdims)
            return made if initial is None else (_tf.logical_or if name == "max" else _tf.logical_and)(made, _tensor(initial, dtypes.bool))
        if initial is not None and 0 in x.shape:  # the extreme of nothing is where it begins
            return _tf.reduce_sum(_tf.zeros_like(x), axis, keepdims) + _tensor(initial, x.dtype)
        made = function(x, axis, keepdims)
        if initial is not None:
            made = (_tf.maximum if name == "max" else _tf.minimum)(made, _tensor(initial, made.dtype))
        return made
    return _named(name, reduce, function.__doc__)


max, min = _extreme("max", "reduce_max"), _extreme("min", "reduce_min")  # noqa: A001
amax, amin = max, min
ptp = _op(lambda x, axis=None, keepdims=False: max(x, axis, keepdims) - min(x, axis, keepdims))


@_op
def average(x, axis=None, weights=None):
    """The mean, weighed."""
    if weights is None:
        return _tf.reduce_mean(_float(x), axis)
    x, weights = _joined_float(x, weights)
    if weights.ndim == 1 and x.ndim > 1:
        weights = _tf.reshape(weights, [-1 if i == axis % x.ndim else 1 for i in _range(x.ndim)])
    weights = _tf.broadcast_to(weights, x.shape)
    return _tf.reduce_sum(x * weights, axis) / _tf.reduce_sum(weights, axis)


@_op
def count_nonzero(x, axis=None):
    """How many elements are not 0."""
    return _tf.count_nonzero(_tensor(x), axis, dtype=dtypes.int32)


def _place(name, function):
    def op(x, axis=None, keepdims=False):
        x = _number(x)
        flat = axis is None
        made = function(_tf.reshape(x, [-1]) if flat else x, 0 if flat else axis, dtypes.int32)
        if keepdims:
            made = _tf.reshape(made, [1] * x.ndim) if flat else _tf.expand_dims(made, axis)
        return made
    return _named(name, op, function.__doc__)


argmax, argmin = _place("argmax", _tf.argmax), _place("argmin", _tf.argmin)


def _running(name, function):
    def op(x, axis=None, dtype=None):
        x = _number(x)
        if axis is None:
            x, axis = _tf.reshape(x, [-1]), 0
        if isinstance(axis, (list, tuple)):
            if not axis:
                return _tensor(x, dtype)
            (axis,) = axis
        return function(_tensor(x, dtype), int(axis))
    return _named(name, op, function.__doc__)


cumsum, cumprod = _running("cumsum", _tf.cumsum), _running("cumprod", _tf.cumprod)


def _without_nan(name, function, instead):
    def op(x, axis=None, keepdims=False):
        x = _tensor(x)
        if x.dtype.is_floating:
            x = _tf.where(_tf.is_nan(x), _tensor(instead, x.dtype), x)
        return function(x, axis, keepdims)
    return _named(name, op, function.__doc__)


nansum, nanprod = _without_nan("nansum", sum, 0.0), _without_nan("nanprod", prod, 1.0)
nancumsum = _op(lambda x, axis=None, dtype=None: cumsum(nan_to_num(x, 0.0, _math.inf, -_math.inf), axis, dtype))
nancumprod = _op(lambda x, axis=None, dtype=None: cumprod(nan_to_num(x, 1.0, _math.inf, -_math.inf), axis, dtype))


def _extreme_without_nan(name, function, instead):
    def op(x, axis=None, keepdims=False):
        x = _tensor(x)
        if not x.dtype.is_floating:
            return function(x, axis, keepdims)
        none = _tf.reduce_all(_tf.is_nan(x), axis, keepdims)
        made = function(_tf.where(_tf.is_nan(x), _tensor(instead, x.dtype), x), axis, keepdims)
        return _tf.where(none, _tensor(_math.nan, x.dtype), made)
    return _named(name, op, function.__doc__)


nanmax, nanmin = _extreme_without_nan("nanmax", max, -_math.inf), _extreme_without_nan("nanmin", min, _math.inf)


def _place_without_nan(name, function, instead):
    def op(x, axis=None, keepdims=False):
        x = _tensor(x)
        if not x.dtype.is_floating:
            return function(x, axis, keepdims)
        nothing = _tf.is_nan(x)
        made = function(_tf.where(nothing, _tensor(instead, x.dtype), x), axis, keepdims)
        return _tf.where(_tf.reduce_all(nothing, axis, keepdims), _tensor(-1), made)
    return _named(name, op, function.__doc__)


nanargmax, nanargmin = _place_without_nan("nanargmax", argmax, -_math.inf), _place_without_nan("nanargmin", argmin, _math.inf)


@_op
def nanmean(x, axis=None, keepdims=False):
    """The mean of those that are numbers."""
    x = _float(x)
    return nansum(x, axis, keepdims) / _tf.reduce_sum(_tf.cast(_tf.logical_not(_tf.is_nan(x)), x.dtype), axis, keepdims)


@_op
def nanvar(x, axis=None, keepdims=False):
    """The variance of those that are numbers."""
    x = _float(x)
    return nanmean(_tf.square(x - nanmean(x, axis, True)), axis, keepdims)


nanstd = _op(lambda x, axis=None, keepdims=False: _tf.sqrt(nanvar(x, axis, keepdims)))


__all__ = _public(globals())
