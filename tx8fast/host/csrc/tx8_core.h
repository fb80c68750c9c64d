/* The meaning of every instruction over the memories of the tiles.
 *
 * A tile is a scratchpad, a window on DDR and a stretch of rows. `tx8_run_tile` executes the stretch; `tx8_run_tiles` does so for
 * several tiles in threads. Nothing of one tile is seen by another before `tx8_deliver` puts the messages it sent where they go,
 * so the number of threads shows in no byte, as long as no two tiles touch the same bytes of DDR in one stretch.
 * All arithmetic is IEEE 754 without contraction, so results are the same on every machine.
 */
#ifndef TX8_CORE_H
#define TX8_CORE_H
#include <stddef.h>
#include <stdint.h>

#include "tx8_isa.h"
#include "tx8_routines.h"

#define TX8_MONITORS 4

/* why a stretch ended; `tx8_tile.at` is the row it ended at */
enum {
    TX8_DONE = 0,
    TX8_BAD_CALL,          /* of a routine of the kernel core; found: its number, why (TX8_WHY_), and what about it */
    TX8_BAD_OPCODE,
    TX8_BAD_FORMAT,        /* no meaning for the row's format code found[0] */
    TX8_BAD_ROUNDING,      /* rounding mode found[0] */
    TX8_BAD_SPM,           /* found: address, bytes; outside the scratchpad */
    TX8_BAD_DDR,           /* found: address, bytes; outside the memory */
    TX8_BAD_UNIT,          /* found: unit, n */
    TX8_BAD_UNIT_LOOP,     /* found: n, unit, full, full_unit */
    TX8_BAD_OVERLAP,       /* of a conversion; found: source, destination, n, source bytes, destination bytes */
    TX8_BAD_RUNS,          /* different counts of runs on the sides of a gather_scatter */
    TX8_BAD_GATHER,        /* not one tile, or runs that do not add up to its bytes */
    TX8_BAD_MESSAGE,       /* found: mask, monitor, chip; no such tile, monitor or chip */
    TX8_BAD_NUMBER,        /* found: number, entries, DDR address of the number */
    TX8_BAD_NUMBER_FORMAT, /* of a row number: found[0] */
    TX8_BAD_SLOT,          /* found: slot, slots */
    TX8_BAD_BATCH,         /* found: left and right */
    TX8_BAD_DIM,           /* of a reduction: found[0] */
    TX8_BAD_OFFSET,        /* into a table of a look-up: found: offset, bytes of the table */
    TX8_BAD_SHAPE,         /* counts that name no element or too many */
    TX8_NO_MEMORY
};

/* One message: bytes for every tile of `mask`, one after the other from `data` on, `step` bytes apart. */
typedef struct {
    int64_t data, step, bytes, mask, dst, monitor, chip;
} tx8_message;

typedef struct {
    uint8_t *bytes;
    int64_t used, room;
    tx8_message *list;
    int64_t count, list_room;
} tx8_outbox;

/* Memory of one row's intermediate results. */
typedef struct {
    uint8_t *block[32];
    int64_t room[32];
    int n, failed;
    int64_t used;
} tx8_scratch;

typedef struct {
    uint8_t *spm;
    int64_t spm_bytes;
    uint8_t *ddr;
    int64_t ddr_base, ddr_bytes;
    const int64_t *slots; /* DDR addresses */
    int64_t n_slots;
    int64_t number; /* of the tile, and of its chip */
    int64_t chip;
    const tx8_row *rows;
    const int64_t *addresses; /* DDR address of each row */
    int64_t at, end;
    const int64_t *calls; /* calls of routines as words (isa/routines/base.py); call k is words [call_at[k], call_at[k + 1]) */
    const int64_t *call_at;
    int64_t n_calls;
    int64_t work[TX8_WORK]; /* that routines have done since the last stretch began */
    int64_t before; /* rows that were executed before the first of `rows`; stochastic rounding counts on from them */
    uint64_t result; /* register results: a value's pattern or a count, and an index */
    int64_t result_index;
    int status;
    int64_t found[5];
    tx8_outbox outbox;
    tx8_scratch scratch;
} tx8_tile;

/* Execute rows [at, end); sets `at` and `status`. */
void tx8_run_tile(tx8_tile *tile);
/* Execute the stretches of `n` tiles in at most `threads` threads. */
void tx8_run_tiles(tx8_tile *const *tiles, int n, int threads);
/* Deliver the messages of `from`. `tiles`: all of all chips; `monitors`: TX8_MONITORS counters of each. Returns a status. */
int tx8_deliver(tx8_tile *from, tx8_tile *const *tiles, int64_t *monitors, int64_t tiles_per_chip, int64_t n_chips);
void tx8_free(tx8_tile *tile);
/* Which instruction sets the loops are built for; they give the same bytes. 0 is that of the whole file. */
int tx8_levels(void);
int tx8_use_level(int level);

#endif
