/* SPDX-License-Identifier: MIT */
/* Locks of pthreads that are held while their holder computes, under preemption: with libweft_posix a holder is not stopped. */
#include "../check.h"
#include "../runs.h"
#include <pthread.h>

enum { WORKERS = 6, ROUNDS = 20, LENGTH = 2 * 1000 * 1000 /* a few quanta */ };

struct shared {
    pthread_mutex_t mutex;
    volatile int inside;
    int wrong, errors;
    weft_wg done;
};

static void compute(void)
{
    for (volatile int i = 0; i < LENGTH; i = i + 1)
        ;
}

/* Who is let in beside somebody else, or cannot unlock, counts. */
static void worker(void *arg)
{
    struct shared *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        s->errors += pthread_mutex_lock(&s->mutex) != 0;
        s->wrong += ++s->inside != 1;
        compute();
        s->inside--;
        s->errors += pthread_mutex_unlock(&s->mutex) != 0;
        compute();
    }
    weft_wg_done(&s->done);
}

static void workers_main(void *arg)
{
    struct shared *s = arg;
    weft_wg_add(&s->done, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(weft_go(worker, s), 0);
    CHECK_EQ(weft_wg_wait(&s->done), 0);
}

static void work_with(int type)
{
    EACH_PROCS(p)
    {
        struct shared s = {.inside = 0};
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, type);
        pthread_mutex_init(&s.mutex, &attr);
        pthread_mutexattr_destroy(&attr);
        CHECK_EQ(weft_run_with(&(weft_config){.procs = p, .quantum = 200 * WEFT_USEC}, workers_main, &s), 0);
        CHECK_EQ(s.wrong, 0);
        CHECK_EQ(s.errors, 0);
        pthread_mutex_destroy(&s.mutex);
    }
}

CASE(a_recursive_mutex_keeps_others_out_and_its_owner)
{
    work_with(PTHREAD_MUTEX_RECURSIVE);
}

CASE(an_error_checking_mutex_keeps_its_owner)
{
    work_with(PTHREAD_MUTEX_ERRORCHECK);
}

CASE(an_ordinary_mutex_is_no_worse)
{
    work_with(PTHREAD_MUTEX_NORMAL);
}

/* An rwlock knows by its thread who has it for writing. */
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void writer(void *arg)
{
    struct shared *s = arg;
    for (int i = 0; i < ROUNDS; i++) {
        s->errors += pthread_rwlock_wrlock(&rwlock) != 0;
        s->wrong += ++s->inside != 1;
        compute();
        s->inside--;
        s->errors += pthread_rwlock_unlock(&rwlock) != 0;
        compute();
    }
    weft_wg_done(&s->done);
}

static void writers_main(void *arg)
{
    struct shared *s = arg;
    weft_wg_add(&s->done, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(weft_go(writer, s), 0);
    CHECK_EQ(weft_wg_wait(&s->done), 0);
}

CASE(an_rwlock_keeps_its_writer)
{
    EACH_PROCS(p)
    {
        struct shared s = {.inside = 0};
        CHECK_EQ(weft_run_with(&(weft_config){.procs = p, .quantum = 200 * WEFT_USEC}, writers_main, &s), 0);
        CHECK_EQ(s.wrong, 0);
        CHECK_EQ(s.errors, 0);
        CHECK_EQ(pthread_rwlock_trywrlock(&rwlock), 0);
        CHECK_EQ(pthread_rwlock_unlock(&rwlock), 0);
    }
}

/* Locks that are given back by somebody else leave nobody unstoppable. */
static pthread_mutex_t passed = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int steps;

static void unlocker(void *arg)
{
    (void)arg;
    CHECK_EQ(pthread_mutex_unlock(&passed), 0);
    steps = 1;
    for (volatile int i = 0; steps < 2; i = i + 1)
        ;
}

static void passing_main(void *arg)
{
    (void)arg;
    steps = 0;
    CHECK_EQ(weft_go(unlocker, NULL), 0);
    CHECK_EQ(pthread_mutex_lock(&passed), 0);
    CHECK(reaches(&steps, 1, 20));
    steps = 2;
    CHECK(others_have_ended());
}

CASE(a_lock_that_another_gives_back_leaves_that_one_stoppable)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, passing_main, NULL), 0);
}
