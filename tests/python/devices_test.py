"""Strategies, and what a process chooses once: its devices."""

import gc
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import lockstep as tf
from lockstep import keras


class StrategiesOwnProcess(unittest.TestCase):
    """Each case splits the CPU, which a process does once."""

    def setUp(self):
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                                   [tf.config.LogicalDeviceConfiguration(threads=1)] * 4)

    def data(self):
        generator = np.random.default_rng(0)
        x = generator.normal(size=(64, 4)).astype(np.float32)
        return x, x.sum(1, keepdims=True)

    def model(self):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Dense(8, activation="relu", input_shape=(4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
        return model

    def test_fit_runs_on_all_devices_with_the_same_bits(self):
        x, y = self.data()
        alone = self.model()
        alone.fit(x, y, epochs=2, batch_size=16, shuffle=False, verbose=0)
        strategy = tf.distribute.MirroredStrategy(report=False)
        self.assertEqual(strategy.num_replicas_in_sync, 4)
        with strategy.scope():
            model = self.model()
        model.fit(x, y, epochs=2, batch_size=16, shuffle=False, verbose=0)
        for a, b in zip(alone.get_weights(), model.get_weights()):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)

    def test_loop_of_ones_own(self):
        x, y = self.data()
        strategy = tf.distribute.MirroredStrategy(report=False)
        dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(32))
        with strategy.scope():
            model, optimizer = self.model(), keras.optimizers.SGD(0.05)
            loss_fn = keras.losses.MeanSquaredError(reduction="none")
        traced = []

        @tf.function
        def step(inputs, labels):
            traced.append(inputs.shape)
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(loss_fn(labels, model(inputs)), global_batch_size=32)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss
        losses = []
        for _ in range(5):
            for inputs, labels in dataset:
                self.assertEqual([part.shape for part in inputs.values], [(8, 4)] * 4)
                parts = strategy.run(step, args=(inputs, labels))
                self.assertEqual(len(strategy.experimental_local_results(parts)), 4)
                losses.append(float(strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)))
        self.assertLess(losses[-1], losses[0])
        self.assertIn("PerReplica:{", str(parts))
        with self.assertRaisesRegex(TypeError, "strategy.reduce"):
            float(parts)

    def test_penalties_count_once_on_any_number_of_devices(self):
        x, y = self.data()

        class Penal(keras.layers.Layer):
            def call(self, inputs):
                self.add_loss(2.0 * tf.reduce_mean(tf.square(inputs)))
                return inputs

        def model():
            keras.utils.set_random_seed(3)
            return keras.Sequential([keras.layers.Dense(8, input_shape=(4,), kernel_regularizer=keras.regularizers.L2(0.5)), Penal(),
                                     keras.layers.Dense(1)])

        class Stepped(keras.Model):
            """Keras 2's way to write a step."""

            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def call(self, inputs):
                return self.inner(inputs)

            def train_step(self, batch):
                inputs, labels = batch
                with tf.GradientTape() as tape:
                    loss = self.compiled_loss(labels, self(inputs, training=True), regularization_losses=self.losses)
                self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
                return {"loss": loss}

        def fitted(strategy, wrap):
            with strategy.scope():
                one = wrap(model())
                one.compile(keras.optimizers.SGD(0.05), "mse")
            one.fit(x[:50], y[:50], epochs=1, batch_size=15, shuffle=False, verbose=0)
            return one.get_weights()

        def looped(strategy):
            batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x[:50], y[:50])).batch(15))
            with strategy.scope():
                one, optimizer = model(), keras.optimizers.SGD(0.05)
                loss_fn = keras.losses.MeanSquaredError(reduction="none")

            def step(inputs, labels):
                with tf.GradientTape() as tape:
                    loss = tf.nn.compute_average_loss(loss_fn(labels, one(inputs)))
                    loss += tf.nn.scale_regularization_loss(tf.add_n(one.losses))
                optimizer.apply_gradients(zip(tape.gradient(loss, one.trainable_variables), one.trainable_variables))
            for batch in batches:
                strategy.run(step, args=batch)
            return one.get_weights()
        expected = fitted(tf.distribute.OneDeviceStrategy("/CPU:0"), lambda inner: inner)
        for devices in (["/CPU:0"], ["/CPU:0", "/CPU:1"], None):
            strategy = tf.distribute.MirroredStrategy(devices, report=False)
            for weights in (fitted(strategy, lambda inner: inner), fitted(strategy, Stepped), looped(strategy)):
                for a, b in zip(expected, weights):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)

    def test_functions_around_a_run_read_data_whenever_they_are_called(self):
        for strategy in (tf.distribute.MirroredStrategy(report=False), tf.distribute.OneDeviceStrategy("/CPU:0")):
            with strategy.scope():
                total = tf.Variable(0.0)
            batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(24).map(lambda x: tf.cast(x, tf.float32)).batch(4))

            def step(batch):
                total.assign_add(tf.reduce_sum(batch) if strategy.num_replicas_in_sync == 1 else 1.0)
                return tf.reduce_sum(batch)

            @tf.function
            def of_batch(batch):
                return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, args=(batch,)), axis=None)
            self.assertEqual([float(of_batch(batch)) for batch in batches], [6.0, 22.0, 38.0, 54.0, 70.0, 86.0])

            @tf.function
            def of_two(iterator):
                made = 0.0
                for _ in range(2):
                    made += strategy.reduce("SUM", strategy.run(step, args=(next(iterator),)), axis=None)
                return made
            iterator = iter(batches)
            self.assertEqual([float(of_two(iterator)) for _ in range(3)], [28.0, 92.0, 156.0])
            self.assertEqual(float(total), 2 * 276.0 if strategy.num_replicas_in_sync == 1 else 12.0)
            plain = tf.function(lambda x: strategy.reduce("MEAN", strategy.run(lambda y: y * 2, args=(x,)), axis=None))
            self.assertEqual([float(plain(tf.constant(x))) for x in (1.0, 2.0)], [2.0, 4.0])
            with self.assertRaisesRegex(Exception, "is done once"):
                strategy.run(lambda: next(iterator))

            @tf.function
            def looped(iterator):
                made = 0.0
                for _ in tf.range(3):
                    made += strategy.reduce("SUM", strategy.run(step, args=(next(iterator),)), axis=None)
                return made
            self.assertEqual(float(looped(iter(batches))), 66.0)
            numbers = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(float(context.replica_id_in_sync_group)))
            twice = strategy.run(lambda x: x * 2, args=(numbers,))
            self.assertEqual([float(x) for x in strategy.experimental_local_results(twice)], [2.0 * r for r in range(strategy.num_replicas_in_sync)])

    def test_own_train_step_runs_on_all_devices(self):
        class Own(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(y=y, y_pred=self(x, training=True))
                weights = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
                return {"loss": loss}

        def made():
            keras.utils.set_random_seed(3)
            inputs = keras.Input((4,))
            model = Own(inputs, keras.layers.Dense(1)(inputs))
            model.compile(keras.optimizers.SGD(0.05), "mse")
            return model
        x, y = self.data()
        alone = made()
        wanted = alone.fit(x, y, epochs=2, batch_size=16, shuffle=False, verbose=0)
        with tf.distribute.MirroredStrategy(report=False).scope():
            model = made()
        history = model.fit(x, y, epochs=2, batch_size=16, shuffle=False, verbose=0)
        np.testing.assert_allclose(history.history["loss"], wanted.history["loss"], rtol=1e-4)
        for a, b in zip(alone.get_weights(), model.get_weights()):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)

    def test_arguments_of_steps_of_ones_own_are_the_engines_on_all_devices(self):
        from own_steps import Own, arguments, fitted, made, numbers
        x, y, _ = numbers()
        strategy = tf.distribute.MirroredStrategy(report=False)
        for given in arguments():
            data, results = given.pop("data", (x, y)), []
            compiled = {name: given.pop(name) for name in ("metrics", "weighted_metrics") if name in given}
            for cls in (keras.Sequential, Own):
                with strategy.scope():
                    model = made(cls, **compiled)
                history, values, weights = fitted(model, [], data, **given)
                results.append([*(value for name in sorted(history) for value in history[name]), *np.ravel(values), *weights[0][:, 0],
                                *model.predict(x, batch_size=30, verbose=0)[:, 0], *model.predict_on_batch(x)[:, 0],
                                *model.train_on_batch(x, y), *model.test_on_batch(x, y)])
            np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6, err_msg=str(list(given)))

    def test_arrays_are_lent_to_a_strategy(self):
        from borrowed_test import BYTES, Failing, examples, held, peak_of, small_model
        from own_steps import Own
        x, y = examples()
        before = sys.getrefcount(x), sys.getrefcount(y)
        with tf.distribute.MirroredStrategy(report=False).scope():
            models = [small_model(cls) for cls in (keras.Sequential, Own)]
        for model in models:
            for name, call in {"fit": lambda: model.fit(x, y, verbose=0), "in order": lambda: model.fit(x, y, shuffle=False, verbose=0),
                               "validation": lambda: model.fit(x[:64], y[:64], validation_data=(x, y), verbose=0),
                               "evaluate": lambda: model.evaluate(x, y, verbose=0), "predict": lambda: model.predict(x, verbose=0)}.items():
                call()  # compiles
                self.assertLess(peak_of(call), BYTES / 2, name)
            model.train_on_batch(x, y)
            kept, memory = [], held()
            try:
                model.fit(x, y, verbose=0, callbacks=[Failing(KeyError("mine"))])
            except KeyError as error:
                kept.append(error)
            self.assertLess(held() - memory, BYTES / 4)
            kept.pop().__traceback__ = None
            gc.collect()
            self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before)

    def test_op_by_op_batches_are_where_the_strategy_is(self):
        from own_steps import Own

        class Placed(keras.layers.Layer):
            def call(self, x):
                if not x.symbolic:
                    places.add(x.device.rsplit("/", 1)[-1])
                return x * 1.0
        places = set()
        x, y = self.data()
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
        for cls in (keras.Sequential, Own):
            with tf.distribute.OneDeviceStrategy("/CPU:2", report=False).scope():
                model = cls([keras.Input((4,)), Placed(), keras.layers.Dense(1)])
                model.compile("sgd", "mse", run_eagerly=True)
            for call in (lambda: model.fit(x, y, verbose=0), lambda: model.fit(data, verbose=0), lambda: model.evaluate(x, y, verbose=0),
                         lambda: model.evaluate(data, verbose=0), lambda: model.predict(x, verbose=0), lambda: model.train_on_batch(x, y),
                         lambda: model.test_on_batch(x, y), lambda: model.predict_on_batch(x)):
                places.clear()
                call()
                self.assertEqual(places, {"device:CPU:2"})

    def test_forgotten_scope_names_the_line(self):
        model = self.model()
        tf.distribute.MirroredStrategy(report=False)
        x, y = self.data()
        with self.assertRaisesRegex(RuntimeError, r"would use one device, while MirroredStrategy .*\[devices_test\.py:\d+\]") as error:
            strategy = tf.distribute.MirroredStrategy(report=False)
            model.fit(x, y, verbose=0)
        self.assertIn("with strategy.scope():", str(error.exception))
        self.assertEqual(strategy.num_replicas_in_sync, 4)

    def test_other_strategies(self):
        for strategy in (tf.distribute.OneDeviceStrategy("/CPU:1"), tf.distribute.experimental.CentralStorageStrategy(),
                         tf.distribute.MultiWorkerMirroredStrategy(), tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:2"])):
            with strategy.scope():
                self.assertEqual(tf.distribute.get_strategy(), strategy)
                model = self.model()
            x, y = self.data()
            model.fit(x, y, verbose=0)
        self.assertFalse(tf.distribute.has_strategy())

    def test_checkpoints_of_a_model_and_its_optimizer(self):
        model = self.model()
        x, y = self.data()
        model.fit(x, y, verbose=0)
        step = tf.Variable(7, dtype=tf.int64)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=step)
            path = checkpoint.save(os.path.join(folder, "ckpt"))
            before = model.get_weights()
            model.fit(x, y, verbose=0)
            step.assign(9)
            self.assertEqual(tf.train.latest_checkpoint(folder), path)
            checkpoint.restore(path).assert_consumed()
            np.testing.assert_array_equal(before[0], model.get_weights()[0])
            self.assertEqual(int(step), 7)
            manager = tf.train.CheckpointManager(checkpoint, os.path.join(folder, "kept"), max_to_keep=2)
            with self.assertRaisesRegex(NotImplementedError, "numbered one after another"):
                manager.save(checkpoint_number=7)
            for _ in range(3):
                manager.save()
            self.assertEqual(len(manager.checkpoints), 2)

    def test_devices(self):
        self.assertEqual([d.name for d in tf.config.list_logical_devices("CPU")], [f"/CPU:{i}" for i in range(4)])
        with tf.device("/CPU:2"):
            x = tf.ones((2, 2)) @ tf.ones((2, 2))
        self.assertEqual(x.device, "/job:localhost/replica:0/task:0/device:CPU:2")
        with self.assertRaisesRegex(ValueError, "there is no device"):
            with tf.device("/GPU:0"):
                tf.ones(1)


