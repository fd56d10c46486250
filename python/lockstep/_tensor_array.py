"""tf.TensorArray: tensors by number, while a function is written step by step."""

from . import _lockstep, dtypes
from .tensor import TensorShape, convert_to_tensor

_ops = _lockstep.ops


class TensorArray:
    """Tensors of one shape by their numbers, which are Python's: loops over tensors gather their results by tf.scan and tf.map_fn."""

    def __init__(self, dtype, size=None, dynamic_size=False, clear_after_read=None, tensor_array_name=None, handle=None, flow=None,
                 infer_shape=True, element_shape=None, colocate_with_first_write_call=True, name=None):
        self.dtype, self.dynamic_size = dtypes.as_dtype(dtype), bool(dynamic_size)
        self.element_shape = None if element_shape is None else TensorShape(element_shape)
        self._parts = [None] * (0 if size is None else int(size))

    def _place(self, index, what):
        if getattr(index, "symbolic", False):
            raise NotImplementedError(f"TensorArray.{what}: the number of the element is a tensor of a function that is being traced: tf.scan "
                                      "and tf.map_fn gather what every step of a loop gives")
        return int(index)

    def write(self, index, value, name=None):
        """The array with this element; this one too."""
        place, value = self._place(index, "write"), convert_to_tensor(value, self.dtype)
        if place >= len(self._parts):
            if not self.dynamic_size:
                raise IndexError(f"TensorArray.write: element {place} of {len(self._parts)}; dynamic_size=True lets it grow")
            self._parts += [None] * (place + 1 - len(self._parts))
        if self.element_shape is not None and not self.element_shape.is_compatible_with(value.shape):
            raise ValueError(f"TensorArray.write: elements are of shape {self.element_shape}, received {value.shape}")
        self._parts[place] = value
        return self

    def read(self, index, name=None):
        """One element."""
        place = self._place(index, "read")
        if not 0 <= place < len(self._parts) or self._parts[place] is None:
            raise IndexError(f"TensorArray.read: element {place} was not written")
        return self._parts[place]

    def stack(self, name=None):
        """All of them in one tensor; those that were not written are zeros."""
        like = next((part for part in self._parts if part is not None), None)
        if like is None:
            shape = [] if self.element_shape is None else list(self.element_shape)
            return _ops.full([len(self._parts), *shape], 0.0, self.dtype)
        return _ops.stack([_ops.zeros_like(like) if part is None else part for part in self._parts], 0)

    def gather(self, indices, name=None):
        """Some of them in one tensor."""
        return _ops.stack([self.read(index) for index in indices], 0)

    def concat(self, name=None):
        """All of them behind each other."""
        return _ops.concat([self.read(index) for index in range(len(self._parts))], 0)

    def unstack(self, value, name=None):
        """The parts of a tensor as the elements."""
        self._parts = list(_ops.unstack(convert_to_tensor(value, self.dtype), 0))
        return self

    def split(self, value, lengths, name=None):
        """The parts of a tensor, of these lengths, as the elements."""
        self._parts = list(_ops.split_sizes(convert_to_tensor(value, self.dtype), [int(length) for length in lengths], 0))
        return self

    def identity(self):
        """The array."""
        return self

    def close(self, name=None):
        """Keeps no elements any more."""
        self._parts = []

    def scatter(self, indices, value, name=None):
        """The parts of a tensor as these elements."""
        for index, part in zip(indices, _ops.unstack(convert_to_tensor(value, self.dtype), 0)):
            self.write(index, part)
        return self

    def size(self, name=None):
        """How many there are."""
        return convert_to_tensor(len(self._parts))

    def __len__(self):
        return len(self._parts)
