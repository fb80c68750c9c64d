/* Why a tile stopped, in words. */
#include <stdio.h>

#include "core.h"
#include "tx8_program.h"

static const char *const ROUTINES[] = {
#define X(code, name, function) [code] = #name,
    TX8_ROUTINES(X)
#undef X
};

static const char *const WHY[] = {
#define X(code, text) [code] = text,
    TX8_WHY_TEXTS(X)
#undef X
};

void tx8_fault_text(const tx8_tile *t, char *text, size_t room) {
    long long a = t->found[0], b = t->found[1], c = t->found[2], d = t->found[3], e = t->found[4];
    unsigned long long end = (unsigned long long)a + (unsigned long long)b;
    switch (t->status) {
        case TX8_BAD_CALL: {
            const char *name = a >= 0 && a < TX8_ROUTINE_COUNT ? ROUTINES[a] : "routine";
            int n = snprintf(text, room, "%s: ", name);
            snprintf(text + n, room - (size_t)n, b >= 0 && b < (long long)(sizeof WHY / sizeof *WHY) ? WHY[b] : "refused", c, d, e);
            return;
        }
        case TX8_BAD_OPCODE: snprintf(text, room, "opcode %#llx is not defined", a); return;
        case TX8_BAD_FORMAT: snprintf(text, room, "found format code %lld, required one that its engine computes with", a); return;
        case TX8_BAD_ROUNDING: snprintf(text, room, "found rounding mode %lld, required 0..4", a); return;
        case TX8_BAD_SPM: snprintf(text, room, "accessing SPM: found bytes [%#llx, %#llx), required within the scratchpad", a, end); return;
        case TX8_BAD_DDR:
            snprintf(text, room, "accessing DDR: found bytes [%#llx, %#llx), required within [%#llx, %#llx)", a, end, (long long)t->ddr_base,
                     (long long)(t->ddr_base + t->ddr_bytes));
            return;
        case TX8_BAD_UNIT: snprintf(text, room, "unit vector: found unit %lld, n %lld", a, b); return;
        case TX8_BAD_UNIT_LOOP: snprintf(text, room, "vector loop: found elem %lld, unit %lld, full %lld, full_unit %lld", a, b, c, d); return;
        case TX8_BAD_OVERLAP:
            snprintf(text, room, "converting %lld elements of %lld to %lld bytes: source %#llx and destination %#llx overlap", c, d, e, a, b);
            return;
        case TX8_BAD_RUNS: snprintf(text, room, "gather_scatter: source and destination have different numbers of runs"); return;
        case TX8_BAD_GATHER: snprintf(text, room, "gather: found tiles %#llx and runs of %lld bytes for %lld bytes", a, c, b); return;
        case TX8_BAD_MESSAGE: snprintf(text, room, "sending to tiles %#llx, monitor %lld: no such tiles, monitor or chip", a, b); return;
        case TX8_BAD_NUMBER: snprintf(text, room, "looking up a row: found number %lld, required [%lld, %lld)", a, -b, b); return;
        case TX8_BAD_NUMBER_FORMAT: snprintf(text, room, "reading a row number: found format code %lld", a); return;
        case TX8_BAD_SLOT: snprintf(text, room, "reading a row number: found slot %lld, required 0 to %lld", a, b - 1); return;
        case TX8_BAD_BATCH: snprintf(text, room, "gemm: found batches %lld and %lld, required equal ones or one of them 1", a, b); return;
        case TX8_BAD_DIM: snprintf(text, room, "reduce: found dim code %lld, required 0 (C), 1 (W), 2 (H) or 4 (HW)", a); return;
        case TX8_BAD_OFFSET: snprintf(text, room, "looking up: found offset %lld, required one entry within the table's %lld bytes", a, b); return;
        case TX8_NO_MEMORY: snprintf(text, room, "out of memory"); return;
        default: snprintf(text, room, "found counts %lld, %lld, %lld, required ones that name elements, and fewer than memory holds", a, b, c); return;
    }
}
