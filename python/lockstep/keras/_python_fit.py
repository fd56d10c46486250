"""fit, evaluate and predict of models whose steps are written in Python: the steps are compiled, the loop around them is Python's. What is
trained on and who is told of it is as in the engine's loop."""

import sys
import warnings

import numpy as np

from .. import _lockstep, data, distribute, nest
from ..function import Function
from ..tensor import _PACKAGE
from . import callbacks as callbacks_module
from ._model_data import as_given, dataset_alone, pack_x_y_sample_weight, split_off, unpack_x_y_sample_weight, weights_by_class


class PythonRun:
    """One call of fit, evaluate, predict or their kin. Data is (x, y, sample_weight), of numbers."""

    def __init__(self, model, loan, callbacks=(), verbose=0, epochs=1):
        self._model, self._loan, self._verbose, self._epochs = model, loan, verbose, epochs
        self._callbacks = callbacks_module.CallbackList(callbacks, model=model)
        self._test = None

    # --- what is called ---

    def fit(self, given, validation, settings):
        """(numbers of the epochs, values by name)."""
        model, epochs, history = self._model, [], {}
        given = self.validate_on(given, validation, settings)
        train = self._batches(given, settings["batch_size"], settings["steps_per_epoch"], settings["shuffle"], settings["class_weight"], True)
        self._begin(train)
        model.stop_training, logs = False, {}
        self._tell("on_train_begin", {})
        for epoch in range(settings["initial_epoch"], self._epochs):
            if model.stop_training:
                break
            self._tell("on_epoch_begin", epoch, {})
            logs, steps = self._pass("train", train)
            logs.update(self.validation(epoch))
            if self._verbose:
                print(f"Epoch {epoch + 1}/{self._epochs}\n{_line(steps, logs)}")
            self._tell("on_epoch_end", epoch, logs)
            epochs.append(epoch)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
        optimizer = model.optimizer
        if getattr(getattr(optimizer, "inner_optimizer", optimizer), "use_ema", False):
            optimizer.finalize_variable_values(model.trainable_variables)
        self._tell("on_train_end", logs)
        return epochs, history

    def validate_on(self, given, validation, settings):
        """Takes what fit validates on; returns what it trains on."""
        if validation is None and settings["validation_split"]:
            given, validation = split_off(self._loan, given, settings["validation_split"])
        if validation is not None:
            self._frequency = _positive("validation_freq", settings["validation_freq"])
            size = settings["validation_batch_size"]
            self._test = self._batches(validation, settings["batch_size"] if size is None else size, settings["validation_steps"])
        return given

    def validation(self, epoch):
        """The values of validation behind this epoch; none where there is none."""
        if self._test is None or (epoch + 1) % self._frequency:
            return {}
        return {f"val_{name}": value for name, value in self._evaluation()[0].items()}

    def evaluate(self, given, batch_size, steps):
        """The last values by name."""
        self._test = self._batches(given, batch_size, steps)
        self._begin(self._test)
        logs, count = self._evaluation()
        if self._verbose:
            print(_line(count, logs))
        return logs

    def predict(self, given, batch_size, steps):
        """The results for all examples, in the structure that the step gives them."""
        batches, results = self._batches(given, batch_size, steps), []
        self._begin(batches)
        self._tell("on_predict_begin", {})
        self._pass("predict", batches, results)
        self._tell("on_predict_end", {})
        joined = [np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*(nest.flatten(result) for result in results))]
        return nest.pack_sequence_as(results[0], joined) if nest.is_nested(results[0]) else joined[0]

    def on_batch(self, kind, given, class_weight=None):
        """One step on one batch: values by name, or the results."""
        batch = self._element(given, class_weight)
        if self._spread:
            batch = self._model._strategy.distribute(batch)
        step = self._step(kind)
        if kind == "predict":
            return _as_arrays(step(batch))
        self._reset_metrics()
        return _floats(step(batch))

    # --- data ---

    def _element(self, given, class_weight):
        """All of the arrays, as a step gets a batch of them."""
        x, y, sample_weight = (as_given(part, self._loan) for part in given)
        if x is None:
            raise ValueError("the data has no x")
        if class_weight:
            sample_weight = weights_by_class(class_weight, x, y, sample_weight)
        return pack_x_y_sample_weight(x, y, sample_weight)

    def _batches(self, given, batch_size, steps=None, shuffle=False, class_weight=None, goes_on=False):
        handle = dataset_alone(*given)
        if handle is not None:
            dataset = data.Dataset(handle)._of_count(given[0]._count if isinstance(given[0], data.Dataset) else None)
            if class_weight:
                dataset = dataset.map(_weighing(class_weight))
        else:
            size = _positive("batch_size", 32 if batch_size is None else batch_size)
            element = self._element(given, class_weight)
            examples = nest.flatten(element)[0].shape
            if not examples or not examples[0]:
                raise ValueError(f"the data has no examples: its x has the shape {examples}")
            dataset = data.Dataset.from_tensor_slices(element)
            dataset = (dataset.shuffle(examples[0]) if shuffle else dataset).batch(size)
        if steps is None and dataset._elements() == data.INFINITE_CARDINALITY:
            raise ValueError("the dataset has no end (repeat() without a count); say with steps_per_epoch, steps or validation_steps how many "
                             "batches to take, or take(count) of it")
        return _Batches(self._model._strategy.experimental_distribute_dataset(dataset) if self._spread else dataset, dataset._elements(),
                        None if steps is None else _positive("the number of steps", steps), goes_on and steps is not None)

    # --- loops ---

    @property
    def _spread(self):
        return self._model._strategy is not None and self._model._strategy.num_replicas_in_sync > 1

    def _begin(self, batches):
        """Tells the callbacks about the run."""
        self._callbacks.set_params({"epochs": self._epochs, "verbose": self._verbose, "steps": batches.expected})

    def _tell(self, moment, *args):
        getattr(self._callbacks, moment)(*args)

    def _step(self, kind):
        """The step as a function of a batch."""
        model = self._model
        steps = model.__dict__.setdefault("_python_steps", {})
        if kind not in steps:
            step, eager = getattr(model, f"{kind}_step"), model._compiled is not None and model._compiled["run_eagerly"]
            if self._spread:
                steps[kind] = _on_replicas(model._strategy, step, kind)
            else:
                steps[kind] = step if eager or isinstance(step, Function) else Function(step, f"{kind}_step")
        made = steps[kind]
        if self._spread or isinstance(made, Function) and not made._is_python and not _lockstep.config.functions_run_eagerly():
            return model._step_on_staged(made)
        # Op by op everything is computed where its operands are, and the data is in host memory.
        device = model._strategy.devices[0] if model._strategy is not None and model._strategy.devices else ""
        return model._step_on_staged(lambda batch: made(nest.map_structure(lambda leaf: leaf._at_hand(device), batch)))

    def _reset_metrics(self):
        for metric in {id(metric): metric for metric in (*self._model._metrics_of_steps(), *self._model.metrics)}.values():
            metric.reset_state()

    def _evaluation(self):
        self._tell("on_test_begin", {})
        logs, count = self._pass("test", self._test)
        self._tell("on_test_end", logs)
        return logs, count

    def _pass(self, kind, batches, results=None):
        """(the values of the last step by name, how many there were); of predictions the results of every step."""
        step, logs, count = self._step(kind), {}, 0
        told = any(getattr(callback, "_wants_batch_logs", False) for callback in self._callbacks)
        if results is None:
            self._reset_metrics()
        batches.begin()
        while count != batches.expected:
            self._tell(f"on_{kind}_batch_begin", count, {})
            if not batches.has(count):
                break
            if results is None:
                logs = step(batches.take())
            else:
                results.append(_as_arrays(step(batches.take())))
            self._tell(f"on_{kind}_batch_end", count, _floats(logs) if told else {})
            count += 1
            if kind == "train" and self._model.stop_training:
                break
        if not count:
            raise ValueError("the data gave no batch: the dataset is empty, has ended in an epoch before (it needs repeat()), or drop_remainder "
                             "dropped its only batch")
        return _floats(logs), count


