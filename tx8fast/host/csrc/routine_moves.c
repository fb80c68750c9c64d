/* Routines that move elements or make them without computing: whole tensors, parts, look-ups and updates by numbers that are data. */
#include "routine.h"

bool routine_copy(call *c) { /* identity, convert */
    if (missing(c, 0)) return false;
    return copy(c, c->in, c->out);
}

bool routine_reshape(call *c) {
    if (missing(c, 0)) return false;
    view *x = c->in, made = *c->out;
    if (x->n != made.n) return refuse(c, TX8_WHY_SIZES, x->n, made.n, 0);
    view flat = *x; /* the elements in their order, then the result's shape over them */
    dense(&flat);
    bool together = !memcmp(flat.stride, x->stride, sizeof(int64_t) * (size_t)x->rank);
    if (!together) {
        if (!(flat.at = scratch(c->t, x->n * x->size)) || !copy(c, x, &flat)) return false;
    }
    made.fmt = x->fmt, made.size = x->size, made.at = flat.at;
    dense(&made);
    return copy(c, &made, c->out);
}

bool routine_bitcast(call *c) {
    if (missing(c, 0)) return false;
    view made = *c->in;
    if (made.size != c->out->size) return refuse(c, TX8_WHY_SIZES, made.size, c->out->size, 0);
    made.fmt = c->out->fmt;
    return copy(c, &made, c->out);
}

bool routine_transpose(call *c) {
    int64_t n, back[MAX_RANK], seen = 0;
    const int64_t *perm = next_wholes(c, &n);
    if (missing(c, 0)) return false;
    view made = *c->in;
    for (int k = 0; k < made.rank; k++) back[k] = n ? perm[k % n] : made.rank - 1 - k, seen |= back[k] >= 0 && back[k] < made.rank ? 1 << back[k] : 0;
    if ((n && n != made.rank) || seen != (1 << made.rank) - 1) return refuse(c, TX8_WHY_LIST, n, made.rank, 0);
    permuted(&made, back);
    return copy(c, &made, c->out);
}

bool routine_broadcast(call *c) {
    if (missing(c, 0)) return false;
    view made = *c->in;
    if (!spread_view(&made, c->out)) return refuse(c, TX8_WHY_SIZES, made.n, c->out->n, 0);
    return copy(c, &made, c->out);
}

bool routine_concat(call *c) {
    int64_t axis;
    if (!next_axis(c, c->out->rank, &axis)) return false;
    view part = *c->out;
    int64_t from = 0;
    for (int i = 0; i < c->n_in; i++) {
        if (missing(c, i)) return false;
        view *x = c->in + i;
        if (x->rank != part.rank || from + x->shape[axis] > c->out->shape[axis]) return refuse(c, TX8_WHY_SIZES, x->n, c->out->n, 0);
        part.shape[axis] = x->shape[axis];
        part.n = product_of(part.shape, part.rank);
        part.at = c->out->at + from * part.stride[axis];
        if (x->n && !copy(c, x, &part)) return false;
        from += x->shape[axis];
    }
    return from == c->out->shape[axis] ? true : refuse(c, TX8_WHY_SIZES, from, c->out->shape[axis], 0);
}

bool routine_slice(call *c) {
    int64_t n, m, s;
    const int64_t *start, *size, *step;
    if (missing(c, 0) || !next_sizes(c, &n, &start) || !next_sizes(c, &m, &size) || !next_sizes(c, &s, &step)) return false;
    view part = *c->in;
    if (n != part.rank || m != n || (s && s != n)) return refuse(c, TX8_WHY_LIST, n, part.rank, 0);
    for (int k = 0; k < part.rank; k++) {
        int64_t by = s ? step[k] : 1, last = start[k] + (size[k] - 1) * by;
        if (size[k] > 0 && (least(start[k], last) < 0 || most(start[k], last) >= part.shape[k])) return refuse(c, TX8_WHY_RANGE, least(start[k], last), most(start[k], last) + 1, part.shape[k]);
        if (size[k] > 0) part.at += start[k] * part.stride[k];
        part.shape[k] = size[k], part.stride[k] *= by;
    }
    part.n = product_of(part.shape, part.rank);
    return part.n ? copy(c, &part, c->out) : true;
}

/* Where place `at` of a line grown by `lo` elements in front comes from, among `n`; -1: from nowhere. */
static int64_t source(int64_t at, int64_t lo, int64_t n, int mode) {
    int64_t p = at - lo, period = n > 1 ? 2 * (n - 1) : 1;
    switch (mode) {
        case TX8_PAD_EDGE: return least(most(p, 0), n - 1);
        case TX8_PAD_REFLECT: p = (p % period + period) % period; return p < n ? p : period - p;
        case TX8_PAD_WRAP: return (p % n + n) % n;
        default: return p >= 0 && p < n ? p : -1;
    }
}

