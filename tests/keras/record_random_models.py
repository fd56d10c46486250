"""Records random models, trained by Keras for a few steps, as testdata/random_models.json (testdata/README.md is the format).

    python3 -m venv venv && venv/bin/pip install keras==3.15.1 jax==0.10.2 numpy
    venv/bin/python tests/keras/record_random_models.py [LAST [FIRST [FILE]]]

Every model follows from its number, FIRST to LAST. Even ones are float32, odd ones float64. One that would end elsewhere in the other
precision, by more than rounding should move it, is passed over: no second implementation could agree with it. Numbers of weights,
inputs and labels follow from a formula, so that none of them is stored.
"""

import os
import pathlib
import sys
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # each program runs a few times: compiling it is what takes time
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
from keras import layers, losses, ops, optimizers

import fixture_files
import jax_as_tensorflow  # noqa: F401

warnings.filterwarnings("ignore")

FILE = pathlib.Path(__file__).parent / "testdata" / "random_models.json"
BATCH, BATCHES, STEPS = 4, 2, 4
ROWS = BATCH * BATCHES
MAX_ROUNDING = 2.5e-6
LAST = 117
TOKENS, CLASSES = 6, 3
POSITIVE = ("gamma", "moving_variance", "scale", "variance")


# Every weight gets other values, and random numbers would be compiled for each shape.
for initializer in (keras.initializers.VarianceScaling, keras.initializers.Orthogonal, keras.initializers.RandomUniform):
    initializer.__call__ = lambda self, shape, dtype=None: np.zeros(shape, dtype or keras.config.floatx())


def uniform(number, slot, *shape):
    """Numbers in [0, 1) with 24 bits, the same everywhere."""
    count = int(np.prod(shape))
    h = (np.arange(count, dtype=np.uint64) * 2654435761 + np.uint64(number * 10007 + slot)) & 0xFFFFFFFF
    for shift, factor in ((15, 2246822519), (13, 3266489917)):
        h = ((h ^ (h >> np.uint64(shift))) * factor) & 0xFFFFFFFF
    h ^= h >> np.uint64(16)
    return (h >> np.uint64(8)).astype(np.float64).reshape(shape) / 2.0**24


class Draw:
    """A model's choices, in the order in which they are asked for."""

    def __init__(self, number):
        self.generator = np.random.default_rng(7000 + number)

    def one(self, *choices):
        return choices[int(self.generator.integers(len(choices)))]

    def chance(self, probability):
        return bool(self.generator.random() < probability)

    def size(self, low, high):
        return int(self.generator.integers(low, high + 1))


def activation(draw):
    return draw.one("tanh", "sigmoid", "gelu", "silu", "softplus", "elu", "selu", "softsign", "mish", "relu", "relu6",
                    "leaky_relu", "hard_silu", "exponential", "log_sigmoid", "celu", "squareplus", None, None)


def regularizer(draw):
    return draw.one(None, None, None, "l2", keras.regularizers.L2(0.03), keras.regularizers.L1L2(0.01, 0.02),
                    keras.regularizers.OrthogonalRegularizer(0.02))


def constraint(draw):
    return draw.one(None, None, None, None, keras.constraints.MaxNorm(1.1, axis=0), keras.constraints.UnitNorm(axis=0),
                    keras.constraints.NonNeg(), keras.constraints.MinMaxNorm(0.25, 1.25, rate=0.5, axis=0))


# Each maps a value to another, of any rank that it is listed for.
def dense(draw, x):
    return layers.Dense(draw.size(2, 5), activation=activation(draw), use_bias=draw.chance(0.8),
                        kernel_regularizer=regularizer(draw), kernel_constraint=constraint(draw),
                        bias_regularizer=draw.one(None, None, "l2"), bias_constraint=draw.one(None, None, None, "non_neg"),
                        activity_regularizer=draw.one(None, None, None, keras.regularizers.L2(0.01)))(x)


def norm(draw, x):
    make = draw.one(lambda: layers.LayerNormalization(epsilon=1e-2, center=draw.chance(0.7), scale=draw.chance(0.7)),
                    lambda: layers.RMSNormalization(epsilon=1e-2),
                    lambda: layers.BatchNormalization(momentum=0.7, epsilon=1e-2, renorm=False),
                    lambda: layers.BatchNormalization(momentum=0.5, epsilon=1e-2, scale=False),
                    lambda: layers.GroupNormalization(groups=1, epsilon=1e-2), lambda: layers.UnitNormalization())
    return make()(x)


