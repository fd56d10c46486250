"""The runs that record_keras_runs.py records: RUNS maps a name to a function from Data to what is trained.

Rules that keep a run reproducible by another implementation: random layers have rate 0; no bias stands in front of a
batch normalisation, and no key bias in front of an attention's softmax unless plain SGD trains it (their gradients
are rounding noise, which Adam would scale up); everything is small.
"""

import keras
import numpy as np
from keras import layers, losses, metrics, ops, optimizers, regularizers
from keras.optimizers import schedules

RUNS = {}


class Data:
    """Random examples: `batches` batches of `batch_size`, floats of `dtype`."""

    def __init__(self, generator, batches, batch_size=6, dtype=np.float32):
        self.generator = generator
        self.batches = batches
        self.batch_size = batch_size
        self.dtype = dtype

    def _shape(self, shape):
        return (self.batches * self.batch_size, *np.atleast_1d(np.array(shape, int)))

    def normal(self, *shape):
        return self.generator.standard_normal(self._shape(shape)).astype(self.dtype)

    def uniform(self, *shape, low=0.0, high=1.0):
        return self.generator.uniform(low, high, self._shape(shape)).astype(self.dtype)

    def ints(self, *shape, low=0, high=2):
        return self.generator.integers(low, high, self._shape(shape)).astype(np.int32)

    def bits(self, *shape):
        return self.ints(*shape).astype(self.dtype)

    def one_hot(self, classes, *shape):
        return np.eye(classes, dtype=self.dtype)[self.ints(*shape, high=classes)]


def run(define):
    """Adds a run under the function's name."""
    add(define.__name__, define)
    return define


def run_float64(define):
    """The same, with floatx float64."""
    add(define.__name__, define, floatx="float64")
    return define


def add(name, define, covers=None, floatx="float32"):
    if name in RUNS:
        raise ValueError(f"two runs are called {name}")
    if covers:
        define.__doc__ = covers
    define.floatx = floatx
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
                        metrics.Recall(class_id=1, name="recall_one"),
                        metrics.AUC(multi_label=True, num_thresholds=20)])


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


# ---------------------------------------------------------------------------------------------- layers in a row


def add_stack(name, covers, input_shape, make_layers, make_optimizer=lambda: optimizers.SGD(0.05, momentum=0.9),
              head=True):
    """A Sequential of the layers, then (unless head is false) Flatten and Dense(3), trained on a regression."""

    def define(data):
        stack = [layers.Input(input_shape), *make_layers()]
        model = keras.Sequential(stack + ([layers.Flatten(), layers.Dense(3)] if head else []))
        return training(data, model, data.normal(*input_shape), data.normal(*model.output_shape[1:]), make_optimizer())

    add(name, define, covers)


def adam():
    return optimizers.Adam(0.01)


def dense_chain(*activations):
    return [layers.Dense(8, activation=activation) for activation in activations]


add_stack("activations_rectifiers", "relu, relu6, leaky_relu, elu, selu, celu by name.", (6,),
          lambda: dense_chain("relu", "relu6", "leaky_relu", "elu", "selu", "celu"))
add_stack("activations_gates", "silu, swish, gelu, tanh, sigmoid, hard_sigmoid, hard_silu, hard_swish by name.", (6,),
          lambda: dense_chain("silu", "swish", "gelu", "tanh", "sigmoid", "hard_sigmoid", "hard_silu", "hard_swish"))
add_stack("activations_smooth", "softplus, softsign, exponential, mish, log_softmax, linear, softmax by name.", (6,),
          lambda: dense_chain("softplus", "softsign", "exponential", "mish", "log_softmax", "linear", "softmax"))
add_stack("activation_layers", "Activation, ReLU with options, LeakyReLU, PReLU, ELU, Softmax, Identity.", (4, 6),
          lambda: [layers.Dense(8), layers.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.2),
                   layers.Dense(8), layers.LeakyReLU(negative_slope=0.2), layers.Dense(8), layers.PReLU(),
                   layers.Dense(8), layers.PReLU(shared_axes=[1]), layers.ELU(alpha=0.7), layers.Dense(8),
                   layers.Softmax(), layers.Softmax(axis=1), layers.Activation("tanh"), layers.Identity()])
add_stack("reshaping", "Reshape with -1, Permute, RepeatVector, Flatten, Rescaling.", (12,),
          lambda: [layers.Rescaling(0.5, offset=0.1), layers.Reshape((3, 4)), layers.Permute((2, 1)),
                   layers.Dense(5, activation="tanh"), layers.Reshape((-1, 2)), layers.Flatten(),
                   layers.RepeatVector(3), layers.Dense(4, activation="relu")], adam)
add_stack("random_layers_at_zero", "Dropout, SpatialDropout, GaussianDropout, GaussianNoise, AlphaDropout at rate 0.",
          (4, 6), lambda: [layers.Dense(6, activation="tanh"), layers.Dropout(0.0), layers.SpatialDropout1D(0.0),
                   layers.GaussianNoise(0.0), layers.GaussianDropout(0.0), layers.AlphaDropout(0.0)])
add_stack("conv1d", "Conv1D: causal with dilation, same, valid with strides, groups.", (6, 4),
          lambda: [layers.Conv1D(6, 2, padding="causal", dilation_rate=2, activation="relu"),
                   layers.Conv1D(6, 3, padding="same", groups=2, activation="tanh"), layers.Conv1D(4, 3, strides=2)])
add_stack("conv2d", "Conv2D: same and valid, strides, an even window, no bias.", (8, 7, 2),
          lambda: [layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
                   layers.Conv2D(5, (2, 3), padding="same", use_bias=False, activation="tanh"),
                   layers.Conv2D(3, (3, 2))], adam)
add_stack("conv2d_dilation_groups", "Conv2D with dilation and with groups.", (7, 7, 4),
          lambda: [layers.Conv2D(4, 3, dilation_rate=2, padding="same", activation="tanh"),
                   layers.Conv2D(6, 3, groups=2, activation="relu"), layers.Conv2D(2, 2, dilation_rate=(2, 1))])
add_stack("conv3d", "Conv3D: same with strides, valid.", (4, 5, 4, 2),
          lambda: [layers.Conv3D(3, 3, strides=(1, 2, 1), padding="same", activation="tanh"),
                   layers.Conv3D(2, (2, 3, 2))], adam)
add_stack("depthwise", "DepthwiseConv2D with depth_multiplier, strides, dilation.", (6, 6, 3),
          lambda: [layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="tanh"),
                   layers.DepthwiseConv2D(2, strides=2), layers.DepthwiseConv2D(2, dilation_rate=2, padding="same")])
add_stack("depthwise1d_separable1d", "DepthwiseConv1D, SeparableConv1D.", (6, 3),
          lambda: [layers.DepthwiseConv1D(3, depth_multiplier=2, padding="same", activation="tanh"),
                   layers.SeparableConv1D(4, 2, strides=2, activation="relu"),
                   layers.SeparableConv1D(4, 2, depth_multiplier=2, padding="same")])
