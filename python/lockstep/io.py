"""tf.io: files, records and images. Contents are bytes of Python, or texts as datasets of files give them."""

import base64
import collections
import csv
import os
import zlib

import numpy as np

from . import _lockstep, _names, data, dtypes, errors
from ._texts import TextDataset, Texts, is_text
from .tensor import TensorShape, convert_to_tensor

_io = _lockstep.io


def read_file(filename, name=None):
    """The contents of a file, as bytes."""
    return _io.read_file(_path(filename))


def write_file(filename, contents, name=None):
    """Writes a file, which appears complete or not at all."""
    _io.write_file(_path(filename), contents.encode() if isinstance(contents, str) else _bytes(contents))


def _path(filename):
    if isinstance(filename, Texts):
        filename = os.fsdecode(filename.numpy())
    return _io.text(filename).decode() if isinstance(filename, _lockstep.Tensor) else os.fsdecode(filename)


def _bytes(contents):
    """The bytes of one text, and everything else as it is."""
    return contents.numpy() if isinstance(contents, Texts) and not contents.ndim else contents


def decode_image(contents, channels=0, dtype=None, name=None, expand_animations=True):
    """A JPEG or PNG image, as uint8 (height, width, channels); as floats in [0, 1] where dtype says so."""
    made = _io.decode_image(_bytes(contents), channels or 0)
    if dtype is None or dtypes.as_dtype(dtype) is dtypes.uint8:
        return made
    from .image import convert_image_dtype  # which stands on this module
    return convert_image_dtype(made, dtype)


def decode_png(contents, channels=0, dtype=None, name=None):
    """A PNG image."""
    if dtype is not None and dtypes.as_dtype(dtype) is not dtypes.uint8:
        raise NotImplementedError(f"decode_png: gives uint8, received dtype={dtype!r}; tf.image.convert_image_dtype makes others of it")
    return _io.decode_image(_bytes(contents), channels or 0)


def _refuse(what, **settings):
    """An error for settings of codecs that are not supported, where they are given."""
    given = [f"{name}={value!r}" for name, value in settings.items() if value]
    if given:
        raise NotImplementedError(f"{what}: {', '.join(given)} is not supported; leave it out")


def decode_jpeg(contents, channels=0, ratio=1, fancy_upscaling=True, try_recover_truncated=False, acceptable_fraction=1, dct_method="", name=None):
    """A JPEG image. fancy_upscaling and dct_method are hints, which have no effect."""
    if ratio != 1:
        raise NotImplementedError(f"decode_jpeg: decodes at full size, received ratio={ratio}; tf.image.resize the image afterwards")
    _refuse("decode_jpeg", try_recover_truncated=try_recover_truncated)
    return _io.decode_image(_bytes(contents), channels or 0)


def encode_png(image, compression=-1, name=None):
    """The bytes of a PNG file."""
    return _io.encode_png(image)


def encode_jpeg(image, format="", quality=95, progressive=False, optimize_size=False, chroma_downsampling=True, density_unit="in", x_density=300,
                y_density=300, xmp_metadata="", name=None):
    """The bytes of a JPEG file."""
    image = convert_to_tensor(image)
    wanted = {"": None, "grayscale": 1, "rgb": 3}
    if format not in wanted or wanted[format] not in (None, image._shape[-1]):
        raise ValueError(f"encode_jpeg: format is \"\", \"grayscale\" for one channel or \"rgb\" for three, received {format!r} for an image of shape {image.shape}")
    _refuse("encode_jpeg", progressive=progressive, optimize_size=optimize_size, xmp_metadata=xmp_metadata)
    if not chroma_downsampling or (density_unit, x_density, y_density) != ("in", 300, 300):
        raise NotImplementedError("encode_jpeg: chroma_downsampling, density_unit, x_density and y_density are fixed; leave them out")
    return _io.encode_jpeg(image, quality)


