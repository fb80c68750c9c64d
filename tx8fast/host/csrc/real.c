/* Functions of doubles: own series, within a few units of the last place, so that results rounded to f32 are the correctly rounded ones
 * but for a rare one. floor, sqrt, ldexp, frexp, fmod and rint are exact or correctly rounded by definition and taken from the library. */
#include "routine.h"

#define LN2_HIGH 0x1.62e42feep-1 /* 21 zeros behind: a product with a small integer is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define LOG2_E 1.4426950408889634
#define PI_2 1.5707963267948966

/* (e^r - 1 - r) / r^2, |r| <= 0.35 */
static double tail(double r) {
    double y = 1;
    for (int k = 16; k >= 3; k--) y = 1 + r * y / k;
    return y / 2;
}

double r_exp(double x) {
    if (x != x) return x;
    if (x > 710) return INFINITY;
    if (x < -746) return 0;
    double k = nearbyint(x * LOG2_E), r = (x - k * LN2_HIGH) - k * LN2_LOW;
    return ldexp(1 + (r + r * r * tail(r)), (int)k);
}

double r_expm1(double x) {
    if (x != x || x == 0) return x;
    if (x > 700) return r_exp(x);
    if (x < -40) return -1;
    double k = nearbyint(x * LOG2_E), r = (x - k * LN2_HIGH) - k * LN2_LOW, p = ldexp(1, (int)k);
    return (p - 1) + p * (r + r * r * tail(r));
}

/* ln((1 + s) / (1 - s)) / 2s - 1, |s| <= 1 / 3 */
static double log_tail(double s) {
    double z = s * s, p = 1.0 / 37;
    for (int k = 35; k >= 3; k -= 2) p = 1.0 / k + z * p;
    return z * p;
}

/* x as m * 2^e, m between the roots of a half and of two */
static double parted(double x, double *e) {
    int k;
    double m = frexp(x, &k);
    if (m < 0.7071067811865476) m *= 2, k--;
    *e = k;
    return m;
}

double r_log(double x) {
    if (x != x || x == INFINITY) return x;
    if (x <= 0) return x == 0 ? -INFINITY : NAN;
    double e, m = parted(x, &e), s = (m - 1) / (m + 1), f = 2 * s + 2 * s * log_tail(s);
    return e * LN2_HIGH + (f + e * LN2_LOW);
}

double r_log1p(double x) {
    if (!(x >= -0.5 && x <= 1)) return r_log(1 + x);
    double s = x / (2 + x);
    return x == 0 ? x : 2 * s + 2 * s * log_tail(s);
}

/* --- pow: the logarithm as a sum of two doubles --- */

typedef struct {
    double high, low;
} twin;

static twin sum(double a, double b) {
    double s = a + b, t = s - a;
    return (twin){s, (a - (s - t)) + (b - t)};
}

