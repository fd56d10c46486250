"""keras.initializers: what weights begin with."""

from .. import _lockstep, dtypes
from ..ops import _sizes
from ._configured import Configured, classes, readers


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
globals().update({"constant": _made["Constant"], "glorot_uniform": _made["GlorotUniform"], "glorot_normal": _made["GlorotNormal"],
                  "he_normal": _made["HeNormal"], "he_uniform": _made["HeUniform"], "random_normal": _made["RandomNormal"],
                  "random_uniform": _made["RandomUniform"], "truncated_normal": _made["TruncatedNormal"]})
get, deserialize, serialize = readers(Initializer, _made)
