"""tf.compat: strings and bytes of Python, and the few names of TensorFlow 1 that current programs still use."""

import numbers
import os

import numpy as np

from . import _lockstep, _names


class _First(_names.Namespace):
    def __getattr__(cls, name):
        if name == "logging":
            from . import _logging  # which imports logging, which nothing else needs
            return _logging.logging
        return super().__getattr__(name)


class _V1(metaclass=_First):
    """Names that programs call when they start; there is no TensorFlow 1."""

    @staticmethod
    def set_random_seed(seed):
        _lockstep.ops.set_seed(int(seed))

    @staticmethod
    def _already_so(*_, **__):
        """Has no effect: it is always enabled."""

    enable_eager_execution = enable_v2_behavior = enable_resource_variables = enable_v2_tensorshape = enable_control_flow_v2 = _already_so

    @staticmethod
    def executing_eagerly_outside_functions():
        return True


class compat(metaclass=_names.Namespace):
    """Strings and bytes of Python."""

    bytes_or_text_types = (bytes, str)
    integral_types, real_types, complex_types = (numbers.Integral, np.integer), (numbers.Real, np.integer, np.floating), (numbers.Complex, np.number)
    v1 = _V1

    @staticmethod
    def as_bytes(bytes_or_text, encoding="utf-8"):
        return bytes_or_text.encode(encoding) if isinstance(bytes_or_text, str) else bytes(bytes_or_text)

    @staticmethod
    def as_text(bytes_or_text, encoding="utf-8"):
        return bytes_or_text if isinstance(bytes_or_text, str) else bytes_or_text.decode(encoding)

    as_str = as_text

    @staticmethod
    def as_str_any(value, encoding="utf-8"):
        return compat.as_text(value, encoding) if isinstance(value, bytes) else str(value)

    @staticmethod
    def path_to_str(path):
        return os.fspath(path) if hasattr(path, "__fspath__") else path

    @staticmethod
    def dimension_value(dimension):
        return dimension

    @staticmethod
    def dimension_at_index(shape, index):
        return shape[index]

    @staticmethod
    def forward_compatible(year, month, day):
        return True
