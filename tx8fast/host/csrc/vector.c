/* Vector instructions and conversions: dense runs, a piece at a time [manual 6.3, 9, 10.3].
 *
 * All of a row's operands are read before its first result is written: an operand that the results run into is copied first.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "core.h"

#define PIECE 1024

/* How the second operand goes along the first: `reuse` times each stretch of `unit` of its `second` elements. */
typedef struct {
    int64_t n, second, unit, reuse;
} counts;

static bool count(tx8_tile *t, const tx8_row *r, int form, bool bits, counts *c) {
    const int64_t *p = r->p;
    c->n = p[TX8_P_V_N], c->unit = 1, c->second = c->reuse = c->n;
    if (form == FORM_VUV) {
        c->second = c->unit = p[TX8_P_VUV_UNIT];
        if (c->unit < 1 || c->unit > 64 || (!bits && c->n % c->unit)) return fail(t, TX8_BAD_UNIT, c->unit, c->n, 0);
        c->reuse = c->n / c->unit;
    } else if (form == FORM_UNIT_LOOP) {
        int64_t n = p[TX8_P_UNIT_LOOP_N], full = p[TX8_P_UNIT_LOOP_FULL];
        c->unit = p[TX8_P_UNIT_LOOP_UNIT], c->second = p[TX8_P_UNIT_LOOP_FULL_UNIT];
        if (c->unit != 64 || n % 64 || n < 0 || c->second < 0 || c->second > ((int64_t)1 << 30) || n > ((int64_t)1 << 30) || full * 64 != n * c->second) {
            fail(t, TX8_BAD_UNIT_LOOP, n, c->unit, full);
            t->found[3] = c->second;
            return false;
        }
        c->n = full, c->reuse = n / 64;
    }
    return c->n >= 0 && c->n <= ((int64_t)1 << 40) ? true : fail(t, TX8_BAD_SHAPE, c->n, 0, 0);
}

/* The operand's bytes, copied if the results, `bytes` at `dst`, run into it elsewhere than element over element. */
static const uint8_t *operand(tx8_tile *t, int64_t addr, int64_t bytes, const uint8_t *dst, int64_t dst_bytes) {
    const uint8_t *src = spm_at(t, addr, bytes);
    if (!src || dst + dst_bytes <= src || src + bytes <= dst || (src == dst && bytes == dst_bytes)) return src;
    uint8_t *copy = scratch(t, bytes);
    return copy ? memcpy(copy, src, (size_t)bytes) : NULL;
}

/* --- 16-bit functions: tables of what the f32 function gives, rounded once more --- */

static uint16_t *tables[2][G_SOFTPLUS + 1];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static const uint16_t *table_of(tx8_tile *t, int function, int fmt) {
    uint16_t **place = &tables[fmt == F_F16][function];
    pthread_mutex_lock(&making);
    uint16_t *out = *place;
    if (!out && (out = malloc(65536 * sizeof *out))) {
        float x[PIECE], y[PIECE];
        for (int64_t at = 0; at < 65536; at += PIECE) {
            for (int64_t i = 0; i < PIECE; i++) out[at + i] = (uint16_t)(at + i);
            to_f32((const uint8_t *)(out + at), fmt, x, PIECE);
            LOOPS->unary(function, x, y, PIECE);
            from_f32(y, (uint8_t *)(out + at), fmt, NEAREST, PIECE, 0, 0);
        }
        *place = out;
    }
    pthread_mutex_unlock(&making);
    if (!out) fail(t, TX8_NO_MEMORY, 131072, 0, 0);
    return out;
}

/* --- floats --- */

