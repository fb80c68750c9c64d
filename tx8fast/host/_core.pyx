# The binding of the C core: tiles, and what is done to several of them. Imports nothing. Must not know programs.
# Twin: simulator/exact*.py, one element at a time; door: core.py.

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef extern from "tx8_core.h" nogil:
    ctypedef struct tx8_row:
        pass
    ctypedef struct tx8_outbox:
        int64_t count
    ctypedef struct tx8_tile:
        uint8_t* spm
        int64_t spm_bytes
        uint8_t* ddr
        int64_t ddr_base
        int64_t ddr_bytes
        const int64_t* slots
        int64_t n_slots
        int64_t number
        int64_t chip
        const tx8_row* rows
        const int64_t* addresses
        int64_t at
        int64_t end
        const int64_t* calls
        const int64_t* call_at
        int64_t n_calls
        int64_t[5] work
        int64_t before
        uint64_t result
        int64_t result_index
        int status
        int64_t[5] found
        tx8_outbox outbox
    int TX8_WORK
    int TX8_DONE, TX8_BAD_CALL, TX8_BAD_OPCODE, TX8_BAD_FORMAT, TX8_BAD_ROUNDING, TX8_BAD_SPM, TX8_BAD_DDR, TX8_BAD_UNIT
    int TX8_BAD_UNIT_LOOP, TX8_BAD_OVERLAP, TX8_BAD_RUNS, TX8_BAD_GATHER, TX8_BAD_MESSAGE, TX8_BAD_NUMBER, TX8_BAD_NUMBER_FORMAT
    int TX8_BAD_SLOT, TX8_BAD_BATCH, TX8_BAD_DIM, TX8_BAD_OFFSET, TX8_BAD_SHAPE, TX8_NO_MEMORY
    void tx8_run_tile(tx8_tile* tile)
    int tx8_deliver(tx8_tile* sender, tx8_tile** tiles, int64_t* monitors, int64_t tiles_per_chip, int64_t n_chips)
    void tx8_free(tx8_tile* tile)
    int tx8_levels()
    int tx8_use_level(int level)


cdef extern from "rounds.h" nogil:
    ctypedef struct tx8_stream:
        tx8_tile* tile
        int64_t number
        int64_t n_rows
        const int64_t* stops
        int64_t n_stops
        int64_t at
    int TX8_ROW_FAILED, TX8_SEND_FAILED, TX8_NOT_A_MEMBER, TX8_STUCK, TX8_LEFT_OVER, TX8_ROUNDS_NO_MEMORY
    int tx8_run_streams(tx8_stream* streams, int64_t n, tx8_tile** tiles, int64_t* monitors, int64_t tiles_per_chip, int64_t n_chips,
                        int threads, int64_t* which)


#: why a stretch ended, by name
STATUS = {
    "done": TX8_DONE, "bad_call": TX8_BAD_CALL, "bad_opcode": TX8_BAD_OPCODE,
    "bad_format": TX8_BAD_FORMAT, "bad_rounding": TX8_BAD_ROUNDING, "bad_spm": TX8_BAD_SPM,
    "bad_ddr": TX8_BAD_DDR, "bad_unit": TX8_BAD_UNIT, "bad_unit_loop": TX8_BAD_UNIT_LOOP,
    "bad_overlap": TX8_BAD_OVERLAP, "bad_runs": TX8_BAD_RUNS, "bad_gather": TX8_BAD_GATHER,
    "bad_message": TX8_BAD_MESSAGE, "bad_number": TX8_BAD_NUMBER, "bad_number_format": TX8_BAD_NUMBER_FORMAT,
    "bad_slot": TX8_BAD_SLOT, "bad_batch": TX8_BAD_BATCH, "bad_dim": TX8_BAD_DIM,
    "bad_offset": TX8_BAD_OFFSET, "bad_shape": TX8_BAD_SHAPE, "no_memory": TX8_NO_MEMORY,
}

#: how the streams of a launch ended, by name
ENDS = {
    "done": TX8_DONE, "row_failed": TX8_ROW_FAILED, "send_failed": TX8_SEND_FAILED, "not_a_member": TX8_NOT_A_MEMBER,
    "stuck": TX8_STUCK, "left_over": TX8_LEFT_OVER, "no_memory": TX8_ROUNDS_NO_MEMORY,
}


