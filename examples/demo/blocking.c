/* SPDX-License-Identifier: MIT */
/* Calls that block in the kernel, and nobody has told Weft: the processors go on with others. */
#include <stdatomic.h>
#include <unistd.h>
#include "demo.h"

enum { BLOCK_MS = 300 };

static int blockers;
static atomic_bool stop;
static long long turns; /* of the one who is not to be disturbed */
static weft_wg done;

static void block(void *arg)
{
    (void)arg;
    usleep(BLOCK_MS * 1000); /* libc's, as a library would call it */
    weft_wg_done(&done);
}

static void take_turns(void *arg)
{
    (void)arg;
    for (turns = 0; !atomic_load(&stop); turns++)
        weft_yield();
    weft_wg_done(&done);
}

static void block_goroutines(void *arg)
{
    double *took = arg, began = seconds_now();
    weft_wg_add(&done, blockers);
    must(weft_go(take_turns, NULL), "weft_go");
    for (int i = 0; i < blockers; i++)
        must(weft_go(block, NULL), "weft_go");
    weft_wg_wait(&done);
    *took = seconds_now() - began;
    weft_wg_add(&done, 1);
    atomic_store(&stop, true);
    weft_wg_wait(&done);
}

static void *block_thread(void *arg)
{
    (void)arg;
    usleep(BLOCK_MS * 1000);
    return NULL;
}

void step_blocking(void)
{
    double took;
    blockers = quick ? 10 : 200;
    show_step(4, "Blocking calls cannot stop the rest",
              "Goroutines sleep in the kernel, unannounced; the monitor sees it and gives their processors to others.");
    run_weft(block_goroutines, &took);
    show_row("weft", "%d calls of %d ms each, all together in %.0f ms; another goroutine had %lld turns meanwhile",
             blockers, BLOCK_MS, took * 1e3, turns);
    double began = seconds_now();
    int had = run_threads(blockers, block_thread, NULL);
    show_row("pthreads", "%d calls in %.0f ms, with a thread for each from the start", had,
             (seconds_now() - began) * 1e3);
}
