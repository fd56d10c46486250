"""tf.strings: functions of texts. Tensors hold none: texts are those of Python, arrays of them, or byte strings of datasets."""

import re

import numpy as np

from . import _lockstep, dtypes
from .tensor import convert_to_tensor


def _of_each(function, texts, *more):
    """The function of every text, in the structure that the texts came in; byte strings give byte strings."""
    if isinstance(texts, str):
        return function(texts, *more)
    if isinstance(texts, bytes):
        made = function(texts.decode(), *more)
        return made.encode() if isinstance(made, str) else made
    if isinstance(texts, _lockstep.Tensor):
        made = function(_lockstep.io.text(texts).decode(), *more)
        return _lockstep.io.bytes(made.encode()) if isinstance(made, str) else made
    if isinstance(texts, np.ndarray):
        made = [_of_each(function, text, *more) for text in texts.reshape(-1).tolist()]
        return np.array(made).reshape(texts.shape) if not made or not isinstance(made[0], list) else made
    if isinstance(texts, (list, tuple)):
        return [_of_each(function, text, *more) for text in texts]
    raise TypeError(f"takes a text, or lists and arrays of them, received {texts!r}")


def _numbers(made, dtype):
    return convert_to_tensor(np.asarray(made, dtype))


def lower(input, encoding="", name=None):
    """In small letters."""
    return _of_each(str.lower, input)


def upper(input, encoding="", name=None):
    """In capital letters."""
    return _of_each(str.upper, input)


def strip(input, name=None):
    """Without white space at both ends."""
    return _of_each(str.strip, input)


def length(input, unit="BYTE", name=None):
    """How many bytes, or characters (UTF8_CHAR), each has."""
    return _numbers(_of_each((lambda text: len(text)) if unit == "UTF8_CHAR" else (lambda text: len(text.encode())), input), np.int32)


def regex_replace(input, pattern, rewrite, replace_global=True, name=None):
    """What the pattern matches, replaced; \\1 in the replacement is the first group."""
    found = re.compile(pattern)
    return _of_each(lambda text: found.sub(rewrite.replace("\\0", "\\g<0>"), text, count=0 if replace_global else 1), input)


def regex_full_match(input, pattern, name=None):
    """Whether the pattern matches all of it."""
    found = re.compile(pattern)
    return _numbers(_of_each(lambda text: found.fullmatch(text) is not None, input), np.bool_)


def split(input, sep=None, maxsplit=-1, name=None):
    """A list of parts for each."""
    return _of_each(lambda text: text.split(sep or None, maxsplit), input)


def join(inputs, separator="", name=None):
    """Texts that stand at the same place, one after another."""
    arrays = np.broadcast_arrays(*(np.asarray(part, dtype=object) for part in inputs))
    made = [separator.join(str(part) for part in parts) for parts in zip(*(array.reshape(-1).tolist() for array in arrays))]
    return made[0] if arrays[0].ndim == 0 else np.array(made).reshape(arrays[0].shape)


def substr(input, pos, len, unit="BYTE", name=None):
    """A part of so many characters that begins here."""
    return _of_each(lambda text: text[pos:][:len], input)


def to_number(input, out_type="float32", name=None):
    """The numbers that texts write."""
    dtype = dtypes.as_dtype(out_type)
    return convert_to_tensor(np.asarray(_of_each(float if dtype.is_floating else int, input), dtype.as_numpy_dtype))


def as_string(input, name=None):
    """Numbers as texts."""
    array = np.asarray(convert_to_tensor(input))
    made = [str(value).lower() if array.dtype == np.bool_ else str(value) for value in array.reshape(-1).tolist()]
    return made[0] if array.ndim == 0 else np.array(made).reshape(array.shape)
