"""Every public header compiles alone, without a warning: it includes what it uses. With --sources, so does every source
file of the library, which a build compiles together with its neighbours and behind a precompiled header.

What compiled once is remembered under a hash of the file, all it includes and the compiler, so that an unchanged
tree takes no time.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess

import tree

# A source is included here, and what it has of its own in an unnamed namespace is no fault of its.
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-restrict", "-Wno-subobject-linkage", "-fsyntax-only", "-fopenmp",
         "-x", "c++"]
# Sources with words of their own on the command line, or of libraries that not every machine has.
COMPILED_OTHERWISE = re.compile(r"_simd\.cc$|_cuda\.cc$|^src/(backends/(cuda|nccl|mpi|gloo)|cli)/|^src/train/hdf5\.cc$|\.cu$")


def _fingerprint(root, path, compiler_version):
    digest = hashlib.sha256(" ".join([compiler_version, *FLAGS]).encode())
    for member in sorted(tree.closure(root, path)):
        digest.update(member.encode())
        digest.update((root / member).read_bytes())
    return digest.hexdigest()


def _compile(root, path, compiler):
    # Through standard input, because a header given by name is compiled as a main file, in which
    # #pragma once is a warning. Public headers see each other alone.
    folders = ["include"] if tree.is_public(path) else ["include", "src"]
    source = f'#include "{path.removeprefix("include/").removeprefix("src/")}"\n'
    result = subprocess.run([compiler, *FLAGS, *(f"-I{root / folder}" for folder in folders), '-DLOCKSTEP_VERSION=""', "-"],
                            input=source, text=True, capture_output=True, check=False)
    return None if result.returncode == 0 else result.stderr


def check(root, arguments):
    compiler = arguments.compiler
    version = subprocess.run([compiler, "--version"], text=True, capture_output=True, check=True).stdout.splitlines()[0]
    known = {}
    if arguments.cache and arguments.cache.is_file():
        known = json.loads(arguments.cache.read_text())

    files = [path for path in tree.cpp_files(root) if tree.is_public(path) and tree.is_header(path)]
    if arguments.sources:
        files += [path for path in tree.cpp_files(root) if path.endswith(".cc") and not tree.is_test(path)
                  and not COMPILED_OTHERWISE.search(path)]
    fingerprints = {path: _fingerprint(root, path, version) for path in files}
    pending = [path for path in files if known.get(path) != fingerprints[path]]
    problems = []
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for path, errors in zip(pending, pool.map(lambda path: _compile(root, path, compiler), pending)):
            if errors:
                problems.append(f"{path}:1: does not compile alone; it must include what it uses\n{errors}")
                del fingerprints[path]
    if arguments.cache:
        arguments.cache.parent.mkdir(parents=True, exist_ok=True)
        arguments.cache.write_text(json.dumps(fingerprints, indent=1))
    return problems


def _add_arguments(parser):
    parser.add_argument("--compiler", default="g++", help="the compiler (default: g++)")
    parser.add_argument("--sources", action="store_true", help="the source files of the library, too")
    parser.add_argument("--cache", type=pathlib.Path, help="file that remembers the files that compiled")


if __name__ == "__main__":
    tree.run("files_alone", check, _add_arguments)
