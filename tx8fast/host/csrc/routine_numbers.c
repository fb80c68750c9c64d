/* Elements of tensors as numbers and back: 8-bit floats, reading and writing of runs, whole tensors. */
#include "routine.h"

/* --- 8-bit floats --- */

static double f8_value(int fmt, uint8_t word) {
    int mantissa_bits = fmt == F_F8E5M2 ? 2 : 3, bias = fmt == F_F8E5M2 ? 15 : 7;
    int exponent = (word & 127) >> mantissa_bits, mantissa = word & ((1 << mantissa_bits) - 1);
    double y;
    if (fmt == F_F8E5M2 && exponent == 31)
        y = mantissa ? NAN : INFINITY;
    else if (fmt == F_F8E4M3FN && (word & 127) == 127)
        y = NAN;
    else
        y = ldexp(exponent ? (1 << mantissa_bits) + mantissa : mantissa, (exponent ? exponent : 1) - bias - mantissa_bits);
    return word & 128 ? -y : y;
}

static uint8_t f8_word(int fmt, float x) {
    int mantissa_bits = fmt == F_F8E5M2 ? 2 : 3, bias = fmt == F_F8E5M2 ? 15 : 7, exponent;
    uint8_t sign = bits_of(x) >> 31 ? 128 : 0, beyond = fmt == F_F8E5M2 ? 0x7C : 0x7F, top = fmt == F_F8E5M2 ? 0x7B : 0x7E;
    if (x != x) return fmt == F_F8E5M2 ? 0x7E : 0x7F;
    if (x == 0) return sign;
    if (x - x != 0) return sign | beyond;
    frexp(fabs((double)x), &exponent);
    exponent = (int)most(exponent - 1, 1 - bias);
    double steps = nearbyint(ldexp(fabs((double)x), mantissa_bits - exponent)); /* ties to even */
    int64_t word = (int64_t)(exponent + bias - 1) * (1 << mantissa_bits) + (int64_t)least((int64_t)steps, 1 << 20);
    return sign | (uint8_t)(word > top ? beyond : word);
}

/* --- elements as numbers --- */

static bool is_nibble(int fmt) { return fmt == F_I4 || fmt == F_U4; }
static bool is_f8(int fmt) { return fmt == F_F8E4M3FN || fmt == F_F8E5M2; }

int64_t wrapped(int64_t x, int fmt) {
    uint64_t u = (uint64_t)x;
    switch (fmt) {
        case F_I4: return (int64_t)((u & 15) ^ 8) - 8;
        case F_U4: return (int64_t)(u & 15);
        case F_I8: return (int64_t)((u & 0xFF) ^ 0x80) - 0x80;
        case F_U8: return (int64_t)(u & 0xFF);
        case F_I16: return (int64_t)((u & 0xFFFF) ^ 0x8000) - 0x8000;
        case F_U16: return (int64_t)(u & 0xFFFF);
        case F_I32: return (int64_t)((u & 0xFFFFFFFFu) ^ 0x80000000u) - 0x80000000LL;
        case F_U32: return (int64_t)(u & 0xFFFFFFFFu);
        case F_PRED: return x != 0;
        default: return x;
    }
}

void read_wholes(int fmt, const uint8_t *src, int64_t *out, int64_t n) {
    if (FORMATS[fmt].kind == 'F') {
        double some[256];
        for (int64_t i = 0; i < n; i += 256) {
            int64_t m = least(256, n - i);
            read_reals(fmt, src + i * FORMATS[fmt].bytes, some, m);
            for (int64_t k = 0; k < m; k++) out[i + k] = round_int(some[k], F_I64, TOWARD_ZERO, 0);
        }
        return;
    }
    if (FORMATS[fmt].kind == 'B')
        for (int64_t i = 0; i < n; i++) out[i] = src[i] != 0;
    else
        to_i64(src, fmt, out, n);
}

void read_reals(int fmt, const uint8_t *src, double *out, int64_t n) {
    float some[256];
    int64_t words[256];
    if (fmt == F_F64) {
        memcpy(out, src, (size_t)n * 8);
        return;
    }
    for (int64_t i = 0; i < n; i += 256) {
        int64_t m = least(256, n - i);
        const uint8_t *from = src + i * FORMATS[fmt].bytes;
        if (is_f8(fmt)) {
            for (int64_t k = 0; k < m; k++) out[i + k] = f8_value(fmt, from[k]);
        } else if (FORMATS[fmt].kind == 'F') {
            to_f32(from, fmt == F_TF32 ? F_F32 : fmt, some, m);
            for (int64_t k = 0; k < m; k++) out[i + k] = some[k];
        } else {
            read_wholes(fmt, from, words, m);
            for (int64_t k = 0; k < m; k++) out[i + k] = fmt == F_U64 ? (double)(uint64_t)words[k] : (double)words[k];
        }
    }
}