def operation(draw, x):
    return draw.one(lambda: x * 0.5 + 0.1, lambda: ops.tanh(x) * x, lambda: 1.0 / (1.0 + ops.square(x)),
                    lambda: ops.where(x > 0, x, 0.25 * x), lambda: x - ops.mean(x, axis=-1, keepdims=True),
                    lambda: ops.clip(x, -1.5, 1.5), lambda: ops.softmax(x, axis=-1), lambda: ops.logaddexp(x, 0.1 * x),
                    lambda: ops.sin(x) + ops.stop_gradient(x), lambda: ops.concatenate([x, -x], axis=-1),
                    lambda: ops.flip(x, axis=1), lambda: ops.maximum(x, ops.minimum(-x, 0.2)), lambda: ops.cumsum(x, axis=-1),
                    lambda: ops.sqrt(ops.abs(x) + 0.1), lambda: ops.roll(x, 1, axis=1), lambda: x[:, ::-1],
                    lambda: ops.einsum("b...i->b...i", x) * 2.0, lambda: ops.var(x, axis=-1, keepdims=True) + x,
                    lambda: ops.log1p(ops.square(x)), lambda: ops.erf(x))()


def plain_layer(draw, x):
    return draw.one(lambda: layers.LeakyReLU(0.3), lambda: layers.PReLU(alpha_regularizer=draw.one(None, "l2")),
                    lambda: layers.ELU(0.7), lambda: layers.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.1),
                    lambda: layers.Softmax(), lambda: layers.Activation("tanh"), lambda: layers.Dropout(0.0),
                    lambda: layers.Rescaling(0.5, offset=0.25), lambda: layers.Identity(),
                    lambda: layers.ActivityRegularization(l1=0.01, l2=0.02), lambda: layers.GaussianNoise(0.0))()(x)


def residual(draw, x):
    y = layers.Dense(x.shape[-1], activation=activation(draw))(x)
    make = draw.one(layers.Add, layers.Multiply, layers.Average, layers.Concatenate, layers.Subtract, layers.Maximum,
                    layers.Minimum)
    return make()([x, y])


def shared_layer(draw, x):
    """One layer, called on two values."""
    layer = layers.Dense(x.shape[-1], activation=activation(draw), kernel_regularizer=regularizer(draw))
    return layer(layer(x)) if draw.chance(0.5) else layers.Concatenate()([layer(x), layer(0.5 * x)])


def tower(draw, x):
    """A functional or sequential model inside, called once or several times; now and then with models inside."""
    shape, width = x.shape[1:], x.shape[-1]
    if draw.chance(0.4):
        model = keras.Sequential([layers.Input(shape), layers.Dense(3, activation="tanh"), layers.Dense(width)])
    else:
        inner = layers.Input(shape)
        y = layers.Dense(3, activation="tanh")(inner)
        if draw.chance(0.3):
            innermost = keras.Sequential([layers.Input(y.shape[1:]), layers.Dense(2, activation="elu")])
            y = layers.Concatenate()([innermost(y), innermost(-y)])
        model = keras.Model(inner, layers.Dense(width)(y) + inner)
    calls = [model(x)]
    while draw.chance(0.5):
        calls.append(model(calls[-1]))
    return layers.Add()(calls) if len(calls) > 1 else calls[0]


def pair(draw, x):
    """A model of two inputs and two outputs inside."""
    a, b = layers.Input(x.shape[1:]), layers.Input(x.shape[1:])
    hidden = layers.Dense(3, activation="tanh")(layers.Concatenate()([a, b]))
    model = keras.Model([a, b], [layers.Dense(x.shape[-1])(hidden), hidden * 0.5])
    first, second = model([x, layers.Dense(x.shape[-1])(x)])
    if draw.chance(0.4):
        first, second = model([first, x])
    return layers.Concatenate()([first, second]) if draw.chance(0.7) else first


