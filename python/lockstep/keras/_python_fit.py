"""fit and evaluate of models whose steps are written in Python."""

from .. import data, distribute, nest
from ..function import Function
from . import callbacks as callbacks_module
from ._model_data import arrays, dataset_of


class PythonFit:
    """fit of a model whose train_step is written in Python: the step is compiled, the loop around it is Python's."""

    def __init__(self, model, loan, x, y, sample_weight, batch_size, epochs, verbose, callbacks, validation_data, initial_epoch,
                 steps_per_epoch, validation_steps, shuffle, validation_split):
        self._model, self._loan, self._epochs, self._verbose, self._first = model, loan, int(epochs), verbose, int(initial_epoch)
        self._callbacks = list(callbacks or ())
        x = model._of_stage(x)
        if validation_data is not None:
            given = validation_data if isinstance(validation_data, tuple) else (validation_data,)
            validation_data = (model._of_stage(given[0]), *given[1:])
        if validation_split:
            x, y, validation_data = _split(x, y, validation_split)
        self._batch_size = batch_size or 32
        self._data = self._batches(x, y, sample_weight, shuffle)
        if steps_per_epoch is not None:
            self._data = self._data.take(int(steps_per_epoch))
        self._validation = None
        if validation_data is not None:
            self._validation = self._batches(*validation_data, shuffle=False)
        if validation_steps is not None:
            chosen = self._validation if self._validation is not None else self._data
            chosen = chosen.take(int(validation_steps))
            self._validation, self._data = (chosen, self._data) if self._validation is not None else (None, chosen)

    def _batches(self, x, y=None, sample_weight=None, shuffle=True):
        handle = dataset_of(x)
        if handle is not None:
            return data.Dataset(handle)
        parts = tuple(part for part in (_first(arrays(given, self._loan)) for given in (x, y, sample_weight)) if part is not None)
        count = nest.flatten(parts)[0].shape[0]
        whole = data.Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0])
        return (whole.shuffle(count) if shuffle else whole).batch(self._batch_size)

    def _step(self, name):
        model = self._model
        steps = model.__dict__.setdefault("_python_steps", {})
        if name not in steps:
            step = getattr(model, name)
            if self._spread:
                strategy = model._strategy
                steps[name] = lambda batch: nest.map_structure(_joined, strategy.run(step, args=(batch,)))
            else:
                eager = model._compiled is not None and model._compiled["run_eagerly"]
                steps[name] = step if eager or isinstance(step, Function) else Function(step, name)
        return steps[name]

    @property
    def _spread(self):
        return self._model._strategy is not None and self._model._strategy.num_replicas_in_sync > 1

    def _tell(self, moment, *args):
        for callback in self._callbacks:
            getattr(callback, moment)(*args)

    def _pass(self, dataset, step, moment):
        for metric in self._model._metrics_of_steps():
            metric.reset_state()
        step = self._model._step_on_staged(step)
        logs, count = {}, 0
        if self._spread:
            dataset = self._model._strategy.experimental_distribute_dataset(dataset)
        for count, batch in enumerate(dataset, 1):
            if moment:
                self._tell("on_train_batch_begin", count - 1, {})
            logs = step(batch)
            if moment:
                told = any(getattr(c, "_wants_batch_logs", False) for c in self._callbacks)
                self._tell("on_train_batch_end", count - 1, _floats(logs) if told else {})
            if self._model.stop_training:
                break
        return _floats(logs), count

    def evaluate(self):
        logs, _ = self._pass(self._data, self._step("test_step"), False)
        return logs

    def run(self):
        model, history = self._model, {}
        for callback in self._callbacks:
            callback.set_model(model)
            callback.set_params({"epochs": self._epochs, "verbose": self._verbose, "steps": None})
        epochs = []
        self._tell("on_train_begin", {})
        for epoch in range(self._first, self._epochs):
            self._tell("on_epoch_begin", epoch, {})
            logs, steps = self._pass(self._data, self._step("train_step"), True)
            if self._validation is not None:
                checked, _ = self._pass(self._validation, self._step("test_step"), False)
                logs.update({f"val_{name}": value for name, value in checked.items()})
            if self._verbose:
                shown = " - ".join(f"{name}: {value:.4f}" for name, value in logs.items())
                print(f"Epoch {epoch + 1}/{self._epochs}\n{steps}/{steps} - {shown}")
            self._tell("on_epoch_end", epoch, logs)
            epochs.append(epoch)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
            if model.stop_training:
                break
        self._tell("on_train_end", {})
        made = callbacks_module.History(epochs, history, {"epochs": self._epochs, "verbose": self._verbose}, model)
        model.__dict__["history"] = made
        return made


def _joined(value):
    """A log of all replicas: what is the same on all of them is that, losses are shares that add up."""
    if not isinstance(value, distribute.DistributedValues):
        return value
    parts = [float(part) for part in value.values]
    return parts[0] if all(part == parts[0] for part in parts) else sum(parts)


def _first(arrays):
    if isinstance(arrays, dict):
        return arrays
    return None if not arrays else arrays[0] if len(arrays) == 1 else tuple(arrays)


def _split(x, y, share):
    count = len(nest.flatten(x)[0])
    kept = count - int(count * share)
    def part(value, which):
        return None if value is None else nest.map_structure(lambda a: a[which], value)
    return part(x, slice(kept)), part(y, slice(kept)), (part(x, slice(kept, None)), part(y, slice(kept, None)))


def _floats(logs):
    return {name: float(value) for name, value in (logs or {}).items()}
