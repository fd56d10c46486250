"""keras.layers: functions with weights."""

import re
import warnings

from .. import _lockstep
from .._lockstep import KerasTensor  # noqa: F401
from . import _convolutions, _lambdas, _preprocessing, _recurrent, saving
from ._configured import classes
from ._keras_tensor import Input, is_keras_tensor  # noqa: F401
from ._engine_objects import wrapped  # noqa: F401
from ._input_spec import InputSpec  # noqa: F401
from ._layer import Layer  # noqa: F401
from ._texts import HashedCrossing, Hashing, StringLookup, TextVectorization  # noqa: F401


class Lambda(Layer):
    """A function as a layer. Files hold it by the function's name; of a lambda, which has none, its bytecode, which is read with
    safe_mode=False alone."""

    def __init__(self, function, output_shape=None, mask=None, arguments=None, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.__dict__["function"] = function
        self.__dict__["arguments"] = arguments or {}
        self.__dict__["_output_shape"], self.__dict__["_mask"] = output_shape, mask
        if mask is not None:
            self.supports_masking = True

    def call(self, *args, **kwargs):
        return self.function(*args, **{**self.arguments, **kwargs})

    def compute_output_shape(self, input_shape):
        """As it was said, or as the function makes it."""
        if self._output_shape is None:
            return Layer.compute_output_shape(self, input_shape)
        if callable(self._output_shape):
            return self._output_shape(input_shape)
        return (input_shape[0], *self._output_shape)

    def compute_output_spec(self, *args, **kwargs):
        return super().compute_output_spec(*args, **kwargs) if self._output_shape is not None else self(*args, **kwargs)

    def compute_mask(self, inputs, mask=None):
        return self._mask(inputs, mask) if callable(self._mask) else self._mask

    def _mask_for_engine(self, inputs, masks, results):
        return None if self._mask is None else super()._mask_for_engine(inputs, masks, results)

    def get_config(self):
        kept = {name: _function_in_file(getattr(self, place))
                for name, place in (("function", "function"), ("output_shape", "_output_shape"), ("mask", "_mask"))
                if getattr(self, place) is not None}
        return {**super().get_config(), **kept, "arguments": self.arguments}

    @classmethod
    def from_config(cls, config, custom_objects=None, safe_mode=None):
        with saving.custom_object_scope(custom_objects), _lambdas.safe_mode(safe_mode):
            config = _lambda_of_now(config)
            made = {name: saving.deserialize_keras_object(value) if name in ("function", "output_shape", "mask", "arguments") else value
                    for name, value in config.items()}
        return cls(**made)


def _function_in_file(function):
    """Keras has a form of its own for the lambda of a layer."""
    if not _lambdas.is_lambda(function):
        return saving.serialize_keras_object(function)
    names = ("code", "defaults", "closure")
    return {"class_name": "__lambda__", "config": dict(zip(names, saving.serialize_keras_object(_lambdas.written(function))))}


def _lambda_of_now(config):
    """The configuration of a Lambda of Keras 2, which says beside its functions what they are, as Keras 3 has it."""
    config = dict(config)
    for name in ("function", "output_shape", "mask"):
        kind = config.pop(f"{name}_type", None)
        config.pop("module" if name == "function" else f"{name}_module", None)
        if kind == "lambda":
            config[name] = {"class_name": "__lambda__", "config": {"value": config[name]}}
        elif kind == "function":
            config[name] = {"class_name": "function", "config": config[name]}
    return config


class Wrapper(Layer):
    """A layer around another one: to derive from."""

    def __init__(self, layer, **kwargs):
        if not isinstance(layer, Layer):
            raise ValueError(f"{type(self).__name__}: takes a layer, received {layer!r}")
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, input_shape=None):
        if not self.layer.built:
            self.layer.build(input_shape)

    def get_config(self):
        return {**super().get_config(), "layer": saving.serialize_keras_object(self.layer)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        with saving.custom_object_scope(custom_objects):
            return cls(**{**config, "layer": saving.deserialize_keras_object(config["layer"])})


class InputLayer(Layer):
    """A model's input as the first layer of a Sequential."""

    def __init__(self, shape=None, batch_size=None, dtype=None, sparse=None, ragged=None, batch_shape=None, input_tensor=None,
                 optional=False, name=None, input_shape=None, batch_input_shape=None, **kwargs):
        if input_shape is not None:
            warnings.warn("Argument `input_shape` is deprecated. Use `shape` instead.", stacklevel=2)
        self.__dict__["_tensor"] = Input(shape if shape is not None else input_shape, batch_size, dtype, sparse, ragged, name=name,
                                         tensor=input_tensor, batch_shape=batch_shape if batch_shape is not None else batch_input_shape)
        self._take(_lockstep.Layer.of_input(self._tensor))

    sparse = ragged = False
    batch_shape = property(lambda self: tuple(self._tensor.shape))
    dtype = property(lambda self: self._tensor.dtype.name)

    def call(self):
        """Nothing is computed."""

    @property
    def _tensor(self):
        """The value that it stands for; of a model that the engine made, that of the model."""
        return self.__dict__["_tensor"] if "_tensor" in self.__dict__ else self._ends()[1][0]

    @property
    def input(self):
        return self._tensor

    @property
    def output(self):
        return self._tensor


def _known_to_files(cls):
    """Of the layers that files name as Keras' own, one that is written in Python."""
    def made_of(config):
        made = cls.from_config(config)
        saving.keep(made)
        return made._handle
    _lockstep.register_keras_layer(cls.__name__, made_of)


_known_to_files(Lambda)

_engine_classes = classes("layer", Layer, __name__,
                         skip=("Lambda", "InputLayer", "Functional", "Sequential", "StringLookup", "TextVectorization", "Hashing",
                               "HashedCrossing"),
                         bases={"IntegerLookup": _preprocessing.OfIntegers, "Discretization": _preprocessing.OfBins,
                                "CategoryEncoding": _preprocessing.OfCategories,
                                "Normalization": _preprocessing.OfStatistics,
                                **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), _convolutions.OfConv),
                                **dict.fromkeys(("LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells"), _recurrent.OfCell),
                                **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN"), _recurrent.OfCells),
                                **dict.fromkeys(("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"), _recurrent.WithStates),
                                "Bidirectional": _recurrent.OfBoth})
