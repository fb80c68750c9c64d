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
    # the same trees as lists, each in the order of the columns: -1 ends a list
    int64_t* first_hop  # (n_trees,) links at the source
    int64_t* first_child  # (n_hops,) links behind a link
    int64_t* next_hop  # (n_hops,) the next one behind the same link
    int64_t* first_leaf  # (n_hops,) destinations behind a link
    int64_t* next_leaf  # (n_leaves,)
    int64_t* own_leaf  # (n_trees,) destinations that are the source itself
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


cdef inline void list_trees(Noc* noc, int64_t n_trees) noexcept nogil:
    """Fill the lists of links and destinations behind each link."""
    cdef int64_t tree, i
    cdef int64_t* head
    for tree in range(n_trees):
        noc.first_hop[tree] = noc.own_leaf[tree] = -1
        i = noc.tree_begin[tree + 1]
        while i > noc.tree_begin[tree]:  # backwards: what is put in front last comes first
            i -= 1
            noc.first_child[i] = noc.first_leaf[i] = -1
        i = noc.tree_begin[tree + 1]
        while i > noc.tree_begin[tree]:
            i -= 1
            head = &noc.first_hop[tree]
            if noc.hop_parent[i] >= 0:
                head = &noc.first_child[noc.tree_begin[tree] + noc.hop_parent[i]]
            noc.next_hop[i] = head[0]
            head[0] = i
        i = noc.leaf_begin[tree + 1]
        while i > noc.leaf_begin[tree]:
            i -= 1
            head = &noc.own_leaf[tree]
            if noc.leaf_hop[i] >= 0:
                head = &noc.first_leaf[noc.tree_begin[tree] + noc.leaf_hop[i]]
            noc.next_leaf[i] = head[0]
            head[0] = i


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


cdef inline void take_link(Noc* noc, int64_t slot, int64_t pos, int64_t when) noexcept nogil:
    """The head of a message is at link `pos` of its tree at `when`."""
    cdef Message* m = &noc.messages[slot]
    cdef int64_t first = noc.tree_begin[m.tree], i
    cdef int64_t link = noc.hop_link[first + pos]
    cdef int64_t begin = max(when, noc.link_free[link]), hop = noc.hop_cycles
    if link >= noc.first_port:
        hop = 0
    elif link >= noc.first_slow:
        hop = noc.slow_cycles
    noc.link_free[link] = begin + link_cycles(noc, link, m)
    noc.link_bytes[link] += m.bytes
    i = noc.first_leaf[first + pos]
    while i >= 0:
        arrive(noc, m, i, begin + hop + m.reach)
        i = noc.next_leaf[i]
    i = noc.first_child[first + pos]
    while i >= 0:
        push(
            &noc.heads, <double>(begin + hop), m.row * POSITIONS + i - first + 1, slot * POSITIONS + i - first + 1,
        )
        i = noc.next_hop[i]


cdef inline bint move_head(Noc* noc, Entry* head) noexcept nogil:
    """Handle one event of `heads`; return whether the message's end is now known (`messages[slot].end`)."""
    cdef int64_t slot = head.row // POSITIONS, pos = head.row % POSITIONS - 1
    cdef int64_t when = <int64_t>head.key, i, turn
    cdef Message* m = &noc.messages[slot]
    if pos >= 0:
        take_link(noc, slot, pos, when)
        return m.left == 0
    i = noc.own_leaf[m.tree]
    while i >= 0:
        arrive(noc, m, i, when + (noc.leaf_turn[i] + 1) * m.cycles)
        i = noc.next_leaf[i]
    i = noc.first_hop[m.tree]
    while i >= 0:
        turn, pos = noc.hop_turn[i], i - noc.tree_begin[m.tree]
        if turn == 0:
            take_link(noc, slot, pos, when)
        else:
            push(
                &noc.heads, <double>(when + turn * m.cycles), m.row * POSITIONS + pos + 1, slot * POSITIONS + pos + 1
            )
        i = noc.next_hop[i]
    return m.left == 0
