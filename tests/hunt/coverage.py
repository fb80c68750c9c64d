"""Which operators have stood next to each other, and which of the graph's ops ended in one group; kept between runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hunt.recipes import kinds, name_of, possible

Pair = tuple[str, str]


class Coverage:
    """Counts of pairs that were executed and judged. `path`: where they are kept."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.pairs: Counter[Pair] = Counter()
        self.grouped: Counter[Pair] = Counter()
        self.refused: Counter[str] = Counter()
        self.programs = 0
        if path is not None and path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.pairs.update({tuple(k.split(">")): n for k, n in stored["pairs"].items()})  # type: ignore[misc]
            self.grouped.update({tuple(k.split(">")): n for k, n in stored["grouped"].items()})  # type: ignore[misc]
            self.programs = stored["programs"]

    def add(self, pairs: Iterable[Pair], grouped: Iterable[Pair]) -> None:
        self.programs += 1
        self.pairs.update(pairs)
        self.grouped.update(grouped)

    def save(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            body = {"programs": self.programs}
            for name, table in (("pairs", self.pairs), ("grouped", self.grouped)):
                body[name] = {">".join(k): n for k, n in sorted(table.items())}  # type: ignore[assignment]
            self.path.write_text(json.dumps(body, indent=0) + "\n", encoding="utf-8")

    def report(self) -> str:
        """Return the table: per operator how many consumers and producers it has met, what is missing, what was grouped."""
        named = [name_of(k) for k in kinds()]
        wanted = {(name_of(p), name_of(c)) for p in kinds() for c in kinds() if possible(p, c)}
        met = wanted & set(self.pairs)
        lines = [f"{self.programs} programs; {len(met)} of {len(wanted)} pairs of operators whose element types fit stood "
                 f"next to each other; {len(self.grouped)} pairs of ops shared a group", "",
                 f"{'operator':34} {'before':>11} {'behind':>11}"]  # fmt: skip
        tables = [Counter(pair[side] for pair in pairs) for side in (0, 1) for pairs in (met, wanted)]
        lines += [f"{n:34} {tables[0][n]:5}/{tables[1][n]:<5} {tables[2][n]:5}/{tables[3][n]:<5}" for n in named]
        members = sorted({k for pair in self.grouped for k in pair})
        lines += ["", "in one group (producer: consumers):"]
        lines += [f"{a}: {', '.join(b for b in members if (a, b) in self.grouped)}" for a in members
                  if any((a, b) in self.grouped for b in members)]  # fmt: skip
        return "\n".join(lines)