bool routine_pad(call *c) {
    int mode = (int)next_whole(c);
    int64_t n, m;
    const int64_t *lo, *hi;
    if (missing(c, 0) || !next_sizes(c, &n, &lo) || !next_sizes(c, &m, &hi)) return false;
    double value = next_real(c);
    view x = *c->in, *to = c->out;
    if (n != x.rank || m != n || to->rank != x.rank || x.fmt != to->fmt) return refuse(c, TX8_WHY_LIST, n, x.rank, 0);
    int64_t *from[MAX_RANK];
    for (int k = 0; k < x.rank; k++) { /* negative amounts crop first */
        int64_t first = most(0, -lo[k]), kept = most(0, x.shape[k] - first - most(0, -hi[k])), front = most(0, lo[k]);
        if (to->shape[k] != front + kept + most(0, hi[k])) return refuse(c, TX8_WHY_SIZES, to->shape[k], kept, 0);
        if (mode && !kept && to->shape[k]) return refuse(c, TX8_WHY_EMPTY, k, 0, 0);
        if (!(from[k] = room_wholes(c, to->shape[k]))) return false;
        for (int64_t i = 0; i < to->shape[k]; i++) {
            from[k][i] = source(i, front, kept, mode);
            if (from[k][i] >= 0) from[k][i] += first;
        }
    }
    uint8_t fill[8];
    write_reals(to->fmt, &value, fill, 1);
    int64_t at[MAX_RANK] = {0}, place = 0;
    if (to->n) do {
            int64_t offset = 0;
            bool inside = true;
            for (int k = 0; k < x.rank; k++) inside &= from[k][at[k]] >= 0, offset += from[k][at[k]] * x.stride[k];
            memcpy(to->at + place, inside ? x.at + offset : fill, (size_t)x.size);
        } while (advance(to->rank, to->shape, to->stride, at, &place));
    count_words(c, to->n); /* element by element: a border may be anywhere */
    return true;
}

bool routine_trilu(call *c) {
    bool upper = next_whole(c) != 0;
    int64_t diagonal = next_whole(c);
    if (missing(c, 0)) return false;
    view *x = c->in, *to = c->out;
    if (x->rank < 2 || x->n != to->n || x->fmt != to->fmt) return refuse(c, TX8_WHY_RANK, x->rank, 0, 0);
    int64_t at[MAX_RANK] = {0}, back[MAX_RANK] = {0}, offset = 0, place = 0;
    if (x->n) do {
            int64_t ahead = at[x->rank - 1] - at[x->rank - 2];
            if (upper ? ahead >= diagonal : ahead <= diagonal)
                memcpy(to->at + place, x->at + offset, (size_t)x->size);
            else
                memset(to->at + place, 0, (size_t)x->size);
            advance(to->rank, to->shape, to->stride, back, &place);
        } while (advance(x->rank, x->shape, x->stride, at, &offset));
    count_words(c, x->n);
    return true;
}

bool routine_iota(call *c) {
    view *to = c->out;
    int64_t axis;
    if (!next_axis(c, to->rank, &axis)) return false;
    int64_t at[MAX_RANK] = {0}, place = 0;
    if (to->n) do {
            int64_t number = to->rank ? at[axis] : 0;
            write_wholes(to->fmt, &number, to->at + place, 1, F_I64);
        } while (advance(to->rank, to->shape, to->stride, at, &place));
    count_stores(c, to->n), count_ops(c, 2 * to->n); /* counted and converted */
    return true;
}

/* --- look-ups --- */

/* Numbers along a dimension of `size`; negative ones count from its end. */
static int64_t *indices(call *c, const view *v, int64_t size) {
    int64_t *out = wholes(c, v), bad = 0, first = 0;
    if (!out) return NULL;
    for (int64_t i = 0; i < v->n; i++) {
        if (out[i] < -size || out[i] >= size) {
            if (!bad++) first = out[i];
        } else if (out[i] < 0)
            out[i] += size;
    }
    count_ops(c, 3 * v->n); /* both ends, and where the row begins */
    if (bad) return refuse(c, TX8_WHY_INDEX, bad, first, size), NULL;
    return out;
}

