"""keras.ops: elementwise."""

import builtins
import math as _math

import numpy as np

from ... import dtypes
from ._defining import (_countable, _define, _float, _joined, _joined_float, _named, _of_any, _of_floats, _of_two, _of_two_bools,
                        _of_two_floats, _op, _ops, _public, _tensor, _tf, _to_tensor)

_range, _slice = builtins.range, builtins.slice


_define(globals(), "negative abs absolute=abs sign square", _of_any)
_define(globals(), "floor ceil sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin=asin arccos=acos arctan=atan "
                   "arcsinh=asinh arccosh=acosh arctanh=atanh asin acos atan asinh acosh atanh trunc reciprocal", _of_floats)
_define(globals(), "isnan=is_nan isinf=is_inf isfinite=is_finite", _of_floats)
_define(globals(), "add subtract multiply maximum minimum power=pow mod=floormod floor_divide=floordiv remainder=floormod", _of_two)
_define(globals(), "divide true_divide=divide divide_no_nan arctan2=atan2", _of_two_floats)
_define(globals(), "equal not_equal less less_equal greater greater_equal", _of_two)
_define(globals(), "logical_and logical_or logical_xor", _of_two_bools)
logical_not = _op(lambda x: _tf.logical_not(_tensor(x, dtypes.bool)))
fmax, fmin = globals()["maximum"], globals()["minimum"]


@_op
def clip(x, x_min, x_max):
    """x, with what is outside put on the nearer end."""
    x = _countable(x)
    return _tf.clip_by_value(x, x_min, x_max)


@_op
def where(condition, x1=None, x2=None):
    """x1 where the condition holds, else x2; of the condition alone, the places."""
    if (x1 is None) != (x2 is None):
        raise ValueError("where: takes both x1 and x2, or neither")
    condition = _tensor(condition, dtypes.bool)
    if x1 is None:
        return nonzero(condition)
    return _tf.where(condition, *_joined(x1, x2))


def nonzero(x):
    """The places of what is not 0, an array for every dimension."""
    return tuple(_to_tensor(part.astype(np.int32)) for part in np.nonzero(_tf._known(x, "nonzero")))


@_op
def round(x, decimals=0):  # noqa: A001
    """To the nearest, half to even."""
    x = _tensor(x)
    if not x.dtype.is_floating:
        return x
    return _tf.round(x) if decimals == 0 else _tf.round(x * 10.0 ** decimals) / 10.0 ** decimals


@_op
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    """Numbers in the place of what is none, and of infinities."""
    x = _tensor(x)
    if not x.dtype.is_floating:
        return x
    x = _tf.where(_tf.is_nan(x), _tensor(float(nan), x.dtype), x)
    top, bottom = (float(limit if given is None else given) for limit, given in ((x.dtype.max, posinf), (x.dtype.min, neginf)))
    x = _tf.where(_tf.equal(x, _math.inf), _tensor(top, x.dtype), x)
    return _tf.where(_tf.equal(x, -_math.inf), _tensor(bottom, x.dtype), x)


isposinf, isneginf = _op(lambda x: _tf.equal(_float(x), _math.inf)), _op(lambda x: _tf.equal(_float(x), -_math.inf))
isreal = _op(lambda x: _tf.ones_like(_tensor(x), dtypes.bool))
real = conj = conjugate = _op(lambda x: _tensor(x))
imag = _op(lambda x: _tf.zeros_like(_tensor(x)))
fabs = _op(lambda x: _tf.abs(_float(x)))
exp2 = _op(lambda x: _tf.pow(_tensor(2.0, _float(x).dtype), _float(x)))
cbrt = _op(lambda x: _tf.sign(_float(x)) * _tf.pow(_tf.abs(_float(x)), 1.0 / 3.0))
deg2rad, rad2deg = _op(lambda x: _float(x) * (_math.pi / 180.0)), _op(lambda x: _float(x) * (180.0 / _math.pi))
hypot = _op(lambda x1, x2: _tf.sqrt(_ops.add(*(_tf.square(x) for x in _joined_float(x1, x2)))))
signbit = _op(lambda x: _tf.less(_tensor(x), 0) if not _tensor(x).dtype.is_floating else
              _tf.logical_or(_tf.less(x, 0.0), _tf.less(_tf.reciprocal(_tf.where(_tf.equal(x, 0.0), x, _tf.ones_like(_tensor(x)))), 0.0)))
