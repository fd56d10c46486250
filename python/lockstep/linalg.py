"""tf.linalg: products and parts of matrices."""

from . import _lockstep
from .nn import l2_normalize  # noqa: F401
from .ops import einsum, eye, global_norm, matmul, matvec, norm, tensordot  # noqa: F401

_ops = _lockstep.ops


def diag(diagonal, name="diag", k=0, num_rows=-1, num_cols=-1, padding_value=0, align="RIGHT_LEFT"):
    """Matrices with these on the diagonal."""
    return _ops.diag(diagonal, k)


def diag_part(input, name="diag_part", k=0, padding_value=0, align="RIGHT_LEFT"):
    """The diagonals of matrices."""
    return _ops.diag_part(input, k)


def set_diag(input, diagonal, name="set_diag", k=0, align="RIGHT_LEFT"):
    """Matrices with another diagonal."""
    return input - _ops.diag(_ops.diag_part(input, 0), 0) + _ops.diag(diagonal, 0)


def trace(x, name=None):
    """The sum of the diagonal."""
    return _ops.trace(x)


def band_part(input, num_lower, num_upper, name=None):
    """0 but for some diagonals; negative: all of them."""
    return _ops.band_part(input, int(num_lower), int(num_upper))


def matrix_transpose(a, name="matrix_transpose", conjugate=False):
    """The last two dimensions swapped."""
    return _ops.moveaxis(a, [-1], [-2])
