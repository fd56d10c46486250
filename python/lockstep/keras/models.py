"""keras.models: layers that can be trained."""

import json
import os
import tempfile
import weakref

import numpy as np

from .. import _lockstep, data, distribute, dtypes, nest
from .._lockstep import KerasTensor
from ..function import GradientTape
from ..tensor import convert_to_tensor, lending
from . import callbacks as callbacks_module
from . import losses as losses_module
from . import metrics as metrics_module
from . import optimizers as optimizers_module
from . import _text_files, saving
from ._cloning import cloned
from ._keras_tensor import Input, mark_of
from ._lambdas import safe_mode
from ._engine_objects import is_operation, wrapped
from ._layer import Layer, _policy_name
from ._model_data import arrays, by_order, triple, unpack_x_y_sample_weight
from ._model_texts import TakesTexts
from ._python_fit import PythonRun, Validating
from ._shapes import shapes_in
from ._text_stage import input_like


def _engine_metrics(metrics):
    if metrics is None:
        return []
    if isinstance(metrics, dict):
        return {name: [_metric(m) for m in (value if isinstance(value, (list, tuple)) else [value])]
                for name, value in metrics.items()}
    if not isinstance(metrics, (list, tuple)):
        return [_metric(metrics)]
    if any(isinstance(value, (list, tuple)) for value in metrics):
        return [[_metric(m) for m in (value if isinstance(value, (list, tuple)) else [value])] for value in metrics]
    return [_metric(value) for value in metrics]


def _metric(metric):
    return metrics_module.get(metric)._handle


def _of_named_results(loss, loss_weights, metrics, weighted_metrics):
    """Settings by the names of a call()'s results, in the order in which these are taken."""
    named = [value for value in (loss, loss_weights, metrics, weighted_metrics) if isinstance(value, dict)]
    names = sorted({name for value in named for name in value})

    def listed(value, missing):
        return [value.get(name, missing) for name in names] if isinstance(value, dict) else value
    return listed(loss, None), listed(loss_weights, 1.0), listed(metrics, []), listed(weighted_metrics, [])


def _engine_loss(loss):
    if loss is None:
        return None
    if isinstance(loss, dict):
        return {name: _engine_loss(value) for name, value in loss.items()}
    if isinstance(loss, (list, tuple)):
        return [_engine_loss(value) for value in loss]
    return losses_module.as_loss(loss)._handle


_RUN_EAGERLY = 5  # its place among the arguments of the engine's compile()


# --- models --------------------------------------------------------------------------------------------------------------

