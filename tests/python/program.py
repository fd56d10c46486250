"""The tests of the Python package as a program that the test runner understands: it lists and runs cases as GoogleTest's do.

    program.py --gtest_list_tests
    program.py --gtest_filter=Suite.case:Suite.other

The cases are those of unittest in the files *_test.py of this folder. They need the package, so they run under the interpreter
that it was built for; LOCKSTEP_TEST_PYTHON names that one, and LOCKSTEP_TEST_PACKAGE the folder that the package is in. Where
it was not built, every case is skipped, for the reason that LOCKSTEP_TEST_SKIP gives.
"""

import ast
import fnmatch
import importlib
import os
import pathlib
import sys
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent


def cases():
    """(file, class, method) of every case, as the files are written: nothing is imported."""
    for path in sorted(FOLDER.glob("*_test.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and part.name.startswith("test_"):
                        yield path, node.name, part.name


def name_of(case):
    return f"{case[1]}.{case[2].removeprefix('test_')}"


def say(word, text):
    print(f"[{word}] {text}", flush=True)


def skip(name, reason):
    print(f"{FOLDER.name}/{name}: Skipped\n{reason}")
    say("  SKIPPED ", f"{name} (0 ms)")


class Telling(unittest.TestResult):
    """Says of every case what GoogleTest would."""

    def startTest(self, test):
        super().startTest(test)
        self._name = f"{type(test).__name__}.{test._testMethodName.removeprefix('test_')}"
        self._begin, self._word, self._reason = time.monotonic(), "       OK ", None
        say(" RUN      ", self._name)

    def stopTest(self, test):
        super().stopTest(test)
        if self._reason is not None:
            skip(self._name, self._reason)
        else:
            say(self._word, f"{self._name} ({int(1000 * (time.monotonic() - self._begin))} ms)")

    def _fail(self, test, error):
        print(self._exc_info_to_string(error, test), flush=True)
        self._word = "  FAILED  "

    def addError(self, test, error):
        super().addError(test, error)
        self._fail(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._fail(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self._fail(subtest, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._reason = reason

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._word = "  FAILED  "


def run(chosen):
    """Whether no case failed."""
    suite = unittest.TestSuite(getattr(importlib.import_module(path.stem), name)(method) for path, name, method in chosen)
    return suite.run(Telling()).wasSuccessful()


def main():
    chosen, everything = [], list(cases())
    patterns = ["*"]
    for argument in sys.argv[1:]:
        if argument == "--gtest_list_tests":
            suite = None
            for case in everything:
                if case[1] != suite:
                    suite = case[1]
                    print(f"{suite}.")
                print(f"  {case[2].removeprefix('test_')}")
            return 0
        if argument.startswith("--gtest_filter="):
            patterns = argument.removeprefix("--gtest_filter=").split(":")
    # As GoogleTest has it: behind a pattern that begins with -, those that are left out.
    first_out = next((i for i, pattern in enumerate(patterns) if pattern.startswith("-")), len(patterns))
    wanted = patterns[:first_out] or ["*"]
    unwanted = [pattern.removeprefix("-") for pattern in patterns[first_out:]]
    chosen = [case for case in everything if any(fnmatch.fnmatchcase(name_of(case), pattern) for pattern in wanted) and
              not any(fnmatch.fnmatchcase(name_of(case), pattern) for pattern in unwanted)]
    if reason := os.environ.get("LOCKSTEP_TEST_SKIP"):
        for case in chosen:
            say(" RUN      ", name_of(case))
            skip(name_of(case), reason)
        return 0
    interpreter = os.environ.get("LOCKSTEP_TEST_PYTHON")
    if interpreter and os.environ.get("LOCKSTEP_TEST_STARTED") != "1":
        os.environ["LOCKSTEP_TEST_STARTED"] = "1"
        os.environ["PYTHONPATH"] = os.environ["LOCKSTEP_TEST_PACKAGE"]
        os.execv(interpreter, [interpreter, "-B", __file__] + sys.argv[1:])
    sys.path.insert(0, str(FOLDER))
    return 0 if run(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
