"""Random legal rows of the vector, move, matrix and transfer engines on a few regions of one scratchpad, for hypothesis.

Which instructions there are and which formats each takes is read from the declarations of the instruction set."""

from __future__ import annotations

from hypothesis import strategies as st

from tx8fast import isa
from tx8fast.isa.vector import ScalarVS, UnitLoop, UnitVuV
from tx8fast.machine import DDR_BASE
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES

BASE, REGION, REGIONS = 0x10000, 0x2000, 6
NAMES = sorted(n for n, cls in isa.INSTRUCTIONS.items() if cls.UNIT in ("ct", "tdma", "ne", "rdma", "wdma"))
#: of the matrix engine's results
FLOATS = ("f32", "bf16", "f16", "tf32")


def region(draw, apart=()):
    """Return the start of a region that is not in `apart`."""
    free = [BASE + k * REGION for k in range(REGIONS) if BASE + k * REGION not in apart]
    return draw(st.sampled_from(free))


def small(draw, low=1, high=4):
    return draw(st.integers(low, high))


def _vector(draw, name, cls, fmt):
    f = {}
    if issubclass(cls, UnitLoop):
        repeat, f["full_unit"] = small(draw, 1, 2), small(draw, 1, 150)
        f |= {"n": 64 * repeat, "unit": 64, "full": repeat * f["full_unit"]}
    elif issubclass(cls, UnitVuV):
        f["unit"] = small(draw, 1, 16)
        f["n"] = f["unit"] * small(draw)
    else:
        f["n"] = small(draw, 1, 70)
    if issubclass(cls, ScalarVS):
        f["scalar"] = draw(st.integers(0, 2**32 - 1) | st.sampled_from([0, 0x3F800000, 0xBF80, 0x3C00, 0x80000000]))
    for field in cls.FIELDS_SPM:
        f[field] = region(draw)
    return f


def _convert(draw, name, cls, fmt):
    _, src, dst = name.split("_")
    a = region(draw)
    out = a if ITEM_BYTES[src] >= ITEM_BYTES[dst] and draw(st.booleans()) else region(draw, (a,))
    return {"n": small(draw, 1, 70), "zp": small(draw, 0, 9) if src == "i8" else 0, "src0": a, "dst": out}


def _levels(draw, prefix="", size=1, counts=None):
    """Return strided runs of `size` bytes that do not overlap, at most 12 of them."""
    counts = counts or [small(draw, 1, 3), small(draw, 1, 2), small(draw, 1, 2)]
    f, step = {}, size
    for k, n in enumerate(counts):
        gap = small(draw, 0, 8)
        f |= {f"{prefix}s{k}": step + gap, f"{prefix}n{k}": n}
        step = (step + gap) * n
    return f


def _moves(draw, name, cls, fmt):
    a = region(draw)
    f = {
        "src0": a,
        "dst": region(draw, (a,)),
    }
    if name == "gather_scatter":
        size, counts = small(draw, 1, 20), [small(draw, 1, 3), small(draw, 1, 2), small(draw, 1, 2)]
        return (
            f
            | {"size": size}
            | _levels(draw, "s", size, counts)
            | _levels(draw, "d", size, draw(st.permutations(counts)))
        )
    if name == "memset":
        f.pop("src0")
        size = ITEM_BYTES[fmt]
        levels = _levels(draw, "", 5 * size)
        return f | {k: v * (size if k[0] == "s" else 1) for k, v in levels.items()} | {
            "n": small(draw, 1, 5), "value": draw(st.integers(0, 2**32 - 1))}  # fmt: skip
    shape = {"n": small(draw, 1, 2), "h": small(draw), "w": small(draw), "c": small(draw, 1, 9)}
    if name in ("pad", "img2col"):
        shape |= {k: small(draw, 0, 2) for k in ("top", "bottom", "left", "right")}
    if name == "img2col":
        shape |= _window(draw, shape)
    if name == "tensor_norm":
        shape |= {
            "c": small(draw, 1, 140),
            "h": small(draw, 1, 2),
            "w": small(draw, 1, 2),
            "inverse": small(draw, 0, 1),
        }
    return f | shape


