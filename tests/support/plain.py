"""The chip as the hardware manual's cost formulas have it: nothing gets in the way of anything, and the core's small costs are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tx8fast.machine import Machine, load_machine
from tx8fast.machine.tags import Value, changed
from tx8fast.program.model import Program

#: keys of a machine without conflicts over banks and ports, and with the manual's example of a start-up (16.3)
PLAIN: Mapping[str, Value] = {
    "tile.spm_model": 1, "tile.spm_fifo_beats": 16, "dte.write_port_bytes": 0, "tdma.beside_ct_percent": 100, "ne.startup": 60,
    "kcore.recv_cycles": 0, "kcore.send_wait_cycles": 0, "kcore.loop_cycles": 0, "kcore.launch_cycles": 0,
}  # fmt: skip


def plain_machine(**keys: Value) -> Machine:
    """Return that chip, with other values of dotted keys."""
    return load_machine("tx8", {**PLAIN, **keys})


def on_plain(program: Program, **keys: Value) -> Program:
    """Return a program as it would run on its own machine without conflicts and the core's small costs."""
    return replace(program, machine=changed(Machine.from_dict(program.machine), {**PLAIN, **keys}).to_dict())
