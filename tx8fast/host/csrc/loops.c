/* The inner loops, built for several instruction sets from one text; the widest that the processor has is taken.
 *
 * Every operation is one IEEE operation on one lane, so the width of the vectors shows in no bit.
 */
#include <math.h>

#include "core.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define L(name) JOIN(name, LEVEL)

#define LEVEL _plain
#define LANES 4
#include "loops.h"
#undef LEVEL
#undef LANES

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif
#define LEVEL _avx2
#define LANES 8
#include "loops.h"
#undef LEVEL
#undef LANES
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")
#endif
#define LEVEL _avx512
#define LANES 16
#include "loops.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static const loops *const ALL[] = {&table_plain, &table_avx2, &table_avx512};

int tx8_levels(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") ? 3 : 2;
}
#else
static const loops *const ALL[] = {&table_plain};
int tx8_levels(void) { return 1; }
#endif

const loops *LOOPS = &table_plain;

int tx8_use_level(int level) {
    if (level < 0 || level >= tx8_levels()) return 0;
    LOOPS = ALL[level];
    return 1;
}

/* --- sine: of any f32, reduced by a product with 2 / pi of which only the bits that matter are taken --- */

/* bits of 2 / pi behind the point, 32 a word */
static const uint32_t TWO_OVER_PI[] = {
    0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
};

/* 64 bits of 2 / pi from bit `first` behind the point on (negative: zeros in front) */
static uint64_t window(int first) {
    uint64_t out = 0;
    for (int k = 0; k < 64; k++) {
        int bit = first + k;
        out = out << 1 | (bit < 0 || bit >= 256 ? 0 : TWO_OVER_PI[bit / 32] >> (31 - bit % 32) & 1);
    }
    return out;
}

double sine(float x, int quarter) {
    if (x - x != 0) return NAN;
    uint32_t bits = bits_of(x), exponent = bits >> 23 & 255;
    uint64_t m = (bits & 0x7FFFFF) | (exponent ? 0x800000u : 0);
    int shift = (int)(exponent ? exponent : 1) - 150; /* |x| = m * 2^shift */
    /* m * (2 / pi) * 2^shift modulo 4: bits of 2 / pi before `from` only make multiples of 4 */
    int from = shift - 2;
    uint64_t a = window(from), b = window(from + 64), c = window(from + 128); /* a * m keeps 64 bits: 2 before the point */
    uint64_t pb_low = b * m, pb_high = ((b >> 32) * m + ((b & 0xFFFFFFFFu) * m >> 32)) >> 32;
    uint64_t pc_high = ((c >> 32) * m + ((c & 0xFFFFFFFFu) * m >> 32)) >> 32;
    uint64_t low = pb_low + pc_high, high = a * m + pb_high + (low < pb_low);
    int turn = (int)(high >> 62);
    high = high << 2 | low >> 62, low <<= 2; /* the fraction of a right angle, 128 bits */
    bool beyond = high >> 63; /* nearer to the next right angle */
    if (beyond) turn++, low = ~low + 1, high = ~high + (low == 0);
    double r = (double)high * 0x1p-64 + (double)low * 0x1p-128;
    r *= 1.5707963267948966; /* pi / 2 */
    if (beyond) r = -r;
    if (fabsf(x) < 0.78f) r = fabsf(x), turn = 0; /* the angle itself */
    if (bits >> 31) r = -r, turn = -turn;
    turn = (turn + quarter) & 3;
    double z = r * r, y;
    if (turn & 1)
        y = 1 + z * (-1.0 / 2 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600 + z * (-1.0 / 87178291200 + z * (1.0 / 20922789888000))))))));
    else
        y = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800 + z * (1.0 / 6227020800 + z * (-1.0 / 1307674368000 + z * (1.0 / 355687428096000))))))));
    return turn & 2 ? -y : y;
}
