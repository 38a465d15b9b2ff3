/* SPDX-License-Identifier: MIT */
/* weft_dump and weft_dump_json on known programs: who, why, on what, for how long, where, and who does the same. */
#include "dumps.h"
#include "peek.h"
#include "whitebox.h"
#include <fcntl.h>

/* File and line need libdw and debug information. */
static bool has_lines(void)
{
    return strstr(text, "test_dump.c:") != NULL;
}

static bool says_line(const char *entry, int line)
{
    char what[64];
    if (!has_lines())
        return true;
    snprintf(what, sizeof what, "test_dump.c:%d\n", line);
    return says(entry, what);
}

/* ---- who waits for what ------------------------------------------------------------------------------------------ */

static weft_chan *ch, *other;
static weft_mutex mu;
static weft_rwmutex rw;
static weft_cond cond;
static weft_wg wg;
static weft_sem sem;
static int pipe_fd[2];
static _Atomic int begun, over;
static _Atomic int line_of_receive;
static int line_of_start;

void receives(void *arg);
void sends(void *arg);
void selects(void *arg);
void locks(void *arg);
void reads_locked(void *arg);
void signals_wanted(void *arg);
void waits_for_group(void *arg);
void acquires(void *arg);
void sleeps(void *arg);
void reads_pipe(void *arg);
void closes_scope(void *arg);
void hogs(void *arg);
void sleeps_in_region(void *arg);
void sleeps_plainly(void *arg);

void receives(void *arg)
{
    (void)arg;
    begun++;
    line_of_receive = __LINE__ + 1;
    weft_recv(ch, NULL);
    __asm__ volatile("");
}

void sends(void *arg)
{
    (void)arg;
    begun++;
    weft_send(ch, NULL);
    __asm__ volatile("");
}

void selects(void *arg)
{
    weft_case cases[] = {WEFT_RECV(arg, NULL)};
    begun++;
    weft_select(cases, 1);
    __asm__ volatile("");
}

void locks(void *arg)
{
    (void)arg;
    begun++;
    weft_lock(&mu);
    weft_unlock(&mu);
}

void reads_locked(void *arg)
{
    (void)arg;
    begun++;
    weft_rdlock(&rw);
    weft_rdunlock(&rw);
}

void signals_wanted(void *arg)
{
    weft_mutex own = {0};
    (void)arg;
    weft_lock(&own);
    begun++;
    weft_cond_wait(&cond, &own);
    weft_unlock(&own);
}

void waits_for_group(void *arg)
{
    (void)arg;
    begun++;
    weft_wg_wait(&wg);
    __asm__ volatile("");
}

void acquires(void *arg)
{
    (void)arg;
    begun++;
    weft_sem_acquire(&sem, 1);
    __asm__ volatile("");
}

void sleeps(void *arg)
{
    (void)arg;
    begun++;
    weft_sleep(3600 * WEFT_SEC);
    __asm__ volatile("");
}

void reads_pipe(void *arg)
{
    char byte;
    (void)arg;
    begun++;
    weft_read(pipe_fd[0], &byte, 1);
    __asm__ volatile("");
}

void closes_scope(void *arg)
{
    weft_scope s;
    (void)arg;
    weft_scope_open(&s, WEFT_NEVER);
    weft_scope_go(&s, receives, NULL);
    begun++;
    weft_scope_close(&s);
    __asm__ volatile("");
}

static void start(const char *name, int priority, weft_fn *fn, void *arg)
{
    CHECK_EQ(weft_go_with(&(weft_attr){.name = name, .priority = priority}, fn, arg), 0);
    __asm__ volatile("");
}

/* Until so many have begun, and have had the time to begin to wait. */
static void let_begin(int n)
{
    CHECK(reaches(&begun, n, 20));
    weft_sleep(20 * WEFT_MSEC);
}

static void set_up(void)
{
    begun = over = 0;
    mu = (weft_mutex){0};
    rw = (weft_rwmutex){0};
    cond = (weft_cond){0};
    wg = (weft_wg){0};
    sem = (weft_sem){0};
    CHECK((ch = weft_chan_new(0, 0)) != NULL);
}

