"""Ops, with TensorFlow's names, arguments and their order. ``name`` is taken everywhere, and means nothing here."""

import builtins
import collections
import math as _math

import numpy as np

from . import _lockstep, _tracing, dtypes, errors, nest
from ._lockstep import Tensor, Variable
from ._texts import Texts, is_text as _is_text
from .tensor import TensorShape, convert_to_tensor, is_tensor, tensor_or_texts

_ops = _lockstep.ops
_bool, _range, _abs, _round, _pow, _slice = (builtins.bool, builtins.range, builtins.abs, builtins.round, builtins.pow,
                                             builtins.slice)


# --- what arguments may be -----------------------------------------------------------------------------------------------

def _integer(value, what):
    """A size or an axis: part of the program, not of its values."""
    try:
        return int(value)
    except TypeError:
        raise TypeError(f"{what}: expected an integer that is known when the program is traced, received {value!r}") from None


def _sizes(shape):
    """A shape as a list: of integers, of a tensor, or of both."""
    if shape is None:
        return []
    if is_tensor(shape):
        return [int(size) for size in np.atleast_1d(shape.numpy())]
    if isinstance(shape, (int, np.integer)):
        return [int(shape)]
    return [-1 if size is None else _integer(size, "a shape") for size in shape]


def _axes(axis):
    if axis is None:
        return []
    if isinstance(axis, (list, tuple)) or (is_tensor(axis) and axis.ndim) or isinstance(axis, np.ndarray):
        return [_integer(one, "axis") for one in axis]
    return [_integer(axis, "axis")]


# --- elementwise ---------------------------------------------------------------------------------------------------------

def _one(name, doc):
    op = getattr(_ops, name)

    def of_x(x, name=None):
        return op(x)

    def of_input(input, name=None):
        return op(input)

    def of_features(features, name=None):
        return op(features)
    function = {"input": of_input, "features": of_features}.get(_CALLED.get(name), of_x)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _two(name, doc):
    op = getattr(_ops, name)

    def function(x, y, name=None):
        return op(x, y)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# What TensorFlow calls the argument, where it is not x.
_CALLED = {"identity": "input", "stop_gradient": "input"} | dict.fromkeys(("relu", "relu6", "selu", "softplus", "softsign"), "features")
_UNARY = {
    "identity": "x.", "negative": "-x.", "abs": "|x|.", "sign": "-1, 0 or 1.", "floor": "Rounded down.",
    "ceil": "Rounded up.", "round": "To the nearest, half to even.", "square": "x * x.", "sqrt": "The square root.",
    "rsqrt": "1 / sqrt(x).", "reciprocal": "1 / x.", "exp": "e ** x.", "expm1": "e ** x - 1.", "log": "The natural logarithm.",
    "log1p": "log(1 + x).", "tanh": "The hyperbolic tangent.", "sigmoid": "1 / (1 + exp(-x)).", "erf": "Gauss' error function.",
    "erfc": "1 - erf(x).", "sin": "The sine.", "cos": "The cosine.", "tan": "The tangent.", "asin": "The inverse sine.",
    "acos": "The inverse cosine.", "atan": "The inverse tangent.", "sinh": "The hyperbolic sine.",
    "cosh": "The hyperbolic cosine.", "asinh": "The inverse hyperbolic sine.", "acosh": "The inverse hyperbolic cosine.",
    "atanh": "The inverse hyperbolic tangent.", "log2": "The logarithm of base 2.", "log10": "The logarithm of base 10.",
    "softplus": "log(1 + exp(x)).", "relu": "max(x, 0).", "relu6": "x in [0, 6].", "selu": "The scaled exponential linear unit.",
    "silu": "x * sigmoid(x).", "mish": "x * tanh(softplus(x)).", "softsign": "x / (1 + |x|).",
    "log_sigmoid": "log(sigmoid(x)).", "hard_sigmoid": "x / 6 + 0.5 in [0, 1].", "hard_silu": "x * hard_sigmoid(x).",
    "hard_tanh": "x in [-1, 1].", "tanh_shrink": "x - tanh(x).", "sparse_plus": "0 to -1, (x + 1)^2 / 4 to 1, then x.",
    "sparse_sigmoid": "(x + 1) / 2 in [0, 1].", "logical_not": "Not x.", "is_nan": "Where it is no number.",
    "is_inf": "Where it is infinite.", "is_finite": "Where it is finite.",
    "stop_gradient": "x itself; its gradient is cut off.", "trunc": "Towards 0.",
}
_ops.trunc = _ops.truncate
for _name, _doc in _UNARY.items():
    globals()[_name] = _one(_name, _doc)
_BINARY = {
    "add": "x + y.", "subtract": "x - y.", "multiply": "x * y.", "divide": "x / y.", "maximum": "The larger one.",
    "minimum": "The smaller one.", "pow": "x ** y.", "floormod": "The rest of a division, with the sign of y.",
    "floordiv": "x / y, rounded down.", "squared_difference": "(x - y) ** 2.",
    "divide_no_nan": "x / y, 0 where y is 0.", "less": "x < y.", "less_equal": "x <= y.", "greater": "x > y.",
    "greater_equal": "x >= y.", "equal": "x == y.", "not_equal": "x != y.", "logical_and": "Both.", "logical_or": "Any.",
    "logical_xor": "One of them.",
}
for _name, _doc in _BINARY.items():
    globals()[_name] = _two(_name, _doc)


