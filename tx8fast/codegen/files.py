"""Everything that is written beside the text of a program: images, description, the main of the C model, and how to build.

May import: codegen.program, codegen.durations, codegen.abi_text, program, machine, numerics, host, files, errors. Must not: simulate.
A directory stands for itself: it holds the sources of the C model, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast import files, host
from tx8fast.codegen import abi_text
from tx8fast.codegen.build import CMAKE, HEADER, MAIN, MAKEFILE, TENSORS
from tx8fast.codegen.durations import duration_text
from tx8fast.codegen.program import program_text
from tx8fast.codegen.rows import literal
from tx8fast.errors import ConfigError
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.numerics.layout import npc
from tx8fast.program.model import Program, Tensor

CORE, OWN = Path(host.__file__).with_name("csrc"), Path(__file__).with_name("csrc")
MODEL = "c_model"
PARAMS = "params.bin"
Chunks = Iterable[bytes | memoryview]


def write_c(
    program: Program,
    folder: Path,
    params: Iterable[tuple[Tensor, np.ndarray]],
    inputs: Mapping[str, Sequence[bytes]] | None = None,
    expected: Mapping[str, Sequence[bytes]] | None = None,
) -> list[str]:
    """Write a program as C into a directory, which is made; return the names of the files.

    params: every parameter with its bytes as they lie in DDR, read one at a time; inputs, expected: a test case, the bytes of
    every input and output as they lie in DDR, of each chip. Raises ProgramError for what C cannot say, ConfigError if a file cannot be
    written; then no file is left.
    """
    texts = {
        "program.c": program_text(program),
        "program.h": [HEADER],
        "tensors.h": [tensors_text(program, expected is not None)],
        "main.c": [MAIN],
        "durations.c": duration_text(program),
        "program.json": [json.dumps(description(program, expected is not None), indent=2) + "\n"],
        "Makefile": [MAKEFILE],
        "CMakeLists.txt": [CMAKE],
        f"{MODEL}/tx8_abi.h": [abi_text.header()],
        f"{MODEL}/model_calls.c": [abi_text.source()],
    }
    # all text is made, or refused, before there is a directory; parameters are read one at a time
    contents: dict[str, Chunks] = {name: ["".join(parts).encode("utf-8")] for name, parts in texts.items()}
    contents |= {f"{MODEL}/{p.name}": [p.read_bytes()] for p in model_sources()}
    contents[PARAMS] = (np.ascontiguousarray(image).data for _, image in params)
    for tensors, kind, found in ((program.inputs, "in", inputs), (program.outputs, "expected", expected)):
        contents |= {f"{kind}_{k}.bin": found[t.name] for k, t in enumerate(tensors) if found is not None}
    try:
        files.make_folder(folder / MODEL)
        with files.together():
            for name, chunks in contents.items():
                with files.replacing(folder / name, "C program") as f:
                    for chunk in chunks:
                        f.write(chunk)
    except OSError as e:
        raise ConfigError(f"writing C into {folder}: {e.strerror or e}") from e
    return list(contents)


def model_sources() -> list[Path]:
    """Return the sources of the C model: its own, the core's, and what they include. The host library's begin with "tx8_"."""
    found = {p.name: p for p in (*OWN.glob("*.[ch]"), *(p for p in CORE.glob("*.c") if not p.name.startswith("tx8_")))}
    left = list(found.values())
    while left:
        for name in re.findall(r'^#include "(\w+\.h)"', left.pop().read_text(encoding="utf-8"), re.MULTILINE):
            if name not in found and (CORE / name).is_file():
                found[name] = CORE / name
                left.append(found[name])
    return [found[name] for name in sorted(found)]


# --- what is in the files ------------------------------------------------------------------------------


def description(program: Program, has_case: bool) -> dict[str, Any]:
    """Return what `program.json` holds: per chip its tiles and tensors (TX8 back-end notes 6.3). Addresses count from DDR's begin."""
    machine = Machine.from_dict(program.machine)
    owned = sorted((t.address, t.address + t.size_bytes) for t in (*program.inputs, *program.outputs, *program.params))
    outside, end = program.ddr_bytes, DDR_BASE
    for low, high in owned:
        outside -= max(0, high - max(low, end))
        end = max(end, high)
    offsets = param_offsets(program)
    params = [{**_tensor(t), "file": PARAMS, "file_offset": at} for t, at in zip(program.params, offsets)]
    inputs = [{**_tensor(t), "file": f"in_{k}.bin"} for k, t in enumerate(program.inputs)]
    outputs = []
    for k, t in enumerate(program.outputs):
        inplace = next((i for i, other in enumerate(program.inputs) if other.address == t.address), -1)
        outputs.append({**_tensor(t), "file": f"out_{k}.bin", "inplace": inplace})
        if has_case:
            outputs[-1]["expected_file"] = f"expected_{k}.bin"
    chip = {
        "tile_num": machine.n_tiles,
        "tile_x": machine.chip.tiles_x,
        "tile_y": machine.chip.tiles_y,
        "ddr_bytes": program.ddr_bytes,
        "imm_size": outside,
        "input_num": len(inputs),
        "output_num": len(outputs),
        "param_num": len(params),
        "inputs": inputs,
        "outputs": outputs,
        "params": params,
    }
    facts = {"model": program.meta.get("model"), "machine_digest": machine.digest, "entry": "tile_main"}
    return {**facts, "chips": [_of_chip(chip, program, c) for c in range(program.n_chips)]}


