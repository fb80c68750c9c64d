/* Chips of tiles that run one C program: every tile is a thread that executes its instructions at once, until it has to wait for
 * another tile. When all of them wait, what was sent is delivered in the order of the tiles, and those that may go on do. So no tile
 * sees anything of another's stretch before it ends, and a run repeats exactly. */
#include "model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "meet.h"

enum { RUNS, WAITS, ENDED };
#define MOST_CHIPS 1024
#define MOST_TILES 62 /* of a chip: sets of them are masks */

typedef struct {
    tx8_model *model;
    tx8_tile tile;
    int number, state; /* the number counts on over the chips */
    tx8_wait wait;
    uint8_t monitor_open[TX8_MONITORS];
    int64_t cycles[TX8_UNITS], instructions[TX8_UNITS], ddr_bytes;
    jmp_buf failed;
    pthread_t thread;
} tile_thread;

struct tx8_model {
    uint32_t n, per_chip;
    uint64_t ddr_base;
    int64_t ddr_bytes;
    uint8_t *ddr;
    tile_thread *tiles;
    tx8_tile **all;
    int64_t *monitors, *barriers;
    tx8_meetings meetings;
    tx8_duration *duration;
    tx8_program *program;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t running;
    int broken; /* everybody has to end */
    char error[256];
};

static _Thread_local tile_thread *self;

/* --- stopping and going on --- */

/* Note what is wrong, unless something was before. */
static void complain(tx8_model *m, const char *text) {
    if (!m->error[0]) snprintf(m->error, sizeof m->error, "%s", text);
    m->broken = 1;
}

static void give_up(const char *text) {
    tx8_model *m = self->model;
    char line[200];
    snprintf(line, sizeof line, "tile %d: %s", self->number, text);
    pthread_mutex_lock(&m->lock);
    complain(m, line);
    pthread_mutex_unlock(&m->lock);
    longjmp(self->failed, 1);
}

static const char *place(const tile_thread *t) {
    if (t->state == ENDED) return "its end";
    switch (t->wait.what) {
        case TX8_OP_BARRIER: return "a barrier";
        case TX8_OP_BARRIER_SUB: return "a barrier of some tiles";
        case TX8_OP_HANDSHAKE: return "a handshake";
        default: return "a message";
    }
}

/* All tiles wait or have ended: deliver what was sent, and let those go on that may. Called with the lock. */
static void next_round(tx8_model *m) {
    uint32_t passed = 0, waiting = 0;
    for (uint32_t k = 0; k < m->n && !m->broken; k++)
        if (m->tiles[k].tile.outbox.count && tx8_deliver(m->all[k], m->all, m->monitors, m->per_chip, m->n / m->per_chip)) complain(m, "a message goes where no memory is");
    for (uint32_t k = 0; k < m->n && !m->broken; k++) {
        tile_thread *t = m->tiles + k;
        waiting += t->state != ENDED;
        if (t->state != WAITS || !tx8_may_pass(&m->meetings, &t->wait)) continue;
        t->state = RUNS;
        passed++;
    }
    m->running = passed;
    if (waiting && !passed && !m->broken) {
        char line[200] = "no tile can go on:";
        size_t used = strlen(line);
        for (uint32_t k = 0; k < m->n && used < sizeof line - 48; k++)
            used += (size_t)snprintf(line + used, sizeof line - used, " tile %u at %s;", k, place(m->tiles + k));
        complain(m, line);
    }
    pthread_cond_broadcast(&m->moved);
}

static void arrive(int what, int64_t with, int64_t bytes) {
    tx8_model *m = self->model;
    pthread_mutex_lock(&m->lock);
    self->wait = (tx8_wait){what, self->number, with, bytes};
    if (!tx8_arrive(&m->meetings, &self->wait)) complain(m, "no memory is left");
    pthread_mutex_unlock(&m->lock);
}

