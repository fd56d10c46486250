#!/usr/bin/env python3
"""Times the training steps of bench/floors, and the networks of suite.py, in other frameworks, on the CPU.

    peers.py --threads 1                    every framework that can be imported, every work
    peers.py --threads 2 --framework jax --serve

Each framework runs in a process of its own (their thread pools would fight). Results are JSON lines:
{"peer": "JAX jit", "work": "mlp", "batch": 32, "threads": 1, "us": 349.0}; a framework that cannot be
used answers {"framework": "torch", "missing": "why"}.

With --serve the process first says {"framework": ..., "version": ..., "peers": {name: [work, ...]}}, then
answers each line {"peer": ..., "work": ..., "batch": ..., "iterations": ...} on standard input with one reading, so
that a benchmark can take turns between frameworks; it is idle in between. {"release": true} lets go of the networks.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

import suite
from timing import clock, fastest_of, granularity

FRAMEWORKS = ["torch", "jax", "tensorflow"]
WORKS = [("mlp", 32), ("mlp", 128), ("mlp", 1024), ("fit", 32), ("fit", 128), ("convnet", 64), ("data/slices", 128)]
# What peers of such names are for; all others make single training steps.
SPECIAL = {"Keras fit": {"fit"}, "tf.data": {"data/slices"}, "torch DataLoader": {"data/slices"}}
# How peers run the networks of suite.py; all others do not.
NETWORK_WAYS = {"PyTorch eager, fused Adam": "eager", "torch.compile": "compile", "JAX jit": "jit",
                "TensorFlow tf.function": "function", "TensorFlow tf.function, XLA": "xla"}
FIT_EXAMPLES = 60000
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-7
# Short readings after a pause: on a shared machine they mostly fall between the others' time slices. A
# reading in which the threads waited for a core for more than this part of it is marked as disturbed.
READING_SECONDS, SETTLE_SECONDS, DISTURBED = 0.004, 0.005, 0.02
SCAN_STEPS = 20


def set_threads(threads):
    """Must run before the framework is imported: most read these once."""
    for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
                 "PJRT_NPROC", "NPROC"]:
        os.environ[name] = str(threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if threads == 1:
        os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false").strip()


def batch_of(work, batch):
    import numpy as np

    rng = np.random.default_rng(1)
    shape = (batch, 784) if work == "mlp" else (batch, 28, 28, 1)
    return rng.standard_normal(shape, dtype=np.float32), rng.integers(0, 10, batch).astype(np.int32)


def waited_seconds():
    """How long the threads of this process were ready to run but had no core, as the kernel counts it."""
    nanoseconds = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as file:
                nanoseconds += int(file.read().split()[1])
        except OSError:  # the thread has ended, or the kernel does not count
            pass
    return nanoseconds * 1e-9


def epochs_of(batches, batch):
    """Goes through an iterable of batches, whole epochs at a time."""
    steps = -(-FIT_EXAMPLES // batch)

    def run(iterations):
        for _ in range(max(1, iterations // steps)):
            for _ in batches:
                pass

    run.granularity = steps
    return run


class Torch:
    def networks(self):
        from torch_suite import TorchSuite

        return TorchSuite("cpu")

    def __init__(self, threads):
        import torch

        self.torch = torch
        self.version = torch.__version__.split("+")[0]
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self.peers = {
            "PyTorch eager": lambda work, batch: self.step(work, batch),
            "PyTorch eager, fused Adam": lambda work, batch: self.step(work, batch, fused=True),
            "torch.compile": lambda work, batch: self.step(work, batch, fused=True, compiled=True),
            "torch DataLoader": self.loader,
        }

    def step(self, work, batch, **kwargs):
        if work == "mlp":
            return self.build(work, batch, **kwargs)
        return fastest_of([lambda channels_last=channels_last: self.build(
            work, batch, channels_last=channels_last, **kwargs) for channels_last in (False, True)])

    def build(self, work, batch, fused=False, compiled=False, channels_last=False):
        torch, nn = self.torch, self.torch.nn
        x, y = (torch.from_numpy(a) for a in batch_of(work, batch))
        y = y.long()
        if work == "mlp":
            model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        else:
            x = x.permute(0, 3, 1, 2).contiguous()
            model = nn.Sequential(
                nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))
            if channels_last:
                model = model.to(memory_format=torch.channels_last)
                x = x.to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(BETA1, BETA2), eps=EPSILON,
                                     fused=fused)

        def loss_of(x, y):
            return nn.functional.cross_entropy(model(x), y)

        if compiled:
            loss_of = torch.compile(loss_of)

        def run(iterations):
            for _ in range(iterations):
                optimizer.zero_grad(set_to_none=True)
                loss_of(x, y).backward()
                optimizer.step()

        return run

    def loader(self, work, batch):
        """Epochs over shuffled rows in memory, by single rows or by lists of them, whichever is faster."""
        torch = self.torch
        data = torch.utils.data
        rows = torch.ones(FIT_EXAMPLES, 784)

        class Rows(data.Dataset):
            def __len__(self):
                return len(rows)

            def __getitem__(self, index):
                return rows[index]

        def by_row():
            return data.DataLoader(Rows(), batch_size=batch, shuffle=True)

        def by_list():
            sampler = data.BatchSampler(data.RandomSampler(rows), batch, drop_last=False)
            return data.DataLoader(Rows(), sampler=sampler, batch_size=None)

        return fastest_of([lambda make=make: epochs_of(make(), batch) for make in (by_row, by_list)])


class Jax:
    def networks(self):
        from jax_suite import JaxSuite

        return JaxSuite("cpu")

    def __init__(self, threads):
        import jax

        self.jax = jax
        self.version = jax.__version__
        self.peers = {
            "JAX jit": lambda work, batch: self.step(work, batch, scan=False),
            "JAX scan": lambda work, batch: self.step(work, batch, scan=True),
        }
        self.left_out = {("JAX scan", "convnet")}  # XLA's convolutions are many times slower inside a loop

    def step(self, work, batch, scan):
        if work == "mlp":
            return self.build(work, batch, scan)
        return fastest_of([lambda pool=pool: self.build(work, batch, scan, pool)
                           for pool in (self.pool_by_window, self.pool_by_reshape)])

    def pool_by_window(self, x):
        lax = self.jax.lax
        return lax.reduce_window(x, -float("inf"), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def pool_by_reshape(self, x):
        n, h, w, c = x.shape
        x = x[:, :h // 2 * 2, :w // 2 * 2, :]
        return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))

    def build(self, work, batch, scan, pool=None):
        jax, jnp = self.jax, self.jax.numpy
        x, y = (jnp.asarray(a) for a in batch_of(work, batch))
        shapes = [(784, 128), (128,), (128, 10), (10,)] if work == "mlp" else [
            (3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1600, 128), (128,), (128, 10), (10,)]
        keys = jax.random.split(jax.random.key(0), len(shapes))
        params = [jax.random.normal(key, shape) * 0.05 if len(shape) > 1 else jnp.zeros(shape)
                  for key, shape in zip(keys, shapes)]

        def convolve(x, w, b):
            y = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            return pool(jax.nn.relu(y + b))

        def loss_of(params, x, y):
            if work == "convnet":
                w1, b1, w2, b2, *params = params
                x = convolve(convolve(x, w1, b1), w2, b2).reshape(x.shape[0], -1)
            w1, b1, w2, b2 = params
            logits = jax.nn.relu(x @ w1 + b1) @ w2 + b2
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))

        def train(state, x, y):
            params, m, v, t = state
            loss, grads = jax.value_and_grad(loss_of)(params, x, y)
            t = t + 1
            size = LEARNING_RATE * jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
            m = [a + (g - a) * (1 - BETA1) for a, g in zip(m, grads)]
            v = [a + (g * g - a) * (1 - BETA2) for a, g in zip(v, grads)]
            params = [p - size * a / (jnp.sqrt(b) + EPSILON) for p, a, b in zip(params, m, v)]
            return (params, m, v, t), loss

        zeros = [jnp.zeros_like(p) for p in params]
        state = (params, zeros, [jnp.zeros_like(p) for p in params], jnp.float32(0))
        steps = SCAN_STEPS if scan else 1

        def many(state, x, y):
            return jax.lax.scan(lambda s, _: train(s, x, y), state, None, length=steps)

        launch = jax.jit(many if scan else train, donate_argnums=0)

        def run(iterations):
            nonlocal state
            for _ in range(iterations // steps):
                state, loss = launch(state, x, y)
            loss.block_until_ready()
            jax.block_until_ready(state)

        run.granularity = steps
        return run


class TensorFlow:
    def networks(self):
        from keras_suite import KerasSuite

        return KerasSuite()

    def __init__(self, threads):
        import tensorflow as tf

        self.tf = tf
        self.version = tf.__version__
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self.peers = {
            "TensorFlow tf.function": lambda work, batch: self.function(work, batch, False),
            "TensorFlow tf.function, XLA": lambda work, batch: self.function(work, batch, True),
            "Keras train_on_batch": self.train_on_batch,
            "Keras fit": self.fit,
            "tf.data": self.data,
        }

    def model(self, work):
        keras = self.tf.keras
        layers = [keras.layers.Input((784,) if work == "mlp" else (28, 28, 1))]
        if work == "convnet":
            for filters in (32, 64):
                layers += [keras.layers.Conv2D(filters, 3, activation="relu"), keras.layers.MaxPooling2D(2)]
            layers.append(keras.layers.Flatten())
        layers += [keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)
        return model, optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def function(self, work, batch, xla):
        tf = self.tf
        model, optimizer, loss_of = self.model(work)
        optimizer.build(model.trainable_variables)
        x, y = (tf.constant(a) for a in batch_of(work, batch))

        @tf.function(jit_compile=xla)
        def train(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss

        def run(iterations):
            for _ in range(iterations):
                loss = train(x, y)
            loss.numpy()

        return run

    def train_on_batch(self, work, batch):
        model, optimizer, loss_of = self.model(work)
        model.compile(optimizer=optimizer, loss=loss_of)
        x, y = batch_of(work, batch)

        def run(iterations):
            for _ in range(iterations):
                model.train_on_batch(x, y)

        return run

    def fit(self, work, batch):
        """Whole epochs over arrays in memory, as the engine's side of this work."""
        model, optimizer, loss_of = self.model("mlp")
        model.compile(optimizer=optimizer, loss=loss_of, metrics=["accuracy"])
        x, y = batch_of("mlp", FIT_EXAMPLES)
        steps = -(-FIT_EXAMPLES // batch)

        def run(iterations):
            model.fit(x, y, batch_size=batch, epochs=max(1, iterations // steps))

        run.granularity = steps
        return run

    def data(self, work, batch):
        """Epochs over shuffled rows in memory."""
        tf = self.tf
        rows = tf.ones((FIT_EXAMPLES, 784))
        dataset = tf.data.Dataset.from_tensor_slices(rows).shuffle(FIT_EXAMPLES).batch(batch).prefetch(tf.data.AUTOTUNE)
        return epochs_of(dataset, batch)


class Bench:
    """Builds each step once and takes readings of it."""

    def __init__(self, framework, threads):
        self.threads = threads
        self.framework = {"torch": Torch, "jax": Jax, "tensorflow": TensorFlow}[framework](threads)
        self.networks = None  # imported when one is asked for
        self.steps = {}

    def works(self, peer):
        left_out = getattr(self.framework, "left_out", ())
        special = set().union(*SPECIAL.values())
        works = SPECIAL.get(peer, {work for work, _ in WORKS} - special)
        networks = suite.works("cpu", ["float32"]) if peer in NETWORK_WAYS else []
        if peer == "JAX jit":  # which has no library of published networks
            networks = [work for work in networks if not suite.is_published(suite.parsed(work)[1])]
        return sorted(work for work in works if (peer, work) not in left_out) + networks

    def build(self, peer, work, batch):
        if not work.startswith("cpu/"):
            run = self.framework.peers[peer](work, batch)
            run(max(3, granularity(run)))
            return run
        if self.networks is None:
            self.networks = self.framework.networks()
        return fastest_of(self.networks.builders(NETWORK_WAYS[peer], work, batch))

    def release(self):
        self.steps = {key: run for key, run in self.steps.items() if not key[1].startswith("cpu/")}
        gc.collect()

    def reading(self, peer, work, batch, iterations):
        key = (peer, work, batch)
        if key not in self.steps:
            self.steps[key] = self.build(*key)
        run = self.steps[key]
        grain = granularity(run)
        run(grain)
        iterations = max(1, round(iterations / grain)) * grain
        before = waited_seconds()
        seconds = clock(run, iterations)
        disturbed = waited_seconds() - before > DISTURBED * seconds * iterations
        return {"peer": peer, "work": work, "batch": batch, "threads": self.threads, "us": seconds * 1e6,
                "disturbed": disturbed}

    def median(self, peer, work, batch, seconds):
        once = self.reading(peer, work, batch, 1)["us"] * 1e-6
        iterations = max(1, round(READING_SECONDS / once))
        readings = []
        end = time.monotonic() + seconds
        while len(readings) < 5 or time.monotonic() < end:
            time.sleep(SETTLE_SECONDS)
            readings.append(self.reading(peer, work, batch, iterations))
        clean = [r["us"] for r in readings if not r["disturbed"]]
        us = statistics.median(clean if len(clean) >= 5 else [r["us"] for r in readings])
        return {"peer": peer, "work": work, "batch": batch, "threads": self.threads, "us": us,
                "clean": f"{len(clean)}/{len(readings)}"}


def main():
    parser = argparse.ArgumentParser(description="Times training steps of PyTorch, JAX and TensorFlow on the CPU.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--framework", choices=FRAMEWORKS, help="default: each in turn, in its own process")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to spend on one figure")
    parser.add_argument("--serve", action="store_true", help="answer requests on standard input")
    args = parser.parse_args()

    if args.framework is None:
        for framework in FRAMEWORKS:
            subprocess.run([sys.executable, __file__, "--threads", str(args.threads), "--framework", framework,
                            "--seconds", str(args.seconds)], check=False)
        return

    # Frameworks print what they like; only answers may reach the reader of standard output.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message):
        out.write(json.dumps(message) + "\n")

    set_threads(args.threads)
    try:
        bench = Bench(args.framework, args.threads)
    except Exception as error:  # an import can fail in any way
        say({"framework": args.framework, "missing": f"{type(error).__name__}: {error}".splitlines()[0]})
        return

    def guarded(take, *request):
        try:
            return take(*request)
        except Exception as error:
            return {"peer": request[0], "work": request[1], "batch": request[2], "threads": args.threads,
                    "error": f"{type(error).__name__}: {error}".splitlines()[0]}

    if not args.serve:
        for peer in bench.framework.peers:
            for work, batch in (pair for pair in WORKS if pair[0] in bench.works(peer)):
                say(guarded(bench.median, peer, work, batch, args.seconds))
        return
    say({"framework": args.framework, "version": bench.framework.version,
         "peers": {peer: bench.works(peer) for peer in bench.framework.peers}, "releases": True})
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("release"):
            bench.release()
            continue
        say(guarded(bench.reading, request["peer"], request["work"], request["batch"], request["iterations"]))


if __name__ == "__main__":
    main()
