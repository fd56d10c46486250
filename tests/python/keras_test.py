"""Models, layers, losses, metrics, optimizers, callbacks."""

import contextlib
import inspect
import io
import os
import tempfile
import unittest
from unittest import mock

import numpy as np

import lockstep as tf
from lockstep import keras


def numbers(count=128, seed=0):
    """Two classes that a small model tells apart."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, count)
    x = generator.normal(size=(count, 8)).astype(np.float32) + 2 * y[:, None]
    return x, y


def classifier(**kwargs):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(16, activation="relu", input_shape=(8,)), keras.layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.Adam(0.02), metrics=["accuracy"],
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), **kwargs)
    return model


class Models(unittest.TestCase):
    def test_functions_of_tensorflow_are_initializers(self):
        layer = keras.layers.Dense(2, kernel_initializer=tf.random.normal)
        self.assertEqual(layer(np.ones((1, 3), np.float32)).shape, (1, 2))

    def test_numbers_in_lists_and_weights_by_name(self):
        class Scaled(keras.layers.Layer):
            def build(self, input_shape):
                self.scale = self.add_weight("scale", shape=(int(input_shape[-1]),), initializer="ones")

            def call(self, x):
                return x * self.scale

        layer = Scaled()
        self.assertEqual(layer([[2.0, 3.0]]).numpy().tolist(), [[2.0, 3.0]])
        self.assertEqual(layer.submodules, ())

    def test_sequential_learns(self):
        x, y = numbers()
        model = classifier()
        history = model.fit(x, y, epochs=8, batch_size=16, validation_split=0.25, verbose=0)
        self.assertGreater(history.history["val_accuracy"][-1], 0.9)
        self.assertEqual(sorted(history.history), ["accuracy", "loss", "val_accuracy", "val_loss"])
        self.assertEqual(history.epoch, list(range(8)))
        loss, accuracy = model.evaluate(x, y, verbose=0)
        self.assertEqual(model.evaluate(x, y, verbose=0, return_dict=True), {"accuracy": accuracy, "loss": loss})
        predicted = model.predict(x, verbose=0)
        self.assertEqual((predicted.shape, predicted.dtype), ((128, 2), np.float32))
        np.testing.assert_allclose(predicted, model(x).numpy(), rtol=1e-4, atol=1e-5)

    def test_summary_names_and_weights(self):
        model = classifier()
        lines = []
        model.summary(print_fn=lines.append)
        self.assertIn("178", "\n".join(lines))
        self.assertEqual(model.count_params(), 178)
        self.assertEqual([w.shape for w in model.trainable_weights], [(8, 16), (16,), (16, 2), (2,)])
        dense = model.layers[0]
        self.assertIsInstance(dense, keras.layers.Dense)
        self.assertEqual((dense.units, dense.kernel.shape), (16, (8, 16)))
        self.assertIs(model.get_layer(index=0), dense)
        other = classifier()
        other.set_weights(model.get_weights())
        np.testing.assert_array_equal(other(np.ones((1, 8), np.float32)).numpy(), model(np.ones((1, 8), np.float32)).numpy())

    def test_functional_with_several_inputs_and_outputs(self):
        a, b = keras.Input(shape=(4,), name="a"), keras.Input(shape=(4,), name="b")
        joined = keras.layers.concatenate([keras.layers.Dense(4)(a), b])
        size = keras.layers.Dense(1, name="size")(joined * 2.0 - 1.0)
        kind = keras.layers.Dense(3, activation="softmax", name="kind")(keras.ops.relu(joined) + 0.5)
        model = keras.Model(inputs=[a, b], outputs={"size": size, "kind": kind})
        model.compile("adam", loss={"size": "mse", "kind": "sparse_categorical_crossentropy"}, metrics={"kind": ["accuracy"]})
        x = {"a": np.ones((8, 4), np.float32), "b": np.ones((8, 4), np.float32)}
        history = model.fit(x, {"size": np.ones((8, 1)), "kind": np.zeros(8, np.int32)}, epochs=1, verbose=0)
        self.assertIn("kind_accuracy", history.history)
        result = model.predict(x, verbose=0)
        self.assertEqual({name: value.shape for name, value in result.items()}, {"size": (8, 1), "kind": (8, 3)})

    def test_json_brings_a_model_back(self):
        model = classifier()
        again = keras.models.model_from_json(model.to_json())
        again.set_weights(model.get_weights())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "w.safetensors")
            model.save_weights(path)
            again.load_weights(path)
        np.testing.assert_array_equal(again(np.ones((2, 8), np.float32)).numpy(), model(np.ones((2, 8), np.float32)).numpy())

    def test_subclassed_model_learns(self):
        class Two(keras.Model):
            def __init__(self, units):
                super().__init__()
                self.blocks = [keras.layers.Dense(units, activation="relu"), keras.layers.Dropout(0.1)]
                self.last = keras.layers.Dense(2)
                self.seen = []

            def call(self, inputs, training=False):
                self.seen.append(training)
                for block in self.blocks:
                    inputs = block(inputs, training=training)
                return self.last(inputs)
        x, y = numbers()
        model = Two(16)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        history = model.fit(x, y, epochs=20, batch_size=16, verbose=0)
        self.assertGreater(history.history["accuracy"][-1], 0.85)
        self.assertIn(True, model.seen)
        model.predict(x, verbose=0)
        self.assertIs(model.seen[-1], False)
        self.assertEqual(len(model.trainable_weights), 4)

    def test_own_train_step(self):
        class Own(keras.Model):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    y_pred = self(x, training=True)
                    loss = self.compute_loss(y=y, y_pred=y_pred)
                weights = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
                for metric in self.metrics:
                    if metric.name != "loss":
                        metric.update_state(y, y_pred)
                return {"loss": loss, "steps": tf.constant(1.0)}
        inputs = keras.Input((8,))
        model = Own(inputs, keras.layers.Dense(2)(inputs))
        model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        x, y = numbers()
        history = model.fit(x, y, epochs=10, verbose=0, callbacks=[keras.callbacks.EarlyStopping("loss", patience=20)])
        self.assertLess(history.history["loss"][-1], history.history["loss"][0])
        self.assertEqual(history.history["steps"], [1.0] * 10)


    def test_metrics_in_a_step_of_ones_own(self):
        class WithStep(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)
                self.seen = keras.metrics.Sum(name="seen")

            def call(self, x):
                return self.dense(x)

            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    y_pred = self(x, training=True)
                    loss = self.compute_loss(y=y, y_pred=y_pred)
                self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
                for metric in self.metrics:
                    if metric.name == "loss":
                        metric.update_state(loss)
                    elif metric.name == "seen":
                        metric.update_state(tf.ones([len(x)]))
                    else:
                        metric.update_state(y, y_pred)
                return {metric.name: metric.result() for metric in self.metrics}
        x, y = numbers(64)
        model = WithStep()
        model.compile("sgd", "mse", metrics=["mae"])
        history = model.fit(x, y[:, None].astype(np.float32), epochs=3, batch_size=16, verbose=0).history
        self.assertEqual(set(history), {"loss", "mae", "seen"})
        self.assertEqual(history["seen"], [64.0] * 3)
        self.assertLess(history["loss"][-1], history["loss"][0])

    def test_gradients_of_what_layers_of_a_sequential_give(self):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, name="inner"), keras.layers.Dense(2)])
        both = keras.Model(model.inputs, [model.get_layer("inner").output, model.output])
        with tf.GradientTape() as tape:
            inner, scores = both(np.ones((5, 3), np.float32))
            score = scores[:, 1]
        np.testing.assert_allclose(tape.gradient(score, inner).numpy(), np.tile(model.layers[1].kernel.numpy()[:, 1], (5, 1)), rtol=1e-6)
        self.assertIs(model.output, model.outputs[0])
        model.add(keras.layers.Dense(7))
        self.assertEqual(model.output_shape, (None, 7))

    def test_data_and_results_by_name_of_a_call_of_ones_own(self):
        class Named(keras.Model):
            def __init__(self):
                super().__init__()
                self.one, self.two = keras.layers.Dense(3), keras.layers.Dense(1)

            def call(self, inputs):
                return {"u": self.one(inputs["p"]), "v": self.two(inputs["q"])}
        x, y = numbers(32)
        y = y[:, None].astype(np.float32)
        data, labels = {"q": x[:, :2], "p": x}, {"v": y, "u": np.repeat(y, 3, 1)}
        model = Named()
        model.compile("sgd", {"u": "mse", "v": "mae"}, loss_weights={"v": 2.0, "u": 1.0}, metrics={"v": ["mse"]})
        history = model.fit(data, labels, verbose=0, validation_data=(data, labels)).history
        self.assertEqual({name for name in history if not name.startswith("val_")}, {"loss", "u_loss", "v_loss", "v_mse"})
        self.assertAlmostEqual(history["loss"][0], history["u_loss"][0] + 2 * history["v_loss"][0], places=4)
        predicted = model.predict(data, verbose=0)
        self.assertEqual({name: value.shape for name, value in predicted.items()}, {"u": (32, 3), "v": (32, 1)})
        np.testing.assert_allclose(predicted["v"], model.two(x[:, :2]).numpy(), rtol=1e-5)
        batches = tf.data.Dataset.from_tensor_slices((data, labels)).batch(8)
        self.assertAlmostEqual(model.evaluate(batches, verbose=0, return_dict=True)["loss"], model.evaluate(data, labels, verbose=0)[0], places=4)
        model.fit(batches, verbose=0)
        model.train_on_batch({name: value[:4] for name, value in data.items()}, {name: value[:4] for name, value in labels.items()})

        class OneResult(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)

            def call(self, x):
                return {"out": self.dense(x)}
        model = OneResult()
        model.compile("sgd", {"out": "mse"})
        self.assertEqual(list(model.fit(x, {"out": y}, verbose=0).history), ["loss"])
        self.assertEqual(list(model.predict(x, verbose=0)), ["out"])

    def test_weights_are_made_with_one_example(self):
        seen = []

        class Watching(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)

            def call(self, x):
                if not x.symbolic:
                    seen.append(tuple(x.shape))
                return self.dense(x)
        model = Watching()
        model.compile("sgd", "mse")
        model.fit(np.ones((64, 3), np.float32), np.ones((64, 1), np.float32), batch_size=32, verbose=0)
        self.assertEqual(set(seen), {(1, 3)})

    def test_names_of_weights_are_keras_own(self):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="inner")], name="outer")
        self.assertEqual([(weight.name, weight.path) for weight in model.weights], [("kernel", "outer/inner/kernel"), ("bias", "outer/inner/bias")])
        self.assertEqual(keras.metrics.Precision().variables[0].name, "true_positives")
        self.assertEqual(tf.Variable(1.0, name="v").name, "v:0")


class Layers(unittest.TestCase):
    def test_layers_are_activations(self):
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation=keras.layers.LeakyReLU(negative_slope=0.25))])
        x = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
        plain = x @ model.layers[0].kernel.numpy()
        np.testing.assert_allclose(model.predict(x, verbose=0), np.where(plain > 0, plain, 0.25 * plain), rtol=1e-4, atol=1e-6)
        self.assertIsInstance(model.layers[0].activation, keras.layers.LeakyReLU)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            np.testing.assert_allclose(keras.models.load_model(path).predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6)

        class Twice(keras.layers.Layer):
            def call(self, x):
                return 2.0 * x
        np.testing.assert_allclose(keras.layers.Dense(2, activation=Twice(), kernel_initializer="ones")(np.ones((1, 3), np.float32)).numpy(), [[6.0, 6.0]])

    def test_signatures_are_keras_own(self):
        parameters = list(inspect.signature(keras.layers.Dense).parameters)
        self.assertEqual(parameters[:3], ["units", "activation", "use_bias"])
        with self.assertRaisesRegex(ValueError, 'did you mean "activation"'):
            keras.layers.Dense(3, activaton="relu")
        with self.assertRaisesRegex(ValueError, "Dense"):
            keras.layers.Dense(0)

    def test_lists_that_are_not_said_may_be_none(self):
        x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
        for pooling in (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D):
            np.testing.assert_array_equal(pooling((2, 2), strides=None)(x).numpy(), pooling((2, 2))(x).numpy())
            self.assertEqual(pooling(2, None, "same").get_config(), {**pooling(2, padding="same").get_config(), "name": mock.ANY})
        keras.optimizers.Muon(0.1, exclude_layers=None)

    def test_of_every_kind(self):
        image, text = np.ones((2, 8, 8, 3), np.float32), np.ones((2, 5), np.int32)
        for layer, x, shape in ((keras.layers.Conv2D(4, 3, padding="same", activation=tf.nn.relu), image, (2, 8, 8, 4)),
                                (keras.layers.MaxPooling2D((2, 2)), image, (2, 4, 4, 3)),
                                (keras.layers.BatchNormalization(), image, (2, 8, 8, 3)),
                                (keras.layers.Flatten(), image, (2, 192)), (keras.layers.Rescaling(1.0 / 255), image, (2, 8, 8, 3)),
                                (keras.layers.Embedding(10, 4), text, (2, 5, 4)),
                                (keras.layers.GlobalAveragePooling2D(), image, (2, 3)),
                                (keras.layers.Dense(3, kernel_initializer=keras.initializers.HeNormal(seed=1),
                                                    kernel_regularizer=keras.regularizers.L2(0.1)), image, (2, 8, 8, 3)),
                                (keras.layers.Reshape((64, 3)), image, (2, 64, 3)),
                                (keras.layers.Dense(3, activation=lambda t: t * 2), image, (2, 8, 8, 3))):
            self.assertEqual(layer(x).shape, shape, layer)
        sequence = np.ones((2, 5, 4), np.float32)
        outputs, state, carry = keras.layers.LSTM(3, return_state=True, return_sequences=True)(sequence)
        self.assertEqual((outputs.shape, state.shape, carry.shape), ((2, 5, 3), (2, 3), (2, 3)))
        self.assertEqual(keras.layers.Bidirectional(keras.layers.GRU(3))(sequence).shape, (2, 6))
        self.assertEqual(keras.layers.MultiHeadAttention(2, 4)(sequence, sequence, use_causal_mask=True).shape, (2, 5, 4))
        self.assertEqual(keras.layers.Add()([sequence, sequence]).numpy().max(), 2)

    def test_written_in_python(self):
        class Scaled(keras.layers.Layer):
            def __init__(self, units, **kwargs):
                super().__init__(**kwargs)
                self.units = units

            def build(self, input_shape):
                self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="ones", trainable=True, name="w")
                self.b = self.add_weight(shape=(self.units,), initializer="zeros", trainable=False, name="b")

            def call(self, inputs, scale=1.0):
                self.add_loss(tf.reduce_sum(self.w))
                return scale * (inputs @ self.w) + self.b

            def get_config(self):
                return {"units": self.units}
        layer = Scaled(3)
        self.assertEqual(layer(np.ones((2, 4), np.float32), scale=2.0).numpy().tolist(), [[8] * 3] * 2)
        self.assertEqual((len(layer.trainable_weights), len(layer.non_trainable_weights)), (1, 1))
        self.assertEqual(float(layer.losses[0]), 12)
        inputs = keras.Input((4,))
        model = keras.Model(inputs, Scaled(2)(inputs, scale=0.5))
        self.assertEqual(model(np.ones((1, 4), np.float32)).numpy().tolist(), [[2, 2]])
        model = keras.Sequential([keras.Input((4,)), Scaled(2), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
        self.assertIsInstance(model.layers[0], Scaled)

    def test_cells_with_nested_inputs_and_outputs(self):
        class Nested(keras.layers.Layer):
            def __init__(self, rows, columns, **kwargs):
                super().__init__(**kwargs)
                self.state_size = [tf.TensorShape([rows]), tf.TensorShape([rows, columns])]
                self.output_size = [tf.TensorShape([rows]), tf.TensorShape([rows, columns])]

            def build(self, input_shapes):
                self.shapes = [tuple(shape) for shape in input_shapes]
                self.scale = self.add_weight(shape=(input_shapes[1][1], input_shapes[1][2]), initializer="ones")

            def call(self, inputs, states):
                first, second = tf.nest.flatten(inputs)
                after = (states[0] + first, states[1] + second * self.scale)
                return after, after
        one, two = np.ones((2, 3, 4), np.float32), np.ones((2, 3, 4, 5), np.float32)
        cell = Nested(4, 5)
        whole, states, last = keras.layers.RNN(cell, return_sequences=True, return_state=True)((one, two))
        self.assertEqual(cell.shapes, [(2, 4), (2, 4, 5)])
        np.testing.assert_array_equal(whole[0].numpy(), np.cumsum(one, 1))
        np.testing.assert_array_equal(whole[1].numpy(), np.cumsum(two, 1))
        np.testing.assert_array_equal(states.numpy(), 3 * one[:, 0])
        np.testing.assert_array_equal(last.numpy(), 3 * two[:, 0])
        first, second = keras.layers.RNN(Nested(4, 5))((one, two), mask=np.array([[True, True, False], [True, False, False]]))
        self.assertEqual((first.numpy()[:, 0].tolist(), second.numpy()[:, 0, 0].tolist()), ([2, 1], [2, 1]))
        first, second = keras.layers.RNN(Nested(4, 5), go_backwards=True, return_sequences=True)((np.cumsum(one, 1), two))
        self.assertEqual((first.numpy()[0, :, 0].tolist(), second.numpy()[0, :, 0, 0].tolist()), ([3, 5, 6], [1, 2, 3]))
        inputs = [keras.Input((None, 4)), keras.Input((None, 4, 5))]
        model = keras.Model(inputs, keras.layers.RNN(Nested(4, 5))(tuple(inputs)))
        self.assertEqual([tuple(output.shape) for output in model.outputs], [(None, 4), (None, 4, 5)])
        model.compile("sgd", "mse")
        model.fit([one, two], [np.ones((2, 4)), np.ones((2, 4, 5))], verbose=0)

    def test_masks_of_attention_by_name(self):
        keras.utils.set_random_seed(3)
        attention = keras.layers.MultiHeadAttention(2, 4)
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
        kept = np.array([[True, True, False], [True, False, False]])
        expected = attention(x, x, attention_mask=np.broadcast_to(kept[:, None, :], (2, 3, 3))).numpy()
        for named in ({"value_mask": kept}, {"query_mask": None, "value_mask": kept}):
            np.testing.assert_allclose(attention(x, x, **named).numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(attention(query=x, value=x, key=x, key_mask=kept).numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(attention(x, x, query_mask=kept, value_mask=kept).numpy()[0, :2], expected[0, :2], rtol=1e-5, atol=1e-6)

    def test_states_for_inputs_as_keras_2_has_them(self):
        self.assertEqual(keras.layers.GRU(3).get_initial_state(tf.ones([2, 4, 5]))[0].shape, (2, 3))

    def test_written_ones_in_those_of_the_engine(self):
        class Cell(keras.layers.Layer):
            def __init__(self, units):
                super().__init__()
                self.units = self.state_size = units

            def build(self, input_shape):
                self.kernel = self.add_weight(shape=(input_shape[-1], self.units), initializer="ones", name="kernel")

            def call(self, inputs, states):
                output = inputs @ self.kernel + states[0]
                return output, [output]
        x = np.ones((2, 3, 4), np.float32)
        outputs, state = keras.layers.RNN(Cell(2), return_sequences=True, return_state=True)(x)
        np.testing.assert_array_equal(outputs.numpy()[0], [[4, 4], [8, 8], [12, 12]])
        self.assertEqual(state.shape, (2, 2))
        inputs = keras.Input((3, 4))
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.RNN(Cell(2))(inputs)))
        model.compile("sgd", "mse")
        model.fit(x, np.ones((2, 1)), verbose=0)

        class Doubled(keras.layers.Layer):
            def call(self, inputs):
                return inputs * 2.0
        inner = Doubled()
        wrapper = keras.layers.TimeDistributed(inner)
        self.assertEqual(wrapper(x).numpy().max(), 2)

        class Twice(keras.layers.Dense):
            def call(self, inputs):
                return 2.0 * super().call(inputs)
        layer = Twice(3, kernel_initializer="ones")
        self.assertEqual((layer(x).numpy().max(), len(layer.weights)), (8, 2))

    def test_outputs_make_other_models(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="hidden"), keras.layers.Dense(1)])
        features = keras.Model(model.inputs, model.get_layer("hidden").output)
        x = np.ones((2, 4), np.float32)
        np.testing.assert_array_equal(features(x).numpy(), model.layers[0](x).numpy())
        inputs = keras.Input((4,))
        hidden = keras.layers.Dense(3, name="hidden")
        functional = keras.Model(inputs, keras.layers.Dense(1)(hidden(inputs)))
        features = keras.Model(functional.inputs, functional.get_layer("hidden").output)
        self.assertEqual((features(x).shape, hidden.output_shape), ((2, 3), (None, 3)))

    def test_errors_name_the_line_that_made_the_layer(self):
        model = keras.Sequential([keras.layers.Dense(2), keras.layers.Conv2D(1, 3)])  # the layer's line
        with self.assertRaisesRegex(ValueError, r"\[keras_test\.py:\d+\]"):
            model(np.ones((2, 3), np.float32))


    def test_convolutions_whose_product_is_changed(self):
        x = np.random.default_rng(2).normal(size=(2, 7, 7, 3)).astype(np.float32)

        class Halved(keras.layers.Conv2D):
            def convolution_op(self, inputs, kernel):
                return super().convolution_op(inputs, kernel * 0.5)

        class Called(keras.layers.Conv2D):
            def call(self, inputs):
                return self.activation(self.convolution_op(inputs, 2.0 * self.kernel) + self.bias)
        settings = {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same", "activation": "relu"}
        plain = keras.layers.Conv2D(**settings)
        plain(x)
        weights = [plain.get_weights()[0], np.full(4, 0.3, np.float32)]
        plain.set_weights(weights)
        for cls, factor in ((Halved, 0.5), (Called, 2.0)):
            layer = cls(**settings)
            layer(x)
            layer.set_weights([weights[0] / factor, weights[1]])
            np.testing.assert_allclose(layer(x).numpy(), plain(x).numpy(), rtol=1e-4, atol=1e-5)
        model = keras.Sequential([keras.layers.Input((7, 7, 3)), Halved(**settings), keras.layers.GlobalAveragePooling2D()])
        model.compile("sgd", "mse")
        before = model.get_weights()[0].copy()
        model.fit(x, np.ones((2, 4)), verbose=0)
        self.assertFalse(np.array_equal(before, model.get_weights()[0]))
        causal = keras.layers.Conv1D(2, 3, padding="causal", dilation_rate=2, use_bias=False)
        series = x[:, :, 0]
        np.testing.assert_allclose(causal.convolution_op(series, tf.convert_to_tensor((causal(series), causal.kernel)[1])).numpy(), causal(series).numpy(),
                                   rtol=1e-4, atol=1e-5)

    def test_cells(self):
        generator = np.random.default_rng(3)
        x = generator.normal(size=(2, 4, 3)).astype(np.float32)
        for kind, size in (("LSTMCell", [2, 2]), ("GRUCell", 2), ("SimpleRNNCell", 2)):
            cell = getattr(keras.layers, kind)(2)
            self.assertEqual(cell.state_size, size)
            layer = keras.layers.RNN(cell, return_sequences=True, return_state=True)
            wanted, *last = layer(x)
            states = cell.get_initial_state(batch_size=2)
            for step in range(4):  # the cell, step by step, does what the layer does
                made, states = cell(x[:, step], states=states)
                np.testing.assert_allclose(made.numpy(), wanted[:, step].numpy(), rtol=1e-5, atol=1e-6)
            self.assertIsInstance(states, list)
            for one, other in zip(states, last):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
        single = keras.layers.GRUCell(2)
        made, state = single(x[:, 0], tf.zeros((2, 2)))
        np.testing.assert_array_equal(made.numpy(), state.numpy())
        stack = keras.layers.StackedRNNCells([keras.layers.LSTMCell(2), keras.layers.GRUCell(3)])
        self.assertEqual(stack.state_size, [[2, 2], 3])
        made, states = stack(x[:, 0])
        self.assertEqual((made.shape, [[one.shape for one in part] if isinstance(part, list) else part.shape for part in states]), ((2, 3), [[(2, 2), (2, 2)], (2, 3)]))
        self.assertEqual([one.shape for one in keras.layers.LSTM(5).get_initial_state(2)], [(2, 5), (2, 5)])
        inputs, before = keras.Input((3,)), keras.Input((2,))
        cell = keras.layers.GRUCell(2)
        model = keras.Model([inputs, before], cell(inputs, [before])[0])
        np.testing.assert_allclose(model.predict([x[:, 0], x[:, 1, :2]], verbose=0), cell(x[:, 0], [x[:, 1, :2]])[0].numpy(), rtol=1e-5)

    def test_weights_that_are_there_already(self):
        rows = np.arange(12, dtype=np.float32).reshape(4, 3)
        ids = np.array([[1, 2]])
        for layer in (keras.layers.Embedding(4, 3, weights=[rows]), keras.layers.Embedding(4, 3, embeddings_initializer=keras.initializers.Constant(rows))):
            np.testing.assert_array_equal(layer(ids).numpy(), rows[ids])
            model = keras.Sequential([keras.layers.Input((2,), dtype="int32"), layer])
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.keras")
                model.save(path)
                again = keras.models.load_model(path)
            np.testing.assert_array_equal(again.predict(ids, verbose=0), rows[ids])
        self.assertEqual(type(keras.layers.Embedding(4, 3, weights=rows).embeddings_initializer).__name__, "RandomUniform")
        dense = keras.layers.Dense(2, weights=[np.ones((3, 2)), np.array([1.0, 2.0])])
        self.assertEqual(dense(np.ones((1, 3), np.float32)).numpy().tolist(), [[4.0, 5.0]])
        norm = keras.layers.BatchNormalization(weights=[np.full(2, 2.0), np.ones(2), np.full(2, 3.0), np.ones(2)], epsilon=1e-12)
        np.testing.assert_allclose(norm(np.full((1, 2), 5.0, np.float32)).numpy(), [[5.0, 5.0]], rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "a list of 2 arrays, received 1"):
            keras.layers.Dense(2, weights=[np.ones((3, 2))])
        with self.assertRaisesRegex(ValueError, "is expected, received"):
            keras.layers.Dense(2, use_bias=False, weights=[np.ones((4, 2))])(np.ones((1, 3), np.float32))

    def test_whole_numbers_are_data(self):
        x, y = np.random.default_rng(1).integers(0, 3, (16, 5)), np.ones((16, 1), np.int64)
        model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        self.assertEqual(len(model.fit(x, y, epochs=2, verbose=0).history["loss"]), 2)
        self.assertEqual(model.predict(x[:2], verbose=0).dtype, np.float32)

    def test_states_of_stateful_layers(self):
        x = np.random.default_rng(0).random((4, 6, 3)).astype(np.float32)
        for kind, count in ((keras.layers.LSTM, 2), (keras.layers.GRU, 1), (keras.layers.SimpleRNN, 1)):
            layer = kind(5, stateful=True, dropout=0.5)
            self.assertIsNone(layer.states, "not built")
            layer(x)
            self.assertEqual([tuple(state.shape) for state in layer.states], [(4, 5)] * count)
            self.assertIs(layer.states[0], layer.states[0])
            after = [state.numpy() for state in layer.states]
            self.assertGreater(np.abs(after[0]).max(), 0)
            other = kind(5)
            other.build((4, 6, 3))
            other.set_weights(layer.get_weights())
            expected = layer(x).numpy()
            np.testing.assert_allclose(other(x, initial_state=[keras.ops.convert_to_tensor(part) for part in after]).numpy(), expected, rtol=1e-5)
            layer.reset_state()
            self.assertEqual(np.abs(layer.states[0].numpy()).max(), 0)
            self.assertIsNone(other.states)
        first, second = keras.layers.LSTM(5, stateful=True), keras.layers.LSTM(5)
        first(x)
        self.assertEqual(second(x, initial_state=first.states).shape, (4, 5), "states are taken as they are")

    def test_states_of_layers_that_have_others_inside(self):
        class Own(keras.layers.LSTM):
            def call(self, *args, **kwargs):
                return super().call(*args, **kwargs)
        x = np.random.default_rng(0).random((4, 6, 3)).astype(np.float32)
        images = np.random.default_rng(0).random((2, 3, 8, 8, 1)).astype(np.float32)
        for make, given, shapes in (
                (lambda stateful: Own(5, stateful=stateful), x, [(4, 5)] * 2),
                (lambda stateful: keras.layers.Bidirectional(keras.layers.LSTM(5, stateful=stateful)), x, [(4, 5)] * 4),
                (lambda stateful: keras.layers.Bidirectional(keras.layers.GRU(5, stateful=stateful)), x, [(4, 5)] * 2),
                (lambda stateful: keras.layers.ConvLSTM2D(2, 3, stateful=stateful), images, [(2, 6, 6, 2)] * 2),
                (lambda stateful: keras.layers.ConvLSTM1D(2, 3, stateful=stateful), images[..., 0], [(2, 6, 2)] * 2)):
            layer, other = make(True), make(False)
            self.assertIsNone(layer.states, "not built")
            first, second = layer(given).numpy(), layer(given).numpy()
            other(given)
            self.assertIsNone(other.states)
            self.assertEqual([tuple(state.shape) for state in layer.states], shapes)
            self.assertGreater(np.abs(first - second).max(), 0)
            layer.reset_state()
            self.assertEqual([float(np.abs(state.numpy()).max()) for state in layer.states], [0.0] * len(shapes))
            np.testing.assert_allclose(layer(given).numpy(), first, rtol=1e-5)

    def test_many_inputs_of_a_call_of_ones_own(self):
        class Adding(keras.layers.Layer):
            def call(self, inputs):
                return sum(inputs)

        class Joining(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1)

            def call(self, inputs):
                return self.dense(keras.ops.concatenate(inputs, -1))
        for count in (20, 21, 22):
            inputs = [keras.Input((2,)) for _ in range(count)]
            for model in (keras.Model(inputs, Adding()(inputs)), Joining()):
                model.compile("sgd", "mse")
                made = model.predict([np.ones((3, 2), np.float32)] * count, verbose=0)
                self.assertEqual(len(made), 3)
            self.assertEqual(sum(made.shape), 4)


    def test_functions_and_older_names(self):
        y, p = np.eye(3, dtype=np.float32)[[0, 2, 1]], np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]], np.float32)
        np.testing.assert_allclose(keras.losses.dice(y, p).numpy(), 1 - 2 * 1.6 / 6, rtol=1e-5)
        np.testing.assert_allclose(keras.losses.tversky(y, p, alpha=0.25, beta=0.75).numpy(), 1 - 1.6 / 3, rtol=1e-5)
        for name in ("circle", "ctc", "categorical_generalized_cross_entropy"):
            self.assertIs(keras.losses.get(name), getattr(keras.losses, name))
        for name in ("orthogonal", "lecun_normal", "lecun_uniform", "variance_scaling", "identity"):
            self.assertEqual(getattr(keras.initializers, name)()((2, 2)).shape, (2, 2))

    def test_arguments_in_keras_order(self):
        given = keras.Input((4,), 8, "int32")
        self.assertEqual((given.shape, given.dtype), ((8, 4), "int32"))
        a = tf.reshape(tf.range(6.0), (2, 3))
        self.assertEqual(keras.layers.concatenate([a, a], 0).shape, (4, 3))
        np.testing.assert_allclose(keras.layers.dot([a, a], 1).numpy(), [[5], [50]])


class Inputs(unittest.TestCase):
    def test_are_what_a_layer_says(self):
        class Scaled(keras.Layer):
            def __init__(self, spec):
                super().__init__()
                self.input_spec = spec

            def call(self, x):
                return keras.tree.map_structure(lambda part: part * 2.0, x)
        S = keras.layers.InputSpec
        for spec, right, wrong, words in (
                (S(ndim=2), [2, 3], [3], "expected ndim=2, found ndim=1"), (S(min_ndim=2), [2, 3], [3], "min_ndim=2"),
                (S(max_ndim=1), [3], [2, 3], "max_ndim=1"), (S(axes={-1: 3}), [2, 3], [2, 4], "axis -1 of input shape to have value 3"),
                (S(shape=(None, 3)), [2, 3], [2, 4], r"expected shape=\(None, 3\)"),
                (S(shape=(None, 3, 1), allow_last_axis_squeeze=True), [2, 3], [2, 4], "expected shape"),
                (S(dtype="float32"), [2], None, "expected dtype=float32, found dtype=int32")):
            self.assertEqual(Scaled(spec)(tf.ones(right)).shape, tuple(right))
            with self.assertRaisesRegex(ValueError, words):
                Scaled(spec)(tf.ones(wrong) if wrong else tf.ones([2], tf.int32))
        with self.assertRaisesRegex(ValueError, "expects 2 input"):
            Scaled([S(ndim=1), S(ndim=1)])([tf.ones([2])])
        with self.assertRaisesRegex(ValueError, "have value 3"):
            Scaled(S(axes={-1: 3}))(keras.Input((4,)))
        with self.assertRaisesRegex(ValueError, "no axis 3"):
            S(ndim=2, axes={3: 1})


class Losses(unittest.TestCase):
    def test_against_numpy(self):
        y, p = np.array([[0.0], [1.0]], np.float32), np.array([[0.25], [0.5]], np.float32)
        self.assertAlmostEqual(float(keras.losses.MeanSquaredError()(y, p)), 0.15625, places=5)
        np.testing.assert_allclose(keras.losses.mean_squared_error(y, p).numpy(), [0.0625, 0.25])
        self.assertAlmostEqual(float(keras.losses.BinaryCrossentropy()(y, p)), (-np.log(0.75) - np.log(0.5)) / 2, places=5)
        self.assertEqual(keras.losses.MeanSquaredError(reduction="none")(y, p).shape, (2,))

    def test_written_in_python(self):
        class Cubed(keras.losses.Loss):
            def call(self, y_true, y_pred):
                return tf.reduce_mean(tf.abs(y_true - y_pred) ** 3, axis=-1)

        def function(y_true, y_pred):
            return tf.reduce_mean(tf.abs(y_true - y_pred) ** 3, axis=-1)
        for loss in (Cubed(), function):
            model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(2,))])
            model.compile("sgd", loss)
            self.assertAlmostEqual(model.evaluate(np.ones((4, 2)), 2 * np.ones((4, 1)), verbose=0), 8.0, places=4)

    def test_metrics(self):
        mean = keras.metrics.Mean("loss")
        mean.update_state([1.0, 3.0])
        mean(tf.constant(5.0))
        self.assertEqual((mean.name, float(mean.result())), ("loss", 3))
        mean.reset_state()
        self.assertEqual(float(mean.result()), 0)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        accuracy.update_state([1, 0], [[0.1, 0.9], [0.2, 0.8]])
        self.assertEqual(float(accuracy.result()), 0.5)

        class Largest(keras.metrics.Metric):
            def __init__(self, name="largest", **kwargs):
                super().__init__(name=name, **kwargs)
                self.value = self.add_weight(name="value", initializer="zeros")

            def update_state(self, y_true, y_pred, sample_weight=None):
                self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

            def result(self):
                return self.value.read_value()
        x, y = numbers()
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(8,))])
        model.compile("sgd", "mse", metrics=[Largest()])
        logs = model.evaluate(x, y, verbose=0, return_dict=True)
        self.assertAlmostEqual(logs["largest"], max(0, model.predict(x, verbose=0).max()), places=4)


class Optimizers(unittest.TestCase):
    def test_steps(self):
        v = tf.Variable([1.0])
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.apply_gradients([(tf.constant([1.0]), v)])
        self.assertEqual((v.numpy().tolist(), int(optimizer.iterations)), ([0.5], 1))
        optimizer.learning_rate = 0.1
        self.assertAlmostEqual(float(optimizer.learning_rate), 0.1, places=6)
        with tf.GradientTape() as tape:
            loss = v * v
        optimizer.minimize(loss, [v], tape=tape)
        self.assertAlmostEqual(float(v[0]), 0.4, places=5)

    def test_schedules(self):
        decay = keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)
        self.assertAlmostEqual(float(decay(10)), 0.05, places=6)
        self.assertAlmostEqual(keras.optimizers.Adam(decay).learning_rate, 0.1, places=6)

        class Own(keras.optimizers.schedules.LearningRateSchedule):
            def __call__(self, step):
                return 1.0 / (1.0 + tf.cast(step, tf.float32))
        v, optimizer = tf.Variable([0.0]), keras.optimizers.SGD(Own())
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([-1.0]), v)])
        self.assertAlmostEqual(float(v[0]), 1.5, places=5)


class Output(unittest.TestCase):
    def test_goes_where_print_goes(self):
        x, y = numbers(32)
        model = classifier()
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            print("before")
            model.fit(x, y, epochs=2, batch_size=16, verbose=2)
            print("between")
            model.evaluate(x, y)
        lines = shown.getvalue().splitlines()
        self.assertEqual([lines[place] for place in (0, 1, 3, 5)], ["before", "Epoch 1/2", "Epoch 2/2", "between"])
        self.assertIn("loss: ", lines[2])
        self.assertIn("1/1", lines[6])

        class Closed:
            def write(self, text):
                raise OSError("closed")
        with contextlib.redirect_stdout(Closed()):
            model.fit(x, y, verbose=2)


class Callbacks(unittest.TestCase):
    def test_hear_of_every_moment(self):
        heard = []

        class Listener(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                heard.append(("begin", self.params["epochs"], self.model is model))

            def on_epoch_end(self, epoch, logs=None):
                heard.append(("epoch", epoch, sorted(logs)))
                if epoch == 1:
                    self.model.stop_training = True

            def on_train_batch_end(self, batch, logs=None):
                heard.append(("batch", batch, "loss" in logs))
        x, y = numbers(32)
        model = classifier()
        model.fit(x, y, epochs=5, batch_size=16, verbose=0, callbacks=[Listener()])
        self.assertEqual(heard[0], ("begin", 5, True))
        self.assertEqual([event for event in heard if event[0] == "epoch"],
                         [("epoch", 0, ["accuracy", "loss"]), ("epoch", 1, ["accuracy", "loss"])])
        self.assertEqual(sum(event[0] == "batch" for event in heard), 4)

    def test_of_the_engine(self):
        x, y = numbers()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log.csv")
            model = classifier()
            model.fit(x, y, epochs=3, verbose=0, validation_split=0.2, callbacks=[
                keras.callbacks.CSVLogger(path), keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (epoch + 1)),
                keras.callbacks.EarlyStopping(patience=5), keras.callbacks.TerminateOnNaN()])
            self.assertEqual(len(open(path).read().strip().split("\n")), 4)
            self.assertAlmostEqual(float(model.optimizer.learning_rate), 0.1 / 3, places=5)
        with self.assertRaisesRegex(TypeError, "patience"):
            keras.callbacks.EarlyStopping(patiense=3)

    def test_what_they_raise_ends_the_run(self):
        class Broken(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                raise KeyError("mine")
        x, y = numbers(32)
        with self.assertRaisesRegex(KeyError, "mine"):
            classifier().fit(x, y, verbose=0, callbacks=[Broken()])


class Data(unittest.TestCase):
    def test_pipeline(self):
        x = np.arange(10, dtype=np.float32)
        dataset = tf.data.Dataset.from_tensor_slices((x, x.astype(np.int64)))
        batches = list(dataset.map(lambda a, b: (a * 2, b)).filter(lambda a, b: b < 7).batch(3))
        self.assertEqual([a.numpy().tolist() for a, _ in batches], [[0, 2, 4], [6, 8, 10], [12]])
        self.assertEqual(len(dataset), 10)
        self.assertEqual(sorted(int(b) for _, b in dataset.shuffle(10, seed=1)), list(range(10)))
        self.assertEqual(dataset.element_spec, (tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.int64)))
        self.assertEqual([int(v) for v in tf.data.Dataset.range(3).repeat(2)], [0, 1, 2] * 2)
        self.assertEqual(int(tf.data.Dataset.range(5).reduce(np.int64(0), lambda s, v: s + v)), 10)
        named = tf.data.Dataset.from_tensor_slices({"a": x, "b": x})
        self.assertEqual(sorted(next(iter(named))), ["a", "b"])

    def test_generators_and_functions_on_other_threads(self):
        def generate():
            for i in range(6):
                yield np.full(2, i, np.float32), i
        dataset = tf.data.Dataset.from_generator(generate, output_signature=(tf.TensorSpec((2,), tf.float32),
                                                                             tf.TensorSpec((), tf.int32)))
        dataset = dataset.map(lambda a, i: (a + 1, i), num_parallel_calls=tf.data.AUTOTUNE).batch(2).prefetch(tf.data.AUTOTUNE)
        for _ in range(2):
            self.assertEqual([i.numpy().tolist() for _, i in dataset], [[0, 1], [2, 3], [4, 5]])
        half = iter(dataset)
        next(half)
        del half  # its threads end, though they may be waiting for Python

    def test_errors_in_functions_are_pythons_own(self):
        dataset = tf.data.Dataset.range(3).map(lambda v: {}[int(v)], num_parallel_calls=2)
        with self.assertRaises(KeyError):
            list(dataset)

    def test_windows(self):
        windows = tf.data.Dataset.range(5).window(3, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(3))
        self.assertEqual([w.numpy().tolist() for w in windows], [[0, 1, 2], [1, 2, 3], [2, 3, 4]])

    def test_feeds_fit(self):
        x, y = numbers()
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(128).batch(16).prefetch(2)
        history = classifier().fit(dataset, epochs=6, validation_data=dataset, verbose=0)
        self.assertGreater(history.history["val_accuracy"][-1], 0.9)

    def test_columns_that_are_no_input_are_left_alone(self):
        a, b = (keras.Input((1,), name=name) for name in "ab")
        model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(keras.layers.Concatenate()([a, b])))
        model.compile("sgd", "mse")
        columns, y = {"b": np.ones((6, 1)), "a": np.arange(6.0)[:, None]}, np.zeros((6, 1))
        wanted = model.predict(columns, verbose=0)
        wide = {"id": np.arange(6), **columns}
        np.testing.assert_array_equal(model.predict(wide, verbose=0), wanted)
        np.testing.assert_array_equal(model(wide).numpy(), wanted)
        self.assertEqual(model.evaluate(wide, y, verbose=0), model.evaluate(columns, y, verbose=0))
        dataset = tf.data.Dataset.from_tensor_slices((wide, y)).batch(3)
        np.testing.assert_allclose(model.evaluate(dataset, verbose=0), model.evaluate(columns, y, verbose=0), rtol=1e-6)
        model.fit(wide, y, verbose=0)
        model.fit(dataset, verbose=0)
        named = {**columns, "name": np.array(list("uvwxyz"))}
        of_names = tf.data.Dataset.from_tensor_slices((named, y)).batch(3)
        with self.assertWarnsRegex(UserWarning, "string columns, 'name', which are no inputs"):
            self.assertEqual(model.evaluate(named, y, verbose=0), model.evaluate(columns, y, verbose=0))
        with self.assertWarnsRegex(UserWarning, "string columns, 'name'"):
            np.testing.assert_allclose(model.evaluate(of_names, verbose=0), model.evaluate(columns, y, verbose=0), rtol=1e-6)
        with self.assertRaisesRegex(TypeError, "is no tensor|no tensor can be made"):
            model.evaluate({**columns, "b": np.array(list("uvwxyz"))}, y, verbose=0)
        with self.assertRaisesRegex(ValueError, 'names input "bb", the model has "a", "b"; did you mean "b"'):
            model.fit({"a": columns["a"], "bb": columns["b"]}, y, verbose=0)

    def test_labels_of_one_of_two_outputs(self):
        x = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
        y = np.zeros((8, 1), np.float32)
        given = keras.Input((4,))
        model = keras.Model(given, [keras.layers.Dense(1, name=name)(given) for name in "pq"])
        model.compile("sgd", ["mse", None])
        wanted = float(np.mean(model.predict(x, verbose=0)[0] ** 2))
        for labels in ([y, None], {"p": y, "q": None}, {"p": y}, [y]):
            self.assertAlmostEqual(model.evaluate(x, labels, verbose=0), wanted, places=5)
            self.assertAlmostEqual(model.test_on_batch(x, labels), wanted, places=5)
        model.fit(x, [y, None], validation_split=0.5, validation_data=(x, [y, None]), verbose=0)
        model.train_on_batch(x, [y, None])
        for labels in ([None, y], {"q": y}):
            for use in (model.test_on_batch, lambda *data: model.evaluate(*data, verbose=0)):
                with self.assertRaisesRegex(ValueError, 'output "p".*has a loss, but the data has no label for it'):
                    use(x, labels)

    def test_fit_without_weights_computes_losses(self):
        x = np.ones((4, 2), np.float32)
        for layer in (keras.layers.Rescaling(2.0), keras.layers.Dense(2, trainable=False, kernel_initializer="ones")):
            model = keras.Sequential([keras.Input((2,)), layer])
            model.compile("adam", "mse", metrics=["mae"])
            self.assertEqual(model.fit(x, x, epochs=2, verbose=0).history, {"loss": [1, 1], "mae": [1, 1]})

    def test_random_layers_that_a_map_is_the_first_to_call(self):
        images = np.random.default_rng(2).random((8, 6, 6, 3), np.float32)
        made = []
        for calls in (None, 4):
            keras.utils.set_random_seed(3)
            augment = keras.Sequential([keras.layers.RandomFlip(), keras.layers.RandomRotation(0.2)])
            dataset = tf.data.Dataset.from_tensor_slices(images).batch(2).map(lambda x: augment(x, training=True), num_parallel_calls=calls)
            made.append(np.concatenate([x.numpy() for x in dataset]))
            self.assertEqual(made[-1].shape, images.shape)
        self.assertFalse(np.allclose(made[0], images))
        np.testing.assert_array_equal(made[0], made[1])

    def test_digits(self):
        (x, y), _ = keras.datasets.digits(train_size=32, test_size=0)
        self.assertEqual((x.shape, x.dtype, keras.utils.to_categorical(y, 10).shape), ((32, 28, 28), np.uint8, (32, 10)))
