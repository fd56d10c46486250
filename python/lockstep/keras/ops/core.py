"""keras.ops: conversion, updates by place, control flow."""

import builtins

import numpy as np

from ... import dtypes
from ...function import custom_gradient, vectorized_map, cond as _cond, map_fn, scan as _scan, while_loop as _while_loop
from ...tensor import is_tensor  # noqa: F401
from ..backend import standardize_dtype
from ..layers import KerasTensor, symbolic
from ._defining import _op, _ops, _public, _tensor, _tf, _to_tensor

_max, _min, _range = builtins.max, builtins.min, builtins.range


def convert_to_tensor(x, dtype=None, sparse=None, ragged=None):
    """The value as a tensor of this dtype."""
    if sparse or ragged:
        raise ValueError("there are no sparse and no ragged tensors")
    return x if isinstance(x, KerasTensor) else _tensor(x, None if dtype is None else standardize_dtype(dtype))


def convert_to_numpy(x):
    """An array of NumPy's."""
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
    return _ops.cast(_tensor(x), dtypes.as_dtype(standardize_dtype(dtype)))


saturate_cast = _op(lambda x, dtype: _tf.saturate_cast(_tensor(x), standardize_dtype(dtype)))
stop_gradient = _op(lambda variable: _tf.stop_gradient(_tensor(variable)))


@_op
def unstack(x, num=None, axis=0):
    """The parts along a dimension."""
    return _tf.unstack(_tensor(x), num, axis)


scatter = _op(lambda indices, values, shape: _tf.scatter_nd(_tensor(indices), _tensor(values), shape))


@_op
def scatter_update(inputs, indices, updates, reduction=None):
    """The inputs with updates at these places."""
    if reduction not in (None, "add"):
        raise NotImplementedError(f"scatter_update: reduction is None or \"add\", received {reduction!r}")
    inputs = _tensor(inputs)
    return (_tf.tensor_scatter_nd_update if reduction is None else _tf.tensor_scatter_nd_add)(
        inputs, _tensor(indices), _tensor(updates, inputs.dtype))


slice = _op(lambda inputs, start_indices, shape: _tf.slice(_tensor(inputs), start_indices, shape))  # noqa: A001


@_op
def slice_update(inputs, start_indices, updates):
    """The inputs with updates from this place on."""
    inputs, updates = _tensor(inputs), _tensor(updates)
    first = [int(start) for start in start_indices]
    grid = np.stack(np.meshgrid(*(np.arange(b, b + n) for b, n in zip(first, updates.shape)), indexing="ij"), -1)
    return _tf.tensor_scatter_nd_update(inputs, _to_tensor(grid.astype(np.int32)), _tensor(updates, inputs.dtype))


def cond(pred, true_fn, false_fn):
    """One of two functions, by the value."""
    return symbolic(lambda p: _cond(p, true_fn, false_fn), pred) if isinstance(pred, KerasTensor) else _cond(pred, true_fn, false_fn)


def while_loop(cond, body, loop_vars, maximum_iterations=None):
    """The body again and again, while the condition holds."""
    several = isinstance(loop_vars, (list, tuple))
    made = _while_loop(cond, (lambda *given: body(*given)) if several else (lambda given: (body(given),)),
                       [_tensor(part) for part in loop_vars] if several else [_tensor(loop_vars)], maximum_iterations=maximum_iterations)
    return type(loop_vars)(made) if several else made[0]


def fori_loop(lower, upper, body_fun, init_val):
    """value = body_fun(i, value) for every i."""
    value = init_val
    for i in _range(int(lower), int(upper)):
        value = body_fun(_tensor(i), value)
    return value


def switch(index, branches, *operands):
    """The branch of this number, the nearest one where there is none."""
    return branches[_min(_max(int(_to_tensor(index)), 0), len(branches) - 1)](*operands)


def map(f, xs):  # noqa: A001: Keras' name
    """The function of every part along the first dimension."""
    return map_fn(f, xs)


def vectorize(pyfunc, *, excluded=None, signature=None):
    """Calls the function with whole arrays: ops work element by element."""
    return pyfunc


scan = _scan


__all__ = _public(globals()) + ["custom_gradient", "is_tensor", "map_fn", "scan", "vectorized_map"]
