"""Names of TensorFlow's beside the ops: assertions, images, pipelines, records, tables. The numbers are TensorFlow's."""

import gzip
import os
import tempfile
import unittest

import numpy as np

import lockstep as tf

Data = tf.data.Dataset


def rows(dataset):
    return [tf.nest.map_structure(lambda tensor: tensor.numpy().tolist() if tensor.dtype != "string" or tensor.ndim else tensor.numpy(), element)
            for element in dataset]


class Numbers(unittest.TestCase):
    def test_integers_divide_into_floats(self):
        for numbers, wanted in ((tf.constant([3, 1]), tf.float64), (tf.constant([3, 1], tf.int64), tf.float64), (tf.constant([3, 1], tf.uint8), tf.float32)):
            for made in (numbers / 2, numbers / tf.constant(2, numbers.dtype), tf.divide(numbers, 2), tf.truediv(numbers, 2)):
                self.assertIs(made.dtype, wanted)
                self.assertEqual(made.numpy().tolist(), [1.5, 0.5])
        self.assertEqual((6 / tf.constant([4, 3])).numpy().tolist(), [1.5, 2.0])
        self.assertEqual((tf.Variable([3, 1]) / 2).numpy().tolist(), [1.5, 0.5])
        self.assertEqual((tf.constant([7, 8]) // 2).numpy().tolist(), [3, 4])
        self.assertEqual(tf.function(lambda x: x / 4)(tf.constant(3)).numpy(), 0.75)
        with self.assertRaises(ValueError):
            tf.constant(1) / tf.constant(2.0)

    def test_operators_on_bits(self):
        a, b = tf.constant([12, 10]), tf.constant([10, 6])
        for made, expected in ((a & b, [8, 2]), (a | b, [14, 14]), (a ^ b, [6, 12]), (~a, [-13, -11]), (1 & a, [0, 0]), (3 | a, [15, 11]),
                               (5 ^ a, [9, 15]), (tf.Variable([6]) & 3, [2]), (tf.function(lambda x: ~x ^ 1)(a), [-14, -12])):
            self.assertEqual((made.numpy().tolist(), made.dtype), (expected, tf.int32))
        self.assertEqual((tf.constant([250], tf.uint8) & 15).numpy().tolist(), [10])
        self.assertEqual((~tf.constant([250], tf.uint8)).numpy().tolist(), [5])
        self.assertEqual((~tf.constant([True]) | (tf.constant([True]) & True)).numpy().tolist(), [True])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "takes booleans"):
            tf.constant([1.0]) & 1.0

    def test_integers_divided_by_0_are_0(self):
        a = tf.constant([7, -7, 0])
        self.assertEqual(((a // 0).numpy().tolist(), (a % 0).numpy().tolist()), ([0, 0, 0], [0, 0, 0]))

    def test_remainders_that_are_truncated(self):
        for x, y, expected in ((7, -3, 1), (-7, 3, -1), (-2**31, 3, -2), (-7.5, 2.0, -1.5), (1e20, 3.0, np.fmod(np.float32(1e20), 3))):
            self.assertEqual(tf.truncatemod(x, y).numpy(), expected)
            self.assertEqual(tf.keras.ops.fmod(x, y).numpy(), expected)

    def test_arguments_have_tensorflows_names(self):
        x = tf.constant([1.0, -2.0])
        np.testing.assert_allclose(tf.atan2(y=1.0, x=2.0).numpy(), np.arctan2(1.0, 2.0), rtol=1e-6)
        np.testing.assert_allclose(tf.math.atan2(y=x, x=x + 1.0).numpy(), np.arctan2([1.0, -2.0], [2.0, -1.0]), rtol=1e-6)
        for beta in (1.0, 2.0, tf.constant(2.0)):
            for function in (tf.nn.silu, tf.nn.swish):
                np.testing.assert_allclose(function(features=x, beta=beta).numpy(), (x * tf.sigmoid(beta * x)).numpy(), rtol=1e-6)
        self.assertEqual(tf.nn.relu(features=x).numpy().tolist(), [1.0, 0.0])
        self.assertEqual(tf.stop_gradient(input=tf.identity(input=x)).numpy().tolist(), [1.0, -2.0])
        self.assertEqual(tf.nn.conv1d(tf.ones([1, 4, 1]), tf.ones([2, 1, 1]), stride=2, padding="VALID").shape, (1, 2, 1))
        self.assertEqual(tf.Variable(1.0).assign_add(delta=2.0).assign_sub(delta=0.5).numpy(), 2.5)
        self.assertEqual(tf.vectorized_map(lambda y: y * 2.0, x, True, False).numpy().tolist(), [2.0, -4.0])
        self.assertEqual(tf.foldl(lambda a, b: a - b, x, 1.0, 10, True).numpy(), 2.0)

    def test_spaces_between_integers_are_float64(self):
        for start, stop in ((0, 1), (0, 1.0), (tf.constant(0), tf.constant(1)), (np.float64(0.0), 1.0)):
            made = tf.linspace(start, stop, 5)
            self.assertEqual((made.dtype, made.numpy().tolist()), (tf.float64, [0.0, 0.25, 0.5, 0.75, 1.0]))
        self.assertIs(tf.linspace(0.0, 1, 3).dtype, tf.float32)
        self.assertEqual(tf.linspace([0.0, 1.0], [1.0, 3.0], 3, axis=-1).numpy().tolist(), [[0.0, 0.5, 1.0], [1.0, 2.0, 3.0]])

    def test_segments(self):
        x = tf.constant([[1.0, -2.0], [4.0, 5.0]])
        for function, expected in ((tf.math.unsorted_segment_sum, [[0, 0], [1, -2]]), (tf.math.unsorted_segment_mean, [[0, 0], [1, -2]]),
                                   (tf.math.unsorted_segment_max, [[-np.inf] * 2, [1, -2]]), (tf.math.unsorted_segment_prod, [[1, 1], [1, -2]])):
            made = np.maximum(function(x, [1, -1], 2).numpy(), -1e30)
            self.assertEqual(made.tolist(), np.maximum(np.array(expected, np.float32), np.float32(-1e30)).tolist(), "negative ids are left out")
            self.assertEqual(function(tf.ones([2, 3, 2]), [[0, 1, 1], [1, 1, 0]], 2).shape, (2, 2))
        for function, expected in ((tf.math.segment_sum, [[5, 3]]), (tf.math.segment_mean, [[2.5, 1.5]]), (tf.math.segment_max, [[4, 5]])):
            self.assertEqual(function(x, [0, 0]).numpy().tolist(), expected)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"unsorted_{function.__name__} takes others"):
                function(x, [1, 0])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "is 2, but there are 2 rows"):
            tf.math.unsorted_segment_sum(x, [0, 2], 2)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"in \[0, 6\)"):
            tf.unravel_index([6], [2, 3])

    def test_substrings(self):
        self.assertEqual([tf.strings.substr("hello", *part) for part in ((1, 2), (-3, 2), (5, 1), (1, -1))], ["el", "ll", "", "ello"])
        self.assertEqual(tf.strings.substr(["hello", "world"], [1, 2], [2, 3]).numpy().tolist(), [b"el", b"rld"])
        self.assertEqual(tf.strings.substr("h\u00e9llo", 1, 1, "UTF8_CHAR"), "\u00e9")
        for pos in (6, -6):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"pos {pos} is outside"):
                tf.strings.substr("hello", pos, 1)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "encode_base64"):
            tf.strings.to_hash_bucket_fast([b"\xff"], 10)

    def test_gradients_that_pass_through(self):
        x = tf.Variable([1e8, 0.4])
        with tf.GradientTape() as tape:
            y = tf.grad_pass_through(lambda z: tf.round(z * 1e-9))(x)
        self.assertEqual((y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()), ([0.0, 0.0], [1.0, 1.0]))

    def test_jacobians_of_what_is_not_connected_are_zeros(self):
        x, y = tf.constant([1.0, 2.0]), tf.constant([3.0])
        for unconnected in ("none", tf.UnconnectedGradients.ZERO):
            with tf.GradientTape() as tape:
                tape.watch([x, y])
                z = x * x
            self.assertEqual(tape.jacobian(z, y, unconnected).numpy().tolist(), [[0.0], [0.0]])

    def test_cases_that_exclude_each_other(self):
        def made(a, b):
            return tf.case([(a, lambda: tf.constant(1)), (b, lambda: tf.constant(2))], lambda: tf.constant(3), exclusive=True)
        for function in (made, tf.function(made)):
            self.assertEqual([int(function(tf.constant(a), tf.constant(b))) for a, b in ((True, False), (False, True), (False, False))], [1, 2, 3])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "more than one predicate is true"):
                function(tf.constant(True), tf.constant(True)).numpy()

    def test_what_is_no_tensor_is_refused(self):
        for wrong in (1j, [1j, 2.0], None, [[1], [2, 3]]):
            for kind in (ValueError, TypeError):
                with self.assertRaises(kind):
                    tf.constant(wrong)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "index 3"):
            tf.constant([1, 2])[3]
        for kind, wider in ((np.int8, "int32"), (np.int16, "int32"), (np.uint16, "int32"), (np.uint32, "int64")):
            with self.assertRaisesRegex(TypeError, f"cast to {wider}"):
                tf.constant(np.zeros(3, kind))

    def test_the_first_that_is_true(self):
        self.assertEqual(int(tf.argmax(tf.constant([False, True, True]))), 1)
        self.assertEqual(int(tf.argmin([True, False])), 1)
        names = np.array(["a", "b"])
        self.assertEqual(int(tf.argmax(tf.strings.split(tf.constant("x/b/1.jpg"), "/")[-2] == names)), 1)

    def test_results_have_names(self):
        found = tf.math.top_k(tf.constant([1.0, 3.0, 2.0]), k=2)
        self.assertEqual((found.values.numpy().tolist(), found.indices.numpy().tolist()), ([3.0, 2.0], [1, 2]))
        found = tf.unique(tf.constant([5, 3, 5]))
        self.assertEqual((found.y.numpy().tolist(), found.idx.numpy().tolist()), ([5, 3], [0, 1, 0]))
        self.assertEqual(tf.unique_with_counts(tf.constant([5, 3, 5])).count.numpy().tolist(), [2, 1])

    def test_text_of_tensors_in_texts(self):
        self.assertEqual(f"{tf.constant(1.5)} {tf.constant([1, 2])}", "1.5 [1 2]")
        self.assertEqual(repr(tf.ones([1, 2])), "<tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[1., 1.]], dtype=float32)>")
        self.assertEqual(repr(tf.Variable([[1], [2]])), "<tf.Variable 'Variable:0' shape=(2, 1) dtype=int32, numpy=\narray([[1],\n       [2]], dtype=int32)>")

    def test_places_of_variables(self):
        v = tf.Variable([1.0, 2.0, 3.0])
        self.assertEqual(v.scatter_nd_update([[0], [2]], [9.0, 8.0]).numpy().tolist(), [9.0, 2.0, 8.0])
        self.assertEqual(v.scatter_nd_add([[1]], [5.0]).numpy().tolist(), [9.0, 7.0, 8.0])
        self.assertEqual(v.scatter_sub(tf.IndexedSlices([1.0], [0])).numpy().tolist(), [8.0, 7.0, 8.0])

    def test_bits_and_confusions(self):
        self.assertEqual(tf.bitcast(tf.constant(1.0), tf.int32).numpy(), 1065353216)
        self.assertEqual(tf.bitcast(tf.constant([1, 256], tf.int32), tf.uint8).numpy().tolist(), [[1, 0, 0, 0], [0, 1, 0, 0]])
        self.assertEqual(tf.bitcast(tf.constant([[1, 0, 0, 0]], tf.uint8), tf.int32).numpy().tolist(), [1])
        self.assertEqual(tf.math.confusion_matrix([0, 1, 2, 1], [0, 2, 2, 1]).numpy().tolist(), [[1, 0, 0], [0, 1, 1], [0, 0, 1]])
        self.assertEqual(tf.math.confusion_matrix([0, 1], [1, 1], num_classes=2, weights=[0.5, 2.0], dtype=tf.float32).numpy().tolist(),
                         [[0.0, 0.5], [0.0, 2.0]])
        self.assertEqual(tf.broadcast_static_shape((2, 1), (3,)), (2, 3))

    def test_counts_of_rows_up_to_a_length(self):
        x = tf.constant([[1, 4, 1], [0, 2, 9]])
        self.assertEqual(tf.math.bincount(x, maxlength=5).numpy().tolist(), [1, 2, 1, 0, 1])
        self.assertEqual(tf.math.bincount(x, minlength=12, maxlength=20).shape, (12,))
        self.assertEqual(tf.math.bincount(x, maxlength=5, axis=-1).numpy().tolist(), [[0, 2, 0, 0, 1], [1, 0, 1, 0, 0]])
        self.assertEqual(tf.math.bincount(x, maxlength=3, axis=-1, binary_output=True, dtype=tf.int64).numpy().tolist(), [[0, 1, 0], [1, 0, 1]])
        sums = tf.math.bincount(tf.cast(x, tf.uint8), weights=[[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]], maxlength=4, axis=-1)
        self.assertEqual((sums.dtype, sums.numpy().tolist()), (tf.float32, [[0.0, 2.5, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0]]))
        counted = tf.function(lambda x: tf.math.bincount(x, minlength=4, maxlength=4, axis=-1))
        self.assertEqual(counted(x).numpy().tolist(), [[0, 2, 0, 0], [1, 0, 1, 0]])
        with self.assertRaisesRegex(ValueError, "axis is None, 0 or -1"):
            tf.math.bincount(x, axis=1)

    def test_diagonals(self):
        self.assertEqual(tf.linalg.diag([1, 2], k=1, padding_value=7).numpy().tolist(), [[7, 1, 7], [7, 7, 2], [7, 7, 7]])
        self.assertEqual(tf.linalg.diag([1, 2], k=-1, num_rows=3, num_cols=4).numpy().tolist(), [[0, 0, 0, 0], [1, 0, 0, 0], [0, 2, 0, 0]])
        self.assertEqual(tf.linalg.diag([1, 2], num_cols=3, padding_value=5).numpy().tolist(), [[1, 5, 5], [5, 2, 5]])
        x = tf.reshape(tf.range(6.0), [2, 3])
        self.assertEqual(tf.linalg.set_diag(x, [8.0, 9.0]).numpy().tolist(), [[8.0, 1.0, 2.0], [3.0, 9.0, 5.0]])
        self.assertEqual(tf.linalg.set_diag(x, [8.0, 9.0], k=1).numpy().tolist(), [[0.0, 8.0, 2.0], [3.0, 4.0, 9.0]])
        self.assertEqual(tf.linalg.set_diag([[np.inf]], [1.0]).numpy().tolist(), [[1.0]])
        for wrong in (lambda: tf.linalg.diag([1, 2], num_rows=1), lambda: tf.linalg.set_diag(x, [8.0, 9.0], k=-1),
                      lambda: tf.linalg.diag([1, 2], num_rows=5, num_cols=5)):
            with self.assertRaisesRegex(ValueError, "is not 2 long"):
                wrong()

    def test_losses_along_an_axis(self):
        draw = np.random.default_rng(0)
        logits, labels = (draw.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(2))
        for axis in (0, 1, -2):
            turned = [np.moveaxis(part, axis, -1) for part in (labels, logits)]
            np.testing.assert_allclose(tf.nn.softmax_cross_entropy_with_logits(labels, logits, axis=axis).numpy(),
                                       tf.nn.softmax_cross_entropy_with_logits(*turned).numpy(), rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "a label for each logit"):
            tf.nn.weighted_cross_entropy_with_logits(labels[:, :, :1], logits, 2.0)

    def test_rows_channels_and_what_is_dropped(self):
        table = tf.constant([[3.0, 4.0], [0.3, 0.4]])
        np.testing.assert_allclose(tf.nn.embedding_lookup(table, [[1], [0]], max_norm=1.0).numpy(), [[[0.3, 0.4]], [[0.6, 0.8]]], rtol=1e-6)
        x = tf.zeros([1, 2, 2, 1])
        self.assertEqual(tf.nn.bias_add(x, [1.0, 2.0], data_format="NCHW").numpy().ravel().tolist(), [1.0, 1.0, 2.0, 2.0])
        dropped = tf.nn.dropout(tf.ones([64, 8]), 0.5, noise_shape=[64, 1], seed=3).numpy()
        self.assertEqual({tuple(row) for row in dropped.tolist()}, {(0.0,) * 8, (2.0,) * 8})
        np.testing.assert_array_equal(dropped, tf.nn.dropout(tf.ones([64, 8]), 0.5, noise_shape=[64, 1], seed=3).numpy())

    def test_scans_that_begin_with_their_first(self):
        x = tf.constant([1.0, 2.0, 3.0])
        add = lambda total, value: total + value  # noqa: E731
        self.assertEqual(tf.scan(add, x).numpy().tolist(), [1.0, 3.0, 6.0])
        self.assertEqual(tf.scan(add, x, reverse=True).numpy().tolist(), [6.0, 5.0, 3.0])
        self.assertEqual(float(tf.foldl(add, x)), 6.0)
        both = tf.scan(lambda a, e: (a[0] + e[0], a[1] * e[1]), (x, x))
        self.assertEqual([part.numpy().tolist() for part in both], [[1.0, 3.0, 6.0], [1.0, 2.0, 6.0]])

    def test_cases(self):
        functions = [lambda: tf.constant(1), lambda: tf.constant(2)]
        self.assertEqual([int(tf.switch_case(tf.constant(number), functions)) for number in (0, 1, 7)], [1, 2, 2])
        self.assertEqual(int(tf.switch_case(tf.constant(5), {5: functions[0]}, default=functions[1])), 1)
        compiled = tf.function(lambda x: tf.case([(x < 0, lambda: -x), (x > 10.0, lambda: tf.constant(10.0))], default=lambda: x))
        self.assertEqual([float(compiled(tf.constant(x))) for x in (-2.0, 12.0, 3.0)], [2.0, 10.0, 3.0])

    def test_names_say_what_there_is_instead(self):
        for where, name, words in ((tf, "int16", "float16, bfloat16"), (tf.nn, "sofmax", "did you mean 'softmax'"), (tf, "complex64", "no complex"),
                                   (tf.compat.v1, "Session", "computed at once"), (tf.signal, "stft", "no complex.*keras.ops"), (tf.data, "Datasett", "did you mean 'Dataset'"),
                                   (tf.math, "reduce_summ", "did you mean 'reduce_sum'"), (tf.summary, "trace_on", "explain"),
                                   (tf.io.gfile, "globb", "tensorflow.io.gfile.*did you mean 'glob'"), (tf.nn, "ctc_greedy_decoder", "ctc_decode"),
                                   (tf.keras.layers, "Densee", "'keras.layers'.*did you mean 'Dense'"), (tf, "SparseTensor", "no sparse")):
            with self.assertRaisesRegex(AttributeError, words):
                getattr(where, name)

    def test_gradients_of_products_with_zeros(self):
        for numbers in ([2.0, 3.0, 4.0], [2.0, 0.0, 3.0, 5.0], [0.0, 2.0, 0.0, 3.0], [0.0, 0.0]):
            for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
                x = tf.constant(numbers, tf.float64)
                with tf.GradientTape(persistent=True) as tape:
                    tape.watch(x)
                    made, whole = tf.math.cumprod(x, 0, exclusive, reverse), tf.reduce_prod(x)
                    total = tf.reduce_sum(made * tf.range(1.0, len(numbers) + 1.0, dtype=tf.float64))
                weights = np.arange(1.0, len(numbers) + 1.0)

                def value(array):  # what cumprod() makes, summed
                    line = array[::-1] if reverse else array
                    line = np.concatenate([[1.0], np.cumprod(line)[:-1]]) if exclusive else np.cumprod(line)
                    return np.sum((line[::-1] if reverse else line) * weights)
                for place in range(len(numbers)):  # products are linear in each of their factors
                    ones, zeros = np.array(numbers), np.array(numbers)
                    ones[place], zeros[place] = 1.0, 0.0
                    self.assertAlmostEqual(tape.gradient(total, x).numpy()[place], value(ones) - value(zeros))
                    self.assertAlmostEqual(tape.gradient(whole, x).numpy()[place], np.prod(ones))


