"""Images as the networks of ImageNet take them, and names of the classes that they tell apart."""

import json
import os

import numpy as np

from . import backend, ops

_CLASSES = "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"
# Means and deviations of the channels: in the order blue, green, red of Caffe, and of images between 0 and 1.
_CAFFE_MEANS = (103.939, 116.779, 123.68)
_MEANS, _DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def preprocess_input(x, data_format=None, mode="caffe"):
    """Images of 0 to 255 as a network was trained on them: "tf" between -1 and 1; "torch" by means and deviations of the channels; "caffe" with
    blue first and without their means. An array of floating point numbers is written over, as Keras does."""
    if mode not in ("caffe", "tf", "torch"):
        raise ValueError(f"Expected mode to be one of `caffe`, `tf` or `torch`. Received: mode={mode}")
    data_format = data_format or backend.image_data_format()
    if data_format not in ("channels_first", "channels_last"):
        raise ValueError(f"Expected data_format to be one of `channels_first` or `channels_last`. Received: data_format={data_format}")
    axis = -1 if data_format == "channels_last" else -3
    return _prepared_array(x, axis, mode) if isinstance(x, np.ndarray) else _prepared_tensor(x, axis, mode)


def _of_channels(values, axis, dtype):
    return np.asarray(values, dtype).reshape([3] + [1] * (-1 - axis))


def _prepared_array(x, axis, mode):
    if not np.issubdtype(x.dtype, np.floating):
        x = x.astype(backend.floatx())
    if mode == "tf":
        x /= 127.5
        x -= 1.0
    elif mode == "torch":
        x /= 255.0
        x -= _of_channels(_MEANS, axis, x.dtype)
        x /= _of_channels(_DEVIATIONS, axis, x.dtype)
    else:
        x = np.flip(x, axis)
        x -= _of_channels(_CAFFE_MEANS, axis, x.dtype)
    return x


def _prepared_tensor(x, axis, mode):
    if mode == "tf":
        return x / 127.5 - 1.0
    dtype = backend.standardize_dtype(x.dtype)
    if mode == "torch":
        return (x / 255.0 - _of_channels(_MEANS, axis, dtype)) / _of_channels(_DEVIATIONS, axis, dtype)
    return ops.stack([ops.take(x, channel, axis=axis) for channel in (2, 1, 0)], axis=axis) - _of_channels(_CAFFE_MEANS, axis, dtype)


def preprocessing(mode):
    """The preprocess_input of a network; "none": it takes images as they are."""
    def prepared(x, data_format=None):
        return x if mode == "none" else preprocess_input(x, data_format, mode)
    prepared.__name__ = prepared.__qualname__ = "preprocess_input"
    prepared.__doc__ = "Images of 0 to 255 " + {"none": "as they are: the network prepares them itself.", "tf": "as numbers between -1 and 1.",
                                                "torch": "by means and deviations of the channels.",
                                                "caffe": "with blue first, without the channels' means."}[mode]
    return prepared


def decode_predictions(preds, top=5):
    """The most probable of ImageNet's classes for each image: [(number in WordNet, name, probability)], by Keras' list of classes."""
    preds = np.asarray(preds)
    if preds.ndim != 2 or preds.shape[1] != 1000:
        raise ValueError("`decode_predictions` expects a batch of predictions (i.e. a 2D array of shape (samples, 1000)). Received array with "
                         f"shape: {preds.shape}")
    path = os.path.join(os.path.expanduser(os.environ.get("KERAS_HOME", "~/.keras")), "models", "imagenet_class_index.json")
    if not os.path.exists(path):
        raise FileNotFoundError(f"decode_predictions: the names of the classes are in {path}, which is not there; "
                                f"keras.utils.get_file(origin={_CLASSES!r}, cache_subdir=\"models\") fetches it")
    with open(path) as file:
        classes = json.load(file)
    return [[(*classes[str(number)], scores[number]) for number in np.argsort(scores)[::-1][:top]] for scores in preds]
