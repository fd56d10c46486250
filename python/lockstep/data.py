"""tf.data: where elements come from and what happens to them on the way."""

import atexit
import bisect
import csv
import enum
import functools
import glob
import itertools
import os

import numpy as np

from . import _lockstep, _names, _texts, _tracing, dtypes, errors, nest
from ._lockstep import Tensor, Variable
from .tensor import TensorShape, TensorSpec, convert_to_tensor

AUTOTUNE = -1
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


def _element(value):
    """What the engine takes: tensors in tuples and dictionaries. A list is a tensor, as in TensorFlow."""
    if isinstance(value, tuple):
        return tuple(_element(part) for part in value)
    if isinstance(value, dict):
        return {str(key): _element(part) for key, part in value.items()}
    if isinstance(value, (Tensor, Variable)):
        return value
    if isinstance(value, (str, bytes)) or (isinstance(value, (list, np.ndarray)) and np.asarray(value).dtype.kind in "USO"):
        raise TypeError("texts are no tensors: here they are to be numbers, which TextVectorization or StringLookup make of them. Datasets of "
                        "texts are those of from_tensor_slices, list_files, TextLineDataset, from_generator with a signature of tf.string, "
                        "and what map() makes of them")
    return convert_to_tensor(value)


def _calling(function):
    """A function of an element's parts as one of the element."""
    def call(element):
        result = function(*element) if isinstance(element, tuple) else function(element)
        return _element(tuple(result) if isinstance(result, list) else result)
    return call


def _calls(count):
    return 1 if count is None else int(count)


class AutoShardPolicy(enum.IntEnum):
    """How the workers of a run share a dataset."""
    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class ThreadingOptions:
    def __init__(self):
        self.private_threadpool_size = 0
        self.max_intra_op_parallelism = 1


class DistributeOptions:
    def __init__(self):
        self.auto_shard_policy = AutoShardPolicy.AUTO


class AutotuneOptions:
    def __init__(self):
        self.enabled = True
        self.cpu_budget = 0
        self.ram_budget = 0


class OptimizationOptions:
    """How a pipeline is rewritten: kept, and without effect."""

    def __init__(self):
        self.apply_default_optimizations = self.filter_fusion = self.filter_parallelization = self.inject_prefetch = None
        self.map_and_batch_fusion = self.map_and_filter_fusion = self.map_fusion = self.map_parallelization = None
        self.noop_elimination = self.parallel_batch = self.seq_interleave_prefetch = self.shuffle_and_repeat_fusion = None


class Options:
    """What a whole dataset is told."""

    def __init__(self):
        self.deterministic = None
        self.experimental_deterministic = None
        self.threading = ThreadingOptions()
        self.experimental_distribute = DistributeOptions()
        self.autotune = AutotuneOptions()
        self.experimental_optimization = OptimizationOptions()
        self.experimental_slack = self.experimental_symbolic_checkpoint = self.experimental_warm_start = None

    @property
    def experimental_threading(self):
        return self.threading


