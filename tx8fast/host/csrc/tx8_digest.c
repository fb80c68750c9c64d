/* BLAKE2b with digests of 16 bytes (RFC 7693). */
#include "tx8_digest.h"

#include <string.h>

static const uint64_t IV[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};
static const uint8_t ORDER[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t turn(uint64_t x, int by) { return x >> by | x << (64 - by); }

static void compress(tx8_digest *d, const uint8_t *block, uint64_t last) {
    uint64_t v[16], m[16];
    memcpy(m, block, sizeof m);
    for (int k = 0; k < 8; k++) v[k] = d->h[k], v[k + 8] = IV[k];
    v[12] ^= d->count, v[14] ^= last;
#define MIX(a, b, c, e, x, y) \
    a += b + (x), e = turn(e ^ a, 32), c += e, b = turn(b ^ c, 24), a += b + (y), e = turn(e ^ a, 16), c += e, b = turn(b ^ c, 63)
    for (int r = 0; r < 12; r++) {
        const uint8_t *s = ORDER[r];
        MIX(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
        MIX(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
        MIX(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
        MIX(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
        MIX(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
        MIX(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
        MIX(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
        MIX(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
#undef MIX
    for (int k = 0; k < 8; k++) d->h[k] ^= v[k] ^ v[k + 8];
}

void tx8_digest_begin(tx8_digest *d) {
    memset(d, 0, sizeof *d);
    memcpy(d->h, IV, sizeof IV);
    d->h[0] ^= 0x01010000u ^ 16;
}

void tx8_digest_add(tx8_digest *d, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes) {
        if (d->used == sizeof d->block) { /* the last block is kept back: it is marked */
            d->count += sizeof d->block;
            compress(d, d->block, 0);
            d->used = 0;
        }
        for (; !d->used && bytes > sizeof d->block; from += sizeof d->block, bytes -= sizeof d->block) {
            d->count += sizeof d->block;
            compress(d, from, 0);
        }
        size_t part = sizeof d->block - d->used < bytes ? sizeof d->block - d->used : bytes;
        memcpy(d->block + d->used, from, part);
        d->used += part, from += part, bytes -= part;
    }
}

void tx8_digest_end(tx8_digest *d, uint8_t out[16]) {
    d->count += d->used;
    memset(d->block + d->used, 0, sizeof d->block - d->used);
    compress(d, d->block, ~(uint64_t)0);
    memcpy(out, d->h, 16);
}
