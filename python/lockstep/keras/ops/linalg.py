"""keras.ops.linalg."""

import builtins
import math as _math

from ._defining import _float, _op, _public, _tf
from ._reductions import max, min  # noqa: A004

_abs = builtins.abs


@_op
def norm(x, ord=None, axis=None, keepdims=False):
    """The norm of vectors; Frobenius' of matrices."""
    x = _float(x)
    if ord in (None, "fro", 2) or isinstance(axis, int) or x.ndim == 1:
        if ord in (_math.inf, -_math.inf):
            return (max if ord > 0 else min)(_tf.abs(x), axis, keepdims)
        if ord == 0:
            return _tf.reduce_sum(_tf.cast(_tf.not_equal(x, 0.0), x.dtype), axis, keepdims)
        power = 2.0 if ord in (None, "fro", 2) else float(ord)
        if power == 2.0:
            return _tf.sqrt(_tf.reduce_sum(_tf.square(x), axis, keepdims))
        return _tf.pow(_tf.reduce_sum(_tf.pow(_tf.abs(x), power), axis, keepdims), 1.0 / power)
    if ord in (1, -1, _math.inf, -_math.inf):
        rows, columns = axis if axis is not None else (-2, -1)
        rows, columns = rows % x.ndim, columns % x.ndim
        over = rows if _abs(ord) == 1 else columns
        made = (max if ord > 0 else min)(_tf.reduce_sum(_tf.abs(x), over, True), (rows, columns), keepdims)
        return made
    raise NotImplementedError(f"norm: ord={ord!r} of matrices needs singular values, which there are none of")


__all__ = _public(globals())
