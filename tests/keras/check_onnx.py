"""Runs models that Lockstep exported in ONNX Runtime, and compares the results with Lockstep's.

    python tests/keras/check_onnx.py FOLDER

For each FOLDER/NAME.onnx there is a FOLDER/NAME.safetensors with the inputs and, as "output/NAME", the outputs by name. Exits with
1 where a model is not valid, does not run, or a result is off, with 3 where this Python has no ONNX Runtime. `./run check onnx`
writes the files and calls it.
"""

import importlib.util
import pathlib
import sys

if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "numpy")):
    print(f"{sys.executable} has no ONNX Runtime (LOCKSTEP_KERAS_PYTHON names a Python that has)")
    sys.exit(3)

import numpy as np
import onnx
import onnxruntime

import fixture_files

TOLERANCE = 1e-5


def check(path):
    """The largest max|difference| / max|result| of the outputs."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    tensors = fixture_files.read_tensors(path.with_suffix(".safetensors"))
    expected = {name.removeprefix("output/"): value for name, value in tensors.items() if name.startswith("output/")}
    inputs = {name: value for name, value in tensors.items() if not name.startswith("output/")}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    actual = session.run(list(expected), inputs)
    return max(float(np.max(np.abs(a - e)) / (np.max(np.abs(e)) or 1.0)) for a, e in zip(actual, expected.values(), strict=True))


def main(folder):
    failures = 0
    files = sorted(folder.glob("*.onnx"))
    for path in files:
        try:
            error = check(path)
            fine = error <= TOLERANCE
            print(f"{path.stem}: {error:.1e}{'' if fine else ', more than ' + str(TOLERANCE)}")
        except Exception as error:
            fine = False
            print(f"{path.stem}: {type(error).__name__}: {error}")
        failures += not fine
    print(f"{len(files) - failures} of {len(files)} models give the same")
    return 1 if failures or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
