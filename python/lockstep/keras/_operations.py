"""Operations: what keras.ops computes between the layers of a model, as a part of the model that files hold.

Keras' files know an op by a class, whose constructor takes its settings and whose call takes its values: ops.mean(x, axis=1) is
Mean(axis=1)(x). Of most ops the first argument is a value, and x2, and the others are settings.
"""

import functools
import inspect
from types import MappingProxyType

from .. import _lockstep, nest, ops as tf
from .._lockstep import KerasTensor
from . import saving
from ._keras_tensor import mark_as_texts, mark_of
from ._layer import Layer

# Classes that are not called like their functions.
_CLASSES = dict(pair.split("=") for pair in """
    allclose=AllClose batch_normalization=BatchNorm cdist=CDist ctc_decode=CTCDecode ctc_loss=CTCLoss extract_patches_3d=ExtractPatches
    fft2=FFT2 fft=FFT hsv_to_rgb=HSVToRGB ifft2=IFFT2 irfft=IRFFT isin=IsIn istft=ISTFT layer_normalization=LayerNorm psnr=PSNR rfft=RFFT
    rgb_to_grayscale=RGBToGrayscale rgb_to_hsv=RGBToHSV rms_normalization=RMSNorm searchsorted=SearchSorted ssim=SSIM stft=STFT
    svd=SVD""".split())
_MODULES = {"logdet": "ops.math", "slogdet": "ops.numpy"}  # of ops that are in another module here
# Values of ops that take others than the first one and x2, in the order of the class's call.
_VALUES = {name: values.split() for name, _, values in (line.strip().partition(" ") for line in """
    affine_transform images transform
    arange start stop step
    associative_scan f elems
    average x weights
    batch_normalization x mean variance offset scale
    binary_crossentropy target output
    bitwise_and x y
    bitwise_left_shift x y
    bitwise_or x y
    bitwise_right_shift x y
    bitwise_xor x y
    categorical_crossentropy target output
    cdist x y
    cond pred true_fn false_fn
    conv inputs kernel
    conv_transpose inputs kernel
    ctc_decode inputs sequence_lengths
    ctc_loss target output target_length output_length
    depthwise_conv inputs kernel
    digitize x bins
    dot_product_attention query key value bias mask scale
    einsum
    fori_loop init_val
    full fill_value
    full_like x fill_value
    geomspace start stop
    get_item x key
    in_top_k targets predictions
    isclose x1 x2 rtol atol
    layer_normalization x gamma beta
    left_shift x y
    linspace start stop
    logspace start stop
    lstsq a b
    map f xs
    map_coordinates inputs coordinates
    nanpercentile x q
    nanquantile x q
    pad x constant_values
    percentile x q
    perspective_transform images start_points end_points
    quantile x q
    right_shift x y
    rms_normalization x scale
    scale_and_translate images output_shape scale translation
    scan f init xs
    scatter indices values
    scatter_update inputs indices updates
    searchsorted sorted_sequence values
    segment_max data segment_ids
    segment_min data segment_ids
    segment_prod data segment_ids
    segment_sum data segment_ids
    select condlist choicelist default
    separable_conv inputs depthwise_kernel pointwise_kernel
    slice inputs start_indices
    slice_update inputs start_indices updates
    solve a b
    solve_triangular a b
    sparse_categorical_crossentropy target output
    ssim image1 image2
    switch index branches
    take x indices
    take_along_axis x indices
    vectorized_map elements
    where condition x1 x2
    while_loop loop_vars""".strip().splitlines())}

_NEEDS_ALL = ("batch_normalization",)  # Keras' classes of them have no defaults

# What takes texts as well, for it looks at no element.
_MOVE = {"ExpandDims": lambda x, axis: tf.expand_dims(x, axis), "Squeeze": lambda x, axis: tf.squeeze(x, axis),
         "Reshape": lambda x, newshape: tf.reshape(x, newshape), "GetItem": lambda x, key: x[tuple(key) if isinstance(key, list) else key]}

_of_ops = {}  # op -> what files call it
_of_classes = {}  # the class in files -> the same


