# Floats of 16 bits. Imports nothing but _status. Must not touch Python objects in loops.
#
# f32 to f16 in integer steps that every machine has, and any 16-bit format to another by a table of all patterns.
# Twin: reference/shorts.py, value by value; door: _facade_shorts.py.

from libc.stdint cimport uint16_t, uint32_t

from tx8fast._kernels._status cimport BAD_INPUT, OK

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint32_t tx8_bits_of_sum(uint32_t bits, float y) {
        float x;
        memcpy(&x, &bits, 4);
        x += y;
        memcpy(&bits, &x, 4);
        return bits;
    }

    /* To nearest, ties to even. Below 2^-14 the sum with 1/2 rounds to a multiple of 2^-24. A NaN keeps the high bits of its payload.
       Masks in place of branches: a compiler may not skip an addition of floats, and then makes no vectors of the loop. */
    #define TX8_HALVES(NAME, TARGET)                                                                                   \\
        TARGET static void NAME(const uint32_t *x, uint16_t *out, long long n) {                                       \\
            for (long long i = 0; i < n; i++) {                                                                        \\
                uint32_t size = x[i] & 0x7FFFFFFFu, payload = size >> 13 & 0x3FFu;                                     \\
                uint32_t small = tx8_bits_of_sum(size, 0.5f) - 0x3F000000u;                                            \\
                uint32_t normal = (size - (112u << 23) + 0xFFF + (size >> 13 & 1)) >> 13;                              \\
                uint32_t nan = 0x7C00u | payload | (payload == 0);                                                     \\
                uint32_t is_big = -(uint32_t)(size >= 0x47800000u), is_small = -(uint32_t)(size < 0x38800000u);        \\
                uint32_t is_nan = -(uint32_t)(size > 0x7F800000u);                                                     \\
                uint32_t y = (0x7C00u & is_big) | (small & is_small) | (normal & ~is_big & ~is_small);                 \\
                out[i] = (uint16_t)((nan & is_nan) | (y & ~is_nan) | (x[i] >> 16 & 0x8000u));                          \\
            }                                                                                                          \\
        }

    TX8_HALVES(tx8_halves, )
    #if defined(__x86_64__)
    TX8_HALVES(tx8_halves_wide, __attribute__((target("avx2"))))
    static int tx8_has_wide(void) { return __builtin_cpu_supports("avx2") != 0; }
    #else
    #define tx8_halves_wide tx8_halves
    static int tx8_has_wide(void) { return 0; }
    #endif
    """
    void tx8_halves(const uint32_t* x, uint16_t* out, long long n) noexcept nogil
    void tx8_halves_wide(const uint32_t* x, uint16_t* out, long long n) noexcept nogil
    int tx8_has_wide() noexcept nogil


def has_wide():
    """Return whether this machine has the wider of the two vectors."""
    return bool(tx8_has_wide())


def halves(
    const uint32_t[::1] x,        # IN  (n,) patterns of f32
    bint wide,                    # IN  with the wider vectors; the patterns do not depend on it
    uint16_t[::1] out,            # OUT (n,) patterns of f16
):
    """Return a status. Complexity: O(n)."""
    cdef long long n = x.shape[0]
    if out.shape[0] != n or (wide and not tx8_has_wide()):
        return BAD_INPUT
    if n == 0:
        return OK
    with nogil:
        if wide:
            tx8_halves_wide(&x[0], &out[0], n)
        else:
            tx8_halves(&x[0], &out[0], n)
    return OK


def looked_up(
    const uint16_t[::1] x,        # IN  (n,) patterns
    const uint16_t[::1] table,    # IN  (65536,) what each becomes
    uint16_t[::1] out,            # OUT (n,)
):
    """Return a status. Complexity: O(n)."""
    cdef long long n = x.shape[0], i
    if out.shape[0] != n or table.shape[0] != 65536:
        return BAD_INPUT
    with nogil:
        for i in range(n):
            out[i] = table[x[i]]
    return OK
