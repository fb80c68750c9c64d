/* What the files of the core share: operands, scratch memory, number formats. */
#ifndef CORE_H
#define CORE_H
#include <stdbool.h>
#include <string.h>

#include "tx8_core.h"

enum { /* format codes */
#define X(name, code, bytes, block, kind) F_##name = code,
    TX8_FORMATS(X)
#undef X
};

typedef struct {
    uint8_t bytes, block;
    char kind; /* F, S, U, B; 0: no such format */
    uint8_t computed; /* engines compute with it */
} format_info;
extern const format_info FORMATS[256];

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* --- failing: every helper that can fail returns NULL or false and has set the tile's status --- */
bool fail(tx8_tile *t, int status, int64_t a, int64_t b, int64_t c);
/* Memory until the end of the row, aligned to 64 bytes. */
void *scratch(tx8_tile *t, int64_t bytes);
/* Bytes of the tile's scratchpad, of DDR. */
uint8_t *spm_at(tx8_tile *t, int64_t addr, int64_t bytes);
uint8_t *ddr_at(tx8_tile *t, int64_t addr, int64_t bytes);
static inline uint64_t seed_of(const tx8_tile *t) { return (uint64_t)(t->number * 1000003 + t->before + t->at); }
bool known_format(tx8_tile *t, int fmt);    /* it exists */
bool computed_format(tx8_tile *t, int fmt); /* engines compute with it */

/* --- numbers --- */
enum { NEAREST, TOWARD_ZERO, UPWARD, DOWNWARD, STOCHASTIC };
#define NAN_F32 0x7FC00000u

static inline float f32_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline double f64_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
static inline uint64_t bits_of64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

/* n elements of a computed format as f32 (integers are rounded); dense. */
void to_f32(const uint8_t *src, int fmt, float *out, int64_t n);
/* f32 to n dense elements: rounded under `mode`; lanes count from `lane` on. NaN becomes the one quiet NaN of the format. */
void from_f32(const float *x, uint8_t *out, int fmt, int mode, int64_t n, int64_t lane, uint64_t seed);
/* the same for doubles that are to be rounded to integers */
void from_f64(const double *x, uint8_t *out, int fmt, int mode, int64_t n, int64_t lane, uint64_t seed);
/* integers: n elements as 64-bit words (U64 as its pattern) and back, keeping the low bits */
void to_i64(const uint8_t *src, int fmt, int64_t *out, int64_t n);
void from_i64(const int64_t *x, uint8_t *out, int fmt, int64_t n);
/* 32-bit integers to any computed format: integers keep low bits, floats through f32 */
void from_i32(const int32_t *x, uint8_t *out, int fmt, int mode, int64_t n, int64_t lane, uint64_t seed);
double round_float(double x, int fmt, int mode, double luck);
int64_t round_int(double x, int fmt, int mode, double luck);
double chance(int64_t lane, uint64_t seed);
void unpack_bits(const uint8_t *src, uint8_t *out, int64_t n);
void pack_bits(const uint8_t *truth, uint8_t *out, int64_t n); /* bits behind n keep their values */

/* --- channel-blocked operands: (n, positions, c) --- */
typedef struct {
    int64_t n, pos, c;
    int64_t block, full, tail, whole, rest; /* full blocks incl. a promoted one, channels of the tail; c = whole * block + rest */
    int64_t used, stride, bytes;            /* bytes of a batch, between batches, of all */
    int size;
} blocked;
bool blocked_of(tx8_tile *t, blocked *out, int64_t n, int64_t pos, int64_t c, int fmt);
/* bytes of channels [block * k, ...) of a position, and how many channels of c these are */
static inline int64_t blocked_offset(const blocked *b, int64_t n, int64_t pos, int64_t k) {
    int64_t in_batch = k < b->full ? (k * b->pos + pos) * b->block : b->full * b->block * b->pos + pos * b->tail;
    return n * b->stride + in_batch * b->size;
}
static inline int64_t blocked_part(const blocked *b, int64_t k) { return least(b->block, b->c - k * b->block); }
static inline int64_t blocked_parts(const blocked *b) { return b->whole + (b->rest != 0); }
/* the operand as f32 (n, pos, c) in scratch memory, NULL on failure */
float *load_blocked(tx8_tile *t, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt);
int32_t *load_blocked_i32(tx8_tile *t, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt);
/* results, rows of `ld` values of which c count; channel padding becomes zero. `ints`: x holds i32 */
bool store_blocked(tx8_tile *t, int64_t addr, int64_t n, int64_t pos, int64_t c, int fmt, int mode, const void *x, int64_t ld, bool ints);

