"""Classes that the engine knows by name: their constructors are made of what it says their parameters are.

A layer, loss, metric, optimizer, ... is made from a configuration, as Keras' files hold it. So there is one way for all of
them: the arguments of the constructor become the configuration, and the engine reads it, checks it and fills in defaults.
"""

import inspect
import weakref
from types import MappingProxyType

import numpy as np

from .. import _lockstep, dtypes
from ..tensor import is_tensor
from . import saving
from ._positions import ordered
from .backend import image_data_format
from .random import SeedGenerator

def serialized(value, parameter=""):
    """A value of an argument as a configuration holds it."""
    if parameter == "axis" and isinstance(value, (dict, str)):
        raise TypeError(f"axis is an integer or a list of them, received {value!r}")
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
    if isinstance(value, SeedGenerator):
        return value.seed
    if "activation" in parameter and hasattr(value, "_form_as_activation"):
        form = value._form_as_activation()
        return _activation(value) if form is None else form
    if hasattr(value, "_by_reference"):  # a layer in a layer: that very one, not another like it
        return value._by_reference()
    if hasattr(value, "_serialized"):
        return value._serialized()
    if inspect.isclass(value) and hasattr(value, "_kind"):
        return serialized(value())
    if callable(value):
        known = getattr(value, "_lockstep_activation", None)
        if known is not None:
            return known
        return _activation(value) if "activation" in parameter else reference(value)
    raise TypeError(f"{parameter or 'an argument'}: {value!r} cannot be part of a configuration")


# --- what is written in Python -------------------------------------------------------------------------------------------

_live = weakref.WeakValueDictionary()
_activations = {}  # name -> function


def reference(value):
    """A configuration that means this very object. Whoever reads it keeps the object."""
    _live[id(value)] = value
    return {"class_name": "PythonReference", "config": {"key": id(value)}}


for _kind in ("initializer", "regularizer", "constraint", "schedule"):
    _lockstep.register_object(_kind, "PythonReference", lambda config: _live[config["key"]])


def _activation(function):
    """The name of a function among the engine's activations: its own, where that is free, as files hold it."""
    own = name = saving.get_registered_name(function) if hasattr(function, "__name__") else type(function).__name__
    number = 1
    def is_free():
        if name in _activations:
            return _activations[name] is function
        return name not in _lockstep.activation_names() or saving.get_registered_object(name) is function
    while not is_free():
        number += 1
        name = f"{own}_{number}"
    if name not in _activations:
        _activations[name] = function
        _lockstep.register_object("activation", name, function)
    return name


def written_activation(name):
    """The function of Python that the engine knows by this name; None: it is one of the engine's own."""
    return _activations.get(name)


# --- what the engine knows by name ---------------------------------------------------------------------------------------

def parameters(kind, class_name):
    """Names and defaults of the constructor's parameters; None: not listed."""
    return _lockstep.parameters(kind, class_name)


def by_name(class_name, order, args, kwargs):
    """The arguments of a call by their names, of which `order` has those that positions stand for."""
    if len(args) > len(order):
        raise TypeError(f"{class_name}() takes at most {len(order)} positional arguments, {len(args)} were given")
    for name in order[:len(args)]:
        if name in kwargs:
            raise TypeError(f"{class_name}() got several values for argument {name!r}")
    return {**dict(zip(order, args)), **kwargs}


def configuration(kind, class_name, arguments):
    """The arguments of a constructor as a configuration."""
    known = parameters(kind, class_name) or {}
    expected = (*known, *ordered(kind, class_name, known))
    # What the engine does not know and is not asked for, as somebody may say who counts positions.
    config = {name: serialized(value, name) for name, value in arguments.items()
              if name in known or name not in expected or (value is not None and value is not False)}
    if config.get("data_format") is None and "data_format" in known:
        config.pop("data_format", None)
        if image_data_format() != "channels_last":
            config["data_format"] = image_data_format()
    # Keras has None where the engine has an empty list.
    return {name: value for name, value in config.items() if not (value is None and (name in ("name", "dtype") or known.get(name) == []))}


