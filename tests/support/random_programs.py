"""Random programs of several tiles: rows of every instruction that C has, routines of the kernel core, messages, loops, waiting.

Each tile loads its part of the input, runs rows on it and stores all of it again. Between the rounds the tiles send each other parts
of their memory, into a place that no other message goes to, and meet. So nothing depends on who is faster.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from support.routine_calls import draw as draw_call
from support.routine_runs import bytes_of, descriptor

sys.path.append(str(Path(__file__).resolve().parent.parent / "simulator"))
from random_rows import BASE, NAMES, REGION, REGIONS, rows, small  # noqa: E402

from tx8fast import isa  # noqa: E402
from tx8fast.codegen.abi import calls, steps  # noqa: E402
from tx8fast.isa.comm import mask_of  # noqa: E402
from tx8fast.isa.routines import ROUTINES  # noqa: E402
from tx8fast.machine import DDR_BASE, load_machine  # noqa: E402
from tx8fast.program.builder import CodeBuilder, make_program, make_segment  # noqa: E402
from tx8fast.program.model import Program, Tensor  # noqa: E402

MACHINE = load_machine("tx8")
TILES, ROUNDS, SIZE = 4, 4, REGION * REGIONS
#: where messages arrive, a place per round and sender
INBOX, PART = BASE + 4 * SIZE, 256
#: drawn by `rows`, and what C refuses: results that depend on how many rows ran before, results in registers
UNSAID = {"elem_mask", *(name for name, cls in isa.INSTRUCTIONS.items() if cls.UNIT == "scalar")}
#: DDR of a tile that strided transfers go through, and numbers of rows of tables
TRAFFIC, NUMBERS = 4096, np.array([0, 1, 2, 3, 4, -1, -2, -3], "<i8")
NOT_GIVEN = ("name", "engine", "depth", "ddr_step")
X, Y, Z, N, R = (DDR_BASE + (1 << 20) * k for k in range(5))


@dataclass
class Drawn:
    """A program with its input arrays, the instructions in it, and the codes of the formats that rows of its engines have."""

    program: Program
    feed: dict[str, np.ndarray]
    names: set[str]
    formats: set[int]


def _row(draw, name: str):
    """Return a row of that name as the program's tiles can run it, and what must be cleared before."""
    row = draw(rows([name]))
    cls = isa.INSTRUCTIONS[name]
    call = [calls()[name]] if name in calls() else steps().get(name, ())
    if "rnd" not in {f for c in call for p in c.params for f in p.fields} or row["rnd"] == 4:
        row["rnd"] = 0
    if cls.UNIT in ("rdma", "wdma"):
        row["slot"], row["ddr"] = 2, int(row["ddr"]) - DDR_BASE
    if issubclass(cls, isa.lookup.Lookup):
        at = draw(st.integers(0, 4 if row["fmt"] in (10, 12) else len(NUMBERS) - 1))
        p = row["p"]
        p[cls.FIELDS_P.index("index_slot")], p[cls.FIELDS_P.index("index_ddr")] = 3, 8 * at
        p[cls.FIELDS_P.index("entries")] = 5
    cleared = isa.rows([isa.make("memset", fmt="u8", dst=int(row["spm"][0]), value=0, n=1024)])[0]
    return [cleared, row] if name.startswith("lut") else [row]


