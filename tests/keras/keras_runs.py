"""The runs that record_keras_runs.py records: RUNS maps a name to a function from Data to what is trained.

Rules that keep a run reproducible by another implementation: random layers have rate 0; no bias stands in front of a
batch normalisation, and no key bias in front of an attention's softmax unless plain SGD trains it (their gradients
are rounding noise, which Adam would scale up); everything is small.
"""

import itertools

import keras
import numpy as np
from keras import layers, losses, metrics, ops, optimizers, regularizers
from keras.optimizers import schedules

RUNS = {}


class Data:
    """Random examples: `batches` batches of `batch_size`."""

    def __init__(self, generator, batches, batch_size=6):
        self.generator = generator
        self.batches = batches
        self.batch_size = batch_size

    def _shape(self, shape):
        return (self.batches * self.batch_size, *np.atleast_1d(np.array(shape, int)))

    def normal(self, *shape):
        return self.generator.standard_normal(self._shape(shape)).astype(np.float32)

    def uniform(self, *shape, low=0.0, high=1.0):
        return self.generator.uniform(low, high, self._shape(shape)).astype(np.float32)

    def ints(self, *shape, low=0, high=2):
        return self.generator.integers(low, high, self._shape(shape)).astype(np.int32)

    def bits(self, *shape):
        return self.ints(*shape).astype(np.float32)

    def one_hot(self, classes, *shape):
        return np.eye(classes, dtype=np.float32)[self.ints(*shape, high=classes)]


def run(define):
    """Adds a run under the function's name."""
    add(define.__name__, define)
    return define


def add(name, define, covers=None):
    if name in RUNS:
        raise ValueError(f"two runs are called {name}")
    if covers:
        define.__doc__ = covers
    RUNS[name] = define


def training(data, model, x, y, optimizer=None, loss="mse", sample_weight=None, class_weight=None, **compile_arguments):
    """What a definition returns; plain SGD and mean squared error unless told otherwise."""
    return {"model": model, "x": x, "y": y, "batch_size": data.batch_size, "sample_weight": sample_weight,
            "class_weight": class_weight,
            "compile": {"optimizer": optimizer or optimizers.SGD(0.05), "loss": loss, **compile_arguments}}


def mlp(outputs, activation=None, inputs=5, **arguments):
    return keras.Sequential([layers.Input((inputs,)), layers.Dense(8, activation="tanh", **arguments),
                             layers.Dense(outputs, activation=activation)])


# ---------------------------------------------------------------------------------------------- first steps


@run
def dense_adam_sparse(data):
    """Sequential, Dense, Adam, SparseCategoricalCrossentropy(from_logits), accuracy by shape (sparse)."""
    model = keras.Sequential([layers.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    return training(data, model, data.normal(5), data.ints(high=4), optimizers.Adam(0.01),
                    losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


@run
def dense_sgd_mse(data):
    """Sequential, Dense, SGD, the loss and metric given by their short names."""
    return training(data, mlp(3), data.normal(5), data.normal(3), "sgd", "mse", metrics=["mae"])


@run
def dense_adam_binary(data):
    """A sigmoid unit, BinaryCrossentropy on probabilities, accuracy by shape (binary), labels of shape (B,)."""
    return training(data, mlp(1, "sigmoid"), data.normal(5), data.bits(), "adam", "binary_crossentropy",
                    metrics=["accuracy"])


@run
def dense_softmax_categorical(data):
    """softmax output, CategoricalCrossentropy on probabilities, accuracy by shape (categorical)."""
    return training(data, mlp(4, "softmax"), data.normal(5), data.one_hot(4), optimizers.Adam(0.01),
                    "categorical_crossentropy", metrics=["accuracy"])


@run
def dense_no_bias_names(data):
    """Named layers and model, use_bias=False, Dropout(0), an odd batch size."""
    data.batch_size = 7
    model = keras.Sequential([layers.Input((5,), name="features"),
                              layers.Dense(6, use_bias=False, activation="relu", name="hidden"),
                              layers.Dropout(0.0), layers.Dense(2, name="head")], name="small_net")
    return training(data, model, data.normal(5), data.normal(2), optimizers.Adam(0.01), "mae",
                    metrics=[metrics.MeanSquaredError(name="squared")])


@run
def functional_residual(data):
    """Functional model with a skip connection: Add, Concatenate, Activation."""
    x = inputs = layers.Input((6,))
    x = layers.Dense(6, activation="tanh")(x)
    x = layers.Add()([x, inputs])
    x = layers.Concatenate()([layers.Activation("sigmoid")(x), inputs])
    model = keras.Model(inputs, layers.Dense(2)(x))
    return training(data, model, data.normal(6), data.normal(2), optimizers.Adam(0.01))


@run
def functional_two_inputs(data):
    """Two named inputs, a layer shared by both, Subtract and Multiply."""
    left, right = layers.Input((4,), name="left"), layers.Input((4,), name="right")
    shared = layers.Dense(5, activation="tanh", name="shared")
    a, b = shared(left), shared(right)
    x = layers.Concatenate()([layers.Subtract()([a, b]), layers.Multiply()([a, b])])
    model = keras.Model([left, right], layers.Dense(1, activation="sigmoid")(x))
    return training(data, model, [data.normal(4), data.normal(4)], data.bits(1), optimizers.Adam(0.01),
                    losses.BinaryCrossentropy(), metrics=["accuracy", metrics.AUC(num_thresholds=11)])


@run
def functional_two_outputs(data):
    """Two outputs with a dict of losses, loss weights and metrics by output name."""
    inputs = layers.Input((5,), name="features")
    x = layers.Dense(7, activation="relu", name="trunk")(inputs)
    model = keras.Model(inputs, [layers.Dense(3, activation="softmax", name="kind")(x),
                                 layers.Dense(2, name="size")(x)])
    return training(data, model, data.normal(5), [data.ints(high=3), data.normal(2)], optimizers.Adam(0.01),
                    {"kind": "sparse_categorical_crossentropy", "size": losses.Huber(delta=0.5)},
                    loss_weights={"kind": 0.4, "size": 2.0}, metrics={"kind": ["accuracy"], "size": ["mae", "mse"]})


@run
def functional_nested(data):
    """A Sequential inside a functional model, used twice, and a functional model inside another."""
    block = keras.Sequential([layers.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(4)], name="block")
    inner_inputs = layers.Input((4,))
    inner = keras.Model(inner_inputs, layers.Dense(3, activation="relu", name="inner_dense")(inner_inputs),
                        name="inner")
    inputs = layers.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(inner(block(block(inputs)))), name="outer")
    return training(data, model, data.normal(4), data.normal(2), optimizers.SGD(0.1, momentum=0.9))


@run
def sample_weights(data):
    """Sample weights with sum_over_batch_size, in a metric and in a weighted metric."""
    return training(data, mlp(2), data.normal(5), data.normal(2), optimizers.SGD(0.1), losses.MeanSquaredError(),
                    sample_weight=data.uniform(high=2.0), metrics=["mae"], weighted_metrics=["mae", "mse"])
