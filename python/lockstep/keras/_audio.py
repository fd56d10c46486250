"""Layers of sound: spectrograms, made of keras.ops."""

import math
import warnings

import numpy as np

from . import initializers, ops
from ._layer import Layer
from .backend import epsilon, standardize_data_format


def _mel(hertz):
    """The mel scale, as the Hidden Markov Model Toolkit has it."""
    return 1127.0 * np.log1p(np.asarray(hertz, np.float64) / 700.0)


class MelSpectrogram(Layer):
    """Signals of shape (batch, samples) or (samples,) as how strong each band of the mel scale is over time: (..., bands, frames)."""

    _needs_no_input = True

    def __init__(self, fft_length=2048, sequence_stride=512, sequence_length=None, window="hann", sampling_rate=16000, num_mel_bins=128,
                 min_freq=20.0, max_freq=None, power_to_db=True, top_db=80.0, mag_exp=2.0, min_power=1e-10, ref_power=1.0, **kwargs):
        super().__init__(**kwargs)
        self.fft_length, self.sequence_stride, self.sequence_length = fft_length, sequence_stride, sequence_length or fft_length
        if self.fft_length < self.sequence_length:
            raise ValueError("`fft_length` must be greater than or equal to `sequence_length`, received "
                             f"fft_length={fft_length}, sequence_length={sequence_length}")
        self.window, self.sampling_rate, self.num_mel_bins = window, sampling_rate, num_mel_bins
        self.min_freq, self.max_freq = min_freq, max_freq or int(sampling_rate / 2)
        self.power_to_db, self.top_db, self.mag_exp = power_to_db, top_db, mag_exp
        self.min_power, self.ref_power = min_power, ref_power

    def call(self, inputs):
        inputs = ops.cast(inputs, self.compute_dtype if self.compute_dtype == "float64" else "float32")
        real, imaginary = ops.stft(inputs, self.sequence_length, self.sequence_stride, self.fft_length, self.window)
        strength = ops.power(ops.sqrt(ops.square(real) + ops.square(imaginary)), self.mag_exp)
        weights = self.linear_to_mel_weight_matrix(self.num_mel_bins, strength.shape[-1], self.sampling_rate, self.min_freq, self.max_freq,
                                                   strength.dtype)
        bands = ops.tensordot(strength, weights, 1)
        bands = self._in_decibels(bands) if self.power_to_db else bands
        return ops.cast(ops.swapaxes(bands, -1, -2), self.compute_dtype)

    def _in_decibels(self, bands):
        """What is more than top_db weaker than the strongest is as strong as that."""
        made = 10.0 * ops.log10(ops.maximum(bands, self.min_power))
        made = made - 10.0 * float(np.log10(max(abs(self.ref_power), self.min_power)))
        return ops.maximum(made, ops.max(made) - self.top_db)

    def linear_to_mel_weight_matrix(self, num_mel_bins=20, num_spectrogram_bins=129, sampling_rate=8000, lower_edge_hertz=125.0,
                                    upper_edge_hertz=3800.0, dtype="float32"):
        """What each frequency, evenly spaced from 0 to half the sampling rate, adds to each band: a triangle on the mel scale between the
        middles of the bands beside it. The first frequency, which is the mean, is in none."""
        edges = np.linspace(_mel(lower_edge_hertz), _mel(upper_edge_hertz), num_mel_bins + 2)
        below, middle, above = edges[:-2], edges[1:-1], edges[2:]
        place = _mel(np.linspace(0.0, sampling_rate / 2.0, num_spectrogram_bins))[:, None]
        made = np.maximum(0.0, np.minimum((place - below) / (middle - below), (above - place) / (above - middle)))
        made[0] = 0.0
        return ops.convert_to_tensor(made, dtype)

    def compute_output_shape(self, input_shape):
        frames = None if input_shape[-1] is None else 1 + input_shape[-1] // self.sequence_stride
        return (*input_shape[:-1], self.num_mel_bins, frames)

    def get_config(self):
        return {**super().get_config(),
                **{name: getattr(self, name) for name in ("fft_length", "sequence_stride", "sequence_length", "window", "sampling_rate",
                                                          "num_mel_bins", "min_freq", "max_freq", "power_to_db", "top_db", "mag_exp",
                                                          "min_power", "ref_power")}}


_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


