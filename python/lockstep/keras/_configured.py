"""Classes that the engine knows by name: their constructors are made of what it says their parameters are.

A layer, loss, metric, optimizer, ... is made from a configuration, as Keras' files hold it. So there is one way for all of
them: the arguments of the constructor become the configuration, and the engine reads it, checks it and fills in defaults.
"""

import inspect
import itertools

import numpy as np

from .. import _lockstep, dtypes
from ..tensor import is_tensor

_numbers = itertools.count(1)


def unique_name(kind):
    """A name for what is written in Python and has none: configurations hold names."""
    return f"python_{kind}_{next(_numbers)}"


def serialized(value, parameter=""):
    """A value of an argument as a configuration holds it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dtypes.DType):
        return value.name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_tensor(value):
        return value.numpy().tolist()
    if isinstance(value, (list, tuple)):
        return [serialized(part, parameter) for part in value]
    if isinstance(value, dict):
        return {str(key): serialized(part, parameter) for key, part in value.items()}
    if hasattr(value, "_by_reference"):  # a layer in a layer: that very one, not another like it
        return value._by_reference()
    if hasattr(value, "_serialized"):
        return value._serialized()
    if inspect.isclass(value) and hasattr(value, "_kind"):
        return serialized(value())
    if callable(value):
        return _registered(value, parameter)
    raise TypeError(f"{parameter or 'an argument'}: {value!r} cannot be part of a configuration")


_registrations = {}


def _registered(function, parameter):
    """A function of Python under a name that the engine can be told."""
    known = getattr(function, "_lockstep_activation", None)
    if known is not None:
        return known
    kind = "initializer" if parameter.endswith("initializer") else "activation" if "activation" in parameter else None
    if kind is None:
        raise TypeError(f"{parameter}: a function is taken where an activation or an initializer is, received {function!r}")
    key = (kind, id(function))
    if key not in _registrations:
        name = unique_name(kind)
        if kind == "initializer":
            _lockstep.register_initializer(name, lambda shape, dtype: function(shape, dtype=dtype))
        else:
            _lockstep.register_activation(name, function)
        _registrations[key] = (name, function)  # the function stays, so that its id does
    name = _registrations[key][0]
    return {"class_name": name, "config": {}} if kind == "initializer" else name


def parameters(kind, class_name):
    """Names and defaults of the constructor's parameters; None: not listed."""
    return _lockstep.parameters(kind, class_name)


def configuration(kind, class_name, args, kwargs, first=()):
    """The arguments of a constructor as a configuration. `first`: names that stand before all others in Keras' signature."""
    known = parameters(kind, class_name) or {}
    order = [name for name in first if name in known] + [name for name in known if name not in first]
    if len(args) > len(order):
        raise TypeError(f"{class_name}() takes at most {len(order)} positional arguments, {len(args)} were given")
    config = {}
    for name, value in zip(order, args):
        if name in kwargs:
            raise TypeError(f"{class_name}() got several values for argument {name!r}")
        config[name] = serialized(value, name)
    for name, value in kwargs.items():
        config[name] = serialized(value, name)
    return {name: value for name, value in config.items() if not (name in ("name", "dtype") and value is None)}


def signature(kind, class_name, first=()):
    """The signature of a constructor, for help() and editors."""
    known = parameters(kind, class_name) or {}
    order = [name for name in first if name in known] + [name for name in known if name not in first]
    kind_of = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter("self", kind_of)] +
                             [inspect.Parameter(name, kind_of, default=known[name]) for name in order] +
                             [inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])


def classes(kind, base, module, first=lambda name: (), skip=()):
    """A class for every name that the engine knows of this kind."""
    made = {}
    for class_name in _lockstep.class_names(kind):
        if class_name in skip or not class_name[:1].isupper():
            continue
        made[class_name] = _class(kind, class_name, base, module, first(class_name))
    return made


def _class(kind, class_name, base, module, first):
    def __init__(self, *args, **kwargs):
        self._make(class_name, configuration(kind, class_name, args, self._own(kwargs), first))
    __init__.__signature__ = signature(kind, class_name, first)
    known = parameters(kind, class_name) or {}
    doc = f"Keras' {class_name}. Parameters: {', '.join(known) or 'none'}."
    return type(class_name, (base,), {"__init__": __init__, "__doc__": doc, "__module__": module, "_kind": kind,
                                      "_class_name": class_name})


class Configured:
    """What is a configuration and nothing else: initializers, regularizers, constraints."""
    _kind = None

    def _own(self, kwargs):
        return kwargs

    def _make(self, class_name, config):
        self._config = _lockstep.checked_config(self._kind, {"class_name": class_name, "config": config})

    def _serialized(self):
        return self._config

    def get_config(self):
        return dict(self._config["config"])

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __repr__(self):
        return f"<{type(self).__name__} {self.get_config()}>"
