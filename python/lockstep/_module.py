"""tf.Module: an object that holds variables."""

from ._lockstep import Iterator as _Iterator, Layer as _Layer, Optimizer as _Optimizer, Variable


def named_parts(value):
    """(name, part) of what holds variables inside of value; None: it is nothing that could."""
    if isinstance(value, Module):
        items = vars(value).items()
    elif isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif hasattr(value, "_objects"):  # a checkpoint in a checkpoint
        items = value._objects.items()
    else:
        return None
    parts = []
    for name, part in items:
        known = isinstance(part, (Variable, _Iterator)) or isinstance(getattr(part, "_handle", None), (_Layer, _Optimizer)) or \
            hasattr(part, "_generator")
        if known or named_parts(part):
            parts.append((str(name).lstrip("_"), part))
    return parts


def _variables(value):
    if isinstance(value, Variable):
        return [value]
    handle = getattr(value, "_handle", None)
    if isinstance(handle, _Layer):
        return list(handle.weights())
    found, seen = [], set()
    for _, part in named_parts(value) or ():
        for variable in _variables(part):
            if variable._id not in seen:
                seen.add(variable._id)
                found.append(variable)
    return found


class Module:
    """An object whose attributes are variables, or hold some."""

    def __init__(self, name=None):
        self._module_name = name or type(self).__name__.lower()

    @property
    def name(self):
        return self._module_name

    @property
    def variables(self):
        return tuple(_variables(self))

    @property
    def trainable_variables(self):
        return tuple(variable for variable in _variables(self) if variable.trainable)

    @property
    def non_trainable_variables(self):
        return tuple(variable for variable in _variables(self) if not variable.trainable)

    @property
    def submodules(self):
        inner = [part for _, part in named_parts(self) if isinstance(part, Module)]
        return tuple(inner) + tuple(module for part in inner for module in part.submodules)

    @classmethod
    def with_name_scope(cls, method):
        return method
