"""Says what `./run docs` found undocumented: public headers without an opening comment, and how many names.

Usage: doc_report.py WARNINGS_LOG INCLUDE_FOLDER. Exits with 1 where a header does not open with what it promises, and where
doxygen warns of anything else: a reference that leads nowhere, a page that it cannot read.
"""

import collections
import pathlib
import re
import sys

UNDOCUMENTED = re.compile(r"^(?P<file>.+?\.h):\d+: warning: .* is not documented")


def main(log, folder):
    bare = [header for header in sorted(folder.rglob("*.h"))
            if not header.read_text(encoding="utf-8").lstrip().startswith(("//", "/*"))]
    for header in bare:
        print(f"{header}:1: the header does not open with a comment that says what it promises")

    names = collections.Counter()
    others = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else []:
        if match := UNDOCUMENTED.match(line):
            names[pathlib.Path(match["file"]).name] += 1
        elif "warning:" in line:
            others.append(line)
    for line in others:
        print(line)
    if names:
        worst = ", ".join(f"{name} {count}" for name, count in names.most_common(5))
        print(f"{names.total()} public names have no comment of their own (most: {worst}); all: {log}")
    return 1 if bare or others else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
