"""Keras' own unit tests, run against lockstep.keras.

    keras_own_tests.py [--record] [--why] [--cases] [MODULE or FILE...]
    keras_own_tests.py --table

The package keras on PyPI carries its tests. They are run as they are, from where Keras is installed (LOCKSTEP_KERAS_PYTHON names a
Python that has it); of Keras nothing else is loaded but the helpers of its tests (keras.src.testing). The tests name what they
test by Keras' inner modules, keras.src.layers.core.dense.Dense; Keras' public modules say which public name that is, and the public
name is looked up in lockstep.keras. So a case ends in one of four ways:

    passed
    failed
    absent           it uses a public name of Keras' that Lockstep does not have
    not applicable   it uses what is not public, another framework, or is skipped by its own words

What is recorded in testdata/keras_own_tests.json is the number of each for every file. A run compares with it and ends with 1 where
fewer cases of a file pass; --record writes it anew. --why lists why cases did not pass, the most frequent reason first.
"""

import argparse
import ast
import collections
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import traceback
import types
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
RECORD = FOLDER / "testdata" / "keras_own_tests.json"
# What these tests are about.
MODULES = ("activations", "callbacks", "constraints", "initializers", "layers", "losses", "metrics", "models", "ops", "optimizers",
           "random", "regularizers", "saving", "trainers", "utils")
OTHER_FRAMEWORKS = ("tensorflow", "jax", "torch", "openvino", "grain", "flax", "sklearn", "tf2onnx", "onnxruntime", "orbax", "ai_edge_litert",
                    "scipy", "pandas", "h5py", "PIL", "requests", "matplotlib")
PRIVATE = ("trainers/data_adapters/",)  # tests of modules that nothing public names
OUTCOMES = ("passed", "failed", "absent", "not applicable")


# --- where Keras is ------------------------------------------------------------------------------------------------------

def keras_folder():
    """The folder of the package keras with its tests; None: there is none."""
    python = os.environ.get("LOCKSTEP_KERAS_PYTHON") or "python3"
    look = "import importlib.util as u; s = u.find_spec('keras'); print(s.origin if s and s.origin else '')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        origin = subprocess.run([python, "-c", look], capture_output=True, text=True, env=environment).stdout.strip()
    except OSError:
        return None
    folder = pathlib.Path(origin).parent if origin else None
    return folder if folder and (folder / "src" / "layers" / "core" / "dense_test.py").exists() else None


def version(folder):
    return re.search(r'__version__ = "([^"]+)"', (folder / "src" / "version.py").read_text()).group(1)


def test_files(folder, wanted):
    files = sorted(path.relative_to(folder / "src").as_posix() for path in (folder / "src").rglob("*_test.py"))
    return [name for name in files if name.split("/")[0] in MODULES and not name.startswith(PRIVATE) and
            (not wanted or any(name == word or name.startswith(word.rstrip("/") + "/") for word in wanted))]


