"""Texts as data: arrays of them, which are no tensors, and datasets that hold some.

A dataset of texts is read by Python, element by element; what is made of it by a function that gives numbers alone is one of the engine's.
"""

import itertools

import numpy as np

from . import _lockstep, _tracing, nest
from ._lockstep import Tensor, Variable
from .dtypes import int32, string
from .tensor import TensorShape, TensorSpec, convert_to_tensor, is_tensor


class Texts:
    """Texts in an array, as bytes. Functions of tf.strings and layers of texts take them."""

    dtype = string
    symbolic = False
    __array_ufunc__ = None  # arrays of NumPy's leave == and + to this class

    def __init__(self, values):
        given = np.asarray(values, dtype=object)
        made = np.empty(given.shape, dtype=object)
        made.reshape(-1)[:] = [_as_bytes(text) for text in given.reshape(-1)]
        self._array = made

    @property
    def shape(self):
        return TensorShape(self._array.shape)

    get_shape = lambda self: self.shape  # noqa: E731: TensorFlow's
    ndim = property(lambda self: self._array.ndim)

    def numpy(self):
        """An array of bytes; of one text, its bytes."""
        return self._array.copy() if self._array.ndim else self._array[()]

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None or dtype == object else self._array.astype(dtype)

    def _expand_dims(self, axis):
        return Texts(np.expand_dims(self._array, axis))

    def _reshape(self, shape):
        return Texts(self._array.reshape([int(size) for size in shape]))

    def _squeeze(self, axes):
        return Texts(np.squeeze(self._array, axes))

    def __len__(self):
        if not self.ndim:
            raise TypeError("one text has no length as an array; tf.strings.length(x) counts its bytes")
        return len(self._array)

    def __getitem__(self, key):
        parts = tuple(np.asarray(part) if is_tensor(part) else part for part in (key if isinstance(key, tuple) else (key,)))
        return Texts(self._array[parts])

    def __iter__(self):
        return (self[number] for number in range(len(self)))

    def _compared(self, other, compare):
        return convert_to_tensor(np.asarray(compare(self._array, Texts(other)._array), np.bool_))

    def __eq__(self, other):
        return self._compared(other, np.equal) if is_text(other) else False

    def __ne__(self, other):
        return self._compared(other, np.not_equal) if is_text(other) else True

    def __add__(self, other):
        return Texts(self._array + Texts(other)._array)

    def __radd__(self, other):
        return Texts(Texts(other)._array + self._array)

    __hash__ = None

    def __str__(self):
        return f"tf.Tensor({self._array if self.ndim else repr(self.numpy())}, shape={self.shape}, dtype=string)"

    def __repr__(self):
        return f"<tf.Tensor: shape={self.shape}, dtype=string, numpy={self.numpy()!r}>"


def _as_bytes(text):
    if isinstance(text, str):
        return text.encode()
    if not isinstance(text, bytes):
        raise TypeError(f"texts are strings or bytes in arrays of one length, received {text!r} among them")
    return text


def is_text(value):
    """Whether it is a text, or lists and arrays of texts."""
    if isinstance(value, (Tensor, Variable)):
        return False
    if isinstance(value, (str, bytes, Texts)):
        return True
    if isinstance(value, (list, tuple)):
        return bool(value) and is_text(value[0])
    if not isinstance(value, (np.ndarray, np.generic)):
        # A column of pandas' is an array that is none of NumPy's, and its dtypes of texts and of categories are of this kind, too.
        if getattr(getattr(value, "dtype", None), "kind", None) != "O" or not hasattr(value, "__array__"):
            return False
        value = np.asarray(value)
    return value.dtype.kind in "US" or value.dtype == object and is_text(value.reshape(-1)[:1].tolist())


def constant(value, dtype=None, shape=None):
    """Texts in an array of this shape, which a single one fills."""
    if dtype is not None and dtype != string or not is_text(value):
        raise TypeError(f"{value!r} is no {getattr(dtype, 'name', dtype) or 'text'}")
    made = Texts(value)
    if shape is None:
        return made
    return Texts(np.full(shape, made._array.reshape(-1)[0], dtype=object)) if made._array.size == 1 else made._reshape(shape)


