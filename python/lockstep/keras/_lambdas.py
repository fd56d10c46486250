"""Lambdas in files: the bytecode of this version of Python, as Keras writes it.

Whoever reads a file runs what such bytecode says. So it is read where somebody says that the file is trusted: load_model(path,
safe_mode=False), or keras.config.enable_unsafe_deserialization().
"""

import base64
import contextlib
import marshal
import sys
import threading
import types

import numpy as np

_trust = threading.local()


def is_lambda(value):
    return isinstance(value, types.FunctionType) and value.__name__ == "<lambda>"


def written(function):
    """(code, defaults, closure) as texts, numbers and lists of these."""
    code = base64.encodebytes(marshal.dumps(function.__code__)).decode("ascii")
    cells = function.__closure__
    return code, function.__defaults__, None if cells is None else tuple(cell.cell_contents for cell in cells)


def read(code, defaults=None, closure=None):
    """The function of what was written; the names that it uses are those of the program, of keras, ops, tf and np."""
    if in_safe_mode():
        raise ValueError("a lambda in a file is code that runs here: give safe_mode=False to what reads the file, or call "
                         "keras.config.enable_unsafe_deserialization(), where the file is to be trusted")
    import lockstep
    names = {"keras": lockstep.keras, "ops": lockstep.keras.ops, "tf": lockstep, "np": np, **vars(sys.modules["__main__"])}
    cells = None if closure is None else tuple(types.CellType(value) for value in closure)
    return types.FunctionType(marshal.loads(base64.decodebytes(code.encode("ascii"))), names, "<lambda>",
                              None if defaults is None else tuple(defaults), cells)


def in_safe_mode():
    """Whether lambdas of files are refused: where nobody said otherwise."""
    return getattr(_trust, "safe", None) is not False and not _unsafe


_unsafe = []  # not empty: the program said that all its files are to be trusted


def enable_unsafe_deserialization():
    """Lambdas of files are read from now on, everywhere."""
    _unsafe.append(True)


@contextlib.contextmanager
def safe_mode(safe):
    """What the files that are read inside may hold; None: as around it."""
    before = getattr(_trust, "safe", None)
    _trust.safe = before if safe is None else bool(safe)
    try:
        yield
    finally:
        _trust.safe = before
