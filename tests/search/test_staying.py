"""Results that stay for a later nest than the next one: right values, proved, neither stored nor loaded, and only where all is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import make_checkpoint
from support.one_op import MACHINES, Arg, build, check

import tx8fast
from tests.simulator.planting import findings
from tx8fast.compiled import CompiledProgram
from tx8fast.errors import ConfigError
from tx8fast.schedule import chain
from tx8fast.search import chains, staying
from tx8fast.simulator.cycle import simulate
from tx8fast.tile import pins
from tx8fast.tile.tiling import Stay

CHIP = MACHINES["tx8"]
WIDE: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1536}  # of a checkpoint


def residual_block(rows: int, width: int, inner: int) -> tuple[tuple[Arg, ...], Callable[..., Any]]:
    """A product added to what comes in, a norm with two more, and one that closes and is added to what the first one made."""
    args = [Arg((rows, width), "bf16", "blocked")]
    args += [
        Arg(s, "bf16", "blocked", -0.1, 0.1) for s in ((width, width), (width, inner), (width, inner), (inner, width))
    ]

    def body(b, x, first, gate, up, down, gain):
        make = lambda kind, *v: b.op(kind, *v, mem_layout="blocked").results[0]  # noqa: E731
        h = make("add", make("gemm", x, first), x)
        y = make("rmsnorm", h, gain)
        z = make("swiglu", make("gemm", y, gate), make("gemm", y, up))
        return [make("add", make("gemm", z, down), h)]

    return (*args, Arg((width,), "bf16")), body


@pytest.fixture()
def stays(monkeypatch: pytest.MonkeyPatch) -> list[Stay]:
    """What may stay does, whatever it costs; returns what has stayed in launches that were built."""
    cost, place = chains.Chains._cost, chain.pins
    built: list[Stay] = []

    def cheap(of: chains.Chains, path, holds, closely: bool = False):
        held, cycles = cost(of, path, holds, closely)
        return held, cycles // 16 if chains.stays_of(path, holds) else cycles

    def placed(nests, holds, found, machine):
        built.extend(found)
        return place(nests, holds, found, machine)

    monkeypatch.setattr(chains.Chains, "_cost", cheap)
    monkeypatch.setattr(chain, "pins", placed)
    return built


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.parametrize("rows, width, inner", [
    (256, 512, 1536), (128, 384, 1280), (200, 256, 2048), (91, 256, 1100), (57, 320, 1152), (121, 192, 2100),
])  # fmt: skip
@pytest.mark.slow
def test_a_value_that_is_added_again_stays(stays: list[Stay], rows: int, width: int, inner: int) -> None:
    """Also of rows that do not divide: the last tiles' slices lie closer together."""
    case = build(*residual_block(rows, width, inner), opt=2)
    assert stays
    check(case, tolerance=0.05)
    assert not findings(case.program)


@pytest.mark.usefixtures("small", "eager", "stays")
@pytest.mark.parametrize("rows, width, inner", [(256, 512, 1536), (200, 256, 2048)])
def test_what_stays_does_not_cross_the_ddr(rows: int, width: int, inner: int) -> None:
    """The launch has the bound of what its nests take in and of its result."""
    case = build(*residual_block(rows, width, inner), opt=2)
    (group,) = [g for g in simulate(case.program).groups if g.roofline.useful_macs]
    assert group.roofline.useful_macs == rows * (width * width + 3 * width * inner)
    assert group.roofline.unique_ddr_bytes == 2 * (2 * rows * width + width * width + 3 * width * inner + width)


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.slow
def test_values_do_not_depend_on_what_stays(tmp_path: Path, stays: list[Stay], monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path, **WIDE)
    ids = np.arange(2, 35)[None] % 31
    some = tx8fast.compile(tmp_path, seq=33, dtype="bf16")
    assert stays
    stays.clear()
    monkeypatch.setattr(chains, "with_stays", lambda path, *_: list(path))
    none = tx8fast.compile(tmp_path, seq=33, dtype="bf16")
    assert not stays
    a, b = (c.run({c.inputs[0].name: ids}, sanitize=True) for c in (some, none))
    assert all(np.array_equal(a[k], b[k]) for k in b)


def _edit(change: Callable[[dict[str, Any]], Any], path: Path) -> None:
    data = json.loads(path.read_text())
    (plan,) = [p for p in data["plans"].values() if any(n["delivered"] for n in p["nests"])][:1]
    change(plan)
    path.write_text(json.dumps(data))


@pytest.mark.usefixtures("small", "eager")
def test_saved_plans_say_what_stays(tmp_path: Path, stays: list[Stay]) -> None:
    make_checkpoint(tmp_path, **WIDE)
    path = tmp_path / "plans.json"

    def loaded() -> CompiledProgram:
        return tx8fast.compile(tmp_path, seq=33, dtype="bf16", load_plans=str(path))

    first = tx8fast.compile(tmp_path, seq=33, dtype="bf16")
    assert first.searched is not None
    text, stayed = first.searched.text(), [*stays]
    stays.clear()
    path.write_text(text)
    again = loaded()
    assert stays == stayed
    a, b = ([bytes(c) for s in x.program.segments for c in s.codes] for x in (first, again))
    assert a == b
    (stay,) = {*stayed}
    for change in (
        lambda nests: nests[stay.reader].update(delivered=[0, stay.operand]),  # also what nobody has left
        lambda nests: nests[stay.maker].update(kept=[]),  # it was not left
    ):
        data = json.loads(text)
        change(next(p["nests"] for p in data["plans"].values() if p["nests"][-1]["delivered"] == [stay.operand]))
        path.write_text(json.dumps(data))
        with pytest.raises(ConfigError):
            loaded()


@pytest.mark.usefixtures("small", "eager")
@pytest.mark.slow
def test_what_a_nest_between_writes_over_does_not_stay(stays: list[Stay], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next nest may have the bytes as its operand's buffer, too."""
    place, over = staying.pins, False

    def shared(nests, holds, found, machine):
        places = place(nests, holds, found, machine)
        for s in found:
            places[s.maker + 1].pinned[0] = places[s.maker].pinned[s.result]
        return places

    monkeypatch.setattr(staying, "pins", shared)
    monkeypatch.setattr(staying, "overwritten", lambda how: {0} if over else set())
    for over in (False, True):  # noqa: B007
        stays.clear()
        build(*residual_block(256, 512, 1536), opt=2)
        assert bool(stays) != over


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=12))
def test_what_is_in_use_at_once_lies_apart(wanted: list[tuple[int, int, int, bool]]) -> None:
    """Regions at both ends, as nests come to leave them, and the room between."""
    ends = pins._Ends(CHIP)
    for size, first, more, low_end in sorted(wanted, key=lambda w: w[1]):
        ends.take(size, first, first + more, low_end)
    for nest in range(9):
        taken = sorted((r.address, r.size_bytes) for r in ends.regions if r.first <= nest <= r.last)
        assert all(a + n <= b for (a, n), (b, _) in zip(taken, taken[1:], strict=False))
        lo, hi = pins.free_room(CHIP, taken)
        assert CHIP.spm_base <= lo <= hi <= CHIP.spm_limit
        assert all(a + n <= lo or hi <= a for a, n in taken)
        gaps = [
            b - a - n
            for (a, n), (b, _) in zip([(CHIP.spm_base, 0), *taken], [*taken, (CHIP.spm_limit, 0)], strict=True)
        ]
        assert hi - lo + 255 >= max(gaps)  # it begins where a buffer may
