# First-fit placement of buffers that live in several intervals. Imports nothing but _status and the C library.
# Must not touch Python objects in loops.
#
# Placed intervals are kept in bins: level k has bins of 2**k time points, and an interval lies in the smallest bin
# that contains it whole. A query then looks at the bins it touches on every level, so buffers that live far away in
# time are never compared, and an order of millions of comparisons becomes one of thousands.

from libc.stdlib cimport free, malloc, qsort

from tx8fast._kernels._status cimport BAD_INPUT, OK, OUT_OF_MEMORY


cdef struct Span:
    long long lo
    long long hi


cdef int by_lo(const void* a, const void* b) noexcept nogil:
    cdef long long x = (<const Span*>a).lo
    cdef long long y = (<const Span*>b).lo
    return (x > y) - (x < y)


cdef inline long long round_up(long long value, long long unit) noexcept nogil:
    return (value + unit - 1) // unit * unit


cdef inline long long legal_offset(long long offset, long long size, long long align, long long bank) noexcept nogil:
    """Return the lowest offset >= `offset` that is aligned and, with banks, does not straddle one needlessly."""
    offset = round_up(offset, align)
    if bank > 0 and (size >= bank or offset % bank + size > bank):
        offset = round_up(offset, bank)
        offset = round_up(offset, align)
    return offset


cdef struct Index:
    int levels
    long long* level_base     # first bin of each level
    long long* head           # (bins,) last inserted interval or -1
    long long* next           # (intervals,) the one inserted before it
    long long* stamp          # (items,) last query that saw the item
    Span* found               # (items,) occupied spans that collide with the query
    long long n_found


cdef inline long long bin_of(Index* x, long long lo, long long hi) noexcept nogil:
    cdef int k = 0
    while (lo >> k) != ((hi - 1) >> k):
        k += 1
    return x.level_base[k] + (lo >> k)


cdef void collect(
    Index* x, long long query, long long lo, long long hi, const long long[::1] start, const long long[::1] end,
    const long long[::1] owner, const long long[::1] size, const long long[::1] offset
) noexcept nogil:
    """Append the spans of all placed items alive somewhere in [lo, hi) that this query has not seen yet."""
    cdef int k
    cdef long long b, j, item
    for k in range(x.levels):
        for b in range(lo >> k, ((hi - 1) >> k) + 1):
            j = x.head[x.level_base[k] + b]
            while j >= 0:
                item = owner[j]
                if start[j] < hi and lo < end[j] and x.stamp[item] != query:
                    x.stamp[item] = query
                    x.found[x.n_found].lo = offset[item]
                    x.found[x.n_found].hi = offset[item] + size[item]
                    x.n_found += 1
                j = x.next[j]


cdef inline void insert(Index* x, long long j, long long lo, long long hi) noexcept nogil:
    cdef long long b = bin_of(x, lo, hi)
    x.next[j] = x.head[b]
    x.head[b] = j


cdef long long lowest_gap(Index* x, long long size, long long align, long long bank) noexcept nogil:
    cdef long long at, i
    qsort(x.found, x.n_found, sizeof(Span), by_lo)
    at = legal_offset(0, size, align, bank)
    for i in range(x.n_found):
        if x.found[i].hi <= at:
            continue
        if x.found[i].lo >= at + size:
            break
        at = legal_offset(x.found[i].hi, size, align, bank)
    return at


cdef long long place_all(
    Index* x, const long long[::1] ptr, const long long[::1] start, const long long[::1] end,
    const long long[::1] owner, const long long[::1] size, const long long[::1] align, const long long[::1] order,
    const long long[::1] fixed, long long bank, long long[::1] offset
) noexcept nogil:
    """Place fixed items, then the others in order; return the peak."""
    cdef long long i, j, item, peak = 0
    for item in range(size.shape[0]):
        if fixed[item] >= 0 and size[item] > 0:
            offset[item] = fixed[item]
            peak = max(peak, offset[item] + size[item])
            for j in range(ptr[item], ptr[item + 1]):
                insert(x, j, start[j], end[j])
    for i in range(order.shape[0]):
        item = order[i]
        if fixed[item] >= 0 or size[item] == 0:
            offset[item] = max(fixed[item], 0)
            continue
        x.n_found = 0
        for j in range(ptr[item], ptr[item + 1]):
            collect(x, i, start[j], end[j], start, end, owner, size, offset)
        offset[item] = lowest_gap(x, size[item], align[item], bank)
        peak = max(peak, offset[item] + size[item])
        for j in range(ptr[item], ptr[item + 1]):
            insert(x, j, start[j], end[j])
    return peak


def fit(
    const long long[::1] ptr,       # IN  (n + 1,) CSR: intervals of item i are ptr[i] .. ptr[i + 1]
    const long long[::1] start,     # IN  (m,) first time point, dense ranks in [0, n_times)
    const long long[::1] end,       # IN  (m,) one past the last, start < end <= n_times
    const long long[::1] owner,     # IN  (m,) item of each interval
    const long long[::1] size,      # IN  (n,) bytes
    const long long[::1] align,     # IN  (n,) bytes, >= 1
    const long long[::1] order,     # IN  (n,) permutation of the items
    const long long[::1] fixed,     # IN  (n,) given offset or -1
    long long bank,                 # IN  bytes of a bank that small items must not straddle, 0 = none
    long long n_times,              # IN  number of time points
    long long[::1] offset,          # OUT (n,) bytes
):
    """Return (status, peak in bytes). Complexity: O(sum over items of live range + neighbours * log), O(n^2 log n) at worst."""
    cdef Index x
    cdef long long n = size.shape[0], m = start.shape[0], bins = 0, i, peak = 0
    cdef int k
    if ptr.shape[0] != n + 1 or offset.shape[0] != n or n_times < 0:
        return BAD_INPUT, 0
    x.levels = 1
    while (n_times >> (x.levels - 1)) > 0:
        x.levels += 1
    x.level_base = <long long*>malloc(x.levels * sizeof(long long))
    if x.level_base == NULL:
        return OUT_OF_MEMORY, 0
    for k in range(x.levels):
        x.level_base[k] = bins
        bins += (n_times >> k) + 1
    x.head = <long long*>malloc(bins * sizeof(long long))
    x.next = <long long*>malloc((m + 1) * sizeof(long long))
    x.stamp = <long long*>malloc((n + 1) * sizeof(long long))
    x.found = <Span*>malloc((n + 1) * sizeof(Span))
    try:
        if x.head == NULL or x.next == NULL or x.stamp == NULL or x.found == NULL:
            return OUT_OF_MEMORY, 0
        for i in range(bins):
            x.head[i] = -1
        for i in range(n):
            x.stamp[i] = -1
        with nogil:
            peak = place_all(&x, ptr, start, end, owner, size, align, order, fixed, bank, offset)
    finally:
        free(x.level_base)
        free(x.head)
        free(x.next)
        free(x.stamp)
        free(x.found)
    return OK, peak
