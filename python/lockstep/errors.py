"""What is raised, under TensorFlow's names.

Every error of the engine is an ``OpError``, which is a ``RuntimeError``; the kinds are Python's own exceptions as well, so
that ``except ValueError`` catches what does not fit. Messages name the line of the program that they are about.
"""

from . import _lockstep


class OpError(RuntimeError):
    """What the engine refuses to do."""

    @property
    def message(self):
        return str(self)


class InvalidArgumentError(OpError, ValueError):
    """Values, shapes, dtypes or devices that do not fit."""


class NoTensorError(ValueError, TypeError):
    """What no tensor can be made of: TensorFlow raises one or the other."""


class OutOfBoundsError(InvalidArgumentError, IndexError):
    """A place that a tensor does not have."""

    __str__ = RuntimeError.__str__


class ResourceExhaustedError(OpError, MemoryError):
    """Too little memory."""


class NotFoundError(OpError, LookupError, ValueError):
    """A name, file or registration that does not exist."""

    __str__ = RuntimeError.__str__


class FailedPreconditionError(OpError, ValueError):
    """The object is not in a state in which this may be called."""


class AssertionFailedError(FailedPreconditionError, InvalidArgumentError):
    """What a program asserts does not hold while it runs."""


class UnimplementedError(OpError, NotImplementedError):
    """A legal request that this build or device cannot serve."""


class DataLossError(OpError, OSError):
    """Reading or writing a file or socket failed."""

    __str__ = RuntimeError.__str__


IOError = DataLossError


class UnavailableError(OpError):
    """Another worker of the run is lost. Started again, together with the others, the program may go on."""


class InternalError(OpError):
    """A broken promise of the engine: always a bug."""


class OutOfRangeError(OpError):
    """The end of a dataset. A loop over the dataset ends by itself; ``next()`` raises StopIteration."""


_BY_CODE = {
    "invalid_argument": InvalidArgumentError,
    "shape_mismatch": InvalidArgumentError,
    "dtype_mismatch": InvalidArgumentError,
    "device_mismatch": InvalidArgumentError,
    "out_of_memory": ResourceExhaustedError,
    "not_found": NotFoundError,
    "failed_precondition": FailedPreconditionError,
    "unsupported": UnimplementedError,
    "io": DataLossError,
    "unavailable": UnavailableError,
    "internal": InternalError,
}


def _made(code, message):
    message = _lockstep.as_python_writes(message)
    error = (AssertionFailedError if "\n  in assert " in message else _BY_CODE[code])(message)
    error.code = code
    return error
