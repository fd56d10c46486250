"""keras.datasets, from files of Keras' form."""

import json
import os
import pickle
import tempfile
import unittest

import numpy as np

import lockstep as tf

datasets = tf.keras.datasets


class DatasetFiles(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        before = os.environ.get("KERAS_HOME")
        self.addCleanup(lambda: os.environ.pop("KERAS_HOME") if before is None else os.environ.update(KERAS_HOME=before))
        os.environ["KERAS_HOME"] = self._folder.name
        os.mkdir(self._path())

    def _path(self, *parts):
        return os.path.join(self._folder.name, "datasets", *parts)

    def _write(self, name, **arrays):
        np.savez(self._path(name), **arrays)

    @staticmethod
    def _texts(*texts):
        made = np.empty(len(texts), dtype=object)
        made[:] = texts
        return made

    def test_texts_as_numbers_of_words(self):
        self._write("imdb.npz", x_train=self._texts([1, 2, 3], [4, 5], [6, 50, 7]), y_train=np.array([0, 1, 1]),
                    x_test=self._texts([8], [9, 10]), y_test=np.array([1, 0]))

        def sets(**options):
            (x, y), (v, w) = datasets.imdb.load_data(**options)
            return sorted(zip(x, y)), sorted(zip(v, w))
        # As Keras has it, the greatest number of all counts as unknown where num_words is not given.
        self.assertEqual(sets(), ([([1, 4, 5, 6], 0), ([1, 7, 8], 1), ([1, 9, 2, 10], 1)], [([1, 11], 1), ([1, 12, 13], 0)]))
        self.assertEqual(sets(num_words=10, skip_top=5), ([([2, 2, 5, 6], 0), ([2, 7, 8], 1), ([2, 9, 2, 2], 1)], [([2, 2], 1), ([2, 2, 2], 0)]))
        self.assertEqual(sets(num_words=9, oov_char=None, start_char=None, index_from=0)[0], [([1, 2, 3], 0), ([4, 5], 1), ([6, 7], 1)])
        self.assertEqual(sets(maxlen=4), ([([1, 7, 8], 1)], [([1, 11], 1), ([1, 12, 2], 0)]))
        with self.assertRaisesRegex(ValueError, "shorter than maxlen=2"):
            datasets.imdb.load_data(maxlen=2)
        self.assertNotEqual(*([text[1] for text in datasets.imdb.load_data(seed=seed)[0][0]] for seed in (1, 2)))

        self._write("reuters.npz", x=self._texts(*([number] for number in range(1, 11))), y=np.arange(10))
        (x, y), (v, w) = datasets.reuters.load_data(test_split=0.3, num_words=100)
        self.assertEqual((len(x), len(v)), (7, 3))
        self.assertEqual([text[1] - 4 for text in [*x, *v]], [*y, *w])
        self.assertEqual(y.tolist(), [9, 3, 6, 1, 0, 7, 4])  # the order of NumPy's RandomState(113)
        self.assertEqual((len(datasets.reuters.get_label_names()), datasets.reuters.get_label_names()[3]), (46, "earn"))

        with open(self._path("imdb_word_index.json"), "w") as file:
            json.dump({"the": 1}, file)
        self.assertEqual(datasets.imdb.get_word_index(), {"the": 1})

    def test_numbers(self):
        self._write("boston_housing.npz", x=np.arange(20.0).reshape(10, 2), y=np.arange(10.0))
        (x, y), (v, w) = datasets.boston_housing.load_data()
        self.assertEqual((x.shape, v.shape), ((8, 2), (2, 2)))
        np.testing.assert_array_equal(np.concatenate([x, v])[:, 0], 2 * np.concatenate([y, w]))
        self._write("california_housing.npz", x=np.zeros((700, 8), np.float32), y=np.zeros(700, np.float32))
        for version, count in (("large", 560), ("small", 480)):
            self.assertEqual(datasets.california_housing.load_data(version)[0][0].shape, (count, 8))
        with self.assertRaisesRegex(ValueError, "large or small"):
            datasets.california_housing.load_data("tiny")
        with self.assertRaisesRegex(ValueError, "test_split"):
            datasets.boston_housing.load_data(test_split=1.0)

    def test_digits_of_a_file(self):
        arrays = {"x_train": np.zeros((3, 28, 28), np.uint8), "y_train": np.arange(3), "x_test": np.ones((2, 28, 28), np.uint8), "y_test": np.arange(2)}
        self._write("mnist.npz", **arrays)
        self._write("mine.npz", **arrays)
        for options in ({}, {"path": "mine.npz"}, {"path": self._path("mine.npz")}):
            (x, y), (v, w) = datasets.mnist.load_data(**options)
            self.assertEqual((x.shape, y.tolist(), v.shape, w.tolist()), ((3, 28, 28), [0, 1, 2], (2, 28, 28), [0, 1]))

    def test_colour_images_as_keras_unpacks_them(self):
        def write(folder, file, first, **labels):
            os.makedirs(self._path(folder), exist_ok=True)
            data = np.arange(first, first + 2 * 3072).reshape(2, 3072).astype(np.uint8)
            with open(self._path(folder, file), "wb") as batch:
                pickle.dump({b"data": data, **{name.encode(): values for name, values in labels.items()}}, batch, protocol=2)
            return data
        for number in range(1, 6):
            data = write("cifar-10-batches-py", f"data_batch_{number}", number, labels=[number, 9])
        write("cifar-10-batches-py", "test_batch", 0, labels=[1, 2])
        (x, y), (v, w) = datasets.cifar10.load_data()
        self.assertEqual((x.shape, x.dtype, y[:, 0].tolist(), v.shape, w.tolist()), ((10, 32, 32, 3), np.uint8, [1, 9, 2, 9, 3, 9, 4, 9, 5, 9], (2, 32, 32, 3), [[1], [2]]))
        np.testing.assert_array_equal(x[8, :, :, 1].reshape(-1), data[0, 1024:2048])

        for file in ("train", "test"):
            write(os.path.join("cifar-100-python-target", "cifar-100-python"), file, 0, fine_labels=[70, 71], coarse_labels=[3, 4])
        self.assertEqual(datasets.cifar100.load_data()[0][1].tolist(), [[70], [71]])
        self.assertEqual(datasets.cifar100.load_data("coarse")[1][1].tolist(), [[3], [4]])
        with self.assertRaisesRegex(ValueError, "fine or coarse"):
            datasets.cifar100.load_data("rough")
        with open(self._path("cifar-10-batches-py", "test_batch"), "wb") as batch:
            pickle.dump(os.system, batch)
        with self.assertRaisesRegex(pickle.UnpicklingError, "nothing that an array is made of"):
            datasets.cifar10.load_data()

    def test_files_of_arrays_call_nothing(self):
        class Calling:
            def __reduce__(self):
                return os.system, ("true",)
        lists = np.array([[1, 2], [3]], dtype=object)
        calling = np.array([Calling()], dtype=object)
        self._write("imdb.npz", x_train=calling, y_train=np.ones(1), x_test=lists, y_test=np.ones(2))
        with self.assertRaisesRegex(pickle.UnpicklingError, "system is nothing that an array is made of"):
            datasets.imdb.load_data()

    def test_files_that_are_not_there_are_named(self):
        for load, file in ((datasets.imdb.load_data, "imdb.npz"), (datasets.reuters.load_data, "reuters.npz"),
                           (datasets.boston_housing.load_data, "boston_housing.npz"), (datasets.california_housing.load_data, "california_housing.npz"),
                           (datasets.reuters.get_word_index, "reuters_word_index.json")):
            with self.assertRaisesRegex(FileNotFoundError, rf"{self._path()}.*nothing is fetched unasked.*/{file}"):
                load()
        with self.assertRaisesRegex(FileNotFoundError, "no file 'other.npz'"):
            datasets.mnist.load_data("other.npz")
        self._write("boston_housing.npz", a=np.zeros(3))
        with self.assertRaisesRegex(ValueError, "has no array 'x'; it has a"):
            datasets.boston_housing.load_data()
        with self.assertRaisesRegex(AttributeError, "did you mean 'imdb'"):
            datasets.imbd