class Dataset:
    """A description of elements: immutable, made anew by every method. Nothing is read before somebody asks."""

    _count = None  # how many elements there are, where the engine cannot know it

    def __init__(self, handle):
        self._handle = handle

    def _counted(self, count):
        """What becomes of a number of elements that the engine does not know; one without an end stays so."""
        return count(self._count) if self._count is not None and self._count >= 0 else self._count

    def _of_count(self, count):
        self._count = count
        return self

    # --- sources ---

    @staticmethod
    def from_tensor_slices(tensors, name=None):
        """One element a row of the arrays."""
        if _texts.holds_texts(tensors):
            return _texts.TextDataset.from_tensor_slices(tensors)
        return Dataset(_lockstep.Dataset.from_tensor_slices(_element(tensors)))

    @staticmethod
    def from_tensors(tensors, name=None):
        """This one element."""
        if _texts.holds_texts(tensors):
            return _texts.TextDataset.from_tensors(tensors)
        return Dataset(_lockstep.Dataset.from_tensors(_element(tensors)))

    @staticmethod
    def list_files(file_pattern, shuffle=True, seed=None, name=None):
        """The names of the files that patterns match, as texts; in another order in every pass, unless they are not to be shuffled."""
        patterns = _texts.Texts(file_pattern).numpy()
        patterns = [patterns] if isinstance(patterns, bytes) else patterns.reshape(-1).tolist()
        found = _files_of("list_files", patterns, errors.InvalidArgumentError)
        whole = _texts.TextDataset.from_tensor_slices(_texts.Texts([os.fsencode(path) for path in found]))
        return whole.shuffle(len(found), seed) if shuffle is not False else whole

    @staticmethod
    def range(*args, output_type=dtypes.int64, name=None):
        """The numbers of Python's range()."""
        numbers = range(*(int(arg) for arg in args))
        made = Dataset(_lockstep.Dataset.range(numbers.start, numbers.stop, numbers.step))
        from . import ops
        return made if dtypes.as_dtype(output_type) is dtypes.int64 else made.map(lambda x: ops.cast(x, output_type))

    @staticmethod
    def from_generator(generator, output_types=None, output_shapes=None, args=None, output_signature=None, name=None):
        """What a function that returns an iterator gives. It is called for every pass."""
        spec = output_signature
        if spec is None and output_types is not None:
            flat_types = nest.flatten(output_types)
            flat_shapes = [None] * len(flat_types) if output_shapes is None else _shape_leaves(output_shapes, output_types)
            spec = nest.pack_sequence_as(output_types, [_Dtyped(t, s) for t, s in zip(flat_types, flat_shapes)])
        if spec is not None and _texts.wants_texts(spec):
            return _texts.TextDataset.from_generator(lambda: iter(generator(*(args or ()))), spec)

        def elements():
            for value in generator(*(args or ())):
                yield _element(value) if spec is None else _specified(value, spec)
        return Dataset(_lockstep.Dataset.from_generator(lambda: elements(), None))

    @staticmethod
    def zip(*args, datasets=None, name=None):
        """Tuples of one element of each."""
        if datasets is not None:
            args = (datasets,)
        parts = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
        if any(isinstance(part, _texts.TextDataset) for part in parts):
            return _texts.TextDataset.zip(parts)
        return Dataset(_lockstep.Dataset.zip([part._handle for part in parts]))

    @staticmethod
    def sample_from_datasets(datasets, weights=None, seed=None, stop_on_empty_dataset=False, rerandomize_each_iteration=None):
        """Elements of these, drawn at random."""
        return Dataset(_lockstep.Dataset.sample_from_datasets([d._handle for d in datasets], list(weights or []), seed,
                                                              stop_on_empty_dataset))

    @staticmethod
    def choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset=True):
        """Elements of the dataset that each number names."""
        return Dataset(_lockstep.Dataset.choose_from_datasets([d._handle for d in datasets], choice_dataset._handle,
                                                              stop_on_empty_dataset))

    @staticmethod
    def counter(start=0, step=1, dtype=dtypes.int64, name=None):
        """start, start + step, ... without end."""
        from . import ops
        return Dataset.range(0, 2**62).map(lambda number: ops.cast(number * step + start, dtype))._of_count(INFINITE_CARDINALITY)

    @staticmethod
    def random(seed=None, rerandomize_each_iteration=None, name=None):
        """Numbers without end."""
        def draw():
            generator = np.random.default_rng(seed)
            while True:
                yield np.int64(generator.integers(0, 2**32))
        return Dataset.from_generator(draw)

    # --- what is done to elements ---

    def map(self, map_func, num_parallel_calls=None, deterministic=None, synchronous=None, use_unbounded_threadpool=False,
            name=None):
        """map_func of every element; several at once where num_parallel_calls says so."""
        return Dataset(self._handle.map(_calling(map_func), _calls(num_parallel_calls), deterministic))._of_count(self._count)

    def filter(self, predicate, name=None):
        """Those for which it holds."""
        return Dataset(self._handle.filter(lambda e: bool(predicate(*e) if isinstance(e, tuple) else predicate(e))))

    def take_while(self, predicate, name=None):
        """Up to the first for which it does not hold."""
        return Dataset(self._handle.take_while(lambda e: bool(predicate(*e) if isinstance(e, tuple) else predicate(e))))

    def scan(self, initial_state, scan_func, name=None):
        """scan_func(state, element) gives the next state and an element."""
        def step(state, element):
            after, result = scan_func(state, element)
            return _element(after), _element(result)
        return Dataset(self._handle.scan(_element(initial_state), step))

    def flat_map(self, map_func, name=None):
        """The elements of the datasets that map_func makes of elements, one after another."""
        def call(element):
            return (map_func(*element) if isinstance(element, tuple) else map_func(element))._handle
        return Dataset(self._handle.flat_map(call))

    def interleave(self, map_func, cycle_length=None, block_length=None, num_parallel_calls=None, deterministic=None, name=None):
        """The same, from several of them in turn."""
        def call(element):
            return (map_func(*element) if isinstance(element, tuple) else map_func(element))._handle
        return Dataset(self._handle.interleave(call, AUTOTUNE if cycle_length is None else cycle_length, block_length or 1,
                                               _calls(num_parallel_calls), deterministic))

    def window(self, size, shift=None, stride=1, drop_remainder=False, name=None):
        """Datasets of so many elements in a row. What is made of them comes next: ``.flat_map(lambda w: w.batch(size))``."""
        return _Windows(self, size, shift or 0, stride, drop_remainder)

    def batch(self, batch_size, drop_remainder=False, num_parallel_calls=None, deterministic=None, name=None):
        """So many elements as one, along a new first dimension."""
        size, count = int(batch_size), self._count
        made = Dataset(self._handle.batch(size, bool(drop_remainder), _calls(num_parallel_calls)))
        return made._of_count(count if count is None or count < 0 else count // size if drop_remainder else -(-count // size))

    def padded_batch(self, batch_size, padded_shapes=None, padding_values=None, drop_remainder=False, name=None):
        """The same of elements of different sizes, which are filled up."""
        shapes = [] if padded_shapes is None else _shape_leaves(padded_shapes, None)
        values = [] if padding_values is None else [float(value) for value in nest.flatten(padding_values)]
        return Dataset(self._handle.padded_batch(int(batch_size), shapes, values, drop_remainder))

    def unbatch(self, name=None):
        """The rows of batches as elements."""
        return Dataset(self._handle.unbatch())

    def rebatch(self, batch_size, drop_remainder=False, name=None):
        """Batches of another size."""
        return Dataset(self._handle.rebatch(int(batch_size), drop_remainder))

    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=True, name=None):
        """In another order, which is drawn from a buffer of so many."""
        return Dataset(self._handle.shuffle(int(buffer_size), seed, reshuffle_each_iteration is not False))._of_count(self._count)

    def repeat(self, count=None, name=None):
        """So many passes; for ever where none is given."""
        count = -1 if count is None else int(count)
        return Dataset(self._handle.repeat(count))._of_count(self._counted(lambda known: known * count if count >= 0 else known and INFINITE_CARDINALITY))

    def take(self, count, name=None):
        """The first of them."""
        count = int(count)
        known = self._counted(lambda known: known if count < 0 else min(known, count))
        return Dataset(self._handle.take(count))._of_count(count if known == INFINITE_CARDINALITY and count >= 0 else known)

    def skip(self, count, name=None):
        """Those after the first."""
        count = int(count)
        return Dataset(self._handle.skip(count))._of_count(self._counted(lambda known: 0 if count < 0 else max(known - count, 0)))

    def shard(self, num_shards, index, name=None):
        """Every num_shards-th, from this one on."""
        num_shards, index = int(num_shards), int(index)
        return Dataset(self._handle.shard(num_shards, index))._of_count(self._counted(lambda known: len(range(index, known, num_shards))))

    def concatenate(self, dataset, name=None):
        """And then those of another one."""
        if isinstance(dataset, _texts.TextDataset):
            return _texts.TextDataset.of(self).concatenate(dataset)
        made = Dataset(self._handle.concatenate(dataset._handle))
        counts = self._elements(), dataset._elements()
        return made if self._count is dataset._count is None or UNKNOWN_CARDINALITY in counts else \
            made._of_count(INFINITE_CARDINALITY if INFINITE_CARDINALITY in counts else sum(counts))

    def enumerate(self, start=0, name=None):
        """(number, element)."""
        return Dataset(self._handle.enumerate(start))._of_count(self._count)

    def cache(self, filename="", name=None):
        """Elements of the first pass are kept: in memory, or in files."""
        return Dataset(self._handle.cache(str(filename)))._of_count(self._count)

    def snapshot(self, path, compression="AUTO", reader_func=None, shard_func=None, name=None):
        """The first pass is written to a folder, later ones are read from there."""
        return Dataset(self._handle.snapshot(str(path)))

    def prefetch(self, buffer_size=AUTOTUNE, name=None):
        """So many elements are ready before they are asked for."""
        return Dataset(self._handle.prefetch(AUTOTUNE if buffer_size is None else int(buffer_size)))._of_count(self._count)

    def ignore_errors(self, log_warning=False, name=None):
        """Elements that cannot be made are left out."""
        return Dataset(self._handle.ignore_errors(log_warning))

    def with_options(self, options, name=None):
        """What holds for the whole dataset."""
        policy = {AutoShardPolicy.AUTO: 0, AutoShardPolicy.FILE: 1, AutoShardPolicy.DATA: 2, AutoShardPolicy.OFF: 3,
                  AutoShardPolicy.HINT: 0}[options.experimental_distribute.auto_shard_policy]
        deterministic = options.deterministic if options.deterministic is not None else options.experimental_deterministic
        return Dataset(self._handle.with_options(int(options.threading.private_threadpool_size or 0), deterministic, policy,
                                                 bool(options.autotune.enabled)))._of_count(self._count)

    def unique(self, name=None):
        """Each element once."""
        def elements():
            seen = set()
            for element in self:
                key = tuple((tensor.dtype.name, tuple(tensor.shape), tensor.numpy().tobytes()) for tensor in nest.flatten(element))
                if key not in seen:
                    seen.add(key)
                    yield element
        return Dataset.from_generator(elements)

    def group_by_window(self, key_func, reduce_func, window_size=None, window_size_func=None, name=None):
        """Elements of one key, so many at a time, become what reduce_func(key, dataset of them) makes of them."""
        if (window_size is None) == (window_size_func is None):
            raise ValueError("group_by_window: give window_size or window_size_func")

        def size_of(key):
            return int(window_size if window_size_func is None else window_size_func(convert_to_tensor(key, dtypes.int64)))

        def key_of(element):
            return int(_texts.called(key_func, element))
        return Dataset.from_generator(lambda: _grouped(self, key_of, size_of, lambda key, group: reduce_func(convert_to_tensor(key, dtypes.int64), group)))

    def bucket_by_sequence_length(self, element_length_func, bucket_boundaries, bucket_batch_sizes, padded_shapes=None, padding_values=None,
                                  pad_to_bucket_boundary=False, no_padding=False, drop_remainder=False, name=None):
        """Batches of elements of about one length, filled up to the longest of each."""
        if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
            raise ValueError(f"bucket_by_sequence_length: {len(bucket_boundaries)} boundaries make {len(bucket_boundaries) + 1} buckets, received "
                             f"{len(bucket_batch_sizes)} batch sizes")
        if pad_to_bucket_boundary:
            raise NotImplementedError("bucket_by_sequence_length: batches are filled up to their longest element; padded_shapes says another length")

        def bucket(element):
            return bisect.bisect_right(list(bucket_boundaries), int(_texts.called(element_length_func, element)))

        def batched(key, group):
            size = int(bucket_batch_sizes[key])
            return group.batch(size, drop_remainder) if no_padding else group.padded_batch(size, padded_shapes, padding_values, drop_remainder)
        return Dataset.from_generator(lambda: _grouped(self, bucket, lambda key: int(bucket_batch_sizes[key]), batched))

    def apply(self, transformation_func):
        """transformation_func of this dataset."""
        return transformation_func(self)

    # --- reading ---

    @property
    def element_spec(self):
        """Dtypes and shapes of elements."""
        return _specs(self._handle.element_spec())

    def cardinality(self, name=None):
        """How many elements there are."""
        return convert_to_tensor(self._elements(), dtypes.int64)

    def _elements(self):
        return self._handle.cardinality() if self._count is None else self._count

    def __len__(self):
        count = self._elements()
        if count < 0:
            raise TypeError("the dataset is infinite" if count == INFINITE_CARDINALITY else "how long it is shows when it ends")
        return count

    def __bool__(self):
        return True

    def __iter__(self):
        return self._handle.iterator()

    def as_numpy_iterator(self):
        """The elements as arrays of NumPy's."""
        for element in self:
            yield nest.map_structure(lambda tensor: tensor.numpy(), element)

    def get_single_element(self, name=None):
        """The one element of a dataset of one."""
        return _texts.only_element(self)

    def reduce(self, initial_state, reduce_func, name=None):
        """reduce_func(state, element) over all elements."""
        state = nest.map_structure(convert_to_tensor, initial_state)
        for element in self:
            state = reduce_func(state, element)
        return state

    def explain(self, seconds=1.0):
        """Which stage limits it, and what would help. Lockstep's own."""
        return _lockstep.explain(self._handle, seconds)

    def __repr__(self):
        return f"<Dataset element_spec={self.element_spec}>"