add_stack("separable2d", "SeparableConv2D: depth_multiplier, strides, dilation.", (6, 6, 2),
          lambda: [layers.SeparableConv2D(5, 3, depth_multiplier=2, padding="same", activation="tanh"),
                   layers.SeparableConv2D(3, 3, strides=2), layers.SeparableConv2D(3, 2, padding="same",
                                                                                 dilation_rate=2)], adam)
add_stack("conv1d_transpose", "Conv1DTranspose: same and valid, strides.", (4, 3),
          lambda: [layers.Conv1DTranspose(4, 3, strides=2, padding="same", activation="tanh"),
                   layers.Conv1DTranspose(2, 3, activation="relu"), layers.Conv1DTranspose(2, 2, strides=3)])
add_stack("conv2d_transpose", "Conv2DTranspose: same and valid, strides, output_padding, window smaller than strides.",
          (3, 3, 3),
          lambda: [layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="tanh"),
                   layers.Conv2DTranspose(2, (2, 3), use_bias=False),
                   layers.Conv2DTranspose(2, 2, strides=3, padding="valid", output_padding=1)],
          lambda: optimizers.SGD(0.02))
add_stack("conv3d_transpose", "Conv3DTranspose: same with strides, valid.", (2, 2, 2, 2),
          lambda: [layers.Conv3DTranspose(2, 3, strides=2, padding="same", activation="tanh"),
                   layers.Conv3DTranspose(1, 2)])
add_stack("pooling1d", "MaxPooling1D, AveragePooling1D: valid and same.", (6, 3),
          lambda: [layers.Conv1D(4, 2, padding="same"), layers.MaxPooling1D(2, strides=1, padding="same"),
                   layers.AveragePooling1D(3, strides=2, padding="same"), layers.Dense(4, activation="tanh"),
                   layers.MaxPooling1D(2), layers.AveragePooling1D(1)])
add_stack("pooling2d", "MaxPooling2D, AveragePooling2D: valid and same, odd sizes.", (8, 7, 2),
          lambda: [layers.Conv2D(4, 3, padding="same"), layers.MaxPooling2D(2, padding="same"),
                   layers.AveragePooling2D(3, strides=1, padding="same"), layers.Dense(3, activation="tanh"),
                   layers.MaxPooling2D((2, 1), strides=(1, 2)), layers.AveragePooling2D(2)], adam)
add_stack("pooling3d", "MaxPooling3D, AveragePooling3D: valid and same.", (5, 4, 4, 2),
          lambda: [layers.Dense(3), layers.MaxPooling3D(2, padding="same"), layers.Dense(3, activation="tanh"),
                   layers.AveragePooling3D(2, strides=1, padding="same"), layers.AveragePooling3D((3, 1, 2))])
add_stack("adaptive_pooling", "AdaptiveAveragePooling2D and AdaptiveMaxPooling2D: windows that overlap or not.", (7, 5, 2),
          lambda: [layers.Conv2D(3, 2, padding="same", activation="tanh"), layers.AdaptiveAveragePooling2D((4, 5)),
                   layers.Dense(3, activation="tanh"), layers.AdaptiveMaxPooling2D((3, 2))])
add_stack("adaptive_pooling1d", "AdaptiveAveragePooling1D and AdaptiveMaxPooling1D, also to more steps than there are.",
          (5, 3), lambda: [layers.Dense(3, activation="tanh"), layers.AdaptiveMaxPooling1D(4),
                           layers.Dense(3, activation="tanh"), layers.AdaptiveAveragePooling1D(6)])
add_stack("upsampling", "UpSampling2D nearest and bilinear, Cropping2D, ZeroPadding2D.", (4, 3, 2),
          lambda: [layers.Conv2D(3, 2, padding="same", activation="tanh"), layers.UpSampling2D((2, 3)),
                   layers.Cropping2D(((1, 2), (0, 3))), layers.Conv2D(3, 3),
                   layers.UpSampling2D(2, interpolation="bilinear"),
                   layers.ZeroPadding2D(((1, 0), (2, 1))), layers.Conv2D(2, 2, strides=2)])
add_stack("upsampling1d", "UpSampling1D, ZeroPadding1D, Cropping1D.", (4, 3),
          lambda: [layers.Dense(3, activation="tanh"), layers.UpSampling1D(3), layers.Cropping1D((2, 1)),
                   layers.ZeroPadding1D((1, 2)), layers.Conv1D(2, 3, strides=2)])
add_stack("upsampling3d", "UpSampling3D, ZeroPadding3D, Cropping3D.", (2, 2, 2, 2),
          lambda: [layers.Dense(2, activation="tanh"), layers.UpSampling3D((2, 1, 2)),
                   layers.ZeroPadding3D(((1, 0), (0, 1), (1, 1))), layers.Cropping3D(((0, 1), (1, 0), (2, 0))),
                   layers.Conv3D(2, 2)])
add_stack("batch_normalization", "BatchNormalization after a convolution and a dense layer without bias.", (6, 6, 2),
          lambda: [layers.Conv2D(4, 3, use_bias=False), layers.BatchNormalization(momentum=0.8), layers.ReLU(),
                   layers.Flatten(), layers.Dense(6, use_bias=False),
                   layers.BatchNormalization(epsilon=1e-2, scale=False), layers.Activation("tanh")])
add_stack("batch_normalization_plain", "BatchNormalization without center and of another axis.", (4, 6),
          lambda: [layers.BatchNormalization(axis=1), layers.Dense(5, use_bias=False),
                   layers.BatchNormalization(center=False, momentum=0.9), layers.Activation("tanh")])
add_stack("layer_normalization", "LayerNormalization: defaults, two axes, without scale or center; UnitNormalization.",
          (4, 6), lambda: [layers.Dense(5, activation="tanh"), layers.LayerNormalization(),
                           layers.Dense(5, activation="tanh"), layers.LayerNormalization(axis=[1, 2], epsilon=1e-2),
                           layers.LayerNormalization(scale=False, center=False), layers.UnitNormalization()])
add_stack("group_rms_normalization", "GroupNormalization (groups 2, instance, layer), RMSNormalization.", (4, 4, 4),
          lambda: [layers.Conv2D(4, 2, activation="tanh"), layers.GroupNormalization(groups=2),
                   layers.Conv2D(4, 2, padding="same", activation="tanh"),
                   layers.GroupNormalization(groups=-1, scale=False), layers.GroupNormalization(groups=1, center=False),
                   layers.RMSNormalization()], lambda: optimizers.SGD(0.02))
add_stack("spectral_normalization", "SpectralNormalization of a dense and a convolutional layer.", (5, 5, 2),
          lambda: [layers.SpectralNormalization(layers.Conv2D(3, 2, activation="tanh")), layers.Flatten(),
                   layers.SpectralNormalization(layers.Dense(4), power_iterations=2)], lambda: optimizers.SGD(0.02))
add_stack("einsum_dense", "EinsumDense: projections to heads and back, bias axes.", (4, 6),
          lambda: [layers.EinsumDense("abc,cde->abde", output_shape=(4, 2, 3), bias_axes="de", activation="tanh"),
                   layers.EinsumDense("abde,dec->abc", output_shape=(4, 5), bias_axes="c"),
                   layers.EinsumDense("...x,xy->...y", output_shape=4)], adam)
