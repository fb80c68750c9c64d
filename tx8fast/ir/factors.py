"""Factor rules of the op kinds, built from plain shapes and attributes.

May import: graph_table. Must not: know IR objects. Every function has the signature
`f(ins, outs, attrs) -> Rule` with one shape (or None) per operand and one per result; all
dimensions are numbers. Kinds: P parallel, H halo, R reduction, W whole.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.graph_table import Dim, Rule

Shape = tuple[int, ...]
Shapes = tuple[Any, ...]
ONE = Dim(1)


class RuleBuilder:
    """Collects factors and makes dimensions over them."""

    __slots__ = ("sizes", "kinds", "names")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.kinds: list[str] = []
        self.names: list[str] = []

    def factor(self, size: int, kind: str = "P", name: str = "") -> int:
        """Add a factor; return its index."""
        self.sizes.append(size)
        self.kinds.append(kind)
        self.names.append(name or f"d{len(self.names)}")
        return len(self.sizes) - 1

    def one(self, f: int) -> Dim:
        """A dimension that equals factor `f`."""
        return Dim(self.sizes[f], ((f, 1),))

    def radix(self, *fs: int) -> Dim:
        """A dimension merged from factors, major to minor; factors of size 1 leave no term."""
        terms, coef = [], 1
        for f in reversed(fs):
            if self.sizes[f] != 1:
                terms.append((f, coef))
            coef *= self.sizes[f]
        if not terms and fs:
            terms.append((fs[-1], 1))
        return Dim(coef, tuple(reversed(terms)))

    def factors(self, shape: Shape, kind: str = "P") -> tuple[Dim, ...]:
        """Add one factor per dimension of `shape`; return the identity dimensions."""
        return tuple([self.one(self.factor(n, kind)) for n in shape])

    def build(self, ins, outs, work=(), combine: str = "add") -> Rule:
        return Rule(
            tuple(self.sizes),
            "".join(self.kinds),
            tuple(ins),
            tuple(outs),
            tuple(work),
            tuple(self.names),
            combine,
        )

    def all(self) -> tuple[int, ...]:
        return tuple(range(len(self.sizes)))


def aligned(dims: tuple[Dim, ...], shape: Any) -> Any:
    """Dimensions of an operand that broadcasts, right-aligned, to the tensor with identity dimensions `dims`."""
    if shape is None:
        return None
    tail = dims[len(dims) - len(shape) :]
    return tuple([d if d.size == n else ONE for d, n in zip(tail, shape)])


def elementwise(ins: Shapes, outs: Shapes, cost: int = 1, engine: str = "ct") -> Rule:
    """All result dimensions parallel; operands broadcast."""
    n = len(outs[0])
    dims = tuple([Dim(s, ((i, 1),)) for i, s in enumerate(outs[0])])
    fs = tuple(range(n))
    return Rule(
        outs[0],
        "P" * n,
        tuple([dims if s == outs[0] else aligned(dims, s) for s in ins]),
        (dims,),
        ((engine, cost, fs),),
        tuple([f"d{i}" for i in fs]),
    )


def copy_dma(ins: Shapes, outs: Shapes, attrs) -> Rule:
    return elementwise(ins, outs, 1, "dma")


def trilu(ins: Shapes, outs: Shapes, attrs) -> Rule:
    return elementwise(ins, outs, 1, "kcore")


def results_only(ins: Shapes, outs: Shapes, attrs) -> Rule:
    return elementwise((), outs, 0, "dma")


def gemm(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Factors b0.., m, n, k."""
    r = RuleBuilder()
    *batch, m, n = outs[0]
    bdims = tuple(r.one(r.factor(s, "P", f"b{i}")) for i, s in enumerate(batch))
    fm, fn = r.factor(m, "P", "m"), r.factor(n, "P", "n")
    fk = r.factor(ins[0][-2 if attrs["trans_a"] else -1], "R", "k")
    dm, dn, dk = r.one(fm), r.one(fn), r.one(fk)
    lhs = aligned(bdims, ins[0][:-2]) + ((dk, dm) if attrs["trans_a"] else (dm, dk))
    rhs = aligned(bdims, ins[1][:-2]) + ((dn, dk) if attrs["trans_b"] else (dk, dn))
    out = (*bdims, dm, dn)
    rest = [aligned(out, s) for s in ins[2:]]
    return r.build((lhs, rhs, *rest), (out,), [("ne", 1, r.all())])


