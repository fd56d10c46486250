"""Inputs of texts in files and configurations.

The engine writes an input of texts with the dtype of the numbers that stand for them, and reads no other. Here that dtype becomes "string",
as Keras has it, and back. What stands in an .h5 file cannot change its length: a space makes up for it, which JSON allows.
"""

import json
import mmap
import os
import re
import shutil
import tempfile
from contextlib import contextmanager

from ._keras_tensor import STAND_IN, mark_as_texts, mark_of

_CONFIG = "config.json"
_TEXTS = re.compile(rb'"dtype":( ?)"string"( ?)')
_NAME = re.compile(rb'"dtype":\s*"string"\s*,[^{}]*?"name":\s*("(?:[^"\\]|\\.)*")')


def places_of_texts(model):
    """(name, call, result) of the values of a model that stand for texts, and of the models inside of it."""
    found = {(value.name, 0, 0) for value in model._handle.inputs() if mark_of(value) is not None}
    if getattr(model, "_stage", None) is not None:
        found |= model._stage.texts
        for layer in model.operations:
            if getattr(layer, "_stage", None) is not None:
                found |= places_of_texts(layer)
    return found


def with_texts(written, places):
    """What the engine wrote, bytes with JSON in them, with "string" as the dtype of texts."""
    dtype = rb'"dtype":(\s*)"%s"' % STAND_IN.encode()
    for name, call, result in places:
        name = json.dumps(name, ensure_ascii=False).encode()
        inputs = rb'(,\s*"sparse":\s*false,\s*"ragged":\s*false,\s*"name":\s*%s)' % re.escape(name)
        values = rb'(,\s*"keras_history":\s*\[\s*%s,\s*%d,\s*%d\s*\])' % (re.escape(name), call, result)
        for behind in (inputs, values):
            written = re.sub(dtype + behind, rb'"dtype":\1"string" \2', written)
    return written


def without_texts(read):
    """(the same as the engine reads it, names of the inputs of texts)."""
    names = {json.loads(name) for name in _NAME.findall(read)}
    return (_TEXTS.sub(_as_long, read), names) if names else (read, names)


def _as_long(found):
    made = rb'"dtype":"%s"' % STAND_IN.encode()
    return made + b" " * (len(found[0]) - len(made))


def mark_inputs(model, names):
    """Says of the inputs of a model, and of models inside of it, which are texts. The model keeps the marks."""
    if not names:
        return
    from .models import Model
    marks, models = [], [model]
    while models:
        handle = models.pop()
        marks += [mark_as_texts(value) for value in handle._handle.inputs() if value.name in names and value.dtype.name == STAND_IN]
        models += [layer for layer in handle.operations if isinstance(layer, Model)]
    model.__dict__["_marks"] = marks


# --- files ---------------------------------------------------------------------------------------------------------------

def save(model, path, include_optimizer):
    """model.save() of a model with inputs of texts."""
    places = places_of_texts(model)
    folder = tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(path)))
    try:
        there = os.path.join(folder, os.path.basename(path))
        model._handle.save(there, include_optimizer)
        _rewrite(there, there + ".texts", lambda config: with_texts(config, places))
        os.replace(there + ".texts", path)
    finally:
        shutil.rmtree(folder)


def put_right(model, path):
    """The same of a file that the engine wrote, if it is there."""
    config, places = _config_of(path) if os.path.exists(path) else None, places_of_texts(model)
    if config is not None and with_texts(config, places) != config:
        _rewrite(path, path + ".texts", lambda config: with_texts(config, places))
        os.replace(path + ".texts", path)


@contextmanager
def readable(path):
    """(a file that the engine reads, names of the inputs of texts) for a model's file or folder."""
    config = _config_of(path)
    names = without_texts(config)[1] if config is not None else set()
    if not names:
        yield path, names
        return
    with tempfile.TemporaryDirectory() as folder:
        there = os.path.join(folder, os.path.basename(os.path.normpath(path)))
        if os.path.isdir(path):
            shutil.copytree(path, there)
            _replace(os.path.join(there, _CONFIG), os.path.join(there, _CONFIG), lambda config: without_texts(config)[0])
        else:
            _rewrite(path, there, lambda config: without_texts(config)[0])
        yield there, names


def _config_of(path):
    """The bytes in which a file has its configuration; None: the engine says what is wrong with it."""
    if os.path.isdir(path):
        path = os.path.join(path, _CONFIG)
        return _bytes(path) if os.path.exists(path) else None
    if _is_archive(path):
        import zipfile
        with zipfile.ZipFile(path) as archive:
            return archive.read(_CONFIG) if _CONFIG in archive.namelist() else None
    if path.endswith((".h5", ".hdf5")):
        return _bytes(path) if _contains(path, b'"string"') else None
    return _bytes(path) if path.endswith(".json") else None


def _is_archive(path):
    import zipfile  # here and below: importing the package does without
    return zipfile.is_zipfile(path)


def _contains(path, bytes_):
    """Whether the file, which may be one of gigabytes of weights, has these bytes somewhere."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return mapped.find(bytes_) >= 0


def _rewrite(source, target, change):
    """The file with its configuration changed; the rest is copied as it is."""
    if not _is_archive(source):
        _replace(source, target, change)
        return
    import zipfile
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for entry in before.infolist():
            if entry.filename == _CONFIG:
                after.writestr(entry, change(before.read(entry)))
            else:
                with before.open(entry) as read, after.open(entry, "w", force_zip64=entry.file_size >= 2**31) as written:
                    shutil.copyfileobj(read, written, 1 << 20)


def _replace(source, target, change):
    changed = change(_bytes(source))
    with open(target, "wb") as file:
        file.write(changed)


def _bytes(path):
    with open(path, "rb") as file:
        return file.read()
