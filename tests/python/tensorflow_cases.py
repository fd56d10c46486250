"""Calls of TensorFlow's functions, which compute the same here: tensorflow_cases_test.py compares with what record_tensorflow_cases.py wrote.

A case is an expression, with tf and np and the names below. What it gives is compared, and where `to` names floating point arguments, so are
the gradients of a weighted sum of it.
"""

import numpy as np


def floats(*shape, seed=0, dtype=np.float32):
    """Numbers by a formula, in about [-1.5, 1.5]."""
    return (np.sin(np.arange(np.prod(shape, dtype=np.int64)) * 1.7 + seed) * 1.5).reshape(shape).astype(dtype)


def positive(*shape, seed=0, dtype=np.float32):
    """Numbers in about [0.05, 3]."""
    return floats(*shape, seed=seed, dtype=dtype) * dtype(0.98) + dtype(1.52)


def integers(low, high, *shape, seed=0, dtype=np.int32):
    """Integers in [low, high)."""
    return (np.floor(np.abs(floats(*shape, seed=seed + 1, dtype=np.float64)) * 1e4).astype(np.int64) % (high - low) + low).astype(dtype)


x3, x2, x1 = floats(2, 5, 6, 4, 3), floats(2, 7, 6, 4), floats(2, 9, 4)
ABOVE = positive(3, 4)
MATRIX = np.eye(3, dtype=np.float32) * 4 + floats(3, 3) @ floats(3, 3).T
BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]], np.float32)
SCORES = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], np.float32)

