"""Structures: values nested in tuples, lists and dictionaries."""

from collections import abc


def is_nested(value):
    return isinstance(value, (tuple, list, dict))


def flatten(structure):
    """The leaves, in order; dictionaries by their sorted keys."""
    leaves = []
    _flatten(structure, leaves)
    return leaves


def _flatten(structure, leaves):
    if isinstance(structure, (tuple, list)):
        for part in structure:
            _flatten(part, leaves)
    elif isinstance(structure, dict):
        for key in _keys(structure):
            _flatten(structure[key], leaves)
    else:
        leaves.append(structure)


def _keys(mapping):
    try:
        return sorted(mapping)
    except TypeError:
        return list(mapping)


def pack_sequence_as(structure, flat_sequence):
    """The structure with these leaves in the places of its own."""
    leaves = iter(flat_sequence)
    packed = _pack(structure, leaves)
    for extra in leaves:
        raise ValueError(f"pack_sequence_as: {structure!r} has fewer leaves than were given")
    return packed


def _pack(structure, leaves):
    if isinstance(structure, (tuple, list)):
        parts = [_pack(part, leaves) for part in structure]
        if hasattr(structure, "_fields"):  # a named tuple
            return type(structure)(*parts)
        return tuple(parts) if isinstance(structure, tuple) else parts
    if isinstance(structure, dict):
        packed = {key: _pack(structure[key], leaves) for key in _keys(structure)}
        return type(structure)((key, packed[key]) for key in structure)
    return next(leaves)


def map_structure(function, *structures, **_):
    """function of the leaves that stand in the same place, in a structure like the first."""
    flat = [flatten(structure) for structure in structures]
    if any(len(leaves) != len(flat[0]) for leaves in flat):
        raise ValueError("map_structure: the structures have different numbers of leaves")
    return pack_sequence_as(structures[0], [function(*leaves) for leaves in zip(*flat)])


def assert_same_structure(a, b, **_):
    """Raises ValueError where a and b are nested differently."""
    if _skeleton(a) != _skeleton(b):
        raise ValueError(f"the two structures are nested differently:\nfirst: {a!r}\nsecond: {b!r}")


def _skeleton(structure):
    if isinstance(structure, (tuple, list)):
        return (type(structure).__name__, tuple(_skeleton(part) for part in structure))
    if isinstance(structure, abc.Mapping):
        return ("dict", tuple((key, _skeleton(structure[key])) for key in _keys(structure)))
    return None
