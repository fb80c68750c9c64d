/* Code of a file made ready to run. What the fields of rows may hold is declared by the instruction set (tx8_limits.h). */
#include "tx8_code.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../include/tx8fast/tx8.h"
#include "rounds.h"
#include "tx8_limits.h"

enum { WORDS = sizeof(tx8_row) / 4, PARAMETERS = 24 };

bool tx8_packed_check(const tx8_packed *packed, int64_t words, tx8_problem *p) {
    bool good = packed->n_words > 0 && packed->n_words <= WORDS && words % packed->n_words == 0;
    for (int64_t k = 0; good && k < packed->n_words; k++)
        good = packed->words[k] > (k ? packed->words[k - 1] : -1) && packed->words[k] < WORDS;
    return good ? true : tx8_complain(p, TX8_ERROR_FILE, "the words of rows do not fit; the file is damaged");
}

typedef struct {
    const char *name;
    int form;
    uint32_t formats;
} opcode_info;

static const opcode_info OPCODES[] = {
#define X(code, text, number, mask) [code] = {text, number, mask},
    TX8_OPCODES(X)
#undef X
};
enum { N_OPCODES = sizeof OPCODES / sizeof *OPCODES };

const char *tx8_opcode_name(int opcode) { return opcode >= 0 && opcode < N_OPCODES && OPCODES[opcode].name ? OPCODES[opcode].name : "unknown"; }

static bool known_code(int64_t code) {
#define X(name, number, bytes, block, kind) \
    if (code == number) return true;
    TX8_FORMATS(X)
#undef X
    return false;
}

typedef struct {
    int64_t low, high;
    const char *name; /* NULL: any value */
} bound;

enum {
    ANY,
#define X(name, low, high) FIELD_##name,
    TX8_LIMITS(X)
#undef X
};
static const bound BOUNDS[] = {
    {0},
#define X(name, low, high) {low, high, #name},
    TX8_LIMITS(X)
#undef X
};
static const uint8_t FIELDS[TX8_FORMS][PARAMETERS] = {
#define FORM(form, ...) [form] = {__VA_ARGS__},
#define PLACE(k, name) [k] = FIELD_##name,
    TX8_LIMITED(FORM, PLACE)
#undef PLACE
#undef FORM
};

static bool far(int64_t x) { return x <= -TX8_DDR_OFFSET || x >= TX8_DDR_OFFSET; }

static const char *wrong_sizes(int form, const int64_t *p) {
    double size = 1, reach = 0;
#define TIMES(k) size *= (k) >= 0 ? (double)p[(k) >= 0 ? (k) : 0] : 1;
#define X(own, a, b, c, d, e) \
    if (form == own) { \
        size = 1; \
        TIMES(a) TIMES(b) TIMES(c) TIMES(d) TIMES(e) \
        if (size >= (double)TX8_SIZE) return "counts that name too many elements"; \
    }
    TX8_PRODUCTS(X)
#undef X
#undef TIMES
#define STEP(s, n) reach += (s) >= 0 ? (double)p[(s) >= 0 ? (s) : 0] * (double)p[(n) >= 0 ? (n) : 0] : 0;
#define X(own, s0, n0, s1, n1, s2, n2) \
    if (form == own) { \
        reach = 0; \
        STEP(s0, n0) STEP(s1, n1) STEP(s2, n2) \
        if (reach >= (double)TX8_DDR_OFFSET) return "strides that reach too far"; \
    }
    TX8_REACHES(X)
#undef X
#undef STEP
    return NULL;
}

