"""tf.image."""

import collections

import numpy as np

from . import _lockstep, dtypes, errors, io, random
from .ops import _sizes, pad, saturate_cast
from .tensor import convert_to_tensor

_ops = _lockstep.ops


class ResizeMethod:
    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = "bilinear", "nearest", "bicubic", "area"
    LANCZOS3, LANCZOS5 = "lanczos3", "lanczos5"


decode_image, decode_jpeg, decode_png = io.decode_image, io.decode_jpeg, io.decode_png
encode_jpeg, encode_png = io.encode_jpeg, io.encode_png
is_jpeg, extract_jpeg_shape, decode_and_crop_jpeg = io.is_jpeg, io.extract_jpeg_shape, io.decode_and_crop_jpeg


def _of_keras(name):
    """A function of keras.ops.image, which stands on this module's room."""
    from .keras.ops import image
    return getattr(image, name)


def resize(images, size, method=ResizeMethod.BILINEAR, preserve_aspect_ratio=False, antialias=False, name=None):
    """The images in another size, or as large as they fit into it with their proportions; float32, but nearest neighbours keep the dtype."""
    images = convert_to_tensor(images)
    if preserve_aspect_ratio:
        high, wide = _sizes(size)
        share = min(high / images._shape[-3], wide / images._shape[-2])
        size = [round(images._shape[-3] * share), round(images._shape[-2] * share)]
    if method != "nearest":
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


# What red, green and blue add to luminance and to the two differences of colours, and these to red, green and blue.
_YUV = [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
_YIQ = [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]]

_FROM_YUV = [[1.0, 1.0, 1.0], [0.0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0.0]]
_FROM_YIQ = [[1.0, 1.0, 1.0], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]]


def _mixed(name, matrix, doc):
    def mix(images, name=None):
        images = convert_to_tensor(images)
        return _ops.tensordot(images, _ops.cast(convert_to_tensor(np.asarray(matrix, np.float32)), images.dtype), [images.ndim - 1], [0])
    mix.__name__, mix.__doc__ = name, doc
    return mix


rgb_to_yuv = _mixed("rgb_to_yuv", _YUV, "Luminance and two differences of colours, as PAL has them.")
yuv_to_rgb = _mixed("yuv_to_rgb", _FROM_YUV, "Red, green and blue of luminance and differences of colours.")
rgb_to_yiq = _mixed("rgb_to_yiq", _YIQ, "Luminance and two differences of colours, as NTSC has them.")
yiq_to_rgb = _mixed("yiq_to_rgb", _FROM_YIQ, "Red, green and blue of luminance and differences of colours.")


def adjust_jpeg_quality(image, jpeg_quality, dct_method="", name=None):
    """The image after JPEG compression with this quality, 0 to 100."""
    image = convert_to_tensor(image)
    if image.symbolic:
        raise NotImplementedError("adjust_jpeg_quality: the image is encoded and decoded on the host, in dataset.map or before the function that is being "
                                  "traced is called")
    made = io.decode_jpeg(io.encode_jpeg(convert_image_dtype(image, dtypes.uint8, saturate=True), quality=int(jpeg_quality)), image._shape[-1])
    return convert_image_dtype(made, image.dtype)


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


def _qualities(low, high, what):
    low, high = int(low), int(high)
    if not 0 <= low < high <= 100:
        raise ValueError(f"{what}: qualities are within [0, 100], the smallest one first, received {low} and {high}")
    return low, high


def random_jpeg_quality(image, min_jpeg_quality, max_jpeg_quality, seed=None):
    """The image after JPEG compression with a random quality in [min_jpeg_quality, max_jpeg_quality)."""
    low, high = _qualities(min_jpeg_quality, max_jpeg_quality, "random_jpeg_quality")
    return adjust_jpeg_quality(image, random.uniform([], low, high, dtypes.int32, seed))


def stateless_random_jpeg_quality(image, min_jpeg_quality, max_jpeg_quality, seed):
    """The same for the same seed, a pair of integers."""
    low, high = _qualities(min_jpeg_quality, max_jpeg_quality, "stateless_random_jpeg_quality")
    return adjust_jpeg_quality(image, random.stateless_uniform([], seed, low, high, dtypes.int32))


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


def ssim_multiscale(img1, img2, max_val, power_factors=(0.0448, 0.2856, 0.3001, 0.2363, 0.1333), filter_size=11, filter_sigma=1.5, k1=0.01, k2=0.03):
    """How alike images are in structure at several scales, each half as large as the one before it: 1 for the same."""
    largest = float(_largest(img1, max_val))
    img1, img2 = (convert_image_dtype(image, dtypes.float32) for image in (img1, img2))
    scales = []
    for scale in range(len(power_factors)):
        if scale:
            img1, img2 = (_halved(image) for image in (img1, img2))
        whole, contrast = _similarity(img1, img2, largest, filter_size, filter_sigma, k1, k2)
        scales.append(_ops.relu(contrast if scale + 1 < len(power_factors) else whole))
    made = scales[0] ** power_factors[0]
    for part, factor in zip(scales[1:], power_factors[1:]):
        made = made * part ** factor
    return _ops.reduce_mean(made, [made.ndim - 1], False)


