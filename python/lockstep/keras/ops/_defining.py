"""How ops of keras.ops are made: what arguments may be, and where an op is a layer of a model."""

import builtins
import functools

import numpy as np

from ... import _lockstep, dtypes, nest, ops as _tf
from ..._lockstep import KerasTensor
from ...tensor import convert_to_tensor as _to_tensor
from ..backend import floatx, result_type
from .._operations import op as _op

_ops = _lockstep.ops


def _by_values(spec):
    """An op for whose result values must be known. spec() says, of values of a model, which shapes and dtypes the result would have; no
    model computes it."""
    def wrap(function):
        @functools.wraps(function)
        def op(*args, **kwargs):
            of_model = builtins.any(isinstance(leaf, KerasTensor) for leaf in nest.flatten((args, kwargs)))
            return (spec if of_model else function)(*args, **kwargs)
        return op
    return wrap


def _tensor(x, dtype=None):
    if isinstance(x, (int, float)) and dtype is None and not isinstance(x, (bool, np.generic)):
        return _to_tensor(x, floatx() if isinstance(x, float) else "int32")
    x = _to_tensor(x)
    return x if dtype is None or x.dtype is dtypes.as_dtype(dtype) else _ops.cast(x, dtypes.as_dtype(dtype))


def _float(x):
    """A tensor of floating point numbers."""
    x = _tensor(x)
    return x if x.dtype.is_floating else _ops.cast(x, dtypes.as_dtype("float64" if x.dtype is dtypes.int64 and floatx() == "float64"
                                                                     else floatx()))


def _wide(x):
    """Small floats as float32."""
    return _ops.cast(x, dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x


def _narrowed(x, dtype):
    """In this dtype, no further out than its ends."""
    return x if x.dtype is dtype else _tf.saturate_cast(x, dtype)


def _countable(x):
    """A tensor whose sums fit: small integers and booleans are counted in int32."""
    x = _tensor(x)
    return _ops.cast(x, dtypes.int32) if x.dtype in (dtypes.bool, dtypes.uint8) else x


def _number(x):
    """A tensor of numbers: true is 1."""
    x = _tensor(x)
    return _ops.cast(x, dtypes.int32) if x.dtype is dtypes.bool else x


def _factors(*values):
    """The values as tensors whose products the engine computes, and the dtype of the result: small integers are multiplied in int32."""
    joined = _joined(*values)
    dtype = joined[0].dtype
    return [_countable(x) for x in joined] if dtype in (dtypes.bool, dtypes.uint8) else joined, dtype


def _of_number(name, function):
    return _named(name, lambda x: function(_number(x)), function.__doc__)


def _number_type(x):
    return type(x) if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic) else None


def _joined(*values):
    """The values as tensors of one dtype."""
    known = [_number_type(value) or _tensor(value).dtype for value in values]
    dtype = dtypes.as_dtype(result_type(*(kind if isinstance(kind, type) else kind.name for kind in known)))
    return [_tensor(value, dtype) for value in values]


def _joined_float(*values):
    joined = _joined(*values)
    return joined if joined[0].dtype.is_floating else [_float(value) for value in joined]


def _define(module, names, wrap, of=_tf):
    """Functions of a module by the names of TensorFlow's: "log" or "arcsin=asin"."""
    for name in names.split():
        name, _, inner = name.partition("=")
        module[name] = wrap(name, getattr(of, inner or name))


def _from_outside(value):
    home = getattr(value, "__module__", None) or ""
    return home.startswith("lockstep") and not home.startswith("lockstep.keras.ops")


def _public(module):
    """The names that a module offers: what it defines, not what it stands on."""
    return [name for name, value in module.items() if not name.startswith("_") and callable(value) and not _from_outside(value)]


def _named(name, function, doc):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _op(function)


def _of_any(name, function):
    return _named(name, lambda x: function(_tensor(x)), function.__doc__)


def _of_floats(name, function):
    return _named(name, lambda x: function(_float(x)), function.__doc__)


def _of_two(name, function):
    return _named(name, lambda x1, x2: function(*_joined(x1, x2)), function.__doc__)


def _of_two_floats(name, function):
    return _named(name, lambda x1, x2: function(*_joined_float(x1, x2)), function.__doc__)


def _of_two_bools(name, function):
    return _named(name, lambda x1, x2: function(_tensor(x1, dtypes.bool), _tensor(x2, dtypes.bool)), function.__doc__)