class TFRecordOptions:
    """How a file of records is written: it is not compressed."""

    def __init__(self, compression_type=None, flush_mode=None, input_buffer_size=None, output_buffer_size=None, window_bits=None,
                 compression_level=None, compression_method=None, mem_level=None, compression_strategy=None):
        self.compression_type = compression_type


class TFRecordWriter:
    """Writes a file of records."""

    def __init__(self, path, options=None):
        kind = getattr(options, "compression_type", options)
        if kind:
            raise NotImplementedError(f"TFRecordWriter: files of records are not compressed while they are written, {kind!r} was asked for; what gzip makes of "
                                      "one is read as it is")
        self._writer = _io.TFRecordWriter(os.fspath(path))

    def write(self, record):
        self._writer.write(_bytes(record))

    def close(self):
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()


class gfile(metaclass=_names.Namespace):
    """Files, by Python's own means."""
    exists, isdir, listdir = staticmethod(os.path.exists), staticmethod(os.path.isdir), staticmethod(os.listdir)
    makedirs = staticmethod(lambda path: os.makedirs(path, exist_ok=True))
    mkdir, remove, stat = staticmethod(os.mkdir), staticmethod(os.remove), staticmethod(os.stat)
    join, GFile = staticmethod(os.path.join), staticmethod(open)

    @staticmethod
    def copy(src, dst, overwrite=False):
        import shutil
        gfile._refuse(dst, overwrite)
        shutil.copyfile(src, dst)

    @staticmethod
    def rename(src, dst, overwrite=False):
        gfile._refuse(dst, overwrite)
        os.replace(src, dst)

    @staticmethod
    def _refuse(path, overwrite):
        if not overwrite and os.path.exists(path):
            raise errors.AlreadyExistsError(f"{os.fspath(path)!r} is there already; overwrite=True replaces it")

    @staticmethod
    def walk(top, topdown=True, onerror=None):
        return ((folder, folders, files) for folder, folders, files in os.walk(top, topdown, onerror))

    @staticmethod
    def glob(pattern):
        import glob
        return sorted(glob.glob(pattern))

    @staticmethod
    def rmtree(path):
        import shutil
        shutil.rmtree(path)


def _names_of(filenames):
    if isinstance(filenames, (TextDataset, Texts)) and getattr(filenames, "ndim", 1):
        return [_path(name) for name in filenames]
    return [_path(filenames)] if isinstance(filenames, (str, bytes, os.PathLike, Texts)) else [_path(name) for name in filenames]


def _records(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None, name=None):
    """The records of files, as texts of bytes."""
    return _as_texts(data.Dataset(_io.TFRecordDataset(_names_of(filenames), num_parallel_reads or 1)))


def _lines(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None, name=None):
    """The lines of files, as texts."""
    return _as_texts(data.Dataset(_io.TextLineDataset(_names_of(filenames))))


def _as_texts(dataset):
    return TextDataset._of_source(lambda: (Texts(_io.text(element)) for element in dataset))


data.TFRecordDataset, data.TextLineDataset = _records, _lines


# --- what texts and bytes hold -------------------------------------------------------------------------------------------

def decode_raw(input_bytes, out_type, little_endian=True, fixed_length=None, name=None):
    """The bytes of each string as a row of numbers; strings have one length, or are cut or padded with zeros to fixed_length bytes."""
    kind = np.dtype(dtypes.as_dtype(out_type).as_numpy_dtype).newbyteorder("<" if little_endian else ">")
    texts = input_bytes if isinstance(input_bytes, Texts) else Texts(_io.text(input_bytes) if isinstance(input_bytes, _lockstep.Tensor) else input_bytes)
    parts = list(np.asarray(texts).reshape(-1))
    if fixed_length is not None:
        if fixed_length <= 0 or fixed_length % kind.itemsize:
            raise ValueError(f"decode_raw: fixed_length is a multiple of the {kind.itemsize} bytes of a number, received {fixed_length}")
        parts = [part[:fixed_length].ljust(fixed_length, b"\0") for part in parts]
    rows = [np.frombuffer(part, kind).astype(kind.newbyteorder("=")) for part in parts]
    return convert_to_tensor(np.stack(rows).reshape((*texts.shape, -1)))


