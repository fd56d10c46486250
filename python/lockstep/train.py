"""tf.train: the state of a training run on disk, complete or not there at all."""

import os
import time

import numpy as np

from . import _lockstep, _module
from ._lockstep import Variable
from .dtypes import float32


def _trackable(value):
    """What the engine saves: a variable, a handle to a layer or an optimizer, or a function that lists the parts."""
    if isinstance(value, Variable):
        return value
    handle = getattr(value, "_handle", None)
    if isinstance(handle, (_lockstep.Layer, _lockstep.Optimizer)):
        return handle
    if isinstance(value, _lockstep.Iterator):  # where it stands in its dataset
        return value
    if hasattr(value, "_generator"):  # of random numbers
        return value._generator
    parts = _module.named_parts(value)
    if parts is None:
        raise TypeError("a checkpoint holds models, layers, optimizers, variables, generators, iterators, tf.Module and lists or dictionaries "
                        f"of these, received {value!r}")
    return lambda: [(name, _trackable(part)) for name, part in _module.named_parts(value)]


class Checkpoint:
    """Named objects whose state is saved and put back: ``Checkpoint(optimizer=optimizer, model=model)``, or attributes that are set before it is
    first used. Attributes of a checkpoint inside of another one may be set later: what was restored has their values."""

    _made = _restored = None

    def __init__(self, root=None, **kwargs):
        if root is not None:
            kwargs = {"root": root, **kwargs}
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        _trackable(value)  # which says what is none
        if self._made is not None and self.__dict__.get(name) is not value:
            raise AttributeError(f"checkpoint.{name}: what a checkpoint holds is said before it is first saved or restored")
        comes_late = self._restored is not None and name not in self.__dict__
        object.__setattr__(self, name, value)
        if comes_late:
            self._fill(name, value)

    @property
    def _objects(self):
        return {name: value for name, value in vars(self).items() if name not in ("_made", "_restored")}

    @property
    def _engine(self):
        if self._made is None:
            made = _lockstep.Checkpoint([(name, _trackable(value)) for name, value in self._objects.items()])
            object.__setattr__(self, "_made", made)
        return self._made

    def save(self, file_prefix, options=None):
        """Saves as PREFIX-1, PREFIX-2, ...; returns the path. It is written while the program goes on."""
        return self._engine.save(os.fspath(file_prefix))

    def write(self, file_prefix, options=None):
        """Saves under exactly this name."""
        return self._engine.write(os.fspath(file_prefix))

    def restore(self, save_path, options=None):
        """Puts the values back; None does nothing."""
        status = self._engine.restore(None if save_path is None else os.fspath(save_path))
        if status.restored:
            self._remember(status.path, ())
        return status

    read = restore

    def _remember(self, path, names):
        """Checkpoints inside of this one look up what is set later. The names lead to this one."""
        object.__setattr__(self, "_restored", (path, names))
        for name, value in self._objects.items():
            if isinstance(value, Checkpoint):
                value._remember(path, (*names, name.lstrip("_")))

    def _fill(self, name, value):
        """Puts back what the checkpoint has for an object that was not there when it was restored."""
        path, names = self._restored
        first, *inner = *names, name.lstrip("_")
        part = _trackable(value)
        for outer in reversed(inner):
            part = (lambda name, part: lambda: [(name, part)])(outer, part)
        _lockstep.Checkpoint([(first, part)]).restore(path).expect_partial()
        if isinstance(value, Checkpoint):
            value._remember(path, (*names, name.lstrip("_")))

    def wait(self):
        """Until the last save is on the disk. Lockstep's own."""
        self._engine.wait()

    @property
    def save_counter(self):
        return self._engine.save_counter


class CheckpointManager:
    """Saves to one folder and keeps the last few."""

    def __init__(self, checkpoint, directory, max_to_keep, keep_checkpoint_every_n_hours=None, checkpoint_name="ckpt",
                 step_counter=None, checkpoint_interval=None, init_fn=None):
        counter = None if step_counter is None else (lambda: int(step_counter))
        self.checkpoint, self._interval = checkpoint, checkpoint_interval
        self._handle = _lockstep.CheckpointManager(checkpoint._engine, os.fspath(directory), max_to_keep or 0,
                                                   float(keep_checkpoint_every_n_hours or 0), checkpoint_name,
                                                   checkpoint_interval or 0, counter, init_fn)

    def save(self, checkpoint_number=None, check_interval=True, options=None):
        """The path, or None where the interval has not passed."""
        if checkpoint_number is not None:
            raise NotImplementedError("CheckpointManager.save: checkpoints are numbered one after another; Checkpoint.write(path) takes any name")
        if not check_interval and self._interval:
            raise NotImplementedError("CheckpointManager.save: check_interval=False, with a checkpoint_interval; Checkpoint.save(prefix) saves at any time")
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
    if latest_filename not in (None, "checkpoint"):
        raise NotImplementedError(f"latest_checkpoint: a folder lists its checkpoints in one place, received latest_filename={latest_filename!r}; leave it "
                                  "out, and give each series of checkpoints a folder")
    return _lockstep.latest_checkpoint(os.fspath(checkpoint_dir))


