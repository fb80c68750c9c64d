"""Files of older versions still load: stored texts, upgrades of the generic tree, newer files."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.support.every_kind import every_kind
from tx8fast.errors import VerifyError
from tx8fast.ir import Builder, new_context
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import REQUIRED, OpInfo
from tx8fast.ir.program import IRProgram
from tx8fast.ir.verify import verify
from tx8fast.ir.versions import CURRENT, UPGRADES, read_text, stated_version

STORED = sorted((Path(__file__).parent / "versions").glob("v*.mlir"))


def version_of(path: Path) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", path.stem))


@pytest.mark.parametrize("path", STORED, ids=lambda p: p.stem)
def test_stored_files_load_verify_and_become_the_present_version(path):
    text = path.read_text()
    program = IRProgram.from_text(new_context(), text, filename=path.name)
    assert stated_version(program.ctx, text) == version_of(path)
    program.verify(2)
    assert program.module.attrs["ir_version"] == CURRENT
    assert [op.name for op in program.module.walk()] == re.findall(r'"((?:tx8be|toy)\.\w+)"\(', text)
    again = IRProgram.from_text(new_context(), program.text())
    assert again.same_as(program) and again.text() == program.text()


def test_there_is_a_file_of_each_version():
    assert [version_of(p)[0] for p in STORED] == [*range(1, CURRENT[0] + 1)]
    assert set(UPGRADES) == set(range(1, CURRENT[0]))


def test_one_module_of_every_kind_prints_parses_and_verifies():
    """Front-end, compute, in-place and back-end kinds, transfers and groups stand in one graph."""
    program = every_kind(new_context())
    program.verify(2)
    kinds = {op.kind for op in program.module.walk()}
    assert len(kinds) > 120 and {"gemm", "group", "load_const", "kv_update_", "set_param", "all_to_all"} <= kinds
    back = IRProgram.from_text(program.ctx, program.text())
    assert back.same_as(program) and back.text() == program.text()
    assert program.clone().text() == program.text()


def test_every_kind_states_the_version_it_came_with():
    assert all((1, 0) <= i.since <= CURRENT for i in new_context().infos.values())


def upgraded_context():
    """A dialect whose version 3 made the bound of `toy.cap` an operand."""
    ctx = new_context()
    ctx.register(OpInfo("toy.cap", len(ctx.infos), ("x", "bound"), ("y",), {"strict": (bool, REQUIRED)}))
    return ctx


OLD = """// a comment before the module
"tx8be.module"() <{ir_version = array<i64: 2, 0>}> ({
  "tx8be.func"() <{sym_name = "main"}> ({
  ^bb0(%0: !tx8be.vtensor<4xf32>):
    %1 = "toy.cap"(%0) <{bound = 6.0 : f64}> {rt_note = "kept"} : (!tx8be.vtensor<4xf32>) -> !tx8be.vtensor<4xf32> loc("a")
    %2:2 = "toy.gone"(%1) : (!tx8be.vtensor<4xf32>) -> (!tx8be.vtensor<4xf32>, !tx8be.none)
    "tx8be.return"(%2#0) : (!tx8be.vtensor<4xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""


def cap(tree, op):
    bound = tree.create("constant", (), [tree.tensor((), "f32")], value=DenseAttr(np.float32(op.attrs.pop("bound"))))
    op.block.insert_before(op, bound)
    new = tree.create(
        "toy.cap", [op.operands[0], bound.results[0]], [op.results[0].type], op.loc, strict=True, **op.attrs
    )
    op.block.insert_before(op, new)
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def gone(tree, op):
    op.results[0].replace_all_uses_with(op.operands[0])
    op.erase()


def test_an_upgrade_turns_an_attribute_into_an_operand():
    ctx = upgraded_context()
    steps = {
        2: [("toy.cap", cap), ("toy.gone", gone)],
        3: [("tx8be.func", lambda tree, op: op.attrs.update(rt_seen=True))],
    }
    module = read_text(ctx, OLD, current=(4, 0), upgrades=steps)
    verify(module)
    func = module.body.first
    assert [op.kind for op in func.body] == ["constant", "cap", "return"] and func.attrs["rt_seen"] is True
    made = list(func.body)[1]
    assert made.info is ctx.info("toy.cap") and made.loc == "a"
    assert made.attrs == {"strict": True, "rt_note": "kept"}
    assert made.operands[1].op.attrs["value"].splat() == 6.0
    with pytest.raises(VerifyError, match="f.mlir: after its upgrade: .*'strict' is required"):
        read_text(upgraded_context(), OLD, "f.mlir", (3, 0), {2: [("toy.cap", lambda t, op: op.attrs.clear())]})


def test_an_upgrade_must_exist_for_every_step():
    with pytest.raises(VerifyError, match="of version 2.0; nothing upgrades version 3"):
        read_text(upgraded_context(), OLD, current=(4, 0), upgrades={2: []})


def text_of(version: str) -> str:
    ctx = new_context()
    module = ctx.create("module", n_regions=1)
    f = Builder(ctx, module.regions[0].add_block()).op("func", sym_name="main", n_regions=1)
    Builder(ctx, f.regions[0].add_block()).op("return")
    return IRProgram(ctx, module).text().replace("array<i64: 2, 0>", version)


def test_newer_files_are_refused_or_warned_of():
    with pytest.raises(VerifyError, match=r"m.mlir: the text is of version 3.1, this compiler reads up to 2.x"):
        read_text(new_context(), text_of("array<i64: 3, 1>"), "m.mlir")
    with pytest.warns(UserWarning, match="version 2.7, newer than 2.0"):
        read_text(new_context(), text_of("array<i64: 2, 7>"))
    unknown = text_of("array<i64: 2, 7>").replace('"tx8be.return"', '"tx8be.leave"')
    with pytest.warns(UserWarning), pytest.raises(VerifyError, match="found 'tx8be.leave'"):
        read_text(new_context(), unknown)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_text(new_context(), text_of("array<i64: 2, 0>"))


def test_a_text_has_no_kind_younger_than_its_version():
    g = every_kind(new_context())
    late = sorted({op.name for op in g.module.walk() if op.info.since > (1, 0)})
    assert late and all(
        name.endswith("_") or name == "tx8be.map" or "tensor" in name or "view" in name for name in late
    )
    with pytest.raises(
        VerifyError, match=r"old.mlir: the text is of version 1.0 and has later kinds: .*relu_ \(since 2.0\)"
    ):
        read_text(new_context(), g.text().replace("array<i64: 2, 0>", "1 : i64", 1), "old.mlir")


@pytest.mark.parametrize("version", ['"new"', "array<i64: 2>", "[2 : i64]", "-1 : i64", "array<i64: 0, 1>",
                                     "array<i64: -9223372036854775808, 0>"])  # fmt: skip
def test_damaged_versions_are_diagnosed(version):
    with pytest.raises(VerifyError, match="version"):
        read_text(new_context(), text_of(version))
