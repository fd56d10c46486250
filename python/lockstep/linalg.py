"""tf.linalg: products and parts of matrices."""

import numpy as np

from . import _lockstep, dtypes
from .nn import l2_normalize  # noqa: F401
from .ops import einsum, eye, global_norm, matmul, matvec, norm, pad, tensordot  # noqa: F401
from .tensor import convert_to_tensor

_ops = _lockstep.ops


def _one_diagonal(what, k):
    if np.ndim(k) > 0:
        raise NotImplementedError(f"{what}: takes one diagonal, received k = {k!r}; take several one by one")
    return int(k)


def diag(diagonal, name="diag", k=0, num_rows=-1, num_cols=-1, padding_value=0, align="RIGHT_LEFT"):
    """Matrices with these on the k-th diagonal and padding_value elsewhere."""
    diagonal, k, rows, columns = convert_to_tensor(diagonal), _one_diagonal("diag", k), int(num_rows), int(num_cols)
    length = diagonal._shape[-1]
    if rows < 0 and columns < 0:
        rows = columns = length + abs(k)
    rows, columns = rows if rows >= 0 else length - min(k, 0), columns if columns >= 0 else length + max(k, 0)
    if min(rows + min(k, 0), columns - max(k, 0)) != length:
        raise ValueError(f"diag: diagonal {k} of {rows} x {columns} elements is not {length} long")

    def placed(elements):
        made = _ops.diag(elements, k)[..., :rows, :columns]
        return pad(made, [[0, 0]] * (made.ndim - 2) + [[0, rows - made._shape[-2]], [0, columns - made._shape[-1]]])

    if isinstance(padding_value, (int, float)) and padding_value == 0:
        return placed(diagonal)
    elsewhere = _ops.cast(convert_to_tensor(padding_value), diagonal.dtype)
    return _ops.where(placed(_ops.cast(_ops.ones_like(diagonal), dtypes.bool)), placed(diagonal), elsewhere)


def diag_part(input, name="diag_part", k=0, padding_value=0, align="RIGHT_LEFT"):
    """The k-th diagonals of matrices."""
    return _ops.diag_part(input, _one_diagonal("diag_part", k))


def set_diag(input, diagonal, name="set_diag", k=0, align="RIGHT_LEFT"):
    """Matrices with another k-th diagonal."""
    input, diagonal = convert_to_tensor(input), convert_to_tensor(diagonal)
    rows, columns = input._shape[-2:]
    there, new = (diag(part, k=k, num_rows=rows, num_cols=columns)
                  for part in (_ops.cast(_ops.ones_like(diagonal), dtypes.bool), diagonal))
    return _ops.where(there, new, input)


def trace(x, name=None):
    """The sum of the diagonal."""
    return _ops.trace(x)


def band_part(input, num_lower, num_upper, name=None):
    """0 but for some diagonals; negative: all of them."""
    return _ops.band_part(input, int(num_lower), int(num_upper))


def matrix_transpose(a, name="matrix_transpose", conjugate=False):
    """The last two dimensions swapped."""
    return _ops.moveaxis(a, [-1], [-2])


def adjoint(matrix, name=None):
    """The last two dimensions swapped."""
    return matrix_transpose(matrix)


def cross(a, b, name=None):
    """The cross products of vectors of three elements in the last dimension."""
    a, b = convert_to_tensor(a), convert_to_tensor(b)
    if a.shape[-1:] != (3,) or a.shape != b.shape:
        raise ValueError(f"cross: takes vectors of three elements and of one shape, received {a.shape} and {b.shape}")

    def turned(x, by):
        return _ops.roll(x, [by], [x.ndim - 1])
    return turned(a, -1) * turned(b, 1) - turned(a, 1) * turned(b, -1)


def normalize(tensor, ord="euclidean", axis=None, name=None):
    """Divided by the norm along some axes, and the norm."""
    size = norm(tensor, ord, axis, True)
    return tensor / size, size


