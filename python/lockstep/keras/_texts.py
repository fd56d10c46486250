"""Layers of texts. They work on the host, for tensors hold no strings: on data before a model, or in one, behind its inputs of texts."""

import itertools
import os
import pathlib
import string
import weakref

import numpy as np

from .. import _lockstep, data, dtypes, nest, ops
from .._lockstep import KerasTensor
from .._texts import TextDataset, Texts
from ..errors import FailedPreconditionError
from ..tensor import convert_to_tensor
from . import _text_stage, saving
from ._configured import serialized
from ._keras_tensor import Input
from ._layer import Layer, _policy_name
from ._preprocessing import encoded_shape


def _texts(values):
    """Texts of whatever holds them, as a list."""
    if isinstance(values, (str, bytes)):
        values = [values]
    if isinstance(values, data.Dataset):
        return [_lockstep.io.text(value).decode() for value in values]
    if isinstance(values, _lockstep.Tensor):
        return [_lockstep.io.text(values).decode()]
    if hasattr(values, "__array__"):
        values = np.asarray(values, dtype=object).reshape(-1)
    texts = []
    for value in values:
        if isinstance(value, (list, tuple, np.ndarray, _lockstep.Tensor)):
            texts += _texts(value)
        else:
            texts.append(value.decode() if isinstance(value, bytes) else str(value))
    return texts


def _learned_from(source, steps=None):
    """All texts to learn from: those of a list, an array or a dataset, or of so many batches of an iterator or a generator."""
    if isinstance(source, TextDataset):
        return _texts((source if steps is None else source.take(steps)).texts())
    if isinstance(source, data.Dataset):
        source = source if steps is None else source.take(steps)
    elif hasattr(source, "__next__"):
        source = list(itertools.islice(source, steps))
    elif isinstance(source, (list, tuple, np.ndarray)) and steps is not None:
        source = source[:steps]
    return _texts(source)


