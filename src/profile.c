/* SPDX-License-Identifier: MIT */
/*
 * The sampling CPU profile. Each M has a timer that counts its processor time and sends SIGPROF to that thread: who sleeps is not
 * asked. The handler walks the stack of what it interrupted and counts it in a table of the M's own, so that a profile of any
 * length takes no more memory than there are different stacks, and nothing has to be carried away while the program runs. The
 * tables are put together and written when the profile ends (profile_write.c).
 *
 * The handler may find the thread anywhere. It walks the stack only if that is the stack of the goroutine which the M runs, or
 * the M's own, checks at each frame that it is still inside, and stops at w_entry; the few instructions in which the
 * stack is changed (switch_*.S) are counted without their callers. The unwinder of gcc 12 and later finds its tables without a lock
 * (_dl_find_object of glibc 2.35); it is called once before the first sample, so that it is loaded.
 *
 *   PF1  a handler says that it is inside, then looks whether the profile is on; who ends it says that it is off, then waits until
 *        nobody is inside. After that no table, M or G is touched by one                                          [PF-1]
 *   PF2  once installed the handler stays: a signal may be under way, and without a handler SIGPROF ends the process
 */
#include "dump.h"
#include "preempt.h"
#include "profile.h"
#include "scope.h"
#include "sigframe.h"
#include "sys_io.h"
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

enum { SIGNAL = SIGPROF, DEFAULT_HZ = 100, MOST_HZ = 10000 };

enum status { OFF, STARTING, ON, STOPPING };

static struct {
    _Atomic uint32_t status;  /* enum status: who moves it on owns what is below */
    _Atomic uint32_t on;      /* handlers count */
    _Atomic uint32_t inside;  /* handlers that run */
    struct w_samples *tables; /* all; w_sched.lock */
    struct w_samples *spares; /* w_sched.lock */
    int hz;                   /* constant while ON */
    int fd;
    enum w_profile_format format;
    int64_t began, began_at; /* since the epoch; of our clock */
    struct sigaction former; /* whoever had the signal before us; constant once installed */
    bool installed;
} profile;

/* ---- walking ------------------------------------------------------------------------------------------------------ */

struct walk {
    uintptr_t pc, lo, hi; /* what was interrupted; the stack that it was on */
    uintptr_t sp;         /* of the last frame */
    bool reached;
    uint32_t n;
    uintptr_t frames[W_PROFILE_FRAMES];
};

/* A return address is one past its call. */
static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *arg)
{
    struct walk *w = arg;
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before), sp = _Unwind_GetCFA(context);
    if (!w->reached) {
        w->reached = pc == w->pc;
        return _URC_NO_REASON;
    }
    if (pc == 0 || w_code_is_entry(pc) || sp < w->sp || sp >= w->hi || w->n == W_PROFILE_FRAMES)
        return _URC_END_OF_STACK;
    w->sp = sp;
    w->frames[w->n++] = before ? pc : pc - 1;
    return _URC_NO_REASON;
}

extern const char w_switch_to[], w_switch_end[];

/* The stack that the interrupted code is on; false: it cannot be told. */
static bool find_stack(const struct w_m *m, const struct w_g *g, struct walk *w)
{
    uintptr_t sp = w->sp;
    if (w->pc - (uintptr_t)w_switch_to < (uintptr_t)(w_switch_end - w_switch_to))
        return false;
    if (g != NULL && g->stack_lo != NULL) {
        w->lo = (uintptr_t)g->stack_lo;
        w->hi = (uintptr_t)w_stack_top(g->stack_class, g->stack_lo);
        if (sp >= w->lo && sp < w->hi)
            return true;
    }
    w->lo = m->own_at;
    w->hi = m->own_end;
    return sp >= w->lo && sp < w->hi;
}

static void walk_stack(const struct w_m *m, const struct w_g *g, const ucontext_t *context, struct walk *w)
{
    *w = (struct walk){.pc = w_context_pc(context), .sp = w_context_sp(context), .n = 1};
    w->frames[0] = w->pc;
    if (find_stack(m, g, w))
        _Unwind_Backtrace(add_frame, w);
}

/* ---- counting ----------------------------------------------------------------------------------------------------- */

enum {
    HEAD = sizeof(struct w_stack_count) / sizeof(uint64_t),
    MOST_WORDS = HEAD + W_PROFILE_NAME / 8 + W_PROFILE_FRAMES
};

union stack {
    struct w_stack_count head;
    uint64_t word[MOST_WORDS];
};

static uint64_t hash_of(const uint64_t *word, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ word[i]) * 0x9E3779B97F4A7C15ull ^ h >> 29;
    return h;
}

/* How many words it has. A name is read only outside the runtime, which may be about to free it. */
static size_t describe(const struct w_m *m, const struct w_g *g, const struct walk *w, union stack *s)
{
    const char *name = g != NULL && !ld_relaxed(&m->in_runtime) ? g->name : NULL;
    size_t length = name != NULL ? strnlen(name, W_PROFILE_NAME) : 0, words = (length + 7) / 8;
    s->head = (struct w_stack_count){.count = 1, .name_at = words, .frames = w->n};
    s->head.entry = g != NULL ? (uintptr_t)w_member_fn(g) : 0;
    if (words > 0) {
        s->word[HEAD + words - 1] = 0;
        memcpy(&s->word[HEAD], name, length);
    }
    for (uint32_t i = 0; i < w->n; i++)
        s->word[HEAD + words + i] = w->frames[i];
    s->head.hash = hash_of(&s->word[2], HEAD - 2 + words + w->n);
    return HEAD + words + w->n;
}

