/* Routines that read images between their elements: grids, regions, deformed windows. Images are (n, channels, positions..). */
#include "routine.h"

#define SPATIAL (MAX_RANK - 2)

/* Mirror a coordinate at both borders until it lies between them. */
static double mirrored(double x, double low, double high) {
    double span = high - low;
    if (span <= 0) return low;
    double away = fabs(x - low), turns = floor(away / span), rest = away - turns * span;
    return fmod(turns, 2) == 0 ? low + rest : high - rest;
}

/* Weights of the taps of one dimension; the first is `first` elements from the floor. */
static int tap_weights(double fraction, int mode, double *weight, int *first) {
    const double a = -0.75;
    *first = 0;
    if (mode == TX8_SAMPLE_NEAREST) return weight[0] = 1, 1;
    if (mode == TX8_SAMPLE_LINEAR) return weight[0] = 1 - fraction, weight[1] = fraction, 2;
    *first = -1;
    for (int k = 0; k < 4; k++) {
        double t = fabs(k - 1 - fraction), near = ((a + 2) * t - (a + 3)) * t * t + 1, far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
        weight[k] = t <= 1 ? near : t < 2 ? far : 0;
    }
    return 4;
}

/* The element at a whole coordinate; outside by `padding`. */
static int64_t element(double p, int64_t n, int padding, bool align, bool *inside) {
    if (padding == TX8_SAMPLE_ZEROS)
        *inside &= p >= 0 && p < (double)n;
    else if (padding == TX8_SAMPLE_REFLECTION)
        p = trunc(mirrored(p, align ? 0 : -0.5, align ? (double)n - 1 : (double)n - 0.5));
    return p != p ? 0 : (int64_t)fmin(fmax(p, 0), (double)n - 1);
}

/* Places and weights of one point: all combinations of the taps of each dimension, the last one fastest. */
typedef struct {
    int n;
    int64_t place[4096];
    double weight[4096];
    bool inside[4096];
} taps;

static void taps_of(taps *out, const double *at, const int64_t *size, int rank, int mode, int padding, bool align) {
    double weight[SPATIAL][4];
    int64_t index[SPATIAL][4];
    bool inside[SPATIAL][4];
    int count[SPATIAL], first, total = 1;
    for (int k = 0; k < rank; k++) {
        double whole = mode == TX8_SAMPLE_NEAREST ? nearbyint(at[k]) : floor(at[k]);
        count[k] = tap_weights(at[k] - whole, mode, weight[k], &first);
        for (int i = 0; i < count[k]; i++) {
            inside[k][i] = true;
            index[k][i] = element(whole + (first + i), size[k], padding, align, &inside[k][i]);
        }
        total *= count[k];
    }
    out->n = total;
    for (int t = 0; t < total; t++) {
        int rest = t;
        int which[SPATIAL];
        for (int k = rank - 1; k >= 0; k--) which[k] = rest % count[k], rest /= count[k];
        out->place[t] = 0, out->weight[t] = 1, out->inside[t] = true;
        for (int k = 0; k < rank; k++) {
            out->place[t] = out->place[t] * size[k] + index[k][which[k]];
            out->weight[t] *= weight[k][which[k]];
            out->inside[t] &= inside[k][which[k]];
        }
    }
}

static double interpolated(const taps *p, const double *plane) {
    double total = 0;
    for (int t = 0; t < p->n; t++) total += p->weight[t] * (plane[p->place[t]] * p->inside[t]);
    return total;
}

static int taps_each(int rank, int mode) {
    int n = 1;
    for (int k = 0; k < rank; k++) n *= mode == TX8_SAMPLE_NEAREST ? 1 : mode == TX8_SAMPLE_LINEAR ? 2 : 4;
    return n;
}

