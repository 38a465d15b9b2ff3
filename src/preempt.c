/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous preemption: a goroutine that computes and calls nothing is stopped by a signal, and goes on later.
 *
 * The monitor, or whoever has made somebody urgent ready, asks an M to let others run (w_ask: its gate is closed, so its next
 * runtime call sees to it), and interrupts its thread (w_interrupt). The handler runs on the M's alternate stack, where it
 * needs no room of the goroutine's. If the interrupted code may be stopped, the kernel's frame, which holds all registers, is
 * copied to the goroutine's own stack below what is in use there, and the handler goes on there as if the kernel had
 * delivered the signal to that stack: it makes a runtime call that finds the gate closed, is switched away from, comes back when it
 * is the goroutine's turn, perhaps on another thread, and returns through sigreturn to where the goroutine was.
 *
 *      goroutine's stack    [ .. frames .. | in use | red zone ]        [ copy of the frame | stopped() | w_enter_slow() .. ]
 *      alternate stack      [ frame | on_signal() ]  ── copied, and left ──^
 *
 * A goroutine may be stopped if
 *   PR1  it is outside the runtime, holds a P, is not in a blocking region nor in weft_preempt_off;
 *   PR2  the program counter is in the main program, or in an object that was allowed, and not in the runtime's own code
 *        (section weft_text): never in libc, whose data belongs to the thread;
 *   PR3  so are all its callers, as far down as its entry: not in a callback of libc (qsort), nor in a handler of
 *        another signal. A word on the stack that looks like an address in other code is cheap to find, and only then is
 *        the stack walked through to be sure (frames.c);
 *   PR4  there is room on its stack for the frame and for what the runtime needs.
 * What it was stopped at may hold an address in the thread's own storage (&errno, in a register or on the stack): it is
 * pinned until it goes on (PR5). The frame says which alternate stack and which signal mask the kernel is to put in place:
 * those of the thread that it goes on with (PR6). Only a thread that runs is interrupted, so that usleep() and poll() do not
 * return early (PR7).
 *
 * Off where all this cannot be told: under TSan (which delays signals) and valgrind (whose frames are its own), in a program without shared libc or with a malloc of
 * its own, for then the code of libc or malloc lies in the main program.
 *
 * SIGURG is used, as in Go: nobody minds it by default. One that is not ours goes to whoever had it before; if the program
 * sets a handler during the run, we put ourselves before that one.
 */
#include "preempt.h"
#include "frames.h"
#include "look.h"
#include "park.h"
#include "sigframe.h"
#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIGNAL = SIGURG,
    ROOM = 8 << 10, /* for the runtime: a switch takes 1 KiB, making a thread 4 */
    MAX_FRAMES =
        256, /* deeper stacks with words of other code on them are left alone: a walk takes 0.05 us a frame and more */
};

static struct {
    bool on; /* constant while a run is up */
    pid_t pid;
    _Atomic(const struct sigaction *)
        former;                  /* whoever had the signal before us; atomic: who sends looks for a new one */
    struct sigaction formers[2]; /* the present one and the next; sending */
    struct w_spin sending;
} state;

/* ---- asking and sending ----------------------------------------------------------------------------------------- */

void w_ask(struct w_m *m, enum w_request request)
{
    /* relaxed: a request, which carries nothing; exchanged, so that it is counted once until it is seen to */
    if (atomic_exchange_explicit(&m->preempt, (uint8_t)request, memory_order_relaxed) == W_GO_ON)
        add_relaxed(&m->count.asked, 1);
    st_relaxed(&m->gate, NULL); /* relaxed: its next runtime call or the one after will see it */
}

/* PR7. One that waits for a core may do so in the midst of a computation, or behind a call that has ended and will tell of the signal. */
static bool runs(pid_t tid, enum w_when when)
{
    return w_thread_on_core(tid) || (when == W_IF_AWAKE && w_thread_state(tid) == 'R');
}

static void on_signal(int sig, siginfo_t *info, void *context);

static bool is_ours(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_signal;
}

/* Before whoever has it now, in one step: a handler that the program puts in place meanwhile is not lost. */
static int put_before(void)
{
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    struct sigaction *spare = &state.formers[ld_relaxed(&state.former) == &state.formers[0]];
    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGNAL, &sa, spare) != 0)
        return -EINVAL;
    if (!is_ours(spare))
        st_release(&state.former, spare); /* [PE-1] */
    return 0;
}

