/* Number formats: sizes, one correct rounding of each kind, dense runs to and from f32, packed bits. */
#include <math.h>

#include "core.h"

enum { COMPUTED_FLOATS = (1u << F_F16) | (1u << F_BF16) | (1u << F_F32) | (1u << F_TF32) };
#define KIND_F(code) (((COMPUTED_FLOATS >> (code)) & 1) != 0)
#define KIND_S(code) ((code) != F_I4)
#define KIND_U(code) ((code) != F_U4)
#define KIND_B(code) 1
#define KIND(kind) #kind[0]

const format_info FORMATS[256] = {
#define X(name, code, bytes, block, kind) [code] = {bytes, block, KIND(kind), KIND_##kind(code)},
    TX8_FORMATS(X)
#undef X
};

bool known_format(tx8_tile *t, int fmt) { return FORMATS[fmt & 255].kind && fmt == (fmt & 255) ? true : fail(t, TX8_BAD_FORMAT, fmt, 0, 0); }
bool computed_format(tx8_tile *t, int fmt) { return FORMATS[fmt & 255].computed && fmt == (fmt & 255) ? true : fail(t, TX8_BAD_FORMAT, fmt, 0, 0); }

double chance(int64_t lane, uint64_t seed) {
    uint32_t x = (uint32_t)((uint64_t)(lane + 1) * 0x9E3779B9u + (seed & 0xFFFFFFFFu) * 0x85EBCA6Bu);
    if (x == 0) x = 0x6D2B79F5u; /* zero is the fixed point of a xorshift */
    for (int k = 0; k < 3; k++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    return x / 4294967296.0;
}

double round_float(double x, int fmt, int mode, double luck) {
    if (x == 0 || !isfinite(x)) return x;
    int precision = fmt == F_F32 ? 24 : fmt == F_BF16 ? 8 : 11;
    int low = fmt == F_F16 ? -14 : -126, high = fmt == F_F16 ? 15 : 127, exponent;
    double size = fabs(x), top = ldexp(2.0 - ldexp(1.0, 1 - precision), high);
    frexp(size, &exponent);
    exponent = exponent - 1 < low ? low : exponent - 1 > high ? high : exponent - 1;
    int unit = exponent - precision + 1;
    double steps = fmin(ldexp(size, -unit), ldexp(1.0, 100));
    double whole = floor(fmin(steps, ldexp(top, -unit))), rest = steps - whole;
    bool away;
    if (mode == NEAREST)
        away = rest > 0.5 || (rest == 0.5 && (int64_t)whole % 2 == 1);
    else if (mode == STOCHASTIC)
        away = rest + luck >= 1;
    else
        away = rest > 0 && mode == (x < 0 ? DOWNWARD : UPWARD);
    double y = ldexp(whole + away, unit);
    if (y > top) y = INFINITY;
    return x < 0 ? -y : y;
}

int64_t round_int(double x, int fmt, int mode, double luck) {
    int bits = 8 * FORMATS[fmt].bytes;
    bool is_signed = FORMATS[fmt].kind == 'S';
    double low = is_signed ? -ldexp(1.0, bits - 1) : 0, end = ldexp(1.0, bits - is_signed);
    if (isnan(x)) return 0;
    if (mode == NEAREST)
        x = nearbyint(x);
    else if (mode == STOCHASTIC)
        x = isinf(x) ? x : copysign(floor(fabs(x) + luck), x);
    else
        x = mode == TOWARD_ZERO ? trunc(x) : mode == UPWARD ? ceil(x) : floor(x);
    if (x < low) return is_signed ? (int64_t)(-1 - (int64_t)(((uint64_t)1 << (bits - 1)) - 1)) : 0;
    if (x >= end) return is_signed ? (int64_t)(((uint64_t)1 << (bits - 1)) - 1) : (int64_t)(bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1);
    return x >= 9223372036854775808.0 ? (int64_t)(uint64_t)x : (int64_t)x;
}

void to_i64(const uint8_t *src, int fmt, int64_t *out, int64_t n) {
    bool is_signed = FORMATS[fmt].kind == 'S';
#define READ(size, S, U) \
    case size: \
        for (int64_t i = 0; i < n; i++) { \
            U x; \
            memcpy(&x, src + i * size, size); \
            out[i] = is_signed ? (int64_t)(S)x : (int64_t)x; \
        } \
        break;
    switch (FORMATS[fmt].bytes) {
        READ(1, int8_t, uint8_t)
        READ(2, int16_t, uint16_t)
        READ(4, int32_t, uint32_t)
        READ(8, int64_t, uint64_t)
    }
#undef READ
}

void from_i64(const int64_t *x, uint8_t *out, int fmt, int64_t n) {
    int size = FORMATS[fmt].bytes;
    for (int64_t i = 0; i < n; i++) { /* little-endian: the low bytes come first */
        uint64_t word = FORMATS[fmt].kind == 'B' ? x[i] != 0 : (uint64_t)x[i];
        for (int k = 0; k < size; k++) out[i * size + k] = (uint8_t)(word >> 8 * k);
    }
}

void to_f32(const uint8_t *src, int fmt, float *out, int64_t n) {
    int64_t some[256];
    switch (fmt) {
        case F_BF16: LOOPS->f32_of_bf16(src, out, n); return;
        case F_F16: LOOPS->f32_of_f16(src, out, n); return;
        case F_F32: memcpy(out, src, (size_t)n * 4); return;
        case F_TF32:
            for (int64_t i = 0; i < n; i++) {
                uint32_t word;
                memcpy(&word, src + 4 * i, 4);
                word &= 0xFFFFE000u;
                memcpy(out + i, &word, 4);
            }
            return;
        default:
            for (int64_t i = 0; i < n; i += 256) {
                int64_t m = least(256, n - i);
                to_i64(src + i * FORMATS[fmt].bytes, fmt, some, m);
                for (int64_t k = 0; k < m; k++) out[i + k] = fmt == F_U64 ? (float)(uint64_t)some[k] : (float)some[k];
            }
    }
}

static void put_tf32(uint32_t bits, uint8_t *out) {
    bits = f32_of(bits) != f32_of(bits) ? NAN_F32 : (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000u;
    memcpy(out, &bits, 4);
}

static void put_float(double y, uint8_t *out, int fmt) { /* a value that the format holds */
    float x = y != y ? f32_of(NAN_F32) : (float)y;
    if (fmt == F_F16)
        LOOPS->f16_of_f32(&x, out, 1);
    else if (fmt == F_BF16)
        LOOPS->bf16_of_f32(&x, out, 1);
    else
        memcpy(out, &x, 4);
}

void from_f32(const float *x, uint8_t *out, int fmt, int mode, int64_t n, int64_t lane, uint64_t seed) {
    int size = FORMATS[fmt].bytes;
    if (fmt == F_F32) {
        LOOPS->clean_f32(x, out, n);
    } else if (FORMATS[fmt].kind == 'F' && mode == NEAREST) {
        if (fmt == F_BF16)
            LOOPS->bf16_of_f32(x, out, n);
        else if (fmt == F_F16)
            LOOPS->f16_of_f32(x, out, n);
        else
            for (int64_t i = 0; i < n; i++) put_tf32(bits_of(x[i]), out + 4 * i);
    } else if (FORMATS[fmt].kind == 'F') {
        for (int64_t i = 0; i < n; i++)
            put_float(round_float(x[i], fmt, mode, mode == STOCHASTIC ? chance(lane + i, seed) : 0), out + i * size, fmt);
    } else if (FORMATS[fmt].kind == 'B') {
        for (int64_t i = 0; i < n; i++) out[i] = x[i] != 0;
    } else {
        for (int64_t i = 0; i < n; i++) {
            int64_t y = round_int(x[i], fmt, mode, mode == STOCHASTIC ? chance(lane + i, seed) : 0);
            from_i64(&y, out + i * size, fmt, 1);
        }
    }
}

void from_f64(const double *x, uint8_t *out, int fmt, int mode, int64_t n, int64_t lane, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        int64_t y = FORMATS[fmt].kind == 'B' ? x[i] != 0 : round_int(x[i], fmt, mode, mode == STOCHASTIC ? chance(lane + i, seed) : 0);
        from_i64(&y, out + i * FORMATS[fmt].bytes, fmt, 1);
    }
}

void from_i32(const int32_t *x, uint8_t *out, int fmt, int mode, int64_t n, int64_t lane, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        if (FORMATS[fmt].kind == 'F') {
            float y = (float)x[i];
            from_f32(&y, out + i * FORMATS[fmt].bytes, fmt, mode, 1, lane + i, seed);
        } else {
            int64_t y = x[i];
            from_i64(&y, out + i * FORMATS[fmt].bytes, fmt, 1);
        }
    }
}

void unpack_bits(const uint8_t *src, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (src[i / 8] >> (i % 8)) & 1;
}

void pack_bits(const uint8_t *truth, uint8_t *out, int64_t n) {
    for (int64_t at = 0; at < n; at += 8) {
        int used = (int)least(8, n - at);
        unsigned byte = out[at / 8] & (0xFFu << used);
        for (int k = 0; k < used; k++) byte |= (unsigned)(truth[at + k] != 0) << k;
        out[at / 8] = (uint8_t)byte;
    }
}
