"""What layers of the engine that prepare data have beside their settings: vocabularies, and what they have learned."""

import os

import numpy as np

from .. import _lockstep, ops as _tf
from ..tensor import convert_to_tensor
from ._layer import Layer
from .backend import is_keras_tensor


class OfIntegers(Layer):
    """IntegerLookup: a vocabulary of whole numbers, which is a list or a file with one in every line."""

    def _own(self, kwargs):
        vocabulary = kwargs.get("vocabulary")
        if isinstance(vocabulary, (str, os.PathLike)):
            kwargs = {**kwargs, "vocabulary": _lines(vocabulary)}
        return super()._own(kwargs)

    def get_vocabulary(self, include_special_tokens=True):
        """The number behind each index."""
        tokens = _lockstep.integer_vocabulary(self._handle)
        return tokens if include_special_tokens else tokens[self._specials:]

    @property
    def _specials(self):
        config = self._handle.get_config()
        return config["num_oov_indices"] + (config["mask_token"] is not None and config["output_mode"] == "int")

    def set_vocabulary(self, vocabulary, idf_weights=None):
        """These numbers from now on; with what each is worth, where they become tf_idf."""
        tokens = _lines(vocabulary) if isinstance(vocabulary, (str, os.PathLike)) else [int(token) for token in np.asarray(vocabulary).reshape(-1)]
        weights = [] if idf_weights is None else [float(weight) for weight in np.asarray(idf_weights).reshape(-1)]
        _lockstep.set_integer_vocabulary(self._handle, tokens, weights)

    def vocabulary_size(self):
        return len(self.get_vocabulary())


def _lines(path):
    with open(path, encoding="utf-8") as lines:
        return [int(line) for line in lines.read().split()]


class OfBins(Layer):
    """Discretization: the shape of its result is known before it has learned where bins end."""

    @property
    def output_dtype(self):
        return "int32" if self._handle.get_config()["output_mode"] == "int" else self.compute_dtype

    def compute_output_shape(self, input_shape):
        config = self._handle.get_config()
        bins = config["num_bins"] if config["bin_boundaries"] is None else len(config["bin_boundaries"]) + 1
        return encoded_shape(tuple(input_shape), config["output_mode"], bins)


class OfCategories(Layer):
    """CategoryEncoding: what each category counts may be given beside them."""

    def __call__(self, inputs, count_weights=None, **kwargs):
        if count_weights is None:
            return super().__call__(inputs, **kwargs)
        mode = self._handle.get_config()["output_mode"]
        if mode != "count":
            raise ValueError(f"`count_weights` is not used when `output_mode` is not 'count', received output_mode={mode!r}")
        both = [part if is_keras_tensor(part) else convert_to_tensor(part) for part in (inputs, count_weights)]
        return super().__call__(both, **kwargs)

    def compute_output_shape(self, input_shape):
        config = self._handle.get_config()
        return encoded_shape(tuple(input_shape), config["output_mode"], config["num_tokens"])


def encoded_shape(shape, mode, depth):
    """That of category numbers in one of the output modes."""
    if mode == "int":
        return shape
    if mode == "one_hot":
        return (*(shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape), depth)
    return (*shape[:-1], depth)


class OfStatistics(Layer):
    """Normalization: mean and variance, given or learned, as its inputs are moved and scaled by them."""

    mean = property(lambda self: self._statistic("mean"))
    variance = property(lambda self: self._statistic("variance"))

    def _statistic(self, name):
        if not self.built:
            raise AttributeError(f"layer \"{self.name}\" is not built yet, so that it has no {name}")
        config, shape = self._handle.get_config(), self._handle.build_shapes[0]
        axes = [] if config["axis"] is None else [axis % len(shape) for axis in np.atleast_1d(config["axis"])]
        kept = [shape[axis] for axis in sorted(axes)]
        given = config[name]
        if given is None:
            value = next(weight for weight in self.weights if weight._name.rsplit("/", 1)[-1] == name)
        else:
            value = _tf.broadcast_to(convert_to_tensor(np.asarray(given, np.float32)), kept)
        return _tf.reshape(value, [size if axis in axes else 1 for axis, size in enumerate(shape)])
