"""keras.metrics."""

import inspect
import weakref

from .. import _lockstep
from ..ops import _sizes
from ..tensor import convert_to_tensor
from ._configured import classes

# Keras' signatures that begin with the name.
_NAME_FIRST = ("BinaryAccuracy", "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy",
               "CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation")


class Metric:
    """A figure that is gathered over batches. Derive from it and define update_state() and result() to write one."""
    _kind = "metric"

    def __init__(self, dtype=None, name=None):
        if isinstance(dtype, str) and name is None and dtype not in ("float32", "float64", "float16", "bfloat16"):
            dtype, name = None, dtype  # Keras 2: the name first
        # A model that is compiled with it keeps it; the engine must not, for Python's garbage collector would not see that.
        self._handle = _lockstep.Metric.written(weakref.proxy(self), name or _snake(type(self).__name__))

    def _own(self, kwargs):
        return kwargs

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
        given = [convert_to_tensor(arg) for arg in args]
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
        return self._handle.variables()

    weights = variables

    def get_config(self):
        return self._handle.serialize()["config"]

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name}>"


def _snake(name):
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


globals().update(classes("metric", Metric, __name__,
                         first=lambda name: ("name", "dtype") if name in _NAME_FIRST else ()))


class MeanMetricWrapper(Metric):
    """The mean of what a function of labels and predictions gives for each example."""

    def __init__(self, fn, name=None, dtype=None, **kwargs):
        self._handle = _lockstep.Metric.from_function(lambda t, p: fn(t, p, **kwargs), name or fn.__name__)


def get(identifier):
    """By name, by configuration, a function of labels and predictions, or as it is."""
    if isinstance(identifier, Metric):
        return identifier
    made = Metric.__new__(Metric)
    if isinstance(identifier, (str, dict)):
        made._handle = _lockstep.Metric.deserialize(identifier)
    elif inspect.isclass(identifier) and issubclass(identifier, Metric):
        return identifier()
    elif isinstance(getattr(identifier, "_engine", None), _lockstep.Loss) or hasattr(identifier, "call"):
        made._handle = _lockstep.Metric.from_function(lambda t, p: identifier.call(t, p), identifier.name)
    elif callable(identifier):
        made._handle = _lockstep.Metric.from_function(identifier, getattr(identifier, "__name__", "metric"))
    else:
        raise TypeError(f"a metric is a name, a Metric or a function of labels and predictions, received {identifier!r}")
    return made


def wrapped(handle):
    made = Metric.__new__(Metric)
    made._handle = handle
    return made
