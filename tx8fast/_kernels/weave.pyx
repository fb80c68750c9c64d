# The order of instructions in which no engine waits while there is work for it. Imports nothing but _status.
# Must not touch Python objects in loops.
#
# List scheduling: of the instructions that may come next, the one that starts first; the older one on ties. One may come
# before older ones only if these, one after the other, can still have their buffers.

from tx8fast._kernels._status cimport BAD_INPUT, OK, OUTPUT_TOO_SMALL

cdef enum State:
    WAITING = 0
    READY = 1
    DONE = 2


cdef inline bint meet(const long long[:, :, ::1] x, long long i, const long long[:, :, ::1] y, long long j) noexcept nogil:
    """Say whether a range of x[i] and one of y[j] share bytes; empty ranges share none."""
    cdef long long a, b
    for a in range(x.shape[1]):
        for b in range(y.shape[1]):
            if x[i, a, 0] < y[j, b, 1] and y[j, b, 0] < x[i, a, 1]:
                return True
    return False


def depends(
    const long long[:, :, ::1] read,     # IN  (n, r, 2) half-open byte ranges, (0, 0) = none
    const long long[:, :, ::1] write,    # IN  (n, w, 2)
    long long reach,                     # IN  how far back an instruction looks
    long long[::1] ptr,                  # OUT (n + 1,) CSR
    long long[::1] before,               # OUT (at most n * reach,) instructions that must come before
):
    """Return (status, entries). Complexity: O(n * reach * ranges^2)."""
    cdef long long n = read.shape[0], count = 0, i, j
    if write.shape[0] != n or ptr.shape[0] != n + 1 or reach < 0:
        return BAD_INPUT, 0
    with nogil:
        ptr[0] = 0
        for j in range(n):
            for i in range(max(0, j - reach), j):
                if meet(write, j, write, i) or meet(write, j, read, i) or meet(read, j, write, i):
                    if count == before.shape[0]:
                        with gil:
                            return OUTPUT_TOO_SMALL, 0
                    before[count] = i
                    count += 1
            ptr[j + 1] = count
    return OK, count


cdef struct Search:
    long long oldest     # all before it are done
    long long alive      # bytes in use
    long long budget
    long long stamp      # of the question under way


cdef bint fits(
    Search* s, long long j, const long long[::1] touch_ptr, const long long[::1] touch, const long long[::1] size,
    const long long[::1] left, const long long[::1] used, const long long[::1] state, long long[::1] opened,
    long long[::1] seen, long long[::1] later
) noexcept nogil:
    """Say whether j and then all older instructions, one after the other, can have their buffers."""
    cdef long long need = s.alive, i = j, following = s.oldest, e, k
    s.stamp += 1
    while True:
        for e in range(touch_ptr[i], touch_ptr[i + 1]):
            k = touch[e]
            if not used[k] and opened[k] != s.stamp:
                opened[k] = s.stamp
                need += size[k]
        if need > s.budget:
            return False
        for e in range(touch_ptr[i], touch_ptr[i + 1]):
            k = touch[e]
            if seen[k] != s.stamp:
                seen[k] = s.stamp
                later[k] = left[k]
            later[k] -= 1
            if later[k] == 0:
                need -= size[k]
        while following < j and state[following] == DONE:
            following += 1
        if following >= j:
            return True
        i = following
        following += 1


def weave(
    const long long[::1] engine,         # IN  (n,) in [0, engines)
    const long long[::1] cycles,         # IN  (n,) how long each takes
    const long long[::1] ptr,            # IN  (n + 1,) CSR: what each must follow, all of smaller number
    const long long[::1] before,
    const long long[::1] after_ptr,      # IN  (n + 1,) the same the other way round
    const long long[::1] after,
    const long long[::1] touch_ptr,      # IN  (n + 1,) CSR: buffers that each touches, none twice
    const long long[::1] touch,
    const long long[::1] size,           # IN  (buffers,) bytes
    long long reach,                     # IN  places before the oldest that one may come
    long long budget,                    # IN  bytes in use when one comes before older ones
    long long[::1] order,                # OUT (n,)
    long long[:, ::1] work,              # scratch (3, n): state, missing, ready at
    long long[::1] free,                 # scratch (engines,) zero
    long long[::1] rejected,             # scratch (n,) zero
    long long[:, ::1] buffers,           # scratch (5, buffers) zero: left, used, opened, seen, later
):
    """Return the status. Complexity: O(n * reach * (1 + touched)) where most fit at once."""
    cdef long long n = engine.shape[0], done = 0, last = 0, i, j, e, k, start, best, best_start
    cdef long long[::1] state = work[0], missing = work[1], ready_at = work[2]
    cdef long long[::1] left = buffers[0], used = buffers[1], opened = buffers[2], seen = buffers[3], later = buffers[4]
    cdef Search s
    if cycles.shape[0] != n or ptr.shape[0] != n + 1 or order.shape[0] != n or work.shape[1] != n or reach < 1:
        return BAD_INPUT
    s.oldest, s.alive, s.budget, s.stamp = 0, 0, budget, 0
    with nogil:
        for j in range(n):
            missing[j] = ptr[j + 1] - ptr[j]
            state[j] = READY if missing[j] == 0 else WAITING
            ready_at[j] = 0
        for e in range(touch.shape[0]):
            left[touch[e]] += 1
        while done < n:
            while state[s.oldest] == DONE:
                s.oldest += 1
            last = min(n, s.oldest + reach)
            while True:  # the first to start that fits; the oldest always does
                best, best_start = -1, 0
                for j in range(s.oldest, last):
                    if state[j] == READY and rejected[j] != done + 1:
                        start = max(ready_at[j], free[engine[j]])
                        if best < 0 or start < best_start:
                            best, best_start = j, start
                if best == s.oldest or fits(&s, best, touch_ptr, touch, size, left, used, state, opened, seen, later):
                    break
                rejected[best] = done + 1
            state[best] = DONE
            order[done] = best
            done += 1
            for e in range(touch_ptr[best], touch_ptr[best + 1]):
                k = touch[e]
                if not used[k]:
                    used[k] = 1
                    s.alive += size[k]
                left[k] -= 1
                if left[k] == 0:
                    s.alive -= size[k]
            free[engine[best]] = best_start + cycles[best]
            for e in range(after_ptr[best], after_ptr[best + 1]):
                i = after[e]
                ready_at[i] = max(ready_at[i], best_start + cycles[best])
                missing[i] -= 1
                if missing[i] == 0:
                    state[i] = READY
    return OK
