/* A reader of JSON: one pass, entries in one array, texts in one buffer, nesting and numbers bounded. */
#include "tx8_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 200

typedef struct {
    json_tree *tree;
    const char *at, *end;
    char *text; /* where the next decoded text goes */
    int depth;
} reader;

static bool wrong(reader *r, const char *what) {
    if (!r->tree->problem) r->tree->problem = what;
    return false;
}

static void blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static bool take(reader *r, char c) {
    blanks(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static uint32_t new_node(reader *r) {
    json_tree *t = r->tree;
    if (t->n == t->room) {
        uint32_t room = t->room ? t->room * 2 : 256;
        json_node *made = room > t->room && room < (1u << 28) ? realloc(t->nodes, (size_t)room * sizeof *made) : NULL;
        if (!made) {
            wrong(r, "too many entries");
            return 0;
        }
        t->nodes = made, t->room = room;
    }
    memset(t->nodes + t->n, 0, sizeof *t->nodes);
    return t->n++;
}

static bool hex4(reader *r, uint32_t *out) {
    *out = 0;
    if (r->end - r->at < 4) return wrong(r, "a text is not ended");
    for (int k = 0; k < 4; k++) {
        char c = *r->at++;
        uint32_t digit = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t)((c | 32) - 'a' + 10) : 16;
        if (digit == 16) return wrong(r, "a character that is no hexadecimal digit");
        *out = *out * 16 + digit;
    }
    return true;
}

static void put_utf8(reader *r, uint32_t c) {
    if (c < 0x80) {
        *r->text++ = (char)c;
    } else if (c < 0x800) {
        *r->text++ = (char)(0xC0 | c >> 6), *r->text++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *r->text++ = (char)(0xE0 | c >> 12), *r->text++ = (char)(0x80 | (c >> 6 & 63)), *r->text++ = (char)(0x80 | (c & 63));
    } else {
        *r->text++ = (char)(0xF0 | c >> 18), *r->text++ = (char)(0x80 | (c >> 12 & 63));
        *r->text++ = (char)(0x80 | (c >> 6 & 63)), *r->text++ = (char)(0x80 | (c & 63));
    }
}

static bool escape(reader *r) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end) return wrong(r, "a text is not ended");
    char c = *r->at++;
    if (c == 'u') {
        uint32_t x, low;
        if (!hex4(r, &x)) return false;
        if (x >= 0xD800 && x < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
            const char *back = r->at;
            r->at += 2;
            if (!hex4(r, &low)) return false;
            if (low >= 0xDC00 && low < 0xE000)
                x = 0x10000 + ((x - 0xD800) << 10) + (low - 0xDC00);
            else
                r->at = back; /* half a character stands for itself, as in Python */
        }
        if (x == 0) return wrong(r, "a text with a null character");
        put_utf8(r, x);
        return true;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return wrong(r, "an unknown escape");
    *r->text++ = to[found - from];
    return true;
}

/* A text is never longer decoded than written, its quotes make room for the 0 at the end. */
static bool read_text(reader *r, const char **out, uint32_t *bytes) {
    if (!take(r, '"')) return wrong(r, "a text is missing");
    *out = r->text;
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < 32) return wrong(r, "a control character in a text");
        if (*r->at == '\\') {
            r->at++;
            if (!escape(r)) return false;
        } else {
            *r->text++ = *r->at++;
        }
    }
    if (r->at == r->end) return wrong(r, "a text is not ended");
    r->at++;
    *bytes = (uint32_t)(r->text - *out);
    *r->text++ = 0;
    return true;
}