def _messages(draw, code: list[CodeBuilder], at: int) -> None:
    """Let every tile send parts of what it has, then take what it was sent into its memory."""
    arrived = [0] * TILES
    for tile, b in enumerate(code):
        source, place = BASE + 64 * draw(st.integers(0, 99)), INBOX + (at * TILES + tile) * PART
        others = [k for k in range(TILES) if k != tile]
        kind = ("send", "scatter", "gather")[(at * TILES + tile) % 3]
        more = {"run_bytes": PART // 4, "s0": draw(st.sampled_from((64, 80, 128))), "n0": 4} if kind == "gather" else {}
        to = (
            [draw(st.sampled_from(others))]
            if kind == "gather"
            else sorted(draw(st.sets(st.sampled_from(others), min_size=1)))
        )
        b.add("wait").add(kind, src=source, dst=place, bytes=PART, mask=mask_of(to), monitor=at % 4, **more)
        for other in to:
            arrived[other] += PART
    for tile, b in enumerate(code):
        if arrived[tile]:
            b.add("recv", monitor=at % 4, bytes=arrived[tile])
        b.add("send_wait").add("barrier")
        b.add(
            "gather_scatter",
            src0=INBOX + at * TILES * PART,
            dst=BASE + 64 * draw(st.integers(0, 99)),
            size=TILES * PART,
        )


def _meet(draw, code: list[CodeBuilder], kind: str) -> None:
    """Let two tiles wait for each other, or each for its own engines."""
    pair = draw(st.permutations(range(TILES)))[:2]
    for tile, b in enumerate(code):
        if kind == "barrier_sub" and tile in pair:
            b.add(kind, mask=mask_of(pair))
        elif kind == "handshake" and tile in pair:
            b.add(kind, peer=pair[1 - pair.index(tile)])
        elif kind == "wait_worker":
            b.add(kind, workers=1)
        elif kind == "fence":
            b.add(kind)


def _routines(rng: np.random.Generator, names: list[str]):
    """Draw a call of each, with no result in f64, where the oracle's functions are its own. Returns calls, the addresses of their slots,
    and the bytes of operands and results, one after the other from R on."""
    found, places, image = [], [], bytearray()
    for name in names:
        call = draw_call(name, rng)
        while "f64" in (kind for _, kind in call.types):
            call = draw_call(name, rng)
        desc = descriptor(call)
        operands = [d for d in (*desc["inputs"], *desc["outputs"]) if d is not None]
        given = [x for x in call.arrays if x is not None]
        for i, d in enumerate(operands):
            d["slot"] = 4 + len(places)
            places.append(R + len(image))
            data = given[i].tobytes() if i < len(given) else b""
            image += data + bytes(-(-max(bytes_of(d), 1) // 256) * 256 - len(data))
        found.append(desc)
    return found, places, np.frombuffer(bytes(image) or bytes(256), np.uint8)


def _tensor(name: str, address: int, data: np.ndarray) -> Tensor:
    return Tensor(name, (data.size,), "u8", "u8", "dense", address, data.size)


def random_program(draw, seed: int, routines: list[str]) -> Drawn:
    """Return a program with every instruction that C has, and a call of each of `routines`."""
    rng = np.random.default_rng(seed)
    dealt = draw(st.permutations([name for name in NAMES if name not in UNSAID]))
    code, formats = [CodeBuilder() for _ in range(TILES)], set()
    descriptors, places, image = _routines(rng, routines)
    for b in code:
        b.add("rdma", dst=BASE, run_bytes=SIZE, slot=0).add("wait")
    for at in range(ROUNDS):
        for tile, b in enumerate(code):
            mine = dealt[at * TILES + tile :: ROUNDS * TILES]
            cut = small(draw, 0, len(mine))
            for some in (mine[:cut], mine[cut:]):
                made = [row for name in some for row in _row(draw, name)]
                formats |= {int(r["fmt"]) for r in made}
                with b.loop(small(draw, 1, 2)):
                    for row in made:
                        fields = isa.decode(row)
                        b.add(fields["name"], **{k: v for k, v in fields.items() if k not in NOT_GIVEN})
        _meet(draw, code, ("barrier_sub", "handshake", "wait_worker", "fence")[at])
        _messages(draw, code, at)
    for k in range(len(descriptors)):
        code[0].add("kcore", routine=k)
    for b in code:
        b.add("wait").add("wdma", src=BASE, run_bytes=SIZE, slot=1).finish()
    n_slots = 4 + len(places)
    offset = np.zeros((16, n_slots), np.int64)
    offset[:TILES, 0] = offset[:TILES, 1] = np.arange(TILES) * SIZE
    offset[:TILES, 2] = np.arange(TILES) * TRAFFIC
    segment = make_segment(MACHINE, "random", [b.code() for b in code], [*range(TILES)] + [-1] * (16 - TILES), list(range(n_slots)), offset,
                           routines=descriptors)  # fmt: skip
    memory = rng.integers(0, 256, (TILES, SIZE)).astype(np.uint8)
    memory[:, : SIZE // 2] = (rng.standard_normal((TILES, SIZE // 8)) * 3).astype(np.float32).view(np.uint8)
    traffic = rng.integers(0, 256, TILES * TRAFFIC).astype(np.uint8)
    feed = {"x": memory.reshape(-1), "z": traffic, "n": NUMBERS.view(np.uint8), "r": image}
    inputs = [_tensor(name, address, feed[name]) for name, address in zip("xznr", (X, Z, N, R), strict=True)]
    outputs = [_tensor("y", Y, feed["x"]), _tensor("z_after", Z, traffic), _tensor("r_after", R, image)]
    program = make_program(MACHINE, [segment], [(0, [X, Y, Z, N, *places])], inputs, outputs, ddr_bytes=6 << 20)
    used = {isa.class_of(int(op)).NAME for b in code for op in b.code()["opcode"]}
    return Drawn(program, feed, used, formats)


def dealt_routines(programs: int) -> list[list[str]]:
    """Return the names of the routines of each of so many programs, all of them together."""
    return [list(ROUTINES)[k::programs] for k in range(programs)]
