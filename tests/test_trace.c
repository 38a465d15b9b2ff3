/* SPDX-License-Identifier: MIT */
/* Execution traces: what they say is what happened. */
#include "tracefile.h"

enum { CHILDREN = 100 };

static char path[64];

static void compute(int64_t ns)
{
    for (int64_t end = weft_now() + ns; weft_now() < end;)
        ;
}

static struct trace_file traced_run(int procs, weft_fn *fn, void *arg)
{
    temporary(path, ".json");
    setenv("WEFT_TRACE", path, 1);
    CHECK_EQ(run_on(procs, fn, arg), 0);
    unsetenv("WEFT_TRACE");
    struct trace_file t = read_trace(path);
    CHECK(t.complete);
    return t;
}

static void done_with(struct trace_file *t)
{
    free_trace(t);
    remove(path);
}

/* ---- starts, waits, ends ---------------------------------------------------------------------------------------- */

static void child(void *arg)
{
    weft_yield();
    weft_wg_done(arg);
}

static void starts_children(void *arg)
{
    (void)arg;
    weft_wg wg = {0};
    weft_wg_add(&wg, CHILDREN);
    for (int i = 0; i < CHILDREN; i++)
        weft_go(child, &wg);
    weft_wg_wait(&wg);
    weft_sleep(WEFT_MSEC);
    while (weft_count() > 1)
        weft_yield();
}

CASE(every_start_wait_and_end_is_in_it)
{
    EACH_PROCS(p)
    {
        struct trace_file t = traced_run(p, starts_children, NULL);
        CHECK_EQ(count_events(&t, 'i', "spawn"), CHILDREN);
        CHECK_EQ(count_ends(&t, "end"), CHILDREN + 1);
        CHECK(count_ends(&t, "wait") >= 1);
        CHECK_EQ(count_ends(&t, "stop"), 0);
        CHECK_EQ(count_ends(&t, "lost"), 0);
        CHECK(count_events(&t, 'C', "goroutines") > 0 && count_events(&t, 'C', "global queue") > 0 &&
              count_events(&t, 'C', "threads") > 0 && count_events(&t, 'C', "queue of P 0") > 0);
        CHECK(check_arrows(&t) >= CHILDREN);
        check_slices(&t);
        done_with(&t);
    }
}

/* Every run but the first of main follows on a spawn, a wake-up or a yield. */
CASE(every_wait_has_its_reason)
{
    struct trace_file t = traced_run(1, starts_children, NULL);
    int slept = 0, waited = 0;
    for (int i = 0; i < t.n; i++) {
        slept += strcmp(t.event[i].why, "sleep") == 0;
        waited += strcmp(t.event[i].why, "wait group") == 0;
    }
    CHECK_EQ(slept, 1);
    CHECK_EQ(waited, 1);
    done_with(&t);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static const char LONG_NAME[] = "a name that is longer than what a trace has room for, by far";

static void starts_named(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 3);
    weft_go_with(&(weft_attr){.name = "short"}, child, &wg);
    weft_go_with(&(weft_attr){.name = "quote \" back \\ line \n \xff \xc3\xa9"}, child, &wg);
    weft_go_with(&(weft_attr){.name = LONG_NAME}, child, &wg);
    weft_wg_wait(&wg);
    (void)arg;
}

static int slices_named(const struct trace_file *t, const char *begin)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        n += t->event[i].ph == 'X' && strncmp(t->event[i].name, begin, strlen(begin)) == 0;
    return n;
}

CASE(goroutines_have_their_names_or_those_of_their_functions)
{
    EACH_PROCS(p)
    {
        char begin[64];
        struct trace_file t = traced_run(p, starts_named, NULL);
        snprintf(begin, sizeof begin, "%.48s ", LONG_NAME);
        CHECK(slices_named(&t, "main 1") >= 1);
        CHECK(slices_named(&t, "short ") >= 1);
        CHECK(slices_named(&t, "quote \\") >= 1);
        CHECK(slices_named(&t, begin) >= 1);
        done_with(&t);
    }
}

void traced_function(void *arg); /* which the dynamic linker knows */
void traced_function(void *arg)
{
    weft_wg_done(arg);
}

static void starts_a_function(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    weft_go(traced_function, &wg);
    weft_wg_wait(&wg);
    (void)arg;
}