def decode_csv(records, record_defaults, field_delim=",", use_quote_delim=True, na_value="", select_cols=None, name=None):
    """The fields of lines as a list of columns, each of the dtype of its default, which stands in for an empty field. A dtype, or an empty
    list, in the place of a default asks for a value."""
    texts = Texts(records)
    rows = list(csv.reader((text.decode() for text in texts.numpy().reshape(-1)) if texts.ndim else [texts.numpy().decode()],
                           delimiter=field_delim, quoting=csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE))
    for number, row in enumerate(rows):
        if select_cols is None and len(row) != len(record_defaults):
            raise ValueError(f"decode_csv: expected {len(record_defaults)} fields, line {number} has {len(row)}")
    columns = range(len(record_defaults)) if select_cols is None else select_cols
    made = [_column(number, [row[number] for row in rows], default, na_value) for number, default in zip(columns, record_defaults)]
    return [column._reshape(texts.shape) if isinstance(column, Texts) else _lockstep.ops.reshape(column, list(texts.shape)) for column in made]


def _column(number, fields, default, na_value):
    if isinstance(default, dtypes.DType) or default == dtypes.string:
        dtype, given = default, []
    else:
        given = np.asarray(default.numpy() if hasattr(default, "numpy") else default, dtype=object).reshape(-1).tolist()
        dtype = dtypes.string if given and is_text(given[0]) else convert_to_tensor(default).dtype
    if not given and any(field in ("", na_value) for field in fields):
        raise ValueError(f"decode_csv: field {number} is empty in a line, and has no default")
    filled = np.array([given[0] if field in ("", na_value) else field for field in fields], dtype=object)
    return Texts(filled) if dtype == dtypes.string else convert_to_tensor(filled.astype(dtype.as_numpy_dtype))


def encode_base64(input, pad=False, name=None):
    """Web-safe base64 of bytes."""
    return _of_bytes(input, lambda whole: base64.urlsafe_b64encode(whole) if pad else base64.urlsafe_b64encode(whole).rstrip(b"="))


def decode_base64(input, name=None):
    """The bytes of web-safe base64."""
    return _of_bytes(input, lambda letters: base64.urlsafe_b64decode(letters + b"=" * (-len(letters) % 4)))


def decode_compressed(bytes, compression_type="", name=None):
    """The contents of strings compressed by "GZIP" or "ZLIB"."""
    if compression_type not in ("", "GZIP", "ZLIB"):
        raise ValueError(f"decode_compressed: compression_type is GZIP, ZLIB or nothing, received {compression_type!r}")
    frame = 16 if compression_type == "GZIP" else 0  # that of gzip, as zlib counts it
    return _of_bytes(bytes, lambda whole: zlib.decompress(whole, frame + zlib.MAX_WBITS) if compression_type else whole)


def _of_bytes(texts, change):
    """Applies a function to the bytes of every string."""
    array = np.asarray(Texts(_io.text(texts) if isinstance(texts, _lockstep.Tensor) else texts))
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [change(text) for text in array.reshape(-1)]
    return Texts(made)


def is_jpeg(contents, name=None):
    """Whether the string is a JPEG image."""
    whole = _bytes(contents)
    return convert_to_tensor((_io.text(whole) if isinstance(whole, _lockstep.Tensor) else whole)[:3] == b"\xff\xd8\xff")


def extract_jpeg_shape(contents, output_type=dtypes.int32, name=None):
    """Height, width and channels of a JPEG image."""
    return convert_to_tensor(list(_io.decode_image(_bytes(contents), 0)._shape), output_type)


