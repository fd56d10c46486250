"""keras.callbacks: code that fit, evaluate and predict call at set moments."""

import json
import math
import os
import warnings

import numpy as np

from .. import _lockstep
from ..tensor import convert_to_tensor

_MOMENTS = ("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end",
            "on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end", "on_predict_begin", "on_predict_end",
            "on_predict_batch_begin", "on_predict_batch_end")


class Callback:
    """Derive from it and define the moments that it shall hear of. self.model is the model, self.params the run."""

    def __init__(self):
        self.params = {}
        self._model = None

    @property
    def model(self):
        return getattr(self, "_model", None)

    def set_model(self, model):
        self._model = model

    def set_params(self, params):
        self.params = params

    def on_batch_begin(self, batch, logs=None):
        """An older name of on_train_batch_begin."""

    def on_batch_end(self, batch, logs=None):
        """An older name of on_train_batch_end."""

    def on_train_batch_begin(self, batch, logs=None):
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self.on_batch_end(batch, logs)

    @property
    def _hears_of_batches(self):
        """The engine makes steps one by one where somebody wants to hear of each."""
        own = type(self)
        return any(getattr(own, name) is not getattr(Callback, name) for name in _MOMENTS + ("on_batch_begin", "on_batch_end")
                   if "batch" in name)

    @property
    def _wants_batch_logs(self):
        own = type(self)
        return any(getattr(own, name) is not getattr(Callback, name)
                   for name in ("on_train_batch_end", "on_batch_end", "on_test_batch_end"))

    @property
    def _handle(self):
        return _lockstep.Callback.written(self)


def _silent(moment):
    def hear(self, *args, **kwargs):
        pass
    hear.__name__ = moment
    return hear


for _moment in _MOMENTS:
    if not hasattr(Callback, _moment):
        setattr(Callback, _moment, _silent(_moment))


class _OfEngine(Callback):
    """A callback of the engine. A class that is derived from it and defines moments of its own is told of them, and tells the engine
    by super()."""

    _state = {}  # attribute -> what the engine calls it

    def __init__(self, **settings):
        super().__init__()
        self._engine = _lockstep.Callback.of_engine(type(self)._engine_name, settings)
        self.__dict__.update({key: value for key, value in settings.items() if key != "schedule"})

    @property
    def _handle(self):
        return super()._handle if self._is_changed else self._engine

    @property
    def _is_changed(self):
        """Whether a class of Python's own, or somebody, has put something in the place of a moment."""
        return any(getattr(type(self), moment) is not getattr(_OfEngine, moment) or moment in self.__dict__ for moment in _MOMENTS)

    @property
    def _hears_of_batches(self):
        return type(self)._engine_name in _OF_BATCHES or any(
            getattr(type(self), name) is not getattr(_OfEngine, name) for name in _MOMENTS + ("on_batch_begin", "on_batch_end")
            if "batch" in name)

    @property
    def _wants_batch_logs(self):
        return type(self)._engine_name in _OF_BATCHES or any(
            getattr(type(self), name) is not getattr(_OfEngine, name)
            for name in ("on_train_batch_end", "on_batch_end", "on_test_batch_end"))

    def set_model(self, model):
        super().set_model(model)
        if isinstance(getattr(model, "_handle", None), _lockstep.Model):
            self._bind(1, -1, 0)

    def set_params(self, params):
        super().set_params(params)
        if isinstance(getattr(self.model, "_handle", None), _lockstep.Model):
            steps = params.get("steps")
            self._bind(params.get("epochs") or 1, -1 if steps is None else steps, params.get("verbose") or 0)

    def _bind(self, epochs, steps, verbose):
        bound = self._model_of(self.model)
        self._engine.bind(bound, epochs, steps, verbose)
        self.__dict__["_bound"] = bound  # the engine's callback does not keep it

    def _model_of(self, model):
        """The engine's model that it works with: the one that runs."""
        return model._engine

    def _tell(self, moment, number, logs):
        if not isinstance(getattr(self.model, "_handle", None), _lockstep.Model):
            raise ValueError(f"{type(self).__name__}.{moment}: it belongs to no model of keras yet, received {self.model!r} by set_model()")
        told = self._engine.tell(moment, number, {name: float(value) for name, value in (logs or {}).items()})
        if logs is not None:
            logs.update(told)

    def _read_state(self):
        return self._engine.state()

    def __getattr__(self, name):
        known = type(self)._state.get(name)
        if known is None or "_engine" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        state = self._read_state()
        if name == "best_weights":
            count = int(state[known])
            return [state[f"{known}.{i}"].numpy() for i in range(count)] if count else None
        value = state[known].numpy().item()
        return None if name == "best" and math.isinf(value) else value

    def __setattr__(self, name, value):
        known = type(self)._state.get(name)
        if known is None or "_engine" not in self.__dict__:
            object.__setattr__(self, name, value)
        elif name != "best_weights":
            state = self._read_state()
            state[known] = convert_to_tensor(np.asarray(value, state[known].dtype.as_numpy_dtype))
            self._engine.set_state(state)


