/* SPDX-License-Identifier: MIT */
/* The live picture's server: its listeners one after the other, beside a dump that nobody reads, and as the environment asks for it. */
#include "webs.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

/* ---- one listener after the other -------------------------------------------------------------------------------- */

enum { DESCRIPTORS = 64 };

static int port_of(int fd)
{
    struct sockaddr_in in;
    socklen_t n = sizeof in;
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    return ntohs(in.sin_port);
}

/* Who accepts connections waits a while when it has no descriptor for one. Then the program's next listener has the number. */
static void listen_with_its_number(void *arg)
{
    int used[DESCRIPTORS], n = 0;
    (void)arg;
    start_server();
    weft_sleep(20 * WEFT_MSEC);
    int first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    in.sin_port = htons((uint16_t)port);
    while (n < DESCRIPTORS && (used[n] = dup(first)) >= 0)
        n++;
    CHECK_EQ(weft_connect(first, (struct sockaddr *)&in, sizeof in), 0);
    weft_sleep(30 * WEFT_MSEC);
    CHECK_EQ(weft_http_stop(), 0);
    int mine = weft_listen("127.0.0.1:0");
    CHECK(mine >= 0);
    while (n > 0)
        close(used[--n]);
    in.sin_port = htons((uint16_t)port_of(mine));
    CHECK_EQ(weft_connect(second, (struct sockaddr *)&in, sizeof in), 0);
    weft_sleep(200 * WEFT_MSEC);
    fcntl(mine, F_SETFL, O_NONBLOCK);
    int guest = accept(mine, NULL, NULL);
    CHECK(guest >= 0);
    close(guest);
    weft_close_fd(mine);
    weft_close_fd(first);
    weft_close_fd(second);
}

static void run_with_few_descriptors(void)
{
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){DESCRIPTORS, DESCRIPTORS}), 0);
    run(listen_with_its_number);
}

CASE(after_the_stop_nobody_is_accepted_on_the_programs_own_listener)
{
    char said[512];
    CHECK_EQ(check_child(run_with_few_descriptors, said, sizeof said), 0);
}

static void take_the_port_back(void *arg)
{
    (void)arg;
    start_server();
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    in.sin_port = htons((uint16_t)port);
    CHECK_EQ(weft_http_stop(), 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* without SO_REUSEADDR */
    CHECK_EQ(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    close(fd);
}

CASE(the_port_is_free_after_the_stop)
{
    run(take_the_port_back);
}

/* ---- beside dumps ------------------------------------------------------------------------------------------------ */

static int clogged[2];

static void dump_in_vain(void *arg)
{
    CHECK_EQ(weft_dump(clogged[1]), 0);
    weft_wg_done(arg);
}

static void drain(void *arg)
{
    (void)arg;
    while (weft_read(clogged[0], answer, ROOM) > 0)
        ;
}

static void ask_beside_a_dump(void *arg)
{
    weft_scope s;
    weft_wg dumped = {0};
    (void)arg;
    start_server();
    CHECK_EQ(pipe2(clogged, O_CLOEXEC), 0);
    CHECK(fcntl(clogged[1], F_SETPIPE_SZ, 4096) > 0);
    CHECK_EQ(write(clogged[1], answer, 4096), 4096);
    weft_wg_add(&dumped, 1);
    weft_go(dump_in_vain, &dumped);
    weft_sleep(50 * WEFT_MSEC);
    weft_scope_open(&s, weft_now() + 20 * WEFT_SEC);
    CHECK_EQ(get("/api/goroutines", HERE), 200);
    CHECK(strstr(answer, "\"name\":\"main\"") != NULL);
    weft_scope_close(&s);
    weft_go(drain, NULL);
    weft_wg_wait(&dumped);
    weft_close_fd(clogged[1]);
    weft_close_fd(clogged[0]);
}

CASE(a_dump_that_nobody_reads_keeps_nobody_from_looking)
{
    run(ask_beside_a_dump);
}

/* ---- the environment --------------------------------------------------------------------------------------------- */

/* What weft top reads. */
static bool read_note(char *text, size_t size)
{
    bool found = false;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *e; folder != NULL && !found && (e = readdir(folder)) != NULL;) {
        char path[PATH_MAX], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0 || strcmp(target, "/memfd:weft-http (deleted)") != 0)
            continue;
        int fd = open(path, O_RDONLY);
        n = pread(fd, text, size - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        close(fd);
        found = n > 0; /* else it is about to be written */
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

static void look_around(void *arg)
{
    char note[256];
    (void)arg;
    while (!read_note(note, sizeof note))
        weft_sleep(WEFT_MSEC);
    CHECK_EQ(sscanf(note, "http://127.0.0.1:%d/", &port), 1);
    CHECK_EQ(get("/api/stats", HERE), 200);
}

static void run_from_environment(void)
{
    setenv("WEFT_HTTP", "127.0.0.1:0", 1);
    run(look_around);
}

CASE(the_environment_asks_for_it)
{
    char said[512];
    CHECK_EQ(check_child(run_from_environment, said, sizeof said), 0);
    CHECK(strstr(said, "the live picture is at http://127.0.0.1:") != NULL);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void run_with_nonsense(void)
{
    setenv("WEFT_HTTP", "no address", 1);
    CHECK_EQ(weft_run(nothing, NULL), -EINVAL);
    setenv("WEFT_HTTP", "127.0.0.1:0", 1);
    setenv("WEFT_HTTP_TOKEN", "short", 1);
    CHECK_EQ(weft_run(nothing, NULL), -EINVAL);
}

CASE(an_environment_that_makes_no_sense_is_refused)
{
    char said[512];
    CHECK_EQ(check_child(run_with_nonsense, said, sizeof said), 0);
    CHECK(strstr(said, "WEFT_HTTP=no address makes no sense") != NULL);
    CHECK(strstr(said, "WEFT_HTTP_TOKEN makes no sense") != NULL && strstr(said, "short") == NULL);
}

static void take_the_port(void *arg)
{
    (void)arg;
    weft_sleep(20 * WEFT_MSEC);
}

static void run_without_picture(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof in;
    char address[64];
    bind(fd, (struct sockaddr *)&in, n);
    listen(fd, 1);
    getsockname(fd, (struct sockaddr *)&in, &n);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(in.sin_port));
    setenv("WEFT_HTTP", address, 1);
    run(take_the_port);
    close(fd);
}

CASE(a_program_runs_without_its_picture_rather_than_not_at_all)
{
    char said[512];
    CHECK_EQ(check_child(run_without_picture, said, sizeof said), 0);
    CHECK(strstr(said, "no live picture") != NULL);
}

CASE(there_must_be_a_runtime)
{
    CHECK_EQ(weft_http_start(NULL), -EPERM);
    CHECK_EQ(weft_http_stop(), -ESRCH);
}
