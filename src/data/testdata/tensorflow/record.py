"""Writes the files of this folder with TensorFlow: what the tests of TFRecord files and Examples read."""
import pathlib

import tensorflow as tf

HERE = pathlib.Path(__file__).parent


def examples():
    for i in range(3):
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes(range(i, i + 6))])),
            "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a" * k for k in range(i)])),
            "weights": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5 * i, -1.25])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i - 1])),
            "numbers": tf.train.Feature(int64_list=tf.train.Int64List(value=[10**k * (-1) ** k for k in range(4 * i)])),
        }
        if i == 2:
            feature["extra"] = tf.train.Feature(float_list=tf.train.FloatList(value=[3.0]))
        yield tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


for name, compression in [("plain", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")]:
    with tf.io.TFRecordWriter(str(HERE / f"{name}.tfrecord"), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for example in examples():
            writer.write(example)
