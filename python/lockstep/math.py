"""tf.math: elementwise ops, comparisons and reductions."""

import builtins
import math as _python

import numpy as np

from . import _lockstep, dtypes, errors
from .nn import in_top_k, l2_normalize, log_softmax, softmax, top_k, zero_fraction  # noqa: F401
from .ops import *  # noqa: F401,F403
from .ops import (abs, add_n, argmax, argmin, bincount, clip_by_value, confusion_matrix, count_nonzero, cumprod, cumsum, pow, round,  # noqa: F401,A004
                  _axes, _bool, _known, unsorted_segment_mean, unsorted_segment_sum)
from .tensor import convert_to_tensor

_ops = _lockstep.ops


def _of_keras(name):
    """A function of keras.ops, which stands on this module's room."""
    from .keras import ops
    return getattr(ops, name)


# --- products and quotients that are 0 -----------------------------------------------------------------------------------

def multiply_no_nan(x, y, name=None):
    """x * y, 0 where y is 0."""
    x, y = convert_to_tensor(x), convert_to_tensor(y)
    return _ops.where(_ops.equal(y, 0.0), _ops.zeros_like(x * y), x * y)


def reciprocal_no_nan(x, name=None):
    """1 / x, 0 where x is 0."""
    x = convert_to_tensor(x)
    return _ops.divide_no_nan(_ops.ones_like(x), x)


def _times_of(of_y):
    """x * of_y(y), 0 where x is 0. The gradient of x there is 0, too, and that of y where it is no number."""
    def function(x, y, name=None):
        x = convert_to_tensor(x)
        y = convert_to_tensor(y, None if hasattr(y, "dtype") else x.dtype)
        nothing = _ops.equal(x + _ops.zeros_like(y), 0.0)
        safe = _ops.where(nothing, _ops.ones_like(y), y)
        return _ops.where(nothing, _ops.zeros_like(x), x * of_y(safe))
    return function


def _named(name, doc, function):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


xlogy = _named("xlogy", "x * log(y), 0 where x is 0.", _times_of(_ops.log))
xlog1py = _named("xlog1py", "x * log(1 + y), 0 where x is 0.", _times_of(_ops.log1p))
xdivy = _named("xdivy", "x / y, 0 where x is 0.", _times_of(_ops.reciprocal))


def scalar_mul(scalar, x, name=None):
    """A number times a tensor."""
    if convert_to_tensor(scalar).ndim:
        raise ValueError(f"scalar_mul: takes a number and a tensor, received a first argument of shape {convert_to_tensor(scalar).shape}")
    return _ops.multiply(scalar, x)


def polyval(coeffs, x, name=None):
    """The polynomial of these coefficients, the highest power first, at x."""
    if not isinstance(coeffs, list):
        raise ValueError(f"polyval: coeffs is a list, received {type(coeffs).__name__}")
    x = convert_to_tensor(x)
    made = _ops.zeros_like(x)
    for factor in coeffs:
        made = made * x + factor
    return made


# --- special functions ---------------------------------------------------------------------------------------------------

_STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156]  # of 1 / x, 1 / x ** 3, ...
_BEFORE = 8  # Stirling's series has the digits of float64 from here on


def _raised(x):
    """Numbers of at least _BEFORE that differ from x by a whole number or none, the factors in between, and x where it is small, else 1."""
    small = _ops.less(x, float(_BEFORE))
    low = _ops.where(small, x, _ops.ones_like(x))
    return _ops.where(small, x + float(_BEFORE), x), [low + float(step) for step in builtins.range(_BEFORE)], small


def _mirrored(x):
    """Where x is below 1/2, 1 - x in its place, and x - round(x), whose multiples of pi have the sine of those of x up to the sign."""
    left = _ops.less(x, 0.5)
    apart = _ops.where(left, x - _ops.round(x), _ops.ones_like(x) / 2.0)
    return left, _ops.where(left, 1.0 - x, x), apart


def _wide(x, what):
    x = convert_to_tensor(x)
    if not x.dtype.is_floating:
        raise TypeError(f"{what}: takes floating point numbers, received {x.dtype.name}")
    return _ops.cast(x, dtypes.float64), x.dtype


