# Slack bubbling: transfers move from time steps that wait for them to steps with room to spare. Imports _status and the C
# library. Must not touch Python objects in loops or know instructions.
#
# The slack of a step is what it computes minus what it moves, and a step of negative slack is longer by as much. A transfer
# may go as far as its limit, a load towards earlier steps and a store towards later ones. On its way, at every step, the
# transfer that gains most by going on takes over; if none gains, the one that arrived stays. A way that makes the steps no
# shorter in all is undone, so the sum of their lengths falls with everything that moves.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from tx8fast._kernels._status cimport BAD_INPUT, OK, OUT_OF_MEMORY

ctypedef int64_t* Ints


cdef struct State:
    const int64_t* cycles
    const int64_t* limit
    int64_t* step
    int64_t* slack
    int64_t* first  # of every step, the list of its transfers
    int64_t* last
    int64_t* next
    int64_t* previous


cdef inline int64_t late(int64_t slack) noexcept nogil:
    return -slack if slack < 0 else 0


cdef inline int64_t profit(State* s, int64_t j, int64_t to) noexcept nogil:
    """Return the cycles by which the two steps get shorter if j goes from its own to another."""
    cdef int64_t here = s.slack[s.step[j]], there = s.slack[to], c = s.cycles[j]
    return late(here) + late(there) - late(here + c) - late(there - c)


cdef inline void shift(State* s, int64_t j, int64_t to) noexcept nogil:
    cdef int64_t at = s.step[j], before = s.previous[j], after = s.next[j]
    if before >= 0:
        s.next[before] = after
    else:
        s.first[at] = after
    if after >= 0:
        s.previous[after] = before
    else:
        s.last[at] = before
    s.previous[j], s.next[j] = s.last[to], -1
    if s.last[to] >= 0:
        s.next[s.last[to]] = j
    else:
        s.first[to] = j
    s.last[to], s.step[j] = j, to
    s.slack[at] += s.cycles[j]
    s.slack[to] -= s.cycles[j]


cdef inline bint choose(State* s, int64_t t, int64_t* chosen, int64_t* to) noexcept nogil:
    """Find the transfer of step t that gains most in another step; ties: cycles times distance, then list order, then the nearer
    step. False if none gains."""
    cdef int64_t j = s.first[t], q, way, gain, best = 0, area, least = 0
    while j >= 0:
        way = -1 if s.limit[j] < t else 1
        q = t
        while q != s.limit[j]:
            q += way
            if s.slack[q] <= 0:
                continue
            gain, area = profit(s, j, q), s.cycles[j] * (way * (q - t))
            if gain > best or (gain == best and best > 0 and area < least):
                best, least, chosen[0], to[0] = gain, area, j, q
        j = s.next[j]
    return best > 0


cdef inline int64_t carrier(State* s, int64_t arrived, int64_t to) noexcept nogil:
    """Return the transfer of `arrived`'s step that gains most by going on to step `to`, of equal ones the shortest; -1 if none
    gains, or gains nothing and is shorter."""
    cdef int64_t at = s.step[arrived], j = s.first[at], gain, best = 0, least = s.cycles[arrived], found = -1
    cdef bint back = to < at
    while j >= 0:
        if (s.limit[j] <= to) if back else (s.limit[j] >= to):
            gain = profit(s, j, to)
            if gain > best or (gain == best and s.cycles[j] < least):
                best, least, found = gain, s.cycles[j], j
        j = s.next[j]
    return found


cdef inline int64_t carry(State* s, int64_t j, int64_t to, int64_t* moved, int64_t* origin) noexcept nogil:
    """Carry j towards a step, one step at a time. Return how many transfers moved; each with where it was."""
    cdef int64_t count = 0, way = -1 if to < s.step[j] else 1, held = j, at = s.step[j]
    while at != to:
        moved[count], origin[count] = held, at
        count += 1
        at += way
        shift(s, held, at)
        if at == to:
            break
        held = carrier(s, held, to)
        if held < 0:
            break
    return count


def bubble(
    const int64_t[::1] cycles,  # IN    (n,) of transfers
    const int64_t[::1] limit,   # IN    (n,) the farthest step that a transfer may go to
    int64_t[::1] step,          # INOUT (n,) where it is
    int64_t[::1] slack,         # INOUT (steps,) cycles
):
    """Return the status. Complexity: O(transfers that move times transfers of a step times steps of a way)."""
    cdef int64_t n = cycles.shape[0], n_steps = slack.shape[0], j, t, q, k, count, before, chosen = 0, to = 0
    cdef bint again = True
    cdef State s
    cdef Ints memory, moved, origin
    if limit.shape[0] != n or step.shape[0] != n:
        return BAD_INPUT
    if n == 0 or n_steps == 0:
        return OK
    memory = <Ints>calloc(2 * n + 4 * n_steps, sizeof(int64_t))
    if memory == NULL:
        return OUT_OF_MEMORY
    s.cycles, s.limit, s.step, s.slack = &cycles[0], &limit[0], &step[0], &slack[0]
    s.next, s.previous, s.first, s.last = memory, memory + n, memory + 2 * n, memory + 2 * n + n_steps
    moved, origin = memory + 2 * n + 2 * n_steps, memory + 2 * n + 3 * n_steps
    try:
        with nogil:
            for t in range(n_steps):
                s.first[t] = s.last[t] = -1
            for j in range(n):
                t = s.step[j]
                s.previous[j], s.next[j] = s.last[t], -1
                if s.last[t] >= 0:
                    s.next[s.last[t]] = j
                else:
                    s.first[t] = j
                s.last[t] = j
            while again:
                again = False
                for t in range(n_steps):
                    while s.slack[t] < 0 and choose(&s, t, &chosen, &to):
                        before = 0
                        for q in range(min(t, to), max(t, to) + 1):
                            before += late(s.slack[q])
                        count = carry(&s, chosen, to, moved, origin)
                        for q in range(min(t, to), max(t, to) + 1):
                            before -= late(s.slack[q])
                        if before <= 0:
                            for k in range(count - 1, -1, -1):
                                shift(&s, moved[k], origin[k])
                            break
                        again = True
    finally:
        free(memory)
    return OK
