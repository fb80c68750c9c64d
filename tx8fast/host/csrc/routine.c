/* Calls of the kernel core's routines: operands, elements as numbers and back, what is copied, which function is called. */
#include "routine.h"

#define MOST_SIZE ((int64_t)1 << 31)

bool refuse(call *c, int why, int64_t a, int64_t b, int64_t d) {
    fail(c->t, TX8_BAD_CALL, c->code, why, a);
    c->t->found[3] = b, c->t->found[4] = d;
    return false;
}

bool missing(call *c, int index) {
    return index < c->n_in && c->in[index].given ? false : (refuse(c, TX8_WHY_MISSING, index, 0, 0), true);
}

const int64_t *next_wholes(call *c, int64_t *n) {
    int64_t length = next_whole(c);
    const int64_t *out = c->word;
    *n = length >= 0 && length <= c->end - c->word ? length : 0;
    c->word += *n;
    return out;
}

bool next_sizes(call *c, int64_t *n, const int64_t **out) {
    *out = next_wholes(c, n);
    for (int64_t i = 0; i < *n; i++)
        if ((*out)[i] > MOST_SIZE || (*out)[i] < -MOST_SIZE) return refuse(c, TX8_WHY_LIST, (*out)[i], 1, 0);
    return true;
}

bool next_axis(call *c, int rank, int64_t *out) {
    *out = next_whole(c);
    return *out >= 0 && *out < (rank ? rank : 1) ? true : refuse(c, TX8_WHY_RANK, *out, 0, 0);
}

bool next_axes(call *c, int rank, int64_t *n, const int64_t **out) {
    *out = next_wholes(c, n);
    if (*n > rank) return refuse(c, TX8_WHY_RANK, *n, 0, 0);
    for (int64_t i = 0; i < *n; i++)
        if ((*out)[i] < 0 || (*out)[i] >= rank || (i && (*out)[i] <= (*out)[i - 1])) return refuse(c, TX8_WHY_RANK, (*out)[i], 0, 0);
    return true;
}

bool next_pair(call *c, int rank, int64_t otherwise, int64_t *out) {
    int64_t n;
    const int64_t *found;
    if (!next_sizes(c, &n, &found)) return false;
    if (n > 1 && n != rank) return refuse(c, TX8_WHY_LIST, n, rank, 0);
    for (int k = 0; k < rank; k++) out[k] = n == 0 ? otherwise : found[n == 1 ? 0 : k];
    return true;
}

int64_t product_of(const int64_t *shape, int rank) {
    int64_t n = 1;
    for (int k = 0; k < rank; k++) n *= shape[k];
    return n;
}

void dense(view *v) {
    int64_t step = v->size;
    for (int k = v->rank - 1; k >= 0; k--) v->stride[k] = step, step *= v->shape[k];
}

bool spread_view(view *v, const view *to) {
    if (v->rank > to->rank) return false;
    int more = to->rank - v->rank;
    for (int k = to->rank - 1; k >= 0; k--) {
        bool own = k >= more && v->shape[k - more] != 1;
        if (own && v->shape[k - more] != to->shape[k]) return false;
        v->stride[k] = own ? v->stride[k - more] : 0;
        v->shape[k] = to->shape[k];
    }
    v->rank = to->rank, v->n = to->n;
    return true;
}

void permuted(view *v, const int64_t *perm) {
    view old = *v;
    for (int k = 0; k < v->rank; k++) v->shape[k] = old.shape[perm[k]], v->stride[k] = old.stride[perm[k]];
}

void last_dims(view *v, const int64_t *axes, int64_t n, int *kept) {
    int64_t perm[MAX_RANK];
    int at = 0;
    for (int k = 0; k < v->rank; k++) {
        bool moves = false;
        for (int64_t i = 0; i < n; i++) moves |= axes[i] == k;
        if (!moves) perm[at++] = k;
    }
    *kept = at;
    for (int64_t i = 0; i < n && at < MAX_RANK; i++) perm[at++] = axes[i];
    permuted(v, perm);
}

/* Elements of the last dimensions that lie together, and how many dimensions are before them. */
view row_of(const view *v, int kept) {
    view row = *v;
    row.rank = v->rank - kept;
    for (int k = 0; k < row.rank; k++) row.shape[k] = v->shape[kept + k], row.stride[k] = v->stride[kept + k];
    row.n = product_of(row.shape, row.rank);
    return row;
}