class Assertions(unittest.TestCase):
    def test_of_values(self):
        d = tf.debugging
        x = tf.constant([1.0, 2.0])
        for holds, fails in ((lambda: d.assert_positive(x), lambda: d.assert_positive(x - 1)),
                             (lambda: d.assert_non_negative(x - 1), lambda: d.assert_non_negative(x - 2)),
                             (lambda: d.assert_negative(-x), lambda: d.assert_negative(x)),
                             (lambda: d.assert_non_positive(-x), lambda: d.assert_non_positive(x)),
                             (lambda: tf.assert_equal(x, [1.0, 2.0]), lambda: tf.assert_equal(x, [1.0, 3.0])),
                             (lambda: d.assert_none_equal(x, [2.0, 1.0]), lambda: d.assert_none_equal(x, [1.0, 3.0])),
                             (lambda: d.assert_less(x, 3.0), lambda: d.assert_less(x, 2.0)),
                             (lambda: d.assert_less_equal(x, 2.0), lambda: d.assert_less_equal(x, 1.0)),
                             (lambda: d.assert_greater(x, 0.0), lambda: d.assert_greater(x, 1.0)),
                             (lambda: d.assert_greater_equal(x, 1.0), lambda: d.assert_greater_equal(x, 2.0)),
                             (lambda: d.assert_near(x, x + 1e-7), lambda: d.assert_near(x, x + 1e-3)),
                             (lambda: tf.Assert(True, [x]), lambda: tf.Assert(x[0] > 1, [x]))):
            holds()
            with self.assertRaises(tf.errors.InvalidArgumentError):
                fails()
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"too large x < y does not hold of \[1., 2.\], 1\."):
            d.assert_less(x, 1.0, message="too large")

    def test_in_compiled_functions(self):
        checked = tf.function(lambda x: (tf.debugging.assert_positive(x), x * 2)[1])
        self.assertEqual(float(checked(tf.constant(1.0))), 2.0)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "x > 0"):
            checked(tf.constant(-1.0))

    def test_of_shapes_and_dtypes(self):
        d, x = tf.debugging, tf.ones([2, 3])
        d.assert_rank(x, 2), d.assert_rank_at_least(x, 1), d.assert_rank_in(x, (2, 3)), d.assert_scalar(tf.constant(1))
        d.assert_shapes([(x, ("n", 3)), (tf.ones([2]), ("n",)), (x, (None, "m"))])
        d.assert_type(x, tf.float32), d.assert_integer(tf.constant(1))
        self.assertIs(d.assert_same_float_dtype([x]), tf.float32)
        self.assertTrue(d.is_numeric_tensor(x))
        for kind, wrong in ((ValueError, lambda: d.assert_rank(x, 1)), (ValueError, lambda: d.assert_rank_at_least(x, 3)),
                            (ValueError, lambda: d.assert_rank_in(x, (1, 3))), (ValueError, lambda: d.assert_scalar(x)),
                            (ValueError, lambda: d.assert_shapes([(x, ("n", 3)), (tf.ones([3]), ("n",))])),
                            (ValueError, lambda: d.assert_shapes([(x, (2,))])), (TypeError, lambda: d.assert_type(x, tf.int32)),
                            (TypeError, lambda: d.assert_integer(x)), (ValueError, lambda: d.assert_same_float_dtype([x, tf.constant(1)]))):
            with self.assertRaises(kind):
                wrong()


