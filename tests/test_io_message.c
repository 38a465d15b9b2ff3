/* SPDX-License-Identifier: MIT */
/* Datagrams, addresses, flags of sockets, and what goes along with a message. */
#include "traffic.h"

static void bind_here(int fd, struct sockaddr_in *at)
{
    socklen_t n = sizeof *at;
    *at = loopback();
    CHECK_EQ(bind(fd, (struct sockaddr *)at, n), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)at, &n), 0);
}

static void dgram_pair(int fd[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fd), 0);
}

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

static long call_recv_addr(struct one_call *c)
{
    struct sockaddr_in from = {0};
    socklen_t n = sizeof from;
    long r = weft_recv_from(c->fd, c->text, sizeof c->text, 0, (struct sockaddr *)&from, &n);
    CHECK_EQ(n, sizeof from);
    c->flags = ntohs(from.sin_port);
    return r;
}

static void udp_main(void *arg)
{
    int a = socket_of(AF_INET, SOCK_DGRAM), b = socket_of(AF_INET, SOCK_DGRAM);
    struct sockaddr_in at_a, at_b;
    char text[64];
    (void)arg;
    bind_here(a, &at_a);
    bind_here(b, &at_b);
    struct one_call c = {.fn = call_recv_addr, .fd = a};
    call_begin(&c);
    CHECK_EQ(weft_send_to(b, "hello", 5, 0, (struct sockaddr *)&at_a, sizeof at_a), 5);
    CHECK_EQ(call_end(&c), 5);
    CHECK_EQ(c.flags, ntohs(at_b.sin_port)); /* who sent it */
    CHECK_EQ(weft_send_to(b, "", 0, 0, (struct sockaddr *)&at_a, sizeof at_a), 0);
    CHECK_EQ(weft_recv_from(a, text, sizeof text, 0, NULL, NULL), 0); /* an empty one is one too */
    CHECK_EQ(weft_connect(b, (struct sockaddr *)&at_a, sizeof at_a), 0);
    CHECK_EQ(weft_write(b, "abc", 3), 3);
    CHECK_EQ(weft_read(a, text, 2), 2); /* the rest of a datagram is gone */
    CHECK_EQ(weft_write(b, "de", 2), 2);
    CHECK_EQ(weft_read(a, text, sizeof text), 2);
    CHECK(memcmp(text, "de", 2) == 0);
    CHECK_EQ(weft_close_fd(a), 0);
    CHECK_EQ(weft_write(b, "x", 1), 1); /* nobody is there: told with the next call */
    CHECK_EQ(weft_read(b, text, 1), -ECONNREFUSED);
    CHECK_EQ(weft_close_fd(b), 0);
}

CASE(udp_datagrams_have_senders)
{
    run_each_procs(udp_main);
}

static ssize_t send_connected(int fd, const void *data, size_t size)
{
    return weft_send_to(fd, data, size, 0, NULL, 0);
}

static void dgram_main(void *arg)
{
    (void)arg;
    posts_come_in_order(scaled(20000), send_connected);
}

CASE(datagrams_between_two_come_in_order_and_none_is_lost)
{
    run_each_procs(dgram_main);
}

static void truncated_main(void *arg)
{
    int fd[2];
    char text[4];
    struct iovec iov = {text, sizeof text};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    (void)arg;
    dgram_pair(fd);
    CHECK_EQ(weft_write(fd[1], "abcdef", 6), 6);
    CHECK_EQ(weft_write(fd[1], "gh", 2), 2);
    CHECK_EQ(weft_recvmsg(fd[0], &m, 0), 4);
    CHECK(m.msg_flags & MSG_TRUNC);
    CHECK_EQ(weft_recvmsg(fd[0], &m, MSG_WAITALL), 2); /* one datagram, not more */
    CHECK(!(m.msg_flags & MSG_TRUNC));
    CHECK_EQ(weft_write(fd[1], "abcdef", 6), 6);
    CHECK_EQ(weft_recv_from(fd[0], text, 4, MSG_TRUNC, NULL, NULL), 6); /* its true size */
    close_both(fd);
}

CASE(a_datagram_that_is_too_long_is_marked)
{
    run_each_procs(truncated_main);
}

