"""Where Keras disagrees with itself, between backends or paths, JAX is given the rule that Lockstep has (docs/keras.md): mostly TensorFlow's.

To be imported after keras.
"""

import importlib

import keras

if keras.backend.backend() == "jax":
    import jax
    import jax.numpy as jnp

    # Operations of float64 stay float64; on JAX Keras has them give float32.
    importlib.import_module("keras.src.backend.common.dtypes").BIT64_TO_BIT32_DTYPE["float64"] = "float64"

    def absolute(x):
        """The slope at 0 is 0; on JAX it is 1."""
        x = keras.ops.convert_to_tensor(x)
        return jnp.where(x == 0, jnp.zeros_like(x), jnp.abs(x))

    def attention(query, key, value, bias=None, mask=None, scale=None, is_causal=False, **_):
        """As Keras computes it where there is dropout: in the dtype of its inputs, and 0 for who sees nothing."""
        scores = jnp.einsum("btnh,bsnh->bnts", query, key) * (scale or query.shape[-1]**-0.5)
        if bias is not None:
            scores += bias
        if is_causal:
            causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
            mask = causal if mask is None else jnp.logical_and(mask, causal)
        if mask is None:
            return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores), value)
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        return jnp.einsum("bnts,bsnh->btnh", jnp.where(mask, weights, 0), value)

    numpy = importlib.import_module("keras.src.backend.jax.numpy")
    numpy.absolute = numpy.abs = absolute
    importlib.import_module("keras.src.backend.jax.nn").dot_product_attention = attention
