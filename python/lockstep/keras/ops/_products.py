"""keras.ops: products of vectors and matrices."""

import builtins

import numpy as np

from ._defining import _factors, _float, _joined, _joined_float, _op, _ops, _public, _tensor, _tf

_max = builtins.max


@_op
def matmul(x1, x2):
    """The product of the last two dimensions; a vector is a matrix of one row or column."""
    (a, b), dtype = _factors(x1, x2)
    if a.ndim == 1 and b.ndim == 1:
        made = _tf.tensordot(a, b, 1)
    elif a.ndim == 1:
        made = _tf.squeeze(_tf.matmul(_tf.expand_dims(a, 0), b), -2)
    elif b.ndim == 1:
        made = _tf.squeeze(_tf.matmul(a, _tf.expand_dims(b, -1)), -1)
    else:
        made = _tf.matmul(a, b)
    return _ops.cast(made, dtype)


@_op
def dot(x1, x2):
    """NumPy's dot(): sums over the last dimension and the last but one."""
    (a, b), dtype = _factors(x1, x2)
    made = a * b if a.ndim == 0 or b.ndim == 0 else _tf.tensordot(a, b, [[-1 % a.ndim], [_max(b.ndim - 2, 0)]])
    return _ops.cast(made, dtype)


@_op
def tensordot(x1, x2, axes=2):
    """Sums over some axes of both."""
    factors, dtype = _factors(x1, x2)
    return _ops.cast(_tf.tensordot(*factors, axes), dtype)


@_op
def inner(x1, x2):
    """The sums of products along the last dimensions of both."""
    (a, b), dtype = _factors(x1, x2)
    return _ops.cast(a * b if a.ndim == 0 or b.ndim == 0 else _tf.tensordot(a, b, [[a.ndim - 1], [b.ndim - 1]]), dtype)


@_op
def vdot(x1, x2):
    """The sum of the products of all elements."""
    factors, dtype = _factors(x1, x2)
    return _ops.cast(_tf.tensordot(*(_tf.reshape(x, [-1]) for x in factors), 1), dtype)


@_op
def einsum(subscripts, *operands, **kwargs):
    """Sums of products by Einstein's rule: "ij,jk->ik"."""
    factors, dtype = _factors(*operands)
    return _ops.cast(_tf.einsum(subscripts, *factors), dtype)


outer = _op(lambda x1, x2: (lambda a, b: _tf.reshape(a, [-1, 1]) * _tf.reshape(b, [1, -1]))(*_joined(x1, x2)))


@_op
def kron(x1, x2):
    """Kronecker's product."""
    a, b = _joined(x1, x2)
    rank = _max(a.ndim, b.ndim)
    a, b = (_tf.reshape(x, [1] * (rank - x.ndim) + list(x.shape)) for x in (a, b))
    left = _tf.reshape(a, [part for size in a.shape for part in (size, 1)])
    right = _tf.reshape(b, [part for size in b.shape for part in (1, size)])
    return _tf.reshape(left * right, [p * q for p, q in zip(a.shape, b.shape)])


@_op
def cross(x1, x2, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """The cross product of vectors of three, or of two, numbers."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _joined(x1, x2)
    a, b = _ops.moveaxis(a, [axisa], [-1]), _ops.moveaxis(b, [axisb], [-1])
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(f"cross: vectors have 2 or 3 numbers, received {a.shape[-1]} and {b.shape[-1]}")
    (a1, a2), (b1, b2) = ((x[..., 0], x[..., 1]) for x in (a, b))
    if a.shape[-1] == 2 and b.shape[-1] == 2:
        return a1 * b2 - a2 * b1
    a3 = a[..., 2] if a.shape[-1] == 3 else _tf.zeros_like(a1)
    b3 = b[..., 2] if b.shape[-1] == 3 else _tf.zeros_like(b1)
    made = _tf.stack([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1], -1)
    return _ops.moveaxis(made, [-1], [axisc])


@_op
def vander(x, N=None, increasing=False):
    """Powers of the elements, a row for each."""
    x = _tensor(x)
    powers = np.arange(x.shape[0] if N is None else N)
    return _tf.pow(_tf.expand_dims(x, -1), _tensor(powers if increasing else powers[::-1].copy(), x.dtype))


@_op
def corrcoef(x):
    """How rows go together, from -1 to 1."""
    x = _float(x)
    rows = _tf.reshape(x, [1, -1]) if x.ndim == 1 else x
    rows = rows - _tf.reduce_mean(rows, -1, True)
    shared = _tf.matmul(rows, rows, transpose_b=True)
    spread = _tf.sqrt(_ops.diag_part(shared, 0))
    made = shared / (_tf.expand_dims(spread, 0) * _tf.expand_dims(spread, 1))
    return _tf.reshape(made, []) if x.ndim == 1 else made


@_op
def correlate(x1, x2, mode="valid"):
    """The products of one list with the other, moved along it."""
    if mode not in ("valid", "same", "full"):
        raise ValueError(f"correlate: mode is valid, same or full, received {mode!r}")
    a, b = _joined_float(x1, x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"correlate: takes two lists, received shapes {a.shape} and {b.shape}")
    long, short = a.shape[0], b.shape[0]
    swapped = long < short
    if swapped:
        a, b, long, short = b, a, short, long
    before = {"valid": 0, "full": short - 1, "same": (short - 1) // 2 if swapped else short // 2}[mode]
    around = (before, short - 1 - before if mode == "same" else before)
    padded = _tf.concat([_tf.zeros([around[0]], a.dtype), a, _tf.zeros([around[1]], a.dtype)], 0)
    count = long + around[0] + around[1] - short + 1
    places = np.arange(count)[:, None] + np.arange(short)
    made = _tf.reduce_sum(_tf.gather(padded, _tensor(places.astype(np.int32))) * b, 1)
    return _tf.reverse(made, [0]) if swapped else made


__all__ = _public(globals())
