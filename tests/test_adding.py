"""The sessions of docs/adding.md are run as they stand, each task in one namespace; what they add to the compiler's tables is taken back."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tx8fast import isa, lower
from tx8fast.ir import dialect
from tx8fast.isa import base
from tx8fast.lower import sequences
from tx8fast.lower.elementwise import Elementwise
from tx8fast.numerics import routines
from tx8fast.simulator import exact, exact_vector

PAGE = Path(__file__).resolve().parent.parent / "docs/adding.md"
TASKS = ("A pass", "An op", "An instruction", "A fused pattern")
NAMED = {routines: "ROUTINES", sequences: "UNARY", lower: "FAMILIES", exact_vector: "UNARY"}


def sessions() -> dict[str, str]:
    """Return the Python blocks of every section by its heading, one behind the other with the lines where they stand on the page."""
    found: dict[str, str] = {}
    for part in re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.M):
        title = part.splitlines()[0].removeprefix("## ")
        found[title] = "\n".join(re.findall(r"```python\n(.*?)```", part, re.S))
    return found


@pytest.fixture
def tables() -> Iterator[None]:
    """Put back what the sessions add."""
    dicts = [getattr(module, name) for module, name in NAMED.items()]
    before = [dict(d) for d in dicts]
    families, takes, instructions = dialect.FAMILIES, Elementwise.takes, dict(isa.INSTRUCTIONS)
    opcodes, declared = list(base.BY_OPCODE), list(base.Tables.families)
    columns = [getattr(base.Tables, name).copy() for name in ("unit", "regs", "family")]
    try:
        yield
    finally:
        dialect.FAMILIES, Elementwise.takes = families, takes
        for d, old in zip((*dicts, isa.INSTRUCTIONS), (*before, instructions), strict=True):
            d.clear()
            d.update(old)
        base.BY_OPCODE[:], base.Tables.families[:] = opcodes, declared
        for name, old in zip(("unit", "regs", "family"), columns, strict=True):
            getattr(base.Tables, name)[:] = old
        exact.meanings.cache_clear()


@pytest.mark.parametrize("task", TASKS)
def test_session(task: str, tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TX8FAST_CACHE", str(tmp_path / "cache"))
    text = sessions()[task]
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "adding"}, task, str(PAGE), 0)
    assert len(test.examples) > 5
    report: list[str] = []
    done = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(test, out=report.append)
    assert not done.failed, "".join(report)


def test_only_these_sections_have_sessions() -> None:
    assert [title for title, text in sessions().items() if text] == list(TASKS)


def test_the_files_that_the_page_names_are_there() -> None:
    root = PAGE.parent.parent
    named = re.findall(r"`((?:tx8fast|tests)/[\w/]+(?:\.\w+)?)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 10
    assert not [name for name in named if not (root / name).exists()]
