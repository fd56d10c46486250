"""Datasets of keras.utils: of arrays, of windows of a series, of folders of images; and images as files."""

import os

import numpy as np

from .. import _lockstep, data, dtypes, nest, ops
from .._texts import TextDataset, Texts
from ..audio import decode_wav
from ..io import read_file
from ..tensor import convert_to_tensor, is_tensor
from .backend import floatx, standardize_data_format
from .ops import image as _images


# --- windows -------------------------------------------------------------------------------------------------------------

def timeseries_dataset_from_array(data, targets, sequence_length, sequence_stride=1, sampling_rate=1, batch_size=128, shuffle=False,
                                  seed=None, start_index=None, end_index=None, format="tf"):
    """Windows over the first dimension of an array, in batches, with the target that stands where each window begins."""
    _of_this_format("timeseries_dataset_from_array", format)
    rows = len(data)
    start = 0 if start_index is None else start_index
    end = rows if end_index is None else end_index
    for name, value, low, high in (("start_index", start, 0, rows - 1), ("end_index", end, start + 1, rows),
                                   ("sequence_length", sequence_length, 1, end - start), ("sampling_rate", sampling_rate, 1, rows - 1),
                                   ("sequence_stride", sequence_stride, 1, rows - 1)):
        if not low <= value <= high:
            raise ValueError(f"timeseries_dataset_from_array: {name} is between {low} and {high}, received {value}")
    last = end - (sequence_length - 1) * sampling_rate if targets is None else min(end - start - (sequence_length - 1) * sampling_rate,
                                                                                    len(targets)) + start
    starts = np.arange(start, last, sequence_stride, dtype=np.int64)
    whole = _Dataset.from_tensor_slices(starts)
    if shuffle:
        whole = whole.shuffle(max(len(starts), 1), seed=seed)
    if batch_size is not None:
        whole = whole.batch(batch_size)
    series = convert_to_tensor(np.asarray(data))
    wanted = None if targets is None else convert_to_tensor(np.asarray(targets))
    steps = convert_to_tensor(np.arange(sequence_length, dtype=np.int64) * sampling_rate)

    def window(begin):
        x = ops.gather(series, ops.expand_dims(begin, -1) + steps)
        return x if wanted is None else (x, ops.gather(wanted, begin - start))
    return whole.map(window).prefetch(2)


_Dataset = data.Dataset


# --- parts ---------------------------------------------------------------------------------------------------------------

def split_dataset(dataset, left_size=None, right_size=None, shuffle=False, seed=None, preferred_backend=None):
    """Two datasets of one: of a Dataset, of arrays, or of structures of arrays. Sizes are numbers of examples, or shares."""
    for name, size in (("left_size", left_size), ("right_size", right_size)):
        if size is not None and (isinstance(size, bool) or not isinstance(size, (int, float))):
            raise TypeError(f"split_dataset: {name} is a number of examples or a share, received {size!r}")
    if left_size is None and right_size is None:
        raise ValueError("split_dataset: takes a left_size or a right_size")
    examples, count = _examples(dataset)
    left, right = (_part(name, size, count) for name, size in (("left_size", left_size), ("right_size", right_size)))
    left = count - right if left is None else left
    right = count - left if right is None else right
    if left + right > count:
        raise ValueError(f"split_dataset: {left} and {right} examples are more than the {count} that there are")
    order = np.arange(count)
    if shuffle:
        np.random.default_rng(seed).shuffle(order)
    return tuple(_Dataset.from_tensor_slices(nest.map_structure(lambda part: part[chosen], examples))
                 for chosen in (order[:left], order[count - right:] if not shuffle else order[left:left + right]))


def _part(name, size, count):
    if size is None:
        return None
    if isinstance(size, float):
        if not 0 < size < 1:
            raise ValueError(f"split_dataset: a share is between 0 and 1, received {name}={size}")
        return round(count * size)
    if not 0 < size < count:
        raise ValueError(f"split_dataset: {name} is between 0 and the {count} examples, received {size}")
    return size


def _examples(dataset):
    """All of it as a structure of arrays, and how many there are."""
    if isinstance(dataset, (list, tuple)) and dataset and all(isinstance(part, np.ndarray) or is_tensor(part) for part in dataset):
        lengths = {len(part) for part in dataset}
        if len(lengths) > 1:
            raise ValueError(f"split_dataset: arrays have one length, received {sorted(lengths)}")
        return tuple(np.asarray(part) for part in dataset), lengths.pop()
    if isinstance(dataset, np.ndarray) or is_tensor(dataset):
        return np.asarray(dataset), len(dataset)
    if isinstance(dataset, dict):
        return nest.map_structure(np.asarray, dataset), len(nest.flatten(dataset)[0])
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and not isinstance(dataset, (list, tuple, _Dataset)):
        dataset = [dataset[number] for number in range(len(dataset))]  # examples by number, as PyTorch's datasets have them
    if not hasattr(dataset, "__iter__"):
        raise TypeError(f"split_dataset: takes a Dataset, arrays or structures of arrays, received {type(dataset).__name__}")
    elements = [tuple(element) if isinstance(element, list) else element for element in dataset]
    if not elements:
        raise ValueError("split_dataset: the dataset is empty")
    return nest.map_structure(lambda *parts: np.stack([np.asarray(part) for part in parts]), *elements), len(elements)


