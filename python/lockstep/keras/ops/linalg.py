"""keras.ops.linalg: norms, factors and solutions of matrices, which are the last two dimensions.

Factors are made of ops, a column at a time: they run on every device, in compiled functions and under tapes.
"""

import builtins
import math as _math

import numpy as np

from ... import dtypes, nest
from ...function import GradientTape, custom_gradient
from ._defining import _float, _joined_float, _op, _ops, _public, _tensor, _tf
from ._reductions import max, min  # noqa: A004

_abs, _max, _min, _range = builtins.abs, builtins.max, builtins.min, builtins.range


def _square(x, what):
    x = _float(x)
    if x.ndim < 2:
        raise ValueError(f"{what}: takes matrices, of rank 2 or more, received shape {x.shape}")
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{what}: takes square matrices, received shape {x.shape}")
    return x


def _wide(x):
    """In at least float32: what is eliminated column by column loses too much in half precision."""
    return x if x.dtype in (dtypes.float32, dtypes.float64) else _ops.cast(x, dtypes.float32)


def _column(x, j):
    return x[..., :, j:j + 1]


def _below(n, j, dtype, own=True):
    """1 in the rows from j on, without j itself where that is not its own; a column."""
    rows = np.arange(n)
    return _tensor((rows >= j if own else rows > j).astype(np.float32).reshape(n, 1), dtype)


def _unit(n, j, dtype):
    return _tensor((np.arange(n) == j).astype(np.float32).reshape(n, 1), dtype)


def _transposed(x):
    return _ops.moveaxis(x, [-1], [-2])


# --- triangles -----------------------------------------------------------------------------------------------------------

@_op
def cholesky(x, upper=False):
    """The lower triangle L with L L' = x, of which the lower half is read; or its transpose."""
    given = _square(x, "cholesky")
    rest, n, columns = _wide(given), given.shape[-1], []
    for j in _range(n):
        column = _column(rest, j) * _below(n, j, rest.dtype)
        column = column / _tf.sqrt(rest[..., j:j + 1, j:j + 1])
        columns.append(column)
        rest = rest - _tf.matmul(column, column, transpose_b=True)
    made = _ops.cast(_tf.concat(columns, -1), given.dtype)
    if not made.symbolic and bool(_tf.reduce_any(_tf.is_nan(made))):
        raise ValueError("cholesky: a matrix is not positive definite")
    return _transposed(made) if upper else made


@_op
def cholesky_inverse(x, upper=False):
    """The inverse of the matrix of which this is the triangle."""
    given = _square(x, "cholesky_inverse")
    lower = _transposed(given) if upper else given
    inverse = solve_triangular(lower, _eye_like(lower), lower=True)
    return _tf.matmul(inverse, inverse, transpose_a=True)


def _eye_like(x):
    return _tf.broadcast_to(_ops.eye(x.shape[-1], -1, x.dtype), x.shape)


def _right_side(a, b, what):
    """b as columns, and whether it was a vector."""
    vector = b.ndim == a.ndim - 1
    if b.ndim not in (a.ndim, a.ndim - 1):
        raise ValueError(f"{what}: b has the rank of a, or one less, received shapes {a.shape} and {b.shape}")
    b = _tf.expand_dims(b, -1) if vector else b
    if b.shape[-2] != a.shape[-2]:
        raise ValueError(f"{what}: a and b have the same number of rows, received shapes {a.shape} and {b.shape}")
    return b, vector


@_op
def solve_triangular(a, b, lower=False):
    """x with a x = b, of which only one triangle of a is read."""
    a, b = _joined_float(a, b)
    a = _square(a, "solve_triangular")
    b, vector = _right_side(a, b, "solve_triangular")
    given, a, b = a.dtype, _wide(a), _wide(b)
    n, rows = a.shape[-1], {}
    for i in (_range(n) if lower else reversed(_range(n))):
        row = b[..., i:i + 1, :]
        known = sorted(rows)
        if known:
            row = row - _tf.matmul(a[..., i:i + 1, known[0]:known[-1] + 1], _tf.concat([rows[k] for k in known], -2))
        rows[i] = row / a[..., i:i + 1, i:i + 1]
    made = _ops.cast(_tf.concat([rows[i] for i in _range(n)], -2), given)
    return _tf.squeeze(made, [-1]) if vector else made


