"""Data sets in the files that Keras publishes. They are read where they lie, and never fetched unasked."""

import io
import json
import os
import pickle

import numpy as np

_PUBLISHED = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"


def cache_folder(*parts):
    """Where Keras keeps its files of data."""
    return os.path.join(os.path.expanduser(os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")), "datasets", *parts)


def found(path):
    """The file as it is named, or of this name in Keras' folder; None where there is neither."""
    return next((place for place in (path, cache_folder(path)) if os.path.isfile(place)), None)


def _file(caller, path):
    path = os.fspath(path)
    place = found(path)
    if place is None:
        url = _PUBLISHED + (f"{caller}_word_index.json" if path.endswith(".json") else f"{caller}.npz")
        raise FileNotFoundError(f"keras.datasets.{caller}: there is no file {path!r}, neither here nor in {cache_folder()!r}, and nothing is fetched "
                                f"unasked: keras.utils.get_file(origin={url!r}) fetches Keras' file to that folder")
    return place


def arrays(caller, path, names):
    """The arrays of these names in a file of NumPy's."""
    import zipfile  # which few programs need
    place = _file(caller, path)
    with zipfile.ZipFile(place) as file:
        there = [name.removesuffix(".npy") for name in file.namelist()]
        missing = [name for name in names if name not in there]
        if missing:
            raise ValueError(f"keras.datasets.{caller}: {place!r} has no array {missing[0]!r}; it has {', '.join(there)}")
        return [_array(file.read(f"{name}.npy")) for name in names]


def _array(contents):
    """An array; lists of different lengths are pickled, and read without calling what a pickle may name."""
    file = io.BytesIO(contents)
    header = np.lib.format.read_array_header_1_0 if np.lib.format.read_magic(file) == (1, 0) else np.lib.format.read_array_header_2_0
    if header(file)[2].hasobject:
        return _Arrays(file).load()
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _shuffled(numbers, *arrays):
    order = np.arange(len(arrays[0]))
    numbers.shuffle(order)
    return [array[order] for array in arrays]


def _marked(texts, start_char, index_from):
    """Numbers of words, moved to make room for those that mark something, and the one that begins a text."""
    begin = [] if start_char is None else [start_char]
    return [begin + [word + index_from for word in text] for text in texts]


def _shorter_than(maxlen, texts, labels):
    kept = [number for number, text in enumerate(texts) if len(text) < maxlen]
    if not kept:
        raise ValueError(f"no text is shorter than maxlen={maxlen}; take a larger one")
    return [texts[number] for number in kept], labels[kept]


def _of_frequent_words(texts, num_words, skip_top, oov_char):
    # As Keras has it: without num_words the greatest number counts as unknown.
    num_words = num_words or max(max(text, default=0) for text in texts)
    if oov_char is None:
        return [[word for word in text if skip_top <= word < num_words] for text in texts]
    return [[word if skip_top <= word < num_words else oov_char for word in text] for text in texts]


def _as_objects(texts):
    made = np.empty(len(texts), dtype=object)
    made[:] = texts
    return made


def imdb(path="imdb.npz", num_words=None, skip_top=0, maxlen=None, seed=113, start_char=1, oov_char=2, index_from=3):
    """Reviews of films as lists of numbers of words, the more frequent a word the smaller its number, and whether they are positive."""
    x_train, y_train, x_test, y_test = arrays("imdb", path, ("x_train", "y_train", "x_test", "y_test"))
    numbers, halves = np.random.RandomState(seed), []
    for x, y in (_shuffled(numbers, x_train, y_train), _shuffled(numbers, x_test, y_test)):
        x = _marked(x, start_char, index_from)
        halves.append(_shorter_than(maxlen, x, y) if maxlen else (x, y))
    (x_train, y_train), (x_test, y_test) = halves
    texts = _as_objects(_of_frequent_words(x_train + x_test, num_words, skip_top, oov_char))
    return (texts[:len(x_train)], y_train), (texts[len(x_train):], y_test)


def reuters(path="reuters.npz", num_words=None, skip_top=0, maxlen=None, test_split=0.2, seed=113, start_char=1, oov_char=2, index_from=3):
    """News in 46 topics as lists of numbers of words, the more frequent a word the smaller its number."""
    x, y = _shuffled(np.random.RandomState(seed), *arrays("reuters", path, ("x", "y")))
    x = _marked(x, start_char, index_from)
    if maxlen:
        x, y = _shorter_than(maxlen, x, y)
    return _split(_as_objects(_of_frequent_words(x, num_words, skip_top, oov_char)), y, test_split)


def boston_housing(path="boston_housing.npz", test_split=0.2, seed=113):
    """Prices of houses in Boston's towns, with 13 properties of each."""
    return _split(*_shuffled(np.random.RandomState(seed), *arrays("boston_housing", path, ("x", "y"))), test_split)


def california_housing(version="large", path="california_housing.npz", test_split=0.2, seed=113):
    """Prices of houses in Californian districts, with 8 properties of each; the "small" version has 600 of them."""
    if version not in ("large", "small"):
        raise ValueError(f"keras.datasets.california_housing: version is large or small, received {version!r}")
    x, y = (part[:600] if version == "small" else part for part in arrays("california_housing", path, ("x", "y")))
    return _split(*_shuffled(np.random.RandomState(seed), x, y), test_split)


def _split(x, y, test_split):
    if not 0 <= test_split < 1:
        raise ValueError(f"test_split is a part of the data, from 0 on and less than 1, received {test_split}")
    count = int(len(x) * (1 - test_split))
    return (x[:count], y[:count]), (x[count:], y[count:])


class _Arrays(pickle.Unpickler):
    """Reads arrays and calls nothing else."""

    def find_class(self, module, name):
        if (module.partition(".")[0], name) not in (("numpy", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")):
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that an array is made of")
        return super().find_class(module, name)


def cifar(name, files, label):
    """(images, labels) of each list of files, from the folder of this name that Keras unpacks; None where there is none."""
    folder = next((place for place in (cache_folder(f"{name}-target", name), cache_folder(name)) if os.path.isdir(place)), None)
    if folder is None:
        return None
    sets = []
    for batches in files:
        parts = []
        for batch in batches:
            with open(os.path.join(folder, batch), "rb") as file:
                parts.append(_Arrays(file, encoding="bytes").load())
        images = np.concatenate([np.asarray(part[b"data"], np.uint8).reshape(-1, 3, 32, 32) for part in parts])
        labels = np.concatenate([np.asarray(part[label], np.uint8) for part in parts])
        sets.append((np.ascontiguousarray(images.transpose(0, 2, 3, 1)), labels[:, None]))
    return tuple(sets)


def word_index(name):
    """The function that reads the numbers of the words of a data set."""
    def get_word_index(path=f"{name}_word_index.json"):
        with open(_file(name, path), encoding="utf-8") as file:
            return json.load(file)
    get_word_index.__doc__ = "The number of each word, before index_from moves it."
    return get_word_index


def reuters_label_names():
    """The topics, in the order of their numbers."""
    return ("cocoa", "grain", "veg-oil", "earn", "acq", "wheat", "copper", "housing", "money-supply", "coffee", "sugar", "trade", "reserves", "ship",
            "cotton", "carcass", "crude", "nat-gas", "cpi", "money-fx", "interest", "gnp", "meal-feed", "alum", "oilseed", "gold", "tin",
            "strategic-metal", "livestock", "retail", "ipi", "iron-steel", "rubber", "heat", "jobs", "lei", "bop", "zinc", "orange", "pet-chem", "dlr",
            "gas", "silver", "wpi", "hog", "lead")
