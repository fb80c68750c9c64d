"""What cannot fit the DDR whatever the plan is: told before the search, not after it.

May import: alloc, graph_table, lower.transfer, machine, errors. Must not: place anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast.alloc import Buffer, Problem
from tx8fast.alloc.lower_bound import live_bytes
from tx8fast.errors import TooLargeError
from tx8fast.graph_table import GraphTable
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine

SHOWN = 3  # tensors that are named


_HELP = "a smaller batch, sequence or cache or a narrower dtype would help"


def intermediates_too_large(
    function: str, buffers: Sequence[Buffer], peak_bytes: int, capacity_bytes: int
) -> TooLargeError:
    """Return the error for values between the ops of a function that do not fit; buffers bear the names of their ops."""
    times, live = live_bytes(Problem(tuple(buffers)))
    worst = int(times[int(np.argmax(live))])
    alive = sorted((b for b in buffers if any(lo <= worst < hi for lo, hi in b.lifetimes)), key=lambda b: -b.size_bytes)
    where = "" if function == "main" else f" of '{function}'"
    return TooLargeError(
        f"placing the model in DDR: values between the ops{where} take {peak_bytes:,} bytes, one chip has {capacity_bytes:,}; "
        f"{len(alive)} of {len(buffers)} are needed at once, the largest: {_largest([(b.label, b.size_bytes) for b in alive])}; {_HELP}"
    )


def model_too_large(table: GraphTable, needed_bytes: int, values_bytes: int, capacity_bytes: int) -> TooLargeError:
    """Return the error for parameters, inputs, results and `values_bytes` between the ops that do not fit together."""
    named = [(n, size) for group in _named(table).values() for n, size in group.items()]
    return TooLargeError(
        f"placing the model in DDR: it needs {needed_bytes:,} bytes, {values_bytes:,} of them for values between the ops; one "
        f"chip has {capacity_bytes:,}; the largest weights, inputs and results: {_largest(named)}; {_HELP}"
    )


def _largest(named: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"'{n}' {size:,}" for n, size in sorted(named, key=lambda e: -e[1])[:SHOWN])


def _named(table: GraphTable) -> dict[str, dict[str, int]]:
    """Return the bytes of weights, inputs and results by name."""
    main = table.functions["main"]
    params = {(key, fn.values[v]) for fn in table.functions.values() for v, key in fn.params.items()}
    return {
        "weights": {
            key.removeprefix("%transposed/"): spec_bytes(spec) for key, spec in sorted(params, key=lambda p: p[0])
        },
        "inputs": {n: spec_bytes(main.values[v]) for n, v in zip(main.arg_names, main.args, strict=True)},
        "results": {
            n: spec_bytes(main.values[v])
            for i, (n, v) in enumerate(zip(main.result_names, main.results, strict=True))
            if i not in main.donated
        },
    }


def check_capacity(table: GraphTable, machine: Machine) -> None:
    """Raise TooLargeError if parameters, inputs and results alone exceed the chip's DDR."""
    sizes = _named(table)
    weights, inputs, results = (sum(named.values()) for named in sizes.values())
    if weights + inputs + results > machine.chip.ddr_bytes:
        everything = [(n, size) for named in sizes.values() for n, size in named.items()]
        raise TooLargeError(
            f"placing the model in DDR: weights take {weights:,} bytes, inputs {inputs:,} and results {results:,}; one "
            f"chip has {machine.chip.ddr_bytes:,}; the largest: {_largest(everything)}; {_HELP}"
        )
