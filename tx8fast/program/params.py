"""Parameter bytes: from where a tensor's source says they are to how they lie in DDR.

May import: numpy, weights, numerics, errors, program.model, program.io. Must not: hold more than one
parameter at a time, or one per thread.

A `Tensor.source` is what `WeightTable.describe` returns (`{"kind": "file", "file", "offset", "nbytes", "dtype",
"shape"}` or `{"kind": "derived", ...}`), optionally with "key" (name in the checkpoint) and "transform": steps
`["transpose", perm]`, `["reshape", shape]`, `["slice", start, size]`, applied in order. Where chips hold different bytes it
is `{"kind": "chips", "sources": [one per chip]}`.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tx8fast.errors import ImportModelError, ProgramError
from tx8fast.numerics.formats import FLOATS, convert, dtype_name, np_dtype
from tx8fast.numerics.layout import LANES, image_bytes, npc, place
from tx8fast.program.io import check_data
from tx8fast.program.model import Program, Tensor
from tx8fast.weights import resolve

if TYPE_CHECKING:
    from concurrent.futures import Future

SHOWN = 10
LARGEST = {"bf16": 3.3895313892515355e38, "f16": 65504.0}  # numbers of formats that f32 reaches beyond
SLAB = 1 << 17  # elements that are laid out at a time: what is converted stays in the cache


def pack_param(
    source_array: np.ndarray, tensor: Tensor, room: np.ndarray | None = None, done: Callable[[], None] = lambda: None
) -> memoryview:
    """Return the `tensor.size_bytes` bytes of `source_array` as they lie in DDR: transformed, rounded to
    `ddr_dtype` (nearest even), laid out, zero-filled at the end.

    room: so many zeros (u8), in which it is laid out; without, no copy is made when the source already lies that way. done: called
    whenever some megabytes of the source have been read. Raises ProgramError if shape or size do not fit.
    """
    array = _transform(source_array, tensor)
    if array.shape != tuple(tensor.shape):
        raise ProgramError(f"packing parameter '{tensor.name}': found shape {array.shape}, required {tensor.shape}")
    src, dst = _format(array, tensor), tensor.ddr_dtype
    if tensor.layout not in ("dense", "blocked"):
        raise ProgramError(f"packing parameter '{tensor.name}': layout '{tensor.layout}', required dense or blocked")
    size = image_bytes(array.shape, dst, tensor.layout)
    if size > tensor.size_bytes:
        raise ProgramError(
            f"packing parameter '{tensor.name}': {size} bytes do not fit the {tensor.size_bytes} reserved in DDR"
        )
    if (
        room is None
        and tensor.layout == "dense"
        and src == dst
        and size == tensor.size_bytes
        and array.flags.c_contiguous
    ):
        return array.reshape(-1).view(np.uint8).data
    image = np.zeros(tensor.size_bytes, np.uint8) if room is None else room
    array = array.reshape(npc(array.shape))
    n, positions, channels = array.shape
    batches = image[:size].reshape(n, -1) if n else image[:0]
    for some, rows in _slabs(n, positions, channels) if array.size else ():
        slab = _converted(array[some, rows], src, dst)
        if tensor.layout == "blocked":
            place(slab, dst, batches[some], positions, rows.start)
        else:
            _copy(slab, batches[some].view(np_dtype(dst)).reshape(-1, positions, channels)[:, rows])
        done()
    return image.data


def _slabs(n: int, positions: int, channels: int) -> Iterator[tuple[slice, slice]]:
    """Yield ranges of batches and of positions that hold about SLAB elements together."""
    rows = max(1, SLAB // max(1, channels))
    some = max(1, rows // max(1, positions))
    for b in range(0, n, some):
        for r in range(0, positions, rows):
            yield slice(b, min(b + some, n)), slice(r, min(r + rows, positions))


def _converted(slab: np.ndarray, src: str, dst: str) -> np.ndarray:
    """Convert an array whose axes lie in any order in memory, in that order. Finite numbers beyond a narrower format's range become its
    largest ones, as those of constants do: a mask's lowest number is no infinity."""
    if src == dst:
        return slab
    order = sorted(range(slab.ndim), key=lambda i: -abs(slab.strides[i]))
    back = sorted(range(slab.ndim), key=order.__getitem__)
    given = np.ascontiguousarray(slab.transpose(order))
    made = convert(given, src, dst)
    if dst in LARGEST and src in FLOATS and (over := np.isinf(made)).any():
        over &= np.isfinite(given)
        made = np.where(over, np.copysign(LARGEST[dst], given).astype(made.dtype), made)
    return made.transpose(back)


