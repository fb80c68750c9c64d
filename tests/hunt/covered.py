"""Which operators have stood next to each other, and which of the graph's ops ended in one group; kept between runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from hunt.recipes import kinds, name_of, possible

Pair = tuple[str, str]
TABLES, COUNTS = ("pairs", "alone", "grouped", "apart"), ("programs", "eager", "gathering")


class Coverage:
    """Counts of pairs that were executed and judged. `path`: where they are kept.

    alone: those of which the second was the first's only reader; grouped: of the graph's ops, those that shared a group; apart:
    pairs that cannot stand next to each other, and why; eager: programs compiled with plans of larger ones, and those of them that gather
    what tiles have left."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.pairs: Counter[Pair] = Counter()
        self.alone: Counter[Pair] = Counter()
        self.grouped: Counter[Pair] = Counter()
        self.apart: dict[Pair, str] = {}
        self.programs = self.eager = self.gathering = 0
        if path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            for name in TABLES:
                getattr(self, name).update({tuple(k.split(">")): n for k, n in stored.get(name, {}).items()})
            self.programs, self.eager, self.gathering = (stored.get(name, 0) for name in COUNTS)

    def add(self, **tables: Iterable[Pair]) -> None:
        """Add the pairs of one program."""
        self.programs += 1
        for name, pairs in tables.items():
            getattr(self, name).update(pairs)

    def save(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            tables = {name: {">".join(k): n for k, n in sorted(getattr(self, name).items())} for name in (*TABLES,)}
            body = {**{name: getattr(self, name) for name in COUNTS}, **tables}
            self.path.write_text(json.dumps(body, indent=0) + "\n", encoding="utf-8")

    def report(self) -> str:
        """Return the table: per operator how many consumers and producers it has met, what is missing, what was grouped."""
        named = [name_of(k) for k in kinds()]
        fit = {(name_of(p), name_of(c)) for p in kinds() for c in kinds() if possible(p, c)}
        wanted = fit - (set(self.apart) - set(self.pairs))
        met, alone = wanted & set(self.pairs), wanted & set(self.alone)
        lines = [f"{self.programs} programs; {len(met)} of {len(wanted)} pairs of operators stood next to each other, {len(alone)} with "
                 f"one reader alone; {len(self.grouped)} pairs of ops shared a group",
                 f"{self.eager} programs compiled as larger ones are, {self.gathering} of them with tiles that gather each other's results", "",
                 f"{'operator':34} {'before':>11} {'behind':>11}"]  # fmt: skip
        tables = [Counter(pair[side] for pair in pairs) for side in (0, 1) for pairs in (met, wanted)]
        lines += [f"{n:34} {tables[0][n]:5}/{tables[1][n]:<5} {tables[2][n]:5}/{tables[3][n]:<5}" for n in named]
        members = sorted({k for pair in self.grouped for k in pair})
        lines += ["", "in one group (producer: consumers):"]
        lines += [f"{a}: {', '.join(b for b in members if (a, b) in self.grouped)}" for a in members
                  if any((a, b) in self.grouped for b in members)]  # fmt: skip
        lines += [
            "",
            f"{len(fit - wanted)} pairs whose element types fit cannot stand next to each other (producer: consumers):",
        ]
        return "\n".join([*lines, *self._reasons(fit - wanted)])

    def _reasons(self, pairs: set[Pair]) -> Iterator[str]:
        """Yield the pairs that never stood next to each other, by what was in the way."""
        by: dict[str, dict[str, list[str]]] = {}
        for producer, consumer in sorted(pairs):
            by.setdefault(self.apart[producer, consumer], {}).setdefault(producer, []).append(consumer)
        for why, found in sorted(by.items(), key=lambda item: (-sum(map(len, item[1].values())), item[0])):
            yield f"{sum(map(len, found.values())):5}  {why}"
            yield from (f"         {p}: {', '.join(c)}" for p, c in found.items())
