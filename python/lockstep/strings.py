"""tf.strings: functions of texts. Tensors hold none: texts are those of Python, arrays of them, or byte strings of datasets."""

import re

import numpy as np

from . import _lockstep, dtypes, errors
from ._texts import Texts, is_text
from .tensor import convert_to_tensor

_length = len  # which is an argument of substr()


def _of_each(function, texts, *more):
    """The function of every text, in the structure that the texts came in; byte strings give byte strings."""
    if isinstance(texts, str):
        return function(texts, *more)
    if isinstance(texts, bytes):
        made = function(texts.decode(), *more)
        return made.encode() if isinstance(made, str) else made
    if isinstance(texts, _lockstep.Tensor):
        made = function(_lockstep.io.text(texts).decode(), *more)
        return _lockstep.io.bytes(made.encode()) if isinstance(made, str) else made
    if hasattr(texts, "_derived"):  # texts that the call() of a model is to be given
        return texts._derived(lambda given: _of_each(function, given, *more))
    if isinstance(texts, Texts):
        made = _of_each(function, texts.numpy(), *more)
        return Texts(made) if is_text(made) and (not isinstance(made, list) or not texts.ndim) else made
    if isinstance(texts, np.ndarray):
        made = [_of_each(function, text, *more) for text in texts.reshape(-1).tolist()]
        return made if made and isinstance(made[0], list) else np.array(made, dtype=texts.dtype.kind if texts.dtype != object else
                                                                       object if is_text(made) else None).reshape(texts.shape)
    if isinstance(texts, (list, tuple)):
        return [_of_each(function, text, *more) for text in texts]
    raise TypeError(f"takes a text, or lists and arrays of them, received {texts!r}")


def _numbers(made, dtype):
    return convert_to_tensor(np.asarray(made, dtype))


def _letters(what, function, encoding):
    """The function of bytes, which changes ASCII letters only, or that of characters."""
    if encoding not in ("", "utf-8"):
        raise ValueError(f"{what}: encoding is \"\", which leaves what is not ASCII as it is, or \"utf-8\", received {encoding!r}")
    return getattr(str, function) if encoding else lambda text: getattr(text.encode(), function)().decode()


def lower(input, encoding="", name=None):
    """Lowercase: ASCII letters, with encoding="utf-8" those of all alphabets."""
    return _of_each(_letters("lower", "lower", encoding), input)


def upper(input, encoding="", name=None):
    """Uppercase: ASCII letters, with encoding="utf-8" those of all alphabets."""
    return _of_each(_letters("upper", "upper", encoding), input)


def strip(input, name=None):
    """Without ASCII whitespace at both ends."""
    return _of_each(lambda text: text.encode().strip().decode(), input)


def length(input, unit="BYTE", name=None):
    """How many bytes, or characters (UTF8_CHAR), each has."""
    return _numbers(_of_each((lambda text: len(text)) if unit == "UTF8_CHAR" else (lambda text: len(text.encode())), input), np.int32)


def regex_replace(input, pattern, rewrite, replace_global=True, name=None):
    """What the pattern matches, replaced; \\1 in the replacement is the first group. Classes of characters (\\w, \\s, \\b) are those of ASCII."""
    found = re.compile(pattern, re.ASCII)
    return _of_each(lambda text: found.sub(rewrite.replace("\\0", "\\g<0>"), text, count=0 if replace_global else 1), input)


def regex_full_match(input, pattern, name=None):
    """Whether the pattern matches all of it. Classes of characters (\\w, \\s, \\b) are those of ASCII."""
    found = re.compile(pattern, re.ASCII)
    return _numbers(_of_each(lambda text: found.fullmatch(text) is not None, input), np.bool_)


def split(input, sep=None, maxsplit=-1, name=None):
    """The parts of each string between separators, by default ASCII whitespace."""
    return _of_each(lambda text: [part.decode() for part in text.encode().split(sep and _encoded(sep) or None, maxsplit)], input)


def _encoded(text):
    return text.encode() if isinstance(text, str) else text


