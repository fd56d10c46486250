"""What Python costs: readings of the package beside C++, NumPy, TensorFlow and Keras, in one run.

    ninja -C build/release lockstep_bench_front && ./run python bench/python/front.py

LOCKSTEP_BENCH_PYTHON names a Python that has TensorFlow, Keras, JAX and PyTorch; those that it lacks are left out. Every side is a
process of its own, and its readings are taken in turn with those of the others, so that what else the machine does falls on all of
them: compare the figures of one run with each other, not with those of another. All compute on one thread, or on --threads; what a framework does beside that, as
gathering the next batch, it does on the other cores.

Where memory lies makes one process 5% faster than another of the same program, so several of each side are asked. Processes that ran
side by side are a pair: a ratio is the median over the pairs, and behind it stands the middle half of them. Where that is wide, or the
machine was busy before, the ratio of the times says little; that of the processor time, which Linux keeps for every process, says what it
says on a busy machine, too. With --core all sides run on that core alone, and no thread works, or spins, beside another.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = FOLDER.parents[1] / "build" / "release"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# Threads of a team go on spinning for tens of milliseconds when they have nothing more to do (libgomp's, without OMP_WAIT_POLICY), on the
# cores of the side that is next.
QUIET_SECONDS = 0.1
# Of each work: how many calls are one reading, what it is measured in, and the sides that do it.
WORKS = {
    "add": (20000, 1e9, "ns", ("lockstep", "numpy", "tensorflow")),
    "call": (10000, 1e6, "us", ("lockstep", "c++", "tensorflow")),
    "fit": (10, 1e3, "ms per epoch of 64 steps", ("lockstep", "c++")),
    "train_on_batch": (100, 1e6, "us", ("lockstep", "keras on tensorflow", "keras on jax", "keras on torch")),
}


class Side:
    """A process that answers what a call takes."""

    def __init__(self, command, threads, **environment):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                         env={**os.environ, **{name: str(threads) for name in THREADS}, **environment})
        self.works = self._process.stdout.readline().split()

    def seconds(self, work, count):
        """What a call takes, and how much of it processors worked for all threads."""
        time.sleep(QUIET_SECONDS)
        before = self._worked()
        print(work, count, file=self._process.stdin, flush=True)
        taken = float(self._process.stdout.readline())
        return taken, (self._worked() - before) / count

    def _worked(self):
        """Of all its threads, those that have ended, too: what clock_getcpuclockid(3) names."""
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def sides(wanted, threads):
    """The sides that there are, by name."""
    here, other = [sys.executable, "-B"], [os.environ.get("LOCKSTEP_BENCH_PYTHON", "python3"), "-B"]
    worker = str(FOLDER / "workers.py")
    elsewhere = {"PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    commands = {"lockstep": (here + [worker, "lockstep"], {}), "numpy": (here + [worker, "numpy"], {}),
                "tensorflow": (other + [worker, "tensorflow"], elsewhere), "c++": ([str(BUILD / "lockstep_bench_front")], {}),
                **{f"keras on {backend}": (other + [worker, "keras"], {**elsewhere, "KERAS_BACKEND": backend})
                   for backend in ("tensorflow", "jax", "torch")}}
    made = {}
    for name in wanted:
        command, environment = commands[name]
        try:
            side = Side(command, threads, **environment)
        except OSError:
            side = None
        if side is None or not side.works:
            print(f"{name}: left out, it did not start")
        else:
            made[name] = side
    return made


def compare(work, processes, rounds, threads):
    """{side: (time, processor time) of its processes, one after the other}, medians of readings taken in turn with those of the other sides."""
    count, _, _, wanted = WORKS[work]
    taken = {}
    for _ in range(processes):
        made, readings = sides(wanted, threads), {}
        for side in made.values():
            side.seconds(work, max(2, count // 5))
        for number in range(rounds):
            for name in list(made) if number % 2 else list(reversed(made)):
                readings.setdefault(name, []).append(made[name].seconds(work, count))
        for side in made.values():
            side.close()
        for name, values in readings.items():
            taken.setdefault(name, []).append(tuple(statistics.median(part) for part in zip(*values)))
    return taken


def importing(rounds):
    """Seconds that `import lockstep` takes, that of NumPy beside it, each without the interpreter's own start, and compiled to byte
    code before, as installed packages are."""
    statements = ("pass", "import numpy", "import lockstep")
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder

        def seconds(statement):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
            return time.perf_counter() - start
        readings = [[seconds(statement) for statement in statements] for _ in range(rounds + 1)]
    return {"lockstep": [(lockstep - empty,) for empty, _, lockstep in readings[1:]], "numpy": [(numpy - empty,) for empty, numpy, _ in readings[1:]]}


def ratio(others, own):
    """The median, and the middle half."""
    ratios = sorted(other / mine for other, mine in zip(others, own))
    last = len(ratios) - 1
    return f"{statistics.median(ratios):.3f}", f"{ratios[round(last / 4)]:.3f} to {ratios[round(last * 3 / 4)]:.3f}"


def told(work, taken, scale, unit):
    own, *own_work = zip(*taken.pop("lockstep"))
    others = []
    for name, values in taken.items():
        times, *work_of = zip(*values)
        text = "{} times as long, {}".format(*ratio(times, own))
        if work_of:
            text += "; {} of the processor time, {}".format(*ratio(work_of[0], own_work[0]))
        others.append(f"{name} {statistics.median(times) * scale:.4g} ({text})")
    print(f"{work}: lockstep {statistics.median(own) * scale:.4g} {unit}; {', '.join(others)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--processes", type=int, default=3, help="processes of every side")
    parser.add_argument("--rounds", type=int, default=9, help="readings of every process")
    parser.add_argument("--threads", type=int, default=1, help="threads that every side computes on; default: 1")
    parser.add_argument("--core", type=int, help="the core that all sides run on; default: all cores")
    parser.add_argument("works", nargs="*", choices=[*WORKS, "import", []], help="default: all")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})  # of what is started from here, too
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"the machine is busy: {busy:.1f} threads of others ran at once in the minute before", flush=True)
    for work in options.works or [*WORKS, "import"]:
        if work == "import":
            told(work, importing(options.processes * options.rounds), 1e3, "ms")
        else:
            told(work, compare(work, options.processes, options.rounds, options.threads), *WORKS[work][1:3])


if __name__ == "__main__":
    main()
