"""keras.ops: elementwise."""

import builtins
import math as _math

import numpy as np

from ... import dtypes
from ...function import while_loop as _while_loop
from ..._lockstep import KerasTensor
from ._defining import (_by_values, _define, _float, _joined, _joined_float, _named, _number, _of_any, _of_floats, _of_number, _of_two, _of_two_bools,
                        _of_two_floats, _op, _ops, _public, _tensor, _tf, _to_tensor)

_range, _slice = builtins.range, builtins.slice


_define(globals(), "negative sign", _of_any)
_define(globals(), "square", _of_number)


@_op
def absolute(x):
    """The distance from 0."""
    x = _tensor(x)
    return x if x.dtype is dtypes.bool else _tf.abs(x)


abs = absolute  # noqa: A001
_define(globals(), "floor ceil sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin=asin arccos=acos arctan=atan "
                   "arcsinh=asinh arccosh=acosh arctanh=atanh asin acos atan asinh acosh atanh reciprocal", _of_floats)
_define(globals(), "isnan=is_nan isinf=is_inf isfinite=is_finite", _of_floats)
_define(globals(), "add subtract multiply maximum minimum power=pow mod=floormod floor_divide=floordiv remainder=floormod", _of_two)
_define(globals(), "divide true_divide=divide divide_no_nan arctan2=atan2", _of_two_floats)
_define(globals(), "equal not_equal less less_equal greater greater_equal", _of_two)
_define(globals(), "logical_and logical_or logical_xor", _of_two_bools)
logical_not = _op(lambda x: _tf.logical_not(_tensor(x, dtypes.bool)))


@_op
def clip(x, x_min, x_max):
    """x, with what is outside put on the nearer end."""
    return _tf.clip_by_value(_number(x), x_min, x_max)


@_op
def where(condition, x1=None, x2=None):
    """x1 where the condition holds, else x2; of the condition alone, the places."""
    if (x1 is None) != (x2 is None):
        raise ValueError("where: takes both x1 and x2, or neither")
    condition = _tensor(condition, dtypes.bool)
    if x1 is None:
        return nonzero(condition)
    return _tf.where(condition, *_joined(x1, x2))


@_by_values(lambda x: tuple(KerasTensor((None,), "int32") for _ in x.shape))
def nonzero(x):
    """The places of what is not 0, an array for every dimension."""
    return tuple(_to_tensor(part.astype(np.int32)) for part in np.nonzero(_tf._known(x, "nonzero")))


@_op
def round(x, decimals=0):  # noqa: A001
    """To the nearest, half to even."""
    x = _tensor(x)
    if not x.dtype.is_floating:
        return x if decimals >= 0 else _ops.cast(round(_ops.cast(x, dtypes.float64), decimals), x.dtype)
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
signbit = _op(lambda x: _tf.less(_tensor(x), 0) if not _tensor(x).dtype.is_floating else
              _tf.logical_or(_tf.less(x, 0.0), _tf.less(_tf.reciprocal(_tf.where(_tf.equal(x, 0.0), x, _tf.ones_like(_tensor(x)))), 0.0)))
fmod = _op(lambda x1, x2: _tf.truncatemod(*_joined(x1, x2)))
ldexp = _op(lambda x1, x2: _float(x1) * exp2(_tensor(x2, _float(x1).dtype)))


def _larger_first(a, b):
    """By one condition: of equal numbers each is one of the two, for gradients too."""
    swap = _tf.less(a, b)
    return _tf.where(swap, b, a), _tf.where(swap, a, b)


@_op
def hypot(x1, x2):
    """The square root of the sum of two squares, which may themselves leave the dtype's range."""
    x1, x2 = (_tf.abs(x) for x in _joined_float(x1, x2))
    large, small = _larger_first(x1, x2)
    length = large * _tf.sqrt(1.0 + _tf.square(_tf.divide_no_nan(small, large)))
    return _tf.where(_tf.logical_or(_tf.equal(x1, _math.inf), _tf.equal(x2, _math.inf)), _tensor(_math.inf, length.dtype), length)


@_op
def trunc(x):
    """Towards 0."""
    x = _tensor(x)
    return _tf.trunc(x) if x.dtype.is_floating else x


def _of_numbers(name, function):
    def op(x1, x2):
        a, b = _joined(x1, x2)
        made = function(a, b)
        if not a.dtype.is_floating:
            return made
        return _tf.where(_tf.is_nan(a), b + _tf.zeros_like(a), _tf.where(_tf.is_nan(b), a + _tf.zeros_like(b), made))
    return _named(name, op, function.__doc__ + " A number goes before NaN.")


fmax, fmin = _of_numbers("fmax", _tf.maximum), _of_numbers("fmin", _tf.minimum)


