"""tf.image."""

import numpy as np

from . import _lockstep, dtypes, io, random
from .ops import _sizes, pad, saturate_cast
from .tensor import convert_to_tensor

_ops = _lockstep.ops


class ResizeMethod:
    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = "bilinear", "nearest", "bicubic", "area"
    LANCZOS3, LANCZOS5 = "lanczos3", "lanczos5"


decode_image, decode_jpeg, decode_png = io.decode_image, io.decode_jpeg, io.decode_png
encode_jpeg, encode_png = io.encode_jpeg, io.encode_png


def _of_keras(name):
    """A function of keras.ops.image, which stands on this module's room."""
    from .keras.ops import image
    return getattr(image, name)


def resize(images, size, method=ResizeMethod.BILINEAR, preserve_aspect_ratio=False, antialias=False, name=None):
    """The images in another size, or as large as they fit into it with their proportions; float32, but for the nearest pixels."""
    images = convert_to_tensor(images)
    if preserve_aspect_ratio:
        high, wide = _sizes(size)
        share = min(high / images._shape[-3], wide / images._shape[-2])
        size = [round(images._shape[-3] * share), round(images._shape[-2] * share)]
    if method != "nearest" and not images.dtype.is_floating:
        images = _ops.cast(images, dtypes.float32)
    return _ops.resize(images, _sizes(size), method, antialias)


def flip_left_right(image):
    """Mirrored."""
    return _ops.reverse(image, [-2])


def flip_up_down(image):
    """Upside down."""
    return _ops.reverse(image, [-3])


def rgb_to_grayscale(images, name=None):
    """One channel of brightness."""
    def grey(floats):
        return _ops.expand_dims(_ops.tensordot(floats, _ops.cast(convert_to_tensor([0.2989, 0.587, 0.114]), floats.dtype), [floats.ndim - 1], [0]), -1)
    return _as_floats(images, grey)


def grayscale_to_rgb(images, name=None):
    """The same three times."""
    images = convert_to_tensor(images)
    return _ops.tile(images, [1] * (images.ndim - 1) + [3])


