"""Prints a Markdown page of the tree as Doxygen needs it, for docs/Doxyfile.

Pages and headings get labels of their own, by which links between pages find them. What an index (a README.md below docs/)
links to in its folder stands below it in the site's tree. Links to files that are no page lead into the checkout, where the
site was built: build/docs/html.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKOUT = "../../../"  # from build/docs/html

FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^(#{1,6}) (.*)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")


def is_page(path):
    """Whether a file, relative to the root, is one of Doxyfile's INPUT."""
    return path.suffix == ".md" and (path.parts[0] == "docs" or len(path.parts) == 1)


def pages():
    """What the site calls its pages."""
    files = [path.relative_to(ROOT) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]
    return ["index.html" if path.as_posix() == "README.md" else f"{label(path)}.html" for path in files]


def label(path, heading=None):
    page = re.sub(r"\W+", "_", path.with_suffix("").as_posix())
    return page if heading is None else f"{page}-{anchor(heading)}"


def anchor(heading):
    """As GitHub names it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(page, text, target):
    if "://" in target or target.startswith("mailto:"):
        return f"[{text}]({target})"
    file, _, fragment = target.partition("#")
    path = (page.parent / file) if file else page
    path = pathlib.Path(*(ROOT / path).resolve().relative_to(ROOT).parts)
    plain = text.replace("`", "")
    if not is_page(path):
        return f'<a href="{CHECKOUT}{path.as_posix()}">{plain}</a>'
    if fragment:
        return f'@ref {label(path)}-{fragment} "{plain}"'
    if path.as_posix() == "README.md":
        return f'@ref index "{plain}"'
    below = page.name == "README.md" and page.parent == path.parent and page.parts[0] == "docs"
    return f'@{"subpage" if below else "ref"} {label(path)} "{plain}"'


def filtered(page, text):
    """`page`: its path relative to the root."""
    headings = 0

    def labelled(match):
        nonlocal headings
        headings += 1
        shown = match[0].replace("`", "")  # which Doxygen would print as <tt>
        if headings == 1:  # that of the main page is Doxygen's own
            return shown if page.as_posix() == "README.md" else f"{shown} {{#{label(page)}}}"
        return f"{shown} {{#{label(page, match[2])}}}"

    parts = FENCED.split(text)  # every second one is a block of code
    for number in range(0, len(parts), 2):
        prose = HEADING.sub(labelled, parts[number])
        parts[number] = LINK.sub(lambda match: link(page, " ".join(match[1].split()), match[2]), prose)
    return "".join(parts)


def main(path):
    page = pathlib.Path(path).resolve().relative_to(ROOT)
    sys.stdout.write(filtered(page, (ROOT / page).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1])
