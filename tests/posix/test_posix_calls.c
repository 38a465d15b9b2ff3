/* SPDX-License-Identifier: MIT */
/* Calls before any constructor, sleeping, processes and signals through libweft_posix. */
#include "pairs.h"
#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>

/* ---- early ------------------------------------------------------------------------------------------------------ */

static char early_bytes[2] = "??";

/* Before the constructors of any library. */
static void call_early(void)
{
    int fd = open("/dev/zero", O_RDONLY);
    if (read(fd, early_bytes, sizeof early_bytes) != sizeof early_bytes)
        early_bytes[0] = '!';
    usleep(1);
    close(fd);
}

__attribute__((section(".preinit_array"), used)) static void (*early)(void) = call_early;

CASE(they_work_before_any_constructor)
{
    CHECK_EQ(early_bytes[0], 0);
    CHECK_EQ(early_bytes[1], 0);
}

/* ---- sleeping --------------------------------------------------------------------------------------------------- */

static void sleeps(void)
{
    struct timespec at, span = {.tv_nsec = 20 * WEFT_MSEC};
    int64_t began = weft_now();
    CHECK_EQ(usleep(20000), 0);
    CHECK(weft_now() - began >= 20 * WEFT_MSEC);
    CHECK_EQ(nanosleep(&span, NULL), 0);
    CHECK(weft_now() - began >= 40 * WEFT_MSEC);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL), 0);
    CHECK(weft_now() - began >= 60 * WEFT_MSEC);
    at = (struct timespec){.tv_sec = (began + 80 * WEFT_MSEC) / WEFT_SEC,
                           .tv_nsec = (began + 80 * WEFT_MSEC) % WEFT_SEC};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL), 0);
    CHECK(weft_now() - began >= 80 * WEFT_MSEC);
    clock_gettime(CLOCK_REALTIME, &at);
    CHECK_EQ(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL), 0);
    CHECK_EQ(sleep(0), 0);
    CHECK_ERRNO(nanosleep(&(struct timespec){.tv_nsec = -1}, NULL), EINVAL);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = WEFT_SEC}, NULL), EINVAL);
}

CASE(sleeping_takes_its_time)
{
    inside_and_outside(sleeps);
}

static void with_nothing(struct pair *p)
{
    with_pipe(p);
}

static void wait_sleep(struct pair *p)
{
    (void)p;
    CHECK_EQ(sleep(1), 0);
}

static void feed_nothing(struct pair *p)
{
    (void)p;
}

CASE(sleeping_parks)
{
    each_way(&(struct kind){with_nothing, wait_sleep, feed_nothing});
}

static void cut_sleeps(void *arg)
{
    weft_scope s;
    struct timespec left = {0};
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, weft_now() + 20 * WEFT_MSEC), 0);
    CHECK_ERRNO(nanosleep(&(struct timespec){.tv_sec = 1000}, &left), ETIMEDOUT);
    CHECK(left.tv_sec > 500 && left.tv_sec < 1000);
    CHECK_EQ(clock_nanosleep(CLOCK_REALTIME, 0, &(struct timespec){.tv_sec = 1000}, NULL), ETIMEDOUT);
    CHECK_ERRNO(usleep(900000000), ETIMEDOUT);
    unsigned seconds = sleep(1000);
    CHECK(seconds > 500 && seconds <= 1000);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
}

CASE(the_end_of_a_scope_ends_a_sleep)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, cut_sleeps, NULL), 0);
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

static pid_t child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "sleep 0.05; exit 3", (char *)NULL);
        _exit(1);
    }
    return pid;
}

/* What a library does between fork and exec; it is no goroutine's any more. */
static void as_child(int *fds)
{
    char c;
    close(fds[0]);
    usleep(1000);
    if (poll(NULL, 0, 1) != 0 || write(fds[1], "x", 1) != 1 || read(fds[1], &c, 1) != -1 || errno != EBADF)
        _exit(1);
    close(fds[1]);
    _exit(0);
}

static void forks(void)
{
    int fds[2], status = -1;
    char c;
    CHECK_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0)
        as_child(fds);
    CHECK_EQ(read(fds[0], &c, 1), 1);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    close(fds[0]);
    close(fds[1]);
}

CASE(children_call_libc)
{
    inside_and_outside(forks);
}

/* A daemon's child begins a run of its own. */
static void daemon_child(void)
{
    between_goroutines(&(struct kind){with_nothing, wait_sleep, feed_nothing});
}

CASE(a_child_may_begin_a_run)
{
    char text[4096];
    CHECK(child_is_well(daemon_child, text, sizeof text));
}

