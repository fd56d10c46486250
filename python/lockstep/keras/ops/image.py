"""keras.ops.image: images of shape (height, width, channels) or (batch, height, width, channels), or with the channels first."""

import builtins
import itertools
import math as _math

import numpy as np

from ... import dtypes
from ..backend import standardize_data_format
from ..random import normal as _normal
from ._defining import _float, _joined_float, _op, _ops, _tensor, _tf
from .linalg import solve

_max, _min, _range = builtins.max, builtins.min, builtins.range


# --- layouts -------------------------------------------------------------------------------------------------------------

def _checked(images, what, floats=False, channels=None, data_format=None, ranks=(3, 4)):
    """The images as a tensor of one of these ranks; of floating point numbers and so many channels, where that is asked for."""
    images = _tensor(images)
    if images.ndim not in ranks:
        raise ValueError(f"{what}: takes images of rank {ranks[0]} or, in a batch, {ranks[1]}, received shape {images.shape}")
    if floats and not images.dtype.is_floating:
        raise ValueError(f"{what}: takes images of floating point numbers, received {images.dtype.name}")
    axis = -1 if standardize_data_format(data_format) == "channels_last" else -3
    if channels is not None and images.shape[axis] != channels:
        raise ValueError(f"{what}: takes images of {channels} channels, received shape {images.shape}")
    return images


class _Batch:
    """Images as a batch with the channels last, and the way back."""

    def __init__(self, images, data_format, spatial=2):
        self._first = standardize_data_format(data_format) == "channels_first"
        self._single = images.ndim == spatial + 1
        images = _tf.expand_dims(images, 0) if self._single else images
        self.images = _ops.moveaxis(images, [1], [-1]) if self._first else images

    def back(self, images):
        """Images of such a batch as the given ones were."""
        images = _ops.moveaxis(images, [-1], [1]) if self._first else images
        return _tf.squeeze(images, [0]) if self._single else images


def _channels(images, data_format):
    """One tensor for each channel, and how to join them."""
    axis = -1 if standardize_data_format(data_format) == "channels_last" else -3
    return _ops.unstack(images, axis), lambda parts: _tf.stack(parts, axis)


# --- colours -------------------------------------------------------------------------------------------------------------

@_op
def rgb_to_grayscale(images, data_format=None):
    """One channel of brightness."""
    images = _checked(images, "rgb_to_grayscale", channels=3, data_format=data_format)
    (red, green, blue), join = _channels(_float(images), data_format)
    return _ops.cast(join([0.2989 * red + 0.587 * green + 0.114 * blue]), images.dtype)


@_op
def rgb_to_hsv(images, data_format=None):
    """Hue, saturation and value of colours, all in [0, 1]."""
    images = _checked(images, "rgb_to_hsv", True, 3, data_format)
    (red, green, blue), join = _channels(images, data_format)
    value = _tf.maximum(_tf.maximum(red, green), blue)
    spread = value - _tf.minimum(_tf.minimum(red, green), blue)
    saturation = _tf.where(_tf.greater(value, 0.0), _tf.divide_no_nan(spread, value), _tf.zeros_like(value))
    sixth = _tf.divide_no_nan(_tf.ones_like(spread) / 6.0, spread)
    hue = _tf.where(_tf.equal(red, value), sixth * (green - blue),
                    _tf.where(_tf.equal(green, value), sixth * (blue - red) + 1.0 / 3.0, sixth * (red - green) + 2.0 / 3.0))
    hue = _tf.where(_tf.greater(spread, 0.0), hue, _tf.zeros_like(hue))
    return join([_tf.where(_tf.less(hue, 0.0), hue + 1.0, hue), saturation, value])


@_op
def hsv_to_rgb(images, data_format=None):
    """Red, green and blue of hue, saturation and value."""
    images = _checked(images, "hsv_to_rgb", True, 3, data_format)
    (hue, saturation, value), join = _channels(images, data_format)
    turn = hue * 6.0
    parts = (_tf.abs(turn - 3.0) - 1.0, 2.0 - _tf.abs(turn - 2.0), 2.0 - _tf.abs(turn - 4.0))
    return join([((1.0 - saturation) + saturation * _tf.clip_by_value(part, 0.0, 1.0)) * value for part in parts])


# --- sizes ---------------------------------------------------------------------------------------------------------------

