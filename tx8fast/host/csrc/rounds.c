/* Who may go on: rounds over the tiles of a launch, barriers, monitors, handshakes. */
#include "rounds.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* How often a tile has arrived: at the barrier of its chip, at one of the tiles of a mask, at a handshake with a peer. */
typedef struct {
    int64_t what, with, tile, times;
} meeting;

typedef struct {
    tx8_stream *streams;
    int64_t n;
    int64_t *monitors;
    int64_t tiles_per_chip;
    meeting *met; /* a hash table, its size a power of two */
    int64_t size, used;
    bool no_memory;
} launch;

static uint64_t place_of(const launch *l, int64_t what, int64_t with, int64_t tile) {
    uint64_t x = ((uint64_t)what * 31 + (uint64_t)with) * 0x9E3779B97F4A7C15u + (uint64_t)tile;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
    return (x ^ x >> 32) & (uint64_t)(l->size - 1);
}

static meeting *find(const launch *l, int64_t what, int64_t with, int64_t tile) {
    for (uint64_t at = place_of(l, what, with, tile);; at = (at + 1) & (uint64_t)(l->size - 1)) {
        meeting *m = l->met + at;
        if (!m->times || (m->what == what && m->with == with && m->tile == tile)) return m;
    }
}

static int64_t times(const launch *l, int64_t what, int64_t with, int64_t tile) { return find(l, what, with, tile)->times; }

static bool grow(launch *l) {
    launch old = *l;
    l->size = old.size ? 2 * old.size : 64;
    l->met = calloc((size_t)l->size, sizeof *l->met);
    if (!l->met) {
        *l = old;
        return false;
    }
    for (int64_t k = 0; k < old.size; k++)
        if (old.met[k].times) *find(l, old.met[k].what, old.met[k].with, old.met[k].tile) = old.met[k];
    free(old.met);
    return true;
}

static void arrive(launch *l, int64_t what, int64_t with, int64_t tile) {
    if (2 * l->used >= l->size && !grow(l)) {
        l->no_memory = true;
        return;
    }
    meeting *m = find(l, what, with, tile);
    if (!m->times) *m = (meeting){what, with, tile, 0}, l->used++;
    m->times++;
}

int tx8_is_stop(const tx8_row *r) {
    return r->opcode == TX8_OP_BARRIER || r->opcode == TX8_OP_RECV || r->opcode == TX8_OP_BARRIER_SUB || r->opcode == TX8_OP_HANDSHAKE;
}

static const tx8_row *standing(const tx8_stream *s) { return s->tile->rows + s->at; }
static int64_t stop_of(const tx8_stream *s) { return s->passed < s->n_stops ? s->stops[s->passed] : s->n_rows; }
static bool ended(const tx8_stream *s) { return s->at == s->n_rows; }

static bool in_mask(int64_t mask, int64_t tile) { return tile < 63 && (mask >> tile & 1); }

/* The tile that a handshake names. */
static int64_t peer_of(const launch *l, int64_t tile, const tx8_row *r) {
    int64_t chip = r->p[TX8_P_HANDSHAKE_CHIP] > 0 ? r->p[TX8_P_HANDSHAKE_CHIP] - 1 : tile / l->tiles_per_chip;
    return (int64_t)((uint64_t)chip * (uint64_t)l->tiles_per_chip + (uint64_t)r->p[TX8_P_HANDSHAKE_PEER]);
}

static bool may_pass(launch *l, const tx8_stream *s, const tx8_row *r) {
    int64_t tile = s->number, home = tile - tile % l->tiles_per_chip;
    if (r->opcode == TX8_OP_RECV) {
        int64_t monitor = r->p[TX8_P_RECV_MONITOR], need = r->p[TX8_P_RECV_BYTES];
        if (monitor < 0 || monitor >= TX8_MONITORS || l->monitors[tile * TX8_MONITORS + monitor] < need) return false;
        l->monitors[tile * TX8_MONITORS + monitor] -= need;
        return true;
    }
    if (r->opcode == TX8_OP_BARRIER) {
        int64_t mine = times(l, TX8_OP_BARRIER, 0, tile);
        for (int64_t k = 0; k < l->n; k++) {
            const tx8_stream *other = l->streams + k;
            if (other->number / l->tiles_per_chip == tile / l->tiles_per_chip && other->barriers >= mine &&
                times(l, TX8_OP_BARRIER, 0, other->number) < mine)
                return false;
        }
        return true;
    }
    if (r->opcode == TX8_OP_BARRIER_SUB) {
        int64_t mask = r->p[TX8_P_BARRIERSUB_MASK], mine = times(l, TX8_OP_BARRIER_SUB, mask, tile);
        for (int64_t other = 0; other < 63; other++)
            if (in_mask(mask, other) && times(l, TX8_OP_BARRIER_SUB, mask, home + other) < mine) return false;
        return true;
    }
    int64_t peer = peer_of(l, tile, r);
    return times(l, TX8_OP_HANDSHAKE, tile, peer) >= times(l, TX8_OP_HANDSHAKE, peer, tile);
}

