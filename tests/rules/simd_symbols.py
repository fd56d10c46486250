"""Code of a higher instruction-set level is never what the rest of the library calls.

An inline function that is not in the level's own namespace (a template of the standard library, say) has one name
at all levels, and the linker keeps the first copy it meets. The objects of the lowest level are linked first; so
every such function must have a copy there, or a machine of that level may run into instructions it does not have.
"""

import re
import subprocess

import tree

OWN = re.compile(r"simd_v\d")


def _weak_functions(object_file):
    """Mangled names of the weak functions that an object file defines."""
    if object_file.endswith(".gch"):  # CMake lists a target's precompiled header among its objects
        return set()
    listing = subprocess.run(["nm", "--defined-only", object_file], text=True, capture_output=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if line.split()[-2] == "W"}


def check(root, arguments):
    safe = set().union(*map(_weak_functions, arguments.first))
    problems = []
    for object_file in arguments.later:
        for symbol in sorted(_weak_functions(object_file) - safe):
            if not OWN.search(symbol):
                name = subprocess.run(["c++filt", symbol], text=True, capture_output=True, check=True).stdout.strip()
                problems.append(f"{object_file}: defines {name}, which no object of the lowest level defines; keep such "
                                "functions out of x_simd.cc, or put them into the namespace LOCKSTEP_SIMD")
    return problems


def _add_arguments(parser):
    parser.add_argument("--first", nargs="+", default=[], help="objects of the lowest level")
    parser.add_argument("--later", nargs="+", default=[], help="objects of the higher levels")


if __name__ == "__main__":
    tree.run("simd_symbols", check, _add_arguments)
