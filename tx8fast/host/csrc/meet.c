/* Who waits for whom: a table of how often each tile has arrived at what. */
#include "meet.h"

#include <stdlib.h>

static tx8_met *find(const tx8_meetings *m, int64_t what, int64_t with, int64_t tile) {
    uint64_t x = ((uint64_t)what * 31 + (uint64_t)with) * 0x9E3779B97F4A7C15u + (uint64_t)tile;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
    for (uint64_t at = x ^ x >> 32;; at++) {
        tx8_met *found = m->met + (at & (uint64_t)(m->size - 1));
        if (!found->times || (found->what == what && found->with == with && found->tile == tile)) return found;
    }
}

static int64_t times(const tx8_meetings *m, int64_t what, int64_t with, int64_t tile) {
    return m->size ? find(m, what, with, tile)->times : 0;
}

static bool grow(tx8_meetings *m) {
    tx8_meetings old = *m;
    m->size = old.size ? 2 * old.size : 64;
    m->met = calloc((size_t)m->size, sizeof *m->met);
    if (!m->met) return *m = old, false;
    for (int64_t k = 0; k < old.size; k++)
        if (old.met[k].times) *find(m, old.met[k].what, old.met[k].with, old.met[k].tile) = old.met[k];
    free(old.met);
    return true;
}

/* What the arrivals of a wait are counted under. */
static int64_t kind_of(const tx8_wait *w) { return w->what == TX8_OP_BARRIER ? 0 : w->with; }

bool tx8_arrive(tx8_meetings *m, const tx8_wait *w) {
    if (w->what == TX8_OP_RECV) return true;
    if (2 * m->used >= m->size && !grow(m)) return false;
    tx8_met *found = find(m, w->what, kind_of(w), w->tile);
    if (!found->times) *found = (tx8_met){w->what, kind_of(w), w->tile, 0}, m->used++;
    found->times++;
    return true;
}

static bool in_mask(int64_t mask, int64_t tile) { return tile < 63 && (mask >> tile & 1); }

bool tx8_is_member(const tx8_meetings *m, const tx8_wait *w) { return in_mask(w->with, w->tile % m->tiles_per_chip); }

bool tx8_may_pass(tx8_meetings *m, const tx8_wait *w) {
    int64_t home = w->tile - w->tile % m->tiles_per_chip, mine = times(m, w->what, kind_of(w), w->tile);
    if (w->what == TX8_OP_RECV) {
        int64_t *arrived = m->monitors + w->tile * TX8_MONITORS + w->with;
        if (w->with < 0 || w->with >= TX8_MONITORS || *arrived < w->bytes) return false;
        *arrived -= w->bytes;
        return true;
    }
    if (w->what == TX8_OP_HANDSHAKE) return times(m, w->what, w->tile, w->with) >= times(m, w->what, w->with, w->tile);
    for (int64_t k = 0; k < m->tiles_per_chip && home + k < m->n; k++) {
        bool awaited = w->what == TX8_OP_BARRIER ? m->barriers[home + k] >= mine : in_mask(w->with, k);
        if (awaited && times(m, w->what, kind_of(w), home + k) < mine) return false;
    }
    return true;
}

void tx8_forget(tx8_meetings *m) {
    free(m->met);
    m->met = NULL, m->size = m->used = 0;
}
