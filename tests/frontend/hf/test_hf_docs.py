"""docs/models.md names every family with what its declaration says."""

from pathlib import Path

from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.parts import COMPOSITES

DOCS = Path(__file__).parents[3] / "docs" / "models.md"


def family_table() -> list[str]:
    """Return the lines of the table, by model_type within the order of the declarations."""
    rows = [f"| `{name}` | {family.honours} |" for name, family in FAMILIES.items()]
    named = {kind: ", ".join(c.pieces) for kind, c in COMPOSITES.items()}
    parts = [
        f"| {', '.join(f'`{k}`' for k in named if named[k] == names)} | --part {names} |"
        for names in dict.fromkeys(named.values())
    ]
    return ["| `model_type` | particulars that are honoured |", "|---|---|", *rows, *parts]


def test_the_table_of_families_is_that_of_the_declarations():
    lines = DOCS.read_text().splitlines()
    start = lines.index("| `model_type` | particulars that are honoured |")
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    assert lines[start:end] == family_table(), "the table should be:\n" + "\n".join(family_table())
