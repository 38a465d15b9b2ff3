/* SPDX-License-Identifier: MIT */
/* Connections, sleeping, files, names and processes through libweft_posix. */
#include "pairs.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>
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

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* In fds[0], of the family in data. */
static int listener(int family, struct sockaddr_storage *at, socklen_t *n)
{
    int fd = socket(family, SOCK_STREAM, 0);
    *at = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
    if (family == AF_INET)
        ((struct sockaddr_in *)at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(bind(fd, (struct sockaddr *)at, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa_family_t)), 0);
    CHECK_EQ(listen(fd, 64), 0);
    *n = sizeof *at;
    CHECK_EQ(getsockname(fd, (struct sockaddr *)at, n), 0);
    return fd;
}

static void with_listener(struct pair *p, int family)
{
    struct sockaddr_storage at;
    socklen_t n;
    p->fds[0] = listener(family, &at, &n);
    p->fds[1] = socket(family, SOCK_STREAM, 0);
}

static void with_tcp(struct pair *p)
{
    with_listener(p, AF_INET);
}

static void with_local(struct pair *p)
{
    with_listener(p, AF_UNIX);
}

static void wait_accept(struct pair *p)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    int fd = accept(p->fds[0], (struct sockaddr *)&from, &n);
    CHECK(fd >= 0 && is_blocking(fd) && n > 0);
    CHECK_EQ(read(fd, p->data, sizeof p->data), 2);
    CHECK_EQ(write(fd, "ok", 2), 2);
    close(fd);
}

static void feed_connect(struct pair *p)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char text[2];
    CHECK_EQ(getsockname(p->fds[0], (struct sockaddr *)&at, &n), 0);
    CHECK_EQ(connect(p->fds[1], (struct sockaddr *)&at, n), 0);
    CHECK(is_blocking(p->fds[1]));
    CHECK_EQ(write(p->fds[1], "hi", 2), 2);
    CHECK_EQ(read(p->fds[1], text, 2), 2);
}

CASE(accept_and_connect_park)
{
    each_way(&(struct kind){with_tcp, wait_accept, feed_connect});
    each_way(&(struct kind){with_local, wait_accept, feed_connect});
}

static void wait_accept4(struct pair *p)
{
    int fd = accept4(p->fds[0], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(fd >= 0 && !is_blocking(fd) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    fcntl(fd, F_SETFL, 0);
    CHECK_EQ(read(fd, p->data, sizeof p->data), 2);
    CHECK_EQ(write(fd, "ok", 2), 2);
    close(fd);
}

CASE(accept4_knows_its_flags)
{
    each_way(&(struct kind){with_tcp, wait_accept4, feed_connect});
}

/* Many accept from the same blocking listener; everybody gets one. */
enum { ACCEPTORS = 20 };

struct door {
    int fd;
    struct sockaddr_storage at;
    socklen_t n;
    weft_wg all;
};

static void accepts_one(void *arg)
{
    struct door *door = arg;
    char c;
    int fd = accept(door->fd, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQ(read(fd, &c, 1), 1);
    close(fd);
    weft_wg_done(&door->all);
}

static void connects_one(void *arg)
{
    struct door *door = arg;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&door->at, door->n), 0);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    weft_wg_done(&door->all);
}

static void door_main(void *arg)
{
    struct door door = {0};
    (void)arg;
    door.fd = listener(AF_INET, &door.at, &door.n);
    weft_wg_add(&door.all, 2 * ACCEPTORS);
    for (int i = 0; i < ACCEPTORS; i++)
        CHECK_EQ(weft_go(accepts_one, &door), 0);
    for (int i = 0; i < ACCEPTORS; i++)
        CHECK_EQ(weft_go(connects_one, &door), 0);
    CHECK_EQ(weft_wg_wait(&door.all), 0);
    CHECK(check_threads() <= weft_procs(0) + SPARE_THREADS);
    close(door.fd);
}

CASE(many_may_accept_from_one_listener)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, door_main, NULL), 0);
}

