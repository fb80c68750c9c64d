# DDR pages that strided transfers open. Imports nothing but _status. Must not touch Python objects in loops.
#
# Addresses advance regularly, so the pages of all runs are differences of floor sums: the cost of a transfer does not
# grow with the number of runs of its longest level. Twin: reference/pages.py, run by run; door: _facade_pages.py.

from tx8fast._kernels._status cimport BAD_INPUT, OK

cdef enum:
    LEVELS = 3
    MAX_RUNS = 1 << 26   # of one level; more than a row may have (isa.limits)
    MAX_BOXES = 1 << 30  # of the two shorter levels together


cdef inline long long floor_div(long long a, long long b) noexcept nogil:
    cdef long long q = a // b
    return q - 1 if q * b > a else q


cdef long long floor_sum(long long b, long long a, long long n, long long m) noexcept nogil:
    """Return the sum of floor((b + i * a) / m) for 0 <= i < n."""
    cdef long long total = 0, q, top
    while n > 0:
        q = floor_div(a, m)
        total += n * (n - 1) // 2 * q
        a -= q * m
        q = floor_div(b, m)
        total += n * q
        b -= q * m
        top = a * n + b
        if top < m:
            break
        n, b, a, m = top // m, top % m, m, a
    return total


cdef long long box_sum(long long start, const long long* stride, const long long* count, long long m) noexcept nogil:
    """Return the sum of floor(address / m) over a box of addresses."""
    cdef int longest = 0, a, b
    cdef long long total = 0, i, j
    for a in range(1, LEVELS):
        if count[a] > count[longest]:
            longest = a
    a = (longest + 1) % LEVELS
    b = (longest + 2) % LEVELS
    for j in range(count[b]):
        for i in range(count[a]):
            total += floor_sum(start + i * stride[a] + j * stride[b], stride[longest], count[longest], m)
    return total


cdef long long opened(long long start, long long size, const long long* s, const long long* n,
                      long long page) noexcept nogil:
    cdef long long runs = n[0] * n[1] * n[2], last = size - 1, done = 0, total, gap, end, changes
    cdef long long[LEVELS] box
    cdef int k, j
    start = start - floor_div(start, page) * page + page  # only the phase matters; gaps stay non-negative
    if runs == 1:
        return floor_div(start + last, page) - start // page + 1 - (size + page - 1) // page
    total = box_sum(start + last, s, n, page) - box_sum(start, s, n, page) + runs - runs * ((size + page - 1) // page)
    for k in range(LEVELS):
        # transitions of level k happen at the last index of every level below
        for j in range(LEVELS):
            box[j] = min(n[j], 1) if j < k else n[j] - 1 if j == k else n[j]
        changes = box[0] * box[1] * box[2]
        if changes > 0:
            gap = s[k] - done - last
            end = start + done + last
            # a jump of a page or more always changes the page; a smaller one by -1, 0 or +1, never both
            if -page < gap < page:
                changes = box_sum(end + gap, s, box, page) - box_sum(end, s, box, page)
                if changes < 0:
                    changes = -changes
            total += changes
        done += (n[k] - 1) * s[k]
    return total


cdef int fill(const long long[::1] start, const long long[:, ::1] runs, long long page,
              long long[::1] out) noexcept nogil:
    cdef Py_ssize_t i
    cdef int k
    cdef long long longest, boxes, shorter
    cdef long long[LEVELS] stride
    cdef long long[LEVELS] count
    for i in range(start.shape[0]):
        longest = boxes = 1
        for k in range(LEVELS):
            stride[k] = runs[i, 1 + 2 * k]
            count[k] = runs[i, 2 + 2 * k]
            if count[k] < 0 or count[k] >= MAX_RUNS:
                return BAD_INPUT
            shorter = min(longest, count[k])
            longest = max(longest, count[k])
            boxes *= shorter
        if boxes > MAX_BOXES:
            return BAD_INPUT
        out[i] = opened(start[i], runs[i, 0], stride, count, page)
    return OK


def extra_pages(
    const long long[::1] start,       # IN  (n,) byte addresses
    const long long[:, ::1] runs,     # IN  (n, 7) bytes of a run, then stride and count of every level, innermost first
    long long page,                   # IN  bytes
    long long[::1] out,               # OUT (n,)
):
    """Return a status. Complexity: O(transfers * runs of the two shorter levels * log page)."""
    cdef int status
    if page < 1 or runs.shape[1] != 1 + 2 * LEVELS or runs.shape[0] != start.shape[0] or out.shape[0] != start.shape[0]:
        return BAD_INPUT
    with nogil:
        status = fill(start, runs, page, out)
    return status