/* Every wait that a dump tells from the others. */
static void all_wait(void *arg)
{
    (void)arg;
    set_up();
    CHECK((other = weft_chan_new(0, 0)) != NULL);
    CHECK_EQ(pipe(pipe_fd), 0);
    CHECK_EQ(weft_lock(&mu), 0);
    CHECK_EQ(weft_wrlock(&rw), 0);
    weft_wg_add(&wg, 1);
    line_of_start = __LINE__ + 1;
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "a receiver", .priority = WEFT_HIGH}, receives, NULL), 0);
    start("a selector", 0, selects, other);
    start("a locker", WEFT_LOW, locks, NULL);
    start("a reader", 0, reads_locked, NULL);
    start("a condition", 0, signals_wanted, NULL);
    start("a group", 0, waits_for_group, NULL);
    start("a semaphore", 0, acquires, NULL);
    start("a sleeper", 0, sleeps, NULL);
    start("a pipe", 0, reads_pipe, NULL);
    start("a scope", 0, closes_scope, NULL);
    let_begin(11);
    dumped(weft_dump);
    char descriptor[40];
    snprintf(descriptor, sizeof descriptor, "waiting: read from descriptor %d,", pipe_fd[0]);
    CHECK(says_address(entry_with("\"a receiver\""), "waiting: receive from channel ", ch));
    CHECK(says(entry_with("\"a receiver\""), "high priority"));
    CHECK(says(entry_with("\"a receiver\""), "entry 0x"));
    CHECK(says(entry_with("\"a receiver\""), " receives+0x0 ("));
    CHECK(says(entry_with("\"a receiver\""), " all_wait+0x") || !has_lines());
    CHECK(says_line(entry_with("\"a receiver\""), line_of_receive));
    CHECK(says_line(entry_with("\"a receiver\""), line_of_start));
    CHECK(says_address(entry_with("\"a selector\""), "waiting: select ", other));
    CHECK(says_address(entry_with("\"a locker\""), "waiting: mutex ", &mu));
    CHECK(says(entry_with("\"a locker\""), "low priority"));
    CHECK(says(entry_with("\"a locker\""), " locks+0x"));
    CHECK(says_address(entry_with("\"a reader\""), "waiting: read lock ", &rw));
    CHECK(says_address(entry_with("\"a condition\""), "waiting: condition ", &cond));
    CHECK(says_address(entry_with("\"a group\""), "waiting: wait group ", &wg));
    CHECK(says_address(entry_with("\"a semaphore\""), "waiting: semaphore ", &sem));
    CHECK(says(entry_with("\"a sleeper\""), "waiting: sleep, "));
    CHECK(says(entry_with("\"a sleeper\""), " s to go"));
    CHECK(says(entry_with("\"a pipe\""), descriptor));
    CHECK(says(entry_with("\"a scope\""), "waiting: goroutines of scope 0x"));
    CHECK(says(entry_with("goroutine 1 \"main\""), " all_wait+0x") || !has_lines());
}

CASE(a_dump_says_why_and_where_everybody_waits)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, all_wait, NULL), 0);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        weft_chan_free(ch);
        weft_chan_free(other);
    }
}

static long ms_of(const char *entry)
{
    const char *at = entry != NULL ? strchr(entry, '[') : NULL;
    while (at != NULL && (at = strstr(at, ", ")) != NULL)
        if ((at += 2)[0] >= '0' && at[0] <= '9')
            return strtol(at, NULL, 10);
    return -1;
}

/* The monitor's clock, which a wait begins by, may be 10 ms old. */
static void one_waits(void *arg)
{
    (void)arg;
    set_up();
    start("a receiver", 0, receives, NULL);
    let_begin(1);
    int64_t from = weft_now();
    weft_sleep(200 * WEFT_MSEC);
    dumped(weft_dump);
    long ms = ms_of(entry_with("\"a receiver\"")), most = (long)((weft_now() - from) / WEFT_MSEC) + 1000;
    if (ms < 200 || ms > most)
        check_fail(__FILE__, __LINE__, "it waits for %ld ms, of 200 to %ld: %s", ms, most, text);
}

CASE(a_dump_says_how_long_somebody_waits)
{
    CHECK_EQ(run_on(2, one_waits, NULL), 0);
    weft_chan_free(ch);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void many_wait(void *arg)
{
    int n = *(int *)arg;
    char head[64];
    set_up();
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(receives, NULL), 0);
    start("another", 0, sleeps, NULL);
    let_begin(n + 1);
    snprintf(head, sizeof head, "%d goroutines ", n);
    dumped(weft_dump);
    CHECK(says(entry_with(head), "waiting: receive from channel"));
    CHECK(says(entry_with(head), n > 20 ? " more [" : ", "));
    CHECK(says(entry_with("\"another\""), "sleep"));
    snprintf(head, sizeof head, "\"count\":%d,\"ids\":[", n);
    dumped(weft_dump_json);
    CHECK(says(text, head));
    CHECK(says(text, "\"reason\":\"receive from channel\",\"object\":\"0x"));
    CHECK(says(text, "\"name\":\"another\",\"state\":\"waiting\",\"reason\":\"sleep\",\"object\":null"));
    CHECK(says(text, "\"entry\":\"receives\""));
    CHECK(says(text, "\"symbol\":\"receives\",\"object\":\"test_dump\""));
}

