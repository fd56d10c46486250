"""Copies of layers and models, and datasets of arrays, series and folders."""

import copy
import os
import pickle
import tempfile
import unittest

import numpy as np

import lockstep as tf
from lockstep import keras


class Scale(keras.layers.Layer):
    """Defines no get_config()."""

    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return x * self.factor


class Copies(unittest.TestCase):
    def test_layers_and_models_are_pickled(self):
        x = np.ones((2, 4), np.float32)
        layer = keras.layers.Dense(3, activation="relu")
        expected = layer(x).numpy().tolist()
        for other in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
            self.assertEqual(other(x).numpy().tolist(), expected)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        model.fit(x, np.ones((2, 2), np.float32), verbose=0)
        other = pickle.loads(pickle.dumps(model))
        self.assertEqual(other.predict(x, verbose=0).tolist(), model.predict(x, verbose=0).tolist())
        self.assertTrue(other.compiled)

    def test_the_arguments_of_a_constructor_are_a_configuration(self):
        config = Scale(3.0, name="three").get_config()
        self.assertEqual((config["factor"], config["name"]), (3.0, "three"))
        self.assertEqual(Scale.from_config(config).factor, 3.0)
        with self.assertRaises(NotImplementedError):
            Scale(object()).get_config()

    def test_clones_of_layers_and_calls_of_ones_own(self):
        inputs = [keras.Input((4,)), keras.Input((4,))]
        x = keras.layers.Add()([Scale(2.0)(inputs[0]), inputs[1]])
        model = keras.Model(inputs, keras.layers.Dense(2, name="end")(x))
        called = []

        def renamed(layer):
            return layer.__class__.from_config({**layer.get_config(), "name": f"{layer.name}_again"})

        def call(layer, *args, **kwargs):
            called.append(layer.name)
            return layer(*args, **kwargs)
        made = keras.models.clone_model(model, clone_function=renamed, call_function=call)
        self.assertIn("end_again", called)
        made.set_weights(model.get_weights())
        given = [np.ones((2, 4), np.float32), np.full((2, 4), 3.0, np.float32)]
        self.assertEqual(made.predict(given, verbose=0).tolist(), model.predict(given, verbose=0).tolist())
        stacked = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.assertEqual(keras.models.clone_model(stacked, input_tensors=keras.Input((4,), batch_size=3)).input_shape, (3, 4))

    def test_variables_are_the_same_objects(self):
        layer = keras.layers.Dense(2, kernel_constraint="non_neg")
        layer.build((None, 3))
        self.assertEqual(layer.weights, [layer.kernel, layer.bias])
        self.assertIsInstance(layer.kernel.constraint, keras.constraints.NonNeg)


class Datasets(unittest.TestCase):
    def test_windows(self):
        windows = keras.utils.timeseries_dataset_from_array(np.arange(10), np.arange(3, 10), sequence_length=3, batch_size=4)
        batches = [(x.numpy().tolist(), y.numpy().tolist()) for x, y in windows]
        self.assertEqual(batches[0], ([[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]], [3, 4, 5, 6]))
        self.assertEqual(sum(len(y) for _, y in batches), 7)

    def test_parts(self):
        left, right = keras.utils.split_dataset((np.arange(10), np.arange(10) * 2), left_size=0.8)
        self.assertEqual([(int(x), int(y)) for x, y in right], [(8, 16), (9, 18)])
        self.assertEqual(len(list(left)), 8)
        with self.assertRaises(ValueError):
            keras.utils.split_dataset(np.arange(4), left_size=5)

    def test_folders_of_images(self):
        with tempfile.TemporaryDirectory() as folder:
            for label, name in enumerate(("cats", "dogs")):
                os.mkdir(f"{folder}/{name}")
                for number in range(3):
                    tf.io.write_file(f"{folder}/{name}/{number}.png", tf.io.encode_png(np.full((4, 6, 3), 100 * label, np.uint8)))
            dataset = keras.utils.image_dataset_from_directory(folder, image_size=(4, 6), batch_size=6, verbose=False)
            (images, labels), = list(dataset)
        self.assertEqual((dataset.class_names, images.shape), (["cats", "dogs"], (6, 4, 6, 3)))
        self.assertEqual(images.numpy()[:, 0, 0, 0].tolist(), [100.0 * label for label in labels.numpy()])

    def test_loaders_of_others_feed_fit(self):
        class Loader:
            def __len__(self):
                return 3

            def __iter__(self):
                return iter([[np.ones((2, 4), np.float32), np.zeros((2, 1), np.float32)]] * 3)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit(Loader(), epochs=2, validation_data=Loader(), verbose=0)
        self.assertEqual(sorted(history.history), ["loss", "val_loss"])
