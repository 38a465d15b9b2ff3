/* SPDX-License-Identifier: MIT */
/* Preemption and signals: calls that wait do not return early because of it, and SIGURG is the program's as well. */
#include "preempts.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/select.h>

static void hog(void *arg)
{
    (void)arg;
    while (!over)
        ;
}

static void hogs_start(int n)
{
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(hog, NULL), 0);
}

/* ---- calls that wait ---------------------------------------------------------------------------------------------- */

static _Atomic int waits, cut;
static int all_waits;

/* The goroutines that wait compute before, for less than so long; somebody may wake up beside them. */
struct scene {
    int64_t burst;
    weft_fn *beside;
    int waits;
    int one_in; /* of them may be cut short */
};
static const struct scene *scene;

static void compute(int64_t ns)
{
    for (int64_t end = weft_now() + ns; weft_now() < end;)
        for (volatile int k = 0; k < 1000; k++)
            ;
}

/* Each wait begins with a P, from which the thread may be interrupted. The bursts do not keep step with whoever wakes up. */
static void wait_plainly(void *arg)
{
    uint64_t rng = 88172645463325252u + (uint64_t)(uintptr_t)arg;
    for (int i = (int)(intptr_t)arg; !over; i++, waits++) {
        if (scene->burst > 0)
            compute(check_random(&rng) % scene->burst);
        struct timespec ts = {.tv_nsec = 300000 + i % 5 * 400000};
        int r;
        if (i % 4 == 0)
            r = nanosleep(&ts, NULL);
        else if (i % 4 == 1)
            r = poll(NULL, 0, 1 + i % 3);
        else if (i % 4 == 2)
            r = usleep(500);
        else
            r = pselect(0, NULL, NULL, NULL, &ts, NULL);
        CHECK(r == 0 || errno == EINTR);
        cut += r != 0;
        weft_yield();
    }
}

/* Somebody has to make way for it each time. */
static void sleep_urgently(void *arg)
{
    (void)arg;
    while (!over)
        CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
}

static void *wake_it(void *ch)
{
    while (!over) {
        usleep(1000);
        CHECK_EQ(weft_send(ch, NULL), 0);
    }
    CHECK_EQ(weft_close(ch), 0);
    return NULL;
}

/* Likewise, by a thread that is not the runtime's. */
static void be_woken_urgently(void *arg)
{
    pthread_t waker;
    weft_chan *ch = weft_chan_new(0, 0);
    (void)arg;
    CHECK_EQ(pthread_create(&waker, NULL, wake_it, ch), 0);
    while (weft_recv(ch, NULL) == 0)
        ;
    weft_chan_free(ch);
    CHECK_EQ(pthread_join(waker, NULL), 0);
}

static void waits_main(void *arg)
{
    scene = arg;
    over = false;
    waits = 0;
    if (scene->beside != NULL)
        CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, scene->beside, NULL), 0);
    hogs_start(2 * weft_procs(0));
    for (intptr_t i = 0; i < 8; i++)
        CHECK_EQ(weft_go(wait_plainly, (void *)i), 0);
    CHECK(reaches(&waits, scene->waits, 60));
    for (int64_t end = weft_now() + 60 * WEFT_SEC; stops() < 10 && weft_now() < end;)
        weft_yield();
    CHECK(stops() >= 10);
    end_all();
    all_waits += waits;
}

/* A thread may go to sleep, or lose its core inside such a call, between the last look at it and the signal: beside hogs one wait in many
 * thousand is cut short. Without what is known of its past it would be one in thirty, without the look at its state every second one. */
static void waits_are_whole(int64_t quantum, struct scene s)
{
    if (never_stopped())
        return;
    cut = all_waits = 0;
    EACH_PROCS(p) CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = p, .quantum = quantum}, waits_main, &s), 0);
    CHECK(cut <= all_waits / s.one_in);
}

CASE(calls_that_wait_are_not_interrupted)
{
    waits_are_whole(200 * WEFT_USEC, (struct scene){0, NULL, 400, 200});
}

CASE(nor_are_they_for_an_urgent_one_that_sleeps)
{
    waits_are_whole(10 * WEFT_MSEC, (struct scene){0, sleep_urgently, 400, 200});
}

