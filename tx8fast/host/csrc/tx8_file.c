/* A .tx8 file is mapped, and nothing of it is believed before it is checked. */
#define _GNU_SOURCE
#include "tx8_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../include/tx8fast/tx8.h"
#include "tx8_digest.h"

enum { PREFIX = 64, ALIGN = 64, MAJOR = 3, MINOR = 0, MOST_SECTIONS = 128 };
#define MOST_HEADER ((uint64_t)1 << 30)

typedef struct {
    uint8_t magic[8];
    uint16_t major, minor;
    uint32_t zero;
    uint64_t offset, size, file_bytes;
    uint8_t digest[16], rest[8];
} prefix;
_Static_assert(sizeof(prefix) == PREFIX, "a prefix has no padding");

static bool damaged(tx8_problem *p, const char *what) { return tx8_complain(p, TX8_ERROR_FILE, "%s; the file is damaged", what); }

static bool map_file(tx8_file *f, const char *path, tx8_problem *p) {
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tx8_complain(p, TX8_ERROR_FILE, "%s", strerror(errno));
    bool ok = false;
    if (fstat(fd, &facts)) {
        tx8_complain(p, TX8_ERROR_FILE, "%s", strerror(errno));
    } else if (!S_ISREG(facts.st_mode)) {
        tx8_complain(p, TX8_ERROR_FILE, "it is no regular file");
    } else if (facts.st_size < PREFIX) {
        tx8_complain(p, TX8_ERROR_FILE, "%lld bytes, at least %d required; the file is truncated", (long long)facts.st_size, PREFIX);
    } else {
        void *map = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        ok = map != MAP_FAILED;
        if (ok)
            f->map = map, f->bytes = facts.st_size;
        else
            tx8_complain(p, TX8_ERROR_MEMORY, "mapping its %lld bytes: %s", (long long)facts.st_size, strerror(errno));
    }
    close(fd);
    return ok;
}

static bool read_prefix(tx8_file *f, prefix *head, tx8_problem *p) {
    static const uint8_t magic[8] = {0x89, 'T', 'X', '8', '\r', '\n', 0x1a, '\n'}, none[16];
    memcpy(head, f->map, PREFIX);
    if (memcmp(head->magic, magic, 8)) return tx8_complain(p, TX8_ERROR_FILE, "this is not a .tx8 file, or its first bytes were changed");
    if (head->major != MAJOR || head->minor > MINOR)
        return tx8_complain(p, TX8_ERROR_VERSION, "format version %d.%d, this library reads %d.0 to %d.%d; compile the model again", head->major,
                            head->minor, MAJOR, MAJOR, MINOR);
    if (head->file_bytes != (uint64_t)f->bytes)
        return tx8_complain(p, TX8_ERROR_FILE, "%lld bytes, %llu expected; the file is truncated or was extended", (long long)f->bytes,
                            (unsigned long long)head->file_bytes);
    if (head->size > MOST_HEADER || head->offset < PREFIX || head->offset > head->file_bytes || head->size != head->file_bytes - head->offset ||
        head->offset % ALIGN)
        return damaged(p, "the header does not fit");
    if (head->zero || memcmp(head->rest, none, 8)) return damaged(p, "reserved bytes are set");
    tx8_digest d;
    uint8_t found[16];
    prefix plain = *head;
    memset(plain.digest, 0, 16);
    tx8_digest_begin(&d);
    tx8_digest_add(&d, &plain, PREFIX);
    tx8_digest_add(&d, f->map + head->offset, head->size);
    tx8_digest_end(&d, found);
    return memcmp(found, head->digest, 16) ? damaged(p, "the header's checksum is wrong") : true;
}

static bool read_hex(const json_node *text, uint8_t out[16]) {
    if (!text || text->kind != JSON_TEXT || text->count != 32) return false;
    for (int k = 0; k < 32; k++) {
        char c = text->text[k];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        out[k / 2] = (uint8_t)(k % 2 ? out[k / 2] << 4 | digit : digit);
    }
    return true;
}

static bool read_sections(tx8_file *f, const prefix *head, tx8_problem *p) {
    const json_node *table = json_get(&f->header, json_root(&f->header), "sections");
    f->body = json_get(&f->header, json_root(&f->header), "body");
    if (!f->body || f->body->kind != JSON_MAP || !table || table->kind != JSON_LIST || table->count > MOST_SECTIONS)
        return damaged(p, "the header is malformed");
    f->sections = calloc(table->count + 1, sizeof *f->sections);
    if (!f->sections) return tx8_complain(p, TX8_ERROR_MEMORY, "out of memory");
    int64_t at = PREFIX, end = (int64_t)head->offset;
    for (const json_node *k = json_first(&f->header, table); k; k = json_next(&f->header, k)) {
        const json_node *name = json_get(&f->header, k, "name"), *offset = json_get(&f->header, k, "offset");
        const json_node *bytes = json_get(&f->header, k, "bytes");
        tx8_section *made = f->sections + f->n_sections;
        if (!name || name->kind != JSON_TEXT || !offset || offset->kind != JSON_INT || !bytes || bytes->kind != JSON_INT ||
            !read_hex(json_get(&f->header, k, "digest"), made->digest))
            return damaged(p, "the table of sections is malformed");
        if (offset->whole != at || bytes->whole < 0 || bytes->whole > end - at || tx8_file_section(f, name->text))
            return damaged(p, "a section does not fit");
        made->name = name->text, made->at = f->map + at, made->bytes = bytes->whole;
        f->n_sections++;
        at += (bytes->whole + ALIGN - 1) / ALIGN * ALIGN;
    }
    return at == end ? true : damaged(p, "the sections do not end where the header begins");
}

bool tx8_file_open(tx8_file *f, const char *path, tx8_problem *p) {
    prefix head;
    memset(f, 0, sizeof *f);
    if (map_file(f, path, p) && read_prefix(f, &head, p)) {
        if (!json_read(&f->header, (const char *)f->map + head.offset, head.size))
            tx8_complain(p, TX8_ERROR_FILE, "the header is malformed (%s)", f->header.problem);
        else
            read_sections(f, &head, p);
    }
    return p->status ? tx8_while(p, "reading program file %.500s: ", path) : true;
}

void tx8_file_close(tx8_file *f) {
    json_free(&f->header);
    free(f->sections);
    if (f->map) munmap((void *)(uintptr_t)f->map, (size_t)f->bytes);
    memset(f, 0, sizeof *f);
}

const tx8_section *tx8_file_section(const tx8_file *f, const char *name) {
    for (int64_t k = 0; k < f->n_sections; k++)
        if (!strcmp(f->sections[k].name, name)) return f->sections + k;
    return NULL;
}

bool tx8_file_check(const tx8_section *section, tx8_problem *p) {
    tx8_digest d;
    uint8_t found[16];
    tx8_digest_begin(&d);
    tx8_digest_add(&d, section->at, (size_t)((section->bytes + ALIGN - 1) / ALIGN * ALIGN));
    tx8_digest_end(&d, found);
    if (memcmp(found, section->digest, 16))
        return tx8_complain(p, TX8_ERROR_FILE, "the checksum of section '%.100s' is wrong; the file is damaged", section->name);
    return true;
}
