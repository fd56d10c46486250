"""keras.optimizers."""

import inspect
import types as _types

from .. import _lockstep
from ..function import GradientTape
from ..tensor import convert_to_tensor, is_tensor
from . import saving
from ._configured import Configured, classes


class LearningRateSchedule(Configured):
    """A rate for every step. Derive from it and define __call__(step) to write one: it is traced into the step."""
    _kind = "schedule"
    _engine = None

    def _make(self, class_name, config):
        self._engine = _lockstep.Schedule.deserialize({"class_name": class_name, "config": config})

    def __call__(self, step):
        if self._engine is None:
            raise NotImplementedError(f"{type(self).__name__} defines no __call__(step)")
        return self._engine(step)

    def _engine_form(self):
        return None if self._engine is None else self._engine.serialize()


schedules = _types.ModuleType(__name__ + ".schedules",
                              "keras.optimizers.schedules: learning rates that change with the number of steps.")
_schedules = classes("schedule", LearningRateSchedule, schedules.__name__)
schedules.LearningRateSchedule = LearningRateSchedule
schedules.__dict__.update(_schedules)


def _schedule(config, custom_objects=None):
    """The schedule of a configuration."""
    with saving.custom_object_scope(custom_objects):
        return saving.deserialize_keras_object({"module": "keras.optimizers.schedules", **config})


schedules.deserialize, schedules.serialize = _schedule, saving.serialize_keras_object