add_stack("time_distributed", "TimeDistributed of a Dense, a Conv2D and a pooling layer.", (3, 5, 5, 2),
          lambda: [layers.TimeDistributed(layers.Conv2D(3, 2, activation="tanh")),
                   layers.TimeDistributed(layers.MaxPooling2D(2)), layers.TimeDistributed(layers.Flatten()),
                   layers.TimeDistributed(layers.Dense(4, activation="relu"))], adam)
add_stack("regularizers", "l1, l2, l1_l2 and orthogonal regularizers, activity regularizers, ActivityRegularization.",
          (5,), lambda: [layers.Dense(6, activation="tanh", kernel_regularizer="l1",
                                      bias_regularizer=regularizers.L2(0.03)),
                         layers.Dense(5, activation="tanh", kernel_regularizer=regularizers.L1L2(0.01, 0.02),
                                      activity_regularizer=regularizers.L2(0.05)),
                         layers.ActivityRegularization(l1=0.02, l2=0.03),
                         layers.Dense(4, kernel_regularizer=regularizers.OrthogonalRegularizer(0.02)),
                         layers.Dense(4, kernel_regularizer=regularizers.OrthogonalRegularizer(0.01, mode="columns"))])
add_stack("constraints", "max_norm, non_neg, unit_norm and min_max_norm constraints.", (5,),
          lambda: [layers.Dense(6, activation="tanh", kernel_constraint=keras.constraints.MaxNorm(0.8),
                                bias_constraint="non_neg"),
                   layers.Dense(5, activation="tanh", kernel_constraint=keras.constraints.UnitNorm(axis=0)),
                   layers.Dense(5, activation="tanh",
                                kernel_constraint=keras.constraints.MinMaxNorm(0.5, 1.0, rate=0.7)),
                   layers.Dense(4, kernel_constraint=keras.constraints.NonNeg(), bias_constraint="max_norm")])
add_stack("constraints_conv", "max_norm over a convolution's window and inputs.", (5, 5, 2),
          lambda: [layers.Conv2D(3, 3, kernel_constraint=keras.constraints.MaxNorm(0.7, axis=[0, 1, 2]),
                                 activation="tanh", kernel_regularizer=regularizers.L2(0.01))])
add_stack("frozen_layer", "A layer that is not trainable, and a batch normalisation that is not: it runs in inference.",
          (5,), lambda: [layers.Dense(6, activation="tanh", trainable=False),
                         layers.BatchNormalization(trainable=False),
                         layers.Dense(4, use_bias=False), layers.BatchNormalization()])
add_stack("simple_rnn", "SimpleRNN: stacked, return_sequences, go_backwards, relu, no bias.", (5, 3),
          lambda: [layers.SimpleRNN(4, return_sequences=True), layers.SimpleRNN(5, return_sequences=True,
                                                                              go_backwards=True, use_bias=False),
                   layers.SimpleRNN(4, activation="relu")], adam)
add_stack("lstm", "LSTM: stacked, return_sequences, go_backwards, other activations, no unit_forget_bias.", (5, 3),
          lambda: [layers.LSTM(4, return_sequences=True), layers.LSTM(3, return_sequences=True, go_backwards=True,
                                                                    unit_forget_bias=False),
                   layers.LSTM(4, activation="softsign", recurrent_activation="hard_sigmoid")], adam)
add_stack("gru", "GRU with reset_after (the default): stacked, return_sequences, go_backwards.", (5, 3),
          lambda: [layers.GRU(4, return_sequences=True), layers.GRU(3, return_sequences=True, go_backwards=True),
                   layers.GRU(4, use_bias=False)], adam)
add_stack("gru_reset_before", "GRU with reset_after=False.", (5, 3),
          lambda: [layers.GRU(4, reset_after=False, return_sequences=True), layers.GRU(3, reset_after=False)], adam)
add_stack("bidirectional", "Bidirectional: concat, sum, mul, ave; LSTM, GRU, SimpleRNN; with and without sequences.",
          (4, 3), lambda: [layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                           layers.Bidirectional(layers.GRU(4, return_sequences=True), merge_mode="sum"),
                           layers.Bidirectional(layers.SimpleRNN(4, return_sequences=True), merge_mode="mul"),
                           layers.Bidirectional(layers.LSTM(4), merge_mode="ave")], adam)


# ---------------------------------------------------------------------------------------------- masks, attention


def padded(data, length, features):
    """Sequences that end in zeros, each at another place; at least two steps long."""
    x = data.normal(length, features)
    ends = data.ints(low=2, high=length + 1)
    x[np.arange(length)[None, :] >= ends[:, None]] = 0.0
    return x


def padded_tokens(data, length, words):
    x = data.ints(length, low=1, high=words)
    ends = data.ints(low=2, high=length + 1)
    x[np.arange(length)[None, :] >= ends[:, None]] = 0
    return x


def add_masked(name, covers, make_layers, targets, make_optimizer=adam, **compile_arguments):
    def define(data):
        model = keras.Sequential([layers.Input((5, 3)), layers.Masking(), *make_layers()])
        return training(data, model, padded(data, 5, 3), targets(data), make_optimizer(), **compile_arguments)

    add(name, define, covers)


add_masked("masking_rnn", "Masking in front of a SimpleRNN, a GRU and an LSTM.",
           lambda: [layers.SimpleRNN(4, return_sequences=True), layers.GRU(4, return_sequences=True), layers.LSTM(4),
                    layers.Dense(2)], lambda data: data.normal(2))
# No metrics here: under JAX the predictions lose their mask on the way to them, so that masked steps count.
add_masked("masking_loss", "A mask that reaches the output: the loss leaves masked steps out.",
           lambda: [layers.LSTM(4, return_sequences=True), layers.Dense(3)], lambda data: data.normal(5, 3))
add_masked("masking_bidirectional", "A mask through a Bidirectional and backwards.",
           lambda: [layers.Bidirectional(layers.GRU(3, return_sequences=True)), layers.LSTM(3, go_backwards=True),
                    layers.Dense(2)], lambda data: data.normal(2))
add_masked("masking_zero_output", "zero_output_for_mask, and GlobalAveragePooling1D of a masked sequence.",
           lambda: [layers.LSTM(4, return_sequences=True, zero_output_for_mask=True), layers.GlobalAveragePooling1D(),
                    layers.Dense(2)], lambda data: data.normal(2))
add_masked("masking_time_distributed", "TimeDistributed under a mask, and the loss with the mask.",
           lambda: [layers.TimeDistributed(layers.Dense(4, activation="tanh")),
                    layers.TimeDistributed(layers.Dense(3))],
           lambda data: data.ints(5, high=3), loss=losses.SparseCategoricalCrossentropy(from_logits=True))


@run
def embedding(data):
    """Embedding, GlobalAveragePooling1D; Adam's momentum moves the rows of absent words, too."""
    model = keras.Sequential([layers.Input((5,), dtype="int32"), layers.Embedding(9, 4),
                              layers.GlobalAveragePooling1D(), layers.Dense(1, activation="sigmoid")])
    return training(data, model, data.ints(5, high=9), data.bits(1), adam(), "binary_crossentropy",
                    metrics=["accuracy"])


