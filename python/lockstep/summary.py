"""tf.summary: event files for TensorBoard."""

import os

import numpy as np

from . import _lockstep, _names, audio as _audio, dtypes, image as _image, io as _io
from ._texts import Texts
from .tensor import convert_to_tensor

_summary = _lockstep.summary
_step = [None]


_recording = [True]


class SummaryWriter:
    """Where events go: create_file_writer() makes one."""

    def __init__(self, folder):
        self._writer = _summary.EventWriter(folder)

    def as_default(self, step=None):
        """``with writer.as_default():`` events of this thread go here."""
        return _Default(self._writer.as_default(), step)

    def flush(self):
        self._writer.flush()

    close = flush


class _Nowhere:
    """A writer that events do not go to."""

    def as_default(self, step=None):
        return record_if(False)

    def flush(self):
        pass

    close = flush


def create_noop_writer():
    """A writer that keeps nothing."""
    return _Nowhere()


class record_if:
    """``with tf.summary.record_if(condition):`` events are kept while it, or what it returns, is true."""

    def __init__(self, condition):
        self._condition = condition

    def __enter__(self):
        self._before = _recording[0]
        _recording[0] = self._condition

    def __exit__(self, *_):
        _recording[0] = self._before


def should_record_summaries():
    """Whether events are kept."""
    return bool(_recording[0]() if callable(_recording[0]) else _recording[0])


class _Default:
    def __init__(self, context, step):
        self._context, self._given, self._before = context, step, None

    def __enter__(self):
        self._context.enter()
        self._before = _step[0]
        if self._given is not None:
            _step[0] = self._given

    def __exit__(self, *_):
        _step[0] = self._before
        self._context.exit()


def create_file_writer(logdir, max_queue=None, flush_millis=None, filename_suffix=None, name=None):
    """Event files in a folder."""
    return SummaryWriter(os.fspath(logdir))


def _of(step):
    step = _step[0] if step is None else step
    if step is None:
        raise ValueError("which step is it? Give step=, or tf.summary.experimental.set_step()")
    return int(step)


def _kept(write):
    if not should_record_summaries():
        return False
    write()
    return True


def scalar(name, data, step=None, description=None):
    """A number of a step."""
    return _kept(lambda: _summary.scalar(name, data, _of(step)))


def histogram(name, data, step=None, buckets=30, description=None):
    """How numbers are spread."""
    return _kept(lambda: _summary.histogram(name, data, _of(step), int(buckets or 30)))


def text(name, data, step=None, description=None):
    """A text, or an array of them, which may be Markdown."""
    array = np.asarray(Texts(data))
    return _kept(lambda: _summary.texts(name, "text", list(array.shape), array.reshape(-1).tolist(), _of(step)))


def image(name, data, step=None, max_outputs=3, description=None):
    """The first images of a batch, of shape (count, height, width, channels): bytes, or floats in [0, 1]."""
    images = _on_host(data, "image")
    if images.ndim != 4:
        raise ValueError(f"tf.summary.image: takes images of shape (count, height, width, channels), received {images.shape}")

    def write():
        bytes_of = [_io._bytes(_io.encode_png(_image.convert_image_dtype(images[number], dtypes.uint8, saturate=True)))
                    for number in range(min(int(max_outputs), images.shape[0]))]
        sizes = [str(size).encode() for size in (images.shape[2], images.shape[1])]
        _summary.texts(name, "images", [2 + len(bytes_of)], sizes + bytes_of, _of(step))
    return _kept(write)


def audio(name, data, sample_rate, step=None, max_outputs=3, encoding=None, description=None):
    """The first sounds of a batch, of shape (count, samples, channels): floats in [-1, 1]."""
    sounds = _on_host(data, "audio")
    if sounds.ndim != 3 or encoding not in (None, "wav"):
        raise ValueError(f"tf.summary.audio: takes sounds of shape (count, samples, channels), which are kept as \"wav\", received {sounds.shape} and "
                         f"encoding={encoding!r}")

    def write():
        files = [_audio.encode_wav(sounds[number], sample_rate).numpy() for number in range(min(int(max_outputs), sounds.shape[0]))]
        _summary.texts(name, "audio", [len(files), 2], [part for file in files for part in (file, b"")], _of(step))
    return _kept(write)


def _on_host(data, what):
    data = convert_to_tensor(data)
    if data.symbolic:
        raise NotImplementedError(f"tf.summary.{what}: it is encoded on the host, so outside of functions that are compiled: return the tensor from the function")
    return data


def flush(writer=None, name=None):
    """Writes what is waiting."""
    _summary.flush() if writer is None else writer.flush()


class experimental(metaclass=_names.Namespace):
    @staticmethod
    def set_step(step):
        _step[0] = step

    @staticmethod
    def get_step():
        return _step[0]
