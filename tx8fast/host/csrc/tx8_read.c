/* The body of a file taken apart: segments, launches, tensors, figures. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "tx8_program.h"

enum { MOST_SLOTS = 1 << 20, MOST_CHIPS = 128, MOST_TILES = 62, MOST_RANK = 64 };
#define MOST_BYTES ((int64_t)1 << 50)

typedef struct {
    tx8_program *program;
    const json_tree *tree;
    tx8_problem *p;
    bool no_memory;
} reader;

/* The next entries of a section of numbers that all segments or launches share. */
typedef struct {
    const char *name;
    const uint8_t *at;
    int64_t left, size;
} column;

static bool malformed(reader *r, const char *what) { return tx8_complain(r->p, TX8_ERROR_FILE, "%s; the file is damaged", what); }

static void *many(reader *r, int64_t n, size_t size) {
    void *made = calloc((size_t)n + 1, size);
    if (!made) tx8_complain(r->p, TX8_ERROR_MEMORY, "out of memory");
    return made;
}

static const json_node *entry(reader *r, const json_node *map, const char *key, int kind) {
    const json_node *found = json_get(r->tree, map, key);
    if (found && found->kind == kind) return found;
    tx8_complain(r->p, TX8_ERROR_FILE, "'%s' is missing or of another kind; the file is damaged", key);
    return NULL;
}

static const char *text_of(reader *r, const json_node *map, const char *key) {
    const json_node *found = entry(r, map, key, JSON_TEXT);
    return found ? found->text : "";
}

static int64_t checked(reader *r, const json_node *found, const char *what, int64_t low, int64_t high) {
    if (found && found->kind == JSON_INT && found->whole >= low && found->whole <= high) return found->whole;
    tx8_complain(r->p, TX8_ERROR_FILE, "%s is no number from %lld to %lld; the file is damaged", what, (long long)low, (long long)high);
    return low > 0 ? low : 0;
}

static int64_t count_of(reader *r, const json_node *map, const char *key, int64_t low, int64_t high) {
    return checked(r, json_get(r->tree, map, key), key, low, high);
}

static bool begin(reader *r, column *c, const char *name, int64_t size) {
    const tx8_section *found = tx8_file_section(&r->program->file, name);
    if (!found) return tx8_complain(r->p, TX8_ERROR_FILE, "section '%s' is missing", name);
    if (found->bytes % size) return tx8_complain(r->p, TX8_ERROR_FILE, "section '%s' has %lld bytes, not a multiple of %lld", name, (long long)found->bytes, (long long)size);
    *c = (column){name, found->at, found->bytes / size, size};
    return tx8_file_check(found, r->p);
}

static const void *take(reader *r, column *c, int64_t n) {
    if (n > c->left) {
        tx8_complain(r->p, TX8_ERROR_FILE, "section '%s' has %lld entries too few; the file is damaged", c->name, (long long)(n - c->left));
        return NULL;
    }
    const uint8_t *at = c->at;
    c->at += n * c->size, c->left -= n;
    return at;
}

static bool finished(reader *r, const column *c) {
    return c->left ? tx8_complain(r->p, TX8_ERROR_FILE, "section '%s' has %lld entries too many; the file is damaged", c->name, (long long)c->left) : true;
}

/* --- segments --- */

typedef struct {
    column code, tile_code, slot_arg, tile_offset, calls;
    const json_node *sizes; /* of the next segment's calls */
} columns;

static bool all_within(const int32_t *x, int64_t n, int64_t low, int64_t end) {
    for (int64_t k = 0; k < n; k++)
        if (x[k] < low || x[k] >= end) return false;
    return true;
}

static bool all_near(const int64_t *x, int64_t n) {
    for (int64_t k = 0; k < n; k++)
        if (x[k] > MOST_BYTES || x[k] < -MOST_BYTES) return false;
    return true;
}

static bool read_codes(reader *r, tx8_segment *s, const json_node *tree, columns *c) {
    const json_node *lengths = entry(r, tree, "codes", JSON_LIST);
    if (!lengths) return false;
    s->codes = many(r, lengths->count, sizeof *s->codes);
    s->lengths = many(r, lengths->count, sizeof *s->lengths);
    s->ready = many(r, lengths->count, sizeof *s->ready);
    if (r->p->status) return false;
    for (const json_node *k = json_first(r->tree, lengths); k; k = json_next(r->tree, k)) {
        int64_t n = checked(r, k, "a code's length", 0, MOST_BYTES);
        const uint32_t *numbers = take(r, &c->code, n);
        if (!numbers) return false;
        s->codes[s->n_codes] = numbers, s->lengths[s->n_codes++] = n;
    }
    return !r->p->status;
}

