/* SPDX-License-Identifier: MIT */
/*
 * What the lab asks the kernel for: threads, how much memory and time they take, and whether they are stuck.
 *
 * Thread numbers are shared by all programs of a machine. A thread for each goroutine would take them all, and then no other
 * program could start anything; so the lab stops RESERVE threads before the machine's limits.
 */
#include "lab.h"
#include "sanitize.h"
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { PAGE = 4096, RESERVE = 2048, LOOKS = 10, LOOK_MS = 50, ASK_EVERY = 256 };
#ifdef W_SANITIZED
enum { THREAD_STACK = 512 << 10 };
#else
enum { THREAD_STACK = 64 << 10 };
#endif

/* ---- numbers from /proc ----------------------------------------------------------------------------------------- */

static long number_in(const char *path, const char *format, long missing)
{
    long n;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return missing;
    if (fscanf(f, format, &n) != 1)
        n = missing;
    fclose(f);
    return n;
}

/* The number after `key:` in a file of such lines. */
static int64_t field(const char *path, const char *key)
{
    char line[256];
    long n = 0;
    size_t len = strlen(key);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, len) == 0 && line[len] == ':' && sscanf(line + len + 1, "%ld", &n) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return n;
}

static long threads_of_all(void)
{
    return number_in("/proc/loadavg", "%*f %*f %*f %*d/%ld", 0);
}

/* A thread's kernel stack is not in the process's own figures: what the kernel has for all threads, divided by their number. */
int64_t lab_memory(void)
{
    int64_t kib = field("/proc/self/status", "VmRSS") + field("/proc/self/status", "VmPTE");
    long all = threads_of_all();
    int64_t each = all > 0 ? field("/proc/meminfo", "KernelStack") * 1024 / all : 0;
    int64_t pages = (each + PAGE / 2) / PAGE; /* others come and go between the two numbers */
    return kib * 1024 + field("/proc/self/status", "Threads") * pages * PAGE;
}

int64_t lab_cpu_time(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* Each thread takes two mappings: its stack and the guard below it. */
long lab_thread_room(const char **limit)
{
    static const struct {
        const char *name, *path;
        int each;
        bool shared;
    } limits[] = {{"kernel.pid_max", "/proc/sys/kernel/pid_max", 1, true},
                  {"kernel.threads-max", "/proc/sys/kernel/threads-max", 1, true},
                  {"vm.max_map_count", "/proc/sys/vm/max_map_count", 2, false}};
    long room = INT32_MAX, others = threads_of_all(), own = field("/proc/self/status", "Threads");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        long n =
            number_in(limits[i].path, "%ld", INT32_MAX) / limits[i].each - (limits[i].shared ? others : own) - RESERVE;
        if (n < room) {
            room = n;
            *limit = limits[i].name;
        }
    }
    return room;
}

/* Asked now and then only: it costs as much as a thread. */
static bool there_is_room(void)
{
    static _Atomic long left;
    const char *limit;
    if (add_relaxed(&left, -1) > 0)
        return true;
    long room = lab_thread_room(&limit);
    st_relaxed(&left, room < ASK_EVERY ? room : ASK_EVERY);
    return room > 0;
}

static int create(pthread_t *t, void *(*fn)(void *), void *arg, int state)
{
    pthread_attr_t attr;
    if (!there_is_room())
        return -EAGAIN;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    pthread_attr_setdetachstate(&attr, state);
    int r = -pthread_create(t, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return r;
}

int lab_thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
    return create(t, fn, arg, PTHREAD_CREATE_JOINABLE);
}

int lab_thread_detached(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    return create(&t, fn, arg, PTHREAD_CREATE_DETACHED);
}

/* ---- the watch -------------------------------------------------------------------------------------------------- */

static bool sleeps(const char *tid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    const char *name_end = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
    fclose(f);
    return name_end != NULL && name_end[1] == ' ' && name_end[2] == 'S';
}

/* All threads but this one. */
static bool all_sleep(void)
{
    char self[24];
    snprintf(self, sizeof self, "%d", gettid());
    DIR *dir = opendir("/proc/self/task");
    if (dir == NULL)
        return false;
    bool all = true;
    for (struct dirent *e; all && (e = readdir(dir)) != NULL;)
        all = e->d_name[0] == '.' || strcmp(e->d_name, self) == 0 || sleeps(e->d_name);
    closedir(dir);
    return all;
}

static int64_t own_time(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

/* A monitor thread that wakes up now and then to look may run; who does something runs for more than that. */
static void *watch(void *arg)
{
    void (*stuck)(void) = *(void (**)(void))arg;
    const int64_t idle = LOOK_MS * WEFT_MSEC / 50;
    int64_t others = lab_cpu_time() - own_time();
    for (int quiet = 0; quiet < LOOKS;) {
        w_nap(LOOK_MS * WEFT_MSEC);
        int64_t now = lab_cpu_time() - own_time();
        quiet = now - others < idle && all_sleep() ? quiet + 1 : 0;
        others = now;
    }
    stuck();
    return NULL;
}

void lab_watch(void (*stuck)(void))
{
    static void (*call)(void);
    pthread_t t;
    call = stuck;
    if (pthread_create(&t, NULL, watch, &call) == 0)
        pthread_detach(t);
}
