"""What models do where their data has texts, of which numbers are made before the engine sees it."""

import warnings

import numpy as np

from .. import nest
from .._lockstep import KerasTensor
from .._texts import TextDataset, Texts, is_text
from ..tensor import convert_to_tensor, is_tensor
from ._keras_tensor import mark_of
from ._text_stage import CallStage, TextsToCome, first_of, holds_texts, numbers_of, stage_of


class TakesTexts:
    """The part of a Model that stands between the data and the engine's model that runs."""

    @property
    def _stage(self):
        """What makes numbers of its texts; None: it takes numbers alone."""
        stage = self.__dict__.get("_text_stage", self)
        if stage is not self:
            return stage
        stage = None if self._is_written else stage_of(self)
        if self._is_written or self._handle.inputs():  # a Sequential may not have begun
            self.__dict__["_text_stage"] = stage
        return stage

    @property
    def _engine(self):
        """The engine's model that runs: of a model of texts, the part behind its layers of texts."""
        stage = self._stage
        if stage is None:
            return self._handle
        settings = self.__dict__.get("_compile_settings")
        if settings is not None and stage.compiled_with is not settings:
            stage.handle.compile(*settings)
            stage.compiled_with = settings
        return stage.handle

    @property
    def _has_layers_of_texts(self):
        """Whether there are any inside, at whatever depth. Once the model is built that does not change, and every batch asks."""
        known = self.__dict__.get("_texts_inside")
        if known is None:
            known = any(layer._on_host for layer in self.submodules)
            if self.built:
                self.__dict__["_texts_inside"] = known
        return known

    def _of_stage(self, x):
        """Data as the engine's part takes it."""
        self._begin_with(x)
        if self._is_written and self._has_layers_of_texts:
            first, x = first_of(x)
            return self._stage_of_call(first).of(x) if holds_texts(first) else x
        stage = self._stage
        return self._without_other_texts(x) if stage is None or x is None else stage.of(x)

    def _without_other_texts(self, x):
        """The data without string columns that are no input of the model."""
        of_rows = isinstance(x, TextDataset)
        columns = first_of(x)[0] if of_rows else x
        if self._is_written or not isinstance(columns, dict) or not set(self.input_names) <= set(columns):
            return x
        others = [name for name in columns if name not in self.input_names and is_text(columns[name])]
        if not others:
            return x
        warnings.warn(f'the data has string columns, {", ".join(map(repr, others))}, which are no inputs of model "{self.name}": they are not used',
                      stacklevel=5)  # the line that calls fit or one of its kin

        def kept(row):
            return {name: column for name, column in row.items() if name not in others}
        return x.map(lambda row, *rest: (kept(row), *rest) if rest else kept(row)) if of_rows else kept(x)

    def _staged(self, x, y=None, sample_weight=None):
        """The same of all that fit, evaluate, predict and their kin are given. It is done once, before anything else looks at the data: numbers
        can be cut in two or be lent."""
        return self._of_stage(x), y, sample_weight

    def _step_on_staged(self, step):
        """A step that is written in Python and calls the model with what the stage made of the data."""
        if self._stage is None and "_call_stage" not in self.__dict__:
            return step

        def on_staged(batch):
            before, self.__dict__["_is_staged"] = self.__dict__.get("_is_staged", False), True
            try:
                return step(batch)
            finally:
                self.__dict__["_is_staged"] = before
        return on_staged

    def _begin_with(self, x):
        """Hears of the first data."""

    def _stage_of_call(self, x):
        """What applies the layers of texts of call() to the data; x is the first of that."""
        stage = self.__dict__.get("_call_stage")
        if stage is None:
            stage = self.__dict__["_call_stage"] = CallStage(self, x)
            try:
                stage.look(self)
            except BaseException:
                del self.__dict__["_call_stage"]
                raise
        return stage

    def _as_given(self, inputs):
        stage = self.__dict__.get("_call_stage")
        return super()._as_given(inputs) if stage is None else stage.given(inputs)

    def _call_on_texts(self, x, training=None):
        """Of a model with a call() of its own."""
        numbers = nest.flatten(x) if self.__dict__.get("_is_staged") and not holds_texts(x) else self._stage_of_call(x).of_arrays(x)
        options = {} if training is None else {"training": bool(training)}
        return self._unpacked(self._handle.apply([convert_to_tensor(number) for number in numbers], options))

    def _call_with(self, args, kwargs):
        stage = self.__dict__.get("_text_stage", self)
        if stage is self:
            if args:
                self._begin_with(args[0])
            stage = self._stage
        if stage is None:
            if args and ("_call_stage" in self.__dict__ or not is_tensor(args[0]) and self._is_written and holds_texts(args[0])):
                return self._call_on_texts(*args, **kwargs)
            return super()._call_with(args, kwargs)
        kwargs = dict(kwargs)
        x = args[0] if args else kwargs.pop("inputs")
        if any(isinstance(leaf, KerasTensor) for leaf in nest.flatten(x)):
            return super()._call_with((x, *args[1:]), kwargs)
        to_come = [leaf for leaf in nest.flatten(x) if isinstance(leaf, TextsToCome)]
        if to_come:  # in the call() of a model around this one
            made = numbers_of(lambda *texts: self._fed(nest.pack_sequence_as(x, texts)), to_come)
            return self._apply(stage.handle, (made if len(made) > 1 else made[0], *args[1:]), kwargs)
        made = x if self.__dict__.get("_is_staged") and stage.is_given_numbers(x) else stage.of_arrays(x)
        return self._apply(stage.handle, (nest.map_structure(convert_to_tensor, made), *args[1:]), kwargs)

    def _fed(self, x):
        """The inputs of the engine's part, in a list."""
        made = self._stage.of_arrays(x)
        return [convert_to_tensor(value) for value in (made.values() if isinstance(made, dict) else [made])]

    def _refuse_texts(self, values):
        """Each value of a model is one of texts where the input is."""
        if self._is_written:
            super()._refuse_texts(values)
        for value, own in zip(values, self._handle.inputs()):
            texts = mark_of(own) is not None
            if (mark_of(value) is not None) != texts:
                raise TypeError(f'model "{self.name}": its input "{own.name}" takes {"texts" if texts else "numbers"}, and was given "{value.name}" of '
                                f"{value.dtype.name}")

    def _built_with_texts(self, shape):
        """A model of a file that applies layers of texts to its data."""
        stage = self.__dict__["_call_stage"] = CallStage(self, Texts(np.full([2 if size in (None, -1) else size for size in shape], "", object)))
        self._note_results(self.call(stage.given([None])))
        stage.end_of_look()
