"""Every C++ sample of the pages below is part of a program in examples/, word for word: the tests build and run those."""

import re

import tree

PAGES = ["README.md", "docs/many_machines.md", "docs/guide/*.md"]
SAMPLE = re.compile(r"^```cpp\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def check(root, arguments=None):
    programs = [path.read_text(encoding="utf-8") for path in sorted((root / "examples").rglob("*.cc"))]
    problems = []
    for path in sorted(path for page in PAGES for path in root.glob(page)):
        page = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        for sample in SAMPLE.finditer(text):
            if not any(sample.group(1) in program for program in programs):
                line = text.count("\n", 0, sample.start()) + 1
                problems.append(f"{page}:{line}: this sample is in no file of examples/; copy it from one")
    return problems


if __name__ == "__main__":
    tree.run("readme_samples", check)
