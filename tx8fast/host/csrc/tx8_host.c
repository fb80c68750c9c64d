/* The host library's calls (tx8.h). */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "tx8_host.h"
#include "tx8_program.h"

static _Thread_local tx8_problem last;

static void widest(void) { tx8_use_level(tx8_levels() - 1); }

int tx8_host_failed(const tx8_problem *p) {
    last = *p;
    return p->status;
}

#define REFUSE(status, ...) \
    do { \
        tx8_problem own = {0}; \
        tx8_complain(&own, status, __VA_ARGS__); \
        return tx8_host_failed(&own); \
    } while (0)

int tx8_api_version(void) { return TX8_API_VERSION; }
const char *tx8_last_error(void) { return last.text; }

/* --- programs --- */

static void end(tx8_program *program) {
    tx8_program_release(program);
    tx8_program_forget(program);
    tx8_file_close(&program->file);
    free(program);
}

int tx8_open(const char *path, tx8_program **program) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tx8_problem p = {0};
    pthread_once(&once, widest);
    if (program) *program = NULL;
    if (!path || !program) REFUSE(TX8_ERROR_ARGUMENT, "opening a program: a null pointer was given");
    tx8_program *made = calloc(1, sizeof *made);
    if (!made) REFUSE(TX8_ERROR_MEMORY, "opening a program: out of memory");
    atomic_flag_clear(&made->busy);
    if (tx8_file_open(&made->file, path, &p) && !tx8_program_read(made, &p)) tx8_while(&p, "reading program file %.500s: ", path);
    if (p.status) {
        end(made);
        return tx8_host_failed(&p);
    }
    *program = made;
    return TX8_OK;
}

static bool begin(tx8_program *program, const char *doing, tx8_problem *p) {
    if (!program) return tx8_complain(p, TX8_ERROR_ARGUMENT, "%s: a null pointer was given for the program", doing);
    if (atomic_flag_test_and_set(&program->busy))
        return tx8_complain(p, TX8_ERROR_BUSY, "%s: another thread works with this program; open the file once for each thread", doing);
    return true;
}

static int done(tx8_program *program, const tx8_problem *p) {
    atomic_flag_clear(&program->busy);
    return p->status ? tx8_host_failed(p) : TX8_OK;
}

int tx8_close(tx8_program *program) {
    tx8_problem p = {0};
    if (!program) return TX8_OK;
    if (!begin(program, "closing a program", &p)) return tx8_host_failed(&p);
    end(program);
    return TX8_OK;
}

/* --- tensors --- */

static int64_t chips_of(const tx8_program *program) { return program ? program->n_chips : 1; }

static void show(const tx8_program *program, const tx8_named *t, tx8_tensor *tensor, bool output) {
    bool more = output && chips_of(program) > 1;
    *tensor = (tx8_tensor){t->name, t->dtype, t->rank + more ? t->shape - more : NULL, t->rank + more, (size_t)(t->bytes * (more ? program->n_chips : 1))};
}

static const tx8_named *named(const tx8_named *list, int64_t n, const char *name) {
    for (int64_t k = 0; name && k < n; k++)
        if (!strcmp(list[k].name, name)) return list + k;
    return NULL;
}

size_t tx8_input_count(const tx8_program *program) { return program ? (size_t)program->n_inputs : 0; }
size_t tx8_output_count(const tx8_program *program) { return program ? (size_t)program->n_outputs : 0; }
size_t tx8_param_count(const tx8_program *program) { return program ? (size_t)program->n_params : 0; }

