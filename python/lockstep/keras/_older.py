"""Names of Keras 2 that scripts still use: functions of keras.backend, Tokenizer and TimeseriesGenerator."""

import collections
import json
import random as _python_random

import numpy as np

from .. import dtypes, nn
from .._lockstep import Variable
from ..tensor import convert_to_tensor
from . import activations, ops, random
from .backend import epsilon, floatx
from .utils import PyDataset

# --- keras.backend -------------------------------------------------------------------------------------------------------

# Functions that are called the same among keras.ops, with the same arguments in the same order.
_SAME = """abs all any arange cast cos equal exp greater greater_equal less less_equal
log max maximum mean min minimum not_equal ones_like prod reshape round shape sigmoid sign sin softmax softplus softsign sqrt square squeeze
stack std stop_gradient sum tanh tile transpose var zeros_like elu hard_sigmoid dot""".split()
functions = {name: getattr(ops, name) for name in _SAME}


def _older(function):
    functions[function.__name__] = function
    return function


@_older
def argmax(x, axis=-1):
    """The place of the largest element along an axis."""
    return ops.argmax(x, axis)


@_older
def argmin(x, axis=-1):
    """The place of the smallest element along an axis."""
    return ops.argmin(x, axis)


@_older
def clip(x, min_value, max_value):
    """x within [min_value, max_value]; None: no limit."""
    return ops.clip(x, -np.inf if min_value is None else min_value, np.inf if max_value is None else max_value)


@_older
def concatenate(tensors, axis=-1):
    """Joined along an axis."""
    return ops.concatenate(tensors, axis)


@_older
def cumsum(x, axis=0):
    """The sums up to each element along an axis."""
    return ops.cumsum(x, axis)


@_older
def cumprod(x, axis=0):
    """The products up to each element along an axis."""
    return ops.cumprod(x, axis)


@_older
def expand_dims(x, axis=-1):
    """A dimension of size 1 at this place."""
    return ops.expand_dims(x, axis)


@_older
def relu(x, alpha=0.0, max_value=None, threshold=0.0):
    """max(x, 0), with a slope below the threshold and a largest value."""
    return activations.relu(x, alpha, max_value, threshold)


@_older
def int_shape(x):
    """The sizes as a tuple, None where they are open."""
    return tuple(x.shape)


@_older
def ndim(x):
    """The number of dimensions."""
    return len(x.shape)


@_older
def dtype(x):
    """The name of the dtype."""
    return getattr(x.dtype, "name", x.dtype)


@_older
def variable(value, dtype=None, name=None, constraint=None):
    """A variable of floatx() unless a dtype is said."""
    return Variable(convert_to_tensor(np.asarray(value), None), True, name=name, dtype=dtypes.as_dtype(dtype or floatx()))


@_older
def constant(value, dtype=None, shape=None, name=None):
    """A tensor of floatx() unless a dtype is said."""
    made = ops.cast(convert_to_tensor(value), dtype or floatx())
    return made if shape is None else ops.broadcast_to(made, shape)


@_older
def zeros(shape, dtype=None, name=None):
    """A variable of zeros."""
    return variable(np.zeros(shape), dtype, name)


@_older
def ones(shape, dtype=None, name=None):
    """A variable of ones."""
    return variable(np.ones(shape), dtype, name)


@_older
def eye(size, dtype=None, name=None):
    """A variable with ones on its diagonal."""
    return variable(np.eye(*(size if isinstance(size, (tuple, list)) else (size,))), dtype, name)


@_older
def eval(x):  # noqa: A001: Keras' name
    """The elements as an array."""
    return convert_to_tensor(x).numpy()


@_older
def batch_get_value(tensors):
    """The elements of each as an array."""
    return [eval(x) for x in tensors]


@_older
def batch_set_value(tuples):
    """Gives variables values: pairs of both."""
    for x, value in tuples:
        x.assign(value)


@_older
def count_params(x):
    """The number of elements."""
    return int(np.prod(int_shape(x), dtype=np.int64))


