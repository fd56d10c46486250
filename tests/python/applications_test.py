"""Keras' networks of images by Keras' names: layers, weights and results are those that record_applications.py found in Keras."""

import hashlib
import json
import os
import pathlib
import tempfile
import unittest

import numpy as np

RECORDED = pathlib.Path(__file__).resolve().parent / "testdata" / "applications.json"
NETWORKS = ("ResNet50", "ResNet101", "ResNet152", "ResNet50V2", "ResNet101V2", "ResNet152V2", "VGG16", "VGG19", "DenseNet121", "MobileNetV2",
            "EfficientNetB0", "InceptionV3", "Xception")
DEEPER = ("ResNet101", "ResNet152", "ResNet101V2", "ResNet152V2")  # of the blocks of others: `./run check` makes them
IMAGE = (75, 80, 3)


def weight(number, name, shape):
    """The values that a weight of this place, name and shape is given: layers' results stay of the size of their inputs."""
    values = np.random.default_rng(number).random(shape, np.float32)
    if name in ("moving_variance", "gamma", "variance"):
        return 0.5 + values
    spread = np.sqrt(6.0 / np.prod(shape[:-1])) if len(shape) > 1 else 0.2
    return np.asarray((2 * values - 1) * spread, np.int32 if name == "count" else np.float32)


def image():
    return 2 * np.random.default_rng(0).random((1, *IMAGE), np.float32) - 1


def facts_of(model):
    """What a network is made of, in numbers and digests."""
    def digest(lines):
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    layers = [f"{type(layer).__name__} {layer.name}" for layer in model.layers]
    weights = [f"{weight.name.split('/')[-1]} {tuple(weight.shape)}" for weight in model.weights]
    return {"layers": len(layers), "layers_digest": digest(layers), "weights": len(weights), "weights_digest": digest(weights),
            "parameters": sum(int(np.prod(weight.shape)) for weight in model.weights),
            "trainable": sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)}


