"""tf.random."""

import numpy as np

from . import _lockstep, dtypes
from .ops import _sizes
from .tensor import convert_to_tensor

_ops = _lockstep.ops


def set_seed(seed):
    """From here on the same numbers are drawn."""
    _ops.set_seed(int(seed))


def _generator(seed):
    """A seed of its own gives an op a generator of its own."""
    return None if seed is None else _ops.Generator(int(seed))


def uniform(shape, minval=0, maxval=None, dtype=dtypes.float32, seed=None, name=None):
    """Every value in [minval, maxval) as likely as any other."""
    dtype = dtypes.as_dtype(dtype)
    if maxval is None:
        if not dtype.is_floating:
            raise ValueError("uniform: integers need a maxval")
        maxval = 1
    return _ops.uniform(_sizes(shape), float(minval), float(maxval), dtype, _generator(seed))


def normal(shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, seed=None, name=None):
    """Normally distributed."""
    return _ops.normal(_sizes(shape), float(mean), float(stddev), dtype, _generator(seed))


def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, seed=None, name=None):
    """The same; what is further than two standard deviations from the mean is drawn again."""
    return _ops.truncated_normal(_sizes(shape), float(mean), float(stddev), dtype, _generator(seed))


def shuffle(value, seed=None, name=None):
    """The parts along the first dimension in another order."""
    return _ops.shuffle(value, _generator(seed))


def categorical(logits, num_samples, dtype=dtypes.int64, seed=None, name=None):
    """Class numbers, each drawn with the probability that its logit says."""
    return _ops.cast(_ops.categorical(logits, int(num_samples), _generator(seed)), dtype)


class Generator:
    """A source of random numbers of its own."""

    def __init__(self, handle):
        self._generator = handle

    @classmethod
    def from_seed(cls, seed, alg=None):
        return cls(_ops.Generator(int(seed)))

    @classmethod
    def from_non_deterministic_state(cls, alg=None):
        return cls(_ops.Generator(int(np.random.default_rng().integers(0, 2**62))))

    def uniform(self, shape, minval=0, maxval=None, dtype=dtypes.float32, name=None):
        return _ops.uniform(_sizes(shape), float(minval), 1.0 if maxval is None else float(maxval), dtype, self._generator)

    def normal(self, shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, name=None):
        return _ops.normal(_sizes(shape), float(mean), float(stddev), dtype, self._generator)

    def truncated_normal(self, shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, name=None):
        return _ops.truncated_normal(_sizes(shape), float(mean), float(stddev), dtype, self._generator)

    def reset_from_seed(self, seed):
        self._generator.reset(int(seed))

    def split(self, count=1):
        """Generators whose numbers have nothing to do with each other's, nor with this one's from here on."""
        drawn = np.asarray(_ops.uniform([int(count)], 0.0, float(2**31 - 1), dtypes.int32, self._generator), np.int64)
        return [Generator.from_seed(int(seed) * 0x9E3779B97F4A7C15 % 2**63) for seed in drawn]

    def make_seeds(self, count=1):
        """Seeds for functions without a state."""
        return _ops.uniform([2, int(count)], 0.0, float(2**31 - 1), dtypes.int32, self._generator)

    @property
    def state(self):
        return self._generator.state()


_global = []


def get_global_generator():
    """The one that a program draws from where it has none of its own; made when it is asked for."""
    if not _global:
        _global.append(Generator.from_non_deterministic_state())
    return _global[0]


def set_global_generator(generator):
    """What get_global_generator() gives from now on."""
    _global[:] = [generator]


def _stateless(draw):
    def stateless(shape, seed, *args, **kwargs):
        low, high = (int(part) for part in np.asarray(convert_to_tensor(seed)))
        return getattr(Generator.from_seed((low & 0xffffffff) << 32 | (high & 0xffffffff)), draw)(shape, *args, **kwargs)
    stateless.__name__ = f"stateless_{draw}"
    stateless.__doc__ = "The same numbers for the same seed, a pair of integers."
    return stateless


stateless_uniform, stateless_normal = _stateless("uniform"), _stateless("normal")
