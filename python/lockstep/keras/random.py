"""keras.random: numbers drawn by a seed, by a SeedGenerator, or by the engine's own generator, which set_random_seed() seeds."""

import random as _python

import numpy as np

from .. import _lockstep, dtypes, ops as _tf
from ..function import while_loop as _while_loop
from ..ops import _sizes
from ..tensor import convert_to_tensor
from .backend import floatx, standardize_dtype

_ops = _lockstep.ops


class SeedGenerator:
    """A source of random numbers of its own: functions of this module that are given it as their seed draw anew with every call, in
    compiled functions too."""

    def __init__(self, seed=None, name=None, **kwargs):
        if kwargs:
            raise ValueError(f"SeedGenerator: unknown arguments {', '.join(kwargs)}")
        if seed is not None and not isinstance(seed, int):
            raise ValueError(f"SeedGenerator: Argument `seed` must be an integer, received {seed!r}")
        self.seed, self.name = seed, name or "seed_generator"
        self._drawn_by = _python.randrange(2**31) if seed is None else seed
        self._generator = _ops.Generator(self._drawn_by)

    @property
    def state(self):
        """The seed, and how many draws there were."""
        drawn = self._generator.state().read_value()
        return _tf.stack([convert_to_tensor(self._drawn_by, dtypes.int64), _ops.cast(drawn, dtypes.int64)])

    def next(self, ordered=True):
        """The seed and the number of the draw, which is made by it."""
        made, drawn = self.state, self._generator.state()
        drawn.assign_add(convert_to_tensor(1, drawn.dtype))
        return made

    def get_config(self):
        return {"seed": self.seed}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def _source(seed):
    """The generator that a seed means; None: the engine's own."""
    if isinstance(seed, SeedGenerator):
        return seed._generator
    if seed is None:
        return None
    if not isinstance(seed, (int, np.integer)):
        raise ValueError(f"a seed is an integer, a SeedGenerator or None, received {seed!r}")
    return _ops.Generator(int(seed))


def _floating(dtype, what):
    dtype = dtypes.as_dtype(standardize_dtype(dtype or floatx()))
    if not dtype.is_floating:
        raise ValueError(f"{what}: `dtype` is one of floating point numbers, received {dtype.name}")
    return dtype


def normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    """Normally distributed."""
    return _ops.normal(_sizes(shape), float(mean), float(stddev), _floating(dtype, "normal"), _source(seed))


def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    """The same; what is further than two standard deviations from the mean is drawn again."""
    return _ops.truncated_normal(_sizes(shape), float(mean), float(stddev), _floating(dtype, "truncated_normal"), _source(seed))


def uniform(shape, minval=0.0, maxval=1.0, dtype=None, seed=None):
    """Every value in [minval, maxval) as likely as any other."""
    return _ops.uniform(_sizes(shape), float(minval), float(maxval), _floating(dtype, "uniform; randint() draws integers"), _source(seed))


def randint(shape, minval, maxval, dtype="int32", seed=None):
    """Integers from minval up to maxval, which is none of them."""
    dtype = dtypes.as_dtype(standardize_dtype(dtype))
    if not dtype.is_integer:
        raise ValueError(f"randint: `dtype` is one of integers, received {dtype.name}")
    drawn = dtype if dtype in (dtypes.int32, dtypes.int64) else dtypes.int32
    return _ops.cast(_ops.uniform(_sizes(shape), float(minval), float(maxval), drawn, _source(seed)), dtype)


def categorical(logits, num_samples, dtype="int32", seed=None):
    """Class numbers, each drawn with the probability that its logit says."""
    logits = convert_to_tensor(logits)
    if logits.ndim != 2:
        raise ValueError(f"categorical: takes logits of rank 2, received shape {logits.shape}")
    return _ops.cast(_ops.categorical(logits, int(num_samples), _source(seed)), standardize_dtype(dtype))


def shuffle(x, axis=0, seed=None):
    """The parts along a dimension in another order."""
    x = convert_to_tensor(x)
    if axis % x.ndim == 0:
        return _ops.shuffle(x, _source(seed))
    return _ops.moveaxis(_ops.shuffle(_ops.moveaxis(x, [axis], [0]), _source(seed)), [0], [axis])


