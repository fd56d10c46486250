"""keras.ops: NumPy's functions and those of neural networks, on tensors and on values of models that are being put together.

Unlike TensorFlow's ops they join dtypes as NumPy does: an integer beside a float becomes one.
"""

import builtins
import functools
import math as _math

import numpy as np

from .. import _lockstep, dtypes, function as _function, image, linalg, nn, ops as _tf  # noqa: F401
from ..function import cond as _cond, custom_gradient, map_fn, scan as _scan, vectorized_map, while_loop as _while_loop  # noqa: F401
from ..tensor import convert_to_tensor as _to_tensor, is_tensor  # noqa: F401
from . import activations, losses
from .backend import epsilon as _epsilon, floatx, result_type, standardize_dtype
from .layers import KerasTensor, symbolic

_ops = _lockstep.ops
_range, _max, _min, _abs, _slice = builtins.range, builtins.max, builtins.min, builtins.abs, builtins.slice


# --- how ops are made ----------------------------------------------------------------------------------------------------

def _op(function):
    """An op that is a layer of the model where one of its arguments is a value of a model."""
    @functools.wraps(function)
    def op(*args, **kwargs):
        return symbolic(function, *args, **kwargs)
    return op


def _tensor(x, dtype=None):
    if isinstance(x, (int, float)) and dtype is None and not isinstance(x, (bool, np.generic)):
        return _to_tensor(x, floatx() if isinstance(x, float) else "int32")
    x = _to_tensor(x)
    return x if dtype is None or x.dtype is dtypes.as_dtype(dtype) else _ops.cast(x, dtypes.as_dtype(dtype))


def _float(x):
    """A tensor of floating point numbers."""
    x = _tensor(x)
    return x if x.dtype.is_floating else _ops.cast(x, dtypes.as_dtype("float64" if x.dtype is dtypes.int64 and floatx() == "float64"
                                                                     else floatx()))


def _number_type(x):
    return type(x) if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic) else None


def _joined(*values):
    """The values as tensors of one dtype."""
    known = [_number_type(value) or _tensor(value).dtype for value in values]
    dtype = dtypes.as_dtype(result_type(*(kind if isinstance(kind, type) else kind.name for kind in known)))
    return [_tensor(value, dtype) for value in values]


def _joined_float(*values):
    joined = _joined(*values)
    return joined if joined[0].dtype.is_floating else [_float(value) for value in joined]


def _define(names, wrap, of=_tf):
    for name in names.split():
        name, _, inner = name.partition("=")
        globals()[name] = wrap(name, getattr(of, inner or name))


def _named(name, function, doc):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _op(function)


def _of_any(name, function):
    return _named(name, lambda x: function(_tensor(x)), function.__doc__)


def _of_floats(name, function):
    return _named(name, lambda x: function(_float(x)), function.__doc__)


def _of_two(name, function):
    return _named(name, lambda x1, x2: function(*_joined(x1, x2)), function.__doc__)


def _of_two_floats(name, function):
    return _named(name, lambda x1, x2: function(*_joined_float(x1, x2)), function.__doc__)


def _of_two_bools(name, function):
    return _named(name, lambda x1, x2: function(_tensor(x1, dtypes.bool), _tensor(x2, dtypes.bool)), function.__doc__)


_define("negative abs absolute=abs sign square", _of_any)
_define("floor ceil sqrt rsqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh erf erfc sigmoid softplus softsign "
        "log_sigmoid selu silu swish=silu mish arcsin=asin arccos=acos arctan=atan arcsinh=asinh arccosh=acosh arctanh=atanh "
        "asin acos atan asinh acosh atanh trunc reciprocal hard_sigmoid hard_silu hard_swish=hard_silu hard_tanh tanh_shrink "
        "sparse_plus sparse_sigmoid relu6", _of_floats)
_define("isnan=is_nan isinf=is_inf isfinite=is_finite", _of_floats)
_define("add subtract multiply maximum minimum power=pow mod=floormod floor_divide=floordiv remainder=floormod", _of_two)
_define("divide true_divide=divide divide_no_nan arctan2=atan2", _of_two_floats)
_define("equal not_equal less less_equal greater greater_equal", _of_two)
_define("logical_and logical_or logical_xor", _of_two_bools)
logical_not = _op(lambda x: _tf.logical_not(_tensor(x, dtypes.bool)))
fmax, fmin = globals()["maximum"], globals()["minimum"]


def _activation(name):
    function = getattr(activations, name)

    def op(x, *args, **kwargs):
        return function(_float(x), *args, **kwargs)
    return _named(name, op, function.__doc__)