def convolution1d(draw, x):
    if x.shape[1] < 3:
        return dense(draw, x)
    return draw.one(
        lambda: layers.Conv1D(3, draw.size(1, 3), padding=draw.one("same", "causal", "valid"),
                              activation=activation(draw), kernel_regularizer=regularizer(draw)),
        lambda: layers.Conv1D(2, 2, dilation_rate=2, padding=draw.one("same", "causal")),
        lambda: layers.SeparableConv1D(3, 2, padding="same", activation=activation(draw)),
        lambda: layers.DepthwiseConv1D(2, padding="same"), lambda: layers.Conv1DTranspose(2, 2, strides=2),
        lambda: layers.AveragePooling1D(2, strides=1), lambda: layers.AveragePooling1D(3, padding="same"),
        lambda: layers.MaxPooling1D(2, strides=1, padding=draw.one("same", "valid")),
        lambda: layers.ZeroPadding1D((1, 0)), lambda: layers.UpSampling1D(2), lambda: layers.Cropping1D((0, 1)),
        lambda: layers.Permute((2, 1)), lambda: layers.SpatialDropout1D(0.0))()(x)


def recurrence(draw, x):
    make = draw.one(layers.SimpleRNN, layers.GRU, layers.LSTM)
    options = {"use_bias": draw.chance(0.8), "kernel_regularizer": regularizer(draw)}
    if make is layers.GRU:
        options["reset_after"] = draw.chance(0.6)
    if make is layers.LSTM:
        options["unit_forget_bias"] = draw.chance(0.5)
    kind = draw.one("plain", "plain", "backwards", "both", "cells", "time")
    if kind == "both":
        return layers.Bidirectional(make(2, return_sequences=True, **options),
                                    merge_mode=draw.one("concat", "sum", "mul", "ave"))(x)
    if kind == "cells":
        return layers.RNN([layers.GRUCell(2), layers.LSTMCell(3)], return_sequences=True)(x)
    if kind == "time":
        return layers.TimeDistributed(layers.Dense(3, activation=activation(draw)))(x)
    return make(draw.size(2, 3), return_sequences=True, go_backwards=kind == "backwards", **options)(x)


def attention(draw, x):
    return draw.one(lambda: layers.MultiHeadAttention(2, 2, use_bias=draw.chance(0.5))(x, x, use_causal_mask=draw.chance(0.5)),
                    lambda: layers.Attention(use_scale=True)([x, x]),
                    lambda: layers.Attention(score_mode="concat")([x, x], use_causal_mask=draw.chance(0.5)),
                    lambda: layers.AdditiveAttention()([x, x]),
                    lambda: layers.GroupQueryAttention(2, 2, 1)(x, x),
                    lambda: layers.EinsumDense("abc,cd->abd", output_shape=(None, 3), bias_axes="d",
                                               activation=activation(draw))(x))()


def convolution2d(draw, x):
    if min(x.shape[1:3]) < 3:
        return dense(draw, x)
    return draw.one(
        lambda: layers.Conv2D(3, draw.one(1, 2, 3, (3, 2)), strides=draw.one(1, 1, 2), padding=draw.one("same", "valid"),
                              activation=activation(draw), kernel_constraint=draw.one(
                                  None, None, keras.constraints.MaxNorm(0.9, axis=[0, 1, 2]))),
        lambda: layers.Conv2D(2, 2, dilation_rate=2, padding="same"),
        lambda: layers.Conv2D(2 * x.shape[-1], 2, groups=x.shape[-1], activation=activation(draw)),
        lambda: layers.DepthwiseConv2D(2, padding="same", depth_multiplier=draw.one(1, 2)),
        lambda: layers.SeparableConv2D(2, 2, padding="same", activation=activation(draw)),
        lambda: layers.Conv2DTranspose(2, 2, strides=draw.one(1, 2), padding=draw.one("same", "valid")),
        lambda: layers.AveragePooling2D((2, 1)), lambda: layers.AveragePooling2D(3, strides=2, padding="same"),
        lambda: layers.MaxPooling2D(2, strides=1, padding=draw.one("same", "valid")),
        lambda: layers.ZeroPadding2D(((0, 1), (1, 0))), lambda: layers.Cropping2D(((1, 0), (0, 1))),
        lambda: layers.UpSampling2D((1, 2)), lambda: layers.UpSampling2D(2, interpolation="bilinear"))()(x)