bool routine_grid_sample(call *c) {
    int mode = (int)next_whole(c), padding = (int)next_whole(c), rank;
    bool align = next_whole(c) != 0;
    if (missing(c, 0) || missing(c, 1)) return false;
    view *v = c->in, *to = c->out;
    rank = v->rank - 2;
    if (rank < 1 || rank > SPATIAL) return refuse(c, TX8_WHY_RANK, v->rank, 0, 0);
    int64_t planes = v->shape[1], positions = product_of(v->shape + 2, rank), points = v->shape[0] ? c->in[1].n / rank / v->shape[0] : 0;
    if ( to->n != v->shape[0] * planes * points || c->in[1].n != v->shape[0] * points * rank || (v->n == 0 && to->n)) return refuse(c, TX8_WHY_SIZES, to->n, v->n, 0);
    double *x = numbers(c, v), *grid = reals(c, c->in + 1), *y = room_reals(c, to->n);
    taps *p = scratch(c->t, sizeof *p);
    if (!x || !grid || !y || !p) return false;
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t i = 0; i < points; i++) {
            double at[SPATIAL];
            for (int k = 0; k < rank; k++) {
                double g = grid[(b * points + i) * rank + rank - 1 - k], n = (double)v->shape[k + 2];
                double low = align ? 0 : -0.5, high = align ? n - 1 : n - 0.5;
                at[k] = align ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
                if (mode == TX8_SAMPLE_CUBIC) continue; /* its taps are clamped or mirrored one by one */
                if (padding == TX8_SAMPLE_BORDER) at[k] = at[k] != at[k] ? at[k] : fmin(fmax(at[k], 0), n - 1);
                if (padding == TX8_SAMPLE_REFLECTION && (at[k] < low || at[k] > high)) at[k] = mirrored(at[k], low, high);
            }
            taps_of(p, at, v->shape + 2, rank, mode, padding, align);
            for (int64_t q = 0; q < planes; q++) y[(b * planes + q) * points + i] = interpolated(p, x + (b * planes + q) * positions);
        }
    int64_t each = taps_each(rank, mode), n = v->shape[0] * points;
    count_ops(c, n * (6 * rank + each * 2 * rank)); /* coordinates, and places and weights of the taps */
    count_products(c, to->n * each);
    return give_reals(c, to, y);
}

/* --- regions --- */

static void corners(double p, int64_t n, int64_t *low, int64_t *high, double *fraction) {
    p = p > 0 ? p : 0;
    *low = least((int64_t)fmin(floor(p), 1e15), n - 1);
    *high = least(*low + 1, n - 1);
    *fraction = *low >= n - 1 ? 0 : p - (double)*low;
}