@run
def embedding_mask_zero(data):
    """Embedding with mask_zero in front of an LSTM and a masked mean."""
    inputs = layers.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(8, 4, mask_zero=True)(inputs)
    last = layers.LSTM(4)(x)
    mean = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, layers.Dense(3)(layers.Concatenate()([last, mean])))
    return training(data, model, padded_tokens(data, 6, 8), data.ints(high=3), adam(),
                    losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


@run
def embedding_regularized(data):
    """Embedding with a regularizer and a constraint."""
    model = keras.Sequential([layers.Input((4,), dtype="int32"),
                              layers.Embedding(6, 3, embeddings_regularizer=regularizers.L2(0.01),
                                               embeddings_constraint=keras.constraints.UnitNorm(axis=1)),
                              layers.Flatten(), layers.Dense(2)])
    return training(data, model, data.ints(4, high=6), data.normal(2))


@run
def normalization_adapted(data):
    """Normalization, adapted beforehand, and one with given mean and variance; Rescaling."""
    x = 3.0 * data.normal(4) + 2.0
    adapted = layers.Normalization()
    adapted.adapt(x)
    model = keras.Sequential([layers.Input((4,)), adapted, layers.Normalization(mean=[0.1, 0.2, 0.3, 0.4],
                                                                              variance=[1.0, 2.0, 3.0, 4.0]),
                              layers.Rescaling([1.0, 2.0, 0.5, 1.5], offset=-0.1), layers.Dense(5, activation="tanh"),
                              layers.Dense(2)])
    return training(data, model, x, data.normal(2), adam())


def add_functional(name, covers, input_shapes, build, make_optimizer=lambda: optimizers.SGD(0.1, momentum=0.5)):
    """A functional model: build maps the inputs to an output, on which Flatten and Dense(2) stand."""

    def define(data):
        inputs = [layers.Input(shape) for shape in input_shapes]
        x = build(*inputs)
        x = x if len(x.shape) == 2 else layers.Flatten()(x)
        model = keras.Model(inputs if len(inputs) > 1 else inputs[0], layers.Dense(2)(x))
        return training(data, model, [data.normal(*shape) for shape in input_shapes], data.normal(2), make_optimizer())

    add(name, define, covers)


add_functional("activations_rare", "hard_tanh, tanh_shrink, log_sigmoid, soft_shrink, hard_shrink, squareplus, "
               "sparse_plus and sparse_sigmoid by name, side by side.", [(6,)],
               lambda x: layers.Concatenate()([layers.Dense(4, activation=name)(x) for name in (
                   "hard_tanh", "tanh_shrink", "log_sigmoid", "soft_shrink", "hard_shrink", "squareplus",
                   "sparse_plus", "sparse_sigmoid")]), adam)
add_functional("mha_self", "MultiHeadAttention of a sequence with itself, defaults.", [(4, 6)],
               lambda x: layers.MultiHeadAttention(2, 3)(x, x))
add_functional("mha_cross", "MultiHeadAttention of two sequences, key_dim != value_dim, an output_shape, a key apart, "
               "the scores returned.",
               [(4, 6), (5, 3)],
               lambda x, y: layers.MultiHeadAttention(2, 3, value_dim=4, output_shape=5)(
                   x, y, layers.Dense(4)(y), return_attention_scores=True)[0])
add_functional("mha_causal", "MultiHeadAttention with use_causal_mask, no bias, in a transformer block under Adam.",
               [(5, 6)], lambda x: transformer_block(x), adam)
add_functional("mha_two_axes", "MultiHeadAttention over two axes, without bias.", [(2, 3, 4)],
               lambda x: layers.MultiHeadAttention(2, 2, attention_axes=(1, 2), use_bias=False)(x, x))
add_functional("group_query_attention", "GroupQueryAttention, self and cross with a causal mask.", [(4, 6), (4, 6)],
               lambda x, y: layers.GroupQueryAttention(3, 4, 2)(layers.GroupQueryAttention(3, 2, 1)(x, x), y,
                                                                use_causal_mask=True),
               lambda: optimizers.SGD(0.02))
add_functional("attention", "Attention: dot with scale, concat score, causal mask.", [(4, 3), (4, 3)],
               lambda x, y: layers.Concatenate()([
                   layers.Attention(use_scale=True)([x, layers.Dense(3)(y)]),
                   layers.Attention(score_mode="concat", use_scale=True)([x, y, layers.Dense(3)(x)]),
                   layers.Attention()([layers.Dense(3)(x), y], use_causal_mask=True)]))
add_functional("additive_attention", "AdditiveAttention with and without scale.", [(4, 3), (5, 3)],
               lambda x, y: layers.Concatenate()([layers.AdditiveAttention()([layers.Dense(3)(x), layers.Dense(3)(y)]),
                                                  layers.AdditiveAttention(use_scale=False)([x, layers.Dense(3)(y)])]))


def transformer_block(x):
    attended = layers.MultiHeadAttention(2, 3, use_bias=False, dropout=0.0)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, attended]))
    y = layers.Dense(6)(layers.Dense(8, activation="gelu")(x))
    return layers.LayerNormalization()(x + y)


@run
def mha_padding_mask(data):
    """Embedding masks on query and value of a MultiHeadAttention, as in a translation model."""
    left, right = layers.Input((4,), dtype="int32", name="query"), layers.Input((5,), dtype="int32", name="value")
    table = layers.Embedding(7, 4, mask_zero=True)
    query, value = table(left), table(right)
    x = layers.MultiHeadAttention(2, 2)(query, value)
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model([left, right], layers.Dense(2)(x))
    return training(data, model, [padded_tokens(data, 4, 7), padded_tokens(data, 5, 7)], data.normal(2))


# ---------------------------------------------------------------------------------------------- functional models

add_functional("merging", "Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate, of three inputs.",
               [(4,), (4,), (4,)], lambda a, b, c: layers.Concatenate()([
                   layers.Add()([a, b, c]), layers.Subtract()([layers.Dense(4)(a), b]), layers.Multiply()([a, b, c]),
                   layers.Average()([a, layers.Dense(4)(b), c]), layers.Maximum()([layers.Dense(4)(a), b, c]),
                   layers.Minimum()([a, layers.Dense(4)(b), c])]), adam)
add_functional("merging_shapes", "Concatenate along another axis, Add with broadcasting, Dot with axes and normalize.",
               [(3, 4), (2, 4), (1, 4)], lambda a, b, c: layers.Concatenate()([
                   layers.Flatten()(layers.Concatenate(axis=1)([layers.Dense(4)(a), b])),
                   layers.Flatten()(layers.Add()([layers.Dense(4)(a), c])),
                   layers.Flatten()(layers.Dot(axes=2)([layers.Dense(4)(a), b])),
                   layers.Flatten()(layers.Dot(axes=(2, 2), normalize=True)([a, layers.Dense(4)(b)]))]), adam)
add_functional("operators", "Operators on Keras tensors: + - * / ** with tensors and numbers, negation, slices.",
               [(4,), (4,)], lambda a, b: operators(layers.Dense(4)(a), b))
add_functional("ops_functions", "keras.ops on Keras tensors: relu, mean, concatenate, matmul, transpose, reshape.",
               [(3, 4), (3, 4)], lambda a, b: ops_functions(layers.Dense(4)(a), b))
