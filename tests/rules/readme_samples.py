"""Every C++ sample of README.md is part of a program in examples/, word for word: the tests build and run those."""

import re

import tree

SAMPLE = re.compile(r"^```cpp\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def check(root, arguments=None):
    text = (root / "README.md").read_text(encoding="utf-8")
    programs = [path.read_text(encoding="utf-8") for path in sorted((root / "examples").glob("*.cc"))]
    problems = []
    for sample in SAMPLE.finditer(text):
        if not any(sample.group(1) in program for program in programs):
            line = text.count("\n", 0, sample.start()) + 1
            problems.append(f"README.md:{line}: this sample is in no file of examples/; copy it from one")
    return problems


if __name__ == "__main__":
    tree.run("readme_samples", check)