CASE(a_function_has_its_symbol)
{
    struct trace_file t = traced_run(1, starts_a_function, NULL);
    CHECK_EQ(slices_named(&t, "traced_function "), 1);
    done_with(&t);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

static int64_t begun, ended;

static void hog(void *arg)
{
    compute(20 * WEFT_MSEC);
    weft_wg_done(arg);
}

static void starts_hogs(void *arg)
{
    weft_wg wg = {0};
    begun = weft_now();
    weft_wg_add(&wg, 4);
    for (int i = 0; i < 4; i++)
        weft_go(hog, &wg);
    weft_wg_wait(&wg);
    ended = weft_now();
    (void)arg;
}

/* Slices are when a P was somebody's: at least the time that was computed, at most the Ps' time; the kernel may have taken cores away. */
CASE(slices_add_up_to_the_time_that_was_used)
{
    EACH_PROCS(p)
    {
        int64_t cpu = check_cpu_ns();
        struct trace_file t = traced_run(p, starts_hogs, NULL);
        cpu = check_cpu_ns() - cpu;
        CHECK(busy_time(&t) >= 20 * WEFT_MSEC);
        CHECK(busy_time(&t) <= p * (ended - begun) + 50 * WEFT_MSEC);
        CHECK(busy_time(&t) >= cpu / 2 || check_under_tsan());
        check_slices(&t);
        done_with(&t);
    }
}

/* ---- preemption, stealing, blocking ----------------------------------------------------------------------------- */

static _Atomic int go_on;

static void spins(void *arg)
{
    while (!go_on)
        weft_count(); /* a runtime call, where it can be asked to let others run */
    weft_wg_done(arg);
}

static void lets_go_on(void *arg)
{
    go_on = 1;
    weft_wg_done(arg);
}

static void is_preempted(void *arg)
{
    weft_wg wg = {0};
    go_on = 0;
    weft_wg_add(&wg, 2);
    weft_go(spins, &wg);
    weft_yield();
    weft_go(lets_go_on, &wg);
    weft_wg_wait(&wg);
    (void)arg;
}

CASE(a_preemption_is_in_it)
{
    struct trace_file t = traced_run(1, is_preempted, NULL);
    CHECK(count_events(&t, 'i', "preempted") >= 1);
    CHECK(count_ends(&t, "preempted") >= 1);
    check_slices(&t);
    done_with(&t);
}

static _Atomic int met;

static void meets_the_other(void *arg)
{
    met++;
    while (met < 2)
        weft_count();
    weft_wg_done(arg);
}

static uint64_t steals_done;

static uint64_t steals(void)
{
    weft_stats_t s;
    CHECK_EQ(weft_stats(&s), 0);
    return s.steals_done;
}

/* Two that do not let others run, and wait for each other: one is stolen, unless our thread seems asleep, as an emulator's may, and loses
 * its P with both of them. */
static void is_stolen_from(void *arg)
{
    weft_wg wg = {0};
    for (int64_t end = weft_now() + 20 * WEFT_SEC; steals() == 0 && weft_now() < end;) {
        met = 0;
        weft_wg_add(&wg, 2);
        weft_go(meets_the_other, &wg);
        weft_go(meets_the_other, &wg);
        weft_preempt_off();
        while (met < 1 && weft_now() < end)
            ;
        weft_preempt_on();
        weft_wg_wait(&wg);
    }
    steals_done = steals();
    (void)arg;
}

CASE(a_steal_is_in_it)
{
    struct trace_file t = traced_run(2, is_stolen_from, NULL);
    uint64_t seen = 0;
    for (int i = 0; i < t.n; i++)
        seen += t.event[i].ph == 'i' && strcmp(t.event[i].name, "steal") == 0 && t.event[i].from != t.event[i].tid - 1;
    CHECK(steals_done >= 1);
    CHECK(seen >= steals_done);
    check_slices(&t);
    done_with(&t);
}

static void blocks(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    weft_go(hog, &wg);
    sleep_in_region(5);
    weft_wg_wait(&wg);
    (void)arg;
}

static void blocks_unseen(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    weft_go(hog, &wg);
    usleep(200000);
    weft_wg_wait(&wg);
    (void)arg;
}

CASE(blocking_calls_are_in_it)
{
    EACH_PROCS(p)
    {
        struct trace_file t = traced_run(p, blocks, NULL);
        CHECK_EQ(count_events(&t, 'X', "blocking call"), 1);
        CHECK(count_ends(&t, "block") == 1);
        check_slices(&t);
        done_with(&t);
    }
    if (check_under_tsan()) /* nobody hides goroutines there, and nothing is found */
        return;
    struct trace_file t = traced_run(1, blocks_unseen, NULL);
    CHECK_EQ(count_events(&t, 'i', "P taken, found"), 1);
    CHECK_EQ(count_events(&t, 'X', "blocking call, found"), 1);
    check_slices(&t);
    done_with(&t);
}

/* ---- losing events ---------------------------------------------------------------------------------------------- */

static void yields(void *arg)
{
    for (int i = 0; i < 200000 / check_scale(); i++)
        weft_yield();
    weft_wg_done(arg);
}

static void yields_much(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 2);
    weft_go(yields, &wg);
    weft_go(yields, &wg);
    weft_wg_wait(&wg);
    (void)arg;
}

