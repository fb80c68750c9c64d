/* tx8fast host library: load a .tx8 program and execute it, bit by bit as the chip does, without Python.
 *
 * Ownership. `tx8_open` makes a program, `tx8_close` ends it with all that it holds. What queries return (names, shapes, texts) belongs
 * to the program and lives as long as it. Buffers of inputs and outputs are the caller's; nothing of them is kept after a call.
 *
 * Threads. Different programs may be used in different threads at the same time; to run one file in several threads, open it once for
 * each (the file is mapped, its pages are shared). Queries of one program may be made in any thread at any time. Calls that work with its
 * memory (tx8_run, tx8_set_param, tx8_close) are for one thread at a time: a second one gets TX8_ERROR_BUSY and nothing changes.
 * The number of threads that `tx8_run` itself uses shows in no byte of a result.
 *
 * Errors. Every call that can fail returns TX8_OK or a TX8_ERROR_ code. `tx8_last_error` then gives the text: what was being
 * done, what was found, what is required. Errors leave programs usable: after a failed run, the next one starts afresh.
 *
 * Units. Sizes are bytes, times are cycles of the chip's clock. Tensors are dense and row-major, the last dimension fastest; data types are
 * named f32, f16, bf16, f64, tf32, f8e4m3fn, f8e5m2, i8, i16, i32, i64, u8, u16, u32, u64, i4, u4, pred. i4, u4 and pred take a byte each.
 */
#ifndef TX8FAST_TX8_H
#define TX8FAST_TX8_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define TX8_API
#else
#define TX8_API __attribute__((visibility("default")))
#endif

/* Of these declarations; `tx8_api_version` gives that of the library. */
#define TX8_API_VERSION 1

enum {
    TX8_OK = 0,
    TX8_ERROR_ARGUMENT, /* a name that is not there, a null pointer, a shape that does not fit */
    TX8_ERROR_FILE,     /* the file is missing, truncated or damaged */
    TX8_ERROR_VERSION,  /* the file is sound, but of a version or kind that this library does not execute */
    TX8_ERROR_WEIGHTS,  /* parameters have no bytes yet */
    TX8_ERROR_SIZE,     /* a buffer is too small, or of another size than required */
    TX8_ERROR_BUSY,     /* another thread works with this program */
    TX8_ERROR_RUN,      /* the program cannot be executed with these inputs */
    TX8_ERROR_CANCELLED,/* the progress callback asked to stop */
    TX8_ERROR_MEMORY,
    TX8_ERROR_COMPILE,  /* the compiler refused the model or an option; the text is the command line's */
    TX8_ERROR_WORKER    /* the compiler's process could not be started, or has ended */
};

typedef struct tx8_program tx8_program;

/* A tensor as callers see it. Of several chips, outputs have a leading dimension over chips. */
typedef struct {
    const char *name;
    const char *dtype;
    const int64_t *shape; /* `rank` sizes; NULL for rank 0 */
    int rank;
    size_t bytes;
} tx8_tensor;

typedef struct {
    const char *name;
    const void *data;
    size_t bytes; /* those of the tensor; of several chips so many for each may be given, one chip's behind the other's */
} tx8_input;

typedef struct {
    const char *name;
    void *data;
    size_t bytes;   /* room: at least those of the tensor */
    int64_t *shape; /* NULL, or room for `rank` sizes of the tensor: its true shape is put there */
} tx8_output;

/* Called after each launch with the launches that are done and all there are; what is not 0 ends the run. */
typedef int (*tx8_progress)(void *user, int64_t done, int64_t total);

typedef struct {
    size_t size; /* of this structure: sizeof(tx8_run_options) */
    int threads; /* at most so many execute tiles; 0: one per processor */
    tx8_progress progress; /* NULL: none */
    void *user;
} tx8_run_options;

TX8_API int tx8_api_version(void);

/* The text of the last error of a call in this thread, "" before the first; it stands until the next call fails. */
TX8_API const char *tx8_last_error(void);

/* Open a file: it is mapped and checked, weights are not read. *program is NULL on failure. */
TX8_API int tx8_open(const char *path, tx8_program **program);
/* End a program; NULL is none. */
TX8_API int tx8_close(tx8_program *program);

TX8_API size_t tx8_input_count(const tx8_program *program);
TX8_API size_t tx8_output_count(const tx8_program *program);
TX8_API size_t tx8_param_count(const tx8_program *program);
/* The tensor of a number below the count. TX8_ERROR_ARGUMENT if there is none. */
TX8_API int tx8_input_at(const tx8_program *program, size_t index, tx8_tensor *tensor);
TX8_API int tx8_output_at(const tx8_program *program, size_t index, tx8_tensor *tensor);
/* The image of a parameter as it lies in DDR: `dtype` is that in DDR, `bytes` those of the image of one chip or of each. */
TX8_API int tx8_param_at(const tx8_program *program, size_t index, tx8_tensor *tensor);
/* The tensor of a name. */
TX8_API int tx8_input_named(const tx8_program *program, const char *name, tx8_tensor *tensor);
TX8_API int tx8_output_named(const tx8_program *program, const char *name, tx8_tensor *tensor);

/* Give the image of a parameter that is not in the file (`tx8fast compile --standalone` puts all there). */
TX8_API int tx8_set_param(tx8_program *program, const char *name, const void *data, size_t bytes);

/* Execute the program: all inputs, each once, and the outputs that are wanted. options: NULL for the defaults. */
TX8_API int tx8_run(tx8_program *program, const tx8_input *inputs, size_t n_inputs, const tx8_output *outputs, size_t n_outputs,
                    const tx8_run_options *options);

/* Figures that the file holds: launches, segments, chips, tiles, ddr_bytes, spm_peak_bytes, embedded_bytes, file_bytes, estimate_cycles (what
 * the compiler expects; `tx8fast sim` measures), and all numbers among the compiler's facts, as useful_macs and weight_bytes. */
TX8_API size_t tx8_figure_count(const tx8_program *program);
TX8_API int tx8_figure_at(const tx8_program *program, size_t index, const char **name, double *value);
TX8_API int tx8_figure(const tx8_program *program, const char *name, double *value);
/* A text among the compiler's facts (model, phase, compute_dtype, machine_digest), or NULL. */
TX8_API const char *tx8_fact(const tx8_program *program, const char *name);

/* --- compiling: a process of its own that compiles what it is told to, `tx8fast serve --stdio` ---
 *
 * A worker is for one thread at a time, as a program is. A worker that was killed is an error of the call that noticed it; the next call
 * starts another one. */
typedef struct tx8_worker tx8_worker;

/* A line of JSON about how far the work is: {"event": "phase" | "progress", ...} as `tx8fast compile --json` writes it. Not 0 ends the worker. */
typedef int (*tx8_worker_event)(void *user, const char *json);

/* Make a worker; its process starts with the first call. command: program and arguments behind each other, ended by NULL; NULL:
 * "tx8fast", "serve", "--stdio", looked up on PATH. */
TX8_API int tx8_worker_open(const char *const *command, tx8_worker **worker);
/* Let the worker do a command, "compile" or "check", with the arguments of the command line, ended by NULL. *result (may be NULL) is what it prints
 * with --json; it lives until the next call. Relative names are relative to this process's directory when the worker started. */
TX8_API int tx8_worker_call(tx8_worker *worker, const char *command, const char *const *arguments, tx8_worker_event event, void *user,
                            const char **result);
/* End the worker and its process; NULL is none. */
TX8_API int tx8_worker_close(tx8_worker *worker);

#ifdef __cplusplus
}
#endif
#endif
