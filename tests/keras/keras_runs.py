"""The runs that record_keras_runs.py records: RUNS maps a name to a function from Data to what is trained.

Rules that keep a run reproducible by another implementation: random layers have rate 0; no bias stands in front of a
batch normalisation, and no key bias in front of an attention's softmax unless plain SGD trains it (their gradients
are rounding noise, which Adam would scale up); everything is small.
"""

import itertools

import keras
import numpy as np
from keras import layers, losses, metrics, ops, optimizers, regularizers
from keras.optimizers import schedules

RUNS = {}


class Data:
    """Random examples: `batches` batches of `batch_size`."""

    def __init__(self, generator, batches, batch_size=6):
        self.generator = generator
        self.batches = batches
        self.batch_size = batch_size

    def _shape(self, shape):
        return (self.batches * self.batch_size, *np.atleast_1d(np.array(shape, int)))

    def normal(self, *shape):
        return self.generator.standard_normal(self._shape(shape)).astype(np.float32)

    def uniform(self, *shape, low=0.0, high=1.0):
        return self.generator.uniform(low, high, self._shape(shape)).astype(np.float32)

    def ints(self, *shape, low=0, high=2):
        return self.generator.integers(low, high, self._shape(shape)).astype(np.int32)

    def bits(self, *shape):
        return self.ints(*shape).astype(np.float32)

    def one_hot(self, classes, *shape):
        return np.eye(classes, dtype=np.float32)[self.ints(*shape, high=classes)]


def run(define):
    """Adds a run under the function's name."""
    add(define.__name__, define)
    return define


def add(name, define, covers=None):
    if name in RUNS:
        raise ValueError(f"two runs are called {name}")
    if covers:
        define.__doc__ = covers
    RUNS[name] = define


def training(data, model, x, y, optimizer=None, loss="mse", sample_weight=None, class_weight=None, **compile_arguments):
    """What a definition returns; plain SGD and mean squared error unless told otherwise."""
    return {"model": model, "x": x, "y": y, "batch_size": data.batch_size, "sample_weight": sample_weight,
            "class_weight": class_weight,
            "compile": {"optimizer": optimizer or optimizers.SGD(0.05), "loss": loss, **compile_arguments}}


def mlp(outputs, activation=None, inputs=5, **arguments):
    return keras.Sequential([layers.Input((inputs,)), layers.Dense(8, activation="tanh", **arguments),
                             layers.Dense(outputs, activation=activation)])


# ---------------------------------------------------------------------------------------------- first steps


