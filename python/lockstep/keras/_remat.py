"""keras.RematScope and keras.remat: what layers compute on the way is computed again in the backward pass."""

import functools

from .. import _lockstep, nest
from .._lockstep import KerasTensor
from ..function import _recomputing

_MODES = ("full", "activations", "larger_than", "list_of_layers", None)


class RematScope:
    """Layers that are made inside of it recompute: all ("full"), their activations alone, those with larger results, or those of these
    names. Training takes more time and holds less memory; its numbers are the same bits."""

    def __init__(self, mode="full", output_size_threshold=1024, layer_names=None):
        if mode not in _MODES:
            raise ValueError(f"RematScope: mode is one of {', '.join(repr(known) for known in _MODES)}, received {mode!r}")
        self.mode, self.output_size_threshold, self.layer_names = mode, int(output_size_threshold), list(layer_names or ())
        self._context = _lockstep.RematContext(mode, self.output_size_threshold, self.layer_names)

    def __enter__(self):
        self._context.enter()
        return self

    def __exit__(self, *_):
        self._context.exit()


def remat(f):
    """A function, of layers too, that keeps nothing of what it computes on the way for its gradient."""
    recomputed = _recomputing(_lockstep.remat)(f)

    @functools.wraps(f)
    def called(*args, **kwargs):
        symbolic = any(isinstance(leaf, KerasTensor) for leaf in nest.flatten((args, kwargs)))
        return f(*args, **kwargs) if symbolic else recomputed(*args, **kwargs)
    return called
