"""Single ops as compiled functions on CPUs, beside TensorFlow's, in one run.

    ./run python bench/python/ops.py                     # all of them, 10 minutes
    ./run python bench/python/ops.py 'resize|top_k'      # those whose name matches, as in "tanh/float64"

LOCKSTEP_BENCH_PYTHON names a Python that has TensorFlow. Each side is a process of its own; readings are taken in turn, and the
fastest of each side counts. Both compute on one thread, or on --threads.
"""

import argparse
import math
import os
import re
import sys
import time

import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint8")


def cases(tf):
    """{name: a function that makes (op, arguments)}."""
    layers, generator = tf.keras.layers, np.random.default_rng(0)

    def x(*shape, dtype="float32"):
        return tf.cast(tf.constant(generator.standard_normal(shape).astype("float32")), dtype)

    def whole(below, *shape, dtype="int32"):
        return tf.constant(generator.integers(0, below, shape).astype(dtype))

    def gradients(op):
        def run(*args):
            with tf.GradientTape() as tape:
                for arg in args:
                    tape.watch(arg)
                result = op(*args)
            return tape.gradient(result, list(args))
        return run

    made = {}
    image, filters, matrix, rows = (4, 32, 32, 32), (3, 3, 32, 32), (1024, 1024), (1024, 512)
    for dtype in FLOATS:
        def add(name, op, *shapes, dtype=dtype, with_gradients=False):
            made[f"{name}/{dtype}"] = lambda: (op, [x(*shape, dtype=dtype) for shape in shapes])
            if with_gradients:
                made[f"{name}_grad/{dtype}"] = lambda: (gradients(op), [x(*shape, dtype=dtype) for shape in shapes])
        add("matmul", tf.matmul, (512, 512), (512, 512))
        add("batched_matmul", tf.matmul, (64, 64, 64), (64, 64, 64))
        add("matvec", tf.linalg.matvec, matrix, (1024,))
        add("einsum", lambda a, b: tf.einsum("bqhd,bkhd->bhqk", a, b), (4, 128, 8, 32), (4, 128, 8, 32))
        add("conv2d", lambda a, b: tf.nn.conv2d(a, b, 1, "SAME"), image, filters, with_gradients=True)
        add("conv2d_strided", lambda a, b: tf.nn.conv2d(a, b, 2, "SAME"), image, filters)
        add("conv2d_dilated", lambda a, b: tf.nn.conv2d(a, b, 1, "SAME", dilations=2), image, filters)
        add("conv2d_1x1", lambda a, b: tf.nn.conv2d(a, b, 1, "SAME"), (4, 32, 32, 64), (1, 1, 64, 64))
        add("conv1d", lambda a, b: tf.nn.conv1d(a, b, 1, "SAME"), (8, 256, 32), (5, 32, 32))
        add("conv3d", lambda a, b: tf.nn.conv3d(a, b, [1] * 5, "SAME"), (2, 8, 16, 16, 16), (3, 3, 3, 16, 16))
        add("depthwise_conv2d", lambda a, b: tf.nn.depthwise_conv2d(a, b, [1] * 4, "SAME"), image, (3, 3, 32, 1), with_gradients=True)
        add("max_pool2d", lambda a: tf.nn.max_pool2d(a, 2, 2, "SAME"), (8, 32, 32, 64), with_gradients=True)
        add("max_pool2d_3x3_step_1", lambda a: tf.nn.max_pool2d(a, 3, 1, "SAME"), (8, 32, 32, 64))
        add("avg_pool2d", lambda a: tf.nn.avg_pool2d(a, 2, 2, "SAME"), (8, 32, 32, 64))
        add("softmax", tf.nn.softmax, rows)
        add("softmax_axis_0", lambda a: tf.nn.softmax(a, axis=0), (512, 1024))
        add("log_softmax", tf.nn.log_softmax, rows, with_gradients=True)
        add("l2_normalize", lambda a: tf.math.l2_normalize(a, 1), rows)
        for name in ("sum", "max", "prod", "std"):
            reduce = getattr(tf, f"reduce_{name}", None) or getattr(tf.math, f"reduce_{name}")
            add(f"reduce_{name}", lambda a, reduce=reduce: reduce(a, 1), matrix)
        add("reduce_sum_axis_0", lambda a: tf.reduce_sum(a, 0), matrix)
        add("argmax", lambda a: tf.argmax(a, 1), matrix)
        add("cumsum", lambda a: tf.cumsum(a, 1), matrix)
        add("add", tf.add, matrix, matrix)
        for name in ("exp", "sin", "tanh", "sigmoid"):
            add(name, getattr(tf, name), matrix)
        add("erf", tf.math.erf, matrix)
        add("log", lambda a: tf.math.log(tf.abs(a)), matrix)
        add("pow", lambda a: tf.pow(tf.abs(a), tf.cast(1.7, a.dtype)), matrix)
        add("where", lambda a, b: tf.where(a > 0, a, b), matrix, matrix)
        add("transpose", tf.transpose, matrix)
        add("concat", lambda a, b: tf.concat([a, b], 1), rows, rows)
        add("tile", lambda a: tf.tile(a, [4, 4]), (256, 256))
        add("pad", lambda a: tf.pad(a, [[0, 0], [2, 2], [2, 2], [0, 0]]), (8, 32, 32, 64))
        add("reverse", lambda a: tf.reverse(a, [1]), matrix)
        add("sort", lambda a: tf.sort(a, 1), (256, 1024))
        add("top_k", lambda a: tf.math.top_k(a, 10)[0], (256, 1024))
        for name, layer in (("lstm", layers.LSTM), ("gru", layers.GRU), ("simple_rnn", layers.SimpleRNN)):
            made[f"{name}/{dtype}"] = lambda layer=layer, dtype=dtype: (layer(64, dtype=dtype), [x(16, 32, 32, dtype=dtype)])
    for dtype in INTEGERS:
        def add(name, op, *shapes, dtype=dtype, least=0):
            made[f"{name}/{dtype}"] = lambda: (op, [whole(9, *shape, dtype=dtype) + tf.cast(least, dtype) for shape in shapes])
        add("add", tf.add, matrix, matrix)
        add("floordiv", tf.math.floordiv, matrix, matrix, least=1)
        add("reduce_sum", lambda a: tf.reduce_sum(a, 1), matrix)
        add("equal", tf.equal, matrix, matrix)
        add("sort", lambda a: tf.sort(a, 1), (256, 1024))
        add("cast", lambda a: tf.cast(a, "float32"), matrix)
        add("one_hot", lambda a: tf.one_hot(a, 100), (4096,))
    for method in ("bilinear", "nearest", "bicubic", "area"):
        made[f"resize_{method}"] = lambda method=method: (lambda a: tf.image.resize(a, [128, 128], method), [x(8, 64, 64, 3)])
    made["reduce_all"] = lambda: (lambda a: tf.reduce_all(a > 0, 1), [x(*matrix)])
    made["gather"] = lambda: (tf.gather, [x(4096, 256), whole(4096, 2048)])
    made["scatter_nd"] = lambda: (lambda i, u: tf.scatter_nd(i, u, [4096, 64]), [whole(4096, 4096, 1), x(4096, 64)])
    made["random_normal"] = lambda: (lambda a: a + tf.random.normal([1024, 1024]), [x(*matrix)])
    made["dropout"] = lambda: (lambda a: tf.nn.dropout(a, 0.3), [x(*matrix)])
    made["upsampling_bilinear"] = lambda: (layers.UpSampling2D(2, interpolation="bilinear"), [x(8, 32, 32, 32)])
    for name in ("inv", "cholesky", "qr", "eigh"):
        def symmetric(name=name):
            a = x(128, 128)
            return (lambda b: getattr(tf.linalg, name)(b), [tf.matmul(a, a, transpose_b=True) + tf.eye(128)])
        made[f"linalg_{name}"] = symmetric
    return made


