/* Routines that add products: contractions over any dimensions, convolutions and their transposes.
 *
 * Products of contractions are added one after the other in doubles, the summed dimensions in their order; f32 results are rounded once.
 * Convolutions round the sum of every tap to f32 and add taps in f32. Integers wrap.
 */
#include "routine.h"

#define MOST_LETTERS 64

/* A nest of dimensions: those of the result first, then the summed ones; steps of every operand in elements. */
typedef struct {
    int letters, out, operands;
    const int64_t *size, *step[MOST_LETTERS];
} nest;

static bool read_nest(call *c, nest *n) {
    n->operands = (int)next_whole(c), n->letters = (int)next_whole(c), n->out = (int)next_whole(c);
    if (n->operands < 1 || n->operands > c->n_in || n->operands > MOST_LETTERS || n->letters < 1 || n->letters > MOST_LETTERS || n->out < 1 || n->out > n->letters ||
        c->end - c->word < (int64_t)(n->operands + 1) * n->letters)
        return refuse(c, TX8_WHY_LIST, n->letters, n->operands, 0);
    n->size = c->word, c->word += n->letters;
    double places = 1;
    bool total = true;
    for (int l = 0; l < n->letters; l++) {
        if (n->size[l] < 0 || (places *= (double)most(n->size[l], 1)) > 1e12) return refuse(c, TX8_WHY_LIST, n->size[l], n->letters, 0);
        total &= n->size[l] > 0;
    }
    for (int k = 0; k < n->operands; k++) {
        int64_t reach = 0;
        n->step[k] = c->word, c->word += n->letters;
        for (int l = 0; l < n->letters; l++) {
            if (n->step[k][l] < 0 || n->step[k][l] > ((int64_t)1 << 40) || reach > ((int64_t)1 << 60)) return refuse(c, TX8_WHY_LIST, n->size[l], n->step[k][l], 0);
            if (n->size[l] > 1 && n->step[k][l] > ((int64_t)1 << 60) / n->size[l]) return refuse(c, TX8_WHY_LIST, n->size[l], n->step[k][l], 0);
            reach += n->size[l] ? (n->size[l] - 1) * n->step[k][l] : 0;
        }
        if (missing(c, k)) return false;
        if (total && (!c->in[k].n || reach >= c->in[k].n)) return refuse(c, TX8_WHY_SIZES, reach, c->in[k].n, 0);
    }
    return true;
}

/* Go on among dimensions [from, to) for all operands at once; false behind the last place. */
static bool next_place(const nest *n, int from, int to, int64_t *at, int64_t *offset) {
    for (int l = to - 1; l >= from; l--) {
        at[l]++;
        for (int k = 0; k < n->operands; k++) offset[k] += n->step[k][l];
        if (at[l] < n->size[l]) return true;
        for (int k = 0; k < n->operands; k++) offset[k] -= at[l] * n->step[k][l];
        at[l] = 0;
    }
    return false;
}

#define CONTRACT(name, T) \
    static void name(const nest *n, T *const *x, T *y) { \
        int last = n->out - 1; \
        int64_t lanes = n->size[last], rows = product_of(n->size, last), sums = product_of(n->size + n->out, n->letters - n->out); \
        int64_t at[MOST_LETTERS] = {0}, offset[MOST_LETTERS] = {0}; \
        for (int64_t r = 0; r < rows; r++, y += lanes) { \
            for (int64_t j = 0; j < lanes; j++) y[j] = 0; \
            for (int64_t s = 0; s < sums; s++) { \
                const T *a = x[0] + offset[0], *b = n->operands > 1 ? x[1] + offset[1] : NULL; \
                int64_t p = n->step[0][last], q = b ? n->step[1][last] : 0; \
                if (n->operands == 2 && p == 0 && q == 1) \
                    for (int64_t j = 0; j < lanes; j++) y[j] += *a * b[j]; \
                else if (n->operands == 2) \
                    for (int64_t j = 0; j < lanes; j++) y[j] += a[j * p] * b[j * q]; \
                else \
                    for (int64_t j = 0; j < lanes; j++) { \
                        T z = a[j * p]; \
                        for (int k = 1; k < n->operands; k++) z *= x[k][offset[k] + j * n->step[k][last]]; \
                        y[j] += z; \
                    } \
                next_place(n, n->out, n->letters, at, offset); \
            } \
            next_place(n, 0, last, at, offset); \
        } \
    }
CONTRACT(contract_reals, double)
CONTRACT(contract_wholes, uint64_t)

