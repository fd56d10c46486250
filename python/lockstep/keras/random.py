"""keras.random."""

from ..random import categorical, normal, shuffle, truncated_normal, uniform  # noqa: F401
from ..nn import dropout  # noqa: F401


class SeedGenerator:
    """A seed for the functions of this module."""

    def __init__(self, seed=None, name=None):
        self.seed = seed