def features_of(model):
    """Some numbers of the output for weights and an image by formula."""
    model.set_weights([weight(number, part.name.split("/")[-1], tuple(part.shape)) for number, part in enumerate(model.weights)])
    features = np.asarray(model.predict(image(), verbose=0), np.float64)[0]
    return {"size": len(features), "some": [float(f"{value:.7g}") for value in features[::len(features) // 8][:8]],
            "norm": float(f"{np.linalg.norm(features):.7g}")}


class Applications(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from lockstep import keras
        cls.keras, cls.recorded = keras, json.loads(RECORDED.read_text())

    def make(self, network, **options):
        self.keras.backend.clear_session()
        return getattr(self.keras.applications, network)(weights=None, **options)

    def assert_same_facts(self, model, expected):
        for fact, value in facts_of(model).items():
            self.assertEqual(value, expected[fact], fact)

    def test_layers_and_weights_are_those_of_keras(self):
        for name in NETWORKS:
            if name in DEEPER:
                continue
            with self.subTest(name):
                without = self.make(name, include_top=False, input_shape=(None, None, 3), pooling="avg")
                self.assert_same_facts(without, self.recorded[name]["without_top"])
                self.assertEqual(without.output_shape, (None, self.recorded[name]["features"]["size"]))

    def test_LongClassifiers(self):
        for name in NETWORKS:
            with self.subTest(name):
                self.assert_same_facts(self.make(name), self.recorded[name])

    def test_LongFeatures(self):
        for name in NETWORKS:
            with self.subTest(name):
                found = features_of(self.make(name, include_top=False, input_shape=IMAGE, pooling="avg"))
                expected = self.recorded[name]["features"]
                self.assertEqual(found["size"], expected["size"])
                np.testing.assert_allclose(found["some"] + [found["norm"]], expected["some"] + [expected["norm"]], rtol=2e-3, atol=2e-5 * expected["norm"])

    def test_features_of_a_small_one(self):
        found = features_of(self.make("MobileNetV2", include_top=False, input_shape=IMAGE, pooling="avg"))
        expected = self.recorded["MobileNetV2"]["features"]
        np.testing.assert_allclose(found["some"] + [found["norm"]], expected["some"] + [expected["norm"]], rtol=2e-3, atol=2e-5 * expected["norm"])

    def test_heads(self):
        shape = (32, 32, 3)
        plain = self.make("MobileNetV2", include_top=False, input_shape=shape)
        self.assertEqual((plain.output_shape, plain.name), ((None, 1, 1, 1280), "mobilenetv2_1.00_32"))
        largest = self.make("MobileNetV2", include_top=False, input_shape=shape, pooling="max")
        self.assertEqual((largest.output_shape, largest.layers[-1].name), ((None, 1280), "global_max_pooling2d"))
        few = self.make("MobileNetV2", input_shape=shape, classes=7, classifier_activation=None, name="few")
        self.assertEqual((few.output_shape, few.layers[-1].activation.__name__, few.name), ((None, 7), "linear", "few"))
        probable = self.make("MobileNetV2", input_shape=shape, classes=7)
        np.testing.assert_allclose(probable.predict(np.zeros((1, *shape), np.float32), verbose=0).sum(), 1.0, rtol=1e-5)

    def test_inputs_of_ones_own(self):
        keras = self.keras
        inputs = keras.Input((40, 40, 3))
        direct = self.make("MobileNetV2", include_top=False, input_tensor=inputs)
        self.assertEqual((len(direct.layers), direct.input_shape), (154, (None, 40, 40, 3)))
        behind = self.make("MobileNetV2", include_top=False, input_tensor=keras.layers.Rescaling(1 / 255)(keras.Input((40, 40, 3))))
        self.assertEqual([type(layer).__name__ for layer in behind.layers[:3]], ["InputLayer", "Rescaling", "Conv2D"])
        with self.assertRaisesRegex(ValueError, "value of a model"):
            self.make("MobileNetV2", include_top=False, input_tensor=np.zeros((1, 32, 32, 3)))

    def test_weights_of_a_file(self):
        model = self.make("MobileNetV2", include_top=False, input_shape=(32, 32, 3))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "own.weights.h5")
            model.save_weights(path)
            read = self.keras.applications.MobileNetV2(include_top=False, input_shape=(32, 32, 3), weights=path)
        for mine, other in zip(model.get_weights(), read.get_weights()):
            np.testing.assert_array_equal(mine, other)
        with self.assertRaisesRegex(ValueError, "where there is none"):
            self.keras.applications.VGG16(weights="no_such.h5")

    def test_published_weights_are_named(self):
        with self.assertRaisesRegex(NotImplementedError, r'keras.utils.get_file\(origin=.*vgg16/vgg16_weights_tf_dim_ordering_tf_kernels_notop.h5'):
            self.keras.applications.VGG16(include_top=False)
        with self.assertRaisesRegex(NotImplementedError, r"efficientnetb0.h5.*square roots of \(0.229"):
            self.keras.applications.EfficientNetB0()

    def test_mistakes(self):
        applications = self.keras.applications
        with self.assertRaisesRegex(ValueError, "at least 75 x 75 pixels"):
            applications.InceptionV3(weights=None, input_shape=(60, 80, 3))
        with self.assertRaisesRegex(ValueError, "images of one size"):
            applications.VGG16(weights=None, input_shape=(None, None, 3))
        with self.assertRaisesRegex(ValueError, 'pooling must be "avg", "max" or empty'):
            applications.Xception(weights=None, include_top=False, pooling="mean")
        with self.assertRaisesRegex(NotImplementedError, "alpha=0.5"):
            applications.MobileNetV2(weights=None, alpha=0.5)

    def test_modules(self):
        from lockstep.keras.applications import resnet50
        from lockstep.keras.applications.vgg16 import VGG16, decode_predictions, preprocess_input
        self.assertIs(resnet50.ResNet50, self.keras.applications.ResNet50)
        self.assertIs(VGG16, self.keras.applications.VGG16)
        self.assertTrue(callable(preprocess_input) and callable(decode_predictions))
        self.assertEqual(resnet50(input_shape=[16, 16, 3], width=2).name, "resnet50", "the zoo's own")
        with self.assertRaisesRegex(AttributeError, "did you mean 'ResNet50'"):
            resnet50.ResNet

    def test_images_are_prepared_as_in_keras(self):
        # What keras 3.15.1 makes of these.
        pixels = np.array([[[0, 127, 255], [10, 20, 30]]], np.uint8)
        expected = {"caffe": [[[151.061, 10.221, -123.68], [-73.939, -96.779, -113.68]]],
                    "tf": [[[-1.0, -0.00392157, 1.0], [-0.92156863, -0.8431372, -0.7647059]]],
                    "torch": [[[-2.117904, 0.18767506, 2.64], [-1.9466565, -1.6855742, -1.2815686]]]}
        prepare = self.keras.applications.imagenet_utils.preprocess_input
        for mode, values in expected.items():
            np.testing.assert_allclose(prepare(pixels, mode=mode), values, rtol=1e-5)
            first = np.moveaxis(pixels, -1, 0)
            np.testing.assert_allclose(np.moveaxis(prepare(first, "channels_first", mode), 0, -1), values, rtol=1e-5)
            as_tensor = self.keras.ops.convert_to_tensor(pixels.astype(np.float32))
            np.testing.assert_allclose(np.asarray(prepare(as_tensor, mode=mode)), values, rtol=1e-5)
        floats = pixels.astype(np.float32)
        self.assertIs(self.keras.applications.xception.preprocess_input(floats), floats, "written over, as Keras does")
        self.assertIs(self.keras.applications.efficientnet.preprocess_input(pixels), pixels)
        value = self.keras.Input((2, 3))
        self.assertEqual(prepare(value).shape, (None, 2, 3))

    def test_names_of_classes(self):
        decode = self.keras.applications.imagenet_utils.decode_predictions
        scores = np.zeros((1, 1000), np.float32)
        scores[0, [3, 7]] = 0.2, 0.8
        before = os.environ.get("KERAS_HOME")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["KERAS_HOME"] = folder
            try:
                with self.assertRaisesRegex(FileNotFoundError, "imagenet_class_index.json"):
                    decode(scores)
                os.mkdir(os.path.join(folder, "models"))
                with open(os.path.join(folder, "models", "imagenet_class_index.json"), "w") as file:
                    json.dump({str(i): [f"n{i}", f"class {i}"] for i in range(1000)}, file)
                (first, second), = decode(scores, top=2)
            finally:
                os.environ.pop("KERAS_HOME")
                if before is not None:
                    os.environ["KERAS_HOME"] = before
        self.assertEqual((first[:2], second[:2]), (("n7", "class 7"), ("n3", "class 3")))
        with self.assertRaises(ValueError):
            decode(scores[:, :10])