/* --- loops that are built for several instruction sets (loops.h) --- */
#define NR 16 /* columns of a panel of the matrix engine */
typedef struct {
    void (*f32_of_bf16)(const uint8_t *src, float *out, int64_t n);
    void (*f32_of_f16)(const uint8_t *src, float *out, int64_t n);
    void (*bf16_of_f32)(const float *x, uint8_t *out, int64_t n);
    void (*f16_of_f32)(const float *x, uint8_t *out, int64_t n);
    void (*clean_f32)(const float *x, uint8_t *out, int64_t n);
    void (*binary)(int function, const float *x, const float *y, float *out, int64_t n);
    void (*unary)(int function, const float *x, float *out, int64_t n);
    /* acc (m, NR) += a (chunks, m, 8) times b (chunks, 8, NR), each chunk a balanced tree; lda: words between chunks of a */
    void (*panel)(const float *a, int64_t lda, const float *b, float *acc, int64_t m, int64_t chunks);
    void (*panel_i32)(const uint32_t *a, int64_t lda, const uint32_t *b, uint32_t *acc, int64_t m, int64_t chunks);
    void (*turn)(const uint32_t *x, int64_t ld, uint32_t *out); /* out[k][r] = x[r][k]: 8 columns of NR rows */
} loops;
extern const loops *LOOPS;

/* --- functions of the vector engine --- */
enum {
    G_ABS, G_RECIP, G_SQUARE, G_SQRT, G_RSQRT, G_NEG, G_LOG2, G_LN, G_POW2, G_EXP, G_EXP_LP, G_SIN, G_COS, G_TANH, G_SIGMOID,
    G_RELU, G_SATRELU, G_LEAKYRELU, G_SOFTPLUS, G_MAX, G_MIN, G_ADD, G_SUB, G_MUL, G_DIV, G_EQ, G_NE, G_GE, G_GT, G_LE, G_LT,
    G_NOT, G_AND, G_OR, G_XOR, G_ADD_DOWN, G_SUB_DOWN
};
enum { FORM_V, FORM_VV, FORM_VS, FORM_VUV, FORM_UNIT_LOOP };
enum { ON_VALUES, ON_VALUES_TO_BITS, ON_WORDS, ON_BITS };
double sine(float x, int quarter); /* of x plus `quarter` right angles */

/* --- meanings: each returns false when it has failed --- */
typedef bool meaning(tx8_tile *t, const tx8_row *r);
bool run_vector(tx8_tile *t, const tx8_row *r, int function, int form, int kind);
bool run_convert(tx8_tile *t, const tx8_row *r, int src, int dst);
bool run_move(tx8_tile *t, const tx8_row *r);
bool run_transfer(tx8_tile *t, const tx8_row *r);
bool run_message(tx8_tile *t, const tx8_row *r);
bool run_peripheral(tx8_tile *t, const tx8_row *r);
bool run_tensor(tx8_tile *t, const tx8_row *r);
bool run_matrix(tx8_tile *t, const tx8_row *r);
bool run_call(tx8_tile *t, const int64_t *word, const int64_t *end); /* a routine of the kernel core (routine.c) */

#endif
