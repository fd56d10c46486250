"""keras.utils."""

import numpy as np

from .. import _lockstep
from ..tensor import convert_to_tensor, is_tensor
from .backend import is_keras_tensor, standardize_dtype  # noqa: F401
from .datasets import _arrays  # noqa: F401
from .saving import (CustomObjectScope, custom_object_scope, deserialize_keras_object, get_custom_objects,  # noqa: F401
                     get_registered_name, get_registered_object, register_keras_serializable, serialize_keras_object)


def to_categorical(x, num_classes=None):
    """One-hot vectors of class numbers."""
    made = _lockstep.to_categorical(convert_to_tensor(np.asarray(x)), num_classes or 0)
    return made if is_tensor(x) else made.numpy()


def normalize(x, axis=-1, order=2):
    """Divided by the norm along an axis."""
    return _lockstep.normalize(convert_to_tensor(np.asarray(x, np.float32)), axis, order).numpy()


def set_random_seed(seed):
    """Seeds Python, NumPy and the engine."""
    import random
    random.seed(seed)
    np.random.seed(seed)
    _lockstep.ops.set_seed(int(seed))


def pad_sequences(sequences, maxlen=None, dtype="int32", padding="pre", truncating="pre", value=0.0):
    """Sequences of one length."""
    if dtype != "int32" or isinstance(value, float) and value != int(value):
        raise NotImplementedError("pad_sequences: sequences are of int32")
    return _lockstep.pad_sequences([[int(number) for number in sequence] for sequence in sequences], maxlen or 0, padding,
                                   truncating, int(value)).numpy()


class PyDataset:
    """Batches by number: define __len__ and __getitem__."""

    def __init__(self, workers=1, use_multiprocessing=False, max_queue_size=10):
        pass

    def on_epoch_end(self):
        pass


Sequence = PyDataset


class Progbar:
    """A line that tells how far a loop is."""

    def __init__(self, target, width=20, verbose=1, interval=0.05, stateful_metrics=None, unit_name="step"):
        self.target, self.verbose, self._seen = target, verbose, 0

    def update(self, current, values=None, finalize=None):
        self._seen = current
        if self.verbose and (finalize or current == self.target):
            shown = " - ".join(f"{name}: {float(value):.4f}" for name, value in values or ())
            print(f"{current}/{self.target} {shown}")

    def add(self, n, values=None):
        self.update(self._seen + n, values)


def plot_model(*_, **__):
    raise NotImplementedError("plot_model: model.summary() prints the layers")


def get_file(fname=None, origin=None, **_):
    raise NotImplementedError(f"get_file: nothing is downloaded for scripts; fetch {origin} yourself and open the file")
