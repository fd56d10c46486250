"""keras.metrics."""

import inspect
import weakref

from .. import _lockstep
from ..ops import _sizes
from ..tensor import convert_to_tensor
from . import saving
from ._configured import Configured, classes

# Keras' signatures that begin with the name.
_NAME_FIRST = ("BinaryAccuracy", "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
               "CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation")


class Metric(Configured):
    """A figure that is gathered over batches. Derive from it and define update_state() and result() to write one."""
    _kind = "metric"

    def __init__(self, dtype=None, name=None):
        if isinstance(dtype, str) and name is None and dtype not in ("float32", "float64", "float16", "bfloat16"):
            dtype, name = None, dtype  # Keras 2: the name first
        # A model that is compiled with it keeps it; the engine must not, for Python's garbage collector would not see that.
        self._handle = _lockstep.Metric.written(weakref.proxy(self), name or _snake(type(self).__name__))

    def _make(self, class_name, config):
        self._handle = _lockstep.Metric.deserialize({"class_name": class_name, "config": config})

    # --- written in Python ---

    def add_variable(self, shape=(), initializer=None, dtype=None, aggregation=None, name=None):
        """A variable of zeros, which reset_state() sets to zero again."""
        return self._handle.new_variable(name or "variable", _sizes(shape))

    def add_weight(self, shape=(), initializer=None, dtype=None, name=None, **kwargs):
        if isinstance(shape, str):
            name, shape = shape, ()
        if initializer not in (None, "zeros", "Zeros", "zero"):
            raise NotImplementedError("a variable of a metric begins with zeros")
        return self.add_variable(shape, name=name)

    def _update_for_engine(self, y_true, y_pred, sample_weight):
        takes_weight = "sample_weight" in inspect.signature(self.update_state).parameters
        if y_true is None:
            args = (y_pred,)
        else:
            args = (y_true, y_pred)
        if takes_weight and sample_weight is not None:
            self.update_state(*args, sample_weight=sample_weight)
        else:
            self.update_state(*args)

    # --- use ---

    def update_state(self, *args, sample_weight=None):
        """Adds a batch: labels and predictions, or values."""
        given = [convert_to_tensor(arg) for arg in args if arg is not None]
        weight = None if sample_weight is None else convert_to_tensor(sample_weight)
        if self._handle.takes_values:
            if len(given) == 2:
                weight = given[1]
            self._handle.update_values(given[0], weight)
        else:
            if len(given) == 3:
                weight = given.pop()
            self._handle.update_state(*given, weight)

    def result(self):
        """The figure of all batches since the last reset."""
        return self._handle.result()

    def reset_state(self):
        """Forgets all batches."""
        if type(self).result is Metric.result:
            self._handle.reset_state()
        else:
            for variable in self.variables:
                variable.assign(_lockstep.ops.zeros_like(variable))

    reset_states = lambda self: self.reset_state()  # noqa: E731: Keras 2's name

    def __call__(self, *args, **kwargs):
        self.update_state(*args, **kwargs)
        return self.result()

    @property
    def name(self):
        return self._handle.name

    @property
    def variables(self):
        if not self._is_written and not _depends_on_data(self):
            self._handle.build()
        return self._handle.variables()

    weights = non_trainable_variables = variables
    trainable_variables = ()

    def __getattr__(self, name):
        # Settings and variables of the engine's: auc.num_thresholds, precision.true_positives.
        if not name.startswith("_") and not self._is_written:
            for variable in self._handle.variables():
                if variable._name.rsplit("/", 1)[-1] == name:
                    return variable
        return super().__getattr__(name)

    @property
    def dtype(self):
        return "float32"

    def _engine_form(self):
        return self._handle.serialize()

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype} if self._is_written else super().get_config()

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name}>"


from .losses import _snake  # noqa: E402


def _depends_on_data(metric):
    """Whether the sizes of its variables follow from the first labels and predictions."""
    config = metric._engine_form()
    return not isinstance(config, dict) or "average" in config["config"] or "class_aggregation" in config["config"] or \
        bool(config["config"].get("multi_label")) or config["class_name"] in ("function", "PearsonCorrelation", "ConcordanceCorrelation")


_AT = ("num_thresholds", "class_id", "name", "dtype")
_FIRST = {"SensitivityAtSpecificity": ("specificity", *_AT), "SpecificityAtSensitivity": ("sensitivity", *_AT),
          "PrecisionAtRecall": ("recall", *_AT), "RecallAtPrecision": ("precision", *_AT)}
_known = classes("metric", Metric, __name__,
                 first=lambda name: ("name", "dtype") if name in _NAME_FIRST else _FIRST.get(name, ()))
globals().update(_known)


class MeanMetricWrapper(Metric):
    """The mean of what a function of labels and predictions gives for each example."""

    def __init__(self, fn, name=None, dtype=None, **kwargs):
        self._fn, self._fn_kwargs = fn, kwargs
        self._handle = _of_function((lambda t, p: fn(t, p, **kwargs)) if kwargs else fn, name or fn.__name__)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "fn": saving.serialize_keras_object(self._fn), **self._fn_kwargs}

    @classmethod
    def from_config(cls, config):
        if "fn" in config:
            config = {**config, "fn": saving.deserialize_keras_object(config["fn"])}
        return cls(**config)


def _of_function(function, name):
    if getattr(function, "__name__", None) not in (None, "<lambda>"):
        saving._tell_engine(name, function)
    return _lockstep.Metric.from_function(function, name)


def get(identifier):
    """By name, by configuration, a function of labels and predictions, or as it is."""
    if identifier is None or isinstance(identifier, Metric):
        return identifier
    if isinstance(identifier, (str, dict)):
        return deserialize(identifier)
    if inspect.isclass(identifier) and issubclass(identifier, Metric):
        return identifier()
    made = Metric.__new__(Metric)
    if isinstance(getattr(identifier, "_engine", None), _lockstep.Loss) or hasattr(identifier, "call"):
        made._handle = _lockstep.Metric.from_function(lambda t, p: identifier.call(t, p), identifier.name)
    elif callable(identifier):
        made._handle = _of_function(identifier, getattr(identifier, "__name__", "metric"))
    else:
        raise TypeError(f"a metric is a name, a Metric or a function of labels and predictions, received {identifier!r}")
    return made


def deserialize(config, custom_objects=None):
    """The metric of a name or a configuration."""
    with saving.custom_object_scope(custom_objects):
        found = saving.of_python(config, get)
        if found is not None:
            return found
        if isinstance(config, dict) and config.get("class_name") == "MeanMetricWrapper":
            return MeanMetricWrapper.from_config(config["config"])
        return wrapped(_lockstep.Metric.deserialize(config))


def serialize(metric):
    """A configuration of it."""
    return saving.serialize_keras_object(metric)


def wrapped(handle):
    """The object of Python for a metric of the engine."""
    made = _known.get(handle.class_name, Metric)
    made = made.__new__(made)
    made._handle = handle
    return made
