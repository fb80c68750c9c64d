# Event kernel of the cycle simulator: all tiles of one stretch of code, at once. Imports the parts beside it,
# _status and the C library. Must not touch Python objects in loops or know the machine.
#
# Inside a tile every time follows from older rows by max and plus, so a tile runs ahead in its own
# time until it needs the end of a DDR transfer or something from another tile. Only transfers and messages
# share something, so only they are global events. Every chip has its own DDR and its own barrier of all tiles.
# A time that becomes known while an event is handled is never earlier than that event.

from libc.math cimport INFINITY, ceil
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from tx8fast._kernels._ddr cimport Ddr, begin_flow, end_flow, next_end
from tx8fast._kernels._heap cimport Entry, pop, push
from tx8fast._kernels._noc cimport MONITORS, POSITIONS, Message, Noc, list_trees, move_head
from tx8fast._kernels._rows cimport check_rows
from tx8fast._kernels._sends cimport send, take
from tx8fast._kernels._status cimport DEADLOCK, OK, OUT_OF_MEMORY
from tx8fast._kernels._tiles cimport (
    AT_BARRIER, AT_GROUP, AT_HANDSHAKE, BARRIER, BARRIER_SUB, CORE, DONE, DTE, ENGINES, HANDSHAKE, ISSUE, KCORE, RDMA,
    RECV, RING, RUNNING, SEND, SEND_WAIT, UNITS, WAIT, WAIT_WORKER, WDMA, Tile, World, drained_at, find_dependencies,
    sends_done_at, workers_done_at,
)

cdef double ROUND_SLACK = 1e-6  # a transfer that ends this much after a cycle ended in that cycle


cdef inline bint start_pending(World* w, int64_t t, int q) noexcept nogil:
    """Start every row of queue q whose start is decided; return whether any was."""
    cdef Tile* tile = &w.tiles[t]
    cdef int64_t k, slot, row, ready, free_at, dep, when
    cdef int other, kind
    cdef bint changed = False
    while tile.started[q] < tile.issued[q]:
        k = tile.started[q]
        slot = k & (RING - 1)
        row = tile.ring[q][slot]
        free_at = 0
        if k > 0:
            free_at = w.end[tile.ring[q][(k - 1) & (RING - 1)]]
            if free_at < 0:
                return changed
        ready = max(free_at, tile.enqueued[q][slot])
        when = max(ready, tile.dep_time[q][slot])
        for other in range(ENGINES):
            dep = tile.dep[q][slot][other]
            if dep >= 0:
                if w.end[dep] < 0:
                    return changed
                when = max(when, w.end[dep])
        kind = w.kind[tile.code + row - tile.base]
        w.blocked[t * UNITS + kind] += when - ready
        w.start[row] = when
        tile.started[q] += 1
        changed = True
        if w.ddr_bytes[row] > 0 and (kind == RDMA or kind == WDMA):
            push(&w.arrivals, <double>(when + w.fixed[row]), t * 2 + (kind == WDMA), row)
        else:
            w.end[row] = when + w.fixed[row]
            w.busy[t * UNITS + kind] += w.fixed[row]
    return changed


cdef void meet(World* w, int64_t t, int kind, int64_t code, int64_t begin) noexcept nogil:
    """Tile t arrives where it waits for others; the last one to arrive releases them all."""
    cdef Tile* tile = &w.tiles[t]
    cdef Tile* peer
    cdef int64_t other, when, group, chip, at
    w.start[tile.base + tile.pc] = begin
    tile.arrived = begin
    if kind == BARRIER:
        tile.state = AT_BARRIER
        chip = t // w.chip_tiles
        at = chip * w.n_rounds + tile.barriers
        w.round_time[at] = max(w.round_time[at], begin)
        w.round_missing[at] -= 1
        if w.round_missing[at] == 0:
            group, when = tile.barriers, w.round_time[at]
            for other in range(chip * w.chip_tiles, (chip + 1) * w.chip_tiles):
                peer = &w.tiles[other]
                if peer.state == AT_BARRIER and peer.barriers == group:
                    peer.barriers += 1
                    leave(w, other, when)
    elif kind == BARRIER_SUB:
        group = w.arg[w.form[code] * 3 + 1]
        tile.state = AT_GROUP
        tile.partner = group
        w.noc.group_time[group] = max(w.noc.group_time[group], begin)
        w.noc.group_missing[group] -= 1
        if w.noc.group_missing[group] == 0:
            when = w.noc.group_time[group]
            w.noc.group_missing[group] = w.noc.mask_size[group]
            w.noc.group_time[group] = 0
            for other in range(w.n_tiles):
                if w.tiles[other].state == AT_GROUP and w.tiles[other].partner == group:
                    leave(w, other, when)
    else:
        tile.state = AT_HANDSHAKE
        tile.partner = w.arg[w.form[code] * 3]
        peer = &w.tiles[tile.partner]
        if peer.state == AT_HANDSHAKE and peer.partner == t and peer != tile:
            other, when = tile.partner, max(tile.arrived, peer.arrived)
            leave(w, t, when)
            leave(w, other, when)


