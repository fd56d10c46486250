"""Values of models that are being put together: KerasTensor, Input and functions of them."""

import weakref

from .. import _lockstep
from .._lockstep import KerasTensor
from ..dtypes import string
from ..ops import _sizes
from ..tensor import TensorShape
from .backend import standardize_dtype

KerasTensor.shape = property(lambda self: TensorShape(self._shape))
KerasTensor.ndim = property(lambda self: len(self._shape))
KerasTensor.sparse = KerasTensor.ragged = False
KerasTensor._defers_tensor_operators = True
KerasTensor.__array_priority__ = 200
KerasTensor.__repr__ = lambda self: f"<KerasTensor shape={self.shape}, dtype={self.dtype.name}, name={self.name}>"
KerasTensor.__doc__ = "A value of a model that is being put together: what a layer will be given or give back."


def _operator(name, reflected=False):
    def operator(self, *others):
        from . import ops
        return getattr(ops, name)(*reversed((self, *others)) if reflected else (self, *others))
    return operator


for _method, _name in (("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "true_divide"), ("pow", "power"),
                       ("matmul", "matmul"), ("floordiv", "floor_divide"), ("mod", "mod"), ("and", "logical_and"),
                       ("or", "logical_or"), ("xor", "logical_xor")):
    setattr(KerasTensor, f"__{_method}__", _operator(_name))
    setattr(KerasTensor, f"__r{_method}__", _operator(_name, True))
for _method, _name in (("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"), ("ne", "not_equal"),
                       ("neg", "negative"), ("abs", "absolute"), ("invert", "logical_not"), ("getitem", "get_item")):
    setattr(KerasTensor, f"__{_method}__", _operator(_name))
KerasTensor.reshape, KerasTensor.squeeze = _operator("reshape"), _operator("squeeze")
KerasTensor.__hash__ = lambda self: hash(self._key)
KerasTensor.__eq__ = lambda self, other: isinstance(other, KerasTensor) and self._key == other._key


def _refuse_value(self, *_):
    raise TypeError("a value of a model that is being put together is not known yet; keras.ops works on it, a Lambda layer or a "
                    "layer of your own takes any function")


KerasTensor.__bool__ = KerasTensor.__float__ = KerasTensor.__int__ = KerasTensor.__iter__ = _refuse_value
KerasTensor.numpy = KerasTensor.__array__ = _refuse_value


# --- texts ---------------------------------------------------------------------------------------------------------------
# The engine knows numbers only. A value that stands for texts has this dtype there, and is marked here.

STAND_IN = "float64"
_marks = weakref.WeakValueDictionary()  # by the key of a value, as long as somebody holds the mark
_dtype_of_engine = KerasTensor.dtype.fget


class _Mark:
    """Says of a value that it stands for texts. The value's object holds it; models hold those of their inputs, too."""

    def __init__(self, value):
        self.value = value


def mark_as_texts(value):
    """From now on the value stands for texts. Whoever holds the mark keeps it so."""
    value._mark = made = _marks.get(value._key) or _Mark(value)
    _marks[value._key] = made
    return made


def mark_of(value):
    """The mark of a value that stands for texts; None: it stands for numbers."""
    return _marks.get(value._key) if _marks and value is not None else None


KerasTensor.dtype = property(lambda self: _dtype_of_engine(self) if mark_of(self) is None else string)


def is_keras_tensor(x):
    return isinstance(x, KerasTensor)


def _of_tensor(tensor, shape, batch_size, dtype):
    """A value that is there already as an input."""
    if not isinstance(tensor, KerasTensor):
        raise ValueError(f"Input: tensor is a value of a model, received {tensor!r}")
    if shape is not None and tuple(tensor.shape[1:]) != tuple(shape):
        raise ValueError(f"Input: the tensor is of shape {tensor.shape}, not {tuple(shape)} behind the batch")
    if batch_size is not None and tensor.shape[0] != batch_size:
        raise ValueError(f"Input: the tensor is of shape {tensor.shape}, not of batch_size {batch_size}")
    if dtype is not None and tensor.dtype.name != standardize_dtype(dtype):
        raise ValueError(f"Input: the tensor is of {tensor.dtype.name}, not of {dtype}")
    return tensor


def Input(shape=None, batch_size=None, dtype=None, sparse=None, ragged=None, batch_shape=None, name=None, tensor=None, optional=False,
          type_spec=None):
    """A model's input; shape leaves the batch out, None is any size."""
    if sparse or ragged:
        raise ValueError("Input: there are no sparse and no ragged tensors")
    if batch_shape is not None:
        if shape is not None or batch_size is not None:
            raise ValueError("Input: a batch_shape says all; shape and batch_size do not go with it")
        batch_size, shape = batch_shape[0], batch_shape[1:]
    if tensor is not None:
        return _of_tensor(tensor, shape, batch_size, dtype)
    if shape is None:
        raise ValueError("Input: takes a shape, for example Input(shape=(28, 28))")
    batch_size = -1 if batch_size is None else int(batch_size)
    if dtype is str or getattr(dtype, "name", dtype) == "string":
        made = _lockstep.Input(_sizes(shape), batch_size, STAND_IN, name or "")
        mark_as_texts(made)
        return made
    return _lockstep.Input(_sizes(shape), batch_size, dtype, name or "")
