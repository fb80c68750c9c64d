"""Fixed texts: the main that runs a program on the C model, how everything is built, and the frame of the table of tensors.

May import: nothing.
"""

HEADER = """#ifndef PROGRAM_H
#define PROGRAM_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* What every tile runs. tile: its number, counted on over the chips; ddr: the address at which DDR begins. */
void tile_main(uint32_t tile, uint64_t ddr);
/* How long an instruction occupies its unit (tx8_model.h). */
int64_t program_duration(const void *row, int64_t ddr, int64_t *ddr_bytes);
#ifdef __cplusplus
}
#endif
#endif
"""

TENSORS = """/* What the program needs of a host: sizes, and where its parameters, inputs and outputs lie; program.json says the same. */
#ifndef TENSORS_H
#define TENSORS_H
#include <stdint.h>

enum {{ CHIPS = {chips}, TILES = {tiles}, HAS_CASE = {has_case}, PARAMS = {n_params}, INPUTS = {n_inputs}, OUTPUTS = {n_outputs} }};
static const int64_t SPM_BYTES = {spm_bytes}, DDR_BYTES = {ddr_bytes};
static const uint64_t DDR_BASE = {ddr_base};

/* file, where in it, where in DDR, bytes; whether it lies in channel blocks, format, (n, positions, channels); bytes in the file from one
 * chip's to the next one's, 0: all have the same */
typedef struct {{
    const char *name, *file;
    int64_t offset, address, bytes;
    int blocked, format;
    int64_t n, positions, channels, step;
}} program_tensor;
static const program_tensor params[] = {{
{params}
}};
static const program_tensor inputs[] = {{
{inputs}
}};
static const program_tensor outputs[] = {{
{outputs}
}};
#endif
"""

MAIN = """/* Run the program on the C model: parameters and inputs from files as program.json describes them, outputs to files. With
 * a test case, compare the outputs with what is expected. Exit code: 0 done and equal, 1 not equal, 2 something is wrong. */
#include <stdio.h>
#include <stdlib.h>

#include "program.h"
#include "tensors.h"
#include "tx8_model.h"

static int wrong(const char *what, const char *name) {
    fprintf(stderr, "error: %s %s\\n", what, name);
    return 2;
}

static int read_tensor(const program_tensor *t, const char *file, int chip, uint8_t *to) {
    FILE *f = fopen(file, "rb");
    int good = f && !fseek(f, (long)(t->offset + chip * t->step), SEEK_SET) && fread(to, 1, (size_t)t->bytes, f) == (size_t)t->bytes;
    if (f) fclose(f);
    return good ? 0 : wrong("cannot read the bytes of", t->name);
}

/* Of several chips, one writes behind the other. */
static int write_tensor(const program_tensor *t, int chip, const uint8_t *from) {
    FILE *f = fopen(t->file, chip ? "ab" : "wb");
    int good = f && fwrite(from, 1, (size_t)t->bytes, f) == (size_t)t->bytes;
    if (f && fclose(f)) good = 0;
    return good ? 0 : wrong("cannot write", t->file);
}

/* Returns 1 if the output is another than expected. */
static int compare(int k, int chip, const uint8_t *got) {
    const program_tensor *t = &outputs[k];
    char file[64], on[32] = "";
    int64_t first = 0, differ;
    uint8_t *want = (uint8_t *)malloc((size_t)(t->bytes ? t->bytes : 1));
    snprintf(file, sizeof file, "expected_%d.bin", k);
    if (CHIPS > 1) snprintf(on, sizeof on, " on chip %d", chip);
    if (!want || read_tensor(t, file, chip, want)) return free(want), 2;
    differ = tx8_model_compare(got, want, t->blocked, t->format, t->n, t->positions, t->channels, &first);
    free(want);
    if (differ)
        printf("%s%s: %lld elements differ, the first is %lld\\n", t->name, on, (long long)differ, (long long)first);
    else
        printf("%s%s: as expected\\n", t->name, on);
    return differ != 0;
}

int main(void) {
    static const char *const units[] = TX8_UNIT_NAMES;
    tx8_model *model = tx8_model_open_chips(CHIPS, TILES, SPM_BYTES, DDR_BASE, DDR_BYTES, program_duration);
    int result = 0;
    if (!model) return wrong("no memory for", "the chip");
    for (int c = 0; c < CHIPS && !result; c++) {
        uint8_t *ddr = tx8_model_chip_ddr(model, (uint32_t)c);
        for (int k = 0; k < PARAMS && !result; k++) result = read_tensor(&params[k], params[k].file, c, ddr + params[k].address);
        for (int k = 0; k < INPUTS && !result; k++) result = read_tensor(&inputs[k], inputs[k].file, c, ddr + inputs[k].address);
    }
    if (!result && tx8_model_run(model, tile_main)) result = wrong("running the program:", tx8_model_error(model));
    for (int c = 0; c < CHIPS && result != 2; c++) {
        const uint8_t *ddr = tx8_model_chip_ddr(model, (uint32_t)c);
        for (int k = 0; k < OUTPUTS && result != 2; k++) {
            int found = write_tensor(&outputs[k], c, ddr + outputs[k].address);
            if (!found && HAS_CASE) found = compare(k, c, ddr + outputs[k].address);
            if (found > result) result = found;
        }
    }
    if (result != 2) {
        for (int k = 0; k < TX8_UNITS; k++)
            printf("%s: %lld instructions, %lld cycles\\n", units[k], (long long)tx8_model_instructions(model, k), (long long)tx8_model_cycles(model, k));
        printf("ddr: %lld bytes\\n", (long long)tx8_model_ddr_bytes(model));
    }
    tx8_model_close(model);
    return result;
}
"""

