"""Results of searches that were made before: the second level of the cache, for graphs that are compiled again with other weights or options.

May import: files, batch.fingerprint, errors, api (types). Must not: search, or know what a plan says.

    plans/ab/KEY-CONTENT.json   a file for `load_plans`, named by what the search depends on and by the digest of its bytes

The key is made of the graph as the passes left it, names and small constants included, of the machine, the options of the search, and the compiler. Plans that are
taken make the same program as the search; they are checked like any file of plans.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tx8fast.batch.fingerprint import code_digest
from tx8fast.files import replacing

if TYPE_CHECKING:
    from tx8fast.api import Searched
    from tx8fast.ir.program import IRProgram
    from tx8fast.machine import Machine
    from tx8fast.options import CompileOptions

FOLDER = "plans"
#: options that a search depends on and a graph does not show
OPTIONS = ("opt", "sharing", "search_seconds", "only", "order")


class PlanStore:
    """Plans by graph, for `api.compile_ir`. found: whether the last graph's were there; `tell` gets a line for what is damaged."""

    def __init__(self, root: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.root, self.tell, self.key, self.found = root / FOLDER, tell, "", False

    def find(self, ir: IRProgram, machine: Machine, options: CompileOptions) -> str:
        """Return the file of what was found for this graph, "" if there is none that is whole."""
        facts = {
            "compiler": code_digest(),
            "machine": machine.digest,
            **{name: repr(getattr(options, name)) for name in OPTIONS},
        }
        text = json.dumps(facts, sort_keys=True) + ir.text(True)
        self.key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.found = False
        for path in self._candidates():
            try:
                whole = hashlib.sha256(path.read_bytes()).hexdigest() == path.stem.partition("-")[2]
            except FileNotFoundError:  # somebody has just removed it
                continue
            except OSError as e:
                self.tell(f"cache: {path} cannot be read ({e.strerror or e}); the search is made anew")
                continue
            if whole:
                with contextlib.suppress(OSError):  # another user's cache may be read only
                    os.utime(path)
                self.found = True
                return str(path)
            self.tell(f"cache: {path} is damaged (its bytes are not those of its name); the search is made anew")
            with contextlib.suppress(OSError):
                path.unlink()
        return ""

    def keep(self, found: Searched) -> None:
        """Keep what was found for the graph that was asked for last; a cache that cannot be written keeps nothing."""
        data = found.text().encode("utf-8", "surrogatepass")
        path = self._folder() / f"{self.key}-{hashlib.sha256(data).hexdigest()}.json"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as f:
                f.write(data)

    def _candidates(self) -> list[Path]:
        """Return the files of this key; none if the folder cannot be read, which is told."""
        try:
            names = os.listdir(self._folder())
        except FileNotFoundError:
            return []
        except OSError as e:
            self.tell(f"cache: {self._folder()} cannot be read ({e.strerror or e}); the search is made anew")
            return []
        return [self._folder() / n for n in sorted(names) if n.startswith(f"{self.key}-") and n.endswith(".json")]

    def _folder(self) -> Path:
        return self.root / self.key[:2]