/* That thread asks who ran where it woke up, and knows less than the monitor of what became of it. */
CASE(nor_many_for_an_urgent_one_that_a_foreign_thread_wakes)
{
    waits_are_whole(10 * WEFT_MSEC, (struct scene){0, be_woken_urgently, 400, 40});
}

/* It computes until a moment before, and the signal takes some time to come. */
CASE(nor_many_after_a_computation)
{
    waits_are_whole(10 * WEFT_MSEC, (struct scene){2 * WEFT_MSEC, sleep_urgently, 800, 20});
}

/* ---- who is interrupted ------------------------------------------------------------------------------------------- */

static struct {
    _Atomic pid_t tid;
    _Atomic bool over;
    int polled, ends[2];
} other;

static void *sleeps(void *arg)
{
    other.tid = gettid();
    other.polled = poll(&(struct pollfd){.fd = other.ends[0], .events = POLLIN}, 1, -1);
    return arg;
}

static void *computes(void *arg)
{
    other.tid = gettid();
    while (!other.over)
        ;
    return arg;
}

/* In the kernel a thread is on its way to sleep before it does. */
static bool is_in_state(pid_t tid, char state)
{
    int64_t cpu = w_thread_cpu(tid);
    usleep(1000);
    return w_thread_state(tid) == state && (state == 'R' || w_thread_cpu(tid) == cpu);
}

/* On one P with nobody to let run: all signals are ours. */
static uint64_t signals_to(void *(*fn)(void *), char state)
{
    pthread_t thread;
    other.tid = 0;
    other.over = false;
    CHECK_EQ(pthread_create(&thread, NULL, fn, NULL), 0);
    while (other.tid == 0 || !is_in_state(other.tid, state))
        ;
    uint64_t before = ld_relaxed(&w_sched.signals);
    for (int i = 0; i < 20; i++)
        w_interrupt(other.tid, NULL, W_IF_AWAKE);
    uint64_t sent = ld_relaxed(&w_sched.signals) - before;
    other.over = true;
    CHECK_EQ(write(other.ends[1], "x", 1), 1);
    join_in_region(&thread, 1);
    return sent;
}

static void who_main(void *arg)
{
    (void)arg;
    CHECK_EQ(pipe(other.ends), 0);
    CHECK(signals_to(computes, 'R') > 0);
    char c;
    CHECK_EQ(read(other.ends[0], &c, 1), 1);
    CHECK_EQ(signals_to(sleeps, 'S'), 0);
    CHECK_EQ(other.polled, 1);
    close(other.ends[0]);
    close(other.ends[1]);
}

CASE(a_thread_that_sleeps_is_sent_nothing)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, who_main, NULL), 0);
}

static uint64_t signals_for(struct w_p *p)
{
    uint64_t before = ld_relaxed(&w_sched.signals);
    w_interrupt(gettid(), p, W_IF_AWAKE);
    return ld_relaxed(&w_sched.signals) - before;
}

static void switched_main(void *arg)
{
    static struct w_p p;
    (void)arg;
    p.seen_switches = 0;
    CHECK_EQ(signals_for(&p), 1);
    p.seen_switches = 1;
    CHECK_EQ(signals_for(&p), 0);
}

CASE(nor_one_whose_processor_has_switched_since_the_monitor_looked)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, switched_main, NULL), 0);
}

/* ---- the runtime's own calls --------------------------------------------------------------------------------------- */

static int ends[2];

static void use_runtime(void *arg)
{
    weft_chan *ch = weft_chan_new(sizeof(int), 1);
    int v = 0;
    for (int i = 0; i < scaled(100); i++) {
        char c = 'x';
        CHECK_EQ(weft_sleep(50 * WEFT_USEC), 0);
        CHECK_EQ(weft_write(ends[1], &c, 1), 1);
        CHECK_EQ(weft_read(ends[0], &c, 1), 1);
        CHECK_EQ(weft_send(ch, &v), 0);
        CHECK_EQ(weft_recv(ch, &v), 0);
        for (volatile int n = 0; n < 1000; n++)
            ;
    }
    weft_chan_free(ch);
    weft_wg_done(arg);
}

