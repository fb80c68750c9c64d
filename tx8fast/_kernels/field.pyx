# Element-wise arithmetic of the finite field, one array after the other. Imports nothing but _residues and _cells.h.
# Must not know memory, rows or formats. Words are as in `proof.cells`: residue in 24 bits, states above; ABSENT modulo q.
#
# Binary functions see the operand `a` as (n, m) and `b` as n blocks of m words whose starts lie `step` apart, or one word
# each with `wide` 0: what broadcasts are made of.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from tx8fast._kernels._residues cimport (
    ABSENT, FINITE, GAP, HIDDEN, HIGHEST, LOWEST, MAXIMUM, MINIMUM, RESIDUE, UNDEFINED, add_mod, mix_at, modulus_of, modulus_t,
    mul_mod, of_high, of_low, sub_mod,
)

cdef extern from "_cells.h":
    void words_centre(const uint32_t* a, double* out, Py_ssize_t n, int p) noexcept nogil
    void drawn_centre(uint64_t key, uint64_t first, double* out, Py_ssize_t n, uint32_t p, int high) noexcept nogil
    void thin_words(const double* u, const double* v, Py_ssize_t step, uint32_t kind, uint32_t* out, Py_ssize_t n, double m) noexcept nogil
    int64_t thin_differs(const double* a, const double* u, const double* v, Py_ssize_t step, Py_ssize_t n, double m) noexcept nogil

ctypedef const uint32_t* Words


cdef inline uint32_t sum_of(uint32_t x, uint32_t y) noexcept nogil:
    """Return the state of x + y, of which one has no residue."""
    cdef uint32_t special = (x | y) & (HIDDEN | UNDEFINED)
    if special == HIDDEN:  # two numbers that hide may add up to an infinite one
        return HIDDEN if x & y & HIDDEN else LOWEST & (x if x & HIDDEN else y)
    if special == UNDEFINED:
        if (x == FINITE or not x & UNDEFINED) and (y == FINITE or not y & UNDEFINED):
            return FINITE
    elif (x == LOWEST and y == HIGHEST) or (x == HIGHEST and y == LOWEST):
        return GAP
    return UNDEFINED


cdef inline uint32_t negative(uint32_t x) noexcept nogil:
    """Return the state of -x, which has no residue."""
    if x == LOWEST:
        return HIGHEST
    return LOWEST if x == HIGHEST else FINITE if x == FINITE else UNDEFINED


cdef void add_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, uint32_t m) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y, states = 0
    for i in range(n):
        x, y = a[i], b[i * one]
        states |= x | y
        out[i] = add_mod(x & RESIDUE, y & RESIDUE, m)
    if states & (HIDDEN | UNDEFINED):
        for i in range(n):
            x, y = a[i], b[i * one]
            if (x | y) & (HIDDEN | UNDEFINED):
                out[i] = sum_of(x, y)


cdef void sub_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, uint32_t m) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y, states = 0
    for i in range(n):
        x, y = a[i], b[i * one]
        states |= x | y
        out[i] = sub_mod(x & RESIDUE, y & RESIDUE, m)
    if states & (HIDDEN | UNDEFINED):
        for i in range(n):
            x, y = a[i], b[i * one]
            if (x | y) & (HIDDEN | UNDEFINED):
                out[i] = sum_of(x, negative(y) if y & (HIDDEN | UNDEFINED) else y)


cdef inline uint32_t product_of(uint32_t x, uint32_t y) noexcept nogil:
    """Return x y, of which one is undefined and none is hidden: what is finite is nothing times zero."""
    if x == HIGHEST and y == 1 or y == HIGHEST and x == 1:
        return HIGHEST
    if (x != FINITE and x & UNDEFINED) or (y != FINITE and y & UNDEFINED):
        return UNDEFINED
    return FINITE if x & (RESIDUE | UNDEFINED) and y & (RESIDUE | UNDEFINED) else 0