for _name in "relu leaky_relu elu celu gelu glu hard_shrink soft_shrink squareplus threshold sparsemax".split():
    globals()[_name] = _activation(_name)


@_op
def softmax(x, axis=-1):
    """Positive numbers along the axes that sum to 1."""
    return _over_axes(activations.softmax, _float(x), axis)


@_op
def log_softmax(x, axis=-1):
    """log(softmax(x))."""
    return _over_axes(activations.log_softmax, _float(x), axis)


def _over_axes(function, x, axis):
    """A function along one axis, of several that are joined; None: of all."""
    if isinstance(axis, int):
        return function(x, axis)
    axes = [a % x.ndim for a in axis] if axis is not None else list(_range(x.ndim))
    kept = [a for a in _range(x.ndim) if a not in axes]
    order = kept + axes
    moved = _tf.transpose(x, order)
    flat = function(_tf.reshape(moved, list(moved.shape[:len(kept)]) + [-1]), -1)
    return _tf.transpose(_tf.reshape(flat, moved.shape), [order.index(i) for i in _range(x.ndim)])


# --- making --------------------------------------------------------------------------------------------------------------

def convert_to_tensor(x, dtype=None, sparse=None, ragged=None):
    """The value as a tensor of this dtype."""
    if sparse or ragged:
        raise ValueError("there are no sparse and no ragged tensors")
    return x if isinstance(x, KerasTensor) else _tensor(x, None if dtype is None else standardize_dtype(dtype))


array = convert_to_tensor


def convert_to_numpy(x):
    """An array of NumPy's."""
    return np.array(_to_tensor(x))


def zeros(shape, dtype=None):
    """Zeros of this shape."""
    return _tf.zeros(shape, dtype or floatx())


def ones(shape, dtype=None):
    """Ones of this shape."""
    return _tf.ones(shape, dtype or floatx())


empty = zeros


def full(shape, fill_value, dtype=None):
    """This value in every place."""
    return _tf.broadcast_to(_tensor(fill_value, dtype or (floatx() if isinstance(fill_value, (int, float)) else None)), shape)


def eye(N, M=None, k=0, dtype=None):
    """Ones on a diagonal."""
    M = N if M is None else M
    return _tensor(np.eye(N, M, k, dtype=np.float32), dtype or floatx())


def identity(n, dtype=None):
    """Ones on the diagonal."""
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    """Ones on and below a diagonal."""
    return _tensor(np.tri(N, M, k, dtype=np.float32), dtype or floatx())


def arange(start, stop=None, step=None, dtype=None):
    """start, start + step, ... below stop."""
    step = 1 if step is None else step
    if dtype is None:
        dtype = result_type(*(_number_type(part) or _tensor(part).dtype.name for part in (start, step) + (() if stop is None else (stop,))))
    first, last = (0, start) if stop is None else (start, stop)
    return _tf.range(*(float(part) for part in (first, last, step)), dtypes.as_dtype(dtype))


def _of_numpy(name):
    function = getattr(np, name)

    def made(*args, dtype=None, **kwargs):
        return _tensor(np.asarray(function(*(np.asarray(a) if is_tensor(a) else a for a in args), **kwargs), np.float32),
                       dtype or floatx())
    made.__name__, made.__doc__ = name, f"NumPy's {name}()."
    return made


for _name in "linspace logspace geomspace".split():
    globals()[_name] = _of_numpy(_name)
for _name in "bartlett blackman hamming hanning kaiser".split():
    globals()[_name] = (lambda name: lambda x, *args: _tensor(getattr(np, name)(int(x), *args).astype(np.float32)))(_name)


def _like(name, value):
    def op(x, dtype=None):
        x = _tensor(x)
        return _ops.full(list(x.shape), value, dtypes.as_dtype(dtype or x.dtype))
    return _named(name, op, f"{name}: of its shape.")


zeros_like, ones_like, empty_like = _like("zeros_like", 0.0), _like("ones_like", 1.0), _like("empty_like", 0.0)


@_op
def full_like(x, fill_value, dtype=None):
    """This value, of its shape."""
    x = _tensor(x)
    return _tf.broadcast_to(_tensor(fill_value, dtype or x.dtype), x.shape)


def dtype(x):
    """The name of its dtype."""
    return standardize_dtype(x.dtype)


def shape(x):
    """Its sizes."""
    return tuple(x.shape) if isinstance(x, KerasTensor) else tuple(_to_tensor(x).shape)


def ndim(x):
    """The number of its dimensions."""
    return len(shape(x))


