"""Records facts about single functions of Keras as testdata/values/*.json (testdata/README.md says what each holds).

    python3 -m venv venv && venv/bin/pip install keras==3.15.1 jax==0.10.2 tensorflow-cpu==2.21.0 numpy
    KERAS_BACKEND=jax venv/bin/python tests/keras/record_keras_values.py [NAME...]

Recording is deterministic. TensorFlow is needed for text layers and image folders alone; the numbers are JAX's.
"""

import contextlib
import fnmatch
import functools
import inspect
import io
import os
import pathlib
import sys
import tempfile
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ["COLUMNS"] = "80"

import jax
import keras
import numpy as np
from keras import initializers, layers, losses, metrics, optimizers

import fixture_files
import keras_runs

warnings.filterwarnings("ignore", message="Explicitly requested dtype int64")

FOLDER = pathlib.Path(__file__).parent / "testdata" / "values"
FILES = {}


def values(define):
    """Adds a file under the function's name."""
    FILES[define.__name__] = define
    return define


def serialized(thing):
    return keras.saving.serialize_keras_object(thing)


def numbers(tensor):
    return keras.ops.convert_to_numpy(tensor)


def fresh(define):
    """Runs define with the counters of automatic names back at the start."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    return define()


# ---------------------------------------------------------------------------------------------- functions


@values
def activations():
    """Values and derivatives, away from the points where an activation has a corner."""
    points = np.array(
        [
            -50,
            -8.3,
            -6.1,
            -4.7,
            -3.2,
            -2.9,
            -2.3,
            -1.7,
            -1.2,
            -0.9,
            -0.7,
            -0.45,
            -0.3,
            -0.1,
            -0.01,
            0.01,
            0.1,
            0.3,
            0.45,
            0.7,
            0.9,
            1.2,
            1.7,
            2.3,
            2.9,
            3.2,
            4.7,
            5.9,
            6.1,
            8.3,
            50,
        ],
        np.float32,
    )
    cases = {
        name: (name, {})
        for name in (
            "relu relu6 leaky_relu elu selu celu silu gelu tanh sigmoid hard_sigmoid hard_silu hard_tanh softplus "
            "softsign "
            "squareplus soft_shrink hard_shrink sparse_plus sparse_sigmoid tanh_shrink log_sigmoid exponential mish "
            "linear"
        ).split()
    }
    cases |= {
        "relu_options": ("relu", {"negative_slope": 0.1, "max_value": 1.5, "threshold": 0.35}),
        "leaky_relu_options": ("leaky_relu", {"negative_slope": 0.3}),
        "elu_options": ("elu", {"alpha": 0.5}),
        "celu_options": ("celu", {"alpha": 0.5}),
        "gelu_approximate": ("gelu", {"approximate": True}),
        "soft_shrink_options": ("soft_shrink", {"threshold": 0.8}),
        "hard_shrink_options": ("hard_shrink", {"threshold": 0.8}),
        "squareplus_options": ("squareplus", {"b": 2}),
        "threshold": ("threshold", {"threshold": 0.35, "default_value": -0.25}),
    }
    elementwise = {}
    for case, (name, arguments) in cases.items():
        # exp(50) is a number nobody needs to agree with to the last digit of float32.
        x = points[1:-1] if name == "exponential" else points
        function = functools.partial(getattr(keras.activations, name), **arguments)
        y, pull = jax.vjp(function, x)
        elementwise[case] = {
            "function": name,
            "arguments": arguments,
            "x": x,
            "y": y,
            "gradient": pull(np.ones_like(x))[0],
        }
    rows = np.array(
        [[0.5, -1.2, 2.0, 0.1, 0.7, -0.4], [3.0, 2.9, -5.0, 0.0, 1.0, 1.5], [-0.2, -0.2, -0.1, -9.0, 0.3, 8.0]],
        np.float32,
    )
    upstream = np.array(
        [[1.0, -0.5, 0.25, 2.0, 0.1, 0.3], [0.2, 0.4, -0.6, 0.8, -1.0, 1.2], [1, 0, 0, 0, 0, -1]], np.float32
    )
    rowwise = {}
    for name, arguments in (
        ("softmax", {}),
        ("softmax", {"axis": 0}),
        ("log_softmax", {}),
        ("sparsemax", {}),
        ("glu", {}),
    ):
        y, pull = jax.vjp(functools.partial(getattr(keras.activations, name), **arguments), rows)
        seed = upstream[:, : y.shape[1]]
        rowwise[name + "".join(f"_{key}_{value}" for key, value in arguments.items())] = {
            "function": name,
            "arguments": arguments,
            "x": rows,
            "y": y,
            "upstream": seed,
            "gradient": pull(seed)[0],
        }
    return {"elementwise": elementwise, "rowwise": rowwise}


@values
def loss_values():
    """Every loss on a small batch with every reduction, with and without sample weights."""
    generator = np.random.default_rng(7)
    binary = generator.integers(0, 2, (4, 3)).astype(np.float32)
    probabilities = generator.uniform(0.05, 0.95, (4, 3)).astype(np.float32)
    probabilities[0, 0], probabilities[1, 1] = 0.0, 1.0  # what clipping is for
    logits = generator.normal(0, 2, (4, 3)).astype(np.float32)
    one_hot = np.eye(3, dtype=np.float32)[[0, 2, 1, 2]]
    soft = (probabilities + 0.05) / (probabilities + 0.05).sum(-1, keepdims=True)
    unnormalized = probabilities.copy()
    sparse = np.array([0, 2, 1, 2], np.int32)
    positive = generator.uniform(0.1, 3.0, (4, 3)).astype(np.float32)
    other = generator.uniform(0.1, 3.0, (4, 3)).astype(np.float32)
    weights = np.array([0.5, 2.0, 0.0, 1.25], np.float32)
    data = {
        "binary": (binary, probabilities),
        "binary_logits": (binary, logits),
        "one_hot": (one_hot, soft),
        "one_hot_unnormalized": (one_hot, unnormalized),
        "one_hot_logits": (one_hot, logits),
        "sparse": (sparse, soft),
        "sparse_unnormalized": (sparse, unnormalized),
        "sparse_logits": (sparse, logits),
        "regression": (generator.normal(0, 2, (4, 3)).astype(np.float32), logits),
        "positive": (positive, other),
        "signs": (2 * binary - 1, logits),
        "distribution": (soft[::-1].copy(), soft),
        "zero": (np.zeros((4, 3), np.float32), other),
    }
    embeddings = generator.normal(0, 1, (4, 3)).astype(np.float32)
    data["embeddings"] = (
        np.array([0, 1, 0, 1], np.int32),
        embeddings / np.linalg.norm(embeddings, axis=-1, keepdims=True),
    )
    data["sequences"] = (
        np.array([[1, 2, 3], [2, 2, 0], [4, 0, 0], [3, 1, 3]], np.int32),
        generator.normal(0, 2, (4, 7, 5)).astype(np.float32),
    )
    cases = {
        "mean_squared_error": (losses.MeanSquaredError, {}, "regression"),
        "mean_absolute_error": (losses.MeanAbsoluteError, {}, "regression"),
        "mean_absolute_percentage_error": (losses.MeanAbsolutePercentageError, {}, "positive"),
        "mean_absolute_percentage_error_of_zero": (losses.MeanAbsolutePercentageError, {}, "zero"),
        "mean_squared_logarithmic_error": (losses.MeanSquaredLogarithmicError, {}, "positive"),
        "mean_squared_logarithmic_error_negative": (losses.MeanSquaredLogarithmicError, {}, "regression"),
        "huber": (losses.Huber, {}, "regression"),
        "huber_delta": (losses.Huber, {"delta": 2.5}, "regression"),
        "log_cosh": (losses.LogCosh, {}, "regression"),
        "cosine_similarity": (losses.CosineSimilarity, {}, "regression"),
        "cosine_similarity_axis": (losses.CosineSimilarity, {"axis": 0}, "regression"),
        "cosine_similarity_of_zero": (losses.CosineSimilarity, {}, "zero"),
        "binary_crossentropy": (losses.BinaryCrossentropy, {}, "binary"),
        "binary_crossentropy_logits": (losses.BinaryCrossentropy, {"from_logits": True}, "binary_logits"),
        "binary_crossentropy_smoothing": (losses.BinaryCrossentropy, {"label_smoothing": 0.2}, "binary"),
        "binary_focal": (losses.BinaryFocalCrossentropy, {}, "binary"),
        "binary_focal_balanced": (
            losses.BinaryFocalCrossentropy,
            {"apply_class_balancing": True, "alpha": 0.4, "gamma": 3.0, "label_smoothing": 0.1},
            "binary",
        ),
        "binary_focal_logits": (losses.BinaryFocalCrossentropy, {"from_logits": True}, "binary_logits"),
        "categorical_crossentropy": (losses.CategoricalCrossentropy, {}, "one_hot"),
        "categorical_crossentropy_unnormalized": (losses.CategoricalCrossentropy, {}, "one_hot_unnormalized"),
        "categorical_crossentropy_smoothing": (losses.CategoricalCrossentropy, {"label_smoothing": 0.1}, "one_hot"),
        "categorical_crossentropy_logits": (losses.CategoricalCrossentropy, {"from_logits": True}, "one_hot_logits"),
        "categorical_focal": (losses.CategoricalFocalCrossentropy, {}, "one_hot"),
        "categorical_focal_unnormalized": (losses.CategoricalFocalCrossentropy, {}, "one_hot_unnormalized"),
        "categorical_focal_logits": (
            losses.CategoricalFocalCrossentropy,
            {"from_logits": True, "alpha": 0.5, "gamma": 1.5},
            "one_hot_logits",
        ),
        "sparse_categorical_crossentropy": (losses.SparseCategoricalCrossentropy, {}, "sparse"),
        "sparse_categorical_crossentropy_unnormalized": (
            losses.SparseCategoricalCrossentropy,
            {},
            "sparse_unnormalized",
        ),
        "sparse_categorical_crossentropy_logits": (
            losses.SparseCategoricalCrossentropy,
            {"from_logits": True},
            "sparse_logits",
        ),
        "sparse_categorical_crossentropy_ignore": (
            losses.SparseCategoricalCrossentropy,
            {"from_logits": True, "ignore_class": 2},
            "sparse_logits",
        ),
        "kl_divergence": (losses.KLDivergence, {}, "distribution"),
        "poisson": (losses.Poisson, {}, "positive"),
        "hinge": (losses.Hinge, {}, "signs"),
        "hinge_bits": (losses.Hinge, {}, "binary_logits"),
        "squared_hinge": (losses.SquaredHinge, {}, "signs"),
        "squared_hinge_bits": (losses.SquaredHinge, {}, "binary_logits"),
        "categorical_hinge": (losses.CategoricalHinge, {}, "one_hot_logits"),
        "categorical_focal_alphas": (losses.CategoricalFocalCrossentropy, {"alpha": [0.1, 0.6, 0.3]}, "one_hot"),
        "circle": (losses.Circle, {"gamma": 8.0}, "embeddings"),
        "circle_options": (
            losses.Circle,
            {"gamma": 4.0, "margin": 0.2, "remove_diagonal": False},
            "embeddings",
        ),
        "ctc": (losses.CTC, {}, "sequences"),
        "dice": (losses.Dice, {}, "binary"),
        "dice_axis": (losses.Dice, {"axis": 1}, "binary"),
        "tversky": (losses.Tversky, {}, "binary"),
        "tversky_options": (losses.Tversky, {"alpha": 0.2, "beta": 0.9, "axis": 1}, "binary"),
    }
    results = {}
    for name, (kind, arguments, source) in cases.items():
        y_true, y_pred = data[source]
        entry = {"class_name": kind.__name__, "arguments": arguments, "data": source}
        # One value for the whole batch, or for each class, does not take these weights.
        takes_weights = np.shape(kind(reduction=None, **arguments)(y_true, y_pred)) == weights.shape
        for reduction in (None, "sum", "sum_over_batch_size", "mean", "mean_with_sample_weight"):
            loss = kind(reduction=reduction, **arguments)
            entry[reduction or "none"] = {"plain": loss(y_true, y_pred)}
            if takes_weights:
                entry[reduction or "none"]["weighted"] = loss(y_true, y_pred, sample_weight=weights)
        entry["gradient"] = jax.grad(lambda p: kind(**arguments)(y_true, p))(y_pred)
        results[name] = entry
    return {
        "sample_weight": weights,
        "data": {name: {"y_true": pair[0], "y_pred": pair[1]} for name, pair in data.items()},
        "losses": results,
    }


@values
def schedule_values():
    """Every schedule at steps 0 to 50."""
    return {
        name: {"schedule": serialized(make()), "learning_rate": [np.float32(make()(step)) for step in range(51)]}
        for name, make in keras_runs.SCHEDULES.items()
    }


@values
def metric_values():
    """Every metric's result after each of three updates, with and without sample weights."""
    generator = np.random.default_rng(3)

    def batches(make):
        return [tuple(np.asarray(part) for part in make()) for _ in range(3)]

    def probabilities(*shape):
        return generator.uniform(0, 1, shape).astype(np.float32)

    def bits(*shape):
        return generator.integers(0, 2, shape).astype(np.float32)

    def softmax(*shape):
        raw = np.exp(generator.normal(0, 1, shape))
        return (raw / raw.sum(-1, keepdims=True)).astype(np.float32)

    data = {
        "binary": batches(lambda: (bits(6, 1), probabilities(6, 1))),
        "labels": batches(lambda: (bits(6, 3), probabilities(6, 3))),
        "one_hot": batches(lambda: (np.eye(4, dtype=np.float32)[generator.integers(0, 4, 6)], softmax(6, 4))),
        "sparse": batches(lambda: (generator.integers(0, 4, 6).astype(np.int32), softmax(6, 4))),
        "classes": batches(
            lambda: (generator.integers(0, 4, 6).astype(np.int32), generator.integers(0, 4, 6).astype(np.int32))
        ),
        "regression": batches(
            lambda: (
                generator.normal(0, 1, (6, 2)).astype(np.float32),
                generator.normal(0, 1, (6, 2)).astype(np.float32),
            )
        ),
        "positive": batches(
            lambda: (
                generator.uniform(0.1, 2, (6, 2)).astype(np.float32),
                generator.uniform(0.1, 2, (6, 2)).astype(np.float32),
            )
        ),
        "signs": batches(lambda: (2 * bits(6, 2) - 1, generator.normal(0, 1, (6, 2)).astype(np.float32))),
        "values": batches(lambda: (generator.normal(0, 1, 6).astype(np.float32),)),
    }
    weights = [generator.uniform(0, 2, 6).astype(np.float32) for _ in range(3)]
    thresholds = {"num_thresholds": 20}
    cases = [
        ("Mean", {}, "values"),
        ("Sum", {}, "values"),
        ("Accuracy", {}, "classes"),
        ("BinaryAccuracy", {}, "labels"),
        ("BinaryAccuracy", {"threshold": 0.3}, "labels"),
        ("CategoricalAccuracy", {}, "one_hot"),
        ("SparseCategoricalAccuracy", {}, "sparse"),
        ("TopKCategoricalAccuracy", {"k": 2}, "one_hot"),
        ("SparseTopKCategoricalAccuracy", {"k": 2}, "sparse"),
        ("TruePositives", {}, "binary"),
        ("TrueNegatives", {}, "binary"),
        ("FalsePositives", {}, "binary"),
        ("FalseNegatives", {}, "binary"),
        ("TruePositives", {"thresholds": [0.2, 0.6]}, "binary"),
        ("Precision", {}, "labels"),
        ("Precision", {"thresholds": [0.3, 0.7]}, "labels"),
        ("Precision", {"top_k": 2}, "one_hot"),
        ("Precision", {"class_id": 1}, "labels"),
        ("Recall", {}, "labels"),
        ("Recall", {"thresholds": 0.3}, "labels"),
        ("Recall", {"top_k": 1, "class_id": 2}, "one_hot"),
        ("AUC", {}, "binary"),
        ("AUC", {"curve": "PR"}, "binary"),
        ("AUC", {"summation_method": "minoring"} | thresholds, "binary"),
        ("AUC", {"summation_method": "majoring", "curve": "PR"} | thresholds, "binary"),
        ("AUC", {"multi_label": True} | thresholds, "labels"),
        ("AUC", {"multi_label": True, "label_weights": [0.2, 0.5, 0.3]} | thresholds, "labels"),
        ("AUC", {"thresholds": [0.25, 0.5, 0.75]}, "binary"),
        ("AUC", {"from_logits": True} | thresholds, "signs_as_bits"),
        ("PrecisionAtRecall", {"recall": 0.6} | thresholds, "binary"),
        ("RecallAtPrecision", {"precision": 0.6} | thresholds, "binary"),
        ("SensitivityAtSpecificity", {"specificity": 0.6} | thresholds, "binary"),
        ("SpecificityAtSensitivity", {"sensitivity": 0.6} | thresholds, "binary"),
        ("F1Score", {}, "one_hot"),
        ("F1Score", {"average": "micro"}, "one_hot"),
        ("F1Score", {"average": "macro"}, "one_hot"),
        ("F1Score", {"average": "weighted", "threshold": 0.4}, "labels"),
        ("FBetaScore", {"beta": 0.5, "average": "macro"}, "labels"),
        ("FBetaScore", {"beta": 2.0, "threshold": 0.5}, "labels"),
        ("MeanSquaredError", {}, "regression"),
        ("RootMeanSquaredError", {}, "regression"),
        ("MeanAbsoluteError", {}, "regression"),
        ("MeanAbsolutePercentageError", {}, "positive"),
        ("MeanSquaredLogarithmicError", {}, "positive"),
        ("LogCoshError", {}, "regression"),
        ("CosineSimilarity", {}, "regression"),
        ("R2Score", {}, "regression"),
        ("R2Score", {"class_aggregation": None}, "regression"),
        ("R2Score", {"class_aggregation": "variance_weighted_average"}, "regression"),
        ("R2Score", {"num_regressors": 1}, "regression"),
        ("PearsonCorrelation", {}, "regression"),
        ("ConcordanceCorrelation", {}, "regression"),
        ("Poisson", {}, "positive"),
        ("KLDivergence", {}, "one_hot"),
        ("BinaryCrossentropy", {}, "labels"),
        ("BinaryCrossentropy", {"label_smoothing": 0.1}, "labels"),
        ("CategoricalCrossentropy", {}, "one_hot"),
        ("SparseCategoricalCrossentropy", {}, "sparse"),
        ("Hinge", {}, "signs"),
        ("SquaredHinge", {}, "signs"),
        ("CategoricalHinge", {}, "one_hot"),
        ("MeanIoU", {"num_classes": 4}, "classes"),
        ("MeanIoU", {"num_classes": 4, "sparse_y_pred": False}, "sparse"),
        ("IoU", {"num_classes": 4, "target_class_ids": [0, 2]}, "classes"),
        ("MeanIoU", {"num_classes": 4, "ignore_class": 1}, "classes"),
        ("BinaryIoU", {"threshold": 0.4}, "labels"),
        ("OneHotIoU", {"num_classes": 4, "target_class_ids": [1]}, "one_hot"),
        ("OneHotMeanIoU", {"num_classes": 4}, "one_hot"),
    ]
    data["signs_as_bits"] = [((truth + 1) / 2, prediction) for truth, prediction in data["signs"]]
    results = []
    for kind, arguments, source in cases:
        entry = {"class_name": kind, "arguments": arguments, "data": source}
        for mode in ("plain", "weighted"):
            metric = getattr(metrics, kind)(**arguments)
            entry["name"] = metric.name
            try:
                entry[mode] = []
                for batch, weight in zip(data[source], weights):
                    metric.update_state(*batch, **({"sample_weight": weight} if mode == "weighted" else {}))
                    entry[mode].append(numbers(metric.result()))
            except (NotImplementedError, ValueError, TypeError):  # a metric that takes no such weights
                if mode == "plain":
                    raise
                del entry[mode]
        results.append(entry)
        keras.utils.clear_session(free_memory=False)
    return {
        "sample_weight": weights,
        "data": {name: [[part for part in batch] for batch in parts] for name, parts in data.items()},
        "metrics": results,
    }


