"""Writes type stubs (*.pyi) of the package: what editors and type checkers read.

    stubs.py --package python/lockstep --extension _lockstep.so --output FOLDER

Most classes of lockstep.keras are made when the package is imported, of what the engine knows by name, so their stubs are written from
the package as it is after that. Stubs of the extension module are nanobind's.
"""

import argparse
import importlib
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import tempfile
import types

HEAD = "from typing import Any\n"
KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def names_of(module):
    """The public names of a module with what they are; modules that are imported into it are not its own."""
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or isinstance(value, types.ModuleType) and not value.__name__.startswith("lockstep"):
            continue
        yield name, value


def signature(function):
    """"(x: Any, axis: Any = ...) -> Any"."""
    try:
        given = inspect.signature(function)
    except (TypeError, ValueError):
        return "(*args: Any, **kwargs: Any) -> Any"
    parts, star = [], False
    for parameter in given.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}: Any")
            star = True
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}: Any")
        else:
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
                parts.append("*")
                star = True
            plain = parameter.name == "self" and not parts
            parts.append(parameter.name + ("" if plain else ": Any") + ("" if parameter.default is parameter.empty else " = ..."))
    return f"({', '.join(parts)}) -> Any"


def doc_line(value):
    text = (inspect.getdoc(value) or "").split("\n")[0].replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}"""' if text else "..."


def class_stub(name, cls, indent=""):
    bases = ", ".join(base.__name__ if base.__module__ == cls.__module__ else "_" + base.__name__
                      for base in cls.__bases__ if base.__module__.startswith("lockstep"))
    lines = [f"{indent}class {name}" + (f"({bases})" if bases and bases != name else "") + ":", f"{indent}    {doc_line(cls)}"]
    for key, value in sorted(vars(cls).items()):
        if key.startswith("_") and key not in ("__init__", "__call__"):
            continue
        if isinstance(value, property):
            lines += [f"{indent}    @property", f"{indent}    def {key}(self) -> Any: ..."]
        elif isinstance(value, (staticmethod, classmethod)):
            inner = signature(value.__func__)
            kind = "staticmethod" if isinstance(value, staticmethod) else "classmethod"
            lines += [f"{indent}    @{kind}", f"{indent}    def {key}{inner}: ..."]
        elif inspect.isfunction(value) or type(value).__name__ == "nb_method":
            returned = signature(value).replace("-> Any", "-> None") if key == "__init__" else signature(value)
            lines.append(f"{indent}    def {key}{returned}: ...")
        elif inspect.isclass(value):
            lines.append(f"{indent}    class {key}: ...")
        else:
            lines.append(f"{indent}    {key}: Any")
    return lines


def module_stub(module):
    """The text of a module's stub."""
    lines, imports = [], set()
    for name, value in names_of(module):
        if not name.isidentifier():
            continue
        if isinstance(value, types.ModuleType):
            package, _, last = value.__name__.rpartition(".")
            if value.__name__ in sys.modules and package:
                imports.add(f"from {package} import {last} as {name}")
            else:  # made by a module, such as keras.optimizers.schedules
                lines.append(f"{name}: Any")
        elif inspect.isclass(value):
            own = value.__module__ == module.__name__ and value.__name__ == name
            if own:
                lines += class_stub(name, value)
                for base in value.__bases__:
                    if base.__module__.startswith("lockstep") and base.__module__ != module.__name__:
                        imports.add(f"from {base.__module__} import {base.__name__} as _{base.__name__}")
            elif value.__module__.startswith("lockstep") and hasattr(sys.modules.get(value.__module__), value.__name__):
                imports.add(f"from {value.__module__} import {value.__name__} as {name}")
            else:
                lines.append(f"{name}: Any")
        elif callable(value):
            lines.append(f"def {name}{signature(value)}: {doc_line(value)}")
        else:
            lines.append(f"{name}: Any")
    return HEAD + "\n".join(sorted(imports)) + "\n\n" + "\n".join(lines) + "\n"


def modules_of(package):
    yield package.__name__
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not re.search(r"\._|__main__", found.name):
            yield found.name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--package", required=True, type=pathlib.Path)
    parser.add_argument("--extension", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # A package of both: sources are in one place and the extension in another.
        place = pathlib.Path(folder) / "lockstep"
        for source in options.package.rglob("*.py"):
            link = place / source.relative_to(options.package)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source.resolve())
        (place / options.extension.name).symlink_to(options.extension.resolve())
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        package = importlib.import_module("lockstep")
        for name in modules_of(package):
            module = importlib.import_module(name)
            path = options.output.joinpath(*name.split(".")[1:])
            path = path / "__init__.pyi" if hasattr(module, "__path__") else path.with_suffix(".pyi")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(module_stub(module))
        # The extension alone, without what the package adds to its classes.
        alone = pathlib.Path(folder) / "alone"
        alone.mkdir()
        (alone / options.extension.name).symlink_to(options.extension.resolve())
        subprocess.run([sys.executable, "-B", "-m", "nanobind.stubgen", "-q", "-m", "_lockstep", "-o",
                        str(options.output / "_lockstep.pyi")], check=True,
                       env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(alone), os.environ.get("PYTHONPATH"))))})


if __name__ == "__main__":
    main()
