"""The public C interface of the runtime: which member of which function table issues which instruction, declared once.

May import: isa, numerics, errors. Must not: know programs. The emitter takes calls from here, and so does the header and the
C model that executes them (`abi_text`).
Source: TX8 hardware manual 6.1, 6.2 (enumerations), 17.1-17.6 (names and parameters). An instruction is a packet: a member of
a table fills it in, `TsmExecute` issues it. The functions `__AddVV` and so on are left out: they name no worker, and some of
them wait for all engines. Where the manual lists such a function only, the member has its name and parameters. Three members
have parameters beside the manual's, without which they would not say what the instruction does: the operand's shape of
`Unpool`, the scales of `Bilinear`, the direction of `TensorNorm`; `Concat` has of its second operand the one size that may differ. `SetQuant` takes the word of `isa.quant`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tx8fast import isa
from tx8fast.isa import functions as fn
from tx8fast.isa.base import Instruction
from tx8fast.isa.convert import PAIRS
from tx8fast.numerics.formats import CODE_TO_DTYPE
from tx8fast.records import dataclass

#: format code -> name in the enumeration; codes from 14 on are ours, for tensors that only the kernel core touches
_CHIP_NAMES = {"f16": "FP16", "f32": "FP32", "bf16": "BF16", "tf32": "TF32", "pred": "BOOL", "f64": "FP64"}


def _format_name(dtype: str) -> str:
    if dtype in _CHIP_NAMES:
        return _CHIP_NAMES[dtype]
    if dtype[0] in "iu" and dtype[1:].isdecimal():
        return ("INT" if dtype[0] == "i" else "UINT") + dtype[1:]
    return dtype.upper()


FORMATS = {code: f"Fmt_{_format_name(dtype)}" for code, dtype in CODE_TO_DTYPE.items()}
ROUNDING = ("RND_NEAREST_EVEN", "RND_ZERO", "RND_POS_INF", "RND_NEG_INF", "RND_STOCHASTIC")
STOCHASTIC = ROUNDING.index("RND_STOCHASTIC")
#: units that take packets, and the classes of these
CLASSES = {"ct": "I_CGRA", "ne": "I_NEUR", "rdma": "I_RDMA", "wdma": "I_WDMA", "tdma": "I_TDMA"}
#: sizes of an operand that follow from the row's, in the order (n, h, w, c)
Derive = Callable[[dict[str, int]], tuple[int, int, int, int]]


@dataclass(frozen=True)
class Param:
    """One parameter. fields: the row's fields behind it, one for a number, up to four for a shape ("1": the number one).
    derive: of a shape that the row does not hold; the model does not read it."""

    ctype: str
    name: str
    fields: tuple[str, ...] = ()
    derive: Derive | None = None


@dataclass(frozen=True)
class Call:
    """A member of the table `table`; `Tsm` + Table is its type, table + `_pointer` where `getTsmOpPointer` has it. sets: fields
    whose values its name says."""

    table: str
    member: str
    params: tuple[Param, ...]
    sets: tuple[tuple[str, int], ...] = ()

    @property
    def type(self) -> str:
        return f"Tsm{self.table[0].upper()}{self.table[1:]}"


_SHAPES = {
    "shape": ("n", "h", "w", "c"),
    "pad": ("top", "bottom", "left", "right"),
    "swr": ("kx", "ky", "sx", "sy"),
    "out_shape": ("n", "oh", "ow", "c"),
    "result_shape": ("n", "oh", "ow", "oc"),
}
#: fields of more than 32 bits; "ddr" is the address in DDR, "type" the kind of a convolution
_WIDE = ("value", "ddr", "quant", "scale_n")


def _params(cls: type[Instruction], text: str, **derived: Derive) -> tuple[Param, ...]:
    """Return the parameters that a list of names stands for: fields, "fmt", "rnd", shapes, and shapes that are derived."""
    out = []
    for name in text.split():
        if name in derived:
            out.append(Param("Data_Shape", name, derive=derived[name]))
        elif name in cls.FIELDS_SPM:
            out.append(Param("uint64_t", name, (name,)))
        elif name in _SHAPES:
            out.append(Param("Data_Shape", name, _SHAPES[name]))
        else:
            out.append(Param("uint64_t" if name in _WIDE else "uint32_t", name, (name,)))
    return tuple(out)


_FUNCTIONS = {
    "exp_lp": "Explp",
    "eq": "Equal",
    "ne": "UnEqual",
    "ge": "GreaterEqual",
    "gt": "Greater",
    "le": "LessEqual",
    "lt": "LessThen",
}
_FORMS = {"v": "VV", "vv": "VV", "vs": "VS", "vuv": "VuV", "vuvloop": "VuVLoop"}
_ARGUMENTS = {
    "v": "src0 dst n",
    "vv": "src0 src1 dst n",
    "vs": "src0 scalar dst n",
    "vuv": "src0 src1 dst n unit",
    "vuvloop": "src0 src1 dst n unit full full_unit",
}


def _member(function: str) -> str:
    return _FUNCTIONS.get(function, function.capitalize())


def _vectors() -> dict[str, Call]:
    out = {}

    def add(table: str, name: str, member: str, more: str) -> None:
        form = name.rsplit("_", 1)[1]
        out[name] = Call(table, member, _params(isa.INSTRUCTIONS[name], f"{_ARGUMENTS[form]} {more}"))

    for opcode, name, _ in fn.UNARY:
        table = "arith" if opcode < 6 else "transcendental" if opcode < 105 else "activation"
        add(table, f"{name}_v", _member(name) + ("VV" if table == "arith" else ""), "fmt")
    for _, name, _ in fn.BINARY:
        for form in ("vv", "vs", "vuv", "vuvloop"):
            add("arith", f"{name}_{form}", _member(name) + _FORMS[form], "rnd fmt")
    for _, name in fn.RELATION:
        for form in ("vv", "vs", "vuv", "vuvloop"):
            add("relation", f"{name}_{form}", _member(name) + _FORMS[form], "fmt")
            add("relation", f"bool_{name}_{form}", f"Bool{_member(name)}{_FORMS[form]}", "fmt")
    add("logic", "not_v", "NotV", "fmt")
    add("logic", "bool_not_v", "BoolNotV", "")
    for name in fn.LOGIC:
        for form in ("vv", "vuv", "vuvloop"):
            add("logic", f"{name}_{form}", _member(name) + _FORMS[form], "fmt")
            add("logic", f"bool_{name}_{form}", f"Bool{_member(name)}{'V' if form == 'vv' else _FORMS[form]}", "")
    return out


def _conversions() -> dict[str, Call]:
    out = {}
    for _, src, targets in PAIRS:
        for dst in targets:
            name = f"cvt_{src}_{dst}"
            # which pairs round: TX8 hardware manual 10.3
            rounds = not (src == "i8" or dst == "i8" and src == "bf16" or (src, dst) in _EXACT_PAIRS)
            text = "src0 zp dst n" if src == "i8" else "src0 dst n rnd" if rounds else "src0 dst n"
            member = f"{_format_name(src)}_{_format_name(dst)}"
            out[name] = Call("convert", member, _params(isa.INSTRUCTIONS[name], text))
    return out


_EXACT_PAIRS = {
    ("i16", "f16"),
    ("bf16", "f16"),
    ("bf16", "f32"),
    ("bf16", "tf32"),
    ("f16", "f32"),
    ("f16", "tf32"),
    ("tf32", "f16"),
    ("tf32", "f32"),
}


def _padded(r: dict[str, int]) -> tuple[int, int, int, int]:
    return r["n"], r["h"] + r["top"] + r["bottom"], r["w"] + r["left"] + r["right"], r["c"]


def _columns(r: dict[str, int]) -> tuple[int, int, int, int]:
    _, height, width, _ = _padded(r)
    return r["n"], r["kx"] * r["ky"], ((height - r["ky"]) // r["sy"] + 1) * ((width - r["kx"]) // r["sx"] + 1), r["c"]


def _joined(r: dict[str, int]) -> tuple[int, int, int, int]:
    sizes = [r["n"], r["h"], r["w"], r["c"]]
    sizes[3 - r["dim"]] += r["size1"]
    return sizes[0], sizes[1], sizes[2], sizes[3]


#: order of the dimensions behind a move
_TURNED = {
    "mirror": "nhwc",
    "transpose": "nwhc",
    "rotate90": "nwhc",
    "rotate180": "nhwc",
    "rotate270": "nwhc",
    "nchw2nhwc": "nhwc",
    "nhwc2nchw": "nhwc",
}
_STRIDED = "ss2 ss1 ss0 sn2 sn1 sn0 ds2 ds1 ds0 dn2 dn1 dn0"
#: instruction, table, member, and its parameters
_PLAIN = [
    line.split(maxsplit=3)
    for line in """
