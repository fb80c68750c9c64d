/* Routines along dimensions: reductions, scans, norms, softmax, rotary positions.
 *
 * The dimensions that are worked along come last; what is left is rows of numbers. Sums begin with the first number and add the others
 * one after the other, in doubles.
 */
#include "routine.h"

/* --- reductions --- */

static double reduced(int op, const double *x, int64_t m) {
    double y = op == TX8_REDUCE_MUL ? 1 : 0, shift;
    switch (op) {
        case TX8_REDUCE_MAX: case TX8_REDUCE_MIN:
            y = op == TX8_REDUCE_MAX ? -INFINITY : INFINITY;
            for (int64_t i = 0; i < m; i++) y = op == TX8_REDUCE_MAX ? larger(y, x[i]) : smaller(y, x[i]);
            return y;
        case TX8_REDUCE_MUL:
            for (int64_t i = 0; i < m; i++) y = i ? y * x[i] : x[i];
            return y;
        case TX8_REDUCE_L1:
            for (int64_t i = 0; i < m; i++) y += fabs(x[i]);
            return y;
        case TX8_REDUCE_SUMSQ: case TX8_REDUCE_L2:
            for (int64_t i = 0; i < m; i++) y += x[i] * x[i];
            return op == TX8_REDUCE_L2 ? sqrt(y) : y;
        case TX8_REDUCE_LOGSUMEXP:
            shift = -INFINITY;
            for (int64_t i = 0; i < m; i++) shift = larger(shift, x[i]);
            if (shift - shift != 0) shift = 0;
            for (int64_t i = 0; i < m; i++) y += r_exp(x[i] - shift);
            return r_log(y) + shift;
        default:
            for (int64_t i = 0; i < m; i++) y = i ? y + x[i] : x[i];
            return op == TX8_REDUCE_MEAN ? y / (double)m : op == TX8_REDUCE_LOGSUM ? r_log(y) : y;
    }
}

static int64_t reduced_whole(int op, const int64_t *x, int64_t m, const view *v) {
    int64_t flip = flip_of(v);
    uint64_t y = op == TX8_REDUCE_MUL;
    if (op == TX8_REDUCE_MAX || op == TX8_REDUCE_MIN) { /* of nothing: the end of the format */
        bool is_signed = FORMATS[v->fmt].kind == 'S', high = op == TX8_REDUCE_MIN;
        int64_t bits = 8 * v->size, ones = (int64_t)(~(uint64_t)0 >> (64 - bits + is_signed));
        int64_t best = is_truth(v) ? high : high ? ones : is_signed ? -1 - ones : 0;
        for (int64_t i = 0; i < m; i++)
            if (i == 0 || (op == TX8_REDUCE_MAX ? (x[i] ^ flip) > (best ^ flip) : (x[i] ^ flip) < (best ^ flip))) best = x[i];
        return best;
    }
    for (int64_t i = 0; i < m; i++) {
        uint64_t u = (uint64_t)x[i];
        if (op == TX8_REDUCE_MUL)
            y *= u;
        else if (op == TX8_REDUCE_SUMSQ)
            y += (uint64_t)(is_truth(v) ? x[i] : wrapped((int64_t)(u * u), v->fmt));
        else if (op == TX8_REDUCE_L1)
            y += (uint64_t)wrapped((int64_t)(x[i] < 0 && FORMATS[v->fmt].kind == 'S' ? 0 - u : u), is_truth(v) ? F_I64 : v->fmt);
        else
            y += u;
    }
    return (int64_t)y;
}

