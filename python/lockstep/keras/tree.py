"""keras.tree: structures of lists, tuples and dictionaries."""

from .. import nest
from ..nest import flatten, is_nested, pack_sequence_as  # noqa: F401


def map_structure(func, *structures, none_is_leaf=True):
    """The function of every leaf, in the same structure."""
    return nest.map_structure(func, *structures)


def map_structure_up_to(shallow_structure, func, *structures):
    """The same, as deep as the first structure goes."""
    if not is_nested(shallow_structure):
        return func(*structures)
    if isinstance(shallow_structure, dict):
        return {key: map_structure_up_to(part, func, *(s[key] for s in structures)) for key, part in shallow_structure.items()}
    made = [map_structure_up_to(part, func, *parts) for part, *parts in zip(shallow_structure, *structures)]
    return _like(shallow_structure, made)


def map_shape_structure(func, structure):
    """The function of every shape: a tuple or list of sizes is a leaf."""
    if _is_shape(structure):
        return func(tuple(structure))
    if isinstance(structure, dict):
        return {key: map_shape_structure(func, part) for key, part in structure.items()}
    return _like(structure, [map_shape_structure(func, part) for part in structure])


def flatten_with_path(structure):
    """(path, leaf) of every leaf."""
    found = []
    traverse_with_path(lambda path, leaf: found.append((path, leaf)), structure)
    return found


def traverse_with_path(visit, structure, path=()):
    if isinstance(structure, dict):
        for key in sorted(structure):
            traverse_with_path(visit, structure[key], path + (key,))
    elif isinstance(structure, (list, tuple)):
        for index, part in enumerate(structure):
            traverse_with_path(visit, part, path + (index,))
    else:
        visit(path, structure)


def assert_same_structure(a, b, check_types=None):
    """ValueError where they are not."""
    if is_nested(a) != is_nested(b) or (isinstance(a, dict) != isinstance(b, dict)):
        raise ValueError(f"the structures are not the same: {a!r} and {b!r}")
    if isinstance(a, dict):
        if set(a) != set(b):
            raise ValueError(f"the structures have different keys: {sorted(a)} and {sorted(b)}")
        for key in a:
            assert_same_structure(a[key], b[key])
    elif is_nested(a):
        if len(a) != len(b) or type(a) is not type(b):
            raise ValueError(f"the structures are not the same: {a!r} and {b!r}")
        for x, y in zip(a, b):
            assert_same_structure(x, y)


def lists_to_tuples(structure):
    """Tuples in the place of lists."""
    if isinstance(structure, dict):
        return {key: lists_to_tuples(part) for key, part in structure.items()}
    if isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields"):
        return tuple(lists_to_tuples(part) for part in structure)
    return structure


def _is_shape(value):
    return isinstance(value, (list, tuple)) and all(size is None or isinstance(size, int) for size in value)


def _like(structure, parts):
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    return tuple(parts) if isinstance(structure, tuple) else list(parts)
