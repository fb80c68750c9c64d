"""What a model needs of a chip whatever program is made of it: multiplications, DDR traffic, the format of its matrix work.

May import: graph_table, lower.lookup, lower.transfer. Must not: know plans; the bound must not depend on them.

`check`, `compile` and `sim` state the roofline bound of these figures (`simulator.roofline`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tx8fast.graph_table import FunctionTable, GraphTable, GroupRecord, OpRecord, Record, Step, TensorSpec
from tx8fast.lower.lookup import bytes_read
from tx8fast.lower.transfer import spec_bytes


def demand(table: GraphTable, describe: Callable[[str], Mapping[str, Any]], dtype: str | None) -> dict[str, Any]:
    """Return useful_macs, unique_ddr_bytes and compute_dtype of one run on one chip.

    table: the graph before groups are formed, or after it. describe: the source of a parameter by its key. dtype: the format
    asked for; None means that of the largest parameter of a float type, bf16 where there is none.
    Bytes are those that must cross the DDR once: of every weight what is read of it, a constant that comes from no weight
    not at all; inputs; outputs; of an updated cache its new rows alone.
    """
    times = instances(table)
    main = table.functions["main"]
    macs = 0
    total = sum(_dense(main.values[v]) for v in main.args)
    total += sum(_dense(main.values[v]) for i, v in enumerate(main.results) if i not in main.donated)
    reads: dict[str, int] = {}
    for name, fn in table.functions.items():
        for step in fn.steps:
            if step.kind == "group" and not step.is_empty and step.record is not None:
                macs += times[name] * step.record.useful_macs
                total += times[name] * sum(_new_rows(op) for op in _ops(step.record))
            for key, n_bytes in _param_reads(fn, step) if times[name] else ():
                reads[key] = max(n_bytes, reads.get(key, 0))
    stored = (n_bytes for key, n_bytes in reads.items() if not _made_of_nothing(describe(key)))
    return {
        "useful_macs": macs,
        "unique_ddr_bytes": total + sum(stored),
        "compute_dtype": dtype or _largest_float(table),
    }


def instances(table: GraphTable) -> dict[str, int]:
    """Return how often each function is executed by one run of main."""
    times = dict.fromkeys(table.functions, 0)

    def visit(name: str) -> None:
        times[name] += 1
        for step in table.functions[name].steps:
            if step.kind == "call":
                visit(step.callee)

    visit("main")
    return times


def _ops(record: Record) -> Iterator[OpRecord]:
    if isinstance(record, OpRecord):
        yield record
        return
    for part in record.ops if isinstance(record, GroupRecord) else record.parts:
        yield from _ops(part)


def _new_rows(op: OpRecord) -> int:
    new = op.operands[1] if op.kind == "kv_update" else None
    return _dense(new) if new is not None else 0


def _param_reads(fn: FunctionTable, step: Step) -> Iterator[tuple[str, int]]:
    """Yield (key, bytes) of the parameters a step reads; of a table only what it is asked for."""
    if step.kind == "alias" or (step.kind == "group" and step.is_empty):
        return
    for k, v in enumerate(step.inputs):
        if v in fn.params:
            n_bytes = _dense(fn.values[v])
            yield fn.params[v], n_bytes if step.record is None else min(n_bytes, bytes_read(step.record, k))


def _made_of_nothing(source: Mapping[str, Any]) -> bool:
    return source.get("kind") == "derived" and not source.get("inputs")


def _largest_float(table: GraphTable) -> str:
    specs = [fn.values[v] for fn in table.functions.values() for v in fn.params]
    floats = [s for s in specs if s.dtype in ("bf16", "f16", "f32")]
    return max(floats, key=spec_bytes).dtype if floats else "bf16"


def _dense(spec: TensorSpec) -> int:
    return spec_bytes(TensorSpec(spec.shape, spec.dtype, "dense"))