# --- folders -------------------------------------------------------------------------------------------------------------

def image_dataset_from_directory(directory, labels="inferred", label_mode="int", class_names=None, color_mode="rgb", batch_size=32,
                                 image_size=(256, 256), shuffle=True, seed=None, validation_split=None, subset=None,
                                 interpolation="bilinear", follow_links=False, crop_to_aspect_ratio=False,
                                 pad_to_aspect_ratio=False, data_format=None, format="tf", verbose=True):
    """The JPEG and PNG images of a folder as batches of (images, labels): one folder a class, or labels as they are given for all files in
    alphabetical order, or none. They are read when they are needed."""
    _of_this_format("image_dataset_from_directory", format)
    if subset == "both":
        return tuple(image_dataset_from_directory(directory, labels, label_mode, class_names, color_mode, batch_size, image_size, shuffle,
                                                  seed, validation_split, part, interpolation, follow_links, crop_to_aspect_ratio,
                                                  pad_to_aspect_ratio, data_format, verbose=verbose) for part in ("training", "validation"))
    if color_mode not in _CHANNELS:
        raise ValueError(f"image_dataset_from_directory: color_mode is one of {', '.join(_CHANNELS)}, received {color_mode!r}")
    labels = None if label_mode is None else labels
    if labels != "inferred" or pad_to_aspect_ratio or standardize_data_format(data_format) == "channels_first":
        files = _Files(directory, (".jpeg", ".jpg", ".png"), labels, label_mode, class_names, follow_links)
        files.choose(shuffle, seed, validation_split, subset)

        def image(path):
            with open(path, "rb") as file:
                read = _lockstep.io.decode_image(file.read(), _CHANNELS[color_mode])
            made = _images.resize(ops.cast(read, "float32"), image_size, interpolation, crop_to_aspect_ratio=crop_to_aspect_ratio,
                                  pad_to_aspect_ratio=pad_to_aspect_ratio, data_format="channels_last")
            return made if standardize_data_format(data_format) == "channels_last" else ops.transpose(made, (2, 0, 1))
        return files.dataset(image, batch_size, shuffle, seed, verbose)
    settings = {"label_mode": label_mode, "class_names": list(class_names or ()), "shuffle": bool(shuffle), "seed": seed}
    y, names, paths = _lockstep.image_files_from_directory(
        os.fspath(directory), {**settings, "validation_split": float(validation_split or 0), "subset": subset or ""})
    if verbose:
        found = paths if subset is None else _lockstep.image_files_from_directory(
            os.fspath(directory), {**settings, "validation_split": 0.0, "subset": ""})[2]
        _told(len(found), names, len(paths), subset)
    height, width = (int(size) for size in image_size)

    def images(numbers):
        chosen = [paths[number] for number in np.atleast_1d(np.asarray(numbers))]
        made = _lockstep.decode_image_files(chosen, [height, width], _CHANNELS[color_mode], interpolation, bool(crop_to_aspect_ratio))
        return made if numbers.ndim else made[0]
    numbers = np.arange(len(paths), dtype=np.int64)
    whole = _Dataset.from_tensor_slices(numbers if y is None else (numbers, y))
    if shuffle:
        whole = whole.shuffle(len(paths), seed=seed)
    whole = whole if batch_size is None else whole.batch(batch_size)
    whole = whole.map(images if y is None else lambda numbers, label: (images(numbers), label)).prefetch(2)
    whole.class_names, whole.file_paths = names, paths
    return whole


def text_dataset_from_directory(directory, labels="inferred", label_mode="int", class_names=None, batch_size=32, max_length=None, shuffle=True,
                                seed=None, validation_split=None, subset=None, follow_links=False, format="tf", verbose=True):
    """The .txt files of a folder as batches of (texts, labels): one folder a class, or labels as they are given for all files in
    alphabetical order, or none."""
    _of_this_format("text_dataset_from_directory", format)
    if subset == "both":
        return tuple(text_dataset_from_directory(directory, labels, label_mode, class_names, batch_size, max_length, shuffle, seed,
                                                 validation_split, part, follow_links, verbose=verbose) for part in ("training", "validation"))
    files = _Files(directory, (".txt",), None if label_mode is None else labels, label_mode, class_names, follow_links)
    files.choose(shuffle, seed, validation_split, subset)

    def text(path):
        with open(path, "rb") as file:
            return Texts(file.read(max_length or -1))
    return files.dataset(text, batch_size, shuffle, seed, verbose)


