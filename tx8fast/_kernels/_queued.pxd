# Rows of a code as kernels that order them take them, and what is wrong with such arguments. Imports the C library. Must not touch
# Python objects.

from libc.stdint cimport int64_t

ctypedef int64_t* Ints

cdef enum:
    ENGINES = 5
    RING = 16  # starts remembered per queue; the queue depth must fit
    WINDOWS = 3


cdef struct Queue:
    int64_t* rows    # that may come next, ascending
    int64_t size
    int64_t free     # end of the last row
    int64_t issued
    int64_t start[RING]


cdef enum Unsound:  # what is wrong with an argument, as a negative status
    PARTITION = 1
    LATER
    ENGINE
    NEGATIVE
    DEPTH
    WINDOW
    RANK


cdef inline int unsound_before(int64_t n, const int64_t[::1] ptr, const int64_t[::1] before) noexcept nogil:
    """Return what is wrong with what n rows must follow, 0 if nothing is. Complexity: O(n + entries of `before`)."""
    cdef int64_t i, e
    if ptr.shape[0] != n + 1 or ptr[0] != 0 or ptr[n] != before.shape[0]:
        return PARTITION
    for i in range(n):
        if ptr[i + 1] < ptr[i] or ptr[i + 1] > ptr[n]:
            return PARTITION
        for e in range(ptr[i], ptr[i + 1]):
            if not 0 <= before[e] < i:
                return LATER
    return 0


cdef inline int unsound_rows(
    const int64_t[::1] engine, const int64_t[::1] issue, const int64_t[::1] cycles, const int64_t[::1] ptr,
    const int64_t[::1] before, const int64_t[::1] depth,
) noexcept nogil:
    """Return what is wrong with rows, 0 if nothing is. Complexity: O(n + entries of `before`)."""
    cdef int64_t n = engine.shape[0], i
    for i in range(n):
        if not 0 <= engine[i] <= ENGINES:
            return ENGINE
        if issue[i] < 0 or cycles[i] < 0:
            return NEGATIVE
    for i in range(ENGINES):
        if not 1 <= depth[i] < RING:
            return DEPTH
    return unsound_before(n, ptr, before)


cdef inline int unsound_windows(
    const int64_t[::1] engine, const int64_t[::1] window, const int64_t[::1] home, const int64_t[::1] rank, int64_t* turn
) noexcept nogil:
    """Return what is wrong with windows and ranks, 0 if nothing is; turn (n,) zeros, OUT the rank of every row: the core's own steps
    keep their order."""
    cdef int64_t n = engine.shape[0], i
    cdef bint core
    for i in range(n):
        core = engine[i] == ENGINES
        if not (0 if core else -1) <= window[i] <= (7 if core else WINDOWS - 1) or (home[i] != 0 and home[i] != 2):
            return WINDOW
        if not 0 <= rank[i] < n or turn[rank[i]]:
            return RANK
        turn[rank[i]] = 1
    for i in range(n):
        turn[i] = i if engine[i] == ENGINES else rank[i]
    return 0


cdef inline void put(Queue* own, const int64_t* rank, int64_t j) noexcept nogil:
    cdef int64_t k = own.size
    while k > 0 and rank[own.rows[k - 1]] > rank[j]:
        own.rows[k] = own.rows[k - 1]
        k -= 1
    own.rows[k] = j
    own.size += 1


cdef inline int64_t free_from(const Queue* own, int64_t depth) noexcept nogil:
    """Return when an engine may begin its next row, and its queue take it."""
    if own.issued < depth:
        return own.free
    return max(own.free, own.start[(own.issued - depth) & (RING - 1)])
