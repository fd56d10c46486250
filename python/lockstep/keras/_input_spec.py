"""InputSpec of layers written in Python, and the check of the inputs that they are called with."""

from .. import nest
from .backend import standardize_dtype


class InputSpec:
    """The dtype, rank and sizes that an input is expected to have; None stands for any. A layer whose input_spec is one, or a structure of
    one for each input, is called with such inputs alone."""

    def __init__(self, dtype=None, shape=None, ndim=None, max_ndim=None, min_ndim=None, axes=None, allow_last_axis_squeeze=False, name=None,
                 optional=False):
        self.dtype = None if dtype is None else standardize_dtype(dtype)
        self.shape = None if shape is None else tuple(None if size is None else int(size) for size in shape)
        self.ndim = ndim if shape is None else len(self.shape)
        self.max_ndim, self.min_ndim, self.name, self.optional = max_ndim, min_ndim, name, optional
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        try:
            self.axes = {int(axis): size for axis, size in (axes or {}).items()}
        except (AttributeError, TypeError, ValueError):
            raise TypeError(f"InputSpec: axes are sizes by the numbers of their axes, received {axes!r}") from None
        most = self.ndim if self.ndim is not None else max_ndim
        if self.axes and most is not None and max(self.axes) >= most:
            raise ValueError(f"InputSpec: there is no axis {max(self.axes)} in {most} dimensions")

    def get_config(self):
        return {name: getattr(self, name) for name in ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes", "optional")}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __repr__(self):
        return f"InputSpec({', '.join(f'{name}={value}' for name, value in self.get_config().items() if value)})"

    def _refuses(self, x):
        """What is expected and what x has in its place; None: it fits."""
        shape = tuple(x.shape)
        if self.ndim is not None and len(shape) != self.ndim and not self.allow_last_axis_squeeze:
            return f"expected ndim={self.ndim}, found ndim={len(shape)}"
        if self.max_ndim is not None and len(shape) > self.max_ndim:
            return f"expected max_ndim={self.max_ndim}, found ndim={len(shape)}"
        if self.min_ndim is not None and len(shape) < self.min_ndim:
            return f"expected min_ndim={self.min_ndim}, found ndim={len(shape)}"
        if self.dtype is not None and standardize_dtype(x.dtype) != self.dtype:
            return f"expected dtype={self.dtype}, found dtype={standardize_dtype(x.dtype)}"
        for axis, size in self.axes.items():
            if size is not None and shape[axis] not in (size, None):
                return f"expected axis {axis} of input shape to have value {size}"
        expected, found = self.shape, shape
        if expected is not None and self.allow_last_axis_squeeze:
            expected, found = (sizes[:-1] if sizes and sizes[-1] == 1 else sizes for sizes in (expected, found))
        if expected is not None and (len(expected) != len(found) or any(
                size is not None and have is not None and size != have for size, have in zip(expected, found))):
            return f"expected shape={self.shape}, found shape={shape}"
        return None


def check(layer, inputs):
    """An error where the inputs do not match the layer's input_spec."""
    specs = nest.flatten(layer.input_spec)
    if isinstance(inputs, dict) and all(spec is not None and spec.name for spec in specs):
        missing = [spec.name for spec in specs if spec.name not in inputs]
        if missing:
            raise ValueError(f"layer {layer.name!r} takes a dictionary with {[spec.name for spec in specs]}, {missing} are not among {list(inputs)}")
        inputs = [inputs[spec.name] for spec in specs]
    inputs = nest.flatten(inputs)
    if len(inputs) != len(specs):
        raise ValueError(f"layer {layer.name!r} expects {len(specs)} input(s), it received {len(inputs)}")
    for number, (x, spec) in enumerate(zip(inputs, specs)):
        if spec is None or x is None and spec.optional:
            continue
        refused = spec._refuses(x)
        if refused is not None:
            raise ValueError(f"input {number} of layer {layer.name!r} is incompatible with the layer: {refused}. Full shape received: {tuple(x.shape)}")
