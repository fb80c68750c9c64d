# State of the exact placement and its rules of inference: what pack.pyx searches with. Included by that kernel only.
# Imports nothing but the C library. Must not decide anything, nor touch Python objects.
#
# Between decisions four rules lift the lowest offsets:
# - cannot be first: in a section of time, a buffer that would leave too little room for the others when it lay lowest
#   lies on top of one that can (scheduling calls this "not first");
# - floor: filling a section by rising lowest offsets must not pass the capacity;
# - support: a lowest offset above the ground must be reachable by resting on an open neighbour;
# - limits: no lowest offset above the highest, which is the given offset or what the capacity leaves.

from libc.stdlib cimport realloc

cdef extern from *:
    """
    #define PACK_FAR (1LL << 62)
    """
    const long long FAR "PACK_FAR"

ctypedef long long i64
ctypedef unsigned long long u64

cdef enum Change:
    LOW = 0
    GROUND = 1
    PLACED = 2


cdef struct Entry:
    i64 kind
    i64 item
    i64 value


cdef struct Part:
    i64 begin          # position in the arena
    i64 count
    i64 slack


cdef struct Search:
    i64 capacity
    i64 budget          # nodes left
    i64 rule
    i64 mask            # size of the table of failed states - 1
    i64* size           # (n,)
    i64* align          # (n,)
    i64* rank           # (n,) place in the preference order
    i64* ptr            # (n + 1,) sections of each item, CSR, ascending
    i64* section
    i64* nptr           # (n + 1,) items alive together with each item, CSR
    i64* neighbour
    i64* mptr           # (sections + 1,) items of each section, CSR; kept sorted by low as far as possible
    i64* member
    i64* weight         # (sections,) 1 + failures seen
    u64* failed         # (mask + 1,) hashes of failed states
    i64* low            # (n,) lowest offset still possible
    i64* high           # (n,) highest
    i64* ground         # (n,) lowest offset that placed items leave
    char* placed        # (n,)
    i64* offset         # (n,)
    i64* open_bytes     # (sections,) bytes not yet placed
    i64* n_first        # (sections,) items that can lie lowest
    i64* top            # (sections,) least low + size among the open items ...
    i64* top_item       # ... whose it is ...
    i64* second         # ... and the least of the others
    i64* reach          # (sections,) where filling by rising lows ends
    i64* dirty          # stack of sections to look at again
    i64 n_dirty
    char* is_dirty
    i64* check          # stack of items whose support is to be looked at again
    i64 n_check
    char* is_check
    Entry* trail        # changes to take back
    i64 n_trail
    i64 trail_size
    bint out_of_memory
    i64* arena          # item lists of the nodes on the path, sorted by first section
    i64 n_arena
    Part* parts
    i64 n_parts


cdef inline u64 mix(u64 x) noexcept nogil:
    x = (x ^ (x >> 30)) * <u64>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <u64>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef inline void log(Search* s, i64 kind, i64 item, i64 value) noexcept nogil:
    cdef Entry* larger
    if s.n_trail == s.trail_size:
        larger = <Entry*>realloc(s.trail, 2 * s.trail_size * sizeof(Entry))
        if larger == NULL:  # the run ends and its result is void
            s.out_of_memory, s.budget = 1, 0
            return
        s.trail = larger
        s.trail_size *= 2
    s.trail[s.n_trail].kind, s.trail[s.n_trail].item, s.trail[s.n_trail].value = kind, item, value
    s.n_trail += 1


cdef inline void touch(Search* s, i64 item) noexcept nogil:
    cdef i64 j, k
    for j in range(s.ptr[item], s.ptr[item + 1]):
        k = s.section[j]
        if not s.is_dirty[k]:
            s.is_dirty[k] = 1
            s.dirty[s.n_dirty] = k
            s.n_dirty += 1


cdef inline void ask(Search* s, i64 item) noexcept nogil:
    if not s.is_check[item]:
        s.is_check[item] = 1
        s.check[s.n_check] = item
        s.n_check += 1


cdef inline i64 round_up(i64 value, i64 align) noexcept nogil:
    return value if align == 1 else (value + align - 1) // align * align


cdef inline bint lift(Search* s, i64 item, i64 at) noexcept nogil:
    """Raise the lowest offset of an item to `at` or the next aligned one; False if that is too high."""
    at = round_up(at, s.align[item])
    if at > s.high[item]:
        return False
    log(s, LOW, item, s.low[item])
    s.low[item] = at
    touch(s, item)
    if at > s.ground[item]:
        ask(s, item)
    return True


cdef inline bint fail(Search* s, i64 k) noexcept nogil:
    """Give section k weight, forget what was to be looked at (undo brings it back), return False."""
    s.weight[k] += 1
    while s.n_dirty:
        s.n_dirty -= 1
        s.is_dirty[s.dirty[s.n_dirty]] = 0
    while s.n_check:
        s.n_check -= 1
        s.is_check[s.check[s.n_check]] = 0
    return False


