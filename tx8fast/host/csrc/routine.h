/* What the routines of the kernel core share: a call's operands, elements as numbers, counting of the work. */
#ifndef ROUTINE_H
#define ROUTINE_H
#include <math.h>

#include "core.h"
#include "tx8_routines.h"

#define MAX_RANK 8

/* A tensor in DDR or in scratch memory; strides in bytes. */
typedef struct {
    int given, fmt, size, rank, blocked;
    int64_t n, shape[MAX_RANK], stride[MAX_RANK];
    uint8_t *at;
    uint8_t *home; /* of a channel-blocked tensor: where its blocks lie; `at` then is a dense copy, but for routines that take blocks */
} view;

typedef struct {
    tx8_tile *t;
    int code, n_in, n_out;
    view *in, *out;
    const int64_t *word, *end; /* attributes that are not read yet */
} call;

typedef bool routine(call *c);

/* --- attributes: read in the order of the declaration; a call with too few words reads zeros --- */
static inline int64_t next_whole(call *c) { return c->word < c->end ? *c->word++ : 0; }
static inline double next_real(call *c) { return f64_of((uint64_t)next_whole(c)); }
/* a list behind its length */
const int64_t *next_wholes(call *c, int64_t *n);
/* the same of numbers that are sizes or distances; false where one is beyond what memory has */
bool next_sizes(call *c, int64_t *n, const int64_t **out);
/* a dimension of `rank`, 0 where there is none */
bool next_axis(call *c, int rank, int64_t *out);
bool next_axes(call *c, int rank, int64_t *n, const int64_t **out);
/* a list of a number per spatial dimension: none means the default everywhere, one means itself everywhere */
bool next_pair(call *c, int rank, int64_t otherwise, int64_t *out);

/* --- the work that is done, as `Work` in isa/routines/base.py has it --- */
static inline void count_ops(call *c, int64_t n) { c->t->work[TX8_WORK_OPS] += n; }
static inline void count_loads(call *c, int64_t n) { c->t->work[TX8_WORK_LOADS] += n; }
static inline void count_stores(call *c, int64_t n) { c->t->work[TX8_WORK_STORES] += n; }
static inline void count_divides(call *c, int64_t n) { c->t->work[TX8_WORK_DIVIDES] += n; }
static inline void count_functions(call *c, int64_t n) { c->t->work[TX8_WORK_FUNCTIONS] += n; }
/* products that are added: two factors are loaded, multiplied and added */
static inline void count_products(call *c, int64_t n) { count_loads(c, 2 * n), count_ops(c, 2 * n); }
static inline void count_words(call *c, int64_t n) { count_loads(c, n), count_stores(c, n), count_ops(c, 2 * n); }

/* --- operands --- */
bool refuse(call *c, int why, int64_t a, int64_t b, int64_t d); /* an operand that cannot be; `why` of TX8_WHY_ */
bool missing(call *c, int index);
static inline bool is_float(const view *v) { return FORMATS[v->fmt].kind == 'F'; }
static inline bool is_f64(const view *v) { return v->fmt == F_F64; }
static inline bool is_truth(const view *v) { return FORMATS[v->fmt].kind == 'B'; }
static inline int64_t flip_of(const view *v) { return v->fmt == F_U64 ? INT64_MIN : 0; } /* unsigned 64-bit words compare so */
static inline float f32_(double x) { return (float)x; }
int64_t product_of(const int64_t *shape, int rank);
/* Move on to the next place of a nest of dimensions, last one first; false behind the last place. */
static inline bool advance(int rank, const int64_t *shape, const int64_t *stride, int64_t *at, int64_t *offset) {
    for (int k = rank - 1; k >= 0; k--) {
        *offset += stride[k];
        if (++at[k] < shape[k]) return true;
        *offset -= at[k] * stride[k], at[k] = 0;
    }
    return false;
}
int64_t run_of(const view *v, int *lead);            /* elements of the last dimensions that lie together, and how many are before them */
void dense(view *v);                               /* strides of elements that lie together */
bool spread_view(view *v, const view *to);         /* repeated along new or unit dimensions up to `to`'s shape */
void permuted(view *v, const int64_t *perm);
void last_dims(view *v, const int64_t *axes, int64_t n, int *kept); /* these dimensions behind the others */
view row_of(const view *v, int kept);              /* the first of the rows that the dimensions from `kept` on make */

/* --- elements as numbers: dense, in scratch memory; NULL on failure. Loads are counted --- */
double *reals(call *c, const view *v);
double *numbers(call *c, const view *v); /* the same, not counted: whoever works with them counts each time he reads one */
int64_t *whole_numbers(call *c, const view *v);
int64_t *wholes(call *c, const view *v); /* U64 as its pattern */
void read_reals(int fmt, const uint8_t *src, double *out, int64_t n);
void read_wholes(int fmt, const uint8_t *src, int64_t *out, int64_t n);
void numbers_into(const view *v, double *out);
void whole_numbers_into(const view *v, int64_t *out);
/* Results: floats rounded once to f32 and once to the format, to integers cut and saturated. Stores are counted. */
bool give_reals(call *c, const view *v, const double *x);
bool give_wholes(call *c, const view *v, const int64_t *x, int from); /* `from`: the format they have had */
void write_reals(int fmt, const double *x, uint8_t *out, int64_t n);
void write_wholes(int fmt, const int64_t *x, uint8_t *out, int64_t n, int from);
int64_t wrapped(int64_t x, int fmt); /* the low bits of x as a number of the format */
double *room_reals(call *c, int64_t n);
int64_t *room_wholes(call *c, int64_t n);

/* --- moving: bytes where the formats are equal, else numbers. Words of runs are counted --- */
bool copy(call *c, const view *from, const view *to);
bool start_update(call *c); /* result 0 as operand 0 is; nothing to do where they are one tensor */
void npc(const view *v, int64_t *n, int64_t *p, int64_t *channels); /* batches, positions, channels of a channel-blocked tensor */

/* --- functions of doubles (real.c) --- */
double r_exp(double x), r_expm1(double x), r_log(double x), r_log1p(double x), r_pow(double a, double b);
double r_sin(double x, int quarter), r_tan(double x), r_asin(double x), r_acos(double x), r_atan(double x);
double r_sinh(double x), r_cosh(double x), r_tanh(double x), r_asinh(double x), r_acosh(double x), r_atanh(double x);
double r_erf(double x), r_erfc(double x), r_sigmoid(double x), r_softplus(double x);
/* the larger or smaller one; NaN if there is one; of zeros +0 is larger */
static inline double larger(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b > a ? b : a == 0 ? a + b : a; }
static inline double smaller(double a, double b) { return -larger(-a, -b); }
/* an activation of n numbers, in place; `single`: they are computed in f32 */
bool activate(call *c, int act, double alpha, double *x, int64_t n, bool single);
double stored(double x, bool single); /* as f32 if single */

#define X(name) routine name;
TX8_ROUTINE_FUNCTIONS(X)
#undef X

#endif
