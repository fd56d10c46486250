"""Records models that Keras 2 saved as .h5 files.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu tf_keras==2.21.0 numpy
    venv/bin/python tests/keras/record_keras2_file.py [NAME...]

files/keras2.h5, files/keras2.safetensors    a model; what it predicts and what a further step of training makes of that, as
                                             record_keras_files.py writes it
keras2/NAME.h5, keras2/NAME.safetensors      others; inputs "x/0", ...; labels "y/0", ... where they are compiled; "prediction/0", ...,
                                             and "prediction_after/0", ... after another step
"""

import os
import pathlib
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tf_keras as keras
from tf_keras import layers

import fixture_files

FOLDER = pathlib.Path(__file__).parent / "testdata" / "files"
OTHERS = FOLDER.parent / "keras2"


def model():
    """Layers in layers, calls with several inputs, and settings that Keras 3 has no more."""
    sequence, image = keras.Input((6, 4), name="sequence"), keras.Input((6, 6, 2), name="image")
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(sequence)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.GlobalAveragePooling1D()(x)
    y = layers.Conv2D(3, 3, padding="same", use_bias=False)(image)
    y = layers.BatchNormalization()(y)
    y = layers.ReLU(6.0)(y)
    y = layers.DepthwiseConv2D(3)(y)
    y = layers.SeparableConv2D(4, 3)(y)
    y = layers.GlobalAveragePooling2D()(y)
    head = keras.Sequential([layers.Dense(3, activation="tanh", input_shape=(10,)), layers.LayerNormalization()], name="head")
    x = layers.Concatenate()([x, y])
    return keras.Model([sequence, image], layers.Dense(2, name="last")(head(x)))


def calls():
    """States to begin with, masks in a list, dictionaries, a Sequential at the end, training that was said, and old names and settings."""
    sequence, start = keras.Input((5, 4), name="sequence"), keras.Input((3,), name="start")
    keep = keras.Input((5,), dtype="bool", name="keep")
    _, state, carry = layers.LSTM(3, return_state=True)(sequence)
    x = layers.LSTM(3, return_sequences=True)(sequence, initial_state=[state, carry])
    x = layers.Bidirectional(layers.GRU(3, return_sequences=True))(x, initial_state=[state, carry])
    y = layers.Dense(4, name="of/start")(layers.GRU(3)(sequence, initial_state=start))
    y = layers.Dropout(0.5)(layers.LeakyReLU(alpha=0.25)(y), training=False)
    z = layers.GlobalAveragePooling1D()(layers.Attention()([x, x], mask=[keep, keep]))
    p, q = keras.Input((6,), name="p"), keras.Input((4,), name="q")
    pair = keras.Model({"q": q, "p": p}, layers.Dense(3)(layers.Concatenate()([q, p])), name="pair")
    bins = layers.Embedding(3, 2)(layers.Discretization([0.0, 0.5])(start))
    head = keras.Sequential([layers.Dense(2, activation="tanh", input_shape=(3,))], name="head")
    return keras.Model([sequence, start, keep], [head(pair({"p": z, "q": y})), bins])


def frozen():
    """The first layer inside of the model inside is frozen, so that its weights are listed behind those of the second."""
    x = keras.Input((4,))
    first, second = layers.Dense(4, name="first"), layers.Dense(4, name="second")
    first.trainable = False
    inner = keras.Model(x, second(first(x)), name="inner")
    y = keras.Input((4,))
    return keras.Model(y, layers.Dense(2, name="last")(inner(y)))


def square():
    """Weights of one shape, so that slots in wrong places would fit."""
    return keras.Sequential([layers.Dense(4, use_bias=False, name="p", input_shape=(4,)), layers.Dense(4, use_bias=False, name="q")])


def single():
    """One weight, so that it has as many variables as the optimizer would have with a rate in the place of its momentum."""
    return keras.Sequential([layers.Dense(1, use_bias=False, input_shape=(4,))])


