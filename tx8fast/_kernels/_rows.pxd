# Part of the event kernel: are rows what the kernel trusts them to be? One pass over rows whose shapes are right.
# Imports its neighbours and the C library. The facade says in words what is found (`UNSOUND`, by these numbers).

from libc.stdint cimport int32_t, int64_t, uint8_t

from tx8fast._kernels._noc cimport MONITORS
from tx8fast._kernels._tiles cimport BARRIER_SUB, CORE, HANDSHAKE, RECV, SEND, WAIT_WORKER, WORKERS

cdef enum Unsound:
    SOUND = 0
    NO_KIND = 1
    NO_WORKER = 2
    BAD_TIME = 3
    NO_ARG = 4
    BAD_BYTES = 5
    NO_MONITOR = 6
    NO_MASK = 7
    NO_WORKERS = 8
    NO_PEER = 9
    NO_PARTITION = 10
    NO_CODE = 11
    NO_TREE = 12
    TOO_LONG = 13
    NO_FORM = 14
    NO_SLOT = 15

cdef enum:
    MAX_TIME_LOG2 = 40  # of one row, cycles or bytes
    MAX_SUM_LOG2 = 61  # of all cycles


cdef inline bint below(int64_t value, int64_t top) noexcept nogil:
    return 0 <= value < top


cdef inline Unsound check_arg(int kind, const int64_t* arg, int64_t n_tiles,
                              const int64_t[::1] mask_size) noexcept nogil:
    """Do a row's arguments (3) suit its kind?"""
    if kind == SEND or kind == RECV:
        if not below(arg[0], <int64_t>1 << MAX_TIME_LOG2):
            return BAD_BYTES
        if not below(arg[2], MONITORS):
            return NO_MONITOR
    if kind == SEND or kind == BARRIER_SUB:
        if not below(arg[1], mask_size.shape[0]) or mask_size[arg[1]] < 1:
            return NO_MASK
    if kind == WAIT_WORKER and not below(arg[0], 1 << WORKERS):
        return NO_WORKERS
    if kind == HANDSHAKE and not below(arg[0], n_tiles):
        return NO_PEER
    return SOUND


cdef inline Unsound check_code(const uint8_t[::1] kind, const int64_t[::1] issue, const int32_t[::1] form,
                               const uint8_t[::1] worker, const int64_t[:, ::1] arg, bint has_args,
                               const int64_t[::1] ddr_slot, int64_t n_slots, int64_t n_tiles,
                               const int64_t[::1] mask_size) noexcept nogil:
    """Code rows by themselves."""
    cdef int64_t i, top = <int64_t>1 << MAX_TIME_LOG2
    cdef Unsound found
    for i in range(worker.shape[0]):
        if worker[i] >= WORKERS:
            return NO_WORKER
        if not -1 <= ddr_slot[i] < n_slots:
            return NO_SLOT
    for i in range(kind.shape[0]):
        if kind[i] > CORE:
            return NO_KIND
        if not below(form[i], worker.shape[0]):
            return NO_FORM
        if not below(issue[i], top):
            return BAD_TIME
        if kind[i] >= SEND:
            found = check_arg(kind[i], &arg[form[i], 0], n_tiles, mask_size) if has_args else NO_ARG
            if found != SOUND:
                return found
    return SOUND


cdef inline Unsound check_tiles(const uint8_t[::1] kind, const int32_t[::1] form, const int64_t[:, ::1] arg,
                                const int64_t[::1] code_begin, const int64_t[::1] tile_begin, int64_t n_rows, const int64_t[:, ::1] tree_of,
                                int64_t n_trees) noexcept nogil:
    """Do the tiles' stretches lie inside the rows, and has every message a tree? Code rows are sound; tree_of has a row per
    tile and a column per tile set if there are trees."""
    cdef int64_t t, i, n, n_tiles = code_begin.shape[0]
    if tile_begin[0] != 0 or tile_begin[n_tiles] != n_rows:
        return NO_PARTITION
    for t in range(n_tiles):
        n = tile_begin[t + 1] - tile_begin[t]
        if n < 0:
            return NO_PARTITION
        if code_begin[t] < 0 or code_begin[t] > kind.shape[0] or n > kind.shape[0] - code_begin[t]:
            return NO_CODE
        for i in range(code_begin[t], code_begin[t] + n):
            if kind[i] == SEND and (n_trees == 0 or not below(tree_of[t, arg[form[i], 1]], n_trees)):
                return NO_TREE
    return SOUND


cdef inline Unsound check_times(const int64_t[::1] fixed, const int64_t[::1] ddr_bytes) noexcept nogil:
    cdef int64_t i, top = <int64_t>1 << MAX_TIME_LOG2
    cdef double total = 0
    for i in range(fixed.shape[0]):
        if not (below(fixed[i], top) and below(ddr_bytes[i], top)):
            return BAD_TIME
        total += <double>fixed[i]
    return SOUND if total < <double>(<int64_t>1 << MAX_SUM_LOG2) else TOO_LONG


cdef inline Unsound check_rows(
    const uint8_t[::1] kind, const int64_t[::1] issue, const int32_t[::1] form, const uint8_t[::1] worker,
    const int64_t[:, ::1] arg, bint has_args, const int64_t[::1] ddr_slot, int64_t n_slots, const int64_t[::1] code_begin, const int64_t[::1] tile_begin, const int64_t[::1] fixed,
    const int64_t[::1] ddr_bytes, const int64_t[:, ::1] tree_of, int64_t n_trees, const int64_t[::1] mask_size,
) noexcept nogil:
    """Return what is wrong with the rows of `events.simulate`."""
    cdef Unsound found = check_code(kind, issue, form, worker, arg, has_args, ddr_slot, n_slots, code_begin.shape[0], mask_size)
    if found == SOUND:
        found = check_tiles(kind, form, arg, code_begin, tile_begin, fixed.shape[0], tree_of, n_trees)
    return check_times(fixed, ddr_bytes) if found == SOUND else found