/* Wait for what the tile has arrived at. */
static void stop(void) {
    tile_thread *t = self;
    tx8_model *m = t->model;
    pthread_mutex_lock(&m->lock);
    t->state = WAITS;
    if (--m->running == 0) next_round(m);
    while (t->state == WAITS && !m->broken) pthread_cond_wait(&m->moved, &m->lock);
    bool ends = m->broken;
    pthread_mutex_unlock(&m->lock);
    if (ends) longjmp(t->failed, 1);
}

/* --- instructions --- */

/* the unit of each class of packets, then of a routine and of a message */
static uint64_t execute(int unit, tx8_row *row, int64_t address) {
    tile_thread *t = self;
    int64_t cycles = 0, bytes = 0;
    if (t->model->broken) longjmp(t->failed, 1);
    t->tile.rows = row, t->tile.addresses = &address;
    t->tile.at = 0, t->tile.end = 1;
    tx8_run_tile(&t->tile);
    if (t->tile.status) {
        char line[160];
        snprintf(line, sizeof line, "an instruction of opcode %#x cannot be executed: status %d, found %lld, %lld, %lld", row->opcode,
                 t->tile.status, (long long)t->tile.found[0], (long long)t->tile.found[1], (long long)t->tile.found[2]);
        give_up(line);
    }
    if (t->model->duration) {
        cycles = t->model->duration(row, address, &bytes);
        if (cycles < 0) give_up("an instruction has no duration: it is none of the program that durations were written for");
    }
    t->cycles[unit] += cycles, t->instructions[unit]++, t->ddr_bytes += bytes;
    return (uint64_t)cycles;
}

uint64_t TsmExecute(const TsmInstr *packet) {
    static const uint8_t units[] = {TX8_CT, TX8_NE, TX8_RDMA, TX8_WDMA, TX8_TDMA};
    tx8_row row;
    memcpy(&row, packet->param, sizeof row);
    int64_t address = row.ddr;
    row.ddr = 0;
    row.worker = (int16_t)(packet->type >> 8 & 3);
    return execute(units[least(packet->type & 7, I_TDMA)], &row, address);
}

/* Instructions are executed where they are issued, so the tile's own engines are always idle. */
void TsmWaitfinish(void) {}
void TsmWaitfinish_bywork(uint32_t worker) { (void)worker; }

void op_routine(const int64_t *call, uint32_t words, const uint64_t *slots, uint32_t n_slots, uint64_t loads, uint64_t stores, uint64_t ops,
                uint64_t divides, uint64_t functions) {
    int64_t begin[2] = {0, words};
    tx8_row row = {.opcode = TX8_OP_KCORE, .op = -1, .slot = -1};
    row.p[TX8_P_KCORE_LOADS] = (int64_t)loads, row.p[TX8_P_KCORE_STORES] = (int64_t)stores, row.p[TX8_P_KCORE_OPS] = (int64_t)ops;
    row.p[TX8_P_KCORE_DIVIDES] = (int64_t)divides, row.p[TX8_P_KCORE_FUNCTIONS] = (int64_t)functions;
    self->tile.calls = call, self->tile.call_at = begin, self->tile.n_calls = 1;
    self->tile.slots = (const int64_t *)slots, self->tile.n_slots = n_slots;
    execute(TX8_KCORE, &row, 0);
}

/* A look-up reads its number from slot 0. */
static void look_up(int unit, tx8_row *row, uint64_t number, int64_t address) {
    int64_t slot = (int64_t)number;
    self->tile.slots = &slot, self->tile.n_slots = 1;
    execute(unit, row, address);
}

