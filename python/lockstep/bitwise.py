"""tf.bitwise: the bits of integers."""


def _of_keras(name):
    """A function of keras.ops, which stands on this module's room."""
    from .keras import ops
    return getattr(ops, f"bitwise_{name}")


def bitwise_and(x, y, name=None):
    """The bitwise and of integers."""
    return _of_keras("and")(x, y)


def bitwise_or(x, y, name=None):
    """The bitwise or of integers."""
    return _of_keras("or")(x, y)


def bitwise_xor(x, y, name=None):
    """The bitwise exclusive or of integers."""
    return _of_keras("xor")(x, y)


def invert(x, name=None):
    """The bitwise complement of integers."""
    return _of_keras("invert")(x)


def left_shift(x, y, name=None):
    """x times a power of two."""
    return _of_keras("left_shift")(x, y)


def right_shift(x, y, name=None):
    """x divided by a power of two, rounded down."""
    return _of_keras("right_shift")(x, y)
