/* The inner loops over cells and words, for compilers that vectorise them; imports nothing but the C library.
 *
 * Where the compiler can, each loop is built for several instruction sets and the processor's own is taken when the module is
 * loaded. All arithmetic is on integers, or on floats that hold integers exactly, so every build gives the same words.
 */
#ifndef TX8FAST_CELLS_H
#define TX8FAST_CELLS_H
#include <stdint.h>
#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("no-trapping-math")))
#else
#define CLONES
#endif

/* 64-bit products want instructions of their own */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define CLONES_64 __attribute__((target_clones("arch=skylake-avx512", "avx2", "default"), optimize("no-trapping-math")))
#else
#define CLONES_64
#endif

#define UNDEFINED_ 0x80000000u
#define HIDDEN_ 0x40000000u
#define FINITE_ 0x90000000u
#define RESIDUE_ 0x00FFFFFFu
#define KIND_ 0x0F000000u
#define KEPT_ 0xF0FFFFFFu
#define ZERO_ 0x06000000u
#define CONTINUED_ 0x05000000u
#define ABSENT_ 0xFFFFFFFFu

/* words of n elements; returns how many were written in another kind (never-written ones are not counted) */
CLONES static int64_t cells_load1(const uint32_t *m, uint32_t *out, ptrdiff_t n, uint32_t want) {
    int32_t bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t w = m[i], x = (w & KIND_) == want ? (w & KEPT_) : (w == ZERO_ ? 0 : UNDEFINED_);
        out[i] = x;
        bad += (x == UNDEFINED_) & ((w & KIND_) != 0);
    }
    return bad;
}

CLONES static int64_t cells_load2(const uint32_t *m, uint32_t *out, ptrdiff_t n, uint32_t want) {
    int32_t bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t w = m[2 * i], c = m[2 * i + 1];
        uint32_t right = ((w & KIND_) == want) & (c == (CONTINUED_ | (w & RESIDUE_)));
        uint32_t x = right ? (w & KEPT_) : (((w == ZERO_) & (c == ZERO_)) ? 0 : UNDEFINED_);
        out[i] = x;
        bad += (x == UNDEFINED_) & ((w & KIND_) != 0);
    }
    return bad;
}

/* centred residues of n elements; returns how many have none */
CLONES static int64_t cells_centre1(const uint32_t *m, double *out, ptrdiff_t n, uint32_t want, int32_t p) {
    int32_t bad = 0, half = p >> 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t w = m[i];
        int32_t x = (int32_t)(w & RESIDUE_);
        bad += ((w & (KIND_ | UNDEFINED_ | HIDDEN_)) != want) & (w != ZERO_);
        out[i] = (double)(x > half ? x - p : x);
    }
    return bad;
}

CLONES static int64_t cells_centre2(const uint32_t *m, double *out, ptrdiff_t n, uint32_t want, int32_t p) {
    int32_t bad = 0, half = p >> 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t w = m[2 * i], c = m[2 * i + 1];
        int32_t x = (int32_t)(w & RESIDUE_);
        int32_t wrong = ((w & (KIND_ | UNDEFINED_ | HIDDEN_)) != want) | (c != (CONTINUED_ | (w & RESIDUE_)));
        bad += wrong & ((w != ZERO_) | (c != ZERO_));
        out[i] = (double)(x > half ? x - p : x);
    }
    return bad;
}

CLONES static int64_t cells_centre_q(const uint32_t *m, double *out, ptrdiff_t n, int32_t q, int width) {
    int32_t bad = 0, half = q >> 1;
    if (width == 1)
        for (ptrdiff_t i = 0; i < n; i++) {
            int32_t x = (int32_t)(m[i] & RESIDUE_);
            bad += m[i] == ABSENT_;
            out[i] = (double)(x > half ? x - q : x);
        }
    else
        for (ptrdiff_t i = 0; i < n; i++) {
            int32_t x = (int32_t)(m[2 * i] & RESIDUE_);
            bad += m[2 * i] == ABSENT_;
            out[i] = (double)(x > half ? x - q : x);
        }
    return bad;
}

/* residues of words around zero */
CLONES static void words_centre(const uint32_t *a, double *out, ptrdiff_t n, int32_t p) {
    int32_t half = p >> 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        int32_t x = (int32_t)(a[i] & RESIDUE_);
        out[i] = (double)(x > half ? x - p : x);
    }
}

/* random residues number `first` and on of a key around zero: the splitmix64 of _residues.pxd, of its high or its low half */
CLONES_64 static void drawn_centre(uint64_t key, uint64_t first, double *out, ptrdiff_t n, uint32_t p, int high) {
    int32_t half = (int32_t)(p >> 1), shift = high ? 32 : 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint64_t w = key + (first + (uint64_t)i + 1) * 0x9E3779B97F4A7C15ull;
        w = (w ^ (w >> 30)) * 0xBF58476D1CE4E5B9ull;
        w = (w ^ (w >> 27)) * 0x94D049BB133111EBull;
        w ^= w >> 31;
        int32_t x = (int32_t)((((w >> shift) & 0xFFFFFFFFull) * p) >> 32);
        out[i] = (double)(x > half ? x - (int32_t)p : x);
    }
}

