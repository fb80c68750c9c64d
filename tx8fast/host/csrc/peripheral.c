/* Counting, extrema, tables, resampling, random numbers, compaction, and the scalar unit [manual 8.1, 10.4, 11.4]. */
#include <math.h>

#include "core.h"

static uint64_t pattern(float x, int fmt) { /* as a register holds it */
    uint8_t word[8] = {0};
    uint64_t out;
    from_f32(&x, word, fmt, NEAREST, 1, 0, 0);
    memcpy(&out, word, 8);
    return out;
}

static float *load(tx8_tile *t, int64_t addr, int64_t n, int fmt) {
    if (!computed_format(t, fmt)) return NULL;
    if (n < 0 || n > ((int64_t)1 << 40)) {
        fail(t, TX8_BAD_SHAPE, n, 0, 0);
        return NULL;
    }
    const uint8_t *src = spm_at(t, addr, n * FORMATS[fmt].bytes);
    float *out = src ? scratch(t, n * 4) : NULL;
    if (out) to_f32(src, fmt, out, n);
    return out;
}

static bool store(tx8_tile *t, int64_t addr, const float *x, int64_t n, int fmt, int mode) {
    if (!computed_format(t, fmt)) return false;
    if (mode > STOCHASTIC) return fail(t, TX8_BAD_ROUNDING, mode, 0, 0);
    uint8_t *dst = spm_at(t, addr, n * FORMATS[fmt].bytes);
    if (dst) from_f32(x, dst, fmt, mode, n, 0, seed_of(t));
    return dst != NULL;
}

static uint8_t *load_bits(tx8_tile *t, int64_t addr, int64_t n) {
    if (n < 0 || n > ((int64_t)1 << 40)) {
        fail(t, TX8_BAD_SHAPE, n, 0, 0);
        return NULL;
    }
    const uint8_t *src = spm_at(t, addr, ceil_div(n, 8));
    uint8_t *out = src ? scratch(t, n) : NULL;
    if (out) unpack_bits(src, out, n);
    return out;
}

static bool counted(tx8_tile *t, const tx8_row *r, int64_t n) {
    t->result = 0, t->result_index = 0;
    if (r->opcode == TX8_OP_BITCOUNT) {
        const uint8_t *bits = load_bits(t, r->spm[0], n);
        for (int64_t i = 0; bits && i < n; i++) t->result += bits[i];
        return bits != NULL;
    }
    const float *x = load(t, r->spm[0], n, r->fmt);
    for (int64_t i = 0; x && i < n; i++) t->result += x[i] != 0;
    return x != NULL;
}

static bool extremum(tx8_tile *t, const tx8_row *r, int64_t n) {
    const float *x = load(t, r->spm[TX8_S_PERIPHERAL_SRC0], n, r->fmt);
    int64_t best = 0;
    bool least_one = r->opcode == TX8_OP_ARGMIN;
    if (!x || n < 1) return x ? fail(t, TX8_BAD_SHAPE, n, 0, 0) : false;
    for (int64_t i = 0; i < n; i++) /* NaN only where there is nothing else */
        if (x[i] == x[i] && (x[best] != x[best] || (least_one ? x[i] < x[best] : x[i] > x[best]))) best = i;
    t->result = pattern(x[best], r->fmt), t->result_index = best;
    return true;
}

static bool factorize(tx8_tile *t, const tx8_row *r, int64_t n) {
    const float *x = load(t, r->spm[TX8_S_FACTORIZE_SRC0], n, F_F32);
    float *parts = x ? scratch(t, n * 12) : NULL;
    if (!parts) return false;
    for (int64_t i = 0; i < n; i++) {
        int exponent = 0;
        bool special = x[i] - x[i] != 0;
        float m = special ? fabsf(x[i]) : frexpf(fabsf(x[i]), &exponent);
        parts[i] = x[i] != 0 && bits_of(x[i]) >> 31 ? -1.0f : 1.0f;
        parts[n + i] = x[i] == 0 ? 0 : special ? -1 : (float)(exponent - 1);
        parts[2 * n + i] = x[i] == 0 ? 0 : special ? m : m * 2;
    }
    for (int k = 0; k < 3; k++)
        if (!store(t, r->spm[TX8_S_FACTORIZE_DST0 + k], parts + k * n, n, F_F32, NEAREST)) return false;
    return true;
}

