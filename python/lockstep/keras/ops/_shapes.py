"""keras.ops: shapes, parts and joining."""

import builtins
import re

import numpy as np

from ... import dtypes
from ...ops import _sizes
from ._defining import _countable, _joined, _named, _op, _ops, _public, _tensor, _tf, _to_tensor
from .core import _numbers

_max, _min, _range = builtins.max, builtins.min, builtins.range


reshape = _op(lambda x, newshape: _tf.reshape(_tensor(x), newshape))
transpose = _op(lambda x, axes=None: _tf.transpose(_tensor(x), axes))
squeeze = _op(lambda x, axis=None: _tf.squeeze(_tensor(x), axis))
ravel = _op(lambda x: _tf.reshape(_tensor(x), [-1]))
broadcast_to = _op(lambda x, shape: _tf.broadcast_to(_tensor(x), shape))
repeat = _op(lambda x, repeats, axis=None: _tf.repeat(_tensor(x), repeats, axis))
flip = _op(lambda x, axis=None: _tf.reverse(_tensor(x), list(_range(_tensor(x).ndim)) if axis is None else axis))
fliplr, flipud = _op(lambda x: flip(x, 1)), _op(lambda x: flip(x, 0))


@_op
def meshgrid(*x, indexing="xy"):
    """Grids of the coordinates that lists of them span."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is xy or ij, received {indexing!r}")
    return _tf.meshgrid(*[_tf.reshape(_tensor(part), [-1]) for part in x], indexing=indexing)


@_op
def take_along_axis(x, indices, axis=None):
    """One element for each index, chosen along an axis."""
    x, indices = _tensor(x), _numbers(indices)
    if axis is None:
        x, indices, axis = _tf.reshape(x, [-1]), _tf.reshape(indices, [-1]), 0
    count = x.shape[axis]
    return _ops.take_along_axis(x, _tf.where(_tf.less(indices, 0), indices + _tensor(count, indices.dtype), indices), axis)


@_op
def expand_dims(x, axis):
    """Dimensions of size 1 at these places."""
    x = _tensor(x)
    axes = [axis] if isinstance(axis, int) else list(axis)
    for place in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = _tf.expand_dims(x, place)
    return x


@_op
def tile(x, repeats):
    """Again and again, so many times along each dimension."""
    x = _tensor(x)
    repeats = _sizes(repeats)
    count = _max(len(repeats), x.ndim)
    x = _tf.reshape(x, [1] * (count - x.ndim) + list(x.shape))
    return _tf.tile(x, [1] * (count - len(repeats)) + repeats)


@_op
def moveaxis(x, source, destination):
    """Axes in other places."""
    return _ops.moveaxis(_tensor(x), *([a] if isinstance(a, int) else list(a) for a in (source, destination)))


@_op
def swapaxes(x, axis1, axis2):
    """Two axes in each other's place."""
    x = _tensor(x)
    order = list(_range(x.ndim))
    for axis in (axis1, axis2):
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"swapaxes: there is no axis {axis} in shape {x.shape}")
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _tf.transpose(x, order)


@_op
def rot90(array, k=1, axes=(0, 1)):
    """Turned by 90 degrees, k times."""
    x = _tensor(array)
    if x.ndim < 2 or len(axes) != 2 or axes[0] % x.ndim == axes[1] % x.ndim:
        raise ValueError(f"rot90: takes two different axes of an array of at least two dimensions, received {axes} of shape {x.shape}")
    k %= 4
    if k == 2:
        return flip(x, list(axes))
    if k == 0:
        return x
    first, second = axes
    return flip(swapaxes(x, first, second), first) if k == 1 else swapaxes(flip(x, first), first, second)


@_op
def roll(x, shift, axis=None):
    """Elements move along the axes; those that leave come in at the other end."""
    x = _tensor(x)
    if axis is None:
        return _tf.reshape(_tf.roll(_tf.reshape(x, [-1]), shift, 0), x.shape)
    if isinstance(axis, int):
        return _tf.roll(x, shift, axis)
    return _tf.roll(x, list(shift) if not isinstance(shift, int) else [shift] * len(axis), list(axis))


@_op
def pad(x, pad_width, mode="constant", constant_values=None):
    """Elements around it: (before, after) for every dimension."""
    x = _tensor(x)
    if constant_values is not None and mode != "constant":
        raise ValueError(f"pad: constant_values belong to mode \"constant\", received mode={mode!r}")
    if mode not in ("constant", "reflect", "symmetric"):
        raise NotImplementedError(f"pad: mode is constant, reflect or symmetric, received {mode!r}")
    pairs = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    narrow = x.dtype if not x.dtype.is_floating else None
    made = _tf.pad(x if narrow is None or narrow in (dtypes.int32, dtypes.int64) else _ops.cast(x, dtypes.int32), pairs, mode.upper(),
                   0 if constant_values is None else constant_values)
    return made if narrow is None else _ops.cast(made, narrow)


@_op
def concatenate(xs, axis=0):
    """Joined along a dimension."""
    if axis is None:
        xs, axis = [_tf.reshape(x, [-1]) for x in xs], 0
    return _tf.concat(_joined(*xs), axis)


concat = concatenate
stack = _op(lambda x, axis=0: _tf.stack(_joined(*x), axis))
append = _op(lambda x1, x2, axis=None: concatenate([_tensor(x1), _tensor(x2)], axis))