/* Sums to results: rounded, bias added, activation, stored. `outputs`: the shape that the sums have, as the result's */
static bool finish(call *c, double *y, uint64_t *w, const view *bias, int act, double alpha, bool single) {
    view *to = c->out;
    if (y)
        for (int64_t i = 0; i < to->n; i++) y[i] = stored(y[i], single);
    if (bias) {
        view g = *bias;
        if (!spread_view(&g, to)) return refuse(c, TX8_WHY_SIZES, g.n, to->n, 0);
        count_ops(c, to->n);
        if (y) {
            double *b = reals(c, &g);
            if (!b) return false;
            for (int64_t i = 0; i < to->n; i++) y[i] = stored(y[i] + b[i], single && !is_f64(bias));
        } else {
            int64_t *b = wholes(c, &g);
            if (!b) return false;
            for (int64_t i = 0; i < to->n; i++) w[i] += (uint64_t)b[i];
        }
    }
    if (y) return activate(c, act, alpha, y, to->n, single) && give_reals(c, to, y);
    if (act == TX8_ACT_NONE || act == TX8_ACT_RELU) {
        if (act) count_ops(c, to->n);
        for (int64_t i = 0; act && i < to->n; i++) w[i] = (int64_t)w[i] > 0 ? w[i] : 0;
        return give_wholes(c, to, (int64_t *)w, F_I64);
    }
    if (!(y = room_reals(c, to->n))) return false;
    for (int64_t i = 0; i < to->n; i++) y[i] = (double)(int64_t)w[i];
    return activate(c, act, alpha, y, to->n, false) && give_reals(c, to, y);
}

bool routine_contract(call *c) { /* gemm, contract, einsum */
    nest n;
    if (!read_nest(c, &n)) return false;
    int act = (int)next_whole(c);
    double alpha = next_real(c), **x = scratch(c->t, n.operands * (int64_t)sizeof *x);
    int64_t **w = scratch(c->t, n.operands * (int64_t)sizeof *w), total = product_of(n.size, n.letters);
    bool real = false, single = true;
    if (!x || !w) return false;
    if (product_of(n.size, n.out) != c->out->n) return refuse(c, TX8_WHY_SIZES, product_of(n.size, n.out), c->out->n, 0);
    for (int k = 0; k < n.operands; k++) real |= is_float(c->in + k), single &= !is_f64(c->in + k);
    for (int k = 0; k < n.operands; k++)
        if (real ? !(x[k] = numbers(c, c->in + k)) : !(w[k] = whole_numbers(c, c->in + k))) return false;
    double *y = real ? room_reals(c, c->out->n) : NULL;
    uint64_t *z = real ? NULL : (uint64_t *)room_wholes(c, c->out->n);
    if (!y && !z) return false;
    if (real)
        contract_reals(&n, x, y);
    else
        contract_wholes(&n, (uint64_t **)w, z);
    count_loads(c, n.operands * total), count_ops(c, n.operands * total);
    const view *bias = c->code == TX8_R_GEMM && c->n_in > 2 && c->in[2].given ? c->in + 2 : NULL;
    return finish(c, y, z, bias, act, alpha, single);
}

/* --- convolutions: x (n, positions.., channels) --- */

typedef struct {
    int rank;
    int64_t kernel[MAX_RANK], size[MAX_RANK], out[MAX_RANK], stride[MAX_RANK], dilation[MAX_RANK], lo[MAX_RANK];
    int64_t taps, positions, outs, groups, ins, each; /* input channels and output channels of a group */
    bool transposed;
} window;

static bool read_window(call *c, window *g) {
    if (missing(c, 0) || missing(c, 1)) return false;
    const view *x = c->in, *w = c->in + 1, *to = c->out;
    g->rank = w->rank - 2, g->groups = next_whole(c), g->transposed = c->code == TX8_R_CONV_TRANSPOSE;
    if (g->rank < 1 || x->rank != g->rank + 2 || to->rank != x->rank || g->groups < 1) return refuse(c, TX8_WHY_RANK, x->rank, 0, 0);
    if (!next_pair(c, g->rank, 1, g->stride) || !next_pair(c, g->rank, 1, g->dilation) || !next_pair(c, g->rank, 0, g->lo)) return false;
    for (int k = 0; k < g->rank; k++) {
        g->kernel[k] = w->shape[k], g->size[k] = x->shape[k + 1], g->out[k] = to->shape[k + 1];
        if (g->stride[k] < 1 || g->dilation[k] < 1) return refuse(c, TX8_WHY_LIST, g->stride[k], g->dilation[k], 0);
    }
    g->taps = product_of(g->kernel, g->rank), g->positions = product_of(g->size, g->rank), g->outs = product_of(g->out, g->rank);
    int64_t channels = x->shape[x->rank - 1], made = to->shape[to->rank - 1];
    g->ins = channels / g->groups, g->each = made / g->groups;
    int64_t rows = w->shape[g->rank], columns = w->shape[g->rank + 1];
    if (channels % g->groups || made % g->groups || columns != (g->transposed ? channels : g->ins) || rows != (g->transposed ? g->each : made) || x->shape[0] != to->shape[0])
        return refuse(c, TX8_WHY_SIZES, columns, rows, 0);
    return true;
}