/* Calls of routines as words are in files that were made for hosts without Python. */
static bool read_calls(reader *r, tx8_segment *s, const json_node *tree, columns *c) {
    const json_node *routines = entry(r, tree, "routines", JSON_LIST), *sizes = c->sizes;
    if (!routines || !sizes) {
        r->program->lacks_calls |= routines && routines->count;
        return routines != NULL;
    }
    c->sizes = json_next(r->tree, sizes);
    if (sizes->kind != JSON_LIST || sizes->count != routines->count) return malformed(r, "the calls of routines do not fit");
    s->call_at = many(r, sizes->count + 1, sizeof *s->call_at);
    s->words = (const int64_t *)c->calls.at;
    if (r->p->status) return false;
    for (const json_node *k = json_first(r->tree, sizes); k; k = json_next(r->tree, k)) {
        int64_t n = checked(r, k, "the words of a call", 0, MOST_SLOTS);
        if (!take(r, &c->calls, n)) return false;
        s->call_at[s->n_calls + 1] = s->call_at[s->n_calls] + n;
        s->n_calls++;
    }
    return !r->p->status;
}

static bool begin_calls(reader *r, columns *c, int64_t segments) {
    const json_node *calls = json_get(r->tree, r->program->file.body, "calls"), *version = json_get(r->tree, calls, "version");
    if (!version || version->kind != JSON_INT || version->whole != TX8_CALLS_VERSION) return true; /* the program can be looked at */
    const json_node *words = entry(r, calls, "words", JSON_LIST);
    if (!words || words->count != segments) return malformed(r, "the calls of routines do not fit");
    c->sizes = json_first(r->tree, words);
    return begin(r, &c->calls, "calls", 8);
}

static bool read_segment(reader *r, tx8_segment *s, const json_node *tree, columns *c) {
    tx8_program *program = r->program;
    s->name = text_of(r, tree, "name");
    s->tiles = count_of(r, tree, "tiles", 0, MOST_SLOTS);
    s->slots = count_of(r, tree, "slots", 0, MOST_SLOTS);
    s->n_args = count_of(r, tree, "n_args", 0, MOST_SLOTS);
    if (r->p->status || !read_codes(r, s, tree, c)) return false;
    s->tile_code = take(r, &c->tile_code, s->tiles);
    s->slot_arg = take(r, &c->slot_arg, s->slots);
    s->tile_offset = take(r, &c->tile_offset, s->tiles * s->slots);
    if (r->p->status || !read_calls(r, s, tree, c)) return false;
    if (s->tiles > program->n_tiles && s->tiles != program->n_tiles * program->n_chips) return malformed(r, "a segment is for other tiles than there are");
    if (!all_within(s->tile_code, s->tiles, -1, s->n_codes) || !all_within(s->slot_arg, s->slots, 0, s->n_args) ||
        !all_near(s->tile_offset, s->tiles * s->slots))
        return malformed(r, "numbers of a segment do not fit");
    program->most_slots = most(program->most_slots, s->slots);
    return true;
}

static bool read_segments(reader *r) {
    tx8_program *program = r->program;
    column words = {0}, rows = {0};
    columns c = {0};
    const json_node *list = entry(r, program->file.body, "segments", JSON_LIST);
    if (!list || !begin(r, &words, "row_words", 4) || !begin(r, &rows, "rows", 4) || !begin(r, &c.code, "code", 4) ||
        !begin(r, &c.tile_code, "tile_code", 4) || !begin(r, &c.slot_arg, "slot_arg", 4) || !begin(r, &c.tile_offset, "tile_offset", 8))
        return false;
    program->packed = (tx8_packed){(const int32_t *)words.at, words.left, (const uint32_t *)rows.at, 0};
    if (!begin_calls(r, &c, list->count)) return false;
    if (!tx8_packed_check(&program->packed, rows.left, r->p)) return false;
    program->packed.n_rows = rows.left / words.left;
    if (!(program->segments = many(r, list->count, sizeof *program->segments))) return false;
    for (const json_node *k = json_first(r->tree, list); k; k = json_next(r->tree, k)) {
        tx8_segment *s = program->segments + program->n_segments++;
        if (!read_segment(r, s, k, &c)) return tx8_while(r->p, "segment '%.200s': ", s->name ? s->name : "");
    }
    return finished(r, &c.code) && finished(r, &c.tile_code) && finished(r, &c.slot_arg) && finished(r, &c.tile_offset) &&
           (!c.calls.name || finished(r, &c.calls));
}

