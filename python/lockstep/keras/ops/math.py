"""keras.ops: segments, the largest, distances, Fourier transforms."""

import builtins
import functools
import math as _math

import numpy as np

from ... import dtypes, nn
from ...function import custom_gradient as _custom_gradient
from ._defining import _define, _float, _joined_float, _named, _of_floats, _op, _ops, _public, _tensor, _tf
from ._reductions import _reduction
from .core import _by_number, _numbers

_max, _min, _range = builtins.max, builtins.min, builtins.range

_define(globals(), "erf erfc rsqrt", _of_floats)

logsumexp = _reduction("logsumexp", "reduce_logsumexp", _float)
top_k = _op(lambda x, k, sorted=True: nn.top_k(_tensor(x), k))
in_top_k = _op(lambda targets, predictions, k: nn.in_top_k(_numbers(targets), _float(predictions), k))


@_op
def erfinv(x):
    """The number of which erf is x."""
    given = _float(x)
    return _ops.cast(_erfinv(_ops.cast(given, dtypes.float64)), given.dtype)


@_custom_gradient
def _erfinv(x):
    def gradient(upstream):
        return upstream * _tf.exp(_tf.square(_erfinv(x))) * (_math.sqrt(_math.pi) / 2.0)
    return _solved_erfinv(x), gradient


def _solved_erfinv(x):
    near = _tf.clip_by_value(x, -1.0 + 1e-16, 1.0 - 1e-16)
    # A formula that is good to 0.002, made exact by Newton's steps.
    log = _tf.log1p(-_tf.square(near))
    half = 2.0 / (_math.pi * 0.147) + log / 2.0
    made = _tf.sign(near) * _tf.sqrt(_tf.sqrt(_tf.square(half) - log / 0.147) - half)
    for _ in _range(4):
        slope = _tf.exp(-_tf.square(made)) * (2.0 / _math.sqrt(_math.pi))
        # Far out 1 - erf is what has digits.
        missing = _tf.where(_tf.greater(_tf.abs(near), 0.5), _tf.sign(near) * ((1.0 - _tf.abs(near)) - _tf.erfc(_tf.abs(made))),
                            _tf.erf(made) - near)
        made = made - _tf.divide_no_nan(missing, slope)
    made = _tf.where(_tf.equal(_tf.abs(x), 1.0), _tf.sign(x) * _math.inf, made)
    return _tf.where(_tf.greater(_tf.abs(x), 1.0), _tensor(_math.nan, made.dtype), made)


@_op
def cdist(x, y):
    """Euclid's distances of all rows of x from all rows of y."""
    x, y = _joined_float(x, y)
    apart = _tf.expand_dims(x, -2) - _tf.expand_dims(y, -3)
    return _tf.sqrt(_tf.reduce_sum(_tf.square(apart), -1))


# --- segments ------------------------------------------------------------------------------------------------------------

def _segments(name, combine, doc):
    def op(data, segment_ids, num_segments=None, sorted=False):
        data, ids = _tensor(data), _numbers(segment_ids)
        if tuple(data.shape[:ids.ndim]) != tuple(ids.shape):
            raise ValueError(f"{name}: segment_ids have the shape of the first dimensions of data, received {ids.shape} and {data.shape}")
        count = int(num_segments) if num_segments is not None else int(_tf._known(ids, f"{name} without num_segments").max(initial=-1)) + 1
        rest = list(data.shape[ids.ndim:])
        return combine(_tf.reshape(data, [-1, *rest]), _tf.reshape(ids, [-1]), count)
    return _named(name, op, doc)


def _summed(data, ids, count):
    # A number that is none of theirs drops its row: it goes to a segment behind the last one.
    known = _tf.logical_and(_tf.greater_equal(ids, 0), _tf.less(ids, _tensor(count, ids.dtype)))
    made = _ops.scatter_add(data, _tf.where(known, ids, _tensor(count, ids.dtype)), count + 1)
    return _tf.slice(made, [0] * made.ndim, [count] + [-1] * (made.ndim - 1))


segment_sum = _segments("segment_sum", _summed, "The sums of rows of one number.")
segment_max = _segments("segment_max", functools.partial(_by_number, reduction="max"), "The largest elements of rows of one number.")
segment_min = _segments("segment_min", functools.partial(_by_number, reduction="min"), "The smallest elements of rows of one number.")
segment_prod = _segments("segment_prod", functools.partial(_by_number, reduction="mul"), "The products of rows of one number.")


