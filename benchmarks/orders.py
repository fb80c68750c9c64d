"""What the order of instructions decides: programs in every order, and per fused op how near its order is to what no order is below.

python benchmarks/orders.py [MODEL ...] prints two Markdown tables for models of the zoo, prefill of 512 and of 2048 tokens. The bound of a
fused op is what its busiest engine, the core or a tile's share of the DDR takes in any order of its instructions.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import tx8fast
import tx8fast.zoo
from tx8fast.cli.facts import order_records
from tx8fast.tile.schedule import ORDERS

MODELS = ("llama-3.2-1b", "llama-3.1-8b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2-9b", "phi-3-mini-4k")
SEQS = (512, 2048)


def fused_ops(name: str, seq: int, made: dict[str, Any]) -> list[tuple]:
    """Return rows of the second table: every loop nest with what one launch of it takes in each order, and how often it runs."""
    program = made["best"].program
    launches = Counter(program.segments[launch.segment].name for launch in program.launches)
    found = []
    for record in order_records(program, [""]):
        bound = record["order_bound_cycles"]
        took = {p: record[f"{p}_cycles"] for p in ("free", "stepped") if record[f"{p}_cycles"]}
        if took:
            found.append(
                (name, seq, record["op"], launches[record["name"]], bound, took.get("free"), took.get("stepped"))
            )
    return sorted(found, key=lambda row: -row[3] * (row[5] or row[6]))


def main() -> None:
    print("| model | tokens | " + " | ".join(ORDERS) + " | stepped : free | best : free |")
    print("|---|---|" + "---|" * (len(ORDERS) + 2))
    rows: list[tuple] = []
    for name in sys.argv[1:] or MODELS:
        for seq in SEQS:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(Path(tx8fast.zoo.__file__).parent / f"{name}.json", Path(folder) / "config.json")
                made = {order: tx8fast.compile(folder, phase="prefill", seq=seq, order=order) for order in ORDERS}
            cycles = {order: one.simulate().cycles for order, one in made.items()}
            ratios = [f"{cycles[order] / cycles['free']:.3f}" for order in ("stepped", "best")]
            print(
                "| " + " | ".join([name, str(seq), *(f"{n / 1e6:.2f} M" for n in cycles.values()), *ratios]) + " |",
                flush=True,
            )
            rows += fused_ops(name, seq, made)[:6]
    print("\n| model | tokens | fused op | launches | bound | free : bound | stepped : bound |")
    print("|---|---|---|---|---|---|---|")
    for name, seq, op, count, bound, *took in rows:
        cells = [f"{n / bound:.3f}" if n else "" for n in took]
        print(f"| {name} | {seq} | {op} | {count} | {bound:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