STEPS_OF = {2: [dense, dense, norm, operation, plain_layer, residual, shared_layer, tower, pair],
            3: [dense, norm, operation, plain_layer, residual, shared_layer, tower, pair, convolution1d, convolution1d, recurrence,
                recurrence, attention],
            4: [dense, norm, operation, plain_layer, residual, convolution2d, convolution2d, convolution2d]}
SHAPES = {"vector": (4,), "sequence": (5, 3), "masked": (5, 3), "tokens": (4,), "image": (6, 5, 2)}


def first_value(draw, kind, x):
    """What follows an input, by its kind: with a mask where the kind has one."""
    if kind == "tokens":
        masked = draw.chance(0.5)
        y = layers.Embedding(TOKENS, 3, mask_zero=masked, embeddings_regularizer=draw.one(None, None, "l2"))(x)
        if masked:
            return layers.LSTM(3, return_sequences=draw.chance(0.6))(y)
        if draw.chance(0.3):
            return layers.GRU(3, return_sequences=True)(y, mask=ops.not_equal(x, 0))
        return y
    if kind == "masked":
        y = layers.Masking()(x)
        return draw.one(lambda: layers.LSTM(3, return_sequences=draw.chance(0.6))(y),
                        lambda: layers.Bidirectional(layers.GRU(2))(y),
                        lambda: layers.GlobalAveragePooling1D()(y),
                        lambda: layers.MultiHeadAttention(2, 2)(y, y),
                        lambda: layers.SimpleRNN(3, return_sequences=True)(layers.Dense(3)(y)),
                        lambda: layers.TimeDistributed(layers.Dense(2))(y))()
    return x


def build(draw):
    """Inputs' kinds and the model."""
    kinds = [draw.one("vector", "sequence", "masked", "tokens", "image") for _ in range(draw.one(1, 1, 1, 2))]
    inputs, ends = [], []
    for kind in kinds:
        x = layers.Input(SHAPES[kind], dtype="int32" if kind == "tokens" else None)
        inputs.append(x)
        x = first_value(draw, kind, x)
        for _ in range(draw.size(1, 3)):
            x = draw.one(*STEPS_OF[len(x.shape)])(draw, x)
        ends.append(x)
    if len(ends) == 1 and len(ends[0].shape) == 3 and draw.chance(0.3):  # labels for every step
        return kinds, keras.Model(inputs, layers.Dense(CLASSES, name="first")(ends[0]))
    flat = []
    for x in ends:
        if len(x.shape) > 2:
            pools = {3: [layers.GlobalAveragePooling1D, layers.GlobalMaxPooling1D],
                     4: [layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D]}[len(x.shape)]
            x = draw.one(layers.Flatten, layers.Flatten, *pools)()(x)
        flat.append(x)
    x = layers.Concatenate()(flat) if len(flat) > 1 else flat[0]
    for _ in range(draw.size(0, 2)):
        x = draw.one(*STEPS_OF[2])(draw, x)
    outputs = [layers.Dense(CLASSES, name="first")(x)]
    if draw.chance(0.3):
        outputs.append(layers.Dense(2, activation="tanh", name="second")(x))
    return kinds, keras.Model(inputs, outputs if len(outputs) > 1 else outputs[0])


def with_probabilities(model, draw):
    """Now and then the first output gives probabilities."""
    if len(model.outputs) > 1 or not draw.chance(0.25):
        return model, None
    kind = draw.one("softmax", "sigmoid")
    return keras.Model(model.inputs, layers.Activation(kind, name="first_" + kind)(model.outputs[0])), kind


def schedule(draw, rate):
    s = optimizers.schedules
    return draw.one(None, None, None, None, s.PiecewiseConstantDecay([2, 4], [rate, rate / 2, rate / 4]),
                    s.ExponentialDecay(rate, 2, 0.5, staircase=draw.chance(0.5)), s.CosineDecay(rate, 8),
                    s.PolynomialDecay(rate, 8, end_learning_rate=rate / 4, power=2.0), s.InverseTimeDecay(rate, 2, 0.5),
                    s.CosineDecay(0.0, 4, warmup_target=rate, warmup_steps=2), s.CosineDecayRestarts(rate, 3))


