"""tf.random."""

import collections
import enum

import numpy as np

from . import _lockstep, _names, dtypes
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


class Algorithm(enum.Enum):
    """How numbers are drawn: there is one way here, whatever is asked for."""
    PHILOX, THREEFRY, AUTO_SELECT = 1, 2, 3


# --- by a seed alone -----------------------------------------------------------------------------------------------------

def _of_seed(seed):
    """A generator of a seed that is a pair of integers."""
    low, high = (int(part) for part in np.asarray(convert_to_tensor(seed)))
    return Generator.from_seed((low & 0xffffffff) << 32 | (high & 0xffffffff))


def _stateless(draw):
    def stateless(shape, seed, *args, alg="auto_select", **kwargs):
        return getattr(_of_seed(seed), draw)(shape, *args, **kwargs)
    stateless.__name__ = f"stateless_{draw}"
    stateless.__doc__ = "The same numbers for the same seed, a pair of integers."
    return stateless


stateless_uniform, stateless_normal, stateless_truncated_normal = _stateless("uniform"), _stateless("normal"), _stateless("truncated_normal")


def stateless_categorical(logits, num_samples, seed, dtype=dtypes.int64, name=None):
    """Class numbers, the same for the same seed, a pair of integers."""
    return _ops.cast(_ops.categorical(logits, int(num_samples), _of_seed(seed)._generator), dtype)


def stateless_shuffle(value, seed, alg="auto_select", name=None):
    """Shuffles along the first dimension; the seed, a pair of integers, determines the order."""
    return _ops.shuffle(value, _of_seed(seed)._generator)


def split(seed, num=2, alg="auto_select"):
    """Independent seeds, one per row."""
    return _ops.uniform([int(num), 2], 0.0, float(2**31 - 1), dtypes.int32, _of_seed(seed)._generator)


def fold_in(seed, data, alg="auto_select"):
    """Another seed for every integer."""
    low, high = (int(part) & 0xffffffff for part in np.asarray(convert_to_tensor(seed)))
    mixed = ((low << 32 | high) * 0x9E3779B97F4A7C15 + (int(data) + 1) * 0xBF58476D1CE4E5B9) % 2**64
    mixed = (mixed ^ mixed >> 31) * 0x94D049BB133111EB % 2**64
    return convert_to_tensor(np.array([mixed >> 33, mixed & 0x7fffffff], np.int32))


# --- gamma distributions ---------------------------------------------------------------------------------------------------

def _gamma(shape, alpha, beta, dtype, draw):
    dtype = dtypes.as_dtype(dtype)
    alpha, beta = convert_to_tensor(alpha), convert_to_tensor(1.0 if beta is None else beta)
    drawn = draw(shape, _ops.stop_gradient(alpha))
    return _ops.cast(drawn, dtype) / _ops.cast(beta, dtype)


def gamma(shape, alpha, beta=None, dtype=dtypes.float32, seed=None, name=None):
    """Samples of gamma distributions with shape parameters alpha and rates beta, `shape` samples of each. There is no gradient to alpha."""
    from .keras.random import gamma as of_scale_1
    parameters = np.broadcast_shapes(tuple(convert_to_tensor(alpha).shape), tuple(convert_to_tensor(1.0 if beta is None else beta).shape))
    return _gamma([*_sizes(shape), *parameters], alpha, beta, dtype, lambda sizes, a: of_scale_1(sizes, a, "float64", seed))


def stateless_gamma(shape, seed, alpha, beta=None, dtype=dtypes.float32, name=None):
    """The same for the same seed, a pair of integers, in this shape."""
    from .keras.random import _gamma as drawn, _parameter
    return _gamma(_sizes(shape), alpha, beta, dtype, lambda sizes, a: drawn(sizes, _parameter(a, sizes), _of_seed(seed)._generator))


# --- candidates of losses that look at few classes -------------------------------------------------------------------------

def _candidates(log_chances, true_classes, num_sampled, unique, generator):
    """Class numbers drawn with these chances, and how often the true ones and these are expected among them."""
    chances, classes = np.exp(log_chances), len(log_chances)
    table = convert_to_tensor(chances.astype(np.float32))
    if not unique:
        drawn = _ops.reshape(_ops.categorical(convert_to_tensor(log_chances.astype(np.float32)[None]), num_sampled, generator), [-1])
        tries = float(num_sampled)
    else:
        if num_sampled > classes:
            raise ValueError(f"{num_sampled} different classes are asked for, there are {classes}")
        # Those with the largest chances, each times a random number of its own (Gumbel's), come one by one as by drawing again what is there already.
        noise = _ops.negative(_ops.log(_ops.negative(_ops.log(_ops.uniform([classes], 1e-30, 1.0, dtypes.float32, generator)))))
        drawn = _ops.top_k(convert_to_tensor(log_chances.astype(np.float32)) + noise, num_sampled)[1]
        # How many draws there would have been: once for each, and as long as it drew one of those before it.
        taken = _ops.cumsum(_ops.gather(table, drawn, 0, 0), 0, True, False)
        again = _ops.floor(_ops.log(_ops.uniform([num_sampled], 1e-30, 1.0, dtypes.float32, generator)) / _ops.log(_ops.clip_by_value(taken, 1e-30, 1.0 - 1e-6)))
        tries = _ops.reduce_sum(again, [], False) + float(num_sampled)
    drawn = _ops.cast(drawn, dtypes.int64)

    def expected(numbers):
        chance = _ops.gather(table, numbers, 0, 0)
        return _ops.negative(_ops.expm1(_ops.log1p(_ops.negative(chance)) * tries)) if unique else chance * tries
    return CandidateSampler(drawn, expected(_ops.cast(true_classes, dtypes.int64)), expected(drawn))


CandidateSampler = collections.namedtuple("CandidateSampler", "sampled_candidates true_expected_count sampled_expected_count")


def log_uniform_candidate_sampler(true_classes, num_true, num_sampled, unique, range_max, seed=None, name=None):
    """Samples class ids, small ones more often: k with the chance log((k + 2) / (k + 1)) / log(range_max + 1)."""
    numbers = np.arange(int(range_max), dtype=np.float64)
    chances = np.log(np.log1p(1.0 / (numbers + 1.0)) / np.log(int(range_max) + 1.0))
    return _candidates(chances, true_classes, int(num_sampled), bool(unique), _generator(seed))


def uniform_candidate_sampler(true_classes, num_true, num_sampled, unique, range_max, seed=None, name=None):
    """Samples class ids uniformly."""
    return _candidates(np.full(int(range_max), -np.log(int(range_max))), true_classes, int(num_sampled), bool(unique), _generator(seed))


class experimental(metaclass=_names.Namespace):
    """Names from before these were settled."""
    Algorithm, Generator = Algorithm, Generator
    get_global_generator, set_global_generator = staticmethod(get_global_generator), staticmethod(set_global_generator)
    stateless_fold_in, stateless_shuffle, stateless_split = staticmethod(fold_in), staticmethod(stateless_shuffle), staticmethod(split)