def audio_dataset_from_directory(directory, labels="inferred", label_mode="int", class_names=None, batch_size=32, sampling_rate=None,
                                 output_sequence_length=None, ragged=False, shuffle=True, seed=None, validation_split=None, subset=None,
                                 follow_links=False, verbose=True):
    """The .wav files of a folder as batches of (sounds, labels), sounds of shape (samples, channels): all of so many samples, or those of a batch
    filled up with zeros. One folder a class, or labels as they are given for all files in alphabetical order, or none."""
    if sampling_rate is not None or ragged:
        raise NotImplementedError("audio_dataset_from_directory: sounds are not resampled, and there are no ragged tensors: leave out sampling_rate and "
                                  "ragged; output_sequence_length gives all sounds one length")
    if subset == "both":
        return tuple(audio_dataset_from_directory(directory, labels, label_mode, class_names, batch_size, None, output_sequence_length, False, shuffle,
                                                  seed, validation_split, part, follow_links, verbose) for part in ("training", "validation"))
    files = _Files(directory, (".wav",), None if label_mode is None else labels, label_mode, class_names, follow_links)
    files.choose(shuffle, seed, validation_split, subset)

    def sound(path):
        return decode_wav(read_file(path), desired_samples=-1 if output_sequence_length is None else int(output_sequence_length)).audio
    return files.dataset(sound, batch_size, shuffle, seed, verbose, output_sequence_length is None)


_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}


def _told(found, names, count, part):
    """What was found, as Keras says it."""
    print(f"Found {found} files" + (f" belonging to {len(names)} classes." if names else "."))
    if part is not None:
        print(f"Using {count} files for {part}.")


class _Files:
    """Files of a folder that are read when the dataset of them is, with their labels."""

    def __init__(self, directory, endings, labels, label_mode, class_names, follow_links):
        directory, self.are_texts = os.fspath(directory), ".txt" in endings
        if labels == "inferred":
            folders = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir() and not entry.name.startswith("."))
            if class_names is not None and set(class_names) != set(folders):
                raise ValueError(f"`class_names` passed did not match the folders of {directory!r}, {folders}: {list(class_names)}")
            self.class_names = list(class_names) if class_names is not None else folders
        elif class_names is not None:
            raise ValueError('You can only pass `class_names` if `labels="inferred"`')
        else:
            folders, self.class_names = [""], None
        self.paths, numbers = [], []
        for folder in folders:
            found = sorted(os.path.join(root, name) for root, _, names in os.walk(os.path.join(directory, folder), followlinks=follow_links)
                           for name in names if name.lower().endswith(endings))
            self.paths += found
            numbers += [self.class_names.index(folder) if self.class_names else 0] * len(found)
        if not self.paths:
            raise ValueError(f"there is no file of the kinds {', '.join(endings)} in {directory!r}")
        if labels not in ("inferred", None):
            numbers = list(labels)
            if len(numbers) != len(self.paths):
                raise ValueError(f"Expected the lengths of `labels` to match the number of files, {len(self.paths)}, received {len(numbers)}")
            self.class_names = sorted(str(label) for label in set(numbers))
        self._labels = None if labels is None or label_mode is None else self._in_mode(np.asarray(numbers), label_mode)

    def _in_mode(self, numbers, mode):
        if mode not in ("int", "categorical", "binary"):
            raise ValueError(f'`label_mode` argument must be one of "int", "categorical", "binary", or None, received {mode!r}')
        if mode == "binary" and len(self.class_names) != 2:
            raise ValueError(f"of binary labels there must be exactly 2 classes, there are {len(self.class_names)}")
        if mode == "categorical":
            return np.eye(len(self.class_names), dtype=np.float32)[numbers]
        return numbers.astype(np.int32) if mode == "int" else numbers.astype(np.float32).reshape(-1, 1)

    def choose(self, shuffle, seed, validation_split, subset):
        """The files of the first or the last part, once shuffled."""
        order, self._found, self._part = np.arange(len(self.paths)), len(self.paths), subset
        if (validation_split is None or not 0 < validation_split < 1) and (validation_split or subset is not None):
            raise ValueError(f"`validation_split` must be between 0 and 1, and be set where there is a subset, received {validation_split}")
        if validation_split and subset not in ("training", "validation"):
            raise ValueError(f'`subset` must be either "training", "validation" or "both", received {subset!r}')
        if validation_split and shuffle and seed is None:
            raise ValueError("files that are shuffled and split: you must provide a `seed`, so that both parts are of one order")
        if shuffle:
            np.random.default_rng(seed).shuffle(order)
        if validation_split:
            first = len(order) - int(len(order) * validation_split)
            order = order[:first] if subset == "training" else order[first:]
        self.paths = [self.paths[number] for number in order]
        self._labels = None if self._labels is None else self._labels[order]

    def dataset(self, read, batch_size, shuffle, seed, verbose, filled_up=False):
        """What read() makes of the files, and their labels, in batches, in which they are filled up with zeros to one size where this is said."""
        count = len(self.paths)
        if verbose:
            _told(self._found, self.class_names, count, self._part)

        def example(number):
            made = read(self.paths[int(number)])
            return made if self._labels is None else (made, convert_to_tensor(self._labels[int(number)]))
        numbers = data.Dataset.range(count)
        numbers = numbers.shuffle(count, seed=seed) if shuffle else numbers
        whole = TextDataset.of(numbers).map(example) if self.are_texts else numbers.map(example)
        if batch_size is not None:
            whole = whole.padded_batch(batch_size) if filled_up else whole.batch(batch_size)
        whole = whole.prefetch(2)
        whole.class_names, whole.file_paths = self.class_names, self.paths
        return whole