def _forward(moment):
    if moment.endswith(("_train_begin", "_train_end", "_test_begin", "_test_end", "_predict_begin", "_predict_end")):
        def tell(self, logs=None):
            self._tell(moment, 0, logs)
    elif "epoch" in moment:
        def tell(self, epoch, logs=None):
            self._tell(moment, epoch, logs)
    else:
        def tell(self, batch, logs=None):
            self._tell(moment, batch, logs)
    tell.__name__ = moment
    return tell


for _moment in _MOMENTS:
    setattr(_OfEngine, _moment, _forward(_moment))
_OF_BATCHES = ("TerminateOnNaN",)  # callbacks of the engine that read the logs of every batch


def _callback(name, doc, defaults, state=()):
    def __init__(self, *args, **kwargs):
        settings = dict(defaults)
        if len(args) > len(defaults):
            raise TypeError(f"{name}() takes at most {len(defaults)} arguments, {len(args)} were given")
        settings.update(zip(defaults, args))
        for key, value in kwargs.items():
            if key not in defaults:
                raise TypeError(f"{name}() takes no argument {key!r}; there are {', '.join(defaults)}")
            settings[key] = value
        for key in ("filepath", "filename", "backup_dir", "log_dir"):
            if key in settings and settings[key] is not None:
                settings[key] = os.fspath(settings[key])
        for key in ("save_freq", "update_freq"):
            if settings.get(key) in ("epoch", None):
                settings[key] = 0
            elif settings[key] == "batch" and key == "update_freq":
                settings[key] = 1
            elif not isinstance(settings[key], int):
                raise ValueError(f"{name}: {key} is \"epoch\" or a number of batches, received {settings[key]!r}")
        if settings.get("mode", "auto") not in ("auto", "min", "max"):
            warnings.warn(f"{name} mode {settings['mode']!r} is unknown: it is \"auto\", \"min\" or \"max\"; \"auto\" is taken",
                          stacklevel=2)
            settings["mode"] = "auto"
        _OfEngine.__init__(self, **{key: value for key, value in settings.items() if value is not None})
    return type(name, (_OfEngine,), {"__init__": __init__, "__doc__": doc, "__module__": __name__, "_engine_name": name,
                                     "_state": dict(state)})


EarlyStopping = _callback("EarlyStopping", "Ends training once a value has stopped getting better.", {
    "monitor": "val_loss", "min_delta": 0.0, "patience": 0, "verbose": 0, "mode": "auto", "baseline": None,
    "restore_best_weights": False, "start_from_epoch": 0}, {
    "wait": "waited", "best": "best", "best_epoch": "best_epoch", "stopped_epoch": "stopped_epoch",
    "best_weights": "best_weights"})
_SavingFiles = _callback("ModelCheckpoint", "", {
    "filepath": None, "monitor": "val_loss", "verbose": 0, "save_best_only": False, "save_weights_only": False,
    "mode": "auto", "save_freq": 0, "initial_value_threshold": None})


