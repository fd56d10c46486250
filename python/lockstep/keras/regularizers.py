"""keras.regularizers: penalties on weights and activations."""

from .. import _lockstep
from ._configured import Configured, classes, readers


class Regularizer(Configured):
    """Derive from it and define __call__(x) to write one."""
    _kind = "regularizer"

    def __call__(self, x):
        if self._engine_form() is None:
            return 0.0
        return _lockstep.regularize(self._engine_form(), x)


_made = classes("regularizer", Regularizer, __name__)
globals().update(_made)
l1, l2, l1_l2 = _made["L1"], _made["L2"], _made["L1L2"]
orthogonal_regularizer = _made["OrthogonalRegularizer"]
get, deserialize, serialize = readers(Regularizer, _made)
