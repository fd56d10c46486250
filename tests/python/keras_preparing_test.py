"""What Keras has for preparing data: layers of sounds, images and numbers, texts, bounding boxes, files; and metrics' variables."""

import contextlib
import hashlib
import io
import os
import pathlib
import pickle
import tarfile
import tempfile
import types
import unittest
from unittest import mock

import numpy as np

import lockstep as tf
from lockstep import keras


class MetricsAsKerasHasThem(unittest.TestCase):
    def test_variables_are_those_of_keras(self):
        mean = keras.metrics.Mean()
        self.assertEqual([variable.name for variable in mean.variables], ["total", "count"])
        mean.update_state([1.0, 3.0, 5.0])
        self.assertEqual((float(mean.total), float(mean.count)), (9.0, 3.0))
        self.assertEqual(float(mean.total / mean.count), 3.0)
        with self.assertRaises(NotImplementedError):
            mean.total.assign(0.0)
        mean.reset_state()
        self.assertEqual(float(mean.total), 0.0)

    def test_curves_count_at_every_threshold(self):
        auc = keras.metrics.AUC(num_thresholds=None, thresholds=[0.5])
        self.assertEqual(auc.num_thresholds, 3)
        np.testing.assert_allclose(auc.thresholds, [0.0, 0.5, 1.0], atol=1e-6)
        auc.update_state([0, 1, 1], [0.2, 0.4, 0.9])
        np.testing.assert_array_equal(auc.true_positives, [2.0, 1.0, 0.0])
        np.testing.assert_array_equal(auc.false_positives, [1.0, 0.0, 0.0])
        np.testing.assert_array_equal(auc.false_negatives, [0.0, 1.0, 2.0])
        np.testing.assert_array_equal(auc.true_negatives, [0.0, 1.0, 1.0])

    def test_a_metric_of_ones_own(self):
        class Largest(keras.metrics.Metric):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.largest = self.add_variable((), initializer=keras.initializers.Constant(2.0), name="largest")
                self.inner = [keras.metrics.Mean()]

            def update_state(self, values):
                self.largest.assign(tf.maximum(self.largest, tf.cast(tf.reduce_max(values), self.dtype)))
                self.inner[0].update_state(values)

            def result(self):
                return self.largest * 1

        metric = Largest(dtype="float16")
        self.assertEqual(len(metric.variables), 3)
        self.assertEqual((metric.dtype, metric.result().dtype), ("float16", tf.float16))
        self.assertEqual(float(metric.result()), 2.0)
        metric.update_state(np.array([5.0], np.float32))
        self.assertEqual(float(metric.result()), 5.0)
        metric.reset_state()
        self.assertEqual(float(metric.result()), 0.0)

    def test_variables_from_outside(self):
        class Total(keras.metrics.Metric):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.sum = self.add_variable((), name="sum")

            def update_state(self, values):
                self.sum.assign_add(tf.reduce_sum(values))

            def result(self):
                return self.sum * 1

        metric = Total()
        after, = metric.stateless_update_state([10.0], tf.constant([1.0, 2.0]))
        self.assertEqual((float(after), float(metric.sum)), (13.0, 0.0))
        self.assertEqual(float(metric.stateless_result([7.0])), 7.0)

    def test_what_result_gives(self):
        self.assertEqual(keras.metrics.Mean(dtype="float16")([1.0]).dtype, tf.float16)
        again = pickle.loads(pickle.dumps(keras.metrics.Mean(dtype="float16")))
        self.assertEqual(again.dtype, "float16")

    def test_sorted_ids_and_ignored_classes(self):
        metric = keras.metrics.SparseTopKCategoricalAccuracy(k=2, from_sorted_ids=True)
        self.assertEqual(float(metric([2, 1], [[1, 2, 0], [0, 2, 1]])), 0.5)
        scores = np.array([[0.8, 0.1, 0.1], [0.05, 0.95, 0], [0.1, 0.8, 0.1]])
        metric = keras.metrics.SparseCategoricalCrossentropy(ignore_class=0)
        self.assertAlmostEqual(float(metric([0, 1, 2], scores)), 0.78462, places=4)
        metric.reset_state()
        self.assertAlmostEqual(float(metric([0, 1, 2], scores, sample_weight=[0.5, 1.5, 2.0])), 1.33775, places=4)

    def test_functions(self):
        metrics = keras.metrics
        scores = np.array([[0.1, 0.9, 0.8], [0.05, 0.95, 0.0]])
        self.assertEqual(metrics.sparse_top_k_categorical_accuracy([2, 0], scores, 2).numpy().tolist(), [1.0, 1.0])
        self.assertEqual(metrics.sparse_categorical_accuracy([[1], [0]], scores).numpy().tolist(), [1.0, 0.0])
        self.assertEqual(metrics.binary_accuracy([[1, 0]], [[0.7, 0.6]]).numpy().tolist(), [0.5])
        y, p = np.array([[0.0, 1.0, 0.5]]), np.array([[0.1, 0.9, 0.4]])
        np.testing.assert_allclose(metrics.pearson_correlation(y, p), np.corrcoef(y, p)[0, 1], rtol=1e-6)
        self.assertAlmostEqual(float(metrics.concordance_correlation(y, y)[0]), 1.0, places=5)