def _halved(image):
    *outer, height, width, channels = image._shape
    flat = pad(_ops.reshape(image, [-1, height, width, channels]), [[0, 0], [0, height % 2], [0, width % 2], [0, 0]], "SYMMETRIC")
    made = _ops.avg_pool2d(flat, [2], [2], "valid", "channels_last")
    return _ops.reshape(made, [*outer, *made._shape[1:]])


def _similarity(x, y, largest, size, sigma, k1, k2):
    """For each channel the mean similarity of structure, and that of contrast alone."""
    *outer, height, width, channels = x._shape
    if min(height, width) < size:
        raise errors.InvalidArgumentError(f"ssim_multiscale: images of {height} x {width} pixels are smaller than the filter of {size}; give larger ones, a "
                                          "smaller filter_size or fewer power_factors")
    line = np.exp(-0.5 * ((np.arange(size) - (size - 1) / 2.0) / sigma) ** 2)
    weights = np.outer(line, line) / line.sum() ** 2
    filters = convert_to_tensor(np.repeat(weights[:, :, None, None], channels, 2).astype(np.float32))

    def blurred(image):
        flat = _ops.reshape(image, [-1, height, width, channels])
        return _ops.depthwise_conv2d(flat, filters, [1], "valid", [1], "channels_last")
    c1, c2 = (k1 * largest) ** 2, (k2 * largest) ** 2
    mean_x, mean_y = blurred(x), blurred(y)
    product, squares = mean_x * mean_y, _ops.square(mean_x) + _ops.square(mean_y)
    contrast = (2.0 * (blurred(x * y) - product) + c2) / (blurred(_ops.square(x) + _ops.square(y)) - squares + c2)
    whole = (2.0 * product + c1) / (squares + c1) * contrast
    return tuple(_ops.reshape(_ops.reduce_mean(part, [1, 2], False), [*outer, channels]) for part in (whole, contrast))


def total_variation(images, name=None):
    """The sum of the differences of neighbours, for each image."""
    images, height, width = _spatial(images, "total_variation")
    down = _part(images, 1, 0, height - 1, width) - _part(images, 0, 0, height - 1, width)
    across = _part(images, 0, 1, height, width - 1) - _part(images, 0, 0, height, width - 1)
    axes = [images.ndim - 3, images.ndim - 2, images.ndim - 1]
    return _ops.reduce_sum(_ops.abs(down), axes, False) + _ops.reduce_sum(_ops.abs(across), axes, False)


def _overlaps(boxes):
    """How much of the two together boxes (y1, x1, y2, x2) have in common, (boxes, boxes)."""
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    areas = np.prod(high - low, axis=1)
    common = np.prod(np.clip(np.minimum(high[:, None], high) - np.maximum(low[:, None], low), 0, None), axis=2)
    union = areas[:, None] + areas - common
    return np.where((areas[:, None] > 0) & (areas > 0), common / np.where(union > 0, union, 1), 0)


def _best(overlap, scores, max_output_size, threshold, score_threshold, sigma=0.0):
    """Numbers of the boxes that are kept, the best one first, and their scores. Where sigma is not 0 none is dropped for what better ones cover of
    it: its score becomes smaller."""
    left, scores, kept = np.ones(len(scores), bool), scores.astype(np.float64).copy(), []
    while left.any() and len(kept) < int(max_output_size):
        number = int(np.argmax(np.where(left, scores, -np.inf)))
        if not scores[number] > score_threshold:
            break
        left[number] = False
        kept.append(number)
        if sigma > 0:
            scores[left] *= np.exp(-0.5 * overlap[number, left] ** 2 / sigma)
        else:
            left &= ~(overlap[number] > threshold)
    return np.array(kept, np.int32), scores[kept].astype(np.float32)


def _of_boxes(boxes, scores, *options):
    boxes, scores = np.asarray(convert_to_tensor(boxes), np.float64), np.asarray(convert_to_tensor(scores))
    return _best(_overlaps(boxes), scores, *options)


def non_max_suppression(boxes, scores, max_output_size, iou_threshold=0.5, score_threshold=float("-inf"), name=None):
    """Numbers of the boxes (y1, x1, y2, x2) that are kept, the best one first: none covers more than this share of another one."""
    return convert_to_tensor(_of_boxes(boxes, scores, max_output_size, iou_threshold, score_threshold)[0])


def non_max_suppression_with_scores(boxes, scores, max_output_size, iou_threshold=0.5, score_threshold=float("-inf"), soft_nms_sigma=0.0, name=None):
    """The same, and their scores, which with soft_nms_sigma become smaller by what better boxes cover."""
    kept, found = _of_boxes(boxes, scores, max_output_size, iou_threshold, score_threshold, float(soft_nms_sigma))
    return convert_to_tensor(kept), convert_to_tensor(found)


