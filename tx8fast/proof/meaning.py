"""The table of meanings: one function per opcode, and what fields it does not read must hold.

May import: numpy, isa (field names), proof.tile, proof.stacks. Must not: hold a meaning itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast.proof.forms import NAMES
from tx8fast.proof.stacks import Stacks
from tx8fast.proof.tile import Tile


class Row(NamedTuple):
    """One row: format name, scratchpad addresses and parameters by position, absolute DDR address."""

    fmt: str
    spm: list[int]
    p: list[int]
    ddr: int


Meaning = Callable[[Tile, Row], None]
#: rows that several tiles have reached, one each
Rows = Sequence[tuple[Tile, Row]]
#: opcode -> (meaning, name of field -> value it must hold)
MEANINGS: dict[int, tuple[Meaning, Mapping[str, int]]] = {}
#: what makes ready the rows that several tiles have reached, and returns what executes each of them, one tile after the other
Together = Callable[[Stacks, Rows], list[Callable[[], None]]]
#: opcode -> how its rows are made ready; each alone by its meaning does the same
TOGETHER: dict[int, Together] = {}
#: rows without a meaning for values: they only order what others do
ORDER = frozenset({"wait", "wait_worker", "fence", "send_wait"})
#: rows at which a tile may have to wait for another
STOPS = frozenset({"barrier", "recv", "barrier_sub", "handshake"})

#: fields that are 0 or 1
FLAGS = frozenset({"l_trs", "r_trs", "psum_en", "bias_en", "inverse"})


def meaning(*names: str, **demands: int) -> Callable[[Meaning], Meaning]:
    """Enter a function as the meaning of rows of these names; `demands`: fields it does not read and the value they must hold."""

    def enter(f: Meaning) -> Meaning:
        for name in names:
            MEANINGS[isa.instruction(name).OPCODE] = f, demands
        return f

    return enter


def together(name: str) -> Callable[[Together], Together]:
    """Enter a function as what makes rows of this name ready for several tiles at once."""

    def enter(f: Together) -> Together:
        TOGETHER[isa.instruction(name).OPCODE] = f
        return f

    return enter


def row_problems(rows: np.ndarray, where: str) -> list[str]:
    """Return one line per opcode without a meaning, or with a field that its meaning does not read and that holds a value."""
    problems = []
    for opcode in np.unique(rows["opcode"]).tolist():
        own = rows[rows["opcode"] == opcode]
        cls = isa.class_of(opcode)
        if cls.NAME in ORDER or cls.NAME in STOPS:
            continue
        if opcode not in MEANINGS:
            problems.append(f"{where}: {len(own)} rows '{cls.NAME}' have no meaning in the proof")
            continue
        spare = [("p", k) for k in range(len(cls.FIELDS_P), own["p"].shape[1])]
        spare += [("spm", k) for k in range(len(cls.FIELDS_SPM), own["spm"].shape[1])]
        bad = [f"{kind}[{k}]" for kind, k in spare if own[kind][:, k].any()]
        for name, value in MEANINGS[opcode][1].items():
            column = (
                own["spm"][:, cls.FIELDS_SPM.index(name)]
                if name in cls.FIELDS_SPM
                else own["p"][:, cls.FIELDS_P.index(name)]
            )
            if (column != value).any():
                bad.append(name)
        if own["rnd"].any():  # to nearest even is what all else takes rounding to be
            bad.append("rnd")
        for name in FLAGS & set(cls.FIELDS_P):
            if not np.isin(own["p"][:, cls.FIELDS_P.index(name)], (0, 1)).all():
                bad.append(name)
        if bad:
            problems.append(
                f"{where}: rows '{cls.NAME}' set {', '.join(sorted(bad))}, which the proof has no meaning for"
            )
        unknown = sorted(set(np.unique(own["fmt"]).tolist()) - set(NAMES))
        if unknown:
            problems.append(f"{where}: rows '{cls.NAME}' have format codes {unknown}, which the proof does not know")
    return problems


def known(opcode: int) -> Meaning | None:
    """Return the meaning of an opcode, None for rows that only order."""
    found = MEANINGS.get(opcode)
    return found[0] if found else None
