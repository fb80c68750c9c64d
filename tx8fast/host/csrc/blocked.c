/* Channel-blocked operands [manual 7.2, 7.3]: full blocks of all positions first, then the tail; batches begin at multiples of 256. */
#include "core.h"

bool blocked_of(tx8_tile *t, blocked *out, int64_t n, int64_t pos, int64_t c, int fmt) {
    if (!known_format(t, fmt)) return false;
    if (n < 1 || pos < 0 || c < 1 || (double)n * (double)pos * (double)c > 1e12 || c > (1 << 30))
        return fail(t, TX8_BAD_SHAPE, n, pos, c);
    out->n = n, out->pos = pos, out->c = c;
    out->block = FORMATS[fmt].block, out->size = FORMATS[fmt].bytes;
    out->full = out->whole = c / out->block;
    out->rest = c % out->block;
    out->tail = 0;
    if (out->rest > out->block / 2)
        out->full++;
    else if (out->rest)
        for (out->tail = 4; out->tail < out->rest;) out->tail *= 2;
    out->used = pos * (out->full * out->block + out->tail) * out->size;
    out->stride = ceil_div(out->used, 256) * 256;
    out->bytes = (n - 1) * out->stride + out->used;
    return true;
}

float *load_blocked(tx8_tile *t, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt) {
    blocked b;
    if (!computed_format(t, fmt) || !blocked_of(t, &b, n, pos, c, fmt)) return NULL;
    const uint8_t *src = spm_at(t, addr, b.bytes);
    float *out = scratch(t, n * pos * c * 4);
    if (!src || !out) return NULL;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < blocked_parts(&b); k++) {
            int64_t len = blocked_part(&b, k), step = (k < b.full ? b.block : b.tail);
            const uint8_t *from = src + blocked_offset(&b, i, 0, k);
            float *to = out + i * pos * c + k * b.block;
            if (len == c && len == step) {
                to_f32(from, fmt, to, pos * len);
                continue;
            }
            for (int64_t p = 0; p < pos; p++) to_f32(from + p * step * b.size, fmt, to + p * c, len);
        }
    return out;
}

int32_t *load_blocked_i32(tx8_tile *t, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt) {
    blocked b;
    if (!computed_format(t, fmt) || !blocked_of(t, &b, n, pos, c, fmt)) return NULL;
    const uint8_t *src = spm_at(t, addr, b.bytes);
    int32_t *out = scratch(t, n * pos * c * 4);
    int64_t some[128];
    if (!src || !out) return NULL;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < blocked_parts(&b); k++)
            for (int64_t p = 0; p < pos; p++) {
                int64_t len = blocked_part(&b, k);
                to_i64(src + blocked_offset(&b, i, p, k), fmt, some, len);
                for (int64_t q = 0; q < len; q++) out[(i * pos + p) * c + k * b.block + q] = (int32_t)(uint32_t)(uint64_t)some[q];
            }
    return out;
}

bool store_blocked(tx8_tile *t, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt, int mode, const void *x, int64_t ld, bool ints) {
    blocked b;
    if (!computed_format(t, fmt) || !blocked_of(t, &b, n, pos, c, fmt)) return false;
    if (mode < 0 || mode > STOCHASTIC) return fail(t, TX8_BAD_ROUNDING, mode, 0, 0);
    uint8_t *dst = spm_at(t, addr, b.bytes);
    if (!dst) return false;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < blocked_parts(&b); k++) {
            int64_t len = blocked_part(&b, k), step = (k < b.full ? b.block : b.tail);
            for (int64_t p = 0; p < pos; p++) {
                int64_t row = i * pos + p, at = k * b.block;
                uint8_t *to = dst + blocked_offset(&b, i, p, k);
                if (ints)
                    from_i32((const int32_t *)x + row * ld + at, to, fmt, mode, len, row * c + at, seed_of(t));
                else
                    from_f32((const float *)x + row * ld + at, to, fmt, mode, len, row * c + at, seed_of(t));
                if (step > len) memset(to + len * b.size, 0, (size_t)((step - len) * b.size));
            }
        }
    return true;
}
