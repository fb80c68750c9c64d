# Binary heap of timed entries on memory that the caller owns. Imports the C library only.
# Must not allocate: the caller provides room for the most entries there can be.

from libc.stdint cimport int64_t


cdef struct Entry:
    double key
    int64_t who  # what it is about, and the tie break
    int64_t row


cdef struct Heap:
    Entry* items
    int64_t size


cdef inline bint less(Entry* a, Entry* b) noexcept nogil:
    return a.key < b.key or (a.key == b.key and a.who < b.who)


cdef inline void push(Heap* heap, double key, int64_t who, int64_t row) noexcept nogil:
    cdef Entry item
    cdef int64_t i = heap.size, up
    item.key = key
    item.who = who
    item.row = row
    heap.size += 1
    while i > 0:
        up = (i - 1) >> 1
        if not less(&item, &heap.items[up]):
            break
        heap.items[i] = heap.items[up]
        i = up
    heap.items[i] = item


cdef inline Entry pop(Heap* heap) noexcept nogil:
    cdef Entry top = heap.items[0]
    cdef Entry item
    cdef int64_t i = 0, child
    heap.size -= 1
    item = heap.items[heap.size]
    while True:
        child = 2 * i + 1
        if child >= heap.size:
            break
        if child + 1 < heap.size and less(&heap.items[child + 1], &heap.items[child]):
            child += 1
        if not less(&heap.items[child], &item):
            break
        heap.items[i] = heap.items[child]
        i = child
    heap.items[i] = item
    return top
