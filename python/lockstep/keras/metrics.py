"""keras.metrics."""

import inspect
import weakref

import numpy as np

from .. import _lockstep, nest, ops as _tf
from .._lockstep import Variable
from ..ops import _sizes
from ..tensor import convert_to_tensor
from . import initializers, losses, ops, saving
from ._configured import Configured, classes
from ._engine_objects import same_objects
from ._layer import _policy_name
from .backend import epsilon, floatx, standardize_dtype


class _Shown:
    """A variable of Keras' metric whose value the engine keeps in another form: it can be looked at, and not be set."""
    trainable = False

    def __init__(self, metric, name):
        self._metric, self.name, self.path = metric, name, f"{metric.name}/{name}"

    @property
    def value(self):
        return dict(self._metric._handle.keras_state())[self.name]

    _as_tensor = read_value = lambda self: self.value

    def assign(self, value):
        raise NotImplementedError(f"{self.path} cannot be set: update_state() and reset_state() change it")

    assign_add = assign_sub = assign

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __repr__(self):
        return f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype.name}, value={self.numpy()}>"


for _method in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "neg", "eq", "ne", "lt", "le", "gt", "ge",
                "getitem", "len", "float", "int", "bool", "array", "format"):
    setattr(_Shown, f"__{_method}__",
            (lambda method: lambda self, *args, **kwargs: getattr(self.value, method)(*args, **kwargs))(f"__{_method}__"))
_Shown.__hash__ = object.__hash__


class Metric(Configured):
    """A figure that is gathered over batches. Derive from it and define update_state() and result() to write one."""
    _kind = "metric"
    _dtype_given = None

    def __init__(self, dtype=None, name=None):
        if isinstance(dtype, str) and name is None and not dtype.startswith("mixed_") and not _is_dtype(dtype):
            dtype, name = None, dtype  # Keras 2: the name first
        self._take_dtype(dtype)
        # A model that is compiled with it keeps it; the engine must not, for Python's garbage collector would not see that.
        self._handle = _lockstep.Metric.written(weakref.proxy(self), name or _snake(type(self).__name__))

    def _make(self, class_name, config):
        self._take_dtype(config.get("dtype"))
        self._handle = _lockstep.Metric.deserialize({"class_name": class_name, "config": config})

    def _take_dtype(self, dtype):
        """What result() gives, where somebody says it: a dtype or a policy."""
        self._dtype_given = None if dtype is None else standardize_dtype(_policy_name(dtype).removeprefix("mixed_"))

    # --- written in Python ---

    def add_variable(self, shape=(), initializer=None, dtype=None, aggregation=None, name=None):
        """A variable, of zeros where no initializer says otherwise; reset_state() makes it zeros again."""
        dtype = self.dtype if dtype is None else standardize_dtype(dtype)
        if initializer is None:
            initial = _tf.zeros(_sizes(shape), dtype)
        elif callable(initializer) or isinstance(initializer, (str, dict)):
            initializer = initializers.get(initializer)
            initial = _tf.cast(initializer(tuple(_sizes(shape)), dtype=dtype), dtype)
        else:
            initial = _tf.cast(convert_to_tensor(initializer), dtype)
        if self._is_engines:  # beside those that the engine keeps
            return Variable(initial, False, name=f"{self.name}/{name or 'variable'}")
        return same_objects([self._handle.new_variable(name or "variable", initial)])[0]

    def add_weight(self, shape=(), initializer=None, dtype=None, name=None, **kwargs):
        if isinstance(shape, str):  # Keras 2: the name first
            name, shape = shape, ()
        return self.add_variable(shape, initializer, dtype, name=name)

    @property
    def _is_engines(self):
        """Whether the engine computes it; in a class of Python's own, too, that is derived from one of the engine's."""
        return not self._handle.is_written

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
        made = self._handle.result()
        return made if self._dtype_given is None else _tf.cast(made, self._dtype_given)

    def reset_state(self):
        """Forgets all batches."""
        if self._is_engines or type(self).result is Metric.result:
            self._handle.reset_state()
        variables, metrics = self._parts()
        for variable in variables:
            variable.assign(_lockstep.ops.zeros_like(variable))
        for metric in metrics:
            metric.reset_state()

    reset_states = lambda self: self.reset_state()  # noqa: E731: Keras 2's name

    def __call__(self, *args, **kwargs):
        self.update_state(*args, **kwargs)
        return self.result()

    @property
    def name(self):
        return self._handle.name

    def _parts(self):
        """Variables that a class of Python's own has made or holds in attributes, and the metrics that it holds."""
        variables, metrics = [] if self._is_engines else same_objects(self._handle.variables()), []
        for held in nest.flatten([value for name, value in vars(self).items() if name != "_handle"]):
            if isinstance(held, Metric):
                metrics.append(held)
            elif isinstance(held, Variable) and not any(held is variable for variable in variables):
                variables.append(held)
        return variables, metrics

    @property
    def variables(self):
        """What it has gathered so far."""
        if self._is_engines and not _depends_on_data(self):
            self._handle.build()
        shown = [_Shown(self, name) for name, _ in self._handle.keras_state()]
        if self._is_engines and not shown:
            shown = same_objects(self._handle.variables())
        variables, metrics = self._parts()
        return shown + variables + [variable for metric in metrics for variable in metric.variables]

    weights = non_trainable_variables = variables

    def stateless_update_state(self, metric_variables, *args, **kwargs):
        """The variables as a batch makes them of these. The metric keeps its own."""
        return self._with_variables(metric_variables, lambda: self.update_state(*args, **kwargs))[1]

    def stateless_result(self, metric_variables):
        """The figure that these variables mean."""
        return self._with_variables(metric_variables, self.result)[0]

    def stateless_reset_state(self):
        """The variables of a metric that has seen nothing."""
        return self._with_variables(self.variables, self.reset_state)[1]

    def _with_variables(self, values, function):
        """What the function gives and leaves behind in variables that have these values meanwhile."""
        variables = self.variables
        if len(values) != len(variables):
            raise ValueError(f"metric \"{self.name}\" has {len(variables)} variables, {len(values)} were given")
        before = [variable.read_value() for variable in variables]
        try:
            for variable, value in zip(variables, values):
                variable.assign(_tf.cast(value, variable.dtype))
            made = function()
            return made, [variable.read_value() for variable in variables]
        finally:
            for variable, value in zip(variables, before):
                variable.assign(value)
    trainable_variables = ()

    def __getattr__(self, name):
        # Settings and variables of the engine's: auc.num_thresholds, precision.true_positives.
        if not name.startswith("_") and self._is_engines:
            for variable in self.variables:
                if variable.path.rsplit("/", 1)[-1] == name:
                    return variable
        return super().__getattr__(name)

    @property
    def dtype(self):
        """Of result(). The engine gathers in float32, or in float64 where predictions are."""
        return self._dtype_given or floatx()

    def _engine_form(self):
        form = self._handle.serialize()
        if self._dtype_given is not None and isinstance(form, dict) and isinstance(form["config"], dict):
            form["config"]["dtype"] = self._dtype_given
        return form

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype} if self._is_written else super().get_config()

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name}>"


