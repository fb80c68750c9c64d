/* Bytes that move: transfers with DDR, strided runs, and rearrangements of dense (n, h, w, c) [manual 10.4, 11, 13].
 *
 * All of a row's source is read before its first result is written.
 */
#include "core.h"

typedef struct {
    int64_t s[3], n[3];
} levels;

static levels levels_at(const int64_t *p) {
    levels l = {{p[0], p[2], p[4]}, {p[1], p[3], p[5]}};
    return l;
}

static int64_t runs_of(const levels *l) { return l->n[0] * l->n[1] * l->n[2]; }

/* Bytes from the first to the last of the runs, -1 if the counts cannot be. */
static int64_t envelope(const levels *l, int64_t size) {
    double reach = (double)size, runs = (double)size;
    int64_t out = size;
    for (int k = 0; k < 3; k++) {
        if (l->n[k] < 1 || l->s[k] < 0) return -1;
        reach += (double)(l->n[k] - 1) * (double)l->s[k], runs *= (double)l->n[k];
        if (reach > 1e15 || runs > 1e15) return -1;
        out += (l->n[k] - 1) * l->s[k];
    }
    return size < 0 ? -1 : out;
}

/* Levels whose runs follow each other without a gap are one; fewer and longer runs move faster. */
static void merge(levels *l, int64_t *size) {
    while (l->n[0] > 1 && l->s[0] == *size) {
        *size *= l->n[0];
        for (int k = 0; k < 2; k++) l->n[k] = l->n[k + 1], l->s[k] = l->s[k + 1];
        l->n[2] = 1, l->s[2] = 0;
    }
}

/* To a dense run, or from it. */
static void gather(uint8_t *dense, const uint8_t *src, levels l, int64_t size) {
    merge(&l, &size);
    for (int64_t i2 = 0; i2 < l.n[2]; i2++)
        for (int64_t i1 = 0; i1 < l.n[1]; i1++)
            for (int64_t i0 = 0; i0 < l.n[0]; i0++, dense += size)
                memcpy(dense, src + i0 * l.s[0] + i1 * l.s[1] + i2 * l.s[2], (size_t)size);
}

static void spread(uint8_t *dst, const uint8_t *dense, levels l, int64_t size) {
    merge(&l, &size);
    for (int64_t i2 = 0; i2 < l.n[2]; i2++)
        for (int64_t i1 = 0; i1 < l.n[1]; i1++)
            for (int64_t i0 = 0; i0 < l.n[0]; i0++, dense += size)
                memcpy(dst + i0 * l.s[0] + i1 * l.s[1] + i2 * l.s[2], dense, (size_t)size);
}

/* runs of `size` bytes from one place of the scratchpad to another */
static bool scatter(tx8_tile *t, int64_t from, levels a, int64_t to, levels b, int64_t size) {
    int64_t reach = envelope(&a, size), span = envelope(&b, size);
    if (reach < 0 || span < 0) return fail(t, TX8_BAD_SHAPE, size, a.n[0], b.n[0]);
    if (runs_of(&a) != runs_of(&b)) return fail(t, TX8_BAD_RUNS, 0, 0, 0);
    const uint8_t *src = spm_at(t, from, reach);
    uint8_t *dst = spm_at(t, to, span), *dense;
    if (!src || !dst) return false;
    bool apart = src + reach <= dst || dst + span <= src;
    levels c = a, d = b;
    int64_t one = size, two = size;
    merge(&c, &one), merge(&d, &two);
    if (apart && runs_of(&c) == 1) {
        spread(dst, src, b, size);
    } else if (apart && runs_of(&d) == 1) {
        gather(dst, src, a, size);
    } else {
        if (!(dense = scratch(t, size * runs_of(&a)))) return false;
        gather(dense, src, a, size);
        spread(dst, dense, b, size);
    }
    return true;
}

_Static_assert((int)TX8_P_TDMAROW_STRIDE == (int)TX8_P_RDMAROW_STRIDE && (int)TX8_P_TDMAROW_INDEX_DDR == (int)TX8_P_RDMAROW_INDEX_DDR,
               "both look-ups name the number's place with the same fields");

