"""Lockstep: TensorFlow's and Keras' surface over an engine that trains on every device of a machine, in lockstep.

    import lockstep as tf

``python -m lockstep script.py`` runs a script that says ``import tensorflow as tf`` on it, unmodified.
"""

import enum as _enum

from . import dtypes, errors, nest, tensor  # noqa: F401: tensor introduces the package to the engine
from . import _lockstep
from ._lockstep import Tensor, Variable
from ._module import Module
from ._tensor_array import TensorArray
from .dtypes import DType, as_dtype, bfloat16, bool, double, float16, float32, float64, half, int32, int64, string, uint8  # noqa: A004
from .function import (GradientTape, UnconnectedGradients, case, cond, custom_gradient, foldl, foldr, function, grad_pass_through, gradients,
                       map_fn, recompute_grad, scan, switch_case, vectorized_map, while_loop)
from .ops import *  # noqa: F401,F403
from .ops import (abs, pow, print, range, round, slice)  # noqa: A004,F401
from .tensor import IndexedSlices, TensorShape, TensorSpec, constant, is_tensor, tensor_or_texts as convert_to_tensor
from . import audio, bitwise, config, data, debugging, distribute, image, io, linalg, lookup, math, nn, random, signal, strings, summary, train  # noqa: F401
from .config import device
from . import keras  # noqa: F401
from . import _names
from ._compat import compat
from .keras._operations import between_layers as _between_layers

# Values of models that are being put together may be given to functions of TensorFlow's, too.
for _module in (bitwise, image, linalg, math, nn, signal):
    vars(_module).update(_between_layers(vars(_module), _module.__name__))
globals().update(_between_layers(globals(), "lockstep.tf"))

__version__ = "0.1.0"


class version:
    """The version of TensorFlow whose names these are. Scripts that run by `python -m lockstep` see it as tf.__version__."""
    VERSION = "2.18.0+lockstep." + __version__
    GIT_VERSION, COMPILER_VERSION = "lockstep", ""


newaxis = None
as_string, scalar_mul = strings.as_string, math.scalar_mul
Assert = debugging.Assert
assert_equal, assert_less, assert_greater, assert_rank = (debugging.assert_equal, debugging.assert_less, debugging.assert_greater,
                                                          debugging.assert_rank)
dtypes.cast, dtypes.saturate_cast = cast, saturate_cast  # noqa: F405
initializers, losses, metrics, optimizers = keras.initializers, keras.losses, keras.metrics, keras.optimizers
zeros_initializer, ones_initializer = keras.initializers.Zeros, keras.initializers.Ones
random_normal_initializer, random_uniform_initializer = keras.initializers.RandomNormal, keras.initializers.RandomUniform
constant_initializer = keras.initializers.Constant


def executing_eagerly():
    """Whether ops compute at once: outside of functions that are being traced."""
    return not zeros([]).symbolic  # noqa: F405


class _Testing(_names.Namespace):
    def __getattr__(cls, name):
        if name in ("TestCase", "main"):
            from . import _testing  # which imports unittest, which nothing else needs
            return getattr(_testing, name)
        return super().__getattr__(name)


class test(metaclass=_Testing):
    """What this machine and this build can do, and tests of tensors: TestCase and main."""

    is_built_with_gpu_support = staticmethod(_lockstep.config.is_built_with_cuda)

    @staticmethod
    def is_built_with_rocm():
        return False

    @staticmethod
    def is_built_with_xla():
        return False

    @staticmethod
    def is_cpu_target_available(target):
        import platform
        return target == ("arm64" if platform.machine() == "aarch64" else "x86")

    @staticmethod
    def is_gpu_available(cuda_only=False, min_cuda_compute_capability=None):
        return len(config.list_physical_devices("GPU")) > 0

    @staticmethod
    def is_built_with_cuda():
        return _lockstep.config.is_built_with_cuda()

    @staticmethod
    def gpu_device_name():
        names = [device.name for device in config.list_logical_devices("GPU")]
        return names[0] if names else ""


class autograph(metaclass=_names.Namespace):
    """Python's control flow is not rewritten: tf.cond and tf.while_loop are part of compiled programs."""

    class experimental:
        @staticmethod
        def do_not_convert(func=None):
            return func if func is not None else (lambda f: f)

    @staticmethod
    def set_verbosity(level, alsologtostdout=False):
        pass


class name_scope:
    """Names follow from layers: what is made inside has the name that it has outside. ``with`` gives the name."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return f"{self.name}/"

    def __exit__(self, *_):
        pass


class experimental(metaclass=_names.Namespace):
    """TensorFlow's experiments."""

    class dlpack:
        """Tensors of other libraries, in place where that is possible."""

        @staticmethod
        def to_dlpack(tf_tensor):
            return convert_to_tensor(tf_tensor).__dlpack__()

        @staticmethod
        def from_dlpack(dlcapsule):
            """The elements where they are: what the other library writes there afterwards, the tensor shows. Of a capsule or of an object
            that gives one; what cannot be read in place (on a GPU, transposed, between two elements) is refused, not copied."""
            try:
                return _lockstep.shared_array(dlcapsule)
            except TypeError:
                raise errors.InvalidArgumentError(f"from_dlpack: takes elements in host memory that lie in row-major order and are aligned, received "
                                                  f"{dlcapsule!r}; have the other library copy them to the CPU, contiguous") from None

    class numpy(metaclass=_names.Namespace):
        _instead = "keras.ops has NumPy's functions, for tensors and under tapes"

        @staticmethod
        def experimental_enable_numpy_behavior(*_, **__):
            pass


class control_dependencies:
    """Has no effect: ops run in the order in which the program calls them."""

    def __init__(self, control_inputs):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def inside_function():
    """Whether a function is being traced."""
    return not executing_eagerly()


def is_symbolic_tensor(tensor):
    """Whether it is a value of a function that is being traced, or of a model that is being put together."""
    return is_tensor(tensor) and tensor.symbolic or isinstance(tensor, _lockstep.KerasTensor)


def get_static_value(tensor, partial=False):
    """The value as an array; None where it is not known while a function is traced."""
    if isinstance(tensor, (int, float)) or not hasattr(tensor, "__array__"):
        return tensor
    return None if is_symbolic_tensor(tensor) else convert_to_tensor(tensor).numpy()


def tuple(tensors, control_inputs=None, name=None):  # noqa: A001: TensorFlow's name
    """All of them."""
    return [None if part is None else convert_to_tensor(part) for part in tensors]


class VariableSynchronization(_enum.Enum):
    """When replicas of a variable are synchronized; strategies decide this themselves."""
    AUTO, NONE, ON_WRITE, ON_READ = 0, 1, 2, 3  # range() is that of tensors here


class VariableAggregation(_enum.Enum):
    """How updates of replicas are aggregated; strategies decide this themselves."""
    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = 0, 1, 2, 3


def no_op(name=None):
    """Nothing."""


def group(*inputs, **kwargs):
    """What is done is done."""


def report():
    """Where the time of what has taken most of it went. Lockstep's own."""
    return _lockstep.report()[1]


def get_logger():
    import logging
    return logging.getLogger("lockstep")


def __getattr__(name):
    raise _names.missing("tensorflow", name, globals())


for _module in (audio, bitwise, config, data, debugging, distribute, errors, image, io, linalg, lookup, math, nn, random, signal, strings, summary,
                train):
    _names.explain(_module)
