# Which rows of a tile run at the same time, and how long they take if that makes them slower. Imports nothing but _status and
# the C library. Must not touch Python objects in loops, or know engines, banks or bytes.
#
# Every lane takes its rows one after the other, so the lanes are merged like sorted lists: time stops wherever a row begins or
# ends. Between two stops every lane has a form or none; these sets are numbered as they turn up.
#
# Twin: reference/overlaps.py; door: _facade_overlaps.py.

from libc.math cimport ceil
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from tx8fast._kernels._status cimport OK, OUT_OF_MEMORY, OUTPUT_TOO_SMALL

cdef double ROUND_SLACK = 1e-6  # work that is over this much after a cycle's end was over in that cycle
cdef int64_t NEVER = (<int64_t>1 << 62)


cdef inline uint64_t mixed(uint64_t sofar, uint64_t value) noexcept nogil:
    sofar = (sofar ^ value) * <uint64_t>0x9E3779B97F4A7C15
    return sofar ^ (sofar >> 29)


cdef inline uint64_t slots_for(int64_t n) noexcept nogil:
    """Return a power of two that leaves a table of n entries half empty."""
    cdef uint64_t out = 16
    while out < <uint64_t>(2 * n + 2):
        out *= 2
    return out


def number(const int64_t[::1] a, const int64_t[::1] b, int64_t[::1] first, int64_t[::1] which):
    """Set which[i] (n,) to the number of the pair a[i], b[i], counted as they turn up, first[k] to where pair k does; return the
    status and how many there are."""
    cdef int64_t i, n = a.shape[0], found = 0
    cdef uint64_t slots = slots_for(n), at
    cdef int64_t* table = <int64_t*>calloc(slots, sizeof(int64_t))  # a pair's number, plus 1
    if table == NULL:
        return OUT_OF_MEMORY, 0
    with nogil:
        for i in range(n):
            at = mixed(mixed(1, <uint64_t>a[i]), <uint64_t>b[i]) & (slots - 1)
            while table[at] and not (a[first[table[at] - 1]] == a[i] and b[first[table[at] - 1]] == b[i]):
                at = (at + 1) & (slots - 1)
            if not table[at]:
                first[found] = i
                found += 1
                table[at] = found
            which[i] = table[at] - 1
    free(table)
    return OK, found


cdef inline int64_t set_number(const int32_t* now, int64_t lanes, int32_t* sets, int64_t* n_sets, int64_t most,
                               int64_t* table, uint64_t slots) noexcept nogil:
    """Return the number of a set of forms, `most` if it is new and there is no room."""
    cdef uint64_t at = 1
    cdef int64_t k, known
    for k in range(lanes):
        at = mixed(at, <uint64_t>(now[k] + 1))
    at &= slots - 1
    while table[at]:
        known = table[at] - 1
        k = 0
        while k < lanes and sets[known * lanes + k] == now[k]:
            k += 1
        if k == lanes:
            return known
        at = (at + 1) & (slots - 1)
    if n_sets[0] < most:
        for k in range(lanes):
            sets[n_sets[0] * lanes + k] = now[k]
        n_sets[0] += 1
        table[at] = n_sets[0]
        return n_sets[0] - 1
    return most


