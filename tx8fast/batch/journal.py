"""What a batch has done so far: a file of JSON lines to which lines are only added.

May import: errors. Must not: decide what is done again; finished files speak for themselves (`batch.work.is_finished`).

Times, cache hits and logs stand here and nowhere else, so that figures and tables do not depend on the run that made them. A line that a
crash has cut off is passed over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tx8fast.batch.work import Outcome
from tx8fast.errors import ConfigError

NAME = "journal.jsonl"


class Journal:
    """Adds lines; each is on the disk before the next thing happens."""

    def __init__(self, out: Path) -> None:
        self.path = out / NAME
        try:
            torn = self.path.exists() and self.path.stat().st_size > 0 and self.path.read_bytes()[-1:] != b"\n"
            self.file: IO[str] = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as e:
            raise ConfigError(f"writing {self.path}: {e.strerror or e}") from e
        if torn:
            self.file.write("\n")

    def add(self, event: str, **facts: Any) -> None:
        """Add a line. Raises ConfigError if the disk is full."""
        try:
            self.file.write(json.dumps({"event": event, "time": round(time.time(), 3), **facts}) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as e:
            raise ConfigError(f"writing {self.path}: {e.strerror or e}") from e

    def outcome(self, o: Outcome) -> None:
        self.add(
            "job",
            name=o.name,
            status=o.status,
            seconds=round(o.seconds, 3),
            cpu_seconds=round(o.cpu_seconds, 3),
            peak_bytes=o.peak_bytes,
            cached=o.from_cache,
            plans_cached=o.plans_from_cache,
            groups_cached=list(o.groups_from_cache),
            log=list(o.log),
        )

    def close(self) -> None:
        self.file.close()


def lines(out: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a journal, oldest first."""
    try:
        text = (out / NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
