/* SPDX-License-Identifier: MIT */
/*
 * A tour of Weft in six steps; `make demo` runs it. Each does a thing with goroutines and then the same with pthreads.
 *
 *   demo            all of it, under a minute
 *   demo 3 5        some of the steps
 *   demo --quick    little of everything, in a few seconds
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "demo.h"

bool quick;

static void (*const steps[])(void) = {step_million, step_sieve, step_hogs, step_blocking, step_http, step_deadlock};
enum { STEPS = sizeof steps / sizeof *steps };

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int must(int result, const char *what)
{
    if (result >= 0)
        return result;
    fprintf(stderr, "demo: %s: %s\n", what, strerror(-result));
    exit(1);
}

void run_weft(weft_fn *fn, void *arg)
{
    must(weft_run(fn, arg), "weft_run");
}

int run_threads(int count, void *(*fn)(void *), void *arg)
{
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_attr_t attr;
    int n = 0;
    must(threads == NULL ? -ENOMEM : 0, "calloc");
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 65536);
    while (n < count && pthread_create(&threads[n], &attr, fn, arg) == 0)
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attr);
    free(threads);
    return n;
}

static void play(int step)
{
    if (screen_is_terminal() && !quick)
        sleep(1); /* to read what the step before has said */
    steps[step - 1]();
}

static int usage(void)
{
    fprintf(stderr, "usage: demo [--quick] [STEP...], steps from 1 to %d\n", STEPS);
    return 2;
}

static bool is_step(const char *word)
{
    return strlen(word) == 1 && word[0] >= '1' && word[0] <= '0' + STEPS;
}

int main(int argc, char **argv)
{
    int chosen = 0;
    for (int i = 1; i < argc; i++) {
        quick |= strcmp(argv[i], "--quick") == 0;
        if (is_step(argv[i]))
            chosen++;
        else if (strcmp(argv[i], "--quick") != 0)
            return usage();
    }
    screen_init();
    show_text("Weft: goroutines for C, on %ld processors. Six things that they can do, and the same with threads.",
              sysconf(_SC_NPROCESSORS_ONLN));
    for (int i = 1; chosen > 0 && i < argc; i++)
        if (is_step(argv[i]))
            play(argv[i][0] - '0');
    for (int step = 1; chosen == 0 && step <= STEPS; step++)
        play(step);
    show_text("%s", "");
    show_text(
        "Read next: README.md, docs/tutorial.md (from hello to a server), docs/from-go.md, docs/limits.md, examples/.");
    show_text("Run next: make && build/examples/http_hello 127.0.0.1:8080, make test, make bench, make docs.");
    return 0;
}