@_older
def update(x, new_x):
    """Gives a variable a value."""
    return x.assign(new_x)


@_older
def update_add(x, increment):
    """Adds to a variable."""
    return x.assign_add(increment)


@_older
def update_sub(x, decrement):
    """Takes away from a variable."""
    return x.assign_sub(decrement)


@_older
def moving_average_update(x, value, momentum):
    """A variable that follows a value."""
    return x.assign(x * momentum + ops.cast(value, x.dtype) * (1.0 - momentum))


@_older
def cast_to_floatx(x):
    """As floatx()."""
    return np.asarray(x, floatx()) if isinstance(x, (list, tuple, np.ndarray)) else ops.cast(x, floatx())


@_older
def pow(x, a):  # noqa: A001: Keras' name
    """x ** a."""
    return ops.power(x, a)


@_older
def flatten(x):
    """All elements in one dimension."""
    return ops.reshape(x, (-1,))


@_older
def batch_flatten(x):
    """All elements of each example in one dimension."""
    return ops.reshape(x, (-1, int(np.prod(int_shape(x)[1:], dtype=np.int64))))


@_older
def permute_dimensions(x, pattern):
    """The dimensions in another order."""
    return ops.transpose(x, tuple(pattern))


@_older
def gather(reference, indices):
    """Rows by their numbers."""
    return ops.take(reference, indices, axis=0)


@_older
def one_hot(indices, num_classes):
    """1 at the number, 0 elsewhere."""
    return ops.one_hot(indices, num_classes)


@_older
def reverse(x, axes):
    """Backwards along these axes."""
    return ops.flip(x, axes if isinstance(axes, (list, tuple)) else (axes,))


@_older
def repeat(x, n):
    """(batch, size) as (batch, n, size)."""
    return ops.repeat(ops.expand_dims(x, 1), n, axis=1)


@_older
def repeat_elements(x, rep, axis):
    """Each element so many times."""
    return ops.repeat(x, rep, axis=axis)


@_older
def l2_normalize(x, axis=None):
    """Divided by Euclid's norm."""
    return x / ops.sqrt(ops.maximum(ops.sum(ops.square(x), axis=axis, keepdims=True), 1e-12))


@_older
def batch_dot(x, y, axes=None):
    """Products of the examples of two batches, summed over a dimension of each."""
    first, second = axes if isinstance(axes, (tuple, list)) else (axes, axes)
    if axes is None:
        first, second = len(x.shape) - 1, max(len(y.shape) - 2, 1)
    first, second = first % len(x.shape), second % len(y.shape)
    letters = iter("bcdefghijklmnopqrstuvwxyz")
    of_x = ["a"] + [next(letters) for _ in x.shape[1:]]
    of_y = ["a"] + [next(letters) for _ in y.shape[1:]]
    of_y[second] = of_x[first]
    left = [letter for place, letter in enumerate(of_x) if place != first] + [letter for place, letter in enumerate(of_y) if place not in (0, second)]
    made = ops.einsum(f"{''.join(of_x)},{''.join(of_y)}->{''.join(left)}", x, y)
    return ops.expand_dims(made, -1) if len(left) == 1 else made


@_older
def ctc_batch_cost(y_true, y_pred, input_length, label_length):
    """The CTC loss of probabilities whose last class is the blank, (batch, 1); the lengths are columns."""
    probabilities = convert_to_tensor(y_pred)
    lengths = [ops.squeeze(ops.cast(length, "int32"), -1) for length in (label_length, input_length)]
    loss = nn.ctc_loss(ops.cast(y_true, "int32"), ops.log(probabilities + epsilon()), *lengths, logits_time_major=False, blank_index=-1)
    return ops.expand_dims(loss, 1)


@_older
def switch(condition, then_expression, else_expression):
    """The one or the other."""
    values = [part() if callable(part) else part for part in (then_expression, else_expression)]
    condition = ops.cast(condition, "bool")
    rank = len(np.shape(values[0]) if not hasattr(values[0], "shape") else values[0].shape)
    while 0 < len(condition.shape) < rank:
        condition = ops.expand_dims(condition, -1)
    return ops.where(condition, *values)


