/* SPDX-License-Identifier: MIT */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CASES = 200, TIME_LIMIT = 120 };

static struct {
    const char *name;
    check_fn *fn;
} cases[MAX_CASES];
static int case_count;
static const char *current = "?";
static int failures; /* of the running case; atomic */
static bool leaks_allowed;

void check_register(const char *name, check_fn *fn)
{
    if (case_count == MAX_CASES)
        abort();
    cases[case_count].name = name;
    cases[case_count++].fn = fn;
}

void check_fail(const char *file, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 10)
        fprintf(stderr, "%s:%d: in %s: %s\n", file, line, current, text);
}

/* ---- the machine ------------------------------------------------------------------------------------------------ */

static long status_field(const char *key)
{
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && value < 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
            value = atol(line + strlen(key) + 1);
    if (f != NULL)
        fclose(f);
    return value;
}

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

int64_t check_rss(void)
{
    return (int64_t)status_field("VmRSS") * 1024;
}

static int emulator_threads; /* an emulator's own */

/* The kernel counts a thread for a moment after it was joined: the fewest in a while are those that stay. */
static void count_emulator_threads(void)
{
    int fewest = (int)status_field("Threads");
    for (int i = 0; i < 30; i++) {
        usleep(1000);
        int n = (int)status_field("Threads");
        fewest = n < fewest ? n : fewest;
    }
    emulator_threads = fewest - 1;
}

int check_threads(void)
{
    return (int)status_field("Threads") - emulator_threads;
}

int check_threads_in_the_end(void)
{
    int alone = 1 + check_under_tsan(); /* which has a thread of its own */
    for (int i = 0; i < 300 && check_threads() > alone; i++)
        usleep(10000);
    return check_threads() - alone + 1;
}

int64_t check_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

bool check_under_emulator(void)
{
    const char *e = getenv("WEFT_TEST_EMULATED");
    return e != NULL && *e == '1';
}

bool check_under_tsan(void)
{
#if defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

bool check_under_asan(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer);
#else
    return false;
#endif
}

int check_scale(void)
{
    return check_under_tsan() || check_under_emulator() ? 20 : check_under_asan() ? 5 : 1;
}

/* ---- randomness ------------------------------------------------------------------------------------------------- */

uint64_t check_seed(void)
{
    const char *text = getenv("WEFT_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 1000003 ^ (uint64_t)getpid();
    printf("# %s: WEFT_TEST_SEED=%llu\n", current, (unsigned long long)seed);
    fflush(stdout);
    return seed | 1;
}

uint32_t check_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

/* ---- children --------------------------------------------------------------------------------------------------- */

/* A user-mode emulator adds its own words when the program dies. */
static void drop_emulator_lines(char *text)
{
    char *line;
    while (check_under_emulator() && (line = strstr(text, "qemu: ")) != NULL) {
        char *end = strchr(line, '\n');
        end = end != NULL ? end + 1 : line + strlen(line);
        memmove(line, end, strlen(end) + 1);
    }
}

int check_child(check_fn *fn, char *text, size_t size)
{
    int fds[2], status = -1;
    if (pipe(fds) != 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        fn();
        fflush(NULL);
        _exit(__atomic_load_n(&failures, __ATOMIC_RELAXED) != 0);
    }
    close(fds[1]);
    size_t n = 0;
    ssize_t k;
    char sink[512];
    while ((k = n + 1 < size ? read(fds[0], text + n, size - 1 - n) : read(fds[0], sink, sizeof sink)) > 0)
        n += n + 1 < size ? (size_t)k : 0;
    if (size > 0) {
        text[n] = '\0';
        drop_emulator_lines(text);
    }
    close(fds[0]);
    waitpid(pid, &status, 0);
    return status;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

void check_leaks_allowed(void)
{
    leaks_allowed = true;
}

static void on_alarm(int sig)
{
    static const char text[] = ": it takes too long\n";
    (void)sig;
    ssize_t ignored = write(STDERR_FILENO, current, strlen(current));
    ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    abort();
}

/* A thread that was joined may still be seen for a moment. */
static bool settles(int (*measure)(void), int limit)
{
    for (int i = 0; i < 100; i++) {
        if (measure() <= limit)
            return true;
        usleep(10000);
    }
    return false;
}

static int descriptors(void)
{
    return entries("/proc/self/fd");
}

static bool run(int i)
{
    current = cases[i].name;
    __atomic_store_n(&failures, 0, __ATOMIC_RELAXED);
    leaks_allowed = false;
    int threads = check_threads(), fds = descriptors();
    alarm(TIME_LIMIT);
    cases[i].fn();
    alarm(0);
    if (!leaks_allowed && !check_under_emulator()) {
        if (!settles(check_threads, threads))
            check_fail(__FILE__, __LINE__, "threads are left behind");
        if (!settles(descriptors, fds))
            check_fail(__FILE__, __LINE__, "descriptors are left behind");
    }
    bool ok = __atomic_load_n(&failures, __ATOMIC_RELAXED) == 0;
    printf("%s %s\n", ok ? "ok" : "FAIL", current);
    fflush(stdout);
    return ok;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(name, argv[i]) == 0)
            return true;
    return argc <= 1;
}

static void *nothing(void *arg)
{
    return arg;
}

/* TSan starts a thread of its own with the program's first: let it be there before anybody counts. */
static void start_first_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) == 0)
        pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    start_first_thread();
    if (check_under_emulator())
        count_emulator_threads();
    signal(SIGALRM, on_alarm);
    for (int i = 0; i < case_count; i++) {
        if (argc > 1 && strcmp(argv[1], "-l") == 0) {
            printf("%s\n", cases[i].name);
            continue;
        }
        if (!wanted(cases[i].name, argc, argv))
            continue;
        if (run(i))
            passed++;
        else
            failed++;
    }
    if (argc <= 1 || strcmp(argv[1], "-l") != 0)
        printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
