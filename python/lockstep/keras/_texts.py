"""Layers of texts: they work on the data before the model, for tensors hold no strings."""

import numpy as np

from .. import _lockstep, data
from ._configured import serialized


def _texts(values):
    """Texts of whatever holds them, as a list."""
    if isinstance(values, (str, bytes)):
        values = [values]
    if isinstance(values, data.Dataset):
        return [_lockstep.io.text(value).decode() for value in values]
    if isinstance(values, _lockstep.Tensor):
        return [_lockstep.io.text(values).decode()]
    flat = np.asarray(values, dtype=object).reshape(-1) if not isinstance(values, list) else values
    return [value.decode() if isinstance(value, bytes) else str(value) for value in flat]


class _OfTexts:
    def __init__(self, **settings):
        name = type(self).__name__
        config = {key: serialized(value, key) for key, value in settings.items() if value is not None}
        self._lookup = getattr(_lockstep, name).deserialize({"class_name": name, "config": config})

    def adapt(self, data, batch_size=None, steps=None):
        """Learns the vocabulary."""
        self._lookup.adapt(_texts(data))

    def get_vocabulary(self, include_special_tokens=True):
        return self._lookup.get_vocabulary(include_special_tokens)

    def set_vocabulary(self, vocabulary, idf_weights=None):
        self._lookup.set_vocabulary(list(vocabulary))

    def vocabulary_size(self):
        return self._lookup.vocabulary_size()

    def get_config(self):
        return self._lookup.serialize()["config"]

    @property
    def _handle(self):
        raise TypeError(f"{type(self).__name__} works on texts, which no model takes: apply it to the data before the model, "
                        "x = layer(texts) or dataset.map(...)")


class TextVectorization(_OfTexts):
    """Texts as rows of tokens' numbers, or as counts of them."""

    def __init__(self, max_tokens=None, standardize="lower_and_strip_punctuation", split="whitespace", ngrams=None,
                 output_mode="int", output_sequence_length=None, pad_to_max_tokens=False, vocabulary=None, idf_weights=None,
                 sparse=False, ragged=False, encoding="utf-8", name=None, **kwargs):
        if callable(standardize) or callable(split):
            raise NotImplementedError("TextVectorization: change texts by a function before they come here")
        super().__init__(max_tokens=max_tokens, standardize=standardize, split=split, ngrams=ngrams, output_mode=output_mode,
                         output_sequence_length=output_sequence_length, pad_to_max_tokens=pad_to_max_tokens,
                         vocabulary=vocabulary, name=name)

    def __call__(self, texts):
        one = isinstance(texts, (str, bytes, _lockstep.Tensor))
        made = self._lookup(_texts(texts))
        return made[0] if one else made


class StringLookup(_OfTexts):
    """Tokens as numbers, and numbers as tokens (invert)."""

    def __init__(self, max_tokens=None, num_oov_indices=1, mask_token=None, oov_token="[UNK]", vocabulary=None, idf_weights=None,
                 invert=False, output_mode="int", pad_to_max_tokens=False, sparse=False, encoding="utf-8", name=None, **kwargs):
        super().__init__(max_tokens=max_tokens, num_oov_indices=num_oov_indices, mask_token=mask_token, oov_token=oov_token,
                         vocabulary=vocabulary, invert=invert, output_mode=output_mode, pad_to_max_tokens=pad_to_max_tokens,
                         name=name)
        self._invert = invert

    def __call__(self, tokens):
        if self._invert:
            return self._lookup.tokens(tokens)
        if isinstance(tokens, (list, tuple, np.ndarray)) and len(tokens) and isinstance(tokens[0], (list, tuple, np.ndarray)):
            return self._lookup.rows([_texts(list(row)) for row in tokens])
        one = isinstance(tokens, (str, bytes, _lockstep.Tensor))
        made = self._lookup(_texts(tokens))
        return made[0] if one and made.ndim else made
