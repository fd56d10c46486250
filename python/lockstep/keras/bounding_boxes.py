"""keras.utils.bounding_boxes: boxes around what is seen in images, of shape (boxes, 4) or (batch, boxes, 4).

A format says what the four numbers are: xyxy is left, top, right, bottom; xywh is left, top, width, height; a format that begins with
center_ has the middle in the place of the corner, one that begins with rel_ counts in sizes of the image, and y before x swaps the two.
"""

import math

from . import ops
from .backend import epsilon

_FORMATS = ("xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw", "rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh")


class _Layout:
    """How one format writes the corners of a box."""

    def __init__(self, name):
        self.relative = name.startswith("rel_")
        plain = name.removeprefix("rel_")
        self.centered = plain.startswith("center_")
        order = plain.removeprefix("center_")
        self.swapped, self.sized = order[0] == "y", order[2:] in ("wh", "hw")

    def corners(self, boxes):
        """Left, top, right and bottom of boxes in this format."""
        a, b, c, d = ops.unstack(boxes, axis=-1)
        if self.swapped:
            a, b, c, d = b, a, d, c
        if self.centered:
            a, b = a - c / 2.0, b - d / 2.0
        return (a, b, a + c, b + d) if self.sized else (a, b, c, d)

    def boxes(self, left, top, right, bottom):
        """The other way."""
        a, b, c, d = left, top, right, bottom
        if self.sized:
            c, d = right - left, bottom - top
        if self.centered:
            a, b = left + c / 2.0, top + d / 2.0
        return ops.stack([b, a, d, c] if self.swapped else [a, b, c, d], axis=-1)


def _layout(name):
    if str(name).lower() not in _FORMATS:
        raise ValueError(f"a format of bounding boxes is one of {', '.join(_FORMATS)}, received {name!r}")
    return _Layout(name.lower())


def _corners_only(what, bounding_box_format, allowed=("xyxy",)):
    if bounding_box_format not in allowed:
        raise NotImplementedError(f"{what}: takes boxes as {' or '.join(allowed)}, received {bounding_box_format!r}; convert_format() makes "
                                  "one of the other")


def convert_format(boxes, source, target, height=None, width=None, dtype="float32"):
    """The same boxes in another format; of a dictionary, its entry "boxes"."""
    if isinstance(boxes, dict):
        return {**boxes, "boxes": convert_format(boxes["boxes"], source, target, height, width, dtype)}
    given, wanted = _layout(source), _layout(target)
    boxes = ops.cast(boxes, dtype)
    if boxes.shape[-1] != 4:
        raise ValueError(f"convert_format: a box is four numbers, received shape {tuple(boxes.shape)}")
    if (given.relative or wanted.relative) and (height is None or width is None):
        raise ValueError("convert_format() must receive `height` and `width`, those of the image, where a format is relative to them: "
                         f"received source={source!r}, target={target!r}, height={height}, width={width}")
    if source.lower() == target.lower():
        return boxes
    left, top, right, bottom = given.corners(boxes)
    if given.relative != wanted.relative:
        wide, high = (ops.cast(size, dtype) for size in (width, height))
        left, right, top, bottom = (left / wide, right / wide, top / high, bottom / high) if wanted.relative else \
            (left * wide, right * wide, top * high, bottom * high)
    return wanted.boxes(left, top, right, bottom)


def clip_to_image_size(bounding_boxes, height=None, width=None, bounding_box_format="xyxy"):
    """{"boxes", "labels"} without what lies outside of the image; the label of a box of which nothing is left is -1."""
    _corners_only("clip_to_image_size", bounding_box_format, ("xyxy", "rel_xyxy"))
    if bounding_box_format == "rel_xyxy":
        height = width = 1.0
    elif height is None or width is None:
        raise ValueError("clip_to_image_size: boxes as xyxy take the height and the width of the image")
    boxes = crop(bounding_boxes["boxes"], 0, 0, height, width)
    made = {**bounding_boxes, "boxes": boxes}
    if bounding_boxes.get("labels") is not None:
        left, top, right, bottom = ops.unstack(boxes, axis=-1)
        made["labels"] = ops.where((right - left) * (bottom - top) > 0, bounding_boxes["labels"], -1)
    return made