@_older
def dropout(x, level, noise_shape=None, seed=None):
    """Some elements are 0, the others grow."""
    return random.dropout(x, level, noise_shape, seed)


@_older
def random_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    """Normally distributed."""
    return random.normal(shape, mean, stddev, dtype, seed)


@_older
def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    """The same without what is far from the mean."""
    return random.truncated_normal(shape, mean, stddev, dtype, seed)


@_older
def random_uniform(shape, minval=0.0, maxval=1.0, dtype=None, seed=None):
    """Every value between the two as likely as any other."""
    return random.uniform(shape, minval, maxval, dtype, seed)


@_older
def random_bernoulli(shape, p=0.0, dtype=None, seed=None):
    """1 with this probability, else 0."""
    return ops.cast(random.uniform(shape, seed=seed) <= p, dtype or floatx())


@_older
def binary_crossentropy(target, output, from_logits=False):
    """One loss an element."""
    return ops.binary_crossentropy(target, output, from_logits)


@_older
def categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """One loss an example, of probabilities."""
    return ops.categorical_crossentropy(target, output, from_logits, axis)


@_older
def sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """One loss an example, of class numbers."""
    return ops.sparse_categorical_crossentropy(ops.cast(target, "int32"), output, from_logits, axis)


# --- keras.preprocessing -------------------------------------------------------------------------------------------------

_FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'


def text_to_word_sequence(input_text, filters=_FILTERS, lower=True, split=" "):
    """The words of a text."""
    text = input_text.lower() if lower else input_text
    return [word for word in text.translate(str.maketrans({letter: split for letter in filters})).split(split) if word]