class Images(unittest.TestCase):
    def setUp(self):
        draw = np.random.default_rng(0)
        self.floats = tf.constant(draw.uniform(size=(5, 7, 3)).astype(np.float32))
        self.bytes = tf.constant(draw.integers(0, 256, (5, 7, 3)).astype(np.uint8))
        self.batch = tf.constant(draw.uniform(size=(2, 12, 13, 3)).astype(np.float32))

    def expect(self, made, shape, total):
        """Of the shape, with elements whose sum is that of TensorFlow's."""
        self.assertEqual(made.shape, shape)
        self.assertAlmostEqual(float(made.numpy().astype(np.float64).sum()), total, delta=0.011 + 1e-6 * abs(total))

    def test_colours(self):
        i = tf.image
        for change, of_floats, of_bytes in (
                (lambda x: i.adjust_brightness(x, 0.2), 78.53, 18214), (lambda x: i.adjust_contrast(x, 1.5), 57.53, 13576),
                (lambda x: i.adjust_saturation(x, 0.5), 71.26, 16418), (lambda x: i.adjust_hue(x, 0.1), 55.5, 13299),
                (lambda x: i.adjust_gamma(x, 2.0, 0.5), 20.55, 4523)):
            self.expect(change(self.floats), (5, 7, 3), of_floats)
            self.expect(change(self.bytes), (5, 7, 3), of_bytes)
        self.expect(i.rgb_to_grayscale(self.floats), (5, 7, 1), 19.77)
        self.expect(i.rgb_to_grayscale(self.bytes), (5, 7, 1), 4590)
        self.expect(i.convert_image_dtype(self.bytes, tf.float32), (5, 7, 3), 52.48)
        self.expect(i.convert_image_dtype(self.floats, tf.uint8), (5, 7, 3), 14646)
        self.expect(i.rgb_to_hsv(self.floats), (5, 7, 3), 67.78)
        self.expect(i.hsv_to_rgb(i.rgb_to_hsv(self.floats)), (5, 7, 3), 57.53)
        self.assertIs(i.adjust_hue(self.bytes, 0.1).dtype, tf.uint8)
        for given, dtype, made in ((tf.constant([0, 1, 255], tf.uint8), tf.int32, [0, 1 << 23, 255 << 23]),
                                   (tf.constant([0, 1 << 23, (1 << 31) - 1]), tf.uint8, [0, 1, 255]),
                                   (tf.constant([0, (1 << 31) - 1]), tf.float32, [0.0, 1.0]), (tf.constant([0.0, 0.5]), tf.int32, [0, 1 << 30]),
                                   (tf.constant([-1.0, 0.5, 2.0]), tf.uint8, [0, 127, 255]), (tf.constant([-1.0, 2.0]), tf.float64, [-1.0, 2.0])):
            self.assertEqual(i.convert_image_dtype(given, dtype, saturate=True).numpy().tolist(), made)

    def test_sizes_and_places(self):
        i = tf.image
        array = self.floats.numpy()
        for quarters in range(5):
            np.testing.assert_array_equal(i.rot90(self.floats, quarters).numpy(), np.rot90(array, quarters))
        np.testing.assert_array_equal(i.transpose(self.floats).numpy(), array.transpose(1, 0, 2))
        np.testing.assert_array_equal(i.crop_to_bounding_box(self.floats, 1, 2, 3, 4).numpy(), array[1:4, 2:6])
        np.testing.assert_array_equal(i.pad_to_bounding_box(self.floats, 1, 2, 10, 12).numpy(), np.pad(array, ((1, 4), (2, 3), (0, 0))))
        self.expect(i.resize_with_crop_or_pad(self.floats, 4, 9), (4, 9, 3), 43.65)
        self.expect(i.resize_with_crop_or_pad(self.bytes, 8, 3), (8, 3, 3), 5376)
        self.expect(i.resize_with_pad(self.floats, 8, 8), (8, 8, 3), 65.58)
        self.expect(i.resize_with_pad(self.floats, 3, 9), (3, 9, 3), 18.71)
        self.expect(i.central_crop(self.floats, 0.5), (3, 5, 3), 25.3)
        self.expect(i.central_crop(self.batch, 1.0), self.batch.shape, float(tf.reduce_sum(self.batch)))
        self.expect(i.resize(self.floats, [10, 10], preserve_aspect_ratio=True), (7, 10, 3), 114.03)
        parts = [[0.0, 0.0, 1.0, 1.0], [0.2, 0.3, 0.7, 1.2], [0.9, 0.1, 0.1, 0.6]]
        self.expect(i.crop_and_resize(self.floats[tf.newaxis], parts, [0, 0, 0], [3, 4]), (3, 3, 4, 3), 52.71)
        self.expect(i.crop_and_resize(self.floats[tf.newaxis], parts[1:2], [0], [3, 4], method="nearest", extrapolation_value=2.0), (1, 3, 4, 3), 33.77)
        # What is half way between two pixels is the later one's.
        self.assertEqual(i.crop_and_resize(tf.reshape(tf.range(6.0), [1, 1, 6, 1]), [[0.0, 0.0, 0.0, 1.0], [0.0, 0.1, 0.0, 0.9]], [0, 0], [1, 1],
                                           method="nearest").numpy().ravel().tolist(), [3.0, 3.0])
        # Margins of 0.71 pixels begin at 0, and the wider one is behind.
        self.assertEqual(i.resize_with_pad(tf.ones([7, 6, 1]), 10, 10).numpy()[0, :, 0].tolist(), [1.0] * 8 + [0.0] * 2)
        self.assertEqual(i.extract_patches(tf.reshape(tf.range(12.0), [1, 3, 4, 1]), [1, 1, 2, 1], [1, 1, 1, 1], [1, 1, 2, 1], "VALID").numpy()[0, 0].tolist(),
                         [[0.0, 2.0], [1.0, 3.0]])
        self.expect(i.extract_patches(self.batch, [1, 3, 3, 1], [1, 5, 5, 1], [1, 1, 1, 1], "VALID"), (2, 2, 3, 27), 167.88)

    def test_resized_images_are_float32(self):
        for dtype in (tf.float16, tf.float64, tf.bfloat16, tf.int32, tf.uint8):
            image = tf.cast(tf.reshape(tf.range(48), [4, 4, 3]), dtype)
            for size in ([2, 2], [4, 4]):
                self.assertIs(tf.image.resize(image, size, "nearest").dtype, dtype)
                for method in ("bilinear", "bicubic", "area"):
                    self.assertIs(tf.image.resize(image, size, method).dtype, tf.float32)
            self.assertEqual(tf.image.resize(image, [4, 4]).numpy().tolist(), tf.cast(image, tf.float32).numpy().tolist())

    def test_measures(self):
        i = tf.image
        self.expect(i.psnr(self.floats, i.flip_left_right(self.floats), 1.0), (), 9.46)
        self.expect(i.psnr(self.bytes, i.flip_left_right(self.bytes), 255), (), 8.14)
        self.expect(i.ssim(self.batch, self.batch[::-1], 1.0), (2,), -0.09)
        self.expect(i.total_variation(self.floats), (), 60.85)
        down, across = i.image_gradients(self.batch)
        self.expect(down, self.batch.shape, -0.88)
        self.expect(across, self.batch.shape, -4.11)

    def test_at_random(self):
        i = tf.image
        tf.random.set_seed(1)
        flipped = [i.random_flip_left_right(self.batch).numpy() for _ in range(12)]
        for place, image in enumerate(self.batch.numpy()):
            kinds = {(one[place] == image).all() or 2 * (one[place] == image[:, ::-1]).all() for one in flipped}
            self.assertEqual(kinds, {True, 2})  # each as it was or mirrored, and one does not follow the other
        for made, low, high in ((i.random_brightness(self.floats, 0.3) - self.floats, -0.3, 0.3),):
            self.assertTrue(low <= float(tf.reduce_min(made)) and float(tf.reduce_max(made)) <= high)
            np.testing.assert_allclose(made.numpy(), made.numpy().flat[0], atol=1e-6)
        for name, limits in (("contrast", (0.5, 0.9)), ("saturation", (0.5, 0.9)), ("hue", (0.3,)), ("brightness", (0.3,))):
            seeded = [getattr(i, f"stateless_random_{name}")(self.floats, *limits, (1, 2)).numpy() for _ in range(2)]
            np.testing.assert_array_equal(*seeded)
            self.assertFalse(np.array_equal(seeded[0], getattr(i, f"random_{name}")(self.floats, *limits).numpy()))
            with self.assertRaisesRegex(ValueError, "empty"):
                getattr(i, f"random_{name}")(self.floats, *((0.9, 0.5) if len(limits) == 2 else (-1.0,)))
        np.testing.assert_array_equal(i.stateless_random_crop(self.floats, [2, 3, 3], (1, 2)).numpy(), i.stateless_random_crop(self.floats, [2, 3, 3], (1, 2)).numpy())
        places = {float(i.random_crop(tf.reshape(tf.range(4.0), [4, 1]), [2, 1])[0, 0]) for _ in range(30)}
        self.assertEqual(places, {0.0, 1.0, 2.0})
        with self.assertRaisesRegex(ValueError, "not inside"):
            i.random_crop(self.floats, [6, 3, 3])
        compiled = tf.function(lambda x: i.random_crop(i.random_brightness(i.random_flip_up_down(x), 0.1), [3, 3, 3]))
        self.assertFalse(np.array_equal(compiled(self.floats).numpy(), compiled(self.floats).numpy()))
        mapped = Data.from_tensor_slices(self.batch).map(lambda x: i.random_crop(i.random_flip_left_right(x), [8, 8, 3])).batch(2)
        self.assertEqual(next(iter(mapped)).shape, (2, 8, 8, 3))

    def test_boxes(self):
        i = tf.image
        boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [0.0, 2.0, 1.0, 3.0], [0.0, 0.0, 1.0, 0.4]]
        self.assertEqual(i.non_max_suppression(boxes, [0.9, 0.75, 0.6, 0.95], 3, 0.3).numpy().tolist(), [3, 1, 2])
        self.assertEqual(i.non_max_suppression(boxes, [0.9, 0.75, 0.6, 0.95], 1).numpy().tolist(), [3])
        for wrong in (lambda: i.crop_to_bounding_box(self.floats, 3, 0, 3, 3), lambda: i.pad_to_bounding_box(self.floats, 0, 0, 4, 9),
                      lambda: i.central_crop(self.floats, 0.0), lambda: i.rot90(tf.ones([2, 2]))):
            with self.assertRaises(ValueError):
                wrong()