@run
def dense_adam_sparse(data):
    """Sequential, Dense, Adam, SparseCategoricalCrossentropy(from_logits), accuracy by shape (sparse)."""
    model = keras.Sequential([layers.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    return training(data, model, data.normal(5), data.ints(high=4), optimizers.Adam(0.01),
                    losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


@run
def dense_sgd_mse(data):
    """Sequential, Dense, SGD, the loss and metric given by their short names."""
    return training(data, mlp(3), data.normal(5), data.normal(3), "sgd", "mse", metrics=["mae"])


@run
def dense_adam_binary(data):
    """A sigmoid unit, BinaryCrossentropy on probabilities, accuracy by shape (binary), labels of shape (B,)."""
    return training(data, mlp(1, "sigmoid"), data.normal(5), data.bits(), "adam", "binary_crossentropy",
                    metrics=["accuracy"])


@run
def dense_softmax_categorical(data):
    """softmax output, CategoricalCrossentropy on probabilities, accuracy by shape (categorical)."""
    return training(data, mlp(4, "softmax"), data.normal(5), data.one_hot(4), optimizers.Adam(0.01),
                    "categorical_crossentropy", metrics=["accuracy"])


@run
def dense_no_bias_names(data):
    """Named layers and model, use_bias=False, Dropout(0), an odd batch size."""
    data.batch_size = 7
    model = keras.Sequential([layers.Input((5,), name="features"),
                              layers.Dense(6, use_bias=False, activation="relu", name="hidden"),
                              layers.Dropout(0.0), layers.Dense(2, name="head")], name="small_net")
    return training(data, model, data.normal(5), data.normal(2), optimizers.Adam(0.01), "mae",
                    metrics=[metrics.MeanSquaredError(name="squared")])


@run
def functional_residual(data):
    """Functional model with a skip connection: Add, Concatenate, Activation."""
    x = inputs = layers.Input((6,))
    x = layers.Dense(6, activation="tanh")(x)
    x = layers.Add()([x, inputs])
    x = layers.Concatenate()([layers.Activation("sigmoid")(x), inputs])
    model = keras.Model(inputs, layers.Dense(2)(x))
    return training(data, model, data.normal(6), data.normal(2), optimizers.Adam(0.01))


@run
def functional_two_inputs(data):
    """Two named inputs, a layer shared by both, Subtract and Multiply."""
    left, right = layers.Input((4,), name="left"), layers.Input((4,), name="right")
    shared = layers.Dense(5, activation="tanh", name="shared")
    a, b = shared(left), shared(right)
    x = layers.Concatenate()([layers.Subtract()([a, b]), layers.Multiply()([a, b])])
    model = keras.Model([left, right], layers.Dense(1, activation="sigmoid")(x))
    return training(data, model, [data.normal(4), data.normal(4)], data.bits(1), optimizers.Adam(0.01),
                    losses.BinaryCrossentropy(), metrics=["accuracy", metrics.AUC(num_thresholds=11)])


@run
def functional_two_outputs(data):
    """Two outputs with a dict of losses, loss weights and metrics by output name."""
    inputs = layers.Input((5,), name="features")
    x = layers.Dense(7, activation="relu", name="trunk")(inputs)
    model = keras.Model(inputs, [layers.Dense(3, activation="softmax", name="kind")(x),
                                 layers.Dense(2, name="size")(x)])
    return training(data, model, data.normal(5), [data.ints(high=3), data.normal(2)], optimizers.Adam(0.01),
                    {"kind": "sparse_categorical_crossentropy", "size": losses.Huber(delta=0.5)},
                    loss_weights={"kind": 0.4, "size": 2.0}, metrics={"kind": ["accuracy"], "size": ["mae", "mse"]})


@run
def functional_nested(data):
    """A Sequential inside a functional model, used twice, and a functional model inside another."""
    block = keras.Sequential([layers.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(4)], name="block")
    inner_inputs = layers.Input((4,))
    inner = keras.Model(inner_inputs, layers.Dense(3, activation="relu", name="inner_dense")(inner_inputs),
                        name="inner")
    inputs = layers.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(inner(block(block(inputs)))), name="outer")
    return training(data, model, data.normal(4), data.normal(2), optimizers.SGD(0.1, momentum=0.9))


@run
def sample_weights(data):
    """Sample weights with sum_over_batch_size, in a metric and in a weighted metric."""
    return training(data, mlp(2), data.normal(5), data.normal(2), optimizers.SGD(0.1), losses.MeanSquaredError(),
                    sample_weight=data.uniform(high=2.0), metrics=["mae"], weighted_metrics=["mae", "mse"])


# ---------------------------------------------------------------------------------------------- optimizers

OPTIMIZERS = {
    "sgd_momentum": lambda: optimizers.SGD(0.05, momentum=0.9),
    "sgd_nesterov": lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "sgd_weight_decay": lambda: optimizers.SGD(0.05, weight_decay=0.1),
    "adam_amsgrad": lambda: optimizers.Adam(0.02, beta_1=0.8, beta_2=0.9, amsgrad=True),
    "adam_epsilon": lambda: optimizers.Adam(0.02, epsilon=0.1),
    "adamw": lambda: optimizers.AdamW(0.02, weight_decay=0.05),
    "adamax": lambda: optimizers.Adamax(0.02),
    "nadam": lambda: optimizers.Nadam(0.02),
    "rmsprop": lambda: optimizers.RMSprop(0.01),
    "rmsprop_momentum": lambda: optimizers.RMSprop(0.01, momentum=0.9),
    "rmsprop_centered": lambda: optimizers.RMSprop(0.01, rho=0.8, momentum=0.5, centered=True, epsilon=1e-3),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adadelta": lambda: optimizers.Adadelta(1.0, rho=0.9),
    "lion": lambda: optimizers.Lion(0.005),
    "lamb": lambda: optimizers.Lamb(0.02),
    "ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02,
                                    l2_shrinkage_regularization_strength=0.03, beta=0.1),
    "clipnorm": lambda: optimizers.SGD(0.1, clipnorm=0.2),
    "clipvalue": lambda: optimizers.SGD(0.1, clipvalue=0.05),
    "global_clipnorm": lambda: optimizers.Adam(0.02, global_clipnorm=0.3),
    "ema": lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.9),
    "ema_overwrite": lambda: optimizers.Adam(0.02, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=6),
    "gradient_accumulation": lambda: optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3),
    "gradient_accumulation_adam": lambda: optimizers.Adam(0.03, clipnorm=0.5, gradient_accumulation_steps=4),
    "loss_scale_factor": lambda: optimizers.SGD(0.05, loss_scale_factor=64.0),
    "loss_scale_dynamic": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.02), initial_scale=1024.0,
                                                               dynamic_growth_steps=6),
}

