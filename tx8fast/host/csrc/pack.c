/* Operands of the matrix engine on their way into the inner loop (matrix.h). */
#include <math.h>

#include "matrix.h"

bool operand_of(tx8_tile *t, operand *o, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt, int zero) {
    if (!computed_format(t, fmt) || !blocked_of(t, &o->b, n, pos, c, fmt)) return false;
    o->whole = fmt == F_I8 || fmt == F_U8;
    o->fmt = fmt, o->zero = zero, o->parts = fmt == F_F32 ? PARTS : 1;
    o->src = spm_at(t, addr, o->b.bytes);
    return o->src != NULL;
}

/* `n` channels of block `k` of a place, from `skip` on, as words of the inner loop; part after part, `step` words apart */
static void words_of(const operand *o, int64_t place, int64_t k, int64_t skip, int64_t n, uint32_t *out, int64_t step) {
    const uint8_t *src = o->src + blocked_offset(&o->b, place / o->b.pos, place % o->b.pos, k) + skip * o->b.size;
    if (o->whole) {
        for (int64_t i = 0; i < n; i++) out[i] = (uint32_t)((o->fmt == F_I8 ? (int8_t)src[i] : (int)src[i]) - o->zero);
        return;
    }
    float x[128];
    to_f32(src, o->fmt, x, n);
    if (o->parts == 1) {
        memcpy(out, x, (size_t)n * 4);
        return;
    }
    /* parts are rounded to nearest; of numbers beyond the largest one of bf16 toward zero, as the sum of parts would be infinite on the way */
    bool cut[128];
    for (int64_t i = 0; i < n; i++) cut[i] = (bits_of(x[i]) & 0x7FFFFFFFu) >= 0x7F7F8000u;
    for (int part = 0; part < PARTS; part++)
        for (int64_t i = 0; i < n; i++) {
            uint32_t b = bits_of(x[i]), up = cut[i] ? 0 : 0x7FFF + (b >> 16 & 1);
            float y = f32_of(x[i] != x[i] ? NAN_F32 : (b + up) & 0xFFFF0000u);
            out[part * step + i] = bits_of(y);
            x[i] = y - y == 0 ? x[i] - y : 0;
        }
}

void pack_rows(const operand *o, const int64_t *places, int64_t count, int64_t k, uint32_t *out) {
    int64_t chunks = chunks_of(k);
    uint32_t some[PARTS * 128];
    for (int64_t block = 0; block * o->b.block < k; block++) { /* rows inside: they follow each other in memory */
        int64_t n = least(o->b.block, k - block * o->b.block), first = block * o->b.block / 8;
        for (int64_t row = 0; row < count; row++) {
            if (places[row] >= 0) {
                words_of(o, places[row], block, 0, n, some, 128);
                for (int part = 0; part < o->parts; part++)
                    for (int64_t i = n; i % 8; i++) some[part * 128 + i] = 0;
            } else {
                memset(some, 0, sizeof some);
            }
            for (int part = 0; part < o->parts; part++)
                for (int64_t c = 0; c < chunks_of(n); c++)
                    memcpy(out + ((part * chunks + first + c) * count + row) * 8, some + part * 128 + c * 8, 32);
        }
    }
}

void pack_columns(const operand *o, int64_t first, int64_t count, int64_t k, uint32_t *out) {
    int64_t chunks = chunks_of(k);
    uint32_t some[PARTS * 128];
    memset(out, 0, (size_t)(o->parts * chunks * count * 8) * 4);
    for (int64_t term = 0; term < k; term++)
        for (int64_t block = 0; block * o->b.block < count; block++) {
            int64_t n = least(o->b.block, count - block * o->b.block);
            words_of(o, first + term, block, 0, n, some, 128);
            for (int part = 0; part < o->parts; part++)
                for (int64_t i = 0; i < n; i++)
                    out[((part * chunks + term / 8) * count + block * o->b.block + i) * 8 + term % 8] = some[part * 128 + i];
        }
}

void panel_of_rows(const operand *o, int64_t first, int64_t row, int64_t count, int64_t k, uint32_t *out) {
    uint32_t some[PARTS][NR][128];
    int64_t used = least(NR, count - row), room = chunks_of(k) * 8 * NR;
    for (int64_t block = 0; block * o->b.block < k; block++) {
        int64_t n = least(o->b.block, k - block * o->b.block), end = chunks_of(n) * 8;
        for (int64_t r = 0; r < NR; r++) {
            if (r < used) words_of(o, first + row + r, block, 0, n, some[0][r], NR * 128);
            for (int part = 0; part < o->parts; part++)
                for (int64_t i = r < used ? n : 0; i < end; i++) some[part][r][i] = 0;
        }
        for (int part = 0; part < o->parts; part++)
            for (int64_t i = 0; i < end; i += 8)
                LOOPS->turn(some[part][0] + i, 128, out + part * room + (block * o->b.block + i) * NR);
    }
}

void panel_of_columns(const operand *o, int64_t first, int64_t row, int64_t count, int64_t k, uint32_t *out) {
    int64_t used = least(NR, count - row), room = chunks_of(k) * 8 * NR, block = row / o->b.block, skip = row % o->b.block;
    for (int64_t term = 0; term < chunks_of(k) * 8; term++) {
        if (term < k) words_of(o, first + term, block, skip, used, out + term * NR, room);
        for (int part = 0; part < o->parts; part++)
            for (int64_t i = term < k ? used : 0; i < NR; i++) out[part * room + term * NR + i] = 0;
    }
}

void multiply(const uint32_t *rows, const uint32_t *panel, uint32_t *acc, int64_t count, int64_t k, const operand *o, bool turned) {
    static const int pairs[PASSES][2] = /* parts of left and right */
        {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {2, 0}};
    int64_t chunks = chunks_of(k);
    if (o->whole) {
        LOOPS->panel_i32(rows, count * 8, panel, acc, count, chunks);
        return;
    }
    for (int pass = 0; pass < (o->parts == PARTS ? PASSES : 1); pass++)
        LOOPS->panel((const float *)rows + pairs[pass][turned] * chunks * count * 8, count * 8, (const float *)panel + pairs[pass][!turned] * chunks * 8 * NR,
                     (float *)acc, count, chunks);
}
