"""The objects of Python for layers and variables of the engine."""

import inspect
import weakref

from .. import _lockstep

objects = weakref.WeakValueDictionary()  # the object of Python for a layer of the engine
variables_by_number = weakref.WeakValueDictionary()  # the object of Python for a variable, by its number


def same_objects(variables):
    """Variables of the engine as those objects of Python that somebody holds already: a list of them equals itself."""
    return [variables_by_number.setdefault(variable._id, variable) for variable in variables]


def wrapped(handle):
    """The object of Python for a layer of the engine."""
    self = handle.python_self
    if self is not None:
        return self
    found = objects.get(handle.key)
    if found is None:
        from . import models
        if handle.class_name in ("Sequential", "Functional") and not isinstance(handle, _lockstep.Model):
            handle = _as_model(handle)
        if handle.class_name == "Sequential":
            cls, handle = models.Sequential, _lockstep.Sequential.of(handle)
        elif handle.class_name == "Functional" or isinstance(handle, _lockstep.Model):
            cls = models.Model
        else:
            from . import layers
            from ._layer import Layer
            cls = layers._engine_classes.get(handle.class_name, getattr(layers, handle.class_name, None))
            cls = cls if inspect.isclass(cls) and issubclass(cls, Layer) and not is_operation(handle) else Layer
        found = cls.__new__(cls)
        found._take(handle)
    return found


def is_operation(handle):
    """Whether a layer of the engine stands for an op between layers."""
    return handle.module.startswith(("keras.src.ops.", "keras.src.activations.", "lockstep."))


def _as_model(handle):
    """The handle of a layer that is a model, such as one inside of another, as a model's: the engine makes it of a reference to the layer."""
    _referred.append(handle)
    return _lockstep.Model.from_json('{"class_name": "ModelReference", "config": {}}')


_referred = []
_lockstep.register_object("layer", "ModelReference", lambda config: _referred.pop())

# A configuration that names a layer which is there already.
_lockstep.register_object("layer", "PythonReference", lambda config: objects[config["key"]]._handle)
