/* SPDX-License-Identifier: MIT */
/* The workloads of the bare program, by file. */
#ifndef BARE_H
#define BARE_H

#include "../harness.h"

/* fair.c */
void preempt(const struct workload *w);
void ready(const struct workload *w);
void preempt_cost(const struct workload *w);
void preempt_own(const struct workload *w);

/* files.c */
void files(const struct workload *w);

/* net.c */
void echo(const struct workload *w);
void http_raw(const struct workload *w);

#endif
