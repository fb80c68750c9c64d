/* Routines that compute element by element: functions, arithmetic, comparison, selection, functions in steps. */
#include "routine.h"

double stored(double x, bool single) { return single ? (double)(float)x : x; }

static double activation(int act, double x, double alpha, bool single) {
    switch (act) {
        case TX8_ACT_RELU: return x > 0 ? x : x != x ? x : 0;
        case TX8_ACT_LEAKY_RELU: return x < 0 ? stored(x * stored(alpha, single), single) : x;
        case TX8_ACT_GELU: return 0.5 * x * r_erfc(-x / sqrt(2));
        case TX8_ACT_GELU_TANH: return x * r_sigmoid(2 * (sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x)));
        case TX8_ACT_SILU: return x * r_sigmoid(x);
        case TX8_ACT_HSWISH: return x * smaller(larger(x / 6 + 0.5, 0), 1);
        case TX8_ACT_SOFTPLUS: return r_softplus(x);
        case TX8_ACT_SOFTSIGN: return x / (1 + fabs(x));
        case TX8_ACT_MISH: return x * r_tanh(r_softplus(x));
        case TX8_ACT_ELU: return x < 0 ? alpha * r_expm1(x) : x;
        case TX8_ACT_CELU: return larger(x, 0) + smaller(alpha * r_expm1(smaller(x, 0) / alpha), 0);
        case TX8_ACT_THRESHOLDED_RELU: return x > alpha ? x : 0;
        case TX8_ACT_SIGMOID: return r_sigmoid(x);
        case TX8_ACT_TANH: return r_tanh(x);
        default: return x;
    }
}

static double function(int code, double x) {
    switch (code) {
        case TX8_R_EXP: return r_exp(x);
        case TX8_R_LOG: return r_log(x);
        case TX8_R_RSQRT: return 1 / sqrt(x);
        case TX8_R_SIN: return r_sin(x, 0);
        case TX8_R_COS: return r_sin(x, 1);
        case TX8_R_TAN: return r_tan(x);
        case TX8_R_ASIN: return r_asin(x);
        case TX8_R_ACOS: return r_acos(x);
        case TX8_R_ATAN: return r_atan(x);
        case TX8_R_SINH: return r_sinh(x);
        case TX8_R_COSH: return r_cosh(x);
        case TX8_R_ASINH: return r_asinh(x);
        case TX8_R_ACOSH: return r_acosh(x);
        case TX8_R_ATANH: return r_atanh(x);
        case TX8_R_TANH: return r_tanh(x);
        case TX8_R_SIGMOID: return r_sigmoid(x);
        case TX8_R_ERF: return r_erf(x);
        case TX8_R_SQRT: return sqrt(x);
        case TX8_R_RECIP: return 1 / x;
        case TX8_R_NEG: return -x;
        case TX8_R_ABS: return fabs(x);
        case TX8_R_SQUARE: return x * x;
        case TX8_R_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
        case TX8_R_FLOOR: return floor(x);
        case TX8_R_CEIL: return ceil(x);
        case TX8_R_ROUND: return nearbyint(x);
        case TX8_R_ISNAN: return x != x;
        default: return isinf(x) != 0; /* TX8_R_ISINF */
    }
}

static int64_t whole_function(int code, int64_t x, bool truth, bool is_unsigned) {
    uint64_t u = (uint64_t)x;
    switch (code) {
        case TX8_R_NEG: return (int64_t)(0 - u);
        case TX8_R_ABS: return x < 0 && !is_unsigned ? (int64_t)(0 - u) : x;
        case TX8_R_SQUARE: return (int64_t)(u * u);
        case TX8_R_SIGN: return is_unsigned ? x != 0 : (x > 0) - (x < 0);
        case TX8_R_NOT: return truth ? !x : (int64_t)~u;
        case TX8_R_ISNAN: case TX8_R_ISINF: return 0;
        default: return x; /* floor, ceil, round */
    }
}

