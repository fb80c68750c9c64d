# Stretches of code that repeat themselves at given distances. Imports nothing but _status. Must not touch Python objects in
# loops, or know instructions.
#
# Twin: reference/folds.py; door: _facade_folds.py.

from libc.stdint cimport int32_t, int64_t, uint8_t

from tx8fast._kernels._status cimport BAD_INPUT, OK, OUTPUT_TOO_SMALL


cdef inline bint twice(const int32_t* ids, const int64_t* ddr, const uint8_t* free, int64_t i, int64_t period) noexcept nogil:
    """Whether row i comes again one and two periods on, its offset as much further each time."""
    cdef int64_t j = i + period, k = i + 2 * period
    return ids[i] == ids[j] and ids[j] == ids[k] and free[i] and free[j] and free[k] and ddr[j] - ddr[i] == ddr[k] - ddr[j]


cdef int fill(
    const int32_t[::1] ids, const int64_t[::1] ddr, const int64_t[::1] level, uint8_t[::1] free, const int64_t[::1] periods,
    int64_t min_repeats, int64_t min_saving, int64_t[:, ::1] out, int64_t[::1] count,
) noexcept nogil:
    cdef int64_t p, period, m, least, need, i, lo, hi, taken, repeats, found = 0
    for p in range(periods.shape[0]):
        period = periods[p]
        if period < 1:
            return BAD_INPUT
        m = ids.shape[0] - 2 * period
        least = max(min_repeats, 1 + (min_saving + 1 + period) // period)  # repeats that are worth a loop
        # of so many repeats that many rows in turn come again: one that does not rules out all before it
        need = max(1, (least - 2) * period)
        i = taken = 0
        while i + need <= m:
            lo = i + need
            while lo > i and twice(&ids[0], &ddr[0], &free[0], lo - 1, period):
                lo -= 1
            if lo > i:
                i = lo
                continue
            i += need
            while i < m and twice(&ids[0], &ddr[0], &free[0], i, period):
                i += 1
            hi = i
            lo = max(lo, taken)
            # a loop must start at a whole item, outside all loops and not at the end of one; rows one period apart stand equally deep
            while lo < hi and (level[lo] != 0 or (lo > 0 and level[lo - 1] != 0)):
                lo += 1
            repeats = 2 + (hi - lo) // period
            if lo >= hi or repeats < least:
                continue
            if found == out.shape[0]:
                return OUTPUT_TOO_SMALL
            out[found, 0], out[found, 1], out[found, 2] = lo, period, repeats
            found += 1
            taken = lo + repeats * period
            free[lo:taken] = 0
    count[0] = found
    return OK


def folds(
    const int32_t[::1] ids,       # IN  (n,) equal for rows that differ in their offset alone
    const int64_t[::1] ddr,       # IN  (n,) offsets
    const int64_t[::1] level,     # IN  (n,) loops around each row
    uint8_t[::1] free,            # IN  (n,) rows that may be folded; OUT those that still may
    const int64_t[::1] periods,   # IN  distances in rows, in the order in which they are tried
    int64_t min_repeats, int64_t min_saving,
    int64_t[:, ::1] out,          # OUT (most, 3) first row, period, repeats
    int64_t[::1] count,           # OUT (1,) how many
):
    """Return a status. Complexity: O(rows * periods)."""
    cdef int64_t n = ids.shape[0]
    cdef int status
    if n == 0 or ddr.shape[0] != n or level.shape[0] != n or free.shape[0] != n or out.shape[1] != 3 or count.shape[0] != 1:
        return <int>BAD_INPUT
    with nogil:
        status = fill(ids, ddr, level, free, periods, min_repeats, min_saving, out, count)
    return status