static bool look_up(tx8_tile *t, const tx8_row *r, int64_t n, int64_t width) {
    int64_t room = r->p[TX8_P_LUT16_ENTRIES] * width;
    if (n < 0 || n > ((int64_t)1 << 40) || room < 0 || room > ((int64_t)1 << 40)) return fail(t, TX8_BAD_SHAPE, n, room, 0);
    const uint8_t *at = spm_at(t, r->spm[TX8_S_LUT16_SRC0], n * width), *table = spm_at(t, r->spm[TX8_S_LUT16_TABLE], room);
    uint8_t *dst = spm_at(t, r->spm[TX8_S_LUT16_DST], n * width), *out = scratch(t, n * width);
    if (!at || !table || !dst || !out) return false;
    for (int64_t i = 0; i < n; i++) {
        uint32_t offset = 0;
        memcpy(&offset, at + i * width, (size_t)width);
        if ((int64_t)offset + width > room) return fail(t, TX8_BAD_OFFSET, offset, room, 0);
        memcpy(out + i * width, table + offset, (size_t)width);
    }
    memcpy(dst, out, (size_t)(n * width));
    return true;
}

/* xoroshiro128+ */
static float next(uint64_t s[2]) {
    float out = (float)((s[0] + s[1]) >> 40) * 0x1p-24f;
    s[1] ^= s[0];
    uint64_t first = (s[0] << 24 | s[0] >> 40) ^ s[1] ^ s[1] << 16;
    s[1] = s[1] << 37 | s[1] >> 27;
    s[0] = first;
    return out;
}

static bool random_numbers(tx8_tile *t, const tx8_row *r, int64_t n) {
    uint64_t s[2];
    for (int k = 0; k < 2; k++) {
        const uint8_t *seed = spm_at(t, r->spm[TX8_S_RAND_GEN_SEED0 + k], 8);
        if (!seed) return false;
        memcpy(s + k, seed, 8);
    }
    if (n < 0 || n > ((int64_t)1 << 40)) return fail(t, TX8_BAD_SHAPE, n, 0, 0);
    float *out = scratch(t, n * 4);
    if (!out) return false;
    for (int64_t i = 0; i < n; i++) out[i] = next(s);
    if (!store(t, r->spm[TX8_S_RAND_GEN_DST], out, n, r->fmt, NEAREST)) return false;
    for (int k = 0; k < 2; k++) {
        uint8_t *word = spm_at(t, r->spm[TX8_S_RAND_GEN_OUT_SEED0 + k], 8);
        if (!word) return false;
        memcpy(word, s + k, 8);
    }
    return true;
}

static bool masked(tx8_tile *t, const tx8_row *r, int64_t n) {
    float *x = load(t, r->spm[TX8_S_ELEM_MASK_SRC0], n, r->fmt), *scale = x ? load(t, r->spm[TX8_S_ELEM_MASK_SCALE], 1, r->fmt) : NULL;
    uint64_t s[2] = {seed_of(t) | 1, 0x9E3779B97F4A7C15u};
    if (!scale) return false;
    for (int64_t i = 0; i < n; i++) x[i] = next(s) < f32_of((uint32_t)r->p[TX8_P_ELEM_MASK_PROB]) ? 0 : x[i] * *scale;
    return store(t, r->spm[TX8_S_ELEM_MASK_DST], x, n, r->fmt, r->rnd);
}

/* dst[i] = src[i] where the mask is not zero; or those elements one behind the other */
static bool chosen(tx8_tile *t, const tx8_row *r, int64_t n) {
    if (!known_format(t, r->fmt)) return false;
    bool compact = r->opcode != TX8_OP_MASK_MOVE;
    int64_t e = FORMATS[r->fmt].bytes, many = 0;
    uint8_t *keep = NULL;
    if (r->opcode == TX8_OP_MASK_GATHER_B) {
        keep = load_bits(t, r->spm[TX8_S_MASK_MOVE_SRC1], n);
    } else {
        const float *mask = load(t, r->spm[TX8_S_MASK_MOVE_SRC1], n, r->fmt);
        keep = mask ? scratch(t, n) : NULL;
        for (int64_t i = 0; keep && i < n; i++) keep[i] = mask[i] != 0;
    }
    const uint8_t *src = keep ? spm_at(t, r->spm[TX8_S_MASK_MOVE_SRC0], n * e) : NULL;
    uint8_t *copy = src ? scratch(t, n * e) : NULL;
    if (!copy) return false;
    memcpy(copy, src, (size_t)(n * e));
    for (int64_t i = 0; i < n; i++) many += keep[i];
    uint8_t *dst = spm_at(t, r->spm[TX8_S_MASK_MOVE_DST], (compact ? many : n) * e);
    if (!dst) return false;
    for (int64_t i = 0, at = 0; i < n; i++)
        if (keep[i]) memcpy(dst + (compact ? at++ : i) * e, copy + i * e, (size_t)e);
    return true;
}

typedef struct {
    int64_t low, high;
    float part;
} sample;