def non_max_suppression_overlaps(overlaps, scores, max_output_size, overlap_threshold=0.5, score_threshold=float("-inf"), name=None):
    """non_max_suppression() of boxes whose overlaps are given, of shape (boxes, boxes)."""
    overlaps, scores = np.asarray(convert_to_tensor(overlaps), np.float64), np.asarray(convert_to_tensor(scores))
    return convert_to_tensor(_best(overlaps, scores, max_output_size, overlap_threshold, score_threshold)[0])


def combined_non_max_suppression(boxes, scores, max_output_size_per_class, max_total_size, iou_threshold=0.5, score_threshold=float("-inf"),
                                 pad_per_class=False, clip_boxes=True, name=None):
    """The best boxes of each image among those that are kept for each class: boxes (batch, count, 1 or classes, 4), scores (batch, count, classes).
    Boxes, scores, classes, filled up with zeros, and how many there are."""
    boxes, scores = np.asarray(convert_to_tensor(boxes), np.float32), np.asarray(convert_to_tensor(scores), np.float32)
    batch, _, classes = scores.shape
    size = min(int(max_total_size), int(max_output_size_per_class) * classes) if pad_per_class else int(max_total_size)
    made = CombinedNonMaxSuppression(*(np.zeros(shape, kind) for shape, kind in (((batch, size, 4), np.float32), ((batch, size), np.float32),
                                                                                 ((batch, size), np.float32), ((batch,), np.int32))))
    for image in range(batch):
        found = []
        for number in range(classes):
            own = boxes[image, :, min(number, boxes.shape[2] - 1)]
            kept, _ = _best(_overlaps(own.astype(np.float64)), scores[image, :, number], max_output_size_per_class, iou_threshold, score_threshold)
            found += [(float(scores[image, place, number]), number, own[place]) for place in kept]
        found = sorted(found, key=lambda one: -one[0])[:size]
        made.valid_detections[image] = len(found)
        for place, (score, number, box) in enumerate(found):
            made.nmsed_boxes[image, place] = np.clip(box, 0, 1) if clip_boxes else box
            made.nmsed_scores[image, place], made.nmsed_classes[image, place] = score, number
    return CombinedNonMaxSuppression(*map(convert_to_tensor, made))


CombinedNonMaxSuppression = collections.namedtuple("CombinedNonMaxSuppression", "nmsed_boxes nmsed_scores nmsed_classes valid_detections")


def draw_bounding_boxes(images, boxes, colors, name=None):
    """Images, (batch, height, width, channels), with frames around boxes (y1, x1, y2, x2), whose corners are shares of height and width, each
    in the next one of the colours; None: ten colours in turn."""
    images, boxes = convert_to_tensor(images), np.asarray(convert_to_tensor(boxes), np.float32)
    if images.ndim != 4 or boxes.ndim != 3:
        raise ValueError(f"draw_bounding_boxes: takes a batch of images and boxes of shape (batch, count, 4), received {images.shape} and {boxes.shape}")
    made, (height, width, channels) = np.array(images), images._shape[1:]
    colors = np.asarray([] if colors is None else convert_to_tensor(colors), np.float32)
    colors = colors if colors.size else np.array(_COLORS, np.float32)
    if channels == 1:
        colors = np.ones((1, 1), np.float32)
    for image, own in zip(made, boxes):
        for number, box in enumerate(own):
            edges = np.array(box, np.float32) * np.array([height - 1, width - 1, height - 1, width - 1], np.float32)
            top, left, bottom, right = (int(edge) for edge in edges)
            if top > bottom or left > right or top >= height or left >= width or bottom < 0 or right < 0:
                continue
            color = colors[number % len(colors)][:channels]
            rows, columns = slice(max(top, 0), min(bottom, height - 1) + 1), slice(max(left, 0), min(right, width - 1) + 1)
            for row in (top, bottom):
                if 0 <= row < height:
                    image[row, columns] = color
            for column in (left, right):
                if 0 <= column < width:
                    image[rows, column] = color
    return convert_to_tensor(made)


_COLORS = [[1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1], [0.5, 0.5, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1], [0, 1, 1, 1],
           [1, 0, 1, 1]]


def sobel_edges(image):
    """The image's vertical and horizontal Sobel gradients, of shape (batch, height, width, channels, 2)."""
    image = convert_to_tensor(image)
    across = np.outer([1.0, 2.0, 1.0], [-1.0, 0.0, 1.0])
    filters = np.repeat(np.stack([across.T, across], -1)[:, :, None], image._shape[-1], 2)
    margins = pad(image, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    made = _ops.depthwise_conv2d(margins, _ops.cast(convert_to_tensor(filters.astype(np.float32)), image.dtype), [1], "valid", [1], "channels_last")
    return _ops.reshape(made, [*image._shape, 2])


def image_gradients(image):
    """The differences to the next row and to the next column; 0 at the end."""
    image, height, width = _spatial(image, "image_gradients")
    margins = [[0, 0]] * (image.ndim - 3)
    down = _part(image, 1, 0, height - 1, width) - _part(image, 0, 0, height - 1, width)
    across = _part(image, 0, 1, height, width - 1) - _part(image, 0, 0, height, width - 1)
    return pad(down, margins + [[0, 1], [0, 0], [0, 0]]), pad(across, margins + [[0, 0], [0, 1], [0, 0]])
