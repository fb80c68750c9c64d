"""Why a job's program is taken from the cache, or made anew: field by field.

May import: batch.*, and late: api, frontend. Must not: make a program, keep anything, or print.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tx8fast.batch.cache import Cache
from tx8fast.batch.fingerprint import changed_reads, digest
from tx8fast.batch.manifest import Job
from tx8fast.batch.plan_store import PlanStore
from tx8fast.batch.work import job_fields, root_of
from tx8fast.program.labels import label

#: ways in which a group differs that are told to people
SHOWN = 2
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


def explain_groups(job: Job, store: Cache, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Return, JSON-able, what a compilation would find of its search: `plans_hit` (those of the whole graph), and if they
    are missing `groups` (of every op and group of the program `name`, `ops`, `hit`, and of a miss `nearest` and `differs`
    as in `explain`), and of how many ops and groups, of all that the search looks at (`looked_at`), everything is `known`.
    The search is done for it, and nothing of it is kept. Raises Tx8Error."""
    from tx8fast import api
    from tx8fast.frontend import open_model
    from tx8fast.graphs import lower_graph
    from tx8fast.machine import load_machine

    options = job.options
    machine = load_machine(options.machine)
    ir = open_model(job.source, **options.import_options())
    with api.quiet_collector():
        table = lower_graph(ir, options).table
        plans = PlanStore(store.root, store.tell)
        if options.load_plans or plans.find(ir, machine, options):
            return {"plans_hit": True, "groups": [], "known": 0, "looked_at": 0}
        groups = plans.groups
        assert groups is not None
        found = api.search_graph(table, machine, options, progress, groups)
    rows = []
    for fn in table.functions.values():
        for step in fn.steps:
            planned = found.plans.pop(step.record, None) if step.record is not None else None
            if planned is None:  # no work, or a step like one before
                continue
            for nest, members in zip(planned.nests or (planned,), step.nests, strict=True):
                record = nest.low.record
                hit = groups.kept(record)
                near = None if hit else groups.nearest(record)
                rows.append(
                    {
                        "name": label([step.name], members),
                        "ops": record.kind,
                        "hit": hit,
                        "nearest": near and near[0],
                        "differs": near[1] if near else [],
                    }
                )
    known, looked_at = groups.counts()
    return {"plans_hit": False, "groups": rows, "known": known, "looked_at": looked_at}


def group_reason(row: dict[str, Any]) -> str:
    """Return in words what the miss of a group is due to; nothing for a hit. Fields that differ alike are told as one, and
    few of them: shapes differ in many places for one reason."""
    if row["hit"]:
        return ""
    if not row["differs"]:
        return "nothing is kept yet"
    alike: dict[tuple[str, str], list[str]] = {}
    for d in row["differs"]:
        alike.setdefault((d["kept"] or "none", d["asked"] or "none"), []).append(d["field"])
    told = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {kept} kept, {asked} asked for"
        for (kept, asked), names in alike.items()
    ]
    return "; ".join(told[:SHOWN] + ([f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []))
