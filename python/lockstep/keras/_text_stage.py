"""The text stage of a model: what its layers of texts make of the data, before the engine sees any.

Tensors hold no texts, so the engine has no values of them (decision 0146). A model that takes texts is put together in the engine as it is
written, with numbers that stand for texts: that graph says what its layers, weights, summary, configuration and files are, and is
never run. What runs is a second graph over the same layers, which begins where the layers of texts end: its inputs are their results, and
those inputs of the model that were numbers all along. A Stage makes these inputs of data: at once of arrays, batch by batch of datasets.
"""

import contextlib
import itertools

import numpy as np

from .. import _lockstep, data, nest, ops
from .._lockstep import KerasTensor
from .._texts import TextDataset, Texts, is_text
from ..tensor import TensorShape, convert_to_tensor, is_tensor
from ._cloning import called, calls_of, histories
from ._engine_objects import is_operation
from ._keras_tensor import Input, mark_of


def stage_of(model):
    """The stage of a Sequential or functional model; None: the engine takes its data as it is."""
    inputs = model._handle.inputs()
    if not inputs or not (any(mark_of(value) is not None for value in inputs) or any(_has_stage(layer) for layer in model.operations)):
        return None
    return Stage(model)


def _has_stage(layer):
    return layer._on_host or getattr(layer, "_stage", None) is not None


class Stage:
    """What happens to the data of a model before the engine has it. `handle` is the engine's model of what comes out."""

    def __init__(self, model):
        self._model = model.name
        self._inputs = model._handle.inputs()
        self._names = list(model.input_names)
        self._are_texts = [mark_of(value) is not None for value in self._inputs]
        graph = _Graph(model)
        self._steps, self.places = graph.host_steps(), graph.places
        self.needed = {place for step in self._steps for place in step.given}  # by steps on the host
        self.feeds = graph.feeds  # where the engine's inputs come from
        self.texts = graph.texts
        strategy = model._strategy
        with strategy.scope() if strategy is not None else contextlib.nullcontext():
            self.handle = graph.engine_model()
        self.compiled_with = None

    # --- data ---

    def of(self, x):
        """What the engine's part is given for this x of fit, evaluate or predict: arrays, or a dataset, as x is."""
        return _of_data(self, x)

    def of_element(self, x, *others):
        """The same of an element of a dataset: (x, y, sample_weight), or x alone."""
        made = self.of_arrays(x)
        return (made, *others) if others else made

    def of_arrays(self, x):
        """The same of arrays and lists: one, or several by the names of the engine's inputs."""
        values = self.run(dict(zip(self.places, self._values(x))))
        fed = [values[place] for place in self.feeds]
        return fed[0] if len(fed) == 1 else dict(zip(self.handle.input_names(), fed))

    def run(self, values):
        """The values by their places in the model, and those that are made of them on the host."""
        values = dict(values)
        for step in self._steps:
            step(values)
        return values

    def _values(self, x):
        """The data of the inputs, in their order."""
        if isinstance(x, dict):
            missing = [name for name in self._names if name not in x]
            if missing:
                raise ValueError(f'model "{self._model}" has an input "{missing[0]}", which the data has not: there are {", ".join(map(str, x))}')
            parts = [x[name] for name in self._names]
        elif len(self._names) == 1:
            parts = [x[0] if isinstance(x, (list, tuple)) and len(x) == 1 and getattr(x[0], "shape", ()) else x]
        elif isinstance(x, (list, tuple)) and len(x) == len(self._names):
            parts = x
        else:
            raise ValueError(f'model "{self._model}" takes data for its inputs {", ".join(self._names)}: a list in this order, or a dictionary')
        return [self._value(number, part) for number, part in enumerate(parts)]

    def _value(self, number, part):
        """The data of one input, texts as Texts, with as many dimensions as the input has."""
        part = part.to_numpy() if hasattr(part, "to_numpy") else part
        if self._are_texts[number] != (is_text(part) or isinstance(part, np.ndarray) and part.dtype == object and not part.size):
            wanted, received = ("texts", "numbers") if self._are_texts[number] else ("numbers", "texts")
            fix = "" if self._are_texts[number] else ': make the input with keras.Input(..., dtype="string") and put a layer of texts behind it'
            raise TypeError(f'input "{self._names[number]}" of model "{self._model}" takes {wanted}, and was given {received}{fix}')
        if self._are_texts[number]:
            part = part if isinstance(part, Texts) else Texts(part)
        elif self.places[number] in self.needed:
            part = convert_to_tensor(part)
        else:
            return part
        own = len(self._inputs[number].shape)
        if part.ndim == own - 1:
            return ops.expand_dims(part, -1)
        return ops.squeeze(part, -1) if part.ndim == own + 1 and part.shape[-1] == 1 else part

    def is_given_numbers(self, x):
        """Whether x is data that went through this stage before."""
        return not any(is_text(leaf) for leaf in nest.flatten(x))


