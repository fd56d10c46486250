"""No mark of unfinished work in any file, and no file named utils: a name that says nothing."""

import os
import pathlib
import re

import tree

# Split, so that this file does not break its own rule.
MARKS = re.compile(r"\b(?:" + "|".join(["TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK", "TB" "D", "WI" "P"]) + r")\b")
SKIPPED_FOLDERS = {".git", ".cache", "build", "__pycache__", "testdata", ".venv"}
SKIPPED_FILES = {"LICENSE"}


def check(root, arguments=None):
    problems = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for name in sorted(set(files) - SKIPPED_FILES):
            file = pathlib.Path(folder, name)
            path = file.relative_to(root).as_posix()
            # In the Python package files are modules, whose names are Keras'.
            if file.stem == "utils" and not path.startswith("python/lockstep/"):
                problems.append(f"{path}:1: name the file after what it does, not utils")
            try:
                text = file.read_text(encoding="utf-8")
            except (UnicodeDecodeError, FileNotFoundError):  # binary, or a dangling link
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                if mark := MARKS.search(line):
                    problems.append(f"{path}:{number}: {mark.group()}: finish it, or leave it out")
    return problems


if __name__ == "__main__":
    tree.run("words", check)
