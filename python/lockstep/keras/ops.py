"""keras.ops: ops that work on tensors and on values of models that are being put together."""

import functools

from .. import image, linalg, nn, ops as _tf, random  # noqa: F401
from ..function import cond, map_fn, scan, while_loop  # noqa: F401
from ..tensor import convert_to_tensor, is_tensor  # noqa: F401
from . import losses
from .layers import symbolic


def _both(function):
    @functools.wraps(function)
    def op(*args, **kwargs):
        return symbolic(function, *args, **kwargs)
    return op


_NAMES = """add subtract multiply divide maximum minimum abs negative sign square sqrt rsqrt exp expm1 log log1p sin cos tan asin acos
atan sinh cosh asinh acosh atanh atan2 erf tanh sigmoid relu relu6 selu silu softplus softsign log_sigmoid hard_sigmoid floor ceil round
matmul einsum tensordot reshape transpose expand_dims squeeze concat stack unstack split tile repeat roll pad where
cast equal not_equal less less_equal greater greater_equal logical_and logical_or logical_not zeros_like ones_like argmax argmin sort
argsort cumsum cumprod one_hot stop_gradient broadcast_to clip_by_value reciprocal log2 log10""".split()
for _name in _NAMES:
    globals()[_name] = _both(getattr(_tf, _name))
for _name in ("softmax", "log_softmax", "gelu", "leaky_relu", "elu", "moments", "top_k", "in_top_k", "l2_normalize"):
    globals()[_name] = _both(getattr(nn, _name))

zeros, ones, eye, linspace, shape = _tf.zeros, _tf.ones, _tf.eye, _tf.linspace, lambda x: tuple(x.shape)
concatenate = _both(lambda xs, axis=0: _tf.concat(xs, axis))
swish, power, mod, clip = globals()["silu"], _both(_tf.pow), _both(_tf.floormod), _both(lambda x, x_min, x_max: _tf.clip_by_value(x, x_min, x_max))
absolute, true_divide, floor_divide = globals()["abs"], globals()["divide"], _both(_tf.floordiv)
isnan, isinf, isfinite = _both(_tf.is_nan), _both(_tf.is_inf), _both(_tf.is_finite)
normalize = _both(lambda x, axis=-1, order=2, epsilon=None: nn.l2_normalize(x, axis))


def _reduction(name, tensorflow_name):
    function = getattr(_tf, tensorflow_name)

    def reduce(x, axis=None, keepdims=False):
        return symbolic(lambda t: function(t, axis, keepdims), x)
    reduce.__name__, reduce.__doc__ = name, function.__doc__
    return reduce


sum, mean, max = _reduction("sum", "reduce_sum"), _reduction("mean", "reduce_mean"), _reduction("max", "reduce_max")  # noqa: A001
min, prod, var = _reduction("min", "reduce_min"), _reduction("prod", "reduce_prod"), _reduction("var", "reduce_variance")  # noqa: A001
std, any, all = _reduction("std", "reduce_std"), _reduction("any", "reduce_any"), _reduction("all", "reduce_all")  # noqa: A001
logsumexp = _reduction("logsumexp", "reduce_logsumexp")


def arange(start, stop=None, step=1, dtype=None):
    return _tf.range(start, stop, step, dtype)


def full(shape, fill_value, dtype=None):
    return _tf.cast(_tf.fill(shape, fill_value), dtype or "float32")


take = _both(lambda x, indices, axis=None: _tf.gather(_tf.reshape(x, [-1]), indices) if axis is None else _tf.gather(x, indices, axis=axis))
flip = _both(lambda x, axis=None: _tf.reverse(x, list(range(x.ndim)) if axis is None else axis))
dot = _both(lambda a, b: _tf.tensordot(a, b, 1) if b.ndim == 1 else _tf.matmul(a, b))
convert_to_numpy = lambda x: convert_to_tensor(x).numpy()  # noqa: E731
map = map_fn  # noqa: A001: Keras' name
sparse_categorical_crossentropy = _both(lambda target, output, from_logits=False, axis=-1:
                                        losses.sparse_categorical_crossentropy(target, output, from_logits=from_logits))
categorical_crossentropy = _both(lambda target, output, from_logits=False, axis=-1:
                                 losses.categorical_crossentropy(target, output, from_logits=from_logits))
binary_crossentropy = _both(lambda target, output, from_logits=False:
                            losses.binary_crossentropy(target, output, from_logits=from_logits))
