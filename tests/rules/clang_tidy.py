"""clang-tidy finds nothing in any file that is compiled.

Files that are compiled together are read together, in the units of the build, which takes a third of the time. What was clean is
remembered at once, under a hash of the file or unit, all of this tree that it includes, the settings and the command that
compiles it: a run that is interrupted goes on where it was, and the next one reads what has changed.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import tree

# Where the files of tests/ and bench/ find what they include, beside src/ and include/.
FOLDERS = ("tests", ".")
FINDING = re.compile(r"^(/.+?|[^\s:]+):(\d+):\d+: (?:warning|error): ")


def _sources(root, build):
    """The files of the tree that are compiled there, and the units of such files, with their commands."""
    folder, made = root.resolve(), build.resolve()
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if "site-packages" in file.parts:  # nanobind's own
            continue
        if file.is_relative_to(folder) and (not file.is_relative_to(made) or file.parent == made / "units"):
            found.setdefault(file.relative_to(folder).as_posix(), entry["command"])
    return found


def _is_asked_for(root, path, only):
    if not only:
        return True
    names = [path, *(include.target for include in tree.includes(root, path, FOLDERS) if include.target and include.target.endswith(".cc"))]
    return any(re.search(expression, name) for expression in only for name in names)


def _fingerprint(root, path, command, settings):
    # Where the build lies, and what its objects are called, is no matter.
    words = [word for word in shlex.split(command) if not word.endswith(".o")]
    digest = hashlib.sha256("\0".join([*settings, *words]).encode())
    for member in sorted(tree.closure(root, path, FOLDERS)):
        digest.update(member.encode())
        digest.update((root / member).read_bytes())
    return digest.hexdigest()


def _problems(root, output):
    """clang-tidy's findings by their place, so that one in a header counts once, each with the lines that explain it."""
    found = {}
    place = None
    for line in output.splitlines():
        if match := FINDING.match(line):
            path = os.path.relpath(os.path.join(root, match.group(1)), root)
            line = path + line[len(match.group(1)):]
            place = line
            found[place] = [line]
        elif place and line.strip():
            found[place].append(line)
    return {place: "\n".join(lines) for place, lines in found.items()}


def check(root, arguments):
    """The findings, each as soon as it is found."""
    tidy = [arguments.tidy, "--quiet", f"-p={arguments.build}", *(f"--extra-arg={word}" for word in arguments.extra)]
    version = subprocess.run([arguments.tidy, "--version"], text=True, capture_output=True, check=True).stdout
    rules = root / ".clang-tidy"
    settings = [version, *arguments.extra, rules.read_text() if rules.is_file() else ""]
    known = json.loads(arguments.cache.read_text()) if arguments.cache and arguments.cache.is_file() else {}

    sources = _sources(root, arguments.build)
    fingerprints = {path: _fingerprint(root, path, command, settings) for path, command in sources.items()
                    if _is_asked_for(root, path, arguments.only)}
    pending = [path for path, fingerprint in fingerprints.items() if known.get(path) != fingerprint]
    told = set()  # a finding in a header is told once

    def read(path):
        # A unit of the build includes nothing but sources.
        is_unit = (root / path).resolve().parent == (arguments.build / "units").resolve()
        others = ["--checks=-bugprone-suspicious-include"] if is_unit else []
        return path, subprocess.run([*tidy, *others, str(root / path)], text=True, capture_output=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for number, future in enumerate(concurrent.futures.as_completed([pool.submit(read, path) for path in pending]), 1):
            path, result = future.result()
            if sys.stderr.isatty():
                print(f"\r\x1b[K[{number}/{len(pending)}] {path}", end="", file=sys.stderr, flush=True)
            if result.returncode == 0:
                known[path] = fingerprints[path]
                if arguments.cache:
                    draft = arguments.cache.with_suffix(".draft")
                    draft.write_text(json.dumps(known, indent=1))
                    draft.replace(arguments.cache)
                continue
            # A clang-tidy that fails without a finding has said why.
            found = _problems(root, result.stdout) or {path: f"{path}:1: clang-tidy failed\n{result.stdout}{result.stderr}"}
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            yield from (text for place, text in found.items() if place not in told)
            told.update(found)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _add_arguments(parser):
    parser.add_argument("only", nargs="*", help="regular expressions of paths; left out: all")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the folder with compile_commands.json")
    parser.add_argument("--tidy", default="clang-tidy-16", help="the program (default: clang-tidy-16)")
    parser.add_argument("--extra", action="append", default=[], help="one more word for the compiler")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--cache", type=pathlib.Path, help="file that remembers what was clean")


if __name__ == "__main__":
    tree.run("clang_tidy", check, _add_arguments)
