"""keras.ops: sorting, counting, searching."""

import builtins
import math as _math

import numpy as np

from ... import dtypes
from ..._lockstep import KerasTensor
from ..backend import standardize_dtype
from ._arrays import linspace
from ._defining import _by_values, _float, _joined, _joined_float, _number, _op, _ops, _public, _tensor, _tf, _to_tensor

_max, _min, _range = builtins.max, builtins.min, builtins.range


def _line(x, axis):
    """What is sorted, and along which axis: all elements as one list where there is none."""
    x = _number(x)
    return (_tf.reshape(x, [-1]), -1) if axis is None or x.ndim == 0 else (x, axis)


@_op
def sort(x, axis=-1):
    """In order."""
    x = _tensor(x)
    return _ops.cast(_tf.sort(*_line(x, axis)), x.dtype)


argsort = _op(lambda x, axis=-1: _tf.cast(_tf.argsort(*_line(x, axis)), dtypes.int32))


def _searched(ordered, values, side):
    if side not in ("left", "right"):
        raise ValueError(f"side is left or right, received {side!r}")
    if ordered.ndim != 1:
        raise ValueError(f"takes one sorted list, received shape {ordered.shape}")
    return _tf.reshape(_tf.searchsorted(ordered, _tf.reshape(values, [-1]), side=side), values.shape)


@_op
def searchsorted(sorted_sequence, values, side="left"):
    """Where values would stand in what is sorted."""
    return _searched(*_joined(sorted_sequence, values), side)


@_op
def digitize(x, bins):
    """The number of the bin, between these edges, in which each element is."""
    return _searched(*reversed(_joined_float(_tensor(x), _tensor(bins))), "right")


def _lines(x, axis):
    """The elements along these axes as one last dimension; which axes these are, and which are left."""
    axes = list(_range(x.ndim)) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    kept = [a for a in _range(x.ndim) if a not in axes]
    return _tf.reshape(_tf.transpose(x, kept + axes), [x.shape[a] for a in kept] + [-1]), axes


def _quantiles(x, q, axis, method, keepdims, counted):
    """counted(lines) -> the sorted lines, and how many elements of each are numbers, in a last dimension of 1."""
    x = _float(x)
    shares = _tensor(q, x.dtype if x.dtype is dtypes.float64 else dtypes.float32)
    lines, axes = _lines(x, axis)
    ordered, count = counted(lines)
    place = _tf.reshape(shares, [-1]) * (count - 1.0)
    low, high = _tf.floor(place), _tf.ceil(place)
    at = {"linear": (low, high), "lower": (low, low), "higher": (high, high), "midpoint": (low, high),
          "nearest": (_tf.round(place),) * 2}
    if method not in at:
        raise ValueError(f"quantile: method is one of {', '.join(at)}, received {method!r}")
    below, above = (_picked(ordered, part) for part in at[method])
    part = 0.5 if method == "midpoint" else _ops.cast(place - low, x.dtype)
    made = below
    if method in ("linear", "midpoint"):  # where both are infinite, there is nothing between them
        made = _tf.where(_tf.equal(below, above), below, below + (above - below) * part)
    if keepdims:
        made = _tf.reshape(made, [1 if a in axes else x.shape[a] for a in _range(x.ndim)] + [-1])
    made = _ops.moveaxis(made, [-1], [0])
    return made if shares.ndim == 1 else made[0] if shares.ndim == 0 else _tf.reshape(made, list(shares.shape) + list(made.shape[1:]))


def _picked(ordered, places):
    places = _tf.maximum(_ops.cast(places, dtypes.int32), 0)
    if places.ndim == 1:
        return _tf.gather(ordered, places, axis=-1)
    return _ops.take_along_axis(ordered, places, -1)


def _all_counted(lines):
    ordered = _tf.sort(lines, -1)
    return ordered, float(lines.shape[-1])


def _numbers_counted(lines):
    nothing = _tf.is_nan(lines)
    count = _tf.reduce_sum(_ops.cast(_tf.logical_not(nothing), dtypes.float64 if lines.dtype is dtypes.float64 else dtypes.float32), -1, True)
    return _tf.sort(lines, -1), count  # NaN comes behind all numbers


@_op
def quantile(x, q, axis=None, method="linear", keepdims=False):
    """Values that a share of the elements is below."""
    made = _quantiles(x, q, axis, method, keepdims, _all_counted)
    x = _float(x)
    spoilt = _tf.reduce_any(_tf.is_nan(x), axis, keepdims)  # NaN is part of what is sorted, and of the result
    return _tf.where(spoilt, _tensor(_math.nan, made.dtype), made)


@_op
def nanquantile(x, q, axis=None, method="linear", keepdims=False):
    """The same of those that are numbers."""
    return _quantiles(x, q, axis, method, keepdims, _numbers_counted)


nanmedian = _op(lambda x, axis=None, keepdims=False: nanquantile(x, 0.5, axis, keepdims=keepdims))
nanpercentile = _op(lambda x, q, axis=None, method="linear", keepdims=False: nanquantile(x, _float(q) / 100.0, axis, method, keepdims))
median = _op(lambda x, axis=None, keepdims=False: quantile(x, 0.5, axis, keepdims=keepdims))
percentile = _op(lambda x, q, axis=None, method="linear", keepdims=False: quantile(x, _float(q) / 100.0, axis, method, keepdims))


