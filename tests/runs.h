/* SPDX-License-Identifier: MIT */
/* What most files of tests do with a runtime. */
#ifndef RUNS_H
#define RUNS_H

#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

/* The body runs with p = 1, 2 and 8. */
#define EACH_PROCS(p) for (int p##_at_ = 0, p = 1; p##_at_ < 3; p##_at_++, p = p##_at_ == 1 ? 2 : 8)

static inline int run_on(int procs, weft_fn *fn, void *arg)
{
    return weft_run_with(&(weft_config){.procs = procs}, fn, arg);
}

/* The environment's quantum is put aside, and back. */
static inline char *without_quantum(void)
{
    const char *text = getenv("WEFT_QUANTUM");
    char *former = text != NULL ? strdup(text) : NULL;
    unsetenv("WEFT_QUANTUM");
    return former;
}

static inline void with_quantum(char *former)
{
    if (former != NULL)
        setenv("WEFT_QUANTUM", former, 1);
    free(former);
}

/* As weft_run_with, for tests that rely on their quantum whatever the environment says. */
static inline int run_with_own_quantum(const weft_config *c, weft_fn *fn, void *arg)
{
    char *former = without_quantum();
    int r = weft_run_with(c, fn, arg);
    with_quantum(former);
    return r;
}

static inline int scaled(int n)
{
    return n / check_scale() > 0 ? n / check_scale() : 1;
}

static inline void sleep_in_region(int ms)
{
    weft_block_enter();
    usleep((useconds_t)ms * 1000);
    weft_block_leave();
}

/* Joins without holding up a processor; a run needs one goroutine that is not asleep while foreign threads work. */
static inline void join_in_region(pthread_t *threads, int n)
{
    weft_block_enter();
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    weft_block_leave();
}

/* From a goroutine: lets others run until *at is at least n; false after so many seconds. */
static inline bool reaches(_Atomic int *at, int n, int seconds)
{
    for (int64_t end = weft_now() + seconds * WEFT_SEC; *at < n;) {
        if (weft_now() > end)
            return false;
        weft_yield();
    }
    return true;
}

/* From the main goroutine: lets others run until it is the only one; false after some time. */
static inline bool others_have_ended(void)
{
    for (int64_t end = weft_now() + 20 * WEFT_SEC; weft_count() > 1 && weft_now() < end;)
        weft_yield();
    return weft_count() == 1;
}

/* As check_child, and shows what the child said if it did not exit with 0. */
static inline bool child_is_well(check_fn *fn, char *text, size_t size)
{
    int status = check_child(fn, text, size);
    if (status != 0)
        fprintf(stderr, "# a child ended with status %#x after saying:\n%s\n", (unsigned)status, text);
    return status == 0;
}

/* The child is to abort after one line that contains the word. */
static inline void aborts_with_one_line(check_fn *fn, const char *word)
{
    char text[4096];
    int status = check_child(fn, text, sizeof text);
    const char *newline = strchr(text, '\n');
    bool one_line = newline != NULL && newline[1] == '\0';
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !one_line || strstr(text, word) == NULL)
        check_fail(__FILE__, __LINE__, "expected an abort that names \"%s\", got status %#x and: %s", word,
                   (unsigned)status, text);
}

/* Skips a part that this build or this machine cannot show. */
static inline void skipped(const char *why)
{
    printf("# skipped: %s\n", why);
}

#endif
