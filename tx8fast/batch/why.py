"""Why a job's program is taken from the cache, or made anew: field by field.

May import: batch.*. Must not: compile, or print.
"""

from __future__ import annotations

from typing import Any

from tx8fast.batch.cache import Cache
from tx8fast.batch.fingerprint import changed_reads, digest
from tx8fast.batch.manifest import Job
from tx8fast.batch.work import job_fields, root_of

MISSING = "its program is missing, damaged, or cannot be read"


def explain(job: Job, store: Cache) -> dict[str, Any]:
    """Return, JSON-able: `key`, `hit`, `fields` (what the program depends on), and of a miss `nearest` (the key of the entry with the fewest other
    fields), `differs` (`field`, what was `kept` and is `asked`), `changed_weights` (files whose bytes were read and are others now) and `damage`.
    Raises ConfigError if the model's files cannot be read."""
    fields = job_fields(job)
    facts: dict[str, Any] = {
        "key": digest(fields),
        "hit": store.find(fields, root_of(job)) is not None,
        "fields": fields,
        "differs": [],
    }
    nearest = None if facts["hit"] else store.nearest(fields)
    if nearest is not None:
        entry, other = nearest
        facts["nearest"] = entry.key
        facts["differs"] = [{"field": k, "kept": entry.fields.get(k), "asked": fields.get(k)} for k in other]
        facts["changed_weights"] = [] if other else changed_reads(root_of(job), entry.reads)
        facts["damage"] = MISSING if not other and not facts["changed_weights"] else ""
    return facts


def reasons(facts: dict[str, Any]) -> list[str]:
    """Return in words what a miss is due to; nothing for a hit."""
    if facts["hit"]:
        return []
    if "nearest" not in facts:
        return ["nothing is kept yet"]
    found = [f"{d['field']}: {d['kept']} kept, {d['asked']} asked for" for d in facts["differs"]]
    found += [
        f"weights in {file}: values that are part of the program have changed" for file in facts["changed_weights"]
    ]
    return found + ([facts["damage"]] if facts["damage"] else [])
