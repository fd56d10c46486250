"""tf.lookup: tables of texts and numbers. They are looked into on the host: in dataset.map, and before the model."""

import numpy as np

from . import _lockstep, dtypes, errors
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
