"""What cannot fit the DDR whatever the plan is: told before the search, not after it.

May import: graph_table, lower.transfer, machine, errors. Must not: place anything.
"""

from __future__ import annotations

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GraphTable
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine


def check_capacity(table: GraphTable, machine: Machine) -> None:
    """Raise InfeasibleError if parameters, inputs and results alone exceed the chip's DDR."""
    main = table.functions["main"]
    params = {(key, fn.values[v]) for fn in table.functions.values() for v, key in fn.params.items()}
    weights = sum(spec_bytes(spec) for _, spec in params)
    inputs = sum(spec_bytes(main.values[v]) for v in main.args)
    results = sum(spec_bytes(main.values[v]) for i, v in enumerate(main.results) if i not in main.donated)
    if weights + inputs + results > machine.chip.ddr_bytes:
        raise InfeasibleError(
            f"placing the model in DDR: weights take {weights:,} bytes, inputs {inputs:,} and results {results:,}; one "
            f"chip has {machine.chip.ddr_bytes:,}; a smaller batch or cache, a narrower dtype or more chips would help"
        )