def _of_data(stage, x):
    if isinstance(x, (TextDataset, data.Dataset)):
        return x.map(stage.of_element)
    if _is_py_dataset(x):
        return data.Dataset.from_generator(lambda: (stage.of_element(*_parts(x[number])) for number in range(len(x))))
    if hasattr(x, "__next__"):
        return (stage.of_element(*_parts(batch)) for batch in x)
    return stage.of_arrays(x)


def _is_py_dataset(x):
    from .utils import PyDataset
    return isinstance(x, PyDataset)


def input_like(x):
    """An input for data like this."""
    if isinstance(x, (TextDataset, data.Dataset)):
        spec = x.element_spec
        like = spec[0] if isinstance(spec, tuple) else spec
    elif isinstance(x, KerasTensor) or is_tensor(x):
        like = x
    else:
        part = x.to_numpy() if hasattr(x, "to_numpy") else x
        like = Texts(part) if is_text(part) else convert_to_tensor(part)
    return Input(tuple(like.shape)[1:], dtype=like.dtype.name)


def _parts(batch):
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


class _Step:
    """A call that is made on the host: of values in places it makes those in others."""

    def __init__(self, compute, given, makes):
        self.compute, self.given, self.makes = compute, given, makes

    def __call__(self, values):
        values.update(zip(self.makes, self.compute(values)))


class _Graph:
    """The calls of a model, in the order in which they can be made, dealt out to the host and to the engine. A place is what files call
    the history of a value: (layer, number of the call, number of the result)."""

    def __init__(self, model):
        self._model = model
        calls, ends = _calls(model)
        self.places = [(value.name, 0, 0) for value in model._handle.inputs()]
        self._symbols = {}  # place -> value: of the second graph, or one that only says shape and dtype
        self.texts = set()  # places of texts
        self._begins = {}  # place -> input of the second graph
        self._all = {}  # place that a call on the engine makes -> the call, as a step
        self._host = []
        for place, value in zip(self.places, model._handle.inputs()):
            self._begin(place, value, mark_of(value) is not None)
        for layer, node, makes in calls:
            self._take(layer, node, makes)
        self._end(ends)

    # --- dealing out ---

    def _begin(self, place, like, texts=False):
        """A value that the engine's part does not make itself."""
        if texts:
            self.texts.add(place)
            self._symbols[place] = like
            return
        base = place[0] if isinstance(place[2], int) else f"{place[0]}_{like.name}"
        names, name, number = {value.name for value in self._begins.values()}, base, 0
        while name in names:
            name, number = f"{base}_{number + 1}", number + 1
        batch, *sizes = (-1 if size is None else size for size in like.shape)
        self._symbols[place] = self._begins[place] = _lockstep.Input(sizes, batch, like.dtype.name, name)

    def _take(self, layer, node, makes):
        given = histories(node)
        if getattr(layer, "_stage", None) is not None:
            self._take_model(layer, node, given, makes)
            return
        texts = [place for place in given if place in self.texts]
        moves_texts = texts and is_operation(layer._handle)
        if texts and not (layer._on_host or moves_texts):
            layer._refuse_texts([self._symbols[place] for place in texts])
        with _as_it_was(layer):
            results = nest.flatten(called(layer, node, self._symbols))
        places = [(*makes, number) for number in range(len(results))]
        if layer._on_host or moves_texts:
            compute = layer._in_model if layer._on_host else layer.of_texts
            self._host.append(_Step(lambda values: [called(compute, node, values)], given, places))
            for place, result in zip(places, results):
                self._begin(place, result, bool(moves_texts))
            return
        step = _Step(lambda values: nest.flatten(called(layer, node, values)), given, places)
        for place, result in zip(places, results):
            self._symbols[place], self._all[place] = result, step

    def _take_model(self, model, node, given, makes):
        """A model with a stage inside of this one: its stage is a part of this one's, its engine's model a layer of it."""
        stage, passed = model._stage, _by_inputs(model, node)
        inside = dict(zip(stage.places, passed))  # place in the model -> here
        needed = [place for place in stage.places if place in stage.needed]
        makes_inside = [place for place in stage.feeds if place not in inside]
        made_here = {place: (*makes, place) for place in makes_inside}

        def compute(values):
            made = stage.run({place: values[inside[place]] for place in needed})
            return [made[place] for place in makes_inside]
        self._host.append(_Step(compute, [inside[place] for place in needed], list(made_here.values())))
        for place, value in zip(stage.feeds, stage.handle.inputs()):
            if place in made_here:
                self._begin(made_here[place], value)
        feeds = [made_here.get(place) or inside[place] for place in stage.feeds]
        options = {name: value for name, value in node.get("kwargs", {}).items() if name == "training" and value is not None}
        results = stage.handle.apply_symbolic([self._symbols[place] for place in feeds], options)
        places = [(*makes, number) for number in range(len(results))]
        step = _Step(lambda values: stage.handle.apply([values[place] for place in feeds], options), feeds, places)
        for place, result in zip(places, results):
            self._symbols[place], self._all[place] = result, step

    def _end(self, ends):
        for place in histories(ends):
            if place in self.texts:
                raise TypeError(f'model "{self._model.name}": "{place[0]}" is one of texts, and results of models are numbers')
        self._ends = ends
        used, waiting = set(), list(histories(ends))
        while waiting:
            place = waiting.pop()
            if place not in used:
                used.add(place)
                waiting += self._all[place].given if place in self._all else ()
        self.feeds = [place for place in self._begins if place in used]

    # --- what comes of it ---

    def host_steps(self):
        """The calls on the host. What layers of texts are given beside texts may be computed, too: that is done there as well."""
        steps = []

        def add(step):
            for place in step.given:
                if place in self._all and self._all[place] not in steps:
                    add(self._all[place])
            steps.append(step)
        for step in self._host:
            add(step)
        return steps

    def engine_model(self):
        """The second graph as the engine's model, with the results of the first one."""
        symbols, ends = self._symbols, self._ends
        outputs = {name: symbols[tuple(place)] for name, place in ends.items()} if isinstance(ends, dict) else [symbols[place] for place in histories(ends)]
        return _lockstep.Model.functional([self._begins[place] for place in self.feeds], outputs, self._model.name, self._model.trainable)