CLONES static void cells_store1(uint32_t *m, const uint32_t *a, ptrdiff_t n, uint32_t kind) {
    for (ptrdiff_t i = 0; i < n; i++) m[i] = a[i] | kind;
}

CLONES static void cells_store2(uint32_t *m, const uint32_t *a, ptrdiff_t n, uint32_t kind) {
    for (ptrdiff_t i = 0; i < n; i++) {
        m[2 * i] = a[i] | kind;
        m[2 * i + 1] = CONTINUED_ | (a[i] & RESIDUE_);
    }
}

/* adding and taking away 1.5 * 2^52 rounds to an integer */
#define MAGIC_ 6755399441055744.0

CLONES static void sums_reduce(double *total, const double *part, ptrdiff_t n, double m) {
    double inverse = 1 / m;
    for (ptrdiff_t i = 0; i < n; i++) {
        double x = part[i], turns = (x * inverse + MAGIC_) - MAGIC_;
        total[i] += x - turns * m;
    }
}

CLONES static void sums_residues(const double *total, uint32_t *out, ptrdiff_t n, double m) {
    double inverse = 1 / m;
    for (ptrdiff_t i = 0; i < n; i++) {
        double x = total[i], y = x - ((x * inverse + MAGIC_) - MAGIC_) * m;
        out[i] = (uint32_t)(int32_t)(y < 0 ? y + m : y);
    }
}

/* A thin matrix has this rank: element (r, c) is the sum of u[r, s] v[s, c] over RANK_ terms s, all residues around zero. */
#define RANK_ 8

/* one row's sums, u of one row of the left factor and v of the right one, whose rows lie `step` apart; below 2^48 */
#define THIN_SUM(i)                                                                                                        \
    (u[0] * v[i] + u[1] * v[step + i] + u[2] * v[2 * step + i] + u[3] * v[3 * step + i] + u[4] * v[4 * step + i] +         \
     u[5] * v[5 * step + i] + u[6] * v[6 * step + i] + u[7] * v[7 * step + i])

CLONES static void thin_words(const double *u, const double *v, ptrdiff_t step, uint32_t kind, uint32_t *out, ptrdiff_t n, double m) {
    double inverse = 1 / m;
    for (ptrdiff_t i = 0; i < n; i++) {
        double x = THIN_SUM(i), y = x - ((x * inverse + MAGIC_) - MAGIC_) * m;
        int32_t z = (int32_t)y;
        out[i] = kind | (uint32_t)(z < 0 ? z + (int32_t)m : z);
    }
}

/* how many of a row's residues are not what two factors give */
CLONES static int64_t thin_differs(const double *a, const double *u, const double *v, ptrdiff_t step, ptrdiff_t n, double m) {
    double inverse = 1 / m;
    int64_t bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double x = THIN_SUM(i) - a[i];
        bad += x != ((x * inverse + MAGIC_) - MAGIC_) * m;
    }
    return bad;
}

/* words of a run of results: sums and, if there are any, partial sums, elements of `width` cells and of kind `want`; a hidden
 * partial sum hides the result, one that is finite and else unknown makes it so, too. One loop for each width, since only steps
 * that the compiler knows become vectors */
#define SUMS_WORDS(NAME, WIDTH)                                                                                            \
    CLONES static void NAME(const double *t, const uint32_t *add, uint32_t want, uint32_t *out, ptrdiff_t n, double m) {   \
        double inverse = 1 / m;                                                                                            \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                                \
            uint32_t w = add[i * WIDTH], c = add[i * WIDTH + WIDTH - 1];                                                   \
            uint32_t whole = (WIDTH == 1) | (c == (CONTINUED_ | (w & RESIDUE_)));                                          \
            uint32_t good = (((w & (KIND_ | UNDEFINED_)) == want) & whole) | ((w == ZERO_) & (c == ZERO_));                \
            double x = t[i] + (double)(int32_t)(w & RESIDUE_), y = x - ((x * inverse + MAGIC_) - MAGIC_) * m;              \
            int32_t z = (int32_t)y;                                                                                        \
            uint32_t r = (uint32_t)(z < 0 ? z + (int32_t)m : z);                                                           \
            uint32_t finite = ((w & ~RESIDUE_) == (want | FINITE_)) & whole;                                               \
            r = (w & HIDDEN_) ? HIDDEN_ : r;                                                                               \
            out[i] = good ? r : finite ? FINITE_ : UNDEFINED_;                                                             \
        }                                                                                                                  \
    }

SUMS_WORDS(sums_words1, 1)
SUMS_WORDS(sums_words2, 2)

CLONES static void sums_words_q(const double *t, const uint32_t *add, int width, uint32_t *out, ptrdiff_t n, double m) {
    double inverse = 1 / m;
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t w = add[i * width];
        double x = t[i] + (double)(int32_t)(w & RESIDUE_), y = x - ((x * inverse + MAGIC_) - MAGIC_) * m;
        out[i] = w == ABSENT_ ? ABSENT_ : (uint32_t)(int32_t)(y < 0 ? y + m : y);
    }
}
#endif