def _of_this_format(what, format):
    if format != "tf":
        raise ValueError(f"{what}: format is \"tf\", datasets of tf.data; received {format!r}")


# --- images --------------------------------------------------------------------------------------------------------------

def _pillow():
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("images as objects are those of the package Pillow, which is not installed; tf.io.decode_image, encode_png and "
                          "encode_jpeg need none") from None
    return Image


def array_to_img(x, data_format=None, scale=True, dtype=None):
    """An image of the package Pillow, computed in this dtype; one channel with values above 255 makes one of 32-bit integers."""
    channels_first = standardize_data_format(data_format) == "channels_first"
    x = np.asarray(x, dtypes.as_dtype(dtype or floatx()).as_numpy_dtype)
    if x.ndim != 3 or x.shape[0 if channels_first else -1] not in (1, 3, 4):
        raise ValueError(f"array_to_img: takes an image of 1, 3 or 4 channels, received shape {x.shape}")
    if channels_first:
        x = x.transpose(1, 2, 0)
    if scale:
        if x.dtype.kind != "f":
            raise TypeError(f"array_to_img: values are scaled to [0, 255] as floating point numbers, received dtype={x.dtype.name}; give scale=False or "
                            "leave dtype out")
        x = x - x.min()
        x = x / (x.max() or x.dtype.type(1)) * x.dtype.type(255)
    if x.shape[-1] == 1 and x.max() > 255:
        return _pillow().fromarray(x[..., 0].astype(np.int32), "I")
    x = x.astype(np.uint8)
    return _pillow().fromarray(x[..., 0] if x.shape[-1] == 1 else x, {1: "L", 3: "RGB", 4: "RGBA"}[x.shape[-1]])


def img_to_array(img, data_format=None, dtype=None):
    """An image, with its channels, as an array."""
    x = np.asarray(img, dtypes.as_dtype(dtype or floatx()).as_numpy_dtype)
    x = x[..., None] if x.ndim == 2 else x
    return x.transpose(2, 0, 1) if standardize_data_format(data_format) == "channels_first" else x


def load_img(path, color_mode="rgb", target_size=None, interpolation="nearest", keep_aspect_ratio=False):
    """An image file as an image of the package Pillow; its middle alone where another size keeps the proportions."""
    image = _pillow()
    made = image.open(path).convert({"rgb": "RGB", "rgba": "RGBA", "grayscale": "L"}[color_mode])
    if target_size is None:
        return made
    (width, height), (high, wide) = made.size, target_size
    part = (min(width, height * wide // high), min(height, width * high // wide)) if keep_aspect_ratio else (width, height)
    left, top = (width - part[0]) // 2, (height - part[1]) // 2
    return made.resize((wide, high), getattr(image.Resampling, interpolation.upper()), (left, top, left + part[0], top + part[1]))


def save_img(path, x, data_format=None, file_format=None, scale=True, **kwargs):
    """Writes an array as an image file."""
    made = array_to_img(x, data_format, scale)
    if made.mode == "RGBA" and str(file_format or path).lower().endswith(("jpg", "jpeg")):
        made = made.convert("RGB")
    made.save(path, {"jpg": "jpeg"}.get(file_format, file_format), **kwargs)
