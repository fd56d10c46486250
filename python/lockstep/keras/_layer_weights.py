"""The weights of layers, and the layers inside that have some."""

import inspect

from .. import _lockstep, dtypes
from .._lockstep import Variable
from ..ops import _sizes
from ..tensor import convert_to_tensor
from ._configured import serialized
from ._engine_objects import same_objects, variables_by_number, wrapped
from .backend import standardize_dtype
from .random import SeedGenerator


class Weights:
    """What a layer holds."""

    def __setattr__(self, name, value):
        if "_handle" in self.__dict__ and self._is_written and name not in type(self).__dict__:
            self._hold(value)
        elif "_handle" not in self.__dict__ and isinstance(value, (Weights, Variable)):
            raise RuntimeError(f"{type(self).__name__}: call super().__init__() before layers and variables become attributes")
        descriptor = getattr(type(self), name, None)
        if isinstance(descriptor, property) and descriptor.fset is None:
            self.__dict__[name] = value
            raise AttributeError(f"{type(self).__name__}.{name} cannot be set")
        object.__setattr__(self, name, value)

    def _hold(self, value):
        """Layers and variables in attributes are part of this one."""
        if isinstance(value, Weights):
            if value._handle.key not in self._held and value is not self:
                self._held.add(value._handle.key)
                self._handle.hold_layer(value._handle)
        elif isinstance(value, Variable):
            variables_by_number.setdefault(value._id, value)
            if ("variable", value._id) not in self._held:
                self._held.add(("variable", value._id))
                self._handle.hold_variable(value)
        elif isinstance(value, (list, tuple)):
            for part in value:
                self._hold(part)
        elif isinstance(value, dict):
            for part in value.values():
                self._hold(part)

    def add_weight(self, *args, **kwargs):
        """A weight of this layer: add_weight(shape, initializer, dtype, trainable, ..., name=)."""
        if args and isinstance(args[0], str):  # Keras 2: the name first
            return self._add_weight(*args[1:], name=args[0], **kwargs)
        return self._add_weight(*args, **kwargs)

    def _add_weight(self, shape=None, initializer=None, dtype=None, trainable=True, autocast=True, regularizer=None,
                    constraint=None, aggregation=None, name=None, **kwargs):
        if initializer is None and dtype is not None and not dtypes.as_dtype(standardize_dtype(dtype)).is_floating:
            initializer = "zeros"
        variable = self._handle.add_weight(name or "variable", _sizes(shape if shape is not None else ()), dtype,
                                           _initializer(initializer), serialized(regularizer), serialized(constraint),
                                           bool(trainable))
        self._held.add(("variable", variable._id))
        return variables_by_number.setdefault(variable._id, variable)

    add_variable = add_weight

    @property
    def submodules(self):
        """The layers inside, and those inside of them."""
        inside = self._inside()
        return tuple(inside) + tuple(layer for part in inside for layer in part.submodules)

    def _inside(self):
        return [wrapped(handle) for handle in self._handle.layers()]

    @property
    def weights(self):
        return same_objects(self._handle.weights())

    @property
    def variables(self):
        """The weights, and the states of generators of random numbers in attributes, of this layer and those inside."""
        return self.weights + [generator.state for generator in self._generators()]

    def _generators(self):
        own = [part for value in vars(self).values() for part in (value if isinstance(value, (list, tuple)) else (value,))
               if isinstance(part, SeedGenerator)]
        found = own + [generator for layer in self._inside() for generator in layer._generators()]
        return list({id(generator): generator for generator in found}.values())

    @property
    def trainable_weights(self):
        return same_objects(self._handle.trainable_weights())

    trainable_variables = trainable_weights

    @property
    def non_trainable_weights(self):
        return same_objects(self._handle.non_trainable_weights())

    @property
    def non_trainable_variables(self):
        return self.non_trainable_weights + [generator.state for generator in self._generators()]

    def get_weights(self):
        return [weight.numpy() for weight in self._handle.weights()]

    def set_weights(self, weights):
        self._handle.set_weights([convert_to_tensor(weight) for weight in weights])

    def _own_weights(self):
        inside = {weight._id for layer in self._inside() for weight in layer.weights}
        return [weight for weight in self.weights if weight._id not in inside]

    def count_params(self):
        return self._handle.count_params()


# The order in which layers list their weights, by what their initializers are called.
_BEGIN = ("embeddings", "depthwise", "pointwise", "kernel", "recurrent", "bias", "gamma", "beta", "moving_mean", "moving_variance")
_LEFT_OUT = {"bias": "use_bias", "gamma": "scale", "beta": "center"}


def beginning_with(class_name, config, weights):
    """Initializers by name for a layer that begins with these weights: weights=[...], as Keras 2 had it for all layers."""
    from . import initializers
    known = _lockstep.parameters("layer", class_name)
    names = [f"{name}_initializer" for name in _BEGIN if f"{name}_initializer" in known and config.get(_LEFT_OUT.get(name), True)]
    weights = weights if isinstance(weights, (list, tuple)) else [weights]
    if len(names) != len(weights):
        raise ValueError(f"{class_name}: weights are a list of {len(names)} arrays, received {len(weights)}")
    return {name: initializers.Given(value, config.get(name, known[name])) for name, value in zip(names, weights)}


def with_rules(weight, name, config):
    """A weight of the engine's, with its constraint and its regularizer as Keras' weights have them."""
    from . import constraints, regularizers
    weight.constraint, weight.regularizer = constraints.get(config.get(f"{name}_constraint")), regularizers.get(config.get(f"{name}_regularizer"))
    return weight


def _initializer(initializer):
    from . import initializers
    if initializer is None:
        return "glorot_uniform"
    if isinstance(initializer, (str, dict)):
        return initializer
    if inspect.isclass(initializer):
        initializer = initializer()
    return initializer._serialized() if isinstance(initializer, initializers.Initializer) else initializer