def atan2(y, x, name=None):
    """The angle of the point (x, y)."""
    return _ops.atan2(y, x)


truediv, mod = globals()["divide"], globals()["floormod"]
swish = globals()["silu"]
hard_swish, hard_shrink_default = globals()["hard_silu"], None
del hard_shrink_default
rint, floor_mod, floor_div = globals()["round"], globals()["floormod"], globals()["floordiv"]


def add_n(inputs, name=None):
    """The sum of all inputs."""
    total = inputs[0]
    for part in inputs[1:]:
        total = _ops.add(total, part)
    return convert_to_tensor(total)


accumulate_n = add_n


def where(condition, x=None, y=None, name=None):
    """x where the condition holds, y elsewhere; with the condition alone, the places where it holds."""
    if x is None and y is None:
        return _from_numpy(np.argwhere(_known(condition, "where")).astype(np.int64))
    return _ops.where(condition, x, y)


def _known(x, what):
    if isinstance(x, Texts):
        return x.numpy()
    x = convert_to_tensor(x)
    if x.symbolic:
        raise NotImplementedError(f"{what}: the shape of the result depends on the values, which a function that is being traced "
                                  "does not know; use tf.where(condition, x, y) or masks of the full shape")
    return np.asarray(x)


def _from_numpy(array):
    return convert_to_tensor(array)


def clip_by_value(t, clip_value_min, clip_value_max, name=None):
    """t, with what is outside of the two put on the nearer one."""
    return _ops.clip_by_value(t, clip_value_min, clip_value_max)


def cast(x, dtype, name=None):
    """x in another dtype; to integers by cutting off what is behind the point."""
    dtype = dtypes.as_dtype(dtype)
    sizes = _of_sizes([x], lambda parts: parts[0], dtype) if dtype in (dtypes.int32, dtypes.int64) else None
    return _ops.cast(x, dtype) if sizes is None else sizes


def bitcast(input, type, name=None):
    """The same bits as elements of another dtype; of one of another size the last dimension grows, or goes."""
    from .keras.ops import view  # which stands on this module
    input, dtype = convert_to_tensor(input), dtypes.as_dtype(type)
    if input.dtype.size < dtype.size:
        return squeeze(view(input, dtype), [-1])
    return view(expand_dims(input, -1), dtype) if input.dtype.size > dtype.size else view(expand_dims(input, -1), dtype)[..., 0]


def saturate_cast(value, dtype, name=None):
    """The same, with values that the dtype does not have put on its ends."""
    dtype = dtypes.as_dtype(dtype)
    return _ops.cast(_ops.clip_by_value(value, float(dtype.min), float(dtype.max)), dtype)


# --- making --------------------------------------------------------------------------------------------------------------

def zeros(shape, dtype=dtypes.float32, name=None, layout=None):
    """Zeros of this shape."""
    return _ops.full(_sizes(shape), 0.0, dtype)


def ones(shape, dtype=dtypes.float32, name=None, layout=None):
    """Ones of this shape."""
    return _ops.full(_sizes(shape), 1.0, dtype)


def fill(dims, value, name=None, layout=None):
    """This value in every place."""
    value = convert_to_tensor(value)
    return _ops.broadcast_to(value, _sizes(dims))


def zeros_like(input, dtype=None, name=None, layout=None):
    """Zeros of its shape."""
    return _ops.zeros_like(input) if dtype is None else zeros(input.shape, dtype)


def ones_like(input, dtype=None, name=None, layout=None):
    """Ones of its shape."""
    return _ops.ones_like(input) if dtype is None else ones(input.shape, dtype)


def range(start, limit=None, delta=1, dtype=None, name="range"):
    """start, start + delta, ... below limit."""
    if limit is None:
        start, limit = 0, start
    if any(is_tensor(part) and part.symbolic for part in (start, limit, delta)):
        raise errors.OperatorNotAllowedInGraphError(
            "range: how many numbers there are must be known when a function is traced. `for i in tf.range(n)` over a tensor n is "
            "tf.while_loop(lambda i: i < n, body, [0])")
    numbers = [part.numpy().item() if is_tensor(part) else part for part in (start, limit, delta)]
    if dtype is None:
        typed = [part.dtype for part in (start, limit, delta) if is_tensor(part)]
        dtype = typed[0] if typed else dtypes.float32 if any(isinstance(n, float) for n in numbers) else dtypes.int32
    return _ops.range(*(float(n) for n in numbers), dtype)


def linspace(start, stop, num, name=None, axis=0):
    """num numbers from start to stop, both among them."""
    start = convert_to_tensor(start)
    stop = convert_to_tensor(stop, None if is_tensor(stop) or not start.dtype.is_floating else start.dtype)
    dtype = start.dtype if start.dtype.is_floating else dtypes.float64
    if start.ndim or stop.ndim:
        from .keras.ops import linspace as between  # which stands on this module
        return between(_ops.cast(start, dtype), _ops.cast(stop, dtype), int(num), axis=int(axis))
    return _ops.linspace(float(start), float(stop), int(num), dtype)


def eye(num_rows, num_columns=None, batch_shape=None, dtype=dtypes.float32, name=None):
    """Ones on the diagonal."""
    made = _ops.eye(num_rows, -1 if num_columns is None else num_columns, dtype)
    return made if batch_shape is None else _ops.broadcast_to(made, _sizes(batch_shape) + list(made._shape))


