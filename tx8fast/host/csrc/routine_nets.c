/* Recurrent layers over time, and determinants: routines whose every step needs the one before. In doubles, rounded once at the end. */
#include "routine.h"

typedef struct {
    int net, act[3];
    int64_t hidden, inputs, gates;
    const double *w, *r, *wb, *rb, *peephole;
    double clip;
    bool linear_before_reset, input_forget;
    double *gx, *gh; /* (gates * hidden) of the row at work */
} cell;

static double act(const cell *g, int which, double v) {
    if (g->clip > 0) v = smaller(larger(v, -g->clip), g->clip);
    return g->act[which] == TX8_CELL_SIGMOID ? r_sigmoid(v) : g->act[which] == TX8_CELL_TANH ? r_tanh(v) : larger(v, 0);
}

/* rows [from, to) of a matrix (.., n) times x */
static void times(const double *matrix, const double *x, int64_t n, int64_t from, int64_t to, double *out) {
    for (int64_t i = from; i < to; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += x[k] * matrix[i * n + k];
        out[i] = sum;
    }
}

/* One step of one row: hidden and cell state become the next ones. */
static void step(call *c, cell *g, const double *x, double *h, double *s, double *held) {
    int64_t n = g->hidden, rows = g->gates * n;
    times(g->w, x, g->inputs, 0, rows, g->gx);
    times(g->r, h, n, 0, g->net == TX8_NET_GRU ? 2 * n : rows, g->gh);
    count_products(c, rows * (g->inputs + n));
    if (g->net == TX8_NET_RNN) {
        for (int64_t i = 0; i < n; i++) h[i] = act(g, 0, g->gx[i] + g->gh[i] + g->wb[i] + g->rb[i]);
        count_ops(c, 3 * n), count_functions(c, n);
    } else if (g->net == TX8_NET_LSTM) { /* input, output, forget, cell */
        for (int64_t i = 0; i < n; i++) {
            double v[4];
            for (int k = 0; k < 4; k++) v[k] = g->gx[k * n + i] + g->gh[k * n + i] + g->wb[k * n + i] + g->rb[k * n + i];
            double in = act(g, 0, v[0] + g->peephole[i] * s[i]);
            double forget = g->input_forget ? 1 - in : act(g, 0, v[2] + g->peephole[2 * n + i] * s[i]);
            s[i] = forget * s[i] + in * act(g, 1, v[3]);
            double out = act(g, 0, v[1] + g->peephole[n + i] * s[i]), clip = g->clip;
            g->clip = 0; /* the state is not clipped */
            h[i] = out * act(g, 2, s[i]);
            g->clip = clip;
        }
        count_ops(c, 22 * n), count_functions(c, 5 * n);
    } else { /* update, reset, hidden */
        double *reset = held;
        for (int64_t i = 0; i < n; i++) {
            reset[n + i] = act(g, 0, (g->gx[i] + g->wb[i]) + (g->gh[i] + g->rb[i]));
            reset[i] = act(g, 0, (g->gx[n + i] + g->wb[n + i]) + (g->gh[n + i] + g->rb[n + i]));
        }
        if (!g->linear_before_reset)
            for (int64_t i = 0; i < n; i++) reset[i] *= h[i];
        times(g->r, g->linear_before_reset ? h : reset, n, 2 * n, rows, g->gh);
        for (int64_t i = 0; i < n; i++) {
            double z = reset[n + i], b = g->gh[2 * n + i] + g->rb[2 * n + i];
            double inner = g->linear_before_reset ? reset[i] * b : b;
            h[i] = (1 - z) * act(g, 1, (g->gx[2 * n + i] + g->wb[2 * n + i]) + inner) + z * h[i];
        }
        count_ops(c, 14 * n), count_functions(c, 3 * n);
    }
}

