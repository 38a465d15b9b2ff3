/* SPDX-License-Identifier: MIT */
/* Linked with a static libc: no asynchronous preemption, for libc cannot be told from the program; all else works. */
#include <weft.h>

static void count(void *arg)
{
    for (int i = 0; i < 1000; i++) {
        int v = i;
        weft_send(arg, &v);
    }
    weft_close(arg);
}

static void compute(void *arg)
{
    (void)arg;
    for (volatile long i = 0; i < 50000000; i++)
        ;
}

static void run(void *arg)
{
    weft_chan *ch = weft_chan_new(sizeof(int), 4);
    weft_scope s; /* whose close waits until they have ended: none of them is a leak */
    int v, *sum = arg;
    weft_scope_open(&s, WEFT_NEVER);
    weft_scope_go(&s, compute, NULL);
    weft_scope_go(&s, compute, NULL);
    weft_scope_go(&s, count, ch);
    while (weft_recv(ch, &v) == 0)
        *sum += v;
    weft_scope_close(&s);
    weft_chan_free(ch);
}

int main(void)
{
    int sum = 0;
    return weft_run(run, &sum) != 0 || sum != 999 * 1000 / 2;
}