bool routine_reduce(call *c) {
    int op = (int)next_whole(c), kept;
    int64_t n;
    const int64_t *axes;
    static const uint8_t each[][TX8_WORK] = {TX8_REDUCE_EACH}, row[][TX8_WORK] = {TX8_REDUCE_ROW};
    if (missing(c, 0) || !next_axes(c, c->in->rank, &n, &axes)) return false;
    view v = c->in[0];
    if (op < 0 || op > TX8_REDUCE_LOGSUMEXP) return refuse(c, TX8_WHY_UNKNOWN, op, 0, 0);
    last_dims(&v, axes, n, &kept);
    int64_t rows = product_of(v.shape, kept), m = product_of(v.shape + kept, v.rank - kept);
    if (rows != c->out->n) return refuse(c, TX8_WHY_SIZES, rows, c->out->n, 0);
    for (int k = 0; k < TX8_WORK; k++) c->t->work[k] += rows * (m * each[op][k] + row[op][k]);
    bool whole = !is_float(&v) && op != TX8_REDUCE_LOGSUM && op != TX8_REDUCE_LOGSUMEXP && op != TX8_REDUCE_L2 && op != TX8_REDUCE_MEAN;
    view row_view = row_of(&v, kept);
    int64_t at[MAX_RANK] = {0}, offset = 0, *w = whole ? room_wholes(c, m) : NULL, *z = whole ? room_wholes(c, rows) : NULL;
    double *x = whole ? NULL : room_reals(c, m), *y = whole ? NULL : room_reals(c, rows);
    if (whole ? !w || !z : !x || !y) return false;
    count_loads(c, rows * m);
    for (int64_t i = 0; i < rows; i++) {
        row_view.at = v.at + offset;
        if (whole) {
            whole_numbers_into(&row_view, w);
            z[i] = reduced_whole(op, w, m, &v);
        } else {
            numbers_into(&row_view, x);
            y[i] = reduced(op, x, m);
        }
        advance(kept, v.shape, v.stride, at, &offset);
    }
    return whole ? give_wholes(c, c->out, z, v.fmt == F_U64 ? F_U64 : F_I64) : give_reals(c, c->out, y);
}

/* --- scans --- */

bool routine_scan(call *c) { /* cumsum, cumprod */
    int64_t axis;
    if (missing(c, 0) || !next_axis(c, c->in->rank, &axis)) return false;
    bool exclusive = next_whole(c) != 0, backward = next_whole(c) != 0, product = c->code == TX8_R_CUMPROD;
    int kept;
    view v = c->in[0], to = c->out[0];
    if (v.rank == 0) v.rank = to.rank = 1, v.shape[0] = to.shape[0] = 1, v.stride[0] = to.stride[0] = 0;
    if (v.rank != to.rank || v.n != to.n) return refuse(c, TX8_WHY_SIZES, v.n, to.n, 0);
    last_dims(&v, &axis, 1, &kept), last_dims(&to, &axis, 1, &kept);
    int64_t m = v.shape[kept], rows = m ? v.n / m : 0;
    count_ops(c, v.n);
    double *x = is_float(&v) ? reals(c, &v) : NULL;
    int64_t *w = is_float(&v) ? NULL : wholes(c, &v);
    if (!x && !w) return false;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, next;
        uint64_t total = product;
        for (int64_t i = 0; i < m; i++) {
            int64_t at = r * m + (backward ? m - 1 - i : i);
            if (x) {
                next = i == 0 ? x[at] : product ? sum * x[at] : sum + x[at];
                x[at] = exclusive ? (i == 0 ? product : sum) : next;
                sum = next;
            } else {
                uint64_t before_ = total;
                total = product ? total * (uint64_t)w[at] : total + (uint64_t)w[at];
                w[at] = (int64_t)(exclusive ? before_ : total);
            }
        }
    }
    return x ? give_reals(c, &to, x) : give_wholes(c, &to, w, v.fmt == F_U64 ? F_U64 : F_I64);
}

/* --- norms --- */

/* The channels of every head as a dimension of their own, if there are several heads. */
static bool by_head(call *c, view *v, int64_t heads) {
    if (heads == 1) return true;
    int last = v->rank - 1;
    if (heads < 1 || last < 0 || v->rank == MAX_RANK || v->shape[last] % heads) return refuse(c, TX8_WHY_LIST, heads, last < 0 ? 0 : v->shape[last], 0);
    v->shape[last + 1] = v->shape[last] / heads, v->stride[last + 1] = v->stride[last];
    v->stride[last] *= v->shape[last + 1], v->shape[last] = heads, v->rank++;
    return true;
}