def optimizer(draw):
    # Powers of two are the same number in float32 and float64.
    rate = draw.one(2.0**-4, 2.0**-5, 2.0**-6)
    options = draw.one({}, {}, {"clipnorm": 0.5}, {"clipvalue": 0.125}, {"global_clipnorm": 1.0},
                       {"use_ema": True, "ema_momentum": 0.75}, {"gradient_accumulation_steps": 2},
                       {"use_ema": True, "ema_momentum": 0.5, "gradient_accumulation_steps": 2},
                       {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
                       {"weight_decay": 2.0**-5}, {"weight_decay": 2.0**-4, "clipnorm": 0.75})
    rate = schedule(draw, rate) or rate
    eps = {"epsilon": 2.0**-7}
    make = draw.one(lambda: optimizers.SGD(rate, momentum=draw.one(0.0, 0.75), nesterov=draw.chance(0.5), **options),
                    lambda: optimizers.Adam(rate, **eps, amsgrad=draw.chance(0.3), **options),
                    lambda: optimizers.AdamW(rate, **eps, **options),
                    lambda: optimizers.RMSprop(rate, **eps, centered=draw.chance(0.5), momentum=draw.one(0.0, 0.5), **options),
                    lambda: optimizers.Adagrad(rate, **options), lambda: optimizers.Adamax(rate, **eps, **options),
                    lambda: optimizers.Nadam(rate, **eps, **options),
                    lambda: optimizers.Adadelta(1.0, epsilon=2.0**-5, **options),
                    lambda: optimizers.Ftrl(rate, l1_regularization_strength=draw.one(0.0, 0.01), beta=draw.one(0.0, 0.5),
                                            **options),
                    lambda: optimizers.Lamb(rate, **eps, **options),
                    lambda: optimizers.Adafactor(rate, relative_step=draw.chance(0.5), **options))
    return make()


def loss_and_labels(draw, probabilities, shape):
    """A loss for predictions of this shape (of one example), and the kind of labels that it takes."""
    summed = {"reduction": "sum"} if draw.chance(0.15) else {}
    if probabilities == "softmax":
        return draw.one(lambda: (losses.CategoricalCrossentropy(label_smoothing=draw.one(0.0, 0.125), **summed), "one_hot"),
                        lambda: (losses.SparseCategoricalCrossentropy(**summed), "classes"),
                        lambda: (losses.KLDivergence(**summed), "one_hot"),
                        lambda: (losses.CategoricalFocalCrossentropy(**summed), "one_hot"),
                        lambda: (losses.CategoricalGeneralizedCrossEntropy(q=0.5, **summed), "classes"))()
    if probabilities == "sigmoid":
        return draw.one(lambda: (losses.BinaryCrossentropy(**summed), "bits"),
                        lambda: (losses.BinaryFocalCrossentropy(gamma=1.5, apply_class_balancing=draw.chance(0.5), **summed), "bits"),
                        lambda: (losses.Poisson(**summed), "bits"), lambda: (losses.Dice(axis=-1), "bits"),
                        lambda: (losses.Tversky(axis=-1), "bits"), lambda: (losses.MeanSquaredLogarithmicError(**summed), "bits"))()
    kinds = [lambda: (draw.one(losses.MeanSquaredError, losses.Huber, losses.LogCosh, losses.MeanAbsoluteError,
                               losses.CosineSimilarity)(**summed), "values"),
             lambda: (draw.one(losses.Hinge, losses.SquaredHinge)(**summed), "bits"),
             lambda: (losses.BinaryCrossentropy(from_logits=True, label_smoothing=draw.one(0.0, 0.125), **summed), "bits"),
             lambda: (losses.CategoricalCrossentropy(from_logits=True, **summed), "one_hot"),
             lambda: (losses.CategoricalHinge(**summed), "one_hot"),
             lambda: (losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=draw.one(None, None, 1), **summed),
                      "classes")]
    return draw.one(*kinds)()


def metrics(draw, kind):
    if kind == "values":
        return draw.one([], ["mae"], ["mse", "cosine_similarity"], [keras.metrics.RootMeanSquaredError()])
    if kind == "bits":
        return draw.one([], ["accuracy"], [keras.metrics.BinaryAccuracy(threshold=0.25)])
    if kind == "one_hot":
        return draw.one([], ["accuracy"], [keras.metrics.TopKCategoricalAccuracy(k=2)])
    return draw.one([], ["accuracy"], [keras.metrics.SparseTopKCategoricalAccuracy(k=2)])


