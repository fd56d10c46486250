"""Runs programs of examples/ and compares what they print with what is written about it.

With --source, with the comments at the end of the program itself:

  // Prints:
  //   a line of the output
  //     that goes on here
  //
  // Prints on a machine without a GPU, given /cpu:0, and ends with status 1:
  //   ...

With --page, with the text blocks of a page of the documentation; the paragraph above such a block links to the program.

What is said to be printed on a machine without a GPU is not compared on others. Lines are looked for in this order; what stands
between them is not compared. Numbers and units of time are masked, except numbers of devices and lines of code; spaces are one.
Devices that print how much they have computed must have computed about the same.
"""

import argparse
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

EXPECTATION = re.compile(r"^// Prints( on a machine without a GPU)?(?:, given (.*?))?(?:, and ends with status (\d+))?:\n"
                         r"((?://  .*\n)+)", re.MULTILINE)
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(r"\]\(\.\./\.\./examples/([\w/]+)\.cc\)")
NUMBER = re.compile(r"(?<![\w:./])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
UNIT = re.compile(r"\bN (ns|us|ms|s)\b")
TIME = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]+ ")
WORK = re.compile(r"^/[CG]PU:\d+: (\d+) flops$", re.MULTILINE)
LOG = re.compile(r"^(debug|info|warning|error) lockstep: ")
SETTINGS = re.compile(r"^(TF_CONFIG|RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|SLURM_.*|OMPI_.*|PMI.*|LOCKSTEP_.*)$")


def has_driver():
    """Whether NVIDIA's is there: what is written for machines without a GPU is then not what programs print."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return os.path.exists("/dev/nvidia0")
    return True


def masked(line):
    line = re.sub(r"\S*/examples/", "examples/", TIME.sub("", line))
    return " ".join(UNIT.sub("N of time", NUMBER.sub("N", line)).split())


def missing_line(expected, printed):
    """The first of the expected lines that does not come, in this order; None where all do."""
    lines = iter([masked(line) for line in printed.splitlines()])
    for line in expected:
        if not any(masked(line) == other for other in lines):
            return line
    return None


def run(program, arguments=()):
    environment = {name: value for name, value in os.environ.items() if not SETTINGS.match(name)}
    environment["CUDA_VISIBLE_DEVICES"] = "-1"  # on machines with GPUs, too, the programs print what is written
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([str(program.resolve()), *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)


def problem_of(done, expected, status=0):
    """What is wrong with a run that should have printed these lines; None where nothing is."""
    said = f"\nstandard output:\n{done.stdout}\nstandard error:\n{done.stderr}"
    if done.returncode != status:
        return f"it ended with status {done.returncode}, not {status}{said}"
    logged = [line for line in expected if LOG.match(line)]
    line = missing_line(logged, done.stderr) or missing_line([e for e in expected if e not in logged], done.stdout)
    if line is not None:
        return f"this line was not printed, or not in this place: {line}{said}"
    work = [int(flops) for flops in WORK.findall(done.stdout)]
    if work and not 0 < max(work) < 2 * min(work):
        return f"the devices have not computed the same: {work}{said}"
    return None


def joined(lines):
    """A line that is indented further goes on with the one before it."""
    whole = []
    for line in lines:
        if line.startswith("  ") and whole:
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    return whole


def check_source(program, source):
    problems = []
    expectations = list(EXPECTATION.finditer(source.read_text(encoding="utf-8")))
    if not expectations:
        problems.append("its last comment does not say what it prints")
    for expectation in expectations:
        no_gpu, arguments, status, text = expectation.groups()
        if no_gpu and has_driver():
            continue
        expected = joined([line.removeprefix("//   ") for line in text.splitlines()])
        problems.append(problem_of(run(program, (arguments or "").split()), expected, int(status or 0)))
    return [f"{source.name}: {problem}" for problem in problems if problem]


def check_page(page, folder):
    text = page.read_text(encoding="utf-8")
    problems, runs = [], {}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        above = text[:block.start()].rstrip().rsplit("\n\n", 1)[-1]
        programs = PROGRAM.findall(above)
        if len(programs) != 1:
            problems.append(f"{page.name}:{line}: the paragraph above names {len(programs)} programs of examples/, not one")
            continue
        if programs[0] not in runs:
            runs[programs[0]] = run(folder / programs[0])
        if "without a GPU" in " ".join(above.split()) and has_driver():
            continue
        done = runs[programs[0]]
        problem = problem_of(done, [part for part in block.group(1).splitlines() if part != "..."], done.returncode)
        if problem:
            problems.append(f"{page.name}:{line}: {programs[0]}: {problem}")
    if not runs:
        problems.append(f"{page.name}: it shows no output of a program")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, help="the program that --source was compiled to")
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="of the programs that --page links to")
    arguments = parser.parse_args()
    if arguments.source:
        problems = check_source(arguments.program, arguments.source)
    else:
        problems = check_page(arguments.page, arguments.folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