globals().update(_engine_classes)


# Layers that need no input to be complete.
for _name in list(globals()):
    if re.fullmatch(
        r"(Global)?(Average|Max)Pooling[123]D|Adaptive\w+|Cropping[123]D|ZeroPadding[123]D|UpSampling[123]D|Softmax|ReLU|LeakyReLU|ELU|"
        r"Masking|Activation|ActivityRegularization|Dropout|SpatialDropout[123]D|Gaussian\w+|AlphaDropout|Flatten|RepeatVector|Identity|"
        r"UnitNormalization|Rescaling|Resizing|CenterCrop|Random\w+|CategoryEncoding", _name):
        globals()[_name]._needs_no_input = True
RNN, StackedRNNCells = _recurrent.classes(globals()["RNN"], globals()["StackedRNNCells"])


def _embedding_own(self, kwargs):
    kwargs = dict(kwargs)
    length = kwargs.pop("input_length", None)
    size = kwargs.pop("input_dim", None)
    kwargs = Layer._own(self, kwargs)
    if size is not None:
        kwargs["input_dim"] = size
    if length is not None:
        self.__dict__["_input_shape_given"] = [int(length)]
    return kwargs


globals()["Embedding"]._own = globals()["ReversibleEmbedding"]._own = _embedding_own  # their input_dim is a setting, not a shape
MaxPool1D, MaxPool2D, MaxPool3D = globals()["MaxPooling1D"], globals()["MaxPooling2D"], globals()["MaxPooling3D"]
AvgPool1D, AvgPool2D, AvgPool3D = globals()["AveragePooling1D"], globals()["AveragePooling2D"], globals()["AveragePooling3D"]
for _name in ("1D", "2D", "3D"):
    globals()[f"GlobalMaxPool{_name}"] = globals()[f"GlobalMaxPooling{_name}"]
    globals()[f"GlobalAvgPool{_name}"] = globals()[f"GlobalAveragePooling{_name}"]
    globals()[f"Convolution{_name}"] = globals()[f"Conv{_name}"]
    globals()[f"Convolution{_name}Transpose"] = globals()[f"Conv{_name}Transpose"]
SeparableConvolution1D, SeparableConvolution2D = globals()["SeparableConv1D"], globals()["SeparableConv2D"]
GroupedQueryAttention = globals()["GroupQueryAttention"]


def _merging(name):
    def merge(inputs, **kwargs):
        return globals()[name](**kwargs)(inputs)
    merge.__name__, merge.__doc__ = name.lower(), f"{name}()(inputs)."
    return merge


add, subtract, multiply, average = _merging("Add"), _merging("Subtract"), _merging("Multiply"), _merging("Average")
maximum, minimum = _merging("Maximum"), _merging("Minimum")


def concatenate(inputs, axis=-1, **kwargs):
    """Concatenate(axis)(inputs)."""
    return globals()["Concatenate"](axis=axis, **kwargs)(inputs)


def dot(inputs, axes=-1, **kwargs):
    """Dot(axes)(inputs)."""
    return globals()["Dot"](axes=axes, **kwargs)(inputs)


# Layers that are made of keras.ops, which know the layers above.
from ._audio import MelSpectrogram, STFTSpectrogram  # noqa: E402,F401
from ._images import ContrastLimitedAdaptiveHistogramEqualization, MaxNumBoundingBoxes  # noqa: E402,F401
from ._pipeline import Pipeline  # noqa: E402,F401

for _made_of_ops in (MelSpectrogram, STFTSpectrogram, ContrastLimitedAdaptiveHistogramEqualization, MaxNumBoundingBoxes, Pipeline):
    _known_to_files(_made_of_ops)


def deserialize(config, custom_objects=None):
    """A layer from its configuration."""
    with saving.custom_object_scope(custom_objects):
        return wrapped(_lockstep.Layer.deserialize(config))


def serialize(layer):
    """A configuration of it."""
    return saving.serialize_keras_object(layer)