bool routine_gather(call *c) { /* gather, embedding */
    int64_t axis;
    if (missing(c, 0) || missing(c, 1) || !next_axis(c, c->in->rank, &axis)) return false;
    view table = c->in[0], *index = c->in + 1, *to = c->out;
    if (to->rank != table.rank - 1 + index->rank || !table.rank) return refuse(c, TX8_WHY_RANK, to->rank, 0, 0);
    int64_t *number = indices(c, index, table.shape[axis]), at[MAX_RANK] = {0}, offset = 0;
    if (!number) return false;
    /* the result's dimensions: those before the axis, those of the numbers, those behind it */
    view row = table, part = *to;
    int lead = (int)axis + index->rank;
    row.rank = part.rank = table.rank - 1 - (int)axis;
    for (int k = 0; k < row.rank; k++) {
        row.shape[k] = table.shape[axis + 1 + k], row.stride[k] = table.stride[axis + 1 + k];
        part.shape[k] = to->shape[lead + k], part.stride[k] = to->stride[lead + k];
    }
    row.n = part.n = product_of(row.shape, row.rank);
    int64_t count = product_of(to->shape, lead);
    for (int64_t i = 0; i < count && row.n; i++) {
        int64_t which = 0, from = 0;
        for (int k = 0; k < axis; k++) from += at[k] * table.stride[k];
        for (int k = (int)axis; k < lead; k++) which = which * index->shape[k - axis] + at[k];
        row.at = table.at + from + number[which] * table.stride[axis], part.at = to->at + offset;
        if (!copy(c, &row, &part)) return false;
        advance(lead, to->shape, to->stride, at, &offset);
    }
    return true;
}

/* Numbers of an element-wise look-up: an element of `x` per element of `index`, except along `axis` where it stands. */
static int64_t *element_places(call *c, const view *x, const view *index, int64_t axis) {
    if (x->rank != index->rank || !x->rank) return refuse(c, TX8_WHY_RANK, index->rank, 0, 0), NULL;
    for (int k = 0; k < x->rank; k++)
        if (k != axis && index->shape[k] > x->shape[k]) return refuse(c, TX8_WHY_SIZES, index->shape[k], x->shape[k], 0), NULL;
    int64_t *out = indices(c, index, x->shape[axis]), at[MAX_RANK] = {0}, none[MAX_RANK] = {0}, zero = 0;
    for (int64_t i = 0; out && i < index->n; i++) {
        int64_t offset = out[i] * x->stride[axis];
        for (int k = 0; k < x->rank; k++) offset += k == axis ? 0 : at[k] * x->stride[k];
        out[i] = offset;
        advance(index->rank, index->shape, none, at, &zero);
    }
    return out;
}

bool routine_gather_elements(call *c) {
    int64_t axis;
    if (missing(c, 0) || missing(c, 1) || !next_axis(c, c->in->rank, &axis)) return false;
    view *x = c->in, *index = c->in + 1, *to = c->out;
    if (to->n != index->n || x->fmt != to->fmt) return refuse(c, TX8_WHY_SIZES, to->n, index->n, 0);
    int64_t *from = element_places(c, x, index, axis), at[MAX_RANK] = {0}, place = 0;
    if (!from) return false;
    for (int64_t i = 0; i < to->n; i++) {
        memcpy(to->at + place, x->at + from[i], (size_t)x->size);
        advance(to->rank, to->shape, to->stride, at, &place);
    }
    count_words(c, to->n);
    return true;
}

/* Offsets into x that the tuples in the last dimension of `index` name, after `batch` dimensions that both have. */
static int64_t *tuple_places(call *c, const view *x, const view *index, int batch, int *depth, int64_t *count) {
    if (index->rank < 1 || batch < 0 || batch >= index->rank || batch + index->shape[index->rank - 1] > x->rank)
        return refuse(c, TX8_WHY_RANK, index->rank ? index->shape[index->rank - 1] : 0, 0, 0), NULL;
    int lead = index->rank - 1;
    *depth = (int)index->shape[lead], *count = product_of(index->shape, lead);
    int64_t *out = room_wholes(c, *count), at[MAX_RANK] = {0}, none[MAX_RANK] = {0}, zero = 0;
    if (!out) return NULL;
    for (int64_t i = 0; i < *count; i++) {
        out[i] = 0;
        for (int k = 0; k < batch; k++) out[i] += at[k] * x->stride[k];
        advance(lead, index->shape, none, at, &zero);
    }
    for (int d = 0; d < *depth; d++) {
        view column = *index;
        column.rank = lead, column.n = *count, column.at += d * index->stride[lead];
        int64_t *number = indices(c, &column, x->shape[batch + d]);
        if (!number) return NULL;
        for (int64_t i = 0; i < *count; i++) out[i] += number[i] * x->stride[batch + d];
    }
    return out;
}