@values
def regularizers_and_constraints():
    """Penalties of the regularizers and results of the constraints for one matrix, and for a convolution's kernel."""
    generator = np.random.default_rng(5)
    matrix = generator.normal(0, 1, (4, 3)).astype(np.float32)
    kernel = generator.normal(0, 1, (2, 2, 3, 2)).astype(np.float32)
    penalties = [
        keras.regularizers.L1(0.1),
        keras.regularizers.L2(0.1),
        keras.regularizers.L1L2(0.1, 0.2),
        keras.regularizers.OrthogonalRegularizer(0.1),
        keras.regularizers.OrthogonalRegularizer(0.1, "columns"),
    ]
    constraints = [
        keras.constraints.MaxNorm(1.2),
        keras.constraints.MaxNorm(1.2, axis=1),
        keras.constraints.NonNeg(),
        keras.constraints.UnitNorm(),
        keras.constraints.UnitNorm(axis=1),
        keras.constraints.MinMaxNorm(0.8, 1.2),
        keras.constraints.MinMaxNorm(0.8, 1.2, rate=0.5, axis=1),
    ]
    windows = [keras.constraints.MaxNorm(1.5, axis=[0, 1, 2]), keras.constraints.UnitNorm(axis=[0, 1, 2])]
    names = {name: serialized(keras.regularizers.get(name)) for name in ("l1", "l2", "l1l2", "orthogonal_regularizer")}
    names |= {
        name: serialized(keras.constraints.get(name)) for name in ("max_norm", "non_neg", "unit_norm", "min_max_norm")
    }
    return {
        "matrix": matrix,
        "kernel": kernel,
        "by_name": names,
        "regularizers": [
            {"regularizer": serialized(item), "penalty": numbers(item(keras.ops.convert_to_tensor(matrix)))}
            for item in penalties
        ],
        "constraints": [{"constraint": serialized(item), "result": numbers(item(matrix))} for item in constraints],
        "kernel_constraints": [{"constraint": serialized(item), "result": numbers(item(kernel))} for item in windows],
    }


