"""keras.initializers: what weights begin with."""

from .. import _lockstep, dtypes
from ..ops import _sizes
from ._configured import Configured, classes, unique_name


class Initializer(Configured):
    """Derive from it and define __call__(shape, dtype=None) to write one."""
    _kind = "initializer"

    def __call__(self, shape, dtype=None, **kwargs):
        return _lockstep.initialize(self._serialized(), _sizes(shape), dtype or dtypes.float32)

    def _serialized(self):
        if not hasattr(self, "_config"):  # of a class that is written in Python
            name = unique_name("initializer")
            _lockstep.register_initializer(name, lambda shape, dtype: self(shape, dtype=dtype))
            self._config = {"class_name": name, "config": {}}
        return self._config


_made = classes("initializer", Initializer, __name__)
globals().update(_made)
zeros, ones = _made["Zeros"], _made["Ones"]
globals().update({"constant": _made["Constant"], "glorot_uniform": _made["GlorotUniform"], "glorot_normal": _made["GlorotNormal"],
                  "he_normal": _made["HeNormal"], "he_uniform": _made["HeUniform"], "random_normal": _made["RandomNormal"],
                  "random_uniform": _made["RandomUniform"], "truncated_normal": _made["TruncatedNormal"]})


def get(identifier):
    """By name, by configuration, or as it is."""
    if identifier is None or isinstance(identifier, Initializer) or callable(identifier):
        return identifier
    made = Initializer.__new__(Initializer)
    made._config = _lockstep.checked_config("initializer", identifier)
    return made