void op_rdmaGather(uint32_t worker, uint64_t dst, uint64_t table, uint32_t run_bytes, uint64_t stride, uint64_t entries, uint64_t number,
                   uint32_t fmt) {
    tx8_row row = {.opcode = TX8_OP_RDMA_ROW, .op = -1, .slot = -1, .fmt = (uint8_t)fmt, .worker = (int16_t)worker};
    row.spm[TX8_S_RDMAROW_DST] = (int32_t)dst;
    row.p[TX8_P_RDMAROW_RUN_BYTES] = run_bytes, row.p[TX8_P_RDMAROW_STRIDE] = (int64_t)stride, row.p[TX8_P_RDMAROW_ENTRIES] = (int64_t)entries;
    look_up(TX8_RDMA, &row, number, (int64_t)table);
}

void op_tdmaGather(uint32_t worker, uint64_t dst, uint64_t table, uint32_t size, uint64_t stride, uint64_t entries, uint64_t number,
                   uint32_t fmt, uint32_t src_stride, uint32_t src_iter, uint32_t dst_stride, uint32_t dst_iter) {
    tx8_row row = {.opcode = TX8_OP_TDMA_ROW, .op = -1, .slot = -1, .fmt = (uint8_t)fmt, .worker = (int16_t)worker};
    row.spm[TX8_S_TDMAROW_SRC0] = (int32_t)table, row.spm[TX8_S_TDMAROW_DST] = (int32_t)dst;
    row.p[TX8_P_TDMAROW_SIZE] = size, row.p[TX8_P_TDMAROW_STRIDE] = (int64_t)stride, row.p[TX8_P_TDMAROW_ENTRIES] = (int64_t)entries;
    row.p[TX8_P_TDMAROW_SS0] = src_stride, row.p[TX8_P_TDMAROW_SN0] = src_iter;
    row.p[TX8_P_TDMAROW_DS0] = dst_stride, row.p[TX8_P_TDMAROW_DN0] = dst_iter;
    look_up(TX8_TDMA, &row, number, 0);
}

/* --- other tiles --- */

void __AtomicBarrierIn(void) { arrive(TX8_OP_BARRIER, 0, 0); }
void __AtomicBarrierOut(void) { stop(); }

void __BarrierSubgroup(uint32_t *ids, uint32_t count) {
    int64_t tiles = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= self->model->per_chip) give_up("a barrier names a tile that does not exist");
        tiles |= (int64_t)1 << ids[i];
    }
    arrive(TX8_OP_BARRIER_SUB, tiles, 0);
    if (!tx8_is_member(&self->model->meetings, &self->wait)) give_up("it arrives at a barrier of tiles that it is not one of");
    stop();
}

void op_sync_chip(uint32_t chip, uint32_t tile) {
    const tx8_model *m = self->model;
    if (tile >= m->per_chip || chip >= m->n / m->per_chip) give_up("a handshake with a tile that does not exist");
    arrive(TX8_OP_HANDSHAKE, (int64_t)chip * m->per_chip + tile, 0);
    stop();
}

void tile_sync_by_spm_single_direction(uint32_t tile) { op_sync_chip((uint32_t)self->tile.chip, tile); }

int32_t direct_dte_attach(uint32_t high_perf) { return (int32_t)high_perf; }
void direct_dte_release(int32_t node) { (void)node; }
void direct_dte_wait_done(direct_dte_info *info) { (void)info; }

/* chip: 0 for this one, else one more than its number, as rows have it */
static void message(const direct_dte_info *info, int64_t chip) {
    static const uint16_t opcodes[] = {TX8_OP_SEND, TX8_OP_SEND, TX8_OP_SCATTER, TX8_OP_GATHER};
    tx8_row row = {.op = -1, .slot = -1};
    int64_t mask = 0, runs = 1;
    for (uint32_t k = 0; k <= info->dest_num && k < 32; k++) {
        if (info->dst_tile[k] >= self->model->per_chip) give_up("a message for a tile that does not exist");
        mask |= (int64_t)1 << info->dst_tile[k];
    }
    row.opcode = opcodes[info->mode & 3];
    row.spm[TX8_S_SEND_SRC] = (int32_t)info->src, row.spm[TX8_S_SEND_DST] = (int32_t)info->dst;
    row.p[TX8_P_SEND_BYTES] = info->length, row.p[TX8_P_SEND_MASK] = mask, row.p[TX8_P_SEND_MONITOR] = info->remote_fsm_id;
    if (chip) row.p[TX8_P_SEND_CHIP] = chip;
    if (info->mode == DTE_GATHER) {
        for (int k = 0; k < 3; k++) {
            row.p[TX8_P_GATHER_S0 + 2 * k] = info->stride[k], row.p[TX8_P_GATHER_N0 + 2 * k] = info->iteration[k];
            runs *= most(info->iteration[k], 1);
        }
        row.p[TX8_P_GATHER_RUN_BYTES] = info->length / runs;
    }
    execute(TX8_DTE, &row, 0);
}

