"""tf.summary: event files for TensorBoard."""

import os

from . import _lockstep, _names

_summary = _lockstep.summary
_step = [None]


class _Writer:
    """Where events go."""

    def __init__(self, folder):
        self._writer = _summary.EventWriter(folder)

    def as_default(self, step=None):
        """``with writer.as_default():`` events of this thread go here."""
        return _Default(self._writer.as_default(), step)

    def flush(self):
        self._writer.flush()

    close = flush


class _Default:
    def __init__(self, context, step):
        self._context, self._given, self._before = context, step, None

    def __enter__(self):
        self._context.enter()
        self._before = _step[0]
        if self._given is not None:
            _step[0] = self._given

    def __exit__(self, *_):
        _step[0] = self._before
        self._context.exit()


def create_file_writer(logdir, max_queue=None, flush_millis=None, filename_suffix=None, name=None):
    """Event files in a folder."""
    return _Writer(os.fspath(logdir))


def _of(step):
    step = _step[0] if step is None else step
    if step is None:
        raise ValueError("which step is it? Give step=, or tf.summary.experimental.set_step()")
    return int(step)


def scalar(name, data, step=None, description=None):
    """A number of a step."""
    _summary.scalar(name, data, _of(step))
    return True


def histogram(name, data, step=None, buckets=30, description=None):
    """How numbers are spread."""
    _summary.histogram(name, data, _of(step), int(buckets or 30))
    return True


def flush(writer=None, name=None):
    """Writes what is waiting."""
    _summary.flush() if writer is None else writer.flush()


class experimental(metaclass=_names.Namespace):
    @staticmethod
    def set_step(step):
        _step[0] = step

    @staticmethod
    def get_step():
        return _step[0]
