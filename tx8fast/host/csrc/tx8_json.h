/* JSON text as a tree, read without trusting it. */
#ifndef TX8_JSON_H
#define TX8_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_INT, JSON_REAL, JSON_TEXT, JSON_LIST, JSON_MAP };

typedef struct json_node json_node;
struct json_node {
    uint8_t kind;
    uint32_t next;     /* index of the next sibling, 0: none */
    uint32_t first;    /* of a list or map: its first entry, 0: none */
    uint32_t count;    /* entries of a list or map, bytes of a text */
    const char *key;   /* of an entry of a map, ends with 0 */
    union {
        int64_t whole;
        double real;
        const char *text; /* UTF-8, ends with 0 */
    };
};

typedef struct {
    json_node *nodes;
    uint32_t n, room;
    char *texts; /* decoded texts and keys */
    const char *problem;
} json_tree;

/* Read `bytes` bytes; false: `tree->problem` says why. Free with json_free in either case. */
bool json_read(json_tree *tree, const char *text, size_t bytes);
void json_free(json_tree *tree);
/* The entry of a map, or NULL. */
const json_node *json_get(const json_tree *tree, const json_node *map, const char *key);
static inline const json_node *json_root(const json_tree *tree) { return tree->nodes + 1; }
static inline const json_node *json_first(const json_tree *tree, const json_node *of) { return of->first ? tree->nodes + of->first : NULL; }
static inline const json_node *json_next(const json_tree *tree, const json_node *node) { return node->next ? tree->nodes + node->next : NULL; }

#endif
