"""Functions of TensorFlow's compute what TensorFlow computes, values and gradients (tensorflow_cases.py)."""

import json
import pathlib
import tempfile
import unittest

import numpy as np

import lockstep as tf
import tensorflow_cases as cases

RECORDED = json.loads((pathlib.Path(__file__).resolve().parent / "testdata" / "tensorflow_cases.json").read_text())
# What looks at values, which a function that is being traced does not know.
ON_HOST = ("draw_bounding_boxes", "parse_tensor", "decode_wav", "decode_wav sizes")


class TensorflowCases(unittest.TestCase):
    def test_compute_what_tensorflow_does(self):
        self.assertEqual(set(cases.CASES), set(RECORDED) - {"recorded_with"})
        for name in cases.CASES:
            with self.subTest(name):
                self.compare(cases.computed(tf, name), RECORDED[name])

    def test_compute_the_same_in_compiled_functions(self):
        for name, (_, *arguments) in cases.CASES.items():
            if not arguments or name.startswith("variable ") or name in ON_HOST:
                continue
            with self.subTest(name):
                function, sources = cases.function_of(tf, name), [tf.constant(argument) for argument in arguments]
                for made, expected in zip(tf.function(function)(*sources), function(*sources)):
                    np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)

    def test_stand_between_layers(self):
        keras = tf.keras
        x = keras.Input((8, 8, 4))
        made = tf.nn.depth_to_space(tf.math.lgamma(tf.nn.crelu(x) + 1.0), 2)
        made = tf.signal.frame(tf.image.sobel_edges(made), 4, 2, axis=1)
        model = keras.Model(x, tf.nn.conv2d_transpose(made[:, 0, :, :, :, 0], tf.ones([2, 2, 3, 2]), [2, 8, 32, 3], 2))
        values = cases.positive(2, 8, 8, 4)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.keras"
            model.save(path)
            np.testing.assert_allclose(keras.models.load_model(path)(values).numpy(), model(values).numpy())

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