def two():
    x = keras.Input((4,))
    return keras.Model(x, [layers.Dense(2, name="a")(x), layers.Dense(3, activation="softmax", name="b")(x)])


def activated():
    """A function that Keras 3 has otherwise."""
    return keras.Sequential([layers.Dense(2, activation="hard_sigmoid", name="hard", input_shape=(4,))])


def compiled(model, optimizer, loss="mse", metrics=None):
    made = model()
    made.compile(optimizer, loss=loss, metrics=metrics)
    return made


def others(normal, chances):
    """By name: the model, its inputs and, where it is compiled, its labels."""
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    keep = np.ones((4, 5), bool)
    keep[:, 3] = False
    return {
        "calls": lambda: (calls(), [normal(4, 5, 4), normal(4, 3), keep], []),
        "frozen": lambda: (frozen(), [normal(4, 4)], []),
        "activated": lambda: (activated(), [normal(4, 4)], []),
        "older_adam": lambda: (compiled(square, keras.optimizers.legacy.Adam(0.01)), [normal(4, 4)], [normal(4, 4)]),
        "older_rmsprop": lambda: (compiled(square, keras.optimizers.legacy.RMSprop(0.01, momentum=0.5, centered=True)),
                                  [normal(4, 4)], [normal(4, 4)]),
        "sgd": lambda: (compiled(single, keras.optimizers.SGD(0.1)), [normal(4, 4)], [normal(4, 1)]),
        "objects": lambda: (compiled(two, keras.optimizers.SGD(schedule),
                                     [keras.losses.CosineSimilarity(axis=-1), keras.losses.CategoricalCrossentropy(label_smoothing=0.1)],
                                     [["mae", keras.metrics.MeanSquaredError(name="squares")], ["accuracy"]]),
                            [normal(4, 4)], [normal(4, 2), chances(4, 3)])}


def listed(results):
    return [np.asarray(result) for result in (results if isinstance(results, (list, tuple)) else [results])]


def record(name, made, x, y):
    for _ in range(3 if y else 0):
        made.train_on_batch(x, y)
    made.save(OTHERS / f"{name}.h5")
    tensors = {f"x/{i}": value for i, value in enumerate(x)}
    tensors.update({f"y/{i}": value for i, value in enumerate(y)})
    tensors.update({f"prediction/{i}": value for i, value in enumerate(listed(made(x, training=False)))})
    if y:
        made.train_on_batch(x, y)
        tensors.update({f"prediction_after/{i}": value for i, value in enumerate(listed(made(x, training=False)))})
    fixture_files.write_tensors(OTHERS / f"{name}.safetensors", tensors)


def main(names):
    generator = np.random.default_rng(1)

    def normal(*shape):
        return generator.standard_normal(shape).astype(np.float32)

    def chances(rows, classes):
        return np.eye(classes, dtype=np.float32)[generator.integers(0, classes, rows)]
    OTHERS.mkdir(exist_ok=True)
    for name, make in others(normal, chances).items():
        if not names or name in names:
            keras.backend.clear_session()
            keras.utils.set_random_seed(3)
            generator.bit_generator.state = np.random.default_rng(1).bit_generator.state  # each is recorded as if it were alone
            record(name, *make())
    if names and "keras2" not in names:
        return
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    generator = np.random.default_rng(1)
    x = [generator.standard_normal((8, 6, 4)).astype(np.float32), generator.standard_normal((8, 6, 6, 2)).astype(np.float32)]
    y = generator.standard_normal((8, 2)).astype(np.float32)
    made = model()
    made.compile(keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    for _ in range(3):
        made.train_on_batch(x, y)
    made.save(FOLDER / "keras2.h5")
    tensors = {"x/0": x[0], "x/1": x[1], "y": y, "prediction": np.asarray(made(x, training=False))}
    made.train_on_batch(x, y)
    tensors["prediction_after"] = np.asarray(made(x, training=False))
    fixture_files.write_tensors(FOLDER / "keras2.safetensors", tensors)


if __name__ == "__main__":
    main(sys.argv[1:])
