"""Files, images, event files, texts."""

import os
import tempfile
import unittest

import numpy as np

import lockstep as tf
from lockstep import keras


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_images_and_files(self):
        image = np.random.default_rng(0).integers(0, 255, (4, 5, 3)).astype(np.uint8)
        tf.io.write_file(self.path("a.png"), tf.io.encode_png(image))
        np.testing.assert_array_equal(tf.io.decode_png(tf.io.read_file(self.path("a.png"))).numpy(), image)
        with self.assertRaisesRegex(NotImplementedError, "gives uint8"):
            tf.io.decode_png(tf.io.read_file(self.path("a.png")), dtype=tf.float32)
        with self.assertRaises(tf.errors.NotFoundError):
            tf.io.read_file(self.path("none"))

    def test_records_and_lines(self):
        with tf.io.TFRecordWriter(self.path("r")) as writer:
            for text in (b"one", b"three"):
                writer.write(text)
        self.assertEqual([bytes(r.numpy()) for r in tf.data.TFRecordDataset(self.path("r"))], [b"one", b"three"])
        with open(self.path("t.txt"), "w") as file:
            file.write("a b\nc\n")
        self.assertEqual([bytes(line.numpy()).decode() for line in tf.data.TextLineDataset(self.path("t.txt"))], ["a b", "c"])

    def test_events(self):
        writer = tf.summary.create_file_writer(self.folder)
        with writer.as_default():
            for step in range(3):
                tf.summary.scalar("loss", 0.5 / (step + 1), step=step)
            tf.summary.histogram("w", tf.random.normal((10,)), step=0)
        writer.flush()
        self.assertTrue(any("tfevents" in name and os.path.getsize(self.path(name)) > 100 for name in os.listdir(self.folder)))

    def test_texts_become_numbers(self):
        layer = keras.layers.TextVectorization(max_tokens=10, output_sequence_length=4)
        layer.adapt(["the cat sat", "the dog"])
        self.assertEqual(layer.get_vocabulary()[:3], ["", "[UNK]", "the"])
        rows = layer(["The cat!", "a bird"])
        self.assertEqual((rows.shape, rows.dtype), ((2, 4), tf.int64))
        self.assertEqual(rows.numpy()[1].tolist(), [1, 1, 0, 0])
        lookup = keras.layers.StringLookup(vocabulary=["a", "b"])
        self.assertEqual(lookup(["b", "z", "a"]).numpy().tolist(), [2, 0, 1])
        with self.assertRaisesRegex(TypeError, "takes texts, and was given the value \"x\" of float32"):
            layer(keras.Input((4,), name="x"))
