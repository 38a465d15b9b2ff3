/* SPDX-License-Identifier: MIT */
/*
 * Stack overflow: a goroutine that runs into its guard page is named, with a backtrace, before the process dies of it.
 *
 * The handler for SIGSEGV and SIGBUS runs on the alternate stack of the M. A fault that is not in the guard of the
 * running goroutine belongs to whoever had the signal before us. After the report the former action is put back and
 * the handler returns: the instruction faults again, now with the effect, and the core file, that it would have had.
 */
#include "weft_internal.h"
#include <ucontext.h>

static const int SIGNALS[] = {SIGSEGV, SIGBUS};
enum { COUNT = sizeof SIGNALS / sizeof SIGNALS[0] };
static struct sigaction former[COUNT];

static int index_of(int sig)
{
    return sig == SIGSEGV ? 0 : 1;
}

static const void *program_counter(const ucontext_t *uc)
{
#if defined(__x86_64__)
    return (const void *)uc->uc_mcontext.gregs[REG_RIP];
#else
    return (const void *)uc->uc_mcontext.pc;
#endif
}

static bool in_guard(const struct w_g *g, const char *addr)
{
    return g != NULL && g->stack_lo != NULL && addr < g->stack_lo &&
           addr >= g->stack_lo - w_stack_guard_size(g->stack_class);
}

/* With the backtrace of this context from from_pc on, NULL: all of it. */
void w_report_overflow(const struct w_g *g, const void *from_pc)
{
    w_say_to(STDERR_FILENO, "weft: stack overflow in goroutine %lu \"%s\" (entry ", g->id,
             g->name != NULL ? g->name : "");
    w_print_symbol(STDERR_FILENO, (const void *)g->fn);
    w_say_to(STDERR_FILENO, "): it needs more than its limit of %zu bytes\n", w_stack_size(g->stack_class));
    w_print_backtrace(STDERR_FILENO, NULL, from_pc);
}

/* As if our handler had never been there. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
    const struct sigaction *f = &former[index_of(sig)];
    if (f->sa_flags & SA_SIGINFO)
        f->sa_sigaction(sig, info, context);
    else if (f->sa_handler != SIG_DFL && f->sa_handler != SIG_IGN)
        f->sa_handler(sig);
    else {
        w_flight_report(sig == SIGSEGV ? "SIGSEGV" : "SIGBUS");
        sigaction(sig, f, NULL);
    }
    if (f->sa_handler == SIG_DFL && info->si_code <= 0)
        raise(sig); /* somebody sent it: no instruction will fault again */
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    struct w_m *m = w_m();
    if (m != NULL && in_guard(m->g, info->si_addr)) {
        w_report_overflow(m->g, program_counter(context));
        w_flight_report("stack overflow");
        sigaction(sig, &former[index_of(sig)], NULL);
        return;
    }
    pass_on(sig, info, context);
}

int w_overflow_init(void)
{
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < COUNT; i++)
        if (sigaction(SIGNALS[i], &sa, &former[i]) != 0)
            return -EINVAL;
    return 0;
}

/* Unless the program has put its own in place meanwhile. */
void w_overflow_done(void)
{
    for (int i = 0; i < COUNT; i++) {
        struct sigaction now;
        if (sigaction(SIGNALS[i], NULL, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault)
            sigaction(SIGNALS[i], &former[i], NULL);
    }
}
