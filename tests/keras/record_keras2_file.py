"""Records a model that Keras 2 saved as an .h5 file, as testdata/files/keras2.h5.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu tf_keras==2.21.0 numpy
    venv/bin/python tests/keras/record_keras2_file.py

keras2.safetensors has what keras2.h5 predicts and what a further step of training makes of that, as record_keras_files.py writes it.
"""

import os
import pathlib

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tf_keras as keras
from tf_keras import layers

import fixture_files

FOLDER = pathlib.Path(__file__).parent / "testdata" / "files"


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


def main():
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
    main()