def decode_and_crop_jpeg(contents, crop_window, channels=0, ratio=1, fancy_upscaling=True, try_recover_truncated=False, acceptable_fraction=1,
                         dct_method="", name=None):
    """The part of a JPEG image in the window (top, left, height, width)."""
    top, left, height, width = (int(part) for part in np.asarray(crop_window))
    whole = decode_jpeg(contents, channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method)
    if min(top, left) < 0 or min(height, width) < 1 or top + height > whole._shape[0] or left + width > whole._shape[1]:
        raise errors.InvalidArgumentError(f"decode_and_crop_jpeg: the window (top, left, height, width) = {(top, left, height, width)} is not within the "
                                          f"image of {whole._shape[0]} x {whole._shape[1]} pixels")
    return whole[top:top + height, left:left + width]


# --- tensors as bytes ----------------------------------------------------------------------------------------------------

# Numbers of TensorFlow's dtypes in its messages of protocol buffers.
_NUMBERS_OF_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10, "bfloat16": 14, "float16": 19}


def _varint(number):
    made = []
    while number >= 0x80:
        made.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes([*made, number])


def serialize_tensor(tensor, name=None):
    """A tensor as bytes, which parse_tensor() reads, here and in TensorFlow."""
    tensor = convert_to_tensor(tensor)
    dims = b"".join(b"\x12" + _varint(len(size) + 1) + b"\x08" + size for size in map(_varint, tensor._shape))
    content = bytes(tensor._bits()) if tensor.dtype is dtypes.bfloat16 else np.asarray(tensor).tobytes()
    return Texts(b"\x08" + _varint(_NUMBERS_OF_DTYPES[tensor.dtype.name]) + b"\x12" + _varint(len(dims)) + dims + b"\x22" + _varint(len(content)) + content)


def parse_tensor(serialized, out_type, name=None):
    """The tensor of serialize_tensor()."""
    whole, dtype = _bytes(serialized), dtypes.as_dtype(out_type)
    whole = _io.text(whole) if isinstance(whole, _lockstep.Tensor) else whole
    fields, sizes = dict(_fields(whole)), []
    if fields.get(1) != _NUMBERS_OF_DTYPES[dtype.name]:
        known = {number: name for name, number in _NUMBERS_OF_DTYPES.items()}.get(fields.get(1), "another dtype")
        raise errors.InvalidArgumentError(f"parse_tensor: out_type is {dtype.name}, the tensor is of {known}")
    for field, size in _fields(fields.get(2, b"")):
        if field == 2:
            sizes.append(dict(_fields(size)).get(1, 0))
    content, count = fields.get(4), int(np.prod(sizes, dtype=np.int64))
    if content is None or len(content) != count * dtype.size:
        raise errors.InvalidArgumentError("parse_tensor: takes the bytes of serialize_tensor(), with elements in row-major order; these are something else")
    if dtype is dtypes.bfloat16:
        return _lockstep.ops.cast(convert_to_tensor((np.frombuffer(content, "<u2").astype("<u4") << 16).view("<f4").reshape(sizes)), dtype)
    return convert_to_tensor(np.frombuffer(content, dtype.as_numpy_dtype).reshape(sizes))


def _fields(message):
    """(number, value) of the fields of a message of protocol buffers: integers and bytes."""
    at = 0

    def varint():
        nonlocal at
        number, shift = 0, 0
        while True:
            if at >= len(message):
                raise errors.InvalidArgumentError("parse_tensor: the bytes end within a number; they are truncated or not those of serialize_tensor()")
            part = message[at]
            number, shift, at = number | (part & 0x7f) << shift, shift + 7, at + 1
            if part < 0x80:
                return number
    while at < len(message):
        field, kind = divmod(varint(), 8)
        if kind == 0:
            yield field, varint()
        elif kind == 2:
            size = varint()
            yield field, message[at:at + size]
            at += size
        else:
            at += {1: 8, 5: 4}.get(kind, len(message))