/* `truth`: bytes for the results of relations that go to bits, or NULL */
static bool run_floats(tx8_tile *t, const tx8_row *r, int f, int form, const counts *c, const uint8_t *x, const uint8_t *y, uint8_t *out, uint8_t *truth) {
    int fmt = r->fmt, size = FORMATS[fmt].bytes;
    float a[PIECE], b[PIECE], z[PIECE];
    if (r->rnd == DOWNWARD && f == G_ADD) f = G_ADD_DOWN;
    if (r->rnd == DOWNWARD && f == G_SUB) f = G_SUB_DOWN;
    if (form == FORM_V && size == 2 && r->rnd == NEAREST && (f >= G_LOG2 || f == G_RSQRT) && f != G_RELU && f != G_SATRELU && f != G_LEAKYRELU) {
        const uint16_t *table = table_of(t, f, fmt);
        if (!table) return false;
        for (int64_t i = 0; i < c->n; i++) {
            uint16_t word;
            memcpy(&word, x + 2 * i, 2);
            memcpy(out + 2 * i, table + word, 2);
        }
        return true;
    }
    if (form == FORM_VS) {
        to_f32(y, fmt, b, 1);
        for (int64_t i = 1; i < PIECE; i++) b[i] = b[0];
    }
    for (int64_t u = 0, at = 0; at < c->n; u += c->unit) {
        int64_t end = c->n, piece = PIECE;
        if (form == FORM_VUV || form == FORM_UNIT_LOOP) {
            int64_t length = least(c->unit, c->second - u);
            end = at + c->reuse * length, piece = PIECE / length * length;
            to_f32(y + u * size, fmt, b, length);
            for (int64_t k = length; k < piece; k++) b[k] = b[k - length];
        }
        for (; at < end; at += piece) {
            int64_t m = least(piece, end - at);
            to_f32(x + at * size, fmt, a, m);
            if (form == FORM_VV) to_f32(y + at * size, fmt, b, m);
            if (form == FORM_V)
                LOOPS->unary(f, a, z, m);
            else
                LOOPS->binary(f, a, b, z, m);
            if (truth)
                for (int64_t i = 0; i < m; i++) truth[at + i] = z[i] != 0;
            else
                from_f32(z, out + at * size, fmt, r->rnd, m, at, seed_of(t));
        }
        at = end;
    }
    return true;
}

/* --- integers: arithmetic keeps the low bits --- */

static bool whole_unary(int f, int64_t x, int64_t *out) {
    switch (f) {
        case G_ABS: *out = x < 0 ? (int64_t)(0 - (uint64_t)x) : x; return true;
        case G_NEG: *out = (int64_t)(0 - (uint64_t)x); return true;
        case G_SQUARE: *out = (int64_t)((uint64_t)x * (uint64_t)x); return true;
        case G_RELU: *out = most(x, 0); return true;
        case G_SATRELU: *out = least(most(x, 0), 6); return true;
        default: return false;
    }
}

static int64_t whole_binary(int f, int64_t x, int64_t y, int64_t flip) {
    int64_t a = x ^ flip, b = y ^ flip; /* unsigned 64-bit words compare so */
    switch (f) {
        case G_MAX: return b > a ? y : x;
        case G_MIN: return b < a ? y : x;
        case G_ADD: return (int64_t)((uint64_t)x + (uint64_t)y);
        case G_SUB: return (int64_t)((uint64_t)x - (uint64_t)y);
        case G_MUL: return (int64_t)((uint64_t)x * (uint64_t)y);
        case G_EQ: return x == y;
        case G_NE: return x != y;
        case G_GE: return a >= b;
        case G_GT: return a > b;
        case G_LE: return a <= b;
        default: return a < b;
    }
}

