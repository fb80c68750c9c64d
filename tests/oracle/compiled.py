"""Runs imported programs through the whole compiler and the functional simulator; keeps the list of cases that pass.

`python -m oracle.compiled` (with `tests` and the repository on the path) runs everything and rewrites
`expected_passes.txt`, which may only grow, and `docs/onnx-operators.md`.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx

from tests.oracle.onnx_cases import cases, run_case
from tx8fast.api import compile_ir
from tx8fast.frontend.onnx import supported_ops
from tx8fast.frontend.onnx.node import MAX_OPSET
from tx8fast.ir.program import IRProgram
from tx8fast.machine import Machine, load_machine
from tx8fast.options import CompileOptions

LIST = Path(__file__).parent / "expected_passes.txt"
DOCUMENT = Path(__file__).parents[2] / "docs" / "onnx-operators.md"


@lru_cache(maxsize=1)
def _machine() -> Machine:
    return load_machine("tx8")


def run_compiled(program: IRProgram, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Compile for tx8 in the model's own formats and execute bit by bit."""
    compiled = compile_ir(program, _machine(), CompileOptions())
    out = compiled.run({t.name: inputs[t.name] for t in compiled.program.inputs})
    return [out[t.name] for t in compiled.program.outputs]


def expected_passes() -> list[str]:
    return LIST.read_text(encoding="utf-8").split() if LIST.exists() else []


def refusals(passing: set[str]) -> list[tuple[str, str, str]]:
    """Return (name, status, reason) of every case outside `passing`."""
    rest = [c for c in cases() if c.name not in passing]
    return [(c.name, *run_case(c, run_compiled)) for c in rest]


def short_reason(status: str, reason: str) -> str:
    """What a refusal is about, without node names and advice."""
    if status == "skip":
        return f"out of scope: {reason}"
    if m := re.search(r"operator (\w+) \(domain '([\w.]+)'", reason):
        return f"operator {m[1]} is not supported"
    if m := re.search(r"(\w+) tensors are not supported", reason):
        return f"element type {m[1]} is not supported"
    reason = re.sub(r"^importing the model: ", "", reason)
    reason = re.sub(r"node '[^']*' \((\w+), operator set \d+\): ", r"\1: ", reason)
    reason = re.sub(r"; it is computed from .*|: bind them with constants", "", reason)
    return re.sub(r"\s+", " ", reason)[:140]


def document(passing: int, refused: list[tuple[str, str, str]]) -> str:
    """The page that lists operators and everything that does not pass."""
    reasons = Counter(short_reason(status, reason) for _, status, reason in refused)
    examples: dict[str, str] = {}
    for name, status, reason in refused:
        examples.setdefault(short_reason(status, reason), name)
    skipped = sum(status == "skip" for _, status, _ in refused)
    lines = [
        "# ONNX operators", "",
        "This page is written by `python -m oracle.compiled`; `make test` fails if it is out of date.", "",
        f"Operator sets 1 to {MAX_OPSET} are read. Of the {passing + len(refused)} operator tests of onnx {onnx.__version__},",
        f"{passing} are compiled, executed bit by bit on the functional simulator and equal the expected outputs;",
        f"{len(refused) - skipped} are refused with a reason; {skipped} are out of scope (strings, sequences, classic machine learning).",
        "No case gives another result.", "", "## What does not pass", "", "| cases | reason | for example |", "| ---: | --- | --- |",
    ]  # fmt: skip
    lines += [
        f"| {n} | {reason} | `{examples[reason]}` |"
        for reason, n in sorted(reasons.items(), key=lambda r: (-r[1], r[0]))
    ]
    table: dict[str, list[str]] = {}
    for (domain, op), ranges in sorted(supported_ops().items()):
        lows = min(low for low, _ in ranges)
        table.setdefault(domain or "ai.onnx", []).append(op if lows <= 1 else f"{op} ({lows}+)")
    lines += ["", "## Operators with their own importer", "",
              "Further operators are expanded by the function that ONNX defines them with. In brackets: the first operator set. Sequences of "
              "tensors exist", "while a model is imported: no input and no result of a model may be one.", ""]  # fmt: skip
    for domain, ops in table.items():
        lines += [f"`{domain}`: {', '.join(ops)}.", ""]
    lines += ["## Where implementations differ", "",
              "Resize with `align_corners` and scales that give no whole lengths divides by the length before it is cut to a whole number, as "
              "ONNX's own tests do;", "onnxruntime divides by the whole one. Give `sizes` instead of `scales`, and both are one.",
              "Scales that change no length, as 1.25 of three elements, are applied, as ONNX's reference does; onnxruntime passes its operand on.", "",
              "`auto_pad` SAME with a kernel smaller than its stride pads nothing and begins at the first element, as ONNX's own tests do; "
              "onnxruntime pads by less", "than nothing and begins further in.", ""]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    known = set(expected_passes())
    statuses = {c.name: run_case(c, run_compiled) for c in cases()}
    passing = {n for n, (status, _) in statuses.items() if status == "pass"}
    lost = sorted((known & set(statuses)) - passing)
    if lost:
        raise SystemExit("these cases passed before:\n" + "\n".join(f"{n}: {statuses[n]}" for n in lost))
    LIST.write_text("\n".join(sorted(known | passing)) + "\n", encoding="utf-8")
    refused = [(n, *s) for n, s in statuses.items() if n not in passing]
    DOCUMENT.write_text(document(len(passing), refused), encoding="utf-8")


if __name__ == "__main__":
    main()
