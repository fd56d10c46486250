"""tf.compat.v1.logging: the logger of Python that is called lockstep."""

import logging as _python

from . import _names

_logger = _python.getLogger("lockstep")


class logging(metaclass=_names.Namespace):
    """Verbosity and functions of the logger."""

    DEBUG, INFO, WARN, ERROR, FATAL = _python.DEBUG, _python.INFO, _python.WARNING, _python.ERROR, _python.CRITICAL
    debug, info, warning, warn, error, fatal, log = (_logger.debug, _logger.info, _logger.warning, _logger.warning, _logger.error, _logger.critical,
                                                     _logger.log)
    set_verbosity, get_verbosity = _logger.setLevel, _logger.getEffectiveLevel