def one_hot(indices, depth, on_value=None, off_value=None, axis=None, dtype=None, name=None):
    """1 at the index and 0 elsewhere, in a new last dimension."""
    dtype = dtypes.as_dtype(dtype or (on_value.dtype if is_tensor(on_value) else dtypes.float32))
    indices = convert_to_tensor(indices)
    if indices.dtype is dtypes.uint8:
        indices = _ops.cast(indices, dtypes.int32)
    made = _ops.one_hot(indices, int(depth), dtype)
    if on_value is not None or off_value is not None:
        made = _ops.where(_ops.cast(made, dtypes.bool), _ops.cast(1 if on_value is None else on_value, dtype),
                          _ops.cast(0 if off_value is None else off_value, dtype))
    return made if axis in (None, -1) else _ops.moveaxis(made, [-1], [axis])


# --- shapes --------------------------------------------------------------------------------------------------------------

class ShapeVector(np.ndarray):
    """tf.shape(x) in a function that is being traced. Sizes are known then, so that they may be sizes of other tensors."""

    def numpy(self):
        return np.asarray(self)


def _of_sizes(values, combine, dtype=None):
    """What is made of sizes that are known while a function is being traced, as a tensor that is known then, too, and may be the shape of others;
    None: these are others, or nothing is being traced."""
    def known(value):
        if isinstance(value, (list, tuple)):
            return all(isinstance(size, (int, np.integer)) and not isinstance(size, bool) for size in value)
        if isinstance(value, Tensor):
            return not value.symbolic and value.ndim < 2 and value.dtype in (dtypes.int32, dtypes.int64)
        return isinstance(value, (int, np.integer, ShapeVector)) and not isinstance(value, bool)
    if not values or not all(known(value) for value in values) or not zeros([]).symbolic:
        return None
    parts = _alike(values)
    return convert_to_tensor(combine([np.asarray(part) for part in parts]), dtype or parts[0].dtype)


def shape(input, out_type=dtypes.int32, name=None):
    """The shape as a tensor; in a function that is being traced, as numbers."""
    if isinstance(input, Texts):
        return convert_to_tensor(np.array(input.shape, dtypes.as_dtype(out_type).as_numpy_dtype))
    input = convert_to_tensor(input)
    sizes = np.array(input._shape, dtypes.as_dtype(out_type).as_numpy_dtype)
    return sizes.view(ShapeVector) if input.symbolic else convert_to_tensor(sizes)


def rank(input, name=None):
    """The number of dimensions as a tensor."""
    return convert_to_tensor(convert_to_tensor(input).ndim)


def size(input, out_type=dtypes.int32, name=None):
    """The number of elements as a tensor."""
    return convert_to_tensor(convert_to_tensor(input)._size, out_type)


def reshape(tensor, shape, name=None):
    """The elements in another shape; one size may be -1."""
    if isinstance(tensor, Texts):
        return tensor._reshape(_sizes(shape))
    return _ops.reshape(tensor, _sizes(shape))


def transpose(a, perm=None, conjugate=False, name="transpose"):
    """The axes in another order; reversed where none is given."""
    return _ops.transpose(a, [] if perm is None else _axes(perm))


def expand_dims(input, axis, name=None):
    """A dimension of size 1 at this place."""
    if isinstance(input, Texts):
        return input._expand_dims(axis)
    axis = _integer(axis, "axis")
    sizes = _of_sizes([input], lambda parts: np.expand_dims(parts[0], axis))
    return _ops.expand_dims(input, axis) if sizes is None else sizes


def squeeze(input, axis=None, name=None):
    """Without dimensions of size 1."""
    if isinstance(input, Texts):
        return input._squeeze(None if axis is None else tuple(_axes(axis)))
    return _ops.squeeze(input, _axes(axis))


def broadcast_to(input, shape, name=None):
    """As if it had this larger shape."""
    return _ops.broadcast_to(input, _sizes(shape))


def concat(values, axis, name="concat"):
    """Joined along a dimension."""
    values = [values] if is_tensor(values) else list(values)
    axis = _integer(axis, "axis")
    if any(_is_text(value) for value in values):
        return Texts(np.concatenate([np.asarray(Texts(value)) for value in values], axis))
    sizes = _of_sizes(values, lambda parts: np.concatenate(parts, axis))
    return _ops.concat(_alike(values), axis) if sizes is None else sizes


def _alike(values):
    """Numbers and lists take the dtype of the tensors among them."""
    typed = [value.dtype for value in values if is_tensor(value)]
    return [value if is_tensor(value) else convert_to_tensor(value, typed[0] if typed else None) for value in values]


def stack(values, axis=0, name="stack"):
    """Joined along a new dimension."""
    values, axis = list(values), _integer(axis, "axis")
    if any(_is_text(value) for value in values):
        return Texts(np.stack([np.asarray(Texts(value)) for value in values], axis))
    sizes = _of_sizes(values, lambda parts: np.stack(parts, axis))
    return _ops.stack(_alike(values), axis) if sizes is None else sizes


def unstack(value, num=None, axis=0, name="unstack"):
    """The parts along a dimension, as a list."""
    return _ops.unstack(value, axis)