# --- examples ------------------------------------------------------------------------------------------------------------

class FixedLenFeature(collections.namedtuple("FixedLenFeature", "shape dtype default_value", defaults=(None,))):
    """As many values as the shape says; the default where there are none."""


class FixedLenSequenceFeature(collections.namedtuple("FixedLenSequenceFeature", "shape dtype allow_missing default_value", defaults=(False, None))):
    """So many parts of this shape as there are; the examples of a batch are filled up."""


def _no_sparse(name):
    def refuse(*_, **__):
        raise NotImplementedError(f"{name}: there are no sparse and no ragged tensors; FixedLenSequenceFeature([], dtype, allow_missing=True) gives "
                                  "all values of a feature")
    refuse.__name__, refuse.__doc__ = name, "Refused: it gives sparse or ragged tensors."
    return refuse


VarLenFeature, RaggedFeature, SparseFeature = (_no_sparse(name) for name in ("VarLenFeature", "RaggedFeature", "SparseFeature"))


def parse_single_example(serialized, features, example_names=None, name=None):
    """The features of one tf.train.Example by their names."""
    known = _io.parse_example(_bytes(serialized))
    return {feature: _parsed(feature, spec, known.get(feature)) for feature, spec in features.items()}


def parse_example(serialized, features, example_names=None, name=None):
    """The features of several, together: sequences of different lengths are filled up."""
    texts = Texts(serialized)
    rows = [parse_single_example(text, features) for text in texts.numpy().reshape(-1)] if texts.ndim else [parse_single_example(texts, features)]
    made = {feature: _stacked([row[feature] for row in rows], spec) for feature, spec in features.items()}
    return made if texts.ndim else {feature: column[0] for feature, column in made.items()}


def _parsed(name, spec, found):
    kind = {"float32": "floats", "int64": "ints", "string": "bytes"}.get(getattr(spec.dtype, "name", spec.dtype))
    if kind is None:
        raise ValueError(f"features are of float32, int64 or string, {name!r} is expected to be of {spec.dtype}")
    if found is not None and found[1] and found[0] != kind:
        raise ValueError(f"feature {name!r} has {found[0]}, expected {kind}")
    values, shape = (found[1] if found is not None else []), list(TensorShape(spec.shape))
    if isinstance(spec, FixedLenSequenceFeature):
        if found is None and not spec.allow_missing:
            raise ValueError(f"feature {name!r} is not there, and may not be missing")
        shape = [-1 if values else 0] + shape
    elif not values and spec.default_value is not None:
        default = np.asarray(spec.default_value, dtype=object)
        values = np.broadcast_to(default.reshape(shape) if default.size > 1 else default, shape).reshape(-1).tolist()
    elif len(values) != int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"feature {name!r} has {len(values)} values, a shape of {tuple(shape)} was expected" if found is not None else
                         f"feature {name!r} is not there, and has no default")
    array = np.array(values, dtype=object if kind == "bytes" else spec.dtype.as_numpy_dtype if isinstance(spec.dtype, dtypes.DType) else spec.dtype)
    return Texts(array.reshape(shape)) if kind == "bytes" else convert_to_tensor(array.reshape(shape))


def _stacked(parts, spec):
    arrays = [part.numpy() if isinstance(part, Texts) else np.asarray(part) for part in parts]
    if isinstance(spec, FixedLenSequenceFeature):
        longest = max(len(array) for array in arrays)
        filler = spec.default_value if spec.default_value is not None else b"" if isinstance(parts[0], Texts) else 0
        arrays = [np.concatenate([array, np.full((longest - len(array), *array.shape[1:]), filler, array.dtype)]) for array in arrays]
    return Texts(np.array(arrays, dtype=object)) if isinstance(parts[0], Texts) else convert_to_tensor(np.stack(arrays))