# --- elimination ---------------------------------------------------------------------------------------------------------

def _swapped(x, j):
    """The matrix with the row of the largest element of column j, from j on, in the place of row j; and the rows' numbers."""
    n = x.shape[-2]
    candidates = _tf.where(_tensor(np.arange(n) >= j), _tf.abs(x[..., :, j]), _tensor(-1.0, x.dtype))
    pivot = _tf.expand_dims(_ops.cast(_ops.argmax(_tf.stop_gradient(candidates), -1), dtypes.int32), -1)
    rows = _tensor(np.arange(n, dtype=np.int32)) + _tf.zeros_like(pivot)
    order = _tf.where(_tf.equal(rows, j), pivot, _tf.where(_tf.equal(rows, pivot), _tensor(j), rows))
    return _ops.take_along_axis(x, _tf.expand_dims(order, -1), -2), order, _tf.squeeze(pivot, [-1])


@_op
def solve(a, b):
    """x with a x = b."""
    a, b = _joined_float(a, b)
    a = _square(a, "solve")
    b, vector = _right_side(a, b, "solve")
    given, n = a.dtype, a.shape[-1]
    shape = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    both = _wide(_tf.concat([_tf.broadcast_to(part, [*shape, *part.shape[-2:]]) for part in (a, b)], -1))
    for j in _range(n):
        both, _, _ = _swapped(both, j)
        row = both[..., j:j + 1, :] / both[..., j:j + 1, j:j + 1]
        unit = _unit(n, j, both.dtype)
        both = both - (_column(both, j) - unit) * row  # row j itself becomes `row`
    made = _ops.cast(both[..., :, n:], given)
    return _tf.squeeze(made, [-1]) if vector else made


@_op
def inv(x):
    """The inverse."""
    x = _square(x, "inv")
    return solve(x, _eye_like(x))


def _factored(x):
    """Both triangles in one matrix, the rows that were swapped, and by which sign that changes the determinant."""
    n, pivots, sign = x.shape[-1], [], None
    for j in _range(_min(n, x.shape[-2])):
        x, _, pivot = _swapped(x, j)
        pivots.append(pivot)
        turned = _tf.where(_tf.equal(pivot, j), _tensor(1.0, x.dtype), _tensor(-1.0, x.dtype))
        sign = turned if sign is None else sign * turned
        factors = _tf.divide_no_nan(_column(x, j), x[..., j:j + 1, j:j + 1]) * _below(x.shape[-2], j, x.dtype, own=False)
        row = x[..., j:j + 1, :] * _tensor((np.arange(n) > j).astype(np.float32), x.dtype)
        column = _tensor((np.arange(n) == j).astype(np.float32), x.dtype)
        kept = x * (1.0 - _below(x.shape[-2], j, x.dtype, own=False) * column)
        x = kept - factors * row + factors * column
    return x, _tf.stack(pivots, -1), sign


@_op
def lu_factor(x):
    """The triangles L and U in one matrix, and for each row the one that it was swapped with."""
    x = _float(x)
    if x.ndim < 2:
        raise ValueError(f"lu_factor: takes matrices, of rank 2 or more, received shape {x.shape}")
    made, pivots, _ = _factored(_wide(x))
    return _ops.cast(made, x.dtype), pivots


@_op
def det(x):
    """The determinant."""
    x = _square(x, "det")
    made, _, sign = _factored(_wide(x))
    return _ops.cast(sign * _tf.reduce_prod(_ops.diag_part(made, 0), -1), x.dtype)


@_op
def slogdet(x):
    """The sign and the logarithm of the determinant."""
    x = _square(x, "slogdet")
    made, _, sign = _factored(_wide(x))
    diagonal = _ops.diag_part(made, 0)
    sign = sign * _tf.reduce_prod(_tf.sign(diagonal), -1)
    return _ops.cast(sign, x.dtype), _ops.cast(_tf.reduce_sum(_tf.log(_tf.abs(diagonal)), -1), x.dtype)


