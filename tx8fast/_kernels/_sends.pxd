# What a tile's rows do with messages: give one to a transfer engine, take what has arrived. Imports its neighbours and the C library.
# Must not allocate, or move messages over links.

from libc.stdint cimport int64_t

from tx8fast._kernels._heap cimport push
from tx8fast._kernels._noc cimport MONITORS, POSITIONS, Message, Noc, time_message
from tx8fast._kernels._tiles cimport DTE, UNITS, Tile, World


cdef inline bint send(World* w, int64_t t, int64_t row, int64_t code, int64_t begin) noexcept nogil:
    """Give a message to the next transfer engine, engines take turns; False if it is not known when it is free."""
    cdef Tile* tile = &w.tiles[t]
    cdef Noc* noc = &w.noc
    cdef int64_t slot = t * noc.engines + tile.sent % noc.engines, when = begin
    cdef Message* m = &noc.messages[slot]
    if tile.sent >= noc.engines:
        if w.end[m.row] < 0:
            return False
        when = max(when, w.end[m.row])
    w.blocked[t * UNITS + DTE] += when - begin
    w.start[row] = when
    m.row = row
    m.bytes = w.arg[w.form[code] * 3]
    m.tree = noc.tree_of[t * noc.n_masks + w.arg[w.form[code] * 3 + 1]]
    m.monitor = w.arg[w.form[code] * 3 + 2]
    time_message(noc, m)
    m.left = noc.leaf_begin[m.tree + 1] - noc.leaf_begin[m.tree]
    m.end = when
    push(&noc.heads, <double>(when + w.fixed[row]), row * POSITIONS, slot * POSITIONS)
    tile.sent += 1
    tile.core = when
    return True


cdef inline bint take(World* w, int64_t t, int64_t row, int64_t code, int64_t* when) noexcept nogil:
    """Take bytes off a monitor, `when` not before they are there; False if they are not."""
    cdef int64_t at = t * MONITORS + w.arg[w.form[code] * 3 + 2]
    if w.noc.monitors[at] < w.arg[w.form[code] * 3]:
        return False
    w.noc.monitors[at] -= w.arg[w.form[code] * 3]
    when[0] = max(when[0], w.noc.landed[at])
    return True
