#!/usr/bin/env python3
"""Times the training steps of bench/gpu.cc in other frameworks, on the first GPU.

    gpu_peers.py --framework torch --serve

Speaks as peers.py does, and answers {"prepare": true} in a request by getting a step ready, compiled and warmed up, without
timing it: {"prepared": seconds}. What is compiled is kept in the folder lockstep/peers of XDG_CACHE_HOME. Networks and data
are those of bench/networks.cc: the same layers, synthetic data on the GPU, weights in float32, computation in bfloat16
(the MLP: float32). TF32 stays off.
"""

import argparse
import json
import os
import sys
import time

LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-7
SCAN_STEPS = 200
GPT_CONTEXT, GPT_VOCABULARY, GPT_WIDTH, GPT_DEPTH, GPT_HEADS = 1024, 50304, 768, 12, 12


def images_of(batch):
    import numpy as np

    rng = np.random.default_rng(1)
    return rng.random((batch, 224, 224, 3), dtype=np.float32), rng.integers(0, 1000, batch)


def tokens_of(batch):
    import numpy as np

    rng = np.random.default_rng(1)
    return (rng.integers(0, GPT_VOCABULARY, (batch, GPT_CONTEXT)), rng.integers(0, GPT_VOCABULARY, (batch, GPT_CONTEXT)))


def digits_of(batch):
    import numpy as np

    rng = np.random.default_rng(1)
    return rng.standard_normal((batch, 784), dtype=np.float32), rng.integers(0, 10, batch)