MAKEFILE = """# `make` builds the program with the C model, `make run` runs it. CC and CFLAGS are yours to set; MODEL names a library of the
# model that is built already. CXX17=1 compiles the program as C++17.
CFLAGS ?= -O2
MODEL ?= c_model/libtx8_model.a
STRICT := -Wall -Wextra -Werror -Ic_model
LANGUAGE := $(if $(CXX17),-x c++ -std=c++17,-std=c11)
# every operation of the model is rounded by itself, on every machine
EXACT := -std=c11 -ffp-contract=off -fno-math-errno -fno-trapping-math -pthread -Wall -Wextra
OBJECTS := $(patsubst %.c,%.o,$(wildcard c_model/*.c))

program: program.o durations.o main.o $(MODEL)
\t$(CC) $(CFLAGS) -pthread -o $@ program.o durations.o main.o $(MODEL) -lm

run: program
\t./program

%.o: %.c program.h
\t$(CC) $(CFLAGS) $(LANGUAGE) $(STRICT) -c -o $@ $<

c_model/%.o: c_model/%.c
\t$(CC) $(CFLAGS) $(EXACT) -c -o $@ $<

%/libtx8_model.a: $(OBJECTS)
\t$(AR) rcs $@ $^

clean:
\trm -f program *.o c_model/*.o c_model/*.a

.PHONY: run clean
.SECONDARY:
"""


CMAKE = """cmake_minimum_required(VERSION 3.16)
project(tx8_program LANGUAGES C)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Threads REQUIRED)

# The C model: the chip's public interface, executed by the core. Every operation is rounded by itself, on every machine.
file(GLOB MODEL_SOURCES CONFIGURE_DEPENDS c_model/*.c)
add_library(tx8_model STATIC ${MODEL_SOURCES})
target_include_directories(tx8_model PUBLIC c_model)
target_compile_options(tx8_model PRIVATE -ffp-contract=off -fno-math-errno -fno-trapping-math)
target_link_libraries(tx8_model PUBLIC Threads::Threads m)

add_executable(program program.c durations.c main.c)
target_compile_options(program PRIVATE -Wall -Wextra -Werror)
target_link_libraries(program PRIVATE tx8_model)
"""
