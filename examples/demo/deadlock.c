/* SPDX-License-Identifier: MIT */
/* Two that each hold what the other wants. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "demo.h"

/* ---- goroutines ---------------------------------------------------------------------------------------------------- */

static struct {
    weft_mutex fork, knife;
} table;

static weft_wg seated;

/* Not static, so that the report can name them. */
void dine_with_fork_first(void *arg)
{
    (void)arg;
    weft_lock(&table.fork);
    weft_wg_done(&seated);
    weft_wg_wait(&seated);
    weft_lock(&table.knife);
    weft_unlock(&table.knife);
}

void dine_with_knife_first(void *arg)
{
    (void)arg;
    weft_lock(&table.knife);
    weft_wg_done(&seated);
    weft_wg_wait(&seated);
    weft_lock(&table.fork);
    weft_unlock(&table.fork);
}

static void dinner(void *arg)
{
    static weft_wg over;
    (void)arg;
    weft_wg_add(&seated, 2);
    weft_wg_add(&over, 1);
    must(weft_go_with(&(weft_attr){.name = "Plato"}, dine_with_fork_first, NULL), "weft_go_with");
    must(weft_go_with(&(weft_attr){.name = "Kant"}, dine_with_knife_first, NULL), "weft_go_with");
    weft_wg_wait(&over);
}

/* ---- threads: the same, with a limit so that the tour goes on ---------------------------------------------------- */

static pthread_mutex_t thread_fork = PTHREAD_MUTEX_INITIALIZER, thread_knife = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *dine(void *kant)
{
    pthread_mutex_t *mine = kant != NULL ? &thread_knife : &thread_fork;
    pthread_mutex_t *other = kant != NULL ? &thread_fork : &thread_knife;
    struct timespec limit;
    pthread_mutex_lock(mine);
    pthread_barrier_wait(&both);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec++;
    if (pthread_mutex_timedlock(other, &limit) == 0)
        pthread_mutex_unlock(other);
    pthread_barrier_wait(&both);
    pthread_mutex_unlock(mine);
    return NULL;
}

static void thread_dinner(void)
{
    pthread_t plato, kant;
    pthread_barrier_init(&both, NULL, 2);
    must(-pthread_create(&plato, NULL, dine, NULL), "pthread_create");
    must(-pthread_create(&kant, NULL, dine, &both), "pthread_create");
    pthread_join(plato, NULL);
    pthread_join(kant, NULL);
    pthread_barrier_destroy(&both);
    show_row("pthreads", "hung, and would hang for ever: after a second a limit of this program's own let them go");
}

void step_deadlock(void)
{
    show_step(6, "A deadlock, explained",
              "When nobody can go on, weft_run says who waits for what, where each was started, and returns -EDEADLK.");
    int result = weft_run(dinner, NULL);
    show_row("weft", "weft_run returned %d: %s", result, strerror(-result));
    thread_dinner();
}