def crop(boxes, top, left, height, width, bounding_box_format="xyxy"):
    """Boxes in the part of the image that begins at (left, top) and is of this size."""
    _corners_only("crop", bounding_box_format)
    x1, y1, x2, y2 = ops.unstack(ops.convert_to_tensor(boxes), axis=-1)
    return ops.stack([ops.clip(x1 - left, 0, width), ops.clip(y1 - top, 0, height), ops.clip(x2 - left, 0, width),
                      ops.clip(y2 - top, 0, height)], axis=-1)


def pad(boxes, top, left, height=None, width=None, bounding_box_format="xyxy"):
    """Boxes in an image that has got so many rows above and columns to the left."""
    _corners_only("pad", bounding_box_format)
    x1, y1, x2, y2 = ops.unstack(ops.convert_to_tensor(boxes), axis=-1)
    return ops.stack([x1 + left, y1 + top, x2 + left, y2 + top], axis=-1)


def affine_transform(boxes, angle, translate_x, translate_y, scale, shear_x, shear_y, height, width, center_x=None, center_y=None,
                     bounding_box_format="xyxy"):
    """The boxes (batch, boxes, 4) around what the boxes of images are turned, moved, scaled and sheared to. The settings have one number
    for each image: angles in degrees, distances in sizes of the image."""
    _corners_only("affine_transform", bounding_box_format)
    boxes = ops.convert_to_tensor(boxes, "float32")
    turned, across, along = (-ops.convert_to_tensor(degrees, "float32") * (math.pi / 180.0) for degrees in (angle, shear_x, shear_y))
    scale, move_x, move_y = (ops.convert_to_tensor(part, "float32") for part in (scale, translate_x, translate_y))
    middle_x = (0.5 if center_x is None else center_x) * (width - 1)
    middle_y = (0.5 if center_y is None else center_y) * (height - 1)
    # A turn and two shears, and its inverse: the determinant of each is 1.
    a, c = ops.cos(turned - along) / ops.cos(along), -ops.sin(turned - along) / ops.cos(along)
    b, d = a * ops.tan(across) + ops.sin(turned), ops.cos(turned) - c * ops.tan(across)
    from_x, from_y = middle_x - move_x * (width - 1), middle_y - move_y * (height - 1)

    def per_image(number):
        return ops.reshape(number, [-1, 1, 1])
    x1, y1, x2, y2 = ops.unstack(boxes, axis=-1)
    x = ops.stack([x1, x2, x2, x1], axis=-1) - per_image(from_x)
    y = ops.stack([y1, y1, y2, y2], axis=-1) - per_image(from_y)
    made_x = per_image(d * scale) * x - per_image(b * scale) * y + middle_x
    made_y = per_image(a * scale) * y - per_image(c * scale) * x + middle_y
    return ops.stack([ops.min(made_x, -1), ops.min(made_y, -1), ops.max(made_x, -1), ops.max(made_y, -1)], axis=-1)


# --- boxes and anchors ---------------------------------------------------------------------------------------------------

def _image_size(image_shape):
    return {"height": image_shape[0], "width": image_shape[1]} if image_shape is not None else {}


def _variance(variance, encoding):
    if encoding not in ("center_xywh", "center_yxhw"):
        raise ValueError(f"boxes are encoded as center_xywh or center_yxhw, received {encoding!r}")
    if variance is None:
        return None
    variance = ops.convert_to_tensor(variance, "float32")
    if variance.shape[-1] != 4:
        raise ValueError(f"`variance` must be length 4, received {variance.shape[-1]} numbers")
    return variance


def encode_box_to_deltas(anchors, boxes, anchor_format, box_format, encoding_format="center_yxhw", variance=None, image_shape=None):
    """How boxes differ from anchors: by how many sizes of the anchor the middle is elsewhere, and the logarithm of how much larger it is."""
    variance, size = _variance(variance, encoding_format), _image_size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoding_format, **size)
    boxes = convert_format(boxes, box_format, encoding_format, **size)
    unit = ops.maximum(anchors[..., 2:], epsilon())
    deltas = ops.concatenate([(boxes[..., :2] - anchors[..., :2]) / unit, ops.log(ops.maximum(boxes[..., 2:], epsilon()) / unit)], axis=-1)
    return deltas if variance is None else deltas / variance


