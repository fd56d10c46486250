"""keras.ops: NumPy's functions and those of neural networks, on tensors and on values of models that are being put together.

Unlike TensorFlow's ops they join dtypes as NumPy does: an integer beside a float becomes one.
"""

from . import image, linalg, nn, numpy  # noqa: F401
from .core import *  # noqa: F401,F403
from .image import *  # noqa: F401,F403
from .linalg import *  # noqa: F401,F403
from .math import *  # noqa: F401,F403
from .nn import *  # noqa: F401,F403
from .numpy import *  # noqa: F401,F403
from . import _arrays, core as _core, math as _math
from .. import _operations, activations

# Where a module offers what another one defines, the latter comes first.
for _name, _module in (("numpy", numpy), ("core", _core), ("linalg", linalg), ("math", _math), ("nn", nn), ("image", image)):
    _operations.introduce(vars(_module), f"ops.{_name}")
# Activations are the same classes, but for two that have others.
_operations.introduce({"relu": activations.relu, "mish": activations.mish}, "activations.activations", {"relu": "ReLU"})
_operations.introduce({"exp": activations.exponential, "tanh": activations.tanh}, "ops.numpy")
_operations.introduce(vars(activations), "ops.nn")
_operations.introduce({"size": _arrays.size_of_value}, "ops.numpy")  # size() itself gives a number where it can
_operations.introduce({"ctc_decode": nn.ctc_decode_op}, "ops.nn")  # that of a beam is no part of models
