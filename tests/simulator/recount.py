"""What a program gives every unit to do, counted again from its instructions: one row at a time, in plain Python.

Written from the cost model of the hardware manual (sections 13 and 16), with the figures of the program's own machine
table. It shares no code with the simulator or with the costs of the instruction set; only the names of a row's fields
come from there (`isa.decode`).
"""

from __future__ import annotations

from collections import Counter
from math import ceil, prod

from tx8fast.isa import decode

BYTES = {0: 1, 1: 2, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 8: 1, 9: 2, 10: 4, 11: 8, 12: 8}
CONVERTED = {"i8": 1, "i16": 2, "i32": 4, "f16": 2, "bf16": 2, "f32": 4, "tf32": 4}
GROUPS = {0: "int8", 2: "fp16", 3: "bf16", 5: "tf32", 6: "tf32", 8: "int8"}
DIVISION = ("recip", "sqrt", "rsqrt", "div")
TRANSCENDENTAL = ("pow2", "log2", "exp_lp", "tanh", "sigmoid")
TWO_STEP = ("exp", "ln", "sin", "cos", "softplus")
REGISTERS = {"gemm": 16, "conv": 18, "depthwise": 18, "backward_conv": 18, "send": 6, "scatter": 6, "gather": 6,
             "rdma_row": 5}  # fmt: skip
SILENT = ("wait", "wait_worker", "barrier", "barrier_sub", "recv", "send_wait", "handshake", "fence", "kcore")


def padded(batches, positions, channels, fmt):
    """Bytes of a channel-blocked tensor: whole blocks, then a tail of 4, 8, 16 .. channels; batches padded to 256 bytes
    where there are several."""
    block = 128 if BYTES[fmt] == 1 else 64
    full, rest = divmod(channels, block)
    tail = 0
    if rest > block // 2:
        full += 1
    elif rest:
        tail = 4
        while tail < rest:
            tail *= 2
    return batches * positions * (full * block + tail) * BYTES[fmt]


def rows_of(code):
    """Yield (row, DDR advance, loop ends passed before it) as the kernel core meets them."""
    names = [decode(r) for r in code]

    def walk(at, stop, steps):
        while at < stop:
            row = names[at]
            if row["name"] != "loop":
                yield row, sum(a * b for a, b in zip(row["ddr_step"], steps))
                at += 1
                continue
            depth, end = 1, at
            while depth:
                end += 1
                depth += (names[end]["name"] == "loop") - (names[end]["name"] == "end")
            for k in range(row["count"]):
                yield from walk(at + 1, end, (*steps, k))
            at = end + 1

    yield from walk(0, len(code), ())


def vector_cycles(m, row):
    """16.2; None if the row is not one of the vector engine's that compiled programs use."""
    name, ct = row["name"], m["ct"]
    addresses = [row[k] for k in ("src0", "src1", "dst", "index") if k in row]
    late = ct["misalign_penalty"] if any(a % 128 for a in addresses) else 0
    factor = 1
    if name.startswith("cvt_"):
        work = row["n"] * max(CONVERTED[x] for x in name.split("_")[1:])
    elif name.startswith("reduce_"):
        work = padded(row["n"], row["h"] * row["w"], row["c"], row["fmt"])
        work += 128 * row["n"] * row["h"] * row["w"] if row["dim"] == 0 else 0
    elif name.startswith("pool_"):
        oh = (row["h"] + row["top"] + row["bottom"] - row["ky"]) // row["sy"] + 1
        ow = (row["w"] + row["left"] + row["right"] - row["kx"]) // row["sx"] + 1
        work = padded(row["n"], oh * ow, row["c"], row["fmt"]) * row["kx"] * row["ky"]
    else:
        stem = name.rpartition("_")[0]
        work = (row["full"] if name.endswith("vuvloop") else row["n"]) * BYTES[row["fmt"]]
        kind = ("division" if stem in DIVISION else "transcendental" if stem in TRANSCENDENTAL else
                "two_step" if stem in TWO_STEP else "arithmetic")  # fmt: skip
        factor = ct["factor"][kind]
    return ct["startup"] + ceil(work * factor / ct["bytes_per_cycle"]) + late


