"""keras.constraints: what weights are pulled back to after every update."""

from .. import _lockstep
from ._configured import Configured, classes, readers


class Constraint(Configured):
    """Derive from it and define __call__(w) to write one."""
    _kind = "constraint"

    def __call__(self, w):
        if self._engine_form() is None:
            return w
        return _lockstep.constrain(self._engine_form(), w)


_made = classes("constraint", Constraint, __name__)
globals().update(_made)
max_norm, non_neg, unit_norm, min_max_norm = _made["MaxNorm"], _made["NonNeg"], _made["UnitNorm"], _made["MinMaxNorm"]
get, deserialize, serialize = readers(Constraint, _made)