cdef class Tile:
    """One tile; see `core.Tile`."""

    cdef tx8_tile c
    cdef uint8_t[::1] spm_held
    cdef uint8_t[::1] ddr_held
    cdef const uint8_t[::1] rows_held
    cdef const int64_t[::1] addresses_held
    cdef const int64_t[::1] slots_held
    cdef const int64_t[::1] calls_held
    cdef const int64_t[::1] call_at_held
    cdef int64_t n_rows

    def __init__(self, uint8_t[::1] spm, uint8_t[::1] ddr, int64_t ddr_base, int64_t ddr_bytes, int64_t number, int64_t chip):
        if ddr_bytes > ddr.shape[0] or ddr_bytes < 0:
            raise ValueError("more DDR than there is memory")
        self.spm_held, self.ddr_held = spm, ddr
        self.c.spm, self.c.spm_bytes = (&spm[0] if spm.shape[0] else NULL), spm.shape[0]
        self.c.ddr, self.c.ddr_bytes, self.c.ddr_base = (&ddr[0] if ddr.shape[0] else NULL), ddr_bytes, ddr_base
        self.c.number, self.c.chip = number, chip

    def __dealloc__(self):
        tx8_free(&self.c)

    def load(self, const uint8_t[::1] rows, const int64_t[::1] addresses, const int64_t[::1] slots):
        """Take rows (bytes of RECORD elements), the DDR address of each, and the addresses of the slots."""
        if rows.shape[0] != addresses.shape[0] * <int64_t>sizeof(tx8_row):
            raise ValueError("rows and addresses do not fit")
        self.rows_held, self.addresses_held, self.slots_held = rows, addresses, slots
        self.n_rows = addresses.shape[0]
        self.c.rows = <const tx8_row*>&rows[0] if self.n_rows else NULL
        self.c.addresses = &addresses[0] if self.n_rows else NULL
        self.c.slots, self.c.n_slots = (&slots[0] if slots.shape[0] else NULL), slots.shape[0]

    def load_calls(self, const int64_t[::1] words, const int64_t[::1] places):
        """Take the calls of kernel-core routines that rows name: words, and where each begins and the last one ends."""
        cdef Py_ssize_t k
        for k in range(1, places.shape[0]):
            if not 0 <= places[k - 1] <= places[k] <= words.shape[0]:
                raise ValueError("calls outside their words")
        self.calls_held, self.call_at_held = words, places
        self.c.calls = &words[0] if words.shape[0] else NULL
        self.c.call_at = &places[0] if places.shape[0] else NULL
        self.c.n_calls = max(0, places.shape[0] - 1)

    def stretch(self, int64_t at, int64_t end, int64_t before=0):
        """Say which rows are next: [at, end); `before` others were executed before the first of all."""
        if not 0 <= at <= end <= self.n_rows:
            raise ValueError("a stretch outside the code")
        self.c.at, self.c.end, self.c.before, self.c.status = at, end, before, TX8_DONE

    def run(self):
        """Execute the stretch; return the status."""
        with nogil:
            tx8_run_tile(&self.c)
        return self.c.status

    def place(self, int64_t number, int64_t chip):
        """Say which tile of which chip this is."""
        self.c.number, self.c.chip = number, chip

    @property
    def at(self):
        return self.c.at

    @property
    def status(self):
        return self.c.status

    @property
    def found(self):
        return [self.c.found[k] for k in range(5)]

    @property
    def result(self):
        return self.c.result, self.c.result_index

    @property
    def work(self):
        return [self.c.work[k] for k in range(5)]

    @property
    def messages(self):
        return self.c.outbox.count


def run_streams(list own, list numbers, list stops, list tiles, int64_t[:, ::1] monitors, int64_t tiles_per_chip, int64_t n_chips, int threads):
    """Execute the rows of the tiles `own` to their ends, with what they send to each other and wait for.

    numbers: of these tiles among `tiles`, all of all chips; stops: of each the rows that may have to wait, i64. Returns how it ended,
    which of the tiles that concerns, and the row that each stands at."""
    cdef Py_ssize_t n = len(own), n_tiles = len(tiles), k
    cdef int64_t which = 0
    cdef int status
    cdef const int64_t[::1] places
    cdef Tile tile
    if n_tiles != tiles_per_chip * n_chips or monitors.shape[0] != n_tiles or monitors.shape[1] != 4 or len(numbers) != n or len(stops) != n:
        raise ValueError("tiles and monitors do not fit")
    cdef tx8_tile** all_tiles = <tx8_tile**>PyMem_Malloc((n_tiles + 1) * sizeof(tx8_tile*))
    cdef tx8_stream* streams = <tx8_stream*>PyMem_Malloc((n + 1) * sizeof(tx8_stream))
    try:
        if all_tiles == NULL or streams == NULL:
            raise MemoryError
        for k in range(n_tiles):
            all_tiles[k] = &(<Tile?>tiles[k]).c
        for k in range(n):
            tile, places = own[k], stops[k]
            if not 0 <= numbers[k] < n_tiles:
                raise ValueError("a tile that is not there")
            if places.shape[0] and not 0 <= min(places) <= max(places) < tile.n_rows:
                raise ValueError("stops outside the code")
            streams[k].tile, streams[k].number, streams[k].n_rows = &tile.c, numbers[k], tile.n_rows
            streams[k].stops, streams[k].n_stops = (&places[0] if places.shape[0] else NULL), places.shape[0]
        with nogil:
            status = tx8_run_streams(streams, n, all_tiles, &monitors[0, 0], tiles_per_chip, n_chips, threads, &which)
        return status, which, [streams[k].at for k in range(n)]
    finally:
        PyMem_Free(all_tiles)
        PyMem_Free(streams)


def deliver(Tile sender not None, list tiles, int64_t[:, ::1] monitors, int64_t tiles_per_chip, int64_t n_chips):
    """Deliver what a tile has sent; return the status, which is also the sender's."""
    cdef Py_ssize_t n = len(tiles), k
    cdef int status
    if n != tiles_per_chip * n_chips or monitors.shape[0] != n or monitors.shape[1] != 4:
        raise ValueError("tiles and monitors do not fit")
    cdef tx8_tile** all_tiles = <tx8_tile**>PyMem_Malloc((n + 1) * sizeof(tx8_tile*))
    if all_tiles == NULL:
        raise MemoryError
    try:
        for k in range(n):
            all_tiles[k] = &(<Tile?>tiles[k]).c
        with nogil:
            status = tx8_deliver(&sender.c, all_tiles, &monitors[0, 0], tiles_per_chip, n_chips)
    finally:
        PyMem_Free(all_tiles)
    return status


def levels():
    """Return for how many instruction sets of this processor the loops are built."""
    return tx8_levels()


def use_level(int level):
    """Let all loops use instruction set `level`; return whether there is one."""
    return bool(tx8_use_level(level))