def work(side):
    """Answers "NAME COUNT" by the seconds of a call, or nan where the op is not there."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print goes elsewhere
    if side == "lockstep":
        import lockstep as tf
    else:
        import tensorflow as tf
    threads = int(os.environ["OMP_NUM_THREADS"])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    known = cases(tf)
    print(" ".join(known), file=answers, flush=True)
    name = call = None
    for line in sys.stdin:
        wanted, count = line.split()
        try:
            if wanted != name:
                op, args = known[wanted]()
                function = tf.function(lambda *a, op=op: op(*a))
                name, call = wanted, lambda function=function, args=args: function(*args)
                call(), call()
            start = time.perf_counter()
            for _ in range(int(count)):
                call()
            answer = (time.perf_counter() - start) / int(count)
        except Exception:
            name, answer = None, math.nan
        print(answer, file=answers, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("pattern", nargs="?", default="", help="only ops whose name matches this regular expression")
    parser.add_argument("--threads", type=int, default=1, help="threads that both sides compute on; default: 1")
    parser.add_argument("--rounds", type=int, default=7, help="readings of each op and side; default: 7")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker)
    from front import Side
    elsewhere = {"PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    sides = {"lockstep": Side([sys.executable, "-B", __file__, "--worker", "lockstep"], options.threads),
             "tensorflow": Side([os.environ.get("LOCKSTEP_BENCH_PYTHON", "python3"), "-B", __file__, "--worker", "tensorflow"],
                                options.threads, **elsewhere)}
    if not sides["tensorflow"].works:
        sys.exit("LOCKSTEP_BENCH_PYTHON must name a Python that has TensorFlow")
    rows = []
    for name in sides["lockstep"].works:
        if not re.search(options.pattern, name):
            continue
        first = {side: process.seconds(name, 1)[0] for side, process in sides.items()}
        best = dict.fromkeys(sides, math.inf)
        for _ in range(options.rounds):
            for side, process in sides.items():
                if not math.isnan(first[side]):  # as many calls as last some ten milliseconds
                    best[side] = min(best[side], process.seconds(name, max(1, min(1000, int(0.01 / first[side]))))[0])
        rows.append((best["lockstep"] / best["tensorflow"], name, best))
        told = {side: f"{seconds * 1e6:10.1f}" if seconds < math.inf else f"{'not there':>10}" for side, seconds in best.items()}
        print(f"{name:34}{told['lockstep']} us, TensorFlow {told['tensorflow']} us   {rows[-1][0]:.2f}", flush=True)
    slower = [name for ratio, name, _ in sorted(rows, reverse=True) if 1 < ratio < math.inf]
    print(f"{len(slower)} of {len(rows)} take longer than TensorFlow's" + (": " + ", ".join(slower) if slower else ""))
    for process in sides.values():
        process.close()


if __name__ == "__main__":
    main()
