"""keras.ops: conversion, updates by place, control flow."""

import builtins
import functools
import math as _math
import re

import numpy as np

from ... import _lockstep, _texts, dtypes, nest
from ...function import cond as _cond, custom_gradient, map_fn, vectorized_map as _vectorized_map, while_loop as _while_loop
from ...tensor import is_tensor
from ..backend import standardize_dtype
from ..layers import KerasTensor
from ._defining import _op, _ops, _public, _tensor, _tf, _to_tensor

_engine_scan = _lockstep.scan
_max, _min, _range = builtins.max, builtins.min, builtins.range


def convert_to_tensor(x, dtype=None, sparse=None, ragged=None):
    """The value as a tensor of this dtype."""
    if sparse or ragged:
        raise ValueError("there are no sparse and no ragged tensors")
    if _texts.is_text(x) and dtype in (None, "string"):
        return x if isinstance(x, _texts.Texts) else _texts.Texts(x)
    return x if isinstance(x, KerasTensor) else _tensor(x, None if dtype is None else standardize_dtype(dtype))


def convert_to_numpy(x):
    """An array of NumPy's."""
    if isinstance(x, KerasTensor):
        raise ValueError("convert_to_numpy: a value of a model that is being put together is not known yet")
    return np.array(_to_tensor(x))


def dtype(x):
    """The name of its dtype."""
    return standardize_dtype(x.dtype)


def shape(x):
    """Its sizes."""
    return tuple(x.shape) if isinstance(x, KerasTensor) else tuple(_to_tensor(x).shape)


@_op
def cast(x, dtype):
    """In another dtype."""
    return _tf.cast(_tensor(x), standardize_dtype(dtype))


saturate_cast = _op(lambda x, dtype: _tf.saturate_cast(_tensor(x), standardize_dtype(dtype)))
stop_gradient = _op(lambda variable: _tf.stop_gradient(_tensor(variable)))


def _can_be_unstacked(x, num=None, axis=0):
    if not -len(shape(x)) <= axis < len(shape(x)):
        raise ValueError(f"unstack: axis {axis} is out of bounds of shape {shape(x)}")
    if num is None and shape(x)[axis] is None:
        raise ValueError(f"unstack: Cannot infer argument `num` from shape {shape(x)}")


unstack = _op(lambda x, num=None, axis=0: _tf.unstack(_tensor(x), num, axis), check=_can_be_unstacked)


scatter = _op(lambda indices, values, shape: _tf.scatter_nd(_numbers(indices), _tensor(values), shape))


_COMBINE = {"max": (_tf.reduce_max, _tf.maximum), "min": (_tf.reduce_min, _tf.minimum), "mul": (_tf.reduce_prod, _tf.multiply)}


@_op
def scatter_update(inputs, indices, updates, reduction=None):
    """The inputs with updates at these places, put there or combined with what is there: add, max, min, mul."""
    if reduction not in (None, "add", *_COMBINE):
        raise ValueError(f"scatter_update: reduction is None, add, max, min or mul, received {reduction!r}")
    inputs, indices = _tensor(inputs), _numbers(indices)
    updates = _tensor(updates, inputs.dtype)
    if reduction in (None, "add"):
        return (_tf.tensor_scatter_nd_update if reduction is None else _tf.tensor_scatter_nd_add)(inputs, indices, updates)
    depth = indices.shape[-1]
    rest = list(inputs.shape[depth:])
    cells = _tf.reshape(inputs, [-1, *rest])
    number = None  # of the cell, in order
    for place, size in zip(_ops.unstack(indices, indices.ndim - 1), inputs.shape):
        number = place if number is None else number * _tensor(int(size), place.dtype) + place
    gathered = _by_number(_tf.reshape(updates, [-1, *rest]), _tf.reshape(number, [-1]), cells.shape[0], reduction)
    return _tf.reshape(_COMBINE[reduction][1](cells, gathered), inputs.shape)


def _by_number(rows, numbers, count, reduction):
    """The rows of each number together; what leaves others as they are, where there are none."""
    neutral = 1 if reduction == "mul" else (rows.dtype.min if reduction == "max" else rows.dtype.max) if not rows.dtype.is_floating else \
        -_math.inf if reduction == "max" else _math.inf
    mine = _tf.equal(_tf.expand_dims(numbers, 1), _tensor(np.arange(count), numbers.dtype))  # (rows, numbers)
    mine = _tf.reshape(mine, list(mine.shape) + [1] * (rows.ndim - 1))
    spread = _tf.where(mine, _tf.expand_dims(rows, 1), _tensor(neutral, rows.dtype))
    return _COMBINE[reduction][0](spread, 0)


