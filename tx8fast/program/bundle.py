"""Several programs of one model in one `.tx8` file, one per length; images that are equal are stored once.

May import: numpy, errors, program.*. Must not: know how a length is chosen.

Body: {"bundle": facts of the caller, "programs": [body of a program, ...]}. The sections of program i have the prefix
"i/"; the data section is common.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tx8fast.errors import ProgramError
from tx8fast.program import io
from tx8fast.program.container import Chunks, Container, write
from tx8fast.program.model import FORMAT_VERSION, Program

MAX_PROGRAMS = 8


def save(facts: dict[str, Any], programs: Sequence[Program], path: str | os.PathLike[str]) -> None:
    """Write `programs` to `path`, atomically. `facts` are JSON-able. Raises ProgramError."""
    common, shared = share_data(programs)
    sections: list[tuple[str, Chunks]] = []
    for i, program in enumerate(shared):
        sections += [(f"{i}/{name}", chunks) for name, chunks in io.arrays_of(program)]
    body = {"bundle": facts, "programs": [io.body_of(p) for p in shared]}
    write(path, FORMAT_VERSION, body, [*sections, ("data", common)])


def share_data(programs: Sequence[Program]) -> tuple[list[memoryview], list[Program]]:
    """Return the distinct images of all programs in order, and the programs with their parameters in them."""
    at: dict[bytes, int] = {}
    chunks: list[memoryview] = []
    total = 0
    out = []
    for program in programs:
        io.check_data(program)
        view = memoryview(program.data)
        params = []
        for t in program.params:
            if t.embedded >= 0:
                size = t.size_bytes * (program.n_chips if t.per_chip else 1)
                image = view[t.embedded : t.embedded + size]
                key = hashlib.blake2b(image, digest_size=16).digest() + size.to_bytes(8, "little")
                if key not in at:
                    at[key] = total
                    chunks.append(image)
                    total += size
                t = replace(t, embedded=at[key])
            params.append(t)
        out.append(replace(program, params=params))
    return chunks, out


def open_several(path: str | os.PathLike[str]) -> Container | None:
    """Return the open file if it holds several programs, None if it holds one. Raises ProgramError if it is damaged."""
    container = Container(path, FORMAT_VERSION)
    return container if isinstance(container.body, dict) and "bundle" in container.body else None


def load(container: Container) -> tuple[dict[str, Any], list[io.FileProgram]]:
    """Return the caller's facts and the programs of an open file that holds several. Raises ProgramError."""
    doing = f"reading program file {container.path}"
    body = container.body
    facts, bodies = body["bundle"], body.get("programs")
    if not isinstance(facts, dict) or not isinstance(bodies, list) or not 1 <= len(bodies) <= MAX_PROGRAMS:
        raise ProgramError(
            f"{doing}: it should hold a description and 1 to {MAX_PROGRAMS} programs; the file is damaged"
        )
    return facts, [io.read(container, tree, f"{i}/") for i, tree in enumerate(bodies)]
