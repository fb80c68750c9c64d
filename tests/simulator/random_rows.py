"""Random legal rows of the vector, move and transfer engines on a few regions of one scratchpad, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tx8fast import isa
from tx8fast.isa.vector import ScalarVS, UnitLoop, UnitVuV
from tx8fast.machine import DDR_BASE
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES

BASE, REGION, REGIONS = 0x10000, 0x2000, 6
FLOATS, INTS = ("f32", "bf16", "f16", "tf32"), ("i32", "i8", "u16")
NAMES = sorted(n for n, cls in isa.INSTRUCTIONS.items() if cls.UNIT in ("ct", "tdma", "rdma", "wdma"))
#: arithmetic that is also defined on integers
WHOLE = ("add", "sub", "mul", "max", "min", "eq", "ne", "ge", "gt", "le", "lt")
RAW = ("not", "and", "or", "xor")


def region(draw, apart=()):
    """Return the start of a region that is not in `apart`."""
    free = [BASE + k * REGION for k in range(REGIONS) if BASE + k * REGION not in apart]
    return draw(st.sampled_from(free))


def small(draw, low=1, high=4):
    return draw(st.integers(low, high))


def _vector(draw, name, cls):
    base = name.rsplit("_", 1)[0]
    bits, op = base.startswith("bool_"), base.removeprefix("bool_")
    logic = op in RAW
    fmt = draw(st.sampled_from(FLOATS + INTS if logic or op in WHOLE else FLOATS))
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
    return f | {"fmt": fmt, "out": fmt if not bits else None}


def _convert(draw, name, cls):
    _, src, dst = name.split("_")
    a = region(draw)
    out = a if ITEM_BYTES[src] >= ITEM_BYTES[dst] and draw(st.booleans()) else region(draw, (a,))
    return {"n": small(draw, 1, 70), "zp": small(draw, 0, 9) if src == "i8" else 0, "src0": a, "dst": out, "out": dst}


def _levels(draw, prefix="", size=1, counts=None):
    """Return strided runs of `size` bytes that do not overlap, at most 12 of them."""
    counts = counts or [small(draw, 1, 3), small(draw, 1, 2), small(draw, 1, 2)]
    f, step = {}, size
    for k, n in enumerate(counts):
        gap = small(draw, 0, 8)
        f |= {f"{prefix}s{k}": step + gap, f"{prefix}n{k}": n}
        step = (step + gap) * n
    return f


def _moves(draw, name, cls):
    a = region(draw)
    f = {"src0": a, "dst": region(draw, (a,)), "fmt": draw(st.sampled_from((*FLOATS, *INTS)))}
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
        size = ITEM_BYTES[f["fmt"]]
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


def _tensor(draw, name, cls):
    fmt = draw(st.sampled_from(FLOATS))
    a = region(draw)
    b = region(draw, (a,))
    f = {"fmt": fmt, "src0": a, "dst": b, "out": fmt,
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


def _peripheral(draw, name, cls):
    fmt = draw(st.sampled_from(FLOATS))
    f = {"fmt": fmt, "out": "f32" if name == "factorize" else fmt, "n": small(draw, 1, 40)}
    taken: list[int] = []
    for field in cls.FIELDS_SPM:
        f[field] = region(draw, taken)
        taken.append(f[field])
    if name.startswith("lut"):
        f |= {"entries": 64, "out": "u16"}
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


def _dma(draw, name, cls):
    size = small(draw, 1, 40)
    levels = _levels(draw, "", size)
    return {"run_bytes": size, "ddr": DDR_BASE + small(draw, 0, 64), cls.FIELDS_SPM[0]: region(draw)} | levels


def _lookup(draw, name, cls):
    """A row of a small table; `fresh` of the tests says where slot 0 is, and puts the number right."""
    size, entries, stride = small(draw, 1, 20), small(draw, 1, 5), draw(st.integers(0, 40))
    a = region(draw)
    f = {"stride": stride, "entries": entries, "index_slot": 0, "index_ddr": 2048 + small(draw, 0, 9), "dst": a,
         "fmt": draw(st.sampled_from(("i32", "u32", "i64")))}  # fmt: skip
    if name == "rdma_row":
        return f | {"run_bytes": size, "ddr": DDR_BASE + small(draw, 0, 64)}
    n = small(draw, 1, 3)
    f |= {"src0": region(draw, (a,)), "size": size, "sn0": n, "dn0": n}
    return f | {"ss0": draw(st.integers(0, 30)), "ds0": size + small(draw, 0, 8)}


def _maker(name):
    cls = isa.INSTRUCTIONS[name]
    if issubclass(cls, isa.lookup.Lookup):
        return _lookup
    if cls.UNIT in ("rdma", "wdma"):
        return _dma
    if cls.UNIT == "tdma":
        return _moves
    if name.startswith("cvt_"):
        return _convert
    if name.split("_")[0] in ("reduce", "pool", "unpool") or name == "mask_unpool":
        return _tensor
    if name.rsplit("_", 1)[-1] in ("v", "vv", "vs", "vuv", "vuvloop"):
        return _vector
    return _peripheral


@st.composite
def rows(draw, names=NAMES):
    """Return (row, format of its results or None where they are bits, moved bytes or registers)."""
    name = draw(st.sampled_from(names))
    cls = isa.INSTRUCTIONS[name]
    fields = _maker(name)(draw, name, cls)
    out = fields.pop("out", None)
    if name == "mask_move" or name.startswith("mask_gather") or name in ("count", "bitcount", "concat"):
        out = None
    rounds = name in ("elem_mask",) or out is not None and not name.startswith(("lut", "bit2fp", "rand"))
    rnd = draw(st.integers(0, 4)) if rounds and name != "factorize" else 0
    return isa.rows([isa.make(name, rnd=rnd, **fields)])[0], FORMAT_CODES[out] if out else None
