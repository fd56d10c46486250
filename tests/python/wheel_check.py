"""A wheel works where nothing but Python and NumPy is: no compiler, no package of Debian's.

    wheel_check.py --python PYTHON WHEEL

installs the wheel into a new virtual environment of that Python, and there trains, saves and loads a model, has two workers train
together, and runs the tests of the package. What these programs have loaded is looked through: a library that the wheel should
carry and that came from the machine all the same is named. `./run check wheel` does this.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent

# What wheels for Linux may take from the machine (manylinux), what Python itself brings, and NVIDIA's libraries, which have wheels.
OF_THE_MACHINE = re.compile(r"(ld-linux|libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|libnss_\w+|libresolv|"
                            r"libpython\d|libz|libffi|libssl|libcrypto|libbz2|liblzma|libexpat|libuuid|libcuda|libnvidia-\w+|libcudart|libcublasLt|libnvrtc|libcudnn|libnccl)[-.]")

PROGRAM = """
import os, sys, tempfile
import numpy as np
import lockstep as tf

workers = "TF_CONFIG" in os.environ
strategy = tf.distribute.MultiWorkerMirroredStrategy() if workers else tf.distribute.MirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
model.fit(x, x.sum(1, keepdims=True), epochs=2, batch_size=16, verbose=0)
with tempfile.TemporaryDirectory() as folder:
    for name in ("m.keras", "m.weights.h5", "m.safetensors"):
        path = os.path.join(folder, name)
        if name == "m.keras":
            model.save(path)
            assert np.array_equal(tf.keras.models.load_model(path)(x).numpy(), model(x).numpy())
        else:
            model.save_weights(path)
            model.load_weights(path)
assert not workers or strategy.num_replicas_in_sync == 2
for line in open("/proc/self/maps"):
    if ".so" in line:
        print(line.split(None, 5)[5].strip())
"""


def libraries_of_the_machine(maps, environment):
    """Of the files that a program has loaded those that neither the environment nor Python brings."""
    found = {line for line in maps.splitlines() if line.startswith("/")}
    return sorted(path for path in found if not path.startswith(str(environment)) and
                  not OF_THE_MACHINE.match(pathlib.Path(path).name) and "/lib-dynload/" not in path)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def run_programs(python, environment):
    """One program alone, then two as workers: why it failed, or nothing."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(environment)}
    cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
    configured = [bare | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})} for index in range(2)]
    for environments in ([bare], configured):
        running = [subprocess.Popen([python, "-c", PROGRAM], env=variables, cwd=environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for variables in environments]
        for program in running:
            output, errors = program.communicate(timeout=300)
            if program.returncode != 0:
                return f"the program for {len(environments)} worker(s) ended with {program.returncode}:\n{errors[-4000:]}"
            if others := libraries_of_the_machine(output, environment):
                return "libraries of the machine, that the wheel should carry: " + ", ".join(others)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("wheel", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = pathlib.Path(folder).resolve() / "environment"
        subprocess.run([arguments.python, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", arguments.wheel.resolve()], check=True)
        python = environment / "bin" / "python"
        if problem := run_programs(python, environment):
            print(problem, file=sys.stderr)
            return 1
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("LOCKSTEP_")}
        return subprocess.run([python, "-B", FOLDER / "program.py", "--gtest_filter=-*Long*:Stubs.*:*OwnProcess*"],
                              env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
