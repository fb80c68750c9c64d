"""Mutation: what verifier, sanitizer and proof see, without looking at numbers, of single changed fields and deleted instructions.

A fixed slice runs with the other tests; `make mutation` (TX8FAST_MUTANTS=120) judges more of them with several seeds
(TX8FAST_MUTANT_SEEDS="4 5" names others) and prints the table.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import tx8fast
from tests.mutation.judges import CHECKS, MEMORY, Jury, Tally, Verdict, checks_of
from tests.mutation.mutants import Mutant, mutants
from tests.support.corpus import DATA, small_cnn
from tx8fast.program.model import Program

MODELS = {"CNN": "", "Llama block": "llama-prefill-op20", "BERT layer": "bert-encode-op23"}
COUNT = int(os.environ.get("TX8FAST_MUTANTS", "24"))
GIVEN = os.environ.get("TX8FAST_MUTANT_SEEDS", "1 2 3" if "TX8FAST_MUTANTS" in os.environ else "1")
SEEDS = tuple(int(seed) for seed in GIVEN.split())
LEAST = 0.97  # of the mutants whose results differ
LEAST_MEMORY = 0.69  # by verifier and sanitizer alone, of enough mutants to tell


@cache
def tally(model: str, seed: int, directory: str) -> Tally:
    jury = Jury(compiled(model, directory), checks_of(path_of(model, directory)))
    return Tally.of(jury.judge(m) for m in mutants(jury.program, COUNT, seed))


@cache
def compiled(model: str, directory: str) -> Program:
    return tx8fast.compile(path_of(model, directory), machine="test_2x2").program


def path_of(model: str, directory: str) -> Path:
    if MODELS[model]:
        return DATA / "onnx" / f"{MODELS[model]}.onnx"
    path = Path(directory) / "cnn.onnx"
    if not path.exists():
        small_cnn(path.parent)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("mutation"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow
def test_mutants_are_seen(model: str, seed: int, directory: str) -> None:
    """Every deleted store and every overrun, and most of what changes results."""
    found = tally(model, seed, directory)
    print(f"\n{model}, seed {seed}, {COUNT} mutants\n{found.table(CHECKS)}")
    assert not [v.mutant.text for v in found.unseen(MEMORY, deleted_store=True)]
    assert not [v.mutant.text for v in found.unseen(MEMORY, overrun=True)]
    texts = [v.mutant.text for v in found.verdicts if v.outcome == "differs" and not v.seen]
    assert found.share() >= LEAST, texts
    print(f"verifier and sanitizer alone: {found.share(by=MEMORY):.1%} of those that differ")
    assert COUNT < 120 or found.share(by=MEMORY) >= LEAST_MEMORY


@pytest.mark.parametrize("model", MODELS)
def test_every_deleted_store_is_seen(model: str, directory: str) -> None:
    """Not only of those that were drawn: of every store of every code."""
    from dataclasses import replace

    import numpy as np

    from tests.mutation.judges import sanitizer, verifier
    from tests.mutation.mutants import WDMA
    from tests.simulator.planting import feed_of

    program = compiled(model, directory)
    feed, unseen, stores = feed_of(program), [], 0
    for k, segment in enumerate(program.segments):
        for c, code in enumerate(segment.codes):
            for row in np.flatnonzero(code["opcode"] == WDMA).tolist():
                codes = [np.delete(x, row) if i == c else x for i, x in enumerate(segment.codes)]
                segments = [replace(s, codes=codes) if i == k else s for i, s in enumerate(program.segments)]
                changed = replace(program, segments=segments)
                stores += 1
                if not verifier(changed, feed) and not sanitizer(changed, feed):
                    unseen.append((segment.name, c, row))
    assert stores and not unseen


def test_mutants_repeat_and_differ(directory: str) -> None:
    program = compiled("CNN", directory)
    texts = [m.text for m in mutants(program, 30, 5)]
    assert texts == [m.text for m in mutants(program, 30, 5)] and len(set(texts)) == 30
    assert texts != [m.text for m in mutants(program, 30, 6)]


def test_another_judge_can_be_asked(directory: str) -> None:
    """It is asked about what the others have not seen."""
    program = compiled("CNN", directory)
    asked: list[Program] = []

    def judge(changed: Program, feed: object) -> bool:
        asked.append(changed)
        return changed is not program

    jury = Jury(program, {**MEMORY, "judge": judge})
    verdicts = [jury.judge(m) for m in mutants(program, 10, 1)]
    assert {v.seen for v in verdicts} <= {*MEMORY, "judge"} and len(asked) == 1 + sum(
        v.seen == "judge" for v in verdicts
    )


def test_tally_counts_what_was_seen() -> None:
    def made(seen: str, outcome: str, **kind: bool) -> Verdict:
        return Verdict(Mutant(None, "", **kind), seen, outcome)  # type: ignore[arg-type]

    found = Tally.of(
        [made("verifier", "differs"), made("", "differs", overrun=True), made("", "equal"), made("sanitizer", "equal")]
    )
    assert found.share() == 0.5 and found.share("illegal") == 1.0 and found.share(by=["sanitizer"]) == 0.0
    assert (
        len(found.unseen(overrun=True)) == 1
        and len(found.unseen(["sanitizer"])) == 3
        and not found.unseen(deleted_store=True)
    )
    assert found.table(CHECKS).splitlines()[1].split() == ["differs", "1", "0", "0", "1", "50.0%"]
