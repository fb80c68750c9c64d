/* What went wrong, in words, on its way to whoever called. */
#ifndef TX8_PROBLEM_H
#define TX8_PROBLEM_H
#include <stdbool.h>

typedef struct {
    int status;
    char text[4000];
} tx8_problem;

/* Note a problem, unless there is one already; false. */
__attribute__((format(printf, 3, 4))) bool tx8_complain(tx8_problem *p, int status, const char *format, ...);
/* Put words before the problem's. */
__attribute__((format(printf, 2, 3))) bool tx8_while(tx8_problem *p, const char *format, ...);

#endif