class CommandOwnProcess(unittest.TestCase):
    """python -m lockstep script.py"""

    def run_script(self, text, *arguments, status=0):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as script:
                script.write(text)
            done = subprocess.run([sys.executable, "-B", "-m", "lockstep", *arguments, path, "one", "two"], cwd=folder,
                                  capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout + done.stderr

    def test_imports_find_lockstep(self):
        printed = self.run_script("""
import sys
import tensorflow as tf
import keras
from tensorflow import keras as other
from tensorflow.keras import layers
from tensorflow.keras.optimizers.schedules import CosineDecay
from keras.layers import Dense
import tensorflow.keras.backend as K
import tensorflow.python.keras.layers
from tensorflow.keras.preprocessing.text import Tokenizer
from tensorflow.keras.preprocessing.sequence import pad_sequences
print(tf.__name__, keras is other, Dense is layers.Dense, sys.argv[1:], __name__, len(tf.config.list_logical_devices()))
""", "--devices", "3")
        self.assertIn("lockstep True True ['one', 'two'] __main__ 3", printed)

    def test_errors_end_with_the_scripts_line(self):
        printed = self.run_script("import tensorflow as tf\n\ntf.zeros(3) + tf.zeros(4)\n", status=1)
        self.assertIn("[script.py:3]", printed)
        self.assertIn("InvalidArgumentError", printed)

    def test_a_loop_ends_with_a_report(self):
        printed = self.run_script("""
import tensorflow as tf
w = tf.Variable(tf.ones((64, 64)))
@tf.function
def step(x):
    w.assign(w * 0.5 + x)
    return tf.reduce_sum(w)
for _ in range(200):
    step(tf.ones((64, 64)))
""")
        self.assertIn("compute", printed)

    def test_programs_end_while_data_is_prefetched(self):
        for wraps in ("{}", "tf.distribute.MirroredStrategy(report=False).experimental_distribute_dataset({}.batch(2))"):
            printed = self.run_script("""
import time
import tensorflow as tf
def numbers():
    number = 0
    while True:
        yield number
        number += 1
        time.sleep(0.1)
data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int32)).prefetch(4)
iterator = iter(""" + wraps.format("data") + """)
next(iterator)
print("read")
""", "--no-report")
            self.assertIn("read", printed)

    def test_interrupted(self):
        printed = self.run_script("""
import os, signal, threading, time
import numpy as np
import tensorflow as tf
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background may have inherited that it is ignored
model = tf.keras.Sequential([tf.keras.layers.Dense(8, input_shape=(4,))])
model.compile("sgd", "mse")
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model.fit(np.ones((64, 4)), np.ones((64, 8)), epochs=10_000_000, verbose=0)
except KeyboardInterrupt:
    print("stopped by Ctrl-C")
""")
        self.assertIn("stopped by Ctrl-C", printed)
