"""keras: Keras' surface over the engine."""

from . import (activations, applications, backend, callbacks, constraints, datasets, initializers, layers, losses, metrics,  # noqa: F401
               models, ops, optimizers, random, regularizers, saving, tree, utils)
from . import _older
from .. import _lockstep, _names
from .._lockstep import KerasTensor, Variable  # noqa: F401
from .initializers import Initializer  # noqa: F401
from .layers import Input, InputSpec, Layer  # noqa: F401
from .losses import Loss  # noqa: F401
from .metrics import Metric  # noqa: F401
from .models import Functional, Model, Sequential  # noqa: F401
from .optimizers import Optimizer  # noqa: F401
from ._remat import RematScope, remat  # noqa: F401
from ..config import device  # noqa: F401
from .regularizers import Regularizer  # noqa: F401

__version__ = "3.15.0+lockstep"


class DTypePolicy:
    """Which dtypes layers compute in and keep their weights in."""

    def __init__(self, name=None, source_name=None):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"a policy is a name, received {name!r}")
        self.name = name if name is not None else _lockstep.global_policy()
        _lockstep.check_policy(self.name)

    @property
    def compute_dtype(self):
        return self.name.replace("mixed_", "")

    @property
    def variable_dtype(self):
        return "float32" if self.name.startswith("mixed_") else self.name

    quantization_mode = None

    def get_config(self):
        return {"name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __eq__(self, other):
        return isinstance(other, DTypePolicy) and self.name == other.name or self.name == other

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return f'<DTypePolicy "{self.name}">'


class mixed_precision:
    """Which dtypes layers compute in and keep their weights in."""
    set_global_policy = set_dtype_policy = staticmethod(backend.set_dtype_policy)
    global_policy = dtype_policy = staticmethod(backend.dtype_policy)
    Policy = DTypePolicy = DTypePolicy
    LossScaleOptimizer = optimizers.LossScaleOptimizer


dtype_policies = mixed_precision


class preprocessing(metaclass=_names.Namespace):
    """Older names."""

    image_dataset_from_directory = staticmethod(utils.image_dataset_from_directory)
    timeseries_dataset_from_array = staticmethod(utils.timeseries_dataset_from_array)
    text_dataset_from_directory = staticmethod(utils.text_dataset_from_directory)
    audio_dataset_from_directory = staticmethod(utils.audio_dataset_from_directory)

    class image(metaclass=_names.Namespace):
        array_to_img, img_to_array = staticmethod(utils.array_to_img), staticmethod(utils.img_to_array)
        load_img, save_img = staticmethod(utils.load_img), staticmethod(utils.save_img)

        smart_resize = staticmethod(_older.smart_resize)

    class sequence(metaclass=_names.Namespace):
        pad_sequences = staticmethod(utils.pad_sequences)
        make_sampling_table, skipgrams = staticmethod(_older.make_sampling_table), staticmethod(_older.skipgrams)
        TimeseriesGenerator = _older.TimeseriesGenerator

    class text(metaclass=_names.Namespace):
        Tokenizer = _older.Tokenizer
        hashing_trick, one_hot = staticmethod(_older.hashing_trick), staticmethod(_older.one_hot_words)
        tokenizer_from_json, text_to_word_sequence = staticmethod(_older.tokenizer_from_json), staticmethod(_older.text_to_word_sequence)


config = backend
name_scope = backend.name_scope
for _name, _function in _older.functions.items():
    if not hasattr(backend, _name):
        setattr(backend, _name, _function)


def version():
    """Of Keras, whose names these are."""
    return __version__


def __getattr__(name):
    raise _names.missing("keras", name, globals())


for _module in (activations, backend, callbacks, constraints, datasets, initializers, layers, losses, metrics, models, ops, optimizers, random,
                regularizers, saving, tree, utils):
    _names.explain(_module)