def size(x):
    """The number of its elements."""
    sizes = shape(x)
    return None if None in sizes else int(np.prod(sizes, dtype=np.int64))


@_op
def cast(x, dtype):
    """In another dtype."""
    return _ops.cast(_tensor(x), dtypes.as_dtype(standardize_dtype(dtype)))


saturate_cast = _op(lambda x, dtype: _tf.saturate_cast(_tensor(x), standardize_dtype(dtype)))
copy = _op(lambda x: _tf.identity(_tensor(x)))
stop_gradient = _op(lambda variable: _tf.stop_gradient(_tensor(variable)))


# --- reductions ----------------------------------------------------------------------------------------------------------

def _reduction(name, inner, prepare):
    function = getattr(_tf, inner)

    def reduce(x, axis=None, keepdims=False):
        return function(prepare(x), axis, keepdims)
    return _named(name, reduce, function.__doc__)


def _countable(x):
    x = _tensor(x)
    return _ops.cast(x, dtypes.int32) if x.dtype in (dtypes.bool, dtypes.uint8) else x


def _bools(x):
    return _tensor(x, dtypes.bool)


sum, prod = _reduction("sum", "reduce_sum", _countable), _reduction("prod", "reduce_prod", _countable)  # noqa: A001
mean, var, std = (_reduction(name, inner, _float) for name, inner in
                  (("mean", "reduce_mean"), ("var", "reduce_variance"), ("std", "reduce_std")))
any, all = _reduction("any", "reduce_any", _bools), _reduction("all", "reduce_all", _bools)  # noqa: A001
logsumexp = _reduction("logsumexp", "reduce_logsumexp", _float)


def _extreme(name, inner):
    function = getattr(_tf, inner)

    def reduce(x, axis=None, keepdims=False, initial=None):
        made = function(_tensor(x), axis, keepdims)
        if initial is not None:
            made = (_tf.maximum if name == "max" else _tf.minimum)(made, _tensor(initial, made.dtype))
        return made
    return _named(name, reduce, function.__doc__)


max, min = _extreme("max", "reduce_max"), _extreme("min", "reduce_min")  # noqa: A001
amax, amin = max, min
ptp = _op(lambda x, axis=None, keepdims=False: max(x, axis, keepdims) - min(x, axis, keepdims))


@_op
def average(x, axis=None, weights=None):
    """The mean, weighed."""
    x = _float(x)
    if weights is None:
        return _tf.reduce_mean(x, axis)
    weights = _tensor(weights, x.dtype)
    if weights.ndim == 1 and x.ndim > 1:
        weights = _tf.reshape(weights, [-1 if i == axis % x.ndim else 1 for i in _range(x.ndim)])
    weights = _tf.broadcast_to(weights, x.shape)
    return _tf.reduce_sum(x * weights, axis) / _tf.reduce_sum(weights, axis)


@_op
def count_nonzero(x, axis=None):
    """How many elements are not 0."""
    return _tf.count_nonzero(_tensor(x), axis, dtype=dtypes.int32)


def _place(name, function):
    def op(x, axis=None, keepdims=False):
        x = _tensor(x)
        flat = axis is None
        made = function(_tf.reshape(x, [-1]) if flat else x, 0 if flat else axis, dtypes.int32)
        if keepdims:
            made = _tf.reshape(made, [1] * x.ndim) if flat else _tf.expand_dims(made, axis)
        return made
    return _named(name, op, function.__doc__)


argmax, argmin = _place("argmax", _tf.argmax), _place("argmin", _tf.argmin)


def _running(name, function):
    def op(x, axis=None, dtype=None):
        x = _countable(x)
        if axis is None:
            x, axis = _tf.reshape(x, [-1]), 0
        return function(_tensor(x, dtype), int(axis))
    return _named(name, op, function.__doc__)


cumsum, cumprod = _running("cumsum", _tf.cumsum), _running("cumprod", _tf.cumprod)


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


# --- shapes --------------------------------------------------------------------------------------------------------------

reshape = _op(lambda x, newshape: _tf.reshape(_tensor(x), newshape))
transpose = _op(lambda x, axes=None: _tf.transpose(_tensor(x), axes))
squeeze = _op(lambda x, axis=None: _tf.squeeze(_tensor(x), axis))
ravel = _op(lambda x: _tf.reshape(_tensor(x), [-1]))
broadcast_to = _op(lambda x, shape: _tf.broadcast_to(_tensor(x), shape))
repeat = _op(lambda x, repeats, axis=None: _tf.repeat(_tensor(x), repeats, axis))
flip = _op(lambda x, axis=None: _tf.reverse(_tensor(x), list(_range(_tensor(x).ndim)) if axis is None else axis))
fliplr, flipud = _op(lambda x: flip(x, 1)), _op(lambda x: flip(x, 0))
meshgrid = _op(lambda *x, indexing="xy": _tf.meshgrid(*[_tensor(part) for part in x], indexing=indexing))
take_along_axis = _op(lambda x, indices, axis=None: _ops.take_along_axis(
    _tf.reshape(x, [-1]) if axis is None else _tensor(x), _tf.reshape(indices, [-1]) if axis is None else _tensor(indices),
    0 if axis is None else axis))


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
    repeats = [repeats] if isinstance(repeats, int) else list(repeats)
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


