"""keras.saving: models as files, and the classes of your own that files name.

A class or a function of Python is known to files by the name that it was registered by: "package>name" of a class with
@register_keras_serializable(), the plain name of any other. The engine reads and writes files; where it meets such a name it asks
here, so that custom_objects, scopes and registered classes are looked up when something is made.
"""

import contextlib
import inspect
import json
import os
import threading
import weakref

import numpy as np

from .. import _lockstep, dtypes
from .._lockstep import KerasTensor
from ..tensor import TensorShape, constant, is_tensor
from . import _lambdas

_objects = {}  # registered: name in files -> object
_names = {}  # id of a registered object -> (its name in files, the object)
_scopes = threading.local()
_classes = weakref.WeakValueDictionary()  # classes of this program that were not registered, by name
_told = set()  # (kind, name) that the engine was told

# Of what a function may be in a file.
_FUNCTIONS = ("activation", "loss", "metric", "initializer", "regularizer", "constraint", "schedule")


# --- names ---------------------------------------------------------------------------------------------------------------

def register_keras_serializable(package="Custom", name=None):
    """Makes a class or a function of your own known to files, as "package>name"."""
    def register(obj):
        if inspect.isclass(obj) and not hasattr(obj, "get_config"):
            raise ValueError(f"register_keras_serializable: the class {obj.__name__} has no get_config(), so no file can hold it")
        full = f"{package}>{name or obj.__name__}"
        _objects[full] = obj
        _names[id(obj)] = (full, obj)
        _tell_engine(full, obj)
        return obj
    return register


def get_registered_name(obj):
    """What files call it: "package>name", or its own name."""
    found = _names.get(id(obj))
    return found[0] if found else obj.__name__


def get_custom_objects():
    """The objects by name that are known everywhere; may be changed."""
    return _objects


def get_registered_object(name, custom_objects=None, module_objects=None):
    """What files mean by a name; None: nothing known."""
    for objects in [*reversed(_stack()), _objects, custom_objects or {}, module_objects or {}]:
        if name in objects:
            return objects[name]
    return None


def _stack():
    if not hasattr(_scopes, "stack"):
        _scopes.stack = []
    return _scopes.stack


@contextlib.contextmanager
def custom_object_scope(custom_objects):
    """Names that files may use inside of this scope."""
    objects = dict(custom_objects or {})
    for name, obj in objects.items():
        _tell_engine(name, obj)
    _stack().append(objects)
    try:
        yield
    finally:
        _stack().pop()


CustomObjectScope = custom_object_scope


# --- what the engine asks for --------------------------------------------------------------------------------------------

def _tell_engine(name, obj):
    """From now on the engine asks for this name where a file has it."""
    kinds = [obj._kind] if inspect.isclass(obj) and hasattr(obj, "_kind") else _FUNCTIONS if callable(obj) else ()
    for kind in kinds:
        if kind is None or (kind, name) in _told or _is_engines(kind, name):
            continue
        _told.add((kind, name))
        if kind == "activation":
            _lockstep.register_object(kind, name, lambda x, name=name: _resolved(name)(x))
        else:
            _lockstep.register_object(kind, name, lambda config, name=name, kind=kind: _made_for_engine(kind, name, config))


def make_known(cls):
    """What files call a class, which the engine knows from now on: "Package>Name", "module:Name" of a layer that was not registered, the
    module alone of one of Keras' own."""
    if cls.__module__.startswith("lockstep.keras.") and getattr(cls, "_kind", None) == "layer":
        return "keras.layers"
    name = get_registered_name(cls)
    if ">" in name:
        _tell_engine(name, cls)
        return name
    _classes[name] = cls
    _tell_engine(f"Custom>{name}", cls)
    if getattr(cls, "_kind", None) != "layer" or (("layer", name) not in _told and _is_engines("layer", name)):
        return f"Custom>{name}"
    _tell_engine(name, cls)
    return f"{cls.__module__}:{name}"


def _is_engines(kind, name):
    return name in (_lockstep.activation_names() if kind == "activation" else _lockstep.class_names(kind))


def known(name):
    """What a file means by a name; None: nothing. Keras' default package stands for none, and a class of this very program needs no
    registration."""
    plain = name.removeprefix("Custom>")
    found = get_registered_object(name) or get_registered_object(plain) or _classes.get(plain)
    if found is None and ">" not in plain:  # functions go by their own names: of one package, that one is meant
        packaged = [obj for full, obj in _objects.items() if full.endswith(f">{plain}")]
        found = packaged[0] if len(packaged) == 1 else None
    return found


