"""keras.ops: arrays that are made of sizes and numbers."""

import builtins
import math as _math

import numpy as np

from ... import dtypes
from ..backend import floatx, is_keras_tensor, result_type
from ._defining import _named, _number_type, _op, _ops, _public, _tensor, _tf
from .core import convert_to_tensor, shape

_max = builtins.max


array = convert_to_tensor


def zeros(shape, dtype=None):
    """Zeros of this shape."""
    return _tf.zeros(shape, dtype or floatx())


def ones(shape, dtype=None):
    """Ones of this shape."""
    return _tf.ones(shape, dtype or floatx())


empty = zeros


def full(shape, fill_value, dtype=None):
    """This value in every place."""
    return _tf.broadcast_to(_tensor(fill_value, dtype or (floatx() if isinstance(fill_value, (int, float)) else None)), shape)


def eye(N, M=None, k=0, dtype=None):
    """Ones on a diagonal."""
    M = N if M is None else M
    return _tensor(np.eye(N, M, k, dtype=np.float32), dtype or floatx())


def identity(n, dtype=None):
    """Ones on the diagonal."""
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    """Ones on and below a diagonal."""
    return _tensor(np.tri(N, M, k, dtype=np.float32), dtype or floatx())


def arange(start, stop=None, step=None, dtype=None):
    """start, start + step, ... below stop."""
    step = 1 if step is None else step
    if dtype is None:
        dtype = result_type(*(_number_type(part) or _tensor(part).dtype.name for part in (start, step) + (() if stop is None else (stop,))))
    first, last = (0, start) if stop is None else (start, stop)
    return _tf.range(*(float(part) for part in (first, last, step)), dtypes.as_dtype(dtype))


@_op
def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    """num numbers from start to stop, in a new dimension; stop itself is the last one, or would be the next."""
    if dtype is None:
        dtype = result_type(*(_number_type(part) or _tensor(part).dtype.name for part in (start, stop)), float)
    wide = dtypes.float64 if dtypes.as_dtype(dtype) is dtypes.float64 else dtypes.float32
    start, stop = (_tensor(part, wide) for part in (start, stop))
    if num < 0:
        raise ValueError(f"linspace: num is 0 or more, received {num}")
    gaps = num - 1 if endpoint else num
    step = (stop - start) / float(_max(gaps, 1))
    places = _tf.reshape(_tensor(np.arange(num, dtype=np.float32), wide), [num] + [1] * step.ndim)
    made = _tf.expand_dims(start + _tf.zeros_like(step), 0) + places * _tf.expand_dims(step, 0)
    if endpoint and num > 1:  # to the bit
        last = _tf.reshape(_tensor(np.arange(num) == num - 1), [num] + [1] * step.ndim)
        made = _tf.where(last, _tf.expand_dims(stop + _tf.zeros_like(step), 0) + _tf.zeros_like(made), made)
    made = _ops.cast(_ops.moveaxis(made, [0], [axis]) if axis else made, dtypes.as_dtype(dtype))
    return (made, step if gaps > 0 else step * _math.nan) if retstep else made


@_op
def logspace(start, stop, num=50, endpoint=True, base=10, dtype=None, axis=0):
    """base to the power of numbers that are evenly spaced."""
    made = linspace(start, stop, num, endpoint, axis=axis)
    return _tensor(_tf.pow(_tensor(float(base), made.dtype) + _tf.zeros_like(made), made), dtype)


@_op
def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """num numbers from start to stop, each one the same multiple of the one before."""
    if dtype is None:
        dtype = result_type(*(_number_type(part) or _tensor(part).dtype.name for part in (start, stop)), float)
    start, stop = (_tensor(part, dtypes.as_dtype("float64" if dtype == "float64" else "float32")) for part in (start, stop))
    sign = _tf.where(_tf.less(start, 0.0), -_tf.ones_like(start), _tf.ones_like(start))
    made = _tf.exp(linspace(_tf.log(_tf.abs(start)), _tf.log(_tf.abs(stop)), num, endpoint, axis=axis))
    return _tensor(made * _tf.expand_dims(sign + _tf.zeros_like(stop), axis), dtype)


for _name in "bartlett blackman hamming hanning kaiser".split():
    globals()[_name] = (lambda name: lambda x, *args: _tensor(getattr(np, name)(int(x), *args).astype(np.float32)))(_name)


def _like(name, value):
    def op(x, dtype=None):
        x = _tensor(x)
        return _ops.full(list(x.shape), value, dtypes.as_dtype(dtype or x.dtype))
    return _named(name, op, f"{name}: of its shape.")


zeros_like, ones_like, empty_like = _like("zeros_like", 0.0), _like("ones_like", 1.0), _like("empty_like", 0.0)


@_op
def full_like(x, fill_value, dtype=None):
    """This value, of its shape."""
    x = _tensor(x)
    return _tf.broadcast_to(_tensor(fill_value, dtype or x.dtype), x.shape)


def ndim(x):
    """The number of its dimensions."""
    return len(shape(x))


def size(x):
    """The number of its elements: of a value of a model one that is known when the model runs."""
    return size_of_value(x) if is_keras_tensor(x) else int(np.prod(shape(x), dtype=np.int64))


size_of_value = _op(lambda x: _tensor(int(np.prod(x.shape, dtype=np.int64)), dtypes.int32))


copy = _op(lambda x: _tf.identity(_tensor(x)))


__all__ = [name for name in _public(globals()) if name != "size_of_value"]
