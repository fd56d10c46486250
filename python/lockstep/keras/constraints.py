"""keras.constraints: what weights are pulled back to after every update."""

from .. import _lockstep
from ._configured import Configured, classes


class Constraint(Configured):
    _kind = "constraint"

    def __call__(self, w):
        return _lockstep.constrain(self._serialized(), w)


_made = classes("constraint", Constraint, __name__)
globals().update(_made)
max_norm, non_neg, unit_norm, min_max_norm = _made["MaxNorm"], _made["NonNeg"], _made["UnitNorm"], _made["MinMaxNorm"]


def get(identifier):
    if identifier is None or isinstance(identifier, Constraint):
        return identifier
    made = Constraint.__new__(Constraint)
    made._config = _lockstep.checked_config("constraint", identifier)
    return made