def of_python(config, get):
    """The loss or metric that is written in Python and meant by a name or a configuration, by get() of the function or the class; None:
    it is one of the engine's."""
    if isinstance(config, dict):
        name = config["config"] if config.get("class_name") == "function" else config.get("registered_name")
    else:
        name = config
    found = None if name is None else known(name)
    if found is None:
        return None
    return deserialize_keras_object(config) if inspect.isclass(found) and isinstance(config, dict) else get(found)


def _resolved(name):
    found = known(name)
    if found is None:
        raise ValueError(f"a file names {name!r}, which is not known here: give it in custom_objects, or register it by "
                         "@keras.saving.register_keras_serializable()")
    return found


_made = threading.local()  # objects of Python that the engine does not keep itself, while a model is read


def _made_for_engine(kind, name, config):
    obj = _resolved(name)
    if inspect.isclass(obj):
        made = obj.from_config(_revived_config(config))
        keep(made)
        return made._handle if kind in ("layer", "loss", "metric", "optimizer") else made
    if kind == "loss":
        from . import losses
        made = losses.as_loss(obj)
    elif kind == "metric":
        from . import metrics
        made = metrics.get(obj)
    else:
        return obj
    keep(made)
    return made._handle


def keep(made):
    """Holds what is made for a model that is being read, as long as that lives."""
    if getattr(_made, "list", None) is not None:
        _made.list.append(made)


def is_reading():
    """Whether a model is being read, or made of a configuration."""
    return getattr(_made, "list", None) is not None


def is_writing_archive():
    """Whether a .keras file is being written, in which layers may keep files of their own."""
    return getattr(_made, "archive", False)


def saved_form(obj):
    """(class name, configuration) of what is written in Python, as files hold it."""
    if inspect.isfunction(obj) or inspect.ismethod(obj) or inspect.isbuiltin(obj):
        if obj.__name__ == "<lambda>":
            raise ValueError("a lambda has no name by which a file could hold it: define a function")
        return "function", get_registered_name(obj)
    cls = obj.__class__  # also of a weak reference to it
    if hasattr(cls, "_saved_form"):
        return obj._saved_form()
    if not hasattr(cls, "get_config"):
        raise ValueError(f"{cls.__name__} has no get_config(), so no file can hold it")
    return make_known(cls), _plain(obj.get_config())


_lockstep.introduce_files(saved_form)


# --- configurations ------------------------------------------------------------------------------------------------------

def _plain(value):
    """A configuration as JSON holds it."""
    return serialize_keras_object(value)


def serialize_keras_object(obj):
    """An object as files hold it: a dictionary with its class and its configuration."""
    if obj is None or isinstance(obj, (str, int, float, bool)):
        return obj
    if isinstance(obj, TensorShape):
        return list(obj)
    if isinstance(obj, (list, tuple)):
        return type(obj)(serialize_keras_object(part) for part in obj) if type(obj) in (list, tuple) \
            else [serialize_keras_object(part) for part in obj]
    if isinstance(obj, dict):
        return {key: serialize_keras_object(part) for key, part in obj.items()}
    if isinstance(obj, bytes):
        return {"class_name": "__bytes__", "config": {"value": obj.decode("utf-8")}}
    if isinstance(obj, slice):
        return {"class_name": "__slice__", "config": {name: serialize_keras_object(getattr(obj, name)) for name in ("start", "stop", "step")}}
    if obj is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(obj, dtypes.DType):
        return obj.name
    if isinstance(obj, np.generic) or (isinstance(obj, np.ndarray) and obj.ndim == 0):
        return obj.item()
    if isinstance(obj, np.ndarray):
        return {"class_name": "__numpy__", "config": {"value": obj.tolist(), "dtype": obj.dtype.name}}
    if is_tensor(obj):
        return {"class_name": "__tensor__", "config": {"value": obj.numpy().tolist(), "dtype": obj.dtype.name}}
    if isinstance(obj, KerasTensor):
        raise ValueError("a value of a model that is being put together is no part of a configuration")
    if hasattr(obj, "_lockstep_activation"):
        return obj._lockstep_activation
    if inspect.isclass(obj):
        return {"module": obj.__module__, "class_name": obj.__name__, "config": {}, "registered_name": get_registered_name(obj)}
    if _lambdas.is_lambda(obj):
        return {"class_name": "__lambda__", "config": {"value": serialize_keras_object(_lambdas.written(obj))}}
    if callable(obj) and hasattr(obj, "__name__"):
        class_name, name = saved_form(obj)
        return {"module": "builtins", "class_name": class_name, "config": name, "registered_name": name}
    if hasattr(obj, "_serialized_for_file"):
        return obj._serialized_for_file()
    name, config = saved_form(obj)
    return {"module": None if ">" in name else type(obj).__module__, "class_name": type(obj).__name__, "config": config,
            "registered_name": name}


