"""What is raised, under TensorFlow's names.

Every error of the engine is an ``OpError``, which is a ``RuntimeError``; the kinds are Python's own exceptions as well, so
that ``except ValueError`` catches what does not fit. Messages name the line of the program that they are about.
"""

from . import _lockstep


OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED = range(9)
FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = range(9, 17)


class OpError(RuntimeError):
    """What the engine refuses to do. A program that raises one itself gives a message, or a node, an op and a message as TensorFlow takes them."""

    error_code, node_def, op = UNKNOWN, None, None

    def __init__(self, *args):
        super().__init__(*(args[2:3] if len(args) > 2 else args))

    @property
    def message(self):
        return str(self)


class InvalidArgumentError(OpError, ValueError):
    """Values, shapes, dtypes or devices that do not fit."""

    error_code = INVALID_ARGUMENT


class NoTensorError(ValueError, TypeError):
    """What no tensor can be made of: TensorFlow raises one or the other."""


class OutOfBoundsError(InvalidArgumentError, IndexError):
    """A place that a tensor does not have."""

    __str__ = RuntimeError.__str__


class ResourceExhaustedError(OpError, MemoryError):
    """Too little memory."""

    error_code = RESOURCE_EXHAUSTED


class NotFoundError(OpError, LookupError, ValueError):
    """A name, file or registration that does not exist."""

    error_code = NOT_FOUND

    __str__ = RuntimeError.__str__


class FailedPreconditionError(OpError, ValueError):
    """The object is not in a state in which this may be called."""

    error_code = FAILED_PRECONDITION


class AssertionFailedError(FailedPreconditionError, InvalidArgumentError):
    """What a program asserts does not hold while it runs."""


class UnimplementedError(OpError, NotImplementedError):
    """A legal request that this build or device cannot serve."""

    error_code = UNIMPLEMENTED


class DataLossError(OpError, OSError):
    """Reading or writing a file or socket failed."""

    error_code = DATA_LOSS

    __str__ = RuntimeError.__str__


IOError = DataLossError


class UnavailableError(OpError):
    """Another worker of the run is lost. Started again, together with the others, the program may go on."""

    error_code = UNAVAILABLE


class InternalError(OpError):
    """A broken promise of the engine: always a bug."""

    error_code = INTERNAL


class OutOfRangeError(OpError):
    """The end of a dataset. A loop over the dataset ends by itself; ``next()`` raises StopIteration."""

    error_code = OUT_OF_RANGE


def _never(name, code):
    """An exception that programs catch, and that nothing here raises."""
    return type(name, (OpError,), {"__doc__": "Nothing here raises it.", "__module__": __name__, "error_code": code})


AbortedError, AlreadyExistsError = _never("AbortedError", ABORTED), _never("AlreadyExistsError", ALREADY_EXISTS)
CancelledError, DeadlineExceededError = _never("CancelledError", CANCELLED), _never("DeadlineExceededError", DEADLINE_EXCEEDED)
PermissionDeniedError, UnauthenticatedError = _never("PermissionDeniedError", PERMISSION_DENIED), _never("UnauthenticatedError", UNAUTHENTICATED)
UnknownError = _never("UnknownError", UNKNOWN)


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
