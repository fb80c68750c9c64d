"""Results of searches that were made before: the second level of the cache.

It is for graphs that are compiled again with other weights or options, and for those that share groups with others.

May import: batch.*, api (types). Must not: search, or know what a plan says.

    plans/ab/KEY-CONTENT.json    a file for `load_plans`: groups and plans of a whole graph
    groups/cd/KEY-CONTENT.json   what is known of one op or group (batch.group_store)

The key of a graph is made of the graph as the passes left it, names and small constants included, of the machine, the
options of the search, and the compiler. Plans that are taken make the same program as the search; they are checked like
any file of plans.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tx8fast.batch.fingerprint import code_digest
from tx8fast.batch.group_store import Groups
from tx8fast.batch.kept_files import KeptFiles

if TYPE_CHECKING:
    from tx8fast.api import Searched
    from tx8fast.ir.program import IRProgram
    from tx8fast.machine import Machine
    from tx8fast.options import CompileOptions

FOLDER = "plans"
#: options that a search depends on and a graph does not show
OPTIONS = ("opt", "sharing", "search_seconds", "only", "order")


class PlanStore:
    """Plans by graph and by group, for `api.compile_ir`. found: whether the last graph's were there; groups: what was
    asked of those of the last graph, None if it was not searched; `tell` gets a line for what is damaged."""

    def __init__(self, root: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.root, self.tell, self.key, self.found = root, tell, "", False
        self.files = KeptFiles(root / FOLDER, tell, "the search is made anew")
        self.groups: Groups | None = None

    def find(self, ir: IRProgram, machine: Machine, options: CompileOptions) -> str:
        """Return the file of what was found for this graph, "" if there is none that is whole."""
        facts = {
            "compiler": code_digest(),
            "machine": machine.digest,
            **{name: repr(getattr(options, name)) for name in OPTIONS},
        }
        text = json.dumps(facts, sort_keys=True) + ir.text(True)
        self.key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        path = next((path for path, _ in self.files.whole(self.key)), None)
        self.found = path is not None
        self.groups = None if path is not None else Groups(self.root, machine.digest, options.sharing, self.tell)
        return str(path or "")

    def keep(self, found: Searched) -> None:
        """Keep what was found for the graph that was asked for last; a cache that cannot be written keeps nothing."""
        self.files.put(self.key, found.text().encode("utf-8", "surrogatepass"))
        if self.groups is not None:
            self.groups.write()