static bool run_whole(tx8_tile *t, const tx8_row *r, int f, int form, const counts *c, const uint8_t *x, const uint8_t *y, uint8_t *out, uint8_t *truth) {
    int fmt = r->fmt, size = FORMATS[fmt].bytes;
    int64_t flip = fmt == F_U64 ? INT64_MIN : 0, a, b = 0, z;
    for (int64_t u = 0, at = 0; at < c->n; u += c->unit) {
        int64_t length = form == FORM_VUV || form == FORM_UNIT_LOOP ? least(c->unit, c->second - u) : 0;
        int64_t first = at, end = length ? at + c->reuse * length : c->n;
        for (; at < end; at++) {
            to_i64(x + at * size, fmt, &a, 1);
            if (form == FORM_V) {
                if (!whole_unary(f, a, &z)) return fail(t, TX8_BAD_FORMAT, fmt, 0, 0);
            } else {
                to_i64(y + (form == FORM_VS ? 0 : length ? u + (at - first) % length : at) * size, fmt, &b, 1);
                if (f == G_DIV) {
                    double ratio = fmt == F_U64 ? (double)(uint64_t)a / (double)(uint64_t)b : (double)a / (double)b;
                    from_f64(&ratio, out + at * size, fmt, r->rnd, 1, at, seed_of(t));
                    continue;
                }
                z = whole_binary(f, a, b, flip);
            }
            if (truth)
                truth[at] = z != 0;
            else
                from_i64(&z, out + at * size, fmt, 1);
        }
    }
    return true;
}

/* --- logic on bytes, or on truth values of a byte each --- */

static void logic(int f, const uint8_t *x, const uint8_t *y, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = f == G_NOT ? (uint8_t)~x[i] : f == G_AND ? x[i] & y[i] : f == G_OR ? x[i] | y[i] : x[i] ^ y[i];
}

/* y repeated as `c` says, elements of `size` bytes */
static uint8_t *spread(tx8_tile *t, const uint8_t *y, const counts *c, int64_t size) {
    uint8_t *out = scratch(t, c->n * size), *to = out;
    for (int64_t u = 0; out && u < c->second; u += c->unit)
        for (int64_t k = 0, bytes = least(c->unit, c->second - u) * size; k < c->reuse; k++, to += bytes)
            memcpy(to, y + u * size, (size_t)bytes);
    return out;
}

static bool run_bits(tx8_tile *t, const tx8_row *r, int f, int form, const counts *c, uint8_t *out) {
    const uint8_t *x = spm_at(t, r->spm[TX8_S_VV_SRC0], ceil_div(c->n, 8)), *y = NULL;
    uint8_t *a = scratch(t, c->n), *b = NULL;
    if (!x || !a) return false;
    unpack_bits(x, a, c->n);
    if (form != FORM_V) {
        y = spm_at(t, r->spm[TX8_S_VV_SRC1], ceil_div(c->second, 8));
        b = scratch(t, most(c->second, c->n));
        if (!y || !b) return false;
        unpack_bits(y, b, c->second);
        if (form == FORM_UNIT_LOOP && !(b = spread(t, b, c, 1))) return false;
        if (form == FORM_VUV) { /* the unit repeats with its bytes; bits behind it are zero */
            int64_t period = ceil_div(c->unit, 8) * 8;
            for (int64_t i = c->n - 1; i >= 0; i--) b[i] = i % period < c->unit ? b[i % period] : 0;
        }
    }
    logic(f, a, b, a, c->n);
    for (int64_t i = 0; i < c->n; i++) a[i] &= 1;
    pack_bits(a, out, c->n);
    return true;
}