void write_reals(int fmt, const double *x, uint8_t *out, int64_t n) {
    float some[256];
    int size = FORMATS[fmt].bytes;
    for (int64_t i = 0; i < n; i += 256, out += 256 * size) {
        int64_t m = least(256, n - i);
        if (fmt == F_F64) {
            for (int64_t k = 0; k < m; k++) {
                double y = x[i + k] != x[i + k] ? f64_of(0x7FF8000000000000u) : x[i + k];
                memcpy(out + 8 * k, &y, 8);
            }
        } else if (FORMATS[fmt].kind == 'F') {
            for (int64_t k = 0; k < m; k++) some[k] = (float)x[i + k];
            if (is_f8(fmt))
                for (int64_t k = 0; k < m; k++) out[k] = f8_word(fmt, some[k]);
            else
                from_f32(some, out, fmt, NEAREST, m, 0, 0);
        } else {
            for (int64_t k = 0; k < m; k++) {
                double y = x[i + k];
                int64_t whole = FORMATS[fmt].kind == 'B' ? y != 0
                                : fmt == F_I4            ? (y != y ? 0 : (int64_t)trunc(fmin(fmax(y, -8), 7)))
                                : fmt == F_U4            ? (y != y ? 0 : (int64_t)trunc(fmin(fmax(y, 0), 15)))
                                                         : round_int(y, fmt, TOWARD_ZERO, 0);
                from_i64(&whole, out + k * size, fmt, 1);
            }
        }
    }
}

void write_wholes(int fmt, const int64_t *x, uint8_t *out, int64_t n, int from) {
    int size = FORMATS[fmt].bytes;
    for (int64_t i = 0; i < n; i++) {
        if (fmt == F_F64) {
            double y = from == F_U64 ? (double)(uint64_t)x[i] : (double)x[i];
            memcpy(out + 8 * i, &y, 8);
        } else if (FORMATS[fmt].kind == 'F') {
            double y = from == F_U64 ? (float)(uint64_t)x[i] : (float)x[i];
            write_reals(fmt, &y, out + size * i, 1);
        } else {
            int64_t word = is_nibble(fmt) ? wrapped(x[i], fmt) : x[i];
            from_i64(&word, out + size * i, fmt, 1);
        }
    }
}

double *room_reals(call *c, int64_t n) { return scratch(c->t, n * (int64_t)sizeof(double)); }
int64_t *room_wholes(call *c, int64_t n) { return scratch(c->t, n * (int64_t)sizeof(int64_t)); }

#define EACH_RUN(v, action) \
    do { \
        int lead; \
        int64_t run = run_of(v, &lead), at[MAX_RANK] = {0}, offset = 0, done = 0; \
        if ((v)->n) do { \
                action; \
                done += run; \
            } while (advance(lead, (v)->shape, (v)->stride, at, &offset)); \
    } while (0)

void numbers_into(const view *v, double *out) { EACH_RUN(v, read_reals(v->fmt, v->at + offset, out + done, run)); }
void whole_numbers_into(const view *v, int64_t *out) { EACH_RUN(v, read_wholes(v->fmt, v->at + offset, out + done, run)); }

double *numbers(call *c, const view *v) {
    double *out = room_reals(c, v->n);
    if (out) numbers_into(v, out);
    return out;
}

int64_t *whole_numbers(call *c, const view *v) {
    int64_t *out = room_wholes(c, v->n);
    if (out) whole_numbers_into(v, out);
    return out;
}

double *reals(call *c, const view *v) {
    count_loads(c, v->n);
    return numbers(c, v);
}

int64_t *wholes(call *c, const view *v) {
    count_loads(c, v->n);
    return whole_numbers(c, v);
}

bool give_reals(call *c, const view *v, const double *x) {
    EACH_RUN(v, write_reals(v->fmt, x + done, v->at + offset, run));
    count_stores(c, v->n);
    return true;
}

bool give_wholes(call *c, const view *v, const int64_t *x, int from) {
    EACH_RUN(v, write_wholes(v->fmt, x + done, v->at + offset, run, from));
    count_stores(c, v->n);
    return true;
}