static void refused(void)
{
    struct sockaddr_storage at;
    socklen_t n;
    int fd = listener(AF_INET, &at, &n), other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(accept(other, NULL, NULL), EINVAL);
    CHECK_ERRNO(accept(-1, NULL, NULL), EBADF);
    CHECK_ERRNO(connect(other, NULL, 0), EINVAL);
    close(fd);
    CHECK_ERRNO(connect(other, (struct sockaddr *)&at, n), ECONNREFUSED);
    CHECK(is_blocking(other));
    close(other);
}

CASE(connections_may_be_refused)
{
    inside_and_outside(refused);
}

/* A limit of 30 ms. */
static void limit(int fd, int option)
{
    struct timeval tv = {.tv_usec = 30000};
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, option, &tv, sizeof tv), 0);
}

static void limited_accept(void)
{
    struct sockaddr_storage at;
    socklen_t n;
    int fd = listener(AF_INET, &at, &n);
    limit(fd, SO_RCVTIMEO);
    CHECK_ERRNO(accept(fd, NULL, NULL), EAGAIN);
    CHECK_ERRNO(accept4(fd, NULL, NULL, 0), EAGAIN);
    CHECK(is_blocking(fd));
    close(fd);
}

CASE(accept_knows_the_sockets_limit)
{
    inside_and_outside(limited_accept);
}

/* Nobody accepts, and the queue of the listener is full: who else connects has to wait. */
static void limited_connect(int family, int err)
{
    enum { TRIES = 8 };
    struct sockaddr_storage at;
    socklen_t n;
    int fd = listener(family, &at, &n), fds[TRIES], i, r = 0;
    CHECK_EQ(listen(fd, 0), 0);
    for (i = 0; i < TRIES && r == 0; i++) {
        fds[i] = socket(family, SOCK_STREAM, 0);
        limit(fds[i], SO_SNDTIMEO);
        r = connect(fds[i], (struct sockaddr *)&at, n);
    }
    CHECK_EQ(r, -1);
    CHECK_EQ(errno_of_now(), err);
    CHECK(is_blocking(fds[i - 1]));
    while (i > 0)
        close(fds[--i]);
    close(fd);
}

static void limited_connects(void)
{
    limited_connect(AF_INET, EINPROGRESS);
    limited_connect(AF_UNIX, EAGAIN);
}

CASE(connect_knows_the_sockets_limit)
{
    inside_and_outside(limited_connects);
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

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void at_offsets(int fd)
{
    char text[16] = {0};
    struct iovec from[] = {{"ab", 2}, {"cd", 2}}, to[] = {{text, 1}, {text + 1, 3}};
    CHECK_EQ(pwrite(fd, "0123456789", 10, 0), 10);
    CHECK_EQ(pwrite64(fd, "xy", 2, 8), 2);
    CHECK_EQ(pwritev(fd, from, 2, 2), 4);
    CHECK_EQ(preadv(fd, to, 2, 2), 4);
    CHECK(memcmp(text, "abcd", 4) == 0);
    CHECK_EQ(pread(fd, text, 10, 0), 10);
    CHECK_EQ(pread64(fd, text + 10, 2, 8), 2);
    CHECK(memcmp(text, "01abcd67xyxy", 12) == 0);
    CHECK_EQ(preadv2(fd, to, 1, 0, 0), 1);
    CHECK_EQ(pwritev2(fd, from, 1, 0, 0), 2);
}

static void written_and_synced(int fd)
{
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(write(fd, "one", 3), 3);
    CHECK_EQ(fsync(fd), 0);
    CHECK_EQ(fdatasync(fd), 0);
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(lockf(fd, F_TEST, 0), 0);
    CHECK_EQ(close(fd), 0);
}

static void opened_again(const char *path)
{
    char text[4] = {0};
    int fd = open(path, O_RDONLY);
    CHECK_EQ(fcntl(fd, F_GETFD), 0); /* not close-on-exec unless one asks for it */
    CHECK_EQ(read(fd, text, 3), 3);
    CHECK(memcmp(text, "one", 3) == 0);
    CHECK_EQ(close(fd), 0);
    fd = openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(close(fd), 0);
}

static void created_with_a_mode(const char *path)
{
    struct stat st;
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_EQ(close(fd), 0);
}

static void file_calls(void)
{
    char path[] = "/tmp/weft-posix-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    at_offsets(fd);
    written_and_synced(fd);
    opened_again(path);
    CHECK_EQ(unlink(path), 0);
    CHECK_ERRNO(open(path, O_RDONLY), ENOENT);
    created_with_a_mode(path);
    CHECK_EQ(unlink(path), 0);
}

CASE(files_are_opened_read_and_written)
{
    inside_and_outside(file_calls);
}

/* Opening a fifo waits for the other side. */
static char fifo[64];

static void open_other_side(void *arg)
{
    int fd = open(fifo, O_WRONLY);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    weft_wg_done(arg);
}

static void fifo_main(void *arg)
{
    char c;
    weft_wg other = {0};
    (void)arg;
    snprintf(fifo, sizeof fifo, "/tmp/weft-posix-fifo-%d", (int)getpid());
    CHECK_EQ(mkfifo(fifo, 0600), 0);
    weft_wg_add(&other, 1);
    CHECK_EQ(weft_go(open_other_side, &other), 0);
    int fd = open(fifo, O_RDONLY);
    CHECK_EQ(read(fd, &c, 1), 1);
    close(fd);
    CHECK_EQ(weft_wg_wait(&other), 0);
    CHECK_EQ(unlink(fifo), 0);
}

CASE(open_lets_others_run)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, fifo_main, NULL), 0);
}

