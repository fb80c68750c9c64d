/* Rows one after the other: which meaning they have, memory of a row, threads, messages. */
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

bool fail(tx8_tile *t, int status, int64_t a, int64_t b, int64_t c) {
    t->status = status;
    t->found[0] = a, t->found[1] = b, t->found[2] = c;
    return false;
}

uint8_t *spm_at(tx8_tile *t, int64_t addr, int64_t bytes) {
    if (addr >= 0 && bytes >= 0 && bytes <= t->spm_bytes && addr <= t->spm_bytes - bytes) return t->spm + addr;
    fail(t, TX8_BAD_SPM, addr, bytes, 0);
    return NULL;
}

uint8_t *ddr_at(tx8_tile *t, int64_t addr, int64_t bytes) {
    int64_t at = addr - t->ddr_base;
    if (at >= 0 && bytes >= 0 && bytes <= t->ddr_bytes && at <= t->ddr_bytes - bytes) return t->ddr + at;
    fail(t, TX8_BAD_DDR, addr, bytes, 0);
    return NULL;
}

void *scratch(tx8_tile *t, int64_t bytes) {
    tx8_scratch *s = &t->scratch;
    bytes = ceil_div(bytes + 64, 64) * 64; /* loops may read a vector behind the end */
    if (s->n == 0 || s->used + bytes > s->room[s->n - 1]) {
        int64_t room = most(bytes, s->n ? 2 * s->room[s->n - 1] : 1 << 16);
        void *made = s->n < 32 ? aligned_alloc(64, (size_t)room) : NULL;
        if (!made) {
            fail(t, TX8_NO_MEMORY, bytes, 0, 0);
            return NULL;
        }
        s->block[s->n] = made, s->room[s->n] = room, s->n++, s->used = 0;
    }
    void *out = s->block[s->n - 1] + s->used;
    s->used += bytes;
    return out;
}

/* Only the last block, the largest, is kept: later rows fit. */
static void clear_scratch(tx8_scratch *s) {
    for (int k = 0; k + 1 < s->n; k++) free(s->block[k]);
    if (s->n > 1) s->block[0] = s->block[s->n - 1], s->room[0] = s->room[s->n - 1], s->n = 1;
    s->used = 0;
}

void tx8_free(tx8_tile *t) {
    for (int k = 0; k < t->scratch.n; k++) free(t->scratch.block[k]);
    free(t->outbox.bytes);
    free(t->outbox.list);
    memset(&t->scratch, 0, sizeof t->scratch);
    memset(&t->outbox, 0, sizeof t->outbox);
}

static bool run_kcore(tx8_tile *t, int64_t k) {
    if (k < 0 || k >= t->n_calls) return fail(t, TX8_BAD_CALL, -1, TX8_WHY_UNKNOWN, k);
    return run_call(t, t->calls + t->call_at[k], t->calls + t->call_at[k + 1]);
}

