"""keras.ops: segments, the largest, Fourier transforms."""

from ... import nn
from ._defining import _define, _of_floats, _float, _named, _op, _ops, _public, _tensor, _tf
from ._reductions import _reduction

_define(globals(), "erf erfc rsqrt", _of_floats)

logsumexp = _reduction("logsumexp", "reduce_logsumexp", _float)
top_k = _op(lambda x, k, sorted=True: nn.top_k(_tensor(x), k))
in_top_k = _op(lambda targets, predictions, k: nn.in_top_k(_tensor(targets), _tensor(predictions), k))


def _segments(name, combine):
    def op(data, segment_ids, num_segments=None, sorted=False):
        data, ids = _tensor(data), _tensor(segment_ids)
        count = int(num_segments) if num_segments is not None else int(_tf._known(ids, name).max(initial=-1)) + 1
        return combine(data, ids, count)
    return _named(name, op, "Rows of one number together.")


segment_sum = _segments("segment_sum", lambda data, ids, count: _ops.scatter_add(data, ids, count))


__all__ = _public(globals())