class Optimizer(Configured):
    """How weights move by their gradients."""
    _kind = "optimizer"

    def _own(self, kwargs):
        if "lr" in kwargs:
            kwargs["learning_rate"] = kwargs.pop("lr")
        rate = kwargs.get("learning_rate")
        if callable(rate) and not isinstance(rate, LearningRateSchedule) and not inspect.signature(rate).parameters:
            kwargs["learning_rate"] = self._rate = lambda step: rate()
        kwargs.pop("jit_compile", None)
        return kwargs

    def _make(self, class_name, config):
        self._handle = _lockstep.Optimizer.deserialize({"class_name": class_name, "config": config})

    def apply_gradients(self, grads_and_vars, trainable_variables=None, **kwargs):
        """Updates every variable by its gradient."""
        if trainable_variables is not None:
            pairs = list(zip(grads_and_vars, trainable_variables))
        else:
            pairs = [tuple(pair) for pair in grads_and_vars]
        self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def apply(self, grads, trainable_variables=None):
        """The same, of two lists."""
        if trainable_variables is None:
            trainable_variables = self._built_for
            if trainable_variables is None:
                raise ValueError("apply: takes the variables of the gradients; after build(variables) they are those")
        variables = list(trainable_variables)
        self._handle.apply_gradients([_fitting(*pair) for pair in zip(grads, variables, strict=True)], variables)

    def minimize(self, loss, var_list, tape=None):
        """Differentiates a loss and updates the variables."""
        if tape is None:
            if not callable(loss):
                raise ValueError("minimize: a loss that is a tensor needs the tape that recorded it")
            with GradientTape() as tape:
                value = loss()
        else:
            value = loss() if callable(loss) and not is_tensor(loss) else loss
        variables = list(var_list() if callable(var_list) else var_list)
        return self.apply_gradients(zip(tape.gradient(value, variables), variables))

    def set_weights(self, weights):
        """Puts values into variables()."""
        mine, given = self.variables, list(weights)
        if len(mine) != len(given):
            raise ValueError(f"set_weights: there are {len(mine)} variables, {len(given)} values were given; call build() first")
        for variable, value in zip(mine, given):
            variable.assign(value)

    def build(self, var_list):
        """Makes the state for these variables."""
        self._built_for = list(var_list)
        self._handle.build(self._built_for)

    _built_for = None

    def scale_loss(self, loss):
        return self._handle.scale_loss(loss)

    get_scaled_loss = scale_loss

    def get_unscaled_gradients(self, grads):
        return grads  # apply_gradients() divides

    def finalize_variable_values(self, var_list):
        self._handle.finalize_variable_values(list(var_list))

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Weights that do not decay: these, and those that have one of these words in their names."""
        self._handle.exclude_from_weight_decay(list(var_names or ()), [variable._id for variable in var_list or ()])

    @property
    def learning_rate(self):
        """A variable; with a schedule, the rate of the next step."""
        if self._handle.scheduled:
            return self._handle.current_learning_rate()
        return self._handle.learning_rate()

    @learning_rate.setter
    def learning_rate(self, value):
        if callable(value) and not is_tensor(value):
            raise NotImplementedError("learning_rate: a schedule is given when the optimizer is made; a number may be set at any time")
        self._handle.set_learning_rate(float(value))

    lr = learning_rate

    @property
    def iterations(self):
        """Updates made so far."""
        return self._handle.iterations()

    @property
    def variables(self):
        return self._handle.variables()

    @property
    def name(self):
        return self._handle.name

    def _engine_form(self):
        return self._handle.serialize()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        if isinstance(config.get("learning_rate"), dict):
            config["learning_rate"] = _schedule(config["learning_rate"], custom_objects)
        return cls(**config)

    def __repr__(self):
        return f"<{type(self).__name__} {self.name}>"


def _fitting(gradient, variable):
    """A gradient in the dtype of its variable, as arrays of NumPy are not always."""
    if gradient is None or is_tensor(gradient) and gradient.dtype is variable.dtype:
        return gradient
    gradient = convert_to_tensor(gradient)
    return _lockstep.ops.cast(gradient, variable.dtype) if gradient.dtype.is_floating else gradient


_known = classes("optimizer", Optimizer, __name__, skip=("LossScaleOptimizer",))
globals().update(_known)


class LossScaleOptimizer(Optimizer):
    """For float16: scales the loss up, and skips steps whose gradients are not finite."""
    _class_name = "LossScaleOptimizer"
    _of_inner = {"weight_decay": None, "clipnorm": None, "global_clipnorm": None, "clipvalue": None, "use_ema": False,
                 "ema_momentum": 0.99, "ema_overwrite_frequency": None, "loss_scale_factor": None, "gradient_accumulation_steps": None}

    def __init__(self, inner_optimizer, initial_scale=2.0**15, dynamic_growth_steps=2000, name=None, **kwargs):
        if not kwargs.pop("dynamic", True):
            raise ValueError("LossScaleOptimizer: there is no dynamic=False; give the inner optimizer a loss_scale_factor")
        for setting, default in self._of_inner.items():  # files of older versions have them, with these values
            if kwargs.pop(setting, default) != default:
                raise ValueError(f"LossScaleOptimizer: {setting} is a setting of the inner optimizer")
        if kwargs:
            raise ValueError(f"LossScaleOptimizer: unknown arguments {', '.join(kwargs)}")
        config = {"inner_optimizer": inner_optimizer._serialized(), "initial_scale": initial_scale,
                  "dynamic_growth_steps": dynamic_growth_steps}
        if name:
            config["name"] = name
        self._make("LossScaleOptimizer", config)
        self.inner_optimizer = inner_optimizer


def get(identifier):
    """By name, by configuration, or as it is."""
    if identifier is None or isinstance(identifier, Optimizer):
        return identifier
    if inspect.isclass(identifier):
        return identifier()
    if not isinstance(identifier, (str, dict)):
        raise ValueError(f"an optimizer is a name, a configuration or an Optimizer, received {identifier!r}")
    return deserialize(identifier)


def deserialize(config, custom_objects=None):
    """The optimizer of a name or a configuration."""
    with saving.custom_object_scope(custom_objects):
        return wrapped(_lockstep.Optimizer.deserialize(config))


def serialize(optimizer):
    """A configuration of it."""
    return saving.serialize_keras_object(optimizer)


def wrapped(handle):
    """The object of Python for an optimizer of the engine."""
    made = _known.get(handle.serialize()["class_name"], Optimizer)
    made = made.__new__(made)
    made._handle = handle
    return made


legacy = _types.SimpleNamespace(**_known, Optimizer=Optimizer, LossScaleOptimizer=LossScaleOptimizer)