logdet = _op(lambda x: slogdet(x)[1])


# --- orthogonal factors --------------------------------------------------------------------------------------------------

@_op
def qr(x, mode="reduced"):
    """Q with orthogonal columns and an upper triangle R, with Q R = x."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode is reduced or complete, received {mode!r}")
    given = _float(x)
    if given.ndim < 2:
        raise ValueError(f"qr: takes matrices, of rank 2 or more, received shape {given.shape}")
    r = _wide(given)
    m, n = r.shape[-2:]
    q = _tf.broadcast_to(_ops.eye(m, -1, r.dtype), [*r.shape[:-2], m, m])
    for j in _range(_min(m - 1, n)):
        column = _column(r, j) * _below(m, j, r.dtype)
        head = column[..., j:j + 1, :]
        size = _tf.sqrt(_tf.reduce_sum(_tf.square(column), -2, True))
        turned = _tf.where(_tf.less(head, 0.0), -size, size)
        mirror = column + turned * _unit(m, j, r.dtype)
        scale = _tf.divide_no_nan(_tensor(2.0, r.dtype) + _tf.zeros_like(size), _tf.reduce_sum(_tf.square(mirror), -2, True))
        r = r - mirror * (scale * _tf.matmul(mirror, r, transpose_a=True))
        q = q - _tf.matmul(q, mirror) * (scale * _transposed(mirror))
    r = _ops.band_part(r, 0, -1)
    if mode == "reduced":
        q, r = q[..., :, :_min(m, n)], r[..., :_min(m, n), :]
    return _ops.cast(q, given.dtype), _ops.cast(r, given.dtype)


def _least_squares(cutoff):
    """The smallest solution by singular values. Its gradient is that of the pseudoinverse: those of singular vectors are infinite where two
    values are equal."""
    @custom_gradient
    def solved(a, b):
        u, s, v = svd(a, full_matrices=False)
        kept = _tf.greater_equal(s, _tf.reduce_max(s, -1, True) * cutoff)
        inverse = _tf.where(kept, _tf.reciprocal(_tf.where(kept, s, _tf.ones_like(s))), _tf.zeros_like(s))
        pseudoinverse = _tf.matmul(_transposed(v) * inverse, u, transpose_b=True)
        x = _tf.matmul(pseudoinverse, b)

        def grad(g):
            to_b = _tf.matmul(pseudoinverse, g, transpose_a=True)
            made = -_tf.matmul(to_b, x, transpose_b=True)
            made = made + _tf.matmul(b - _tf.matmul(a, x), _tf.matmul(pseudoinverse, to_b), transpose_b=True)
            outside = g - _tf.matmul(pseudoinverse, _tf.matmul(a, g))
            return made + _tf.matmul(_tf.matmul(pseudoinverse, x, transpose_a=True), outside, transpose_b=True), to_b
        return x, grad
    return solved


@_op
def lstsq(a, b, rcond=None):
    """The x that minimizes the squares of a x - b; the smallest one where there are several. Singular values below rcond times the largest one
    count as 0; by default the machine epsilon times the larger dimension of a."""
    a, b = _joined_float(a, b)
    if a.ndim != 2:
        raise ValueError(f"lstsq: takes one matrix, received shape {a.shape}")
    b, vector = _right_side(a, b, "lstsq")
    made = _least_squares(float(_max(*a.shape) * _epsilon(a) if rcond is None else _epsilon(a) if rcond < 0 else rcond))(a, b)
    return _tf.squeeze(made, [-1]) if vector else made


# --- singular values -----------------------------------------------------------------------------------------------------

_SWEEPS = 12  # where values are not known while a function is traced; each one squares what is left


def _rotated(x):
    """Orthogonal columns x V, and V: columns are turned against each other in pairs, all pairs of a round at once."""
    n = x.shape[-1]
    odd = n % 2
    if odd:  # a column of zeros is a partner for the last one
        x = _tf.concat([x, _tf.zeros_like(_column(x, 0))], -1)
        n += 1
    both = _tf.concat([x, _tf.broadcast_to(_ops.eye(n, -1, x.dtype), [*x.shape[:-2], n, n])], -2)
    m = x.shape[-2]
    half = n // 2
    # Who meets whom: the first one stays, the others go round.
    left, right = both[..., :, :half], both[..., :, half:]
    for sweep in _range(_SWEEPS if both.symbolic else 40):
        largest = 0.0
        for _ in _range(n - 1):
            a, b = left[..., :m, :], right[..., :m, :]
            aa, bb, ab = (_tf.reduce_sum(p * q, -2, True) for p, q in ((a, a), (b, b), (a, b)))
            size = _tf.sqrt(aa * bb)
            small = _tf.less_equal(_tf.abs(ab), size * (1e-7 if x.dtype is dtypes.float32 else 1e-15))
            if not both.symbolic:
                largest = _max(largest, float(_tf.reduce_max(_tf.divide_no_nan(_tf.abs(ab), size))))
            zeta = (bb - aa) / _tf.where(small, _tf.ones_like(ab), 2.0 * ab)
            turn = _tf.where(_tf.less(zeta, 0.0), -_tf.ones_like(zeta), _tf.ones_like(zeta)) / (_tf.abs(zeta) + _tf.sqrt(1.0 + zeta * zeta))
            turn = _tf.where(small, _tf.zeros_like(turn), turn)
            cosine = _tf.rsqrt(1.0 + turn * turn)
            left, right = cosine * (left - turn * right), cosine * (turn * left + right)
            if half > 1:
                left, right = (_tf.concat([left[..., :, :1], right[..., :, :1], left[..., :, 1:half - 1]], -1),
                               _tf.concat([right[..., :, 1:], left[..., :, half - 1:]], -1))
        if not both.symbolic and largest < (1e-6 if x.dtype is dtypes.float32 else 1e-14):
            break
    both = _tf.concat([left, right], -1)
    return both[..., :m, :], both[..., m:, :], odd


def _sorted_columns(size, *parts, descending=True):
    order = _ops.argsort(size, -1, descending)
    return (_ops.take_along_axis(size, order, -1), *(_ops.take_along_axis(part, _tf.expand_dims(order, -2), -1) for part in parts))


def _thin(x):
    """U, the singular values, largest first, and V, of a matrix with no fewer rows than columns."""
    n = x.shape[-1]
    turned, v, _ = _rotated(x)
    size = _tf.sqrt(_tf.reduce_sum(_tf.square(turned), -2))
    size, turned, v = _sorted_columns(size, turned, v)
    size, turned, v = size[..., :n], turned[..., :, :n], v[..., :n, :n]
    return _tf.divide_no_nan(turned, _tf.expand_dims(size, -2) + _tf.zeros_like(turned)), size, v


def _inverse_differences(values):
    """1 / (a_j - a_i), 0 on the diagonal and where they are equal."""
    rows, columns = _tf.expand_dims(values, -1), _tf.expand_dims(values, -2)
    return _tf.divide_no_nan(_tf.ones_like(columns - rows), columns - rows)


@custom_gradient
def _decomposed(x):
    u, s, v = (_tf.stop_gradient(part) for part in _thin(_tf.stop_gradient(x)))

    def grad(gu, gs, gv):
        between = _inverse_differences(_tf.square(s))
        inner = _ops.diag(gs, 0) if gs is not None else _tf.zeros_like(_tf.matmul(v, v))
        across, along = _tf.expand_dims(s, -2), _tf.expand_dims(s, -1)
        made = _tf.zeros_like(x)
        if gu is not None:
            turn = _tf.matmul(u, gu, transpose_a=True)
            inner = inner + between * (turn - _transposed(turn)) * across
            rest = gu - _tf.matmul(u, turn)
            made = made + _tf.matmul(_tf.divide_no_nan(rest, across + _tf.zeros_like(rest)), v, transpose_b=True)
        if gv is not None:
            turn = _tf.matmul(v, gv, transpose_a=True)
            inner = inner + along * between * (turn - _transposed(turn))
            rest = gv - _tf.matmul(v, turn)
            made = made + _tf.matmul(_tf.divide_no_nan(u, across + _tf.zeros_like(u)), rest, transpose_b=True)
        return made + _tf.matmul(_tf.matmul(u, inner), v, transpose_b=True)
    return (u, s, v), grad


def _matrices(x, what):
    x = _float(x)
    if x.ndim < 2:
        raise ValueError(f"{what}: takes matrices, of rank 2 or more, received shape {x.shape}")
    return x


def _filled_up(u, columns):
    """Orthogonal columns in the place of those that are 0, and more of them."""
    q, r = qr(u, "complete")
    signs = _ops.diag_part(r, 0)
    signs = _tf.where(_tf.less(signs, 0.0), -_tf.ones_like(signs), _tf.ones_like(signs))
    known = u.shape[-1]
    zero = _tf.equal(_tf.reduce_sum(_tf.square(u), -2, True), 0.0)
    made = _tf.where(zero, q[..., :, :known] * _tf.expand_dims(signs, -2), u)
    return made if columns == known else _tf.concat([made, q[..., :, known:columns]], -1)


@_op
def svd(x, full_matrices=True, compute_uv=True):
    """U, the singular values and V', with U S V' = x."""
    given = _matrices(x, "svd")
    wide = given.shape[-1] > given.shape[-2]
    tall = _wide(_transposed(given) if wide else given)
    u, s, v = _decomposed(tall)
    s = _ops.cast(s, given.dtype)
    if not compute_uv:
        return s
    u = _filled_up(u, tall.shape[-2] if full_matrices else tall.shape[-1])
    u, v = (v, u) if wide else (u, v)
    return _ops.cast(u, given.dtype), s, _ops.cast(_transposed(v), given.dtype)


@custom_gradient
def _symmetric(x):
    # The singular values of a positive definite matrix are its eigenvalues: it is moved there and back.
    fixed = _tf.stop_gradient(x)
    shift = _tf.sqrt(_tf.reduce_sum(_tf.square(fixed), [-2, -1], True)) + 1e-30
    _, values, vectors = _thin(fixed + shift * _ops.eye(x.shape[-1], -1, x.dtype))
    values = _tf.reverse(values - _tf.squeeze(shift, [-1]), [-1])
    vectors = _tf.reverse(vectors, [-1])

    def grad(gw, gv):
        inner = _ops.diag(gw, 0) if gw is not None else _tf.zeros_like(x)
        if gv is not None:
            inner = inner + _inverse_differences(values) * _tf.matmul(vectors, gv, transpose_a=True)
        made = _tf.matmul(_tf.matmul(vectors, inner), vectors, transpose_b=True)
        return (made + _transposed(made)) / 2.0
    return (values, vectors), grad


@_op
def eigh(x):
    """The eigenvalues of symmetric matrices, smallest first, and their vectors in columns. Of a matrix the lower triangle is read, as NumPy and
    TensorFlow do."""
    given = _square(x, "eigh")
    lower = _ops.band_part(_wide(given), -1, 0)
    values, vectors = _symmetric(lower + _transposed(lower - _ops.band_part(lower, 0, 0)))
    return _ops.cast(values, given.dtype), _ops.cast(vectors, given.dtype)


def _epsilon(x):
    return 1.1920929e-07 if x.dtype is not dtypes.float64 else 2.220446049250313e-16


def _tolerance(x, s, given):
    given = _max(*x.shape[-2:]) * _epsilon(x) if given is None else given
    return _tf.reduce_max(s, -1, True) * given


@_op
def matrix_rank(x, tol=None, hermitian=False):
    """The number of singular values that are not 0."""
    x = _matrices(x, "matrix_rank")
    s = svd(x, compute_uv=False)
    limit = _tolerance(x, s, None) if tol is None else _tf.expand_dims(_tensor(tol, s.dtype), -1)
    return _tf.reduce_sum(_ops.cast(_tf.greater(s, limit), dtypes.int32), -1)


@_op
def pinv(x, rcond=None, hermitian=False):
    """The pseudoinverse."""
    x = _matrices(x, "pinv")
    u, s, v = svd(x, full_matrices=False)
    kept = _tf.greater(s, _tolerance(x, s, 15 * _max(*x.shape[-2:]) * 1.1920929e-07 if rcond is None else rcond))
    inverse = _tf.where(kept, _tf.divide_no_nan(_tf.ones_like(s), s), _tf.zeros_like(s))
    return _tf.matmul(_transposed(v) * _tf.expand_dims(inverse, -2), u, transpose_b=True)


# --- norms ---------------------------------------------------------------------------------------------------------------

def _axes_of(x, axis, what):
    axes = list(_range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    for one in axes:
        if not -x.ndim <= one < x.ndim:
            raise ValueError(f"{what}: there is no axis {one} in shape {x.shape}")
    return [one % x.ndim for one in axes]


@_op
def norm(x, ord=None, axis=None, keepdims=False):
    """The norm of vectors along one axis, or of matrices along two; without ord Euclid's, of as many as there are."""
    x = _float(x)
    axes = _axes_of(x, axis, "norm")
    if ord is None:
        return _tf.sqrt(_tf.reduce_sum(_tf.square(x), axes, keepdims))
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"norm: ord={ord!r} is a norm of matrices, and axis={axis!r} names vectors of shape {x.shape}")
        if _math.isinf(ord):
            return (max if ord > 0 else min)(_tf.abs(x), axes, keepdims)
        if ord == 0:
            return _tf.reduce_sum(_tf.cast(_tf.not_equal(x, 0.0), x.dtype), axes, keepdims)
        if ord == 2:
            return _tf.sqrt(_tf.reduce_sum(_tf.square(x), axes, keepdims))
        return _tf.pow(_tf.reduce_sum(_tf.pow(_tf.abs(x), float(ord)), axes, keepdims), 1.0 / ord)
    if len(axes) != 2 or ord not in ("fro", "nuc", 1, -1, 2, -2, _math.inf, -_math.inf):
        raise ValueError(f"norm: ord={ord!r} is no norm of matrices; axis={axis!r}, shape {x.shape}")
    if ord == "fro":
        return _tf.sqrt(_tf.reduce_sum(_tf.square(x), axes, keepdims))
    rows, columns = axes
    if ord in ("nuc", 2, -2):
        values = svd(_ops.moveaxis(x, [rows, columns], [-2, -1]), compute_uv=False)
        made = _tf.reduce_sum(values, -1) if ord == "nuc" else (max if ord > 0 else min)(values, -1)
        return _tf.reshape(made, [1 if i in axes else size for i, size in enumerate(x.shape)]) if keepdims else made
    sums = _tf.reduce_sum(_tf.abs(x), rows if _abs(ord) == 1 else columns, True)
    return (max if ord > 0 else min)(sums, axes, keepdims)


@_op
def jvp(fun, primals, tangents, has_aux=False):
    """The value of a function and how it changes where its arguments change so."""
    primals, tangents = ([_tensor(part) for part in parts] for parts in (primals, tangents))
    with GradientTape() as outer:  # the gradient of a gradient: it is linear in the weights of the first one
        with GradientTape() as inner:
            for primal in primals:
                inner.watch(primal)
            given = fun(*primals)
        value = given[0] if has_aux else given
        leaves = nest.flatten(value)
        weights = [_tf.zeros_like(leaf) for leaf in leaves]
        for weight in weights:
            outer.watch(weight)
        slopes = inner.gradient(leaves, primals, output_gradients=weights)
    changes = outer.gradient([slope for slope in slopes if slope is not None], weights,
                             output_gradients=[tangent for slope, tangent in zip(slopes, tangents) if slope is not None])
    changes = nest.pack_sequence_as(value, [_tf.zeros_like(leaf) if change is None else change for leaf, change in zip(leaves, changes)])
    return (value, changes, given[1]) if has_aux else (value, changes)


__all__ = _public(globals())