def convert_image_dtype(image, dtype, saturate=False, name=None):
    """Between [0, 1] of floats and the range of integers, [0, 255] of bytes; between integers, their ranges."""
    image, dtype = convert_to_tensor(image), dtypes.as_dtype(dtype)
    if image.dtype is dtype:
        return image
    if image.dtype.is_floating and dtype.is_floating:
        return _ops.cast(image, dtype)
    if dtype.is_floating:
        return _ops.cast(image, dtype) / float(image.dtype.max)
    if image.dtype.is_floating:
        # The half makes the last of the integers as wide as the others. What is outside is saturated, asked or not.
        return saturate_cast(image * (dtype.max + 0.5), dtype)
    if image.dtype.max > dtype.max:
        return _ops.cast(image // ((image.dtype.max + 1) // (dtype.max + 1)), dtype)
    return _ops.cast(image, dtype) * ((dtype.max + 1) // (image.dtype.max + 1))


def per_image_standardization(image):
    """Mean 0, variance 1."""
    image = _ops.cast(image, dtypes.float32)
    axes = [-3, -2, -1]
    mean, variance = _ops.moments(image, [axis % image.ndim for axis in axes], True)
    size = image._shape[-1] * image._shape[-2] * image._shape[-3]
    return (image - mean) / _ops.maximum(_ops.sqrt(variance), 1.0 / size ** 0.5)


def adjust_brightness(image, delta):
    """Brighter by so much, where 1 is white."""
    return _as_floats(image, lambda floats: floats + delta)


def _as_floats(image, change):
    """The image changed as floating point numbers; bytes stay bytes."""
    image = convert_to_tensor(image)
    made = change(image if image.dtype.is_floating else convert_image_dtype(image, dtypes.float32))
    return convert_image_dtype(made, image.dtype)


def adjust_contrast(images, contrast_factor):
    """Further from the mean by so much."""
    def further(floats):
        mean, _ = _ops.moments(floats, [floats.ndim - 3, floats.ndim - 2], True)
        return (floats - mean) * contrast_factor + mean
    return _as_floats(images, further)


def adjust_gamma(image, gamma=1, gain=1):
    """gain * image ** gamma."""
    return _as_floats(image, lambda floats: _ops.pow(floats, float(gamma)) * gain)


def rgb_to_hsv(images, name=None):
    """Hue, saturation and value of colours, all in [0, 1]."""
    return _of_keras("rgb_to_hsv")(images, data_format="channels_last")


def hsv_to_rgb(images, name=None):
    """Red, green and blue of hue, saturation and value."""
    return _of_keras("hsv_to_rgb")(images, data_format="channels_last")


def _in_hsv(image, change):
    """The image with its hue, saturation and value changed; bytes stay bytes."""
    def changed(floats):
        return hsv_to_rgb(_ops.stack(list(change(*_ops.unstack(rgb_to_hsv(floats), -1))), -1))
    return _as_floats(image, changed)


def adjust_saturation(image, saturation_factor, name=None):
    """The saturation times so much, 1 at most."""
    return _in_hsv(image, lambda hue, saturation, value: (hue, _ops.clip_by_value(saturation * saturation_factor, 0.0, 1.0), value))


def adjust_hue(image, delta, name=None):
    """The colours turned by so much; 1 is a whole turn."""
    return _in_hsv(image, lambda hue, saturation, value: (_ops.floormod(hue + delta, 1.0), saturation, value))


# --- parts and margins ---------------------------------------------------------------------------------------------------

def _spatial(image, what):
    image = convert_to_tensor(image)
    if image.ndim not in (3, 4):
        raise ValueError(f"{what}: takes an image of shape (height, width, channels) or a batch of them, received shape {image.shape}")
    return image, image._shape[-3], image._shape[-2]


def _part(image, top, left, height, width):
    outer = image.ndim - 3
    begin = [0] * outer + [top, left, 0]
    end = list(image._shape[:outer]) + [top + height, left + width, image._shape[-1]]
    return _ops.strided_slice(image, begin, end, [1] * image.ndim)


def crop_to_bounding_box(image, offset_height, offset_width, target_height, target_width):
    """The part of this size that begins here."""
    image, height, width = _spatial(image, "crop_to_bounding_box")
    top, left, high, wide = (int(part) for part in (offset_height, offset_width, target_height, target_width))
    if min(top, left) < 0 or min(high, wide) <= 0 or top + high > height or left + wide > width:
        raise ValueError(f"crop_to_bounding_box: {high} x {wide} pixels from ({top}, {left}) on are not inside of {height} x {width}")
    return _part(image, top, left, high, wide)


def pad_to_bounding_box(image, offset_height, offset_width, target_height, target_width):
    """The image at this place of a larger black one."""
    image, height, width = _spatial(image, "pad_to_bounding_box")
    top, left, high, wide = (int(part) for part in (offset_height, offset_width, target_height, target_width))
    below, right = high - height - top, wide - width - left
    if min(top, left, below, right) < 0:
        raise ValueError(f"pad_to_bounding_box: {height} x {width} pixels at ({top}, {left}) are not inside of {high} x {wide}")
    return pad(image, [[0, 0]] * (image.ndim - 3) + [[top, below], [left, right], [0, 0]])


def resize_with_crop_or_pad(image, target_height, target_width):
    """The middle of the image in this size, black around it where the image is smaller."""
    image, height, width = _spatial(image, "resize_with_crop_or_pad")
    high, wide = int(target_height), int(target_width)
    image = _part(image, max(height - high, 0) // 2, max(width - wide, 0) // 2, min(height, high), min(width, wide))
    return pad_to_bounding_box(image, max(high - height, 0) // 2, max(wide - width, 0) // 2, high, wide)


def resize_with_pad(image, target_height, target_width, method=ResizeMethod.BILINEAR, antialias=False):
    """As large as it fits into this size with its proportions, black around it."""
    image, height, width = _spatial(image, "resize_with_pad")
    high, wide = int(target_height), int(target_width)
    ratio = max(height / high, width / wide)
    inner = [height / ratio, width / ratio]
    made = resize(image, [int(size) for size in inner], method, antialias=antialias)
    # The margins are halved before the size is rounded, as TensorFlow does it.
    return pad_to_bounding_box(made, int((high - inner[0]) / 2), int((wide - inner[1]) / 2), high, wide)


def central_crop(image, central_fraction):
    """The middle, so large a part of height and width."""
    if not 0.0 < central_fraction <= 1.0:
        raise ValueError(f"central_crop: central_fraction is within (0, 1], received {central_fraction}")
    image, height, width = _spatial(image, "central_crop")
    top, left = (int((size - size * central_fraction) / 2) for size in (height, width))
    return _part(image, top, left, height - 2 * top, width - 2 * left)


def rot90(image, k=1, name=None):
    """Turned by k quarters, against the clock."""
    image, _, _ = _spatial(image, "rot90")
    turned = {0: lambda: image, 1: lambda: flip_up_down(transpose(image)), 2: lambda: _ops.reverse(image, [-3, -2]),
              3: lambda: transpose(flip_up_down(image))}
    return turned[int(k) % 4]()


def transpose(image, name=None):
    """Height and width exchanged."""
    image, _, _ = _spatial(image, "transpose")
    return _ops.transpose(image, list(range(image.ndim - 3)) + [image.ndim - 2, image.ndim - 3, image.ndim - 1])


def crop_and_resize(image, boxes, box_indices, crop_size, method="bilinear", extrapolation_value=0.0, name=None):
    """The parts in boxes (y1, x1, y2, x2), whose corners are shares of height and width, each in this size. A box belongs to the image of
    its number."""
    image, height, width = _spatial(image, "crop_and_resize")
    boxes, numbers = np.asarray(convert_to_tensor(boxes), np.float32), np.asarray(convert_to_tensor(box_indices))
    nearest = {"nearest": True, "bilinear": False}[method]
    made = []
    for (y1, x1, y2, x2), number in zip(boxes, numbers):
        places = [_sampled(first, last, size, wanted) for first, last, size, wanted in ((y1, y2, height, crop_size[0]), (x1, x2, width, crop_size[1]))]
        part = _ops.cast(image[int(number)], dtypes.float32)
        for axis, (at, inside) in enumerate(places):
            part = _between(part, at, axis, nearest)
            seen = convert_to_tensor(inside.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1)))
            part = _ops.where(seen, part, convert_to_tensor(float(extrapolation_value)))
        made.append(part)
    return _ops.stack(made, 0)


def _sampled(first, last, size, count):
    """Where so many samples lie along a dimension, and which of them are inside."""
    count = int(count)
    # In float32, as TensorFlow: what is half way between two pixels goes to the same one.
    at = first * (size - 1) + np.arange(count, dtype=np.float32) * ((last - first) * (size - 1) / (count - 1)) if count > 1 else \
        np.array([0.5 * (first + last) * (size - 1)])
    return np.clip(at, 0, size - 1), (at >= 0) & (at <= size - 1)


def _between(image, at, axis, nearest):
    if nearest:
        return _ops.gather(image, convert_to_tensor(np.floor(at + 0.5).astype(np.int32)), axis, 0)
    low = np.floor(at).astype(np.int32)
    share = convert_to_tensor((at - low).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1)))
    high = np.minimum(low + 1, image._shape[axis] - 1).astype(np.int32)
    below, above = (_ops.gather(image, convert_to_tensor(places), axis, 0) for places in (low, high))
    return below + (above - below) * share