/* The number that a look-up reads, in [0, entries); rows are `stride` bytes apart. */
static bool row_number(tx8_tile *t, int fmt, const int64_t *p, int64_t *out) {
    int64_t stride = p[TX8_P_RDMAROW_STRIDE], entries = p[TX8_P_RDMAROW_ENTRIES], slot = p[TX8_P_RDMAROW_INDEX_SLOT];
    if (fmt != F_I32 && fmt != F_U32 && fmt != F_I64 && fmt != F_U64) return fail(t, TX8_BAD_NUMBER_FORMAT, fmt, 0, 0);
    if (slot < 0 || slot >= t->n_slots) return fail(t, TX8_BAD_SLOT, slot, t->n_slots, 0);
    if (entries < 1 || stride < 0 || (double)entries * (double)stride > 1e15) return fail(t, TX8_BAD_SHAPE, entries, stride, 0);
    int64_t at = t->slots[slot] + p[TX8_P_RDMAROW_INDEX_DDR];
    const uint8_t *place = ddr_at(t, at, FORMATS[fmt].bytes);
    if (!place) return false;
    to_i64(place, fmt, out, 1);
    if (*out < -entries || *out >= entries || (*out < 0 && fmt == F_U64)) return fail(t, TX8_BAD_NUMBER, *out, entries, at);
    if (*out < 0) *out += entries;
    return true;
}

static bool fill(tx8_tile *t, const tx8_row *r) {
    if (!known_format(t, r->fmt)) return false;
    int64_t e = FORMATS[r->fmt].bytes, n = r->p[TX8_P_MEMSET_N];
    levels l = levels_at(r->p + TX8_P_MEMSET_S0);
    int64_t span = n < 1 || n > ((int64_t)1 << 40) ? -1 : envelope(&l, n * e);
    if (span < 0) return fail(t, TX8_BAD_SHAPE, n, l.n[0], l.n[1]);
    uint8_t *dst = spm_at(t, r->spm[TX8_S_MEMSET_DST], span), *run = scratch(t, n * e);
    if (!dst || !run) return false;
    for (int64_t i = 0; i < n; i++) memcpy(run + i * e, &r->p[TX8_P_MEMSET_VALUE], (size_t)e);
    for (int64_t i2 = 0; i2 < l.n[2]; i2++)
        for (int64_t i1 = 0; i1 < l.n[1]; i1++)
            for (int64_t i0 = 0; i0 < l.n[0]; i0++)
                memcpy(dst + i0 * l.s[0] + i1 * l.s[1] + i2 * l.s[2], run, (size_t)(n * e));
    return true;
}

bool run_transfer(tx8_tile *t, const tx8_row *r) {
    const int64_t *p = r->p, address = t->addresses[t->at];
    int64_t number, size;
    levels l;
    switch (r->opcode) {
        case TX8_OP_MEMSET: return fill(t, r);
        case TX8_OP_GATHER_SCATTER:
            return scatter(t, r->spm[TX8_S_GATHERSCATTER_SRC0], levels_at(p + TX8_P_GATHERSCATTER_SS0), r->spm[TX8_S_GATHERSCATTER_DST],
                           levels_at(p + TX8_P_GATHERSCATTER_DS0), p[TX8_P_GATHERSCATTER_SIZE]);
        case TX8_OP_TDMA_ROW: {
            levels a = {{p[TX8_P_TDMAROW_SS0], 0, 0}, {p[TX8_P_TDMAROW_SN0], 1, 1}};
            levels b = {{p[TX8_P_TDMAROW_DS0], 0, 0}, {p[TX8_P_TDMAROW_DN0], 1, 1}};
            if (!row_number(t, r->fmt, p, &number)) return false;
            return scatter(t, r->spm[TX8_S_TDMAROW_SRC0] + number * p[TX8_P_TDMAROW_STRIDE], a, r->spm[TX8_S_TDMAROW_DST], b, p[TX8_P_TDMAROW_SIZE]);
        }
        case TX8_OP_RDMA_ROW: {
            size = p[TX8_P_RDMAROW_RUN_BYTES];
            if (!row_number(t, r->fmt, p, &number)) return false;
            const uint8_t *row = ddr_at(t, address + number * p[TX8_P_RDMAROW_STRIDE], size);
            uint8_t *to = row ? spm_at(t, r->spm[TX8_S_RDMAROW_DST], size) : NULL;
            if (to) memcpy(to, row, (size_t)size);
            return to != NULL;
        }
        default: break;
    }
    l = levels_at(p + TX8_P_RDMA_S0), size = p[TX8_P_RDMA_RUN_BYTES];
    int64_t span = envelope(&l, size);
    if (span < 0) return fail(t, TX8_BAD_SHAPE, size, l.n[0], l.n[1]);
    uint8_t *far = ddr_at(t, address, span), *near = far ? spm_at(t, r->spm[TX8_S_RDMA_DST], size * runs_of(&l)) : NULL;
    if (!near) return false;
    if (r->opcode == TX8_OP_RDMA)
        gather(near, far, l, size);
    else
        spread(far, near, l, size);
    return true;
}

