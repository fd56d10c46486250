"""Layers of texts: they work on the data before the model, for tensors hold no strings."""

import itertools
import os
import string

import numpy as np

from .. import _lockstep, data, dtypes
from .._texts import TextDataset, Texts
from ..tensor import convert_to_tensor
from ._configured import serialized
from ._layer import _policy_name
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


class _OfTexts:
    """What the engine makes of a configuration, and does on the host."""

    def __init__(self, **settings):
        name = type(self).__name__
        self._given = settings
        # None says something of how texts are taken apart; elsewhere it is what a setting begins with.
        config = {key: serialized(value, key) for key, value in settings.items() if value is not None or key in ("standardize", "split")}
        self._lookup = getattr(_lockstep, name).deserialize({"class_name": name, "config": config})

    def get_config(self):
        return {**self._given, **self._lookup.serialize()["config"]}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    @property
    def name(self):
        return self._lookup.serialize()["config"]["name"]

    @property
    def _handle(self):
        raise TypeError(f"{type(self).__name__} works on texts, which no model takes: apply it to the data before the model, "
                        "x = layer(texts) or dataset.map(...)")


class _WithVocabulary(_OfTexts):
    """What learns a vocabulary, or is given one: a list, or a file with a token in every line."""

    def __init__(self, vocabulary=None, **settings):
        if isinstance(vocabulary, (str, os.PathLike)):
            with open(vocabulary, encoding="utf-8") as lines:
                vocabulary = lines.read().splitlines()
        elif vocabulary is not None:
            vocabulary = _texts(list(np.asarray(vocabulary, dtype=object).reshape(-1)))
        super().__init__(vocabulary=vocabulary, **settings)

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


class TextVectorization(_WithVocabulary):
    """Texts as rows of tokens' numbers, or as counts of them."""

    def __init__(self, max_tokens=None, standardize="lower_and_strip_punctuation", split="whitespace", ngrams=None,
                 output_mode="int", output_sequence_length=None, pad_to_max_tokens=False, vocabulary=None, idf_weights=None,
                 sparse=False, ragged=False, encoding="utf-8", name=None, **kwargs):
        if sparse or ragged:
            raise ValueError("TextVectorization: there are no sparse and no ragged tensors")
        self._split = split if callable(split) else None
        self._standardize = standardize if callable(standardize) else _plain(standardize) if self._split else None
        super().__init__(max_tokens=max_tokens, standardize=None if self._standardize else standardize, split=None if self._split else split,
                         ngrams=ngrams, output_mode=output_mode, output_sequence_length=output_sequence_length,
                         pad_to_max_tokens=pad_to_max_tokens, vocabulary=vocabulary, idf_weights=idf_weights, name=name)
        self._given.update(standardize=standardize, split=split)

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

    def __call__(self, texts):
        texts = _array_of(texts)
        one = _is_one(texts)
        texts = self._standardized(_texts(texts))
        made = self._lookup(texts) if self._split is None else self._lookup.rows(self._tokens(texts))
        return made[0] if one else made


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

    def __init__(self, max_tokens=None, num_oov_indices=1, mask_token=None, oov_token="[UNK]", vocabulary=None, idf_weights=None,
                 invert=False, output_mode="int", pad_to_max_tokens=False, sparse=False, encoding="utf-8", name=None, salt=None,
                 oov_method="farmhash", **kwargs):
        if sparse:
            raise ValueError("StringLookup: there are no sparse tensors")
        super().__init__(max_tokens=max_tokens, num_oov_indices=num_oov_indices, mask_token=mask_token, oov_token=oov_token,
                         vocabulary=vocabulary, idf_weights=idf_weights, invert=invert, output_mode=output_mode,
                         pad_to_max_tokens=pad_to_max_tokens, salt=salt, name=name)
        self._invert = invert

    def adapt(self, data, batch_size=None, steps=None):
        """Learns the vocabulary."""
        self._lookup.adapt(_learned_from(data, steps))

    def __call__(self, tokens):
        if self._invert:
            numbers = convert_to_tensor(tokens)
            made = self._lookup.tokens(_lockstep.ops.reshape(numbers, [-1]))
            return Texts(np.array(made, dtype=object).reshape(tuple(numbers.shape)))
        tokens = _array_of(tokens)
        one = _is_one(tokens)
        if not one and isinstance(tokens, (list, tuple, np.ndarray)) and len(tokens) and isinstance(tokens[0], (list, tuple, np.ndarray, Texts)):
            return self._lookup.rows([_texts(list(row)) for row in map(_array_of, tokens)])
        made = self._lookup(_texts(tokens))
        return made[0] if one and made.ndim else made


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

    def __init__(self, num_bins, mask_value=None, salt=None, output_mode="int", sparse=False, name=None, dtype=None, **kwargs):
        if num_bins is None or num_bins <= 0:
            raise ValueError(f"Hashing: num_bins is a positive number and cannot be `None`, received {num_bins!r}")
        if salt is not None and (isinstance(salt, str) or not isinstance(salt, int) and len(salt) != 2):
            raise ValueError(f"Hashing: salt is one number, or can only be a tuple of size 2, received {salt!r}")
        if sparse:
            raise ValueError("Hashing: there are no sparse tensors")
        super().__init__(num_bins=int(num_bins), mask_value=mask_value,
                         salt=[salt, salt] if isinstance(salt, int) else None if salt is None else list(salt), output_mode=output_mode, name=name)
        self._output_mode, self._num_bins, self._dtype = output_mode, int(num_bins), _bins_dtype("Hashing", output_mode, dtype)

    def __call__(self, values):
        column, shape = _column(values)
        made = self._lookup(column)
        if self._output_mode == "int" and tuple(made.shape) != shape:
            made = _lockstep.ops.reshape(made, list(shape))
        return made if self._dtype is None else _lockstep.ops.cast(made, self._dtype)

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

    def __init__(self, num_bins, output_mode="int", sparse=False, name=None, dtype=None, **kwargs):
        if sparse:
            raise ValueError("HashedCrossing: there are no sparse tensors")
        super().__init__(num_bins=int(num_bins), output_mode=output_mode, name=name)
        self._output_mode, self._num_bins, self._dtype = output_mode, int(num_bins), _bins_dtype("HashedCrossing", output_mode, dtype)

    def __call__(self, columns):
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
