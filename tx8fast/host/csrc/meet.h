/* Who waits for whom: barriers of a chip or of some of its tiles, handshakes, messages. Tiles are counted on over the chips. */
#ifndef TX8_MEET_H
#define TX8_MEET_H
#include <stdbool.h>

#include "tx8_core.h"

/* What a tile arrives at. */
typedef struct {
    int64_t what;  /* opcode: a barrier of all or of some tiles, a handshake, a recv */
    int64_t tile;  /* who */
    int64_t with;  /* the mask of tiles, the other tile, the monitor */
    int64_t bytes; /* that a recv takes */
} tx8_wait;

/* How often a tile has arrived at the same. */
typedef struct {
    int64_t what, with, tile, times;
} tx8_met;

typedef struct {
    int64_t tiles_per_chip;
    int64_t *monitors;       /* TX8_MONITORS counters of bytes for each tile */
    const int64_t *barriers; /* of all tiles of its chip that each tile passes altogether; nobody waits for those that it has not */
    int64_t n;               /* tiles */
    tx8_met *met;            /* a hash table, its size a power of two */
    int64_t size, used;
} tx8_meetings;

/* Note that a tile has arrived. Returns false if there is no memory. */
bool tx8_arrive(tx8_meetings *m, const tx8_wait *w);
/* Whether a tile that has arrived may go on; a recv takes its bytes then. */
bool tx8_may_pass(tx8_meetings *m, const tx8_wait *w);
/* Whether a tile is one of those that a barrier of some tiles is for. */
bool tx8_is_member(const tx8_meetings *m, const tx8_wait *w);
void tx8_forget(tx8_meetings *m);

#endif
