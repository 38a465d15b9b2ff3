/* SPDX-License-Identifier: MIT */
/*
 * Asks several servers at once and takes what comes within a tenth of a second. The deadline is the scope's: ask() knows
 * nothing of it, and nobody is left behind when it has passed.
 *
 *   $ cc deadline.c -lweft -o deadline && ./deadline
 *   near: answered
 *   far: no answer: Connection timed out
 *   lost: no answer: Connection timed out
 *   goroutines left: 1
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weft.h>

struct server {
    const char *name;
    int64_t takes; /* ns; stands for a connection and a request */
    int result;
};

static void ask(void *arg)
{
    struct server *server = arg;
    server->result = weft_sleep(server->takes);
}

static void start(void *arg)
{
    struct server servers[] = {
        {"near", WEFT_MSEC, -ENOMEM}, {"far", 5 * WEFT_SEC, -ENOMEM}, {"lost", WEFT_NEVER, -ENOMEM}};
    weft_scope scope;
    (void)arg;
    weft_scope_open(&scope, weft_now() + 100 * WEFT_MSEC);
    for (int i = 0; i < 3; i++)
        weft_scope_go(&scope, ask, &servers[i]);
    weft_scope_close(&scope); /* -ETIMEDOUT, as some took too long */
    for (int i = 0; i < 3; i++)
        if (servers[i].result == 0)
            printf("%s: answered\n", servers[i].name);
        else
            printf("%s: no answer: %s\n", servers[i].name, strerror(-servers[i].result));
    printf("goroutines left: %d\n", weft_count());
}

int main(void)
{
    return weft_run(start, NULL) == 0 ? 0 : 1;
}