static void runtime_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    over = false;
    CHECK_EQ(pipe(ends), 0);
    hogs_start(weft_procs(0));
    pest_start();
    weft_wg_add(&wg, 8);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(weft_go(use_runtime, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    pest_stop();
    end_all();
    close(ends[0]);
    close(ends[1]);
}

CASE(calls_of_the_runtime_never_tell_of_an_interruption)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, runtime_main, NULL), 0);
}

/* ---- SIGURG ------------------------------------------------------------------------------------------------------- */

static struct {
    _Atomic int raised, killed, queued, strange;
    _Atomic int second; /* by the second handler */
} got;

static void sort_out(const siginfo_t *info)
{
    if (info->si_pid != getpid())
        got.strange++;
    else if (info->si_code == SI_TKILL)
        got.raised++;
    else if (info->si_code == SI_USER)
        got.killed++;
    else if (info->si_code == SI_QUEUE && info->si_value.sival_int == 4711)
        got.queued++;
    else
        got.strange++;
}

static void on_urgent(int sig, siginfo_t *info, void *context)
{
    CHECK(sig == SIGURG && context != NULL);
    sort_out(info);
}

static void on_urgent_too(int sig, siginfo_t *info, void *context)
{
    got.second++;
    on_urgent(sig, info, context);
}

/* Calls the one that it has replaced, as handlers should: that is Weft's, which calls this one. */
static struct sigaction replaced;

static void on_urgent_and_before(int sig, siginfo_t *info, void *context)
{
    on_urgent_too(sig, info, context);
    if (replaced.sa_flags & SA_SIGINFO)
        replaced.sa_sigaction(sig, info, context);
    __asm__ volatile("" ::: "memory"); /* that was no jump */
}

static void on_urgent_simply(int sig)
{
    CHECK_EQ(sig, SIGURG);
    got.second++;
}

static void send_raise(void)
{
    CHECK_EQ(raise(SIGURG), 0);
}

static void send_pthread_kill(void)
{
    CHECK_EQ(pthread_kill(pthread_self(), SIGURG), 0);
}

static void send_kill(void)
{
    CHECK_EQ(kill(getpid(), SIGURG), 0);
}

static void send_queue(void)
{
    CHECK_EQ(sigqueue(getpid(), SIGURG, (union sigval){.sival_int = 4711}), 0);
}

/* One that is sent while another one is pending is lost, whoever sent that: so it is with such signals. Then again. */
static void arrives(void (*send)(void), _Atomic int *at)
{
    int before = *at;
    int64_t end = weft_now() + 60 * WEFT_SEC;
    for (int64_t again; *at == before && weft_now() < end;) {
        send();
        for (again = weft_now() + 50 * WEFT_MSEC; *at == before && weft_now() < again;)
            weft_yield();
    }
    CHECK(*at != before);
}

static void all_arrive(void)
{
    for (int i = 0; i < 10; i++) {
        arrives(send_raise, &got.raised);
        arrives(send_pthread_kill, &got.raised);
        arrives(send_kill, &got.killed);
        arrives(send_queue, &got.queued);
    }
}

static void goes_on_stopping(void)
{
    long before = stops();
    for (int64_t end = weft_now() + 60 * WEFT_SEC; stops() < before + 5 && weft_now() < end;)
        weft_yield();
    CHECK(stops() >= before + 5);
}

static void set(void (*handler)(int, siginfo_t *, void *), struct sigaction *former)
{
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK_EQ(sigaction(SIGURG, &sa, former), 0);
}

static void urgent_main(void *arg)
{
    (void)arg;
    struct sigaction ours;
    over = false;
    CHECK_EQ(sigaction(SIGURG, NULL, &ours), 0);
    CHECK_EQ(ours.sa_flags & SA_NODEFER, 0); /* frames of several at once would not fit the alternate stack */
    hogs_start(2 * weft_procs(0));
    goes_on_stopping();
    all_arrive();
    CHECK_EQ(got.second, 0);
    CHECK_EQ(got.strange, 0);
    set(on_urgent_too, NULL); /* one of ours that is under way now goes to that one: it is strange, and does no harm */
    goes_on_stopping();
    all_arrive();
    CHECK(got.second > 0);
    struct sigaction simple = {.sa_handler = on_urgent_simply, .sa_flags = SA_RESTART};
    CHECK_EQ(sigaction(SIGURG, &simple, NULL), 0);
    goes_on_stopping();
    arrives(send_raise, &got.second);
    set(on_urgent_and_before, &replaced);
    goes_on_stopping();
    all_arrive();
    set(on_urgent_too, NULL);
    goes_on_stopping();
    end_all();
}

