/* Included by loops.c once for each instruction set: L(name) is a name of this set, LANES the f32 of one of its vectors. */

typedef uint16_t L(u16) __attribute__((may_alias, aligned(1)));
typedef uint32_t L(u32) __attribute__((may_alias, aligned(1)));
typedef float L(vec) __attribute__((vector_size(LANES * 4), may_alias, aligned(4)));
typedef uint32_t L(words) __attribute__((vector_size(LANES * 4), may_alias, aligned(4)));

/* --- formats --- */

static void L(f32_of_bf16)(const uint8_t *src, float *out, int64_t n) {
    const L(u16) *x = (const L(u16) *)src;
    for (int64_t i = 0; i < n; i++) out[i] = f32_of((uint32_t)x[i] << 16);
}

static void L(f32_of_f16)(const uint8_t *src, float *out, int64_t n) {
    const L(u16) *x = (const L(u16) *)src;
    for (int64_t i = 0; i < n; i++) {
        uint32_t size = (x[i] & 0x7FFFu) << 13, exponent = size & 0x0F800000u;
        uint32_t normal = size + (112u << 23), special = size + (224u << 23);
        uint32_t small = bits_of(f32_of(size + (113u << 23)) - f32_of(113u << 23));
        uint32_t y = exponent == 0x0F800000u ? special : exponent == 0 ? small : normal;
        out[i] = f32_of(y | (uint32_t)(x[i] & 0x8000u) << 16);
    }
}

static void L(bf16_of_f32)(const float *x, uint8_t *to, int64_t n) {
    L(u16) *out = (L(u16) *)to;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = bits_of(x[i]), nan = (b & 0x7FFFFFFFu) > 0x7F800000u;
        out[i] = (uint16_t)(nan ? NAN_F32 >> 16 : (b + 0x7FFF + (b >> 16 & 1)) >> 16);
    }
}

static void L(f16_of_f32)(const float *x, uint8_t *to, int64_t n) {
    L(u16) *out = (L(u16) *)to;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = bits_of(x[i]), sign = b >> 16 & 0x8000u, size = b & 0x7FFFFFFFu;
        uint32_t small = bits_of(f32_of(size) + 0.5f) - 0x3F000000u; /* the sum rounds to a multiple of 2^-24 */
        uint32_t normal = (size - (112u << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
        uint32_t y = size >= 0x47800000u ? 0x7C00u : size < 0x38800000u ? small : normal;
        out[i] = (uint16_t)(size > 0x7F800000u ? 0x7E00u : y | sign);
    }
}

static void L(clean_f32)(const float *x, uint8_t *to, int64_t n) {
    L(u32) *out = (L(u32) *)to;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = bits_of(x[i]);
        out[i] = (b & 0x7FFFFFFFu) > 0x7F800000u ? NAN_F32 : b;
    }
}

/* --- functions of doubles that round to the f32 results: own series, about one unit in the last place of a double --- */

#define LN2_HIGH 0x1.62e42feep-1 /* 21 zeros behind: a product with a small integer is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define LOG2_E 1.4426950408889634
#define INTEGER 0x1.8p52 /* a double plus this is rounded to an integer, which is in the low bits of the sum */

/* (e^r - 1) / r - 1 over r, |r| <= 0.35 */
static inline double L(tail)(double r) {
    return 1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720 + r * (1.0 / 5040 + r * (1.0 / 40320 + r * (1.0 / 362880 + r * (1.0 / 3628800 + r * (1.0 / 39916800 + r * (1.0 / 479001600 + r * (1.0 / 6227020800)))))))))));
}

static inline double L(limit)(double x, double most) {
    x = x < -most ? -most : x;
    return x > most ? most : x;
}

static inline double L(power)(double shifted) { return f64_of((bits_of64(shifted) - bits_of64(INTEGER) + 1023) << 52); }

static inline double L(pow2)(double t) {
    t = L(limit)(t, 200);
    double shifted = t + INTEGER, r = (t - (shifted - INTEGER)) * 0.6931471805599453;
    return (1 + (r + r * r * L(tail)(r))) * L(power)(shifted);
}

