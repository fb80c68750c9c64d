"""Plans that only larger models have: the hunt comes to them, sees what is wrong in them, and leaves other programs alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hunt import checks, eager
from hunt import run as runner
from hunt.checks import Case, judge
from hunt.covered import Coverage
from hunt.draft import Draft
from hunt.execute import Setting, compiled, digest
from hunt.formats import F32
from hunt.generate import Generator
from hunt.store import setting_of

from tx8fast.lower.banded import Banded
from tx8fast.lower.links import Folded
from tx8fast.numerics.layout import block_size
from tx8fast.tile import gathers

BANDS = 1880  # a seed of a product whose sums are finished in bands
GATHERS = 23  # a seed of a small chain of products whose tiles gather what each of them has


@pytest.mark.parametrize(
    "end, stages", [("", ()), ("source", ("compile", "wrong")), ("target", ("sanitizer", "wrong"))]
)
@pytest.mark.slow(but_every=4)
def test_a_wrong_piece_of_what_tiles_gather_is_found(monkeypatch, end, stages):
    piece = gathers.piece

    def shifted(access, columns, rank, lo, hi):
        """What a tile sends begins a block before or behind what it has, or lands on what another one has sent."""
        at, start, size = piece(access, columns, rank, lo, hi)
        *rows, _ = access.box(lo, hi)
        block = access.local((*rows, (0, block_size(access.spec.dtype)))).size_bytes
        if end == "source":
            return (at - block if at else at + block), start, size
        return at, (start - block if start >= block and end else start), size

    program = Generator().products(GATHERS)
    case = Case(program.model, program.feeds, program.setting, program.seed)
    monkeypatch.setattr(gathers, "piece", shifted)
    failure = judge(case, runner.due(program))
    if not end:
        assert failure is None and all(map(eager.gathers, case.programs(eager=True)))
    else:
        assert failure is not None and failure.stage in stages, failure


@pytest.mark.parametrize("wrong", [False, True])
def test_wrong_sums_of_a_band_are_found(monkeypatch, wrong):
    bands, seen = Banded._bands, []

    def shifted(low, s):
        """Of every band, the sums that are some rows further on."""
        for part, sums in bands(low, s):
            seen.append(part)
            yield part, sums + 256 * wrong

    monkeypatch.setattr(Banded, "_bands", shifted)
    program = Generator().products(BANDS)
    failure = judge(Case(program.model, program.feeds, program.setting, program.seed), runner.due(program))
    assert seen
    assert (failure is not None and failure.stage in ("compile", "sanitizer", "wrong")) == wrong, failure


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.slow
def test_wrong_rows_from_the_far_end_are_found(monkeypatch, wrong):
    """Causal attention of three heads on four tiles, which have rows from either end: those from the last one taken for others."""
    rows, seen = Folded.range, []

    def near(link, lo, hi):
        seen.append(lo[link.side])
        return (lo[link.factor], hi[link.factor]) if wrong and lo[link.side] else rows(link, lo, hi)

    monkeypatch.setattr(Folded, "range", near)
    d = Draft(np.random.default_rng(3), F32, at_most=1 << 18)
    x = d.input(d.draw((1, 256, 96)))
    q, k, v = (d.op("MatMul", x, d.floats(x, (96, 96), scale=0.1)) for _ in range(3))
    d.op("MultiHeadAttention", q, k, v, domain="com.microsoft", num_heads=3, unidirectional=1)
    failure = judge(Case(*d.model(), Setting(2, machine_name="2x2", eager=True)))
    assert 1 in seen
    assert (failure is not None and failure.stage in ("compile", "sanitizer", "wrong")) == wrong, failure


def test_plans_of_larger_models_are_compiled_alone():
    """What is compiled afterwards is as if there were none, and a stored model says that it wants them."""
    program = Generator().products(GATHERS)
    usual = replace(program.setting, eager=False)
    before, made, after = (compiled(program.model, s) for s in (usual, program.setting, usual))
    assert digest(before) == digest(after) != digest(made)
    assert eager.gathers(made)
    program.model.doc_string = str(program.setting)
    assert setting_of(program.model) == program.setting


def test_some_random_programs_are_compiled_with_plans_of_larger_ones():
    d = Draft(np.random.default_rng(0), F32)
    d.op("Softmax", d.op("Exp", d.input(d.draw((3, 65)))))
    model, feeds = d.model()
    for seed, level in ((0, 2), (checks.EAGER, 3), (1, None)):
        case = Case(model, feeds, Setting(1), seed)
        assert judge(case) is None
        assert [s.level for s in case._made if s.eager] == ([level] if level else [])


def test_one_model_of_so_many_is_a_chain_of_products(tmp_path):
    said: list[dict] = []
    hunt = runner.Hunt(said.append, tmp_path, Coverage())
    assert hunt._program(runner.PRODUCTS).origin == "products" != hunt._program(runner.PRODUCTS + 2).origin
    program = hunt.generator.products(GATHERS)
    hunt._judge(program, Case(program.model, program.feeds, program.setting, GATHERS))
    table = Coverage()
    parent = runner.Parent(1, tmp_path, table, lambda text: None)
    for message in said:
        parent._take(json.loads(json.dumps(message)))
    assert (table.eager, table.gathering) == (2, 2)
    assert "2 programs compiled as larger ones are, 2 of them with tiles that gather" in table.report()