def deserialize_keras_object(config, custom_objects=None, safe_mode=None, **kwargs):
    """The object that serialize_keras_object() described."""
    with custom_object_scope(custom_objects), _lambdas.safe_mode(safe_mode):
        return _revived(config)


def _revived(config):
    if isinstance(config, list):
        return [_revived(part) for part in config]
    if isinstance(config, tuple):
        return tuple(_revived(part) for part in config)
    if not isinstance(config, dict):
        return config
    if "class_name" not in config or "config" not in config:
        return {key: _revived(part) for key, part in config.items()}
    name, inner = config["class_name"], config["config"]
    if name == "__bytes__":
        return inner["value"].encode("utf-8")
    if name == "__slice__":
        return slice(*(_revived(inner[name]) for name in ("start", "stop", "step")))
    if name == "__ellipsis__":
        return Ellipsis
    if name == "__numpy__":
        return np.array(inner["value"], dtype=inner["dtype"])
    if name == "__tensor__":
        return constant(inner["value"], dtype=inner["dtype"])
    if name == "__lambda__":
        return _lambdas.read(*_revived(inner["value"]) if "value" in inner else (_revived(inner[part]) for part in ("code", "defaults", "closure")))
    if name == "function":
        if not isinstance(inner, str):
            raise TypeError(f"a function is known by its name. Expected 'config' to be a non-null string, received {inner!r}")
        return known(inner) or _module_function(config)
    found = known(config.get("registered_name") or name)
    if found is None:
        found = _public_class(config.get("module"), name)
    if found is None:
        _resolved(config.get("registered_name") or name)
    if not inspect.isclass(found) and not hasattr(found, "from_config"):
        return found
    made = found.from_config(_revived_config(inner))
    build = config.get("build_config")
    if build and hasattr(made, "build_from_config"):
        made.build_from_config(build)
    if config.get("compile_config") and hasattr(made, "compile_from_config"):
        made.compile_from_config(config["compile_config"])
    return made


def _revived_config(config):
    """What a file has of the arguments of a class of your own: numbers and texts as they are, arrays made again."""
    special = ("__bytes__", "__slice__", "__ellipsis__", "__numpy__", "__tensor__")
    if isinstance(config, dict):
        if config.get("class_name") in special:
            return _revived(config)
        return {key: _revived_config(part) for key, part in config.items()}
    return [_revived_config(part) for part in config] if isinstance(config, list) else config


def _module_function(config):
    from . import activations, losses, metrics
    for module in (activations, losses, metrics):
        found = getattr(module, config["config"], None)
        if found is not None:
            return found
    return _resolved(config["config"])


def _public_class(module, name):
    """A class of Keras', by the module that files name."""
    from .. import keras
    parts = (module or "keras.layers").split(".")
    places = [keras] + [getattr(keras, part) for part in ("layers", "models", "losses", "metrics", "optimizers", "initializers",
                                                          "regularizers", "constraints")] + [keras.optimizers.schedules]
    found = keras
    for part in parts[1:]:
        found = getattr(found, part, None) if part != "src" else found
    if found is not None and inspect.isclass(getattr(found, name, None)):
        return getattr(found, name)
    if parts[0] != "keras":
        return None
    return next((getattr(place, name) for place in places if inspect.isclass(getattr(place, name, None))), None)


# --- files ---------------------------------------------------------------------------------------------------------------

def save_model(model, filepath, overwrite=True, zipped=None, **kwargs):
    """Saves a whole model: layers, weights, and what it was compiled with. The file ends in .keras, or in .h5, which is Keras' older format."""
    include_optimizer = bool(kwargs.pop("include_optimizer", True))
    kwargs.pop("save_format", None)
    if kwargs:
        raise ValueError(f"save: unknown arguments {', '.join(kwargs)}")
    path = os.fspath(filepath)
    if zipped is False:
        raise NotImplementedError("save: a model is one file here (zipped=True); load_model() reads folders, too")
    if not path.endswith((".keras", ".h5", ".hdf5")):
        raise ValueError(f"save: {path!r} must end in .keras, or in .h5 for Keras' older format; there is no SavedModel, and "
                         "model.export(path, format=\"onnx\") writes ONNX")
    _check_overwrite(path, overwrite)
    if '"<lambda>' in model.to_json():
        raise ValueError("save: an activation is a lambda, which has no name by which a file could hold it: define a function")
    _made.archive = path.endswith(".keras")
    try:
        if getattr(model, "_stage", None) is None:
            model._handle.save(path, include_optimizer)
        else:
            from . import _text_files
            _text_files.save(model, path, include_optimizer)
    finally:
        _made.archive = False


