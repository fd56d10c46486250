"""Layers of images that are made of keras.ops."""

import numpy as np

from . import ops
from ._layer import Layer
from .backend import standardize_data_format
from .ops.image import _Batch

_LEVELS = 256


def _neighbours(size, tile, count):
    """For each of so many pixels the two tiles between whose middles it is, and how near it is to the second."""
    place = (np.arange(size) - tile / 2.0) / tile
    first = np.floor(place)
    ends = [np.clip(first + step, 0, count - 1).astype(np.int32) for step in (0, 1)]
    share = (place - first).astype(np.float32)
    return list(zip(ends, (1.0 - share, share)))


def _along(axis, values):
    """A list of numbers along one of the four dimensions of a batch of images."""
    return ops.convert_to_tensor(np.asarray(values).reshape([-1 if i == axis else 1 for i in range(4)]))


class ContrastLimitedAdaptiveHistogramEqualization(Layer):
    """Images in which each part uses all levels of brightness: tile by tile, but no level grows more than the limit allows, and between
    the middles of tiles the results of the four nearest are mixed."""

    _needs_no_input = True

    def __init__(self, value_range=(0, 255), clip_limit=4.0, tile_grid_size=(8, 8), data_format=None, **kwargs):
        super().__init__(**kwargs)
        self.value_range, self.clip_limit, self.tile_grid_size = tuple(value_range), clip_limit, tuple(tile_grid_size)
        self.data_format = standardize_data_format(data_format)

    _training_by_default = True  # as files of Keras have it, though nothing depends on it

    def call(self, images):
        low, high = (float(end) for end in self.value_range)
        batch = _Batch(images, self.data_format)
        made = self._equalized((ops.cast(batch.images, "float32") - low) * ((_LEVELS - 1) / (high - low)))
        return batch.back(ops.cast(made * ((high - low) / (_LEVELS - 1)) + low, images.dtype))

    def _equalized(self, x):
        count, high, wide, channels = x.shape
        rows, columns = self.tile_grid_size
        tall, broad = -(-high // rows), -(-wide // columns)
        x = ops.pad(x, ((0, 0), (0, tall * rows - high), (0, broad * columns - wide), (0, 0)), "symmetric")
        level = ops.clip(ops.cast(x, "int32"), 0, _LEVELS - 1)

        def cells(row, column):
            """Where the levels of the tile (row, column) begin, for every image and channel."""
            tile = (_along(0, np.arange(count, dtype=np.int32)) * rows + _along(1, row)) * columns + _along(2, column)
            return (tile * channels + _along(3, np.arange(channels, dtype=np.int32))) * _LEVELS
        own = cells(np.repeat(np.arange(rows, dtype=np.int32), tall), np.repeat(np.arange(columns, dtype=np.int32), broad))
        tables = self._tables(ops.reshape(own + level, [-1]), count * rows * columns * channels, float(tall * broad))
        level = level[:, :high, :wide]
        made = 0.0
        for row, near_row in _neighbours(high, tall, rows):
            for column, near_column in _neighbours(wide, broad, columns):
                made = made + ops.take(tables, cells(row, column) + level) * (_along(1, near_row) * _along(2, near_column))
        return made

    def _tables(self, pixels, tiles, area):
        """What becomes of each level, tile by tile, for the cells that the pixels are in."""
        found = ops.segment_sum(ops.ones_like(pixels, "float32"), pixels, num_segments=tiles * _LEVELS)
        found = ops.reshape(found, [tiles, _LEVELS])
        if self.clip_limit > 0:
            kept = ops.minimum(found, self.clip_limit * area / _LEVELS)
            found = kept + ops.sum(found - kept, -1, keepdims=True) / _LEVELS
        below = ops.cumsum(found, -1)
        least = ops.min(below, -1, keepdims=True)
        spread = ops.where(ops.equal(least, area), 1.0, area - least)
        return ops.reshape(ops.clip((below - least) * (_LEVELS - 1) / spread, 0.0, _LEVELS - 1.0), [-1])

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def get_config(self):
        return {**super().get_config(), "value_range": self.value_range, "clip_limit": self.clip_limit,
                "tile_grid_size": self.tile_grid_size, "data_format": self.data_format}


class MaxNumBoundingBoxes(Layer):
    """{"images", "bounding_boxes": {"boxes", "labels"}} with so many boxes for each image: those that are more are left out, and where there
    are fewer, boxes and labels of fill_value follow."""

    _needs_no_input = True

    def __init__(self, max_number, fill_value=-1, data_format=None, **kwargs):
        super().__init__(**kwargs)
        self.data_format = standardize_data_format(data_format)
        self.max_number, self.fill_value = int(max_number), int(fill_value)

    _training_by_default = True  # as files of Keras have it, though nothing depends on it

    def call(self, inputs):
        if not isinstance(inputs, dict) or "bounding_boxes" not in inputs:
            return inputs
        given = inputs["bounding_boxes"]
        return {**inputs, "bounding_boxes": {**given, "boxes": self._fitted(given["boxes"]), "labels": self._fitted(given["labels"])}}

    def _fitted(self, x):
        missing = max(self.max_number - x.shape[1], 0)
        return ops.pad(x[:, :self.max_number], [(0, missing if axis == 1 else 0) for axis in range(x.ndim)], constant_values=self.fill_value)

    def compute_output_shape(self, input_shape):
        if not isinstance(input_shape, dict) or "bounding_boxes" not in input_shape:
            return input_shape
        boxes = input_shape["bounding_boxes"]
        unknown = set(boxes) - {"boxes", "labels"}
        if unknown:
            raise KeyError(f"MaxNumBoundingBoxes: bounding_boxes have boxes and labels, received {sorted(unknown)} beside them")
        return {**input_shape, "bounding_boxes": {name: (shape[0], self.max_number, *shape[2:]) for name, shape in boxes.items()}}

    def get_config(self):
        return {**super().get_config(), "max_number": self.max_number, "fill_value": self.fill_value, "data_format": self.data_format}
