# Cells of the shadow memory: moving runs, and operands between memory and arrays. Imports nothing but _residues.
# Must not know rows, formats or primes beyond their numbers.
#
# A cell stands for two bytes: state (4 bits), kind (4 bits), residue (24 bits) in a word modulo p, the word modulo q in a second
# plane. The kind is that of the number format the element was written in; a four-byte element continues in a cell of kind
# CONTINUED that repeats the residue; BYTES cells hold two true bytes, and a zero of them is the number zero in every format.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tx8fast._kernels._residues cimport ABSENT, HIDDEN, RESIDUE, UNDEFINED, mix_at, of_high, of_low

cdef enum:
    CONTINUED = 5
    BYTES = 6
    SHIFT = 24
    STATE_AND_RESIDUE = 0xF0FFFFFF
    KIND = 0x0F000000
    ZERO = 0x06000000

cdef enum Mode:
    LOAD_P, LOAD_Q, STORE_P, STORE_Q, CENTRE_P, CENTRE_Q


cdef int64_t load_p(const uint32_t* m, uint32_t* out, Py_ssize_t n, int width, uint32_t kind) noexcept nogil:
    """Return how many elements are of another kind; never-written ones are not counted."""
    cdef Py_ssize_t i
    cdef uint32_t w, x, bad = 0
    cdef uint32_t want = kind << SHIFT
    if width == 1:
        for i in range(n):
            w = m[i]
            x = UNDEFINED
            x = 0 if w == ZERO else x
            x = w & STATE_AND_RESIDUE if (w & KIND) == want else x
            out[i] = x
            bad += (x == UNDEFINED) & ((w & KIND) != 0)
    else:
        for i in range(n):
            w = m[2 * i]
            x = UNDEFINED
            x = 0 if w == ZERO and m[2 * i + 1] == ZERO else x
            if (w & KIND) == want and m[2 * i + 1] == (<uint32_t>CONTINUED << SHIFT | (w & RESIDUE)):
                x = w & STATE_AND_RESIDUE
            out[i] = x
            bad += (x == UNDEFINED) & ((w & KIND) != 0)
    return bad


cdef int64_t centre_p(const uint32_t* m, double* out, Py_ssize_t n, int width, uint32_t kind, uint32_t modulus) noexcept nogil:
    """Return how many elements have no residue."""
    cdef Py_ssize_t i
    cdef uint32_t w, bad = 0, want = kind << SHIFT, half = modulus >> 1, no
    cdef int x
    if width == 1:
        for i in range(n):
            w = m[i]
            x = <int>(w & RESIDUE)
            x = x - <int>modulus if <uint32_t>x > half else x
            no = ((w & (KIND | UNDEFINED | HIDDEN)) != want) & (w != ZERO)
            bad += no
            out[i] = x
    else:
        for i in range(n):
            w = m[2 * i]
            x = <int>(w & RESIDUE)
            no = ((w & (KIND | UNDEFINED | HIDDEN)) != want) | (
                m[2 * i + 1] != (<uint32_t>CONTINUED << SHIFT | (w & RESIDUE)))
            no &= (w != ZERO) | (m[2 * i + 1] != ZERO)
            x = x - <int>modulus if <uint32_t>x > half else x
            bad += no
            out[i] = x
    return bad


cdef int64_t centre_q(const uint32_t* m, double* out, Py_ssize_t n, int width, uint32_t modulus) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t w, bad = 0, half = modulus >> 1
    cdef int x
    for i in range(n):
        w = m[width * i]
        bad += w == ABSENT
        x = <int>(w & RESIDUE)
        out[i] = x - <int>modulus if <uint32_t>x > half else x
    return bad


cdef void store_p(uint32_t* m, const uint32_t* a, Py_ssize_t n, Py_ssize_t pad, int width, uint32_t kind) noexcept nogil:
    cdef Py_ssize_t i
    if width == 1:
        for i in range(n):
            m[i] = a[i] | kind << SHIFT
    else:
        for i in range(n):
            m[2 * i] = a[i] | kind << SHIFT
            m[2 * i + 1] = <uint32_t>CONTINUED << SHIFT | (a[i] & RESIDUE)
    for i in range(n * width, (n + pad) * width):
        m[i] = ZERO


cdef void store_q(uint32_t* m, const uint32_t* a, Py_ssize_t n, Py_ssize_t pad, int width) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        m[width * i] = a[i]
    for i in range(n, n + pad):
        m[width * i] = 0


