"""Records small training runs of Keras as the files in testdata/runs/ (testdata/README.md is their format).

    python3 -m venv venv && venv/bin/pip install keras==3.15.1 jax==0.10.2 numpy
    KERAS_BACKEND=jax venv/bin/python tests/keras/record_keras_runs.py            # all of them
    KERAS_BACKEND=jax venv/bin/python tests/keras/record_keras_runs.py NAME...    # those whose name matches (* and ?)
    KERAS_BACKEND=tensorflow venv/bin/python tests/keras/record_keras_runs.py 'float64_*' 'stateful_*'
    KERAS_BACKEND=jax venv/bin/python tests/keras/record_keras_runs.py --verify   # trains from the files and compares

Recording is deterministic: twice on one machine writes the same bytes. The runs are defined in keras_runs.py. A run
whose final weights depend on how sums are rounded is refused: a second implementation could not agree with it.
--verify reads the files alone, so it also works with KERAS_BACKEND=tensorflow or torch, which round differently.
"""

import argparse
import fnmatch
import os
import pathlib
import sys
import warnings
import zlib

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np

import fixture_files
import keras_runs

warnings.filterwarnings("ignore", message="Explicitly requested dtype int64")  # JAX has no int64; Keras asks for it

FOLDER = pathlib.Path(__file__).parent / "testdata" / "runs"
STEPS = 20
BATCHES = 3
MAX_ROUNDING = {"float32": 2.5e-6, "float64": 2.5e-12}  # a quarter of the agreement that the README asks for

# Keras leaves these losses' own arguments out of their configuration.
for loss_class in (keras.losses.Huber, keras.losses.CosineSimilarity):
    loss_class.get_config = lambda self: {"name": self.name, "reduction": self.reduction, **self._fn_kwargs}


def value_of(variable):
    return np.array(keras.ops.convert_to_numpy(variable.value))


def values_by_path(variables):
    values = {variable.path: value_of(variable) for variable in variables}
    if len(values) != len(variables):
        raise ValueError(f"two weights have one path: {[variable.path for variable in variables]}")
    return values


def distance(actual, expected):
    """Largest max|difference| / max|expected| of the tensors, and the name of the one it is in."""
    worst = (0.0, "")
    for name, want in expected.items():
        want = np.asarray(want, np.float64)
        difference = np.max(np.abs(np.asarray(actual[name], np.float64) - want), initial=0.0)
        worst = max(worst, (float(difference / (np.max(np.abs(want), initial=0.0) or 1.0)), name))
    return worst


def given(run, key, arrays):
    """What Keras takes: a dictionary where the run has names, an array in place of a list of one."""
    names = run.get(key + "_names")
    if names:
        return dict(zip(names, arrays, strict=True))
    return arrays[0] if len(arrays) == 1 else arrays


def use_floatx(floatx):
    if floatx == "float64" and keras.backend.backend() != "tensorflow":
        raise ValueError("record float64 with KERAS_BACKEND=tensorflow: elsewhere Keras multiplies matrices in float32")
    keras.config.set_floatx(floatx)


def forget_states(model):
    """Stateful layers begin anew."""
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False) and hasattr(layer, "reset_state"):
            layer.reset_state()


def train(model, run):
    """Trains over the run's batches; the numbers of each step by name."""
    forget_states(model)
    history = {}
    size = run["batch_size"]
    for batch in run["batches"]:
        def rows(key):
            return given(run, key, [array[batch * size:(batch + 1) * size] for array in run[key]])

        model.reset_metrics()
        logs = model.train_on_batch(
            rows("x"), rows("y"), sample_weight=rows("sample_weight") if run["sample_weight"] else None,
            class_weight=run["class_weight"], return_dict=True)
        for name, value in logs.items():
            history.setdefault(name, []).append(np.asarray(value, keras.config.floatx()))
    return history


def conclude(model, run):
    """evaluate() and predict() over all examples."""
    def whole(key):
        return given(run, key, run[key])

    floatx = keras.config.floatx()
    forget_states(model)
    logs = model.evaluate(whole("x"), whole("y"), batch_size=run["batch_size"], verbose=0,
                          sample_weight=whole("sample_weight") if run["sample_weight"] else None, return_dict=True)
    forget_states(model)
    predictions = model.predict(whole("x"), batch_size=run["batch_size"], verbose=0)
    if isinstance(predictions, dict):
        predictions = [predictions[name] for name in sorted(predictions)]
    predictions = predictions if isinstance(predictions, list) else [predictions]
    return ({name: np.asarray(value, floatx) for name, value in logs.items()},
            [np.asarray(prediction, floatx) for prediction in predictions])


def rounding(model, run, initial, optimizer, final):
    """How far the final weights move when every initial weight moves by one unit in the last place."""
    generator = np.random.default_rng(1)
    for variable in model.weights:
        value = initial[variable.path]
        if variable.trainable:
            towards = np.where(generator.random(value.shape) < 0.5, np.inf, -np.inf).astype(value.dtype)
            value = np.nextafter(value, towards)
        variable.assign(value)
    for variable, value in zip(model.optimizer.variables, optimizer):
        variable.assign(value)
    train(model, run)
    return distance(values_by_path(model.weights), final)