class Tokenizer:
    """Numbers for the words of texts, the most frequent ones first; TextVectorization takes its place."""

    def __init__(self, num_words=None, filters=_FILTERS, lower=True, split=" ", char_level=False, oov_token=None, analyzer=None, **kwargs):
        self.document_count = kwargs.pop("document_count", 0)
        if kwargs:
            raise TypeError(f"Tokenizer: unknown arguments {', '.join(kwargs)}")
        self.num_words, self.filters, self.lower, self.split = num_words, filters, lower, split
        self.char_level, self.oov_token, self.analyzer = char_level, oov_token, analyzer
        self.word_counts, self.word_docs = collections.OrderedDict(), collections.defaultdict(int)
        self.word_index, self.index_word, self.index_docs = {}, {}, collections.defaultdict(int)

    def _words(self, text):
        if self.char_level or isinstance(text, list):
            return [part.lower() for part in text] if self.lower else list(text)
        return self.analyzer(text) if self.analyzer is not None else text_to_word_sequence(text, self.filters, self.lower, self.split)

    def fit_on_texts(self, texts):
        """Learns the words."""
        for text in texts:
            self.document_count += 1
            words = self._words(text)
            for word in words:
                self.word_counts[word] = self.word_counts.get(word, 0) + 1
            for word in set(words):
                self.word_docs[word] += 1
        found = [word for word, _ in sorted(self.word_counts.items(), key=lambda item: -item[1])]
        found = found if self.oov_token is None else [self.oov_token, *found]
        self.word_index = {word: number for number, word in enumerate(found, 1)}
        self.index_word = {number: word for word, number in self.word_index.items()}
        for word, count in self.word_docs.items():
            self.index_docs[self.word_index[word]] = count

    def fit_on_sequences(self, sequences):
        """Learns how many texts have each number."""
        self.document_count += len(sequences)
        for sequence in sequences:
            for number in set(sequence):
                self.index_docs[number] += 1

    def texts_to_sequences(self, texts):
        """The numbers of the words of texts, without those of unknown words and of all but the most frequent num_words - 1."""
        return list(self.texts_to_sequences_generator(texts))

    def texts_to_sequences_generator(self, texts):
        unknown = self.word_index.get(self.oov_token)
        for text in texts:
            numbers = (self.word_index.get(word) for word in self._words(text))
            numbers = [unknown if number is None or self.num_words and number >= self.num_words else number for number in numbers]
            yield [number for number in numbers if number is not None]

    def sequences_to_texts(self, sequences):
        """Words for numbers."""
        return list(self.sequences_to_texts_generator(sequences))

    def sequences_to_texts_generator(self, sequences):
        for sequence in sequences:
            words = [self.oov_token if self.num_words and number >= self.num_words else self.index_word.get(number, self.oov_token) for number in sequence]
            yield " ".join(word for word in words if word is not None)

    def texts_to_matrix(self, texts, mode="binary"):
        """A row for each text, a column for each number."""
        return self.sequences_to_matrix(self.texts_to_sequences(texts), mode)

    def sequences_to_matrix(self, sequences, mode="binary"):
        """The same of numbers: whether, how often, how large a part, or worth how much by tf-idf."""
        if mode not in ("binary", "count", "freq", "tfidf"):
            raise ValueError(f"Tokenizer: mode is binary, count, freq or tfidf, received {mode!r}")
        if not self.num_words and not self.word_index:
            raise ValueError("Tokenizer: there are no words yet; give num_words, or call fit_on_texts() first")
        columns = self.num_words or len(self.word_index) + 1
        made = np.zeros((len(sequences), columns))
        for row, sequence in zip(made, sequences):
            for number, count in collections.Counter(number for number in sequence if number < columns).items():
                if mode == "tfidf":
                    row[number] = (1 + np.log(count)) * np.log(1 + self.document_count / (1 + self.index_docs.get(number, 0)))
                else:
                    row[number] = {"binary": 1, "count": count, "freq": count / len(sequence)}[mode]
        return made

    def get_config(self):
        """As Keras writes it."""
        return {"num_words": self.num_words, "filters": self.filters, "lower": self.lower, "split": self.split, "char_level": self.char_level,
                "oov_token": self.oov_token, "document_count": self.document_count, "word_counts": json.dumps(self.word_counts),
                "word_docs": json.dumps(self.word_docs), "index_docs": json.dumps(self.index_docs), "index_word": json.dumps(self.index_word),
                "word_index": json.dumps(self.word_index)}

    def to_json(self, **kwargs):
        """As a text."""
        return json.dumps({"class_name": "Tokenizer", "config": self.get_config()}, **kwargs)


def tokenizer_from_json(json_string):
    """The Tokenizer of a to_json()."""
    config = json.loads(json_string)["config"]
    held = {name: json.loads(config.pop(name)) for name in ("word_counts", "word_docs", "index_docs", "index_word", "word_index")}
    made = Tokenizer(**config)
    made.word_counts, made.word_index = collections.OrderedDict(held["word_counts"]), held["word_index"]
    made.word_docs.update(held["word_docs"])
    made.index_docs.update({int(number): count for number, count in held["index_docs"].items()})
    made.index_word = {int(number): word for number, word in held["index_word"].items()}
    return made


class TimeseriesGenerator(PyDataset):
    """Batches of windows of a series and of what follows them; timeseries_dataset_from_array takes its place."""

    def __init__(self, data, targets, length, sampling_rate=1, stride=1, start_index=0, end_index=None, shuffle=False, reverse=False, batch_size=128):
        super().__init__()
        if len(data) != len(targets):
            raise ValueError(f"TimeseriesGenerator: data and targets have one length, received {len(data)} and {len(targets)}")
        self.data, self.targets, self.length, self.sampling_rate, self.stride = data, targets, length, sampling_rate, stride
        self.start_index, self.end_index = start_index + length, len(data) - 1 if end_index is None else end_index
        self.shuffle, self.reverse, self.batch_size = shuffle, reverse, batch_size
        if self.start_index > self.end_index:
            raise ValueError(f"TimeseriesGenerator: no window of {length} ends between {self.start_index} and {self.end_index}")

    def __len__(self):
        return (self.end_index - self.start_index + self.batch_size * self.stride) // (self.batch_size * self.stride)

    def __getitem__(self, index):
        if self.shuffle:
            rows = np.random.randint(self.start_index, self.end_index + 1, size=self.batch_size)
        else:
            first = self.start_index + self.batch_size * self.stride * index
            rows = np.arange(first, min(first + self.batch_size * self.stride, self.end_index + 1), self.stride)
        samples = np.array([self.data[row - self.length:row:self.sampling_rate] for row in rows])
        return (samples[:, ::-1, ...] if self.reverse else samples), np.array([self.targets[row] for row in rows])


