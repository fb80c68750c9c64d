/* Routines that order numbers: where the extreme lies, and the first k in order. */
#include "routine.h"

/* NaN is above everything; of equal ones the first comes first. */

typedef struct {
    double x;
    int64_t w, at; /* the number of an integer format, and its place */
} item;

static int ranked(const item *a, const item *b) { /* by value alone: -1, 0, 1 */
    if (a->x != a->x || b->x != b->x) return (a->x != a->x) - (b->x != b->x);
    return a->x != b->x ? (a->x > b->x) - (a->x < b->x) : (a->w > b->w) - (a->w < b->w);
}

static bool before(const item *a, const item *b, bool largest) {
    int d = ranked(a, b);
    return d ? (d > 0) == largest : a->at < b->at;
}

/* A row at a time: its items, from numbers of either kind. */
typedef struct {
    view row;
    item *items;
    double *x;
    int64_t *w;
    int64_t at[MAX_RANK], offset;
} lines;

static bool lines_of(call *c, lines *l, const view *v, int kept) {
    memset(l, 0, sizeof *l);
    l->row = row_of(v, kept);
    l->items = scratch(c->t, l->row.n * (int64_t)sizeof(item));
    l->x = is_float(v) ? room_reals(c, l->row.n) : NULL;
    l->w = is_float(v) ? NULL : room_wholes(c, l->row.n);
    return l->items && (l->x || l->w);
}

static item *next_line(call *c, lines *l, const view *v, int kept) {
    l->row.at = v->at + l->offset;
    if (l->x)
        numbers_into(&l->row, l->x);
    else
        whole_numbers_into(&l->row, l->w);
    for (int64_t i = 0; i < l->row.n; i++) l->items[i] = (item){l->x ? l->x[i] : 0, l->x ? 0 : l->w[i] ^ flip_of(v), i};
    count_loads(c, l->row.n);
    advance(kept, v->shape, v->stride, l->at, &l->offset);
    return l->items;
}

bool routine_arg_reduce(call *c) {
    bool min = next_whole(c) != 0, last = next_whole(c) != 0;
    int64_t axis;
    int kept;
    if (missing(c, 0) || !next_axis(c, c->in->rank, &axis)) return false;
    view v = c->in[0];
    if (v.rank == 0) v.rank = 1, v.shape[0] = 1, v.stride[0] = 0;
    if (!v.shape[axis] || axis >= v.rank) return refuse(c, TX8_WHY_EMPTY, axis, 0, 0);
    last_dims(&v, &axis, 1, &kept);
    int64_t rows = product_of(v.shape, kept), m = v.shape[kept];
    if (rows != c->out->n) return refuse(c, TX8_WHY_SIZES, rows, c->out->n, 0);
    lines l;
    int64_t *y = room_wholes(c, rows);
    if (!y || !lines_of(c, &l, &v, kept)) return false;
    for (int64_t r = 0; r < rows; r++) {
        const item *line = next_line(c, &l, &v, kept);
        y[r] = 0;
        for (int64_t i = 1; i < m; i++) {
            const item *a = line + i, *b = line + y[r];
            int d = ranked(a, b);
            bool strange = a->x != a->x || b->x != b->x; /* NaN is the extreme either way */
            if (d == 0 ? last : (d > 0) == (strange || !min)) y[r] = i;
        }
    }
    count_ops(c, rows * m);
    return give_wholes(c, c->out, y, F_I64);
}

/* Let the item at `at` of a heap of n sink: the last one in order is on top. */
static void sink(call *c, item *heap, int64_t n, int64_t at, bool largest) {
    item x = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        count_ops(c, 2);
        if (child + 1 < n && before(heap + child, heap + child + 1, largest)) child++;
        if (before(heap + child, &x, largest)) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

bool routine_topk(call *c) {
    int64_t axis, k;
    int kept;
    if (missing(c, 0) || !next_axis(c, c->in->rank, &axis)) return false;
    if (c->n_out < 2) return refuse(c, TX8_WHY_MISSING, 1, 0, 0);
    k = next_whole(c);
    bool largest = next_whole(c) != 0;
    view v = c->in[0], values = c->out[0], places = c->out[1];
    if (v.rank < 1 || values.rank != v.rank || places.rank != v.rank) return refuse(c, TX8_WHY_RANK, v.rank, 0, 0);
    last_dims(&v, &axis, 1, &kept), last_dims(&values, &axis, 1, &kept), last_dims(&places, &axis, 1, &kept);
    int64_t rows = product_of(v.shape, kept), m = v.shape[kept];
    if (k < 0 || k > m || values.n != rows * k || places.n != rows * k) return refuse(c, TX8_WHY_SIZES, k, m, 0);
    lines l;
    double *best = room_reals(c, rows * k);
    int64_t *whole = room_wholes(c, rows * k), *at = room_wholes(c, rows * k);
    if (!lines_of(c, &l, &v, kept) || !best || !whole || !at) return false;
    for (int64_t r = 0; r < rows; r++) {
        item *line = next_line(c, &l, &v, kept);
        if (!k) continue;
        for (int64_t i = k / 2 - 1; i >= 0; i--) sink(c, line, k, i, largest); /* the first k, then whatever comes before their last */
        for (int64_t i = k; i < m; i++) {
            count_ops(c, 1);
            if (before(line + i, line, largest)) {
                line[0] = line[i];
                sink(c, line, k, 0, largest);
            }
        }
        for (int64_t left = k; left > 0; left--) {
            best[r * k + left - 1] = line->x, whole[r * k + left - 1] = line->w ^ flip_of(&v), at[r * k + left - 1] = line->at;
            line[0] = line[left - 1];
            sink(c, line, left - 1, 0, largest);
        }
    }
    return (is_float(&v) ? give_reals(c, &values, best) : give_wholes(c, &values, whole, v.fmt)) && give_wholes(c, &places, at, F_I64);
}