class Validating(callbacks_module.Callback):
    """Validation by a test_step of one's own, in a fit of the engine's."""

    def __init__(self, run):
        super().__init__()
        self._run = run

    def _add_logs(self, epoch):
        return self._run.validation(epoch)


class _Batches:
    """Batches for pass after pass: each begins anew, or, where they go on, only when the data has ended."""

    def __init__(self, iterable, count, steps, goes_on):
        self._iterable, self._count, self._steps, self._goes_on = iterable, count, steps, goes_on
        self._iterator, self._batch, self._taken = None, None, 0

    @property
    def expected(self):
        """Batches of a pass, where that is known."""
        return self._steps if self._steps is not None else self._count if self._count >= 0 else None

    def begin(self):
        """A pass."""
        if not self._goes_on or self._iterator is None or self._taken == self._count:
            self._open()

    def _open(self):
        self._iterator = None  # its threads end before those of the next one begin
        self._iterator, self._taken = iter(self._iterable), 0

    def has(self, step):
        """Whether the pass has a batch for this step."""
        self._batch = next(self._iterator, None)
        if self._batch is None and step == 0 and self._taken:
            self._open()
            self._batch = next(self._iterator, None)
        if self._batch is None:
            if self._steps is not None and step:
                _warn(f"the data ended after {step} of {self._steps} steps; it must give as many batches as all epochs take")
            self._iterator = None
            return False
        self._taken += 1
        return True

    def take(self):
        """It."""
        batch, self._batch = self._batch, None
        return batch


def _warn(text):
    """Of the line that called this package."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _positive(what, value):
    if int(value) <= 0:
        raise ValueError(f"{what} must be positive, received {value}")
    return int(value)


def _weighing(class_weight):
    def weigh(*element):
        x, y, sample_weight = unpack_x_y_sample_weight(element)
        return pack_x_y_sample_weight(x, y, weights_by_class(class_weight, x, y, sample_weight))
    return weigh


def _on_replicas(strategy, step, kind):
    join = _rows if kind == "predict" else _joined
    return lambda batch: nest.map_structure(join, strategy.run(step, args=(batch,)))


def _joined(value):
    """A log of all replicas: what is the same on all of them is that, losses are shares that add up."""
    if not isinstance(value, distribute.DistributedValues):
        return value
    parts = [float(part) for part in value.values]
    return parts[0] if all(part == parts[0] for part in parts) else sum(parts)


def _rows(value):
    """Results of all replicas, one behind the other."""
    return np.concatenate([part.numpy() for part in value.values]) if isinstance(value, distribute.DistributedValues) else value


def _as_arrays(results):
    return nest.map_structure(lambda leaf: np.atleast_1d(leaf.numpy() if hasattr(leaf, "numpy") else np.asarray(leaf)), results)


def _floats(logs):
    return {name: float(logs[name]) for name in sorted(logs or ())}


def _line(steps, logs):
    return f"{steps}/{steps} - " + " - ".join(f"{name}: {value:.4f}" for name, value in logs.items())
