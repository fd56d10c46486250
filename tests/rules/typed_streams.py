"""No `void* stream` in a header outside of backends/: what is queued where is said with a Stream, on every device."""

import re

import tree

_UNTYPED = re.compile(r"\bvoid\s*\*\s*(?:const\s+)?\w*stream\w*\b")


def check(root, arguments=None):
    problems = []
    for path in tree.cpp_files(root):
        if not tree.is_header(path) or path.startswith("src/backends/"):
            continue
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), start=1):
            if match := _UNTYPED.search(line):
                problems.append(f"{path}:{number}: {match.group()}: take a Stream& (src/device/stream.h); a kernel of "
                                "one backend gets that backend's own from it")
    return problems


if __name__ == "__main__":
    tree.run("typed_streams", check)
