"""Records what Keras' optimizers and schedules compute, as optimizers.json beside this file.

    KERAS_BACKEND=jax python record_optimizers.py

Everything is computed in float64: in float32 Keras rounds 1 - beta_2 ** t so early that its own results are
off by more than the tests allow.
"""

import json
import math
import pathlib

import jax
import keras
import numpy as np
from keras import optimizers as k
from keras.optimizers import schedules as s

jax.config.update("jax_enable_x64", True)
keras.config.set_floatx("float64")

STEPS = 20
SHAPES = [(2, 3), (4,), (2, 2, 2)]


def start():
    """Weights of both signs, none of them tiny."""
    values, offset = [], 0
    for shape in SHAPES:
        size = math.prod(shape)
        values.append(np.array([math.cos(1.3 * (i + offset)) + 0.1 for i in range(size)], "float64"))
        offset += size
    return values


def gradients(step):
    """Different at every step, of both signs, of sizes from 1 to 0.001, and now and then zero."""
    result, offset = [], 0
    for shape in SHAPES:
        size = math.prod(shape)
        flat = [math.sin(1.7 * step + i + offset) * 10.0 ** -((i + offset) % 4) for i in range(size)]
        if step % 5 == 0:
            flat[0] = 0.0
        result.append(np.array(flat, "float64"))
        offset += size
    return result


OPTIMIZERS = {
    "sgd": lambda: k.SGD(),
    "sgd_momentum": lambda: k.SGD(0.1, momentum=0.9),
    "sgd_nesterov": lambda: k.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: k.Adam(),
    "adam_options": lambda: k.Adam(0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3),
    "adam_amsgrad": lambda: k.Adam(0.05, beta_2=0.9, amsgrad=True),
    "adamw": lambda: k.AdamW(0.05),
    "adamax": lambda: k.Adamax(0.05, beta_2=0.9),
    "nadam": lambda: k.Nadam(0.05, beta_2=0.95),
    "rmsprop": lambda: k.RMSprop(),
    "rmsprop_momentum": lambda: k.RMSprop(0.01, rho=0.8, momentum=0.9),
    "rmsprop_centered": lambda: k.RMSprop(0.01, centered=True, epsilon=1e-3),
    "rmsprop_all": lambda: k.RMSprop(0.01, momentum=0.5, centered=True, epsilon=1e-3),
    "adagrad": lambda: k.Adagrad(0.1),
    "adagrad_options": lambda: k.Adagrad(0.1, initial_accumulator_value=0.5, epsilon=1e-2),
    "adadelta": lambda: k.Adadelta(1.0),
    "adadelta_options": lambda: k.Adadelta(0.5, rho=0.8, epsilon=1e-4),
    "lion": lambda: k.Lion(0.01),
    "lamb": lambda: k.Lamb(0.05),
    "ftrl": lambda: k.Ftrl(0.1),
    "ftrl_options": lambda: k.Ftrl(
        0.1,
        learning_rate_power=-0.7,
        initial_accumulator_value=0.2,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        l2_shrinkage_regularization_strength=0.03,
        beta=0.1,
    ),
    "adafactor": lambda: k.Adafactor(0.05),
    "adafactor_options": lambda: k.Adafactor(
        0.5, beta_2_decay=-0.6, epsilon_1=1e-3, epsilon_2=0.1, clip_threshold=0.5, relative_step=False
    ),
    "weight_decay": lambda: k.SGD(0.1, momentum=0.9, weight_decay=0.1),
    "clipnorm": lambda: k.SGD(0.1, clipnorm=0.5),
    "clipvalue": lambda: k.SGD(0.1, clipvalue=0.05),
    "global_clipnorm": lambda: k.Adam(0.1, global_clipnorm=0.7, epsilon=0.1),
    "ema": lambda: k.SGD(0.1, use_ema=True, ema_momentum=0.8),
    "ema_overwritten": lambda: k.Adam(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=3),
    "loss_scale_factor": lambda: k.SGD(0.1, loss_scale_factor=64.0),
    "accumulated": lambda: k.Adam(0.1, gradient_accumulation_steps=3),
    "accumulated_clipped_decayed": lambda: k.SGD(
        0.1, momentum=0.9, gradient_accumulation_steps=2, clipnorm=0.3, weight_decay=0.05
    ),
    "scheduled": lambda: k.SGD(s.ExponentialDecay(0.5, 7, 0.5), momentum=0.5),
    "scheduled_decayed": lambda: k.AdamW(s.CosineDecay(0.01, 15, warmup_target=0.1, warmup_steps=5)),
    "scheduled_accumulated": lambda: k.SGD(s.ExponentialDecay(0.5, 7, 0.5), gradient_accumulation_steps=3),
    "loss_scale": lambda: k.LossScaleOptimizer(k.Adam(0.05), initial_scale=8.0, dynamic_growth_steps=4),
}

