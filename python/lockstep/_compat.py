"""tf.compat: texts and bytes of Python, and the few names of TensorFlow 1 that programs of today still say."""

import logging as _python
import numbers
import os

import numpy as np

from . import _lockstep, _names


class _Logging(metaclass=_names.Namespace):
    """The logger of Python that is called lockstep."""

    DEBUG, INFO, WARN, ERROR, FATAL = _python.DEBUG, _python.INFO, _python.WARNING, _python.ERROR, _python.CRITICAL
    _logger = _python.getLogger("lockstep")
    debug, info, warning, warn, error, fatal, log = (_logger.debug, _logger.info, _logger.warning, _logger.warning, _logger.error, _logger.critical,
                                                     _logger.log)
    set_verbosity, get_verbosity = _logger.setLevel, _logger.getEffectiveLevel


class _V1(metaclass=_names.Namespace):
    """What programs say at their beginning; there is no TensorFlow 1."""

    logging = _Logging

    @staticmethod
    def set_random_seed(seed):
        _lockstep.ops.set_seed(int(seed))

    @staticmethod
    def _already_so(*_, **__):
        """It is so."""

    enable_eager_execution = enable_v2_behavior = enable_resource_variables = enable_v2_tensorshape = enable_control_flow_v2 = _already_so

    @staticmethod
    def executing_eagerly_outside_functions():
        return True


class compat(metaclass=_names.Namespace):
    """Texts and bytes of Python."""

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
