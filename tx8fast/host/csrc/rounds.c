/* Rounds over the tiles of a launch: each runs until a row may stop it (meet.c says whether). */
#include "rounds.h"

#include <stdlib.h>

#include "meet.h"

typedef struct {
    tx8_stream *streams;
    int64_t n, n_chips;
    tx8_meetings meetings;
} launch;

int tx8_is_stop(const tx8_row *r) {
    return r->opcode == TX8_OP_BARRIER || r->opcode == TX8_OP_RECV || r->opcode == TX8_OP_BARRIER_SUB || r->opcode == TX8_OP_HANDSHAKE;
}

static const tx8_row *standing(const tx8_stream *s) { return s->tile->rows + s->at; }
static int64_t stop_of(const tx8_stream *s) { return s->passed < s->n_stops ? s->stops[s->passed] : s->n_rows; }
static bool ended(const tx8_stream *s) { return s->at == s->n_rows; }

/* What the row is that a stream stands at. */
static tx8_wait wait_of(const launch *l, const tx8_stream *s, const tx8_row *r) {
    tx8_wait w = {.what = r->opcode, .tile = s->number};
    if (r->opcode == TX8_OP_RECV) w.with = r->p[TX8_P_RECV_MONITOR], w.bytes = r->p[TX8_P_RECV_BYTES];
    if (r->opcode == TX8_OP_BARRIER_SUB) w.with = r->p[TX8_P_BARRIERSUB_MASK];
    if (r->opcode == TX8_OP_HANDSHAKE) {
        int64_t per_chip = l->meetings.tiles_per_chip, chip = r->p[TX8_P_HANDSHAKE_CHIP] > 0 ? r->p[TX8_P_HANDSHAKE_CHIP] - 1 : s->number / per_chip;
        w.with = (int64_t)((uint64_t)chip * (uint64_t)per_chip + (uint64_t)r->p[TX8_P_HANDSHAKE_PEER]);
    }
    return w;
}

/* Let `s` pass as many of the stops it stands at as it may; `moved`: whether anything happened. */
static int pass(launch *l, tx8_stream *s, bool *moved) {
    while (!ended(s) && s->at == stop_of(s)) {
        tx8_wait w = wait_of(l, s, standing(s));
        if (!s->arrived) {
            if (w.what == TX8_OP_BARRIER_SUB && !tx8_is_member(&l->meetings, &w)) return TX8_NOT_A_MEMBER;
            if (!tx8_arrive(&l->meetings, &w)) return TX8_ROUNDS_NO_MEMORY;
            s->arrived = 1, *moved = true;
        }
        if (!tx8_may_pass(&l->meetings, &w)) return TX8_DONE;
        s->arrived = 0, s->at++, s->passed++, *moved = true;
    }
    return TX8_DONE;
}

static int rounds(launch *l, tx8_tile **ready, tx8_tile *const *tiles, int threads, int64_t *which) {
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
            if (s->tile->outbox.count && tx8_deliver(s->tile, tiles, l->meetings.monitors, l->meetings.tiles_per_chip, l->n_chips)) return TX8_SEND_FAILED;
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
    launch l = {streams, n, n_chips, {.tiles_per_chip = tiles_per_chip, .monitors = monitors, .n = tiles_per_chip * n_chips}};
    tx8_tile **ready = malloc((size_t)(n + 1) * sizeof *ready);
    int64_t *barriers = calloc((size_t)l.meetings.n + 1, sizeof *barriers);
    int status = ready && barriers ? TX8_DONE : TX8_ROUNDS_NO_MEMORY;
    *which = 0;
    for (int64_t k = 0; k < n && barriers; k++) {
        streams[k].at = streams[k].passed = streams[k].arrived = 0;
        for (int64_t i = 0; i < streams[k].n_stops; i++)
            barriers[streams[k].number] += streams[k].tile->rows[streams[k].stops[i]].opcode == TX8_OP_BARRIER;
    }
    l.meetings.barriers = barriers;
    if (status == TX8_DONE) status = rounds(&l, ready, tiles, threads, which);
    for (int64_t k = 0; status == TX8_DONE && k < TX8_MONITORS * l.meetings.n; k++)
        if (monitors[k]) status = TX8_LEFT_OVER;
    tx8_forget(&l.meetings);
    free(barriers);
    free(ready);
    return status;
}