def lgamma(x, name=None):
    """The logarithm of the absolute value of the gamma function. In float64, whatever the dtype."""
    x, dtype = _wide(x, "lgamma")
    left, z, apart = _mirrored(x)
    w, factors, small = _raised(z)
    inverse = _ops.reciprocal(w)
    square = _ops.square(inverse)
    series = _STIRLING[-1]
    for factor in reversed(_STIRLING[:-1]):
        series = square * series + factor
    made = (w - 0.5) * (_ops.log(w) - 1.0) + (0.5 * _python.log(2.0 * _python.pi) - 0.5) + inverse * series
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    made = _ops.where(small, made - _ops.log(product), made)
    made = _ops.where(left, _python.log(_python.pi) - _ops.log(_ops.abs(_ops.sin(apart * _python.pi))) - made, made)
    return _ops.cast(_ops.where(_ops.is_inf(x), convert_to_tensor(np.inf, x.dtype), made), dtype)


def digamma(x, name=None):
    """The derivative of lgamma(). In float64, whatever the dtype."""
    x, dtype = _wide(x, "digamma")
    left, z, apart = _mirrored(x)
    w, factors, small = _raised(z)
    inverse = _ops.reciprocal(w)
    square = _ops.square(inverse)
    series = 0.0
    for order in reversed(builtins.range(len(_STIRLING))):
        series = square * (series + _STIRLING[order] * (2 * order + 1))
    made = _ops.log(w) - inverse / 2.0 - series
    steps = _ops.reciprocal(factors[0])
    for factor in factors[1:]:
        steps = steps + _ops.reciprocal(factor)
    made = _ops.where(small, made - steps, made)
    whole = _ops.equal(apart, 0.0)
    tangent = _ops.tan(_ops.where(whole, _ops.ones_like(apart), apart) * _python.pi)
    made = _ops.where(left, made - _python.pi / tangent, made)
    return _ops.cast(_ops.where(_ops.logical_and(left, whole), convert_to_tensor(np.nan, x.dtype), made), dtype)


def lbeta(x, name=None):
    """The logarithm of the beta function of the numbers along the last dimension."""
    x = convert_to_tensor(x)
    return _ops.reduce_sum(lgamma(x), [x.ndim - 1], False) - lgamma(_ops.reduce_sum(x, [x.ndim - 1], False))


def erfinv(x, name=None):
    """The number of which erf is x."""
    return _of_keras("erfinv")(x)


def ndtri(x, name=None):
    """The number below which a normal number is with probability x."""
    return erfinv(convert_to_tensor(x) * 2.0 - 1.0) * _python.sqrt(2.0)


def erfcinv(x, name=None):
    """The number of which erfc is x."""
    return erfinv(1.0 - convert_to_tensor(x))


def nextafter(x1, x2, name=None):
    """The number that follows x1 on the way to x2."""
    return _of_keras("nextafter")(x1, x2)


# --- reductions and scans ------------------------------------------------------------------------------------------------

def reduce_euclidean_norm(input_tensor, axis=None, keepdims=False, name=None):
    """The root of the sum of squares."""
    return _ops.sqrt(_ops.reduce_sum(_ops.square(input_tensor), _axes(axis), _bool(keepdims)))


def _log_sum(a, b):
    same = _ops.equal(a, b)  # infinities among them
    apart = _ops.where(same, _ops.zeros_like(a), a - b)
    return _ops.maximum(a, b) + _ops.where(same, convert_to_tensor(_python.log(2.0), a.dtype), _ops.log1p(_ops.exp(_ops.negative(_ops.abs(apart)))))


def cumulative_logsumexp(x, axis=0, exclusive=False, reverse=False, name=None):
    """The logarithms of the sums of exp(x) up to each element, without overflow; -infinity for a sum of none."""
    x = convert_to_tensor(x)
    axis = int(axis) % x.ndim
    x = _ops.moveaxis(_ops.reverse(x, [axis]) if reverse else x, [axis], [0])
    count, rest = x.shape[0], [0] * (x.ndim - 1)
    if exclusive and count:
        nothing = _ops.zeros_like(_ops.slice(x, [0, *rest], [1] + [-1] * len(rest))) - np.inf
        x = _ops.concat([nothing, _ops.slice(x, [0, *rest], [count - 1] + [-1] * len(rest))], 0)
    step = 1
    while step < count:  # every element has the sum of the `step` ones that end with it
        head, tail = _ops.split_sizes(x, [step, count - step], 0)
        before = _ops.slice(x, [0, *rest], [count - step] + [-1] * len(rest))
        x = _ops.concat([head, _log_sum(tail, before)], 0)
        step *= 2
    x = _ops.moveaxis(x, [0], [axis])
    return _ops.reverse(x, [axis]) if reverse else x