def _is_dtype(name):
    try:
        return bool(standardize_dtype(name))
    except ValueError:
        return False


from .losses import (_snake, binary_crossentropy, binary_focal_crossentropy, categorical_crossentropy,  # noqa: E402,F401
                     categorical_focal_crossentropy, categorical_hinge, hinge, huber, kl_divergence, log_cosh, mean_absolute_error,
                     mean_absolute_percentage_error, mean_squared_error, mean_squared_logarithmic_error, poisson,
                     sparse_categorical_crossentropy, squared_hinge)


def _depends_on_data(metric):
    """Whether the sizes of its variables follow from the first labels and predictions."""
    form = metric._engine_form()
    if not isinstance(form, dict) or form["class_name"] in ("PearsonCorrelation", "ConcordanceCorrelation"):
        return True
    config = form["config"]
    return isinstance(config, dict) and ("average" in config or "class_aggregation" in config or bool(config.get("multi_label")))


_known = classes("metric", Metric, __name__)
globals().update(_known)
for _name in ("KLD", "MAE", "MAPE", "MSE", "MSLE", "kld", "kullback_leibler_divergence", "logcosh", "mae", "mape", "mse", "msle"):
    globals()[_name] = getattr(losses, _name)


class AUC(_known["AUC"]):
    __doc__ = _known["AUC"].__doc__
    _class_name = "AUC"

    def _own(self, kwargs):
        """Thresholds say how many there are."""
        return {name: value for name, value in kwargs.items() if not (name == "num_thresholds" and value is None)}

    @property
    def thresholds(self):
        """All of them, with one below 0 and one above 1 at the ends."""
        given = self._engine_form()["config"]["thresholds"]
        inner = sorted(np.atleast_1d(given).tolist()) if given else np.linspace(0.0, 1.0, self.num_thresholds)[1:-1].tolist()
        return [-1e-7, *inner, 1.0 + 1e-7]


_known["AUC"] = AUC


