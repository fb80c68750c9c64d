# Which rows must follow which, and how long what waits for a row takes. Imports _queued, _status and the C library. Must not touch
# Python objects in loops or know instructions.

from libc.stdint cimport int64_t

from tx8fast._kernels._queued cimport unsound_before
from tx8fast._kernels._status cimport BAD_INPUT, OK, OUTPUT_TOO_SMALL


cdef inline bint note(
    int64_t old, int64_t new, int64_t[::1] mark, int64_t[::1] before, int64_t* count
) noexcept nogil:
    """Let `new` follow `old`, once; False if there is no room."""
    if old < 0 or old == new or mark[old] == new:
        return True
    mark[old] = new
    if count[0] == before.shape[0]:
        return False
    before[count[0]] = old
    count[0] += 1
    return True


def byte_dependences(
    const int64_t[:, :, ::1] touched,  # IN  (m, r + w, 2) half-open ranges of stretches of bytes; empty: none
    int64_t n_read,                  # IN  r: so many of them are read, the others written
    const int64_t[::1] at,           # IN  (n,) row j touches touched[at[j]]
    int64_t[::1] writer,             # scratch (stretches,) -1: last row that wrote it
    int64_t[::1] readers,            # scratch (stretches,) -1: list of those that read it since
    int64_t[:, ::1] cell,            # scratch (reads of all rows and stretches, 2): row, next
    int64_t[::1] mark,               # scratch (n,) -1
    int64_t[::1] ptr,                # OUT (n + 1,) CSR
    int64_t[::1] before,             # OUT rows that each must follow: those that no other one of them follows
):
    """Return (status, entries). Complexity: O(stretches touched + entries)."""
    cdef int64_t n = at.shape[0], n_both = touched.shape[1]
    cdef int64_t i, j, k, s, c, used = 0, count = 0
    cdef bint room = True
    if not 0 <= n_read <= n_both or ptr.shape[0] != n + 1 or mark.shape[0] != n:
        return BAD_INPUT, 0
    with nogil:
        ptr[0] = 0
        for j in range(n):
            i = at[j]
            for k in range(n_read):
                for s in range(touched[i, k, 0], touched[i, k, 1]):
                    room &= note(writer[s], j, mark, before, &count)
            for k in range(n_read, n_both):
                for s in range(touched[i, k, 0], touched[i, k, 1]):
                    c = readers[s]
                    if c < 0:
                        room &= note(writer[s], j, mark, before, &count)
                    while c >= 0:
                        room &= note(cell[c, 0], j, mark, before, &count)
                        c = cell[c, 1]
                    writer[s] = j
                    readers[s] = -1
            for k in range(n_read):
                for s in range(touched[i, k, 0], touched[i, k, 1]):
                    if writer[s] == j or (readers[s] >= 0 and cell[readers[s], 0] == j):
                        continue
                    if used == cell.shape[0]:
                        room = False
                        break
                    cell[used, 0] = j
                    cell[used, 1] = readers[s]
                    readers[s] = used
                    used += 1
            ptr[j + 1] = count
            if not room:
                break
    return (OK if room else OUTPUT_TOO_SMALL), count


def longest_paths(
    const int64_t[::1] cycles,   # IN  (n,)
    const int64_t[::1] ptr,      # IN  (n + 1,) CSR: what each must follow, all of smaller number
    const int64_t[::1] before,
    int64_t[::1] tail,           # IN zeros, OUT (n,) cycles from the begin of a row to the end of the last one that waits for it
):
    """Return the status; a negative one says what is wrong with an argument (`Unsound`). Complexity: O(n + entries of `before`)."""
    cdef int64_t n = cycles.shape[0], j, e
    cdef int wrong
    if tail.shape[0] != n:
        return BAD_INPUT
    with nogil:
        wrong = unsound_before(n, ptr, before)
        if not wrong:
            for j in range(n - 1, -1, -1):
                tail[j] += cycles[j]
                for e in range(ptr[j], ptr[j + 1]):
                    tail[before[e]] = max(tail[before[e]], tail[j])
    return -wrong
