"""What keras.src is while Keras' own tests run: the public names of lockstep.keras behind Keras' inner ones.

The tests name what they test by Keras' inner modules, keras.src.layers.core.dense.Dense. Keras' public modules say which public name
that is (public_names()), and the public name is looked up in lockstep.keras. The classes of ops, keras.src.ops.numpy.Add, have no public
name; what Keras' public function add() makes of them does, so that such a class stands for that function (OpClasses).
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import types

OTHER_FRAMEWORKS = ("tensorflow", "jax", "torch", "openvino", "grain", "flax", "sklearn", "tf2onnx", "onnxruntime", "orbax", "ai_edge_litert",
                    "scipy", "pandas", "h5py", "PIL", "requests", "matplotlib")


class NotApplicable(Exception):
    pass


class Absent(NotApplicable):
    pass


class Missing:
    """Stands for a name that is not here. It may be imported and handed around; using it says why the case does not apply."""

    def __init__(self, name, error):
        self.__dict__.update(_name=name, _error=error)

    def _refuse(self, *_, **__):
        raise self._error(self._name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}", self._error)

    __call__ = __instancecheck__ = __subclasscheck__ = __iter__ = __enter__ = __bool__ = __eq__ = __mro_entries__ = _refuse
    __getitem__ = __setattr__ = _refuse
    __hash__ = object.__hash__


def public_names(folder):
    """"keras.src.layers.core.dense.Dense" -> ["keras.layers.Dense"], as the files of Keras' public modules say it: all its names."""
    names = {}
    for path in sorted(folder.rglob("__init__.py")):
        place = path.parent.relative_to(folder)
        if place.parts[:1] in (("src",), ("_tf_keras",), ("legacy",)):
            continue
        module = ".".join(("keras",) + place.parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("keras.src"):
                for alias in node.names:
                    names.setdefault(f"{node.module}.{alias.name}", []).append(f"{module}.{alias.asname or alias.name}")
    return names


def _attribute_call(node):
    """Class(...).symbolic_call(...) as (the making of the class, the call); None: the node is something else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "symbolic_call":
        return None
    made = node.func.value
    return (made, node) if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else None


def _parameters_of(function):
    given = function.args
    return [arg.arg for arg in given.posonlyargs + given.args], {arg.arg for arg in given.kwonlyargs}, \
        given.vararg and given.vararg.arg, given.kwarg and given.kwarg.arg


class OpClasses:
    """Classes of ops in the place of Keras' inner ones: Append(axis=1)(a, b) and Append(axis=1).symbolic_call(a, b) are
    keras.ops.append(a, b, axis=1), because Keras' own append() is written as Append(axis=axis).symbolic_call(x1, x2)."""

    def __init__(self, folder, public, lookup):
        self._lookup, self._forms = lookup, {}
        for path in sorted((folder / "src" / "ops").glob("*.py")):
            if path.stem.endswith("_test"):
                continue
            inner = f"keras.src.ops.{path.stem}"
            body = ast.parse(path.read_text()).body
            classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
            for function in (node for node in body if isinstance(node, ast.FunctionDef)):
                name = public.get(f"{inner}.{function.name}")
                for found in filter(None, map(_attribute_call, ast.walk(function))) if name else ():
                    cls = classes.get(found[0].func.id)
                    if cls is not None:
                        self._forms.setdefault(f"{inner}.{cls.name}", (name, function, cls, *found))

    def get(self, inner):
        """The class; None: there is none of this name."""
        if inner not in self._forms:
            return None
        public, function, cls, made, call = self._forms[inner]
        target = self._lookup(*public)
        if target is None:
            return Missing(f"there is no {min(public, key=len)}", Absent)
        methods = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
        return _op_class(cls.name, target, _parameters_of(function), _Renaming(made, methods.get("__init__")),
                         _Renaming(call, methods.get("call")))


class _Renaming:
    """From the arguments of a method to those of the public function that calls it with its own."""

    def __init__(self, call, method):
        self._own = _parameters_of(method)[0][1:] if method is not None else []  # without self
        self._of, self._rest = {}, None
        for number, value in enumerate(call.args):
            if isinstance(value, ast.Starred) and isinstance(value.value, ast.Name):
                self._rest = value.value.id
            elif isinstance(value, ast.Name) and number < len(self._own):
                self._of[self._own[number]] = value.id
        self._of.update({word.arg: word.value.id for word in call.keywords if isinstance(word.value, ast.Name)})

    def given(self, args, kwargs):
        """(arguments of the function by name, the rest of them by place)."""
        named = {name: value for name, value in zip(self._own, args)} if self._rest is None else {}
        return {self._of.get(name, name): value for name, value in {**named, **kwargs}.items()}, args if self._rest is not None else ()


def _op_class(name, target, parameters, of_settings, of_call):
    order = parameters[0]

    class Op:
        def __init__(self, *args, name=None, **kwargs):
            self._settings, self._first = of_settings.given(args, kwargs)
            self.name = name

        def __call__(self, *args, **kwargs):
            named, rest = of_call.given(args, kwargs)
            named = {**self._settings, **named}
            rest = (*self._first, *rest)
            if rest:  # what stands before a star goes by place
                rest = tuple(named.pop(name) for name in order if name in named) + rest
            return target(*rest, **named)

        def symbolic_call(self, *args, **kwargs):
            return self(*_as_values_of_models(args), **_as_values_of_models(kwargs))

        def __getattr__(self, name):
            if name.startswith("_") or name not in self._settings:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self._settings[name]

        call, compute_output_spec = __call__, symbolic_call
    Op.__name__ = Op.__qualname__ = name
    return Op


def _as_values_of_models(given):
    """Arrays become what Keras makes of them in symbolic_call(): values of which shape and dtype are known."""
    from lockstep import keras
    if isinstance(given, dict):
        return {name: _as_values_of_models(value) for name, value in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_as_values_of_models(part) for part in given)
    if isinstance(given, keras.KerasTensor) or not (hasattr(given, "shape") and hasattr(given, "dtype")):
        return given
    return keras.KerasTensor(given.shape, keras.backend.standardize_dtype(given.dtype))


class Front(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """keras is lockstep.keras; keras.src are the public names behind Keras' inner ones, and its tests' files."""

    def __init__(self, folder, file=""):
        import lockstep._alias
        import lockstep.keras
        self.folder, self.keras = folder, lockstep.keras
        self.scripts = None if file.startswith("ops/") else lockstep._alias._Finder()
        self.public = public_names(folder)
        self.by_public = {public for names in self.public.values() for public in names}
        self.op_classes = OpClasses(folder, self.public, self.lookup)

    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if name == "conftest":
            return importlib.util.spec_from_loader(name, self)
        if root == "tensorflow" and self.scripts is not None:
            return self.scripts.find_spec(name)
        if root in OTHER_FRAMEWORKS and importlib.machinery.PathFinder.find_spec(root) is None:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        if root != "keras":
            return None
        if name.startswith("keras.src.testing") or name.endswith("_test"):
            file = self.folder.joinpath(*name.split(".")[1:])
            package = file.is_dir()
            return importlib.util.spec_from_file_location(
                name, file / "__init__.py" if package else file.with_suffix(".py"),
                submodule_search_locations=[str(file)] if package else None)
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec):
        name = spec.name
        if name == "conftest":
            module = types.ModuleType(name)
            module.skip_if_backend = lambda backend, reason: lambda case: case
            return module
        if not name.startswith("keras.src"):
            if name.partition(".")[0] != "keras":
                return _Shim(name, lambda part: Missing(f"{name.partition('.')[0]} is another framework", NotApplicable))
            found = self.lookup(name)
            if found is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return found
        return _Shim(name, lambda part: self.resolve(name, part))

    def exec_module(self, module):
        pass

    def lookup(self, *names):
        """What one of these public names is in lockstep.keras; None: there is none."""
        for public in names:
            found = self.keras
            for part in public.split(".")[1:]:
                found = getattr(found, part, None)
            if found is not None:
                return found
        return None

    def resolve(self, module, name):
        """What a name of an inner module is here."""
        glue = GLUE.get(f"{module.removeprefix('keras.src.')}.{name}") or GLUE.get(f"{module}.{name}")
        if glue is not None:
            return glue(self)
        inner = f"{module}.{name}"
        place = module.removeprefix("keras.src").strip(".")
        public = self.public.get(inner)
        if public is None and f"keras.{place}.{name}" in self.by_public:
            public = [f"keras.{place}.{name}"]
        if public is None and place in ("", "backend") and f"keras.{name}" in self.by_public:
            public = [f"keras.{name}"]
        op_class = self.op_classes.get(inner) if public is None else None
        if op_class is not None:
            return op_class
        path = self.folder.joinpath(*inner.split(".")[1:])
        if public is None and (path.is_dir() or path.with_suffix(".py").exists()):
            return importlib.import_module(inner)
        if public is None:  # a package hands on names of its files
            public = next((p for i, p in self.public.items() if i.startswith(module + ".") and i.endswith("." + name)), None)
        if public is None and place.startswith("ops"):
            public = [f"keras.ops.{name}"] if f"keras.ops.{name}" in self.by_public else None
        if public is not None:
            found = self.lookup(*public)
            return found if found is not None else Missing(f"there is no {min(public, key=len)}", Absent)
        if place.split(".")[0] in ("backend",):
            for where in ("keras.ops", "keras.random", "keras.backend", "keras.config"):
                if f"{where}.{name}" in self.by_public:
                    return self.lookup(f"{where}.{name}") or Missing(f"there is no {where}.{name}", Absent)
        return Missing(f"{inner} is not public", NotApplicable)


class _Shim(types.ModuleType):
    """A module whose names are looked up when they are asked for."""

    def __init__(self, name, resolve):
        super().__init__(name)
        self.__dict__["_resolve"] = resolve
        self.__path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, self._resolve(name))


