"""tf.debugging: what must hold of tensors, and looking at what a program computes while it runs.

Of values that are known an assertion fails at once; in a compiled function it is part of the program. Shapes and dtypes are always known.
"""

import numpy as np

from . import _lockstep, dtypes, errors
from .tensor import TensorShape, convert_to_tensor, is_tensor

_ops = _lockstep.ops
enable_check_numerics, disable_check_numerics = _ops.enable_check_numerics, _ops.disable_check_numerics
set_log_device_placement, get_log_device_placement = _lockstep.config.set_log_device_placement, _lockstep.config.get_log_device_placement


def enable_traceback_filtering():
    """Errors name the line of the program; the lines of this package are left out where they can be."""
    _keras_config().enable_traceback_filtering()


def disable_traceback_filtering():
    """The lines of this package are shown, too."""
    _keras_config().disable_traceback_filtering()


def is_traceback_filtering_enabled():
    """Which of the two it is."""
    return _keras_config().is_traceback_filtering_enabled()


def _keras_config():
    from .keras import backend  # which stands on this module
    return backend


def assert_proper_iterable(values):
    """An error unless it is a list or something else to go through, and no tensor or text."""
    if is_tensor(values) or isinstance(values, (str, bytes, np.ndarray)) or not hasattr(values, "__iter__"):
        raise TypeError(f"assert_proper_iterable: takes a list or the like of tensors, received {type(values).__name__}")


def check_numerics(tensor, message, name=None):
    """The tensor, if all of its elements are finite."""
    return _ops.check_numerics(tensor, message)


def assert_all_finite(x, message, name=None):
    """The tensor, if all of its elements are finite."""
    return _ops.check_numerics(x, message)


def _hold(condition, what, message, *values):
    """An error unless all of the condition is true."""
    text = f"{message} " if message else ""
    if condition.symbolic:
        _ops.assert_true(condition, f"{text}{what}")
    elif not bool(np.all(np.asarray(condition))):
        shown = ", ".join(np.array2string(np.asarray(value), threshold=6, separator=", ") for value in values)
        raise errors.InvalidArgumentError(f"{text}{what} does not hold of {shown}")


def Assert(condition, data, summarize=None, name=None):  # noqa: N802: TensorFlow's name
    """An error with this data unless the condition is true."""
    _hold(convert_to_tensor(condition), "the condition", " ".join(str(part.numpy() if is_tensor(part) and not part.symbolic else part) for part in data),
          *(part for part in data if is_tensor(part) and not part.symbolic))


def _of_two(name, compare, sign):
    def check(x, y, message=None, summarize=None, name=None):
        x = convert_to_tensor(x)
        y = convert_to_tensor(y, None if is_tensor(y) else x.dtype)
        _hold(compare(x, y), f"x {sign} y", message, x, y)
    check.__name__, check.__doc__ = name, f"An error unless x {sign} y in every place."
    return check


assert_equal = _of_two("assert_equal", _ops.equal, "==")
assert_none_equal = _of_two("assert_none_equal", _ops.not_equal, "!=")
assert_less = _of_two("assert_less", _ops.less, "<")
assert_less_equal = _of_two("assert_less_equal", _ops.less_equal, "<=")
assert_greater = _of_two("assert_greater", _ops.greater, ">")
assert_greater_equal = _of_two("assert_greater_equal", _ops.greater_equal, ">=")


def _of_one(name, compare, sign):
    def check(x, message=None, summarize=None, name=None):
        x = convert_to_tensor(x)
        _hold(compare(x, 0), f"x {sign} 0", message, x)
    check.__name__, check.__doc__ = name, f"An error unless x {sign} 0 in every place."
    return check


assert_positive, assert_negative = _of_one("assert_positive", _ops.greater, ">"), _of_one("assert_negative", _ops.less, "<")
assert_non_negative = _of_one("assert_non_negative", _ops.greater_equal, ">=")
assert_non_positive = _of_one("assert_non_positive", _ops.less_equal, "<=")


