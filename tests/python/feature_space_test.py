"""keras.utils.FeatureSpace."""

import os
import tempfile
import unittest

import numpy as np

import lockstep as tf

keras = tf.keras
FeatureSpace = keras.utils.FeatureSpace

COLUMNS = {"thal": np.array(["fixed", "normal", "fixed", "2"]), "sex": np.array([0, 1, 1, 1]), "age": np.array([20.0, 30.0, 40.0, 50.0]),
           "score": np.array([1, 2, 3, 4])}
LABELS = np.array([0, 1, 0, 1])


def rows():
    return tf.data.Dataset.from_tensor_slices((COLUMNS, LABELS))


def space(**options):
    made = FeatureSpace({"thal": "string_categorical", "sex": "integer_categorical", "age": "float_normalized",
                         "score": FeatureSpace.float_discretized(bin_boundaries=[1.5, 3.5])}, crosses=[("sex", "thal")], crossing_dim=8, **options)
    made.adapt(rows().map(lambda x, _: x))
    return made


class FeatureSpaces(unittest.TestCase):
    def test_features_stand_side_by_side_by_their_names_and_crosses_behind_them(self):
        made = space()
        got = made(COLUMNS).numpy()
        self.assertEqual((got.shape, got.dtype), ((4, 1 + 3 + 3 + 4 + 8), np.float32))
        np.testing.assert_allclose(got[:, 0], (COLUMNS["age"] - 35) / np.std(COLUMNS["age"]), rtol=1e-5)
        np.testing.assert_array_equal(got[:, 1:4], np.eye(3)[[0, 1, 1, 2]])  # bins of scores
        np.testing.assert_array_equal(got[:, 4:7], np.eye(3)[[2, 1, 1, 1]])  # behind numbers that are not known, the frequent one
        np.testing.assert_array_equal(got[:, 7:11], np.eye(4)[[1, 2, 1, 3]])
        # What Keras' HashedCrossing gives of these numbers.
        crossed = keras.layers.HashedCrossing(8)([np.array([[2], [1], [1], [1]]), np.array([[1], [2], [1], [3]])])
        np.testing.assert_array_equal(got[:, 11:], np.eye(8)[crossed.numpy()[:, 0]])

    def test_rows_batches_and_pipelines(self):
        made = space()
        whole = made(COLUMNS).numpy()
        for number, (x, _) in enumerate(rows()):
            np.testing.assert_array_equal(made(x).numpy(), whole[number])
        np.testing.assert_array_equal(made({name: column[1].item() for name, column in COLUMNS.items()}).numpy(), whole[1])
        encoded = rows().batch(3).map(lambda x, y: (made(x), y), num_parallel_calls=tf.data.AUTOTUNE)
        np.testing.assert_array_equal(np.concatenate([x.numpy() for x, _ in encoded]), whole)
        # Of batches, of columns and of rows the same is learned; what is beside the features is left alone.
        for data in (rows().batch(3).map(lambda x, _: x), {**COLUMNS, "more": LABELS}):
            other = FeatureSpace(made.features, crosses=[FeatureSpace.cross(("sex", "thal"), 8)])
            other.adapt(data)
            np.testing.assert_array_equal(other({**COLUMNS, "more": LABELS}).numpy(), whole)

    def test_models_begin_at_columns_or_at_encoded_features(self):
        made = space()
        encoded = made.get_encoded_features()
        results = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Dense(8, activation="relu")(encoded))
        trained = keras.Model(encoded, results)
        trained.compile("adam", "binary_crossentropy")
        trained.fit(rows().batch(2).map(lambda x, y: (made(x), y)), epochs=2, verbose=0)
        whole = keras.Model(made.get_inputs(), results)
        given = {name: tf.constant(column) for name, column in COLUMNS.items()}
        wanted = trained.predict(made(COLUMNS), verbose=0)
        np.testing.assert_allclose(whole.predict(given, verbose=0), wanted, rtol=1e-6)
        with tempfile.TemporaryDirectory() as folder:
            whole.save(os.path.join(folder, "m.keras"))
            read = keras.models.load_model(os.path.join(folder, "m.keras"))
        np.testing.assert_allclose(read.predict(given, verbose=0), wanted, rtol=1e-6)

    def test_by_name_and_as_numbers(self):
        made = FeatureSpace({"thal": FeatureSpace.string_categorical(output_mode="int"), "sex": FeatureSpace.integer_hashed(5, output_mode="int"),
                             "age": FeatureSpace.float_rescaled(0.5, 1.0), "score": "float"}, output_mode="dict",
                            crosses=[FeatureSpace.cross(("sex", "thal"), 8, output_mode="int")])
        with self.assertRaisesRegex(ValueError, r"call adapt\(dataset\) first: thal learn"):
            made(COLUMNS)
        made.adapt(COLUMNS)
        got = made(COLUMNS)
        self.assertEqual(list(got), ["age", "score", "sex", "thal", "sex_X_thal"])
        self.assertEqual([got[name].dtype.name for name in got], ["float32", "float32", "int64", "int64", "int64"])
        self.assertEqual(got["thal"].numpy()[:, 0].tolist(), [1, 2, 1, 3])
        self.assertEqual(got["age"].numpy()[:, 0].tolist(), [11, 16, 21, 26])
        self.assertEqual({name: tuple(value.shape) for name, value in made.get_encoded_features().items()}, {name: (None, 1) for name in got})

    def test_layers_of_ones_own(self):
        class Doubled(keras.layers.Layer):
            def call(self, x):
                return x * 2
        made = FeatureSpace({"a": FeatureSpace.feature("float32", Doubled(), "float")})
        self.assertEqual(made({"a": [1.0, 2.0]}).numpy().tolist(), [[2], [4]])
        with self.assertRaisesRegex(ValueError, 'feature "a" is to be one_hot.*must give integers; it gives float32'):
            FeatureSpace({"a": FeatureSpace.feature("float32", Doubled(), "one_hot")})({"a": [1.0]})

    def test_vocabularies_that_are_learned_again(self):
        made = space()
        made.adapt({**COLUMNS, "thal": np.array(["a", "b", "c", "d"])})
        self.assertEqual(made(COLUMNS).shape, (4, 1 + 3 + 3 + 5 + 8))

    def test_files(self):
        made = space(name="table")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "space.keras")
            made.save(path)
            read = keras.saving.load_model(path)
            with self.assertRaisesRegex(ValueError, "must end in .keras"):
                made.save(os.path.join(folder, "space"))
        self.assertEqual(read.name, "table")
        np.testing.assert_array_equal(read(COLUMNS).numpy(), made(COLUMNS).numpy())
        np.testing.assert_array_equal(FeatureSpace.from_config(made.get_config())(COLUMNS).numpy(), made(COLUMNS).numpy())

    def test_refusals(self):
        for make, said in ((lambda: FeatureSpace({}), "cannot be None or empty"), (lambda: FeatureSpace({"a": "flot"}), "no kind 'flot'; there are float"),
                           (lambda: FeatureSpace({"a": "float"}, crosses=[("a", "b")]), r"\['b'\], which are no features"),
                           (lambda: FeatureSpace({"a": "float"}, output_mode="list"), "concat or dict"),
                           (lambda: FeatureSpace.integer_categorical(output_mode="float32"), "int, one_hot or float"),
                           (lambda: space()({"sex": [1]}), 'no column "thal"; there are sex'), (lambda: space().adapt(rows()), "received tuple; of a dataset with labels"),
                           (lambda: space().adapt([1.0]), "columns by name, or a dataset of them, received list"),
                           (lambda: FeatureSpace({"sex": FeatureSpace.integer_categorical(output_mode="int")}).adapt(COLUMNS), 'feature "sex" stays a whole number')):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                make()
