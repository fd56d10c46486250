"""Records checkpoints of TensorFlow and of its Keras 2, with what the models predict, as testdata/tensorflow.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21.0 tf_keras==2.21.0
    venv/bin/python tests/keras/record_tensorflow_checkpoints.py

variables.*          tf.train.Checkpoint of variables of several types
weights.*            tf_keras' model.save_weights() in TensorFlow's format
training.*           tf.train.Checkpoint(model=model, optimizer=optimizer), after a step
weights.safetensors  "x", "prediction", and "prediction_after" the step
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras import layers

import fixture_files

FOLDER = pathlib.Path(__file__).parent / "testdata" / "tensorflow"


def main():
    tf.random.set_seed(3)
    types = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
    values = {name: tf.Variable(tf.cast(tf.constant([[0, 1, 1], [1, 0, 1]]), name)) for name in types}
    tf.train.Checkpoint(text=tf.Variable(["some", "text"]), scalar=tf.Variable(2.5), **values).write(str(FOLDER / "variables"))

    sequence = tf_keras.Input((6, 4))
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(sequence)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.TimeDistributed(layers.Dense(3, activation="tanh"))(x)
    x = layers.Conv1D(3, 2)(x)
    x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = tf_keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dropout(0.0), layers.Dense(2)])(x)
    model = tf_keras.Model(sequence, layers.Dense(2)(x))
    generator = np.random.default_rng(1)
    data = generator.standard_normal((8, 6, 4)).astype(np.float32)
    labels = generator.standard_normal((8, 2)).astype(np.float32)
    tensors = {"x": data, "prediction": model(data, training=False).numpy()}
    model.save_weights(str(FOLDER / "weights"), save_format="tf")
    optimizer = tf_keras.optimizers.Adam(0.01)
    model.compile(optimizer, loss="mse")
    model.train_on_batch(data, labels)
    tensors["prediction_after"] = model(data, training=False).numpy()
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(FOLDER / "training"))
    fixture_files.write_tensors(FOLDER / "weights.safetensors", tensors)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    main()