def _namespace(**names):
    return types.SimpleNamespace(**names)


# Inner names that stand for public ones under another name, and what the helpers of the tests ask for.
GLUE = {
    "backend.Variable": lambda f: f.keras.Variable,
    "backend.backend": lambda f: lambda: "lockstep",
    "backend.numpy": lambda f: f.keras.ops,
    "backend.nn": lambda f: f.keras.ops,
    "backend.random": lambda f: f.keras.random,
    "backend.image": lambda f: f.keras.ops.image,
    "backend.math": lambda f: f.keras.ops,
    "backend.linalg": lambda f: f.keras.ops.linalg if hasattr(f.keras.ops, "linalg") else f.keras.ops,
    "backend.config": lambda f: f.keras.config,
    "backend.SUPPORTS_SPARSE_TENSORS": lambda f: False,
    "backend.SUPPORTS_RAGGED_TENSORS": lambda f: False,
    "backend.SUPPORTS_COMPLEX_DTYPES": lambda f: False,
    "backend.IS_THREAD_SAFE": lambda f: True,
    "backend.standardize_dtype": lambda f: f.keras.utils.standardize_dtype,
    "backend.common.standardize_dtype": lambda f: f.keras.utils.standardize_dtype,
    "backend.common.variables.standardize_dtype": lambda f: f.keras.utils.standardize_dtype,
    "backend.common.is_float_dtype": lambda f: f.keras.backend.is_float_dtype,
    "backend.convert_to_numpy": lambda f: f.keras.ops.convert_to_numpy,
    "backend.convert_to_tensor": lambda f: f.keras.ops.convert_to_tensor,
    "backend.is_tensor": lambda f: f.keras.ops.is_tensor,
    "backend.cast": lambda f: f.keras.ops.cast,
    "backend.shape": lambda f: f.keras.ops.shape,
    "backend.KerasTensor": lambda f: f.keras.KerasTensor,
    "backend.floatx": lambda f: f.keras.config.floatx,
    "backend.result_type": lambda f: f.keras.backend.result_type,
    "backend.common.dtypes.result_type": lambda f: f.keras.backend.result_type,
    "backend.common.global_state.clear_session": lambda f: f.keras.backend.clear_session,
    "backend.common.keras_tensor.KerasTensor": lambda f: f.keras.KerasTensor,
    "backend.common.keras_tensor": lambda f: _namespace(KerasTensor=f.keras.KerasTensor),
    # What tests are made for: the dtypes that there are.
    "backend.common.dtypes.ALLOWED_DTYPES": lambda f: ("float16", "float32", "float64", "bfloat16", "uint8", "int32", "int64", "bool"),
    "backend.common.dtypes.FLOAT_TYPES": lambda f: ("bfloat16", "float16", "float32", "float64"),
    "backend.common.dtypes.INT_TYPES": lambda f: ("uint8", "int32", "int64"),
    "backend.common.dtypes.BOOL_TYPES": lambda f: ("bool",),
    "backend.common.dtypes.COMPLEX_TYPES": lambda f: (),
    "backend.common.dtypes.FLOAT8_TYPES": lambda f: (),
    "saving.custom_object_scope": lambda f: f.keras.saving.custom_object_scope,
    "saving.object_registration.CustomObjectScope": lambda f: f.keras.saving.custom_object_scope,
    "utils.traceback_utils": lambda f: _namespace(is_traceback_filtering_enabled=lambda: False),
}