cdef void mul_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, modulus_t r) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y, s, special
    for i in range(n):
        x, y = a[i], b[i * one]
        s = mul_mod(x & RESIDUE, y & RESIDUE, r)
        # one times a maximum is that maximum
        if y == 1:
            s |= x & (MAXIMUM | MINIMUM)
        elif x == 1:
            s |= y & (MAXIMUM | MINIMUM)
        special = (x | y) & (HIDDEN | UNDEFINED)
        if special:
            if special & UNDEFINED:
                s = product_of(x, y) if special == UNDEFINED else UNDEFINED
            elif x == LOWEST and y == 1 or y == LOWEST and x == 1:
                s = LOWEST
            elif x & (RESIDUE | HIDDEN) and y & (RESIDUE | HIDDEN):
                s = HIDDEN
            else:
                s = 0
        out[i] = s


cdef void join_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, uint32_t m) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y, s
    for i in range(n):
        x, y = a[i], b[i * one]
        s = add_mod(x & RESIDUE, y & RESIDUE, m) | MAXIMUM
        s = x if y & HIDDEN else s
        s = y if x & HIDDEN else s
        out[i] = UNDEFINED if (x | y) & UNDEFINED else s


cdef void add_q_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, uint32_t m) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y
    for i in range(n):
        x, y = a[i], b[i * one]
        out[i] = ABSENT if x == ABSENT or y == ABSENT else add_mod(x, y, m)


cdef void sub_q_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, uint32_t m) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y
    for i in range(n):
        x, y = a[i], b[i * one]
        out[i] = ABSENT if x == ABSENT or y == ABSENT else sub_mod(x, y, m)


cdef void mul_q_row(Words a, Words b, Py_ssize_t one, uint32_t* out, Py_ssize_t n, modulus_t r) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t x, y
    for i in range(n):
        x, y = a[i], b[i * one]
        out[i] = ABSENT if x == ABSENT or y == ABSENT else mul_mod(x, y, r)


def binary(
    int kind, const uint32_t[::1] a, const uint32_t[::1] b, uint32_t[::1] out, Py_ssize_t n, Py_ssize_t m,
    Py_ssize_t step, int wide, uint32_t modulus
):
    """Fill `out` (n * m words): kind 0 add, 1 sub, 2 mul, 3 joining maxima, all modulo p; 4 add, 5 sub, 6 mul modulo q."""
    cdef Py_ssize_t i
    cdef modulus_t r = modulus_of(modulus)
    if n == 0 or m == 0:
        return
    with nogil:
        for i in range(n):
            if kind == 0:
                add_row(&a[i * m], &b[i * step], wide, &out[i * m], m, modulus)
            elif kind == 1:
                sub_row(&a[i * m], &b[i * step], wide, &out[i * m], m, modulus)
            elif kind == 2:
                mul_row(&a[i * m], &b[i * step], wide, &out[i * m], m, r)
            elif kind == 3:
                join_row(&a[i * m], &b[i * step], wide, &out[i * m], m, modulus)
            elif kind == 4:
                add_q_row(&a[i * m], &b[i * step], wide, &out[i * m], m, modulus)
            elif kind == 5:
                sub_q_row(&a[i * m], &b[i * step], wide, &out[i * m], m, modulus)
            else:
                mul_q_row(&a[i * m], &b[i * step], wide, &out[i * m], m, r)


def negate(const uint32_t[::1] a, uint32_t[::1] out, uint32_t modulus, bint words_q):
    """out = -a; modulo p a maximum becomes a minimum."""
    cdef Py_ssize_t i
    cdef uint32_t x, y
    with nogil:
        for i in range(a.shape[0]):
            x = a[i]
            if words_q:
                out[i] = ABSENT if x == ABSENT else sub_mod(0, x, modulus)
            elif x & (UNDEFINED | HIDDEN):
                out[i] = negative(x)
            else:
                y = x & RESIDUE
                out[i] = (modulus - y if y else 0) | (x & MAXIMUM) >> 1 | (x & MINIMUM) << 1


cdef uint32_t power(uint32_t base, uint32_t exponent, modulus_t r) noexcept nogil:
    cdef uint32_t out = 1
    while exponent:
        if exponent & 1:
            out = mul_mod(out, base, r)
        base = mul_mod(base, base, r)
        exponent >>= 1
    return out


