/* SPDX-License-Identifier: MIT */
/* Numbers that are no descriptors, sizes of nothing, vectors that make no sense, and devices. */
#include "io.h"
#include <limits.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

/* ---- no descriptors --------------------------------------------------------------------------------------------- */

static void all_refuse(int fd)
{
    char c = 0;
    struct iovec iov = {&c, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    struct sockaddr_in at = loopback();
    CHECK_EQ(weft_read(fd, &c, 1), -EBADF);
    CHECK_EQ(weft_write(fd, &c, 1), -EBADF);
    CHECK_EQ(weft_readv(fd, &iov, 1), -EBADF);
    CHECK_EQ(weft_writev(fd, &iov, 1), -EBADF);
    CHECK_EQ(weft_recv_from(fd, &c, 1, 0, NULL, NULL), -EBADF);
    CHECK_EQ(weft_send_to(fd, &c, 1, 0, NULL, 0), -EBADF);
    CHECK_EQ(weft_recvmsg(fd, &m, 0), -EBADF);
    CHECK_EQ(weft_sendmsg(fd, &m, 0), -EBADF);
    CHECK_EQ(weft_pread(fd, &c, 1, 0), -EBADF);
    CHECK_EQ(weft_pwrite(fd, &c, 1, 0), -EBADF);
    CHECK_EQ(weft_fsync(fd), -EBADF);
    CHECK_EQ(weft_accept(fd, NULL, NULL), -EBADF);
    CHECK_EQ(weft_connect(fd, (struct sockaddr *)&at, sizeof at), -EBADF);
    CHECK_EQ(weft_wait_fd(fd, POLLIN), -EBADF);
    CHECK_EQ(weft_wait_fd(fd, POLLOUT), -EBADF);
    CHECK_EQ(weft_read(fd, &c, 0), -EBADF);
    CHECK_EQ(weft_close_fd(fd), -EBADF);
}

static void no_descriptor_main(void *arg)
{
    static const int NUMBERS[] = {-1, -2, INT_MIN, 19999, 500000, (1 << 20) - 1, 1 << 20, 1 << 30, INT_MAX};
    int fd[2];
    (void)arg;
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        all_refuse(NUMBERS[i]);
    pipe_pair(fd);
    int closed = fcntl(fd[0], F_DUPFD_CLOEXEC, 900); /* away from the numbers that others use */
    CHECK_EQ(weft_close_fd(closed), 0);
    all_refuse(closed);
    CHECK_EQ(fcntl(fd[0], F_DUPFD_CLOEXEC, closed), closed);
    CHECK_EQ(close(closed), 0);
    all_refuse(closed);
    close_both(fd);
}

CASE(a_number_that_is_no_descriptor_is_refused)
{
    run_each_procs(no_descriptor_main);
}

static void wrong_way_main(void *arg)
{
    int fd[2];
    char c;
    struct sockaddr_in at = loopback();
    (void)arg;
    pipe_pair(fd);
    CHECK_EQ(weft_read(fd[1], &c, 1), -EBADF);
    CHECK_EQ(weft_write(fd[0], "x", 1), -EBADF);
    CHECK_EQ(weft_recv_from(fd[0], &c, 1, 0, NULL, NULL), -ENOTSOCK);
    CHECK_EQ(weft_send_to(fd[1], "x", 1, 0, NULL, 0), -ENOTSOCK);
    CHECK_EQ(weft_accept(fd[0], NULL, NULL), -ENOTSOCK);
    CHECK_EQ(weft_connect(fd[0], (struct sockaddr *)&at, sizeof at), -ENOTSOCK);
    CHECK_EQ(weft_pread(fd[0], &c, 1, 0), -ESPIPE);
    CHECK_EQ(weft_pwrite(fd[1], "x", 1, 0), -ESPIPE);
    CHECK_EQ(weft_fsync(fd[0]), -EINVAL);
    close_both(fd);
    unix_pair(fd);
    CHECK_EQ(weft_accept(fd[0], NULL, NULL), -EINVAL);
    CHECK_EQ(weft_pread(fd[0], &c, 1, 0), -ESPIPE);
    CHECK_EQ(weft_pread(fd[0], &c, 1, -1), -EINVAL);
    CHECK_EQ(weft_pwrite(fd[0], &c, 1, -1), -EINVAL);
    close_both(fd);
    int alone = socket_of(AF_INET, SOCK_STREAM);
    CHECK_EQ(weft_read(alone, &c, 1), -ENOTCONN);
    CHECK_EQ(weft_write(alone, &c, 1), -EPIPE);
    CHECK_EQ(weft_close_fd(alone), 0);
}

CASE(what_a_descriptor_cannot_do_is_an_error)
{
    run_each_procs(wrong_way_main);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

static void nothing_at_all(const struct stream_kind *kind, int fd[2])
{
    struct iovec none[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    char c;
    (void)kind;
    CHECK_EQ(weft_read(fd[0], &c, 0), 0); /* does not wait */
    CHECK_EQ(weft_readv(fd[0], none, 3), 0);
    CHECK_EQ(weft_readv(fd[0], none, 0), 0);
    CHECK_EQ(weft_write(fd[1], &c, 0), 0);
    CHECK_EQ(weft_writev(fd[1], none, 3), 0);
    CHECK_EQ(weft_writev(fd[1], none, 0), 0);
    close_both(fd);
}

CASE(nothing_is_read_and_written_at_once)
{
    on_each_pair_and_procs(nothing_at_all);
}

static void vector_sizes(const struct stream_kind *kind, int fd[2])
{
    static char data[IOV_MAX];
    struct iovec *iov = calloc(IOV_MAX + 1, sizeof *iov);
    (void)kind;
    for (int i = 0; i <= IOV_MAX; i++)
        iov[i] = (struct iovec){&data[i % IOV_MAX], 1};
    CHECK_EQ(weft_writev(fd[1], iov, -1), -EINVAL);
    CHECK_EQ(weft_readv(fd[0], iov, -1), -EINVAL);
    CHECK_EQ(weft_writev(fd[1], iov, IOV_MAX + 1), -EINVAL);
    CHECK_EQ(weft_readv(fd[0], iov, IOV_MAX + 1), -EINVAL);
    CHECK_EQ(weft_writev(fd[1], iov, INT_MIN), -EINVAL);
    CHECK_EQ(weft_writev(fd[1], iov, IOV_MAX), IOV_MAX);
    for (int sum = 0, n = 1; sum < IOV_MAX && n > 0; sum += n) {
        n = (int)weft_readv(fd[0], iov, IOV_MAX);
        CHECK(n > 0 && sum + n <= IOV_MAX);
    }
    iov[0].iov_len = (size_t)SSIZE_MAX + 1;
    CHECK_EQ(weft_writev(fd[1], iov, 1), -EINVAL);
    iov[0].iov_len = iov[1].iov_len = SSIZE_MAX;
    CHECK_EQ(weft_readv(fd[0], iov, 2), -EINVAL);
    free(iov);
    close_both(fd);
}

CASE(a_vector_has_its_limits)
{
    on_each_pair_and_procs(vector_sizes);
}

static void bad_memory(const struct stream_kind *kind, int fd[2])
{
    (void)kind;
    CHECK_EQ(weft_write(fd[1], (void *)16, 5), -EFAULT);
    CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
    CHECK_EQ(weft_read(fd[0], (void *)16, 3), -EFAULT);
    close_both(fd);
}

CASE(a_buffer_that_is_not_there_is_an_error)
{
    if (check_under_tsan() || check_under_asan()) {
        skipped("a sanitizer looks at the buffer first");
        return;
    }
    on_each_pair_and_procs(bad_memory);
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static void devices_main(void *arg)
{
    char *data = malloc(1 << 20);
    int zero = weft_open("/dev/zero", O_RDWR, 0), null = weft_open("/dev/null", O_RDWR, 0);
    int folder = weft_open("/proc/self", O_RDONLY | O_DIRECTORY, 0);
    (void)arg;
    CHECK(zero >= 0 && null >= 0 && folder >= 0);
    for (int i = 0; i < 3; i++) {
        memset(data, 1, 1 << 20);
        ssize_t n = weft_read(zero, data, 1 << 20); /* a signal makes it short */
        CHECK(n > 0 && data[0] == 0 && memcmp(data, data + 1, (size_t)n - 1) == 0);
        CHECK_EQ(weft_write(zero, data, 1000), 1000);
        CHECK_EQ(weft_pread(zero, data, 1000, 77), 1000);
        CHECK_EQ(weft_read(null, data, 100), 0);
        CHECK_EQ(weft_write(null, data, 1 << 20), 1 << 20);
        CHECK_EQ(weft_read(folder, data, 10), -EISDIR);
        CHECK_EQ(weft_pread(folder, data, 10, 0), -EISDIR);
        CHECK_EQ(weft_write(folder, data, 10), -EBADF);
        CHECK_EQ(weft_wait_fd(null, POLLIN | POLLOUT), POLLIN | POLLOUT);
        CHECK_EQ(weft_wait_fd(folder, POLLIN), POLLIN);
    }
    CHECK_EQ(weft_open("/nowhere/at/all", O_RDONLY, 0), -ENOENT);
    CHECK_EQ(fcntl(null, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(weft_close_fd(zero) | weft_close_fd(null) | weft_close_fd(folder), 0);
    free(data);
}

CASE(devices_and_folders_are_descriptors_too)
{
    run_each_procs(devices_main);
}

static long call_read_counter(struct one_call *c)
{
    uint64_t n = 0;
    long r = weft_read(c->fd, &n, sizeof n);
    return r == sizeof n ? (long)n : r;
}

static void counter_main(void *arg)
{
    uint64_t n = 5;
    for (int i = 0; i < 2; i++) {
        int fd = eventfd(0, EFD_CLOEXEC | (i ? EFD_NONBLOCK : 0));
        struct one_call c = {.fn = call_read_counter, .fd = fd};
        for (int k = 0; k < 3; k++) {
            call_begin(&c);
            CHECK_EQ(weft_write(fd, &n, sizeof n), sizeof n);
            CHECK_EQ(call_end(&c), 5);
        }
        CHECK_EQ(weft_write(fd, &n, 4), -EINVAL);
        CHECK_EQ(weft_close_fd(fd), 0);
    }
    (void)arg;
}

CASE(an_event_counter_is_waited_for)
{
    run_each_procs(counter_main);
}

static void timer_main(void *arg)
{
    struct itimerspec soon = {.it_value = {.tv_nsec = 2000000}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    (void)arg;
    for (int i = 0; i < 3; i++) {
        struct one_call c = {.fn = i == 1 ? call_wait : call_read_counter, .fd = fd, .flags = POLLIN};
        CHECK_EQ(timerfd_settime(fd, 0, &soon, NULL), 0);
        CHECK_EQ(c.fn(&c), 1); /* fired once; POLLIN */
    }
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(a_timer_descriptor_is_waited_for)
{
    run_each_procs(timer_main);
}

/* ---- a terminal in its own mode --------------------------------------------------------------------------------- */

static void lines_main(void *arg)
{
    int fd[2];
    struct termios t;
    char text[64];
    (void)arg;
    pty_pair(fd);
    CHECK_EQ(tcgetattr(fd[0], &t), 0);
    t.c_lflag |= ICANON;
    CHECK_EQ(tcsetattr(fd[0], TCSANOW, &t), 0);
    struct one_call c = {.fn = call_read, .fd = fd[0]};
    call_begin(&c);
    CHECK_EQ(weft_write(fd[1], "half", 4), 4);
    let_others_run();
    CHECK_EQ(c.result, -1000); /* no line yet */
    CHECK_EQ(weft_write(fd[1], " line\nmore\n", 11), 11);
    CHECK_EQ(call_end(&c), 10);
    CHECK(memcmp(c.text, "half line\n", 10) == 0);
    CHECK_EQ(weft_read(fd[0], text, sizeof text), 5);
    CHECK_EQ(weft_write(fd[0], "answer\n", 7), 7);
    CHECK_EQ(weft_read(fd[1], text, sizeof text), 7);
    close_both(fd);
}

CASE(a_terminal_gives_lines)
{
    run_each_procs(lines_main);
}