static void count(struct w_samples *t, const union stack *s, size_t words)
{
    uint32_t at = (uint32_t)(s->head.hash % W_PROFILE_SLOTS);
    for (uint32_t i = 0; i < W_PROFILE_SLOTS / 2; i++, at = (at + 1) % W_PROFILE_SLOTS) {
        if (t->slot[at] == 0)
            break;
        uint64_t *known = &t->word[t->slot[at]];
        if (memcmp(known + 1, s->word + 1, (words - 1) * sizeof(uint64_t)) == 0) {
            known[0]++;
            t->taken++;
            return;
        }
    }
    if (t->slot[at] != 0 || t->used + words > W_PROFILE_WORDS) {
        t->dropped++;
        return;
    }
    memcpy(&t->word[t->used], s->word, words * sizeof(uint64_t));
    t->slot[at] = t->used;
    t->used += (uint32_t)words;
    t->taken++;
}

static void sample(const ucontext_t *context)
{
    struct w_m *m = w_m();
    struct w_samples *t = m != NULL ? ld_relaxed(&m->samples) : NULL;
    struct walk w;
    union stack s;
    if (t == NULL)
        return;
    const struct w_g *g = m->g;
    walk_stack(m, g, context, &w);
    count(t, &s, describe(m, g, &w, &s));
}

/* ---- the signal --------------------------------------------------------------------------------------------------- */

/* One that is not ours. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
    const struct sigaction *f = &profile.former;
    if (f->sa_flags & SA_SIGINFO) {
        f->sa_sigaction(sig, info, context);
    } else if (f->sa_handler == SIG_DFL) {
        sigaction(sig, f, NULL);
        raise(sig);
    } else if (f->sa_handler != SIG_IGN) {
        f->sa_handler(sig);
    }
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &profile) {
        pass_on(sig, info, context);
        return;
    }
    int *at = w_errno_location(), err = *at;
    add_seq(&profile.inside, 1);  /* [PF-1] */
    if (ld_seq(&profile.on) != 0) /* [PF-1] */
        sample(context);
    sub_seq(&profile.inside, 1); /* [PF-1] */
    *at = err;
}

/* PF2. The signal that preempts has to wait. */
static int install(void)
{
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    struct walk w = {.reached = true};
    if (profile.installed)
        return 0;
    _Unwind_Backtrace(add_frame, &w); /* what it makes at its first call is there before a handler needs it */
    sigemptyset(&sa.sa_mask);
    sigaddset(&sa.sa_mask, SIGURG);
    int r = (int)W_RESULT(sigaction(SIGNAL, &sa, &profile.former));
    profile.installed = r == 0;
    return r;
}

/* ---- timers and tables of Ms -------------------------------------------------------------------------------------- */

static struct w_samples *take_table_locked(void)
{
    struct w_samples *t = profile.spares;
    if (t != NULL) {
        profile.spares = t->spare;
        return t;
    }
    t = w_map(sizeof *t);
    if (t == NULL)
        return NULL;
    t->used = 1;
    t->next = profile.tables;
    profile.tables = t;
    return t;
}

/* By the processor time of the thread, which it is sent to. */
static int arm_timer(struct w_m *m)
{
    enum { OF_A_THREAD = 6, THREAD_ID = 4 };
    pid_t tid = ld_relaxed(&m->tid);
    struct sigevent event = {.sigev_notify = THREAD_ID, .sigev_signo = SIGNAL, .sigev_value.sival_ptr = &profile};
    struct itimerspec every = {0};
    clockid_t clock = (clockid_t)(~(unsigned)tid << 3 | OF_A_THREAD);
    event._sigev_un._tid = tid;
    every.it_interval.tv_sec = profile.hz == 1;
    every.it_interval.tv_nsec = 1000000000 / profile.hz % 1000000000;
    every.it_value = every.it_interval;
    int r = (int)W_RESULT(syscall(SYS_timer_create, clock, &event, &m->timer));
    if (r != 0)
        return r;
    m->timed = true;
    return (int)W_RESULT(syscall(SYS_timer_settime, m->timer, 0, &every, NULL));
}

static int attach_locked(struct w_m *m)
{
    if (m->timed || ld_relaxed(&m->tid) == 0) /* one that has not begun does this itself */
        return 0;
    if (ld_relaxed(&m->samples) == NULL)
        st_relaxed(&m->samples, take_table_locked()); /* relaxed: its timer, which makes it look, comes later */
    return ld_relaxed(&m->samples) != NULL ? arm_timer(m) : -ENOMEM;
}

