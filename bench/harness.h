/* SPDX-License-Identifier: MIT */
/*
 * What the C benchmark programs share: the table of workloads, the clock, the memory counters and the output.
 *
 * A program is a table of `struct workload` and a function that starts one of them:
 *
 *     PROGRAM -l                          prints the names, one a line
 *     PROGRAM [-p PROCS] [-n SIZE] NAME   runs one workload, one that is called scale_ on so many processors and with so
 *                                         many goroutines, and prints `NAME VALUE UNIT`, or a line `NAME.part VALUE
 *                                         UNIT` for each part
 *
 * A timed workload is given as one pass over a fixed number of operations; per_op repeats the pass, for about a second
 * with its warm-up. The mean over that time is one sample: tools/bench.py takes the best and the median of several runs.
 * QUICK=1 in the environment makes it a fifth, TINY=1 one pass, which is only to see that it works.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct workload {
    const char *name;
    int procs; /* logical processors; 0 = as many as the process may use */
    void (*run)(const struct workload *);
    int size; /* what the workload makes of it; 0 where it has one size only */
};

#define MEASURE_NS 750000000 /* timed passes are repeated until this much time has passed */
#define WARM_UP_NS 200000000 /* of work that goes on until it is stopped */
enum { QUICKER = 5, SMALLER = 100 };

__attribute__((noreturn)) static inline void die(const char *what, int err)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(err));
    exit(1);
}

/* For calls that return 0 or more on success and a negative errno. */
static inline void must(const char *what, int result)
{
    if (result < 0)
        die(what, -result);
}

/* Guards against figures of work that was not done. */
static inline void expect(const char *what, int64_t got, int64_t want)
{
    if (got == want)
        return;
    fprintf(stderr, "bench: %s is %lld instead of %lld\n", what, (long long)got, (long long)want);
    exit(1);
}

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double ms_since(int64_t start)
{
    return (double)(now_ns() - start) / 1e6;
}

static inline bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

/* What TINY=1 asks for: as small as it can be. Its figures mean nothing. */
static inline bool tiny(void)
{
    return is_set("TINY");
}

/* What QUICK=1 asks for: smaller and shorter, where a workload would take long. */
static inline bool quick(void)
{
    return tiny() || is_set("QUICK");
}

/* A number of goroutines, or of rounds, which is smaller only where it is to be tiny. */
static inline int scaled(int n)
{
    return !tiny() ? n : n > SMALLER ? n / SMALLER : 1;
}

static inline int64_t measure_ns(void)
{
    return tiny() ? MEASURE_NS / SMALLER : quick() ? MEASURE_NS / QUICKER : MEASURE_NS;
}

/* Nanoseconds per operation, when one pass makes `ops` of them and passes are repeated for that long. The first pass
 * warms up and is not counted. */
static inline double per_op_in(int64_t ns, void (*pass)(void), int64_t ops)
{
    if (!tiny())
        pass();
    int64_t passes = 0, elapsed, start = now_ns();
    do {
        pass();
        passes++;
        elapsed = now_ns() - start;
    } while (elapsed < ns);
    return (double)elapsed / (double)(passes * ops);
}

static inline double per_op(void (*pass)(void), int64_t ops)
{
    return per_op_in(measure_ns(), pass, ops);
}

/* Milliseconds that this process has used so far, in user mode and in the kernel. */
static inline double cpu_ms(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0)
        die("getrusage", errno);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

/* Work that goes on until it is stopped: each of the workers counts what it has done, alone on its cache lines. */
struct tally {
    _Alignas(128) _Atomic int64_t n;
};

struct rates {
    double done;       /* operations */
    double ns, cpu_ns; /* that they took */
};

static inline void count_one(struct tally *t)
{
    atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
}

static inline int64_t total_of(struct tally *tallies, int workers)
{
    int64_t sum = 0;
    for (int i = 0; i < workers; i++)
        sum += atomic_load_explicit(&tallies[i].n, memory_order_relaxed);
    return sum;
}