def invert(const uint32_t[::1] a, uint32_t[::1] out, uint32_t modulus, bint words_q):
    """out = 1 / a, of zero zero: a few powers for all, three products for each (Montgomery 1987).

    Four chains of products side by side, element i in chain i % 4, since each product waits for the one before it.
    """
    cdef Py_ssize_t i, n = a.shape[0]
    cdef uint32_t x, y, before
    cdef uint32_t running[4]
    cdef modulus_t r = modulus_of(modulus)
    with nogil:
        for i in range(4):
            running[i] = 1
        # out holds the product of all before
        for i in range(n):
            out[i] = running[i & 3]
            x = a[i]
            y = (0 if x == ABSENT else x) if words_q else (0 if x & (UNDEFINED | HIDDEN) else x & RESIDUE)
            if y:
                running[i & 3] = mul_mod(running[i & 3], y, r)
        for i in range(4):
            running[i] = power(running[i], modulus - 2, r)
        for i in range(n - 1, -1, -1):
            x = a[i]
            if words_q and x == ABSENT:
                out[i] = ABSENT
                continue
            if not words_q and x & (UNDEFINED | HIDDEN):
                out[i] = UNDEFINED
                continue
            y = x if words_q else x & RESIDUE
            if y == 0:
                out[i] = 0
                continue
            before = out[i]
            out[i] = mul_mod(running[i & 3], before, r)
            running[i & 3] = mul_mod(running[i & 3], y, r)


def exponential(
    const uint32_t[::1] p_words, const uint32_t[::1] q_words, uint32_t[::1] out, uint32_t modulus,
    const uint32_t[::1] low, const uint32_t[::1] high
):
    """out = low[x & 4095] * high[x >> 12] for the words x modulo q; hidden gives 0, a gap FINITE, an absent word UNDEFINED."""
    cdef Py_ssize_t i
    cdef uint32_t x
    cdef modulus_t r = modulus_of(modulus)
    with nogil:
        for i in range(p_words.shape[0]):
            x = q_words[i]
            if p_words[i] & UNDEFINED:
                out[i] = FINITE if p_words[i] == GAP else UNDEFINED
            elif p_words[i] & HIDDEN:
                out[i] = 0
            elif x == ABSENT:
                out[i] = UNDEFINED
            else:
                out[i] = mul_mod(low[x & 4095], high[x >> 12], r)


def powers(uint32_t base, uint32_t[::1] out, uint32_t modulus):
    """out[i] = base^i."""
    cdef Py_ssize_t i
    cdef uint32_t x = 1
    cdef modulus_t r = modulus_of(modulus)
    for i in range(out.shape[0]):
        out[i] = x
        x = mul_mod(x, base, r)


def counters(uint64_t key, uint64_t first, uint32_t[::1] out_p, uint32_t[::1] out_q, uint32_t p, uint32_t q):
    """Fill with random residues number first, first + 1, ...; an output of no words is left out."""
    cdef Py_ssize_t i, n = out_p.shape[0]
    cdef bint both = out_q.shape[0] > 0
    cdef uint64_t w
    with nogil:
        if both:
            for i in range(n):
                w = mix_at(key, first + <uint64_t>i)
                out_p[i] = of_high(w, p)
                out_q[i] = of_low(w, q)
        else:
            for i in range(n):
                out_p[i] = of_high(mix_at(key, first + <uint64_t>i), p)


def hashes(
    const uint32_t[::1] a, const uint32_t[::1] a_q, uint64_t key, uint32_t[::1] out_p, uint32_t[::1] out_q,
    uint32_t p, uint32_t q, bint share
):
    """Fill with hashes of the words modulo p. `share`: what each contributes to a maximum (`proof.cells`)."""
    cdef Py_ssize_t i
    cdef uint32_t x
    cdef uint64_t w
    with nogil:
        for i in range(a.shape[0]):
            x = a[i]
            if x & UNDEFINED:
                out_p[i] = UNDEFINED
                out_q[i] = 0
            elif share and x & HIDDEN:
                out_p[i] = HIDDEN
                out_q[i] = 0
            elif share and x & MAXIMUM:
                out_p[i] = x
                out_q[i] = a_q[i]
            else:
                w = mix_at(key, x & (RESIDUE | HIDDEN))
                out_p[i] = of_high(w, p) | (MAXIMUM if share else 0)
                out_q[i] = of_low(w, q)


