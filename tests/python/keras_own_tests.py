"""Keras' own unit tests, run against lockstep.keras.

    keras_own_tests.py [--record] [--why] [--cases] [MODULE or FILE...]
    keras_own_tests.py --table

The package keras on PyPI carries its tests. They are run as they are, from where Keras is installed (LOCKSTEP_KERAS_PYTHON names a
Python that has it); of Keras nothing else is loaded but the helpers of its tests (keras.src.testing). The names that they use are looked up in
lockstep.keras by keras_front.py. So a case ends in one of four ways:

    passed
    failed
    absent           it uses a public name of Keras' that Lockstep does not have
    not applicable   it uses what is not public, another framework, or is skipped by its own words

What is recorded in testdata/keras_own_tests.json is the number of each for every file. A run compares with it and ends with 1 where
fewer cases of a file pass; --record writes it anew. --why lists why cases did not pass, the most frequent reason first.
"""

import argparse
import collections
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import traceback
import unittest

from keras_front import Absent, Front, NotApplicable

FOLDER = pathlib.Path(__file__).resolve().parent
RECORD = FOLDER / "testdata" / "keras_own_tests.json"
# What these tests are about.
MODULES = ("activations", "callbacks", "constraints", "initializers", "layers", "losses", "metrics", "models", "ops", "optimizers",
           "random", "regularizers", "saving", "trainers", "utils")
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
        if isinstance(chain, ImportError) and "Invalid backend" in str(chain):
            return "not applicable", "it is for Keras' own backends"
        if isinstance(chain, ValueError) and "received 'grain'" in str(chain):
            return "not applicable", "grain is another framework"
        if isinstance(chain, ModuleNotFoundError):
            return "not applicable", f"needs {chain.name}"
        text = str(chain)
        if isinstance(chain, AttributeError) and re.search(r"has no attribute '_\w+'", text):
            return "not applicable", "it looks at private attributes"
        if isinstance(chain, AttributeError) and (found := re.match(r"module 'keras[\w.]*' has no attribute '\w+'", text)):
            return "absent", found.group(0)
        if isinstance(chain, (AttributeError, TypeError, ValueError)) and LEFT_OUT.search(text):
            return "absent", "LoRA, quantization, rematerialization, bounding boxes, stateless calls"
        if isinstance(chain, (TypeError, ValueError)) and re.search("no tensor holds elements of type|there is no dtype|texts are no tensors", text):
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
    answer = os.fdopen(os.dup(1), "w")  # some tests close the standard output, or put something else in its place
    sys.path.append(str(folder.parent))  # absl, pytest and what else the tests use beside Keras
    import ml_dtypes  # noqa: F401: with Keras; NumPy knows bfloat16 by it
    front = Front(folder, name)
    sys.meta_path.insert(0, front)
    sys.modules["keras"] = front.keras
    _adapt_helpers()
    module_name = "keras.src." + name.removesuffix(".py").replace("/", ".")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        outcome, reason = reason_of(error)
        print("\n" + json.dumps([[name, outcome, "import: " + reason]]), file=answer, flush=True)
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
    print("\n" + json.dumps(result.cases), file=answer, flush=True)


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
        print("keras_own_tests: no Keras with its tests was found; pip install keras pytest pillow into a Python of the same version, and "
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