void w_profile_detach_locked(struct w_m *m)
{
    struct w_samples *t = ld_relaxed(&m->samples);
    if (m->timed)
        W_RESULT(syscall(SYS_timer_delete, m->timer));
    m->timed = false;
    st_relaxed(&m->samples, NULL);
    if (t == NULL)
        return;
    t->spare = profile.spares;
    profile.spares = t;
}

/* A thread begins. */
void w_profile_attach(struct w_m *m)
{
    sigset_t set;
    if (ld_relaxed(&profile.on) == 0)
        return;
    sigemptyset(&set);
    sigaddset(&set, SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (ld_relaxed(&profile.on) != 0 && !m->abandoned)
        attach_locked(m);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

static int attach_all(void)
{
    int r = 0;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    xchg_seq(&profile.on, 1); /* [PF-1] under the lock: a thread that begins sees it, or is in the list */
    for (struct w_m *m = w_sched.all_ms; m != NULL && r == 0; m = m->all_next)
        r = attach_locked(m);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return r;
}

/* PF1. */
static void detach_all(void)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    xchg_seq(&profile.on, 0); /* [PF-1] */
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next)
        w_profile_detach_locked(m);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    for (uint32_t i = 0; ld_seq(&profile.inside) != 0; i++) /* [PF-1] */
        w_back_off(i);
}

static void free_tables(void)
{
    struct w_samples *t = profile.tables, *next;
    profile.tables = profile.spares = NULL;
    for (; t != NULL; t = next) {
        next = t->next;
        munmap(t, sizeof *t);
    }
}

/* ---- starting and stopping ---------------------------------------------------------------------------------------- */

static int64_t since_epoch(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

static int start(int fd, enum w_profile_format format, int hz)
{
    uint32_t off = OFF;
    if (!cas_acquire(&profile.status, &off, STARTING)) /* [PF-2] */
        return -EBUSY;
    W_RESULT(ftruncate(fd, 0));
    profile.fd = fd;
    profile.format = format;
    profile.hz = hz == 0 ? DEFAULT_HZ : hz;
    profile.began = since_epoch();
    profile.began_at = w_now();
    int r = install();
    if (r == 0 && (r = attach_all()) != 0) {
        detach_all();
        free_tables();
    }
    st_release(&profile.status, r == 0 ? ON : OFF); /* [PF-2] */
    return r;
}

static int check_and_start(const char *path, int hz)
{
    enum w_profile_format format = w_profile_format_of(path);
    if (format == W_PROFILE_UNKNOWN || hz < 0 || hz > MOST_HZ)
        return -EINVAL;
    if (ld_relaxed(&profile.status) != OFF) /* relaxed: a file that is in use is not opened in vain */
        return -EBUSY;
    long fd = w_sys_open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return (int)fd;
    int r = start((int)fd, format, hz);
    if (r != 0)
        w_sys_close((int)fd);
    return r;
}

struct writing {
    struct w_profile p;
    int result;
};

static void *write_file(void *arg)
{
    struct writing *w = arg;
    w->result = w_profile_write(&w->p, profile.fd, profile.format);
    return NULL;
}

/* The caller has moved the status on. Names from debug information need a stack that no goroutine has. */
static int finish(void)
{
    detach_all();
    struct writing w = {.p = {.tables = profile.tables, .hz = profile.hz, .began = profile.began}};
    w.p.length = w_now() - profile.began_at;
    if (!w_call_in_thread(write_file, &w)) {
        w.p.quick = true;
        write_file(&w);
    }
    free_tables();
    long closed = w_sys_close(profile.fd);
    st_release(&profile.status, OFF); /* [PF-2] */
    w_futex_wake(&profile.status, INT_MAX);
    return w.result != 0 ? w.result : (int)closed;
}

static bool claim_end(void)
{
    uint32_t on = ON;
    return cas_acquire(&profile.status, &on, STOPPING); /* [PF-2] */
}

int weft_profile_start(const char *path, int hz)
{
    if (path == NULL)
        return -EINVAL;
    struct w_m *m;
    int r = w_enter_call(&m);
    if (r != 0)
        return r;
    r = check_and_start(path, hz);
    w_exit_call(m);
    return r;
}

int weft_profile_stop(void)
{
    int r = w_stay_begin();
    if (r != 0)
        return r;
    r = claim_end() ? finish() : -ESRCH;
    w_stay_end();
    return r;
}

/* ---- begin and end of a run --------------------------------------------------------------------------------------- */

int w_profile_begin(void)
{
    const char *path = getenv("WEFT_PROFILE");
    if (path == NULL || *path == '\0')
        return 0;
    int r = check_and_start(path, 0);
    if (r == -EINVAL)
        w_say("WEFT_PROFILE=%s: its name is to end in .folded, .txt, .pb or .pb.gz", path);
    else if (r != 0)
        w_say("WEFT_PROFILE=%s: %s", path, strerror(-r));
    return r;
}

void w_profile_end(void)
{
    if (claim_end()) {
        int r = finish();
        if (r != 0)
            w_say("the profile is not complete: %s", strerror(-r));
    }
    while (ld_acquire(&profile.status) == STOPPING) /* [PF-2] */
        w_futex_wait(&profile.status, STOPPING, -1);
}
