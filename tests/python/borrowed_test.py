"""Arrays of NumPy's, and tensors of other libraries, that are read where they are."""

import gc
import sys
import unittest
import weakref

import numpy as np

import lockstep as tf
from lockstep import keras

ROWS, COLUMNS = 4096, 256
BYTES = ROWS * COLUMNS * 4


def small_model(**compiled):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((COLUMNS,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    return model


def peak_of(call):
    """Bytes that a call takes from the CPU's memory beyond what was held before."""
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    call()
    return tf.config.experimental.get_memory_info("CPU:0")["peak"] - before


class Array(np.ndarray):
    """One that weak references may look at."""


def examples(dtype=np.float32):
    return np.random.default_rng(0).random((ROWS, COLUMNS)).astype(dtype), np.ones((ROWS, 1), np.float32)


class Borrowed(unittest.TestCase):
    def test_calls_of_a_model_copy_no_arrays(self):
        x, y = examples()
        model = small_model()
        for name, call in {"fit": lambda: model.fit(x, y, batch_size=32, verbose=0),
                           "in order": lambda: model.fit(x, y, batch_size=32, shuffle=False, verbose=0),
                           "validation": lambda: model.fit(x[:64], y[:64], validation_data=(x, y), verbose=0),
                           "evaluate": lambda: model.evaluate(x, y, verbose=0),
                           "predict": lambda: model.predict(x, verbose=0)}.items():
            call()  # compiles
            self.assertLess(peak_of(call), BYTES / 2, name)
        self.assertLess(peak_of(lambda: model.train_on_batch(x, y)), BYTES / 2)
        self.assertGreater(peak_of(lambda: tf.constant(x)), BYTES / 2, "what tensors keep is copied, or this test sees nothing")

    def test_a_model_of_ones_own_steps_copies_no_arrays(self):
        class Own(keras.Sequential):
            def train_step(self, data):
                return super().train_step(data)
        x, y = examples()
        model = Own([keras.Input((COLUMNS,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(x, y, verbose=0)
        self.assertLess(peak_of(lambda: model.fit(x, y, verbose=0)), BYTES / 2)

    def test_the_same_numbers_come_out_of_every_layout(self):
        x, y = examples()
        expected = small_model().fit(x, y, shuffle=False, verbose=0).history["loss"]
        wide = np.zeros((ROWS, 2 * COLUMNS), np.float32)
        wide[:, ::2] = x
        between = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)  # begins between two floats
        fixed = x.copy()
        fixed.setflags(write=False)
        self.assertNotEqual(between.ctypes.data % 4, 0)
        for name, given in {"every second": wide[:, ::2], "turned": np.asfortranarray(x), "unaligned": between, "read-only": fixed,
                            "big-endian": x.astype(">f4"), "rows of others": np.concatenate([x, x])[ROWS:]}.items():
            self.assertEqual(small_model().fit(given, y, shuffle=False, verbose=0).history["loss"], expected, name)

    def test_other_dtypes(self):
        for dtype in (np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_):
            x = np.arange(8 * COLUMNS).reshape(8, COLUMNS).astype(dtype)
            predicted = small_model().predict(x, verbose=0)
            np.testing.assert_array_equal(predicted, small_model().predict(x.astype(np.float32), verbose=0), str(dtype))

    def test_no_examples(self):
        with self.assertRaisesRegex(ValueError, "has no examples"):
            small_model().fit(np.zeros((0, COLUMNS), np.float32), np.zeros((0, 1), np.float32), verbose=0)

    def test_arrays_that_nobody_else_holds_live_as_long_as_the_call(self):
        class Dropping(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                held.clear()
                gc.collect()
                self.alive = seen() is not None
        x, y = examples()
        expected = small_model().fit(x, y, verbose=0).history["loss"]
        held = [x.view(Array)]
        del x
        seen = weakref.ref(held[0])
        dropping = Dropping()
        model = small_model()
        history = model.fit(held.pop(), y, callbacks=[dropping], verbose=0)
        self.assertEqual(history.history["loss"], expected)
        self.assertTrue(dropping.alive)
        gc.collect()
        self.assertIsNone(seen(), "and no longer")

    def test_reference_counts_are_as_before(self):
        x, y = examples()
        model = small_model()
        before = sys.getrefcount(x), sys.getrefcount(y)
        for call in (lambda: model.fit(x, y, validation_data=(x, y), verbose=0), lambda: model.evaluate(x, y, verbose=0),
                     lambda: model.predict(x, verbose=0), lambda: model.train_on_batch(x, y), lambda: model.test_on_batch(x, y),
                     lambda: model.predict_on_batch(x)):
            call()
            self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before)
        with self.assertRaises(ValueError):
            model.fit(x, y[1:], verbose=0)
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before, "after an error")

    def test_what_a_layer_keeps_does_not_change(self):
        class Keeping(keras.layers.Layer):
            def call(self, x):
                kept.append(x)
                return x * 1.0
        kept = []
        model = keras.Sequential([keras.Input((COLUMNS,)), Keeping(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        x, y = examples()
        x, y = x[:64].copy(), y[:64]
        for call in (lambda: model.evaluate(x, y, verbose=0), lambda: model.train_on_batch(x, y), lambda: model.predict(x, verbose=0)):
            kept.clear()
            call()
            expected = [tensor.numpy() for tensor in kept]
            self.assertTrue(expected)
            x += 1
            for tensor, value in zip(kept, expected):
                np.testing.assert_array_equal(tensor.numpy(), value)

    def test_writes_between_calls_are_seen(self):
        x, _ = examples()
        x, model = x[:8].copy(), small_model()
        first = model.predict(x, verbose=0)
        x *= 2
        np.testing.assert_allclose(model.predict(x, verbose=0), 2 * first, rtol=1e-5)

    def test_results_are_no_views_of_what_was_given(self):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Activation("linear")])
        x = np.ones((4, 3), np.float32)
        for predicted in (model.predict(x, verbose=0), model.predict_on_batch(x)):
            x[:] = 7
            self.assertEqual(predicted.max(), 1.0)
            x[:] = 1

    def test_tensors_and_datasets_are_copies(self):
        x = np.arange(4, dtype=np.float32)
        made = [tf.constant(x), tf.convert_to_tensor(x), tf.Variable(x)]
        dataset = tf.data.Dataset.from_tensor_slices(x)
        x[:] = 9
        for value in made:
            self.assertEqual(value.numpy().tolist(), [0, 1, 2, 3])
        self.assertEqual([float(value) for value in dataset], [0, 1, 2, 3])


class DlPack(unittest.TestCase):
    def test_elements_are_read_in_place(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        tensor = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        self.assertEqual(np.asarray(tensor).ctypes.data, x.ctypes.data)
        x[0, 0] = 9
        self.assertEqual(tensor.numpy()[0, 0], 9)
        again = tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(tensor))
        self.assertEqual(np.asarray(again).ctypes.data, x.ctypes.data)

    def test_the_memory_lives_as_long_as_the_tensor(self):
        x = np.arange(1 << 16, dtype=np.float32).view(Array)
        seen = weakref.ref(x)
        tensor = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        part = tensor[1000:1003]
        del x, tensor
        gc.collect()
        self.assertIsNotNone(seen())
        self.assertEqual(part.numpy().tolist(), [1000.0, 1001.0, 1002.0])
        del part
        gc.collect()
        self.assertIsNone(seen())

    def test_variables_do_not_write_there(self):
        x = np.ones(4, np.float32)
        variable = tf.Variable(tf.experimental.dlpack.from_dlpack(x.__dlpack__()))
        variable.assign_add(tf.ones(4))
        variable.assign(tf.experimental.dlpack.from_dlpack(x.__dlpack__()))
        variable.assign_add(tf.ones(4))
        self.assertEqual((x.tolist(), variable.numpy().tolist()), ([1.0] * 4, [2.0] * 4))

    def test_other_layouts(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        self.assertEqual(tf.experimental.dlpack.from_dlpack(x.T).numpy().tolist(), x.T.tolist())
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "row-major order"):
            tf.experimental.dlpack.from_dlpack(x.T.__dlpack__())