class Pipelines(unittest.TestCase):
    def test_groups_buckets_and_windows(self):
        self.assertEqual(rows(Data.range(7).group_by_window(lambda x: x % 2, lambda key, group: group.batch(2), 2)), [[0, 2], [1, 3], [4, 6], [5]])
        self.assertEqual(rows(Data.range(4).group_by_window(lambda x: x % 2, lambda key, group: group.map(lambda x: x + 10 * key),
                                                            window_size_func=lambda key: 1 + key)), [0, 2, 11, 13])

        def sequences():
            for length in (1, 4, 2, 5, 1):
                yield np.full(length, length, np.int32)
        data = Data.from_generator(sequences, output_signature=tf.TensorSpec([None], tf.int32))
        self.assertEqual(rows(data.bucket_by_sequence_length(lambda x: x.shape[0], [3], [2, 2])),
                         [[[1, 0], [2, 2]], [[4, 4, 4, 4, 0], [5, 5, 5, 5, 5]], [[1]]])
        windows = lambda *args, **kwargs: [rows(window) for window in Data.range(5).window(*args, **kwargs)]  # noqa: E731
        self.assertEqual(windows(2), [[0, 1], [2, 3], [4]])
        self.assertEqual(windows(2, drop_remainder=True), [[0, 1], [2, 3]])
        self.assertEqual(windows(2, shift=1), [[0, 1], [1, 2], [2, 3], [3, 4], [4]])
        self.assertEqual(windows(2, stride=2), [[0, 2], [2, 4], [4]])
        self.assertEqual(windows(1, shift=3), [[0], [3]])
        self.assertEqual([rows(window) for window in Data.range(9).window(2).take(2)], [[0, 1], [2, 3]])
        sums = Data.range(5).window(2).map(lambda window: window.reduce(np.int64(0), lambda total, x: total + x))
        self.assertEqual(rows(sums), [1, 5, 4])

    def test_older_names(self):
        e = tf.data.experimental
        self.assertEqual(rows(Data.range(4).apply(e.map_and_batch(lambda x: x * 2, 2))), [[0, 2], [4, 6]])
        self.assertEqual(rows(Data.range(4).batch(2).apply(e.unbatch()).apply(e.take_while(lambda x: x < 3)).apply(e.enumerate_dataset(5))),
                         [(5, 0), (6, 1), (7, 2)])
        self.assertEqual(sorted(rows(Data.range(3).apply(e.shuffle_and_repeat(3, 2, 1)))), [0, 0, 1, 1, 2, 2])
        self.assertEqual(rows(Data.range(2).apply(e.parallel_interleave(lambda x: Data.range(2), 1)).apply(e.prefetch_to_device("/cpu:0"))), [0, 1, 0, 1])
        self.assertEqual(int(e.get_single_element(Data.range(1))), 0)
        self.assertTrue(bool(e.get_next_as_optional(iter(Data.range(1))).has_value()))
        self.assertEqual(e.get_structure(Data.range(1)), Data.range(1).element_spec)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r")
            with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions()) as writer:
                writer.write(b"a")
            with self.assertRaisesRegex(NotImplementedError, "not compressed"):
                tf.io.TFRecordWriter(path, "GZIP")

    def test_older_choices_go_on_behind_the_end_of_a_dataset(self):
        parts = [tf.data.Dataset.from_tensor_slices([1]), tf.data.Dataset.from_tensor_slices([2, 3])]
        choice = tf.data.Dataset.from_tensor_slices(np.array([0, 0, 1, 1], np.int64))
        self.assertEqual([int(x) for x in tf.data.experimental.choose_from_datasets(parts, choice)], [1, 2, 3])
        self.assertEqual([int(x) for x in tf.data.Dataset.choose_from_datasets(parts, choice)], [1])

    def test_counts_and_kinds(self):
        self.assertEqual(rows(Data.from_tensor_slices([3, 1, 3]).unique()), [3, 1])
        counted = Data.counter(start=2, step=3)
        self.assertEqual((rows(counted.take(3)), int(counted.cardinality())), ([2, 5, 8], tf.data.INFINITE_CARDINALITY))
        even = Data.range(6).filter(lambda x: x % 2 == 0)
        said = even.apply(tf.data.experimental.assert_cardinality(3))
        self.assertEqual((len(said), len(said.map(lambda x: x).batch(2).prefetch(1)), rows(said)), (3, 2, [0, 2, 4]))
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "has 3 elements, 4 were said"):
            rows(even.apply(tf.data.experimental.assert_cardinality(4)))
        iterator = iter(Data.range(1))
        self.assertEqual(int(iterator.get_next()), 0)
        with self.assertRaises(tf.errors.OutOfRangeError):
            iterator.get_next()
        iterator = iter(Data.range(1))
        optional = iterator.get_next_as_optional()
        self.assertTrue(optional.has_value())
        self.assertEqual(int(optional.get_value()), 0)
        self.assertFalse(iterator.get_next_as_optional().has_value())
        with self.assertRaisesRegex(ValueError, "no more elements"):
            iterator.get_next_as_optional().get_value()
        options = tf.data.Options()
        options.experimental_optimization.map_parallelization = True
        options.experimental_threading.private_threadpool_size = 2
        self.assertEqual(rows(Data.range(2).with_options(options)), [0, 1])

    def test_rows_of_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.csv")
            with open(path, "w") as file:
                file.write('name,size,weight\na,1,0.5\n"b, c",,1.5\nd,3,2\n')
            made = tf.data.experimental.make_csv_dataset(path, 2, label_name="weight", shuffle=False, num_epochs=1)
            self.assertEqual([({key: value.numpy().tolist() for key, value in columns.items()}, weights.numpy().tolist()) for columns, weights in made],
                             [({"name": [b"a", b"b, c"], "size": [1, 0]}, [0.5, 1.5]), ({"name": [b"d"], "size": [3]}, [2.0])])
            numbers = tf.data.experimental.make_csv_dataset(os.path.join(folder, "*.csv"), 3, select_columns=["size", "weight"], shuffle_seed=1)
            self.assertIsInstance(numbers, Data)
            first = next(iter(numbers))
            self.assertEqual((first["size"].dtype, sorted(first["weight"].numpy().tolist())), (tf.int32, [0.5, 1.5, 2.0]))
            rows_of = tf.data.experimental.CsvDataset([path, path], ["", tf.float32], header=True, select_cols=[0, 2])
            self.assertEqual([(name.numpy(), float(weight)) for name, weight in rows_of], [(b"a", 0.5), (b"b, c", 1.5), (b"d", 2.0)] * 2)
            with open(path, "rb") as plain, gzip.open(os.path.join(folder, "a.csv.gz"), "wb") as packed:
                packed.write(plain.read())
            packed = tf.data.experimental.make_csv_dataset(os.path.join(folder, "a.csv.gz"), 3, shuffle=False, num_epochs=1, compression_type="GZIP")
            self.assertEqual(next(iter(packed))["size"].numpy().tolist(), [1, 0, 3])
            with self.assertRaisesRegex(NotImplementedError, "row that cannot be read"):
                tf.data.experimental.make_csv_dataset(path, 2, ignore_errors=True)
            for wrong in ({"label_name": "none"}, {"header": False}):
                with self.assertRaisesRegex(ValueError, "make_csv_dataset"):
                    tf.data.experimental.make_csv_dataset(path, 2, **wrong)
            with self.assertRaisesRegex(ValueError, "no file matches"):
                tf.data.experimental.make_csv_dataset(os.path.join(folder, "*.txt"), 2)

    def test_models_take_no_texts(self):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        with self.assertRaisesRegex(TypeError, "TextVectorization"):
            model.fit(Data.from_tensor_slices((["a", "b"], [0.0, 1.0])).batch(2), verbose=0)


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "records")

    def test_examples(self):
        t = tf.train
        with tf.io.TFRecordWriter(self.path) as writer:
            for number in range(3):
                writer.write(t.Example(features=t.Features(feature={
                    "number": t.Feature(int64_list=t.Int64List(value=[number])), "pair": t.Feature(float_list=t.FloatList(value=[0.5, number])),
                    "word": t.Feature(bytes_list=t.BytesList(value=[f"w{number}".encode()])),
                    "many": t.Feature(int64_list=t.Int64List(value=range(number)))})).SerializeToString())
        data = tf.data.TFRecordDataset(self.path)
        feature = t.Feature(bytes_list=t.BytesList(value=[b"x" * 200]))
        self.assertEqual(feature.SerializeToString(), b"\n\xcb\x01\n\xc8\x01" + b"x" * 200)  # as protocol buffers write it
        known = t.Example.FromString(next(iter(data)))
        self.assertEqual((known.features.feature["pair"].float_list.value, known.features.feature["pair"].WhichOneof("kind")), ([0.5, 0.0], "float_list"))
        spec = {"number": tf.io.FixedLenFeature([], tf.int64), "pair": tf.io.FixedLenFeature([2], tf.float32),
                "other": tf.io.FixedLenFeature([2], tf.float32, default_value=7.0),
                "many": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)}
        parsed = rows(data.map(lambda record: tf.io.parse_single_example(record, spec)))
        self.assertEqual(parsed[2], {"number": 2, "pair": [0.5, 2.0], "other": [7.0, 7.0], "many": [0, 1]})
        words = data.map(lambda record: tf.io.parse_single_example(record, {"word": tf.io.FixedLenFeature([], tf.string)})["word"])
        self.assertEqual([word.numpy() for word in words], [b"w0", b"w1", b"w2"])
        together = next(iter(data.batch(3).map(lambda records: tf.io.parse_example(records, spec))))
        self.assertEqual((together["pair"].shape, together["many"].numpy().tolist()), ((3, 2), [[0, 0], [0, 0], [0, 1]]))
        record = next(iter(data))
        for wrong, words in (({"none": tf.io.FixedLenFeature([], tf.int64)}, "is not there"), ({"pair": tf.io.FixedLenFeature([3], tf.float32)}, "has 2 values"),
                             ({"number": tf.io.FixedLenFeature([], tf.float32)}, "has ints"), ({"number": tf.io.FixedLenFeature([], tf.int32)}, "are of float32")):
            with self.assertRaisesRegex(ValueError, words):
                tf.io.parse_single_example(record, wrong)
        with self.assertRaisesRegex(NotImplementedError, "FixedLenSequenceFeature"):
            tf.io.VarLenFeature(tf.int64)
        for wrong in (lambda: t.BytesList(value=["text"]), lambda: t.Int64List(value=[1.5])):
            with self.assertRaises(TypeError):
                wrong()

    def test_numbers_of_elements_that_were_texts_are_known(self):
        lengths = tf.data.Dataset.from_tensor_slices(["a", "bc", "d"]).map(tf.strings.length)
        for made in (lengths, lengths.take(2), lengths.take(-1), lengths.take(9), lengths.skip(1), lengths.skip(9), lengths.repeat(2), lengths.shard(2, 1),
                     lengths.take(1).concatenate(lengths), tf.data.Dataset.range(2).map(lambda x: tf.cast(x, tf.int32)).concatenate(lengths)):
            self.assertEqual(len(made), len(list(made)))
        self.assertEqual((int(lengths.repeat().cardinality()), len(lengths.repeat().take(4))), (tf.data.INFINITE_CARDINALITY, 4))
        self.assertEqual(int(lengths.filter(lambda x: x > 1).concatenate(lengths).cardinality()), tf.data.UNKNOWN_CARDINALITY)

    def test_lines_of_fields(self):
        with open(self.path, "w") as file:
            file.write('name,size,weight\n"a, b",3,1.5\nc,,2\n')
        lines = tf.data.TextLineDataset(self.path).skip(1)
        decoded = lines.map(lambda line: tf.io.decode_csv(line, ["", 7, tf.float32])[1:])
        self.assertEqual(rows(decoded), [(3, 1.5), (7, 2.0)])
        whole = lines.map(lambda line: tf.io.decode_csv(line, ["", 7, 0.0]))  # a list of texts and numbers is a tuple
        self.assertEqual([(name.numpy(), int(size), float(weight)) for name, size, weight in whole], [(b"a, b", 3, 1.5), (b"c", 7, 2.0)])
        names, sizes = tf.io.decode_csv(next(iter(lines.batch(2))), ["", [0]], select_cols=[0, 1])
        self.assertEqual((names.numpy().tolist(), sizes.numpy().tolist()), ([b"a, b", b"c"], [3, 0]))
        with self.assertRaisesRegex(ValueError, "field 1 is empty"):
            tf.io.decode_csv(["c,,2"], ["", tf.int32, 0.0])
        with self.assertRaisesRegex(ValueError, "expected 2 fields, line 0 has 3"):
            tf.io.decode_csv(["c,,2"], ["", 1])

    def test_bytes_of_numbers(self):
        self.assertEqual(tf.io.decode_raw(np.array([1, 2], np.int32).tobytes(), tf.int32).numpy().tolist(), [1, 2])
        self.assertEqual(tf.io.decode_raw(tf.constant([b"\x01\x02\x03", b"\x04"]), tf.uint8, fixed_length=2).numpy().tolist(), [[1, 2], [4, 0]])
        with self.assertRaisesRegex(ValueError, "multiple of the 4 bytes"):
            tf.io.decode_raw(tf.constant([b"\x01\x02"]), tf.int32, fixed_length=6)
        self.assertEqual(tf.io.decode_raw(tf.constant([b"\x00\x01", b"\x00\x02"]), tf.uint8).numpy().tolist(), [[0, 1], [0, 2]])
        image = tf.constant(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
        tf.io.write_file(self.path, tf.constant(tf.io.encode_png(image)))
        pictures = Data.list_files(self.path).map(tf.io.read_file).map(lambda text: tf.io.decode_image(text, dtype=tf.float32))
        np.testing.assert_allclose(next(iter(pictures)).numpy(), image.numpy() / 255.0, rtol=1e-6)


class Draws(unittest.TestCase):
    def test_seeds_say_the_numbers(self):
        r = tf.random
        for draw in (lambda seed: r.stateless_truncated_normal([9], seed), lambda seed: r.stateless_categorical(tf.zeros([2, 7]), 9, seed),
                     lambda seed: r.stateless_gamma([9], seed, [2.0]), lambda seed: r.experimental.stateless_shuffle(tf.range(9), seed),
                     lambda seed: r.split(seed, 3), lambda seed: r.fold_in(seed, 5), lambda seed: r.stateless_uniform([9], seed, alg="philox")):
            np.testing.assert_array_equal(draw([1, 2]).numpy(), draw([1, 2]).numpy())
            self.assertFalse(np.array_equal(draw([1, 2]).numpy(), draw([1, 3]).numpy()))
        self.assertEqual(len({tuple(seed) for seed in r.split([1, 2], 50).numpy().tolist()}), 50)
        self.assertEqual(len({tuple(r.fold_in([1, 2], number).numpy().tolist()) for number in range(50)}), 50)
        self.assertLess(float(tf.reduce_max(tf.abs(r.stateless_truncated_normal([999], [1, 2])))), 2.0)
        tf.random.set_seed(1)
        drawn = r.gamma([20000], [2.0, 5.0], [4.0, 1.0])
        self.assertEqual(drawn.shape, (20000, 2))
        np.testing.assert_allclose(tf.reduce_mean(drawn, 0).numpy(), [0.5, 5.0], rtol=0.05)

    def test_candidates(self):
        tf.random.set_seed(1)
        labels = tf.constant([[3], [0]], tf.int64)
        for sampler, chances in ((tf.random.uniform_candidate_sampler, np.full(20, 0.05)),
                                 (tf.random.log_uniform_candidate_sampler, np.log(np.arange(2, 22) / np.arange(1, 21)) / np.log(21))):
            many = sampler(labels, 1, 30000, False, 20)
            np.testing.assert_allclose(np.bincount(many.sampled_candidates.numpy(), minlength=20) / 30000, chances, atol=0.012)
            np.testing.assert_allclose(many.true_expected_count.numpy()[:, 0], 30000 * chances[[3, 0]], rtol=1e-4)
            # So often was each class among 5 different ones that were drawn one after another, and so often was it expected.
            counts, expected, firsts = np.zeros(20), np.zeros(20), np.zeros(20)
            every = tf.constant(np.arange(20)[:, None])
            for _ in range(1500):
                some = sampler(every, 1, 5, True, 20)
                numbers = some.sampled_candidates.numpy()
                self.assertEqual(len(set(numbers.tolist())), 5)
                counts[numbers] += 1
                firsts[numbers[0]] += 1
                expected += some.true_expected_count.numpy()[:, 0]
            np.testing.assert_allclose(firsts / 1500, chances, atol=0.05)
            np.testing.assert_allclose(counts / 1500, expected / 1500, atol=0.06)
        with self.assertRaisesRegex(ValueError, "20"):
            tf.random.uniform_candidate_sampler(labels, 1, 21, True, 20)
        table, biases = tf.Variable(tf.zeros([20, 4])), tf.Variable(tf.zeros([20]))
        step = tf.function(lambda x: tf.reduce_mean(tf.nn.sampled_softmax_loss(table, biases, labels, x, 6, 20)))
        self.assertAlmostEqual(float(step(tf.ones([2, 4]))), float(step(tf.ones([2, 4]))), delta=2.0)


class Rest(unittest.TestCase):
    def test_errors_that_programs_raise_and_catch(self):
        e = tf.errors
        error = e.InvalidArgumentError(None, None, "wrong")
        self.assertEqual((error.message, error.error_code, str(e.NotFoundError("gone"))), ("wrong", e.INVALID_ARGUMENT, "gone"))
        for name in ("AbortedError", "AlreadyExistsError", "CancelledError", "DeadlineExceededError", "PermissionDeniedError", "UnauthenticatedError",
                     "UnknownError"):
            with self.assertRaises(e.OpError):
                raise getattr(e, name)(None, None, "")
        self.assertEqual((e.UNAUTHENTICATED, e.DATA_LOSS, e.OutOfRangeError.error_code), (16, 15, 11))

    def test_shapes_and_dtypes(self):
        shape = tf.TensorShape([None, 3])
        self.assertEqual(shape.merge_with([2, None]).as_list(), [2, 3])
        self.assertIs(shape.with_rank(2), shape)
        for wrong in (lambda: shape.with_rank(3), lambda: shape.with_rank_at_least(3), lambda: shape.with_rank_at_most(1), lambda: shape.merge_with([2, 4]),
                      shape.assert_is_fully_defined, lambda: shape.assert_same_rank([1])):
            with self.assertRaises(ValueError):
                wrong()
        self.assertEqual((tf.uint8.limits, tf.float32.limits, tf.uint8.is_unsigned, tf.bool.is_numeric), ((0, 255), (0, 1), True, False))

    def test_averages_follow_variables(self):
        variable, steps = tf.Variable([1.0, 2.0], name="w"), tf.Variable(0)
        average = tf.train.ExponentialMovingAverage(0.9, num_updates=steps)
        self.assertIsNone(average.average(variable))
        average.apply([variable])
        variable.assign([2.0, 4.0])
        average.apply([variable])  # (1 + 0) / (10 + 0) is less than 0.9
        np.testing.assert_allclose(average.average(variable).numpy(), [1.9, 3.8], rtol=1e-6)
        steps.assign(1000)
        variable.assign([0.0, 0.0])
        tf.function(lambda: average.apply([variable]))()
        np.testing.assert_allclose(average.average(variable).numpy(), [1.71, 3.42], rtol=1e-6)
        self.assertEqual(average.average_name(variable), "w/ExponentialMovingAverage")

    def test_checkpoints_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(tf.train.get_checkpoint_state(folder))
            checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
            manager = tf.train.CheckpointManager(checkpoint, folder, 3)
            paths = [manager.save()]
            self.assertEqual(tf.train.get_checkpoint_state(folder).model_checkpoint_path, manager.latest_checkpoint)
            for path in tf.train.checkpoints_iterator(folder, timeout=0):
                self.assertEqual(path, manager.latest_checkpoint)
                if len(paths) < 3:
                    paths.append(manager.save())
            self.assertEqual(len(manager.checkpoints), 3)

    def test_files(self):
        g = tf.io.gfile
        with tempfile.TemporaryDirectory() as folder:
            g.mkdir(g.join(folder, "a"))
            with g.GFile(g.join(folder, "a", "x"), "w") as file:
                file.write("text")
            g.copy(g.join(folder, "a", "x"), g.join(folder, "y"))
            for change in (g.copy, g.rename):
                with self.assertRaisesRegex(tf.errors.AlreadyExistsError, "overwrite"):
                    change(g.join(folder, "a", "x"), g.join(folder, "y"))
            g.rename(g.join(folder, "a", "x"), g.join(folder, "y"), overwrite=True)
            self.assertEqual((list(g.walk(folder)), g.stat(g.join(folder, "y")).st_size), ([(folder, ["a"], ["y"]), (g.join(folder, "a"), [], [])], 4))

    def test_files_of_sound_that_are_none(self):
        whole = tf.audio.encode_wav([[0.5]], 8000).numpy()
        for wrong, words in ((b"no", "WAV"), (whole[:40], "no samples"), (whole.replace(b"\x10\x00data", b"\x08\x00data"), "8 bits")):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, words):
                tf.audio.decode_wav(wrong)

    def test_settings_of_files_are_heeded_or_refused(self):
        image = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
        whole = tf.io.encode_jpeg(image, "rgb")
        self.assertEqual(tf.io.decode_jpeg(whole, fancy_upscaling=False, dct_method="INTEGER_FAST").shape, (8, 8, 3))
        for refused in (lambda: tf.io.decode_jpeg(whole, 3, 2), lambda: tf.io.decode_jpeg(whole, try_recover_truncated=True),
                        lambda: tf.io.decode_and_crop_jpeg(whole, [0, 0, 2, 2], ratio=2), lambda: tf.io.encode_jpeg(image, progressive=True),
                        lambda: tf.io.encode_jpeg(image, chroma_downsampling=False), lambda: tf.train.latest_checkpoint(".", "other"),
                        lambda: tf.io.TFRecordWriter("never_written", tf.io.TFRecordOptions("GZIP"))):
            with self.assertRaises(NotImplementedError):
                refused()
        with self.assertRaisesRegex(ValueError, "grayscale"):
            tf.io.encode_jpeg(image, "grayscale")
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "not within the image of 8 x 8"):
            tf.io.decode_and_crop_jpeg(whole, [0, 4, 2, 5])

    def test_quality_of_images(self):
        image = tf.constant(np.random.default_rng(0).uniform(size=(16, 16, 3)).astype(np.float32))
        apart = [float(tf.reduce_mean(tf.abs(tf.image.adjust_jpeg_quality(image, quality) - image))) for quality in (5, 95)]
        self.assertLess(apart[1], apart[0])
        self.assertEqual(tf.image.random_jpeg_quality(image, 20, 30).shape, (16, 16, 3))
        np.testing.assert_array_equal(tf.image.stateless_random_jpeg_quality(image, 2, 90, (1, 2)), tf.image.stateless_random_jpeg_quality(image, 2, 90, (1, 2)))
        whole = tf.io.encode_jpeg(tf.zeros([5, 7, 3], tf.uint8))
        self.assertEqual((bool(tf.io.is_jpeg(whole)), tf.io.extract_jpeg_shape(whole).numpy().tolist()), (True, [5, 7, 3]))
        self.assertEqual(tf.image.decode_and_crop_jpeg(whole, [1, 2, 3, 4]).shape, (3, 4, 3))

    def test_summaries_of_texts_images_and_sounds(self):
        s = tf.summary
        with tempfile.TemporaryDirectory() as folder:
            writer = s.create_file_writer(folder)
            with writer.as_default(step=3):
                self.assertTrue(s.text("note", ["**a**", "b"]))
                self.assertTrue(s.image("drawn", tf.ones([5, 4, 6, 3]), max_outputs=2))
                self.assertTrue(s.audio("heard", tf.zeros([1, 9, 1]), 8000))
                with s.record_if(lambda: False), s.create_noop_writer().as_default():
                    self.assertFalse(s.should_record_summaries())
                    self.assertFalse(s.scalar("x", 1.0) or s.histogram("x", [1.0]) or s.text("x", "y"))
                with self.assertRaisesRegex(ValueError, "count, height"):
                    s.image("drawn", tf.ones([4, 6, 3]))
                with self.assertRaisesRegex(NotImplementedError, "outside of functions"):
                    tf.function(lambda x: s.image("drawn", x))(tf.ones([1, 4, 6, 3]))
            writer.flush()
            events = [bytes(event.numpy()) for event in tf.data.TFRecordDataset([os.path.join(folder, name) for name in os.listdir(folder)])]
        self.assertEqual(len(events), 4)
        for event, parts in zip(events[1:], ((b"note", b"**a**"), (b"drawn", b"\x42\x016\x42\x014", b"PNG"), (b"heard", b"RIFF"))):
            for part in parts:
                self.assertIn(part, event)
        self.assertEqual(events[2].count(b"PNG"), 2)

    def test_cases_of_tests(self):
        class Case(tf.test.TestCase):
            def runTest(self):  # noqa: N802: unittest's name
                self.assertAllClose({"a": [tf.constant([1.0, 2.0])]}, {"a": [np.array([1.0, 2.0 + 1e-7])]})
                self.assertNotAllClose([1.0], [1.1])
                self.assertAllEqual(tf.constant([1, 2]), [1, 2])
                self.assertNotAllEqual([1], [2])
                self.assertAllGreater(tf.constant([1, 2]), 0)
                self.assertAllInSet([1, 2, 1], {1, 2, 3})
                self.assertShapeEqual(np.ones([2]), tf.ones([2]))
                self.assertNear(1.0, 1.05, 0.1)
                self.assertEqual(self.evaluate([tf.constant(2), 3]), [2, 3])
                self.assertTrue(os.path.isdir(self.get_temp_dir()))
        result = unittest.TestResult()
        Case().run(result)
        self.assertEqual((result.testsRun, result.failures, result.errors), (1, [], []))
        for wrong in (lambda case: case.assertAllClose([1.0], [1.1]), lambda case: case.assertAllClose([1.0], [1.0, 1.0]),
                      lambda case: case.assertAllEqual({"a": 1}, {"b": 1}), lambda case: case.assertAllLess([1, 2], 2)):
            with self.assertRaises(AssertionError):
                wrong(Case())
        with self.assertRaisesRegex(AttributeError, "keras.ops has NumPy's"):
            tf.experimental.numpy.asarray

    def test_folders_of_sounds(self):
        with tempfile.TemporaryDirectory() as folder:
            for kind, sizes in (("high", (5, 9)), ("low", (7,))):
                os.mkdir(os.path.join(folder, kind))
                for number, size in enumerate(sizes):
                    tf.io.write_file(os.path.join(folder, kind, f"{number}.wav"), tf.audio.encode_wav(tf.fill([size, 1], 0.5), 8000))
            read = tf.keras.utils.audio_dataset_from_directory
            sounds, labels = next(iter(read(folder, shuffle=False, verbose=False)))
            self.assertEqual((sounds.shape, labels.numpy().tolist(), float(sounds[0, 4, 0]), float(sounds[0, 5, 0])), ((3, 9, 1), [0, 0, 1], 0.5, 0.0))
            cut = read(folder, labels=None, batch_size=2, output_sequence_length=6, shuffle=False, verbose=False)
            self.assertEqual([batch.shape for batch in cut], [(2, 6, 1), (1, 6, 1)])
            with self.assertRaisesRegex(NotImplementedError, "not resampled"):
                read(folder, sampling_rate=4000)

    def test_names_of_the_first_version(self):
        v1 = tf.compat.v1
        v1.enable_eager_execution()
        before = v1.logging.get_verbosity()
        v1.logging.set_verbosity(v1.logging.ERROR)
        self.assertEqual(v1.logging.get_verbosity(), v1.logging.ERROR)
        v1.logging.set_verbosity(before)
        with tf.control_dependencies([tf.constant(1.0)]):
            self.assertFalse(tf.inside_function())
        self.assertIsNone(tf.function(lambda x: tf.constant(0.0) if tf.get_static_value(x) is None and tf.inside_function() else x)(tf.ones([])).shape.rank or None)

    def test_ctc_loss_of_labels_that_are_not_rows(self):
        with self.assertRaisesRegex(ValueError, "label_length"):
            tf.nn.ctc_loss([[1]], tf.zeros([4, 1, 3]), None, [4])
        with self.assertRaisesRegex(ValueError, "does not give an input"):
            tf.nn.conv2d_transpose(tf.zeros([1, 4, 4, 2]), tf.zeros([3, 3, 5, 2]), [1, 9, 8, 5], 2)


