"""What each mechanism of the back half is worth: the replay corpus compiled without it.

python benchmarks/ablations.py [MECHANISM ...] [--only PATTERN] [-j 2] prints a Markdown table: lines of the modules that would go, programs that take
over 0.5 % longer, the worst of them, and the sum of all. A mechanism that no program needs is one to remove.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.replay.cases import CASES  # noqa: E402
from tests.replay.record import SLOWER, measure  # noqa: E402
from tx8fast import lower  # noqa: E402
from tx8fast.lower import score_pieces, stream  # noqa: E402
from tx8fast.lower.base import NotLowerable  # noqa: E402
from tx8fast.schedule import assemble  # noqa: E402
from tx8fast.search import bands, borders, chained, chains, gathering, planning, program, streams  # noqa: E402


class Mechanism(NamedTuple):
    """modules: patterns below tx8fast/; off(): does without it in this process."""

    modules: str
    off: Callable[[], None]


def without(modules: Sequence[Any], function: str, instead: Callable) -> Callable[[], None]:
    """Return what replaces a function in modules."""

    def off() -> None:
        for module in modules:
            setattr(module, function, instead)

    return off


def refused(*families: type) -> Callable[[], None]:
    """Return what makes families of lowerings take nothing."""

    def refuse(self: object, *args: object, **how: object) -> None:
        raise NotLowerable("left out")

    return without(families, "__init__", refuse)


def no_sequences() -> None:
    refused(lower.SequenceStream)()
    without([streams, borders], "may_stream", NEVER)()


def no_variant(word: str) -> Callable[[], None]:
    made = lower._made
    keep = lambda family, record, machine, **how: [] if word in how else made(family, record, machine, **how)  # noqa: E731
    return without([lower], "_made", keep)


NEVER: Callable = lambda *given: False  # noqa: E731
MECHANISMS = {
    "sequences in scratchpad": Mechanism("lower/sequence.py lower/sequence_*.py", no_sequences),
    "images in scratchpad": Mechanism(
        "lower/stream.py lower/spread*.py lower/rounds.py lower/thin.py lower/intake.py lower/rows_read.py tile/stream_code*.py "
        "tile/spread_code.py search/stream*.py schedule/stream.py",
        refused(lower.ConvStream, lower.SpreadStream),
    ),
    "several tiles per image": Mechanism("lower/spread*.py tile/spread_code.py", refused(lower.SpreadStream)),
    "images in bands of rows": Mechanism("lower/conv_chain.py", refused(lower.ConvChain)),
    "launches side by side": Mechanism(
        "search/side_by_side.py", without([program], "run_side_by_side", lambda *given: None)
    ),
    "layers that begin elsewhere": Mechanism("search/turning.py", without([chained], "_turned", lambda *given: None)),
    "results delivered": Mechanism("search/delivering.py tile/deliveries.py", without([chains], "may_send", NEVER)),
    "results gathered": Mechanism(
        "search/gathering.py tile/gathers.py",
        without([chains, gathering], "may_gather", NEVER),
    ),
    "results that stay": Mechanism(
        "search/staying.py", without([chains], "with_stays", lambda path, holds, fit: [*path])
    ),
    "plans that wait less for banks": Mechanism(
        "search/bands.py lower/banded.py", without([planning], "undisturbed", lambda planned, *given: planned)
    ),
    "sums in bands": Mechanism("lower/banded.py", without([bands], "in_bands", lambda *given: None)),
    "rows from either end": Mechanism("", no_variant("folded")),
    "heads that fill blocks together": Mechanism("", no_variant("together")),
    "scores in pieces": Mechanism("lower/score_pieces.py", without([score_pieces], "pays", NEVER)),
    "rows that gathers step over": Mechanism("lower/thin.py", without([stream], "thinned", lambda record: record)),
    "launches that meet": Mechanism(
        "schedule/meeting.py schedule/ahead.py",
        without([assemble], "joined_launches", lambda table, plans, machine: (table, plans)),
    ),
}


def lines_of(modules: str) -> int:
    paths = {p for pattern in modules.split() for p in (ROOT / "tx8fast").glob(pattern)}
    return sum(len(p.read_text().splitlines()) for p in paths)


def cycles(job: tuple[str, str]) -> int:
    """Return the cycles of a case without a mechanism; a process each, since it changes modules."""
    mechanism, case = job
    if mechanism:
        MECHANISMS[mechanism].off()
    return measure(case, 2)["cycles"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compile the replay corpus without single mechanisms.")
    parser.add_argument("mechanisms", nargs="*", choices=[*MECHANISMS, []], help="which (default: each)")
    parser.add_argument("--only", default="*", help="pattern of case names")
    parser.add_argument("-j", type=int, default=1, help="processes")
    asked = parser.parse_args(arguments)
    names = [n for n in CASES if fnmatch.fnmatch(n, asked.only)]
    print("| without | lines | programs over 0.5 % slower | worst | all together |\n|---|---|---|---|---|")
    with ProcessPoolExecutor(asked.j, max_tasks_per_child=1) as pool:
        known = dict(zip(names, pool.map(cycles, [("", n) for n in names]), strict=True))
        for name in asked.mechanisms or MECHANISMS:
            found = dict(zip(names, pool.map(cycles, [(name, n) for n in names]), strict=True))
            slower = [n for n in names if found[n] > SLOWER * known[n]]
            worst = max(names, key=lambda n: found[n] / known[n])
            factor = found[worst] / known[worst]
            text = f"{worst} x{factor:.3f}" if factor > 1 else "none"
            total = sum(found.values()) / sum(known.values())
            print(
                f"| {name} | {lines_of(MECHANISMS[name].modules) or '-'} | {len(slower)} | {text} | x{total:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
