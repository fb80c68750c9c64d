# Exact placement: does a set of buffers fit a capacity? Depth-first over bottom-up placements, with undo.
# Imports nothing but _status, _pack_state and the C library. Must not touch Python objects in loops.
#
# Every feasible problem has a placement in which each free buffer rests on the ground or on another buffer, so an open
# (unplaced) buffer lies either on what is placed below it (`ground`) or on some open buffer. A node takes one open
# buffer that nothing can slide under, tries it at its lowest offset, and then forbids that offset, which lifts the
# buffer onto the lowest possible top of an open neighbour. Between decisions, rules of inference lift the lowest
# offsets (_pack_state.pxd).
# Parts of the timeline that no open buffer connects are solved one by one, the tightest first.
# States (open buffers with their lowest offsets) that failed are remembered by hash, in this run and the next ones.
# Sections gain weight when they fail, so that the search turns to the hard part of the timeline first.
# Ideas: canonical placements as published with the MiniMalloc project; disjunctive scheduling; failure weights.

from libc.stdlib cimport free, malloc

from tx8fast._kernels._status cimport BAD_INPUT, INFEASIBLE, LIMIT_REACHED, OK, OUT_OF_MEMORY
from tx8fast._kernels._pack_state cimport (
    FAR, Entry, Part, Search, fail, i64, lift, mix, place, propagate, rest, touch, u64, undo,
)

cdef enum Outcome:
    FITS = 1
    FAILS = 0
    OUT_OF_BUDGET = -1

cdef enum Rule:
    FEWEST = 0      # section with the fewest buffers that can lie lowest
    TIGHTEST = 1    # ... with the least slack times that number
    LEXICAL = 2     # fewest, then least slack


