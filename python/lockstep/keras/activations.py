"""keras.activations."""

from .. import _lockstep, nn, ops
from . import saving
from ._configured import written_activation

_ops = _lockstep.ops


def _named(name):
    def activation(x):
        return _lockstep.activate(name, x)
    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = f"The activation {name!r}."
    activation._lockstep_activation = name
    return activation


for _name in _lockstep.activation_names():
    globals().setdefault(_name, _named(_name))

# TensorFlow's functions are known by the same names.
for _module in (nn, ops):
    for _name in _lockstep.activation_names():
        _function = getattr(_module, _name, None)
        if callable(_function):
            _function._lockstep_activation = _name
nn.softmax._lockstep_activation = "softmax"
ops.identity._lockstep_activation = "linear"


def get(identifier):
    """By name, or as it is; None is linear."""
    if identifier is None:
        return globals()["linear"]
    if callable(identifier):
        return identifier
    return deserialize(identifier)


def deserialize(config, custom_objects=None):
    """The function of a name or a configuration."""
    with saving.custom_object_scope(custom_objects):
        name = config["config"] if isinstance(config, dict) and config.get("class_name") == "function" else config
        if isinstance(name, dict):
            return saving.deserialize_keras_object(name)
        found = saving.known(name) or written_activation(name)
        if found is not None:
            return found
        if name in _lockstep.activation_names():
            return globals().setdefault(name, _named(name))
        raise ValueError(f"there is no activation {name!r}; there are {', '.join(_lockstep.activation_names())}")


def serialize(activation):
    """Its name, as files hold it."""
    known = getattr(activation, "_lockstep_activation", None)
    return known if known is not None else saving.serialize_keras_object(activation)