# name: (expression of the arguments a, b, c; the arguments), each argument of floats with a gradient
CASES = {
    # convolutions
    **{f"conv2d {padding} {strides} {dilation}": (f"tf.nn.conv2d(a, b, {strides}, {padding!r}, dilations={dilation})", x2, floats(3, 2, 4, 5))
       for padding, strides, dilation in (("SAME", 2, 1), ("VALID", [1, 2, 1, 1], 1), ("SAME", 1, 2), ([[0, 0], [2, 1], [0, 3], [0, 0]], [2, 1], 1))},
    "conv2d groups": ("tf.nn.conv2d(a, b, 1, 'SAME')", x2, floats(3, 2, 2, 6)),
    "convolution 1": ("tf.nn.convolution(a, b)", x1, floats(3, 4, 5)),
    "convolution 2": ("tf.nn.convolution(a, b, [2, 1], 'SAME')", x2, floats(3, 2, 4, 5)),
    "convolution 3": ("tf.nn.convolution(a, b, padding='SAME', data_format='NDHWC')", x3, floats(2, 3, 2, 3, 2)),
    "atrous": ("tf.nn.atrous_conv2d(a, b, 2, 'SAME')", x2, floats(3, 2, 4, 5)),
    "depthwise": ("tf.nn.depthwise_conv2d(a, b, [1, 1, 1, 1], 'VALID')", x2, floats(3, 2, 4, 2)),
    "separable": ("tf.nn.separable_conv2d(a, b, c, [1, 2, 2, 1], 'SAME')", x2, floats(3, 2, 4, 2), floats(1, 1, 8, 3)),
    **{f"conv1d_transpose {shape} {stride} {padding}": (f"tf.nn.conv1d_transpose(a, b, {shape}, {stride}, {padding!r})", x1, floats(3, 5, 4))
       for shape, stride, padding in (([2, 18, 5], 2, "SAME"), ([2, 17, 5], 2, "SAME"), ([2, 19, 5], 2, "VALID"), ([2, 20, 5], 2, "VALID"))},
    **{f"conv2d_transpose {shape} {stride} {padding}": (f"tf.nn.conv2d_transpose(a, b, {shape}, {stride}, {padding!r})", x2, floats(4, 3, 5, 4))
       for shape, stride, padding in (([2, 14, 12, 5], 2, "SAME"), ([2, 13, 12, 5], [1, 2, 2, 1], "SAME"), ([2, 13, 11, 5], 2, "SAME"),
                                      ([2, 16, 13, 5], 2, "VALID"), ([2, 17, 14, 5], 2, "VALID"), ([2, 7, 6, 5], 1, "SAME"),
                                      ([2, 19, 16, 5], 3, "SAME"), ([2, 28, 24, 5], 4, "SAME"), ([2, 35, 30, 5], 5, "SAME"))},
    "conv2d_transpose pairs": ("tf.nn.conv2d_transpose(a, b, [2, 13, 11, 5], 2, [[0, 0], [1, 2], [1, 1], [0, 0]])", x2, floats(4, 3, 5, 4)),
    "conv3d_transpose": ("tf.nn.conv3d_transpose(a, b, [2, 10, 12, 7, 2], 2, 'SAME')", x3, floats(2, 3, 2, 2, 3)),
    "conv_transpose": ("tf.nn.conv_transpose(a, b, [2, 14, 12, 5], 2)", x2, floats(4, 3, 5, 4)),
    "atrous transpose": ("tf.nn.atrous_conv2d_transpose(a, b, [2, 11, 8, 5], 2, 'VALID')", x2, floats(3, 2, 5, 4)),
    # windows and blocks
    **{f"max_pool {padding}": (f"tf.nn.max_pool(a, 2, 2, {padding!r})", x2) for padding in ("SAME", "VALID", [[0, 0], [1, 0], [0, 1], [0, 0]])},
    "max_pool 1": ("tf.nn.max_pool(a, 3, 1, 'SAME')", x1),
    "avg_pool 3": ("tf.nn.avg_pool(a, [2, 2, 1], 2, 'SAME', 'NDHWC')", x3),
    "pool": ("tf.nn.pool(a, [2, 3], 'AVG', [2, 1], 'SAME')", x2),
    "pool 1": ("tf.nn.pool(a, [2], 'MAX')", x1),
    **{f"argmax {padding} {batch}": (f"tf.nn.max_pool_with_argmax(a, [3, 2], 2, {padding!r}, include_batch_in_index={batch})", x2)
       for padding in ("SAME", "VALID") for batch in (False, True)},
    "dilation2d": ("tf.nn.dilation2d(a, b, [1, 2, 1, 1], 'SAME', 'NHWC', [1, 1, 2, 1])", x2, floats(2, 3, 4)),
    "erosion2d": ("tf.nn.erosion2d(a, b, [1, 1, 1, 1], 'VALID', 'NHWC', [1, 2, 1, 1])", x2, floats(3, 2, 4)),
    "space_to_depth": ("tf.nn.space_to_depth(a, 2)", floats(2, 4, 6, 3)),
    "depth_to_space": ("tf.nn.depth_to_space(a, 2)", floats(2, 3, 2, 12)),
    "depth_to_space int": ("tf.nn.depth_to_space(a, 2)", integers(0, 99, 2, 3, 2, 8)),
    "space_to_batch": ("tf.space_to_batch(a, [2, 3], [[1, 0], [0, 0]])", x2),
    "space_to_batch_nd": ("tf.space_to_batch_nd(a, [3], [[1, 2]])", x1),
    "batch_to_space": ("tf.batch_to_space(a, [2, 3], [[1, 0], [0, 2]])", floats(12, 3, 2, 4)),
    # moments and losses
    "crelu": ("tf.nn.crelu(a)", x1),
    "zero_fraction": ("tf.nn.zero_fraction(a)", integers(0, 3, 4, 5)),
    "lrn": ("tf.nn.local_response_normalization(a, 2, 0.5, 0.3, 0.75)", floats(2, 3, 2, 7)),
    **{f"weighted_moments {keep}": (f"tf.nn.weighted_moments(a, [0, 1], b, {keep})", x1, positive(9, 1)) for keep in (False, True)},
    "sufficient_statistics": ("tf.nn.sufficient_statistics(a, [0, 2], 0.5)[:3]", x1),
    "normalize_moments": ("tf.nn.normalize_moments(12.0, a, b, 0.5)", floats(4), positive(4) * 30),
    "log_poisson_loss": ("tf.nn.log_poisson_loss(a, b)", positive(3, 4), floats(3, 4)),
    "log_poisson_loss full": ("tf.nn.log_poisson_loss([0.0, 1.0, 0.5, 2.0, 7.0], a, True)", floats(5)),
    "ctc_loss": ("tf.nn.ctc_loss([[1, 2, 2, 0], [3, 0, 0, 0], [2, 1, 3, 1]], a, [3, 1, 4], [8, 5, 8])", floats(8, 3, 5)),
    "ctc_loss blank": ("tf.nn.ctc_loss([[1, 2, 2, -1], [3, 0, 0, 0]], a, [3, 4], [8, 8], logits_time_major=False, blank_index=-1)", floats(2, 8, 5)),
    "ctc_loss of Keras": ("tf.keras.ops.ctc_loss(tf.constant([[1, 2, 2], [3, 1, 1]]), a, tf.constant([3, 1]), tf.constant([8, 6]))", floats(2, 8, 5)),
    "collapse_repeated": ("tf.nn.collapse_repeated([[1, 1, 2, 2, 1], [1, 1, 1, 2, 3]], [5, 3])",),
    "sampled_softmax_loss": ("tf.nn.sampled_softmax_loss(a, b, tf.constant([[1], [4], [7]], tf.int64), c, 4, 9, sampled_values=(tf.constant([0, 4, 2, 8], tf.int64), "
                             "tf.constant([[0.5], [0.3], [0.2]]), tf.constant([0.9, 0.4, 0.6, 0.1])))", floats(9, 4), floats(9), floats(3, 4, seed=2)),
    "nce_loss": ("tf.nn.nce_loss(a, b, tf.constant([[1, 2], [4, 0], [7, 7]], tf.int64), c, 4, 9, 2, sampled_values=(tf.constant([0, 4, 2, 8], tf.int64), "
                 "tf.constant([[0.5, 0.4], [0.3, 0.5], [0.2, 0.2]]), tf.constant([0.9, 0.4, 0.6, 0.1])), remove_accidental_hits=True)",
                 floats(9, 4), floats(9), floats(3, 4, seed=2)),
    # tf
    "reverse_sequence": ("tf.reverse_sequence(a, [9, 4], 1, 0)", x1),
    "reverse_sequence batch 1": ("tf.reverse_sequence(a, [1, 0, 2, 2], 0, 2)", x1),
    "dynamic_partition": ("tf.dynamic_partition(a, [1, 0, 2, 0, 2], 4)", floats(5, 2)),
    "dynamic_stitch": ("tf.dynamic_stitch([[4, 0], [[1, 3], [5, 2]]], [a, b])", floats(2, 3), floats(2, 2, 3, seed=1)),
    "dynamic_stitch twice": ("tf.dynamic_stitch([[4, 0], [[1, 3], [6, 1]]], [tf.stop_gradient(a), tf.stop_gradient(b)])", floats(2, 3), floats(2, 2, 3)),
    "unravel_index": ("tf.unravel_index([22, 41, 37], [7, 6])",),
    "identity_n": ("tf.identity_n([a, b])", x1, floats(3)),
    "shape_n": ("tf.shape_n([a, b])", x1, floats(3)),
    "truncatediv": ("[tf.truncatediv(a, b), tf.truncatemod(a, b)]", np.array([7, -7, 7, -7, 6, 0], np.int32), np.array([2, 2, -2, -2, -3, 5], np.int32)),
    "truncatemod": ("tf.truncatemod(tf.stop_gradient(a), 0.4)", floats(6)),
    "realdiv": ("tf.realdiv(a, b)", floats(3), positive(3)),
    "histogram": ("[tf.histogram_fixed_width(a, [-1.0, 1.0], 7), tf.histogram_fixed_width_bins(a, [-1.0, 1.0], 7)]", floats(5, 6)),
    "foldr": ("tf.foldr(lambda s, x: s * 0.5 + x, a)", floats(5, 2)),
    "foldr initial": ("tf.foldr(lambda s, x: s * 0.5 + x, a, tf.ones([2]))", floats(5, 2)),
    "as_string": ("[tf.strings.length(tf.strings.as_string([1.5, -0.001234567, 7.0], **options)) for options in ({}, {'precision': 2}, {'scientific': True}, "
                  "{'shortest': True}, {'width': 12}, {'width': 12, 'fill': '0', 'precision': 1}, {'fill': '+'})] + "
                  "[tf.strings.length(tf.strings.as_string([7, -123], width=6, fill=fill)) for fill in ('', '0', '+', '-', ' ')]",),
    "scalar_mul": ("tf.scalar_mul(3.0, a)", floats(4)),
    "grad_pass_through": ("tf.grad_pass_through(tf.round)(a)", floats(5)),
    "tuple": ("tf.tuple([a, b])", floats(4), floats(2)),
    # variables
    **{f"variable {name}": (f"tf.Variable(a).{name}(tf.IndexedSlices(tf.constant([[0.5, 2.0], [-1.0, 4.0], [2.0, 3.0]]), tf.constant([2, 0, 2]))) + 0.0",
                            floats(4, 2)) for name in ("scatter_max", "scatter_min", "scatter_mul", "scatter_div", "scatter_add")},
    "variable gather_nd": ("[tf.Variable(a).gather_nd([[1, 0], [2, 1]]), tf.Variable(a).sparse_read([3, 0])]", floats(4, 2)),
    "TensorArray": ("tf.TensorArray(tf.float32, 3).split(a, [1, 3, 0]).identity().read(1)", floats(4, 2)),
    # tf.strings
    "ngrams": ("[tf.cast(tf.strings.ngrams([['a', 'b', 'c'], ['d', 'e', 'f']], 2) == [['a b', 'b c'], ['d e', 'e f']], tf.int32), "
               "tf.strings.length(tf.strings.ngrams(['aa', 'b', 'c'], [1, 3], '|', ('<', '>>'))), "
               "tf.strings.length(tf.strings.ngrams(['aa', 'b', 'c'], [3], '|', '#', 1)), "
               "tf.strings.length(tf.strings.ngrams(['aa', 'b'], 3, preserve_short_sequences=True)), tf.strings.length(tf.strings.ngrams(['aa', 'b'], 3))]",),
    "format": ("[tf.cast(tf.strings.format('x {} y {}', (tf.constant([1.5, 2]), tf.range(10))) == 'x [1.5 2] y [0 1 2 ... 7 8 9]', tf.int32), "
               "tf.cast(tf.strings.format('{}', tf.constant('s')) == '\"s\"', tf.int32), tf.strings.length(tf.strings.format('{}', tf.reshape(tf.range(6), [2, 3]))), "
               "tf.strings.length(tf.strings.format('<?>', tf.constant([True, False]), '?'))]",),
    "transcode": ("[tf.io.decode_raw(x, tf.uint8) for x in (tf.strings.unicode_transcode(b'h\\xe9', 'ISO-8859-1', 'UTF-8'), "
                  "tf.strings.unicode_transcode('h\\u00e9', 'UTF-8', 'UTF-16-BE'), tf.strings.unicode_transcode(b'a\\xffb', 'UTF-8', 'UTF-8'), "
                  "tf.strings.unicode_transcode(b'a\\xffb', 'UTF-8', 'UTF-8', 'ignore'))]",),
    "split with offsets": ("tf.strings.unicode_split_with_offsets('h\\u00e9y', 'UTF-8')[1]",),
    "to_hash_bucket": ("[tf.strings.to_hash_bucket_fast(['a', 'bc', ''], 1000), tf.strings.to_hash_bucket_fast('word', 7), "
                       "tf.strings.to_hash_bucket_strong([['a'], ['bc']], 1000, [3, 4])]",),
    "vocabulary": ("[table.lookup(tf.constant([['b', 'x'], ['y', 'a']])) for table in [tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer("
                   "tf.constant(['a', 'b']), tf.constant([0, 1], tf.int64)), 3)]]",),
    "unsorted_segment_join": ("tf.strings.length(tf.strings.unsorted_segment_join(['a', 'bb', 'c', 'd'], [2, 0, 2, 0], 3, ', '))",),
    # tf.math
    "lgamma": ("tf.math.lgamma(a)", np.array([0.5, 1.001, 1.5, 1.999, 2.5, -0.5, -1.5, -7.3, 1e-3, 9.9, 37.2, 1e8], np.float32)),
    "lgamma wide": ("tf.math.lgamma(a)", np.array([0.5, 1.001, 1.5, 1.999, 2.5, -0.5, -1.5, -7.3, 1e-3, 9.9, 37.2, 1e8, 1e200], np.float64)),
    "lgamma ends": ("tf.math.lgamma([1.0, 2.0, 0.0, -1.0, float('inf')])",),
    "digamma": ("tf.math.digamma(a)", np.array([0.5, 1.0, 1.46, 2.5, -0.5, -1.5, 1e-3, 9.9, 37.2, 1e8], np.float32)),
    "digamma wide": ("tf.math.digamma(a)", np.array([0.5, 1.0, 1.46, 2.5, -0.5, -1.5, -7.3, 1e-3, 9.9, 37.2, 1e8], np.float64)),
    "digamma ends": ("tf.math.digamma([-1.0, -2.0])",),
    "lbeta": ("tf.math.lbeta(a)", positive(3, 4)),
    "erfinv": ("tf.math.erfinv(a)", floats(3, 4) / 2),
    "ndtri": ("tf.math.ndtri(a)", positive(6) / 3.2),
    "erfcinv": ("tf.math.erfcinv(a)", positive(6) / 1.6),
    "xlogy": ("tf.math.xlogy(a, b)", np.array([0, 0, 1, 2, 0.5], np.float32), np.array([0, 3, 2, 0.5, 1], np.float32)),
    "xlog1py": ("tf.math.xlog1py(a, b)", np.array([0, 0, 1, 2, 0.5], np.float32), np.array([-1, 3, 2, 0.5, 1], np.float32)),
    "xdivy": ("tf.math.xdivy(a, b)", np.array([0, 0, 1, 2, 0.5], np.float32), np.array([0, 3, 2, 0.5, 1], np.float32)),
    "xlogy broadcast": ("tf.math.xlogy(a, b)", floats(2, 1), positive(3)),
    "multiply_no_nan": ("tf.math.multiply_no_nan(a, b)", floats(3), np.array([0, 2, 3], np.float32)),
    "multiply_no_nan infinite": ("tf.math.multiply_no_nan([float('inf'), float('nan'), 2.0], [0.0, 0.0, 3.0])",),
    "reciprocal_no_nan": ("tf.math.reciprocal_no_nan(a)", np.array([0, 2, -3], np.float32)),
    "polyval": ("tf.math.polyval([2.0, b, 0.5], a)", floats(4), floats(4, seed=2)),
    "reduce_prod of zeros": ("tf.reduce_prod(a, [0, 2])", np.array([[[0, 2], [1, 3], [0, 0], [4, 5]], [[3, 4], [5, 0], [2, 3], [1, 2]]], np.float32)),
    "reduce_euclidean_norm": ("tf.math.reduce_euclidean_norm(a, [0, 2], True)", x1),
    **{f"cumulative_logsumexp {exclusive} {reverse}": (f"tf.math.cumulative_logsumexp(a, 1, {exclusive}, {reverse})", x1 * 3)
       for exclusive in (False, True) for reverse in (False, True)},
    "cumulative_logsumexp far": ("tf.math.cumulative_logsumexp([-1000.0, 0.0, 1000.0, -float('inf'), 1000.0])",),
    **{f"{name} {dtype}": (f"tf.math.{name}(a, [2, 0, 2, 5, 0], 4 + 2)", floats(5, 2) if dtype == "float" else integers(-9, 9, 5, 2))
       for name in ("unsorted_segment_max", "unsorted_segment_min", "unsorted_segment_prod") for dtype in ("float", "int")},
    "unsorted_segment_sqrt_n": ("tf.math.unsorted_segment_sqrt_n(a, [2, 0, 2, 5, 0], 6)", floats(5, 2)),
    **{name: (f"tf.math.{name}(a, [0, 0, 2, 3, 3])", floats(5, 2)) for name in ("segment_max", "segment_min", "segment_prod")},
    "increasing": ("[tf.math.is_non_decreasing([1, 1, 2]), tf.math.is_strictly_increasing([1, 1, 2]), tf.math.is_strictly_increasing([1.0, 3.0]), "
                   "tf.math.is_non_decreasing([2])]",),
    "invert_permutation": ("tf.math.invert_permutation(a)", np.array([3, 4, 0, 2, 1], np.int64)),
    "nextafter": ("tf.math.nextafter(tf.constant([1.0, 0.0, -2.0]), tf.constant([2.0, -1.0, -2.0]))",),
    # tf.linalg
    "adjoint": ("tf.linalg.adjoint(a)", x1),
    "cross": ("tf.linalg.cross(a, b)", floats(4, 3), floats(4, 3, seed=1)),
    "normalize": ("tf.linalg.normalize(a, axis=-1)", x1),
    "normalize 1": ("tf.linalg.normalize(a, ord=1, axis=0)", x1),
    "tensor_diag": ("tf.linalg.tensor_diag(a)", floats(2, 3)),
    "tensor_diag_part": ("tf.linalg.tensor_diag_part(a)", floats(2, 3, 2, 3)),
    "cholesky_solve": ("tf.linalg.cholesky_solve(tf.linalg.cholesky(a), b)", MATRIX, floats(3, 2)),
    # tf.bitwise
    **{f"bitwise {name}": (f"tf.bitwise.{name}(a, b)", integers(-999, 999, 12), integers(0, 7, 12)) for name in
       ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")},
    "bitwise uint8": ("[tf.bitwise.invert(a), tf.bitwise.bitwise_xor(a, b)]", integers(0, 256, 9, dtype=np.uint8), integers(0, 99, 9, dtype=np.uint8)),
    "bitwise invert": ("tf.bitwise.invert(a)", integers(-999, 999, 12)),
    # tf.signal
    **{f"frame {pad} {axis}": (f"tf.signal.frame(a, 4, 3, {pad}, 0.5, {axis})", floats(2, 9, 5)) for pad in (False, True) for axis in (-1, 1)},
    "frame short": ("tf.signal.frame(a, 4, 3)", floats(2, 3)),
    "overlap_and_add": ("tf.signal.overlap_and_add(a, 2)", floats(2, 4, 5)),
    "overlap_and_add 2": ("tf.signal.overlap_and_add(a, 7)", floats(4, 5)),
    **{f"{name} {length}": (f"[tf.signal.{name}({length}), tf.signal.{name}({length}, periodic=False)]",)
       for name in ("hann_window", "hamming_window") for length in (1, 8, 9)},
    "windows": ("[tf.signal.kaiser_window(9, 5.0), tf.signal.kaiser_bessel_derived_window(8), tf.signal.vorbis_window(8, tf.float64)]",),
    **{f"{name} {kind} {norm} {n}": (f"tf.signal.{name}(a, {kind}, {n}, norm={norm!r})", floats(2, 6))
       for name in ("dct", "idct") for kind, norm in ((1, None), (2, None), (2, "ortho"), (3, None), (3, "ortho"), (4, None), (4, "ortho"))
       for n in ((None, 4, 9) if name == "dct" and norm is None else (None,))},
    "mel": ("tf.signal.linear_to_mel_weight_matrix(7, 33, 16000, 80.0, 7600.0)",),
    "mfcc": ("tf.signal.mfccs_from_log_mel_spectrograms(a)", floats(3, 8)),
    # tf.image
    **{name: (f"tf.image.{name}(a)", positive(2, 3, 4, 3) / 3) for name in ("rgb_to_yuv", "yuv_to_rgb", "rgb_to_yiq", "yiq_to_rgb")},
    "sobel_edges": ("tf.image.sobel_edges(a)", floats(2, 5, 4, 3)),
    "ssim_multiscale": ("tf.image.ssim_multiscale(a, b, 1.0, (0.2, 0.5, 0.3), filter_size=5)", np.abs(floats(2, 25, 30, 2)) / 2,
                        np.abs(floats(2, 25, 30, 2)) / 2 + floats(2, 25, 30, 2, seed=3) / 20),
    "draw_bounding_boxes": ("tf.image.draw_bounding_boxes(tf.stop_gradient(a), [[[0.1, 0.2, 0.8, 0.9], [0.5, -0.5, 1.5, 0.4], [0.3, 0.3, 0.3, 0.3]]], "
                            "[[1.0, 0.0, 0.5], [0.0, 1.0, 0.25]])", floats(1, 9, 11, 3)),
    "draw_bounding_boxes colours": ("tf.image.draw_bounding_boxes(tf.zeros([1, 40, 40, 4]), [[[i / 40, i / 40, 1 - i / 40, 1 - i / 40] for i in range(12)]], "
                                    "None)",),
    "nms scores": ("tf.image.non_max_suppression_with_scores(BOXES, SCORES, 6, 0.5, 0.2)",),
    **{f"nms soft {threshold}": (f"tf.image.non_max_suppression_with_scores(BOXES, SCORES, 6, {threshold}, soft_nms_sigma=0.5)",) for threshold in (0.5, 1.0)},
    "nms overlaps": ("tf.image.non_max_suppression_overlaps([[1.0, 0.6, 0.1], [0.6, 1.0, 0.2], [0.1, 0.2, 1.0]], [0.5, 0.9, 0.3], 3, 0.5)",),
    **{f"nms combined {pad} {clip}": (f"tf.image.combined_non_max_suppression(BOXES.reshape(1, 6, 1, 4), np.stack([SCORES, SCORES[::-1]], 1)[None], 2, 5, 0.5, "
                                      f"0.4, {pad}, {clip})",) for pad in (False, True) for clip in (False, True)},
    # tf.io
    "parse_tensor": ("[tf.io.parse_tensor(tf.io.serialize_tensor(x), x.dtype) for x in (a, tf.constant(3), tf.constant([[True], [False]]), tf.zeros([0, 2]))]",
                     floats(300)),
    "parse_tensor of bytes": ("tf.io.parse_tensor(bytes.fromhex('0801120812020802120208012208" "0000803f000000c0'), tf.float32)",),
    "decode_compressed": ("tf.io.decode_raw(tf.io.decode_compressed(__import__('zlib').compress(bytes(range(9))), 'ZLIB'), tf.uint8)",),
    "decode_compressed by gzip": ("tf.io.decode_raw(tf.io.decode_compressed(__import__('gzip').compress(bytes(range(9))), 'GZIP'), tf.uint8)",),
    "base64": ("tf.io.decode_raw(tf.io.decode_base64(tf.io.encode_base64(bytes(range(250, 256)))), tf.uint8)",),
    "decode_wav": ("tf.audio.decode_wav(tf.audio.encode_wav(a, 8000))", floats(6, 2) / 1.4),
    "decode_wav sizes": ("tf.audio.decode_wav(tf.audio.encode_wav(tf.stop_gradient(a), 8000), 3, 8)", floats(6, 2) / 1.4),
    # losses of Keras'
    **{name: (f"tf.keras.losses.{name}(a, b)", positive(3, 4) / 3, positive(3, 4, seed=1) / 3) for name in ("dice", "tversky", "KLD", "MAPE", "MSLE", "logcosh")},
    "fftshift": ("[tf.signal.fftshift(a), tf.signal.ifftshift(a, -1)]", floats(4, 5)),
}


def digest(array):
    """The elements of a small array; of a larger one sums of all of them, by which every one of them counts."""
    flat = array.reshape(-1)
    if flat.size <= 40:
        return flat.astype(np.float64) if flat.dtype.kind == "f" else flat
    flat = np.nan_to_num(flat.astype(np.float64), nan=7.0, posinf=9.0, neginf=-9.0)
    return np.array([np.sum(flat * floats(flat.size, seed=seed, dtype=np.float64)) for seed in range(4)])


def function_of(tf, name):
    """The function of a, b and c that a case is, which gives a list."""
    def call(*sources):
        made = eval(CASES[name][0], {"tf": tf, "np": np, "BOXES": BOXES, "SCORES": SCORES, **dict(zip("abc", sources))})
        return list(made) if isinstance(made, (list, tuple)) else [made]
    return call


def computed(tf, name):
    """What a case gives: arrays, and the gradients behind them."""
    sources = [tf.constant(argument) for argument in CASES[name][1:]]
    with tf.GradientTape() as tape:
        watched = [source for source in sources if source.dtype.is_floating]
        tape.watch(watched)
        made = function_of(tf, name)(*sources)
        sums = [tf.reduce_sum(one * tf.cast(tf.constant(floats(*one.shape, seed=7)), one.dtype)) for one in made if one.dtype.is_floating]
        total = tf.add_n([tf.cast(one, sums[0].dtype) for one in sums]) if sums and watched else None
    gradients = tape.gradient(total, watched) if total is not None else []
    return [np.asarray(one.numpy()) for one in made] + [None if one is None else np.asarray(tf.convert_to_tensor(one).numpy()) for one in gradients]