def keep_compiled(variable, name):
    """Lets a framework find again what it has compiled, unless the environment names another place."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault(variable, os.path.join(cache, "lockstep", "peers", name))


class Torch:
    slow = ["torch.compile"]  # to begin

    def __init__(self):
        keep_compiled("TORCHINDUCTOR_CACHE_DIR", "inductor")
        keep_compiled("TRITON_CACHE_DIR", "triton")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(os.cpu_count()))
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        self.torch = torch
        self.version = torch.__version__.split("+")[0]
        networks = ["gpu/resnet50", "gpu/gpt2"]
        self.peers = {
            "PyTorch eager": ["gpu/mlp"] + networks,
            "PyTorch CUDA graph": ["gpu/mlp"],
            "torch.compile": ["gpu/mlp"] + networks,
        }

    def on_card(self, arrays):
        torch = self.torch
        x, y = (torch.from_numpy(a).cuda() for a in arrays)
        return x, y.long()

    def build(self, peer, work, batch):
        torch = self.torch
        if work == "gpu/mlp":
            model, (x, y) = self.mlp(), self.on_card(digits_of(batch))
            optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(BETA1, BETA2), eps=EPSILON,
                                         fused=True, capturable="graph" in peer)
        elif work == "gpu/resnet50":
            model, (x, y) = self.resnet50().to(memory_format=torch.channels_last), self.on_card(images_of(batch))
            x = x.permute(0, 3, 1, 2)  # channels last in memory
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
        else:
            model, (x, y) = self.gpt2(), self.on_card(tokens_of(batch))
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)

        def loss_of(x, y):
            with torch.autocast("cuda", torch.bfloat16, enabled=work != "gpu/mlp"):
                logits = model(x)
                return torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())

        if "compile" in peer:
            loss_of = torch.compile(loss_of, dynamic=False)

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss_of(x, y).backward()
            optimizer.step()

        if "graph" in peer:
            aside = torch.cuda.Stream()
            with torch.cuda.stream(aside):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(aside)
            recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recorded):
                step()
            step = recorded.replay

        def run(iterations):
            for _ in range(iterations):
                step()
            torch.cuda.synchronize()

        run.keeps = (model, optimizer, x, y)  # what a recorded graph points into lives as long as it
        return run

    def tidy(self):
        self.torch.cuda.empty_cache()

    def mlp(self):
        nn = self.torch.nn
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()

    def resnet50(self):
        """Version 1.5: strides in the 3 x 3 convolutions."""
        nn = self.torch.nn

        def convolution(inputs, outputs, size, stride=1):
            return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))

        class Block(nn.Module):
            def __init__(self, inputs, filters, stride, projects):
                super().__init__()
                self.first = convolution(inputs, filters, 1)
                self.second = convolution(filters, filters, 3, stride)
                self.third = convolution(filters, 4 * filters, 1)
                self.shortcut = convolution(inputs, 4 * filters, 1, stride) if projects else nn.Identity()
                self.relu = nn.ReLU(inplace=True)

            def forward(self, x):
                y = self.third(self.relu(self.second(self.relu(self.first(x)))))
                return self.relu(y + self.shortcut(x))

        layers = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inputs, filters = 64, 64
        for stage, blocks in enumerate([3, 4, 6, 3]):
            for i in range(blocks):
                layers.append(Block(inputs, filters, 2 if i == 0 and stage > 0 else 1, i == 0))
                inputs = 4 * filters
            filters *= 2
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)).cuda()

    def gpt2(self):
        torch, nn = self.torch, self.torch.nn
        functional = nn.functional

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm_1, self.norm_2 = nn.LayerNorm(GPT_WIDTH), nn.LayerNorm(GPT_WIDTH)
                self.qkv, self.out = nn.Linear(GPT_WIDTH, 3 * GPT_WIDTH), nn.Linear(GPT_WIDTH, GPT_WIDTH)
                self.up, self.down = nn.Linear(GPT_WIDTH, 4 * GPT_WIDTH), nn.Linear(4 * GPT_WIDTH, GPT_WIDTH)

            def forward(self, x):
                n, t, c = x.shape
                q, k, v = (part.view(n, t, GPT_HEADS, c // GPT_HEADS).transpose(1, 2)
                           for part in self.qkv(self.norm_1(x)).split(c, 2))
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
                return x + self.down(functional.gelu(self.up(self.norm_2(x))))

        class Gpt2(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(GPT_VOCABULARY, GPT_WIDTH)
                self.positions = nn.Embedding(GPT_CONTEXT, GPT_WIDTH)
                self.blocks = nn.ModuleList(Block() for _ in range(GPT_DEPTH))
                self.norm = nn.LayerNorm(GPT_WIDTH)
                for weight in (self.tokens.weight, self.positions.weight):
                    nn.init.normal_(weight, std=0.02)

            def forward(self, tokens):
                x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
                for block in self.blocks:
                    x = block(x)
                return functional.linear(self.norm(x), self.tokens.weight)

        return Gpt2().cuda()


class Jax:
    slow = ["JAX jit", "JAX scan"]

    def __init__(self):
        keep_compiled("JAX_COMPILATION_CACHE_DIR", "jax")
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax

        if jax.default_backend() != "gpu":
            raise RuntimeError("JAX sees no GPU")
        self.jax = jax
        self.version = jax.__version__
        jax.config.update("jax_default_matmul_precision", "highest")
        self.peers = {"JAX jit": ["gpu/mlp", "gpu/gpt2"], "JAX scan": ["gpu/mlp"]}

    def build(self, peer, work, batch):
        jax, jnp = self.jax, self.jax.numpy
        if work == "gpu/mlp":
            x, y = (jnp.asarray(a) for a in digits_of(batch))
            shapes = {"w1": (784, 128), "b1": (128,), "w2": (128, 10), "b2": (10,)}
            loss_of = self.mlp_loss
        else:
            x, y = (jnp.asarray(a) for a in tokens_of(batch))
            shapes = self.gpt2_shapes()
            loss_of = self.gpt2_loss
        keys = jax.random.split(jax.random.key(0), len(shapes))
        params = {name: jax.random.normal(key, shape) * 0.02 if len(shape) > 1 else jnp.zeros(shape)
                  for key, (name, shape) in zip(keys, shapes.items())}
        decay = 0.0 if work == "gpu/mlp" else 0.1

        def train(state, x, y):
            params, m, v, t = state
            loss, grads = jax.value_and_grad(loss_of)(params, x, y)
            t = t + 1
            size = LEARNING_RATE * jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
            m = {k: m[k] + (grads[k] - m[k]) * (1 - BETA1) for k in params}
            v = {k: v[k] + (grads[k] * grads[k] - v[k]) * (1 - BETA2) for k in params}
            params = {k: p - decay * LEARNING_RATE * p - size * m[k] / (jnp.sqrt(v[k]) + EPSILON)
                      for k, p in params.items()}
            return (params, m, v, t), loss

        zeros = {k: jnp.zeros_like(p) for k, p in params.items()}
        state = (params, zeros, {k: jnp.zeros_like(p) for k, p in params.items()}, jnp.float32(0))
        steps = SCAN_STEPS if "scan" in peer else 1

        def many(state, x, y):
            return jax.lax.scan(lambda s, _: train(s, x, y), state, None, length=steps)

        launch = jax.jit(many if steps > 1 else train, donate_argnums=0)

        def run(iterations):
            nonlocal state
            for _ in range(max(1, iterations // steps)):
                state, loss = launch(state, x, y)
            jax.block_until_ready((state, loss))

        run.granularity = steps
        return run

    def tidy(self):
        pass

    def mlp_loss(self, p, x, y):
        jax, jnp = self.jax, self.jax.numpy
        logits = jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))

    def gpt2_shapes(self):
        c = GPT_WIDTH
        shapes = {"tokens": (GPT_VOCABULARY, c), "positions": (GPT_CONTEXT, c), "norm_g": (c,), "norm_b": (c,)}
        for i in range(GPT_DEPTH):
            shapes |= {f"{i}/n1_g": (c,), f"{i}/n1_b": (c,), f"{i}/n2_g": (c,), f"{i}/n2_b": (c,),
                       f"{i}/qkv": (c, 3 * c), f"{i}/qkv_b": (3 * c,), f"{i}/out": (c, c), f"{i}/out_b": (c,),
                       f"{i}/up": (c, 4 * c), f"{i}/up_b": (4 * c,), f"{i}/down": (4 * c, c), f"{i}/down_b": (c,)}
        return shapes

    def gpt2_loss(self, p, tokens, y):
        jax, jnp = self.jax, self.jax.numpy
        half = jnp.bfloat16

        def norm(x, name):
            x = x.astype(jnp.float32)
            h = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
            return (h * (1 + p[name + "_g"]) + p[name + "_b"]).astype(half)

        def dense(x, name):
            return x @ p[name].astype(half) + p[name + "_b"].astype(half)

        x = p["tokens"].astype(half)[tokens] + p["positions"].astype(half)
        n, t, c = x.shape
        for i in range(GPT_DEPTH):
            q, k, v = jnp.split(dense(norm(x, f"{i}/n1"), f"{i}/qkv"), 3, axis=-1)
            q, k, v = (part.reshape(n, t, GPT_HEADS, c // GPT_HEADS) for part in (q, k, v))
            a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
            x = x + dense(a.reshape(n, t, c), f"{i}/out")
            x = x + dense(jax.nn.gelu(dense(norm(x, f"{i}/n2"), f"{i}/up"), approximate=False), f"{i}/down")
        logits = (norm(x, "norm") @ p["tokens"].astype(half).T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1))


def main():
    parser = argparse.ArgumentParser(description="Times training steps of PyTorch and JAX on the first GPU.")
    parser.add_argument("--framework", choices=["torch", "jax"], required=True)
    parser.add_argument("--peer", help="only this one: what breaks its process breaks no other's")
    parser.add_argument("--work", help="only this one: what takes long to begin begins in processes side by side")
    parser.add_argument("--serve", action="store_true", help="answer requests on standard input")
    args = parser.parse_args()

    # Frameworks print what they like; only answers may reach the reader of standard output.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message):
        out.write(json.dumps(message) + "\n")

    try:
        framework = {"torch": Torch, "jax": Jax}[args.framework]()
    except Exception as error:  # an import can fail in any way
        say({"framework": args.framework, "missing": f"{type(error).__name__}: {error}".splitlines()[0]})
        return

    if args.peer is not None:
        framework.peers = {name: works for name, works in framework.peers.items() if name == args.peer}
    if args.work is not None:
        framework.peers = {name: [w for w in works if w == args.work] for name, works in framework.peers.items()}
    steps = {}

    def ready(peer, work, batch):
        key = (peer, work, batch)
        if key not in steps:
            steps[key] = framework.build(*key)
            steps[key](max(3, getattr(steps[key], "granularity", 1)))
        return steps[key]

    def prepared(peer, work, batch):
        start = time.perf_counter()
        ready(peer, work, batch)
        framework.tidy()
        return {"peer": peer, "work": work, "batch": batch, "prepared": time.perf_counter() - start}

    def reading(peer, work, batch, iterations):
        run = ready(peer, work, batch)
        grain = getattr(run, "granularity", 1)
        run(grain)
        iterations = max(1, round(iterations / grain)) * grain
        start = time.perf_counter()
        run(iterations)
        us = (time.perf_counter() - start) / iterations * 1e6
        framework.tidy()
        return {"peer": peer, "work": work, "batch": batch, "us": us, "disturbed": False}

    def guarded(action, peer, work, batch, *arguments):
        try:
            return action(peer, work, batch, *arguments)
        except Exception as error:
            return {"peer": peer, "work": work, "batch": batch, "error": f"{type(error).__name__}: {error}".splitlines()[0]}

    if not args.serve:
        for peer, works in framework.peers.items():
            for work in works:
                for batch in {"gpu/mlp": (32, 128, 1024), "gpu/resnet50": (256,), "gpu/gpt2": (32,)}[work]:
                    say(guarded(reading, peer, work, batch, 1000 if work == "gpu/mlp" else 10))
        return
    say({"framework": args.framework, "version": framework.version, "peers": framework.peers, "slow": framework.slow})
    for line in sys.stdin:
        request = json.loads(line)
        about = (request["peer"], request["work"], request["batch"])
        say(guarded(prepared, *about) if request.get("prepare") else guarded(reading, *about, request["iterations"]))


if __name__ == "__main__":
    main()