@_op
def unstack(x, num=None, axis=0):
    """The parts along a dimension."""
    return _tf.unstack(_tensor(x), num, axis)


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
    return _tensor(x)[key]


@_op
def take(x, indices, axis=None):
    """The parts along an axis, chosen by their numbers."""
    x = _tensor(x)
    indices = _tensor(indices)
    if not indices.dtype.is_integer or indices.dtype is dtypes.uint8:
        indices = _ops.cast(indices, dtypes.int32)
    if axis is None:
        x, axis = _tf.reshape(x, [-1]), 0
    count = x.shape[axis]
    return _tf.gather(x, _tf.where(_tf.less(indices, 0), indices + count, indices), axis=axis)


@_op
def diag(x, k=0):
    """A matrix with this diagonal, or the diagonal of a matrix."""
    x = _tensor(x)
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


# --- elementwise, of others ----------------------------------------------------------------------------------------------

@_op
def clip(x, x_min, x_max):
    """x, with what is outside put on the nearer end."""
    x = _countable(x)
    return _tf.clip_by_value(x, x_min, x_max)


@_op
def where(condition, x1=None, x2=None):
    """x1 where the condition holds, else x2; of the condition alone, the places."""
    if (x1 is None) != (x2 is None):
        raise ValueError("where: takes both x1 and x2, or neither")
    condition = _tensor(condition, dtypes.bool)
    if x1 is None:
        return nonzero(condition)
    return _tf.where(condition, *_joined(x1, x2))


def nonzero(x):
    """The places of what is not 0, an array for every dimension."""
    return tuple(_to_tensor(part.astype(np.int32)) for part in np.nonzero(_tf._known(x, "nonzero")))


@_op
def round(x, decimals=0):  # noqa: A001
    """To the nearest, half to even."""
    x = _tensor(x)
    if not x.dtype.is_floating:
        return x
    return _tf.round(x) if decimals == 0 else _tf.round(x * 10.0 ** decimals) / 10.0 ** decimals


@_op
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    """Numbers in the place of what is none, and of infinities."""
    x = _tensor(x)
    if not x.dtype.is_floating:
        return x
    x = _tf.where(_tf.is_nan(x), _tensor(float(nan), x.dtype), x)
    top, bottom = (float(limit if given is None else given) for limit, given in ((x.dtype.max, posinf), (x.dtype.min, neginf)))
    x = _tf.where(_tf.equal(x, _math.inf), _tensor(top, x.dtype), x)
    return _tf.where(_tf.equal(x, -_math.inf), _tensor(bottom, x.dtype), x)


isposinf, isneginf = _op(lambda x: _tf.equal(_float(x), _math.inf)), _op(lambda x: _tf.equal(_float(x), -_math.inf))
isreal = _op(lambda x: _tf.ones_like(_tensor(x), dtypes.bool))
real = conj = conjugate = _op(lambda x: _tensor(x))
imag = _op(lambda x: _tf.zeros_like(_tensor(x)))
fabs = _op(lambda x: _tf.abs(_float(x)))
exp2 = _op(lambda x: _tf.pow(_tensor(2.0, _float(x).dtype), _float(x)))
cbrt = _op(lambda x: _tf.sign(_float(x)) * _tf.pow(_tf.abs(_float(x)), 1.0 / 3.0))
deg2rad, rad2deg = _op(lambda x: _float(x) * (_math.pi / 180.0)), _op(lambda x: _float(x) * (180.0 / _math.pi))
hypot = _op(lambda x1, x2: _tf.sqrt(_ops.add(*(_tf.square(x) for x in _joined_float(x1, x2)))))
signbit = _op(lambda x: _tf.less(_tensor(x), 0) if not _tensor(x).dtype.is_floating else
              _tf.logical_or(_tf.less(x, 0.0), _tf.less(_tf.reciprocal(_tf.where(_tf.equal(x, 0.0), x, _tf.ones_like(_tensor(x)))), 0.0)))
