/* SPDX-License-Identifier: MIT */
/* weft_listen and weft_dial with addresses that nobody has to look up. */
#include "nets.h"
#include <sched.h>
#include <sys/stat.h>

/* ---- IPv4 and IPv6 ---------------------------------------------------------------------------------------------- */

static void ipv4_main(void *arg)
{
    (void)arg;
    int fd = listens("127.0.0.1:0");
    int port = port_of(fd);
    CHECK(port > 0);
    CHECK(option_of(fd, SOL_SOCKET, SO_REUSEADDR) != 0);
    CHECK_EQ(option_of(fd, SOL_SOCKET, SO_REUSEPORT), 0);
    for (int i = 0; i < 5; i++)
        leads_to(text_of("127.0.0.1:%d", port), fd);
    leads_to(text_of("127.0.0.1:0000%d", port), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(ipv4_is_listened_on_and_dialed)
{
    on_each_procs(ipv4_main);
}

static void ipv6_main(void *arg)
{
    (void)arg;
    int fd = listens("[::1]:0");
    leads_to(text_of("[::1]:%d", port_of(fd)), fd);
    leads_to(text_of("[0:0::0:1]:%d", port_of(fd)), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(ipv6_is_listened_on_and_dialed)
{
    if (has_ipv6())
        on_each_procs(ipv6_main);
}

static void zone_main(void *arg)
{
    (void)arg;
    int fd = listens("[::1%lo]:0");
    leads_to(text_of("[::1%%lo]:%d", port_of(fd)), fd);
    leads_to(text_of("[::1%%%u]:%d", if_nametoindex("lo"), port_of(fd)), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(weft_listen("[::1%no-such-thing]:0"), -ENODEV);
    CHECK_EQ(weft_dial("[::1%no-such-thing]:1"), -ENODEV);
    CHECK_EQ(weft_dial("[::1%99999999999]:1"), -ENODEV);
    CHECK_EQ(weft_dial("[::1%0]:1"), -ENODEV);
    CHECK_EQ(weft_dial("[::1%1x]:1"), -ENODEV);
}

CASE(a_zone_is_an_interface_or_its_number)
{
    if (has_ipv6() && if_nametoindex("lo") != 0)
        on_each_procs(zone_main);
}

static void wildcard_main(void *arg)
{
    bool six = *(bool *)arg;
    int fd = listens(":0");
    int port = port_of(fd);
    leads_to(text_of("127.0.0.1:%d", port), fd);
    leads_to(text_of(":%d", port), fd);
    if (six) {
        CHECK_EQ(option_of(fd, SOL_SOCKET, SO_DOMAIN), AF_INET6);
        leads_to(text_of("[::1]:%d", port), fd);
    }
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(without_a_host_both_kinds_are_listened_on)
{
    bool six = has_ipv6();
    EACH_PROCS(p) CHECK_EQ(run_on(p, wildcard_main, &six), 0);
}

static void second_main(void *arg)
{
    int held;
    (void)arg;
    int fd = listens_beside(bound_ipv6, &held);
    CHECK(held >= 0);
    CHECK_EQ(weft_dial(text_of("[::1]:%d", port_of(fd))), -ECONNREFUSED);
    leads_to(text_of(":%d", port_of(fd)), fd);
    close(held);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(without_a_host_ipv4_is_dialed_where_ipv6_refuses)
{
    if (has_ipv6())
        on_each_procs(second_main);
}

/* More than the backlog of 128 that others are content with, if the machine allows it. */
static int many(void)
{
    int most = 0;
    FILE *f = fopen("/proc/sys/net/core/somaxconn", "re");
    CHECK(f != NULL && fscanf(f, "%d", &most) == 1);
    if (f != NULL)
        fclose(f);
    return most < 200 ? most : 200;
}

static void many_main(void *arg)
{
    int n = *(int *)arg, ours[200], theirs[200];
    int fd = listens("127.0.0.1:0");
    const char *address = text_of("127.0.0.1:%d", port_of(fd));
    for (int i = 0; i < n; i++)
        ours[i] = dials(address);
    for (int i = 0; i < n; i++)
        CHECK((theirs[i] = weft_accept(fd, NULL, NULL)) >= 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_close_fd(ours[i]), 0);
        CHECK_EQ(weft_close_fd(theirs[i]), 0);
    }
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(many_may_be_waiting_to_be_accepted)
{
    int n = many();
    EACH_PROCS(p) CHECK_EQ(run_on(p, many_main, &n), 0);
}

/* ---- what does not work ----------------------------------------------------------------------------------------- */

static void bad_main(void *arg)
{
    static const char *const texts[] = {
        "",          "a",           "127.0.0.1", ":",        "127.0.0.1:",     ":65536",
        ":-1",       ":80x",        "::1:80",    "[::1:80",  "::1]:80",        "[::1]80",
        "a b:80",    " :80",        "127.1:80",  "1.2.3:80", "unix:",          "unix:@",
        "unix:80",   "http://a:80", "a..b:80",   "[a]:80",   "[127.0.0.1]:80", "[]:80",
        "[::1%]:80", "[::1%a b]:1"};
    (void)arg;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_EQ(weft_listen(texts[i]), -EINVAL);
        CHECK_EQ(weft_dial(texts[i]), -EINVAL);
    }
    CHECK_EQ(weft_listen(NULL), -EINVAL);
    CHECK_EQ(weft_dial(NULL), -EINVAL);
    CHECK_EQ(weft_dial("127.0.0.1:0"), -EINVAL);
    CHECK_EQ(weft_dial("[::1]:0"), -EINVAL);
    CHECK_EQ(weft_dial("localhost:0"), -EINVAL);
    CHECK_EQ(weft_dial(":0"), -EINVAL);
    const char *overlong = text_of("unix:/%0200d", 0);
    CHECK_EQ(weft_listen(overlong), -ENAMETOOLONG);
    CHECK_EQ(weft_dial(overlong), -ENAMETOOLONG);
    overlong = text_of("unix:@%0108d", 0);
    CHECK_EQ(weft_listen(overlong), -ENAMETOOLONG);
    CHECK_EQ(weft_dial(overlong), -ENAMETOOLONG);
}

CASE(what_is_no_address_is_refused)
{
    on_each_procs(bad_main);
}

static void refused_main(void *arg)
{
    (void)arg;
    int held = bound_ipv4(INADDR_LOOPBACK, 0);
    CHECK(held >= 0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_dial(text_of("127.0.0.1:%d", port_of(held))), -ECONNREFUSED);
    CHECK_EQ(weft_listen(text_of("127.0.0.1:%d", port_of(held))), -EADDRINUSE);
    close(held);
}

CASE(where_nobody_listens_a_dial_is_refused)
{
    on_each_procs(refused_main);
}

static void taken_main(void *arg)
{
    (void)arg;
    int fd = listens("127.0.0.1:0");
    CHECK_EQ(weft_listen(text_of("127.0.0.1:%d", port_of(fd))), -EADDRINUSE);
    CHECK_EQ(weft_listen(text_of(":%d", port_of(fd))), -EADDRINUSE);
    leads_to(text_of("127.0.0.1:%d", port_of(fd)), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(a_port_is_listened_on_once)
{
    on_each_procs(taken_main);
}

/* The end that closes first keeps the port busy for a minute. Somebody else may take it meanwhile, but not each time. */
static bool listens_again(void)
{
    int fd = listens("127.0.0.1:0"), port = port_of(fd);
    int ours = dials(text_of("127.0.0.1:%d", port)), theirs = weft_accept(fd, NULL, NULL);
    char c;
    CHECK(theirs >= 0);
    CHECK_EQ(weft_close_fd(theirs), 0);
    CHECK_EQ(weft_read(ours, &c, 1), 0);
    CHECK_EQ(weft_close_fd(ours), 0);
    CHECK_EQ(weft_close_fd(fd), 0);
    fd = weft_listen(text_of("127.0.0.1:%d", port));
    CHECK(fd >= 0 || fd == -EADDRINUSE);
    if (fd >= 0)
        CHECK_EQ(weft_close_fd(fd), 0);
    return fd >= 0;
}

static void again_main(void *arg)
{
    bool again = false;
    (void)arg;
    for (int i = 0; i < 10 && !again; i++)
        again = listens_again();
    CHECK(again);
}

CASE(a_port_may_be_listened_on_again_at_once)
{
    on_each_procs(again_main);
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static char folder[64];

static const char *path_of(const char *name)
{
    return text_of("%s/%s", folder, name);
}

static const char *unix_of(const char *name)
{
    return text_of("unix:%s/%s", folder, name);
}

static mode_t kind_of(const char *name)
{
    struct stat st;
    return lstat(path_of(name), &st) == 0 ? st.st_mode & S_IFMT : 0;
}

/* Runs fn with an empty folder, which it leaves so. */
static void in_folder(weft_fn *fn)
{
    EACH_PROCS(p)
    {
        strcpy(folder, "/tmp/weft-test-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
        CHECK_EQ(run_on(p, fn, NULL), 0);
        CHECK_EQ(rmdir(folder), 0);
    }
}

static void path_main(void *arg)
{
    (void)arg;
    int fd = listens(unix_of("a"));
    CHECK_EQ(kind_of("a"), S_IFSOCK);
    for (int i = 0; i < 5; i++)
        leads_to(unix_of("a"), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(weft_dial(unix_of("a")), -ECONNREFUSED);
    CHECK_EQ(unlink(path_of("a")), 0);
    CHECK_EQ(weft_dial(unix_of("a")), -ENOENT);
    CHECK_EQ(weft_listen(unix_of("no/a")), -ENOENT);
    fd = listens(unix_of("with space: @"));
    leads_to(unix_of("with space: @"), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(unlink(path_of("with space: @")), 0);
}

CASE(a_path_is_listened_on_and_dialed)
{
    in_folder(path_main);
}

static void long_main(void *arg)
{
    (void)arg;
    int left = 107 - (int)strlen(folder) - 1;
    const char *name = text_of("%0*d", left, 0);
    int fd = listens(unix_of(name));
    leads_to(unix_of(name), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(unlink(path_of(name)), 0);
    CHECK_EQ(weft_listen(unix_of(text_of("%0*d", left + 1, 0))), -ENAMETOOLONG);
}

CASE(a_path_may_be_as_long_as_the_kernel_allows)
{
    in_folder(long_main);
}

static void here_main(void *arg)
{
    char before[4096];
    (void)arg;
    CHECK(getcwd(before, sizeof before) != NULL);
    CHECK_EQ(chdir(folder), 0);
    int fd = listens("unix:./a");
    CHECK_EQ(kind_of("a"), S_IFSOCK);
    leads_to("unix:./a", fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(unlink("a"), 0);
    CHECK_EQ(chdir(before), 0);
}

CASE(a_path_may_begin_here)
{
    in_folder(here_main);
}

static void abandoned_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        int fd = listens(unix_of("a"));
        leads_to(unix_of("a"), fd);
        CHECK_EQ(weft_close_fd(fd), 0);
        CHECK_EQ(kind_of("a"), S_IFSOCK);
    }
    CHECK_EQ(unlink(path_of("a")), 0);
}

CASE(a_path_on_which_nobody_listens_any_more_is_taken_over)
{
    in_folder(abandoned_main);
}

static void alive_main(void *arg)
{
    (void)arg;
    int fd = listens(unix_of("a"));
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weft_listen(unix_of("a")), -EADDRINUSE);
    CHECK_EQ(accept4(fd, NULL, NULL, SOCK_NONBLOCK), -1); /* it was not even disturbed */
    leads_to(unix_of("a"), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(unlink(path_of("a")), 0);
}

CASE(a_path_on_which_somebody_listens_stays_his)
{
    in_folder(alive_main);
}

static int raw_unix(const char *path, int type)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    strcpy(un.sun_path, path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    return fd;
}

static void other_main(void *arg)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    (void)arg;
    for (int i = 0; i < 2; i++) {
        int fd = raw_unix(path_of("a"), types[i]); /* about to listen, or never going to */
        CHECK_EQ(weft_listen(unix_of("a")), -EADDRINUSE);
        CHECK_EQ(kind_of("a"), S_IFSOCK);
        close(fd);
        fd = listens(unix_of("a"));
        CHECK_EQ(weft_close_fd(fd), 0);
        CHECK_EQ(unlink(path_of("a")), 0);
    }
}

CASE(a_path_that_somebody_holds_without_listening_stays_his)
{
    in_folder(other_main);
}

static void not_socket_main(void *arg)
{
    (void)arg;
    int fd = open(path_of("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    CHECK_EQ(mkdir(path_of("folder"), 0700), 0);
    CHECK_EQ(mkfifo(path_of("fifo"), 0600), 0);
    close(raw_unix(path_of("socket"), SOCK_STREAM));
    CHECK_EQ(symlink(path_of("socket"), path_of("link")), 0);
    CHECK_EQ(symlink(path_of("nothing"), path_of("dangling")), 0);
    CHECK_EQ(weft_listen(unix_of("file")), -EADDRINUSE);
    CHECK_EQ(weft_listen(unix_of("folder")), -EADDRINUSE);
    CHECK_EQ(weft_listen(unix_of("fifo")), -EADDRINUSE);
    CHECK_EQ(weft_listen(unix_of("link")), -EADDRINUSE);
    CHECK_EQ(weft_listen(unix_of("dangling")), -EADDRINUSE);
    CHECK_EQ(weft_dial(unix_of("file")), -ECONNREFUSED);
    CHECK_EQ(kind_of("file"), S_IFREG);
    CHECK_EQ(kind_of("folder"), S_IFDIR);
    CHECK_EQ(kind_of("fifo"), S_IFIFO);
    CHECK_EQ(kind_of("socket"), S_IFSOCK);
    CHECK_EQ(kind_of("link"), S_IFLNK);
    CHECK_EQ(kind_of("dangling"), S_IFLNK);
    CHECK_EQ(rmdir(path_of("folder")), 0);
    const char *files[] = {"file", "fifo", "socket", "link", "dangling"};
    for (int i = 0; i < 5; i++)
        CHECK_EQ(unlink(path_of(files[i])), 0);
}

CASE(what_is_no_socket_is_never_removed)
{
    in_folder(not_socket_main);
}

static void abstract_main(void *arg)
{
    (void)arg;
    const char *address = text_of("unix:@weft-test-%d", (int)getpid());
    CHECK_EQ(weft_dial(address), -ECONNREFUSED);
    for (int i = 0; i < 3; i++) {
        int fd = listens(address);
        CHECK_EQ(weft_listen(address), -EADDRINUSE);
        leads_to(address, fd);
        CHECK_EQ(weft_close_fd(fd), 0);
    }
    address = text_of("unix:@weft-test-%d-%090d", (int)getpid(), 0);
    address = text_of("%.*s", (int)strlen("unix:@") + 107, address);
    int fd = listens(address);
    leads_to(address, fd);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(an_abstract_name_is_listened_on_and_dialed)
{
    on_each_procs(abstract_main);
}

/* ---- dials that have to wait ------------------------------------------------------------------------------------- */

/* A listener that has as many to accept as it wants. */
struct full {
    int fd, waiting[16], count;
    const char *address;
};

static int connect_now(struct full *f)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    } sa;
    socklen_t n = sizeof sa;
    CHECK_EQ(getsockname(f->fd, &sa.any, &n), 0);
    int fd = f->waiting[f->count++] = socket(sa.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return connect(fd, &sa.any, n) == 0 ? 0 : errno;
}

static void fill_unix(struct full *f)
{
    f->fd = raw_unix(path_of("a"), SOCK_STREAM);
    f->address = unix_of("a");
    CHECK_EQ(listen(f->fd, 0), 0);
    while (f->count < 16 && connect_now(f) == 0)
        ;
    CHECK(f->count < 16);
}

/* One is let in; those after it are left to try again every second. */
static void fill_tcp(struct full *f)
{
    f->fd = bound_ipv4(INADDR_LOOPBACK, 0);
    f->address = text_of("127.0.0.1:%d", port_of(f->fd));
    CHECK_EQ(listen(f->fd, 0), 0);
    int first = connect_now(f);
    CHECK(first == 0 || first == EINPROGRESS);
    CHECK(weft_wait_fd(f->waiting[0], POLLOUT) > 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(connect_now(f), EINPROGRESS);
}

static void drop_full(struct full *f)
{
    for (int i = 0; i < f->count; i++)
        CHECK_EQ(weft_close_fd(f->waiting[i]), 0);
    CHECK_EQ(weft_close_fd(f->fd), 0);
}

static void cancel_soon(void *scope)
{
    CHECK_EQ(weft_sleep(5 * WEFT_MSEC), 0);
    weft_scope_cancel(scope, -EIO);
}

static void dial_is_cut(const char *address)
{
    weft_scope s = some_scope();
    int64_t deadline = weft_now() + 20 * WEFT_MSEC;
    CHECK_EQ(weft_scope_open(&s, deadline), 0);
    CHECK_EQ(weft_dial(address), -ETIMEDOUT);
    CHECK(weft_now() >= deadline);
    CHECK_EQ(weft_dial(address), -ETIMEDOUT); /* over already */
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, cancel_soon, &s), 0);
    CHECK_EQ(weft_dial(address), -ECANCELED);
    CHECK_EQ(weft_scope_close(&s), -EIO);
}

static void cut_tcp_main(void *arg)
{
    struct full f = {0};
    (void)arg;
    fill_tcp(&f);
    dial_is_cut(f.address);
    drop_full(&f);
}

CASE(a_dial_that_waits_for_tcp_is_cut_by_its_scope)
{
    on_each_procs(cut_tcp_main);
}

static void cut_unix_main(void *arg)
{
    struct full f = {0};
    (void)arg;
    fill_unix(&f);
    dial_is_cut(f.address);
    drop_full(&f);
    CHECK_EQ(unlink(path_of("a")), 0);
}

CASE(a_dial_that_waits_for_a_path_is_cut_by_its_scope)
{
    in_folder(cut_unix_main);
}

static _Atomic int let_in;

static void dial_and_close(void *address)
{
    int fd = dials(address);
    let_in++;
    CHECK_EQ(weft_close_fd(fd), 0);
}

static void admitted_main(void *arg)
{
    struct full f = {0};
    (void)arg;
    let_in = 0;
    fill_unix(&f);
    CHECK_EQ(weft_go(dial_and_close, (void *)f.address), 0);
    CHECK_EQ(weft_sleep(10 * WEFT_MSEC), 0);
    CHECK_EQ(let_in, 0);
    int fd = accept4(f.fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(reaches(&let_in, 1, 60));
    CHECK(others_have_ended());
    close(fd);
    drop_full(&f);
    CHECK_EQ(unlink(path_of("a")), 0);
}

CASE(a_dial_waits_until_a_path_has_room)
{
    in_folder(admitted_main);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *foreign_thread(void *arg)
{
    int fd = listens("127.0.0.1:0");
    leads_to(text_of("127.0.0.1:%d", port_of(fd)), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    const char *address = text_of("unix:@weft-test-%d-foreign", (int)getpid());
    fd = listens(address);
    leads_to(address, fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(weft_dial("nonsense"), -EINVAL);
    CHECK_EQ(weft_listen("nonsense"), -EINVAL);
    CHECK_EQ(weft_dial(address), -ECONNREFUSED);
    return arg;
}

static void foreign_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    CHECK_EQ(pthread_create(&thread, NULL, foreign_thread, NULL), 0);
    join_in_region(&thread, 1);
}

CASE(foreign_threads_listen_and_dial_too)
{
    on_each_procs(foreign_main);
}

static _Atomic bool thread_ended;

static void *foreign_thread_ends(void *arg)
{
    foreign_thread(arg);
    thread_ended = true;
    return arg;
}

/* No call into weft: nobody but the monitor is left to see what the thread waits for. */
static void compute_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    thread_ended = false;
    CHECK_EQ(pthread_create(&thread, NULL, foreign_thread_ends, NULL), 0);
    while (!thread_ended)
        sched_yield();
    join_in_region(&thread, 1);
}

CASE(foreign_threads_listen_and_dial_while_the_processor_computes)
{
    on_each_procs(compute_main);
}