def _window(draw, shape):
    h = shape["h"] + shape.get("top", 0) + shape.get("bottom", 0)
    w = shape["w"] + shape.get("left", 0) + shape.get("right", 0)
    return {
        "kx": small(draw, 1, min(w, 3)),
        "ky": small(draw, 1, min(h, 3)),
        "sx": small(draw, 1, 3),
        "sy": small(draw, 1, 3),
    }


def _tensor(draw, name, cls, fmt):
    a = region(draw)
    b = region(draw, (a,))
    f = {"src0": a, "dst": b,
         "n": small(draw, 1, 2), "h": small(draw), "w": small(draw), "c": small(draw, 1, 70)}  # fmt: skip
    if name.startswith("reduce"):
        return f | {"dim": draw(st.sampled_from([0, 1, 2, 4]))}
    f["c"] = small(draw, 1, 40)
    if name.startswith("pool"):
        f |= {k: small(draw, 0, 1) for k in ("top", "bottom", "left", "right")}
        f |= _window(draw, f)
        return f | ({"index": region(draw, (a, b))} if "indexed" in name else {})
    f |= {"kx": small(draw, 1, 3), "ky": small(draw, 1, 3), "sx": small(draw, 1, 3), "sy": small(draw, 1, 3)}
    f |= {"oh": (f["h"] - 1) * f["sy"] + f["ky"], "ow": (f["w"] - 1) * f["sx"] + f["kx"]}
    if name == "mask_unpool":
        return f | {"index_src": region(draw, (b,))}
    return f | {"index": draw(st.integers(0, f["kx"] * f["ky"] - 1)) if name == "unpool" else 0}


def _peripheral(draw, name, cls, fmt):
    f = {"n": small(draw, 1, 40)}
    taken: list[int] = []
    for field in cls.FIELDS_SPM:
        f[field] = region(draw, taken)
        taken.append(f[field])
    if name.startswith("lut"):
        f["entries"] = 64
    if name == "elem_mask":
        f["prob"] = draw(st.sampled_from([0, 0x3F000000, 0x3F800000]))
    if name == "bilinear":
        f |= {"n": 1, "h": small(draw), "w": small(draw), "c": small(draw), "oh": small(draw), "ow": small(draw)}
        f |= {k: draw(st.sampled_from([0, 0x3F000000, 0x3F800000, 0x3EAAAAAB])) for k in ("scale_w", "scale_h")}
    if name == "concat":
        f |= {
            "dim": small(draw, 0, 2),
            "n": 2,
            "h": small(draw),
            "w": small(draw),
            "c": small(draw),
            "size1": small(draw),
        }
    return f


def _dma(draw, name, cls, fmt):
    size = small(draw, 1, 40)
    levels = _levels(draw, "", size)
    return {"run_bytes": size, "ddr": DDR_BASE + small(draw, 0, 64), cls.FIELDS_SPM[0]: region(draw)} | levels


def _lookup(draw, name, cls, fmt):
    """A row of a small table; `fresh` of the tests says where slot 0 is, and puts the number right."""
    size, entries, stride = small(draw, 1, 20), small(draw, 1, 5), draw(st.integers(0, 40))
    a = region(draw)
    f = {"stride": stride, "entries": entries, "index_slot": 0, "index_ddr": 2048 + small(draw, 0, 9), "dst": a,
         }  # fmt: skip
    if name == "rdma_row":
        return f | {"run_bytes": size, "ddr": DDR_BASE + small(draw, 0, 64)}
    n = small(draw, 1, 3)
    f |= {"src0": region(draw, (a,)), "size": size, "sn0": n, "dn0": n}
    return f | {"ss0": draw(st.integers(0, 30)), "ds0": size + small(draw, 0, 8)}