static bool read_launches(reader *r) {
    tx8_program *program = r->program;
    column segments = {0}, args = {0};
    const json_node *list = entry(r, program->file.body, "launches", JSON_LIST);
    if (!list || !begin(r, &segments, "launch_segment", 4) || !begin(r, &args, "launch_args", 8)) return false;
    const int32_t *numbers = take(r, &segments, list->count);
    if (!numbers || !finished(r, &segments) || !(program->launches = many(r, list->count, sizeof *program->launches))) return false;
    for (const json_node *k = json_first(r->tree, list); k; k = json_next(r->tree, k)) {
        const json_node *name = k->kind == JSON_LIST && k->count == 2 ? json_first(r->tree, k) : NULL;
        if (!name || name->kind != JSON_TEXT) return malformed(r, "a launch has no name");
        tx8_launch *made = program->launches + program->n_launches;
        made->name = name->text, made->segment = numbers[program->n_launches++];
        if (made->segment < 0 || made->segment >= program->n_segments) return malformed(r, "a launch runs a segment that is not there");
        int64_t n = program->segments[made->segment].n_args;
        checked(r, json_next(r->tree, name), "the number of a launch's arguments", n, n);
        if (!(made->args = take(r, &args, n)) || r->p->status) return false;
        if (!all_near(made->args, n)) return malformed(r, "a launch's address is beyond all memory");
    }
    return finished(r, &args);
}

/* --- tensors --- */

static int format_of(const char *name) {
#define X(text, code, bytes, block, kind) \
    if (!strcasecmp(name, #text)) return code;
    TX8_FORMATS(X)
#undef X
    return -1;
}

static bool read_shape(reader *r, tx8_named *t, const json_node *list) {
    double elements = 1;
    if (!list || list->count > MOST_RANK) return malformed(r, "a tensor has too many dimensions");
    if (!(t->shape = many(r, list->count + 1, sizeof *t->shape))) return false;
    *t->shape++ = r->program->n_chips; /* outputs of several chips are shown with it */
    t->bytes = FORMATS[t->format].bytes;
    for (const json_node *k = json_first(r->tree, list); k; k = json_next(r->tree, k)) {
        int64_t n = t->shape[t->rank++] = checked(r, k, "a tensor's size", 0, MOST_BYTES);
        elements *= (double)most(n, 1);
        if (elements > (double)MOST_BYTES / 8) return malformed(r, "a tensor has too many elements");
        t->bytes *= n;
    }
    return !r->p->status;
}

static bool read_tensor(reader *r, tx8_named *t, const json_node *tree, bool param) {
    tx8_program *program = r->program;
    const char *layout = text_of(r, tree, "layout"), *outside = text_of(r, tree, "dtype");
    const json_node *per_chip = json_get(r->tree, tree, "per_chip");
    t->name = text_of(r, tree, "name"), t->dtype = text_of(r, tree, "ddr_dtype");
    t->blocked = !strcmp(layout, "blocked");
    t->format = format_of(t->dtype);
    t->address = count_of(r, tree, "address", 0, MOST_BYTES);
    t->size_bytes = count_of(r, tree, "size_bytes", 0, MOST_BYTES);
    t->embedded = count_of(r, tree, "embedded", -1, MOST_BYTES);
    t->per_chip = per_chip && per_chip->kind == JSON_TRUE;
    if (r->p->status) return false;
    if (t->format < 0 || (!t->blocked && strcmp(layout, "dense"))) return malformed(r, "a tensor's format or layout does not exist");
    if (!read_shape(r, t, entry(r, tree, "shape", JSON_LIST))) return false;
    int64_t image = tx8_tensor_image(t);
    if (image < 0 || image > t->size_bytes || t->address < TX8_DDR_BASE || t->address - TX8_DDR_BASE > program->ddr_bytes - t->size_bytes)
        return malformed(r, "a tensor does not lie in DDR");
    if (!param && strcmp(outside, t->dtype)) return tx8_complain(r->p, TX8_ERROR_VERSION, "it is %.20s outside and %.20s in DDR, which this library does not convert", outside, t->dtype);
    if (param && t->embedded >= 0 && (!program->data || t->embedded > program->data->bytes || t->size_bytes * (t->per_chip ? program->n_chips : 1) > program->data->bytes - t->embedded))
        return malformed(r, "it ends behind the data section");
    return true;
}

static bool read_tensors(reader *r, const char *key, tx8_named **tensors, int64_t *n) {
    const json_node *list = entry(r, r->program->file.body, key, JSON_LIST);
    if (!list || !(*tensors = many(r, list->count, sizeof **tensors))) return false;
    for (const json_node *k = json_first(r->tree, list); k; k = json_next(r->tree, k)) {
        tx8_named *t = *tensors + (*n)++;
        if (!read_tensor(r, t, k, !strcmp(key, "params"))) return tx8_while(r->p, "tensor '%.200s': ", t->name ? t->name : "");
    }
    return true;
}

/* --- the rest --- */

static bool read_machine(reader *r) {
    tx8_program *program = r->program;
    const json_node *body = program->file.body, *machine = entry(r, body, "machine", JSON_MAP), *chips = json_get(r->tree, body, "chips");
    const json_node *chip = entry(r, machine, "chip", JSON_MAP), *tile = entry(r, machine, "tile", JSON_MAP);
    program->n_tiles = count_of(r, chip, "tiles_x", 1, MOST_TILES) * count_of(r, chip, "tiles_y", 1, MOST_TILES);
    program->spm_bytes = count_of(r, tile, "spm_bytes", 1, (int64_t)1 << 30);
    program->ddr_bytes = count_of(r, body, "ddr_bytes", 0, MOST_BYTES);
    program->n_chips = 1;
    if (chips) {
        const json_node *x = chips->kind == JSON_LIST && chips->count == 2 ? json_first(r->tree, chips) : NULL;
        if (!x) return malformed(r, "the grid of chips is none");
        program->n_chips = checked(r, x, "a side of the grid of chips", 1, MOST_CHIPS);
        program->n_chips *= checked(r, json_next(r->tree, x), "a side of the grid of chips", 1, MOST_CHIPS);
    }
    if (program->n_tiles > MOST_TILES || program->n_chips > MOST_CHIPS) return malformed(r, "more tiles or chips than there can be");
    program->data = tx8_file_section(&program->file, "data");
    return !r->p->status;
}

static bool add_figures(reader *r) {
    tx8_program *program = r->program;
    const json_node *meta = entry(r, program->file.body, "meta", JSON_MAP), *list = json_get(r->tree, program->file.body, "segments");
    double cycles = 0, peak = 0, *estimates = many(r, program->n_segments, sizeof *estimates);
    if (!meta || !estimates || !(program->figures = many(r, meta->count + 16, sizeof *program->figures))) {
        free(estimates);
        return false;
    }
    int64_t at = 0;
    for (const json_node *k = json_first(r->tree, list); k; k = json_next(r->tree, k)) {
        estimates[at++] = (double)count_of(r, k, "estimate_cycles", 0, INT64_MAX);
        double own = (double)count_of(r, k, "spm_peak_bytes", 0, INT64_MAX);
        peak = own > peak ? own : peak;
    }
    for (int64_t k = 0; k < program->n_launches; k++) cycles += estimates[program->launches[k].segment];
    free(estimates);
    const tx8_number own[] = {
        {"launches", (double)program->n_launches}, {"segments", (double)program->n_segments}, {"chips", (double)program->n_chips},
        {"tiles", (double)program->n_tiles}, {"ddr_bytes", (double)program->ddr_bytes}, {"spm_peak_bytes", peak},
        {"embedded_bytes", program->data ? (double)program->data->bytes : 0}, {"file_bytes", (double)program->file.bytes}, {"estimate_cycles", cycles},
    };
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) program->figures[program->n_figures++] = own[k];
    for (const json_node *k = json_first(r->tree, meta); k; k = json_next(r->tree, k)) {
        bool known = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) known |= !strcmp(own[i].name, k->key);
        if (!known && (k->kind == JSON_INT || k->kind == JSON_REAL))
            program->figures[program->n_figures++] = (tx8_number){k->key, k->kind == JSON_INT ? (double)k->whole : k->real};
    }
    return !r->p->status;
}

