"""Arrays, datasets and iterators as the engine's fit, evaluate and predict take them."""

import numpy as np

from .. import _lockstep, data, errors, nest
from ..tensor import is_tensor


def _is_array(value):
    return isinstance(value, np.ndarray) or is_tensor(value) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def arrays(value, loan):
    """Arrays as the engine takes them, which reads them as long as they are lent: a list of tensors, or a dictionary. None in a list is the
    label of an output that has none."""
    if value is None:
        return []
    if isinstance(value, dict):
        return {str(name): loan.tensor(_of_pandas(part)) for name, part in value.items() if part is not None}
    given = [part for part in value if part is not None] if isinstance(value, (list, tuple)) else []
    if given and all(_is_array(part) for part in given) and getattr(given[0], "ndim", 0):
        return [None if part is None else loan.tensor(_of_pandas(part)) for part in value]
    return [loan.tensor(_of_pandas(value))]


def _of_pandas(value):
    return value.to_numpy() if hasattr(value, "to_numpy") else value


def dataset_of(x):
    """The dataset that x is; None where it is arrays."""
    if isinstance(x, data.Dataset):
        return x._handle
    handle = getattr(x, "_handle", None)
    if isinstance(handle, _lockstep.DistributedDataset):
        return handle.dataset()
    from .utils import PyDataset
    if isinstance(x, PyDataset) or (hasattr(x, "__getitem__") and hasattr(x, "__len__") and hasattr(x, "on_epoch_end")):
        return data.Dataset.from_generator(lambda: (_batch(x[i]) for i in range(len(x))))._handle
    if hasattr(x, "__next__"):
        return data.Dataset.from_generator(_GoingOn(x))._handle
    if hasattr(x, "__iter__") and hasattr(x, "__len__") and not isinstance(x, (list, tuple, dict)) and not _is_array(_of_pandas(x)):
        return data.Dataset.from_generator(lambda: map(_batch, x))._handle  # batches of somebody else's, such as PyTorch's DataLoader
    return None


class _GoingOn:
    """An iterator as a dataset: every pass goes on where the one before ended. The first one is the engine's look at a batch, which
    is given again."""

    def __init__(self, iterator):
        self._batches, self._looked, self._again = iterator, False, []

    def __call__(self):
        looks, self._looked, taken = not self._looked, True, []
        try:
            while self._again:
                yield self._again.pop()
            for batch in self._batches:
                taken = taken + [_batch(batch)] if looks and len(taken) < 2 else taken
                yield _batch(batch)
        finally:
            if looks and len(taken) == 1:
                self._again = taken


def _batch(batch):
    """A batch that a generator gave."""
    return tuple(batch) if isinstance(batch, list) else batch


def triple(model, loan, x, y=None, sample_weight=None):
    """Data as the engine's fit takes it: all by name where a part of it is."""
    dataset = dataset_alone(x, y, sample_weight)
    if dataset is not None:
        return (model._in_order_of_call(dataset) if model._is_written else dataset), [], []
    if model._is_written:
        x, y, sample_weight = (model._taken(x), *(by_order(part) for part in (y, sample_weight)))
    parts = [arrays(part, loan) for part in (x, y, sample_weight)]
    if any(isinstance(part, dict) for part in parts):
        names = (model._engine.input_names(), model.output_names, model.output_names)
        parts = [part if isinstance(part, dict) else dict(zip(known, part)) for part, known in zip(parts, names)]
    return tuple(parts)


def dataset_alone(x, y=None, sample_weight=None):
    """The dataset that x is, which has labels and weights in it; None where it is arrays."""
    dataset = dataset_of(x)
    for part, name, place in ((y, "y", "second"), (sample_weight, "sample_weight", "third")):
        if dataset is not None and part is not None:
            raise ValueError(f"{name} comes with the dataset, as the {place} part of its elements")
    return dataset


def split_off(loan, given, share):
    """All but this share of the examples, and those: each (x, y, sample_weight)."""
    if dataset_of(given[0]) is not None:
        raise errors.UnimplementedError("fit: validation_split needs arrays in memory; split the dataset itself with take(n) and skip(n)")
    parts = [as_given(part, loan) for part in given]
    made = _lockstep.Model.split_off([_leaves(part) for part in parts], share)
    return tuple(tuple(None if part is None else nest.pack_sequence_as(part, cut) if nest.is_nested(part) else cut[0]
                       for part, cut in zip(parts, half)) for half in made)


def as_given(value, loan):
    """Arrays as a step that is written in Python gets them: a tensor, several in a tuple, or by name; None."""
    made = arrays(value, loan)
    return made if isinstance(made, dict) else None if not made else made[0] if len(made) == 1 else tuple(made)


def weights_by_class(class_weight, x, y, sample_weight):
    """The weights of examples, by their classes."""
    return _lockstep.Model.with_class_weight([_leaves(part) for part in (x, y, sample_weight)], class_weight)[2][0]


def _leaves(part):
    return [] if part is None else nest.flatten(part)


def pack_x_y_sample_weight(x, y=None, sample_weight=None):
    """A batch as steps get it, without what is not there."""
    if y is None:
        if sample_weight is not None:
            raise ValueError("sample_weight weighs labels, and there is no y")
        return (x,) if isinstance(x, tuple) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


def by_order(value):
    """What a dictionary holds, in the order in which results in a dictionary are taken: that of their sorted names."""
    return nest.flatten(value) if isinstance(value, dict) else value


def unpack_x_y_sample_weight(data):
    """A batch as (x, y, sample_weight)."""
    if isinstance(data, list):
        data = tuple(data)
    if not isinstance(data, tuple):
        return data, None, None
    return data + (None,) * (3 - len(data))