/* The thread may be another by now, or none: then nothing happens. Last comes what may end any moment: that it runs, and that p, if
 * there is one, runs whom the monitor saw. */
static bool send_to(pid_t tid, struct w_p *p, enum w_when when, void *value)
{
    if (tid == 0)
        return false;
    w_spin_lock(&state.sending);
    put_before();
    w_spin_unlock(&state.sending);
    if ((when != W_AT_ONCE && !runs(tid, when)) || (p != NULL && ld_relaxed(&p->count.switches) != p->seen_switches))
        return false;
    siginfo_t info = {.si_code = SI_QUEUE};
    info.si_pid = state.pid;
    info.si_value.sival_ptr = value;
    return W_RESULT(syscall(SYS_rt_tgsigqueueinfo, state.pid, tid, SIGNAL, &info)) == 0;
}

bool w_send(pid_t tid, void *value)
{
    return send_to(tid, NULL, W_IF_AWAKE, value);
}

bool w_interrupt(pid_t tid, struct w_p *p, enum w_when when)
{
    if (!state.on)
        return true;
    w_code_refresh();
    bool sent = send_to(tid, p, when, &state);
    if (sent)
        add_relaxed(&w_sched.signals, 1);
    return sent;
}

/* ---- may it be stopped here? ------------------------------------------------------------------------------------- */

/* PR1. Inside the runtime from here on, as weft_id is: nobody abandons it now, and its G is there. */
static bool enter_from_its_own_code(struct w_m *m)
{
    if (m == NULL || ld_relaxed(&m->in_runtime)) /* relaxed: this thread's own */
        return false;
    if (!w_enter_quietly(m))
        return false;
    if (m->g != NULL && ld_relaxed(&m->gate) == NULL && ld_relaxed(&m->blocked_p) == NULL &&
        !(m->g->flags & W_G_STEADY) && m->own_end != 0)
        return true;
    w_step_out(m);
    return false;
}

/* PR4. */
static bool has_room(const struct w_g *g, const struct w_frame *f, uintptr_t sp)
{
    uintptr_t lo = (uintptr_t)g->stack_lo;
    size_t needed = W_RED_ZONE + (size_t)(f->end - f->at) + W_FRAME_ALIGN + ROOM;
    return sp > lo && sp <= (uintptr_t)w_stack_top(g->stack_class, g->stack_lo) && sp - lo >= needed;
}

/* PR3, for sure; what cannot be told counts as other code. Each address is looked at before the tables are asked for its frame: these
 * are of objects that may be unloaded, if they are not the main program's or ours or allowed. */
static bool called_by_other_code(struct w_m *m, const ucontext_t *uc)
{
    struct w_stack_view view;
    struct w_regs regs;
    w_view_init(&view, w_context_sp(uc) - W_RED_ZONE, (uintptr_t)w_stack_top(m->g->stack_class, m->g->stack_lo));
    view.ours = true;
    w_regs_of_context(&regs, uc);
    w_rows_refresh(m->rows, w_code_changes());
    for (int frames = 0; frames < MAX_FRAMES && w_leave_frame(m->rows, &regs, &view); frames++) {
        if (w_code_is_entry(regs.pc))
            return false;
        if (!w_code_may_stop(regs.pc) && !w_code_is_ours(regs.pc))
            return true;
    }
    return true;
}

/* What the words on its stack, and in the frame, look like. */
struct signs {
    bool own;   /* addresses in the thread's own storage (PR5) */
    bool other; /* addresses in other code (PR3) */
};

static __attribute__((noinline, no_sanitize("address", "undefined"))) struct signs
look_at_words(const struct w_m *m, uintptr_t from, uintptr_t to, struct w_span span)
{
    struct signs s = {false, false};
    uintptr_t own = m->own_at, own_size = m->own_end - m->own_at;
    for (const uintptr_t *at = (const uintptr_t *)(from & ~(uintptr_t)7); at < (const uintptr_t *)to; at++) {
        uintptr_t plain = w_plain_address(*at);
        s.own |= *at - own < own_size;
        if (unlikely(plain - span.at < span.size) && !s.other)
            s.other = w_code_is_other(plain);
    }
    return s;
}