def dropout(inputs, rate, noise_shape=None, seed=None):
    """Elements become 0 with this probability, the others larger, so that the sum stays about the same."""
    x = convert_to_tensor(inputs)
    if rate == 1:
        return _ops.zeros_like(x)
    if noise_shape is not None:
        noise_shape = [size if chosen is None else chosen for chosen, size in zip(noise_shape, x.shape)]
    return _ops.dropout(x, float(rate), noise_shape or [], _source(seed))


# --- by rejection ----------------------------------------------------------------------------------------------------------

_CANDIDATES = 12  # for every number: one in twenty is rejected at most, so that none is left once in 2e15


def _gamma(shape, alpha, generator):
    """Marsaglia and Tsang's method, in float64: of several candidates for each number the first that is accepted."""
    small = _tf.less(alpha, 1.0)
    raised = _tf.where(small, alpha + 1.0, alpha)
    d = raised - 1.0 / 3.0
    c = _tf.rsqrt(d * 9.0)
    x = _ops.normal([_CANDIDATES, *shape], 0.0, 1.0, dtypes.float64, generator)
    u = _ops.uniform([_CANDIDATES, *shape], 0.0, 1.0, dtypes.float64, generator)
    root = c * x + 1.0
    v = root * root * root
    positive = _tf.greater(v, 0.0)
    safe = _tf.where(positive, v, _tf.ones_like(v))
    accepted = _tf.logical_and(positive, _tf.less(_tf.log(u + 1e-300), x * x * 0.5 + d - d * safe + d * _tf.log(safe)))
    first = _tf.argmax(_ops.cast(accepted, dtypes.int32), 0)
    made = d * _tf.squeeze(_ops.take_along_axis(safe, _tf.expand_dims(first, 0), 0), 0)
    boost = _ops.uniform(list(shape), 0.0, 1.0, dtypes.float64, generator)
    return _tf.where(small, made * _tf.pow(1.0 - boost, 1.0 / alpha), made)


def _parameter(value, shape):
    return _tf.broadcast_to(_ops.cast(convert_to_tensor(value), dtypes.float64), shape)


def gamma(shape, alpha, dtype=None, seed=None):
    """Drawn from gamma distributions of this shape parameter, of scale 1."""
    dtype, shape = _floating(dtype, "gamma"), _sizes(shape)
    return _ops.cast(_gamma(shape, _parameter(alpha, shape), _source(seed)), dtype)


def beta(shape, alpha, beta, dtype=None, seed=None):
    """Drawn from beta distributions of these shape parameters."""
    dtype, shape, generator = _floating(dtype, "beta"), _sizes(shape), _source(seed)
    return _ops.cast(_beta(shape, _parameter(alpha, shape), _parameter(beta, shape), generator), dtype)


def _beta(shape, alpha, beta, generator):
    a, b = _gamma(shape, alpha, generator), _gamma(shape, beta, generator)
    return a / (a + b)


def binomial(shape, counts, probabilities, dtype=None, seed=None):
    """How many of so many tries succeed."""
    dtype, shape, generator = _floating(dtype, "binomial"), _sizes(shape), _source(seed)

    def halve(tries, chance, successes):
        # The middle one of so many uniform numbers is beta distributed. Where it is above the chance, all behind it fail; where it is
        # below, it and all before it succeed.
        middle = _tf.floor(tries / 2.0) + 1.0
        number = _beta(shape, middle, _tf.maximum(tries + 1.0 - middle, 1.0), generator)
        above = _tf.greater_equal(number, chance)
        left = _tf.greater(tries, 0.0)
        with_middle = _tf.where(above, middle - 1.0, tries - middle)
        next_chance = _tf.where(above, chance / _tf.maximum(number, 1e-300), (chance - number) / _tf.maximum(1.0 - number, 1e-300))
        more = _tf.where(_tf.logical_and(left, _tf.logical_not(above)), middle, _tf.zeros_like(middle))
        return _tf.where(left, with_middle, tries), _tf.where(left, next_chance, chance), successes + more
    start = _parameter(counts, shape)
    made = _while_loop(lambda tries, chance, successes: _tf.reduce_any(_tf.greater(tries, 0.0)), halve,
                       [_tf.floor(start), _parameter(probabilities, shape), _tf.zeros_like(start)])
    return _ops.cast(made[2], dtype)