class _Windows:
    """Datasets of elements in a row, until what is made of them is known."""

    def __init__(self, dataset, size, shift, stride, drop_remainder):
        self._dataset, self._arguments = dataset, (int(size), shift, stride, drop_remainder)

    def flat_map(self, map_func, name=None):
        """The elements of what map_func makes of each window."""
        size, shift, stride, drop = self._arguments

        def call(window):
            element = Dataset(window)
            parts = element._handle.element_spec()
            if isinstance(parts, tuple) and not _is_leaf(parts):
                given = tuple(_part(element, i) for i in range(len(parts)))
                return map_func(*given)._handle
            return map_func(element)._handle
        return Dataset(self._dataset._handle.window(size, call, shift, stride, drop))

    interleave = flat_map

    def __iter__(self):
        """The windows, as datasets."""
        size, shift, stride, drop = self._arguments
        shift, kept, gone = int(shift or size), [], 0
        reach = (size - 1) * stride + 1
        for element in self._dataset:
            if gone:  # windows that do not touch leave elements out
                gone -= 1
                continue
            kept.append(element)
            if len(kept) == reach:
                yield _of_elements(kept[::stride])
                gone, kept = max(shift - reach, 0), kept[shift:]
        while kept and not drop:
            yield _of_elements(kept[::stride])
            kept = kept[shift:]

    def take(self, count, name=None):
        """The first windows."""
        return itertools.islice(iter(self), int(count))

    def map(self, map_func, num_parallel_calls=None, deterministic=None, name=None):
        """What map_func makes of every window, where that is no dataset."""
        return Dataset.from_generator(lambda: (_element(_texts.called(map_func, window)) for window in self))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"window(): .{name} of a dataset of datasets; make elements of the windows first: "
                                  ".flat_map(lambda window: window.batch(size))")


