# Exact placement: does a set of buffers fit a capacity? Depth-first over canonical placements with undo.
# Imports nothing but _status and the C library. Must not touch Python objects in loops.
#
# A placement is canonical when buffers are placed by rising offset, each as low as those placed before allow; every
# feasible problem has one. Four rules cut the tree: rising order; a buffer is not placed above the whole of another one
# that is still open; in no section of time may the open bytes exceed what is left above the lowest open
# buffer; and parts of the timeline that no open buffer connects are solved on their own.
# Source: the canonical search and inference rules published with the MiniMalloc project.

from libc.stdlib cimport calloc, free, qsort

from tx8fast._kernels._status cimport BAD_INPUT, INFEASIBLE, LIMIT_REACHED, OK, OUT_OF_MEMORY

ctypedef long long i64

cdef enum Outcome:
    FITS = 1
    FAILS = 0
    OUT_OF_BUDGET = -1


cdef struct Key:
    i64 low        # sort key: lowest offset, or start of life when components are searched
    i64 rank       # tie break
    i64 item


cdef struct Undo:
    i64 item
    i64 low


cdef struct Search:
    i64 n
    i64 capacity
    i64 budget          # nodes left
    i64* first          # (n,) first section of the item's life
    i64* last           # (n,) one past the last
    i64* size           # (n,)
    i64* rank           # (n,) place in the preference order
    i64* ptr            # (n + 1,) neighbours, CSR
    i64* neighbour
    i64* low            # (n,) lowest offset that placed neighbours leave
    char* placed        # (n,)
    i64* offset         # (n,)
    i64* open_bytes     # (sections,) bytes not yet placed
    i64* floor          # (sections,) lowest open buffer, scratch of one node
    Undo* trail         # (neighbours,) raised low offsets, to take back
    i64 n_trail
    i64* stack          # (n,) items in the order they were placed
    i64* stack_trail    # (n,) length of the trail before each
    i64 n_stack
    Key* arena          # candidate lists of the nodes on the path
    i64 n_arena
    i64 arena_size


cdef int by_key(const void* a, const void* b) noexcept nogil:
    cdef const Key* x = <const Key*>a
    cdef const Key* y = <const Key*>b
    if x.low != y.low:
        return 1 if x.low > y.low else -1
    return (x.rank > y.rank) - (x.rank < y.rank)


cdef void place(Search* s, i64 item, i64 at) noexcept nogil:
    cdef i64 j, other, top = at + s.size[item]
    s.stack[s.n_stack] = item
    s.stack_trail[s.n_stack] = s.n_trail
    s.n_stack += 1
    s.placed[item] = 1
    s.offset[item] = at
    for j in range(s.ptr[item], s.ptr[item + 1]):
        other = s.neighbour[j]
        if not s.placed[other] and s.low[other] < top:
            s.trail[s.n_trail].item = other
            s.trail[s.n_trail].low = s.low[other]
            s.n_trail += 1
            s.low[other] = top
    for j in range(s.first[item], s.last[item]):
        s.open_bytes[j] -= s.size[item]


cdef void undo(Search* s, i64 mark) noexcept nogil:
    """Take placements back until `mark` of them are left."""
    cdef i64 item, j
    while s.n_stack > mark:
        s.n_stack -= 1
        item = s.stack[s.n_stack]
        s.placed[item] = 0
        while s.n_trail > s.stack_trail[s.n_stack]:
            s.n_trail -= 1
            s.low[s.trail[s.n_trail].item] = s.trail[s.n_trail].low
        for j in range(s.first[item], s.last[item]):
            s.open_bytes[j] += s.size[item]


cdef bint hopeless(Search* s, const Key* items, i64 n, i64 at) noexcept nogil:
    """Say whether some section's open bytes cannot fit above the lowest open buffer in it."""
    cdef i64 i, j, item, low
    for i in range(n):
        item = items[i].item
        if max(s.low[item], at) + s.size[item] > s.capacity:
            return True
        for j in range(s.first[item], s.last[item]):
            s.floor[j] = s.capacity
    for i in range(n):
        item = items[i].item
        low = max(s.low[item], at)
        for j in range(s.first[item], s.last[item]):
            if low < s.floor[j]:
                s.floor[j] = low
    for i in range(n):
        item = items[i].item
        for j in range(s.first[item], s.last[item]):
            if s.floor[j] + s.open_bytes[j] > s.capacity:
                return True
    return False


cdef int solve_parts(Search* s, i64 base, i64 n, i64 at, i64 rank) noexcept nogil:
    """Solve arena[base .. base + n), sorted by start of life, one connected stretch of time after the other."""
    cdef i64 i = 0, begin, reach, mark = s.n_stack
    cdef int result
    while i < n:
        begin = i
        reach = s.last[s.arena[base + i].item]
        i += 1
        while i < n and s.arena[base + i].low < reach:
            reach = max(reach, s.last[s.arena[base + i].item])
            i += 1
        result = solve_connected(s, base + begin, i - begin, at, rank)
        if result != FITS:
            undo(s, mark)
            return result
    return FITS