def sets(const int64_t[::1] start, const int64_t[::1] end, const int32_t[::1] lane, const int32_t[::1] form,
         int64_t[::1] knots, int32_t[::1] state, int32_t[:, ::1] out):
    """Fill knots with the cycles at which a row of a lane begins or ends, state with the set of forms from each of them to the
    next one, out with the sets (one form per lane, -1 = none); return the status and how many knots and sets there are.

    start, end, form (n,); lane (n,): -1 = in none; rows that take no time are in none either. Rows of a lane come in the order
    of their starts and do not overlap.
    """
    cdef int64_t n = start.shape[0], lanes = out.shape[1], most = out.shape[0], n_knots = 0, n_sets = 0
    cdef int64_t i, k, when, then, number
    cdef uint64_t slots = slots_for(most)
    cdef int64_t* begin = <int64_t*>calloc(lanes + 2, sizeof(int64_t))  # of every lane in `rows`
    cdef int64_t* next_row = <int64_t*>malloc((lanes + 1) * sizeof(int64_t))
    cdef int64_t* change = <int64_t*>malloc((lanes + 1) * sizeof(int64_t))  # when each lane begins or ends a row
    cdef int32_t* now = <int32_t*>malloc((lanes + 1) * sizeof(int32_t))
    cdef int64_t* rows = <int64_t*>malloc((n + 1) * sizeof(int64_t))
    cdef int64_t* table = <int64_t*>calloc(slots, sizeof(int64_t))
    cdef int status = OK
    try:
        if begin == NULL or next_row == NULL or change == NULL or now == NULL or rows == NULL or table == NULL:
            return OUT_OF_MEMORY, 0, 0
        with nogil:
            for i in range(n):
                if lane[i] >= 0 and end[i] > start[i]:
                    begin[lane[i] + 2] += 1
            for k in range(lanes + 1):
                begin[k + 1] += begin[k]
            for i in range(n):
                if lane[i] >= 0 and end[i] > start[i]:
                    rows[begin[lane[i] + 1]] = i
                    begin[lane[i] + 1] += 1
            # now lane k has rows[begin[k]] to rows[begin[k + 1]]
            then = NEVER
            for k in range(lanes):
                now[k] = -1
                next_row[k] = begin[k]
                change[k] = start[rows[begin[k]]] if begin[k] < begin[k + 1] else NEVER
                then = min(then, change[k])
            while then != NEVER:
                when, then = then, NEVER
                for k in range(lanes):
                    if change[k] == when:
                        if now[k] >= 0:
                            now[k] = -1
                            next_row[k] += 1
                            change[k] = start[rows[next_row[k]]] if next_row[k] < begin[k + 1] else NEVER
                        if change[k] == when:
                            now[k] = form[rows[next_row[k]]]
                            change[k] = end[rows[next_row[k]]]
                    then = min(then, change[k])
                knots[n_knots] = when
                n_knots += 1
                if then != NEVER:
                    number = set_number(now, lanes, &out[0, 0], &n_sets, most, table, slots)
                    if number == most:
                        status = OUTPUT_TOO_SMALL
                        break
                    state[n_knots - 1] = <int32_t>number
    finally:
        free(begin)
        free(next_row)
        free(change)
        free(now)
        free(rows)
        free(table)
    return status, n_knots, n_sets


def stretch(const int64_t[::1] start, const int32_t[::1] lane, const int64_t[::1] work, const int64_t[::1] knots,
            const int32_t[::1] state, const double[:, ::1] speed, double[::1] done, int64_t[::1] out):
    """Set out[i] to the cycles that row i takes from start[i] on until work[i] cycles at full speed are done.

    start, work (n,); lane (n,): -1 = rows that stay as they are. Rows of a lane come in the order of their starts, at knots.
    speed (n_sets, lanes): of the sets that `state` names between knots; behind the last knot all run at full speed.
    done (n_knots,): work.
    """
    cdef int64_t n = start.shape[0], n_knots = knots.shape[0], lanes = speed.shape[1], i, k, at, here
    cdef double want, until
    with nogil:
        for k in range(lanes):
            at = -1
            for i in range(n):
                if lane[i] != k:
                    continue
                if at < 0:  # what the lane has done at every knot
                    done[0] = 0.0
                    for at in range(1, n_knots):
                        done[at] = done[at - 1] + speed[state[at - 1], k] * <double>(knots[at] - knots[at - 1])
                    at = 0
                while knots[at] < start[i]:
                    at += 1
                want = done[at] + <double>work[i]
                if want > done[n_knots - 1]:
                    until = <double>knots[n_knots - 1] + want - done[n_knots - 1]
                else:
                    here = at
                    while here + 1 < n_knots and done[here + 1] <= want:
                        here += 1
                    if done[here] == want:
                        until = <double>knots[here]
                    else:
                        until = (<double>knots[here + 1] - <double>knots[here]) / (done[here + 1] - done[here])
                        until = until * (want - done[here]) + <double>knots[here]
                out[i] = max(work[i], <int64_t>ceil(until - <double>start[i] - ROUND_SLACK))
    return OK
