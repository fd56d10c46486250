"""Functions of TensorFlow's compute what TensorFlow computes, values and gradients (tensorflow_cases.py)."""

import json
import pathlib
import unittest

import numpy as np

import lockstep as tf
import tensorflow_cases as cases

RECORDED = json.loads((pathlib.Path(__file__).resolve().parent / "testdata" / "tensorflow_cases.json").read_text())


class TensorflowCases(unittest.TestCase):
    def test_compute_what_tensorflow_does(self):
        self.assertEqual(set(cases.CASES), set(RECORDED) - {"recorded_with"})
        for name in cases.CASES:
            with self.subTest(name):
                self.compare(cases.computed(tf, name), RECORDED[name])

    def compare(self, made, expected):
        self.assertEqual(len(made), len(expected))
        for array, entry in zip(made, expected):
            if entry is None:
                self.assertIsNone(array)
                continue
            dtype, shape, numbers = entry
            self.assertEqual((array.dtype.name, list(array.shape)), (dtype, shape))
            wanted = np.array(numbers)
            scale = np.abs(array[np.abs(array) < 1e30]).max(initial=1.0) * array.size ** 0.5 if array.dtype.kind == "f" else 1e-6
            np.testing.assert_allclose(cases.digest(array), wanted, rtol=1e-5 if array.dtype.kind == "f" else 1e-6, atol=3e-6 * scale)
