"""Every public header compiles alone, without a warning: it includes what it uses.

What compiled once is remembered under a hash of the header, all it includes and the compiler, so that an unchanged
tree takes no time.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess

import tree

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++"]


def _fingerprint(root, path, compiler_version):
    digest = hashlib.sha256(" ".join([compiler_version, *FLAGS]).encode())
    for member in sorted(tree.closure(root, path)):
        digest.update(member.encode())
        digest.update((root / member).read_bytes())
    return digest.hexdigest()


def _compile(root, path, compiler):
    # Through standard input, because a header given by name is compiled as a main file, in which
    # #pragma once is a warning.
    source = f'#include "{path.removeprefix("include/")}"\n'
    result = subprocess.run([compiler, *FLAGS, "-I", str(root / "include"), "-"], input=source, text=True,
                            capture_output=True, check=False)
    return None if result.returncode == 0 else result.stderr


def check(root, arguments):
    compiler = arguments.compiler
    version = subprocess.run([compiler, "--version"], text=True, capture_output=True, check=True).stdout.splitlines()[0]
    known = {}
    if arguments.cache and arguments.cache.is_file():
        known = json.loads(arguments.cache.read_text())

    headers = [path for path in tree.cpp_files(root) if tree.is_public(path) and tree.is_header(path)]
    fingerprints = {path: _fingerprint(root, path, version) for path in headers}
    pending = [path for path in headers if known.get(path) != fingerprints[path]]
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
    parser.add_argument("--cache", type=pathlib.Path, help="file that remembers the headers that compiled")


if __name__ == "__main__":
    tree.run("headers_alone", check, _add_arguments)