def join(inputs, separator="", name=None):
    """Texts that stand at the same place, one after another."""
    arrays = np.broadcast_arrays(*(np.asarray(part, dtype=object) for part in inputs))
    made = [_joined(parts, separator) for parts in zip(*(array.reshape(-1).tolist() for array in arrays))]
    if any(isinstance(part, Texts) for part in inputs):
        return Texts(made[0] if arrays[0].ndim == 0 else np.array(made, dtype=object).reshape(arrays[0].shape))
    return made[0] if arrays[0].ndim == 0 else np.array(made).reshape(arrays[0].shape)


def _joined(parts, separator):
    return separator.join(part.decode() if isinstance(part, bytes) else str(part) for part in parts)


def reduce_join(inputs, axis=None, keepdims=False, separator="", name=None):
    """The texts along an axis, or all of them, one after another."""
    if isinstance(inputs, (list, tuple)) and len({len(row) for row in inputs if isinstance(row, (list, tuple))}) > 1:
        return Texts([_joined(row, separator) for row in inputs])  # rows of different lengths, as split() gives them
    array = Texts(inputs)._array
    axes = list(range(array.ndim)) if axis is None else [one % array.ndim for one in (axis if isinstance(axis, (list, tuple)) else [axis])]
    kept = [one for one in range(array.ndim) if one not in axes]
    rows = array.transpose(kept + axes).reshape([array.shape[one] for one in kept] + [-1])
    made = np.empty(rows.shape[:-1], dtype=object)
    for place in np.ndindex(made.shape):
        made[place] = _joined(rows[place].tolist(), separator)
    return Texts(made.reshape([1 if one in axes else size for one, size in enumerate(array.shape)]) if keepdims else made)


def unicode_split(input, input_encoding, errors="replace", replacement_char=65533, name=None):
    """The characters of each."""
    if input_encoding.upper() not in ("UTF-8", "UTF8"):
        raise ValueError(f"unicode_split: texts are bytes in UTF-8, received {input_encoding!r}")
    return _of_each(list, input)


def unicode_decode(input, input_encoding, errors="replace", replacement_char=65533, replace_control_characters=False, name=None):
    """The numbers of the characters: of one text a tensor, else a list of tensors."""
    characters = unicode_split(input if isinstance(input, Texts) else Texts(input), input_encoding)
    rows = [characters] if isinstance(characters, Texts) else characters
    made = [_numbers([ord(part.decode() if isinstance(part, bytes) else part) for part in (row.numpy() if isinstance(row, Texts) else row)], np.int32)
            for row in rows]
    return made[0] if isinstance(characters, Texts) else made


def unicode_encode(input, output_encoding, errors="replace", replacement_char=65533, name=None):
    """Texts of the numbers of characters: of one row, or of several in a list."""
    if output_encoding.upper() not in ("UTF-8", "UTF8"):
        raise ValueError(f"unicode_encode: texts are bytes in UTF-8, received {output_encoding!r}")
    several = isinstance(input, (list, tuple)) and input and not np.isscalar(input[0])
    rows = [np.asarray(row) for row in input] if several else np.asarray(convert_to_tensor(input))
    made = ["".join(map(chr, row.tolist())) for row in (rows if several or rows.ndim > 1 else [rows])]
    return Texts(made) if several or rows.ndim > 1 else Texts(made[0])


def bytes_split(input, name=None):
    """The bytes of each."""
    if isinstance(input, Texts):
        made = bytes_split(input.numpy())
        return made if input.ndim else Texts(made)
    if isinstance(input, (str, bytes)):
        whole = input.encode() if isinstance(input, str) else input
        return [whole[place:place + 1] for place in range(len(whole))]
    return [bytes_split(text) for text in input]


