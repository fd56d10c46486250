"""Element types of tensors."""

import numpy as np


class DType:
    """An element type. Equal to its name and to NumPy's type: ``tf.float32 == "float32"``."""

    __slots__ = ("_number", "name", "size", "_numpy")
    _defers_tensor_operators = True

    def __init__(self, number, name, size, numpy_type):
        self._number, self.name, self.size, self._numpy = number, name, size, numpy_type

    @property
    def as_numpy_dtype(self):
        """NumPy's type; bfloat16 has one where the package ml_dtypes is installed."""
        if self._numpy is None:
            try:
                import ml_dtypes
            except ImportError:
                raise TypeError("NumPy has no bfloat16: cast to float32 first, or install the package ml_dtypes") from None
            return ml_dtypes.bfloat16
        return self._numpy

    @property
    def is_floating(self):
        return self.name in ("float16", "bfloat16", "float32", "float64")

    @property
    def is_integer(self):
        return self.name in ("int32", "int64", "uint8")

    @property
    def is_bool(self):
        return self.name == "bool"

    is_complex = is_quantized = False

    @property
    def is_unsigned(self):
        return self.name == "uint8"

    @property
    def is_numeric(self):
        return not self.is_bool

    @property
    def real_dtype(self):
        return self

    @property
    def limits(self):
        """The smallest and the largest value that images have: [0, 1] of floats."""
        return (0, 1) if self.is_floating else (self.min, self.max)

    def is_compatible_with(self, other):
        return self == other

    @property
    def base_dtype(self):
        return self

    @property
    def min(self):
        return _limits(self).min

    @property
    def max(self):
        return _limits(self).max

    def __eq__(self, other):
        if isinstance(other, DType):
            return self is other
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return f"tf.{self.name}"

    def __str__(self):
        return f"<dtype: '{self.name}'>"

    def __reduce__(self):
        return as_dtype, (self.name,)


class _Limits:
    def __init__(self, smallest, largest):
        self.min, self.max = smallest, largest


def _limits(dtype):
    if dtype.name == "bfloat16":
        return _Limits(-3.3895313892515355e38, 3.3895313892515355e38)  # NumPy has none
    if dtype.name == "bool":
        return _Limits(False, True)
    return np.finfo(dtype.as_numpy_dtype) if dtype.is_floating else np.iinfo(dtype.as_numpy_dtype)


float32 = DType(0, "float32", 4, np.float32)
float64 = DType(1, "float64", 8, np.float64)
bfloat16 = DType(2, "bfloat16", 2, None)
float16 = DType(3, "float16", 2, np.float16)
int32 = DType(4, "int32", 4, np.int32)
int64 = DType(5, "int64", 8, np.int64)
uint8 = DType(6, "uint8", 1, np.uint8)
bool = DType(7, "bool", 1, np.bool_)  # TensorFlow's name
half, double = float16, float64

class _String:
    """What texts are of, which no tensor holds."""
    name, is_floating, is_integer, is_bool, is_complex = "string", False, False, False, False

    def __repr__(self):
        return "tf.string"

    def __str__(self):
        return "<dtype: 'string'>"

    def __eq__(self, other):
        return isinstance(other, _String) or other == "string"

    def __hash__(self):
        return hash(self.name)

    def __reduce__(self):
        return "string"


string = _String()
ALL = (float32, float64, bfloat16, float16, int32, int64, uint8, bool)
_BY_NAME = {dtype.name: dtype for dtype in ALL} | {"half": float16, "double": float64, "float": float32, "int": int32,
                                                   "bool_": bool, "boolean": bool}
_BY_TYPE = {float: float32, int: int32, __builtins__["bool"] if isinstance(__builtins__, dict) else __builtins__.bool: bool}


_WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}  # what there is for those that there are not


def _name_of(value):
    try:
        return np.dtype(value).name
    except TypeError:
        return str(value)


def as_dtype(value):
    """The DType that a name, a type of NumPy or a type of Python stands for."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        found = _BY_NAME.get(value)
    elif value in _BY_TYPE:
        found = _BY_TYPE[value]
    else:
        try:
            found = _BY_NAME.get(np.dtype(value).name)
        except TypeError:
            found = None
    if found is None:
        names = ", ".join(dtype.name for dtype in ALL)
        wider = _WIDER.get(_name_of(value))
        raise TypeError(f"no tensor holds elements of type {value!r}; there are {names}" + (f": cast to {wider}, array.astype({wider!r})" if wider else ""))
    return found
