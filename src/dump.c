/* SPDX-License-Identifier: MIT */
/* What every goroutine is doing, as text. */
#include "scope.h"

static void print_reason(int fd, const struct w_g *g)
{
    w_say_to(fd, ": %s ", w_reason_name(g->reason));
    if (g->reason >= W_REASON_READ)
        w_say_to(fd, "%ld", (long)(intptr_t)g->waits_on);
    else
        w_say_to(fd, "%p", g->waits_on);
}

static void print_head(int fd, const struct w_g *g)
{
    enum w_state state = ld_relaxed(&g->state);
    w_say_to(fd, "goroutine %lu", g->id);
    if (g->name != NULL)
        w_say_to(fd, " \"%s\"", g->name);
    w_say_to(fd, " [%s", w_state_name(state));
    if (state == W_WAITING)
        print_reason(fd, g);
    if (state == W_WAITING || state == W_BLOCKED)
        w_say_to(fd, ", %ld ms", (long)((w_now() - g->since) / WEFT_MSEC));
    int64_t since = w_goes_on_since(g);
    if (since >= 0)
        w_say_to(fd, ", goes on though its scope was cancelled %ld ms ago", (long)((w_now() - since) / WEFT_MSEC));
    w_say_to(fd, "]\n    entry ");
    w_print_symbol(fd, (const void *)w_member_fn(g));
    if (g->started_at != NULL) {
        w_say_to(fd, "\n    started at ");
        w_print_symbol(fd, g->started_at);
    }
    w_say_to(fd, "\n");
}

static void dump_g(struct w_g *g, void *arg)
{
    int fd = *(int *)arg;
    enum w_state state = ld_relaxed(&g->state);
    if (state == W_IDLE || state == W_DEAD)
        return;
    print_head(fd, g);
    if (g->stack_lo != NULL && (state == W_WAITING || state == W_RUNNABLE || state == W_PREEMPTED))
        w_print_backtrace(fd, g->sp, NULL);
    w_say_to(fd, "\n");
}

/* Nothing may run meanwhile. */
void w_dump_all(int fd)
{
    w_gs_each(dump_g, &fd);
}

static void count_g(struct w_g *g, void *arg)
{
    enum w_state state = ld_relaxed(&g->state);
    *(uint32_t *)arg += state != W_IDLE && state != W_DEAD;
}

/* WEFT_DEBUG=leaks: the run has ended with these alive. */
void w_report_leaks(void)
{
    uint32_t n = 0;
    w_gs_each(count_g, &n);
    if (n == 0)
        return;
    w_say("leaks: %u goroutine(s) were alive when the run ended", n);
    w_dump_all(STDERR_FILENO);
}
