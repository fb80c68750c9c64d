/* What went wrong, in words. */
#include "tx8_problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool tx8_complain(tx8_problem *p, int status, const char *format, ...) {
    if (p->status) return false;
    va_list more;
    va_start(more, format);
    vsnprintf(p->text, sizeof p->text, format, more);
    va_end(more);
    p->status = status;
    return false;
}

bool tx8_while(tx8_problem *p, const char *format, ...) {
    char before[1200];
    va_list more;
    va_start(more, format);
    vsnprintf(before, sizeof before, format, more);
    va_end(more);
    size_t n = strlen(before), kept = strlen(p->text);
    if (n + kept >= sizeof p->text) kept = sizeof p->text - 1 - n;
    memmove(p->text + n, p->text, kept);
    memcpy(p->text, before, n);
    p->text[n + kept] = 0;
    return false;
}
