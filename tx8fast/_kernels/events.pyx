# Event kernel of the cycle simulator: all tiles of one stretch of code, at once. Imports nothing but
# _status and the C library. Must not touch Python objects in loops or know the machine.
#
# Inside a tile every time follows from older rows by max and plus, so a tile runs ahead in its own
# time until it needs the end of a DDR transfer. Only the transfers share something, so only their
# beginnings and ends are global events. All transfers in their data phase have the same rate, so one
# virtual clock (bytes served per transfer) orders their ends.

from libc.math cimport ceil
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

from tx8fast._kernels._heap cimport Entry, Heap, pop, push
from tx8fast._kernels._status cimport DEADLOCK, OK, OUT_OF_MEMORY

cdef enum:
    ENGINES = 5
    RDMA = 2
    WDMA = 3
    KCORE = 5
    WAIT = 6
    BARRIER = 7
    RING = 16  # rows remembered per queue; queue depth + 1 must fit

cdef enum:
    RUNNING = 0
    AT_BARRIER = 1
    DONE = 2

cdef double ROUND_SLACK = 1e-6  # a transfer that ends this much after a cycle ended in that cycle
cdef double FOREVER = 1e300


cdef struct Tile:
    int64_t pc, rows, base, code
    int64_t core  # the kernel core is free at this cycle
    int64_t arrived
    int64_t barriers  # passed or waiting at
    int state
    int64_t issued[ENGINES]
    int64_t started[ENGINES]
    int64_t ring[ENGINES][RING]
    int64_t enqueued[ENGINES][RING]
    int64_t dep_time[ENGINES][RING]
    int64_t dep[ENGINES][RING][ENGINES]


cdef struct World:
    # inputs
    const uint8_t* kind
    const int64_t* issue
    const int64_t* spm_read
    const int64_t* spm_write
    const int64_t* fixed
    const int64_t* ddr_bytes
    const int64_t* ddr_read
    const int64_t* ddr_write
    int64_t depth[ENGINES]
    bint serial
    # outputs
    int64_t* start
    int64_t* end
    int64_t* busy
    int64_t* blocked
    # state
    Tile* tiles
    int64_t n_tiles
    int64_t* ready
    int64_t n_ready
    int64_t* round_missing
    int64_t* round_time
    Heap arrivals, flows


cdef inline bint overlaps(const int64_t* a, int na, const int64_t* b, int nb) noexcept nogil:
    """Whether any of the `na` half-open ranges of a meets one of b; empty ranges meet nothing."""
    cdef int i, j
    for i in range(na):
        if a[2 * i + 1] <= a[2 * i]:
            continue
        for j in range(nb):
            if b[2 * j] < a[2 * i + 1] and a[2 * i] < b[2 * j + 1] and b[2 * j] < b[2 * j + 1]:
                return True
    return False


cdef inline bint conflict(World* w, Tile* tile, int64_t new, int64_t old, bint both_dma) noexcept nogil:
    cdef int64_t c_new = tile.code + new - tile.base, c_old = tile.code + old - tile.base
    cdef const int64_t* new_write = w.spm_write + c_new * 4
    cdef const int64_t* old_write = w.spm_write + c_old * 4
    if overlaps(old_write, 2, w.spm_read + c_new * 8, 4):
        return True
    if overlaps(new_write, 2, w.spm_read + c_old * 8, 4) or overlaps(new_write, 2, old_write, 2):
        return True
    if not both_dma:
        return False
    return (
        overlaps(w.ddr_write + old * 2, 1, w.ddr_read + new * 2, 1)
        or overlaps(w.ddr_write + new * 2, 1, w.ddr_read + old * 2, 1)
        or overlaps(w.ddr_write + new * 2, 1, w.ddr_write + old * 2, 1)
    )


cdef inline bint start_pending(World* w, int64_t t, int q) noexcept nogil:
    """Start every row of queue q whose start is decided; return whether any was."""
    cdef Tile* tile = &w.tiles[t]
    cdef int64_t k, slot, row, ready, free_at, dep, when
    cdef int other, kind
    cdef bint changed = False
    while tile.started[q] < tile.issued[q]:
        k = tile.started[q]
        slot = k & (RING - 1)
        row = tile.ring[q][slot]
        free_at = 0
        if k > 0:
            free_at = w.end[tile.ring[q][(k - 1) & (RING - 1)]]
            if free_at < 0:
                return changed
        ready = max(free_at, tile.enqueued[q][slot])
        when = max(ready, tile.dep_time[q][slot])
        for other in range(ENGINES):
            dep = tile.dep[q][slot][other]
            if dep >= 0:
                if w.end[dep] < 0:
                    return changed
                when = max(when, w.end[dep])
        kind = w.kind[tile.code + row - tile.base]
        w.blocked[t * 8 + kind] += when - ready
        w.start[row] = when
        tile.started[q] += 1
        changed = True
        if w.ddr_bytes[row] > 0 and (kind == RDMA or kind == WDMA):
            push(&w.arrivals, <double>(when + w.fixed[row]), t * 2 + (kind == WDMA), row)
        else:
            w.end[row] = when + w.fixed[row]
            w.busy[t * 8 + kind] += w.fixed[row]
    return changed