class Model(TakesTexts, Layer):
    """Layers that can be trained: ``Model(inputs, outputs)``, or a class with a call() of its own."""

    def __init__(self, *args, **kwargs):
        inputs = kwargs.pop("inputs", args[0] if args else None)
        outputs = kwargs.pop("outputs", args[1] if len(args) > 1 else None)
        name, trainable, dtype = kwargs.pop("name", None), kwargs.pop("trainable", True), kwargs.pop("dtype", None)
        kwargs.pop("dynamic", None)
        if kwargs:
            raise TypeError(f"{type(self).__name__}: unknown arguments {', '.join(kwargs)}")
        if inputs is not None and outputs is not None:
            self._take(_lockstep.Model.functional(_ends(inputs), _ends(outputs), name or "", trainable))
            self.__dict__["_output_structure"] = outputs if nest.is_nested(outputs) else None
            self.__dict__["_ends_given"] = (inputs, outputs)
        else:
            saving.make_known(type(self))
            self._take(_lockstep.written_model(self, type(self).__name__, name or "", trainable, _policy_name(dtype)))

    def _take(self, handle):
        super()._take(handle)
        self.__dict__.setdefault("_compiled", None)
        self.__dict__.setdefault("_strategy", distribute.get_strategy() if distribute.has_strategy() else None)

    @property
    def distribute_strategy(self):
        """The strategy in whose scope it was made."""
        return self._strategy or distribute.Strategy()

    # --- putting together ---

    @property
    def layers(self):
        return [layer for layer in self.operations if not is_operation(layer._handle)]

    @property
    def operations(self):
        """The layers, and the ops between them."""
        return [wrapped(handle) for handle in self._handle.layers()]

    def get_layer(self, name=None, index=None):
        """A layer by its name or its number."""
        return wrapped(self._handle.get_layer(name if name is not None else int(index)))

    @property
    def inputs(self):
        return self._handle.inputs()

    @property
    def outputs(self):
        return self._handle.outputs()

    @property
    def input(self):
        inputs = self._handle.inputs()
        return inputs[0] if len(inputs) == 1 else inputs

    @property
    def output(self):
        outputs = self._handle.outputs()
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def input_shape(self):
        return nest.map_structure(lambda tensor: tuple(tensor.shape), self.input)

    @property
    def output_shape(self):
        return nest.map_structure(lambda tensor: tuple(tensor.shape), self.output)

    @property
    def input_names(self):
        return self._handle.input_names()

    @property
    def output_names(self):
        return self._handle.output_names(len(self._handle.outputs()) or 1)

    def summary(self, line_length=None, positions=None, print_fn=None, expand_nested=False, show_trainable=False,
                layer_range=None):
        """Prints the layers."""
        text = self._handle.summary(line_length or 0, expand_nested, show_trainable)
        (print_fn or print)(text.rstrip("\n"))

    # --- training ---

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None, weighted_metrics=None, run_eagerly=False,
                steps_per_execution=1, jit_compile="auto", auto_scale_loss=True, **kwargs):
        """Says how to train."""
        if kwargs:
            raise TypeError(f"compile: unknown arguments {', '.join(kwargs)}")
        optimizer = optimizers_module.get(optimizer)
        if self._is_written:
            loss, loss_weights, metrics, weighted_metrics = _of_named_results(loss, loss_weights, metrics, weighted_metrics)
        steps = int(steps_per_execution) if steps_per_execution not in (None, "auto") else 1
        self.__dict__["_compiled"] = {"optimizer": optimizer, "loss": loss, "metrics": metrics, "loss_weights": loss_weights,
                                      "weighted_metrics": weighted_metrics, "run_eagerly": bool(run_eagerly)}
        self.__dict__["_python_steps"] = {}
        self.__dict__.pop("_metric_objects", None)
        engine = optimizers_module.get("rmsprop") if optimizer is None else optimizer  # without one it is evaluated, not trained
        settings = (engine._handle, _engine_loss(loss), loss_weights, _engine_metrics(metrics), _engine_metrics(weighted_metrics), bool(run_eagerly),
                    steps, bool(auto_scale_loss))
        self._handle.compile(*settings)
        self.__dict__["_compile_settings"] = settings

    @property
    def compiled(self):
        """Whether compile() was called, here or before the model was saved."""
        return self._compiled is not None or self._handle.compiled

    @property
    def optimizer(self):
        if self._compiled is None:
            if not self._handle.compiled:
                return None
            return optimizers_module.wrapped(self._handle.optimizer())
        return self._compiled["optimizer"]

    @property
    def run_eagerly(self):
        """Whether steps run op by op; set by compile(), or by this attribute afterwards."""
        return bool(self._compiled and self._compiled["run_eagerly"])

    @run_eagerly.setter
    def run_eagerly(self, value):
        if self._compiled is None:
            raise RuntimeError("run_eagerly: compile() the model first; it takes run_eagerly, too")
        self._compiled["run_eagerly"] = bool(value)
        self.__dict__["_python_steps"] = {}
        if "_compile_settings" not in self.__dict__:  # compiled by a file
            self._compile_stage(self._handle.compile_config())
        settings = list(self._compile_settings)
        settings[_RUN_EAGERLY] = bool(value)
        self.__dict__["_compile_settings"] = tuple(settings)
        self._handle.compile(*settings)

    @property
    def loss(self):
        return self._compiled and self._compiled["loss"]

    @property
    def metrics(self):
        if self._has_own_step("train_step") and self._compiled is not None:  # the engine's fit, which has others, is not called
            return [self._step_loss(), *self._step_metrics(), *super().metrics]
        return [metrics_module.wrapped(handle) for handle in self._engine.metrics()]

    @property
    def metrics_names(self):
        return ["loss"] + [metric.name for metric in self.metrics if metric.name != "loss"]

    @property
    def stop_training(self):
        return self._engine.training_stopped()

    @stop_training.setter
    def stop_training(self, value):
        self._engine.stop_training(bool(value))

    def fit(self, x=None, y=None, batch_size=None, epochs=1, verbose="auto", callbacks=None, validation_split=0.0,
            validation_data=None, shuffle=True, class_weight=None, sample_weight=None, initial_epoch=0, steps_per_epoch=None,
            validation_steps=None, validation_batch_size=None, validation_freq=1, max_queue_size=None, workers=None,
            use_multiprocessing=None):
        """Trains for so many passes over the data; returns a History."""
        verbose = 1 if verbose == "auto" else int(verbose)
        if self._compiled is not None and self._compiled["optimizer"] is None:
            raise ValueError("fit: the model was compiled without an optimizer")
        settings = {
            "batch_size": batch_size, "epochs": int(epochs), "verbose": verbose, "callbacks": [],
            "validation_split": float(validation_split or 0), "shuffle": bool(shuffle),
            "class_weight": None if class_weight is None else {int(k): float(v) for k, v in class_weight.items()},
            "initial_epoch": int(initial_epoch), "steps_per_epoch": steps_per_epoch, "validation_steps": validation_steps,
            "validation_batch_size": validation_batch_size, "validation_freq": validation_freq}

        def train(loan):
            given, validation, validated = self._staged(x, y, sample_weight), None, None
            if validation_data is not None:
                validation = self._staged(*(unpack_x_y_sample_weight(validation_data) if isinstance(validation_data, (tuple, list))
                                            else (validation_data,)))
            if self._has_own_step("train_step"):
                return PythonRun(self, loan, _listed(callbacks), verbose, int(epochs)).fit(given, validation, settings)
            told = _told(self, callbacks)
            if self._has_own_step("test_step") and (validation is not None or settings["validation_split"]):
                run = PythonRun(self, loan, _listed(callbacks), verbose, int(epochs))
                given, told = run.validate_on(given, validation, settings), [*told, Validating(run)._handle]
                settings["validation_split"] = 0.0
            elif validation is not None:
                validated = triple(self, loan, *validation)
            given = triple(self, loan, *given)
            return self._engine.fit(given, {**settings, "callbacks": told, "validation_data": validated})
        epoch, values = lending(train)
        history = callbacks_module.History(epoch, values, {"epochs": int(epochs), "verbose": verbose,
                                                           "steps": steps_per_epoch}, self)
        self.__dict__["history"] = history
        return history

    def evaluate(self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, steps=None, callbacks=None,
                 return_dict=False, **kwargs):
        """Loss and metrics over the data."""
        verbose = 1 if verbose == "auto" else int(verbose)

        def test(loan):
            given = self._staged(x, y, sample_weight)
            if self._has_own_step("test_step"):
                return PythonRun(self, loan, _listed(callbacks), verbose).evaluate(given, batch_size, steps)
            given = triple(self, loan, *given)
            return self._engine.evaluate(given, batch_size or 32, verbose, -1 if steps is None else steps, _told(self, callbacks))
        logs = lending(test)
        return logs if return_dict else self._values(logs)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None, **kwargs):
        """The results for all examples, as arrays of NumPy's."""
        verbose = 1 if verbose == "auto" else int(verbose)

        def compute(loan):
            given = self._staged(x)
            if self._has_own_step("predict_step"):
                return PythonRun(self, loan, _listed(callbacks), verbose).predict(given, batch_size, steps)
            given = triple(self, loan, *given)
            results = self._engine.predict(given, batch_size or 32, verbose, -1 if steps is None else steps, _told(self, callbacks))
            return self._packed([result.numpy() for result in results])
        return lending(compute)

    def _values(self, logs):
        """As Keras lists them: the loss first, and the metrics in their order."""
        order = self.metrics_names
        values = [logs[name] for name in (order if set(order) == set(logs) else sorted(logs, key=lambda name: name != "loss"))]
        return values[0] if len(values) == 1 else values

    def _packed(self, results):
        structure = self.__dict__.get("_output_structure", self.__dict__.get("_structure_of_results"))
        if structure is not None and len(nest.flatten(structure)) == len(results):
            return nest.pack_sequence_as(structure, results)
        return results[0] if len(results) == 1 else results

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False, **kwargs):
        """One step on one batch."""
        def train(loan):
            given = self._staged(x, y, sample_weight)
            if self._has_own_step("train_step"):
                return PythonRun(self, loan).on_batch("train", given, class_weight)
            return self._engine.train_on_batch(self._in_order(loan, *given), class_weight)
        logs = lending(train)
        return logs if return_dict else self._values(logs)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False, **kwargs):
        """Loss and metrics of one batch."""
        def test(loan):
            given = self._staged(x, y, sample_weight)
            if self._has_own_step("test_step"):
                return PythonRun(self, loan).on_batch("test", given)
            return self._engine.test_on_batch(self._in_order(loan, *given))
        logs = lending(test)
        return logs if return_dict else self._values(logs)

    def predict_on_batch(self, x):
        """The results of one batch."""
        def compute(loan):
            given = self._staged(x)
            if self._has_own_step("predict_step"):
                return PythonRun(self, loan).on_batch("predict", given)
            results = self._engine.predict_on_batch(self._in_order(loan, *given)[0])
            return self._packed([result.numpy() for result in results])
        return lending(compute)

    def _names_of_results(self, count):
        """What the results are called, where call() gives a dictionary; None: it does not."""
        names = sorted(self.__dict__.get("_structure_of_results") or ())
        return names if len(names) == count else None

    # --- data by name for a call() of one's own: the engine takes lists ---

    def _taken(self, x):
        """The inputs in a list; call() is given them as they were."""
        if isinstance(x, dict):
            self.__dict__["_structure_of_inputs"] = {name: None for name in x}
            # A column of pandas' is one number of every example, as Keras has it; an array of one dimension is left as it is.
            return [np.expand_dims(part.to_numpy(), -1) if hasattr(part, "to_numpy") and len(part.shape) == 1 else part for part in by_order(x)]
        return x

    def _in_order_of_call(self, dataset):
        """A dataset whose elements have no dictionaries."""
        spec = data.Dataset(dataset).element_spec
        parts = spec if isinstance(spec, tuple) else (spec,)
        if not any(isinstance(part, dict) for part in parts):
            return dataset
        self._taken(parts[0])

        def listed(*element):
            whole = element if isinstance(spec, tuple) else element[0]
            named = whole if isinstance(whole, tuple) else (whole,)
            made = tuple(tuple(by_order(part)) if isinstance(part, dict) and len(part) > 1 else by_order(part)[0] if isinstance(part, dict) else part
                         for part in named)
            return made if isinstance(spec, tuple) else made[0]
        return data.Dataset(dataset).map(listed)._handle

    def _in_order(self, loan, x, y, sample_weight):
        """The arrays of a batch, those by name in the order of inputs and outputs."""
        if self._is_written:
            x, y, sample_weight = self._taken(x), by_order(y), by_order(sample_weight)
        x, y, sample_weight = (arrays(part, loan) for part in (x, y, sample_weight))
        inputs, outputs = self._engine.input_names(), self.output_names
        x = [x[name] for name in inputs if name in x] if isinstance(x, dict) else x
        return (x, *([part.get(name) for name in outputs] if isinstance(part, dict) else part for part in (y, sample_weight)))

    # --- steps that are written in Python ---

    def _has_own_step(self, name):
        """Whether a class of Python has put something in the place of this step, or of what it is made of."""
        parts = (name,) if name == "predict_step" else (name, "compute_loss", "compute_metrics")
        return any(getattr(type(self), part) is not getattr(Model, part) for part in parts)

    def train_step(self, data):
        """One training step: what a class of your own may define."""
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        with GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight)
            scaled = self.optimizer.scale_loss(loss)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights))
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def test_step(self, data):
        """One step of evaluation."""
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        self.compute_loss(x, y, y_pred, sample_weight)
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_step(self, data):
        x, _, _ = unpack_x_y_sample_weight(data)
        return self(x, training=False)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The compiled loss, and what layers add to it."""
        total = losses_module.as_loss(self._compiled["loss"])(y, y_pred, sample_weight) if self._compiled["loss"] else None
        for extra in self._handle.losses():
            total = extra if total is None else total + extra
        if total is not None:  # what the replicas have are shares of it
            batch = next((leaf for leaf in nest.flatten((y_pred, y, x)) if leaf is not None and len(leaf.shape)), None)
            self._step_loss().update_state(_lockstep.all_reduce("SUM", total),
                                           sample_weight=None if batch is None else _lockstep.global_batch_size(batch))
        return total

    def _metrics_of_steps(self):
        """What steps that are written in Python count with."""
        if type(self).metrics is not Model.metrics:
            return list(self.metrics)
        found = [metric for metric in vars(self).values() if isinstance(metric, metrics_module.Metric)]
        return found + [self._step_loss()] + (self._step_metrics() if self._compiled else [])

    def _step_loss(self):
        tracker = self.__dict__.get("_loss_tracker")
        if tracker is None:
            tracker = self.__dict__["_loss_tracker"] = metrics_module.Mean(name="loss")
        return tracker

    def _step_metrics(self):
        made = self.__dict__.get("_metric_objects")
        if made is None:
            kinds = [given if isinstance(given, (list, tuple)) else [given] for given in (self._compiled["metrics"] or [],
                                                                                          self._compiled["weighted_metrics"] or [])]
            made = self.__dict__["_metric_objects"] = [metrics_module.get(metric) for kind in kinds for metric in kind]
            self.__dict__["_first_weighted"] = len(kinds[0])
        return made

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Updates the compiled metrics and returns their values by name."""
        for number, metric in enumerate(self._step_metrics()):
            metric.update_state(y, y_pred, sample_weight=sample_weight if number >= self._first_weighted else None)
        return self.get_metrics_result()

    def get_metrics_result(self):
        return {metric.name: metric.result() for metric in [self._step_loss()] + self._step_metrics()}

    @property
    def compiled_loss(self):
        loss = losses_module.as_loss(self._compiled["loss"])

        def total(y, y_pred, sample_weight=None, regularization_losses=None):
            value = loss(y, y_pred, sample_weight)
            for penalty in regularization_losses or ():
                value = value + _lockstep.ops.scale_regularization_loss(penalty)
            return value
        return total

    def reset_metrics(self):
        for metric in self.metrics:
            metric.reset_state()

    # --- files ---

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """Saves the whole model in a file that ends in .keras, or in .h5: Keras loads it, and so does keras.models.load_model()."""
        saving.save_model(self, filepath, overwrite, zipped, **kwargs)

    def save_weights(self, filepath, overwrite=True, max_shard_size=None, **kwargs):
        """Weights: .weights.h5 as Keras 3 writes them, any other name as safetensors by path names."""
        saving.save_weights(self, filepath, overwrite, max_shard_size, **kwargs)

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        """Puts them back: whatever save_weights(), save(), Keras, TensorFlow or Hugging Face wrote."""
        saving.load_weights(self, filepath, skip_mismatch, **kwargs)

    def __reduce__(self):
        if not self.built:
            return super().__reduce__()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            self.save(path)
            with open(path, "rb") as file:
                return _unpickled, (file.read(),)

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs):
        """Writes what the model computes outside of training as an ONNX file: export(path, format="onnx")."""
        path = os.fspath(filepath)
        if format != "onnx":
            raise NotImplementedError(f"export: there is no {format!r} here; format=\"onnx\" writes ONNX, model.save() a .keras file")
        self._engine.export_onnx(path)

    def to_json(self, indent=None, **kwargs):
        """Keras' JSON of the model."""
        text = self._handle.to_json(-1 if indent is None else indent)
        return text if self._stage is None else _text_files.with_texts(text.encode(), _text_files.places_of_texts(self)).decode()

    # --- all that training changes, by name ---

    def get_state_tree(self, value_format="backend_tensor"):
        """Weights, the optimizer's state and metrics in dictionaries by the parts of their paths; value_format "numpy_array" copies them."""
        if value_format not in ("backend_tensor", "numpy_array"):
            raise ValueError(f"get_state_tree: value_format is backend_tensor or numpy_array, received {value_format!r}")
        return {kind: _by_path(variables, value_format == "numpy_array") for kind, variables in self._states().items()}

    def set_state_tree(self, state_tree):
        """Puts back what get_state_tree() gave, or a part of it."""
        states = self._states()
        for kind, tree in state_tree.items():
            if kind not in states:
                raise ValueError(f"set_state_tree: there is no {kind!r}; there are {', '.join(states)}")
            by_path = {variable.path: variable for variable in states[kind]}
            for path, value in _with_paths(tree):
                if path not in by_path:
                    raise ValueError(f"set_state_tree: {kind} has no {path!r}")
                by_path[path].assign(value)

    def _states(self):
        return {"trainable_variables": self.trainable_variables, "non_trainable_variables": self.non_trainable_variables,
                "optimizer_variables": list(self.optimizer.variables) if self.optimizer is not None else [],
                "metrics_variables": self.metrics_variables}

    def get_compile_config(self):
        """What it was compiled with, as files hold it."""
        return self._handle.compile_config()

    def compile_from_config(self, config):
        """compile() of what get_compile_config() wrote."""
        self._handle.compile_from_config(saving.serialize_keras_object(config))
        self._take_compiled()

    def _compile_config_for_engine(self):
        own = type(self).get_compile_config is not Model.get_compile_config and self.compiled
        return saving.serialize_keras_object(self.get_compile_config()) if own else None

    def _compile_of_file(self, config):
        own = type(self).compile_from_config is not Model.compile_from_config
        if own:
            self.compile_from_config(config)
        return own

    def get_config(self):
        if self._is_written:
            return super().get_config()
        return json.loads(self.to_json())["config"]

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The model of a get_config()."""
        if "layers" not in config:
            return super().from_config(config, custom_objects)
        made = saving.model_from_config({"module": "keras", "config": config, "registered_name": None,
                                         "class_name": "Functional" if "input_layers" in config else "Sequential"}, custom_objects)
        if cls not in (Model, Sequential):  # a class of one's own that is made of layers, not of arguments
            made.__class__ = cls
        return made

    def _take_compiled(self):
        """What a file says that it was compiled with."""
        settings = self._handle.compile_config()
        if not settings:
            return
        read = _each_configuration
        self.__dict__["_compiled"] = {
            "optimizer": optimizers_module.wrapped(self._handle.optimizer()),
            "loss": read(losses_module.deserialize, settings.get("loss")),
            "metrics": read(metrics_module.deserialize, settings.get("metrics")),
            "weighted_metrics": read(metrics_module.deserialize, settings.get("weighted_metrics")),
            "loss_weights": settings.get("loss_weights"), "run_eagerly": bool(settings.get("run_eagerly"))}
        self.__dict__["_python_steps"] = {}
        if self._stage is not None:
            self._compile_stage(settings)

    def _compile_stage(self, settings):
        """The engine's part goes on with the optimizer and its state."""
        compiled = self._compiled
        steps = settings.get("steps_per_execution")
        self.__dict__["_compile_settings"] = (
            compiled["optimizer"]._handle, _engine_loss(compiled["loss"]), compiled["loss_weights"], _engine_metrics(compiled["metrics"]),
            _engine_metrics(compiled["weighted_metrics"]), compiled["run_eagerly"], int(steps or 1), bool(settings.get("auto_scale_loss", True)))

    def build(self, input_shape=None):
        """Makes the weights for inputs of these shapes."""
        shapes = shapes_in((input_shape,))
        if self._is_written and getattr(self._local, "building", False):  # by super().build()
            self._built_without_call(shapes)
        else:
            self._handle.build(shapes)

    _engine_build = build

    def _built_without_call(self, shapes):
        """The layers inside make their weights when they are called: once, with zeros; numbers of classes or words are integers."""
        # Of one example: a batch takes as long and as much memory as a step. States that are kept are of the whole batch, and so may be what
        # call() computes.
        if "_call_stage" not in self.__dict__ and len(shapes) == 1 and saving.is_reading() and self._has_layers_of_texts:
            self._built_with_texts(shapes[0])
            return None
        several = [False] if any(getattr(layer, "stateful", False) for layer in self.submodules) else [True, False]
        attempts = [(dtype, one) for one in several for dtype in (self._handle.compute_dtype, dtypes.int32)]
        for dtype, one in attempts:
            zeros = [_lockstep.ops.full([1 if size in (None, -1) or one and place == 0 else size for place, size in enumerate(shape)], 0.0, dtype)
                     for shape in shapes]
            try:
                return self._note_results(self.call(self._as_given(zeros)))
            except (TypeError, ValueError):
                if (dtype, one) == attempts[-1]:
                    raise


