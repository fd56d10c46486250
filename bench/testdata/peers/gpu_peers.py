"""Answers as bench/peers/gpu_peers.py does, with no framework behind it: for tests of who asks."""

import argparse
import json
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--framework")
parser.add_argument("--peer")
parser.add_argument("--serve", action="store_true")
parser.add_argument("--once")
parser.add_argument("--batch", type=int)
args = parser.parse_args()


def say(message):
    print(json.dumps(message), flush=True)


if args.once is not None:
    say({"peer": args.peer, "work": args.once, "batch": args.batch, "first_step": True})
elif args.framework == "jax":
    say({"framework": "jax", "missing": "ModuleNotFoundError: No module named 'jax'"})
else:
    say({"framework": args.framework, "version": "1.0", "peers": {args.peer: ["gpu/lenet/float32"]},
         "slow": ["torch.compile"] if args.peer == "torch.compile" else [], "releases": True, "once": True})
    readings = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("release"):
            readings = 0
            continue
        about = {key: request[key] for key in ("peer", "work", "batch")}
        if request.get("prepare"):
            say(about | {"prepared": 1.5} if request["batch"] < 1000 else about | {"error": "out of memory"})
        else:
            readings += 1
            say(about | {"us": 100.0 * readings, "disturbed": False, "memory": 4096})
