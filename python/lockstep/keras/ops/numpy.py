"""keras.ops.numpy: NumPy's functions, on tensors and on values of models that are being put together."""

from ._arrays import *  # noqa: F401,F403
from ._elementwise import *  # noqa: F401,F403
from ._order import *  # noqa: F401,F403
from ._products import *  # noqa: F401,F403
from ._reductions import *  # noqa: F401,F403
from ._shapes import *  # noqa: F401,F403
