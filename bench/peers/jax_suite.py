"""The networks of suite.py in JAX, written on jax.numpy and jax.lax."""

import suite
from suite import BETA1, BETA2, EPSILON, LEARNING_RATE, NETWORKS

import jax
from jax import lax
from jax import numpy as jnp

WAYS = ["jit", "scan"]
SCAN_STEPS = 200
AXES = {4: ("NHWC", "HWIO", "NHWC"), 5: ("NDHWC", "DHWIO", "NDHWC")}


class Weights:
    """Hands a network its weights by name. Those that are not there yet are made; moving statistics are not trained."""

    def __init__(self, trained, statistics, half, training, attention):
        self.trained, self.statistics, self.training, self.attention = trained, statistics, training, attention
        self.dtype = jnp.bfloat16 if half else jnp.float32
        self.key = jax.random.key(0)

    def make(self, shape, fill):
        if fill is not None:
            return jnp.full(shape, fill, jnp.float32)
        self.key, key = jax.random.split(self.key)
        return jax.random.normal(key, shape) * 0.02

    def float32(self, name, shape, fill=None):
        if name not in self.trained:
            self.trained[name] = self.make(shape, fill)
        return self.trained[name]

    def __call__(self, name, shape, fill=None):
        return self.float32(name, shape, fill).astype(self.dtype)

    def statistic(self, name, shape, fill, update):
        """The moving average as it is, and moved towards `update` in training."""
        if name not in self.statistics:
            self.statistics[name] = jnp.full(shape, fill, jnp.float32)
        value = self.statistics[name]
        if self.training:
            self.statistics[name] = 0.99 * value + 0.01 * update
        return value

    # --- layers ----------------------------------------------------------------------------------------------------

    def dense(self, x, name, units, bias=True):
        y = x @ self(name + "/kernel", (x.shape[-1], units))
        return y + self(name + "/bias", (units,), 0) if bias else y

    def convolve(self, x, name, filters, size, stride=1, padding=None, bias=True):
        spatial = x.ndim - 2
        kernel = self(name + "/kernel", (size,) * spatial + (x.shape[-1], filters))
        pads = [(size // 2 if padding is None else padding,) * 2] * spatial
        y = lax.conv_general_dilated(x, kernel, (stride,) * spatial, pads, dimension_numbers=AXES[x.ndim])
        return y + self(name + "/bias", (filters,), 0) if bias else y

    def widen(self, x, name, filters):
        """A transposed convolution of 2 x 2 that makes images twice as large: one product, then pixels in their places."""
        n, h, w, c = x.shape
        y = (x @ self(name + "/kernel", (c, 4 * filters))).reshape(n, h, w, 2, 2, filters)
        return y.transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, filters) + self(name + "/bias", (filters,), 0)

    def layer_norm(self, x, name):
        c = x.shape[-1:]
        y = x.astype(jnp.float32)
        y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-6)
        return (y * self.float32(name + "/gamma", c, 1) + self.float32(name + "/beta", c, 0)).astype(x.dtype)

    def batch_norm(self, x, name):
        c = x.shape[-1:]
        y = x.astype(jnp.float32)
        mean, variance = y.mean((0, 1, 2)), y.var((0, 1, 2))
        moving_mean = self.statistic(name + "/mean", c, 0, mean)
        moving_variance = self.statistic(name + "/variance", c, 1, variance)
        if not self.training:
            mean, variance = moving_mean, moving_variance
        scale = self.float32(name + "/gamma", c, 1) * lax.rsqrt(variance + 1e-5)
        return ((y - mean) * scale + self.float32(name + "/beta", c, 0)).astype(x.dtype)


def pool(x, size=2, stride=2, padding=0):
    spatial = x.ndim - 2
    window, strides = (1,) + (size,) * spatial + (1,), (1,) + (stride,) * spatial + (1,)
    pads = [(0, 0)] + [(padding, padding)] * spatial + [(0, 0)]
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, pads)


def mlp(w, net, x):
    return w.dense(jax.nn.relu(w.dense(x, "hidden", net.hidden)), "head", net.classes)


def lenet(w, net, x):
    x = pool(jax.nn.relu(w.convolve(x, "conv1", 6, 5)))
    x = pool(jax.nn.relu(w.convolve(x, "conv2", 16, 5, padding=0)))
    x = jax.nn.relu(w.dense(x.reshape(x.shape[0], -1), "dense1", 120))
    return w.dense(jax.nn.relu(w.dense(x, "dense2", 84)), "head", net.classes)


