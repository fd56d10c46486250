"""Recurrent layers whose cells are written in Python: RNN and StackedRNNCells.

A cell is a layer with ``state_size`` and ``call(inputs, states)``, which returns the output and the states after it. Where all cells
are the engine's, the engine's RNN is made; else the one here, whose steps are one loop of the engine.
"""

from .. import _lockstep, nest
from .._lockstep import KerasTensor
from ..ops import _sizes
from ..tensor import TensorShape, convert_to_tensor, is_tensor
from . import saving
from ._engine_objects import same_objects, wrapped
from ._layer import Layer


class OfCell(Layer):
    """A cell of the engine's: cell(inputs, states) gives the output and the states after it."""

    @property
    def state_size(self):
        """The sizes of its states: of several cells a list for each."""
        inside = [wrapped(handle) for handle in self._handle.layers()]
        if inside:
            return [cell.state_size for cell in inside]
        return [self.units, self.units] if self._handle.class_name == "LSTMCell" else self.units

    def get_initial_state(self, batch_size=None):
        """Zeros for so many examples; Keras 2 takes inputs in the place of their number."""
        size = self.state_size
        batch_size = batch_size.shape[0] if is_tensor(batch_size) and batch_size.ndim else batch_size
        zeros = nest.map_structure(lambda one: _lockstep.ops.full([int(batch_size), one], 0.0, self.compute_dtype), size)
        return zeros if isinstance(size, list) else [zeros]

    def __call__(self, inputs, states=None, training=None, **kwargs):
        states = self.get_initial_state(inputs.shape[0]) if states is None else states
        x, *before = [leaf if isinstance(leaf, KerasTensor) else convert_to_tensor(leaf) for leaf in (inputs, *nest.flatten(states))]
        options = {"initial_state": before, **({} if training is None else {"training": bool(training)})}
        made = self._drawn([x], self._handle.apply_symbolic([x], options)) if isinstance(x, KerasTensor) else self._handle.apply([x], options)
        after = list(made)[1:]
        return made[0], nest.pack_sequence_as(states, after) if nest.is_nested(states) else after[0]


class WithStates(Layer):
    """A layer of the engine's that may keep states."""

    @property
    def states(self):
        """The variables that a stateful layer keeps its states in, once it is built; None: it keeps none."""
        handle = self.__dict__.get("_inner", self._handle)
        return same_objects([variable for variable in handle.own_state() if variable.dtype.is_floating]) or None  # others are of random generators


class OfCells(WithStates):
    """A recurrent layer of the engine's."""

    def get_initial_state(self, batch_size):
        """Zeros for so many examples: a list of the states."""
        return self.cell.get_initial_state(batch_size)


class OfBoth(Layer):
    """Bidirectional."""

    @property
    def states(self):
        """Those of the layer forwards and of the one backwards; None: they keep none."""
        forward, backward = (getattr(layer, "states", None) for layer in (self.forward_layer, self.backward_layer))
        return (*forward, *backward) if forward and backward else None


def _is_of_engine(cell):
    if isinstance(cell, (list, tuple)):
        return all(_is_of_engine(part) for part in cell)
    return not (isinstance(cell, Layer) and cell._is_written)


def _of_python(cls, config, cell):
    """The layer of a file; None: it is one of the engine's."""
    inside = cell if isinstance(cell, list) else cell["config"].get("cells", [cell]) if cell["class_name"] == "StackedRNNCells" else [cell]
    if all(saving.known(one.get("registered_name") or one["class_name"]) is None for one in inside):
        return None
    made = cls.from_config(config)
    saving.keep(made)
    return made._handle


def _revived(cell):
    """A cell of a configuration."""
    if isinstance(cell, (list, tuple)):
        return [_revived(part) for part in cell]
    return saving.deserialize_keras_object(cell) if isinstance(cell, dict) else cell


def _built(cell, *shapes):
    if not cell.built:
        cell._handle.build([_sizes(shape) for shape in shapes])


class _Size:
    """The size of one state, without the batch: a leaf of a structure."""

    def __init__(self, sizes):
        self.sizes = sizes


def _listed(sizes):
    """What a cell says of sizes, in its structure: a shape is one of its leaves, although it is a sequence."""
    if isinstance(sizes, (list, tuple)) and not isinstance(sizes, TensorShape):
        parts = [_listed(size) for size in sizes]
        return parts if isinstance(sizes, list) else type(sizes)(*parts) if hasattr(sizes, "_fields") else tuple(parts)
    if isinstance(sizes, dict):
        return {name: _listed(size) for name, size in sizes.items()}
    return _Size(_sizes(sizes))