# --- products with vectors, and matrices for products -------------------------------------------------------------------


cdef inline uint64_t dot_step(uint64_t total, uint32_t x, uint32_t y, uint32_t m) noexcept nogil:
    # both below 2^24: the total is reduced long before it reaches 2^64
    total += <uint64_t>x * y
    return total % m if total >> 63 else total


def dots(const uint32_t[::1] a, const uint32_t[::1] v, uint32_t[::1] out, uint32_t modulus):
    """out[i] = the sum of a[i, j] v[j], of the residues in `a` (n, k). Returns the states of all words of `a` together."""
    cdef Py_ssize_t i, j, n = out.shape[0], k = v.shape[0]
    cdef uint64_t total
    cdef uint32_t x, states = 0
    with nogil:
        for i in range(n):
            total = 0
            for j in range(k):
                x = a[i * k + j]
                states |= x
                total = dot_step(total, x & RESIDUE, v[j], modulus)
            out[i] = <uint32_t>(total % modulus)
    return states & ~<uint32_t>RESIDUE


def drawn_dots(uint64_t key, uint64_t first, const uint32_t[::1] v, uint32_t[::1] out, uint32_t modulus):
    """out[i] = the sum of a[i, j] v[j] for random residues a (n, k) modulo p, which are numbers `first` and on of a key."""
    cdef Py_ssize_t i, j, n = out.shape[0], k = v.shape[0]
    cdef uint64_t total
    with nogil:
        for i in range(n):
            total = 0
            for j in range(k):
                total = dot_step(total, of_high(mix_at(key, first + <uint64_t>(i * k + j)), modulus), v[j], modulus)
            out[i] = <uint32_t>(total % modulus)


def drawn_sums(uint64_t key, uint64_t first, const uint32_t[::1] v, uint64_t[::1] total, uint32_t[::1] out, uint32_t modulus):
    """out[j] = the sum of v[i] a[i, j] for random residues a (n, k) modulo p as above; `total`: k words of scratch."""
    cdef Py_ssize_t i, j, n = v.shape[0], k = out.shape[0]
    with nogil:
        for j in range(k):
            total[j] = 0
        for i in range(n):
            for j in range(k):
                total[j] = dot_step(total[j], of_high(mix_at(key, first + <uint64_t>(i * k + j)), modulus), v[i], modulus)
        for j in range(k):
            out[j] = <uint32_t>(total[j] % modulus)


def centre(const uint32_t[::1] a, double[::1] out, uint32_t modulus):
    """out = the residues of words, in [-modulus / 2, modulus / 2]."""
    if a.shape[0]:
        with nogil:
            words_centre(&a[0], &out[0], a.shape[0], <int>modulus)


def drawn_centred(uint64_t key, uint64_t first, double[::1] out, uint32_t modulus, bint high):
    """out = random residues number `first` and on of a key, modulo p (`high`) or q, in [-modulus / 2, modulus / 2]."""
    if out.shape[0]:
        with nogil:
            drawn_centre(key, first, &out[0], out.shape[0], modulus, high)


# --- matrices of low rank: a left factor (rows, rank), a right one (rank, columns), residues around zero ----------------


def thin(const double[:, ::1] left, const double[:, ::1] right, Py_ssize_t first, uint32_t[::1] out, uint32_t modulus):
    """out = the elements number `first` and on, row by row, of the product of two factors modulo the modulus."""
    cdef Py_ssize_t row, at, some, done = 0, n = out.shape[0], columns = right.shape[1]
    with nogil:
        while done < n:
            row, at = (first + done) // columns, (first + done) % columns
            some = min(n - done, columns - at)
            thin_words(&left[row, 0], &right[0, at], columns, 0, &out[done], some, modulus)
            done += some


def spanned(const double[:, ::1] a, const double[:, ::1] left, const double[:, ::1] right, uint32_t modulus):
    """Return whether all residues of a matrix are those of the product of two factors."""
    cdef Py_ssize_t i
    cdef int64_t bad = 0
    with nogil:
        for i in range(a.shape[0]):
            bad = thin_differs(&a[i, 0], &left[i, 0], &right[0, 0], a.shape[1], a.shape[1], modulus)
            if bad:
                break
    return bad == 0
