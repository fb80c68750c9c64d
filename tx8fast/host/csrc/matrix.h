/* Operands of the matrix engine, packed for the inner loop: one operand's rows eight terms at a time, the other's in panels of NR. */
#ifndef MATRIX_H
#define MATRIX_H
#include "core.h"

enum { PARTS = 3, PASSES = 6 };

typedef struct {
    const uint8_t *src;
    blocked b;
    int fmt, zero; /* integers: the zero point that is subtracted */
    int parts;     /* bf16 numbers that a value is the sum of: f32 has three */
    bool whole;    /* 8-bit integers */
} operand;

bool operand_of(tx8_tile *t, operand *o, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt, int zero);
static inline int64_t chunks_of(int64_t k) { return ceil_div(k, 8); }

/* `count` rows of k terms to out[part][chunk][row][8]; places: positions (batches follow each other), -1 a row of zeros.
 * Terms of a row are its channels. */
void pack_rows(const operand *o, const int64_t *places, int64_t count, int64_t k, uint32_t *out);
/* the same where terms are k positions from `first` on and rows are channels */
void pack_columns(const operand *o, int64_t first, int64_t count, int64_t k, uint32_t *out);
/* rows [row, row + NR) of `count`, as out[part][term][NR]; by positions from `first` on, or by channels */
void panel_of_rows(const operand *o, int64_t first, int64_t row, int64_t count, int64_t k, uint32_t *out);
void panel_of_columns(const operand *o, int64_t first, int64_t row, int64_t count, int64_t k, uint32_t *out);
/* acc (rows, NR) += rows times panel, in the specified order: f32 in six passes, heaviest parts first. `turned`: the panel is of
 * the left operand, whose parts come first where two passes weigh the same */
void multiply(const uint32_t *rows, const uint32_t *panel, uint32_t *acc, int64_t count, int64_t k, const operand *o, bool turned);

#endif
