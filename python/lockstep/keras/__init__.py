"""keras: Keras' surface over the engine."""

from . import (activations, callbacks, constraints, datasets, initializers, layers, losses, metrics, models, ops, optimizers,  # noqa: F401
               random, regularizers, utils)
from .. import _lockstep, _names
from .._lockstep import KerasTensor, Variable  # noqa: F401
from .initializers import Initializer  # noqa: F401
from .layers import Input, Layer  # noqa: F401
from .losses import Loss  # noqa: F401
from .metrics import Metric  # noqa: F401
from .models import Functional, Model, Sequential  # noqa: F401
from .optimizers import Optimizer  # noqa: F401
from .regularizers import Regularizer  # noqa: F401

__version__ = "3.0.0+lockstep"


class mixed_precision:
    """Which dtypes layers compute in and keep their weights in."""

    @staticmethod
    def set_global_policy(policy):
        _lockstep.set_global_policy(getattr(policy, "name", policy))

    set_dtype_policy = set_global_policy

    @staticmethod
    def global_policy():
        return mixed_precision.Policy(_lockstep.global_policy())

    dtype_policy = global_policy

    class Policy:
        def __init__(self, name):
            self.name = name

        @property
        def compute_dtype(self):
            return self.name.replace("mixed_", "")

        @property
        def variable_dtype(self):
            return "float32" if self.name.startswith("mixed_") else self.name

        def __repr__(self):
            return f"<Policy {self.name!r}>"

    DTypePolicy = Policy


class preprocessing:
    """Older names."""

    class sequence:
        pad_sequences = staticmethod(utils.pad_sequences)


class backend:
    """Keras 2's module of ops; keras.ops has them."""

    @staticmethod
    def clear_session(free_memory=True):
        """Nothing is kept in a session."""

    @staticmethod
    def floatx():
        return "float32"

    @staticmethod
    def epsilon():
        return 1e-7

    @staticmethod
    def image_data_format():
        return "channels_last"

    @staticmethod
    def backend():
        return "lockstep"

    @staticmethod
    def get_value(x):
        return x.numpy()

    @staticmethod
    def set_value(x, value):
        x.assign(value)

    @staticmethod
    def learning_phase():
        return 0


for _name in ("mean", "sum", "max", "min", "square", "sqrt", "exp", "log", "abs", "clip", "dot", "concatenate", "reshape",
              "softmax", "sigmoid", "relu", "tanh", "cast", "argmax", "equal", "random"):
    if hasattr(ops, _name) and callable(getattr(ops, _name)):
        setattr(backend, _name, staticmethod(getattr(ops, _name)))

config = backend


def __getattr__(name):
    raise _names.missing("keras", name, globals())
