"""Reads and writes the files under testdata/: safetensors, and JSON with one top-level key to a line.

Both are written so that the same content is always the same bytes. testdata/README.md describes what they hold.
"""

import json
import math
import struct

import numpy as np

DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1", "BOOL": "|b1"}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


def write_tensors(path, tensors):
    """Writes a dict of arrays as a safetensors file: header length, JSON header, the data in the dict's order."""
    header, blobs, offset = {}, [], 0
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_tensors(path):
    """The arrays of a safetensors file by name."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    return {name: np.frombuffer(body[slice(*entry["data_offsets"])], DTYPES[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def plain(value):
    """The value as what JSON knows; a float32 becomes the shortest decimal that reads back as the same float32."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    array = np.asarray(value)
    if array.ndim:
        return [plain(item) for item in array]
    return plain(float(str(array[()])) if array.dtype == np.float32 else array.item())


def write_json(path, content):
    """Writes a dict, one top-level key to a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(plain(value), ensure_ascii=False, allow_nan=False)}"
             for key, value in content.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))
