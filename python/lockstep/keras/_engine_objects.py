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
            handle = _lockstep.Model.of_layer(handle)
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
        if isinstance(handle, _lockstep.Model):
            _hold_layers(found, handle)
    return found


def _hold_layers(model, handle):
    """The objects of the layers of a model that the engine made live as long as it does and know it, so that they have inputs and outputs."""
    kind = "_sequential" if handle.class_name == "Sequential" else "_functional"
    model.__dict__["_objects"] = [wrapped(layer) for layer in handle.layers()]
    for layer in model.__dict__["_objects"]:
        layer.__dict__[kind] = weakref.ref(model)
    keys = handle.output_keys()
    if keys:
        model.__dict__["_output_structure"] = dict(zip(keys, handle.outputs()))


def ends_in(model, layer):
    """(inputs, outputs) of the last call of a layer in a functional model; of an input itself, as Keras has it."""
    for made, inputs, outputs in reversed(model._handle.layer_calls()):
        if made.key == layer._handle.key:
            return inputs or outputs, outputs
    return None


def is_operation(handle):
    """Whether a layer of the engine stands for an op between layers."""
    return handle.module.startswith(("keras.src.ops.", "keras.src.activations.", "lockstep."))


# A configuration that names a layer which is there already.
_lockstep.register_object("layer", "PythonReference", lambda config: objects[config["key"]]._handle)
