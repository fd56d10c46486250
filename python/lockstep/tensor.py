"""Tensors and variables."""

import operator
import traceback

import numpy as np

from . import _lockstep, dtypes, errors
from ._lockstep import Tensor, Variable

_ops = _lockstep.ops
_PACKAGE = __file__.rsplit("/", 1)[0] + "/"

_TRACED = ("the value of a tensor of a function that is being traced is not known yet: it has one whenever the function runs. "
           "Use tf.cond in place of `if`, tf.while_loop or tf.map_fn in place of `while` and `for`, tf.where to choose "
           "element by element; or return the tensor and look at it outside of the function")


class TensorShape(tuple):
    """The sizes of a tensor, with None for those that are not known: a tuple with TensorFlow's methods."""

    def __new__(cls, dims=()):
        if dims is None:
            raise ValueError("the rank of every shape is known here: give a list of sizes, None for those that are not known")
        if isinstance(dims, (int, np.integer)):
            dims = (dims,)
        return super().__new__(cls, (None if d is None or d == -1 else int(d) for d in dims))

    @property
    def rank(self):
        return len(self)

    ndims = rank

    @property
    def dims(self):
        return list(self)

    def as_list(self):
        return list(self)

    def num_elements(self):
        return None if None in self else int(np.prod(self, dtype=np.int64))

    def is_fully_defined(self):
        return None not in self

    def is_compatible_with(self, other):
        other = TensorShape(other)
        return len(self) == len(other) and all(a == b or a is None or b is None for a, b in zip(self, other))

    def assert_is_compatible_with(self, other):
        if not self.is_compatible_with(other):
            raise ValueError(f"shapes {self} and {TensorShape(other)} are incompatible")

    def assert_is_fully_defined(self):
        if not self.is_fully_defined():
            raise ValueError(f"shape {self} is not fully defined")

    def assert_has_rank(self, rank):
        self.with_rank(rank)

    def assert_same_rank(self, other):
        self.with_rank(len(TensorShape(other)))

    def merge_with(self, other):
        """The sizes that one of both knows."""
        self.assert_is_compatible_with(other)
        return TensorShape(b if a is None else a for a, b in zip(self, TensorShape(other)))

    def with_rank(self, rank):
        return self._of_rank(len(self) == rank, f"of rank {rank}")

    def with_rank_at_least(self, rank):
        return self._of_rank(len(self) >= rank, f"of rank {rank} or more")

    def with_rank_at_most(self, rank):
        return self._of_rank(len(self) <= rank, f"of rank {rank} or less")

    def _of_rank(self, is_so, words):
        if not is_so:
            raise ValueError(f"shape {self} is not {words}")
        return self

    def concatenate(self, other):
        return TensorShape(tuple(self) + tuple(TensorShape(other)))

    def __getitem__(self, key):
        found = super().__getitem__(key)
        return TensorShape(found) if isinstance(key, slice) else found

    def __add__(self, other):
        return TensorShape(tuple(self) + tuple(other))

    def __repr__(self):
        return f"TensorShape({list(self)})"

    def __str__(self):
        return tuple.__repr__(self)


class TensorSpec:
    """The dtype and shape of tensors, or of texts; None stands for sizes that differ."""

    def __init__(self, shape, dtype=dtypes.float32, name=None):
        self.shape, self.name = TensorShape(shape), name
        self.dtype = dtypes.string if dtype == dtypes.string else dtypes.as_dtype(dtype)

    @classmethod
    def from_tensor(cls, tensor, name=None):
        return cls(tensor.shape, tensor.dtype, name)

    def is_compatible_with(self, other):
        return self.dtype == other.dtype and self.shape.is_compatible_with(other.shape)

    def __eq__(self, other):
        return isinstance(other, TensorSpec) and self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self):
        return hash((self.shape, self.dtype))

    def __repr__(self):
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"


# --- making tensors -------------------------------------------------------------------------------------------------------