class OpsOfValues(unittest.TestCase):
    def test_small_floats_do_not_overflow(self):
        x = np.array([65504, 65504, 65504], np.float16)
        self.assertEqual(float(keras.ops.mean(x)), 65504.0)
        x = np.array([-741.0, 353.2, 1099.0, -1807.0], np.float16)
        self.assertEqual(float(keras.ops.moments(x, [0])[1]), 65504.0)

    def test_values_of_models_have_shapes_though_values_decide(self):
        of_model = keras.KerasTensor((None, 4), "int32")
        self.assertEqual([tuple(part.shape) for part in keras.ops.nonzero(of_model)], [(None,), (None,)])
        values, counts = keras.ops.unique(of_model, return_counts=True, axis=0)
        self.assertEqual((tuple(values.shape), tuple(counts.shape)), ((None, 4), (None,)))
        self.assertEqual(tuple(keras.ops.view(of_model, "uint8").shape), (None, 16))
        self.assertEqual(tuple(keras.ops.bincount(of_model).shape), (None, None))
        self.assertEqual(tuple(keras.ops.size(of_model).shape), ())
        scores, lengths = keras.Input((5, 3)), keras.Input((), dtype="int32")
        for strategy, paths in (("beam_search", 2), ("greedy", 1)):
            labels, worth = keras.ops.ctc_decode(scores, lengths, strategy=strategy, top_paths=paths)
            self.assertEqual((tuple(labels.shape), tuple(worth.shape)), ((paths, None, 5), (None, paths)))
        given = [np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32), np.array([5, 4], np.int32)]
        decoded = keras.Model([scores, lengths], labels[0])
        np.testing.assert_array_equal(decoded.predict(given, verbose=0), keras.ops.ctc_decode(*given)[0][0].numpy())

    def test_rounding_unique_counts_and_medians(self):
        ops = keras.ops
        self.assertEqual(ops.round(np.array([123, 345]), -1).numpy().tolist(), [120, 340])
        self.assertEqual(ops.unique(np.array([1.0, np.nan, np.nan])).shape, (3,))
        self.assertEqual(ops.unique(np.array([3, 1, 2]), return_index=True, size=5)[1].numpy().tolist(), [1, 2, 0, 1, 1])
        self.assertEqual(ops.bincount(np.array([[0, 1], [2, 2]])).numpy().tolist(), [[1, 1, 0], [0, 0, 2]])
        self.assertEqual(ops.nanmedian(np.array([np.inf, np.inf])).numpy(), np.inf)

    def test_normalization_along_other_axes(self):
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
        gamma = np.array([1.0, 2.0, 3.0], np.float32)
        made = keras.ops.layer_normalization(x, gamma, axis=1).numpy()
        expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-7) * gamma[:, None]
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
        with self.assertWarns(UserWarning):
            scaled = keras.ops.layer_normalization(x, axis=-1, rms_scaling=True).numpy()
        np.testing.assert_allclose(scaled, x / np.sqrt(x.var(-1, keepdims=True) + 1e-7), rtol=1e-4)


class PreparingLayers(unittest.TestCase):
    def test_normalization_of_inputs_of_another_rank(self):
        layer = keras.layers.Normalization()
        layer.adapt(np.random.default_rng(0).normal(3.0, 2.0, size=(50, 8, 3)))
        self.assertEqual(layer.mean.shape, (1, 1, 3))
        self.assertEqual(layer(np.zeros((1, 8, 8, 3), np.float32)).shape, (1, 8, 8, 3))
        given = keras.layers.Normalization(axis=(1, 2), mean=[1.0, 2.0], variance=[1.0, 4.0])
        given.build((None, 3, 2, 5))
        self.assertEqual(given.mean.shape, (1, 3, 2, 1))
        with self.assertRaisesRegex(TypeError, "shape"):
            keras.layers.Normalization().adapt(iter([42]))

    def test_rms_normalization_is_along_the_last_axis(self):
        layer = keras.layers.RMSNormalization()
        layer.build((2, 2, 2))
        x = np.random.default_rng(0).normal(size=(3, 2, 5, 2)).astype(np.float32)
        np.testing.assert_allclose(layer(x), x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6), rtol=1e-4)

    def test_vocabularies_of_integers(self):
        layer = keras.layers.IntegerLookup()
        layer.adapt(np.array([5, 5, 5, 10, 10, 15]))
        self.assertEqual(layer.get_vocabulary(), [-1, 5, 10, 15])
        self.assertEqual(layer.get_vocabulary(include_special_tokens=False), [5, 10, 15])
        layer.set_vocabulary([7, 8])
        self.assertEqual(layer(np.array([8, 5])).numpy().tolist(), [2, 0])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "numbers.txt")
            pathlib.Path(path).write_text("10\n20\n")
            self.assertEqual(keras.layers.IntegerLookup(vocabulary=path)(np.array([20, 1])).numpy().tolist(), [2, 0])
        keras.layers.IntegerLookup(vocabulary=[1], oov_method="farmhash")
        with self.assertRaises(ValueError):
            keras.layers.IntegerLookup(vocabulary=[1], oov_method="none")

    def test_categories_and_bins(self):
        layer = keras.layers.CategoryEncoding(num_tokens=3, output_mode="count")
        np.testing.assert_allclose(layer([0, 1, 1], count_weights=[0.5, 2.0, 1.0]), [0.5, 3.0, 0.0])
        with self.assertRaisesRegex(ValueError, "count_weights"):
            keras.layers.CategoryEncoding(num_tokens=3, output_mode="multi_hot")([0], count_weights=[1.0])
        self.assertEqual(keras.layers.Discretization(num_bins=4, output_mode="one_hot").compute_output_shape((None, 3)), (None, 3, 4))
        self.assertEqual(keras.layers.Hashing(num_bins=3, dtype="int32")(["a", "b"]).dtype, tf.int32)
        with self.assertRaises(ValueError):
            keras.layers.Hashing(num_bins=3, dtype="float32")
        crossing = keras.layers.HashedCrossing(num_bins=2, output_mode="one_hot", dtype="float64")
        self.assertEqual(crossing((np.array([1]), np.array([2]))).dtype, tf.float64)

    def test_images_of_integers_are_enlarged_between_pixels(self):
        image = np.array([[[[0], [4]]]])
        made = keras.layers.UpSampling2D((1, 2), interpolation="bilinear")(image)
        np.testing.assert_allclose(made.numpy().reshape(-1), [0.0, 1.0, 3.0, 4.0])

    def test_initializers_of_ones_own(self):
        class Counting(keras.initializers.Initializer):
            def __call__(self, shape, dtype=None):
                return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

        class Scaled(keras.layers.Layer):
            def build(self, input_shape):
                self.scale = self.add_weight((3,), Counting())
                self.shift = self.add_weight((3,), lambda shape, dtype=None: np.ones(shape, np.float32))

            def call(self, x):
                return x * self.scale + self.shift

        self.assertEqual(Scaled()(np.ones((1, 3), np.float32)).numpy().tolist(), [[1.0, 2.0, 3.0]])

    def test_pipelines(self):
        pipeline = keras.layers.Pipeline([keras.layers.Rescaling(0.5), keras.layers.CenterCrop(2, 2)])
        x = np.full((1, 4, 4, 3), 2.0, np.float32)
        self.assertEqual(pipeline(x).numpy().tolist(), np.ones((1, 2, 2, 3)).tolist())
        again = keras.layers.Pipeline.from_config(pipeline.get_config())
        self.assertEqual(again(x).shape, (1, 2, 2, 3))
        batches = tf.data.Dataset.from_tensor_slices(x).batch(1).map(pipeline)
        self.assertEqual(next(iter(batches)).shape, (1, 2, 2, 3))
        with self.assertRaisesRegex(ValueError, "layers"):
            keras.layers.Pipeline.from_config({"name": "none"})

    def test_equalization_of_tiles(self):
        layer = keras.layers.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2), clip_limit=0.0)
        ramp = np.tile(np.arange(64, dtype=np.float32).reshape(1, 8, 8, 1), (2, 1, 1, 3))
        made = layer(ramp).numpy()
        self.assertEqual(made.shape, ramp.shape)
        self.assertGreater(np.ptp(made), 200.0)  # dark images use all levels
        flat = layer(np.full((1, 8, 8, 1), 7.0, np.float32)).numpy()
        np.testing.assert_array_equal(flat, np.full((1, 8, 8, 1), flat[0, 0, 0, 0]))

    def test_numbers_of_boxes(self):
        layer = keras.layers.MaxNumBoundingBoxes(2)
        given = {"images": np.zeros((1, 4, 4, 3), np.float32),
                 "bounding_boxes": {"boxes": np.arange(4, dtype=np.float32).reshape(1, 1, 4), "labels": np.array([[3.0]], np.float32)}}
        made = layer(given)["bounding_boxes"]
        self.assertEqual(made["boxes"].numpy().tolist(), [[[0.0, 1.0, 2.0, 3.0], [-1.0] * 4]])
        self.assertEqual(made["labels"].numpy().tolist(), [[3.0, -1.0]])