static int temporary(const char *text)
{
    char path[] = "/tmp/weft-posix-XXXXXX";
    int fd = mkstemp(path);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static void holds(int fd, const char *expected)
{
    char text[64] = {0};
    CHECK_EQ(pread(fd, text, sizeof text, 0), strlen(expected));
    CHECK(strcmp(text, expected) == 0);
}

static void copies(void)
{
    char text[8] = {0};
    int fd = temporary("one two"), other = temporary(""), fds[2], sockets[2];
    off_t at = 0;
    off64_t from = 4;
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    CHECK_EQ(sendfile(sockets[1], fd, &at, 7), 7);
    CHECK_EQ(read(sockets[0], text, sizeof text), 7);
    CHECK(memcmp(text, "one two", 7) == 0);
    CHECK_EQ(splice(fd, &from, fds[1], NULL, 3, 0), 3);
    CHECK_EQ(splice(fds[0], NULL, other, NULL, 3, 0), 3);
    holds(other, "two");
    from = 0;
    CHECK_EQ(copy_file_range(fd, &from, other, NULL, 3, 0), 3);
    holds(other, "twoone");
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(sockets[i]);
    }
    close(fd);
    close(other);
}

CASE(the_kernel_copies)
{
    inside_and_outside(copies);
}

static void synced(void)
{
    int fd = temporary("one");
    CHECK_EQ(sync_file_range(fd, 0, 3, SYNC_FILE_RANGE_WRITE), 0);
    void *at = mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    memcpy(at, "two", 3);
    CHECK_EQ(msync(at, 3, MS_SYNC), 0);
    CHECK_EQ(munmap(at, 3), 0);
    holds(fd, "two");
    CHECK_ERRNO(syncfs(-1), EBADF);
    CHECK_ERRNO(tcdrain(fd), ENOTTY);
    close(fd);
}

CASE(files_are_synced)
{
    inside_and_outside(synced);
}

int __open_2(const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);
ssize_t __pread_chk(int fd, void *buffer, size_t size, off_t offset, size_t room);

static void other_names(void)
{
    char path[] = "/tmp/weft-posix-XXXXXX", c[2];
    close(mkstemp(path));
    int fd = creat(path, 0600);
    CHECK_EQ(write(fd, "one", 3), 3);
    close(fd);
    fd = __open_2(path, O_RDONLY);
    CHECK_EQ(__pread_chk(fd, c, 1, 2, sizeof c), 1);
    CHECK_EQ(c[0], 'e');
    close(fd);
    fd = __openat64_2(AT_FDCWD, path, O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
    fd = open64(path, O_RDWR);
    CHECK_EQ(preadv64(fd, &(struct iovec){c, 1}, 1, 1), 1);
    CHECK_EQ(c[0], 'n');
    close(fd);
    CHECK_EQ(unlink(path), 0);
}

CASE(files_by_the_other_names)
{
    inside_and_outside(other_names);
}

/* ---- many messages at once -------------------------------------------------------------------------------------- */

static void batches(void)
{
    int fds[2];
    char text[2][4] = {{0}};
    struct iovec from[2] = {{"one", 3}, {"two", 3}}, to[2] = {{text[0], 4}, {text[1], 4}};
    struct mmsghdr out[2] = {{.msg_hdr = {.msg_iov = &from[0], .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = &from[1], .msg_iovlen = 1}}};
    struct mmsghdr in[2] = {{.msg_hdr = {.msg_iov = &to[0], .msg_iovlen = 1}},
                            {.msg_hdr = {.msg_iov = &to[1], .msg_iovlen = 1}}};
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), 0);
    CHECK_EQ(sendmmsg(fds[1], out, 2, 0), 2);
    CHECK_EQ(recvmmsg(fds[0], in, 2, 0, NULL), 2);
    CHECK(memcmp(text[0], "one", 3) == 0 && memcmp(text[1], "two", 3) == 0);
    close(fds[0]);
    close(fds[1]);
}

