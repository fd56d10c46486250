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