def input_values(number, i, kind, dtype):
    shape = (ROWS, *SHAPES[kind])
    u = uniform(number, 100 + i, *shape)
    if kind == "tokens":
        return np.floor(u * TOKENS).astype("int32")
    x = (2 * u - 1) * 1.5
    if kind == "masked":  # steps at the end are padding
        for row in range(ROWS):
            x[row, 2 + row % 4:] = 0.0
    return x.astype(np.float32).astype(dtype)


def label_values(number, i, kind, shape, dtype):
    if kind == "classes":
        return np.floor(uniform(number, 200 + i, ROWS, *shape[:-1]) * shape[-1]).astype("int32")
    if kind == "one_hot":
        return np.eye(shape[-1])[np.floor(uniform(number, 200 + i, ROWS, *shape[:-1]) * shape[-1]).astype(int)].astype(dtype)
    u = uniform(number, 200 + i, ROWS, *shape)
    return (u < 0.5).astype(dtype) if kind == "bits" else (2 * u - 1).astype(np.float32).astype(dtype)


def initial_weight(number, i, variable, dtype):
    u = uniform(number, 1000 + i, *variable.shape)
    value = 1 + 0.25 * u if variable.name in POSITIVE else 0.5 * (2 * u - 1)
    return value.astype(np.float32).astype(dtype)


def projection(number, i, value):
    """One number that every element of the weight moves."""
    value = np.asarray(value, np.float64)
    return float(np.sum(value * (2 * uniform(number, 3000 + i, *value.shape) - 1)))


def trained(number, dtype, whole=True):
    """The model of this number, trained: everything that is recorded of it, or only what its weights say."""
    keras.utils.clear_session()
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    draw = Draw(number)
    kinds, model = build(draw)
    model, probabilities = with_probabilities(model, draw)
    shapes = [tuple(tensor.shape[1:]) for tensor in model.outputs]
    pairs = [loss_and_labels(draw, probabilities, shape) if i == 0 else (draw.one(losses.MeanSquaredError(), losses.Huber()),
                                                                         "values") for i, shape in enumerate(shapes)]
    names = [tensor._keras_history.operation.name for tensor in model.outputs]
    single = len(pairs) == 1
    x = [input_values(number, i, kind, dtype) for i, kind in enumerate(kinds)]
    y = [label_values(number, i, kind, shapes[i], dtype) for i, (_, kind) in enumerate(pairs)]
    weighing = draw.one("none", "none", "examples", "classes" if single and pairs[0][1] == "classes" else "examples")
    sample_weight = [(2 * uniform(number, 300 + i, ROWS, *shape[:-1])).astype(np.float32).astype(dtype)
                     for i, shape in enumerate(shapes)] if weighing == "examples" else []
    class_weight = {0: 0.5, 2: 1.5} if weighing == "classes" else None
    for i, variable in enumerate(model.weights):
        if "seed" not in variable.name:
            variable.assign(initial_weight(number, i, variable, dtype))
    model_json = keras.saving.serialize_keras_object(model)
    by_name = not single and draw.chance(0.5)
    loss = pairs[0][0] if single else {n: p[0] for n, p in zip(names, pairs)} if by_name else [p[0] for p in pairs]
    weights = None if single or draw.chance(0.5) else {names[0]: 0.5, names[1]: 2.0} if by_name else [0.5, 2.0]
    chosen = [metrics(draw, kind) for _, kind in pairs]
    rule = optimizer(draw)
    excluded = ["bias"] if rule.weight_decay and draw.chance(0.5) else []
    if excluded:
        rule.exclude_from_weight_decay(var_names=excluded)
    heeded = single and draw.chance(0.5)
    model.compile(optimizer=rule, loss=loss, loss_weights=weights,
                  metrics=None if heeded else chosen[0] if single else chosen,
                  weighted_metrics=chosen[0] if heeded else None)

    def batch(arrays, step):
        cut = [array[step % BATCHES * BATCH:(step % BATCHES + 1) * BATCH] for array in arrays]
        return (cut[0] if len(cut) == 1 else cut) if cut else None

    history = []
    for step in range(STEPS):
        model.reset_metrics()
        logs = model.train_on_batch(batch(x, step), batch(y, step), batch(sample_weight, step), class_weight=class_weight,
                                    return_dict=True)
        history.append(float(logs["loss"]))
    final = [projection(number, i, variable.value) for i, variable in enumerate(model.weights)]
    sizes = [float(np.sum(np.abs(np.asarray(variable.value, np.float64)))) for variable in model.weights]
    if not whole:
        return {"loss": history, "weights": final, "weight_sizes": sizes, "prediction": []}
    prediction = model.predict_on_batch(batch(x, 0))
    prediction = [np.asarray(value, np.float64).ravel() for value in
                  (prediction if isinstance(prediction, (list, tuple)) else [prediction])]
    figures = model.evaluate(x[0] if len(x) == 1 else x, y[0] if single else y,
                             sample_weight=None if not sample_weight else sample_weight[0] if single else sample_weight,
                             batch_size=BATCH, verbose=0, return_dict=True)
    return {"dtype": dtype, "inputs": kinds, "labels": [kind for _, kind in pairs], "weighing": weighing,
            "exclude_from_weight_decay": excluded, "loss": history, "weights": final, "weight_sizes": sizes,
            "prediction": prediction, "evaluate": {key: float(value) for key, value in figures.items()},
            "model": model_json, "compile": model.get_compile_config()}


