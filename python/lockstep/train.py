"""tf.train: the state of a training run on disk, complete or not there at all."""

import os

from . import _lockstep, _module
from ._lockstep import Variable


def _trackable(value):
    """What the engine saves: a variable, a handle to a layer or an optimizer, or a function that lists the parts."""
    if isinstance(value, Variable):
        return value
    handle = getattr(value, "_handle", None)
    if isinstance(handle, (_lockstep.Layer, _lockstep.Optimizer)):
        return handle
    parts = _module.named_parts(value)
    if parts is None:
        raise TypeError(f"a checkpoint holds models, layers, optimizers, variables, tf.Module and lists or dictionaries of these, "
                        f"received {value!r}")
    return lambda: [(name, _trackable(part)) for name, part in _module.named_parts(value)]


class Checkpoint:
    """Named objects whose state is saved and put back: ``Checkpoint(optimizer=optimizer, model=model)``."""

    def __init__(self, root=None, **kwargs):
        if root is not None:
            kwargs = {"root": root, **kwargs}
        self.__dict__.update(kwargs)
        self._objects = kwargs
        self._handle = _lockstep.Checkpoint([(name, _trackable(value)) for name, value in kwargs.items()])

    def save(self, file_prefix, options=None):
        """Saves as PREFIX-1, PREFIX-2, ...; returns the path. It is written while the program goes on."""
        return self._handle.save(os.fspath(file_prefix))

    def write(self, file_prefix, options=None):
        """Saves under exactly this name."""
        return self._handle.write(os.fspath(file_prefix))

    def restore(self, save_path, options=None):
        """Puts the values back; None does nothing."""
        return self._handle.restore(None if save_path is None else os.fspath(save_path))

    read = restore

    def wait(self):
        """Until the last save is on the disk. Lockstep's own."""
        self._handle.wait()

    @property
    def save_counter(self):
        return self._handle.save_counter


class CheckpointManager:
    """Saves to one folder and keeps the last few."""

    def __init__(self, checkpoint, directory, max_to_keep, keep_checkpoint_every_n_hours=None, checkpoint_name="ckpt",
                 step_counter=None, checkpoint_interval=None, init_fn=None):
        counter = None if step_counter is None else (lambda: int(step_counter))
        self.checkpoint = checkpoint
        self._handle = _lockstep.CheckpointManager(checkpoint._handle, os.fspath(directory), max_to_keep or 0,
                                                   float(keep_checkpoint_every_n_hours or 0), checkpoint_name,
                                                   checkpoint_interval or 0, counter, init_fn)

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        """The path, or None where the interval has not passed."""
        return self._handle.save()

    def restore_or_initialize(self):
        """The checkpoint that was restored, or None."""
        return self._handle.restore_or_initialize()

    @property
    def latest_checkpoint(self):
        self._handle.wait()
        return self._handle.latest_checkpoint

    @property
    def checkpoints(self):
        self._handle.wait()
        return self._handle.checkpoints

    @property
    def directory(self):
        return self._handle.directory


def latest_checkpoint(checkpoint_dir, latest_filename=None):
    """The path of the latest checkpoint of a folder; None where there is none."""
    return _lockstep.latest_checkpoint(os.fspath(checkpoint_dir))


def _named_like_keras(name):
    def refused(*_, **__):
        raise NotImplementedError(f"tf.train.{name} is TensorFlow 1's: use tf.keras.optimizers")
    return refused
