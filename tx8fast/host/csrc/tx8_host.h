/* What the calls of the host library share. */
#ifndef TX8_HOST_H
#define TX8_HOST_H
#include "tx8_problem.h"

/* Keep a problem as this thread's last one; returns its status. */
int tx8_host_failed(const tx8_problem *p);

#endif
