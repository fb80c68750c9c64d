# Arithmetic of residues below 2^24, inline. Imports nothing but the C library.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    RESIDUE = 0xFFFFFF

cdef extern from *:
    """
    #include <stdint.h>
    #define CELL_UNDEFINED 0x80000000u
    #define CELL_HIDDEN 0x40000000u
    #define CELL_MAXIMUM 0x20000000u
    #define CELL_MINIMUM 0x10000000u
    #define CELL_LOWEST (CELL_HIDDEN | CELL_MAXIMUM)
    #define CELL_HIGHEST (CELL_UNDEFINED | CELL_MAXIMUM)
    #define CELL_FINITE (CELL_UNDEFINED | CELL_MINIMUM)
    #define CELL_GAP (CELL_UNDEFINED | CELL_MAXIMUM | CELL_MINIMUM)
    #define CELL_ABSENT 0xFFFFFFFFu
    static inline uint64_t mix64(uint64_t x) {
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
        return x ^ (x >> 31);
    }
    static inline uint64_t mix_at(uint64_t key, uint64_t x) { return mix64(key + (x + 1) * 0x9E3779B97F4A7C15ull); }
    static inline uint32_t of_high(uint64_t w, uint32_t m) { return (uint32_t)(((w >> 32) * m) >> 32); }
    static inline uint32_t of_low(uint64_t w, uint32_t m) { return (uint32_t)(((w & 0xFFFFFFFFull) * m) >> 32); }
    /* Barrett's reduction for a modulus m of n bits and x < 2^(2n): mu = floor(2^(2n) / m) */
    typedef struct { uint32_t m, mu, low, high; } modulus_t;
    static inline modulus_t modulus_of(uint32_t m) {
        modulus_t r; uint32_t n = 32 - (uint32_t)__builtin_clz(m);
        r.m = m; r.mu = (uint32_t)((1ull << (2 * n)) / m); r.low = n - 1; r.high = n + 1;
        return r;
    }
    static inline uint32_t mul_mod(uint32_t a, uint32_t b, modulus_t r) {
        uint64_t x = (uint64_t)a * b;
        uint32_t q = (uint32_t)(((uint64_t)(uint32_t)(x >> r.low) * r.mu) >> r.high);
        uint32_t y = (uint32_t)x - q * r.m;
        y = y >= r.m ? y - r.m : y;
        return y >= r.m ? y - r.m : y;
    }
    static inline uint32_t add_mod(uint32_t a, uint32_t b, uint32_t m) { uint32_t s = a + b; return s >= m ? s - m : s; }
    static inline uint32_t sub_mod(uint32_t a, uint32_t b, uint32_t m) { return a >= b ? a - b : a + m - b; }
    """
    ctypedef struct modulus_t:
        uint32_t m
    uint32_t UNDEFINED "CELL_UNDEFINED"
    uint32_t HIDDEN "CELL_HIDDEN"
    uint32_t MAXIMUM "CELL_MAXIMUM"
    uint32_t MINIMUM "CELL_MINIMUM"
    uint32_t LOWEST "CELL_LOWEST"
    uint32_t HIGHEST "CELL_HIGHEST"
    uint32_t FINITE "CELL_FINITE"
    uint32_t GAP "CELL_GAP"
    uint32_t ABSENT "CELL_ABSENT"
    uint64_t mix64(uint64_t x) noexcept nogil
    uint64_t mix_at(uint64_t key, uint64_t x) noexcept nogil
    uint32_t of_high(uint64_t w, uint32_t m) noexcept nogil
    uint32_t of_low(uint64_t w, uint32_t m) noexcept nogil
    modulus_t modulus_of(uint32_t m) noexcept nogil
    uint32_t mul_mod(uint32_t a, uint32_t b, modulus_t r) noexcept nogil
    uint32_t add_mod(uint32_t a, uint32_t b, uint32_t m) noexcept nogil
    uint32_t sub_mod(uint32_t a, uint32_t b, uint32_t m) noexcept nogil
