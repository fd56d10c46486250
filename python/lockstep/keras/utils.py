"""keras.utils."""

import time
import warnings

import numpy as np

from .. import _lockstep
from ..tensor import convert_to_tensor, is_tensor
from . import bounding_boxes  # noqa: F401
from ._data_utils import (array_to_img, audio_dataset_from_directory, image_dataset_from_directory, img_to_array, load_img, save_img, split_dataset,  # noqa: F401
                          text_dataset_from_directory, timeseries_dataset_from_array)
from ._downloads import get_file  # noqa: F401
from .backend import (clear_session, disable_interactive_logging, enable_interactive_logging, is_interactive_logging_enabled,  # noqa: F401
                      is_keras_tensor, standardize_dtype)
from .datasets import _arrays  # noqa: F401
from ._feature_space import FeatureSpace  # noqa: F401
from .saving import (CustomObjectScope, custom_object_scope, deserialize_keras_object, get_custom_objects,  # noqa: F401
                     get_registered_name, get_registered_object, register_keras_serializable, serialize_keras_object)


def to_categorical(x, num_classes=None):
    """One-hot vectors of class numbers."""
    made = _lockstep.to_categorical(convert_to_tensor(np.asarray(x)), num_classes or 0)
    return made if is_tensor(x) else made.numpy()


def normalize(x, axis=-1, order=2):
    """Divided by the norm along an axis."""
    made = _lockstep.normalize(x if is_tensor(x) else convert_to_tensor(np.asarray(x, np.float32)), axis, order)
    return made if is_tensor(x) else made.numpy()


def set_random_seed(seed):
    """Seeds Python, NumPy and the engine."""
    import random
    random.seed(seed)
    np.random.seed(seed)
    _lockstep.ops.set_seed(int(seed))


def pad_sequences(sequences, maxlen=None, dtype="int32", padding="pre", truncating="pre", value=0.0):
    """Sequences of numbers, of texts or of arrays as one array: short ones are filled up with the value, long ones cut."""
    for name, side in (("padding", padding), ("truncating", truncating)):
        if side not in ("pre", "post"):
            raise ValueError(f"pad_sequences: {name} is \"pre\" or \"post\", received {side!r}")
    if not hasattr(sequences, "__len__") or not all(hasattr(sequence, "__len__") for sequence in sequences):
        raise ValueError("pad_sequences: takes a list of sequences")
    kind = np.dtype(dtype).kind
    if isinstance(value, str) and kind not in "OUS":
        raise ValueError(f"pad_sequences: a text cannot fill an array of {dtype}: give dtype=object")
    lengths = [len(sequence) for sequence in sequences]
    length = max(lengths, default=0) if maxlen is None else int(maxlen)
    inner = next((np.asarray(sequence).shape[1:] for sequence in sequences if len(sequence)), ())
    made = np.full((len(sequences), length, *inner), value, dtype=dtype)
    for row, sequence in zip(made, sequences):
        if not len(sequence) or not length:
            continue
        kept = np.asarray(sequence[-length:] if truncating == "pre" else sequence[:length], dtype=dtype)
        if kept.shape[1:] != inner:
            raise ValueError(f"pad_sequences: elements of the sequences are of shape {inner} and {kept.shape[1:]}")
        row[slice(len(kept)) if padding == "post" else slice(length - len(kept), None)] = kept
    return made


class PyDataset:
    """Batches by number: define __len__ and __getitem__."""

    def __init__(self, workers=1, use_multiprocessing=False, max_queue_size=10):
        pass

    def on_epoch_end(self):
        pass


Sequence = PyDataset


class Progbar:
    """A line that tells how far a loop is, and the values that it is told: the mean since the beginning, or as they are where they
    are such figures already (stateful_metrics; all but stateless_metrics)."""

    def __init__(self, target, width=20, verbose=1, interval=0.05, stateful_metrics=None, stateless_metrics=None,
                 unit_name="step"):
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ValueError("Progbar: only one of stateful_metrics and stateless_metrics may be given")
        self.target, self.width, self.verbose, self.interval, self.unit_name = target, width, verbose, interval, unit_name
        self._stateful, self._stateless = stateful_metrics, stateless_metrics
        self._sums, self._seen, self._finalized = {}, 0, False
        self._begun = self._shown = time.monotonic()

    def _is_figure(self, name):
        return name in (self._stateful or ()) if self._stateless is None else name not in self._stateless

    def update(self, current, values=None, finalize=None):
        """So many steps are done."""
        finalize = finalize if finalize is not None else self.target is not None and current >= self.target
        steps = current - self._seen
        for name, value in values or ():
            value = float(np.mean(convert_to_tensor(value).numpy() if is_tensor(value) else value))
            if self._is_figure(name):
                self._sums[name] = [value, 1]
            else:
                total = self._sums.setdefault(name, [0.0, 0])
                total[0] += value * steps
                total[1] += steps
        self._seen = current
        now = time.monotonic()
        if not finalize and (self.verbose != 1 or now - self._shown < self.interval):
            return
        self._shown = now
        if self.verbose:
            self._show(current, now - self._begun, finalize)

    def _show(self, current, seconds, finalize):
        counted = f"{current}/{self.target}" if self.target is not None else f"{current}/Unknown"
        bar = ""
        if self.verbose == 1 and self.target:
            filled = min(self.width, int(self.width * current / self.target))
            bar = f" {'=' * filled}{'.' * (self.width - filled)}"
        each = seconds / current if current else 0.0
        took = f"{seconds:.0f}s {each * 1e3:.0f}ms/{self.unit_name}"
        shown = "".join(f" - {name}: {_figure(total / max(count, 1))}" for name, (total, count) in self._sums.items())
        end = "\n" if finalize or self.verbose == 2 else ""
        print(("\r" if self.verbose == 1 else "") + f"{counted}{bar} {took}{shown}", end=end, flush=True)

    def add(self, n, values=None):
        """So many more steps are done."""
        self.update(self._seen + n, values)


def _figure(value):
    return f"{value:.4f}" if abs(value) > 1e-3 or value == 0 else f"{value:.4e}"


def plot_model(model, to_file="model.png", *_, **__):
    """Pictures of models are not drawn."""
    warnings.warn(f"plot_model: no picture is drawn, so there is no {to_file}; model.summary() prints the layers", stacklevel=2)


def pack_x_y_sample_weight(x, y=None, sample_weight=None):
    """What fit() takes as one: x alone where there is nothing beside it, else a tuple."""
    if y is None and sample_weight is None:
        return (x,) if isinstance(x, (list, tuple)) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


def unpack_x_y_sample_weight(data):
    """(x, y, sample_weight) of what fit() is given, with None for what is not there."""
    parts = tuple(data) if isinstance(data, (list, tuple)) else (data,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"data is x, (x,), (x, y) or (x, y, sample_weight), received {len(parts)} parts")
    return (*parts, None, None)[:3]