bool routine_gather_nd(call *c) {
    int batch = (int)next_whole(c), depth;
    if (missing(c, 0) || missing(c, 1)) return false;
    view *x = c->in, *index = c->in + 1, *to = c->out;
    int64_t count, *from = tuple_places(c, x, index, batch, &depth, &count), at[MAX_RANK] = {0}, place = 0;
    if (!from) return false;
    int lead = index->rank - 1, first = batch + depth;
    view row = *x, part = *to;
    row.rank = part.rank = x->rank - first;
    if (to->rank != lead + row.rank) return refuse(c, TX8_WHY_RANK, to->rank, 0, 0);
    for (int k = 0; k < row.rank; k++) {
        row.shape[k] = x->shape[first + k], row.stride[k] = x->stride[first + k];
        part.shape[k] = to->shape[lead + k], part.stride[k] = to->stride[lead + k];
    }
    row.n = part.n = product_of(row.shape, row.rank);
    for (int64_t i = 0; i < count && row.n; i++) {
        row.at = x->at + from[i], part.at = to->at + place;
        if (!copy(c, &row, &part)) return false;
        advance(lead, to->shape, to->stride, at, &place);
    }
    return true;
}

/* --- updates --- */

bool start_update(call *c) {
    view *x = c->in, *to = c->out;
    if (x->at == to->at && !memcmp(x->stride, to->stride, sizeof x->stride) && !memcmp(x->shape, to->shape, sizeof x->shape)) return true;
    return copy(c, x, to);
}

/* Put one element in: as it is, or combined with what is there. */
static void combine(int how, const view *v, uint8_t *to, const uint8_t *from) {
    if (how == TX8_COMBINE_SET) {
        memcpy(to, from, (size_t)v->size);
    } else if (is_float(v)) {
        double a, b;
        read_reals(v->fmt, to, &a, 1), read_reals(v->fmt, from, &b, 1);
        a = how == TX8_COMBINE_ADD ? a + b : how == TX8_COMBINE_MUL ? a * b : how == TX8_COMBINE_MAX ? larger(a, b) : smaller(a, b);
        write_reals(v->fmt, &a, to, 1);
    } else {
        int64_t a, b, flip = flip_of(v);
        read_wholes(v->fmt, to, &a, 1), read_wholes(v->fmt, from, &b, 1);
        a = how == TX8_COMBINE_ADD   ? (int64_t)((uint64_t)a + (uint64_t)b)
            : how == TX8_COMBINE_MUL ? (int64_t)((uint64_t)a * (uint64_t)b)
            : how == TX8_COMBINE_MAX ? most(a ^ flip, b ^ flip) ^ flip
                                     : least(a ^ flip, b ^ flip) ^ flip;
        write_wholes(v->fmt, &a, to, 1, v->fmt);
    }
}

/* loads, stores and operations of an element that is put in */
static void count_combined(call *c, int how, int64_t n) {
    count_loads(c, how == TX8_COMBINE_SET ? n : 2 * n), count_stores(c, n), count_ops(c, how == TX8_COMBINE_SET ? 0 : n);
}

bool routine_scatter(call *c) {
    int64_t axis;
    if (missing(c, 0) || missing(c, 1) || missing(c, 2) || !next_axis(c, c->out->rank, &axis)) return false;
    int how = (int)next_whole(c);
    view *to = c->out, *index = c->in + 1, *new = c->in + 2;
    if (new->n != index->n || new->fmt != to->fmt || c->in->fmt != to->fmt) return refuse(c, TX8_WHY_SIZES, new->n, index->n, 0);
    int64_t *where = element_places(c, to, index, axis), at[MAX_RANK] = {0}, offset = 0;
    if (!where || !start_update(c)) return false;
    for (int64_t i = 0; i < new->n; i++) {
        combine(how, to, to->at + where[i], new->at + offset);
        advance(new->rank, new->shape, new->stride, at, &offset);
    }
    count_combined(c, how, new->n);
    return true;
}

bool routine_scatter_nd(call *c) {
    int how = (int)next_whole(c), depth;
    if (missing(c, 0) || missing(c, 1) || missing(c, 2)) return false;
    view *to = c->out, *index = c->in + 1, new = c->in[2];
    int64_t count, *where = tuple_places(c, to, index, 0, &depth, &count);
    if (!where) return false;
    int64_t inner = product_of(to->shape + depth, to->rank - depth), from = 0, first[MAX_RANK] = {0};
    if (new.n != count * inner || new.fmt != to->fmt || c->in->fmt != to->fmt) return refuse(c, TX8_WHY_SIZES, new.n, count * inner, 0);
    if (!start_update(c)) return false;
    for (int64_t i = 0; i < count; i++) {
        int64_t at[MAX_RANK] = {0}, place = 0;
        if (inner) do {
                combine(how, to, to->at + where[i] + place, new.at + from);
                advance(new.rank, new.shape, new.stride, first, &from);
            } while (advance(to->rank - depth, to->shape + depth, to->stride + depth, at, &place));
    }
    count_combined(c, how, new.n);
    return true;
}