/* Lets them warm up, then looks at them for about a second. */
static inline struct rates measure_rates(struct tally *tallies, int workers, void (*sleep_ns)(int64_t))
{
    sleep_ns(tiny() ? 0 : WARM_UP_NS);
    int64_t before = total_of(tallies, workers), start = now_ns();
    double cpu = cpu_ms();
    sleep_ns(measure_ns());
    struct rates r = {.done = (double)(total_of(tallies, workers) - before), .ns = (double)(now_ns() - start)};
    r.cpu_ns = (cpu_ms() - cpu) * 1e6;
    return r;
}

/* A number of /proc/self/status, by the name of its line. */
static inline int64_t status_field(const char *name)
{
    FILE *f = fopen("/proc/self/status", "r");
    if (f == NULL)
        die("/proc/self/status", errno);
    char line[256];
    long long value = 0;
    size_t length = strlen(name);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            value = strtoll(line + length + 1, NULL, 10);
    fclose(f);
    return value;
}

/* Resident memory and page tables of this process. */
static inline int64_t memory_bytes(void)
{
    return (status_field("VmRSS") + status_field("VmPTE")) * 1024;
}

static inline void report(const struct workload *w, double value, const char *unit)
{
    printf("%s %.2f %s\n", w->name, value, unit);
}

static inline void report_part(const struct workload *w, const char *part, double value, const char *unit)
{
    printf("%s.%s %.2f %s\n", w->name, part, value, unit);
}

static inline int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The parts .p50, .p99 and .max of n times in nanoseconds, which end up sorted. Nothing of none: tools/bench.py shows why. */
static inline void report_spread_us(const struct workload *w, int64_t *times, size_t n)
{
    if (n == 0) {
        fprintf(stderr, "bench: it never happened\n");
        return;
    }
    qsort(times, n, sizeof *times, compare_int64);
    report_part(w, "p50", (double)times[n / 2] / 1e3, "us");
    report_part(w, "p99", (double)times[n * 99 / 100] / 1e3, "us");
    report_part(w, "max", (double)times[n - 1] / 1e3, "us");
}

static inline const struct workload *find_workload(const struct workload *table, const char *name)
{
    while (table->name != NULL && strcmp(table->name, name) != 0)
        table++;
    return table->name != NULL ? table : NULL;
}

static inline void list_workloads(const struct workload *table)
{
    for (; table->name != NULL; table++)
        puts(table->name);
}

/* A number of 1 or more, or 0. */
static inline int number_from(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    return *end == '\0' && n > 0 && n <= INT32_MAX ? (int)n : 0;
}

__attribute__((noreturn)) static inline void usage(const char *program)
{
    fprintf(stderr, "usage: %s -l | [-p PROCS] [-n SIZE] NAME\n", program);
    exit(2);
}

/* Takes the options into w; returns the name. */
static inline const char *read_arguments(int argc, char **argv, struct workload *w)
{
    for (int option; (option = getopt(argc, argv, "p:n:")) != -1;) {
        if (option != 'p' && option != 'n')
            usage(argv[0]);
        int *field = option == 'p' ? &w->procs : &w->size;
        if ((*field = number_from(optarg)) == 0)
            usage(argv[0]);
    }
    if (optind + 1 != argc)
        usage(argv[0]);
    return argv[optind];
}

/* The table ends with an entry that has no name. */
static inline int bench_main(int argc, char **argv, const struct workload *table,
                             void (*start)(const struct workload *))
{
    if (argc == 2 && strcmp(argv[1], "-l") == 0) {
        list_workloads(table);
        return 0;
    }
    struct workload given = {0};
    const char *name = read_arguments(argc, argv, &given);
    const struct workload *found = find_workload(table, name);
    if (found == NULL) {
        fprintf(stderr, "%s: no workload '%s'; -l lists them\n", argv[0], name);
        return 2;
    }
    if ((given.procs != 0 || given.size != 0) && strncmp(name, "scale_", 6) != 0) {
        fprintf(stderr, "%s: processors and size of '%s' are fixed: only those called scale_ have a choice\n", argv[0],
                name);
        return 2;
    }
    struct workload w = *found;
    w.procs = given.procs != 0 ? given.procs : w.procs;
    w.size = given.size != 0 ? given.size : w.size;
    start(&w);
    return 0;
}

#endif