cdef inline void find_dependencies(
    World* w, Tile* tile, int q, int64_t slot, int64_t row, int64_t now
) noexcept nogil:
    """Note the youngest conflicting row of every other queue: its end implies that of the older ones."""
    cdef int other
    cdef int64_t k, oldest, old
    tile.dep_time[q][slot] = 0
    for other in range(ENGINES):
        tile.dep[q][slot][other] = -1
        if other == q or w.serial:
            continue
        k = tile.issued[other] - 1
        oldest = max(<int64_t>0, k - w.depth[other])
        while k >= oldest:
            old = tile.ring[other][k & (RING - 1)]
            if 0 <= w.end[old] <= now:
                break
            if conflict(w, tile, row, old, (q == RDMA or q == WDMA) and (other == RDMA or other == WDMA)):
                if w.end[old] >= 0:
                    tile.dep_time[q][slot] = max(tile.dep_time[q][slot], w.end[old])
                else:
                    tile.dep[q][slot][other] = old
                break
            k -= 1


cdef inline bint drained_at(World* w, Tile* tile, int64_t* when) noexcept nogil:
    """Set `when` to the end of the last engine row; False if it is not known yet."""
    cdef int q
    cdef int64_t end
    for q in range(ENGINES):
        if tile.issued[q] > 0:
            end = w.end[tile.ring[q][(tile.issued[q] - 1) & (RING - 1)]]
            if end < 0:
                return False
            when[0] = max(when[0], end)
    return True


cdef void advance(World* w, int64_t t) noexcept nogil:
    """Run tile t until it is done, at a barrier, or needs the end of a transfer."""
    cdef Tile* tile = &w.tiles[t]
    cdef int64_t row, code, when, slot, begin
    cdef int q, kind
    cdef bint changed = True
    while changed:
        changed = False
        for q in range(ENGINES):
            if tile.started[q] < tile.issued[q] and start_pending(w, t, q):
                changed = True
    while tile.state == RUNNING:
        if tile.pc == tile.rows:
            tile.state = DONE
            return
        row = tile.base + tile.pc
        code = tile.code + tile.pc
        kind = w.kind[code]
        begin = tile.core + w.issue[code]
        if kind < ENGINES:
            q = 0 if w.serial else kind
            when = begin
            if tile.issued[q] >= w.depth[q]:
                when = w.start[tile.ring[q][(tile.issued[q] - w.depth[q]) & (RING - 1)]]
                if when < 0:
                    return
                when = max(when, begin)
            w.blocked[t * 8 + KCORE] += when - begin
            slot = tile.issued[q] & (RING - 1)
            find_dependencies(w, tile, q, slot, row, when)
            tile.ring[q][slot] = row
            tile.enqueued[q][slot] = when
            tile.issued[q] += 1
            tile.core = when
            start_pending(w, t, q)
        elif kind == BARRIER:
            w.start[row] = begin
            tile.arrived = begin
            tile.state = AT_BARRIER
            w.round_time[tile.barriers] = max(w.round_time[tile.barriers], begin)
            w.round_missing[tile.barriers] -= 1
            if w.round_missing[tile.barriers] == 0:
                release(w, tile.barriers)
            return
        else:
            when = begin
            if not drained_at(w, tile, &when):
                return
            w.blocked[t * 8 + WAIT] += when - begin
            w.start[row] = when
            w.end[row] = when + w.fixed[row]
            w.busy[t * 8 + kind] += w.fixed[row]
            tile.core = w.end[row]
        w.busy[t * 8 + 7] += w.issue[code]
        tile.pc += 1


cdef void release(World* w, int64_t which) noexcept nogil:
    """Let every tile that waits at barrier number `which` go on."""
    cdef int64_t t, row, when = w.round_time[which]
    cdef Tile* tile
    for t in range(w.n_tiles):
        tile = &w.tiles[t]
        if tile.state != AT_BARRIER or tile.barriers != which:
            continue
        row = tile.base + tile.pc
        w.blocked[t * 8 + WAIT] += when - tile.arrived
        w.busy[t * 8 + WAIT] += w.fixed[row]
        w.busy[t * 8 + 7] += w.issue[tile.code + tile.pc]
        w.end[row] = when + w.fixed[row]
        tile.core = w.end[row]
        tile.pc += 1
        tile.barriers += 1
        tile.state = RUNNING
        w.ready[w.n_ready] = t
        w.n_ready += 1


