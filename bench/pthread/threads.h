/* SPDX-License-Identifier: MIT */
/* What the files of the program with plain threads share: starting them, and the workloads by file. */
#ifndef BENCH_THREADS_H
#define BENCH_THREADS_H

#include "../harness.h"

#include <pthread.h>

/* main.c */
pthread_t start_thread(void *(*fn)(void *), void *arg);
void join(pthread_t t);

/* queue.c */
void stream(const struct workload *w);
void ring(const struct workload *w);
void chameneos(const struct workload *w);
void ping_pong(const struct workload *w);
void chan_prodcons(const struct workload *w);

#endif
