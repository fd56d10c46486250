"""python -m lockstep [--devices N] script.py [ARGS...]: runs a TensorFlow or Keras script on Lockstep, unmodified."""

import argparse
import os
import runpy
import sys


def main():
    parser = argparse.ArgumentParser(
        prog="python -m lockstep", allow_abbrev=False,
        description="Runs a script in which `import tensorflow` and `import keras` find Lockstep, and says at its end where the "
                    "time of its training went.")
    parser.add_argument("--devices", type=int, metavar="N", help="split the CPU into N logical devices, so that a strategy has "
                        "several to work on where there are no GPUs")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of each of them (default: the cores shared out)")
    parser.add_argument("--no-report", action="store_true", help="without the report on where the time went")
    parser.add_argument("script", help="a file of Python")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="what the script is given")
    options = parser.parse_args()
    if not os.path.exists(options.script):
        parser.error(f"there is no file {options.script!r}")

    from . import _alias, _lockstep, config
    _alias.install()
    if options.devices is not None:
        if options.devices < 1:
            parser.error("--devices: at least 1")
        config.set_logical_cpus(options.devices, options.threads)
    sys.argv = [options.script] + options.args
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    try:
        runpy.run_path(options.script, run_name="__main__")
    finally:
        sys.stdout.flush()
        if not options.no_report:
            _report(_lockstep)


def _report(engine):
    """Of a loop over compiled functions: fit and strategies print reports of their own."""
    steps, text = engine.report()
    title = text.split("\n", 1)[0]
    if steps >= 10 and title and not title.startswith("fit") and "Strategy" not in title:
        print(text, flush=True)


if __name__ == "__main__":
    main()