static bool read_number(reader *r, json_node *node) {
    const char *begin = r->at;
    bool whole = true, minus = *r->at == '-', fits = true;
    uint64_t value = 0;
    r->at += minus;
    if (r->at == r->end || *r->at < '0' || *r->at > '9') return wrong(r, "a value that is none");
    for (; r->at < r->end; r->at++) {
        char c = *r->at;
        if (c >= '0' && c <= '9') {
            fits = fits && value <= (INT64_MAX - 9) / 10;
            if (whole && fits) value = value * 10 + (uint64_t)(c - '0');
        } else if (c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') {
            whole = false;
        } else {
            break;
        }
    }
    if (whole && fits) {
        node->kind = JSON_INT, node->whole = minus ? -(int64_t)value : (int64_t)value;
        return true;
    }
    char copy[400];
    size_t size = (size_t)(r->at - begin);
    if (size >= sizeof copy) return wrong(r, "a number of too many digits");
    memcpy(copy, begin, size);
    copy[size] = 0;
    char *end;
    node->kind = JSON_REAL, node->real = strtod(copy, &end);
    return *end == 0 ? true : wrong(r, "a number that is none");
}

static bool word(reader *r, const char *text, size_t size) {
    if ((size_t)(r->end - r->at) < size || memcmp(r->at, text, size)) return false;
    r->at += size;
    return true;
}

static bool read_value(reader *r, uint32_t index);

static bool read_entries(reader *r, uint32_t index, bool map) {
    uint32_t last = 0, count = 0;
    r->tree->nodes[index].kind = map ? JSON_MAP : JSON_LIST;
    if (++r->depth > MOST_DEPTH) return wrong(r, "too deeply nested");
    if (!take(r, map ? '}' : ']')) {
        do {
            const char *key = NULL;
            uint32_t bytes;
            if (map && (!read_text(r, &key, &bytes) || !take(r, ':'))) return wrong(r, "a key without a value");
            uint32_t made = new_node(r);
            if (!made) return false;
            r->tree->nodes[made].key = key;
            if (last)
                r->tree->nodes[last].next = made;
            else
                r->tree->nodes[index].first = made;
            last = made, count++;
            if (!read_value(r, made)) return false;
        } while (take(r, ','));
        if (!take(r, map ? '}' : ']')) return wrong(r, "a list or map is not ended");
    }
    r->tree->nodes[index].count = count;
    r->depth--;
    return true;
}

static bool read_value(reader *r, uint32_t index) {
    json_node *node = r->tree->nodes + index;
    blanks(r);
    if (r->at == r->end) return wrong(r, "it ends too early");
    switch (*r->at) {
        case '{': r->at++; return read_entries(r, index, true);
        case '[': r->at++; return read_entries(r, index, false);
        case '"': node->kind = JSON_TEXT; return read_text(r, &node->text, &node->count);
        case 't': node->kind = JSON_TRUE; return word(r, "true", 4) || wrong(r, "a value that is none");
        case 'f': node->kind = JSON_FALSE; return word(r, "false", 5) || wrong(r, "a value that is none");
        case 'n': node->kind = JSON_NULL; return word(r, "null", 4) || wrong(r, "a value that is none");
        default: return read_number(r, node);
    }
}

bool json_read(json_tree *tree, const char *text, size_t bytes) {
    memset(tree, 0, sizeof *tree);
    reader r = {tree, text, text + bytes, NULL, 0};
    if (bytes >= UINT32_MAX || !(tree->texts = malloc(bytes + 1))) return wrong(&r, "too long for this machine");
    r.text = tree->texts;
    tree->n = 0;
    new_node(&r); /* number 0 stands for none */
    uint32_t root = new_node(&r);
    if (!root || !read_value(&r, root)) return false;
    blanks(&r);
    return r.at == r.end ? true : wrong(&r, "something stands behind its end");
}

void json_free(json_tree *tree) {
    free(tree->nodes);
    free(tree->texts);
    memset(tree, 0, sizeof *tree);
}

const json_node *json_get(const json_tree *tree, const json_node *map, const char *key) {
    if (!map || map->kind != JSON_MAP) return NULL;
    const json_node *found = NULL;
    for (const json_node *k = json_first(tree, map); k; k = json_next(tree, k))
        if (!strcmp(k->key, key)) found = k; /* the last one counts, as in Python */
    return found;
}