static void run_urgent(int procs)
{
    struct sigaction former, now;
    memset((void *)&got, 0, sizeof got);
    set(on_urgent, &former);
    CHECK_EQ(run_on(procs, urgent_main, NULL), 0);
    CHECK_EQ(sigaction(SIGURG, &former, &now), 0);
    CHECK(now.sa_sigaction == on_urgent_too); /* the last one that the program has set */
}

CASE(the_program_gets_its_own_urgent_signals_and_preemption_goes_on)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) run_urgent(p);
}

/* Whoever sends puts Weft's handler before the program's, which puts itself before that one again: signals under way go to it first. */
static void chain_main(void *arg)
{
    int want = scaled(2000);
    struct sigaction former,
        chained = {.sa_sigaction = on_urgent_and_before, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    (void)arg;
    over = false;
    hogs_start(2 * weft_procs(0));
    weft_block_enter();
    for (int64_t end = weft_now() + 20 * WEFT_SEC; got.second < want && weft_now() < end;) {
        CHECK_EQ(sigaction(SIGURG, &chained, &former), 0);
        if (former.sa_sigaction != on_urgent_and_before)
            replaced = former;
    }
    weft_block_leave();
    CHECK(got.second > 0);
    set(on_urgent_too, NULL);
    goes_on_stopping();
    end_all();
}

CASE(one_of_ours_that_comes_by_way_of_the_programs_handler_does_no_harm)
{
    struct sigaction former, sa = {.sa_sigaction = on_urgent_too, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (never_stopped())
        return;
    memset((void *)&got, 0, sizeof got);
    CHECK_EQ(sigaction(SIGURG, &sa, &former), 0);
    replaced = sa;
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 2, .quantum = WEFT_MSEC}, chain_main, NULL), 0);
    CHECK_EQ(sigaction(SIGURG, &former, NULL), 0);
}

static sigjmp_buf place;
static int jumps;

static void on_urgent_and_away(int sig)
{
    (void)sig;
    jumps++;
    siglongjmp(place, 1);
}

/* The handler is called on top of the stack for signals, and deeper. */
static void on_other(int sig)
{
    (void)sig;
    raise(SIGURG);
}

static void jump_main(void *arg)
{
    struct sigaction away = {.sa_handler = on_urgent_and_away},
                     other = {.sa_handler = on_other, .sa_flags = SA_ONSTACK};
    (void)arg;
    CHECK_EQ(sigaction(SIGUSR1, &other, NULL), 0);
    weft_pin();
    over = false;
    hogs_start(1);
    CHECK_EQ(sigaction(SIGURG, &away, NULL), 0);
    goes_on_stopping();
    for (volatile int i = 0; i < 6; i++) {
        volatile int before = jumps;
        for (volatile int tries = 0; jumps == before && tries < 100; tries++) /* one of ours may be pending */
            if (sigsetjmp(place, 1) == 0)
                raise(i % 2 == 0 ? SIGURG : SIGUSR1);
        CHECK(jumps > before);
    }
    weft_unpin();
    signal(SIGUSR1, SIG_DFL);
    end_all();
}

CASE(a_handler_that_jumps_away_gets_the_next_one_too)
{
    struct sigaction former;
    if (never_stopped())
        return;
    CHECK_EQ(sigaction(SIGURG, NULL, &former), 0);
    jumps = 0;
    CHECK_EQ(run_on(1, jump_main, NULL), 0);
    CHECK_EQ(sigaction(SIGURG, &former, NULL), 0);
}

static void ignore_main(void *arg)
{
    (void)arg;
    over = false;
    hogs_start(2);
    for (int i = 0; i < 20; i++) {
        send_raise();
        send_kill();
    }
    goes_on_stopping();
    signal(SIGURG, SIG_IGN);
    goes_on_stopping();
    send_raise();
    signal(SIGURG, SIG_DFL);
    goes_on_stopping();
    send_raise();
    end_all();
}

CASE(without_a_handler_its_signals_have_no_effect)
{
    struct sigaction now;
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, ignore_main, NULL), 0);
    CHECK_EQ(sigaction(SIGURG, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
}