def _joining(name, rank, axis):
    def op(xs):
        parts = [_tensor(x) for x in _joined(*xs)]
        return _tf.concat([_at_least(part, rank) for part in parts], axis if not (name == "hstack" and parts[0].ndim == 1) else 0)
    return _named(name, op, "Joined along a dimension.")


def _at_least(x, rank):
    if rank == 3 and x.ndim < 3:
        return _tf.reshape(x, [1, -1, 1] if x.ndim < 2 else list(x.shape) + [1])
    return _tf.reshape(x, [1] * (rank - x.ndim) + list(x.shape)) if x.ndim < rank else x


hstack, vstack, dstack = _joining("hstack", 1, 1), _joining("vstack", 2, 0), _joining("dstack", 3, 2)


@_op
def split(x, indices_or_sections, axis=0):
    """Equal parts, or parts that end at these places."""
    x = _tensor(x)
    if isinstance(indices_or_sections, int):
        return _tf.split(x, indices_or_sections, axis)
    length = x.shape[axis]
    places = [0] + [_min(_max(i + length if i < 0 else i, 0), length) for i in indices_or_sections] + [length]
    return _tf.split(x, [_max(b - a, 0) for a, b in zip(places, places[1:])], axis)


@_op
def array_split(x, indices_or_sections, axis=0):
    """Parts as equal as can be."""
    x = _tensor(x)
    if not isinstance(indices_or_sections, int):
        return split(x, indices_or_sections, axis)
    length, parts = x.shape[axis], indices_or_sections
    return _tf.split(x, [length // parts + (i < length % parts) for i in _range(parts)], axis)


hsplit = _op(lambda x, indices_or_sections: split(x, indices_or_sections, 0 if _tensor(x).ndim == 1 else 1))
vsplit = _op(lambda x, indices_or_sections: split(x, indices_or_sections, 0))
dsplit = _op(lambda x, indices_or_sections: split(x, indices_or_sections, 2))


@_op
def get_item(x, key):
    """x[key]."""
    try:
        return _tensor(x)[tuple(key) if isinstance(key, list) else key]  # files have lists for tuples
    except IndexError as error:
        raise ValueError(f"get_item: {error}") from None


@_op
def take(x, indices, axis=None):
    """The parts along an axis, chosen by their numbers."""
    x, indices = _tensor(x), _numbers(indices)
    if axis is None:
        x, axis = _tf.reshape(x, [-1]), 0
    count = x.shape[axis]
    return _tf.gather(x, _tf.where(_tf.less(indices, 0), indices + count, indices), axis=axis)


@_op
def diag(x, k=0):
    """A matrix with this diagonal, or the diagonal of a matrix."""
    x = _tensor(x)
    if x.ndim not in (1, 2):
        raise ValueError(f"diag: takes a list or a matrix, received shape {x.shape}")
    return _ops.diag(x, k) if x.ndim == 1 else _ops.diag_part(x, k)


diagflat = _op(lambda x, k=0: diag(_tf.reshape(x, [-1]), k))


@_op
def diagonal(x, offset=0, axis1=0, axis2=1):
    """The diagonals of matrices."""
    x = _tensor(x)
    return _ops.diag_part(_ops.moveaxis(x, [axis1, axis2], [-2, -1]), offset)


@_op
def trace(x, offset=0, axis1=0, axis2=1):
    """The sums of diagonals."""
    return _tf.reduce_sum(_countable(diagonal(x, offset, axis1, axis2)), -1)


def _triangle(name, mask):
    def op(x, k=0):
        x = _tensor(x)
        return _tf.where(_to_tensor(mask(np.ones(x.shape[-2:], np.bool_), k)), x, _ops.zeros_like(x))
    return _named(name, op, "One side of a diagonal, zeros on the other.")


tril, triu = _triangle("tril", np.tril), _triangle("triu", np.triu)


# --- by names of dimensions ------------------------------------------------------------------------------------------------

def _groups(side):
    """ "(h w) c" is [["h", "w"], ["c"]]."""
    return [part.strip("()").split() for part in re.findall(r"\([^)]*\)|[^\s()]+", side)]


@_op
def rearrange(tensor, pattern, **axes_lengths):
    """Dimensions in another order, joined or taken apart, as "b h w c -> b (h w) c" says; of what is taken apart, all lengths but one."""
    x = _tensor(tensor)
    before, arrow, after = pattern.partition("->")
    before, after = _groups(before), _groups(after)
    names, wanted = ([name for group in groups for name in group] for groups in (before, after))
    if not arrow or sorted(names) != sorted(wanted) or len(set(names)) != len(names):
        raise ValueError(f"rearrange: both sides of a pattern have the same names, each once, received {pattern!r}")
    if len(before) != x.ndim:
        raise ValueError(f"rearrange: {pattern!r} is of {len(before)} dimensions, received shape {tuple(x.shape)}")
    lengths = dict(axes_lengths)
    for group, size in zip(before, x.shape):
        open_ones = [name for name in group if name not in lengths]
        known = int(np.prod([lengths[name] for name in group if name in lengths], dtype=np.int64))
        if len(open_ones) > 1 or size % _max(known, 1) or not open_ones and known != size:
            raise ValueError(f"rearrange: the lengths {axes_lengths} do not fit ({' '.join(group)}) of size {size} in {pattern!r}")
        lengths.update({name: size // known for name in open_ones})
    x = _tf.reshape(x, [lengths[name] for name in names])
    x = _tf.transpose(x, [names.index(name) for name in wanted])
    return _tf.reshape(x, [int(np.prod([lengths[name] for name in group], dtype=np.int64)) for group in after])


__all__ = _public(globals())
