"""keras.ops, keras.random, variables and what Keras keeps of dtypes."""

import unittest

import numpy as np

import lockstep as tf
from lockstep import keras
from lockstep.keras import ops


class Ops(unittest.TestCase):
    def test_functions_between_layers_keep_dtypes(self):
        half = keras.KerasTensor((2, 3), "float16")
        self.assertEqual(ops.abs(half).dtype, tf.float16)
        self.assertEqual(ops.add(half, keras.KerasTensor((3,), "bfloat16")).dtype, tf.float32)
        self.assertEqual((half + 1).dtype, tf.float16)
        # Layers cast, unless they are told not to.
        self.assertEqual(keras.layers.Lambda(lambda x: x)(half).dtype, tf.float32)
        self.assertEqual(keras.layers.Lambda(lambda x: x, autocast=False)(half).dtype, tf.float16)

    def test_booleans_and_small_integers(self):
        bools, small = np.array([True, False]), np.array([[200, 2]], np.uint8)
        self.assertEqual(ops.max(bools).numpy(), True)
        self.assertEqual(ops.min(bools).numpy(), False)
        self.assertEqual(ops.argmax(bools).numpy(), 0)
        self.assertEqual(ops.sort(bools).numpy().tolist(), [False, True])
        self.assertEqual(ops.square(bools).dtype, tf.int32)
        self.assertEqual(ops.matmul(small, small.T).numpy().tolist(), np.matmul(small, small.T).tolist())
        self.assertEqual(ops.cumsum(small).dtype, tf.uint8)
        self.assertEqual(ops.max(np.zeros((1, 0), np.float32), axis=1, initial=3.0).numpy().tolist(), [3.0])

    def test_lengths_whose_squares_are_out_of_range(self):
        self.assertEqual(ops.hypot(np.array([3e30, -3e-30, np.inf, 0.0], np.float32), np.array([4e30, 4e-30, np.inf, 0.0], np.float32)).numpy().tolist(),
                         np.array([5e30, 5e-30, np.inf, 0.0], np.float32).tolist())
        x = tf.constant([0.0, 3.0, -2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            length = ops.hypot(x, tf.constant([0.0, -4.0, 2.0]))
        np.testing.assert_allclose(tape.gradient(length, x).numpy(), [0.0, 0.6, -0.5 ** 0.5], rtol=1e-6)

    def test_two_numbers_in_models_are_those_of_calls(self):
        a = np.array([[3e30, -3e-30, np.inf, 0.0, -np.inf, np.nan, 1.0, 2.0]], np.float32)
        b = np.array([[4e30, 4e-30, np.inf, 0.0, -np.inf, 1.0, 1.0, -1e9]], np.float32)
        inputs = [keras.Input((8,)), keras.Input((8,))]
        for function, wanted in ((ops.hypot, np.hypot), (ops.logaddexp, np.logaddexp), (ops.heaviside, np.heaviside)):
            with np.errstate(over="ignore", invalid="ignore"):
                expected = wanted(a, b)
            np.testing.assert_allclose(function(a, b).numpy(), expected, rtol=1e-6)
            np.testing.assert_allclose(keras.Model(inputs, function(*inputs)).predict_on_batch([a, b]), expected, rtol=1e-6)
        x, y = tf.constant([1.0, 1.0, 3.0]), tf.constant([1.0, 0.0, 3.0])
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            total = ops.logaddexp(x, y)
        np.testing.assert_allclose(tape.gradient(total, [x, y])[1].numpy(), [0.5, 1 / (1 + np.e), 0.5], rtol=1e-6)

    def test_least_squares(self):
        singular, ill = np.ones((2, 2), np.float32), np.diag([1.0, 1e-3, 1e-5]).astype(np.float32)
        np.testing.assert_allclose(ops.lstsq(singular, np.ones(2, np.float32)).numpy(), [0.5, 0.5], rtol=1e-5)
        for rcond, expected in ((None, [1, 1e3, 1e5]), (-1, [1, 1e3, 1e5]), (1e-4, [1, 1e3, 0]), (1e-2, [1, 0, 0])):
            np.testing.assert_allclose(ops.lstsq(ill, np.ones(3, np.float32), rcond).numpy(), expected, rtol=1e-4)
        numbers = np.sin(np.arange(12.0) + 1.0)
        for matrix in (np.eye(3), numbers.reshape(4, 3), numbers.reshape(3, 4), np.outer(numbers[:4], numbers[:3])):
            right = np.cos(np.arange(2.0 * len(matrix))).reshape(-1, 2)
            np.testing.assert_allclose(ops.lstsq(matrix, right).numpy(), np.linalg.lstsq(matrix, right, rcond=1e-12)[0], atol=1e-9)
            # Changes of the matrix that keep its rank: it has a derivative along them alone.
            rng = np.random.default_rng(0)
            change, turn = (rng.normal(size=(size, size)) for size in matrix.shape)
            direction = change @ matrix + matrix @ turn
            with tf.GradientTape() as tape:
                a, b = tf.constant(matrix), tf.constant(right)
                tape.watch([a, b])
                y = tf.reduce_sum(ops.lstsq(a, b) * tf.constant(np.arange(2.0 * matrix.shape[1]).reshape(-1, 2) + 1.0))
            by_a, by_b = tape.gradient(y, [a, b])

            def at(step):
                moved = (np.eye(len(change)) + step * change) @ matrix @ (np.eye(len(turn)) + step * turn)
                solved = np.linalg.lstsq(moved, right, rcond=1e-9)[0]
                return np.sum(solved * (np.arange(solved.size).reshape(-1, 2) + 1.0))
            slope = (at(1e-6) - at(-1e-6)) / 2e-6
            np.testing.assert_allclose(np.sum(by_a.numpy() * direction), slope, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(np.sum(by_b.numpy() * right), y.numpy(), rtol=1e-9, atol=1e-9)

    def test_rests_and_steps_at_the_ends(self):
        a = np.array([1.0, -2.0, 0.0, 3e7, -7.5, np.inf, 1.0], np.float32)
        b = np.array([np.inf, -np.inf, np.inf, 1e-3, 2.0, 2.0, 0.0], np.float32)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(ops.fmod(a, b).numpy(), np.fmod(a, b))
        x = tf.constant([0.0, -5.5, 5.5])
        with tf.GradientTape() as tape:
            tape.watch(x)
            rest = ops.fmod(x, 2.0)
        self.assertEqual(tape.gradient(rest, x).numpy().tolist(), [1.0, 1.0, 1.0])
        x = np.array([np.nan, -1.0, 0.0, 2.0], np.float32)
        np.testing.assert_array_equal(ops.heaviside(x, np.array([[5.0], [np.nan]], np.float32)).numpy(), np.heaviside(x, [[5.0], [np.nan]]))

    def test_integers_above_0_stay_integers(self):
        for relu in (ops.relu, keras.activations.relu, tf.nn.relu):
            made = relu(tf.constant([3, -2]))
            self.assertEqual((made.dtype, made.numpy().tolist()), (tf.int32, [3, 0]))
        self.assertEqual(ops.relu(keras.KerasTensor((2,), "int32")).dtype, tf.int32)

    def test_odd_margins_are_those_of_the_layer(self):
        image = np.random.default_rng(0).standard_normal((1, 3, 4, 1)).astype(np.float32)
        for size in ((6, 6), (5, 9)):
            layer = keras.layers.Resizing(*size, pad_to_aspect_ratio=True, fill_value=2.0)
            np.testing.assert_allclose(ops.image.resize(image, size, pad_to_aspect_ratio=True, fill_value=2.0).numpy(), layer(image).numpy(), rtol=1e-5)

    def test_values_of_variables_are_attributes_and_calls(self):
        variable = tf.Variable([1.0, 2.0])
        self.assertIsInstance(variable.value, tf.Tensor)
        self.assertEqual(variable.value.numpy().tolist(), variable.value().numpy().tolist())
        self.assertEqual((variable.value * 2)[1].numpy(), 4.0)
        optimizer = keras.optimizers.SGD(0.5)
        self.assertEqual(float(optimizer.learning_rate.value), 0.5)


class Random(unittest.TestCase):
    def test_moments(self):
        for drawn, mean, variance in (
                (keras.random.gamma((40000,), 0.5, seed=1), 0.5, 0.5), (keras.random.gamma((40000,), 3.0, seed=1), 3.0, 3.0),
                (keras.random.beta((40000,), 2.0, 5.0, seed=1), 2 / 7, 10 / (49 * 8)),
                (keras.random.binomial((40000,), 10, 0.3, seed=1), 3.0, 2.1),
                (keras.random.binomial((40000,), 1e5, 0.5, seed=1), 5e4, 2.5e4)):
            drawn = drawn.numpy().astype(np.float64)
            self.assertLess(abs(drawn.mean() - mean), 6 * np.sqrt(variance / len(drawn)))
            self.assertLess(abs(drawn.var() - variance), 0.1 * variance)
        self.assertEqual(keras.random.binomial((3,), 5, [0.0, 1.0, 1.0]).numpy().tolist(), [0, 5, 5])

    def test_seeds(self):
        self.assertEqual(keras.random.normal((3,), seed=3).numpy().tolist(), keras.random.normal((3,), seed=3).numpy().tolist())
        source = keras.random.SeedGenerator(3)
        draw = tf.function(lambda: keras.random.normal((3,), seed=source))
        self.assertNotEqual(draw().numpy().tolist(), draw().numpy().tolist())
        self.assertNotEqual(source.next().numpy().tolist(), source.next().numpy().tolist())

    def test_of_keras(self):
        drawn = keras.random.randint((100,), 2, 5, seed=1)
        self.assertEqual((drawn.dtype, sorted(set(drawn.numpy().tolist()))), (tf.int32, [2, 3, 4]))
        x = np.arange(12).reshape(3, 4)
        self.assertEqual(np.sort(keras.random.shuffle(x, axis=1, seed=1).numpy(), 1).tolist(), x.tolist())
        self.assertEqual(keras.random.dropout(np.ones((2, 2), np.float32), 1.0).numpy().tolist(), [[0, 0], [0, 0]])
        with self.assertRaises(ValueError):
            keras.random.uniform((2,), dtype="int32")


class Texts(unittest.TestCase):
    def test_worth_of_words(self):
        given = keras.layers.TextVectorization(vocabulary=["a", "b"], idf_weights=[0.25, 0.5], output_mode="tf_idf")
        later = keras.layers.TextVectorization(output_mode="tf_idf")
        later.set_vocabulary(["a", "b"], [0.25, 0.5])
        for layer in (given, later):
            self.assertEqual(layer(["a a b"]).numpy()[0, 1:].tolist(), [0.5, 0.5])

    def test_learned_from_generators(self):
        def texts():
            while True:
                yield ["a cat"]
                yield ["a dog"]
        layer = keras.layers.TextVectorization()
        layer.adapt(texts(), steps=4)
        self.assertEqual(set(layer.get_vocabulary()), {"", "[UNK]", "a", "cat", "dog"})
        changed = keras.layers.TextVectorization(standardize=lambda text: text.replace("-", " "))
        changed.adapt(["b-c"])
        self.assertEqual(set(changed.get_vocabulary()), {"", "[UNK]", "b", "c"})

    def test_hashes(self):
        self.assertEqual(keras.layers.Hashing(num_bins=3)([["A"], ["B"], ["C"], ["D"], ["E"]]).numpy().tolist(), [[1], [0], [1], [1], [2]])
        self.assertEqual(keras.layers.Hashing(num_bins=3)(np.arange(5)).numpy().tolist(), [1, 0, 1, 0, 2])
        crossed = keras.layers.HashedCrossing(num_bins=5)((np.array(["A", "B", "A", "B", "A"]), np.array([101, 101, 101, 102, 102])))
        self.assertEqual(crossed.numpy().tolist(), [1, 4, 1, 1, 3])


class Training(unittest.TestCase):
    def test_rates_and_decay(self):
        first, second = tf.Variable([1.0]), tf.Variable([1.0])
        keras.optimizers.SGD(learning_rate=lambda: 0.5).apply_gradients([(np.array([1.0]), first)])  # a gradient of float64
        self.assertEqual(first.numpy().tolist(), [0.5])
        optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_list=[second])  # both have the same name
        optimizer.apply([tf.zeros([1]), tf.zeros([1])], [first, second])
        self.assertEqual((first.numpy().tolist(), second.numpy().tolist()), ([0.25], [1.0]))

    def test_losses_keep_their_dtype(self):
        y = np.ones((2, 3), np.float32)
        self.assertEqual(keras.losses.MeanSquaredError(dtype="bfloat16")(y, y).dtype, tf.bfloat16)
        self.assertIs(keras.losses.get("mse"), keras.losses.mean_squared_error)
        self.assertEqual(keras.losses.get("mse")(y, y).shape, (2,))

    def test_callbacks_without_a_model_say_so(self):
        with self.assertRaisesRegex(ValueError, "belongs to no model"):
            keras.callbacks.EarlyStopping(restore_best_weights=True).on_epoch_end(0, {"val_loss": 1.0})

    def test_without_an_optimizer_a_model_is_only_evaluated(self):
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile(optimizer=None, loss="mse")
        x, y = np.ones((2, 2), np.float32), np.ones((2, 1), np.float32)
        self.assertGreaterEqual(model.evaluate(x, y, verbose=0), 0)
        with self.assertRaisesRegex(ValueError, "without an optimizer"):
            model.fit(x, y, verbose=0)

    def test_masks_of_what_is_merged(self):
        inputs = [keras.Input((3,)), keras.Input((3,))]
        masks = [np.array([[1, 0, 0]]), np.array([[0, 1, 0]])]
        layer = keras.layers.Add()
        self.assertIsNone(layer.compute_mask(inputs, [None, None]))
        self.assertEqual(layer.compute_mask(inputs, masks).numpy().tolist(), [[True, True, False]])
        for wrong in ((inputs, masks[0]), (inputs[0], masks), (inputs, masks[:1])):
            with self.assertRaises(ValueError):
                layer.compute_mask(*wrong)


class Recomputing(unittest.TestCase):
    def gradients(self, wrap):
        w, calls = tf.Variable([[1.0, -2.0], [3.0, 0.5]]), []

        def block(x, scale=1.0):
            calls.append(1)
            return {"y": tf.tanh(tf.matmul(x, w)) * scale, "x": x}
        x = tf.constant([[0.5, -1.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = wrap(block)(x, scale=3.0)
            loss = tf.reduce_sum(made["y"] * made["x"])
        self.assertEqual(len(calls), 1)
        return [gradient.numpy().tolist() for gradient in tape.gradient(loss, [w, x])]

    def test_gradients_are_those_of_the_plain_function(self):
        plain = self.gradients(lambda f: f)
        for wrap in (tf.recompute_grad, keras.remat):
            self.assertEqual(self.gradients(wrap), plain)
            self.assertEqual(self.gradients(lambda f: tf.function(wrap(f))), plain)

    def trained(self, scope):
        keras.utils.set_random_seed(1)
        with scope:
            inputs = keras.Input((6,))
            x = keras.layers.Dense(8, activation="gelu")(inputs)
            x = keras.layers.Dropout(0.3, seed=3)(x)
            model = keras.Model(inputs, keras.layers.Dense(1)(x))
        model.compile("adam", "mse")
        generator = np.random.default_rng(0)
        model.fit(generator.normal(size=(32, 6)).astype(np.float32), np.ones((32, 1), np.float32), epochs=2, verbose=0)
        return [weight.tolist() for weight in model.get_weights()]

    def test_models_train_to_the_same_bits(self):
        plain = self.trained(keras.RematScope(mode=None))
        for scope in (keras.RematScope(), keras.RematScope("activations"), keras.RematScope("larger_than", output_size_threshold=4),
                      keras.RematScope(mode="list_of_layers", layer_names=["dense"])):
            self.assertEqual(self.trained(scope), plain)
        with self.assertRaises(ValueError):
            keras.RematScope("some")

    def test_layers_in_remat(self):
        dense = keras.layers.Dense(3)
        x = np.ones((2, 4), np.float32)
        self.assertEqual(keras.remat(dense)(x).numpy().tolist(), dense(x).numpy().tolist())
        self.assertEqual(keras.remat(dense)(keras.Input((4,))).shape, (None, 3))
