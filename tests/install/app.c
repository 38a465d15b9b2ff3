/* SPDX-License-Identifier: MIT */
/* What a user of the installed library writes: run.sh builds it with pkg-config and with CMake. */
#include <weft.h>
#include <stdio.h>

static int sum; /* atomic */

static void work(void *arg)
{
    weft_yield();
    __atomic_fetch_add(&sum, 1, __ATOMIC_RELAXED);
    weft_wg_done(arg);
}

static void start(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    for (int i = 0; i < 100; i++) {
        weft_wg_add(&wg, 1);
        if (weft_go(work, &wg) < 0)
            weft_wg_done(&wg);
    }
    weft_wg_wait(&wg);
}

int main(void)
{
    int err = weft_run(start, NULL);
    printf("weft_run returned %d, %d goroutines ran\n", err, sum);
    return err != 0 || sum != 100;
}
