"""Type stubs: every public name that the package has, and nothing else."""

import ast
import importlib
import pathlib
import unittest

import lockstep

FOLDER = pathlib.Path(lockstep.__file__).parent


def declared(path):
    """The names that a stub declares at its top level."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


class Stubs(unittest.TestCase):
    def setUp(self):
        self.stubs = sorted(path for path in FOLDER.rglob("*.pyi") if path.name != "_lockstep.pyi")
        self.assertGreater(len(self.stubs), 30, "ninja lockstep_stubs writes them")

    def test_they_name_what_the_package_has(self):
        for path in self.stubs:
            parts = path.relative_to(FOLDER).with_suffix("").parts
            name = ".".join(("lockstep",) + tuple(part for part in parts if part != "__init__"))
            with self.subTest(name):
                module = importlib.import_module(name)
                public = {key for key, value in vars(module).items() if not key.startswith("_")
                          and not (isinstance(value, type(ast)) and not value.__name__.startswith("lockstep"))}
                names = declared(path)
                self.assertEqual(public - names, set(), "not in the stub")
                self.assertEqual({key for key in names - {"Any"} if not key.startswith("_") and not hasattr(module, key)}, set(), "in the stub alone")

    def test_constructors_have_keras_arguments(self):
        tree = ast.parse((FOLDER / "keras" / "layers.pyi").read_text())
        dense = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Dense")
        made = next(node for node in dense.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        self.assertEqual([arg.arg for arg in made.args.args][:4], ["self", "units", "activation", "use_bias"])

    def test_the_extension_has_one(self):
        self.assertIn("class Tensor", (FOLDER / "_lockstep.pyi").read_text())