static void children(void)
{
    int status = 0;
    siginfo_t info = {0};
    pid_t pid = child();
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    pid = child();
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    CHECK_EQ(info.si_status, 3);
    CHECK_EQ(wait4(pid, &status, WNOHANG, NULL), pid);
    pid = child();
    CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
    CHECK_EQ(wait3(&status, 0, NULL), pid);
    pid = child();
    CHECK_EQ(wait(&status), pid);
    CHECK_ERRNO(waitpid(pid, &status, 0), ECHILD);
    CHECK_EQ(WEXITSTATUS(system("exit 4")), 4);
}

CASE(children_are_waited_for)
{
    inside_and_outside(children);
}

/* ---- signals ---------------------------------------------------------------------------------------------------- */

enum { HANDLED = 1000, WORKERS = 8, PATIENCE = 20 };

static int self_pipe[2];
static bool waits_in_handler;
static _Atomic bool signals_over;
static _Atomic int in_goroutines, moves, wrong_results;

static pid_t this_thread(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* What a handler may call anywhere. */
static bool calls_that_cannot_wait(void)
{
    struct pollfd fd = {.fd = self_pipe[1], .events = POLLOUT};
    bool written = write(self_pipe[1], "x", 1) == 1 || errno == EAGAIN;
    return written && poll(&fd, 1, 0) >= 0 && select(0, NULL, NULL, NULL, &(struct timeval){0}) == 0 &&
           waitpid(-1, NULL, WNOHANG) == -1 && flock(self_pipe[1], LOCK_EX | LOCK_NB) == 0;
}

/* And on the stack for signals. */
static bool calls_that_wait(void)
{
    return usleep(1) == 0 && close(open("/dev/null", O_RDONLY)) == 0;
}

static void call_in_handler(int sig)
{
    int saved = errno;
    pid_t thread = this_thread();
    (void)sig;
    in_goroutines += weft_id() != 0;
    wrong_results += !calls_that_cannot_wait() || (waits_in_handler && !calls_that_wait());
    moves += this_thread() != thread;
    errno = saved;
}

/* One for each thread, but not for the monitor, which is the first, nor for the caller. */
static void signal_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        pid_t thread = atoi(task->d_name);
        if (thread > 0 && thread != getpid() && thread != this_thread())
            syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
    }
    closedir(tasks);
}

static void *send_signals(void *arg)
{
    char text[4096];
    int64_t end = weft_now() + PATIENCE * WEFT_SEC;
    while (in_goroutines < HANDLED && weft_now() < end) {
        signal_threads();
        usleep(200);
        while (read(self_pipe[0], text, sizeof text) > 0)
            ;
    }
    signals_over = true;
    return arg;
}

/* Longer than a quantum in the middle of libc, then a moment in the middle of the runtime. */
static void work(void *arg)
{
    while (!signals_over) {
        for (int64_t end = weft_now() + 2 * WEFT_MSEC; weft_now() < end;)
            for (size_t size = 16; size < 2048; size += 16) {
                void *volatile block = malloc(size);
                free(block);
            }
        usleep(10);
    }
    weft_wg_done(arg);
}

static void signals_main(void *arg)
{
    pthread_t thread;
    weft_wg all = {0};
    (void)arg;
    signals_over = false;
    in_goroutines = 0;
    weft_wg_add(&all, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(weft_go(work, &all), 0);
    CHECK_EQ(pthread_create(&thread, NULL, send_signals, NULL), 0);
    CHECK_EQ(weft_wg_wait(&all), 0);
    join_in_region(&thread, 1);
    CHECK(in_goroutines > 0);
}

/* Wherever a signal finds a thread, its handler returns on that thread. */
static void handlers(int flags)
{
    struct sigaction act = {.sa_handler = call_in_handler, .sa_flags = SA_RESTART | flags}, former;
    CHECK_EQ(pipe2(self_pipe, O_NONBLOCK), 0);
    moves = wrong_results = 0;
    sigaddset(&act.sa_mask, SIGURG); /* by which others are preempted: calls that end with EINTR then */
    sigaction(SIGUSR1, &act, &former);
    EACH_PROCS(p)
    CHECK_EQ(weft_run_with(&(weft_config){.procs = p, .quantum = WEFT_MSEC}, signals_main, NULL), 0);
    sigaction(SIGUSR1, &former, NULL);
    CHECK_EQ(moves, 0);
    CHECK_EQ(wrong_results, 0);
    close(self_pipe[0]);
    close(self_pipe[1]);
}

CASE(handlers_may_make_calls_that_cannot_wait)
{
    waits_in_handler = false;
    handlers(0);
}

CASE(handlers_on_the_stack_for_signals_may_wait)
{
    waits_in_handler = true;
    handlers(SA_ONSTACK);
}