bool routine_norm(call *c) { /* layernorm, rmsnorm */
    int64_t heads = next_whole(c), n;
    const int64_t *axes;
    if (missing(c, 0) || !next_axes(c, c->in->rank + (heads != 1), &n, &axes)) return false;
    double eps = next_real(c), *factor[2] = {NULL, NULL};
    bool centred = c->code == TX8_R_LAYERNORM;
    int kept;
    view v = c->in[0], to = c->out[0];
    if (v.n != to.n || v.rank != to.rank || !by_head(c, &v, heads) || !by_head(c, &to, heads)) return refuse(c, TX8_WHY_SIZES, v.n, to.n, 0);
    for (int k = 0; k < 1 + centred; k++) {
        if (k + 1 >= c->n_in || !c->in[k + 1].given) continue;
        view g = c->in[k + 1];
        if (!spread_view(&g, &v)) return refuse(c, TX8_WHY_SIZES, g.n, v.n, 0);
        last_dims(&g, axes, n, &kept);
        if (!(factor[k] = reals(c, &g))) return false;
        count_ops(c, v.n);
    }
    last_dims(&v, axes, n, &kept), last_dims(&to, axes, n, &kept);
    double *x = reals(c, &v);
    if (!x) return false;
    int64_t m = product_of(v.shape + kept, v.rank - kept), rows = m ? v.n / m : 0;
    for (int64_t r = 0; r < rows; r++) {
        double *line = x + r * m, sum = 0, power = 0;
        if (centred) {
            for (int64_t i = 0; i < m; i++) sum = i ? sum + line[i] : line[i];
            sum /= (double)m;
            for (int64_t i = 0; i < m; i++) line[i] -= sum;
        }
        for (int64_t i = 0; i < m; i++) power += line[i] * line[i];
        double root = sqrt(power / (double)m + eps);
        for (int64_t i = 0; i < m; i++) {
            line[i] /= root;
            if (factor[0]) line[i] *= factor[0][r * m + i];
            if (factor[1]) line[i] += factor[1][r * m + i];
        }
        count_divides(c, m + 2 + centred), count_ops(c, (2 + 2 * centred) * m + 1);
    }
    return give_reals(c, &to, x);
}

bool routine_softmax(call *c) {
    int64_t axis;
    if (missing(c, 0) || !next_axis(c, c->in->rank, &axis)) return false;
    double scale = next_real(c);
    bool log = next_whole(c) != 0;
    int kept;
    view v = c->in[0], to = c->out[0];
    if (v.n != to.n || v.rank != to.rank || v.rank < 1) return refuse(c, TX8_WHY_SIZES, v.n, to.n, 0);
    if (!v.n) return true;
    double *mask = NULL;
    bool truth = false;
    if (c->n_in > 1 && c->in[1].given) {
        view g = c->in[1];
        truth = is_truth(&g);
        if (!spread_view(&g, &v)) return refuse(c, TX8_WHY_SIZES, g.n, v.n, 0);
        last_dims(&g, &axis, 1, &kept);
        if (!(mask = reals(c, &g))) return false;
        count_ops(c, v.n);
    }
    last_dims(&v, &axis, 1, &kept), last_dims(&to, &axis, 1, &kept);
    double *x = reals(c, &v);
    if (!x) return false;
    int64_t m = v.shape[kept], rows = v.n / m;
    for (int64_t r = 0; r < rows; r++) {
        double *line = x + r * m, top = -INFINITY, total = 0;
        const double *hides = mask ? mask + r * m : NULL;
        for (int64_t i = 0; i < m; i++) {
            line[i] *= scale;
            if (hides) line[i] = !truth ? line[i] + hides[i] : hides[i] != 0 ? line[i] : -INFINITY;
            top = larger(top, line[i]);
        }
        for (int64_t i = 0; i < m; i++) {
            double e = r_exp(line[i] -= top);
            total += e;
            if (!log) line[i] = e;
        }
        double less = log ? r_log(total) : 0;
        for (int64_t i = 0; i < m; i++) line[i] = log ? line[i] - less : line[i] / total;
        count_ops(c, (4 + log) * m), count_functions(c, m + log), count_divides(c, log ? 0 : m);
    }
    return give_reals(c, &to, x);
}