@values
def initializer_values():
    """What an initializer draws from: fans, bounds and moments of a sample; exact values where there is no chance."""
    from keras.src.initializers.random_initializers import compute_fans

    shapes = [(64, 48), (3, 3, 16, 24), (5, 12, 30), (200,)]
    drawn = {
        "GlorotUniform": {},
        "GlorotNormal": {},
        "HeUniform": {},
        "HeNormal": {},
        "LecunUniform": {},
        "LecunNormal": {},
        "RandomUniform": {},
        "RandomNormal": {},
        "TruncatedNormal": {},
        "VarianceScaling": {},
        "Orthogonal": {},
    }
    cases = [(name, arguments) for name, arguments in drawn.items()]
    cases += [
        ("VarianceScaling", {"scale": 2.0, "mode": mode, "distribution": distribution})
        for mode in ("fan_in", "fan_out", "fan_avg")
        for distribution in ("truncated_normal", "untruncated_normal", "uniform")
    ]
    cases += [
        ("RandomUniform", {"minval": -1.0, "maxval": 3.0}),
        ("RandomNormal", {"mean": 2.0, "stddev": 0.5}),
        ("TruncatedNormal", {"mean": 2.0, "stddev": 0.5}),
    ]
    results = []
    for name, arguments in cases:
        for shape in shapes[:3] if name == "Orthogonal" else shapes:
            sample = numbers(getattr(initializers, name)(seed=1, **arguments)(shape)).astype(np.float64)
            entry = {
                "class_name": name,
                "arguments": arguments,
                "shape": shape,
                "min": sample.min(),
                "max": sample.max(),
                "mean": sample.mean(),
                "std": sample.std(),
            }
            if name == "Orthogonal":
                flat = sample.reshape(-1, shape[-1])
                gram = flat.T @ flat if flat.shape[0] >= flat.shape[1] else flat @ flat.T
                entry = {
                    "class_name": name,
                    "arguments": arguments,
                    "shape": shape,
                    "orthogonal": "columns" if flat.shape[0] >= flat.shape[1] else "rows",
                    "gram_diagonal": round(float(np.diag(gram).mean()), 5),
                }
            results.append(
                {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in entry.items()}
            )
    exact = [("Zeros", {}), ("Ones", {}), ("Constant", {"value": 0.25}), ("Identity", {}), ("Identity", {"gain": 2.0})]
    names = (
        "zeros ones identity random_uniform random_normal truncated_normal variance_scaling glorot_uniform "
        "glorot_normal he_uniform he_normal lecun_uniform lecun_normal orthogonal"
    ).split()
    return {
        "fans": [
            {"shape": shape, "fan_in_out": [int(fan) for fan in compute_fans(shape)]}
            for shape in [(), (7,), (4, 6), (3, 4, 6), (3, 3, 4, 6), (2, 3, 4, 5, 6)]
        ],
        "drawn": results,
        "exact": [
            {
                "class_name": name,
                "arguments": arguments,
                "shape": (3, 4) if name == "Identity" else (2, 3),
                "value": numbers(getattr(initializers, name)(**arguments)((3, 4) if name == "Identity" else (2, 3))),
            }
            for name, arguments in exact
        ],
        "by_name": {name: serialized(initializers.get(name)) for name in names},
    }


# ---------------------------------------------------------------------------------------------- configurations

REQUIRED = {  # arguments without which a class cannot be made
    "Dense": [4],
    "EinsumDense": ["ab,bc->ac", 4],
    "Embedding": [5, 4],
    "ReversibleEmbedding": [5, 4],
    "Activation": ["relu"],
    "Conv1D": [4, 3],
    "Conv2D": [4, 3],
    "Conv3D": [4, 3],
    "Conv1DTranspose": [4, 3],
    "Conv2DTranspose": [4, 3],
    "Conv3DTranspose": [4, 3],
    "DepthwiseConv1D": [3],
    "DepthwiseConv2D": [3],
    "SeparableConv1D": [4, 3],
    "SeparableConv2D": [4, 3],
    "Reshape": [(2, 3)],
    "Permute": [(2, 1)],
    "RepeatVector": [3],
    "Rescaling": [0.5],
    "Dropout": [0.5],
    "SpatialDropout1D": [0.5],
    "SpatialDropout2D": [0.5],
    "SpatialDropout3D": [0.5],
    "GaussianNoise": [0.1],
    "GaussianDropout": [0.1],
    "AlphaDropout": [0.1],
    "MultiHeadAttention": [2, 3],
    "GroupQueryAttention": [3, 4, 2],
    "SimpleRNN": [4],
    "LSTM": [4],
    "GRU": [4],
    "SimpleRNNCell": [4],
    "LSTMCell": [4],
    "GRUCell": [4],
    "ConvLSTM1D": [4, 3],
    "ConvLSTM2D": [4, 3],
    "ConvLSTM3D": [4, 3],
    "Dot": [1],
    "AveragePooling1D": [2],
    "AveragePooling2D": [2],
    "AveragePooling3D": [2],
    "CenterCrop": [4, 5],
    "Resizing": [4, 5],
    "RandomCrop": [4, 5],
    "RandomRotation": [0.1],
    "RandomZoom": [0.1],
    "RandomTranslation": [0.1, 0.2],
    "RandomContrast": [0.1],
    "RandomBrightness": [0.1],
    "RandomHue": [0.1],
    "RandomSaturation": [0.1],
    "RandomSharpness": [0.1],
    "RandomPosterization": [4],
    "RandomColorDegeneration": [0.5],
    "RandomErasing": [],
    "Hashing": [3],
    "HashedCrossing": [3],
    "CategoryEncoding": [3],
    "Discretization": [[0.0, 1.0]],
    "AdaptiveAveragePooling1D": [2],
    "AdaptiveAveragePooling2D": [2],
    "AdaptiveAveragePooling3D": [2],
    "AdaptiveMaxPooling1D": [2],
    "AdaptiveMaxPooling2D": [2],
    "AdaptiveMaxPooling3D": [2],
    "MaxNumBoundingBoxes": [4],
    "MeanIoU": [4],
    "IoU": [4, [0]],
    "OneHotIoU": [4, [0]],
    "OneHotMeanIoU": [4],
    "PrecisionAtRecall": [0.5],
    "RecallAtPrecision": [0.5],
    "SensitivityAtSpecificity": [0.5],
    "SpecificityAtSensitivity": [0.5],
    "ExponentialDecay": [0.1, 10, 0.5],
    "CosineDecay": [0.1, 10],
    "CosineDecayRestarts": [0.1, 10],
    "PiecewiseConstantDecay": [[5, 10], [0.1, 0.2, 0.3]],
    "PolynomialDecay": [0.1, 10],
    "InverseTimeDecay": [0.1, 10, 0.5],
}
WRAPPED = {
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(4)),
    "TimeDistributed": lambda: layers.TimeDistributed(layers.Dense(4)),
    "SpectralNormalization": lambda: layers.SpectralNormalization(layers.Dense(4)),
    "RNN": lambda: layers.RNN(layers.LSTMCell(4)),
    "StackedRNNCells": lambda: layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(3)]),
    "LossScaleOptimizer": lambda: optimizers.LossScaleOptimizer(optimizers.Adam()),
    "Input": lambda: layers.InputLayer((4,)),
    "InputLayer": lambda: layers.InputLayer((4,)),
}
ABSTRACT = {
    "Layer",
    "Loss",
    "Metric",
    "Optimizer",
    "Wrapper",
    "Initializer",
    "Regularizer",
    "Constraint",
    "LearningRateSchedule",
    "InputSpec",
    "Lambda",
    "TFSMLayer",
    "JaxLayer",
    "FlaxLayer",
    "TorchModuleWrapper",
    "MeanMetricWrapper",
    "Pipeline",
    "MultiOptimizer",
    "OptimizerMap",
}


