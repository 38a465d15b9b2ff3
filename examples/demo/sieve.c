/* SPDX-License-Identifier: MIT */
/*
 * The sieve of Eratosthenes as a chain: each link lets through what its prime does not divide.
 *
 *      2, 3, 4, ... -> [not by 2] -> [not by 3] -> [not by 5] -> ... -> the next prime
 *
 * 0 is the end: who gets it passes it on and is done.
 */
#include "demo.h"
#include "sieve.h"

struct sieve sieve;

struct link {
    int prime;
    weft_chan_of(int) in, out;
};

static void count(void *out)
{
    weft_chan_of(int) ch = out;
    for (int n = 2; !atomic_load(&sieve.enough); n++)
        weft_put(ch, n);
    weft_put(ch, 0);
}

static void filter(void *arg)
{
    struct link *l = arg;
    int n = 1;
    while (n != 0) {
        weft_take(l->in, &n);
        if (n == 0 || n % l->prime != 0) {
            weft_put(l->out, n);
            atomic_fetch_add_explicit(&sieve.passed, 1, memory_order_relaxed);
        }
    }
    weft_free_of(l->in); /* whoever sent the 0 has let go of it */
}

static void build(void *arg)
{
    weft_chan_of(int) ch = weft_make(int, 1);
    (void)arg;
    must(weft_go(count, ch), "weft_go");
    for (int i = 0; i < sieve.primes; i++) {
        struct link l = {.in = ch, .out = weft_make(int, 1)};
        weft_take(ch, &l.prime);
        must(weft_go_copy(filter, &l, sizeof l), "weft_go_copy");
        ch = l.out;
        sieve.last = l.prime;
    }
    atomic_store(&sieve.enough, true);
    for (int n = 1; n != 0;)
        weft_take(ch, &n);
    weft_free_of(ch);
}

static void report(const char *who, double took)
{
    show_row(who, "%d links, the last prime is %d: %ld numbers handed on in %.0f ms, %.0f ns each", sieve.primes,
             sieve.last, atomic_load(&sieve.passed), took * 1e3, took * 1e9 / (double)atomic_load(&sieve.passed));
}

void step_sieve(void)
{
    sieve.primes = quick ? 50 : 300;
    show_step(2, "A prime sieve",
              "Goroutines that hand numbers to each other: all of it is switching, none of it work.");
    double began = seconds_now();
    run_weft(build, NULL);
    report("weft", seconds_now() - began);
    atomic_store(&sieve.enough, false);
    atomic_store(&sieve.passed, 0);
    began = seconds_now();
    sieve_with_threads();
    report("pthreads", seconds_now() - began);
}
