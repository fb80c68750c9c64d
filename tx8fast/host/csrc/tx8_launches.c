/* Execution of a program: memory of chips and tiles, one launch after the other. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core.h"
#include "tx8_program.h"

static uint8_t *pages(int64_t bytes) {
    void *made = mmap(NULL, (size_t)most(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return made == MAP_FAILED ? NULL : made;
}

bool tx8_program_memory(tx8_program *program, tx8_problem *p) {
    int64_t n = program->n_tiles * program->n_chips;
    if (program->tiles) return true;
    program->ddr = calloc((size_t)program->n_chips, sizeof *program->ddr);
    program->spm = calloc((size_t)n, sizeof *program->spm);
    program->streams = calloc((size_t)n, sizeof *program->streams);
    program->addresses = calloc((size_t)n, sizeof *program->addresses);
    program->address_room = calloc((size_t)n, sizeof *program->address_room);
    program->slots = calloc((size_t)n, sizeof *program->slots);
    bool ok = program->ddr && program->spm && program->streams && program->addresses && program->address_room && program->slots;
    for (int64_t c = 0; ok && c < program->n_chips; c++) ok = (program->ddr[c] = pages(program->ddr_bytes)) != NULL;
    for (int64_t t = 0; ok && t < n; t++) {
        program->slots[t] = calloc((size_t)program->most_slots + 1, sizeof(int64_t));
        program->spm[t] = pages(program->spm_bytes);
        ok = program->slots[t] && program->spm[t];
    }
    ok = ok && (program->tiles = calloc((size_t)n, sizeof *program->tiles)) != NULL;
    if (!ok) {
        tx8_program_release(program);
        return tx8_complain(p, TX8_ERROR_MEMORY, "out of memory: the program takes %lld bytes of DDR on each of %lld chips", (long long)program->ddr_bytes,
                            (long long)program->n_chips);
    }
    for (int64_t t = 0; t < n; t++) {
        tx8_tile *tile = program->tiles + t;
        tile->ddr = program->ddr[t / program->n_tiles], tile->ddr_base = TX8_DDR_BASE, tile->ddr_bytes = program->ddr_bytes;
        tile->spm = program->spm[t], tile->spm_bytes = program->spm_bytes;
        tile->number = t % program->n_tiles, tile->slots = program->slots[t];
    }
    return true;
}

void tx8_program_release(tx8_program *program) {
    int64_t n = program->n_tiles * program->n_chips;
    for (int64_t c = 0; program->ddr && c < program->n_chips; c++)
        if (program->ddr[c]) munmap(program->ddr[c], (size_t)most(program->ddr_bytes, 1));
    for (int64_t t = 0; t < n; t++) {
        if (program->spm && program->spm[t]) munmap(program->spm[t], (size_t)program->spm_bytes);
        if (program->tiles) tx8_free(program->tiles + t);
        if (program->addresses) free(program->addresses[t]);
        if (program->slots) free(program->slots[t]);
    }
    free(program->ddr), free(program->spm), free(program->streams), free(program->addresses), free(program->address_room), free(program->slots);
    free(program->tiles);
    program->ddr = program->spm = NULL, program->streams = NULL, program->addresses = NULL, program->address_room = NULL, program->slots = NULL;
    program->tiles = NULL, program->loaded = false;
}

/* Give a tile the rows that it executes in a launch. */
static bool load_tile(tx8_program *program, const tx8_launch *launch, tx8_segment *s, int64_t at, int64_t row, int64_t number, tx8_problem *p) {
    int64_t index = s->tile_code[row];
    tx8_tile *tile = program->tiles + at;
    tx8_code *code = s->ready + index;
    if (!code->rows && !tx8_code_make(code, &program->packed, s->codes[index], s->lengths[index], s->slots, p)) return false;
    if (program->address_room[at] < code->n) {
        free(program->addresses[at]);
        program->addresses[at] = malloc((size_t)code->n * sizeof(int64_t));
        program->address_room[at] = program->addresses[at] ? code->n : 0;
    }
    if (program->address_room[at] < code->n) return tx8_complain(p, TX8_ERROR_MEMORY, "out of memory");
    int64_t *slots = program->slots[at], *addresses = program->addresses[at];
    for (int64_t k = 0; k < s->slots; k++) slots[k] = launch->args[s->slot_arg[k]] + s->tile_offset[row * s->slots + k];
    for (int64_t k = 0; k < code->n; k++) addresses[k] = code->rows[k].slot >= 0 ? slots[code->rows[k].slot] + code->rows[k].ddr : 0;
    tile->n_slots = s->slots, tile->rows = code->rows, tile->addresses = addresses;
    tile->calls = s->words, tile->call_at = s->call_at, tile->n_calls = s->n_calls;
    tile->chip = number / program->n_tiles;
    return true;
}