@contextlib.contextmanager
def _as_it_was(layer):
    """What the layer was called with last by those who wrote the model is what its input and output are."""
    before = layer.__dict__.get("_symbolic")
    try:
        yield
    finally:
        layer.__dict__.pop("_symbolic", None)
        if before is not None:
            layer.__dict__["_symbolic"] = before


def _by_inputs(model, node):
    """The places that a call of a model names, in the order of the model's inputs."""
    given = node["args"][0] if node["args"] else next(iter(node["kwargs"].values()))
    if isinstance(given, dict) and "class_name" not in given:
        return [histories(given[name])[0] for name in model.input_names]
    return histories(given)


def _tensor_in_file(place):
    return {"class_name": "__keras_tensor__", "config": {"keras_history": list(place)}}


def _calls(model):
    """(calls in an order in which they can be made, results) of a model: (layer, arguments as files have them, (name, number of the call))."""
    from .models import Sequential
    if isinstance(model, Sequential):
        calls, place = [], (model._handle.inputs()[0].name, 0, 0)
        for layer in model.operations:
            calls.append((layer, {"args": [_tensor_in_file(place)], "kwargs": {}}, (layer.name, 0)))
            place = (layer.name, 0, 0)
        return calls, [place]
    return calls_of(model)


# --- models with a call() of their own ----------------------------------------------------------------------------------

class CallStage:
    """The same for a call() of one's own that applies layers of texts. The first texts are shown to it, and what it applies to them is noted:
    that is done on the host from then on. The engine's inputs are the numbers that the model is given and, behind them, the results of
    these layers, which call() gets where it asks for them again."""

    def __init__(self, model, x):
        self._name = model.name
        self._like, leaves = _structured(x)
        self._are_texts = [is_text(leaf) for leaf in leaves]
        self._first = [_first_rows(leaf, text) for leaf, text in zip(leaves, self._are_texts)]
        self._calls = self._run = None

    def look(self, model):
        """Calls the model with the first texts, once. It makes its weights, as for other data of these shapes."""
        model._handle.apply([ops.zeros(list(leaf.shape)) if text else leaf for leaf, text in zip(self._first, self._are_texts)], {})
        self.end_of_look()

    def end_of_look(self):
        if not self._run.calls:
            raise TypeError(f'the call() of model "{self._name}" makes no numbers of the texts that it is given: apply a layer of texts to them there, '
                            "such as TextVectorization")
        self._calls = self._run.calls

    def given(self, inputs):
        """What call() is given: texts to come in the place of texts."""
        if self._calls is None:
            self._run, parts = _Run(None), list(inputs)
        else:
            count = self._are_texts.count(False)
            self._run, numbers = _Run(list(inputs[count:]), self._calls), iter(inputs)
            parts = [None if text else next(numbers) for text in self._are_texts]
        for place, text in enumerate(self._are_texts):
            if text:
                parts[place] = TextsToCome(self._run, lambda leaves, place=place: leaves[place], self._first[place])
        return nest.pack_sequence_as(self._like, parts)

    def of(self, x):
        """What the engine's part is given for this x of fit, evaluate or predict: arrays, or a dataset, as x is."""
        return _of_data(self, x)

    def of_element(self, x, *others):
        made = self.of_arrays(x)
        made = made[0] if len(made) == 1 else tuple(made)
        return (made, *others) if others else made

    def of_arrays(self, x):
        """The engine's inputs, in a list."""
        leaves = _structured(x)[1]
        if [is_text(leaf) for leaf in leaves] != self._are_texts:
            raise TypeError(f'model "{self._name}" was given texts and numbers in other places before')
        leaves = [Texts(leaf) if text else leaf for leaf, text in zip(leaves, self._are_texts)]
        return [leaf for leaf, text in zip(leaves, self._are_texts) if not text] + [made for compute, _ in self._calls for made in compute(leaves)]

    def is_given_numbers(self, x):
        """Whether x is data that went through this stage before."""
        return not holds_texts(x)


