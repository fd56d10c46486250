"""keras.callbacks: code that fit, evaluate and predict call at set moments."""

import os

from .. import _lockstep

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
    """A callback of the engine. A class that is derived from it is told as well."""

    def __init__(self, **settings):
        super().__init__()
        self._engine = _lockstep.Callback.of_engine(type(self)._engine_name, settings)
        self.__dict__.update({key: value for key, value in settings.items() if key != "schedule"})

    @property
    def _handle(self):
        return self._engine


def _callback(name, doc, defaults):
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
            elif settings.get(key) == "batch":
                settings[key] = 1
        _OfEngine.__init__(self, **{key: value for key, value in settings.items() if value is not None})
    return type(name, (_OfEngine,), {"__init__": __init__, "__doc__": doc, "__module__": __name__, "_engine_name": name})


EarlyStopping = _callback("EarlyStopping", "Ends training once a value has stopped getting better.", {
    "monitor": "val_loss", "min_delta": 0.0, "patience": 0, "verbose": 0, "mode": "auto", "baseline": None,
    "restore_best_weights": False, "start_from_epoch": 0})
ModelCheckpoint = _callback("ModelCheckpoint", "Saves weights, in safetensors files.", {
    "filepath": None, "monitor": "val_loss", "verbose": 0, "save_best_only": False, "save_weights_only": False,
    "mode": "auto", "save_freq": 0, "initial_value_threshold": None})
ReduceLROnPlateau = _callback("ReduceLROnPlateau", "Reduces the rate where a value no longer gets better.", {
    "monitor": "val_loss", "factor": 0.1, "patience": 10, "verbose": 0, "mode": "auto", "min_delta": 1e-4, "cooldown": 0,
    "min_lr": 0.0})
CSVLogger = _callback("CSVLogger", "One line per epoch.", {"filename": None, "separator": ",", "append": False})
TerminateOnNaN = _callback("TerminateOnNaN", "Stops where the loss is no number.", {})
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


class ProgbarLogger(Callback):
    """fit shows its progress itself (verbose)."""


class CallbackList:
    def __init__(self, *_, **__):
        raise NotImplementedError("CallbackList: fit holds the callbacks itself")
