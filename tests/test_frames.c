/* SPDX-License-Identifier: MIT */
/* Our own walk through a stack that was interrupted says what the compiler's unwinder says (src/frames.c, src/cfi.c). */
#include "frames.h"
#include "preempt.h"
#include "runs.h"
#include "sigframe.h"
#include "whitebox.h"
#include <alloca.h>
#include <signal.h>
#include <unwind.h>

enum { MAX_FRAMES = 64, DEPTH = 6, FEW_ROWS = 3 };

struct pcs {
    int n;
    bool reached; /* where it was interrupted */
    uintptr_t pc[MAX_FRAMES], from;
};

static struct w_rows *rows;
static struct pcs theirs, ours;
static uintptr_t stack_top;

static void add(struct pcs *list, uintptr_t pc)
{
    if (list->n < MAX_FRAMES)
        list->pc[list->n++] = pc;
}

static _Unwind_Reason_Code note_theirs(struct _Unwind_Context *context, void *arg)
{
    uintptr_t pc = _Unwind_GetIP(context);
    (void)arg;
    if (theirs.reached && pc != 0)
        add(&theirs, pc);
    theirs.reached |= pc == theirs.from;
    return _URC_NO_REASON;
}

static void note_ours(const ucontext_t *uc)
{
    struct w_stack_view view;
    struct w_regs regs;
    w_view_init(&view, w_context_sp(uc) - W_RED_ZONE, stack_top);
    view.ours = true;
    w_regs_of_context(&regs, uc);
    while (!w_code_is_entry(regs.pc) && w_leave_frame(rows, &regs, &view))
        add(&ours, regs.pc);
}

static void on_interrupt(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info;
    theirs = (struct pcs){.from = w_context_pc(context)};
    ours = (struct pcs){0};
    _Unwind_Backtrace(note_theirs, NULL);
    note_ours(context);
}

/* Frames that are found from the stack pointer, from the frame pointer, and, where a stack is realigned, from what the frame pointer
 * points to; each keeps registers for the next ones. */
typedef int frame(int n, int *sizes);
static frame plain, sized, realigned;

static int go_deeper(int n, int *sizes)
{
    static frame *const FRAMES[] = {plain, sized, realigned};
    if (n > 0)
        return FRAMES[n % 3](n - 1, sizes);
    raise(SIGUSR1);
    return 0;
}

static __attribute__((noinline)) int plain(int n, int *sizes)
{
    volatile int kept = sizes[n];
    return go_deeper(n, sizes) + kept;
}

static __attribute__((noinline)) int sized(int n, int *sizes)
{
    volatile char *room = alloca((size_t)sizes[n]);
    room[0] = 1;
    return go_deeper(n, sizes) + room[0];
}

static __attribute__((noinline)) int realigned(int n, int *sizes)
{
    _Alignas(128) volatile char fixed[128];
    volatile char *room = alloca((size_t)sizes[n]);
    fixed[n] = room[0] = 1;
    int below = go_deeper(n, sizes);
    return below + fixed[n] + room[0] + ((uintptr_t)fixed % 128 == 0 ? 0 : 1000);
}

static void compare(void)
{
    CHECK(theirs.n > DEPTH);
    CHECK(ours.n > DEPTH && w_code_is_entry(ours.pc[ours.n - 1]));
    CHECK(ours.n <= theirs.n); /* theirs may not end at the entry */
    for (int i = 0; i < ours.n && i < theirs.n; i++)
        CHECK_EQ(ours.pc[i], theirs.pc[i]);
}

static void walk_main(void *arg)
{
    int sizes[DEPTH * 2];
    (void)arg;
    const struct w_g *g = w_m()->g;
    stack_top = (uintptr_t)w_stack_top(g->stack_class, g->stack_lo);
    for (int i = 0; i < DEPTH * 2; i++)
        sizes[i] = 100 + 24 * i;
    for (int n = DEPTH; n < DEPTH + 3; n++) {
        CHECK(go_deeper(n, sizes) < 1000 + DEPTH * 2 * 400);
        compare();
    }
}

static void walk_with_rows(unsigned bits)
{
    struct sigaction action = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO}, before;
    rows = w_rows_new(bits);
    CHECK(rows != NULL);
    CHECK_EQ(sigaction(SIGUSR1, &action, &before), 0);
    CHECK_EQ(run_on(1, walk_main, NULL), 0);
    w_rows_refresh(rows, 1); /* all is forgotten, and found again */
    CHECK_EQ(run_on(1, walk_main, NULL), 0);
    sigaction(SIGUSR1, &before, NULL);
    w_rows_free(rows);
}

CASE(a_walk_finds_the_callers_that_the_unwinder_finds)
{
    if (check_under_tsan()) {
        skipped("its signal handlers run elsewhere");
        return;
    }
    walk_with_rows(W_ROWS_OF_M);
    walk_with_rows(FEW_ROWS); /* they displace each other */
}
