/* Reductions, pools and unpools of channel-blocked operands [manual 10.1, 10.2]. Sums run over ascending indices in f32. */
#include <math.h>

#include "core.h"

enum { SUM, AVERAGE, MAXIMUM, MINIMUM };

static inline float combine(int kind, float a, float b) {
    return kind <= AVERAGE ? a + b : kind == MAXIMUM ? (b != b ? b : b > a ? b : a) : (b != b ? b : b < a ? b : a);
}

/* `rows` results, each of `n` values `step` apart; rows `next` apart */
static inline void fold_kind(int kind, const float *x, int64_t rows, int64_t next, int64_t n, int64_t step, float *out) {
    enum { TOGETHER = 16 };
    for (int64_t at = 0; at < rows; at += TOGETHER) {
        int64_t some = least(TOGETHER, rows - at);
        const float *from = x + at * next;
        float acc[TOGETHER];
        for (int64_t r = 0; r < some; r++) acc[r] = from[r * next];
        for (int64_t k = 1; k < n; k++)
            for (int64_t r = 0; r < some; r++) acc[r] = combine(kind, acc[r], from[r * next + k * step]);
        for (int64_t r = 0; r < some; r++) out[at + r] = kind == AVERAGE ? acc[r] / (float)n : acc[r];
    }
}

static void fold(int kind, const float *x, int64_t rows, int64_t next, int64_t n, int64_t step, float *out) {
    switch (kind) { /* so that each kind has a loop of its own */
        case SUM: fold_kind(SUM, x, rows, next, n, step, out); break;
        case AVERAGE: fold_kind(AVERAGE, x, rows, next, n, step, out); break;
        case MAXIMUM: fold_kind(MAXIMUM, x, rows, next, n, step, out); break;
        default: fold_kind(MINIMUM, x, rows, next, n, step, out);
    }
}

static bool reduce(tx8_tile *t, const tx8_row *r, int kind) {
    const int64_t *p = r->p;
    int64_t dim = p[TX8_P_REDUCE_DIM], n = p[TX8_P_REDUCE_N], h = p[TX8_P_REDUCE_H], w = p[TX8_P_REDUCE_W], c = p[TX8_P_REDUCE_C];
    if (dim != 0 && dim != 1 && dim != 2 && dim != 4) return fail(t, TX8_BAD_DIM, dim, 0, 0);
    if (h < 1 || w < 1 || h > 1 << 26 || w > 1 << 26) return fail(t, TX8_BAD_SHAPE, n, h, w);
    const float *x = load_blocked(t, r->spm[TX8_S_REDUCE_SRC0], n, h * w, c, r->fmt);
    float *out = x ? scratch(t, n * h * w * c * 4) : NULL;
    if (!out) return false;
    int64_t oh = dim == 2 || dim == 4 ? 1 : h, ow = dim == 1 || dim == 4 ? 1 : w, oc = dim == 0 ? 1 : c;
    if (dim == 0)
        fold(kind, x, n * h * w, c, c, 1, out);
    else
        for (int64_t i = 0; i < n; i++)
            for (int64_t y = 0; y < oh; y++) {
                const float *from = x + (i * h + y) * w * c;
                float *to = out + (i * oh + y) * ow * c;
                if (dim == 2) /* all of a line at a time */
                    fold(kind, from, w * c, 1, h, w * c, to);
                else
                    fold(kind, from, c, 1, dim == 4 ? h * w : w, c, to);
            }
    return store_blocked(t, r->spm[TX8_S_REDUCE_DST], n, oh * ow, oc, r->fmt, r->rnd, out, oc, false);
}

static int index_format(int fmt) { return FORMATS[fmt].bytes == 2 ? F_U16 : F_U32; }