cdef int solve_connected(Search* s, i64 items, i64 n, i64 at, i64 rank) noexcept nogil:
    """Place the items of one connected stretch at or above `at`; `rank` breaks ties with the last placed."""
    cdef i64 i, j, k, item, low, ceiling, mark = s.n_stack, keys = s.n_arena, rest
    cdef int result
    if s.budget <= 0:
        return OUT_OF_BUDGET
    s.budget -= 1
    if hopeless(s, s.arena + items, n, at):
        return FAILS
    if s.n_arena + 2 * n > s.arena_size:
        return OUT_OF_BUDGET
    ceiling = s.capacity
    for i in range(n):
        item = s.arena[items + i].item
        s.arena[keys + i].low = s.low[item]
        s.arena[keys + i].rank = s.rank[item]
        s.arena[keys + i].item = item
        ceiling = min(ceiling, s.low[item] + s.size[item])
    qsort(s.arena + keys, n, sizeof(Key), by_key)
    rest = keys + n
    s.n_arena = keys + 2 * n
    result = FAILS
    for i in range(n):
        item = s.arena[keys + i].item
        low = s.low[item]
        if low >= ceiling:
            break
        if low < at or (low == at and s.rank[item] < rank):
            continue
        place(s, item, low)
        k = 0
        for j in range(n):
            if s.arena[items + j].item != item:
                s.arena[rest + k] = s.arena[items + j]
                k += 1
        result = solve_parts(s, rest, k, low, s.rank[item])
        if result != FAILS:
            break
        undo(s, mark)
    s.n_arena = keys
    return result


cdef int run(Search* s) noexcept nogil:
    cdef i64 i
    for i in range(s.n):
        s.arena[i].low = s.first[i]
        s.arena[i].rank = s.rank[i]
        s.arena[i].item = i
    qsort(s.arena, s.n, sizeof(Key), by_key)
    s.n_arena = s.n
    return solve_parts(s, 0, s.n, 0, -1)


def pack(
    const i64[::1] first,        # IN  (n,) first section of an item's life, dense
    const i64[::1] last,         # IN  (n,) one past the last, first < last <= n_sections
    const i64[::1] size,         # IN  (n,) bytes, > 0
    const i64[::1] rank,         # IN  (n,) place of the item in the preference order, a permutation
    const i64[::1] ptr,          # IN  (n + 1,) CSR of the items that are alive together
    const i64[::1] neighbour,    # IN  (nnz,)
    i64 n_sections,              # IN
    i64 capacity,                # IN  bytes
    i64 budget,                  # IN  nodes that may be visited
    i64[::1] offset,             # OUT (n,) bytes
):
    """Return (status, nodes visited): OK, INFEASIBLE (proven) or LIMIT_REACHED. Exponential at worst; the budget bounds it."""
    cdef Search s
    cdef i64 i, j, n = size.shape[0], nnz = neighbour.shape[0]
    cdef int result
    if ptr.shape[0] != n + 1 or rank.shape[0] != n or offset.shape[0] != n or n < 1:
        return BAD_INPUT, 0
    s.n, s.capacity, s.budget = n, capacity, budget
    s.n_trail = s.n_stack = s.n_arena = 0
    s.arena_size = n * (n + 3)
    s.first, s.last, s.size = <i64*>&first[0], <i64*>&last[0], <i64*>&size[0]
    s.rank, s.ptr, s.offset = <i64*>&rank[0], <i64*>&ptr[0], &offset[0]
    s.neighbour = <i64*>&neighbour[0] if nnz else NULL
    s.low = <i64*>calloc(n, sizeof(i64))
    s.placed = <char*>calloc(n, 1)
    s.open_bytes = <i64*>calloc(n_sections + 1, sizeof(i64))
    s.floor = <i64*>calloc(n_sections + 1, sizeof(i64))
    s.trail = <Undo*>calloc(nnz + 1, sizeof(Undo))
    s.stack = <i64*>calloc(n, sizeof(i64))
    s.stack_trail = <i64*>calloc(n, sizeof(i64))
    s.arena = <Key*>calloc(s.arena_size, sizeof(Key))
    try:
        if (s.low == NULL or s.placed == NULL or s.open_bytes == NULL or s.floor == NULL or s.trail == NULL
                or s.stack == NULL or s.stack_trail == NULL or s.arena == NULL):
            return OUT_OF_MEMORY, 0
        with nogil:
            for i in range(n):
                for j in range(s.first[i], s.last[i]):
                    s.open_bytes[j] += s.size[i]
            result = run(&s)
    finally:
        free(s.low)
        free(s.placed)
        free(s.open_bytes)
        free(s.floor)
        free(s.trail)
        free(s.stack)
        free(s.stack_trail)
        free(s.arena)
    if result == OUT_OF_BUDGET:
        return LIMIT_REACHED, budget - max(s.budget, 0)
    return (OK if result == FITS else INFEASIBLE), budget - s.budget