def _files_of(what, patterns, error):
    """The files that patterns match, each once and in order."""
    found = sorted({os.fsdecode(path) for pattern in patterns for path in glob.glob(os.fsdecode(pattern))})
    if not found:
        raise error(f"{what}: no file matches {', '.join(os.fsdecode(pattern) for pattern in patterns)}")
    return found


def _of_elements(elements):
    """A dataset of elements that are there."""
    elements = list(elements)
    return Dataset.from_generator(lambda: iter(elements))._of_count(len(elements))


def _grouped(dataset, key_of, size_of, made_of):
    """What is made of groups of elements of one key, once they have their size; what is left at the end, by their keys."""
    groups = {}
    for element in dataset:
        key = key_of(element)
        group = groups.setdefault(key, [])
        group.append(element)
        if len(group) == size_of(key):
            yield from made_of(key, _of_elements(groups.pop(key)))
    for key in sorted(groups):
        yield from made_of(key, _of_elements(groups[key]))


def _next_of(iterator):
    """What comes next; tf.errors.OutOfRangeError at the end, where next() raises StopIteration."""
    try:
        return next(iterator)
    except StopIteration:
        raise errors.OutOfRangeError("the dataset has no more elements") from None


class Optional:
    """An element, or the end."""

    def __init__(self, iterator):
        self._elements = list(itertools.islice(iterator, 1))

    def has_value(self, name=None):
        """Whether there is one."""
        return convert_to_tensor(bool(self._elements))

    def get_value(self, name=None):
        """The element."""
        if not self._elements:
            raise errors.InvalidArgumentError("get_value: the dataset had no more elements; has_value() says so")
        return self._elements[0]


