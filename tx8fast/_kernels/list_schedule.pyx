# The order in which a tile issues its instructions: list scheduling over the queues of its engines. Imports _queued, _status
# and the C library. Must not touch Python objects in loops or know instructions.
#
# Of the rows whose predecessors are issued, the one that starts first; that of smaller rank on ties. The state is that of the
# hardware: the core issues one row after the other, every engine works through its own queue in order, and a full queue
# holds up the core. Rows of one engine need no more than their queue; of two engines, rows of one register window are kept
# apart by the hardware, others by a wait for the window (hardware manual 2, 15, 16.1).
#
# What the core does itself, a multicast, waits for the windows of what it depends on. Rows that start before it would be
# over go first, unless they would make this wait or one of the next steps' waits longer, or would keep their engine from a row of
# smaller rank that may begin when the core has done its next steps. After the wait and before the step, rows may go that the
# wait has set free from their window. What a step has begun may go on beside the core, for its cycles; then the next step may begin.
#
# An order becomes better when it is made backwards from its end, and forwards again in the order of the begins found
# (forward-backward improvement: Li and Willis, An iterative scheduling technique for resource-constrained project scheduling, 1992).
#
# A wait takes in another window that will be over by its end if a row is known that would else have to wait for it, or leave its
# usual window: when transfers end is a guess here, and what nobody needs must not hold up the core. drains: it takes in all of them.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from tx8fast._kernels._queued cimport (
    ENGINES, RANK, RING, WINDOWS, Ints, Queue, free_from, put, unsound_rows, unsound_windows
)
from tx8fast._kernels._status cimport BAD_INPUT, DEADLOCK, OK, OUT_OF_MEMORY, OUTPUT_TOO_SMALL

cdef enum:
    LOOK = 16  # rows per engine that are looked at for the next one
    AHEAD = 3  # steps of the core behind the next one whose waits rows do not make longer

cdef struct Way:  # how a row could be issued now
    int64_t key      # when it would start if issuing it took no time: what rows are compared by
    int64_t start
    int64_t core     # when the core is done with it
    int64_t mask     # windows that must be waited for before
    int window


cdef struct Step:  # of the core
    int64_t row      # -1: none
    int64_t mask     # windows that it waits for
    int64_t until    # when these are free
    int64_t over     # when the core has done it


cdef struct Kept:  # a row that is to come first on its engine
    int64_t rank, ready  # n: none; when it could begin


cdef struct State:
    const int64_t* engine
    const int64_t* issue
    const int64_t* cycles
    const int64_t* window
    const int64_t* home
    const int64_t* depth
    int64_t wait_cycles
    int64_t core
    int64_t landed           # when what the core's last step has begun is over
    int64_t waited[WINDOWS]  # waits so far
    int64_t end[WINDOWS]     # of the last row
    int64_t* ready
    int64_t* need            # (n, WINDOWS) waits before the youngest predecessor on another engine was issued, -1: none
    Queue queue[ENGINES + 1]  # the last one: of the core


cdef inline int64_t open_windows(State* s, int64_t j) noexcept nogil:
    """Return the windows, as a mask, in which a predecessor of j on another engine has not been waited for."""
    cdef int64_t mask = 0
    cdef int w
    for w in range(WINDOWS):
        if s.need[j * WINDOWS + w] == s.waited[w]:
            mask |= 1 << w
    return mask


cdef inline int64_t usual(State* s, int64_t j) noexcept nogil:  # the window that j takes unless it may take another
    return s.window[j] if s.window[j] >= 0 else s.home[j]


cdef inline int64_t drained(State* s, int64_t mask) noexcept nogil:
    """Return when all rows of these windows are over."""
    cdef int64_t when = s.core
    cdef int w
    for w in range(WINDOWS):
        if mask >> w & 1:
            when = max(when, s.end[w])
    return when


cdef inline Way way_of(State* s, int64_t j) noexcept nogil:
    cdef Way way
    cdef Queue* own = &s.queue[s.engine[j]]
    cdef int64_t mask = open_windows(s, j), depth = s.depth[s.engine[j]], when
    way.window = <int>(mask >> 1) if s.window[j] < 0 and (mask == 1 or mask == 4) else <int>usual(s, j)
    way.mask = mask & ~(1 << way.window)
    way.core = drained(s, way.mask) + s.wait_cycles if way.mask else s.core
    when = max(free_from(own, depth), s.ready[j])
    way.key = max(way.core, when)
    way.core += s.issue[j]
    if own.issued >= depth:
        way.core = max(way.core, own.start[(own.issued - depth) & (RING - 1)])
    way.start = max(way.core, when)
    return way


