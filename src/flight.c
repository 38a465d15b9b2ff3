/* SPDX-License-Identifier: MIT */
/*
 * The flight recorder: the tapes of trace.h without a writer. Each thread overwrites what is oldest on its own, and nothing is
 * written anywhere until somebody asks, or until the program is stuck or dies: everything is asleep for good, a goroutine has run out of its
 * stack, SIGSEGV, SIGBUS or SIGABRT (weft's own fatal errors too) are about to end the process.
 *
 * The file of a dying program is written in the handler of the signal, on the alternate stack of the thread, while the others
 * run on: what they overwrite meanwhile is left out. Nothing there allocates or takes a lock, the dynamic
 * linker's included (dynsym.c); whoever dies second does not wait.
 */
#include "sys_io.h"
#include "weft_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status { OFF, STARTING, ON };
enum { LEAST = 1024 }; /* events of a tape */
static const uint64_t MOST_MB = 1 << 20;

enum { END_COUNT = 3 };

static struct {
    _Atomic uint32_t status;            /* enum status: who moves it on owns the rest */
    _Atomic uint32_t dumping;           /* one at a time */
    _Atomic bool reported;              /* it was written because of a crash or a deadlock */
    struct w_trace_out *out;            /* dumping */
    char path[PATH_MAX];                /* for w_flight_report; constant while ON */
    struct sigaction former[END_COUNT]; /* of the signals that end a process; likewise */
} flight;

/* ---- writing ------------------------------------------------------------------------------------------------------ */

/* The caller has `dumping`. */
static int dump_to(const char *path, bool dying)
{
    long fd = w_sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return (int)fd;
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next)
        w_view_reset(t, W_READER_FLIGHT, 0);
    w_trace_into(flight.out, (int)fd, NULL, dying);
    w_trace_drain(flight.out, true);
    int r = w_trace_error(flight.out);
    long closed = w_sys_close((int)fd);
    return r != 0 ? r : (int)closed;
}

static bool begin_dump(void)
{
    uint32_t none = 0;
    return cas_acquire(&flight.dumping, &none, 1); /* [FL-1] what the one before has read */
}

static void end_dump(void)
{
    st_release(&flight.dumping, 0); /* [FL-1] */
}

void w_flight_report(const char *cause)
{
    if (ld_acquire(&flight.status) != ON || /* [FL-2] */
        atomic_exchange_explicit(&flight.reported, true, memory_order_relaxed) || !begin_dump())
        return;
    int r = dump_to(flight.path, true);
    end_dump();
    if (r == 0)
        w_say("%s: the last events are in %s", cause, flight.path);
    else
        w_say("%s: the last events cannot be written to %s: error %d", cause, flight.path, -r);
}

/* ---- ends --------------------------------------------------------------------------------------------------------- */

/* SIGSEGV and SIGBUS are overflow.c's. */
static const struct {
    int sig;
    const char *name;
} ENDS[] = {{SIGABRT, "SIGABRT"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}};

static void on_end(int sig, siginfo_t *info, void *context)
{
    int i = 0;
    while (i < END_COUNT - 1 && ENDS[i].sig != sig)
        i++;
    const struct sigaction *f = &flight.former[i];
    w_flight_report(ENDS[i].name);
    if (f->sa_flags & SA_SIGINFO) {
        f->sa_sigaction(sig, info, context);
    } else if (f->sa_handler != SIG_DFL && f->sa_handler != SIG_IGN) {
        f->sa_handler(sig);
    } else {
        sigaction(sig, f, NULL);
        raise(sig); /* comes when we return */
    }
}