static void seqpacket_main(void *arg)
{
    int fd[2];
    char text[16];
    (void)arg;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
    CHECK_EQ(weft_write(fd[1], "ab", 2), 2);
    CHECK_EQ(weft_write(fd[1], "cd", 2), 2);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_read(fd[0], text, sizeof text), 2);
    CHECK_EQ(weft_read(fd[0], text, sizeof text), 0);
    CHECK_EQ(weft_close_fd(fd[0]), 0);
}

CASE(packets_of_a_connection_keep_their_bounds)
{
    run_each_procs(seqpacket_main);
}

/* ---- flags ------------------------------------------------------------------------------------------------------ */

static void flags_on(const struct stream_kind *kind, int fd[2])
{
    char text[16] = "";
    if (kind->socket) {
        CHECK_EQ(weft_recv_from(fd[0], text, 4, MSG_DONTWAIT, NULL, NULL), -EAGAIN);
        struct one_call c = {.fn = call_recv, .fd = fd[0], .flags = MSG_PEEK};
        call_begin(&c);
        CHECK_EQ(weft_send_to(fd[1], "abc", 3, 0, NULL, 0), 3);
        CHECK_EQ(call_end(&c), 3);
        CHECK_EQ(weft_recv_from(fd[0], text, 2, MSG_PEEK, NULL, NULL), 2);
        CHECK_EQ(weft_recv_from(fd[0], text, 16, 0, NULL, NULL), 3); /* it was still there */
        CHECK(memcmp(text, "abc", 3) == 0);
        if (kind->steady) {
            fill(fd[1]);
            CHECK_EQ(weft_send_to(fd[1], "x", 1, MSG_DONTWAIT, NULL, 0), -EAGAIN);
        }
    }
    close_both(fd);
}

CASE(flags_of_sockets_mean_what_they_say)
{
    on_each_pair_and_procs(flags_on);
}

static void partly_without_waiting(const struct stream_kind *kind, int fd[2])
{
    if (kind->socket) {
        size_t size = 32 << 20;
        char *data = calloc(1, size);
        ssize_t n = weft_send_to(fd[1], data, size, MSG_DONTWAIT, NULL, 0);
        CHECK(n > 0 && (size_t)n < size);
        free(data);
    }
    close_both(fd);
}

CASE(a_send_that_must_not_wait_sends_a_part)
{
    on_each_pair_and_procs(partly_without_waiting);
}

static long call_recv_all(struct one_call *c)
{
    return weft_recv_from(c->fd, c->text, 10, MSG_WAITALL, NULL, NULL);
}

static void whole(const struct stream_kind *kind, int fd[2])
{
    if (kind->socket) {
        struct one_call c = {.fn = call_recv_all, .fd = fd[0]};
        call_begin(&c);
        for (int i = 0; i < 5; i++) {
            CHECK_EQ(weft_write(fd[1], "ab", 2), 2);
            let_others_run();
        }
        CHECK_EQ(call_end(&c), 10);
        CHECK(memcmp(c.text, "ababababab", 10) == 0);
        call_begin(&c);
        CHECK_EQ(weft_write(fd[1], "cd", 2), 2);
        CHECK_EQ(shutdown(fd[1], SHUT_WR), 0); /* the end comes before the whole */
        CHECK_EQ(call_end(&c), 2);
        CHECK_EQ(call_recv_all(&c), 0);
    }
    close_both(fd);
}

CASE(a_receive_of_all_waits_for_all)
{
    on_each_pair_and_procs(whole);
}

static void whole_vector(const struct stream_kind *kind, int fd[2])
{
    if (kind->socket) {
        char a[3], b[4], d[5];
        struct iovec iov[] = {{a, 3}, {NULL, 0}, {b, 4}, {d, 5}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 4};
        CHECK_EQ(weft_write(fd[1], "ab", 2), 2);
        struct posts p = {.fd = {-1, fd[1]}, .n = 3, .send = weft_write}; /* 12 bytes more, the last 2 stay */
        weft_wg_add(&p.ended, 1);
        CHECK_EQ(weft_go(post, &p), 0);
        CHECK_EQ(weft_recvmsg(fd[0], &m, MSG_WAITALL), 12);
        CHECK(memcmp(a, "ab\0", 3) == 0);
        CHECK(memcmp(b, "\0\0\0\1", 4) == 0);
        CHECK_EQ(weft_wg_wait(&p.ended), 0);
        CHECK_EQ(weft_recv_from(fd[0], d, 5, 0, NULL, NULL), 2);
    }
    close_both(fd);
}

