# Enumerates the ways to cut a tensor over tiles. Imports nothing but _status. Must not touch Python objects in loops.

from tx8fast._kernels._status cimport BAD_INPUT, OK, OUTPUT_TOO_SMALL

cdef enum:
    MAX_RANK = 16


cdef struct Walk:
    int rank
    bint n_first
    long long[MAX_RANK] pieces   # ceil(shape / base): what a dimension can be cut into usefully
    long long[MAX_RANK] limit    # most parts a dimension may get
    long long[MAX_RANK] parts    # the vector under construction


cdef inline long long effective(Walk* w) noexcept nogil:
    cdef long long eff = 1
    cdef int d
    for d in range(w.rank):
        eff *= min(w.pieces[d], w.parts[d])
    return eff


cdef void emit(Walk* w, long long[::1] slot, long long[:, ::1] out, long long[::1] out_eff, bint place) noexcept nogil:
    """First round: count vectors per effective number of tiles. Second round: put each where it belongs."""
    cdef long long eff = effective(w)
    cdef long long row
    cdef int d
    if place:
        row = slot[eff]
        for d in range(w.rank):
            out[row, d] = w.parts[d]
        out_eff[row] = eff
    slot[eff] += 1


cdef void descend(
    Walk* w, int d, long long remaining, long long[::1] slot, long long[:, ::1] out, long long[::1] out_eff, bint place
) noexcept nogil:
    """Visit the factorisations of `remaining` over dimensions d.. in lexicographic order."""
    cdef long long k, step
    if d == w.rank:
        if remaining == 1:
            emit(w, slot, out, out_eff, place)
        return
    for step in range(1, remaining + 1):
        k = remaining + 1 - step if w.n_first else step
        if remaining % k == 0 and k <= w.limit[d]:
            w.parts[d] = k
            descend(w, d + 1, remaining // k, slot, out, out_eff, place)


cdef void visit_all(
    Walk* w, long long n_parts, long long[::1] slot, long long[:, ::1] out, long long[::1] out_eff, bint place
) noexcept nogil:
    """Visit every factorisation and the all-ones vector, which is the lexicographic minimum."""
    cdef int d
    if n_parts > 1 and not w.n_first:
        for d in range(w.rank):
            w.parts[d] = 1
        emit(w, slot, out, out_eff, place)
    descend(w, 0, n_parts, slot, out, out_eff, place)
    if n_parts > 1 and w.n_first:
        for d in range(w.rank):
            w.parts[d] = 1
        emit(w, slot, out, out_eff, place)


def shard_enum(
    const long long[::1] shape,     # IN  (rank,) elements
    const long long[::1] base,      # IN  (rank,) elements of the smallest useful piece
    const long long[::1] limit,     # IN  (rank,) most parts per dimension
    long long n_parts,              # IN  parts to hand out
    bint n_first,                   # IN  descending instead of ascending lexicographic ties
    long long[::1] slot,            # SCRATCH (n_parts + 2,) zeros
    long long[:, ::1] out,          # OUT (capacity, rank) parts per dimension
    long long[::1] out_eff,         # OUT (capacity,) effective tiles
):
    """Return (status, number of vectors). Complexity: O(vectors * rank + divisors tried)."""
    cdef Walk w
    cdef int d
    cdef long long eff, at = 0, here, total = 0
    if shape.shape[0] > MAX_RANK or n_parts < 1 or slot.shape[0] < n_parts + 2:
        return BAD_INPUT, 0
    w.rank = <int>shape.shape[0]
    w.n_first = n_first
    for d in range(w.rank):
        w.pieces[d] = (shape[d] + base[d] - 1) // base[d]
        w.limit[d] = limit[d]
    with nogil:
        visit_all(&w, n_parts, slot, out, out_eff, False)
        for eff in range(n_parts + 1):
            total += slot[eff]
        if total <= out.shape[0]:
            for eff in range(n_parts, -1, -1):
                here = slot[eff]
                slot[eff] = at
                at += here
            visit_all(&w, n_parts, slot, out, out_eff, True)
    if total > out.shape[0]:
        return OUTPUT_TOO_SMALL, total
    return OK, total