cdef int ordered(
    int64_t n, const int64_t* engine, const int64_t* issue, const int64_t* cycles, const int64_t* window, const int64_t* home,
    const int64_t* held, const int64_t* ptr, const int64_t* before, const int64_t* rank, const int64_t* depth,
    int64_t wait_cycles, bint drains, int64_t* order, int64_t room, int64_t* worker, int64_t* entries,
) noexcept nogil:
    """Write the order, see `list_order`; all arguments are sound. room: of `order`; entries: what is written there."""
    cdef int64_t e, i, j, k, done = 0, out = 0, best, core_row, mask, over = 0, until = 0, q, entry, turn = 0, first_key
    cdef int64_t n_core = 0, n_steps = 0, end, landed, late, wanted[WINDOWS]  # rows of engines that would have to wait for it, or leave their usual one
    cdef int w
    cdef Way way, best_way
    cdef Step steps[AHEAD + 1]
    cdef Kept kept[ENGINES][AHEAD + 1]  # behind the next step, behind the one after it, and behind this wait
    cdef State s
    cdef Queue* own
    cdef Kept* first
    # cores: steps of the core, one after the other; seen: when a row was last found to follow some of those that come next, and how
    # many; waits: windows that a step of the core has still to wait for itself
    cdef Ints memory, missing, after_ptr, after, lists, cores, seen, waits
    entries[0] = 0
    if n == 0:
        return OK
    s.engine, s.issue, s.cycles, s.window = engine, issue, cycles, window
    s.home, s.depth, s.wait_cycles, s.core, s.landed = home, depth, wait_cycles, 0, 0
    memory = <Ints>calloc((7 + WINDOWS + ENGINES) * n + ptr[n] + 2, sizeof(int64_t))
    if memory == NULL:
        return OUT_OF_MEMORY
    s.ready, missing, seen, waits, cores = memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 4 * n
    s.need, lists, after_ptr = memory + 5 * n, memory + (5 + WINDOWS) * n, memory + (6 + WINDOWS + ENGINES) * n
    after = after_ptr + n + 2
    for q in range(ENGINES + 1):
        s.queue[q].rows = lists + q * n
        s.queue[q].size = s.queue[q].free = s.queue[q].issued = 0
    for w in range(WINDOWS):
        s.waited[w] = s.end[w] = wanted[w] = 0
    best_way.window = 0
    for e in range(ptr[n]):
        after_ptr[before[e] + 2] += 1
    for i in range(n):
        after_ptr[i + 2] += after_ptr[i + 1]
    for j in range(n):
        waits[j] = window[j]
        if engine[j] == ENGINES:
            cores[n_steps] = j
            n_steps += 1
        for w in range(WINDOWS):
            s.need[j * WINDOWS + w] = -1
        missing[j] = ptr[j + 1] - ptr[j]
        for e in range(ptr[j], ptr[j + 1]):
            i = before[e]
            after[after_ptr[i + 1]] = j
            after_ptr[i + 1] += 1
        if missing[j] == 0:
            put(&s.queue[engine[j]], rank, j)
    while done < n:
        best, mask, turn = -1, 0, turn + 1
        core_row = cores[n_core] if n_core < n_steps and missing[cores[n_core]] == 0 else -1
        if core_row >= 0:
            over, landed = s.core, s.landed
            for q in range(AHEAD + 1):
                j = cores[n_core + q] if n_core + q < n_steps else -1
                steps[q].row = j
                if j < 0:
                    steps[q].mask = 0
                    continue
                mask = open_windows(&s, j) | waits[j]
                for e in range(ptr[j], ptr[j + 1]):
                    i = before[e]
                    if missing[i] >= 0 and engine[i] < ENGINES:  # will be issued
                        mask |= 1 << usual(&s, i)
                steps[q].mask = mask
                steps[q].until = max(max(over, landed), drained(&s, mask))
                over = steps[q].over = steps[q].until + issue[j] + (wait_cycles if mask else 0)
                landed = over + cycles[j]
            mask, until, over = steps[0].mask, steps[0].until, steps[0].over
            for e in range(ENGINES):
                for q in range(AHEAD + 1):
                    kept[e][q].rank = n
            for q in range(AHEAD):
                j = steps[q].row
                if j < 0:
                    break
                for e in range(after_ptr[j], after_ptr[j + 1]):
                    i = after[e]
                    if engine[i] == ENGINES:
                        continue
                    late = seen[i] % (AHEAD + 1) if seen[i] // (AHEAD + 1) == turn else 0  # of the steps before it follows as many
                    seen[i] = turn * (AHEAD + 1) + late + 1
                    first = &kept[engine[i]][q]
                    if missing[i] == 1 + late and rank[i] < first.rank:
                        first.rank, first.ready = rank[i], max(steps[q].over, s.ready[i])
        for q in range(ENGINES):
            # of a queue, no row starts before this; behind one that starts then, only rows of greater rank stand
            first_key = max(s.core, free_from(&s.queue[q], depth[q]))
            if best >= 0 and best_way.key < first_key:
                continue
            for k in range(min(s.queue[q].size, <int64_t>LOOK)):
                j = s.queue[q].rows[k]
                way = way_of(&s, j)
                if core_row >= 0:
                    if held[j] > n_core or way.start >= over or way.core > max(until, s.core + issue[j]):
                        continue
                    end = way.start + cycles[j]
                    if mask >> way.window & 1 and end > until:  # the wait would become longer
                        first = &kept[q][AHEAD]
                        if rank[j] < first.rank:
                            first.rank, first.ready = rank[j], max(over, s.ready[j])
                        continue
                    late = False
                    for e in range(1, AHEAD + 1):
                        if steps[e].mask >> way.window & 1 and end > steps[e].until:
                            entry = after_ptr[j]
                            while entry < after_ptr[j + 1] and after[entry] != steps[e].row:
                                entry += 1
                            late |= entry == after_ptr[j + 1]  # else the step waits for this row itself
                    for e in range(AHEAD + 1):
                        late |= kept[q][e].rank < rank[j] and end > kept[q][e].ready
                    if late:
                        continue
                if best < 0 or way.key < best_way.key or (way.key == best_way.key and rank[j] < rank[best]):
                    best, best_way = j, way
                if way.key == first_key:
                    break
        if best < 0:
            best = core_row
            if best < 0:
                break
            best_way.mask, best_way.core, best_way.start = mask, over, over
        mask = best_way.mask
        if mask:
            until = drained(&s, mask)
            for w in range(WINDOWS):
                mask |= <int64_t>((wanted[w] or drains) and s.end[w] <= until) << w
            if out == room:
                break
            order[out] = -mask
            out += 1
            for w in range(WINDOWS):
                if mask >> w & 1:
                    s.waited[w] += 1
                    wanted[w] = 0
            if engine[best] == ENGINES:  # rows that the wait has set free may go before the step
                s.core, waits[best] = until + wait_cycles, 0
                continue
        if out == room:
            break
        order[out] = best
        out += 1
        done += 1
        for w in range(WINDOWS):
            wanted[w] -= s.need[best * WINDOWS + w] == s.waited[w] and engine[best] < ENGINES and usual(&s, best) != w
        s.core, missing[best] = best_way.core, -1
        own = &s.queue[engine[best]]
        k = 0
        while own.rows[k] != best:
            k += 1
        own.size -= 1
        for i in range(k, own.size):
            own.rows[i] = own.rows[i + 1]
        over = best_way.start
        if engine[best] == ENGINES:
            n_core, s.landed = n_core + 1, best_way.core + cycles[best]
        else:
            over = best_way.start + cycles[best]
            own.start[own.issued & (RING - 1)] = best_way.start
            own.issued += 1
            own.free = over
            worker[best] = best_way.window
            s.end[best_way.window] = max(s.end[best_way.window], over)
        for e in range(after_ptr[best], after_ptr[best + 1]):
            i = after[e]
            s.ready[i] = max(s.ready[i], over)
            if engine[best] < ENGINES and engine[best] != engine[i]:
                w = best_way.window
                entry = i * WINDOWS + w
                wanted[w] += s.need[entry] != s.waited[w] and engine[i] < ENGINES and usual(&s, i) != w
                s.need[entry] = s.waited[w]
            missing[i] -= 1
            if missing[i] == 0:
                put(&s.queue[engine[i]], rank, i)
    free(memory)
    entries[0] = out
    if done < n:
        return OUTPUT_TOO_SMALL if out >= room else DEADLOCK
    return OK


