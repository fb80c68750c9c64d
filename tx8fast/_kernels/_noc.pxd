# Messages between tiles: trees of links, one message on a link at a time, monitors at the receivers.
# Imports _heap and the C library. Must not allocate, or know tiles' programs.
#
# A message moves as one piece: its head needs `hop_cycles` per link and takes each link for the time its bytes
# need, behind the messages whose heads were there before. Links downstream follow at the rate of the slowest link so
# far; links between chips have a rate and a time per hop of their own, and so have the ports through which tiles write what
# arrives: the last link of every way, if a machine has them. Links are numbered in this order: mesh, chips, ports.

from libc.stdint cimport int64_t

from tx8fast._kernels._heap cimport Entry, Heap, push

cdef enum:
    MONITORS = 4
    POSITIONS = 2048  # links of one tree, and one more; keys of events hold row * POSITIONS + position


cdef struct Message:
    int64_t row, tree, bytes, monitor
    int64_t cycles  # on a link of the mesh
    int64_t reach  # on the slowest link of its tree
    int64_t left  # destinations not yet decided
    int64_t end


cdef struct Noc:
    # inputs
    const int64_t* tree_of  # (n_tiles, n_masks)
    const int64_t* tree_begin
    const int64_t* hop_link
    const int64_t* hop_parent  # position in the tree, -1 = leaves the source
    const int64_t* hop_turn  # of links at the source: messages that enter before
    const int64_t* leaf_begin
    const int64_t* leaf_tile
    const int64_t* leaf_hop  # position in the tree, -1 = the source itself
    const int64_t* leaf_turn
    const int64_t* mask_size
    int64_t n_masks, engines, link_rate, hop_cycles
    int64_t first_slow, slow_rate, slow_cycles, first_port, write_rate
    # outputs
    int64_t* link_bytes
    int64_t* monitors
    # state
    int64_t* link_free
    int64_t* landed  # (n_tiles, MONITORS): time of the last arrival
    int64_t* group_missing
    int64_t* group_time
    Message* messages  # (n_tiles, engines)
    Heap heads  # who: row * POSITIONS + position + 1 (0: entering the network); row: slot * POSITIONS + same
    Heap landings  # who: tile * MONITORS + monitor; row: bytes


cdef inline int64_t link_cycles(Noc* noc, int64_t link, const Message* m) noexcept nogil:
    """How long a message takes a link."""
    if link >= noc.first_port:
        return (m.bytes + noc.write_rate - 1) // noc.write_rate
    if link >= noc.first_slow:
        return (m.bytes + noc.slow_rate - 1) // noc.slow_rate
    return m.cycles


cdef inline void time_message(Noc* noc, Message* m) noexcept nogil:
    """Set how long the message takes on links, from its bytes and its tree."""
    cdef int64_t i
    m.cycles = (m.bytes + noc.link_rate - 1) // noc.link_rate
    m.reach = m.cycles
    for i in range(noc.tree_begin[m.tree], noc.tree_begin[m.tree + 1]):
        if noc.hop_link[i] >= noc.first_slow:
            m.reach = max(m.reach, link_cycles(noc, noc.hop_link[i], m))


cdef inline void arrive(Noc* noc, Message* m, int64_t leaf, int64_t when) noexcept nogil:
    """The last byte for a destination is there at `when`."""
    push(&noc.landings, <double>when, noc.leaf_tile[leaf] * MONITORS + m.monitor, m.bytes)
    m.left -= 1
    m.end = max(m.end, when)


cdef inline void land(Noc* noc, int64_t slot, int64_t pos, int64_t when) noexcept nogil:
    """Decide the arrivals at tiles behind link `pos` of the tree."""
    cdef Message* m = &noc.messages[slot]
    cdef int64_t i
    for i in range(noc.leaf_begin[m.tree], noc.leaf_begin[m.tree + 1]):
        if noc.leaf_hop[i] == pos:
            arrive(noc, m, i, when)


cdef inline void take_link(Noc* noc, int64_t slot, int64_t pos, int64_t when) noexcept nogil:
    """The head of a message is at link `pos` of its tree at `when`."""
    cdef Message* m = &noc.messages[slot]
    cdef int64_t first = noc.tree_begin[m.tree], child
    cdef int64_t link = noc.hop_link[first + pos]
    cdef int64_t begin = max(when, noc.link_free[link]), hop = noc.hop_cycles
    if link >= noc.first_port:
        hop = 0
    elif link >= noc.first_slow:
        hop = noc.slow_cycles
    noc.link_free[link] = begin + link_cycles(noc, link, m)
    noc.link_bytes[link] += m.bytes
    land(noc, slot, pos, begin + hop + m.reach)
    for child in range(pos + 1, noc.tree_begin[m.tree + 1] - first):
        if noc.hop_parent[first + child] == pos:
            push(
                &noc.heads, <double>(begin + hop), m.row * POSITIONS + child + 1,
                slot * POSITIONS + child + 1,
            )


cdef inline bint move_head(Noc* noc, Entry* head) noexcept nogil:
    """Handle one event of `heads`; return whether the message's end is now known (`messages[slot].end`)."""
    cdef int64_t slot = head.row // POSITIONS, pos = head.row % POSITIONS - 1
    cdef int64_t when = <int64_t>head.key, i, turn
    cdef Message* m = &noc.messages[slot]
    if pos >= 0:
        take_link(noc, slot, pos, when)
        return m.left == 0
    for i in range(noc.leaf_begin[m.tree], noc.leaf_begin[m.tree + 1]):
        if noc.leaf_hop[i] == -1:
            arrive(noc, m, i, when + (noc.leaf_turn[i] + 1) * m.cycles)
    for i in range(noc.tree_begin[m.tree + 1] - noc.tree_begin[m.tree]):
        if noc.hop_parent[noc.tree_begin[m.tree] + i] != -1:
            continue
        turn = noc.hop_turn[noc.tree_begin[m.tree] + i]
        if turn == 0:
            take_link(noc, slot, i, when)
        else:
            push(
                &noc.heads, <double>(when + turn * m.cycles), m.row * POSITIONS + i + 1, slot * POSITIONS + i + 1
            )
    return m.left == 0