static twin product(double a, double b) {
    double p = a * b, ca = a * 134217729.0, cb = b * 134217729.0; /* 2^27 + 1 */
    double ah = ca - (ca - a), bh = cb - (cb - b), al = a - ah, bl = b - bh;
    return (twin){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static twin log_twin(double x) {
    double e, m = parted(x, &e);
    twin den = sum(m, 1);
    double num = m - 1, s = num / den.high;
    twin back = product(s, den.high);
    double rest = ((num - back.high) - back.low - s * den.low) / den.high;
    twin whole = sum(e * LN2_HIGH, 2 * s);
    return sum(whole.high, whole.low + (2 * rest + (2 * s * log_tail(s) + e * LN2_LOW)));
}

double r_pow(double a, double b) {
    if (b == 0 || a == 1) return 1;
    if (a != a || b != b) return NAN;
    double size = fabs(a);
    bool is_whole = floor(b) == b, odd = is_whole && fabs(b) < 0x1p53 && fmod(b, 2) != 0, minus = signbit(a) && odd;
    double y;
    if (b - b != 0)
        y = size == 1 ? 1 : (size > 1) == (b > 0) ? INFINITY : 0;
    else if (size == 0 || size == INFINITY)
        y = (size == 0) == (b < 0) ? INFINITY : 0;
    else if (a < 0 && !is_whole)
        return NAN;
    else {
        twin l = log_twin(size);
        double rough = b * l.high;
        if (rough > 720 || rough < -760) {
            y = rough > 0 ? INFINITY : 0;
        } else if (is_whole && fabs(b) <= 64 && fabs(rough) < 600) { /* small powers are exact where they can be */
            twin z = {size, 0};
            for (int k = 1; k < (int)fabs(b); k++) {
                twin p = product(z.high, size);
                z = sum(p.high, p.low + z.low * size);
            }
            y = z.high;
            if (b < 0) {
                twin p = product(y = 1 / z.high, z.high);
                y += y * ((1 - p.high) - p.low - y * z.low);
            }
        } else {
            twin p = product(b, l.high);
            double low = p.low + b * l.low, e = r_exp(p.high);
            y = e == INFINITY ? e : e + e * low;
        }
    }
    return minus ? -y : y;
}

/* --- sine: of any double, reduced by a product with 2 / pi of which only the bits that matter are taken --- */

/* bits of 2 / pi behind the point, 32 a word */
static const uint32_t TWO_OVER_PI[] = {
    0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
    0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484,
    0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F,
    0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B,
    0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB,
};

/* 64 bits of 2 / pi from bit `first` behind the point on (negative: zeros in front) */
static uint64_t window(int first) {
    uint64_t out = 0;
    for (int k = 0; k < 64; k++) {
        int bit = first + k;
        out = out << 1 | (bit < 0 || bit >= 1216 ? 0 : TWO_OVER_PI[bit / 32] >> (31 - bit % 32) & 1);
    }
    return out;
}

static uint64_t high_of(uint64_t a, uint64_t b) { /* the upper half of a product */
    uint64_t al = a & 0xFFFFFFFFu, ah = a >> 32, bl = b & 0xFFFFFFFFu, bh = b >> 32;
    uint64_t middle = ah * bl + (al * bl >> 32), other = al * bh + (middle & 0xFFFFFFFFu);
    return ah * bh + (middle >> 32) + (other >> 32);
}

double r_sin(double x, int quarter) {
    if (x - x != 0) return NAN;
    uint64_t bits = bits_of64(x), exponent = bits >> 52 & 2047;
    uint64_t m = (bits & 0xFFFFFFFFFFFFF) | (exponent ? 0x10000000000000u : 0);
    int shift = (int)(exponent ? exponent : 1) - 1075; /* |x| = m * 2^shift */
    double r = fabs(x);
    int turn = 0;
    if (r >= 0.78) {
        int from = shift - 2; /* m * (2 / pi) * 2^shift modulo 4: bits of 2 / pi before only make multiples of 4 */
        uint64_t a = window(from), b = window(from + 64), c = window(from + 128);
        uint64_t low = b * m + high_of(c, m), high = a * m + high_of(b, m) + (low < b * m);
        turn = (int)(high >> 62);
        high = high << 2 | low >> 62, low <<= 2; /* the fraction of a right angle, 128 bits */
        bool beyond = high >> 63;                /* nearer to the next right angle */
        if (beyond) turn++, low = ~low + 1, high = ~high + (low == 0);
        r = ((double)high * 0x1p-64 + (double)low * 0x1p-128) * PI_2;
        if (beyond) r = -r;
    }
    if (signbit(x)) r = -r, turn = -turn;
    turn = (turn + quarter) & 3;
    double z = r * r, y = 1;
    for (int k = turn & 1 ? 18 : 19; k >= 2; k -= 2) y = 1 - z * y / (k * (k - 1));
    y = turn & 1 ? y : r * y;
    return turn & 2 ? -y : y;
}

double r_tan(double x) { return x == 0 ? x : r_sin(x, 0) / r_sin(x, 1); }

double r_atan(double x) {
    if (x != x || x == 0) return x;
    double a = fabs(x), t = a > 1 ? 1 / a : a;
    for (int k = 0; k < 2; k++) t = t / (1 + sqrt(1 + t * t)); /* half the angle, twice */
    double z = t * t, p = 1.0 / 25;
    for (int k = 23; k >= 3; k -= 2) p = 1.0 / k - z * p;
    t = 4 * (t - t * z * p);
    return copysign(a > 1 ? PI_2 - t : t, x);
}

double r_asin(double x) { return x == 0 ? x : fabs(x) <= 1 ? r_atan(x / sqrt((1 - x) * (1 + x))) : NAN; }
double r_acos(double x) { return fabs(x) <= 1 ? 2 * r_atan(sqrt((1 - x) / (1 + x))) : NAN; }

double r_sinh(double x) {
    double a = fabs(x), e = r_expm1(a), half = r_exp(a / 2);
    return x == 0 ? x : copysign(a > 700 ? half / 2 * half : (e + e / (1 + e)) / 2, x);
}

double r_cosh(double x) {
    double a = fabs(x), e = r_exp(a), half = r_exp(a / 2);
    return a > 700 ? half / 2 * half : (e + 1 / e) / 2;
}

double r_tanh(double x) {
    double e = r_expm1(-2 * fabs(x));
    return x == 0 ? x : copysign(fabs(e / (2 + e)), x);
}

double r_asinh(double x) {
    double a = fabs(x);
    if (x == 0 || x - x != 0) return x;
    return copysign(a > 1e9 ? r_log(a) + (LN2_HIGH + LN2_LOW) : r_log1p(a + a * a / (1 + sqrt(1 + a * a))), x);
}

double r_acosh(double x) {
    double t = x - 1;
    if (!(x >= 1)) return NAN;
    return x > 1e9 ? r_log(x) + (LN2_HIGH + LN2_LOW) : r_log1p(t + sqrt(t * (t + 2)));
}

double r_atanh(double x) {
    double a = fabs(x);
    if (!(a <= 1)) return NAN;
    return x == 0 ? x : copysign(0.5 * r_log1p(2 * a / (1 - a)), x);
}

double r_erf(double x) {
    double a = fabs(x);
    if (x != x || x == 0) return x;
    if (a >= 2) return copysign(1 - r_erfc(a), x);
    double sum_ = 1, term = 1;
    for (int k = 1; k <= 40; k++) term *= 2 * x * x / (2 * k + 1), sum_ += term;
    return 1.1283791670955126 * r_exp(-x * x) * (x * sum_); /* 2 / sqrt(pi) */
}

/* Its continued fraction; e^(-x^2) in two parts, of which the first is exact. */
double r_erfc(double x) {
    if (x != x) return x;
    if (x < 2) return 1 - r_erf(x);
    if (x > 28) return 0;
    double t = x;
    for (int k = 80; k >= 1; k--) t = x + k / 2.0 / t;
    double h = (double)(float)x;
    return 0.5641895835477563 * r_exp(-h * h) * r_exp(-(x - h) * (x + h)) / t; /* 1 / sqrt(pi) */
}

double r_sigmoid(double x) {
    double e = r_exp(-fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

double r_softplus(double x) { return larger(x, 0) + r_log1p(r_exp(-fabs(x))); }