# --- segments ------------------------------------------------------------------------------------------------------------

def _of_segments(reduction, name, of_none, doc):
    """Rows of one number together. Of a number that no row has: of_none(dtype)."""
    def function(data, segment_ids, num_segments, name=None):
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        made = _of_keras(f"segment_{reduction}")(data, ids, int(num_segments))
        if of_none is None:
            return made
        rows = _ops.reshape(unsorted_segment_sum(_ops.ones_like(_ops.cast(ids, dtypes.float32)), ids, num_segments),
                            [int(num_segments)] + [1] * (made.ndim - 1))
        return _ops.where(_ops.equal(rows, 0.0), convert_to_tensor(of_none(data.dtype), data.dtype), made)
    return _named(name, doc, function)


def _in_order(function, name, doc):
    """The function for sorted ids, the last of which determines the number of segments."""
    def of_segments(data, segment_ids, name=None):
        known = _known(segment_ids, what)
        if known.ndim != 1 or np.any(np.diff(known) < 0):
            raise errors.InvalidArgumentError(f"{what}: segment_ids are a vector of numbers that do not fall, received {known.tolist()}; "
                                              f"unsorted_{what} takes others")
        return function(data, segment_ids, int(known.max(initial=-1)) + 1)
    what = name
    return _named(name, doc, of_segments)


unsorted_segment_max = _of_segments("max", "unsorted_segment_max", lambda dtype: dtype.min, "The largest elements of rows of one number.")
unsorted_segment_min = _of_segments("min", "unsorted_segment_min", lambda dtype: dtype.max, "The smallest elements of rows of one number.")
unsorted_segment_prod = _of_segments("prod", "unsorted_segment_prod", None, "The products of rows of one number.")
segment_sum = _in_order(unsorted_segment_sum, "segment_sum", "The sums of the rows of each segment, whose ids are sorted.")
segment_mean = _in_order(unsorted_segment_mean, "segment_mean", "The means of the rows of each segment, whose ids are sorted.")
segment_max = _in_order(_of_segments("max", "max", lambda dtype: 0, ""), "segment_max", "The largest elements of rows of one number.")
segment_min = _in_order(_of_segments("min", "min", lambda dtype: 0, ""), "segment_min", "The smallest elements of rows of one number.")
segment_prod = _in_order(unsorted_segment_prod, "segment_prod", "The products of rows of one number.")


def unsorted_segment_sqrt_n(data, segment_ids, num_segments, name=None):
    """The sums of rows of one number, divided by the root of how many these are."""
    data = convert_to_tensor(data)
    total = unsorted_segment_sum(data, segment_ids, num_segments)
    count = unsorted_segment_sum(_ops.ones_like(data), segment_ids, num_segments)
    return total / _ops.sqrt(_ops.maximum(count, 1.0))


# --- order ---------------------------------------------------------------------------------------------------------------

def is_non_decreasing(x, name=None):
    """Whether no element is smaller than the one before it."""
    return _follow(x, _ops.less_equal)


def is_strictly_increasing(x, name=None):
    """Whether every element is larger than the one before it."""
    return _follow(x, _ops.less)


def _follow(x, compare):
    flat = _ops.reshape(x, [-1])
    if flat.shape[0] < 2:
        return convert_to_tensor(True)
    return _ops.reduce_all(compare(_ops.slice(flat, [0], [flat.shape[0] - 1]), _ops.slice(flat, [1], [-1])), [], False)


def invert_permutation(x, name=None):
    """Where each number stands."""
    x = convert_to_tensor(x)
    if not x.symbolic and sorted(np.asarray(x).tolist()) != list(builtins.range(x.shape[0])):
        raise errors.InvalidArgumentError(f"invert_permutation: takes the numbers from 0 on in any order, each of them once, received {np.asarray(x).tolist()}")
    return _ops.cast(_ops.argsort(x, 0, False), x.dtype)