cdef void leave(World* w, int64_t t, int64_t when) noexcept nogil:
    """Let tile t go on from where it met others at `when`."""
    cdef Tile* tile = &w.tiles[t]
    cdef int64_t row = tile.base + tile.pc
    w.blocked[t * UNITS + WAIT] += when - tile.arrived
    w.busy[t * UNITS + WAIT] += w.fixed[row]
    w.busy[t * UNITS + ISSUE] += w.issue[tile.code + tile.pc]
    w.end[row] = when + w.fixed[row]
    tile.core = w.end[row]
    tile.pc += 1
    tile.state = RUNNING
    w.ready[w.n_ready] = t
    w.n_ready += 1


cdef void advance(World* w, int64_t t) noexcept nogil:
    """Run tile t until it is done, or needs a time that is not known yet."""
    cdef Tile* tile = &w.tiles[t]
    cdef int64_t row, code, when, slot, begin
    cdef int q, kind
    cdef bint changed = True
    while changed:
        changed = False
        for q in range(ENGINES):
            if tile.started[q] < tile.issued[q] and start_pending(w, t, q):
                changed = True
    while tile.state == RUNNING:
        if tile.pc == tile.rows:
            tile.state = DONE
            return
        row = tile.base + tile.pc
        code = tile.code + tile.pc
        kind = w.kind[code]
        begin = tile.core + w.issue[code]
        if kind < ENGINES:
            q = 0 if w.serial else kind
            when = begin
            if tile.issued[q] >= w.depth[q]:
                when = w.start[tile.ring[q][(tile.issued[q] - w.depth[q]) & (RING - 1)]]
                if when < 0:
                    return
                when = max(when, begin)
            w.blocked[t * UNITS + KCORE] += when - begin
            slot = tile.issued[q] & (RING - 1)
            find_dependencies(w, tile, q, slot, row, when)
            tile.ring[q][slot] = row
            tile.enqueued[q][slot] = when
            tile.issued[q] += 1
            tile.last[w.worker[w.form[code]]][q] = row + 1
            tile.core = when
            start_pending(w, t, q)
        elif kind == SEND:
            if not send(w, t, row, code, begin):
                return
        elif kind == BARRIER or kind == BARRIER_SUB or kind == HANDSHAKE:
            meet(w, t, kind, code, begin)
            return
        else:
            when = begin
            if kind == RECV:
                if not take(w, t, row, code, &when):
                    return
            elif kind == SEND_WAIT:
                if not sends_done_at(w, t, &when):
                    return
            elif kind == WAIT_WORKER:
                if not workers_done_at(w, tile, w.arg[w.form[code] * 3], &when):
                    return
            elif kind != CORE and not drained_at(w, tile, &when):
                return
            w.blocked[t * UNITS + WAIT] += when - begin
            w.start[row] = when
            w.end[row] = when + w.fixed[row]
            w.busy[t * UNITS + (KCORE if kind == KCORE or kind == CORE else WAIT)] += w.fixed[row]
            tile.core = w.end[row]
        w.busy[t * UNITS + ISSUE] += w.issue[code]
        tile.pc += 1