static inline double L(exp)(double t) {
    t = L(limit)(t, 140);
    double shifted = t * LOG2_E + INTEGER, k = shifted - INTEGER, r = (t - k * LN2_HIGH) - k * LN2_LOW;
    return (1 + (r + r * r * L(tail)(r))) * L(power)(shifted);
}

static inline double L(expm1)(double t) {
    t = L(limit)(t, 140);
    double shifted = t * LOG2_E + INTEGER, k = shifted - INTEGER, r = (t - k * LN2_HIGH) - k * LN2_LOW;
    double p = L(power)(shifted);
    return (p - 1) + p * (r + r * r * L(tail)(r));
}

/* ln((1 + s) / (1 - s)), |s| <= 0.1716 */
static inline double L(log_ratio)(double s) {
    double z = s * s;
    double p = 1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15 + z * (1.0 / 17 + z * (1.0 / 19 + z * (1.0 / 21 + z * (1.0 / 23))))))))));
    return 2 * s + 2 * s * z * p;
}

/* the same for |s| <= 1 / 3 */
static inline double L(log_ratio_wide)(double s) {
    double z = s * s, p = 1.0 / 37;
    for (int k = 35; k >= 3; k -= 2) p = 1.0 / k + z * p;
    return 2 * s + 2 * s * z * p;
}

