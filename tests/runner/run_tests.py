"""Runs the tests that a build lists: the cases of its GoogleTest programs in shards, and commands.

A shard is one process that runs many cases of a program. Each case keeps a verdict of its own: what the process
printed names every case that it started and ended. A process that dies, or says nothing for very long, fails the
case it was in; the cases behind that one run in a new process. A case without a verdict has failed.

A suite with OwnProcess in its name gets a process for each of its cases: they choose what a process chooses once,
such as its devices, or look at what a process does first. A case with Long in its name runs under --long alone.

The list is the file tests.json in the build folder (cmake/tests.cmake writes it). Its commands run one at a time
in the order of the list where one comes "after" another, and not at all where that one failed.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

CASES_PER_SHARD = 100
BYTES_PER_FILTER = 100_000  # Linux takes 128 KiB for one argument.

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

_RUN = re.compile(rb"^\[ RUN      \] (\S+)$", re.MULTILINE)
_END = re.compile(rb"^\[(?:----------|==========)\]", re.MULTILINE)
_MILLISECONDS = re.compile(r"\((\d+) ms\)")
_REASON = re.compile(r": Skipped\n(.*?)\[  SKIPPED \]", re.DOTALL)

Verdict = collections.namedtuple("Verdict", "name room status seconds text", defaults=("",))
Verdict.text.__doc__ = "Of a failed case, what it printed; of a skipped one, the reason."


class Case(collections.namedtuple("Case", "room program name")):
    """A case of a GoogleTest program; `name` is GoogleTest's."""

    @property
    def full_name(self):
        return f"{self.room}.{self.name}"

    @property
    def own_process(self):
        return "OwnProcess" in self.name.rpartition(".")[0]


# ---- What there is to run -----------------------------------------------------------------------------------

def list_cases(room, program, environment):
    """The cases of a program; a program that cannot list them is an error of the whole run."""
    listing = subprocess.run([program, "--gtest_list_tests"], env=environment, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, errors="replace")
    if listing.returncode != 0:
        raise SystemExit(f"Error: {program} cannot list its cases ({_ending(listing.returncode)}):\n"
                         f"{listing.stdout}{listing.stderr}")
    cases, suite = [], ""
    for line in listing.stdout.splitlines():
        name = line.partition("#")[0].rstrip()
        if name.startswith("  "):
            cases.append(Case(room, program, suite + name.strip()))
        elif name.endswith("."):
            suite = name
    return cases