add_functional("global_pooling", "Global average and max pooling, 1D to 3D, with keepdims.",
               [(4, 3), (3, 3, 2), (2, 2, 2, 2)], lambda a, b, c: layers.Concatenate()([
                   layers.GlobalAveragePooling1D()(layers.Dense(3)(a)), layers.GlobalMaxPooling1D()(layers.Dense(3)(a)),
                   layers.GlobalAveragePooling2D()(layers.Dense(3)(b)), layers.GlobalMaxPooling2D()(layers.Dense(3)(b)),
                   layers.GlobalAveragePooling3D()(layers.Dense(3)(c)),
                   layers.Flatten()(layers.GlobalMaxPooling3D(keepdims=True)(layers.Dense(3)(c)))]), adam)


def operators(x, y):
    x = (x + y) * 2 - 0.5 * y
    x = 1.0 - x / 3.0 + (-y) ** 2
    return layers.Concatenate()([layers.Dense(4)(x[:, 1:3]), 2.0 / (1.0 + x * x)])


def ops_functions(x, y):
    scores = ops.softmax(ops.matmul(x, ops.transpose(y, (0, 2, 1))), axis=-1)
    x = ops.concatenate([ops.relu(x), ops.matmul(scores, y)], axis=-1)
    return ops.concatenate([ops.mean(x, axis=1), ops.reshape(ops.exp(-ops.square(scores)), (-1, 9))], axis=-1)


@run
def sequence_to_sequence(data):
    """An encoder whose state starts a decoder: return_state, initial_state, LSTM and GRU."""
    source, target = layers.Input((4, 3), name="source"), layers.Input((5, 2), name="target")
    _, hidden, carry = layers.LSTM(4, return_state=True, name="encoder")(source)
    x = layers.LSTM(4, return_sequences=True, name="decoder")(target, initial_state=[hidden, carry])
    x, last = layers.GRU(4, return_sequences=True, return_state=True)(x, initial_state=hidden)
    x = layers.Concatenate()([x, layers.RepeatVector(5)(last)])
    model = keras.Model([source, target], layers.Dense(3)(x))
    return training(data, model, [data.normal(4, 3), data.normal(5, 2)], data.one_hot(3, 5), adam(),
                    losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


@run
def bidirectional_separate(data):
    """Bidirectional with merge_mode None, a backward layer of its own, return_state."""
    inputs = layers.Input((4, 3))
    forward, backward = layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode=None)(inputs)
    x = layers.Concatenate()([forward, backward])
    x = layers.Bidirectional(layers.LSTM(3), backward_layer=layers.GRU(3, go_backwards=True))(x)
    y, *states = layers.Bidirectional(layers.LSTM(2, return_state=True))(inputs)
    model = keras.Model(inputs, layers.Dense(2)(layers.Concatenate()([x, y, *states])))
    return training(data, model, data.normal(4, 3), data.normal(2), adam())


@run
def three_outputs_list(data):
    """Three outputs, a list of losses, targets of several ranks, metrics as lists."""
    inputs = layers.Input((4, 3))
    x = layers.Conv1D(4, 2, padding="same", activation="relu")(inputs)
    model = keras.Model(inputs, [layers.Dense(2, name="steps")(x),
                                 layers.Dense(1, activation="sigmoid", name="flag")(layers.GlobalMaxPooling1D()(x)),
                                 layers.GlobalAveragePooling1D(name="features")(x)])
    return training(data, model, data.normal(4, 3), [data.normal(4, 2), data.bits(1), data.normal(4)], adam(),
                    ["mse", "binary_crossentropy", "mae"], loss_weights=[1.0, 0.3, 0.1],
                    metrics=[["mae"], ["accuracy"], []])


@run
def nested_deep(data):
    """Models inside models three deep, a nested model with two inputs and two outputs, regularizers inside."""
    a, b = layers.Input((3,)), layers.Input((3,))
    pair = keras.Model([a, b], [layers.Dense(4, activation="tanh", kernel_regularizer="l2", name="pair_sum")(a + b),
                                layers.Dense(4, name="pair_product")(a * b)], name="pair")
    c = layers.Input((4,))
    tail = keras.Sequential([layers.Input((4,)), layers.Dense(4, activation="relu", name="tail_dense")], name="tail")
    wrap = keras.Model(c, tail(c) + c, name="wrap")
    left, right = layers.Input((3,), name="left"), layers.Input((3,), name="right")
    first, second = pair([left, right])
    model = keras.Model([left, right], layers.Dense(2, name="head")(layers.Concatenate()([wrap(first), second])))
    return training(data, model, [data.normal(3), data.normal(3)], data.normal(2), adam())


@run
def sequential_of_sequentials(data):
    """Sequential models in a Sequential, with batch normalisation inside; images."""
    def block(filters, shape, name):
        return keras.Sequential([layers.Input(shape), layers.Conv2D(filters, 3, padding="same", use_bias=False),
                                 layers.BatchNormalization(momentum=0.7), layers.ReLU(), layers.MaxPooling2D(2)],
                                name=name)

    model = keras.Sequential([layers.Input((8, 8, 1)), block(3, (8, 8, 1), "one"), block(4, (4, 4, 3), "two"),
                              layers.Flatten(), layers.Dense(3)])
    return training(data, model, data.normal(8, 8, 1), data.ints(high=3), adam(),
                    losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


@run
def convolutional_classifier(data):
    """A small image classifier as in a first tutorial: Rescaling, Conv2D, MaxPooling2D, Flatten, Dropout, softmax."""
    model = keras.Sequential([layers.Input((8, 8, 1)), layers.Rescaling(1 / 255.0),
                              layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
                              layers.Dropout(0.0), layers.Dense(4, activation="softmax")])
    return training(data, model, np.round(data.uniform(8, 8, 1, high=255.0)), data.ints(high=4), adam(),
                    "sparse_categorical_crossentropy", metrics=["accuracy"])


@run
def residual_network(data):
    """A residual block with batch normalisation, a strided shortcut and SGD with momentum and weight decay."""
    inputs = layers.Input((8, 8, 2))
    x = layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same", use_bias=False)(x))
    shortcut = layers.BatchNormalization()(layers.Conv2D(4, 1, strides=2, use_bias=False)(inputs))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([x, shortcut])))
    model = keras.Model(inputs, layers.Dense(3)(x))
    return training(data, model, data.normal(8, 8, 2), data.one_hot(3), optimizers.SGD(0.05, momentum=0.9,
                                                                                     weight_decay=1e-3),
                    losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), metrics=["accuracy"])


@run
def segmentation(data):
    """A small encoder and decoder with a label for each pixel: Conv2DTranspose, UpSampling2D, Dice, MeanIoU."""
    inputs = layers.Input((6, 6, 2))
    down = layers.Conv2D(3, 3, padding="same", activation="relu")(inputs)
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.MaxPooling2D(2)(down))
    x = layers.Concatenate()([layers.Conv2DTranspose(3, 2, strides=2)(x), layers.UpSampling2D()(x), down])
    model = keras.Model(inputs, layers.Conv2D(3, 1, activation="softmax")(x))
    data.batch_size = 4
    return training(data, model, data.normal(6, 6, 2), data.one_hot(3, 6, 6), adam(), losses.Dice(),
                    metrics=["accuracy", metrics.OneHotMeanIoU(3)])