/* Let `s` pass as many of the stops it stands at as it may; `moved`: whether anything happened. */
static int pass(launch *l, tx8_stream *s, bool *moved) {
    while (!ended(s) && s->at == stop_of(s)) {
        const tx8_row *r = standing(s);
        if (!s->arrived) {
            if (r->opcode == TX8_OP_BARRIER) arrive(l, r->opcode, 0, s->number);
            if (r->opcode == TX8_OP_HANDSHAKE) arrive(l, r->opcode, peer_of(l, s->number, r), s->number);
            if (r->opcode == TX8_OP_BARRIER_SUB) {
                int64_t mask = r->p[TX8_P_BARRIERSUB_MASK];
                if (!in_mask(mask, s->number % l->tiles_per_chip)) return TX8_NOT_A_MEMBER;
                arrive(l, r->opcode, mask, s->number);
            }
            if (l->no_memory) return TX8_ROUNDS_NO_MEMORY;
            s->arrived = 1, *moved = true;
        }
        if (!may_pass(l, s, r)) return TX8_DONE;
        s->arrived = 0, s->at++, s->passed++, *moved = true;
    }
    return TX8_DONE;
}

static int rounds(launch *l, tx8_tile **ready, tx8_tile *const *tiles, int64_t n_chips, int threads, int64_t *which) {
    for (;;) {
        int64_t n_ready = 0;
        bool moved = false, waiting = false;
        for (int64_t k = 0; k < l->n; k++) {
            tx8_stream *s = l->streams + k;
            if (s->at >= stop_of(s)) continue;
            s->tile->at = s->at, s->tile->end = stop_of(s), s->tile->before = 0, s->tile->status = TX8_DONE;
            ready[n_ready++] = s->tile;
        }
        tx8_run_tiles(ready, (int)n_ready, threads);
        for (*which = 0; *which < l->n; ++*which) {
            tx8_stream *s = l->streams + *which;
            if (s->at >= stop_of(s)) continue;
            s->at = s->tile->at;
            if (s->tile->status != TX8_DONE) return TX8_ROW_FAILED;
        }
        for (*which = 0; *which < l->n; ++*which) {
            tx8_stream *s = l->streams + *which;
            if (s->tile->outbox.count && tx8_deliver(s->tile, tiles, l->monitors, l->tiles_per_chip, n_chips)) return TX8_SEND_FAILED;
        }
        for (*which = 0; *which < l->n; ++*which) {
            int status = pass(l, l->streams + *which, &moved);
            if (status != TX8_DONE) return status;
            waiting |= !ended(l->streams + *which);
        }
        if (!waiting) return TX8_DONE;
        if (!n_ready && !moved) return TX8_STUCK;
    }
}

int tx8_run_streams(tx8_stream *streams, int64_t n, tx8_tile *const *tiles, int64_t *monitors, int64_t tiles_per_chip, int64_t n_chips,
                    int threads, int64_t *which) {
    launch l = {.streams = streams, .n = n, .monitors = monitors, .tiles_per_chip = tiles_per_chip};
    tx8_tile **ready = malloc((size_t)(n + 1) * sizeof *ready);
    int status = ready && grow(&l) ? TX8_DONE : TX8_ROUNDS_NO_MEMORY;
    *which = 0;
    for (int64_t k = 0; k < n; k++) {
        streams[k].at = streams[k].passed = streams[k].barriers = streams[k].arrived = 0;
        for (int64_t i = 0; i < streams[k].n_stops; i++)
            streams[k].barriers += streams[k].tile->rows[streams[k].stops[i]].opcode == TX8_OP_BARRIER;
    }
    if (status == TX8_DONE) status = rounds(&l, ready, tiles, n_chips, threads, which);
    for (int64_t k = 0; status == TX8_DONE && k < TX8_MONITORS * tiles_per_chip * n_chips; k++)
        if (monitors[k]) status = TX8_LEFT_OVER;
    free(l.met);
    free(ready);
    return status;
}