def resnet(w, net, x):
    def normalized(x, name, filters, size, stride=1):
        return w.batch_norm(w.convolve(x, name, filters, size, stride, bias=False), name)

    x = jax.nn.relu(normalized(x, "stem", net.width, 7 if net.imagenet else 3, 2 if net.imagenet else 1))
    if net.imagenet:
        x = pool(x, 3, 2, 1)
    filters = net.width
    for stage, blocks in enumerate(net.blocks):
        for i in range(blocks):
            name, stride = f"{stage}/{i}", 2 if i == 0 and stage > 0 else 1
            outputs = 4 * filters if net.bottleneck else filters
            sizes = [(filters, 1, 1), (filters, 3, stride), (outputs, 1, 1)] if net.bottleneck else [
                (filters, 3, stride), (filters, 3, 1)]
            y = x
            for j, (count, size, by) in enumerate(sizes):
                y = normalized(y if j == 0 else jax.nn.relu(y), f"{name}/{j}", count, size, by)
            if stride > 1 or x.shape[-1] != outputs:
                x = normalized(x, name + "/shortcut", outputs, 1, stride)
            x = jax.nn.relu(x + y)
        filters *= 2
    return w.dense(x.mean((1, 2)), "head", net.classes)


def block(w, x, name, heads, hidden, causal):
    n, t, c = x.shape
    q, k, v = jnp.split(w.dense(w.layer_norm(x, name + "/norm_1"), name + "/qkv", 3 * c), 3, axis=-1)
    y = w.attention(*(part.reshape(n, t, heads, c // heads) for part in (q, k, v)), causal)
    x = x + w.dense(y.reshape(n, t, c), name + "/out", c)
    y = jax.nn.gelu(w.dense(w.layer_norm(x, name + "/norm_2"), name + "/up", hidden), approximate=False)
    return x + w.dense(y, name + "/down", c)


def vit(w, net, x):
    x = w.convolve(x, "patches", net.width, net.patch, net.patch, padding=0)
    x = x.reshape(x.shape[0], -1, net.width)
    x = x + w("positions", x.shape[1:])
    for i in range(net.depth):
        x = block(w, x, f"block{i}", net.heads, net.hidden, False)
    return w.dense(w.layer_norm(x, "norm").mean(1), "head", net.classes)


def gpt(w, net, tokens):
    embedding = w("tokens", (net.vocabulary, net.width))
    x = embedding[tokens] + w("positions", (net.input[0], net.width))
    for i in range(net.depth):
        x = block(w, x, f"block{i}", net.heads, 4 * net.width, True)
    x = w.layer_norm(x, "norm")
    return x @ embedding.T if net.tied else w.dense(x, "head", net.vocabulary, bias=False)


def recurrent(w, net, tokens, gates, cell):
    """The products with the inputs of all steps first, then a loop over the steps."""
    x = w("embedding", (net.vocabulary, net.width))[tokens].swapaxes(0, 1)
    x = w.dense(x, "inputs", gates * net.units)
    kernel, bias = w("state/kernel", (net.units, gates * net.units)), w("state/bias", (gates * net.units,), 0)
    zeros = jnp.zeros((tokens.shape[0], net.units), x.dtype)
    state, _ = lax.scan(lambda state, x: (cell(state, x, lambda h: h @ kernel + bias), None), (zeros, zeros), x)
    return w.dense(state[0], "head", net.classes)


def lstm(w, net, tokens):
    def cell(state, x, product):
        h, c = state
        i, f, g, o = jnp.split(x + product(h), 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    return recurrent(w, net, tokens, 4, cell)


def gru(w, net, tokens):
    def cell(state, x, product):
        h, unused = state
        (xz, xr, xh), (hz, hr, hh) = (jnp.split(part, 3, axis=-1) for part in (x, product(h)))
        z = jax.nn.sigmoid(xz + hz)
        return z * h + (1 - z) * jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh), unused

    return recurrent(w, net, tokens, 3, cell)


def unet(w, net, x):
    def pair(x, name, filters):
        for i in range(2):
            x = jax.nn.relu(w.convolve(x, f"{name}/{i}", filters, 3))
        return x

    across = []
    for i in range(net.depth + 1):
        x = pair(x if i == 0 else pool(x), f"down{i}", net.width << i)
        across.append(x)
    for i in reversed(range(net.depth)):
        x = w.widen(x, f"widen{i}", net.width << i)
        x = pair(jnp.concatenate([x, across[i]], -1), f"up{i}", net.width << i)
    return w.convolve(x, "head", net.classes, 1)


def conv3d(w, net, x):
    for i, filters in enumerate(net.filters):
        x = jax.nn.relu(w.convolve(x if i == 0 else pool(x), f"conv{i}", filters, 3))
    return w.dense(x.mean((1, 2, 3)), "head", net.classes)


def embedding_bag(w, net, ids):
    return w.dense(w("table", (net.vocabulary, net.width))[ids].mean(1), "head", net.classes)


def optimizer_of(net):
    """(zeros for each weight, how weights and state follow from gradients)"""
    if net.optimizer == "sgd":
        def momentum(params, grads, state, t):
            v = jax.tree.map(lambda v, g: 0.9 * v - 0.1 * g, state[0], grads)
            return jax.tree.map(jnp.add, params, v), (v,)

        return 1, momentum
    rate, decay = (3e-4, 0.1) if net.optimizer == "adamw" else (LEARNING_RATE, 0.0)

    def adam(params, grads, state, t):
        size = rate * jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
        m = jax.tree.map(lambda m, g: m + (g - m) * (1 - BETA1), state[0], grads)
        v = jax.tree.map(lambda v, g: v + (g * g - v) * (1 - BETA2), state[1], grads)
        return jax.tree.map(lambda p, m, v: p - decay * rate * p - size * m / (jnp.sqrt(v) + EPSILON), params, m, v), (m, v)

    return 2, adam


class JaxSuite:
    version = jax.__version__

    def __init__(self, device):
        self.on_gpu = device == "gpu"
        if self.on_gpu and jax.default_backend() != "gpu":
            raise RuntimeError("JAX sees no GPU")

    def builders(self, way, work, batch):
        task, name, policy = suite.parsed(work)
        return [lambda: self.build(way, task, name, policy, batch)]

    def build(self, way, task, name, policy, batch):
        # Read when the step is traced, below.
        precision = {"float32": "highest", "tf32": "tensorfloat32", "mixed_bfloat16": None}[policy]
        jax.config.update("jax_default_matmul_precision", precision)
        half = policy == "mixed_bfloat16"
        net = NETWORKS[name]
        arrays = suite.data(name, batch)
        if suite.kind(name) == "attention":
            step, state, arguments = self.attention_step(task, half, arrays)
        else:
            step, state = self.network_step(task, name, net, half, arrays[0])
            arguments = arrays if task == "host" else [jnp.asarray(a) for a in arrays]
        steps = SCAN_STEPS if way == "scan" else 1

        def many(state, *arguments):
            return lax.scan(lambda state, _: step(state, *arguments), state, None, length=steps)

        launch = jax.jit(many if steps > 1 else step, donate_argnums=0)
        # Compiled once, ahead: what it holds is then known. Host arrays are sent with every call.
        compiled = launch.lower(state, *arguments).compile()

        def run(iterations):
            nonlocal state
            for _ in range(max(1, iterations // steps)):
                state, result = compiled(state, *arguments)
            jax.block_until_ready((state, result))

        run.granularity = steps
        plan = compiled.memory_analysis() if self.on_gpu else None
        if plan is not None:
            run.memory = lambda: (plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes
                                  - plan.alias_size_in_bytes)
        return run

    def attend(self, q, k, v, causal):
        # cuDNN's kernels are for 16 bits and more than a handful of tokens.
        fused = self.on_gpu and q.dtype == jnp.bfloat16 and q.shape[1] % 64 == 0
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn" if fused else "xla")

    def network_step(self, task, name, net, half, example):
        network = globals()[suite.kind(name)]

        def logits_of(trained, statistics, x, training):
            weights = Weights(dict(trained), dict(statistics), half, training, self.attend)
            if not hasattr(net, "vocabulary"):
                x = x.astype(weights.dtype)
            return network(weights, net, x).astype(jnp.float32), weights

        def fresh():
            _, weights = logits_of({}, {}, jnp.asarray(example[:1]), False)
            return weights.trained, weights.statistics

        trained, statistics = jax.jit(fresh)()
        if task == "predict":
            return lambda state, x, y: (state, logits_of(*state, x, False)[0]), (trained, statistics)

        def loss_of(trained, statistics, x, y):
            logits, weights = logits_of(trained, statistics, x, True)
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1)
            return -jnp.mean(chosen), weights.statistics

        slots, update = optimizer_of(net)

        def train(state, x, y):
            trained, statistics, slots, t = state
            (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(trained, statistics, x, y)
            trained, slots = update(trained, grads, slots, t + 1)
            return (trained, statistics, slots, t + 1), loss

        zeros = tuple(jax.tree.map(jnp.zeros_like, trained) for _ in range(slots))
        return train, (trained, statistics, zeros, jnp.float32(0))

    def attention_step(self, task, half, arrays):
        q, k, v, gradient = (jnp.asarray(a, jnp.bfloat16 if half else jnp.float32) for a in arrays)

        def attend(q, k, v):
            return self.attend(q, k, v, True)

        def forward(state, q, k, v, gradient):
            return state, attend(q, k, v)

        def both(state, q, k, v, gradient):
            result, backward = jax.vjp(attend, q, k, v)
            return state, backward(gradient)

        return forward if task == "predict" else both, (), [q, k, v, gradient]

    def tidy(self):
        pass