fmod = _op(lambda x1, x2: _truncated_rest(*_joined(x1, x2)))
ldexp = _op(lambda x1, x2: _float(x1) * exp2(_tensor(x2, _float(x1).dtype)))


def _truncated_rest(a, b):
    if a.dtype.is_floating:
        return a - b * _tf.trunc(a / b)
    rest = _tf.floormod(_tf.abs(a), _tf.abs(b))
    return _tf.where(_tf.less(a, 0), -rest, rest)


@_op
def sinc(x):
    """sin(pi x) / (pi x)."""
    x = _float(x) * _math.pi
    zero = _tf.equal(x, 0.0)
    safe = _tf.where(zero, _tf.ones_like(x), x)
    return _tf.where(zero, _tf.ones_like(x), _tf.sin(safe) / safe)


@_op
def heaviside(x1, x2):
    """0 below 0, x2 at it, 1 above."""
    x1, x2 = _joined_float(x1, x2)
    return _tf.where(_tf.equal(x1, 0.0), x2 + _tf.zeros_like(x1), _tf.cast(_tf.greater(x1, 0.0), x1.dtype) + _tf.zeros_like(x2))


@_op
def logaddexp(x1, x2):
    """log(exp(x1) + exp(x2)) without overflow."""
    x1, x2 = _joined_float(x1, x2)
    larger = _tf.maximum(x1, x2)
    return _tf.where(_tf.is_inf(larger), larger, larger + _tf.log1p(_tf.exp(-_tf.abs(x1 - x2))))


logaddexp2 = _op(lambda x1, x2: logaddexp(_float(x1) * _math.log(2.0), _float(x2) * _math.log(2.0)) / _math.log(2.0))


@_op
def isclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Where they differ by little."""
    x1, x2 = _joined_float(x1, x2)
    near = _tf.logical_and(_tf.less_equal(_tf.abs(x1 - x2), _tf.abs(x2) * rtol + atol), _tf.is_finite(x2))
    near = _tf.logical_or(near, _tf.equal(x1, x2))
    return _tf.logical_or(near, _tf.logical_and(_tf.is_nan(x1), _tf.is_nan(x2))) if equal_nan else near


allclose = _op(lambda x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False: _tf.reduce_all(isclose(x1, x2, rtol, atol, equal_nan)))


@_op
def select(condlist, choicelist, default=0):
    """The first choice whose condition holds."""
    made = _tensor(default)
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        made = where(condition, choice, made)
    return made


@_op
def diff(a, n=1, axis=-1):
    """The differences of neighbours."""
    x = _tensor(a)
    for _ in _range(n):
        length = x.shape[axis]
        later, sooner = ([_slice(None)] * x.ndim for _ in _range(2))
        later[axis], sooner[axis] = _slice(1, None), _slice(0, length - 1)
        x = _tf.not_equal(x[tuple(later)], x[tuple(sooner)]) if x.dtype is dtypes.bool else x[tuple(later)] - x[tuple(sooner)]
    return x


@_op
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral by trapezoids."""
    y = _ops.moveaxis(_float(y), [axis], [-1])
    widths = dx if x is None else diff(_float(x) if _tensor(x).ndim == 1 else _ops.moveaxis(_float(x), [axis], [-1]))
    return _tf.reduce_sum((y[..., 1:] + y[..., :-1]) * widths / 2.0, -1)


# --- order ---------------------------------------------------------------------------------------------------------------

sort = _op(lambda x, axis=-1: _tf.sort(_tf.reshape(x, [-1]) if axis is None else _tensor(x), -1 if axis is None else axis))
argsort = _op(lambda x, axis=-1: _tf.cast(_tf.argsort(_tf.reshape(x, [-1]) if axis is None else _tensor(x),
                                                      -1 if axis is None else axis), dtypes.int32))
searchsorted = _op(lambda sorted_sequence, values, side="left": _tf.searchsorted(*_joined(sorted_sequence, values), side=side))
digitize = _op(lambda x, bins: _tf.searchsorted(*reversed(_joined_float(_tensor(x), _tensor(bins))), side="right"))


