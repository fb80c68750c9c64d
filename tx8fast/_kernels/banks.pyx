# Who gets the banks of a scratchpad: many sets of streams, each arbitrated beat by beat for a while. Imports nothing
# but _status. Must not touch Python objects in loops, or know engines.
#
# Twin: reference/banks.py; door: _facade_banks.py.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from tx8fast._kernels._status cimport OK, OUT_OF_MEMORY


cdef struct Stream:
    int64_t lane, step
    int64_t bank, beat  # that comes next: its bank, and which of the bank's beats in a row it is
    int64_t credit, served, before
    int64_t first, last  # the streams of the same lane


cdef inline bint ahead(const Stream* streams, int64_t k, int64_t fifo) noexcept nogil:
    """Whether one more beat would leave another stream of the same lane further behind than its buffer holds."""
    cdef const Stream* me = &streams[k]
    cdef int64_t j
    for j in range(me.first, me.last):
        if j != k and (me.served + 1) * streams[j].step > (streams[j].served + fifo) * me.step:
            return True
    return False


cdef struct State:
    Stream* streams
    int64_t* taken      # of every bank, the last cycle in which it served a stream
    int64_t cycle, turn  # the cycle, of all cycles of all sets, and the stream whose turn it is


cdef void copied(State* to, const State* state, int64_t n, int64_t banks) noexcept nogil:
    memcpy(to.streams, state.streams, n * sizeof(Stream))
    memcpy(to.taken, state.taken, banks * sizeof(int64_t))
    to.cycle, to.turn = state.cycle, state.turn


cdef bint serve(State* state, State* full, bint known, int64_t n, int64_t steps, int64_t banks, int64_t per_bank,
                int64_t fifo) noexcept nogil:
    """The rest of one cycle: every stream in turn gets the bank it waits for, unless one before it has. Return whether a full buffer
    has made one wait, now or before (known); `full` becomes the state before the first time."""
    cdef Stream* me
    cdef int64_t k
    for k in range(state.turn, n):
        me = &state.streams[k]
        if me.credit + me.step >= steps and state.taken[me.bank] != state.cycle:
            if ahead(state.streams, k, fifo):
                if not known:
                    known, state.turn = True, k
                    copied(full, state, n, banks)
            else:
                state.taken[me.bank] = state.cycle
                me.served += 1
                me.credit -= steps
                me.beat += 1
                if me.beat == per_bank:
                    me.beat = 0
                    me.bank = me.bank + 1 if me.bank + 1 < banks else 0
        me.credit += me.step
    state.turn = 0
    state.cycle += 1
    return known


def shares(
    const int64_t[::1] begin, const int64_t[::1] lane, const int64_t[::1] beat, const int64_t[::1] step,
    int64_t banks, int64_t per_bank, const int64_t[::1] fifos, int64_t steps, int64_t warm, int64_t window, int64_t jitter,
    double[:, :, ::1] out,
):
    """Set out[d, i, l] to the share of its rate that lane l of set i gets with buffers of fifos[d] beats; 1 where the lane has no
    stream.

    Streams begin[i] to begin[i + 1] are set i, in order of priority, those of a lane beside each other. The facade has
    checked ranges; `fifos` ascend; `out` comes filled with 1. Until the first buffer is full, deeper ones change nothing."""
    cdef int64_t i, k, n, first, d, most = 1, place, n_fifos = fifos.shape[0]
    cdef bint known
    cdef State state, full
    cdef Stream* streams
    cdef Stream* me
    for i in range(begin.shape[0] - 1):
        most = max(most, begin[i + 1] - begin[i])
    streams = state.streams = <Stream*>malloc(most * sizeof(Stream))
    full.streams = <Stream*>malloc(most * sizeof(Stream))
    state.taken, full.taken = <int64_t*>calloc(banks, sizeof(int64_t)), <int64_t*>calloc(banks, sizeof(int64_t))
    state.cycle, state.turn = 1, 0
    try:
        if streams == NULL or full.streams == NULL or state.taken == NULL or full.taken == NULL:
            return <int>OUT_OF_MEMORY
        with nogil:
            for i in range(begin.shape[0] - 1):
                n = begin[i + 1] - begin[i]
                for k in range(n):
                    me = &streams[k]
                    me.lane, me.step = lane[begin[i] + k], step[begin[i] + k]
                    place = beat[begin[i] + k] % (banks * per_bank)
                    me.bank, me.beat = place // per_bank, place % per_bank
                    me.credit = me.served = me.before = 0
                    me.first = streams[k - 1].first if k > 0 and streams[k - 1].lane == me.lane else k
                for k in range(n - 1, -1, -1):
                    me = &streams[k]
                    me.last = streams[k + 1].last if k + 1 < n and streams[k + 1].lane == me.lane else k + 1
                first, known = state.cycle, True
                for d in range(n_fifos):
                    if not known:
                        out[d, i, :] = out[d - 1, i, :]
                        continue
                    if d > 0:
                        copied(&state, &full, n, banks)
                    known = False
                    while state.cycle < first + warm + window:
                        if state.cycle == first + warm and state.turn == 0:
                            for k in range(n):
                                streams[k].before = streams[k].served
                        known = serve(&state, &full, known, n, steps, banks, per_bank, fifos[d])
                    for k in range(n):
                        me = &streams[k]
                        out[d, i, me.lane] = min(
                            out[d, i, me.lane],
                            <double>(me.served - me.before + jitter) / (<double>(window * me.step) / <double>steps),
                        )
    finally:
        free(state.streams)
        free(full.streams)
        free(state.taken)
        free(full.taken)
    return <int>OK