static bool check_row(const tx8_row *r, int64_t at, int64_t n_slots, tx8_problem *problem) {
    const int64_t *p = r->p;
    long long row = (long long)at;
    if (r->opcode >= N_OPCODES || !OPCODES[r->opcode].name)
        return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: opcode %#x does not exist", row, r->opcode);
    int form = OPCODES[r->opcode].form;
    const char *name = OPCODES[r->opcode].name;
    if (!known_code(r->fmt)) return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: format code %d does not exist", row, r->fmt);
    if (!(OPCODES[r->opcode].formats >> r->fmt & 1))
        return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: format code %d of a %s, which takes others", row, r->fmt, name);
    if (r->slot < -1 || r->slot >= n_slots)
        return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: found slot %d, required -1 to %lld", row, r->slot, (long long)n_slots - 1);
    if (far(r->ddr) || far(r->ddr_step[0]) || far(r->ddr_step[1]))
        return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: found a DDR offset or step of %lld bytes or more", row, (long long)TX8_DDR_OFFSET);
#define Y(own, k) \
    if (form == own && (p[k] < 0 || p[k] >= n_slots)) \
        return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: found row numbers in slot %lld, required 0 to %lld", row, (long long)p[k], (long long)n_slots - 1);
    TX8_NUMBER_SLOTS(Y)
#undef Y
    for (int k = 0; k < PARAMETERS; k++) {
        const bound *b = BOUNDS + FIELDS[form][k];
        if (b->name && (p[k] < b->low || p[k] >= b->high))
            return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: found %s %lld of a %s, required %lld to %lld", row, b->name, (long long)p[k], name,
                                (long long)b->low, (long long)b->high - 1);
    }
#define X(own, k, field) \
    if (form == own && !known_code(p[k])) \
        return tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: found %s %lld of a %s, required a format code", row, field, (long long)p[k], name);
    TX8_FORMAT_PARAMETERS(X)
#undef X
    const char *sizes = wrong_sizes(form, p);
    return sizes ? tx8_complain(problem, TX8_ERROR_FILE, "instruction %lld: found %s of a %s", row, sizes, name) : true;
}

/* --- loops --- */

typedef struct {
    const tx8_row *rows;
    const int32_t *partner; /* of a loop: its end */
    tx8_row *out;           /* NULL: only counted */
    int64_t n;
    int64_t turn[TX8_MAX_LOOPS];
    bool far;
} unrolling;

static bool match_loops(const tx8_row *rows, int64_t n, int32_t *partner, tx8_problem *p) {
    int64_t open[TX8_MAX_LOOPS];
    int depth = 0;
    for (int64_t k = 0; k < n; k++) {
        if (rows[k].opcode == TX8_OP_LOOP) {
            if (depth == TX8_MAX_LOOPS) return tx8_complain(p, TX8_ERROR_FILE, "row %lld opens loop level %d, at most %d", (long long)k, depth + 1, TX8_MAX_LOOPS);
            open[depth++] = k;
        } else if (rows[k].opcode == TX8_OP_END) {
            if (!depth) return tx8_complain(p, TX8_ERROR_FILE, "row %lld ends a loop that was not opened", (long long)k);
            partner[open[--depth]] = (int32_t)k;
        }
    }
    return depth ? tx8_complain(p, TX8_ERROR_FILE, "the loop opened by row %lld is not ended", (long long)open[depth - 1]) : true;
}

/* How many rows [lo, hi) stand for, TX8_MAX_ROWS + 1 for more than are allowed. */
static int64_t count_rows(const unrolling *u, int64_t lo, int64_t hi) {
    int64_t total = 0;
    for (int64_t k = lo; k < hi && total <= TX8_MAX_ROWS; k++) {
        if (u->rows[k].opcode != TX8_OP_LOOP) {
            total++;
            continue;
        }
        int64_t inner = count_rows(u, k + 1, u->partner[k]), times = u->rows[k].p[TX8_P_LOOP_COUNT];
        total += inner && times > TX8_MAX_ROWS / inner ? TX8_MAX_ROWS + 1 : inner * times;
        k = u->partner[k];
    }
    return total <= TX8_MAX_ROWS ? total : TX8_MAX_ROWS + 1;
}