static sample sample_of(int64_t i, float scale, int64_t size) {
    float at = (float)i * scale;
    at = at < (float)(size - 1) ? at : (float)(size - 1);
    sample s = {(int64_t)floorf(at), 0, 0};
    if (s.low < 0) s.low = 0;
    s.high = least(s.low + 1, size - 1), s.part = at - (float)s.low;
    return s;
}

static float mix(float a, float b, float part) { return a * (1.0f - part) + b * part; }

static bool bilinear(tx8_tile *t, const tx8_row *r) {
    const int64_t *p = r->p;
    int64_t n = p[TX8_P_BILINEAR_N], h = p[TX8_P_BILINEAR_H], w = p[TX8_P_BILINEAR_W], c = p[TX8_P_BILINEAR_C];
    int64_t oh = p[TX8_P_BILINEAR_OH], ow = p[TX8_P_BILINEAR_OW];
    float across = f32_of((uint32_t)p[TX8_P_BILINEAR_SCALE_W]), down = f32_of((uint32_t)p[TX8_P_BILINEAR_SCALE_H]);
    if (n < 1 || h < 1 || w < 1 || c < 1 || oh < 1 || ow < 1 || (double)n * (double)h * (double)w * (double)c > 1e12 || (double)n * (double)oh * (double)ow * (double)c > 1e12)
        return fail(t, TX8_BAD_SHAPE, n, h, w);
    const float *x = load(t, r->spm[TX8_S_BILINEAR_SRC0], n * h * w * c, r->fmt);
    float *out = x ? scratch(t, n * oh * ow * c * 4) : NULL, *to = out;
    if (!out) return false;
    for (int64_t i = 0; i < n; i++)
        for (int64_t y = 0; y < oh; y++)
            for (int64_t z = 0; z < ow; z++) {
                sample v = sample_of(y, down, h), u = sample_of(z, across, w);
                const float *a = x + (i * h + v.low) * w * c, *b = x + (i * h + v.high) * w * c;
                for (int64_t k = 0; k < c; k++)
                    *to++ = mix(mix(a[u.low * c + k], a[u.high * c + k], u.part), mix(b[u.low * c + k], b[u.high * c + k], u.part), v.part);
            }
    return store(t, r->spm[TX8_S_BILINEAR_DST], out, n * oh * ow * c, r->fmt, r->rnd);
}

static bool scalar(tx8_tile *t, const tx8_row *r) {
    uint32_t word = (uint32_t)r->p[TX8_P_SCALAR_VALUE];
    uint8_t bytes[8] = {0};
    float x, y;
    if (!computed_format(t, r->fmt)) return false;
    memcpy(bytes, &word, 4);
    to_f32(bytes, r->fmt, &x, 1);
    int function = r->opcode == TX8_OP_SCALAR_RECIP ? G_RECIP : r->opcode == TX8_OP_SCALAR_SQRT ? G_SQRT : r->opcode == TX8_OP_SCALAR_SIN ? G_SIN
                 : r->opcode == TX8_OP_SCALAR_COS ? G_COS : r->opcode == TX8_OP_SCALAR_LOG2 ? G_LOG2 : G_POW2;
    LOOPS->unary(function, &x, &y, 1);
    t->result = pattern(y, r->fmt), t->result_index = 0;
    return true;
}

bool run_peripheral(tx8_tile *t, const tx8_row *r) {
    int64_t n = r->p[TX8_P_PERIPHERAL_N];
    switch (r->opcode) {
        case TX8_OP_COUNT: case TX8_OP_BITCOUNT: return counted(t, r, n);
        case TX8_OP_ARGMAX: case TX8_OP_ARGMIN: return extremum(t, r, n);
        case TX8_OP_FACTORIZE: return factorize(t, r, n);
        case TX8_OP_LUT16: return look_up(t, r, n, 2);
        case TX8_OP_LUT32: return look_up(t, r, n, 4);
        case TX8_OP_RAND_GEN: return random_numbers(t, r, n);
        case TX8_OP_ELEM_MASK: return masked(t, r, n);
        case TX8_OP_BILINEAR: return bilinear(t, r);
        case TX8_OP_MASK_MOVE: case TX8_OP_MASK_GATHER: case TX8_OP_MASK_GATHER_B: return chosen(t, r, n);
        case TX8_OP_BIT2FP: {
            const uint8_t *bits = load_bits(t, r->spm[TX8_S_BIT2FP_SRC0], n);
            float *x = bits ? scratch(t, n * 4) : NULL;
            for (int64_t i = 0; x && i < n; i++) x[i] = bits[i];
            return x && store(t, r->spm[TX8_S_BIT2FP_DST], x, n, r->fmt, NEAREST);
        }
        default: return scalar(t, r);
    }
}