@run
def autoencoder(data):
    """An autoencoder of images: strided convolutions, Conv2DTranspose, BinaryCrossentropy of pixels."""
    model = keras.Sequential([layers.Input((8, 8, 1)),
                              layers.Conv2D(3, 3, strides=2, padding="same", activation="relu"),
                              layers.Conv2D(2, 3, strides=2, padding="same", activation="relu"),
                              layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="relu"),
                              layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")])
    x = data.uniform(8, 8, 1)
    return training(data, model, x, x, adam(), "binary_crossentropy", metrics=["mse"])


# ---------------------------------------------------------------------------------------------- shared and nested models


def tower(name, inputs=4, outputs=3):
    x = layers.Input((inputs,))
    return keras.Model(x, layers.Dense(outputs, activation="tanh", name=name + "_dense")(
        layers.Dense(5, activation="relu", name=name + "_hidden")(x)), name=name)


@run
def shared_tower(data):
    """A functional model called twice inside another: both calls are read, by their numbers."""
    left, right = layers.Input((4,), name="left"), layers.Input((4,), name="right")
    shared = tower("tower")
    a, b = shared(left), shared(right)
    x = layers.Concatenate()([layers.Subtract()([a, b]), layers.Multiply()([a, b]), shared(left + right)])
    model = keras.Model([left, right], layers.Dense(2)(x))
    return training(data, model, [data.normal(4), data.normal(4)], data.normal(2), adam())


@run
def shared_tower_ends(data):
    """Calls of nested models as the outputs themselves: where ends are named, their calls are counted from 1."""
    left, right = layers.Input((4,), name="left"), layers.Input((4,), name="right")
    shared, other = tower("tower"), tower("other", 3, 2)
    used_elsewhere = shared(layers.Input((4,)))  # a call that is no part of the model
    assert used_elsewhere is not None
    a, b = shared(left), shared(right)
    model = keras.Model([left, right], [b, other(a), other(b)])
    return training(data, model, [data.normal(4), data.normal(4)], [data.normal(3), data.normal(2), data.normal(2)],
                    adam(), ["mse", "mae", "mse"])


@run
def shared_towers_nested(data):
    """Towers inside towers: a model of two calls of another, itself called twice, beside a shared Sequential."""
    inner = tower("inner", 3, 3)
    x = layers.Input((3,))
    middle = keras.Model(x, layers.Add()([inner(x), inner(inner(x))]), name="middle")
    block = keras.Sequential([layers.Input((3,)), layers.Dense(3, activation="tanh")], name="block")
    inputs = layers.Input((3,))
    y = middle(block(inputs))
    model = keras.Model(inputs, layers.Dense(2)(layers.Concatenate()([y, middle(y), block(y)])))
    return training(data, model, data.normal(3), data.normal(2), adam())


@run
def shared_tower_two_results(data):
    """A nested model of two inputs and two outputs, called twice with its results crossed."""
    a, b = layers.Input((3,)), layers.Input((3,))
    pair = keras.Model([a, b], [layers.Dense(3, name="first")(a + b), layers.Dense(3, name="second")(a * b)],
                       name="pair")
    left, right = layers.Input((3,), name="left"), layers.Input((3,), name="right")
    first, second = pair([left, right])
    third, fourth = pair([second, first])
    model = keras.Model([left, right], [layers.Dense(2, name="head")(layers.Concatenate()([third, first])), fourth])
    return training(data, model, [data.normal(3), data.normal(3)], [data.normal(2), data.normal(3)], adam())


# ---------------------------------------------------------------------------------------------- several values


@run
def metrics_several_values(data):
    """Metrics with a value for each class, threshold or output."""
    return training(data, mlp(3, "sigmoid"), data.normal(5), data.bits(3), optimizers.SGD(0.2), "binary_crossentropy",
                    metrics=[metrics.F1Score(), metrics.F1Score(threshold=0.5, name="f1_half"),
                             metrics.FBetaScore(beta=2.0), metrics.Precision(thresholds=[0.3, 0.5, 0.7]),
                             metrics.Recall(thresholds=[0.3, 0.5, 0.7]), metrics.TruePositives(thresholds=[0.4, 0.6]),
                             metrics.FalseNegatives(thresholds=[0.4, 0.6]),
                             metrics.R2Score(class_aggregation=None), metrics.MeanSquaredError()])


# ---------------------------------------------------------------------------------------------- averages of weights


def constrained(outputs):
    return keras.Sequential([layers.Input((5,)),
                             layers.Dense(6, activation="tanh", kernel_constraint=keras.constraints.MaxNorm(0.7),
                                          bias_constraint="non_neg"),
                             layers.Dense(outputs, kernel_constraint=keras.constraints.MinMaxNorm(0.5, 0.9, rate=0.7))])


def add_average_run(name, covers, make, make_model):
    add("average_" + name, lambda data: training(data, make_model(3), data.normal(5), data.normal(3), make()), covers)


add_average_run("accumulation", "use_ema with gradient_accumulation_steps: the average moves with every batch.",
                lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, gradient_accumulation_steps=3), mlp)
add_average_run("accumulation_overwrite", "The same, and the weights become their average now and then.",
                lambda: optimizers.Adam(0.02, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2,
                                        gradient_accumulation_steps=3), mlp)
add_average_run("constraints", "use_ema with constraints: the average is taken before the constraint.",
                lambda: optimizers.SGD(0.2, use_ema=True, ema_momentum=0.8), constrained)
add_average_run("constraints_overwrite", "Constraints, accumulation and overwriting by the average.",
                lambda: optimizers.SGD(0.2, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3,
                                       gradient_accumulation_steps=2), constrained)
add_average_run("none_constraints_accumulation", "Constraints act with every batch, also between updates.",
                lambda: optimizers.SGD(0.2, gradient_accumulation_steps=3), constrained)


# ---------------------------------------------------------------------------------------------- operations between layers


@run
def masks_functional(data):
    """Masks in a functional model: NotEqual, Any, LogicalOr and the like stand in its JSON."""
    tokens, steps = layers.Input((5,), dtype="int32", name="tokens"), layers.Input((5, 3), name="steps")
    words = layers.Embedding(7, 3, mask_zero=True)(tokens)
    masked = layers.Masking()(steps)
    x = layers.Concatenate()([layers.Add()([words, masked]), layers.Multiply()([words, masked])])
    x = layers.GRU(4, return_sequences=True)(x)
    y = layers.Concatenate(axis=1)([words, layers.Dense(3)(x)])
    x = layers.Concatenate()([layers.LSTM(3)(y), layers.GlobalAveragePooling1D()(x),
                              layers.LSTM(2)(layers.Concatenate()([words, steps]))])
    model = keras.Model([tokens, steps], layers.Dense(2)(x))
    return training(data, model, [padded_tokens(data, 5, 7), padded(data, 5, 3)], data.normal(2), adam())