SCHEDULES = {
    "exponential": s.ExponentialDecay(0.1, 7, 0.8),
    "exponential_staircase": s.ExponentialDecay(0.1, 7, 0.8, staircase=True),
    "inverse_time": s.InverseTimeDecay(0.1, 7, 0.8),
    "inverse_time_staircase": s.InverseTimeDecay(0.1, 7, 0.8, staircase=True),
    "piecewise": s.PiecewiseConstantDecay([5, 10, 30], [1.0, 0.5, 0.25, 0.1]),
    "polynomial": s.PolynomialDecay(0.1, 20, end_learning_rate=0.01, power=2.0),
    "polynomial_cycle": s.PolynomialDecay(0.1, 20, end_learning_rate=0.01, power=0.5, cycle=True),
    "cosine": s.CosineDecay(0.1, 20),
    "cosine_alpha": s.CosineDecay(0.1, 20, alpha=0.2),
    "cosine_warmup": s.CosineDecay(0.01, 20, warmup_target=0.1, warmup_steps=6),
    "restarts": s.CosineDecayRestarts(0.1, 6),
    "restarts_options": s.CosineDecayRestarts(0.1, 6, t_mul=1.5, m_mul=0.8, alpha=0.1),
    "restarts_even": s.CosineDecayRestarts(0.1, 6, t_mul=1.0, m_mul=0.8),
}


def numbers(array):
    return [float(x) for x in np.asarray(array).ravel()]


def record_optimizer(make):
    optimizer = make()
    variables = [
        keras.Variable(value.reshape(shape), dtype="float64", name=f"v{i}")
        for i, (value, shape) in enumerate(zip(start(), SHAPES))
    ]
    optimizer.build(variables)
    config = k.serialize(optimizer)
    scale = 1.0
    for step in range(1, STEPS + 1):
        if isinstance(optimizer, k.LossScaleOptimizer):
            scale = float(optimizer.dynamic_scale)
        elif optimizer.loss_scale_factor:
            scale = optimizer.loss_scale_factor
        grads = [g.reshape(shape) * scale for g, shape in zip(gradients(step), SHAPES)]
        # JAX has no conditions with side effects, so loss scaling has to go this way.
        weights, state = optimizer.stateless_apply(
            [v.value for v in optimizer.variables], grads, [v.value for v in variables]
        )
        for variable, value in zip(variables + optimizer.variables, list(weights) + list(state)):
            variable.assign(value)
    record = {
        "config": config,
        "updates": int(optimizer.iterations),
        "weights": [numbers(v) for v in variables],
    }
    if config["config"].get("use_ema"):
        optimizer.finalize_variable_values(variables)
        record["averages"] = [numbers(v) for v in variables]
    return record


def main():
    result = {
        "shapes": SHAPES,
        "start": [numbers(value) for value in start()],
        "gradients": [[numbers(g) for g in gradients(step)] for step in range(1, STEPS + 1)],
        "optimizers": {name: record_optimizer(make) for name, make in OPTIMIZERS.items()},
        "schedules": {
            name: {
                "config": s.serialize(schedule),
                "rates": [float(schedule(step)) for step in range(50)],
            }
            for name, schedule in SCHEDULES.items()
        },
    }
    path = pathlib.Path(__file__).with_name("optimizers.json")
    path.write_text(written(result) + "\n")


def written(value, indent=0):
    """JSON with a line for each list of numbers."""
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        items = [json.dumps(key) + ": " + written(item, indent + 1) for key, item in value.items()]
        return "{" + inner + ("," + inner).join(items) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(item, (list, dict)) for item in value):
        return "[" + inner + ("," + inner).join(written(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    return json.dumps(value)


main()
