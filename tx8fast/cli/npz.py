"""NPZ files of named arrays, read without trust and written so that equal arrays give equal bytes.

May import: numpy, numerics.{fitting, formats}, errors, files. Must not: know programs beyond tensor names, shapes and formats.
bfloat16 has no numpy type of its own in a file: it is stored as uint16 bit patterns.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from tx8fast.errors import SimulationError, Tx8Error, raise_all
from tx8fast.files import open_input
from tx8fast.numerics.fitting import integer_misfit, integers_required
from tx8fast.numerics.formats import FLOATS, INTS, np_dtype

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip entry can carry


class Named(Protocol):
    """What is known of an expected array: see `program.model.Tensor`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def read_npz(path: Path, what: str) -> dict[str, np.ndarray]:
    """Return all arrays of an NPZ file by name. Pickled objects are refused. Raises SimulationError."""
    doing = f"reading {what} {path}"
    try:
        with open_input(path) as f:
            if not zipfile.is_zipfile(f):
                raise SimulationError(f"{doing}: this is not an NPZ file (numpy.savez), or it is truncated")
            with zipfile.ZipFile(f) as archive:
                return {e.filename.removesuffix(".npy"): _member(archive, e, doing) for e in archive.infolist()}
    except Tx8Error:
        raise
    except OSError as e:
        raise SimulationError(f"{doing}: {e.strerror or e}") from e
    except Exception as e:  # the decoder raises whatever its parts raise
        raise SimulationError(f"{doing}: the file is damaged: {e}") from e


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, doing: str) -> np.ndarray:
    """Return one array. Its header must ask for as many bytes as the entry has, before anything is made of it."""
    what = f"{doing}: array '{entry.filename.removesuffix('.npy')}'"
    try:
        with archive.open(entry) as f:
            version = np.lib.format.read_magic(f)
            if version[0] not in (1, 2):  # 3 is for field names that are no Latin-1, and arrays with fields are refused
                raise SimulationError(f"{what} cannot be read: version {version[0]} of the format")
            read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            shape, columns_first, dtype = read(f)
            if dtype.hasobject:
                raise SimulationError(f"{what} cannot be read: it holds Python objects")
            count = math.prod(shape)
            rest = entry.file_size - f.tell()
            if min(shape, default=0) < 0 or count * dtype.itemsize != rest:
                raise SimulationError(
                    f"{what} cannot be read: {dtype}{list(shape)} is not {rest:,} bytes, which it has"
                )
            data = f.read()  # to the end, where the checksum is compared
        array = np.frombuffer(data, dtype, count)
        return array.reshape(shape[::-1]).T if columns_first else array.reshape(shape)
    except Tx8Error:
        raise
    except Exception as e:  # the header is a Python expression: its parser raises whatever its parts raise
        raise SimulationError(f"{what} cannot be read, the file is damaged: {e}") from e


def fit_inputs(
    arrays: Mapping[str, np.ndarray], tensors: Sequence[Named], where: str, chips: int = 1
) -> dict[str, np.ndarray]:
    """Return one array per tensor in its format. Raises SimulationError listing all that do not fit.

    Of several `chips`, an array may have a leading axis over them.
    A uint16 array for a bf16 tensor is a bit pattern; any float format is converted to any other, nearest even;
    integers may be of any width as long as their values fit.
    """
    known = {t.name: t for t in tensors}
    listed = ", ".join(known) or "none"
    problems = [f"'{n}' is not an input; the program takes {listed}" for n in arrays if n not in known]
    out = {}
    for t in tensors:
        if t.name not in arrays:
            problems.append(f"input '{t.name}', {t.dtype}{list(t.shape)}, is missing")
            continue
        array = arrays[t.name]
        if array.shape != tuple(t.shape) and (chips == 1 or array.shape != (chips, *t.shape)):
            also = f", or {[chips, *t.shape]} with a part for each chip" if chips > 1 else ""
            problems.append(f"input '{t.name}' has shape {list(array.shape)}, required {list(t.shape)}{also}")
            continue
        fitted, why = _convert(array, t.dtype)
        if fitted is None:
            problems.append(f"input '{t.name}' {why}, required {_accepted(t.dtype)}")
        else:
            out[t.name] = fitted
    raise_all(SimulationError, f"reading inputs {where}", problems)
    return out


def _accepted(dtype: str) -> str:
    if dtype == "bf16":
        return "a float type, or uint16 bit patterns of bfloat16"
    if dtype in FLOATS:
        return f"a float type ({dtype})"
    if dtype in INTS:
        return integers_required(dtype)
    return "bool"


def _convert(array: np.ndarray, dtype: str) -> tuple[np.ndarray | None, str]:
    """Return the array as `dtype`, or None and what is wrong."""
    target = np_dtype(dtype)
    if array.dtype == target and dtype not in INTS:
        return array, ""
    if dtype == "bf16" and (array.dtype == np.uint16 or (array.dtype.kind == "V" and array.dtype.itemsize == 2)):
        return np.ascontiguousarray(array).view(target), ""
    if dtype in FLOATS and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(np.float32).astype(target) if target.itemsize < 4 else array.astype(target), ""
    wrong = integer_misfit(array, dtype) if dtype in INTS else f"has dtype {array.dtype}"
    return (array.astype(target, copy=False), "") if wrong is None else (None, wrong)


def write_npz(f: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in the given order; formats numpy does not know go out as unsigned bit patterns. Raises SimulationError for names that
    an archive cannot hold."""
    odd = [name for name in arrays if "\0" in name or name.encode("utf-8", "replace").decode() != name]
    if odd:
        raise SimulationError(
            f"writing outputs: found results named {', '.join(map(repr, odd))}, required names of Unicode characters without NUL, "
            "as an NPZ archive holds them; rename them in the model"
        )
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy", EPOCH), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, bit_pattern(array), allow_pickle=False)


def bit_pattern(array: np.ndarray) -> np.ndarray:
    """Return the array if numpy can store it, else its bits as unsigned integers."""
    array = np.ascontiguousarray(array) if array.ndim else array
    if array.dtype.kind in "biuf" and array.dtype.isbuiltin:
        return array
    return array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize])
