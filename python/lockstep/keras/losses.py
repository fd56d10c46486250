"""keras.losses."""

import weakref

from .. import _lockstep
from ..tensor import convert_to_tensor
from ._configured import classes, configuration, parameters


class Loss:
    """Labels and predictions become a number. Derive from it and define call(y_true, y_pred) to write one."""
    _kind = "loss"

    def __init__(self, name=None, reduction="sum_over_batch_size", dtype=None):
        self._settings = (name or type(self).__name__, reduction)
        self._engine = None

    def _own(self, kwargs):
        if kwargs.get("reduction") == "auto":
            kwargs.pop("reduction")
        return kwargs

    def _make(self, class_name, config):
        if "reduction" in config and config["reduction"] is None:
            config["reduction"] = "none"
        self._engine = _lockstep.Loss.deserialize({"class_name": class_name, "config": config})

    @property
    def _handle(self):
        if self._engine is None:
            itself = weakref.ref(self)  # a model that is compiled with it keeps it
            self._engine = _lockstep.Loss.from_function(lambda y_true, y_pred: itself().call(y_true, y_pred), *self._settings)
        return self._engine

    def call(self, y_true, y_pred):
        raise NotImplementedError(f"{type(self).__name__} defines no call(y_true, y_pred)")

    def __call__(self, y_true, y_pred, sample_weight=None):
        return self._handle(y_true, y_pred, sample_weight)

    @property
    def name(self):
        return self._handle.name

    @property
    def reduction(self):
        return self.get_config().get("reduction") if self._engine is not None else self._settings[1]

    def get_config(self):
        return self._handle.serialize()["config"]

    def _serialized(self):
        return self._handle.serialize()

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __repr__(self):
        return f"<{type(self).__name__} {self.name}>"


class Reduction:
    """Keras 2's names."""
    AUTO = SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    SUM = "sum"
    NONE = "none"


_made = classes("loss", Loss, __name__)
globals().update(_made)
KLD = _made["KLDivergence"]


def _function(name, class_name):
    first = tuple(parameters("loss", class_name) or ())

    def loss(y_true, y_pred, *args, **kwargs):
        config = configuration("loss", class_name, args, kwargs, first)
        config["reduction"] = "none"
        made = _lockstep.Loss.deserialize({"class_name": class_name, "config": config})
        return made(convert_to_tensor(y_true), convert_to_tensor(y_pred), None)
    loss.__name__ = loss.__qualname__ = name
    loss.__doc__ = f"One loss an example, as {class_name} computes it."
    loss._lockstep_loss = class_name
    return loss


for _name, _class in {
        "mean_squared_error": "MeanSquaredError", "mse": "MeanSquaredError", "MSE": "MeanSquaredError",
        "mean_absolute_error": "MeanAbsoluteError", "mae": "MeanAbsoluteError", "MAE": "MeanAbsoluteError",
        "mean_absolute_percentage_error": "MeanAbsolutePercentageError", "mape": "MeanAbsolutePercentageError",
        "mean_squared_logarithmic_error": "MeanSquaredLogarithmicError", "msle": "MeanSquaredLogarithmicError",
        "huber": "Huber", "log_cosh": "LogCosh", "kl_divergence": "KLDivergence", "kld": "KLDivergence", "poisson": "Poisson",
        "hinge": "Hinge", "squared_hinge": "SquaredHinge", "categorical_hinge": "CategoricalHinge",
        "cosine_similarity": "CosineSimilarity", "binary_crossentropy": "BinaryCrossentropy",
        "binary_focal_crossentropy": "BinaryFocalCrossentropy", "categorical_crossentropy": "CategoricalCrossentropy",
        "categorical_focal_crossentropy": "CategoricalFocalCrossentropy",
        "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy"}.items():
    globals()[_name] = _function(_name, _class)


def get(identifier):
    """By name, by configuration, a function of labels and predictions, or as it is."""
    if identifier is None or isinstance(identifier, Loss):
        return identifier
    made = Loss()
    if isinstance(identifier, (str, dict)):
        made._engine = _lockstep.Loss.deserialize(identifier)
    elif hasattr(identifier, "_lockstep_loss"):
        made._engine = _lockstep.Loss.deserialize(identifier._lockstep_loss)
    elif callable(identifier):
        name = getattr(identifier, "__name__", type(identifier).__name__)
        made._engine = _lockstep.Loss.from_function(identifier, name, "sum_over_batch_size")
    else:
        raise TypeError(f"a loss is a name, a Loss or a function of labels and predictions, received {identifier!r}")
    return made


deserialize = get
