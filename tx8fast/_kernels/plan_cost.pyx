# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=False, cdivision=True
"""Price every candidate plan of one op. Twin: reference/plan_cost.py; door: _facade_plan_cost.py."""

from libc.stdint cimport int64_t, uint8_t

DEF MAX_FACTORS = 16
DEF MAX_DIMS = 16


cdef inline int64_t ceil_div(int64_t a, int64_t b) noexcept nogil:
    return (a + b - 1) // b


cdef inline int64_t pad_tail(int64_t tail) noexcept nogil:
    cdef int64_t width = 4
    while width < tail:
        width *= 2
    return width


cdef inline int64_t padded_cols(int64_t cols, int64_t block) noexcept nogil:
    cdef int64_t full = cols // block
    cdef int64_t tail = cols - full * block
    if tail == 0:
        return full * block
    if tail * 2 > block:
        return (full + 1) * block
    return full * block + pad_tail(tail)


def plan_cost(
    const int64_t[::1] size,          # IN (nf,) factor sizes
    const int64_t[::1] unit,          # IN (nf,)
    const uint8_t[::1] reduce,        # IN (nf,) 1 = reduction
    const int64_t[::1] role,          # IN (nf,) 0 batch, 1 m, 2 n, 3 k
    const uint8_t[::1] store,         # IN (na,) 1 = result
    const int64_t[::1] item,          # IN (na,) bytes per element
    const uint8_t[::1] blocked,       # IN (na,) DDR layout
    const uint8_t[::1] share,         # IN (na,) 1 = tiles that need the same bytes may pass them on, 2 = with a read before it
    const uint8_t[::1] local_blocked,  # IN (na,) scratchpad layout
    const int64_t[::1] block,         # IN (na,) channel block
    const int64_t[::1] dim_ptr,       # IN (na+1,)
    const int64_t[::1] dim_size,      # IN (nd,)
    const int64_t[::1] dim_reach,     # IN (nd,) extra extent
    const uint8_t[::1] dim_full,      # IN (nd,)
    const int64_t[::1] term_ptr,      # IN (nd+1,)
    const int64_t[::1] term_fac,      # IN (nt,)
    const int64_t[::1] term_coef,     # IN (nt,)
    const double[::1] machine,        # IN scalars, order fixed by the facade
    int64_t bufs,                     # IN copies of a streamed buffer
    int64_t shared_bufs,              # IN copies of one that tiles load together
    bint is_matrix,                   # IN
    double per_point,                 # IN vector cycles per point
    double scratch_per_point,         # IN bytes per point of the factors that are not summed
    const int64_t[:, ::1] parts,      # IN (nc, nf)
    const int64_t[:, ::1] slices,     # IN (nc, nf)
    const int64_t[::1] inner,         # IN (nc,) innermost parallel factor, -1 none
    double[::1] out_cycles,           # OUT (nc,)
    int64_t[::1] out_bytes,           # OUT (nc,)
    int64_t[::1] out_bound,           # OUT (nc,)
):
    """Return 0. Sizes are validated by the facade."""
    cdef Py_ssize_t nf = size.shape[0], na = store.shape[0], nc = parts.shape[0]
    cdef Py_ssize_t c, f, a, d, k, i, n_order, rank
    cdef int64_t[MAX_FACTORS] shard
    cdef int64_t[MAX_FACTORS] trips
    cdef int64_t[MAX_FACTORS] length
    cdef int64_t[MAX_FACTORS] order
    cdef int64_t[MAX_FACTORS] depends
    cdef int64_t[MAX_FACTORS] touched
    cdef int64_t[MAX_FACTORS] pieces
    cdef int64_t[MAX_DIMS] ext
    cdef int64_t[4] q
    cdef int64_t active, iters, reduce_trips, spm, e, x, lead, contig, cols, col_size, runs, pitch, bytes_, local
    cdef int64_t times, run_product, points, results, n_loads, is_open, uniform, sharers, rest
    cdef double bw, load, stores, first, last, moved, pages, one, ne, ct, mac, mem, issue, traffic, steady, startup, best
    cdef double noc, exchange
    cdef double total_bw = machine[0], port = machine[1], load_startup = machine[2], store_startup = machine[3]
    cdef double run_overhead = machine[4], page_penalty = machine[5], page = machine[6], ne_startup = machine[7]
    cdef double lanes = machine[8], passes = machine[9], ct_startup = machine[10]
    cdef double issue_compute = machine[11], issue_dma = machine[12], share_min = machine[13]
    cdef double exchange_cycles = machine[14], link_bytes = machine[15]
    with nogil:
        for c in range(nc):
            active = 1
            uniform = 1
            iters = 1
            reduce_trips = 1
            points = 1
            results = 1
            n_order = 0
            for f in range(nf):
                x = ceil_div(ceil_div(size[f], parts[c, f]), unit[f]) * unit[f]
                shard[f] = x if x < size[f] else size[f]
                trips[f] = ceil_div(shard[f], slices[c, f])
                pieces[f] = ceil_div(size[f], shard[f])
                active *= pieces[f]
                rest = size[f] - (pieces[f] - 1) * shard[f]
                if pieces[f] != parts[c, f] or ceil_div(rest, slices[c, f]) != trips[f]:
                    uniform = 0
                iters *= trips[f]
                if reduce[f]:
                    reduce_trips *= trips[f]
                length[f] = slices[c, f] if slices[c, f] < shard[f] else shard[f]
                points *= length[f]
                if not reduce[f]:
                    results *= length[f]
                if not reduce[f] and f != inner[c]:
                    order[n_order] = f
                    n_order += 1
            if inner[c] >= 0:
                order[n_order] = inner[c]
                n_order += 1
            for f in range(nf):
                if reduce[f]:
                    order[n_order] = f
                    n_order += 1
            bw = total_bw / active
            if port < bw:
                bw = port
            load = stores = first = last = moved = noc = 0.0
            spm = 0
            n_loads = 0
            for a in range(na):
                e = item[a]
                rank = dim_ptr[a + 1] - dim_ptr[a]
                for f in range(nf):
                    depends[f] = 0
                    touched[f] = 0
                for i in range(rank):
                    d = dim_ptr[a] + i
                    x = 1 + dim_reach[d]
                    for k in range(term_ptr[d], term_ptr[d + 1]):
                        f = term_fac[k]
                        touched[f] = 1
                        if trips[f] > 1:
                            depends[f] = 1
                        x += term_coef[k] * (length[f] - 1)
                    if dim_full[d] or x > dim_size[d]:
                        x = dim_size[d]
                    ext[i] = x
                cols = ext[rank - 1] if rank else 1
                col_size = dim_size[dim_ptr[a + 1] - 1] if rank else 1
                lead = 1
                contig = 1
                is_open = 1
                for i in range(rank - 2, -1, -1):
                    lead *= ext[i]
                    if is_open:
                        contig *= ext[i]
                        if ext[i] != dim_size[dim_ptr[a] + i]:
                            is_open = 0
                if blocked[a]:
                    bytes_ = lead * padded_cols(cols, block[a]) * e
                    runs = ceil_div(cols, block[a]) * ceil_div(lead, contig)
                    pitch = contig * block[a] * e
                else:
                    bytes_ = lead * cols * e
                    if cols == col_size:
                        runs = ceil_div(lead, contig)
                        pitch = contig * cols * e
                    else:
                        runs = lead
                        pitch = col_size * e
                local = bytes_
                if local_blocked[a] and not blocked[a]:
                    local = lead * padded_cols(cols, block[a]) * e
                times = 1
                run_product = 1
                for i in range(n_order):
                    run_product *= trips[order[i]]
                    if depends[order[i]]:
                        times = run_product
                pages = pitch / page
                if pages > 1.0:
                    pages = 1.0
                pages *= runs - 1
                startup = store_startup if store[a] else load_startup
                sharers = 1
                if share[a] and uniform and bytes_ >= share_min:
                    sharers = active
                    for f in range(nf):
                        if touched[f]:
                            sharers = sharers // pieces[f]
                one = startup + (runs * run_overhead + pages * page_penalty + bytes_ / bw) / sharers
                if sharers > 1:
                    exchange = (exchange_cycles if share[a] == 1 else 0.0) + bytes_ / link_bytes
                    noc += times * exchange
                    first += exchange
                    spm += 2 * ceil_div(ceil_div(local, sharers), 256) * 256
                if store[a]:
                    stores += times * one
                    last += one
                else:
                    load += times * one
                    first += one
                n_loads += times
                moved += (<double>times) * bytes_ * active / sharers
                spm += ceil_div(local, 256) * 256 * ((shared_bufs if sharers > 1 else bufs) if times > 1 else 1)
            ne = 0.0
            ct = 0.0
            if is_matrix:
                q[0] = q[1] = q[2] = q[3] = 1
                for f in range(nf):
                    q[role[f]] *= length[f]
                x = ceil_div(q[2], <int64_t>lanes)
                mac = (<double>q[0]) * ceil_div(q[1], 8) * x * ceil_div(q[3], 8) * passes
                e = item[0]
                mem = (<double>q[0]) * q[1] * q[3] * e * x / 256.0
                one = (<double>q[0]) * q[2] * q[3] * e * ceil_div(q[1], 256) / 128.0
                if one > mem:
                    mem = one
                ne = iters * (ne_startup + (mac if mac > mem else mem))
                if reduce_trips > 1:
                    spm += ceil_div(q[0] * q[1] * q[2] * 4, 256) * 256
            else:
                ct = iters * (ct_startup + points * per_point)
            spm += <int64_t>(results * scratch_per_point)
            issue = iters * issue_compute + n_loads * issue_dma
            traffic = moved / total_bw
            steady = ne
            if ct > steady:
                steady = ct
            if load - first > steady:
                steady = load - first
            if stores - last > steady:
                steady = stores - last
            if issue > steady:
                steady = issue
            if noc > steady:
                steady = noc
            steady = first + steady + last
            out_cycles[c] = steady if steady > traffic else traffic
            out_bytes[c] = spm
            best = ne
            i = 0
            if ct > best:
                best = ct
                i = 1
            if load > best:
                best = load
                i = 2
            if stores > best:
                best = stores
                i = 3
            if traffic > best:
                best = traffic
                i = 4
            if issue > best:
                best = issue
                i = 5
            if noc > best:
                i = 6
            out_bound[c] = i
    return 0
