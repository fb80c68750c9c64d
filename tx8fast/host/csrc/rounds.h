/* The tiles of one launch as streams that take turns. */
#ifndef TX8_ROUNDS_H
#define TX8_ROUNDS_H
#include "tx8_core.h"

/* One tile's loop-free rows. `stops`: rows that may have to wait for another tile, rising. */
typedef struct {
    tx8_tile *tile; /* its rows are loaded */
    int64_t number; /* of the tile, counted on over the chips */
    int64_t n_rows;
    const int64_t *stops;
    int64_t n_stops;
    int64_t at, passed; /* where it stands, and stops behind it */
    int arrived;        /* at the stop it stands at */
} tx8_stream;

/* how a launch ended, beside TX8_DONE; `which` is the stream */
enum {
    TX8_ROW_FAILED = 1000, /* a row cannot be executed: status of the stream's tile */
    TX8_SEND_FAILED,       /* a message goes where nothing is: status of the stream's tile */
    TX8_NOT_A_MEMBER,      /* a tile arrives at a barrier of tiles that it is not one of */
    TX8_STUCK,             /* every tile waits */
    TX8_LEFT_OVER,         /* messages that nobody received: `monitors` says where */
    TX8_ROUNDS_NO_MEMORY
};

/* Execute all streams to their ends. `tiles`: all of all chips; `monitors`: TX8_MONITORS counters of each, zeros.
 * In every round each tile runs until a row may stop it; then what was sent is delivered, in the order of the streams, and tiles that
 * may go on pass. So no tile sees anything of another's stretch before the round ends, in however many threads. */
int tx8_run_streams(tx8_stream *streams, int64_t n, tx8_tile *const *tiles, int64_t *monitors, int64_t tiles_per_chip, int64_t n_chips,
                    int threads, int64_t *which);
/* Whether a row may have to wait for another tile. */
int tx8_is_stop(const tx8_row *row);

#endif
