"""Nobody but src/ops knows an op by name: the engine goes by what ops say of themselves and what is registered for them.

An op is named where code uses the constant that a header of src/ops declares for it (extern const OpDef kMatmul) and that
the file sees through its includes, where it declares such a constant anew, or where it looks one up by a literal name.
What graph/graph.h declares are the nodes of graphs themselves. An op that another room declares (a node that the compiler
makes, say) is named in that room, and where a kernel is registered for it. Tests, benchmarks and fuzzers may name ops.
"""

import re

import tree

_DECLARATION = re.compile(r"\bextern\s+(?:LOCKSTEP_\w+\s+)?const\s+OpDef\s+([^;(){}=]+);")
_DEFINITION = re.compile(r"\bOpDef\s+(k[A-Z]\w*)\s*(?:=|\{)")
_CONSTANT = re.compile(r"(?<![\w.>])(k[A-Z]\w*)\b")  # qualified or not
_REGISTERS = re.compile(r"\bRegisterKernel\b")
_LOOKUP = re.compile(r'\bfind_op\(\s*"([^"]*)"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRUCTURE = "src/graph/graph.h"


def _code(root, path):
    """The text without comments, with its lines where they were."""
    text = (root / path).read_text(encoding="utf-8")
    return _COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), text)


def _declared(code):
    return {name.strip(" \n*&") for found in _DECLARATION.finditer(code) for name in found.group(1).split(",")}


def _is_ops(path):
    return path.startswith("src/ops/")


class _Seen:
    """The headers that a file sees, directly or through others."""

    def __init__(self, root):
        self._root = root
        self._found = {}

    def __call__(self, path):
        if path not in self._found:
            self._found[path] = set()  # a circle ends here
            for include in tree.includes(self._root, path):
                if include.target is not None:
                    self._found[path] |= {include.target} | self(include.target)
        return self._found[path]


def check(root, arguments=None):
    files = [path for path in tree.cpp_files(root) if not tree.is_test(path)]
    code = {path: _code(root, path) for path in files}
    structure = _declared(code.get(_STRUCTURE, ""))
    headers = {path: _declared(code[path]) - structure for path in files if tree.is_header(path)}
    defined = {name for path in files if _is_ops(path) for name in _DEFINITION.findall(code[path])} - structure
    seen = _Seen(root)
    problems = []
    for path in files:
        if _is_ops(path):
            continue
        registers = _REGISTERS.search(code[path])
        own = tree.room_of(path)
        visible = set().union(*(headers[header] for header in seen(path) if header in headers and
                                (_is_ops(header) or not (registers or tree.room_of(header) == own))))
        anew = _declared(code[path]) & defined
        for number, line in enumerate(code[path].splitlines(), start=1):
            for name in _CONSTANT.findall(line):
                if name in visible or name in anew:
                    problems.append(f"{path}:{number}: names the op {name}; say what is needed of it as data beside the op "
                                    "(OpTraits, a rewrite, a rule of a backend) and go by that")
            for name in _LOOKUP.findall(line):
                problems.append(f"{path}:{number}: looks up the op \"{name}\"; say what is needed of it as data beside the op")
    return problems


if __name__ == "__main__":
    tree.run("op_names", check)