def _from_value(value, dtype=None, take=_lockstep.from_array):
    """A tensor of what Python has for numbers. What says no dtype of its own is float32, int32 or bool, as in TensorFlow. take() is given
    an array, and copies it or borrows its elements."""
    if hasattr(value, "_as_tensor"):
        return _cast(value._as_tensor(), dtype)
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):  # bool is an int, NumPy's float64 a float
        if dtype is None:
            dtype = (dtypes.bool if value is True or value is False else dtypes.float32 if isinstance(value, float)
                     else dtypes.int32 if -2**31 <= value < 2**31 else dtypes.int64)
        elif isinstance(value, float) and not dtype.is_floating:
            raise TypeError(f"{value!r} is no {dtype.name}")
        return _lockstep.scalar(value, dtype)
    if isinstance(value, (list, tuple)) and _holds_tensors(value):
        parts = [_from_value(part, dtype) if not isinstance(part, (Tensor, Variable)) else _cast(_value(part), dtype)
                 for part in value]
        return _ops.stack(parts, 0)
    if isinstance(value, (str, bytes)) or value is None:
        raise errors.NoTensorError(f"{value!r} is no tensor: tensors hold numbers and booleans. Texts are bytes of a dataset, or become "
                        "numbers first (tf.keras.layers.TextVectorization, StringLookup)")
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return _cast(take(value), dtype)
    typed = isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__")
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty((), object)
    if array.dtype.kind in "OUS":
        raise errors.NoTensorError(f"no tensor can be made of {value!r}: its parts are no numbers, or have different lengths")
    if array.dtype.kind == "c":
        raise errors.NoTensorError(f"no tensor can be made of {value!r}: there are no complex tensors, real and imaginary parts are two")
    if dtype is None:
        if not typed:
            dtype = (dtypes.float32 if array.dtype.kind == "f" else dtypes.bool if array.dtype.kind == "b" else
                     dtypes.int32 if array.size == 0 or np.abs(array).max() < 2**31 else dtypes.int64)
        else:
            dtype = dtypes.as_dtype(array.dtype)
    elif array.dtype.kind == "f" and not dtype.is_floating and not typed:
        raise TypeError(f"{value!r} is no {dtype.name}")
    if dtype is dtypes.bfloat16:
        return _ops.cast(_lockstep.from_array(np.ascontiguousarray(array, dtype=np.float32)), dtype)
    return take(np.require(array, dtype=dtype.as_numpy_dtype, requirements="C"))


def _holds_tensors(value):
    return any(isinstance(part, (Tensor, Variable)) or hasattr(part, "_as_tensor") or
               (isinstance(part, (list, tuple)) and _holds_tensors(part)) for part in value)


def _value(value):
    return value.read_value() if isinstance(value, Variable) else value


def _cast(tensor, dtype):
    return tensor if dtype is None or tensor.dtype is dtype else _ops.cast(tensor, dtype)


def convert_to_tensor(value, dtype=None, dtype_hint=None, name=None):
    """The value as a tensor. A tensor of another dtype is an error, as in TensorFlow: tf.cast converts."""
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(value, Variable):
        value = value.read_value()
    if isinstance(value, Tensor):
        if dtype is not None and value.dtype is not dtype:
            raise ValueError(f"a tensor of {value.dtype.name} is none of {dtype.name}; tf.cast(x, tf.{dtype.name}) converts it")
        return value
    return _from_value(value, dtype)


def lending(use):
    """What use(loan) returns. Arrays are lent to it: they are read where they are while it runs, and may be written to when it has returned,
    for tensors that somebody keeps of them are copies from then on. Its own variables keep nothing, also where it raises an error."""
    loan = _Loan()
    try:
        return use(loan)
    except BaseException as error:
        _let_go(error)
        raise
    finally:
        loan.end()


class _Loan:
    def __init__(self):
        self._lent = []

    def end(self):
        failed = None
        while self._lent:
            try:
                _lockstep.give_back(self._lent.pop())
            except Exception as reason:  # the others are given back all the same
                failed = reason
        if failed is not None:
            raise failed

    def tensor(self, value):
        """The value as a tensor, for the time of the loan."""
        if isinstance(value, (Tensor, Variable)) or hasattr(value, "_as_tensor"):
            return convert_to_tensor(value)
        return _from_value(value, take=self._lend)

    def _lend(self, array):
        made = _lockstep.lent_array(array)
        self._lent.append(made._again())  # the object itself may be somebody's who keeps it
        return made