def extract_patches(images, sizes, strides, rates, padding, name=None):
    """Patches of every place, side by side in the last dimension."""
    return _of_keras("extract_patches")(images, tuple(sizes[1:3]), tuple(strides[1:3]), tuple(rates[1:3]), padding.lower(), data_format="channels_last")


# --- at random -----------------------------------------------------------------------------------------------------------

def _drawn(low, high, seed, stateless):
    """A number in [low, high); without a state where the seed is a pair."""
    if stateless:
        return random.stateless_uniform([], seed, low, high)
    return random.uniform([], low, high, seed=seed)


def _flipped(images, seed, axis, what, stateless=False):
    images, _, _ = _spatial(images, what)
    count = [images._shape[0], 1, 1, 1] if images.ndim == 4 else []
    drawn = random.stateless_uniform(count, seed) if stateless else random.uniform(count, seed=seed)
    return _ops.where(drawn < 0.5, images, _ops.reverse(images, [axis]))


def random_flip_left_right(image, seed=None):
    """Mirrored, or not: every image of a batch for itself."""
    return _flipped(image, seed, -2, "random_flip_left_right")


def random_flip_up_down(image, seed=None):
    """Upside down, or not: every image of a batch for itself."""
    return _flipped(image, seed, -3, "random_flip_up_down")


def stateless_random_flip_left_right(image, seed):
    """The same for the same seed, a pair of integers."""
    return _flipped(image, seed, -2, "stateless_random_flip_left_right", True)


def stateless_random_flip_up_down(image, seed):
    """The same for the same seed, a pair of integers."""
    return _flipped(image, seed, -3, "stateless_random_flip_up_down", True)


def _at_random(name, change, symmetric, doc):
    """random_NAME and stateless_random_NAME, which change an image by a number that is drawn."""
    def limits(first, second):
        if symmetric and first < 0 or not symmetric and second <= first:
            raise ValueError(f"random_{name}: numbers are drawn from {f'[-{first}, {first})' if symmetric else f'[{first}, {second})'}, which is empty")
        return (-first, first) if symmetric else (first, second)

    if symmetric:
        def drawn(image, max_delta, seed=None):
            return change(image, _drawn(*limits(max_delta, None), seed, False))

        def stateless(image, max_delta, seed):
            return change(image, _drawn(*limits(max_delta, None), seed, True))
    else:
        def drawn(image, lower, upper, seed=None):
            return change(image, _drawn(*limits(lower, upper), seed, False))

        def stateless(image, lower, upper, seed):
            return change(image, _drawn(*limits(lower, upper), seed, True))
    drawn.__name__, drawn.__doc__ = f"random_{name}", doc
    stateless.__name__, stateless.__doc__ = f"stateless_random_{name}", f"{doc} The same for the same seed, a pair of integers."
    return drawn, stateless