int64_t run_of(const view *v, int *lead) {
    int64_t run = 1;
    int k = v->rank;
    while (k > 0 && (v->shape[k - 1] == 1 || v->stride[k - 1] == run * v->size)) run *= v->shape[--k];
    *lead = k;
    return run;
}

bool copy(call *c, const view *from, const view *to) {
    if (from->n != to->n) return refuse(c, TX8_WHY_SIZES, from->n, to->n, 0);
    if (from->fmt != to->fmt) {
        count_ops(c, from->n); /* conversions */
        if (is_float(from)) {
            double *x = reals(c, from);
            return x && give_reals(c, to, x);
        }
        int64_t *x = wholes(c, from);
        return x && give_wholes(c, to, x, from->fmt);
    }
    if (from->rank != to->rank || memcmp(from->shape, to->shape, (size_t)from->rank * 8)) return refuse(c, TX8_WHY_SIZES, from->n, to->n, 1);
    int a, b;
    run_of(from, &a), run_of(to, &b);
    a = (int)most(a, b);
    int64_t run = product_of(from->shape + a, from->rank - a), words = ceil_div(run * from->size, 8);
    int64_t at[MAX_RANK] = {0}, back[MAX_RANK] = {0}, offset = 0, place = 0;
    if (!from->n) return true;
    do {
        memmove(to->at + place, from->at + offset, (size_t)(run * from->size));
        count_words(c, words);
        advance(a, to->shape, to->stride, back, &place);
    } while (advance(a, from->shape, from->stride, at, &offset));
    return true;
}

/* --- calls --- */

void npc(const view *v, int64_t *n, int64_t *p, int64_t *ch) {
    *n = v->rank > 2 ? v->shape[0] : 1;
    *ch = v->rank ? v->shape[v->rank - 1] : 1;
    *p = v->rank == 2 ? v->shape[0] : v->rank > 2 ? product_of(v->shape + 1, v->rank - 2) : 1;
}

/* Take a channel-blocked tensor out of its blocks, or put it there: block by block of every position. */
static bool repack(call *c, view *v, bool out) {
    blocked b;
    int64_t n, p, ch;
    npc(v, &n, &p, &ch);
    if (!blocked_of(c->t, &b, n, p, ch, v->fmt)) return false;
    if (out) memset(v->home, 0, (size_t)b.bytes);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < blocked_parts(&b); k++)
            for (int64_t q = 0; q < p; q++) {
                uint8_t *in_block = v->home + blocked_offset(&b, i, q, k), *plain = v->at + ((i * p + q) * ch + k * b.block) * v->size;
                int64_t bytes = blocked_part(&b, k) * v->size;
                memcpy(out ? in_block : plain, out ? plain : in_block, (size_t)bytes);
                count_words(c, ceil_div(bytes, 8));
            }
    return true;
}

static bool takes_blocks(int code) {
    static const uint8_t known[] = {TX8_ROUTINE_TAKES_BLOCKS};
    return known[code];
}