static bool run_row(tx8_tile *t, const tx8_row *r) {
    switch (r->opcode) {
#define X(opcode, function, form, kind) \
    case opcode: return run_vector(t, r, G_##function, FORM_##form, ON_##kind);
        TX8_VECTORS(X)
#undef X
#define X(opcode, src, dst) \
    case opcode: return run_convert(t, r, F_##src, F_##dst);
        TX8_CONVERSIONS(X)
#undef X
        case TX8_OP_GEMM: case TX8_OP_CONV: case TX8_OP_DEPTHWISE: case TX8_OP_BACKWARD_CONV: return run_matrix(t, r);
        case TX8_OP_RDMA: case TX8_OP_WDMA: case TX8_OP_RDMA_ROW: case TX8_OP_TDMA_ROW: case TX8_OP_GATHER_SCATTER:
        case TX8_OP_MEMSET: return run_transfer(t, r);
        case TX8_OP_MIRROR: case TX8_OP_TRANSPOSE: case TX8_OP_ROTATE90: case TX8_OP_ROTATE180: case TX8_OP_ROTATE270:
        case TX8_OP_NHWC2NCHW: case TX8_OP_NCHW2NHWC: case TX8_OP_PAD: case TX8_OP_TENSOR_NORM: case TX8_OP_IMG2COL:
        case TX8_OP_CONCAT: return run_move(t, r);
        case TX8_OP_REDUCE_SUM: case TX8_OP_REDUCE_AVG: case TX8_OP_REDUCE_MAX: case TX8_OP_REDUCE_MIN: case TX8_OP_POOL_AVG:
        case TX8_OP_POOL_SUM: case TX8_OP_POOL_MAX: case TX8_OP_POOL_MIN: case TX8_OP_POOL_MAX_INDEXED:
        case TX8_OP_POOL_MIN_INDEXED: case TX8_OP_UNPOOL: case TX8_OP_UNPOOL_AVG: case TX8_OP_MASK_UNPOOL: return run_tensor(t, r);
        case TX8_OP_MASK_MOVE: case TX8_OP_MASK_GATHER: case TX8_OP_MASK_GATHER_B: case TX8_OP_COUNT: case TX8_OP_BITCOUNT:
        case TX8_OP_ARGMAX: case TX8_OP_ARGMIN: case TX8_OP_FACTORIZE: case TX8_OP_BIT2FP: case TX8_OP_BILINEAR: case TX8_OP_LUT16:
        case TX8_OP_LUT32: case TX8_OP_RAND_GEN: case TX8_OP_ELEM_MASK: case TX8_OP_SCALAR_RECIP: case TX8_OP_SCALAR_SQRT:
        case TX8_OP_SCALAR_SIN: case TX8_OP_SCALAR_COS: case TX8_OP_SCALAR_LOG2: case TX8_OP_SCALAR_POW2: return run_peripheral(t, r);
        case TX8_OP_SEND: case TX8_OP_SCATTER: case TX8_OP_GATHER: return run_message(t, r);
        /* nothing to compute: engines are never behind here, and who meets whom is decided between stretches */
        case TX8_OP_WAIT: case TX8_OP_WAIT_WORKER: case TX8_OP_FENCE: case TX8_OP_SEND_WAIT: case TX8_OP_BARRIER: case TX8_OP_RECV:
        case TX8_OP_BARRIER_SUB: case TX8_OP_HANDSHAKE: return true;
        case TX8_OP_KCORE: return run_kcore(t, r->p[TX8_P_KCORE_ROUTINE]);
        default: return fail(t, TX8_BAD_OPCODE, r->opcode, 0, 0);
    }
}

void tx8_run_tile(tx8_tile *t) {
    t->status = TX8_DONE;
    memset(t->work, 0, sizeof t->work);
    for (; t->at < t->end; t->at++) {
        bool ok = run_row(t, t->rows + t->at);
        clear_scratch(&t->scratch);
        if (!ok) return;
    }
}

/* --- threads --- */

typedef struct {
    tx8_tile *const *tiles;
    int n;
    atomic_int next;
} work;

static void *take_tiles(void *given) {
    work *w = given;
    for (int k; (k = atomic_fetch_add(&w->next, 1)) < w->n;) tx8_run_tile(w->tiles[k]);
    return NULL;
}

/* A rough count of operations; starting a thread takes as long as some hundred thousand of them. */
static int64_t operations(const tx8_tile *t) {
    int64_t total = 0;
    for (const tx8_row *r = t->rows + t->at; r < t->rows + t->end; r++) {
        total += 10000;
        for (int k = 0; r->opcode == TX8_OP_KCORE && k < TX8_WORK; k++) total += least(most(r->p[TX8_P_KCORE_LOADS + k], 0), 1 << 30);
        if (r->opcode == TX8_OP_GEMM) {
            const int64_t *p = r->p;
            total += p[TX8_P_GEMM_M] * p[TX8_P_GEMM_K] / 8 * p[TX8_P_GEMM_N] * most(p[TX8_P_GEMM_BATCH_L], p[TX8_P_GEMM_BATCH_R]);
        }
    }
    return total;
}

#define MOST_THREADS 64
#define WORTH_A_THREAD 2000000

void tx8_run_tiles(tx8_tile *const *tiles, int n, int threads) {
    work w = {tiles, n, 0};
    pthread_t made[MOST_THREADS];
    int helpers = 0;
    int64_t total = 0;
    for (int k = 0; threads > 1 && k < n && total < 2 * WORTH_A_THREAD; k++) total += operations(tiles[k]);
    if (total >= 2 * WORTH_A_THREAD)
        for (; helpers < least(least(threads, n), MOST_THREADS) - 1; helpers++)
            if (pthread_create(&made[helpers], NULL, take_tiles, &w)) break; /* those that run do all the work */
    take_tiles(&w);
    for (int k = 0; k < helpers; k++) pthread_join(made[k], NULL);
}

/* --- messages --- */

static bool post(tx8_tile *t, tx8_message m, int64_t total, uint8_t **room) {
    tx8_outbox *o = &t->outbox;
    if (o->used + total > o->room) {
        int64_t size = most(2 * o->room, o->used + total);
        uint8_t *made = realloc(o->bytes, (size_t)size);
        if (!made) return fail(t, TX8_NO_MEMORY, total, 0, 0);
        o->bytes = made, o->room = size;
    }
    if (o->count == o->list_room) {
        int64_t size = most(2 * o->list_room, 16);
        tx8_message *made = realloc(o->list, (size_t)size * sizeof *made);
        if (!made) return fail(t, TX8_NO_MEMORY, total, 0, 0);
        o->list = made, o->list_room = size;
    }
    m.data = o->used;
    o->list[o->count++] = m;
    *room = o->bytes + o->used;
    o->used += total;
    return true;
}

bool run_message(tx8_tile *t, const tx8_row *r) {
    const int64_t *p = r->p;
    int64_t src = r->spm[TX8_S_SEND_SRC], bytes = p[TX8_P_SEND_BYTES], mask = p[TX8_P_SEND_MASK], parts = 1;
    tx8_message m = {0, 0, bytes, mask, r->spm[TX8_S_SEND_DST], p[TX8_P_SEND_MONITOR], 0};
    uint8_t *to;
    if (mask < 1 || bytes < 0 || bytes > ((int64_t)1 << 40)) return fail(t, TX8_BAD_MESSAGE, mask, m.monitor, 0);
    if (r->opcode == TX8_OP_SEND) m.chip = p[TX8_P_SEND_CHIP];
    if (r->opcode == TX8_OP_SCATTER) {
        parts = 0;
        for (int64_t rest = mask; rest; rest &= rest - 1) parts++;
        m.step = bytes;
    }
    if (r->opcode != TX8_OP_GATHER) {
        const uint8_t *from = spm_at(t, src, bytes * parts);
        if (!from || !post(t, m, bytes * parts, &to)) return false;
        memcpy(to, from, (size_t)(bytes * parts));
        return true;
    }
    int64_t run = p[TX8_P_GATHER_RUN_BYTES], s[3], n[3];
    for (int k = 0; k < 3; k++) s[k] = p[TX8_P_GATHER_S0 + 2 * k], n[k] = p[TX8_P_GATHER_N0 + 2 * k];
    if ((mask & (mask - 1)) || run < 1 || n[0] < 1 || n[1] < 1 || n[2] < 1 || (double)run * (double)n[0] * (double)n[1] * (double)n[2] != (double)bytes)
        return fail(t, TX8_BAD_GATHER, mask, bytes, run);
    if (!spm_at(t, src, run + (n[0] - 1) * s[0] + (n[1] - 1) * s[1] + (n[2] - 1) * s[2]) || !post(t, m, bytes, &to)) return false;
    for (int64_t i2 = 0; i2 < n[2]; i2++)
        for (int64_t i1 = 0; i1 < n[1]; i1++)
            for (int64_t i0 = 0; i0 < n[0]; i0++, to += run)
                memcpy(to, t->spm + src + i0 * s[0] + i1 * s[1] + i2 * s[2], (size_t)run);
    return true;
}

int tx8_deliver(tx8_tile *from, tx8_tile *const *tiles, int64_t *monitors, int64_t tiles_per_chip, int64_t n_chips) {
    tx8_outbox *o = &from->outbox;
    int status = TX8_DONE;
    for (int64_t k = 0; k < o->count && !status; k++) {
        const tx8_message *m = o->list + k;
        int64_t chip = m->chip ? m->chip - 1 : from->chip, part = 0;
        if (chip < 0 || chip >= n_chips || m->monitor < 0 || m->monitor >= TX8_MONITORS || tiles_per_chip > 62 || m->mask >> tiles_per_chip) {
            fail(from, status = TX8_BAD_MESSAGE, m->mask, m->monitor, m->chip);
            break;
        }
        for (int64_t tile = 0; tile < tiles_per_chip; tile++) {
            if (!(m->mask >> tile & 1)) continue;
            tx8_tile *to = tiles[chip * tiles_per_chip + tile];
            uint8_t *room = spm_at(to, m->dst, m->bytes);
            if (!room) {
                fail(from, status = TX8_BAD_SPM, m->dst, m->bytes, 0);
                break;
            }
            memcpy(room, o->bytes + m->data + part++ * m->step, (size_t)m->bytes);
            monitors[(chip * tiles_per_chip + tile) * TX8_MONITORS + m->monitor] += m->bytes;
        }
    }
    o->used = o->count = 0;
    return status;
}
