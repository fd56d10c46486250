"""keras.applications: the networks of Lockstep's zoo, with weights that are not trained, and published ones of Hugging Face's."""

import os

from .. import _lockstep, _names
from .layers import wrapped


def _network(name):
    defaults = _lockstep.application_options(name)

    def make(**options):
        return wrapped(_lockstep.Model.application(name, options))
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The network {name}. Options: {', '.join(f'{key}={value!r}' for key, value in defaults.items())}."
    return make


for _name in _lockstep.application_names():
    globals()[_name] = _network(_name)


def from_hugging_face(folder):
    """The model of a folder with config.json and model.safetensors, weights and all: GPT-2, ViT, ResNet."""
    return wrapped(_lockstep.Model.from_hugging_face(os.fspath(folder)))


def __getattr__(name):
    raise _names.missing("keras.applications", name, globals())