/* --- rearrangements: each run of results has one place in the source, or is zero --- */

typedef struct {
    int64_t n, h, w, c, e;
} shape;

static bool shape_of(tx8_tile *t, const tx8_row *r, const int64_t *p, shape *s) {
    if (!known_format(t, r->fmt)) return false;
    s->n = p[0], s->h = p[1], s->w = p[2], s->c = p[3], s->e = FORMATS[r->fmt].bytes;
    if (s->n < 0 || s->h < 0 || s->w < 0 || s->c < 0 || (double)s->n * (double)s->h * (double)s->w * (double)s->c > 1e12) return fail(t, TX8_BAD_SHAPE, s->n, s->h, s->c);
    return true;
}

static const uint8_t *source(tx8_tile *t, int64_t addr, int64_t bytes, const uint8_t *dst, int64_t room) {
    const uint8_t *src = spm_at(t, addr, bytes);
    if (!src || !dst || dst + room <= src || src + bytes <= dst) return dst ? src : NULL;
    uint8_t *copy = scratch(t, bytes);
    return copy ? memcpy(copy, src, (size_t)bytes) : NULL;
}

/* (n, a, b) runs of `size` bytes, each from src + i * step + a * sa + b * sb */
static void turned(uint8_t *dst, const uint8_t *src, int64_t n, int64_t step, int64_t a, int64_t sa, int64_t b, int64_t sb, int64_t size) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < a; j++)
            for (int64_t k = 0; k < b; k++, dst += size) memcpy(dst, src + i * step + j * sa + k * sb, (size_t)size);
}

static bool windows(tx8_tile *t, const tx8_row *r, const shape *s) { /* pad is one window of the whole padded image */
    const int64_t *p = r->p;
    int64_t top = p[TX8_P_PAD_TOP], bottom = p[TX8_P_PAD_BOTTOM], left = p[TX8_P_PAD_LEFT], right = p[TX8_P_PAD_RIGHT], kx = 1, ky = 1, sx = 1, sy = 1;
    if (r->opcode == TX8_OP_IMG2COL) kx = p[TX8_P_IMG2COL_KX], ky = p[TX8_P_IMG2COL_KY], sx = p[TX8_P_IMG2COL_SX], sy = p[TX8_P_IMG2COL_SY];
    int64_t tall = s->h + top + bottom - ky, wide = s->w + left + right - kx;
    if (top < 0 || bottom < 0 || left < 0 || right < 0 || kx < 1 || ky < 1 || sx < 1 || sy < 1 || tall < 0 || wide < 0 || tall > 1 << 26 || wide > 1 << 26)
        return fail(t, TX8_BAD_SHAPE, tall, wide, s->c);
    int64_t oh = tall / sy + 1, ow = wide / sx + 1, run = s->c * s->e, image = s->h * s->w * run;
    if ((double)s->n * (double)kx * (double)ky * (double)oh * (double)ow * (double)run > 1e12) return fail(t, TX8_BAD_SHAPE, oh, ow, s->c);
    int64_t room = s->n * kx * ky * oh * ow * run;
    uint8_t *dst = spm_at(t, r->spm[TX8_S_PAD_DST], room);
    const uint8_t *src = source(t, r->spm[TX8_S_PAD_SRC0], s->n * image, dst, room);
    if (!src) return false;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t tap = 0; tap < kx * ky; tap++)
            for (int64_t y = 0; y < oh; y++)
                for (int64_t x = 0; x < ow; x++, dst += run) {
                    int64_t row = y * sy + tap / kx - top, column = x * sx + tap % kx - left;
                    if (row >= 0 && row < s->h && column >= 0 && column < s->w)
                        memcpy(dst, src + i * image + (row * s->w + column) * run, (size_t)run);
                    else
                        memset(dst, 0, (size_t)run);
                }
    return true;
}