bool routine_roi_align(call *c) {
    bool max = next_whole(c) != 0, half = next_whole(c) != 0;
    int64_t ratio = next_whole(c);
    double scale = next_real(c);
    if (missing(c, 0) || missing(c, 1) || missing(c, 2)) return false;
    view *v = c->in, *to = c->out;
    if (v->rank != 4 || to->rank != 4 || c->in[1].rank != 2 || c->in[1].shape[1] < 4 || c->in[2].n != to->shape[0] || c->in[1].shape[0] != to->shape[0] || to->shape[1] != v->shape[1])
        return refuse(c, TX8_WHY_RANK, v->rank, 0, 0);
    int64_t h = v->shape[2], w = v->shape[3], ph = to->shape[2], pw = to->shape[3], wide = c->in[1].shape[1];
    double *x = numbers(c, v), *regions = reals(c, c->in + 1), *y = room_reals(c, to->n);
    int64_t *batch = wholes(c, c->in + 2);
    if (!x || !regions || !y || !batch) return false;
    for (int64_t r = 0; r < to->shape[0]; r++) {
        double e[4];
        for (int k = 0; k < 4; k++) e[k] = regions[r * wide + k] * scale - (half ? 0.5 : 0);
        double width = e[2] - e[0], height = e[3] - e[1];
        if (!half) width = larger(width, 1), height = larger(height, 1);
        double across = ratio > 0 ? (double)ratio : ceil(width / (double)pw), down = ratio > 0 ? (double)ratio : ceil(height / (double)ph);
        int64_t nx = across >= 1 ? (int64_t)fmin(across, 1e6) : 0, ny = down >= 1 ? (int64_t)fmin(down, 1e6) : 0;
        int64_t image = batch[r] < 0 ? batch[r] + v->shape[0] : batch[r];
        if (image < 0 || image >= v->shape[0]) return refuse(c, TX8_WHY_INDEX, 1, batch[r], v->shape[0]);
        if (!h || !w || (double)nx * (double)ny > 1e8) return refuse(c, TX8_WHY_LIST, nx, ny, 0);
        for (int64_t q = 0; q < to->shape[1]; q++) {
            const double *plane = x + (image * v->shape[1] + q) * h * w;
            for (int64_t i = 0; i < ph; i++)
                for (int64_t j = 0; j < pw; j++) {
                    double total = 0;
                    for (int64_t a = 0; a < ny; a++)
                        for (int64_t b = 0; b < nx; b++) {
                            double row = e[1] + ((double)i + ((double)a + 0.5) / (double)ny) * height / (double)ph;
                            double column = e[0] + ((double)j + ((double)b + 0.5) / (double)nx) * width / (double)pw;
                            bool seen = row >= -1 && row <= (double)h && column >= -1 && column <= (double)w;
                            int64_t y0, y1, x0, x1;
                            double fy, fx;
                            corners(row, h, &y0, &y1, &fy), corners(column, w, &x0, &x1, &fx);
                            double part[4] = {plane[y0 * w + x0] * ((1 - fy) * (1 - fx)) * seen, plane[y0 * w + x1] * ((1 - fy) * fx) * seen,
                                              plane[y1 * w + x0] * (fy * (1 - fx)) * seen, plane[y1 * w + x1] * (fy * fx) * seen};
                            double z = max ? larger(larger(larger(part[0], part[1]), part[2]), part[3]) : ((part[0] + part[1]) + part[2]) + part[3];
                            total = a + b == 0 ? z : max ? larger(total, z) : total + z;
                        }
                    y[((r * to->shape[1] + q) * ph + i) * pw + j] = max || nx == 0 || ny == 0 ? total + 0.0 : total / (double)(nx * ny);
                }
        }
        count_loads(c, 4 * nx * ny * to->shape[1] * ph * pw), count_ops(c, 24 * nx * ny * to->shape[1] * ph * pw);
    }
    count_divides(c, to->n);
    return give_reals(c, to, y);
}

bool routine_max_roi_pool(call *c) {
    double scale = next_real(c);
    if (missing(c, 0) || missing(c, 1)) return false;
    view *v = c->in, *to = c->out;
    if (v->rank != 4 || to->rank != 4 || c->in[1].rank != 2 || c->in[1].shape[1] < 5 || c->in[1].shape[0] != to->shape[0] || to->shape[1] != v->shape[1]) return refuse(c, TX8_WHY_RANK, v->rank, 0, 0);
    int64_t h = v->shape[2], w = v->shape[3], ph = to->shape[2], pw = to->shape[3], wide = c->in[1].shape[1];
    double *x = numbers(c, v), *regions = reals(c, c->in + 1), *y = room_reals(c, to->n);
    if (!x || !regions || !y) return false;
    for (int64_t r = 0; r < to->shape[0]; r++) {
        double e[4];
        for (int k = 0; k < 4; k++) e[k] = floor(regions[r * wide + 1 + k] * scale + 0.5);
        double tall = larger(e[3] - e[1] + 1, 1) / (double)ph, broad = larger(e[2] - e[0] + 1, 1) / (double)pw;
        double which = trunc(regions[r * wide]);
        int64_t image = which > -1e15 && which < 1e15 ? (int64_t)which : -1 - v->shape[0];
        if (image < -v->shape[0] || image >= v->shape[0]) return refuse(c, TX8_WHY_INDEX, 1, image, v->shape[0]);
        if (image < 0) image += v->shape[0];
        for (int64_t i = 0; i < ph; i++)
            for (int64_t j = 0; j < pw; j++) {
                int64_t top = (int64_t)fmin(fmax(floor((double)i * tall) + e[1], 0), (double)h), bottom = (int64_t)fmin(fmax(ceil((double)(i + 1) * tall) + e[1], 0), (double)h);
                int64_t left = (int64_t)fmin(fmax(floor((double)j * broad) + e[0], 0), (double)w), right = (int64_t)fmin(fmax(ceil((double)(j + 1) * broad) + e[0], 0), (double)w);
                for (int64_t q = 0; q < to->shape[1]; q++) {
                    double best = bottom > top && right > left ? -INFINITY : 0;
                    for (int64_t a = top; a < bottom; a++)
                        for (int64_t b = left; b < right; b++) best = larger(best, x[((image * v->shape[1] + q) * h + a) * w + b]);
                    y[((r * to->shape[1] + q) * ph + i) * pw + j] = best;
                    count_loads(c, most(bottom - top, 0) * most(right - left, 0)), count_ops(c, most(bottom - top, 0) * most(right - left, 0));
                }
            }
    }
    count_ops(c, 8 * to->n), count_divides(c, 2 * to->shape[0]);
    return give_reals(c, to, y);
}