cdef void next_message_event(World* w, double landing, double head) noexcept nogil:
    """Handle the earliest arrival or link event; arrivals first, so that heads of one cycle are all known."""
    cdef Noc* noc = &w.noc
    cdef Entry item
    cdef int64_t t, row
    if landing <= head:
        item = pop(&noc.landings)
        t = item.who // MONITORS
        noc.monitors[item.who] += item.row
        noc.landed[item.who] = <int64_t>item.key
    else:
        item = pop(&noc.heads)
        if not move_head(noc, &item):
            return
        t = item.row // POSITIONS // noc.engines
        row = noc.messages[item.row // POSITIONS].row
        w.end[row] = noc.messages[item.row // POSITIONS].end
        w.busy[t * UNITS + DTE] += w.end[row] - w.start[row]
    w.ready[w.n_ready] = t
    w.n_ready += 1


cdef void run(World* w, double port_rate, double total_rate) noexcept nogil:
    cdef double arrive, finish, landing, head, message
    cdef Entry item
    cdef Ddr* ddr
    cdef int64_t t, chip, first
    for t in range(w.n_tiles):
        w.ready[t] = w.n_tiles - 1 - t
    w.n_ready = w.n_tiles
    while True:
        while w.n_ready > 0:
            w.n_ready -= 1
            advance(w, w.ready[w.n_ready])
        landing = w.noc.landings.items[0].key if w.noc.landings.size > 0 else INFINITY
        head = w.noc.heads.items[0].key if w.noc.heads.size > 0 else INFINITY
        message = min(landing, head)
        arrive = w.arrivals.items[0].key if w.arrivals.size > 0 else INFINITY
        finish = INFINITY
        first = 0
        for chip in range(w.n_tiles // w.chip_tiles):
            if w.ddr[chip].finish < finish:
                finish = w.ddr[chip].finish
                first = chip
        if message == INFINITY and arrive == INFINITY and finish == INFINITY:
            return
        if message <= arrive and message <= finish:
            next_message_event(w, landing, head)
            continue
        if arrive <= finish:
            item = pop(&w.arrivals)
            ddr = &w.ddr[(item.who >> 1) // w.chip_tiles]
            begin_flow(ddr, arrive, &item, w.ddr_bytes[item.row])
            ddr.finish = next_end(ddr, port_rate, total_rate)
            continue
        ddr = &w.ddr[first]
        item = end_flow(ddr, finish)
        ddr.finish = next_end(ddr, port_rate, total_rate)
        t = item.who >> 1
        w.end[item.row] = <int64_t>ceil(ddr.now - ROUND_SLACK)
        w.busy[t * UNITS + RDMA + (item.who & 1)] += w.end[item.row] - w.start[item.row]
        w.ready[w.n_ready] = t
        w.n_ready += 1


def simulate(
    const uint8_t[::1] kind, const int64_t[::1] issue, const int32_t[::1] form, const int64_t[::1] ddr_at,
    const uint8_t[::1] worker, const int64_t[:, ::1] arg, bint has_args,
    const int64_t[:, :, ::1] spm_read, const int64_t[:, :, ::1] spm_write,
    const int64_t[:, ::1] ddr_read, const int64_t[:, ::1] ddr_write,
    const int64_t[::1] ddr_slot, const int64_t[:, ::1] ddr_base,
    const int64_t[::1] code_begin, const int64_t[::1] tile_begin,
    const int64_t[::1] fixed, const int64_t[::1] ddr_bytes,
    const int64_t[::1] depth, double port_rate, double total_rate, bint serial,
    const int64_t[:, ::1] tree_of, const int64_t[::1] tree_begin, const int64_t[::1] hop_link,
    const int64_t[::1] hop_parent, const int64_t[::1] hop_turn, const int64_t[::1] leaf_begin,
    const int64_t[::1] leaf_tile, const int64_t[::1] leaf_hop, const int64_t[::1] leaf_turn,
    const int64_t[::1] mask_size,
    int64_t chip_tiles, int64_t engines, int64_t link_rate, int64_t hop_cycles,
    int64_t slow_links, int64_t slow_rate, int64_t slow_cycles, int64_t ports, int64_t write_rate,
    int64_t[::1] start, int64_t[::1] end, int64_t[:, ::1] busy, int64_t[:, ::1] blocked,
    int64_t[::1] link_bytes, int64_t[:, ::1] monitors, int64_t[::1] stuck,
):
    """Fill the outputs and return a status, or the negative number of what is wrong with the rows (_rows). The facade
    has checked shapes, trees and rates.

    Code rows (kind, issue, form, ddr_at) are shared between tiles: row i of tile t is code row `code_begin[t] + i`; what rows of
    one form share (worker to ddr_slot) is indexed by it, fixed and ddr_bytes by `tile_begin[t] + i`. Without args, `arg` has
    an unused row. The trees, from tree_of on, are those
    of _facade_events.Routes; `chip_tiles` tiles make a chip. start, end and stuck must come filled with -1, the other outputs with 0.
    """
    cdef World w
    cdef int64_t n_tiles = code_begin.shape[0], n_chips = code_begin.shape[0] // chip_tiles, t, i, n
    cdef int64_t n_mesh = link_bytes.shape[0] - ports - slow_links, n_links = link_bytes.shape[0], n_masks = mask_size.shape[0]
    cdef int64_t flying = 1  # entries of `heads` or `landings`: a message has at most one per link or destination
    cdef Entry* flows
    cdef int64_t* lists
    cdef int status = -<int>check_rows(kind, issue, form, worker, arg, has_args, ddr_slot, ddr_base.shape[1], code_begin,
                                       tile_begin, fixed, ddr_bytes, tree_of, tree_begin.shape[0] - 1, mask_size)
    if status < 0 or start.shape[0] == 0:
        return status
    for i in range(tree_begin.shape[0] - 1):
        flying = max(flying, tree_begin[i + 1] - tree_begin[i], leaf_begin[i + 1] - leaf_begin[i])
    flying = n_tiles * engines * (flying + 1) + 1
    w.kind, w.issue, w.form, w.ddr_at, w.worker = &kind[0], &issue[0], &form[0], &ddr_at[0], &worker[0]
    w.arg, w.spm_read, w.spm_write = &arg[0, 0], &spm_read[0, 0, 0], &spm_write[0, 0, 0]
    w.fixed, w.ddr_bytes = &fixed[0], &ddr_bytes[0]
    w.ddr_read, w.ddr_write, w.ddr_slot = &ddr_read[0, 0], &ddr_write[0, 0], &ddr_slot[0]
    w.n_slots, w.ddr_base = ddr_base.shape[1], &ddr_base[0, 0] if ddr_base.shape[1] else NULL
    w.start, w.end, w.busy, w.blocked = &start[0], &end[0], &busy[0, 0], &blocked[0, 0]
    w.serial = serial
    for i in range(ENGINES):
        w.depth[i] = depth[i]
    w.noc.tree_of, w.noc.tree_begin = &tree_of[0, 0], &tree_begin[0]
    w.noc.hop_link, w.noc.hop_parent, w.noc.hop_turn = &hop_link[0], &hop_parent[0], &hop_turn[0]
    w.noc.leaf_begin, w.noc.leaf_tile, w.noc.leaf_hop = &leaf_begin[0], &leaf_tile[0], &leaf_hop[0]
    w.noc.leaf_turn, w.noc.mask_size, w.noc.n_masks = &leaf_turn[0], &mask_size[0], n_masks
    w.noc.engines, w.noc.link_rate, w.noc.hop_cycles = engines, link_rate, hop_cycles
    w.noc.first_slow, w.noc.first_port, w.noc.write_rate = n_mesh, n_mesh + slow_links, write_rate
    w.noc.slow_rate, w.noc.slow_cycles = slow_rate, slow_cycles
    w.noc.link_bytes, w.noc.monitors = &link_bytes[0], &monitors[0, 0]
    w.n_tiles, w.chip_tiles = n_tiles, chip_tiles
    w.n_rounds = w.n_ready = w.arrivals.size = w.noc.heads.size = w.noc.landings.size = 0
    w.tiles = <Tile*>calloc(n_tiles, sizeof(Tile))
    w.ready = <int64_t*>calloc(4 * n_tiles + 4, sizeof(int64_t))
    w.arrivals.items = <Entry*>calloc(2 * n_tiles + 1, sizeof(Entry))
    w.ddr = <Ddr*>calloc(n_chips, sizeof(Ddr))
    flows = <Entry*>calloc(n_chips * (2 * chip_tiles + 1), sizeof(Entry))
    w.noc.heads.items = <Entry*>calloc(flying, sizeof(Entry))
    w.noc.landings.items = <Entry*>calloc(flying, sizeof(Entry))
    w.noc.messages = <Message*>calloc(n_tiles * engines, sizeof(Message))
    w.noc.link_free = <int64_t*>calloc(n_links, sizeof(int64_t))
    lists = <int64_t*>calloc(2 * tree_begin.shape[0] + 3 * hop_link.shape[0] + leaf_tile.shape[0], sizeof(int64_t))
    w.noc.first_hop, w.noc.own_leaf = lists, lists + tree_begin.shape[0]
    w.noc.first_child = lists + 2 * tree_begin.shape[0]
    w.noc.next_hop, w.noc.first_leaf = w.noc.first_child + hop_link.shape[0], w.noc.first_child + 2 * hop_link.shape[0]
    w.noc.next_leaf = w.noc.first_child + 3 * hop_link.shape[0]
    w.noc.landed = <int64_t*>calloc(n_tiles * MONITORS, sizeof(int64_t))
    w.noc.group_missing = <int64_t*>calloc(n_masks, sizeof(int64_t))
    w.noc.group_time = <int64_t*>calloc(n_masks, sizeof(int64_t))
    w.round_missing = w.round_time = NULL
    try:
        if (
            w.tiles == NULL or w.ready == NULL or w.arrivals.items == NULL or w.ddr == NULL or flows == NULL
            or w.noc.heads.items == NULL or w.noc.landings.items == NULL or w.noc.messages == NULL
            or lists == NULL or w.noc.link_free == NULL or w.noc.landed == NULL or w.noc.group_missing == NULL or w.noc.group_time == NULL
        ):
            return OUT_OF_MEMORY
        with nogil:
            for i in range(n_chips):
                w.ddr[i].flows.items = flows + i * (2 * chip_tiles + 1)
                w.ddr[i].rate = port_rate
                w.ddr[i].finish = INFINITY
            list_trees(&w.noc, tree_begin.shape[0] - 1)
            for i in range(n_masks):
                w.noc.group_missing[i] = w.noc.mask_size[i]
            for t in range(n_tiles):
                n = 0
                w.tiles[t].base = tile_begin[t]
                w.tiles[t].rows = tile_begin[t + 1] - tile_begin[t]
                w.tiles[t].code = code_begin[t]
                for i in range(w.tiles[t].rows):
                    n += w.kind[code_begin[t] + i] == BARRIER
                w.tiles[t].arrived = n  # until the run begins: this tile's number of barriers
                w.n_rounds = max(w.n_rounds, n)
            w.round_missing = <int64_t*>calloc(n_chips * w.n_rounds + 1, sizeof(int64_t))
            w.round_time = <int64_t*>calloc(n_chips * w.n_rounds + 1, sizeof(int64_t))
            if w.round_missing != NULL and w.round_time != NULL:
                for t in range(n_tiles):
                    for i in range(w.tiles[t].arrived):
                        w.round_missing[t // chip_tiles * w.n_rounds + i] += 1
                run(&w, port_rate, total_rate)
                for t in range(n_tiles):
                    if w.tiles[t].state != DONE:
                        stuck[t] = w.tiles[t].pc
                        status = DEADLOCK
            else:
                status = OUT_OF_MEMORY
    finally:
        free(w.tiles)
        free(w.ready)
        free(w.arrivals.items)
        free(w.ddr)
        free(flows)
        free(lists)
        free(w.noc.heads.items)
        free(w.noc.landings.items)
        free(w.noc.messages)
        free(w.noc.link_free)
        free(w.noc.landed)
        free(w.noc.group_missing)
        free(w.noc.group_time)
        free(w.round_missing)
        free(w.round_time)
    return status