def hashing_trick(text, n, hash_function=None, filters=_FILTERS, lower=True, split=" ", analyzer=None):
    """Numbers from 1 to n - 1 for the words of a text, by a hash: Python's own, which is another one in every process, "md5" or a function."""
    if hash_function == "md5":
        import hashlib

        def hash_function(word):
            return int(hashlib.md5(word.encode()).hexdigest(), 16)
    words = text_to_word_sequence(text, filters, lower, split) if analyzer is None else analyzer(text)
    return [(hash_function or hash)(word) % (n - 1) + 1 for word in words]


def one_hot_words(input_text, n, filters=_FILTERS, lower=True, split=" ", analyzer=None):
    """The same, by Python's hash."""
    return hashing_trick(input_text, n, None, filters, lower, split, analyzer)


# --- sequences and images ------------------------------------------------------------------------------------------------

def make_sampling_table(size, sampling_factor=1e-5):
    """With which probability a word is kept that has this place among words ordered by how frequent they are, as word2vec does; frequencies
    are taken to follow Zipf's law."""
    place = np.maximum(np.arange(size), 1)
    return np.minimum(1.0, np.sqrt(sampling_factor * (place * (np.log(place) + 0.577) + 0.5 - 1.0 / (12.0 * place))))


def skipgrams(sequence, vocabulary_size, window_size=4, negative_samples=1.0, shuffle=True, categorical=False, sampling_table=None, seed=None):
    """Pairs of words and whether they belong together: of numbers in a window around each other, and, so many times as often, of one of them with
    any number below vocabulary_size. The number 0 is no word."""
    draw = _python_random.Random(seed)
    pairs = []
    for place, word in enumerate(sequence):
        if not word or sampling_table is not None and sampling_table[word] < draw.random():
            continue
        near = [*sequence[max(place - window_size, 0):place], *sequence[place + 1:place + window_size + 1]]
        pairs += [[word, other] for other in near if other]
    count = int(len(pairs) * negative_samples) if negative_samples > 0 else 0
    words = [word for word, _ in pairs]
    draw.shuffle(words)
    labelled = [(pair, [0, 1] if categorical else 1) for pair in pairs]
    labelled += [([words[number % len(words)], draw.randint(1, vocabulary_size - 1)], [1, 0] if categorical else 0) for number in range(count)]
    if shuffle:
        draw.shuffle(labelled)
    return [pair for pair, _ in labelled], [label for _, label in labelled]


def smart_resize(x, size, interpolation="bilinear", data_format="channels_last"):
    """The largest middle part of an image, or of a batch, that has the proportions of this size, in this size."""
    image = convert_to_tensor(x)
    if image.ndim not in (3, 4) or len(size) != 2:
        raise ValueError(f"smart_resize: takes an image or a batch and a size of two numbers, received shape {image.shape} and {size!r}")
    axes = [image.ndim - 3, image.ndim - 2] if data_format == "channels_last" else [image.ndim - 2, image.ndim - 1]
    have = [image.shape[axis] for axis in axes]
    for axis, own, other, target, other_target in zip(axes, have, have[::-1], size, size[::-1]):
        kept = max(min(own, int(other * target / other_target)), 1)
        image = ops.take(image, np.arange(kept) + (own - kept) // 2, axis)
    made = ops.image.resize(image, tuple(size), interpolation=interpolation, data_format=data_format)
    return made.numpy() if isinstance(x, np.ndarray) else made