/* Two events a switch, and each is in the trace or counted as lost. */
CASE(events_that_do_not_fit_are_counted)
{
    struct trace_file t = traced_run(1, yields_much, NULL);
    long lost = -1;
    for (int i = 0; i < t.n; i++)
        if (strcmp(t.event[i].name, "end of the trace") == 0)
            lost = t.event[i].lost;
    CHECK(lost >= 0);
    CHECK(2 * count_ends(&t, "yield") + lost >= 2 * 200000 / check_scale());
    CHECK(lost == 0 || count_events(&t, 'C', "lost events") > 0);
    if (check_scale() == 1)
        CHECK(lost > 0);
    check_slices(&t);
    check_arrows(&t);
    done_with(&t);
}

/* ---- starting and stopping -------------------------------------------------------------------------------------- */

static void starts_and_stops(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    CHECK_EQ(weft_trace_stop(), -ESRCH);
    CHECK_EQ(weft_trace_start(NULL), -EINVAL);
    CHECK_EQ(weft_trace_start("/nowhere/at/all"), -ENOENT);
    CHECK_EQ(weft_trace_start("/dev/full"), -ENOSPC);
    CHECK_EQ(weft_trace_start(path), 0);
    CHECK_EQ(weft_trace_start("/dev/null"), -EBUSY);
    weft_wg_add(&wg, 1);
    weft_go(traced_function, &wg);
    weft_wg_wait(&wg);
    CHECK_EQ(weft_trace_stop(), 0);
    CHECK_EQ(weft_trace_stop(), -ESRCH);
    struct trace_file t = read_trace(path);
    CHECK(t.complete);
    CHECK_EQ(count_events(&t, 'i', "spawn"), 1);
    CHECK_EQ(slices_named(&t, "traced_function "), 1);
    check_slices(&t);
    free_trace(&t);
    CHECK_EQ(weft_trace_start(path), 0); /* the end of the run stops it */
}

CASE(a_trace_is_started_once_and_stopped_once)
{
    EACH_PROCS(p)
    {
        temporary(path, ".json");
        CHECK_EQ(run_on(p, starts_and_stops, NULL), 0);
        struct trace_file t = read_trace(path);
        CHECK(t.complete);
        free_trace(&t);
        CHECK_EQ(weft_trace_start(path), -EPERM);
        CHECK_EQ(weft_trace_stop(), -EPERM);
        remove(path);
    }
}

static void makes_much(void *arg)
{
    (void)arg;
    for (int i = 0; i < 500; i++) {
        weft_wg wg = {0};
        weft_wg_add(&wg, 1);
        weft_go(traced_function, &wg);
        weft_wg_wait(&wg);
    }
}

static void is_not_read(void *arg)
{
    const struct unread *u = arg;
    CHECK_EQ(weft_trace_start(u->path), 0);
    makes_much(NULL);
    CHECK_EQ(weft_trace_stop(), -ETIMEDOUT);
    fill(u);
    CHECK_EQ(weft_trace_start(u->path), -ETIMEDOUT);
}

CASE(a_pipe_that_nobody_reads_is_given_up)
{
    struct unread u = unread_pipe();
    CHECK_EQ(run_on(2, is_not_read, &u), 0);
    close_unread(&u);
}