class _Run:
    """One run of call(). `calls` are what it applied to texts, (function of the data's leaves, how many results), and their results are made
    of the first texts; or these are given, as the engine has them, for calls that were noted before."""

    def __init__(self, given, before=()):
        self.calls, self._given, self._before = [], given, list(before)

    def results(self, compute, texts):
        """compute() of texts to come: a list."""
        takes = [text._take for text in texts]
        if self._given is None:
            made = compute(*(text._sample for text in texts))
        else:
            if len(self.calls) == len(self._before):
                raise TypeError("call() applies other layers of texts than it did the first time: which ones must not depend on the data")
            count = self._before[len(self.calls)][1]
            made, self._given = self._given[:count], self._given[count:]
        self.calls.append((lambda leaves: compute(*(take(leaves) for take in takes)), len(made)))
        return made


class TextsToCome(Texts):
    """Texts of the data as the call() of a model sees them: layers of texts take them, and functions that make texts of texts."""

    def __init__(self, run, take, sample):
        self._run, self._take, self._sample = run, take, sample

    @property
    def _array(self):
        raise TypeError("the texts of a model's data are not known in its call(): layers of texts take them, such as TextVectorization, and functions "
                        "of tf.strings that give texts. What else is to be made of texts is made of the data before, dataset.map(...)")

    @property
    def shape(self):
        return TensorShape([None, *self._sample.shape[1:]])

    ndim = property(lambda self: self._sample.ndim)

    def _derived(self, function):
        """What the function makes of the texts: texts."""
        sample = function(self._sample)
        if not isinstance(sample, Texts):
            return self._array
        return TextsToCome(self._run, lambda leaves: function(self._take(leaves)), sample)

    def _expand_dims(self, axis):
        return self._derived(lambda texts: texts._expand_dims(axis))

    def _reshape(self, shape):
        return self._derived(lambda texts: texts._reshape(shape))

    def _squeeze(self, axes):
        return self._derived(lambda texts: texts._squeeze(axes))

    def __getitem__(self, key):
        return self._derived(lambda texts: texts[key])

    def __repr__(self):
        return f"<texts of the data, shape={self.shape}>"


def numbers_of(compute, texts):
    """What compute() makes of texts to come, a list of tensors."""
    return texts[0]._run.results(compute, texts)


def first_of(x):
    """(the first data of x, x to be read from there) of what may be an iterator."""
    if isinstance(x, TextDataset):
        first = x._first()
    elif hasattr(x, "__next__"):
        first = next(x)
        x = itertools.chain([first], x)
    elif _is_py_dataset(x):
        first = x[0]
    else:
        return x, x
    return (first[0] if isinstance(first, (tuple, list)) else first), x


def holds_texts(x):
    """Whether arrays, in lists and dictionaries, have texts among them."""
    return any(is_text(leaf) for leaf in _structured(x)[1])


def _structured(x):
    """(x with nothing in it, its arrays) of arrays in lists, tuples and dictionaries; a list of texts is an array."""
    if isinstance(x, dict):
        x = {name: _one(part) for name, part in x.items()}
        return {name: None for name in x}, [x[name] for name in sorted(x)]
    if isinstance(x, (tuple, list)) and x and all(getattr(part, "ndim", 0) or hasattr(part, "to_numpy") for part in x):
        return type(x)(None for _ in x), [_one(part) for part in x]
    return None, [_one(x)]


def _one(part):
    return part.to_numpy() if hasattr(part, "to_numpy") else part


def _first_rows(leaf, text):
    made = Texts(leaf) if text else convert_to_tensor(leaf)
    return made[:2] if made.ndim else made
