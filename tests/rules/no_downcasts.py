"""What a device, a stream or a communicator can do is asked of it by a virtual function, never found out by a dynamic_cast.

That goes for the rooms which run steps on devices. Exceptions may be cast: what is thrown says itself what it is.
"""

import re

import tree

ROOMS = ("src/backends/", "src/comm/", "src/compile/", "src/device/", "src/execute/")
_CAST = re.compile(r"\bdynamic_cast\s*<\s*(?!(?:const\s+)?(?:\w+::)*\w*(?:Error|exception)\b)[^>]+>")


def check(root, arguments=None):
    problems = []
    for path in tree.cpp_files(root):
        if not path.startswith(ROOMS):
            continue
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), start=1):
            if match := _CAST.search(line):
                problems.append(f"{path}:{number}: {match.group()}: give the base class a function that answers, "
                                "as DeviceBackend::async_host_copies() does")
    return problems


if __name__ == "__main__":
    tree.run("no_downcasts", check)
