/* SPDX-License-Identifier: MIT */
/* The sieve with threads. A channel is a box with room for one number, a lock and a condition. */
#include <pthread.h>
#include <stdlib.h>
#include "demo.h"
#include "sieve.h"

struct box { /* a channel with room for one */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool full;
    int value;
};

struct thread_link {
    int prime;
    struct box *in, out;
    pthread_t thread;
};

static void put(struct box *b, int value)
{
    pthread_mutex_lock(&b->lock);
    while (b->full)
        pthread_cond_wait(&b->changed, &b->lock);
    b->full = true;
    b->value = value;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static int take(struct box *b)
{
    pthread_mutex_lock(&b->lock);
    while (!b->full)
        pthread_cond_wait(&b->changed, &b->lock);
    b->full = false;
    int value = b->value;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return value;
}

static void *thread_count(void *out)
{
    for (int n = 2; !atomic_load(&sieve.enough); n++)
        put(out, n);
    put(out, 0);
    return NULL;
}

static void *thread_filter(void *arg)
{
    struct thread_link *l = arg;
    for (int n = 1; n != 0;) {
        n = take(l->in);
        if (n == 0 || n % l->prime != 0) {
            put(&l->out, n);
            atomic_fetch_add_explicit(&sieve.passed, 1, memory_order_relaxed);
        }
    }
    return NULL;
}

void sieve_with_threads(void)
{
    struct thread_link *links = calloc((size_t)sieve.primes, sizeof *links);
    struct box first = {.full = false}, *ch = &first;
    pthread_t counter;
    int n = 0;
    must(links == NULL || pthread_create(&counter, NULL, thread_count, &first) != 0 ? -1 : 0, "threads");
    for (; n < sieve.primes; n++) {
        links[n] = (struct thread_link){.prime = take(ch), .in = ch};
        must(-pthread_create(&links[n].thread, NULL, thread_filter, &links[n]), "pthread_create");
        ch = &links[n].out;
        sieve.last = links[n].prime;
    }
    atomic_store(&sieve.enough, true);
    while (take(ch) != 0)
        ;
    pthread_join(counter, NULL);
    while (n-- > 0)
        pthread_join(links[n].thread, NULL);
    free(links);
}