# --- datasets -------------------------------------------------------------------------------------------------------------

def _leaves(structure):
    """Of tuples and dictionaries: a list is a leaf, as in datasets."""
    if isinstance(structure, tuple):
        return [leaf for part in structure for leaf in _leaves(part)]
    if isinstance(structure, dict):
        return [leaf for part in structure.values() for leaf in _leaves(part)]
    return [structure]


def _mapped(function, *structures):
    first = structures[0]
    if isinstance(first, tuple):
        return tuple(_mapped(function, *parts) for parts in zip(*structures))
    if isinstance(first, dict):
        return {key: _mapped(function, *(structure[key] for structure in structures)) for key in first}
    return function(*structures)


def holds_texts(structure):
    return any(is_text(leaf) for leaf in _leaves(structure))


def _value(leaf):
    return leaf if isinstance(leaf, (Texts, Tensor)) else Texts(leaf) if is_text(leaf) else convert_to_tensor(leaf)


def _together(*leaves):
    if isinstance(leaves[0], Texts):
        return Texts(np.stack([leaf._array for leaf in leaves]))
    return _lockstep.ops.stack(list(leaves), 0)


def _spec(leaf):
    return TensorSpec(leaf.shape, leaf.dtype)


def wants_texts(spec):
    """Whether a structure of dtypes or specifications has one of texts."""
    return any(getattr(leaf, "dtype", leaf) == string for leaf in nest.flatten(spec))