class ModelCheckpoint(_SavingFiles):
    """Saves the model in a .keras file, or its weights in safetensors files. The files of a model of texts are of the whole of it, with its
    layers of texts, which the engine's part has not; the engine writes what stands for texts there, and it becomes "string" here."""

    _epoch = 0

    @property
    def _has_texts(self):
        return getattr(self.model, "_stage", None) is not None

    @property
    def _is_changed(self):
        return self._has_texts or super()._is_changed

    @property
    def _hears_of_batches(self):
        return super()._hears_of_batches or bool(self.__dict__["save_freq"])

    @property
    def _wants_batch_logs(self):
        return super()._wants_batch_logs or bool(self.__dict__["save_freq"])

    def _model_of(self, model):
        return model._handle

    def _tell(self, moment, number, logs):
        strategy = getattr(self.model, "_strategy", None)
        if self._has_texts and strategy is not None and not strategy._handle.is_chief:
            return  # as in the engine's fit: one process writes the files
        super()._tell(moment, number, logs)
        if moment in ("on_epoch_begin", "on_epoch_end"):
            self._epoch = number
        if self._has_texts and moment == ("on_train_batch_end" if self.__dict__["save_freq"] else "on_epoch_end"):
            from . import _text_files
            batch = number + 1 if moment == "on_train_batch_end" else 0
            path = self.__dict__["filepath"].format(epoch=self._epoch + 1, batch=batch, **(logs or {}))
            _text_files.put_right(self.model, path if path.endswith(".keras") else os.path.splitext(path)[0] + ".json")


ReduceLROnPlateau = _callback("ReduceLROnPlateau", "Reduces the rate where a value no longer gets better.", {
    "monitor": "val_loss", "factor": 0.1, "patience": 10, "verbose": 0, "mode": "auto", "min_delta": 1e-4, "cooldown": 0,
    "min_lr": 0.0}, {"wait": "waited", "best": "best", "cooldown_counter": "cooldown"})
CSVLogger = _callback("CSVLogger", "One line per epoch.", {"filename": None, "separator": ",", "append": False})
TerminateOnNaN = _callback("TerminateOnNaN", "Stops where the loss is no number.", {"raise_error": False})
BackupAndRestore = _callback("BackupAndRestore", "The same fit, called again after a crash, goes on.", {
    "backup_dir": None, "save_freq": 0, "double_checkpoint": None, "delete_checkpoint": True})
TensorBoard = _callback("TensorBoard", "Event files for TensorBoard.", {
    "log_dir": "logs", "histogram_freq": 0, "write_graph": True, "write_images": None, "write_steps_per_second": False,
    "update_freq": 0, "profile_batch": None, "embeddings_freq": None, "embeddings_metadata": None})


class LearningRateScheduler(_OfEngine):
    """schedule(epoch, rate) gives the rate of the epoch."""
    _engine_name = "LearningRateScheduler"

    def __init__(self, schedule, verbose=0):
        import inspect
        takes_rate = len(inspect.signature(schedule).parameters) > 1
        super().__init__(schedule=lambda epoch, rate: float(schedule(epoch, rate) if takes_rate else schedule(epoch)),
                         verbose=verbose)


class LambdaCallback(Callback):
    """Functions for some of the moments."""

    def __init__(self, on_epoch_begin=None, on_epoch_end=None, on_train_begin=None, on_train_end=None,
                 on_train_batch_begin=None, on_train_batch_end=None, **kwargs):
        super().__init__()
        given = dict(on_epoch_begin=on_epoch_begin, on_epoch_end=on_epoch_end, on_train_begin=on_train_begin,
                     on_train_end=on_train_end, on_train_batch_begin=on_train_batch_begin,
                     on_train_batch_end=on_train_batch_end, **kwargs)
        self._given = {name: function for name, function in given.items() if function is not None}
        self.__dict__.update(self._given)

    @property
    def _hears_of_batches(self):
        return any("batch" in name for name in self._given)

    @property
    def _wants_batch_logs(self):
        return any("batch_end" in name for name in self._given)


