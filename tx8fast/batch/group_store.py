"""What searches found out about single ops and groups, for any graph that has them again.

May import: graph_table, batch.*. Must not: search, or know what an answer means (see `search.remembered`).

    groups/ab/KEY-CONTENT.json   {"fields": what the answers depend on, "answers": by question}

The key is made of the fields: ops with attributes, shapes, formats, layouts and wiring, the machine, sharing of loads,
and the compiler. Names, weights and what stands around a group are no part of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tx8fast.batch.fingerprint import code_digest, digest
from tx8fast.batch.kept_files import KeptFiles
from tx8fast.graph_table import GroupRecord, OpRecord, TensorSpec

FOLDER = "groups"
LONGEST = 200  # characters of an attribute that stand in a field; longer ones stand there by their digest

Record = OpRecord | GroupRecord
Answers = dict[str, Mapping[str, Any]]


def group_fields(record: Record, machine_digest: str, sharing: bool) -> dict[str, str]:
    """Return by name everything that a plan of the record depends on."""
    parts = record.ops if isinstance(record, GroupRecord) else (record,)
    out = {"version": code_digest(), "machine": machine_digest, "option sharing": str(sharing), "ops": record.kind}
    for i, op in enumerate(parts):
        at = f"{op.kind} {i + 1}" if len(parts) > 1 else op.kind
        out |= {f"{at} attribute {name}": _short(repr(value)) for name, value in op.attrs}
        out |= {f"{at} operand {k + 1}": _spec(spec) for k, spec in enumerate(op.operands)}
        out |= {f"{at} result {k + 1}": _spec(spec) for k, spec in enumerate(op.results)}
    # how the operands are wired, which results leave, and the rules of the ops
    structure = repr(record).encode("utf-8", "surrogatepass")
    return out | {"structure": hashlib.sha256(structure).hexdigest()}


def _spec(spec: TensorSpec | None) -> str:
    if spec is None:
        return "none"
    return f"{spec.dtype} {list(spec.shape)}" + (f" {spec.layout}" if spec.layout != "dense" else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Entry:
    """The answers of one record. had: questions that were answered when the search began; stored: that are in a file;
    asked: so far."""

    def __init__(self, key: str, fields: dict[str, str]) -> None:
        self.key, self.fields = key, fields
        self.paths: list[Path] = []
        self.answers: Answers = {}
        self.had: frozenset[str] = frozenset()
        self.stored: frozenset[str] = frozenset()
        self.asked: set[str] = set()


class Groups:
    """Answers by record, for one machine; a `search.remembered.GroupStore`."""

    def __init__(
        self, root: Path, machine_digest: str, sharing: bool, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.machine_digest, self.sharing = machine_digest, sharing
        self.files = KeptFiles(root / FOLDER, tell, "the group is planned anew")
        self.entries: dict[Record, _Entry] = {}

    def find(self, record: Record, question: str) -> Mapping[str, Any] | None:
        entry = self._entry(record)
        entry.asked.add(question)
        return entry.answers.get(question)

    def keep(self, record: Record, question: str, answer: Mapping[str, Any]) -> None:
        self._entry(record).answers[question] = answer

    def refuse(self, record: Record, why: str) -> None:
        entry = self._entry(record)
        for path in entry.paths:
            self.files.drop(path, why)
        entry.paths, entry.answers, entry.had, entry.stored = [], {}, frozenset(), frozenset()

    def kept(self, record: Record) -> bool:
        """Tell whether everything that was asked of a record was known before."""
        entry = self._entry(record)
        return bool(entry.asked) and entry.asked <= entry.had

    def counts(self) -> tuple[int, int]:
        """Return of how many records everything was known that was asked, and how many there were."""
        return sum(map(self.kept, self.entries)), len(self.entries)

    def write(self) -> None:
        """Keep the new answers; where the cache cannot be written nothing is kept."""
        for entry in self.entries.values():
            if entry.answers.keys() <= entry.stored:
                continue
            text = json.dumps({"fields": entry.fields, "answers": entry.answers}, sort_keys=True)
            path = self.files.put(entry.key, text.encode("utf-8", "surrogatepass"))
            if path is None:
                return
            for old in entry.paths:  # the new file has their answers too
                if old != path:
                    with contextlib.suppress(OSError):  # somebody has just removed it, or it is another user's
                        old.unlink()
            entry.paths, entry.stored = [path], frozenset(entry.answers)

    def nearest(self, record: Record) -> tuple[str, list[dict[str, str | None]]] | None:
        """Return the key of the kept record with the fewest other fields, and these: `field`, what is `kept` and `asked`.
        Records of the same ops come first."""
        asked = self._entry(record).fields
        best: tuple[tuple[bool, int], str, dict[str, str]] | None = None
        for key, fields in self._all():
            if key == self._entry(record).key:
                continue
            rank = fields.get("ops") != asked["ops"], sum(fields.get(k) != asked.get(k) for k in {*fields, *asked})
            if best is None or rank < best[0]:
                best = rank, key, fields
        if best is None:
            return None
        _, key, kept = best
        other = [k for k in dict.fromkeys((*asked, *kept)) if k != "structure" and kept.get(k) != asked.get(k)]
        return key, [{"field": k, "kept": kept.get(k), "asked": asked.get(k)} for k in other or ["structure"]]

    def _entry(self, record: Record) -> _Entry:
        entry = self.entries.get(record)
        if entry is None:
            fields = group_fields(record, self.machine_digest, self.sharing)
            entry = self.entries[record] = _Entry(digest(fields), fields)
            for path, data in self.files.whole(entry.key):
                try:
                    tree = json.loads(data)
                    if tree["fields"] != fields or not all(isinstance(a, dict) for a in tree["answers"].values()):
                        raise ValueError("it is another group's")
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as err:
                    self.files.drop(path, str(err)[:80])
                    continue
                entry.paths.append(path)
                entry.answers |= tree["answers"]
            entry.had = entry.stored = frozenset(entry.answers)
        return entry

    def _all(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield key and fields of everything that can be read."""
        for path in sorted(self.files.root.glob("??/*.json")):
            try:
                yield path.stem.partition("-")[0], dict(json.loads(path.read_bytes())["fields"])
            except (OSError, ValueError, TypeError, KeyError, RecursionError):
                continue