# --- Fourier transforms --------------------------------------------------------------------------------------------------

def _waves(rows, columns, period, sign, dtype):
    """cos and sin of sign 2 pi i j / period."""
    angle = sign * 2.0 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % period) / period
    return _tensor(np.cos(angle), dtype), _tensor(np.sin(angle), dtype)


def _times(re, im, c, s):
    return (re * c - im * s, re * s + im * c) if im is not None else (re * c, re * s)


def _transformed(re, im, sign):
    """The discrete Fourier transform of the last dimension: products with small matrices of waves, one for each factor of its size."""
    n = re.shape[-1]
    p = _max((f for f in _range(2, _min(n, 64) + 1) if n % f == 0), default=n)
    if p == n or n <= 64:
        c, s = _waves(n, n, n, sign, re.dtype)
        if im is None:
            return _tf.tensordot(re, c, 1), _tf.tensordot(re, s, 1)
        return (_tf.tensordot(re, c, 1) - _tf.tensordot(im, s, 1), _tf.tensordot(re, s, 1) + _tf.tensordot(im, c, 1))
    q = n // p
    lead = list(re.shape[:-1])

    def split(x):
        return None if x is None else _ops.moveaxis(_tf.reshape(x, lead + [p, q]), [-1], [-2])
    re, im = _transformed(split(re), split(im), sign)  # over p, in the last dimension: [..., q, p]
    re, im = _times(re, im, *_waves(q, p, n, sign, re.dtype))
    re, im = _transformed(_ops.moveaxis(re, [-1], [-2]), _ops.moveaxis(im, [-1], [-2]), sign)  # over q: [..., p, q]
    return tuple(_tf.reshape(_ops.moveaxis(x, [-1], [-2]), lead + [n]) for x in (re, im))


def _pair(x, what):
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(f"{what}: takes the real and the imaginary part, a tuple of two tensors, received {x!r}")
    re, im = _joined_float(*x)
    if tuple(re.shape) != tuple(im.shape):
        raise ValueError(f"{what}: the real and the imaginary part have one shape, received {re.shape} and {im.shape}")
    return re, im


def _ranked(x, rank, what):
    if x.ndim < rank:
        raise ValueError(f"{what}: Input should have rank >= {rank}, received shape {tuple(x.shape)}")
    return x


def _over_two(x, what, sign):
    re, im = _pair(x, what)
    _ranked(re, 2, what)
    for _ in _range(2):
        re, im = (_ops.moveaxis(part, [-1], [-2]) for part in _transformed(re, im, sign))
    return re, im


@_op
def fft(x):
    """The discrete Fourier transform of the last dimension."""
    re, im = _pair(x, "fft")
    _ranked(re, 1, "fft")
    return _transformed(re, im, -1.0)


@_op
def fft2(x):
    """The discrete Fourier transform of the last two dimensions."""
    return _over_two(x, "fft2", -1.0)


@_op
def ifft2(x):
    """Its inverse."""
    re, im = _over_two(x, "ifft2", 1.0)
    count = float(re.shape[-1] * re.shape[-2])
    return re / count, im / count


def _of_length(x, length):
    """The last dimension cut off, or filled up with zeros."""
    have = x.shape[-1]
    if have >= length:
        return x[..., :length]
    return _tf.concat([x, _tf.zeros(list(x.shape[:-1]) + [length - have], x.dtype)], -1)