#define AT(what, kind, is_output) \
    int tx8_##what##_at(const tx8_program *program, size_t index, tx8_tensor *tensor) { \
        if (!program || !tensor || index >= tx8_##what##_count(program)) \
            REFUSE(TX8_ERROR_ARGUMENT, "asking for " #what " %zu: there are %zu", index, tx8_##what##_count(program)); \
        show(program, program->kind + index, tensor, is_output); \
        return TX8_OK; \
    }
#define NAMED(what, kind, is_output) \
    int tx8_##what##_named(const tx8_program *program, const char *name, tx8_tensor *tensor) { \
        const tx8_named *found = program ? named(program->kind, program->n_##kind, name) : NULL; \
        if (!found || !tensor) REFUSE(TX8_ERROR_ARGUMENT, "asking for an " #what ": none is called '%.200s'", name ? name : "(null)"); \
        show(program, found, tensor, is_output); \
        return TX8_OK; \
    }
AT(input, inputs, false)
AT(output, outputs, true)
NAMED(input, inputs, false)
NAMED(output, outputs, true)

int tx8_param_at(const tx8_program *program, size_t index, tx8_tensor *tensor) {
    if (!program || !tensor || index >= tx8_param_count(program))
        REFUSE(TX8_ERROR_ARGUMENT, "asking for parameter %zu: there are %zu", index, tx8_param_count(program));
    const tx8_named *t = program->params + index;
    show(program, t, tensor, false);
    tensor->bytes = (size_t)(t->size_bytes * (t->per_chip ? program->n_chips : 1));
    return TX8_OK;
}

int tx8_set_param(tx8_program *program, const char *name, const void *data, size_t bytes) {
    tx8_problem p = {0};
    if (!begin(program, "giving a parameter", &p)) return tx8_host_failed(&p);
    tx8_named *t = (tx8_named *)(uintptr_t)named(program->params, program->n_params, name);
    size_t required = t ? (size_t)(t->size_bytes * (t->per_chip ? program->n_chips : 1)) : 0;
    if (!t || !data) {
        tx8_complain(&p, TX8_ERROR_ARGUMENT, "giving a parameter: none is called '%.200s', or there are no bytes", name ? name : "(null)");
    } else if (bytes != required) {
        tx8_complain(&p, TX8_ERROR_SIZE, "giving parameter '%.200s': found %zu bytes, required %zu, as they lie in DDR", name, bytes, required);
    } else {
        uint8_t *made = t->image ? t->image : malloc(required + 1);
        if (!made)
            tx8_complain(&p, TX8_ERROR_MEMORY, "giving parameter '%.200s': out of memory", name);
        else
            t->image = memcpy(made, data, bytes), t->given = true, program->loaded = false;
    }
    return done(program, &p);
}

static bool load_params(tx8_program *program, tx8_problem *p) {
    int64_t missing = 0, first = -1, embedded = 0;
    if (program->loaded) return true;
    for (int64_t k = 0; k < program->n_params; k++) {
        const tx8_named *t = program->params + k;
        if (t->embedded >= 0)
            embedded++;
        else if (!t->given && !missing++)
            first = k;
    }
    if (missing)
        return tx8_complain(p, TX8_ERROR_WEIGHTS, "the bytes of %lld of %lld parameters are not in the file (the first is '%.200s'); compile with --standalone, or give them with tx8_set_param",
                            (long long)missing, (long long)program->n_params, program->params[first].name);
    if (embedded && !tx8_file_check(program->data, p)) return false;
    for (int64_t k = 0; k < program->n_params; k++) {
        const tx8_named *t = program->params + k;
        const uint8_t *from = t->given ? t->image : program->data->at + t->embedded;
        for (int64_t c = 0; c < program->n_chips; c++)
            memcpy(program->ddr[c] + (t->address - TX8_DDR_BASE), from + (t->per_chip ? c * t->size_bytes : 0), (size_t)t->size_bytes);
    }
    return program->loaded = true;
}

/* --- runs --- */

static bool check_inputs(const tx8_program *program, const tx8_input *inputs, size_t n, tx8_problem *p) {
    if (n && !inputs) return tx8_complain(p, TX8_ERROR_ARGUMENT, "a null pointer was given for the inputs");
    for (size_t k = 0; k < n; k++) {
        const tx8_named *t = named(program->inputs, program->n_inputs, inputs[k].name);
        if (!t) return tx8_complain(p, TX8_ERROR_ARGUMENT, "no input is called '%.200s'", inputs[k].name ? inputs[k].name : "(null)");
        for (size_t i = 0; i < k; i++)
            if (!strcmp(inputs[i].name, t->name)) return tx8_complain(p, TX8_ERROR_ARGUMENT, "input '%.200s' is given twice", t->name);
        if (inputs[k].bytes != (size_t)t->bytes && inputs[k].bytes != (size_t)(t->bytes * program->n_chips))
            return tx8_complain(p, TX8_ERROR_SIZE, "input '%.200s': found %zu bytes, required %lld", t->name, inputs[k].bytes, (long long)t->bytes);
        if (!inputs[k].data && t->bytes) return tx8_complain(p, TX8_ERROR_ARGUMENT, "input '%.200s' is a null pointer", t->name);
    }
    for (int64_t k = 0; n < (size_t)program->n_inputs && k < program->n_inputs; k++) {
        bool found = false;
        for (size_t i = 0; i < n; i++) found |= !strcmp(inputs[i].name, program->inputs[k].name);
        if (!found) return tx8_complain(p, TX8_ERROR_ARGUMENT, "input '%.200s' is missing", program->inputs[k].name);
    }
    return true;
}

static bool check_outputs(const tx8_program *program, const tx8_output *outputs, size_t n, tx8_problem *p) {
    if (n && !outputs) return tx8_complain(p, TX8_ERROR_ARGUMENT, "a null pointer was given for the outputs");
    for (size_t k = 0; k < n; k++) {
        const tx8_named *t = named(program->outputs, program->n_outputs, outputs[k].name);
        if (!t) return tx8_complain(p, TX8_ERROR_ARGUMENT, "no output is called '%.200s'", outputs[k].name ? outputs[k].name : "(null)");
        tx8_tensor whole;
        show(program, t, &whole, true);
        if (outputs[k].bytes < whole.bytes)
            return tx8_complain(p, TX8_ERROR_SIZE, "output '%.200s': found room for %zu bytes, required %zu", t->name, outputs[k].bytes, whole.bytes);
        if (!outputs[k].data && whole.bytes) return tx8_complain(p, TX8_ERROR_ARGUMENT, "output '%.200s' is a null pointer", t->name);
    }
    return true;
}

static void put_inputs(tx8_program *program, const tx8_input *inputs, size_t n) {
    for (size_t k = 0; k < n; k++) {
        const tx8_named *t = named(program->inputs, program->n_inputs, inputs[k].name);
        bool each = inputs[k].bytes != (size_t)t->bytes;
        for (int64_t c = 0; c < program->n_chips; c++) tx8_tensor_write(t, program->ddr[c], (const uint8_t *)inputs[k].data + (each ? c * t->bytes : 0));
    }
}

static void take_outputs(const tx8_program *program, const tx8_output *outputs, size_t n) {
    for (size_t k = 0; k < n; k++) {
        const tx8_named *t = named(program->outputs, program->n_outputs, outputs[k].name);
        tx8_tensor whole;
        show(program, t, &whole, true);
        for (int64_t c = 0; c < program->n_chips; c++) tx8_tensor_read(t, program->ddr[c], (uint8_t *)outputs[k].data + c * t->bytes);
        for (int i = 0; outputs[k].shape && i < whole.rank; i++) outputs[k].shape[i] = whole.shape[i];
    }
}

static int processors(void) {
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int tx8_run(tx8_program *program, const tx8_input *inputs, size_t n_inputs, const tx8_output *outputs, size_t n_outputs, const tx8_run_options *options) {
    tx8_problem p = {0};
    tx8_run_options chosen = {0};
    if (!begin(program, "running a program", &p)) return tx8_host_failed(&p);
    if (options && options->size > sizeof chosen)
        tx8_complain(&p, TX8_ERROR_ARGUMENT, "options of %zu bytes, this library knows %zu", options->size, sizeof chosen);
    else if (options)
        memcpy(&chosen, options, options->size);
    int threads = chosen.threads > 0 ? chosen.threads : processors();
    if (program->lacks_calls)
        tx8_complain(&p, TX8_ERROR_VERSION, "it calls routines of the kernel core, which are not in the file in this library's form; compile with --standalone, by the tx8fast that this library is of");
    bool ok = !p.status && check_inputs(program, inputs, n_inputs, &p) && check_outputs(program, outputs, n_outputs, &p) &&
              tx8_program_memory(program, &p) && load_params(program, &p);
    if (ok) {
        put_inputs(program, inputs, n_inputs);
        if (tx8_program_execute(program, threads, chosen.progress, chosen.user, &p)) take_outputs(program, outputs, n_outputs);
    }
    if (p.status) tx8_while(&p, "running a program: ");
    return done(program, &p);
}

/* --- figures --- */

size_t tx8_figure_count(const tx8_program *program) { return program ? (size_t)program->n_figures : 0; }

int tx8_figure_at(const tx8_program *program, size_t index, const char **name, double *value) {
    if (index >= tx8_figure_count(program) || !name || !value)
        REFUSE(TX8_ERROR_ARGUMENT, "asking for figure %zu: there are %zu", index, tx8_figure_count(program));
    *name = program->figures[index].name, *value = program->figures[index].value;
    return TX8_OK;
}

int tx8_figure(const tx8_program *program, const char *name, double *value) {
    for (size_t k = 0; name && value && k < tx8_figure_count(program); k++)
        if (!strcmp(program->figures[k].name, name)) {
            *value = program->figures[k].value;
            return TX8_OK;
        }
    REFUSE(TX8_ERROR_ARGUMENT, "asking for a figure: none is called '%.200s'", name ? name : "(null)");
}

const char *tx8_fact(const tx8_program *program, const char *name) {
    if (!program || !name) return NULL;
    const json_tree *tree = &program->file.header;
    const json_node *found = json_get(tree, json_get(tree, program->file.body, "meta"), name);
    return found && found->kind == JSON_TEXT ? found->text : NULL;
}
