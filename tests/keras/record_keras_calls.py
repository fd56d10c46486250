"""Records a model of Keras 3 whose layers were called with masks and with what call() takes for granted, as testdata/calls.

    python3 -m venv venv && venv/bin/pip install keras==3.15.1 jax==0.10.2 h5py numpy
    venv/bin/python tests/keras/record_keras_calls.py

calls.keras          the model
calls.safetensors    inputs "x/0", ...; "prediction/0", ... of its outputs
frozen.h5            a model in the older format, in which layers of a model inside are frozen
frozen.safetensors   the same of it
"""

import os
import pathlib
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
from keras import layers

import fixture_files
from record_keras_files import pack

FOLDER = pathlib.Path(__file__).parent / "testdata" / "calls"


def calls():
    """Keras writes training=False of Dropout and LSTM and training=True of RandomFlip and Resizing, which nobody said."""
    image, vector = keras.Input((4, 4, 1), name="image"), keras.Input((8,), name="vector")
    query, value = keras.Input((3, 4), name="query"), keras.Input((5, 4), name="value")
    of_query, of_value = keras.Input((3,), dtype="bool", name="of_query"), keras.Input((5,), dtype="bool", name="of_value")
    flipped = layers.Resizing(4, 4, interpolation="nearest")(layers.RandomFlip("horizontal")(image))
    dropped = layers.Dropout(0.5)(vector)
    attended = layers.Attention()([query, value], mask=[of_query, of_value])
    state = layers.LSTM(2, dropout=0.5)(value)
    return keras.Model([image, vector, query, value, of_query, of_value], [flipped, dropped, attended, state])


def frozen():
    """The first layer inside of the model inside is frozen, so that its weights are listed behind those of the second."""
    x = keras.Input((4,))
    first, second = layers.Dense(4, name="first"), layers.Dense(4, name="second")
    first.trainable = False
    inner = keras.Model(x, second(layers.BatchNormalization(name="between")(first(x))), name="inner")
    y = keras.Input((4,))
    return keras.Model(y, layers.Dense(2, name="last")(inner(y)))


def moved(model, generator):
    """Other weights than zeros and ones, which would hide that they changed places."""
    model.set_weights([value + 0.1 * np.abs(generator.standard_normal(value.shape)).astype(value.dtype)
                       if value.dtype == np.float32 else value for value in model.get_weights()])


def record(name, model, x):
    results = model(x, training=False)
    results = results if isinstance(results, (list, tuple)) else [results]
    tensors = {f"x/{i}": value for i, value in enumerate(x)}
    tensors.update({f"prediction/{i}": np.asarray(value) for i, value in enumerate(results)})
    fixture_files.write_tensors(FOLDER / f"{name}.safetensors", tensors)


def main():
    keras.utils.set_random_seed(3)
    generator = np.random.default_rng(1)

    def normal(*shape):
        return generator.standard_normal(shape).astype(np.float32)
    FOLDER.mkdir(exist_ok=True)
    model = calls()
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        pack(f"{folder}/model.keras", FOLDER / "calls.keras")
    of_query, of_value = np.ones((2, 3), bool), np.ones((2, 5), bool)
    of_query[:, 2], of_value[:, 1], of_value[0, 3] = False, False, False
    record("calls", model, [normal(2, 4, 4, 1), normal(2, 8), normal(2, 3, 4), normal(2, 5, 4), of_query, of_value])
    model = frozen()
    moved(model, generator)
    model.save(FOLDER / "frozen.h5")
    record("frozen", model, [normal(3, 4)])


if __name__ == "__main__":
    main()
