/* BLAKE2b with digests of 16 bytes (RFC 7693). */
#ifndef TX8_DIGEST_H
#define TX8_DIGEST_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t h[8], count;
    uint8_t block[128];
    size_t used;
} tx8_digest;

void tx8_digest_begin(tx8_digest *d);
void tx8_digest_add(tx8_digest *d, const void *data, size_t bytes);
void tx8_digest_end(tx8_digest *d, uint8_t out[16]);

#endif
