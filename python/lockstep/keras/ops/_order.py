"""keras.ops: sorting, counting, searching."""

import builtins

import numpy as np

from ... import dtypes
from ._defining import _float, _joined, _joined_float, _op, _ops, _public, _tensor, _tf, _to_tensor

_range = builtins.range


sort = _op(lambda x, axis=-1: _tf.sort(_tf.reshape(x, [-1]) if axis is None else _tensor(x), -1 if axis is None else axis))
argsort = _op(lambda x, axis=-1: _tf.cast(_tf.argsort(_tf.reshape(x, [-1]) if axis is None else _tensor(x),
                                                      -1 if axis is None else axis), dtypes.int32))
searchsorted = _op(lambda sorted_sequence, values, side="left": _tf.searchsorted(*_joined(sorted_sequence, values), side=side))
digitize = _op(lambda x, bins: _tf.searchsorted(*reversed(_joined_float(_tensor(x), _tensor(bins))), side="right"))


@_op
def quantile(x, q, axis=None, method="linear", keepdims=False):
    """Values that a share of the elements is below."""
    x, shares = _float(x), _tensor(q, _float(x).dtype)
    axes = list(_range(x.ndim)) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    kept = [a for a in _range(x.ndim) if a not in axes]
    rest = [x.shape[a] for a in kept]
    ordered = _tf.sort(_tf.reshape(_tf.transpose(x, kept + axes), rest + [-1]), -1)
    place = np.asarray(shares).reshape(-1).astype(np.float64) * (ordered.shape[-1] - 1)
    low, high = np.floor(place).astype(np.int32), np.ceil(place).astype(np.int32)
    below, above = (_tf.gather(ordered, _to_tensor(part), axis=-1) for part in (low, high))
    part = _tensor((place - low).astype(np.float32), x.dtype)
    made = {"linear": lambda: below + (above - below) * part, "lower": lambda: below, "higher": lambda: above,
            "midpoint": lambda: (below + above) / 2.0,
            "nearest": lambda: _tf.gather(ordered, _to_tensor(np.round(place).astype(np.int32)), axis=-1)}[method]()
    if keepdims:
        made = _tf.reshape(made, [1 if a in axes else x.shape[a] for a in _range(x.ndim)] + [len(place)])
    made = _ops.moveaxis(made, [-1], [0])
    return made if shares.ndim else made[0]


median = _op(lambda x, axis=None, keepdims=False: quantile(x, 0.5, axis, keepdims=keepdims))
percentile = _op(lambda x, q, axis=None, method="linear", keepdims=False: quantile(x, _float(q) / 100.0, axis, method, keepdims))


@_op
def bincount(x, weights=None, minlength=0, sparse=False):
    """How often each number is there."""
    x = _tensor(x)
    return _tf.bincount(x, weights, minlength=minlength, dtype=dtypes.int32 if weights is None else _tensor(weights).dtype)


def unique(x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=None, size=None, fill_value=None):
    """Every value once."""
    made = np.unique(_tf._known(x, "unique"), return_index, return_inverse, return_counts, axis)
    return tuple(_to_tensor(part) for part in made) if isinstance(made, tuple) else _to_tensor(made)


isin = _op(lambda x1, x2, assume_unique=False, invert=False: _to_tensor(
    np.isin(_tf._known(x1, "isin"), _tf._known(x2, "isin"), assume_unique, invert=invert)))
unravel_index = _op(lambda indices, shape: tuple(_to_tensor(part.astype(np.int32)) for part in
                                                 np.unravel_index(_tf._known(indices, "unravel_index"), shape)))
histogram = _op(lambda x, bins=10, range=None: tuple(_to_tensor(part) for part in np.histogram(
    _tf._known(x, "histogram"), bins, range if range is not None and len(range) else None)))
argpartition = _op(lambda x, kth, axis=-1: _tf.cast(_tf.argsort(_tensor(x), axis), dtypes.int32))


__all__ = _public(globals())