def distance(actual, expected):
    """The largest difference of what is recorded, as the test measures it."""
    worst = 0.0
    pairs = [(actual["loss"], expected["loss"], 1.0)]
    pairs += [([a], [e], size) for a, e, size in zip(actual["weights"], expected["weights"], expected["weight_sizes"])]
    pairs += [(a, e, 1.0) for a, e in zip(actual["prediction"], expected["prediction"])]
    for a, e, size in pairs:
        scale = max(float(np.max(np.abs(e), initial=0.0)), 0.2, 0.2 * size)
        worst = max(worst, float(np.max(np.abs(np.asarray(a) - np.asarray(e)), initial=0.0)) / scale)
    return worst


def without_noise(json):
    """What Keras writes, less what reads back as the same model without it: half of the file."""
    if isinstance(json, dict):
        return {key: without_noise(value) for key, value in json.items()
                if not (key == "registered_name" and value is None)}
    return [without_noise(item) for item in json] if isinstance(json, list) else json


def shortened(record):
    digits = 17 if record["dtype"] == "float64" else 9
    short = lambda values: [float(f"{value:.{digits}g}") for value in values]
    sizes = record.pop("weight_sizes")
    record["weights"] = short(record["weights"])
    record["weight_sizes"] = [float(f"{size:.3g}") for size in sizes]
    record["prediction"] = [short(values) for values in record["prediction"]]
    return {key: without_noise(value) for key, value in record.items()}


def main():
    last, first = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, LAST), (2, 1)))
    file = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else FILE
    records = {}
    for number in range(first, last + 1):
        name, dtype = f"{number:03}", "float64" if number % 2 else "float32"
        try:
            record = trained(number, dtype)
            # Optimizers that scale every step to the weight's size blow up gradients that are 0 but for rounding.
            scaled = record["compile"]["optimizer"]["class_name"] in ("Lamb", "Adafactor")
            other = record if dtype == "float64" and not scaled else trained(
                number, "float64" if dtype == "float32" else "float32", whole=False)
        except Exception as error:  # choices that do not fit together
            print(f"{name}: passed over, {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
            continue
        rounding = distance(record, other)
        largest = max(map(abs, record["loss"]))
        finite = np.isfinite(np.concatenate([record["loss"], record["weights"], *record["prediction"]])).all()
        if not finite or rounding > (MAX_ROUNDING if dtype == "float32" else 40 * MAX_ROUNDING) or largest > 1e3:
            print(f"{name}: passed over, rounding {rounding:.1e}, loss {largest:.1e}", flush=True)
            continue
        records[name] = shortened(record)
        print(f"{name}: {dtype}, rounding {rounding:.1e}", flush=True)
        fixture_files.write_json(file, {
            "about": "Random models, trained for a few steps.",
            "recorded_with": f"keras {keras.__version__}, {keras.backend.backend()} backend", **records})


if __name__ == "__main__":
    main()
