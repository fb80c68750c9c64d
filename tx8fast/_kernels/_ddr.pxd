# The DDR of one chip: all transfers in their data phase have the same rate, so one virtual clock (bytes served per
# transfer) orders their ends. Imports _heap. Must not allocate, or know tiles' programs.

from libc.math cimport INFINITY
from libc.stdint cimport int64_t

from tx8fast._kernels._heap cimport Entry, Heap, pop, push


cdef struct Ddr:
    Heap flows  # key: served bytes at which the transfer ends
    double now, served, rate
    double finish  # when the next transfer ends, if none begins before


cdef inline double next_end(Ddr* ddr, double port_rate, double total_rate) noexcept nogil:
    """When the first transfer ends, if none begins before."""
    if ddr.flows.size == 0:
        return INFINITY
    ddr.rate = min(port_rate, total_rate / <double>ddr.flows.size)
    return ddr.now + (ddr.flows.items[0].key - ddr.served) / ddr.rate


cdef inline void begin_flow(Ddr* ddr, double when, Entry* item, int64_t nbytes) noexcept nogil:
    """A transfer enters its data phase at `when`; `rate` is that of the transfers before it."""
    if ddr.flows.size > 0 and when > ddr.now:
        ddr.served += (when - ddr.now) * ddr.rate
    ddr.now = max(ddr.now, when)
    push(&ddr.flows, ddr.served + <double>nbytes, item.who, item.row)


cdef inline Entry end_flow(Ddr* ddr, double when) noexcept nogil:
    """Take out the transfer that ends at `when`."""
    cdef Entry item = pop(&ddr.flows)
    ddr.now = max(ddr.now, when)
    ddr.served = item.key if ddr.flows.size > 0 else 0.0
    return item
