"""Every row of the scheduling feature lists is shown by a test or named, with the reason, in docs/scheduling.md."""

import re
from pathlib import Path

import pytest

ROWS = [f"F-{n:03}" for n in range(1, 172)] + [f"B{n}" for n in range(46, 81)]
ID = r"F-\d{3}|B\d{2}"


def listed(text: str) -> list[str]:
    """Return the row ids in a text, ranges spelled out."""
    out: list[str] = []
    for first, last in re.findall(rf"({ID})(?:\.\.({ID}))?", text):
        out += ROWS[ROWS.index(first) : ROWS.index(last) + 1] if last else [first]
    return out


@pytest.fixture(scope="module")
def sections(repo_root: Path) -> dict[str, list[str]]:
    """Rows in the first column of the tables under each heading."""
    found: dict[str, list[str]] = {}
    for part in (repo_root / "docs/scheduling.md").read_text().split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        cells = [line.split("|") for line in body.splitlines() if line.startswith("|")]
        column = 3 if "steps" in title else 1
        found[title] = [row for c in cells[2:] for row in listed(c[column])]
    return found


@pytest.fixture(scope="module")
def marked(repo_root: Path) -> set[str]:
    found: set[str] = set()
    for path in (repo_root / "tests").rglob("*.py"):
        for args in re.findall(r"mark\.feature\(([^)]*)\)", path.read_text(encoding="utf-8")):
            found.update(re.findall(rf'"({ID})"', args))
    return found


def test_every_row_is_shown_or_explained(sections, marked) -> None:
    explained = {*sections["Superseded"], *sections["Not built"]}
    missing = [row for row in ROWS if row not in marked and row not in explained]
    assert not missing, f"neither a test nor docs/scheduling.md has {', '.join(missing)}"


def test_no_row_is_claimed_twice(sections, marked) -> None:
    explained = [*sections["Superseded"], *sections["Not built"]]
    assert sorted(explained) == sorted(set(explained))
    both = sorted(marked.intersection(explained))
    assert not both, f"tests show what docs/scheduling.md calls superseded or not built: {', '.join(both)}"


def test_the_modules_named_have_their_tests(sections, marked) -> None:
    (steps,) = [rows for title, rows in sections.items() if "steps" in title]
    assert set(steps) <= marked
