"""keras.ops.image."""

from ...image import resize, rgb_to_grayscale  # noqa: F401

__all__ = []