class Sounds(unittest.TestCase):
    def test_short_time_fourier_transforms(self):
        signal = np.random.default_rng(0).normal(size=(2, 1000, 3)).astype(np.float32)
        layer = keras.layers.STFTSpectrogram(mode="magnitude", frame_length=64, frame_step=32, fft_length=128, scaling=None)
        made = layer(signal).numpy()
        self.assertEqual(made.shape, (2, 30, 3 * 65))
        window = np.hanning(64)
        for channel in range(3):
            frames = np.stack([signal[0, start:start + 64, channel] * window for start in range(0, 960, 32)][:30])
            np.testing.assert_allclose(made[0, :, channel * 65:(channel + 1) * 65], np.abs(np.fft.rfft(frames, 128)), rtol=1e-3, atol=2e-3)
        self.assertEqual(keras.layers.STFTSpectrogram(expand_dims=True)(signal).shape, (2, 6, 129, 3))
        model = keras.Sequential([keras.Input((None, 1)), keras.layers.STFTSpectrogram()])
        self.assertEqual(model.predict(signal[..., :1], verbose=0).shape, (2, 6, 129))
        with self.assertRaisesRegex(ValueError, "mode"):
            keras.layers.STFTSpectrogram(mode="loud")

    def test_mel_scale(self):
        layer = keras.layers.MelSpectrogram(num_mel_bins=40, sampling_rate=8000, fft_length=256, sequence_stride=128)
        tone = np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000).astype(np.float32)
        made = layer(tone).numpy()
        self.assertEqual(made.shape, (40, 63))
        self.assertAlmostEqual(float(made.max() - made.min()), 80.0, places=3)
        edges = np.linspace(1127 * np.log1p(20 / 700), 1127 * np.log1p(4000 / 700), 42)
        self.assertEqual(int(made[:, 30].argmax()), int(np.abs(edges[1:-1] - 1127 * np.log1p(1000 / 700)).argmin()))


class TextFunctions(unittest.TestCase):
    def test_functions_of_texts(self):
        strings = tf.strings
        self.assertEqual(strings.regex_replace(strings.lower(np.array(["A<br />B"])), "<br />", " ").tolist(), ["a b"])
        self.assertEqual(strings.split(["a b", "c"]), [["a", "b"], ["c"]])
        self.assertEqual(strings.join([["a", "b"], "x"], "-").tolist(), ["a-x", "b-x"])
        self.assertEqual(strings.length("né").numpy(), 3)
        self.assertEqual(strings.substr("hello", -3, 2), "ll")
        self.assertEqual(strings.to_number(["1.5", "2"]).numpy().tolist(), [1.5, 2.0])
        self.assertEqual(strings.as_string([1, 2]).numpy().tolist(), [b"1", b"2"])
        self.assertEqual(strings.as_string([1.5, 2.0], precision=2).numpy().tolist(), [b"1.50", b"2.00"])
        with self.assertRaises(TypeError):
            strings.lower(3)

    def test_bytes_and_characters(self):
        strings = tf.strings
        self.assertEqual((strings.lower("ÉB"), strings.lower("ÉB", encoding="utf-8")), ("Éb", "éb"))
        self.assertEqual((strings.upper("éß"), strings.upper("éß", encoding="utf-8")), ("éß", "ÉSS"))
        self.assertEqual((strings.strip("\u00a0 a\t"), strings.split(" a\u00a0b  c ")), ("\u00a0 a", ["a\u00a0b", "c"]))
        self.assertEqual((strings.substr("aéz", 1, 2), strings.substr("aéz", 1, 2, unit="UTF8_CHAR")), ("é", "éz"))
        self.assertEqual(strings.substr(np.array([b"a\xc3\xa9"]), 0, 2).tolist(), [b"a\xc3"])
        self.assertEqual(strings.regex_replace("né 1", r"\w", "."), ".é .")
        self.assertFalse(strings.regex_full_match("né", r"\w+").numpy())
        with self.assertRaisesRegex(ValueError, "encoding is"):
            strings.lower("a", encoding="latin-1")

    def test_functions_that_take_texts_apart(self):
        layer = keras.layers.TextVectorization(standardize=lambda texts: tf.strings.regex_replace(texts, "-", " "), vocabulary=["foo", "bar"])
        self.assertEqual(layer(["foo-bar"]).numpy().tolist(), [[2, 3]])
        layer = keras.layers.TextVectorization(split=lambda texts: tf.strings.split(texts, sep="|"), ngrams=2, standardize=None)
        layer.adapt(["New York|Rome", "Rome"])
        self.assertEqual(layer.get_vocabulary()[2], "Rome")
        self.assertEqual(layer(["Rome|New York"]).shape, (1, 3))
        plain = keras.layers.TextVectorization(standardize=None, vocabulary=["Hello"])
        self.assertEqual(plain(["Hello hello"]).numpy().tolist(), [[2, 1]])


