/* Routines that quantise, and the reverse: scales and zero points of a tensor, a channel or a block. */
#include "routine.h"

/* A scale or zero point as a tensor of x's shape: a single number, one per place of `axis`, per block along it, or repeated. */
static double *along(call *c, const view *v, const view *x, int64_t axis) {
    double *own = reals(c, v), *out = room_reals(c, x->n);
    int64_t step[MAX_RANK] = {0}, at[MAX_RANK] = {0}, none[MAX_RANK] = {0}, zero = 0, block = 1, run = 1;
    if (!own || !out) return NULL;
    if (v->n > 1 && v->rank == 1) {
        if (v->n != x->shape[axis]) return refuse(c, TX8_WHY_SIZES, v->n, x->shape[axis], 0), NULL;
        step[axis] = 1;
    } else if (v->n > 1) {
        if (v->rank != x->rank) return refuse(c, TX8_WHY_RANK, v->rank, x->rank, 0), NULL;
        for (int k = x->rank - 1; k >= 0; k--) {
            if (k == axis && v->shape[k] != x->shape[k])
                block = ceil_div(x->shape[k], v->shape[k]);
            else if (v->shape[k] != 1 && v->shape[k] != x->shape[k])
                return refuse(c, TX8_WHY_SIZES, v->shape[k], x->shape[k], 0), NULL;
            step[k] = v->shape[k] == 1 ? 0 : run, run *= v->shape[k];
        }
    }
    for (int64_t i = 0; i < x->n; i++) {
        int64_t place = 0;
        for (int k = 0; k < x->rank; k++) place += step[k] * (k == axis ? at[k] / block : at[k]);
        out[i] = own[place];
        advance(x->rank, x->shape, none, at, &zero);
    }
    count_ops(c, 2 * x->n); /* where its number lies */
    return out;
}

bool routine_quantize(call *c) {
    if (missing(c, 0) || missing(c, 1)) return false;
    view *v = c->in, *to = c->out;
    int64_t axis;
    if (!next_axis(c, v->rank, &axis)) return false;
    if (v->n != to->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    bool single = !is_f64(v) && !is_f64(c->in + 1) && (is_float(v) || v->size < 4), to_whole = FORMATS[to->fmt].kind == 'S' || FORMATS[to->fmt].kind == 'U';
    double *x = reals(c, v), *scale = along(c, c->in + 1, v, axis), *zero = NULL;
    if (!x || !scale) return false;
    if (to_whole && c->n_in > 2 && c->in[2].given && !(zero = along(c, c->in + 2, v, axis))) return false;
    count_divides(c, v->n);
    for (int64_t i = 0; i < v->n; i++) x[i] = stored(x[i] / scale[i], single);
    if (to_whole) {
        count_ops(c, 3 * v->n); /* rounded, moved, saturated */
        for (int64_t i = 0; i < v->n; i++) x[i] = nearbyint(x[i]) + (zero ? zero[i] : 0);
    }
    return give_reals(c, to, x);
}

bool routine_dequantize(call *c) {
    if (missing(c, 0) || missing(c, 1)) return false;
    view *v = c->in, *to = c->out;
    int64_t axis;
    if (!next_axis(c, v->rank, &axis)) return false;
    if (v->n != to->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    bool single = !is_f64(c->in + 1);
    double *x = reals(c, v), *scale = along(c, c->in + 1, v, axis), *zero = NULL;
    if (!x || !scale) return false;
    if (c->n_in > 2 && c->in[2].given && !(zero = along(c, c->in + 2, v, axis))) return false;
    count_ops(c, 2 * v->n);
    for (int64_t i = 0; i < v->n; i++) x[i] = stored(stored(x[i] - (zero ? zero[i] : 0), single) * scale[i], single);
    return give_reals(c, to, x);
}