def decode_deltas_to_boxes(anchors, boxes_delta, anchor_format, box_format, encoded_format="center_yxhw", variance=None, image_shape=None):
    """The boxes that differ so from anchors; of dictionaries, level by level."""
    if isinstance(anchors, dict) and isinstance(boxes_delta, dict):
        return {level: decode_deltas_to_boxes(anchor, boxes_delta[level], anchor_format, box_format, encoded_format, variance, image_shape)
                for level, anchor in anchors.items()}
    variance, size = _variance(variance, encoded_format), _image_size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoded_format, **size)
    deltas = ops.convert_to_tensor(boxes_delta)
    deltas = deltas if variance is None else deltas * variance
    unit = anchors[..., 2:]
    boxes = ops.concatenate([deltas[..., :2] * unit + anchors[..., :2], ops.exp(deltas[..., 2:]) * unit], axis=-1)
    return convert_format(boxes, encoded_format, box_format, **size)


# --- overlaps ------------------------------------------------------------------------------------------------------------

def _as_corners(what, boxes, bounding_box_format, image_shape):
    if _layout(bounding_box_format).relative and image_shape is None:
        raise ValueError(f"{what}: boxes in the relative format {bounding_box_format!r} take the `image_shape`")
    return convert_format(boxes, bounding_box_format, "xyxy", **_image_size(image_shape))


def _overlap(first, second):
    """Intersection and union of boxes given by their corners."""
    x1, y1, x2, y2 = first
    u1, v1, u2, v2 = second
    shared = ops.maximum(ops.minimum(x2, u2) - ops.maximum(x1, u1), 0.0) * ops.maximum(ops.minimum(y2, v2) - ops.maximum(y1, v1), 0.0)
    return shared, (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - shared


def compute_iou(boxes1, boxes2, bounding_box_format, use_masking=False, mask_val=-1, image_shape=None):
    """The intersection over the union of every box of the one with every box of the other: (..., boxes1, boxes2). With use_masking it is
    mask_val where a box has no number that is not negative, as those have that only fill up a batch."""
    corners = [_as_corners("compute_iou", boxes, bounding_box_format, image_shape) for boxes in (boxes1, boxes2)]
    for boxes in corners:
        if boxes.ndim not in (2, 3):
            raise ValueError(f"compute_iou() expects boxes of shape (boxes, 4) or (batch, boxes, 4), received {tuple(boxes.shape)}")
    shared, union = _overlap(ops.unstack(ops.expand_dims(corners[0], -2), axis=-1), ops.unstack(ops.expand_dims(corners[1], -3), axis=-1))
    made = shared / (union + epsilon())
    if not use_masking:
        return made
    empty1, empty2 = (ops.max(ops.convert_to_tensor(boxes), axis=-1) < 0 for boxes in (boxes1, boxes2))
    empty = ops.logical_or(ops.expand_dims(empty1, -1), ops.expand_dims(empty2, -2))
    return ops.where(empty, ops.cast(mask_val, made.dtype), made)


def compute_ciou(boxes1, boxes2, bounding_box_format, image_shape=None):
    """The complete IoU of boxes, each with the one in its place: less where their middles are apart or their proportions differ."""
    first, second = (ops.unstack(_as_corners("compute_ciou", boxes, bounding_box_format, image_shape), axis=-1) for boxes in (boxes1, boxes2))
    shared, union = _overlap(first, second)
    iou = shared / (union + epsilon())
    (x1, y1, x2, y2), (u1, v1, u2, v2) = first, second
    around = ops.square(ops.maximum(x2, u2) - ops.minimum(x1, u1)) + ops.square(ops.maximum(y2, v2) - ops.minimum(y1, v1))
    apart = ops.square((x1 + x2 - u1 - u2) / 2.0) + ops.square((y1 + y2 - v1 - v2) / 2.0)
    turn = ops.arctan((u2 - u1) / (v2 - v1 + epsilon())) - ops.arctan((x2 - x1) / (y2 - y1 + epsilon()))
    proportions = ops.square(turn) * (4.0 / math.pi ** 2)
    return iou - apart / (around + epsilon()) - ops.square(proportions) / (proportions - iou + 1.0 + epsilon())
