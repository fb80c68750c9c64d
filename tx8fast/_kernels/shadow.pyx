# Cells of the shadow memory: moving runs, and operands between memory and arrays. Imports nothing but _residues.
# Must not know rows, formats or primes beyond their numbers.
#
# A cell stands for two bytes: state (4 bits), kind (4 bits), residue (24 bits) in a word modulo p, the word modulo q in a second
# plane. The kind is that of the number format the element was written in; a four-byte element continues in a cell of kind
# CONTINUED that repeats the residue; BYTES cells hold two true bytes, and a zero of them is the number zero in every format.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tx8fast._kernels._residues cimport mix_at, of_high, of_low

cdef enum:
    CONTINUED = 5
    SHIFT = 24
    ZERO = 0x06000000  # two true bytes, both zero

    RANK = 8
    PART = 128         # elements of a thin matrix that are there at a time

cdef enum Mode:
    LOAD_P, LOAD_Q, STORE_P, STORE_Q, CENTRE_P, CENTRE_Q


cdef extern from "_cells.h":
    int64_t cells_load1(const uint32_t* m, uint32_t* out, Py_ssize_t n, uint32_t want) noexcept nogil
    int64_t cells_load2(const uint32_t* m, uint32_t* out, Py_ssize_t n, uint32_t want) noexcept nogil
    int64_t cells_centre1(const uint32_t* m, double* out, Py_ssize_t n, uint32_t want, int p) noexcept nogil
    int64_t cells_centre2(const uint32_t* m, double* out, Py_ssize_t n, uint32_t want, int p) noexcept nogil
    int64_t cells_centre_q(const uint32_t* m, double* out, Py_ssize_t n, int q, int width) noexcept nogil
    void cells_store1(uint32_t* m, const uint32_t* a, Py_ssize_t n, uint32_t kind) noexcept nogil
    void cells_store2(uint32_t* m, const uint32_t* a, Py_ssize_t n, uint32_t kind) noexcept nogil
    void thin_words(const double* u, const double* v, Py_ssize_t step, uint32_t kind, uint32_t* out, Py_ssize_t n, double m) noexcept nogil
    void sums_reduce(double* total, const double* part, Py_ssize_t n, double m) noexcept nogil
    void sums_residues(const double* total, uint32_t* out, Py_ssize_t n, double m) noexcept nogil
    void sums_words1(const double* t, const uint32_t* add, uint32_t want, uint32_t* out, Py_ssize_t n, double m) noexcept nogil
    void sums_words2(const double* t, const uint32_t* add, uint32_t want, uint32_t* out, Py_ssize_t n, double m) noexcept nogil
    void sums_words_q(const double* t, const uint32_t* add, int width, uint32_t* out, Py_ssize_t n, double m) noexcept nogil


cdef void store_p(uint32_t* m, const uint32_t* a, Py_ssize_t n, Py_ssize_t pad, int width, uint32_t kind) noexcept nogil:
    cdef Py_ssize_t i
    if width == 1:
        cells_store1(m, a, n, kind << SHIFT)
    else:
        cells_store2(m, a, n, kind << SHIFT)
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
        return cells_load1(m, a, n, g.kind << SHIFT) if g.width == 1 else cells_load2(m, a, n, g.kind << SHIFT)
    if mode == CENTRE_P:
        if g.width == 1:
            return cells_centre1(m, f, n, g.kind << SHIFT, <int>modulus)
        return cells_centre2(m, f, n, g.kind << SHIFT, <int>modulus)
    if mode == CENTRE_Q:
        return cells_centre_q(m, f, n, <int>modulus, g.width)
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
        for p in range(g.pos):
            at = (i * g.pos + p) * g.c
            for b in range(g.full):
                lanes = min(g.block, g.c - b * g.block)
                row = m + i * g.stride + (b * g.pos + p) * g.block * g.width
                bad += run(mode, row, a + at + b * g.block, f + at + b * g.block, lanes, g.block - lanes, g, modulus)
            if g.tail:
                lanes = g.c - g.full * g.block
                at += g.full * g.block
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


cdef struct Thin:
    const double* left       # (rows, RANK), NULL for a tensor that is no thin matrix
    const double* right      # (RANK, columns)
    Py_ssize_t columns


cdef void thin_part(const Thin* t, Py_ssize_t first, uint32_t kind, uint32_t* out, Py_ssize_t n, uint32_t m) noexcept nogil:
    """Fill with the elements number `first` and on of a thin matrix."""
    cdef Py_ssize_t row, at, some
    while n > 0:
        row, at = first // t.columns, first % t.columns
        some = min(n, t.columns - at)
        thin_words(t.left + row * RANK, t.right + at, t.columns, kind, out, some, m)
        first += some
        out += some
        n -= some


