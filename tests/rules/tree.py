"""The source tree as the rule checks see it: its files, their rooms and what they include."""

import argparse
import pathlib
import re
import sys

# Lowest first: a room may include the rooms before it in this list, and itself. docs/architecture.md tours them.
ROOMS = ["base", "observe", "device", "tensor", "comm", "graph", "ops", "autodiff", "compile", "execute", "data",
         "train", "distribute", "keras", "tf", "doctor", "plan", "cli"]

UMBRELLA = "include/lockstep/lockstep.h"

_INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_KERNEL_FILE = re.compile(r"(?:^|_)(cpu|cuda)(?:_simd)?$")


class Include:
    """One #include line: the text between its marks, and the file of this tree that it names, if any."""

    def __init__(self, line, text, angled, target):
        self.line = line
        self.text = text
        self.angled = angled
        self.target = target  # path relative to the root, or None

    def __str__(self):
        return f"<{self.text}>" if self.angled else f'"{self.text}"'


def cpp_files(root):
    """C++ files under include/ and src/, as paths relative to root, sorted; test data is left out."""
    found = []
    for folder in ("include", "src"):
        for path in (root / folder).rglob("*"):
            relative = path.relative_to(root)
            if path.suffix in (".h", ".cc", ".cu") and "testdata" not in relative.parts and path.is_file():
                found.append(relative.as_posix())
    return sorted(found)


def is_public(path):
    return path.startswith("include/")


def is_header(path):
    return path.endswith(".h")


def is_test(path):
    """Tests, benchmarks and fuzzers stand beside their source, but are no part of the library."""
    return re.search(r"_(test|bench|fuzz)\.(cc|cu|h)$", path) is not None


def room_of(path):
    """The room a file belongs to, 'backends/cpu' for a CPU kernel of ops, or None outside of every room."""
    parts = pathlib.PurePosixPath(path).parts
    inside = parts[2:] if parts[:2] == ("include", "lockstep") else parts[1:] if parts[0] == "src" else ()
    if len(inside) < 2:
        return None
    if inside[0] == "backends":
        return f"backends/{inside[1]}" if len(inside) > 2 else None
    if inside[0] == "ops" and (kernel := _KERNEL_FILE.search(pathlib.PurePosixPath(path).stem)):
        return f"backends/{kernel.group(1)}"
    return inside[0] if inside[0] in ROOMS else None


def includes(root, path, folders=()):
    """The includes of one file, in order. Lines inside /* */ do not count. `folders`: looked into after src/ and include/."""
    text = (root / path).read_text(encoding="utf-8")
    text = _BLOCK_COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), text)
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _INCLUDE.match(line):
            angled = match.group(1) == "<"
            found.append(Include(number, match.group(2), angled, _resolve(root, path, match.group(2), angled, folders)))
    return found


def closure(root, path, folders=()):
    """The file and all of this tree that it includes, in any depth."""
    seen = set()
    pending = [path]
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            pending.extend(include.target for include in includes(root, path, folders) if include.target)
    return seen


def _resolve(root, path, text, angled, more):
    folders = ["src", "include", *more] if not angled else ["include"]
    if not angled:
        folders.insert(0, pathlib.PurePosixPath(path).parent.as_posix())
    for folder in folders:
        candidate = root / folder / text
        if candidate.is_file():
            try:
                return candidate.resolve().relative_to(root.resolve()).as_posix()
            except ValueError:
                return None
    return None


def run(rule, check, add_arguments=None):
    """main() of a rule: prints each problem, and how many there were; the exit status is 1 where there are any.

    check(root, arguments) gives the problems, each one a line "path:line: what is wrong and the fix".
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."), help="the root of the tree")
    if add_arguments:
        add_arguments(parser)
    arguments = parser.parse_args()
    count = 0
    for problem in check(arguments.root, arguments):
        print(problem, flush=True)
        count += 1
    print(f"{rule}: {count} problem{'' if count == 1 else 's'}")
    sys.exit(1 if count else 0)