CASE(those_who_do_the_same_are_one_entry_with_their_number)
{
    EACH_PROCS(p)
    {
        for (int n = 3; n < 3000; n = n == 3 ? scaled(2000) + 21 : 3000) {
            CHECK_EQ(run_on(p, many_wait, &n), 0);
            weft_chan_free(ch);
        }
    }
}

/* ---- who runs, and who blocks ------------------------------------------------------------------------------------ */

__attribute__((noinline)) void hogs(void *arg)
{
    begun++;
    for (volatile long i = 0; !over; i++)
        ;
    (void)arg;
}

__attribute__((noinline)) void sleeps_in_region(void *arg)
{
    (void)arg;
    weft_block_enter();
    begun++;
    while (!over)
        usleep(100000);
    weft_block_leave();
}

__attribute__((noinline)) void sleeps_plainly(void *arg)
{
    (void)arg;
    begun++;
    while (!over)
        usleep(100000);
    __asm__ volatile("");
}

/* On a crowded machine one look may come too early, or find no answer. */
static bool is_seen(const char *head, const char *frame)
{
    for (int i = 0; i < 50; i++) {
        char what[80];
        snprintf(what, sizeof what, " %s+0x", frame);
        dumped(weft_dump);
        char *entry = entry_with(head), *at = entry != NULL ? strstr(entry, "#0 ") : NULL;
        if (at != NULL && strstr(at, what) != NULL)
            return true;
        weft_sleep(WEFT_MSEC);
    }
    fprintf(stderr, "# \"%s\" is not seen in %s: %s\n", head, frame, text);
    return false;
}

static void some_run(void *arg)
{
    (void)arg;
    set_up();
    start("a hog", 0, hogs, NULL);
    start("in a region", 0, sleeps_in_region, NULL);
    start("not announced", 0, sleeps_plainly, NULL);
    CHECK(reaches(&begun, 3, 20));
    CHECK(is_seen("\"a hog\"", "hogs"));
    if (!check_under_emulator()) { /* which tells nothing of threads that sleep */
        CHECK(is_seen("\"in a region\" [in a blocking call", "sleeps_in_region"));
        CHECK(is_seen("\"not announced\"", "sleeps_plainly"));
    }
    over = 1;
    CHECK(others_have_ended());
}

CASE(who_runs_or_blocks_is_seen_where_it_is)
{
    if (check_under_tsan()) {
        skipped("ThreadSanitizer delays signals");
        return;
    }
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, some_run, NULL), 0);
        weft_chan_free(ch);
    }
}

static void *dumps_from_thread(void *arg)
{
    (void)arg;
    dumped(weft_dump);
    over = 1;
    return NULL;
}

static void thread_dumps(void *arg)
{
    pthread_t thread;
    (void)arg;
    set_up();
    start("a receiver", 0, receives, NULL);
    let_begin(1);
    CHECK_EQ(pthread_create(&thread, NULL, dumps_from_thread, NULL), 0);
    join_in_region(&thread, 1);
    CHECK(says(entry_with("\"a receiver\""), " receives+0x"));
}

CASE(any_thread_may_dump)
{
    CHECK_EQ(run_on(2, thread_dumps, NULL), 0);
    weft_chan_free(ch);
}

static void dump_to_nobody(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_dump(-1), -EBADF);
    CHECK_EQ(weft_dump_json(-1), -EBADF);
}

CASE(a_dump_says_what_went_wrong)
{
    CHECK_EQ(weft_dump(2), -EPERM);
    CHECK_EQ(run_on(1, dump_to_nobody, NULL), 0);
}

/* Who was looked at goes on as it was: it has not blocked. */
static _Atomic bool computed_enough;

static void computes_on(void *arg)
{
    (void)arg;
    while (!computed_enough)
        ;
}

static weft_stats_t stats_now(void)
{
    weft_stats_t s;
    CHECK_EQ(weft_stats(&s), 0);
    return s;
}

/* When each has been stopped a few times, its stack has all pages that it needs: the kernel has no reason to put it to sleep. */
static void dump_beside_hogs(void *arg)
{
    enum { HOGS = 4 };
    (void)arg;
    computed_enough = false;
    for (int i = 0; i < HOGS; i++)
        CHECK_EQ(weft_go(computes_on, NULL), 0);
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    for (int i = 0; i < 10000 && stats_now().preempts_by_signal < 5 * HOGS; i++)
        weft_sleep(WEFT_MSEC);
    uint64_t before = stats_now().handoffs_found;
    for (int i = 0; i < 30; i++)
        dumped(weft_dump);
    CHECK_EQ(stats_now().handoffs_found, before);
    computed_enough = true;
}

