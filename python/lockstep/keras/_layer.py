"""Layer: what all layers of Python are, those of the engine and those that are written in Python."""

import functools
import inspect
import itertools
import pathlib
import re
import tempfile
import threading
import weakref

import numpy as np

from .. import _lockstep, dtypes, nest, ops
from .._lockstep import KerasTensor, Tensor, Variable
from ..ops import _sizes
from ..tensor import TensorShape, convert_to_tensor, is_tensor
from . import saving, tree
from ._configured import serialized
from ._keras_tensor import Input
from .backend import standardize_dtype
from .random import SeedGenerator

_objects = weakref.WeakValueDictionary()  # the object of Python for a layer of the engine
_variables = weakref.WeakValueDictionary()  # the object of Python for a variable, by its number
_CALL_OPTIONS = ("training", "mask", "attention_mask", "initial_state", "use_causal_mask", "return_attention_scores")


# Attributes of objects of the front, which files do not know.
_FRONT = ("_handle", "_local", "_held", "_input_shape_given", "_weights_given", "_symbolic", "_sequential", "_compiled", "_strategy",
          "_made_with", "_objects", "_called_layers", "_last_output", "_structure_of_inputs", "_structure_of_results")


def same_objects(variables):
    """Variables of the engine as those objects of Python that somebody holds already: a list of them equals itself."""
    return [_variables.setdefault(variable._id, variable) for variable in variables]


def wrapped(handle):
    """The object of Python for a layer of the engine."""
    self = handle.python_self
    if self is not None:
        return self
    found = _objects.get(handle.key)
    if found is None:
        from . import models
        if handle.class_name == "Sequential":
            cls, handle = models.Sequential, _lockstep.Sequential.of(handle)
        elif handle.class_name == "Functional" or isinstance(handle, _lockstep.Model):
            cls = models.Model
        else:
            from . import layers
            cls = layers._engine_classes.get(handle.class_name, getattr(layers, handle.class_name, None))
            cls = cls if inspect.isclass(cls) and issubclass(cls, Layer) and not is_operation(handle) else Layer
        found = cls.__new__(cls)
        found._take(handle)
    return found


def is_operation(handle):
    """Whether a layer of the engine stands for an op between layers."""
    return handle.module.startswith(("keras.src.ops.", "keras.src.activations.", "lockstep."))


