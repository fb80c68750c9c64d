"""NPZ files of named arrays, read without trust and written so that equal arrays give equal bytes.

May import: numpy, numerics.formats, errors. Must not: know programs beyond tensor names, shapes and formats.
bfloat16 has no numpy type of its own in a file: it is stored as uint16 bit patterns.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from tx8fast.errors import SimulationError, raise_all
from tx8fast.numerics.formats import FLOATS, INTS, int_limits, np_dtype

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
        with open(path, "rb") as f:
            if not zipfile.is_zipfile(f):
                raise SimulationError(f"{doing}: this is not an NPZ file (numpy.savez), or it is truncated")
        found = {}
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                found[name] = _member(archive, name, doing)
        return found
    except OSError as e:
        raise SimulationError(f"{doing}: {e.strerror or e}") from e
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        ValueError,
    ) as e:  # ValueError: another magic number
        raise SimulationError(f"{doing}: the file is damaged: {e}") from e


def _member(archive: Any, name: str, doing: str) -> np.ndarray:
    try:
        array = archive[name]
    except (ValueError, TypeError, KeyError, MemoryError, SyntaxError) as e:
        raise SimulationError(f"{doing}: array '{name}' cannot be read: {e}") from e
    if not isinstance(array, np.ndarray):
        raise SimulationError(f"{doing}: entry '{name}' is no array")
    return array


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
            problems.append(f"input '{t.name}' has dtype {array.dtype}{why}, required {_accepted(t.dtype)}")
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
        low, high = int_limits(dtype)
        return f"an integer type with values {low} to {high} ({dtype})"
    return "bool"


def _convert(array: np.ndarray, dtype: str) -> tuple[np.ndarray | None, str]:
    """Return the array as `dtype`, or None and what is wrong beyond its dtype."""
    target = np_dtype(dtype)
    if array.dtype == target:
        return array, ""
    if dtype == "bf16" and (array.dtype == np.uint16 or (array.dtype.kind == "V" and array.dtype.itemsize == 2)):
        return np.ascontiguousarray(array).view(target), ""
    if dtype in FLOATS and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(np.float32).astype(target) if target.itemsize < 4 else array.astype(target), ""
    if dtype in INTS and array.dtype.kind in "iu":
        low, high = int_limits(dtype)
        if array.size and (int(array.min()) < low or int(array.max()) > high):
            return None, f" and values from {array.min()} to {array.max()}"
        return array.astype(target), ""
    return None, ""


def write_npz(f: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in the given order; formats numpy does not know go out as unsigned bit patterns."""
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