CASE(messages_go_in_batches)
{
    inside_and_outside(batches);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void names(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char name[64], service[16];
    CHECK_EQ(getaddrinfo("127.0.0.1", "80", &hints, &found), 0);
    CHECK(found != NULL && ((struct sockaddr_in *)found->ai_addr)->sin_port == htons(80));
    CHECK_EQ(getnameinfo(found->ai_addr, found->ai_addrlen, name, sizeof name, service, sizeof service,
                         NI_NUMERICHOST | NI_NUMERICSERV),
             0);
    CHECK(strcmp(name, "127.0.0.1") == 0 && strcmp(service, "80") == 0);
    freeaddrinfo(found);
    struct hostent host, *result = NULL;
    char buffer[1024];
    int error = 0;
    CHECK_EQ(gethostbyname_r("127.0.0.1", &host, buffer, sizeof buffer, &result, &error), 0);
    CHECK(result != NULL && result->h_addrtype == AF_INET);
    CHECK_EQ(gethostbyname2_r("127.0.0.1", AF_INET, &host, buffer, sizeof buffer, &result, &error), 0);
    CHECK(result != NULL && result->h_length == 4);
    hints.ai_flags = AI_NUMERICHOST;
    CHECK_EQ(getaddrinfo("no number", NULL, &hints, &found), EAI_NONAME);
}

CASE(names_are_looked_up)
{
    inside_and_outside(names);
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
    CHECK_EQ(wait4(pid, &status, 0, NULL), pid);
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

enum { SIGNALS = 2000, WORKERS = 8 };

static int self_pipe[2];
static _Atomic bool signals_over;

static void write_to_self(int sig)
{
    int saved = errno;
    (void)sig;
    if (write(self_pipe[1], "x", 1) != 1)
        abort();
    errno = saved;
}

static void *send_signals(void *arg)
{
    for (int i = 0; i < SIGNALS; i++) {
        kill(getpid(), SIGUSR1);
        if (i % 10 == 0)
            usleep(100);
    }
    signals_over = true;
    return arg;
}

static void work(void *arg)
{
    while (!signals_over) {
        weft_yield();
        usleep(10);
    }
    weft_wg_done(arg);
}

/* Wherever the signal finds a thread, in the middle of the runtime too. */
static void signals_main(void *arg)
{
    pthread_t thread;
    weft_wg all = {0};
    (void)arg;
    signals_over = false;
    weft_wg_add(&all, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(weft_go(work, &all), 0);
    CHECK_EQ(pthread_create(&thread, NULL, send_signals, NULL), 0);
    CHECK_EQ(weft_wg_wait(&all), 0);
    join_in_region(&thread, 1);
}

CASE(handlers_may_write_to_a_pipe)
{
    char text[SIGNALS];
    CHECK_EQ(pipe2(self_pipe, O_NONBLOCK), 0);
    struct sigaction act = {.sa_handler = write_to_self, .sa_flags = SA_RESTART | SA_ONSTACK}, former;
    sigaction(SIGUSR1, &act, &former);
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, signals_main, NULL), 0);
        CHECK(read(self_pipe[0], text, sizeof text) > 0);
    }
    sigaction(SIGUSR1, &former, NULL);
    close(self_pipe[0]);
    close(self_pipe[1]);
}