def _after(draw, fmt, out):
    """What is done to sums: their operands lie where nothing is written but `out`, in which they may be, too."""
    whole = fmt in ("i8", "u8")
    f = {
        "act": small(draw, 0, 2),
        "bias_en": small(draw, 0, 1),
        "bias": BASE + 3 * REGION,
        "psum_en": small(draw, 0, 1),
    }
    f["out_fmt"] = FORMAT_CODES[draw(st.sampled_from(FLOATS + (("i8", "i32") if whole else ())))]
    f |= {"psum": BASE + 4 * REGION, "psum_fmt": FORMAT_CODES[draw(st.sampled_from(("i32",) if whole else FLOATS))]}
    if draw(st.booleans()):
        f |= {"psum": out, "psum_fmt": f["out_fmt"]}
    if draw(st.booleans()):
        f |= {"scale_p": BASE + 3 * REGION, "scale_n": BASE + 3 * REGION + 256 * small(draw, 0, 2)}
    if whole and draw(st.booleans()):
        f["quant"] = isa.pack_quant(enabled=draw(st.booleans()), q0=small(draw, 0, 31), q1=small(draw, 0, 31),
                                    **{z: small(draw, -99, 99) for z in ("zp_left", "zp_right", "zp_out")})  # fmt: skip
    return f


def _matrix(draw, name, cls, fmt):
    """Operands in the first regions, as much as a region holds of the result behind them."""
    a, b, out = BASE, BASE + REGION * small(draw, 0, 1), BASE + REGION * (REGIONS - 1)
    f = {**_after(draw, fmt, out), "out": out}
    if name == "gemm":
        left, right = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
        f |= {"left": a, "right": b, "m": small(draw, 1, 8), "k": small(draw, 1, 40), "n": small(draw, 1, 90), "batch_l": left,
              "batch_r": right, "bias_fmt": FORMAT_CODES[draw(st.sampled_from(FLOATS))]}  # fmt: skip
        return f | {turned: small(draw, 0, 1) for turned in ("l_trs", "r_trs")}
    size = {k: small(draw, 1, 3) for k in ("kx", "ky", "sx", "sy")} | {"n": small(draw, 1, 2), "c": small(draw, 1, 16)}
    size |= {k: small(draw, 0, 2) for k in ("top", "bottom", "left", "right")}
    step = {k: 1 if name == "depthwise" else small(draw, 1, 2) for k in ("dx", "dy")}
    high, wide = (size["ky"] - 1) * step["dy"] + 1, (size["kx"] - 1) * step["dx"] + 1
    if name == "backward_conv":
        h, w = small(draw, 1, 2), small(draw, 1, 2)
        size |= {k: 0 for k in ("top", "bottom", "left", "right")}
        oh, ow = (h - 1) * size["sy"] + high, (w - 1) * size["sx"] + wide
    else:
        h = max(small(draw, 1, 5), high - size["top"] - size["bottom"])
        w = max(small(draw, 1, 5), wide - size["left"] - size["right"])
        oh = (h + size["top"] + size["bottom"] - high) // size["sy"] + 1
        ow = (w + size["left"] + size["right"] - wide) // size["sx"] + 1
    oc = size["c"] if name == "depthwise" else small(draw, 1, 16)
    return f | size | step | {"src": a, "weight": b, "h": h, "w": w, "oh": oh, "ow": ow, "oc": oc}


def _maker(name):
    cls = isa.INSTRUCTIONS[name]
    if issubclass(cls, isa.lookup.Lookup):
        return _lookup
    if cls.UNIT in ("rdma", "wdma"):
        return _dma
    if cls.UNIT in ("tdma", "ne"):
        return _moves if cls.UNIT == "tdma" else _matrix
    if name.startswith("cvt_"):
        return _convert
    if name.split("_")[0] in ("reduce", "pool", "unpool") or name == "mask_unpool":
        return _tensor
    if name.rsplit("_", 1)[-1] in ("v", "vv", "vs", "vuv", "vuvloop"):
        return _vector
    return _peripheral


@st.composite
def rows(draw, names=NAMES, formats=None):
    """Return a row of one of the instructions, in one of its formats or of `formats`."""
    name = draw(st.sampled_from(names))
    cls = isa.INSTRUCTIONS[name]
    fmt = draw(st.sampled_from(formats or cls.FORMATS))
    fields = _maker(name)(draw, name, cls, fmt)
    return isa.rows([isa.make(name, fmt=fmt, rnd=small(draw, 0, 4) if cls.UNIT in ("ct", "ne") else 0, **fields)])[0]
