/* SPDX-License-Identifier: MIT */
/*
 * Statistics as text: JSON for tools and for the live page, and the lines of WEFT_DEBUG=schedtrace=MS.
 *
 * The JSON's keys are the names of the fields in weft.h; a field that is not in the tables below would be missing, which a test
 * notices. All of it is gathered first and written afterwards: the writer may have to wait for the reader.
 */
#include "weft_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text that grows -------------------------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t len, room;
    bool failed; /* no memory: the rest is dropped */
};

static bool make_room(struct text *t, size_t n)
{
    if (t->room - t->len > n)
        return true;
    size_t room = 2 * t->room + n + 256;
    char *at = t->failed ? NULL : realloc(t->at, room);
    t->failed = at == NULL;
    if (t->failed)
        return false;
    t->at = at;
    t->room = room;
    return true;
}

static void W_PRINTF(2, 3) add(struct text *t, const char *fmt, ...)
{
    enum { MOST = 256 }; /* of what is added at once */
    va_list ap;
    if (!make_room(t, MOST))
        return;
    va_start(ap, fmt);
    int n = vsnprintf(t->at + t->len, MOST, fmt, ap);
    va_end(ap);
    W_ASSERT(n >= 0 && n < MOST);
    t->len += (size_t)n;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* A field of 64 bits. */
struct field {
    const char *name;
    size_t offset;
};

#define TOTAL(name) #name, offsetof(weft_stats_t, name)
static const struct field TOTALS[] = {
    {TOTAL(time_ns)},
    {TOTAL(uptime_ns)},
    {TOTAL(spawned)},
    {TOTAL(ended)},
    {TOTAL(alive)},
    {TOTAL(switches)},
    {TOTAL(parks)},
    {TOTAL(overflows)},
    {TOTAL(steals_tried)},
    {TOTAL(steals_done)},
    {TOTAL(stolen)},
    {TOTAL(preempts_asked)},
    {TOTAL(preempts_signalled)},
    {TOTAL(preempts_at_call)},
    {TOTAL(preempts_by_signal)},
    {TOTAL(regions)},
    {TOTAL(handoffs_given)},
    {TOTAL(handoffs_retaken)},
    {TOTAL(handoffs_found)},
    {TOTAL(handoffs_pinned)},
    {TOTAL(polls)},
    {TOTAL(events)},
    {TOTAL(thread_spins)},
    {TOTAL(thread_sleeps)},
    {TOTAL(thread_wakes)},
    {TOTAL(threads_made)},
    {TOTAL(threads)},
    {TOTAL(threads_idle)},
    {TOTAL(threads_spinning)},
    {TOTAL(threads_running)},
    {TOTAL(threads_blocked)},
    {TOTAL(threads_pinned)},
    {TOTAL(procs)},
    {TOTAL(procs_idle)},
    {TOTAL(queue_local)},
    {TOTAL(queue_high)},
    {TOTAL(queue_ran)},
    {TOTAL(queue_fresh)},
    {TOTAL(queue_heavy)},
    {TOTAL(queue_low)},
    {TOTAL(timers)},
    {TOTAL(io_waits)},
    {TOTAL(records)},
    {TOTAL(stacks)},
    {TOTAL(stack_used)},
    {TOTAL(stack_cached)},
    {TOTAL(stack_mapped)},
    {NULL, 0},
};

#define PROC(name) #name, offsetof(weft_proc_stats, name)
static const struct field PROCS[] = {
    {PROC(id)},
    {PROC(thread)},
    {PROC(goroutine)},
    {PROC(running_ns)},
    {PROC(spawned)},
    {PROC(ended)},
    {PROC(switches)},
    {PROC(parks)},
    {PROC(overflows)},
    {PROC(steals_tried)},
    {PROC(steals_done)},
    {PROC(stolen)},
    {PROC(preempts_at_call)},
    {PROC(preempts_by_signal)},
    {PROC(regions)},
    {PROC(handoffs_given)},
    {PROC(handoffs_retaken)},
    {PROC(handoffs_found)},
    {PROC(handoffs_pinned)},
    {PROC(polls)},
    {PROC(events)},
    {PROC(queue_slot)},
    {PROC(queue_ring)},
    {PROC(queue_fresh)},
    {PROC(timers)},
    {PROC(stacks_cached)},
    {NULL, 0},
};

#define THREAD(name) #name, offsetof(weft_thread_stats, name)
static const struct field THREADS[] = {
    {THREAD(id)},    {THREAD(tid)},    {THREAD(proc)},  {THREAD(goroutine)},      {THREAD(cpu_ns)},
    {THREAD(spins)}, {THREAD(sleeps)}, {THREAD(wakes)}, {THREAD(preempts_asked)}, {NULL, 0},
};

static const char *const PROC_STATES[] = {"idle", "running", "blocked", "retired"};
static const char *const THREAD_STATES[] = {"idle", "spinning", "running", "blocked", "pinned"};

/* The fields, each with a comma before it but for the first after a brace. */
static void add_fields(struct text *t, const struct field *f, const void *stats)
{
    for (const char *comma = ""; f->name != NULL; f++, comma = ",")
        add(t, "%s\"%s\":%lld", comma, f->name, *(const long long *)(const void *)((const char *)stats + f->offset));
}

static void add_procs(struct text *t, const weft_proc_stats *procs, int n)
{
    for (int i = 0; i < n; i++) {
        add(t, "%s{", i > 0 ? ",\n" : "\n");
        add_fields(t, PROCS, &procs[i]);
        add(t, ",\"state\":\"%s\"}", PROC_STATES[procs[i].state]);
    }
}

static void add_threads(struct text *t, const weft_thread_stats *threads, int n)
{
    for (int i = 0; i < n; i++) {
        add(t, "%s{", i > 0 ? ",\n" : "\n");
        add_fields(t, THREADS, &threads[i]);
        add(t, ",\"state\":\"%s\"}", THREAD_STATES[threads[i].state]);
    }
}

struct snapshot {
    weft_stats_t totals;
    weft_proc_stats *procs;
    weft_thread_stats *threads;
    int proc_count, thread_count;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Processors and threads that come into being while we look are not listed. */
static int take(struct snapshot *s)
{
    int r = weft_stats(&s->totals), procs = weft_stats_procs(NULL, 0), threads = weft_stats_threads(NULL, 0);
    if (r != 0 || procs < 0 || threads < 0)
        return -EPERM;
    s->procs = calloc((size_t)procs + 1, sizeof *s->procs);
    s->threads = calloc((size_t)threads + 1, sizeof *s->threads);
    if (s->procs == NULL || s->threads == NULL)
        return -ENOMEM;
    s->proc_count = least(weft_stats_procs(s->procs, procs), procs);
    s->thread_count = least(weft_stats_threads(s->threads, threads), threads);
    return s->proc_count < 0 || s->thread_count < 0 ? -EPERM : 0; /* the run has ended meanwhile */
}

static void print(struct text *t, const struct snapshot *s)
{
    add(t, "{\"time_ns\":%lld,\"totals\":{", (long long)s->totals.time_ns);
    add_fields(t, TOTALS, &s->totals);
    add(t, "},\n\"procs\":[");
    add_procs(t, s->procs, s->proc_count);
    add(t, "],\n\"threads\":[");
    add_threads(t, s->threads, s->thread_count);
    add(t, "]}\n");
}

static int write_all(int fd, const char *at, size_t left)
{
    while (left > 0) {
        ssize_t n = weft_write(fd, at, left);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}

int weft_stats_json(int fd)
{
    struct snapshot s = {.procs = NULL};
    struct text t = {0};
    int r = take(&s);
    if (r == 0)
        print(&t, &s);
    if (r == 0)
        r = t.failed ? -ENOMEM : write_all(fd, t.at, t.len);
    free(t.at);
    free(s.procs);
    free(s.threads);
    return r;
}

/* ---- WEFT_DEBUG=schedtrace=MS ----------------------------------------------------------------------------------- */

/* Of the last line; of the beginning of the run, before the first. Monitor. */
static struct {
    int64_t run; /* when the run began that this is about */
    int64_t at, next;
    uint64_t switches;
} last;

static void add_line(struct text *t, const weft_stats_t *s)
{
    int64_t passed = s->time_ns - last.at;
    add(t, "weft: %lldms procs %llu (%llu idle)", (long long)(s->uptime_ns / WEFT_MSEC), (unsigned long long)s->procs,
        (unsigned long long)s->procs_idle);
    add(t, " threads %llu (%llu running %llu spinning %llu idle %llu blocked)", (unsigned long long)s->threads,
        (unsigned long long)s->threads_running, (unsigned long long)s->threads_spinning,
        (unsigned long long)s->threads_idle, (unsigned long long)s->threads_blocked);
    add(t, " global %llu/%llu/%llu/%llu/%llu local [", (unsigned long long)s->queue_high,
        (unsigned long long)s->queue_ran, (unsigned long long)s->queue_fresh, (unsigned long long)s->queue_heavy,
        (unsigned long long)s->queue_low);
    for (uint64_t i = 0; i < s->procs; i++)
        add(t, "%s%u", i > 0 ? " " : "", w_p_work(w_sched.ps[i]));
    add(t, "] alive %llu switches/s %.0f\n", (unsigned long long)s->alive,
        passed > 0 ? (double)(s->switches - last.switches) * 1e9 / (double)passed : 0.0);
}

static void print_line(void)
{
    struct text t = {0};
    weft_stats_t s;
    w_stats_gather(&s);
    add_line(&t, &s);
    if (!t.failed)
        W_RESULT(syscall(SYS_write, STDERR_FILENO, t.at, t.len));
    free(t.at);
    last.at = s.time_ns;
    last.switches = s.switches;
}

int64_t w_schedtrace(int64_t now)
{
    int64_t period = w_sched.debug.schedtrace;
    if (period == 0)
        return WEFT_NEVER;
    if (last.run != w_sched.began_at) {
        last.run = last.at = w_sched.began_at;
        last.next = last.run + period;
        last.switches = 0;
    }
    if (now >= last.next) {
        print_line();
        last.next = last.next + period > now ? last.next + period : now + period;
    }
    return last.next - now;
}