def matrix_cycles(m, row):
    """16.3."""
    ne, fmt = m["ne"], row["fmt"]
    block = ne["pe_n"] * ne["groups"][GROUPS[fmt]]
    passes = ne["fp32_passes"] if fmt == 5 else 1
    up = lambda a, b: -(-a // b)  # noqa: E731
    if row["name"] == "gemm":
        rows, depth, columns = row["m"], row["k"], row["n"]
        batch = max(row["batch_l"], row["batch_r"])
        work = batch * up(rows, ne["pe_m"]) * up(columns, block) * up(depth, ne["pe_k"]) * passes
        left = padded(batch, *((depth, rows) if row["l_trs"] else (rows, depth)), fmt) * up(columns, block)
        right = padded(batch, *((depth, columns) if row["r_trs"] else (columns, depth)), fmt) * up(rows, 256)
        out, positions, channels = batch, rows, columns
    else:
        positions, channels, batch = row["oh"] * row["ow"], row["oc"], row["n"]
        taps = row["kx"] * row["ky"]
        assert row["name"] == "conv"
        work = batch * up(positions, ne["pe_m"]) * up(channels, block) * taps * up(row["c"], ne["pe_k"]) * passes
        left = padded(batch, row["h"] * row["w"], row["c"], fmt) * up(channels, block)
        right = padded(1, taps * channels, row["c"], fmt) * batch * up(positions, 256)
        out = batch
    port = ne["port_bytes"]
    partial = padded(out, positions, channels, row["psum_fmt"]) if row["psum_en"] else 0
    ports = [
        up(left, 2 * port),
        up(right, port),
        up(partial, port),
        up(padded(out, positions, channels, row["out_fmt"]), port),
    ]
    return ne["startup"] + max(work, *ports)


def move_cycles(m, row):
    """16.5."""
    tdma, name = m["tdma"], row["name"]
    if name == "memset":
        size = row["n"] * BYTES[row["fmt"]] * row["n0"] * row["n1"] * row["n2"]
        return tdma["startup"] + ceil(size / tdma["bytes_per_cycle"])
    if name == "gather_scatter":
        runs, size = row["sn0"] * row["sn1"] * row["sn2"], row["size"]
    elif name == "tdma_row":
        runs, size = row["sn0"], row["size"]
    else:  # a row of channels after the other
        runs, size = row["n"] * row["h"] * row["w"], row["c"] * BYTES[row["fmt"]]
    return tdma["startup"] + runs * max(1, ceil(size / tdma["bytes_per_cycle"]))


def registers(row):
    """16.1: registers written for one issue."""
    name = row["name"]
    if name in ("rdma", "wdma"):
        return 9 if row["n0"] * row["n1"] * row["n2"] > 1 else 5
    if row["engine"] == "ct":
        tensor = name.endswith("vuvloop") or name.startswith(("reduce", "pool"))
        return 9 if tensor else 6
    return 14 if row["engine"] == "tdma" else REGISTERS[name]


def work_cycles(kcore, counts):
    """Of a routine, or of reading a row's number; a machine's file leaves out what is as it was assumed."""
    each = {
        "loads": ("load", 1),
        "stores": ("store", 1),
        "ops": ("op", 1),
        "divides": ("divide", 20),
        "functions": ("function", 60),
    }
    return sum(counts.get(name, 0) * kcore.get(f"{key}_cycles", usual) for name, (key, usual) in each.items())


def issue_cycles(m, row):
    name, kcore = row["name"], m["kcore"]
    if name in SILENT:
        return 0
    more = m["dte"]["setup_sw"] if row["engine"] == "dte" else 0
    more += work_cycles(kcore, {"loads": 1, "ops": 3}) if name in ("rdma_row", "tdma_row") else 0
    return kcore["issue_base"] + kcore["issue_per_reg"] * registers(row) + more


def ddr_bytes(m, row, address):
    """13, 16.4: every run in whole bursts, all as the first one lies; of a row by number, as the worst one lies."""
    burst = m["chip"]["ddr_burst"]
    if row["name"] == "rdma_row":
        worst = max((address + k * row["stride"]) % burst for k in range(burst))
        return ceil((row["run_bytes"] + worst) / burst) * burst
    runs = prod(row[k] for k in ("n0", "n1", "n2"))
    return runs * ceil((row["run_bytes"] + address % burst) / burst) * burst


def path(m, source, target):
    """The links of a message: along x, then along y."""
    width, out = m["chip"]["tiles_x"], []
    x, y = source % width, source // width
    while (x, y) != (target % width, target // width):
        before = y * width + x
        if x != target % width:
            x += 1 if target % width > x else -1
        else:
            y += 1 if target // width > y else -1
        out.append((before, y * width + x))
    return out


def recount(program):
    """Return totals over all tiles and launches: busy cycles by unit, `ddr_bytes`, `noc_bytes` (over all links), `port_bytes`
    (that the tiles' write ports take from messages), `links` (by link) and `useful_macs` of products."""
    m, total, links = program.machine, Counter(), Counter()
    tiles = m["chip"]["tiles_x"] * m["chip"]["tiles_y"]
    for launch in program.launches:
        segment = program.segments[launch.segment]
        for tile in range(tiles):
            code = int(segment.tile_code[tile])
            for row, advance in rows_of(segment.codes[code]) if code >= 0 else ():
                name, engine = row["name"], row["engine"]
                total["issue"] += issue_cycles(m, row)
                if name == "kcore":
                    total["kcore"] += m["kcore"]["routine_base"] + work_cycles(m["kcore"], row)
                elif engine == "ct":
                    total["ct"] += vector_cycles(m, row)
                elif engine == "ne":
                    total["ne"] += matrix_cycles(m, row)
                elif engine == "tdma":
                    total["tdma"] += move_cycles(m, row)
                elif engine in ("rdma", "wdma"):
                    slot = row["slot"]
                    address = (
                        launch.args[segment.slot_arg[slot]] + segment.tile_offset[tile][slot] + row["ddr"] + advance
                    )
                    total["ddr_bytes"] += ddr_bytes(m, row, int(address))
                elif engine == "dte":
                    targets = [t for t in range(tiles) if row["mask"] >> t & 1]
                    ways = [path(m, tile, t) for t in targets]
                    used = [x for way in ways for x in way]
                    for link in used if name == "scatter" else set(used):
                        links[link] += row["bytes"]
                    total["port_bytes"] += row["bytes"] * len(targets)
                else:
                    assert name in SILENT, name
    total["noc_bytes"] = sum(links.values())
    return {**total, "links": dict(links)}