def _copy(src: np.ndarray, dst: np.ndarray) -> None:
    """Copy (n, rows, channels). Of a turned array, a few channels at a time, so that the lines that they come from stay in the cache."""
    turned = src.strides[-1] != src.itemsize
    step = LANES if turned else max(1, src.shape[-1])
    for c in range(0, src.shape[-1], step):
        dst[..., c : c + step] = src[..., c : c + step]


def _format(array: np.ndarray, tensor: Tensor) -> str:
    try:
        return dtype_name(array.dtype)
    except (KeyError, ValueError) as e:
        raise ProgramError(
            f"packing parameter '{tensor.name}': no conversion from {array.dtype} to {tensor.ddr_dtype}"
        ) from e


def _transform(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    for step in tensor.source.get("transform") or ():
        try:
            kind, *args = step
            if kind == "transpose":
                array = array.transpose(*args)
            elif kind == "reshape":
                array = array.reshape(*args)
            elif kind == "slice":
                start, size = args
                if len(start) != array.ndim or any(
                    not 0 <= a <= a + n <= top for a, n, top in zip(start, size, array.shape, strict=True)
                ):
                    raise ValueError(f"[{start}, +{size}) outside {array.shape}")
                array = array[tuple(slice(a, a + n) for a, n in zip(start, size))]
            else:
                raise ValueError("unknown kind of step")
        except (TypeError, ValueError) as e:
            raise ProgramError(f"packing parameter '{tensor.name}': transform step {step!r}: {e}") from e
    return array


def param_arrays(
    program: Program,
    weights_dir: str | os.PathLike[str] | None = None,
    room: Callable[[Tensor], np.ndarray | None] = lambda tensor: None,
    threads: int = 1,
) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Yield every parameter with its DDR image (size_bytes,) uint8, read-only or fresh, in the program's order; (chips, size_bytes)
    if chips hold different bytes. room: where a tensor's image may be made, as many zeros. threads: so many are made at a time.

    All sources are looked up before the first one is read. Raises ProgramError naming the parameters whose files
    are not in `weights_dir` or beside the file it names (default: the working directory), or one whose bytes do not fit.
    """
    root = Path(weights_dir) if weights_dir is not None else Path(".")
    outside = [t for t in program.params if t.embedded < 0]
    if root.is_file():
        known = sorted({name for t in outside for name in _files(t.source)})
        if known and root.name not in known:
            raise ProgramError(
                f"reading parameters: '{root}' is not a weight file of this program; it reads {', '.join(known[:SHOWN])}; "
                "give one of these, or the directory of the checkpoint"
            )
        root = root.parent
    missing = [f"{t.name} ({why})" for t in outside if (why := _absent(t.source, root))]
    if missing:
        where = f"'{root}'" if weights_dir is not None else "the working directory"
        raise ProgramError(
            f"reading parameters: the bytes of {len(missing)} of {len(program.params)} are not in {where}:{_listed(missing)}\n"
            "give the directory of the checkpoint with --weights DIR"
        )
    _check_deciding(program, root)
    if len(outside) < len(program.params):
        check_data(program)
    return _in_order(lambda t: (t, _image(program, t, root, room)), program.params, threads)


def _check_deciding(program: Program, root: Path) -> None:
    """Raise ProgramError if weights whose values the compiler has worked with, into constants of the program, have others there."""
    others = []
    try:
        for place in program.meta.get("deciding", ()) if reads_files(program) else ():
            if hashlib.sha256(resolve(place, root).data).hexdigest() != place["sha256"]:
                others.append(f"{place['name']} ({place['file']})")
    except (ImportModelError, AttributeError, KeyError, TypeError, OverflowError) as e:
        raise ProgramError(
            f"reading parameters: what constants were computed from cannot be read in '{root}': {e}"
        ) from e
    if others:
        raise ProgramError(
            f"reading parameters: constants of the program were computed from {len(others)} weights that have other values in "
            f"'{root}':{_listed(others)}\ncompile the checkpoint that is there"
        )


def _listed(items: Sequence[str]) -> str:
    """Return the first of several items, a line each, and how many more there are."""
    more = f"\n  and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "".join(f"\n  - {item}" for item in items[:SHOWN]) + more


def _in_order(
    make: Callable[[Tensor], tuple[Tensor, np.ndarray]], params: Sequence[Tensor], threads: int
) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Yield what is made of each parameter; in several threads, no more of them are ahead than there are threads."""
    if threads < 2 or len(params) < 2:
        yield from map(make, params)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[tuple[Tensor, np.ndarray]]] = deque()
        try:
            for t in params:
                if len(waiting) == threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(make, t))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def with_images(
    program: Program, weights_dir: str | os.PathLike[str] | None = None
) -> tuple[Program, Iterator[memoryview]]:
    """Return a program whose parameters are all in its file, tables that are computed included, and the images for `io.save`, one
    after the other. Raises ProgramError as `param_arrays` does."""
    images, at, params = param_arrays(program, weights_dir), 0, []
    for t in program.params:
        params.append(replace(t, embedded=at))
        at += t.size_bytes * (program.n_chips if t.per_chip else 1)
    return replace(program, params=params, data=b""), (image.reshape(-1).data for _, image in images)