CASE(who_is_looked_at_keeps_its_processor)
{
    if (check_under_tsan() || check_under_asan() || check_under_emulator())
        skipped("nobody is stopped there, or an emulator's threads sleep at any time");
    else
        CHECK_EQ(run_on(2, dump_beside_hogs, NULL), 0);
}

/* The end of a run does not wait for a reader that never comes. */
static int clogged[2];

static void dumps_for_ever(void *arg)
{
    (void)arg;
    begun++;
    for (;;)
        weft_dump(clogged[1]);
}

static void leaves_a_dump_behind(void *arg)
{
    (void)arg;
    set_up();
    CHECK_EQ(weft_go(dumps_for_ever, NULL), 0);
    let_begin(1);
    weft_sleep(20 * WEFT_MSEC);
}

CASE(a_run_ends_while_nobody_reads_a_dump)
{
    CHECK_EQ(pipe2(clogged, O_CLOEXEC), 0);
    CHECK_EQ(fcntl(clogged[1], F_SETPIPE_SZ, 4096) > 0, 1);
    CHECK_EQ(run_on(2, leaves_a_dump_behind, NULL), 0);
    weft_chan_free(ch);
    close(clogged[0]);
    close(clogged[1]);
}

/* ---- rings of locks ---------------------------------------------------------------------------------------------- */

static weft_mutex first, second;
static weft_once once;

static void takes_first(void *arg)
{
    (void)arg;
    weft_lock(&first);
    begun++;
    reaches(&begun, 3, 20);
    weft_lock(&second);
}

static void takes_second(void *arg)
{
    (void)arg;
    weft_lock(&second);
    begun++;
    reaches(&begun, 3, 20);
    weft_wrlock(&rw);
}

static void takes_rw(void *arg)
{
    (void)arg;
    weft_wrlock(&rw);
    begun++;
    reaches(&begun, 3, 20);
    weft_lock(&first);
}

static void set_up_locks(void)
{
    set_up();
    first = second = (weft_mutex){0};
    once = (weft_once){0};
}

static int procs;

static void lock_in_ring(void *arg)
{
    (void)arg;
    set_up_locks();
    start("one", 0, takes_first, NULL);
    start("two", 0, takes_second, NULL);
    start("three", 0, takes_rw, NULL);
    weft_recv(ch, NULL);
}

static void run_ring(void)
{
    CHECK_EQ(run_on(procs, lock_in_ring, NULL), -EDEADLK);
}

CASE(a_deadlock_names_the_ring_of_locks)
{
    for (procs = 1; procs <= 8; procs *= 2) {
        CHECK(child_is_well(run_ring, text, sizeof text));
        const char *at = strstr(text, "wait for each other's locks");
        CHECK(says(at, "which goroutine"));
        CHECK(says_address(at, "mutex ", &first));
        CHECK(says_address(at, "mutex ", &second));
        CHECK(says_address(at, "write lock ", &rw));
    }
}

static void lock_twice(void *arg)
{
    (void)arg;
    set_up_locks();
    weft_lock(&first);
    weft_lock(&first);
}

static void run_twice(void)
{
    CHECK_EQ(run_on(1, lock_twice, NULL), -EDEADLK);
}

CASE(who_waits_for_its_own_lock_is_named)
{
    CHECK(child_is_well(run_twice, text, sizeof text));
    CHECK(says(text, "which it holds itself"));
}

/* Waits for `second`, whose holder waits for a channel; `first` was held by somebody who has ended, and is open. */
static void lock_in_line(void *arg)
{
    (void)arg;
    set_up_locks();
    weft_lock(&first);
    weft_unlock(&first);
    weft_lock(&second);
    begun = 2;
    start("one", 0, takes_first, NULL);
    weft_recv(ch, NULL);
}

static void run_line(void)
{
    CHECK_EQ(run_on(procs, lock_in_line, NULL), -EDEADLK);
}

CASE(no_ring_is_named_where_there_is_none)
{
    for (procs = 1; procs <= 8; procs *= 2) {
        CHECK(child_is_well(run_line, text, sizeof text));
        CHECK(says(text, "deadlock"));
        CHECK(strstr(text, "wait for each other's locks") == NULL);
    }
}

/* ---- memory that is not there ------------------------------------------------------------------------------------ */

CASE(a_look_at_what_is_not_there_is_no_fault)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), word[8];
    munmap(pages + 4096, 4096);
    w_peek_begin();
    memset(pages, 7, 4096);
    CHECK(w_peek(word, (uintptr_t)pages + 4088, sizeof word));
    CHECK(memcmp(word, "\7\7\7\7\7\7\7\7", 8) == 0);
    CHECK(!w_peek(word, (uintptr_t)pages + 4092, sizeof word));
    CHECK(!w_peek(word, (uintptr_t)pages + 4096, sizeof word));
    munmap(pages, 4096);
}
