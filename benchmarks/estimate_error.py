"""What the search expects of every group beside what the cycle simulator finds, over the corpus.

python benchmarks/estimate_error.py [words of case names] [--groups] [--candidates N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.estimates import Compiled, rank_correlation  # noqa: E402
from support.model_corpus import CASES, write  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--groups", action="store_true", help="print every group")
    parser.add_argument(
        "--candidates", type=int, default=0, metavar="N", help="simulate N further plans of every group"
    )
    given = parser.parse_args()
    errors, ranks = [], []
    print(
        "| case | groups | median error | 95 % below | worst | estimate / simulation of the whole | rank correlation |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, options) in CASES.items():
            if given.names and not any(n in name for n in given.names):
                continue
            made = Compiled(write(model, Path(folder) / model), **options)
            groups = made.groups()
            off = [g.error for g in groups]
            errors += off
            whole = [sum(x * g.launches for g, x in zip(groups, column, strict=True))
                     for column in ([g.segment.estimate_cycles for g in groups], [g.cycles for g in groups])]  # fmt: skip
            order, lines = [], []
            for i, g in enumerate(groups):
                pairs = made.candidates(i, given.candidates) if given.candidates else []
                order += [rank_correlation(pairs)] if len({c for _, c in pairs}) > 2 else []
                s = g.segment
                lines.append((g.error, f"    {s.name:48.48s} {s.info['op']:12.12s} x{g.launches:<4d} estimate "
                              f"{s.estimate_cycles:>11,d} simulated {g.cycles:>11,d} ratio {s.estimate_cycles / g.cycles:.3f} "
                              f"rank {order[-1] if order else 1:.3f} of {len(pairs)} parts {s.info['parts']} "
                              f"slices {s.info.get('slices')} shared {s.info.get('shared')}"))  # fmt: skip
            ranks += order
            print(row(name, off, order, f"{whole[0] / whole[1]:.3f}"), flush=True)
            if given.groups:
                print("\n".join(text for _, text in sorted(lines, reverse=True)))
    print(row("all", errors, ranks, ""))


def row(name: str, off: list[float], ranks: list[float], whole: str) -> str:
    mean = f"{np.mean(ranks):.3f}, worst {min(ranks):.3f}" if ranks else ""
    return (f"| {name} | {len(off)} | {np.median(off):.1%} | {np.quantile(off, 0.95):.1%} | {max(off):.1%} | {whole} | "
            f"{mean} |")  # fmt: skip


if __name__ == "__main__":
    main()
