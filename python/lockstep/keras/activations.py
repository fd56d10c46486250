"""keras.activations."""

from .. import _lockstep, nn, ops
from ..tensor import convert_to_tensor
from . import saving
from ._configured import written_activation
from ._operations import op

_ops = _lockstep.ops


def _named(name):
    def activation(x):
        return x if name == "linear" else _lockstep.activate(name, x)
    activation.__name__ = activation.__qualname__ = name
    activation.__doc__ = f"The activation {name!r}."
    activation = activation if name == "linear" else op(activation)
    activation._lockstep_activation = name
    return activation


@op
def relu(x, negative_slope=0.0, max_value=None, threshold=0.0):
    """max(x, 0); with a slope below the threshold, and cut off at max_value."""
    return _ops.relu_with(x, float(negative_slope), -1.0 if max_value is None else float(max_value), float(threshold))


@op
def softmax(x, axis=-1):
    """Positive numbers along the axis, or the axes, that sum to 1; None: along all."""
    return _over_axes(nn.softmax, x, axis)


@op
def log_softmax(x, axis=-1):
    """log(softmax(x))."""
    return _over_axes(nn.log_softmax, x, axis)


@op
def sparsemax(x, axis=-1):
    """The nearest numbers along the axis that are not negative and sum to 1."""
    x = convert_to_tensor(x)
    if axis in (-1, x.ndim - 1):
        return _lockstep.activate("sparsemax", x)
    return _ops.moveaxis(_lockstep.activate("sparsemax", _ops.moveaxis(x, [axis], [-1])), [-1], [axis])


def _over_axes(function, x, axis):
    """A function along one axis, or along several that are joined."""
    if isinstance(axis, int):
        return function(x, axis=axis)
    x = convert_to_tensor(x)
    axes = [a % x.ndim for a in axis] if axis is not None else list(range(x.ndim))
    kept = [a for a in range(x.ndim) if a not in axes]
    order = kept + axes
    moved = _ops.transpose(x, order)
    flat = function(_ops.reshape(moved, list(moved.shape[:len(kept)]) + [-1]), axis=-1)
    return _ops.transpose(_ops.reshape(flat, list(moved.shape)), [order.index(i) for i in range(x.ndim)])


@op
def leaky_relu(x, negative_slope=0.2):
    """x, and negative_slope * x below 0."""
    return _ops.leaky_relu(x, float(negative_slope))


@op
def elu(x, alpha=1.0):
    """x, and alpha * (exp(x) - 1) below 0."""
    return _ops.elu(x, float(alpha))


@op
def celu(x, alpha=1.0):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    return _ops.celu(x, float(alpha))


@op
def gelu(x, approximate=False):
    """x times the normal distribution of x; by tanh, where an approximation is asked for."""
    return _ops.gelu(x, bool(approximate))


@op
def glu(x, axis=-1):
    """One half of the axis times the sigmoid of the other."""
    return _ops.glu(x, int(axis))


@op
def hard_shrink(x, threshold=0.5):
    """x, and 0 in [-threshold, threshold]."""
    return _ops.hard_shrink(x, float(threshold))


@op
def soft_shrink(x, threshold=0.5):
    """x moved towards 0 by the threshold."""
    return _ops.soft_shrink(x, float(threshold))


@op
def threshold(x, threshold, default_value):
    """x above the threshold, else the default."""
    return _ops.threshold(x, float(threshold), float(default_value))


@op
def squareplus(x, b=4):
    """(x + sqrt(x ** 2 + b)) / 2."""
    return _ops.squareplus(x, float(b))


for _name in _lockstep.activation_names():
    if _name not in globals():
        globals()[_name] = _named(_name)
    else:
        globals()[_name]._lockstep_activation = _name

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