static bool read_view(call *c, view *v, const int64_t *slots, int64_t n_slots, bool is_out) {
    int64_t slot = next_whole(c), least_at = 0, most_at = 0;
    memset(v, 0, sizeof *v);
    if (slot == -1 && !is_out) return true;
    if (slot < 0 || slot >= n_slots) return fail(c->t, TX8_BAD_SLOT, slot, n_slots, 0);
    int64_t offset = next_whole(c), fmt = next_whole(c), is_blocked = next_whole(c), rank = next_whole(c);
    if (rank < 0 || rank > MAX_RANK || c->end - c->word < 2 * rank) return refuse(c, TX8_WHY_RANK, rank, 0, 0);
    if (fmt < 0 || fmt > 255 || !known_format(c->t, (int)fmt)) return fmt < 0 || fmt > 255 ? fail(c->t, TX8_BAD_FORMAT, fmt, 0, 0) : false;
    v->given = 1, v->fmt = (int)fmt, v->size = FORMATS[fmt].bytes, v->rank = (int)rank, v->n = 1;
    double places = 1, reach = fabs((double)offset);
    bool wrong = false;
    if (reach > 1e15) return refuse(c, TX8_WHY_RANK, offset, 0, 0);
    for (int k = 0; k < rank; k++) {
        int64_t size = v->shape[k] = next_whole(c);
        wrong |= size < 0;
        places *= (double)most(size, 1);
        if (wrong || places > 1e12) return fail(c->t, TX8_BAD_SHAPE, v->shape[0], v->shape[1], v->shape[2]);
        v->n *= size;
    }
    for (int k = 0; k < rank; k++) {
        int64_t step = v->stride[k] = next_whole(c);
        reach += fabs((double)step) * (double)v->shape[k];
        if (reach > 1e15) return refuse(c, TX8_WHY_RANK, step, 0, 0);
        if (v->n) step *= v->shape[k] - 1, least_at += least(step, 0), most_at += most(step, 0);
    }
    if (!v->n) return true;
    if (is_blocked && rank > 1) {
        blocked b;
        int64_t n, p, ch;
        npc(v, &n, &p, &ch);
        if (!blocked_of(c->t, &b, n, p, ch, v->fmt)) return false;
        v->home = ddr_at(c->t, slots[slot] + offset, b.bytes);
        v->blocked = 1;
        if (takes_blocks(c->code)) return v->home != NULL;
        v->at = v->home ? scratch(c->t, v->n * v->size) : NULL;
        dense(v);
        return v->at && (is_out || repack(c, v, false));
    }
    uint8_t *low = ddr_at(c->t, slots[slot] + offset + least_at, most_at - least_at + v->size);
    v->at = low ? low - least_at : NULL;
    return low != NULL;
}

static void extent(const view *v, const uint8_t **low, const uint8_t **high) {
    *low = *high = v->at;
    for (int k = 0; k < v->rank; k++) {
        int64_t reach = (v->shape[k] - 1) * v->stride[k];
        *low += least(reach, 0), *high += most(reach, 0);
    }
    *high += v->size;
}

/* What a result would be written over before it is read is copied; `updates`: operand 0 where result 0 lies is meant to be. */
static bool keep_apart(call *c, bool updates) {
    for (int i = 0; i < c->n_in; i++)
        for (int j = 0; j < c->n_out; j++) {
            view *x = c->in + i, *y = c->out + j;
            if (!x->given || x->blocked || y->blocked || !x->n || !y->n) continue;
            const uint8_t *a, *b, *d, *e;
            extent(x, &a, &b), extent(y, &d, &e);
            if (b <= d || e <= a) continue;
            if (updates && i == 0 && j == 0 && x->at == y->at && !memcmp(x->stride, y->stride, sizeof x->stride)) continue;
            view made = *x;
            dense(&made);
            if (!(made.at = scratch(c->t, x->n * x->size))) return false;
            int64_t before[TX8_WORK];
            memcpy(before, c->t->work, sizeof before);
            copy(c, x, &made);
            memcpy(c->t->work, before, sizeof before); /* a matter of this memory, not of the chip's */
            *x = made;
        }
    return true;
}

static bool dispatch(call *c) {
    switch (c->code) {
#define X(code, name, function) \
    case code: return function(c);
        TX8_ROUTINES(X)
#undef X
        default: return refuse(c, TX8_WHY_UNKNOWN, c->code, 0, 0);
    }
}

static bool updates(int code) {
    static const uint8_t known[] = {TX8_ROUTINE_UPDATES};
    return known[code];
}

bool run_call(tx8_tile *t, const int64_t *word, const int64_t *end) {
    call c = {.t = t, .word = word, .end = end};
    int64_t code = next_whole(&c), n_in = next_whole(&c), n_out = next_whole(&c);
    if (code < 0 || code >= TX8_ROUTINE_COUNT || n_in < 0 || n_out < 1 || n_in > end - word || n_out > end - word) return refuse(&c, TX8_WHY_UNKNOWN, code, 0, 0);
    c.code = (int)code, c.n_in = (int)n_in, c.n_out = (int)n_out;
    c.in = scratch(t, (n_in + n_out) * (int64_t)sizeof(view));
    if (!c.in) return false;
    c.out = c.in + n_in;
    for (int k = 0; k < n_in + n_out; k++)
        if (!read_view(&c, c.in + k, t->slots, t->n_slots, k >= n_in)) return false;
    if (!keep_apart(&c, updates(c.code)) || !dispatch(&c)) return false;
    for (int j = 0; j < n_out; j++)
        if (c.out[j].blocked && !takes_blocks(c.code) && !repack(&c, c.out + j, true)) return false;
    return true;
}
