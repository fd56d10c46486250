"""Models that Keras wrote, and models of the engine: calls, outputs of layers, structures, and classes of Python in them."""

import base64
import gc
import json
import marshal
import os
import pathlib
import tempfile
import unittest
import weakref

import numpy as np

from lockstep import keras

DATA = pathlib.Path(__file__).resolve().parents[1] / "keras" / "testdata"


@keras.saving.register_keras_serializable("Recorded")
class Noisy(keras.layers.Layer):
    """Adds one in training, where nobody says it: not."""

    def call(self, x, training=False):
        return x + 1.0 if training else x


@keras.saving.register_keras_serializable("Recorded")
class Descent(keras.optimizers.SGD):
    """Stands for a class that Keras trained with."""


class RecordedModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)

    def path(self, name):
        return os.path.join(self.folder, name)

    def of_two(self):
        """A functional model with a model inside and a dictionary of outputs."""
        x = keras.Input((4,), name="x")
        inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="first"), keras.layers.Dense(2, name="second")], name="inner")
        y = keras.layers.Dense(4, name="before")(x)
        return keras.Model(x, {"b": inner(y), "a": keras.layers.Dense(5, name="other")(y)})

    def read(self, model, name="m.keras"):
        model.save(self.path(name))
        return keras.models.load_model(self.path(name))

    def test_what_call_takes_for_granted_is_not_said(self):
        x = keras.Input((4,))
        written = json.loads(keras.Model(x, keras.layers.Dropout(0.5)(Noisy(name="noisy")(x))).to_json())
        for layer in written["config"]["layers"][1:]:
            self.assertNotIn("training", layer["inbound_nodes"][0]["kwargs"])
            layer["inbound_nodes"][0]["kwargs"]["training"] = False  # as Keras writes it
        model = keras.models.model_from_json(json.dumps(written))
        self.assertNotIn('"training"', model.to_json())
        ones = np.ones((2, 4), np.float32)
        self.assertEqual(set(np.unique(model(ones, training=True).numpy())), {0.0, 4.0})
        np.testing.assert_array_equal(model.predict(ones, verbose=0), ones)
        said = keras.Model(x, Noisy()(x, training=True))
        for other in (said, self.read(said), keras.models.clone_model(said)):
            np.testing.assert_array_equal(other.predict(ones, verbose=0), 2.0 * ones)

    def test_layers_of_the_engines_models_have_inputs_and_outputs(self):
        vgg = keras.applications.VGG16(weights=None, include_top=False, input_shape=(32, 32, 3))
        images = np.ones((1, 32, 32, 3), np.float32)
        part = keras.Model(vgg.input, vgg.get_layer("block3_conv1").output)
        self.assertEqual(part.predict(images, verbose=0).shape, (1, 8, 8, 256))
        rest = keras.Model(vgg.get_layer("block3_conv1").output, vgg.output)
        np.testing.assert_allclose(rest.predict(part.predict(images, verbose=0), verbose=0), vgg.predict(images, verbose=0), rtol=1e-5, atol=1e-6)
        self.assertEqual(vgg.layers[0].output.shape, (None, 32, 32, 3))
        self.assertEqual(vgg.layers[1].input.shape, (None, 32, 32, 3))

    def test_layers_of_loaded_models_and_clones_have_inputs_and_outputs(self):
        model = self.of_two()
        for other in (self.read(model), self.read(model, "m.h5"), keras.models.clone_model(model)):
            before = keras.Model(other.input, other.get_layer("before").output)
            self.assertEqual(before.predict(self.x, verbose=0).shape, (3, 4))
            self.assertEqual(other.get_layer("x").output.shape, (None, 4))
            inner = other.get_layer("inner")
            self.assertIsInstance(inner, keras.Sequential)
            self.assertEqual([layer.name for layer in inner.layers], ["first", "second"])
            self.assertEqual(inner.get_layer("first").output.shape, (None, 3))
            self.assertIs(other.get_layer("before"), other.layers[1])
        forgotten = weakref.ref(other)
        del other, inner, before
        gc.collect()
        self.assertIsNone(forgotten())

    def test_outputs_in_a_dictionary_stay_in_one(self):
        model = self.of_two()
        for other in (self.read(model), self.read(model, "m.h5"), keras.models.clone_model(model)):
            self.assertEqual(sorted(other.predict(self.x, verbose=0)), ["a", "b"])
            self.assertEqual(other(self.x)["a"].shape, (3, 5))
            self.assertEqual(other(self.x)["b"].shape, (3, 2))

    def test_masks_of_several_inputs(self):
        query, value = keras.Input((3, 4)), keras.Input((5, 4))
        mask = keras.Input((5,), dtype="bool")
        model = keras.Model([query, value, mask], keras.layers.Attention()([query, value], mask=[None, mask]))
        generator = np.random.default_rng(1)
        q, v = (generator.normal(size=(2, n, 4)).astype(np.float32) for n in (3, 5))
        m = np.array([[True, False, True, True, False]] * 2)
        expected = keras.layers.Attention()([q[:, :, :], v[:, m[0]]]).numpy()
        np.testing.assert_allclose(keras.layers.Attention()([q, v], mask=[None, m]).numpy(), expected, rtol=1e-5)
        for other in (model, self.read(model), keras.models.clone_model(model)):
            np.testing.assert_allclose(other.predict([q, v, m], verbose=0), expected, rtol=1e-5)

    def test_models_of_keras_2(self):
        model = keras.models.load_model(DATA / "keras2" / "calls.h5")
        self.assertEqual([output.shape[-1] for output in model.outputs], [2, 2])
        model = keras.models.load_model(DATA / "keras2" / "objects.h5")
        self.assertEqual(model.output_names, ["a", "b"])
        self.assertTrue(model.compiled)

    def test_layers_of_ops_are_read(self):
        generator = np.random.default_rng(2)
        for shape, layer in (((800, 1), keras.layers.STFTSpectrogram(frame_length=64, frame_step=64)),
                             ((8, 8, 3), keras.layers.ContrastLimitedAdaptiveHistogramEqualization()),
                             ((8, 8, 3), keras.layers.Pipeline([keras.layers.Rescaling(2.0), keras.layers.RandomFlip()]))):
            x = keras.Input(shape)
            written = json.loads(keras.Model(x, layer(x)).to_json())
            if len(shape) == 3:
                written["config"]["layers"][1]["inbound_nodes"][0]["kwargs"]["training"] = True  # as Keras writes it
            model = keras.models.model_from_json(json.dumps(written))
            self.assertIs(type(model.layers[1]), type(layer))
            self.assertNotIn('"training"', model.to_json())
            data = generator.uniform(0.0, 255.0, (2, *shape)).astype(np.float32)
            np.testing.assert_allclose(model.predict(data, verbose=0), layer(data, training=False).numpy() if isinstance(layer, keras.layers.Pipeline)
                                       else layer(data).numpy(), rtol=1e-4, atol=1e-3)

    def test_lambdas_of_keras_2(self):
        code = base64.encodebytes(marshal.dumps((lambda x: x * 2.0 + 1.0).__code__)).decode("ascii")
        config = {"name": "twice", "function": [code, None, None], "function_type": "lambda", "module": "program", "output_shape": None,
                  "output_shape_type": "raw", "output_shape_module": None, "arguments": {}}
        with self.assertRaisesRegex(ValueError, "safe_mode=False"):
            keras.layers.Lambda.from_config(config)
        made = keras.layers.Lambda.from_config(config, safe_mode=False)
        np.testing.assert_allclose(made(self.x).numpy(), self.x * 2.0 + 1.0, rtol=1e-6)

    def test_optimizers_of_ones_own_are_found(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile(Descent(0.1, momentum=0.5), "mse")
        settings = model.get_compile_config()
        for names in ({"class_name": "Descent", "registered_name": "Recorded>Descent"}, {"class_name": "Recorded>Descent"}):
            other = keras.models.clone_model(model)
            other.compile_from_config({**settings, "optimizer": {**settings["optimizer"], **names}})
            self.assertAlmostEqual(other.optimizer.get_config()["momentum"], 0.5)

    def test_files_without_the_optimizer(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        for name in ("m.keras", "m.h5"):
            model.save(self.path(name), include_optimizer=False)
            self.assertFalse(keras.models.load_model(self.path(name)).compiled, name)

    def test_checkpoints_in_the_older_format(self):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse")
        model.fit(self.x, self.x, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(self.path("c.h5"))])
        np.testing.assert_allclose(keras.models.load_model(self.path("c.h5")).predict(self.x, verbose=0), model.predict(self.x, verbose=0))
        with self.assertRaisesRegex(ValueError, "weights alone end in .weights.h5"):
            keras.callbacks.ModelCheckpoint(self.path("c.h5"), save_weights_only=True)

    def test_two_layers_of_one_name_are_refused(self):
        x = keras.Input((4,))
        with self.assertRaisesRegex(ValueError, "two layers \"same\""):
            keras.Model(x, keras.layers.Dense(4, name="same")(keras.layers.Dense(4, name="same")(x)))
