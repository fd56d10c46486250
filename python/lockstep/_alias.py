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
        if rest.startswith("python."):  # tensorflow.python.keras...: people import it, though it is not public
            rest = rest.removeprefix("python.")
        if rest.startswith("api._v2."):
            rest = rest.removeprefix("api._v2.")
        return f"{target}.{rest}" if rest else target

    def find_spec(self, name, path=None, target=None):
        if self._ours(name) is None:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec):
        name = self._ours(spec.name)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            # A class or a part of a module: tensorflow.keras.optimizers.schedules.
            module, _, attribute = name.rpartition(".")
            try:
                return getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise ModuleNotFoundError(f"No module named {spec.name!r}: {error}", name=spec.name) from None

    def exec_module(self, module):
        pass


def install():
    """From here on, in this process. A script that asks for TensorFlow's version, or for Keras' backend, gets that of the names."""
    import lockstep
    lockstep.__version__ = lockstep.version.VERSION
    lockstep.keras.backend._BACKEND[:] = ["tensorflow"]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
