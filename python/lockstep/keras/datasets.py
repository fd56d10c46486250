"""keras.datasets: arrays of NumPy's, from files of Keras', from a folder, the cache or their publishers."""

import types

from .. import _lockstep
from . import _published_data as _files

_sets = _lockstep.datasets


def _arrays(sets):
    return tuple(tuple(tensor.numpy() for tensor in part) for part in sets)


def _module(name, load, **others):
    """load_data() and what else is asked of this data set."""
    made = types.ModuleType(f"{__name__}.{name}", load.__doc__)
    made.__dict__.update(load_data=load, **others)
    return made


def _mnist(path="mnist.npz"):
    """Handwritten digits: (60000, 28, 28) and (10000, 28, 28) bytes, with labels. A path names a file of Keras'."""
    if path == "mnist.npz" and _files.found(path) is None:
        return _arrays(_sets.mnist(""))
    x_train, y_train, x_test, y_test = _files.arrays("mnist", path, ("x_train", "y_train", "x_test", "y_test"))
    return (x_train, y_train), (x_test, y_test)


def _fashion_mnist():
    """Clothes, in the format of MNIST."""
    return _arrays(_sets.fashion_mnist(_files.cache_folder("fashion-mnist")))


def _cifar10():
    """Colour images of 10 classes."""
    files = [f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]
    return _files.cifar("cifar-10-batches-py", files, b"labels") or _arrays(_sets.cifar10(""))


def _cifar100(label_mode="fine"):
    """Colour images of 100 classes, or of 20 coarse ones."""
    if label_mode not in ("fine", "coarse"):
        raise ValueError(f"keras.datasets.cifar100: label_mode is fine or coarse, received {label_mode!r}")
    return _files.cifar("cifar-100-python", (["train"], ["test"]), f"{label_mode}_labels".encode()) or _arrays(_sets.cifar100(label_mode, ""))


mnist, fashion_mnist, cifar10, cifar100 = (_module("mnist", _mnist), _module("fashion_mnist", _fashion_mnist), _module("cifar10", _cifar10),
                                           _module("cifar100", _cifar100))
imdb = _module("imdb", _files.imdb, get_word_index=_files.word_index("imdb"))
reuters = _module("reuters", _files.reuters, get_word_index=_files.word_index("reuters"), get_label_names=_files.reuters_label_names)
boston_housing = _module("boston_housing", _files.boston_housing)
california_housing = _module("california_housing", _files.california_housing)


def digits(train_size=60000, test_size=10000, seed=0):
    """Digits that are made, not loaded: for machines without a network. Lockstep's own."""
    return _arrays(_sets.digits(seed, train_size, test_size))