_next_of_engine = _lockstep.Iterator.__next__


def _next(self):
    _tracing.refuse("next() of an iterator")
    return _next_of_engine(self)


atexit.register(_lockstep.stop_all)  # threads of pipelines may be in functions of Python
_lockstep.Iterator.__next__, _lockstep.Iterator.get_next = _next, _next_of
_lockstep.Iterator.get_next_as_optional = lambda self: Optional(self)


def _part(dataset, position):
    return dataset.map(lambda *parts: parts[position])


def _is_leaf(spec):
    return isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], dtypes.DType)


def _specs(raw):
    if _is_leaf(raw):
        return TensorSpec(raw[1], raw[0])
    if isinstance(raw, dict):
        return {key: _specs(part) for key, part in raw.items()}
    return tuple(_specs(part) for part in raw)


class _Dtyped:
    def __init__(self, dtype, shape):
        self.dtype = dtypes.string if dtype == dtypes.string else dtypes.as_dtype(dtype)
        self.shape = None if shape is None else TensorShape(shape)


def _shape_leaves(shapes, like):
    """Shapes are lists themselves: those of a structure are its innermost lists."""
    if isinstance(shapes, dict):
        return [leaf for key in sorted(shapes) for leaf in _shape_leaves(shapes[key], None)]
    if isinstance(shapes, TensorShape) or shapes is None or all(s is None or isinstance(s, (int, np.integer)) for s in shapes) and \
            not (isinstance(shapes, tuple) and shapes == () and nest.is_nested(like)):
        return [shapes]
    return [leaf for part in shapes for leaf in _shape_leaves(part, None)]