void direct_dte_send_async(direct_dte_info *info) { message(info, 0); }
void op_dte_send_chip(direct_dte_info *info, uint32_t chip) { message(info, (int64_t)chip + 1); }

void direct_fsm_monitor_init(uint32_t fsm, uint64_t addr, uint32_t packet_size, uint32_t packet_cnt) {
    (void)addr, (void)packet_size, (void)packet_cnt;
    if (fsm >= TX8_MONITORS || self->monitor_open[fsm]) give_up("a monitor that does not exist or counts already");
    self->monitor_open[fsm] = 1;
}

void direct_fsm_monitor_receive(uint32_t tile_this, uint32_t bytes, uint32_t fsm) {
    (void)tile_this;
    if (fsm >= TX8_MONITORS || !self->monitor_open[fsm]) give_up("it receives on a monitor that does not count");
    arrive(TX8_OP_RECV, fsm, bytes);
    stop();
}

void direct_fsm_monitor_deinit(uint32_t fsm) {
    if (fsm >= TX8_MONITORS || !self->monitor_open[fsm]) give_up("a monitor ends that does not count");
    if (self->model->monitors[self->number * TX8_MONITORS + (int)fsm]) give_up("messages are left over on a monitor");
    self->monitor_open[fsm] = 0;
}

/* --- the chip --- */

tx8_model *tx8_model_open(uint32_t tiles, int64_t spm_bytes, uint64_t ddr_base, int64_t ddr_bytes, tx8_duration *duration) {
    return tx8_model_open_chips(1, tiles, spm_bytes, ddr_base, ddr_bytes, duration);
}

tx8_model *tx8_model_open_chips(uint32_t chips, uint32_t per_chip, int64_t spm_bytes, uint64_t ddr_base, int64_t ddr_bytes, tx8_duration *duration) {
    tx8_model *m = calloc(1, sizeof *m);
    uint32_t tiles = chips * per_chip;
    if (!m || !per_chip || per_chip > MOST_TILES || !chips || chips > MOST_CHIPS) return free(m), NULL;
    m->n = tiles, m->per_chip = per_chip, m->ddr_base = ddr_base, m->ddr_bytes = ddr_bytes, m->duration = duration;
    m->ddr = calloc(chips, (size_t)most(ddr_bytes, 1));
    m->tiles = calloc(tiles, sizeof *m->tiles);
    m->all = calloc(tiles, sizeof *m->all);
    m->monitors = calloc((size_t)tiles * TX8_MONITORS, sizeof *m->monitors);
    m->barriers = malloc(tiles * sizeof *m->barriers);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->moved, NULL);
    bool whole = m->ddr && m->tiles && m->all && m->monitors && m->barriers;
    m->meetings = (tx8_meetings){.tiles_per_chip = per_chip, .monitors = m->monitors, .barriers = m->barriers, .n = tiles};
    for (uint32_t k = 0; k < tiles && whole; k++) {
        tile_thread *t = m->tiles + k;
        t->model = m, t->number = (int)k, m->all[k] = &t->tile;
        t->tile.spm = calloc(1, (size_t)spm_bytes), t->tile.spm_bytes = spm_bytes;
        m->barriers[k] = INT64_MAX; /* whoever does not come is waited for, too */
        t->tile.ddr = m->ddr + k / per_chip * (size_t)most(ddr_bytes, 1), t->tile.ddr_base = (int64_t)ddr_base, t->tile.ddr_bytes = ddr_bytes;
        t->tile.number = k % per_chip, t->tile.chip = k / per_chip;
        whole = t->tile.spm != NULL;
    }
    tx8_use_level(tx8_levels() - 1);
    return whole ? m : (tx8_model_close(m), NULL);
}

