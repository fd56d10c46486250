"""Layer: what all layers of Python are, those of the engine and those that are written in Python."""

import functools
import inspect
import itertools
import threading

import numpy as np

from .. import _lockstep, dtypes, nest
from ..ops import _sizes
from ..tensor import TensorShape, convert_to_tensor, is_tensor
from . import saving
from ._configured import serialized
from ._engine_objects import objects, same_objects, wrapped
from ._layer_calls import Calls
from ._layer_files import InFiles
from ._layer_weights import Weights, beginning_with, with_rules
from ._shapes import shapes_in


# What a class says of itself where it is kept in files.
_OF_FILES = ("get_config", "from_config", "get_build_config", "build_from_config", "save_own_variables", "load_own_variables", "save_assets",
             "load_assets")


class Layer(Calls, Weights, InFiles):
    """A function with weights. Derive from it and define build() and call() to write one."""

    _kind = "layer"
    _class_name = None

    @property
    def supports_masking(self):
        """Whether the mask of the input is that of the result."""
        return self.__dict__.get("_supports_masking", False) if self._is_written else self._handle.supports_masking

    @supports_masking.setter
    def supports_masking(self, value):
        self.__dict__["_supports_masking"] = bool(value)

    def reset_state(self):
        """The states of stateful layers, of this one and inside of it, become zeros."""
        self._handle.reset_states()

    reset_states = reset_state  # Keras 2's name

    def __init__(self, *, activity_regularizer=None, trainable=True, dtype=None, autocast=True, name=None, **kwargs):
        self._own(kwargs)
        if kwargs:
            raise TypeError(f"{type(self).__name__}: unknown arguments {', '.join(kwargs)}")
        self.__dict__["autocast"] = bool(autocast)
        saving.make_known(type(self))
        self._take(_lockstep.Layer.written(self, type(self).__name__, name or "", bool(trainable), _policy_name(dtype),
                                           serialized(activity_regularizer), bool(autocast)))

    def _own(self, kwargs):
        """Takes out what is the front's: the shape of the input, which a Sequential begins with."""
        shape = kwargs.pop("input_shape", None)
        batch_shape = kwargs.pop("batch_input_shape", None) or kwargs.pop("batch_shape", None)
        size = kwargs.pop("input_dim", None)
        length = kwargs.pop("input_length", None)
        if batch_shape is not None:
            shape = batch_shape[1:]
        if size is not None:
            shape = (size,) if length is None else (length, size)
        elif length is not None and shape is None:
            shape = (length,)
        for unused in ("autocast", "use_cudnn"):
            kwargs.pop(unused, None)
        if type(self)._class_name == "LeakyReLU" and "alpha" in kwargs:  # Keras 2's name
            kwargs["negative_slope"] = kwargs.pop("alpha")
        self.__dict__["_input_shape_given"] = None if shape is None else _sizes(shape)
        self.__dict__["_weights_given"] = kwargs.pop("weights", None)
        return kwargs

    def _make(self, class_name, config):
        given = self.__dict__.pop("_weights_given", None)
        if given is not None:
            given = beginning_with(class_name, config, given)  # which the engine keeps, once it has read the configuration
            config = {**config, **{name: rule._serialized() for name, rule in given.items()}}
        self._take(_lockstep.Layer.deserialize({"class_name": class_name, "config": config}))
        own = type(self).call is not Layer.call or type(self).build is not Layer.build
        if own or _has_files_of_its_own(type(self)) and not self._handle.inputs_are_arguments and not self._handle.takes_list:
            # A class of Python derived from one of the engine's: its call() may use the engine's by super().call(), and files know its class.
            inner = self._handle
            self.__dict__["_inner"] = inner
            saving.make_known(type(self))
            self._take(_lockstep.Layer.written(self, type(self).__name__, config.get("name") or "", True, "", None, True))
            self._handle.hold_layer(inner)
            if not own:  # what the engine's does with masks is what this one does
                self.supports_masking = inner.supports_masking

    def _take(self, handle):
        self.__dict__["_handle"] = handle
        self.__dict__["_local"] = threading.local()
        self.__dict__.setdefault("_held", set())
        self.__dict__.setdefault("_input_shape_given", None)
        self.__dict__.setdefault("_weights_given", None)
        objects[handle.key] = self

    @property
    def _is_written(self):
        return self._handle.python_self is not None

    @property
    def _training_by_default(self):
        """What call() takes `training` to be where nobody says."""
        default = inspect.signature(type(self).call).parameters.get("training")
        return default.default if default is not None and isinstance(default.default, bool) else None

    # --- what a class of Python's own defines ---

    def build(self, *input_shape, **named):
        """Makes the weights, by add_weight()."""
        inner = self.__dict__.get("_inner")
        handle = inner if inner is not None else None if self._is_written else self._handle
        if handle is not None:
            handle.build(shapes_in((*input_shape, *named.values())))
        if inner is not None:  # they are those of this layer
            for weight in inner.weights():
                self._hold(weight)

    _engine_build = build  # a class with another one makes its weights itself

    def call(self, *args, **kwargs):
        """Computes the result."""
        handle = self.__dict__.get("_inner")
        if handle is None:
            if self._is_written:
                raise NotImplementedError(f"{type(self).__name__} defines no call()")
            handle = self._handle
        return self._apply(handle, args, kwargs)

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        if cls._class_name is None and cls.get_config is InFiles.get_config:  # they are its configuration
            made.__dict__["_arguments"] = (args, kwargs)
        return made

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("build")
        if inspect.isfunction(own) and own is not vars(cls).get("_engine_build"):
            cls.build = _by_engine(own)

    def _build_for_engine(self, shapes):
        if self._local.__dict__.pop("is_made", False):
            return
        shapes = [TensorShape(shape) for shape in shapes]
        form = getattr(self._local, "form", None)
        if type(self).build is type(self)._engine_build and "_inner" not in self.__dict__:
            if form is None:
                self._built_without_call(shapes)
            return
        args, kwargs = self._local.__dict__.pop("build_arguments", None) or self._build_arguments(shapes, form)
        self.__dict__["_built_with"] = args, kwargs
        self._local.building = True
        try:
            self.build(*args, **kwargs)
        finally:
            self._local.building = False

    def _build_arguments(self, shapes, form):
        """What build() is called with: the shape of the first argument of call(), or those of the arguments that it names, as x_shape."""
        if form is None:
            return (self._as_given(shapes),), {}
        parameters = list(inspect.signature(type(self).build).parameters.values())[1:]
        if sum(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters) > 1:
            args, kwargs = form.filled(shapes)
            given = inspect.signature(type(self).call).bind(self, *args, **kwargs).arguments
            named = {f"{name}_shape": value for name, value in given.items()}
            missing = [one.name for one in parameters if one.default is one.empty and one.name not in named]
            if missing:
                raise ValueError(f"{type(self).__name__}.build() takes {', '.join(missing)}: of several arguments each is called like one of "
                                 f"call() with _shape behind it; call() was given {', '.join(given)}")
            return (), {one.name: named[one.name] for one in parameters if one.name in named}
        first = form.args[0] if form.args else None
        return (nest.pack_sequence_as(first, shapes[:len(nest.flatten(first))]) if nest.is_nested(first) else shapes[0],), {}

    def _built_without_call(self, shapes):
        """Somebody wants the weights, and build() makes none."""

    # --- parts ---

    def add_loss(self, loss):
        """A scalar that is added to the loss of the step."""
        for one in nest.flatten(loss):
            self._handle.add_loss(one)

    def adapt(self, data, batch_size=None, steps=None):
        """Learns from data before training: an array, or batches, of which `steps` may say how many."""
        from .. import ops
        batches = batches_of(data, steps)
        for batch in batches:
            if isinstance(batch, (int, float)):
                raise TypeError(f"{type(self).__name__}.adapt: takes arrays, which have a `.shape`, received {batch!r}")
        batches = [convert_to_tensor(batch) for batch in batches]
        if not batches:
            raise ValueError(f"{type(self).__name__}.adapt: there is no data to learn from")
        _lockstep.Layer.adapted(self._handle, ops.concat(batches, 0) if len(batches) > 1 else batches[0])

    @property
    def name(self):
        return self._handle.name

    @property
    def path(self):
        return self._handle.path

    @property
    def built(self):
        return self._handle.built or type(self).__dict__.get("_needs_no_input", False)

    @built.setter
    def built(self, value):
        pass  # the engine knows

    @property
    def trainable(self):
        return self._handle.trainable

    @trainable.setter
    def trainable(self, value):
        self._handle.trainable = bool(value)

    @property
    def losses(self):
        """Penalties of weights, and what add_loss() was given. In a replica the whole of them, as in TensorFlow:
        tf.nn.scale_regularization_loss() makes shares of them, which add up over the replicas."""
        shares = self._handle.losses()
        if _lockstep.num_replicas_in_sync() == 1:
            return shares
        share_of = _lockstep.ops.scale_regularization_loss
        return [loss / share_of(_lockstep.ops.full([], 1.0, loss.dtype)) for loss in shares]

    @property
    def dtype(self):
        return self._handle.variable_dtype.name

    @property
    def dtype_policy(self):
        from . import DTypePolicy
        return DTypePolicy(self._handle.dtype_policy)

    @dtype_policy.setter
    def dtype_policy(self, value):
        raise AttributeError(f"{type(self).__name__}.dtype_policy cannot be set to {getattr(value, 'name', value)!r}: give the layer "
                             "dtype= when it is made")

    autocast = True

    @property
    def metrics(self):
        """Of this layer and those inside."""
        from .metrics import Metric
        own = [value for value in vars(self).values() if isinstance(value, Metric)]
        return own + [metric for layer in self._inside() for metric in layer.metrics]

    @property
    def compute_dtype(self):
        return self._handle.compute_dtype.name

    @property
    def variable_dtype(self):
        return self._handle.variable_dtype.name

    @property
    def metrics_variables(self):
        return [variable for metric in self.metrics for variable in metric.variables]

    def __getattr__(self, name):
        if isinstance(getattr(type(self), name, None), property):
            raise AttributeError(f"layer \"{self.name}\" has no {name}: it was not called with a value of a model yet")
        # Settings of the engine's layers, and their weights by name: layer.units, layer.kernel.
        if name.startswith("_") or "_handle" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        handle = self.__dict__.get("_inner", None if self._is_written else self._handle)
        if handle is not None:
            config = handle.get_config()
            for weight in same_objects(handle.weights()):
                if weight._name.rsplit("/", 1)[-1] == name and weight._name.count("/") <= handle.path.count("/") + 1:
                    return with_rules(weight, name, config)
            inside = handle.stored_names()
            if name in inside:  # query_dense, forward_layer, cell
                return wrapped(handle.layers()[inside.index(name)])
            if name in config:
                value = config[name]
                if name == "layer" and isinstance(value, dict):  # of a Bidirectional: the one forwards
                    return wrapped(handle.layers()[0])
                kind = name.rsplit("_", 1)[-1]
                if kind in ("initializer", "regularizer", "constraint"):
                    from . import constraints, initializers, regularizers
                    return {"initializer": initializers, "regularizer": regularizers, "constraint": constraints}[kind].get(value)
                if name.endswith("activation") and isinstance(value, (str, dict)):
                    from . import activations
                    return activations.get(value)
                return tuple(value) if isinstance(value, list) else value
            if name in ("bias", "kernel", "embeddings", "gamma", "beta"):
                return None
        raise AttributeError(f"{type(self).__name__} \"{self.name}\" has no attribute {name!r}")

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def _has_files_of_its_own(cls):
    """Whether a class that is derived from one of the engine's says how it is kept in files."""
    derived = itertools.takewhile(lambda base: "_class_name" not in vars(base), cls.__mro__)
    return any(name in vars(base) for base in derived for name in _OF_FILES)


