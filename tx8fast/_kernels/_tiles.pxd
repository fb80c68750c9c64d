# What the event kernel knows of tiles and their rows: which rows conflict, and when earlier work of a tile is
# over. Imports _heap, _noc and the C library. Must not allocate or start anything.

from libc.stdint cimport int32_t, int64_t, uint8_t

from tx8fast._kernels._ddr cimport Ddr
from tx8fast._kernels._heap cimport Heap
from tx8fast._kernels._noc cimport Noc

cdef enum:
    ENGINES = 5
    RDMA = 2
    WDMA = 3
    KCORE = 5
    WAIT = 6
    BARRIER = 7
    SEND = 8
    RECV = 9
    SEND_WAIT = 10
    WAIT_WORKER = 11
    BARRIER_SUB = 12
    HANDSHAKE = 13
    CORE = 14  # the core itself, waiting for nothing
    UNITS = 9  # columns of the counters
    ISSUE = 7  # column: issue
    DTE = 8  # column: transfers between tiles
    WORKERS = 3
    RING = 16  # rows remembered per queue; queue depth + 1 must fit

cdef enum:
    RUNNING = 0
    AT_BARRIER = 1
    DONE = 2
    AT_GROUP = 3
    AT_HANDSHAKE = 4


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
    int64_t last[WORKERS][ENGINES]  # youngest row of the worker in the queue, plus 1
    int64_t sent  # messages
    int64_t partner  # group or tile that it waits for


cdef struct World:
    # inputs; _facade_events says what they are
    const uint8_t* kind
    const int64_t* issue
    const int32_t* form  # (n_code,)
    const int64_t* ddr_at  # (n_code,)
    const uint8_t* worker
    const int64_t* arg  # (n_forms, 3), only read for rows between tiles
    const int64_t* spm_read
    const int64_t* spm_write
    const int64_t* ddr_read
    const int64_t* ddr_write
    const int64_t* ddr_slot  # (n_forms,)
    const int64_t* ddr_base  # (n_tiles, n_slots)
    int64_t n_slots
    const int64_t* fixed
    const int64_t* ddr_bytes
    int64_t depth[ENGINES]
    bint serial
    # outputs
    int64_t* start
    int64_t* end
    int64_t* busy
    int64_t* blocked
    # state
    Tile* tiles
    int64_t n_tiles, chip_tiles  # a chip is so many tiles after each other
    int64_t n_rounds  # most barriers of a tile
    int64_t* ready
    int64_t n_ready
    int64_t* round_missing  # (chips, n_rounds)
    int64_t* round_time
    Heap arrivals
    Ddr* ddr  # one per chip
    Noc noc


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


cdef inline int64_t ddr_place(World* w, Tile* tile, int64_t code) noexcept nogil:
    """Where the DDR ranges of a code row count from on a tile."""
    cdef int64_t slot = w.ddr_slot[w.form[code]]
    return w.ddr_at[code] + (w.ddr_base[(tile - w.tiles) * w.n_slots + slot] if slot >= 0 else 0)


cdef inline bint meet_in_ddr(const int64_t* a, const int64_t* b, int64_t ahead) noexcept nogil:
    """Whether two half-open ranges meet if b's place is `ahead` bytes behind a's; empty ranges meet nothing."""
    return a[0] < a[1] and b[0] < b[1] and a[0] < b[1] + ahead and b[0] + ahead < a[1]


cdef inline bint conflict(World* w, Tile* tile, int64_t new, int64_t old, bint both_dma) noexcept nogil:
    """Whether the hardware keeps row `new` behind `old`: same worker, and ranges that meet."""
    cdef int64_t c_new = tile.code + new - tile.base, c_old = tile.code + old - tile.base, ahead
    cdef int64_t f_new = w.form[c_new], f_old = w.form[c_old]
    if w.worker[f_new] != w.worker[f_old]:
        return False
    cdef const int64_t* new_write = w.spm_write + f_new * 4
    cdef const int64_t* old_write = w.spm_write + f_old * 4
    if overlaps(old_write, 2, w.spm_read + f_new * 8, 4):
        return True
    if overlaps(new_write, 2, w.spm_read + f_old * 8, 4) or overlaps(new_write, 2, old_write, 2):
        return True
    if not both_dma:
        return False
    ahead = ddr_place(w, tile, c_old) - ddr_place(w, tile, c_new)
    return (
        meet_in_ddr(w.ddr_read + f_new * 2, w.ddr_write + f_old * 2, ahead)
        or meet_in_ddr(w.ddr_write + f_new * 2, w.ddr_read + f_old * 2, ahead)
        or meet_in_ddr(w.ddr_write + f_new * 2, w.ddr_write + f_old * 2, ahead)
    )


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


cdef inline bint workers_done_at(World* w, Tile* tile, int64_t mask, int64_t* when) noexcept nogil:
    """Set `when` to the end of the last row of the workers in `mask`; False if it is not known yet."""
    cdef int worker, q
    cdef int64_t end
    for worker in range(WORKERS):
        for q in range(ENGINES):
            if mask >> worker & 1 and tile.last[worker][q] > 0:
                end = w.end[tile.last[worker][q] - 1]
                if end < 0:
                    return False
                when[0] = max(when[0], end)
    return True


cdef inline bint sends_done_at(World* w, int64_t t, int64_t* when) noexcept nogil:
    """Set `when` to the end of the last message of tile t; False if it is not known yet."""
    cdef int64_t i, end
    for i in range(min(w.tiles[t].sent, w.noc.engines)):
        end = w.end[w.noc.messages[t * w.noc.engines + i].row]
        if end < 0:
            return False
        when[0] = max(when[0], end)
    return True
