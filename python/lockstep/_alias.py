"""Lets ``import tensorflow`` and ``import keras`` find Lockstep."""

import importlib
import importlib.abc
import importlib.util
import sys


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """``tensorflow.x`` is ``lockstep.x``, ``keras.x`` is ``lockstep.keras.x``."""

    @staticmethod
    def _ours(name):
        root, _, rest = name.partition(".")
        target = {"tensorflow": "lockstep", "keras": "lockstep.keras", "tf_keras": "lockstep.keras"}.get(root)
        if target is None:
            return None
        for inner in ("python", "api._v2", "api"):  # tensorflow.python.keras...: people import it, though it is not public
            if rest == inner or rest.startswith(inner + "."):
                rest = rest[len(inner) + 1:]
        return f"{target}.{rest}" if rest else target

    def find_spec(self, name, path=None, target=None):
        if self._ours(name) is None:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec):
        name = self._ours(spec.name)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error
        # Classes and parts of modules: tensorflow.keras.optimizers.schedules, tensorflow.keras.preprocessing.image.
        parts = name.split(".")
        found = importlib.import_module(parts[0])
        for part in parts[1:]:
            try:
                found = getattr(found, part)
            except AttributeError as error:
                raise ModuleNotFoundError(f"No module named {spec.name!r}: {error}", name=spec.name) from missing
        return found

    def exec_module(self, module):
        pass


def install():
    """From here on, in this process. A script that asks for TensorFlow's version, or for Keras' backend, gets that of the names."""
    import lockstep
    lockstep.__version__ = lockstep.version.VERSION
    lockstep.keras.backend._BACKEND[:] = ["tensorflow"]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
