"""keras.random."""

from ..random import categorical, normal, shuffle, truncated_normal, uniform  # noqa: F401
from ..nn import dropout  # noqa: F401


class SeedGenerator:
    """A seed for the functions of this module."""

    def __init__(self, seed=None, name=None, **kwargs):
        if seed is not None and not isinstance(seed, int):
            raise ValueError(f"a seed is an integer, received {seed!r}")
        self.seed = seed
