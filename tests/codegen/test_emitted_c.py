"""Emitted C gives the bytes of the simulator, compiles without warnings as C11 and as C++17, and is the same text every time."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import tx8fast
from tests.simulator.planting import feed_of
from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA, small_cnn
from tests.support.emitted import CC, CXX, MORE, check_c, compile_c, figures, run_c
from tests.support.one_op import Arg, build
from tests.support.piece_streams import piece_streams
from tx8fast import api, isa
from tx8fast.api import CompiledProgram
from tx8fast.codegen.durations import duration_text
from tx8fast.codegen.program import program_text
from tx8fast.errors import ProgramError
from tx8fast.isa.comm import mask_of
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.options import CompileOptions
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Tensor
from tx8fast.simulator.cycle import simulate

pytestmark = [pytest.mark.toolchain, pytest.mark.skipif(not (CC and CXX), reason="no C or C++ compiler")]
MACHINE = load_machine("tx8")
A, B = 0x10000, 0x80000
OUT = DDR_BASE + (1 << 20)


def layer(tmp_path, **options):
    make_checkpoint(tmp_path, hidden=64, heads=4, kv_heads=2, intermediate=96, vocab=50, layers=1, dtype="bfloat16")
    return tx8fast.compile(tmp_path, **options)


def compiled(tmp_path, name):
    if name.startswith("level"):
        return layer(tmp_path, phase="prefill", seq=6, opt=int(name[-1]))
    if name == "decode fp32":
        return layer(tmp_path, phase="decode", past=7, dtype="fp32")
    if name == "cnn":
        return api.compile_ir(small_cnn(tmp_path), load_machine("tx8"), CompileOptions(dtype="bf16"), tmp_path)
    if name == "2x2":
        args = [Arg((9, 70), "bf16"), Arg((70, 130), "bf16", "blocked")]
        return CompiledProgram(build(args, lambda b, x, y: b("gemm", x, y), "test_2x2").program)
    return tx8fast.compile(DATA / "onnx" / name)


#: `make test-core` runs them all, with programs and model that check themselves
MODELS = [
    "level 2",
    "level 1",
    "level 3",
    "decode fp32",
    "cnn",
    "2x2",
    "qwen2-prefill-op23.onnx",
    "llama-decode-op23.onnx",
]


@pytest.mark.parametrize("name", MODELS if MORE else MODELS[:1])
def test_a_model_gives_the_simulators_bytes(tmp_path, name):
    made = compiled(tmp_path, name)
    same_figures(check_c(made, tmp_path / "c", feed_of(made.program), cxx=name == "level 2"), made)


@pytest.mark.parametrize("opt", [1, 2, 3] if MORE else [2])
def test_a_program_of_two_chips(tmp_path, opt):
    made = layer(tmp_path, phase="prefill", seq=6, tp=2, opt=opt)
    assert made.program.n_chips == 2 and any(t.per_chip for t in made.program.params)
    text = check_c(made, tmp_path / "c", feed_of(made.program))
    assert figures(text)["dte"][0] > 0 and " on chip 1: as expected" in text
    same_figures(text, made)


def same_figures(text, made):
    """Cycles that the C model counts are those of the cycle simulator; there transfers also wait for the DDR, messages for links, and
    all engines for banks of the scratchpad unless the machine has no conflicts."""
    machine = dict(made.program.machine)
    machine["tile"] = dict(machine["tile"], spm_model=1)
    timed = simulate(replace(made.program, machine=machine))
    chips = made.program.n_chips  # alike, and the simulator's figures are those of one
    found, engines = figures(text), timed.counters["engines"]
    assert {u: n for u, (n, _) in found.items() if u in engines} == {
        u: chips * c["instructions"] for u, c in engines.items()
    }
    for unit in ("ct", "ne", "tdma", "kcore"):
        assert found[unit][1] == chips * timed.busy[unit], unit
    for unit in ("rdma", "wdma", "dte"):
        assert (found[unit][1] == 0) == (timed.busy[unit] == 0) and found[unit][1] <= chips * timed.busy[unit], unit
    assert f"\nddr: {chips * timed.ddr_bytes} bytes\n" in text


def tensors(size_in, size_out):
    def one(name, address, size):
        return Tensor(name, (size,), "u8", "u8", "dense", address, size)

    return {"inputs": [one("x", DDR_BASE, size_in)], "outputs": [one("y", OUT, size_out)]}


def program(codes, tile_code=None, in_step=0, out_step=0, size_in=1 << 16, size_out=1 << 16, launches=1):
    """One segment; slot 0 begins at the input, slot 1 at the output, each tile a step further."""
    offset = np.array([[t * in_step, t * out_step] for t in range(16)])
    made = make_segment(MACHINE, "s", codes, tile_code, [0, 1], offset)
    return make_program(
        MACHINE, [made], [(0, [DDR_BASE, OUT])] * launches, ddr_bytes=1 << 21, **tensors(size_in, size_out)
    )


def scattered(size):
    """Every tile loads 16 parts and sends part t to tile t, and what it then has on as a broadcast of its row of tiles."""
    codes = []
    for tile in range(16):
        row = mask_of(range(tile // 4 * 4, tile // 4 * 4 + 4))
        b = CodeBuilder().add("rdma", dst=A, run_bytes=16 * size, slot=0).add("wait").add("barrier")
        b.add("scatter", src=A, dst=B + tile * size, bytes=size, mask=0xFFFF).add("recv", monitor=0, bytes=16 * size)
        b.add("send_wait").add("barrier_sub", mask=row)
        b.add(
            "gather",
            src=B,
            dst=A + tile * size,
            bytes=size,
            mask=1 << (tile + 1) % 16,
            monitor=1,
            run_bytes=size // 4,
            s0=size,
            n0=4,
        )
        b.add("recv", monitor=1, bytes=size).add("send_wait")
        b.add("wdma", src=B, run_bytes=16 * size, slot=1).add("wdma", src=A, run_bytes=16 * size, slot=1, ddr=16 * size)
        codes.append(b.finish().code())
    return program(codes, list(range(16)), 16 * size, 32 * size, 256 * size, 512 * size, launches=2)


def streamed():
    """Tile 0 streams pieces to tile 1. Other tiles are idle."""
    one, two = piece_streams(A, B, parts=2)
    return program([one.finish().code(), two.finish().code()], [0, 1] + [-1] * 14, size_out=5 * 512)


@pytest.mark.parametrize("made", [scattered(256), streamed()], ids=["scattered", "streamed"])
def test_messages_between_tiles(tmp_path, made):
    text = check_c(made, tmp_path, feed_bytes(made))
    assert figures(text)["dte"][0] > 0
    same_figures(text, CompiledProgram(made))


def feed_bytes(made, seed=0):
    rng = np.random.default_rng(seed)
    return {t.name: rng.integers(0, 256, t.shape).astype(np.uint8) for t in made.inputs}


def test_products_with_all_that_follows_them(tmp_path):
    """Every member that fills in the packet of a product or a convolution."""
    b = CodeBuilder().add("rdma", dst=A, run_bytes=1 << 16, slot=0).add("wait")
    common = {
        "psum_en": 1,
        "psum": A + 0x8000,
        "bias_en": 1,
        "bias": A + 0x100,
        "scale_p": A + 0x300,
        "scale_n": A + 0x500,
    }
    b.add("gemm", fmt="bf16", left=A, right=A + 0x2000, out=B, m=5, k=70, n=66, out_fmt=5, act=1, **common)
    b.add(
        "gemm",
        fmt="f16",
        left=A,
        right=A + 0x2000,
        out=B + 0x2000,
        m=5,
        k=20,
        n=9,
        out_fmt=2,
        act=2,
        l_trs=1,
        r_trs=1,
        batch_l=2,
    )
    b.add("gemm", fmt="i8", left=A, right=A + 0x2000, out=B + 0x4000, m=5, k=20, n=9, out_fmt=0,
          quant=isa.pack_quant(q0=3, q1=2, zp_left=-1), scale_p=A)  # fmt: skip
    image = {
        "n": 1,
        "h": 5,
        "w": 4,
        "c": 8,
        "kx": 3,
        "ky": 2,
        "sx": 1,
        "sy": 2,
        "top": 1,
        "left": 1,
        "right": 1,
        "dx": 1,
        "fmt": "bf16",
    }
    b.add("conv", src=A, weight=A + 0x1000, out=B + 0x6000, oh=3, ow=4, oc=8, out_fmt=3, **image, **common)
    b.add("depthwise", src=A, weight=A + 0x1000, out=B + 0x7000, oh=3, ow=4, oc=8, out_fmt=3, **image)
    b.add("backward_conv", src=A, weight=A + 0x1000, out=B + 0x8000, oh=9, ow=4, oc=8, out_fmt=5, act=1, **image)
    made = program(
        [b.add("wait").add("wdma", src=B, run_bytes=0xA000, slot=1).finish().code()], [0] + [-1] * 15, size_out=0xA000
    )
    feed = np.random.default_rng(1).standard_normal(1 << 14).astype(np.float32).view(np.uint8)
    check_c(made, tmp_path, {"x": feed})


def test_tiles_that_differ_in_numbers_share_a_function(tmp_path):
    made = compiled(tmp_path, "level 2")
    text = "".join(program_text(made.program))
    k, segment = max(enumerate(made.program.segments), key=lambda found: len(found[1].codes))
    functions = text.count(f"static void group_{k}_")
    assert len(segment.codes) > 2 * functions > 0, "codes of tiles, and functions for all of them"
    assert f"struct group_{k}_a_shape *g = &group_{k}_a_shapes[row];" in text


def test_the_text_is_the_same_every_time_and_reads_no_weights(tmp_path):
    made = compiled(tmp_path, "level 2")
    text = "".join(program_text(made.program))
    made.save(tmp_path / "p.tx8")
    assert "".join(program_text(tx8fast.load(tmp_path / "p.tx8").program)) == text
    named = [(s.ops, np.unique(np.concatenate([c["op"] for c in s.codes]))) for s in made.program.segments]
    assert all(f"/* {ops[k]} */" in text for ops, found in named for k in found[found >= 0].tolist())
    for line in text.splitlines():
        assert "/*" not in line.split("/*", 1)[-1].removesuffix(" */") or line.startswith("/*")


def test_the_description_says_where_everything_lies(tmp_path):
    made = compiled(tmp_path, "level 1")
    feed = feed_of(made.program)
    made.emit_c(tmp_path / "c", inputs=feed)
    (chip,) = json.loads((tmp_path / "c" / "program.json").read_text())["chips"]
    assert (chip["tile_num"], chip["tile_x"], chip["tile_y"]) == (16, 4, 4)
    assert chip["param_num"] == len(made.program.params) and chip["input_num"] == len(feed)
    assert 0 < chip["imm_size"] < chip["ddr_bytes"] == made.program.ddr_bytes
    image = (tmp_path / "c" / "params.bin").read_bytes()
    assert len(image) == sum(t["size_bytes"] for t in chip["params"])
    sim = api.CompiledProgram(made.program, made.weights_dir)
    from tx8fast.program.params import param_arrays

    for (t, own), said in zip(param_arrays(sim.program, sim.weights_dir), chip["params"], strict=True):
        assert said["address"] == t.address - DDR_BASE and said["name"] == t.name
        assert image[said["file_offset"] :][: said["size_bytes"]] == own.tobytes()
    for t in (*chip["inputs"], *chip["outputs"]):
        assert t["dim"] == len(t["shape"]) and {"dtype", "format", "layout", "file"} <= set(t)
    assert (tmp_path / "c" / chip["inputs"][0]["file"]).stat().st_size == chip["inputs"][0]["size_bytes"]


def test_a_wrong_result_and_a_missing_file_are_told(tmp_path):
    made = program([CodeBuilder().add("rdma", dst=A, run_bytes=64, slot=0).add("wait").add("wdma", src=A, run_bytes=64, slot=1).finish().code()],
                   [0] + [-1] * 15, size_in=64, size_out=64)  # fmt: skip
    check_c(made, tmp_path, feed_bytes(made))
    (tmp_path / "expected_0.bin").write_bytes(bytes(64))
    ran = run_c(tmp_path / "program")
    assert ran.returncode == 1 and "y: " in ran.stdout and "elements differ, the first is 0" in ran.stdout
    (tmp_path / "in_0.bin").write_bytes(bytes(63))
    ran = run_c(tmp_path / "program")
    assert ran.returncode == 2 and ran.stderr == "error: cannot read the bytes of x\n"


def wrong(*rows):
    b = CodeBuilder()
    for name, fields in rows:
        b.add(name, **fields)
    return program([b.finish().code()], [0] + [-1] * 15)


def test_tiles_that_wait_without_end_are_told(tmp_path):
    made = wrong(("rdma", {"dst": A, "run_bytes": 64, "slot": 0}), ("handshake", {"peer": 3}))
    CompiledProgram(made).emit_c(tmp_path)
    (tmp_path / "in_0.bin").write_bytes(bytes(1 << 16))
    ran = run_c(compile_c(tmp_path))
    assert ran.returncode == 2
    assert "error: running the program: no tile can go on: tile 0 at a handshake; tile 1 at a barrier;" in ran.stderr


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (("neg_v", {"fmt": "f32", "src0": A, "dst": A, "n": 4, "rnd": 1}), "no parameter for rnd"),
        (("add_vv", {"fmt": "bf16", "src0": A, "src1": A, "dst": A, "n": 4, "rnd": 4}), "how many instructions ran before"),
        (("reduce_sum", {"fmt": "bf16", "src0": A, "dst": B, "dim": 0, "n": 1, "h": 1, "w": 65536, "c": 4}), "w is 65536, the C interface takes"),
        (("scalar_sin", {"fmt": "f32", "value": 0}), "no function for it"),
    ],
    ids=["rounding", "stochastic", "shape", "scalar"],
)  # fmt: skip
def test_what_c_cannot_say_is_refused(tmp_path, row, text):
    with pytest.raises(ProgramError, match=f"(?s)writing C for segment 's', instruction 0 .*{text}"):
        CompiledProgram(wrong(row)).emit_c(tmp_path / "c")
    assert not list(tmp_path.iterdir())


def test_durations_hold_no_function_that_nobody_calls():
    """Some compilers warn of those in the file they compile."""
    for made in (scattered(256), streamed()):
        text = "".join(duration_text(made))
        for name in re.findall(r"static inline int64_t (\w+)\(", text):
            assert len(re.findall(rf"\b{name}\(", text)) > 1, name


def test_a_program_without_launches_does_nothing(tmp_path):
    """Of a model whose results are constants."""
    check_c(
        make_program(MACHINE, [], [], ddr_bytes=1 << 21, **tensors(64, 64)), tmp_path, {"x": np.zeros(64, np.uint8)}
    )