def _numbers(indices):
    indices = _tensor(indices)
    return indices if indices.dtype in (dtypes.int32, dtypes.int64) else _ops.cast(indices, dtypes.int32)


def _starts(start_indices):
    """Where a part begins: integers where they are known, else scalars."""
    if is_tensor(start_indices):
        return list(_ops.unstack(_numbers(start_indices), 0)) if start_indices.symbolic else [int(start) for start in start_indices]
    return [int(start) if not is_tensor(start) or not start.symbolic else start for start in start_indices]


@_op
def slice(inputs, start_indices, shape):  # noqa: A001
    """A part of this shape that begins here; -1: up to the end."""
    inputs, starts = _tensor(inputs), _starts(start_indices)
    shape = [int(size) for size in shape]
    if len(starts) != inputs.ndim or len(shape) != inputs.ndim:
        raise ValueError(f"slice: start_indices and shape have a number for each dimension of {inputs.shape}, received {len(starts)} and "
                         f"{len(shape)}")
    if not builtins.any(is_tensor(start) for start in starts):
        return _tf.slice(inputs, starts, shape)
    for axis, (start, size) in enumerate(zip(starts, shape)):
        size = inputs.shape[axis] if size == -1 else size
        inputs = _ops.gather(inputs, _ops.cast(start, dtypes.int32) + _tensor(np.arange(size, dtype=np.int32)), axis, 0) if is_tensor(start) else \
            _tf.slice(inputs, [start if i == axis else 0 for i in _range(inputs.ndim)], [size if i == axis else -1 for i in _range(inputs.ndim)])
    return inputs


@_op
def slice_update(inputs, start_indices, updates):
    """The inputs with updates from this place on."""
    inputs, updates, starts = _tensor(inputs), _tensor(updates), _starts(start_indices)
    places = [_tf.reshape(_tensor(start, dtypes.int32) + _tensor(np.arange(size, dtype=np.int32)), [-1 if i == axis else 1 for i in _range(updates.ndim)])
              for axis, (start, size) in enumerate(zip(starts, updates.shape))]
    grid = _tf.stack([_tf.broadcast_to(place, updates.shape) for place in places], -1)
    return _tf.tensor_scatter_nd_update(inputs, grid, _tensor(updates, inputs.dtype))


# --- control -------------------------------------------------------------------------------------------------------------

@_op
def cond(pred, true_fn, false_fn):
    """One of two functions, by the value."""
    return _cond(pred, true_fn, false_fn)


@_op
def while_loop(cond, body, loop_vars, maximum_iterations=None):
    """The body again and again, while the condition holds."""
    several = isinstance(loop_vars, (list, tuple))
    start = nest.map_structure(_tensor, loop_vars if several else (loop_vars,))

    def step(*given):
        made = body(*given)
        return nest.map_structure(lambda new, old: _tensor(new, old.dtype), made if several else (made,), start)
    made = _while_loop(cond, step, start, maximum_iterations=maximum_iterations)
    return made if several else made[0]


@_op
def fori_loop(lower, upper, body_fun, init_val):
    """value = body_fun(i, value) for every i."""
    value = init_val if nest.is_nested(init_val) else _tensor(init_val)
    for i in _range(int(lower), int(upper)):
        value = body_fun(i, value)
    return value


@_op
def switch(index, branches, *operands):
    """The branch of this number, the nearest one where there is none."""
    index = _tensor(index, dtypes.int32)
    if not index.symbolic:
        return branches[_min(_max(int(index), 0), len(branches) - 1)](*operands)
    made = lambda: branches[-1](*operands)  # noqa: E731
    for number in reversed(_range(len(branches) - 1)):
        made = (lambda number, others: lambda: _cond(_tf.less_equal(index, number), lambda: branches[number](*operands), others))(number, made)
    return made()


@_op
def map(f, xs):  # noqa: A001: Keras' name
    """The function of every part along the first dimension."""
    return map_fn(f, xs)


