"""One side of a comparison, in a process of its own: `workers.py SIDE`.

It computes on OMP_NUM_THREADS threads. A line "WORK COUNT" on the standard input makes COUNT calls of that work; the answer is the
seconds that one took. Sides are lockstep, numpy, tensorflow, and keras (on the backend that KERAS_BACKEND names). What a side cannot do
it says at the start: its first line lists its works.
"""

import os
import sys
import time

import numpy as np

BATCH, STEPS, SEED = 32, 64, 0


def examples():
    """Of one epoch: the same for all sides, the C++ one's are of the same shape."""
    generator = np.random.default_rng(SEED)
    return generator.random((BATCH * STEPS, 784), np.float32), generator.integers(0, 10, BATCH * STEPS).astype(np.int32)


def mlp(keras):
    model = keras.Sequential([keras.layers.Input((784,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def repeated(call):
    def run(count):
        for _ in range(count):
            call()
    return run


def add_of(a, b):
    def run(count):
        for _ in range(count):
            a + b
    return run


def compiled(tf):
    function = tf.function(lambda x, y: x + y)
    x, y = tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])
    return repeated(lambda: function(x, y))


def training(keras):
    model, (x, y) = mlp(keras), examples()

    def fit(count):
        model.fit(x, y, batch_size=BATCH, epochs=count, verbose=0)
    batch_x, batch_y = x[:BATCH], y[:BATCH]
    return {"fit": fit, "train_on_batch": repeated(lambda: model.train_on_batch(batch_x, batch_y))}


def works_of(side):
    if side == "numpy":
        return {"add": add_of(np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32))}
    if side == "keras":
        import keras
        return training(keras)
    if side == "lockstep":
        import lockstep as tf
    else:
        import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ["OMP_NUM_THREADS"]))
    works = {"add": add_of(tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])), "call": compiled(tf)}
    return works if side != "lockstep" else {**works, **training(tf.keras)}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print goes elsewhere
    works = works_of(sys.argv[1])
    print(" ".join(works), file=answers, flush=True)
    for line in sys.stdin:
        name, count = line.split()
        start = time.perf_counter()
        works[name](int(count))
        print((time.perf_counter() - start) / int(count), file=answers, flush=True)


if __name__ == "__main__":
    main()
