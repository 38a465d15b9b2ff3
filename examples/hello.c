/* SPDX-License-Identifier: MIT */
/*
 * Ten goroutines, one sum.
 *
 *   $ cc hello.c -lweft -o hello && ./hello
 *   10 goroutines: 0 + 1 + ... + 9 = 45
 */
#include <stdatomic.h>
#include <stdio.h>
#include <weft.h>

static weft_wg all;
static atomic_int sum;

static void add(void *arg)
{
    atomic_fetch_add(&sum, *(int *)arg);
    weft_wg_done(&all);
}

static void start(void *arg)
{
    (void)arg;
    weft_wg_add(&all, 10);
    for (int i = 0; i < 10; i++)
        weft_go_copy(add, &i, sizeof i);
    weft_wg_wait(&all);
    printf("10 goroutines: 0 + 1 + ... + 9 = %d\n", atomic_load(&sum));
}

int main(void)
{
    return weft_run(start, NULL) == 0 ? 0 : 1;
}