def _specified(value, spec):
    if isinstance(spec, dict):
        return {str(key): _specified(value[key], spec[key]) for key in spec}
    if isinstance(spec, (tuple, list)):
        return tuple(_specified(part, inner) for part, inner in zip(value, spec))
    dtype = getattr(spec, "dtype", None)
    made = convert_to_tensor(np.asarray(value) if not isinstance(value, (Tensor, Variable)) else value)
    if dtype is not None and made.dtype is not dtype:
        made = _lockstep.ops.cast(made, dtype)
    shape = getattr(spec, "shape", None)
    if shape is not None and not shape.is_compatible_with(made.shape):
        raise ValueError(f"from_generator: an element of shape {made.shape} where {shape} was said")
    return made


def _default_of(fields, na_value):
    """What an empty field of such a column is, in the dtype that all of its fields have."""
    known = [field for field in fields if field not in ("", na_value)]
    for kind, default in ((int, np.int32(0)), (float, np.float32(0.0))):
        try:
            numbers = [kind(field) for field in known]
        except ValueError:
            continue
        return np.int64(0) if kind is int and any(abs(number) >= 2**31 for number in numbers) else default
    return ""


def _to_apply(method):
    """A function that gives what dataset.apply() takes, of a method."""
    @staticmethod
    @functools.wraps(getattr(Dataset, method))
    def made(*args, **kwargs):
        return lambda dataset: getattr(dataset, method)(*args, **kwargs)
    return made