class STFTSpectrogram(Layer):
    """Signals of shape (batch, samples, channels) as short-time Fourier transforms, by convolutions whose filters may be trained:
    (batch, frames, channels * frequencies), or (batch, frames, frequencies, channels) with expand_dims."""

    def __init__(self, mode="log", frame_length=256, frame_step=None, fft_length=None, window="hann", periodic=False, scaling="density",
                 padding="valid", expand_dims=False, data_format=None, **kwargs):
        if frame_step is not None and not 1 <= frame_step <= frame_length:
            raise ValueError(f"STFTSpectrogram: frame_step is between 1 and frame_length, {frame_length}, received {frame_step}")
        if fft_length is not None and fft_length < frame_length:
            raise ValueError(f"STFTSpectrogram: fft_length is not less than frame_length, received {fft_length} and {frame_length}")
        if fft_length is not None and fft_length & (fft_length - 1):
            warnings.warn(f"STFTSpectrogram: an fft_length that is a power of two is usual, received {fft_length}", stacklevel=2)
        for name, value, known in (("mode", mode, _MODES), ("scaling", scaling, (None, "density", "spectrum")),
                                   ("padding", padding, ("valid", "same"))):
            if value not in known:
                raise ValueError(f"STFTSpectrogram: {name} is one of {', '.join(map(str, known))}, received {value!r}")
        self_made = {side: initializers.STFT(side, window, scaling, periodic) for side in ("real", "imag")}
        super().__init__(**kwargs)
        self.mode, self.frame_length, self.frame_step, self.fft_length = mode, frame_length, frame_step, fft_length
        self.window, self.periodic, self.scaling = window, periodic, scaling
        self.padding, self.expand_dims, self.data_format = padding, expand_dims, standardize_data_format(data_format)
        self._step = frame_step or frame_length // 2
        self._frequencies = (fft_length or 2 ** math.ceil(math.log2(frame_length))) // 2 + 1
        self._sides = {side: made for side, made in self_made.items() if mode not in ("real", "imag") or mode == side}

    def build(self, input_shape):
        for side, initializer in self._sides.items():
            setattr(self, f"{side}_kernel", self.add_weight((self.frame_length, 1, self._frequencies), initializer, name=f"{side}_kernel"))

    def call(self, inputs):
        inputs = ops.convert_to_tensor(inputs)
        if ops.dtype(inputs) not in ("float16", "float32", "float64"):
            raise TypeError(f"STFTSpectrogram: takes float16, float32 or float64, received {ops.dtype(inputs)}")
        x = inputs if self.data_format == "channels_last" else ops.transpose(inputs, (0, 2, 1))
        parts = {side: self._filtered(x, getattr(self, f"{side}_kernel")) for side in self._sides}
        if len(parts) == 1:
            made, = parts.values()
        elif self.mode == "angle":
            made = ops.arctan2(parts["imag"], parts["real"])
        elif self.mode == "stft":
            made = ops.concatenate([parts["real"], parts["imag"]], axis=2)
        else:
            made = self._power(ops.square(parts["real"]) + ops.square(parts["imag"]))
        return self._laid_out(made)

    def _filtered(self, x, kernel):
        """Every channel by the same filters: (batch, frames, frequencies, channels)."""
        batch, samples, channels = x.shape
        alone = ops.reshape(ops.transpose(x, (0, 2, 1)), (batch * channels, samples, 1))
        made = ops.conv(alone, ops.cast(kernel, x.dtype), self._step, self.padding, "channels_last")
        return ops.transpose(ops.reshape(made, (batch, channels, *made.shape[1:])), (0, 2, 3, 1))

    def _power(self, power):
        if self.mode == "psd":  # all frequencies but the first and the last stand for two
            return power + ops.pad(power[:, :, 1:-1], ((0, 0), (0, 0), (1, 1), (0, 0)))
        strength = ops.sqrt(ops.maximum(power, epsilon()))
        return strength if self.mode == "magnitude" else ops.log(ops.maximum(strength, epsilon()))

    def _laid_out(self, x):
        """(batch, frames, frequencies, channels) as the layout and expand_dims say."""
        batch, frames, frequencies, channels = x.shape
        first = self.data_format == "channels_first"
        if self.expand_dims:
            return ops.transpose(x, (0, 3, 1, 2)) if first else x
        x = ops.transpose(x, (0, 3, 2, 1) if first else (0, 1, 3, 2))
        return ops.reshape(x, (batch, channels * frequencies, frames) if first else (batch, frames, channels * frequencies))

    def compute_output_shape(self, input_shape):
        first = self.data_format == "channels_first"
        batch, samples, channels = (input_shape[0], input_shape[2], input_shape[1]) if first else input_shape
        frequencies = self._frequencies * (2 if self.mode == "stft" else 1)
        frames = None if samples is None else -(-samples // self._step) if self.padding == "same" else (samples - self.frame_length) // self._step + 1
        if self.expand_dims:
            return (batch, channels, frames, frequencies) if first else (batch, frames, frequencies, channels)
        return (batch, channels * frequencies, frames) if first else (batch, frames, channels * frequencies)

    def get_config(self):
        return {**super().get_config(),
                **{name: getattr(self, name) for name in ("mode", "frame_length", "frame_step", "fft_length", "window", "periodic", "scaling",
                                                          "padding", "expand_dims", "data_format")}}