def shards(cases, size=CASES_PER_SHARD):
    """The cases of one program, dealt out in turn, so that each shard gets its part of the slow ones."""
    together = [case for case in cases if not case.own_process]
    length = sum(len(case.name) + 1 for case in together)
    count = max(-(-len(together) // size), -(-length // BYTES_PER_FILTER))
    dealt = [together[first::count] for first in range(count)]
    return [shard for shard in dealt if shard] + [[case] for case in cases if case.own_process]


def chains(commands):
    """The commands, those that come after another in one list with it, in their order."""
    found = {}
    for command in commands:
        chain = found.get(command.get("after"), [])
        chain.append(command)
        found[command["name"]] = chain
    return list({id(chain): chain for chain in found.values()}.values())


def with_those_before(commands, chosen):
    """The chosen commands and those that must come before them."""
    by_name = {command["name"]: command for command in commands}
    wanted = set()
    for command in chosen:
        while command is not None and command["name"] not in wanted:
            wanted.add(command["name"])
            command = by_name.get(command.get("after"))
    return [command for command in commands if command["name"] in wanted]


# ---- Running -------------------------------------------------------------------------------------------------

def _ending(status):
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


class Processes:
    """Starts processes, and ends the ones under way when the run is given up."""

    def __init__(self, folder, environment, patience):
        self._folder = folder
        self._environment = environment
        self._patience = patience  # seconds without output after which a process hangs
        self._lock = threading.Lock()
        self._running = set()
        self._stopped = False

    def run(self, arguments):
        """(what it printed, how it ended: "" if with status 0)."""
        with tempfile.TemporaryFile() as output:
            with self._lock:
                if self._stopped:
                    return b"", "given up"
                process = subprocess.Popen(arguments, cwd=self._folder, env=self._environment,
                                           stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                           start_new_session=True)
                self._running.add(process)
            hangs = self._wait(process, output)
            with self._lock:
                self._running.discard(process)
            output.seek(0)
            printed = output.read()
        if hangs:
            return printed, f"nothing printed for {self._patience} s: taken to hang and ended"
        return printed, _ending(process.returncode) if process.returncode else ""

    def stop(self):
        with self._lock:
            self._stopped = True
            for process in self._running:
                _end_group(process)

    def _wait(self, process, output):
        """Whether the process had to be ended."""
        size, since = 0, time.monotonic()
        while True:
            try:
                process.wait(timeout=min(self._patience, 5))
                return False
            except subprocess.TimeoutExpired:
                now = os.fstat(output.fileno()).st_size
                if now != size:
                    size, since = now, time.monotonic()
                elif time.monotonic() - since >= self._patience:
                    _end_group(process)
                    process.wait()
                    return True


def _end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_shard(processes, cases):
    """A verdict on every case, and one more on the process where it fails after its last case."""
    room, program = cases[0].room, cases[0].program
    verdicts, left = [], {case.name: case for case in cases}
    while left:
        printed, ending = processes.run([program, "--gtest_filter=" + ":".join(left)])
        seen = read_verdicts(printed, {name: case.full_name for name, case in left.items()}, room, ending)
        for name, verdict in seen.items():
            verdicts.append(verdict)
            del left[name]
        if not seen:
            text = f"{program} ended ({ending or 'exit status 0'}) without running it.\n{_text(printed)}"
            verdicts += [Verdict(case.full_name, room, FAILED, 0, text) for case in left.values()]
            left = {}
        if ending and not any(verdict.status == FAILED for verdict in seen.values()):
            verdicts.append(Verdict(f"{room}.(process)", room, FAILED, 0,
                                    f"{program}: {ending} after cases that passed.\n{_text(printed)}"))
    return verdicts


def read_verdicts(printed, names, room, ending):
    """What a GoogleTest process says of the cases in `names`: a verdict for each that it started."""
    starts = [match for match in _RUN.finditer(printed) if match.group(1).decode(errors="replace") in names]
    verdicts = {}
    for index, start in enumerate(starts):
        name = start.group(1).decode()
        stop = starts[index + 1].start() if index + 1 < len(starts) else len(printed)
        text = printed[start.start():stop]
        if end := _END.search(text):
            text = text[:end.start()]
        text = _text(text)
        status, seconds = FAILED, 0.0
        for word, meaning in (("[       OK ]", PASSED), ("[  SKIPPED ]", SKIPPED), ("[  FAILED  ]", FAILED)):
            place = max(text.rfind(f"{word} {name} ("), text.rfind(f"{word} {name}, where "))
            if place >= 0:
                status = meaning
                if time_taken := _MILLISECONDS.findall(text[place:]):
                    seconds = int(time_taken[-1]) / 1000
                break
        else:
            text += f"\nThe process ended inside this case: {ending or 'exit status 0'}.\n"
        if status == SKIPPED:
            reason = _REASON.search(text)
            text = " ".join(reason.group(1).split()) if reason else ""
            text = text or "no reason given"
        verdicts[name] = Verdict(names[name], room, status, seconds, "" if status == PASSED else text)
    return verdicts


def run_chain(processes, commands):
    verdicts, failed = [], set()
    for command in commands:
        name, room = command["name"], command["room"]
        if command.get("after") in failed:
            failed.add(name)
            verdicts.append(Verdict(name, room, FAILED, 0, f"Not run: {command['after']} comes before it and failed.\n"))
            continue
        begin = time.monotonic()
        printed, ending = processes.run(command["command"])
        text = ""
        if ending:
            failed.add(name)
            text = f"{_text(printed)}\n{' '.join(command['command'])}: {ending}\n"
        verdicts.append(Verdict(name, room, FAILED if ending else PASSED, time.monotonic() - begin, text))
    return verdicts


def _text(printed):
    return printed.decode(errors="replace")


# ---- Telling --------------------------------------------------------------------------------------------------

class Reporter:
    """Prints failures as they come and progress between them; on a terminal progress is one line that changes."""

    def __init__(self, total):
        self._total = total
        self._done = 0
        self._begin = time.monotonic()
        self._erase = "\r\x1b[K" if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" else ""

    def tell(self, verdicts, cases):
        self._done += cases
        room = verdicts[0].room
        failed = [verdict for verdict in verdicts if verdict.status == FAILED]
        if self._erase:
            print(self._erase, end="")
        for verdict in failed:
            print(f"FAILED {verdict.name}\n{verdict.text.rstrip()}\n", flush=True)
        counts = ", ".join(_counts(verdicts))
        line = f"[{self._done}/{self._total}] {time.monotonic() - self._begin:.0f} s  {room}: {counts}"
        print(line, end="" if self._erase else "\n", flush=True)

    def close(self):
        print(self._erase, end="")


def _counts(verdicts):
    for status in (PASSED, FAILED, SKIPPED):
        if count := sum(verdict.status == status for verdict in verdicts):
            yield f"{count} {status}"


def closing_lines(verdicts, seconds):
    """Who failed, what was skipped and why, and the counts."""
    lines = []
    failed = sorted(verdict.name for verdict in verdicts if verdict.status == FAILED)
    skipped = [verdict for verdict in verdicts if verdict.status == SKIPPED]
    passed = len(verdicts) - len(failed) - len(skipped)
    if skipped:
        lines.append("Skipped, and why:")
        reasons = collections.Counter((verdict.text, verdict.room) for verdict in skipped)
        for (reason, room), count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
            lines.append(f"  {count:>5}  {room}: {reason}")
    if failed:
        lines.append("Failed:")
        lines += [f"  {name}" for name in failed]
    lines.append(f"{passed + len(failed)} cases ran in {seconds:.0f} s")
    lines.append(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return lines


def write_results(path, verdicts):
    """Every verdict as JSON, for people and machines; no run reads it."""
    cases = [{"name": verdict.name, "room": verdict.room, "status": verdict.status,
              "seconds": round(verdict.seconds, 3), "text": verdict.text} for verdict in verdicts]
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"cases": cases}, indent=1))
    unfinished.replace(path)