@run
def masks_end_at_operations(data):
    """An operation's result carries no mask; one that is computed by operations is given to a layer by name."""
    tokens = layers.Input((5,), dtype="int32", name="tokens")
    words = layers.Embedding(7, 4, mask_zero=True)(tokens)
    seen = ops.logical_and(ops.not_equal(tokens, 0), ops.not_equal(tokens, 3))
    x = layers.Concatenate()([layers.GRU(3)(words * 2.0), layers.GRU(3)(words + 1.0, mask=seen)])
    any_seen = ops.cast(ops.any(seen, axis=-1, keepdims=True), "float32")
    model = keras.Model(tokens, layers.Dense(2)(ops.where(any_seen > 0, x, ops.zeros_like(x))))
    return training(data, model, padded_tokens(data, 5, 7), data.normal(2), adam())


# ---------------------------------------------------------------------------------------------- float64

# Keras rounds many Python numbers to float32 before it takes them into float64 (the moments' decay rates, epsilons): the
# settings here are sums of few powers of two, which float32 holds. The learning rate it does not round.


@run_float64
def float64_dense(data):
    """float64 data, weights, loss, sample weights and metrics; a learning rate that float32 would round."""
    return training(data, mlp(3, "sigmoid"), data.normal(5), data.bits(3),
                    optimizers.Adam(0.013, beta_1=0.875, beta_2=1 - 2**-7, epsilon=2**-20),
                    "binary_crossentropy", sample_weight=data.uniform(high=2.0),
                    metrics=["mae", "accuracy", metrics.AUC(num_thresholds=20), metrics.Precision(thresholds=[0.3, 0.6])],
                    weighted_metrics=["mse", "accuracy", metrics.Recall(), metrics.RootMeanSquaredError()])


@run_float64
def float64_functional(data):
    """float64: two inputs, two outputs with losses by name, one of class numbers."""
    left, right = layers.Input((4,), name="left"), layers.Input((3,), name="right")
    x = layers.Concatenate()([layers.Dense(5, activation="tanh")(left), layers.Dense(4, activation="softplus")(right)])
    x = layers.LayerNormalization(epsilon=2**-10)(x)
    model = keras.Model([left, right], [layers.Dense(4, name="kind")(x), layers.Dense(2, name="size")(x)])
    return training(data, model, [data.normal(4), data.normal(3)], [data.ints(high=4), data.normal(2)],
                    optimizers.SGD(0.07, momentum=0.75, nesterov=True),
                    {"kind": losses.SparseCategoricalCrossentropy(from_logits=True), "size": losses.Huber(0.75)},
                    loss_weights={"kind": 0.25, "size": 1.75},
                    sample_weight=[data.uniform(high=2.0), data.uniform(high=3.0)],
                    metrics={"kind": ["accuracy"], "size": ["mae"]}, weighted_metrics={"size": ["mse"]})


@run_float64
def float64_convolutional(data):
    """float64: convolutions, batch normalisation, pooling, regularisers, weight decay, class weights."""
    model = keras.Sequential([layers.Input((6, 6, 2)),
                              layers.Conv2D(4, 3, use_bias=False, kernel_regularizer=regularizers.L2(2**-6)),
                              layers.BatchNormalization(momentum=0.875, epsilon=2**-10), layers.Activation("swish"),
                              layers.MaxPooling2D(2), layers.SeparableConv2D(3, 2), layers.GlobalAveragePooling2D(),
                              layers.Dense(3, activation="softmax")])
    return training(data, model, data.normal(6, 6, 2), data.one_hot(3),
                    optimizers.AdamW(0.017, weight_decay=2**-5, beta_1=0.875, beta_2=1 - 2**-7, epsilon=2**-20),
                    "categorical_crossentropy", class_weight={0: 0.3, 1: 1.7, 2: 0.9}, metrics=["accuracy"],
                    weighted_metrics=["accuracy"])


@run_float64
def float64_sequences(data):
    """float64: an embedding with a mask, LSTM and GRU, attention."""
    inputs = layers.Input((7,), dtype="int32")
    x = layers.Embedding(11, 6, mask_zero=True)(inputs)
    x = layers.LSTM(5, return_sequences=True)(x)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.GRU(4)(x)
    model = keras.Model(inputs, layers.Dense(1)(x))
    return training(data, model, data.ints(7, high=11), data.bits(1), optimizers.SGD(0.11, momentum=0.75),
                    losses.BinaryCrossentropy(from_logits=True))


def add_float64_optimizer(name, make):
    def define(data):
        return training(data, mlp(3), data.normal(5), data.normal(3), make(), metrics=["mae"])

    add("float64_optimizer_" + name, define, f"float64, the optimizer: {name}.", floatx="float64")


for optimizer_name, make_optimizer in {
        "rmsprop": lambda: optimizers.RMSprop(0.011, rho=0.875, momentum=0.5, epsilon=2**-20, centered=True),
        "lamb": lambda: optimizers.Lamb(0.013, beta_1=0.875, beta_2=1 - 2**-7, epsilon=2**-20),
        "adamax": lambda: optimizers.Adamax(0.013, beta_1=0.875, beta_2=1 - 2**-7, epsilon=2**-20,
                                            gradient_accumulation_steps=2),
        "ftrl": lambda: optimizers.Ftrl(0.11, initial_accumulator_value=0.125,
                                        l1_regularization_strength=2**-7)}.items():
    add_float64_optimizer(optimizer_name, make_optimizer)


# ---------------------------------------------------------------------------------------------- dictionaries


@run
def dictionaries(data):
    """Inputs and outputs by names that are not those of the layers; losses, weights and metrics by them."""
    left, right = layers.Input((4,), name="left"), layers.Input((3,), name="right")
    x = layers.Concatenate()([layers.Dense(5, activation="tanh")(left), right])
    model = keras.Model({"wide": left, "narrow": right},
                        {"size": layers.Dense(2, name="head")(x), "kind": layers.Dense(3, name="logits")(x)})
    return training(data, model, {"wide": data.normal(4), "narrow": data.normal(3)},
                    {"size": data.normal(2), "kind": data.ints(high=3)}, optimizers.Adam(0.01),
                    {"size": "mae", "kind": losses.SparseCategoricalCrossentropy(from_logits=True)},
                    loss_weights={"size": 0.3, "kind": 2.0},
                    sample_weight={"size": data.uniform(high=2.0), "kind": data.uniform()},
                    metrics={"kind": ["accuracy"]}, weighted_metrics={"size": ["mse"], "kind": ["accuracy"]})


@run
def dictionary_inside(data):
    """A model with dictionaries inside another, and a dictionary of one output."""
    left, right = layers.Input((4,)), layers.Input((3,))
    both = layers.Concatenate()([left, right])
    inner = keras.Model({"b": left, "a": right}, {"sum": layers.Dense(3)(both), "gate": layers.Dense(3)(both)},
                        name="inner")
    one, two = layers.Input((4,), name="one"), layers.Input((3,), name="two")
    results = inner({"b": one, "a": two})
    x = layers.Multiply()([layers.Activation("sigmoid")(results["gate"]), results["sum"]])
    model = keras.Model([one, two], {"y": layers.Dense(2)(x)})
    return training(data, model, [data.normal(4), data.normal(3)], {"y": data.normal(2)}, optimizers.SGD(0.1),
                    {"y": "mse"}, metrics={"y": ["mae"]})