def vectorize(pyfunc, *, excluded=None, signature=None):
    """A function of arrays that gives pyfunc of their elements, or of the parts that a signature such as "(m,n),(n)->(m)" names."""
    left_out = set(excluded or ())
    ranks = None if signature is None else [len(re.findall(r"\w+", part)) for part in re.findall(r"\(([^)]*)\)", signature.partition("->")[0])]

    @functools.wraps(pyfunc)
    def vectorized(*args, **kwargs):
        chosen = [number for number in _range(len(args)) if number not in left_out]
        parts = [_tensor(args[number]) for number in chosen]
        if ranks is not None and len(ranks) != len(parts):
            raise ValueError(f"vectorize: the signature {signature!r} is of {len(ranks)} arguments, received {len(parts)}")
        cores = [tuple(part.shape[part.ndim - rank:]) for part, rank in zip(parts, ranks or [0] * len(parts))]
        around = np.broadcast_shapes(*(tuple(part.shape[:part.ndim - len(core)]) for part, core in zip(parts, cores)))

        def one(elements):
            given = list(args)
            for number, element in zip(chosen, elements):
                given[number] = element
            return pyfunc(*given, **kwargs)
        if not around:
            return one(parts)
        flat = tuple(_tf.reshape(_tf.broadcast_to(part, (*around, *core)), (-1, *core)) for part, core in zip(parts, cores))
        return nest.map_structure(lambda made: _tf.reshape(made, (*around, *made.shape[1:])), _vectorized_map(one, flat))
    return vectorized


vectorized_map = _op(lambda function, elements: _vectorized_map(function, elements))


@_op
def scan(f, init, xs=None, length=None, reverse=False, unroll=1):
    """carry, y = f(carry, x) for every part of xs: the last carry, and every y, stacked."""
    if not callable(f):
        raise TypeError(f"scan: `f` should be a callable. Received: f={f!r}")
    if not isinstance(unroll, bool) and (not isinstance(unroll, int) or unroll < 1):
        raise ValueError(f"scan: `unroll` must be an positive integer or boolean. Received: unroll={unroll!r}")
    if xs is None and length is None:
        raise ValueError("scan: got no `xs` to scan over and `length` not provided")
    leaves = [_tensor(leaf) for leaf in nest.flatten(xs)] if xs is not None else [_tensor(np.zeros(int(length), np.int32))]
    start = [_tensor(leaf) for leaf in nest.flatten(init)]
    results = []

    def step(carry, x):
        part = None if xs is None else nest.pack_sequence_as(xs, x) if nest.is_nested(xs) else x[0]
        carried, y = f(nest.pack_sequence_as(init, carry) if nest.is_nested(init) else carry[0], part)
        results.append(y)
        flat = [_tensor(leaf, old.dtype) for leaf, old in zip(nest.flatten(carried), start)]
        return flat, [_tensor(leaf) for leaf in nest.flatten(y) if leaf is not None]
    carry, ys = _engine_scan(step, start, leaves, bool(reverse))
    ys = iter(ys)
    stacked = nest.map_structure(lambda leaf: None if leaf is None else next(ys), results[-1])
    return nest.pack_sequence_as(init, carry) if nest.is_nested(init) else carry[0], stacked


@_op
def associative_scan(f, elems, reverse=False, axis=0):
    """f of all elements up to each one; f is associative, and works on parts of any length along the axis."""
    if not callable(f):
        raise TypeError(f"associative_scan: `f` should be a callable. Received: f={f!r}")
    leaves = [_tensor(leaf) for leaf in nest.flatten(elems)]
    if len({leaf.shape[axis] for leaf in leaves}) > 1:
        raise ValueError("associative_scan: elements have the same first dimension, or that of `axis`, received shapes "
                         f"{[tuple(leaf.shape) for leaf in leaves]}")
    count = leaves[0].shape[axis]

    def part(x, first, last):
        axis_of = axis % x.ndim
        return _tf.slice(x, [first if i == axis_of else 0 for i in _range(x.ndim)], [last - first if i == axis_of else -1 for i in _range(x.ndim)])
    if reverse:
        leaves = [_tf.reverse(leaf, [axis % leaf.ndim]) for leaf in leaves]
    step = 1
    while step < count:  # each element with the one so many places before it
        before, own = (nest.pack_sequence_as(elems, [part(leaf, *ends) for leaf in leaves]) if nest.is_nested(elems) else part(leaves[0], *ends)
                       for ends in ((0, count - step), (step, count)))
        joined = [_tensor(leaf) for leaf in nest.flatten(f(before, own))]
        leaves = [_tf.concat([part(old, 0, step), new], axis % old.ndim) for old, new in zip(leaves, joined)]
        step *= 2
    if reverse:
        leaves = [_tf.reverse(leaf, [axis % leaf.ndim]) for leaf in leaves]
    return nest.pack_sequence_as(elems, leaves) if nest.is_nested(elems) else leaves[0]


__all__ = _public(globals()) + ["custom_gradient", "is_tensor", "map_fn"]