def list_order(
    const int64_t[::1] engine,   # IN  (n,) in [0, ENGINES); ENGINES: the core itself
    const int64_t[::1] issue,    # IN  (n,) cycles of the core
    const int64_t[::1] cycles,   # IN  (n,) of the engine; of the core: until its next step may begin
    const int64_t[::1] window,   # IN  (n,) register window, -1: the first or the last one; of the core: mask it waits for
    const int64_t[::1] home,     # IN  (n,) the one of these that a row takes unless the other one needs no wait and this does
    const int64_t[::1] held,     # IN  (n,) steps of the core that are to be over before a row goes, if there is anything else to do
    const int64_t[::1] ptr,      # IN  (n + 1,) CSR: what each must follow, all of smaller number
    const int64_t[::1] before,
    const int64_t[::1] rank,     # IN  (n,) of rows that could start at the same time the one of smallest rank goes first
    const int64_t[::1] depth,    # IN  (ENGINES,) entries per queue
    int64_t wait_cycles,         # IN  of the core, besides the waiting
    bint drains,                 # IN  waits take in every window that will be over by then
    int64_t[::1] order,          # OUT (at most 2 * n,) rows; -mask: a wait for these windows
    int64_t[::1] worker,         # OUT (n,) window of each row
):
    """Return (status, entries); a negative status says what is wrong with an argument (`Unsound`). Complexity: O(n (LOOK + log n) +
    entries of `before`), insertion into short lists apart."""
    cdef int64_t n = engine.shape[0], entries = 0
    cdef int status
    cdef Ints turn
    if (
        issue.shape[0] != n or cycles.shape[0] != n or window.shape[0] != n or home.shape[0] != n or held.shape[0] != n
        or worker.shape[0] != n or rank.shape[0] != n or depth.shape[0] != ENGINES
    ):
        return BAD_INPUT, 0
    turn = <Ints>calloc(n + 1, sizeof(int64_t))
    if turn == NULL:
        return OUT_OF_MEMORY, 0
    with nogil:
        status = -unsound_rows(engine, issue, cycles, ptr, before, depth)
        if status == 0:
            status = -unsound_windows(engine, window, home, rank, turn)
        if status == 0 and n > 0:
            status = ordered(
                n, &engine[0], &issue[0], &cycles[0], &window[0], &home[0], &held[0], &ptr[0], &before[0] if ptr[n] else NULL, turn,
                &depth[0], wait_cycles, drains, &order[0], order.shape[0], &worker[0], &entries,
            )
        free(turn)
    return status, entries


