"""No header includes itself, directly or through others."""

import tree


def check(root, arguments=None):
    headers = [path for path in tree.cpp_files(root) if tree.is_header(path)]
    edges = {path: [include for include in tree.includes(root, path) if include.target and
                    tree.is_header(include.target)] for path in headers}
    problems = []
    done = set()

    def visit(path, trail):
        done.add(path)
        for include in edges.get(path, ()):
            if include.target in trail:
                cycle = trail[trail.index(include.target):] + [include.target]
                problems.append(f"{path}:{include.line}: headers include each other in a circle: {' -> '.join(cycle)}")
            elif include.target not in done:
                visit(include.target, trail + [include.target])

    for path in headers:
        if path not in done:
            visit(path, [path])
    return problems


if __name__ == "__main__":
    tree.run("header_cycles", check)