def substr(input, pos, len, unit="BYTE", name=None):
    """The substring of `len` bytes, or characters (UTF8_CHAR), from `pos` on, which counts from the end if it is negative. `pos` and `len` are
    numbers, or a number for each string. A negative `len` takes the rest."""
    if unit not in ("BYTE", "UTF8_CHAR"):
        raise ValueError(f"substr: unit is BYTE or UTF8_CHAR, received {unit!r}")

    def part(text, pos, count):
        whole = text if unit == "UTF8_CHAR" else text.encode()
        if not -_length(whole) <= pos <= _length(whole):
            raise errors.InvalidArgumentError(f"substr: pos {pos} is outside of {text!r}, of {_length(whole)} {'characters' if unit == 'UTF8_CHAR' else 'bytes'}")
        made = whole[pos if pos >= 0 else _length(whole) + pos:]
        made = made if count < 0 else made[:count]
        try:
            return made if isinstance(made, str) else made.decode()
        except UnicodeDecodeError:  # a part of a character
            return made
    pos, len = (np.asarray(convert_to_tensor(given)) for given in (pos, len))
    if not pos.ndim and not len.ndim:
        return _of_each(lambda text: part(text, int(pos), int(len)), input)
    texts, pos, len = np.broadcast_arrays(np.asarray(Texts(input)), pos, len)
    made = np.empty(texts.shape, object)
    for place in np.ndindex(texts.shape):
        made[place] = part(texts[place].decode(), int(pos[place]), int(len[place]))
    return Texts(made)


def to_number(input, out_type="float32", name=None):
    """The numbers that texts write."""
    dtype = dtypes.as_dtype(out_type)
    return convert_to_tensor(np.asarray(_of_each(float if dtype.is_floating else int, input), dtype.as_numpy_dtype))


def as_string(input, precision=-1, scientific=False, shortest=False, width=-1, fill="", name=None):
    """Numbers as strings, as printf writes them: floats with `precision` digits after the decimal point, by default six; in scientific or in the
    shortest notation; filled up to a width."""
    if fill not in ("", "0", "+", "-", " ") or scientific and shortest:
        raise ValueError(f"as_string: fill is one of 0, +, - and a space, and a number is scientific or shortest, received {fill!r}, {scientific} and {shortest}")
    array = np.asarray(convert_to_tensor(input))
    form = f"%{fill}{width if width > -1 else ''}"
    form += "d" if array.dtype.kind != "f" else f"{f'.{precision}' if precision > -1 else ''}{'e' if scientific else 'g' if shortest else 'f'}"
    made = [str(value).lower() if array.dtype == np.bool_ else form % value for value in array.reshape(-1).tolist()]
    return Texts(np.array(made, dtype=object).reshape(array.shape))


def format(template, inputs, placeholder="{}", summarize=3, name=None):  # noqa: A001: TensorFlow's name
    """The template with the inputs in place of the placeholders; of larger tensors the first and the last elements along each dimension."""
    values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    parts = template.split(placeholder)
    if len(parts) != len(values) + 1:
        raise ValueError(f"format: {template!r} has {len(parts) - 1} placeholders, {len(values)} inputs were given")
    return Texts("".join(part + _written(value, summarize) for part, value in zip(parts, values)) + parts[-1])


def _written(value, summarize):
    if is_text(value):
        array = np.asarray(Texts(value))
    else:
        array = np.asarray(as_string(value, shortest=True) if convert_to_tensor(value).dtype.is_floating else as_string(value))
        if convert_to_tensor(value).dtype.is_bool:
            array = np.vectorize(lambda text: b"1" if text == b"true" else b"0", otypes=[object])(array)

    def of(part):
        if not np.ndim(part):
            text = (part if isinstance(part, bytes) else part[()]).decode()
            return f'"{text}"' if is_text(value) else text
        rows = list(part)
        shown = [of(row) for row in rows] if summarize < 0 or len(rows) <= 2 * summarize else \
            [of(row) for row in rows[:summarize]] + ["..."] + [of(row) for row in rows[-summarize:]]
        return "[" + ("\n " * (part.ndim > 1) or " ").join(shown) + "]"
    return of(array)