static int catch_ends(void)
{
    struct sigaction sa = {.sa_sigaction = on_end, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    long r = 0;
    sigemptyset(&sa.sa_mask);
    for (int i = 0; r == 0 && i < END_COUNT; i++)
        r = W_RESULT(sigaction(ENDS[i].sig, &sa, &flight.former[i]));
    return (int)r;
}

/* Unless the program has put its own in place meanwhile. */
static void release_ends(void)
{
    struct sigaction now;
    for (int i = 0; i < END_COUNT; i++)
        if (sigaction(ENDS[i].sig, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_end)
            sigaction(ENDS[i].sig, &flight.former[i], NULL);
}

/* ---- starting and stopping ---------------------------------------------------------------------------------------- */

/* The folder may be another one when it is needed. */
static int settle_path(void)
{
    const char *given = getenv("WEFT_FLIGHT_FILE");
    char name[64], folder[PATH_MAX];
    snprintf(name, sizeof name, "weft-flight-%d.json", (int)getpid());
    const char *file = given != NULL && *given != '\0' ? given : name;
    bool relative = *file != '/' && getcwd(folder, sizeof folder) != NULL;
    int n = relative ? snprintf(flight.path, sizeof flight.path, "%s/%s", folder, file)
                     : snprintf(flight.path, sizeof flight.path, "%s", file);
    return n >= 0 && (size_t)n < sizeof flight.path ? 0 : -ENAMETOOLONG;
}

/* A power of two that fits into each P's part. */
static size_t events_for(size_t bytes)
{
    size_t part = bytes / ld_relaxed(&w_sched.procs) / sizeof(struct w_event), n = LEAST;
    while (2 * n <= part)
        n *= 2;
    return n;
}

static int start(size_t bytes)
{
    uint32_t off = OFF;
    int r;
    if (!cas_acquire(&flight.status, &off, STARTING)) /* [FL-2] */
        return -EBUSY;
    if ((r = settle_path()) != 0)
        goto off;
    r = -ENOMEM;
    flight.out = w_trace_open(W_READER_FLIGHT);
    if (flight.out == NULL)
        goto off;
    if ((r = w_trace_want(W_TRACE_FLIGHT, events_for(bytes))) != 0)
        goto close;
    if ((r = catch_ends()) != 0)
        goto unwant;
    st_relaxed(&flight.reported, false);
    st_release(&flight.status, ON); /* [FL-2] */
    return 0;
unwant:
    w_trace_unwant(W_TRACE_FLIGHT);
close:
    w_trace_close(flight.out);
off:
    st_release(&flight.status, OFF); /* [FL-2] */
    return r;
}

int weft_flight_start(size_t bytes)
{
    struct w_m *m;
    if (bytes == 0 || bytes > MOST_MB << 20)
        return -EINVAL;
    int r = w_enter_call(&m);
    if (r != 0)
        return r;
    r = start(bytes);
    w_exit_call(m);
    return r;
}

int weft_flight_dump(const char *path)
{
    if (path == NULL)
        return -EINVAL;
    int r = w_stay_begin();
    if (r != 0)
        return r;
    r = ld_acquire(&flight.status) != ON ? -ESRCH : begin_dump() ? 0 : -EBUSY; /* [FL-2] */
    if (r == 0) {
        r = dump_to(path, false);
        end_dump();
    }
    w_stay_end();
    return r;
}

/* ---- begin and end of a run --------------------------------------------------------------------------------------- */

int w_flight_begin(void)
{
    uint64_t mb = 0;
    int r = w_env_number("WEFT_FLIGHT", MOST_MB, &mb);
    if (r == 0 && mb > 0 && (r = start(mb << 20)) != 0)
        w_say("WEFT_FLIGHT=%lu: %s", mb, strerror(-r));
    return r;
}

void w_flight_end(void)
{
    if (ld_relaxed(&flight.status) != ON)
        return;
    for (uint32_t i = 0; !begin_dump(); i++)
        w_back_off(i);
    release_ends();
    w_trace_unwant(W_TRACE_FLIGHT);
    w_trace_close(flight.out);
    st_release(&flight.status, OFF); /* [FL-2] */
    end_dump();
}