/* --- windows whose taps read at shifted places --- */

bool routine_deform_conv(call *c) {
    int64_t groups = next_whole(c), per = next_whole(c), stride[2], dilation[2], lo[2];
    if (!next_pair(c, 2, 1, stride) || !next_pair(c, 2, 1, dilation) || !next_pair(c, 2, 0, lo)) return false;
    for (int k = 0; k < 5; k++)
        if (missing(c, k)) return false;
    view *v = c->in, *k = c->in + 1, *o = c->in + 2, *to = c->out;
    if (v->rank != 4 || k->rank != 4 || o->rank != 4 || to->rank != 4 || groups < 1 || per < 1) return refuse(c, TX8_WHY_RANK, v->rank, 0, 0);
    int64_t n = v->shape[0], channels = v->shape[1], h = v->shape[2], w = v->shape[3], kh = k->shape[2], kw = k->shape[3], made = k->shape[0];
    int64_t oh = o->shape[2], ow = o->shape[3], count = kh * kw, positions = oh * ow, each = channels / per, ins = channels / groups, outs = made / groups;
    if (channels % per || channels % groups || made % groups || k->shape[1] != ins || o->n != n * per * count * 2 * positions || c->in[4].n * 2 != o->n || c->in[3].n != made ||
        to->n != n * made * positions || !h || !w)
        return refuse(c, TX8_WHY_SIZES, o->n, to->n, 0);
    double *x = numbers(c, v), *weight = numbers(c, k), *offset = reals(c, o), *bias = reals(c, c->in + 3), *mask = reals(c, c->in + 4);
    double *read = room_reals(c, channels * count), *y = room_reals(c, to->n);
    taps *p = scratch(c->t, sizeof *p);
    if (!x || !weight || !offset || !bias || !mask || !read || !y || !p) return false;
    for (int64_t b = 0; b < n; b++)
        for (int64_t i = 0; i < positions; i++) {
            for (int64_t g = 0; g < per; g++)
                for (int64_t t = 0; t < count; t++) {
                    int64_t at = ((b * per + g) * count + t) * positions + i;
                    double place[2] = {(double)(i / ow * stride[0] - lo[0] + t / kw * dilation[0]) + offset[(at / positions * 2) * positions + i],
                                       (double)(i % ow * stride[1] - lo[1] + t % kw * dilation[1]) + offset[(at / positions * 2 + 1) * positions + i]};
                    taps_of(p, place, v->shape + 2, 2, TX8_SAMPLE_LINEAR, TX8_SAMPLE_ZEROS, true);
                    for (int64_t q = g * each; q < (g + 1) * each; q++) read[q * count + t] = interpolated(p, x + (b * channels + q) * h * w) * mask[at];
                }
            for (int64_t q = 0; q < made; q++) {
                const double *row = read + q / outs * ins * count, *own = weight + q * ins * count;
                double total = 0;
                for (int64_t s = 0; s < ins * count; s++) total += row[s] * own[s];
                y[(b * made + q) * positions + i] = total + bias[q];
            }
        }
    count_ops(c, n * positions * (per * count * 22 + channels * count)); /* places and weights; masked */
    count_products(c, n * positions * (channels * count * 4 + made * ins * count)), count_ops(c, to->n);
    return give_reals(c, to, y);
}
