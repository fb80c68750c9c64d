"""docs/models.md names every family with what its declaration says, and what was measured."""

import json

from tests.support.model_table import DOCS, GOLDEN, HEAD, family_table
from tx8fast.frontend.hf.families import FAMILIES


def test_the_table_of_families_is_that_of_the_declarations():
    lines = DOCS.read_text().splitlines()
    start = lines.index(HEAD[0])
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    assert lines[start:end] == family_table(), "run python -m tests.support.model_table"


def test_every_family_was_measured():
    """The error of its tiny models, and a model of real size."""
    known = json.loads(GOLDEN.read_text())
    assert set(known) == set(FAMILIES)
    assert all(entry["error"] <= 2e-6 for entry in known.values())
    # which normalises queries over all heads, and takes more memory than one chip has
    assert [name for name, entry in known.items() if "model" not in entry] == ["minimax_m2"]