class CheckpointState:
    """The path of the latest checkpoint of a folder. CheckpointManager.checkpoints lists those that are kept."""

    def __init__(self, model_checkpoint_path):
        self.model_checkpoint_path = model_checkpoint_path


def get_checkpoint_state(checkpoint_dir, latest_filename=None):
    """The state of the latest checkpoint of a folder; None where there is none."""
    latest = latest_checkpoint(checkpoint_dir, latest_filename)
    return None if latest is None else CheckpointState(latest)


def checkpoints_iterator(checkpoint_dir, min_interval_secs=0, timeout=None, timeout_fn=None):
    """The path of the latest checkpoint of a folder, again whenever there is a new one: for what evaluates while another process trains. It
    ends when none has come for `timeout` seconds, unless timeout_fn() returns False."""
    seen, since = None, time.monotonic()
    while True:
        path = latest_checkpoint(checkpoint_dir)
        if path is not None and path != seen:
            seen, begin = path, time.monotonic()
            yield path
            time.sleep(max(begin + min_interval_secs - time.monotonic(), 0.0))
            since = time.monotonic()
            continue
        if timeout is not None and time.monotonic() - since > timeout:
            if timeout_fn is None or timeout_fn():
                return
            since = time.monotonic()
        time.sleep(min(1.0, timeout or 1.0))


class ExponentialMovingAverage:
    """Averages of variables that follow them: apply() after every step, average(variable) for what it has become."""

    def __init__(self, decay, num_updates=None, zero_debias=False, name="ExponentialMovingAverage"):
        if zero_debias:
            raise NotImplementedError("ExponentialMovingAverage: zero_debias is for averages that begin at 0; these begin at the variables' values")
        self._decay, self._num_updates, self._name, self._averages = decay, num_updates, name, {}

    @property
    def name(self):
        return self._name

    def apply(self, var_list=None):
        """Averages of these variables move towards them; those of new ones begin at their values."""
        if var_list is None:
            raise ValueError("ExponentialMovingAverage: apply() takes the variables, model.trainable_variables for instance")
        decay = self._decay
        if self._num_updates is not None:
            updates = _lockstep.ops.cast(self._num_updates.read_value() if isinstance(self._num_updates, Variable) else self._num_updates, float32)
            decay = _lockstep.ops.minimum(decay, (updates + 1.0) / (updates + 10.0))
        for variable in var_list:
            average = self._averages.get(variable.ref())
            if average is None:
                self._averages[variable.ref()] = Variable(variable.read_value(), trainable=False, name=self.average_name(variable))
            else:
                average.assign_sub((average - variable) * _lockstep.ops.cast(1.0 - decay, variable.dtype))

    def average(self, var):
        """The variable that holds the average; None: apply() has not seen this one."""
        return self._averages.get(var.ref())

    def average_name(self, var):
        return f"{var.name.partition(':')[0]}/{self._name}"


class CheckpointOptions:
    """Settings of saving that have no effect here: a checkpoint is always written while the program goes on."""

    def __init__(self, experimental_io_device=None, experimental_enable_async_checkpoint=False, experimental_write_callbacks=None, enable_async=False,
                 experimental_skip_slot_variables=False, experimental_sharding_callback=None):
        if experimental_write_callbacks or experimental_skip_slot_variables or experimental_sharding_callback:
            raise NotImplementedError("CheckpointOptions: there are no experimental_write_callbacks, experimental_skip_slot_variables and "
                                      "experimental_sharding_callback")
        self.experimental_io_device, self.enable_async = experimental_io_device, enable_async or experimental_enable_async_checkpoint


# --- checkpoints of TensorFlow -------------------------------------------------------------------------------------------

class CheckpointReader:
    """The tensors of a checkpoint that TensorFlow wrote, by name."""

    def __init__(self, handle):
        self._handle = handle
        self._entries = {name: (shape, dtype) for name, shape, dtype in handle.entries()}

    def get_variable_to_shape_map(self):
        return {name: list(shape) for name, (shape, _) in self._entries.items()}

    def get_variable_to_dtype_map(self):
        return {name: dtype for name, (_, dtype) in self._entries.items()}

    def has_tensor(self, tensor_str):
        return tensor_str in self._entries

    def get_tensor(self, tensor_str):
        """An array of NumPy's."""
        return self._handle.read(tensor_str).numpy()


