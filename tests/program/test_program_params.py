"""Parameter images: rounding, layout, sources, and what is missing."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from tx8fast.errors import ProgramError
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.numerics.formats import convert, np_dtype
from tx8fast.numerics.layout import blocked_bytes, image_bytes, npc, unpack
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Tensor
from tx8fast.program.params import pack_param, param_arrays

MACHINE = load_machine("test_2x2")


def tensor(shape, /, ddr_dtype="bf16", layout="dense", size=None, embedded=-1, name="w", **source):
    item = {"f32": 4, "bf16": 2}[ddr_dtype]
    full = item * int(np.prod(shape)) if layout == "dense" else blocked_bytes(*npc(shape), ddr_dtype)
    return Tensor(
        name,
        shape,
        "f32",
        ddr_dtype,
        layout,
        DDR_BASE,
        full if size is None else size,
        source,
        embedded,
    )


def program(params, data=b""):
    segment = make_segment(MACHINE, "s", [CodeBuilder().finish().code()])
    return make_program(MACHINE, [segment], [(0, [])], params=params, data=data)


def test_dense_is_rounded_to_nearest_even_and_filled():
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -0.0], np.float32)
    raw = pack_param(x, tensor((4,), size=12))
    assert np.frombuffer(raw, "<u2").tolist() == [0x3F80, 0x3F80, 0x3F82, 0x8000, 0, 0]


def test_finite_numbers_beyond_the_range_become_the_largest():
    top = np.finfo(np.float32).max
    x = np.array([top, -top, np.inf, -np.inf, np.nan, 1.5], np.float32)
    got = np.frombuffer(pack_param(x, tensor((6,))), ml_dtypes.bfloat16).astype(np.float32)
    large = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert got[[0, 1, 2, 3, 5]].tolist() == [large, -large, np.inf, -np.inf, 1.5] and np.isnan(got[4])


@pytest.mark.parametrize("shape", [(129,), (3, 70), (2, 3, 5, 97), ()])
def test_blocked_layout_unpacks_to_the_same_values(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    t = tensor(shape, layout="blocked")
    raw = pack_param(x, t)
    assert len(raw) == t.size_bytes
    got = unpack(np.frombuffer(raw, np.uint8), *npc(shape), "bf16")
    assert np.array_equal(got.reshape(shape), x.astype(ml_dtypes.bfloat16))


def test_no_copy_when_the_bytes_already_fit():
    x = np.arange(6, dtype=np.float32)
    assert np.shares_memory(np.frombuffer(pack_param(x, tensor((6,), ddr_dtype="f32")), np.uint8), x)


def test_transforms():
    x = np.arange(24, dtype=np.float32)
    steps = [["reshape", [4, 6]], ["transpose", [1, 0]], ["slice", [1, 0], [3, 4]]]
    raw = pack_param(x, tensor((3, 4), ddr_dtype="f32", transform=steps))
    assert np.array_equal(np.frombuffer(raw, "<f4").reshape(3, 4), x.reshape(4, 6).T[1:4])
    for bad in (
        ["flip"],
        ["reshape", [5, 5]],
        ["slice", [0], [25]],
        ["slice", [-1], [3]],
        7,
        ["transpose", [0, 1]],
    ):
        with pytest.raises(ProgramError, match="'w': transform step"):
            pack_param(x, tensor((3, 4), ddr_dtype="f32", transform=[bad]))


def test_misfits_are_refused():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ProgramError, match=r"found shape \(2, 3\), required \(3, 2\)"):
        pack_param(x, tensor((3, 2)))
    with pytest.raises(ProgramError, match="12 bytes do not fit the 8"):
        pack_param(x, tensor((2, 3), size=8))
    with pytest.raises(ProgramError, match="layout 'odd'"):
        pack_param(x, tensor((2, 3), layout="dense", size=12).__class__(
            "w", (2, 3), "f32", "f32", "odd", DDR_BASE, 24))  # fmt: skip
    with pytest.raises(ProgramError, match="no conversion from complex64"):
        pack_param(x.astype(np.complex64), tensor((2, 3)))


def test_sources_file_embedded_and_derived(tmp_path):
    x = np.arange(12, dtype="<f4").reshape(3, 4)
    (tmp_path / "a.bin").write_bytes(b"head" * 2 + x.tobytes())
    place = {"file": "a.bin", "offset": 8, "nbytes": 48, "dtype": "f32", "shape": [3, 4]}
    params = [
        tensor((3, 4), name="file", **place),
        tensor((4, 3), name="turned", ddr_dtype="f32", transform=[["transpose", [1, 0]]], **place),
        tensor((5,), name="inside", embedded=2, ddr_dtype="bf16"),
        tensor((2, 2), name="made", ddr_dtype="f32", kind="derived", expr="fill", attrs={"value": 2.5},
               shape=[2, 2], dtype="f32"),
    ]  # fmt: skip
    found = {t.name: bytes(a) for t, a in param_arrays(program(params, bytes(range(20))), tmp_path)}
    assert found["file"] == x.astype(ml_dtypes.bfloat16).tobytes()
    assert found["turned"] == np.ascontiguousarray(x.T).tobytes()
    assert found["inside"] == bytes(range(2, 12))
    assert np.frombuffer(found["made"], "<f4").tolist() == [2.5] * 4
    for threads in (2, 3, 9):
        again = param_arrays(program(params, bytes(range(20))), tmp_path, threads=threads)
        assert {t.name: bytes(a) for t, a in again} == found
    assert len(list(param_arrays(program(params, bytes(range(20))), tmp_path / "a.bin"))) == 4
    (tmp_path / "b.bin").write_bytes(b"other weights")
    with pytest.raises(ProgramError, match="'.*b.bin' is not a weight file of this program; it reads a.bin"):
        param_arrays(program(params, bytes(range(20))), tmp_path / "b.bin")


def test_missing_files_are_named_together_before_anything_is_read(tmp_path):
    place = {"offset": 0, "nbytes": 8, "dtype": "f32", "shape": [2]}
    params = [tensor((2,), name=f"layer.{i}", file="gone.safetensors", **place) for i in range(12)]
    with pytest.raises(ProgramError) as e:
        param_arrays(program(params), tmp_path)
    text = str(e.value)
    assert "12 of 12" in text and "layer.9 (file gone.safetensors)" in text and "layer.10" not in text
    assert "and 2 more" in text and "--weights DIR" in text
    with pytest.raises(ProgramError, match="no file is known"):
        param_arrays(program([tensor((2,), kind="missing")]), tmp_path)


def test_short_files_and_data_are_errors(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"1234")
    place = {"file": "a.bin", "offset": 0, "nbytes": 8, "dtype": "f32", "shape": [2]}
    with pytest.raises(ProgramError, match="'w'"):
        list(param_arrays(program([tensor((2,), **place)]), tmp_path))
    for threads in (1, 2, 3):  # the first of the program's is told, whoever was faster
        wrong = [tensor((2,), name=name, **place) for name in ("first", "second", "third")]
        with pytest.raises(ProgramError, match="'first'"):
            list(param_arrays(program(wrong), tmp_path, threads=threads))
    with pytest.raises(ProgramError, match="data section has 3"):
        list(param_arrays(program([tensor((2,), embedded=0)], b"123"), tmp_path))


@pytest.mark.parametrize("layout", ["dense", "blocked"])
@pytest.mark.parametrize(
    ("src", "dst"), [("f32", "f32"), ("f32", "bf16"), ("f16", "bf16"), ("bf16", "f16"), ("i8", "i8")]
)
@pytest.mark.parametrize(
    ("shape", "order"), [((700, 333), (1, 0)), ((90, 70, 40), (2, 0, 1)), ((3, 300, 201), (0, 2, 1))]
)
def test_a_turned_parameter_is_laid_out_in_pieces_as_the_whole_is(layout, src, dst, shape, order):
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(shape) * 50).astype(np_dtype(src))
    want = convert(np.ascontiguousarray(x.transpose(order)), src, dst) if src != dst else x.transpose(order)
    size = image_bytes(want.shape, dst, layout)
    t = Tensor("w", want.shape, src, dst, layout, DDR_BASE, size + 5, {"transform": [["transpose", list(order)]]})
    room, calls = np.zeros(size + 5, np.uint8), []
    image = np.frombuffer(pack_param(x, t, room, lambda: calls.append(1)), np.uint8)
    assert np.shares_memory(image, room) and image.size == size + 5
    if layout == "blocked":
        got = unpack(image, *npc(want.shape), dst).reshape(want.shape)
    else:
        got = image[:size].view(np_dtype(dst)).reshape(want.shape)
    assert np.array_equal(got, want) and np.array_equal(image, np.frombuffer(pack_param(x, t), np.uint8))
    assert len(calls) > (x.size > 1 << 17)


def test_a_large_parameter_is_converted_piece_by_piece():
    x = np.zeros((4096, 1024), np.float32)
    t = tensor((1024, 4096), layout="blocked", transform=[["transpose", [1, 0]]])
    room = np.zeros(t.size_bytes, np.uint8)
    tracemalloc.start()
    pack_param(x, t, room)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20


@pytest.mark.parametrize(("src", "dst"), [("f16", "bf16"), ("bf16", "f16")])
def test_all_patterns_of_short_floats_are_converted_as_one_by_one(src, dst):
    patterns = np.arange(1 << 16, dtype=np.uint16).view(np_dtype(src))
    many = convert(np.tile(patterns, 2), src, dst).view(np.uint16).reshape(2, -1)
    one = np.concatenate([convert(part, src, dst) for part in np.split(patterns, 4)]).view(np.uint16)
    assert np.array_equal(many[0], one) and np.array_equal(many[1], one)
