"""Records models that Keras saved, with what they predict and what a further step of training makes of that, as testdata/files.

    python3 -m venv venv && venv/bin/pip install keras==3.15.1 jax==0.10.2 h5py numpy
    venv/bin/python tests/keras/record_keras_files.py [NAME...]

NAME.keras        what model.save() wrote after some steps, packed again with compression
NAME.safetensors  inputs "x/0", ...; labels "y"; "prediction"; "prediction_after", when one more batch has been trained on
structures.*      further files of one model: .weights.h5, and .h5 as Keras 2 wrote it
"""

import os
import pathlib
import sys
import tempfile
import zipfile

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
from keras import layers, optimizers

import fixture_files

FOLDER = pathlib.Path(__file__).parent / "testdata" / "files"

OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "schedule": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), momentum=0.5),
    "adam": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01, use_ema=True, gradient_accumulation_steps=2),
    "adamax": lambda: optimizers.Adamax(0.01),
    "nadam": lambda: optimizers.Nadam(0.01),
    "rmsprop": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adadelta": lambda: optimizers.Adadelta(1.0),
    "adafactor": lambda: optimizers.Adafactor(0.1),
    "ftrl": lambda: optimizers.Ftrl(0.1),
    "lion": lambda: optimizers.Lion(0.01),
    "lamb": lambda: optimizers.Lamb(0.01),
    "muon": lambda: optimizers.Muon(0.01),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01)),
    "schedule_free": lambda: optimizers.ScheduleFreeAdamW(0.01),
}


def structures():
    """A model with every way in which layers hold layers."""
    sequence, tokens = keras.Input((6, 4), name="sequence"), keras.Input((5,), dtype="int32", name="tokens")
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(sequence)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.TimeDistributed(layers.Dense(3, activation="tanh"))(x)
    x = layers.BatchNormalization()(x)
    x = layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)])(x)
    e = layers.Embedding(10, 4)(tokens)
    e = layers.Conv1D(3, 2)(e)
    e = layers.GlobalAveragePooling1D()(e)
    x = layers.Concatenate()([x, e])
    x = keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dropout(0.0), layers.BatchNormalization(), layers.Dense(2)],
                         name="head")(x)
    x = x + 1.0
    return keras.Model([sequence, tokens], layers.Dense(2, name="last")(x))


def small():
    return keras.Sequential([keras.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(2)])


def pack(source, target):
    """The same archive, compressed and without times."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in sorted(old.namelist()):
            new.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED)


def record(name, model, optimizer, x):
    y = np.random.default_rng(2).standard_normal((8, 2)).astype(np.float32)
    model.compile(optimizer, loss="mse", metrics=["mae"])
    for _ in range(3):
        model.train_on_batch(x, y)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        pack(f"{folder}/model.keras", FOLDER / f"{name}.keras")
    if name == "structures":
        bare = structures()  # not compiled: no state of an optimizer
        bare.set_weights(model.get_weights())
        bare.save_weights(FOLDER / f"{name}.weights.h5")
        bare.save(FOLDER / f"{name}.h5")
    tensors = {f"x/{i}": value for i, value in enumerate(x if isinstance(x, list) else [x])}
    tensors["y"] = y
    tensors["prediction"] = np.asarray(model(x, training=False))
    model.train_on_batch(x, y)
    tensors["prediction_after"] = np.asarray(model(x, training=False))
    fixture_files.write_tensors(FOLDER / f"{name}.safetensors", tensors)
    print(name)


def main(names):
    generator = np.random.default_rng(1)
    sequence = generator.standard_normal((8, 6, 4)).astype(np.float32)
    tokens = generator.integers(0, 10, (8, 5)).astype(np.int32)
    x = generator.standard_normal((8, 3)).astype(np.float32)
    for name in names or ["structures", *OPTIMIZERS]:
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        if name == "structures":
            record(name, structures(), optimizers.Adam(0.01), [sequence, tokens])
        else:
            record(name, small(), OPTIMIZERS[name](), x)


if __name__ == "__main__":
    main(sys.argv[1:])
