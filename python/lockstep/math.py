"""tf.math: elementwise ops, comparisons and reductions."""

from .nn import in_top_k, l2_normalize, log_softmax, softmax, top_k  # noqa: F401
from .ops import *  # noqa: F401,F403
from .ops import (abs, add_n, argmax, argmin, bincount, clip_by_value, confusion_matrix, count_nonzero, cumprod, cumsum, pow, round,  # noqa: F401,A004
                  segment_mean, segment_sum, unsorted_segment_mean, unsorted_segment_sum)