def split(value, num_or_size_splits, axis=0, num=None, name="split"):
    """Equal parts, or parts of these sizes."""
    if isinstance(num_or_size_splits, (list, tuple)) or (is_tensor(num_or_size_splits) and num_or_size_splits.ndim):
        return _ops.split_sizes(value, _sizes(num_or_size_splits), axis)
    return _ops.split(value, int(num_or_size_splits), axis)


def tile(input, multiples, name=None):
    """Again and again, so many times along each dimension."""
    return _ops.tile(input, _sizes(multiples))


def repeat(input, repeats, axis=None, name=None):
    """Every element so many times in a row."""
    if axis is None:
        input, axis = _ops.reshape(input, [-1]), 0
    repeats = _sizes(repeats)
    length = convert_to_tensor(input)._shape[axis]
    return _ops.repeat(input, repeats * length if len(repeats) == 1 else repeats, axis)


def reverse(tensor, axis, name=None):
    """Backwards along these axes."""
    return _ops.reverse(tensor, _axes(axis))


def roll(input, shift, axis, name=None):
    """Elements move along the axes; those that leave come in at the other end."""
    return _ops.roll(input, _axes(shift), _axes(axis))


def meshgrid(*args, indexing="xy", name=None):
    """The grid that vectors span."""
    return _ops.meshgrid([convert_to_tensor(arg) for arg in args], indexing == "xy")


def pad(tensor, paddings, mode="CONSTANT", constant_values=0, name=None):
    """Elements around it: (before, after) for every dimension."""
    if mode.upper() not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
        raise ValueError(f"pad: mode is CONSTANT, REFLECT or SYMMETRIC, received {mode!r}")
    pairs = np.asarray(paddings)
    return _ops.pad(tensor, pairs[:, 0].tolist(), pairs[:, 1].tolist(), mode.upper(), float(constant_values))


def slice(input_, begin, size, name=None):
    """A part that begins here and has this size; -1: up to the end."""
    return _ops.slice(input_, _sizes(begin), _sizes(size))


def strided_slice(input_, begin, end, strides=None, name=None):
    """input_[begin:end:strides] in every dimension."""
    begin = _sizes(begin)
    return _ops.strided_slice(input_, begin, _sizes(end), _sizes(strides) if strides is not None else [1] * len(begin))


def gather(params, indices, validate_indices=None, axis=None, batch_dims=0, name=None):
    """Rows along an axis, chosen by their numbers."""
    if isinstance(params, Texts) and not batch_dims:
        return Texts(np.take(np.asarray(params), np.asarray(convert_to_tensor(indices)), axis=axis or 0))
    axis = batch_dims if axis is None else _integer(axis, "axis")
    indices = convert_to_tensor(indices)
    return _ops.gather(params, _ops.cast(indices, dtypes.int32) if indices.dtype is dtypes.uint8 else indices, axis, batch_dims)


def gather_nd(params, indices, batch_dims=0, name=None):
    """The parts that stand at these places."""
    if batch_dims:
        raise NotImplementedError("gather_nd: batch_dims other than 0; tf.gather(..., batch_dims=) takes them")
    return _ops.gather_nd(params, indices)


def scatter_nd(indices, updates, shape, name=None):
    """Updates added into zeros at these places."""
    return _ops.scatter_nd(indices, updates, _sizes(shape))


def tensor_scatter_nd_update(tensor, indices, updates, name=None):
    """The tensor with updates at these places."""
    return _ops.tensor_scatter_nd_update(tensor, indices, updates)


def tensor_scatter_nd_sub(tensor, indices, updates, name=None):
    """The tensor with updates taken away at these places."""
    return _ops.tensor_scatter_nd_add(tensor, indices, _ops.negative(updates))


def tensor_scatter_nd_add(tensor, indices, updates, name=None):
    """The tensor with updates added at these places."""
    return _ops.tensor_scatter_nd_add(tensor, indices, updates)


def tensor_scatter_nd_max(tensor, indices, updates, name=None):
    """The tensor with the larger of what is at these places and of the updates."""
    from .keras.ops import scatter_update
    return scatter_update(tensor, indices, updates, "max")


def tensor_scatter_nd_min(tensor, indices, updates, name=None):
    """The tensor with the smaller of what is at these places and of the updates."""
    from .keras.ops import scatter_update
    return scatter_update(tensor, indices, updates, "min")


def boolean_mask(tensor, mask, axis=None, name="boolean_mask"):
    """The parts where the mask is true. How many these are must be known, so not in a function that is being traced."""
    places = np.nonzero(_known(mask, "boolean_mask").reshape(-1))[0]
    axis, mask = axis or 0, convert_to_tensor(mask)
    tensor = convert_to_tensor(tensor)
    sizes = list(tensor._shape)
    flat = _ops.reshape(tensor, sizes[:axis] + [-1] + sizes[axis + mask.ndim:])
    return _ops.gather(flat, _from_numpy(places.astype(np.int64)), axis, 0)


def sequence_mask(lengths, maxlen=None, dtype=dtypes.bool, name=None):
    """Row i is true in its first lengths[i] places."""
    maxlen = int(np.max(_known(lengths, "sequence_mask without maxlen"))) if maxlen is None else int(maxlen)
    return _ops.cast(_ops.sequence_mask(lengths, maxlen), dtype)