# --- names ---------------------------------------------------------------------------------------------------------------

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
    """"keras.src.layers.core.dense.Dense" -> "keras.layers.Dense", as the files of Keras' public modules say it."""
    names = {}
    for path in sorted(folder.rglob("__init__.py")):
        place = path.parent.relative_to(folder)
        if place.parts[:1] in (("src",), ("_tf_keras",), ("legacy",)):
            continue
        module = ".".join(("keras",) + place.parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("keras.src"):
                for alias in node.names:
                    names.setdefault(f"{node.module}.{alias.name}", f"{module}.{alias.asname or alias.name}")
    return names


class Front(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """keras is lockstep.keras; keras.src are the public names behind Keras' inner ones, and its tests' files."""

    def __init__(self, folder):
        import lockstep.keras
        self.folder, self.keras = folder, lockstep.keras
        self.public = public_names(folder)
        self.by_public = {}
        for inner, public in self.public.items():
            self.by_public.setdefault(public, inner)

    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if name == "conftest":
            return importlib.util.spec_from_loader(name, self)
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

    def lookup(self, public):
        """A public name in lockstep.keras; None: there is none."""
        found = self.keras
        for part in public.split(".")[1:]:
            try:
                found = getattr(found, part)
            except AttributeError:
                return None
        return found

    def resolve(self, module, name):
        """What a name of an inner module is here."""
        glue = GLUE.get(f"{module.removeprefix('keras.src.')}.{name}") or GLUE.get(f"{module}.{name}")
        if glue is not None:
            return glue(self)
        inner = f"{module}.{name}"
        place = module.removeprefix("keras.src").strip(".")
        public = self.public.get(inner)
        if public is None and f"keras.{place}.{name}" in self.by_public:
            public = f"keras.{place}.{name}"
        if public is None and place in ("", "backend") and f"keras.{name}" in self.by_public:
            public = f"keras.{name}"
        path = self.folder.joinpath(*inner.split(".")[1:])
        if public is None and (path.is_dir() or path.with_suffix(".py").exists()):
            return importlib.import_module(inner)
        if public is None:  # a package hands on names of its files
            public = next((p for i, p in self.public.items() if i.startswith(module + ".") and i.endswith("." + name)), None)
        if public is None and place.startswith("ops"):
            public = f"keras.ops.{name}" if f"keras.ops.{name}" in self.by_public else None
        if public is not None:
            found = self.lookup(public)
            return found if found is not None else Missing(f"there is no {public}", Absent)
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


# --- running one file ----------------------------------------------------------------------------------------------------

def reason_of(error):
    """(outcome, reason) of what a case raised."""
    seen, chain = set(), error
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if isinstance(chain, Absent):
            return "absent", str(chain)
        if isinstance(chain, (NotApplicable, unittest.SkipTest)) or type(chain).__name__ == "Skipped":
            return "not applicable", str(chain)
        if isinstance(chain, AssertionError) and re.match(r'"(.|\n)*" does not match "', str(chain)):
            return "not applicable", "the words of an error, which are not Keras' here"
        if isinstance(chain, ModuleNotFoundError):
            return "not applicable", f"needs {chain.name}"
        text = str(chain)
        if isinstance(chain, AttributeError) and re.search(r"has no attribute '_\w+'", text):
            return "not applicable", "it looks at private attributes"
        if isinstance(chain, AttributeError) and (found := re.match(r"module 'keras[\w.]*' has no attribute '\w+'", text)):
            return "absent", found.group(0)
        if isinstance(chain, (AttributeError, TypeError, ValueError)) and LEFT_OUT.search(text):
            return "absent", "LoRA, quantization, rematerialization, bounding boxes, stateless calls"
        if isinstance(chain, (TypeError, ValueError)) and re.search("no tensor holds elements of type|there is no dtype", text):
            return "absent", "a dtype that tensors do not have"
        if isinstance(chain, (NotImplementedError, ValueError)) and "there are no sparse" in text:
            return "absent", "sparse and ragged tensors"
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    last = [line for line in traceback.format_exception_only(type(error), error) if line.strip()]
    return "failed", "".join(last).strip().splitlines()[0][:200]


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self._outcome = ("passed", "")

    def stopTest(self, test):
        super().stopTest(test)
        self.cases.append((test.id().split(".", 1)[-1] if "." in test.id() else test.id(), *self._outcome))

    def _note(self, error):
        found = reason_of(error[1])
        if self._outcome[0] != "failed":
            self._outcome = found
        if found[0] == "failed" and os.environ.get("LOCKSTEP_KERAS_TRACEBACKS"):
            print("".join(traceback.format_exception(*error)), file=sys.stderr)

    def addError(self, test, error):
        self._note(error)

    def addFailure(self, test, error):
        self._note(error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._note(error)

    def addSkip(self, test, reason):
        self._outcome = ("not applicable", reason)

    def addUnexpectedSuccess(self, test):
        self._outcome = ("failed", "it should have failed")


def skip_mark(case):
    """Why pytest would skip it; None: it would not."""
    method = getattr(type(case), case._testMethodName)
    for marked in (method, type(case)):
        for mark in getattr(marked, "pytestmark", ()):
            if mark.name == "skip" or (mark.name == "skipif" and mark.args and mark.args[0]):
                return mark.kwargs.get("reason") or "skipped by its own words"
    return None


def cases_of(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases_of(part)
        else:
            yield part


def _adapt_helpers():
    """The helper of Keras' layer tests counts seed generators, which are private attributes of its layers; and it trains every
    layer, also those without weights, which is refused here on purpose: its model gets a weight."""
    from keras.src.testing import test_case

    class ModelWithWeight(test_case.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.weight_of_the_test = self.add_weight(shape=(), regularizer="l2", name="weight_of_the_test")
    test_case.Model = ModelWithWeight
    whole = test_case.TestCase.run_layer_test

    def run_layer_test(self, *args, expected_num_seed_generators=None, expected_num_non_trainable_variables=None, **kwargs):
        return whole(self, *args, **kwargs)
    test_case.TestCase.run_layer_test = run_layer_test
    test_case.get_seed_generators = lambda layer: []


# Public methods and settings of layers that Lockstep has none of, as docs/keras.md says.
LEFT_OUT = re.compile(r"enable_lora|lora_rank|lora_alpha|quantize|rematerialized_call|bounding_box|_awq|gptq|stateless_(call|update_state|result|reset_state|apply)|(int8|int4|float8)_from_")


def run_file(folder, name):
    """Runs the cases of one file; prints JSON of what became of them."""
    sys.path.append(str(folder.parent))  # absl, pytest and what else the tests use beside Keras
    import ml_dtypes  # noqa: F401: with Keras; NumPy knows bfloat16 by it
    front = Front(folder)
    sys.meta_path.insert(0, front)
    sys.modules["keras"] = front.keras
    _adapt_helpers()
    module_name = "keras.src." + name.removesuffix(".py").replace("/", ".")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        outcome, reason = reason_of(error)
        print("\n" + json.dumps([[name, outcome, "import: " + reason]]))
        return
    result = Outcomes()
    only = os.environ.get("LOCKSTEP_KERAS_CASE")
    for case in cases_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
        if only and only not in case.id():
            continue
        why = skip_mark(case)
        if why is not None:
            result.cases.append((case.id(), "not applicable", why))
        else:
            case.run(result)
    print("\n" + json.dumps(result.cases), flush=True)


# --- all of them ---------------------------------------------------------------------------------------------------------

def run_all(folder, files, progress):
    done = {}
    for name in files:
        try:
            run = subprocess.run([sys.executable, "-B", __file__, "--file", name, str(folder)], capture_output=True, text=True,
                                 timeout=900)
        except subprocess.TimeoutExpired:
            done[name] = [[name, "failed", "the program did not end"]]
            continue
        if os.environ.get("LOCKSTEP_KERAS_TRACEBACKS"):
            print(run.stderr, file=sys.stderr)
        try:
            done[name] = json.loads(run.stdout.rstrip().rsplit("\n", 1)[-1])
        except (json.JSONDecodeError, IndexError):
            done[name] = [[name, "failed", f"the program ended with {run.returncode}: {run.stderr.strip()[-200:]}"]]
        if progress:
            print(f"{name}: {told(counted(done[name]))}", flush=True)
    return done


def counted(cases):
    counts = collections.Counter(outcome for _, outcome, _ in cases)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}


def told(counts):
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "nothing"


def table(files):
    """A line for every module."""
    modules = collections.defaultdict(collections.Counter)
    for name, counts in files.items():
        modules[name.split("/")[0]].update(counts)
    total = sum(modules.values(), collections.Counter())
    lines = ["| module | passed | failed | absent | not applicable | passed of those that apply |", "|---|---|---|---|---|---|"]
    for module, counts in [*sorted(modules.items()), ("all", total)]:
        applied = counts["passed"] + counts["failed"]
        share = f"{100 * counts['passed'] / applied:.1f}%" if applied else ""
        lines.append(f"| {module} | " + " | ".join(str(counts[outcome]) for outcome in OUTCOMES) + f" | {share} |")
    return "\n".join(lines)


def worse(recorded, files):
    """Lines about files of which fewer cases pass than are recorded."""
    lines = []
    for name, counts in files.items():
        before = recorded.get(name, {})
        if counts.get("passed", 0) < before.get("passed", 0):
            lines.append(f"{name}: {told(counts)}; recorded: {told(before)}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--record", action="store_true", help="write what became of the cases to testdata/keras_own_tests.json")
    parser.add_argument("--why", action="store_true", help="why cases did not pass, the most frequent reason first")
    parser.add_argument("--cases", action="store_true", help="every case that failed, with its reason")
    parser.add_argument("--table", action="store_true", help="what is recorded, as a table")
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("wanted", nargs="*", help="a module or a file of Keras' tests, as layers or layers/core/dense_test.py")
    options = parser.parse_args()
    if options.file:
        run_file(pathlib.Path(options.wanted[0]), options.file)
        return 0
    if options.table:
        print(table(json.loads(RECORD.read_text())["files"]))
        return 0
    folder = keras_folder()
    if folder is None:
        print("keras_own_tests: no Keras with its tests was found; pip install keras pytest into a Python of the same version, and "
              "name that one by LOCKSTEP_KERAS_PYTHON", file=sys.stderr)
        return 2
    done = run_all(folder, test_files(folder, options.wanted), progress=True)
    files = {name: counted(cases) for name, cases in done.items()}
    print(table(files))
    if options.why:
        for outcome in OUTCOMES[1:]:
            reasons = collections.Counter(reason for cases in done.values() for _, kind, reason in cases if kind == outcome)
            print(f"\n{outcome}:")
            for reason, count in reasons.most_common(40):
                print(f"{count:6} {reason}")
    if options.cases:
        for name, cases in done.items():
            for case, outcome, reason in cases:
                if outcome == "failed":
                    print(f"{name} {case}: {reason}")
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"files": {}}
    if options.record:
        everything = {**({} if not options.wanted else recorded["files"]), **files}
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps({"keras": version(folder), "files": everything}, indent=1) + "\n")
        return 0
    if recorded.get("keras") not in (None, version(folder)):
        print(f"recorded with Keras {recorded['keras']}, run with {version(folder)}: not compared")
        return 0
    lines = worse(recorded["files"], files)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
