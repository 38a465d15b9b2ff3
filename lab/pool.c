/* SPDX-License-Identifier: MIT */
/*
 * A thread pool. Goroutines wait in a queue; a thread takes one, runs it to its end, and takes the next. A thread is started when
 * there is more in the queue than there are idle threads, up to a limit, and never ends before the run does.
 *
 * Starting a goroutine no longer starts a thread. But one that waits keeps its thread, so those that wait cost what threads cost;
 * and with a limit there is a trap: if every thread runs a goroutine that waits for one that is still in the queue, none
 * will ever take it out. The main function runs on the caller's thread, which is not one of the pool.
 */
#include "lab.h"
#include <pthread.h>
#include <stdlib.h>

const char lab_name[] = "pool";

struct job {
    lab_fn *fn;
    void *arg;
    struct job *next;
};

/* All: lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work; /* there is a job, or the end */
    pthread_cond_t gone; /* a thread has ended */
    struct job *head, *tail, *spare;
    long queued, idle, threads, limit; /* limit 0: none */
    bool stopping;
} s = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .gone = PTHREAD_COND_INITIALIZER};

static struct job *take_locked(void)
{
    while (s.head == NULL && !s.stopping) {
        s.idle++;
        pthread_cond_wait(&s.work, &s.lock);
        s.idle--;
    }
    struct job *job = s.head;
    if (job != NULL) {
        s.head = job->next;
        s.queued--;
    }
    return job;
}

static void *worker(void *arg)
{
    pthread_mutex_lock(&s.lock);
    for (struct job *job; (job = take_locked()) != NULL;) {
        lab_fn *fn = job->fn;
        void *fn_arg = job->arg;
        job->next = s.spare;
        s.spare = job;
        pthread_mutex_unlock(&s.lock);
        fn(fn_arg);
        pthread_mutex_lock(&s.lock);
    }
    if (--s.threads == 0)
        pthread_cond_signal(&s.gone);
    pthread_mutex_unlock(&s.lock);
    return arg;
}

/* One more thread, if the queue needs one and the limit allows it. A job that finds none, and no idle one either, waits for its
 * turn; only without any thread at all that is an error. */
static int grow_locked(void)
{
    if (s.queued < s.idle || (s.limit > 0 && s.threads >= s.limit))
        return 0;
    int r = lab_thread_detached(worker, NULL);
    if (r == 0)
        s.threads++;
    return s.limit == 0 || s.threads == 0 ? r : 0;
}

static struct job *new_job_locked(void)
{
    struct job *job = s.spare;
    if (job != NULL)
        s.spare = job->next;
    else
        job = malloc(sizeof *job);
    return job;
}

int lab_go(lab_fn *fn, void *arg)
{
    int r = -ENOMEM;
    pthread_mutex_lock(&s.lock);
    struct job *job = new_job_locked();
    if (job != NULL && (r = grow_locked()) == 0) {
        *job = (struct job){fn, arg, NULL};
        if (s.head == NULL)
            s.head = job;
        else
            s.tail->next = job;
        s.tail = job;
        s.queued++;
        if (s.idle > 0)
            pthread_cond_signal(&s.work);
    } else if (job != NULL) {
        job->next = s.spare;
        s.spare = job;
    }
    pthread_mutex_unlock(&s.lock);
    return r;
}

static void end(void)
{
    pthread_mutex_lock(&s.lock);
    s.stopping = true;
    pthread_cond_broadcast(&s.work);
    while (s.threads > 0)
        pthread_cond_wait(&s.gone, &s.lock);
    for (struct job *job; (job = s.spare) != NULL; free(job))
        s.spare = job->next;
    s.stopping = false;
    pthread_mutex_unlock(&s.lock);
}

int lab_run(int threads, lab_fn *fn, void *arg)
{
    s.limit = threads;
    fn(arg);
    end();
    return 0;
}