cdef void draw(
    uint32_t* to_p, uint32_t* to_q, bint both, Py_ssize_t o, Py_ssize_t end, const Form* g, uint64_t key, uint32_t p, uint32_t q,
    const Thin* thin_p, const Thin* thin_q
) noexcept nogil:
    """Fill cells [o, end) of a tensor that is random elements: element (i, pos, channel) is number (i * P + pos) * C + channel."""
    cdef Py_ssize_t used = (g.full * g.block + g.tail) * g.pos * g.width
    cdef Py_ssize_t split = g.full * g.block * g.pos * g.width
    cdef Py_ssize_t i, r, row, lane, first, length, stop, channel, there, begin
    cdef uint32_t x, y
    cdef uint32_t part_p[PART]
    cdef uint32_t part_q[PART]
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
        first = (i * g.pos + row) * g.c + channel
        if g.width == 1 and not both and channel + lane + stop <= g.c:
            if thin_p.left:
                thin_part(thin_p, first + lane, g.kind << SHIFT, to_p, stop, p)
            else:
                for r in range(stop):
                    to_p[r] = g.kind << SHIFT | of_high(mix_at(key, <uint64_t>(first + lane + r)), p)
            to_p += stop
            to_q += stop
            o += stop
            continue
        begin = there = 0
        for lane in range(lane, lane + stop):
            r = lane // g.width
            if channel + r >= g.c:
                to_p[0] = ZERO
                if both:
                    to_q[0] = 0
            else:
                if not thin_p.left:
                    w = mix_at(key, <uint64_t>(first + r))
                    x, y = of_high(w, p), of_low(w, q)
                else:
                    if r >= begin + there:
                        begin, there = r, min(<Py_ssize_t>PART, min(length, g.c - channel) - r)
                        thin_part(thin_p, first + r, 0, part_p, there, p)
                        if both:
                            thin_part(thin_q, first + r, 0, part_q, there, q)
                    x, y = part_p[r - begin], part_q[r - begin]
                to_p[0] = (<uint32_t>CONTINUED if lane % g.width else g.kind) << SHIFT | x
                if both:
                    to_q[0] = y
            to_p += 1
            to_q += 1
        o += stop


cdef Thin thin_of(const double[:, ::1] left, const double[:, ::1] right) noexcept nogil:
    cdef Thin t
    t.left, t.right, t.columns = NULL, NULL, 1
    if left.shape[0]:
        t.left, t.right, t.columns = &left[0, 0], &right[0, 0], right.shape[1]
    return t


def drawn(
    uint32_t[::1] dst_p, uint32_t[::1] dst_q, Py_ssize_t dst_at, Py_ssize_t src_at, const int64_t[::1] levels, Py_ssize_t size,
    const int64_t[::1] form, int width, uint32_t kind, uint64_t key, uint32_t p, uint32_t q,
    const double[:, ::1] left_p, const double[:, ::1] right_p, const double[:, ::1] left_q, const double[:, ::1] right_q
):
    """Fill consecutive cells with the runs that `levels` picks of a random tensor; without q words if `dst_q` has none. Factors
    of rows: a thin matrix, else every element is drawn for itself."""
    cdef Form g = form_of(form, width, kind)
    cdef Thin thin_p = thin_of(left_p, right_p), thin_q = thin_of(left_q, right_q)
    cdef bint both = dst_q.shape[0] > 0
    cdef Py_ssize_t a, b, c, o, at = dst_at
    with nogil:
        for c in range(levels[5]):
            for b in range(levels[3]):
                for a in range(levels[1]):
                    o = src_at + a * levels[0] + b * levels[2] + c * levels[4]
                    draw(&dst_p[at], &dst_q[at] if both else NULL, both, o, o + size, &g, key, p, q, &thin_p, &thin_q)
                    at += size


cdef inline uint32_t* row_of(uint32_t* m, const Form* g, Py_ssize_t i, Py_ssize_t b, Py_ssize_t p) noexcept nogil:
    """Return where block `b` of position `p` of batch `i` starts; block number `full` is the tail."""
    if b < g.full:
        return m + i * g.stride + (b * g.pos + p) * g.block * g.width
    return m + i * g.stride + (g.full * g.pos * g.block + p * g.tail) * g.width


def finish(
    const double[:, :, :] total, uint32_t[::1] out, Py_ssize_t out_at, const int64_t[::1] out_form, int out_width, uint32_t out_kind,
    uint32_t[::1] add, Py_ssize_t add_at, const int64_t[::1] add_form, int add_width, uint32_t add_kind, uint32_t modulus, bint words_q
):
    """Store sums (n, pos, c) modulo the modulus as an operand, partial sums from another operand of that shape added (if `add_width`)."""
    cdef Form g = form_of(out_form, out_width, out_kind), h = form_of(add_form, add_width, add_kind)
    cdef Py_ssize_t i, b, p, lanes, room
    cdef const double* sums
    cdef uint32_t words[128]
    cdef uint32_t* to
    if g.n * g.pos * g.c == 0 or g.block > 128:
        return
    with nogil:
        for i in range(g.n):
            for b in range(g.full + (g.tail > 0)):
                room = g.block if b < g.full else g.tail
                lanes = min(room, g.c - b * g.block)
                for p in range(g.pos):
                    sums = &total[i, p, b * g.block]
                    if add_width == 0:
                        sums_residues(sums, words, lanes, modulus)
                    elif words_q:
                        sums_words_q(sums, row_of(&add[add_at], &h, i, b, p), add_width, words, lanes, modulus)
                    elif add_width == 1:
                        sums_words1(sums, row_of(&add[add_at], &h, i, b, p), add_kind << SHIFT, words, lanes, modulus)
                    else:
                        sums_words2(sums, row_of(&add[add_at], &h, i, b, p), add_kind << SHIFT, words, lanes, modulus)
                    to = row_of(&out[out_at], &g, i, b, p)
                    if words_q:
                        store_q(to, words, lanes, room - lanes, out_width)
                    else:
                        store_p(to, words, lanes, room - lanes, out_width, out_kind)


def add_reduced(double[::1] total, const double[::1] part, double modulus):
    """total += part, each brought to [-modulus / 2, modulus / 2] first; all are integers below 2^53."""
    if part.shape[0]:
        with nogil:
            sums_reduce(&total[0], &part[0], part.shape[0], modulus)


def residues(const double[::1] total, uint32_t[::1] out, uint32_t modulus):
    """out = total modulo the modulus, for integers of less than 2^53."""
    if total.shape[0]:
        with nogil:
            sums_residues(&total[0], &out[0], total.shape[0], modulus)
