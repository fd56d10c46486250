"""Arrays of NumPy's, and tensors of other libraries, that are read where they are."""

import gc
import os
import pickle
import signal
import sys
import threading
import unittest
import weakref

import numpy as np

import lockstep as tf
from lockstep import keras
from lockstep.tensor import lending
from own_steps import Bad, Own

ROWS, COLUMNS = 4096, 256
BYTES = ROWS * COLUMNS * 4


def small_model(cls=keras.Sequential, **compiled):
    keras.utils.set_random_seed(1)
    model = cls([keras.Input((COLUMNS,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    return model


class Failing(keras.callbacks.Callback):
    """Raises an error in the fourth step."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            raise self.error

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


def held():
    return tf.config.experimental.get_memory_info("CPU:0")["current"]


def peak_of(call):
    """Bytes that a call takes from the CPU's memory beyond what was held before."""
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = held()
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
        x, y = examples()
        model = small_model(Own)
        for name, call in {"fit": lambda: model.fit(x, y, verbose=0), "split": lambda: model.fit(x, y, validation_split=0.5, verbose=0),
                           "validation": lambda: model.fit(x[:64], y[:64], validation_data=(x, y), verbose=0),
                           "evaluate": lambda: model.evaluate(x, y, verbose=0), "predict": lambda: model.predict(x, verbose=0),
                           "a batch": lambda: model.train_on_batch(x, y)}.items():
            call()
            self.assertLess(peak_of(call), BYTES / 2, name)

    def test_arrays_by_name_and_weights_are_not_copied(self):
        x, y = examples()
        a, b = keras.Input((COLUMNS,), name="a"), keras.Input((COLUMNS,), name="b")
        model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(a + b))
        model.compile("sgd", "mse")
        given, weights = {"a": x, "b": x}, np.ones((ROWS,), np.float32)
        before = sys.getrefcount(x), sys.getrefcount(weights)
        for name, call in {"fit": lambda: model.fit(given, y, sample_weight=weights, verbose=0),
                           "validation": lambda: model.fit({"a": x[:64], "b": x[:64]}, y[:64], validation_data=(given, y, weights), verbose=0),
                           "evaluate": lambda: model.evaluate(given, y, sample_weight=weights, verbose=0)}.items():
            call()
            self.assertLess(peak_of(call), BYTES / 2, name)
        model.predict(given, verbose=0)
        model.train_on_batch(given, y, weights)
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(weights)), before)

    def test_errors_copy_nothing_and_keep_nothing(self):
        x, y = examples()
        before = sys.getrefcount(x), sys.getrefcount(y)
        for cls in (keras.Sequential, Own, Bad):
            model = small_model(cls)
            if cls is not Bad:
                for call in (model.fit, model.evaluate, lambda x, y, verbose: model.predict(x, verbose=verbose)):
                    call(x[:64], y[:64], verbose=0)  # compiles
            for error in (KeyError("mine"),) if cls is Bad else (KeyError("mine"), KeyboardInterrupt()):
                told = [] if cls is Bad else [Failing(error)]
                wanted = KeyError if cls is Bad else type(error)
                for name, call in {"fit": lambda: model.fit(x, y, verbose=0, callbacks=told),
                                   "split": lambda: model.fit(x, y, validation_split=0.5, verbose=0, callbacks=told),
                                   "validation": lambda: model.fit(x[:64], y[:64], validation_data=(x, y), verbose=0, callbacks=told),
                                   "evaluate": lambda: model.evaluate(x, y, verbose=0, callbacks=told),
                                   "predict": lambda: model.predict(x, verbose=0, callbacks=told)}.items():
                    kept, memory = [], held()

                    def failing():
                        try:
                            call()
                        except BaseException as raised:
                            kept.append(raised)
                    self.assertLess(peak_of(failing), BYTES / 2, (cls, name))
                    self.assertIsInstance(kept[0], wanted)
                    self.assertLess(held() - memory, BYTES / 4, (cls, name, "while the error is kept"))
                    kept[0].__traceback__ = None
                    error.__traceback__ = error.__context__ = None
                    kept.clear()
                    gc.collect()
                    self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before, (cls, name))
        wrong = y[1:]
        for cls in (keras.Sequential, Own):
            model = small_model(cls)
            with self.assertRaises(ValueError) as kept:
                self.assertLess(peak_of(lambda: model.fit(x, wrong, verbose=0)), BYTES / 2)
        del kept
        gc.collect()
        self.assertEqual(sys.getrefcount(x), before[0])

    def test_ctrl_c(self):
        x, y = (part[:256].copy() for part in examples())
        before = sys.getrefcount(x), sys.getrefcount(y)
        for cls in (keras.Sequential, Own):
            model = small_model(cls)
            for call in (lambda: model.fit(x, y, batch_size=1, verbose=0), lambda: model.evaluate(x, y, batch_size=1, verbose=0),
                         lambda: model.predict(x, batch_size=1, verbose=0)):
                call()  # compiles
                threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                with self.assertRaises(KeyboardInterrupt):
                    while True:
                        call()
                gc.collect()
                self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before)

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

    def test_what_a_program_keeps_does_not_change(self):
        def keep(x):
            if not x.symbolic:
                kept.append((x, np.asarray(x), memoryview(x), tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(x)), x[1:3]))

        class Keeping(keras.layers.Layer):
            def call(self, x):
                keep(x)
                return x * 1.0

        class KeepingMetric(keras.metrics.Metric):
            def update_state(self, y_true, y_pred, sample_weight=None):
                keep(y_true)

            def result(self):
                return tf.constant(0.0)

            def reset_state(self):
                pass

        class KeepingSteps(keras.Sequential):
            def train_step(self, data):
                keep(data[0])
                return super().train_step(data)

            test_step = train_step

            def predict_step(self, data):
                keep(data)
                return super().predict_step(data)
        kept = []
        x, y = examples()
        x, y = x[:64].copy(), y[:64].copy()
        for cls in (keras.Sequential, KeepingSteps):
            model = cls([keras.Input((COLUMNS,)), Keeping(), keras.layers.Dense(1)])
            model.compile("sgd", "mse", metrics=[KeepingMetric(name="keeping")], run_eagerly=True)
            for call in (lambda: model.evaluate(x, y, verbose=0), lambda: model.predict(x, verbose=0), lambda: model.fit(x, y, verbose=0),
                         lambda: model.fit(x, y, shuffle=False, verbose=0), lambda: model.train_on_batch(x, y), lambda: model.test_on_batch(x, y),
                         lambda: model.predict_on_batch(x)):
                kept.clear()
                call()
                self.assertTrue(kept)
                expected = [[np.array(value) for value in values] for values in kept]
                x += 1
                y += 1
                for values, wanted in zip(kept, expected):
                    for value, one in zip(values, wanted):
                        np.testing.assert_array_equal(np.asarray(value), one)

    def test_what_is_lent_shows_copies(self):
        x, _ = examples()
        x = x[:8].copy()
        expected, kept = x.copy(), []

        def keep(loan):
            lent = loan.tensor(x)
            part = lent[2:4]
            again = tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(lent))
            kept.extend([lent, np.asarray(lent), memoryview(lent), lent.numpy(), again, pickle.loads(pickle.dumps(lent)), part, np.asarray(part)])
        lending(keep)
        x[:] = 7
        for value in kept[:-2]:
            np.testing.assert_array_equal(np.asarray(value), expected)
        for value in kept[-2:]:
            np.testing.assert_array_equal(np.asarray(value), expected[2:4])
        self.assertEqual(len({np.asarray(kept[0]).ctypes.data for _ in range(2)}), 1, "which is in the tensor's own memory from then on")

    def test_who_keeps_a_batch_keeps_neither_the_array_nor_a_copy_of_it(self):
        class Keeping(keras.layers.Layer):
            def call(self, x):
                kept.append(x)
                return x * 1.0
        kept = []
        model = keras.Sequential([keras.Input((COLUMNS,)), Keeping(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        x, _ = examples()
        model.predict(x[:32], verbose=0)
        x = x.view(Array)
        seen, before = weakref.ref(x), held()
        model.predict(x, verbose=0)
        del kept[1:], x
        gc.collect()
        self.assertIsNone(seen())
        self.assertLess(held() - before, BYTES / 8)

    def test_what_is_kept_of_a_loan_does_not_hold_the_array(self):
        x, _ = examples()
        x = x.view(Array)
        seen = weakref.ref(x)
        part = lending(lambda loan: loan.tensor(x)[5:7])
        expected = np.array(x[5:7])
        del x
        gc.collect()
        self.assertIsNone(seen())
        np.testing.assert_array_equal(part.numpy(), expected)

    def test_all_is_given_back_where_one_fails(self):
        from lockstep import _lockstep
        arrays = [np.full(8, float(number), np.float32) for number in range(3)]
        kept, whole = [], _lockstep.give_back

        def failing(tensor):
            if float(tensor[0]) == 1.0:
                raise MemoryError("no room")
            whole(tensor)
        _lockstep.give_back = failing
        try:
            with self.assertRaises(MemoryError):
                lending(lambda loan: kept.extend(loan.tensor(array) for array in arrays))
        finally:
            _lockstep.give_back = whole
        for array in arrays:
            array[:] = 9
        self.assertEqual([float(kept[0][0]), float(kept[2][0])], [0.0, 2.0])

    def test_variables_take_over_what_is_made_for_them(self):
        x, _ = examples()
        for make in (lambda: tf.Variable(x), lambda: tf.Variable(lambda: tf.constant(x)), lambda: tf.Variable(x, dtype=tf.float64)):
            kept = []
            peak = peak_of(lambda: kept.append(make()))
            size = BYTES * (2 if kept[0].dtype == tf.float64 else 1)
            self.assertLess(peak, 1.5 * size)

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
        between = np.frombuffer(bytearray(13), np.uint8)[1:].view(np.float32)  # begins between two floats
        for given in (x.T, x.T.__dlpack__(), between, between.__dlpack__(), x[:, ::2], x.astype(">f4")):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "row-major order and are aligned"):
                tf.experimental.dlpack.from_dlpack(given)
        for given in (x, x.__dlpack__(), x[1:]):
            tensor = tf.experimental.dlpack.from_dlpack(given)
            x += 1
            self.assertEqual(tensor.numpy().tolist(), x[-tensor.shape[0]:].tolist(), "and no copy was made of it")