def configurations_of(module):
    result = {}
    for name in sorted(dir(module)):
        kind = getattr(module, name)
        # A class has aliases; it is recorded under the name that its own configuration uses.
        if not inspect.isclass(kind) or name in ABSTRACT or not name[0].isupper():
            continue
        make = WRAPPED.get(name, lambda: kind(*REQUIRED.get(kind.__name__, REQUIRED.get(name, []))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entry = fresh(lambda: serialized(make()))
        result[entry["class_name"]] = entry
    return result


@values
def configurations():
    """Everything serialised with its default arguments."""
    return {
        "layers": configurations_of(layers),
        "losses": configurations_of(losses),
        "metrics": configurations_of(metrics),
        "optimizers": configurations_of(optimizers),
        "schedules": configurations_of(optimizers.schedules),
        "initializers": configurations_of(initializers),
        "regularizers": configurations_of(keras.regularizers),
        "constraints": configurations_of(keras.constraints),
        "required_arguments": {name: arguments for name, arguments in REQUIRED.items() if arguments},
    }


def classes_of(module):
    """Every public class, under each of its public names; functions' spellings (`zeros`) are left out."""
    return sorted(name for name, kind in vars(module).items() if inspect.isclass(kind) and name[0].isupper())


@values
def public_names():
    """The public classes of Keras' modules."""
    return {
        "layers": classes_of(layers),
        "losses": classes_of(losses),
        "metrics": classes_of(metrics),
        "optimizers": classes_of(optimizers),
        "schedules": classes_of(optimizers.schedules),
        "initializers": classes_of(initializers),
        "regularizers": classes_of(keras.regularizers),
        "constraints": classes_of(keras.constraints),
        "callbacks": classes_of(keras.callbacks),
    }


def arguments_of(function):
    return [name for name, parameter in inspect.signature(function).parameters.items()
            if name != "self" and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]


def signatures_of(module):
    return {name: arguments_of(getattr(module, name).__init__) for name in classes_of(module)
            if hasattr(module, name)}


@values
def signatures():
    """The arguments of Keras' classes and of a model's methods, in the order of their signatures."""
    return {
        "layers": signatures_of(layers),
        "losses": signatures_of(losses),
        "metrics": signatures_of(metrics),
        "optimizers": signatures_of(optimizers),
        "schedules": signatures_of(optimizers.schedules),
        "initializers": signatures_of(initializers),
        "regularizers": signatures_of(keras.regularizers),
        "constraints": signatures_of(keras.constraints),
        "callbacks": signatures_of(keras.callbacks),
        "model": {name: arguments_of(getattr(keras.Model, name))
                  for name in ("compile", "evaluate", "fit", "predict", "summary")} | {"Input": arguments_of(keras.Input)},
    }


# ---------------------------------------------------------------------------------------------- models: names, summary


def small_models():
    """Models whose names, paths and summaries are recorded, with what compiles each (or nothing)."""

    def sequential():
        return keras.Sequential(
            [layers.Input((784,)), layers.Dense(128, activation="relu"), layers.Dropout(0.2), layers.Dense(10)]
        )

    def sequential_unbuilt():
        return keras.Sequential([layers.Dense(8), layers.Dense(2)])

    def convolutional():
        return keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10, activation="softmax"),
            ],
            name="classifier",
        )

    def functional():
        left, right = layers.Input((16,), name="left"), layers.Input((8,), name="right")
        x = layers.Concatenate()([layers.Dense(4)(left), layers.Dense(4)(right)])
        shared = layers.Dense(8, name="a_layer_with_a_name_that_is_too_long_for_its_column")
        return keras.Model([left, right], [layers.Dense(1, name="score")(shared(x)), shared(x) + x])

    def nested():
        block = keras.Sequential([layers.Input((4,)), layers.Dense(8), layers.Dense(4)], name="block")
        inner_input = layers.Input((4,))
        inner = keras.Model(inner_input, layers.Dense(3)(inner_input), name="inner")
        inputs = layers.Input((4,))
        return keras.Model(inputs, inner(block(inputs)), name="outer")

    def sequential_nested_unbuilt():
        inner = keras.Sequential([layers.Dense(3), layers.Dense(2)], name="inner")
        return keras.Sequential([layers.Input((4,)), inner, layers.Dense(1)])

    def recurrent():
        inputs = layers.Input((None,), dtype="int32")
        x = layers.Embedding(1000, 16, mask_zero=True)(inputs)
        x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
        x = layers.Bidirectional(layers.GRU(8))(x)
        return keras.Model(inputs, layers.Dense(1)(x))

    def attention():
        inputs = layers.Input((10, 16))
        x = layers.MultiHeadAttention(2, 8)(inputs, inputs)
        x = layers.LayerNormalization()(inputs + x)
        x = layers.GroupQueryAttention(4, 4, 2)(x, x)
        return keras.Model(inputs, layers.GlobalAveragePooling1D()(x))

    def wrapped():
        return keras.Sequential(
            [
                layers.Input((3, 8, 8, 2)),
                layers.TimeDistributed(layers.SeparableConv2D(4, 3)),
                layers.TimeDistributed(layers.Flatten()),
                layers.SimpleRNN(5),
                layers.PReLU(),
                layers.SpectralNormalization(layers.Dense(2)),
            ]
        )

    def frozen():
        model = sequential()
        model.layers[0].trainable = False
        return model

    return {
        function.__name__: function
        for function in (
            sequential,
            sequential_unbuilt,
            convolutional,
            functional,
            nested,
            sequential_nested_unbuilt,
            recurrent,
            attention,
            wrapped,
            frozen,
        )
    }


def summary_of(model, **arguments):
    lines = []
    model.summary(line_length=80, print_fn=lambda line, line_break=True: lines.append(line), **arguments)
    return "\n".join(lines)


@values
def summaries():
    """summary() of models, 80 columns wide, as Keras prints it."""
    result = {name: fresh(lambda: summary_of(make())) for name, make in small_models().items()}

    def compiled(optimizer):
        model = small_models()["convolutional"]()
        model.compile(optimizer, "sparse_categorical_crossentropy")
        model.optimizer.build(model.trainable_variables)
        return summary_of(model)

    result["convolutional_adam"] = fresh(lambda: compiled("adam"))
    result["convolutional_sgd"] = fresh(lambda: compiled("sgd"))
    result["nested_expanded"] = fresh(lambda: summary_of(small_models()["nested"](), expand_nested=True))
    result["frozen_trainable"] = fresh(lambda: summary_of(small_models()["frozen"](), show_trainable=True))
    return result


@values
def paths():
    """Paths of the weights of models, in order, in code and read back from JSON, and the models' JSON."""
    result = {}
    for name, make in small_models().items():
        model = fresh(make)
        if name == "sequential_unbuilt":
            model.build((None, 4))
        entry = {"model": serialized(model), "in_code": [[weight.path, list(weight.shape)] for weight in model.weights]}
        again = fresh(lambda: keras.models.model_from_json(model.to_json()))
        entry["from_json"] = [weight.path for weight in again.weights]
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        entry["adam"] = [variable.path for variable in model.optimizer.variables]
        result[name] = entry
    return result