def tensor_diag(diagonal, name=None):
    """A tensor of shape 2 * diagonal.shape with these elements where both halves of the indices are equal, else zeros."""
    diagonal = convert_to_tensor(diagonal)
    shape = list(diagonal.shape)
    return _ops.reshape(_ops.diag(_ops.reshape(diagonal, [-1]), 0), shape + shape)


def tensor_diag_part(input, name=None):
    """The elements whose indices in the first half of the dimensions equal those in the second half."""
    input = convert_to_tensor(input)
    half = list(input.shape[:input.ndim // 2])
    if input.ndim % 2 or half != list(input.shape[input.ndim // 2:]):
        raise ValueError(f"tensor_diag_part: takes a tensor whose shape is the same one twice, received {input.shape}")
    rows = int(np.prod(half, dtype=np.int64))
    return _ops.reshape(_ops.diag_part(_ops.reshape(input, [rows, rows]), 0), half)


# --- factors and solutions -----------------------------------------------------------------------------------------------

def _of_keras(name):
    """A function of keras.ops.linalg, which stands on this module's room."""
    from .keras.ops import linalg
    return getattr(linalg, name)


def _turned(matrix, adjoint):
    return matrix_transpose(matrix) if adjoint else matrix


def solve(matrix, rhs, adjoint=False, name=None):
    """x with matrix x = rhs."""
    return _of_keras("solve")(_turned(matrix, adjoint), rhs)


def triangular_solve(matrix, rhs, lower=True, adjoint=False, name=None):
    """The same of a triangle, of which the other half is not read."""
    return _of_keras("solve_triangular")(_turned(matrix, adjoint), rhs, lower=lower != adjoint)


def cholesky_solve(chol, rhs, name=None):
    """x with chol chol' x = rhs."""
    return triangular_solve(chol, triangular_solve(chol, rhs), adjoint=True)


def inv(input, adjoint=False, name=None):
    """The inverses of matrices."""
    return _of_keras("inv")(_turned(input, adjoint))


def det(input, name=None):
    """The determinants of matrices."""
    return _of_keras("det")(input)


def slogdet(input, name=None):
    """The sign of the determinant, and the logarithm of its size."""
    return _of_keras("slogdet")(input)


def logdet(matrix, name=None):
    """The logarithm of the determinant of positive definite matrices."""
    return _of_keras("logdet")(matrix)


def cholesky(input, name=None):
    """The lower triangle L with L L' = input."""
    input = convert_to_tensor(input)
    symmetric = (input + matrix_transpose(input)) / 2.0  # so is the gradient, as in TensorFlow
    return _of_keras("cholesky")(symmetric + _ops.stop_gradient(input - symmetric))


def qr(input, full_matrices=False, name=None):
    """Orthogonal matrices and upper triangles whose products these are."""
    return _of_keras("qr")(input, "complete" if full_matrices else "reduced")


def svd(tensor, full_matrices=False, compute_uv=True, name=None):
    """Singular values s, and u and v with tensor = u diag(s) v'."""
    made = _of_keras("svd")(tensor, full_matrices, compute_uv)
    if not compute_uv:
        return made
    u, s, v_transposed = made
    return s, u, matrix_transpose(v_transposed)


def eigh(tensor, name=None):
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return _of_keras("eigh")(tensor)


def eigvalsh(tensor, name=None):
    """Eigenvalues of symmetric matrices."""
    return eigh(tensor)[0]


def pinv(a, rcond=None, validate_args=False, name=None):
    """Pseudo-inverses."""
    return _of_keras("pinv")(a, rcond)


def lstsq(matrix, rhs, l2_regularizer=0.0, fast=True, name=None):
    """x with the least |matrix x - rhs|."""
    if l2_regularizer:
        raise NotImplementedError("lstsq: there is no l2_regularizer")
    return _of_keras("lstsq")(matrix, rhs)


def matrix_rank(a, tol=None, validate_args=False, name=None):
    """How many singular values are not 0."""
    return _of_keras("matrix_rank")(a, tol)
