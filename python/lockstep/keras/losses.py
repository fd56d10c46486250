"""keras.losses."""

import inspect
import weakref

from .. import _lockstep
from ..tensor import convert_to_tensor
from . import saving
from .backend import standardize_dtype
from ._configured import Configured, by_name, classes, configuration, parameters
from ._positions import ordered


class Loss(Configured):
    """Labels and predictions become a number. Derive from it and define call(y_true, y_pred) to write one."""
    _kind = "loss"
    _engine = _dtype = None

    def __init__(self, name=None, reduction="sum_over_batch_size", dtype=None):
        self._settings = (name or _snake(type(self).__name__), reduction)
        self._dtype = dtype

    def _own(self, kwargs):
        if kwargs.get("reduction") == "auto":
            kwargs.pop("reduction")
        return kwargs

    def _make(self, class_name, config):
        self._dtype = config.pop("dtype", None)
        if "reduction" in config and config["reduction"] is None:
            config["reduction"] = "none"
        self._engine = _lockstep.Loss.deserialize({"class_name": class_name, "config": config})

    @property
    def _handle(self):
        own = type(self).call is not Loss.call or type(self).__call__ is not Loss.__call__
        if own and self.__dict__.get("_written") is None:
            name, reduction = self._settings if self._engine is None else (self._engine.name, self.reduction)
            # A model that is compiled with it keeps it.
            self._written = _lockstep.Loss.written(weakref.proxy(self), name, reduction)
        return self.__dict__.get("_written") or self._engine

    def call(self, y_true, y_pred):
        """One loss an example."""
        if self._engine is None:
            raise NotImplementedError(f"{type(self).__name__} defines no call(y_true, y_pred)")
        return self._engine.losses(convert_to_tensor(y_true), convert_to_tensor(y_pred))

    def _losses_for_engine(self, y_true, y_pred):
        """A class may define the whole, whose mean it makes itself, in the place of call()."""
        return (self.call if type(self).__call__ is Loss.__call__ else self)(y_true, y_pred)

    def __call__(self, y_true, y_pred, sample_weight=None):
        if self._dtype is None:
            return self._handle(y_true, y_pred, sample_weight)
        y_true, y_pred = (_lockstep.ops.cast(convert_to_tensor(y), self.dtype) for y in (y_true, y_pred))
        return _lockstep.ops.cast(self._handle(y_true, y_pred, sample_weight), self.dtype)

    @property
    def name(self):
        return self._settings[0] if self._engine is None else self._engine.name

    @property
    def reduction(self):
        return self._settings[1] if self._engine is None else self._engine.serialize()["config"].get("reduction")

    @property
    def dtype(self):
        return standardize_dtype(getattr(self._dtype, "compute_dtype", self._dtype))

    def _engine_form(self):
        return None if self._engine is None else self._engine.serialize()

    def get_config(self):
        return {"name": self.name, "reduction": self.reduction} if self._engine is None else super().get_config()


def _snake(name):
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


class Reduction:
    """Keras 2's names."""
    AUTO = SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    SUM = "sum"
    NONE = "none"


_made = classes("loss", Loss, __name__)
globals().update(_made)


def _function(name, class_name):
    order = [name for name in ordered("loss", class_name, parameters("loss", class_name) or ())
             if name not in ("reduction", "name", "dtype")]

    def loss(y_true, y_pred, *args, **kwargs):
        config = configuration("loss", class_name, by_name(class_name, order, args, kwargs))
        config["reduction"] = "none"
        made = _lockstep.Loss.deserialize({"class_name": class_name, "config": config})
        return made(convert_to_tensor(y_true), convert_to_tensor(y_pred), None)
    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = f"One loss an example, as {class_name} computes it."
    loss._lockstep_loss = class_name
    return loss


_functions = {}
for _name, _class in {
        "mean_squared_error": "MeanSquaredError", "mse": "MeanSquaredError", "MSE": "MeanSquaredError",
        "mean_absolute_error": "MeanAbsoluteError", "mae": "MeanAbsoluteError", "MAE": "MeanAbsoluteError",
        "mean_absolute_percentage_error": "MeanAbsolutePercentageError", "mape": "MeanAbsolutePercentageError",
        "MAPE": "MeanAbsolutePercentageError", "MSLE": "MeanSquaredLogarithmicError",
        "mean_squared_logarithmic_error": "MeanSquaredLogarithmicError", "msle": "MeanSquaredLogarithmicError",
        "huber": "Huber", "log_cosh": "LogCosh", "logcosh": "LogCosh", "kl_divergence": "KLDivergence", "kld": "KLDivergence", "KLD": "KLDivergence",
        "kullback_leibler_divergence": "KLDivergence", "poisson": "Poisson", "ctc": "CTC", "dice": "Dice", "tversky": "Tversky", "circle": "Circle",
        "categorical_generalized_cross_entropy": "CategoricalGeneralizedCrossEntropy",
        "hinge": "Hinge", "squared_hinge": "SquaredHinge", "categorical_hinge": "CategoricalHinge",
        "cosine_similarity": "CosineSimilarity", "binary_crossentropy": "BinaryCrossentropy",
        "binary_focal_crossentropy": "BinaryFocalCrossentropy", "categorical_crossentropy": "CategoricalCrossentropy",
        "categorical_focal_crossentropy": "CategoricalFocalCrossentropy",
        "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy", "dice": "Dice", "tversky": "Tversky", "circle": "Circle", "ctc": "CTC",
        "categorical_generalized_cross_entropy": "CategoricalGeneralizedCrossEntropy"}.items():
    if _class not in _functions:  # its other names mean the same function
        _functions[_class] = _function(_name, _class)
    globals()[_name] = _functions[_class]


def get(identifier):
    """By name, by configuration, or as it is. The name of a function means that function, one loss an example."""
    if isinstance(identifier, str) and hasattr(globals().get(identifier), "_lockstep_loss"):
        return globals()[identifier]
    if inspect.isclass(identifier):
        return identifier()
    if identifier is None or callable(identifier):
        return identifier
    if isinstance(identifier, (str, dict)):
        return deserialize(identifier)
    raise ValueError(f"a loss is a name, a Loss or a function of labels and predictions, received {identifier!r}")


def as_loss(identifier):
    """The Loss that training minimises: what get() takes, as the mean over the batch."""
    if identifier is None or isinstance(identifier, Loss):
        return identifier
    if inspect.isclass(identifier):
        return identifier()
    if isinstance(identifier, (str, dict)):
        return deserialize(identifier)
    if hasattr(identifier, "_lockstep_loss"):
        return deserialize(identifier._lockstep_loss)
    if callable(identifier):
        made = Loss()
        name = getattr(identifier, "__name__", type(identifier).__name__)
        made._engine = _lockstep.Loss.from_function(identifier, name, "sum_over_batch_size")
        if name != "<lambda>":
            saving._tell_engine(name, identifier)
        return made
    raise TypeError(f"a loss is a name, a Loss or a function of labels and predictions, received {identifier!r}")


def deserialize(name, custom_objects=None):
    """The loss of a name or a configuration."""
    with saving.custom_object_scope(custom_objects):
        found = saving.of_python(name, as_loss)
        if found is not None:
            return found
        engine = _lockstep.Loss.deserialize(name)
        class_name = engine.serialize()["class_name"]
        made = _made.get(class_name, Loss)
        made = made.__new__(made)
        made._engine = engine
        return made


def serialize(loss):
    """A configuration of it."""
    return saving.serialize_keras_object(loss)
