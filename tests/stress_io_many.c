/* SPDX-License-Identifier: MIT */
/*
 * Ten thousand connections at once, each with a goroutine that waits for it. The other ends are held by a child process, so
 * that what this one has grown by is what a connection costs: a goroutine with a page of stack, and its entry in the table of
 * descriptors. As many as the limit of descriptors allows.
 */
#include "stress.h" /* first */
#include "io.h"
#include <sys/resource.h>

enum { MOST = 10000, ROUNDS = 3, COST = 6 << 10, SPARE = 100 };

struct hall {
    int n, *fd; /* our ends */
    _Atomic int answered, ended, waiting;
};

/* Takes what the child sends, a byte a round, and sends it back. */
static void serve(void *arg)
{
    int fd = *(int *)arg;
    struct hall *h = *(struct hall **)((char *)arg + sizeof(void *));
    char c;
    h->waiting++;
    while (weft_read(fd, &c, 1) == 1) {
        CHECK_EQ(weft_write(fd, &c, 1), 1);
        h->answered++;
    }
    h->ended++;
}

static void start(struct hall *h)
{
    for (int i = 0; i < h->n; i++) {
        char arg[2 * sizeof(void *)] = {0};
        memcpy(arg, &h->fd[i], sizeof(int));
        memcpy(arg + sizeof(void *), &h, sizeof h);
        CHECK_EQ(weft_go_copy(serve, arg, sizeof arg), 0);
    }
}

/* The child: a byte to each and back, when it is told to. */
static int call_all(const int *fd, int n, int orders, int reports)
{
    char c;
    while (read(orders, &c, 1) == 1) {
        for (int i = 0; i < n; i++)
            if (write(fd[i], &c, 1) != 1)
                return 1;
        for (int i = 0; i < n; i++) {
            char back = 0;
            if (read(fd[i], &back, 1) != 1 || back != c)
                return 2;
        }
        if (write(reports, &c, 1) != 1)
            return 3;
    }
    return 0;
}

struct visit {
    struct hall hall;
    int orders, reports;
    int64_t before;
};

static void hall_main(void *arg)
{
    struct visit *v = arg;
    struct hall *h = &v->hall;
    char c;
    start(h);
    CHECK(reaches(&h->waiting, h->n, 60));
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_EQ(weft_write(v->orders, &"abcdef"[i], 1), 1);
        CHECK_EQ(weft_read(v->reports, &c, 1), 1);
        CHECK(reaches(&h->answered, (i + 1) * h->n, 60));
    }
    int64_t each = (check_rss() - v->before) / h->n;
    printf("# %d connections, %lld bytes of memory each\n", h->n, (long long)each);
    if (check_scale() == 1)
        CHECK(each < COST);
    CHECK_EQ(weft_close_fd(v->orders), 0); /* the child ends, and with it every connection */
    CHECK(reaches(&h->ended, h->n, 60));
}

static void make_pairs(int n, int *ours, int *theirs)
{
    for (int i = 0; i < n; i++) {
        int fd[2] = {-1, -1};
        unix_pair(fd);
        ours[i] = fd[0];
        theirs[i] = fd[1];
    }
}

/* Both ends are ours until the child has its own: half of what the limit allows. */
static int allowed(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int most = limit.rlim_max > 2 * (MOST + SPARE) ? MOST : (int)(limit.rlim_max - SPARE) / 2;
    return most / check_scale();
}

static void hold(int n, int procs)
{
    struct visit v = {.hall = {.n = n, .fd = calloc((size_t)n, sizeof(int))}};
    int *theirs = calloc((size_t)n, sizeof *theirs), orders[2], reports[2], status = -1;
    make_pairs(n, v.hall.fd, theirs);
    pipe_pair(orders);
    pipe_pair(reports);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(100);
        for (int i = 0; i < n; i++)
            close(v.hall.fd[i]);
        close(orders[1]);
        close(reports[0]);
        _exit(call_all(theirs, n, orders[0], reports[1]));
    }
    for (int i = 0; i < n; i++)
        close(theirs[i]);
    close(orders[0]);
    close(reports[1]);
    v.orders = orders[1];
    v.reports = reports[0];
    v.before = check_rss();
    CHECK_EQ(run_on(procs, hall_main, &v), 0);
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    for (int i = 0; i < n; i++)
        close(v.hall.fd[i]);
    close(reports[0]);
    free(theirs);
    free(v.hall.fd);
}

CASE(ten_thousand_connections_wait_and_are_served)
{
    struct rlimit former;
    getrlimit(RLIMIT_NOFILE, &former);
    int n = allowed();
    EACH_PROCS(p) hold(n, p);
    setrlimit(RLIMIT_NOFILE, &former);
}
