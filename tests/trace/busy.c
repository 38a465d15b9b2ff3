/* SPDX-License-Identifier: MIT */
/* Some of everything that a trace shows, and enough of processor time for a profile. */
#include <time.h>
#include <weft.h>

enum { WORKERS = 8, ROUNDS = 50 };

void work(void *arg);
void burn(void);

__attribute__((noinline)) void burn(void)
{
    for (volatile int i = 0; i < 500000; i++)
        ;
}

void work(void *arg)
{
    weft_chan *ch = arg;
    for (int i = 0; i < ROUNDS; i++) {
        burn();
        weft_send(ch, &i);
    }
    weft_block_enter();
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    weft_block_leave();
}

static void run(void *arg)
{
    weft_chan *ch = weft_chan_new(sizeof(int), 0);
    for (int i = 0; i < WORKERS; i++)
        weft_go_with(&(weft_attr){.name = i == 0 ? "first \"of\" all" : NULL}, work, ch);
    for (int i = 0, value; i < WORKERS * ROUNDS; i++)
        weft_recv(ch, &value);
    while (weft_count() > 1)
        weft_sleep(WEFT_MSEC);
    weft_chan_free(ch);
    (void)arg;
}

int main(void)
{
    return weft_run(run, NULL) == 0 ? 0 : 1;
}
