"""What layers do when they are called: with tensors, with values of a model that is put together, and by the engine."""

import inspect

import numpy as np

from .. import _lockstep, dtypes, nest, ops
from .._lockstep import KerasTensor, Tensor
from ..tensor import convert_to_tensor, is_tensor
from . import _input_spec, saving, tree
from ._engine_objects import ends_in
from ._keras_tensor import Input, mark_of
from ._shapes import shape_leaves

_CALL_OPTIONS = ("training", "mask", "attention_mask", "initial_state", "use_causal_mask", "return_attention_scores")
_MASKS = ("query_mask", "value_mask", "key_mask")


class Calls:
    """The calls of a layer."""

    # Whether it works on the host, before the engine's part of a model does: layers of texts.
    _on_host = False

    # Whether the inputs are arguments of their own in files, not one list.
    _inputs_are_arguments = False

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

    def _note_results(self, result):
        """Of a dictionary of results: predict() gives one, too."""
        if isinstance(result, dict):
            self.__dict__["_structure_of_results"] = nest.map_structure(lambda leaf: None, result)

    def _as_given(self, inputs):
        """The first argument of call(): one input, or all of them, in a dictionary where the data comes in one."""
        structure = self.__dict__.get("_structure_of_inputs")
        if structure is not None and len(structure) == len(inputs):
            return nest.pack_sequence_as(structure, inputs)
        return inputs[0] if len(inputs) == 1 else inputs

    def _call_for_engine(self, inputs, training, masks, form):
        form = form or getattr(self._local, "form", None)
        self._local.form = None
        args, kwargs = ((self._as_given(inputs),), {}) if form is None else form.filled(inputs)
        named = call_parameters(type(self))
        if "training" in named and "training" not in kwargs and len(args) <= named.index("training"):
            kwargs["training"] = training
        if "mask" in named and "mask" not in kwargs and any(mask is not None for mask in masks):
            kwargs["mask"] = masks[0] if len(masks) == 1 else masks
        if self.__dict__.get("input_spec") is not None and args:
            _input_spec.check(self, args[0])
        result = self.call(*args, **kwargs)
        self._local.result = result
        self._note_results(result)
        return [convert_to_tensor(leaf) for leaf in nest.flatten(result) if leaf is not None]

    def _mask_for_engine(self, inputs, masks, results):
        if type(self).compute_mask is Calls.compute_mask:
            return None
        made = self.compute_mask(inputs[0] if len(inputs) == 1 else inputs, masks[0] if len(masks) == 1 else masks)
        return list(made) if isinstance(made, (list, tuple)) else [made] * results

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
            if "training" not in call_parameters(type(self)) or training is None:
                kwargs = {key: value for key, value in kwargs.items() if key != "training"}
        if args and isinstance(args[0], (list, tuple)) and _of_numbers(args[0]):
            args = (convert_to_tensor(args[0]),) + args[1:]  # numbers in lists
        leaves = nest.flatten((args, kwargs))
        leaves = [convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        if args and isinstance(args[0], (int, float)) and not isinstance(args[0], bool):
            leaves[0] = convert_to_tensor(leaves[0])
        if any(isinstance(leaf, KerasTensor) for leaf in leaves):
            return self._call_of_model(*nest.pack_sequence_as((args, kwargs), leaves), options)
        self._local.form = form = Form(args, kwargs, leaves, Tensor)
        try:
            return self._unpacked(self._handle.apply([leaves[place] for place in form.places], options))
        finally:
            self._local.form = None

    def _call_of_model(self, args, kwargs, options):
        """A call with values of a model that is being put together."""
        leaves = nest.flatten((args, kwargs))
        self._local.form = form = Form(args, kwargs, leaves, KerasTensor)
        inputs = [leaves[place] for place in form.places]
        self._refuse_texts(inputs)
        if self._says_all(args, kwargs):
            self._local.form = None
        else:
            options = {**options, "form": form.without_inputs()}
        try:
            return self._unpacked(self._drawn(inputs, self._handle.apply_symbolic(inputs, options)))
        finally:
            self._local.form = None

    def _refuse_texts(self, values):
        """Of values of a model, those that stand for texts are for layers of texts."""
        text = next((value for value in values if mark_of(value) is not None), None)
        if text is not None and not self._on_host:
            raise TypeError(f'layer "{self.name}" ({type(self).__name__}) takes numbers, and the input "{text.name}" is one of texts: put a '
                            "TextVectorization, StringLookup, Hashing or HashedCrossing layer between them")

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
        if "training" not in call_parameters(type(self)):  # as Keras writes it, whose layers may take it where these here do not
            kwargs = alone
        return None if self._says_all(args, alone) else Form(args, kwargs, nest.flatten((args, kwargs)), _Place)

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
        if any(name in kwargs for name in _MASKS):  # of attention: one of every input
            kwargs = dict(kwargs)
            masks = [kwargs.pop(name, None) for name in _MASKS]
            if any(mask is not None for mask in masks):
                kwargs["mask"] = masks[:len(inputs)]
        for name, value in kwargs.items():
            if name == "mask" and isinstance(value, (list, tuple)) and not _of_numbers(value):
                options["masks"] = [one if one is None or isinstance(one, KerasTensor) else ops.cast(convert_to_tensor(one), dtypes.bool)
                                    for one in value]
            elif name in _CALL_OPTIONS:
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
            self._refuse_texts(leaves)
            results = self._drawn(leaves, handle.apply_symbolic(leaves, options))
        else:
            results = handle.apply(leaves, options)
        if handle.class_name == "Functional" and self.__dict__.get("_output_structure") is not None:
            return nest.pack_sequence_as(self._output_structure, results)
        return results[0] if len(results) == 1 else results if isinstance(handle, _lockstep.Model) else tuple(results)

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
        functional = self.__dict__.get("_functional")
        if "_symbolic" not in self.__dict__ and functional is not None and functional() is not None:
            return ends_in(functional(), self)
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

    def compute_output_shape(self, *input_shape, **named):
        """The shape of the result for inputs of these shapes."""
        given = [shape for shape in (*input_shape, *named.values()) if shape is not None]
        shapes = [Input(batch_shape=tuple(shape)) for one in given for shape in shape_leaves(one)]
        several = len(shapes) > 1 and not (self._handle.inputs_are_arguments and len(given) > 1)
        result = self(shapes) if several or self._handle.takes_list else self(*shapes)
        return nest.map_structure(lambda t: tuple(t.shape), result)

    def compute_output_spec(self, *args, **kwargs):
        """The result for values of a model, which says its shape and dtype."""
        if type(self).compute_output_shape is Calls.compute_output_shape:
            return self(*args, **kwargs)
        shapes = [nest.map_structure(lambda value: tuple(value.shape), arg) for arg in args]
        return tree.map_shape_structure(lambda shape: KerasTensor(shape, self.compute_dtype), self.compute_output_shape(*shapes))


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


def _of_numbers(value):
    """Whether lists hold numbers, and no tensors."""
    leaves = nest.flatten(value)
    return bool(leaves) and all(isinstance(leaf, (bool, int, float, np.number)) for leaf in leaves)


_parameters_of_call = {}


def call_parameters(cls):
    if cls not in _parameters_of_call:
        _parameters_of_call[cls] = [name for name in inspect.signature(cls.call).parameters if name != "self"]
    return _parameters_of_call[cls]


class Form:
    """How a layer was called: arguments in their structure, some of whose leaves are its inputs."""

    def __init__(self, args, kwargs, leaves, of_inputs):
        self.args, self.kwargs, self._leaves = args, kwargs, leaves
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, of_inputs)]
        if of_inputs is _Place:
            self.places.sort(key=lambda place: leaves[place].number)

    def without_inputs(self):
        """The same for those who give the inputs anew: it holds no values of the model."""
        args, kwargs = self.filled([_Place(i) for i in range(len(self.places))])
        return Form(args, kwargs, nest.flatten((args, kwargs)), _Place)

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
