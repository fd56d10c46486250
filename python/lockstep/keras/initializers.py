"""keras.initializers: what weights begin with."""

import numpy as np

from .. import _lockstep, dtypes
from ..ops import _sizes
from ..tensor import convert_to_tensor
from ._configured import Configured, classes, readers
from .backend import floatx


class Initializer(Configured):
    """Derive from it and define __call__(shape, dtype=None) to write one."""
    _kind = "initializer"

    def __call__(self, shape, dtype=None, **kwargs):
        if self._engine_form() is None:
            raise NotImplementedError(f"{type(self).__name__} defines no __call__(shape, dtype)")
        return _lockstep.initialize(self._engine_form(), _sizes(shape), dtype or dtypes.float32)

    def clone(self):
        """Another one like it."""
        return type(self).from_config(self.get_config())


_made = classes("initializer", Initializer, __name__)
globals().update(_made)
zeros, ones = _made["Zeros"], _made["Ones"]


class Constant(_made["Constant"]):
    """A number everywhere, or an array: rows of words that were learned elsewhere, say."""
    _class_name = "Constant"

    def __init__(self, value=0.0):
        self._array = None if np.ndim(value) == 0 else np.asarray(value)
        if self._array is None:
            super().__init__(value=value)

    @property
    def _is_written(self):
        return getattr(self, "_array", None) is not None

    def __call__(self, shape, dtype=None, **kwargs):
        if not self._is_written:
            return super().__call__(shape, dtype)
        return _lockstep.ops.broadcast_to(_lockstep.ops.cast(convert_to_tensor(self._array), dtypes.as_dtype(dtype or floatx())), _sizes(shape))

    def get_config(self):
        return {"value": self._array} if self._is_written else super().get_config()


_made["Constant"] = Constant


class Given(Initializer):
    """Weights that are there already. Files have in its place what the layer would have begun with otherwise."""

    def __init__(self, value, otherwise):
        self._value, self._otherwise = value, otherwise

    def __call__(self, shape, dtype=None, **kwargs):
        value = convert_to_tensor(self._value)
        if tuple(value.shape) != tuple(shape):
            raise ValueError(f"weights: an array of shape {tuple(shape)} is expected, received {tuple(value.shape)}")
        return _lockstep.ops.cast(value, dtypes.as_dtype(dtype or floatx()))

    def _saved_form(self):
        form = _lockstep.checked_config("initializer", self._otherwise)
        return form["class_name"], form["config"]


# Windows that are sums of cosines: 1, one turn, two turns.
_COSINES = {"boxcar": (1.0,), "hann": (0.5, -0.5), "hamming": (0.54, -0.46), "blackman": (0.42, -0.5, 0.08)}


def _window(window, length, periodic):
    """What the samples of a frame weigh: numbers, or a window by the name that SciPy has for it."""
    if not isinstance(window, str):
        return np.asarray(window, np.float64)
    if window in _COSINES:
        turns = 2.0 * np.pi * np.arange(length) / max(length if periodic else length - 1, 1)
        return sum(factor * np.cos(number * turns) for number, factor in enumerate(_COSINES[window]))
    try:
        import scipy.signal
    except ImportError:
        raise ValueError(f"the window {window!r} is one of the package SciPy, which is not installed; {', '.join(_COSINES)} need none, and "
                         "any window may be given as numbers") from None
    return scipy.signal.get_window(window, length, periodic)


class STFT(Initializer):
    """Filters, of shape (frame, 1, frequencies), by which a convolution computes short-time Fourier transforms: the real or the imaginary
    part of one wave for each frequency, within a window, which may be scaled so that its squares ("density") or its elements ("spectrum")
    sum to 1."""

    def __init__(self, side="real", window="hann", scaling="density", periodic=False):
        if side not in ("real", "imag"):
            raise ValueError(f"STFT: side is real or imag, received {side!r}")
        if scaling not in (None, "density", "spectrum"):
            raise ValueError(f"STFT: scaling is density, spectrum or None, received {scaling!r}")
        if isinstance(window, str):
            _window(window, 1, periodic)
        self.side, self.window, self.scaling, self.periodic = side, window, scaling, periodic

    def __call__(self, shape, dtype=None, **kwargs):
        length, _, frequencies = shape
        turns = -2.0 * np.pi * np.outer(np.arange(length), np.arange(frequencies)) / (2.0 * (frequencies - 1))
        made = np.cos(turns) if self.side == "real" else np.sin(turns)
        if self.window is not None:
            window = _window(self.window, length, self.periodic)
            if window.shape != (length,):
                raise ValueError(f"STFT: a window has one number for each of {length} samples, received shape {window.shape}")
            scale = {None: 1.0, "density": np.sqrt(np.sum(window ** 2)), "spectrum": np.sum(np.abs(window))}[self.scaling]
            made = made * (window / scale)[:, None]
        return convert_to_tensor(made[:, None, :], dtype or floatx())

    def get_config(self):
        return {"side": self.side, "window": self.window, "periodic": self.periodic, "scaling": self.scaling}


_made["STFT"] = STFTInitializer = STFT
globals().update({"constant": _made["Constant"], "glorot_uniform": _made["GlorotUniform"], "glorot_normal": _made["GlorotNormal"],
                  "he_normal": _made["HeNormal"], "he_uniform": _made["HeUniform"], "random_normal": _made["RandomNormal"],
                  "random_uniform": _made["RandomUniform"], "truncated_normal": _made["TruncatedNormal"],
                  "identity": _made["Identity"], "IdentityInitializer": _made["Identity"], "orthogonal": _made["Orthogonal"],
                  "OrthogonalInitializer": _made["Orthogonal"], "lecun_normal": _made["LecunNormal"], "lecun_uniform": _made["LecunUniform"],
                  "variance_scaling": _made["VarianceScaling"], "stft": STFT})
get, deserialize, serialize = readers(Initializer, _made)
