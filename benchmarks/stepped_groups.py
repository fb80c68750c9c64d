"""What a common clock of steps would cost: groups of a Llama-class layer with free queues and in time steps.

`python benchmarks/stepped_groups.py [SEQ ...]` compiles one layer without shared operands and prints a Markdown table. Both figures are for
one tile of the same plan with the same instructions. "free": as the search times it, queues run on their own. "steps": consecutive
instructions of one engine are an op; `schedule/steps` puts loads one step ahead and stores one behind, in three stages, "balanced"
also moves them to steps with room. Steps begin together and cost nothing to begin. Attention is left out:
its slices differ under the mask.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

from tx8fast import isa
from tx8fast.api import lower_graph
from tx8fast.frontend import open_model
from tx8fast.lower.base import Access, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.machine import Machine, load_machine
from tx8fast.options import CompileOptions
from tx8fast.schedule.steps.assign import assign
from tx8fast.schedule.steps.balance import balance
from tx8fast.schedule.steps.cost import group_cycles
from tx8fast.schedule.steps.table import LOAD, Move, Row, StepOp, Table
from tx8fast.search.program import plan_table
from tx8fast.tile.tiling import Plan, Tiling

SPACE = 1 << 24  # bytes of scratchpad addresses per buffer, apart from all others
LAYER = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1024, "rope_theta": 5e5, "hidden_act": "silu",
         "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip


def transfer_cycles(access: Access, plan: Plan, machine: Machine, name: str, tiles: int) -> int:
    """Cycles of one slice's transfer on one of `tiles` tiles that share the DDR."""
    total = 0.0
    for d in access.transfers((0,) * len(plan.shard), plan.slices):
        loops = [*d.loops, *((0, 1),) * (3 - len(d.loops))]
        fields = {f"{x}{i}": v for i, (s, n) in enumerate(loops) for x, v in (("s", s), ("n", n))}
        at = {"dst" if name == "rdma" else "src": 0}
        rows = isa.rows([isa.make(name, run_bytes=d.run_bytes, slot=0, ddr=0, **fields, **at)])
        fixed, moved = isa.durations(machine, rows, np.zeros(1, np.int64))
        total += int(fixed[0]) + float(moved[0]) * tiles / machine.ddr_bytes_per_cycle
    return math.ceil(total)


def stepped_group(tiling: Tiling, machine: Machine) -> tuple[Table, Table, int]:
    """Return the table of one slice, the balanced one, and the number of slices."""
    low, plan = tiling.low, tiling.plan
    lo, hi = (0,) * len(plan.shard), plan.slices
    names = [f"r{k}" for k in range(len(low.reads))] + [f"w{k}" for k in range(len(low.writes))]
    names += [f"s{k}" for k in range(len(low.scratch_bytes(lo, hi)))] + [f"c{k}" for k in range(len(low.const_bytes()))]
    at = {name: k * SPACE for k, name in enumerate([*names, "acc"])}
    pick = lambda letter: [a for n, a in at.items() if n[0] == letter and n != "acc"]  # noqa: E731
    em = Emitter()
    low.emit(em, Slice(lo, hi, pick("r"), pick("w"), pick("s"), pick("c"), at["acc"]))
    rows = isa.rows(em.rows)
    cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
    spans, units = isa.ranges(rows, np.zeros(len(rows), np.int64)), isa.units(rows)
    label = [*names, "acc"]

    def touched(ranges: np.ndarray) -> set[str]:
        used = ranges.reshape(-1, 2)
        return {label[int(a) // SPACE] for a, b in used if b > a}

    ops: list[StepOp] = []
    stays = {n for n in at if n[0] in "c"} | {"acc"}
    for _, run in itertools.groupby(range(len(rows)), key=lambda i: int(units[i])):
        mine = list(run)
        reads, writes = touched(spans["spm_read"][mine]) - stays, touched(spans["spm_write"][mine]) - stays
        ops.append(
            StepOp(f"op{len(ops)}", tuple(sorted(reads - writes)), tuple(sorted(writes)), int(cycles[mine].sum()))
        )
    tiles, slices = math.prod(tiling.pieces), math.prod(tiling.trips)
    accesses = dict(zip(names, tiling.accesses, strict=False))

    def transfer(kind: str, value: str) -> Move:
        access = accesses[value]
        name = "rdma" if kind == LOAD else "wdma"
        often = tiling.fills(access.factors)
        one = transfer_cycles(access, plan, machine, name, tiles)
        return Move(
            kind, value, one if often == 1 else one * often // slices, engine=name, held=often == 1 and kind == LOAD
        )

    written = {v for op in ops for v in op.writes}
    known = [
        StepOp(o.name, tuple(v for v in o.reads if v in written or v in accesses), o.writes, o.cycles) for o in ops
    ]
    table = assign(known, {v for v in written if v[0] == "w"}, transfer)
    if table.stages == 1:  # one op: its transfers go beside it, for the next slice and the one before
        first, body, last = (*((Row(),) if table.rows[0].ops else ()), *table.rows)
        moves = [Move(m.kind, m.value, m.cycles, 0, m.engine, 0 if m.kind == LOAD else 2, m.held)
                 for m in (*first.moves, *last.moves)]  # fmt: skip
        table = Table((Row(body.ops, tuple(moves)),), 3)
    return table, balance(table, slices > 1), slices


def main() -> None:
    machine = load_machine("tx8")
    print("| tokens | group | slices | steps | free | steps : free | balanced : free |")
    print("|---|---|---|---|---|---|---|")
    for seq in map(int, sys.argv[1:] or ["512", "2048"]):
        options = CompileOptions(phase="prefill", seq=seq, sharing=False)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(LAYER))
            table = lower_graph(open_model(folder, **options.import_options()), options).table
        for record, p in plan_table(table, machine, None, 2, False).items():
            if p.reason or math.prod(p.tiling.trips) < 2 or "softmax" in record.kind.split("+"):
                continue
            plain, moved, slices = stepped_group(p.tiling, machine)
            free = p.plan.estimate_cycles
            ratios = [group_cycles(t, slices) / free for t in (plain, moved)]
            cells = [seq, record.kind, slices, len(plain.rows), f"{free:,}", *(f"{r:.2f}" for r in ratios)]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