pool_max_indexed  pool          IndexdMaxPool  src0 shape dst index pad swr fmt
pool_min_indexed  pool          IndexdMinPool  src0 shape dst index pad swr fmt
unpool            unPool        Unpool         src0 shape index dst out_shape swr fmt
unpool_avg        unPool        UnpoolAvg      src0 shape dst out_shape swr fmt
mask_unpool       unPool        UnpoolIdx      src0 shape index_src dst out_shape swr fmt
mask_move         maskDataMove  MaskMove       src0 dst n src1 fmt
mask_gather       maskDataMove  MaskGather     src0 src1 dst n fmt
mask_gather_b     maskDataMove  MaskGather_bV  src0 src1 dst n fmt
count             peripheral    Count          src0 n fmt
argmax            peripheral    ArgMax         src0 n fmt
argmin            peripheral    ArgMin         src0 n fmt
bitcount          peripheral    Bitcount       src0 n
factorize         peripheral    Factorize      src0 dst0 dst1 dst2 n
bit2fp            peripheral    Bit2Fp         src0 dst n fmt
bilinear          peripheral    Bilinear       src0 dst shape out_shape scale_w scale_h fmt
lut16             peripheral    Lut16          src0 dst table n entries
lut32             peripheral    Lut32          src0 dst table n entries
rand_gen          peripheral    RandGen        seed0 seed1 out_seed0 out_seed1 dst n fmt
elem_mask         peripheral    ElemMask       src0 scale dst n fmt prob rnd
memset            peripheral    Memset         dst value n s0 n0 s1 n1 s2 n2 fmt
tensor_norm       dataMove      TensorNorm     src0 shape dst inverse fmt
""".strip().splitlines()
]


def _others() -> dict[str, Call]:
    out = {}

    def add(name: str, table: str, member: str, text: str, **derived: Derive) -> None:
        out[name] = Call(table, member, _params(isa.INSTRUCTIONS[name], text, **derived))

    for kind in ("sum", "avg", "max", "min"):
        add(f"reduce_{kind}", "reduce", f"Reduce{kind.capitalize()}", "src0 dst dim shape fmt")
        add(f"pool_{kind}", "pool", f"{kind.capitalize()}Pool", "src0 shape dst pad swr fmt")
    for name, table, member, text in _PLAIN:
        add(name, table, member, text)
    for name, order in _TURNED.items():
        sizes = lambda r, order=order: (r[order[0]], r[order[1]], r[order[2]], r[order[3]])  # noqa: E731
        add(name, "dataMove", name.capitalize(), "src0 shape dst dst_shape fmt", dst_shape=sizes)
    add("pad", "dataMove", "Pad", "src0 shape dst dst_shape pad fmt", dst_shape=_padded)
    add("img2col", "dataMove", "Img2col", "src0 shape dst dst_shape swr pad fmt", dst_shape=_columns)
    add("concat", "dataMove", "Concat", "src0 shape src1 size1 dst dst_shape dim fmt", dst_shape=_joined)
    add("gather_scatter", "dataMove", "GatherScatter", f"src0 dst size {_STRIDED}")
    return out


@cache
def calls() -> dict[str, Call]:
    """Return the call of each instruction that one member of a table can say, by the instruction's name."""
    return _vectors() | _conversions() | _others()