class Tables(unittest.TestCase):
    def test_of_lines(self):
        l = tf.lookup  # noqa: E741
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "words")
            tf.io.write_file(path, "cat\t3\ndog\t5\n")
            fields = l.StaticHashTable(l.TextFileInitializer(path, tf.string, 0, tf.int64, 1), -1)
            self.assertEqual(fields.lookup(["dog", "cow", "cat"]).numpy().tolist(), [5, -1, 3])
            lines = l.TextFileInitializer(path, tf.string, l.TextFileIndex.WHOLE_LINE, tf.int64, l.TextFileIndex.LINE_NUMBER, value_index_offset=2)
            self.assertEqual(l.StaticHashTable(lines, -1).lookup("dog\t5").numpy(), 3)
            for wrong in (lambda: l.TextFileInitializer(path, tf.string, 0, tf.int64, 2), lambda: l.TextFileInitializer(path, tf.string, 0, tf.int64, 1, vocab_size=3),
                          lambda: l.TextFileInitializer(path, tf.string, 0, tf.int32, l.TextFileIndex.LINE_NUMBER),
                          lambda: l.StaticVocabularyTable(lines, 0)):
                with self.assertRaises(ValueError):
                    wrong()
            self.assertEqual(int(l.StaticVocabularyTable(lines, 4).size()), 6)

    def test_keys_and_values(self):
        make = tf.lookup.KeyValueTensorInitializer
        table = tf.lookup.StaticHashTable(make(["a", "b"], tf.constant([1, 2], tf.int64)), default_value=-1)
        self.assertEqual(table.lookup(tf.constant([["b", "x"]])).numpy().tolist(), [[2, -1]])
        self.assertEqual((int(table.size()), table[tf.constant("a")].numpy()), (2, 1))
        words = tf.lookup.StaticHashTable(make([1, 2], ["one", "two"]), default_value="?")
        self.assertEqual(words.lookup(tf.constant([2, 3])).numpy().tolist(), [b"two", b"?"])
        self.assertEqual(rows(Data.from_tensor_slices(["b", "a"]).map(table.lookup)), [2, 1])
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "two values"):
            tf.lookup.StaticHashTable(make(["a", "a"], [1, 2]), 0)
        with self.assertRaisesRegex(NotImplementedError, "on the host"):
            tf.function(words.lookup)(tf.constant(1))


if __name__ == "__main__":
    unittest.main()
