/* SPDX-License-Identifier: MIT */
/* The workloads of the bare program, by file. */
#ifndef BARE_H
#define BARE_H

#include "../harness.h"

/* files.c */
void files(const struct workload *w);

/* net.c */
void echo(const struct workload *w);
void http_raw(const struct workload *w);

#endif