@values
def names():
    """Automatic names: of layers in the order in which they are made, of class names, and of models."""
    made = fresh(
        lambda: [
            getattr(layers, kind)(*REQUIRED.get(kind, [])).name
            for kind in (
                "Dense Dense Conv2D Dense Conv2D Conv1DTranspose LSTM LSTM MultiHeadAttention BatchNormalization "
                "Activation ReLU "
                "PReLU ELU LeakyReLU UpSampling2D ZeroPadding2D GlobalAveragePooling2D SeparableConv2D "
                "DepthwiseConv2D GRU SimpleRNN "
                "EinsumDense RMSNormalization GroupQueryAttention MaxPooling2D AveragePooling1D Add Dot Flatten Dense"
            ).split()
        ]
    )
    models = fresh(
        lambda: [
            keras.Sequential().name,
            keras.Sequential().name,
            small_models()["nested"]().name,
            small_models()["functional"]().name,
            small_models()["attention"]().name,
        ]
    )
    tensors = fresh(lambda: [layers.Input((2,)).name, layers.Input((2,)).name, (layers.Input((2,)) + 1.0).name])
    snake = [
        keras.src.utils.naming.to_snake_case(name)
        for name in (
            "Dense",
            "Conv2D",
            "Conv2DTranspose",
            "LSTM",
            "GRU",
            "PReLU",
            "ReLU",
            "UpSampling2D",
            "GroupQueryAttention",
            "MyHTTPLayer",
            "Layer2D3",
            "RMSNormalization",
            "SimpleRNN",
        )
    ]
    metric_names = {
        name: (lambda metric: getattr(metric, "name", None) or metric.__name__)(metrics.get(name))
        for name in (
            "mse",
            "mae",
            "mape",
            "msle",
            "bce",
            "binary_accuracy",
            "categorical_accuracy",
            "cosine_similarity",
            "hinge",
            "auc",
            "precision",
            "kl_divergence",
            "poisson",
            "root_mean_squared_error",
        )
    }
    return {"layers": made, "models": models, "tensors": tensors, "snake_case": snake, "metrics": metric_names}


# ---------------------------------------------------------------------------------------------- preprocessing, data