SCHEDULES = {
    "exponential_decay": lambda: schedules.ExponentialDecay(0.1, 5, 0.7),
    "exponential_decay_staircase": lambda: schedules.ExponentialDecay(0.1, 5, 0.5, staircase=True),
    "cosine_decay": lambda: schedules.CosineDecay(0.1, 15, alpha=0.1),
    "cosine_decay_warmup": lambda: schedules.CosineDecay(0.0, 10, alpha=0.05, warmup_target=0.1, warmup_steps=6),
    "cosine_decay_restarts": lambda: schedules.CosineDecayRestarts(0.1, 4, t_mul=1.5, m_mul=0.8, alpha=0.02),
    "piecewise_constant_decay": lambda: schedules.PiecewiseConstantDecay([4, 11], [0.1, 0.03, 0.06]),
    "polynomial_decay": lambda: schedules.PolynomialDecay(0.1, 12, end_learning_rate=0.02, power=2.0),
    "polynomial_decay_cycle": lambda: schedules.PolynomialDecay(0.1, 6, end_learning_rate=0.01, power=1.5, cycle=True),
    "inverse_time_decay": lambda: schedules.InverseTimeDecay(0.1, 3, 0.5),
    "inverse_time_decay_staircase": lambda: schedules.InverseTimeDecay(0.1, 3, 0.5, staircase=True),
}


def add_optimizer_run(name, make):
    def define(data):
        return training(data, mlp(3), data.normal(5), data.normal(3), make(), metrics=["mae"])

    add(name, define, f"The optimizer: {name.replace('_', ' ')}.")


for optimizer_name, make_optimizer in OPTIMIZERS.items():
    add_optimizer_run("optimizer_" + optimizer_name, make_optimizer)
for schedule_name, make_schedule in SCHEDULES.items():
    add_optimizer_run("schedule_" + schedule_name,
                      lambda make_schedule=make_schedule: optimizers.SGD(make_schedule(), momentum=0.5))


# ---------------------------------------------------------------------------------------------- losses

BINARY = (lambda data: data.bits(3), 3, "sigmoid")
BINARY_LOGITS = (lambda data: data.bits(3), 3, None)
CATEGORICAL = (lambda data: data.one_hot(4), 4, "softmax")
CATEGORICAL_LOGITS = (lambda data: data.one_hot(4), 4, None)
SPARSE = (lambda data: data.ints(high=4), 4, "softmax")
SPARSE_LOGITS = (lambda data: data.ints(high=4), 4, None)
REGRESSION = (lambda data: data.normal(3), 3, None)
POSITIVE = (lambda data: data.uniform(3, low=0.2, high=2.0), 3, "softplus")
SIGNS = (lambda data: 2 * data.bits(3) - 1, 3, "tanh")