def record(name, define):
    keras.utils.clear_session()
    use_floatx(define.floatx)
    seed = zlib.crc32(name.encode())
    keras.utils.set_random_seed(seed % 2**31)
    generator = np.random.default_rng(seed)
    definition = define(keras_runs.Data(generator, BATCHES, dtype=np.dtype(define.floatx)))
    model = definition["model"]
    run = {key: definition[key] for key in ("batch_size", "class_weight")}
    for key in ("x", "y", "sample_weight"):
        value = definition.get(key)
        if isinstance(value, dict):
            run[key + "_names"] = sorted(value)
            value = [value[name] for name in sorted(value)]
        run[key] = [] if value is None else value if isinstance(value, list) else [value]
    run["batches"] = [int(batch) for batch in generator.integers(0, BATCHES, STEPS)]

    # Zero biases and the like would hide mistakes in the first steps.
    for variable in model.trainable_variables:
        noise = 0.05 * generator.standard_normal(variable.shape)
        variable.assign(value_of(variable) + noise.astype(define.floatx))
    model_json = keras.saving.serialize_keras_object(model)
    model.compile(**definition["compile"])
    model.optimizer.build(model.trainable_variables)
    initial = values_by_path(model.weights)
    optimizer_initial = [value_of(variable) for variable in model.optimizer.variables]

    history = train(model, run)
    final = values_by_path(model.weights)
    optimizer_final = values_by_path(model.optimizer.variables)
    evaluation, predictions = conclude(model, run)
    moved, where = rounding(model, run, initial, optimizer_initial, final)
    if not all(np.isfinite(values).all() for values in history.values()):
        raise ValueError(f"{name}: a number of the history is not finite: {history}")
    stuck = [path for path in initial if np.array_equal(initial[path], final[path])]
    print(f"{name}: loss {history['loss'][0]:.4g} -> {history['loss'][-1]:.4g}, rounding {moved:.1e} {where}"
          f"{', unchanged: ' + ', '.join(stuck) if stuck else ''}", flush=True)
    if moved > MAX_ROUNDING[define.floatx]:
        raise ValueError(f"{name}: rounding alone moves {where} by {moved:.1e} of its largest element")

    tensors = {f"{key}/{i}": array for key in ("x", "y", "sample_weight") for i, array in enumerate(run[key])}
    tensors |= {f"initial/{path}": value for path, value in initial.items()}
    tensors |= {f"final/{path}": value for path, value in final.items()}
    tensors |= {f"optimizer/{path}": value for path, value in optimizer_final.items()}
    tensors |= {f"prediction/{i}": value for i, value in enumerate(predictions)}
    fixture_files.write_tensors(FOLDER / f"{name}.safetensors", tensors)
    fixture_files.write_json(FOLDER / f"{name}.json", {
        "name": name,
        "covers": (define.__doc__ or "").strip(),
        "recorded_with": f"keras {keras.__version__}, {keras.backend.backend()} backend",
        "model": model_json,
        "compile": model.get_compile_config(),
        "inputs": [tensor.name for tensor in model.inputs],
        "outputs": [tensor._keras_history.operation.name for tensor in model.outputs],
        "weights": [{"path": variable.path, "shape": list(variable.shape), "trainable": bool(variable.trainable)}
                    for variable in model.weights],
        **({"floatx": define.floatx} if define.floatx != "float32" else {}),
        **{key: run[key] for key in ("x_names", "y_names", "sample_weight_names") if key in run},
        "batch_size": run["batch_size"],
        "steps": STEPS,
        "batches": run["batches"],
        "class_weight": run["class_weight"],
        "history": history,
        "evaluate": evaluation,
        "rounding": float(f"{moved:.1e}"),
    })


def verify(name):
    """Trains the run of the files; the worst disagreement with what they hold."""
    keras.utils.clear_session()
    run = fixture_files.read_json(FOLDER / f"{name}.json")
    use_floatx(run.get("floatx", "float32"))
    tensors = fixture_files.read_tensors(FOLDER / f"{name}.safetensors")

    def group(prefix):
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    for key in ("x", "y", "sample_weight"):
        run[key] = list(group(key + "/").values())
    if run["class_weight"]:
        run["class_weight"] = {int(label): weight for label, weight in run["class_weight"].items()}
    model = keras.saving.deserialize_keras_object(run["model"])
    model.compile_from_config(run["compile"])
    for variable, weight in zip(model.weights, run["weights"], strict=True):
        # A Sequential read from JSON does not put its name in front of its layers' paths; one built in code does.
        if not ("/" + weight["path"]).endswith("/" + variable.path):
            raise ValueError(f"{name}: {variable.path} should be {weight['path']}")
        variable.assign(tensors["initial/" + weight["path"]])
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()  # what it computes with is derived from its weights
    history = train(model, run)
    final = {weight["path"]: value_of(variable) for variable, weight in zip(model.weights, run["weights"])}
    evaluation, predictions = conclude(model, run)
    parts = [("weights", *distance(final, group("final/"))),
             ("history", *distance(history, run["history"])),
             ("evaluate", *distance(evaluation, run["evaluate"])),
             ("prediction", *distance({str(i): value for i, value in enumerate(predictions)}, group("prediction/")))]
    return max(parts, key=lambda part: part[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["*"], help="runs to record (patterns; default: all)")
    parser.add_argument("--verify", action="store_true", help="train from the files and compare, write nothing")
    parser.add_argument("--missing", action="store_true", help="only those that have no files yet")
    parser.add_argument("--list", action="store_true", help="print the names")
    arguments = parser.parse_args()
    names = [name for name in keras_runs.RUNS if any(fnmatch.fnmatch(name, wanted) for wanted in arguments.names)]
    if arguments.missing:
        names = [name for name in names if not (FOLDER / f"{name}.json").exists()]
    if arguments.list:
        print("\n".join(names))
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    failures = []
    for name in names:
        try:
            if arguments.verify:
                part, error, where = verify(name)
                print(f"{name}: {error:.1e} ({part} {where})", flush=True)
                if error > (1e-11 if keras.config.floatx() == "float64" else 1e-5):
                    failures.append(f"{name}: {part} {where} is off by {error:.1e}")
            else:
                record(name, keras_runs.RUNS[name])
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(names) - len(failures)} of {len(names)} runs are fine", *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
