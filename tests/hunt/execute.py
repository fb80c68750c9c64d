"""One model through the product: import, compile, verify, run with the sanitizer; every failure is given a name."""

from __future__ import annotations

import hashlib
import json
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from hunt.eager import eager_plans
from onnx import ModelProto

from tx8fast.api import CompiledProgram, compile_ir, prove_ir
from tx8fast.errors import ConfigError, InfeasibleError, SimulationError, Tx8Error, UnsupportedError
from tx8fast.frontend import open_model
from tx8fast.frontend.onnx import import_model
from tx8fast.graph_table import ChainRecord, GroupRecord
from tx8fast.ir.program import IRProgram
from tx8fast.machine import Machine, load_machine
from tx8fast.options import CompileOptions
from tx8fast.program import io
from tx8fast.program.verify import verify
from tx8fast.proof.report import Report
from tx8fast.search.legal import plan_problems

#: scratchpad of the small machine, bytes per tile: rounds, spills and refusals at sizes that execute at once
SMALL_BYTES = 131072 + 49152
#: the machine; with a small scratchpad; a chip of four tiles, which executes in a quarter of the time
MACHINES = {"": ("tx8", None), "small": ("tx8", {"tile.spm_bytes": SMALL_BYTES}), "2x2": ("test_2x2", None)}


#: what a stage raises for what it does not support
REFUSALS: dict[str, tuple[type[Exception], ...]] = {
    "import": (UnsupportedError, InfeasibleError, ConfigError),
    "compile": (UnsupportedError, InfeasibleError, ConfigError),
    "prove": (SimulationError,),  # two constants that are one in the program's format
}


@dataclass(frozen=True)
class Setting:
    """How a model is compiled. dtype "": the model's own; machine_name: of `MACHINES`; eager: see `eager_plans`; tp: chips that share it."""

    level: int = 2
    sharing: bool = True
    dtype: str = ""
    machine_name: str = ""
    eager: bool = False
    tp: int = 1

    def __str__(self) -> str:
        words = [f"--opt {self.level}"]
        words += [] if self.sharing else ["--no-sharing"]
        words += [f"--dtype {self.dtype}"] if self.dtype else []
        words += [f"--tp {self.tp}"] if self.tp > 1 else []
        words += [f"(machine {self.machine_name})"] if self.machine_name else []
        return " ".join([*words, *(["(eager)"] if self.eager else [])])

    @property
    def options(self) -> CompileOptions:
        return CompileOptions(opt=self.level, sharing=self.sharing, dtype=self.dtype or None)

    @property
    def machine(self) -> Machine:
        return machine(self.machine_name)


@cache
def machine(name: str) -> Machine:
    return load_machine(*MACHINES[name])


@dataclass(frozen=True)
class Failure:
    """What went wrong: in which stage, of which kind (the same for one cause), and in full."""

    stage: str
    kind: str
    text: str = field(compare=False)

    @property
    def bucket(self) -> str:
        return f"{self.stage}: {self.kind}"


class Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Refused(Exception):
    """The product says that it does not support the model; `kind` without names and numbers."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def imported(model: ModelProto, setting: Setting) -> IRProgram:
    ir = import_model(model)
    ir.parts = setting.tp
    return ir


def compiled(model: ModelProto, setting: Setting) -> CompiledProgram:
    """Compile and verify. Raises Failed, or Refused."""
    with _stage("import"):
        ir = imported(model, setting)
    with _stage("compile"), eager_plans() if setting.eager else nullcontext():
        program = compile_ir(ir, setting.machine, setting.options)
        wrong = _illegal(program, setting.machine)
    with _stage("verify"):
        verify(program.program)
        if wrong:
            raise AssertionError(f"a plan that may not be: {wrong[0]}")
    return program


def _illegal(program: CompiledProgram, machine: Machine) -> list[str]:
    """Return what is wrong with the plans that were chosen, by the rules for plans from outside."""
    plans = [] if program.searched is None else [n for p in program.searched.plans.values() for n in p.nests or (p,)]
    nests = [p for p in plans if p.plan.bound != "stream"]  # streams are no loop nests, and none comes from outside
    return [f"{type(p.low).__name__} {p.plan}: {text}" for p in nests for text in plan_problems(p.tiling, machine)]


def compiled_file(path: Path, setting: Setting) -> CompiledProgram:
    """Compile a model in a file so that no weight is stored in the program. Raises Failed, or Refused."""
    options = replace(setting.options, embed_limit_bytes=0)
    with _stage("import"):
        ir = open_model(path, **options.import_options())
    with _stage("compile"):
        return compile_ir(ir, setting.machine, options, path.parent)


def run(program: CompiledProgram, feeds: dict[str, np.ndarray], sanitize: bool = True) -> dict[str, np.ndarray]:
    """Execute; returns outputs by name, narrow floats in f32. Raises Failed."""
    with _stage("run"):
        found = program.run({t.name: feeds[t.name] for t in program.program.inputs}, sanitize=sanitize)
    narrow = ("bfloat16", "float16")
    return {k: a.astype(np.float32) if a.dtype.name in narrow else a for k, a in found.items()}


def proof(model: ModelProto, program: CompiledProgram, setting: Setting) -> Report:
    """Prove one seed. Raises Failed, or Refused where the proof says that it cannot tell."""
    with _stage("prove"):
        return prove_ir(program.program, imported(model, setting), setting.options, quick=True)


def digest(program: CompiledProgram, names: bool = True) -> str:
    """A number for the bytes of the program file; without `names`, for code, addresses, shapes and data alone."""
    body = io.body_of(program.program)
    if not names:
        for s in body["segments"]:
            del s["name"], s["ops"], s["info"]
        for launch in body["launches"]:
            del launch[0]
        del body["meta"]
    h = hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode())
    for _, chunks in io.arrays_of(program.program):
        for chunk in chunks:
            h.update(chunk)
    h.update(program.program.data)
    return h.hexdigest()


def grouped_pairs(program: CompiledProgram) -> Iterator[tuple[str, str]]:
    """Yield (producer kind, consumer kind) of ops of the graph that share a group."""
    assert program.searched is not None
    for fn in program.searched.table.functions.values():
        for step in fn.steps:
            parts = step.record.parts if isinstance(step.record, ChainRecord) else [step.record]
            for record in parts:
                if isinstance(record, GroupRecord):
                    for i, wires in enumerate(record.wires):
                        yield from ((record.ops[w[1]].kind, record.ops[i].kind) for w in wires if w and w[0] == "op")


class _stage:
    """Turns whatever a stage raises into Failed or Refused."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.quiet = warnings.catch_warnings()
        self.quiet.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, kind, error, trace) -> None:
        self.quiet.__exit__(kind, error, trace)
        if error is None or not isinstance(error, Exception):
            return
        if isinstance(error, REFUSALS.get(self.name, ())):
            raise Refused(f"{type(error).__name__}: {general(str(error))}") from error
        if findings := getattr(error, "findings", None):
            kinds = ", ".join(sorted({f.kind for f in findings}))
            raise Failed(Failure("sanitizer", kinds, str(error))) from error
        if isinstance(error, Tx8Error):
            raise Failed(Failure(self.name, f"{type(error).__name__} {general(str(error))}", str(error))) from error
        frames = [f for f in traceback.extract_tb(trace) if "tx8fast" in f.filename and "tests" not in f.filename]
        place = f" in {_module(frames[-1].filename)}:{frames[-1].name}" if frames else ""
        text = "".join(traceback.format_exception(error))
        raise Failed(Failure(self.name, f"{type(error).__name__}{place}", text)) from error


def _module(path: str) -> str:
    return path.replace("\\", "/").rpartition("tx8fast/")[2].removesuffix(".py")


def general(text: str) -> str:
    """Return a message without names, numbers and shapes: the same for one cause."""
    lines = [line for line in text.splitlines() if line.strip()]
    line = lines[min(1, len(lines) - 1)] if lines else ""
    line = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)", "_", line)
    return re.sub(r"\s+", " ", re.sub(r"[-\d.,]+", "#", line)).strip()[:140]