class DatasetsOfTexts(unittest.TestCase):
    def test_arrays_of_texts(self):
        texts = tf.constant(["one", "two"])
        self.assertEqual((texts.shape, texts.dtype, texts.dtype.name, str(texts.dtype)), ((2,), tf.string, "string", "<dtype: 'string'>"))
        self.assertEqual(texts.numpy().tolist(), [b"one", b"two"])
        self.assertEqual(texts[1].numpy(), b"two")
        self.assertEqual(tf.expand_dims(texts, -1).shape, (2, 1))
        self.assertEqual((texts == "two").numpy().tolist(), [False, True])
        self.assertEqual(tf.strings.upper(texts).numpy().tolist(), [b"ONE", b"TWO"])
        self.assertEqual([len(parts) for parts in tf.strings.split(texts, "n")], [2, 1])
        self.assertEqual(keras.layers.StringLookup(vocabulary=["two"])(texts).numpy().tolist(), [0, 1])

        self.assertEqual((texts != "two").numpy().tolist(), [True, False])
        self.assertEqual((np.array(["two", "one"]) == texts).numpy().tolist(), [False, False])
        self.assertFalse(texts == None)  # noqa: E711: what a program may ask
        self.assertEqual((texts + "!").numpy().tolist(), [b"one!", b"two!"])
        self.assertEqual(repr(texts), "<tf.Tensor: shape=(2,), dtype=string, numpy=array([b'one', b'two'], dtype=object)>")
        self.assertEqual(str(texts[0]), "tf.Tensor(b'one', shape=(), dtype=string)")
        self.assertEqual(tf.constant("x", shape=(1, 2)).numpy().tolist(), [[b"x", b"x"]])
        self.assertEqual(tf.reshape(tf.convert_to_tensor(["a", "b"]), (2, 1)).shape, (2, 1))
        self.assertEqual(tf.concat((np.array([b"a", b"b"], object), tf.constant(["c"])), 0).numpy().tolist(), [b"a", b"b", b"c"])
        self.assertEqual(tf.stack([texts, texts], 1).numpy().tolist(), [[b"one", b"one"], [b"two", b"two"]])
        with self.assertRaisesRegex(TypeError, "among them"):
            tf.concat([texts, tf.constant([1])], 0)
        self.assertEqual(keras.layers.StringLookup(vocabulary=["one"])(texts[0]).numpy(), 1)
        for mode, expected in (("one_hot", [0, 1]), ("multi_hot", [0, 1]), ("count", [0, 1])):
            self.assertEqual(keras.layers.StringLookup(vocabulary=["one"], output_mode=mode)(texts[0]).numpy().tolist(), expected)
        self.assertEqual(keras.ops.convert_to_tensor([["a"]]).numpy().tolist(), [[b"a"]])
        back = keras.layers.StringLookup(vocabulary=["one"], invert=True)
        self.assertEqual(back(tf.constant([[1, 0]])).numpy().tolist(), [[b"one", b"[UNK]"]])
        self.assertEqual(back(1).numpy(), b"one")

    def test_columns_of_tables_may_hold_texts(self):
        class Column:
            """What pandas' columns are to others: an array that is none of NumPy's, with a dtype of its own."""

            def __init__(self, values, kind):
                self.values, self.dtype, self.shape = values, types.SimpleNamespace(kind=kind), (len(values),)

            def __array__(self, dtype=None, copy=None):
                return np.array(self.values, dtype or (object if self.dtype.kind == "O" else None))

            def to_numpy(self):
                return np.asarray(self)

            def __len__(self):
                return len(self.values)

        class Joining(keras.Model):
            def call(self, inputs):
                return keras.layers.Concatenate(axis=1)([value for _, value in sorted(inputs.items())])
        joined = Joining().predict({"b": Column([3.0, 4.0], "f"), "a": Column([1.0, 2.0], "f")}, verbose=0)
        self.assertEqual(joined.tolist(), [[1, 3], [2, 4]])
        data = tf.data.Dataset.from_tensor_slices(({"kind": Column(["a", "b"], "O"), "size": Column([1.0, 2.0], "f")}, [0, 1]))
        self.assertEqual([(x["kind"].numpy(), float(x["size"]), int(y)) for x, y in data], [(b"a", 1.0, 0), (b"b", 2.0, 1)])
        lookup = keras.layers.StringLookup()
        lookup.adapt(Column(["a", "a", "b"], "O"))
        self.assertEqual(lookup.get_vocabulary(), ["[UNK]", "a", "b"])

    def test_what_is_no_text(self):
        for wrong in (["a", 1], ["a", ["b"]], [b"a", None]):
            with self.assertRaisesRegex(TypeError, "among them"):
                tf.constant(wrong)
        for number in (1, [1.0, 2.0]):
            with self.assertRaisesRegex(TypeError, "is no string"):
                tf.constant(number, dtype=tf.string)
        with self.assertRaises(TypeError):
            tf.constant("text", dtype=tf.float32)
        with self.assertRaises(ValueError):
            tf.constant(["a", "b"]) == ["a", "b", "c"]
        with self.assertRaisesRegex(TypeError, "no length"):
            len(tf.constant("text"))

    def test_characters_and_joining(self):
        strings = tf.strings
        texts = tf.constant(["né", "abc"])
        self.assertEqual(strings.unicode_split(texts[0], "UTF-8").numpy().tolist(), ["n".encode(), "é".encode()])
        self.assertEqual([len(characters) for characters in strings.unicode_split(texts, "UTF-8")], [2, 3])
        self.assertEqual(len(strings.bytes_split(texts[0])), 3)
        self.assertEqual(strings.reduce_join(strings.unicode_split(texts, "UTF-8"), axis=-1).numpy().tolist(), ["né".encode(), b"abc"])
        self.assertEqual(strings.reduce_join(np.array([["a", "b"], ["c", "d"]]), axis=0, separator="-").numpy().tolist(), [b"a-c", b"b-d"])
        self.assertEqual(strings.reduce_join(tf.constant(["a", "b"])).numpy(), b"ab")
        self.assertEqual(strings.join([texts, "x"], " ").numpy().tolist(), ["né x".encode(), b"abc x"])
        self.assertEqual(strings.split(tf.constant("a/b/c"), "/")[-2].numpy(), b"b")
        self.assertEqual(strings.unicode_decode("né", "UTF-8").numpy().tolist(), [110, 233])
        self.assertEqual([row.numpy().tolist() for row in strings.unicode_decode(["a", "bc"], "UTF-8")], [[97], [98, 99]])
        self.assertEqual(strings.unicode_encode([110, 233], "UTF-8").numpy(), "né".encode())
        self.assertEqual(strings.unicode_encode([[97], [98, 99]], "UTF-8").numpy().tolist(), [b"a", b"bc"])
        self.assertEqual(tf.gather(texts, [[1, 0]]).numpy().tolist(), [[b"abc", "né".encode()]])
        with self.assertRaisesRegex(ValueError, "UTF-8"):
            strings.unicode_split(texts, "UTF-16-BE")

    def test_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("b", "a"):
                pathlib.Path(folder, f"{name}.txt").write_text(f"{name} 1\n{name} 2\n")
            files = tf.data.Dataset.list_files(os.path.join(folder, "*.txt"), shuffle=False)
            self.assertEqual([tf.strings.split(path, os.path.sep)[-1].numpy() for path in files], [b"a.txt", b"b.txt"])
            contents = files.map(tf.io.read_file)
            self.assertEqual([text.numpy() for text in contents], [b"a 1\na 2\n", b"b 1\nb 2\n"])
            lines = files.interleave(tf.data.TextLineDataset, cycle_length=2)
            self.assertEqual([line.numpy() for line in lines], [b"a 1", b"b 1", b"a 2", b"b 2"])
            self.assertEqual([line.numpy() for line in files.flat_map(tf.data.TextLineDataset)], [b"a 1", b"a 2", b"b 1", b"b 2"])
            numbered = tf.data.TextLineDataset(os.path.join(folder, "a.txt")).map(lambda line: (line, 7)).batch(2)
            self.assertEqual([(text.numpy().tolist(), label.numpy().tolist()) for text, label in numbered], [([b"a 1", b"a 2"], [7, 7])])
            with self.assertRaisesRegex(ValueError, "no file matches"):
                tf.data.Dataset.list_files(os.path.join(folder, "*.csv"))

        def pairs():
            yield "one", 1
            yield "two", 2
        for said in ({"output_signature": (tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.int32))},
                     {"output_types": (tf.string, tf.int32)}):
            made = tf.data.Dataset.from_generator(pairs, **said)
            self.assertEqual([(text.numpy(), int(number)) for text, number in made], [(b"one", 1), (b"two", 2)])
            self.assertEqual(made.element_spec[0], tf.TensorSpec((), tf.string))
        both = tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(["a", "b", "c"]), tf.data.Dataset.range(2)))
        self.assertEqual((len(both), [(text.numpy(), int(number)) for text, number in both]), (2, [(b"a", 0), (b"b", 1)]))
        self.assertEqual([text.numpy().tolist() for text in tf.data.Dataset.from_tensors(["a", "b"])], [[b"a", b"b"]])

    def test_what_a_function_gives_is_known_without_a_pass(self):
        called = []

        def read():
            called.append("pass")
            return iter(["a b", "c"])
        data = tf.data.Dataset.from_generator(read, output_signature=tf.TensorSpec((), tf.string)).shuffle(2, seed=1).batch(2)
        lengths = data.map(lambda texts: tf.strings.length(texts))
        self.assertEqual(called, ["pass"])  # of the generator, the first text; shuffle's buffer is not filled
        self.assertEqual(sorted(next(iter(lengths)).numpy().tolist()), [1, 3])
        self.assertEqual(list(tf.data.Dataset.from_tensor_slices(np.array([], dtype=str)).map(tf.strings.length)), [])

    def test_orders_follow_from_seeds(self):
        make = lambda **settings: tf.data.Dataset.from_tensor_slices(list("abcdefgh")).shuffle(8, **settings)  # noqa: E731
        read = lambda data: b"".join(text.numpy() for text in data)  # noqa: E731
        kept = make(reshuffle_each_iteration=False)
        self.assertEqual(read(kept), read(kept))
        seeded = make(seed=4)
        first = [read(seeded), read(seeded)]
        self.assertNotEqual(*first)
        again = make(seed=4)
        again.map(lambda text: tf.strings.length(text))  # looks at an element, and begins no pass
        self.assertEqual([read(again), read(again)], first)
        orders = []
        for _ in range(2):
            tf.random.set_seed(3)
            orders.append(read(make()))
        self.assertEqual(*orders)
        self.assertEqual(bytes(sorted(orders[0])), b"abcdefgh")

    def test_elements_and_batches(self):
        make = lambda: tf.data.Dataset.from_tensor_slices((["a b", "c", "d e f"], [0, 1, 2]))  # noqa: E731
        data = make().batch(2)
        self.assertEqual((len(data), [text.shape for text, _ in data]), (2, [(2,), (1,)]))
        self.assertEqual([y.numpy().tolist() for _, y in data], [[0, 1], [2]])
        self.assertEqual(len(make().batch(2, drop_remainder=True)), 1)
        self.assertEqual([y.numpy() for _, y in data.unbatch()], [0, 1, 2])
        self.assertEqual([y.numpy() for _, y in make().skip(1).take(1).repeat(2)], [1, 1])
        self.assertEqual([int(y) for _, y in make().filter(lambda text, y: y > 0).concatenate(make()).cache()], [1, 2, 0, 1, 2])
        shuffled = make().shuffle(2, seed=3)
        orders = {tuple(int(y) for _, y in shuffled) for _ in range(8)}
        self.assertGreater(len(orders), 1)
        self.assertTrue(all(sorted(order) == [0, 1, 2] for order in orders))
        self.assertEqual([int(y) for _, y in make().shard(2, 1)], [1])
        self.assertEqual([int(y) for _, y in make().take(-1)], [0, 1, 2])
        self.assertEqual([(int(number), element[0].numpy()) for number, element in make().take(1).enumerate(5)], [(5, b"a b")])
        self.assertEqual([text.numpy() for text, _ in make().take_while(lambda text, y: y < 1)], [b"a b"])
        self.assertEqual([text.shape for text, _ in data.rebatch(3)], [(3,)])
        self.assertEqual(int(make().reduce(0, lambda total, element: total + element[1])), 3)
        self.assertEqual((len(make().concatenate(make())), int(make().repeat().cardinality())), (6, -2))
        with self.assertRaisesRegex(ValueError, "as many rows"):
            tf.data.Dataset.from_tensor_slices((["a"], [1, 2]))
        names = tf.data.Dataset.from_tensor_slices({"word": np.array(["x", "y"]), "size": [1.0, 2.0]})
        self.assertEqual([element["word"].numpy() for element in names], [b"x", b"y"])

    def test_texts_become_numbers(self):
        data = tf.data.Dataset.from_tensor_slices((["good film", "bad film"], [1, 0])).batch(2)
        layer = keras.layers.TextVectorization(output_sequence_length=4)
        layer.adapt(data.map(lambda text, label: text))
        self.assertEqual(layer.get_vocabulary()[2], "film")
        numbers = data.map(lambda text, label: (layer(tf.expand_dims(text, -1)), label))
        self.assertIsInstance(numbers, tf.data.Dataset)
        x, y = next(iter(numbers.prefetch(2)))
        self.assertEqual((x.shape, y.numpy().tolist()), ((2, 4), [1, 0]))
        model = keras.Sequential([keras.layers.Embedding(8, 4), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(numbers, epochs=1, verbose=0)

    def test_folders_of_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bad", "good"):
                os.mkdir(os.path.join(folder, name))
                for number in range(3):
                    pathlib.Path(folder, name, f"{number}.txt").write_text(f"{name} {number}")
            make = keras.utils.text_dataset_from_directory
            data = make(folder, batch_size=4, shuffle=False, verbose=False)
            self.assertEqual((data.class_names, len(data)), (["bad", "good"], 2))
            texts, labels = next(iter(data))
            self.assertEqual(texts.numpy().tolist(), [b"bad 0", b"bad 1", b"bad 2", b"good 0"])
            orders = [[int(label) for _, label in make(folder, batch_size=None, seed=5, verbose=False)] for _ in range(2)]
            self.assertEqual(*orders)
            self.assertEqual(labels.numpy().tolist(), [0, 0, 0, 1])
            alone = make(folder, labels=None, batch_size=None, max_length=3, verbose=False)
            self.assertEqual({text.numpy() for text in alone}, {b"bad", b"goo"})
            training, validation = make(folder, validation_split=0.5, subset="both", seed=2, verbose=False)
            self.assertEqual(len(training.file_paths) + len(validation.file_paths), 6)
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                make(folder, validation_split=0.5, subset="training", seed=2)
            self.assertEqual(shown.getvalue(), "Found 6 files belonging to 2 classes.\nUsing 3 files for training.\n")


class ImageFiles(unittest.TestCase):
    def test_sizes_that_keep_proportions(self):
        image = mock.Mock()
        image.size = (40, 20)  # width and height, as Pillow has them
        pillow = mock.Mock()
        pillow.open.return_value.convert.return_value = image
        with mock.patch("lockstep.keras._data_utils._pillow", return_value=pillow):
            keras.utils.load_img("a.png", target_size=(10, 10), keep_aspect_ratio=True)
            self.assertEqual(image.resize.call_args.args[0::2], ((10, 10), (10, 0, 30, 20)))
            keras.utils.load_img("a.png", target_size=(5, 20), keep_aspect_ratio=True)
            self.assertEqual(image.resize.call_args.args[0::2], ((20, 5), (0, 5, 40, 15)))
            keras.utils.load_img("a.png", target_size=(5, 20))
            self.assertEqual(image.resize.call_args.args[0::2], ((20, 5), (0, 0, 40, 20)))


class OlderNames(unittest.TestCase):
    def test_pairs_of_words(self):
        s = keras.preprocessing.sequence
        np.testing.assert_allclose(s.make_sampling_table(6), [0.00315225, 0.00315225, 0.00547597, 0.00741556, 0.00912817, 0.01068435], rtol=1e-5)
        pairs, labels = s.skipgrams([1, 2, 3, 0, 4], 6, window_size=2, shuffle=False)
        self.assertEqual(pairs[:8], [[1, 2], [1, 3], [2, 1], [2, 3], [3, 1], [3, 2], [3, 4], [4, 3]])
        self.assertEqual(labels, [1] * 8 + [0] * 8)
        self.assertTrue(all(0 < number < 6 for pair in pairs for number in pair))
        self.assertEqual(*(s.skipgrams([1, 2, 3], 6, seed=3, categorical=True) for _ in range(2)))
        self.assertEqual(keras.preprocessing.text.hashing_trick("The cat the dog", 10, "md5"), [6, 3, 6, 6])

    def test_images_of_a_size(self):
        image = np.arange(5 * 9 * 3, dtype=np.float32).reshape(5, 9, 3)
        made = keras.preprocessing.image.smart_resize(image, (4, 3))
        self.assertEqual((type(made), made.shape), (np.ndarray, (4, 3, 3)))
        np.testing.assert_allclose(made, keras.ops.image.resize(image[:, 3:6], (4, 3)).numpy())

    def test_losses_of_probabilities(self):
        made = keras.backend.ctc_batch_cost(tf.constant([[1, 2], [0, 1]]), tf.nn.softmax(tf.reshape(tf.range(40.0), [2, 5, 4]) % 3.0),
                                            tf.constant([[5], [4]]), tf.constant([[2], [1]]))
        np.testing.assert_allclose(made.numpy(), [[3.810688], [3.6529012]], rtol=1e-5)

    def test_tokenizer(self):
        make = keras.preprocessing.text.Tokenizer
        tokenizer = make(num_words=4, oov_token="?")
        tokenizer.fit_on_texts(["The cat, the dog!", "a cat"])
        self.assertEqual(tokenizer.word_index, {"?": 1, "the": 2, "cat": 3, "dog": 4, "a": 5})
        self.assertEqual(tokenizer.texts_to_sequences(["the cat saw a dog"]), [[2, 3, 1, 1, 1]])
        self.assertEqual(tokenizer.sequences_to_texts([[2, 3, 5, 9]]), ["the cat ? ?"])
        self.assertEqual(tokenizer.texts_to_matrix(["the the cat"], mode="count").tolist(), [[0, 0, 2, 1]])
        self.assertEqual(tokenizer.texts_to_matrix(["the the cat the"], mode="freq").tolist(), [[0, 0, 0.75, 0.25]])
        np.testing.assert_allclose(tokenizer.texts_to_matrix(["cat"], mode="tfidf"), [[0, 0, 0, np.log(1 + 2 / 3)]])
        again = keras.preprocessing.text.tokenizer_from_json(tokenizer.to_json())
        self.assertEqual(again.texts_to_sequences(["a cat"]), tokenizer.texts_to_sequences(["a cat"]))
        self.assertEqual(again.get_config(), tokenizer.get_config())
        letters = make(char_level=True)
        letters.fit_on_texts(["aab"])
        self.assertEqual(letters.texts_to_sequences(["baz"]), [[2, 1]])
        self.assertEqual(keras.preprocessing.text.text_to_word_sequence("One, two-three."), ["one", "two", "three"])
        with self.assertRaisesRegex(ValueError, "no words yet"):
            make().texts_to_matrix(["a"])

    def test_windows_of_a_series(self):
        series = np.arange(10.0)[:, None]
        make = keras.preprocessing.sequence.TimeseriesGenerator
        windows = make(series, series[:, 0], length=3, batch_size=4)
        self.assertEqual((len(windows), [batch[0].shape for batch in (windows[0], windows[1])]), (2, [(4, 3, 1), (3, 3, 1)]))
        self.assertEqual((windows[0][0][0, :, 0].tolist(), windows[0][1].tolist()), ([0.0, 1.0, 2.0], [3.0, 4.0, 5.0, 6.0]))
        self.assertEqual(make(series, series[:, 0], length=4, sampling_rate=2, stride=3, reverse=True, batch_size=2)[0][0][:, :, 0].tolist(), [[2, 0], [5, 3]])
        model = keras.Sequential([keras.layers.Input((3, 1)), keras.layers.LSTM(2), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        self.assertEqual(len(model.fit(windows, epochs=2, verbose=0).history["loss"]), 2)
        with self.assertRaisesRegex(ValueError, "no window"):
            make(series, series, length=10)

    def test_functions_of_the_backend(self):
        k, x = keras.backend, np.arange(6, dtype=np.float32).reshape(2, 3)
        for made, wanted in ((k.sum(x, axis=1), x.sum(1)), (k.mean(k.square(x)), (x ** 2).mean()), (k.clip(x, 1, 3), x.clip(1, 3)),
                             (k.batch_dot(x, x, axes=1), (x * x).sum(1, keepdims=True)), (k.flatten(x), x.reshape(-1)),
                             (k.batch_dot(x[:, :, None], x[:, None, :]), x[:, :, None] * x[:, None, :]), (k.pow(x, 2), x ** 2),
                             (k.repeat(x, 2), np.stack([x, x], 1)), (k.repeat_elements(x, 2, 1), x.repeat(2, 1)), (k.reverse(x, 1), x[:, ::-1]),
                             (k.l2_normalize(x + 1, axis=1), (x + 1) / np.linalg.norm(x + 1, axis=1, keepdims=True)),
                             (k.switch(np.array([True, False]), x, -x), np.stack([x[0], -x[1]])), (k.gather(x, [1]), x[1:]),
                             (k.permute_dimensions(x, (1, 0)), x.T), (k.batch_flatten(x[:, :, None]), x), (k.constant(2, shape=(2,)), [2.0, 2.0]),
                             (k.one_hot(np.array([1]), 2), [[0, 1]]), (k.eval(k.variable([1.0])), [1.0]), (k.zeros((2,)), [0, 0])):
            np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-6)
        self.assertEqual((k.int_shape(keras.Input((3,))), k.ndim(x), k.dtype(k.ones((2,))), k.count_params(x)), ((None, 3), 2, "float32", 6))
        v = k.variable(np.ones(2))
        k.update_add(v, [1.0, 2.0])
        k.batch_set_value([(v, v * 2)])
        self.assertEqual(k.batch_get_value([v])[0].tolist(), [4.0, 6.0])
        self.assertEqual(k.random_normal((2, 3), seed=1).shape, (2, 3))

        def distance(pair):
            return k.sqrt(k.maximum(k.sum(k.square(pair[0] - pair[1]), axis=1, keepdims=True), k.epsilon()))
        a, b = keras.Input((3,)), keras.Input((3,))
        model = keras.Model([a, b], keras.layers.Lambda(distance)([a, b]))
        np.testing.assert_allclose(model.predict([x, x + 1], verbose=0), np.full((2, 1), 3 ** 0.5), rtol=1e-6)

    def test_arrays_become_images_in_their_dtype(self):
        pillow, x = mock.MagicMock(), np.array([[[0.0], [1000.0]]])
        with mock.patch("lockstep.keras._data_utils._pillow", lambda: pillow):
            def made(*args, **kwargs):
                keras.utils.array_to_img(*args, **kwargs)
                array, mode = pillow.fromarray.call_args.args
                return array.dtype.name, array.tolist(), mode
            self.assertEqual(made(x), ("uint8", [[0, 255]], "L"))
            self.assertEqual(made(x, scale=False), ("int32", [[0, 1000]], "I"))
            self.assertEqual(made(x + 2048.4, scale=False, dtype="float16"), ("int32", [[2048, 3048]], "I"))
            self.assertEqual(made(x - 300, scale=False, dtype="int32"), ("int32", [[-300, 700]], "I"))
            with self.assertRaisesRegex(TypeError, "dtype=uint8"):
                made(x, dtype="uint8")
            keras.backend.set_image_data_format("channels_first")
            try:
                self.assertEqual(made(x.transpose(2, 0, 1)), ("uint8", [[0, 255]], "L"))
                self.assertEqual(keras.utils.img_to_array(x[..., 0]).shape, (1, 1, 2))
            finally:
                keras.backend.set_image_data_format("channels_last")

    def test_older_functions_have_their_own_defaults(self):
        backend, x = keras.backend, np.array([[1.0, 5.0], [7.0, -4.0]], np.float32)
        self.assertEqual(backend.argmax(x).numpy().tolist(), [1, 0])
        self.assertEqual(backend.argmin(x).numpy().tolist(), [0, 1])
        self.assertEqual(backend.concatenate([x, x]).shape, (2, 4))
        self.assertEqual(backend.cumsum(x).numpy().tolist(), [[1.0, 5.0], [8.0, 1.0]])
        self.assertEqual(backend.cumprod(x).numpy().tolist(), [[1.0, 5.0], [7.0, -20.0]])
        self.assertEqual(backend.expand_dims(x).shape, (2, 2, 1))
        self.assertEqual(backend.relu(x, alpha=0.5, max_value=6.0).numpy().tolist(), [[1.0, 5.0], [6.0, -2.0]])
        self.assertEqual(backend.relu([1.0, -1.0]).numpy().tolist(), [1.0, 0.0])
        value = keras.Input((3,))
        self.assertEqual((backend.relu(value, 0.1, 6.0).shape, backend.concatenate([value, value]).shape), ((None, 3), (None, 6)))
        self.assertEqual(backend.clip(x, min_value=0.0, max_value=None).numpy().tolist(), [[1.0, 5.0], [7.0, 0.0]])

    def test_names_that_are_gone(self):
        with self.assertRaisesRegex(AttributeError, "image_dataset_from_directory"):
            keras.preprocessing.image.ImageDataGenerator


class BoundingBoxes(unittest.TestCase):
    def test_formats(self):
        boxes = keras.utils.bounding_boxes
        given = np.array([[[10.0, 20.0, 110.0, 140.0]]], np.float32)
        expected = {"xywh": [10, 20, 100, 120], "yxyx": [20, 10, 140, 110], "center_xywh": [60, 80, 100, 120],
                    "center_yxhw": [80, 60, 120, 100], "rel_xyxy": [0.05, 0.05, 0.55, 0.35], "rel_center_xywh": [0.3, 0.2, 0.5, 0.3]}
        for name, numbers in expected.items():
            made = boxes.convert_format(given, "xyxy", name, height=400, width=200)
            np.testing.assert_allclose(made.numpy()[0, 0], numbers, rtol=1e-5)
            np.testing.assert_allclose(boxes.convert_format(made, name, "xyxy", height=400, width=200), given, rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "height"):
            boxes.convert_format(given, "xyxy", "rel_xyxy")
        with self.assertRaises(ValueError):
            boxes.convert_format(given, "xyxy", "xyzw")

    def test_parts_and_overlaps(self):
        boxes = keras.utils.bounding_boxes
        clipped = boxes.clip_to_image_size({"boxes": np.array([[-5.0, 0.0, 5.0, 5.0], [20.0, 20.0, 30.0, 30.0]]), "labels": np.array([1, 2])},
                                           height=10, width=10)
        self.assertEqual(clipped["boxes"].numpy().tolist(), [[0.0, 0.0, 5.0, 5.0], [10.0, 10.0, 10.0, 10.0]])
        self.assertEqual(clipped["labels"].numpy().tolist(), [1, -1])
        one, two = np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[1.0, 0.0, 3.0, 2.0], [5.0, 5.0, 6.0, 6.0]])
        np.testing.assert_allclose(boxes.compute_iou(one, two, "xyxy"), [[1 / 3, 0.0]], rtol=1e-5)
        self.assertLess(float(boxes.compute_ciou(one, two[1:], "xyxy")[0]), 0.0)
        deltas = boxes.encode_box_to_deltas(one, two[:1], "xyxy", "xyxy", variance=[0.1, 0.1, 0.2, 0.2])
        np.testing.assert_allclose(boxes.decode_deltas_to_boxes(one, deltas, "xyxy", "xyxy", variance=[0.1, 0.1, 0.2, 0.2]), two[:1], atol=1e-5)

    def test_turned_boxes(self):
        settings = {name: np.zeros(1, np.float32) for name in ("translate_x", "translate_y", "shear_x", "shear_y")}
        made = keras.utils.bounding_boxes.affine_transform(np.array([[[2.0, 3.0, 4.0, 9.0]]], np.float32), angle=np.array([90.0], np.float32),
                                                           scale=np.ones(1, np.float32), height=11, width=11, **settings)
        np.testing.assert_allclose(made.numpy()[0, 0], [3.0, 6.0, 9.0, 8.0], atol=1e-4)


class FetchedFiles(unittest.TestCase):
    def test_files_are_fetched_once(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "source.txt"
            source.write_text("first")
            right = hashlib.sha256(b"first").hexdigest()
            path = keras.utils.get_file("kept.txt", source.as_uri(), cache_dir=folder, file_hash=right)
            self.assertEqual(path, os.path.join(folder, "datasets", "kept.txt"))
            source.write_text("second")
            self.assertEqual(pathlib.Path(keras.utils.get_file("kept.txt", source.as_uri(), cache_dir=folder)).read_text(), "first")
            fetched = keras.utils.get_file("kept.txt", source.as_uri(), cache_dir=folder, force_download=True)
            self.assertEqual(pathlib.Path(fetched).read_text(), "second")
            with self.assertRaisesRegex(ValueError, "corrupted"):
                keras.utils.get_file("kept.txt", source.as_uri(), cache_dir=folder, file_hash=right)
            with self.assertRaises(OSError):
                keras.utils.get_file("other.txt", (pathlib.Path(folder) / "none.txt").as_uri(), cache_dir=folder)
            self.assertEqual([name for name in os.listdir(os.path.join(folder, "datasets"))], ["kept.txt"])

    def test_folders_of_images(self):
        with tempfile.TemporaryDirectory() as folder:
            for number, name in enumerate(("cats", "dogs")):
                os.mkdir(os.path.join(folder, name))
                for image in range(3):
                    pixels = np.full((8, 4, 3), 100 * number + image, np.uint8)
                    pathlib.Path(folder, name, f"{image}.png").write_bytes(tf.io.encode_png(pixels))
            make = keras.utils.image_dataset_from_directory
            x, y = next(iter(make(folder, labels=[0, 0, 1, 1, 2, 2], image_size=(8, 8), shuffle=False, verbose=False)))
            self.assertEqual((x.shape, y.numpy().tolist()), ((6, 8, 8, 3), [0, 0, 1, 1, 2, 2]))
            self.assertEqual(x[:, 0, 0, 0].numpy().tolist(), [0.0, 1.0, 2.0, 100.0, 101.0, 102.0])
            self.assertEqual(len(make(folder, labels=[0] * 6, batch_size=4, verbose=False)), 2)
            x = next(iter(make(folder, labels=None, image_size=(8, 8), data_format="channels_first", verbose=False)))
            self.assertEqual(x.shape, (6, 3, 8, 8))
            padded, y = next(iter(make(folder, pad_to_aspect_ratio=True, image_size=(8, 8), shuffle=False, label_mode="binary", verbose=False)))
            self.assertEqual(padded[4, 0, :, 0].numpy().tolist(), [0.0, 0.0, 101.0, 101.0, 101.0, 101.0, 0.0, 0.0])
            self.assertEqual(y.numpy().tolist(), [[0.0]] * 3 + [[1.0]] * 3)
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                make(folder, validation_split=1 / 3, subset="validation", seed=2)
            self.assertEqual(shown.getvalue(), "Found 6 files belonging to 2 classes.\nUsing 2 files for validation.\n")
            parts = make(folder, labels=[0] * 6, validation_split=1 / 3, subset="both", seed=1, verbose=False)
            self.assertEqual([len(part.file_paths) for part in parts], [4, 2])
            self.assertFalse(set(parts[0].file_paths) & set(parts[1].file_paths))
            for wrong in ({"labels": [1]}, {"labels": None, "class_names": ["cats"]}, {"labels": [0] * 6, "subset": "training"}):
                with self.assertRaises(ValueError):
                    make(folder, verbose=False, **wrong)

    def test_archives_are_extracted(self):
        with tempfile.TemporaryDirectory() as folder:
            inside = pathlib.Path(folder) / "inside.txt"
            inside.write_text("text")
            with tarfile.open(os.path.join(folder, "all.tar.gz"), "w:gz") as archive:
                archive.add(inside, "inside.txt")
            origin = (pathlib.Path(folder) / "all.tar.gz").as_uri()
            path = keras.utils.get_file("all.tar.gz", origin, extract=True, cache_dir=folder)
            self.assertEqual(path, os.path.join(folder, "datasets", "all_extracted"))
            self.assertEqual((pathlib.Path(path) / "inside.txt").read_text(), "text")
            with self.assertRaises(ValueError):
                keras.utils.get_file("plain.txt", inside.as_uri(), extract=True, cache_dir=folder)

    def test_parts_of_what_fit_takes(self):
        self.assertEqual(keras.utils.unpack_x_y_sample_weight((1, 2)), (1, 2, None))
        self.assertEqual(keras.utils.pack_x_y_sample_weight(1, 2), (1, 2))
        self.assertEqual(keras.utils.pack_x_y_sample_weight([1]), ([1],))


if __name__ == "__main__":
    unittest.main()