bool routine_recurrent(call *c) {
    cell g = {.net = (int)next_whole(c)};
    bool reverse = next_whole(c) != 0;
    int64_t names;
    const int64_t *acts = next_wholes(c, &names);
    g.clip = next_real(c), g.linear_before_reset = next_whole(c) != 0, g.input_forget = next_whole(c) != 0;
    for (int k = 0; k < 8; k++)
        if (missing(c, k)) return false;
    if (names > 6) return refuse(c, TX8_WHY_LIST, names, 6, 0);
    if (c->n_out < 3 || g.net < 0 || g.net > TX8_NET_LSTM) return refuse(c, TX8_WHY_UNKNOWN, g.net, 0, 0);
    const view *v = c->in, *w = c->in + 1, *r = c->in + 2;
    if (v->rank != 3 || w->rank != 3 || r->rank != 3) return refuse(c, TX8_WHY_RANK, v->rank, 0, 0);
    int64_t steps = v->shape[0], batch = v->shape[1], directions = w->shape[0], n = r->shape[2], per = 1 + g.net, state = directions * batch * n;
    g.hidden = n, g.inputs = v->shape[2], g.gates = g.net == TX8_NET_RNN ? 1 : g.net + 2;
    int64_t rows = g.gates * n;
    if (names < per * directions || w->shape[1] != rows || w->shape[2] != g.inputs || r->shape[0] != directions || r->shape[1] != rows || c->in[3].n != directions * 2 * rows ||
        c->in[4].n != batch || c->in[5].n != state || c->in[6].n != state || (g.net == TX8_NET_LSTM && c->in[7].n != directions * 3 * n) || c->out[0].n != steps * state ||
        c->out[1].n != state || c->out[2].n != state)
        return refuse(c, TX8_WHY_SIZES, rows, state, 0);
    double *x = numbers(c, v), *weight = numbers(c, w), *back = numbers(c, r), *bias = reals(c, c->in + 3), *peephole = reals(c, c->in + 7);
    int64_t *length = wholes(c, c->in + 4);
    double *h = reals(c, c->in + 5), *s = reals(c, c->in + 6), *y = room_reals(c, steps * state), *held = room_reals(c, 2 * n);
    g.gx = room_reals(c, rows), g.gh = room_reals(c, rows);
    if (!x || !weight || !back || !bias || !peephole || !length || !h || !s || !y || !held || !g.gx || !g.gh) return false;
    memset(y, 0, (size_t)(steps * state) * sizeof *y);
    for (int64_t d = 0; d < directions; d++) {
        for (int k = 0; k < per; k++) g.act[k] = (int)acts[d * per + k];
        g.w = weight + d * rows * g.inputs, g.r = back + d * rows * n;
        g.wb = bias + d * 2 * rows, g.rb = g.wb + rows, g.peephole = peephole + d * 3 * n;
        for (int64_t k = 0; k < steps; k++)
            for (int64_t b = 0; b < batch; b++) {
                int64_t t = reverse || d == 1 ? length[b] - 1 - k : k;
                if (t < 0 || t >= length[b] || t >= steps) continue; /* behind the sequence's end: the state stays, the result is 0 */
                double *own = h + (d * batch + b) * n;
                step(c, &g, x + (t * batch + b) * g.inputs, own, s + (d * batch + b) * n, held);
                memcpy(y + ((t * directions + d) * batch + b) * n, own, (size_t)n * sizeof *own);
            }
    }
    return give_reals(c, c->out, y) && give_reals(c, c->out + 1, h) && give_reals(c, c->out + 2, s);
}

bool routine_det(call *c) {
    if (missing(c, 0)) return false;
    view *v = c->in, *to = c->out;
    int64_t n = v->rank >= 2 ? v->shape[v->rank - 1] : 0;
    if (v->rank < 2 || v->shape[v->rank - 2] != n || to->n * n * n != v->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    double *x = reals(c, v), *y = room_reals(c, to->n);
    if (!x || !y) return false;
    for (int64_t m = 0; m < to->n; m++) {
        double *a = x + m * n * n, det = 1;
        for (int64_t k = 0; k < n; k++) {
            int64_t pivot = k;
            for (int64_t i = k + 1; i < n; i++)
                if (fabs(a[i * n + k]) > fabs(a[pivot * n + k])) pivot = i;
            if (pivot != k) {
                det = -det;
                for (int64_t j = 0; j < n; j++) {
                    double held = a[k * n + j];
                    a[k * n + j] = a[pivot * n + j], a[pivot * n + j] = held;
                }
            }
            det *= a[k * n + k];
            for (int64_t i = k + 1; i < n && a[k * n + k] != 0; i++) {
                double f = a[i * n + k] / a[k * n + k];
                for (int64_t j = k; j < n; j++) a[i * n + j] -= f * a[k * n + j];
            }
            count_divides(c, n - 1 - k), count_loads(c, 2 * (n - 1 - k) * (n - k)), count_stores(c, (n - 1 - k) * (n - k));
            count_ops(c, n - k + 2 * (n - 1 - k) * (n - k)); /* the pivot is looked for; rows are subtracted */
        }
        y[m] = det;
    }
    return give_reals(c, to, y);
}