@_op
def quantile(x, q, axis=None, method="linear", keepdims=False):
    """Values that a share of the elements is below."""
    x, shares = _float(x), _tensor(q, _float(x).dtype)
    axes = list(_range(x.ndim)) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    kept = [a for a in _range(x.ndim) if a not in axes]
    rest = [x.shape[a] for a in kept]
    ordered = _tf.sort(_tf.reshape(_tf.transpose(x, kept + axes), rest + [-1]), -1)
    place = np.asarray(shares).reshape(-1).astype(np.float64) * (ordered.shape[-1] - 1)
    low, high = np.floor(place).astype(np.int32), np.ceil(place).astype(np.int32)
    below, above = (_tf.gather(ordered, _to_tensor(part), axis=-1) for part in (low, high))
    part = _tensor((place - low).astype(np.float32), x.dtype)
    made = {"linear": lambda: below + (above - below) * part, "lower": lambda: below, "higher": lambda: above,
            "midpoint": lambda: (below + above) / 2.0,
            "nearest": lambda: _tf.gather(ordered, _to_tensor(np.round(place).astype(np.int32)), axis=-1)}[method]()
    if keepdims:
        made = _tf.reshape(made, [1 if a in axes else x.shape[a] for a in _range(x.ndim)] + [len(place)])
    made = _ops.moveaxis(made, [-1], [0])
    return made if shares.ndim else made[0]


median = _op(lambda x, axis=None, keepdims=False: quantile(x, 0.5, axis, keepdims=keepdims))
percentile = _op(lambda x, q, axis=None, method="linear", keepdims=False: quantile(x, _float(q) / 100.0, axis, method, keepdims))


@_op
def bincount(x, weights=None, minlength=0, sparse=False):
    """How often each number is there."""
    x = _tensor(x)
    return _tf.bincount(x, weights, minlength=minlength, dtype=dtypes.int32 if weights is None else _tensor(weights).dtype)


def unique(x, sorted=True, return_index=False, return_inverse=False, return_counts=False, axis=None, size=None, fill_value=None):
    """Every value once."""
    made = np.unique(_tf._known(x, "unique"), return_index, return_inverse, return_counts, axis)
    return tuple(_to_tensor(part) for part in made) if isinstance(made, tuple) else _to_tensor(made)


isin = _op(lambda x1, x2, assume_unique=False, invert=False: _to_tensor(
    np.isin(_tf._known(x1, "isin"), _tf._known(x2, "isin"), assume_unique, invert=invert)))
unravel_index = _op(lambda indices, shape: tuple(_to_tensor(part.astype(np.int32)) for part in
                                                 np.unravel_index(_tf._known(indices, "unravel_index"), shape)))
histogram = _op(lambda x, bins=10, range=None: tuple(_to_tensor(part) for part in np.histogram(
    _tf._known(x, "histogram"), bins, range if range is not None and len(range) else None)))
argpartition = _op(lambda x, kth, axis=-1: _tf.cast(_tf.argsort(_tensor(x), axis), dtypes.int32))


# --- numbers that may be none --------------------------------------------------------------------------------------------

def _without_nan(name, function, instead):
    def op(x, axis=None, keepdims=False):
        x = _tensor(x)
        if x.dtype.is_floating:
            x = _tf.where(_tf.is_nan(x), _tensor(instead, x.dtype), x)
        return function(x, axis, keepdims)
    return _named(name, op, function.__doc__)


nansum, nanprod = _without_nan("nansum", sum, 0.0), _without_nan("nanprod", prod, 1.0)
nancumsum = _op(lambda x, axis=None, dtype=None: cumsum(nan_to_num(x, 0.0, _math.inf, -_math.inf), axis, dtype))
nancumprod = _op(lambda x, axis=None, dtype=None: cumprod(nan_to_num(x, 1.0, _math.inf, -_math.inf), axis, dtype))


def _extreme_without_nan(name, function, instead):
    def op(x, axis=None, keepdims=False):
        x = _tensor(x)
        if not x.dtype.is_floating:
            return function(x, axis, keepdims)
        none = _tf.reduce_all(_tf.is_nan(x), axis, keepdims)
        made = function(_tf.where(_tf.is_nan(x), _tensor(instead, x.dtype), x), axis, keepdims)
        return _tf.where(none, _tensor(_math.nan, x.dtype), made)
    return _named(name, op, function.__doc__)


nanmax, nanmin = _extreme_without_nan("nanmax", max, -_math.inf), _extreme_without_nan("nanmin", min, _math.inf)


@_op
def nanmean(x, axis=None, keepdims=False):
    """The mean of those that are numbers."""
    x = _float(x)
    return nansum(x, axis, keepdims) / _tf.reduce_sum(_tf.cast(_tf.logical_not(_tf.is_nan(x)), x.dtype), axis, keepdims)


@_op
def nanvar(x, axis=None, keepdims=False):
    """The variance of those that are numbers."""
    x = _float(x)
    return nanmean(_tf.square(x - nanmean(x, axis, True)), axis, keepdims)