def _counted(x, weights=None, minlength=0, sparse=False):
    return KerasTensor((*x.shape[:-1], None), "int32" if weights is None else standardize_dtype(weights.dtype))


@_by_values(_counted)
def bincount(x, weights=None, minlength=0, sparse=False):
    """How often each number is there; of rows, in each row."""
    x = _tensor(x)
    if sparse:
        raise ValueError("bincount: there are no sparse tensors")
    x = x if x.dtype in (dtypes.int32, dtypes.int64) else _ops.cast(x, dtypes.int32)
    dtype = dtypes.int32 if weights is None else _tensor(weights).dtype
    return _tf.bincount(x, weights, minlength=minlength, dtype=dtype, axis=-1)


def _of_each_once(x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=None, size=None, fill_value=None):
    shape = (size,) if axis is None else tuple(size if i == axis % x.ndim else length for i, length in enumerate(x.shape))
    inverse = tuple(x.shape) if axis is None else (x.shape[axis],)
    parts = [KerasTensor(shape, x.dtype.name)] + [KerasTensor(sizes, "int32") for wanted, sizes in
                                                 ((return_index, (size,)), (return_inverse, inverse), (return_counts, (size,))) if wanted]
    return tuple(parts) if len(parts) > 1 else parts[0]


@_by_values(_of_each_once)
def unique(x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=None, size=None, fill_value=None):
    """Every value once, in order; with a size, so many of them, with fill_value where there are fewer. No NaN is like another."""
    made = np.unique(_tf._known(x, "unique"), return_index, return_inverse, return_counts, axis, equal_nan=False)
    parts = list(made) if isinstance(made, tuple) else [made]
    if return_inverse and axis is not None:
        parts[1 + bool(return_index)] = parts[1 + bool(return_index)].reshape(-1)
    if size is not None:
        along = 0 if axis is None else axis

        def fitted(part, along, fill):
            part = np.take(part, np.arange(_min(size, part.shape[along])), along)
            missing = [(0, size - part.shape[along] if i == along % part.ndim else 0) for i in _range(part.ndim)]
            return np.pad(part, missing, constant_values=fill)
        parts[0] = fitted(parts[0], along, 0 if fill_value is None else fill_value)
        if return_index:
            parts[1] = fitted(parts[1], 0, parts[1][0] if len(parts[1]) else 0)
        if return_counts:
            parts[-1] = fitted(parts[-1], 0, 0)
    parts = [_to_tensor(part if i == 0 else part.astype(np.int32)) for i, part in enumerate(parts)]
    return tuple(parts) if len(parts) > 1 else parts[0]


@_op
def isin(x1, x2, assume_unique=False, invert=False):
    """Which elements of x1 are among those of x2."""
    x1, x2 = _joined(x1, x2)
    made = _tf.reduce_any(_tf.equal(_tf.expand_dims(x1, -1), _tf.reshape(x2, [-1])), -1)
    return _tf.logical_not(made) if invert else made


@_op
def unravel_index(indices, shape):
    """The places in an array of this shape that numbers of its elements mean, an array for every dimension."""
    rest = _tensor(indices)
    dtype = rest.dtype
    rest = rest if rest.dtype.is_integer and rest.dtype is not dtypes.uint8 else _ops.cast(rest, dtypes.int32)
    count = int(np.prod(shape))
    rest = _tf.where(_tf.less(rest, 0), rest + _tensor(count, rest.dtype), rest)
    parts = []
    for length in reversed(shape):
        parts.append(_tf.floormod(rest, _tensor(int(length), rest.dtype)))
        rest = _tf.floordiv(rest, _tensor(int(length), rest.dtype))
    return tuple(_ops.cast(part, dtype) for part in reversed(parts))


@_op
def histogram(x, bins=10, range=None):
    """How many elements are in each of equal bins, and the bins' edges."""
    if not isinstance(bins, int) or bins <= 0:
        raise ValueError(f"histogram: bins is a positive integer, received {bins!r}")
    x = _float(x)
    if x.ndim != 1:
        raise ValueError(f"histogram: takes a list of numbers, received shape {x.shape}")
    if range is not None and len(range) and (len(range) != 2 or range[0] > range[1]):
        raise ValueError(f"histogram: range is the lower and the upper end, received {range!r}")
    low, high = (_tensor(float(part), x.dtype) for part in range) if range is not None and len(range) else \
        (_tf.reduce_min(x), _tf.reduce_max(x)) if x.shape[0] else (_tensor(0.0, x.dtype), _tensor(1.0, x.dtype))
    same = _ops.cast(_tf.equal(low, high), x.dtype) * 0.5  # of one value: a bin around it
    edges = linspace(low - same, high + same, bins + 1)
    low, high = edges[0], edges[bins]
    number = _tf.searchsorted(edges, x, side="right") - 1
    number = _tf.where(_tf.equal(x, high), _tensor(bins - 1), number)
    inside = _tf.logical_and(_tf.greater_equal(x, low), _tf.less_equal(x, high))
    counts = _ops.one_hot(_tf.clip_by_value(number, 0, bins - 1), bins, dtypes.int32) * _tf.expand_dims(_ops.cast(inside, dtypes.int32), -1)
    return _tf.reduce_sum(counts, 0), edges


@_op
def argpartition(x, kth, axis=-1):
    """Places in an order in which the element of number kth is where sorting would put it."""
    if not isinstance(kth, int):
        raise ValueError(f"argpartition: kth is one integer, received {kth!r}")
    return argsort(x, axis)


__all__ = _public(globals())