cdef struct Form:
    Py_ssize_t n, pos, c
    Py_ssize_t block, full, tail  # elements of a block, blocks (the last may be partly padding), elements of the tail
    Py_ssize_t stride             # cells from batch to batch
    int width                     # cells of an element
    uint32_t kind


cdef int64_t run(Mode mode, uint32_t* m, uint32_t* a, double* f, Py_ssize_t n, Py_ssize_t pad, Form* g, uint32_t modulus) noexcept nogil:
    cdef Py_ssize_t i
    if mode == LOAD_P:
        return load_p(m, a, n, g.width, g.kind)
    if mode == CENTRE_P:
        return centre_p(m, f, n, g.width, g.kind, modulus)
    if mode == CENTRE_Q:
        return centre_q(m, f, n, g.width, modulus)
    if mode == STORE_P:
        store_p(m, a, n, pad, g.width, g.kind)
    elif mode == STORE_Q:
        store_q(m, a, n, pad, g.width)
    else:
        for i in range(n):
            a[i] = m[g.width * i]
    return 0


cdef int64_t walk(Mode mode, uint32_t* m, uint32_t* a, double* f, Form* g, uint32_t modulus) noexcept nogil:
    """Visit the runs of consecutive channels of an operand; `a` or `f` is the (n, pos, c) array."""
    cdef Py_ssize_t i, p, b, lanes, at
    cdef int64_t bad = 0
    cdef uint32_t* row
    for i in range(g.n):
        for b in range(g.full):
            lanes = min(g.block, g.c - b * g.block)
            for p in range(g.pos):
                at = (i * g.pos + p) * g.c + b * g.block
                row = m + i * g.stride + (b * g.pos + p) * g.block * g.width
                bad += run(mode, row, a + at, f + at, lanes, g.block - lanes, g, modulus)
        if g.tail:
            lanes = g.c - g.full * g.block
            for p in range(g.pos):
                at = (i * g.pos + p) * g.c + g.full * g.block
                row = m + i * g.stride + (g.full * g.pos * g.block + p * g.tail) * g.width
                bad += run(mode, row, a + at, f + at, lanes, g.tail - lanes, g, modulus)
    return bad


cdef Form form_of(const int64_t[::1] form, int width, uint32_t kind) noexcept nogil:
    cdef Form g
    g.n, g.pos, g.c, g.block, g.full, g.tail, g.stride = form[0], form[1], form[2], form[3], form[4], form[5], form[6]
    g.width, g.kind = width, kind
    return g


def words(uint32_t[::1] plane, Py_ssize_t at, const int64_t[::1] form, int width, uint32_t kind, uint32_t[::1] array, int mode):
    """Copy an operand between memory and an array: mode 0 load p, 1 load q, 2 store p, 3 store q. Returns misread elements."""
    cdef Form g = form_of(form, width, kind)
    cdef int64_t bad
    if array.shape[0] == 0:
        return 0
    with nogil:
        bad = walk(<Mode>mode, &plane[at], &array[0], NULL, &g, 0)
    return bad


def centred(
    uint32_t[::1] plane, Py_ssize_t at, const int64_t[::1] form, int width, uint32_t kind, double[::1] array, uint32_t modulus,
    bint words_q
):
    """Load an operand as residues in [-modulus / 2, modulus / 2]. Returns how many elements have none."""
    cdef Form g = form_of(form, width, kind)
    cdef int64_t bad
    if array.shape[0] == 0:
        return 0
    with nogil:
        bad = walk(CENTRE_Q if words_q else CENTRE_P, &plane[at], NULL, &array[0], &g, modulus)
    return bad


def runs(
    uint32_t[::1] dst, Py_ssize_t dst_at, const int64_t[::1] dst_levels, const uint32_t[::1] src, Py_ssize_t src_at,
    const int64_t[::1] src_levels, Py_ssize_t size
):
    """Copy runs of `size` cells; levels are (stride, count) three times, innermost first, and both sides have equally many runs."""
    cdef Py_ssize_t k, count, d0 = 0, d1 = 0, d2 = 0, s0 = 0, s1 = 0, s2 = 0
    cdef uint32_t* to
    cdef const uint32_t* come
    count = src_levels[1] * src_levels[3] * src_levels[5]
    if count == 0 or size == 0:
        return
    with nogil:
        for k in range(count):
            to = &dst[dst_at] + d0 * dst_levels[0] + d1 * dst_levels[2] + d2 * dst_levels[4]
            come = &src[src_at] + s0 * src_levels[0] + s1 * src_levels[2] + s2 * src_levels[4]
            memcpy(to, come, size * sizeof(uint32_t))
            d0 += 1
            if d0 == dst_levels[1]:
                d0, d1 = 0, d1 + 1
                if d1 == dst_levels[3]:
                    d1, d2 = 0, d2 + 1
            s0 += 1
            if s0 == src_levels[1]:
                s0, s1 = 0, s1 + 1
                if s1 == src_levels[3]:
                    s1, s2 = 0, s2 + 1


