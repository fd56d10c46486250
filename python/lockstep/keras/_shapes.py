"""Shapes as arguments: one, or several in lists and dictionaries."""

import numpy as np

from ..ops import _sizes
from ..tensor import TensorShape


def shapes_in(values):
    """The shapes among arguments of build(), as the engine takes them."""
    shapes = [value for value in values if isinstance(value, (list, tuple, dict))]
    return [_sizes(shape) for given in shapes for shape in shape_leaves(given)]


def plain_shape(shape):
    return [plain_shape(part) for part in shape] if isinstance(shape, (list, tuple)) else shape


def shape_leaves(shape):
    """One shape, or several in a list or a dictionary."""
    if isinstance(shape, dict):
        return [leaf for part in shape.values() for leaf in shape_leaves(part)]
    if isinstance(shape, TensorShape) or all(size is None or isinstance(size, (int, np.integer)) for size in shape):
        return [shape]
    return [leaf for part in shape for leaf in shape_leaves(part)]