def improved_ranks(
    const int64_t[::1] engine,   # IN  (n,) in [0, ENGINES)
    const int64_t[::1] issue,    # IN  (n,) cycles of the core
    const int64_t[::1] cycles,   # IN  (n,) of the engine
    const int64_t[::1] ptr,      # IN  (n + 1,) CSR: what each must follow, all of smaller number
    const int64_t[::1] before,
    const int64_t[::1] first,    # IN  (n,) an order of the rows
    const int64_t[::1] depth,    # IN  (ENGINES,) entries per queue
    int64_t[::1] rank,           # OUT (n,)
):
    """Write by what rows are chosen for a better order: rows are ordered backwards, what went last first, and then by the begins
    found. Return the status, negative as in `list_order`. Complexity: that of one order."""
    cdef int64_t n = engine.shape[0], i, j, e, entries = 0
    cdef int status
    cdef Ints memory, engine_, issue_, cycles_, zero, turn, ptr_, before_, order, worker
    if issue.shape[0] != n or cycles.shape[0] != n or first.shape[0] != n or rank.shape[0] != n or depth.shape[0] != ENGINES:
        return BAD_INPUT
    memory = <Ints>calloc(9 * n + 2 + before.shape[0], sizeof(int64_t))
    if memory == NULL:
        return OUT_OF_MEMORY
    engine_, issue_, cycles_, zero, turn = memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 4 * n
    order, worker, ptr_, before_ = memory + 5 * n, memory + 7 * n, memory + 8 * n, memory + 9 * n + 2
    with nogil:
        status = -unsound_rows(engine, issue, cycles, ptr, before, depth)
        for i in range(n):  # every row once
            j = first[i]
            if not 0 <= j < n or order[j] or engine[j] == ENGINES:
                status = status if status else -RANK
                break
            order[j] = 1
        if status == 0 and n > 0:
            # backwards row i is number n - 1 - i, and follows what followed it
            for i in range(n):
                j = n - 1 - i
                engine_[j], issue_[j], cycles_[j] = engine[i], issue[i], cycles[i]
                turn[n - 1 - first[i]] = n - 1 - i
                order[i] = 0
            for e in range(ptr[n]):
                ptr_[n - 1 - before[e] + 2] += 1
            for i in range(n):
                ptr_[i + 2] += ptr_[i + 1]
            for i in range(n):
                for e in range(ptr[i], ptr[i + 1]):
                    j = n - 1 - before[e]
                    before_[ptr_[j + 1]] = n - 1 - i
                    ptr_[j + 1] += 1
            status = ordered(
                n, engine_, issue_, cycles_, zero, zero, zero, ptr_, before_, turn, &depth[0], 0, False, order, 2 * n, worker, &entries
            )
            if status == OK:
                for i in range(n):
                    rank[n - 1 - order[i]] = n - 1 - i
        free(memory)
    return status