def load_checkpoint(ckpt_dir_or_file):
    """A checkpoint of TensorFlow, by its prefix or the folder that it is the newest of."""
    return CheckpointReader(_lockstep.load_checkpoint(os.fspath(ckpt_dir_or_file)))


def list_variables(ckpt_dir_or_file):
    """(name, shape) of every tensor of a checkpoint of TensorFlow."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file, name):
    """One tensor of a checkpoint of TensorFlow, as an array."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)


# --- examples of records -------------------------------------------------------------------------------------------------

class _Values:
    """A list of values, as messages of protocol buffers have them."""

    def __init__(self, value=()):
        self.value = [self._as(part) for part in value]

    def __eq__(self, other):
        return type(self) is type(other) and self.value == other.value

    def __repr__(self):
        return f"{type(self).__name__}(value={self.value!r})"


class BytesList(_Values):
    """Byte strings of a feature."""
    _kind = "bytes"

    @staticmethod
    def _as(value):
        value = value.numpy() if hasattr(value, "numpy") else value
        if not isinstance(value, bytes):
            raise TypeError(f"BytesList: takes bytes, received {value!r}" + ("; text.encode() gives them" if isinstance(value, str) else ""))
        return value


class FloatList(_Values):
    """Numbers of a feature, as float32."""
    _kind = "floats"

    @staticmethod
    def _as(value):
        return float(np.float32(value))


class Int64List(_Values):
    """Whole numbers of a feature."""
    _kind = "ints"

    @staticmethod
    def _as(value):
        if isinstance(value, (float, np.floating)):
            raise TypeError(f"Int64List: takes whole numbers, received {value!r}")
        return int(value)


class Feature:
    """One of the three lists."""

    def __init__(self, bytes_list=None, float_list=None, int64_list=None):
        given = [one for one in (bytes_list, float_list, int64_list) if one is not None]
        if len(given) > 1:
            raise ValueError("Feature: has one list, of bytes, of floats or of whole numbers")
        self._values = given[0] if given else None

    def _of(self, kind):
        return self._values if isinstance(self._values, kind) else kind()

    bytes_list = property(lambda self: self._of(BytesList))
    float_list = property(lambda self: self._of(FloatList))
    int64_list = property(lambda self: self._of(Int64List))

    def WhichOneof(self, name):  # noqa: N802: the name of protocol buffers
        """Which of the three it has, of the group "kind"."""
        return {"bytes": "bytes_list", "floats": "float_list", "ints": "int64_list"}.get(self._values._kind if self._values is not None else None)

    def SerializeToString(self):  # noqa: N802: the name of protocol buffers
        """As bytes."""
        whole = Example(Features({"f": self})).SerializeToString()
        for _ in range(2):  # an example has features, which have entries
            whole = _message(whole)[1]
        rest = whole[_message(whole)[2]:]  # behind the name
        return _message(rest)[1]

    def __repr__(self):
        return f"Feature({self._values!r})"


def _message(text):
    """(tag, contents, length of both) of what a message of protocol buffers begins with."""
    size, shift, at = 0, 0, 1
    while True:
        size |= (text[at] & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if text[at - 1] < 0x80:
            return text[0], text[at:at + size], at + size


class Features:
    """Features by their names."""

    def __init__(self, feature=None):
        self.feature = dict(feature or {})

    def __repr__(self):
        return f"Features({self.feature!r})"


class Example:
    """Named lists of bytes, floats or whole numbers: the usual contents of files of records. tf.io.parse_single_example makes tensors of them."""

    def __init__(self, features=None):
        self.features = features or Features()

    def SerializeToString(self):  # noqa: N802: the name of protocol buffers
        """As bytes, which TFRecordWriter writes."""
        return _lockstep.io.serialize_example({name: (feature._values._kind, feature._values.value)
                                               for name, feature in self.features.feature.items() if feature._values is not None})

    @classmethod
    def FromString(cls, serialized):  # noqa: N802: the name of protocol buffers
        """The example of such bytes."""
        lists = {"bytes": ("bytes_list", BytesList), "floats": ("float_list", FloatList), "ints": ("int64_list", Int64List)}
        known = _lockstep.io.parse_example(serialized.numpy() if hasattr(serialized, "numpy") else serialized)
        return cls(Features({name: Feature(**{lists[kind][0]: lists[kind][1](values)}) for name, (kind, values) in known.items()}))

    def ParseFromString(self, serialized):  # noqa: N802: the name of protocol buffers
        """Takes the features of such bytes in place of its own."""
        self.features = Example.FromString(serialized).features

    def __repr__(self):
        return f"Example({self.features!r})"
