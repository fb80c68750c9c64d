"""The instruction set against the manual's count: 211 operations, named by engine (manual 8.2, 8.3, 9 to 14)."""

import numpy as np
import pytest
from isa_state import A, code, new_state

from tests.support.plain import plain_machine
from tx8fast import isa
from tx8fast.simulator import exact
from tx8fast.simulator.state import run_row

MACHINE = plain_machine()
VV, FORMS = ("vv",), ("vv", "vs", "vuv", "vuvloop")
RELATIONS = ("eq", "ne", "ge", "gt", "le", "lt")
LOGIC = ("and", "or", "xor")
FLOATS = ("f16", "bf16", "f32", "tf32")
NARROW = ("i8", "i16", "i32")
CONVERSIONS = (
    [f"{i}_{f}" for i in NARROW for f in FLOATS]
    + [f"{a}_{b}" for a in ("bf16", "f16", "f32", "tf32") for b in (*NARROW, *(f for f in FLOATS if f != a))]
)  # fmt: skip

#: operation -> the instruction that does it; forms of one instruction are several operations
GROUPS = {
    "arithmetic": [f"{f}_v" for f in ("abs", "recip", "square", "sqrt", "rsqrt", "neg")]
    + [f"{f}_{form}" for f in ("max", "min", "add", "sub", "mul", "div") for form in FORMS],
    "relation": [f"{bits}{f}_{form}" for f in RELATIONS for bits in ("", "bool_") for form in FORMS],
    "logic": [f"{bits}{name}" for bits in ("", "bool_") for name in
              ("not_v", *(f"{f}_{form}" for f in LOGIC for form in ("vv", "vuv", "vuvloop")))],
    "transcendental": [f"{f}_v" for f in ("log2", "ln", "pow2", "exp", "exp_lp", "sin", "cos")],
    "activation": [f"{f}_v" for f in ("tanh", "sigmoid", "relu", "satrelu", "leakyrelu", "softplus")],
    "reduce and pool": [f"reduce_{f}" for f in ("sum", "avg", "max", "min")]
    + [f"pool_{f}" for f in ("avg", "sum", "max", "max_indexed", "min", "min_indexed")]
    + ["unpool", "unpool_avg", "mask_unpool"],
    "data movement": ["mirror", "transpose", "rotate90", "rotate180", "rotate270", "nchw2nhwc", "nhwc2nchw", "concat",
                      "pad", "tensor_norm", "mask_move", "gather_scatter", "mask_gather", "mask_gather_b", "img2col"],
    "conversion": [f"cvt_{pair}" for pair in CONVERSIONS],
    "peripheral": ["count", "bitcount", "argmax", "argmin", "memset", "factorize", "bit2fp", "bilinear", "lut16",
                   "lut32", "rand_gen", "elem_mask"],
    "matrix": ["conv", "depthwise", "backward_conv", "gemm"],
    "ddr": ["rdma", "wdma"],
    "scalar": [f"scalar_{f}" for f in ("recip", "sqrt", "sin", "cos", "log2", "pow2")],
    # one destination and several are one instruction: the mode word follows from the mask
    "transfer": ["send", "send", "scatter", "gather"],
    "synchronisation": ["wait", "wait_worker", "barrier", "barrier_sub", "handshake", "send_wait", "recv", "fence"],
}  # fmt: skip
COUNTS = {"arithmetic": 30, "relation": 48, "logic": 20, "transcendental": 7, "activation": 6, "reduce and pool": 13,
          "data movement": 15, "conversion": 36, "peripheral": 12, "matrix": 4, "ddr": 2, "scalar": 6, "transfer": 4,
          "synchronisation": 8}  # fmt: skip
#: operations per engine; the moves of manual 8.2 run on the TDMA
ENGINES = {"ct": 175, "tdma": 12, "ne": 4, "rdma": 1, "wdma": 1, "scalar": 6, "dte": 4, "sync": 8}
#: not instructions of the chip: loops of the code, calls of kernel-core routines, transfers whose address it looks up
OURS = {"loop", "end", "kcore", "rdma_row", "tdma_row"}


def test_all_211_operations_are_declared_once():
    assert {group: len(names) for group, names in GROUPS.items()} == COUNTS
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == 211
    assert set(names) | OURS == set(isa.INSTRUCTIONS)
    assert len(set(names)) == 210, "send stands for two operations"
    engines = [isa.INSTRUCTIONS[name].UNIT for name in names]
    assert {e: engines.count(e) for e in ENGINES} == ENGINES
    opcodes = [cls.OPCODE for cls in isa.INSTRUCTIONS.values()]
    assert len(set(opcodes)) == len(opcodes)


def test_every_operation_has_a_cost_ranges_and_a_meaning():
    for name, cls in isa.INSTRUCTIONS.items():
        row = isa.make_rows(name, 2, fmt="bf16", **dict.fromkeys(cls.FIELDS_SPM + cls.FIELDS_P, 1))
        cycles, _ = isa.durations(MACHINE, row, np.zeros(2, np.int64))
        assert cycles.shape == (2,) and cycles[0] == cycles[1] >= 0
        free = name in ("recv", "send_wait", "loop", "end")
        assert (cycles[0] == 0) == free, name
        spans = isa.ranges(row, np.zeros(2, np.int64))
        touches = any((v[..., 1] > v[..., 0]).any() for v in spans.values())
        assert touches == bool(cls.FIELDS_SPM), name
        assert (exact.meanings()[cls.OPCODE] is None) == (name in ("loop", "end")), name


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [("recip", 4.0, 0.25), ("sqrt", 2.25, 1.5), ("sin", 0.0, 0.0), ("cos", 0.0, 1.0), ("log2", 8.0, 3.0), ("pow2", -1.0, 0.5)],
)  # fmt: skip
@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
def test_scalar_unit(name, x, want, fmt):
    state = new_state()
    row = isa.rows([isa.make(f"scalar_{name}", fmt=fmt, value=isa.scalar_pattern(x, code(fmt)))])
    run_row(state, row[0], 0)
    assert state.wb == (isa.scalar_pattern(want, code(fmt)), 0)
    assert isa.issue_cycles(MACHINE, row).tolist() == [20 + 4 * 3]
    factor = 8 if name in ("sin", "cos") else 4
    size = 4 if fmt == "f32" else 2
    assert isa.durations(MACHINE, row, np.zeros(1, np.int64))[0].tolist() == [45 + -(-size * factor // 128)]


def test_message_setups():
    """A scatter sends part after part; runs narrower than a link cost a gather a cycle each."""

    def cycles(name, **fields):
        row = isa.rows([isa.make(name, src=A, dst=A, **fields)])
        return int(isa.durations(MACHINE, row, np.zeros(1, np.int64))[0][0]), isa.ranges(row, np.zeros(1, np.int64))

    assert cycles("scatter", bytes=1280, mask=0b1011)[0] == 100 + 3 * 10
    spans = cycles("scatter", bytes=1280, mask=0b1011)[1]
    assert spans["spm_read"][0, 0].tolist() == [A, A + 3 * 1280]
    assert spans["spm_write"][0, 0].tolist() == [A, A + 1280]
    narrow, spans = cycles("gather", bytes=640, mask=2, run_bytes=64, s0=256, n0=10)
    assert narrow == 100 + 10 and spans["spm_read"][0, 0].tolist() == [A, A + 9 * 256 + 64]
    assert cycles("gather", bytes=2048, mask=2, run_bytes=2048)[0] == cycles("send", bytes=2048, mask=2)[0] == 116