@_op
def angle(x):
    """That of a real number: pi below 0."""
    x = _float(x)
    made = _tf.where(_tf.less(x, 0.0), _tensor(_math.pi, x.dtype), _tf.zeros_like(x))
    return _tf.where(_tf.is_nan(x), x, made)


def _series(x, factors):
    made = _tf.zeros_like(x)
    for factor in reversed(factors):
        made = made * x + factor
    return made


@_op
def i0(x):
    """Bessel's modified function of order 0."""
    x = _float(x)
    size = _tf.abs(_ops.cast(x, dtypes.float64))
    # The series of (x / 2)^(2k) / k!^2 up to 15, and that of 1 / x behind it.
    near = _series(_tf.square(_tf.minimum(size, 15.0) / 2.0), [1.0 / _math.factorial(k) ** 2 for k in _range(40)])
    far_terms, term = [], 1.0
    for k in _range(16):
        far_terms.append(term)
        term *= (2 * k + 1) ** 2 / (8.0 * (k + 1))
    large = _tf.maximum(size, 15.0)
    far = _tf.exp(large) * _tf.rsqrt(large * (2.0 * _math.pi)) * _series(1.0 / large, far_terms)
    return _ops.cast(_tf.where(_tf.less(size, 15.0), near, far), x.dtype)


@_op
def sinc(x):
    """sin(pi x) / (pi x)."""
    x = _float(x) * _math.pi
    zero = _tf.equal(x, 0.0)
    safe = _tf.where(zero, _tf.ones_like(x), x)
    return _tf.where(zero, _tf.ones_like(x), _tf.sin(safe) / safe)


@_op
def heaviside(x1, x2):
    """0 below 0, x2 at it, 1 above; NaN stays."""
    x1, x2 = _joined_float(x1, x2)
    step = _tf.where(_tf.is_nan(x1), x1, _tf.cast(_tf.greater(x1, 0.0), x1.dtype))
    return _tf.where(_tf.equal(x1, 0.0), x2, step)


@_op
def logaddexp(x1, x2):
    """log(exp(x1) + exp(x2)) without overflow."""
    large, small = _larger_first(*_joined_float(x1, x2))
    return _tf.where(_tf.is_inf(large), large, large + _tf.log1p(_tf.exp(small - large)))


logaddexp2 = _op(lambda x1, x2: logaddexp(*(x * _math.log(2.0) for x in _joined_float(x1, x2))) / _math.log(2.0))


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


def _whole(*values):
    values = _joined(*values)
    if values[0].dtype.is_floating:
        raise TypeError(f"takes integers or booleans, received {values[0].dtype.name}")
    return values


def _bit_count(dtype):
    return {dtypes.uint8: 8, dtypes.int32: 32, dtypes.int64: 64}[dtype]


def _and(a, b):
    if a.dtype is dtypes.bool:
        return _tf.logical_and(a, b)
    if not a.symbolic and not b.symbolic:
        return _to_tensor(np.bitwise_and(np.asarray(a), np.asarray(b)))
    # Bit by bit: a number divided by a power of two, rounded down, is odd where it has that bit.
    count = _bit_count(a.dtype)
    wide = [_ops.cast(x, dtypes.int32) if a.dtype is dtypes.uint8 else x for x in (a, b)]
    made, power = None, 1
    for bit in _range(count):
        left, right = (_tf.floormod(x, _tensor(2, x.dtype)) for x in wide)
        wide = [_tf.floordiv(x, _tensor(2, x.dtype)) for x in wide]
        weight = power if bit < count - 1 or a.dtype is dtypes.uint8 else -power
        both = left * right * _tensor(weight, left.dtype) if weight != 1 else left * right
        made = both if made is None else made + both
        power *= 2
    return _ops.cast(made, a.dtype)


def _or(a, b):
    return _tf.logical_or(a, b) if a.dtype is dtypes.bool else a + b - _and(a, b)


def _xor(a, b):
    return _tf.logical_xor(a, b) if a.dtype is dtypes.bool else a + b - _and(a, b) * _tensor(2, a.dtype)


def _inverted(x):
    if x.dtype is dtypes.bool:
        return _tf.logical_not(x)
    return _tensor(255, x.dtype) - x if x.dtype is dtypes.uint8 else -x - _tensor(1, x.dtype)


bitwise_and = _named("bitwise_and", lambda x, y: _and(*_whole(x, y)), "The bits that both have.")
bitwise_or = _named("bitwise_or", lambda x, y: _or(*_whole(x, y)), "The bits that one of them has.")
bitwise_xor = _named("bitwise_xor", lambda x, y: _xor(*_whole(x, y)), "The bits in which they differ.")
bitwise_invert = bitwise_not = _named("bitwise_invert", lambda x: _inverted(*_whole(x)), "The other bits.")