static void unroll(unrolling *u, int64_t lo, int64_t hi, int depth) {
    for (int64_t k = lo; k < hi; k++) {
        if (u->rows[k].opcode != TX8_OP_LOOP) {
            tx8_row *made = u->out + u->n++;
            *made = u->rows[k];
            for (int level = 0; level < depth && level < TX8_MAX_LOOPS; level++) {
                int64_t step;
                u->far |= __builtin_mul_overflow(u->turn[level], made->ddr_step[level], &step) || __builtin_add_overflow(made->ddr, step, &made->ddr);
            }
            u->far |= made->ddr <= -((int64_t)1 << 60) || made->ddr >= (int64_t)1 << 60;
            continue;
        }
        int64_t end = u->partner[k], times = depth < TX8_MAX_LOOPS && count_rows(u, k + 1, end) ? u->rows[k].p[TX8_P_LOOP_COUNT] : 0;
        for (int64_t i = 0; i < times; i++) {
            u->turn[depth % TX8_MAX_LOOPS] = i;
            unroll(u, k + 1, end, depth + 1);
        }
        k = end;
    }
}

static bool expand(tx8_code *code, const tx8_row *rows, int64_t n, tx8_problem *p) {
    int32_t *partner = calloc((size_t)n + 1, sizeof *partner);
    unrolling u = {.rows = rows, .partner = partner};
    bool ok = partner ? match_loops(rows, n, partner, p) : tx8_complain(p, TX8_ERROR_MEMORY, "out of memory");
    if (ok) {
        int64_t total = count_rows(&u, 0, n);
        if (total > TX8_MAX_ROWS)
            ok = tx8_complain(p, TX8_ERROR_FILE, "its loops stand for more than %d instructions", TX8_MAX_ROWS);
        else if (!(code->rows = u.out = malloc((size_t)(total + 1) * sizeof *u.out)))
            ok = tx8_complain(p, TX8_ERROR_MEMORY, "out of memory for %lld instructions", (long long)total);
    }
    if (ok) {
        unroll(&u, 0, n, 0);
        code->n = u.n;
        if (u.far) ok = tx8_complain(p, TX8_ERROR_FILE, "its loops leave DDR");
    }
    free(partner);
    return ok;
}

static bool find_stops(tx8_code *code, tx8_problem *p) {
    int64_t n = 0;
    for (int64_t k = 0; k < code->n; k++) n += tx8_is_stop(code->rows + k);
    if (!(code->stops = malloc((size_t)(n + 1) * sizeof *code->stops))) return tx8_complain(p, TX8_ERROR_MEMORY, "out of memory");
    for (int64_t k = 0; k < code->n; k++)
        if (tx8_is_stop(code->rows + k)) code->stops[code->n_stops++] = k;
    return true;
}

bool tx8_code_make(tx8_code *code, const tx8_packed *packed, const uint32_t *numbers, int64_t n, int64_t n_slots, tx8_problem *p) {
    memset(code, 0, sizeof *code);
    if (n > TX8_MAX_ROWS) return tx8_complain(p, TX8_ERROR_FILE, "%lld rows of code, at most %d", (long long)n, TX8_MAX_ROWS);
    tx8_row *rows = calloc((size_t)n + 1, sizeof *rows);
    bool ok = rows || tx8_complain(p, TX8_ERROR_MEMORY, "out of memory");
    for (int64_t k = 0; ok && k < n; k++) {
        if (numbers[k] >= packed->n_rows) {
            ok = tx8_complain(p, TX8_ERROR_FILE, "row %u of %lld is used", numbers[k], (long long)packed->n_rows);
            break;
        }
        const uint32_t *from = packed->rows + (int64_t)numbers[k] * packed->n_words;
        uint8_t *to = (uint8_t *)(rows + k);
        for (int64_t i = 0; i < packed->n_words; i++) memcpy(to + 4 * packed->words[i], from + i, 4);
        ok = check_row(rows + k, k, n_slots, p);
    }
    ok = ok && expand(code, rows, n, p) && find_stops(code, p);
    free(rows);
    if (!ok) tx8_code_free(code);
    return ok;
}

void tx8_code_free(tx8_code *code) {
    free(code->rows);
    free(code->stops);
    memset(code, 0, sizeof *code);
}