/* PR2 to PR5. */
static bool may_stop(struct w_m *m, const struct w_frame *f)
{
    uintptr_t sp = w_context_sp(f->context);
    if (!has_room(m->g, f, sp))
        return false;
    uintptr_t top = (uintptr_t)w_stack_top(m->g->stack_class, m->g->stack_lo);
    struct signs stack = look_at_words(m, sp - W_RED_ZONE, top, w_code_span());
    struct signs registers = look_at_words(m, (uintptr_t)f->at, (uintptr_t)f->end, (struct w_span){0, 0});
    m->holds_tls = stack.own || registers.own || w_code_hides_tls();
    bool other = stack.other || w_code_is_other(w_plain_address(w_context_link(f->context)));
    return !other || !called_by_other_code(m, f->context);
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

/* The handler's frame on the alternate stack is no longer needed: another signal may come to this thread, whoever runs here next. (Not
 * before: each that came while one was under way would take 3 to 12 KiB more of that stack.) If that is one that was stopped as well,
 * its return through its own frame lets them in. */
void w_let_signals_in(struct w_m *m)
{
    sigset_t set;
    if (!m->masked)
        return;
    m->masked = false;
    sigemptyset(&set);
    sigaddset(&set, SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* PR6. The thread's mask is that of who was stopped here right before; otherwise, be it the same thread, another goroutine may have
 * changed it meanwhile. */
static void belong_here(ucontext_t *uc, struct w_m *m)
{
    uc->uc_stack = (stack_t){.ss_sp = m->alt_stack, .ss_size = W_ALT_STACK};
    if (m->masked)
        memcpy(&uc->uc_sigmask, &m->mask, sizeof m->mask);
    else
        W_RESULT(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &uc->uc_sigmask, sizeof m->mask));
    m->masked = false;
}

/* On the goroutine's own stack, inside the runtime. Returns to where it was stopped. */
static void stopped(int sig, siginfo_t *info, void *context)
{
    struct w_m *m = w_m();
    struct w_g *g = m->g;
    ucontext_t *uc = context;
    bool pin = m->holds_tls;
    (void)sig, (void)info;
    m->masked = true;
    memcpy(&m->mask, &uc->uc_sigmask, sizeof m->mask);
    m->by_signal = m->p != NULL; /* it was not taken while it was in a call (block.c) */
    if (m->by_signal)
        w_count(&m->p->count.stopped);
    if (pin)
        w_pin(m);
    g->flags |= W_G_STOPPED;
    m = w_enter_slow(m);
    if (ld_relaxed(&m->gate) == NULL) /* as in w_leave: it was asked while it came back */
        m = w_enter_slow(m);
    g->flags &= (uint16_t)~W_G_STOPPED;
    if (pin)
        w_unpin(m);
    w_step_out(m);
    belong_here(uc, m);
}

/* As if we had not been there. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
    const struct sigaction *f = ld_acquire(&state.former); /* [PE-1] */
    sigset_t mask, before;
    if (!(f->sa_flags & SA_SIGINFO) && (f->sa_handler == SIG_DFL || f->sa_handler == SIG_IGN))
        return;
    mask = f->sa_mask;
    if (!(f->sa_flags & SA_NODEFER))
        sigaddset(&mask, sig);
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    if (f->sa_flags & SA_SIGINFO)
        f->sa_sigaction(sig, info, context);
    else
        f->sa_handler(sig);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* One of ours: stops the goroutine, or returns. Where the runtime may hold its locks nothing of it is touched. back: where the handler
 * returns to; if that is a handler of the program's, which calls the one it replaced, the frame is not ours to leave through. */
static void stop_here(siginfo_t *info, ucontext_t *context, void *back)
{
    struct w_m *m = w_m();
    if (!w_is_sigreturn(back) || !w_code_may_stop(w_context_pc(context)) || !enter_from_its_own_code(m))
        return;
    struct w_frame f = w_frame_of(info, context);
    int err = w_get_errno(m);
    w_code_begin();
    bool stop = may_stop(m, &f);
    w_code_end();
    w_set_errno(m, err);
    if (!stop) {
        w_step_out(m);
        return;
    }
    struct w_frame copy = w_frame_copy(&f, w_frame_place(&f, w_context_sp(context)));
    w_go_on_in_frame(copy.at, stopped, copy.info, copy.context, back);
}

/* A program's handler that calls the one it replaced, ours, comes back here: below the frame that called it, and not by the kernel.
 * One that left by siglongjmp leaves its frame's address behind, which no signal that the kernel delivers is mistaken for. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
    static __thread uintptr_t passing __attribute__((tls_model("initial-exec"))); /* a frame's address, or 0 */
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    if (info->si_code == SI_QUEUE && info->si_value.sival_ptr == &state) {
        stop_here(info, context, __builtin_return_address(0));
    } else if (!w_looked_at(info, context) && (frame >= passing || w_is_sigreturn(__builtin_return_address(0)))) {
        int err = *w_errno_location();
        uintptr_t outer = frame < passing ? passing : 0;
        passing = frame;
        pass_on(sig, info, context);
        passing = outer;
        *w_errno_location() = err;
    }
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

/* The goroutine that calls, which is there until quiet_end; NULL: no goroutine does, or one that its run has left behind. *inside: it was
 * in the runtime already (malloc, which takes a lock that libweft_posix knows). */
static struct w_g *quiet_begin(struct w_m *m, bool *inside)
{
    *inside = m != NULL && ld_relaxed(&m->in_runtime); /* relaxed: this thread's own */
    return m != NULL && (*inside || w_enter_quietly(m)) ? m->g : NULL;
}

static void quiet_end(struct w_m *m, bool inside)
{
    if (!inside)
        w_step_out(m);
}

void weft_preempt_off(void)
{
    bool inside;
    struct w_m *m = w_m();
    struct w_g *g = quiet_begin(m, &inside);
    if (g == NULL)
        return;
    if (++g->steady == 0)
        w_fatal("weft_preempt_off more than 65535 times in goroutine %lu", g->id);
    g->flags |= W_G_STEADY;
    quiet_end(m, inside);
}

/* For libweft_posix: change is 1 or -1, and nobody is let run. Too many ends are no misuse: locks may be given back by others. */
void weft_steady_(int change)
{
    bool inside;
    struct w_m *m = w_m();
    struct w_g *g = quiet_begin(m, &inside);
    if (g == NULL)
        return;
    if (change < 0 ? g->steady > 0 : g->steady < UINT16_MAX)
        g->steady = (uint16_t)(g->steady + change);
    g->flags = (uint16_t)(g->steady > 0 ? g->flags | W_G_STEADY : g->flags & ~W_G_STEADY);
    quiet_end(m, inside);
}

/* If somebody waits meanwhile, it runs now. */
void weft_preempt_on(void)
{
    bool inside;
    struct w_m *m = w_m();
    struct w_g *g = quiet_begin(m, &inside);
    if (g == NULL)
        return;
    if (g->steady == 0)
        w_fatal("weft_preempt_on without weft_preempt_off in goroutine %lu", g->id);
    bool last = --g->steady == 0;
    if (last)
        g->flags &= (uint16_t)~W_G_STEADY;
    quiet_end(m, inside);
    if (!last || inside || ld_relaxed(&m->preempt) == W_GO_ON)
        return;
    st_relaxed(&m->gate, NULL); /* relaxed: for ourselves, two lines below */
    if (w_enter() != NULL)
        w_leave();
}

/* ---- begin and end of a run -------------------------------------------------------------------------------------- */

static const char *why_not(void)
{
#ifdef W_TSAN
    return "ThreadSanitizer delays signals";
#endif
    if (w_on_valgrind())
        return "valgrind's signal frames cannot be moved";
    return w_code_why_not();
}

static void say_once(const char *reason)
{
    static bool said;
    if (said || !w_sched.debug.any || w_sched.quantum == WEFT_NEVER)
        return;
    said = true;
    w_say("no asynchronous preemption: %s", reason);
}

int w_preempt_init(void)
{
    state.on = false;
    state.pid = getpid();
    w_code_init();
    const char *reason = w_sched.quantum == WEFT_NEVER ? "the quantum is WEFT_NEVER" : why_not();
    if (reason != NULL) {
        say_once(reason);
        return 0;
    }
    state.on = put_before() == 0;
    return state.on ? 0 : -EINVAL;
}

/* Unless the program has put its own in place meanwhile. */
void w_preempt_done(void)
{
    struct sigaction now;
    if (sigaction(SIGNAL, NULL, &now) == 0 && is_ours(&now))
        sigaction(SIGNAL, ld_relaxed(&state.former), NULL);
    state.on = false;
    w_code_done();
}