/* the work of each routine's function, once per element; from the declarations */
static void count_each(call *c, int64_t n) {
    static const uint8_t each[][TX8_WORK] = {TX8_ROUTINE_EACH};
    for (int k = 0; k < TX8_WORK; k++) c->t->work[k] += n * each[c->code][k];
}

bool activate(call *c, int act, double alpha, double *x, int64_t n, bool single) {
    static const uint8_t each[][TX8_WORK] = {TX8_ACT_EACH};
    if (act < 0 || act > TX8_ACT_TANH) return refuse(c, TX8_WHY_UNKNOWN, act, 0, 0);
    for (int k = 0; k < TX8_WORK; k++) c->t->work[k] += n * each[act][k];
    for (int64_t i = 0; act && i < n; i++) x[i] = activation(act, x[i], alpha, single);
    return true;
}

bool routine_unary(call *c) {
    if (missing(c, 0)) return false;
    view *v = c->in, *to = c->out;
    bool exact = c->code >= TX8_R_NEG && c->code <= TX8_R_ISINF; /* of integers, integers */
    if (v->n != to->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    count_each(c, v->n);
    if (exact && !is_float(v)) {
        int64_t *x = wholes(c, v);
        if (!x) return false;
        for (int64_t i = 0; i < v->n; i++) x[i] = wrapped(whole_function(c->code, x[i], is_truth(v), FORMATS[v->fmt].kind == 'U'), v->fmt);
        return give_wholes(c, to, x, v->fmt);
    }
    double *x = reals(c, v);
    if (!x) return false;
    for (int64_t i = 0; i < v->n; i++) x[i] = stored(function(c->code, x[i]), !is_f64(v) && exact);
    return give_reals(c, to, x);
}

bool routine_activation(call *c) {
    if (missing(c, 0)) return false;
    view *v = c->in, *to = c->out;
    double alpha = next_real(c), other = next_real(c);
    int act = c->code - TX8_R_RELU + TX8_ACT_RELU;
    if (v->n != to->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    count_each(c, v->n);
    if (!is_float(v) && (act == TX8_ACT_RELU || act == TX8_ACT_LEAKY_RELU)) {
        int64_t *x = wholes(c, v), slope = act == TX8_ACT_RELU ? 0 : (int64_t)alpha;
        if (!x) return false;
        for (int64_t i = 0; i < v->n; i++)
            if (x[i] < 0 && FORMATS[v->fmt].kind == 'S') x[i] = wrapped((int64_t)((uint64_t)x[i] * (uint64_t)slope), v->fmt);
        return give_wholes(c, to, x, v->fmt);
    }
    double *x = reals(c, v);
    if (!x) return false;
    bool single = !is_f64(v);
    for (int64_t i = 0; i < v->n; i++) {
        if (c->code == TX8_R_HSIGMOID)
            x[i] = smaller(larger(alpha * x[i] + other, 0), 1);
        else if (c->code == TX8_R_SELU)
            x[i] = other * (x[i] < 0 ? alpha * r_expm1(x[i]) : x[i]);
        else
            x[i] = activation(act, x[i], alpha, single);
    }
    return give_reals(c, to, x);
}

/* --- two operands --- */

static int64_t divided(int64_t a, int64_t b, bool is_unsigned) { /* cut toward zero; by zero: 0 */
    if (b == 0) return 0;
    if (is_unsigned) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t rest_of(int64_t a, int64_t b, bool is_unsigned, bool of_dividend) {
    if (b == 0 || (b == -1 && !is_unsigned)) return 0;
    if (is_unsigned) return (int64_t)((uint64_t)a % (uint64_t)b);
    int64_t rest = a % b;
    return rest && !of_dividend && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t power_of(int64_t a, int64_t b) {
    uint64_t y = 1, x = (uint64_t)a;
    for (uint64_t k = (uint64_t)b; k; k >>= 1, x *= x)
        if (k & 1) y *= x;
    return (int64_t)y;
}

static int64_t whole_pair(int code, int64_t a, int64_t b, const view *v, bool of_dividend) {
    bool u = FORMATS[v->fmt].kind == 'U';
    int64_t flip = flip_of(v), x = a ^ flip, y = b ^ flip, bits = 8 * v->size;
    switch (code) {
        case TX8_R_ADD: return is_truth(v) ? a | b : (int64_t)((uint64_t)a + (uint64_t)b);
        case TX8_R_SUB: return (int64_t)((uint64_t)a - (uint64_t)b);
        case TX8_R_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
        case TX8_R_DIV: return divided(a, b, u);
        case TX8_R_MOD: return rest_of(a, b, u, of_dividend);
        case TX8_R_MAX: return y > x ? b : a;
        case TX8_R_MIN: return y < x ? b : a;
        case TX8_R_POW: return power_of(a, b);
        case TX8_R_AND: return a & b;
        case TX8_R_OR: return a | b;
        case TX8_R_XOR: return a ^ b;
        case TX8_R_SHL: return y >= (bits ^ flip) ? 0 : y < (0 ^ flip) ? 0 : (int64_t)((uint64_t)a << b);
        case TX8_R_SHR: /* by more than there are bits, or by less than none: the sign is left */
            if (y >= (bits ^ flip) || y < (0 ^ flip)) return u ? 0 : a < 0 ? -1 : 0;
            return u ? (int64_t)((uint64_t)a >> b) : a >= 0 ? a >> b : ~(~a >> b);
        case TX8_R_EQ: return a == b;
        case TX8_R_NE: return a != b;
        case TX8_R_LT: return x < y;
        case TX8_R_LE: return x <= y;
        case TX8_R_GT: return x > y;
        default: return x >= y; /* TX8_R_GE */
    }
}

static double rest_real(double a, double b, bool of_dividend, bool single) {
    double rest = fmod(a, b);
    if (of_dividend || rest != rest) return rest;
    if (rest == 0) return copysign(0, b);
    return (b < 0) != (rest < 0) ? stored(rest + b, single) : rest;
}

static double real_pair(int code, double a, double b, bool of_dividend, bool single) {
    switch (code) {
        case TX8_R_ADD: return a + b;
        case TX8_R_SUB: return a - b;
        case TX8_R_MUL: return a * b;
        case TX8_R_DIV: return a / b;
        case TX8_R_MOD: return rest_real(a, b, of_dividend, single);
        case TX8_R_MAX: return larger(a, b);
        case TX8_R_MIN: return smaller(a, b);
        case TX8_R_POW: return r_pow(a, b);
        case TX8_R_EQ: return a == b;
        case TX8_R_NE: return a != b;
        case TX8_R_LT: return a < b;
        case TX8_R_LE: return a <= b;
        case TX8_R_GT: return a > b;
        default: return a >= b; /* TX8_R_GE */
    }
}

bool routine_binary(call *c) {
    if (missing(c, 0) || missing(c, 1)) return false;
    view a = c->in[0], b = c->in[1], *to = c->out;
    bool of_dividend = next_whole(c) != 0, real = is_float(&a) || is_float(&b), single = !is_f64(&a) && !is_f64(&b);
    if (!spread_view(&a, to) || !spread_view(&b, to)) return refuse(c, TX8_WHY_SIZES, a.n, to->n, 0);
    if (real && (c->code == TX8_R_AND || c->code == TX8_R_OR || c->code == TX8_R_XOR || c->code == TX8_R_SHL || c->code == TX8_R_SHR))
        return fail(c->t, TX8_BAD_FORMAT, a.fmt, 0, 0);
    count_each(c, to->n);
    int64_t *p = NULL, *q = NULL;
    if (!real) {
        if (!(p = wholes(c, &a)) || !(q = wholes(c, &b))) return false;
        if (c->code == TX8_R_POW && FORMATS[b.fmt].kind == 'S') /* a single negative exponent makes all of them reals */
            for (int64_t i = 0; i < to->n; i++) real |= q[i] < 0;
        if (!real) {
            for (int64_t i = 0; i < to->n; i++) p[i] = wrapped(whole_pair(c->code, p[i], q[i], &a, of_dividend), c->code >= TX8_R_EQ ? F_I64 : a.fmt);
            return give_wholes(c, to, p, c->code >= TX8_R_EQ ? F_I64 : a.fmt);
        }
    }
    double *x, *y;
    if (p) {
        if (!(x = room_reals(c, to->n)) || !(y = room_reals(c, to->n))) return false;
        for (int64_t i = 0; i < to->n; i++) x[i] = a.fmt == F_U64 ? (double)(uint64_t)p[i] : (double)p[i], y[i] = (double)q[i];
    } else if (!(x = reals(c, &a)) || !(y = reals(c, &b)))
        return false;
    for (int64_t i = 0; i < to->n; i++) x[i] = real_pair(c->code, x[i], y[i], of_dividend, single);
    if (single && c->code != TX8_R_POW)
        for (int64_t i = 0; i < to->n; i++) x[i] = (double)(float)x[i];
    return give_reals(c, to, x);
}

bool routine_prelu(call *c) {
    if (missing(c, 0) || missing(c, 1)) return false;
    view a = c->in[0], b = c->in[1], *to = c->out;
    if (!spread_view(&a, to) || !spread_view(&b, to)) return refuse(c, TX8_WHY_SIZES, a.n, to->n, 0);
    count_each(c, to->n);
    if (!is_float(&a)) {
        int64_t *x = wholes(c, &a), *y = wholes(c, &b);
        if (!x || !y) return false;
        for (int64_t i = 0; i < to->n; i++)
            if (x[i] < 0 && FORMATS[a.fmt].kind == 'S') x[i] = wrapped((int64_t)((uint64_t)x[i] * (uint64_t)y[i]), a.fmt);
        return give_wholes(c, to, x, a.fmt);
    }
    double *x = reals(c, &a), *y = reals(c, &b);
    if (!x || !y) return false;
    for (int64_t i = 0; i < to->n; i++)
        if (x[i] < 0) x[i] = stored(x[i] * y[i], !is_f64(&a));
    return give_reals(c, to, x);
}

bool routine_clamp(call *c) {
    if (missing(c, 0)) return false;
    view *v = c->in, *to = c->out;
    double lo = next_real(c), hi = next_real(c);
    int64_t low = next_whole(c), high = next_whole(c);
    if (v->n != to->n) return refuse(c, TX8_WHY_SIZES, v->n, to->n, 0);
    count_each(c, v->n);
    if (!is_float(v)) {
        int64_t *x = wholes(c, v), flip = flip_of(v);
        if (!x) return false;
        for (int64_t i = 0; i < v->n; i++) x[i] = least(most(x[i] ^ flip, low ^ flip), high ^ flip) ^ flip;
        return give_wholes(c, to, x, v->fmt);
    }
    double *x = reals(c, v);
    if (!x) return false;
    lo = stored(lo, !is_f64(v)), hi = stored(hi, !is_f64(v));
    for (int64_t i = 0; i < v->n; i++) x[i] = smaller(larger(x[i], lo), hi);
    return give_reals(c, to, x);
}

bool routine_swiglu(call *c) {
    if (missing(c, 0) || missing(c, 1)) return false;
    view a = c->in[0], b = c->in[1], *to = c->out;
    int act = (int)next_whole(c);
    double alpha = next_real(c);
    if (!spread_view(&a, to) || !spread_view(&b, to)) return refuse(c, TX8_WHY_SIZES, a.n, to->n, 0);
    double *x = reals(c, &a), *y = reals(c, &b);
    if (!x || !y || !activate(c, act, alpha, x, to->n, !is_f64(&a))) return false;
    count_ops(c, to->n);
    for (int64_t i = 0; i < to->n; i++) x[i] *= y[i];
    return give_reals(c, to, x);
}

bool routine_select(call *c) {
    if (missing(c, 0) || missing(c, 1) || missing(c, 2)) return false;
    view p = c->in[0], a = c->in[1], b = c->in[2], *to = c->out;
    if (!spread_view(&p, to) || !spread_view(&a, to) || !spread_view(&b, to)) return refuse(c, TX8_WHY_SIZES, a.n, to->n, 0);
    count_each(c, to->n);
    uint8_t *truth = scratch(c->t, to->n);
    double *test = reals(c, &p);
    if (!truth || !test) return false;
    for (int64_t i = 0; i < to->n; i++) truth[i] = test[i] != 0;
    if (is_float(&a) || is_float(&b)) {
        double *x = reals(c, &a), *y = reals(c, &b);
        if (!x || !y) return false;
        for (int64_t i = 0; i < to->n; i++) x[i] = truth[i] ? x[i] : y[i];
        return give_reals(c, to, x);
    }
    int64_t *x = wholes(c, &a), *y = wholes(c, &b);
    if (!x || !y) return false;
    for (int64_t i = 0; i < to->n; i++) x[i] = truth[i] ? x[i] : y[i];
    return give_wholes(c, to, x, a.fmt);
}

/* --- a function in steps --- */

typedef struct {
    int64_t code, n;
    int64_t place[3]; /* -1: the number */
    double number[3];
} map_step;

static double step_value(const map_step *s, const double *at, bool single) {
    double v[3] = {0, 0, 0};
    for (int64_t k = 0; k < s->n; k++) v[k] = s->place[k] < 0 ? stored(s->number[k], single) : at[s->place[k]];
    if (s->n == 3) return v[0] != 0 ? v[1] : v[2];
    return stored(s->n == 2 ? real_pair((int)s->code, v[0], v[1], false, single) : function((int)s->code, v[0]), single);
}

bool routine_map(call *c) {
    map_step steps[TX8_MAP_STEPS];
    double at[TX8_MAP_ARGUMENTS + TX8_MAP_STEPS], *in[TX8_MAP_ARGUMENTS];
    int n_steps = 0, own = c->code;
    view *to = c->out;
    if (c->n_in < 1 || c->n_in > TX8_MAP_ARGUMENTS) return refuse(c, TX8_WHY_SIZES, c->n_in, TX8_MAP_ARGUMENTS, 0);
    for (; c->word < c->end && n_steps < TX8_MAP_STEPS; n_steps++) {
        map_step *s = steps + n_steps;
        s->code = next_whole(c), s->n = next_whole(c);
        if (s->n < 1 || s->n > 3 || s->code < 0 || s->code >= TX8_ROUTINE_COUNT) return refuse(c, TX8_WHY_UNKNOWN, s->code, s->n, 0);
        for (int64_t k = 0; k < s->n; k++) {
            s->place[k] = next_whole(c);
            s->number[k] = s->place[k] < 0 ? next_real(c) : 0;
            if (s->place[k] >= c->n_in + n_steps) return refuse(c, TX8_WHY_UNKNOWN, s->place[k], c->n_in + n_steps, 0);
        }
        c->code = (int)s->code, count_each(c, to->n), c->code = own;
    }
    if (!n_steps) return refuse(c, TX8_WHY_UNKNOWN, 0, 0, 0);
    bool single = true;
    for (int k = 0; k < c->n_in; k++) {
        if (missing(c, k)) return false;
        view v = c->in[k];
        if (!spread_view(&v, to)) return refuse(c, TX8_WHY_SIZES, v.n, to->n, 0);
        if (!(in[k] = reals(c, &v))) return false;
        single = single && !is_f64(&v);
    }
    for (int64_t i = 0; i < to->n; i++) {
        for (int k = 0; k < c->n_in; k++) at[k] = in[k][i];
        for (int k = 0; k < n_steps; k++) at[c->n_in + k] = step_value(steps + k, at, single);
        in[0][i] = at[c->n_in + n_steps - 1];
    }
    return give_reals(c, to, in[0]);
}