cdef inline i64 rest(Search* s, i64 item) noexcept nogil:
    """Return the least top of an open neighbour: where the item lands when it does not rest on placed ones."""
    cdef i64 j, k, at = FAR
    for j in range(s.ptr[item], s.ptr[item + 1]):
        k = s.section[j]
        at = min(at, s.second[k] if s.top_item[k] == item else s.top[k])
    return at


cdef inline bint look(Search* s, i64 k) noexcept nogil:
    """Apply the rules to section k and refresh what is known of it; False if it cannot be filled."""
    cdef i64 i, j, item, low, n = 0, n_first, bound, filled, least, size = s.mptr[k + 1] - s.mptr[k]
    cdef i64* m = s.member + s.mptr[k]
    cdef bint again = True
    for i in range(size):  # open items to the front, by rising low; the order is nearly right already
        item = m[i]
        if not s.placed[item]:
            m[i] = m[n]
            low, j = s.low[item], n
            n += 1
            while j > 0 and s.low[m[j - 1]] > low:
                m[j] = m[j - 1]
                j -= 1
            m[j] = item
    bound = s.capacity - s.open_bytes[k]
    while again:
        again = False
        filled, n_first, least = 0, 0, FAR
        for i in range(n):
            item = m[i]
            low = s.low[item]
            filled = max(filled, low) + s.size[item]
            if low <= bound:
                n_first += 1
                least = min(least, low + s.size[item])
        if filled > s.capacity:
            return fail(s, k)
        for i in range(n_first, n):
            if s.low[m[i]] < least:
                if not lift(s, m[i], least):
                    return fail(s, k)
                again = True
        if again:
            for i in range(n_first + 1, n):
                item, j = m[i], i
                while j > n_first and s.low[m[j - 1]] > s.low[item]:
                    m[j] = m[j - 1]
                    j -= 1
                m[j] = item
    s.n_first[k], s.reach[k] = n_first, filled
    cdef i64 top = FAR, second = FAR, owner = -1
    for i in range(n):
        low = s.low[m[i]] + s.size[m[i]]
        if low < top:
            second, top, owner = top, low, m[i]
        elif low < second:
            second = low
    if top != s.top[k] or second != s.second[k] or owner != s.top_item[k]:
        s.top[k], s.second[k], s.top_item[k] = top, second, owner
        for i in range(n):
            if s.low[m[i]] > s.ground[m[i]]:
                ask(s, m[i])
    return True


cdef inline bint propagate(Search* s) noexcept nogil:
    """Apply all rules until nothing changes; False if some section cannot be filled."""
    cdef i64 k, item, at
    while s.n_dirty or s.n_check:
        if s.n_dirty:
            s.n_dirty -= 1
            k = s.dirty[s.n_dirty]
            s.is_dirty[k] = 0
            if not look(s, k):
                return False
        else:
            s.n_check -= 1
            item = s.check[s.n_check]
            s.is_check[item] = 0
            if not s.placed[item] and s.low[item] > s.ground[item]:
                at = rest(s, item)
                if s.low[item] < at and not lift(s, item, at):
                    return fail(s, s.section[s.ptr[item]])
    return True


cdef inline void undo(Search* s, i64 mark) noexcept nogil:
    cdef i64 j, item
    while s.n_trail > mark:
        s.n_trail -= 1
        item = s.trail[s.n_trail].item
        if s.trail[s.n_trail].kind == LOW:
            s.low[item] = s.trail[s.n_trail].value
            touch(s, item)
        elif s.trail[s.n_trail].kind == GROUND:
            s.ground[item] = s.trail[s.n_trail].value
        else:
            s.placed[item] = 0
            for j in range(s.ptr[item], s.ptr[item + 1]):
                s.open_bytes[s.section[j]] += s.size[item]
            touch(s, item)


cdef inline bint place(Search* s, i64 item) noexcept nogil:
    """Put the item at its lowest offset, under all open neighbours."""
    cdef i64 j, other, at, top = s.low[item] + s.size[item]
    log(s, PLACED, item, 0)
    s.placed[item] = 1
    s.offset[item] = s.low[item]
    for j in range(s.ptr[item], s.ptr[item + 1]):
        s.open_bytes[s.section[j]] -= s.size[item]
    touch(s, item)
    for j in range(s.nptr[item], s.nptr[item + 1]):
        other = s.neighbour[j]
        if s.placed[other]:
            continue
        at = round_up(top, s.align[other])
        if s.ground[other] < at:
            log(s, GROUND, other, s.ground[other])
            s.ground[other] = at
        if s.low[other] < top and not lift(s, other, top):
            return fail(s, s.section[s.ptr[other]])
    return True