# ---- All of it ------------------------------------------------------------------------------------------------

def parse(arguments):
    parser = argparse.ArgumentParser(prog="./run test", description="Run the tests, in shards of many cases.")
    parser.add_argument("-R", metavar="REGEX", action="append", default=[],
                        help="only the cases whose name (room.Suite.Case) matches; several: any of them")
    parser.add_argument("-E", metavar="REGEX", action="append", default=[], help="not the cases whose name matches")
    parser.add_argument("-L", metavar="ROOM", action="append", default=[],
                        help="only the tests of this room; several: all of them")
    parser.add_argument("-N", "--list", action="store_true", help="name the cases and run none")
    parser.add_argument("-j", metavar="N", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--long", action="store_true", help="the cases with Long in their name, and no others")
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.j < 1:
        parser.error(f"-j takes a positive number, not {options.j}")
    for expression in options.R + options.E:
        try:
            re.compile(expression)
        except re.error as error:
            parser.error(f"'{expression}' is no regular expression: {error}")
    return options


def choose(options, manifest, environment, executor):
    """(cases, commands) that the options ask for."""
    rooms = sorted({entry["room"] for entry in manifest["programs"] + manifest["commands"]})
    for room in options.L:
        if room not in rooms:
            raise SystemExit(f"Error: there is no room '{room}'; the rooms with tests are {', '.join(rooms)}")

    def in_room(entry):
        return not options.L or entry["room"] in options.L

    def named(name):
        return ((not options.R or any(re.search(expression, name) for expression in options.R)) and
                not any(re.search(expression, name) for expression in options.E))

    listings = [executor.submit(list_cases, entry["room"], entry["program"], environment)
                for entry in manifest["programs"] if in_room(entry)]
    cases = [case for listing in listings for case in listing.result()
             if ("Long" in case.name) == options.long and named(case.full_name)]
    commands = [] if options.long else with_those_before(
        manifest["commands"], [entry for entry in manifest["commands"] if in_room(entry) and named(entry["name"])])
    return cases, commands


def main(arguments=None):
    options = parse(arguments)
    build = options.build.resolve()
    results = build / "test_results.json"
    results.unlink(missing_ok=True)
    manifest = json.loads((build / "tests.json").read_text())
    # What the caller sets wins, except what would change which cases run and how they are told.
    environment = manifest["environment"] | {name: value for name, value in os.environ.items()
                                             if not name.startswith("GTEST_")}
    with concurrent.futures.ThreadPoolExecutor(options.j) as executor:
        cases, commands = choose(options, manifest, environment, executor)
        if options.list:
            print("\n".join([command["name"] for command in commands] + [case.full_name for case in cases]))
            return 0
        if not cases and not commands:
            print("No test has such a name.")
            return 1

        begin = time.monotonic()
        verdicts = []
        disabled = [case for case in cases if "DISABLED_" in case.name]
        verdicts += [Verdict(case.full_name, case.room, SKIPPED, 0, "DISABLED_ in its name") for case in disabled]
        by_program = collections.defaultdict(list)
        for case in cases:
            if "DISABLED_" not in case.name:
                by_program[case.program].append(case)
        processes = Processes(build, environment, manifest["patience"])
        reporter = Reporter(len(commands) + len(cases) - len(disabled))
        # The longest first, as far as that is known: a chain of commands waits for itself, and big programs have
        # the biggest shards.
        work = [(run_chain, chain) for chain in sorted(chains(commands), key=len, reverse=True)]
        work += [(run_shard, shard)
                 for shard in sorted((shard for program in by_program.values() for shard in shards(program)),
                                     key=len, reverse=True)]
        futures = {executor.submit(function, processes, part): len(part) for function, part in work}
        try:
            for future in concurrent.futures.as_completed(futures):
                verdicts += future.result()
                reporter.tell(future.result(), futures[future])
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
        reporter.close()
    write_results(results, verdicts)
    print("\n".join(closing_lines(verdicts, time.monotonic() - begin)), flush=True)
    return 1 if any(verdict.status == FAILED for verdict in verdicts) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Given up: the tests did not run to their end.")