@_op
def rfft(x, fft_length=None):
    """The first half, and one more, of the transform of real numbers."""
    x = _ranked(_float(x), 1, "rfft")
    length = x.shape[-1] if fft_length is None else int(fft_length)
    re, im = _transformed(_of_length(x, length), None, -1.0)
    return re[..., :length // 2 + 1], im[..., :length // 2 + 1]


@_op
def irfft(x, fft_length=None):
    """Its inverse."""
    re, im = _pair(x, "irfft")
    _ranked(re, 1, "irfft")
    length = 2 * (re.shape[-1] - 1) if fft_length is None else int(fft_length)
    re, im = (_of_length(part, length // 2 + 1) for part in (re, im))
    rest = length - (length // 2 + 1)  # the other half mirrors the first
    re = _tf.concat([re, _tf.reverse(re[..., 1:1 + rest], [-1])], -1)
    # What must be real, the mean and the middle, is taken as real.
    own = np.ones(length // 2 + 1, np.float32)
    own[0] = 0
    if length % 2 == 0:
        own[-1] = 0
    im = im * _tensor(own, im.dtype)
    im = _tf.concat([im, -_tf.reverse(im[..., 1:1 + rest], [-1])], -1)
    return _transformed(re, im, 1.0)[0] / float(length)


@_op
def extract_sequences(x, sequence_length, sequence_stride):
    """Windows of the last dimension, in a dimension before it."""
    x = _ranked(_float(x), 1, "extract_sequences")
    count = 1 + (x.shape[-1] - sequence_length) // sequence_stride
    places = np.arange(count)[:, None] * sequence_stride + np.arange(sequence_length)
    return _ops.gather(x, _tensor(places.astype(np.int32)), x.ndim - 1, 0)


def _window(window, sequence_length, fft_length, dtype, what):
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ValueError(f"{what}: a window that is a name is hann or hamming, received {window!r}")
        share = 0.5 if window == "hann" else 0.54
        window = share - (1.0 - share) * np.cos(2.0 * np.pi * np.arange(sequence_length) / sequence_length)
    window = _tensor(np.ones(sequence_length) if window is None else window, dtype)
    if tuple(window.shape) != (sequence_length,):
        raise ValueError(f"{what}: window is of shape ({sequence_length},), received {window.shape}")
    before = (fft_length - sequence_length) // 2
    return _tf.pad(window, [[before, fft_length - sequence_length - before]])


def _check_lengths(x, sequence_length, sequence_stride, fft_length, what):
    if not isinstance(sequence_stride, int) or sequence_stride <= 0:
        raise ValueError(f"{what}: sequence_stride is a positive integer, received {sequence_stride!r}")
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise TypeError(f"{what}: takes float32 or float64, received {x.dtype.name}")
    if fft_length < sequence_length:
        raise ValueError(f"{what}: fft_length is sequence_length or more, received {fft_length} and {sequence_length}")


@_op
def stft(x, sequence_length, sequence_stride, fft_length, window="hann", center=True):
    """The transforms of windows of a signal."""
    x = _tensor(x)
    _check_lengths(x, sequence_length, sequence_stride, fft_length, "stft")
    if center:
        x = _tf.pad(x, [[0, 0]] * (x.ndim - 1) + [[fft_length // 2, fft_length // 2]], "REFLECT")
    shape = _window(window, sequence_length, fft_length, x.dtype, "stft")
    if window is None:
        shape = _tf.ones([fft_length], x.dtype)
    return rfft(extract_sequences(x, fft_length, sequence_stride) * shape, fft_length)


@_op
def istft(x, sequence_length, sequence_stride, fft_length, length=None, window="hann", center=True):
    """The signal of which these are the transforms: windows added where they overlap, divided by what the windows weigh there."""
    re, im = _pair(x, "istft")
    _ranked(re, 2, "istft")
    _check_lengths(re, sequence_length, sequence_stride, fft_length, "istft")
    parts = irfft((re, im), fft_length)
    shape = _window(window, sequence_length, fft_length, parts.dtype, "istft") if window is not None else _tf.ones([fft_length], parts.dtype)
    count = parts.shape[-2]
    size = fft_length + sequence_stride * (count - 1)
    places = (np.arange(count)[:, None] * sequence_stride + np.arange(fft_length)).reshape(-1)

    def overlapped(windows):  # (..., count, fft_length) -> (..., size)
        flat = _tf.reshape(windows, [-1, count * fft_length])
        added = _ops.scatter_add(_tf.transpose(flat), _tensor(places.astype(np.int32)), size)
        return _tf.reshape(_tf.transpose(added), list(windows.shape[:-2]) + [size])
    if window is not None:
        # By what the squares of the windows that lie over each other in the midst of a signal sum to.
        turns = -(-fft_length // sequence_stride)
        squares = _of_length(_tf.square(shape), turns * sequence_stride)
        weight = _tf.tile(_tf.reduce_sum(_tf.reshape(squares, [turns, sequence_stride]), 0), [turns])[:fft_length]
        shape = _tf.divide_no_nan(shape, weight)
    made = overlapped(parts * shape)
    first = fft_length // 2 if center else 0
    last = first + length if length is not None else size - first
    return made[..., first:_min(last, size)]


__all__ = _public(globals())