def assert_near(x, y, rtol=None, atol=None, message=None, summarize=None, name=None):
    """An error unless |x - y| <= atol + rtol |y| in every place."""
    x = convert_to_tensor(x)
    y = convert_to_tensor(y, None if is_tensor(y) else x.dtype)
    smallest = {"float64": 2.2e-16, "float32": 1.2e-7, "bfloat16": 0.0078, "float16": 9.8e-4}[x.dtype.name]
    rtol, atol = (10 * smallest if value is None else float(value) for value in (rtol, atol))
    _hold(_ops.less_equal(_ops.abs(x - y), atol + rtol * _ops.abs(y)), f"|x - y| <= {atol} + {rtol} |y|", message, x, y)


# --- shapes and dtypes ---------------------------------------------------------------------------------------------------

def _unless(fits, text, message):
    if not fits:
        raise ValueError(f"{message} {text}" if message else text)


def assert_rank(x, rank, message=None, name=None):
    """An error unless x has so many dimensions."""
    x = convert_to_tensor(x)
    _unless(x.ndim == int(rank), f"a tensor of rank {int(rank)} was expected, received shape {x.shape}", message)


def assert_rank_at_least(x, rank, message=None, name=None):
    """An error unless x has so many dimensions, or more."""
    x = convert_to_tensor(x)
    _unless(x.ndim >= int(rank), f"a tensor of rank {int(rank)} or more was expected, received shape {x.shape}", message)


def assert_rank_in(x, ranks, message=None, name=None):
    """An error unless the number of dimensions is one of these."""
    x = convert_to_tensor(x)
    _unless(x.ndim in [int(rank) for rank in ranks], f"a tensor of a rank in {list(ranks)} was expected, received shape {x.shape}", message)


def assert_scalar(tensor, message=None, name=None):
    """The tensor, if it has no dimensions."""
    tensor = convert_to_tensor(tensor)
    _unless(tensor.ndim == 0, f"a scalar was expected, received shape {tensor.shape}", message)
    return tensor


def assert_shapes(shapes, data=None, summarize=None, message=None, name=None):
    """An error unless tensors have these shapes: pairs or a dictionary of them. A letter stands for one size in all shapes, None for any."""
    sizes = {}
    for tensor, shape in (shapes.items() if isinstance(shapes, dict) else shapes):
        found = tuple(convert_to_tensor(tensor.deref() if hasattr(tensor, "deref") else tensor).shape)
        wanted = tuple(shape) if isinstance(shape, (tuple, list, str, TensorShape)) else (shape,)
        _unless(len(found) == len(wanted), f"a tensor of shape {wanted} was expected, received {found}", message)
        for size, symbol in zip(found, wanted):
            known = sizes.setdefault(symbol, size) if isinstance(symbol, str) else size if symbol is None else int(symbol)
            _unless(size == known, f"{symbol!r} of shape {wanted} is {known}, received {found}", message)


def assert_type(tensor, tf_type, message=None, name=None):
    """An error unless it is of this dtype."""
    found, wanted = convert_to_tensor(tensor).dtype, dtypes.as_dtype(tf_type)
    if found is not wanted:
        raise TypeError(f"{message or 'assert_type:'} a tensor of {wanted.name} was expected, received {found.name}")


def assert_integer(x, message=None, name=None):
    """An error unless it is of whole numbers."""
    found = convert_to_tensor(x).dtype
    if not found.is_integer:
        raise TypeError(f"{message or 'assert_integer:'} a tensor of integers was expected, received {found.name}")


def assert_same_float_dtype(tensors=None, dtype=None):
    """The dtype of floating point numbers that all of these have."""
    kinds = {convert_to_tensor(tensor).dtype for tensor in tensors or ()} | ({dtypes.as_dtype(dtype)} if dtype is not None else set())
    kinds = kinds or {dtypes.float32}
    _unless(len(kinds) == 1 and next(iter(kinds)).is_floating, f"one dtype of floating point numbers was expected, received "
            f"{', '.join(sorted(kind.name for kind in kinds))}", None)
    return kinds.pop()


def is_numeric_tensor(tensor):
    """Whether it is a tensor of numbers."""
    return is_tensor(tensor) and not tensor.dtype.is_bool