def _unpickled(saved):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(saved)
        return saving.load_model(path, safe_mode=False)  # who unpickles trusts


def _each_configuration(read, value):
    """Losses or metrics of a file: one, or a list or dictionary of them."""
    if isinstance(value, list):
        return [_each_configuration(read, part) for part in value]
    if isinstance(value, dict) and "class_name" not in value:
        return {name: _each_configuration(read, part) for name, part in value.items()}
    return None if value is None else read(value)


def _ends(ends):
    """Inputs or outputs: a list, or a dictionary."""
    if isinstance(ends, KerasTensor):
        return [ends]
    if isinstance(ends, dict) and not any(nest.is_nested(part) for part in ends.values()):
        return ends
    return nest.flatten(ends)


def _by_path(variables, as_arrays):
    """{"dense": {"kernel": value}} of variables by the parts of their paths."""
    tree, seen = {}, set()
    for variable in variables:
        if variable.path in seen:
            raise ValueError(f"get_state_tree: two variables have the path {variable.path!r}; give their layers names")
        seen.add(variable.path)
        *folders, name = variable.path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = variable.numpy() if as_arrays else convert_to_tensor(variable)
    return tree


def _with_paths(tree, path=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _with_paths(value, f"{path}{name}/")
        else:
            yield path + name, value


def _listed(callbacks):
    return [] if callbacks is None else callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]