cdef void run(World* w, double port_rate, double total_rate) noexcept nogil:
    cdef double now = 0.0, served = 0.0, rate = port_rate, arrive, finish
    cdef Entry item
    cdef int64_t t
    for t in range(w.n_tiles - 1, -1, -1):
        w.ready[w.n_ready] = t
        w.n_ready += 1
    while True:
        while w.n_ready > 0:
            w.n_ready -= 1
            advance(w, w.ready[w.n_ready])
        if w.arrivals.size == 0 and w.flows.size == 0:
            return
        arrive = w.arrivals.items[0].key if w.arrivals.size > 0 else FOREVER
        finish = FOREVER
        if w.flows.size > 0:
            rate = min(port_rate, total_rate / <double>w.flows.size)
            finish = now + (w.flows.items[0].key - served) / rate
        if arrive <= finish:
            if w.flows.size > 0 and arrive > now:
                served += (arrive - now) * rate
            now = max(now, arrive)
            item = pop(&w.arrivals)
            push(&w.flows, served + <double>w.ddr_bytes[item.row], item.who, item.row)
            continue
        item = pop(&w.flows)
        now = max(now, finish)
        served = item.key if w.flows.size > 0 else 0.0
        t = item.who >> 1
        w.end[item.row] = <int64_t>ceil(now - ROUND_SLACK)
        w.busy[t * 8 + RDMA + (item.who & 1)] += w.end[item.row] - w.start[item.row]
        w.ready[w.n_ready] = t
        w.n_ready += 1


def simulate(
    const uint8_t[::1] kind, const int64_t[::1] issue,
    const int64_t[:, :, ::1] spm_read, const int64_t[:, :, ::1] spm_write,
    const int64_t[::1] code_begin, const int64_t[::1] tile_begin,
    const int64_t[::1] fixed, const int64_t[::1] ddr_bytes,
    const int64_t[:, ::1] ddr_read, const int64_t[:, ::1] ddr_write,
    const int64_t[::1] depth, double port_rate, double total_rate, bint serial,
    int64_t[::1] start, int64_t[::1] end, int64_t[:, ::1] busy, int64_t[:, ::1] blocked,
):
    """Fill the four outputs and return a status. The facade has checked shapes, ranges and values.

    Code rows (kind, issue, spm_*) are shared between tiles: row i of tile t is code row
    `code_begin[t] + i`; everything else is indexed by `tile_begin[t] + i`.
    start and end must come filled with -1, busy and blocked with 0.
    """
    cdef World w
    cdef int64_t n_tiles = code_begin.shape[0], n_rows = start.shape[0], t, i, n, most = 0
    cdef int status = OK
    if n_rows == 0:
        return OK
    w.kind = &kind[0]
    w.issue = &issue[0]
    w.spm_read = &spm_read[0, 0, 0]
    w.spm_write = &spm_write[0, 0, 0]
    w.fixed = &fixed[0]
    w.ddr_bytes = &ddr_bytes[0]
    w.ddr_read = &ddr_read[0, 0]
    w.ddr_write = &ddr_write[0, 0]
    w.start = &start[0]
    w.end = &end[0]
    w.busy = &busy[0, 0]
    w.blocked = &blocked[0, 0]
    w.serial = serial
    for i in range(ENGINES):
        w.depth[i] = depth[i]
    w.n_tiles = n_tiles
    w.n_ready = 0
    w.arrivals.size = 0
    w.flows.size = 0
    w.tiles = <Tile*>calloc(n_tiles, sizeof(Tile))
    w.ready = <int64_t*>calloc(2 * n_tiles + 1, sizeof(int64_t))
    w.arrivals.items = <Entry*>calloc(2 * n_tiles + 1, sizeof(Entry))
    w.flows.items = <Entry*>calloc(2 * n_tiles + 1, sizeof(Entry))
    w.round_missing = NULL
    w.round_time = NULL
    try:
        if w.tiles == NULL or w.ready == NULL or w.arrivals.items == NULL or w.flows.items == NULL:
            return OUT_OF_MEMORY
        with nogil:
            for t in range(n_tiles):
                n = 0
                w.tiles[t].base = tile_begin[t]
                w.tiles[t].rows = tile_begin[t + 1] - tile_begin[t]
                w.tiles[t].code = code_begin[t]
                for i in range(w.tiles[t].rows):
                    n += w.kind[code_begin[t] + i] == BARRIER
                w.tiles[t].arrived = n  # until the run begins: this tile's number of barriers
                most = max(most, n)
            w.round_missing = <int64_t*>calloc(most + 1, sizeof(int64_t))
            w.round_time = <int64_t*>calloc(most + 1, sizeof(int64_t))
            if w.round_missing != NULL and w.round_time != NULL:
                for t in range(n_tiles):
                    for i in range(w.tiles[t].arrived):
                        w.round_missing[i] += 1
                run(&w, port_rate, total_rate)
                for t in range(n_tiles):
                    if w.tiles[t].state != DONE:
                        status = DEADLOCK
            else:
                status = OUT_OF_MEMORY
    finally:
        free(w.tiles)
        free(w.ready)
        free(w.arrivals.items)
        free(w.flows.items)
        free(w.round_missing)
        free(w.round_time)
    return status