/* logarithm of a normal double, to base e or 2; zero, negative and special ones as IEEE has it */
static inline double L(log)(double x, int base2) {
    uint64_t b = bits_of64(x);
    double m = f64_of((b & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000), e = f64_of(0x4330000000000000 | (b >> 52)) - (0x1p52 + 1023);
    double big = m > 1.4142135623730951 ? 1 : 0;
    m = m * (1 - 0.5 * big), e = e + big;
    double f = L(log_ratio)((m - 1) / (m + 1));
    double y = base2 ? e + f * LOG2_E : e * LN2_HIGH + (f + e * LN2_LOW);
    y = x == INFINITY ? x : y;
    y = x == 0 ? -INFINITY : y;
    return x >= 0 ? y : NAN;
}

static inline double L(sigmoid)(double x) {
    double e = L(exp)(-fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

static inline double L(tanh)(double x) {
    double e = L(expm1)(-2 * fabs(x));
    return copysign(fabs(e / (2 + e)), x);
}

static inline double L(softplus)(double x) {
    double e = L(exp)(-fabs(x));
    return (x > 0 ? x : 0) + L(log_ratio_wide)(e / (2 + e));
}

/* --- vectors --- */

#define EACH(expression) \
    for (int64_t i = 0; i < n; i++) { \
        float a = x[i]; \
        out[i] = (float)(expression); \
    } \
    break

static void L(unary)(int function, const float *x, float *out, int64_t n) {
    switch (function) {
        case G_ABS: EACH(fabsf(a));
        case G_RECIP: EACH(1.0f / a);
        case G_SQUARE: EACH(a * a);
        case G_SQRT: EACH(sqrtf(a));
        case G_RSQRT: EACH(1.0 / sqrt((double)a)); /* rounded once */
        case G_NEG: EACH(-a);
        case G_LOG2: EACH(L(log)(a, 1));
        case G_LN: EACH(L(log)(a, 0));
        case G_POW2: EACH(L(pow2)(a));
        case G_EXP: EACH(L(exp)(a));
        case G_EXP_LP: EACH(L(pow2)(a * 0x1.715476p+0f));
        case G_SIN: EACH(sine(a, 0));
        case G_COS: EACH(sine(a, 1));
        case G_TANH: EACH(L(tanh)(a));
        case G_SIGMOID: EACH(L(sigmoid)(a));
        case G_RELU: EACH(0.0f > a ? 0.0f : a);
        case G_SATRELU: EACH(6.0f < (0.0f > a ? 0.0f : a) ? 6.0f : (0.0f > a ? 0.0f : a));
        case G_LEAKYRELU: EACH(a < 0 ? a * 0.01f : a);
        case G_SOFTPLUS: EACH(L(softplus)(a));
        default: break;
    }
}
#undef EACH

#define EACH(expression) \
    for (int64_t i = 0; i < n; i++) { \
        float a = x[i], b = y[i]; \
        out[i] = (expression); \
    } \
    break

static void L(binary)(int function, const float *x, const float *y, float *out, int64_t n) {
    switch (function) {
        case G_MAX: EACH(b != b ? b : b > a ? b : a);
        case G_MIN: EACH(b != b ? b : b < a ? b : a);
        case G_ADD: EACH(a + b);
        case G_SUB: EACH(a - b);
        case G_MUL: EACH(a * b);
        case G_DIV: EACH(a / b);
        case G_EQ: EACH(a == b ? 1.0f : 0.0f);
        case G_NE: EACH(a != b ? 1.0f : 0.0f);
        case G_GE: EACH(a >= b ? 1.0f : 0.0f);
        case G_GT: EACH(a > b ? 1.0f : 0.0f);
        case G_LE: EACH(a <= b ? 1.0f : 0.0f);
        case G_LT: EACH(a < b ? 1.0f : 0.0f);
        /* a sum that is zero because its operands cancel is negative under rounding toward minus infinity */
        case G_ADD_DOWN: EACH(a + b == 0 && ((bits_of(a) ^ bits_of(b)) >> 31) ? -0.0f : a + b);
        case G_SUB_DOWN: EACH(a - b == 0 && !((bits_of(a) ^ bits_of(b)) >> 31) ? -0.0f : a - b);
        default: break;
    }
}
#undef EACH

/* --- the matrix engine --- */

#define ROWS_AT_A_TIME 128 /* their sums stay in the first cache */

static void L(panel)(const float *a, int64_t lda, const float *b, float *acc, int64_t m, int64_t chunks) {
    for (int64_t first = 0; first < m; first += ROWS_AT_A_TIME)
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            for (int v = 0; v < NR; v += LANES) {
                const L(vec) *w = (const L(vec) *)(b + chunk * 8 * NR + v);
                const L(vec) b0 = w[0], b1 = w[NR / LANES], b2 = w[2 * NR / LANES], b3 = w[3 * NR / LANES];
                const L(vec) b4 = w[4 * NR / LANES], b5 = w[5 * NR / LANES], b6 = w[6 * NR / LANES], b7 = w[7 * NR / LANES];
                const float *x = a + chunk * lda + first * 8;
                float *sum = acc + first * NR + v;
                for (int64_t i = least(ROWS_AT_A_TIME, m - first); i > 0; i--, x += 8, sum += NR)
                    *(L(vec) *)sum += ((x[0] * b0 + x[1] * b1) + (x[2] * b2 + x[3] * b3)) +
                                      ((x[4] * b4 + x[5] * b5) + (x[6] * b6 + x[7] * b7));
            }
}

static void L(panel_i32)(const uint32_t *a, int64_t lda, const uint32_t *b, uint32_t *acc, int64_t m, int64_t chunks) {
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        for (int v = 0; v < NR; v += LANES) {
            const L(words) *w = (const L(words) *)(b + chunk * 8 * NR + v);
            const uint32_t *x = a + chunk * lda;
            uint32_t *sum = acc + v;
            for (int64_t i = m; i > 0; i--, x += 8, sum += NR) {
                L(words) total = *(L(words) *)sum;
                for (int k = 0; k < 8; k++) total += x[k] * w[k * NR / LANES];
                *(L(words) *)sum = total;
            }
        }
}

static void L(turn)(const uint32_t *x, int64_t ld, uint32_t *out) {
    for (int k = 0; k < 8; k++)
        for (int r = 0; r < NR; r++) out[k * NR + r] = x[r * ld + k];
}

static const loops L(table) = {
    L(f32_of_bf16), L(f32_of_f16), L(bf16_of_f32), L(f16_of_f32), L(clean_f32), L(binary), L(unary), L(panel), L(panel_i32), L(turn),
};
