"""tf.io: files, records and images. Contents are bytes of Python; a dataset of records gives them as tensors of uint8, one of lines as texts."""

import os

from . import _lockstep, data
from ._texts import TextDataset, Texts

_io = _lockstep.io


def read_file(filename, name=None):
    """The contents of a file, as bytes."""
    return _io.read_file(_path(filename))


def write_file(filename, contents, name=None):
    """Writes a file, which appears complete or not at all."""
    _io.write_file(_path(filename), contents.encode() if isinstance(contents, str) else contents)


def _path(filename):
    if isinstance(filename, Texts):
        filename = os.fsdecode(filename.numpy())
    return _io.text(filename).decode() if isinstance(filename, _lockstep.Tensor) else os.fsdecode(filename)


def decode_image(contents, channels=0, dtype=None, name=None, expand_animations=True):
    """A JPEG or PNG image, as uint8 (height, width, channels)."""
    return _io.decode_image(contents, channels or 0)


def decode_png(contents, channels=0, dtype=None, name=None):
    """A PNG image."""
    return _io.decode_image(contents, channels or 0)


def decode_jpeg(contents, channels=0, *args, **kwargs):
    """A JPEG image."""
    return _io.decode_image(contents, channels or 0)


def encode_png(image, compression=-1, name=None):
    """The bytes of a PNG file."""
    return _io.encode_png(image)


def encode_jpeg(image, format="", quality=95, *args, **kwargs):
    """The bytes of a JPEG file."""
    return _io.encode_jpeg(image, quality)


class TFRecordWriter:
    """Writes a file of records."""

    def __init__(self, path, options=None):
        self._writer = _io.TFRecordWriter(os.fspath(path))

    def write(self, record):
        self._writer.write(record)

    def close(self):
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()


class gfile:
    """Files, by Python's own means."""
    exists, isdir, listdir = staticmethod(os.path.exists), staticmethod(os.path.isdir), staticmethod(os.listdir)
    makedirs = staticmethod(lambda path: os.makedirs(path, exist_ok=True))
    remove = staticmethod(os.remove)
    GFile = staticmethod(open)

    @staticmethod
    def glob(pattern):
        import glob
        return sorted(glob.glob(pattern))

    @staticmethod
    def rmtree(path):
        import shutil
        shutil.rmtree(path)


def _names(filenames):
    if isinstance(filenames, (TextDataset, Texts)) and getattr(filenames, "ndim", 1):
        return [_path(name) for name in filenames]
    return [_path(filenames)] if isinstance(filenames, (str, bytes, os.PathLike, Texts)) else [_path(name) for name in filenames]


def _records(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None, name=None):
    """The records of files, as tensors of uint8."""
    return data.Dataset(_io.TFRecordDataset(_names(filenames), num_parallel_reads or 1))


def _lines(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None, name=None):
    """The lines of files, as texts."""
    lines = data.Dataset(_io.TextLineDataset(_names(filenames)))

    def texts():
        return (Texts(_io.text(line)) for line in lines)
    return TextDataset(texts, lambda: next(texts(), None))


data.TFRecordDataset, data.TextLineDataset = _records, _lines
