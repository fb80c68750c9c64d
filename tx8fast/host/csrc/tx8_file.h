/* The outer shell of a .tx8 file: checked sections of raw bytes and one JSON header (docs/tx8-format.md). */
#ifndef TX8_FILE_H
#define TX8_FILE_H
#include "tx8_json.h"
#include "tx8_problem.h"

typedef struct {
    const char *name;
    const uint8_t *at;
    int64_t bytes;
    uint8_t digest[16];
} tx8_section;

typedef struct {
    const uint8_t *map; /* of the whole file, private and read-only */
    int64_t bytes;
    json_tree header;
    const json_node *body;
    tx8_section *sections;
    int64_t n_sections;
} tx8_file;

/* Map a file; prefix, header and table of sections are checked, no section's content is. */
bool tx8_file_open(tx8_file *f, const char *path, tx8_problem *p);
void tx8_file_close(tx8_file *f);
/* A section, NULL if there is none. */
const tx8_section *tx8_file_section(const tx8_file *f, const char *name);
bool tx8_file_check(const tx8_section *section, tx8_problem *p);

#endif