def signature(kind, class_name):
    """The signature of a constructor, for help() and editors."""
    known = parameters(kind, class_name) or {}
    kind_of = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter("self", kind_of)] +
                             [inspect.Parameter(name, kind_of, default=known.get(name)) for name in ordered(kind, class_name, known)] +
                             [inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])


def classes(kind, base, module, skip=(), bases=MappingProxyType({})):
    """A class for every name that the engine knows of this kind; `bases` of those that have more than settings."""
    made = {}
    for class_name in _lockstep.class_names(kind):
        if class_name in skip or not class_name[:1].isupper():
            continue
        made[class_name] = _class(kind, class_name, bases.get(class_name, base), module)
    return made


def _class(kind, class_name, base, module):
    known = parameters(kind, class_name) or {}
    order = ordered(kind, class_name, known)

    def __init__(self, *args, **kwargs):
        self._make(class_name, configuration(kind, class_name, self._own(by_name(class_name, order, args, kwargs))))
    __init__.__signature__ = signature(kind, class_name)
    doc = f"Keras' {class_name}. Parameters: {', '.join(known) or 'none'}."
    return type(class_name, (base,), {"__init__": __init__, "__doc__": doc, "__module__": module, "_class_name": class_name})


class Configured:
    """What files hold as a class and its configuration: initializers, regularizers, constraints, schedules, losses, metrics,
    optimizers. One of the engine's is made of its configuration; a class that is written in Python says its own."""
    _kind = None

    def _own(self, kwargs):
        return kwargs

    def _make(self, class_name, config):
        self._config = _lockstep.checked_config(self._kind, {"class_name": class_name, "config": config})

    @property
    def _is_written(self):
        return "_class_name" not in vars(type(self))

    def _engine_form(self):
        """Class and configuration as the engine says them; None: it was not made by the engine."""
        return getattr(self, "_config", None)

    def _serialized(self):
        """As a part of another configuration."""
        return reference(self) if self._is_written else self._engine_form()

    def _serialized_for_file(self):
        if not self._is_written:
            return self._engine_form()
        name, config = saving.saved_form(self)
        return {"module": None if ">" in name else type(self).__module__, "class_name": type(self).__name__, "config": config,
                "registered_name": name}

    def get_config(self):
        """The arguments that make such a one again."""
        form = self._engine_form()
        return {} if form is None else dict(form["config"])

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __getattr__(self, name):
        # Settings of the engine's: regularizer.l2, optimizer.clipnorm.
        if not name.startswith("_") and not self._is_written:
            config = self._engine_form()["config"]
            if name in config:
                return config[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self):
        return saving.deserialize_keras_object, (self._serialized_for_file(),)

    def __repr__(self):
        return f"<{type(self).__name__} {self.get_config()}>"


def of_engine(base, known, form):
    """The object of Python for what the engine made of a name or a configuration."""
    made = known.get(form["class_name"], base)
    made = made.__new__(made)
    made._config = form
    return made


def readers(base, known):
    """get(), serialize() and deserialize() of a module of initializers, regularizers or constraints."""
    def get(identifier):
        """By name, by configuration, or as it is."""
        if identifier is None or isinstance(identifier, base):
            return identifier
        if inspect.isclass(identifier):
            return identifier()
        if callable(identifier):
            return identifier
        return deserialize(identifier)

    def deserialize(config, custom_objects=None):
        """What serialize() wrote, or a name."""
        with saving.custom_object_scope(custom_objects):
            name = config if isinstance(config, str) else config.get("registered_name") or config.get("class_name") \
                if isinstance(config, dict) else None
            if name is None:
                raise ValueError(f"a {base._kind} is a name, a configuration or an object, received {config!r}")
            found = saving.known(name)
            if found is not None:
                return found() if inspect.isclass(found) and isinstance(config, str) else \
                    found.from_config(config["config"]) if inspect.isclass(found) else found
            return of_engine(base, known, _lockstep.checked_config(base._kind, config))

    def serialize(obj):
        """A configuration of it."""
        return saving.serialize_keras_object(obj)
    return get, deserialize, serialize