def _leaf_sizes(sizes):
    return [leaf.sizes for leaf in nest.flatten(_listed(sizes))]


def _output_sizes(cell):
    """Of every part of a cell's output, without the batch; of a cell that says none, that of the first state."""
    said = getattr(cell, "output_size", None)
    return _leaf_sizes(said) if said else _leaf_sizes(cell.state_size)[:1]


def _last_size(cell):
    return _output_sizes(cell)[0]


def classes(engine_rnn, engine_stack):
    """RNN and StackedRNNCells, which make one of the engine's where they can."""

    class StackedRNNCells(Layer):
        """Cells one after the other, as one cell."""

        def __new__(cls, cells=(), **kwargs):
            cells = _revived(cells)
            return engine_stack(cells=list(cells), **kwargs) if cls is StackedRNNCells and _is_of_engine(cells) else \
                super().__new__(cls)

        def __init__(self, cells, **kwargs):
            super().__init__(**kwargs)
            self.cells = _revived(list(cells))

        @property
        def state_size(self):
            return [cell.state_size for cell in self.cells]

        @property
        def output_size(self):
            return getattr(self.cells[-1], "output_size", None) or nest.flatten(self.cells[-1].state_size)[0]

        def build(self, input_shape):
            shape = list(input_shape)
            for cell in self.cells:
                _built(cell, shape)
                shape = shape[:1] + _last_size(cell)

        def call(self, inputs, states, training=False):
            after = []
            for cell, state in zip(self.cells, states):
                inputs, new = cell(inputs, state if nest.is_nested(state) else [state])
                after.append(list(new) if nest.is_nested(state) else nest.flatten(new)[0])
            return inputs, after

        def get_config(self):
            return {**super().get_config(), "cells": [saving.serialize_keras_object(cell) for cell in self.cells]}

    class RNN(Layer):
        """A sequence through a cell: one of the engine's, a list of them, or a layer of your own with call(inputs, states) and
        state_size."""

        def __new__(cls, cell=None, return_sequences=False, return_state=False, go_backwards=False, stateful=False, unroll=False,
                    zero_output_for_mask=False, **kwargs):
            cell = _revived(cell)
            if cls is not RNN or not _is_of_engine(cell) or cell is None:
                return super().__new__(cls)
            return engine_rnn(engine_stack(cells=list(cell)) if isinstance(cell, (list, tuple)) else cell,
                              return_sequences=return_sequences, return_state=return_state, go_backwards=go_backwards,
                              stateful=stateful, unroll=unroll, zero_output_for_mask=zero_output_for_mask, **kwargs)

        def __init__(self, cell, return_sequences=False, return_state=False, go_backwards=False, stateful=False, unroll=False,
                     zero_output_for_mask=False, **kwargs):
            super().__init__(**kwargs)
            cell = _revived(cell)
            cell = StackedRNNCells(cell) if isinstance(cell, (list, tuple)) else cell
            for name in ("call", "state_size"):
                if not hasattr(cell, name):
                    raise ValueError(f"RNN: a cell has {name}, {cell!r} has none")
            self.cell = cell
            self.return_sequences, self.return_state, self.go_backwards = return_sequences, return_state, go_backwards
            self.stateful, self.unroll, self.zero_output_for_mask = stateful, unroll, zero_output_for_mask
            self.states = None
            self.supports_masking = True

        def build(self, input_shape, initial_state_shape=None):
            several = len(input_shape) > 0 and isinstance(input_shape[0], (list, tuple, TensorShape))
            shapes = list(input_shape) if several else [input_shape]  # a cell may take several sequences at once
            batch = shapes[0][0]
            _built(self.cell, *([shape[0], *shape[2:]] for shape in shapes))
            if self.stateful and self.states is None:
                if batch is None:
                    raise ValueError("RNN: a stateful layer has to know the batch size: Input(batch_shape=...)")
                self.states = [self.add_weight([batch, *size], "zeros", trainable=False, name=f"state_{number}")
                               for number, size in enumerate(_leaf_sizes(self.cell.state_size))]

        def reset_state(self):
            """The states become zeros."""
            for state in self.states or ():
                state.assign(_lockstep.ops.zeros_like(state))

        reset_states = reset_state

        def compute_mask(self, inputs, mask=None):
            kept = mask[0] if isinstance(mask, (list, tuple)) else mask
            kept = kept if self.return_sequences else None
            return [kept] + [None] * len(_leaf_sizes(self.cell.state_size)) if self.return_state else kept

        def call(self, sequences, initial_state=None, mask=None, training=False):
            ops = _lockstep.ops
            sizes = _leaf_sizes(self.cell.state_size)
            inputs = [convert_to_tensor(part) for part in nest.flatten(sequences)]
            batch, dtype = inputs[0].shape[0], inputs[0].dtype
            if initial_state is not None:
                states = [convert_to_tensor(state) for state in nest.flatten(initial_state)]
            elif self.stateful:
                states = [state.read_value() for state in self.states]
                if states[0].shape[0] != batch:
                    raise ValueError(f"RNN: a stateful layer keeps the batch size that it was built for, {states[0].shape[0]}, "
                                     f"received {batch}")
            else:
                states = [ops.full([batch] + size, 0.0, dtype) for size in sizes]
            form = []  # of the cell's output: filled by a step

            def step(x, states):
                output, after = self.cell(nest.pack_sequence_as(sequences, x), nest.pack_sequence_as(self._structure, states))
                form[:] = [output]
                return nest.flatten(output), [convert_to_tensor(state) for state in nest.flatten(after)]
            steps = [ops.moveaxis(part, [1], [0]) for part in inputs]
            mask = nest.flatten(mask)[0]
            if mask is not None:
                mask = ops.moveaxis(convert_to_tensor(mask), [1], [0])
            last, outputs, final = self._loop(step, steps, mask, states, batch, dtype)
            outputs, final = nest.pack_sequence_as(form[0], outputs), nest.pack_sequence_as(form[0], final)
            if self.stateful:
                for state, value in zip(self.states, last):
                    state.assign(value)
            result = outputs if self.return_sequences else final
            if not self.return_state:
                return result
            return (result, *nest.pack_sequence_as(self._structure, last))

        @property
        def _structure(self):
            form = _listed(self.cell.state_size)
            return form if nest.is_nested(form) else [form]

        def _loop(self, step, steps, mask, states, batch, dtype):
            """The last states, and of every part of the output those of all steps and the last one."""
            ops = _lockstep.ops
            masked = mask is not None
            before = [ops.full([batch] + size, 0.0, dtype) for size in _output_sizes(self.cell)] if masked else []

            def one(carry, x):
                held = list(carry[len(states):])
                outputs, after = step(list(x[:len(steps)]), list(carry[:len(states)]))
                if not masked:
                    return after, outputs

                def kept(new, old):
                    keep = ops.reshape(x[-1], [x[-1].shape[0]] + [1] * (len(new.shape) - 1))
                    return ops.where(keep, new, old)
                after = [kept(new, old) for new, old in zip(after, carry)]
                shown = [kept(new, ops.zeros_like(new) if self.zero_output_for_mask else old) for new, old in zip(outputs, held)]
                return after + [kept(new, old) for new, old in zip(outputs, held)], shown
            last, outputs = _lockstep.scan(one, states + before, steps + ([mask] if masked else []), self.go_backwards)
            wholes = [ops.moveaxis(output, [0], [1]) for output in outputs]
            finals = list(last[len(states):]) if masked else [whole[:, 0] if self.go_backwards else whole[:, -1] for whole in wholes]
            if self.go_backwards:
                wholes = [ops.reverse(whole, [1]) for whole in wholes]
            return last[:len(states)], wholes, finals

        def get_config(self):
            return {**super().get_config(), "cell": saving.serialize_keras_object(self.cell),
                    "return_sequences": self.return_sequences, "return_state": self.return_state,
                    "go_backwards": self.go_backwards, "stateful": self.stateful, "unroll": self.unroll,
                    "zero_output_for_mask": self.zero_output_for_mask}

    # Of the configurations in files the engine makes those whose cells are all its own.
    _lockstep.register_keras_layer("RNN", lambda config: _of_python(RNN, config, config["cell"]))
    _lockstep.register_keras_layer("StackedRNNCells", lambda config: _of_python(StackedRNNCells, config, config["cells"]))
    return RNN, StackedRNNCells
