"""keras.activations."""

from .. import _lockstep, nn, ops

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
    if identifier in _lockstep.activation_names():
        return globals()[identifier]
    return _named(identifier)


def serialize(activation):
    return getattr(activation, "_lockstep_activation", activation.__name__)


deserialize = get