class Layer:
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
            given = _initial(class_name, config, given)  # which the engine keeps, once it has read the configuration
            config = {**config, **{name: rule._serialized() for name, rule in given.items()}}
        self._take(_lockstep.Layer.deserialize({"class_name": class_name, "config": config}))
        if type(self).call is not Layer.call or type(self).build is not Layer.build:
            # A class of Python derived from one of the engine's: its call() may use the engine's by super().call().
            inner = self._handle
            self.__dict__["_inner"] = inner
            saving.make_known(type(self))
            self._take(_lockstep.Layer.written(self, type(self).__name__, config.get("name") or "", True, "", None, True))
            self._handle.hold_layer(inner)

    def _take(self, handle):
        self.__dict__["_handle"] = handle
        self.__dict__["_local"] = threading.local()
        self.__dict__.setdefault("_held", set())
        self.__dict__.setdefault("_input_shape_given", None)
        self.__dict__.setdefault("_weights_given", None)
        _objects[handle.key] = self

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

    def compute_mask(self, inputs, mask=None):
        """The mask of the result."""
        if self._is_written:
            return None
        if self._handle.takes_list:
            _check_masks(inputs, mask)
        leaves = nest.flatten(inputs)
        masks = [None if one is None else ops.cast(convert_to_tensor(one), dtypes.bool)
                 for one in (mask if isinstance(mask, (list, tuple)) else [mask])]
        if all(one is None for one in masks):
            by_value = self._handle.class_name in ("Masking", "Embedding", "ReversibleEmbedding")
            if not by_value or any(isinstance(leaf, KerasTensor) for leaf in leaves):
                return None
        masks += [None] * (len(leaves) - len(masks))
        made = self._handle.compute_mask([_known_or_zeros(leaf, one) for leaf, one in zip(leaves, masks)], masks)
        return made[0] if made else None

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        if cls._class_name is None and cls.get_config is Layer.get_config:  # they are its configuration
            made.__dict__["_arguments"] = (args, kwargs)
        return made

    def _arguments_by_name(self):
        """What a class without a get_config() was made with; None: no configuration can hold it."""
        args, kwargs = self.__dict__.get("_arguments") or ((), {})
        try:
            bound = inspect.signature(type(self)).bind(*args, **kwargs)
        except TypeError:
            return None
        given = {name: value for name, value in bound.arguments.items() if bound.signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD}
        given.update(next((value for name, value in bound.arguments.items() if name not in given), {}))
        simple = (bool, int, float, str, dict, list, tuple, type(None), np.number)
        return given if all(isinstance(leaf, simple) or hasattr(leaf, "get_config") for leaf in nest.flatten(given)) else None

    def get_config(self):
        if self._is_written:
            policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": self._handle.dtype_policy}, "registered_name": None}
            config = {"name": self.name, "trainable": self.trainable, "dtype": policy}
            if "_inner" in self.__dict__:
                config = {**self._inner.get_config(), **config}
            if type(self).get_config is not Layer.get_config or type(self).__init__ is Layer.__init__ or "_inner" in self.__dict__:
                return config
            # A class that says nothing of its own: the arguments of its constructor, and of these here those that it takes.
            parameters = inspect.signature(type(self)).parameters
            takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
            given = self._arguments_by_name()
            if given is None:
                raise NotImplementedError(f"{type(self).__name__} takes arguments that no configuration holds, and defines no get_config()")
            return {**(config if takes_all else {name: value for name, value in config.items() if name in parameters}), **given}
        config = {"name": self.name, "trainable": self.trainable, **self._handle.get_config()}
        if config.get("activity_regularizer", "") is None:
            del config["activity_regularizer"]
        return {name: _tuples(value) if name in _SIZES else value for name, value in config.items()}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        with saving.custom_object_scope(custom_objects):
            return cls(**config)

    # --- calls of the engine ---

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

    def _note_results(self, result):
        """Of a dictionary of results: predict() gives one, too."""
        if isinstance(result, dict):
            self.__dict__["_structure_of_results"] = nest.map_structure(lambda leaf: None, result)

    def _as_given(self, inputs):
        """The first argument of call(): one input, or all of them, in a dictionary where the data comes in one."""
        structure = self.__dict__.get("_structure_of_inputs", "_structure_of_results")
        if structure is not None and len(structure) == len(inputs):
            return nest.pack_sequence_as(structure, inputs)
        return inputs[0] if len(inputs) == 1 else inputs

    def _built_without_call(self, shapes):
        """Somebody wants the weights, and build() makes none."""

    def _stored_names(self, keys):
        """Where Keras' files keep the layers inside: under the names of the attributes that hold them."""
        places = {self._inner.key: "."} if "_inner" in self.__dict__ else {}

        def visit(value, path):
            if isinstance(value, Layer):
                places.setdefault(value._handle.key, path)
            elif isinstance(value, (list, tuple, dict)):
                used = {}
                for part in value.values() if isinstance(value, dict) else value:
                    if isinstance(part, (Layer, list, tuple, dict)):
                        name = _in_files(type(part).__name__) if isinstance(part, Layer) else "container"
                        count = used[name] = used.get(name, -1) + 1
                        visit(part, f"{path}/{name}" + (f"_{count}" if count else ""))
        for name in sorted(vars(self)):
            if not name.startswith("__") and name not in _FRONT:
                visit(vars(self)[name], name)
        return [places[key] for key in keys] if all(key in places for key in keys) else None

    def _config_for_engine(self):
        return saving._plain(self.get_config())

    def _call_for_engine(self, inputs, training, masks, form):
        form = form or getattr(self._local, "form", None)
        self._local.form = None
        args, kwargs = ((self._as_given(inputs),), {}) if form is None else form.filled(inputs)
        named = _call_parameters(type(self))
        if "training" in named and "training" not in kwargs and len(args) <= named.index("training"):
            kwargs["training"] = training
        if "mask" in named and "mask" not in kwargs and any(mask is not None for mask in masks):
            kwargs["mask"] = masks[0] if len(masks) == 1 else masks
        result = self.call(*args, **kwargs)
        self._local.result = result
        self._note_results(result)
        return [convert_to_tensor(leaf) for leaf in nest.flatten(result) if leaf is not None]

    def _mask_for_engine(self, inputs, masks, results):
        if type(self).compute_mask is Layer.compute_mask:
            return None
        made = self.compute_mask(inputs[0] if len(inputs) == 1 else inputs, masks[0] if len(masks) == 1 else masks)
        return list(made) if isinstance(made, (list, tuple)) else [made] * results

    # --- calling ---

    def __call__(self, *args, **kwargs):
        return self._call_with(args, kwargs)

    def _call_with(self, args, kwargs):
        if not self._is_written:
            return self._apply(self._handle, args, kwargs)
        options = {}
        if "training" in kwargs:
            training = kwargs["training"]
            if training is not None:
                options["training"] = bool(training)
            if "training" not in _call_parameters(type(self)) or training is None:
                kwargs = {key: value for key, value in kwargs.items() if key != "training"}
        if args and isinstance(args[0], (list, tuple)) and _of_numbers(args[0]):
            args = (convert_to_tensor(args[0]),) + args[1:]  # numbers in lists
        leaves = nest.flatten((args, kwargs))
        leaves = [convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        if args and isinstance(args[0], (int, float)) and not isinstance(args[0], bool):
            leaves[0] = convert_to_tensor(leaves[0])
        if any(isinstance(leaf, KerasTensor) for leaf in leaves):
            return self._call_of_model(*nest.pack_sequence_as((args, kwargs), leaves), options)
        self._local.form = form = _Form(args, kwargs, leaves, Tensor)
        try:
            return self._unpacked(self._handle.apply([leaves[place] for place in form.places], options))
        finally:
            self._local.form = None

    def _call_of_model(self, args, kwargs, options):
        """A call with values of a model that is being put together."""
        leaves = nest.flatten((args, kwargs))
        self._local.form = form = _Form(args, kwargs, leaves, KerasTensor)
        inputs = [leaves[place] for place in form.places]
        if self._says_all(args, kwargs):
            self._local.form = None
        else:
            options = {**options, "form": form.without_inputs()}
        try:
            return self._unpacked(self._drawn(inputs, self._handle.apply_symbolic(inputs, options)))
        finally:
            self._local.form = None

    # Whether the inputs are arguments of their own in files, not one list.
    _inputs_are_arguments = False

    def _says_all(self, args, kwargs):
        """Whether a call is one of inputs alone, in a list where there are several."""
        if kwargs or len(args) != 1:
            return False
        several = isinstance(args[0], (list, tuple)) and len(args[0]) > 1
        return all(isinstance(part, (KerasTensor, _Place)) for part in (args[0] if several else args))

    def _form_of_file(self, args, kwargs):
        """A call that a file holds, with {"input": i} in place of its inputs; None: inputs and options say all."""
        args = _with_places(saving.deserialize_keras_object(args))
        kwargs = {name: _with_places(saving.deserialize_keras_object(value)) for name, value in kwargs.items() if value is not None}
        alone = {name: value for name, value in kwargs.items() if name != "training"}
        return None if self._says_all(args, alone) else _Form(args, kwargs, nest.flatten((args, kwargs)), _Place)

    def _unpacked(self, flat):
        """The results in the structure that call() gave them."""
        result = getattr(self._local, "result", None)
        self._local.result = None
        parts = iter(flat)
        if not nest.is_nested(result):
            return next(parts) if flat else None
        return nest.map_structure(lambda leaf: None if leaf is None else next(parts), result)

    def _apply(self, handle, args, kwargs):
        """A layer of the engine: its inputs, and what a call may say beside them."""
        options, inputs = {}, list(args)
        if handle.class_name == "ReversibleEmbedding":
            inputs = [_for_embedding(x, handle, kwargs.get("reverse", False)) for x in inputs]
            kwargs = {name: value for name, value in kwargs.items() if name != "reverse"}
        if len(inputs) == 2 and not handle.inputs_are_arguments and not handle.takes_list and not isinstance(handle, _lockstep.Model):
            mask = inputs.pop()  # layer(x, mask)
            if mask is not None:
                options["mask"] = mask
        for name in ("inputs", "query", "value", "key", "sequences", "x"):
            if name in kwargs and kwargs[name] is not None:
                inputs.append(kwargs[name])
        for name, value in kwargs.items():
            if name in _CALL_OPTIONS:
                options[name] = convert_to_tensor(value) if isinstance(value, (np.ndarray, list)) and name != "initial_state" else value
                if name == "mask" and is_tensor(options[name]) and options[name].dtype is not dtypes.bool:
                    options[name] = ops.cast(options[name], dtypes.bool)
                if name in ("use_causal_mask", "return_attention_scores") and value is not None:
                    options[name] = bool(value)
            elif name not in ("inputs", "query", "value", "key", "sequences", "x"):
                raise TypeError(f"{handle.class_name} \"{handle.name}\" takes no argument {name!r} when it is called")
        if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) and not handle.takes_list and _of_numbers(inputs[0]):
            inputs = [convert_to_tensor(inputs[0])]
        leaves = nest.flatten(inputs)
        if isinstance(handle, _lockstep.Model) and len(inputs) == 1 and isinstance(inputs[0], dict):
            leaves = [inputs[0][name] for name in handle.input_names()]
        if not leaves:
            raise TypeError(f"{handle.class_name} \"{handle.name}\" takes inputs")
        if "initial_state" in options and options["initial_state"] is not None:
            options["initial_state"] = nest.flatten(options["initial_state"])
        if options.get("training") is not None:
            options["training"] = bool(options["training"])
        if any(isinstance(leaf, KerasTensor) for leaf in leaves):
            results = self._drawn(leaves, handle.apply_symbolic(leaves, options))
        else:
            results = handle.apply(leaves, options)
        if handle.class_name == "Functional" and self.__dict__.get("_output_structure") is not None:
            return nest.pack_sequence_as(self._output_structure, results)
        return results[0] if len(results) == 1 else results if isinstance(handle, _lockstep.Model) else tuple(results)

    # --- parts ---

    def __setattr__(self, name, value):
        if "_handle" in self.__dict__ and self._is_written and name not in type(self).__dict__:
            self._hold(value)
        elif "_handle" not in self.__dict__ and isinstance(value, (Layer, Variable)):
            raise RuntimeError(f"{type(self).__name__}: call super().__init__() before layers and variables become attributes")
        descriptor = getattr(type(self), name, None)
        if isinstance(descriptor, property) and descriptor.fset is None:
            self.__dict__[name] = value
            raise AttributeError(f"{type(self).__name__}.{name} cannot be set")
        object.__setattr__(self, name, value)

    def _hold(self, value):
        """Layers and variables in attributes are part of this one."""
        if isinstance(value, Layer):
            if value._handle.key not in self._held and value is not self:
                self._held.add(value._handle.key)
                self._handle.hold_layer(value._handle)
        elif isinstance(value, Variable):
            _variables.setdefault(value._id, value)
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
        return _variables.setdefault(variable._id, variable)

    add_variable = add_weight

    @property
    def submodules(self):
        """The layers inside, and those inside of them."""
        inside = self._inside()
        return tuple(inside) + tuple(layer for part in inside for layer in part.submodules)

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

    def load_own_variables(self, store):
        """Weights of this layer alone, by number, as files of Keras have them."""
        own = self._own_weights()
        if len(store) != len(own):
            raise ValueError(f"layer \"{self.name}\" has {len(own)} weights, {len(store)} were given"
                             + ("" if self.built else "; it is not built yet"))
        for number, weight in enumerate(own):
            weight.assign(store[str(number)])

    def _own_weights(self):
        inside = {weight._id for layer in self._inside() for weight in layer.weights}
        return [weight for weight in self.weights if weight._id not in inside]

    def save_own_variables(self, store):
        """The same, the other way."""
        for number, weight in enumerate(self._own_weights()):
            store[str(number)] = weight.numpy()

    def count_params(self):
        return self._handle.count_params()

    @property
    def losses(self):
        return self._handle.losses()

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

    def _inside(self):
        return [wrapped(handle) for handle in self._handle.layers()]

    @property
    def compute_dtype(self):
        return self._handle.compute_dtype.name

    @property
    def variable_dtype(self):
        return self._handle.variable_dtype.name

    def compute_output_shape(self, *input_shape, **named):
        """The shape of the result for inputs of these shapes."""
        given = [shape for shape in (*input_shape, *named.values()) if shape is not None]
        shapes = [Input(batch_shape=tuple(shape)) for one in given for shape in _shape_leaves(one)]
        several = len(shapes) > 1 and not (self._handle.inputs_are_arguments and len(given) > 1)
        result = self(shapes) if several or self._handle.takes_list else self(*shapes)
        return nest.map_structure(lambda t: tuple(t.shape), result)

    def compute_output_spec(self, *args, **kwargs):
        """The result for values of a model, which says its shape and dtype."""
        if type(self).compute_output_shape is Layer.compute_output_shape:
            return self(*args, **kwargs)
        shapes = [nest.map_structure(lambda value: tuple(value.shape), arg) for arg in args]
        return tree.map_shape_structure(lambda shape: KerasTensor(shape, self.compute_dtype), self.compute_output_shape(*shapes))

    @property
    def metrics_variables(self):
        return [variable for metric in self.metrics for variable in metric.variables]

    def build_from_config(self, config):
        """Makes the weights as a file says that they were made."""
        if config:
            shape = config.get("input_shape", config.get("shapes_dict", config))
            self.build(**shape) if isinstance(shape, dict) and "shapes_dict" in config else self.build(shape)

    def get_build_config(self):
        """The shapes of the inputs that it was built for."""
        _, named = self.__dict__.get("_built_with", ((), {}))
        if named:
            return {"shapes_dict": {name: _plain_shape(shape) for name, shape in named.items()}}
        shapes = [tuple(None if size is not None and size < 0 else size for size in shape) for shape in self._handle.build_shapes]
        return {"input_shape": shapes[0] if len(shapes) == 1 else shapes} if shapes else None

    def _build_config_for_engine(self):
        return None if self._inputs_are_arguments else saving.serialize_keras_object(self.get_build_config())

    def _build_of_file(self, config):
        self.build_from_config(saving.deserialize_keras_object(config))
        if not self._handle.built:  # its weights were made in another way than by build()
            self._local.is_made = True
            self._handle.build([])

    # --- what a class keeps in files in its own way ---

    @property
    def _keeps_values(self):
        own = type(self)
        return own.save_own_variables is not Layer.save_own_variables or own.load_own_variables is not Layer.load_own_variables

    def _values_for_file(self):
        store = {}
        self.save_own_variables(store)
        return {str(name): convert_to_tensor(value) for name, value in store.items()}

    def _values_of_file(self, values):
        self.load_own_variables({name: value.numpy() for name, value in values.items()})

    @property
    def _keeps_files(self):
        return hasattr(self, "save_assets") and hasattr(self, "load_assets")

    def _files_for_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.save_assets(folder)
            files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def _files_of_file(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.load_assets(folder)

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
                    return _with_rules(weight, name, config)
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

    @property
    def _name_in_files(self):
        return saving.make_known(type(self))

    def _serialized_for_file(self):
        return self._handle.serialize()

    def _form_as_activation(self):
        """What a layer has in its configuration whose activation this one is; None: it is written in Python, a function like others."""
        return None if self._is_written else {"module": "keras.layers", "registered_name": None, **self._handle.serialize()}

    def _by_reference(self):
        return {"class_name": "PythonReference", "config": {"key": self._handle.key}}

    # --- where it stands in a model that is put together ---

    def _drawn(self, inputs, outputs):
        """Notes a call with values of a model; whoever holds the outputs holds this object too."""
        self.__dict__["_symbolic"] = (inputs, outputs)
        for output in outputs:
            output._layer = self
        return outputs

    def _ends(self):
        """What it was called with last, and what came of it."""
        model = self.__dict__.get("_sequential")
        if "_symbolic" not in self.__dict__ and model is not None and model() is not None:
            model()._call_layers()
        if "_symbolic" not in self.__dict__:
            raise AttributeError(f"layer \"{self.name}\" was not called with a value of a model yet")
        return self._symbolic

    @property
    def input(self):
        inputs = self._ends()[0]
        return inputs[0] if len(inputs) == 1 else inputs

    @property
    def output(self):
        outputs = self._ends()[1]
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def input_shape(self):
        return nest.map_structure(lambda tensor: tuple(tensor.shape), self.input)

    @property
    def output_shape(self):
        return nest.map_structure(lambda tensor: tuple(tensor.shape), self.output)

    def __reduce__(self):
        return _unpickled, (saving.serialize_keras_object(self), self.get_build_config() if self.built else None, self.get_weights())

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def _unpickled(form, build, weights):
    made = saving.deserialize_keras_object(form)
    if build is not None:
        made.build_from_config(build)
    if weights:
        made.set_weights(weights)
    return made


# Settings that are tuples in Keras' configurations.
_SIZES = ("kernel_size", "strides", "dilation_rate", "pool_size", "output_size", "target_shape", "cropping", "padding", "size", "dims",
          "noise_shape", "factor", "height_factor", "width_factor")


# The order in which layers list their weights, by what their initializers are called.
_BEGIN = ("embeddings", "depthwise", "pointwise", "kernel", "recurrent", "bias", "gamma", "beta", "moving_mean", "moving_variance")
_LEFT_OUT = {"bias": "use_bias", "gamma": "scale", "beta": "center"}


def _initial(class_name, config, weights):
    """Initializers by name for a layer that begins with these weights: weights=[...], as Keras 2 had it for all layers."""
    from . import initializers
    known = _lockstep.parameters("layer", class_name)
    names = [f"{name}_initializer" for name in _BEGIN if f"{name}_initializer" in known and config.get(_LEFT_OUT.get(name), True)]
    weights = weights if isinstance(weights, (list, tuple)) else [weights]
    if len(names) != len(weights):
        raise ValueError(f"{class_name}: weights are a list of {len(names)} arrays, received {len(weights)}")
    return {name: initializers.Given(value, config.get(name, known[name])) for name, value in zip(names, weights)}


def _with_rules(weight, name, config):
    """A weight of the engine's, with its constraint and its regularizer as Keras' weights have them."""
    from . import constraints, regularizers
    weight.constraint, weight.regularizer = constraints.get(config.get(f"{name}_constraint")), regularizers.get(config.get(f"{name}_regularizer"))
    return weight


def _for_embedding(x, handle, reverse):
    """Numbers of rows, or what scores of all rows are made of: the engine tells them apart by their dtype."""
    if isinstance(x, KerasTensor):
        return x
    x = convert_to_tensor(x)
    if reverse:
        return x if x.dtype.is_floating else ops.cast(x, handle.compute_dtype)
    return ops.cast(x, dtypes.int32) if x.dtype.is_floating else x


def _check_masks(inputs, mask):
    """Of a layer that merges: a mask for every input."""
    if mask is None:
        return
    if not isinstance(mask, (list, tuple)):
        raise ValueError("`mask` should be a list.")
    if not isinstance(inputs, (list, tuple)):
        raise ValueError("`inputs` should be a list.")
    if len(mask) != len(inputs):
        raise ValueError("The lists `inputs` and `mask` should have the same length.")


def _known_or_zeros(value, mask):
    """A value of a model that is being put together as zeros of the mask's sizes, where it leaves sizes open."""
    if not isinstance(value, KerasTensor):
        return convert_to_tensor(value)
    sizes = () if mask is None else mask.shape
    return _lockstep.ops.full([(sizes[i] if i < len(sizes) else 1) if size is None else size for i, size in enumerate(value.shape)], 0.0,
                              value.dtype)


def _tuples(value):
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _policy_name(dtype):
    if dtype is None:
        return ""
    if isinstance(dtype, dict):  # of a file
        return dtype["config"]["name"]
    return dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or dtypes.as_dtype(dtype).name


def _of_numbers(value):
    """Whether lists hold numbers, and no tensors."""
    leaves = nest.flatten(value)
    return bool(leaves) and all(isinstance(leaf, (bool, int, float, np.number)) for leaf in leaves)


def _initializer(initializer):
    from . import initializers
    if initializer is None:
        return "glorot_uniform"
    if isinstance(initializer, (str, dict)):
        return initializer
    if inspect.isclass(initializer):
        initializer = initializer()
    return initializer._serialized() if isinstance(initializer, initializers.Initializer) else initializer


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


def shapes_in(values):
    """The shapes among arguments of build(), as the engine takes them."""
    shapes = [value for value in values if isinstance(value, (list, tuple, dict))]
    return [_sizes(shape) for given in shapes for shape in _shape_leaves(given)]


def _plain_shape(shape):
    return [_plain_shape(part) for part in shape] if isinstance(shape, (list, tuple)) else shape


def _shape_leaves(shape):
    """One shape, or several in a list or a dictionary."""
    if isinstance(shape, dict):
        return [leaf for part in shape.values() for leaf in _shape_leaves(part)]
    if isinstance(shape, TensorShape) or all(size is None or isinstance(size, (int, np.integer)) for size in shape):
        return [shape]
    return [leaf for part in shape for leaf in _shape_leaves(part)]


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


_parameters_of_call = {}


def _call_parameters(cls):
    if cls not in _parameters_of_call:
        _parameters_of_call[cls] = [name for name in inspect.signature(cls.call).parameters if name != "self"]
    return _parameters_of_call[cls]


# A configuration that names a layer which is there already.
_lockstep.register_object("layer", "PythonReference", lambda config: _objects[config["key"]]._handle)


def _in_files(class_name):
    """Keras' rule for names of classes in files."""
    name = re.sub(r"\W+", "", class_name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


class _Form:
    """How a layer was called: arguments in their structure, some of whose leaves are its inputs."""

    def __init__(self, args, kwargs, leaves, of_inputs):
        self.args, self.kwargs, self._leaves = args, kwargs, leaves
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, of_inputs)]
        if of_inputs is _Place:
            self.places.sort(key=lambda place: leaves[place].number)

    def without_inputs(self):
        """The same for those who give the inputs anew: it holds no values of the model."""
        args, kwargs = self.filled([_Place(i) for i in range(len(self.places))])
        return _Form(args, kwargs, nest.flatten((args, kwargs)), _Place)

    def filled(self, inputs):
        """(args, kwargs) with these inputs."""
        leaves = list(self._leaves)
        for place, value in zip(self.places, inputs):
            leaves[place] = value
        return nest.pack_sequence_as((self.args, self.kwargs), leaves)

    def written(self, inputs):
        """As files hold it, with what stands there for the inputs."""
        args, kwargs = self.filled([_Written(form) for form in inputs])
        return {"args": [saving.serialize_keras_object(arg) for arg in args], "kwargs": saving.serialize_keras_object(kwargs)}


class _Place:
    """Where an input stands in a form."""

    def __init__(self, number):
        self.number = number


class _Written:
    """An input as a file holds it."""

    def __init__(self, form):
        self._serialized_for_file = lambda: form


def _with_places(value):
    """Arguments of a file with places for the inputs."""
    if isinstance(value, dict):
        number = value.get("input") if len(value) == 1 else None
        return _Place(number) if type(number) is int else {key: _with_places(part) for key, part in value.items()}
    return type(value)(_with_places(part) for part in value) if type(value) in (list, tuple) else value
