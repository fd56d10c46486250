"""Loads models that Lockstep wrote in Keras, and compares Keras' predictions with Lockstep's.

    python tests/keras/check_models_load.py FOLDER

For each FOLDER/NAME.json, the model as JSON, there is a FOLDER/NAME.keras, the model as a whole, and a
FOLDER/NAME.safetensors with the weights by Keras' path and

    x           the input (x/0, x/1, ... where there are several)
    prediction  what Lockstep predicts for it (prediction/0, ... where there are several)

A FOLDER/NAME.keras or NAME.h5 without a JSON is a model that has been trained; its safetensors file has labels and predictions of one
more step, too: y, prediction_after.

Exits with 1 where a model does not load, a weight is missing or left over, or a prediction is off, with 3 where this
Python has no Keras. `./run check keras` writes the files and calls it.
"""

import importlib.util
import os
import pathlib
import sys

BACKENDS = [name for name in ("jax", "tensorflow", "torch") if importlib.util.find_spec(name)]
if not importlib.util.find_spec("keras") or not BACKENDS:
    print(f"{sys.executable} has no Keras with a backend (LOCKSTEP_KERAS_PYTHON names a Python that has)")
    sys.exit(3)
os.environ.setdefault("KERAS_BACKEND", BACKENDS[0])
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import fixture_files
import jax_as_tensorflow

TOLERANCES = {"float32": 1e-5, "float64": 1e-11}


def candidates(layer, around=()):
    """For each weight its possible keys, longest first: names of the layers around it, outer ones left out.

    Keras' paths of a model read from JSON cannot be used: they lack the names of what wraps a layer.
    """
    names = (*around, layer.name)
    for child in layer._layers:  # first, because a wrapper may hold a weight of what it wraps as its own, too
        yield from candidates(child, names)
    for weight in layer._trainable_variables + layer._non_trainable_variables:
        yield weight, ["/".join([*names[start:], weight.name]) for start in range(len(names))]


def assign(model, tensors):
    """Sets every weight of the model; the keys that no weight took are left over."""
    left = {key: value for key, value in tensors.items() if key.split("/")[0] not in ("x", "prediction")}
    done = set()
    for weight, keys in candidates(model):
        if id(weight) in done:  # a weight that the model holds in several places
            continue
        done.add(id(weight))
        key = next((key for key in keys if key in left), None)
        if key is None:
            raise ValueError(f"no tensor for {keys[0]}; there are {sorted(left)}")
        weight.assign(left.pop(key))
    if left:
        raise ValueError(f"no weight for {sorted(left)}")
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()  # what it computes with is derived from its weights


def several(tensors, name):
    if name in tensors:
        return [tensors[name]]
    return [tensors[f"{name}/{i}"] for i in range(len(tensors)) if f"{name}/{i}" in tensors]


def difference(actual, expected):
    """The largest max|difference| / max|prediction| of the outputs."""
    if isinstance(actual, dict):
        actual = [actual[name] for name in sorted(actual)]
    actual = actual if isinstance(actual, list) else [actual]
    return max(float(np.max(np.abs(a - e)) / (np.max(np.abs(e)) or 1.0)) for a, e in zip(actual, expected, strict=True))


def check(path):
    """The difference of Keras' and Lockstep's predictions, of the model as JSON and as a whole, and how large it may be."""
    keras.utils.clear_session(free_memory=False)
    tensors = fixture_files.read_tensors(path.with_suffix(".safetensors"))
    x, expected = several(tensors, "x"), several(tensors, "prediction")
    wide = any(value.dtype == np.float64 for value in tensors.values())
    keras.config.set_floatx("float64" if wide else "float32")
    if keras.backend.backend() == "jax":
        jax_as_tensorflow.jax.config.update("jax_enable_x64", wide)
    model = keras.models.model_from_json(path.read_text(encoding="utf-8"))
    if not model.built:
        model.build(x[0].shape)
    assign(model, tensors)
    loaded = keras.models.load_model(path.with_suffix(".keras"))
    error = max(difference(predictions(model, x), expected), difference(predictions(loaded, x), expected))
    return error, TOLERANCES[keras.config.floatx()]


def check_trained(path):
    """The same of a model that goes on training."""
    keras.utils.clear_session(free_memory=False)
    keras.config.set_floatx("float32")
    tensors = fixture_files.read_tensors(path.with_suffix(".safetensors"))
    x = several(tensors, "x")
    # Keras 3.15 makes the optimizer of an .h5 file for no variables, and cannot train what it saved there itself.
    older = path.suffix == ".h5"
    model = keras.models.load_model(path, compile=not older)
    error = difference(predictions(model, x), several(tensors, "prediction"))
    if older:
        return error, TOLERANCES["float32"]
    model.train_on_batch(x[0] if len(x) == 1 else x, tensors["y"])
    return max(error, difference(predictions(model, x), several(tensors, "prediction_after"))), TOLERANCES["float32"]


def predictions(model, x):
    names = sorted(model._inputs_struct) if isinstance(getattr(model, "_inputs_struct", None), dict) else None
    fixed = model.inputs[0].shape[0] if model.inputs else None
    if fixed and any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
        # From batch to batch the state goes on, as on TensorFlow: predict() of the JAX backend begins each anew.
        return np.concatenate([model(x[0][at : at + fixed], training=False) for at in range(0, len(x[0]), fixed)])
    return model.predict(dict(zip(names, x)) if names else x[0] if len(x) == 1 else x, verbose=0, batch_size=fixed or 32)


def main(folder):
    failures = 0
    files = sorted(folder.glob("*.json")) + sorted(p for p in (*folder.glob("*.keras"), *folder.glob("*.h5"))
                                                    if not p.with_suffix(".json").exists())
    for path in files:
        try:
            error, tolerance = check(path) if path.suffix == ".json" else check_trained(path)
            fine = error <= tolerance
            print(f"{path.name}: {error:.1e}{'' if fine else ', more than ' + str(tolerance)}")
        except Exception as error:
            fine = False
            print(f"{path.name}: {type(error).__name__}: {error}")
        failures += not fine
    print(f"{len(files) - failures} of {len(files)} models load and predict the same")
    return 1 if failures or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
