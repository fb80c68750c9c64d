"""Readable twin of the plan_cost kernel: price every candidate plan of one op.

May import: math, numpy. Must not: know ops; everything comes in as arrays (see `_facade_plan_cost`).
"""

from __future__ import annotations

import numpy as np


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def plan_cost(t, parts, slices, inner, out_cycles, out_bytes, out_bound):
    """Fill out_cycles (f64), out_bytes (i64, scratchpad of one tile) and out_bound (i64) per candidate."""
    nf = len(t.size)
    m = t.machine
    for c in range(len(parts)):
        shard = [0] * nf
        trips = [1] * nf
        pieces = [1] * nf
        active = 1
        uniform = True  # every tile makes the same number of steps, so tiles can exchange at each
        for f in range(nf):
            unit = int(t.unit[f])
            shard[f] = min(ceil_div(ceil_div(int(t.size[f]), int(parts[c, f])), unit) * unit, int(t.size[f]))
            trips[f] = ceil_div(shard[f], int(slices[c, f]))
            pieces[f] = ceil_div(int(t.size[f]), shard[f])
            active *= pieces[f]
            rest = int(t.size[f]) - (pieces[f] - 1) * shard[f]
            uniform = uniform and pieces[f] == parts[c, f] and ceil_div(rest, int(slices[c, f])) == trips[f]
        order = [f for f in range(nf) if not t.reduce[f] and f != inner[c]]
        if inner[c] >= 0:
            order.append(int(inner[c]))
        order += [f for f in range(nf) if t.reduce[f]]
        iters = 1
        reduce_trips = 1
        for f in range(nf):
            iters *= trips[f]
            if t.reduce[f]:
                reduce_trips *= trips[f]
        fair = m["total_bw"] / active
        bw = min(m["port"], fair)
        load = store = first = last = moved = noc = 0.0
        spm = 0
        n_loads = 0.0
        for a in range(len(t.store)):
            e = int(t.item[a])
            blocked = int(t.blocked[a])
            block = int(t.block[a])
            ext = []
            lead, contig, open_ = 1, 1, True
            dims = list(range(int(t.dim_ptr[a]), int(t.dim_ptr[a + 1])))
            depends = [False] * nf
            sharers = active
            touched = set()
            for d in dims:
                x = 1 + int(t.dim_reach[d])
                for k in range(int(t.term_ptr[d]), int(t.term_ptr[d + 1])):
                    f = int(t.term_fac[k])
                    depends[f] = depends[f] or trips[f] > 1
                    touched.add(f)
                    x += int(t.term_coef[k]) * (min(int(slices[c, f]), shard[f]) - 1)
                if t.dim_full[d]:
                    x = int(t.dim_size[d])
                ext.append(min(x, int(t.dim_size[d])))
            cols = ext[-1] if ext else 1
            col_size = int(t.dim_size[dims[-1]]) if dims else 1
            for i in range(len(ext) - 2, -1, -1):
                lead *= ext[i]
                if open_:
                    contig *= ext[i]
                    if ext[i] != int(t.dim_size[dims[i]]):
                        open_ = False
            if blocked:
                full, tail = divmod(cols, block)
                chunks = full + (tail > 0)
                padded = full * block + (0 if tail == 0 else block if tail * 2 > block else pad_tail(tail))
                runs = chunks * ceil_div(lead, contig)
                pitch = contig * block * e
            else:
                padded = cols
                if cols == col_size:
                    runs, pitch = ceil_div(lead, contig), contig * cols * e
                else:
                    runs, pitch = lead, col_size * e
            size = lead * padded * e
            local = size
            if t.local_blocked[a] and not blocked:
                full, tail = divmod(cols, block)
                padded = full * block + (0 if tail == 0 else block if tail * 2 > block else pad_tail(tail))
                local = lead * padded * e
            times = 1
            run_product = 1
            for f in order:
                run_product *= trips[f]
                if depends[f]:
                    times = run_product
            pages = (runs - 1) * min(1.0, pitch / m["page"])
            startup = m["store_startup"] if t.store[a] else m["load_startup"]
            for f in touched:
                sharers //= pieces[f]
            if not (t.share[a] and uniform and sharers > 1 and size >= m["share_min"]):
                sharers = 1
            one = startup + (runs * m["run_overhead"] + pages * m["page_penalty"] + size / bw) / sharers
            if sharers > 1:
                exchange = (m["exchange"] if t.share[a] == 1 else 0.0) + size / m["link_bytes"]
                noc += times * exchange
                first += exchange
                spm += 2 * ceil_div(ceil_div(local, sharers), 256) * 256
            if t.store[a]:
                store += times * one
                last += one
            else:
                load += times * one
                first += one
            n_loads += times
            moved += times * size * active / sharers
            spm += (
                ceil_div(local, 256) * 256 * ((int(t.shared_bufs) if sharers > 1 else int(t.bufs)) if times > 1 else 1)
            )
        points = results = 1
        for f in range(nf):
            points *= min(int(slices[c, f]), shard[f])
            results *= 1 if t.reduce[f] else min(int(slices[c, f]), shard[f])
        ne = ct = 0.0
        if t.is_matrix:
            q = [1, 1, 1, 1]
            for f in range(nf):
                q[int(t.role[f])] *= min(int(slices[c, f]), shard[f])
            mac = q[0] * ceil_div(q[1], 8) * ceil_div(q[2], int(m["lanes"])) * ceil_div(q[3], 8) * m["passes"]
            e = int(t.item[0])
            mem = max(
                q[0] * q[1] * q[3] * e * ceil_div(q[2], int(m["lanes"])) / 256.0,
                q[0] * q[2] * q[3] * e * ceil_div(q[1], 256) / 128.0,
            )
            ne = iters * (m["ne_startup"] + max(mac, mem))
            if reduce_trips > 1:
                spm += ceil_div(q[0] * q[1] * q[2] * 4, 256) * 256
        else:
            ct = iters * (m["ct_startup"] + points * t.per_point)
        spm += int(results * t.scratch_per_point)
        issue = iters * m["issue_compute"] + n_loads * m["issue_dma"]
        traffic = moved / m["total_bw"]
        steady = max(ne, ct, load - first, store - last, issue, noc)
        total = first + steady + last
        bound = int(np.argmax([ne, ct, load, store, traffic, issue, noc]))
        out_cycles[c] = max(total, traffic)
        out_bytes[c] = spm
        out_bound[c] = bound
    return 0


def pad_tail(tail: int) -> int:
    """Channel tail rounded up to 4, 8, 16, 32 or 64 (hardware manual 7.2)."""
    width = 4
    while width < tail:
        width *= 2
    return width
