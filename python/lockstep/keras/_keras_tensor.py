"""Values of models that are being put together: KerasTensor, Input and functions of them."""

import numpy as np

from .. import _lockstep, nest
from .._lockstep import KerasTensor
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


def _arithmetic(symbol, name, reflected=False):
    def operator(self, other):
        a, b = (other, self) if reflected else (self, other)
        plain = all(isinstance(side, (KerasTensor, int, float, np.number)) for side in (a, b))
        if plain and symbol in "+-*/":
            return _lockstep.keras_arithmetic(symbol, *(s if isinstance(s, KerasTensor) else float(s) for s in (a, b)))
        from .. import ops
        return symbolic(getattr(ops, name), a, b)
    return operator


for _symbol, _method, _name in (("+", "add", "add"), ("-", "sub", "subtract"), ("*", "mul", "multiply"),
                                ("/", "truediv", "divide"), ("**", "pow", "pow"), ("@", "matmul", "matmul"),
                                ("//", "floordiv", "floordiv"), ("%", "mod", "floormod")):
    setattr(KerasTensor, f"__{_method}__", _arithmetic(_symbol, _name))
    setattr(KerasTensor, f"__r{_method}__", _arithmetic(_symbol, _name, True))
for _method, _name in (("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal")):
    setattr(KerasTensor, f"__{_method}__", _arithmetic("", _name))
KerasTensor.__neg__ = lambda self: self * -1.0
KerasTensor.__getitem__ = lambda self, key: symbolic(lambda x: x[key], self)
KerasTensor.__hash__ = lambda self: hash(self._key)
KerasTensor.__eq__ = lambda self, other: isinstance(other, KerasTensor) and self._key == other._key


def _refuse_value(self, *_):
    raise TypeError("a value of a model that is being put together is not known yet; keras.ops works on it, a Lambda layer or a "
                    "layer of your own takes any function")


KerasTensor.__bool__ = KerasTensor.__float__ = KerasTensor.__int__ = KerasTensor.__iter__ = _refuse_value
KerasTensor.numpy = KerasTensor.__array__ = _refuse_value


def is_keras_tensor(x):
    return isinstance(x, KerasTensor)


def symbolic(function, *args, **kwargs):
    """A function as a layer of the model that is being put together; outside of models, the function itself."""
    leaves = nest.flatten((args, kwargs))
    if not any(isinstance(leaf, KerasTensor) for leaf in leaves):
        return function(*args, **kwargs)
    from .layers import _Function
    return _Function(function)._call_with(args, kwargs)


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


def Input(shape=None, batch_size=None, name=None, dtype=None, sparse=None, tensor=None, ragged=None, type_spec=None,
          batch_shape=None, optional=False):
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
    return _lockstep.Input(_sizes(shape), -1 if batch_size is None else int(batch_size), dtype, name or "")
