#!/usr/bin/env python3
"""Times the networks of suite.py in other frameworks, on the first GPU.

    gpu_peers.py --framework torch --peer 'PyTorch eager' --serve
    gpu_peers.py --framework torch --peer 'torch.compile' --once gpu/lenet/float32 --batch 128

Speaks as peers.py does. An answer also has "memory", the most bytes that the step held, where the framework tells.
{"prepare": true} in a request gets a step compiled and warmed up without timing it: {"prepared": seconds}. A process holds
the steps of one work at a time; {"release": true} lets go of it. What is compiled is kept in the folder lockstep/peers of
XDG_CACHE_HOME. --once makes one step, says so and ends: how long it takes from the start is for whoever started it to measure.
--device cpu runs all of it on the CPU, without CUDA graphs: to try a definition where there is no GPU.
"""

import argparse
import json
import os
import sys
import time

PEERS = {
    "torch": {"PyTorch eager": "eager", "PyTorch CUDA graph": "graph", "PyTorch deterministic": "deterministic",
              "torch.compile": "compile"},
    "jax": {"JAX jit": "jit", "JAX scan": "scan"},
}
SLOW = ["torch.compile", "JAX jit", "JAX scan"]  # to begin: they compile


def keep_compiled(variable, name):
    """Lets a framework find again what it has compiled, unless the environment names another place."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault(variable, os.path.join(cache, "lockstep", "peers", name))


def suite_of(framework, device):
    if framework == "torch":
        keep_compiled("TORCHINDUCTOR_CACHE_DIR", "inductor")
        keep_compiled("TRITON_CACHE_DIR", "triton")
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(os.cpu_count()))
        from torch_suite import TorchSuite

        return TorchSuite(device)
    keep_compiled("JAX_COMPILATION_CACHE_DIR", "jax")
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    from jax_suite import JaxSuite

    return JaxSuite(device)


def works_of(peer):
    """What a peer is measured at."""
    import suite

    every = suite.works("gpu")
    training = suite.works("gpu", tasks=["train"])
    of = {
        # Reads the same memory at every replay.
        "PyTorch CUDA graph": [work for work in every if "/host/" not in work],
        # Asked for the same bits in every run, where that chooses other kernels.
        "PyTorch deterministic": [work for work in training if "/attention" in work],
        # Has no library of published networks.
        "JAX jit": [work for work in every if not suite.is_published(suite.parsed(work)[1])],
        # Many steps per launch, where a launch is a good part of a step.
        "JAX scan": [work for work in training if suite.parsed(work)[1] in ("mlp", "lenet", "vit_tiny", "gpt_tiny")],
    }
    return of.get(peer, every)


class Steps:
    """Builds the steps of one work at a time and takes readings of them."""

    def __init__(self, frameworks_suite):
        self.suite = frameworks_suite
        self.key = self.run = None

    def release(self):
        import gc

        self.key = self.run = None
        gc.collect()
        self.suite.tidy()

    def ready(self, peer, way, work, batch):
        if self.key == (peer, work, batch):
            return self.run
        self.release()
        from timing import fastest_of

        self.run = fastest_of(self.suite.builders(way, work, batch))
        self.key = (peer, work, batch)
        return self.run

    def prepared(self, *about):
        start = time.perf_counter()
        self.ready(*about)
        self.release()
        return {"prepared": time.perf_counter() - start}

    def reading(self, *about, iterations):
        from timing import clock, granularity

        run = self.ready(*about)
        grain = granularity(run)
        run(grain)
        seconds = clock(run, max(1, round(iterations / grain)) * grain)
        answer = {"us": seconds * 1e6, "disturbed": False}
        if hasattr(run, "memory"):
            answer["memory"] = run.memory()
        return answer


def main():
    parser = argparse.ArgumentParser(description="Times networks in PyTorch and JAX on the first GPU.")
    parser.add_argument("--framework", choices=list(PEERS), required=True)
    parser.add_argument("--peer", required=True, help="one of the framework's: what breaks its process breaks no other's")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--serve", action="store_true", help="answer requests on standard input")
    parser.add_argument("--once", metavar="WORK", help="make one step of this work and end")
    parser.add_argument("--batch", type=int, default=32, help="of --once")
    args = parser.parse_args()
    way = PEERS[args.framework][args.peer]

    # Frameworks print what they like; only answers may reach the reader of standard output.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message):
        out.write(json.dumps(message) + "\n")

    try:
        steps = Steps(suite_of(args.framework, args.device))
    except Exception as error:  # an import can fail in any way
        say({"framework": args.framework, "missing": f"{type(error).__name__}: {error}".splitlines()[0]})
        return

    def guarded(action, work, batch, **arguments):
        about = {"peer": args.peer, "work": work, "batch": batch}
        try:
            return about | action(args.peer, way, work, batch, **arguments)
        except Exception as error:
            return about | {"error": f"{type(error).__name__}: {error}".splitlines()[0]}

    def once(peer, way, work, batch):
        run = steps.suite.builders(way, work, batch)[-1]()
        run(getattr(run, "granularity", 1))
        return {"first_step": True}

    if args.once is not None:
        say(guarded(once, args.once, args.batch))
    if not args.serve:
        return
    say({"framework": args.framework, "version": steps.suite.version, "peers": {args.peer: works_of(args.peer)},
         "slow": [args.peer] if args.peer in SLOW else [], "releases": True, "once": True})
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("release"):
            steps.release()
        elif request.get("prepare"):
            say(guarded(steps.prepared, request["work"], request["batch"]))
        else:
            say(guarded(steps.reading, request["work"], request["batch"], iterations=request["iterations"]))


if __name__ == "__main__":
    main()