def ngrams(data, ngram_width, separator=" ", pad_values=None, padding_width=None, preserve_short_sequences=False, name=None):
    """The n-grams along the last dimension: ngram_width consecutive strings, joined; for several widths one after another."""
    widths = [int(ngram_width)] if np.ndim(ngram_width) == 0 else [int(width) for width in ngram_width]
    if min(widths) < 1 or padding_width is not None and padding_width < 1:
        raise ValueError(f"ngrams: widths are 1 or more, received {widths} and padding_width {padding_width}")
    pads = (pad_values, pad_values) if isinstance(pad_values, (str, bytes)) else pad_values
    array = np.asarray(Texts(data))

    def of_row(row):
        made = []
        for width in widths:
            beside = 0 if pads is None else width - 1 if padding_width is None else min(padding_width, width - 1)
            whole = [pads[0]] * beside + row + [pads[1]] * beside if beside else row
            found = [_joined(whole[place:place + width], separator) for place in range(len(whole) - width + 1)]
            made += found
        if not made and preserve_short_sequences and row:
            made = [_joined(row, separator)]
        return made
    rows = [of_row(row) for row in array.reshape(-1, array.shape[-1]).tolist()]
    return Texts(np.array(rows, dtype=object).reshape(*array.shape[:-1], len(rows[0]) if rows else 0))


def unicode_transcode(input, input_encoding, output_encoding, errors="replace", replacement_char=65533, replace_control_characters=False, name=None):
    """Strings of one encoding in another one; invalid bytes are replaced, left out ("ignore") or refused ("strict")."""
    if errors not in ("replace", "ignore", "strict"):
        raise ValueError(f"unicode_transcode: errors is replace, ignore or strict, received {errors!r}")
    array = np.asarray(Texts(_lockstep.io.text(input) if isinstance(input, _lockstep.Tensor) else input))
    made = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        text = array[place].decode(input_encoding, errors).replace("\ufffd", chr(replacement_char))
        if replace_control_characters:
            text = re.sub("[\x00-\x1f]", chr(replacement_char), text)
        made[place] = text.encode(output_encoding, errors)
    return Texts(made)


def unicode_split_with_offsets(input, input_encoding, errors="replace", replacement_char=65533, name=None):
    """The characters of a string, and the byte offset of each."""
    characters = unicode_split(Texts(input), input_encoding)
    if not isinstance(characters, Texts):
        raise NotImplementedError("unicode_split_with_offsets: takes one string, as the results of several differ in length; call it for each")
    sizes = [len(character) for character in characters.numpy()]
    return characters, _numbers(np.cumsum([0, *sizes])[:-1], np.int64)


def unsorted_segment_join(inputs, segment_ids, num_segments, separator="", name=None):
    """The strings of each segment, joined."""
    array, numbers = np.asarray(Texts(inputs)), np.asarray(convert_to_tensor(segment_ids))
    return Texts(np.array([_joined(array[numbers == number].tolist(), separator) for number in range(int(num_segments))], dtype=object))


# --- hashes of strings ----------------------------------------------------------------------------------------------------

def to_hash_bucket_fast(input, num_buckets, name=None):
    """The hash of each string, in [0, num_buckets): the same in every process, and in TensorFlow."""
    return _hashed(input, num_buckets, None)


def to_hash_bucket_strong(input, num_buckets, key, name=None):
    """The keyed hash of each string, in [0, num_buckets), which cannot be predicted without the key, a pair of integers."""
    return _hashed(input, num_buckets, [int(part) for part in key])


def _hashed(input, num_buckets, salt):
    texts = Texts(_lockstep.io.text(input) if isinstance(input, _lockstep.Tensor) else input)
    config = {"name": "to_hash_bucket", "num_bins": int(num_buckets), "salt": salt, "output_mode": "int"}
    engine = _lockstep.Hashing.deserialize({"class_name": "Hashing", "config": {key: value for key, value in config.items() if value is not None}})
    try:
        strings = [text.decode() for text in np.asarray(texts).reshape(-1)]
    except UnicodeDecodeError as error:
        raise errors.InvalidArgumentError(f"to_hash_bucket: takes strings in UTF-8, received {error.object!r}; tf.io.encode_base64 makes them of "
                                                    "any bytes") from None
    made = engine(strings)
    return _lockstep.ops.cast(_lockstep.ops.reshape(made, list(texts.shape)), dtypes.int64)