class TextDataset:
    """Elements with texts in them, made anew by every pass. It has the methods of tf.data.Dataset that work on elements in order."""

    def __init__(self, elements, look, count=None):
        """elements() is an iterator, and look() one of elements like them that no pass is begun for: methods look at the first of these to
        know what a function gives, as TensorFlow traces it."""
        self._elements, self._look, self._count = elements, look, count

    @classmethod
    def _of_source(cls, elements, count=None):
        return cls(elements, elements, count)

    @classmethod
    def from_tensor_slices(cls, tensors):
        """One element a row of the arrays."""
        whole = _mapped(_value, tensors)
        counts = {leaf.shape[0] for leaf in _leaves(whole)}
        if len(counts) != 1:
            raise ValueError(f"from_tensor_slices: arrays of as many rows make elements, received {sorted(counts)}")
        count = counts.pop()
        return cls._of_source(lambda: (_mapped(lambda leaf: leaf[number], whole) for number in range(count)), count)

    @classmethod
    def from_tensors(cls, tensors):
        """This one element."""
        whole = _mapped(_value, tensors)
        return cls._of_source(lambda: iter([whole]), 1)

    @classmethod
    def of(cls, dataset):
        """A dataset of the engine's, or one of texts, as one of these."""
        if isinstance(dataset, cls):
            return dataset
        count = int(dataset.cardinality())
        return cls._of_source(lambda: iter(dataset), count if count >= 0 else None)

    @classmethod
    def from_generator(cls, generator, specs):
        """What a function that returns an iterator gives, where the specifications name texts."""
        from .data import _specified

        def put(value, spec):
            if isinstance(spec, dict):
                return {key: put(value[key], spec[key]) for key in spec}
            if isinstance(spec, (tuple, list)):
                return tuple(put(part, inner) for part, inner in zip(value, spec))
            return Texts(value) if spec.dtype == string else _specified(value, spec)
        return cls._of_source(lambda: (put(value, specs) for value in generator()))

    @classmethod
    def zip(cls, datasets):
        """Tuples of one element of each."""
        parts = tuple(cls.of(part) for part in datasets)
        counts = [part._count for part in parts]
        return cls(lambda: zip(*parts), lambda: zip(*(part._look() for part in parts)), None if None in counts else min(counts))

    def _through(self, change, count=None, order=None):
        """What change() makes of the elements in turn; of those that are looked at order() makes it."""
        return TextDataset(lambda: change(iter(self)), lambda: (order or change)(self._look()), count)

    def _first(self):
        return next(self._look(), None)

    def __iter__(self):
        _tracing.refuse("a loop over a dataset")
        return iter(self._elements())

    def __len__(self):
        if self._count is None:
            raise TypeError("how long it is shows when it ends")
        return self._count

    def __bool__(self):
        return True

    def cardinality(self, name=None):
        """How many elements there are."""
        return convert_to_tensor(np.int64(-2 if self._count is None else self._count))

    @property
    def element_spec(self):
        """Dtypes and shapes of elements."""
        first = self._first()
        return None if first is None else _mapped(_spec, first)

    def as_numpy_iterator(self):
        """The elements as arrays of NumPy's."""
        return (_mapped(lambda leaf: leaf.numpy(), element) for element in self)

    def apply(self, transformation_func):
        """transformation_func of this dataset."""
        return transformation_func(self)

    def _known(self):
        """Itself while it has texts, and else a dataset of the engine's."""
        from .data import Dataset
        first = self._first()
        return self if first is not None and holds_texts(first) else Dataset.from_generator(lambda: iter(self))._of_count(self._count)

    def map(self, map_func, num_parallel_calls=None, deterministic=None, name=None, **_):
        """map_func of every element: a dataset of the engine's, where no texts are left."""
        def call(element):
            made = called(map_func, element)
            # A list of tensors is a tuple, as in TensorFlow, texts or not: decode_csv() gives one of both.
            parts = isinstance(made, list) and (not is_text(made) or any(isinstance(part, (Texts, Tensor)) for part in made))
            return _mapped(_value, tuple(made) if parts else made)
        return self._through(lambda elements: map(call, elements), self._count)._known()

    def filter(self, predicate, name=None):
        """Those for which it holds."""
        return self._through(lambda elements: (element for element in elements if called(predicate, element)))

    def take_while(self, predicate, name=None):
        """Up to the first for which it does not hold."""
        return self._through(lambda elements: itertools.takewhile(lambda element: bool(called(predicate, element)), elements))

    def flat_map(self, map_func, name=None):
        """The elements of the datasets that map_func makes of elements, one after another."""
        return self._through(lambda elements: itertools.chain.from_iterable(called(map_func, element) for element in elements))._known()

    def interleave(self, map_func, cycle_length=None, block_length=None, num_parallel_calls=None, deterministic=None, name=None):
        """The same, from several of them in turn."""
        cycle, block = (4 if cycle_length in (None, -1) else int(cycle_length)), int(block_length or 1)

        def in_turn(elements):
            datasets = (iter(called(map_func, element)) for element in elements)
            open_ones = list(itertools.islice(datasets, cycle))
            while open_ones:
                for place, dataset in enumerate(open_ones):
                    taken = list(itertools.islice(dataset, block))
                    yield from taken
                    if len(taken) < block:
                        open_ones[place] = next(datasets, None)
                open_ones = [dataset for dataset in open_ones if dataset is not None]
        return self._through(in_turn)._known()

    def batch(self, batch_size, drop_remainder=False, num_parallel_calls=None, deterministic=None, name=None):
        """So many elements as one."""
        size = int(batch_size)

        def batches(elements):
            while chunk := list(itertools.islice(elements, size)):
                if len(chunk) == size or not drop_remainder:
                    yield _mapped(_together, *chunk)
        count = self._count
        return self._through(batches, None if count is None else count // size if drop_remainder else -(-count // size))

    def unbatch(self, name=None):
        """The rows of batches as elements."""
        return self._through(lambda batches: (_mapped(lambda leaf: leaf[number], batch) for batch in batches
                                              for number in range(len(_leaves(batch)[0]))))

    def rebatch(self, batch_size, drop_remainder=False, name=None):
        """Batches of another size."""
        return self.unbatch().batch(batch_size, drop_remainder)

    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=True, name=None):
        """In another order, which is drawn from a buffer of so many. Without a seed, one is drawn from tf.random."""
        passes = itertools.count()
        drawn = []  # the order of all passes, where it is to be the same

        def seeds():
            if seed is not None:
                return int(seed), next(passes) if reshuffle_each_iteration is not False else 0
            if not drawn or reshuffle_each_iteration is not False:
                drawn[:] = [int(_lockstep.ops.uniform([], 0.0, float(2**31 - 1), int32, None))]
            return drawn[0], 0

        def shuffled(elements):
            generator = np.random.default_rng(seeds())
            buffer = list(itertools.islice(elements, int(buffer_size)))
            for element in elements:
                place = generator.integers(len(buffer))
                yield buffer[place]
                buffer[place] = element
            for place in generator.permutation(len(buffer)):
                yield buffer[place]
        return self._through(shuffled, self._count, order=iter)

    def take(self, count, name=None):
        """The first of them; all of them for -1."""
        count = int(count)
        if count < 0:
            return self
        return self._through(lambda elements: itertools.islice(elements, count), None if self._count is None else min(self._count, count))

    def skip(self, count, name=None):
        """Those after the first; none for -1."""
        count = int(count)
        if count < 0:
            return self.take(0)
        return self._through(lambda elements: itertools.islice(elements, count, None), None if self._count is None else max(self._count - count, 0))

    def shard(self, num_shards, index, name=None):
        """Every num_shards-th, from this one on."""
        count = None if self._count is None else len(range(int(index), self._count, int(num_shards)))
        return self._through(lambda elements: itertools.islice(elements, int(index), None, int(num_shards)), count)

    def repeat(self, count=None, name=None):
        """So many passes; for ever where none is given."""
        count = None if count is None or count < 0 else int(count)

        def elements():
            for _ in itertools.count() if count is None else range(count):
                seen = False
                for element in self:
                    seen = True
                    yield element
                if not seen:
                    return
        return TextDataset(elements, self._look, None if self._count is None or count is None else self._count * count)

    def concatenate(self, dataset, name=None):
        """And then those of another one."""
        other = TextDataset.of(dataset)
        counts = [self._count, other._count]
        return TextDataset(lambda: itertools.chain(self, other), lambda: itertools.chain(self._look(), other._look()),
                           None if None in counts else sum(counts))

    def enumerate(self, start=0, name=None):
        """(number, element)."""
        return self._through(lambda elements: ((convert_to_tensor(np.int64(number)), element) for number, element in enumerate(elements, start)),
                             self._count)

    def cache(self, filename="", name=None):
        """Elements of the first pass are kept."""
        kept = []

        def elements():
            if not kept:
                kept.append(list(self))
            return iter(kept[0])
        return TextDataset(elements, self._look, self._count)

    def prefetch(self, buffer_size=None, name=None):
        """Texts are read when they are asked for: the dataset itself."""
        return self

    def with_options(self, options, name=None):
        """There is nothing about texts that options change."""
        return self

    def get_single_element(self, name=None):
        """The one element of a dataset of one."""
        return only_element(self)

    def reduce(self, initial_state, reduce_func, name=None):
        """reduce_func(state, element) over all elements."""
        state = _mapped(_value, initial_state)
        for element in self:
            state = reduce_func(state, element)
        return state

    def texts(self):
        """All texts, one after another. Lockstep's own."""
        return [text for element in self for leaf in _leaves(element) if isinstance(leaf, Texts) for text in leaf._array.reshape(-1).tolist()]

    @property
    def _handle(self):
        raise TypeError("the dataset holds texts, and the model takes numbers: make numbers of them first, dataset.map(lambda text, label: (layer(text), label)) "
                        "with a layer such as TextVectorization, or begin the model with keras.Input(shape=(1,), dtype=\"string\") and such a layer")

    def __repr__(self):
        return f"<TextDataset element_spec={self.element_spec}>"


def only_element(dataset):
    """The element of a dataset of one, of texts or not."""
    elements = list(dataset.take(2))
    if len(elements) != 1:
        raise ValueError(f"get_single_element: the dataset has {'more than one' if elements else 'no'} element")
    return elements[0]


def called(function, element):
    return function(*element) if isinstance(element, tuple) else function(element)
