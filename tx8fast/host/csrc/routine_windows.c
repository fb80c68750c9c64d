/* Routines over windows of images: pools, where maxima lie, columns put back. Channels come last, but for columns. */
#include "routine.h"

typedef struct {
    int rank;
    int64_t size[MAX_RANK], out[MAX_RANK], kernel[MAX_RANK], stride[MAX_RANK], dilation[MAX_RANK], lo[MAX_RANK], hi[MAX_RANK];
    int64_t taps, outs, positions;
} window;

static bool read_window(call *c, window *g, int rank) {
    g->rank = rank;
    if (rank < 1 || !next_pair(c, rank, 1, g->kernel) || !next_pair(c, rank, 1, g->stride) || !next_pair(c, rank, 1, g->dilation) || !next_pair(c, rank, 0, g->lo) ||
        !next_pair(c, rank, 0, g->hi))
        return rank < 1 ? refuse(c, TX8_WHY_RANK, rank, 0, 0) : false;
    double taps = 1;
    for (int k = 0; k < rank; k++)
        if (g->stride[k] < 1 || g->dilation[k] < 1 || g->kernel[k] < 1 || (taps *= (double)g->kernel[k]) > 1e9) return refuse(c, TX8_WHY_LIST, g->stride[k], g->kernel[k], 0);
    g->taps = product_of(g->kernel, rank);
    return true;
}

/* Where a tap of an output position reads, in every dimension; false outside the image. */
static bool reads(const window *g, const int64_t *out, const int64_t *tap, int64_t *at) {
    bool inside = true;
    for (int k = 0; k < g->rank; k++) {
        at[k] = out[k] * g->stride[k] + tap[k] * g->dilation[k] - g->lo[k];
        inside &= at[k] >= 0 && at[k] < g->size[k];
    }
    return inside;
}

static int64_t flat(const window *g, const int64_t *at) {
    int64_t place = 0;
    for (int k = 0; k < g->rank; k++) place = place * g->size[k] + at[k];
    return place;
}

static bool image_window(call *c, window *g) {
    if (missing(c, 0)) return false;
    view *x = c->in, *to = c->out;
    if (!read_window(c, g, x->rank - 2)) return false;
    if (to->rank != x->rank || to->shape[0] != x->shape[0] || to->shape[x->rank - 1] != x->shape[x->rank - 1]) return refuse(c, TX8_WHY_SIZES, x->n, to->n, 0);
    for (int k = 0; k < g->rank; k++) g->size[k] = x->shape[k + 1], g->out[k] = to->shape[k + 1];
    g->outs = product_of(g->out, g->rank), g->positions = product_of(g->size, g->rank);
    return true;
}

bool routine_pool(call *c) { /* max_pool, avg_pool */
    window g;
    if (!image_window(c, &g)) return false;
    bool pads = next_whole(c) != 0, max = c->code == TX8_R_MAX_POOL;
    view *v = c->in, *to = c->out;
    int64_t ch = v->shape[v->rank - 1], out[MAX_RANK] = {0}, none[MAX_RANK] = {0}, zero = 0, flip = flip_of(v);
    bool real = is_float(v) || !max;
    double *x = real ? numbers(c, v) : NULL, *y = real ? room_reals(c, to->n) : NULL;
    int64_t *w = real ? NULL : whole_numbers(c, v), *z = real ? NULL : room_wholes(c, to->n);
    if (real ? !x || !y : !w || !z) return false;
    int64_t lowest = FORMATS[v->fmt].kind == 'S' ? -(int64_t)(~(uint64_t)0 >> (65 - 8 * v->size)) - 1 : 0;
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t p = 0; p < g.outs; p++) {
            int64_t tap[MAX_RANK] = {0}, at[MAX_RANK], counted = 1, first = (b * g.outs + p) * ch;
            for (int64_t i = 0; i < ch; i++) {
                if (real)
                    y[first + i] = max ? -INFINITY : 0;
                else
                    z[first + i] = lowest;
            }
            for (int64_t t = 0; t < g.taps; t++) {
                if (reads(&g, out, tap, at)) {
                    int64_t from = (b * g.positions + flat(&g, at)) * ch;
                    for (int64_t i = 0; i < ch; i++) {
                        if (!real)
                            z[first + i] = most(z[first + i] ^ flip, w[from + i] ^ flip) ^ flip;
                        else
                            y[first + i] = max ? larger(y[first + i], x[from + i]) : y[first + i] + x[from + i];
                    }
                }
                advance(g.rank, g.kernel, none, tap, &zero);
            }
            if (!max) { /* the mean of what counts: padding only if asked for */
                for (int k = 0; k < g.rank; k++) {
                    int64_t inside = 0;
                    for (int64_t t = 0; t < g.kernel[k]; t++) {
                        int64_t place = out[k] * g.stride[k] + t * g.dilation[k] - g.lo[k];
                        inside += place >= (pads ? -g.lo[k] : 0) && place < g.size[k] + (pads ? g.hi[k] : 0);
                    }
                    counted *= inside;
                }
                for (int64_t i = 0; i < ch; i++) y[first + i] /= (double)counted;
            }
            advance(g.rank, g.out, none, out, &zero);
        }
    count_loads(c, to->n * g.taps), count_ops(c, to->n * g.taps), count_divides(c, max ? 0 : to->n);
    return real ? give_reals(c, to, y) : give_wholes(c, to, z, v->fmt);
}