def _policy_name(dtype):
    if dtype is None:
        return ""
    if isinstance(dtype, dict):  # of a file
        return dtype["config"]["name"]
    return dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or dtypes.as_dtype(dtype).name


def _by_engine(build):
    """A build() of Python that the engine hears of when somebody calls it."""
    @functools.wraps(build)
    def told(self, *args, **kwargs):
        if getattr(self._local, "building", False) or self._handle.built:
            build(self, *args, **kwargs)
            return
        self._local.build_arguments = args, kwargs
        try:
            self._handle.build(shapes_in((*args, *kwargs.values())))
        finally:
            self._local.__dict__.pop("build_arguments", None)
    return told


def batches_of(data, steps=None):
    """What a layer adapts to, as batches: arrays are one, of (x, y) it is x."""
    from .utils import PyDataset
    if isinstance(data, PyDataset):
        batches = (data[number] for number in range(len(data)))
    elif (hasattr(data, "_handle") or hasattr(data, "__next__")) and not is_tensor(data):
        batches = iter(data)
    elif isinstance(data, list) and data and isinstance(data[0], (np.ndarray, tuple)):
        batches = iter(data)
    else:
        return [data]
    return [batch[0] if isinstance(batch, tuple) else batch for batch in itertools.islice(batches, steps)]