def _shift(name, op, doc):
    def shift(x, y):
        a, b = (_ops.cast(v, dtypes.int32) if v.dtype is dtypes.bool else v for v in _whole(x, y))
        return op(a, _tf.pow(_tensor(2, a.dtype) + _tf.zeros_like(b), b))
    return _named(name, shift, doc)


left_shift = bitwise_left_shift = _shift("bitwise_left_shift", _tf.multiply, "x times a power of two.")
right_shift = bitwise_right_shift = _shift("bitwise_right_shift", _tf.floordiv, "x divided by a power of two, rounded down.")


@_op
def gcd(x1, x2):
    """The greatest common divisor."""
    a, b = _whole(x1, x2)
    a, b = _tf.abs(a) + _tf.zeros_like(b), _tf.abs(b) + _tf.zeros_like(a)
    return _while_loop(lambda a, b: _tf.reduce_any(_tf.not_equal(b, 0)),
                       lambda a, b: (_tf.where(_tf.equal(b, 0), a, b),
                                     _tf.where(_tf.equal(b, 0), b, _tf.floormod(a, _tf.where(_tf.equal(b, 0), _tf.ones_like(b), b)))),
                       [a, b])[0]


@_op
def lcm(x1, x2):
    """The least common multiple."""
    a, b = _whole(x1, x2)
    shared = gcd(a, b)
    return _tf.where(_tf.equal(shared, 0), shared, _tf.abs(a) * _tf.floordiv(_tf.abs(b) + _tf.zeros_like(shared), _tf.maximum(shared, 1)))


_FORMATS = {dtypes.float32: (23, -126), dtypes.float16: (10, -14), dtypes.bfloat16: (7, -126)}  # bits of fractions, the least exponent


@_op
def nextafter(x1, x2):
    """The nearest number of the dtype on the way from x1 to x2; in compiled functions of dtypes up to float32."""
    a, b = _joined_float(x1, x2)
    if not a.symbolic and not b.symbolic and a.dtype is not dtypes.bfloat16:
        return _to_tensor(np.nextafter(np.asarray(a), np.asarray(b)))
    if a.dtype is dtypes.float64:
        raise NotImplementedError("nextafter of float64: outside of compiled functions alone")
    bits, least = _FORMATS[a.dtype]
    x, end = (_ops.cast(value, dtypes.float64) for value in (a, b))
    x, end = x + _tf.zeros_like(end), end + _tf.zeros_like(x)
    away = _tf.greater_equal(x * _tf.sign(end - x), 0.0)
    # The distance of numbers next to x: behind a power of two it is half of that before it.
    size = _tf.abs(x) * _tf.where(away, _tf.ones_like(x), _tf.ones_like(x) * (1.0 - 2.0 ** -30))
    exponent = _tf.maximum(_tf.floor(_tf.log(_tf.maximum(size, 2.0 ** -1000)) / _math.log(2.0) + 1e-12), float(least))
    distance = _tf.exp((exponent - float(bits)) * _math.log(2.0))
    # Three quarters of the way round to it, even where the distance is not exact.
    made = _ops.cast(x + _tf.sign(end - x) * distance * 0.75, a.dtype)
    least_of_all = _tf.where(_tf.greater(end, 0.0), *(_tensor(np.array(sign * 2.0 ** (least - bits), np.float32), a.dtype) for sign in (1, -1)))
    made = _tf.where(_tf.equal(x, 0.0), least_of_all, made)
    largest = _tf.logical_and(_tf.is_inf(x), _tf.logical_not(_tf.equal(x, end)))
    made = _tf.where(largest, _tf.where(_tf.greater(x, 0.0), _tensor(a.dtype.max, a.dtype), _tensor(a.dtype.min, a.dtype)), made)
    made = _tf.where(_tf.equal(x, end), _ops.cast(end, a.dtype), made)
    return _tf.where(_tf.logical_or(_tf.is_nan(x), _tf.is_nan(end)), _tensor(_math.nan, a.dtype), made)


def _viewed(x, dtype=None):
    """The last dimension holds as many bytes as before."""
    dtype = dtypes.as_dtype(dtype or x.dtype)
    last = x.shape[-1]
    return KerasTensor((*x.shape[:-1], None if last is None else last * x.dtype.size // dtype.size), dtype.name)


@_by_values(_viewed)
def view(x, dtype=None):
    """The same memory as elements of another dtype; outside of compiled functions."""
    x = _tensor(x)
    return x if dtype is None else _to_tensor(_tf._known(x, "view").view(dtypes.as_dtype(dtype).as_numpy_dtype))


__all__ = _public(globals())
