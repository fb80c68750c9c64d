"""A slice of the replay corpus: the bytes of small programs are those that were recorded.

`make replay` compares the whole corpus. A change that is meant to change programs records them anew, in a commit of its own:
python -m tests.replay.record --record
"""

from __future__ import annotations

import pytest

from tests.replay.cases import CASES, LEVELS, SLICE
from tests.replay.record import key, measure, problems, recorded


@pytest.mark.parametrize(("name", "opt"), SLICE)
def test_bytes(name: str, opt: int) -> None:
    assert not problems(recorded(), {key(name, opt): measure(name, opt)}, "bytes")


def test_every_case_is_recorded() -> None:
    assert sorted(recorded()) == sorted(key(name, opt) for name in CASES for opt in LEVELS)


def test_gates_refuse() -> None:
    """More cycles, other bytes and a case that nobody recorded are each told."""
    old = {"a, opt 1": {"sha256": "1", "cycles": 1000}, "b, opt 1": {"sha256": "2", "cycles": 1000}}
    new = {k: dict(row) for k, row in old.items()}
    assert not problems(old, new, "bytes") and not problems(old, new, "cycles")
    new["a, opt 1"] = {"sha256": "3", "cycles": 1004}
    assert len(problems(old, new, "bytes")) == 1
    assert len(problems(old, new, "cycles")) == 1, "within the tolerance, but not in sum"
    new["b, opt 1"]["cycles"] = 990
    assert not problems(old, new, "cycles")
    new["a, opt 1"]["cycles"] = 1006
    assert len(problems(old, new, "cycles")) == 1
    assert problems({}, new, "cycles")
