"""Copies of models whose layers, inputs or calls somebody else decides about: the calls of the model are made again, one by one."""

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
    return Input(batch_shape=tuple(value.shape), dtype=value.dtype.name)


def _is_history(value):
    return isinstance(value, (list, tuple)) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], int)


def _map_histories(function, value):
    """The structure with function(history) in the place of every value of the model."""
    if _is_history(value):
        return function(tuple(value))
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            return function(tuple(value["config"]["keras_history"]))
        return {name: _map_histories(function, part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map_histories(function, part) for part in value)
    return value


def _histories(value):
    found = []
    _map_histories(found.append, value)
    return found


def _of_calls(model, input_tensors, copied, call):
    config = model.get_config()
    places = _histories(config["input_layers"])
    if input_tensors is None:
        inputs = [_like(value) for value in model.inputs]
    else:
        inputs = nest.flatten(input_tensors)
        if len(inputs) != len(places):
            raise ValueError("clone_model: `input_tensors` must have the same structure as model.input, received "
                             f"{len(inputs)} values for {len(places)}")
    values, made, waiting = dict(zip(places, inputs)), {}, []
    layers = {layer.name: layer for layer in model.operations}
    for entry in config["layers"]:
        name = entry.get("name") or entry["config"]["name"]
        if entry["class_name"] == "InputLayer":
            continue
        made[name] = Operation.of_file(entry) if is_operation(layers[name]._handle) else copied(layers[name])
        waiting += [(name, number, node) for number, node in enumerate(entry["inbound_nodes"])]
    while waiting:
        later = []
        for name, number, node in waiting:
            if not all(history in values for history in _histories(node)):
                later.append((name, number, node))
                continue
            given = saving.deserialize_keras_object(_map_histories(values.get, node))
            results = nest.flatten(call(made[name], *given["args"], **{key: value for key, value in given["kwargs"].items() if value is not None}))
            values.update({(name, number, i): result for i, result in enumerate(results)})
        if len(later) == len(waiting):
            raise ValueError(f"clone_model: layer \"{later[0][0]}\" is given a value that no layer makes")
        waiting = later
    outputs = [values[history] for history in _histories(config["output_layers"])]
    structure = model.__dict__.get("_output_structure")
    packed = nest.pack_sequence_as(structure, outputs) if structure is not None else outputs[0] if len(outputs) == 1 else outputs
    from .models import Model
    return Model(inputs[0] if len(inputs) == 1 else inputs, packed, name=config["name"])
