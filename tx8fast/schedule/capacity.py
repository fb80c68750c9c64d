"""What cannot fit the DDR whatever the plan is: told before the search, not after it.

May import: graph_table, lower.transfer, machine, errors. Must not: place anything.
"""

from __future__ import annotations

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GraphTable
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine

SHOWN = 3  # tensors that are named


def check_capacity(table: GraphTable, machine: Machine) -> None:
    """Raise InfeasibleError if parameters, inputs and results alone exceed the chip's DDR."""
    main = table.functions["main"]
    params = {(key, fn.values[v]) for fn in table.functions.values() for v, key in fn.params.items()}
    sizes = {
        "weights": {key.removeprefix("%transposed/"): spec_bytes(spec) for key, spec in sorted(params, key=lambda p: p[0])},
        "inputs": {n: spec_bytes(main.values[v]) for n, v in zip(main.arg_names, main.args, strict=True)},
        "results": {n: spec_bytes(main.values[v]) for i, (n, v) in
                    enumerate(zip(main.result_names, main.results, strict=True)) if i not in main.donated},
    }  # fmt: skip
    weights, inputs, results = (sum(named.values()) for named in sizes.values())
    if weights + inputs + results > machine.chip.ddr_bytes:
        everything = [(n, size) for named in sizes.values() for n, size in named.items()]
        largest = ", ".join(f"'{n}' {size:,}" for n, size in sorted(everything, key=lambda e: -e[1])[:SHOWN])
        raise InfeasibleError(
            f"placing the model in DDR: weights take {weights:,} bytes, inputs {inputs:,} and results {results:,}; one "
            f"chip has {machine.chip.ddr_bytes:,}; the largest: {largest}; a smaller batch or cache, a narrower dtype or "
            "more chips (--tp N) would help"
        )