@values
def preprocessing():
    """Preprocessing layers; the random ones with their ranges closed to one value."""
    generator = np.random.default_rng(9)
    image = np.round(generator.uniform(0, 255, (1, 6, 5, 3))).astype(np.float32)
    plane = np.arange(30, dtype=np.float32).reshape(1, 6, 5, 1)
    cases = [
        ("Resizing", {"height": 3, "width": 4}),
        ("Resizing", {"height": 9, "width": 7}),
        ("Resizing", {"height": 9, "width": 7, "interpolation": "nearest"}),
        ("Resizing", {"height": 3, "width": 3, "interpolation": "nearest"}),
        ("Resizing", {"height": 8, "width": 6, "interpolation": "bicubic"}),
        ("Resizing", {"height": 3, "width": 3, "crop_to_aspect_ratio": True}),
        ("Resizing", {"height": 4, "width": 8, "pad_to_aspect_ratio": True, "fill_value": 7.0}),
        ("CenterCrop", {"height": 3, "width": 2}),
        ("CenterCrop", {"height": 4, "width": 5}),
        ("CenterCrop", {"height": 8, "width": 8}),
        ("Rescaling", {"scale": 1 / 127.5, "offset": -1.0}),
        ("RandomFlip", {"mode": "horizontal_and_vertical"}, False),
        ("RandomCrop", {"height": 4, "width": 3}, False),
        ("RandomRotation", {"factor": (0.0, 0.0)}),
        ("RandomRotation", {"factor": (0.25, 0.25)}),
        ("RandomRotation", {"factor": (0.1, 0.1), "fill_mode": "constant", "fill_value": 9.0}),
        ("RandomRotation", {"factor": (0.1, 0.1), "fill_mode": "nearest", "interpolation": "nearest"}),
        ("RandomZoom", {"height_factor": (0.2, 0.2)}),
        ("RandomZoom", {"height_factor": (-0.3, -0.3), "width_factor": (0.1, 0.1)}),
        ("RandomZoom", {"height_factor": (0.5, 0.5), "fill_mode": "constant", "fill_value": 3.0}),
        ("RandomBrightness", {"factor": (0.2, 0.2)}),
        ("RandomBrightness", {"factor": (-0.3, -0.3)}),
        ("RandomContrast", {"factor": (0.5, 0.5)}),
        ("RandomContrast", {"factor": 0.0}),
        ("RandomSaturation", {"factor": (0.8, 0.8)}),
        ("RandomHue", {"factor": (0.25, 0.25)}),
        ("RandomGrayscale", {"factor": 1.0}),
        ("Solarization", {"threshold_factor": (0.5, 0.5), "addition_factor": (0.1, 0.1)}),
    ]
    cases += [
        ("RandomTranslation", {"height_factor": (0.2, 0.2), "width_factor": (-0.4, -0.4), "fill_mode": mode})
        for mode in ("reflect", "constant", "nearest", "wrap")
    ]
    images = []
    for name, arguments, *training in cases:
        training = training[0] if training else True
        x = (
            plane
            if name in ("RandomTranslation", "RandomZoom", "RandomRotation", "RandomFlip", "RandomCrop")
            else image
        )
        make = functools.partial(getattr(layers, name), **arguments)
        layer = make(seed=1) if "seed" in inspect.signature(getattr(layers, name)).parameters else make()
        y = layer(x, training=training) if "training" in inspect.signature(layer.call).parameters else layer(x)
        images.append(
            {
                "class_name": name,
                "arguments": arguments,
                "training": training,
                "x": "plane" if x is plane else "image",
                "y": numbers(y),
            }
        )
    table = []

    def add(name, arguments, x, adapt=None):
        layer = getattr(layers, name)(**arguments)
        entry = {"class_name": name, "arguments": arguments, "adapt": adapt, "x": x}
        if adapt is not None:
            layer.adapt(np.array(adapt))
        entry["y"] = numbers(layer(np.array(x)))
        if hasattr(layer, "get_vocabulary"):
            entry["vocabulary"] = [word.item() if hasattr(word, "item") else word for word in layer.get_vocabulary()]
        if name == "Discretization":
            entry["bin_boundaries"] = [float(edge) for edge in layer.bin_boundaries]
        table.append(entry)

    for mode in ("multi_hot", "one_hot", "count"):
        add(
            "CategoryEncoding",
            {"num_tokens": 4, "output_mode": mode},
            [0, 2, 3] if mode == "one_hot" else [[0, 1], [2, 2], [3, 1]],
        )
    add("Discretization", {"bin_boundaries": [-1.0, 0.0, 2.5]}, [-5.0, -1.0, -0.5, 0.0, 1.0, 2.5, 9.0])
    add("Discretization", {"num_bins": 4}, [0.5, 3.0, 9.0], adapt=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    add("Normalization", {"axis": -1}, [[1.0, 2.0], [3.0, 5.0]], adapt=[[0.0, 1.0], [4.0, 3.0], [2.0, 8.0]])
    add("Normalization", {"axis": None}, [[1.0, 2.0], [3.0, 5.0]], adapt=[[0.0, 1.0], [4.0, 3.0], [2.0, 8.0]])
    add("Normalization", {"axis": None, "mean": 3.0, "variance": 4.0}, [[1.0, 2.0]])
    add("Normalization", {"axis": None, "mean": 3.0, "variance": 4.0, "invert": True}, [[1.0, 2.0]])
    add("IntegerLookup", {"vocabulary": [12, 36, 1138, 42]}, [[12, 1138, 42], [42, 1000, 36]])
    add("IntegerLookup", {"vocabulary": [12, 36], "output_mode": "multi_hot"}, [[12, 12], [5, 36]])
    add("IntegerLookup", {}, [[12, 7], [9, 5]], adapt=[12, 7, 7, 5, 5, 5])
    return {"image": image, "plane": plane, "images": images, "tables": table}


@values
def text():
    """Text layers: what adapt() finds and what the layers then say."""
    documents = ["The cat sat on the mat.", "A dog; the DOG!", "cat and dog", "", "a a a b"]
    queries = ["the dog sat", "A bird, the cat", ""]
    cases = [
        ("TextVectorization", {}),
        ("TextVectorization", {"max_tokens": 6}),
        ("TextVectorization", {"output_sequence_length": 4}),
        ("TextVectorization", {"standardize": "lower", "split": "whitespace"}),
        ("TextVectorization", {"standardize": None}),
        ("TextVectorization", {"standardize": "strip_punctuation"}),
        ("TextVectorization", {"split": "character", "max_tokens": 10}),
        ("TextVectorization", {"ngrams": 2, "max_tokens": 12}),
        ("TextVectorization", {"output_mode": "multi_hot"}),
        ("TextVectorization", {"output_mode": "count"}),
        ("TextVectorization", {"output_mode": "tf_idf"}),
        ("TextVectorization", {"output_mode": "count", "pad_to_max_tokens": True, "max_tokens": 15}),
    ]
    result = []
    for name, arguments in cases:
        layer = getattr(layers, name)(**arguments)
        layer.adapt(documents)
        result.append(
            {
                "class_name": name,
                "arguments": arguments,
                "vocabulary": layer.get_vocabulary(),
                "y": numbers(layer(queries)),
            }
        )
    words = ["b", "a", "c", "a", "b", "a", "d"]
    lookups = []
    for arguments, adapt in (
        ({}, words),
        ({"max_tokens": 4}, words),
        ({"num_oov_indices": 0}, words),
        ({"mask_token": ""}, words),
        ({"output_mode": "one_hot"}, words),
        ({"output_mode": "multi_hot"}, words),
        ({"output_mode": "count"}, words),
        ({"vocabulary": ["x", "y"]}, None),
        ({"vocabulary": ["x", "y"], "mask_token": "[MASK]"}, None),
    ):
        layer = layers.StringLookup(**arguments)
        if adapt:
            layer.adapt(adapt)
        x = ["a", "b"] if arguments.get("num_oov_indices") == 0 else ["a", "zz", "b", "x"]
        y = numbers(layer(x))
        lookups.append({"arguments": arguments, "adapt": adapt, "vocabulary": layer.get_vocabulary(), "x": x, "y": y})
    hashing = [
        {"num_bins": bins, "x": x, "y": numbers(layers.Hashing(bins)(np.array(x)))}
        for bins, x in ((3, ["A", "B", "C", "D", "E"]), (10, ["lockstep", "", "a longer sentence"]))
    ]
    return {"documents": documents, "queries": queries, "vectorization": result, "lookup": lookups, "hashing": hashing}


@values
def attention_scores():
    """Attention with its scores, where one query sees no key: by the mask of the keys, and by an attention mask."""
    random = np.random.RandomState(5)

    def drawn(*shape):
        return random.uniform(-1, 1, shape).astype("float32")

    query, value, key = drawn(2, 3, 4), drawn(2, 5, 4), drawn(2, 5, 4)
    # Of the second example no key counts; of the first, two do not.
    value_mask = np.array([[True, False, True, True, False], [False] * 5])
    # The second query of the first example sees nothing.
    pairs = random.uniform(size=(2, 3, 5)) > 0.4
    pairs[0, 1] = False
    cases = []
    for make, inputs, masks in (
        (lambda: layers.MultiHeadAttention(2, 3), 3, "both"),
        (lambda: layers.MultiHeadAttention(2, 3, value_dim=2, use_bias=False), 2, "both"),
        (lambda: layers.GroupQueryAttention(3, 4, 2), 3, "both"),
        (lambda: layers.Attention(), 3, "keys"),
        (lambda: layers.Attention(use_scale=True, score_mode="concat"), 2, "keys"),
        (lambda: layers.AdditiveAttention(), 3, "keys"),
    ):
        for mask in ("keys", "pairs") if masks == "both" else ("keys",):
            layer = fresh(make)
            given = [query, value, key][:inputs]
            if masks == "both":
                arguments = {"value_mask": value_mask} if mask == "keys" else {"attention_mask": pairs}
                if inputs == 3 and mask == "keys":
                    arguments["key_mask"] = value_mask
                call = functools.partial(layer, *given, **arguments)
            else:
                call = functools.partial(layer, given, mask=[None, value_mask])
            call(return_attention_scores=True)
            for weight in layer.weights:
                weight.assign(drawn(*weight.shape))
            output, scores = call(return_attention_scores=True)
            cases.append(
                {
                    "layer": serialized(layer),
                    "inputs": inputs,
                    "mask": mask,
                    "weights": [numbers(weight) for weight in layer.weights],
                    "output": numbers(output),
                    "scores": numbers(scores),
                }
            )
    return {
        "query": query,
        "value": value,
        "key": key,
        "value_mask": value_mask.astype("int32"),
        "pairs": pairs.astype("int32"),
        "cases": cases,
    }


@values
def feature_space():
    """Tables of columns by name: what keras.utils.FeatureSpace makes of them, and its configuration."""
    space_of = keras.utils.FeatureSpace
    table = {
        "age": [63.0, 67.0, 37.0, 41.0, 56.0, 62.0],
        "rate": [150.0, 108.0, 187.0, 172.0, 178.0, 160.0],
        "slope": [3.0, 2.0, 3.0, 1.0, 1.0, 3.0],
        "sugar": [0.5, 2.5, 1.5, 0.25, 0.75, 3.5],
        "sex": [1, 1, 0, 1, 0, 0],
        "code": [12, 7, 12, 12, 7, 3],
        "place": ["a", "b", "a", "c", "a", "b"],
        "word": ["fixed", "normal", "reversible", "normal", "fixed", ""],
    }
    rows = {
        "age": [50.0, 63.0, 90.0],
        "rate": [150.0, 0.0, 187.0],
        "slope": [1.0, -1.0, 2.5],
        "sugar": [0.0, 1.5, 9.0],
        "sex": [0, 1, 5],
        "code": [12, 8, 3],
        "place": ["b", "a", "zz"],
        "word": ["fixed", "other", ""],
    }

    def numpy(columns):
        return {name: np.array(column) for name, column in columns.items()}

    cases = []
    for features, arguments in (
        ({"age": "float", "rate": "float_normalized", "slope": "float_rescaled"}, {}),
        ({"age": "float_discretized", "sugar": "float_discretized"}, {"num_discretization_bins": 3}),
        ({"sex": "integer_categorical", "place": "string_categorical", "age": "float_normalized"}, {}),
        ({"code": "integer_hashed", "word": "string_hashed"}, {"hashing_dim": 7}),
        (
            {"sex": "integer_categorical", "place": "string_categorical", "sugar": "float_discretized"},
            {"crosses": [("sex", "place"), ("place", "sugar")], "crossing_dim": 6, "num_discretization_bins": 4},
        ),
        (
            {
                "slope": space_of.float_rescaled(scale=2.0, offset=-1.0),
                "sugar": space_of.float_discretized(4, output_mode="int"),
                "code": space_of.integer_categorical(max_tokens=3, num_oov_indices=2),
                "place": space_of.string_categorical(num_oov_indices=2, output_mode="int"),
                "word": space_of.string_hashed(5, output_mode="int"),
                "sex": space_of.integer_hashed(4),
            },
            {
                "output_mode": "dict",
                "crosses": [space_of.cross(("word", "place"), 9), space_of.cross(("sex", "word"), 8, output_mode="int")],
            },
        ),
    ):
        space = space_of(features, **arguments)
        unlearned = serialized(space)
        adapted = {name: table[name] for name in features}
        space.adapt(numpy(adapted))
        queries = {name: rows[name] for name in features}
        encoded = space(numpy(queries))
        first = space({name: column[0] for name, column in queries.items()})
        if not isinstance(encoded, dict):
            encoded, first = {"": encoded}, {"": first}
        cases.append(
            {
                "config": unlearned,
                "adapt": adapted,
                "rows": queries,
                "encoded": {name: np.array(value).tolist() for name, value in encoded.items()},
                "first_row": {name: np.array(value).tolist() for name, value in first.items()},
            }
        )
    return {"cases": cases}


@values
def lookups():
    """Words and categories as numbers: lookups with more settings than text.json has, and hashes."""
    words = ["b", "a", "c", "a", "b", "a", "d", "", "[UNK]"]
    strings = []
    for arguments in (
        {"num_oov_indices": 3},
        {"num_oov_indices": 3, "salt": [133, 137]},
        {"num_oov_indices": 4, "salt": 7},
        {"num_oov_indices": 2, "mask_token": ""},
        {"mask_token": "", "output_mode": "count"},
        {"output_mode": "multi_hot", "max_tokens": 8, "pad_to_max_tokens": True},
        {"output_mode": "tf_idf"},
        {"output_mode": "tf_idf", "vocabulary": ["x", "y"], "idf_weights": [0.25, 0.75]},
        {"vocabulary": ["[UNK]", "q", "a"]},
    ):
        layer = layers.StringLookup(**arguments)
        if "vocabulary" not in arguments:
            layer.adapt(words)
        queries = ["a", "zz", "", "q", "c", "a", "x"]
        rows = [["a", "b", "a"], ["c", "zz", "x"]]
        strings.append(
            {
                "arguments": arguments,
                "adapt": None if "vocabulary" in arguments else words,
                "vocabulary": layer.get_vocabulary(),
                "x": queries,
                "y": numbers(layer(queries)),
                "rows": rows,
                "of_rows": numbers(layer(rows)),
                "config": serialized(layer),
            }
        )
    ids = [12, 7, 12, 1000, 7, 12, -1, 0, -5]
    integers = []
    for arguments in (
        {},
        {"max_tokens": 4},
        {"num_oov_indices": 3},
        {"mask_token": 0},
        {"mask_token": 0, "num_oov_indices": 2},
        {"output_mode": "one_hot"},
        {"output_mode": "multi_hot", "mask_token": 0},
        {"output_mode": "count", "max_tokens": 9, "pad_to_max_tokens": True},
        {"output_mode": "tf_idf"},
        {"vocabulary": [5, 3, 9]},
        {"vocabulary": [5, 3, 9], "invert": True},
    ):
        layer = layers.IntegerLookup(**arguments)
        if "vocabulary" not in arguments:
            layer.adapt(np.array(ids))
        queries = [[0, 1, 3], [2, 9, 1]] if arguments.get("invert") else [[12, 7, 12], [3, 0, 9], [-5, 1001, 1000]]
        integers.append(
            {
                "arguments": arguments,
                "adapt": None if "vocabulary" in arguments else ids,
                "vocabulary": [int(token) for token in layer.get_vocabulary()],
                "x": queries,
                "y": numbers(layer(np.array(queries))),
                "config": serialized(layer),
            }
        )
    texts = ["", "a", "abc", "lockstep", "twelve bytes", "seventeen letters", "a text of more than thirty-two bytes",
             "x" * 63, "x" * 64, "x" * 65, "every word of this sentence makes it longer than one hundred bytes, so "
             "that the loop over blocks of sixty-four is run twice, and more", "größer €"]
    hashes = []
    for arguments, x in (
        ({"num_bins": 1000003}, texts),
        ({"num_bins": 1000003, "salt": 133}, texts),
        ({"num_bins": 1000003, "salt": [133, 137]}, texts),
        ({"num_bins": 4, "mask_value": ""}, texts),
        ({"num_bins": 3, "output_mode": "one_hot"}, ["A", "B", "C"]),
        ({"num_bins": 3, "output_mode": "count"}, ["A", "B", "C", "A"]),
        ({"num_bins": 1000003}, [[0, 1, -7], [123456789, 12, 2**31]]),
        ({"num_bins": 5, "mask_value": 12, "output_mode": "multi_hot"}, [[0, 1, -7], [123456789, 12, 12]]),
    ):
        layer = layers.Hashing(**arguments)
        hashes.append({"arguments": arguments, "x": x, "y": numbers(layer(np.array(x))), "config": serialized(layer)})
    crossings = []
    for arguments, columns in (
        ({"num_bins": 1000003}, [["A", "B", "A", "B", ""], [101, 101, 102, -1, 0]]),
        ({"num_bins": 1000003}, [["A", "B", "A"], ["x", "y", "y"], ["p", "p", "q"]]),
        ({"num_bins": 5, "output_mode": "one_hot"}, [["A", "B", "A"], [101, 101, 102]]),
    ):
        layer = layers.HashedCrossing(**arguments)
        crossings.append(
            {
                "arguments": arguments,
                "columns": columns,
                "y": numbers(layer([np.array(column) for column in columns])),
                "config": serialized(layer),
            }
        )
    return {
        "strings": strings,
        "integers": integers,
        "hashing": hashes,
        "crossing": crossings,
        "vectorization": [
            serialized(layers.TextVectorization(**arguments))
            for arguments in ({"vocabulary": ["a", "b"]}, {"vocabulary": ["a"], "ngrams": 2, "split": "character"},
                              {"vocabulary": ["a"], "output_mode": "count", "standardize": None})
        ],
    }


@values
def resizing():
    """Images in other sizes, by every interpolation, with gradients: `upstream` times the Jacobian."""
    import tensorflow as tf

    generator = np.random.default_rng(5)
    images = generator.uniform(0, 1, (2, 5, 6, 2)).astype(np.float32)
    cases = []
    for interpolation in ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"):
        for size in ((3, 4), (9, 7), (5, 13), (2, 2)):
            for antialias in (False, True):
                function = functools.partial(
                    keras.ops.image.resize, size=size, interpolation=interpolation, antialias=antialias
                )
                y, pull = jax.vjp(function, images)
                upstream = generator.normal(0, 1, y.shape).astype(np.float32)
                cases.append(
                    {
                        "arguments": {"size": size, "interpolation": interpolation, "antialias": antialias},
                        "y": y,
                        "upstream": upstream,
                        "gradient": pull(upstream)[0],
                    }
                )
    for size in ((3, 4), (9, 7), (5, 13), (2, 2)):
        y = tf.image.resize(images, size, "area").numpy()
        cases.append({"arguments": {"size": size, "interpolation": "area", "antialias": False}, "y": y})
    whole = generator.integers(0, 256, (1, 5, 6, 1)).astype(np.uint8)
    of_integers = [
        {
            "arguments": {"height": 8, "width": 9, "interpolation": interpolation},
            "y": numbers(layers.Resizing(8, 9, interpolation=interpolation)(whole)).astype(np.int32),
        }
        for interpolation in ("bilinear", "bicubic", "lanczos3")
    ]
    return {"images": images, "cases": cases, "integers": whole.astype(np.int32), "of_integers": of_integers}


@values
def datasets():
    """Order and labels of a folder of images, and windows of a time series."""
    import tensorflow as tf

    png = tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy()
    tree = [
        "b/2.png",
        "b/10.png",
        "b/1.png",
        "a/z.png",
        "a/Y.PNG",
        "a/sub/x.png",
        "C/c.jpg",
        "a/notes.txt",
        "a/.hidden.png",
        "d/9.png",
        "d/8.png",
        "d/7.png",
        "top.png",
    ]
    folders = []
    with tempfile.TemporaryDirectory() as root:
        for file in tree:
            path = pathlib.Path(root, "images", file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tf.io.encode_jpeg(np.zeros((2, 2, 3), np.uint8)).numpy() if file.endswith("jpg") else png)
        pathlib.Path(root, "images", "empty").mkdir()
        for arguments in (
            {},
            {"label_mode": "categorical"},
            {"class_names": ["b", "a", "C", "d", "empty"]},
            {"labels": None, "label_mode": None},
            {"validation_split": 0.3, "subset": "training"},
            {"validation_split": 0.3, "subset": "validation"},
            {"shuffle": True, "seed": 3},
            {"follow_links": True},
        ):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                dataset = keras.utils.image_dataset_from_directory(
                    pathlib.Path(root, "images"), image_size=(2, 2), batch_size=None, **{"shuffle": False, **arguments}
                )
            entry = {
                "arguments": arguments,
                "printed": out.getvalue(),
                "class_names": getattr(dataset, "class_names", None),
                "files": [
                    pathlib.Path(path).relative_to(pathlib.Path(root, "images")).as_posix()
                    for path in dataset.file_paths
                ],
            }
            if arguments.get("label_mode", "int"):
                if not arguments.get("shuffle"):
                    entry["labels"] = [item[1].numpy() for item in dataset]
            folders.append(entry)
    series = np.arange(12)
    windows = []
    for arguments in (
        {},
        {"sequence_stride": 2},
        {"sampling_rate": 2},
        {"start_index": 2, "end_index": 9},
        {"batch_size": 4},
        {"sequence_stride": 3, "sampling_rate": 2, "batch_size": 2},
    ):
        dataset = keras.utils.timeseries_dataset_from_array(series, series[3:], 3, **arguments)
        windows.append({"arguments": arguments, "batches": [{"x": x.numpy(), "y": y.numpy()} for x, y in dataset]})
    return {
        "tree": tree,
        "empty_folders": ["empty"],
        "image_folders": folders,
        "series": series,
        "targets": series[3:],
        "sequence_length": 3,
        "windows": windows,
    }


# ---------------------------------------------------------------------------------------------- callbacks, fit


class FakeClock:
    """A clock that advances by a fixed time at every look, so that printed times are always the same."""

    def __init__(self, step):
        self.step = step
        self.now = 1000.0

    def time(self):
        self.now += self.step
        return self.now


class InOrder(keras.callbacks.Callback):
    """Keeps Keras from calling the progress bar from another thread, which makes what is printed a matter of chance."""

    def on_train_batch_end(self, batch, logs=None):
        pass

    def on_test_batch_end(self, batch, logs=None):
        pass


@contextlib.contextmanager
def clocked(step=1.0):
    """Captures what is printed, under a fake clock."""
    module = sys.modules["keras.src.utils.progbar"]
    real, module.time = module.time, FakeClock(step)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            yield out
    finally:
        module.time = real


@values
def callbacks():
    """What ReduceLROnPlateau, EarlyStopping and ModelCheckpoint do for given sequences of a monitored value."""
    falling_then_flat = [1.0, 0.8, 0.7, 0.7, 0.69995, 0.71, 0.72, 0.7, 0.65, 0.66, 0.67, 0.68, 0.69, 0.7, 0.71]
    rising = [0.1, 0.3, 0.2, 0.25, 0.3, 0.31, 0.3, 0.29, 0.28]

    def model_of():
        model = keras.Sequential([layers.Input((1,)), layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        model.compile(optimizers.SGD(0.1), "mse")
        model.stop_training = False
        return model

    def trace(callback, sequence, monitor):
        model = model_of()
        callback.set_model(model)
        epochs = []
        with contextlib.redirect_stdout(io.StringIO()) as out:
            callback.on_train_begin()
            for epoch, value in enumerate(sequence):
                model.layers[0].kernel.assign([[float(epoch)]])  # so that restored weights tell their epoch
                logs = {monitor: value}
                callback.on_epoch_begin(epoch, logs)
                callback.on_epoch_end(epoch, logs)
                epochs.append(
                    {
                        "learning_rate": np.float32(
                            model.optimizer.learning_rate.numpy()
                            if hasattr(model.optimizer.learning_rate, "numpy")
                            else model.optimizer.learning_rate
                        ),
                        "logs": logs,
                        "stop": bool(model.stop_training),
                    }
                )
                if model.stop_training:
                    break
            callback.on_train_end()
        return {
            "epochs": epochs,
            "weights_of_epoch": int(numbers(model.layers[0].kernel)[0, 0]),
            "printed": out.getvalue(),
        }

    cases = []
    for name, arguments, sequence in (
        ("ReduceLROnPlateau", {"monitor": "val_loss", "patience": 2, "factor": 0.5, "verbose": 1}, falling_then_flat),
        (
            "ReduceLROnPlateau",
            {"monitor": "val_loss", "patience": 1, "factor": 0.1, "cooldown": 2, "min_lr": 0.0005, "verbose": 1},
            falling_then_flat,
        ),
        (
            "ReduceLROnPlateau",
            {"monitor": "val_accuracy", "mode": "max", "patience": 2, "min_delta": 0.02, "factor": 0.5},
            rising,
        ),
        ("EarlyStopping", {"monitor": "val_loss", "verbose": 1}, falling_then_flat),
        ("EarlyStopping", {"monitor": "val_loss", "patience": 3, "verbose": 1}, falling_then_flat),
        (
            "EarlyStopping",
            {"monitor": "val_loss", "patience": 5, "min_delta": 0.01, "restore_best_weights": True, "verbose": 1},
            falling_then_flat,
        ),
        ("EarlyStopping", {"monitor": "val_accuracy", "patience": 2, "restore_best_weights": True}, rising),
        ("EarlyStopping", {"monitor": "val_loss", "baseline": 0.75, "patience": 2, "verbose": 1}, falling_then_flat),
        (
            "EarlyStopping",
            {"monitor": "val_loss", "start_from_epoch": 6, "patience": 1, "verbose": 1},
            falling_then_flat,
        ),
        (
            "EarlyStopping",
            {"monitor": "val_loss", "patience": 20, "restore_best_weights": True, "verbose": 1},
            falling_then_flat,
        ),
    ):
        # min_delta and the mode "auto" look at the monitored metric's name.
        callback = getattr(keras.callbacks, name)(**arguments)
        if arguments["monitor"] == "val_accuracy" and "mode" not in arguments:
            arguments = {**arguments, "mode": "max"}
            callback = getattr(keras.callbacks, name)(**arguments)
        entry = {
            "class_name": name,
            "arguments": arguments,
            "sequence": sequence,
            **trace(callback, sequence, arguments["monitor"]),
        }
        if name == "EarlyStopping":
            entry |= {
                "stopped_epoch": callback.stopped_epoch,
                "best_epoch": callback.best_epoch,
                "best": float(callback.best),
            }
        cases.append(entry)

    checkpoints = []
    for arguments, file in (
        ({}, "w.weights.h5"),
        ({}, "w-{epoch:02d}-{val_loss:.2f}.weights.h5"),
        ({"save_best_only": True}, "b-{epoch}.weights.h5"),
        ({"save_freq": 3}, "f-{epoch}-{batch}.weights.h5"),
        ({"save_best_only": True, "initial_value_threshold": 0.75}, "t-{epoch}.weights.h5"),
    ):
        with tempfile.TemporaryDirectory() as root:
            callback = keras.callbacks.ModelCheckpoint(
                os.path.join(root, file), save_weights_only=True, monitor="val_loss", verbose=1, **arguments
            )
            callback.set_model(model_of())
            saved = []
            with contextlib.redirect_stdout(io.StringIO()) as out:
                for epoch, value in enumerate(falling_then_flat[:6]):
                    callback.on_epoch_begin(epoch)
                    for batch in range(2):
                        callback.on_train_batch_end(batch, {"val_loss": value})
                    callback.on_epoch_end(epoch, {"val_loss": value})
                    saved.append(sorted(os.listdir(root)))
            checkpoints.append(
                {
                    "arguments": arguments,
                    "file": file,
                    "sequence": falling_then_flat[:6],
                    "batches_per_epoch": 2,
                    "files_after_each_epoch": saved,
                    "printed": out.getvalue().replace(root + "/", ""),
                }
            )

    scheduler = []
    for verbose in (0, 1):
        model = model_of()
        callback = keras.callbacks.LearningRateScheduler(
            lambda epoch, rate: rate * 0.5 if epoch % 2 else rate, verbose=verbose
        )
        callback.set_model(model)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            rates = []
            for epoch in range(4):
                callback.on_epoch_begin(epoch)
                logs = {"loss": 1.0}
                callback.on_epoch_end(epoch, logs)
                rates.append(np.float32(logs["learning_rate"]))
        scheduler.append(
            {"verbose": verbose, "rule": "rate halves at odd epochs", "learning_rate": rates, "printed": out.getvalue()}
        )
    return {"traces": cases, "checkpoints": checkpoints, "scheduler": scheduler}


@values
def progress():
    """Text of the progress bar for given updates, under a clock that advances by `clock_step` at each look."""
    cases = []
    for target, updates, step, arguments in (
        (3, [(1, [("loss", 0.5)]), (2, [("loss", 0.25)]), (3, [("loss", 0.125), ("accuracy", 0.75)])], 1.0, {}),
        (
            3,
            [(1, [("loss", 0.5)]), (2, [("loss", 0.25)]), (3, [("loss", 1e-5), ("accuracy", 0.75)])],
            0.25,
            {"stateful_metrics": ["loss", "accuracy"]},
        ),
        (100, [(1, [("loss", 123456.0)]), (50, [("loss", 1.5)]), (100, [("loss", 2e-4)])], 40.0, {}),
        (1000, [(1, [("loss", 1.0)]), (999, [("loss", 1.0)]), (1000, [("loss", 1.0)])], 4000.0, {}),
        (None, [(1, [("loss", 1.0)]), (2, [("loss", 0.5)])], 0.001, {}),
        (None, [(1, [("loss", 1.0)]), (2, [("loss", 0.5)])], 1.0, {}),
        (4, [(1, [("loss", 1.0)]), (4, [("loss", 0.5), ("val_loss", 0.75)])], 1.0, {"verbose": 2}),
        (4, [(1, [("loss", 1.0)]), (4, [("loss", 0.0), ("val_loss", -0.0005)])], 0.01, {"verbose": 2}),
        (5, [(1, []), (3, []), (5, [])], 1.0, {"unit_name": "sample", "width": 10}),
    ):
        with clocked(step) as out:
            bar = keras.utils.Progbar(target, **arguments)
            for position, (current, pairs) in enumerate(updates):
                bar.update(current, pairs, finalize=position == len(updates) - 1)
        cases.append(
            {
                "target": target,
                "updates": updates,
                "clock_step": step,
                "arguments": arguments,
                "printed": out.getvalue(),
            }
        )
    return {"bars": cases}


@values
def fit():
    """fit() of small models on arrays without shuffling: History, what is printed, CSVLogger's file."""
    generator = np.random.default_rng(11)
    x = generator.normal(0, 1, (11, 3)).astype(np.float32)
    y = generator.integers(0, 2, (11, 1)).astype(np.float32)
    weight = generator.uniform(0, 2, 11).astype(np.float32)

    def model_of():
        model = keras.Sequential(
            [layers.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(1, activation="sigmoid")]
        )
        model.compile(optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy"], weighted_metrics=["mae"])
        return model

    model = fresh(model_of)
    initial = {weight.path: numbers(weight) for weight in model.weights}
    cases = []
    for arguments in (
        {"epochs": 3, "batch_size": 4},
        {"epochs": 3, "batch_size": 4, "validation_split": 0.3},
        {"epochs": 2, "batch_size": 4, "validation_split": 0.3, "validation_freq": 2},
        {"epochs": 3, "initial_epoch": 1, "batch_size": 5},
        {"epochs": 2, "batch_size": 4, "steps_per_epoch": 2},
        {"epochs": 2, "batch_size": 3, "validation_split": 0.2, "sample_weight": True},
        {"epochs": 2, "batch_size": 4, "class_weight": {0: 0.5, 1: 2.0}},
        {"epochs": 2, "batch_size": 4, "validation_data": True, "validation_batch_size": 2},
    ):
        entry = {"arguments": arguments}
        given = dict(arguments)
        if given.get("sample_weight"):
            given["sample_weight"] = weight
        if given.get("validation_data"):
            given["validation_data"] = (x[:5] * 0.5, y[:5])
        for verbose in (0, 2, 1):
            model = fresh(model_of)
            for variable in model.weights:
                variable.assign(initial[variable.path])
            with tempfile.TemporaryDirectory() as root, clocked() as out, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                log = os.path.join(root, "log.csv")
                history = model.fit(
                    x, y, shuffle=False, verbose=verbose, callbacks=[keras.callbacks.CSVLogger(log), InOrder()], **given
                )
                # newline="": the file's own line ends.
                csv = open(log, newline="", encoding="utf-8").read()
            if verbose:
                entry[f"verbose_{verbose}"] = out.getvalue()
        entry["epoch"] = history.epoch
        entry["history"] = {name: [np.float32(value) for value in series] for name, series in history.history.items()}
        entry["csv"] = csv
        entry["final"] = {variable.path: numbers(variable) for variable in model.weights}
        cases.append(entry)
    model = fresh(model_of)
    for variable in model.weights:
        variable.assign(initial[variable.path])
    evaluations = []
    for arguments in ({"batch_size": 4}, {"batch_size": 4, "return_dict": True}):
        for verbose in (1, 2):
            with clocked() as out:
                result = model.evaluate(x, y, verbose=verbose, callbacks=[InOrder()], **arguments)
            evaluations.append(
                {
                    "arguments": {**arguments, "verbose": verbose},
                    "result": result if isinstance(result, dict) else list(result),
                    "printed": out.getvalue(),
                }
            )
    return {
        "model": serialized(fresh(lambda: keras.models.clone_model(model))),
        "compile": model.get_compile_config(),
        "x": x,
        "y": y,
        "sample_weight": weight,
        "validation_data": "the first five rows: half of x, and y",
        "initial": initial,
        "fits": cases,
        "evaluations": evaluations,
    }


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:] or ["*"]
    for name, define in FILES.items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in wanted):
            content = fresh(define)
            fixture_files.write_json(
                FOLDER / f"{name}.json",
                {
                    "about": define.__doc__,
                    "recorded_with": f"keras {keras.__version__}, {keras.backend.backend()} backend",
                    **content,
                },
            )
            print(f"{name}: {(FOLDER / f'{name}.json').stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