class _OfTexts(Layer):
    """What the engine makes of a configuration, and does on the host."""

    _on_host = True
    _needs_no_input = True

    def __init__(self, name=None, trainable=True, **settings):
        super().__init__(name=name, trainable=trainable)
        class_name = type(self)._class_in_engine
        self._given = settings
        # None says something of how texts are taken apart; elsewhere it is what a setting begins with.
        config = {key: serialized(value, key) for key, value in settings.items() if value is not None or key in ("standardize", "split")}
        self._lookup = getattr(_lockstep, class_name).deserialize({"class_name": class_name, "config": {**config, "name": self.name}})
        # All but the vocabulary: that is learned later, and may be long.
        self._settings = {key: value for key, value in self._lookup.serialize()["config"].items() if key not in ("vocabulary", "idf_weights")}

    def get_config(self):
        return {**self._given, **self._lookup.serialize()["config"], "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        with saving.custom_object_scope(custom_objects):
            return cls(**config)

    def __call__(self, inputs, **kwargs):
        parts = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        if any(isinstance(part, KerasTensor) for part in parts):
            self._check_values(parts)
            return super().__call__(inputs)
        to_come = [part for part in parts if isinstance(part, _text_stage.TextsToCome)]
        if not to_come:
            return self._of(inputs)
        if len(to_come) < len(parts):
            raise TypeError(f'layer "{self.name}" ({type(self).__name__}) takes texts of the data alone in the call() of a model, and was given numbers, too')
        return _text_stage.numbers_of(lambda *texts: [self._in_call(texts[0] if parts is not inputs else list(texts))], to_come)[0]

    def _in_call(self, inputs):
        """The results in the call() of a model."""
        return self._in_model(inputs)

    def _check_values(self, values):
        """Which values of a model it takes."""
        for value in values:
            if value.dtype != "string":
                raise TypeError(f'layer "{self.name}" ({type(self).__name__}) takes texts, and was given the value "{value.name}" of {value.dtype.name}: '
                                'texts come from keras.Input(shape=(1,), dtype="string")')

    def call(self, inputs):
        """What it gives is asked for here while a model is put together: shapes and dtypes. On data it works before the engine's part of
        the model does."""
        columns = nest.flatten(inputs)
        if not all(column.symbolic for column in columns):
            raise TypeError(f'layer "{self.name}" ({type(self).__name__}) takes texts, and was given numbers')
        return self._like_results([tuple(column.shape) for column in columns])

    def _like_results(self, shapes):
        """Numbers as the results for texts of these shapes are. How long rows become depends on the texts: it changes with the batch here,
        by which the engine knows a size that is open."""
        text = self._example(shapes[0][0] % 97 + 1 if shapes[0] else 1)
        samples = [Texts(np.full(shape, text, object)) for shape in shapes]
        return self._in_model(samples[0] if len(samples) == 1 else samples)

    def _example(self, words):
        """A text of so many words that it takes."""
        return " ".join(["a"] * words)

    def _in_model(self, inputs):
        """The results as models have them: numbers of tokens and bins are integers, all else is of floats."""
        made = self._of(inputs)
        return made if self._gives_numbers_of_tokens else ops.cast(made, self.compute_dtype)

    @property
    def _gives_numbers_of_tokens(self):
        return self._settings["output_mode"] == "int"


class _WithVocabulary(_OfTexts):
    """What learns a vocabulary, or is given one: a list, or a file with a token in every line."""

    def __init__(self, vocabulary=None, vocabulary_size=None, **settings):
        if isinstance(vocabulary, (str, os.PathLike)):
            with open(vocabulary, encoding="utf-8") as lines:
                vocabulary = lines.read().splitlines()
        elif vocabulary is not None:
            vocabulary = _texts(list(np.asarray(vocabulary, dtype=object).reshape(-1)))
        super().__init__(vocabulary=vocabulary, **settings)
        self._size_in_file = vocabulary_size  # of one that a file has beside the configuration, and that comes when the model is made

    def get_vocabulary(self, include_special_tokens=True):
        return self._lookup.get_vocabulary(include_special_tokens)

    def set_vocabulary(self, vocabulary, idf_weights=None):
        """These tokens from now on; with what each is worth, where texts become tf_idf."""
        if isinstance(vocabulary, (str, os.PathLike)):
            with open(vocabulary, encoding="utf-8") as lines:
                vocabulary = lines.read().splitlines()
        weights = [] if idf_weights is None else [float(weight) for weight in np.asarray(idf_weights).reshape(-1)]
        self._lookup.set_vocabulary(_texts(list(vocabulary)), weights)

    def vocabulary_size(self):
        return self._lookup.vocabulary_size()

    def _like_results(self, shapes):
        """Some are known before there is a vocabulary."""
        if self._gives_numbers_of_tokens:
            return ops.zeros(self._shape_of_numbers(shapes[0]), dtypes.int64)
        size = self._settings["max_tokens"] if self._settings["pad_to_max_tokens"] else self._size_in_file
        if self._has_vocabulary or size is None:
            return super()._like_results(shapes)
        return ops.zeros(self._shape_of_counts(shapes[0], self._settings["output_mode"], size), self.compute_dtype)

    @property
    def _has_vocabulary(self):
        return self._lookup.serialize()["config"]["vocabulary"] is not None

    def _in_model(self, inputs):
        try:
            return super()._in_model(inputs)
        except FailedPreconditionError as error:
            raise FailedPreconditionError(f'layer "{self.name}" ({type(self).__name__}) has no vocabulary yet, which says what its model computes: call '
                                          f"{self.name}.adapt(texts) or set_vocabulary() first") from error

    def _in_call(self, inputs):
        if saving.is_reading() and not self._has_vocabulary:  # which comes when the model is made
            return self._like_results([tuple(inputs.shape)])
        return super()._in_call(inputs)

    def compute_output_shape(self, input_shape):
        return tuple(self(Input(batch_shape=tuple(input_shape), dtype="string")).shape)

    # A vocabulary that was learned is part of the configuration here, and a file in an archive, as Keras keeps it: a model with a call() of
    # its own says no configuration of its layers.

    @property
    def _keeps_files(self):
        return saving.is_reading() or saving.is_writing_archive()

    def save_assets(self, folder):
        """The vocabulary as a file, where it was learned."""
        if self._given.get("vocabulary") is None and self._has_vocabulary:
            pathlib.Path(folder, "vocabulary.txt").write_text("\n".join(self.get_vocabulary()), encoding="utf-8")

    def load_assets(self, folder):
        """The vocabulary of a file of Keras', which begins with the special tokens."""
        path = pathlib.Path(folder, "vocabulary.txt")
        if self._given.get("vocabulary") is not None or not path.exists():
            return
        tokens = path.read_text(encoding="utf-8").split("\n")
        while tokens and not tokens[-1]:
            tokens.pop()
        worth = self.__dict__.pop("_worth_of_file", None)
        if worth is not None:
            tokens, worth = tokens[self._specials:], worth[self._specials:][:len(tokens) - self._specials]
        self.set_vocabulary(tokens, worth)

    @property
    def _specials(self):
        """How many tokens stand before those that were learned, where tokens are counted."""
        return self._settings.get("num_oov_indices", 1)

    @property
    def _keeps_values(self):
        return self._settings["output_mode"] == "tf_idf"

    def save_own_variables(self, store):
        """What each token is worth, as Keras keeps it: those that are not known have the mean."""
        config = self._lookup.serialize()["config"]
        worth = config["idf_weights"]
        if self._keeps_values and worth is not None:
            whole = np.concatenate([np.full(self._specials, np.mean(worth)), worth]).astype(np.float32)
            longer = config["max_tokens"] - len(whole) if config["pad_to_max_tokens"] else 0
            store["idf_weights"] = np.pad(whole, (0, longer))

    def load_own_variables(self, store):
        """The same, the other way: the vocabulary comes behind it."""
        if "idf_weights" in store and self._given.get("vocabulary") is None:
            self.__dict__["_worth_of_file"] = np.asarray(store["idf_weights"])


class TextVectorization(_WithVocabulary):
    """Texts as rows of tokens' numbers, or as counts of them."""

    _class_in_engine = "TextVectorization"

    def __init__(self, max_tokens=None, standardize="lower_and_strip_punctuation", split="whitespace", ngrams=None,
                 output_mode="int", output_sequence_length=None, pad_to_max_tokens=False, vocabulary=None, idf_weights=None,
                 sparse=False, ragged=False, encoding="utf-8", name=None, **kwargs):
        if sparse or ragged:
            raise ValueError("TextVectorization: there are no sparse and no ragged tensors")
        self._split = split if callable(split) else None
        self._standardize = standardize if callable(standardize) else _plain(standardize) if self._split else None
        super().__init__(max_tokens=max_tokens, standardize=None if self._standardize else standardize, split=None if self._split else split,
                         ngrams=ngrams, output_mode=output_mode, output_sequence_length=output_sequence_length,
                         pad_to_max_tokens=pad_to_max_tokens, vocabulary=vocabulary, idf_weights=idf_weights, name=name,
                         trainable=kwargs.get("trainable", True), vocabulary_size=kwargs.get("vocabulary_size"))
        self._given.update(standardize=standardize, split=split)
        if output_mode in ("tf_idf", "tf-idf"):
            self._lookup_layer = _Inside(self)

    def adapt(self, data, batch_size=None, steps=None):
        """Learns the vocabulary."""
        texts = self._standardized(_learned_from(data, steps))
        if self._split is None:
            self._lookup.adapt(texts)
        else:
            self._lookup.adapt_rows(self._tokens(texts))

    def _standardized(self, texts):
        return texts if self._standardize is None else _texts(_of_all(self._standardize, texts))

    def _tokens(self, texts):
        return [_texts(tokens) for tokens in _of_all(self._split, texts)]

    def get_config(self):
        given = {name: value for name, value in self._given.items() if callable(value)}
        return {**super().get_config(), **given}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        with saving.custom_object_scope(custom_objects):
            functions = {name: saving.deserialize_keras_object(config[name]) for name in ("standardize", "split") if isinstance(config.get(name), dict)}
            return cls(**{**config, **functions})

    def save_assets(self, folder):
        """The vocabulary as a file, and once more where Keras keeps that of the lookup inside."""
        super().save_assets(folder)
        inside = pathlib.Path(folder, "_lookup_layer")
        inside.mkdir()
        super().save_assets(inside)

    def _shape_of_counts(self, shape, mode, size):
        return [shape[0], size]

    def _shape_of_numbers(self, shape):
        length = self._settings["output_sequence_length"]
        return [shape[0], shape[0] % 97 + 1 if length is None else length]

    def _of(self, texts):
        texts = _array_of(texts)
        one = _is_one(texts)
        texts = self._standardized(_texts(texts))
        made = self._lookup(texts) if self._split is None else self._lookup.rows(self._tokens(texts))
        return made[0] if one else made


class _Inside(Layer):
    """The lookup inside of a TextVectorization that weighs tokens: Keras' files keep what they are worth there, too."""

    _needs_no_input = True
    _keeps_values = True

    def __init__(self, around):
        super().__init__()
        self.__dict__["_around"] = weakref.ref(around)

    def save_own_variables(self, store):
        self._around().save_own_variables(store)

    def load_own_variables(self, store):
        """The layer around it has them."""


def _plain(standardize):
    """What the engine's standardization makes of a text, for a function of Python's to split."""
    lower, strip = "lower" in (standardize or ""), "strip_punctuation" in (standardize or "")
    table = str.maketrans(string.ascii_uppercase if lower else "", string.ascii_lowercase if lower else "", string.punctuation if strip else "")
    return lambda texts: [text.translate(table) for text in texts.tolist()]


def _of_all(function, texts):
    """What a function of Python makes of texts. It is given all of them in an array, as Keras gives them; or one after another, where it
    is a function of one."""
    try:
        return function(np.array(texts, dtype=str))
    except AttributeError:  # an array has no methods of a text
        return [function(text) for text in texts]


class StringLookup(_WithVocabulary):
    """Tokens as numbers, and numbers as tokens (invert)."""

    _class_in_engine = "StringLookup"

    def __init__(self, max_tokens=None, num_oov_indices=1, mask_token=None, oov_token="[UNK]", vocabulary=None, idf_weights=None,
                 invert=False, output_mode="int", pad_to_max_tokens=False, sparse=False, encoding="utf-8", name=None, salt=None,
                 oov_method="farmhash", **kwargs):
        if sparse:
            raise ValueError("StringLookup: there are no sparse tensors")
        super().__init__(max_tokens=max_tokens, num_oov_indices=num_oov_indices, mask_token=mask_token, oov_token=oov_token,
                         vocabulary=vocabulary, idf_weights=idf_weights, invert=invert, output_mode=output_mode,
                         pad_to_max_tokens=pad_to_max_tokens, salt=salt, name=name, trainable=kwargs.get("trainable", True),
                         vocabulary_size=kwargs.get("vocabulary_size"))
        self._invert = invert

    def adapt(self, data, batch_size=None, steps=None):
        """Learns the vocabulary."""
        self._lookup.adapt(_learned_from(data, steps))

    def _check_values(self, values):
        if self._invert:
            raise TypeError(f'layer "{self.name}": StringLookup(invert=True) gives texts, which no model has as results: apply it to what predict() gives')
        super()._check_values(values)

    def _example(self, words):
        """One of its tokens: without numbers for unknown ones it takes no others."""
        known = self.get_vocabulary(include_special_tokens=False)
        return known[0] if known else super()._example(words)

    def _shape_of_counts(self, shape, mode, size):
        return list(encoded_shape(shape, mode, size))

    def _shape_of_numbers(self, shape):
        return list(shape)

    def _of(self, tokens):
        if self._invert:
            numbers = convert_to_tensor(tokens)
            made = self._lookup.tokens(_lockstep.ops.reshape(numbers, [-1]))
            return Texts(np.array(made, dtype=object).reshape(tuple(numbers.shape)))
        tokens = _array_of(tokens)
        array = np.asarray(tokens, dtype=object) if isinstance(tokens, (list, np.ndarray)) else None
        if array is not None and array.ndim > 1:
            mode = self._settings["output_mode"]
            if mode in ("int", "one_hot"):  # each by itself
                each = self._lookup(_texts(array))
                return ops.reshape(each, encoded_shape(array.shape, mode, each.shape[-1]))
            if array.ndim > 2:
                rows = self._of(array.reshape(-1, array.shape[-1]))
                return ops.reshape(rows, encoded_shape(array.shape, mode, rows.shape[-1]))
        one = _is_one(tokens)
        if not one and isinstance(tokens, (list, tuple, np.ndarray)) and len(tokens) and isinstance(tokens[0], (list, tuple, np.ndarray, Texts)):
            return self._lookup.rows([_texts(list(row)) for row in map(_array_of, tokens)])
        made = self._lookup(_texts(tokens))
        # One text is an example of its own to modes that count: their result is that of a list of it.
        return made[0] if one and self._settings["output_mode"] in ("int", "one_hot") else made


def _array_of(texts):
    return np.asarray(texts) if isinstance(texts, Texts) else texts


def _is_one(texts):
    return isinstance(texts, (str, bytes, _lockstep.Tensor)) or isinstance(texts, np.ndarray) and texts.ndim == 0


# --- hashes --------------------------------------------------------------------------------------------------------------

def _column(values):
    """Numbers as a tensor, texts as a list; and the shape of both."""
    if isinstance(values, _lockstep.Tensor):
        return values, tuple(values.shape)
    array = np.asarray(_array_of(values))
    if array.dtype.kind in "iu":
        return convert_to_tensor(array), array.shape
    if array.dtype.kind not in "OUS":
        raise ValueError(f"takes texts and whole numbers, received numbers of {array.dtype}")
    return _texts(list(array.reshape(-1))), array.shape


class Hashing(_OfTexts):
    """Texts, or whole numbers, in bins by their hash."""

    _class_in_engine = "Hashing"

    def __init__(self, num_bins, mask_value=None, salt=None, output_mode="int", sparse=False, name=None, dtype=None, **kwargs):
        if num_bins is None or num_bins <= 0:
            raise ValueError(f"Hashing: num_bins is a positive number and cannot be `None`, received {num_bins!r}")
        if salt is not None and (isinstance(salt, str) or not isinstance(salt, int) and len(salt) != 2):
            raise ValueError(f"Hashing: salt is one number, or can only be a tuple of size 2, received {salt!r}")
        if sparse:
            raise ValueError("Hashing: there are no sparse tensors")
        super().__init__(num_bins=int(num_bins), mask_value=mask_value,
                         salt=[salt, salt] if isinstance(salt, int) else None if salt is None else list(salt), output_mode=output_mode, name=name,
                         trainable=kwargs.get("trainable", True))
        self._output_mode, self._num_bins, self._dtype = output_mode, int(num_bins), _bins_dtype("Hashing", output_mode, dtype)
        self._each = None

    def _of(self, values):
        column, shape = _column(values)
        if len(shape) < 2 or self._output_mode == "int":
            made = self._lookup(column)
            made = _lockstep.ops.reshape(made, list(shape)) if self._output_mode == "int" and tuple(made.shape) != shape else made
        else:
            made = self._of_rows(column, shape)
        return made if self._dtype is None else _lockstep.ops.cast(made, self._dtype)

    def _of_rows(self, column, shape):
        """Of several values a row: each has bins of its own (one_hot), or a row has them together."""
        if self._each is None:
            self._each = _lockstep.Hashing.deserialize({"class_name": "Hashing", "config": {**self._settings, "output_mode": "one_hot"}})
        column = _lockstep.ops.reshape(column, [-1]) if isinstance(column, _lockstep.Tensor) else column
        each = _lockstep.ops.reshape(self._each(column), [*shape, self._num_bins])
        if self._output_mode != "one_hot":
            return (ops.reduce_sum if self._output_mode == "count" else ops.reduce_max)(each, -2)
        return _lockstep.ops.reshape(each, list(encoded_shape(shape, "one_hot", self._num_bins)))

    def _check_values(self, values):
        pass

    def compute_output_shape(self, input_shape):
        return encoded_shape(tuple(input_shape), self._output_mode, self._num_bins)


def _bins_dtype(what, output_mode, dtype):
    """The dtype of what hashes become; None: int64 for numbers of bins, else float32."""
    if dtype is None:
        return None
    dtype = dtypes.as_dtype(_policy_name(dtype))
    if output_mode == "int" and not dtype.is_integer:
        raise ValueError(f'{what}: When `output_mode="int"`, `dtype` should be an integer type, received {dtype.name}')
    return dtype


class HashedCrossing(_OfTexts):
    """Columns of texts or whole numbers, together in bins by their hash."""

    _class_in_engine = "HashedCrossing"

    def __init__(self, num_bins, output_mode="int", sparse=False, name=None, dtype=None, **kwargs):
        if sparse:
            raise ValueError("HashedCrossing: there are no sparse tensors")
        super().__init__(num_bins=int(num_bins), output_mode=output_mode, name=name, trainable=kwargs.get("trainable", True))
        self._output_mode, self._num_bins, self._dtype = output_mode, int(num_bins), _bins_dtype("HashedCrossing", output_mode, dtype)

    def _check_values(self, values):
        pass

    def _of(self, columns):
        if not isinstance(columns, (list, tuple)) or len(columns) < 2:
            raise ValueError("HashedCrossing: takes a list of at least two columns")
        read = [_column(column) for column in columns]
        shape = read[0][1]
        if len(shape) > 2 or len(shape) == 2 and shape[1] != 1 or any(other != shape for _, other in read):
            raise ValueError("HashedCrossing: inputs should have shape (), (n) or (n, 1), the same for all columns, received "
                             f"{[other for _, other in read]}")
        made = self._lookup([_lockstep.ops.reshape(column, [-1]) if isinstance(column, _lockstep.Tensor) else column for column, _ in read])
        made = _lockstep.ops.reshape(made, list(shape)) if self._output_mode == "int" and len(shape) != 1 else made
        return made if self._dtype is None else _lockstep.ops.cast(made, self._dtype)

    def compute_output_shape(self, input_shape):
        return encoded_shape(tuple(input_shape[0]), self._output_mode, self._num_bins)


def _of_file(cls):
    def make(config):
        made = cls.from_config(saving._revived_config(config))
        saving.keep(made)
        return made._handle
    return make


for _class in (TextVectorization, StringLookup, Hashing, HashedCrossing):
    _lockstep.register_keras_layer(_class.__name__, _of_file(_class))
