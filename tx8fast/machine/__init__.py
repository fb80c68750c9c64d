"""The machine model: sizes, rates and costs of one chip, its tile grid, and grids of chips.

May import: numpy, tx8fast.errors. Must not: know instructions, programs or the IR.
"""

from tx8fast.machine.chips import ChipGrid, chip_grid
from tx8fast.machine.config import DDR_BASE, QUEUE_DEPTH, SPM_BASE, Machine, load_machine
from tx8fast.machine.topology import Topology, topology

__all__ = [
    "DDR_BASE",
    "QUEUE_DEPTH",
    "SPM_BASE",
    "ChipGrid",
    "Machine",
    "Topology",
    "chip_grid",
    "load_machine",
    "topology",
]