def _told(model, callbacks):
    for callback in _listed(callbacks):
        callback.set_model(model)
    return [callback._handle for callback in _listed(callbacks)]


class Sequential(Model):
    """Layers one after the other."""

    def __init__(self, layers=None, trainable=True, name=None):
        self._take(_lockstep.Sequential(name or "", trainable))
        for layer in layers or ():
            self.add(layer)

    def _take(self, handle):
        super()._take(handle)
        # The objects of its layers live as long as it does.
        self.__dict__.update(_begun=bool(handle.layers()), _objects=[])

    _begun_by_input = False

    def add(self, layer, rebuild=True):
        """One more."""
        if mark_of(given := getattr(layer, "__dict__", {}).get("_tensor")) is not None:  # an InputLayer of texts
            layer = given
        if isinstance(layer, KerasTensor):
            self.__dict__.update(_begun=True, _begun_by_input=True, _mark_of_input=mark_of(layer))
            self._handle.add_input(layer)
            return
        if not isinstance(layer, Layer):
            getattr(layer, "_handle", None)  # layers of texts say where they belong
            raise ValueError(f"Sequential: takes layers and an Input, received {layer!r}")
        if not self._begun and layer._input_shape_given is not None:
            self._handle.add_input(Input(layer._input_shape_given))
        elif not self._begun and isinstance(layer, Model) and any(mark_of(value) is not None for value in layer.inputs):
            self.add(Input(batch_shape=tuple(layer.input.shape), dtype="string"))
        self.__dict__["_begun"] = True
        self.__dict__.pop("_text_stage", None)
        self._handle.add(layer._handle)
        layer.__dict__.setdefault("_sequential", weakref.ref(self))
        self._objects.append(layer)

    def _call_layers(self):
        """Calls the layers one by one, so that each has an input and an output that models can be made of; the last one's are this model's."""
        layers = self.layers
        if self.__dict__.get("_called_layers") != layers:
            value = self.input
            for layer in layers:
                value = layer(value)
            self.__dict__.update(_called_layers=layers, _last_output=value)
        return self._last_output

    @property
    def output(self):
        return self._call_layers() if self._handle.inputs() and self.layers else super().output

    @property
    def outputs(self):
        return nest.flatten(self._call_layers()) if self._handle.inputs() and self.layers else super().outputs

    def pop(self, rebuild=True):
        """Takes the last one away."""
        self._handle.pop()
        self.__dict__.pop("_text_stage", None)

    def _begins_on_host(self):
        layers = self.layers
        return bool(layers) and not self._handle.inputs() and (layers[0]._on_host or isinstance(layers[0], Sequential) and layers[0]._begins_on_host())

    def _begin_with(self, x):
        """A layer of texts that stands first without an Input: the data says what the input is like."""
        if self.__dict__.get("_text_stage", self) is not self or not self._begins_on_host():
            return
        layers, like = self.layers, input_like(x)
        if isinstance(layers[0], Sequential):
            layers[0]._begin_with(like)
        for _ in layers:
            self._handle.pop()
        self.__dict__.update(_begun_by_input=True, _mark_of_input=mark_of(like))
        self._handle.add_input(like)
        for layer in layers:
            self._handle.add(layer._handle)

    def __len__(self):
        return len(self._handle.layers())


Functional = Model


load_model, save_model = saving.load_model, saving.save_model
model_from_json, model_from_config = saving.model_from_json, saving.model_from_config


def clone_model(model, input_tensors=None, clone_function=None, call_function=None, recursive=False, **kwargs):
    """The same layers with weights of their own, made anew; not compiled."""
    if input_tensors is not None or clone_function is not None or call_function is not None:
        return cloned(model, Sequential, input_tensors, clone_function, call_function, recursive)
    if not model._is_written and model._stage is not None:
        with safe_mode(False):
            return model_from_config({**json.loads(model.to_json()), "compile_config": None})
    with saving._kept_by() as kept, safe_mode(False):
        made = wrapped(model._handle.clone())
        made.__dict__["_made_with"] = kept
    return made