class MeanMetricWrapper(Metric):
    """The mean of what a function of labels and predictions gives for each example."""

    def __init__(self, fn, name=None, dtype=None, **kwargs):
        self._fn, self._fn_kwargs = fn, kwargs
        self._take_dtype(dtype)
        self._handle = _of_function((lambda t, p: fn(t, p, **kwargs)) if kwargs else fn, name or fn.__name__)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "fn": saving.serialize_keras_object(self._fn), **self._fn_kwargs}

    @classmethod
    def from_config(cls, config):
        if "fn" in config:
            config = {**config, "fn": saving.deserialize_keras_object(config["fn"])}
        return cls(**config)


# --- functions of labels and predictions, one number an example ---------------------------------------------------------------

def _as_floats(y_true, y_pred):
    y_pred = ops.convert_to_tensor(y_pred)
    y_pred = y_pred if y_pred.dtype.is_floating else ops.cast(y_pred, floatx())
    return ops.cast(y_true, y_pred.dtype), y_pred


def _matches(same):
    return ops.cast(same, floatx())


def binary_accuracy(y_true, y_pred, threshold=0.5):
    """Whether a prediction above the threshold belongs to a label of 1: the mean over the last dimension."""
    y_true, y_pred = _as_floats(y_true, y_pred)
    return ops.mean(_matches(ops.equal(y_true, ops.cast(y_pred > threshold, y_true.dtype))), axis=-1)


def categorical_accuracy(y_true, y_pred):
    """Whether the largest score is the label's."""
    return _matches(ops.equal(ops.argmax(y_true, axis=-1), ops.argmax(y_pred, axis=-1)))


def _class_numbers(y_true, y_pred):
    """Labels without a last dimension of 1 that the class scores stand in."""
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1:
        y_true = ops.squeeze(y_true, -1)
    return ops.cast(y_true, "int32"), y_pred


def sparse_categorical_accuracy(y_true, y_pred):
    """Whether the largest score is that of the label's number."""
    y_true, y_pred = _class_numbers(y_true, y_pred)
    return _matches(ops.equal(y_true, ops.argmax(y_pred, axis=-1)))


def top_k_categorical_accuracy(y_true, y_pred, k=5):
    """Whether the label's score is among the k largest."""
    return sparse_top_k_categorical_accuracy(ops.argmax(y_true, axis=-1), y_pred, k)


def sparse_top_k_categorical_accuracy(y_true, y_pred, k=5, from_sorted_ids=False):
    """The same of numbers of classes; from_sorted_ids: predictions are such numbers too, the most probable first."""
    y_true, y_pred = _class_numbers(y_true, y_pred)
    if from_sorted_ids:
        return _matches(ops.any(ops.equal(ops.expand_dims(y_true, -1), ops.cast(y_pred[..., :k], "int32")), axis=-1))
    found = ops.in_top_k(ops.reshape(y_true, [-1]), ops.reshape(y_pred, [-1, y_pred.shape[-1]]), k)
    return ops.reshape(_matches(found), y_true.shape)


def pearson_correlation(y_true, y_pred, axis=-1):
    """How far labels and predictions lie on a line along an axis: 1, on a falling one -1."""
    y_true, y_pred = _as_floats(y_true, y_pred)
    y_true, y_pred = (x - ops.mean(x, axis=axis, keepdims=True) for x in (y_true, y_pred))
    y_true, y_pred = (x / ops.std(x, axis=axis, keepdims=True) for x in (y_true, y_pred))
    return ops.mean(y_true * y_pred, axis=axis)


def concordance_correlation(y_true, y_pred, axis=-1):
    """How far labels and predictions are equal along an axis: 1 where they are."""
    y_true, y_pred = _as_floats(y_true, y_pred)
    apart = ops.mean(y_true, axis=axis, keepdims=True) - ops.mean(y_pred, axis=axis, keepdims=True)
    spread = ops.var(y_true, axis=axis, keepdims=True) + ops.var(y_pred, axis=axis, keepdims=True) + ops.square(apart)
    shared = (y_true - ops.mean(y_true, axis=axis, keepdims=True)) * (y_pred - ops.mean(y_pred, axis=axis, keepdims=True))
    return ops.mean(2.0 * shared / (spread + epsilon()), axis=axis)


# --- making ----------------------------------------------------------------------------------------------------------------

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
        made = wrapped(_lockstep.Metric.deserialize(config))
        if isinstance(config, dict) and isinstance(config.get("config"), dict):
            dtype = config["config"].get("dtype")
            made._take_dtype(None if dtype == "float32" else dtype)  # that is what one says that was told none
        return made


def serialize(metric):
    """A configuration of it."""
    return saving.serialize_keras_object(metric)


def wrapped(handle):
    """The object of Python for a metric of the engine."""
    made = _known.get(handle.class_name, Metric)
    made = made.__new__(made)
    made._handle = handle
    return made
