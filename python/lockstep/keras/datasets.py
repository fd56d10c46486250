"""keras.datasets: arrays of NumPy's, from a folder, the cache or their publishers."""

import types

from .. import _lockstep

_sets = _lockstep.datasets


def _arrays(sets):
    return tuple(tuple(tensor.numpy() for tensor in part) for part in sets)


def _module(name, doc, load):
    made = types.ModuleType(f"{__name__}.{name}", doc)
    made.load_data = load
    load.__doc__ = doc
    return made


mnist = _module("mnist", "Handwritten digits: (60000, 28, 28) and (10000, 28, 28) bytes, with labels.",
                lambda path="mnist.npz": _arrays(_sets.mnist("")))
fashion_mnist = _module("fashion_mnist", "Clothes, in the format of MNIST.", lambda: _arrays(_sets.fashion_mnist("")))
cifar10 = _module("cifar10", "Colour images of 10 classes.", lambda: _arrays(_sets.cifar10("")))
cifar100 = _module("cifar100", "Colour images of 100 classes.", lambda label_mode="fine": _arrays(_sets.cifar100(label_mode, "")))


def digits(train_size=60000, test_size=10000, seed=0):
    """Digits that are made, not loaded: for machines without a network. Lockstep's own."""
    return _arrays(_sets.digits(seed, train_size, test_size))


def __getattr__(name):
    raise AttributeError(f"keras.datasets has no {name!r}: there are mnist, fashion_mnist, cifar10, cifar100 and digits; others can "
                         "be read with NumPy and handed to fit or tf.data")
