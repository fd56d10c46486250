"""Arguments by position: those of the package's classes stand where those of Keras' do."""

import inspect
import json
import pathlib
import unittest

import numpy as np

from lockstep import keras

# What record_keras_values.py wrote of Keras itself.
SIGNATURES = pathlib.Path(__file__).resolve().parents[1] / "keras" / "testdata" / "values" / "signatures.json"
MODULES = {"layers": keras.layers, "losses": keras.losses, "metrics": keras.metrics, "optimizers": keras.optimizers,
           "schedules": keras.optimizers.schedules, "initializers": keras.initializers, "regularizers": keras.regularizers,
           "constraints": keras.constraints}


class Positions(unittest.TestCase):
    def test_are_those_of_keras_signatures(self):
        recorded, compared = json.loads(SIGNATURES.read_text()), 0
        for kind, module in MODULES.items():
            for name, theirs in recorded[kind].items():
                # Layer and Optimizer take their settings by name alone, and classes that are not here take none.
                if not inspect.isclass(getattr(module, name, None)) or name in ("Layer", "Optimizer"):
                    continue
                ours = [parameter.name for parameter in inspect.signature(getattr(module, name)).parameters.values()
                        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
                compared += 1
                with self.subTest(kind=kind, name=name):
                    self.assertEqual(ours[:len(theirs)], theirs)
        self.assertGreater(compared, 200)

    def test_reach_the_engine(self):
        initializers = keras.initializers
        for made, expected in ((initializers.RandomNormal(0.5, 0.1, 3), {"mean": 0.5, "stddev": 0.1, "seed": 3}),
                               (initializers.TruncatedNormal(0.5, 0.1, 3), {"mean": 0.5, "stddev": 0.1, "seed": 3}),
                               (initializers.RandomUniform(-1.0, 2.0, 3), {"minval": -1.0, "maxval": 2.0, "seed": 3}),
                               (initializers.VarianceScaling(2.0, "fan_out", "uniform", 3),
                                {"scale": 2.0, "mode": "fan_out", "distribution": "uniform", "seed": 3}),
                               (initializers.Orthogonal(2.0, 3), {"gain": 2.0, "seed": 3}),
                               (keras.optimizers.AdamW(0.1, 0.2, 0.3), {"learning_rate": 0.1, "weight_decay": 0.2, "beta_1": 0.3}),
                               (keras.losses.CategoricalFocalCrossentropy(0.5, 3.0), {"alpha": 0.5, "gamma": 3.0}),
                               (keras.metrics.MeanIoU(3, "iou"), {"num_classes": 3, "name": "iou"})):
            got = made.get_config()
            for name, value in expected.items():
                self.assertAlmostEqual(got[name], value, places=6) if isinstance(value, float) else self.assertEqual(got[name], value)
        self.assertEqual(keras.layers.SpatialDropout2D(0.5, "channels_last", 7).get_config()["seed"], 7)
        self.assertEqual(keras.layers.DepthwiseConv2D(3, 1, "same", 2).get_config()["depth_multiplier"], 2)
        attention = keras.layers.GroupQueryAttention(8, 4, 2, 0.25, False).get_config()
        self.assertEqual((attention["dropout"], attention["use_bias"]), (0.25, False))
        labels, scores = np.array([[1.0, 0.0]], np.float32), np.array([[0.7, 0.3]], np.float32)
        np.testing.assert_allclose(keras.losses.binary_focal_crossentropy(labels, scores, True, 0.3, 1.5).numpy(),
                                   keras.losses.binary_focal_crossentropy(labels, scores, apply_class_balancing=True, alpha=0.3,
                                                                          gamma=1.5).numpy())

    def test_of_what_there_is_not_are_kept(self):
        table = np.ones((4, 2), np.float32)
        embedding = keras.layers.Embedding(4, 2, "uniform", None, None, False, [table])
        np.testing.assert_array_equal(embedding(np.array([1], np.int32)).numpy(), table[:1])
        keras.layers.CategoryEncoding(4, "multi_hot", False)
        with self.assertRaisesRegex(ValueError, "lora_rank"):
            keras.layers.Dense(3, None, True, "zeros", "zeros", None, None, None, None, None, 4)
        with self.assertRaisesRegex(TypeError, "several values for argument 'mean'"):
            keras.initializers.RandomNormal(0.0, mean=1.0)