/* What a number that is in no row of its table is, if the caller gave it. */
static bool names_input(const tx8_program *program, const tx8_tile *tile, tx8_problem *p) {
    if (tile->status != TX8_BAD_NUMBER) return false;
    long long found = tile->found[0], entries = tile->found[1];
    for (int64_t k = 0; k < program->n_inputs; k++) {
        const tx8_named *t = program->inputs + k;
        int64_t at = tile->found[2] - t->address;
        if (t->blocked || at < 0 || at >= t->bytes) continue;
        tx8_complain(p, TX8_ERROR_RUN, "input '%.200s', element %lld, is %lld, required 0 to %lld (or %lld to -1, from the end)", t->name,
                     (long long)(at / FORMATS[t->format].bytes), found, entries - 1, -entries);
        return true;
    }
    return false;
}

static bool explain(tx8_program *program, int end, int64_t which, int64_t n, const char *segment, tx8_problem *p) {
    const tx8_stream *s = program->streams + which;
    char text[1000];
    switch (end) {
        case TX8_ROW_FAILED:
        case TX8_SEND_FAILED:
            if (names_input(program, s->tile, p)) return false;
            tx8_fault_text(s->tile, text, sizeof text);
            if (end == TX8_SEND_FAILED) return tx8_complain(p, TX8_ERROR_RUN, "tile %lld: %s", (long long)s->number, text);
            return tx8_complain(p, s->tile->status == TX8_NO_MEMORY ? TX8_ERROR_MEMORY : TX8_ERROR_RUN, "segment '%.200s', tile %lld, instruction %lld (%s): %s",
                                segment, (long long)s->number, (long long)s->at, tx8_opcode_name(s->tile->rows[s->at].opcode), text);
        case TX8_NOT_A_MEMBER:
            return tx8_complain(p, TX8_ERROR_RUN, "tile %lld arrives at a barrier of tiles which it is not one of", (long long)s->number);
        case TX8_STUCK:
            for (which = 0; which < n && program->streams[which].at == program->streams[which].n_rows;) which++;
            s = program->streams + which;
            return tx8_complain(p, TX8_ERROR_RUN, "no tile can go on: tile %lld waits at instruction %lld (%s)", (long long)s->number, (long long)s->at,
                                tx8_opcode_name(s->tile->rows[s->at].opcode));
        case TX8_LEFT_OVER: return tx8_complain(p, TX8_ERROR_RUN, "segment '%.200s': messages are left over that no tile receives", segment);
        default: return tx8_complain(p, TX8_ERROR_MEMORY, "out of memory");
    }
}

/* Execute a launch on the chips [first, first + n_chips) together. */
static bool run_launch(tx8_program *program, const tx8_launch *launch, int64_t first, int64_t n_chips, int threads, tx8_problem *p) {
    tx8_segment *s = program->segments + launch->segment;
    int64_t n_tiles = program->n_tiles, all = n_tiles * n_chips, n = 0, which = 0;
    bool spans = s->tiles > n_tiles;
    tx8_tile *tiles[all];
    int64_t monitors[TX8_MONITORS * all];
    memset(monitors, 0, sizeof monitors);
    for (int64_t number = 0; number < all; number++) {
        int64_t at = first * n_tiles + number, row = spans ? at : number;
        tiles[number] = program->tiles + at;
        if (row >= s->tiles || s->tile_code[row] < 0) {
            tiles[number]->chip = number / n_tiles;
            continue;
        }
        if (!load_tile(program, launch, s, at, row, number, p)) return tx8_while(p, "segment '%.200s': ", s->name);
        const tx8_code *code = s->ready + s->tile_code[row];
        program->streams[n++] = (tx8_stream){.tile = tiles[number], .number = number, .n_rows = code->n, .stops = code->stops, .n_stops = code->n_stops};
    }
    int end = tx8_run_streams(program->streams, n, tiles, monitors, n_tiles, n_chips, threads, &which);
    return end == TX8_DONE || explain(program, end, which, n, s->name, p);
}

bool tx8_program_execute(tx8_program *program, int threads, tx8_progress progress, void *user, tx8_problem *p) {
    for (int64_t t = 0; t < program->n_tiles * program->n_chips; t++) /* a run that failed may have left messages */
        program->tiles[t].outbox.used = program->tiles[t].outbox.count = 0;
    for (int64_t k = 0; k < program->n_launches; k++) {
        const tx8_launch *launch = program->launches + k;
        bool spans = program->segments[launch->segment].tiles > program->n_tiles;
        for (int64_t c = 0; c < (spans ? 1 : program->n_chips); c++)
            if (!run_launch(program, launch, c, spans ? program->n_chips : 1, threads, p)) return tx8_while(p, "launch '%.200s': ", launch->name);
        if (progress && progress(user, k + 1, program->n_launches))
            return tx8_complain(p, TX8_ERROR_CANCELLED, "ended after %lld of %lld launches: the progress callback asked for it", (long long)k + 1, (long long)program->n_launches);
    }
    return true;
}
