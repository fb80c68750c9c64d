/* The C model: what the public interface does, executed by the core. Every tile is a thread; see model.c. */
#ifndef TX8_MODEL_INSIDE_H
#define TX8_MODEL_INSIDE_H
#include "core.h"
#include "tx8_abi.h"
#include "tx8_model.h"

/* of `param`: the row, and whether a member has filled in anything */
enum { TX8_FILLED = 33 };

/* The row in a packet; the first member that fills it in says which instruction it is. */
static inline tx8_row *tx8_packet(TsmInstr *packet, int opcode) {
    tx8_row *row = (tx8_row *)packet->param;
    if (!packet->param[TX8_FILLED]) {
        packet->param[TX8_FILLED] = 1;
        row->opcode = (uint16_t)opcode;
        row->op = row->slot = -1;
    }
    return row;
}

#endif
