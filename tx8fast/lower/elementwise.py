"""Element-wise ops on the vector engine: unary sequences, binary with broadcasting, compare, select, convert.

May import: lower.base, lower.emitter, lower.sequences, lower.transfer. Must not: place buffers.

Adjacent dimensions that no operand broadcasts are merged first, so most tensors become one or two
dimensions and transfers become long runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import Dim, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import FLOATS, UNLIMITED, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.mapped import emit_steps, n_instructions, placed
from tx8fast.lower.sequences import BINARY, COMPARE, SWAPPED, UNARY, recipe_of
from tx8fast.lower.transfer import Local, moves
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, npc
from tx8fast.records import cached_property

WIDE = "f32"


def merge_dims(out: tuple[int, ...], operands: Sequence[tuple[int, ...]], blocked: bool) -> list[list[int]]:
    """Group the result's dimensions into runs that every operand has in full or lacks altogether.

    operands: shapes padded with leading ones to the result's rank. A blocked tensor keeps its channel
    dimension, and its batch dimension where it has one, apart."""
    if not out:
        return []
    groups: list[list[int]] = [[0]]
    for d in range(1, len(out)):
        kind = [s[d] == out[d] for s in operands]
        # a dense dimension of one joins any group, which goes on as what it was
        before = next((p for p in reversed(groups[-1]) if out[p] != 1 or blocked), None)
        same = before is None or (out[d] == 1 and not blocked) or kind == [s[before] == out[before] for s in operands]
        if blocked and (d == len(out) - 1 or (d == 1 and len(out) >= 3)):
            same = False
        if same:
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def _of_items(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """True for a vector of channels for each item of a batch."""
    return len(out) > 2 and shape == (out[0], *(1,) * (len(out) - 2), out[-1]) != out


class Elementwise(Lowering):
    kind = leads = "elementwise"
    takes = frozenset({*BINARY, *COMPARE, *UNARY, "select", "convert", "swiglu", "map"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.op = record.kind
        out = record.results[0]
        ins = [o for o in record.operands if o is not None]
        attrs = dict(record.attrs)
        self.attrs = {k: v for k, v in attrs.items() if isinstance(v, (int, float))}
        self._check(ins, out)
        full = [o for o in ins if math.prod(o.shape) == math.prod(out.shape)]
        layouts = {o.layout for o in full if len(o.shape) > 1} | ({out.layout} if len(out.shape) > 1 else set())
        if len(layouts) > 1:
            raise NotLowerable("operands lie in different layouts")
        self.blocked = layouts == {"blocked"}
        shapes = [(1,) * (len(out.shape) - len(o.shape)) + o.shape for o in ins]
        groups = merge_dims(out.shape, shapes, self.blocked) or [[]]
        if self.blocked and any(_of_items(shape, out.shape) for shape in shapes):
            groups = [
                [0],
                [*range(1, len(out.shape) - 1)],
                [len(out.shape) - 1],
            ]  # dimensions of 1 among the rows tell nothing
        sizes = [math.prod([out.shape[d] for d in g]) for g in groups]
        for shape in shapes:
            for g in groups:
                part = math.prod(shape[d] for d in g)
                if part not in (1, math.prod(out.shape[d] for d in g)):
                    raise NotLowerable("a broadcast splits a merged dimension")
        self.modes = []
        for spec, shape in zip(ins, shapes, strict=True):
            merged = tuple(math.prod(shape[d] for d in g) for g in groups)
            self.modes.append(self._mode(merged, tuple(sizes)))
            self.reads.append(self._access(spec, merged, sizes))
        self.writes = [self._access(out, tuple(sizes), sizes)]
        unit, most = [1] * len(sizes), [UNLIMITED] * len(sizes)
        lanes = {
            block_size(s.dtype)
            for s, mode in ((out, "full"), *zip(ins, self.modes, strict=True))
            if mode in ("full", "vector", "items")
        }
        unit[-1] = min(sizes[-1], min(lanes) if self.blocked else 64)
        if self.blocked and len(lanes) > 1:
            # no more channels than the smallest block has: so many lie in the same places whatever the format
            most[-1] = min(lanes)
        if "items" in self.modes:
            most[0] = 1  # one vector for all rows of a slice
        self.loop_over(groups, unit, most)

    def _check(self, ins: list[TensorSpec], out: TensorSpec) -> None:
        kinds = [o.dtype for o in ins]
        if self.op == "convert":
            pair = (kinds[0], out.dtype)
            ok = pair[0] in FLOATS and pair[1] in FLOATS or pair[0] == "pred" and pair[1] in FLOATS
        elif self.op == "select":
            ok = kinds[0] == "pred" and kinds[1] == kinds[2] == out.dtype and out.dtype in FLOATS
        elif self.op in COMPARE:
            ok = kinds[0] == kinds[1] and kinds[0] in FLOATS
        elif self.op in BINARY or self.op in ("swiglu", "map"):
            ok = set(kinds) == {out.dtype} and out.dtype in FLOATS
        else:
            ok = self.op in UNARY and kinds[0] == out.dtype and out.dtype in FLOATS
        if not ok:
            raise NotLowerable(f"{self.op} on {', '.join(kinds)} is not a vector-engine operation")
        if self.op == "swiglu" and dict(self.record.attrs).get("act") not in UNARY:
            raise NotLowerable("activation has no vector sequence")

    def _access(self, spec: TensorSpec, merged: tuple[int, ...], sizes: Sequence[int]) -> Access:
        layout = spec.layout if len(spec.shape) > 1 else "dense"
        shape = merged
        if self.blocked and layout == "blocked" and npc(merged) != npc(spec.shape):
            raise NotLowerable("merged dimensions change the blocked form")
        dims = [Dim(n, ((i, 1),)) if n == sizes[i] else Dim(1) for i, n in enumerate(merged)]
        return Access(TensorSpec(shape, spec.dtype, layout), dims, self.blocked)

    def _mode(self, shape: tuple[int, ...], sizes: tuple[int, ...]) -> str:
        """How an operand meets the result: full, scalar, vector (channels only), items (a vector for each), rows (last is 1), expand."""
        if shape == sizes:
            return "full"
        if math.prod(shape) == 1:
            return "scalar"
        if math.prod(shape[:-1]) == 1 and self.blocked:
            return "vector"
        if self.blocked and len(sizes) == 3 and shape == (sizes[0], 1, sizes[2]):
            return "items"
        if shape[:-1] == sizes[:-1] and shape[-1] == 1 and self.blocked:
            return "rows"
        if self.blocked:
            raise NotLowerable("this broadcast needs dense tensors")
        return "expand"

    def _geometry(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[Local, int]:
        local = self.writes[0].local(self.writes[0].box(lo, hi))
        return local, local.elems

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        local, n = self._geometry(lo, hi)
        fmt = self._work_fmt()
        e = ITEM_BYTES[fmt]
        out = [n * e] * self._recipe_scratch
        if self._wide:
            out += [n * e] * 2
        for mode, a in zip(self.modes, self.reads, strict=True):
            if self._expands(mode, a):
                out.append(local.rows * 4 * e if self._truths(mode, a) else n * ITEM_BYTES[a.spec.dtype])
        if self.op == "select":
            out.append(n * ITEM_BYTES[self.record.results[0].dtype])
        if self.op in COMPARE:
            out.append(n * ITEM_BYTES[self.reads[0].spec.dtype])
        return out

    def const_bytes(self) -> list[int]:
        return [64 * 4] if "rows" in self.modes else []

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        if consts:
            em.fill(consts[0], 1.0, 64, self._ones_fmt())

    def _ones_fmt(self) -> str:
        return self.reads[-1].spec.dtype  # only the first operand may hold truth values

    @staticmethod
    def _truths(mode: str, access: Access) -> bool:
        """True for a column of truth values: the matrix engine broadcasts them when they are numbers."""
        return mode == "rows" and access.spec.dtype not in FLOATS

    def _expands(self, mode: str, access: Access) -> bool:
        """True if an operand is brought to full size first: no instruction of this op takes it as it is."""
        if mode in ("scalar", "vector", "items"):
            return self.op in ("select", "swiglu", "map") or self._first(access)
        return mode in ("expand", "rows")

    def _first(self, access: Access) -> bool:
        """A short first operand of an op that has no mirrored form is expanded to full size."""
        return access is self.reads[0] and len(self.reads) > 1 and self.op not in SWAPPED

    @cached_property
    def serial(self) -> bool:  # type: ignore[override]
        return self.op != "select" and not any(map(self._expands, self.modes, self.reads))

    @cached_property
    def in_place(self) -> tuple[int, ...]:  # type: ignore[override]
        """Read accesses whose buffer may also be the result's: every instruction that reads it either comes before
        the first write of the result or writes the same elements it reads."""
        if self._wide or self.op in COMPARE or self.op in ("select", "convert", "map"):
            return ()
        if self.op == "swiglu":
            return (1,)
        if self.op in BINARY:
            return tuple(i for i, mode in enumerate(self.modes) if mode == "full")
        recipe = recipe_of(self.op, self.reads[0].spec.dtype)
        return (0,) if recipe and recipe.scratch == 0 else ()

    @cached_property
    def over(self) -> tuple[int, ...]:  # type: ignore[override]
        recipe = recipe_of(self.op, self.reads[0].spec.dtype)
        return (0,) if recipe and recipe.in_place else ()

    @cached_property
    def _wide(self) -> bool:
        if self.op == "map":
            return False  # its buffers are of f32 from the first
        recipe = recipe_of(self._unary_kind(), self.reads[0].spec.dtype)
        return bool(recipe and recipe.wide and self.reads[0].spec.dtype != WIDE)

    def _work_fmt(self) -> str:
        return (
            WIDE
            if self._wide or self.op == "map"
            else self.record.results[0].dtype
            if self.op not in COMPARE
            else self.reads[0].spec.dtype
        )

    def _unary_kind(self) -> str:
        return dict(self.record.attrs)["act"] if self.op == "swiglu" else self.op

    @cached_property
    def _steps(self) -> tuple[str, int]:
        return dict(self.record.attrs)["steps"], len(self.reads)

    @cached_property
    def _recipe_scratch(self) -> int:
        if self.op == "map":
            return placed(*self._steps, self.record.results[0].dtype != WIDE).n_buffers
        recipe = recipe_of(self._unary_kind(), self.reads[0].spec.dtype)
        return (recipe.scratch if recipe else 0) + (self.op == "swiglu")

    def emit(self, em: Emitter, s: Slice) -> None:
        local, n = self._geometry(s.lo, s.hi)
        pool = list(s.scratch)
        srcs = list(s.reads)
        n_own = self._recipe_scratch + 2 * self._wide
        own, extra = pool[:n_own], pool[n_own:]
        modes = list(self.modes)
        fmt = self.record.results[0].dtype
        for i, a in enumerate(self.reads):
            mode = modes[i]
            if self._expands(mode, a):
                dst = extra.pop(0)
                if self._truths(mode, a):
                    em.cvt(srcs[i], dst, local.rows * 4, "i8", fmt)
                    srcs[i] = dst
                    continue
                self._expand(em, s, i, mode, srcs[i], dst, local)
                srcs[i], modes[i] = dst, "full"
        out = s.writes[0]
        if self.op in BINARY:
            self._binary(em, self.op, srcs, modes, out, local, fmt)
        elif self.op in COMPARE:
            t = extra.pop(0)
            self._binary(em, self.op, srcs, modes, t, local, self.reads[0].spec.dtype)
            em.cvt(t, out, n, self.reads[0].spec.dtype, "i8")
        elif self.op == "select":
            mask = extra.pop(0)
            if modes[0] == "rows":
                self._expand_rows(em, srcs[0], s.consts[0], mask, local, fmt)
            else:
                em.cvt(srcs[0], mask, n, "i8", fmt)
            em.copy(srcs[2], out, n * ITEM_BYTES[fmt])
            em.add("mask_move", src0=srcs[1], src1=mask, dst=out, n=n, fmt=_code(fmt))
        elif self.op == "convert":
            src = self.reads[0].spec.dtype
            if src == fmt:
                em.copy(srcs[0], out, n * ITEM_BYTES[fmt])
            else:
                em.cvt(srcs[0], out, n, "i8" if src == "pred" else src, fmt)
        elif self.op == "swiglu":
            self._unary(em, dict(self.record.attrs)["act"], srcs[0], own[0], n, fmt, own[1:])
            em.vv("mul", own[0], srcs[1], out, n, fmt)
        elif self.op == "map":
            emit_steps(em, self._steps[0], srcs, out, n, fmt, own)
        else:
            self._unary(em, self.op, srcs[0], out, n, fmt, own)

    def _unary(self, em: Emitter, op: str, x: int, y: int, n: int, fmt: str, scratch: Sequence[int]) -> None:
        recipe = recipe_of(op, fmt)
        assert recipe is not None
        if not self._wide:
            recipe.emit(em, x, y, n, fmt, scratch, self.attrs)
            return
        *rest, wx, wy = scratch
        em.cvt(x, wx, n, fmt, WIDE)
        recipe.emit(em, wx, wy, n, WIDE, rest, self.attrs)
        em.cvt(wy, y, n, WIDE, fmt)

    def _binary(
        self, em: Emitter, op: str, srcs: Sequence[int], modes: Sequence[str], out: int, local: Local, fmt: str
    ) -> None:
        a, b = srcs[0], srcs[1]
        ma, mb = modes[0], modes[1]
        if ma != "full" and mb == "full":
            op, a, b, ma, mb = SWAPPED[op], b, a, mb, ma
        if mb == "full":
            em.vv(op, a, b, out, local.elems, fmt)
        elif mb == "scalar":
            em.vuv(op, a, b, out, local.elems, 1, fmt)
        else:
            em.vector(op, a, b, out, local, fmt)

    def _expand(self, em: Emitter, s: Slice, i: int, mode: str, src: int, dst: int, local: Local) -> None:
        access = self.reads[i]
        e = ITEM_BYTES[access.spec.dtype]
        if mode == "rows":
            self._expand_rows(em, src, s.consts[0], dst, local, access.spec.dtype)
            return
        if mode in ("vector", "items"):
            lanes = local.elems // local.rows
            cx = lanes // 64
            full = [(cx, 64 * e, local.rows * 64 * e), (local.rows, 0, 64 * e)]
            if cx:
                em.gather(src, dst, moves(full, 64 * e))
            if lanes % 64:
                em.gather(
                    src,
                    dst,
                    moves([(local.rows, 0, lanes % 64 * e)], lanes % 64 * e, cx * 64 * e, cx * 64 * e * local.rows),
                )
            return
        if mode == "scalar":
            em.gather(src, dst, moves([(local.elems, 0, e)], e))
            return
        box, out_box = access.box(s.lo, s.hi), self.writes[0].box(s.lo, s.hi)
        axes = []
        s_stride = d_stride = e
        for (a0, a1), (b0, b1) in zip(reversed(box), reversed(out_box), strict=True):
            axes.append((b1 - b0, s_stride if a1 - a0 == b1 - b0 else 0, d_stride))
            s_stride *= a1 - a0
            d_stride *= b1 - b0
        em.gather(src, dst, moves(axes, e))

    def _expand_rows(self, em: Emitter, src: int, ones: int, dst: int, local: Local, fmt: str) -> None:
        """[rows, 1] -> [rows, cols]: one block on the matrix engine, then copies of it for the other blocks."""
        e = ITEM_BYTES[fmt]
        cx, tail = divmod(local.cols, 64)
        if 64 - tail < 32:
            cx, tail = cx + 1, 0
        block = local.rows * 64 * e
        if cx:
            em.broadcast_rows(src, ones, dst, local.rows, 64, fmt)
            for j in range(1, cx):
                em.copy(dst, dst + j * block, block)
        if tail:
            em.broadcast_rows(src, ones, dst + cx * block, local.rows, tail, fmt)

    def ops_per_point(self) -> float:
        rows = 4.0 if self._wide else 1.0
        steps = n_instructions(*self._steps) if self.op == "map" else 1 + self._recipe_scratch
        return rows * ITEM_BYTES[self._work_fmt()] / self.machine.ct.bytes_per_cycle * steps


def _code(fmt: str) -> int:
    from tx8fast.numerics.formats import FORMAT_CODES

    return FORMAT_CODES[fmt]