def _by_any_names(read):
    """What read() makes of a file. Layers in attributes have Keras' names in files. Lockstep gave some of them others before it had models of
    texts: where nothing fits by Keras' names, the file is read again by those."""
    before = getattr(_made, "names", None)
    _made.names = names = _Names()
    try:
        try:
            return read()
        except Exception as error:
            if not names.differ:
                raise
            wrong = error
        names.are_older = True
        with contextlib.suppress(Exception):  # what is wrong by Keras' names is what is told
            return read()
        raise wrong
    finally:
        _made.names = before


class _Names:
    are_older, differ = False, False


def names_to_read_by(names, older):
    """The names by which layers are found in a file, of Keras' and of those that Lockstep gave them before."""
    reading = getattr(_made, "names", None)
    if reading is None:
        return names
    reading.differ = reading.differ or names != older
    return older if reading.are_older else names


def load_model(filepath, custom_objects=None, compile=True, safe_mode=True):
    """A model that save() wrote, here, in Keras 3 or, as .h5, in Keras 2: compiled, where it was, it goes on training where it stood."""
    from . import _feature_space, _text_files
    from .layers import wrapped
    path = os.fspath(filepath)
    if not os.path.exists(path):
        raise ValueError(f"load_model: there is no file {path!r}. A .keras file, the folder that one unpacks to, or an .h5 file is read")
    with custom_object_scope(custom_objects), _lambdas.safe_mode(safe_mode):
        if (space := _feature_space.in_file(path)) is not None:
            return space
    with custom_object_scope(custom_objects), _lambdas.safe_mode(safe_mode), _kept_by() as kept, _text_files.readable(path) as (readable, texts):
        model = wrapped(_by_any_names(lambda: _lockstep.Model.load(readable, bool(compile))))
        model.__dict__["_made_with"] = kept
        _text_files.mark_inputs(model, texts)
        model._take_compiled()
    return model


@contextlib.contextmanager
def _kept_by():
    """What the engine has made in Python inside of this scope and does not keep itself."""
    before = getattr(_made, "list", None)
    _made.list = []
    try:
        yield _made.list
    finally:
        _made.list = before


def model_from_json(json_string, custom_objects=None):
    """A model of Keras' JSON."""
    from . import _text_files
    from .layers import wrapped
    with custom_object_scope(custom_objects), _kept_by() as kept:
        readable, texts = _text_files.without_texts(json_string.encode())
        model = wrapped(_lockstep.Model.from_json(readable.decode()))
        model.__dict__["_made_with"] = kept
        _text_files.mark_inputs(model, texts)
        model._take_compiled()
    return model


def model_from_config(config, custom_objects=None):
    """The same, of the dictionary."""
    return model_from_json(json.dumps(serialize_keras_object(config), ensure_ascii=False), custom_objects)


def save_weights(model, filepath, overwrite=True, max_shard_size=None, **kwargs):
    """Weights: .weights.h5 as Keras 3 writes them, any other name as safetensors by path names."""
    if max_shard_size is not None:
        raise NotImplementedError("save_weights: weights are one file (no max_shard_size)")
    path = os.fspath(filepath)
    _check_overwrite(path, overwrite)
    model._handle.save_weights(path)


def load_weights(model, filepath, skip_mismatch=False, objects_to_skip=None, **kwargs):
    """Weights of a file that save_weights(), save(), Keras 3, Keras 2, TensorFlow or Hugging Face wrote."""
    if skip_mismatch or objects_to_skip or kwargs.get("by_name"):
        raise NotImplementedError("load_weights: a file fits the model or is refused whole (no skip_mismatch, no by_name)")
    _by_any_names(lambda: model._handle.load_weights(os.fspath(filepath)))


def _check_overwrite(path, overwrite):
    if not overwrite and os.path.exists(path):
        raise FileExistsError(f"{path!r} exists; overwrite=True replaces it")


class KerasFileEditor:
    def __init__(self, *_, **__):
        raise NotImplementedError("KerasFileEditor: h5py opens .weights.h5 files")