def _steps(name: str, table: str, *members: str) -> tuple[Call, ...]:
    """Return members given as "Member parameter parameter"; "Member field=value" sets a field."""
    out = []
    for text in members:
        member, *words = text.split()
        sets = tuple((w.partition("=")[0], int(w.partition("=")[2])) for w in words if "=" in w)
        names = " ".join(w for w in words if "=" not in w)
        out.append(Call(table, member, _params(isa.INSTRUCTIONS[name], names), sets))
    return tuple(out)


_STRIDES = "run_bytes s0 n0 s1 n1 s2 n2"
_COMMON = (
    "SetPsum psum_en psum psum_fmt",
    "SetPositiveAxisScale scale_p",
    "SetNegativeAxisScale scale_n",
    "SetQuant quant",
    "EnableRelu act=1",
    "EnableLeakyRelu act=2",
)


@cache
def steps() -> dict[str, tuple[Call, ...]]:
    """Return, by instruction, the members that fill in one packet together (TX8 hardware manual 17.6)."""
    conv = _steps(
        "conv",
        "conv",
        "AddInput src shape fmt",
        "AddWeight weight",
        "AddOutput out result_shape out_fmt",
        "SetOpType type",
        "SetPads pad",
        "SetKernelStrides swr",
        "SetDilations dx dy",
        "AddBias bias_en bias",
        *_COMMON,
    )
    return {
        "rdma": _steps(
            "rdma", "rdma", "AddSrcDst ddr dst fmt", f"ConfigStrideIteration {_STRIDES}", "Rdma1d ddr dst run_bytes fmt"
        ),
        "wdma": _steps(
            "wdma", "wdma", "AddSrcDst src ddr fmt", f"ConfigStrideIteration {_STRIDES}", "Wdma1d src ddr run_bytes fmt"
        ),
        "gemm": _steps(
            "gemm",
            "gemm",
            "AddInput left right fmt",
            "ConfigMKN m k n",
            "ConfigBatch batch_l batch_r",
            "SetTransflag l_trs r_trs",
            "AddOutput out out_fmt",
            "AddBias bias_en bias bias_fmt",
            *_COMMON,
        ),
        **dict.fromkeys(("conv", "depthwise", "backward_conv"), conv),
    }