nanstd = _op(lambda x, axis=None, keepdims=False: _tf.sqrt(nanvar(x, axis, keepdims)))


# --- products ------------------------------------------------------------------------------------------------------------

@_op
def matmul(x1, x2):
    """The product of the last two dimensions; a vector is a matrix of one row or column."""
    a, b = _joined(x1, x2)
    if a.ndim == 1 and b.ndim == 1:
        return _tf.tensordot(a, b, 1)
    if a.ndim == 1:
        return _tf.squeeze(_tf.matmul(_tf.expand_dims(a, 0), b), -2)
    if b.ndim == 1:
        return _tf.squeeze(_tf.matmul(a, _tf.expand_dims(b, -1)), -1)
    return _tf.matmul(a, b)


@_op
def dot(x1, x2):
    """NumPy's dot(): sums over the last dimension and the last but one."""
    a, b = _joined(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    return _tf.tensordot(a, b, [[-1 % a.ndim], [_max(b.ndim - 2, 0)]])


@_op
def tensordot(x1, x2, axes=2):
    """Sums over some axes of both."""
    return _tf.tensordot(*_joined(x1, x2), axes)


inner = _op(lambda x1, x2: (lambda a, b: a * b if a.ndim == 0 or b.ndim == 0 else
                            _tf.tensordot(a, b, [[a.ndim - 1], [b.ndim - 1]]))(*_joined(x1, x2)))
outer = _op(lambda x1, x2: (lambda a, b: _tf.reshape(a, [-1, 1]) * _tf.reshape(b, [1, -1]))(*_joined(x1, x2)))
vdot = _op(lambda x1, x2: _tf.tensordot(*(_tf.reshape(x, [-1]) for x in _joined(x1, x2)), 1))
einsum = _op(lambda subscripts, *operands, **kwargs: _tf.einsum(subscripts, *_joined(*operands)))


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


def normalize(x, axis=-1, order=2, epsilon=None):
    """Divided by the norm along an axis."""
    def made(x):
        given = _float(x)
        return given / _tf.maximum(norm(given, order, axis, True), _epsilon() if epsilon is None else epsilon)
    return symbolic(made, x)


# --- neural networks -----------------------------------------------------------------------------------------------------

top_k = _op(lambda x, k, sorted=True: nn.top_k(_tensor(x), k))
in_top_k = _op(lambda targets, predictions, k: nn.in_top_k(_tensor(targets), _tensor(predictions), k))


@_op
def one_hot(x, num_classes, axis=-1, dtype=None, sparse=False):
    """1 at the number and 0 elsewhere, in a new dimension."""
    if sparse:
        raise ValueError("one_hot: there are no sparse tensors")
    x = _tensor(x)
    return _tf.one_hot(x if x.dtype.is_integer else _ops.cast(x, dtypes.int32), num_classes, axis=axis, dtype=dtype or floatx())


@_op
def multi_hot(inputs, num_classes=None, axis=-1, dtype=None, sparse=False, **kwargs):
    """1 at each of several numbers and 0 elsewhere."""
    num_classes = kwargs.pop("num_tokens", num_classes)
    reduce = 1 if len(_tensor(inputs).shape) > 1 else 0
    return _tf.reduce_max(one_hot(inputs, num_classes, axis, dtype), reduce)


@_op
def moments(x, axes, keepdims=False, synchronized=False):
    """Mean and variance."""
    return nn.moments(_float(x), axes if not isinstance(axes, int) else [axes], keepdims=keepdims)


@_op
def layer_normalization(x, gamma=None, beta=None, axis=-1, epsilon=None, **kwargs):
    """Zero mean and unit variance along the axes, scaled and moved."""
    x = _float(x)
    average, variance = nn.moments(x, [axis] if isinstance(axis, int) else list(axis), keepdims=True)
    made = (x - average) * _tf.rsqrt(variance + (_epsilon() if epsilon is None else epsilon))
    made = made if gamma is None else made * gamma
    return made if beta is None else made + beta


@_op
def rms_normalization(x, scale=None, axis=-1, epsilon=None):
    """Divided by the root of the mean square along the axes."""
    x = _float(x)
    made = x * _tf.rsqrt(_tf.reduce_mean(_tf.square(x), axis, True) + (_epsilon() if epsilon is None else epsilon))
    return made if scale is None else made * scale


@_op
def batch_normalization(x, mean, variance, axis, offset=None, scale=None, epsilon=1e-3):
    """Of given mean and variance."""
    x = _float(x)
    shaped = [x.shape[i] if i == axis % x.ndim else 1 for i in _range(x.ndim)]
    factor = _tf.rsqrt(_tf.reshape(variance, shaped) + epsilon)
    factor = factor if scale is None else factor * _tf.reshape(scale, shaped)
    made = (x - _tf.reshape(mean, shaped)) * factor
    return made if offset is None else made + _tf.reshape(offset, shaped)


def _format(data_format):
    from .backend import standardize_data_format
    return standardize_data_format(data_format)


def _pooling(kind):
    def op(inputs, pool_size, strides=None, padding="valid", data_format=None):
        x = _float(inputs)
        rank = x.ndim - 2
        sizes, steps = ([given] * rank if isinstance(given, int) else list(given)
                        for given in (pool_size, pool_size if strides is None else strides))
        return getattr(_ops, f"{kind}_pool{rank}d")(x, sizes, steps, padding.upper(), _format(data_format))
    return op


max_pool = _named("max_pool", _pooling("max"), "The largest elements of windows.")
average_pool = _named("average_pool", _pooling("avg"), "The means of windows.")


@_op
def conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    """A convolution of one, two or three dimensions."""
    x, kernel = _joined_float(inputs, kernel)
    rank = x.ndim - 2
    steps, dilations = ([given] * rank if isinstance(given, int) else list(given) for given in (strides, dilation_rate))
    return getattr(_ops, f"conv{rank}d")(x, kernel, steps, padding.upper(), dilations, _format(data_format))


@_op
def dot_product_attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None, attn_logits_soft_cap=None):
    """Attention of queries (batch, time, heads, size) to keys and values."""
    if bias is not None or attn_logits_soft_cap is not None:
        raise NotImplementedError("dot_product_attention: takes no bias and no soft cap")
    q, k, v = (_tf.transpose(part, [0, 2, 1, 3]) for part in _joined_float(query, key, value))
    made = _ops.scaled_dot_product_attention(q, k, v, None if mask is None else _tensor(mask, dtypes.bool), scale, bool(is_causal))
    return _tf.transpose(made, [0, 2, 1, 3])


