/* SPDX-License-Identifier: MIT */
/*
 * 1:1. A goroutine is an OS thread, a semaphore is the C library's (kernel.c), and the kernel does the rest.
 *
 * Everything works: parallelism, blocking calls, kernel semaphores. The price is the kernel's at each step: a system call and some
 * mappings to start one, a kernel stack to keep it, a trip through the kernel to switch; and the number of threads ends far
 * below the number of goroutines that one would like to have.
 */
#include "lab.h"
#include <pthread.h>
#include <stdlib.h>

const char lab_name[] = "threads";

static struct {
    pthread_mutex_t lock;
    pthread_cond_t last; /* `live` is 0 */
    long live;           /* threads; lock */
} s = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = PTHREAD_COND_INITIALIZER};

struct start {
    lab_fn *fn;
    void *arg;
};

static void add(long n)
{
    pthread_mutex_lock(&s.lock);
    s.live += n;
    if (s.live == 0)
        pthread_cond_signal(&s.last);
    pthread_mutex_unlock(&s.lock);
}

static void *thread(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    start.fn(start.arg);
    add(-1);
    return NULL;
}

int lab_go(lab_fn *fn, void *arg)
{
    struct start *start = malloc(sizeof *start);
    if (start == NULL)
        return -ENOMEM;
    *start = (struct start){fn, arg};
    add(1);
    int r = lab_thread_detached(thread, start);
    if (r != 0) {
        add(-1);
        free(start);
    }
    return r;
}

int lab_run(int threads, lab_fn *fn, void *arg)
{
    (void)threads;
    fn(arg);
    pthread_mutex_lock(&s.lock);
    while (s.live > 0)
        pthread_cond_wait(&s.last, &s.lock);
    pthread_mutex_unlock(&s.lock);
    return 0;
}
