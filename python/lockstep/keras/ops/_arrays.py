"""keras.ops: arrays that are made of sizes and numbers."""

import numpy as np

from ... import dtypes
from ...tensor import is_tensor
from ..backend import floatx, result_type
from ._defining import _named, _number_type, _op, _ops, _public, _tensor, _tf
from .core import convert_to_tensor, shape


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


def _of_numpy(name):
    function = getattr(np, name)

    def made(*args, dtype=None, **kwargs):
        return _tensor(np.asarray(function(*(np.asarray(a) if is_tensor(a) else a for a in args), **kwargs), np.float32),
                       dtype or floatx())
    made.__name__, made.__doc__ = name, f"NumPy's {name}()."
    return made


for _name in "linspace logspace geomspace".split():
    globals()[_name] = _of_numpy(_name)
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
    """The number of its elements."""
    sizes = shape(x)
    return None if None in sizes else int(np.prod(sizes, dtype=np.int64))


copy = _op(lambda x: _tf.identity(_tensor(x)))


__all__ = _public(globals())
