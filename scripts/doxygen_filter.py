"""Prints a header with its plain // comments turned into Doxygen's, for docs/Doxyfile.

The comment that opens the file documents the file, a comment directly above a declaration documents it, and one
behind a declaration documents that. The text is escaped: plain comments contain no Doxygen commands.
"""

import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/) ?(.*)$")
TRAILING = re.compile(r"^(\s*[^\s/}#].*[;,])\s*// (.*)$")
SPECIAL = re.compile(r"([\\@<>#%&\[\]*])")


def escape(text):
    """Escapes what Doxygen and Markdown would read as markup, outside of `code` and of indented examples."""
    if text.startswith("    "):
        return text
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd mark is not code
        return SPECIAL.sub(r"\\\1", text)
    return "`".join(part if index % 2 else SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts))


def convert(lines):
    """The lines of a header, converted; as many lines as before, but for the mark of the file's own comment."""
    out = []
    position = 0
    while position < len(lines):
        end = position
        while end < len(lines) and COMMENT.match(lines[end]):
            end += 1
        if end > position:
            block = [COMMENT.match(line).groups() for line in lines[position:end]]
            opens_file = position == 0
            documents = opens_file or (end < len(lines) and lines[end].strip() and
                                       not lines[end].lstrip().startswith(("#", "}")))
            if opens_file:
                out.append("/// \\file")
            for (indent, text), line in zip(block, lines[position:end]):
                out.append(f"{indent}/// {escape(text)}".rstrip() if documents else line)
            position = end
            continue
        line = lines[position]
        trailing = TRAILING.match(line)
        if trailing and not trailing.group(2).startswith("NOLINT"):
            line = f"{trailing.group(1)}  ///< {escape(trailing.group(2))}"
        out.append(line)
        position += 1
    return out


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(convert(header.read().splitlines())))