/* the rows of a window's taps, in order; NULL outside the image */
static bool pool(tx8_tile *t, const tx8_row *r, int kind, bool indexed) {
    const int64_t *p = r->p;
    int64_t n = p[TX8_P_POOL_N], h = p[TX8_P_POOL_H], w = p[TX8_P_POOL_W], c = p[TX8_P_POOL_C], top = p[TX8_P_POOL_TOP], left = p[TX8_P_POOL_LEFT];
    int64_t kx = p[TX8_P_POOL_KX], ky = p[TX8_P_POOL_KY], sx = p[TX8_P_POOL_SX], sy = p[TX8_P_POOL_SY];
    int64_t tall = h + top + p[TX8_P_POOL_BOTTOM] - ky, wide = w + left + p[TX8_P_POOL_RIGHT] - kx;
    if (h < 0 || w < 0 || kx < 1 || ky < 1 || sx < 1 || sy < 1 || top < 0 || left < 0 || tall < 0 || wide < 0 || tall > 1 << 26 || wide > 1 << 26 || c < 1)
        return fail(t, TX8_BAD_SHAPE, n, tall, wide);
    int64_t oh = tall / sy + 1, ow = wide / sx + 1;
    const float *x = load_blocked(t, r->spm[TX8_S_POOL_SRC0], n, h * w, c, r->fmt);
    if (!x || (double)n * (double)oh * (double)ow * (double)c > 1e12) return x ? fail(t, TX8_BAD_SHAPE, n, oh, ow) : false;
    float *out = scratch(t, n * oh * ow * c * 4), *border = scratch(t, c * 4), *to = out;
    int32_t *where = indexed ? scratch(t, n * oh * ow * c * 4) : NULL, *at = where;
    if (!out || !border || (indexed && !where)) return false;
    for (int64_t k = 0; k < c; k++) border[k] = kind == MAXIMUM ? -INFINITY : kind == MINIMUM ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t y = 0; y < oh; y++)
            for (int64_t z = 0; z < ow; z++, to += c) {
                for (int64_t tap = 0; tap < kx * ky; tap++) {
                    int64_t row = y * sy + tap / kx - top, column = z * sx + tap % kx - left;
                    const float *from = row >= 0 && row < h && column >= 0 && column < w ? x + ((i * h + row) * w + column) * c : border;
                    for (int64_t k = 0; k < c; k++) {
                        float old = to[k], next = tap ? combine(kind, old, from[k]) : from[k];
                        /* the first of equal ones, and the first NaN */
                        if (where && (!tap || (old == old && (next != next || next != old)))) at[k] = (int32_t)tap;
                        to[k] = next;
                    }
                }
                for (int64_t k = 0; kind == AVERAGE && k < c; k++) to[k] = to[k] / (float)(kx * ky);
                if (where) at += c;
            }
    return store_blocked(t, r->spm[TX8_S_POOL_DST], n, oh * ow, c, r->fmt, r->rnd, out, c, false) &&
           (!where || store_blocked(t, r->spm[TX8_S_INDEXEDPOOL_INDEX], n, oh * ow, c, index_format(r->fmt), NEAREST, where, c, true));
}

static bool unpool(tx8_tile *t, const tx8_row *r) {
    const int64_t *p = r->p;
    int64_t n = p[TX8_P_UNPOOL_N], h = p[TX8_P_UNPOOL_H], w = p[TX8_P_UNPOOL_W], c = p[TX8_P_UNPOOL_C], oh = p[TX8_P_UNPOOL_OH], ow = p[TX8_P_UNPOOL_OW];
    int64_t kx = p[TX8_P_UNPOOL_KX], ky = p[TX8_P_UNPOOL_KY], sx = p[TX8_P_UNPOOL_SX], sy = p[TX8_P_UNPOOL_SY];
    if (h < 0 || w < 0 || oh < 1 || ow < 1 || kx < 1 || ky < 1 || sx < 1 || sy < 1 || c < 1 || n < 1 || (double)n * (double)oh * (double)ow * (double)c > 1e12)
        return fail(t, TX8_BAD_SHAPE, n, oh, ow);
    const float *x = load_blocked(t, r->spm[TX8_S_UNPOOL_SRC0], n, h * w, c, r->fmt);
    const int32_t *where = NULL;
    if (!x) return false;
    if (r->opcode == TX8_OP_MASK_UNPOOL && !(where = load_blocked_i32(t, r->spm[TX8_S_MASKUNPOOL_INDEX_SRC], n, h * w, c, index_format(r->fmt)))) return false;
    float *out = scratch(t, n * oh * ow * c * 4);
    if (!out) return false;
    memset(out, 0, (size_t)(n * oh * ow * c * 4));
    for (int64_t tap = 0; tap < kx * ky; tap++) {
        if (r->opcode == TX8_OP_UNPOOL && tap != p[TX8_P_UNPOOL_INDEX]) continue;
        for (int64_t i = 0; i < n; i++)
            for (int64_t y = 0; y < h; y++)
                for (int64_t z = 0; z < w; z++) {
                    int64_t row = y * sy + tap / kx, column = z * sx + tap % kx, at = ((i * h + y) * w + z) * c;
                    if (row >= oh || column >= ow) continue;
                    float *to = out + ((i * oh + row) * ow + column) * c;
                    for (int64_t k = 0; k < c; k++)
                        if (!where || where[at + k] == tap) to[k] += r->opcode == TX8_OP_UNPOOL_AVG ? x[at + k] / (float)(kx * ky) : x[at + k];
                }
    }
    return store_blocked(t, r->spm[TX8_S_UNPOOL_DST], n, oh * ow, c, r->fmt, r->rnd, out, c, false);
}

bool run_tensor(tx8_tile *t, const tx8_row *r) {
    switch (r->opcode) {
        case TX8_OP_REDUCE_SUM: return reduce(t, r, SUM);
        case TX8_OP_REDUCE_AVG: return reduce(t, r, AVERAGE);
        case TX8_OP_REDUCE_MAX: return reduce(t, r, MAXIMUM);
        case TX8_OP_REDUCE_MIN: return reduce(t, r, MINIMUM);
        case TX8_OP_POOL_AVG: return pool(t, r, AVERAGE, false);
        case TX8_OP_POOL_SUM: return pool(t, r, SUM, false);
        case TX8_OP_POOL_MAX: return pool(t, r, MAXIMUM, false);
        case TX8_OP_POOL_MIN: return pool(t, r, MINIMUM, false);
        case TX8_OP_POOL_MAX_INDEXED: return pool(t, r, MAXIMUM, true);
        case TX8_OP_POOL_MIN_INDEXED: return pool(t, r, MINIMUM, true);
        default: return unpool(t, r);
    }
}