# ---------------------------------------------------------------------------------------------- states from batch to batch


def add_stateful(name, covers, input_shape, make_layers):
    def define(data):
        model = keras.Sequential([layers.Input(batch_shape=(data.batch_size, *input_shape)), *make_layers(),
                                  layers.Flatten(), layers.Dense(2)])
        return training(data, model, data.normal(*input_shape), data.normal(2), optimizers.SGD(0.1, momentum=0.5))

    add("stateful_" + name, define, covers)


add_stateful("lstm", "Stateful LSTM and GRU: every batch begins with the states of the one before.", (4, 3),
             lambda: [layers.LSTM(4, stateful=True, return_sequences=True), layers.GRU(3, stateful=True)])
add_stateful("cells", "Stateful SimpleRNN backwards, and a cell in RNN.", (4, 3),
             lambda: [layers.SimpleRNN(4, stateful=True, return_sequences=True, go_backwards=True),
                      layers.RNN(layers.GRUCell(3), stateful=True)])
add_stateful("bidirectional", "A stateful layer in both directions.", (4, 3),
             lambda: [layers.Bidirectional(layers.GRU(3, stateful=True))])
add_stateful("conv_lstm", "A stateful ConvLSTM2D.", (3, 5, 4, 2),
             lambda: [layers.ConvLSTM2D(3, (3, 2), stateful=True)])


# ---------------------------------------------------------------------------------------------- convolutions over time

add_stack("conv_lstm_1d", "ConvLSTM1D, valid, with strides; and same, dilated, backwards.", (4, 9, 2),
          lambda: [layers.ConvLSTM1D(3, 3, strides=2, return_sequences=True),
                   layers.ConvLSTM1D(2, 2, padding="same", dilation_rate=2, go_backwards=True)])
add_stack("conv_lstm_2d", "ConvLSTM2D with a window of two sizes, other activations and initialisers.", (3, 6, 5, 2),
          lambda: [layers.ConvLSTM2D(3, (3, 2), return_sequences=True, padding="same", use_bias=False),
                   layers.ConvLSTM2D(2, 2, strides=(2, 1), activation="relu", recurrent_activation="hard_sigmoid",
                                     unit_forget_bias=False, kernel_regularizer="l2")])
add_stack("conv_lstm_3d", "ConvLSTM3D.", (2, 4, 3, 4, 2), lambda: [layers.ConvLSTM3D(2, 2, return_sequences=True)])


@run
def conv_lstm_states(data):
    """ConvLSTM1D with all steps and the states as results."""
    inputs = layers.Input((5, 6, 2))
    x, h, c = layers.ConvLSTM1D(3, 2, return_sequences=True, return_state=True)(inputs)
    x = layers.Concatenate()([layers.Flatten()(x), layers.Flatten()(h), layers.Flatten()(c)])
    model = keras.Model(inputs, layers.Dense(2)(x))
    return training(data, model, data.normal(5, 6, 2), data.normal(2))


# ---------------------------------------------------------------------------------------------- the rest of the classes


@run
def reversible_embedding(data):
    """The table of an embedding on the way in and, transposed, on the way out, with soft caps."""
    inputs = layers.Input((5,), dtype="int32")
    table = layers.ReversibleEmbedding(9, 4, logit_soft_cap=3.0)
    x = layers.Dense(4, activation="tanh")(table(inputs))
    model = keras.Model(inputs, table(x, reverse=True))
    return training(data, model, data.ints(5, high=9), data.ints(5, high=9), optimizers.SGD(0.3),
                    losses.SparseCategoricalCrossentropy(from_logits=True))


@run
def reversible_embedding_untied(data):
    """The way out has a table of its own, and the way in a mask."""
    inputs = layers.Input((5,), dtype="int32")
    table = layers.ReversibleEmbedding(9, 4, tie_weights=False, mask_zero=True)
    model = keras.Model(inputs, table(layers.LSTM(4)(table(inputs)), reverse=True))
    return training(data, model, data.ints(5, high=9), data.ints(high=9), optimizers.SGD(0.3),
                    losses.SparseCategoricalCrossentropy(from_logits=True))


for method in ("bicubic", "lanczos3", "lanczos5"):
    add_stack(f"up_sampling_{method}", f"UpSampling2D, interpolation {method}, behind a convolution.", (4, 5, 2),
              lambda method=method: [layers.Conv2D(2, 2), layers.UpSampling2D((2, 3), interpolation=method)],
              make_optimizer=lambda: optimizers.SGD(0.02))


def add_more_optimizers(name, make):
    def define(data):
        # The exclusion of Muon goes by the paths of variables.
        model = keras.Sequential([layers.Input((5,)), layers.Dense(8, activation="tanh", name="hidden"),
                                  layers.Dense(6, activation="tanh", name="middle"), layers.Dense(3, name="head")])
        return training(data, model, data.normal(5), data.normal(3), make(), metrics=["mae"])

    add("optimizer_" + name, define, f"The optimizer: {name.replace('_', ' ')}.")


for optimizer_name, make_optimizer in {
        "muon": lambda: optimizers.Muon(0.02, exclude_layers=["head"], weight_decay=0.01),
        "muon_options": lambda: optimizers.Muon(0.02, adam_lr_ratio=0.5, momentum=0.9, ns_steps=3, nesterov=False,
                                                rms_rate=None, adam_weight_decay=None),
        "schedule_free_adamw": lambda: optimizers.ScheduleFreeAdamW(0.02),
        "schedule_free_adamw_warmup": lambda: optimizers.ScheduleFreeAdamW(0.02, warmup_steps=8, weight_decay=0.05,
                                                                           beta_1=0.8, clipnorm=0.5)}.items():
    add_more_optimizers(optimizer_name, make_optimizer)


@run
def loss_circle(data):
    """Circle, of normalised embeddings."""
    data.batch_size = 8
    model = keras.Sequential([layers.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(4),
                              layers.UnitNormalization()])
    return training(data, model, data.normal(5), data.ints(high=3), optimizers.SGD(0.01), losses.Circle(gamma=16.0))


@run
def loss_ctc(data):
    """CTC, of labels of several lengths, some with repeated classes."""
    labels = data.ints(3, low=1, high=5)
    labels[::3, 2] = 0
    labels[1::3, 1] = labels[1::3, 0]
    labels[::7, 1:] = 0
    model = keras.Sequential([layers.Input((9, 4)), layers.GRU(6, return_sequences=True), layers.Dense(6)])
    return training(data, model, data.normal(9, 4), labels, optimizers.SGD(0.05), losses.CTC())


@run
def loss_focal_alphas(data):
    """CategoricalFocalCrossentropy with an alpha for each class."""
    return training(data, mlp(4, "softmax"), data.normal(5), data.one_hot(4), optimizers.SGD(0.3),
                    losses.CategoricalFocalCrossentropy(alpha=[0.1, 0.3, 0.4, 0.2]))


@run
def schedule_float_steps(data):
    """decay_steps that is no whole number."""
    return training(data, mlp(2), data.normal(5), data.normal(2),
                    optimizers.SGD(schedules.ExponentialDecay(0.1, 3.5, 0.7, staircase=True)))