static bool norm(tx8_tile *t, const tx8_row *r, const shape *s) {
    blocked b;
    int64_t pos = s->h * s->w, dense = s->n * pos * s->c * s->e;
    if (!blocked_of(t, &b, s->n, pos, s->c, r->fmt)) return false;
    bool inverse = r->p[TX8_P_TENSORNORM_INVERSE] != 0;
    int64_t room = inverse ? dense : b.bytes;
    uint8_t *dst = spm_at(t, r->spm[TX8_S_TENSORNORM_DST], room);
    const uint8_t *src = source(t, r->spm[TX8_S_TENSORNORM_SRC0], inverse ? b.bytes : dense, dst, room);
    if (!src) return false;
    if (!inverse) memset(dst, 0, (size_t)room);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t k = 0; k < blocked_parts(&b); k++)
            for (int64_t p = 0; p < pos; p++) {
                int64_t far = blocked_offset(&b, i, p, k), near = ((i * pos + p) * s->c + k * b.block) * s->e;
                memcpy(dst + (inverse ? near : far), src + (inverse ? far : near), (size_t)(blocked_part(&b, k) * s->e));
            }
    return true;
}

static bool concat(tx8_tile *t, const tx8_row *r) {
    const int64_t *p = r->p;
    shape s;
    int64_t dim = p[TX8_P_CONCAT_DIM], more = p[TX8_P_CONCAT_SIZE1];
    if (!shape_of(t, r, p + TX8_P_CONCAT_N, &s)) return false;
    if (dim < 0 || dim > 2 || more < 0 || more > 1 << 26) return fail(t, TX8_BAD_SHAPE, dim, more, 0);
    int64_t rows = dim == 0 ? s.n * s.h * s.w : dim == 1 ? s.n * s.h : s.n, inner = (dim == 0 ? 1 : dim == 1 ? s.c : s.w * s.c) * s.e;
    int64_t a = (dim == 0 ? s.c : dim == 1 ? s.w : s.h) * inner, b = more * inner, room = rows * (a + b);
    uint8_t *dst = spm_at(t, r->spm[TX8_S_CONCAT_DST], room);
    const uint8_t *one = source(t, r->spm[TX8_S_CONCAT_SRC0], rows * a, dst, room), *two = source(t, r->spm[TX8_S_CONCAT_SRC1], rows * b, dst, room);
    if (!one || !two) return false;
    for (int64_t k = 0; k < rows; k++, dst += a + b) {
        memcpy(dst, one + k * a, (size_t)a);
        memcpy(dst + a, two + k * b, (size_t)b);
    }
    return true;
}

bool run_move(tx8_tile *t, const tx8_row *r) {
    shape s;
    if (r->opcode == TX8_OP_CONCAT) return concat(t, r);
    if (!shape_of(t, r, r->p + TX8_P_MOVE_N, &s)) return false;
    if (r->opcode == TX8_OP_PAD || r->opcode == TX8_OP_IMG2COL) return windows(t, r, &s);
    if (r->opcode == TX8_OP_TENSOR_NORM) return norm(t, r, &s);
    int64_t e = s.e, run = s.c * e, line = s.w * run, image = s.h * line, room = s.n * image, last = (s.h - 1) * line, end = line - run;
    uint8_t *dst = spm_at(t, r->spm[TX8_S_MOVE_DST], room);
    const uint8_t *src = source(t, r->spm[TX8_S_MOVE_SRC0], room, dst, room);
    if (!src) return false;
    switch (r->opcode) {
        case TX8_OP_MIRROR: turned(dst, src + end, s.n, image, s.h, line, s.w, -run, run); break;
        case TX8_OP_TRANSPOSE: turned(dst, src, s.n, image, s.w, run, s.h, line, run); break;
        case TX8_OP_ROTATE90: turned(dst, src + last, s.n, image, s.w, run, s.h, -line, run); break;
        case TX8_OP_ROTATE180: turned(dst, src + last + end, s.n, image, s.h, -line, s.w, -run, run); break;
        case TX8_OP_ROTATE270: turned(dst, src + end, s.n, image, s.w, -run, s.h, line, run); break;
        case TX8_OP_NHWC2NCHW: turned(dst, src, s.n, image, s.c, e, s.h * s.w, run, e); break;
        default: turned(dst, src, s.n, image, s.h * s.w, e, s.c, s.h * s.w * e, e); break; /* nchw2nhwc */
    }
    return true;
}