def _let_go(error):
    """The functions of this package that an error has left hold nothing any more: who keeps the error keeps no data by it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith(_PACKAGE):
                try:
                    frame.clear()
                except RuntimeError:  # it is running
                    pass
        error = error.__cause__ or error.__context__


def constant(value, dtype=None, shape=None, name="Const"):
    """A tensor of these numbers; of this shape, which a single number fills. Of texts it is an array of them, which is no tensor."""
    if dtype == dtypes.string:
        return _texts().constant(value, dtype, shape)
    kind = None if dtype is None else dtypes.as_dtype(dtype)
    try:
        made = _cast(_value(value), kind) if isinstance(value, (Tensor, Variable)) else _from_value(value, kind)
    except TypeError:
        if not _texts().is_text(value):
            raise
        return _texts().constant(value, dtype, shape)
    if shape is None:
        return made
    return _ops.broadcast_to(made, list(shape)) if made._size == 1 else _ops.reshape(made, list(shape))


def _texts():
    from . import _texts  # which stands on this module
    return _texts


def tensor_or_texts(value, dtype=None, dtype_hint=None, name=None):
    """tf.convert_to_tensor: texts become an array of them."""
    if isinstance(value, (Tensor, Variable)):
        return convert_to_tensor(value, dtype)
    return value if isinstance(value, _texts().Texts) and dtype in (None, dtypes.string) else constant(value, dtype)


def is_tensor(x):
    """Whether it is a tensor or a variable."""
    return isinstance(x, (Tensor, Variable))


# --- what tensors can do --------------------------------------------------------------------------------------------------

def _numpy(self):
    """The elements as an array of NumPy's: a copy, which may be changed. ``np.asarray(x)`` looks at them in place."""
    if self.symbolic:
        raise NotImplementedError("numpy(): " + _TRACED)
    if self.dtype is dtypes.bfloat16:
        return np.frombuffer(self._bits(), self.dtype.as_numpy_dtype).reshape(self._shape).copy()
    array = np.array(memoryview(self)) if self.ndim else np.asarray(self._item(), self.dtype.as_numpy_dtype)
    return array if self.ndim else array[()]


def _array(self, dtype=None, copy=None):
    if self.symbolic:
        raise NotImplementedError("a tensor of a function that is being traced is no array of NumPy's: " + _TRACED)
    array = np.asarray(_numpy(self)) if self.dtype is dtypes.bfloat16 or copy else np.asarray(memoryview(self))
    return array if dtype is None else array.astype(dtype, copy=False)


def _bool(self):
    if self.symbolic:
        raise errors.OperatorNotAllowedInGraphError("`if`, `while`, `and`, `or` and `not` of a tensor: " + _TRACED)
    if self._size != 1:
        raise ValueError(f"the truth of a tensor of shape {self.shape} is not one value; tf.reduce_any(x) and "
                         "tf.reduce_all(x) are")
    return bool(self._item())


class OperatorNotAllowedInGraphError(errors.OpError, TypeError):
    """Python's control flow over a tensor of a function that is being traced."""


errors.OperatorNotAllowedInGraphError = OperatorNotAllowedInGraphError


def _number(self):
    if self.symbolic:
        raise TypeError("float() and int() of a tensor: " + _TRACED)
    if self._size != 1:
        raise TypeError(f"only a tensor of one element is a number, this one has shape {self.shape}")
    return self._item()


def _index(self):
    value = _number(self)
    if not isinstance(value, int) or self.ndim:
        raise TypeError("only an integer scalar is an index")
    return int(value)


def _len(self):
    if self.ndim == 0:
        raise TypeError("a scalar has no length")
    return self._shape[0]


def _iter(self):
    if self.ndim == 0:
        raise TypeError("a scalar cannot be iterated over")
    if isinstance(self, Tensor) and self.symbolic:
        raise errors.OperatorNotAllowedInGraphError("a loop over a tensor: " + _TRACED)
    return iter(_ops.unstack(self, 0))