fmod = _op(lambda x1, x2: _truncated_rest(*_joined(x1, x2)))
ldexp = _op(lambda x1, x2: _float(x1) * exp2(_tensor(x2, _float(x1).dtype)))


def _truncated_rest(a, b):
    if a.dtype.is_floating:
        return a - b * _tf.trunc(a / b)
    rest = _tf.floormod(_tf.abs(a), _tf.abs(b))
    return _tf.where(_tf.less(a, 0), -rest, rest)


@_op
def sinc(x):
    """sin(pi x) / (pi x)."""
    x = _float(x) * _math.pi
    zero = _tf.equal(x, 0.0)
    safe = _tf.where(zero, _tf.ones_like(x), x)
    return _tf.where(zero, _tf.ones_like(x), _tf.sin(safe) / safe)


@_op
def heaviside(x1, x2):
    """0 below 0, x2 at it, 1 above."""
    x1, x2 = _joined_float(x1, x2)
    return _tf.where(_tf.equal(x1, 0.0), x2 + _tf.zeros_like(x1), _tf.cast(_tf.greater(x1, 0.0), x1.dtype) + _tf.zeros_like(x2))


@_op
def logaddexp(x1, x2):
    """log(exp(x1) + exp(x2)) without overflow."""
    x1, x2 = _joined_float(x1, x2)
    larger = _tf.maximum(x1, x2)
    return _tf.where(_tf.is_inf(larger), larger, larger + _tf.log1p(_tf.exp(-_tf.abs(x1 - x2))))


logaddexp2 = _op(lambda x1, x2: logaddexp(_float(x1) * _math.log(2.0), _float(x2) * _math.log(2.0)) / _math.log(2.0))


@_op
def isclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Where they differ by little."""
    x1, x2 = _joined_float(x1, x2)
    near = _tf.logical_and(_tf.less_equal(_tf.abs(x1 - x2), _tf.abs(x2) * rtol + atol), _tf.is_finite(x2))
    near = _tf.logical_or(near, _tf.equal(x1, x2))
    return _tf.logical_or(near, _tf.logical_and(_tf.is_nan(x1), _tf.is_nan(x2))) if equal_nan else near


allclose = _op(lambda x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False: _tf.reduce_all(isclose(x1, x2, rtol, atol, equal_nan)))


@_op
def select(condlist, choicelist, default=0):
    """The first choice whose condition holds."""
    made = _tensor(default)
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        made = where(condition, choice, made)
    return made


@_op
def diff(a, n=1, axis=-1):
    """The differences of neighbours."""
    x = _tensor(a)
    for _ in _range(n):
        length = x.shape[axis]
        later, sooner = ([_slice(None)] * x.ndim for _ in _range(2))
        later[axis], sooner[axis] = _slice(1, None), _slice(0, length - 1)
        x = _tf.not_equal(x[tuple(later)], x[tuple(sooner)]) if x.dtype is dtypes.bool else x[tuple(later)] - x[tuple(sooner)]
    return x


@_op
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral by trapezoids."""
    y = _ops.moveaxis(_float(y), [axis], [-1])
    widths = dx if x is None else diff(_float(x) if _tensor(x).ndim == 1 else _ops.moveaxis(_float(x), [axis], [-1]))
    return _tf.reduce_sum((y[..., 1:] + y[..., :-1]) * widths / 2.0, -1)


def _bits(name):
    function = getattr(np, name)

    def op(x, y=None):
        given = [_tf._known(part, name) for part in (_joined(x, y) if y is not None else [_tensor(x)])]
        return _to_tensor(function(*given))
    return _named(name, op, f"NumPy's {name}(), outside of compiled functions.")


for _name in ("bitwise_and bitwise_or bitwise_xor bitwise_invert bitwise_not bitwise_left_shift bitwise_right_shift left_shift "
              "right_shift gcd lcm").split():
    globals()[_name] = _bits(_name)


__all__ = _public(globals())