class experimental(metaclass=_names.Namespace):
    """Names from before these were settled."""
    Counter = Dataset.counter
    AUTOTUNE = AUTOTUNE
    AutoShardPolicy = AutoShardPolicy
    INFINITE_CARDINALITY = INFINITE_CARDINALITY
    UNKNOWN_CARDINALITY = UNKNOWN_CARDINALITY

    Optional, OptimizationOptions, AutotuneOptions = Optional, OptimizationOptions, AutotuneOptions
    DistributeOptions, ThreadingOptions = DistributeOptions, ThreadingOptions
    sample_from_datasets = staticmethod(Dataset.sample_from_datasets)
    bucket_by_sequence_length, group_by_window = _to_apply("bucket_by_sequence_length"), _to_apply("group_by_window")
    enumerate_dataset, ignore_errors, scan, snapshot = _to_apply("enumerate"), _to_apply("ignore_errors"), _to_apply("scan"), _to_apply("snapshot")
    take_while, unbatch, unique = _to_apply("take_while"), _to_apply("unbatch"), _to_apply("unique")

    @staticmethod
    def choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset=False):
        """Dataset.choose_from_datasets(), which unlike this one stops by default at the end of the first dataset that is chosen."""
        return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)

    @staticmethod
    def cardinality(dataset):
        return dataset.cardinality()

    @staticmethod
    def get_single_element(dataset):
        """The element of a dataset of one."""
        return dataset.get_single_element()

    @staticmethod
    def get_next_as_optional(iterator):
        """The next element, or none."""
        return iterator.get_next_as_optional()

    @staticmethod
    def get_structure(dataset_or_iterator):
        """What the elements are."""
        return dataset_or_iterator.element_spec

    @staticmethod
    def map_and_batch(map_func, batch_size, num_parallel_batches=None, drop_remainder=False, num_parallel_calls=None):
        """map() and batch()."""
        return lambda dataset: dataset.map(map_func, num_parallel_calls or num_parallel_batches).batch(batch_size, drop_remainder)

    @staticmethod
    def shuffle_and_repeat(buffer_size, count=None, seed=None):
        """shuffle() and repeat()."""
        return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)

    @staticmethod
    def parallel_interleave(map_func, cycle_length, block_length=1, sloppy=False, buffer_output_elements=None, prefetch_input_elements=None):
        """interleave() on several cores."""
        return lambda dataset: dataset.interleave(map_func, cycle_length, block_length, num_parallel_calls=cycle_length)

    @staticmethod
    def prefetch_to_device(device, buffer_size=None):
        """prefetch(): what trains puts batches on its devices itself."""
        return lambda dataset: dataset.prefetch(AUTOTUNE if buffer_size is None else buffer_size)

    @staticmethod
    def CsvDataset(filenames, record_defaults, compression_type=None, buffer_size=None, header=False, field_delim=",",  # noqa: N802
                   use_quote_delim=True, na_value="", select_cols=None, exclude_cols=None):
        """The rows of files with fields between commas, as tuples; each field of the dtype of its default."""
        from . import io  # which stands on this module
        if exclude_cols is not None:
            raise NotImplementedError("CsvDataset: select_cols says which columns are read")

        def rows(file):
            lines = TextLineDataset(file, compression_type).skip(1 if header else 0)  # noqa: F821: made by io
            return lines.map(lambda line: tuple(io.decode_csv(line, record_defaults, field_delim, use_quote_delim, na_value, select_cols)))
        files = _texts.Texts(filenames)
        parts = [rows(file) for file in (files if files.ndim else [files])]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.concatenate(part)
        return whole

    @staticmethod
    def make_csv_dataset(file_pattern, batch_size, column_names=None, column_defaults=None, label_name=None, select_columns=None, field_delim=",",
                         use_quote_delim=True, na_value="", header=True, num_epochs=None, shuffle=True, shuffle_buffer_size=10000, shuffle_seed=None,
                         prefetch_buffer_size=None, num_parallel_reads=None, sloppy=False, num_rows_for_inference=100, compression_type=None,
                         ignore_errors=False):
        """Batches of the columns of files by their names, and of labels beside them. What a column is of follows from the first rows: whole
        numbers, numbers or texts."""
        if ignore_errors:
            raise NotImplementedError("make_csv_dataset: a row that cannot be read is an error; filter() leaves rows out before they are read")
        patterns = [file_pattern] if isinstance(file_pattern, (str, os.PathLike)) else list(file_pattern)
        files = _files_of("make_csv_dataset", patterns, ValueError)
        lines = TextLineDataset(files[0], compression_type).take((num_rows_for_inference or 100) + 1)  # noqa: F821: made by io
        first = list(csv.reader((line.numpy().decode() for line in lines), delimiter=field_delim,
                                quoting=csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE))
        if column_names is None:
            if not header:
                raise ValueError("make_csv_dataset: files without a header want column_names")
            column_names = first[0]
        chosen = list(range(len(column_names))) if select_columns is None else sorted(
            column_names.index(column) if isinstance(column, str) else int(column) for column in select_columns)
        names = [column_names[number] for number in chosen]
        if label_name is not None and label_name not in names:
            raise ValueError(f"make_csv_dataset: label_name {label_name!r} is none of the columns {', '.join(names)}")
        if column_defaults is None:
            column_defaults = [_default_of([row[number] for row in first[1 if header else 0:]], na_value) for number in chosen]
        rows = experimental.CsvDataset(_texts.Texts(files), column_defaults, compression_type, header=header, field_delim=field_delim, use_quote_delim=use_quote_delim,
                                       na_value=na_value, select_cols=chosen)
        if shuffle:
            rows = rows.shuffle(shuffle_buffer_size, shuffle_seed)

        def named(*fields):
            columns = dict(zip(names, fields))
            return columns if label_name is None else (columns, columns.pop(label_name))
        return rows.repeat(num_epochs).batch(int(batch_size), drop_remainder=num_epochs is None).map(named)

    @staticmethod
    def assert_cardinality(expected_cardinality):
        """Says how many elements there are, where that is not known: ``dataset.apply(assert_cardinality(10))``."""
        expected = int(expected_cardinality)

        def transformed(dataset):
            def elements():
                count = 0
                for count, element in enumerate(dataset, 1):
                    yield element
                if count != expected:
                    raise errors.FailedPreconditionError(f"assert_cardinality: the dataset has {count} elements, {expected} were said")
            return Dataset.from_generator(elements)._of_count(expected)
        return transformed


def _handle_of(dataset):
    return dataset._handle
