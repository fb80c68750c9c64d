"""The models that tests read say nothing of the machine that wrote them."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

DATA = Path(__file__).parents[2] / "data"
PATHS = re.compile(rb'File "|site-packages|/(?:home|Users|root|tmp|usr|opt|mnt|var)/|[A-Z]:\\\\')


def notes(message) -> int:
    """How many metadata entries and comments a message holds, at any depth; exporters put stack traces there."""
    found = 0
    for field, value in message.ListFields():
        if field.name in ("metadata_props", "doc_string"):
            found += 1
        elif field.type == field.TYPE_MESSAGE:
            found += sum(map(notes, [value] if hasattr(value, "ListFields") else value))
    return found


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.onnx")), ids=lambda p: p.stem)
def test_models_carry_no_notes_of_their_exporter(path) -> None:
    assert notes(onnx.load(path, load_external_data=False)) == 0, "metadata_props and doc_string must be stripped"


def test_data_name_no_paths() -> None:
    wrong = [f.name for f in sorted(DATA.rglob("*")) if f.is_file() and PATHS.search(f.read_bytes())]
    assert not wrong, wrong
