"""tf.audio: files of sound."""

import collections
import struct

import numpy as np

from . import _lockstep, errors
from ._texts import Texts
from .io import _bytes
from .tensor import convert_to_tensor

DecodeWav = collections.namedtuple("DecodeWav", "audio sample_rate")


def decode_wav(contents, desired_channels=-1, desired_samples=-1, name=None):
    """The samples of a 16-bit WAV file in [-1, 1], of shape (samples, channels), and the sample rate. desired_channels repeats the last channel,
    and desired_samples cuts the samples off or pads them with zeros."""
    given = _bytes(contents)
    whole = _lockstep.io.text(given) if isinstance(given, _lockstep.Tensor) else given
    if not isinstance(whole, bytes) or whole[:4] != b"RIFF" or whole[8:12] != b"WAVE":
        raise errors.InvalidArgumentError("decode_wav: takes the bytes of a WAV file, as tf.io.read_file gives them")
    channels, rate, samples, at = None, None, None, 12
    while at + 8 <= len(whole) and samples is None:
        kind, size = whole[at:at + 4], struct.unpack("<I", whole[at + 4:at + 8])[0]
        chunk = whole[at + 8:at + 8 + size]
        if kind == b"fmt ":
            form, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunk[:16])
            if form not in (1, 0xfffe) or bits != 16 or not channels:
                raise errors.InvalidArgumentError(f"decode_wav: takes samples of 16-bit integers, the file has format {form} of {bits} bits and "
                                                  f"{channels} channels")
        elif kind == b"data":
            if channels is None:
                raise errors.InvalidArgumentError("decode_wav: the chunk data stands before the chunk fmt, which describes it")
            samples = np.frombuffer(chunk[:len(chunk) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
        at += 8 + size + size % 2
    if samples is None:
        raise errors.InvalidArgumentError("decode_wav: the file has no samples")
    if desired_channels > 0:
        samples = samples[:, np.minimum(np.arange(desired_channels), channels - 1)]
    if desired_samples >= 0:
        samples = np.pad(samples[:desired_samples], ((0, max(desired_samples - len(samples), 0)), (0, 0)))
    return DecodeWav(convert_to_tensor(samples.astype(np.float32) / np.float32(32768)), convert_to_tensor(rate))


def encode_wav(audio, sample_rate, name=None):
    """The bytes of a 16-bit WAV file, from samples in [-1, 1], of shape (samples, channels)."""
    array, rate = np.asarray(convert_to_tensor(audio), np.float32), int(sample_rate)
    if array.ndim != 2 or not array.size:
        raise errors.InvalidArgumentError(f"encode_wav: takes audio of shape (samples, channels), received {array.shape}")
    samples = np.clip(np.round(array * 32768), -32768, 32767).astype("<i2").tobytes()
    channels = array.shape[1]
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, channels, rate, 2 * channels * rate,
                         2 * channels, 16, b"data", len(samples))
    return Texts(header + samples)
