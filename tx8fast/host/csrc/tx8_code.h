/* Code of a file made ready to run: rows unpacked, their fields checked, loops written out. */
#ifndef TX8_CODE_H
#define TX8_CODE_H
#include "tx8_core.h"
#include "tx8_problem.h"

/* Rows as a file holds them: each distinct one once, and of rows only the words that some row uses. */
typedef struct {
    const int32_t *words; /* which of the 64 words of a row are stored, rising */
    int64_t n_words;
    const uint32_t *rows; /* distinct rows, n_words each */
    int64_t n_rows;
} tx8_packed;

typedef struct {
    tx8_row *rows; /* without loops */
    int64_t n;
    int64_t *stops; /* rows that may have to wait for another tile */
    int64_t n_stops;
} tx8_code;

bool tx8_packed_check(const tx8_packed *packed, int64_t words, tx8_problem *p);
/* numbers: of the distinct rows; n_slots: of the segment. What it made is freed with tx8_code_free. */
bool tx8_code_make(tx8_code *code, const tx8_packed *packed, const uint32_t *numbers, int64_t n, int64_t n_slots, tx8_problem *p);
void tx8_code_free(tx8_code *code);
/* The name of an instruction. */
const char *tx8_opcode_name(int opcode);

#endif
