# The order in which a tile issues its instructions: list scheduling over the queues of its engines. Imports _heap, _status
# and the C library. Must not touch Python objects in loops or know instructions.
#
# Of the rows whose predecessors are issued, the one that starts first; the older one on ties. The state is that of the
# hardware: the core issues one row after the other, every engine works through its own queue in order, and a full queue
# holds up the core (hardware manual 2, 15, 16.1).

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc

from tx8fast._kernels._heap cimport Entry, Heap, pop, push
from tx8fast._kernels._status cimport BAD_INPUT, OK, OUT_OF_MEMORY, OUTPUT_TOO_SMALL

cdef enum:
    ENGINES = 5
    RING = 16  # starts remembered per queue; the queue depth must fit


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
    const int64_t[:, :, ::1] read,   # IN  (n, r, 2) half-open ranges of stretches of bytes; empty: none
    const int64_t[:, :, ::1] write,  # IN  (n, w, 2)
    int64_t[::1] writer,             # scratch (stretches,) -1: last row that wrote it
    int64_t[::1] readers,            # scratch (stretches,) -1: list of those that read it since
    int64_t[:, ::1] cell,            # scratch (reads of all rows and stretches, 2): row, next
    int64_t[::1] mark,               # scratch (n,) -1
    int64_t[::1] ptr,                # OUT (n + 1,) CSR
    int64_t[::1] before,             # OUT rows that each must follow: those that no other one of them follows
):
    """Return (status, entries). Complexity: O(stretches touched + entries)."""
    cdef int64_t n = read.shape[0], n_read = read.shape[1], n_write = write.shape[1]
    cdef int64_t j, k, s, c, used = 0, count = 0
    if write.shape[0] != n or ptr.shape[0] != n + 1 or mark.shape[0] != n:
        return BAD_INPUT, 0
    with nogil:
        ptr[0] = 0
        for j in range(n):
            for k in range(n_read):
                for s in range(read[j, k, 0], read[j, k, 1]):
                    if not note(writer[s], j, mark, before, &count):
                        with gil:
                            return OUTPUT_TOO_SMALL, 0
            for k in range(n_write):
                for s in range(write[j, k, 0], write[j, k, 1]):
                    c = readers[s]
                    if c < 0 and not note(writer[s], j, mark, before, &count):
                        with gil:
                            return OUTPUT_TOO_SMALL, 0
                    while c >= 0:
                        if not note(cell[c, 0], j, mark, before, &count):
                            with gil:
                                return OUTPUT_TOO_SMALL, 0
                        c = cell[c, 1]
                    writer[s] = j
                    readers[s] = -1
            for k in range(n_read):
                for s in range(read[j, k, 0], read[j, k, 1]):
                    if writer[s] == j or (readers[s] >= 0 and cell[readers[s], 0] == j):
                        continue
                    if used == cell.shape[0]:
                        with gil:
                            return OUTPUT_TOO_SMALL, 0
                    cell[used, 0] = j
                    cell[used, 1] = readers[s]
                    readers[s] = used
                    used += 1
            ptr[j + 1] = count
    return OK, count


cdef struct Engine:
    Heap now      # rows that could start, by number
    Heap later    # rows whose predecessors are still at work then, by the cycle of their end
    int64_t free  # end of the last row
    int64_t issued
    int64_t start[RING]


def list_order(
    const int64_t[::1] engine,   # IN  (n,) in [0, ENGINES)
    const int64_t[::1] issue,    # IN  (n,) cycles of the core
    const int64_t[::1] cycles,   # IN  (n,) of the engine
    const int64_t[::1] ptr,      # IN  (n + 1,) CSR: what each must follow, all of smaller number
    const int64_t[::1] before,
    const int64_t[::1] depth,    # IN  (ENGINES,) entries per queue
    int64_t[::1] order,          # OUT (n,)
    int64_t[::1] begin,          # OUT (n,) cycle in which each starts
):
    """Return the status. Complexity: O((n + entries) log n)."""
    cdef int64_t n = engine.shape[0], e, i, j, k, done = 0, core = 0, start, best, best_start, q, best_q, end, when
    cdef Engine* queue = NULL
    cdef Engine* own
    cdef int64_t* missing = NULL
    cdef int64_t* ready = NULL
    cdef int64_t* after_ptr = NULL
    cdef int64_t* after = NULL
    if issue.shape[0] != n or cycles.shape[0] != n or ptr.shape[0] != n + 1 or order.shape[0] != n or begin.shape[0] != n:
        return BAD_INPUT
    queue = <Engine*>calloc(ENGINES, sizeof(Engine))
    missing = <int64_t*>calloc(n + 1, sizeof(int64_t))
    ready = <int64_t*>calloc(n + 1, sizeof(int64_t))
    after_ptr = <int64_t*>calloc(n + 2, sizeof(int64_t))
    after = <int64_t*>malloc((ptr[n] + 1) * sizeof(int64_t))
    try:
        if queue == NULL or missing == NULL or ready == NULL or after_ptr == NULL or after == NULL:
            return OUT_OF_MEMORY
        for q in range(ENGINES):
            queue[q].now.items = <Entry*>malloc((n + 1) * sizeof(Entry))
            queue[q].later.items = <Entry*>malloc((n + 1) * sizeof(Entry))
            if queue[q].now.items == NULL or queue[q].later.items == NULL:
                return OUT_OF_MEMORY
        with nogil:
            for e in range(ptr[n]):
                after_ptr[before[e] + 2] += 1
            for i in range(n):
                after_ptr[i + 2] += after_ptr[i + 1]
            for j in range(n):
                missing[j] = ptr[j + 1] - ptr[j]
                for e in range(ptr[j], ptr[j + 1]):
                    i = before[e]
                    after[after_ptr[i + 1]] = j
                    after_ptr[i + 1] += 1
                if missing[j] == 0:
                    push(&queue[engine[j]].now, <double>j, j, j)
            while done < n:
                best, best_start, best_q = -1, 0, 0
                for q in range(ENGINES):
                    own = &queue[q]
                    when = max(core, own.free)
                    while own.later.size > 0 and own.later.items[0].key <= when:
                        j = pop(&own.later).row
                        push(&own.now, <double>j, j, j)
                    if own.now.size > 0:
                        j, start = own.now.items[0].row, when
                    elif own.later.size > 0:
                        j, start = own.later.items[0].row, <int64_t>own.later.items[0].key
                    else:
                        continue
                    if best < 0 or start < best_start or (start == best_start and j < best):
                        best, best_start, best_q = j, start, q
                own = &queue[best_q]
                if own.now.size > 0:
                    pop(&own.now)
                else:
                    pop(&own.later)
                core += issue[best]
                if own.issued >= depth[best_q]:
                    core = max(core, own.start[(own.issued - depth[best_q]) & (RING - 1)])
                start = max(core, max(own.free, ready[best]))
                end = start + cycles[best]
                own.start[own.issued & (RING - 1)] = start
                own.issued += 1
                own.free = end
                order[done] = best
                begin[done] = start
                done += 1
                for e in range(after_ptr[best], after_ptr[best + 1]):
                    i = after[e]
                    ready[i] = max(ready[i], end)
                    missing[i] -= 1
                    if missing[i] == 0:
                        push(&queue[engine[i]].later, <double>ready[i], i, i)
    finally:
        if queue != NULL:
            for q in range(ENGINES):
                free(queue[q].now.items)
                free(queue[q].later.items)
        free(queue)
        free(missing)
        free(ready)
        free(after_ptr)
        free(after)
    return OK
