"""Models whose steps are written in Python: what they are given, and who is told, is as with the engine's steps."""

import unittest

import numpy as np

import lockstep as tf
from lockstep import keras
from own_steps import Far, Own, arguments, batches_of, fitted, made, numbers


class Telling(keras.callbacks.Callback):
    """Writes down what it hears, with the names of the logs."""

    def __init__(self):
        super().__init__()
        self.heard = []


def _telling(moment):
    def hear(self, *args):
        logs = args[-1] or {}
        self.heard.append((moment, *args[:-1], *sorted(logs)))
    return hear


for _moment in ("train_begin", "train_end", "epoch_begin", "epoch_end", "train_batch_begin", "train_batch_end", "test_begin", "test_end",
                "test_batch_begin", "test_batch_end", "predict_begin", "predict_end", "predict_batch_begin", "predict_batch_end"):
    setattr(Telling, f"on_{_moment}", _telling(_moment))


class Stopping(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.stop_training = True


class Counting(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1


class StepsOfOnesOwn(unittest.TestCase):
    def assert_same(self, a, b, what):
        self.assertEqual(set(a[0]), set(b[0]), what)
        for name in a[0]:
            np.testing.assert_allclose(a[0][name], b[0][name], rtol=1e-5, err_msg=f"{name} {what}")
        for one, other in zip((a[1], *a[2]), (b[1], *b[2])):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=what)

    def test_run_eagerly_may_be_set_afterwards(self):
        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense, self.seen = keras.layers.Dense(1), []

            def call(self, x):
                self.seen.append(x.symbolic)
                return self.dense(x)

        class Stepping(Model):
            def test_step(self, data):
                return {"value": tf.reduce_sum(self(data[0]))}
        for kind in (Model, Stepping):
            model = kind()
            with self.assertRaisesRegex(RuntimeError, "compile\\(\\) the model first"):
                model.run_eagerly = True
            model.compile("sgd", "mse", metrics=["mae"])
            x = np.ones((4, 2), np.float32)
            model.fit(x, x[:, :1], verbose=0)
            for eagerly in (True, False):
                model.run_eagerly = eagerly
                self.assertIs(model.run_eagerly, eagerly)
                model.seen = []
                model.evaluate(x, x[:, :1], verbose=0)
                self.assertEqual(model.seen[-1] if model.seen else True, not eagerly)
            iterations = int(model.optimizer.iterations)
            model.fit(x, x[:, :1], verbose=0)
            self.assertEqual(int(model.optimizer.iterations), iterations + 1)

    def test_arguments_are_the_engines(self):
        x, y, _ = numbers()
        for given in arguments():
            data = given.pop("data", (x, y))
            compiled = {name: given.pop(name) for name in ("metrics", "weighted_metrics") if name in given}
            results, heard = [], []
            for cls in (keras.Sequential, Own):
                told = Telling()
                results.append(fitted(made(cls, **compiled), told, data, **given))
                heard.append(told.heard)
            what = str({name: value if isinstance(value, (int, float, dict)) else type(value) for name, value in given.items()})
            self.assert_same(*results, what)
            self.assertEqual(*heard, what)

    def test_callbacks_hear_of_evaluation_and_prediction(self):
        x, y, _ = numbers()
        heard = []
        for cls in (keras.Sequential, Own):
            told, model = Telling(), made(cls)
            model.evaluate(x, y, verbose=0, callbacks=told)
            np.testing.assert_allclose(model.predict(x, verbose=0, callbacks=[told]), model.predict_on_batch(x), rtol=1e-5)
            self.assertIs(told.model, model)
            heard.append(told.heard)
        self.assertEqual(*heard)
        self.assertEqual(len(heard[0]), 2 * (2 + 2 * 4))

    def test_what_the_engine_refuses_is_refused(self):
        x, y, weights = numbers()
        data = batches_of(x, y)
        refused = {
            "labels beside a dataset": lambda m: m.fit(data, y, verbose=0),
            "weights beside a dataset": lambda m: m.fit(data, sample_weight=weights, verbose=0),
            "weights beside a dataset that is evaluated": lambda m: m.evaluate(data, sample_weight=weights, verbose=0),
            "no end": lambda m: m.fit(data.repeat(), verbose=0),
            "no examples": lambda m: m.fit(x[:0], y[:0], verbose=0),
            "lengths": lambda m: m.fit(x, y[1:], verbose=0),
            "no batch size": lambda m: m.fit(x, y, batch_size=0, verbose=0),
            "no share": lambda m: m.fit(x, y, validation_split=1.0, verbose=0),
            "nothing to validate on": lambda m: m.fit(x[:1], y[:1], validation_split=0.5, verbose=0),
            "a frequency of none": lambda m: m.fit(x, y, validation_data=(x, y), validation_freq=0, verbose=0),
            "no x": lambda m: m.fit(None, verbose=0)}
        for cls in (keras.Sequential, Own):
            for name, call in refused.items():
                with self.assertRaises(ValueError, msg=f"{name} {cls}"):
                    call(made(cls))
            with self.assertRaises(NotImplementedError):
                made(cls).fit(data, validation_split=0.5, verbose=0)
            for call in (lambda m: m.fit(data, sample_weight=weights), lambda m: m.evaluate(data, sample_weight=weights)):
                with self.assertRaisesRegex(ValueError, "sample_weight comes with the dataset, as the third part of its elements"):
                    call(made(cls))

    def test_a_stop_ends_with_its_fit(self):
        x, y, _ = numbers()
        for stop in (Stopping(), keras.callbacks.EarlyStopping("loss", min_delta=1e9)):
            model, counting = made(), Counting()
            model.fit(x, y, batch_size=10, epochs=9, verbose=0, callbacks=[stop])
            self.assertTrue(model.stop_training)
            whole = model.evaluate(x, y, batch_size=10, verbose=0)
            model.stop_training = False
            self.assertFalse(model.stop_training)
            self.assertEqual(model.evaluate(x, y, batch_size=10, verbose=0), whole, "of all batches, stopped or not")
            model.fit(x, y, batch_size=10, epochs=2, verbose=0, callbacks=counting)
            self.assertEqual(counting.batches, 20)
        model = made()
        y[20:] = 100.0
        heard = model.fit(x, y, batch_size=10, verbose=0, callbacks=[Stopping()], validation_data=(x, y)).history
        self.assertGreater(heard["val_loss"][0], 1000.0, "validation goes through all of its batches")

    def test_epochs_of_so_many_steps_go_on_where_the_one_before_ended(self):
        class Seeing(keras.Sequential):
            def train_step(self, data):
                seen.append(int(data[0][0, 0]))
                return super().train_step(data)
        seen = []
        model = made(Seeing, run_eagerly=True)
        x, y = np.arange(400, dtype=np.float32).reshape(100, 4) // 40, np.ones((100, 1), np.float32)
        for data in (batches_of(x, y, 10), batches_of(x, y, 10).filter(lambda x, y: True)):  # of known and unknown length
            seen.clear()
            model.fit(data, steps_per_epoch=4, epochs=2, verbose=0)
            self.assertEqual(seen, list(range(8)))
            seen.clear()
            model.fit(data, steps_per_epoch=5, epochs=3, verbose=0)
            self.assertEqual(seen, [*range(10), *range(5)], "which begins anew")
            seen.clear()
            with self.assertWarnsRegex(UserWarning, "the data ended after 2 of 8 steps") as told:
                model.fit(data, steps_per_epoch=8, epochs=3, verbose=0)
            self.assertEqual((seen, told.filename), ([*range(10), *range(8)], __file__))

    def test_batches_are_stepped_through(self):
        class Five(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)

            def call(self, x):
                return self.dense(x)

            def train_step(self, data):
                x, _ = data
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(self.dense(x) - 5.0))
                self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
                return {"mine": loss}
        x, y, _ = numbers()
        model = Five()
        model.compile(keras.optimizers.SGD(0.1), "mse")
        for _ in range(300):
            logs = model.train_on_batch(x, y, return_dict=True)
        self.assertEqual(list(logs), ["mine"])
        self.assertLess(logs["mine"], 0.1)

    def test_steps_on_batches_are_the_engines(self):
        x, y, weights = numbers()
        results = []
        for cls in (keras.Sequential, Own):
            model = made(cls)
            results.append([*model.train_on_batch(x, y, weights), *model.train_on_batch(x, y, class_weight={1: 2.0}), *model.test_on_batch(x, y),
                            *model.test_on_batch(x, y, weights), *model.predict_on_batch(x)[:, 0],
                            *model.train_on_batch(x, y, return_dict=True).values()])
        np.testing.assert_allclose(*results, rtol=1e-5)

    def test_evaluation_and_prediction_of_ones_own(self):
        x, y, _ = numbers()
        model, told = made(Far), Telling()
        plain = made(keras.Sequential)
        history = model.fit(x, y, epochs=4, verbose=0, shuffle=False, validation_split=0.5, validation_freq=2,
                            callbacks=[told, keras.callbacks.EarlyStopping("val_far", mode="min", patience=2)]).history
        self.assertEqual(history["val_far"], [7.0, 7.0], "and the callbacks have heard of it")
        expected = plain.fit(x[:50], y[:50], epochs=4, verbose=0, shuffle=False).history
        np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)
        self.assertEqual(sorted(history), ["loss", "mae", "val_far"])
        self.assertIn(("test_end", "far"), told.heard)
        self.assertEqual(sum(moment[0] == "test_batch_begin" for moment in told.heard), 2 * 2)
        self.assertEqual(model.evaluate(x, y, verbose=0), 7.0)
        self.assertEqual(model.test_on_batch(x, y, return_dict=True), {"far": 7.0})
        for results in (model.predict(x, verbose=0), model.predict(batches_of(x, y, 30).map(lambda x, y: x), verbose=0), model.predict_on_batch(x)):
            np.testing.assert_array_equal(results["also"], x[:, :2])
            np.testing.assert_allclose(results["far"], plain.predict(x, verbose=0) + 100.0, rtol=1e-5)

    def test_a_loss_of_ones_own(self):
        class Losing(keras.Sequential):
            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                return keras.ops.mean(keras.ops.square(y_pred - 5.0)) + 0.0 * super().compute_loss(x, y, y_pred, sample_weight)
        x, y, _ = numbers()
        model = made(Losing)
        model.fit(x, y, epochs=100, verbose=0)
        self.assertGreater(model.predict(x, verbose=0).mean(), 4.5)

    def test_inputs_alone_and_by_name(self):
        class Inputs(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)

            def train_step(self, data):
                seen.append(data)
                return {"steps": tf.constant(1.0)}
        x, y, weights = numbers()
        seen = []
        model = Inputs()
        model.compile("sgd", run_eagerly=True)
        for given, expected in [((x,), "tensor"), (([x, x],), "one part"), (({"a": x, "b": x}, y), "by name"), ((x, y, weights), "three")]:
            seen.clear()
            names = dict(zip(("x", "y", "sample_weight"), given))
            model.fit(**names, batch_size=100, verbose=0)
            model.train_on_batch(**names)
            for data in seen:
                if expected == "tensor":
                    self.assertEqual(data.shape, (100, 4))
                elif expected == "one part":
                    self.assertEqual([[part.shape for part in one] for one in data], [[(100, 4)] * 2])
                elif expected == "by name":
                    self.assertEqual((sorted(data[0]), data[1].shape), (["a", "b"], (100, 1)))
                else:
                    self.assertEqual([part.shape for part in data], [(100, 4), (100, 1), (100,)])

    def test_averages_of_weights_are_taken_at_the_end(self):
        x, y, _ = numbers()
        results = [fitted(made(cls, optimizer=keras.optimizers.SGD(0.1, use_ema=True)), [], (x, y)) for cls in (keras.Sequential, Own)]
        self.assert_same(*results, "use_ema")

    def test_values_are_listed_as_the_metrics_are(self):
        x, y, _ = numbers()
        for cls in (keras.Sequential, Own):
            model = made(cls, metrics=["mse", "mae"])
            for listed, named in ((model.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0, return_dict=True)),
                                  (model.test_on_batch(x, y), model.test_on_batch(x, y, return_dict=True))):
                self.assertEqual(listed, [named["loss"], named["mse"], named["mae"]])
                self.assertEqual(list(named), ["loss", "mae", "mse"])

    def test_metrics_are_those_that_were_compiled_last(self):
        x, y, _ = numbers()
        model = made()
        model.fit(x, y, verbose=0)
        model.compile("sgd", "mse", metrics=["mse"])
        self.assertEqual(sorted(model.fit(x, y, verbose=0).history), ["loss", "mse"])
