"""keras.utils.get_file: files that scripts fetch once and find in a folder from then on. What reads archives and asks servers is imported
where it is needed: most programs need neither, and it takes as long as all of the package."""

import os
import zlib


def get_file(fname=None, origin=None, untar=False, md5_hash=None, file_hash=None, cache_subdir="datasets", hash_algorithm="auto",
             extract=False, archive_format="auto", cache_dir=None, force_download=False):
    """The path of a file, which is fetched from its origin where it is not in the folder yet, or is another one than its hash says; of an
    archive that is to be extracted, that of the folder with its contents."""
    from urllib import parse
    if origin is None:
        raise ValueError("get_file: takes an origin, the URL that the file is fetched from")
    file_hash, hash_algorithm = (md5_hash, "md5") if file_hash is None and md5_hash is not None else (file_hash, hash_algorithm)
    folder = os.path.join(os.path.expanduser(cache_dir or os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")), cache_subdir)
    name = os.path.basename(fname or parse.urlsplit(origin).path)
    if not name or name != (fname or name):
        raise ValueError(f"get_file: fname is the name of a file, without a folder, received {fname!r} of {origin}")
    path, contents = os.path.join(folder, name), None
    if untar or extract:
        stem, dot, _ = name.partition(".")
        if fname and dot:
            contents = os.path.join(folder, f"{stem}_extracted")
        else:
            path, contents = f"{path}_archive", path
    os.makedirs(folder, exist_ok=True)
    if force_download or not os.path.exists(path) or file_hash is not None and not _is_file_of(path, file_hash, hash_algorithm):
        _fetch(origin, path)
        if file_hash is not None and not _is_file_of(path, file_hash, hash_algorithm):
            raise ValueError(f"Incomplete or corrupted file: {path!r} from {origin} is not the one of hash {file_hash}")
    if contents is not None:
        _extract(path, contents, "tar" if untar else archive_format)
    return contents or path


def _fetch(origin, path):
    """A file is there complete, or not at all."""
    import shutil
    from urllib import request
    draft = f"{path}.part{os.getpid()}"
    try:
        with request.urlopen(origin) as source, open(draft, "wb") as target:
            shutil.copyfileobj(source, target)
        os.replace(draft, path)
    except OSError as error:
        raise OSError(f"get_file: {origin} was not fetched: {error}") from error
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def _is_file_of(path, expected, algorithm):
    if algorithm not in ("auto", "sha256", "md5", "crc32"):
        raise ValueError(f"get_file: hash_algorithm is auto, sha256, md5 or crc32, received {algorithm!r}")
    if algorithm == "auto":
        algorithm = "sha256" if len(str(expected)) == 64 else "md5"
    import hashlib
    made = hashlib.new(algorithm) if algorithm != "crc32" else None
    sum_of_bits = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 16):
            if made is None:
                sum_of_bits = zlib.crc32(block, sum_of_bits)
            else:
                made.update(block)
    return (f"{sum_of_bits:08x}" if made is None else made.hexdigest()) == str(expected)


def _extract(path, folder, archive_format):
    import tarfile
    import zipfile
    kinds = {"auto": ("tar", "zip"), None: (), "tar": ("tar",), "zip": ("zip",)}.get(archive_format, archive_format)
    if "tar" in kinds and tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")  # nothing outside of the folder
    elif "zip" in kinds and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    else:
        raise ValueError(f"get_file: {path!r} is no archive of the format {archive_format!r}")