def _of_chip(facts: dict[str, Any], program: Program, chip: int) -> dict[str, Any]:
    """Return the description of one chip: in files whose bytes are not the same for all, they lie chip after chip."""
    out = dict(facts)
    for kind in ("params", "inputs", "outputs"):
        tensors = getattr(program, kind)
        places = [
            facts_of.get("file_offset", 0) + chip * step(t, kind, program) for facts_of, t in zip(facts[kind], tensors)
        ]
        out[kind] = [f | ({"file_offset": at} if at or kind == "params" else {}) for f, at in zip(facts[kind], places)]
    return out


def step(t: Tensor, kind: str, program: Program) -> int:
    """Return the bytes in a tensor's file from those of one chip to those of the next, 0 if they are the same for all."""
    return t.size_bytes if program.n_chips > 1 and (t.per_chip or kind != "params") else 0


def _tensor(t: Tensor) -> dict[str, Any]:
    return {
        "name": t.name,
        "dim": len(t.shape),
        "shape": list(t.shape),
        "dtype": t.ddr_dtype,
        "format": FORMAT_CODES[t.ddr_dtype],
        "layout": "Tensor" if t.layout == "dense" else "Cx" if len(t.shape) < 3 else "NCx",
        "address": t.address - DDR_BASE,
        "size_bytes": t.size_bytes,
        **({"model_dtype": t.dtype} if t.dtype != t.ddr_dtype else {}),
    }


def param_offsets(program: Program) -> list[int]:
    """Return where each parameter begins in the image of all of them, in bytes: one after the other."""
    sizes = (t.size_bytes * (program.n_chips if t.per_chip else 1) for t in program.params)
    return np.cumsum([0, *sizes])[:-1].tolist()


def tensors_text(program: Program, has_case: bool) -> str:
    """Return `tensors.h`."""
    machine = Machine.from_dict(program.machine)
    return TENSORS.format(
        chips=program.n_chips,
        tiles=machine.n_tiles,
        spm_bytes=machine.tile.spm_bytes,
        ddr_base=literal(DDR_BASE, True),
        ddr_bytes=program.ddr_bytes,
        params="\n".join(_rows(program, "params", PARAMS, param_offsets(program))),
        n_params=len(program.params),
        inputs="\n".join(_rows(program, "inputs", "in_{}.bin")),
        n_inputs=len(program.inputs),
        outputs="\n".join(_rows(program, "outputs", "out_{}.bin")),
        n_outputs=len(program.outputs),
        has_case=int(has_case),
    )


def _rows(program: Program, kind: str, file: str, offsets: Iterable[int] | None = None) -> Iterator[str]:
    tensors: list[Tensor] = getattr(program, kind)
    for k, (t, at) in enumerate(zip(tensors, offsets if offsets is not None else _zeros())):
        n, positions, channels = npc(t.shape)
        shape = f"{int(t.layout == 'blocked')}, {FORMAT_CODES[t.ddr_dtype]}, {n}, {positions}, {channels}, {step(t, kind, program)}"
        name = "".join(c if " " <= c <= "~" and c not in '"\\?' else "_" for c in t.name)
        yield f'    {{"{name}", "{file.format(k)}", {at}, {literal(t.address - DDR_BASE, True)}, {t.size_bytes}, {shape}}},'
    if not tensors:
        yield '    {"", "", 0, 0, 0, 0, 0, 0, 0, 0, 0},'


def _zeros() -> Iterator[int]:
    while True:
        yield 0
