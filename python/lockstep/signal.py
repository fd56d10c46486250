"""tf.signal: frames, windows and transforms of real signals. There are no complex tensors: keras.ops has Fourier transforms of (real, imaginary) pairs."""

import numpy as np

from . import _lockstep, dtypes
from .tensor import convert_to_tensor

_ops = _lockstep.ops


# --- frames --------------------------------------------------------------------------------------------------------------

def frame(signal, frame_length, frame_step, pad_end=False, pad_value=0, axis=-1, name=None):
    """Frames of frame_length elements along an axis, each frame_step after the one before it; pad_end pads the last ones."""
    signal = convert_to_tensor(signal)
    length, step, axis = int(frame_length), int(frame_step), int(axis) % signal.ndim
    have = signal.shape[axis]
    count = -(-have // step) if pad_end else max(0, 1 + (have - length) // step)
    if pad_end:
        margin = [0] * signal.ndim
        margin[axis] = max((count - 1) * step + length - have, 0)
        signal = _ops.pad(signal, [0] * signal.ndim, margin, "CONSTANT", float(pad_value))
    places = np.arange(count)[:, None] * step + np.arange(length)
    return _ops.gather(signal, convert_to_tensor(places.astype(np.int32)), axis, 0)


def overlap_and_add(signal, frame_step, name=None):
    """The signal that overlapping frames, of shape (..., frames, frame_length), add up to; each begins frame_step after the one before it."""
    signal, step = convert_to_tensor(signal), int(frame_step)
    if signal.ndim < 2:
        raise ValueError(f"overlap_and_add: takes frames, of rank 2 or more, received shape {signal.shape}")
    *outer, count, length = signal.shape
    places = (np.arange(count)[:, None] * step + np.arange(length)).reshape(-1)
    rows = _ops.transpose(_ops.reshape(signal, [int(np.prod(outer, dtype=np.int64)), count * length]), [])
    added = _ops.scatter_add(rows, convert_to_tensor(places.astype(np.int32)), (count - 1) * step + length)
    return _ops.reshape(_ops.transpose(added, []), [*outer, (count - 1) * step + length])


# --- windows -------------------------------------------------------------------------------------------------------------

def _window(values, dtype, what):
    dtype = dtypes.as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(f"{what}: windows are of floating point numbers, received {dtype.name}")
    return convert_to_tensor(np.asarray(values, np.float64), dtypes.float64) if dtype is dtypes.float64 else \
        _ops.cast(convert_to_tensor(np.asarray(values, np.float32)), dtype)


def _raised_cosine(length, periodic, share):
    if length == 1:
        return np.ones(1)
    turns = np.arange(length) / (length - 1 + bool(periodic) * (1 - length % 2))
    return share - (1.0 - share) * np.cos(2.0 * np.pi * turns)


def hann_window(window_length, periodic=True, dtype=dtypes.float32, name=None):
    """The Hann window."""
    return _window(_raised_cosine(int(window_length), periodic, 0.5), dtype, "hann_window")


def hamming_window(window_length, periodic=True, dtype=dtypes.float32, name=None):
    """The Hamming window."""
    return _window(_raised_cosine(int(window_length), periodic, 0.54), dtype, "hamming_window")


def kaiser_window(window_length, beta=12.0, dtype=dtypes.float32, name=None):
    """The Kaiser window; the larger beta, the narrower."""
    return _window(np.kaiser(int(window_length), float(beta)), dtype, "kaiser_window")


def kaiser_bessel_derived_window(window_length, beta=12.0, dtype=dtypes.float32, name=None):
    """The Kaiser-Bessel-derived window: its squares, half a window apart, add up to 1."""
    sums = np.cumsum(np.kaiser(int(window_length) // 2 + 1, float(beta)))
    half = np.sqrt(sums[:-1] / sums[-1])
    return _window(np.concatenate([half, half[::-1]]), dtype, "kaiser_bessel_derived_window")


def vorbis_window(window_length, dtype=dtypes.float32, name=None):
    """The Vorbis window: its squares, half a window apart, add up to 1."""
    length = int(window_length)
    return _window(np.sin(0.5 * np.pi * np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 2), dtype, "vorbis_window")


# --- transforms of cosines -----------------------------------------------------------------------------------------------

def _cosines(kind, n):
    """(n, n): what each element adds to each of the transform."""
    at, wave = np.arange(n)[:, None], np.arange(n)
    if kind == 1:
        made = 2.0 * np.cos(np.pi * at * wave / (n - 1))
        made[0], made[-1] = 1.0, (-1.0) ** wave
    elif kind == 2:
        made = 2.0 * np.cos(np.pi * (2 * at + 1) * wave / (2 * n))
    elif kind == 3:
        made = 2.0 * np.cos(np.pi * at * (2 * wave + 1) / (2 * n))
        made[0] = 1.0
    else:
        made = 2.0 * np.cos(np.pi * (2 * at + 1) * (2 * wave + 1) / (4 * n))
    return made


def _dct(input, kind, n, axis, norm, what):
    if axis != -1:
        raise NotImplementedError(f"{what}: axis must be -1, received {axis}")
    if norm not in (None, "ortho") or kind not in (1, 2, 3, 4) or (kind == 1 and norm):
        raise ValueError(f"{what}: type is 1, 2, 3 or 4, norm None or \"ortho\", which type 1 has none of, received {kind!r} and {norm!r}")
    input = convert_to_tensor(input)
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{what}: takes float32 or float64, received {input.dtype.name}")
    have = input.shape[-1]
    if n is not None and int(n) != have:
        n, last = int(n), input.ndim - 1
        input = _ops.slice(input, [0] * input.ndim, [-1] * last + [min(n, have)])
        input = _ops.pad(input, [0] * input.ndim, [0] * last + [max(n - have, 0)], "CONSTANT", 0.0)
        have = n
    if kind == 1 and have < 2:
        raise ValueError(f"{what}: type 1 takes two elements or more, received {have}")
    waves = _cosines(kind, have)
    if norm:  # an orthogonal matrix
        waves *= np.sqrt(0.5 / have)
        if kind == 2:
            waves[:, 0] *= np.sqrt(0.5)
        elif kind == 3:
            waves[0] *= np.sqrt(2.0)
    return _ops.tensordot(input, convert_to_tensor(waves.astype(input.dtype.as_numpy_dtype)), [input.ndim - 1], [0])


def dct(input, type=2, n=None, axis=-1, norm=None, name=None):
    """The discrete cosine transform of the last dimension, of the kinds I to IV."""
    return _dct(input, type, n, axis, norm, "dct")


def idct(input, type=2, n=None, axis=-1, norm=None, name=None):
    """Its inverse; with norm=None times twice the number of elements, of kind I one less."""
    return _dct(input, {2: 3, 3: 2}.get(type, type), n, axis, norm, "idct")


# --- spectrograms --------------------------------------------------------------------------------------------------------

def linear_to_mel_weight_matrix(num_mel_bins=20, num_spectrogram_bins=129, sample_rate=8000, lower_edge_hertz=125.0, upper_edge_hertz=3800.0,
                                dtype=dtypes.float32, name=None):
    """(num_spectrogram_bins, num_mel_bins): what each frequency adds to each band of the mel scale."""
    rate, low, high = float(sample_rate), float(lower_edge_hertz), float(upper_edge_hertz)
    if num_mel_bins <= 0 or num_spectrogram_bins <= 0 or low < 0 or low >= high or high > rate / 2:
        raise ValueError(f"linear_to_mel_weight_matrix: takes bins, and edges that rise from 0 to half of sample_rate, received {num_mel_bins} and "
                         f"{num_spectrogram_bins} bins, edges {low} and {high} and sample_rate {rate}")

    def mel(hertz):
        return 1127.0 * np.log1p(hertz / 700.0)
    bins = mel(np.linspace(0.0, rate / 2.0, int(num_spectrogram_bins))[1:])[:, None]  # without the mean
    edges = np.linspace(mel(low), mel(high), int(num_mel_bins) + 2)
    first, middle, last = edges[:-2], edges[1:-1], edges[2:]
    made = np.maximum(0.0, np.minimum((bins - first) / (middle - first), (last - bins) / (last - middle)))
    return _window(np.concatenate([np.zeros((1, int(num_mel_bins))), made]), dtype, "linear_to_mel_weight_matrix")


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms, name=None):
    """The mel-frequency cepstral coefficients of logarithms of mel spectrograms."""
    given = convert_to_tensor(log_mel_spectrograms)
    return dct(given) * float((2.0 * given.shape[-1]) ** -0.5)


def fftshift(x, axes=None, name=None):
    """The frequency 0 in the middle of these axes."""
    return _shifted(x, axes, lambda size: size // 2)


def ifftshift(x, axes=None, name=None):
    """The frequency 0 at the front again."""
    return _shifted(x, axes, lambda size: -(size // 2))


def _shifted(x, axes, by):
    x = convert_to_tensor(x)
    axes = list(range(x.ndim)) if axes is None else [int(axes)] if np.ndim(axes) == 0 else [int(axis) for axis in axes]
    return _ops.roll(x, [by(x.shape[axis]) for axis in axes], axes)
