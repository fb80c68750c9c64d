"""Programs that were made before: content-addressed files that processes and machines may share.

May import: files, batch.fingerprint, errors. Must not: compile.

    entry/ab/abcd....json   fields and reads that the program depends on, the digest of its bytes, and of this file's own content
    object/cd/cdef....tx8   the bytes, named by their digest
    plans/ef/ef...-01....json   results of searches of whole graphs (batch.plan_store)
    groups/23/23...-45....json  plans of single ops and groups (batch.group_store)

A file is written under another name and renamed, so readers see it whole or not at all, on network file systems too. Entries that
do not hold what they say are removed and told. No lock is needed: whoever writes the same name writes the same program.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tx8fast.batch import group_store, plan_store
from tx8fast.batch.fingerprint import Read, changed_reads, digest
from tx8fast.errors import ConfigError
from tx8fast.files import replacing
from tx8fast.records import dataclass

LAYOUT = "1"  # of the files below; another one lives in a directory of its own
LIMIT_BYTES = 8 << 30
LEFTOVER_SECONDS = 3600  # a temporary file of this age belongs to nobody
_NAME = re.compile(r"[0-9a-f]{64}")


def default_directory() -> Path:
    """Where programs are kept unless told otherwise: TX8FAST_CACHE, else the user's cache directory."""
    given = os.environ.get("TX8FAST_CACHE", "")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "tx8fast"


@dataclass(frozen=True)
class Entry:
    """What is known of a program. row: the deterministic figures that were taken when it was made; source: what the model's
    file or directory was called then, for people."""

    key: str
    fields: dict[str, str]
    reads: tuple[Read, ...]
    object: str
    size_bytes: int
    row: dict[str, Any]
    source: str = ""