random_brightness, stateless_random_brightness = _at_random("brightness", adjust_brightness, True, "Brighter or darker.")
random_contrast, stateless_random_contrast = _at_random("contrast", adjust_contrast, False, "Of more or less contrast.")
random_saturation, stateless_random_saturation = _at_random("saturation", adjust_saturation, False, "Of stronger or paler colours.")
random_hue, stateless_random_hue = _at_random("hue", adjust_hue, True, "Of other colours.")


def _cropped(value, size, what, draw):
    value, size = convert_to_tensor(value), _sizes(size)
    if len(size) != value.ndim or any(part > whole for part, whole in zip(size, value._shape)):
        raise ValueError(f"{what}: a part of shape {tuple(size)} is not inside of {tuple(value._shape)}")
    for axis, (part, whole) in enumerate(zip(size, value._shape)):
        if part != whole:
            first = _ops.cast(draw(axis) * float(whole - part + 1), dtypes.int32)
            value = _ops.gather(value, first + _ops.range(0.0, float(part), 1.0, dtypes.int32), axis, 0)
    return value


def random_crop(value, size, seed=None, name=None):
    """A part of this shape, from anywhere."""
    return _cropped(value, size, "random_crop", lambda axis: random.uniform([], seed=None if seed is None else seed + axis))


def stateless_random_crop(value, size, seed, name=None):
    """The same for the same seed, a pair of integers."""
    first, second = (int(part) for part in np.asarray(convert_to_tensor(seed)))
    return _cropped(value, size, "stateless_random_crop", lambda axis: random.stateless_uniform([], [first, second + axis]))


# --- how alike images are ------------------------------------------------------------------------------------------------

def psnr(a, b, max_val, name=None):
    """The largest value against the mean square of the differences, in decibels."""
    largest = _largest(a, max_val)
    a, b = (convert_image_dtype(image, dtypes.float32) for image in (a, b))
    mean = _ops.reduce_mean(_ops.squared_difference(a, b), [a.ndim - 3, a.ndim - 2, a.ndim - 1], False)
    return 20.0 * _ops.log10(largest) - 10.0 * _ops.log10(mean)


def _largest(image, max_val):
    """The largest value of such images once they are float32."""
    return convert_image_dtype(_ops.cast(convert_to_tensor(max_val), convert_to_tensor(image).dtype), dtypes.float32)


def ssim(img1, img2, max_val, filter_size=11, filter_sigma=1.5, k1=0.01, k2=0.03):
    """How alike images are in structure: 1 for the same."""
    largest = float(_largest(img1, max_val))
    img1, img2 = (convert_image_dtype(image, dtypes.float32) for image in (img1, img2))
    return _of_keras("ssim")(img1, img2, max_val=largest, filter_size=filter_size, filter_sigma=filter_sigma, k1=k1, k2=k2,
                             data_format="channels_last")


def total_variation(images, name=None):
    """The sum of the differences of neighbours, for each image."""
    images, height, width = _spatial(images, "total_variation")
    down = _part(images, 1, 0, height - 1, width) - _part(images, 0, 0, height - 1, width)
    across = _part(images, 0, 1, height, width - 1) - _part(images, 0, 0, height, width - 1)
    axes = [images.ndim - 3, images.ndim - 2, images.ndim - 1]
    return _ops.reduce_sum(_ops.abs(down), axes, False) + _ops.reduce_sum(_ops.abs(across), axes, False)


def non_max_suppression(boxes, scores, max_output_size, iou_threshold=0.5, score_threshold=float("-inf"), name=None):
    """Numbers of the boxes (y1, x1, y2, x2) that are kept, the best one first: none covers more than this share of another one."""
    boxes, scores = np.asarray(convert_to_tensor(boxes), np.float64), np.asarray(convert_to_tensor(scores))
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    areas = np.prod(high - low, axis=1)
    kept = []
    for number in np.argsort(-scores, kind="stable"):
        if len(kept) == int(max_output_size) or scores[number] <= score_threshold:
            break
        common = np.prod(np.clip(np.minimum(high[number], high[kept]) - np.maximum(low[number], low[kept]), 0, None), axis=1)
        union = areas[number] + areas[kept] - common
        if not np.any(common > iou_threshold * union):
            kept.append(int(number))
    return convert_to_tensor(np.array(kept, np.int32))


def image_gradients(image):
    """The differences to the next row and to the next column; 0 at the end."""
    image, height, width = _spatial(image, "image_gradients")
    margins = [[0, 0]] * (image.ndim - 3)
    down = _part(image, 1, 0, height - 1, width) - _part(image, 0, 0, height - 1, width)
    across = _part(image, 0, 1, height, width - 1) - _part(image, 0, 0, height, width - 1)
    return pad(down, margins + [[0, 1], [0, 0], [0, 0]]), pad(across, margins + [[0, 0], [0, 1], [0, 0]])