class History(Callback):
    """What fit returns: the values of every epoch by name."""

    def __init__(self, epoch=None, history=None, params=None, model=None):
        super().__init__()
        self.epoch, self.history, self.params = epoch or [], history or {}, params or {}
        self.set_model(model)

    def on_train_begin(self, logs=None):
        self.epoch, self.history = [], {}

    def on_epoch_end(self, epoch, logs=None):
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)


class ProgbarLogger(Callback):
    """fit shows its progress itself (verbose)."""


class SwapEMAWeights(Callback):
    """Evaluates, and ends training, with the averages of the weights that an optimizer with use_ema=True keeps: they are exchanged
    before validation (or at the end of every epoch, swap_on_epoch) and put back behind it."""

    def __init__(self, swap_on_epoch=False):
        super().__init__()
        self.swap_on_epoch = bool(swap_on_epoch)
        self._weights = None

    def _averages(self):
        optimizer = self.model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if not getattr(inner, "use_ema", False):
            raise ValueError("SwapEMAWeights: the optimizer keeps no averages of the weights; make it with use_ema=True")
        return inner

    def _swap(self):
        optimizer = self._averages()
        if self._weights is None and self.model.weights:
            self._weights = self.model.get_weights()
            optimizer.finalize_variable_values(self.model.trainable_variables)

    def _put_back(self):
        if self._weights is not None:
            self.model.set_weights(self._weights)
            self._weights = None

    def on_train_begin(self, logs=None):
        self._averages()

    def on_epoch_begin(self, epoch, logs=None):
        if self.swap_on_epoch:
            self._put_back()

    def on_epoch_end(self, epoch, logs=None):
        if self.swap_on_epoch:
            self._swap()

    def on_test_begin(self, logs=None):
        if not self.swap_on_epoch:
            self._swap()

    def on_test_end(self, logs=None):
        if not self.swap_on_epoch:
            self._put_back()

    on_predict_begin, on_predict_end = on_test_begin, on_test_end


class RemoteMonitor(Callback):
    """Sends the logs of every epoch to a server, by POST; needs the package requests."""

    def __init__(self, root="http://localhost:9000", path="/publish/epoch/end/", field="data", headers=None, send_as_json=False):
        super().__init__()
        self.root, self.path, self.field, self.headers, self.send_as_json = root, path, field, headers, send_as_json

    def on_epoch_end(self, epoch, logs=None):
        try:
            import requests
        except ImportError:
            raise ImportError("RemoteMonitor: needs the package requests") from None
        send = {"epoch": epoch, **{name: np.asarray(value).item() if np.size(value) == 1 else np.asarray(value).tolist()
                                   for name, value in (logs or {}).items()}}
        data = {"json": send} if self.send_as_json else {"data": {self.field: json.dumps(send)}}
        try:
            requests.post(self.root + self.path, headers=self.headers, **data)
        except requests.exceptions.RequestException:
            warnings.warn(f"RemoteMonitor: no answer from {self.root}", stacklevel=2)


class CallbackList(Callback):
    """Several callbacks as one, for training loops of one's own: what it is told, all of them are told."""

    def __init__(self, callbacks=None, add_history=False, add_progbar=False, model=None, **params):
        super().__init__()
        self.callbacks = list(callbacks or ())
        if add_history and not any(isinstance(callback, History) for callback in self.callbacks):
            self.callbacks.append(History())
        if model is not None:
            self.set_model(model)
        if params:
            self.set_params(params)

    def append(self, callback):
        self.callbacks.append(callback)

    def set_model(self, model):
        super().set_model(model)
        for callback in self.callbacks:
            callback.set_model(model)

    def set_params(self, params):
        super().set_params(params)
        for callback in self.callbacks:
            callback.set_params(params)

    def __len__(self):
        return len(self.callbacks)

    def __iter__(self):
        return iter(self.callbacks)


def _to_all(moment):
    def tell(self, *args, **kwargs):
        for callback in self.callbacks:
            getattr(callback, moment)(*args, **kwargs)
    tell.__name__ = moment
    return tell


for _moment in _MOMENTS + ("on_batch_begin", "on_batch_end"):
    setattr(CallbackList, _moment, _to_all(_moment))
