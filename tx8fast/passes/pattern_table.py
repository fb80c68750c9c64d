"""Patterns of op kinds with priorities, and the trie that finds them along the data flow.

May import: errors. Must not: know the graph; ops come as kinds.

A table has one pattern per line, `kind kind ... = priority`. `*` repeats the kind before it, one to five times in
all; `OR` parts alternatives and binds weakest; `#` starts a comment (back-end notes 9.1).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import field

from tx8fast.errors import ConfigError, raise_all
from tx8fast.records import dataclass

MAX_REPEATS = 5
MAX_SEQUENCES = 10_000  # of one table, after expansion
MAX_WORDS = 32  # of one alternative
OR, WILDCARD = "OR", "*"


@dataclass(frozen=True)
class TablePattern:
    """One line of a table: its words and its priority; a larger one wins."""

    words: tuple[str, ...]
    priority: int

    def sequences(self) -> list[tuple[str, ...]]:
        """Return the kinds of every form, shortest repetition first, alternatives in their order."""
        found: list[tuple[str, ...]] = []
        for part in _alternatives(self.words):
            units: list[list[tuple[str, ...]]] = []
            for word in part:
                if word == WILDCARD:
                    units[-1] = [(units[-1][0][0],) * n for n in range(1, MAX_REPEATS + 1)]
                else:
                    units.append([(word,)])
            found += [tuple(itertools.chain(*choice)) for choice in itertools.product(*units)]
        return list(dict.fromkeys(found))


def _alternatives(words: Iterable[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == OR:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def parse_table(text: str, known: Collection[str], where: str = "pattern table") -> list[TablePattern]:
    """Return the patterns of a table. Raises ConfigError that names every bad line."""
    patterns: list[TablePattern] = []
    problems: list[str] = []
    count = 0
    for n, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        left, equals, right = line.rpartition("=")
        words = tuple(left.split())
        if not equals or not right.strip().lstrip("-").isdecimal():
            problems.append(f"line {n}: expected 'kind kind ... = priority', found {line[:60]!r}")
            continue
        bad = [w for w in words if w not in (OR, WILDCARD) and w not in known]
        if bad:
            problems.append(f"line {n}: unknown op kind {', '.join(map(repr, bad[:5]))}")
        for part in _alternatives(words):
            if not part or part[0] == WILDCARD or any(a == b == WILDCARD for a, b in itertools.pairwise(part)):
                problems.append(f"line {n}: expected a kind before every '*' and around every OR, found {line[:60]!r}")
                break
            if len(part) > MAX_WORDS:
                problems.append(f"line {n}: a form of {len(part)} words, at most {MAX_WORDS} are allowed")
                break
        else:
            count += sum(MAX_REPEATS ** part.count(WILDCARD) for part in _alternatives(words))
            patterns.append(TablePattern(words, int(right)))
        if count > MAX_SEQUENCES:
            problems.append(f"line {n}: the patterns have more than {MAX_SEQUENCES:,} forms; use fewer '*'")
            break
    if not problems and not patterns:
        problems.append("it has no pattern; a line is 'kind kind ... = priority'")
    raise_all(ConfigError, f"reading {where}", problems)
    return patterns


@dataclass(eq=False)
class TrieNode:
    """One kind of a pattern; `pattern` and `priority` if one ends here."""

    children: dict[str, TrieNode] = field(default_factory=dict)
    pattern: TablePattern | None = None
    priority: int = 0

    def nodes(self) -> int:
        """Return the nodes below this one."""
        return sum(1 + child.nodes() for child in self.children.values())

    def find(self, *kinds: str) -> TrieNode:
        node = self
        for kind in kinds:
            node = node.children[kind]
        return node


def build_trie(patterns: Iterable[TablePattern]) -> TrieNode:
    """Return the trie of all forms; where two patterns end at one node the higher priority stays, the earlier on ties."""
    root = TrieNode()
    for pattern in patterns:
        for kinds in pattern.sequences():
            node = root
            for kind in kinds:
                node = node.children.setdefault(kind, TrieNode())
            if node.pattern is None or pattern.priority > node.priority:
                node.pattern, node.priority = pattern, pattern.priority
    return root