cdef i64 choose(Search* s, i64 items, i64 n) noexcept nogil:
    """Return the item to decide: of the section that the rule prefers, lowest, then by rank, nothing beneath it."""
    cdef i64 i, j, k, item, other, best = -1, pick = -1, lowest, first = FAR, last = -1
    cdef double value, least = 1e300
    for i in range(items, items + n):
        item = s.arena[i]
        first = min(first, s.section[s.ptr[item]])
        last = max(last, s.section[s.ptr[item + 1] - 1])
    for k in range(first, last + 1):
        if s.open_bytes[k] == 0:
            continue
        value = s.n_first[k]
        if s.rule == TIGHTEST:
            value = value * (s.capacity - s.reach[k] + s.capacity // 128 + 1) / s.weight[k]
        elif s.rule == LEXICAL:
            value = value * s.capacity + <double>(s.capacity - s.reach[k]) / s.weight[k]
        else:
            value /= s.weight[k]
        if value < least:
            least, best = value, k
    for i in range(s.mptr[best], s.mptr[best + 1]):
        item = s.member[i]
        if not s.placed[item] and (pick < 0 or precedes(s, item, pick)):
            pick = item
    while True:
        lowest, other = s.low[pick], -1
        for j in range(s.nptr[pick], s.nptr[pick + 1]):
            item = s.neighbour[j]
            if not s.placed[item] and s.low[item] + s.size[item] <= lowest:
                if other < 0 or precedes(s, item, other):
                    other = item
        if other < 0:
            return pick
        pick = other


cdef inline bint precedes(Search* s, i64 a, i64 b) noexcept nogil:
    return s.low[a] < s.low[b] or (s.low[a] == s.low[b] and s.rank[a] < s.rank[b])


cdef int solve_parts(Search* s, i64 items, i64 n) noexcept nogil:
    """Solve what is open of a list: every stretch of time that open items connect, the tightest first."""
    cdef i64 i, j, k, item, reach = -1, begin = s.n_arena, mark = s.n_parts, count
    cdef Part part
    cdef int result = FITS
    for i in range(items, items + n):
        item = s.arena[i]
        if s.placed[item]:
            continue
        if s.section[s.ptr[item]] >= reach:
            s.parts[s.n_parts].begin, s.parts[s.n_parts].count = s.n_arena, 0
            s.parts[s.n_parts].slack = FAR
            s.n_parts += 1
        s.arena[s.n_arena] = item
        s.n_arena += 1
        s.parts[s.n_parts - 1].count += 1
        reach = max(reach, s.section[s.ptr[item + 1] - 1] + 1)
        for j in range(s.ptr[item], s.ptr[item + 1]):
            k = s.section[j]
            s.parts[s.n_parts - 1].slack = min(s.parts[s.n_parts - 1].slack, s.capacity - s.reach[k])
    count = s.n_parts - mark
    for i in range(mark + 1, mark + count):
        part, j = s.parts[i], i
        while j > mark and s.parts[j - 1].slack > part.slack:
            s.parts[j] = s.parts[j - 1]
            j -= 1
        s.parts[j] = part
    for i in range(mark, mark + count):
        result = solve_connected(s, s.parts[i].begin, s.parts[i].count)
        if result != FITS:
            break
    s.n_parts, s.n_arena = mark, begin
    return result


cdef int solve_connected(Search* s, i64 items, i64 n) noexcept nogil:
    """Place the open items of one connected stretch; what failed is taken back by the caller."""
    cdef i64 i, item, mark
    cdef u64 state, before = 0
    cdef int result
    while True:
        if s.budget <= 0:
            return OUT_OF_BUDGET
        s.budget -= 1
        state = 0
        for i in range(items, items + n):
            item = s.arena[i]
            state += mix(mix(item + 1) + 2 * <u64>s.low[item] + (s.low[item] > s.ground[item]))
        state |= 1
        if before == 0:
            before = state
        if s.failed[state & s.mask] == state:
            s.failed[before & s.mask] = before
            return FAILS
        item = choose(s, items, n)
        mark = s.n_trail
        result = FAILS
        if place(s, item) and propagate(s):
            result = solve_parts(s, items, n)
        if result != FAILS:
            return result
        undo(s, mark)
        propagate(s)  # restores what is known of the sections; the state had passed before
        if not lift(s, item, rest(s, item)):
            fail(s, s.section[s.ptr[item]])
        elif propagate(s):
            continue
        s.failed[state & s.mask] = state
        s.failed[before & s.mask] = before
        return FAILS


cdef int run(Search* s, i64 n, i64 n_sections, const i64[::1] by_first, const i64[::1] fixed) noexcept nogil:
    cdef i64 i, j, k
    for k in range(n_sections):
        s.open_bytes[k] = s.is_dirty[k] = s.n_first[k] = s.reach[k] = 0
        s.top[k] = s.second[k] = FAR
        s.top_item[k] = -1
    for i in range(n):
        s.low[i] = s.ground[i] = max(fixed[i], 0)
        s.high[i] = s.capacity - s.size[i]
        s.placed[i] = s.is_check[i] = 0
        s.arena[i] = by_first[i]
        if fixed[i] >= 0:
            s.high[i] = min(s.high[i], fixed[i])
        if s.low[i] > s.high[i]:
            return FAILS
        for j in range(s.ptr[i], s.ptr[i + 1]):
            s.open_bytes[s.section[j]] += s.size[i]
        touch(s, i)
    s.n_arena = n
    if not propagate(s):
        return FAILS
    return solve_parts(s, 0, n)


def pack(
    const i64[::1] ptr,          # IN  (n + 1,) CSR of the sections in which an item lives
    const i64[::1] section,      # IN  (m,) ascending for each item, at least one
    const i64[::1] nptr,         # IN  (n + 1,) CSR of the items that share a section with an item
    const i64[::1] neighbour,    # IN  (nnz,)
    const i64[::1] mptr,         # IN  (sections + 1,) CSR of the items of a section
    i64[::1] member,             # IN  (m,) reordered inside each section
    const i64[::1] size,         # IN  (n,) bytes, > 0
    const i64[::1] align,        # IN  (n,) bytes, >= 1
    const i64[::1] fixed,        # IN  (n,) required offset or -1
    const i64[::1] rank,         # IN  (n,) place of the item in the preference order, a permutation
    const i64[::1] by_first,     # IN  (n,) items by rising first section
    i64 rule,                    # IN  how the next section is chosen, see Rule
    i64 capacity,                # IN  bytes
    i64 budget,                  # IN  nodes that may be visited
    i64[::1] weight,             # INOUT (sections,) 1 + failures seen
    u64[::1] failed,             # INOUT (a power of two,) states known to fail at this capacity, 0 = none
    i64[::1] offset,             # OUT (n,) bytes
):
    """Return (status, nodes visited): OK, INFEASIBLE (proven) or LIMIT_REACHED. Exponential at worst; the budget bounds it."""
    cdef Search s
    cdef i64 n = size.shape[0], n_sections = weight.shape[0], words
    cdef int result
    cdef i64* room
    cdef char* flags
    if (n < 1 or n_sections < 1 or ptr.shape[0] != n + 1 or nptr.shape[0] != n + 1 or mptr.shape[0] != n_sections + 1
            or member.shape[0] != section.shape[0] or align.shape[0] != n or fixed.shape[0] != n or rank.shape[0] != n
            or by_first.shape[0] != n or offset.shape[0] != n or failed.shape[0] < 1
            or failed.shape[0] & (failed.shape[0] - 1)):
        return BAD_INPUT, 0
    s.capacity, s.budget, s.rule, s.mask = capacity, budget, rule, failed.shape[0] - 1
    s.size, s.align, s.rank, s.ptr = <i64*>&size[0], <i64*>&align[0], <i64*>&rank[0], <i64*>&ptr[0]
    s.section, s.nptr, s.mptr, s.member = <i64*>&section[0], <i64*>&nptr[0], <i64*>&mptr[0], &member[0]
    s.neighbour = <i64*>&neighbour[0] if neighbour.shape[0] else NULL
    s.weight, s.failed, s.offset = &weight[0], &failed[0], &offset[0]
    s.n_dirty = s.n_check = s.n_trail = s.n_arena = s.n_parts = s.out_of_memory = 0
    s.trail_size = 8 * n + 64
    words = 4 * n + 7 * n_sections + n + n * (n + 1) // 2
    room = <i64*>malloc(words * sizeof(i64))
    flags = <char*>malloc(2 * n + n_sections)
    s.trail = <Entry*>malloc(s.trail_size * sizeof(Entry))
    s.parts = <Part*>malloc((2 * n + 4) * sizeof(Part))
    try:
        if room == NULL or flags == NULL or s.trail == NULL or s.parts == NULL:
            return OUT_OF_MEMORY, 0
        s.low, s.high, s.ground, s.check = room, room + n, room + 2 * n, room + 3 * n
        room_sections(&s, room + 4 * n, n_sections)
        s.arena = room + 4 * n + 7 * n_sections
        s.placed, s.is_check, s.is_dirty = flags, flags + n, flags + 2 * n
        with nogil:
            result = run(&s, n, n_sections, by_first, fixed)
    finally:
        free(room)
        free(flags)
        free(s.trail)
        free(s.parts)
    if s.out_of_memory:
        return OUT_OF_MEMORY, 0
    if result == OUT_OF_BUDGET:
        return LIMIT_REACHED, budget - max(s.budget, 0)
    return (OK if result == FITS else INFEASIBLE), budget - s.budget


cdef void room_sections(Search* s, i64* room, i64 n) noexcept nogil:
    s.open_bytes, s.n_first, s.top, s.top_item = room, room + n, room + 2 * n, room + 3 * n
    s.second, s.reach, s.dirty = room + 4 * n, room + 5 * n, room + 6 * n