class _Kind:
    """What files call an op, and which of its arguments are values."""

    def __init__(self, computed, name, module, class_name=None):
        self.class_name = class_name or _CLASSES.get(name) or "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        self.module = module
        self.function = getattr(computed, "__wrapped__", computed)
        self._name = name

    @functools.cached_property
    def _signature(self):
        return inspect.signature(self.function)

    def _name_of(self, kind):
        return next((one.name for one in self._signature.parameters.values() if one.kind is kind), None)

    @functools.cached_property
    def star(self):
        return self._name_of(inspect.Parameter.VAR_POSITIONAL)

    @functools.cached_property
    def named(self):
        return [one.name for one in self._signature.parameters.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]

    @functools.cached_property
    def values(self):
        if self._name in _VALUES:
            return _VALUES[self._name]
        return [] if self.star else [name for name in self.named if name in (self.named[0], "x2")]

    def split(self, args, kwargs):
        """The arguments of a call as (values in their order, values by name, settings)."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        values, rest = [given.pop(name) for name in self.values], given.pop(self.star, ())
        while not rest and values and values[-1] is None and self._name not in _NEEDS_ALL:
            values.pop()
        given.update(given.pop(self._name_of(inspect.Parameter.VAR_KEYWORD), {}))
        named = {name: value for name, value in given.items() if _is_of_model(value)}
        return (*values, *rest), named, {name: value for name, value in given.items() if name not in named}

    def settings(self, config):
        """Those of a file: what the function here does not take is left out, where it says nothing."""
        known = {name: value for name, value in config.items() if name in self.named}
        unknown = [name for name, value in config.items() if name not in known and value not in (None, False) and name != "name"]
        if unknown:
            raise NotImplementedError(f"{self.class_name} of a file has {', '.join(unknown)}, which keras.ops does not take here")
        return known

    def run(self, args, kwargs, settings):
        given = {**settings, **dict(zip(self.values, args)), **kwargs}
        rest = args[len(self.values):]
        stars_first = next(iter(self._signature.parameters)) == self.star
        first = [given.pop(name) for name in self.named if name in given] if rest and not stars_first else []
        return self.function(*first, *rest, **given)


def _is_of_model(value):
    return any(isinstance(leaf, KerasTensor) for leaf in nest.flatten(value))


def op(function, check=None):
    """An op: a part of the model where one of its arguments is a value of a model. check() sees the arguments as they are given."""
    @functools.wraps(function)
    def computed(*args, **kwargs):
        if check is not None:
            check(*args, **kwargs)
        if not _is_of_model((args, kwargs)):
            return function(*args, **kwargs)
        kind = _of_ops[computed]
        values, named, settings = kind.split(args, kwargs)
        return Operation(kind, settings)._call_of_model(values, named, {})
    computed._is_op = True
    return computed


def introduce(names, module, classes=MappingProxyType({})):
    """Makes the ops among these names known as classes of this module of Keras'."""
    for name, found in names.items():
        if not name.startswith("_") and (getattr(found, "_is_op", False) or name == "convert_to_tensor"):
            kind = _Kind(found, name, f"keras.src.{_MODULES.get(name, module)}", classes.get(name))
            _of_ops.setdefault(found, kind)
            _of_classes.setdefault(kind.class_name, kind)


_TENSORFLOWS = tuple(f"lockstep.{name}" for name in ("bitwise", "image", "linalg", "math", "nn", "ops", "signal"))


class _KindOfTensorflow(_Kind):
    """A function of TensorFlow's, of which Keras has no class: files that have one are read here alone."""

    values = ()  # they go by their names

    def __init__(self, function, name, module):
        super().__init__(function, name, module)
        self.function = function


def between_layers(names, module):
    """The public functions among these names of a module, as functions that take values of models, too."""
    return {name: _between_layers(function, _KindOfTensorflow(function, name, module)) for name, function in names.items()
            if inspect.isfunction(function) and not name.startswith("_") and function.__module__ in _TENSORFLOWS}


def _between_layers(function, kind):
    @functools.wraps(function)
    def computed(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:
            if not _is_of_model((args, kwargs)):
                raise
        values, named, settings = kind.split(args, kwargs)
        return Operation(kind, settings)._call_of_model(values, named, {})
    _of_classes[f"{kind.module}.{kind.class_name}"] = kind
    return computed


class Operation(Layer):
    """An op between layers."""

    _inputs_are_arguments = True

    def __init__(self, kind, settings, name=None):
        self.__dict__.update(_kind_of_op=kind, settings=settings, autocast=False)
        self._take(_lockstep.Layer.written(self, kind.class_name, name or "", True, "", None, False))

    def call(self, *args, **kwargs):
        return self._kind_of_op.run(args, kwargs, self.settings)

    def of_texts(self, *args, **kwargs):
        """The same of texts."""
        kind = self._kind_of_op
        if isinstance(kind, _KindOfTensorflow):
            return kind.run(args, kwargs, self.settings)
        return _MOVE[kind.class_name](**{**self.settings, **dict(zip(kind.values, args)), **kwargs})

    def _refuse_texts(self, values):
        if self._kind_of_op.class_name not in _MOVE:
            super()._refuse_texts(values)

    def _drawn(self, inputs, outputs):
        if any(mark_of(value) is not None for value in inputs):
            for output in outputs:
                mark_as_texts(output)
        return super()._drawn(inputs, outputs)

    def __call__(self, *args, **kwargs):
        return self._call_of_model(args, kwargs, {}) if _is_of_model((args, kwargs)) else self.call(*args, **kwargs)

    def get_config(self):
        return {"name": self.name, **saving.serialize_keras_object(self.settings)}

    @property
    def _name_in_files(self):
        return self._kind_of_op.module

    def _says_all(self, args, kwargs):
        return False

    @staticmethod
    def of_file(entry):
        """What an entry of a model's file describes."""
        kind = _of_classes.get(f"{entry['module']}.{entry['class_name']}") or _of_classes.get(entry["class_name"])
        if kind is None:
            raise ValueError(f"a file has the operation {entry['class_name']!r} of {entry['module']}, which is not among keras.ops here")
        config = saving.deserialize_keras_object(entry["config"])
        made = Operation(kind, kind.settings(config), config.get("name"))
        saving.keep(made)
        return made


_lockstep.register_operations(lambda entry: Operation.of_file(entry)._handle)