LOSSES = {  # name: (the loss, (targets, outputs, activation))
    "mean_squared_error": (lambda: losses.MeanSquaredError(reduction="sum"), REGRESSION),
    "mean_absolute_error": (lambda: losses.MeanAbsoluteError(reduction="mean_with_sample_weight"), REGRESSION),
    "mean_absolute_percentage_error": (lambda: losses.MeanAbsolutePercentageError(), POSITIVE),
    "mean_squared_logarithmic_error": (lambda: losses.MeanSquaredLogarithmicError(), POSITIVE),
    "huber": (lambda: losses.Huber(), REGRESSION),
    "huber_delta": (lambda: losses.Huber(delta=0.3, reduction="sum"), REGRESSION),
    "log_cosh": (lambda: losses.LogCosh(), REGRESSION),
    "binary_crossentropy": (lambda: losses.BinaryCrossentropy(), BINARY),
    "binary_crossentropy_logits": (lambda: losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1),
                                   BINARY_LOGITS),
    "binary_crossentropy_smoothing": (lambda: losses.BinaryCrossentropy(label_smoothing=0.2, reduction="sum"), BINARY),
    "binary_focal": (lambda: losses.BinaryFocalCrossentropy(), BINARY),
    "binary_focal_balanced": (lambda: losses.BinaryFocalCrossentropy(
        apply_class_balancing=True, alpha=0.3, gamma=1.5, from_logits=True, label_smoothing=0.1), BINARY_LOGITS),
    "categorical_crossentropy": (lambda: losses.CategoricalCrossentropy(label_smoothing=0.1), CATEGORICAL),
    "categorical_crossentropy_logits": (lambda: losses.CategoricalCrossentropy(from_logits=True), CATEGORICAL_LOGITS),
    "categorical_focal": (lambda: losses.CategoricalFocalCrossentropy(), CATEGORICAL),
    "categorical_focal_logits": (lambda: losses.CategoricalFocalCrossentropy(
        alpha=0.5, gamma=1.0, from_logits=True, label_smoothing=0.05), CATEGORICAL_LOGITS),
    "sparse_categorical_crossentropy": (lambda: losses.SparseCategoricalCrossentropy(), SPARSE),
    "sparse_categorical_ignore_class": (lambda: losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=1), SPARSE_LOGITS),
    "kl_divergence": (lambda: losses.KLDivergence(), CATEGORICAL),
    "poisson": (lambda: losses.Poisson(), POSITIVE),
    "hinge": (lambda: losses.Hinge(), SIGNS),
    "hinge_bits": (lambda: losses.Hinge(reduction="sum"), (lambda data: data.bits(3), 3, "tanh")),
    "squared_hinge": (lambda: losses.SquaredHinge(), SIGNS),
    "categorical_hinge": (lambda: losses.CategoricalHinge(), CATEGORICAL_LOGITS),
    "cosine_similarity": (lambda: losses.CosineSimilarity(), REGRESSION),
    "dice": (lambda: losses.Dice(), BINARY),
    "tversky": (lambda: losses.Tversky(alpha=0.3, beta=0.7), BINARY),
}


def add_loss_run(name, make, targets, outputs, activation):
    def define(data):
        return training(data, mlp(outputs, activation), data.normal(5), targets(data),
                        optimizers.SGD(0.02 if name.endswith("percentage_error") else 0.1), make())

    add("loss_" + name, define, f"The loss: {name.replace('_', ' ')}.")


for loss_name, (make_loss, case) in LOSSES.items():
    add_loss_run(loss_name, make_loss, *case)


def add_reduction_run(reduction):
    def define(data):
        return training(data, mlp(4), data.normal(5), data.ints(high=4), optimizers.SGD(0.05),
                        losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction),
                        sample_weight=data.uniform(high=3.0), metrics=["accuracy"], weighted_metrics=["accuracy"])

    add(f"reduction_{reduction}", define, f"Sample weights and the reduction {reduction}.")


for reduction_name in ("sum", "sum_over_batch_size", "mean", "mean_with_sample_weight"):
    add_reduction_run(reduction_name)


@run
def class_weights_sparse(data):
    """Class weights with integer labels; a label they do not name counts once."""
    return training(data, mlp(4), data.normal(5), data.ints(high=4), optimizers.Adam(0.02),
                    losses.SparseCategoricalCrossentropy(from_logits=True), class_weight={0: 0.5, 1: 3.0, 3: 1.5},
                    metrics=["accuracy"], weighted_metrics=["accuracy"])


@run
def class_weights_one_hot(data):
    """Class weights with one-hot labels."""
    return training(data, mlp(3, "softmax"), data.normal(5), data.one_hot(3), optimizers.SGD(0.1),
                    losses.CategoricalCrossentropy(), class_weight={0: 2.0, 1: 0.25, 2: 1.0})


@run
def class_weights_binary(data):
    """Class weights with binary labels of shape (B, 1)."""
    return training(data, mlp(1), data.normal(5), data.bits(1), optimizers.SGD(0.1),
                    losses.BinaryCrossentropy(from_logits=True), class_weight={0: 0.3, 1: 1.7},
                    metrics=[metrics.BinaryAccuracy(threshold=0.0)])


@run
def sample_weights_two_outputs(data):
    """A list of losses and of sample weights, one for each output, weighted metrics by output."""
    inputs = layers.Input((4,))
    x = layers.Dense(6, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(2, name="first")(x), layers.Dense(3, name="second")(x)])
    return training(data, model, data.normal(4), [data.normal(2), data.one_hot(3)], optimizers.SGD(0.1),
                    [losses.MeanAbsoluteError(), losses.CategoricalCrossentropy(from_logits=True)],
                    sample_weight=[data.uniform(), data.uniform(high=2.0)], loss_weights=[1.5, 0.5],
                    weighted_metrics=[["mse"], ["accuracy"]])


