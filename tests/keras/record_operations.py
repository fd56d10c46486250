"""Records operations of keras.ops between the inputs and outputs of models as testdata/values/operations.json.

    python3 -m venv venv && venv/bin/pip install keras==3.15.1 jax==0.10.2 numpy
    KERAS_BACKEND=numpy venv/bin/python tests/keras/record_operations.py

NumPy computes the numbers (Keras' NumPy backend takes a few operations, such as convolutions, from JAX).
"""

import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "numpy")

import keras
import numpy as np
from keras import layers, ops

import fixture_files

FILE = pathlib.Path(__file__).parent / "testdata" / "values" / "operations.json"
KERNEL = np.linspace(-0.5, 0.5, 2 * 3 * 2, dtype="float32").reshape(2, 3, 2)

# Of a, b (rows, 4, 3), v (rows, 4), i (rows, 4) of integers from 0 to 2, and half, a between -0.5 and 0.5.
OPERATIONS = {
    "arithmetic": lambda a, b, v, i, half: [a + b, a - 0.5, 2 * a, a / b, 1 / (1 + a * a), -a, abs(a), i + 1, i * 0.5, i / 2,
                                            ops.add(i, a[:, :, 0]), ops.multiply(i > 0, v)],
    "powers": lambda a, b, v, i, half: [ops.square(a), ops.sqrt(ops.abs(a)), ops.power(ops.abs(a) + 0.1, 1.5),
                                        ops.reciprocal(a * a + 1), ops.rsqrt(a * a + 1), ops.exp(half), ops.exp2(half),
                                        ops.expm1(half), ops.log(ops.abs(a) + 0.1), ops.log1p(ops.abs(a)),
                                        ops.log2(ops.abs(a) + 0.1), ops.log10(ops.abs(a) + 0.1), ops.logaddexp(a, b)],
    "angles": lambda a, b, v, i, half: [ops.sin(a), ops.cos(a), ops.tan(half), ops.arcsin(half), ops.arccos(half),
                                        ops.arctan(a), ops.sinh(half), ops.cosh(half), ops.tanh(a), ops.arcsinh(a),
                                        ops.arccosh(ops.abs(a) + 1.1), ops.arctanh(half), ops.arctan2(a, b), ops.hypot(a, b),
                                        ops.deg2rad(a), ops.rad2deg(a)],
    "whole_numbers": lambda a, b, v, i, half: [ops.floor(a), ops.ceil(a), ops.trunc(a), ops.round(a), ops.round(a, 2),
                                               ops.sign(a), ops.mod(a, 0.7), ops.floor_divide(a, 0.4), ops.fabs(a)],
    "extremes": lambda a, b, v, i, half: [ops.maximum(a, b), ops.minimum(a, 0.2), ops.clip(a, -0.3, 0.6), ops.relu(a),
                                          ops.heaviside(a, b), ops.nan_to_num(a), ops.divide_no_nan(a, ops.relu(b))],
    "comparisons": lambda a, b, v, i, half: [ops.cast(x, "float32") for x in (
        a > b, a >= 0, a < b, a <= 0, ops.equal(i, 1), ops.not_equal(i, 0), ops.logical_and(a > 0, b > 0),
        ops.logical_or(a > 0, b > 0), ops.logical_xor(a > 0, b > 0), ops.logical_not(a > 0), ops.isfinite(a), ops.isnan(a),
        ops.isinf(a), ops.isposinf(a), ops.isneginf(a), ops.isclose(a, b, 0.1, 0.5), ops.any(a > 1, axis=-1),
        ops.all(a > -1, axis=(1, 2)))],
    "choices": lambda a, b, v, i, half: [ops.where(a > 0, a, b), ops.where(a > 0, a, -1.0), ops.where(i, v, 0.0),
                                         ops.select([a > 0.5, a < -0.5], [a, -a], 0.1), ops.zeros_like(a), ops.ones_like(i),
                                         ops.full_like(a, 3), ops.empty_like(a) * 0, ops.copy(a), ops.stop_gradient(a),
                                         ops.convert_to_tensor(a), ops.cast(a, "int32")],
    "activations": lambda a, b, v, i, half: [ops.sigmoid(a), ops.relu6(a), ops.softplus(a), ops.softsign(a), ops.silu(a),
                                             ops.gelu(a), ops.gelu(a, approximate=False), ops.elu(a), ops.selu(a), ops.celu(a),
                                             ops.leaky_relu(a), ops.hard_sigmoid(a), ops.hard_silu(a), ops.hard_tanh(a),
                                             ops.tanh_shrink(a), ops.hard_shrink(a), ops.soft_shrink(a), ops.sparse_plus(a),
                                             ops.sparse_sigmoid(a), ops.squareplus(a), ops.log_sigmoid(a),
                                             ops.threshold(a, 0.2, -1.0), ops.glu(v), ops.softmax(a), ops.softmax(a, axis=1),
                                             ops.log_softmax(a), ops.erf(a), ops.erfc(a)],
    "reductions": lambda a, b, v, i, half: [ops.sum(a, axis=1), ops.sum(a > 0, axis=1), ops.mean(a, axis=(1, 2), keepdims=True),
                                            ops.mean(i, axis=1), ops.max(a, axis=-1), ops.min(a, axis=1), ops.amax(a, axis=1),
                                            ops.amin(a, axis=1), ops.prod(a, axis=1), ops.var(a, axis=1), ops.std(a, axis=1),
                                            ops.ptp(a, axis=1), ops.logsumexp(a, axis=1), ops.average(a, axis=1),
                                            ops.average(a, axis=1, weights=np.array([0.1, 0.2, 0.3, 0.4], "float32")),
                                            ops.count_nonzero(i, axis=1), ops.norm(a), *ops.moments(a, axes=[1])],
    "order": lambda a, b, v, i, half: [ops.argmax(a, axis=1), ops.argmin(a, axis=-1, keepdims=True), ops.sort(a, axis=1),
                                       ops.argsort(a, axis=1), *ops.top_k(a, 2), ops.cumsum(a, axis=1), ops.cumprod(a, axis=1),
                                       ops.cumsum(i, axis=1), ops.diff(a, axis=1), ops.diff(a, n=2, axis=1)],
    "parts": lambda a, b, v, i, half: [a[:, 1], a[:, None, 1:, ::2], a[..., -1], a[:, -1:, 0], *ops.split(a, 2, axis=1),
                                       *ops.split(a, [1, 3], axis=1), *ops.unstack(a, axis=1), ops.take(a, [2, 0], axis=1),
                                       ops.take_along_axis(a, ops.argsort(a, axis=1), axis=1), *ops.hsplit(a, 2),
                                       ops.diagonal(a, axis1=1, axis2=2), ops.trace(a, axis1=1, axis2=2), ops.tril(a),
                                       ops.triu(a, 1)],
    "places": lambda a, b, v, i, half: [ops.transpose(a, (0, 2, 1)), ops.swapaxes(a, 1, 2), ops.moveaxis(a, 1, 2),
                                        ops.reshape(a, (-1, 6, 2)), ops.expand_dims(a, (1, 3)),
                                        ops.squeeze(ops.expand_dims(a, 1), 1), ops.flip(a, axis=1), ops.roll(a, 1, axis=1),
                                        ops.repeat(a, 2, axis=1), ops.tile(a, (1, 1, 2)), ops.pad(a, ((0, 0), (1, 0), (0, 2))),
                                        ops.pad(a, ((0, 0), (1, 1), (2, 1)), mode="reflect"),
                                        ops.pad(a, ((0, 0), (1, 1), (1, 1)), mode="symmetric"), ops.fliplr(a)],
    "joined": lambda a, b, v, i, half: [ops.concatenate([a, b], axis=1), ops.stack([a, b], axis=1), ops.append(a, b, axis=1),
                                        ops.hstack([a, b]), ops.add(a, np.array([0.1, 0.2, 0.3], "float32")),
                                        ops.concatenate([v, ops.cast(i, "float32")], axis=1), ops.one_hot(i, 3)],
    "products": lambda a, b, v, i, half: [ops.matmul(a, ops.transpose(b, (0, 2, 1))), ops.einsum("bij,bkj->bik", a, b),
                                          ops.tensordot(a, np.eye(3, 2, dtype="float32"), axes=1),
                                          ops.dot(a, np.ones((3, 2), "float32")), ops.normalize(a, axis=-1),
                                          ops.layer_normalization(a), ops.rms_normalization(a),
                                          ops.max_pool(a, 2, strides=2), ops.average_pool(a, 2, strides=1, padding="same"),
                                          ops.conv(a, KERNEL, padding="same"), ops.in_top_k(i[:, 0], v, 2)],
    "attention": lambda a, b, v, i, half: [
        ops.dot_product_attention(*[ops.reshape(x, (-1, 2, 3, 2)) for x in (a, b, a)]),
        ops.dot_product_attention(*[ops.reshape(x, (-1, 2, 3, 2)) for x in (a, b, a)], is_causal=True, scale=0.3)],
}


def model_of(define):
    a, b = layers.Input((4, 3), name="a"), layers.Input((4, 3), name="b")
    v, i = layers.Input((4,), name="v"), layers.Input((4,), dtype="int32", name="i")
    return keras.Model([a, b, v, i], define(a, b, v, i, ops.clip(a, -0.5, 0.5)))


def main():
    generator = np.random.default_rng(5)
    x = [generator.standard_normal((2, 4, 3)).astype("float32"), generator.standard_normal((2, 4, 3)).astype("float32"),
         generator.standard_normal((2, 4)).astype("float32"), generator.integers(0, 3, (2, 4)).astype("int32")]
    records = {}
    for name, define in OPERATIONS.items():
        keras.utils.clear_session(free_memory=False)
        model = model_of(define)
        results = [np.asarray(result) for result in model(x)]
        records[name] = {"model": keras.saving.serialize_keras_object(model),
                         "results": [{"shape": list(result.shape), "values": result.astype(np.float32).ravel()}
                                     for result in results]}
    fixture_files.write_json(FILE, {"about": "Operations of keras.ops between inputs and outputs.",
                                    "recorded_with": f"keras {keras.__version__}, {keras.backend.backend()} backend",
                                    "x": x, "models": records})
    print(f"{FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
