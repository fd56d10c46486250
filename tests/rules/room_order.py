"""A room includes only rooms below it, and the command-line tool only public headers.

Inside ops, the files x_cpu.* and x_cuda.* count as the rooms backends/cpu and backends/cuda. The backends stand
above every other room and know nothing of each other, but that NCCL works on CUDA's streams. Tests, benchmarks and fuzzers may include anything, and so
may the umbrella header lockstep/lockstep.h.
"""

import tree

# A backend that stands on another one.
_STANDS_ON = {"backends/nccl": "backends/cuda"}


def _rank(room):
    return len(tree.ROOMS) if room.startswith("backends/") else tree.ROOMS.index(room)


def check(root, arguments=None):
    problems = []
    for path in tree.cpp_files(root):
        if path == tree.UMBRELLA:
            continue
        room = tree.room_of(path)
        if room is None:
            problems.append(f"{path}:1: the file stands in no room; the rooms are {', '.join(tree.ROOMS)}, backends/*")
            continue
        if tree.is_test(path):
            continue
        for include in tree.includes(root, path):
            if include.target is None:
                continue
            where = f"{path}:{include.line}"
            if include.target == tree.UMBRELLA:
                if room != "cli":
                    problems.append(f"{where}: the umbrella header is for users; include the headers that are needed")
                continue
            below = tree.room_of(include.target)
            if below is None or below == room or below == _STANDS_ON.get(room):
                continue
            if room == "cli" and not tree.is_public(include.target):
                problems.append(f"{where}: cli sees public headers only, and {include} is private to {below}")
            elif _rank(below) >= _rank(room):
                problems.append(f"{where}: {room} may not include {include}: the room {below} is not below it")
    return problems


if __name__ == "__main__":
    tree.run("room_order", check)
