"""The demonstration behind `make demo`: compile, execute and check a small model, then time Llama 3 8B.

May import: the public API, cli, demo_model, numpy, rich. Must not: reach into the compiler. Writes only below the
output directory. Exit code 1 if a simulated result misses the tolerance.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tx8fast
from tx8fast.cli import COLLECT_EVERY
from tx8fast.demo_model import LLAMA_3_8B, SMALL, Arrays, decoder, write_checkpoint, write_config

SEQ = PAST = 64
LARGE_SEQ = 2048
PIPE_WIDTH = 120
REPORT = "llama-3-8b-prefill.html"
#: largest accepted error relative to the largest reference value: four layers rounded to 8 significant bits
TOLERANCE = 0.05


def main(argv: list[str] | None = None) -> int:
    """Run the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tx8fast.demo", description="Compile, execute, check, time.")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="directory to write to")
    parser.add_argument("--no-large", action="store_true", help="skip Llama 3 8B")
    options = parser.parse_args(argv)
    if argv is None:  # a process of its own, as the command line's are
        gc.set_threshold(COLLECT_EVERY)
    # a pipe has no width; the usual 80 columns would cut figures off
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    ok = check_small(options.out, console)
    if not options.no_large:
        time_large(options.out, console)
        console.print(f"report of the prefill: {options.out / REPORT}")
    console.print(f"files are in {options.out}")
    return 0 if ok else 1


def check_small(out: Path, console: Console) -> bool:
    """Compile and execute prefill and decode of the small model; print errors; return whether all pass."""
    directory = out / "small"
    weights = write_checkpoint(directory, SMALL)
    ids = np.random.default_rng(1).integers(0, SMALL["vocab_size"], (1, SEQ))
    table = Table(
        "phase",
        "result",
        "largest error",
        "largest value",
        "relative",
        "verdict",
        title=f"4-layer Llama-class model in {directory}, executed instruction by instruction",
    )

    prefill = tx8fast.compile(directory, phase="prefill", seq=SEQ)
    found = prefill.run({"input_ids": ids})
    wanted = decoder(SMALL, weights, ids)
    ok = _compare(table, "prefill", found, wanted)
    prefill.save(out / "small-prefill.tx8")

    decode = tx8fast.compile(directory, phase="decode", past=PAST)
    inputs: Arrays = {"input_ids": ids[:, -1:], "position": np.array([SEQ - 1])}
    inputs |= {n.replace("present", "past"): a for n, a in found.items() if n.startswith("present")}
    past = {n: np.asarray(a, np.float32) for n, a in inputs.items() if n.startswith("past")}
    found = decode.run(inputs)
    ok &= _compare(table, "decode", found, decoder(SMALL, weights, ids[:, -1:], past, SEQ - 1))
    decode.save(out / "small-decode.tx8")
    console.print(table)
    return ok


def _compare(table: Table, phase: str, found: Arrays, wanted: Arrays) -> bool:
    """Add a row for the logits and one for the worst of the caches; return whether both pass."""
    worst: dict[str, tuple[float, float, float]] = {}
    for name, w in wanted.items():
        difference = np.abs(np.asarray(found[name], np.float32) - w)
        error = float(difference.max()) if np.isfinite(difference).all() else float("inf")
        scale = float(np.abs(w).max())
        row = "logits" if name == "logits" else "KV cache (worst)"
        worst[row] = max(worst.get(row, (-1.0, 0.0, 0.0)), (error / scale, error, scale))
    ok = True
    for row, (relative, error, scale) in worst.items():
        good = relative <= TOLERANCE
        ok &= good
        verdict = "[green]ok" if good else f"[red]above {TOLERANCE:.0%}"
        table.add_row(phase, row, f"{error:.4f}", f"{scale:.3f}", f"{relative:.2%}", verdict)
    return ok


def time_large(out: Path, console: Console) -> None:
    """Compile Llama 3 8B from its config alone, simulate it cycle by cycle and print the figures."""
    path = write_config(out / "llama-3-8b", LLAMA_3_8B)
    table = Table(
        "phase",
        "compiled in",
        "cycles",
        "time",
        "tokens/s",
        "matrix engine",
        "DDR",
        "bound",
        "roofline ratio",
        title="Llama 3 8B, bfloat16, one chip, simulated",
    )
    cases: list[tuple[str, int, dict[str, Any]]] = [
        (f"prefill {LARGE_SEQ}", LARGE_SEQ, {"phase": "prefill", "seq": LARGE_SEQ}),
        (f"decode, cache {LARGE_SEQ}", 1, {"phase": "decode", "past": LARGE_SEQ}),
    ]
    for name, tokens, options in cases:
        start = time.perf_counter()
        program = tx8fast.compile(path, **options)
        compile_seconds = time.perf_counter() - start
        saved = out / f"llama-3-8b-{options['phase']}.tx8"
        program.save(saved)
        r = program.simulate()
        if options["phase"] == "prefill":
            write_report(saved, out / REPORT)
        used = r.utilisation
        table.add_row(
            name,
            f"{compile_seconds:.2f} s",
            f"{r.cycles:,}",
            f"{r.seconds * 1e3:,.2f} ms",
            f"{tokens / r.seconds:,.1f}",
            f"{used['ne']:.1%}",
            f"{used['ddr']:.1%}",
            r.roofline.bound,
            f"{r.roofline_ratio:.3f}",
        )
    console.print(table)


def write_report(program: Path, page: Path) -> None:
    """Write the report as the command line does."""
    from tx8fast.cli.app import cli

    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["report", str(program), "-o", str(page)], standalone_mode=False)


if __name__ == "__main__":
    sys.exit(main())
