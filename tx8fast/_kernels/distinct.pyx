# Numbers for rows of words, the same for equal rows. Imports nothing but _status. Must not touch Python objects in loops, or know what
# the words mean.
#
# Twin: reference/distinct.py; door: _facade_distinct.py.

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from tx8fast._kernels._status cimport BAD_INPUT, OK, OUT_OF_MEMORY

cdef enum:
    EMPTY = -1


cdef inline uint64_t mixed(uint64_t h, uint64_t word) noexcept nogil:
    h = (h ^ word) * 0x9E3779B97F4A7C15ULL  # an odd number without a pattern: 2^64 over the golden ratio
    return h ^ (h >> 29)


cdef int fill(
    const uint64_t[:, ::1] words, const int64_t[::1] salt, const int64_t[::1] kept, int32_t[::1] ids, int64_t[::1] first,
    int64_t[::1] count,
) noexcept nogil:
    cdef int64_t n = words.shape[0], i, k, place, size = 16, found = 0, other
    cdef uint64_t h
    cdef int32_t* table
    cdef bint same
    while size < 2 * n:
        size *= 2
    table = <int32_t*>malloc(size * sizeof(int32_t))
    if table == NULL:
        return OUT_OF_MEMORY
    for i in range(size):
        table[i] = EMPTY
    for i in range(n):
        h = mixed(0, <uint64_t>salt[i])
        for k in range(kept.shape[0]):
            h = mixed(h, words[i, kept[k]])
        place = <int64_t>(h & <uint64_t>(size - 1))
        while table[place] != EMPTY:
            other = first[table[place]]
            same = salt[other] == salt[i]
            k = 0
            while same and k < kept.shape[0]:
                same = words[other, kept[k]] == words[i, kept[k]]
                k += 1
            if same:
                break
            place = place + 1 if place + 1 < size else 0
        if table[place] == EMPTY:
            table[place] = <int32_t>found
            first[found] = i
            found += 1
        ids[i] = table[place]
    free(table)
    count[0] = found
    return OK


def distinct(
    const uint64_t[:, ::1] words,  # IN  (n, w)
    const int64_t[::1] salt,       # IN  (n,) one more word
    const int64_t[::1] kept,       # IN  which words count
    int32_t[::1] ids,              # OUT (n,) numbers in the order of first appearance
    int64_t[::1] first,            # OUT (n,) where each number appears first
    int64_t[::1] count,            # OUT (1,) how many numbers there are
):
    """Return a status. Complexity: O(n * w)."""
    cdef int64_t n = words.shape[0], k
    cdef int status
    if salt.shape[0] != n or ids.shape[0] != n or first.shape[0] != n or count.shape[0] != 1 or n > 1 << 30:
        return <int>BAD_INPUT
    for k in range(kept.shape[0]):
        if not 0 <= kept[k] < words.shape[1]:
            return <int>BAD_INPUT
    with nogil:
        status = fill(words, salt, kept, ids, first, count)
    return status