CASE(a_message_of_all_fills_its_vector)
{
    on_each_pair_and_procs(whole_vector);
}

static void urgent_main(void *arg)
{
    int fd[2];
    char c = 0;
    (void)arg;
    tcp_pair(fd);
    struct one_call wait = {.fn = call_wait, .fd = fd[0], .flags = POLLPRI};
    call_begin(&wait);
    CHECK_EQ(weft_send_to(fd[1], "!", 1, MSG_OOB, NULL, 0), 1);
    CHECK(call_end(&wait) & POLLPRI);
    CHECK_EQ(weft_recv_from(fd[0], &c, 1, MSG_OOB, NULL, NULL), 1);
    CHECK_EQ(c, '!');
    close_both(fd);
}

CASE(urgent_data_is_waited_for_and_received)
{
    run_each_procs(urgent_main);
}

/* ---- descriptors that are passed -------------------------------------------------------------------------------- */

union rights {
    char space[CMSG_SPACE(sizeof(int) * 4)];
    struct cmsghdr align;
};

static void pass(int through, int fd, void *data, size_t size)
{
    union rights r = {0};
    struct iovec iov[3] = {{data, size / 2}, {NULL, 0}, {(char *)data + size / 2, size - size / 2}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3, .msg_control = &r, .msg_controllen = CMSG_SPACE(sizeof fd)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CHECK_EQ(weft_sendmsg(through, &m, 0), size);
}

struct passing {
    int fd[2];
    size_t size;
    weft_wg ended;
    int passed; /* so many descriptors came out */
};

/* Whatever comes along with the bytes is counted and closed. */
static void take_all(void *arg)
{
    struct passing *p = arg;
    char *buffer = malloc(70000);
    for (size_t sum = 0; sum < p->size;) {
        union rights r;
        struct iovec iov = {buffer, 70000};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
        ssize_t n = weft_recvmsg(p->fd[0], &m, MSG_CMSG_CLOEXEC);
        CHECK(n > 0);
        if (n <= 0)
            break;
        sum += (size_t)n;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
            CHECK_EQ(weft_write(fd, "p", 1), 1); /* it works */
            CHECK_EQ(weft_close_fd(fd), 0);
            p->passed++;
        }
    }
    free(buffer);
    weft_wg_done(&p->ended);
}

/* With more than fits at once: what follows the first part must not carry the descriptor again. */
static void rights_main(void *arg)
{
    struct passing p = {.size = 4 << 20};
    int ends[2];
    char *data = calloc(1, p.size), c;
    (void)arg;
    unix_pair(p.fd);
    pipe_pair(ends);
    weft_wg_add(&p.ended, 1);
    CHECK_EQ(weft_go(take_all, &p), 0);
    pass(p.fd[1], ends[1], data, p.size);
    CHECK_EQ(weft_wg_wait(&p.ended), 0);
    CHECK_EQ(p.passed, 1);
    CHECK_EQ(weft_read(ends[0], &c, 1), 1);
    CHECK_EQ(weft_close_fd(ends[1]), 0);
    CHECK_EQ(weft_read(ends[0], &c, 1), 0); /* and nobody has it any more */
    CHECK_EQ(weft_close_fd(ends[0]), 0);
    free(data);
    close_both(p.fd);
}

CASE(a_descriptor_is_passed_once)
{
    run_each_procs(rights_main);
}

static long call_recv_rights(struct one_call *call)
{
    union rights r;
    struct iovec iov = {call->text, sizeof call->text};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
    long n = weft_recvmsg(call->fd, &m, MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c != NULL && c->cmsg_type == SCM_RIGHTS);
    if (c != NULL)
        memcpy(&call->flags, CMSG_DATA(c), sizeof(int));
    return n;
}

/* A try in vain shortens what the caller gave for them: the next must have all of it again. */
static void waited_rights_main(void *arg)
{
    int fd[2];
    (void)arg;
    unix_pair(fd);
    struct one_call c = {.fn = call_recv_rights, .fd = fd[0]};
    call_begin(&c);
    pass(fd[1], fd[1], (char[]){"xy"}, 2);
    CHECK_EQ(call_end(&c), 2);
    CHECK_EQ(weft_close_fd(c.flags), 0);
    close_both(fd);
}

CASE(who_waits_gets_what_comes_along)
{
    run_each_procs(waited_rights_main);
}
