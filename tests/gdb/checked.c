/* SPDX-License-Identifier: MIT */
/*
 * A correct program for memcheck: goroutines that come and go on each other's stacks, with arguments copied onto them, deep frames,
 * channels, a blocking call and two runs. With the argument `wrong` one of them reads behind the end of a block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft.h>

enum { WORKERS = 150, DEPTH = 20 }; /* more than a P keeps stacks for: those come back from the pool */

struct job {
    int first;
    char text[1000]; /* lies below the last frame of who had the stack before */
};

static weft_chan *sums;
static int wrong;

__attribute__((noinline)) static int deep(int n)
{
    volatile char room[1000];
    memset((char *)room, n, sizeof room);
    weft_yield();
    return n == 0 ? 0 : deep(n - 1) + room[500];
}

static void worker(void *arg)
{
    const struct job *job = arg;
    int sum = deep(DEPTH) + job->first + (int)strlen(job->text);
    weft_send(sums, &sum);
}

static void plain_worker(void *arg)
{
    int sum = deep(DEPTH);
    (void)arg;
    weft_send(sums, &sum);
}

static void culprit(void *arg)
{
    int *block = calloc(4, sizeof *block);
    (void)arg;
    if (((volatile int *)block)[4] != 0)
        puts("it was not zero");
    free(block);
}

/* For several quanta, while others wait: it would be stopped by a signal elsewhere. */
static void compute(void *arg)
{
    volatile int turns = 5000000;
    (void)arg;
    while (turns > 0)
        turns--;
}

static void all(void *arg)
{
    int sum, total = 0;
    (void)arg;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < WORKERS; i++) {
            struct job job = {i, "job"};
            if (round == 0)
                weft_go(plain_worker, NULL);
            else
                weft_go_copy(worker, &job, sizeof job);
        }
        for (int i = 0; i < WORKERS && weft_recv(sums, &sum) == 0; i++)
            total += sum;
    }
    weft_go(compute, NULL);
    weft_go(compute, NULL);
    weft_yield();
    weft_block_enter();
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    weft_block_leave();
    if (wrong)
        weft_go(culprit, NULL);
    weft_sleep(WEFT_MSEC);
    printf("%d\n", total);
}

int main(int argc, char **argv)
{
    wrong = argc > 1 && strcmp(argv[1], "wrong") == 0;
    for (int run = 0; run < 2; run++) {
        sums = weft_chan_new(sizeof(int), 4);
        weft_config config = {.procs = 1};
        if (sums == NULL || weft_run_with(&config, all, NULL) != 0)
            return 1;
        weft_chan_free(sums);
    }
    return 0;
}
