/* A program as its file says, and the memory that it runs in. */
#ifndef TX8_PROGRAM_H
#define TX8_PROGRAM_H
#include <stdatomic.h>

#include "../include/tx8fast/tx8.h"
#include "rounds.h"
#include "tx8_code.h"
#include "tx8_file.h"
#include "tx8_limits.h"

typedef struct {
    const char *name;
    const char *dtype;
    int format; /* code of `dtype` */
    bool blocked;
    int rank;
    int64_t *shape;     /* as callers see it: behind it stands the number of chips, before it */
    int64_t address, size_bytes;
    int64_t bytes;      /* dense, of one chip */
    int64_t embedded;   /* offset in the data, -1: not in the file */
    bool per_chip, given;
    uint8_t *image;     /* of a parameter that was given */
} tx8_named;

typedef struct {
    const char *name;
    const uint32_t **codes; /* numbers of rows */
    int64_t *lengths, n_codes;
    tx8_code *ready; /* made when first needed; `rows` NULL: not yet */
    int64_t tiles, slots, n_args;
    const int32_t *tile_code, *slot_arg;
    const int64_t *tile_offset; /* tiles x slots */
    const int64_t *words;       /* calls of routines, and where each begins */
    int64_t *call_at, n_calls;
} tx8_segment;

typedef struct {
    const char *name;
    int64_t segment;
    const int64_t *args;
} tx8_launch;

typedef struct {
    const char *name;
    double value;
} tx8_number;

struct tx8_program {
    tx8_file file;
    tx8_packed packed;
    tx8_segment *segments;
    tx8_launch *launches;
    int64_t n_segments, n_launches;
    tx8_named *inputs, *outputs, *params;
    int64_t n_inputs, n_outputs, n_params;
    tx8_number *figures;
    int64_t n_figures;
    const tx8_section *data;
    int64_t n_tiles, n_chips, spm_bytes, ddr_bytes;
    atomic_flag busy;
    /* memory, made by the first run */
    uint8_t **ddr;   /* of each chip */
    uint8_t **spm;   /* of each tile of each chip */
    tx8_tile *tiles; /* of each tile of each chip */
    tx8_stream *streams;
    int64_t **addresses, *address_room; /* DDR address of each row of each tile */
    int64_t **slots;                    /* where each slot begins, of each tile */
    int64_t most_slots;
    bool lacks_calls; /* routines are called, and their calls are not in the file in the form of this core */
    bool loaded; /* parameters lie in DDR */
};

/* Take the body of the file apart; every count is checked against what is really there (tx8_read.c). */
bool tx8_program_read(tx8_program *program, tx8_problem *p);
/* Free what the body became. */
void tx8_program_forget(tx8_program *program);
/* Execute all launches (tx8_launches.c); parameters and inputs lie in DDR. */
bool tx8_program_memory(tx8_program *program, tx8_problem *p);
bool tx8_program_execute(tx8_program *program, int threads, tx8_progress progress, void *user, tx8_problem *p);
void tx8_program_release(tx8_program *program);
/* Dense bytes of a tensor to and from DDR (tx8_tensors.c). */
void tx8_tensor_write(const tx8_named *t, uint8_t *ddr, const uint8_t *data);
void tx8_tensor_read(const tx8_named *t, const uint8_t *ddr, uint8_t *data);
/* Bytes in DDR, -1 for a shape or format that none has. */
int64_t tx8_tensor_image(const tx8_named *t);
/* Why a tile stopped, in words (tx8_faults.c). */
void tx8_fault_text(const tx8_tile *tile, char *text, size_t room);

#endif