def _window(r: RuleBuilder, size: int, f: int, tap: int, stride: int, dilation: int, lo: int) -> Dim:
    if r.sizes[tap] == 1 and stride == 1 and lo == 0 and size == r.sizes[f]:
        return r.one(f)
    return Dim(size, ((f, stride), (tap, dilation)), -lo)


def _spatial(r: RuleBuilder, out: Shape, kernel: Shape, attrs) -> tuple[int, int]:
    """Add the two output position factors: parallel if windows neither overlap nor shift."""
    fs = []
    for i, name in enumerate("yx"):
        plain = kernel[i] == 1 and attrs["stride"][i] == 1 and attrs["pad_lo"][i] == attrs["pad_hi"][i] == 0
        fs.append(r.factor(out[1 + i], "P" if plain else "H", name))
    return fs[0], fs[1]


def conv(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Factors n, y, x, g, o, c, p, q: result channel (g o), input channel (g c), taps p and q."""
    r = RuleBuilder()
    (kh, kw, oc, cg), g = ins[1], attrs["groups"]
    n = r.factor(ins[0][0], "P", "n")
    y, x = _spatial(r, outs[0], (kh, kw), attrs)
    fg, o = r.factor(g, "P", "g"), r.factor(oc // g, "P", "o")
    c, p, q = r.factor(cg, "R", "c"), r.factor(kh, "R", "p"), r.factor(kw, "R", "q")
    s, d, lo = attrs["stride"], attrs["dilation"], attrs["pad_lo"]
    go = r.radix(fg, o)
    xin = (
        r.one(n),
        _window(r, ins[0][1], y, p, s[0], d[0], lo[0]),
        _window(r, ins[0][2], x, q, s[1], d[1], lo[1]),
        r.radix(fg, c),
    )
    w = (r.one(p), r.one(q), go, r.one(c))
    bias = [None if b is None else (go,) for b in ins[2:]]
    return r.build((xin, w, *bias), ((r.one(n), r.one(y), r.one(x), go),), [("ne", 1, r.all())])


def conv_transpose(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Input coordinate (y + pad - d*p) / s; factors as in conv."""
    r = RuleBuilder()
    (kh, kw, og, cin), g = ins[1], attrs["groups"]
    n = r.factor(ins[0][0], "P", "n")
    y, x = r.factor(outs[0][1], "H", "y"), r.factor(outs[0][2], "H", "x")
    fg, o = r.factor(g, "P", "g"), r.factor(og, "P", "o")
    c, p, q = r.factor(cin // g, "R", "c"), r.factor(kh, "R", "p"), r.factor(kw, "R", "q")
    s, d, lo = attrs["stride"], attrs["dilation"], attrs["pad_lo"]
    go, gc = r.radix(fg, o), r.radix(fg, c)
    yin = Dim(ins[0][1], ((y, 1), (p, -d[0])), lo[0], s[0])
    xin = Dim(ins[0][2], ((x, 1), (q, -d[1])), lo[1], s[1])
    bias = [None if b is None else (go,) for b in ins[2:]]
    w = (r.one(p), r.one(q), r.one(o), gc)
    return r.build(
        ((r.one(n), yin, xin, gc), w, *bias),
        ((r.one(n), r.one(y), r.one(x), go),),
        [("kcore", 1, r.all())],
    )


def _pool(ins: Shapes, outs: Shapes, attrs, combine: str) -> Rule:
    r = RuleBuilder()
    kh, kw = attrs["kernel"]
    n = r.factor(ins[0][0], "P", "n")
    y, x = _spatial(r, outs[0], (kh, kw), attrs)
    c, p, q = r.factor(ins[0][3], "P", "c"), r.factor(kh, "R", "p"), r.factor(kw, "R", "q")
    s, d, lo = attrs["stride"], attrs["dilation"], attrs["pad_lo"]
    xin = (
        r.one(n),
        _window(r, ins[0][1], y, p, s[0], d[0], lo[0]),
        _window(r, ins[0][2], x, q, s[1], d[1], lo[1]),
        r.one(c),
    )
    return r.build((xin,), ((r.one(n), r.one(y), r.one(x), r.one(c)),), [("ct", 1, r.all())], combine)


def pool_max(ins: Shapes, outs: Shapes, attrs) -> Rule:
    return _pool(ins, outs, attrs, "max")


def pool_avg(ins: Shapes, outs: Shapes, attrs) -> Rule:
    return _pool(ins, outs, attrs, "add")


def _rows(x: Shape, whole: set[int]) -> tuple[RuleBuilder, tuple[Dim, ...]]:
    """One factor per dimension of x, those of `whole` needed in full."""
    r = RuleBuilder()
    return r, tuple([r.one(r.factor(s, "W" if i in whole else "P")) for i, s in enumerate(x)])


def normalise(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Normalised dimensions are W. With heads the last one is (head, channel of it), and only the channel is W."""
    if attrs["heads"] > 1:
        r = RuleBuilder()
        lead = r.factors(ins[0][:-1])
        h, own = r.factor(attrs["heads"], "P", "h"), r.factor(ins[0][-1] // attrs["heads"], "W", "lane")
        dims = (*lead, r.radix(h, own))
        vectors = [None if s is None else (r.one(own),) for s in ins[1:]]
        return r.build((dims, *vectors), (dims,), [("ct", 4, r.all())])
    r, dims = _rows(ins[0], {a % len(ins[0]) for a in attrs["axes"]})
    return r.build((dims, *[aligned(dims, s) for s in ins[1:]]), (dims,), [("ct", 4, r.all())])


def softmax(ins: Shapes, outs: Shapes, attrs) -> Rule:
    r, dims = _rows(ins[0], {attrs["axis"] % len(ins[0])})
    return r.build((dims, *[aligned(dims, s) for s in ins[1:]]), (dims,), [("ct", 5, r.all())], "max")


def batchnorm(ins: Shapes, outs: Shapes, attrs) -> Rule:
    r, dims = _rows(ins[0], set())
    params = [(ONE,) * (len(s) - 1) + (dims[-1],) for s in ins[1:]]
    return r.build((dims, *params), (dims,), [("ct", 4, r.all())])


_COMBINE = {"max": "max", "min": "min", "mul": "mul"}


def reduce(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Kept axes first; reduced axes R, or W where partial results do not combine (logsumexp)."""
    axes = {a % len(ins[0]) for a in attrs["axes"]}
    kind = "W" if attrs["op"] == "logsumexp" else "R"
    r = RuleBuilder()
    dims = tuple([r.one(r.factor(s, kind if i in axes else "P")) for i, s in enumerate(ins[0])])
    if attrs["keepdims"]:
        out = tuple(ONE if i in axes else d for i, d in enumerate(dims))
    else:
        out = tuple(d for i, d in enumerate(dims) if i not in axes)
    return r.build((dims,), (out,), [("ct", 1, r.all())], _COMBINE.get(attrs["op"], "add"))


def along_axis(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Kinds that need one whole axis: arg_reduce, topk, cumsum. The result's axis is a factor of its own if it differs."""
    a = attrs["axis"] % len(ins[0])
    r, dims = _rows(ins[0], {a})
    out = list(dims)
    if len(outs[0]) < len(dims):
        del out[a]
    elif outs[0][a] != ins[0][a]:
        out[a] = ONE if outs[0][a] == 1 else r.one(r.factor(outs[0][a], "W"))
    return r.build((dims,), (tuple(out),) * len(outs), [("kcore", 1, tuple(range(len(dims))))])


def transpose(ins: Shapes, outs: Shapes, attrs) -> Rule:
    r = RuleBuilder()
    out = r.factors(outs[0])
    dims: list[Dim] = [ONE] * len(out)
    for j, p in enumerate(attrs["perm"]):
        dims[p] = out[j]
    return r.build((tuple(dims),), (out,), [("dma", 1, r.all())])


def broadcast(ins: Shapes, outs: Shapes, attrs) -> Rule:
    return elementwise(ins, outs, 1, "dma")


def reshape(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Common refinement into mixed-radix factors. Where the two shapes do not nest: shared major gcd, the rest whole."""
    r = RuleBuilder()
    a, b = ins[0], outs[0]
    if 0 in a:
        return r.build((tuple(Dim(n, full=True) for n in a),), (r.factors(b, "W"),))
    split: tuple[list[list[int]], list[list[int]]] = ([[] for _ in a], [[] for _ in b])
    i = j = 0
    left, right = (a[0] if a else 1), (b[0] if b else 1)
    while i < len(a) or j < len(b):
        if left == 1 and i < len(a):
            i += 1
            left = a[i] if i < len(a) else 1
        elif right == 1 and j < len(b):
            j += 1
            right = b[j] if j < len(b) else 1
        else:
            g = math.gcd(left, right)
            if g > 1:
                f = r.factor(g)
                split[0][i].append(f)
                split[1][j].append(f)
                left, right = left // g, right // g
            if left > 1 and right > 1:  # neither divides the other: both sides private up to their next common border
                while left != right or left == 0:
                    if left < right:
                        i += 1
                        left *= a[i]
                    else:
                        j += 1
                        right *= b[j]
                _private(r, split[0], a, i)
                _private(r, split[1], b, j)
                left = right = 1
    dims = [tuple(r.radix(*fs) if fs else ONE for fs in side) for side in split]
    return r.build((dims[0],), (dims[1],), [("dma", 1, r.all())] if not _has_whole(r) else ())


def _private(r: RuleBuilder, side: list[list[int]], shape: Shape, last: int) -> None:
    """Give dimensions up to `last` the whole factors that complete them."""
    for k in range(last, -1, -1):
        rest = shape[k] // math.prod(r.sizes[f] for f in side[k])
        if rest > 1:
            side[k].append(r.factor(rest, "W"))


def _has_whole(r: RuleBuilder) -> bool:
    return "W" in r.kinds


def concat(ins: Shapes, outs: Shapes, attrs) -> Rule:
    a = attrs["axis"] % len(outs[0])
    r = RuleBuilder()
    out = tuple(r.one(r.factor(s, "H" if i == a else "P")) for i, s in enumerate(outs[0]))
    rows, offset = [], 0
    for s in ins:
        rows.append((*out[:a], Dim(s[a], ((a, 1),), -offset), *out[a + 1 :]))
        offset += s[a]
    return r.build(rows, (out,), [("dma", 1, r.all())])


def slice_(ins: Shapes, outs: Shapes, attrs) -> Rule:
    r = RuleBuilder()
    dims, out = [], []
    for n, start, size, step in zip(ins[0], attrs["start"], attrs["size"], attrs["step"]):
        same = start == 0 and step == 1 and size == n
        f = r.factor(size, "P" if same else "H")
        dims.append(r.one(f) if same else Dim(n, ((f, step),), start))
        out.append(r.one(f))
    return r.build((tuple(dims),), (tuple(out),), [("dma", 1, r.all())])


def pad(ins: Shapes, outs: Shapes, attrs) -> Rule:
    """Constant padding shifts; the other modes need the padded axes whole."""
    r = RuleBuilder()
    constant = attrs["mode"] == "constant"
    dims, out = [], []
    for n, m, lo in zip(ins[0], outs[0], attrs["lo"]):
        f = r.factor(m, "P" if n == m else "H" if constant else "W")
        dims.append(r.one(f) if n == m else Dim(n, ((f, 1),), -lo) if constant else Dim(n, full=True))
        out.append(r.one(f))
    return r.build((tuple(dims),), (tuple(out),), [("dma" if constant else "kcore", 1, r.all())])
