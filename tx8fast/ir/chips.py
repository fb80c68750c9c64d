"""Which chips run a program together, and whether its collectives fit them.

May import: collectives, ir.core, ir.program, errors. Must not: know ring orders or links.
"""

from __future__ import annotations

from tx8fast.collectives import MAX_CHIPS
from tx8fast.errors import ConfigError, raise_all
from tx8fast.ir.core import COLLECTIVE, Op
from tx8fast.ir.program import IRProgram

SHOWN = 8


def bind_chips(program: IRProgram, chips: tuple[int, int] | None) -> None:
    """Set the chip grid of a program: `chips`, or what its module says.

    Raises ConfigError if that is another number of chips than the model was made for, or if a collective names a chip that
    is not there, leaves one out, or has groups of another size than its shapes; all such ops together.
    """
    made_for = program.chips[0] * program.chips[1]
    if chips is not None:
        if made_for not in (1, chips[0] * chips[1]):
            raise ConfigError(
                f"placing model '{program.name}' on {chips[0]} x {chips[1]} chips: it was made for {made_for} devices; give a grid of "
                f"{made_for} chips"
            )
        program.module.attrs["chip_x"], program.module.attrs["chip_y"] = chips
    n = program.chips[0] * program.chips[1]
    if n > MAX_CHIPS:
        raise ConfigError(f"placing model '{program.name}' on {n} chips: at most {MAX_CHIPS} run one program together")
    problems = [text for op in program.module.walk() if op.has(COLLECTIVE) for text in _problems(op, n)]
    raise_all(ConfigError, f"placing model '{program.name}' on {n} chip{'s' * (n > 1)}", problems)


def _problems(op: Op, n: int) -> list[str]:
    what = f"{op.kind} '{op.loc or ''}'"
    if op.kind == "permute":
        named = set(op.attrs["pairs"])
    else:
        named = {c for c in op.attrs["groups"] if c >= 0}
        parts = op.attrs["parts"]
        if not op.attrs["groups"] and op.kind not in ("all_reduce", "broadcast_dev") and parts != n:
            return [f"{what}: its shapes are those of {parts} chips; found {n}"]
        if op.kind == "broadcast_dev" and not 0 <= op.attrs["root"] < (parts if op.attrs["groups"] else n):
            return [f"{what}: root {op.attrs['root']} is outside its groups"]
    found = []
    if beyond := sorted(c for c in named if c >= n):
        found.append(f"{what} names chip {_listed(beyond)}; there are chips 0 to {n - 1}, --chips gives more")
    absent = sorted(set(range(n)) - named)
    if op.kind != "permute" and op.attrs["groups"] and absent:
        found.append(f"{what}: chip {_listed(absent)} is in none of its groups; every chip must be in one")
    return found


def _listed(chips: list[int]) -> str:
    return ", ".join(map(str, chips[:SHOWN])) + (f" and {len(chips) - SHOWN} more" if len(chips) > SHOWN else "")