def unique(x, out_idx=dtypes.int32, name=None):
    """The different elements in the order in which they come, and for each element the number of its kind."""
    values, first, inverse = np.unique(_known(x, "unique"), return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    kind = dtypes.as_dtype(out_idx).as_numpy_dtype
    return Unique(_from_numpy(values[order]), convert_to_tensor(number[inverse.reshape(-1)].astype(kind)))


def unique_with_counts(x, out_idx=dtypes.int32, name=None):
    """The same, and how often each of them is there."""
    y, idx = unique(x, out_idx)
    return UniqueWithCounts(y, idx, convert_to_tensor(np.bincount(np.asarray(idx), minlength=y.shape[0]).astype(dtypes.as_dtype(out_idx).as_numpy_dtype)))


Unique = collections.namedtuple("Unique", "y idx")
UniqueWithCounts = collections.namedtuple("UniqueWithCounts", "y idx count")


def ensure_shape(x, shape, name=None):
    """x, if it has this shape."""
    if not TensorShape(shape).is_compatible_with(x.shape):
        raise errors.InvalidArgumentError(f"ensure_shape: expected {TensorShape(shape)}, received {x.shape}")
    return x


def reverse_sequence(input, seq_lengths, seq_axis=None, batch_axis=None, name=None):
    """Reverses the first seq_lengths[i] elements of each example along an axis; the others stay in place."""
    input, lengths = convert_to_tensor(input), _ops.cast(seq_lengths, dtypes.int32)
    if seq_axis is None:
        raise ValueError("reverse_sequence: takes a seq_axis")
    axes = [_integer(batch_axis or 0, "batch_axis") % input.ndim, _integer(seq_axis, "seq_axis") % input.ndim]
    if axes[0] == axes[1] or tuple(lengths.shape) != (input.shape[axes[0]],):
        raise ValueError(f"reverse_sequence: takes an axis of sequences, one of examples and a length for each of these, received axes {axes[1]} and "
                         f"{axes[0]} of shape {input.shape} and lengths of shape {lengths.shape}")
    moved = _ops.moveaxis(input, axes, [0, 1])
    place, lengths = convert_to_tensor(np.arange(moved.shape[1], dtype=np.int32)), _ops.expand_dims(lengths, 1)
    places = _ops.where(_ops.less(place, lengths), lengths - 1 - place, place + _ops.zeros_like(lengths))
    return _ops.moveaxis(_ops.gather(moved, places, 1, 1), [0, 1], axes)


def dynamic_partition(data, partitions, num_partitions, name=None):
    """The parts of each number, as a list. How many these are must be known, so not in a function that is being traced."""
    data, numbers = convert_to_tensor(data), _known(partitions, "dynamic_partition")
    if tuple(data.shape[:numbers.ndim]) != numbers.shape:
        raise ValueError(f"dynamic_partition: partitions have the shape of the first dimensions of data, received {numbers.shape} and {data.shape}")
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < int(num_partitions):
        raise errors.InvalidArgumentError(f"dynamic_partition: partitions are numbers in [0, {int(num_partitions)}), received {numbers.tolist()}")
    rows = _ops.reshape(data, [numbers.size, *data.shape[numbers.ndim:]])
    return [_ops.gather(rows, _from_numpy(np.flatnonzero(numbers == number)), 0, 0) for number in _range(int(num_partitions))]


def dynamic_stitch(indices, data, name=None):
    """Parts put together at their places, which must be known; of several for one place the last one. Where none is: 0."""
    data = [convert_to_tensor(part) for part in data]
    places = [_known(part, "dynamic_stitch").reshape(-1) for part in indices]
    if len(data) != len(places):
        raise ValueError(f"dynamic_stitch: takes as many indices as data, received {len(places)} and {len(data)}")
    rest = list(data[0].shape[convert_to_tensor(indices[0]).ndim:])
    rows = _ops.concat([_ops.reshape(part, [len(at), *rest]) for part, at in zip(data, places)], 0)
    places = np.concatenate(places)
    last = dict(zip(places.tolist(), _range(len(places))))  # of each place
    made = _ops.gather(rows, _from_numpy(np.fromiter(last.values(), np.int64, len(last))), 0, 0)
    return _ops.scatter_nd(_from_numpy(np.fromiter(last, np.int64, len(last))[:, None]), made, [int(places.max(initial=-1)) + 1, *rest])


def parallel_stack(values, name=None):
    """Joined along a new first dimension."""
    return stack(values)


def unravel_index(indices, dims, name=None):
    """Places of a flattened array as places of an array of these sizes, a row for each dimension."""
    indices, sizes = convert_to_tensor(indices), _sizes(dims)
    if not indices.symbolic:
        places = np.asarray(indices)
        if places.size and not 0 <= places.min() <= places.max() < _math.prod(sizes):
            raise errors.InvalidArgumentError(f"unravel_index: indices are in [0, {_math.prod(sizes)}) for dims {sizes}, received {places.tolist()}")
    parts = []
    for size in reversed(sizes):
        size = convert_to_tensor(size, indices.dtype)
        parts.append(_ops.floormod(indices, size))
        indices = _ops.floordiv(indices, size)
    return _ops.stack(parts[::-1], 0)


def space_to_batch(input, block_shape, paddings, name=None):
    """Moves blocks of the spatial dimensions into the batch dimension."""
    input, blocks, pairs = convert_to_tensor(input), _sizes(block_shape), [_sizes(pair) for pair in paddings]
    count, rest = len(blocks), list(convert_to_tensor(input).shape[len(blocks) + 1:])
    input = pad(input, [[0, 0], *pairs] + [[0, 0]] * len(rest))
    if any(size % block for size, block in zip(input.shape[1:], blocks)):
        raise ValueError(f"space_to_batch: blocks of {blocks} do not divide the padded shape {input.shape}")
    parts = [part for size, block in zip(input.shape[1:], blocks) for part in (size // block, block)]
    split_up = _ops.reshape(input, [input.shape[0], *parts, *rest])
    order = [2 * place + 2 for place in _range(count)] + [0] + [2 * place + 1 for place in _range(count)]
    moved = _ops.transpose(split_up, order + list(_range(2 * count + 1, split_up.ndim)))
    return _ops.reshape(moved, [input.shape[0] * int(np.prod(blocks)), *parts[::2], *rest])


space_to_batch_nd = space_to_batch


def batch_to_space(input, block_shape, crops, name=None):
    """The reverse of space_to_batch(): moves the batch dimension into blocks of the spatial dimensions, and crops them."""
    input, blocks, pairs = convert_to_tensor(input), _sizes(block_shape), [_sizes(pair) for pair in crops]
    count, sizes, rest = len(blocks), list(input.shape[1:len(blocks) + 1]), list(input.shape[len(blocks) + 1:])
    if input.shape[0] % int(np.prod(blocks)):
        raise ValueError(f"batch_to_space: {input.shape[0]} examples are not a multiple of {int(np.prod(blocks))}, the size of a block of {blocks}")
    split_up = _ops.reshape(input, [*blocks, -1, *sizes, *rest])
    order = [count] + [part for place in _range(count) for part in (count + 1 + place, place)]
    moved = _ops.transpose(split_up, order + list(_range(2 * count + 1, split_up.ndim)))
    whole = _ops.reshape(moved, [split_up.shape[count], *(size * block for size, block in zip(sizes, blocks)), *rest])
    return _ops.slice(whole, [0] + [before for before, _ in pairs] + [0] * len(rest),
                      [-1] + [size - before - after for size, (before, after) in zip(whole.shape[1:], pairs)] + [-1] * len(rest))


def identity_n(input, name=None):
    """All of them."""
    return [convert_to_tensor(part) for part in input]


def shape_n(input, out_type=dtypes.int32, name=None):
    """The shapes of all of them."""
    return [shape(part, out_type) for part in input]


def guarantee_const(input, name=None):
    """The tensor itself."""
    return _ops.identity(input)


realdiv = globals()["divide"]


def truncatediv(x, y, name=None):
    """x / y of integers, towards 0."""
    x, y = _alike([x, y])
    down = _ops.floordiv(x, y)
    inexact = _ops.logical_and(_ops.less(down, convert_to_tensor(0, down.dtype)), _ops.not_equal(down * y, x))
    return down + _ops.cast(inexact, down.dtype)


def truncatemod(x, y, name=None):
    """The remainder of a division, with the sign of x."""
    x, y = _alike([x, y])
    if not x.dtype.is_floating:
        return x - truncatediv(x, y) * y
    below = _ops.less(x, 0.0)
    remainder = _ops.floormod(_ops.where(below, -x, x), _ops.abs(y))  # not abs(x), whose gradient at 0 is 0
    return _ops.where(below, -remainder, remainder)


def histogram_fixed_width_bins(values, value_range, nbins=100, dtype=dtypes.int32, name=None):
    """The bin of each value, of nbins equal bins of the range; values outside are in the first or the last one."""
    values = convert_to_tensor(values)
    low, high = (_ops.cast(part, dtypes.float64) for part in _ops.unstack(convert_to_tensor(value_range), 0))
    share = (_ops.cast(values, dtypes.float64) - low) / (high - low)
    return _ops.cast(_ops.clip_by_value(_ops.floor(share * float(nbins)), 0.0, float(nbins - 1)), dtype)


def histogram_fixed_width(values, value_range, nbins=100, dtype=dtypes.int32, name=None):
    """The number of values in each of nbins equal bins of the range."""
    bins = histogram_fixed_width_bins(values, value_range, nbins)
    return _ops.cast(_ops.bincount(_ops.reshape(bins, [-1]), int(nbins), None), dtype)


# --- reductions ----------------------------------------------------------------------------------------------------------

def _reduction(name, doc):
    op = getattr(_ops, name)

    def function(input_tensor, axis=None, keepdims=False, name=None):
        axes = _axes(axis)
        if op is _ops.reduce_mean and is_tensor(input_tensor) and input_tensor.dtype.is_integer:
            return _mean_of_integers(input_tensor, axis, keepdims)
        if axis is not None and not axes:  # over no axis: over one of size 1
            return op(_ops.expand_dims(input_tensor, -1), [-1], False)
        return op(input_tensor, axes, _bool(keepdims))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _mean_of_integers(x, axis, keepdims):
    """Towards 0, in the integers' dtype, as in TensorFlow."""
    total = reduce_sum(x, axis, keepdims)  # noqa: F821: made below
    axes = builtins.range(x.ndim) if axis is None else _axes(axis)
    count = int(np.prod([x.shape[place] for place in axes], dtype=np.int64))
    return _ops.cast(_ops.trunc(_ops.cast(total, dtypes.float64) / float(count)), x.dtype)


for _name, _doc in {
        "reduce_sum": "The sum over some axes, or all.", "reduce_mean": "The mean.", "reduce_max": "The largest element.",
        "reduce_min": "The smallest element.", "reduce_prod": "The product.", "reduce_any": "Whether one is true.",
        "reduce_all": "Whether all are true.", "reduce_logsumexp": "log(sum(exp(x))) without overflow.",
        "reduce_variance": "The variance of the population.", "reduce_std": "Its root."}.items():
    globals()[_name] = _reduction(_name, _doc)


def count_nonzero(input, axis=None, keepdims=None, dtype=dtypes.int64, name=None):
    """How many elements are not 0."""
    if axis is not None and not _axes(axis):
        return _ops.cast(_ops.not_equal(input, 0), dtype)
    return _ops.cast(_ops.count_nonzero(input, _axes(axis), _bool(keepdims)), dtype)


def _counted(input):
    """Booleans as 0 and 1."""
    input = convert_to_tensor(input)
    return _ops.cast(input, dtypes.int32) if input.dtype is dtypes.bool else input


def argmax(input, axis=None, output_type=dtypes.int64, name=None):
    """The place of the largest element."""
    made = _ops.argmax(_counted(input), 0 if axis is None else _integer(axis, "axis"))
    return made if dtypes.as_dtype(output_type) is dtypes.int64 else _ops.cast(made, output_type)


def argmin(input, axis=None, output_type=dtypes.int64, name=None):
    """The place of the smallest element."""
    made = _ops.argmin(_counted(input), 0 if axis is None else _integer(axis, "axis"))
    return made if dtypes.as_dtype(output_type) is dtypes.int64 else _ops.cast(made, output_type)


def cumsum(x, axis=0, exclusive=False, reverse=False, name=None):
    """Sums of the elements up to each one."""
    return _ops.cumsum(x, axis, exclusive, reverse)


def cumprod(x, axis=0, exclusive=False, reverse=False, name=None):
    """Products of the elements up to each one."""
    return _ops.cumprod(x, axis, exclusive, reverse)


def norm(tensor, ord="euclidean", axis=None, keepdims=None, name=None):
    """(sum |x| ** ord) ** (1 / ord)."""
    return _ops.norm(tensor, 2.0 if ord in ("euclidean", "fro") else float(ord), _axes(axis), _bool(keepdims))


def global_norm(t_list, name=None):
    """Euclid's norm of all tensors together."""
    return _ops.global_norm([t for t in t_list if t is not None])


def clip_by_norm(t, clip_norm, axes=None, name=None):
    """Scaled down where its norm is larger."""
    return _ops.clip_by_norm(t, float(clip_norm), _axes(axes))


def clip_by_global_norm(t_list, clip_norm, use_norm=None, name=None):
    """All scaled by one number, so that their norm together is at most this; and what it was."""
    tensors, norm = _ops.clip_by_global_norm(list(t_list), float(clip_norm), use_norm)
    return tensors, norm


def sort(values, axis=-1, direction="ASCENDING", name=None):
    """In order."""
    return _ops.sort(values, axis, direction == "DESCENDING")


def argsort(values, axis=-1, direction="ASCENDING", stable=False, name=None):
    """The places that would put them in order."""
    return _ops.argsort(values, axis, direction == "DESCENDING")


def searchsorted(sorted_sequence, values, side="left", out_type=dtypes.int32, name=None):
    """Where values would stand in what is sorted."""
    return _ops.cast(_ops.searchsorted(sorted_sequence, values, side == "right"), out_type)


def bincount(arr, weights=None, minlength=None, maxlength=None, dtype=dtypes.int32, name=None, axis=None, binary_output=False):
    """The count of each number, or the sum of its weights, in their dtype; with axis=-1 for each row."""
    if axis not in (None, 0, -1):
        raise ValueError(f"bincount: axis is None, 0 or -1, received {axis}")
    if binary_output and weights is not None:
        raise ValueError("bincount: binary_output and weights exclude each other: give one of them")
    arr = convert_to_tensor(arr)
    arr = _ops.cast(arr, dtypes.int32) if arr.dtype is dtypes.uint8 else arr
    if minlength is None or minlength != maxlength:
        found = _known(arr, "bincount where minlength is not maxlength").max(initial=-1) + 1
        length = builtins.max(int(found), int(minlength or 0))
        length = length if maxlength is None else builtins.min(length, int(maxlength))
    else:
        length = int(minlength)
    # The numbers of each row get places of their own; one more takes those that are too large.
    rows = arr._shape[:-1] if axis == -1 else ()
    arr = arr if rows else _ops.reshape(arr, [-1])
    first = _ops.reshape(_ops.cast(range(_math.prod(rows)), arr.dtype) * (length + 1), [*rows, 1] if rows else [1])
    weights = None if weights is None else _ops.reshape(weights, arr._shape)
    counts = _ops.bincount(first + _ops.minimum(arr, length), _math.prod(rows) * (length + 1), weights)
    counts = _ops.reshape(counts, [*rows, length + 1])[..., :length]
    if binary_output:
        return _ops.cast(counts > 0, dtype)
    return counts if weights is not None else _ops.cast(counts, dtype)


def unsorted_segment_sum(data, segment_ids, num_segments, name=None):
    """The sums of the rows of each segment. Rows with a negative id are left out."""
    data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
    rest = list(data.shape[ids.ndim:])
    rows, ids = _ops.reshape(data, [-1, *rest]), _ops.reshape(ids, [-1])
    known = _ops.greater_equal(ids, 0)
    rows = _ops.where(_ops.reshape(known, [-1] + [1] * builtins.len(rest)), rows, _ops.zeros_like(rows))
    return _ops.scatter_add(rows, _ops.where(known, ids, _ops.zeros_like(ids)), int(num_segments))


def unsorted_segment_mean(data, segment_ids, num_segments, name=None):
    """The means of the rows of each segment. Rows with a negative id are left out."""
    data = convert_to_tensor(data)
    return _ops.divide_no_nan(unsorted_segment_sum(data, segment_ids, num_segments), unsorted_segment_sum(_ops.ones_like(data), segment_ids, num_segments))


def confusion_matrix(labels, predictions, num_classes=None, weights=None, dtype=dtypes.int32, name=None):
    """How often an example of the class of the row was taken for that of the column."""
    labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
    if num_classes is None:
        num_classes = 1 + int(builtins.max(_known(numbers, "confusion_matrix without num_classes").max(initial=-1) for numbers in (labels, predictions)))
    places = _ops.reshape(_ops.cast(labels, dtypes.int32) * int(num_classes) + _ops.cast(predictions, dtypes.int32), [-1])
    weights = None if weights is None else _ops.reshape(weights, [-1])
    return _ops.cast(_ops.reshape(_ops.bincount(places, int(num_classes) ** 2, weights), [int(num_classes), int(num_classes)]), dtype)


def broadcast_static_shape(shape_x, shape_y):
    """The shape of what two tensors of these shapes make together."""
    return TensorShape(np.broadcast_shapes(tuple(shape_x), tuple(shape_y)))


def broadcast_dynamic_shape(shape_x, shape_y):
    """The same of shapes that are tensors."""
    return convert_to_tensor(np.array(np.broadcast_shapes(tuple(_sizes(shape_x)), tuple(_sizes(shape_y))), np.int32))


# --- products ------------------------------------------------------------------------------------------------------------

def matmul(a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, a_is_sparse=False,
           b_is_sparse=False, output_type=None, name=None):
    """The product of the last two dimensions."""
    made = _ops.matmul(a, b, transpose_a or adjoint_a, transpose_b or adjoint_b)
    return made if output_type is None else _ops.cast(made, output_type)


def matvec(a, b, transpose_a=False, adjoint_a=False, a_is_sparse=False, b_is_sparse=False, name=None):
    """A matrix times a vector."""
    return _ops.matvec(a, b, transpose_a or adjoint_a)


def einsum(equation, *inputs, **kwargs):
    """Sums of products by Einstein's rule: "ij,jk->ik"."""
    if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
        inputs = inputs[0]
    return _ops.einsum(equation.replace(" ", ""), list(inputs))


def tensordot(a, b, axes, name=None):
    """Sums over some axes of a together with some of b."""
    if isinstance(axes, int):
        return _ops.tensordot_last(a, b, axes)
    a_axes, b_axes = axes
    return _ops.tensordot(a, b, _axes(a_axes), _axes(b_axes))


# --- looking -------------------------------------------------------------------------------------------------------------

def print(*inputs, output_stream=None, summarize=3, sep=" ", end="\n", name=None):  # noqa: A001: TensorFlow's name
    """Prints values, in a compiled function whenever it runs. To standard error, unless output_stream is sys.stdout."""
    import sys
    to_stdout = output_stream is sys.stdout or output_stream == "sys.stdout"
    parts = []
    for value in inputs:
        for leaf in nest.flatten(value):
            parts.append(leaf if is_tensor(leaf) else str(leaf))
    sys.stdout.flush()
    _ops.print(parts, -1 if summarize is None else summarize, to_stdout)


def timestamp(name=None):
    """Seconds since 1970, now: of the trace, in a function that is being traced."""
    import time
    return convert_to_tensor(time.time(), dtypes.float64)


def stop_if_symbolic(x, what):
    return _known(x, what)


def numpy_function(func=None, inp=None, Tout=None, stateful=True, name=None):
    """A function of arrays, called outside of traces: eagerly, or in dataset.map."""
    return _apply_python(func, [_outside_of_traces(value, "numpy_function") for value in inp], Tout)


def py_function(func=None, inp=None, Tout=None, name=None):
    """A function of tensors, called outside of traces: eagerly, or in dataset.map; without inp, a function of that kind."""
    if inp is None:
        made = lambda f: lambda *inputs: py_function(f, inputs, Tout)  # noqa: E731
        return made if func is None else made(func)
    for value in inp:
        _outside_of_traces(value, "py_function")
    return _apply_python(func, [tensor_or_texts(value) for value in inp], Tout)


def _outside_of_traces(value, what):
    if is_tensor(value) and value.symbolic:
        _tracing.refuse(f"{what}()")
    return _known(tensor_or_texts(value), what)


def _apply_python(func, inputs, types):
    results = func(*inputs)
    if isinstance(types, (list, tuple)):
        results = results if isinstance(results, (list, tuple)) else [results]
        return [_of_type(result, dtype) for result, dtype in zip(results, types)]
    return _of_type(results, types)


def _of_type(result, dtype):
    if dtype == dtypes.string:
        return Texts(result)
    made = result if is_tensor(result) else np.asarray(result)
    return convert_to_tensor(made, dtype)