def reads_files(program: Program) -> bool:
    """Return True if a parameter's bytes are in a file beside the program."""
    return any(t.embedded < 0 and any(_files(t.source)) for t in program.params)


def stays_in_files(source: Mapping[str, Any]) -> bool:
    """Return True if all that a source is made of is read from files, or computed from nothing."""
    if parts := _parts(source):
        return all(stays_in_files(inner) for inner in parts)
    return source.get("kind", "file" if "file" in source else "missing") in ("file", "derived")


def _files(source: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the files that a source reads."""
    if "file" in source:
        yield str(source["file"])
    for inner in _parts(source):
        yield from _files(inner)


def _parts(source: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the sources that a source is made of."""
    return source.get("inputs") or source.get("sources") or []


def _absent(source: Mapping[str, Any], root: Path) -> str:
    """Return what is missing for `source`, "" if all its files exist."""
    kind = source.get("kind", "file" if "file" in source else "missing")
    if kind in ("derived", "chips"):
        return next((why for d in _parts(source) if (why := _absent(d, root))), "")
    if kind != "file":
        return "no file is known for it"
    name = str(source.get("file"))
    return "" if (root / name).is_file() else f"file {name}"


def _image(program: Program, tensor: Tensor, root: Path, room: Callable[[Tensor], np.ndarray | None]) -> np.ndarray:
    n = program.n_chips if tensor.per_chip else 1
    if tensor.embedded >= 0:
        end = tensor.embedded + n * tensor.size_bytes
        view = memoryview(program.data).toreadonly()[tensor.embedded : end]
        if len(view) != n * tensor.size_bytes:
            raise ProgramError(
                f"reading parameter '{tensor.name}': bytes [{tensor.embedded}, {end}) "
                f"required, the data section has {len(program.data)}"
            )
        images = np.frombuffer(view, np.uint8)
        return images.reshape(n, -1) if tensor.per_chip else images
    if tensor.per_chip:
        sources = tensor.source.get("sources") or []
        if len(sources) != n:
            raise ProgramError(f"reading parameter '{tensor.name}': found {len(sources)} sources for {n} chips")
        return np.stack([_packed(tensor, source, root) for source in sources])
    return _packed(tensor, tensor.source, root, room(tensor))


def _packed(tensor: Tensor, source: Mapping[str, Any], root: Path, room: np.ndarray | None = None) -> np.ndarray:
    source = {"kind": "file", **source}
    try:
        array = resolve(source, root)
    except ImportModelError as e:
        raise ProgramError(f"reading parameter '{tensor.name}': {e}") from e
    return np.frombuffer(pack_param(array, tensor, room), np.uint8)