CASE(a_run_ends_though_nobody_reads_its_trace)
{
    struct unread u = unread_pipe();
    setenv("WEFT_TRACE", u.path, 1);
    CHECK_EQ(run_on(2, makes_much, NULL), 0);
    unsetenv("WEFT_TRACE");
    close_unread(&u);
}

/* With pauses, until the pipe is closed. */
static void *reads_slowly(void *arg)
{
    const struct unread *u = arg;
    static char text[4096];
    char last[3] = "";
    int f = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (long n; (n = read(u->ends[0], text, sizeof text)) != 0 && strcmp(last, "]\n") != 0;) {
        if (n >= 2)
            memcpy(last, text + n - 2, 2);
        CHECK(n < 0 || write(f, text, (size_t)n) == n);
        usleep(1000);
    }
    close(f);
    return NULL;
}

CASE(who_reads_slowly_gets_all_of_it)
{
    struct unread u = unread_pipe();
    pthread_t reader;
    temporary(path, ".json");
    setenv("WEFT_TRACE", u.path, 1);
    CHECK_EQ(pthread_create(&reader, NULL, reads_slowly, &u), 0);
    CHECK_EQ(run_on(2, makes_much, NULL), 0);
    unsetenv("WEFT_TRACE");
    close(u.ends[1]);
    pthread_join(reader, NULL);
    close(u.ends[0]);
    struct trace_file t = read_trace(path);
    CHECK(t.complete && t.n > 1000);
    done_with(&t);
}

static void never_runs(void *arg)
{
    (void)arg;
    CHECK(false);
}

CASE(a_file_that_cannot_be_written_is_told)
{
    setenv("WEFT_TRACE", "/nowhere/at/all", 1);
    CHECK_EQ(run_on(1, never_runs, NULL), -ENOENT);
    unsetenv("WEFT_TRACE");
}

static void *from_outside(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_trace_start(path), 0);
    CHECK_EQ(weft_trace_stop(), 0);
    return NULL;
}

static void lets_others_trace(void *arg)
{
    pthread_t thread;
    (void)arg;
    pthread_create(&thread, NULL, from_outside, NULL);
    join_in_region(&thread, 1);
}

CASE(another_thread_may_trace)
{
    temporary(path, ".json");
    CHECK_EQ(run_on(2, lets_others_trace, NULL), 0);
    remove(path);
}

/* ---- while everything runs -------------------------------------------------------------------------------------- */

static _Atomic int storm_over;

static void talks(void *arg)
{
    weft_chan *ch = arg;
    for (int value; weft_recv(ch, &value) == 0;)
        weft_yield();
}

static void works(void *arg)
{
    weft_chan *ch = arg;
    weft_wg wg = {0};
    while (!storm_over) {
        int value = 0;
        weft_wg_add(&wg, 1);
        weft_go_with(&(weft_attr){.name = "of the storm"}, child, &wg);
        weft_send(ch, &value);
        sleep_in_region(0);
        weft_wg_wait(&wg);
    }
    weft_close(ch);
}

/* Traces begin and end at any moment of what others do. */
static void storm(void *arg)
{
    weft_chan *ch[4];
    int rounds = *(int *)arg;
    storm_over = 0;
    for (int i = 0; i < 4; i++) {
        ch[i] = weft_chan_new(sizeof(int), 0);
        weft_go(works, ch[i]);
        weft_go(talks, ch[i]);
    }
    for (int i = 0; i < rounds; i++) {
        CHECK_EQ(weft_trace_start(path), 0);
        weft_sleep(i % 3 * WEFT_MSEC);
        CHECK_EQ(weft_trace_stop(), 0);
        struct trace_file t = read_trace(path);
        CHECK(t.complete);
        check_slices(&t);
        check_arrows(&t);
        free_trace(&t);
    }
    storm_over = 1;
    CHECK(others_have_ended());
    for (int i = 0; i < 4; i++)
        weft_chan_free(ch[i]);
}

CASE(traces_come_and_go_while_everything_runs)
{
    EACH_PROCS(p)
    {
        int rounds = scaled(30);
        temporary(path, ".json");
        CHECK_EQ(run_on(p, storm, &rounds), 0);
        remove(path);
    }
}
