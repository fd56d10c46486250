"""What layers are in files: their configuration, where they keep what, and what a class keeps in its own way."""

import inspect
import pathlib
import re
import tempfile

import numpy as np

from .. import nest
from ..tensor import convert_to_tensor
from . import saving
from ._shapes import plain_shape

# Attributes of objects of the front, which files do not know.
_FRONT = ("_handle", "_local", "_held", "_input_shape_given", "_weights_given", "_symbolic", "_sequential", "_functional", "_compiled", "_strategy",
          "_made_with", "_objects", "_called_layers", "_last_output", "_structure_of_inputs", "_structure_of_results")


class InFiles:
    """A layer as files know it."""

    def _arguments_by_name(self):
        """What a class without a get_config() was made with; None: no configuration can hold it."""
        args, kwargs = self.__dict__.get("_arguments") or ((), {})
        try:
            bound = inspect.signature(type(self)).bind(*args, **kwargs)
        except TypeError:
            return None
        given = {name: value for name, value in bound.arguments.items() if bound.signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD}
        given.update(next((value for name, value in bound.arguments.items() if name not in given), {}))
        simple = (bool, int, float, str, dict, list, tuple, type(None), np.number)
        return given if all(isinstance(leaf, simple) or hasattr(leaf, "get_config") for leaf in nest.flatten(given)) else None

    def get_config(self):
        if self._is_written:
            policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": self._handle.dtype_policy}, "registered_name": None}
            config = {"name": self.name, "trainable": self.trainable, "dtype": policy}
            if "_inner" in self.__dict__:
                config = {**self._inner.get_config(), **config}
            if type(self).get_config is not InFiles.get_config or not _has_a_constructor(type(self)) or "_inner" in self.__dict__:
                return config
            # A class that says nothing of its own: the arguments of its constructor, and of these here those that it takes.
            parameters = inspect.signature(type(self)).parameters
            takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
            given = self._arguments_by_name()
            if given is None:
                raise NotImplementedError(f"{type(self).__name__} takes arguments that no configuration holds, and defines no get_config()")
            return {**(config if takes_all else {name: value for name, value in config.items() if name in parameters}), **given}
        config = {"name": self.name, "trainable": self.trainable, **self._handle.get_config()}
        if config.get("activity_regularizer", "") is None:
            del config["activity_regularizer"]
        return {name: _tuples(value) if name in _SIZES else value for name, value in config.items()}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        with saving.custom_object_scope(custom_objects):
            return cls(**config)

    def _stored_names(self, keys):
        """Where Keras' files keep the layers inside: under the names of the attributes that hold them. None: all are numbered by class."""
        held = {name: value for name, value in vars(self).items() if not name.startswith("__") and name not in _FRONT}
        older = self._names_in(keys, sorted(held.items()))
        if hasattr(type(self), "layers"):  # a model's list of its layers is an attribute like others, and some come behind it
            held["layers"] = self.layers
        names = self._names_in(keys, sorted(held.items(), key=lambda item: (item[0].startswith("_"), item[0])))
        return saving.names_to_read_by(names, older)

    def _names_in(self, keys, held):
        """The same with attributes in this order, each a name and a value: a layer is named by the first that holds it."""
        places = {self._inner.key: "."} if "_inner" in self.__dict__ else {}

        def visit(value, path):
            if isinstance(value, InFiles):
                places.setdefault(value._handle.key, path)
            elif isinstance(value, (list, tuple, dict)):
                used = {}
                for part in value.values() if isinstance(value, dict) else value:
                    if isinstance(part, (InFiles, list, tuple, dict)):
                        name = _in_files(type(part).__name__) if isinstance(part, InFiles) else "container"
                        count = used[name] = used.get(name, -1) + 1
                        visit(part, f"{path}/{name}" + (f"_{count}" if count else ""))
        for name, value in held:
            visit(value, name)
        return [places[key] for key in keys] if all(key in places for key in keys) else None

    def _config_for_engine(self):
        return saving._plain(self.get_config())

    def load_own_variables(self, store):
        """Weights of this layer alone, by number, as files of Keras have them."""
        own = self._own_weights()
        if len(store) != len(own):
            raise ValueError(f"layer \"{self.name}\" has {len(own)} weights, {len(store)} were given"
                             + ("" if self.built else "; it is not built yet"))
        for number, weight in enumerate(own):
            weight.assign(store[str(number)])

    def save_own_variables(self, store):
        """The same, the other way."""
        for number, weight in enumerate(self._own_weights()):
            store[str(number)] = weight.numpy()

    def build_from_config(self, config):
        """Makes the weights as a file says that they were made."""
        if config:
            shape = config.get("input_shape", config.get("shapes_dict", config))
            self.build(**shape) if isinstance(shape, dict) and "shapes_dict" in config else self.build(shape)

    def get_build_config(self):
        """The shapes of the inputs that it was built for."""
        _, named = self.__dict__.get("_built_with", ((), {}))
        if named:
            return {"shapes_dict": {name: plain_shape(shape) for name, shape in named.items()}}
        shapes = [tuple(None if size is not None and size < 0 else size for size in shape) for shape in self._handle.build_shapes]
        return {"input_shape": shapes[0] if len(shapes) == 1 else shapes} if shapes else None

    def _build_config_for_engine(self):
        return None if self._inputs_are_arguments else saving.serialize_keras_object(self.get_build_config())

    def _build_of_file(self, config):
        self.build_from_config(saving.deserialize_keras_object(config))
        if not self._handle.built:  # its weights were made in another way than by build()
            self._local.is_made = True
            self._handle.build([])

    @property
    def _keeps_values(self):
        own = type(self)
        return own.save_own_variables is not InFiles.save_own_variables or own.load_own_variables is not InFiles.load_own_variables

    def _values_for_file(self):
        store = {}
        self.save_own_variables(store)
        return {str(name): convert_to_tensor(value) for name, value in store.items()}

    def _values_of_file(self, values):
        self.load_own_variables({name: value.numpy() for name, value in values.items()})

    @property
    def _keeps_files(self):
        return hasattr(self, "save_assets") and hasattr(self, "load_assets")

    def _files_for_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.save_assets(folder)
            files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def _files_of_file(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.load_assets(folder)

    @property
    def _name_in_files(self):
        return saving.make_known(type(self))

    def _serialized_for_file(self):
        return self._handle.serialize()

    def _form_as_activation(self):
        """What a layer has in its configuration whose activation this one is; None: it is written in Python, a function like others."""
        return None if self._is_written else {"module": "keras.layers", "registered_name": None, **self._handle.serialize()}

    def _by_reference(self):
        return {"class_name": "PythonReference", "config": {"key": self._handle.key}}

    def __reduce__(self):
        return _unpickled, (saving.serialize_keras_object(self), self.get_build_config() if self.built else None, self.get_weights())


def _unpickled(form, build, weights):
    made = saving.deserialize_keras_object(form)
    if build is not None:
        made.build_from_config(build)
    if weights:
        made.set_weights(weights)
    return made


# Settings that are tuples in Keras' configurations.
_SIZES = ("kernel_size", "strides", "dilation_rate", "pool_size", "output_size", "target_shape", "cropping", "padding", "size", "dims",
          "noise_shape", "factor", "height_factor", "width_factor")


def _tuples(value):
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _has_a_constructor(cls):
    """Whether a class of Python's takes arguments of its own."""
    from ._layer import Layer
    return cls.__init__ is not Layer.__init__


def _in_files(class_name):
    """Keras' rule for names of classes in files."""
    name = re.sub(r"\W+", "", class_name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
