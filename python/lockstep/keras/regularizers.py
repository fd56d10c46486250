"""keras.regularizers: penalties on weights and activations."""

from .. import _lockstep
from ._configured import Configured, classes


class Regularizer(Configured):
    _kind = "regularizer"

    def __call__(self, x):
        return _lockstep.regularize(self._serialized(), x)


_made = classes("regularizer", Regularizer, __name__)
globals().update(_made)
l1, l2, l1_l2 = _made["L1"], _made["L2"], _made["L1L2"]


def get(identifier):
    if identifier is None or isinstance(identifier, Regularizer):
        return identifier
    made = Regularizer.__new__(Regularizer)
    made._config = _lockstep.checked_config("regularizer", identifier)
    return made