bool run_vector(tx8_tile *t, const tx8_row *r, int function, int form, int kind) {
    counts c;
    if (!count(t, r, form, kind == ON_BITS, &c)) return false;
    int64_t dst = form == FORM_V || form == FORM_VS ? r->spm[TX8_S_V_DST] : r->spm[TX8_S_VV_DST];
    bool to_bits = kind == ON_BITS || kind == ON_VALUES_TO_BITS;
    if (kind == ON_BITS) {
        uint8_t *out = spm_at(t, dst, ceil_div(c.n, 8));
        return out && run_bits(t, r, function, form, &c, out);
    }
    if (kind == ON_WORDS ? !known_format(t, r->fmt) : !computed_format(t, r->fmt)) return false;
    if (r->rnd > STOCHASTIC) return fail(t, TX8_BAD_ROUNDING, r->rnd, 0, 0);
    int size = FORMATS[r->fmt].bytes;
    int64_t bytes = c.n * size;
    uint8_t *out = spm_at(t, dst, to_bits ? ceil_div(c.n, 8) : bytes), *truth = NULL;
    if (!out) return false;
    if (to_bits && !(truth = scratch(t, c.n))) return false;
    const uint8_t *x = to_bits ? spm_at(t, r->spm[TX8_S_V_SRC0], bytes) : operand(t, r->spm[TX8_S_V_SRC0], bytes, out, bytes), *y = NULL;
    uint8_t scalar[8] = {0};
    if (!x) return false;
    if (form == FORM_VS) {
        uint32_t pattern = (uint32_t)r->p[TX8_P_VS_SCALAR];
        memcpy(scalar, &pattern, 4);
        y = scalar;
    } else if (form != FORM_V) {
        y = to_bits ? spm_at(t, r->spm[TX8_S_VV_SRC1], c.second * size) : operand(t, r->spm[TX8_S_VV_SRC1], c.second * size, out, bytes);
        if (!y) return false;
    }
    if (kind == ON_WORDS) {
        if ((form == FORM_VUV || form == FORM_UNIT_LOOP) && !(y = spread(t, y, &c, size))) return false;
        logic(function, x, y, out, bytes);
        return true;
    }
    bool ok = FORMATS[r->fmt].kind == 'S' || FORMATS[r->fmt].kind == 'U' ? run_whole(t, r, function, form, &c, x, y, out, truth)
                                                                            : run_floats(t, r, function, form, &c, x, y, out, truth);
    if (ok && truth) pack_bits(truth, out, c.n);
    return ok;
}

/* --- conversions --- */

static bool may_overlap(int64_t src, int64_t dst, int64_t n, int64_t from, int64_t to) {
    if (src + n * from <= dst || dst + n * to <= src) return true;
    return from == to ? src == dst : to > from ? src >= dst + n * (to - from) : dst <= src;
}

bool run_convert(tx8_tile *t, const tx8_row *r, int src, int dst) {
    int64_t n = r->p[TX8_P_CONVERT_N], from = r->spm[TX8_S_CONVERT_SRC0], to = r->spm[TX8_S_CONVERT_DST];
    int a = FORMATS[src].bytes, b = FORMATS[dst].bytes;
    if (r->rnd > STOCHASTIC) return fail(t, TX8_BAD_ROUNDING, r->rnd, 0, 0);
    if (n < 0 || n > ((int64_t)1 << 40)) return fail(t, TX8_BAD_SHAPE, n, 0, 0);
    if (!may_overlap(from, to, n, a, b)) {
        fail(t, TX8_BAD_OVERLAP, from, to, n);
        t->found[3] = a, t->found[4] = b;
        return false;
    }
    uint8_t *out = spm_at(t, to, n * b);
    const uint8_t *x = out ? operand(t, from, n * a, out, n * b) : NULL;
    if (!x) return false;
    float some[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = least(PIECE, n - at);
        if (FORMATS[src].kind == 'F') {
            to_f32(x + at * a, src, some, m);
        } else {
            int64_t zero = src == F_I8 ? r->p[TX8_P_CONVERT_ZP] : 0, whole;
            for (int64_t i = 0; i < m; i++) { /* to f32 first, under the row's rounding; chance decides in the last step alone */
                to_i64(x + (at + i) * a, src, &whole, 1);
                double value = (double)(whole - zero);
                some[i] = r->rnd == NEAREST ? (float)value : (float)round_float(value, F_F32, r->rnd == STOCHASTIC ? TOWARD_ZERO : r->rnd, 0);
            }
        }
        from_f32(some, out + at * b, dst, r->rnd, m, at, seed_of(t));
    }
    return true;
}
