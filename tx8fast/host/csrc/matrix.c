/* GEMM and convolutions [manual 6.4, 12]: sums of chunks of eight products, then what is done to them. */
#include "matrix.h"

/* What a product does to its sums; fields of GEMM and convolution by one name. */
typedef struct {
    int64_t out_fmt, psum_fmt, psum_en, bias_en, act, bias_fmt, scale_n;
    bool quantised;
    int q0, q1, zero_left, zero_right, zero_out;
} post;

enum { RELU = 1, LEAKY_RELU = 2 };

static int signed12(uint64_t word) { return (int)((word & 0xFFF) ^ 0x800) - 0x800; }

static void unpack_quant(post *p, uint64_t word) {
    p->quantised = word & 1;
    p->q0 = (int)(word >> 1 & 31), p->q1 = (int)(word >> 6 & 31);
    p->zero_left = signed12(word >> 11), p->zero_right = signed12(word >> 23), p->zero_out = signed12(word >> 35);
}

static int64_t within(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* one value per channel; NULL with status TX8_DONE: not used */
static float *vector(tx8_tile *t, int64_t addr, int64_t c, int64_t fmt) { return addr ? load_blocked(t, addr, 1, 1, c, (int)fmt) : NULL; }

/* INT8 path: 32-bit sums of `rows` positions and c channels to 8 bits [manual 12.4] */
static bool quantise(tx8_tile *t, const tx8_row *r, const post *p, uint32_t *acc, int64_t rows, int64_t c) {
    int32_t *scale = r->spm[TX8_S_GEMM_SCALE_P] ? load_blocked_i32(t, r->spm[TX8_S_GEMM_SCALE_P], 1, 1, c, F_I16) : NULL;
    for (int64_t i = 0; t->status == TX8_DONE && i < rows * c; i++) {
        int64_t wide = within((int64_t)(int32_t)acc[i] >> p->q1, -32768, 32767);
        int64_t narrow = within((wide * (scale ? scale[i % c] : 1)) >> p->q0, -256, 255);
        acc[i] = (uint32_t)within(narrow + p->zero_out, -128, 127);
    }
    return t->status == TX8_DONE;
}

static void post_process(float *z, const float *bias, const float *up, const float *down, int64_t act, int64_t rows, int64_t c) {
    for (int64_t i = 0; i < rows; i++, z += c)
        for (int64_t k = 0; k < c; k++) {
            float x = z[k];
            if (bias) x = x + bias[k];
            if (up || down) x = x * (x >= 0 ? up ? up[k] : 1.0f : down ? down[k] : 1.0f);
            if (act == RELU) x = 0.0f > x ? 0.0f : x;
            if (act == LEAKY_RELU) x = x < 0 ? x * 0.01f : x;
            z[k] = x;
        }
}

/* acc (n, pos, c): f32, or 32-bit integers of 8-bit operands; fields of both instructions stand at the same addresses */
static bool finish(tx8_tile *t, const tx8_row *r, const post *p, uint32_t *acc, int64_t n, int64_t pos, int64_t c, bool whole) {
    int64_t size = n * pos * c;
    float *z = (float *)acc;
    if (p->psum_en && whole && p->psum_fmt == F_I32) {
        const int32_t *psum = load_blocked_i32(t, r->spm[TX8_S_GEMM_PSUM], n, pos, c, F_I32);
        if (!psum) return false;
        for (int64_t i = 0; i < size; i++) acc[i] += (uint32_t)psum[i];
    } else if (p->psum_en) {
        const float *psum = load_blocked(t, r->spm[TX8_S_GEMM_PSUM], n, pos, c, (int)p->psum_fmt);
        if (!psum) return false;
        for (int64_t i = 0; i < size; i++) z[i] = (whole ? (float)(int32_t)acc[i] : z[i]) + psum[i];
        whole = false;
    }
    if (p->quantised && whole) {
        if (!quantise(t, r, p, acc, n * pos, c)) return false;
    } else {
        const float *bias = p->bias_en ? vector(t, r->spm[TX8_S_GEMM_BIAS], c, p->bias_fmt) : NULL;
        const float *up = vector(t, r->spm[TX8_S_GEMM_SCALE_P], c, F_F32), *down = vector(t, p->scale_n, c, F_F32);
        if (t->status != TX8_DONE) return false;
        if (bias || up || down || p->act) {
            for (int64_t i = 0; whole && i < size; i++) z[i] = (float)(int32_t)acc[i];
            whole = false;
            post_process(z, bias, up, down, p->act, n * pos, c);
        }
    }
    return store_blocked(t, r->spm[TX8_S_GEMM_OUT], n, pos, c, (int)p->out_fmt, r->rnd, acc, c, whole);
}

_Static_assert((int)TX8_S_CONV_OUT == (int)TX8_S_GEMM_OUT && (int)TX8_S_CONV_PSUM == (int)TX8_S_GEMM_PSUM && (int)TX8_S_CONV_BIAS == (int)TX8_S_GEMM_BIAS &&
                   (int)TX8_S_CONV_SCALE_P == (int)TX8_S_GEMM_SCALE_P, "`finish` serves both");

/* --- GEMM --- */

static int64_t *steps(tx8_tile *t, int64_t n) { /* 0, 1, 2 ... */
    int64_t *out = scratch(t, n * 8);
    for (int64_t i = 0; out && i < n; i++) out[i] = i;
    return out;
}

static bool gemm(tx8_tile *t, const tx8_row *r) {
    const int64_t *p = r->p, m = p[TX8_P_GEMM_M], k = p[TX8_P_GEMM_K], n = p[TX8_P_GEMM_N], batch_l = p[TX8_P_GEMM_BATCH_L], batch_r = p[TX8_P_GEMM_BATCH_R];
    bool l_trs = p[TX8_P_GEMM_L_TRS] != 0, r_trs = p[TX8_P_GEMM_R_TRS] != 0;
    post f = {p[TX8_P_GEMM_OUT_FMT], p[TX8_P_GEMM_PSUM_FMT], p[TX8_P_GEMM_PSUM_EN], p[TX8_P_GEMM_BIAS_EN], p[TX8_P_GEMM_ACT],
              p[TX8_P_GEMM_BIAS_FMT], p[TX8_P_GEMM_SCALE_N], false, 0, 0, 0, 0, 0};
    operand left, right;
    unpack_quant(&f, (uint64_t)p[TX8_P_GEMM_QUANT]);
    if (m < 1 || k < 1 || n < 1) return fail(t, TX8_BAD_SHAPE, m, k, n);
    if (batch_l != batch_r && batch_l != 1 && batch_r != 1) return fail(t, TX8_BAD_BATCH, batch_l, batch_r, 0);
    if (!operand_of(t, &left, r->spm[TX8_S_GEMM_LEFT], batch_l, l_trs ? k : m, l_trs ? m : k, r->fmt, f.zero_left)) return false;
    if (!operand_of(t, &right, r->spm[TX8_S_GEMM_RIGHT], batch_r, r_trs ? k : n, r_trs ? n : k, r->fmt, f.zero_right)) return false;
    /* Lanes are columns of the result, or its rows where that spares turning the right operand: terms commute, so the sums are the same. */
    bool turned = !r_trs && (l_trs || m >= NR);
    const operand *a = turned ? &right : &left, *b = turned ? &left : &right;
    bool a_trs = turned ? r_trs : l_trs, b_trs = turned ? l_trs : r_trs;
    int64_t rows = turned ? n : m, lanes = turned ? m : n, batches = most(batch_l, batch_r), parts = a->parts;
    if ((double)batches * (double)m * (double)n > 1e11) return fail(t, TX8_BAD_SHAPE, batches, m, n);
    uint32_t *packed = scratch(t, parts * chunks_of(k) * rows * 32), *panel = scratch(t, parts * chunks_of(k) * 32 * NR);
    uint32_t *acc = scratch(t, rows * NR * 4), *out = scratch(t, batches * m * n * 4);
    int64_t *places = steps(t, rows);
    if (!packed || !panel || !acc || !out || !places) return false;
    for (int64_t i = 0; i < batches; i++) {
        int64_t at_a = i % a->b.n * a->b.pos, at_b = i % b->b.n * b->b.pos;
        uint32_t *to = out + i * m * n;
        for (int64_t row = 0; row < rows; row++) places[row] = at_a + row;
        if (i == 0 || a->b.n > 1) {
            if (a_trs)
                pack_columns(a, at_a, rows, k, packed);
            else
                pack_rows(a, places, rows, k, packed);
        }
        for (int64_t lane = 0; lane < lanes; lane += NR) {
            int64_t used = least(NR, lanes - lane);
            if (b_trs)
                panel_of_columns(b, at_b, lane, lanes, k, panel);
            else
                panel_of_rows(b, at_b, lane, lanes, k, panel);
            memset(acc, 0, (size_t)(rows * NR) * 4);
            multiply(packed, panel, acc, rows, k, a, turned);
            if (turned)
                for (int64_t l = 0; l < used; l++)
                    for (int64_t row = 0; row < rows; row++) to[(lane + l) * n + row] = acc[row * NR + l];
            else
                for (int64_t row = 0; row < rows; row++) memcpy(to + row * n + lane, acc + row * NR, (size_t)used * 4);
        }
    }
    return finish(t, r, &f, out, batches, m, n, left.whole);
}

/* --- convolutions --- */

typedef struct {
    int64_t n, h, w, c, oh, ow, oc, top, left, kx, ky, sx, sy, dx, dy;
} window;

/* place of the image under a tap of a result, -1 outside */
static int64_t under(const window *v, int64_t i, int64_t y, int64_t x, int64_t tap) {
    int64_t row = y * v->sy + tap / v->kx * v->dy - v->top, column = x * v->sx + tap % v->kx * v->dx - v->left;
    return row >= 0 && row < v->h && column >= 0 && column < v->w ? (i * v->h + row) * v->w + column : -1;
}

/* pairs of (place of the operand, place of the result) that meet under a tap; returns how many */
static int64_t meeting(const window *v, bool backward, int64_t tap, int64_t *from, int64_t *to) {
    int64_t count = 0;
    for (int64_t i = 0; i < v->n; i++)
        for (int64_t y = 0; y < (backward ? v->h : v->oh); y++)
            for (int64_t x = 0; x < (backward ? v->w : v->ow); x++) {
                int64_t row = y * v->sy + tap / v->kx * v->dy - v->top, column = x * v->sx + tap % v->kx * v->dx - v->left;
                if (!backward)
                    from[count] = under(v, i, y, x, tap), to[count] = count, count++;
                else if (row >= 0 && row < v->oh && column >= 0 && column < v->ow)
                    from[count] = (i * v->h + y) * v->w + x, to[count] = (i * v->oh + row) * v->ow + column, count++;
            }
    return count;
}

static bool convolve(tx8_tile *t, const tx8_row *r, const window *v, const operand *x, const operand *w, const post *f, bool backward) {
    int64_t results = v->n * v->oh * v->ow, most_rows = most(results, v->n * v->h * v->w), panels = ceil_div(v->oc, NR), parts = x->parts;
    if ((double)most_rows * (double)(panels * NR + v->c * parts) > 1e11) return fail(t, TX8_BAD_SHAPE, results, v->c, v->oc);
    uint32_t *packed = scratch(t, parts * chunks_of(v->c) * most_rows * 32), *panel = scratch(t, parts * chunks_of(v->c) * 32 * NR);
    uint32_t *all = scratch(t, panels * results * NR * 4), *acc = scratch(t, most_rows * NR * 4), *out = scratch(t, results * v->oc * 4);
    int64_t *from = scratch(t, most_rows * 8), *to = scratch(t, most_rows * 8);
    if (!packed || !panel || !all || !acc || !out || !from || !to) return false;
    memset(all, 0, (size_t)(panels * results * NR) * 4);
    for (int64_t tap = 0; tap < v->kx * v->ky; tap++) {
        int64_t count = meeting(v, backward, tap, from, to);
        if (count == 0) continue;
        pack_rows(x, from, count, v->c, packed);
        for (int64_t k = 0; k < panels; k++) {
            uint32_t *sums = all + k * results * NR;
            if (backward)
                panel_of_columns(w, tap * v->c, k * NR, v->oc, v->c, panel);
            else
                panel_of_rows(w, tap * v->oc, k * NR, v->oc, v->c, panel);
            if (!backward) {
                multiply(packed, panel, sums, count, v->c, x, false);
                continue;
            }
            for (int64_t i = 0; i < count; i++) memcpy(acc + i * NR, sums + to[i] * NR, NR * 4);
            multiply(packed, panel, acc, count, v->c, x, false);
            for (int64_t i = 0; i < count; i++) memcpy(sums + to[i] * NR, acc + i * NR, NR * 4);
        }
    }
    for (int64_t i = 0; i < results; i++)
        for (int64_t k = 0; k < panels; k++)
            memcpy(out + i * v->oc + k * NR, all + (k * results + i) * NR, (size_t)least(NR, v->oc - k * NR) * 4);
    return finish(t, r, f, out, v->n, v->oh * v->ow, v->oc, x->whole);
}

/* every channel for itself; one product and one addition of f32 per tap */
static bool depthwise(tx8_tile *t, const tx8_row *r, const window *v, const operand *x, const post *f) {
    int64_t results = v->n * v->oh * v->ow, c = v->c, size = v->n * v->h * v->w * c, taps = v->kx * v->ky;
    uint32_t *acc = scratch(t, results * c * 4), *zeros = scratch(t, c * 4);
    void *image, *weights;
    if (x->whole) {
        int32_t *a = load_blocked_i32(t, r->spm[TX8_S_CONV_SRC], v->n, v->h * v->w, c, r->fmt);
        int32_t *b = a ? load_blocked_i32(t, r->spm[TX8_S_CONV_WEIGHT], 1, taps, c, r->fmt) : NULL;
        for (int64_t i = 0; b && i < size; i++) a[i] -= f->zero_left;
        for (int64_t i = 0; b && i < taps * c; i++) b[i] -= f->zero_right;
        image = a, weights = b;
    } else {
        image = load_blocked(t, r->spm[TX8_S_CONV_SRC], v->n, v->h * v->w, c, r->fmt);
        weights = image ? load_blocked(t, r->spm[TX8_S_CONV_WEIGHT], 1, taps, c, r->fmt) : NULL;
    }
    if (!acc || !zeros || !weights) return false;
    memset(acc, 0, (size_t)(results * c) * 4);
    memset(zeros, 0, (size_t)c * 4);
    for (int64_t i = 0; i < results; i++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t place = under(v, i / (v->oh * v->ow), i / v->ow % v->oh, i % v->ow, tap);
            const uint32_t *a = place < 0 ? zeros : (const uint32_t *)image + place * c, *b = (const uint32_t *)weights + tap * c;
            if (x->whole)
                for (int64_t k = 0; k < c; k++) acc[i * c + k] += a[k] * b[k];
            else
                for (int64_t k = 0; k < c; k++) ((float *)acc)[i * c + k] += ((const float *)a)[k] * ((const float *)b)[k];
        }
    return finish(t, r, f, acc, v->n, v->oh * v->ow, c, x->whole);
}

bool run_matrix(tx8_tile *t, const tx8_row *r) {
    if (r->opcode == TX8_OP_GEMM) return gemm(t, r);
    const int64_t *p = r->p;
    window v = {p[TX8_P_CONV_N], p[TX8_P_CONV_H], p[TX8_P_CONV_W], p[TX8_P_CONV_C], p[TX8_P_CONV_OH], p[TX8_P_CONV_OW], p[TX8_P_CONV_OC],
                p[TX8_P_CONV_TOP], p[TX8_P_CONV_LEFT], p[TX8_P_CONV_KX], p[TX8_P_CONV_KY], p[TX8_P_CONV_SX], p[TX8_P_CONV_SY], p[TX8_P_CONV_DX], p[TX8_P_CONV_DY]};
    post f = {p[TX8_P_CONV_OUT_FMT], p[TX8_P_CONV_PSUM_FMT], p[TX8_P_CONV_PSUM_EN], p[TX8_P_CONV_BIAS_EN], p[TX8_P_CONV_ACT], F_F32,
              p[TX8_P_CONV_SCALE_N], false, 0, 0, 0, 0, 0};
    operand x, w;
    unpack_quant(&f, (uint64_t)p[TX8_P_CONV_QUANT]);
    for (int k = 0; k < 17; k++)
        if (p[k] < (k >= TX8_P_CONV_TOP && k <= TX8_P_CONV_RIGHT ? 0 : k == TX8_P_CONV_H || k == TX8_P_CONV_W ? 0 : 1) || p[k] > 1 << 25)
            return fail(t, TX8_BAD_SHAPE, k, p[k], 0);
    if ((double)v.n * (double)v.oh * (double)v.ow * (double)v.oc > 1e11 || (double)v.kx * (double)v.ky * (double)v.c * (double)v.oc > 1e11 || v.h * v.w > (int64_t)1 << 40)
        return fail(t, TX8_BAD_SHAPE, v.n, v.oh, v.ow);
    if (!operand_of(t, &x, r->spm[TX8_S_CONV_SRC], v.n, v.h * v.w, v.c, r->fmt, f.zero_left)) return false;
    if (r->opcode == TX8_OP_DEPTHWISE) {
        v.dx = v.dy = 1; /* this form ignores dilation */
        return v.c == v.oc ? depthwise(t, r, &v, &x, &f) : fail(t, TX8_BAD_SHAPE, v.c, v.oc, 0);
    }
    bool backward = r->opcode == TX8_OP_BACKWARD_CONV;
    int64_t taps = v.kx * v.ky;
    if (!operand_of(t, &w, r->spm[TX8_S_CONV_WEIGHT], 1, taps * (backward ? v.c : v.oc), backward ? v.oc : v.c, r->fmt, f.zero_right)) return false;
    return convolve(t, r, &v, &x, &w, &f, backward);
}
