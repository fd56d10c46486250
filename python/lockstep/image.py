"""tf.image."""

from . import _lockstep, dtypes
from .ops import _sizes
from .tensor import convert_to_tensor

_ops = _lockstep.ops


class ResizeMethod:
    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = "bilinear", "nearest", "bicubic", "area"
    LANCZOS3, LANCZOS5 = "lanczos3", "lanczos5"


def resize(images, size, method=ResizeMethod.BILINEAR, preserve_aspect_ratio=False, antialias=False, name=None):
    """The images in another size; float32, but for the nearest pixels."""
    if preserve_aspect_ratio:
        raise NotImplementedError("resize: preserve_aspect_ratio; give the size that keeps it")
    images = convert_to_tensor(images)
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
    images = convert_to_tensor(images)
    grey = _ops.tensordot(_ops.cast(images, dtypes.float32), convert_to_tensor([0.2989, 0.587, 0.114]), [-1 % images.ndim], [0])
    return _ops.expand_dims(_ops.cast(grey, images.dtype), -1)


def grayscale_to_rgb(images, name=None):
    """The same three times."""
    images = convert_to_tensor(images)
    return _ops.tile(images, [1] * (images.ndim - 1) + [3])


def convert_image_dtype(image, dtype, saturate=False, name=None):
    """Between [0, 1] of floats and [0, 255] of bytes."""
    image, dtype = convert_to_tensor(image), dtypes.as_dtype(dtype)
    if image.dtype is dtype:
        return image
    if image.dtype is dtypes.uint8 and dtype.is_floating:
        return _ops.cast(image, dtype) / 255.0
    if dtype is dtypes.uint8 and image.dtype.is_floating:
        return _ops.cast(_ops.clip_by_value(image * 255.5, 0.0, 255.0), dtype)
    return _ops.cast(image, dtype)


def per_image_standardization(image):
    """Mean 0, variance 1."""
    image = _ops.cast(image, dtypes.float32)
    axes = [-3, -2, -1]
    mean, variance = _ops.moments(image, [axis % image.ndim for axis in axes], True)
    size = image._shape[-1] * image._shape[-2] * image._shape[-3]
    return (image - mean) / _ops.maximum(_ops.sqrt(variance), 1.0 / size ** 0.5)


def adjust_brightness(image, delta):
    """Brighter by so much."""
    return image + delta


def adjust_contrast(images, contrast_factor):
    """Further from the mean by so much."""
    mean, _ = _ops.moments(images, [images.ndim - 3, images.ndim - 2], True)
    return (images - mean) * contrast_factor + mean