bool routine_max_pool_indices(call *c) {
    window g;
    if (!image_window(c, &g)) return false;
    bool columns = next_whole(c) != 0; /* the first spatial dimension runs fastest */
    view *v = c->in, *to = c->out;
    int64_t ch = v->shape[v->rank - 1], out[MAX_RANK] = {0}, none[MAX_RANK] = {0}, zero = 0, step[MAX_RANK], all = 1;
    for (int i = 0; i < g.rank; i++) {
        int k = columns ? i : g.rank - 1 - i;
        step[k] = all, all *= g.size[k];
    }
    double *x = is_float(v) ? numbers(c, v) : NULL;
    int64_t *w = is_float(v) ? NULL : whole_numbers(c, v), *y = room_wholes(c, to->n), flip = flip_of(v);
    if ((!x && !w) || !y) return false;
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t p = 0; p < g.outs; p++) {
            int64_t *place = y + (b * g.outs + p) * ch;
            for (int64_t i = 0; i < ch; i++) {
                int64_t tap[MAX_RANK] = {0}, at[MAX_RANK], best = -1;
                place[i] = -1;
                for (int64_t t = 0; t < g.taps; t++) {
                    if (reads(&g, out, tap, at)) {
                        int64_t from = (b * g.positions + flat(&g, at)) * ch + i;
                        if (best < 0 || (x ? x[from] > x[best] : (w[from] ^ flip) > (w[best] ^ flip))) {
                            best = from, place[i] = 0;
                            for (int k = 0; k < g.rank; k++) place[i] += at[k] * step[k];
                        }
                    }
                    advance(g.rank, g.kernel, none, tap, &zero);
                }
                place[i] += (b * ch + i) * all;
            }
            advance(g.rank, g.out, none, out, &zero);
        }
    count_loads(c, to->n * g.taps), count_ops(c, 2 * to->n * g.taps);
    return give_wholes(c, to, y, F_I64);
}

bool routine_col2im(call *c) {
    window g;
    if (missing(c, 0)) return false;
    view *v = c->in, *to = c->out;
    if (v->rank != 3 || !read_window(c, &g, to->rank - 2)) return v->rank != 3 ? refuse(c, TX8_WHY_RANK, v->rank, 0, 0) : false;
    for (int k = 0; k < g.rank; k++) {
        g.size[k] = to->shape[k + 2];
        g.out[k] = (g.size[k] + g.lo[k] + g.hi[k] - g.dilation[k] * (g.kernel[k] - 1) - 1) / g.stride[k] + 1;
    }
    g.outs = product_of(g.out, g.rank), g.positions = product_of(g.size, g.rank);
    int64_t planes = to->shape[0] * to->shape[1], none[MAX_RANK] = {0}, zero = 0;
    if (v->shape[2] != g.outs || v->n != planes * g.taps * g.outs) return refuse(c, TX8_WHY_SIZES, v->n, planes * g.taps * g.outs, 0);
    double *x = is_float(v) ? numbers(c, v) : NULL, *y = is_float(v) ? room_reals(c, to->n) : NULL;
    int64_t *w = is_float(v) ? NULL : whole_numbers(c, v), *z = is_float(v) ? NULL : room_wholes(c, to->n);
    if (is_float(v) ? !x || !y : !w || !z) return false;
    for (int64_t i = 0; i < to->n; i++) {
        if (y)
            y[i] = 0;
        else
            z[i] = 0;
    }
    for (int64_t q = 0; q < planes; q++) {
        int64_t tap[MAX_RANK] = {0};
        for (int64_t t = 0; t < g.taps; t++) {
            int64_t out[MAX_RANK] = {0}, at[MAX_RANK];
            for (int64_t p = 0; p < g.outs; p++) {
                if (reads(&g, out, tap, at)) {
                    int64_t place = q * g.positions + flat(&g, at), from = (q * g.taps + t) * g.outs + p;
                    if (y)
                        y[place] += x[from];
                    else
                        z[place] = (int64_t)((uint64_t)z[place] + (uint64_t)w[from]);
                }
                advance(g.rank, g.out, none, out, &zero);
            }
            advance(g.rank, g.kernel, none, tap, &zero);
        }
    }
    count_loads(c, 2 * v->n), count_stores(c, v->n), count_ops(c, v->n); /* what is there, what is added */
    return y ? give_reals(c, to, y) : give_wholes(c, to, z, v->fmt == F_U64 ? F_U64 : F_I64);
}
