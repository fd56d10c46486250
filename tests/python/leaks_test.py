"""What was made and dropped is gone: memory and reference counts are as before."""

import gc
import sys
import unittest

import numpy as np

import lockstep as tf

COUNT = 100_000
MEGABYTE = 1 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class ManyObjects(unittest.TestCase):
    def assert_nothing_stays(self, make, count=COUNT):
        """Makes things and drops them; the first few fill caches, and the allocator keeps what it was given for a while."""
        for _ in range(count // 20 + 100):
            make()
        gc.collect()
        objects, memory = len(gc.get_objects()), resident()
        for _ in range(count):
            make()
        gc.collect()
        self.assertLess(len(gc.get_objects()) - objects, 100, "objects of Python")
        # A leak of 100 bytes each.
        self.assertLess(resident() - memory, max(100 * count, 4 * MEGABYTE), "bytes of memory")

    def test_LongTensors(self):
        a, array = tf.constant([1.0, 2.0, 3.0]), np.ones(3, np.float32)
        before = sys.getrefcount(a), sys.getrefcount(array)
        self.assert_nothing_stays(lambda: (a + tf.constant(array)).numpy())
        self.assertEqual((sys.getrefcount(a), sys.getrefcount(array)), before)

    def test_LongTapes(self):
        w = tf.Variable([1.0, 2.0])

        def make():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(w * w)
            tape.gradient(loss, w)
        self.assert_nothing_stays(make, COUNT // 2)

    def test_LongFunctions(self):
        x = tf.constant([1.0])
        self.assert_nothing_stays(lambda: tf.function(lambda t: t + 1.0))
        self.assert_nothing_stays(lambda: tf.function(lambda t: t + 1.0)(x), COUNT // 50)

    def test_LongDatasets(self):
        data = np.arange(4, dtype=np.float32)

        def make():
            for _ in tf.data.Dataset.from_tensor_slices(data).map(lambda t: t * 2.0).batch(2):
                pass
        self.assert_nothing_stays(make, COUNT // 20)
        self.assert_nothing_stays(lambda: tf.data.Dataset.from_tensor_slices(data).batch(2))

    def test_LongModels(self):
        x = np.ones((2, 3), np.float32)

        class Doubled(tf.keras.layers.Layer):
            def call(self, given):
                return given * 2.0

        def make():
            model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2), Doubled()])
            model(x)
        self.assert_nothing_stays(make, COUNT // 100)

    def test_LongBorrowedArrays(self):
        x, y = np.ones((64, 3), np.float32), np.ones((64, 1), np.float32)
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")

        def make():
            model.train_on_batch(np.ones((64, 3), np.float32), y)
            model.predict_on_batch(x)
            tf.experimental.dlpack.from_dlpack(np.ones(3, np.float32).__dlpack__())
        before = sys.getrefcount(x), sys.getrefcount(y)
        self.assert_nothing_stays(make, COUNT // 20)
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before)
        self.assert_nothing_stays(lambda: model.fit(x, y, verbose=0), COUNT // 500)