cdef void draw(
    uint32_t* to_p, uint32_t* to_q, bint both, Py_ssize_t o, Py_ssize_t end, const Form* g, uint64_t key, uint32_t p, uint32_t q
) noexcept nogil:
    """Fill cells [o, end) of a tensor that is random elements: element (i, pos, channel) is number (i * P + pos) * C + channel."""
    cdef Py_ssize_t used = (g.full * g.block + g.tail) * g.pos * g.width
    cdef Py_ssize_t split = g.full * g.block * g.pos * g.width
    cdef Py_ssize_t i, r, row, lane, first, length, stop, channel
    cdef uint32_t x
    cdef uint64_t w
    while o < end:
        i, r = o // g.stride, o % g.stride
        if r >= used:
            stop = min(end - o, g.stride - r)
            for lane in range(stop):
                to_p[lane] = ZERO
                if both:
                    to_q[lane] = 0
            to_p += stop
            to_q += stop
            o += stop
            continue
        length = g.block if r < split else g.tail
        first = r if r < split else r - split
        row = first // (length * g.width)
        lane = first % (length * g.width)
        channel = (row // g.pos) * g.block if r < split else g.full * g.block
        row = row % g.pos
        stop = min(end - o, length * g.width - lane)
        for lane in range(lane, lane + stop):
            if channel + lane // g.width >= g.c:
                to_p[0] = ZERO
                if both:
                    to_q[0] = 0
            else:
                w = mix_at(key, <uint64_t>((i * g.pos + row) * g.c + channel + lane // g.width))
                x = of_high(w, p)
                to_p[0] = (<uint32_t>CONTINUED if lane % g.width else g.kind) << SHIFT | x
                if both:
                    to_q[0] = of_low(w, q)
            to_p += 1
            to_q += 1
        o += stop


def drawn(
    uint32_t[::1] dst_p, uint32_t[::1] dst_q, Py_ssize_t dst_at, Py_ssize_t src_at, const int64_t[::1] levels, Py_ssize_t size,
    const int64_t[::1] form, int width, uint32_t kind, uint64_t key, uint32_t p, uint32_t q
):
    """Fill consecutive cells with the runs that `levels` picks of a random tensor; without q words if `dst_q` has none."""
    cdef Form g = form_of(form, width, kind)
    cdef bint both = dst_q.shape[0] > 0
    cdef Py_ssize_t a, b, c, o, at = dst_at
    with nogil:
        for c in range(levels[5]):
            for b in range(levels[3]):
                for a in range(levels[1]):
                    o = src_at + a * levels[0] + b * levels[2] + c * levels[4]
                    draw(&dst_p[at], &dst_q[at] if both else NULL, both, o, o + size, &g, key, p, q)
                    at += size


def add_reduced(double[::1] total, const double[::1] part, double modulus):
    """total += part, each brought to [-modulus / 2, modulus / 2] first; all are integers below 2^53."""
    cdef Py_ssize_t i
    cdef double x, inverse = 1 / modulus, magic = 6755399441055744.0
    with nogil:
        for i in range(part.shape[0]):
            x = part[i]
            # adding and taking away 1.5 * 2^52 rounds to an integer
            total[i] += x - (((x * inverse) + magic) - magic) * modulus


def residues(const double[::1] total, uint32_t[::1] out, uint32_t modulus):
    """out = total modulo the modulus, for integers of less than 2^53."""
    cdef Py_ssize_t i
    cdef double x, inverse = 1 / <double>modulus, magic = 6755399441055744.0
    cdef int y
    with nogil:
        for i in range(total.shape[0]):
            x = total[i]
            y = <int>(x - (((x * inverse) + magic) - magic) * <double>modulus)
            out[i] = <uint32_t>(y + <int>modulus if y < 0 else y)
