"""Whatever is damaged in a file: the command line does its work or refuses it, and never crashes, hangs or eats memory.

`make fuzz-readers` runs 500 mutants of each kind; TX8FAST_FUZZ_READERS is their number, TX8FAST_FUZZ_SEED their seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.readers.kinds import KINDS, Kind
from tests.readers.runner import broken, prepare

COUNT = int(os.environ.get("TX8FAST_FUZZ_READERS", "8"))
SEED = int(os.environ.get("TX8FAST_FUZZ_SEED", "2"))


@pytest.mark.parametrize("kind", KINDS, ids=[k.name for k in KINDS])
@pytest.mark.slow(but_every=5)
def test_damaged_files_are_refused_or_read(tmp_path: Path, kind: Kind) -> None:
    prepare(kind, tmp_path)
    found = broken(kind, tmp_path, SEED, COUNT)
    assert not found, "\n".join(found)