void tx8_model_close(tx8_model *m) {
    for (uint32_t k = 0; m->tiles && k < m->n; k++) {
        tx8_free(&m->tiles[k].tile);
        free(m->tiles[k].tile.spm);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->moved);
    tx8_forget(&m->meetings);
    free(m->barriers), free(m->tiles), free(m->all), free(m->monitors), free(m->ddr), free(m);
}

uint8_t *tx8_model_ddr(tx8_model *m) { return m->ddr; }
uint8_t *tx8_model_chip_ddr(tx8_model *m, uint32_t chip) { return m->ddr + chip * (size_t)most(m->ddr_bytes, 1); }
const char *tx8_model_error(const tx8_model *m) { return m->error; }

static void *run_tile(void *given) {
    self = given;
    tx8_model *m = self->model;
    if (!setjmp(self->failed)) m->program((uint32_t)self->number, m->ddr_base);
    pthread_mutex_lock(&m->lock);
    self->state = ENDED;
    if (--m->running == 0) next_round(m);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int tx8_model_run(tx8_model *m, tx8_program *program) {
    uint32_t begun = 0;
    m->program = program, m->broken = 0, m->error[0] = 0, m->running = m->n;
    pthread_mutex_lock(&m->lock); /* nobody goes on before all have begun */
    for (; begun < m->n; begun++) {
        m->tiles[begun].state = RUNS;
        if (pthread_create(&m->tiles[begun].thread, NULL, run_tile, m->tiles + begun)) break;
    }
    if (begun < m->n) complain(m, "no threads are left"), m->running = begun;
    pthread_mutex_unlock(&m->lock);
    for (uint32_t k = 0; k < begun; k++) pthread_join(m->tiles[k].thread, NULL);
    for (uint32_t k = 0; k < m->n * TX8_MONITORS && !m->broken; k++)
        if (m->monitors[k]) complain(m, "messages are left over at the end of the program");
    return m->broken;
}

static int64_t added_up(const tx8_model *m, int unit, size_t place) {
    int64_t total = 0;
    for (uint32_t k = 0; k < m->n; k++) total += ((const int64_t *)((const char *)(m->tiles + k) + place))[unit];
    return total;
}

int64_t tx8_model_cycles(const tx8_model *m, int unit) { return added_up(m, unit, offsetof(tile_thread, cycles)); }
int64_t tx8_model_instructions(const tx8_model *m, int unit) { return added_up(m, unit, offsetof(tile_thread, instructions)); }
int64_t tx8_model_ddr_bytes(const tx8_model *m) { return added_up(m, 0, offsetof(tile_thread, ddr_bytes)); }

int64_t tx8_model_compare(const uint8_t *got, const uint8_t *want, int in_blocks, int format, int64_t n, int64_t positions, int64_t channels,
                          int64_t *first) {
    int64_t size = FORMATS[format & 255].bytes, wrong = 0;
    tx8_tile none = {0};
    blocked b;
    if (in_blocks && !blocked_of(&none, &b, n, positions, channels, format)) return -1;
    for (int64_t i = 0; i < n * positions * channels; i++) {
        int64_t at = i * size, c = i % channels;
        if (in_blocks)
            at = blocked_offset(&b, i / channels / positions, i / channels % positions, c / b.block) + c % b.block * size;
        if (memcmp(got + at, want + at, (size_t)size) && !wrong++) *first = i;
    }
    return wrong;
}