/* The input position that a tap of an output position reads, -1: none. */
static int64_t place_of(const window *g, const int64_t *out, const int64_t *tap) {
    int64_t place = 0;
    for (int k = 0; k < g->rank; k++) {
        int64_t p = g->transposed ? out[k] + g->lo[k] - tap[k] * g->dilation[k] : out[k] * g->stride[k] + tap[k] * g->dilation[k] - g->lo[k];
        if (g->transposed) {
            if (p % g->stride[k]) return -1;
            p /= g->stride[k];
        }
        if (p < 0 || p >= g->size[k]) return -1;
        place = place * g->size[k] + p;
    }
    return place;
}

/* w (taps, rows, columns) as (tap, group, input channel, output channel) */
#define TURN(name, T) \
    static void name(const window *g, const T *w, T *out) { \
        for (int64_t t = 0; t < g->taps; t++) \
            for (int64_t q = 0; q < g->groups; q++) \
                for (int64_t i = 0; i < g->ins; i++) \
                    for (int64_t o = 0; o < g->each; o++) \
                        *out++ = g->transposed ? w[(t * g->each + o) * g->groups * g->ins + q * g->ins + i] : w[(t * g->groups * g->each + q * g->each + o) * g->ins + i]; \
    }
#define CONVOLVE(name, T, ROUND) \
    static void name(const window *g, int64_t batches, const T *x, const T *w, const T *zeros, T *part, T *y, bool single) { \
        int64_t made = g->groups * g->each, channels = g->groups * g->ins, none[MAX_RANK] = {0}; \
        (void)single; \
        for (int64_t b = 0; b < batches; b++) { \
            int64_t out[MAX_RANK] = {0}, zero = 0; \
            for (int64_t p = 0; p < g->outs; p++, y += made) { \
                int64_t tap[MAX_RANK] = {0}; \
                for (int64_t o = 0; o < made; o++) y[o] = 0; \
                for (int64_t t = 0; t < g->taps; t++) { \
                    int64_t place = place_of(g, out, tap); \
                    advance(g->rank, g->kernel, none, tap, &zero); \
                    if (place < 0 && g->transposed) continue; \
                    const T *row = place < 0 ? zeros : x + (b * g->positions + place) * channels; \
                    for (int64_t q = 0; q < g->groups; q++) { \
                        const T *v = w + (t * g->groups + q) * g->ins * g->each; \
                        for (int64_t o = 0; o < g->each; o++) part[o] = 0; \
                        for (int64_t i = 0; i < g->ins; i++, v += g->each) \
                            for (int64_t o = 0; o < g->each; o++) part[o] += row[q * g->ins + i] * v[o]; \
                        for (int64_t o = 0; o < g->each; o++) y[q * g->each + o] = ROUND(y[q * g->each + o] + ROUND(part[o])); \
                    } \
                } \
                advance(g->rank, g->out, none, out, &zero); \
            } \
        } \
    }
#define AS_IT_IS(x) (x)
#define AS_STORED(x) stored(x, single)
TURN(turn_reals, double)
TURN(turn_wholes, uint64_t)
CONVOLVE(convolve_reals, double, AS_STORED)
CONVOLVE(convolve_wholes, uint64_t, AS_IT_IS)

bool routine_conv(call *c) { /* conv, conv_transpose */
    window g;
    if (!read_window(c, &g)) return false;
    int act = (int)next_whole(c);
    double alpha = next_real(c);
    view *x = c->in, *w = c->in + 1, *to = c->out;
    const view *bias = c->n_in > 2 && c->in[2].given ? c->in + 2 : NULL;
    bool real = is_float(x) || is_float(w), single = !is_f64(x) && !is_f64(w);
    int64_t channels = g.groups * g.ins, sums = x->shape[0] * (g.transposed ? g.positions : g.outs) * g.taps * g.groups * g.each;
    count_products(c, sums * g.ins), count_ops(c, sums); /* taps are added */
    double *y = NULL;
    uint64_t *z = NULL;
    if (real) {
        double *a = numbers(c, x), *b = numbers(c, w), *turned = room_reals(c, w->n), *zeros = room_reals(c, channels), *part = room_reals(c, g.each);
        if (!a || !b || !turned || !zeros || !part || !(y = room_reals(c, to->n))) return false;
        memset(zeros, 0, (size_t)channels * sizeof *zeros);
        turn_reals(&g, b, turned);
        convolve_reals(&g, x->shape[0], a, turned, zeros, part, y, single);
    } else {
        uint64_t *a = (uint64_t *)whole_numbers(c, x), *b = (uint64_t *)whole_numbers(c, w), *turned = (uint64_t *)room_wholes(c, w->n);
        uint64_t *zeros = (uint64_t *)room_wholes(c, channels), *part = (uint64_t *)room_wholes(c, g.each);
        if (!a || !b || !turned || !zeros || !part || !(z = (uint64_t *)room_wholes(c, to->n))) return false;
        memset(zeros, 0, (size_t)channels * sizeof *zeros);
        turn_wholes(&g, b, turned);
        convolve_wholes(&g, x->shape[0], a, turned, zeros, part, z, single);
    }
    return finish(c, y, z, bias, act, alpha, single);
}
