"""Every graph that a hunt has found: all checks at the level where it was found, right values and a clean sanitizer at level 2.

At the third level too with TX8FAST_ALL_LEVELS=1 (`make test-found`).
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hunt.checks import (
    Case,
    batch_is_its_parts,
    judge,
    proved,
    right_values,
    same_bytes,
    weights_in_files,
    without_sharing,
)
from hunt.corpus_list import graphs, open_cases
from hunt.run import explain
from hunt.store import load, setting_of

OPEN = open_cases()
OWN = [right_values, without_sharing, same_bytes, weights_in_files, batch_is_its_parts, proved]


def _params():
    for path in graphs():
        for level in (
            (1, 2, 3) if os.environ.get("TX8FAST_ALL_LEVELS") else sorted({setting_of(load(path)[0]).level, 2})
        ):
            name = f"{path.stem}-{level}"
            marks = [pytest.mark.xfail(reason=OPEN[name])] if name in OPEN else []
            yield pytest.param(path, level, id=name, marks=marks)


@pytest.mark.parametrize(("path", "level"), list(_params()))
@pytest.mark.slow(but_every=9)
def test_found_graph(path, level):
    model, feeds = load(path)
    case = Case(model, feeds, replace(setting_of(model), level=level))
    own = level == setting_of(model).level
    failure = judge(case, OWN if own else [right_values])
    assert failure is None, explain(model, failure)


def test_what_is_open_exists():
    stems = {p.stem for p in graphs()}
    assert {n.rpartition("-")[0] for n in OPEN if not n.startswith("seed ")} <= stems