def _getitem(self, key):
    """Python's rules: integers, slices, ``...``, ``tf.newaxis``; a tensor of booleans or integers chooses. A list is read as a tuple, as
    TensorFlow reads it."""
    from . import ops
    if isinstance(key, list) and not any(isinstance(part, (bool, np.bool_, list)) for part in key):
        key = tuple(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return _basic(self, (key,))
    if isinstance(key, (Tensor, Variable, np.ndarray, list)):
        key = convert_to_tensor(key)
        if key.dtype is dtypes.bool:
            return ops.boolean_mask(self, key)
        if key.ndim or not key.symbolic:
            return _ops.gather(self, key, 0, 0) if key.ndim else _basic(self, (_index(key),))
        return _ops.gather(self, key, 0, 0)
    if not isinstance(key, tuple):
        key = (key,)
    chosen = [position for position, part in enumerate(key) if isinstance(part, (Tensor, np.ndarray, list))]
    if len(chosen) == 1 and all(isinstance(part, slice) and part == slice(None) or position == chosen[0]
                                for position, part in enumerate(key)):
        return _ops.gather(self, convert_to_tensor(key[chosen[0]]), chosen[0], 0)
    return _basic(self, tuple(map(_place, key)))


def _place(part):
    """A part of an index as integers, slices, ``...`` and None."""
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        return slice(*map(_place, (part.start, part.stop, part.step)))
    if isinstance(part, (Tensor, Variable)):
        return _index(part)
    try:
        if isinstance(part, (bool, np.bool_)):
            raise TypeError
        return operator.index(part)
    except TypeError:
        raise TypeError(f"an index is an integer, a slice, `...`, tf.newaxis or a tensor of integers or booleans, received {part!r}") from None


def _basic(self, key):
    shape = self._shape
    given = sum(part is not None and part is not Ellipsis for part in key)
    if given > len(shape):
        raise errors.OutOfBoundsError(f"too many indices: a tensor of shape {TensorShape(shape)} was given {given}; tf.gather chooses rows by a "
                                      "list of numbers")
    if Ellipsis not in key:
        key = key + (Ellipsis,)
    at = key.index(Ellipsis)
    key = key[:at] + (slice(None),) * (len(shape) - given) + key[at + 1:]
    begin, end, strides, result = [], [], [], []
    plain = True
    sizes = iter(shape)
    for part in key:
        if part is None:
            result.append(1)
            plain = False
            continue
        size = next(sizes)
        if isinstance(part, slice):
            first, last, step = part.indices(size)
            count = len(range(first, last, step))
            begin.append(first)
            end.append(last if last >= 0 else -size - 1)
            strides.append(step)
            result.append(count)
        else:
            index = part
            if not -size <= index < size:
                raise errors.OutOfBoundsError(f"index {index} of a dimension of size {size}")
            index %= size
            begin.append(index)
            end.append(index + 1)
            strides.append(1)
            plain = False
    whole = all(b == 0 and s == 1 and e == size for b, e, s, size in zip(begin, end, strides, shape))
    sliced = self if whole else _ops.strided_slice(self, begin, end, strides)
    return (sliced if isinstance(sliced, Tensor) else sliced.read_value()) if plain else _ops.reshape(sliced, result)


def _text(self):
    if self.symbolic:
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, traced>"
    if self.dtype is dtypes.bfloat16:
        return np.array2string(_numpy(_ops.cast(self, dtypes.float32)), separator=", ")
    return repr(_numpy(self)) if self.ndim else str(_numpy(self))


def _numbers(self):
    array = _numpy(self if self.dtype is not dtypes.bfloat16 else _ops.cast(self, dtypes.float32))
    return str(array)


def _repr(self):
    if self.symbolic:
        return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, traced>"
    return f"<tf.Tensor: shape={self.shape}, dtype={self.dtype.name}, numpy={_apart(_text(self))}>"


def _apart(text):
    """Several lines begin on one of their own."""
    return f"\n{text}" if "\n" in text else text


def _str(self):
    if self.symbolic:
        return f"Tensor(shape={self.shape}, dtype={self.dtype.name}, traced)"
    return f"tf.Tensor({_apart(_numbers(self))}, shape={self.shape}, dtype={self.dtype.name})"


def _format(self, spec):
    """As NumPy formats its elements: f"{loss:.4f}"."""
    if self.symbolic:
        return format(str(self), spec)
    return format(_number(self), spec) if spec and self._size == 1 else format(_numpy(self), spec)


class _Reference:
    """A tensor or a variable as a key of dictionaries."""

    def __init__(self, value):
        self._value = value

    def deref(self):
        return self._value

    def _identity(self):
        return self._value._id if isinstance(self._value, Variable) else id(self._value)

    def __eq__(self, other):
        return isinstance(other, _Reference) and self._identity() == other._identity()

    def __hash__(self):
        return hash(self._identity())


def _compare(method):
    def compare(self, other):
        if other is None or isinstance(other, (str, type)):
            return method == "_ne"
        return getattr(self, method)(other)
    return compare


def _and_or_xor(name):
    """`&`, `|` and `^`: of the bits of integers, else of booleans."""
    logical = getattr(_ops, f"logical_{name}")

    def combined(self, other):
        if not self.dtype.is_integer:
            return logical(self, other)
        from .keras import ops  # which stands on this module
        return getattr(ops, f"bitwise_{name}")(self, other if is_tensor(other) else convert_to_tensor(other, self.dtype))
    return combined


def _invert(self):
    """`~`: of the bits of integers, else of booleans."""
    if not self.dtype.is_integer:
        return _ops.logical_not(self)
    from .keras import ops
    return ops.bitwise_invert(self)


def _unhashable(self):
    raise TypeError("a tensor compares element by element, so it is no key of a dictionary: use tensor.ref()")


def _with_methods(cls):
    cls.shape = property(lambda self: TensorShape(self._shape), doc="The sizes of the dimensions.")
    cls.get_shape = lambda self: self.shape
    cls.__array_priority__ = 100
    cls.__len__, cls.__iter__, cls.__getitem__ = _len, _iter, _getitem
    cls.__eq__, cls.__ne__ = _compare("_eq"), _compare("_ne")
    for name in ("and", "or", "xor"):  # each is commutative
        setattr(cls, f"__{name}__", _and_or_xor(name))
        setattr(cls, f"__r{name}__", _and_or_xor(name))
    cls.__invert__ = _invert
    cls.ref = lambda self: _Reference(self)


_with_methods(Tensor)
Tensor.numpy = _numpy
Tensor.__array__ = _array
Tensor.__bool__ = _bool
Tensor.__float__ = lambda self: float(_number(self))
Tensor.__int__ = lambda self: int(_number(self))
Tensor.__index__ = _index
Tensor.__repr__, Tensor.__str__, Tensor.__format__ = _repr, _str, _format
Tensor.__hash__ = _unhashable
Tensor.__dlpack__ = lambda self, **keywords: self._ndarray()
Tensor.__dlpack_device__ = lambda self: (1, 0)  # the elements are read in host memory
Tensor.__reduce__ = lambda self: (_unpickled, (np.array(memoryview(self)) if self.dtype is not dtypes.bfloat16 else
                                               np.array(memoryview(_ops.cast(self, dtypes.float32))), self.dtype))
Tensor.__copy__ = lambda self: self
Tensor.__deepcopy__ = lambda self, memo: self
Tensor.device = property(lambda self: f"/job:localhost/replica:0/task:0/device:{self._device[1:]}", doc="Where it lives.")
Tensor.item = lambda self: _number(self)
Tensor.set_shape = lambda self, shape: None
Tensor.__doc__ = "An array of one element type on one device, or a value of a function that is being traced."


def _unpickled(array, dtype):
    return _from_value(array, dtype)


# --- variables ------------------------------------------------------------------------------------------------------------

def _read(method):
    def read(self, *args, **kwargs):
        return getattr(self.read_value(), method)(*args, **kwargs)
    read.__name__ = method
    return read


def _assign(self, value, use_locking=False, name=None, read_value=True):
    self._assign(_for(self, value))
    return self


def _assign_add(self, delta, use_locking=False, name=None, read_value=True):
    self._assign_add(_for(self, delta))
    return self


def _assign_sub(self, delta, use_locking=False, name=None, read_value=True):
    self._assign_sub(_for(self, delta))
    return self


def _for(variable, value):
    return convert_to_tensor(value, None) if isinstance(value, (Tensor, Variable)) else _from_value(value, variable.dtype)


class IndexedSlices:
    """Rows and their numbers."""

    def __init__(self, values, indices, dense_shape=None):
        self.values, self.indices, self.dense_shape = convert_to_tensor(values), convert_to_tensor(indices), dense_shape


def _scattered(change, doc):
    def scatter(self, indices, updates, name=None):
        from . import ops
        value = self.read_value()
        self._assign(getattr(ops, change)(value, indices, convert_to_tensor(updates, None if is_tensor(updates) else value.dtype)))
        return self
    scatter.__doc__ = doc
    return scatter


def _sliced(change, doc):
    def scatter(self, sparse_delta, use_locking=False, name=None):
        from . import ops
        return change(self, ops.expand_dims(sparse_delta.indices, -1), sparse_delta.values)
    scatter.__doc__ = doc
    return scatter


def _combined(change):
    def scatter(self, places, values):
        from .keras.ops import scatter_update
        factors = scatter_update(_ops.ones_like(self.read_value()), places, convert_to_tensor(values, None if is_tensor(values) else self.dtype), "mul")
        self._assign(getattr(_ops, change)(self.read_value(), factors))
        return self
    return scatter


_with_methods(Variable)
Variable.scatter_nd_update = _scattered("tensor_scatter_nd_update", "Other values in these places.")
Variable.scatter_nd_add = _scattered("tensor_scatter_nd_add", "These are added in their places.")
Variable.scatter_nd_sub = _scattered("tensor_scatter_nd_sub", "These are taken away in their places.")
Variable.scatter_update = _sliced(Variable.scatter_nd_update, "Other rows by their numbers, as tf.IndexedSlices has them.")
Variable.scatter_add = _sliced(Variable.scatter_nd_add, "Rows are added by their numbers, as tf.IndexedSlices has them.")
Variable.scatter_sub = _sliced(Variable.scatter_nd_sub, "Rows are taken away by their numbers, as tf.IndexedSlices has them.")
Variable.scatter_max = _sliced(_scattered("tensor_scatter_nd_max", ""), "The larger one of each row and of these, by their numbers, as tf.IndexedSlices "
                               "has them.")
Variable.scatter_min = _sliced(_scattered("tensor_scatter_nd_min", ""), "The smaller one of each row and of these, by their numbers.")
Variable.scatter_mul = _sliced(_combined("multiply"), "Rows times these, by their numbers. A row that is there twice is multiplied twice.")
Variable.scatter_div = _sliced(_combined("divide"), "Rows divided by these, by their numbers.")
Variable.gather_nd = lambda self, indices, name=None: _ops.gather_nd(self.read_value(), convert_to_tensor(indices))
Variable.sparse_read = lambda self, indices, name=None: _ops.gather(self.read_value(), convert_to_tensor(indices), 0, 0)
for _method in ("numpy", "__array__", "__bool__", "__float__", "__int__", "__index__", "__format__", "item"):
    setattr(Variable, _method, _read(_method))
Variable.assign = _assign
Variable.assign_add = _assign_add
Variable.assign_sub = _assign_sub
# TensorFlow's; of a variable of a layer, an optimizer or a metric, whose path is longer, Keras': the last part of it.
Variable.name = property(lambda self: self._name.rsplit("/", 1)[1] if "/" in self._name else self._name + ":0")
Variable.path = property(lambda self: self._name)
Variable.ndim = property(lambda self: len(self._shape))
Variable._size = property(lambda self: int(np.prod(self._shape, dtype=np.int64)))
Variable.device = property(lambda self: self.read_value().device)
Variable.symbolic = False
Variable.__hash__ = lambda self: hash(self._id)
Variable.__repr__ = lambda self: (f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}, "
                                         f"numpy={_apart(_text(self.read_value()))}>")
Variable.__str__ = Variable.__repr__
Variable.__reduce__ = lambda self: (_unpickled_variable, (self.numpy(), self.trainable, self._name, self.dtype))
Variable.__deepcopy__ = lambda self, memo: Variable(self.read_value(), self.trainable, name=self._name)


def _unpickled_variable(array, trainable, name, dtype):
    return Variable(array, trainable, name=name, dtype=dtype)


_lockstep.introduce(_from_value, dtypes.ALL, lambda value: dtypes.as_dtype(value)._number, errors._made,
                    _PACKAGE)