class Cache:
    """Programs by key. `tell` gets a line for everything that was found damaged."""

    def __init__(
        self, directory: Path, limit_bytes: int = LIMIT_BYTES, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.root, self.limit_bytes, self.tell = directory / f"v{LAYOUT}", limit_bytes, tell

    def find(self, fields: dict[str, str], model_root: Path) -> tuple[Entry, Path] | None:
        """Return the entry of these fields and the file of its program, if both are whole and the weights that were read
        are unchanged."""
        key = digest(fields)
        entry = self._read(key)
        if entry is None:
            return None
        changed = changed_reads(model_root, entry.reads)
        if changed:
            return None
        path = self._object(entry.object)
        if not self._is_whole(path, entry):
            return None
        with contextlib.suppress(OSError):  # another user's cache may be read only; only the order of eviction is lost
            os.utime(path)
            os.utime(self._entry(key))
        return entry, path

    def put(
        self, fields: dict[str, str], reads: tuple[Read, ...], program: Path, row: dict[str, Any], source: str = ""
    ) -> Entry:
        """Keep a program file. Raises ConfigError if the cache cannot be written."""
        data = program.read_bytes()
        entry = Entry(digest(fields), fields, reads, hashlib.sha256(data).hexdigest(), len(data), row, source)
        body = json.dumps(asdict(entry), sort_keys=True)
        try:
            self._write(self._object(entry.object), data)
            self._write(self._entry(entry.key), f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}\n".encode())
        except OSError as e:
            raise ConfigError(f"writing cache {self.root}: {e.strerror or e}; --no-cache does without") from e
        return entry

    def nearest(self, fields: dict[str, str]) -> tuple[Entry, list[str]] | None:
        """Return the entry with the fewest other fields, and these by name: what a miss is due to."""
        best: tuple[Entry, list[str]] | None = None
        for entry in self.entries():
            other = sorted(k for k in {*fields, *entry.fields} if fields.get(k) != entry.fields.get(k))
            if best is None or len(other) < len(best[1]):
                best = entry, other
        return best

    def entries(self) -> Iterator[Entry]:
        """Yield all readable entries, in the order of their keys."""
        for path in sorted(self.root.glob("entry/??/*.json")):
            if _NAME.fullmatch(path.stem) and (entry := self._read(path.stem)) is not None:
                yield entry

    def unreadable(self) -> list[str]:
        """Return the folders and files that this user may not read, each with the reason."""
        found: list[str] = []

        def told(e: OSError) -> None:
            if not isinstance(e, FileNotFoundError):
                found.append(f"{e.filename}: {e.strerror}")

        own = os.access in os.supports_effective_ids  # as whom files are opened
        for folder, _, names in os.walk(self.root, onerror=told):
            for path in (os.path.join(folder, name) for name in names):
                if os.path.exists(path) and not os.access(path, os.R_OK, effective_ids=own):
                    found.append(f"{path}: Permission denied")
        return sorted(found)

    def plan_sizes(self) -> dict[Path, int]:
        """Return the files of kept results of searches, with their bytes."""
        return self._sizes(plan_store.FOLDER)

    def group_sizes(self) -> dict[Path, int]:
        """Return the files of what is known of single ops and groups, with their bytes."""
        return self._sizes(group_store.FOLDER)

    def _sizes(self, folder: str) -> dict[Path, int]:
        return {path: self._size(path) for path in sorted(self.root.glob(f"{folder}/??/*.json"))}

    def collect(self, limit_bytes: int | None = None) -> tuple[int, int]:
        """Remove what was used longest ago until at most the limit is left, and what belongs to nothing. Returns files
        and bytes removed."""
        limit = self.limit_bytes if limit_bytes is None else limit_bytes
        removed = freed = total = 0
        hidden = self.unreadable()  # what these refer to is not known, so that no program belongs to nothing
        used: set[str] = set()
        evicted: set[str] = set()

        def remove(path: Path) -> None:
            nonlocal removed, freed
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                removed, freed = removed + 1, freed + size

        kept: list[tuple[Path, str, int]] = [(self._entry(e.key), e.object, e.size_bytes) for e in self.entries()]
        kept += [(path, path.name, size) for path, size in (self.plan_sizes() | self.group_sizes()).items()]
        for path, name, size in sorted(kept, key=lambda item: (-self._age(item[0]), item[0])):
            total += size if name not in used else 0
            if total > limit:
                remove(path)
                evicted.add(name)
            else:
                used.add(name)
        old = time.time() - LEFTOVER_SECONDS  # what is newer may be of a batch that has not written its entry yet
        for path in sorted(self.root.glob("object/??/*.tx8")):
            if path.stem not in used and (path.stem in evicted or not hidden and self._age(path) < old):
                remove(path)
        for path in sorted(self.root.glob("*/??/*")) + sorted(self.root.glob("*/??/.*")):
            known = path.suffix == (".tx8" if path.parent.parent.name == "object" else ".json")
            if not known and self._age(path) < old:
                remove(path)
        return removed, freed

    def _entry(self, key: str) -> Path:
        return self.root / "entry" / key[:2] / f"{key}.json"

    def _object(self, name: str) -> Path:
        return self.root / "object" / name[:2] / f"{name}.tx8"

    @staticmethod
    def _age(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0

    def _read(self, key: str) -> Entry | None:
        path = self._entry(key)
        try:
            first, _, body = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as e:
            self.tell(f"cache: {path} cannot be read ({e}); the program is made anew")
            return None
        try:
            if hashlib.sha256(body.rstrip(b"\n")).hexdigest().encode() != first:
                raise ValueError("its checksum is wrong")
            tree = json.loads(body)
            if tree["key"] != key or digest(tree["fields"]) != key or not _NAME.fullmatch(tree["object"]):
                raise ValueError("it is another entry's")
            return Entry(**{**tree, "reads": tuple(Read(**r) for r in tree["reads"])})
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            self._drop(path, str(e))
            return None

    def _is_whole(self, path: Path, entry: Entry) -> bool:
        try:
            good = hashlib.sha256(path.read_bytes()).hexdigest() == entry.object
        except FileNotFoundError:
            self.tell(f"cache: {path} is gone; the program is made anew")
            return False
        except OSError as e:
            self.tell(f"cache: {path} cannot be read ({e.strerror or e}); the program is made anew")
            return False
        if not good:
            self._drop(path, "its bytes are not those of its name")
        return good

    def _drop(self, path: Path, why: str) -> None:
        self.tell(f"cache: {path} is damaged ({why}); the program is made anew")
        with contextlib.suppress(OSError):
            path.unlink()

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.name.endswith(".tx8"):
            return
        with replacing(path) as f:
            f.write(data)
