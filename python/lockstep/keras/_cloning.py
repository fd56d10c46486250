"""Copies of models whose layers, inputs or calls somebody else decides about: the calls of the model are made again, one by one."""

import json

from .. import nest
from .._lockstep import KerasTensor
from . import saving
from ._engine_objects import is_operation
from ._operations import Operation


def cloned(model, sequential, input_tensors, clone_function, call_function, recursive):
    """clone_model() of a Sequential or functional model; `sequential` and Model itself make the copy."""
    clone = clone_function or (lambda layer: layer.__class__.from_config(layer.get_config()))
    call = call_function or (lambda layer, *args, **kwargs: layer(*args, **kwargs))

    def copied(layer):
        if recursive and hasattr(layer, "layers"):
            return cloned(layer, sequential, None, clone_function, call_function, True)
        return clone(layer)
    if isinstance(model, sequential):
        if call_function is not None:
            raise ValueError("clone_model: call_function is for functional models, whose layers are called one by one")
        return _of_layers(model, sequential, input_tensors, copied)
    return _of_calls(model, input_tensors, copied, call)


def _of_layers(model, sequential, input_tensors, copied):
    begin = []
    if input_tensors is not None:
        begin = [input_tensors[0] if isinstance(input_tensors, (list, tuple)) and len(input_tensors) == 1 else input_tensors]
        if not isinstance(begin[0], KerasTensor):
            raise ValueError(f"clone_model: input_tensors of a Sequential is one value of a model, received {input_tensors!r}")
    elif model._begun_by_input:
        begin = [_like(value) for value in model.inputs[:1]]
    return sequential([*begin, *(copied(layer) for layer in model.layers)], name=model.name, trainable=model.trainable)


def _like(value):
    from ._keras_tensor import Input
    return Input(batch_shape=tuple(value.shape), dtype=value.dtype.name, name=value.name)


def _is_history(value):
    return isinstance(value, (list, tuple)) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], int)


def map_histories(function, value):
    """The structure with function(history) in the place of every value of the model."""
    if _is_history(value):
        return function(tuple(value))
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            return function(tuple(value["config"]["keras_history"]))
        return {name: map_histories(function, part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map_histories(function, part) for part in value)
    return value


def histories(value):
    found = []
    map_histories(found.append, value)
    return found


def calls_of(model):
    """(calls, ends) of a functional model, as its configuration has them: (layer, arguments, (name, number of the call)) in an order in which
    they can be made, and where its outputs are."""
    config = json.loads(model._handle.to_json(-1))["config"]
    layers = {layer.name: layer for layer in model.operations}
    made, calls, waiting = {place[:2] for place in histories(config["input_layers"])}, [], []
    for entry in config["layers"]:
        name = entry.get("name") or entry["config"]["name"]
        if entry["class_name"] != "InputLayer":
            waiting += [(layers[name], node, (name, number)) for number, node in enumerate(entry["inbound_nodes"])]
    while waiting:
        later = []
        for call in waiting:
            if all(place[:2] in made for place in histories(call[1])):
                made.add(call[2])
                calls.append(call)
            else:
                later.append(call)
        if len(later) == len(waiting):
            raise ValueError(f"model \"{model.name}\": layer \"{later[0][2][0]}\" is given a value that no layer makes")
        waiting = later

    def by_call(place):  # where a model's ends are named, Keras counts the calls of functional models inside from 1
        inside = place[0] in layers and layers[place[0]]._handle.class_name == "Functional"
        return [place[0], place[1] - 1 if inside else place[1], place[2]]
    return calls, map_histories(by_call, config["output_layers"])


def called(layer, node, values, call=None):
    """What a call gives with these values in the places that it names."""
    given = saving.deserialize_keras_object(map_histories(values.__getitem__, node))
    kwargs = {name: value for name, value in given["kwargs"].items() if value is not None}
    return layer(*given["args"], **kwargs) if call is None else call(layer, *given["args"], **kwargs)


def _of_calls(model, input_tensors, copied, call):
    calls, ends = calls_of(model)
    places = [(value.name, 0, 0) for value in model.inputs]
    if input_tensors is None:
        inputs = [_like(value) for value in model.inputs]
    else:
        inputs = nest.flatten(input_tensors)
        if len(inputs) != len(places):
            raise ValueError("clone_model: `input_tensors` must have the same structure as model.input, received "
                             f"{len(inputs)} values for {len(places)}")
    values, made = dict(zip(places, inputs)), {}
    for layer, node, makes in calls:
        if layer.name not in made:
            made[layer.name] = Operation(layer._kind_of_op, layer.settings, layer.name) if is_operation(layer._handle) else copied(layer)
        results = nest.flatten(called(made[layer.name], node, values, call))
        values.update({(*makes, number): result for number, result in enumerate(results)})
    outputs = [values[place] for place in histories(ends)]
    structure = model.__dict__.get("_output_structure")
    packed = nest.pack_sequence_as(structure, outputs) if structure is not None else outputs[0] if len(outputs) == 1 else outputs
    from .models import Model
    by_name = isinstance(model._ends_given[0], dict) if "_ends_given" in model.__dict__ else model.input_names != [value.name for value in model.inputs]
    begin = dict(zip(model.input_names, inputs)) if by_name else inputs[0] if len(inputs) == 1 else inputs
    return Model(begin, packed, name=model.name)
