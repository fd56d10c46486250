"""tf.test.TestCase: assertions about tensors and arrays."""

import tempfile
import unittest

import numpy as np

from . import nest
from .random import set_seed
from .tensor import is_tensor

main = unittest.main


def _array(value):
    if isinstance(value, (list, tuple)):
        return np.array([_array(part) for part in value])
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


class TestCase(unittest.TestCase):
    """A case of unittest's that compares tensors, arrays and structures of them. Every test begins with the same random numbers."""

    def setUp(self):
        super().setUp()
        set_seed(87654321)

    def evaluate(self, tensors):
        """The elements as arrays."""
        return nest.map_structure(lambda value: value.numpy() if is_tensor(value) else value, tensors)

    def get_temp_dir(self):
        """A folder for this test, which goes when it ends."""
        if "_folder" not in self.__dict__:
            self._folder = tempfile.TemporaryDirectory()
            self.addCleanup(self._folder.cleanup)
        return self._folder.name

    def _each(self, check, a, b):
        if isinstance(a, dict):
            self.assertEqual(sorted(a), sorted(b))
            for key in a:
                self._each(check, a[key], b[key])
        elif isinstance(a, (list, tuple)) and any(is_tensor(part) or isinstance(part, (np.ndarray, dict, list, tuple)) for part in a):
            self.assertEqual(len(a), len(b))
            for one, other in zip(a, b):
                self._each(check, one, other)
        else:
            check(_array(a), _array(b))

    def assertAllClose(self, a, b, rtol=1e-6, atol=1e-6, msg=None):  # noqa: N802: TensorFlow's names, here and below
        self._each(lambda one, other: (self.assertEqual(one.shape, other.shape, msg),
                                       np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol, atol, err_msg=msg or "")), a, b)

    def assertNotAllClose(self, a, b, rtol=1e-6, atol=1e-6, msg=None):  # noqa: N802
        with self.assertRaises(AssertionError, msg=msg or "all elements are close"):
            self.assertAllClose(a, b, rtol, atol)

    def assertAllEqual(self, a, b, msg=None):  # noqa: N802
        self._each(lambda one, other: np.testing.assert_array_equal(one, other, msg or ""), a, b)

    def assertNotAllEqual(self, a, b, msg=None):  # noqa: N802
        with self.assertRaises(AssertionError, msg=msg or "all elements are equal"):
            self.assertAllEqual(a, b)

    def assertNear(self, f1, f2, err, msg=None):  # noqa: N802
        self.assertLessEqual(abs(float(f1) - float(f2)), err, msg)

    def assertArrayNear(self, farray1, farray2, err, msg=None):  # noqa: N802
        self.assertEqual(len(farray1), len(farray2), msg)
        for one, other in zip(farray1, farray2):
            self.assertNear(one, other, err, msg)

    def assertShapeEqual(self, input_a, input_b, msg=None):  # noqa: N802
        self.assertEqual(tuple(input_a.shape), tuple(input_b.shape), msg)

    def assertAllGreater(self, a, comparison_target):  # noqa: N802
        self.assertGreater(_array(a).min(), comparison_target)

    def assertAllGreaterEqual(self, a, comparison_target):  # noqa: N802
        self.assertGreaterEqual(_array(a).min(), comparison_target)

    def assertAllLess(self, a, comparison_target):  # noqa: N802
        self.assertLess(_array(a).max(), comparison_target)

    def assertAllLessEqual(self, a, comparison_target):  # noqa: N802
        self.assertLessEqual(_array(a).max(), comparison_target)

    def assertAllInSet(self, target, expected_set):  # noqa: N802
        self.assertLessEqual(set(_array(target).reshape(-1).tolist()), set(expected_set))
