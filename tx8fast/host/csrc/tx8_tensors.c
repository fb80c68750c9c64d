/* Tensors of callers: dense, row-major; in DDR they may be channel-blocked. */
#include <string.h>

#include "core.h"
#include "tx8_program.h"

static bool blocks_of(const tx8_named *t, blocked *b) {
    tx8_tile nobody = {0};
    int64_t n = 1, pos = 1, c = t->rank ? t->shape[t->rank - 1] : 1;
    if (t->rank > 2) n = t->shape[0];
    for (int k = t->rank > 2; k + 1 < t->rank; k++) pos *= t->shape[k];
    return t->bytes && blocked_of(&nobody, b, n, pos, c, t->format);
}

int64_t tx8_tensor_image(const tx8_named *t) {
    blocked b;
    if (!t->blocked || !t->bytes) return t->bytes;
    return blocks_of(t, &b) ? b.n * b.stride : -1;
}

/* Every run of channels that lies together on both sides. */
#define EACH_RUN(b, dense, run) \
    for (int64_t i = 0; i < (b).n; i++) \
        for (int64_t k = 0; k < blocked_parts(&(b)); k++) \
            for (int64_t q = 0, run = blocked_part(&(b), k) * (b).size, dense = ((i * (b).pos) * (b).c + k * (b).block) * (b).size; q < (b).pos; \
                 q++, dense += (b).c * (b).size)

void tx8_tensor_write(const tx8_named *t, uint8_t *ddr, const uint8_t *data) {
    uint8_t *to = ddr + (t->address - TX8_DDR_BASE);
    blocked b;
    if (!t->blocked) {
        if (t->bytes) memcpy(to, data, (size_t)t->bytes);
    } else if (blocks_of(t, &b)) {
        memset(to, 0, (size_t)(b.n * b.stride));
        EACH_RUN(b, dense, run) memcpy(to + blocked_offset(&b, i, q, k), data + dense, (size_t)run);
    }
}

void tx8_tensor_read(const tx8_named *t, const uint8_t *ddr, uint8_t *data) {
    const uint8_t *from = ddr + (t->address - TX8_DDR_BASE);
    blocked b;
    if (!t->blocked) {
        if (t->bytes) memcpy(data, from, (size_t)t->bytes);
    } else if (blocks_of(t, &b)) {
        EACH_RUN(b, dense, run) memcpy(data + dense, from + blocked_offset(&b, i, q, k), (size_t)run);
    }
}
