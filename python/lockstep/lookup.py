"""tf.lookup: tables of texts and numbers. They are looked into on the host: in dataset.map, and before the model."""

import os

import numpy as np

from . import _lockstep, dtypes, errors, strings
from ._texts import Texts, is_text
from .tensor import convert_to_tensor


def _keys(values):
    """The elements as an array of what Python can look up."""
    if isinstance(values, Texts) or is_text(values):
        return np.asarray(Texts(values))
    values = convert_to_tensor(values)
    if values.symbolic:
        raise NotImplementedError("tables are looked into on the host: in dataset.map, or before the function that is being traced is called")
    return np.asarray(values)


class KeyValueTensorInitializer:
    """Keys and their values, as two arrays."""

    def __init__(self, keys, values, key_dtype=None, value_dtype=None, name=None):
        keys, values = _of(keys, key_dtype), _of(values, value_dtype)
        self.key_dtype, self.value_dtype = keys.dtype, values.dtype
        self.pairs = list(zip(_keys(keys).reshape(-1).tolist(), _keys(values).reshape(-1).tolist()))
        if keys.shape != values.shape:
            raise ValueError(f"KeyValueTensorInitializer: there are keys of shape {keys.shape} and values of shape {values.shape}")


class TextFileIndex:
    """What a line of a file may stand for: itself, or its number."""
    WHOLE_LINE, LINE_NUMBER = -2, -1


class TextFileInitializer:
    """Keys and values of the lines of a file: a field each, the whole line or its number."""

    def __init__(self, filename, key_dtype, key_index, value_dtype, value_index, vocab_size=None, delimiter="\t", name=None, value_index_offset=0):
        self.key_dtype, self.value_dtype = (dtypes.string if dtype == dtypes.string else dtypes.as_dtype(dtype) for dtype in (key_dtype, value_dtype))
        with open(os.fsdecode(filename.numpy() if isinstance(filename, Texts) else filename), "rb") as file:
            lines = file.read().splitlines()
        if vocab_size is not None and len(lines) < vocab_size:
            raise errors.InvalidArgumentError(f"TextFileInitializer: vocab_size is {vocab_size}, {filename!r} has {len(lines)} lines")
        lines = lines if vocab_size is None else lines[:vocab_size]
        offset = value_index_offset if value_index == TextFileIndex.LINE_NUMBER else 0
        self.pairs = [(self._part(number, line, key_index, self.key_dtype, delimiter),
                       self._part(number + offset, line, value_index, self.value_dtype, delimiter)) for number, line in enumerate(lines)]

    @staticmethod
    def _part(number, line, index, dtype, delimiter):
        if index == TextFileIndex.LINE_NUMBER:
            if dtype != dtypes.int64:
                raise ValueError(f"TextFileInitializer: numbers of lines are int64, received {dtype.name}")
            return number
        fields = [line] if index == TextFileIndex.WHOLE_LINE else line.split(delimiter.encode())
        if index >= len(fields):
            raise errors.InvalidArgumentError(f"TextFileInitializer: line {number} has {len(fields)} fields, field {index} was asked for")
        text = fields[max(index, 0)]
        return text if dtype == dtypes.string else float(text) if dtype.is_floating else int(text)


def _of(values, dtype):
    if is_text(values) or dtype == dtypes.string:
        return Texts(values)
    return convert_to_tensor(values, dtype)


class StaticHashTable:
    """What an initializer says, and a default for everything else."""

    def __init__(self, initializer, default_value, name=None, experimental_is_anonymous=False):
        self.key_dtype, self.value_dtype, self.default_value = initializer.key_dtype, initializer.value_dtype, _of(default_value, initializer.value_dtype)
        self._default, self._table = _keys(self.default_value).reshape(-1).tolist()[0], {}
        for key, value in initializer.pairs:
            if self._table.setdefault(key, value) != value:
                raise errors.FailedPreconditionError(f"StaticHashTable: {key!r} has two values, {self._table[key]!r} and {value!r}")

    def lookup(self, keys, name=None):
        """The values of these keys, in their shape."""
        keys = _keys(_of(keys, self.key_dtype) if not isinstance(keys, (Texts, _lockstep.Tensor)) else keys)
        found = [self._table.get(key, self._default) for key in keys.reshape(-1).tolist()]
        if self.value_dtype == dtypes.string:
            return Texts(np.array(found, dtype=object).reshape(keys.shape))
        return convert_to_tensor(np.array(found, self.value_dtype.as_numpy_dtype).reshape(keys.shape))

    __getitem__ = lookup

    def size(self, name=None):
        """How many keys there are."""
        return convert_to_tensor(np.int64(len(self._table)))

    def export(self, name=None):
        """All keys, and their values."""
        keys = list(self._table)
        return (Texts(keys) if self.key_dtype == dtypes.string else convert_to_tensor(np.array(keys, self.key_dtype.as_numpy_dtype))), self.lookup(keys)


class StaticVocabularyTable:
    """Maps strings to the ids of an initializer, from 0 on, and all others to one of num_oov_buckets further ids, by their hash."""

    def __init__(self, initializer, num_oov_buckets, lookup_key_dtype=None, name=None, experimental_is_anonymous=False):
        if num_oov_buckets <= 0:
            raise ValueError(f"StaticVocabularyTable: num_oov_buckets is 1 or more, received {num_oov_buckets}; StaticHashTable gives others a default")
        if initializer is not None and (initializer.key_dtype != dtypes.string or initializer.value_dtype != dtypes.int64):
            raise TypeError(f"StaticVocabularyTable: keys are strings and values int64, received {initializer.key_dtype.name} and {initializer.value_dtype.name}")
        self.key_dtype, self.value_dtype, self._buckets = dtypes.string, dtypes.int64, int(num_oov_buckets)
        self._table = None if initializer is None else StaticHashTable(initializer, np.int64(-1))
        self._known = 0 if initializer is None else int(self._table.size())

    def lookup(self, keys, name=None):
        """The ids of these strings, in their shape."""
        buckets = np.asarray(strings.to_hash_bucket_fast(keys, self._buckets)) + self._known
        if self._table is None:
            return convert_to_tensor(buckets)
        found = np.asarray(self._table.lookup(keys))
        return convert_to_tensor(np.where(found < 0, buckets, found))

    __getitem__ = lookup

    def size(self, name=None):
        """How many numbers there are."""
        return convert_to_tensor(np.int64(self._known + self._buckets))
