/* The update of a cache: the only routine that works on channel blocks as they lie, since taking a whole cache out of them would cost more
 * than the update. */
#include "routine.h"

typedef struct {
    view *v;
    blocked b;
} image;

static bool image_of(call *c, image *g, view *v) {
    int64_t n, p, channels;
    g->v = v;
    if (!v->blocked) return true;
    npc(v, &n, &p, &channels);
    return blocked_of(c->t, &g->b, n, p, channels, v->fmt);
}

/* The element `channel` of the row at `index`, and how many channels lie together from it on. */
static uint8_t *element_at(const image *g, const int64_t *index, int64_t channel, int64_t *together) {
    const view *v = g->v;
    int last = v->rank - 1;
    if (!v->blocked) {
        uint8_t *at = v->at + channel * v->stride[last];
        for (int k = 0; k < last; k++) at += index[k] * v->stride[k];
        *together = v->stride[last] == v->size ? v->shape[last] - channel : 1;
        return at;
    }
    int64_t batch = last > 1 ? index[0] : 0, place = 0;
    for (int k = last > 1; k < last; k++) place = place * v->shape[k] + index[k];
    *together = least(g->b.block - channel % g->b.block, v->shape[last] - channel);
    return v->home + blocked_offset(&g->b, batch, place, channel / g->b.block) + channel % g->b.block * v->size;
}

bool routine_kv_update(call *c) {
    int64_t axis, first, at[MAX_RANK] = {0}, none[MAX_RANK] = {0}, zero = 0;
    if (missing(c, 0) || missing(c, 1) || missing(c, 2) || !next_axis(c, c->out->rank, &axis)) return false;
    view *cache = c->in, *new = c->in + 1, *to = c->out;
    int last = to->rank - 1;
    if (last < 0 || new->rank != to->rank || c->in[2].n < 1) return refuse(c, TX8_WHY_RANK, new->rank, 0, 0);
    if (cache->blocked != to->blocked || cache->fmt != to->fmt || new->fmt != to->fmt || memcmp(cache->shape, to->shape, sizeof to->shape)) return refuse(c, TX8_WHY_SIZES, cache->n, to->n, 0);
    for (int k = 0; k <= last; k++)
        if (k != axis && new->shape[k] != to->shape[k]) return refuse(c, TX8_WHY_SIZES, new->n, to->n, 0);
    read_wholes(c->in[2].fmt, c->in[2].at, &first, 1); /* an argument, like the addresses */
    if (first < 0 || new->shape[axis] > to->shape[axis] || first > to->shape[axis] - new->shape[axis])
        return refuse(c, TX8_WHY_RANGE, first, first + new->shape[axis], to->shape[axis]);
    image from, into;
    if (!image_of(c, &from, new) || !image_of(c, &into, to)) return false;
    if (!to->blocked) {
        if (!start_update(c)) return false;
    } else if (cache->home != to->home) {
        memmove(to->home, cache->home, (size_t)into.b.bytes);
        count_words(c, ceil_div(into.b.bytes, 8));
    }
    if (!new->n) return true;
    do {
        int64_t place[MAX_RANK], shift = axis == last ? first : 0, run;
        memcpy(place, at, sizeof place);
        if (axis != last) place[axis] += first;
        for (int64_t channel = 0; channel < new->shape[last]; channel += run) {
            int64_t have, room;
            const uint8_t *src = element_at(&from, at, channel, &have);
            uint8_t *dst = element_at(&into, place, channel + shift, &room);
            run = least(have, room);
            run = least(run, new->shape[last] - channel);
            memmove(dst, src, (size_t)(run * to->size));
            count_words(c, ceil_div(run * to->size, 8));
        }
    } while (advance(last, new->shape, none, at, &zero));
    return true;
}