@_op
def categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """One loss an example."""
    return losses.categorical_crossentropy(target, _float(output), from_logits=from_logits, axis=axis)


@_op
def sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1):
    """The same, of class numbers."""
    target, output = _tensor(target), _float(output)
    if axis not in (-1, output.ndim - 1):
        raise NotImplementedError("sparse_categorical_crossentropy: classes are the last axis")
    return losses.sparse_categorical_crossentropy(target, output, from_logits=from_logits)


@_op
def binary_crossentropy(target, output, from_logits=False):
    """A loss for every element."""
    target, output = _joined_float(target, output)
    if from_logits:
        return nn.sigmoid_cross_entropy_with_logits(labels=target, logits=output)
    output = _tf.clip_by_value(output, _epsilon(), 1.0 - _epsilon())
    return -(target * _tf.log(output) + (1.0 - target) * _tf.log(1.0 - output))


@_op
def psnr(x1, x2, max_val):
    """The peak signal to noise ratio."""
    x1, x2 = _joined_float(x1, x2)
    return 20.0 * _tf.log10(_float(max_val)) - 10.0 * _tf.log10(_tf.reduce_mean(_tf.square(x1 - x2)))


depth_to_space = _op(lambda x, block_size, data_format=None: _ops.depth_to_space(_tensor(x), block_size))
space_to_depth = _op(lambda x, block_size, data_format=None: _ops.space_to_depth(_tensor(x), block_size))


# --- by number -----------------------------------------------------------------------------------------------------------

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


def _segments(name, combine):
    def op(data, segment_ids, num_segments=None, sorted=False):
        data, ids = _tensor(data), _tensor(segment_ids)
        count = int(num_segments) if num_segments is not None else int(_tf._known(ids, name).max(initial=-1)) + 1
        return combine(data, ids, count)
    return _named(name, op, "Rows of one number together.")


segment_sum = _segments("segment_sum", lambda data, ids, count: _ops.scatter_add(data, ids, count))


# --- control -------------------------------------------------------------------------------------------------------------

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


# --- whole numbers -------------------------------------------------------------------------------------------------------

def _bits(name):
    function = getattr(np, name)

    def op(x, y=None):
        given = [_tf._known(part, name) for part in (_joined(x, y) if y is not None else [_tensor(x)])]
        return _to_tensor(function(*given))
    return _named(name, op, f"NumPy's {name}(), outside of compiled functions.")


for _name in ("bitwise_and bitwise_or bitwise_xor bitwise_invert bitwise_not bitwise_left_shift bitwise_right_shift left_shift "
              "right_shift gcd lcm").split():
    globals()[_name] = _bits(_name)