@run
def sample_weights_time(data):
    """Sample weights of every time step: shape (rows, time)."""
    model = keras.Sequential([layers.Input((4, 3)), layers.Dense(5, activation="tanh"), layers.Dense(2)])
    return training(data, model, data.normal(4, 3), data.normal(4, 2), optimizers.SGD(0.1),
                    sample_weight=data.uniform(4), weighted_metrics=["mae"])


# ---------------------------------------------------------------------------------------------- metrics


@run
def metrics_binary(data):
    """Metrics of binary predictions, each with and without options."""
    return training(data, mlp(1, "sigmoid"), data.normal(5), data.bits(1), optimizers.SGD(0.2),
                    "binary_crossentropy", sample_weight=data.uniform(high=2.0), metrics=[
                        metrics.BinaryAccuracy(), metrics.BinaryAccuracy(threshold=0.4, name="accuracy_04"),
                        metrics.Precision(), metrics.Recall(), metrics.Precision(thresholds=0.4, name="precision_04"),
                        metrics.AUC(), metrics.AUC(num_thresholds=20, curve="PR", name="auc_pr"),
                        metrics.TruePositives(), metrics.TrueNegatives(), metrics.FalsePositives(),
                        metrics.FalseNegatives(), metrics.F1Score(threshold=0.5, average="micro"),
                        metrics.BinaryCrossentropy(label_smoothing=0.1), metrics.BinaryIoU(threshold=0.5),
                        metrics.PrecisionAtRecall(0.5, num_thresholds=20),
                        metrics.RecallAtPrecision(0.5, num_thresholds=20),
                        metrics.SensitivityAtSpecificity(0.5, num_thresholds=20),
                        metrics.SpecificityAtSensitivity(0.5, num_thresholds=20)],
                    weighted_metrics=[metrics.Precision(name="weighted_precision"), metrics.AUC(name="weighted_auc")])


@run
def metrics_categorical(data):
    """Metrics of one-hot labels."""
    return training(data, mlp(5, "softmax"), data.normal(5), data.one_hot(5), optimizers.SGD(0.2),
                    "categorical_crossentropy", metrics=[
                        metrics.CategoricalAccuracy(), metrics.TopKCategoricalAccuracy(k=2),
                        metrics.CategoricalCrossentropy(label_smoothing=0.1), metrics.KLDivergence(),
                        metrics.F1Score(average="macro"), metrics.FBetaScore(average="weighted", beta=2.0,
                                                                             threshold=0.2),
                        metrics.CategoricalHinge(), metrics.CosineSimilarity(), metrics.OneHotMeanIoU(5),
                        metrics.OneHotIoU(5, target_class_ids=[0, 2]), metrics.Precision(top_k=2, name="precision_top"),
                        metrics.Recall(class_id=1, name="recall_one"), metrics.AUC(multi_label=True, num_thresholds=20)])


@run
def metrics_sparse(data):
    """Metrics of integer labels."""
    return training(data, mlp(5, "softmax"), data.normal(5), data.ints(1, high=5), optimizers.SGD(0.2),
                    "sparse_categorical_crossentropy", metrics=[
                        metrics.SparseCategoricalAccuracy(), metrics.SparseTopKCategoricalAccuracy(k=2),
                        metrics.SparseCategoricalCrossentropy(),
                        metrics.MeanIoU(5, sparse_y_pred=False), metrics.IoU(5, [1], sparse_y_pred=False)])


@run
def metrics_regression(data):
    """Metrics of regression."""
    return training(data, mlp(2, "softplus"), data.normal(5), data.uniform(2, low=0.1, high=2.0), optimizers.SGD(0.05),
                    "mse", sample_weight=data.uniform(high=2.0), metrics=[
                        metrics.MeanSquaredError(), metrics.RootMeanSquaredError(), metrics.MeanAbsoluteError(),
                        metrics.MeanAbsolutePercentageError(), metrics.MeanSquaredLogarithmicError(),
                        metrics.LogCoshError(), metrics.CosineSimilarity(), metrics.R2Score(), metrics.Poisson(),
                        metrics.R2Score(class_aggregation="variance_weighted_average", name="r2_weighted")],
                    weighted_metrics=[metrics.RootMeanSquaredError(name="weighted_rmse"),
                                      metrics.R2Score(name="weighted_r2")])


@run
def metrics_hinge(data):
    """Hinge metrics, and metrics by name."""
    return training(data, mlp(2, "tanh"), data.normal(5), 2 * data.bits(2) - 1, optimizers.SGD(0.1), "hinge",
                    metrics=[metrics.Hinge(), metrics.SquaredHinge(), "mape", "cosine_similarity"])
