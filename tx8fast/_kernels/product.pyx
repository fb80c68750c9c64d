# Matrix products of f32 that give the same bits on every machine. Imports nothing but _status. Must not touch Python
# objects in loops.
#
# A product of two f32 is exact in f64, so a sum of them depends on the order of additions alone: here k ascending, one
# sum per result, rounded to f32 once. Neither the width of the vectors nor a fused multiply-add changes a bit.
# Twin: reference/product.py, one sum after the other; door: _facade_product.py.

from tx8fast._kernels._status cimport BAD_INPUT, OK

cdef extern from *:
    """
    /* Four rows of `a`, 2 * LANES columns of `b` (k, 2 * LANES): eight vectors of sums stay in registers. */
    #define TX8_PANEL(NAME, LANES, TARGET)                                                                             \\
        typedef double NAME##_vec __attribute__((vector_size(LANES * 8), aligned(8)));                                 \\
        TARGET static void NAME(const double *a, long long lda, const double *b, long long k, double *sums) {          \\
            const double *a1 = a + lda, *a2 = a1 + lda, *a3 = a2 + lda;                                                \\
            NAME##_vec s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0};         \\
            for (long long q = 0; q < k; q++, b += 2 * LANES) {                                                        \\
                NAME##_vec u = *(const NAME##_vec *)b, v = *(const NAME##_vec *)(b + LANES);                           \\
                s00 += a[q] * u; s01 += a[q] * v; s10 += a1[q] * u; s11 += a1[q] * v;                                  \\
                s20 += a2[q] * u; s21 += a2[q] * v; s30 += a3[q] * u; s31 += a3[q] * v;                                \\
            }                                                                                                          \\
            NAME##_vec *out = (NAME##_vec *)sums;                                                                      \\
            out[0] = s00; out[1] = s01; out[2] = s10; out[3] = s11;                                                    \\
            out[4] = s20; out[5] = s21; out[6] = s30; out[7] = s31;                                                    \\
        }

    TX8_PANEL(tx8_panel_2, 2, )
    #if defined(__x86_64__)
    TX8_PANEL(tx8_panel_4, 4, __attribute__((target("avx2,fma"))))
    static int tx8_lanes(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 4 : 2; }
    #else
    #define tx8_panel_4 tx8_panel_2
    static int tx8_lanes(void) { return 2; }
    #endif
    """
    void tx8_panel_2(const double* a, long long lda, const double* b, long long k, double* sums) noexcept nogil
    void tx8_panel_4(const double* a, long long lda, const double* b, long long k, double* sums) noexcept nogil
    int tx8_lanes() noexcept nogil


def most_lanes():
    """Return how many f64 a vector of this machine holds: 2 or 4."""
    return tx8_lanes()


def product(
    const float[:, :] a,          # IN  (m, k)
    const float[:, :] b,          # IN  (k, n)
    int lanes,                    # IN  2 or `most_lanes()`
    float[:, ::1] out,            # OUT (m, n)
    double[:, ::1] left,          # scratch (m rounded up to 4, k)
    double[:, ::1] right,         # scratch (k, 2 * lanes)
):
    """Return a status. Complexity: O(m * k * n)."""
    cdef long long m = a.shape[0], k = a.shape[1], n = b.shape[1], i, j, q, r, columns = 2 * lanes, used
    cdef double[32] sums
    if (lanes != 2 and lanes != tx8_lanes()) or b.shape[0] != k or out.shape[0] != m or out.shape[1] != n:
        return BAD_INPUT
    if left.shape[0] % 4 or left.shape[0] < m or left.shape[1] != k or right.shape[0] != k or right.shape[1] != columns:
        return BAD_INPUT
    if m == 0 or n == 0:
        return OK
    if k == 0:
        out[:, :] = 0
        return OK
    with nogil:
        for i in range(left.shape[0]):
            for q in range(k):
                left[i, q] = a[i, q] if i < m else 0
        j = 0
        while j < n:
            used = min(columns, n - j)
            for q in range(k):
                for r in range(columns):
                    right[q, r] = b[q, j + r] if r < used else 0
            for i in range(0, m, 4):
                if lanes == 2:
                    tx8_panel_2(&left[i, 0], k, &right[0, 0], k, sums)
                else:
                    tx8_panel_4(&left[i, 0], k, &right[0, 0], k, sums)
                for q in range(min(4, m - i)):
                    for r in range(used):
                        out[i + q, j + r] = <float>sums[q * columns + r]
            j += columns
    return OK