bool tx8_program_read(tx8_program *program, tx8_problem *p) {
    reader r = {program, &program->file.header, p, false};
    if (json_get(r.tree, program->file.body, "bundle"))
        return tx8_complain(p, TX8_ERROR_VERSION, "it holds programs for several lengths; this library executes files of one");
    return read_machine(&r) && read_segments(&r) && read_launches(&r) && read_tensors(&r, "inputs", &program->inputs, &program->n_inputs) &&
           read_tensors(&r, "outputs", &program->outputs, &program->n_outputs) && read_tensors(&r, "params", &program->params, &program->n_params) &&
           add_figures(&r);
}

static void forget_tensors(tx8_named *tensors, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        if (tensors[k].shape) free(tensors[k].shape - 1);
        free(tensors[k].image);
    }
    free(tensors);
}

void tx8_program_forget(tx8_program *program) {
    for (int64_t k = 0; k < program->n_segments; k++) {
        tx8_segment *s = program->segments + k;
        for (int64_t i = 0; i < s->n_codes; i++) tx8_code_free(s->ready + i);
        free(s->codes), free(s->lengths), free(s->ready), free(s->call_at);
    }
    forget_tensors(program->inputs, program->n_inputs);
    forget_tensors(program->outputs, program->n_outputs);
    forget_tensors(program->params, program->n_params);
    free(program->segments), free(program->launches), free(program->figures);
}