bool routine_batchnorm(call *c) {
    double eps = next_real(c), *vector[4];
    if (missing(c, 0)) return false;
    view *v = c->in, *to = c->out;
    int64_t channels = v->rank ? v->shape[v->rank - 1] : 1;
    if (v->n != to->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    double *x = reals(c, v);
    if (!x) return false;
    for (int k = 0; k < 4; k++) {
        if (missing(c, k + 1)) return false;
        if (c->in[k + 1].n != channels) return refuse(c, TX8_WHY_SIZES, c->in[k + 1].n, channels, 0);
        if (!(vector[k] = reals(c, c->in + k + 1))) return false;
    }
    for (int64_t i = 0; i < channels; i++) vector[0][i] /= sqrt(vector[3][i] + eps);
    for (int64_t i = 0; i < v->n; i++) x[i] = (x[i] - vector[2][i % channels]) * vector[0][i % channels] + vector[1][i % channels];
    count_divides(c, 2 * channels), count_ops(c, channels + 3 * v->n);
    return give_reals(c, to, x);
}

bool routine_rope(call *c) {
    int64_t heads = next_whole(c), lanes = next_whole(c);
    bool interleaved = next_whole(c) != 0;
    if (missing(c, 0) || missing(c, 1) || missing(c, 2)) return false;
    view v = c->in[0], to = c->out[0], turned;
    if (v.n != to.n || v.rank < 1 || heads < 1 || v.shape[v.rank - 1] % heads || v.rank == MAX_RANK) return refuse(c, TX8_WHY_LIST, heads, v.rank, 0);
    double *x = reals(c, &v), *table[2];
    if (!x) return false;
    int64_t width = v.shape[v.rank - 1] / heads;
    if (lanes < 0) lanes = width;
    if (lanes > width || (interleaved && lanes % 2)) return refuse(c, TX8_WHY_LIST, lanes, width, 0);
    turned = v; /* heads as a dimension */
    turned.shape[turned.rank - 1] = heads, turned.shape[turned.rank++] = width;
    turned.n = product_of(turned.shape, turned.rank);
    for (int k = 0; k < 2; k++) {
        view g = c->in[1 + k];
        if (g.rank < 1 || g.rank == MAX_RANK || g.shape[g.rank - 1] < width) return refuse(c, TX8_WHY_RANK, g.rank, 0, 0);
        g.shape[g.rank] = width, g.stride[g.rank] = g.stride[g.rank - 1], g.shape[g.rank - 1] = 1, g.stride[g.rank - 1] = 0, g.rank++;
        if (!spread_view(&g, &turned)) return refuse(c, TX8_WHY_SIZES, g.n, turned.n, 0);
        if (!(table[k] = reals(c, &g))) return false;
    }
    double *head = room_reals(c, width);
    if (!head) return false;
    for (int64_t h = 0; width && h < turned.n / width; h++) {
        double *line = x + h * width;
        for (int64_t j = 0; j < width; j++) { /* a lane behind those that turn is its own partner */
            double partner = line[j >= lanes ? j : interleaved ? j ^ 1 : (j + lanes / 2) % lanes];
            head[j] = line[j] * table[0][h * width + j] + partner * table[1][h * width + j];
        }
        memcpy(line, head, (size_t)width * sizeof *head);
        count_loads(c, width), count_ops(c, 3 * width);
    }
    return give_reals(c, &to, x);
}
