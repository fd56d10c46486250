"""Writes testdata/tensorflow_cases.json: what TensorFlow computes for the calls of tensorflow_cases.py.

    python tests/python/record_tensorflow_cases.py

Needs tensorflow.
"""

import json
import pathlib

import tensorflow as tf

import tensorflow_cases as cases

TARGET = pathlib.Path(__file__).resolve().parent / "testdata" / "tensorflow_cases.json"


def entry(array):
    """Dtype, shape and a digest, of which floating point numbers keep seven digits."""
    if array is None:
        return None
    numbers = cases.digest(array)
    return [array.dtype.name, list(array.shape), [float(f"{x:.7g}") for x in numbers] if numbers.dtype.kind == "f" else numbers.tolist()]


def main():
    lines = [f'  "recorded_with": "tensorflow {tf.__version__}"']
    for name in cases.CASES:
        lines.append(f"  {json.dumps(name)}: {json.dumps([entry(one) for one in cases.computed(tf, name)], separators=(',', ':'))}")
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
