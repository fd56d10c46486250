"""Writes testdata/text_model.keras and text_model.json: a model of Keras' that begins with texts, and what it predicts.

    python tests/python/record_text_models.py

Its vocabularies were learned, so that they are files in the archive; layers of texts stand in a model inside, too. Needs keras and tensorflow.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
import tensorflow as tf

FOLDER = pathlib.Path(__file__).resolve().parent / "testdata"
TITLES = ["the movie was great", "it was a bad film", "great, great!", "bad bad bad", "I loved it", "hated it é"]


def main():
    layers = keras.layers
    keras.utils.set_random_seed(1)
    rows, worth = layers.TextVectorization(max_tokens=12, output_sequence_length=4), layers.TextVectorization(output_mode="tf_idf")
    kinds = layers.StringLookup(output_mode="multi_hot")
    rows.adapt(TITLES), worth.adapt(TITLES), kinds.adapt(["a", "b", "c"])
    inner = keras.Input((1,), dtype="string")
    inside = keras.Model(inner, [rows(inner), worth(inner)], name="inside")
    title, pair, size = keras.Input((1,), dtype="string", name="title"), keras.Input((2,), dtype="string", name="pair"), keras.Input((2,), name="size")
    numbers, counts = inside(title)
    parts = [layers.Flatten()(layers.Embedding(12, 2)(numbers)), layers.Flatten()(layers.Dense(2)(counts)), kinds(pair),
             layers.Hashing(4, output_mode="one_hot")(title), size]
    model = keras.Model({"title": title, "pair": pair, "size": size}, layers.Dense(2)(layers.Concatenate()(parts)))
    given = {"title": TITLES, "pair": [["a", "b"], ["c", "c"], ["a", "z"], ["z", "z"], ["b", "a"], ["c", "a"]],
             "size": [[0.5 * i, 1.0 - i] for i in range(6)]}
    x = {"title": tf.constant(TITLES)[:, None], "pair": tf.constant(given["pair"]), "size": np.array(given["size"], np.float32)}
    model.save(FOLDER / "text_model.keras")
    recorded = {"recorded_with": f"keras {keras.__version__} on tensorflow {tf.__version__}", "given": given,
                "predicted": model.predict(x, verbose=0).tolist()}
    (FOLDER / "text_model.json").write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