@_op
def resize(images, size, interpolation="bilinear", antialias=False, crop_to_aspect_ratio=False, pad_to_aspect_ratio=False,
           fill_mode="constant", fill_value=0.0, data_format=None):
    """The images in another size; cropped or padded first, so that their proportions stay."""
    height, width = (int(part) for part in size)
    if len(size) != 2 or height <= 0 or width <= 0:
        raise ValueError(f"resize: size is a positive height and width, received {size}")
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("resize: only one of crop_to_aspect_ratio and pad_to_aspect_ratio can be True")
    if fill_mode != "constant":
        raise ValueError(f"resize: fill_mode is \"constant\", received {fill_mode!r}")
    given = _checked(images, "resize")
    batch = _Batch(given, data_format)
    x = batch.images
    x = x if x.dtype in (dtypes.float32, dtypes.float64) or interpolation == "nearest" else _ops.cast(x, dtypes.float32)
    high, wide = x.shape[1:3]
    if crop_to_aspect_ratio:
        part = [_max(_min(high, wide * height // width), 1), _max(_min(wide, high * width // height), 1)]
        x = _tf.slice(x, [0, (high - part[0]) // 2, (wide - part[1]) // 2, 0], [-1, *part, -1])
    elif pad_to_aspect_ratio:
        # As much on both sides, as the layer Resizing does it: of an odd number the last one is left out.
        margins = [(_max(high, wide * height // width) - high) // 2, (_max(wide, high * width // height) - wide) // 2]
        x = _tf.pad(x, [[0, 0], *([margin, margin] for margin in margins), [0, 0]], constant_values=fill_value)
    made = _ops.resize(x, [height, width], interpolation, bool(antialias))
    if made.dtype is not given.dtype:
        made = _tf.saturate_cast(_tf.round(made), given.dtype) if not given.dtype.is_floating else _ops.cast(made, given.dtype)
    return batch.back(made)


def _ends(names, first, last, target, size, grow):
    """What is added to, or taken from, both ends of a dimension, of which two of the three are given."""
    if [first, last, target].count(None) != 1:
        raise ValueError(f"Must specify exactly two of {', '.join(names)}. Received: " +
                         ", ".join(f"{name}={value}" for name, value in zip(names, (first, last, target))))
    change = None if target is None else (target - size if grow else size - target)
    first = change - last if first is None else first
    last = change - first if last is None else last
    for name, value in zip(names, (first, last, target)):
        if value is not None and value < 0:
            raise ValueError(f"{name} must be >= 0. Received: {name}={value}")
    return first, last


@_op
def pad_images(images, top_padding=None, left_padding=None, bottom_padding=None, right_padding=None, target_height=None,
               target_width=None, data_format=None):
    """The images with zeros around them."""
    batch = _Batch(_checked(images, "pad_images"), data_format)
    high, wide = batch.images.shape[1:3]
    rows = _ends(("top_padding", "bottom_padding", "target_height"), top_padding, bottom_padding, target_height, high, True)
    columns = _ends(("left_padding", "right_padding", "target_width"), left_padding, right_padding, target_width, wide, True)
    return batch.back(_tf.pad(batch.images, [[0, 0], rows, columns, [0, 0]]))


@_op
def crop_images(images, top_cropping=None, left_cropping=None, bottom_cropping=None, right_cropping=None, target_height=None,
                target_width=None, data_format=None):
    """The images without what is at their edges."""
    batch = _Batch(_checked(images, "crop_images"), data_format)
    high, wide = batch.images.shape[1:3]
    top, bottom = _ends(("top_cropping", "bottom_cropping", "target_height"), top_cropping, bottom_cropping, target_height, high, False)
    left, right = _ends(("left_cropping", "right_cropping", "target_width"), left_cropping, right_cropping, target_width, wide, False)
    return batch.back(_tf.slice(batch.images, [0, top, left, 0], [-1, high - top - bottom, wide - left - right, -1]))


# --- places --------------------------------------------------------------------------------------------------------------

_INTERPOLATIONS = ("nearest", "bilinear")
_FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


def _within(place, size, mode):
    """The numbers of elements in the place of those outside."""
    if mode == "nearest":
        return _tf.clip_by_value(place, 0, size - 1)
    if mode == "wrap":
        return _tf.floormod(place, _tf.ones_like(place) * size)
    if mode == "mirror":
        period = 2 * (size - 1)
        if period == 0:
            return _tf.zeros_like(place)
        rest = _tf.floormod(place, _tf.ones_like(place) * period)
        return _tf.minimum(rest, period - rest)
    rest = _tf.floormod(place, _tf.ones_like(place) * (2 * size))  # reflect
    return _tf.minimum(rest, 2 * size - 1 - rest)


def _interpolated(inputs, coordinates, order, mode, fill_value):
    """Elements of an array of len(coordinates) dimensions between its places; dimensions behind them are kept."""
    sizes = inputs.shape[:len(coordinates)]
    rest = list(inputs.shape[len(coordinates):])
    flat = _tf.reshape(inputs, [-1, *rest])
    ways = []
    for coordinate in coordinates:
        below = _tf.floor(coordinate + 0.5 if order == 0 else coordinate)
        part = None if order == 0 else coordinate - below
        place = _ops.cast(below, dtypes.int32)
        ways.append([(place, None)] if order == 0 else [(place, 1.0 - part), (place + 1, part)])
    total = None
    for corner in itertools.product(*ways):
        number, weight, inside = None, None, None
        for (place, share), size in zip(corner, sizes):
            if mode == "constant":
                fits = _tf.logical_and(_tf.greater_equal(place, 0), _tf.less(place, size))
                inside = fits if inside is None else _tf.logical_and(inside, fits)
            place = _within(place, size, "nearest" if mode == "constant" else mode)
            number = place if number is None else number * size + place
            weight = share if weight is None else weight if share is None else weight * share
        value = _ops.gather(flat, number, 0, 0)

        def spread(x, like=value, added=len(rest)):
            return _tf.reshape(x, list(x.shape) + [1] * added) if added else x
        if inside is not None:
            value = _tf.where(spread(inside), value, _tensor(fill_value, value.dtype))
        value = value if weight is None else value * _ops.cast(spread(weight), value.dtype)
        total = value if total is None else total + value
    return total


@_op
def map_coordinates(inputs, coordinates, order, fill_mode="constant", fill_value=0):
    """The elements of an array at these coordinates, one list of them for each of its dimensions."""
    if fill_mode not in _FILL_MODES:
        raise ValueError(f"map_coordinates: fill_mode is one of {', '.join(_FILL_MODES)}, received {fill_mode!r}")
    if order not in (0, 1):
        raise ValueError(f"map_coordinates: order is 0 or 1, received {order!r}")
    inputs = _tensor(inputs)
    parts = list(_ops.unstack(_float(coordinates), 0)) if not isinstance(coordinates, (list, tuple)) else [_float(c) for c in coordinates]
    if len(parts) != inputs.ndim:
        raise ValueError(f"map_coordinates: the first dimension of coordinates is the rank of inputs, received {len(parts)} lists for "
                         f"inputs of shape {inputs.shape}")
    if parts[0].ndim == 0:
        raise ValueError("map_coordinates: coordinates are of rank 2 or more")
    computed = inputs if inputs.dtype in (dtypes.float32, dtypes.float64) else _ops.cast(inputs, dtypes.float32)
    made = _interpolated(computed, parts, order, fill_mode, fill_value)
    if made.dtype is inputs.dtype:
        return made
    return _ops.cast(made if inputs.dtype.is_floating else _tf.round(made), inputs.dtype)


def _warped(images, rows, columns, interpolation, fill_mode, fill_value):
    """A batch of images at (batch, height, width) coordinates; in float32 or float64."""
    count, high, wide = rows.shape
    picture = _tf.reshape(_tensor(np.arange(count, dtype=np.float32), rows.dtype), [count, 1, 1]) + _tf.zeros_like(rows)
    return _interpolated(images, [picture, rows, columns], _INTERPOLATIONS.index(interpolation), fill_mode, fill_value)


def _check_warp(what, interpolation, fill_mode="constant"):
    if interpolation not in _INTERPOLATIONS:
        raise ValueError(f"{what}: interpolation is nearest or bilinear, received {interpolation!r}")
    if fill_mode not in _FILL_MODES:
        raise ValueError(f"{what}: fill_mode is one of {', '.join(_FILL_MODES)}, received {fill_mode!r}")


def _pixels(batch, dtype):
    """The rows and the columns of a batch's pixels."""
    high, wide = batch.shape[1:3]
    rows, columns = np.meshgrid(np.arange(high, dtype=np.float32), np.arange(wide, dtype=np.float32), indexing="ij")
    return _tensor(rows, dtype), _tensor(columns, dtype)


@_op
def affine_transform(images, transform, interpolation="bilinear", fill_mode="constant", fill_value=0, data_format=None):
    """The pixel (x, y) is that of ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), with k = c0 x + c1 y + 1."""
    _check_warp("affine_transform", interpolation, fill_mode)
    given = _checked(images, "affine_transform")
    transform = _float(transform)
    if transform.ndim not in (1, 2) or transform.shape[-1] != 8:
        raise ValueError(f"affine_transform: transform is of shape (8,) or (batch, 8), received {transform.shape}")
    batch = _Batch(given, data_format)
    x = _ops.cast(batch.images, dtypes.float32) if batch.images.dtype is not dtypes.float64 else batch.images
    transform = _ops.cast(transform, x.dtype)
    transform = _tf.broadcast_to(_tf.reshape(transform, [-1, 8]), [x.shape[0], 8])
    a0, a1, a2, b0, b1, b2, c0, c1 = (_tf.reshape(part, [-1, 1, 1]) for part in _ops.unstack(transform, 1))
    rows, columns = _pixels(x, x.dtype)
    k = c0 * columns + c1 * rows + 1.0
    made = _warped(x, (b0 * columns + b1 * rows + b2) / k, (a0 * columns + a1 * rows + a2) / k, interpolation, fill_mode, fill_value)
    return batch.back(_back_to(made, given.dtype))


def _back_to(made, dtype):
    if made.dtype is dtype:
        return made
    return _ops.cast(made, dtype) if dtype.is_floating else _tf.saturate_cast(_tf.round(made), dtype)


@_op
def perspective_transform(images, start_points, end_points, interpolation="bilinear", fill_value=0, data_format=None):
    """The images seen so that four points of each, (x, y), come to lie where others were."""
    _check_warp("perspective_transform", interpolation)
    given = _checked(images, "perspective_transform")
    batch = _Batch(given, data_format)
    x = _ops.cast(batch.images, dtypes.float32) if batch.images.dtype is not dtypes.float64 else batch.images
    points = []
    for name, value in (("start_points", start_points), ("end_points", end_points)):
        value = _ops.cast(_float(value), x.dtype)
        if value.ndim not in (2, 3) or tuple(value.shape[-2:]) != (4, 2):
            raise ValueError(f"perspective_transform: {name} is of shape (4, 2) or (batch, 4, 2), received {value.shape}")
        points.append(_tf.reshape(value, [-1, 4, 2]))
    (sx, sy), (ex, ey) = (_ops.unstack(part, 2) for part in points)
    one, none = _tf.ones_like(ex), _tf.zeros_like(ex)
    equations = _tf.concat([_tf.stack([ex, ey, one, none, none, none, -(sx * ex), -(sx * ey)], -1),
                            _tf.stack([none, none, none, ex, ey, one, -(sy * ex), -(sy * ey)], -1)], 1)
    transform = _tf.squeeze(solve(equations, _tf.expand_dims(_tf.concat([sx, sy], 1), -1)), [-1])
    made = affine_transform(x, transform, interpolation, "constant", fill_value, "channels_last")
    return batch.back(_back_to(made, given.dtype))


def _patches(what, images, size, strides, dilation_rate, padding, data_format, spatial):
    """Windows of images, each as the channels of one pixel: a convolution that picks."""
    def several(value, name):
        value = [value] * spatial if isinstance(value, int) else list(value)
        if len(value) != spatial:
            raise (TypeError if name == "size" else ValueError)(f"{what}: {name} is an integer or {spatial} of them, received {value}")
        if _min(value) <= 0:
            raise ValueError(f"{what}: {name} is positive, received {value}")
        return value
    if not isinstance(size, int) and not isinstance(size, (list, tuple)):
        raise TypeError(f"{what}: size is an integer or {spatial} of them, received {size!r}")
    if padding not in ("valid", "same"):
        raise ValueError(f"{what}: padding is valid or same, received {padding!r}")
    size = several(size, "size")
    strides = size if strides is None else several(strides, "strides")
    dilations = several(dilation_rate, "dilation_rate")
    given = _checked(images, what, ranks=(spatial + 1, spatial + 2))
    batch = _Batch(given, data_format, spatial)
    x = batch.images if batch.images.dtype.is_floating else _ops.cast(batch.images, dtypes.float32)
    channels = x.shape[-1]
    count = _math.prod(size) * channels
    picks = _tf.reshape(_ops.eye(count, -1, x.dtype), [*size, channels, count])
    made = getattr(_ops, f"conv{spatial}d")(x, picks, strides, padding.upper(), dilations, "channels_last")
    return batch.back(_ops.cast(made, given.dtype))


@_op
def extract_patches(images, size, strides=None, dilation_rate=1, padding="valid", data_format=None):
    """The windows of images, or of volumes where size has three numbers, as channels."""
    spatial = 3 if isinstance(size, (list, tuple)) and len(size) == 3 else 2
    return _patches("extract_patches", images, size, strides, dilation_rate, padding, data_format, spatial)


@_op
def extract_patches_3d(volumes, size, strides=None, dilation_rate=1, padding="valid", data_format=None):
    """The windows of volumes as channels."""
    return _patches("extract_patches_3d", volumes, size, strides, dilation_rate, padding, data_format, 3)


# --- filters -------------------------------------------------------------------------------------------------------------

def _bell(size, sigma, dtype):
    places = _tensor(np.arange(size, dtype=np.float32) - np.float32((size - 1) / 2), dtype)
    weights = _tf.exp(_tf.square(places / sigma) * -0.5)
    return weights / _tf.reduce_sum(weights)


def _filtered(x, kernel, padding):
    """Every channel by the same kernel."""
    high, wide = kernel.shape
    channels = x.shape[-1]
    kernel = _tf.tile(_tf.reshape(kernel, [high, wide, 1, 1]), [1, 1, channels, 1])
    return _ops.depthwise_conv2d(x, kernel, [1, 1], padding, [1, 1], "channels_last")


@_op
def gaussian_blur(images, kernel_size=(3, 3), sigma=(1.0, 1.0), data_format=None):
    """Every pixel the mean of those around it, weighed by how near they are; sigma is that of the width, then of the height."""
    given = _checked(images, "gaussian_blur")
    batch = _Batch(_float(given), data_format)
    x = batch.images
    sizes = [int(part) for part in (kernel_size if not isinstance(kernel_size, int) else (kernel_size,) * 2)]
    spreads = list(sigma) if isinstance(sigma, (list, tuple)) else list(_ops.unstack(_float(sigma), 0)) if _tensor(sigma).ndim else [sigma] * 2
    across, down = (_bell(size, _tensor(spread, x.dtype), x.dtype) for size, spread in zip(sizes, spreads))
    made = _filtered(x, _tf.reshape(down, [-1, 1]) * _tf.reshape(across, [1, -1]), "SAME")
    return _ops.cast(batch.back(made), given.dtype)


@_op
def elastic_transform(images, alpha=20.0, sigma=5.0, interpolation="bilinear", fill_mode="reflect", fill_value=0.0, seed=None,
                      data_format=None):
    """Pixels move by random distances that change little from one to the next."""
    _check_warp("elastic_transform", interpolation, fill_mode)
    given = _checked(images, "elastic_transform")
    batch = _Batch(given, data_format)
    x = _ops.cast(batch.images, dtypes.float32) if batch.images.dtype is not dtypes.float64 else batch.images
    count, high, wide, _ = x.shape
    width = int(6 * float(sigma)) | 1
    moved = _ops.cast(_normal([count, high, wide, 2], 0.0, float(sigma), seed=seed), x.dtype)
    moved = _filtered(moved, _tf.reshape(_bell(width, float(sigma), x.dtype), [-1, 1]) *
                      _tf.reshape(_bell(width, float(sigma), x.dtype), [1, -1]), "SAME") * float(alpha)
    across, down = _ops.unstack(moved, 3)
    rows, columns = _pixels(x, x.dtype)
    return batch.back(_back_to(_warped(x, rows + down, columns + across, interpolation, fill_mode, fill_value), given.dtype))


@_op
def sobel_edges(images, data_format=None):
    """How brightness changes: of every channel the vertical and the horizontal slope, in a new last dimension."""
    given = _checked(images, "sobel_edges")
    batch = _Batch(_float(given), data_format)
    x = _tf.pad(batch.images, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    slope = np.outer([-1, 0, 1], [1, 2, 1]).astype(np.float32)
    parts = [batch.back(_filtered(x, _tensor(kernel, x.dtype), "VALID")) for kernel in (slope, slope.T.copy())]
    return _ops.cast(_tf.stack(parts, -1), given.dtype)


def _triangle(x):
    return _tf.maximum(1.0 - _tf.abs(x), _tf.zeros_like(x))


def _cubic(x):
    x = _tf.abs(x)
    inner = ((1.5 * x - 2.5) * x) * x + 1.0
    outer = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return _tf.where(_tf.less_equal(x, 1.0), inner, _tf.where(_tf.less(x, 2.0), outer, _tf.zeros_like(x)))


def _lanczos(radius):
    def weight(x):
        safe = _tf.where(_tf.equal(x, 0.0), _tf.ones_like(x), x)
        wave = radius * _tf.sin(_math.pi * safe) * _tf.sin(_math.pi * safe / radius) / (_math.pi ** 2 * safe * safe)
        wave = _tf.where(_tf.equal(x, 0.0), _tf.ones_like(x), wave)
        return _tf.where(_tf.greater(_tf.abs(x), float(radius)), _tf.zeros_like(x), wave)
    return weight


_KERNELS = {"linear": _triangle, "bilinear": _triangle, "triangle": _triangle, "cubic": _cubic, "bicubic": _cubic,
            "lanczos3": _lanczos(3.0), "lanczos5": _lanczos(5.0)}


@_op
def scale_and_translate(images, output_shape, scale, translation, spatial_dims, method, antialias=True):
    """An array of another shape, in which the elements of this one are scaled and moved along some dimensions."""
    if method not in _KERNELS:
        raise ValueError(f"scale_and_translate: method is one of {', '.join(_KERNELS)}, received {method!r}")
    given = _tensor(images)
    x = _ops.cast(given, dtypes.float32) if given.dtype is not dtypes.float64 else given
    for i, axis in enumerate(spatial_dims):
        size, target = x.shape[axis], output_shape[axis]
        factor, shift = (_ops.cast(_float(part), x.dtype)[i] for part in (scale, translation))
        places = (_tensor(np.arange(target, dtype=np.float32) + 0.5, x.dtype) - shift) / factor - 0.5
        wide = _tf.maximum(1.0 / factor, 1.0) if antialias else _tf.ones_like(factor)
        distance = _tf.reshape(places, [1, -1]) - _tensor(np.arange(size, dtype=np.float32).reshape(-1, 1), x.dtype)
        weights = _KERNELS[method](distance / wide)
        total = _tf.reduce_sum(weights, 0, True)
        weights = _tf.where(_tf.greater(_tf.abs(total), 1000.0 * 1.1920929e-07), _tf.divide_no_nan(weights, total), _tf.zeros_like(weights))
        inside = _tf.logical_and(_tf.greater_equal(places, -0.5), _tf.less_equal(places, size - 0.5))
        weights = _tf.where(_tf.reshape(inside, [1, -1]), weights, _tf.zeros_like(weights))
        x = _ops.moveaxis(_tf.tensordot(x, weights, [[axis % x.ndim], [0]]), [-1], [axis])
    return _ops.cast(x, given.dtype)


@_op
def ssim(image1, image2, max_val=1.0, filter_size=11, filter_sigma=1.5, k1=0.01, k2=0.03, data_format=None):
    """How much alike the structure of two images is: 1 where they are the same."""
    x1, x2 = _joined_float(image1, image2)
    first, second = (_Batch(_checked(x, "ssim"), data_format) for x in (x1, x2))
    a, b = first.images, second.images
    bell = _bell(filter_size, filter_sigma, a.dtype)
    kernel = _tf.reshape(bell, [-1, 1]) * _tf.reshape(bell, [1, -1])
    mean_a, mean_b, squares, product = (_filtered(x, kernel, "VALID") for x in (a, b, a * a + b * b, a * b))
    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    means = mean_a * mean_b * 2.0
    sums = mean_a * mean_a + mean_b * mean_b
    alike = (means + c1) / (sums + c1) * ((product * 2.0 - means + c2) / (squares - sums + c2))
    made = _tf.reduce_mean(alike, [1, 2, 3])
    return made[0] if x1.ndim == 3 else made


__all__ = []  # keras.ops.image has them alone
